"""The rewriter: one data file with some of its rows replaced, at their positions.

What does not change is copied as bytes where the file allows it and where that is cheaper. Else
the file is streamed row group by row group, so that memory is bounded by one of them. Both keep
what the file looked like. A file in which no value changes is left alone.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from fsspeckit.core.arrow_compat import Unit, finest_unit, has_nanoseconds, open_data_file
from fsspeckit.core.parquet import (
    CannotSpliceError,
    WriterProperties,
    read_writer_properties,
    sorting_columns,
)
from fsspeckit.core.rewrite.diff import Change, Replacement, choose, stored_rows
from fsspeckit.core.rewrite.splice import ENCODERS, open_spliceable
from fsspeckit.core.schema_conform import resolve_null_types
from fsspeckit.errors import UnreadableFileError
from fsspeckit.storage import read_range

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import pyarrow as pa

    from fsspeckit.core.rewrite.diff import (
        Costs,
        GroupChange,
        Method,
        Positions,
        Probe,
        Probed,
        RowSource,
    )
    from fsspeckit.core.rewrite.splice import Spliceable
    from fsspeckit.storage import Root

__all__ = ["Replacement", "Rewritten", "file_layout", "rewrite", "stored_rows", "writing"]


@dataclass(frozen=True)
class Rewritten:
    """What became of a file."""

    rows: int
    """The rows of the new file; those of the old one if nothing was written."""

    unchanged_rows: int
    """Matching rows in which no value differs."""

    encoded_row_groups: int
    """Row groups of which something was encoded again; none if nothing was written."""

    path: str | None = None
    """Where the new file is, if not where it was asked for: a task that is run twice writes two."""

    method: Method = "kept"
    """How the new file was written."""

    reason: str = "no value changes"
    """Why it was written that way."""

    copied_row_groups: int = 0
    """Row groups that were copied as bytes."""

    encoded_bytes: int = 0
    """Bytes of the new file that were encoded, and not copied; all of them for ``full``."""

    copied_bytes: int = 0
    """Bytes of the new file that were copied from the old one."""

    @property
    def is_new(self) -> bool:
        """Whether there is a new file."""
        return self.method != "kept"

    def shown(self) -> dict[str, Any]:
        """What the metrics of a merge say about it."""
        return {
            "method": self.method,
            "reason": self.reason,
            "row_groups_encoded": self.encoded_row_groups,
            "row_groups_copied": self.copied_row_groups,
            "bytes_encoded": self.encoded_bytes,
            "bytes_copied": self.copied_bytes,
        }


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
        root: Where the file is, and the destination too.
        path: The file.
        replacement: What changes.
        rows: Gives source rows by their numbers, in that order.
        destination: Where to write the new file.
        key_columns: The columns whose values stay equal, so that a sort order by them holds.
        types: The types of columns that the file stores without one, because it has only NULL.
        costs: What decides how the file is written; by default measured ones.

    Raises:
        SchemaMismatchError: If the source's rows do not fit the file.
        UnreadableFileError: If its footer is damaged.
        ConcurrentModificationError: If somebody changes the file meanwhile.
    """
    with (
        _taken_apart(root, path) as source,
        _opened(root, path, replacement, rows, key_columns) as (file, layout),
    ):
        if types is not None:
            layout = layout.with_types(resolve_null_types(layout.schema, types))
        change = Change(root, path, file, layout, replacement, rows, _probe_of(source))
        changes = change.group_changes()
        change.layout = _sorted_as_far(change, changes, key_columns)
        if replacement.force:
            return _streamed(change, destination, "every file is to be written anew")
        if not changes:
            return Rewritten(file.metadata.num_rows, change.unchanged_rows, 0)
        try:
            return _spliced(source, change, changes, destination, key_columns, costs)
        except CannotSpliceError as error:
            # Whatever was begun is overwritten.
            return _streamed(change, destination, f"cannot be spliced: {error}")


@contextmanager
def _taken_apart(root: Root, path: str) -> Iterator[Spliceable | CannotSpliceError]:
    """The parts of a file, or why there are none: that is no error before they are needed."""
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
    """Reads a few rows through the parts of a file, or nothing where that does not work."""

    def probe(number: int, places: Positions) -> Probed:
        if isinstance(source, CannotSpliceError):
            return {}
        try:
            return source.probe(number, places)
        except CannotSpliceError:
            return {}

    return probe


def _spliced(
    source: Spliceable | CannotSpliceError,
    change: Change,
    changes: Sequence[GroupChange],
    destination: str,
    key_columns: Collection[str],
    costs: Costs | None,
) -> Rewritten:
    if isinstance(source, CannotSpliceError):
        raise source
    source.check_names(change.layout.schema)
    choice = choose(source.anatomy, source.columns, changes, ENCODERS, costs)
    if choice.method == "full":
        return _streamed(change, destination, choice.reason)
    source.check(change, changes)
    done = source.write(change, changes, destination, key_columns)
    return Rewritten(
        done.rows,
        change.unchanged_rows,
        done.encoded_groups,
        method=choice.method,
        reason=choice.reason,
        copied_row_groups=done.copied_groups,
        encoded_bytes=done.encoded_bytes,
        copied_bytes=done.copied_bytes,
    )


def _streamed(change: Change, destination: str, reason: str) -> Rewritten:
    """Write all of the file anew, row group by row group."""
    rows = 0
    with writing(change.root, destination, change.layout) as writer:
        for number in change.groups:
            table = change.merged(number)
            change.forget(number)
            # A row group that loses all its rows goes; one that never had any stays.
            if table.num_rows or not change.rows_of(number):
                writer.write_table(table, row_group_size=max(table.num_rows, 1))
                rows += table.num_rows
    encoded = len(change.groups)
    return Rewritten(rows, change.unchanged_rows, encoded, method="full", reason=reason)


def _sorted_as_far(
    change: Change, changes: Sequence[GroupChange], key_columns: Collection[str]
) -> WriterProperties:
    """The layout of a file whose sort order is by the columns in which nothing changes."""
    changed = {name for one in changes for name in one.changed} - {*key_columns}
    kept = sorting_columns(change.file.metadata, {*change.layout.schema.names} - changed)
    return replace(change.layout, options={**change.layout.options, "sorting_columns": kept})


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
        layout = file_layout(root, path, file, key_columns)
        if not layout.int96:
            yield file, layout
            return
        wanted: Unit = "us"
        if layout.writes_int96 and len(replacement.source_rows):
            given = rows(replacement.source_rows[:1]).schema
            finer = any(has_nanoseconds(f.type) for f in given if f.name in layout.int96)
            wanted = "ns" if finer else "us"
        unit = finest_unit(_decoded(root, path, file, layout), wanted, root.to_user_path(path))
    with open_data_file(root, path, int96_unit=unit) as file:
        yield file, layout.with_unit(unit)


def _decoded(
    root: Root, path: str, coarse: pq.ParquetFile, layout: WriterProperties
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """The INT96 columns of each row group, as microseconds and as nanoseconds."""
    names = [name for name in layout.schema.names if name in layout.int96]
    with open_data_file(root, path, int96_unit="ns") as fine:
        for number in range(coarse.num_row_groups):
            yield (
                coarse.read_row_group(number, columns=names).select(names),
                fine.read_row_group(number, columns=names).select(names),
            )


def file_layout(
    root: Root, path: str, file: pq.ParquetFile, unchanged: Collection[str] = ()
) -> WriterProperties:
    """How an open file was written."""
    return read_writer_properties(
        file.metadata,
        file.schema_arrow,
        lambda offset, length: read_range(root, path, offset, length),
        unchanged=unchanged,
    )


def writing(root: Root, path: str, layout: WriterProperties) -> pq.ParquetWriter:
    """Open a new file for writing; a context manager."""
    return _Writer(root, path, layout)


class _Writer:
    """A Parquet writer on any filesystem; what it began and did not finish is not left open."""

    def __init__(self, root: Root, path: str, layout: WriterProperties) -> None:
        self._handle: Any = None
        target: Any = path
        if not root.is_local:
            target = self._handle = root.filesystem.open(path, "wb")
        self._writer = pq.ParquetWriter(target, layout.schema, **layout.options)
        if layout.key_values:
            self._writer.add_key_value_metadata(layout.key_values)

    def __enter__(self) -> pq.ParquetWriter:
        return self._writer

    def __exit__(self, kind: object, *rest: object) -> None:
        self._writer.close()
        if self._handle is not None:
            self._handle.close()
