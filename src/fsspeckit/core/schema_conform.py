"""Conforming rows to a schema without loss, and types that differ from file to file.

pandas and Polars give a column of nothing but NULL, and the elements of empty lists, the NULL type.
Such a type says nothing, so the type that another file or the source has replaces it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.arrow_compat import (
    array_without_views,
    cast_array,
    inner_fields,
    nested_like,
    reinterpret_array,
    storage_type,
    without_extensions,
)
from fsspeckit.core.keys import (
    are_comparable,
    cast_exactly,
    common_type,
    family,
    plain_type,
    plain_values,
)
from fsspeckit.errors import SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray


def resolve_null_type(found: pa.DataType, known: pa.DataType) -> pa.DataType:
    """Replace NULL types, also nested ones, by those that another type has there.

    Examples:
        >>> resolve_null_type(pa.list_(pa.null()), pa.list_(pa.int64()))
        ListType(list<item: int64>)
    """
    if found.equals(known) or pa.types.is_null(plain_type(known)):
        return found
    if pa.types.is_null(plain_type(found)):
        return known
    if not _are_of_one_shape(found, known):
        return found
    own, others = _inner_fields(found), _inner_fields(known)
    fields = [f.with_type(resolve_null_type(f.type, others[name].type)) for name, f in own.items()]
    same = all(one.type.equals(two.type) for one, two in zip(own.values(), fields, strict=True))
    return found if same else nested_like(found, fields)


def unify_types(first: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return a type for the values of both, to read them together.

    Nested types may differ in the kind of their lists, in the order of their fields and inside.

    Raises:
        SchemaMismatchError: If there is no such type.

    Examples:
        >>> unify_types(pa.list_(pa.int8()), pa.large_list(pa.int64()))
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
        field.with_type(unify_types(field.type, others[name].type)).with_nullable(
            field.nullable or others[name].nullable
        )
        for name, field in _inner_fields(first).items()
    ]
    return nested_like(_with_free_lengths(first, other), fields)


def resolve_null_types(schema: pa.Schema, *known: pa.Schema) -> pa.Schema:
    """Replace the NULL types of a schema by the types that other schemas have."""
    for other in known:
        if not schema.equals(other):
            types = dict(zip(other.names, other.types, strict=True))
            fields = [
                field.with_type(resolve_null_type(field.type, types.get(field.name, field.type)))
                for field in schema
            ]
            schema = pa.schema(fields, schema.metadata)
    return schema


def _are_of_one_shape(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether both are structs of the same fields, in any order, or maps, or lists."""
    if not pa.types.is_nested(one) or not pa.types.is_nested(other):
        return False
    if any(test(one) != test(other) for test in (pa.types.is_struct, pa.types.is_map)):
        return False
    return _inner_fields(one).keys() == _inner_fields(other).keys()


def _inner_fields(data_type: pa.DataType) -> dict[str, pa.Field]:
    """Return the fields inside a nested type: of a struct by name, of others by number."""
    by_name = pa.types.is_struct(data_type)
    fields = inner_fields(data_type)
    return {field.name if by_name else str(n): field for n, field in enumerate(fields)}


def _with_free_lengths(first: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the first type; a list of any length unless both have the same fixed size."""
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


def check_same_columns(source: Sequence[str], target: Sequence[str], what: str = "target") -> None:
    """Check that source and target have the same columns, in any order.

    Raises:
        SchemaMismatchError: Naming the columns that are missing or too many.
    """
    given, wanted = set(source), set(target)
    missing = [name for name in target if name not in given]
    extra = [name for name in source if name not in wanted]
    if not missing and not extra:
        return
    parts = [f"the source lacks the columns {missing!r}"] if missing else []
    parts += [f"the source has columns {extra!r} that the {what} does not have"] if extra else []
    hints = ["add the missing columns, with NULL where there is no value"] if missing else []
    hints += ["drop the others from the source"] if extra else []
    add = '; or pass schema_changes="add" for new columns' if extra and not missing else ""
    raise SchemaMismatchError(
        f"{' and '.join(parts)}; the {what} has {list(target)!r}.\nHint: "
        f"rows are written whole, so {' and '.join(hints)}{add}."
    )


def conform_table(source: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the columns of a schema, in its order and types, from a table that has them.

    Raises:
        SchemaMismatchError: If a value would change, or is NULL where the schema forbids it.
    """
    columns = [_conform(source.column(field.name), field) for field in schema]
    return pa.table(columns, schema=schema)


def conforming_schema(
    source: pa.Table, schema: pa.Schema, others: Mapping[str, Sequence[pa.DataType]]
) -> pa.Schema:
    """Return a schema with other types for columns whose values do not conform to its own.

    ``others`` has the types to try, by column; a column that conforms to none keeps its own.
    """

    def conforms(field: pa.Field) -> bool:
        try:
            _conform(source.column(field.name), field)
        except SchemaMismatchError:
            return False
        return True

    def choose(field: pa.Field) -> pa.Field:
        tried = [field, *(field.with_type(kind) for kind in others.get(field.name, ()))]
        return next(filter(conforms, tried), field)

    return pa.schema([choose(field) for field in schema], schema.metadata)


def _conform(values: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if not field.nullable and values.null_count:
        raise SchemaMismatchError(
            f"column {field.name!r} holds {values.null_count:,} NULL values in the source, but the "
            "target does not allow NULL there."
        )
    if values.type.equals(field.type):
        return values
    chunks = [_conform_chunk(chunk, field) for chunk in values.chunks]
    return pa.chunked_array(chunks, type=field.type)


def _conform_chunk(values: pa.Array, field: pa.Field) -> pa.Array:
    plain_target = plain_type(storage_type(field.type))
    values = without_extensions(values)
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), field.type)
    if are_comparable(values.type, plain_target):
        exact = cast_exactly(values, plain_target, field.name)
    elif _is_convertible(values.type, plain_target):
        exact = _round_trip(plain_values(values), plain_target, field)
    else:
        raise _mismatch(values.type, field)
    return _wrapped(exact, field.type)


def _is_convertible(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a type may become another one, by the same rules at every level."""
    found, wanted = plain_type(found), plain_type(wanted)
    if pa.types.is_nested(found) and pa.types.is_nested(wanted):
        inner, outer = _inner_fields(found), _inner_fields(wanted)
        return inner.keys() == outer.keys() and all(
            _is_convertible(field.type, outer[name].type) for name, field in inner.items()
        )
    if family(found) == "integer" and family(wanted) == "float":
        return True
    return pa.types.is_null(found) or are_comparable(found, wanted)


def _round_trip(values: pa.Array, data_type: pa.DataType, field: pa.Field) -> pa.Array:
    try:
        # First without NULL types, because there is no cast back to them.
        values = cast_array(values, resolve_null_type(values.type, data_type))
        out = cast_array(values, data_type)
        same = same_values(cast_array(out, values.type), values)
    except pa.ArrowException as error:
        raise _mismatch(values.type, field) from error
    if not same:
        raise _mismatch(values.type, field)
    return out


def _wrapped(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return plain values as the dictionary or extension type of the target, inside too."""
    stored = storage_type(data_type)
    if pa.types.is_dictionary(stored) and not pa.types.is_dictionary(values.type):
        values = values.dictionary_encode()  # only strings have a cast
    return reinterpret_array(cast_array(values, stored), data_type)


def _mismatch(found: pa.DataType, field: pa.Field) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"column {field.name!r} is {found} in the source and {field.type} in the target, and its "
        "values cannot be converted without loss.\n"
        f"Hint: convert the source column to {field.type} yourself, so that it is clear how."
    )


def same_values(left: pa.Array, right: pa.Array) -> bool:
    """Return whether two arrays of one type have the same values, bit by bit; NaN is NaN."""
    return len(left) == len(right) and not different_values(left, right).any()


def different_values(left: pa.Array, right: pa.Array) -> NDArray[np.bool_]:
    """Return where two arrays of one type and length differ, bit by bit; NaN is NaN."""
    left, right = _simple(left), _simple(right)
    if pa.types.is_null(left.type):  # an empty one counts no NULL
        return np.zeros(len(left), bool)
    if not left.null_count and not right.null_count:
        return _different_valid_values(left, right)
    valid = np.asarray(left.is_valid())
    differs: NDArray[np.bool_] = valid != np.asarray(right.is_valid())
    both = np.flatnonzero(valid & ~differs)
    if not len(both):
        return differs
    if len(both) < len(left):
        left, right = left.take(pa.array(both)), right.take(pa.array(both))
    differs[both] = _different_valid_values(left, right)
    return differs


def _simple(values: pa.Array) -> pa.Array:
    """Return values of types that Arrow's kernels support."""
    if pa.types.is_primitive(values.type) or pa.types.is_string(values.type):
        return values  # the usual case, and this runs for each column of each row group
    return array_without_views(plain_values(without_extensions(values)))


def _different_valid_values(left: pa.Array, right: pa.Array) -> NDArray[np.bool_]:
    if pa.types.is_floating(left.type):
        return _different_floats(left, right)
    if pa.types.is_struct(left.type):
        children = zip(left.flatten(), right.flatten(), strict=True)
        found = [different_values(one, other) for one, other in children]
        differs: NDArray[np.bool_] = np.any([np.zeros(len(left), bool), *found], axis=0)
        return differs
    if pa.types.is_nested(left.type):
        return _different_lists(_as_lists(left), _as_lists(right))
    return np.asarray(pc.not_equal(left, right), bool)


def _different_floats(left: pa.Array, right: pa.Array) -> NDArray[np.bool_]:
    one, other = left.to_numpy(zero_copy_only=False), right.to_numpy(zero_copy_only=False)
    bits = f"i{one.dtype.itemsize}"
    same = (one.view(bits) == other.view(bits)) | (np.isnan(one) & np.isnan(other))
    return np.asarray(~same, bool)


def _different_lists(left: pa.Array, right: pa.Array) -> NDArray[np.bool_]:
    """Compare lists: they differ if their lengths do, or elements at the same index."""
    lengths = np.asarray(pc.list_value_length(left))
    differs = np.asarray(lengths != np.asarray(pc.list_value_length(right)))
    alike = pa.array(np.flatnonzero(~differs))
    one, other = left.take(alike).flatten(), right.take(alike).flatten()
    parents = np.repeat(np.flatnonzero(~differs), lengths[~differs])
    differs[parents[different_values(one, other)]] = True
    return differs


def _as_lists(values: pa.Array) -> pa.Array:
    """Return maps, none of them NULL, as lists of their entries; lists as they are."""
    if not pa.types.is_map(values.type):
        return values
    entries = pa.StructArray.from_arrays([values.keys, values.items], ["key", "value"])
    return pa.ListArray.from_arrays(values.offsets, entries)
