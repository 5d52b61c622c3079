"""Assembles a Parquet file from byte ranges of old ones and new column chunks.

Pages hold no absolute offsets, so a chunk can be moved as bytes; the footer and the offset indexes,
which point at it, are adjusted here. Everything else in the footer stays: readers use
``created_by`` to decide which old statistics to distrust, and the key-value metadata is not ours.
Bloom filters, column indexes and offset indexes follow the data, each kind in one piece, because
readers fetch them as one range.

New chunks are encoded by pyarrow in memory, with options read from the old chunks, and cut out of
the result. An empty table shows beforehand whether they would have the types that the old footer
states.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.parquet.format.layout import (
    MAGIC,
    CannotSpliceError,
    Chunk,
    Range,
    check_apart,
    columns_of,
    parse_layout,
    read_footer,
)
from fsspeckit.core.parquet.format.pages import DATA_PAGE_V2, DICTIONARY_ENCODINGS, pages_of
from fsspeckit.core.parquet.format.thrift import (
    BINARY,
    I16,
    I32,
    I64,
    INT,
    LIST,
    STRUCT,
    Spec,
    Struct,
    ThriftError,
    decode,
    drop_fields,
    encode,
    set_field,
)
from fsspeckit.core.parquet.splice.writer_properties import (
    BLOOM_FPP,
    WriterProperties,
    dictionary_pays,
)
from fsspeckit.errors import ConcurrentModificationError
from fsspeckit.storage import naming_failure, new_file, read_range

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from fsspeckit.core.parquet.format.layout import Column, FileLayout, Group, Read
    from fsspeckit.storage import Root

    Copy = Callable[[int, int, int, int], int]
    """Copies from one descriptor to another: offset, maximum length; returns the length."""

_OFFSETS: Final = (9, 10, 11)
_ELEMENTS, _KEY_VALUES, _COLUMN_ORDERS = 2, 5, 7
_SORTING_COLUMNS: Final = 4
_ORDINAL: Final = 7
MAX_ORDINAL: Final = 32767
_KNOWN_OF_A_GROUP: Final = frozenset(range(1, 8))
_OFFSET_INDEX: Final[Spec] = {1: [{1: INT}]}
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

_ROWS_PER_BATCH: Final = 16_384
"""Of columns with a dictionary; others keep pyarrow's choice, or long strings make long pages."""

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
class _LoadedChunk:
    """A column chunk of another file whose pages are copied, and all else is in memory.

    Filters and indexes are written after the data of all files, when this one may be closed.
    """

    chunk: Chunk
    bloom: bytes | None
    column_index: bytes | None
    offset_index: bytes | None


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
    def of(
        cls, chunk: Chunk, length: int | None = None, dictionary_saves: bool | None = None
    ) -> ChunkStyle:
        """The style of new values for a chunk; ``length`` is theirs where the schema states one.

        ``dictionary_saves`` is whether a dictionary saves bytes, where somebody has tried it; if
        not, the chunk says so.

        Raises:
            CannotSpliceError: If its codec cannot be written.
        """
        metadata, path = chunk.metadata, chunk.path
        number, encodings = metadata.values[4], metadata.values[2]
        codec = _CODECS.get(number)
        if codec is None or (codec != "NONE" and not pa.Codec.is_available(codec.lower())):
            raise CannotSpliceError(f"the codec {codec or number} of {path!r} cannot be written")
        is_indexed = any(n in DICTIONARY_ENCODINGS for n in encodings)
        if dictionary_saves is None:
            dictionary_saves = is_indexed and dictionary_pays(chunk, length)
        has_dictionary = is_indexed and dictionary_saves
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

    @property
    def has_dictionaries(self) -> bool:
        """Whether all leaves have a dictionary."""
        return all(one.has_dictionary for one in self.chunks)

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
            # The statistics of a dictionary are made for each batch, from all values that it uses.
            **({"write_batch_size": _ROWS_PER_BATCH} if self.has_dictionaries else {}),
            "write_page_index": any(one.has_page_index for one in self.chunks),
            "bloom_filter_options": {c.path: bloom for c in self.chunks if c.has_bloom} or None,
        }


def writer_styles(
    columns: Sequence[Column],
    group: Group,
    read: Read,
    *,
    dictionaries: Mapping[str, bool] | None = None,
    blooms: Collection[str] = (),
) -> list[WriterStyle]:
    """The writers that encode columns of a row group like its chunks: one for each set of options.

    Args:
        columns: The columns.
        group: The row group.
        read: Reads bytes of the file.
        dictionaries: Whether a dictionary saves bytes, by the name of the column, as far as
            somebody has tried it.
        blooms: Columns that get a bloom filter whether or not their chunk has one.

    Raises:
        CannotSpliceError: If a codec cannot be written, or there is no data page.
    """
    alike: dict[object, tuple[list[Column], list[ChunkStyle]]] = {}
    for column in columns:
        saves = (dictionaries or {}).get(column.name)
        own_chunks = [group.chunks[number] for number in column.numbers]
        styles = [
            ChunkStyle.of(chunk, length, saves)
            for chunk, length in zip(own_chunks, column.lengths, strict=True)
        ]
        if column.name in blooms:
            styles = [replace(style, has_bloom=True) for style in styles]
        has_page_index = any(style.has_page_index for style in styles)
        has_dictionaries = all(style.has_dictionary for style in styles)
        shared = (*_type_options(column).values(), has_page_index, has_dictionaries)
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


def encoded_layout(
    schema: pa.Schema, properties: WriterProperties, pages: dict[str, bool]
) -> FileLayout:
    """Return the layout of a file without rows, with the types that new chunks would have.

    Args:
        schema: The columns.
        properties: How the old file was written.
        pages: The options about physical types.

    Raises:
        CannotSpliceError: If pyarrow cannot encode such columns.
    """
    table = pa.Table.from_batches([], schema)
    return _parse(_encode([table], {**_file_options(properties), **pages}))


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


class _MovedChunk:
    """A chunk at its offset in the new file, with its filter and indexes."""

    def __init__(self, source: Chunk | EncodedChunk | _LoadedChunk, start: int) -> None:
        self.old = _chunk_of(source)
        self.start = start
        self.metadata = self.old.metadata.copy()
        for number in _OFFSETS:
            if self.metadata.values.get(number, 0) > 0:
                self.metadata.values[number] += start - self.old.data.start
        self.struct = self.old.struct.copy()
        self.struct.values[3] = self.metadata
        set_field(self.struct, 2, 0, I64)  # deprecated, and wrong in the files of some writers
        self.bloom: Range | bytes | None = source.bloom
        self.column_index: Range | bytes | None = source.column_index
        self.offset_index: Range | bytes | None = source.offset_index


@dataclass(frozen=True)
class FileShape:
    """What a footer says about the columns of a file as a whole."""

    elements: list[bytes]
    """The ``SchemaElement`` structs."""

    column_orders: list[bytes] | None
    """The ``ColumnOrder`` of each leaf; None if the footer has none."""

    key_values: dict[bytes, bytes | None]
    """The metadata."""

    def put_into(self, footer: Struct) -> None:
        """Set the fields of a footer."""
        set_field(footer, _ELEMENTS, self.elements)
        if self.column_orders is not None:
            set_field(footer, _COLUMN_ORDERS, self.column_orders)
        drop_fields(footer, [_KEY_VALUES])
        if self.key_values:
            pairs = [_key_value(key, value) for key, value in self.key_values.items()]
            set_field(footer, _KEY_VALUES, pairs, LIST | STRUCT << 4)


def _key_value(key: bytes, value: bytes | None) -> Struct:
    pair = Struct()
    set_field(pair, 1, key, BINARY)
    if value is not None:
        set_field(pair, 2, value, BINARY)
    return pair


class Splicer:
    """Writes one file, row group by row group.

    Args:
        original: The old file; of several, the one whose footer the new file gets.
        layout: Its parts.
        sink: The new file.
        max_ordinal: In a file of more row groups none is numbered; the format has 16 bits for it.
        shape: The columns of the new file, if they are not those of the old one.
        created_by: What the new file says about its writer, if not what the old file says.
    """

    def __init__(
        self,
        original: Original,
        layout: FileLayout,
        sink: Sink,
        max_ordinal: int = MAX_ORDINAL,
        shape: FileShape | None = None,
        created_by: bytes | None = None,
    ) -> None:
        self._original = original
        self._shape = shape
        self._layout = layout
        self._sink = sink
        self._max_ordinal = max_ordinal
        self._created_by = created_by
        self._pending: tuple[Original, Range] | None = None
        self._groups: list[Struct] = []
        self._placed: list[_MovedChunk] = []
        self.rows = 0
        self.copied_bytes = 0
        self.indexes: list[Range] = []
        sink.write(MAGIC)

    def keep(self, group: Group) -> None:
        """Copy a row group."""
        starts = [chunk.data.start for chunk in group.chunks]
        self._add(group.struct.copy(), group.rows, group.chunks, starts)

    def append(
        self, original: Original, group: Group, new: Mapping[int, EncodedChunk] | None = None
    ) -> None:
        """Copy a row group of another file, which can be closed afterwards.

        Args:
            original: The other file; it has the schema and the column orders of the old one.
            group: The row group.
            new: New chunks with the same values, by the number of their leaf column.
        """
        new = new or {}
        sources = [
            new.get(number) or _loaded(chunk, original) for number, chunk in enumerate(group.chunks)
        ]
        struct = group.struct.copy()
        if new:
            set_field(struct, 2, sum(_chunk_of(s).metadata.values[6] for s in sources), I64)
            if 6 in struct.kinds:
                set_field(struct, 6, sum(_chunk_of(s).metadata.values[7] for s in sources), I64)
        starts: Sequence[int] = [chunk.data.start for chunk in group.chunks]
        if starts[0] != min(starts):  # Spark would lose the row group: see `reshape`
            starts = range(len(starts))
        self._add(struct, group.rows, sources, starts, original)
        self._flush()

    def change(
        self,
        group: Group,
        rows: int,
        chunks: Sequence[Chunk | EncodedChunk],
        unsorted: Collection[int] = (),
    ) -> None:
        """Add a row group of which some chunks are new.

        Args:
            group: The old row group, or the first of several that become one.
            rows: Its rows now.
            chunks: A chunk for each leaf column.
            unsorted: The leaf columns that may have lost a sort order.
        """
        struct = group.struct.copy()
        # What a later version of the format says about a row group may be about its values.
        drop_fields(struct, set(struct.kinds) - _KNOWN_OF_A_GROUP)
        _cut_sort_order(struct, unsorted)
        self._resize(struct, rows, chunks)
        starts = [chunk.data.start for chunk in group.chunks]
        self._add(struct, rows, chunks, starts)

    def reshape(
        self, group: Group, chunks: Sequence[Chunk | EncodedChunk], leaves: Mapping[int, int]
    ) -> None:
        """Add a row group with the same rows in other columns.

        Args:
            group: The old row group.
            chunks: A chunk for each leaf column of the new file.
            leaves: The numbers of leaf columns in the new file by those that they had; columns
                that are not here are gone, or have lost a sort order.
        """
        struct = group.struct.copy()
        drop_fields(struct, set(struct.kinds) - _KNOWN_OF_A_GROUP)
        _cut_sort_order(struct, (), leaves)
        self._resize(struct, group.rows, chunks)
        # In their order in the schema: Spark takes the first column for the start of a row group,
        # and loses the row group if its middle, counted from there, is beyond the file.
        self._add(struct, group.rows, chunks, range(len(chunks)))

    @staticmethod
    def _resize(struct: Struct, rows: int, chunks: Sequence[Chunk | EncodedChunk]) -> None:
        metadata = [_chunk_of(source).metadata.values for source in chunks]
        set_field(struct, 3, rows, I64)
        set_field(struct, 2, sum(values[6] for values in metadata), I64)
        if 6 in struct.kinds:
            set_field(struct, 6, sum(values[7] for values in metadata), I64)

    def finish(self) -> None:
        """Write filters, indexes and the footer.

        Raises:
            CannotSpliceError: If an index of the old file is damaged.
        """
        self._write_blooms()
        self._write_column_indexes()
        self._write_offset_indexes()
        self._number_groups()
        footer = self._layout.footer.copy()
        set_field(footer, 3, self.rows, I64)
        if self._created_by is not None:
            set_field(footer, 6, self._created_by, BINARY)
        footer.values[4] = self._groups
        if self._shape is not None:
            self._shape.put_into(footer)
        data = encode(footer)
        self._write(data + len(data).to_bytes(4, "little") + MAGIC)

    def _add(
        self,
        struct: Struct,
        rows: int,
        sources: Sequence[Chunk | EncodedChunk | _LoadedChunk],
        starts: Sequence[int],
        original: Original | None = None,
    ) -> None:
        # In the order in which the old file had them: adjacent chunks are then copied as one.
        order = sorted(range(len(sources)), key=starts.__getitem__)
        file = original or self._original
        placed = {number: self._place(sources[number], file) for number in order}
        chunks = [placed[number] for number in range(len(sources))]
        struct.values[1] = [chunk.struct for chunk in chunks]
        if 5 in struct.kinds:
            struct.values[5] = min(chunk.start for chunk in chunks)
        self.rows += rows
        self._groups.append(struct)
        self._placed += chunks

    def _place(
        self, source: Chunk | EncodedChunk | _LoadedChunk, original: Original
    ) -> _MovedChunk:
        if isinstance(source, EncodedChunk):
            return _MovedChunk(source, self._write(source.pages))
        return _MovedChunk(source, self._copy_later(_chunk_of(source).data, original))

    def _copy_later(self, part: Range, original: Original) -> int:
        """Schedule the copy of a range, together with those after it; returns its new offset."""
        if self._pending is not None:
            file, pending = self._pending
            if file is original and pending.end == part.start:
                self._pending = file, Range(pending.start, pending.length + part.length)
                return self._sink.position + pending.length
        self._flush()
        self._pending = original, part
        return self._sink.position

    def _write(self, data: bytes | memoryview) -> int:
        """Write bytes; returns their offset."""
        self._flush()
        start = self._sink.position
        self._sink.write(data)
        return start

    def _flush(self) -> None:
        if self._pending is not None:
            original, part = self._pending
            self._sink.copy(original, part)
            self.copied_bytes += part.length
            self._pending = None

    def _write_blooms(self) -> None:
        for chunk in self._placed:
            part = chunk.bloom
            if part is not None:
                if isinstance(part, Range):
                    start, length = self._copy_later(part, self._original), part.length
                else:
                    start, length = self._write(part), len(part)
                self._point(chunk.metadata, 14, Range(start, length))

    def _write_column_indexes(self) -> None:
        for chunk in self._placed:
            if chunk.column_index is not None:
                data = self._bytes(chunk.column_index)
                self._point(chunk.struct, 6, Range(self._write(data), len(data)))

    def _write_offset_indexes(self) -> None:
        for chunk in self._placed:
            if chunk.offset_index is not None:
                pages = chunk.old.data
                data = _shifted(self._bytes(chunk.offset_index), pages, chunk.start - pages.start)
                self._point(chunk.struct, 4, Range(self._write(data), len(data)))

    def _point(self, struct: Struct, number: int, part: Range) -> None:
        """Put the offset of an index into the footer; its length is the next field."""
        set_field(struct, number, part.start, I64)
        set_field(struct, number + 1, part.length, I32)
        self.indexes.append(part)

    def _bytes(self, part: Range | bytes) -> bytes:
        return self._original.read(part.start, part.length) if isinstance(part, Range) else part

    def _number_groups(self) -> None:
        """Number all row groups or none: some readers refuse a file that has both."""
        old = (group.struct for group in self._layout.groups)
        had_all = all(_ORDINAL in struct.kinds for struct in (*old, *self._groups))
        if not had_all or len(self._groups) > self._max_ordinal:
            for struct in self._groups:
                drop_fields(struct, [_ORDINAL])
            return
        for number, struct in enumerate(self._groups):
            set_field(struct, _ORDINAL, number, I16)


def _cut_sort_order(
    struct: Struct, unsorted: Collection[int], leaves: Mapping[int, int] | None = None
) -> None:
    """Keep the sort order up to the first column that may have lost it.

    With ``leaves``, columns that are there have kept it, under another number.
    """
    order = struct.values.get(_SORTING_COLUMNS, [])
    if leaves is None:
        kept = list(takewhile(lambda column: column.values[1] not in unsorted, order))
    else:
        kept = [one.copy() for one in takewhile(lambda column: column.values[1] in leaves, order)]
        for column in kept:
            set_field(column, 1, leaves[column.values[1]])
    if kept:
        struct.values[_SORTING_COLUMNS] = kept
    else:
        drop_fields(struct, [_SORTING_COLUMNS])


def _chunk_of(source: Chunk | EncodedChunk | _LoadedChunk) -> Chunk:
    return source if isinstance(source, Chunk) else source.chunk


def _loaded(chunk: Chunk, original: Original) -> _LoadedChunk:
    bloom, column_index, offset_index = (
        None if part is None else original.read(part.start, part.length)
        for part in (chunk.bloom, chunk.column_index, chunk.offset_index)
    )
    return _LoadedChunk(chunk, bloom, column_index, offset_index)


def _shifted(data: bytes, pages: Range, delta: int) -> bytes:
    """Move the pages of an offset index."""
    try:
        index, end = decode(data, _OFFSET_INDEX)
        locations = index.values[1]
        inside = all(pages.start <= one.values[1] < pages.end for one in locations)
        if end != len(data) or not inside:
            raise CannotSpliceError("an offset index points outside of its column chunk")
        for location in locations:
            location.values[1] += delta
    except (ThriftError, KeyError) as error:
        raise CannotSpliceError(f"an offset index is damaged: {error}") from error
    return encode(index)


# Copying byte ranges: on a local disk the kernel copies between files of one filesystem, on some
# filesystems without copying at all. Where it refuses, the bytes are read and written.

BUFFER_BYTES = 8 * 1024 * 1024
_MAX_COPY_BYTES = 1 << 30
# Errors by which kernels and filesystems refuse to copy between two files.
_REFUSALS = {
    errno.EXDEV,
    errno.EINVAL,
    errno.ENOSYS,
    errno.EOPNOTSUPP,
    errno.EPERM,
    errno.EBADF,
    errno.ETXTBSY,
}


class Original(Protocol):
    """The old file."""

    size: int

    def read(self, start: int, length: int) -> bytes:
        """Read bytes; fewer at the end of the file."""

    def check_unchanged(self) -> None:
        """Raise `ConcurrentModificationError` if the file was changed since it was opened."""


class Sink(Protocol):
    """The new file, written from its first byte to its last."""

    position: int

    def write(self, data: Any) -> None:
        """Append bytes."""

    def copy(self, original: Original, part: Range) -> None:
        """Append a range of an old file."""


@contextmanager
def open_original(root: Root, path: str) -> Iterator[Original]:
    """Open an old file."""
    if not root.is_local:
        yield _RemoteOriginal(root, path)
        return
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        yield _LocalOriginal(descriptor, root.to_user_path(path))
    finally:
        os.close(descriptor)


@contextmanager
def open_sink(root: Root, path: str, buffer_bytes: int = BUFFER_BYTES) -> Iterator[Sink]:
    """Open a new file; if it is not on a disk, it is copied in pieces of ``buffer_bytes``."""
    if root.is_local:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0)
        descriptor = os.open(path, flags, 0o666)
        try:
            yield _LocalSink(descriptor)
        finally:
            os.close(descriptor)
    else:
        with new_file(root, path) as handle:
            yield _RemoteSink(handle, buffer_bytes)


class _LocalOriginal:
    def __init__(self, descriptor: int, user_path: str) -> None:
        self.descriptor = descriptor
        self._user_path = user_path
        self._version = self._read_version()
        self.size = self._version[0]

    def _read_version(self) -> tuple[int, int]:
        found = os.fstat(self.descriptor)
        return found.st_size, found.st_mtime_ns

    def read(self, start: int, length: int) -> bytes:
        return os.pread(self.descriptor, length, start)

    def check_unchanged(self) -> None:
        if self._read_version() != self._version:
            raise _changed(self._user_path)


class _RemoteOriginal:
    def __init__(self, root: Root, path: str) -> None:
        self._root = root
        self._path = path
        self.size = self._size_now()

    def read(self, start: int, length: int) -> bytes:
        return read_range(self._root, self._path, start, length)

    def check_unchanged(self) -> None:
        # A listing may be cached.
        self._root.filesystem.invalidate_cache(self._path)
        if self._size_now() != self.size:
            raise _changed(self._root.to_user_path(self._path))

    def _size_now(self) -> int:
        with naming_failure(self._root, self._path, "reading the size"):
            return int(self._root.filesystem.size(self._path))


def _changed(user_path: str) -> ConcurrentModificationError:
    return ConcurrentModificationError(
        f"{user_path!r} was changed by somebody else while it was copied; nothing was published.\n"
        "Hint: repeat the merge."
    )


class _LocalSink:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._copies = list(_COPIES)
        self.position = 0

    def write(self, data: Any) -> None:
        rest = memoryview(data).cast("B")
        self.position += len(rest)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def copy(self, original: Original, part: Range) -> None:
        assert isinstance(original, _LocalOriginal)
        done = 0
        while done < part.length:
            limit = min(part.length - done, _MAX_COPY_BYTES)
            count = self._copy_once(original.descriptor, part.start + done, limit)
            if not count:
                raise OSError(errno.EIO, f"the file ends before byte {part.end:,}")
            done += count
        self.position += part.length

    def _copy_once(self, source: int, start: int, limit: int) -> int:
        while True:
            try:
                return self._copies[0](source, self._descriptor, start, limit)
            except OSError as error:
                # A call that was refused once is not tried again; the last one is never refused.
                if error.errno not in _REFUSALS or len(self._copies) == 1:
                    raise
                del self._copies[0]


def _copy_file_range(source: int, target: int, start: int, limit: int) -> int:
    return os.copy_file_range(source, target, limit, start)


def _sendfile(source: int, target: int, start: int, limit: int) -> int:
    return os.sendfile(target, source, start, limit)


def _read_and_write(source: int, target: int, start: int, limit: int) -> int:
    piece = os.pread(source, min(limit, BUFFER_BYTES), start)
    rest = memoryview(piece)
    while rest:
        rest = rest[os.write(target, rest) :]
    return len(piece)


# On other systems than Linux, sendfile writes to sockets only, and raises an error.

_COPIES: list[Copy] = [
    *([_copy_file_range] if hasattr(os, "copy_file_range") else []),
    *([_sendfile] if hasattr(os, "sendfile") else []),
    _read_and_write,
]


class _RemoteSink:
    def __init__(self, handle: Any, buffer_bytes: int) -> None:
        self._handle = handle
        self._buffer_bytes = buffer_bytes
        self.position = 0

    def write(self, data: Any) -> None:
        view = memoryview(data).cast("B")
        self._handle.write(view)
        self.position += len(view)

    def copy(self, original: Original, part: Range) -> None:
        for start in range(part.start, part.end, self._buffer_bytes):
            length = min(self._buffer_bytes, part.end - start)
            piece = original.read(start, length)
            if len(piece) != length:
                raise OSError(errno.EIO, f"the file ends before byte {part.end:,}")
            self.write(piece)


def check_spliced(
    root: Root,
    path: str,
    old: FileLayout | FileShape,
    rows: Sequence[int],
    indexes: Sequence[Range] = (),
) -> None:
    """Check a spliced file before it counts as staged.

    pyarrow reads the footer: every column chunk and index lies inside the file and overlaps no
    other, the row groups have the expected rows, and the schema is the old one.

    Args:
        root: The root of the dataset.
        path: The new file.
        old: The layout of the old file, or the shape that it was to get.
        rows: The rows of each row group.
        indexes: The ranges of bloom filters and page indexes.

    Raises:
        CannotSpliceError: If it is damaged; the file must not be used.
    """
    with open_original(root, path) as file:
        footer = read_footer(file.read, file.size)
        data_end = file.size - len(footer) - 8  # its length and the magic bytes follow it
    if b"".join(old.elements) not in footer:
        raise CannotSpliceError("the new file does not have the schema of the old one")
    trailer = len(footer).to_bytes(4, "little") + b"PAR1"
    try:
        found = pq.read_metadata(pa.BufferReader(b"PAR1" + footer + trailer))
    except (pa.ArrowException, OSError) as error:
        raise CannotSpliceError(f"pyarrow cannot read the new footer: {error}") from error
    counts = [found.row_group(number).num_rows for number in range(found.num_row_groups)]
    if counts != list(rows) or found.num_rows != sum(rows):
        raise CannotSpliceError("the new file does not have the rows it should have")
    check_apart([*_chunks(found), *indexes], data_end)


def _chunks(metadata: pq.FileMetaData) -> Iterator[Range]:
    """The range in which pyarrow reads the pages of each column chunk."""
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for leaf in range(group.num_columns):
            chunk = group.column(leaf)
            start, dictionary = chunk.data_page_offset, chunk.dictionary_page_offset
            if dictionary:
                start = min(start, dictionary)
            yield Range(start, chunk.total_compressed_size)
