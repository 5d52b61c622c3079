"""Undo and restore: an earlier state comes back whole, or not at all."""

from __future__ import annotations

import io
import itertools
import os
import shutil
import uuid
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from tests.storage.checks import assert_tidy, read_consistently, read_plainly
from tests.storage.figures import count
from tests.storage.scenario import (
    FLAT,
    IN_PLACE,
    NOTHING,
    SCENARIOS,
    SHRINKING,
    fresh,
    parquet_bytes,
    put,
    read_contents,
    rewrite,
    run_commit,
)
from tests.storage.test_folding import Meanwhile, forge
from tests.storage.test_interleavings import without_locks
from tests.storage.test_state_machine import Death, Dying

from fsspeckit.errors import (
    ConcurrentModificationError,
    InvalidArgumentError,
    NotRestorableError,
)
from fsspeckit.storage import (
    CommitFacts,
    FileChanges,
    Retention,
    Transaction,
    clean_storage,
    commit,
    earlier_files,
    find_transaction,
    history_of,
    open_storage,
    pending_numbers,
    recover_storage,
    restore,
    restore_storage,
    staging,
    take_snapshot,
    undo,
    undo_storage,
)
from fsspeckit.storage.fs import syscalls

if TYPE_CHECKING:
    from tests.storage.scenario import Scenario, State

    from fsspeckit.storage import StableFiles, Storage

EVERY = pytest.mark.parametrize("scenario", list(SCENARIOS.values()), ids=lambda item: item.name)


@pytest.fixture
def root(quick_disk: str) -> str:
    return fresh(FLAT, f"{quick_disk}/x")


def rows_of(storage: Storage, files: StableFiles) -> State:
    """The rows of an earlier state."""
    rows: State = []
    for pinned in files.files:
        table = pq.read_table(io.BytesIO(storage.backend.read(pinned.file.path)))
        rows += zip(table["id"].to_pylist(), table["version"].to_pylist(), strict=True)
    return sorted(rows)


@EVERY
@pytest.mark.parametrize("publish", ["auto", "plain", "without locks"])
def test_an_undo_and_a_second_one(quick_disk: str, scenario: Scenario, publish: Any) -> None:
    root = fresh(scenario, f"{quick_disk}/x")
    mode: Any = "plain" if publish == "without locks" else publish
    run_commit(scenario, root, publish=mode)
    storage = open_storage(root, publish=mode)
    storage = without_locks(storage) if publish == "without locks" else storage
    before = sorted(take_snapshot(storage).by_path)
    result = undo_storage(storage)
    assert read_plainly(root) == scenario.old()
    assert (result.commit, result.restores, result.undone) == (2, 0, (1,))
    assert {file.original for file in result.restored} == {*scenario.replaced, *scenario.dropped}
    assert len(result.removed) == len(scenario.added) + len(scenario.replaced)
    if not scenario.in_place:
        assert not {file.path for file in result.restored} & {*scenario.files, *before}
    assert rows_of(storage, earlier_files(storage, 1)) == scenario.new()
    assert rows_of(storage, earlier_files(storage, 0)) == scenario.old()
    assert undo_storage(storage).restores == 1
    assert read_plainly(root) == scenario.new()
    assert_tidy(root)


def test_an_undo_copies_nothing_and_keeps_times_and_permissions(root: str) -> None:
    os.chmod(f"{root}/f0.parquet", 0o640)
    before = os.stat(f"{root}/f0.parquet")
    run_commit(FLAT, root)
    result = undo_storage(open_storage(root))
    (found,) = [file for file in result.restored if file.original == "f0.parquet"]
    after = os.stat(f"{root}/{found.path}")
    assert (after.st_ino, after.st_mtime_ns, after.st_mode) == (
        before.st_ino,
        before.st_mtime_ns,
        before.st_mode,
    )


def test_a_state_that_came_back_is_not_brought_back_again(root: str) -> None:
    storage = open_storage(root)
    run_commit(FLAT, root)
    undo_storage(storage)
    result = restore_storage(storage, 0)
    assert (result.commit, result.restored, result.removed) == (None, (), ())
    assert "already" in str(result)
    assert len(history_of(storage)) == 2


def test_a_restore_over_several_commits(root: str) -> None:
    storage = replace(open_storage(root), retention=Retention(commits=10))
    for version in ("a", "b", "c", "d"):
        rewrite(root, version, extra=1)
    states = {n: rows_of(storage, earlier_files(storage, n)) for n in range(2, 5)}
    result = restore_storage(storage, 2)
    assert (result.commit, result.undone) == (5, (3, 4))
    assert read_plainly(root) == states[2]
    assert {version for _, version in states[2]} == {"b"}
    assert restore_storage(storage, 4).undone == (5,)
    assert read_plainly(root) == states[4]
    assert [entry.restores for entry in history_of(storage)[-2:]] == [2, 4]
    assert str(history_of(storage)[-2]).startswith("commit 5 at ")
    assert "restore to commit 2;" in str(history_of(storage)[-2])


def test_what_the_writers_keep_longer_is_kept(root: str) -> None:
    keeps = Retention(commits=10)
    storage = replace(open_storage(root), retention=keeps)
    for version in ("a", "b", "c", "d"):
        rewrite(root, version, extra=1, retention=keeps)
    undo(root, retention=keeps)
    restore(root, 3, retention=keeps)
    assert rows_of(storage, earlier_files(storage, 1))


def test_a_dry_run_changes_nothing(root: str) -> None:
    run_commit(FLAT, root)
    storage = open_storage(root)
    result = undo_storage(storage, dry_run=True)
    assert (result.commit, result.dry_run, len(result.restored)) == (None, True, 4)
    assert "would come back" in str(result)
    assert read_plainly(root) == FLAT.new()
    assert len(history_of(storage)) == 1


def test_progress_counts_files_and_ends_with_the_commit(root: str) -> None:
    run_commit(FLAT, root)
    events: list[tuple[str, int, int]] = []
    result = undo_storage(open_storage(root), progress=lambda *event: events.append(event))
    total = len(result.restored)
    counts = [("restore", number, total) for number in range(1, total + 1)]
    ends = [("restore", 1, 1), ("commit", 0, 1), ("commit", 1, 1)]
    assert events == [("restore", 0, 1), *counts, *ends]
    assert total > 1


def test_files_that_are_gone_are_named(root: str) -> None:
    run_commit(FLAT, root)
    storage = open_storage(root)
    os.unlink(storage.control.trashed(1, "f1.parquet"))
    with pytest.raises(NotRestorableError, match=r"not there any more: 'f1\.parquet'") as caught:
        undo_storage(storage)
    assert (caught.value.missing, caught.value.changed) == (("f1.parquet",), ())
    with pytest.raises(NotRestorableError, match="commit 0"):
        earlier_files(storage, 0)
    assert read_plainly(root) == FLAT.new()
    assert_tidy(root)


def test_a_file_in_the_trash_that_is_another_one_counts_as_gone(root: str) -> None:
    run_commit(FLAT, root)
    storage = open_storage(root)
    Path(storage.control.trashed(1, "f1.parquet")).write_bytes(b"")
    with pytest.raises(NotRestorableError, match=r"f1\.parquet"):
        undo_storage(storage)


@pytest.mark.parametrize("change", ["changed", "deleted"])
def test_files_that_others_have_changed_are_not_destroyed(root: str, change: str) -> None:
    run_commit(FLAT, root)
    storage = open_storage(root)
    added = history_of(storage)[0].added[0]
    path = Path(root, added)
    if change == "changed":
        path.write_bytes(path.read_bytes())
    else:
        path.unlink()
    before = read_plainly(root)
    with pytest.raises(NotRestorableError, match="changed or deleted by another") as caught:
        undo_storage(storage)
    assert caught.value.changed == (added,)
    assert read_plainly(root) == before
    assert rows_of(storage, earlier_files(storage, 0)) == FLAT.old()


def test_what_others_have_added_stays(root: str) -> None:
    run_commit(FLAT, root)
    Path(root, "theirs.parquet").write_bytes(parquet_bytes(500, "theirs"))
    undo_storage(open_storage(root))
    assert read_plainly(root) == sorted([*FLAT.old(), (500, "theirs"), (501, "theirs")])


def test_somebody_who_commits_meanwhile_is_not_undone(root: str) -> None:
    """Not even by a commit that changes no file, whose transaction would be forgotten."""
    run_commit(FLAT, root)
    storage = without_locks(open_storage(root))

    def others() -> None:
        snapshot, batch = take_snapshot(storage), Transaction("feed", 1)
        with staging(storage) as stage:
            commit(storage, snapshot, stage, FileChanges(), transaction=batch)

    with syscalls.observed(Meanwhile(2, others)), pytest.raises(ConcurrentModificationError):
        undo_storage(storage)
    assert read_plainly(root) == FLAT.new()
    assert find_transaction(storage, Transaction("feed", 1)) is not None


def test_a_batch_that_is_undone_can_be_applied_again(root: str) -> None:
    run_commit(NOTHING, root, transaction=Transaction("other", 7))
    run_commit(FLAT, root, transaction=Transaction("feed", 1))
    storage = open_storage(root)
    assert find_transaction(storage, Transaction("feed", 1)) is not None
    result = undo_storage(storage)
    assert result.transactions == ("feed:1",)
    assert "not committed any more: feed:1" in str(result)
    assert find_transaction(storage, Transaction("feed", 1)) is None
    assert find_transaction(storage, Transaction("other", 7)) is not None
    undo_storage(storage)
    assert find_transaction(storage, Transaction("feed", 1)) is not None


def test_commits_without_files_after_it_are_undone_too(root: str) -> None:
    run_commit(FLAT, root)
    run_commit(NOTHING, root, transaction=Transaction("feed", 1))
    result = undo_storage(open_storage(root))
    assert (result.restores, result.undone) == (0, (1, 2))


def test_tombstones_come_back(root: str) -> None:
    storage = open_storage(root)
    run_commit(NOTHING, root, tombstones="one")
    run_commit(FLAT, root, tombstones="two")
    assert read_contents(storage) == ["two"]
    undo_storage(storage)
    assert read_contents(storage) == ["one"]
    undo_storage(storage)
    assert read_contents(storage) == ["two"]
    for name in os.listdir(f"{storage.control.trash}/0000000004/.tombstones"):
        os.unlink(f"{storage.control.trash}/0000000004/.tombstones/{name}")
    with pytest.raises(NotRestorableError, match=r"tombstones/0000000003_"):
        restore_storage(storage, 3)
    assert read_contents(storage) == ["two"]


def test_a_purge_cannot_be_undone(root: str) -> None:
    storage = open_storage(root)
    snapshot = take_snapshot(storage)
    with staging(storage) as stage:
        change = FileChanges([], ["f0.parquet"])
        commit(storage, snapshot, stage, change, CommitFacts(purge=True))
    with pytest.raises(NotRestorableError, match="a purge has emptied the trash"):
        undo_storage(storage)


@pytest.mark.parametrize("number", [-1, 2, True, "1", 1.0, None])
def test_commits_that_there_are_not(root: str, number: Any) -> None:
    run_commit(FLAT, root)
    storage = open_storage(root)
    for act in (restore_storage, earlier_files):
        with pytest.raises(InvalidArgumentError, match="a number from 0 to 1"):
            act(storage, number)


@pytest.mark.parametrize("dry_run", [None, "no", 0])
def test_whether_something_is_changed_is_said_clearly(root: str, dry_run: Any) -> None:
    run_commit(FLAT, root)
    storage = open_storage(root)
    acts = (undo_storage, partial(restore_storage, commit=0), clean_storage)
    for act in acts:
        with pytest.raises(InvalidArgumentError, match="dry_run must be True or False"):
            act(storage, dry_run=dry_run)


def test_nothing_to_undo(root: str) -> None:
    storage = open_storage(root)
    with pytest.raises(InvalidArgumentError, match="no commit that could be undone"):
        undo_storage(storage)
    run_commit(NOTHING, root, transaction=Transaction("feed", 1))
    with pytest.raises(InvalidArgumentError, match="no commit that could be undone"):
        undo_storage(storage)


def test_the_last_change_is_found_behind_many_commits(root: str) -> None:
    run_commit(FLAT, root)
    storage = open_storage(root)
    forge(storage, 100, adds=(), removes=())
    assert undo_storage(storage, dry_run=True).undone == tuple(range(1, 102))


def test_without_a_trash_an_append_can_be_undone_and_a_rewrite_cannot() -> None:
    root = f"memory://{uuid.uuid4().hex}/data"
    storage = open_storage(root)
    filesystem = storage.root.filesystem
    filesystem.pipe_file(storage.path("a.parquet"), parquet_bytes(0, "old"))
    for number, version in ((10, "append"), (0, "rewrite")):
        snapshot = take_snapshot(storage)
        with staging(storage) as stage:
            file = stage.new_file()
            filesystem.pipe_file(file.path, parquet_bytes(number, version))
            removes = ["a.parquet"] if version == "rewrite" else []
            commit(storage, snapshot, stage, FileChanges([file], removes))
        if version == "append":
            undo_storage(storage)
            assert read_consistently(storage) == [(0, "old"), (1, "old")]
    with pytest.raises(NotRestorableError, match="if the bucket keeps versions"):
        undo_storage(storage)


def test_an_earlier_state_while_a_commit_is_pending(root: str) -> None:
    """Files that it replaces may be in the dataset still, or in the trash already."""
    for at in range(0, 80, 7):
        shutil.rmtree(os.path.dirname(root))
        fresh(FLAT, os.path.dirname(root))
        with suppress(Death), syscalls.observed(Dying(at)):
            run_commit(FLAT, root, publish="plain")
        storage = open_storage(root)
        assert rows_of(storage, earlier_files(storage, 0)) == FLAT.old()


@pytest.mark.slow
@pytest.mark.parametrize("publish", ["auto", "plain", "without locks"])
@pytest.mark.parametrize("scenario", [FLAT, IN_PLACE, SHRINKING], ids=lambda item: item.name)
def test_death_at_every_call_of_an_undo(quick_disk: str, scenario: Scenario, publish: Any) -> None:
    """The commit, and the tombstones and transactions that came with it, are undone or not."""
    for at in itertools.count():
        root = fresh(scenario, f"{quick_disk}/x")
        mode: Any = "plain" if publish == "without locks" else publish
        run_commit(NOTHING, root, tombstones="one")
        batch = Transaction("feed", 1)
        run_commit(scenario, root, publish=mode, transaction=batch, tombstones="two")
        storage = open_storage(root, publish=mode, lock_timeout=0.0)
        storage = without_locks(storage) if publish == "without locks" else storage
        dying = Dying(at)
        with suppress(Death), syscalls.observed(dying):
            undo_storage(storage)
        undone = pending_numbers(storage)[0] == 3
        expected = scenario.old() if undone else scenario.new()
        assert read_consistently(storage) == expected
        recover_storage(storage)
        assert read_plainly(root) == expected
        assert read_contents(storage) == ["one" if undone else "two"]
        assert (find_transaction(storage, batch) is None) == undone
        count(f"undo killed at every call, {scenario.name}, {publish}", tried=1, losses=0)
        undo_storage(storage)
        assert read_plainly(root) == (scenario.new() if undone else scenario.old())
        clean_storage(open_storage(root), dry_run=False)
        assert_tidy(root)
        if dying.calls <= at:
            break
    assert undone


@pytest.mark.slow
def test_death_at_every_call_of_an_undo_in_memory() -> None:
    for at in itertools.count():
        storage = open_storage(f"memory://{uuid.uuid4().hex}/data", lock_timeout=0.0)
        for version in ("one", "two"):
            snapshot = take_snapshot(storage)
            with staging(storage) as stage:
                file = put(storage, stage.new_file(), parquet_bytes(0, version))
                commit(storage, snapshot, stage, FileChanges([file]))
        dying = Dying(at)
        with suppress(Death), syscalls.observed(dying):
            undo_storage(storage)
        undone = pending_numbers(storage)[0] == 3
        recover_storage(storage)
        versions = ["one"] if undone else ["one", "two"]
        assert read_consistently(storage) == sorted((row, v) for v in versions for row in (0, 1))
        count("undo killed at every call, memory", tried=1, losses=0)
        if dying.calls <= at:
            break
    assert undone
