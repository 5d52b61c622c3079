"""S3 through the client that s3fs has opened: uploads and copies in parts, several at once.

s3fs sends the parts of an open file one after the other, keeps half a gigabyte in memory while it
uploads one from a disk, and copies what is larger than 150 MiB in parts one after the other. Here
several parts are on their way, few are in memory, and an upload that fails is aborted. What a
writer has left that was killed is listed, so that recovery can abort it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fsspec.asyn import sync

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from concurrent.futures import Future
    from datetime import datetime

    from fsspec import AbstractFileSystem

_MIB = 2**20

_MAX_PARALLEL = 32
"""How many requests of one copy are under way at once."""

_PARTS_OF_A_SIZE = 1000
"""After so many parts of an upload the next ones are twice as large: there may be 10,000."""

_MAX_PARTS = 10_000

# What a copy in one request keeps of an object, and a copy in parts must name.
_KEPT = (
    *("CacheControl", "ContentDisposition", "ContentEncoding", "ContentLanguage", "ContentType"),
    "Metadata",
)


@dataclass(frozen=True, slots=True)
class S3Limits:
    """When objects are written and copied in parts."""

    upload_part_bytes: int = 16 * _MIB
    """How large a part of an upload is; what is smaller than two parts is one request."""

    pending_parts: int = 4
    """How many parts of one upload are on their way."""

    max_copy_bytes: int = 256 * _MIB
    """How large an object may be that is copied with one request; S3 refuses more than 5 GB."""

    copy_part_bytes: int = 128 * _MIB
    """How large a part of a copy is; it is larger where there would be too many."""


LIMITS = S3Limits()


def is_s3fs(filesystem: AbstractFileSystem) -> bool:
    """Whether a filesystem has the client that this module needs; others of its protocol do not."""
    modules = (base.__module__ for base in type(filesystem).__mro__)
    return any(module.partition(".")[0] == "s3fs" for module in modules)


@dataclass(frozen=True, slots=True)
class UnfinishedUpload:
    """An upload in parts that was neither completed nor aborted: the store keeps its parts."""

    path: str
    """The object that it would become."""

    identifier: str
    started: datetime


class S3Objects:
    """The filesystem of s3fs; methods that are not here are its own."""

    def __init__(self, filesystem: AbstractFileSystem, limits: S3Limits | None = None) -> None:
        self._filesystem = filesystem
        self._limits = limits or LIMITS

    def __getattr__(self, name: str) -> Any:
        return getattr(self._filesystem, name)

    def new_object(self, path: str) -> S3Upload:
        """Begin a new object, to be written from its first byte to its last."""
        return S3Upload(self._filesystem, path, self._limits)

    def put_file(self, local: str, path: str) -> None:
        """Write a file of a local disk as an object."""
        upload = self.new_object(path)
        try:
            with open(local, "rb") as file:
                while block := file.read(self._limits.upload_part_bytes):
                    upload.write(block)
            upload.finish()
        except BaseException:
            upload.abort()
            raise

    def cp_file(self, source: str, target: str) -> None:
        """Copy an object."""
        self.copy([source], [target])

    def copy(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        """Copy objects, many at once; the first error is raised when all have ended."""

        async def run() -> list[Any]:
            free = asyncio.Semaphore(_MAX_PARALLEL)
            pairs = zip(sources, targets, strict=True)
            return await _gather([self._copy(*pair, free) for pair in pairs])

        sync(self._filesystem.loop, run)

    async def _copy(self, source: str, target: str, free: asyncio.Semaphore) -> None:
        async with free:
            # Nothing is asked where a listing has just said it.
            size = (await self._filesystem._info(source))["size"]
            if size <= self._limits.max_copy_bytes:
                await self._filesystem._copy_basic(source, target)
                return
        await self._copy_in_parts(source, target, free)

    async def _copy_in_parts(self, source: str, target: str, free: asyncio.Semaphore) -> None:
        call = self._filesystem._call_s3
        from_bucket, from_key = self._address(source)
        bucket, key = self._address(target)
        found = await call("head_object", Bucket=from_bucket, Key=from_key)
        upload = await call(
            "create_multipart_upload",
            Bucket=bucket,
            Key=key,
            **{name: found[name] for name in _KEPT if found.get(name)},
        )
        addressed = {"Bucket": bucket, "Key": key, "UploadId": upload["UploadId"]}

        async def copy_part(number: int, first: int, last: int) -> dict[str, Any]:
            async with free:
                copied = await call(
                    "upload_part_copy",
                    **addressed,
                    PartNumber=number,
                    CopySource={"Bucket": from_bucket, "Key": from_key},
                    CopySourceIfMatch=found["ETag"],  # all parts are of one version
                    CopySourceRange=f"bytes={first}-{last}",
                )
            return _part(number, copied["CopyPartResult"])

        ranges = _ranges(found["ContentLength"], self._limits.copy_part_bytes)
        try:
            parts = await _gather([copy_part(n, *part) for n, part in enumerate(ranges, 1)])
            await _complete(self._filesystem, addressed, parts)
        except BaseException:
            with suppress(Exception):  # recovery finds what stays
                await call("abort_multipart_upload", **addressed)
            raise
        self._filesystem.invalidate_cache(target)

    def bucket_of(self, path: str) -> str:
        """Return the bucket of a path; that of an access point has a slash in its name."""
        return self._address(path)[0]

    def _address(self, path: str) -> tuple[str, str]:
        return _bucket_and_key(self._filesystem, path)

    def unfinished_uploads(self, bucket: str) -> list[UnfinishedUpload]:
        """List the uploads in parts that were begun in a bucket, by whomever.

        All of them, because MinIO takes a prefix for the whole name of an object.
        """
        found: list[UnfinishedUpload] = sync(self._filesystem.loop, self._uploads, bucket)
        return found

    async def _uploads(self, bucket: str) -> list[UnfinishedUpload]:
        found: list[UnfinishedUpload] = []
        after: dict[str, str] = {}
        while True:
            page = await self._filesystem._call_s3("list_multipart_uploads", Bucket=bucket, **after)
            for each in page.get("Uploads", ()):
                path = f"{bucket}/{each['Key']}"
                found.append(UnfinishedUpload(path, each["UploadId"], each["Initiated"]))
            if not page.get("IsTruncated"):
                return found
            after = {
                "KeyMarker": page["NextKeyMarker"],
                "UploadIdMarker": page["NextUploadIdMarker"],
            }

    def bytes_of_upload(self, upload: UnfinishedUpload) -> int:
        """Return how many bytes the parts of an upload have."""
        found: int = sync(self._filesystem.loop, self._bytes_of_upload, upload)
        return found

    async def _bytes_of_upload(self, upload: UnfinishedUpload) -> int:
        total: int = 0
        after: dict[str, int] = {}
        while True:
            page = await self._filesystem._call_s3("list_parts", **self._addressed(upload), **after)
            total += sum(int(part["Size"]) for part in page.get("Parts", ()))
            if not page.get("IsTruncated"):
                return total
            after = {"PartNumberMarker": page["NextPartNumberMarker"]}

    def _addressed(self, upload: UnfinishedUpload) -> dict[str, str]:
        bucket, key = self._address(upload.path)
        return {"Bucket": bucket, "Key": key, "UploadId": upload.identifier}

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Abort an upload; its parts are removed, and it may have ended already."""

        async def abort() -> None:
            with suppress(FileNotFoundError):
                await self._filesystem._call_s3("abort_multipart_upload", **self._addressed(upload))

        sync(self._filesystem.loop, abort)


class S3Upload:
    """A new object, of which several parts are on their way at once.

    It exists when it is finished. Until then at most ``pending_parts`` and two more parts are in
    memory. Its ``close`` does nothing: pyarrow closes a file also after an error.
    """

    closed = False

    def __init__(self, filesystem: AbstractFileSystem, path: str, limits: S3Limits) -> None:
        self._filesystem = filesystem
        self._path = path
        self._limits = limits
        self._buffer = bytearray()
        self._address: dict[str, str] = {}
        """Of the upload, once there is one."""
        self._pending: deque[Future[dict[str, Any]]] = deque()
        self._parts: list[dict[str, Any]] = []

    def write(self, data: Any) -> int:
        """Append bytes."""
        view = memoryview(data).cast("B")
        written = len(view)
        while view:
            # An upload begins when the object is known to be large.
            limit = self._part_bytes if self._address else 2 * self._part_bytes
            room = limit - len(self._buffer)
            self._buffer += view[:room]
            view = view[room:]
            if len(self._buffer) >= limit:
                self._send_part()
        return written

    def flush(self) -> None:
        """Nothing to do: parts have a size."""

    close = flush

    def finish(self) -> None:
        """Send the rest, and return when the object is there."""
        if not self._address:
            body = bytes(self._buffer)
            bucket, key = _bucket_and_key(self._filesystem, self._path)
            self._call("put_object", Bucket=bucket, Key=key, Body=body)
        else:
            while self._buffer:
                self._send_part()
            while self._pending:
                self._parts.append(self._pending.popleft().result())
            sync(self._filesystem.loop, _complete, self._filesystem, self._address, self._parts)
        self._filesystem.invalidate_cache(self._path)

    def abort(self) -> None:
        """Leave nothing behind, as far as the store allows it."""
        for part in self._pending:
            part.cancel()
        if self._address:
            with suppress(Exception):  # recovery finds what stays
                self._call("abort_multipart_upload", **self._address)

    @property
    def _part_bytes(self) -> int:
        sent = len(self._parts) + len(self._pending)
        return self._limits.upload_part_bytes << (sent // _PARTS_OF_A_SIZE)

    def _send_part(self) -> None:
        if not self._address:
            bucket, key = _bucket_and_key(self._filesystem, self._path)
            begun = self._call("create_multipart_upload", Bucket=bucket, Key=key)
            self._address = {"Bucket": bucket, "Key": key, "UploadId": begun["UploadId"]}
        while len(self._pending) >= self._limits.pending_parts:
            self._parts.append(self._pending.popleft().result())
        size = self._part_bytes
        body = bytes(memoryview(self._buffer)[:size])
        del self._buffer[:size]
        number = len(self._parts) + len(self._pending) + 1
        sending = self._send(number, body)
        self._pending.append(asyncio.run_coroutine_threadsafe(sending, self._filesystem.loop))

    async def _send(self, number: int, body: bytes) -> dict[str, Any]:
        sent = await self._filesystem._call_s3(
            "upload_part", **self._address, PartNumber=number, Body=body
        )
        return _part(number, sent)

    def _call(self, method: str, **arguments: Any) -> Any:
        return sync(self._filesystem.loop, self._filesystem._call_s3, method, **arguments)


async def _gather(work: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Wait until all have ended, then raise the first error."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


async def _complete(
    filesystem: AbstractFileSystem, address: dict[str, str], parts: list[dict[str, Any]]
) -> None:
    """Make an object of the parts of an upload."""
    call = filesystem._call_s3
    try:
        await call("complete_multipart_upload", **address, MultipartUpload={"Parts": parts})
    except FileNotFoundError:
        # Where an answer was lost, the SDK asks again, and the upload has ended by then.
        found = await call("head_object", Bucket=address["Bucket"], Key=address["Key"])
        if found["ETag"].strip('"') != _etag_of(parts):
            raise


def _etag_of(parts: list[dict[str, Any]]) -> str | None:
    """Return the ETag of an object that is made of parts; None if theirs are not MD5 sums."""
    try:
        sums = b"".join(bytes.fromhex(part["ETag"].strip('"')) for part in parts)
    except ValueError:
        return None
    return f"{hashlib.md5(sums, usedforsecurity=False).hexdigest()}-{len(parts)}"


def _bucket_and_key(filesystem: AbstractFileSystem, path: str) -> tuple[str, str]:
    bucket, key, _ = filesystem.split_path(path)
    return bucket, key


def _part(number: int, answer: dict[str, Any]) -> dict[str, Any]:
    """Describe a part to the request that completes an upload, with its checksum if it has one."""
    checksums = {
        name: value
        for name, value in answer.items()
        if name.startswith("Checksum") and name != "ChecksumType"
    }
    return {"PartNumber": number, "ETag": answer["ETag"], **checksums}


def _ranges(size: int, part_bytes: int) -> list[tuple[int, int]]:
    """Return the first and the last byte of each part of a copy."""
    step = max(part_bytes, -(-size // _MAX_PARTS))
    return [(start, min(start + step, size) - 1) for start in range(0, size, step)]
