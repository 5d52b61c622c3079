"""The key index: look up canonical keys, and choose among source rows with the same key.

Keys of several columns are reduced to one integer each: values to their rank among the distinct
values of the source, pairs of ranks to their rank among the distinct pairs, and so on. NULL is a
value like any other here; whether NULL keys may match is decided before.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.arrow_compat import numbered_columns
from fsspeckit.core.keys.canonical import (
    canonical_keys,
    check_names,
    family,
    key_column,
    python_value,
)
from fsspeckit.errors import DuplicateKeyError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

DuplicatePolicy = Literal["error", "first", "last"]

_MAX_SAMPLES = 5


class KeyIndex:
    """Looks up canonical keys among those of a source."""

    def __init__(self, keys: pa.Table) -> None:
        column = keys.column(0)
        is_number = len(keys.column_names) == 1 and pa.types.is_int64(column.type)
        self._index: _NumberIndex | _TupleIndex = (
            _NumberIndex(column.to_numpy())
            if is_number and not column.null_count
            else _TupleIndex(keys)
        )

    @property
    def is_unique(self) -> bool:
        """Whether no key occurs twice."""
        return self._index.is_unique

    @cached_property
    def groups(self) -> Numbers:
        """The number of each source row's key; equal keys have equal numbers."""
        return self._index.groups()

    def lookup(self, keys: pa.Table) -> Numbers:
        """Return for each key the first source row that has it, or -1."""
        return self._index.lookup(keys)


class _NumberIndex:
    """Keys of one number each: the sorted numbers and their rows, to save memory."""

    def __init__(self, numbers: Numbers) -> None:
        self._order: NDArray[np.unsignedinteger[Any]] | None = None
        if (numbers[:-1] > numbers[1:]).any():
            order = np.argsort(numbers, kind="stable")
            self._order = order.astype(np.min_scalar_type(len(numbers)))
            numbers = numbers[order]
        self._ordered = numbers

    @property
    def is_unique(self) -> bool:
        return not (self._ordered[:-1] == self._ordered[1:]).any()

    def groups(self) -> Numbers:
        starts = np.concatenate([[False], self._ordered[:-1] != self._ordered[1:]])
        ranks: Numbers = np.cumsum(starts[: len(self._ordered)])
        if self._order is None:
            return ranks
        groups = np.empty(len(ranks), np.int64)
        groups[self._order] = ranks
        return groups

    def lookup(self, keys: pa.Table) -> Numbers:
        column = keys.column(0)
        rows = _find(self._ordered, column.fill_null(0).to_numpy())
        if self._order is not None:
            rows = np.where(rows < 0, -1, self._order[rows].astype(np.int64))
        return np.where(np.asarray(column.is_null()), -1, rows) if column.null_count else rows


class _TupleIndex:
    """Keys of any columns, reduced to one integer each."""

    def __init__(self, keys: pa.Table) -> None:
        self._columns = [_Ranks(keys.column(name)) for name in keys.column_names]
        self._pairs: list[Numbers] = []
        groups = self._columns[0].of(keys.column(0))
        for number, ranks in enumerate(self._columns[1:], start=1):
            pairs = groups * ranks.count + ranks.of(keys.column(number))
            distinct, groups = np.unique(pairs, return_inverse=True)
            self._pairs.append(distinct)
        self._groups = groups
        self._row = _first_row_of_each(groups)

    @property
    def is_unique(self) -> bool:
        return not len(self._groups) or bool((np.bincount(self._groups) <= 1).all())

    def groups(self) -> Numbers:
        return self._groups

    def lookup(self, keys: pa.Table) -> Numbers:
        found = self._columns[0].of(keys.column(0))
        for number, (ranks, distinct) in enumerate(
            zip(self._columns[1:], self._pairs, strict=True), start=1
        ):
            ranked = ranks.of(keys.column(number))
            absent = (found < 0) | (ranked < 0)
            found = np.where(absent, -1, _find(distinct, found * ranks.count + ranked))
        return np.where(found < 0, -1, self._row[found]) if len(self._row) else found


class _Ranks:
    """The distinct values of one column in order; NULL comes after all of them."""

    def __init__(self, values: pa.ChunkedArray) -> None:
        self._is_number = pa.types.is_int64(values.type)
        distinct = pc.unique(values).drop_null()
        self._ordered: Any = (
            np.sort(distinct.to_numpy())
            if self._is_number
            else distinct.take(pc.array_sort_indices(distinct))
        )
        self._null_rank = len(distinct) if values.null_count else -1
        self.count = len(distinct) + 1

    def of(self, values: pa.ChunkedArray) -> Numbers:
        """Return the rank of each value; -1 for values that are not among them."""
        chunks = [self._of(chunk) for chunk in values.chunks]
        return np.concatenate([*chunks, np.empty(0, np.int64)])

    def _of(self, values: pa.Array) -> Numbers:
        if self._is_number:
            ranks = _find(self._ordered, values.fill_null(0).to_numpy())
        else:
            ranks = self._find_bytes(values.fill_null(b""))
        if values.null_count:
            ranks = np.where(np.asarray(values.is_null()), self._null_rank, ranks)
        return ranks

    def _find_bytes(self, values: pa.Array) -> Numbers:
        if not len(self._ordered):
            return np.full(len(values), -1)
        if len(self._ordered) < len(values):
            # Each call builds a hash table: too expensive for a large source.
            found = pc.index_in(values, value_set=self._ordered).fill_null(-1)
            return np.asarray(found, np.int64)
        index = np.asarray(pc.search_sorted(self._ordered, values, side="left")).astype(np.int64)
        clipped = np.minimum(index, len(self._ordered) - 1)
        same = np.asarray(pc.equal(self._ordered.take(pa.array(clipped)), values))
        return np.where(same, clipped, -1)


def _find(ordered: Numbers, values: Numbers) -> Numbers:
    """Return the index of each value in a sorted array, or -1."""
    if not len(ordered):
        return np.full(len(values), -1)
    index = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return np.where(ordered[index] == values, index, -1)


def _first_row_of_each(groups: Numbers) -> Numbers:
    rows = np.zeros(int(groups.max()) + 1 if len(groups) else 0, np.int64)
    rows[groups[::-1]] = np.arange(len(groups))[::-1]  # of several the last assignment stays
    return rows


def winning_rows(
    source: pa.Table,
    groups: NDArray[np.int64],
    key_columns: Sequence[str],
    policy: DuplicatePolicy = "error",
    order_by: Sequence[str] | None = None,
) -> NDArray[np.int64]:
    """Return the source rows that remain when every key may occur once, in their order.

    With ``order_by``, the row with the greatest value of these columns stays, the first column
    first. NULL is below every value and NaN above; of equal rows the later one stays.

    Raises:
        DuplicateKeyError: If a key occurs more than once and nothing says which row to keep.
        InvalidArgumentError: If ``policy`` or ``order_by`` is not understood.
    """
    if policy not in ("error", "first", "last"):
        raise InvalidArgumentError.choice("duplicate_keys", policy, ("error", "first", "last"))
    ordering = _canonical_order(source, order_by) if order_by else None
    counts = np.bincount(groups)
    repeated = np.flatnonzero(counts > 1)
    if not len(repeated):
        return np.arange(len(groups))
    if ordering is not None:
        order = _ascending(ordering)
    elif policy == "error":
        samples = sample_keys(source, key_columns, groups, repeated)
        raise DuplicateKeyError.found(key_columns, len(repeated), samples)
    else:
        order = np.arange(len(groups))[:: -1 if policy == "first" else 1]
    winners = np.zeros(len(counts), np.int64)
    winners[groups[order]] = order
    return np.sort(winners)


def _canonical_order(source: pa.Table, order_by: Sequence[str]) -> pa.Table:
    """Return the columns to order by as canonical values, which sort NaN above all others."""
    check_names("order_by", order_by)
    if missing := [name for name in order_by if name not in source.column_names]:
        raise InvalidArgumentError.missing_columns("order_by", missing, source.column_names)
    for name in order_by:
        if family(source.schema.field(name).type) is None:
            raise InvalidArgumentError(
                f"order_by {name!r} of type {source.schema.field(name).type} has no order.\n"
                "Hint: order by numbers, strings, binaries, booleans, dates, times or timestamps.",
                argument="order_by",
            )
    columns = [key_column(name, source.schema.field(name).type) for name in order_by]
    return canonical_keys(source, columns)


def _ascending(table: pa.Table) -> NDArray[np.int64]:
    """Return the rows in order, NULL first; equal rows keep their order."""
    columns = numbered_columns(table)
    keys = [(name, "ascending", "at_start") for name in columns.column_names]
    return np.asarray(pc.sort_indices(columns, sort_keys=keys)).astype(np.int64)


def sample_keys(
    source: pa.Table,
    key_columns: Sequence[str],
    groups: NDArray[np.int64],
    wanted: NDArray[np.integer[Any]],
) -> list[tuple[Any, ...]]:
    """Return some of the wanted keys, given by their group numbers, for an error message."""
    _, first = np.unique(groups, return_index=True)
    rows = source.select(list(key_columns)).take(pa.array(first[wanted[:_MAX_SAMPLES]]))
    columns = [[python_value(value) for value in column] for column in rows.columns]
    return list(zip(*columns, strict=True))
