"""Pruning: rule out row groups by partition value, statistics, bloom filter and key index.

Each kind of evidence can only prove absence. The row groups that are left must be scanned for keys.
Every verdict says what decided it.

A bloom filter has the hashes of physical values, so canonical keys are turned back into the values
that the file would store. Where a key has several stored forms all of them are probed (``0.0`` and
``-0.0``), or none excludes it (NaN, NULL, INT96). A key that the file's type cannot represent is
not in the file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Context, Decimal
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.keys import (
    NAN_CODE,
    are_comparable,
    family,
    key_fingerprints,
    python_value,
)
from fsspeckit.core.parquet import (
    BloomFilter,
    ThriftError,
    bound_exactness,
    hash_values,
    header_and_bitset_length,
)
from fsspeckit.core.planning.footers import gc_disabled, raw_footer
from fsspeckit.core.threads import ThreadPool
from fsspeckit.errors import SchemaMismatchError
from fsspeckit.storage import read_range

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from fsspeckit.core.keys import KeyColumn
    from fsspeckit.core.matching import StoredKeyIndex
    from fsspeckit.core.planning.footers import ChunkStatistics, FileFooter, Leaf
    from fsspeckit.storage import Root

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
    """False only where every value is proved NULL, or there is no row."""

    may_contain_nulls: NDArray[np.bool_]
    """False only where no value is NULL."""

    evidence: str = "statistics"
    """What the bounds come from: ``statistics`` or ``partition``."""

    def ends(self) -> pa.Array | None:
        """Return least and greatest value, if every row group that has values has bounds."""
        needed = self.may_contain_values
        if not needed.any() or not np.asarray(self.low.is_valid())[needed].all():
            return None
        return pa.array([pc.min(self.low).as_py(), pc.max(self.high).as_py()], self.low.type)


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
        np.array(
            [n > 0 and (c is None or c.null_count != n) for c, n in zip(chunks, rows, strict=True)],
            bool,
        ),
        np.array(
            [n > 0 and (c is None or c.null_count != 0) for c, n in zip(chunks, rows, strict=True)],
            bool,
        ),
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
    if not len(values) or (values[:-1] <= values[1:]).all():
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


MAX_PROBED_KEYS = 1024
"""With more keys than this inside a row group's bounds, a filter hardly ever excludes them all."""

_BLOOM_HEADER_BYTES = 64
_BLOOM_WORKERS = 16

MIN_ROWS_PER_KEY = 16
"""With more keys inside a row group's bounds, scanning it costs hardly more than looking them up in
the key index."""

EvidenceKind = Literal[
    "partition",
    "statistics",
    "bloom",
    "key index",
    "key scan",
    "row scan",
    "schema",
    "unreadable",
    "none",
]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What decided the fate of a file."""

    kind: EvidenceKind
    """The kind of evidence; ``none`` where nothing rules the keys out."""

    columns: tuple[str, ...] = ()
    """The columns it is about."""

    detail: str = ""
    """The facts in words."""

    def __str__(self) -> str:
        about = f" of {', '.join(self.columns)}" if self.columns else ""
        return f"{self.kind}{about}" + (f": {self.detail}" if self.detail else "")


_NOTHING = Evidence("none")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What pruning found about one file."""

    row_groups: tuple[int, ...]
    """The row groups that may contain a source key; none if no row group can."""

    evidence: Evidence


@dataclass(frozen=True)
class PartitionValues:
    """The typed value of one partition column in each file."""

    values: pa.Array
    known: Sequence[bool]
    """Whether the text in the path is a value of the type; if not, it rules nothing out."""


def prune(
    root: Root,
    footers: Sequence[FileFooter],
    keys: pa.Table,
    columns: Sequence[KeyColumn],
    partitions: Mapping[str, PartitionValues],
    *,
    is_complete: bool = True,
    index: StoredKeyIndex | None = None,
) -> list[Verdict]:
    """Return a verdict for each file: the row groups that may contain one of the keys.

    ``partitions`` are the key columns whose values are in the paths. Bloom filters and the key
    index are evidence only if ``keys`` has all the keys. An unreadable file is never pruned.
    """
    if not footers:
        return []
    bounds = key_bounds(footers, columns, partitions)
    bounds, overlap = trusted_overlap(footers, keys, bounds, partial(raw_footer, root))
    pruner = _Pruner(root, footers, keys, bounds, overlap)
    if is_complete:
        pruner.apply_blooms()
        if index:
            pruner.apply_key_index(index)
    with gc_disabled():
        return pruner.verdicts()


def key_bounds(
    footers: Sequence[FileFooter],
    columns: Sequence[KeyColumn],
    partitions: Mapping[str, PartitionValues],
) -> list[ColumnBounds]:
    """Return the bounds of each key column in every row group, partition columns first."""
    groups = [len(footer.row_groups) for footer in footers]
    in_order = sorted(columns, key=lambda column: column.name not in partitions)
    return [
        constant_bounds(column, in_path.values, in_path.known, groups)
        if (in_path := partitions.get(column.name)) is not None
        else statistics_bounds(column, footers)
        for column in in_order
    ]


def trusted_overlap(
    footers: Sequence[FileFooter],
    keys: pa.Table,
    bounds: list[ColumnBounds],
    raw: Callable[[FileFooter], bytes | None],
) -> tuple[list[ColumnBounds], KeyOverlap]:
    """Compare keys with bounds; bounds that would prune but may be truncated are not used.

    The footers' bytes are parsed only for files that would be pruned, because parsing all of them
    would cost more than a small merge.
    """
    overlap = KeyOverlap(keys, bounds)
    trusted = [_without_truncated_bounds(each, footers, overlap, raw) for each in bounds]
    if all(new is old for new, old in zip(trusted, bounds, strict=True)):
        return bounds, overlap
    return trusted, KeyOverlap(keys, trusted)


def _without_truncated_bounds(
    bounds: ColumnBounds,
    footers: Sequence[FileFooter],
    overlap: KeyOverlap,
    raw: Callable[[FileFooter], bytes | None],
) -> ColumnBounds:
    if bounds.evidence != "statistics" or not pa.types.is_binary(bounds.low.type):
        return bounds
    truncated = np.zeros(len(bounds.low), bool)
    start = 0
    for footer in footers:
        end = start + len(footer.row_groups)
        if not overlap.may_contain[start:end].all():
            for number in inexact_row_groups(footer, bounds.column.name, raw):
                truncated[start + number] = True
        start = end
    if not truncated.any():
        return bounds
    unknown = pa.scalar(None, bounds.low.type)
    return replace(
        bounds,
        low=pc.if_else(pa.array(truncated), unknown, bounds.low),
        high=pc.if_else(pa.array(truncated), unknown, bounds.high),
    )


class _Pruner:
    """The state of the row groups while one piece of evidence after the other is applied."""

    def __init__(
        self,
        root: Root,
        footers: Sequence[FileFooter],
        keys: pa.Table,
        bounds: Sequence[ColumnBounds],
        overlap: KeyOverlap,
    ) -> None:
        self._root = root
        self._footers = footers
        self._keys = keys
        self._bounds = bounds
        self._columns = [each.column for each in bounds]
        self._overlap = overlap
        counts = [len(footer.row_groups) for footer in footers]
        self._file = np.repeat(np.arange(len(footers)), counts)
        self._starts = np.concatenate([[0], np.cumsum(counts)]).astype(int)
        rows = np.array([group.rows for footer in footers for group in footer.row_groups], int)
        self._rows = rows
        self._alive = overlap.may_contain & (rows > 0)
        self._excluded_by: dict[int, tuple[str, ...]] = {}
        self._excluded_by_index: set[int] = set()
        self._indexed: tuple[str, ...] = ()
        self._texts: dict[int, dict[int, str]] = {}
        self._deciders: list[int] = overlap.decider.tolist()
        self._proofs: dict[frozenset[int], tuple[EvidenceKind, tuple[str, ...], int]] = {}

    def _local(self, group: int) -> int:
        """Return a row group's number inside its file."""
        return int(group - self._starts[self._file[group]])

    def apply_blooms(self) -> None:
        """Probe the bloom filters of the row groups that are left."""
        probes = {
            group: Probe(
                self._footers[self._file[group]],
                self._local(group),
                self._keys.take(pa.array(self._overlap.inside(group))),
            )
            for group in np.flatnonzero(self._alive).tolist()
            if self._is_worth_probing(group)
        }
        excluded = excluded_by_bloom(self._root, list(probes.values()), self._columns)
        for group, columns in zip(probes, excluded, strict=True):
            if columns:
                self._alive[group] = False
                self._excluded_by[group] = columns

    def _is_worth_probing(self, group: int) -> bool:
        chunks = self._footers[self._file[group]].row_groups[self._local(group)].columns.values()
        has_filter = any(chunk.bloom_offset is not None for chunk in chunks)
        return has_filter and int(self._overlap.counts[group]) <= MAX_PROBED_KEYS

    def apply_key_index(self, index: StoredKeyIndex) -> None:
        """Look for the fingerprints of the keys among those of the row groups that are left."""
        is_worth_it = self._overlap.counts * MIN_ROWS_PER_KEY <= self._rows
        groups: dict[int, list[int]] = {}
        for group in np.flatnonzero(self._alive & is_worth_it).tolist():
            groups.setdefault(int(self._file[group]), []).append(group)
        if not groups:
            return
        self._indexed = tuple(index.names)
        wanted = key_fingerprints(self._keys.select(index.names))
        for number, found in index.read({number: self._footers[number] for number in groups}):
            for group in groups[number]:
                stored = found[self._local(group)]
                inside = wanted[self._overlap.inside(group)]
                at = np.minimum(np.searchsorted(stored, inside), len(stored) - 1)
                if not (stored[at] == inside).any():
                    self._alive[group] = False
                    self._excluded_by_index.add(group)

    def verdicts(self) -> list[Verdict]:
        """Return the verdict about each file."""
        # Lists are faster than arrays for thousands of short slices.
        alive, starts = self._alive.tolist(), self._starts.tolist()
        return [
            self._verdict(number, footer, start, alive[start : starts[number + 1]])
            for number, (footer, start) in enumerate(zip(self._footers, starts, strict=False))
        ]

    def _verdict(
        self, number: int, footer: FileFooter, start: int, is_alive: list[bool]
    ) -> Verdict:
        if footer.error is not None:
            return Verdict((), Evidence("unreadable", detail=footer.error))
        alive = tuple(group for group, lives in enumerate(is_alive) if lives)
        if alive:
            return Verdict(alive, _NOTHING)
        if not footer.rows:
            return Verdict((), Evidence("statistics", detail="no rows"))
        return Verdict((), self._proof(number, start, start + len(is_alive)))

    def _proof(self, number: int, start: int, end: int) -> Evidence:
        """Return what ruled out all row groups of a file: the last kind of evidence needed."""
        if not self._excluded_by_index.isdisjoint(range(start, end)):
            return Evidence("key index", self._indexed)
        if self._excluded_by:
            by_bloom = {name for g in range(start, end) for name in self._excluded_by.get(g, ())}
            if by_bloom:
                return Evidence("bloom", self._in_key_order(by_bloom))
        kind, names, first = self._decided_by(frozenset(self._deciders[start:end]))
        detail = "no key fits all the bounds" if first < 0 else self._ranges(first)[number]
        return Evidence(kind, names, detail)

    def _decided_by(self, deciders: frozenset[int]) -> tuple[EvidenceKind, tuple[str, ...], int]:
        """Return what columns prove, by number, and the first of them; -1 is all together."""
        if deciders not in self._proofs:
            columns = sorted(column for column in deciders if column >= 0)
            names = {self._columns[column].name for column in columns}
            kinds = {self._bounds[column].evidence for column in columns}
            kind: EvidenceKind = "partition" if kinds == {"partition"} else "statistics"
            ordered = self._in_key_order(names if columns else None)
            self._proofs[deciders] = kind, ordered, columns[0] if columns else -1
        return self._proofs[deciders]

    def _in_key_order(self, names: set[str] | None) -> tuple[str, ...]:
        return tuple(c.name for c in self._columns if names is None or c.name in names)

    def _ranges(self, column: int) -> dict[int, str]:
        """Return the bounds of a column as text, for each file that has row groups."""
        if column not in self._texts:
            files = np.flatnonzero(np.diff(self._starts))
            texts = _format_ranges(self._bounds[column], self._starts[files])
            self._texts[column] = dict(zip(files.tolist(), texts, strict=True))
        return self._texts[column]


def _format_ranges(bounds: ColumnBounds, starts: NDArray[np.intp]) -> list[str]:
    """Return the bounds over the row groups of each file, given its first row group."""
    values = np.logical_or.reduceat(bounds.may_contain_values, starts)
    lows = _format_values(bounds.column, _extremes(bounds.low, starts, np.minimum, "at_end"))
    highs = _format_values(bounds.column, _extremes(bounds.high, starts, np.maximum, "at_start"))
    return [
        "only NULL" if not holds else low if low == high else f"{low} to {high}"
        for holds, low, high in zip(values, lows, highs, strict=True)
    ]


def _extremes(values: pa.Array, starts: NDArray[np.intp], choose: np.ufunc, nulls: str) -> pa.Array:
    """Return the least or greatest value from each start to the next; NULL if there is none."""
    order = np.asarray(pc.array_sort_indices(values, null_placement=nulls))
    rank = np.empty(len(order), np.intp)
    rank[order] = np.arange(len(order))
    return values.take(pa.array(order[choose.reduceat(rank, starts)]))


def _format_values(column: KeyColumn, canonical: pa.Array) -> list[str]:
    """Return values as text; NULL is empty."""
    try:
        values = column.original(canonical)
    except pa.ArrowInvalid:
        if len(canonical) == 1:  # a bound truncated inside a character
            return [repr(value) for value in canonical.to_pylist()]
        return [text for value in canonical for text in _format_values(column, pa.array([value]))]
    return [str(python_value(value)) if value.is_valid else "" for value in values]


# Bloom filters: they may exclude a key, never confirm one.


@dataclass(frozen=True)
class Probe:
    """The keys to look up in the bloom filters of one row group."""

    footer: FileFooter
    row_group: int
    keys: pa.Table
    """The canonical keys that lie inside its bounds."""

    def excluded_by(self, root: Root, columns: Sequence[KeyColumn]) -> tuple[str, ...]:
        """Return the columns whose filters rule out every key; none if a key may be there."""
        alive = np.ones(self.keys.num_rows, bool)
        asked: list[str] = []
        for column in columns:
            chunk = self.footer.row_groups[self.row_group].columns.get(column.name)
            if chunk is None or chunk.bloom_offset is None:
                continue
            asked.append(column.name)
            alive &= self._may_contain(root, column, chunk)
            if not alive.any():
                return tuple(asked)
        return ()

    def _may_contain(self, root: Root, column: KeyColumn, chunk: ChunkStatistics) -> Flags:
        everything = np.ones(self.keys.num_rows, bool)
        leaf = self.footer.leaves[column.name]
        stored = _stored_forms(column, leaf, self.keys.column(column.name).combine_chunks())
        if stored is None:
            return everything
        bloom = _read_filter(root, self.footer, chunk)
        if bloom is None:
            return everything
        may_contain = ~everything
        for form in stored:
            valid = np.asarray(form.is_valid())
            may_contain[valid] |= bloom.might_contain(hash_values(form.drop_null()))
        return may_contain | _never_excluded(column, self.keys.column(column.name))


def excluded_by_bloom(
    root: Root, probes: Sequence[Probe], columns: Sequence[KeyColumn]
) -> list[tuple[str, ...]]:
    """Return for each probe the columns that rule out every key; none if a key may be there."""
    if root.is_local or len(probes) <= 1:
        return [probe.excluded_by(root, columns) for probe in probes]
    with ThreadPool(_BLOOM_WORKERS, "fsspeckit-blooms") as pool:
        return list(pool.map(lambda probe: probe.excluded_by(root, columns), probes))


def _read_filter(root: Root, footer: FileFooter, chunk: ChunkStatistics) -> BloomFilter | None:
    """Return the filter; None if it cannot be parsed, so that it excludes nothing."""
    assert chunk.bloom_offset is not None
    path, start = footer.file.path, chunk.bloom_offset
    phase = "reading a bloom filter"
    try:
        length = chunk.bloom_length or header_and_bitset_length(
            read_range(root, path, start, _BLOOM_HEADER_BYTES, phase)
        )
        return BloomFilter.parse(read_range(root, path, start, length, phase))
    except ThriftError:
        return None


def _never_excluded(column: KeyColumn, keys: pa.ChunkedArray) -> Flags:
    """Return the keys that no filter can exclude."""
    found = np.asarray(keys.is_null())
    if column.is_float:
        found |= np.isnan(_floats(column, keys.combine_chunks()))
    return found


def _floats(column: KeyColumn, keys: pa.Array) -> NDArray[np.float64]:
    values = column.original(keys).cast(pa.float64())
    return np.asarray(values.to_numpy(zero_copy_only=False), np.float64)


def _stored_forms(column: KeyColumn, leaf: Leaf, keys: pa.Array) -> list[pa.Array] | None:
    """Return the physical values of each key, NULL where the file's type cannot represent it.

    None if the stored form of keys of this type is not certain.
    """
    kind = family(leaf.type)
    if leaf.physical in ("INT96", "BOOLEAN") or pa.types.is_float16(leaf.type):
        return None
    if pa.types.is_null(leaf.type):
        return None  # a column without a type
    if kind in ("string", "binary"):
        return [keys]
    if kind == "float":
        return _stored_floats(_floats(column, keys), leaf)
    if kind == "decimal":
        return _stored_decimals(column.original(keys), leaf)
    return _stored_numbers(column.original(keys), leaf)


def _stored_floats(values: NDArray[np.float64], leaf: Leaf) -> list[pa.Array]:
    with np.errstate(over="ignore"):  # to infinity, which then is not the same
        narrow = values.astype(leaf.type.to_pandas_dtype())
    fits = (narrow == values) & ~np.isnan(values)
    # Keys have one zero, files two.
    return [
        pa.array(narrow, mask=~fits),
        pa.array(np.negative(narrow), mask=~(fits & (narrow == 0))),
    ]


def _stored_numbers(values: pa.Array, leaf: Leaf) -> list[pa.Array]:
    """Return integers, dates, times and timestamps as int32 or int64."""
    fitting = _cast_or_null(values, leaf.type)
    bits = 32 if leaf.physical == "INT32" else 64
    if pa.types.is_integer(leaf.type):
        # Unsigned values are stored as the signed ones of the same bits.
        same_sign = pa.uint64() if pa.types.is_unsigned_integer(leaf.type) else pa.int64()
        wide = np.asarray(fitting.fill_null(0).cast(same_sign)).view(np.int64)
        narrow = wide.astype(np.int32 if bits == 32 else np.int64)
        return [pa.array(narrow, mask=np.asarray(fitting.is_null()))]
    return [fitting.view(pa.int32() if bits == 32 else pa.int64())]


def _stored_decimals(values: pa.Array, leaf: Leaf) -> list[pa.Array] | None:
    """Return the unscaled number, as an integer or big-endian in the width of the column."""
    if leaf.physical == "BYTE_ARRAY":
        return None  # several byte strings stand for one number
    unscaled = _unscaled(_cast_or_null(values, _wide_decimal(leaf.type)))
    if leaf.physical in ("INT32", "INT64"):
        return [pa.array(unscaled, pa.int32() if leaf.physical == "INT32" else pa.int64())]
    encoded = [
        None if number is None else number.to_bytes(leaf.length, "big", signed=True)
        for number in unscaled
    ]
    return [pa.array(encoded, pa.binary(leaf.length))]


def _wide_decimal(data_type: pa.DataType) -> pa.DataType:
    """Return the decimal type of the same digits that stores each in 16 or in 32 bytes."""
    if pa.types.is_decimal256(data_type):
        return data_type
    return pa.decimal128(data_type.precision, data_type.scale)


def _unscaled(values: pa.Array) -> list[int | None]:
    """Return decimals without their scale: 1.25 at scale 2 is 125."""
    make = pa.decimal256 if pa.types.is_decimal256(values.type) else pa.decimal128
    whole = pa.Array.from_buffers(
        make(values.type.precision, 0), len(values), values.buffers(), offset=values.offset
    )
    return [None if value is None else int(value) for value in whole.to_pylist()]


def _cast_or_null(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Cast values to another type of their family; NULL where that would change them."""
    try:
        return values.cast(data_type)
    except pa.ArrowInvalid:
        if len(values) == 1:
            return pa.nulls(1, data_type)
    singles = (values.slice(index, 1) for index in range(len(values)))
    return pa.concat_arrays([_cast_or_null(value, data_type) for value in singles])
