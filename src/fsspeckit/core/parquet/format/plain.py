"""Plain values: as an array of Arrow, and some of them as bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.parquet.format.layout import CannotSpliceError
from fsspeckit.core.parquet.format.page_headers import DATA_PAGE
from fsspeckit.core.parquet.format.thrift import I32, STRUCT
from fsspeckit.core.parquet.format.thriftwriter import encode
from fsspeckit.core.parquet.format.values import SmallFile, struct

if TYPE_CHECKING:
    from fsspeckit.core.parquet.format.columns import Column
    from fsspeckit.core.parquet.format.hybrid import Codes

__all__ = ["plain_array", "plain_slices", "storage_of"]

_INT32, _INT64, _FLOAT, _DOUBLE, _BYTES, _FIXED = 1, 2, 4, 5, 6, 7
_WIDTHS: Final = {_INT32: 4, _INT64: 8, _FLOAT: 4, _DOUBLE: 8}
_PREFIX: Final = 4
_PLAIN, _RLE = 0, 3


def plain_array(
    values: bytes | memoryview,
    count: int,
    column: Column,
    element: bytes,
    data_type: pa.DataType,
) -> pa.Array:
    """Decode values.

    Args:
        values: Their bytes.
        count: How many they are.
        column: Their column.
        element: The same, in the schema of the file.
        data_type: What pyarrow reads it as.

    Raises:
        CannotSpliceError: If they are damaged.
    """
    if _is_like_memory(data_type) and len(values) * 8 == count * data_type.bit_width:
        return pa.Array.from_buffers(data_type, count, [None, pa.py_buffer(values)])
    sizes = {2: (len(values), I32), 3: (len(values), I32)}
    inside = struct({1: (count, I32), 2: (_PLAIN, I32), 3: (_RLE, I32), 4: (_RLE, I32)})
    header = struct({1: (DATA_PAGE, I32), **sizes, 5: (inside, STRUCT)})
    file = SmallFile(count)
    file.add_values(element, [encode(header), values])
    decoded = file.read().column(0).combine_chunks()
    _check_length(values, decoded, column)
    return decoded


def _is_like_memory(data_type: pa.DataType) -> bool:
    """Whether Arrow has values in memory as the file stores them."""
    if pa.types.is_integer(data_type) or pa.types.is_floating(data_type):
        return bool(data_type.bit_width >= 32)
    return bool(pa.types.is_date32(data_type) or pa.types.is_timestamp(data_type))


def plain_slices(plain: bytes, values: pa.Array, column: Column, numbers: Codes) -> bytes:
    """The bytes of some of the values.

    Args:
        plain: The bytes of all of them.
        values: The same values.
        column: Their column.
        numbers: Which of them.

    Raises:
        CannotSpliceError: If the bytes are not those of the values.
    """
    values = storage_of(values)
    _check_length(plain, values, column)
    if column.physical[0] == _BYTES:
        return _sliced(plain, _lengths(values), numbers)
    width = len(plain) // max(1, len(values))
    return np.frombuffer(plain, np.uint8).reshape(len(values), width)[numbers].tobytes()


def storage_of(values: pa.Array) -> pa.Array:
    """Values without what an extension type makes of them, which kernels do not know."""
    return values.storage if isinstance(values, pa.ExtensionArray) else values


def _lengths(values: pa.Array) -> Codes:
    lengths: Codes = pc.binary_length(values).to_numpy().astype(np.int64) + _PREFIX
    return lengths


def _check_length(plain: bytes | memoryview, values: pa.Array, column: Column) -> None:
    """See that the bytes of values end where the last value does.

    Raises:
        CannotSpliceError: If they do not.
    """
    (_, physical, length, *_), *_ = column.meaning
    if physical == _BYTES:
        expected = int(_lengths(storage_of(values)).sum())
    else:
        width: Any = length if physical == _FIXED else _WIDTHS.get(column.physical[0], 0)
        expected = width * len(values)
    if len(plain) != expected:
        raise CannotSpliceError(f"values of {column.name!r} are not as long as they should be")


def _sliced(plain: bytes, lengths: Codes, numbers: Codes) -> bytes:
    ends = np.cumsum(lengths)
    pairs = zip((ends - lengths)[numbers].tolist(), ends[numbers].tolist(), strict=True)
    return b"".join(plain[start:end] for start, end in pairs)
