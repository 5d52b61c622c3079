"""Tombstones are committed by the record, and none is lost or comes too early."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.storage.checks import assert_tidy, read_plainly
from tests.storage.figures import count
from tests.storage.forkserver import DIED
from tests.storage.scenario import (
    FACTS,
    FLAT,
    NOTHING,
    WEEK,
    assert_swept,
    fresh,
    read_contents,
    rewrite,
    tombstone_change,
)
from tests.storage.test_transactions import edit_record

from fsspeckit.errors import ConcurrentModificationError, CorruptRecordError
from fsspeckit.storage import (
    CommitOutcome,
    FileChanges,
    Storage,
    Transaction,
    commit,
    history,
    open_storage,
    read_tombstones,
    recover,
    staging,
    take_snapshot,
)
from fsspeckit.storage.fs.backends import TEMPORARY_PREFIX
from fsspeckit.testing.conformance.stores import OBJECT_STORES, object_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.storage.conftest import ForkServer
    from tests.storage.scenario import Scenario

TORTURE = bool(os.environ.get("TORTURE"))
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


def bury(
    storage: Storage,
    content: str,
    *,
    keep: bool = False,
    meanwhile: Callable[[], object] = lambda: None,
    **options: Any,
) -> CommitOutcome:
    """Commit tombstones and no file; something else may happen between plan and commit."""
    snapshot = take_snapshot(storage)
    with staging(storage) as stage:
        change = FileChanges(tombstones=tombstone_change(storage, content, keep=keep))
        meanwhile()
        return commit(storage, snapshot, stage, change, FACTS, **options)


def files_of(storage: Storage) -> list[Path]:
    return sorted(Path(storage.control.tombstones).iterdir())


@EVERY_STORE
def test_tombstones_are_committed_and_what_is_replaced_is_removed(storage: Storage) -> None:
    assert read_contents(storage) == []
    for number, keep in enumerate([False, True, True, False, True]):
        bury(storage, f"{number}", keep=keep)
        assert_swept(storage)
    assert read_contents(storage) == ["3", "4"]


@EVERY_STORE
def test_a_commit_without_files_between_plan_and_commit_leads_to_another_plan(
    storage: Storage,
) -> None:
    with pytest.raises(ConcurrentModificationError, match="another commit was first"):
        bury(storage, "mine", meanwhile=lambda: bury(storage, "theirs"))
    assert read_contents(storage) == ["theirs"]

    def replan(*_: Any) -> FileChanges:
        return FileChanges(tombstones=tombstone_change(storage, "again", keep=True))

    outcome = bury(storage, "mine", meanwhile=lambda: bury(storage, "first"), replan=replan)
    assert outcome.retries == 1
    assert read_contents(storage) == ["first", "again"]
    assert_swept(storage)


def test_a_commit_that_needs_the_tombstones_and_leaves_them_is_planned_again(
    storage: Storage,
) -> None:
    """A late change that is dropped was decided by them."""
    snapshot = take_snapshot(storage)
    base, _ = read_tombstones(storage, WEEK)
    unchanged = replace(tombstone_change(storage, ""), data=None, kept=base.files)
    bury(storage, "theirs")
    change, batch = FileChanges(tombstones=unchanged), Transaction("feed", 1)
    with staging(storage) as stage, pytest.raises(ConcurrentModificationError):
        commit(storage, snapshot, stage, change, FACTS, transaction=batch)


def test_commits_that_know_no_tombstones_carry_them_on(storage: Storage) -> None:
    bury(storage, "kept")
    rewrite(storage.root.path, "other")
    rewrite(storage.root.path, "other again")
    assert read_contents(storage) == ["kept"]
    assert [entry.tombstones for entry in history(storage.root.path)] == [1, None, None]
    assert "1 tombstone for 7 days" in str(history(storage.root.path)[0])


def test_records_of_an_older_writer_are_looked_past(storage: Storage) -> None:
    bury(storage, "kept")
    for number in (2, 3):
        rewrite(storage.root.path, "other")
        edit_record(storage.root.path, number, tombstones=None)
    rewrite(storage.root.path, "does not look further than one record")
    assert read_contents(storage) == ["kept"]
    bury(storage, "new", keep=True)
    assert read_contents(storage) == ["kept", "new"]
    edit_record(storage.root.path, 1, tombstones=None)
    assert read_contents(storage) == ["kept", "new"], "the newest record answers"


def test_records_older_than_the_retention_are_not_asked(storage: Storage) -> None:
    bury(storage, "kept")
    for number in (2, 3):
        rewrite(storage.root.path, "other")
        edit_record(storage.root.path, number, tombstones=None, time="2020-01-01T00:00:00+00:00")
    assert read_contents(storage) == []
    assert len(read_tombstones(storage, 1e9)[1]) == 1


@pytest.mark.parametrize("damage", ["lost", "damaged"])
def test_a_file_that_is_lost_or_damaged_stops_feeds_and_no_other_commit(
    storage: Storage, damage: str
) -> None:
    for content in ("one", "two"):
        bury(storage, content, keep=True)
    _, second = files_of(storage)
    if damage == "lost":
        second.unlink()
    else:
        second.write_bytes(b"twO")
    with pytest.raises(CorruptRecordError, match=rf"{second.name}.*\nHint: .*timedelta\(0\)"):
        bury(storage, "three")
    rewrite(storage.root.path, "other")
    _, data = read_tombstones(storage, 0.0)
    assert data == [None, None], "what has expired is not needed"


@pytest.mark.parametrize(
    "wrong", [{"files": [{"name": "../../x", "rows": 1, "newest": 0, "checksum": ""}]}, 7, {}]
)
def test_a_record_that_cannot_be_understood_is_damage(storage: Storage, wrong: Any) -> None:
    bury(storage, "one")
    edit_record(storage.root.path, 1, tombstones=wrong)
    with pytest.raises(CorruptRecordError, match=r"0000000001\.json"):
        read_tombstones(storage, WEEK)


def test_what_killed_writers_left_is_removed(storage: Storage) -> None:
    bury(storage, "one")
    directory = Path(storage.control.tombstones)
    for name in (f"0000000002_{'a' * 32}.arrow", f"{TEMPORARY_PREFIX}x", "mine.txt"):
        (directory / name).write_bytes(b"left")
    ahead = directory / f"0000000009_{'b' * 32}.arrow"
    ahead.write_bytes(b"of a later commit")
    bury(storage, "two", keep=True)
    left = {path.name for path in files_of(storage)}
    named = {file.name for file in read_tombstones(storage, WEEK)[0].files}
    assert left == {*named, "mine.txt", ahead.name}


def test_tombstones_of_a_commit_that_was_abandoned_do_not_count(
    storage: Storage, fork_server: ForkServer
) -> None:
    fresh(FLAT, os.path.dirname(storage.root.path))
    bury(storage, "before")
    at, root = 0, storage.root.path
    while len(history(root)) == 1:
        request = {"scenario": "flat", "publish": "plain", "tombstones": "abandoned"}
        assert fork_server.run("commit", root, kill=at, **request)["exit"] == DIED
        at += 1
    (stage,) = Path(storage.control.path).glob(".staging_*")
    for file in stage.glob("*.staged"):
        file.unlink()
    assert recover(root, abandon=True).completed[-1].abandoned
    assert read_contents(storage) == ["before"]
    rewrite(root, "other")
    assert read_contents(storage) == ["before"]
    bury(storage, "after", keep=True)
    assert read_contents(storage) == ["before", "after"]
    assert_swept(storage)


@pytest.mark.parametrize("publish", ["auto", "plain"])
@pytest.mark.parametrize("scenario", [FLAT, NOTHING], ids=lambda item: item.name)
@pytest.mark.slow
def test_killed_at_every_call_of_a_commit_with_tombstones(
    fork_server: ForkServer, quick_disk: str, scenario: Scenario, publish: Any
) -> None:
    """The tombstones are the old or the new ones, as the rows are, and a repetition sweeps."""
    root = f"{quick_disk}/x/data"
    request = {"scenario": scenario.name, "publish": publish, "fresh": True}
    before = {"tombstones": "old", "kill": None, "scenario": "nothing", "fresh": False}
    request |= {"tombstones": "new", "after": before}
    calls = fork_server.run("commit", root, **request)["calls"]
    storage = open_storage(root, publish=publish)
    for at in range(0, len(calls), 1 if TORTURE or scenario is NOTHING else 3):
        for when in ("before", "torn", "after"):
            died = fork_server.run("commit", root, kill=at, when=when, **request)
            assert died["exit"] == DIED
            is_recorded = len(history(root)) == 2
            assert read_contents(storage) == ["new" if is_recorded else "old"]
            recover(root)
            assert read_contents(storage) == ["new" if is_recorded else "old"]
            assert read_plainly(root) == (scenario.new() if is_recorded else scenario.old())
            bury(storage, "again")
            assert read_contents(storage) == ["again"]
            assert_swept(storage)
            assert_tidy(root)
            title = f"tombstones, killed at every call, {scenario.name}, {publish}"
            count(title, tried=1, losses=0, **{"new" if is_recorded else "old": 1})
