"""Types that some of Arrow's kernels do not know, as types that they do, and back.

Strings of the view kind cannot be taken, nor extension types inside of other types. A view becomes
an ordinary string by a cast; an extension type is only another name for the memory it is stored in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from fsspeckit.errors import SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "array_as",
    "array_without_views",
    "check_storable",
    "copied",
    "numbered_columns",
    "storage_type",
    "take_rows",
    "without_extensions",
    "without_views",
]

_VIEWS = {"string_view": pa.string(), "binary_view": pa.binary()}


def take_rows(table: pa.Table, rows: pa.Array) -> pa.Table:
    """Rows by their numbers, of columns of any type."""
    named = table.schema
    stored = _table_as(table, _mapped_schema(named, _storage_of))
    plain = _cast_to(stored, _mapped_schema(stored.schema, _ordinary))
    return _table_as(_cast_to(plain.take(rows), stored.schema), named)


def numbered_columns(table: pa.Table) -> pa.Table:
    """The same columns under the names ``"0"``, ``"1"`` and so on.

    Sorting and grouping take names, and take a name that begins with a dot for the path to a field.
    """
    return table.rename_columns([str(number) for number in range(table.num_columns)])


def without_views(table: pa.Table) -> pa.Table:
    """The same rows, with strings and binaries of the view kind as ordinary ones."""
    return _cast_to(table, _mapped_schema(table.schema, _ordinary))


def copied(table: pa.Table) -> pa.Table:
    """The same rows in memory that nobody else has; of a slice only what it shows."""
    named = table.schema
    stored = _table_as(table, _mapped_schema(named, _storage_of))
    sink = pa.BufferOutputStream()
    # The stream format copies all of it, the values of dictionaries too; taking rows would not.
    with pa.ipc.new_stream(sink, stored.schema) as writer:
        writer.write_table(stored)
    return _table_as(pa.ipc.open_stream(sink.getvalue()).read_all(), named)


def without_extensions(values: pa.Array) -> pa.Array:
    """The same values, with extension types, inside too, as what they are stored as."""
    return array_as(values, _mapped(values.type, _storage_of))


def array_without_views(values: pa.Array) -> pa.Array:
    """The same values, with strings and binaries of the view kind as ordinary ones."""
    kind = _mapped(values.type, _ordinary)
    return values if values.type.equals(kind) else values.cast(kind)


def storage_type(data_type: pa.DataType) -> pa.DataType:
    """A type with its extension types, inside too, as what they are stored as."""
    return _mapped(data_type, _storage_of)


def check_storable(schema: pa.Schema) -> None:
    """Refuse columns that no Parquet file can hold.

    Raises:
        SchemaMismatchError: Naming the column.
    """
    for field in schema:
        if reason := _not_storable(field.type):
            raise SchemaMismatchError(
                f"column {field.name!r} of type {field.type} cannot be stored as Parquet: "
                f"{reason}.\nHint: drop the column, or convert it to a type that can be stored."
            )


def _not_storable(data_type: pa.DataType) -> str | None:
    """Why a type cannot be stored; None if it can."""
    data_type = _storage_of(data_type)
    if pa.types.is_dictionary(data_type):
        return _not_storable(data_type.value_type)
    for what, test in (
        ("an interval has no order and no length", pa.types.is_interval),
        ("unions are unknown there", pa.types.is_union),
        ("it is encoded by runs", pa.types.is_run_end_encoded),
    ):
        if test(data_type):
            return what
    if pa.types.is_struct(data_type) and not data_type.num_fields:
        return "a struct needs a field"
    inner = [data_type.field(n).type for n in range(data_type.num_fields)]
    return next(filter(None, map(_not_storable, inner)), None)


def _storage_of(data_type: pa.DataType) -> pa.DataType:
    while isinstance(data_type, pa.BaseExtensionType):
        data_type = data_type.storage_type
    return data_type


def _ordinary(data_type: pa.DataType) -> pa.DataType:
    return _VIEWS.get(str(data_type), data_type)


def _mapped_schema(schema: pa.Schema, change: Callable[[pa.DataType], pa.DataType]) -> pa.Schema:
    fields = [field.with_type(_mapped(field.type, change)) for field in schema]
    return pa.schema(fields, schema.metadata)


def _mapped(data_type: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A type with every type in it changed, from the outside in."""
    data_type = change(data_type)

    def inner(field: pa.Field) -> pa.Field:
        return field.with_type(_mapped(field.type, change))

    if pa.types.is_struct(data_type):
        return pa.struct([inner(field) for field in data_type])
    if pa.types.is_map(data_type):
        keys, items = inner(data_type.key_field), inner(data_type.item_field)
        return pa.map_(keys, items, keys_sorted=data_type.keys_sorted)
    if pa.types.is_fixed_size_list(data_type):
        return pa.list_(inner(data_type.value_field), data_type.list_size)
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        make = pa.list_ if pa.types.is_list(data_type) else pa.large_list
        return make(inner(data_type.value_field))
    if pa.types.is_dictionary(data_type):
        value = _mapped(data_type.value_type, change)
        same = value.equals(data_type.value_type)
        return data_type if same else pa.dictionary(pa.int32(), value, data_type.ordered)
    return data_type


def _cast_to(table: pa.Table, schema: pa.Schema) -> pa.Table:
    return table if schema.equals(table.schema) else table.cast(schema)


def _table_as(table: pa.Table, schema: pa.Schema) -> pa.Table:
    if schema.equals(table.schema):
        return table
    columns = [
        pa.chunked_array([array_as(chunk, field.type) for chunk in column.chunks], field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.table(columns, schema=schema)


def array_as(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """The same memory under a type of the same layout."""
    if values.type.equals(data_type):
        return values
    if isinstance(data_type, pa.ExtensionType) and values.type.equals(data_type.storage_type):
        return pa.ExtensionArray.from_storage(data_type, values)  # it may not be registered
    _, memory = values.__arrow_c_array__()
    return pa.Array._import_from_c_capsule(data_type.__arrow_c_schema__(), memory)
