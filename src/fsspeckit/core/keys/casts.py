"""Which types compare with which, and casts that lose nothing.

pyarrow's safe cast is not enough to compare keys: it lets ``0.1`` become a float32 and ``'007'``
become ``7``. Two types are comparable only if they belong to the same family, and a cast counts
only if casting back gives the same values.
"""

from __future__ import annotations

from decimal import Context
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.errors import SchemaMismatchError

__all__ = [
    "cast_exactly",
    "common_type",
    "comparable",
    "family",
    "plain",
    "plain_type",
    "python_value",
]

Family = Literal[
    "bool",
    "integer",
    "decimal",
    "float",
    "string",
    "binary",
    "date",
    "time",
    "timestamp without zone",
    "timestamp with zone",
    "duration",
    "null",
]

_UNITS = ("s", "ms", "us", "ns")
_MAX_DECIMAL128 = 38
_MAX_DECIMAL256 = 76
_EXACT = Context(prec=_MAX_DECIMAL256)


def plain_type(data_type: pa.DataType) -> pa.DataType:
    """The type behind dictionaries and extension types."""
    while True:
        if isinstance(data_type, pa.BaseExtensionType):
            data_type = data_type.storage_type
        elif pa.types.is_dictionary(data_type):
            data_type = data_type.value_type
        else:
            return data_type


def plain(values: pa.Array) -> pa.Array:
    """The values behind dictionaries and extension types."""
    if isinstance(values, pa.ExtensionArray):
        return plain(values.storage)
    if pa.types.is_dictionary(values.type):
        return plain(values.dictionary_decode())
    return values


def python_value(value: pa.Scalar) -> Any:
    """A value for a person to read, also where Python has none: a year 10000, nanoseconds."""
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        return value.cast(pa.string()).as_py()


def family(data_type: pa.DataType) -> Family | None:
    """The family a type belongs to; None for types that are never keys (nested, interval)."""
    data_type = plain_type(data_type)
    if pa.types.is_timestamp(data_type):
        return "timestamp without zone" if data_type.tz is None else "timestamp with zone"
    for name, test in _FAMILY_TESTS:
        if any(check(data_type) for check in test):
            return name
    return None


_FAMILY_TESTS: tuple[tuple[Family, tuple[Any, ...]], ...] = (
    ("bool", (pa.types.is_boolean,)),
    ("integer", (pa.types.is_integer,)),
    ("decimal", (pa.types.is_decimal,)),
    ("float", (pa.types.is_floating,)),
    ("string", (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)),
    (
        "binary",
        (
            pa.types.is_binary,
            pa.types.is_large_binary,
            pa.types.is_binary_view,
            pa.types.is_fixed_size_binary,
        ),
    ),
    ("date", (pa.types.is_date,)),
    ("time", (pa.types.is_time,)),
    ("duration", (pa.types.is_duration,)),
    ("null", (pa.types.is_null,)),
)


def comparable(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether values of the two types can ever be equal."""
    kinds = {family(left), family(right)}
    if None in kinds:
        return False
    return len(kinds) == 1 or "null" in kinds or kinds == {"integer", "decimal"}


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """The narrowest type that holds every value of two comparable types.

    Raises:
        SchemaMismatchError: If the types are not comparable.
    """
    left, right = plain_type(left), plain_type(right)
    if left.equals(right):
        return left
    if not comparable(left, right):
        raise SchemaMismatchError(f"values of types {left} and {right} are never equal.")
    if pa.types.is_null(left) or pa.types.is_null(right):
        return right if pa.types.is_null(left) else left
    kinds = {family(left), family(right)}
    if "decimal" in kinds:
        return _common_decimal(_as_decimal_type(left), _as_decimal_type(right))
    return _COMMON[kinds.pop()](left, right)  # type: ignore[index]


def _common_integer(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    signed = [pa.types.is_signed_integer(kind) for kind in (left, right)]
    if signed[0] == signed[1]:
        return max(left, right, key=lambda kind: kind.bit_width)
    if pa.uint64() in (left, right):
        return pa.decimal128(20, 0)
    return pa.int64()


def _as_decimal_type(data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_integer(data_type):
        return pa.decimal128(20, 0)
    return data_type


def _common_decimal(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    scale = max(left.scale, right.scale)
    precision = max(left.precision - left.scale, right.precision - right.scale) + scale
    if precision > _MAX_DECIMAL256:
        raise SchemaMismatchError(f"no decimal type holds every value of both {left} and {right}.")
    make = pa.decimal128 if precision <= _MAX_DECIMAL128 else pa.decimal256
    return make(precision, scale)


def _finest(left: pa.DataType, right: pa.DataType) -> str:
    return _UNITS[max(_UNITS.index(left.unit), _UNITS.index(right.unit))]


_COMMON: dict[Family, Any] = {
    "integer": _common_integer,
    "float": lambda left, right: pa.float64(),
    "string": lambda left, right: pa.string(),
    "binary": lambda left, right: pa.binary(),
    "date": lambda left, right: pa.date32(),
    "time": lambda left, right: (
        pa.time32(_finest(left, right))
        if _finest(left, right) in ("s", "ms")
        else pa.time64(_finest(left, right))
    ),
    "timestamp without zone": lambda left, right: pa.timestamp(_finest(left, right)),
    "timestamp with zone": lambda left, right: pa.timestamp(_finest(left, right), "UTC"),
    "duration": lambda left, right: pa.duration(_finest(left, right)),
}


def cast_exactly(values: pa.Array, data_type: pa.DataType, column: str) -> pa.Array:
    """Cast values to a comparable type, refusing any value that would change.

    Raises:
        SchemaMismatchError: Naming the column, the types and, where there is one, a value.
    """
    values, data_type = plain(values), plain_type(data_type)
    if values.type.equals(data_type):
        return values
    if not comparable(values.type, data_type):
        raise SchemaMismatchError(
            f"column {column!r} is {values.type} in the source and {data_type} in the target; "
            "their values are never equal.\n"
            f"Hint: convert the source column to {data_type} yourself, so that it is clear how."
        )
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), data_type)
    try:
        out = _cast(values, data_type)
        back = _cast(out, values.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _does_not_fit(column, values, data_type, _first_misfit(values, data_type)) from error
    changed = _changed(values, back)
    if changed is not None:
        raise _does_not_fit(column, values, data_type, values[changed])
    return out


def _cast(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    if pa.types.is_integer(values.type) and pa.types.is_decimal(data_type):
        # The direct cast wants room for every integer of the type, not for the values at hand.
        wide = values.cast(pa.decimal128(20, 0)).cast(
            pa.decimal256(_MAX_DECIMAL256, data_type.scale)
        )
        return wide.cast(data_type)
    if pa.types.is_decimal(values.type):
        return _cast_decimal(values, data_type)
    return values.cast(data_type)


def _cast_decimal(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    is_integer = pa.types.is_integer(data_type)
    try:
        wide = values.cast(pa.decimal256(_MAX_DECIMAL256, 0)) if is_integer else values
        return wide.cast(data_type)
    except pa.ArrowInvalid:
        # Either a value does not fit, or it is one of the few that pyarrow 26 divides wrongly
        # (18446744073709551615 by 10**18): Python's arithmetic tells.
        numbers = [None if n is None else _EXACT.normalize(n) for n in values.to_pylist()]
        if is_integer:
            return pa.array(numbers, pa.decimal256(_MAX_DECIMAL256, 0)).cast(data_type)
        return pa.array(numbers, data_type)


def _changed(values: pa.Array, back: pa.Array) -> int | None:
    """The index of the first value that did not survive the round trip."""
    if pa.types.is_float16(values.type):  # has no comparison of its own
        values, back = values.cast(pa.float32()), back.cast(pa.float32())
    differs = pc.not_equal(values, back)
    if pa.types.is_floating(values.type):
        both_nan = pc.and_(pc.is_nan(values), pc.is_nan(back))
        differs = pc.and_(differs, pc.invert(both_nan))
    index = pc.index(differs.fill_null(False), True).as_py()
    return None if index < 0 else int(index)


def _first_misfit(values: pa.Array, data_type: pa.DataType) -> pa.Scalar | None:
    """A value that cannot be cast, found by halving."""
    while len(values) > 1:
        half = values[: len(values) // 2]
        values = values[len(values) // 2 :] if _casts(half, data_type) else half
    return values[0] if len(values) else None


def _casts(values: pa.Array, data_type: pa.DataType) -> bool:
    try:
        _cast(values, data_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


def _does_not_fit(
    column: str, values: pa.Array, data_type: pa.DataType, value: pa.Scalar | None
) -> SchemaMismatchError:
    what = f"values of type {values.type}"
    if value is not None:
        what = f"the value {python_value(value)} of type {values.type}"
    return SchemaMismatchError(
        f"column {column!r}: {what} in the source does not fit "
        f"the target's type {data_type} without loss.\n"
        f"Hint: convert the source column to {data_type} yourself, so that it is clear how."
    )
