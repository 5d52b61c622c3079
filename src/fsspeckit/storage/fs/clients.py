"""The client of an object store behind a filesystem, and new files that it writes."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from fsspeckit.storage.fs.azure import AzureBlobs, is_adlfs
from fsspeckit.storage.fs.reads import naming_failure
from fsspeckit.storage.fs.s3 import S3Objects, is_s3fs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fsspec import AbstractFileSystem

    from fsspeckit.storage.roots import Root


def client_of(filesystem: AbstractFileSystem) -> Any:
    """Return what a commit uses of an object store: the filesystem, with its gaps closed."""
    if is_s3fs(filesystem):
        return S3Objects(filesystem)
    return AzureBlobs(filesystem) if is_adlfs(filesystem) else filesystem


@contextmanager
def new_file(root: Root, path: str) -> Iterator[Any]:
    """Open a new file of a filesystem that is not local; its errors name it.

    It is there when the block ends. After an error nothing of it is left on S3; other filesystems
    may keep what was written.
    """
    client = client_of(root.filesystem)
    with naming_failure(root, path, "writing", "write"):
        if isinstance(client, S3Objects):
            upload = client.new_object(path)
            handle, finish, abort = upload, upload.finish, upload.abort
        else:
            handle = client.open(path, "wb")
            finish = abort = handle.close
    try:
        yield _Output(root, path, handle)
        with naming_failure(root, path, "writing", "write"):
            finish()
    except BaseException:
        with suppress(Exception):
            abort()
        raise


class _Output:
    """An open file whose writes name it when they fail; pyarrow may close it more than once."""

    closed = False

    def __init__(self, root: Root, path: str, handle: Any) -> None:
        self._root = root
        self._path = path
        self._handle = handle

    def write(self, data: Any) -> int:
        """Append bytes."""
        with naming_failure(self._root, self._path, "writing", "write"):
            self._handle.write(data)
        return memoryview(data).nbytes

    def flush(self) -> None:
        """Nothing to do: the end of the block writes what is left."""

    close = flush
