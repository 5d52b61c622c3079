"""Reads and writes the parts of Parquet files that pyarrow does not expose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsspeckit.core.parquet.format.bloom_filter import (
    BloomFilter,
    hash_values,
    header_and_bitset_length,
)
from fsspeckit.core.parquet.format.layout import (
    CannotSpliceError,
    Chunk,
    Column,
    FileLayout,
    Group,
    bound_exactness,
    check_columns,
    columns_of,
    parse_layout,
    read_footer,
)
from fsspeckit.core.parquet.format.pages import check_chunks
from fsspeckit.core.parquet.format.thrift import BYTES, INT, RAW, Spec, ThriftError, decode, encode
from fsspeckit.core.parquet.patch.chunk import ColumnPatch, can_patch, patch_chunks
from fsspeckit.core.parquet.patch.key_prefilter import (
    KeyPrefilter,
    PrefilteredRows,
    prefilter_chunk,
)
from fsspeckit.core.parquet.patch.page_reader import IndexedPages, PageReader, PageValues
from fsspeckit.core.parquet.splice.assembler import (
    Original,
    Splicer,
    check_spliced,
    open_original,
    open_sink,
)
from fsspeckit.core.parquet.splice.chunk_encoder import (
    EncodedChunk,
    check_encodable,
    chunk_options,
    encode_columns,
    merged_options,
    page_options,
    shared_options,
)
from fsspeckit.core.parquet.splice.writer_properties import (
    WriterProperties,
    properties_of_new_files,
    read_writer_properties,
    sorting_columns,
)

if TYPE_CHECKING:
    from fsspeckit.core.parquet.format.layout import Read as Read

__all__ = [
    "BYTES",
    "INT",
    "RAW",
    "BloomFilter",
    "CannotSpliceError",
    "Chunk",
    "Column",
    "ColumnPatch",
    "EncodedChunk",
    "FileLayout",
    "Group",
    "IndexedPages",
    "KeyPrefilter",
    "Original",
    "PageReader",
    "PageValues",
    "PrefilteredRows",
    "Spec",
    "Splicer",
    "ThriftError",
    "WriterProperties",
    "bound_exactness",
    "can_patch",
    "check_chunks",
    "check_columns",
    "check_encodable",
    "check_spliced",
    "chunk_options",
    "columns_of",
    "decode",
    "encode",
    "encode_columns",
    "hash_values",
    "header_and_bitset_length",
    "merged_options",
    "open_original",
    "open_sink",
    "page_options",
    "parse_layout",
    "patch_chunks",
    "prefilter_chunk",
    "properties_of_new_files",
    "read_footer",
    "read_writer_properties",
    "shared_options",
    "sorting_columns",
]
