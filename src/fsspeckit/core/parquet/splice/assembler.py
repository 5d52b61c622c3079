"""Puts a Parquet file together from parts of an old one and from new column chunks.

Pages hold no absolute offsets, so a chunk can be moved as bytes; what points at it is in the footer
and in the offset indexes, and is fixed here. Everything else in the footer stays: readers use
``created_by`` to tell which old statistics to distrust, and the key-value metadata is not ours.
Bloom filters, column indexes and offset indexes follow the data, each kind in one piece, because
readers fetch them as one range.

The last look at a spliced file, before it counts as staged.

Copies parts of one file into another without looking at them, and as bytes in between.

On a local disk the kernel copies: between files of one filesystem without the bytes ever reaching
this process, on some filesystems without copying at all. Where it refuses, and elsewhere, the bytes
are read and written in pieces.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
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
    read_footer,
)
from fsspeckit.core.parquet.format.thrift import (
    I16,
    I32,
    I64,
    INT,
    Spec,
    Struct,
    ThriftError,
    decode,
    drop_fields,
    encode,
    set_field,
)
from fsspeckit.errors import ConcurrentModificationError
from fsspeckit.storage import naming_failure, read_range

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from fsspeckit.core.parquet.format.layout import FileLayout, Group
    from fsspeckit.core.parquet.splice.chunk_encoder import EncodedChunk
    from fsspeckit.storage import Root

    Copy = Callable[[int, int, int, int], int]
    """Copies: from, to, where to read, how much at most; returns how much."""

__all__ = ["Original", "Sink", "Splicer", "check_spliced", "open_original", "open_sink"]


# --- Puts a Parquet file together from parts of an old one and from new column chunks ---

_OFFSETS: Final = (9, 10, 11)
_SORTING_COLUMNS: Final = 4
_ORDINAL: Final = 7
_LARGEST_ORDINAL: Final = 32767
_KNOWN_OF_A_GROUP: Final = frozenset(range(1, 8))
_OFFSET_INDEX: Final[Spec] = {1: [{1: INT}]}


class _Placed:
    """A chunk in the new file, and what will follow the data on its behalf."""

    def __init__(self, source: Chunk | EncodedChunk, start: int) -> None:
        self.old = _chunk_of(source)
        self.start = start
        self.metadata = self.old.metadata.copy()
        for number in _OFFSETS:
            if self.metadata.values.get(number, 0) > 0:
                self.metadata.values[number] += start - self.old.data.start
        self.struct = self.old.struct.copy()
        self.struct.values[3] = self.metadata
        set_field(self.struct, 2, 0, I64)  # deprecated, and wrong in the files of some writers
        self.bloom: Range | bytes | None
        self.column_index: Range | bytes | None
        self.offset_index: Range | bytes | None
        self.bloom, self.column_index, self.offset_index = (
            source.bloom,
            source.column_index,
            source.offset_index,
        )


class Splicer:
    """Writes one file; row groups are given in their order.

    Args:
        original: The old file.
        anatomy: Its parts.
        sink: Where the new file goes.
    """

    def __init__(self, original: Original, anatomy: FileLayout, sink: Sink) -> None:
        self._original = original
        self._anatomy = anatomy
        self._sink = sink
        self._pending: Range | None = None
        self._groups: list[Struct] = []
        self._placed: list[_Placed] = []
        self.rows = 0
        self.copied_bytes = 0
        self.indexes: list[Range] = []
        sink.write(MAGIC)

    def keep(self, group: Group) -> None:
        """Add a row group as it is."""
        self._add(group.struct.copy(), group.rows, group.chunks, group.chunks)

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
        metadata = [_chunk_of(source).metadata.values for source in chunks]
        set_field(struct, 3, rows, I64)
        set_field(struct, 2, sum(values[6] for values in metadata), I64)
        if 6 in struct.kinds:
            set_field(struct, 6, sum(values[7] for values in metadata), I64)
        self._add(struct, rows, chunks, group.chunks)

    def finish(self) -> None:
        """Write what follows the data.

        Raises:
            CannotSpliceError: If an index of the old file is damaged.
        """
        self._write_blooms()
        self._write_column_indexes()
        self._write_offset_indexes()
        self._number_groups()
        footer = self._anatomy.footer.copy()
        set_field(footer, 3, self.rows, I64)
        footer.values[4] = self._groups
        data = encode(footer)
        self._write(data + len(data).to_bytes(4, "little") + MAGIC)

    def _add(
        self,
        struct: Struct,
        rows: int,
        sources: Sequence[Chunk | EncodedChunk],
        old: Sequence[Chunk],
    ) -> None:
        # In the order in which the old file had them: adjacent chunks are then copied as one.
        order = sorted(range(len(old)), key=lambda number: old[number].data.start)
        placed = {number: self._place(sources[number]) for number in order}
        chunks = [placed[number] for number in range(len(old))]
        struct.values[1] = [chunk.struct for chunk in chunks]
        if 5 in struct.kinds:
            struct.values[5] = min(chunk.start for chunk in chunks)
        self.rows += rows
        self._groups.append(struct)
        self._placed += chunks

    def _place(self, source: Chunk | EncodedChunk) -> _Placed:
        if isinstance(source, Chunk):
            return _Placed(source, self._copy_later(source.data))
        starts = [
            self._copy_later(part) if isinstance(part, Range) else self._write(part)
            for part in source.pages
        ]
        return _Placed(source, starts[0])

    def _copy_later(self, part: Range) -> int:
        """Copy a part of the old file with what follows it; returns where it will be."""
        pending = self._pending
        if pending is not None and pending.end == part.start:
            self._pending = Range(pending.start, pending.length + part.length)
            return self._sink.position + pending.length
        self._flush()
        self._pending = part
        return self._sink.position

    def _write(self, data: bytes | memoryview) -> int:
        """Write bytes; returns where they are."""
        self._flush()
        start = self._sink.position
        self._sink.write(data)
        return start

    def _flush(self) -> None:
        if self._pending is not None:
            self._sink.copy(self._pending)
            self.copied_bytes += self._pending.length
            self._pending = None

    def _write_blooms(self) -> None:
        for chunk in self._placed:
            part = chunk.bloom
            if part is not None:
                start = self._copy_later(part) if isinstance(part, Range) else self._write(part)
                length = part.length if isinstance(part, Range) else len(part)
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
        """Say in the footer where an index is; its length is in the next field."""
        set_field(struct, number, part.start, I64)
        set_field(struct, number + 1, part.length, I32)
        self.indexes.append(part)

    def _bytes(self, part: Range | bytes) -> bytes:
        return self._original.read(part.start, part.length) if isinstance(part, Range) else part

    def _number_groups(self) -> None:
        """Number all row groups or none: some readers refuse a file that has both."""
        had_all = all(_ORDINAL in group.struct.kinds for group in self._anatomy.groups)
        if not had_all or len(self._groups) > _LARGEST_ORDINAL:
            for struct in self._groups:
                drop_fields(struct, [_ORDINAL])
            return
        for number, struct in enumerate(self._groups):
            set_field(struct, _ORDINAL, number, I16)


def _cut_sort_order(struct: Struct, unsorted: Collection[int]) -> None:
    """Promise a sort order as far as it is by columns that keep it."""
    order = struct.values.get(_SORTING_COLUMNS, [])
    kept = list(takewhile(lambda column: column.values[1] not in unsorted, order))
    if kept:
        struct.values[_SORTING_COLUMNS] = kept
    else:
        drop_fields(struct, [_SORTING_COLUMNS])


def _chunk_of(source: Chunk | EncodedChunk) -> Chunk:
    return source if isinstance(source, Chunk) else source.chunk


def _shifted(data: bytes, pages: Range, delta: int) -> bytes:
    """An offset index whose pages have moved."""
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


# --- Copies parts of one file into another without looking at them ---

_PIECE = 8 * 1024 * 1024
_MOST_AT_ONCE = 1 << 30
# What kernels and filesystems say when a way of copying is not for these two files.
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
    """The file that is copied from."""

    size: int

    def read(self, start: int, length: int) -> bytes:
        """Bytes of the file; fewer where it ends."""

    def check_unchanged(self) -> None:
        """Raise `ConcurrentModificationError` if it is no longer the file it was when opened."""


class Sink(Protocol):
    """The file that is written, from its first byte to its last."""

    position: int

    def write(self, data: Any) -> None:
        """Add bytes."""

    def copy(self, part: Range) -> None:
        """Add a part of the original."""


@contextmanager
def open_original(root: Root, path: str) -> Iterator[Original]:
    """Open a file to copy from."""
    if not root.is_local:
        yield _RemoteOriginal(root, path)
        return
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        yield _LocalOriginal(descriptor, root.to_user_path(path))
    finally:
        os.close(descriptor)


@contextmanager
def open_sink(root: Root, path: str, original: Original) -> Iterator[Sink]:
    """Open a new file to write."""
    if isinstance(original, _LocalOriginal):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0)
        descriptor = os.open(path, flags, 0o666)
        try:
            yield _LocalSink(original, descriptor)
        finally:
            os.close(descriptor)
    else:
        with root.filesystem.open(path, "wb") as handle:
            yield _RemoteSink(original, handle)


class _LocalOriginal:
    def __init__(self, descriptor: int, spelled: str) -> None:
        self.descriptor = descriptor
        self._spelled = spelled
        self._seen = self._look()
        self.size = os.fstat(descriptor).st_size

    def _look(self) -> tuple[int, int]:
        found = os.fstat(self.descriptor)
        return found.st_size, found.st_mtime_ns

    def read(self, start: int, length: int) -> bytes:
        return os.pread(self.descriptor, length, start)

    def check_unchanged(self) -> None:
        if self._look() != self._seen:
            raise _changed(self._spelled)


class _RemoteOriginal:
    def __init__(self, root: Root, path: str) -> None:
        self._root = root
        self._path = path
        self.size = self._size_now()

    def read(self, start: int, length: int) -> bytes:
        return read_range(self._root, self._path, start, length)

    def check_unchanged(self) -> None:
        # A listing may be cached; what was asked for a moment ago must be asked for again.
        self._root.filesystem.invalidate_cache(self._path)
        if self._size_now() != self.size:
            raise _changed(self._root.to_user_path(self._path))

    def _size_now(self) -> int:
        with naming_failure(self._root, self._path, "reading the size"):
            return int(self._root.filesystem.size(self._path))


def _changed(spelled: str) -> ConcurrentModificationError:
    return ConcurrentModificationError(
        f"{spelled!r} was changed by somebody else while it was copied; nothing was published.\n"
        "Hint: repeat the merge."
    )


class _LocalSink:
    def __init__(self, original: _LocalOriginal, descriptor: int) -> None:
        self._original = original
        self._descriptor = descriptor
        self._ways = list(_WAYS)
        self.position = 0

    def write(self, data: Any) -> None:
        rest = memoryview(data).cast("B")
        self.position += len(rest)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def copy(self, part: Range) -> None:
        done = 0
        while done < part.length:
            count = self._copy_some(part.start + done, min(part.length - done, _MOST_AT_ONCE))
            if not count:
                raise OSError(errno.EIO, f"the file ends before byte {part.end:,}")
            done += count
        self.position += part.length

    def _copy_some(self, start: int, most: int) -> int:
        while True:
            try:
                return self._ways[0](self._original.descriptor, self._descriptor, start, most)
            except OSError as error:
                # A way that was refused once is not tried again; the last one is never refused.
                if error.errno not in _REFUSALS or len(self._ways) == 1:
                    raise
                del self._ways[0]


def _by_range(source: int, target: int, start: int, most: int) -> int:
    return os.copy_file_range(source, target, most, start)


def _by_sendfile(source: int, target: int, start: int, most: int) -> int:
    return os.sendfile(target, source, start, most)


def _by_hand(source: int, target: int, start: int, most: int) -> int:
    piece = os.pread(source, min(most, _PIECE), start)
    rest = memoryview(piece)
    while rest:
        rest = rest[os.write(target, rest) :]
    return len(piece)


# sendfile on other systems than Linux writes to sockets only, and says so by an error.
_WAYS: list[Copy] = [
    *([_by_range] if hasattr(os, "copy_file_range") else []),
    *([_by_sendfile] if hasattr(os, "sendfile") else []),
    _by_hand,
]


class _RemoteSink:
    def __init__(self, original: Original, handle: Any) -> None:
        self._original = original
        self._handle = handle
        self.position = 0

    def write(self, data: Any) -> None:
        view = memoryview(data).cast("B")
        self._handle.write(view)
        self.position += len(view)

    def copy(self, part: Range) -> None:
        for start in range(part.start, part.end, _PIECE):
            piece = self._original.read(start, min(_PIECE, part.end - start))
            if len(piece) != min(_PIECE, part.end - start):
                raise OSError(errno.EIO, f"the file ends before byte {part.end:,}")
            self.write(piece)


# --- The last look at a spliced file, before it counts as staged ---


def check_spliced(
    root: Root, path: str, old: FileLayout, rows: Sequence[int], indexes: Sequence[Range] = ()
) -> None:
    """See that a new file is what it was meant to be.

    The footer is read by pyarrow, which knows nothing of how it was written: every column chunk
    that it finds, and every index, lies inside the file and overlaps no other; the row groups have
    the rows they should; the schema is the old one.

    Args:
        root: Where the file is.
        path: The new file.
        old: The file it was made from.
        rows: The rows of each row group.
        indexes: Where bloom filters and page indexes were written.

    Raises:
        CannotSpliceError: If it is not; the file must not be used.
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
    held = [found.row_group(number).num_rows for number in range(found.num_row_groups)]
    if held != list(rows) or found.num_rows != sum(rows):
        raise CannotSpliceError("the new file does not have the rows it should have")
    check_apart([*_chunks(found), *indexes], data_end)


def _chunks(metadata: pq.FileMetaData) -> Iterator[Range]:
    """Where pyarrow will look for the pages of each column chunk."""
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for leaf in range(group.num_columns):
            chunk = group.column(leaf)
            start, dictionary = chunk.data_page_offset, chunk.dictionary_page_offset
            if dictionary:
                start = min(start, dictionary)
            yield Range(start, chunk.total_compressed_size)
