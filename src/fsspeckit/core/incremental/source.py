"""The source as planning sees it: its canonical keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fsspeckit.core.incremental.invariants import check_columns, validate_no_null_keys
from fsspeckit.core.incremental.keys import canonical_keys
from fsspeckit.errors import InvalidArgumentError

if TYPE_CHECKING:
    import pyarrow as pa

    from fsspeckit.core.incremental.target import Target

__all__ = ["NullPolicy", "SourceKeys", "source_keys"]

NullPolicy = Literal["error", "match"]


@dataclass(frozen=True)
class SourceKeys:
    """The canonical keys of a source, and the partitions its rows belong to."""

    keys: pa.Table
    """The key columns and the partition columns, canonical, one row for each source row."""


def source_keys(source: pa.Table, target: Target, null_keys: NullPolicy = "error") -> SourceKeys:
    """Take the keys of a source for planning against a target.

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
    columns = {column.name: column for column in (*target.key_columns, *target.partition_columns)}
    return SourceKeys(canonical_keys(source, list(columns.values())))
