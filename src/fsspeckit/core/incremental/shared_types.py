"""Types of one column that differ from file to file.

pandas and Polars give a column of nothing but NULL, and what is inside of empty lists, the type of
NULL. Such a type says nothing: whatever another file or the source knows takes its place.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa

from fsspeckit.core.incremental.casts import common_type, comparable, family, plain_type
from fsspeckit.core.parquet.instants import nested_like
from fsspeckit.errors import SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Callable

    Combine = Callable[[pa.DataType, pa.DataType], pa.DataType]

__all__ = ["inner_types", "known_schema", "known_type", "shared_type"]


def known_type(found: pa.DataType, known: pa.DataType) -> pa.DataType:
    """A type with what another one knows in the place of types of NULL, inside too.

    Examples:
        >>> known_type(pa.list_(pa.null()), pa.list_(pa.int64()))
        ListType(list<item: int64>)
    """
    return _combined(found, known, lambda found, known: found)


def shared_type(first: pa.DataType, other: pa.DataType) -> pa.DataType:
    """A type for the values of both: the first if it holds them all, or if no type does.

    Examples:
        >>> shared_type(pa.int8(), pa.int64())
        DataType(int64)
        >>> shared_type(pa.large_string(), pa.string())
        DataType(large_string)
    """
    return _combined(first, other, _wider)


def known_schema(schema: pa.Schema, *known: pa.Schema) -> pa.Schema:
    """A schema with the types that others know in the place of types of NULL."""
    return reduce(_retyped, known, schema)


def inner_types(data_type: pa.DataType) -> dict[str, pa.DataType]:
    """The types inside a nested type: of a struct by name, of a map, or of a list."""
    return {name: field.type for name, field in _inner_fields(data_type).items()}


def _retyped(schema: pa.Schema, other: pa.Schema) -> pa.Schema:
    if schema.equals(other):
        return schema
    types = dict(zip(other.names, other.types, strict=True))
    fields = [
        field.with_type(known_type(field.type, types[field.name])) if field.name in types else field
        for field in schema
    ]
    return pa.schema(fields, schema.metadata)


def _combined(first: pa.DataType, other: pa.DataType, combine: Combine) -> pa.DataType:
    if first.equals(other) or pa.types.is_null(plain_type(other)):
        return first
    if pa.types.is_null(plain_type(first)):
        return other
    if not pa.types.is_nested(first) or not pa.types.is_nested(other):
        return combine(first, other)
    own, others = _inner_fields(first), inner_types(other)
    if own.keys() != others.keys():
        return first
    fields = [f.with_type(_combined(f.type, others[name], combine)) for name, f in own.items()]
    same = all(one.type.equals(two.type) for one, two in zip(own.values(), fields, strict=True))
    return first if same else nested_like(first, fields)


def _inner_fields(data_type: pa.DataType) -> dict[str, pa.Field]:
    if pa.types.is_struct(data_type):
        return {field.name: field for field in data_type}
    if pa.types.is_map(data_type):
        return {"key": data_type.key_field, "value": data_type.item_field}
    return {"item": data_type.value_field}


def _wider(first: pa.DataType, other: pa.DataType) -> pa.DataType:
    if not comparable(first, other):
        return first
    try:
        common = common_type(first, other)
    except SchemaMismatchError:  # decimals of more digits than any type has
        return first
    return first if _holds(plain_type(first), common) else common


def _holds(data_type: pa.DataType, common: pa.DataType) -> bool:
    """Whether a type holds every value of the common type of its family."""
    if data_type.equals(common) or family(data_type) in ("string", "date"):
        return True
    if family(data_type) == "binary":
        return not pa.types.is_fixed_size_binary(data_type)
    return hasattr(data_type, "unit") and bool(data_type.unit == common.unit)
