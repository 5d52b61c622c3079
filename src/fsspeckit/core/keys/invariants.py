"""What must hold of a source before anything is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.keys.canonical import (
    KeyColumn,
    as_names,
    canonical_keys,
    check_columns,
    key_column,
)
from fsspeckit.core.keys.casts import common_type, plain
from fsspeckit.core.keys.key_index import KeyIndex, sample_keys
from fsspeckit.errors import NullKeyError, PartitionMoveError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = [
    "different_rows",
    "validate_no_null_keys",
    "validate_partition_column_immutability",
]


def validate_no_null_keys(source_table: pa.Table, key_columns: str | Sequence[str]) -> None:
    """Refuse a source with NULL in a key column.

    Raises:
        NullKeyError: A ``ValueError`` with each such column and its number of NULL values.

    Examples:
        >>> validate_no_null_keys(pa.table({"id": [1, 2]}), ["id"])
    """
    key_columns = as_names(key_columns)
    check_columns("key_columns", key_columns, source_table.column_names)
    counts = {name: _null_count(source_table.column(name)) for name in key_columns}
    if found := {name: count for name, count in counts.items() if count}:
        raise NullKeyError.found(found)


def _null_count(values: pa.ChunkedArray) -> int:
    """The NULL values, also those that only the dictionary of a dictionary array tells."""
    return sum(plain(chunk).null_count for chunk in values.chunks)


def validate_partition_column_immutability(
    source_table: pa.Table,
    target_table: pa.Table,
    key_columns: str | Sequence[str],
    partition_columns: str | Sequence[str],
) -> None:
    """Refuse a source that would move an existing key to another partition.

    Without partition columns there is nothing to move between.

    Raises:
        PartitionMoveError: A ``ValueError`` with the number of such keys and a few of them.
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
    # Both ways, because of several rows with one key a lookup finds only the first.
    moved = np.union1d(
        index.groups[in_source[_changed_rows(target_parts, source_parts, in_source)]],
        index.groups[_changed_rows(source_parts, target_parts, in_target)],
    )
    if len(moved):
        samples = sample_keys(source_table, key_columns, index.groups, moved)
        raise PartitionMoveError.found(partition_columns, len(moved), samples)


def _changed_rows(left: pa.Table, right: pa.Table, match: NDArray[np.int64]) -> NDArray[np.intp]:
    """The rows of one table that differ from their match in the other; -1 is no match."""
    rows = np.flatnonzero(match >= 0)
    pairs = left.take(pa.array(rows)), right.take(pa.array(match[rows]))
    return rows[different_rows(*pairs)]


def different_rows(left: pa.Table, right: pa.Table) -> NDArray[np.bool_]:
    """Which rows of two canonical tables differ; NULL equals NULL."""
    differs = np.zeros(left.num_rows, bool)
    for one, other in zip(left.columns, right.columns, strict=True):
        equal = pc.equal(one, other).fill_null(False)
        both_null = pc.and_(one.is_null(), other.is_null())
        differs |= ~np.asarray(pc.or_(equal, both_null))
    return differs


def _shared_columns(source: pa.Table, target: pa.Table, names: Sequence[str]) -> list[KeyColumn]:
    """The columns with types that hold the values of both tables."""
    return [
        key_column(
            name, common_type(source.schema.field(name).type, target.schema.field(name).type)
        )
        for name in names
    ]
