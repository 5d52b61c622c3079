"""Matching: scan the key columns of candidate row groups, and find rows that have a source key.

The key scan is the last evidence of a plan. It reads only key columns, of the row groups that
nothing else has ruled out, one at a time. Where a prefilter can say which rows may have a
wanted key, the others are not decoded. A position is the number of a row in its file.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.arrow_compat import (
    cast_table,
    int96_columns,
    int96_keys,
    naming_damage,
    open_data_file,
    physical_types,
    take_rows,
)
from fsspeckit.core.keys import (
    KeyIndex,
    SourceKeys,
    canonical_keys,
    common_type,
    different_rows,
    family,
    key_column,
    keys_table,
    source_keys,
    winning_rows,
)
from fsspeckit.core.parquet import KeyPrefilter, PrefilteredRows, prefilter_chunk
from fsspeckit.core.planning import parse_hive_partition_path, parse_partition_values, read_footer
from fsspeckit.core.schema_conform import conform_table
from fsspeckit.errors import InvalidArgumentError, SchemaMismatchError, UnreadableFileError
from fsspeckit.storage import DataFile, open_root, read_range

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from fsspeckit.core.conditions import Condition
    from fsspeckit.core.keys import KeyColumn
    from fsspeckit.core.planning import ConditionVerdict, FileFooter, Target
    from fsspeckit.datasets.pipeline import MergeOptions
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
    with open_data_file(root, footer.file.path, known=footer.file) as file:
        for number in row_groups:
            rows = footer.row_groups[number].rows
            if prefilter is not None and rows >= _MIN_PREFILTER_ROWS:
                passed = _prefilter(root, footer, file, number, stored[0], prefilter)
                if passed is not None:
                    if len(passed.positions):
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
    with open_data_file(root, footer.file.path, int96_unit="ns", known=footer.file) as file:
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
        return any(len(index.find(found)[0]) for _, _, found in scanned)
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


@dataclass(frozen=True)
class IndexedKeys(SourceKeys):
    """The keys of the source rows that take part, and the numbers of those rows."""

    index: KeyIndex | None
    """None where an engine joins keys itself."""

    chosen: Rows | None = None
    """The number of each such row in the source; None if all rows take part, in their order."""

    delete_when: str | None = None
    """The column of ``keys`` that marks deletions, if there is one."""

    @property
    def rows(self) -> Rows:
        """The number of each such row in the source."""
        return np.arange(self.count) if self.chosen is None else self.chosen

    @property
    def indexed(self) -> IndexedKeys:
        """Themselves: these keys are in memory, not staged for a task to read."""
        return self

    def source_rows(self, keys: Rows) -> Rows:
        """Return the source rows of keys that are given by number."""
        return keys if self.chosen is None else self.chosen[keys]


@dataclass(frozen=True)
class Positions:
    """Which rows of a file match, and with which of the keys."""

    positions: Rows
    keys: Rows
    """Numbers of keys, not yet of source rows."""

    row_groups: tuple[int, ...]


def key_and_order_columns(
    target: Target, request: MergeOptions, available: Sequence[str]
) -> list[str]:
    """Return the source columns that decide which rows take part."""
    names = [c.name for c in (*target.key_columns, *target.partition_columns)]
    names += [*request.order_by, *([] if request.delete_when is None else [request.delete_when])]
    return [name for name in dict.fromkeys(names) if name in available]


def index_keys(table: pa.Table, target: Target, request: MergeOptions) -> IndexedKeys:
    """Return the keys that take part, after the NULL and duplicate policies.

    ``table`` has the columns of :func:`key_and_order_columns`, of all source rows.

    Raises:
        NullKeyError: If a key is NULL and may not be.
        DuplicateKeyError: If a key occurs twice and nothing says which row wins.
    """
    # In one piece, so that the index shares the memory of the keys.
    marks = request.delete_when
    found = source_keys(table, target, request.null_keys, marks).keys.combine_chunks()
    key_names = list(request.key_columns)
    index = KeyIndex(found.select(key_names))
    rows = chosen_rows(table, request, None if index.is_unique else index.groups)
    if rows is None:
        rows = index.order  # for pruning, which would sort the keys again
    if rows is None:
        return IndexedKeys(found, index, delete_when=marks)
    found = found.take(pa.array(rows))
    return IndexedKeys(found, KeyIndex(found.select(key_names)), rows, marks)


def chosen_rows(table: pa.Table, request: MergeOptions, groups: Rows | None) -> Rows | None:
    """Return the source rows that remain when every key may occur once; None if all do.

    The policies are checked even if no key occurs twice, for which ``groups`` is None.

    Raises:
        DuplicateKeyError: If a key occurs twice and nothing says which row wins.
    """
    if groups is None:
        chosen_rows(table.slice(0, 0), request, np.empty(0, np.int64))
        return None
    order_by = request.order_by or None
    return winning_rows(table, groups, list(request.key_columns), request.duplicates, order_by)


def find_positions(
    target: Target,
    keys: IndexedKeys,
    prefilter: KeyPrefilter | None,
    number: int,
    row_groups: tuple[int, ...],
) -> Positions:
    """Return the matching rows of the file with this number."""
    assert keys.index is not None
    none = np.empty(0, np.int64)
    positions, found_keys, matched = [none], [none], []
    for group, scanned, found in keys_of_file(target, prefilter, number, row_groups):
        hits, numbers = keys.index.find(found)
        if len(hits):
            positions.append(scanned[hits])
            found_keys.append(numbers)
            matched.append(group)
    return Positions(np.concatenate(positions), np.concatenate(found_keys), tuple(matched))


def keys_of_file(
    target: Target, prefilter: KeyPrefilter | None, number: int, row_groups: Sequence[int]
) -> Iterator[tuple[int, Rows, pa.Table]]:
    """Read the canonical keys of a file, except those that the prefilter rejects.

    Yields:
        The row group, the positions of rows in the file, and their keys.
    """
    footer = target.footers[number]
    starts = row_group_starts(footer)
    constants = {
        column.name: target.partitions[column.name].values[number]
        for column in target.key_columns
        if column.name in target.partitions
    }
    for group, rows, keys in scan_keys(
        target.root, footer, row_groups, target.key_columns, constants, prefilter
    ):
        yield group, rows + starts[group], keys


def selected_positions(
    target: Target, condition: Condition, number: int, verdict: ConditionVerdict
) -> tuple[Rows, tuple[int, ...]]:
    """Return the rows of a file that a condition selects, and the row groups they are in.

    Row groups of which all rows are selected for certain are not read.
    """
    footer = target.footers[number]
    starts = row_group_starts(footer)
    found = {group: np.arange(footer.row_groups[group].rows) for group in verdict.complete}
    if verdict.candidates:
        for group, table in read_columns(target, condition.columns, number, verdict.candidates):
            found[group] = np.flatnonzero(np.asarray(condition.mask(table)))
    groups = tuple(sorted(group for group, rows in found.items() if len(rows)))
    rows = [found[group] + starts[group] for group in groups]
    return np.concatenate([np.empty(0, np.int64), *rows]), groups


def read_columns(
    target: Target, names: Sequence[str], number: int, row_groups: Sequence[int]
) -> Iterator[tuple[int, pa.Table]]:
    """Read some columns of row groups of a file; those of the path are constant.

    Yields:
        The number of the row group, and its rows; without columns, as many NULLs.
    """
    footer = target.footers[number]
    path = footer.file.path
    stored = [name for name in names if name in footer.schema.names]
    wanted = pa.schema([footer.schema.field(name) for name in stored])
    constants = {
        name: target.partitions[name].values[number]
        for name in names
        if name not in stored and name in target.partitions
    }
    with (
        open_data_file(target.root, path, known=footer.file) as file,
        naming_damage(target.root, path),
    ):
        for group in row_groups:
            # pyarrow also reads a column called "id.x" for "id": a dot is a path to it.
            table = file.read_row_group(group, columns=stored).select(stored)
            columns = dict(zip(stored, cast_table(table, wanted).columns, strict=True))
            rows = footer.row_groups[group].rows
            columns |= {name: pa.repeat(value, rows) for name, value in constants.items()}
            # A table without columns would have no rows.
            yield group, pa.table(columns or {"": pa.nulls(rows)})


def read_positions(target: Target, number: int, positions: Rows, schema: pa.Schema) -> pa.Table:
    """Return the rows of a file at some positions, with the columns of a schema.

    Raises:
        SchemaMismatchError: If the file stores INT96 timestamps, which may not fit a unit.
    """
    footer = target.footers[number]
    names = [name for name in schema.names if name in footer.schema.names]
    stored = pa.schema([footer.schema.field(name) for name in names])
    starts = row_group_starts(footer)
    groups = np.searchsorted(starts, positions, side="right") - 1
    parts = [stored.empty_table()]
    path = footer.file.path
    with (
        open_data_file(target.root, path, known=footer.file) as file,
        naming_damage(target.root, path),
    ):
        if int96 := int96_columns(file.schema_arrow, physical_types(file.schema)):
            raise SchemaMismatchError(
                f"{target.root.to_user_path(path)!r} stores {sorted(int96)[0]!r} as INT96, which "
                "versions of rows cannot have.\nHint: rewrite the file with another type."
            )
        for group in np.unique(groups).tolist():
            # pyarrow also reads a column called "id.x" for "id": a dot is a path to it.
            table = file.read_row_group(group, columns=names).select(names)
            rows = positions[groups == group] - starts[group]
            parts.append(take_rows(cast_table(table, stored), pa.array(rows)))
    found = pa.concat_tables(parts).unify_dictionaries()
    for name in schema.names:
        if name not in names and name in target.partitions:
            value = target.partitions[name].values[number]
            found = found.append_column(name, pa.repeat(value, found.num_rows))
        elif name not in names:  # it is about to be added
            found = found.append_column(name, pa.nulls(found.num_rows, schema.field(name).type))
    return conform_table(found, schema)


def row_group_starts(footer: FileFooter) -> Rows:
    """Return the position of the first row of each row group, then the number of rows."""
    rows = [group.rows for group in footer.row_groups]
    return np.concatenate([[0], np.cumsum(rows, dtype=np.int64)])


@dataclass(frozen=True)
class FilePartition:
    """The partition of a file, as far as rows with equal keys can differ in it."""

    columns: tuple[KeyColumn, ...]
    """The partition columns that are not key columns."""

    values: tuple[pa.Scalar, ...]
    """The canonical value of each."""

    @classmethod
    def of(cls, target: Target, number: int) -> FilePartition:
        """Return the partition of the file with this number."""
        in_key = {column.name for column in target.key_columns}
        columns = tuple(part for part in target.partition_columns if part.name not in in_key)
        values = (target.partitions[part.name].values.slice(number, 1) for part in columns)
        return cls(
            columns,
            tuple(part.canonical(one)[0] for part, one in zip(columns, values, strict=True)),
        )

    @classmethod
    def by_path(cls, target: Target) -> dict[str, FilePartition]:
        """Return the partition of each file by its path; empty if rows cannot differ in it."""
        paths = (footer.file.path for footer in target.footers)
        found = {path: cls.of(target, number) for number, path in enumerate(paths)}
        return {path: partition for path, partition in found.items() if partition.columns}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    def excludes(self, rows: pa.Table) -> NDArray[np.bool_]:
        """Return for each row, given as canonical values, whether it is of another partition."""
        if not self.columns or not rows.num_rows:
            return np.zeros(rows.num_rows, bool)
        own = [pa.repeat(value, rows.num_rows) for value in self.values]
        return different_rows(rows.select(self.names), pa.table(own, names=self.names))


def moving_keys(target: Target, keys: IndexedKeys, number: int, found: Positions) -> Rows:
    """Return which matches of a file would move to another partition.

    A row that is deleted does not: it leaves the partition that it is in.
    """
    partition = FilePartition.of(target, number)
    if not partition.columns:
        return np.empty(0, np.int64)
    wanted = keys.keys.select(partition.names)
    moved = partition.excludes(wanted.take(pa.array(found.keys)))
    if keys.delete_when is not None:
        moved &= keys.keys.column(keys.delete_when).to_numpy()[found.keys] == 0
    return np.flatnonzero(moved)
