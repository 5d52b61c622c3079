"""Canonical keys: map key values to int64 or binary, so that every engine compares them alike.

The joins of three engines disagree about NaN, -0.0, time zones, units and decimals. Arrow maps keys
to two types on which they agree. The mapping keeps equality and order, so statistics bounds mapped
the same way can be compared with keys. Engines join canonical columns only.

pyarrow's safe cast is not enough to compare keys: it lets ``0.1`` become a float32 and ``'007'``
become ``7``. Two types are comparable only if they belong to the same family, and a cast counts
only if casting back gives the same values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Context
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.errors import InvalidArgumentError, SchemaMismatchError

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
_TIMES = {u: pa.time32(u) if u in ("s", "ms") else pa.time64(u) for u in _UNITS}
_MAX_DECIMAL128 = 38
_MAX_DECIMAL256 = 76
_EXACT = Context(prec=_MAX_DECIMAL256)
_INTEGERS = pa.decimal128(20, 0)
"""The decimal type of every signed and unsigned integer."""


def plain_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type behind dictionaries and extension types."""
    while True:
        if isinstance(data_type, pa.BaseExtensionType):
            data_type = data_type.storage_type
        elif pa.types.is_dictionary(data_type):
            data_type = data_type.value_type
        else:
            return data_type


def plain_values(values: pa.Array) -> pa.Array:
    """Return the values behind dictionaries and extension types."""
    if isinstance(values, pa.ExtensionArray):
        return plain_values(values.storage)
    if pa.types.is_dictionary(values.type):
        return plain_values(values.dictionary_decode())
    return values


def python_value(value: pa.Scalar) -> Any:
    """Return a value to print; a string where Python has no such value, as for the year 10000."""
    try:
        return value.as_py()
    except (ValueError, OverflowError, KeyError):
        return as_text(value).as_py()


def as_text(values: Any) -> Any:
    """Cast a scalar or an array to strings; instants of a zone that is not known here are in UTC.

    Zones are in the time zone database of the machine, which may be older than the file.
    """
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        if not pa.types.is_timestamp(values.type):
            raise
        return values.cast(pa.timestamp(values.type.unit, "UTC")).cast(pa.string())


def family(data_type: pa.DataType) -> Family | None:
    """Return the family of a type; None for types that are never keys (nested, interval)."""
    data_type = plain_type(data_type)
    if pa.types.is_timestamp(data_type):
        return "timestamp without zone" if data_type.tz is None else "timestamp with zone"
    matching = (name for name, tests in _FAMILY_TESTS if any(test(data_type) for test in tests))
    return next(matching, None)


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


def are_comparable(left: pa.DataType, right: pa.DataType) -> bool:
    """Return whether values of the two types can ever be equal."""
    kinds = {family(left), family(right)}
    if None in kinds:
        return False
    return len(kinds) == 1 or "null" in kinds or kinds == {"integer", "decimal"}


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Return the narrowest type for the values of two comparable types.

    Raises:
        SchemaMismatchError: If the types are not comparable.
    """
    left, right = plain_type(left), plain_type(right)
    if left.equals(right):
        return left
    if not are_comparable(left, right):
        raise SchemaMismatchError(f"values of types {left} and {right} are never equal.")
    if pa.types.is_null(left) or pa.types.is_null(right):
        return right if pa.types.is_null(left) else left
    kinds = {family(left), family(right)}
    if "decimal" in kinds:
        return _common_decimal(left, right)
    return _COMMON[kinds.pop()](left, right)  # type: ignore[index]


def _common_integer(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    signed = [pa.types.is_signed_integer(kind) for kind in (left, right)]
    if signed[0] == signed[1]:
        return max(left, right, key=lambda kind: kind.bit_width)
    return _INTEGERS if pa.uint64() in (left, right) else pa.int64()


def _common_decimal(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    left, right = (_INTEGERS if pa.types.is_integer(kind) else kind for kind in (left, right))
    scale = max(left.scale, right.scale)
    precision = max(left.precision - left.scale, right.precision - right.scale) + scale
    if precision > _MAX_DECIMAL256:
        raise SchemaMismatchError(f"no decimal type can store the values of {left} and {right}.")
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
    "time": lambda left, right: _TIMES[_finest(left, right)],
    "timestamp without zone": lambda left, right: pa.timestamp(_finest(left, right)),
    "timestamp with zone": lambda left, right: pa.timestamp(_finest(left, right), "UTC"),
    "duration": lambda left, right: pa.duration(_finest(left, right)),
}


def cast_exactly(values: pa.Array, data_type: pa.DataType, column: str) -> pa.Array:
    """Cast values to a comparable type, refusing any value that would change.

    Raises:
        SchemaMismatchError: Naming the column, the types and, where there is one, a value.
    """
    values, data_type = plain_values(values), plain_type(data_type)
    if values.type.equals(data_type):
        return values
    if not are_comparable(values.type, data_type):
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
        found = _first_uncastable(values, data_type)
        raise _does_not_fit(column, values, data_type, found) from error
    changed = _changed(values, back)
    if changed is not None:
        raise _does_not_fit(column, values, data_type, values[changed])
    return out


def _cast(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    if pa.types.is_integer(values.type) and pa.types.is_decimal(data_type):
        # The direct cast wants room for every integer of the type, not for the values at hand.
        wide = pa.decimal256(_MAX_DECIMAL256, data_type.scale)
        return values.cast(_INTEGERS).cast(wide).cast(data_type)
    if pa.types.is_decimal(values.type):
        return _cast_decimal(values, data_type)
    return values.cast(data_type)


def _cast_decimal(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    is_integer = pa.types.is_integer(data_type)
    try:
        wide = values.cast(pa.decimal256(_MAX_DECIMAL256, 0)) if is_integer else values
        return wide.cast(data_type)
    except pa.ArrowInvalid:
        # Either a value does not fit, or pyarrow 26 divides it wrongly (18446744073709551615 by
        # 10**18): Python's arithmetic decides.
        numbers = [None if n is None else _EXACT.normalize(n) for n in values.to_pylist()]
        if is_integer:
            return pa.array(numbers, pa.decimal256(_MAX_DECIMAL256, 0)).cast(data_type)
        return pa.array(numbers, data_type)


def _changed(values: pa.Array, back: pa.Array) -> int | None:
    """Return the index of the first value that the round trip has changed."""
    if pa.types.is_float16(values.type):  # has no comparison of its own
        values, back = values.cast(pa.float32()), back.cast(pa.float32())
    differs = pc.not_equal(values, back)
    if pa.types.is_floating(values.type):
        both_nan = pc.and_(pc.is_nan(values), pc.is_nan(back))
        differs = pc.and_(differs, pc.invert(both_nan))
    index = pc.index(differs.fill_null(False), True).as_py()
    return None if index < 0 else int(index)


def _first_uncastable(values: pa.Array, data_type: pa.DataType) -> pa.Scalar | None:
    """Return a value that cannot be cast, found by bisection."""
    while len(values) > 1:
        half = values[: len(values) // 2]
        try:
            _cast(half, data_type)
            values = values[len(half) :]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            values = half
    return values[0] if len(values) else None


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


_SIGN = np.int64(-(2**63))
_BELOW_SIGN = np.int64(2**63 - 1)
_INT64_DIGITS = 18

NAN_CODE = int(np.array([np.nan]).view(np.int64)[0])
"""The canonical value of every NaN; above that of infinity."""


@dataclass(frozen=True)
class KeyColumn:
    """How the values of one column are compared."""

    name: str
    type: pa.DataType
    """The type that can store every value of the target's files."""

    @property
    def canonical_type(self) -> pa.DataType:
        """Either ``int64`` or ``binary``."""
        kind = family(self.type)
        is_wide = kind == "decimal" and self.type.precision > _INT64_DIGITS
        return pa.binary() if is_wide or kind in ("string", "binary") else pa.int64()

    @property
    def is_float(self) -> bool:
        """Whether NaN is among the possible values."""
        return family(self.type) == "float"

    def canonical(self, values: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
        """Map values to their canonical form, NULL to NULL.

        Raises:
            SchemaMismatchError: If a value is of another family or does not fit the type.
        """
        chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
        encoded = [self._encode(cast_exactly(chunk, self.type, self.name)) for chunk in chunks]
        return pa.chunked_array(encoded, type=self.canonical_type)

    def original(self, canonical: pa.Array) -> pa.Array:
        """Map canonical values back to values of the column's type.

        Raises:
            pyarrow.ArrowInvalid: If a value was not made by :meth:`canonical`, for example a
                bound cut in the middle of a character.
        """
        kind = family(self.type)
        if kind in ("string", "binary"):
            return canonical.cast(self.type)
        if kind == "decimal":
            return _decode_decimal(canonical, self.type)
        if kind == "float":
            bits = _to_numpy(canonical)
            floats = np.where(bits < 0, bits ^ _BELOW_SIGN, bits).view(np.float64)
            return _with_nulls(pa.array(floats), canonical).cast(self.type, safe=False)
        if pa.types.is_uint64(self.type):
            return _with_nulls(pa.array((_to_numpy(canonical) ^ _SIGN).view(np.uint64)), canonical)
        if pa.types.is_boolean(self.type) or pa.types.is_integer(self.type):
            return canonical.cast(self.type)
        width = pa.int32() if self.type.bit_width == 32 else pa.int64()
        return canonical.cast(width).view(self.type)

    def _encode(self, values: pa.Array) -> pa.Array:
        kind = family(self.type)
        if kind in ("string", "binary"):
            return values.cast(pa.binary())
        if kind == "float":
            return _from_numpy(_ordered_bits(_to_numpy(values.cast(pa.float64()))), values)
        if kind == "decimal":
            return _encode_decimal(values, self.canonical_type)
        if pa.types.is_uint64(self.type):
            return _from_numpy(_to_numpy(values).view(np.int64) ^ _SIGN, values)
        return _encode_number(values)


def key_column(name: str, data_type: pa.DataType) -> KeyColumn:
    """Describe a key column.

    Raises:
        SchemaMismatchError: If values of the type cannot be keys.
    """
    data_type = plain_type(data_type)
    if family(data_type) is None:
        raise SchemaMismatchError(
            f"column {name!r} of type {data_type} cannot be a key.\n"
            "Hint: keys are numbers, strings, binaries, booleans, dates, times or timestamps."
        )
    if pa.types.is_null(data_type):
        data_type = pa.int64()  # no file has a value, so any type will do
    if pa.types.is_date(data_type):
        data_type = pa.date32()
    return KeyColumn(name, data_type)


def canonical_keys(table: pa.Table, columns: Sequence[KeyColumn]) -> pa.Table:
    """Return the canonical key columns of a table, under their own names."""
    return pa.table(
        [column.canonical(table.column(column.name)) for column in columns],
        names=[column.name for column in columns],
    )


def as_names(names: Any) -> Any:
    """Return column names as a tuple; :func:`check_names` refuses what this cannot convert."""
    if isinstance(names, str):
        return (names,)
    return tuple(names) if isinstance(names, Iterable) and not isinstance(names, bytes) else names


def check_names(what: str, names: Sequence[Any]) -> None:
    """Check that columns are named, once each.

    Raises:
        InvalidArgumentError: Saying what is wrong.
    """
    if isinstance(names, (str, bytes)):
        raise InvalidArgumentError(
            f"{what} must be a sequence of column names, got the string {names!r}.\n"
            f"Hint: pass [{names!r}].",
            argument=what,
        )
    given: Any = names
    if not given or not isinstance(given, Sequence):
        raise InvalidArgumentError(
            f"{what} must name at least one column, got {names!r}.", argument=what
        )
    if strange := [name for name in names if not isinstance(name, str)]:
        raise InvalidArgumentError(f"{what} must be strings, got {strange[0]!r}.", argument=what)
    if len(set(names)) < len(names):
        raise InvalidArgumentError(
            f"{what} must name each column once, got {list(names)!r}.", argument=what
        )


def check_columns(what: str, names: Sequence[str], available: Sequence[str]) -> None:
    """Check that columns are named, once each, and exist.

    Raises:
        InvalidArgumentError: Saying which one is wrong.
    """
    check_names(what, names)
    known = set(available)
    if missing := [name for name in names if name not in known]:
        raise InvalidArgumentError.missing_columns(what, missing, available)
    without_case: dict[str, list[str]] = {}
    for name in available:
        without_case.setdefault(name.lower(), []).append(name)
    for name in names:
        alike = without_case[name.lower()]
        if len(alike) > 1:
            raise InvalidArgumentError(
                f"{what} {name!r} is ambiguous among the columns {alike!r}; readers that ignore "
                "case cannot tell them apart.\nHint: rename or drop all but one of them.",
                argument=what,
            )


def _encode_number(values: pa.Array) -> pa.Array:
    """Encode booleans, integers, dates and times as int64."""
    if pa.types.is_boolean(values.type):
        return values.cast(pa.int8()).cast(pa.int64())
    if pa.types.is_integer(values.type):
        return values.cast(pa.int64())
    return values.view(pa.int32() if values.type.bit_width == 32 else pa.int64()).cast(pa.int64())


def _encode_decimal(values: pa.Array, canonical_type: pa.DataType) -> pa.Array:
    """Encode the unscaled number: as an int64, or big-endian with the sign bit flipped."""
    wide = plain_values(values)
    width = 32 if pa.types.is_decimal256(wide.type) else 16
    if width == 16 and not pa.types.is_decimal128(wide.type):
        wide = wide.cast(pa.decimal128(wide.type.precision, wide.type.scale))
    words = _fixed_width_bytes(wide, width)
    if pa.types.is_int64(canonical_type):
        return _from_numpy(words[:, :8].copy().view(np.int64).ravel(), values)
    big_endian = words[:, ::-1].copy()
    big_endian[:, 0] ^= 0x80
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(width), len(values), [None, pa.py_buffer(big_endian)]
    )
    return _with_nulls(fixed.cast(pa.binary()), values)


def _decode_decimal(canonical: pa.Array, data_type: pa.DataType) -> pa.Array:
    width = 32 if pa.types.is_decimal256(data_type) else 16
    if pa.types.is_int64(canonical.type):
        numbers = _to_numpy(canonical)
        words = np.stack([numbers, numbers >> np.int64(63)], axis=1).astype("<i8")
        wide = pa.decimal128(38, data_type.scale)
    else:
        fixed = canonical.fill_null(b"\0" * width).cast(pa.binary(width))
        words = _fixed_width_bytes(fixed, width)[:, ::-1].copy()
        words[:, -1] ^= 0x80
        wide = data_type
    array = pa.Array.from_buffers(wide, len(canonical), [None, pa.py_buffer(words)])
    return _with_nulls(array, canonical).cast(data_type)


def _fixed_width_bytes(values: pa.Array, width: int) -> NDArray[np.uint8]:
    data = np.frombuffer(values.buffers()[1], dtype=np.uint8)
    start = values.offset * width
    return data[start : start + len(values) * width].reshape(len(values), width)


def _ordered_bits(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Map floats to integers of the same order; one NaN above infinity, one zero."""
    bits = values.view(np.int64)
    ordered = np.where(bits < 0, bits ^ _BELOW_SIGN, bits)
    ordered = np.where(bits == _SIGN, 0, ordered)  # -0.0; arithmetic would warn at some NaN
    return np.where(np.isnan(values), np.int64(NAN_CODE), ordered)


def _to_numpy(values: pa.Array) -> NDArray[Any]:
    """Return the buffer as an array; at a NULL it has any value."""
    filled = values if values.null_count == 0 else values.fill_null(0)
    return np.asarray(filled.to_numpy(zero_copy_only=False))


def _from_numpy(numbers: NDArray[np.int64], like: pa.Array) -> pa.Array:
    return _with_nulls(pa.array(numbers, type=pa.int64()), like)


def _with_nulls(values: pa.Array, like: pa.Array) -> pa.Array:
    if like.null_count == 0:
        return values
    return pc.if_else(like.is_valid(), values, pa.scalar(None, values.type))
