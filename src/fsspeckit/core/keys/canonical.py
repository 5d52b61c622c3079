"""Canonical keys: the one function that makes keys comparable.

The joins of three engines disagree about NaN, -0.0, time zones, units and decimals. So keys are
mapped, by Arrow and here only, to two types about which everybody agrees: ``int64`` and
``binary``. The mapping keeps equality (equal keys, and only those, become equal) and order (so
that statistics bounds mapped the same way can be compared with keys). Engines join canonical
columns only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.keys.casts import cast_exactly, family, plain, plain_type
from fsspeckit.errors import InvalidArgumentError, SchemaMismatchError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "NAN_CODE",
    "KeyColumn",
    "as_names",
    "canonical_keys",
    "check_columns",
    "check_names",
    "key_column",
]

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
    """The type that holds every value of the target's files."""

    @property
    def canonical_type(self) -> pa.DataType:
        """Either ``int64`` or ``binary``."""
        kind = family(self.type)
        if kind in ("string", "binary"):
            return pa.binary()
        if kind == "decimal" and self.type.precision > _INT64_DIGITS:
            return pa.binary()
        return pa.int64()

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
        """Map canonical values back; what :meth:`canonical` made of them, as the column's type.

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
        data_type = pa.int64()  # no file holds a value; any type does
    if pa.types.is_date(data_type):
        data_type = pa.date32()
    return KeyColumn(name, data_type)


def canonical_keys(table: pa.Table, columns: Sequence[KeyColumn]) -> pa.Table:
    """The canonical key columns of a table, under their own names."""
    return pa.table(
        [column.canonical(table.column(column.name)) for column in columns],
        names=[column.name for column in columns],
    )


def as_names(names: Any) -> Any:
    """Names of columns as a tuple, also of one that is given as a string.

    What holds no names stays as it is, to be refused by :func:`check_names`.
    """
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
            f"Hint: pass [{names!r}]."
        )
    given: Any = names
    if not given or not isinstance(given, Sequence):
        raise InvalidArgumentError(f"{what} must name at least one column, got {names!r}.")
    if strange := [name for name in names if not isinstance(name, str)]:
        raise InvalidArgumentError(f"{what} must be strings, got {strange[0]!r}.")
    if len(set(names)) < len(names):
        raise InvalidArgumentError(f"{what} must name each column once, got {list(names)!r}.")


def check_columns(what: str, names: Sequence[str], available: Sequence[str]) -> None:
    """Check that columns are named, once each, and exist.

    Raises:
        InvalidArgumentError: Saying which one is wrong.
    """
    check_names(what, names)
    known = set(available)
    missing = [name for name in names if name not in known]
    if missing:
        raise InvalidArgumentError.missing_columns(what, missing, available)
    without_case: dict[str, list[str]] = {}
    for name in available:
        without_case.setdefault(name.lower(), []).append(name)
    for name in names:
        alike = without_case[name.lower()]
        if len(alike) > 1:
            raise InvalidArgumentError(
                f"{what} {name!r} is ambiguous among the columns {alike!r}; readers that ignore "
                "case cannot tell them apart.\nHint: rename or drop all but one of them."
            )


def _encode_number(values: pa.Array) -> pa.Array:
    """Booleans, integers, dates and times: their number, as an int64."""
    if pa.types.is_boolean(values.type):
        return values.cast(pa.int8()).cast(pa.int64())
    if pa.types.is_integer(values.type):
        return values.cast(pa.int64())
    return values.view(pa.int32() if values.type.bit_width == 32 else pa.int64()).cast(pa.int64())


def _encode_decimal(values: pa.Array, canonical_type: pa.DataType) -> pa.Array:
    """The unscaled number: as an int64, or big-endian with the sign bit flipped."""
    wide = plain(values)
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
    """Floats as integers of the same order; one NaN above infinity, one zero."""
    bits = values.view(np.int64)
    ordered = np.where(bits < 0, bits ^ _BELOW_SIGN, bits)
    ordered = np.where(bits == _SIGN, 0, ordered)  # -0.0; arithmetic would warn at some NaN
    return np.where(np.isnan(values), np.int64(NAN_CODE), ordered)


def _to_numpy(values: pa.Array) -> NDArray[Any]:
    """The values as numpy sees the buffer: what stands at a NULL is any value."""
    filled = values if values.null_count == 0 else values.fill_null(0)
    return np.asarray(filled.to_numpy(zero_copy_only=False))


def _from_numpy(numbers: NDArray[np.int64], like: pa.Array) -> pa.Array:
    return _with_nulls(pa.array(numbers, type=pa.int64()), like)


def _with_nulls(values: pa.Array, like: pa.Array) -> pa.Array:
    if like.null_count == 0:
        return values
    return pc.if_else(like.is_valid(), values, pa.scalar(None, values.type))
