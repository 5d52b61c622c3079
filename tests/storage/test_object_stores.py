"""What is special about object stores: conditional puts, prefixes, permissions, versions."""

from __future__ import annotations

import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pyarrow import fs as arrow_fs
from tests.storage.checks import read_consistently
from tests.storage.scenario import FLAT, IN_PLACE, parquet_bytes, put, stage_change
from tests.storage.test_folding import forge

from fsspeckit.errors import (
    CommitPendingError,
    ConcurrentModificationError,
    InvalidArgumentError,
)
from fsspeckit.storage import (
    FileChanges,
    commit,
    history,
    history_of,
    list_files,
    open_root,
    open_storage,
    recover_storage,
    staging,
    take_snapshot,
)
from fsspeckit.storage.commit import staging as staging_module
from fsspeckit.storage.commit.folding import fold_records
from fsspeckit.storage.fs.attributes import capabilities_of
from fsspeckit.storage.storage import BLOCK, KEPT, staging_names
from fsspeckit.testing.conformance.stores import OBJECT_STORES, TORTURE, object_store
from fsspeckit.testing.object_stores import (
    KEY,
    REGION,
    SECRET,
    Moto,
    asked_by,
    moto,
    policy,
    refusal,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.storage.scenario import Scenario, State
    from werkzeug.wrappers import Request, Response

    from fsspeckit.storage import Snapshot, Storage
    from fsspeckit.testing.object_stores import Answer, ObjectStore, Rule

pytestmark = pytest.mark.slow
EVERY_OBJECT_STORE = pytest.mark.parametrize("server", OBJECT_STORES, indirect=True)
EVERY_S3 = pytest.mark.parametrize("server", OBJECT_STORES[:3], indirect=True)


@pytest.fixture
def server(request: pytest.FixtureRequest) -> ObjectStore:
    return object_store(getattr(request, "param", "moto"))


@pytest.fixture
def storage(server: ObjectStore) -> Storage:
    return opened(server, server.make_bucket())


@pytest.fixture
def plain() -> Moto:
    """moto, which can be made to fail."""
    return moto()


@pytest.fixture
def there(plain: Moto) -> Storage:
    """A dataset of one file."""
    storage = opened(plain, plain.make_bucket())
    storage.root.filesystem.pipe_file(storage.path("a.parquet"), parquet_bytes(0, "old"))
    return storage


def opened(server: ObjectStore, bucket: str, **options: Any) -> Storage:
    return open_storage(
        server.at(bucket, "lake/data"),
        storage_options={**server.options, **options},
        lock_timeout=0.0,
    )


def failing(
    action: str,
    status: int,
    code: str,
    *,
    key: str = "",
    times: float = 10**9,
    after: bool = False,
) -> Rule:
    """Answer requests with an error, before or after they had their effect."""
    left = [times]

    def rule(request: Request, answer: Answer) -> Response:
        asked = asked_by(request)
        if asked.action != action or not asked.key.endswith(key) or left[0] <= 0:
            return answer()
        left[0] -= 1
        if after:
            answer()
        return refusal(status, code, "injected")

    return rule


@EVERY_OBJECT_STORE
def test_of_two_creations_the_second_finds_the_name_taken(storage: Storage) -> None:
    path = storage.control.record(1)
    storage.backend.create(path, b"first")
    with pytest.raises(FileExistsError) as caught:
        storage.backend.create(path, b"second")
    assert caught.value.filename == path
    assert path in str(caught.value)
    assert storage.backend.read(path) == b"first"


@EVERY_OBJECT_STORE
def test_of_writers_that_race_for_a_name_one_has_it(server: ObjectStore, storage: Storage) -> None:
    bucket = storage.root.path.partition("/")[0]
    others = [opened(server, bucket, skip_instance_cache=True).backend for _ in range(8)]
    for number in range(1, 11):
        path = storage.control.record(number)
        start = threading.Barrier(len(others))

        def create(name: int, path: str = path, start: threading.Barrier = start) -> bytes | None:
            start.wait()
            try:
                others[name].create(path, b"%d" % name)
            except FileExistsError:
                return None
            return b"%d" % name

        with ThreadPoolExecutor(len(others)) as threads:
            winners = [name for name in threads.map(create, range(len(others))) if name]
        assert winners == [storage.backend.read(path)]


@pytest.mark.parametrize("server", ["azurite", "fake-gcs"], indirect=True)
def test_an_object_that_is_written_again_with_the_same_bytes_is_another(storage: Storage) -> None:
    path = storage.path("a.parquet")
    found = []
    for _ in range(2):
        storage.backend.overwrite(path, b"bytes")
        found.append(storage.backend.stat(path))
    first, second = found
    assert first is not None
    assert second is not None
    assert first.etag != second.etag
    assert first.mtime_ns is not None


def test_a_creation_is_one_request(plain: Moto, there: Storage) -> None:
    with plain.recording() as asked:
        there.backend.create(there.control.record(1), b"record")
    assert [request.action for request in asked] == ["PutObject"]


def test_a_creation_whose_response_was_lost_finds_its_own_object(
    plain: Moto, there: Storage
) -> None:
    path = there.control.record(1)
    with (
        plain.following(failing("PutObject", 500, "InternalError", times=1, after=True)),
        pytest.raises(FileExistsError, match="0000000001"),
    ):
        there.backend.create(path, b"mine")
    assert there.backend.read(path) == b"mine"


def test_a_commit_whose_record_was_put_but_not_answered_goes_on(
    plain: Moto, there: Storage
) -> None:
    """The store answered the repeated request with "taken"; the record is this writer's own."""
    snapshot = take_snapshot(there)
    lost = failing("PutObject", 500, "InternalError", key="0000000001.json", times=1, after=True)
    with plain.following(lost), staging(there) as stage:
        file = put(there, stage.new_file(), parquet_bytes(0, "new"))
        outcome = commit(there, snapshot, stage, FileChanges([file], ["a.parquet"]))
    assert (outcome.number, outcome.retries) == (1, 0)
    assert read_consistently(there) == [(0, "new"), (1, "new")]
    assert [entry.state for entry in history_of(there)] == ["complete"]


def test_a_creation_beside_another_one_is_tried_again(plain: Moto, there: Storage) -> None:
    path = there.control.record(1)
    with plain.following(failing("PutObject", 409, "ConditionalRequestConflict", times=1)):
        there.backend.create(path, b"mine")
    assert there.backend.read(path) == b"mine"


def test_a_conflict_that_stays_means_that_the_name_is_taken(plain: Moto, there: Storage) -> None:
    path = there.control.record(1)
    with (
        plain.following(failing("PutObject", 409, "ConditionalRequestConflict")),
        pytest.raises(FileExistsError) as caught,
    ):
        there.backend.create(path, b"mine")
    assert caught.value.filename == path


def test_a_put_that_fails_for_another_reason_does_not_mean_that_the_name_exists(
    plain: Moto, there: Storage
) -> None:
    with (
        plain.following(failing("PutObject", 400, "InvalidRequest")),
        pytest.raises(OSError, match="injected") as caught,
    ):
        there.backend.create(there.control.record(1), b"mine")
    assert not isinstance(caught.value, FileExistsError)


@pytest.mark.parametrize(
    ("action", "permission"),
    [("ListObjectsV2", "s3:ListBucket"), ("PutObject", "s3:PutObject")],
)
def test_refused_access_names_the_path_and_the_permission(
    plain: Moto, there: Storage, action: str, permission: str
) -> None:
    with plain.following(failing(action, 403, "AccessDenied")):
        with pytest.raises(PermissionError, match=permission) as caught, staging(there):
            take_snapshot(there)
        assert "/lake/" in str(caught.value)
        assert "injected" in str(caught.value)


def test_a_listing_that_is_refused_is_not_an_empty_dataset(plain: Moto, there: Storage) -> None:
    with plain.following(failing("ListObjectsV2", 403, "AccessDenied")):
        for question in (
            lambda: list_files(there.root),
            lambda: there.backend.names(there.control.commits),
            lambda: history(there.root.to_user_path(there.root.path), there.root.filesystem),
        ):
            with pytest.raises(PermissionError, match="s3:ListBucket"):
                question()


def test_an_object_that_may_not_be_read_is_not_absent(plain: Moto, there: Storage) -> None:
    path = there.path("a.parquet")
    with plain.following(
        failing("HeadObject", 403, "AccessDenied"), failing("GetObject", 403, "AccessDenied")
    ):
        with pytest.raises(PermissionError, match="s3:GetObject") as caught:
            there.backend.read(path)
        assert f"s3://{path}" in str(caught.value)
        assert there.backend.stat(path) is not None
        assert there.backend.stat(there.path("b.parquet")) is None
        with pytest.raises(FileNotFoundError, match=r"b\.parquet"):
            there.backend.read(there.path("b.parquet"))


class GcsWords(MemoryFileSystem):  # type: ignore[misc]
    """Refuses access as gcsfs does: in words, with an error of no special type."""

    protocol = "gs"
    cachable = False

    def find(self, path: str, *arguments: Any, **options: Any) -> Any:
        raise OSError(f"Forbidden: {path}\nno storage.objects access")


def test_a_refusal_in_words_only_is_a_refusal() -> None:
    root = open_root("/lake/data", GcsWords())
    with pytest.raises(PermissionError, match=r"permission storage\.objects\.list on"):
        list_files(root)


def test_an_object_that_may_not_be_deleted(plain: Moto, there: Storage) -> None:
    with (
        plain.following(failing("DeleteObject", 403, "AccessDenied")),
        pytest.raises(PermissionError, match="s3:DeleteObject"),
    ):
        there.backend.discard(there.path("a.parquet"))


def test_objects_that_may_not_be_deleted_together(plain: Moto, there: Storage) -> None:
    paths = [there.path(f"{name}.parquet") for name in "abc"]
    for path in paths:
        there.root.filesystem.pipe_file(path, b"x")
    with (
        plain.following(without_bulk_deletes, failing("DeleteObject", 403, "AccessDenied")),
        pytest.raises(PermissionError, match="s3:DeleteObject"),
    ):
        there.backend.discard_all(paths)
    assert len(there.backend.stat_all(paths)) == 3
    with plain.following(without_bulk_deletes):
        there.backend.discard_all(paths)
    assert there.backend.stat_all(paths) == {}


def without_bulk_deletes(request: Request, answer: Answer) -> Response:
    """Answer as a store does that has no request for it, or refuses each object in it."""
    if "delete" in request.args:
        return refusal(501, "NotImplemented", "A header or query is not implemented")
    return answer()


CHANGES = ("PutObject", "CopyObject", "DeleteObject", "DeleteObjects")


def refusing_from(number: int, *, after: bool) -> tuple[Rule, list[str]]:
    """Refuse all changes from one on, before or after they had their effect; also what it saw."""
    seen: list[str] = []

    def rule(request: Request, answer: Answer) -> Response:
        if (action := asked_by(request).action) not in CHANGES:
            return answer()
        seen.append(action)
        if len(seen) <= number:
            return answer()
        if after and len(seen) == number + 1:
            answer()
        return refusal(403, "ExpiredToken", "injected")

    return rule, seen


@pytest.mark.untraced
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("scenario", [FLAT, IN_PLACE], ids=lambda scenario: scenario.name)
def test_credentials_that_expire_at_any_change(
    plain: Moto, scenario: Scenario, after: bool
) -> None:
    for number in range(0, 100, 1 if TORTURE else 3):
        storage = opened(plain, plain.make_bucket())
        for name, start in scenario.files.items():
            storage.root.filesystem.pipe_file(storage.path(name), parquet_bytes(start, "old"))
        rule, seen = refusing_from(number, after=after)
        expected = scenario.old()
        with plain.following(rule):
            try:
                snapshot = take_snapshot(storage)
                with staging(storage) as stage:
                    commit(storage, snapshot, stage, stage_change(scenario, storage, stage))
                expected = scenario.new()
            except CommitPendingError:
                expected = scenario.new()
            except PermissionError:
                pass
        assert read_consistently(storage) == expected
        recover_storage(storage)
        assert plain_rows(storage) == expected
        assert staging_names(storage.backend.names(storage.control.path)) == []
        if len(seen) <= number:
            return
    raise AssertionError("it never ended without a refusal")


def before_request(number: int, work: Callable[[], None]) -> tuple[Rule, list[str]]:
    """Do something before a request is answered, once; also the requests that it saw."""
    seen: list[str] = []
    is_working = [False]

    def rule(request: Request, answer: Answer) -> Response:
        if not is_working[0]:
            seen.append(asked_by(request).action)
            if len(seen) - 1 == number:
                is_working[0] = True
                work()
                is_working[0] = False
        return answer()

    return rule, seen


def replace_all(storage: Storage, version: str, snapshot: Snapshot | None = None) -> bool:
    """Replace the files of the scenario in a commit; False if another one was first."""
    snapshot = snapshot or take_snapshot(storage)
    with staging(storage) as stage:
        files = [put(storage, stage.new_file(), parquet_bytes(0, version))]
        commit(storage, snapshot, stage, FileChanges(files, [*snapshot.by_path]))
    return True


def tried(storage: Storage, version: str, snapshot: Snapshot | None = None) -> str:
    """Try the same; how it ended."""
    try:
        replace_all(storage, version, snapshot)
    except CommitPendingError:
        return "pending"
    except (ConcurrentModificationError, OSError):
        return "refused"
    return "done"


@pytest.mark.untraced
@pytest.mark.parametrize("dies", [False, True], ids=["whole", "dies"])
def test_another_commit_before_any_request_of_a_commit(plain: Moto, dies: bool) -> None:
    """Whoever is first, the rows are those of one commit, and no commit is lost."""
    ends = set()
    for number in range(0, 100, 1 if TORTURE else 2):
        bucket = plain.make_bucket()
        mine, other = opened(plain, bucket), opened(plain, bucket)
        mine.root.filesystem.pipe_file(mine.path("a.parquet"), parquet_bytes(0, "old"))
        snapshot = take_snapshot(mine)
        others: list[str] = []

        def work(other: Storage = other, others: list[str] = others) -> None:
            rules = [failing("CopyObject", 400, "InvalidRequest")] if dies else []
            with plain.following(*rules):
                others.append(tried(other, "other"))

        rule, seen = before_request(number, work)
        with plain.following(rule):
            ended = tried(mine, "mine", snapshot)
        if not others:
            break
        ends.add((ended, *others))
        recover_storage(mine)
        rows = read_consistently(mine)
        assert plain_rows(mine) == rows
        last = "mine" if others == ["refused"] else "other"
        assert rows == [(0, last), (1, last)], (number, seen)
        assert "refused" in (ended, *others) or len(history_of(mine)) == 2
        assert {entry.state for entry in history_of(mine)} <= {"complete", "recovered"}
    assert ("refused", "pending" if dies else "done") in ends
    assert ("done", "refused") in ends


def test_an_owner_file_may_come_after_what_it_is_for(plain: Moto, there: Storage) -> None:
    """Recovery by others leaves both alone, and the commit waits for it."""
    may_come, has_come = threading.Event(), threading.Event()

    def rule(request: Request, answer: Answer) -> Response:
        if not asked_by(request).key.endswith("owner.json"):
            return answer()
        assert may_come.wait(20)
        has_come.set()
        return answer()

    snapshot = take_snapshot(there)
    other = opened(plain, there.root.path.partition("/")[0], skip_instance_cache=True)
    with plain.following(rule), staging(there, waits=False) as stage:
        files = [put(there, stage.new_file(), parquet_bytes(0, "new"))]
        assert not recover_storage(other)
        assert recover_storage(other).in_use == ()
        threading.Timer(0.1, may_come.set).start()
        commit(there, snapshot, stage, FileChanges(files, ["a.parquet"]))
        assert has_come.is_set()
    assert read_consistently(there) == [(0, "new"), (1, "new")]
    assert staging_names(there.backend.names(there.control.path)) == []


def add_file(storage: Storage, snapshot: Snapshot, removes: list[str]) -> None:
    """Add a file as a merge does, beside others or instead of them."""
    with staging(storage, waits=False) as stage:
        files = [put(storage, stage.new_file(), parquet_bytes(0, "new"))]
        commit(storage, snapshot, stage, FileChanges(files, removes))


@pytest.mark.parametrize("key", ["owner.json", ""], ids=["the owner file", "everything"])
def test_staging_that_is_refused_says_so_and_leaves_nothing(
    plain: Moto, there: Storage, key: str
) -> None:
    snapshot = take_snapshot(there)
    refused = r"staging in the control directory .*\nHint: .*control_dir="
    with (
        plain.following(failing("PutObject", 403, "AccessDenied", key=key)),
        pytest.raises(PermissionError, match=refused),
    ):
        add_file(there, snapshot, ["a.parquet"])
    assert there.backend.names(there.control.path) == []
    assert read_consistently(there) == [(0, "old"), (1, "old")]


@EVERY_OBJECT_STORE
def test_staged_files_without_an_owner_go_when_they_are_old(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f".staging_{0:032x}"
    storage.backend.overwrite(storage.control.at(name, "a.parquet.staged"), b"bytes")
    assert not recover_storage(storage)
    assert storage.backend.names(storage.control.path) == [name]
    monkeypatch.setattr(staging_module, "MAX_OWNER_AGE", timedelta(minutes=-1))
    assert recover_storage(storage).discarded == (name,)
    assert storage.backend.names(storage.control.path) == []


@pytest.mark.parametrize("replaces", [True, False])
def test_a_commit_whose_mark_was_refused_is_completed_without_its_owner(
    plain: Moto, there: Storage, replaces: bool
) -> None:
    """The mark and the last removals are sent together, so only the mark may be missing."""
    snapshot = take_snapshot(there)
    removes = ["a.parquet"] if replaces else []
    with (
        plain.following(failing("PutObject", 403, "AccessDenied", key=".done.json")),
        pytest.raises(CommitPendingError),
    ):
        add_file(there, snapshot, removes)
    assert staging_names(there.backend.names(there.control.path)) == []
    expected = [(0, "new"), (1, "new")] + [(0, "old"), (1, "old")] * (not replaces)
    assert plain_rows(there) == sorted(expected)
    assert [commit.number for commit in recover_storage(there).completed] == [1]
    assert plain_rows(there) == sorted(expected)
    assert [entry.state for entry in history_of(there)] == ["recovered"]


def test_a_commit_whose_number_was_taken_and_folded(plain: Moto, there: Storage) -> None:
    """The put of its record alone would succeed, and the record would be taken for a leftover."""
    snapshot = take_snapshot(there)
    forge(there, BLOCK + KEPT)  # commits that change no file
    fold_records(there)
    assert there.backend.stat(there.control.record(1)) is None
    assert tried(there, "mine", snapshot) == "done"
    numbers = [entry.number for entry in history_of(there)]
    assert numbers == list(range(1, BLOCK + KEPT + 2))
    assert history_of(there)[-1].added
    assert read_consistently(there) == [(0, "mine"), (1, "mine")]


def plain_rows(storage: Storage) -> State:
    """The rows of all files that a plain listing shows."""
    rows: State = []
    for file in list_files(storage.root).files:
        data = pq.read_table(pa.BufferReader(storage.backend.read(file.path)))
        rows += zip(data["id"].to_pylist(), data["version"].to_pylist(), strict=True)
    return sorted(rows)


@EVERY_OBJECT_STORE
def test_an_object_without_bytes_can_be_read(storage: Storage) -> None:
    path = storage.control.at("empty")
    storage.backend.create(path, b"")
    assert storage.backend.read(path) == b""
    with pytest.raises(FileNotFoundError):
        storage.backend.read(storage.control.at("missing"))


def test_the_guide_shows_the_policy_that_the_tests_use() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "s3.md").read_text(encoding="utf-8")
    shown = re.search(r"```json\n(.*?)```", guide, re.DOTALL)
    assert shown is not None
    assert json.loads(shown[1]) == policy("bucket", "lake/orders/", "lake/.orders.fsspeckit/")


@EVERY_OBJECT_STORE
def test_a_bucket_that_is_not_there_is_not_created(server: ObjectStore) -> None:
    storage = opened(server, "lake-of-nobody")
    with pytest.raises(
        FileNotFoundError, match=r"no (bucket|container) 'lake-of-nobody'.*\n.*create it"
    ):
        take_snapshot(storage)
    assert "lake-of-nobody" not in server.buckets()


@EVERY_OBJECT_STORE
def test_a_prefix_with_deleted_objects_only_is_not_there(server: ObjectStore) -> None:
    storage = opened(server, server.make_bucket(versioned=True))
    with staging(storage) as stage:
        assert storage.backend.names(storage.control.path) == [stage.name]
    assert storage.backend.names(storage.control.path) == []
    assert not recover_storage(storage)


def test_a_folder_that_a_console_has_made_is_not_a_file(plain: Moto) -> None:
    storage = opened(plain, plain.make_bucket())
    bucket = storage.root.path.partition("/")[0]
    plain.client().put_object(Bucket=bucket, Key="lake/data/", Body=b"")
    assert take_snapshot(storage).listing.files == ()


def test_a_dataset_cannot_have_the_name_of_an_object(there: Storage) -> None:
    path = there.root.to_user_path(there.path("a.parquet"))
    storage = open_storage(path, there.root.filesystem)
    with pytest.raises(NotADirectoryError, match=r"a\.parquet"):
        list_files(storage.root)


def test_a_whole_bucket_as_a_dataset(plain: Moto) -> None:
    bucket, other = plain.make_bucket(), plain.make_bucket()
    with pytest.raises(InvalidArgumentError, match="control_dir"):
        open_storage(f"s3://{bucket}", storage_options=plain.options)
    storage = open_storage(
        f"s3://{bucket}", storage_options=plain.options, control_dir=f"s3://{other}/control"
    )
    storage.root.filesystem.pipe_file(storage.path("a.parquet"), parquet_bytes(0, "old"))
    with plain.recording() as asked:
        assert list(take_snapshot(storage).by_path) == ["a.parquet"]
    assert {request.action for request in asked} <= {"ListObjectsV2", "HeadObject", "GetObject"}


def behind_pyarrow(server: ObjectStore, bucket: str) -> Storage:
    filesystem = arrow_fs.S3FileSystem(
        access_key=KEY, secret_key=SECRET, region=REGION, endpoint_override=server.url
    )
    return open_storage(f"{bucket}/lake/data", filesystem, lock_timeout=0.0)


def test_what_pyarrow_puts_is_not_exclusive(plain: Moto) -> None:
    storage = behind_pyarrow(plain, plain.make_bucket())
    assert any("no exclusive create" in sentence for sentence in storage.capabilities.missing())


@EVERY_S3
@pytest.mark.parametrize("versioned", [False, True], ids=["plain", "versioned"])
def test_replaced_files_go_where_pyarrow_lists_no_etags(
    server: ObjectStore, versioned: bool
) -> None:
    bucket = server.make_bucket(versioned=versioned)
    owned = opened(server, bucket)
    for name, start in FLAT.files.items():
        owned.root.filesystem.pipe_file(owned.path(name), parquet_bytes(start, "old"))
    storage = behind_pyarrow(server, bucket)
    snapshot = take_snapshot(storage)
    with staging(storage) as stage:
        commit(storage, snapshot, stage, stage_change(FLAT, storage, stage))
    assert read_consistently(owned) == FLAT.new()


class OtherAzure(MemoryFileSystem):  # type: ignore[misc]
    """A filesystem for Azure that is not adlfs."""

    protocol = "abfss"
    cachable = False


def test_only_what_is_tried_counts_as_exclusive_on_azure() -> None:
    root = open_root("/lake/data", OtherAzure())
    assert any("no exclusive create" in sentence for sentence in capabilities_of(root).missing())
    server = object_store("azurite")
    owned = opened(server, server.make_bucket())
    assert len(owned.capabilities.missing()) == 4
    assert not any("exclusive" in sentence for sentence in owned.capabilities.missing())


def test_a_store_that_nothing_is_known_about_keeps_its_directories() -> None:
    memory = open_storage("memory://lake/data", fsspec.filesystem("memory"))
    assert memory.capabilities.directories
    assert not memory.capabilities.conditional_put
