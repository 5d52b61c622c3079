"""A Parquet file in memory, made of pages that are there already, for pyarrow to decode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.parquet.format.layout import MAGIC, CannotSpliceError
from fsspeckit.core.parquet.format.thrift import BINARY, I32, I64, INT, LIST, STRUCT, Struct, decode
from fsspeckit.core.parquet.format.thriftwriter import encode, set_field

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SmallFile", "schema_without_stored", "struct"]

_STRUCTS: Final = LIST | STRUCT << 4
_BYTE_STRINGS: Final = LIST | BINARY << 4
_INTEGERS: Final = LIST | I32 << 4
_REQUIRED: Final = 0


class SmallFile:
    """A file of one row group."""

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
            element: Its description in the schema.
            metadata: What a footer says of its chunk; positions and sizes are set here.
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
        """Add a column of one page of plain values that is not compressed, none of them NULL."""
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
        """Decode it.

        Raises:
            CannotSpliceError: If the pages are damaged.
        """
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
    """What pyarrow reads columns as where no Arrow schema is stored.

    Raises:
        CannotSpliceError: If it does not read them.
    """
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
    """A struct of fields with their types on the wire."""
    return Struct(
        {number: value for number, (value, _) in fields.items()},
        {},
        {number: kind for number, (_, kind) in fields.items()},
    )
