"""Footers: what a merge needs to know of a data file before it reads any data.

Each file is opened once and its tail read once; pyarrow parses the footer from those bytes.
Statistics are kept per row group and by full column path, as the raw physical values in the
footer: what they mean, and whether to believe them, is decided where they are compared with keys.

Pauses of the garbage collector, where many objects are made that stay.

Each time enough objects are new, the collector looks at all that there are, and here it finds
nothing to collect.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.arrow_compat import physical_types, with_int96_as
from fsspeckit.core.keys import plain_type
from fsspeckit.core.parquet import BYTES, INT, RAW, Spec, decode
from fsspeckit.errors import UnreadableFileError
from fsspeckit.storage import read_tail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from fsspeckit.storage import DataFile, Root

    FooterReader = Callable[[Root, Sequence[DataFile], Iterable[str] | None], list["FileFooter"]]

__all__ = [
    "ChunkStatistics",
    "FileFooter",
    "Leaf",
    "RowGroup",
    "footer_bytes",
    "gc_disabled",
    "raw_footer",
    "read_footer",
    "read_footers",
]


# --- Footers: what a merge needs to know of a data file before it reads any data ---

_INSTANT = pa.timestamp("us", "UTC")
_TAIL_BYTES = 64 * 1024
_TRAILER_BYTES = 8
_MAGIC = b"PAR1"
_ENCRYPTED_MAGIC = b"PARE"
_KEPT_FOOTER_BYTES = 256 * 1024

# pyarrow ends the whole process at a bound of a fixed-width column that is cut short, which other
# writers do (arrow-rs from 64 bytes on). The bounds of such columns are read here instead.
_WHOLE_WIDTH_WRITER = "parquet-cpp-arrow"
_COLUMN_ORDERS_FIELD = 7
_ENCRYPTION_FIELD = 8
_ROW_GROUPS: Final[Spec] = {4: [{1: [RAW]}]}
_CHUNK: Final[Spec] = {3: {12: {3: INT, 5: BYTES, 6: BYTES}}}

# Parsing holds the interpreter lock: threads hide the latency of a network or a slow disk, and
# only get in each other's way where there is none.
_LOCAL_WORKERS = 4
_REMOTE_WORKERS = 16
_TRIED = 64
_MOSTLY_WAITED = 2


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
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    """What the file stores, in its meaning: INT96 columns are instants in UTC."""

    created_by: str = ""
    leaves: dict[str, Leaf] = field(default_factory=dict)
    """The stored types of the columns asked for, by name; a column not stored is not here."""

    raw: bytes | None = None
    """The footer's own bytes, kept where they may be needed again and are not too many."""

    error: str | None = None
    """Why the footer could not be read; such a file is never pruned."""

    is_checked: bool = False
    """Whether bounds that may have been cut are left out already."""


@dataclass(frozen=True)
class _SchemaView:
    """A schema with what is derived from it once for all files that share it."""

    prefix: bytes
    """How the footers of these files begin: up to the end of the Parquet schema."""

    stored: bytes | None
    """The Arrow schema that the writer left in the footer."""

    arrow: pa.Schema
    leaves: dict[str, Leaf]
    leaf_count: int


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
    wanted = None if columns is None else tuple(columns)
    if not root.is_local:
        return _read_at_once(root, files, wanted, _REMOTE_WORKERS)
    started, worked = time.perf_counter(), time.thread_time()
    first = _read_all(root, files[:_TRIED], wanted)
    seconds, worked = time.perf_counter() - started, time.thread_time() - worked
    workers = _LOCAL_WORKERS if seconds > _MOSTLY_WAITED * worked else 1
    return first + _read_at_once(root, files[_TRIED:], wanted, workers)


def _read_at_once(
    root: Root, files: Sequence[DataFile], columns: tuple[str, ...] | None, workers: int
) -> list[FileFooter]:
    workers = min(workers, len(files))
    if workers <= 1:
        return _read_all(root, files, columns)
    shares = [files[start::workers] for start in range(workers)]
    footers: list[FileFooter | None] = [None] * len(files)
    with ThreadPoolExecutor(workers, thread_name_prefix="fsspeckit-footers") as pool:
        results = pool.map(lambda share: _read_all(root, share, columns), shares)
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
    except UnreadableFileError as error:
        return _unreadable(root, file, error)
    try:
        return _parsed(file, raw, columns, views)
    except (pa.ArrowException, OSError, ValueError) as error:
        # No file is touched any more: these are pyarrow's words for a damaged footer, among them
        # names that are not UTF-8 and column metadata that is encrypted.
        return _unreadable(root, file, error)


def _unreadable(root: Root, file: DataFile, error: Exception) -> FileFooter:
    reason = f"{root.to_user_path(file.path)!r} is not readable as Parquet: {error}"
    return FileFooter(file, error=reason)


def _parsed(
    file: DataFile, raw: bytes, columns: tuple[str, ...] | None, views: list[_SchemaView]
) -> FileFooter:
    metadata = pq.read_metadata(pa.BufferReader(_MAGIC + raw + _trailer(raw)))
    view = _view(metadata, raw, views)
    wanted = view.leaves if columns is None else columns
    leaves = {name: view.leaves[name] for name in wanted if name in view.leaves}
    _refuse_encrypted(raw, view.leaf_count)
    return FileFooter(
        file,
        metadata.num_rows,
        _row_groups(metadata, raw, leaves),
        view.arrow,
        metadata.created_by or "",
        leaves,
        raw if _may_need_raw(raw, leaves) else None,
    )


def footer_bytes(root: Root, file: DataFile) -> bytes:
    """The serialised footer of a file, in one read where it is not unusually large.

    Raises:
        UnreadableFileError: If the file does not end like a Parquet file.
        OSError: What the filesystem raised, naming the file.
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


def raw_footer(root: Root, footer: FileFooter) -> bytes | None:
    """The bytes of a footer: as they were kept, or read again; None if that fails.

    Who asks must take None for unknown: the file may have been replaced meanwhile.
    """
    if footer.raw is not None:
        return footer.raw
    try:
        return footer_bytes(root, footer.file)
    except (UnreadableFileError, OSError):
        return None


def _trailer(raw: bytes) -> bytes:
    return len(raw).to_bytes(4, "little") + _MAGIC


def _may_need_raw(raw: bytes, leaves: dict[str, Leaf]) -> bool:
    """Exactness flags matter for byte-array bounds only, and pyarrow does not expose them."""
    is_bytes = any(leaf.physical == "BYTE_ARRAY" for leaf in leaves.values())
    return is_bytes and len(raw) <= _KEPT_FOOTER_BYTES


def _refuse_encrypted(raw: bytes, leaf_count: int) -> None:
    """Refuse a file with encrypted columns: pyarrow ends the whole process when it meets one."""
    # A footer mostly ends with the usual order of each column, an empty struct in a union. Only
    # one that ends otherwise can say that it is encrypted, and only that one has to be decoded.
    if raw.endswith(b"\x1c\0\0" * leaf_count + b"\0"):
        return
    if _ENCRYPTION_FIELD in decode(raw, {})[0].kinds:
        raise UnreadableFileError("it is encrypted.")


def _row_groups(
    metadata: pq.FileMetaData, raw: bytes, leaves: dict[str, Leaf]
) -> tuple[RowGroup, ...]:
    is_safe = (metadata.created_by or "").startswith(_WHOLE_WIDTH_WRITER)
    fixed = {
        name: leaf
        for name, leaf in leaves.items()
        if leaf.physical == "FIXED_LEN_BYTE_ARRAY" and not is_safe
    }
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = [
        {
            name: _statistics(group.column(leaf.index), name in fixed)
            for name, leaf in leaves.items()
        }
        for group in groups
    ]
    if fixed:
        _add_fixed_bounds(columns, raw, fixed)
    return tuple(
        RowGroup(group.num_rows, group.total_byte_size, chunks)
        for group, chunks in zip(groups, columns, strict=True)
    )


def _statistics(chunk: pq.ColumnChunkMetaData, only_bloom: bool) -> ChunkStatistics:
    bloom = (chunk.bloom_filter_offset, chunk.bloom_filter_length)
    found = None if only_bloom else chunk.statistics
    if found is None:
        return ChunkStatistics(None, None, None, *bloom)
    nulls = found.null_count if found.has_null_count else None
    if not found.has_min_max:
        return ChunkStatistics(None, None, nulls, *bloom)
    return ChunkStatistics(found.min_raw, found.max_raw, nulls, *bloom)


def _add_fixed_bounds(
    columns: list[dict[str, ChunkStatistics]], raw: bytes, leaves: dict[str, Leaf]
) -> None:
    """Read the statistics of fixed-width columns from the footer's own bytes."""
    footer, _ = decode(raw, _ROW_GROUPS)
    if _COLUMN_ORDERS_FIELD not in footer.kinds:
        return  # bytes compared as signed numbers, or nobody knows how
    for chunks, group in zip(columns, footer.values[4], strict=True):
        for name, leaf in leaves.items():
            metadata = decode(group.values[1][leaf.index], _CHUNK)[0].values.get(3)
            found = metadata.values.get(12) if metadata is not None else None
            if found is not None:
                low, high = found.values.get(6), found.values.get(5)
                whole = all(end is not None and len(end) == leaf.length for end in (low, high))
                ends = (low, high) if whole else (None, None)
                chunks[name] = replace(
                    chunks[name], low=ends[0], high=ends[1], null_count=found.values.get(3)
                )


def _view(metadata: pq.FileMetaData, raw: bytes, views: list[_SchemaView]) -> _SchemaView:
    """The view of a file's schema; files of a dataset mostly share one.

    Compared are the bytes: pyarrow's own comparison sees leaf columns without their parents, and
    takes a required ``a.id`` for an ``id``.
    """
    stored = (metadata.metadata or {}).get(b"ARROW:schema")
    for view in views:
        if view.stored == stored and raw.startswith(view.prefix):
            return view
    elements = b"".join(decode(raw, {2: [RAW]})[0].values[2])
    schema = metadata.schema
    arrow = schema.to_arrow_schema()
    prefix = raw[: raw.index(elements) + len(elements)]
    # pyarrow reads INT96 as timestamps without zone.
    meant = with_int96_as(arrow, physical_types(schema), _INSTANT)
    views.append(_SchemaView(prefix, stored, meant, _leaves(schema, arrow), len(schema)))
    return views[-1]


def _leaves(schema: pq.ParquetSchema, arrow: pa.Schema) -> dict[str, Leaf]:
    """The leaf columns that are top-level columns: a nested ``a.b`` is not a column ``a.b``.

    A name that occurs twice is left out: it does not tell which column is meant.
    """
    counts = Counter(arrow.names)
    types = {column.name: plain_type(column.type) for column in arrow}
    leaves = {}
    for index in range(len(schema)):
        column = schema.column(index)
        is_column = column.path == column.name and column.max_repetition_level == 0
        if is_column and counts[column.name] == 1:
            data_type = types[column.name]
            if column.physical_type == "INT96":
                data_type = _INSTANT
            leaves[column.name] = Leaf(column.physical_type, data_type, index, column.length)
    return leaves


# --- Pauses of the garbage collector, where many objects are made that stay ---


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Let nothing be collected meanwhile, in any thread; for parts of a second.

    Pauses of several threads may overlap: the first that ends may end all of them, and the one that
    began first always turns the collector on again.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
