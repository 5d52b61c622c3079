"""What a replacement does to a file: which row groups, which columns, which rows.

Old and new values are compared before anything is written, so that a file, a row group or a column
in which nothing changes can stay as it is.

How a file is written anew: by the cheapest of three ways that give the same rows.

Costs are estimated from what the footer says of each chunk and from measured rates. Their ratios
decide, and these differ little between machines: encoding is by far the most expensive thing done
to a byte, decoding comes next, and copying is nearly free.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeVar

import numpy as np
import pyarrow as pa

from fsspeckit.core.arrow_compat import cast_table, cast_values, naming_damage, take_rows
from fsspeckit.core.parquet import can_patch
from fsspeckit.core.schema_conform import check_same_columns, conform_table, different_values

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
    """Reads pages of a row group, of the columns for which that is cheaper than to read all."""

__all__ = [
    "Change",
    "Choice",
    "Compared",
    "Costs",
    "GroupChange",
    "Method",
    "Replacement",
    "choose",
    "dictionaries_in",
    "stored_rows",
    "with_rows",
]


# --- What a replacement does to a file: which row groups, which columns, which rows ---

Thing = TypeVar("Thing")

# What is compared is read again for writing, unless it is little: workers of Spark have not much.
_REMEMBERED_BYTES = 48 * 1024 * 1024
# Pages of so many row groups are decoded at once to compare rows of them.
_PROBERS = 2
# Up to this many replaced rows, what lies between them is used as it is instead of copied.
_FEW_PLACES = 32


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
class GroupChange:
    """What happens to one row group."""

    number: int
    rows: int
    """How many rows it has afterwards."""

    columns: tuple[str, ...]
    """The columns that must be encoded again; all of them if rows are lost."""

    loses_rows: bool = False
    changed: frozenset[str] = frozenset()
    """The columns in which a value of a row that stays changes."""


@dataclass(frozen=True)
class Compared:
    """Rows of a row group that are replaced, as they are and as they will be."""

    old: pa.Table
    new: pa.Table
    pages: Probed
    """The pages that hold them, of the columns of which no more has to be encoded again."""

    @property
    def bytes(self) -> int:
        """What all of it takes in memory."""
        pages = sum(one.nbytes for one in self.pages.values())
        return int(pages + self.old.nbytes + self.new.nbytes)


class _Memory(Generic[Thing]):
    """What is remembered of row groups, and how many bytes that is."""

    def __init__(self) -> None:
        self._things: dict[int, tuple[Thing, int]] = {}
        self.bytes = 0

    def keep(self, number: int, thing: Thing, size: int) -> None:
        self.forget(number)
        self._things[number] = (thing, size)
        self.bytes += size

    def get(self, number: int) -> Thing | None:
        return self._things.get(number, (None, 0))[0]

    def forget(self, number: int) -> None:
        self.bytes -= self._things.pop(number, (None, 0))[1]


class Change:
    """A file and its replacement, looked at row group by row group."""

    def __init__(
        self,
        root: Root,
        path: str,
        file: pq.ParquetFile,
        layout: WriterProperties,
        replacement: Replacement,
        rows: RowSource,
        probe: Probe = lambda number, places: {},
    ) -> None:
        self.root = root
        self.path = path
        self.file = file
        self.layout = layout
        self._replacement = replacement
        self._rows = rows
        self._probe = probe
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._cuts = np.searchsorted(replacement.positions, self._starts)
        self._old: _Memory[pa.Table] = _Memory()
        self._new: _Memory[pa.Table] = _Memory()
        self._compared: _Memory[Compared] = _Memory()
        self.unchanged_rows = 0

    @property
    def groups(self) -> range:
        """The numbers of all row groups."""
        return range(self.file.num_row_groups)

    @property
    def matches(self) -> int:
        """How many rows match."""
        return len(self._replacement.positions)

    def group_changes(self) -> list[GroupChange]:
        """Compare old and new values; the row groups that do not stay as they are."""
        found = [self._group_change(number, probed) for number, probed in self._all_probed()]
        return [change for change in found if change is not None]

    def _all_probed(self) -> Iterator[tuple[int, Probed]]:
        """The row groups that change something, with pages: few are decoded ahead."""
        touched = [number for number in self.groups if self._is_touched(number)]
        if len(touched) == 1:  # another thread would only cost
            yield touched[0], self._probed(touched[0])
            return
        ahead: deque[tuple[int, Future[Probed]]] = deque()
        with ThreadPoolExecutor(_PROBERS, thread_name_prefix="fsspeckit-probe") as pool:
            for number in touched:
                ahead.append((number, pool.submit(self._probed, number)))
                if len(ahead) > _PROBERS:
                    first, future = ahead.popleft()
                    yield first, future.result()
            yield from ((number, future.result()) for number, future in ahead)

    def _probed(self, number: int) -> Probed:
        places = self._places(number)
        return self._probe(number, places) if len(places) else {}

    def rows_of(self, number: int) -> int:
        """How many rows a row group has now."""
        return int(self._starts[number + 1] - self._starts[number])

    def _is_touched(self, number: int) -> bool:
        holds_match = bool(self._cuts[number] < self._cuts[number + 1])
        return holds_match or (not self._replacement.keep_others and self.rows_of(number) > 0)

    def _group_change(self, number: int, probed: Probed) -> GroupChange | None:
        matches = int(self._cuts[number + 1] - self._cuts[number])
        loses_rows = not self._replacement.keep_others and matches < self.rows_of(number)
        names = tuple(self.layout.schema.names)
        if not matches:
            return GroupChange(number, 0, names, loses_rows=True)
        compared = self._compare(number, probed)
        different = self._different(compared.old, compared.new)
        if loses_rows:
            return GroupChange(number, matches, names, loses_rows=True, changed=different)
        if not different:
            self.forget(number)
            return None
        columns = tuple(name for name in names if name in different)
        if compared.pages:
            self._remember(self._compared, number, compared, compared.bytes)
        return GroupChange(number, self.rows_of(number), columns, changed=different)

    def _compare(self, number: int, probed: Probed) -> Compared:
        """The old rows that are to be replaced, and the new ones."""
        places, new = self._places(number), self._new_rows(number)
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
            replaced = take_rows(old, pa.array(places))
            values.update(zip(others, replaced.columns, strict=True))
        replaced = pa.table([values[name] for name in new.column_names], schema=new.schema)
        useful = {name: found for name, found in pages.items() if can_patch(found)}
        return Compared(replaced, new, useful)

    def _different(self, old: pa.Table, new: pa.Table) -> frozenset[str]:
        """The columns in which a matching row changes; counts the rows that do not."""
        differs = np.zeros(new.num_rows, bool)
        found = set()
        for name, one, other in zip(new.column_names, old.columns, new.columns, strict=True):
            different = different_values(one.combine_chunks(), other.combine_chunks())
            if different.any():
                found.add(name)
                differs |= different
        self.unchanged_rows += int((~differs).sum())
        return frozenset(found)

    def _remember(self, memory: _Memory[Thing], number: int, thing: Thing, size: int) -> None:
        used = sum(one.bytes for one in (self._old, self._new, self._compared))
        if used + size <= _REMEMBERED_BYTES:
            memory.keep(number, thing, size)

    def compared(self, number: int) -> Compared | None:
        """The rows of a row group that change, if they are remembered."""
        return self._compared.get(number)

    def forget(self, number: int) -> None:
        """Free what is remembered of a row group."""
        for memory in (self._old, self._new, self._compared):
            memory.forget(number)

    def merged(self, number: int, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of one row group after the merge, or some columns of them."""
        names = list(self.layout.schema.names if columns is None else columns)
        if not self._is_touched(number):
            return self._old_rows(number, names)
        new = self._new_rows(number).select(names)
        if not self._replacement.keep_others or new.num_rows == self.rows_of(number):
            return new
        return with_rows(self._known_rows(number, names), new, self._places(number))

    def _known_rows(self, number: int, names: list[str]) -> pa.Table:
        """Old rows, those columns that were read already not read again."""
        known = self._old.get(number)
        if known is None:
            return self._old_rows(number, names)
        held = set(known.column_names)
        missing = [name for name in names if name not in held]
        if not missing:
            return known.select(names)
        read = self._old_rows(number, missing)
        both = {**dict(zip(missing, read.columns, strict=True))}
        both.update((name, known.column(name)) for name in names if name not in both)
        schema = pa.schema([self.layout.schema.field(name) for name in names])
        return pa.table([both[name] for name in names], schema=schema)

    def _places(self, number: int) -> Positions:
        start, end = self._cuts[number], self._cuts[number + 1]
        places: Positions = self._replacement.positions[start:end] - self._starts[number]
        return places

    def _old_rows(self, number: int, columns: Sequence[str] | None = None) -> pa.Table:
        names = list(self.layout.schema.names if columns is None else columns)
        schema = pa.schema([self.layout.schema.field(name) for name in names])
        with naming_damage(self.root, self.path):
            # pyarrow also reads a column called "id.x" for "id": a dot is a path to it.
            old = self.file.read_row_group(number, columns=names).select(names)
        return cast_table(old, schema)

    def _new_rows(self, number: int) -> pa.Table:
        start, end = int(self._cuts[number]), int(self._cuts[number + 1])
        if start == end:  # the source is not asked for nothing
            return self.layout.schema.empty_table()
        known = self._new.get(number)
        if known is not None:
            return known
        source = self._rows(self._replacement.source_rows[start:end])
        check_same_columns(source.column_names, self.layout.schema.names, "file")
        rows = stored_rows(source, self.layout)
        self._remember(self._new, number, rows, rows.nbytes)
        return rows


def stored_rows(rows: pa.Table, layout: WriterProperties) -> pa.Table:
    """Rows as a file stores them: its columns, order, types; INT96 without the zone it means."""
    return cast_table(conform_table(rows, layout.meaning()), layout.schema)


def with_rows(old: pa.Table, new: pa.Table, places: Positions) -> pa.Table:
    """The old rows with new ones at some places."""
    if len(places) <= _FEW_PLACES and not any(
        any(dictionaries_in(kind)) for kind in old.schema.types
    ):
        return _patched(old, new, places)
    index = np.arange(old.num_rows)
    index[places] = old.num_rows + np.arange(len(places))
    new = cast_table(new, old.schema)  # the metadata of the schema aside, they are the same
    both = pa.concat_tables([old, new]).unify_dictionaries()
    return take_rows(both, pa.array(index))


def _patched(old: pa.Table, new: pa.Table, places: Positions) -> pa.Table:
    columns = []
    for one, other in zip(old.columns, new.columns, strict=True):
        chunks, end = [], 0
        for number, place in enumerate(places.tolist()):
            chunks += one.slice(end, place - end).chunks + other.slice(number, 1).chunks
            end = place + 1
        chunks += one.slice(end).chunks
        columns.append(pa.chunked_array(chunks, type=one.type))
    return pa.table(columns, schema=old.schema)


def _means_the_same(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values can be cast to the type that the file is read as, and stay what they are."""
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


# --- How a file is written anew: by the cheapest of three ways that give the same rows ---

Method = Literal["kept", "column splice", "splice", "full"]
"""Nothing written; some columns of some row groups; whole row groups; all of the file."""


@dataclass(frozen=True)
class Costs:
    """Seconds on one machine; only their ratios matter, see `benchmarks/bench_splice.py`."""

    encode: float = 6.0e-9
    """For each byte that is encoded, before compression."""

    decode: float = 1.5e-9
    """For each byte that is decoded, after decompression."""

    copy: float = 0.4e-9
    """For each byte that is copied."""

    unit: float = 2.5e-3
    """For each separate encoding of some columns of a row group: options, threads, cutting out."""

    group: float = 4.0e-4
    """For each row group of a full rewrite."""

    chunk: float = 5.0e-5
    """For each column chunk whose entry in the footer is parsed, moved, written and checked."""

    file: float = 1.5e-3
    """For the rest of a splice: a second file handle, a footer, the check of the new file."""

    full: float = 0.0
    """For the rest of a full rewrite."""


COSTS = Costs()


@dataclass(frozen=True)
class Choice:
    """The way that was chosen, and why."""

    method: Method
    reason: str

    @classmethod
    def full(cls, reason: str) -> Choice:
        """Write all of the file anew."""
        return cls("full", reason)


def choose(
    anatomy: FileLayout,
    columns: Sequence[Column],
    changes: Sequence[GroupChange],
    workers: int,
    costs: Costs | None = None,
) -> Choice:
    """Choose how to write a file anew.

    Args:
        anatomy: The file.
        columns: Its top-level columns.
        changes: The row groups that do not stay as they are.
        workers: How many threads encode; a full rewrite has one.
        costs: What things cost; by default `COSTS`.
    """
    costs = costs or COSTS
    wanted = _Work.of(anatomy, columns, changes)
    total = sum(chunk.raw_bytes for group in anatomy.groups for chunk in group.chunks)
    parallel = max(1, min(workers, wanted.bytes // UNIT_BYTES))
    encoding = wanted.bytes * costs.encode / parallel + wanted.units * costs.unit
    splice = (
        encoding
        + wanted.bytes * costs.decode
        + wanted.copied * costs.copy
        + wanted.chunks * costs.chunk
        + costs.file
    )
    full = total * (costs.encode + costs.decode) + len(anatomy.groups) * costs.group + costs.full
    shown = f"{wanted}: about {splice:.3g} s by splicing, {full:.3g} s by writing all of it"
    if splice >= full:
        return Choice.full(shown)
    return Choice("column splice" if wanted.is_partial else "splice", shown)


@dataclass(frozen=True)
class _Work:
    """What a splice would do."""

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
        cls, anatomy: FileLayout, columns: Sequence[Column], changes: Sequence[GroupChange]
    ) -> _Work:
        numbers = {column.name: column.numbers for column in columns}
        bytes_, kept_bytes = 0, 0
        by_group = {change.number: change for change in changes}
        for number, group in enumerate(anatomy.groups):
            change = by_group.get(number)
            names = change.columns if change is not None and change.rows else ()
            encoded = {leaf for name in names for leaf in numbers[name]}
            for leaf, chunk in enumerate(group.chunks):
                if leaf in encoded:
                    bytes_ += chunk.raw_bytes
                elif change is None or change.rows:
                    kept_bytes += chunk.data.length
        kept = [change for change in changes if change.rows]
        return cls(
            groups=len(changes),
            total_groups=len(anatomy.groups),
            columns=len({name for change in kept for name in change.columns}),
            total_columns=len(columns),
            units=max(len(kept), bytes_ // UNIT_BYTES),
            chunks=sum(len(group.chunks) for group in anatomy.groups),
            bytes=bytes_,
            copied=kept_bytes,
            is_partial=any(len(change.columns) < len(columns) for change in kept),
        )

    def __str__(self) -> str:
        return (
            f"{self.columns} of {self.total_columns} columns in {self.groups} of "
            f"{self.total_groups} row groups change"
        )


UNIT_BYTES: Final = 4 * 1024 * 1024
"""Columns of a row group are encoded together until they have this many bytes."""
