"""Which source keys lie inside the bounds of which row groups.

Set-aware, not range-aware: a row group may hold a key only if some source key lies inside its
bounds on *all* key columns. One outlier among the keys does not make every file a candidate, and
a composite key is looked at as a tuple. Everything is a search in sorted arrays; nothing loops
over keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.keys.canonical import NAN_CODE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from fsspeckit.core.planning.key_ranges import ColumnBounds

    Numbers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

__all__ = ["KeyOverlap"]

_BLOCK = 65_536


class KeyOverlap:
    """The keys of a source against the bounds of many row groups.

    Args:
        keys: Canonical keys, one column for each of ``bounds``.
        bounds: What is known of each key column in every row group.
    """

    def __init__(self, keys: pa.Table, bounds: Sequence[ColumnBounds]) -> None:
        self._axes = [_axis(keys.column(each.column.name), each) for each in bounds]
        self._rows = keys.num_rows
        counts = [axis.counts for axis in self._axes]
        self.counts = np.minimum.reduce(counts)
        """For each row group, how many keys can lie inside at the most."""

        self.decider = np.where(self.counts == 0, np.argmin(counts, axis=0), -1)
        """For each row group, the first column that alone rules out every key; else -1."""

        self.may_hold = self.counts > 0
        """For each row group, whether some key lies inside the bounds on all columns."""

        if len(self._axes) > 1:
            for group in np.flatnonzero(self.may_hold):
                self.may_hold[group] = self._any_inside(int(group))

    def inside(self, group: int) -> NDArray[np.intp]:
        """The keys that lie inside the bounds of a row group, as row numbers of the source."""
        return np.concatenate([*self._inside(group), np.empty(0, np.intp)])

    def _any_inside(self, group: int) -> bool:
        constraining = sum(axis.counts[group] < self._rows for axis in self._axes)
        return constraining <= 1 or any(len(block) for block in self._inside(group))

    def _inside(self, group: int) -> Iterator[NDArray[np.intp]]:
        """The keys inside, found from the column that leaves the fewest."""
        first = min(self._axes, key=lambda axis: axis.counts[group])
        for members in first.members(group):
            for start in range(0, len(members), _BLOCK):
                block = members[start : start + _BLOCK]
                for axis in self._axes:
                    if axis is not first:
                        block = block[axis.contains(group, block)]
                yield block


@dataclass
class _Axis:
    """One key column: its keys as ordered integers, and each row group's share of them."""

    codes: Numbers
    """The keys; what stands at a NULL has no meaning."""

    is_null: Flags | None
    low: Numbers
    high: Numbers
    known: Flags
    """For each row group, whether it has bounds."""

    holds_values: Flags
    holds_nulls: Flags
    is_float: bool

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
        """For each row group, how many keys lie inside its bounds on this column."""
        start, end, nan = self._spans
        total = len(self.codes) - len(self._nulls)
        # NaN is never in the bounds: it may be in any row group that holds values.
        extra = np.where(self.holds_values & self.known & (end <= nan), total - nan, 0)
        return end - start + extra + np.where(self.holds_nulls, len(self._nulls), 0)

    def members(self, group: int) -> Iterator[NDArray[np.intp]]:
        """The keys that lie inside the bounds of a row group on this column."""
        start, end, nan = self._spans
        yield self._order[start[group] : end[group]]
        if self.holds_values[group] and self.known[group]:
            yield self._order[max(nan, end[group]) :]
        if self.holds_nulls[group]:
            yield self._nulls

    def contains(self, group: int, keys: NDArray[np.intp]) -> Flags:
        """Which of these keys lie inside the bounds of a row group on this column."""
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
    """The values in order; where they lie close together they are counted and not compared."""
    if not len(values):
        return values
    low, high = int(values.min()), int(values.max())
    if high - low >= len(values):
        return np.sort(values)
    counts = np.bincount(values - low)
    return np.repeat(np.arange(len(counts)) + low, counts)


def _axis(keys: pa.ChunkedArray, bounds: ColumnBounds) -> _Axis:
    known = np.asarray(bounds.low.is_valid())
    codes, low, high = _codes(keys, bounds)
    return _Axis(
        codes,
        np.asarray(keys.is_null()) if keys.null_count else None,
        low,
        high,
        known,
        bounds.may_hold_values,
        bounds.may_hold_nulls,
        bounds.column.is_float,
    )


def _codes(keys: pa.ChunkedArray, bounds: ColumnBounds) -> tuple[Numbers, Numbers, Numbers]:
    """Keys and bounds as integers that compare as they do."""
    if pa.types.is_int64(keys.type):
        return _numbers(keys), _numbers(bounds.low), _numbers(bounds.high)
    edges = pc.unique(pa.concat_arrays([bounds.low, bounds.high])).drop_null()
    edges = edges.take(pc.array_sort_indices(edges))
    return _ranks(edges, keys), _ranks(edges, bounds.low), _ranks(edges, bounds.high)


def _ranks(edges: pa.Array, values: pa.Array | pa.ChunkedArray) -> Numbers:
    """Places among sorted edges: even between two of them, odd on one."""
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
