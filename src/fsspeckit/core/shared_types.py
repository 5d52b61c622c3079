"""Types of one column that differ from file to file.

pandas and Polars give a column of nothing but NULL, and what is inside of empty lists, the type of
NULL. Such a type says nothing: whatever another file or the source knows takes its place.
"""

from __future__ import annotations

from functools import reduce

import pyarrow as pa

from fsspeckit.core.instants import nested_like
from fsspeckit.core.keys.casts import common_type, plain_type

__all__ = ["inner_types", "known_schema", "known_type", "shared_type"]


def known_type(found: pa.DataType, known: pa.DataType) -> pa.DataType:
    """A type with what another one knows in the place of types of NULL, inside too.

    Examples:
        >>> known_type(pa.list_(pa.null()), pa.list_(pa.int64()))
        ListType(list<item: int64>)
    """
    if found.equals(known) or pa.types.is_null(plain_type(known)):
        return found
    if pa.types.is_null(plain_type(found)):
        return known
    if not _are_of_one_shape(found, known):
        return found
    own, others = _inner_fields(found), inner_types(known)
    fields = [f.with_type(known_type(f.type, others[name])) for name, f in own.items()]
    same = all(one.type.equals(two.type) for one, two in zip(own.values(), fields, strict=True))
    return found if same else nested_like(found, fields)


def shared_type(first: pa.DataType, other: pa.DataType) -> pa.DataType:
    """A type that holds the values of both, to read them together.

    Nested types may differ in the kind of their lists, in the order of their fields and inside.

    Raises:
        SchemaMismatchError: If there is none.

    Examples:
        >>> shared_type(pa.list_(pa.int8()), pa.large_list(pa.int64()))
        ListType(list<item: int64>)
    """
    if first.equals(other) or pa.types.is_null(plain_type(other)):
        return first
    if pa.types.is_null(plain_type(first)):
        return other
    if not _are_of_one_shape(first, other):
        return _common(first, other)
    others = _inner_fields(other)
    fields = [
        field.with_type(shared_type(field.type, others[name].type)).with_nullable(
            field.nullable or others[name].nullable
        )
        for name, field in _inner_fields(first).items()
    ]
    return nested_like(_with_free_lengths(first, other), fields)


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


def _are_of_one_shape(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether both are structs of the same fields, in any order, or maps, or lists."""
    if not pa.types.is_nested(one) or not pa.types.is_nested(other):
        return False
    if any(test(one) != test(other) for test in (pa.types.is_struct, pa.types.is_map)):
        return False
    return _inner_fields(one).keys() == _inner_fields(other).keys()


def _inner_fields(data_type: pa.DataType) -> dict[str, pa.Field]:
    if pa.types.is_struct(data_type):
        return {field.name: field for field in data_type}
    if pa.types.is_map(data_type):
        return {"key": data_type.key_field, "value": data_type.item_field}
    return {"item": data_type.value_field}


def _with_free_lengths(first: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The first type; a list of any length where only one of them has a fixed size."""
    is_fixed = pa.types.is_fixed_size_list
    if is_fixed(first) and not (is_fixed(other) and first.list_size == other.list_size):
        return pa.list_(first.value_field)
    return first


def _common(first: pa.DataType, other: pa.DataType) -> pa.DataType:
    common = common_type(first, other)
    if pa.types.is_timestamp(common):
        zones = {plain_type(kind).tz for kind in (first, other)}
        return pa.timestamp(common.unit, zones.pop()) if len(zones) == 1 else common
    return common
