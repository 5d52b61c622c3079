"""The key scan: read key columns to find the row groups that contain a source key.

Only row groups that nothing else has ruled out are read, one at a time. Where a prefilter can say
which rows may have a wanted key, the others are not decoded.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.arrow_compat import int96_keys, naming_damage, open_data_file
from fsspeckit.core.keys import (
    KeyIndex,
    canonical_keys,
    common_type,
    family,
    key_column,
    keys_table,
)
from fsspeckit.core.parquet import KeyPrefilter, PrefilteredRows, prefilter_chunk
from fsspeckit.core.planning import parse_hive_partition_path, parse_partition_values, read_footer
from fsspeckit.errors import InvalidArgumentError, UnreadableFileError
from fsspeckit.storage import DataFile, open_root, read_range

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from fsspeckit.core.keys import KeyColumn
    from fsspeckit.core.planning import FileFooter
    from fsspeckit.storage import Root

    Rows = NDArray[np.int64]

_MIN_PREFILTER_ROWS: Final = 10_000
"""Fewer rows are decoded in less time than it takes to filter their pages."""


def prefilter_for(keys: pa.Table, columns: Sequence[KeyColumn]) -> KeyPrefilter | None:
    """Return a filter that passes some canonical keys; None where such keys have none."""
    (name, *more) = [column.name for column in columns]
    is_text = family(columns[0].type) in ("string", "binary")
    return KeyPrefilter.of(keys.column(name)) if is_text and not more else None


def scan_keys(
    root: Root,
    footer: FileFooter,
    row_groups: Sequence[int],
    columns: Sequence[KeyColumn],
    constants: Mapping[str, pa.Scalar],
    prefilter: KeyPrefilter | None = None,
) -> Iterator[tuple[int, Rows, pa.Table]]:
    """Read the canonical keys of some row groups of a file.

    ``constants`` has the value of each key column that is in the path and not in the file. With a
    ``prefilter``, rows with other keys than the wanted ones may be left out.

    Yields:
        The number of the row group, the positions of rows in it, and their keys.
    """
    stored = [column.name for column in columns if column.name not in constants]
    int96 = [c for c in columns if c.name in stored and footer.leaves[c.name].physical == "INT96"]
    if constants or not root.is_local:
        prefilter = None
    with open_data_file(root, footer.file.path) as file:
        for number in row_groups:
            rows = footer.row_groups[number].rows
            if prefilter is not None and rows >= _MIN_PREFILTER_ROWS:
                passed = _prefilter(root, footer, file, number, stored[0], prefilter)
                if passed is not None:
                    yield number, passed.positions, pa.table([passed.values], names=stored)
                    continue
            # pyarrow also reads a column called "id.x" for "id": a dot is a path to it.
            with naming_damage(root, footer.file.path):
                table = file.read_row_group(number, columns=stored).select(stored)
                if stored and table.num_rows != rows:
                    raise pa.ArrowInvalid(f"a column has {table.num_rows:,} of {rows:,} rows")
            found = dict(zip(stored, table.columns, strict=True))
            if int96:
                found |= _instants(root, footer, number, table, int96)
            for name, value in constants.items():
                found[name] = pa.repeat(value, rows)
            yield number, np.arange(rows), canonical_keys(pa.table(found), columns)


def _prefilter(
    root: Root,
    footer: FileFooter,
    file: pq.ParquetFile,
    number: int,
    name: str,
    prefilter: KeyPrefilter,
) -> PrefilteredRows | None:
    """Return the rows of a row group that pass; None if all of them must be decoded."""
    # By its index: a leaf inside of another column may have the same path.
    leaf = footer.leaves[name].index
    chunk = file.metadata.row_group(number).column(leaf)
    rows, path = footer.row_groups[number].rows, footer.file.path
    with naming_damage(root, path):
        read = partial(read_range, root, path)
        column = file.schema.column(leaf)
        return prefilter_chunk(chunk, column, rows, footer.file.size, read, prefilter)


def _instants(
    root: Root, footer: FileFooter, number: int, coarse: pa.Table, columns: Sequence[KeyColumn]
) -> dict[str, pa.ChunkedArray]:
    """Return the INT96 key columns of a row group, nanoseconds included."""
    names = [column.name for column in columns]
    with open_data_file(root, footer.file.path, int96_unit="ns") as file:
        fine = file.read_row_group(number, columns=names)
    return {c.name: int96_keys(coarse.column(c.name), fine.column(c.name), c.type) for c in columns}


def confirm_affected_files(
    candidate_files: list[str],
    key_columns: str | Sequence[str],
    source_keys: Sequence[Any],
    filesystem: Any = None,
) -> list[str]:
    """Return the candidate files that contain one of the keys, reading key columns only.

    Args:
        candidate_files: Paths of data files.
        key_columns: The key columns.
        source_keys: Scalars for one key column, tuples for several, or an Arrow array or table.
        filesystem: An fsspec or pyarrow filesystem; None to find it from the paths.

    Returns:
        The files that contain a key, in the order given. A file that cannot be read as Parquet,
        or does not have a key column, counts as affected. A key that the type of a file's column
        cannot represent is not in that file.

    Raises:
        OSError: What the filesystem raised, naming the file.
        SchemaMismatchError: If the keys cannot be compared with a file's.
    """
    if isinstance(candidate_files, str):
        raise InvalidArgumentError(
            f"candidate_files must be a list of paths, got the string {candidate_files!r}.\n"
            f"Hint: pass [{candidate_files!r}]."
        )
    keys = keys_table(source_keys, key_columns)
    return [path for path in candidate_files if _is_affected(path, keys, filesystem)]


def _is_affected(path: str, keys: pa.Table, filesystem: Any) -> bool:
    key_columns = keys.column_names
    root = open_root(path, filesystem)
    size = root.filesystem.size(root.path)
    try:
        footer = read_footer(root, DataFile(root.path, size), key_columns)
    except UnreadableFileError:
        return True
    types = [footer.leaves[name].type if name in footer.leaves else None for name in key_columns]
    constants = _path_constants(path, footer, keys)
    if any(name not in footer.leaves and name not in constants for name in key_columns):
        return True  # nothing is known about a key column that is not there
    columns = [
        key_column(name, common_type(kind or constants[name].type, keys.schema.field(name).type))
        for name, kind in zip(key_columns, types, strict=True)
    ]
    index = KeyIndex(canonical_keys(keys, columns))
    scanned = scan_keys(root, footer, range(len(footer.row_groups)), columns, constants)
    try:
        return any(bool((index.lookup(found) >= 0).any()) for _, _, found in scanned)
    except UnreadableFileError:
        return True


def _path_constants(path: str, footer: FileFooter, keys: pa.Table) -> dict[str, pa.Scalar]:
    """Return the values of key columns that only the path has, typed like the keys."""
    constants = {}
    for name, text in parse_hive_partition_path(path, keys.column_names).items():
        if name not in footer.leaves:
            values, (known,) = parse_partition_values([text], keys.schema.field(name).type)
            if known:
                constants[name] = values[0]
    return constants
