"""Key ranges: which source keys lie inside the bounds of which row groups.

Bounds come from statistics or partition values. Only proof of absence prunes, so every doubt makes
a bound *unknown*: no statistics, NaN, INT96, a truncated or untrusted bound, a minimum above the
maximum. Unknown bounds contain every key.

A row group may contain a key only if some source key lies inside its bounds on *all* key columns:
one outlier among the keys does not make every file a candidate, and a composite key is compared as
a tuple. Everything is a search in sorted arrays; nothing loops over keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.keys import NAN_CODE, are_comparable, family
from fsspeckit.core.parquet import ThriftError, bound_exactness
from fsspeckit.errors import SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from fsspeckit.core.keys import KeyColumn
    from fsspeckit.core.planning.footers import ChunkStatistics, FileFooter, Leaf

    Numbers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

# These writers store whole values as bounds or none at all, so their flags are not read.
_EXACT_WRITERS = ("parquet-cpp-arrow", "parquet-mr")
# Some writers compared decimals in byte arrays as unsigned bytes; these are known not to.
_SIGNED_DECIMAL_WRITERS = ("parquet-cpp-arrow", "parquet-mr")
# A bound this long without a flag may be truncated by a writer that does not say so.
_MIN_TRUNCATED_BYTES = 64
_EXACT_ARITHMETIC = Context(prec=100)


@dataclass(frozen=True)
class ColumnBounds:
    """The canonical bounds of one column in each row group."""

    column: KeyColumn
    low: pa.Array
    high: pa.Array
    """Inclusive; NULL where unknown."""

    may_contain_values: NDArray[np.bool_]
    """False only where every value is proved NULL."""

    may_contain_nulls: NDArray[np.bool_]
    """False only where no value is NULL."""

    evidence: str = "statistics"
    """What the bounds come from: ``statistics`` or ``partition``."""


def statistics_bounds(column: KeyColumn, footers: Sequence[FileFooter]) -> ColumnBounds:
    """Return the bounds of a stored column in every row group of the files, in order."""
    chunks = [group.columns.get(column.name) for footer in footers for group in footer.row_groups]
    rows = [group.rows for footer in footers for group in footer.row_groups]
    low, high = _canonical_bounds(column, chunks, _positions_by_type(column, footers))
    sane = pc.less_equal(low, high)
    unknown = pa.scalar(None, column.canonical_type)
    return ColumnBounds(
        column,
        pc.if_else(sane, low, unknown),
        pc.if_else(sane, high, unknown),
        np.array([c is None or c.null_count != n for c, n in zip(chunks, rows, strict=True)], bool),
        np.array([c is None or c.null_count != 0 for c in chunks], bool),
    )


def constant_bounds(
    column: KeyColumn, values: pa.Array, known: Sequence[bool], row_groups: Sequence[int]
) -> ColumnBounds:
    """Return the bounds of a partition column from its value in each file's path.

    A value that is not ``known`` could not be parsed; ``row_groups`` counts those of each file.
    """
    files = np.repeat(np.arange(len(row_groups)), row_groups)
    canonical = column.canonical(values).combine_chunks().take(pa.array(files))
    is_null = np.asarray(canonical.is_null())
    unknown = ~np.asarray(known, bool)[files]
    return ColumnBounds(
        column, canonical, canonical, ~is_null | unknown, is_null | unknown, "partition"
    )


def inexact_row_groups(
    footer: FileFooter, column: str, raw: Callable[[FileFooter], bytes | None]
) -> set[int]:
    """Return the row groups of a file whose bounds on a column may be truncated.

    ``raw`` returns the bytes of the footer, or None; it is called only where they matter.
    """
    leaf = footer.leaves.get(column)
    if leaf is None or leaf.physical != "BYTE_ARRAY" or footer.is_checked:
        return set()
    if footer.created_by.startswith(_EXACT_WRITERS):
        return set()
    data = raw(footer)
    try:
        flags = bound_exactness(data, column) if data is not None else []
    except ThriftError:
        flags = []
    if len(flags) != len(footer.row_groups):
        return set(range(len(footer.row_groups)))
    chunks = [group.columns[column] for group in footer.row_groups]
    return {
        number
        for number, (chunk, exact) in enumerate(zip(chunks, flags, strict=True))
        if _is_truncated(chunk.low, exact.min) or _is_truncated(chunk.high, exact.max)
    }


def _is_truncated(bound: bytes | None, exact: bool | None) -> bool:
    if exact is None:
        return bound is not None and len(bound) >= _MIN_TRUNCATED_BYTES
    return not exact


def _positions_by_type(column: KeyColumn, footers: Sequence[FileFooter]) -> dict[Leaf, list[int]]:
    """Return the row groups whose bounds can be trusted, by the stored type of the column."""
    positions: dict[Leaf, list[int]] = {}
    members: list[int] | None = None
    last: tuple[Leaf | None, str] = (None, "")
    start = 0
    for footer in footers:
        end = start + len(footer.row_groups)
        leaf = footer.leaves.get(column.name)
        if leaf is not last[0] or footer.created_by != last[1]:  # files of one writer are alike
            last = (leaf, footer.created_by)
            members = None
            if leaf is not None and _is_trusted(leaf, column, footer.created_by):
                members = positions.setdefault(leaf, [])
        if members is not None:
            members.extend(range(start, end))
        start = end
    return positions


def _canonical_bounds(
    column: KeyColumn,
    chunks: Sequence[ChunkStatistics | None],
    positions: dict[Leaf, list[int]],
) -> tuple[pa.Array, pa.Array]:
    """Return low and high of every row group, with one conversion for each stored type."""
    order: list[int] = []
    lows, highs = [], []
    for leaf, members in positions.items():
        known = [chunk for chunk in (chunks[member] for member in members) if chunk is not None]
        order.extend(members)
        lows.append(_canonical(column, leaf, [chunk.low for chunk in known]))
        highs.append(_canonical(column, leaf, [chunk.high for chunk in known]))
    index = np.full(len(chunks), -1)
    index[order] = np.arange(len(order))
    where = pa.array(index, mask=index < 0)
    empty = [pa.nulls(0, column.canonical_type)]
    return (
        pa.concat_arrays(lows + empty).take(where),
        pa.concat_arrays(highs + empty).take(where),
    )


def _is_trusted(leaf: Leaf, column: KeyColumn, created_by: str) -> bool:
    """Return whether bounds of this stored type can be relied on."""
    if leaf.physical == "INT96" or pa.types.is_float16(leaf.type):
        return False
    if not are_comparable(leaf.type, column.type):
        return False
    if family(leaf.type) == "decimal" and "BYTE_ARRAY" in leaf.physical:
        return created_by.startswith(_SIGNED_DECIMAL_WRITERS)
    return True


def _canonical(column: KeyColumn, leaf: Leaf, raw: list[Any]) -> pa.Array:
    kind = family(leaf.type)
    if kind in ("string", "binary"):
        # Already canonical; a bound truncated inside a character is not a valid string.
        return pa.array(raw, pa.binary())
    if kind == "float":
        raw = [None if value is None or value != value else value for value in raw]
    try:
        return column.canonical(_logical(leaf, raw)).combine_chunks()
    except (SchemaMismatchError, pa.ArrowInvalid, OverflowError):
        # A bound outside the range of the common type; found by bisection, because it is rare.
        if len(raw) == 1:
            return pa.nulls(1, column.canonical_type)
        half = len(raw) // 2
        parts = (raw[:half], raw[half:])
        return pa.concat_arrays([_canonical(column, leaf, part) for part in parts])


def _logical(leaf: Leaf, raw: list[Any]) -> pa.Array:
    """Return physical values as an array of the stored column's Arrow type."""
    data_type = leaf.type
    if pa.types.is_null(data_type):
        return pa.nulls(len(raw))
    if family(data_type) == "decimal":
        return pa.array([_decimal(value, data_type.scale) for value in raw], data_type)
    if pa.types.is_unsigned_integer(data_type):
        mask = 2**data_type.bit_width - 1
        return pa.array([None if value is None else value & mask for value in raw], data_type)
    if family(data_type) in ("bool", "float", "integer"):
        return pa.array(raw, data_type)
    width = pa.int32() if data_type.bit_width == 32 else pa.int64()
    return pa.array(raw, width).view(data_type)


def _decimal(value: int | bytes | None, scale: int) -> Decimal | None:
    if value is None:
        return None
    unscaled = int.from_bytes(value, "big", signed=True) if isinstance(value, bytes) else value
    return _EXACT_ARITHMETIC.scaleb(Decimal(unscaled), -scale)


_BLOCK_KEYS = 65_536


class KeyOverlap:
    """Compares the canonical keys of a source with the bounds of row groups."""

    def __init__(self, keys: pa.Table, bounds: Sequence[ColumnBounds]) -> None:
        self._axes = [_Axis(keys.column(each.column.name), each) for each in bounds]
        self._rows = keys.num_rows
        counts = [axis.counts for axis in self._axes]
        self.counts = np.minimum.reduce(counts)
        """For each row group, the greatest possible number of keys inside."""

        self.decider = np.where(self.counts == 0, np.argmin(counts, axis=0), -1)
        """For each row group, the first column that alone rules out every key; else -1."""

        self.may_contain = self.counts > 0
        """For each row group, whether some key lies inside the bounds on all columns."""

        if len(self._axes) > 1:
            for group in np.flatnonzero(self.may_contain):
                self.may_contain[group] = self._any_inside(int(group))

    def inside(self, group: int) -> NDArray[np.intp]:
        """Return the source rows whose keys lie inside the bounds of a row group."""
        return np.concatenate([*self._inside(group), np.empty(0, np.intp)])

    def _any_inside(self, group: int) -> bool:
        constraining = sum(axis.counts[group] < self._rows for axis in self._axes)
        return constraining <= 1 or any(len(block) for block in self._inside(group))

    def _inside(self, group: int) -> Iterator[NDArray[np.intp]]:
        """Yield the keys inside, starting with the column that leaves the fewest."""
        first = min(self._axes, key=lambda axis: axis.counts[group])
        for members in first.members(group):
            for start in range(0, len(members), _BLOCK_KEYS):
                block = members[start : start + _BLOCK_KEYS]
                for axis in self._axes:
                    if axis is not first:
                        block = block[axis.contains(group, block)]
                yield block


class _Axis:
    """One key column: its keys as ordered integers, and the bounds of each row group."""

    def __init__(self, keys: pa.ChunkedArray, bounds: ColumnBounds) -> None:
        # The code of a NULL has no meaning.
        self.codes, self.low, self.high = _codes(keys, bounds)
        self.is_null = np.asarray(keys.is_null()) if keys.null_count else None
        self.known = np.asarray(bounds.low.is_valid())
        self.holds_values = bounds.may_contain_values
        self.holds_nulls = bounds.may_contain_nulls
        self.is_float = bounds.column.is_float

    @cached_property
    def _nulls(self) -> NDArray[np.intp]:
        return np.flatnonzero(self.is_null) if self.is_null is not None else np.empty(0, np.intp)

    @cached_property
    def _order(self) -> NDArray[np.intp]:
        """The keys that are not NULL, in order."""
        if self.is_null is None:
            return np.argsort(self.codes, kind="stable")
        valid = np.flatnonzero(~self.is_null)
        return valid[np.argsort(self.codes[valid], kind="stable")]

    @cached_property
    def _spans(self) -> tuple[NDArray[np.intp], NDArray[np.intp], int]:
        """Start and end of each row group among the ordered keys, and where NaN starts."""
        valid = self.codes if self.is_null is None else self.codes[~self.is_null]
        ordered = _sorted(valid)
        nan = int(np.searchsorted(ordered, NAN_CODE)) if self.is_float else len(ordered)
        start = np.where(self.known, np.searchsorted(ordered, self.low, "left"), 0)
        end = np.where(self.known, np.searchsorted(ordered, self.high, "right"), len(ordered))
        nothing = ~self.holds_values
        return np.where(nothing, 0, start), np.where(nothing, 0, end), nan

    @cached_property
    def counts(self) -> NDArray[np.intp]:
        """For each row group, the number of keys inside its bounds on this column."""
        start, end, nan = self._spans
        total = len(self.codes) - len(self._nulls)
        # Bounds never include NaN: it may be in any row group that has values.
        extra = np.where(self.holds_values & self.known & (end <= nan), total - nan, 0)
        return end - start + extra + np.where(self.holds_nulls, len(self._nulls), 0)

    def members(self, group: int) -> Iterator[NDArray[np.intp]]:
        """Yield the keys that lie inside the bounds of a row group on this column."""
        start, end, nan = self._spans
        yield self._order[start[group] : end[group]]
        if self.holds_values[group] and self.known[group]:
            yield self._order[max(nan, end[group]) :]
        if self.holds_nulls[group]:
            yield self._nulls

    def contains(self, group: int, keys: NDArray[np.intp]) -> Flags:
        """Return which of these keys lie inside the bounds of a row group on this column."""
        codes = self.codes[keys]
        if not self.holds_values[group]:
            inside = np.zeros(len(keys), bool)
        elif not self.known[group]:
            inside = np.ones(len(keys), bool)
        else:
            inside = (codes >= self.low[group]) & (codes <= self.high[group])
            if self.is_float:
                inside |= codes == NAN_CODE
        if self.is_null is None:
            return inside
        return np.where(self.is_null[keys], self.holds_nulls[group], inside)


def _sorted(values: Numbers) -> Numbers:
    """Sort values; dense ones by counting them, which is faster than comparing."""
    if not len(values):
        return values
    low, high = int(values.min()), int(values.max())
    if high - low >= len(values):
        return np.sort(values)
    counts = np.bincount(values - low)
    return np.repeat(np.arange(len(counts)) + low, counts)


def _codes(keys: pa.ChunkedArray, bounds: ColumnBounds) -> tuple[Numbers, Numbers, Numbers]:
    """Return keys and bounds as integers of the same order."""
    if pa.types.is_int64(keys.type):
        return _numbers(keys), _numbers(bounds.low), _numbers(bounds.high)
    edges = pc.unique(pa.concat_arrays([bounds.low, bounds.high])).drop_null()
    edges = edges.take(pc.array_sort_indices(edges))
    return _ranks(edges, keys), _ranks(edges, bounds.low), _ranks(edges, bounds.high)


def _ranks(edges: pa.Array, values: pa.Array | pa.ChunkedArray) -> Numbers:
    """Return ranks among sorted edges: even between two of them, odd on one."""
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    ranks = [
        np.asarray(pc.search_sorted(edges, chunk.fill_null(b""), side="left")).astype(np.int64)
        + np.asarray(pc.search_sorted(edges, chunk.fill_null(b""), side="right")).astype(np.int64)
        for chunk in chunks
    ]
    return np.concatenate([*ranks, np.empty(0, np.int64)])


def _numbers(values: pa.Array | pa.ChunkedArray) -> Numbers:
    filled = values.fill_null(0) if values.null_count else values
    return np.asarray(filled.to_numpy(), dtype=np.int64)
