"""The keys of a source: what callers may pass as keys, and what must be true of them.

The key index looks up canonical keys. Keys of several columns are reduced to one integer each:
values to their rank among the distinct values of the source, pairs of ranks to their rank among the
distinct pairs, and so on. NULL is a value like any other there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cached_property
from numbers import Number
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.arrow_compat import numbered_columns
from fsspeckit.core.keys.canonical import (
    KeyColumn,
    as_names,
    canonical_keys,
    check_columns,
    check_names,
    common_type,
    family,
    key_column,
    plain_values,
    python_value,
)
from fsspeckit.errors import (
    DuplicateKeyError,
    InvalidArgumentError,
    NullKeyError,
    PartitionMoveError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fsspeckit.core.planning import Target

    Numbers = NDArray[np.int64]

DuplicatePolicy = Literal["error", "first", "last"]

_MAX_SAMPLES = 5
_SIGNED_BITS = 63


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

    @property
    def order(self) -> Numbers | None:
        """The rows in the order of their keys; None if they are in order, or not single numbers."""
        return self._index.order

    @cached_property
    def groups(self) -> Numbers:
        """The number of each source row's key; equal keys have equal numbers."""
        return self._index.groups()

    def find(self, keys: pa.Table) -> tuple[Numbers, Numbers]:
        """Return the positions of the keys that the source has, and the first row with each."""
        return self._index.find(keys)

    def lookup(self, keys: pa.Table) -> Numbers:
        """Return for each key the first source row that has it, or -1."""
        rows = np.full(keys.num_rows, -1)
        positions, rows_found = self.find(keys)
        rows[positions] = rows_found
        return rows


class _NumberIndex:
    """Keys of one number each: the sorted numbers and their rows, to save memory."""

    def __init__(self, numbers: Numbers) -> None:
        self._order: NDArray[np.unsignedinteger[Any]] | None = None
        if (numbers[:-1] > numbers[1:]).any():
            numbers, order = _in_order(numbers)
            self._order = order.astype(np.min_scalar_type(len(numbers)))
        self._ordered = numbers

    @property
    def order(self) -> Numbers | None:
        return None if self._order is None else self._order.astype(np.int64)

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

    def find(self, keys: pa.Table) -> tuple[Numbers, Numbers]:
        column = keys.column(0)
        if column.null_count:  # no key of the source is NULL
            present = np.flatnonzero(np.asarray(column.is_valid()))
            positions, rows = self._find(column.drop_null().to_numpy())
            return present[positions], rows
        return self._find(column.to_numpy())

    def _find(self, numbers: Numbers) -> tuple[Numbers, Numbers]:
        start, ordered = _between(self._ordered, numbers)
        if len(ordered) < len(numbers) and (numbers[:-1] < numbers[1:]).all():
            # As in a file that is sorted by its key: the fewer are searched for among the more.
            found = _find(numbers, ordered)
            indices = np.flatnonzero(found >= 0)
            indices = indices[np.diff(found[indices], prepend=-1) > 0]  # the first of equal keys
            positions = found[indices]
        else:
            found = _find(ordered, numbers)
            positions = np.flatnonzero(found >= 0)
            indices = found[positions]
        rows = indices + start
        return positions, rows if self._order is None else self._order[rows].astype(np.int64)


class _TupleIndex:
    """Keys of any columns, reduced to one integer each."""

    order = None

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

    def find(self, keys: pa.Table) -> tuple[Numbers, Numbers]:
        found = self._columns[0].of(keys.column(0))
        for number, (ranks, distinct) in enumerate(
            zip(self._columns[1:], self._pairs, strict=True), start=1
        ):
            ranked = ranks.of(keys.column(number))
            absent = (found < 0) | (ranked < 0)
            found = np.where(absent, -1, _find(distinct, found * ranks.count + ranked))
        positions = np.flatnonzero(found >= 0)
        return positions, self._row[found[positions]]


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


def _in_order(numbers: Numbers) -> tuple[Numbers, Numbers]:
    """Return the numbers in order, and the row of each; of equal numbers the first row first."""
    bits, least = len(numbers).bit_length(), int(numbers.min())
    if (int(numbers.max()) - least).bit_length() + bits > _SIGNED_BITS:
        order = np.argsort(numbers, kind="stable")
        return numbers[order], order
    # Both in one integer: numpy sorts values in half of the time that it takes to sort rows.
    pairs = ((numbers - least) << bits) + np.arange(len(numbers))
    pairs.sort()
    return (pairs >> bits) + least, pairs & ((1 << bits) - 1)


def _between(ordered: Numbers, values: Numbers) -> tuple[int, Numbers]:
    """Return the numbers between the least and the greatest value, and the index of the first."""
    if not len(values):
        return 0, ordered[:0]
    start = int(np.searchsorted(ordered, values.min()))
    return start, ordered[start : int(np.searchsorted(ordered, values.max(), side="right"))]


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
        order = ascending_rows(ordering)
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


def ascending_rows(table: pa.Table) -> NDArray[np.int64]:
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


def validate_no_null_keys(source_table: pa.Table, key_columns: str | Sequence[str]) -> None:
    """Refuse a source with NULL in a key column.

    Raises:
        NullKeyError: A ``ValueError`` with each such column and its number of NULL values.

    Examples:
        >>> validate_no_null_keys(pa.table({"id": [1, 2]}), ["id"])
    """
    key_columns = as_names(key_columns)
    check_columns("key_columns", key_columns, source_table.column_names)
    # Decoded, because NULL may be a value of a dictionary.
    counts = {
        name: sum(plain_values(chunk).null_count for chunk in source_table.column(name).chunks)
        for name in key_columns
    }
    if found := {name: count for name, count in counts.items() if count}:
        raise NullKeyError.found(found)


def validate_partition_column_immutability(
    source_table: pa.Table,
    target_table: pa.Table,
    key_columns: str | Sequence[str],
    partition_columns: str | Sequence[str],
) -> None:
    """Refuse a source that would move an existing key to another partition.

    Without partition columns there is nothing to move between.

    Raises:
        PartitionMoveError: A ``ValueError`` with the number of such keys and samples of them.
    """
    key_columns, partition_columns = as_names(key_columns), as_names(partition_columns)
    for table in (source_table, target_table):
        check_columns("key_columns", key_columns, table.column_names)
        if partition_columns:
            check_columns("partition_columns", partition_columns, table.column_names)
    if not partition_columns:
        return
    columns = _shared_columns(source_table, target_table, key_columns)
    source_keys = canonical_keys(source_table, columns)
    target_keys = canonical_keys(target_table, columns)
    parts = _shared_columns(source_table, target_table, partition_columns)
    source_parts = canonical_keys(source_table, parts)
    target_parts = canonical_keys(target_table, parts)
    index = KeyIndex(source_keys)
    in_source = index.lookup(target_keys)
    in_target = KeyIndex(target_keys).lookup(source_keys)
    # Both ways, because a lookup finds only the first of several rows with one key.
    moved = np.union1d(
        index.groups[in_source[_changed_rows(target_parts, source_parts, in_source)]],
        index.groups[_changed_rows(source_parts, target_parts, in_target)],
    )
    if len(moved):
        samples = sample_keys(source_table, key_columns, index.groups, moved)
        raise PartitionMoveError.found(partition_columns, len(moved), samples)


def _changed_rows(left: pa.Table, right: pa.Table, match: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the rows of one table that differ from their match in the other; -1 for none."""
    rows = np.flatnonzero(match >= 0)
    pairs = left.take(pa.array(rows)), right.take(pa.array(match[rows]))
    return rows[different_rows(*pairs)]


def different_rows(left: pa.Table, right: pa.Table) -> NDArray[np.bool_]:
    """Return which rows of two canonical tables differ; NULL equals NULL."""
    differs = np.zeros(left.num_rows, bool)
    for one, other in zip(left.columns, right.columns, strict=True):
        equal = pc.equal(one, other).fill_null(False)
        both_null = pc.and_(one.is_null(), other.is_null())
        differs |= ~np.asarray(pc.or_(equal, both_null))
    return differs


def _shared_columns(source: pa.Table, target: pa.Table, names: Sequence[str]) -> list[KeyColumn]:
    """Return key columns whose types can store the values of both tables."""
    pairs = [(source.schema.field(name).type, target.schema.field(name).type) for name in names]
    return [key_column(name, common_type(*pair)) for name, pair in zip(names, pairs, strict=True)]


NullPolicy = Literal["error", "match"]


@dataclass(frozen=True)
class SourceKeys:
    """The canonical keys of a source, and the partitions its rows belong to."""

    keys: pa.Table
    """The key columns and the partition columns, canonical, one row for each source row; and the
    column that marks deletions, if there is one."""

    @property
    def count(self) -> int:
        """The number of keys."""
        return int(self.keys.num_rows)

    @property
    def is_complete(self) -> bool:
        """Whether ``keys`` has every key of the source.

        An engine whose source is too large for one machine returns one key inside the bounds of
        each row group, if there is any, and one of each partition.
        """
        return True


def source_keys(
    source: pa.Table,
    target: Target,
    null_keys: NullPolicy = "error",
    delete_when: str | None = None,
) -> SourceKeys:
    """Return the keys of a source for planning against a target.

    Args:
        source: The rows.
        target: The dataset.
        null_keys: What to do with NULL in a key.
        delete_when: The column that marks deletions.

    Raises:
        InvalidArgumentError: If a key or partition column is missing.
        NullKeyError: If a key is NULL and ``null_keys`` is ``"error"``.
        SchemaMismatchError: If a value cannot be a key of the target.
    """
    if null_keys not in ("error", "match"):
        raise InvalidArgumentError.choice("null_keys", null_keys, ("error", "match"))
    names = [column.name for column in target.key_columns]
    check_columns("key_columns", names, source.column_names)
    if target.partition_columns:
        parts = [column.name for column in target.partition_columns]
        check_columns("partition_columns", parts, source.column_names)
    if null_keys == "error":
        validate_no_null_keys(source, names)
    keys = canonical_keys(source, _key_and_partition_columns(target))
    if delete_when is not None:
        marks = mark_column(delete_when).canonical(check_marks(source, delete_when))
        keys = keys.append_column(delete_when, marks)
    return SourceKeys(keys)


def mark_column(delete_when: str) -> KeyColumn:
    """Return the column that marks deletions as one that travels with keys."""
    return key_column(delete_when, pa.bool_())


def check_marks(source: pa.Table, delete_when: str) -> pa.ChunkedArray:
    """Return the column that marks deletions.

    Raises:
        InvalidArgumentError: If a value of it is NULL.
    """
    marks = source.column(delete_when)
    if sum(plain_values(chunk).null_count for chunk in marks.chunks):
        raise InvalidArgumentError(
            f"the delete_when column {delete_when!r} has NULL values: it must say of every row "
            "whether its key is deleted.\nHint: fill NULL with false.",
            argument="delete_when",
        )
    return marks


def no_keys(target: Target) -> SourceKeys:
    """Return the keys of an empty source."""
    columns = _key_and_partition_columns(target)
    return SourceKeys(pa.schema([(c.name, c.canonical_type) for c in columns]).empty_table())


def _key_and_partition_columns(target: Target) -> list[KeyColumn]:
    return list({c.name: c for c in (*target.key_columns, *target.partition_columns)}.values())


def keys_table(
    source_keys: Any, key_columns: str | Sequence[str], argument: str = "source_keys"
) -> pa.Table:
    """Return keys, in any form that a caller may pass them, as a table of key columns.

    Args:
        source_keys: Scalars for one key column, tuples for several, or an Arrow array or table.
        key_columns: The names of the key columns.
        argument: What the caller calls the keys.

    Raises:
        InvalidArgumentError: If a key does not have one value for each key column, or a column
            mixes kinds of values.
    """
    key_columns = as_names(key_columns)
    check_names("key_columns", key_columns)
    source_keys = _collected(source_keys, argument)
    if isinstance(source_keys, (pa.Table, pa.RecordBatch)):
        check_columns("key_columns", key_columns, source_keys.schema.names)
        columns = [source_keys.column(name) for name in key_columns]
        return pa.table(columns, names=list(key_columns))
    if isinstance(source_keys, (pa.Array, pa.ChunkedArray)):
        if len(key_columns) != 1:
            raise InvalidArgumentError(
                f"{argument} is one array, but there are {len(key_columns)} key columns: "
                f"{list(key_columns)!r}.\nHint: pass a table with these columns.",
                argument=argument,
            )
        return pa.table([source_keys], names=list(key_columns))
    lists = zip(_transposed(source_keys, key_columns, argument), key_columns, strict=True)
    arrays = [_array(values, name, argument) for values, name in lists]
    return pa.table(arrays, names=list(key_columns))


def as_keys(given: Any, key_columns: Sequence[str]) -> Any:
    """Return keys as data: an Arrow array, or a list of values or tuples, as a table.

    Lists of tables and of paths (not of strings) stay as they are.

    Raises:
        InvalidArgumentError: As :func:`keys_table` does.
    """
    is_list = isinstance(given, (list, tuple, set, frozenset, range, np.ndarray))
    if isinstance(given, (pa.Array, pa.ChunkedArray)) or (
        is_list and not any(map(_is_data, given))
    ):
        return keys_table(given, key_columns, "keys")
    return given


def _is_data(item: object) -> bool:
    """Whether an item of a list is a table or the path of one; a string is a key."""
    return hasattr(item, "__arrow_c_stream__") or isinstance(item, os.PathLike)


def _collected(source_keys: Any, argument: str) -> Any:
    """Return keys as an Arrow object or a list."""
    if isinstance(source_keys, (pa.Table, pa.RecordBatch, pa.Array, pa.ChunkedArray)):
        return source_keys
    if isinstance(source_keys, pa.RecordBatchReader):
        return source_keys.read_all()
    if hasattr(source_keys, "__arrow_c_stream__") and hasattr(source_keys, "columns"):
        return pa.table(source_keys)  # a data frame; as a sequence it would be its column names
    single = isinstance(source_keys, (str, bytes, Mapping))
    if single or not isinstance(source_keys, Iterable):
        raise InvalidArgumentError(
            f"{argument} must be a sequence of keys, an Arrow array or a table, "
            f"got {type(source_keys).__name__}: {source_keys!r}.\nHint: pass [key] for one key.",
            argument=argument,
        )
    return list(source_keys)


def _transposed(keys: list[Any], key_columns: Sequence[str], argument: str) -> list[list[Any]]:
    if len(key_columns) == 1:
        return [[key[0] if isinstance(key, tuple) and len(key) == 1 else key for key in keys]]
    for key in keys:
        if not isinstance(key, (tuple, list)) or len(key) != len(key_columns):
            raise InvalidArgumentError(
                f"each of the {argument} must be a tuple of {len(key_columns)} values, one for "
                f"each of {list(key_columns)!r}, got {key!r}.",
                argument=argument,
            )
    return [list(column) for column in zip(*keys, strict=True)] or [[] for _ in key_columns]


def _array(values: list[Any], name: str, argument: str) -> pa.Array:
    _check_one_kind(values, name, argument)
    values = [value.bytes if isinstance(value, UUID) else value for value in values]
    try:
        return _inferred(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, ArithmeticError, TypeError) as error:
        raise InvalidArgumentError(
            f"the {argument} of column {name!r} are not values of one type: {error}.\n"
            "Hint: pass an Arrow array or table, whose types are given.",
            argument=argument,
        ) from error


def _inferred(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except OverflowError:  # integers beyond the range of int64
        return pa.array([None if value is None else Decimal(value) for value in values])


def _check_one_kind(values: list[Any], name: str, argument: str) -> None:
    """Refuse mixtures that Arrow would make equal, such as a datetime and its date."""
    kinds = value_kinds(values)
    if (fine := find_truncated_value(values)) is not None:
        raise InvalidArgumentError(
            f"the {argument} of column {name!r} hold {fine!r}, whose nanoseconds would be lost.\n"
            "Hint: pass an Arrow array or table, whose types are given.",
            argument=argument,
        )
    if len(kinds) > 1:
        raise InvalidArgumentError(
            f"the {argument} of column {name!r} mix {' and '.join(sorted(kinds))}, "
            "which are never equal.\nHint: pass values of one kind.",
            argument=argument,
        )


def value_kinds(values: Iterable[Any]) -> set[str]:
    """Name the kinds of values other than None; values of two kinds are never equal.

    Datetimes with a zone and datetimes without are two kinds.
    """
    values = [value for value in values if value is not None]
    kinds = {_kind_of(python_type) for python_type in set(map(type, values))}
    if "datetimes" in kinds:
        zoned = {value.tzinfo is not None for value in values if isinstance(value, datetime)}
        if len(zoned) > 1:
            kinds = kinds - {"datetimes"} | {"datetimes with zone", "datetimes without zone"}
    return kinds


def find_truncated_value(values: Iterable[Any]) -> Any:
    """Return a timestamp or duration of pandas whose nanoseconds Arrow would lose, or None."""
    names = {each: _FINE.get(each.__name__) for each in set(map(type, values))}
    if not any(names.values()):
        return None
    fine = (value for value in values if getattr(value, names[type(value)] or "", 0) > 0)
    return next(fine, None)


_FINE = {"Timestamp": "nanosecond", "Timedelta": "nanoseconds"}


def _kind_of(python_type: type) -> str:
    named = (name for name, base in _KINDS if issubclass(python_type, base))
    return next(named, python_type.__name__)


_KINDS: tuple[tuple[str, type], ...] = (  # the narrower first: a datetime is a date
    ("datetimes", datetime),
    ("datetimes", np.datetime64),
    ("dates", date),
    ("times", time),
    ("durations", timedelta),
    ("durations", np.timedelta64),  # for NumPy it is a number
    ("booleans", bool),
    ("booleans", np.bool_),
    ("numbers", Number),
    ("strings", str),
    ("bytes", bytes),
)
