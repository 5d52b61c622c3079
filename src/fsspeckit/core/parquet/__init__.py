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
from fsspeckit.core.parquet.format.thrift import (
    BYTES,
    INT,
    RAW,
    Spec,
    ThriftError,
    decode,
    encode,
    field_end,
)
from fsspeckit.core.parquet.key_prefilter import KeyPrefilter, PrefilteredRows, prefilter_chunk
from fsspeckit.core.parquet.splice.assembler import (
    ChunkStyle,
    EncodedChunk,
    Original,
    Splicer,
    WriterStyle,
    check_encodable,
    check_spliced,
    encode_groups,
    open_original,
    open_sink,
    writer_styles,
)
from fsspeckit.core.parquet.splice.columns import ColumnSplice, NewColumn, updated_key_values
from fsspeckit.core.parquet.splice.writer_properties import (
    WriterProperties,
    decoded_bytes,
    properties_of_new_files,
    read_writer_properties,
    sorting_columns,
)
from fsspeckit.core.parquet.verify.file import VerifiedFooter, verify_footer, verify_row_groups

if TYPE_CHECKING:
    from fsspeckit.core.parquet.format.layout import Read as Read

__all__ = [
    "BYTES",
    "INT",
    "RAW",
    "BloomFilter",
    "CannotSpliceError",
    "Chunk",
    "ChunkStyle",
    "Column",
    "ColumnSplice",
    "EncodedChunk",
    "FileLayout",
    "Group",
    "KeyPrefilter",
    "NewColumn",
    "Original",
    "PrefilteredRows",
    "Spec",
    "Splicer",
    "ThriftError",
    "VerifiedFooter",
    "WriterProperties",
    "WriterStyle",
    "bound_exactness",
    "check_chunks",
    "check_columns",
    "check_encodable",
    "check_spliced",
    "columns_of",
    "decode",
    "decoded_bytes",
    "encode",
    "encode_groups",
    "field_end",
    "hash_values",
    "header_and_bitset_length",
    "open_original",
    "open_sink",
    "parse_layout",
    "prefilter_chunk",
    "properties_of_new_files",
    "read_footer",
    "read_writer_properties",
    "sorting_columns",
    "updated_key_values",
    "verify_footer",
    "verify_row_groups",
    "writer_styles",
]
