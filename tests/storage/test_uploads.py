"""Uploads and copies in parts on S3: what they are made of, and what a writer leaves that dies."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.storage.scenario import parquet_bytes, put
from tests.storage.test_object_stores import failing, opened
from werkzeug.wrappers import Response

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.errors import CommitPendingError
from fsspeckit.storage import (
    FileChanges,
    clean_storage,
    commit,
    create_stage,
    new_file,
    open_root,
    read_range,
    recover_storage,
    staging,
    take_snapshot,
    verify_control,
)
from fsspeckit.storage.commit.uploads import find_abandoned_uploads
from fsspeckit.storage.fs import s3
from fsspeckit.storage.fs.clients import client_of
from fsspeckit.storage.fs.s3 import S3Limits, S3Objects, UnfinishedUpload
from fsspeckit.testing.conformance.stores import object_store
from fsspeckit.testing.object_stores import Moto, asked_by, moto, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from werkzeug.wrappers import Request

    from fsspeckit.storage import Storage
    from fsspeckit.testing.object_stores import Answer, Asked, ObjectStore, Rule

pytestmark = pytest.mark.slow
MIB = 2**20
PART = 5 * MIB
"""The least that S3 and MinIO accept."""
LIMITS = S3Limits(
    upload_part_bytes=PART, pending_parts=2, max_copy_bytes=PART, copy_part_bytes=PART
)
ON_EVERY_S3 = pytest.mark.parametrize("server", ["moto", "minio"], indirect=True)


@pytest.fixture(scope="module")
def data() -> bytes:
    return random.Random(0).randbytes(12 * MIB)


@pytest.fixture
def server(request: pytest.FixtureRequest) -> ObjectStore:
    return object_store(getattr(request, "param", "moto"))


@pytest.fixture
def plain() -> Moto:
    return moto()


@pytest.fixture
def storage(server: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """An empty dataset, whose objects are written and copied in small parts."""
    monkeypatch.setattr(s3, "LIMITS", LIMITS)
    return opened(server, server.make_bucket())


def client(storage: Storage) -> S3Objects:
    found = client_of(storage.root.filesystem)
    assert isinstance(found, S3Objects)
    return found


def bucket_of(storage: Storage) -> str:
    return storage.root.path.partition("/")[0]


def key_of(path: str) -> str:
    return path.partition("/")[2]


def unfinished(storage: Storage) -> set[str]:
    """The objects that uploads would become which are not finished."""
    return {upload.path for upload in client(storage).unfinished_uploads(bucket_of(storage))}


def actions(asked: list[Asked], key: str) -> list[str]:
    return [request.action for request in asked if request.key == key]


@ON_EVERY_S3
def test_a_large_object_is_copied_in_parts(
    server: ObjectStore, storage: Storage, data: bytes
) -> None:
    bucket = bucket_of(storage)
    given = {"Metadata": {"writer": "mine"}, "ContentType": "application/x-rows"}
    server.client().put_object(Bucket=bucket, Key="old", Body=data, **given)
    client(storage).copy([f"{bucket}/old"], [f"{bucket}/new"])
    copied = server.client().get_object(Bucket=bucket, Key="new")
    assert copied["Body"].read() == data
    assert {name: copied[name] for name in given} == given
    assert copied["ETag"].endswith('-3"')
    assert unfinished(storage) == set()


def test_only_what_is_too_large_is_copied_in_parts(
    plain: Moto, storage: Storage, data: bytes
) -> None:
    sizes = {"small": PART, "large": PART + 1}
    for name, size in sizes.items():
        storage.root.filesystem.pipe_file(storage.path(name), data[:size])
    storage.root.filesystem.ls(storage.root.path)  # which says how large they are
    pairs = {storage.path(name): storage.path(f"{name}-copy") for name in sizes}
    with plain.recording() as asked:
        assert storage.backend.copy_all(pairs) == list(pairs)
    small, large = (key_of(path) for path in pairs.values())
    assert actions(asked, small) == ["CopyObject"]
    assert sorted(actions(asked, large)) == [
        *("CompleteMultipartUpload", "CreateMultipartUpload", "UploadPartCopy", "UploadPartCopy")
    ]
    assert len(asked) == 6  # and one that asks for what to keep


def test_a_copy_that_fails_is_aborted(plain: Moto, storage: Storage, data: bytes) -> None:
    source, target = storage.path("old"), storage.path("new")
    storage.root.filesystem.pipe_file(source, data)
    refuse = failing("UploadPartCopy", 403, "AccessDenied", times=1)
    with plain.following(refuse), pytest.raises(PermissionError, match=r"s3:PutObject.*new"):
        storage.backend.keep_copy(source, target)
    assert unfinished(storage) == set()
    assert storage.backend.stat(target) is None
    storage.backend.keep_copy(source, target)
    assert storage.backend.read(target) == data


def replace_all(storage: Storage, number: int, data: bytes) -> None:
    """Commit one large file in the place of all that are there."""
    snapshot = take_snapshot(storage)
    table = pa.table({"id": [number], "bytes": [data[: PART + MIB]]})
    with staging(storage) as stage:
        file = stage.new_file()
        with new_file(storage.root, file.path) as sink, pa.PythonFile(sink, mode="w") as target:
            pq.write_table(table, target, compression="none")
            size = target.tell()
        file = replace(file, rows=1, size=size, parquet=False)
        commit(storage, snapshot, stage, FileChanges([file], list(snapshot.by_path)))


def ids(storage: Storage) -> list[int]:
    """The ids of the rows of all files."""
    found: list[int] = []
    for file in take_snapshot(storage).by_path.values():
        found += pq.read_table(pa.BufferReader(storage.backend.read(file.path)))["id"].to_pylist()
    return found


@ON_EVERY_S3
def test_files_that_are_copied_in_parts_are_those_of_a_commit(
    storage: Storage, data: bytes
) -> None:
    """They have other ETags than the staged ones, and are replaced as any other."""
    for number in range(2):
        replace_all(storage, number, data)
        (found,) = take_snapshot(storage).by_path.values()
        assert found.etag is not None
        assert found.etag.endswith("-2")
        assert ids(storage) == [number]
    assert verify_control(storage, {}) == []


def test_an_engine_writes_and_rewrites_in_parts(plain: Moto, storage: Storage, data: bytes) -> None:
    path = storage.root.to_user_path(storage.root.path)
    pieces = [data[start : start + MIB] for start in range(0, 11 * MIB, MIB)]
    rows = pa.table({"id": range(11), "bytes": pieces})
    with PyarrowDatasetIO(storage_options=plain.options) as io:
        io.write_dataset(rows, path, compression=None)
        with plain.recording() as asked:
            merged = io.merge(
                rows.slice(3, 1).set_column(1, "bytes", [[b"new"]]), path, "upsert", "id"
            )
        found = io.read_dataset(path).sort_by("id")["bytes"].to_pylist()
    assert (merged.updated, len(merged.rewritten_files)) == (1, 1)
    assert found == [*pieces[:3], b"new", *pieces[4:]]
    counts = Counter(request.action for request in asked)
    assert (counts["UploadPart"], counts["UploadPartCopy"]) == (3, 3)
    assert unfinished(storage) == set()


@pytest.mark.parametrize(("status", "code"), [(500, "InternalError"), (403, "AccessDenied")])
@pytest.mark.parametrize(
    "action",
    ["CreateMultipartUpload", "UploadPart", "UploadPartCopy", "CompleteMultipartUpload"],
)
def test_a_commit_in_parts_of_which_requests_fail(
    plain: Moto, storage: Storage, data: bytes, action: str, status: int, code: str
) -> None:
    """Where the first answer is lost, the SDK asks again; what is refused is refused for good."""
    replace_all(storage, 1, data)
    times = 1 if status == 500 else 10**9
    expected = [2]
    with plain.following(failing(action, status, code, times=times, after=status == 500)):
        try:
            replace_all(storage, 2, data)
        except CommitPendingError:
            assert status == 403
        except PermissionError:
            assert status == 403
            expected = [1]
    storage = opened(plain, bucket_of(storage))
    recover_storage(storage)
    assert ids(storage) == expected
    assert unfinished(storage) == set()
    assert verify_control(storage, {}) == []


@ON_EVERY_S3
@pytest.mark.parametrize("piece", [999_999, 12 * MIB])
def test_a_large_object_is_written_in_parts(storage: Storage, data: bytes, piece: int) -> None:
    path = storage.path("new")
    with new_file(storage.root, path) as file:
        for start in range(0, len(data), piece):
            assert file.write(data[start : start + piece]) == len(data[start : start + piece])
        assert storage.backend.stat(path) is None
    found = storage.backend.stat(path)
    assert found is not None
    assert found.etag is not None
    assert found.etag.endswith("-3")
    assert storage.backend.read(path) == data
    assert unfinished(storage) == set()


@pytest.mark.parametrize("size", [0, 1, 2 * PART - 1])
def test_a_small_object_is_one_request(
    plain: Moto, storage: Storage, data: bytes, size: int
) -> None:
    path = storage.path("new")
    with plain.recording() as asked, new_file(storage.root, path) as file:
        file.write(data[:size])
    assert [request.action for request in asked] == ["PutObject"]
    assert storage.backend.read(path) == data[:size]


def test_a_file_of_a_disk_is_written_in_parts(
    plain: Moto, storage: Storage, data: bytes, tmp_path: Path
) -> None:
    path = storage.path("new")
    (tmp_path / "file").write_bytes(data)
    with plain.recording() as asked:
        client(storage).put_file(str(tmp_path / "file"), path)
    assert actions(asked, key_of(path)).count("UploadPart") == 3
    assert storage.backend.read(path) == data


def test_parts_of_a_large_upload_become_larger(storage: Storage) -> None:
    upload = client(storage).new_object(storage.path("new"))
    sizes = []
    for count in (0, 999, 1000, 9_999):
        upload._parts = [{}] * count
        sizes.append(upload._part_bytes)
    assert sizes == [PART, PART, 2 * PART, 512 * PART]
    assert sum(1000 * (16 * MIB << each) for each in range(10)) > 5 * 2**40  # the largest object


def together(action: str, count: int) -> tuple[Rule, list[int]]:
    """Let requests wait until so many are there; also give how many there were each time."""
    waiting = threading.Condition()
    active, most = [0], [0]

    def rule(request: Request, answer: Answer) -> Response:
        if asked_by(request).action != action:
            return answer()
        with waiting:
            active[0] += 1
            most[0] = max(most[0], active[0])
            waiting.notify_all()
            waiting.wait_for(lambda: most[0] >= count, timeout=5)
        try:
            return answer()
        finally:
            with waiting:
                active[0] -= 1

    return rule, most


def test_so_many_parts_are_on_their_way(plain: Moto, storage: Storage) -> None:
    rule, most = together("UploadPart", LIMITS.pending_parts)
    with plain.following(rule), new_file(storage.root, storage.path("new")) as file:
        for _ in range(6):
            file.write(bytes(PART))
    assert most == [LIMITS.pending_parts]


def test_parts_of_a_copy_are_made_at_once(plain: Moto, storage: Storage, data: bytes) -> None:
    storage.root.filesystem.pipe_file(storage.path("old"), data)
    rule, most = together("UploadPartCopy", 3)
    with plain.following(rule):
        storage.backend.keep_copy(storage.path("old"), storage.path("new"))
    assert most == [3]


def losing_the_end(*, is_made: bool) -> Rule:
    """Lose the answer to the last request of an upload; asked again, say that it has ended."""
    asked = []

    def rule(request: Request, answer: Answer) -> Response:
        if asked_by(request).action != "CompleteMultipartUpload":
            return answer()
        asked.append(request)
        if len(asked) == 1 and is_made:
            answer()
            return refusal(500, "InternalError", "injected")
        return refusal(404, "NoSuchUpload", "injected")

    return rule


def test_an_object_whose_last_answer_was_lost_is_there(
    plain: Moto, storage: Storage, data: bytes
) -> None:
    path, copy = storage.path("new"), storage.path("copy")
    with plain.following(losing_the_end(is_made=True)), new_file(storage.root, path) as file:
        file.write(data)
    with plain.following(losing_the_end(is_made=True)):
        storage.backend.keep_copy(path, copy)
    assert storage.backend.read(path) == storage.backend.read(copy) == data


@pytest.mark.parametrize("there", [None, b"another object"])
def test_an_upload_that_somebody_has_aborted_is_an_error(
    plain: Moto, storage: Storage, data: bytes, there: bytes | None
) -> None:
    path = storage.path("new")
    if there is not None:
        storage.backend.overwrite(path, there)
    with (
        plain.following(losing_the_end(is_made=False)),
        pytest.raises(FileNotFoundError, match=r"writing of 's3://.*/new'"),
        new_file(storage.root, path) as file,
    ):
        file.write(data)
    assert unfinished(storage) == set()


def test_an_upload_that_fails_is_aborted(plain: Moto, storage: Storage, data: bytes) -> None:
    path = storage.path("new")
    refuse = failing("UploadPart", 403, "AccessDenied")
    with (
        plain.following(refuse),
        pytest.raises(PermissionError, match=r"writing of 's3://.*/new'.*s3:PutObject"),
        new_file(storage.root, path) as file,
    ):
        file.write(data)
    assert unfinished(storage) == set()
    assert storage.backend.stat(path) is None


def test_after_an_error_of_its_writer_nothing_of_an_object_is_there(
    storage: Storage, data: bytes
) -> None:
    path = storage.path("new")

    def write(size: int) -> None:
        with new_file(storage.root, path) as file, pa.PythonFile(file, mode="w") as target:
            target.write(data[:size])
            raise ZeroDivisionError

    for size in (1, len(data)):
        with pytest.raises(ZeroDivisionError):
            write(size)
    assert unfinished(storage) == set()
    assert storage.backend.stat(path) is None


_DIES = """
import json, os, signal, sys
from fsspeckit.storage import create_stage, new_file, open_storage
from fsspeckit.storage.commit.uploads import find_abandoned_uploads
from fsspeckit.storage.fs import s3
s3.LIMITS = s3.S3Limits(upload_part_bytes=5 * 2**20, pending_parts=1)
given = json.loads(sys.argv[1])
storage = open_storage(given["path"], storage_options=given["options"])
stage = create_stage(storage)
with new_file(storage.root, stage.new_file().path) as file:
    file.write(bytes(15 * 2**20))  # of three parts the first one has arrived
    os.kill(os.getpid(), signal.SIGKILL)
"""


def begin_and_die(server: ObjectStore, storage: Storage) -> tuple[Storage, UnfinishedUpload]:
    """Let a writer be killed while it uploads a file; give the dataset, and what it has left."""
    path = storage.root.to_user_path(storage.root.path)
    given = json.dumps({"path": path, "options": server.options})
    child = subprocess.run([sys.executable, "-c", _DIES, given], check=False, timeout=60)
    assert child.returncode == -9
    (left,) = client(storage).unfinished_uploads(bucket_of(storage))
    assert left.path.startswith(f"{storage.control.path}/.staging_")
    return opened(server, bucket_of(storage)), left


@ON_EVERY_S3
def test_what_a_killed_writer_was_uploading_is_reported_and_aborted(
    server: ObjectStore, storage: Storage
) -> None:
    storage, left = begin_and_die(server, storage)
    name = f"s3://{left.path}"
    (staged, found) = verify_control(storage, {})
    assert staged.file == left.path.removeprefix(f"{storage.control.path}/").partition("/")[0]
    assert (found.severity, found.file) == ("warning", name)
    assert "recover()" in found.hint
    planned = {item.kind: item for item in clean_storage(storage).items}
    assert planned["upload"].name == name
    assert planned["upload"].bytes >= PART
    assert unfinished(storage) == {left.path}
    report = recover_storage(storage)
    assert f"the upload of {name}" in report.discarded
    assert unfinished(storage) == set()
    assert verify_control(storage, {}) == []
    assert not recover_storage(storage)


FIRST_PAGES = {
    "ListMultipartUploads": (
        "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated>"
        "<NextKeyMarker>first</NextKeyMarker><NextUploadIdMarker>1</NextUploadIdMarker>"
        "<Upload><Key>first</Key><UploadId>1</UploadId>"
        "<Initiated>2026-01-02T03:04:05Z</Initiated></Upload></ListMultipartUploadsResult>"
    ),
    "ListParts": (
        "<ListPartsResult><IsTruncated>true</IsTruncated><NextPartNumberMarker>1</NextPartNumberMarker>"
        "<Part><PartNumber>1</PartNumber><Size>1000</Size></Part></ListPartsResult>"
    ),
}


def test_listings_of_many_uploads_and_parts_come_in_pages(
    plain: Moto, storage: Storage, data: bytes
) -> None:
    bucket = bucket_of(storage)
    upload = plain.client().create_multipart_upload(Bucket=bucket, Key="last")
    address = {"Bucket": bucket, "Key": "last", "UploadId": upload["UploadId"]}
    for number in (1, 2):
        plain.client().upload_part(**address, PartNumber=number, Body=data[:PART])
    markers: list[str] = []

    def in_pages(request: Request, answer: Answer) -> Response:
        page = FIRST_PAGES.get(asked_by(request).action)
        marker = request.args.get("key-marker") or request.args.get("part-number-marker")
        if page is None:
            return answer()
        if marker is None:
            return Response(page, content_type="application/xml")
        markers.append(marker)
        return answer()

    with plain.following(in_pages):
        first, last = client(storage).unfinished_uploads(bucket)
        assert (first.path, last.path) == (f"{bucket}/first", f"{bucket}/last")
        assert client(storage).bytes_of_upload(last) == 1000 + PART
    assert markers == ["first", "1"]


def test_a_clean_aborts_uploads(server: ObjectStore, storage: Storage) -> None:
    storage, _ = begin_and_die(server, storage)
    kinds = {item.kind for item in clean_storage(storage, dry_run=False).items}
    assert kinds == {"staging", "upload"}
    assert unfinished(storage) == set()
    assert not clean_storage(storage)


def test_the_next_writer_aborts_what_a_killed_one_was_uploading(
    server: ObjectStore, storage: Storage
) -> None:
    storage, _ = begin_and_die(server, storage)
    take_snapshot(storage)
    assert unfinished(storage) == set()


@contextmanager
def begun(storage: Storage, server: ObjectStore, path: str) -> Iterator[str]:
    """Begin an upload as another program does, and leave it."""
    bucket, key = bucket_of(storage), key_of(path)
    upload = server.client().create_multipart_upload(Bucket=bucket, Key=key)
    yield path
    server.client().abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload["UploadId"])


@ON_EVERY_S3
def test_uploads_of_others_stay(server: ObjectStore, storage: Storage, data: bytes) -> None:
    bucket = bucket_of(storage)
    stage = create_stage(storage)
    renamed = f"{storage.control.path}/{stage.name}~7/a.staged"
    with (
        begun(storage, server, f"{bucket}/other/a.parquet") as elsewhere,
        begun(storage, server, storage.path("part-0.parquet")) as of_spark,
        begun(storage, server, f"{storage.control.path}-2/.staging_{'0' * 32}/a") as of_another,
        new_file(storage.root, mine := stage.new_file().path) as file,
    ):
        file.write(data)
        expected = {elsewhere, of_spark, of_another, mine}
        if not isinstance(server, Moto):  # for which each was begun in 2010
            expected.add(server_side(storage, server, renamed))
        assert not recover_storage(storage).discarded
        assert not clean_storage(storage).items
        assert verify_control(storage, {}) == []
        assert unfinished(storage) == expected
    stage.discard()


def server_side(storage: Storage, server: ObjectStore, path: str) -> str:
    """Begin an upload into a directory that somebody is renaming."""
    server.client().create_multipart_upload(Bucket=bucket_of(storage), Key=key_of(path))
    return path


def test_an_upload_that_begins_before_its_owner_file_is_there_stays(
    plain: Moto, storage: Storage, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begun_now(objects: S3Objects, bucket: str) -> list[UnfinishedUpload]:
        now = datetime.now(UTC)  # of moto, each was begun in 2010
        return [replace(upload, started=now) for upload in found_by(objects, bucket)]

    found_by = S3Objects.unfinished_uploads
    monkeypatch.setattr(S3Objects, "unfinished_uploads", begun_now)
    path = f"{storage.control.path}/.staging_{'0' * 32}/a.staged"
    with new_file(storage.root, path) as file:
        file.write(data)
        assert not recover_storage(storage).discarded
        assert unfinished(storage) == {path}
    assert storage.backend.read(path) == data


def test_a_copy_of_a_commit_that_is_not_complete_stays(plain: Moto, storage: Storage) -> None:
    """An earlier commit has added a file under the same name."""
    path = storage.path("a.parquet")
    storage.backend.overwrite(path, parquet_bytes(0, "old"))
    for number in range(2):
        snapshot = take_snapshot(storage)
        with staging(storage) as stage:
            file = put(storage, stage.new_copy("a.parquet"), parquet_bytes(0, f"new {number}"))
            commit(storage, snapshot, stage, FileChanges([file], ["a.parquet"]))
    with begun(storage, plain, path):
        assert [found.upload.path for found in find_abandoned_uploads(storage)] == [path]
        storage.backend.discard(f"{storage.control.commits}/0000000002.done.json")
        assert find_abandoned_uploads(storage) == []


def test_the_bucket_of_an_access_point_has_a_slash_in_its_name(
    plain: Moto, storage: Storage, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """moto knows no access points: here they are another name for the bucket."""
    point = "arn:aws:s3:us-west-2:123456789012:accesspoint/mine"
    filesystem, bucket = storage.root.filesystem, bucket_of(storage)
    call = filesystem._call_s3

    async def send(method: str, *arguments: Any, **options: Any) -> Any:
        for place in (options, options.get("CopySource", {})):
            if place.get("Bucket") == point:
                place["Bucket"] = bucket
        return await call(method, *arguments, **options)

    monkeypatch.setattr(filesystem, "_call_s3", send)
    with new_file(storage.root, f"{point}/a/b") as file:
        file.write(data)
    objects = client(storage)
    objects.copy([f"{point}/a/b"], [f"{point}/a/c"])
    plain.client().create_multipart_upload(Bucket=bucket, Key="a/d")
    assert objects.bucket_of(f"{point}/a/b") == point
    (left,) = objects.unfinished_uploads(point)
    assert left.path == f"{point}/a/d"
    objects.abort_upload(left)
    assert objects.unfinished_uploads(point) == []
    for key in ("a/b", "a/c"):
        assert plain.client().get_object(Bucket=bucket, Key=key)["Body"].read() == data


def test_an_old_upload_into_the_control_directory_is_aborted(
    server: ObjectStore, storage: Storage
) -> None:
    server_side(storage, server, f"{storage.control.path}/.staging_{'0' * 32}~7/a.staged")
    (left,) = client(storage).unfinished_uploads(bucket_of(storage))
    assert left.started < datetime.now(UTC)
    assert recover_storage(storage).discarded
    assert unfinished(storage) == set()


@ON_EVERY_S3
def test_a_copy_of_a_commit_that_is_complete_is_aborted(
    server: ObjectStore, storage: Storage
) -> None:
    """Its writer was killed, and another one has copied the file again."""
    snapshot = take_snapshot(storage)
    with staging(storage) as stage:
        file = put(storage, stage.new_file(), parquet_bytes(0, "new"))
        commit(storage, snapshot, stage, FileChanges([file], []))
    (path,) = (found.path for found in take_snapshot(storage).by_path.values())
    left = server_side(storage, server, path)
    with begun(storage, server, storage.path("other.parquet")) as other:
        assert recover_storage(storage).discarded == (f"the upload of s3://{left}",)
        assert unfinished(storage) == {other}
    assert storage.backend.stat(path) is not None


def test_who_may_not_list_uploads_recovers_the_rest(plain: Moto, storage: Storage) -> None:
    storage, left = begin_and_die(plain, storage)
    below = (key_of(f"{path}/") for path in (storage.root.path, storage.control.path))
    with plain.limited(bucket_of(storage), *below):
        (swept,) = recover_storage(storage).discarded
        assert swept in left.path
        assert verify_control(storage, {}) == []
    assert unfinished(storage) == {left.path}


@pytest.mark.parametrize(("status", "code"), [(501, "NotImplemented"), (405, "MethodNotAllowed")])
def test_a_store_may_not_be_able_to_list_uploads(
    plain: Moto, storage: Storage, status: int, code: str
) -> None:
    with plain.following(failing("ListMultipartUploads", status, code)):
        assert not recover_storage(storage)
        assert verify_control(storage, {}) == []


def test_a_listing_of_uploads_that_fails_is_an_error(plain: Moto, storage: Storage) -> None:
    broken = failing("ListMultipartUploads", 400, "InvalidRequest")
    with plain.following(broken), pytest.raises(OSError, match="listing the uploads of 's3://"):
        recover_storage(storage)


def test_many_requests_are_on_their_way_at_once(plain: Moto) -> None:
    """botocore allows ten connections, which reads of many footers wait for."""
    bucket = plain.make_bucket()
    plain.client().put_object(Bucket=bucket, Key="data/a", Body=bytes(range(32)))
    root = open_root(f"s3://{bucket}/data", None, {**plain.options, "skip_instance_cache": True})
    rule, most = together("GetObject", 32)
    with plain.following(rule), ThreadPoolExecutor(32) as threads:
        found = threads.map(lambda start: read_range(root, f"{bucket}/data/a", start, 1), range(32))
        assert b"".join(found) == bytes(range(32))
    assert most == [32]


def test_connections_that_somebody_has_chosen_stay(plain: Moto) -> None:
    def allowed(filesystem: Any) -> Any:
        return filesystem.config_kwargs.get("max_pool_connections")

    fresh = {**plain.options, "skip_instance_cache": True}
    assert allowed(open_root("s3://lake/data", None, fresh).filesystem) == 32
    few = {**fresh, "config_kwargs": {"max_pool_connections": 3}}
    assert allowed(open_root("s3://lake/data", None, few).filesystem) == 3
    assert few["config_kwargs"] == {"max_pool_connections": 3}
    own = fsspec.filesystem("s3", **fresh)
    assert allowed(open_root("lake/data", own).filesystem) is None
