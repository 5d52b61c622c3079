"""Pages and plain values decoded by pyarrow, by way of a small Parquet file in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fsspeckit.core.parquet.format.layout import MAGIC, CannotSpliceError
from fsspeckit.core.parquet.format.pages import DATA_PAGE
from fsspeckit.core.parquet.format.thrift import (
    BINARY,
    I32,
    I64,
    INT,
    LIST,
    STRUCT,
    Struct,
    decode,
    encode,
    set_field,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsspeckit.core.parquet.format.layout import Column
    from fsspeckit.core.parquet.format.pages import Integers

_STRUCTS: Final = LIST | STRUCT << 4
_BYTE_STRINGS: Final = LIST | BINARY << 4
_INTEGERS: Final = LIST | I32 << 4
_REQUIRED: Final = 0


class InMemoryFile:
    """A Parquet file of one row group, assembled from existing pages for pyarrow to decode."""

    def __init__(self, rows: int, created_by: bytes = b"") -> None:
        self._rows = rows
        self._created_by = created_by
        self._file = bytearray(MAGIC)
        self._elements: list[bytes] = []
        self._chunks: list[Struct] = []

    def add(
        self,
        element: bytes,
        metadata: Struct,
        dictionary: bytes,
        pages: Sequence[bytes | memoryview],
    ) -> None:
        """Add a column.

        Args:
            element: Its ``SchemaElement``.
            metadata: Its ``ColumnMetaData``; offsets and sizes are set here.
            dictionary: Its dictionary page, if it has one.
            pages: Its data pages, or parts of them.
        """
        start = len(self._file)
        if dictionary:
            set_field(metadata, 11, start, I64)
        self._file += dictionary
        set_field(metadata, 9, len(self._file), I64)
        for page in pages:
            self._file += page
        set_field(metadata, 5, self._rows, I64)
        set_field(metadata, 7, len(self._file) - start, I64)
        self._elements.append(element)
        self._chunks.append(struct({2: (0, I64), 3: (metadata, STRUCT)}))

    def add_values(self, element: bytes, page: Sequence[bytes | memoryview]) -> None:
        """Add a column of one uncompressed page of plain values, none of them NULL."""
        known, _ = decode(element, {1: INT, 3: INT})
        set_field(known, 3, _REQUIRED, I32)
        metadata = struct(
            {
                1: (known.values[1], I32),
                2: ([0], _INTEGERS),
                3: ([b"values"], _BYTE_STRINGS),
                4: (0, I32),
                6: (sum(map(len, page)), I64),
            }
        )
        self.add(encode(known), metadata, b"", page)

    def read(self) -> pa.Table:
        """Decode the file, or raise `CannotSpliceError` if its pages are damaged."""
        try:
            file = pq.ParquetFile(pa.BufferReader(self._finished()), pre_buffer=False)
            table = file.read_row_group(0, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise CannotSpliceError(f"pages cannot be decoded: {error}") from error
        if table.num_rows != self._rows:
            raise CannotSpliceError("pages do not hold the rows they should")
        return table

    def _finished(self) -> bytearray:
        size = sum(chunk.values[3].values[7] for chunk in self._chunks)
        group = struct({1: (self._chunks, _STRUCTS), 2: (size, I64), 3: (self._rows, I64)})
        return self._file + _footer(self._elements, self._rows, [group], self._created_by)


def schema_without_stored(elements: Sequence[bytes]) -> pa.Schema:
    """The types that pyarrow reads columns as where no Arrow schema is stored."""
    try:
        return pq.read_schema(pa.BufferReader(MAGIC + _footer(elements, 0, [], b"")))
    except (pa.ArrowException, OSError) as error:
        raise CannotSpliceError(f"the schema cannot be read: {error}") from error


def _footer(
    elements: Sequence[bytes], rows: int, groups: Sequence[Struct], created_by: bytes
) -> bytes:
    root = struct({4: (b"schema", BINARY), 5: (len(elements), I32)})
    footer = encode(
        struct(
            {
                1: (1, I32),
                2: ([encode(root), *elements], _STRUCTS),
                3: (rows, I64),
                4: (list(groups), _STRUCTS),
                6: (created_by, BINARY),
            }
        )
    )
    return footer + len(footer).to_bytes(4, "little") + MAGIC


def struct(fields: dict[int, tuple[Any, int]]) -> Struct:
    """Make a struct from fields with their types on the wire."""
    return Struct(
        {number: value for number, (value, _) in fields.items()},
        {},
        {number: kind for number, (_, kind) in fields.items()},
    )


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
    """Decode ``count`` plain values of a column; ``element`` is its ``SchemaElement``.

    Raises:
        CannotSpliceError: If they are damaged.
    """
    if _is_like_memory(data_type) and len(values) * 8 == count * data_type.bit_width:
        return pa.Array.from_buffers(data_type, count, [None, pa.py_buffer(values)])
    sizes = {2: (len(values), I32), 3: (len(values), I32)}
    inside = struct({1: (count, I32), 2: (_PLAIN, I32), 3: (_RLE, I32), 4: (_RLE, I32)})
    header = struct({1: (DATA_PAGE, I32), **sizes, 5: (inside, STRUCT)})
    file = InMemoryFile(count)
    file.add_values(element, [encode(header), values])
    decoded = file.read().column(0).combine_chunks()
    _check_length(values, decoded, column)
    return decoded


def _is_like_memory(data_type: pa.DataType) -> bool:
    """Whether Arrow stores values in memory as the file does."""
    if pa.types.is_integer(data_type) or pa.types.is_floating(data_type):
        return bool(data_type.bit_width >= 32)
    return bool(pa.types.is_date32(data_type) or pa.types.is_timestamp(data_type))


def plain_slices(plain: bytes, values: pa.Array, column: Column, positions: Integers) -> bytes:
    """The bytes of some values, given the bytes of all.

    Raises:
        CannotSpliceError: If the bytes are not as long as the values.
    """
    values = storage_of(values)
    _check_length(plain, values, column)
    if column.physical[0] == _BYTES:
        lengths = _lengths(values)
        ends = np.cumsum(lengths)
        pairs = zip((ends - lengths)[positions].tolist(), ends[positions].tolist(), strict=True)
        return b"".join(plain[start:end] for start, end in pairs)
    width = len(plain) // max(1, len(values))
    return np.frombuffer(plain, np.uint8).reshape(len(values), width)[positions].tobytes()


def storage_of(values: pa.Array) -> pa.Array:
    """The storage of an extension array, whose type kernels do not know."""
    return values.storage if isinstance(values, pa.ExtensionArray) else values


def _lengths(values: pa.Array) -> Integers:
    lengths: Integers = pc.binary_length(values).to_numpy().astype(np.int64) + _PREFIX
    return lengths


def _check_length(plain: bytes | memoryview, values: pa.Array, column: Column) -> None:
    """Check that the bytes of values end where the last value does."""
    (_, physical, length, *_), *_ = column.meaning
    if physical == _BYTES:
        expected = int(_lengths(storage_of(values)).sum())
    else:
        width: Any = length if physical == _FIXED else _WIDTHS.get(column.physical[0], 0)
        expected = width * len(values)
    if len(plain) != expected:
        raise CannotSpliceError(f"values of {column.name!r} are not as long as they should be")
