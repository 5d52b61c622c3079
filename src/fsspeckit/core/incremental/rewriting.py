"""The rewriter: one data file with some of its rows replaced, at their positions.

Streams row group by row group, so that memory is bounded by one of them, and keeps what the file
looked like. A file in which no value changes is left alone.
"""

from __future__ import annotations

from dataclasses import dataclass
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
from fsspeckit.core.incremental.scan import check_instants, open_data_file
from fsspeckit.core.parquet.properties import Layout, layout_of
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
    with open_data_file(root, path) as file:
        layout = file_layout(root, path, file, key_columns)
        change = _Change(root, path, file, layout, replacement, rows)
        if not replacement.force and not any(map(change.alters, change.touched)):
            return Rewritten(file.metadata.num_rows, len(replacement.positions), 0)
        written = 0
        with writing(root, destination, layout) as writer:
            for table in change.row_groups():
                if table.num_rows:
                    writer.write_table(table, row_group_size=table.num_rows)
                    written += table.num_rows
        return Rewritten(written, change.unchanged_rows, file.num_row_groups)


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
        self._layout = layout
        self._replacement = replacement
        self._rows = rows
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._cuts = np.searchsorted(replacement.positions, self._starts)
        self._known: dict[int, pa.Table] = {}
        self._unchanged: dict[int, int] = {}

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

    def row_groups(self) -> Iterator[pa.Table]:
        """The rows of the new file, row group by row group."""
        for number in range(self._file.num_row_groups):
            yield self._known.pop(number) if number in self._known else self._merged(number)

    def _merged(self, number: int) -> pa.Table:
        """The rows of one row group after the merge."""
        start, end = int(self._cuts[number]), int(self._cuts[number + 1])
        old = self._file.read_row_group(number).cast(self._layout.schema)
        if self._replacement.keep_others:
            check_instants(self._root, self._path, number, old, self._layout.int96)
        if start == end:
            self._unchanged[number] = 0
            return old if self._replacement.keep_others else old.slice(0, 0)
        places = self._replacement.positions[start:end] - self._starts[number]
        new = self._new_rows(start, end)
        replaced = take_rows(old, pa.array(places))
        self._unchanged[number] = int((~_different_rows(replaced, new)).sum())
        if not self._replacement.keep_others:
            return new
        index = np.arange(old.num_rows)
        index[places] = old.num_rows + np.arange(end - start)
        both = pa.concat_tables([old, new]).unify_dictionaries()
        return take_rows(both, pa.array(index))

    def _new_rows(self, start: int, end: int) -> pa.Table:
        source = self._rows(self._replacement.source_rows[start:end])
        check_same_columns(source.column_names, self._layout.schema.names, "file")
        return stored_rows(source, self._layout)


def stored_rows(rows: pa.Table, layout: Layout) -> pa.Table:
    """Rows as a file stores them: its columns, order, types; INT96 without the zone it means."""
    meant = fit_table(rows, layout.meaning())
    stored = [
        column.cast(pa.timestamp("us")) if name in layout.int96 else column
        for name, column in zip(meant.column_names, meant.columns, strict=True)
    ]
    return pa.table(stored, schema=layout.schema)


def _different_rows(left: pa.Table, right: pa.Table) -> NDArray[np.bool_]:
    differs = np.zeros(left.num_rows, bool)
    for one, other in zip(left.columns, right.columns, strict=True):
        differs |= different_values(one.combine_chunks(), other.combine_chunks())
    return differs
