"""The rewriter: one data file with some of its rows replaced, at their positions.

Streams row group by row group, so that memory is bounded by one of them, and keeps what the file
looked like. A file in which no value changes is left alone.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.incremental.payload import (
    check_same_columns,
    different_values,
    fit_table,
    take_rows,
)
from fsspeckit.core.incremental.scan import naming_damage, open_data_file
from fsspeckit.core.parquet.instants import Unit, finest_unit, has_nanoseconds
from fsspeckit.core.parquet.properties import Layout, layout_of, sort_order, sorting_columns
from fsspeckit.storage.ranges import read_range

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from numpy.typing import NDArray

    from fsspeckit.storage.roots import Root

    Positions = NDArray[np.int64]
    RowSource = Callable[[Positions], pa.Table]

__all__ = ["Replacement", "Rewritten", "file_layout", "rewrite", "stored_rows", "writing"]


@dataclass(frozen=True)
class Replacement:
    """Which rows of a file are replaced by which rows of the source."""

    positions: Positions
    """Row numbers inside the file, ascending."""

    source_rows: Positions
    """The source row for each position."""

    keep_others: bool = True
    """Whether all other rows stay; if not, they are deleted."""

    force: bool = False
    """Whether the file is written anew even if no value changes."""


@dataclass(frozen=True)
class Rewritten:
    """What became of a file."""

    rows: int
    """The rows of the new file; those of the old one if nothing was written."""

    unchanged_rows: int
    """Matching rows in which no value differs."""

    encoded_row_groups: int
    """Row groups that were encoded again; none if nothing was written."""

    path: str | None = None
    """Where the new file is, if not where it was asked for: a task that is run twice writes two."""

    @property
    def is_new(self) -> bool:
        """Whether there is a new file."""
        return self.encoded_row_groups > 0


def rewrite(
    root: Root,
    path: str,
    replacement: Replacement,
    rows: RowSource,
    destination: str,
    *,
    key_columns: Collection[str] = (),
) -> Rewritten:
    """Write a file with some rows replaced, unless no value changes and nothing forces it.

    Args:
        root: Where the file is, and the destination too.
        path: The file.
        replacement: What changes.
        rows: Gives source rows by their numbers, in that order.
        destination: Where to write the new file.
        key_columns: The columns whose values stay equal, so that a sort order by them holds.

    Raises:
        SchemaMismatchError: If the source's rows do not fit the file.
    """
    with _opened(root, path, replacement, rows, key_columns) as (file, layout):
        change = _Change(root, path, file, layout, replacement, rows)
        if not replacement.force and not any(map(change.alters, change.touched)):
            return Rewritten(file.metadata.num_rows, len(replacement.positions), 0)
        written = 0
        with writing(root, destination, _sorted_as_far(change, key_columns)) as writer:
            for table in change.row_groups():
                writer.write_table(table, row_group_size=max(table.num_rows, 1))
                written += table.num_rows
        return Rewritten(written, change.unchanged_rows, file.num_row_groups)


@contextmanager
def _opened(
    root: Root,
    path: str,
    replacement: Replacement,
    rows: RowSource,
    key_columns: Collection[str],
) -> Iterator[tuple[pq.ParquetFile, Layout]]:
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
        unit = finest_unit(_decoded(root, path, file, layout), wanted, root.spelled(path))
    with open_data_file(root, path, int96_unit=unit) as file:
        yield file, layout.with_unit(unit)


def _decoded(
    root: Root, path: str, coarse: pq.ParquetFile, layout: Layout
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """The INT96 columns of each row group, as microseconds and as nanoseconds."""
    names = [name for name in layout.schema.names if name in layout.int96]
    with open_data_file(root, path, int96_unit="ns") as fine:
        for number in range(coarse.num_row_groups):
            yield (
                coarse.read_row_group(number, columns=names).select(names),
                fine.read_row_group(number, columns=names).select(names),
            )


def _sorted_as_far(change: _Change, key_columns: Collection[str]) -> Layout:
    """The layout of the new file, which is sorted by the columns in which nothing changes.

    Those are known only after a look at every row group that changes, so they are looked for only
    where the file is sorted by more than its keys.
    """
    layout = change.layout
    if all(name in key_columns for name, _ in sort_order(change.metadata)):
        return layout
    unchanged = {*key_columns, *layout.schema.names} - (change.changed_columns() - {*key_columns})
    kept = sorting_columns(change.metadata, unchanged)
    return replace(layout, options={**layout.options, "sorting_columns": kept})


def file_layout(
    root: Root, path: str, file: pq.ParquetFile, unchanged: Collection[str] = ()
) -> Layout:
    """How an open file was written."""
    return layout_of(
        file.metadata,
        file.schema_arrow,
        lambda offset, length: read_range(root, path, offset, length),
        unchanged=unchanged,
    )


def writing(root: Root, path: str, layout: Layout) -> pq.ParquetWriter:
    """Open a new file for writing; a context manager."""
    return _Writer(root, path, layout)


class _Writer:
    """A Parquet writer on any filesystem; what it began and did not finish is not left open."""

    def __init__(self, root: Root, path: str, layout: Layout) -> None:
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


class _Change:
    """A file and its replacement, looked at row group by row group."""

    def __init__(
        self,
        root: Root,
        path: str,
        file: pq.ParquetFile,
        layout: Layout,
        replacement: Replacement,
        rows: RowSource,
    ) -> None:
        self._root = root
        self._path = path
        self._file = file
        self.layout = layout
        self._replacement = replacement
        self._rows = rows
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._cuts = np.searchsorted(replacement.positions, self._starts)
        self._known: dict[int, pa.Table] = {}
        self._unchanged: dict[int, int] = {}
        self._changed: set[str] = set()

    @property
    def metadata(self) -> pq.FileMetaData:
        """The footer of the file."""
        return self._file.metadata

    @property
    def touched(self) -> list[int]:
        """The row groups that hold a match, or lose rows."""
        numbers = range(self._file.num_row_groups)
        if not self._replacement.keep_others:
            return list(numbers)
        return [number for number in numbers if self._cuts[number] < self._cuts[number + 1]]

    @property
    def unchanged_rows(self) -> int:
        """Matching rows, of the row groups looked at, in which no value differs."""
        return sum(self._unchanged.values())

    def alters(self, number: int) -> bool:
        """Whether a value of a row group changes, or a row is lost; remembers the new rows."""
        table = self._merged(number)
        rows = self._file.metadata.row_group(number).num_rows
        matches = int(self._cuts[number + 1] - self._cuts[number])
        if table.num_rows == rows and self._unchanged[number] == matches:
            return False
        self._known = {number: table}
        return True

    def changed_columns(self) -> set[str]:
        """The columns in which a value changes; reads every row group that is touched."""
        for number in self.touched:
            self._merged(number)
        return self._changed

    def row_groups(self) -> Iterator[pa.Table]:
        """The rows of the new file, row group by row group; none that lose all their rows."""
        for number in range(self._file.num_row_groups):
            table = self._known.pop(number) if number in self._known else self._merged(number)
            if table.num_rows or not self._file.metadata.row_group(number).num_rows:
                yield table

    def _merged(self, number: int) -> pa.Table:
        """The rows of one row group after the merge."""
        start, end = int(self._cuts[number]), int(self._cuts[number + 1])
        with naming_damage(self._root, self._path):
            old = self._file.read_row_group(number)
        old = old.cast(self.layout.schema)
        if start == end:
            self._unchanged[number] = 0
            return old if self._replacement.keep_others else old.slice(0, 0)
        places = self._replacement.positions[start:end] - self._starts[number]
        new = self._new_rows(start, end)
        replaced = take_rows(old, pa.array(places))
        differs = _different_values(replaced, new)
        self._changed |= {name for name, where in differs.items() if where.any()}
        self._unchanged[number] = int((~np.any(list(differs.values()), axis=0)).sum())
        if not self._replacement.keep_others:
            return new
        index = np.arange(old.num_rows)
        index[places] = old.num_rows + np.arange(end - start)
        both = pa.concat_tables([old, new]).unify_dictionaries()
        return take_rows(both, pa.array(index))

    def _new_rows(self, start: int, end: int) -> pa.Table:
        source = self._rows(self._replacement.source_rows[start:end])
        check_same_columns(source.column_names, self.layout.schema.names, "file")
        return stored_rows(source, self.layout)


def stored_rows(rows: pa.Table, layout: Layout) -> pa.Table:
    """Rows as a file stores them: its columns, order, types; INT96 without the zone it means."""
    meant = fit_table(rows, layout.meaning())
    return meant if meant.schema.equals(layout.schema) else meant.cast(layout.schema)


def _different_values(left: pa.Table, right: pa.Table) -> dict[str, NDArray[np.bool_]]:
    """For each column, where the rows differ."""
    return {
        name: different_values(
            left.column(name).combine_chunks(), right.column(name).combine_chunks()
        )
        for name in left.column_names
    }
