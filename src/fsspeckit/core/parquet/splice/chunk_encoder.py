"""New column chunks encoded like the ones they replace.

pyarrow encodes columns of row groups into memory, with options read from the old chunks; the chunks
are then cut out of the result. An empty table shows beforehand whether new chunks would have
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
    columns_of,
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
    from collections.abc import Iterable, Sequence

    from fsspeckit.core.parquet.format.layout import Column, FileLayout, Group, Read

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
_ENCODING_STATISTICS: Final = 13
_SIZE_STATISTICS: Final = 16
_LENGTH_BYTES: Final = 4

_OF_THE_FILE: Final = ("version", "use_compliant_nested_type", "write_time_adjusted_to_utc")


@dataclass(frozen=True, slots=True)
class EncodedChunk:
    """A new column chunk, in memory."""

    chunk: Chunk
    """Its entry in a footer, as if it were in a file of its own."""

    pages: memoryview
    bloom: bytes | None = None
    column_index: bytes | None = None
    offset_index: bytes | None = None


@dataclass(frozen=True, slots=True)
class ChunkStyle:
    """How a column chunk is encoded."""

    path: str
    codec: str
    has_dictionary: bool
    encoding: str | None
    has_statistics: bool
    has_bloom: bool
    has_page_index: bool

    @classmethod
    def of(cls, chunk: Chunk, length: int | None = None) -> ChunkStyle:
        """The style of new values for a chunk; ``length`` is theirs where the schema states one.

        Raises:
            CannotSpliceError: If its codec cannot be written.
        """
        metadata, path = chunk.metadata, chunk.path
        number, encodings = metadata.values[4], metadata.values[2]
        codec = _CODECS.get(number)
        if codec is None or (codec != "NONE" and not pa.Codec.is_available(codec.lower())):
            raise CannotSpliceError(f"the codec {codec or number} of {path!r} cannot be written")
        is_indexed = any(n in DICTIONARY_ENCODINGS for n in encodings)
        has_dictionary = is_indexed and dictionary_pays(chunk, length)
        special = [name for n, name in _SPECIAL_ENCODINGS.items() if n in encodings]
        return cls(
            path,
            codec,
            has_dictionary,
            special[-1] if special and not has_dictionary else None,
            _STATISTICS in metadata.kinds,
            # pyarrow writes no filter for booleans; arrow-rs does.
            chunk.bloom is not None and metadata.values[_TYPE] != _BOOLEAN,
            chunk.offset_index is not None,
        )


@dataclass(frozen=True)
class WriterStyle:
    """Columns that one writer encodes, and how, in all row groups for which this is equal."""

    columns: tuple[Column, ...]
    chunks: tuple[ChunkStyle, ...]
    """The style of each leaf."""

    pages: tuple[tuple[str, Any], ...]
    """The options of `page_options`."""

    def options(self, properties: WriterProperties, rows: int) -> dict[str, Any]:
        """The options of pyarrow's writer, for row groups of up to ``rows`` rows."""
        bloom = {"ndv": max(rows, 1), "fpp": BLOOM_FPP}
        return {
            **_file_options(properties),
            **_type_options(self.columns[0]),
            **dict(self.pages),
            "compression": {one.path: one.codec for one in self.chunks},
            "use_dictionary": [one.path for one in self.chunks if one.has_dictionary] or False,
            "column_encoding": {c.path: c.encoding for c in self.chunks if c.encoding} or None,
            "write_statistics": [one.path for one in self.chunks if one.has_statistics] or False,
            "write_page_index": any(one.has_page_index for one in self.chunks),
            "bloom_filter_options": {c.path: bloom for c in self.chunks if c.has_bloom} or None,
        }


def writer_styles(columns: Sequence[Column], group: Group, read: Read) -> list[WriterStyle]:
    """The writers that encode columns of a row group like its chunks: one for each set of options.

    Args:
        columns: The columns.
        group: The row group.
        read: Reads bytes of the file.

    Raises:
        CannotSpliceError: If a codec cannot be written, or there is no data page.
    """
    alike: dict[object, tuple[list[Column], list[ChunkStyle]]] = {}
    for column in columns:
        lengths: list[Any] = [one[2] for one in column.meaning if not one[4]]
        own_chunks = (group.chunks[number] for number in column.numbers)
        styles = [ChunkStyle.of(*one) for one in zip(own_chunks, lengths, strict=True)]
        has_page_index = any(style.has_page_index for style in styles)
        shared = (*_type_options(column).values(), has_page_index)
        some, found = alike.setdefault(shared, ([], []))
        some.append(column)
        found += styles
    chunks = (group.chunks[number] for column in columns for number in column.numbers)
    pages = tuple(page_options(chunks, read).items()) if columns else ()
    return [WriterStyle(tuple(some), tuple(found), pages) for some, found in alike.values()]


def page_options(chunks: Iterable[Chunk], read: Read) -> dict[str, Any]:
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
        written = _parse(_encode([pa.Table.from_batches([], fields)], options))
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


def encode_groups(tables: Sequence[pa.Table], options: dict[str, Any]) -> list[list[EncodedChunk]]:
    """Encode tables of the same columns, each as one row group; returns the chunks of all leaves.

    Args:
        tables: The columns, at least one row each.
        options: The options of pyarrow's writer.

    Raises:
        CannotSpliceError: If pyarrow did not encode them, or not each as one row group.
    """
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
    pages = file[chunk.data.start : chunk.data.end]
    return EncodedChunk(chunk, pages, bloom, column_index, offset_index)


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
