"""The difference between a file and its replacement rows, and the cheapest way to write it.

Old and new values are compared before anything is written, so that a file, a row group or a column
without a change is left alone. Costs are estimated from the footer and from measured rates. Only
their ratios decide, and these differ little between machines: encoding is by far the most expensive
step, decoding comes next, and copying is nearly free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

import numpy as np
import pyarrow as pa

from fsspeckit.core.arrow_compat import cast_table, cast_values, naming_damage, take_rows
from fsspeckit.core.parquet import can_patch
from fsspeckit.core.schema_conform import check_same_columns, conform_table, different_values
from fsspeckit.core.threads import ThreadPool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow.parquet as pq
    from numpy.typing import NDArray

    from fsspeckit.core.parquet import (
        Column,
        FileLayout,
        IndexedPages,
        PageValues,
        WriterProperties,
    )
    from fsspeckit.storage import Root

    Positions = NDArray[np.int64]
    RowSource = Callable[[Positions], pa.Table]
    Probed = Mapping[str, PageValues | IndexedPages]
    Probe = Callable[[int, Positions], Probed]
    """Reads pages of a row group, of the columns for which that is cheaper than all of it."""

Method = Literal["kept", "column splice", "splice", "full"]
"""Nothing is written; some columns of some row groups; whole row groups; the whole file."""

Item = TypeVar("Item")

UNIT_BYTES: Final = 4 * 1024 * 1024
"""Columns of a row group are encoded together until they have this many bytes."""

# Compared rows beyond this size are read again for writing: Spark's workers have little memory.
_MAX_CACHED_BYTES = 48 * 1024 * 1024
# Row groups whose pages are decoded at the same time.
_PROBERS = 2
# Up to this many replaced rows, the rows between them are referenced instead of copied.
_MAX_SLICED_ROWS = 32


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
    """Whether the file is rewritten even if no value changes."""


@dataclass(frozen=True)
class Rewritten:
    """The result of a rewrite."""

    rows: int
    """The rows of the new file; those of the old one if nothing was written."""

    unchanged_rows: int
    """Matching rows in which no value differs."""

    encoded_row_groups: int
    """Row groups with new column chunks; 0 if nothing was written."""

    path: str | None = None
    """The new file, if it is not at the destination: a task that is run twice writes two."""

    method: Method = "kept"
    """How the new file was written."""

    reason: str = "no value changes"
    """Why it was written that way."""

    copied_row_groups: int = 0
    """Row groups that were copied as bytes."""

    encoded_bytes: int = 0
    """Bytes of the new file that were encoded, and not copied; not counted for ``full``."""

    copied_bytes: int = 0
    """Bytes of the new file that were copied from the old one."""

    @property
    def is_new(self) -> bool:
        """Whether there is a new file."""
        return self.method != "kept"

    def to_metrics(self) -> dict[str, Any]:
        """Its entry in the metrics of a merge."""
        return {
            "method": self.method,
            "reason": self.reason,
            "row_groups_encoded": self.encoded_row_groups,
            "row_groups_copied": self.copied_row_groups,
            "bytes_encoded": self.encoded_bytes,
            "bytes_copied": self.copied_bytes,
        }


@dataclass(frozen=True)
class RowGroupDiff:
    """The changes of one row group."""

    number: int
    rows: int
    """The number of rows after the change."""

    columns: tuple[str, ...]
    """The columns to encode again; all of them if rows are deleted."""

    loses_rows: bool = False
    changed: frozenset[str] = frozenset()
    """The columns in which a value of a remaining row changes."""


@dataclass(frozen=True)
class ComparedRows:
    """The replaced rows of a row group, old and new."""

    old: pa.Table
    new: pa.Table
    pages: Probed
    """The pages that hold them, of the columns whose other pages can stay."""

    @property
    def nbytes(self) -> int:
        """Its size in memory."""
        pages = sum(one.nbytes for one in self.pages.values())
        return int(pages + self.old.nbytes + self.new.nbytes)


class _Cache(Generic[Item]):
    """One item for each of some row groups, and their size."""

    def __init__(self) -> None:
        self._items: dict[int, tuple[Item, int]] = {}
        self.nbytes = 0

    def keep(self, number: int, item: Item, size: int) -> None:
        self.forget(number)
        self._items[number] = (item, size)
        self.nbytes += size

    def get(self, number: int) -> Item | None:
        return self._items.get(number, (None, 0))[0]

    def forget(self, number: int) -> None:
        self.nbytes -= self._items.pop(number, (None, 0))[1]


class FileDiff:
    """A file and its replacement rows, compared row group by row group."""

    def __init__(
        self,
        root: Root,
        path: str,
        file: pq.ParquetFile,
        properties: WriterProperties,
        replacement: Replacement,
        rows: RowSource,
        probe: Probe = lambda number, positions: {},
    ) -> None:
        self.root = root
        self.path = path
        self.file = file
        self.properties = properties
        self._replacement = replacement
        self._rows = rows
        self._probe = probe
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._cuts = np.searchsorted(replacement.positions, self._starts)
        self._old: _Cache[pa.Table] = _Cache()
        self._new: _Cache[pa.Table] = _Cache()
        self._compared: _Cache[ComparedRows] = _Cache()
        self.unchanged_rows = 0

    @property
    def groups(self) -> range:
        """The numbers of all row groups."""
        return range(self.file.num_row_groups)

    def row_group_diffs(self) -> list[RowGroupDiff]:
        """Compare old and new values; returns the row groups that change."""
        found = [self._row_group_diff(number, probed) for number, probed in self._all_probed()]
        return [diff for diff in found if diff is not None]

    def _all_probed(self) -> Iterator[tuple[int, Probed]]:
        """The row groups with a match, and their pages; some are decoded ahead."""
        touched = [number for number in self.groups if self._is_touched(number)]
        if len(touched) == 1:  # a thread would cost more than it saves
            yield touched[0], self._probed(touched[0])
            return
        with ThreadPool(_PROBERS, "fsspeckit-probe") as pool:
            yield from zip(touched, pool.map(self._probed, touched, _PROBERS), strict=True)

    def _probed(self, number: int) -> Probed:
        positions = self._positions(number)
        return self._probe(number, positions) if len(positions) else {}

    def rows_of(self, number: int) -> int:
        """The number of rows of a row group before the change."""
        return int(self._starts[number + 1] - self._starts[number])

    def _is_touched(self, number: int) -> bool:
        holds_match = bool(self._cuts[number] < self._cuts[number + 1])
        return holds_match or (not self._replacement.keep_others and self.rows_of(number) > 0)

    def _row_group_diff(self, number: int, probed: Probed) -> RowGroupDiff | None:
        matches = int(self._cuts[number + 1] - self._cuts[number])
        loses_rows = not self._replacement.keep_others and matches < self.rows_of(number)
        names = tuple(self.properties.schema.names)
        if not matches:
            return RowGroupDiff(number, 0, names, loses_rows=True)
        compared = self._compare(number, probed)
        different = self._different(compared.old, compared.new)
        if loses_rows:
            return RowGroupDiff(number, matches, names, loses_rows=True, changed=different)
        if not different:
            self.forget(number)
            return None
        columns = tuple(name for name in names if name in different)
        if compared.pages:
            self._remember(self._compared, number, compared, compared.nbytes)
        return RowGroupDiff(number, self.rows_of(number), columns, changed=different)

    def _compare(self, number: int, probed: Probed) -> ComparedRows:
        """The replaced rows of a row group, old and new."""
        positions, new = self._positions(number), self._new_rows(number)
        types = dict(zip(new.schema.names, new.schema.types, strict=True))
        pages = {
            name: found
            for name, found in probed.items()
            if _means_the_same(found.type, types[name])
        }
        values = {name: cast_values(found.rows, types[name]) for name, found in pages.items()}
        others = [name for name in new.column_names if name not in pages]
        if others:
            old = self._old_rows(number, others)
            self._remember(self._old, number, old, old.nbytes)
            replaced = take_rows(old, pa.array(positions))
            values.update(zip(others, replaced.columns, strict=True))
        replaced = pa.table([values[name] for name in new.column_names], schema=new.schema)
        useful = {name: found for name, found in pages.items() if can_patch(found)}
        return ComparedRows(replaced, new, useful)

    def _different(self, old: pa.Table, new: pa.Table) -> frozenset[str]:
        """The columns in which a matching row changes; counts the unchanged rows."""
        differs = np.zeros(new.num_rows, bool)
        found = set()
        for name, one, other in zip(new.column_names, old.columns, new.columns, strict=True):
            different = different_values(one.combine_chunks(), other.combine_chunks())
            if different.any():
                found.add(name)
                differs |= different
        self.unchanged_rows += int((~differs).sum())
        return frozenset(found)

    def _remember(self, cache: _Cache[Item], number: int, item: Item, size: int) -> None:
        used = sum(one.nbytes for one in (self._old, self._new, self._compared))
        if used + size <= _MAX_CACHED_BYTES:
            cache.keep(number, item, size)

    def compared(self, number: int) -> ComparedRows | None:
        """The replaced rows of a row group, if they are in memory."""
        return self._compared.get(number)

    def forget(self, number: int) -> None:
        """Free the memory of a row group."""
        for cache in (self._old, self._new, self._compared):
            cache.forget(number)

    def merged(self, number: int, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of one row group after the merge, with all or some columns."""
        names = list(self.properties.schema.names if columns is None else columns)
        if not self._is_touched(number):
            return self._old_rows(number, names)
        new = self._new_rows(number).select(names)
        if not self._replacement.keep_others or new.num_rows == self.rows_of(number):
            return new
        return with_rows(self._known_rows(number, names), new, self._positions(number))

    def _known_rows(self, number: int, names: list[str]) -> pa.Table:
        """Old rows; only columns that are not in memory are read."""
        known = self._old.get(number)
        if known is None:
            return self._old_rows(number, names)
        columns = dict(zip(known.column_names, known.columns, strict=True))
        missing = [name for name in names if name not in columns]
        if missing:
            read = self._old_rows(number, missing)
            columns.update(zip(missing, read.columns, strict=True))
        schema = pa.schema([self.properties.schema.field(name) for name in names])
        return pa.table([columns[name] for name in names], schema=schema)

    def _positions(self, number: int) -> Positions:
        start, end = self._cuts[number], self._cuts[number + 1]
        positions: Positions = self._replacement.positions[start:end] - self._starts[number]
        return positions

    def _old_rows(self, number: int, names: list[str]) -> pa.Table:
        schema = pa.schema([self.properties.schema.field(name) for name in names])
        with naming_damage(self.root, self.path):
            # pyarrow also reads a column called "id.x" for "id": a dot is a path to it.
            old = self.file.read_row_group(number, columns=names).select(names)
        return cast_table(old, schema)

    def _new_rows(self, number: int) -> pa.Table:
        start, end = int(self._cuts[number]), int(self._cuts[number + 1])
        if start == end:
            return self.properties.schema.empty_table()
        known = self._new.get(number)
        if known is not None:
            return known
        source = self._rows(self._replacement.source_rows[start:end])
        check_same_columns(source.column_names, self.properties.schema.names, "file")
        rows = stored_rows(source, self.properties)
        self._remember(self._new, number, rows, rows.nbytes)
        return rows


def stored_rows(rows: pa.Table, properties: WriterProperties) -> pa.Table:
    """Rows in the columns, order and types of a file; INT96 timestamps without a zone."""
    return cast_table(conform_table(rows, properties.meaning()), properties.schema)


def with_rows(old: pa.Table, new: pa.Table, positions: Positions) -> pa.Table:
    """Replace the rows at some positions."""
    if len(positions) <= _MAX_SLICED_ROWS and not any(
        any(dictionaries_in(kind)) for kind in old.schema.types
    ):
        return _patched(old, new, positions)
    index = np.arange(old.num_rows)
    index[positions] = old.num_rows + np.arange(len(positions))
    new = cast_table(new, old.schema)  # the metadata of the schema aside, they are the same
    both = pa.concat_tables([old, new]).unify_dictionaries()
    return take_rows(both, pa.array(index))


def _patched(old: pa.Table, new: pa.Table, positions: Positions) -> pa.Table:
    columns = []
    for one, other in zip(old.columns, new.columns, strict=True):
        chunks, end = [], 0
        for number, position in enumerate(positions.tolist()):
            chunks += one.slice(end, position - end).chunks + other.slice(number, 1).chunks
            end = position + 1
        chunks += one.slice(end).chunks
        columns.append(pa.chunked_array(chunks, type=one.type))
    return pa.table(columns, schema=old.schema)


def _means_the_same(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a cast to the type that the file is read as keeps the values."""
    if pa.types.is_dictionary(wanted):
        wanted = wanted.value_type
    if found.equals(wanted):
        return True
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(wanted):
        return bool(found.unit == wanted.unit and bool(found.tz) == bool(wanted.tz))
    return {found, wanted} in ({pa.string(), pa.large_string()}, {pa.binary(), pa.large_binary()})


def dictionaries_in(data_type: pa.DataType) -> Iterator[pa.DictionaryType]:
    """The dictionary types that a type is or holds."""
    if pa.types.is_dictionary(data_type):
        yield data_type
    elif pa.types.is_nested(data_type):
        for number in range(data_type.num_fields):
            yield from dictionaries_in(data_type.field(number).type)


@dataclass(frozen=True)
class Costs:
    """Seconds on one machine; only their ratios matter, see `benchmarks/bench_splice.py`."""

    encode: float = 6.0e-9
    """For each encoded byte, before compression."""

    decode: float = 1.5e-9
    """For each decoded byte, after decompression."""

    copy: float = 0.4e-9
    """For each copied byte."""

    unit: float = 2.5e-3
    """For each separate encoding of some columns of a row group: options, threads, cutting out."""

    group: float = 4.0e-4
    """For each row group of a full rewrite."""

    chunk: float = 5.0e-5
    """For each column chunk whose entry in the footer is parsed, moved, written and checked."""

    file: float = 1.5e-3
    """For a splice: a second file handle, a footer, the check of the new file."""

    full: float = 0.0
    """For a full rewrite."""


COSTS = Costs()


@dataclass(frozen=True)
class Choice:
    """How a file is rewritten, and why."""

    method: Method
    reason: str


def choose(
    layout: FileLayout,
    columns: Sequence[Column],
    diffs: Sequence[RowGroupDiff],
    workers: int,
    costs: Costs | None = None,
) -> Choice:
    """Choose how to rewrite a file.

    Args:
        layout: The file.
        columns: Its top-level columns.
        diffs: The row groups that change.
        workers: The number of threads that encode; a full rewrite has one.
        costs: The costs; by default `COSTS`.
    """
    costs = costs or COSTS
    wanted = _SpliceEstimate.of(layout, columns, diffs)
    total = sum(chunk.raw_bytes for group in layout.groups for chunk in group.chunks)
    parallel = max(1, min(workers, wanted.bytes // UNIT_BYTES))
    encoding = wanted.bytes * costs.encode / parallel + wanted.units * costs.unit
    splice = (
        encoding
        + wanted.bytes * costs.decode
        + wanted.copied * costs.copy
        + wanted.chunks * costs.chunk
        + costs.file
    )
    full = total * (costs.encode + costs.decode) + len(layout.groups) * costs.group + costs.full
    reason = f"{wanted}: about {splice:.3g} s by splicing, {full:.3g} s by writing all of it"
    if splice >= full:
        return Choice("full", reason)
    return Choice("column splice" if wanted.is_partial else "splice", reason)


@dataclass(frozen=True)
class _SpliceEstimate:
    """The work of a splice."""

    groups: int
    total_groups: int
    columns: int
    total_columns: int
    units: int
    chunks: int
    bytes: int
    copied: int
    is_partial: bool

    @classmethod
    def of(
        cls, layout: FileLayout, columns: Sequence[Column], diffs: Sequence[RowGroupDiff]
    ) -> _SpliceEstimate:
        numbers = {column.name: column.numbers for column in columns}
        encoded_bytes, copied_bytes = 0, 0
        by_group = {diff.number: diff for diff in diffs}
        for number, group in enumerate(layout.groups):
            diff = by_group.get(number)
            names = diff.columns if diff is not None and diff.rows else ()
            encoded = {leaf for name in names for leaf in numbers[name]}
            for leaf, chunk in enumerate(group.chunks):
                if leaf in encoded:
                    encoded_bytes += chunk.raw_bytes
                elif diff is None or diff.rows:
                    copied_bytes += chunk.data.length
        kept = [diff for diff in diffs if diff.rows]
        return cls(
            groups=len(diffs),
            total_groups=len(layout.groups),
            columns=len({name for diff in kept for name in diff.columns}),
            total_columns=len(columns),
            units=max(len(kept), encoded_bytes // UNIT_BYTES),
            chunks=sum(len(group.chunks) for group in layout.groups),
            bytes=encoded_bytes,
            copied=copied_bytes,
            is_partial=any(len(diff.columns) < len(columns) for diff in kept),
        )

    def __str__(self) -> str:
        return (
            f"{self.columns} of {self.total_columns} columns in {self.groups} of "
            f"{self.total_groups} row groups change"
        )
