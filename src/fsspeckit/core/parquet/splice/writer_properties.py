"""The writer properties of a file, so that a file that replaces it is written in the same way.

pyarrow decodes a file without saying how it was encoded. Codec, encodings, page version, physical
types, bloom filters, page index and metadata are read from the footer, and become options of
pyarrow's writer.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.arrow_compat import (
    Unit,
    has_nanoseconds,
    int96_columns,
    physical_types,
    with_int96_as,
)
from fsspeckit.core.keys import plain_type, plain_values
from fsspeckit.core.parquet.format.pages import DATA_PAGE, DATA_PAGE_V2, DICTIONARY_ENCODINGS
from fsspeckit.core.parquet.format.thrift import INT, Spec, ThriftError, decode, decode_field

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from fsspeckit.core.parquet.format.layout import Chunk

_PAGE_HEADER: Spec = {1: INT, 4: INT}
_PAGE_HEADER_BYTES = 4096
_WIDTHS = {"INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
"""The size of a plain value, where all have the same, by physical type in the format's order."""

_WIDTH_OF_NUMBER = dict(enumerate(_WIDTHS.values(), start=1))
_LENGTH_BYTES = 4
_UNKNOWN = 64
"""The size that a string is taken to have where a footer does not say."""
_DATA_PAGES = (DATA_PAGE, DATA_PAGE_V2)
# Of a column chunk: its statistics, the pages of each encoding, its size statistics.
_STATISTICS, _ENCODING_STATS, _SIZE_STATISTICS = 12, 13, 16

# A larger dictionary is often not smaller than plain values after compression.
_MAX_DICTIONARY_SHARE = 0.6
# pyarrow gives up a dictionary that is larger.
_MAX_DICTIONARY_BYTES = 1 << 20
_SAMPLED_ROWS = 4096
_MIN_SAMPLED_ROWS = 4 * _SAMPLED_ROWS
_MIN_WIDTH = 4
_DICTIONARY = {"PLAIN_DICTIONARY", "RLE_DICTIONARY"}
_SPECIAL_ENCODINGS = (
    "DELTA_BINARY_PACKED",
    "DELTA_LENGTH_BYTE_ARRAY",
    "DELTA_BYTE_ARRAY",
    "BYTE_STREAM_SPLIT",
)
_CODECS = {"UNCOMPRESSED": "NONE", "LZ4_RAW": "LZ4", "LZ4_HADOOP": "LZ4"}
BLOOM_FPP = 0.01


@dataclass(frozen=True)
class WriterProperties:
    """The schema of a file, and the options that make pyarrow write one like it."""

    schema: pa.Schema
    """The schema to write; INT96 timestamps without zone."""

    options: dict[str, Any]
    """Keyword arguments of ``pyarrow.parquet.ParquetWriter``."""

    int96: frozenset[str] = frozenset()
    """Top-level columns that are INT96, or contain INT96."""

    key_values: dict[bytes, bytes] = field(default_factory=dict)
    """Metadata of the file that is not part of its Arrow schema."""

    physical: tuple[str, ...] = ()
    """The physical type of each leaf column of the file."""

    unit: Unit = "us"
    """The unit in which INT96 is decoded."""

    def meaning(self) -> pa.Schema:
        """The schema with INT96 columns as timestamps with the zone UTC."""
        return with_int96_as(self.schema, self.physical, pa.timestamp(self.unit, "UTC"))

    @property
    def writes_int96(self) -> bool:
        """Whether INT96 columns stay INT96.

        pyarrow writes all timestamps of a file as INT96, or none. Beside others INT96 becomes
        INT64 with the zone UTC: the same instants for every reader.
        """
        return bool(self.options.get("use_deprecated_int96_timestamps"))

    def with_types(self, schema: pa.Schema) -> WriterProperties:
        """These properties with other types; columns with INT96 keep theirs."""
        leaves = iter(self.physical)
        fields: list[pa.Field] = []
        physical: list[str] = []
        for old, new in zip(self.schema, schema, strict=True):
            stored = [next(leaves) for _ in range(len(_leaves(old.type)))]
            stays = old.name in self.int96 or old.type.equals(new.type)
            fields.append(old if stays else new)
            physical += stored if stays else [""] * len(_leaves(new.type))
        found = pa.schema(fields, self.schema.metadata)
        return replace(self, schema=found, physical=tuple(physical))

    def with_columns(self, wanted: Sequence[tuple[pa.Field, str | None]]) -> WriterProperties:
        """These properties for other columns.

        Args:
            wanted: Each new column, and the old one that is written in the same way; None for one
                that is written like others.
        """
        leaves = iter(self.physical)
        physical = {f.name: [next(leaves, "") for _ in _leaves(f.type)] for f in self.schema}
        old_types = dict(zip(self.schema.names, self.schema.types, strict=True))
        fields: list[pa.Field] = []
        stored: list[str] = []
        renamed: dict[str, str | None] = {}
        for new, old in wanted:
            same = old is not None and len(_leaves(new.type)) == len(physical[old])
            same = same and new.type.equals(old_types[old])
            stays = old in self.int96 or same
            fields.append(new.with_type(old_types[old]) if stays else new)
            stored += physical[old] if stays and old is not None else [""] * len(_leaves(new.type))
            for path, _ in _leaves(new.type, new.name):
                renamed[path] = None if old is None else old + path.removeprefix(new.name)
        int96 = frozenset(new.name for new, old in wanted if old in self.int96)
        return replace(
            self,
            schema=pa.schema(fields, self.schema.metadata),
            options=_renamed_options(self.options, renamed),
            int96=int96,
            physical=tuple(stored),
        )

    def with_dictionaries_for(self, rows: pa.Table) -> WriterProperties:
        """These properties with dictionaries where they pay for rows like these.

        A sample decides, of the flat columns of many rows; elsewhere a dictionary costs little.
        """
        if rows.num_rows < _MIN_SAMPLED_ROWS:
            return self
        drawn = pa.array(np.random.default_rng(0).integers(0, rows.num_rows, _SAMPLED_ROWS))
        paths = [
            path
            for field, column in zip(rows.schema, rows.columns, strict=True)
            if _may_pay(column, drawn)
            for path, _ in _leaves(field.type, field.name)
        ]
        return replace(self, options={**self.options, "use_dictionary": paths or False})

    def dictionaries_that_save(self, rows: pa.Table) -> dict[str, bool]:
        """Whether a dictionary saves bytes for rows like these, by flat column.

        Empty where there are too few rows to say.
        """
        if rows.num_rows < _MIN_SAMPLED_ROWS:
            return {}
        found = self.with_dictionaries_for(rows).options["use_dictionary"] or ()
        flat = [field.name for field in rows.schema if not pa.types.is_nested(field.type)]
        return {name: name in found for name in flat}

    def sorted_by(self, names: Sequence[str]) -> WriterProperties:
        """These properties for rows in ascending order of some flat columns, NULL last."""
        leaves = [path for f in self.schema for path, _ in _leaves(f.type, f.name)]
        order = [pq.SortingColumn(leaves.index(name)) for name in names]
        known = self.options.get("write_statistics", True)
        statistics = known if isinstance(known, bool) else sorted({*known, *names})
        options = {"sorting_columns": order, "write_statistics": statistics or list(names)}
        return replace(self, options={**self.options, **options})

    def with_blooms(self, names: Sequence[str], rows: int) -> WriterProperties:
        """These properties with bloom filters for some more columns."""
        known = self.options.get("bloom_filter_options") or {}
        added = {name: {"ndv": max(rows, 1), "fpp": BLOOM_FPP} for name in names}
        blooms = {"bloom_filter_options": known | added or None}
        return replace(self, options={**self.options, **blooms})

    def with_unit(self, unit: Unit) -> WriterProperties:
        """These properties with INT96 decoded in another unit."""
        stored = pa.timestamp(unit, None if self.writes_int96 else "UTC")
        schema = with_int96_as(self.schema, self.physical, stored)
        return replace(self, schema=schema, unit=unit)


def _renamed_options(
    options: Mapping[str, Any], renamed: Mapping[str, str | None]
) -> dict[str, Any]:
    """Return options for leaf columns with other paths; new ones are written like others."""
    made = {**options, "sorting_columns": None}
    for name in ("compression", "column_encoding", "bloom_filter_options"):
        if isinstance(known := options.get(name), dict):
            made[name] = {new: known[old] for new, old in renamed.items() if old in known} or None
    if isinstance(known := options.get("compression"), dict):
        common = next(iter(known.values()), "snappy")
        made["compression"] = {new: known.get(old, common) for new, old in renamed.items()}
    for name in ("use_dictionary", "write_statistics"):
        if isinstance(known := options.get(name), list):
            every = {path for path, old in renamed.items() if old is None or old in known}
            made[name] = sorted(every) or False
    return made


def _leaves(data_type: pa.DataType, path: str = "") -> list[tuple[str, pa.DataType]]:
    """The path and the type of each leaf column of a column."""
    if isinstance(data_type, pa.BaseExtensionType):
        return _leaves(data_type.storage_type, path)
    if not pa.types.is_nested(data_type):
        return [(path, data_type)]
    if pa.types.is_map(data_type):
        inside = {"key_value.key": data_type.key_type, "key_value.value": data_type.item_type}
    elif pa.types.is_struct(data_type):
        inside = {field.name: field.type for field in data_type}
    else:
        inside = {"list.element": data_type.value_type}
    return [leaf for name, kind in inside.items() for leaf in _leaves(kind, f"{path}.{name}")]


def read_writer_properties(
    metadata: pq.FileMetaData,
    schema: pa.Schema,
    read: Callable[[int, int], bytes],
    *,
    unchanged: Collection[str] = (),
) -> WriterProperties:
    """Find out how a file was written.

    Args:
        metadata: The footer.
        schema: The Arrow schema as the file is read.
        read: Reads bytes of the file: offset, length.
        unchanged: Columns that will keep their values; the sort order by these stays.
    """
    chunks = _example_chunks(metadata)
    physical = physical_types(metadata.schema)
    int96 = int96_columns(schema, physical)
    stays_int96 = bool(int96) and not _has_other_timestamps(schema, physical)
    options: dict[str, Any] = {
        "version": "1.0" if metadata.format_version == "1.0" else "2.6",
        "store_schema": b"ARROW:schema" in (metadata.metadata or {}),
        "use_deprecated_int96_timestamps": stays_int96,
        "compression": {path: _codec(chunk) for path, chunk in chunks.items()} or "snappy",
        "write_statistics": _with_statistics(chunks, stays_int96) or False,
        "write_page_index": any(chunk.has_offset_index for chunk in chunks.values()),
        "bloom_filter_options": _bloom_options(metadata),
        "sorting_columns": sorting_columns(metadata, unchanged),
        **_encodings(chunks),
        **_type_options(metadata.schema),
        **_page_options(chunks, read),
    }
    if options["version"] == "1.0" and not _same_types(metadata.schema, schema, options):
        options["version"] = "2.6"
    key_values = _key_values(metadata, schema, options)
    return WriterProperties(_roomy(schema), options, int96, key_values, physical).with_unit("us")


def _roomy(schema: pa.Schema) -> pa.Schema:
    """A schema whose Arrow dictionaries have room for new values; files store plain ones."""
    fields = [
        f.with_type(pa.dictionary(pa.int32(), f.type.value_type, f.type.ordered))
        if pa.types.is_dictionary(f.type)
        else f
        for f in schema
    ]
    return pa.schema(fields, schema.metadata)


def _key_values(
    metadata: pq.FileMetaData, schema: pa.Schema, options: dict[str, Any]
) -> dict[bytes, bytes]:
    """Metadata that pyarrow does not write: without a stored schema, that of the schema, too."""
    written = (schema.metadata or {}) if options["store_schema"] else {}
    found = metadata.metadata or {}
    return {k: v for k, v in found.items() if k != b"ARROW:schema" and k not in written}


def properties_of_new_files(
    like: WriterProperties | None,
    schema: pa.Schema,
    compression: str,
    blooms: Mapping[str, int],
) -> WriterProperties:
    """The properties of new files: physical types as in the dataset, the rest as the caller says.

    Args:
        like: The properties of a file of the dataset; None if there is none yet.
        schema: The schema of new files, if there is no file yet.
        compression: The codec.
        blooms: Columns that get bloom filters, with the maximum number of values of a row group.
    """
    kept = ("use_deprecated_int96_timestamps", "store_decimal_as_integer", "write_page_index")
    options = {name: like.options[name] for name in kept if like and name in like.options}
    options["compression"] = compression
    options["bloom_filter_options"] = {
        name: {"ndv": max(rows, 1), "fpp": BLOOM_FPP} for name, rows in blooms.items()
    } or None
    if like is None:
        return WriterProperties(schema, options)
    properties = WriterProperties(like.schema, options, like.int96, physical=like.physical)
    finer = any(has_nanoseconds(f.type) for f in schema if f.name in like.int96)
    return properties.with_unit("ns" if finer and properties.writes_int96 else "us")


def _example_chunks(metadata: pq.FileMetaData) -> dict[str, pq.ColumnChunkMetaData]:
    """The chunks of the first row group with rows, by column."""
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if group.num_rows:
            chunks = (group.column(index) for index in range(group.num_columns))
            return {chunk.path_in_schema: chunk for chunk in chunks}
    return {}


def _codec(chunk: pq.ColumnChunkMetaData) -> str:
    return _CODECS.get(chunk.compression, str(chunk.compression))


def _encodings(chunks: dict[str, pq.ColumnChunkMetaData]) -> dict[str, Any]:
    if not chunks:
        return {}
    encodings = {path: set(chunk.encodings) for path, chunk in chunks.items()}
    with_dictionary = [
        path for path, chunk in chunks.items() if _DICTIONARY & encodings[path] and _pays(chunk)
    ]
    special = {
        path: encoding
        for path in encodings.keys() - set(with_dictionary)
        for encoding in _SPECIAL_ENCODINGS
        if encoding in encodings[path]
    }
    return {"use_dictionary": with_dictionary or False, "column_encoding": special or None}


def _pays(chunk: pq.ColumnChunkMetaData) -> bool:
    width = _WIDTHS.get(chunk.physical_type)
    return width is None or _saves_enough(chunk.total_uncompressed_size, chunk.num_values * width)


def dictionary_pays(chunk: Chunk, length: int | None = None) -> bool:
    """Whether the dictionary of a chunk saves enough over plain values, as far as a footer says.

    Where nearly all values differ it does not, and building it is most of the work of encoding:
    writers make one by default, and keep it while it is small enough.

    Args:
        chunk: The chunk.
        length: The size of its values, where the schema states one.
    """
    known = chunk.metadata
    try:
        stated = decode_field(known, _ENCODING_STATS, [{1: INT, 2: INT, 3: INT}]) or ()
        pages = [tuple(one.values[n] for n in (1, 2, 3)) for one in stated]
        nulls = _stated_number(chunk, _STATISTICS, 3) or 0
        texts = _stated_number(chunk, _SIZE_STATISTICS, 1)
    except (ThriftError, KeyError):
        return True  # readers do not need these fields
    data = [(encoding, count) for kind, encoding, count in pages if kind in _DATA_PAGES]
    indexed = sum(count for encoding, count in data if encoding in DICTIONARY_ENCODINGS)
    if sum(count for _, count in data) > 2 * indexed:
        return False  # the writer has given it up, and written most pages without it
    values = known.values[5] - nulls
    if not values:
        return True  # nothing is known about the values that replace NULLs
    width = length or _WIDTH_OF_NUMBER.get(known.values[1])
    if width is not None:
        return _saves_enough(chunk.raw_bytes, values * width)
    return texts is None or _saves_enough(chunk.raw_bytes, values * _LENGTH_BYTES + texts)


def decoded_bytes(chunk: Chunk, length: int | None = None) -> int:
    """About how much memory the values of a chunk take, which may be few bytes in the file."""
    values: int = chunk.metadata.values[5]
    width = length or _WIDTH_OF_NUMBER.get(chunk.metadata.values[1])
    texts: int | None = None
    if width is None:
        with suppress(ThriftError):
            texts = _stated_number(chunk, _SIZE_STATISTICS, 1)
    plain = values * (width or _LENGTH_BYTES) + texts if texts else values * (width or _UNKNOWN)
    return max(chunk.raw_bytes, plain)


def _stated_number(chunk: Chunk, struct: int, number: int) -> int | None:
    """A number inside a struct of the metadata of a chunk, if the writer states it."""
    found = decode_field(chunk.metadata, struct, {number: INT})
    return None if found is None else found.values.get(number)


def _may_pay(column: pa.ChunkedArray, drawn: pa.Array) -> bool:
    """Whether a dictionary would save enough, judged by the values at some random positions."""
    if pa.types.is_dictionary(column.type) or pa.types.is_nested(plain_type(column.type)):
        return True
    sample = plain_values(column.take(drawn).combine_chunks()).drop_null()
    values, count = len(column) - column.null_count, len(sample)
    try:
        found = len(sample.unique())
    except pa.ArrowNotImplementedError:
        return True
    if 2 * found > count:  # the fewer values occur twice, the more there are in all
        found = count**2 // max(2 * (count - found), 1)
    width = max(_MIN_WIDTH, sample.nbytes / max(count, 1))
    raw_bytes = found * width + values * found.bit_length() / 8
    return found * width <= _MAX_DICTIONARY_BYTES and _saves_enough(raw_bytes, values * width)


def _saves_enough(raw_bytes: float, plain_bytes: float) -> bool:
    return raw_bytes <= _MAX_DICTIONARY_SHARE * plain_bytes


def _bloom_options(metadata: pq.FileMetaData) -> dict[str, dict[str, float]] | None:
    """The filters that pyarrow can write: not those of booleans, which arrow-rs writes."""
    options: dict[str, dict[str, float]] = {}
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for index in range(group.num_columns):
            chunk = group.column(index)
            if chunk.bloom_filter_offset is not None and chunk.physical_type != "BOOLEAN":
                path = chunk.path_in_schema
                rows = max(group.num_rows, 1, int(options.get(path, {}).get("ndv", 0)))
                options[path] = {"ndv": rows, "fpp": BLOOM_FPP}
    return options or None


def sort_order(metadata: pq.FileMetaData) -> list[tuple[str | None, pq.SortingColumn]]:
    """The sort order that all row groups share, with column names; None for a nested column."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    orders = [group.sorting_columns for group in groups]
    shared = takewhile(lambda columns: len(set(columns)) == 1, zip(*orders, strict=False))
    leaves = [(metadata.schema.column(c.column_index), c) for c, *_ in shared]
    return [(leaf.name if leaf.path == leaf.name else None, c) for leaf, c in leaves]


def sorting_columns(
    metadata: pq.FileMetaData, unchanged: Collection[str]
) -> list[pq.SortingColumn] | None:
    """The sort order up to the first column that changes."""
    kept = takewhile(lambda column: column[0] in unchanged, sort_order(metadata))
    return [column for _, column in kept] or None


def _type_options(schema: pq.ParquetSchema) -> dict[str, bool]:
    leaves = [schema.column(index) for index in range(len(schema))]
    logical = [(leaf, json.loads(leaf.logical_type.to_json())) for leaf in leaves]
    return {
        "store_decimal_as_integer": any(
            kind.get("Type") == "Decimal" and leaf.physical_type in ("INT32", "INT64")
            for leaf, kind in logical
        ),
        "write_time_adjusted_to_utc": any(
            kind.get("Type") == "Time" and kind.get("isAdjustedToUTC") for _, kind in logical
        ),
        "use_compliant_nested_type": not any(".list.item" in leaf.path for leaf in leaves),
    }


def _page_options(
    chunks: dict[str, pq.ColumnChunkMetaData], read: Callable[[int, int], bytes]
) -> dict[str, Any]:
    """Page version and checksums, from the header of one data page."""
    for chunk in chunks.values():
        try:
            header, _ = decode(read(chunk.data_page_offset, _PAGE_HEADER_BYTES), _PAGE_HEADER)
        except ThriftError:
            continue  # the header is longer than what was read
        version = "2.0" if header.values.get(1) == DATA_PAGE_V2 else "1.0"
        return {"data_page_version": version, "write_page_checksum": 4 in header.values}
    return {}


def _has_other_timestamps(schema: pa.Schema, physical: Sequence[str]) -> bool:
    """Whether a file with INT96 also has other timestamps."""
    rest = with_int96_as(schema, physical, pa.null())
    return any(_holds_timestamp(field.type) for field in rest)


def _holds_timestamp(data_type: pa.DataType) -> bool:
    if not pa.types.is_nested(data_type):
        return bool(pa.types.is_timestamp(data_type))
    return any(_holds_timestamp(data_type.field(n).type) for n in range(data_type.num_fields))


def _with_statistics(chunks: dict[str, pq.ColumnChunkMetaData], stays_int96: bool) -> list[str]:
    """The columns with statistics; INT96 has no useful ones, but the type it becomes has."""
    return [
        path
        for path, chunk in chunks.items()
        if chunk.is_stats_set or (chunk.physical_type == "INT96" and not stays_int96)
    ]


def _same_types(parquet: pq.ParquetSchema, schema: pa.Schema, options: dict[str, Any]) -> bool:
    """Whether the options keep the physical type of every column, tried on an empty file."""
    sink = pa.BufferOutputStream()
    simple = {**options, "bloom_filter_options": None, "sorting_columns": None}
    with pq.ParquetWriter(sink, schema, **simple) as writer:
        writer.write_table(pa.Table.from_batches([], schema))
    written = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    return len(written) == len(parquet) and all(
        _stored_as(written.column(index)) == _stored_as(parquet.column(index))
        for index in range(len(parquet))
    )


def _stored_as(leaf: pq.ColumnSchema) -> tuple[str, str | None]:
    """The physical type, and the unit of a time: version 1.0 has no nanoseconds."""
    logical = json.loads(leaf.logical_type.to_json())
    return leaf.physical_type, logical.get("timeUnit")
