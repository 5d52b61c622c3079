"""Footers: what a merge needs to know of a data file before it reads any data.

Each file is opened once and its tail read once; pyarrow parses the footer from those bytes.
Statistics are kept for each row group as the physical values in the footer: what they mean, and
whether to trust them, is decided where they are compared with keys.
"""

from __future__ import annotations

import gc
import os
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.arrow_compat import physical_types, with_int96_as
from fsspeckit.core.keys import plain_type
from fsspeckit.core.parquet import BYTES, INT, RAW, Spec, decode, field_end
from fsspeckit.core.threads import ThreadPool
from fsspeckit.errors import UnreadableFileError
from fsspeckit.storage import read_tail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from fsspeckit.storage import DataFile, Root

    FooterReader = Callable[[Root, Sequence[DataFile], Iterable[str] | None], list["FileFooter"]]

_INSTANT = pa.timestamp("us", "UTC")
_TAIL_BYTES = 64 * 1024
_TRAILER_BYTES = 8
_MAGIC = b"PAR1"
_ENCRYPTED_MAGIC = b"PARE"
_MAX_KEPT_FOOTER_BYTES = 256 * 1024

# pyarrow aborts the process at a truncated bound of a fixed-width column, which other writers
# store (arrow-rs from 64 bytes on). The bounds of such columns are read here instead.
_WHOLE_WIDTH_WRITER = "parquet-cpp-arrow"
_SCHEMA_FIELD = 2
_COLUMN_ORDERS_FIELD = 7
_ENCRYPTION_FIELD = 8
_ROW_GROUPS: Final[Spec] = {4: [{1: [RAW]}]}
_CHUNK: Final[Spec] = {3: {12: {3: INT, 5: BYTES, 6: BYTES}}}

# Parsing holds the interpreter lock: threads hide the latency of a network or a slow disk, and
# only slow each other down where there is none. The first files are timed to find out.
_LOCAL_WORKERS = 4
_REMOTE_WORKERS = 32
_TIMED_FILES = 64
_MIN_WAIT_RATIO = 2


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
    """The footer's bytes, kept if they may be needed again and are not too large."""

    error: str | None = None
    """Why the footer could not be read; such a file is never pruned."""

    is_checked: bool = False
    """Whether bounds that may be truncated are already left out."""


@dataclass(frozen=True)
class _SchemaView:
    """A schema and what is derived from it, once for all files that share it."""

    prefix: bytes
    """The beginning of these files' footers, up to the end of the Parquet schema."""

    stored: bytes | None
    """The Arrow schema that the writer left in the footer."""

    arrow: pa.Schema
    leaves: dict[str, Leaf]
    leaf_count: int


def read_footers(
    root: Root, files: Sequence[DataFile], columns: Iterable[str] | None
) -> list[FileFooter]:
    """Read the footers of files.

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
        return _read_in_threads(root, files, wanted, _REMOTE_WORKERS)
    started, worked = time.perf_counter(), time.thread_time()
    first = _read_all(root, files[:_TIMED_FILES], wanted)
    seconds, worked = time.perf_counter() - started, time.thread_time() - worked
    workers = _LOCAL_WORKERS if seconds > _MIN_WAIT_RATIO * worked else 1
    return first + _read_in_threads(root, files[_TIMED_FILES:], wanted, workers)


def _read_in_threads(
    root: Root, files: Sequence[DataFile], columns: tuple[str, ...] | None, workers: int
) -> list[FileFooter]:
    workers = min(workers, len(files))
    if workers <= 1:
        return _read_all(root, files, columns)
    size = -(-len(files) // workers)
    shares = [files[start : start + size] for start in range(0, len(files), size)]
    with ThreadPool(workers, "fsspeckit-footers") as pool:
        results = pool.map(lambda share: _read_all(root, share, columns), shares)
        return list(chain.from_iterable(results))


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
        # The bytes are read: these are pyarrow's errors for a damaged footer, for names that are
        # not UTF-8 and for encrypted column metadata.
        return _unreadable(root, file, error)


def _unreadable(root: Root, file: DataFile, error: Exception) -> FileFooter:
    reason = f"{root.to_user_path(file.path)!r} is not readable as Parquet: {error}"
    return FileFooter(file, error=reason)


def _parsed(
    file: DataFile, raw: bytes, columns: tuple[str, ...] | None, views: list[_SchemaView]
) -> FileFooter:
    trailer = len(raw).to_bytes(4, "little") + _MAGIC
    metadata = pq.read_metadata(pa.BufferReader(_MAGIC + raw + trailer))
    view = _view(metadata, raw, views)
    wanted = view.leaves if columns is None else columns
    leaves = {name: view.leaves[name] for name in wanted if name in view.leaves}
    _refuse_encrypted(raw, view.leaf_count)
    # Exactness flags matter for byte-array bounds only, and pyarrow does not expose them.
    has_bytes = any(leaf.physical == "BYTE_ARRAY" for leaf in leaves.values())
    return FileFooter(
        file,
        metadata.num_rows,
        _row_groups(metadata, raw, leaves),
        view.arrow,
        metadata.created_by or "",
        leaves,
        raw if has_bytes and len(raw) <= _MAX_KEPT_FOOTER_BYTES else None,
    )


def footer_bytes(root: Root, file: DataFile) -> bytes:
    """Return the serialised footer of a file, with one read unless it is unusually large.

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
    """Return the bytes of a footer, as they were kept or read again; None if that fails.

    None means unknown: the file may have been replaced meanwhile.
    """
    if footer.raw is not None:
        return footer.raw
    try:
        return footer_bytes(root, footer.file)
    except (UnreadableFileError, OSError):
        return None


def _refuse_encrypted(raw: bytes, leaf_count: int) -> None:
    """Refuse a file with encrypted columns: pyarrow aborts the process when it meets one."""
    # Most footers end with the default order of each column, an empty struct in a union. Only a
    # footer that ends otherwise may say that it is encrypted and has to be decoded.
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
    """Read the statistics of fixed-width columns from the bytes of the footer."""
    footer, _ = decode(raw, _ROW_GROUPS)
    if _COLUMN_ORDERS_FIELD not in footer.kinds:
        return  # it is unknown how the writer compared bytes
    for chunks, group in zip(columns, footer.values[4], strict=True):
        for name, leaf in leaves.items():
            metadata = decode(group.values[1][leaf.index], _CHUNK)[0].values.get(3)
            found = metadata.values.get(12) if metadata is not None else None
            if found is not None:
                low, high = found.values.get(6), found.values.get(5)
                whole = all(end is not None and len(end) == leaf.length for end in (low, high))
                bounds = {"low": low, "high": high} if whole else {}
                chunks[name] = replace(chunks[name], **bounds, null_count=found.values.get(3))


def _view(metadata: pq.FileMetaData, raw: bytes, views: list[_SchemaView]) -> _SchemaView:
    """Return the view of a file's schema; most files of a dataset share one.

    The bytes are compared, because pyarrow compares leaf columns without their parents and takes a
    required ``a.id`` for an ``id``.
    """
    stored = (metadata.metadata or {}).get(b"ARROW:schema")
    for view in views:
        if view.stored == stored and raw.startswith(view.prefix):
            return view
    schema = metadata.schema
    arrow = schema.to_arrow_schema()
    prefix = raw[: field_end(raw, _SCHEMA_FIELD)]
    # pyarrow reads INT96 as timestamps without zone.
    meant = with_int96_as(arrow, physical_types(schema), _INSTANT)
    views.append(_SchemaView(prefix, stored, meant, _leaves(schema, arrow), len(schema)))
    return views[-1]


def _leaves(schema: pq.ParquetSchema, arrow: pa.Schema) -> dict[str, Leaf]:
    """Return the leaf columns that are top-level columns; a nested ``a.b`` is not one.

    A name that occurs twice is left out: it does not identify a column.
    """
    counts = Counter(arrow.names)
    types = {column.name: plain_type(column.type) for column in arrow}
    leaves = {}
    for index in range(len(schema)):
        column = schema.column(index)
        is_column = column.path == column.name and column.max_repetition_level == 0
        if is_column and counts[column.name] == 1:
            physical = column.physical_type
            data_type = _INSTANT if physical == "INT96" else types[column.name]
            leaves[column.name] = Leaf(physical, data_type, index, column.length)
    return leaves


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Disable the garbage collector, in all threads, while objects are made that stay.

    Several threads may overlap here: the first to leave may enable the collector for all of them,
    and the first that entered always enables it again.
    """
    global _is_paused
    was_on = gc.isenabled()
    try:
        if was_on:
            _is_paused = True
            gc.disable()
        yield
    finally:
        if was_on:
            gc.enable()
            _is_paused = False


_is_paused = False


def _end_pause_in_child() -> None:
    """Enable the collector in a process that was forked during a pause: nobody else would."""
    if _is_paused:
        gc.enable()


os.register_at_fork(after_in_child=_end_pause_in_child)
