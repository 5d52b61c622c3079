"""Azure Blob Storage through the client that adlfs has opened.

adlfs reports a copy as done when Azure has only accepted it, looks at each object before it removes
several, asks up to three times for one listing, and lists a container that does not exist as empty.
What a commit relies on is asked of the client itself here, with the credentials of adlfs.
"""

from __future__ import annotations

import asyncio
import errno
import os
from typing import TYPE_CHECKING, Any

from fsspec.asyn import sync

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from fsspec import AbstractFileSystem

_MAX_PARALLEL = 32
"""How many requests are under way at once."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
"""Seconds between two questions whether a copy is done."""

_TAKEN = frozenset({"BlobAlreadyExists", "ConditionNotMet", "UnauthorizedBlobOverwrite"})
_DIRECTORY_MARKS = ("is_directory", "hdi_isfolder")


def is_adlfs(filesystem: AbstractFileSystem) -> bool:
    """Whether a filesystem has the client that this module needs; others of its protocol do not."""
    modules = (base.__module__ for base in type(filesystem).__mro__)
    return any(module.partition(".")[0] == "adlfs" for module in modules)


class AzureBlobs:
    """The filesystem of adlfs; methods that are not here are its own."""

    def __init__(self, filesystem: AbstractFileSystem) -> None:
        self._filesystem = filesystem

    def __getattr__(self, name: str) -> Any:
        return getattr(self._filesystem, name)

    def find(
        self, path: str, prefix: str = "", *, detail: bool = True
    ) -> dict[str, dict[str, Any]] | list[str]:
        """List the blobs of a container whose names begin with a path and a prefix.

        FileNotFoundError if there is no such container.
        """
        start = f"{path.strip('/')}/{prefix}"
        found: dict[str, dict[str, Any]] = sync(self._filesystem.loop, self._find, start)
        return found if detail else list(found)

    def ls(self, path: str, *, detail: bool = True) -> list[Any]:
        """List the blobs right below a path, none of those below directories in it."""
        start = f"{path.strip('/')}/"
        found = sync(self._filesystem.loop, self._find, start)
        below = [info for key, info in found.items() if "/" not in key[len(start) :]]
        return below if detail else [info["name"] for info in below]

    async def _find(self, start: str) -> dict[str, dict[str, Any]]:
        container, _, prefix = start.partition("/")
        async with self._filesystem.service_client.get_container_client(container) as client:
            blobs = client.list_blobs(name_starts_with=prefix, include=["metadata"])
            try:
                return {
                    f"{container}/{blob.name}": _info(f"{container}/{blob.name}", blob)
                    async for blob in blobs
                }
            except Exception as error:
                raise _as_missing(error, container) from error

    def pipe_file(self, path: str, data: bytes, mode: str = "overwrite") -> None:
        """Put a blob; with the mode "create" FileExistsError if there is one of its name."""
        try:
            self._filesystem.pipe_file(path, data, overwrite=mode != "create")
        except FileExistsError as error:
            # adlfs says that of every conflict, as of a container that is being deleted.
            code = _code(error.__cause__ or error.__context__)
            if code in _TAKEN or not code:
                raise
            raise OSError(errno.EIO, f"{os.strerror(errno.EIO)}: {code}", path) from error

    def cat(self, paths: Sequence[str]) -> dict[str, bytes]:
        """Read blobs, many at once."""
        found = self._each(self._filesystem._cat_file, [(path,) for path in paths])
        return dict(zip(paths, found, strict=True))

    def cp_file(self, source: str, target: str) -> None:
        """Copy a blob, and return when Azure says that all of it is there."""
        self.copy([source], [target])

    def copy(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        """Copy blobs, many at once, and return when all of them are there."""
        self._each(self._copy, list(zip(sources, targets, strict=True)))

    async def _copy(self, source: str, target: str) -> None:
        blob = self._blob(target)
        try:
            status = (await blob.start_copy_from_url(self._blob(source).url))["copy_status"]
            pause = _FIRST_PAUSE
            while status == "pending":
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                status = (await blob.get_blob_properties()).copy.status
        except Exception as error:
            raise _as_missing(error, source) from error
        if status != "success":
            raise OSError(errno.EIO, f"Azure ended the copy to {target!r} as {status!r}", source)

    def rm(self, paths: Sequence[str]) -> None:
        """Remove blobs, many at once; some may be gone already."""
        self._each(self._remove, [(path,) for path in paths])

    async def _remove(self, path: str) -> None:
        try:
            await self._blob(path).delete_blob()
        except Exception as error:
            if not _is_missing(error):
                raise

    def _blob(self, path: str) -> Any:
        container, _, name = path.partition("/")
        return self._filesystem.service_client.get_blob_client(container, name)

    def _each(
        self, do: Callable[..., Awaitable[Any]], arguments: Iterable[tuple[str, ...]]
    ) -> list[Any]:
        """Do something for each of many arguments; the first error is raised when all are done."""

        async def run() -> list[Any]:
            free = asyncio.Semaphore(_MAX_PARALLEL)

            async def one(given: tuple[str, ...]) -> Any:
                async with free:
                    return await do(*given)

            return await asyncio.gather(*map(one, arguments), return_exceptions=True)

        results: list[Any] = sync(self._filesystem.loop, run)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return results


def _info(path: str, blob: Any) -> dict[str, Any]:
    """Describe a blob as fsspec does; accounts with directories list those as blobs, too."""
    metadata = {name.lower(): value for name, value in (blob.metadata or {}).items()}
    is_directory = any(metadata.get(mark) == "true" for mark in _DIRECTORY_MARKS)
    return {
        "name": path,
        "size": blob.size,
        "type": "directory" if is_directory else "file",
        "etag": blob.etag,
        "last_modified": blob.last_modified,
    }


def _as_missing(error: Exception, path: str) -> Exception:
    """Turn the client's error for what is not there into FileNotFoundError."""
    if not _is_missing(error):
        return error
    text = f"{os.strerror(errno.ENOENT)} ({_code(error) or '404'})"
    return FileNotFoundError(errno.ENOENT, text, path)


def _is_missing(error: BaseException) -> bool:
    return getattr(error, "status_code", None) == 404


def _code(error: BaseException | None) -> str:
    """Return Azure's own word for an error."""
    code = getattr(error, "error_code", None)
    return str(getattr(code, "value", code) or "")
