"""Rewrites one data file with some of its rows replaced, at their positions.

What does not change is copied as bytes where the file allows it and where that is cheaper.
Otherwise the file is rewritten row group by row group, so that memory is bounded by one of them. A
file in which no value changes is left alone.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from fsspeckit.core.arrow_compat import Unit, finest_unit, has_nanoseconds, open_data_file
from fsspeckit.core.parquet import (
    CannotSpliceError,
    WriterProperties,
    read_writer_properties,
    sorting_columns,
)
from fsspeckit.core.rewrite.diff import FileDiff, Replacement, Rewritten, choose
from fsspeckit.core.rewrite.splice import ENCODERS, open_spliceable
from fsspeckit.core.schema_conform import resolve_null_types
from fsspeckit.errors import UnreadableFileError
from fsspeckit.storage import read_range

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import pyarrow as pa

    from fsspeckit.core.rewrite.diff import (
        Costs,
        Positions,
        Probe,
        Probed,
        RowGroupDiff,
        RowSource,
    )
    from fsspeckit.core.rewrite.splice import Spliceable
    from fsspeckit.storage import Root


def rewrite(
    root: Root,
    path: str,
    replacement: Replacement,
    rows: RowSource,
    destination: str,
    *,
    key_columns: Collection[str] = (),
    types: pa.Schema | None = None,
    costs: Costs | None = None,
) -> Rewritten:
    """Write a file with some rows replaced, unless no value changes and nothing forces it.

    Args:
        root: The root of the dataset, and of the destination.
        path: The file.
        replacement: The rows to replace.
        rows: Returns source rows by their numbers, in that order.
        destination: The path of the new file.
        key_columns: The columns whose values stay equal, so that a sort order by them holds.
        types: The types of columns that the file stores without one, because it has only NULL.
        costs: The costs by which the method is chosen; by default measured ones.

    Raises:
        SchemaMismatchError: If the source's rows do not fit the file.
        UnreadableFileError: If its footer is damaged.
        ConcurrentModificationError: If somebody changes the file meanwhile.
    """
    with (
        _try_open_spliceable(root, path) as source,
        _opened(root, path, replacement, rows, key_columns) as (file, properties),
    ):
        if types is not None:
            properties = properties.with_types(resolve_null_types(properties.schema, types))
        diff = FileDiff(root, path, file, properties, replacement, rows, _probe_of(source))
        groups = diff.row_group_diffs()
        diff.properties = _with_kept_order(diff, groups, key_columns)
        if replacement.force:
            return _rewrite_all(diff, destination, "every file is rewritten")
        if not groups:
            return Rewritten(file.metadata.num_rows, diff.unchanged_rows, 0)
        try:
            return _splice(source, diff, groups, destination, key_columns, costs)
        except CannotSpliceError as error:
            # Whatever was begun is overwritten.
            return _rewrite_all(diff, destination, f"cannot be spliced: {error}")


@contextmanager
def _try_open_spliceable(root: Root, path: str) -> Iterator[Spliceable | CannotSpliceError]:
    """Open a file for splicing, or return why that fails: it may not be needed."""
    with ExitStack() as stack:
        source: Spliceable | CannotSpliceError
        try:
            source = stack.enter_context(open_spliceable(root, path))
        except CannotSpliceError as error:
            if error.is_unreadable:
                raise UnreadableFileError(
                    f"{root.to_user_path(path)!r} is not readable as Parquet: {error}."
                ) from error
            source = error
        yield source


def _probe_of(source: Spliceable | CannotSpliceError) -> Probe:
    def probe(number: int, positions: Positions) -> Probed:
        if isinstance(source, CannotSpliceError):
            return {}
        try:
            return source.probe(number, positions)
        except CannotSpliceError:
            return {}

    return probe


def _splice(
    source: Spliceable | CannotSpliceError,
    diff: FileDiff,
    groups: Sequence[RowGroupDiff],
    destination: str,
    key_columns: Collection[str],
    costs: Costs | None,
) -> Rewritten:
    if isinstance(source, CannotSpliceError):
        raise source
    source.check_names(diff.properties.schema)
    choice = choose(source.layout, source.columns, groups, ENCODERS, costs)
    if choice.method == "full":
        return _rewrite_all(diff, destination, choice.reason)
    source.check(diff, groups)
    return source.write(diff, groups, choice, destination, key_columns)


def _rewrite_all(diff: FileDiff, destination: str, reason: str) -> Rewritten:
    """Rewrite the whole file, row group by row group."""
    rows = 0
    with open_writer(diff.root, destination, diff.properties) as writer:
        for number in diff.groups:
            table = diff.merged(number)
            diff.forget(number)
            # A row group that loses all its rows goes; one that never had any stays.
            if table.num_rows or not diff.rows_of(number):
                writer.write_table(table, row_group_size=max(table.num_rows, 1))
                rows += table.num_rows
    return Rewritten(rows, diff.unchanged_rows, len(diff.groups), method="full", reason=reason)


def _with_kept_order(
    diff: FileDiff, groups: Sequence[RowGroupDiff], key_columns: Collection[str]
) -> WriterProperties:
    """The properties of a file that is sorted by the columns in which nothing changes."""
    changed = {name for one in groups for name in one.changed} - {*key_columns}
    kept = sorting_columns(diff.file.metadata, {*diff.properties.schema.names} - changed)
    return replace(diff.properties, options={**diff.properties.options, "sorting_columns": kept})


@contextmanager
def _opened(
    root: Root,
    path: str,
    replacement: Replacement,
    rows: RowSource,
    key_columns: Collection[str],
) -> Iterator[tuple[pq.ParquetFile, WriterProperties]]:
    """Open a file so that its INT96 timestamps lose nothing."""
    with open_data_file(root, path) as file:
        properties = read_file_properties(root, path, file, key_columns)
        if not properties.int96:
            yield file, properties
            return
        wanted: Unit = "us"
        if properties.writes_int96 and len(replacement.source_rows):
            given = rows(replacement.source_rows[:1]).schema
            finer = any(has_nanoseconds(f.type) for f in given if f.name in properties.int96)
            wanted = "ns" if finer else "us"
        unit = finest_unit(_decoded(root, path, file, properties), wanted, root.to_user_path(path))
    with open_data_file(root, path, int96_unit=unit) as file:
        yield file, properties.with_unit(unit)


def _decoded(
    root: Root, path: str, coarse: pq.ParquetFile, properties: WriterProperties
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """The INT96 columns of each row group, as microseconds and as nanoseconds."""
    names = [name for name in properties.schema.names if name in properties.int96]
    with open_data_file(root, path, int96_unit="ns") as fine:
        for number in range(coarse.num_row_groups):
            yield (
                coarse.read_row_group(number, columns=names).select(names),
                fine.read_row_group(number, columns=names).select(names),
            )


def read_file_properties(
    root: Root, path: str, file: pq.ParquetFile, unchanged: Collection[str] = ()
) -> WriterProperties:
    """Find out how an open file was written."""
    return read_writer_properties(
        file.metadata,
        file.schema_arrow,
        lambda offset, length: read_range(root, path, offset, length),
        unchanged=unchanged,
    )


@contextmanager
def open_writer(root: Root, path: str, properties: WriterProperties) -> Iterator[pq.ParquetWriter]:
    """Open a new file on any filesystem for writing; it is closed whatever happens."""
    with ExitStack() as stack:
        target: Any = path
        if not root.is_local:
            target = root.filesystem.open(path, "wb")
            stack.callback(target.close)
        writer = pq.ParquetWriter(target, properties.schema, **properties.options)
        stack.callback(writer.close)
        if properties.key_values:
            writer.add_key_value_metadata(properties.key_values)
        yield writer
