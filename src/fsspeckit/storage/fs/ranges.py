"""Parts of files: one open or one request for each read, on every filesystem."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fsspeckit.storage.fs.reads import naming_failure

if TYPE_CHECKING:
    from fsspeckit.storage.listing import DataFile
    from fsspeckit.storage.roots import Root

__all__ = ["read_range", "read_tail"]


def read_range(root: Root, path: str, start: int, length: int, phase: str = "reading") -> bytes:
    """Bytes ``start`` to ``start + length`` of a file; fewer where the file ends before.

    Raises:
        OSError: What the filesystem raised, naming the file and the phase.
    """
    with naming_failure(root, path, phase):
        if not root.is_local:
            return _read_remote(root, path, start, length)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            return os.pread(descriptor, length, start)
        finally:
            os.close(descriptor)


def _read_remote(root: Root, path: str, start: int, length: int) -> bytes:
    if length <= 0:
        return b""  # a range of no bytes is an error for some stores
    # A pyarrow filesystem opens a file that is read from its start as a stream, which cannot seek,
    # and fsspec seeks to the start.
    options = {"seekable": True} if root.is_arrow else {}
    return bytes(root.filesystem.cat_file(path, start=start, end=start + length, **options))


def read_tail(root: Root, file: DataFile, length: int) -> tuple[bytes, int]:
    """The last ``length`` bytes of a file, and its size.

    On a local disk the size is that of this moment; elsewhere that of the listing, which saves
    a request.

    Raises:
        OSError: What the filesystem raised, naming the file.
    """
    phase = "reading the footer"
    if not root.is_local:
        start = max(0, file.size - length)
        return read_range(root, file.path, start, file.size - start, phase), file.size
    with naming_failure(root, file.path, phase):
        descriptor = os.open(file.path, os.O_RDONLY)
        try:
            size = os.fstat(descriptor).st_size
            start = max(0, size - length)
            return os.pread(descriptor, size - start, start), size
        finally:
            os.close(descriptor)
