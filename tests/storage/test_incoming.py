"""Incoming rows: a commit removes those of its batch and of earlier ones, recovery what is old."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.storage.checks import assert_tidy
from tests.storage.scenario import NOTHING, fresh, rewrite

from fsspeckit.storage import IncomingBatch, open_storage, recover, recover_storage, take_snapshot
from fsspeckit.storage.incoming import MAX_INCOMING_SECONDS, discard_abandoned, find_abandoned
from fsspeckit.testing.conformance.stores import OBJECT_STORES, object_store

if TYPE_CHECKING:
    from fsspeckit.storage import Storage

QUERY = "6a3f0b3e-8c7e-4a51-9d0f-0b3cf2b3a9aa"
EVERY_STORE = pytest.mark.parametrize(
    "storage",
    ["disk", "memory", *(pytest.param(kind, marks=pytest.mark.slow) for kind in OBJECT_STORES)],
    indirect=True,
)


@pytest.fixture
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    kind = getattr(request, "param", "disk")
    if kind in OBJECT_STORES:
        server = object_store(kind)
        path = server.at(server.make_bucket(), "lake/data")
        return open_storage(path, storage_options=server.options)
    if kind == "memory":
        return open_storage(f"memory://{tmp_path.name}/data")
    return open_storage(fresh(NOTHING, str(tmp_path / "x")))


def arrive(storage: Storage, query: str, batch: int, task: str = "3-0") -> str:
    """Write a file as a task does."""
    incoming = IncomingBatch(storage, query, batch)
    path = incoming.new_file(task)
    with incoming.open(path) as handle:
        pq.write_table(pa.table({"id": [1]}), handle)
    return path


def left(storage: Storage) -> list[str]:
    """The files of all batches, by query and batch."""
    found = storage.backend.modified_below(storage.control.at("incoming"))
    return sorted("/".join(path.split("/")[:2]) for path in found)


def let_age(storage: Storage, *names: str) -> None:
    old = time.time() - MAX_INCOMING_SECONDS - 60
    for name in names:
        for entry in Path(storage.control.at("incoming", name)).rglob("*"):
            os.utime(entry, (old, old))
        os.utime(storage.control.at("incoming", name), (old, old))


def test_files_of_two_attempts_have_two_names_and_none_is_data(storage: Storage) -> None:
    first, second = arrive(storage, QUERY, 7), arrive(storage, QUERY, 7)
    assert first != second
    for path in (first, second):
        assert path.startswith(storage.control.at("incoming", QUERY, "0000000007", "3-0_"))
        assert path.endswith(".staged")


@EVERY_STORE
def test_a_commit_removes_its_batch_and_earlier_ones_of_its_query(storage: Storage) -> None:
    for query, batch in [(QUERY, 1), (QUERY, 2), (QUERY, 3), ("other", 1)]:
        arrive(storage, query, batch)
    arrive(storage, QUERY, 2)  # an attempt that nobody needs
    IncomingBatch(storage, QUERY, 2).discard()
    assert left(storage) == [f"{QUERY}/0000000003", "other/0000000001"]
    IncomingBatch(storage, QUERY, 3).discard()
    IncomingBatch(storage, "other", 1).discard()
    assert "incoming" not in storage.backend.names(storage.control.path)


@EVERY_STORE
def test_an_abort_removes_the_files_that_it_names_and_nothing_elsewhere(storage: Storage) -> None:
    mine, other = arrive(storage, QUERY, 1), arrive(storage, QUERY, 1)
    foreign = arrive(storage, "other", 1)
    IncomingBatch(storage, QUERY, 1).discard_files([mine, mine, foreign])
    assert storage.backend.stat(mine) is None
    assert storage.backend.stat(other) is not None
    assert storage.backend.stat(foreign) is not None
    IncomingBatch(storage, QUERY, 1).discard_files([other])
    assert left(storage) == ["other/0000000001"]


@EVERY_STORE
def test_old_batches_are_found_in_whatever_query_they_are(storage: Storage) -> None:
    arrive(storage, QUERY, 1)
    arrive(storage, "other", 12)
    assert find_abandoned(storage) == []
    found = find_abandoned(storage, max_seconds=-3600)
    assert found == [f"incoming/{QUERY}/0000000001", "incoming/other/0000000012"]
    assert all(discard_abandoned(storage, name) for name in found)
    assert "incoming" not in storage.backend.names(storage.control.path)


def test_recovery_removes_what_is_a_week_old_and_reports_it(storage: Storage) -> None:
    arrive(storage, QUERY, 1)
    arrive(storage, QUERY, 2)
    arrive(storage, "gone", 4)
    let_age(storage, f"{QUERY}/0000000001", "gone/0000000004")
    report = recover_storage(storage)
    assert report.discarded == (f"incoming/{QUERY}/0000000001", "incoming/gone/0000000004")
    assert "discarded incoming/gone/0000000004" in str(report)
    assert left(storage) == [f"{QUERY}/0000000002"]
    assert not recover(storage.root.path)


def test_a_batch_with_one_new_file_is_not_old(storage: Storage) -> None:
    arrive(storage, QUERY, 1)
    let_age(storage, f"{QUERY}/0000000001")
    arrive(storage, QUERY, 1)
    assert not recover_storage(storage)
    assert len(left(storage)) == 2


def test_directories_and_files_that_do_not_belong_there_go_when_they_are_old(
    storage: Storage,
) -> None:
    incoming = Path(storage.control.at("incoming"))
    (incoming / QUERY / "0000000001").mkdir(parents=True)  # of a task that died at once
    (incoming / "stray.txt").write_bytes(b"x")
    assert not recover_storage(storage)
    let_age(storage, QUERY, f"{QUERY}/0000000001", "stray.txt")
    assert len(recover_storage(storage).discarded) == 2
    assert not incoming.exists()


def test_snapshots_and_commits_do_not_mind_rows_that_are_coming_in(storage: Storage) -> None:
    path = arrive(storage, QUERY, 1)
    take_snapshot(storage)
    rewrite(storage.root.path, "other")
    assert storage.backend.stat(path) is not None
    IncomingBatch(storage, QUERY, 1).discard()
    assert_tidy(storage.root.path)


@pytest.mark.parametrize("name", ["../../x", "a/b", "", ".", "..", "é", "x" * 65, "a\0b", "\udc80"])
def test_a_name_that_is_not_safe_is_hashed(storage: Storage, name: str) -> None:
    path = IncomingBatch(storage, name, 1).new_file(name)
    query, batch, file = path.removeprefix(storage.control.at("incoming") + "/").split("/")
    assert query.startswith("sha256-")
    assert file.startswith("sha256-")
    assert batch == "0000000001"
    assert len(file) < 200


def test_a_directory_that_is_removed_while_a_file_is_opened_is_created_again(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    incoming = IncomingBatch(storage, QUERY, 1)
    make = storage.backend.make_directories
    removals = [0]

    def make_and_remove(path: str) -> None:
        make(path)
        if path == incoming.path:
            removals[0] += 1
            if removals[0] <= 2:
                os.rmdir(path)

    monkeypatch.setattr(storage.backend, "make_directories", make_and_remove)
    with incoming.open(incoming.new_file()) as handle:
        handle.write(b"x")
    assert removals[0] == 3
    monkeypatch.setattr(storage.backend, "make_directories", lambda path: None)
    IncomingBatch(storage, QUERY, 1).discard()
    with pytest.raises(FileNotFoundError):
        incoming.open(incoming.new_file())
