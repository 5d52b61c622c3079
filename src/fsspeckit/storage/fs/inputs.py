"""Files opened for pyarrow, on every filesystem: errors of reads name the file and say what failed.

pyarrow hands errors of a Python file through as they are. An error of the filesystem that has no
errno could not be told from one of pyarrow's own about damaged bytes, so none is let through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import fs as arrow_fs

from fsspeckit.storage.fs.reads import naming_failure

if TYPE_CHECKING:
    from fsspeckit.storage.roots import Root

__all__ = ["arrow_filesystem", "open_input"]


def open_input(root: Root, path: str, **options: Any) -> Any:
    """Open a file of a filesystem that is not local, for reading; a context manager.

    Raises:
        OSError: What the filesystem raised, naming the file.
    """
    with naming_failure(root, path, "opening"):
        return _Input(root, path, root.filesystem.open(path, "rb", **options))


class _Input:
    """An open file whose reads name it when they fail."""

    def __init__(self, root: Root, path: str, handle: Any) -> None:
        self._root = root
        self._path = path
        self._handle = handle

    def read(self, size: int = -1) -> bytes:
        """Up to ``size`` bytes."""
        with naming_failure(self._root, self._path, "reading"):
            return bytes(self._handle.read(size))

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to another place of the file."""
        with naming_failure(self._root, self._path, "reading"):
            return int(self._handle.seek(offset, whence))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    def __enter__(self) -> _Input:
        return self

    def __exit__(self, *exception: object) -> None:
        self._handle.close()


def arrow_filesystem(root: Root) -> arrow_fs.FileSystem:
    """The filesystem of a dataset as pyarrow needs it to read."""
    if root.is_local:
        return arrow_fs.LocalFileSystem()
    return arrow_fs.PyFileSystem(_Handler(root))


class _Handler(arrow_fs.FSSpecHandler):  # type: ignore[misc] # pyarrow has no types
    """fsspec for pyarrow; picklable."""

    def __init__(self, root: Root) -> None:
        super().__init__(root.filesystem)
        self._root = root

    def open_input_stream(self, path: str) -> pa.PythonFile:
        """Open a file to read from its start."""
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> pa.PythonFile:
        """Open a file to read anywhere."""
        # Without asking first whether it is a file: fsspec says no to that, too, where access is
        # denied.
        return pa.PythonFile(open_input(self._root, path), mode="r")
