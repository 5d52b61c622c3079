"""The keys of a source: what callers may pass as keys, and what must be true of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from numbers import Number
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.keys.canonical import (
    KeyColumn,
    as_names,
    canonical_keys,
    check_columns,
    check_names,
    common_type,
    key_column,
    plain_values,
)
from fsspeckit.core.keys.key_index import KeyIndex, sample_keys
from fsspeckit.errors import InvalidArgumentError, NullKeyError, PartitionMoveError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fsspeckit.core.planning import Target


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
    """Return the rows of one table that differ from their match in the other; -1 is no match."""
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
    """The key columns and the partition columns, canonical, one row for each source row."""

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


def source_keys(source: pa.Table, target: Target, null_keys: NullPolicy = "error") -> SourceKeys:
    """Return the keys of a source for planning against a target.

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
    return SourceKeys(canonical_keys(source, _key_and_partition_columns(target)))


def no_keys(target: Target) -> SourceKeys:
    """Return the keys of an empty source."""
    columns = _key_and_partition_columns(target)
    return SourceKeys(pa.schema([(c.name, c.canonical_type) for c in columns]).empty_table())


def _key_and_partition_columns(target: Target) -> list[KeyColumn]:
    return list({c.name: c for c in (*target.key_columns, *target.partition_columns)}.values())


def keys_table(source_keys: Any, key_columns: str | Sequence[str]) -> pa.Table:
    """Return keys, in any form that a caller may pass them, as a table of key columns.

    Args:
        source_keys: Scalars for one key column, tuples for several, or an Arrow array or table.
        key_columns: The names of the key columns.

    Raises:
        InvalidArgumentError: If a key does not have one value for each key column, or a column
            mixes kinds of values.
    """
    key_columns = as_names(key_columns)
    check_names("key_columns", key_columns)
    source_keys = _collected(source_keys)
    if isinstance(source_keys, (pa.Table, pa.RecordBatch)):
        check_columns("key_columns", key_columns, source_keys.schema.names)
        columns = [source_keys.column(name) for name in key_columns]
        return pa.table(columns, names=list(key_columns))
    if isinstance(source_keys, (pa.Array, pa.ChunkedArray)):
        if len(key_columns) != 1:
            raise InvalidArgumentError(
                f"source_keys is one array, but there are {len(key_columns)} key columns: "
                f"{list(key_columns)!r}.\nHint: pass a table with these columns."
            )
        return pa.table([source_keys], names=list(key_columns))
    arrays = map(_array, _transposed(source_keys, key_columns), key_columns)
    return pa.table(list(arrays), names=list(key_columns))


def _collected(source_keys: Any) -> Any:
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
            "source_keys must be a sequence of keys, an Arrow array or a table, "
            f"got {type(source_keys).__name__}: {source_keys!r}.\nHint: pass [key] for one key."
        )
    return list(source_keys)


def _transposed(keys: list[Any], key_columns: Sequence[str]) -> list[list[Any]]:
    if len(key_columns) == 1:
        return [[key[0] if isinstance(key, tuple) and len(key) == 1 else key for key in keys]]
    for key in keys:
        if not isinstance(key, (tuple, list)) or len(key) != len(key_columns):
            raise InvalidArgumentError(
                f"each source key must be a tuple of {len(key_columns)} values, one for each of "
                f"{list(key_columns)!r}, got {key!r}."
            )
    return [list(column) for column in zip(*keys, strict=True)] or [[] for _ in key_columns]


def _array(values: list[Any], name: str) -> pa.Array:
    _check_one_kind(values, name)
    values = [value.bytes if isinstance(value, UUID) else value for value in values]
    try:
        return _inferred(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, ArithmeticError, TypeError) as error:
        raise InvalidArgumentError(
            f"the source_keys of column {name!r} are not values of one type: {error}.\n"
            "Hint: pass an Arrow array or table, whose types are given."
        ) from error


def _inferred(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except OverflowError:  # integers beyond the range of int64
        return pa.array([None if value is None else Decimal(value) for value in values])


def _check_one_kind(values: list[Any], name: str) -> None:
    """Refuse mixtures that Arrow would make equal, such as a datetime and its date."""
    kinds = value_kinds(values)
    if (fine := find_truncated_value(values)) is not None:
        raise InvalidArgumentError(
            f"the source_keys of column {name!r} hold {fine!r}, whose nanoseconds would be lost.\n"
            "Hint: pass an Arrow array or table, whose types are given."
        )
    if len(kinds) > 1:
        raise InvalidArgumentError(
            f"the source_keys of column {name!r} mix {' and '.join(sorted(kinds))}, "
            "which are never equal.\nHint: pass values of one kind."
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
