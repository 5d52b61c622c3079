"""Azure Blob Storage: what adlfs leaves open, on Azurite behind a proxy that changes answers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.storage.checks import read_consistently
from tests.storage.scenario import FLAT, parquet_bytes, stage_change

from fsspeckit.errors import CommitPendingError
from fsspeckit.storage import (
    commit,
    list_files,
    open_storage,
    recover_storage,
    staging,
    take_snapshot,
)
from fsspeckit.testing.conformance.stores import object_store
from fsspeckit.testing.object_stores import refusal
from fsspeckit.testing.rule_server import RuleServer, passing_on_to

if TYPE_CHECKING:
    from collections.abc import Iterator

    from werkzeug.wrappers import Request, Response

    from fsspeckit.storage import Storage
    from fsspeckit.testing.object_stores import Azurite
    from fsspeckit.testing.rule_server import Answer, Rule

pytestmark = pytest.mark.slow
COPY_STATUS = "x-ms-copy-status"


@pytest.fixture(scope="module")
def server() -> Azurite:
    return cast("Azurite", object_store("azurite"))


@pytest.fixture
def proxy(server: Azurite) -> Iterator[RuleServer]:
    proxy = RuleServer(passing_on_to(server.url))
    yield proxy
    proxy.stop()


@pytest.fixture
def storage(server: Azurite, proxy: RuleServer) -> Storage:
    """A dataset of the scenario, seen through the proxy."""
    storage = opened(server, proxy)
    for name, start in FLAT.files.items():
        storage.root.filesystem.pipe_file(storage.path(name), parquet_bytes(start, "old"))
    return storage


def opened(server: Azurite, proxy: RuleServer, **account: str) -> Storage:
    behind = replace(server, url=proxy.url, credentials={**server.credentials, **account})
    place = server.at(server.make_bucket(), "lake/data")
    return open_storage(place, storage_options=behind.options, lock_timeout=0.0)


def asked(request: Request) -> tuple[str, str]:
    return request.method, request.full_path


def accepting(answers: list[str]) -> Rule:
    """Say of a copy, and then to each question about it, what is next in a list."""

    def rule(request: Request, answer: Answer) -> Response:
        response = answer()
        if COPY_STATUS in response.headers and answers:
            response.headers[COPY_STATUS] = answers.pop(0)
        return response

    return rule


def change(storage: Storage) -> Any:
    snapshot = take_snapshot(storage)
    with staging(storage) as stage:
        return commit(storage, snapshot, stage, stage_change(FLAT, storage, stage))


def test_a_copy_that_was_only_accepted_is_waited_for(proxy: RuleServer, storage: Storage) -> None:
    source, target = storage.path("old.parquet"), storage.path("new.parquet")
    storage.backend.overwrite(source, b"bytes")
    left = ["pending", "pending", "success"]
    with proxy.following(accepting(left)), proxy.noting(asked) as noted:
        storage.backend.move_over(source, target)
    assert left == []
    assert noted[-1][0] == "DELETE"
    assert [method for method, path in noted if "new.parquet" in path] == [*("PUT", "HEAD", "HEAD")]
    assert storage.backend.read(target) == b"bytes"


@pytest.mark.parametrize("end", ["failed", "aborted"])
def test_a_copy_that_ends_otherwise_leaves_its_source(
    proxy: RuleServer, storage: Storage, end: str
) -> None:
    source, target = storage.path("old.parquet"), storage.path("new.parquet")
    storage.backend.overwrite(source, b"bytes")
    for move in (storage.backend.move_over, lambda *pair: storage.backend.copy_all(dict([pair]))):
        with (
            proxy.following(accepting(["pending", end])),
            pytest.raises(OSError, match=f"new.parquet.*{end}"),
        ):
            move(source, target)
        assert storage.backend.read(source) == b"bytes"


def test_a_commit_whose_copies_fail_is_finished_by_recovery(
    proxy: RuleServer, storage: Storage
) -> None:
    with proxy.following(accepting(["pending", "failed"] * 100)):
        with pytest.raises(CommitPendingError):
            change(storage)
        assert read_consistently(storage) == FLAT.new()
    recover_storage(storage)
    assert read_consistently(storage) == FLAT.new()
    assert storage.backend.names(storage.control.path) == ["commits"]


def test_a_listing_is_one_request(proxy: RuleServer, storage: Storage) -> None:
    with proxy.noting(asked) as noted:
        assert len(list_files(storage.root).files) == len(FLAT.files)
        assert storage.backend.names(storage.control.path) == []
    assert [method for method, _ in noted] == ["GET", "GET"]


def test_a_listing_says_when_a_blob_changed_and_which_version_it_is(storage: Storage) -> None:
    path = storage.path(next(iter(FLAT.files)))
    before = storage.backend.stat(path)
    storage.backend.overwrite(path, storage.backend.read(path))
    after = storage.backend.stat(path)
    assert before is not None
    assert after is not None
    assert before.mtime_ns is not None
    assert before.etag != after.etag
    assert before.size == after.size


def test_a_dataset_below_a_blob_is_listed(storage: Storage) -> None:
    """adlfs finds nothing but the blob there, and says so in another form."""
    parent = storage.root.path.rpartition("/")[0]
    storage.root.filesystem.pipe_file(parent, b"a blob with the name of the directory")
    assert len(list_files(storage.root).files) == len(FLAT.files)


def test_blobs_that_stand_for_directories_are_left_out(storage: Storage) -> None:
    """Accounts with a hierarchical namespace list their directories as blobs."""
    filesystem = storage.root.filesystem
    filesystem.pipe_file(storage.path("day=1"), b"")
    filesystem.setxattrs(storage.path("day=1"), hdi_isfolder="true")
    assert len(list_files(storage.root).files) == len(FLAT.files)
    assert storage.backend.stat(storage.path("day=1")) is None


def test_what_may_not_be_removed_is_reported(proxy: RuleServer, storage: Storage) -> None:
    paths = [storage.path(name) for name in FLAT.files]

    def refuse(request: Request, answer: Answer) -> Response:
        if request.method != "DELETE":
            return answer()
        return refusal(403, "AuthorizationPermissionMismatch", "injected")

    with proxy.following(refuse), pytest.raises(PermissionError, match="blobs/delete"):
        storage.backend.discard_all([*paths, storage.path("gone.parquet")])


def test_removing_several_takes_a_request_each_and_none_to_look(
    proxy: RuleServer, storage: Storage
) -> None:
    with proxy.noting(asked) as noted:
        storage.backend.discard_all([storage.path(name) for name in (*FLAT.files, "gone.parquet")])
    assert {method for method, path in noted if "comp=list" not in path} == {"DELETE"}
    assert list_files(storage.root).files == ()


def test_a_conflict_that_is_not_about_the_name_is_not_a_blob_that_exists(
    proxy: RuleServer, storage: Storage
) -> None:
    def deleting(request: Request, answer: Answer) -> Response:
        return refusal(409, "ContainerBeingDeleted", "injected")

    with (
        proxy.following(deleting),
        pytest.raises(OSError, match="ContainerBeingDeleted") as caught,
    ):
        storage.backend.create(storage.control.record(1), b"record")
    assert not isinstance(caught.value, FileExistsError)


def test_a_wrong_key_is_named(server: Azurite, proxy: RuleServer) -> None:
    """No permission helps, and the ten lines that Azure says about the request do not either."""
    with pytest.raises(
        PermissionError, match=r"does not accept the credentials\.\nHint: check the account"
    ) as caught:
        opened(server, proxy, account_key="d3Jvbmcga2V5")
    assert "permission blobs/read" not in str(caught.value)
    assert len(str(caught.value).splitlines()) == 2
