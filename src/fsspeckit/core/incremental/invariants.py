"""What must hold of a source before anything is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fsspeckit.core.incremental.casts import common_type
from fsspeckit.core.incremental.keys import KeyColumn, canonical_keys, key_column
from fsspeckit.core.incremental.matching import KeyIndex
from fsspeckit.errors import InvalidArgumentError, NullKeyError, PartitionMoveError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "check_columns",
    "validate_no_null_keys",
    "validate_partition_column_immutability",
]

_SAMPLES = 5


def check_columns(what: str, names: Sequence[str], available: Sequence[str]) -> None:
    """Check that columns are named, once each, and exist.

    Raises:
        InvalidArgumentError: Saying which one is wrong.
    """
    if isinstance(names, str):
        raise InvalidArgumentError(
            f"{what} must be a sequence of column names, got the string {names!r}.\n"
            f"Hint: pass [{names!r}]."
        )
    if not names:
        raise InvalidArgumentError(f"{what} must name at least one column, got {names!r}.")
    if len(set(names)) < len(names):
        raise InvalidArgumentError(f"{what} must name each column once, got {list(names)!r}.")
    missing = [name for name in names if name not in available]
    if missing:
        raise InvalidArgumentError.missing_columns(what, missing, available)
    for name in names:
        alike = [other for other in available if other.lower() == name.lower()]
        if len(alike) > 1:
            raise InvalidArgumentError(
                f"{what} {name!r} differs only in case from another column: {alike!r}; "
                "readers that ignore case cannot tell them apart.\nHint: rename one of them."
            )


def validate_no_null_keys(source_table: pa.Table, key_columns: Sequence[str]) -> None:
    """Refuse a source with NULL in a key column.

    Raises:
        NullKeyError: A ``ValueError`` with each such column and its number of NULL values.

    Examples:
        >>> validate_no_null_keys(pa.table({"id": [1, 2]}), ["id"])
    """
    check_columns("key_columns", key_columns, source_table.column_names)
    counts = {name: source_table.column(name).null_count for name in key_columns}
    if found := {name: count for name, count in counts.items() if count}:
        raise NullKeyError.found(found)


def validate_partition_column_immutability(
    source_table: pa.Table,
    target_table: pa.Table,
    key_columns: Sequence[str],
    partition_columns: Sequence[str],
) -> None:
    """Refuse a source that would move an existing key to another partition.

    Raises:
        PartitionMoveError: A ``ValueError`` with the number of such keys and a few of them.
    """
    for table in (source_table, target_table):
        check_columns("key_columns", key_columns, table.column_names)
        check_columns("partition_columns", partition_columns, table.column_names)
    keys = _shared_columns(source_table, target_table, key_columns)
    row = KeyIndex(canonical_keys(source_table, keys)).lookup(canonical_keys(target_table, keys))
    target_rows = np.flatnonzero(row >= 0)
    parts = _shared_columns(source_table, target_table, partition_columns)
    source_parts = canonical_keys(source_table, parts).take(pa.array(row[target_rows]))
    target_parts = canonical_keys(target_table, parts).take(pa.array(target_rows))
    moved = target_rows[different_rows(source_parts, target_parts)]
    if len(moved):
        names = list(key_columns)
        samples = target_table.select(names).take(pa.array(moved[:_SAMPLES])).to_pylist()
        raise PartitionMoveError.found(
            partition_columns,
            len(np.unique(row[moved])),
            [tuple(sample.values()) for sample in samples],
        )


def different_rows(left: pa.Table, right: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which rows of two canonical tables differ; NULL equals NULL."""
    differs = np.zeros(left.num_rows, bool)
    for one, other in zip(left.columns, right.columns, strict=True):
        equal = pa.compute.equal(one, other).fill_null(False)
        both_null = pa.compute.and_(one.is_null(), other.is_null())
        differs |= ~np.asarray(pa.compute.or_(equal, both_null))
    return differs


def _shared_columns(source: pa.Table, target: pa.Table, names: Sequence[str]) -> list[KeyColumn]:
    """The columns with types that hold the values of both tables."""
    return [
        key_column(
            name, common_type(source.schema.field(name).type, target.schema.field(name).type)
        )
        for name in names
    ]
