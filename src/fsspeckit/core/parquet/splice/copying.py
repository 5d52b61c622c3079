"""Copies parts of one file into another without looking at them, and as bytes in between.

On a local disk the kernel copies: between files of one filesystem without the bytes ever reaching
this process, on some filesystems without copying at all. Where it refuses, and elsewhere, the bytes
are read and written in pieces.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from fsspeckit.errors import ConcurrentModificationError
from fsspeckit.storage.fs.ranges import read_range
from fsspeckit.storage.fs.reads import naming_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fsspeckit.core.parquet.format.layout import Range
    from fsspeckit.storage.roots import Root

    Copy = Callable[[int, int, int, int], int]
    """Copies: from, to, where to read, how much at most; returns how much."""

__all__ = ["Original", "Sink", "open_original", "open_sink"]

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
        yield _LocalOriginal(descriptor, root.spelled(path))
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
            raise _changed(self._root.spelled(self._path))

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
