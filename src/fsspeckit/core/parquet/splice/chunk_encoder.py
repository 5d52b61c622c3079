"""New column chunks encoded like the ones they replace.

pyarrow encodes columns of one row group into memory, with options read from the old chunks; the
chunks are then cut out of the result. An empty table shows beforehand whether new chunks would have
the types that the old footer states.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.parquet.format.layout import (
    CannotSpliceError,
    Chunk,
    Range,
    columns_of,
    length_of,
    parse_layout,
    read_footer,
)
from fsspeckit.core.parquet.format.pages import (
    DATA_PAGE_V2,
    DICTIONARY_ENCODINGS,
    pages_of,
)
from fsspeckit.core.parquet.splice.writer_properties import (
    BLOOM_FPP,
    WriterProperties,
    dictionary_pays,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsspeckit.core.parquet.format.layout import Column, FileLayout, Part, Read

_CODECS: Final = {
    0: "NONE",
    1: "SNAPPY",
    2: "GZIP",
    4: "BROTLI",
    5: "LZ4",  # the deprecated framing: what pyarrow writes instead is legal beside it
    6: "ZSTD",
    7: "LZ4",
}
_SPECIAL_ENCODINGS: Final = {
    5: "DELTA_BINARY_PACKED",
    6: "DELTA_LENGTH_BYTE_ARRAY",
    7: "DELTA_BYTE_ARRAY",
    9: "BYTE_STREAM_SPLIT",
}
_BOOLEAN, _INT32, _INT64, _INT96 = range(4)
_DECIMAL: Final = 5
_TYPE: Final = 1
_STATISTICS: Final = 12

_BY_PATH: Final = ("compression", "column_encoding", "bloom_filter_options")
_LISTS_OF_PATHS: Final = ("use_dictionary", "write_statistics")
_OF_THE_FILE: Final = ("version", "use_compliant_nested_type", "write_time_adjusted_to_utc")


@dataclass(frozen=True, slots=True)
class EncodedChunk:
    """A new column chunk, in memory."""

    chunk: Chunk
    """Its entry in a footer, as if it were in a file of its own."""

    pages: tuple[Part, ...]
    """Its pages, in parts."""

    bloom: bytes | None = None
    column_index: bytes | None = None
    offset_index: bytes | None = None

    @property
    def encoded_bytes(self) -> int:
        """The bytes that are not copied from the old chunk."""
        return length_of(part for part in self.pages if not isinstance(part, Range))


def chunk_options(
    column: Column, chunks: Sequence[Chunk], properties: WriterProperties, rows: int
) -> dict[str, Any]:
    """The options with which pyarrow's writer makes chunks like the ones of a column.

    Args:
        column: The column.
        chunks: Its chunks in one row group.
        properties: The properties of the whole file.
        rows: The number of rows of the new chunks.

    Raises:
        CannotSpliceError: If a codec cannot be written.
    """
    encodings = {chunk.path: set(chunk.metadata.values[2]) for chunk in chunks}
    lengths: list[Any] = [one[2] for one in column.meaning if not one[4]]
    dictionary = [
        chunk.path
        for chunk, length in zip(chunks, lengths, strict=True)
        if encodings[chunk.path].intersection(DICTIONARY_ENCODINGS)
        and dictionary_pays(chunk, length)
    ]
    # pyarrow writes no filter for booleans; arrow-rs does.
    filtered = [c.path for c in chunks if c.bloom and c.metadata.values[_TYPE] != _BOOLEAN]
    blooms = {path: {"ndv": max(rows, 1), "fpp": BLOOM_FPP} for path in filtered}
    statistics = [chunk.path for chunk in chunks if _STATISTICS in chunk.metadata.kinds]
    return {
        **_file_options(properties),
        **_type_options(column),
        "compression": {chunk.path: _codec(chunk) for chunk in chunks},
        "use_dictionary": dictionary or False,
        "column_encoding": _special_encodings(encodings, dictionary) or None,
        "write_statistics": statistics or False,
        "write_page_index": any(chunk.offset_index for chunk in chunks),
        "bloom_filter_options": blooms or None,
    }


def shared_options(options: dict[str, Any]) -> frozenset[tuple[str, Any]]:
    """The options of a whole file; columns are written together if these are equal."""
    paths = (*_BY_PATH, *_LISTS_OF_PATHS)
    return frozenset((name, value) for name, value in options.items() if name not in paths)


def merged_options(options: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One set of options for several columns, whose shared options are equal."""
    merged = dict(options[0])
    for name in _BY_PATH:
        found = (one[name] or {} for one in options)
        merged[name] = {path: value for one in found for path, value in one.items()} or None
    for name in _LISTS_OF_PATHS:
        merged[name] = [path for one in options for path in one[name] or ()] or False
    return merged


def page_options(chunks: Sequence[Chunk], read: Read) -> dict[str, Any]:
    """Page version and checksums, from the header of one data page."""
    for chunk in chunks:
        for page in pages_of(chunk, read):
            if page.is_data:
                version = "2.0" if page.kind == DATA_PAGE_V2 else "1.0"
                return {"data_page_version": version, "write_page_checksum": page.has_checksum}
    raise CannotSpliceError("there is no data page")


def _file_options(properties: WriterProperties) -> dict[str, Any]:
    known = properties.options
    return {**{name: known[name] for name in _OF_THE_FILE if name in known}, "store_schema": False}


def _codec(chunk: Chunk) -> str:
    number = chunk.metadata.values[4]
    name = _CODECS.get(number)
    if name is None or (name != "NONE" and not pa.Codec.is_available(name.lower())):
        raise CannotSpliceError(f"the codec {name or number} of {chunk.path!r} cannot be written")
    return name


def _special_encodings(encodings: dict[str, set[int]], dictionary: list[str]) -> dict[str, str]:
    return {
        path: name
        for path in encodings.keys() - set(dictionary)
        for number, name in _SPECIAL_ENCODINGS.items()
        if number in encodings[path]
    }


def _type_options(column: Column) -> dict[str, bool]:
    """Options about the physical types of this column."""
    decimals = [
        physical
        for _, physical, *_, logical in column.meaning
        if isinstance(logical, tuple) and logical[0] == _DECIMAL
    ]
    return {
        "store_decimal_as_integer": any(kind in (_INT32, _INT64) for kind in decimals),
        "use_deprecated_int96_timestamps": _INT96 in column.physical,
    }


def check_encodable(
    columns: Sequence[Column], schema: pa.Schema, layout: FileLayout, properties: WriterProperties
) -> None:
    """Check that new chunks of some columns would have the types of the old footer.

    Args:
        columns: The columns.
        schema: The Arrow schema of these and perhaps other columns.
        layout: The file.
        properties: How it was written.

    Raises:
        CannotSpliceError: If they would not.
    """
    alike: dict[tuple[bool, ...], list[Column]] = {}
    for column in columns:
        alike.setdefault(tuple(_type_options(column).values()), []).append(column)
    for some in alike.values():
        fields = pa.schema([schema.field(column.name) for column in some])
        options: dict[str, Any] = {**_file_options(properties), **_type_options(some[0])}
        written = _parse(_encode([fields.empty_table()], options))
        for column, found in zip(some, columns_of(written.elements), strict=True):
            _check_same(column, layout, found, written)


def _check_same(column: Column, layout: FileLayout, found: Column, written: FileLayout) -> None:
    """Check that a column is the same in two files, but for its position among the others."""
    if found.meaning != column.meaning:
        raise CannotSpliceError(f"new values of {column.name!r} would be stored as another type")
    old, new = layout.column_orders, written.column_orders
    if old is None or new is None:
        return
    if [old[n] for n in column.numbers] != [new[n] for n in found.numbers]:
        raise CannotSpliceError(f"new values of {column.name!r} would be ordered in another way")


def encode_columns(table: pa.Table, options: dict[str, Any]) -> list[EncodedChunk]:
    """Encode columns as one row group; returns the chunks of all leaves, in order.

    Args:
        table: The columns, at least one row.
        options: What `chunk_options` returned, merged for all of the columns.

    Raises:
        CannotSpliceError: If pyarrow did not encode it, or not as one row group.
    """
    return encode_groups([table], options)[0]


def encode_groups(tables: Sequence[pa.Table], options: dict[str, Any]) -> list[list[EncodedChunk]]:
    """Encode several tables of the same columns, each as one row group; see `encode_columns`."""
    buffer = _encode(tables, options)
    layout = _parse(buffer)
    if [group.rows for group in layout.groups] != [table.num_rows for table in tables]:
        raise CannotSpliceError("the writer made more than one row group of one")
    file = memoryview(buffer)
    return [[_cut_out(chunk, file) for chunk in group.chunks] for group in layout.groups]


def _cut_out(chunk: Chunk, file: memoryview) -> EncodedChunk:
    # The pages are written soon. The rest waits for the end of the file, and is copied so that it
    # does not keep the buffer of the pages in memory.
    bloom, column_index, offset_index = (
        None if part is None else bytes(file[part.start : part.end])
        for part in (chunk.bloom, chunk.column_index, chunk.offset_index)
    )
    return EncodedChunk(
        chunk, (file[chunk.data.start : chunk.data.end],), bloom, column_index, offset_index
    )


def _encode(tables: Sequence[pa.Table], options: dict[str, Any]) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    schema = tables[0].schema
    try:
        with pq.ParquetWriter(sink, schema, **options) as writer:
            for table in tables:
                if table.num_rows:
                    writer.write_table(table, row_group_size=table.num_rows)
    except (pa.ArrowException, OSError) as error:
        # Nothing is written but memory, so this is what pyarrow cannot encode.
        raise CannotSpliceError(f"pyarrow cannot encode {schema.names}: {error}") from error
    return sink.getvalue()


def _parse(buffer: pa.Buffer) -> FileLayout:
    def read(start: int, length: int) -> bytes:
        return bytes(memoryview(buffer)[start : start + length])

    return parse_layout(read_footer(read, buffer.size), buffer.size, read)
