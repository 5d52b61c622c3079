"""Commits on an object store that a recovery takes over while their writer goes on.

Where a store has no locks, a recovery cannot know that a writer is gone: it goes on with a commit
that has made no progress for a while. Here both are slow at the worst moments, and a third writer
replaces what they publish.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from werkzeug.wrappers import Response

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.storage import list_files, open_storage, recover
from fsspeckit.storage.commit import recovery
from fsspeckit.storage.fs import s3
from fsspeckit.storage.fs.s3 import S3Limits
from fsspeckit.testing.object_stores import asked_by, moto

if TYPE_CHECKING:
    from collections.abc import Iterator

    from werkzeug.wrappers import Request

    from fsspeckit.storage import RecoveryReport
    from fsspeckit.testing.object_stores import Answer

pytestmark = pytest.mark.slow
MAX_SECONDS = 30.0
DATA, CONTROL = "lake/data/", "lake/.data.fsspeckit/"
MARK = f"{CONTROL}commits/0000000001.done.json"


class Moment:
    """Something that happens once."""

    def __init__(self) -> None:
        self._happened = threading.Event()

    def happens(self) -> bool:
        """Note that it happens; False if it has happened before."""
        is_first = not self._happened.is_set()
        self._happened.set()
        return is_first

    def wait(self) -> None:
        assert self._happened.wait(MAX_SECONDS)

    def __bool__(self) -> bool:
        return self._happened.is_set()


def copied_from(request: Request) -> str:
    return request.headers.get("x-amz-copy-source", "")


def is_published(request: Request) -> bool:
    """Whether a staged object is copied into the dataset."""
    return bool(copied_from(request)) and asked_by(request).key.startswith(DATA)


@dataclass
class PausedBeforeRemoval:
    """Holds the first removal of replaced objects; what a recovery copies is counted."""

    is_held: Moment = field(default_factory=Moment)
    goes_on: Moment = field(default_factory=Moment)
    copies: list[str] = field(default_factory=list)

    def __call__(self, request: Request, answer: Answer) -> Response:
        if is_published(request) and self.is_held:
            self.copies.append(copied_from(request))
        if asked_by(request).action == "DeleteObjects" and self.is_held.happens():
            self.goes_on.wait()
        return answer()


@dataclass
class SlowCopies:
    """The copy of the writer ends late, that of its recovery later, and the writer pauses.

    The writer copies; before the store has answered, a recovery takes the commit over, and is about
    to copy, too. The writer marks the commit, and pauses before it removes what it has staged.
    """

    begins_to_copy: Moment = field(default_factory=Moment)
    is_taken_over: Moment = field(default_factory=Moment)
    is_marked: Moment = field(default_factory=Moment)
    writer_pauses: Moment = field(default_factory=Moment)
    goes_on: Moment = field(default_factory=Moment)

    def __call__(self, request: Request, answer: Answer) -> Response:
        asked = asked_by(request)
        if is_published(request) and "~" in copied_from(request).replace("%7E", "~"):
            self.is_taken_over.happens()
            self.goes_on.wait()
        elif is_published(request) and self.begins_to_copy.happens():
            return self._copy_late(request, asked.bucket, asked.key)
        elif self.is_marked and asked.action == "ListObjectsV2" and self.writer_pauses.happens():
            self.goes_on.wait()
        response = answer()
        if asked.key == MARK and request.method == "PUT":
            self.is_marked.happens()
        return response

    def _copy_late(self, request: Request, bucket: str, key: str) -> Response:
        """Read the object now, and write it when the recovery has removed it from its place."""
        client = moto().client()
        _, _, source = copied_from(request).lstrip("/").partition("/")
        data = client.get_object(Bucket=bucket, Key=source)["Body"].read()
        self.is_taken_over.wait()
        etag = client.put_object(Bucket=bucket, Key=key, Body=data)["ETag"]
        when = "<LastModified>2026-01-01T00:00:00.000Z</LastModified>"
        text = f"<CopyObjectResult><ETag>{etag}</ETag>{when}</CopyObjectResult>"
        return Response(text, content_type="application/xml")


@dataclass
class PausedBeforeTheLastPart:
    """Holds the request that makes an object of its parts, until another writer has gone on."""

    is_held: Moment = field(default_factory=Moment)
    goes_on: Moment = field(default_factory=Moment)

    def __call__(self, request: Request, answer: Answer) -> Response:
        asked = asked_by(request)
        completes = asked.action == "CompleteMultipartUpload" and asked.key.startswith(DATA)
        if completes and self.is_held.happens():
            self.goes_on.wait()
        return answer()


def rows(value: int) -> pa.Table:
    return pa.table({"id": [1, 2], "value": [value, value]})


def merge(path: str, value: int, lock_timeout: float = MAX_SECONDS) -> None:
    with PyarrowDatasetIO(storage_options=moto().options, lock_timeout=lock_timeout) as engine:
        engine.merge(rows(value), path, "upsert", ["id"])


def take_over(path: str) -> RecoveryReport:
    return recover(path, storage_options=moto().options, lock_timeout=0.0)


def stored(path: str) -> list[tuple[int, int]]:
    """The rows that any reader of plain files finds."""
    storage = open_storage(path, storage_options=moto().options)
    found: list[tuple[int, int]] = []
    for file in list_files(storage.root).files:
        table = pq.read_table(pa.BufferReader(storage.backend.read(file.path)))
        found += zip(table["id"].to_pylist(), table["value"].to_pylist(), strict=True)
    return sorted(found)


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch) -> str:
    """A dataset of one file without a commit, whose writers seem to be on other machines."""
    monkeypatch.setattr(recovery, "owner_state", lambda storage, name: "unknown")
    bucket, sink = moto().make_bucket(), pa.BufferOutputStream()
    pq.write_table(rows(0), sink)
    data = sink.getvalue().to_pybytes()
    moto().client().put_object(Bucket=bucket, Key=f"{DATA}0.parquet", Body=data)
    return f"s3://{bucket}/lake/data"


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as threads:
        yield threads


def test_what_the_writer_has_copied_is_not_copied_again(
    path: str, threads: ThreadPoolExecutor
) -> None:
    """The second copy could end when another writer has replaced the file."""
    paused = PausedBeforeRemoval()
    with moto().following(paused):
        writer = threads.submit(merge, path, 1)
        paused.is_held.wait()
        assert [commit.number for commit in take_over(path).completed] == [1]
        merge(path, 2)
        paused.goes_on.happens()
        writer.result(MAX_SECONDS)
    assert [source for source in paused.copies if "~" in source] == []
    assert stored(path) == [(1, 2), (2, 2)]
    assert not recover(path, storage_options=moto().options)


def test_a_late_recovery_does_not_bring_back_what_was_replaced(
    path: str, threads: ThreadPoolExecutor
) -> None:
    slow = SlowCopies()
    with moto().following(slow):
        writer = threads.submit(merge, path, 1)
        slow.begins_to_copy.wait()
        late = threads.submit(take_over, path)
        slow.writer_pauses.wait()
        merge(path, 2)
        assert stored(path) == [(1, 2), (2, 2)]
        slow.goes_on.happens()
        writer.result(MAX_SECONDS)
        late.result(MAX_SECONDS)
    assert stored(path) == [(1, 2), (2, 2)]
    assert not recover(path, storage_options=moto().options)


def test_a_late_copy_in_parts_does_not_bring_back_what_was_replaced(
    path: str, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parts are all there: their source may be gone."""
    monkeypatch.setattr(s3, "LIMITS", S3Limits(max_copy_bytes=0))
    paused = PausedBeforeTheLastPart()
    with moto().following(paused):
        writer = threads.submit(merge, path, 1)
        paused.is_held.wait()
        merge(path, 2, lock_timeout=0.5)
        assert stored(path) == [(1, 2), (2, 2)]
        paused.goes_on.happens()
        writer.result(MAX_SECONDS)
    assert stored(path) == [(1, 2), (2, 2)]
    assert not recover(path, storage_options=moto().options)
