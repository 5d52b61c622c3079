"""Values of a column chunk as they are stored, decoded by pyarrow from trusted metadata.

A damaged footer may make pyarrow end the process, or reserve memory for values that do not exist.
So pyarrow gets a file of one column and one row group, whose footer is made here: without
statistics, indexes, filters and annotations, which are checked against the values afterwards.
Without annotations it returns the physical values that statistics and filters speak of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.parquet.format.layout import MAGIC, CannotSpliceError
from fsspeckit.core.parquet.format.thrift import (
    INT,
    Struct,
    decode,
    drop_fields,
    encode,
    set_field,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fsspeckit.core.parquet.format.layout import Chunk, Column, FileLayout, Group, Logical

_I32: Final = 5
_INT96, _FIXED = 3, 7
_INT96_BYTES: Final = 12
_REPEATED: Final = 2
_ANNOTATIONS: Final = (6, 7, 8, 9, 10)
_KEY_VALUES_AND_LATER: Final = (5, 7, 8, 9)
_SORTING_AND_LATER: Final = (4, 5, 6, 7)
_OF_CHUNK: Final = (1, 4, 5, 6, 7, 8, 9)
_OF_METADATA: Final = (8, 10, 12, 13, 14, 15, 16, 17)
_MAX_DEPTH: Final = 64

Values = pa.ChunkedArray


@dataclass(frozen=True)
class Leaf:
    """A leaf column, as the schema describes it."""

    path: str
    physical: int
    length: int
    """The size of a fixed-length value, else 0."""

    logical: Logical
    is_repeated: bool
    is_nested: bool
    max_definition: int
    max_repetition: int


def leaves_of(column: Column) -> list[Leaf]:
    """Describe the leaves of a top-level column.

    Raises:
        CannotSpliceError: If the column nests too deep.
    """
    found, paths = [], iter(column.paths)
    above: list[list[int]] = []  # of each open group: children left, definition and repetition
    for _, physical, length, repetition, children, logical in column.meaning:
        definition, repeated = above[-1][1:] if above else (0, 0)
        definition += repetition in (1, _REPEATED)
        repeated += repetition == _REPEATED
        if children:
            above.append([int(str(children)), definition, repeated])
            if len(above) > _MAX_DEPTH:
                raise CannotSpliceError(f"a column nests more than {_MAX_DEPTH} levels")
            continue
        found.append(
            Leaf(
                next(paths),
                int(str(physical)),
                int(str(length or 0)),
                logical,  # type: ignore[arg-type] # what `columns_of` makes of the annotation
                repeated > 0,
                len(column.meaning) > 1,
                definition,
                repeated,
            )
        )
        while above:
            above[-1][0] -= 1
            if above[-1][0]:
                break
            above.pop()
    return found


def decode_values(
    layout: FileLayout, column: Column, group: Group, data: Sequence[bytes]
) -> pa.ChunkedArray:
    """Decode a column of a row group; ``data`` has the bytes of the chunk of each leaf.

    Raises:
        ArrowException, OSError, ValueError, MemoryError: If it cannot be decoded.
    """
    source = pa.BufferReader(_file_of(layout, column, group, data))
    with pq.ParquetFile(source, pre_buffer=False) as file:
        return file.read_row_group(0, use_threads=False).column(0)


def leaf_values(values: pa.ChunkedArray) -> list[pa.ChunkedArray]:
    """Return the values of each leaf of a column, NULL included, rows joined."""
    parts = [list(_leaves(chunk)) for chunk in values.chunks] or [
        list(_leaves(pa.nulls(0, values.type)))
    ]
    return [pa.chunked_array(list(chunks)) for chunks in zip(*parts, strict=True)]


def _leaves(array: pa.Array) -> Iterator[pa.Array]:
    if pa.types.is_struct(array.type):
        for child in array.flatten():
            yield from _leaves(child)
    elif pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        yield from _leaves(array.flatten())
    else:
        yield array


def schema_of(layout: FileLayout, *, with_arrow: bool = True) -> pa.Schema:
    """Return the schema of a file as pyarrow reads it, with or without what Arrow has added.

    Raises:
        ArrowException, OSError, ValueError: If pyarrow refuses it.
    """
    footer = layout.footer.copy()
    footer.values[3] = 0
    footer.values[4] = []
    drop_fields(footer, (7, 8, 9) if with_arrow else _KEY_VALUES_AND_LATER)
    return _metadata(encode(footer)).schema.to_arrow_schema().remove_metadata()


class UnknownZoneError(ValueError):
    """A column has a time zone that is not in the time zone database of this machine."""


def check_metadata(footer: bytes) -> None:
    """Let pyarrow parse a footer; it looks at fields that this package ignores.

    Raises:
        ArrowException, OSError, ValueError: If pyarrow refuses it.
    """
    # Not a column of a row group: pyarrow may end the process when it makes one of damaged bytes.
    for field in _metadata(footer).schema.to_arrow_schema():
        if pa.types.is_timestamp(field.type) and field.type.tz is not None:
            try:
                pa.lib.string_to_tzinfo(field.type.tz)
            except KeyError as error:
                raise UnknownZoneError(
                    f"this machine does not know the time zone {field.type.tz!r} of column "
                    f"{field.name!r}"
                ) from error


def _metadata(footer: bytes) -> pq.FileMetaData:
    data = MAGIC + footer + len(footer).to_bytes(4, "little") + MAGIC
    return pq.read_metadata(pa.BufferReader(data))


def _file_of(layout: FileLayout, column: Column, group: Group, data: Sequence[bytes]) -> pa.Buffer:
    footer = layout.footer.copy()
    count = len(column.meaning)
    elements = layout.elements[column.first_element : column.first_element + count]
    footer.values[2] = [_root(layout.elements[0]), *map(_plain_element, elements)]
    footer.values[3] = group.rows
    footer.values[4] = [_plain_group(column, group)]
    drop_fields(footer, _KEY_VALUES_AND_LATER)
    encoded = encode(footer)
    trailer = len(encoded).to_bytes(4, "little") + MAGIC
    return pa.py_buffer(b"".join((MAGIC, *data, encoded, trailer)))


def _root(element: bytes) -> bytes:
    struct, _ = decode(element, {5: INT})
    drop_fields(struct, _ANNOTATIONS)
    set_field(struct, 5, 1, _I32)
    return encode(struct)


def _plain_element(element: bytes) -> bytes:
    struct, _ = decode(element, {1: INT, 2: INT})
    drop_fields(struct, _ANNOTATIONS)
    if struct.values.get(1) == _INT96:
        set_field(struct, 1, _FIXED)
        set_field(struct, 2, _INT96_BYTES, _I32)
    return encode(struct)


def _plain_group(column: Column, group: Group) -> Struct:
    struct = group.struct.copy()
    chunks, start = [], len(MAGIC)
    for number in column.numbers:
        chunk = group.chunks[number]
        chunks.append(_plain_chunk(chunk, start - chunk.data.start))
        start += chunk.data.length
    struct.values[1] = chunks
    drop_fields(struct, _SORTING_AND_LATER)
    return struct


def _plain_chunk(chunk: Chunk, shift: int) -> Struct:
    struct, metadata = chunk.struct.copy(), chunk.metadata.copy()
    metadata.values[9] += shift
    if metadata.values.get(11, 0) > 0:
        metadata.values[11] += shift
    else:
        drop_fields(metadata, (11,))
    drop_fields(metadata, _OF_METADATA)
    if metadata.values[1] == _INT96:
        metadata.values[1] = _FIXED
    drop_fields(struct, _OF_CHUNK)
    struct.values[3] = metadata
    set_field(struct, 2, 0, 6)
    return struct


def decoding_errors() -> tuple[type[BaseException], ...]:
    """The errors that damaged bytes of a column may raise."""
    return (pa.ArrowException, OSError, ValueError, LookupError, MemoryError, ArithmeticError)


def text_of(error: BaseException) -> str:
    """Return the first line of an error's message, or its kind."""
    lines: list[Any] = str(error).strip().splitlines()
    return str(lines[0]) if lines else type(error).__name__
