"""Types that some of Arrow's kernels do not know, as types that they do, and back.

Strings of the view kind cannot be taken, nor extension types inside of other types. A view becomes
an ordinary string by a cast; an extension type is only another name for the memory it is stored in.
Lists of nothing but NULL, and dictionaries inside of other types, are cast level by level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.errors import SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = [
    "array_as",
    "array_without_views",
    "cast_array",
    "cast_table",
    "cast_values",
    "check_storable",
    "copied",
    "numbered_columns",
    "storage_type",
    "take_rows",
    "with_wide_codes",
    "without_extensions",
    "without_views",
]

Values = TypeVar("Values", pa.Array, pa.ChunkedArray)

_CODE_BITS = 32
_VIEWS = {"string_view": pa.string(), "binary_view": pa.binary()}


def take_rows(table: pa.Table, rows: pa.Array) -> pa.Table:
    """Rows by their numbers, of columns of any type."""
    named = table.schema
    stored = _table_as(table, _mapped_schema(named, _storage_of))
    plain = cast_table(stored, _mapped_schema(stored.schema, _ordinary))
    return _table_as(cast_table(plain.take(rows), stored.schema), named)


def numbered_columns(table: pa.Table) -> pa.Table:
    """The same columns under the names ``"0"``, ``"1"`` and so on.

    Sorting and grouping take names, and take a name that begins with a dot for the path to a field.
    """
    return table.rename_columns([str(number) for number in range(table.num_columns)])


def without_views(table: pa.Table) -> pa.Table:
    """The same rows, with strings and binaries of the view kind as ordinary ones."""
    return cast_table(table, _mapped_schema(table.schema, _ordinary))


def with_wide_codes(table: pa.Table) -> pa.Table:
    """The same rows, with codes of dictionaries that have room for those of other tables.

    Codes of 8 bits, as pandas has them, are enough for each of two tables but not for both. A
    Parquet file does not store their width.
    """
    return cast_table(table, _mapped_schema(table.schema, _wide_codes))


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
    return cast_array(values, kind)


def cast_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast the columns of a table, which are those of a schema in its order."""
    if schema.equals(table.schema):
        return table
    if not any(_needs_care(kind) for kind in table.schema.types):
        return table.cast(schema)
    columns = [
        cast_values(column, field.type) for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.table(columns, schema=schema)


def cast_values(values: Values, data_type: pa.DataType) -> Values:
    """Cast an array, or each chunk of a column."""
    if values.type.equals(data_type):
        return values
    if isinstance(values, pa.Array):
        return cast_array(values, data_type)
    return pa.chunked_array([cast_array(chunk, data_type) for chunk in values.chunks], data_type)


def cast_array(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Cast an array; unlike with pyarrow alone, NULL of no type may be inside of it.

    pyarrow 26 casts ``list<item: null>`` to a list with another name of its element as an array
    that is too short, and fails on codes of a dictionary that a NULL struct hides.

    Raises:
        pyarrow.ArrowException: As pyarrow's own cast.
    """
    if values.type.equals(data_type):
        return values
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), data_type)
    if not _needs_care(values.type):
        return values.cast(data_type)
    if pa.types.is_struct(values.type) and pa.types.is_struct(data_type):
        return _cast_struct(values, data_type)
    if pa.types.is_map(values.type) and pa.types.is_map(data_type):
        entries = cast_array(_as_entries(values), _entries_type(data_type))
        return array_as(entries, data_type)
    if _is_list(values.type) and _is_list(data_type):
        return _cast_list(values, data_type)
    return values.cast(data_type)


def _needs_care(data_type: pa.DataType) -> bool:
    """Whether a nested type has NULL of no type, or dictionaries, inside."""
    if not pa.types.is_nested(data_type):
        return False
    inner = [data_type.field(number).type for number in range(data_type.num_fields)]
    return any(
        pa.types.is_null(kind) or pa.types.is_dictionary(kind) or _needs_care(kind)
        for kind in inner
    )


def _is_list(data_type: pa.DataType) -> bool:
    tests = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(test(data_type) for test in tests)


def _cast_struct(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    children = dict(zip((field.name for field in values.type), values.flatten(), strict=True))
    if children.keys() != {field.name for field in data_type}:
        return values.cast(data_type)
    arrays = [cast_array(children[field.name], field.type) for field in data_type]
    return pa.StructArray.from_arrays(arrays, fields=list(data_type), mask=values.is_null())


def _cast_list(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Lists with their elements cast; what NULL lists hide is left out."""
    elements = cast_array(values.flatten(), data_type.value_type)
    lengths = np.asarray(pc.list_value_length(values).fill_null(0), np.int64)
    missing = values.is_null()
    if pa.types.is_fixed_size_list(data_type):
        return _fixed_size_list(elements, lengths, missing, data_type)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    is_large = pa.types.is_large_list(data_type)
    make, kind = (pa.LargeListArray, pa.int64()) if is_large else (pa.ListArray, pa.int32())
    return make.from_arrays(pa.array(offsets, kind), elements, type=data_type, mask=missing)


def _fixed_size_list(
    elements: pa.Array, lengths: NDArray[np.int64], missing: pa.Array, data_type: pa.DataType
) -> pa.Array:
    size, there = data_type.list_size, ~np.asarray(missing)
    if (lengths[there] != size).any():
        raise pa.ArrowInvalid(f"lists of other lengths than {size} cannot become {data_type}")
    places = np.full((len(lengths), size), -1)
    places[there] = np.arange(there.sum() * size).reshape(-1, size)
    flat = places.ravel()
    padded = elements.take(pa.array(flat, mask=flat < 0))
    return pa.FixedSizeListArray.from_arrays(padded, type=data_type, mask=missing)


def _as_entries(values: pa.Array) -> pa.Array:
    """A map as the list of its keys and values that it is in memory."""
    return array_as(values, _entries_type(values.type))


def _entries_type(data_type: pa.DataType) -> pa.DataType:
    key, item = data_type.key_field.with_name("key"), data_type.item_field.with_name("value")
    return pa.list_(pa.field("entries", pa.struct([key, item]), nullable=False))


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
        value = _storage_of(data_type.value_type)
        if pa.types.is_nested(value):
            return f"the values of its dictionary are {value}"
        return _not_storable(value)
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


def _wide_codes(data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(data_type) and data_type.index_type.bit_width < _CODE_BITS:
        return pa.dictionary(pa.int32(), data_type.value_type, data_type.ordered)
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
