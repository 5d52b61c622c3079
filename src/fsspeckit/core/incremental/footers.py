"""Footers: what a merge needs to know of a data file before it reads any data.

Each file is opened once and its tail read once; pyarrow parses the footer from those bytes.
Statistics are kept per row group and by full column path, as the raw physical values in the
footer: what they mean, and whether to believe them, is decided where they are compared with keys.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.incremental.casts import plain_type
from fsspeckit.errors import UnreadableFileError
from fsspeckit.storage.ranges import read_tail

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fsspeckit.storage.listing import DataFile
    from fsspeckit.storage.roots import Root

__all__ = ["ChunkStatistics", "FileFooter", "Leaf", "RowGroup", "read_footer", "read_footers"]

_TAIL_BYTES = 64 * 1024
_TRAILER_BYTES = 8
_MAGIC = b"PAR1"
_ENCRYPTED_MAGIC = b"PARE"
_KEPT_FOOTER_BYTES = 256 * 1024

# Parsing holds the interpreter lock: a few threads hide the latency of a cold disk.
_LOCAL_WORKERS = 4
_REMOTE_WORKERS = 16


@dataclass(frozen=True, slots=True)
class Leaf:
    """The stored type of a top-level column."""

    physical: str
    """The Parquet physical type, for example ``INT64``."""

    type: pa.DataType
    """The Arrow type of its values, without dictionaries; INT96 is an instant in UTC."""

    index: int
    """The position among the leaf columns of the file."""

    length: int = 0
    """The width of a fixed-length byte array."""


@dataclass(frozen=True, slots=True)
class ChunkStatistics:
    """What the footer says about one column in one row group, as physical values."""

    low: Any = None
    high: Any = None
    """The bounds; None where the footer has none."""

    null_count: int | None = None
    """None where unknown; absent is not zero."""

    bloom_offset: int | None = None
    bloom_length: int | None = None


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group and the statistics of the columns asked for."""

    rows: int
    bytes: int
    columns: dict[str, ChunkStatistics] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FileFooter:
    """What is known of a data file without reading its data."""

    file: DataFile
    rows: int = 0
    row_groups: tuple[RowGroup, ...] = ()
    schema: pa.Schema | None = None
    created_by: str = ""
    leaves: dict[str, Leaf] = field(default_factory=dict)
    """The stored types of the columns asked for, by name; a column not stored is not here."""

    raw: bytes | None = None
    """The footer's own bytes, kept where they may be needed again and are not too many."""

    error: str | None = None
    """Why the footer could not be read; such a file is never pruned."""


@dataclass(frozen=True)
class _SchemaView:
    """A Parquet schema with what is derived from it once for all files that share it."""

    parquet: pq.ParquetSchema
    arrow: pa.Schema
    leaves: dict[str, Leaf]


def read_footers(
    root: Root, files: Sequence[DataFile], columns: Iterable[str] | None
) -> list[FileFooter]:
    """Read the footers of many files.

    Args:
        root: Where the files are.
        files: The files of one listing.
        columns: The top-level columns whose statistics are wanted; None for all.

    Returns:
        One footer for each file, in order; unreadable ones have ``error`` set.

    Raises:
        OSError: What the filesystem raised, naming the file.
    """
    workers = min(_LOCAL_WORKERS if root.is_local else _REMOTE_WORKERS, len(files))
    wanted = None if columns is None else tuple(columns)
    if workers <= 1:
        return _read_all(root, files, wanted)
    shares = [files[start::workers] for start in range(workers)]
    footers: list[FileFooter | None] = [None] * len(files)
    with ThreadPoolExecutor(workers, thread_name_prefix="fsspeckit-footers") as pool:
        results = pool.map(lambda share: _read_all(root, share, wanted), shares)
        for start, share in enumerate(results):
            footers[start::workers] = share
    return [footer for footer in footers if footer is not None]


def _read_all(
    root: Root, files: Sequence[DataFile], columns: tuple[str, ...] | None
) -> list[FileFooter]:
    views: list[_SchemaView] = []
    return [_read_one(root, file, columns, views) for file in files]


def read_footer(root: Root, file: DataFile, columns: Iterable[str]) -> FileFooter:
    """Read the footer of one file.

    Raises:
        UnreadableFileError: If the file is not readable as Parquet.
    """
    footer = _read_one(root, file, tuple(columns), [])
    if footer.error is not None:
        raise UnreadableFileError(footer.error)
    return footer


def _read_one(
    root: Root, file: DataFile, columns: tuple[str, ...] | None, views: list[_SchemaView]
) -> FileFooter:
    try:
        raw = footer_bytes(root, file)
        metadata = pq.read_metadata(pa.BufferReader(_MAGIC + raw + _trailer(raw)))
    except (UnreadableFileError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        reason = f"{root.spelled(file.path)!r} is not readable as Parquet: {error}"
        return FileFooter(file, error=reason)
    except OSError as error:
        # pyarrow reports a damaged footer as OSError without an errno; a real one has it.
        if error.errno is not None:
            raise
        reason = f"{root.spelled(file.path)!r} is not readable as Parquet: {error}"
        return FileFooter(file, error=reason)
    view = _view(metadata, views)
    wanted = view.leaves if columns is None else columns
    leaves = {name: view.leaves[name] for name in wanted if name in view.leaves}
    return FileFooter(
        file,
        metadata.num_rows,
        tuple(_row_group(metadata.row_group(i), leaves) for i in range(metadata.num_row_groups)),
        view.arrow,
        metadata.created_by or "",
        leaves,
        raw if _may_need_raw(raw, leaves) else None,
    )


def footer_bytes(root: Root, file: DataFile) -> bytes:
    """The serialised footer of a file, in one read where it is not unusually large.

    Raises:
        UnreadableFileError: If the file does not end like a Parquet file.
        OSError: What the filesystem raised.
    """
    tail, size = read_tail(root, file, _TAIL_BYTES)
    magic = tail[-4:]
    if len(tail) < _TRAILER_BYTES + len(_MAGIC) or magic not in (_MAGIC, _ENCRYPTED_MAGIC):
        raise UnreadableFileError("it does not end with a Parquet footer.")
    if magic == _ENCRYPTED_MAGIC:
        raise UnreadableFileError("its footer is encrypted.")
    length = int.from_bytes(tail[-8:-4], "little") + _TRAILER_BYTES
    if length > size - len(_MAGIC):
        raise UnreadableFileError(f"its footer claims {length:,} of {size:,} bytes.")
    if length > len(tail):
        tail, _ = read_tail(root, file, length)
    return tail[-length:-_TRAILER_BYTES]


def _trailer(raw: bytes) -> bytes:
    return len(raw).to_bytes(4, "little") + _MAGIC


def _may_need_raw(raw: bytes, leaves: dict[str, Leaf]) -> bool:
    """Exactness flags matter for byte-array bounds only, and pyarrow does not expose them."""
    is_bytes = any(leaf.physical == "BYTE_ARRAY" for leaf in leaves.values())
    return is_bytes and len(raw) <= _KEPT_FOOTER_BYTES


def _row_group(group: pq.RowGroupMetaData, leaves: dict[str, Leaf]) -> RowGroup:
    return RowGroup(
        group.num_rows,
        group.total_byte_size,
        {name: _statistics(group.column(leaf.index)) for name, leaf in leaves.items()},
    )


def _statistics(chunk: pq.ColumnChunkMetaData) -> ChunkStatistics:
    found = chunk.statistics
    bloom = (chunk.bloom_filter_offset, chunk.bloom_filter_length)
    if found is None:
        return ChunkStatistics(None, None, None, *bloom)
    nulls = found.null_count if found.has_null_count else None
    if not found.has_min_max:
        return ChunkStatistics(None, None, nulls, *bloom)
    return ChunkStatistics(found.min_raw, found.max_raw, nulls, *bloom)


def _view(metadata: pq.FileMetaData, views: list[_SchemaView]) -> _SchemaView:
    """The view of a file's schema; files of a dataset mostly share one."""
    schema = metadata.schema
    for view in views:
        if schema.equals(view.parquet):
            return view
    views.append(_SchemaView(schema, schema.to_arrow_schema(), _leaves(schema)))
    return views[-1]


def _leaves(schema: pq.ParquetSchema) -> dict[str, Leaf]:
    """The leaf columns that are top-level columns: a nested ``a.b`` is not a column ``a.b``."""
    arrow = schema.to_arrow_schema()
    leaves = {}
    for index in range(len(schema)):
        column = schema.column(index)
        if column.path == column.name and column.max_repetition_level == 0:
            data_type = plain_type(arrow.field(column.name).type)
            if column.physical_type == "INT96":
                data_type = pa.timestamp("us", "UTC")
            leaves[column.name] = Leaf(column.physical_type, data_type, index, column.length)
    return leaves
