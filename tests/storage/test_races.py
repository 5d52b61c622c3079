"""What one writer does without the lock, between any two calls of another one.

Two writers run in threads that take turns, call by call, in every order with few changes of turn.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from tests.storage.checks import assert_tidy, read_plainly
from tests.storage.figures import count
from tests.storage.scenario import FLAT, fresh, parquet_bytes, put, run_commit
from tests.storage.turns import Turns

from fsspeckit.errors import (
    CommitPendingError,
    ConcurrentModificationError,
    InvalidArgumentError,
)
from fsspeckit.storage import (
    FileChanges,
    commit,
    create_stage,
    open_storage,
    recover_storage,
    staging,
    take_snapshot,
)
from fsspeckit.storage.commit.lock import hold_lock
from fsspeckit.storage.fs import syscalls

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fsspeckit.storage import Call, Storage


def open_use_and_discard(storage: Storage) -> None:
    """What a writer does with its staging directory, all of it without the lock."""
    with staging(storage) as stage:
        put(storage, stage.new_file(), parquet_bytes(0, "new"))
        assert len(os.listdir(stage.path)) == 2


@pytest.mark.slow
def test_a_staging_directory_while_others_recover(quick_disk: str) -> None:
    """It is there as long as its owner uses it, and nobody minds when it is gone."""
    storage = open_storage(fresh(FLAT, f"{quick_disk}/x"))
    storage.prepare()
    for before, between, after in product(range(10), range(1, 10), range(1, 9)):
        order = ["owner"] * before + ["other"] * between + ["owner"] * after + ["other"] * 20
        turns = Turns(order)
        with syscalls.observed(turns):
            turns.run(
                owner=lambda: open_use_and_discard(storage), other=lambda: recover_storage(storage)
            )
        assert turns.errors == [], (before, between, after)
        count("staging opened and removed while another recovers", tried=1, losses=0)
    recover_storage(storage)
    assert_tidy(storage.root.path)


class Overtaking:
    """The owner of a staging directory removes it when recovery is about to rename it."""

    def __init__(self) -> None:
        self.removed = ""

    @contextmanager
    def __call__(self, call: Call) -> Iterator[None]:
        if call.name == "rename" and "~0" in call.paths[1] and not self.removed:
            self.removed = call.paths[0]
            shutil.rmtree(self.removed)
        yield


def test_an_owner_removes_what_recovery_is_about_to_sweep(tmp_path: Path) -> None:
    storage = open_storage(fresh(FLAT, str(tmp_path / "x")))
    create_stage(storage).release()
    overtaking = Overtaking()
    with syscalls.observed(overtaking):
        report = recover_storage(storage)
    assert overtaking.removed
    assert (report.discarded, report.in_use) == ((), ())
    assert_tidy(storage.root.path)


class Emptying:
    """Somebody deletes the trash, right before a file is moved into it."""

    def __init__(self, trash: str, times: int = 1) -> None:
        self._trash = trash
        self.left = times

    @contextmanager
    def __call__(self, call: Call) -> Iterator[None]:
        if call.paths[-1].endswith(".trash") and self.left:
            self.left -= 1
            shutil.rmtree(self._trash)
        yield


@pytest.mark.parametrize("publish", ["auto", "plain"])
def test_the_trash_is_emptied_while_it_is_filled(tmp_path: Path, publish: Any) -> None:
    """What was replaced leaves the dataset all the same; its rows would be there twice."""
    root = fresh(FLAT, str(tmp_path / "x"))
    emptying = Emptying(open_storage(root).control.trash)
    with syscalls.observed(emptying):
        run_commit(FLAT, root, publish=publish)
    assert not emptying.left
    assert read_plainly(root) == FLAT.new()


def test_the_trash_cannot_be_filled(tmp_path: Path) -> None:
    """The commit stays pending: no replaced file is left behind, and none is deleted for good."""
    root = fresh(FLAT, str(tmp_path / "x"))
    with (
        syscalls.observed(Emptying(open_storage(root).control.trash, times=3)),
        pytest.raises(CommitPendingError, match="No such file"),
    ):
        run_commit(FLAT, root, publish="plain")
    recover_storage(open_storage(root))
    assert read_plainly(root) == FLAT.new()
    assert_tidy(root)


def test_a_lock_that_was_deleted_is_noticed(tmp_path: Path) -> None:
    storage = open_storage(fresh(FLAT, str(tmp_path / "x")))
    storage.prepare()
    with hold_lock(storage) as lock:
        lock.check()
        os.unlink(storage.control.lock)
        with pytest.raises(ConcurrentModificationError, match="was deleted while it was held"):
            lock.check()


class Removing:
    """Another writer removes a file, right after its permissions were looked at."""

    def __init__(self, victim: str) -> None:
        self._victim = victim

    @contextmanager
    def __call__(self, call: Call) -> Iterator[None]:
        if call.name == "fsync" and os.path.exists(self._victim):
            os.unlink(self._victim)
        yield


def test_the_file_that_is_replaced_goes_while_its_successor_is_prepared(tmp_path: Path) -> None:
    """Permissions are then those of the directory; the conflict itself is found under the lock."""
    root = fresh(FLAT, str(tmp_path / "x"))
    os.chmod(root, 0o750)
    storage = open_storage(root)
    snapshot = take_snapshot(storage)
    with staging(storage) as stage:
        files = [stage.new_file(like=name) for name in ("f0.parquet", "f1.parquet")]
        staged = [put(storage, file, parquet_bytes(0, "new")) for file in files]
        change = FileChanges(staged, ["f0.parquet", "f1.parquet"])
        with (
            syscalls.observed(Removing(f"{root}/f1.parquet")),
            pytest.raises(ConcurrentModificationError, match=r"gone: 'f1\.parquet'"),
        ):
            commit(storage, snapshot, stage, change)
        assert os.stat(staged[1].path).st_mode & 0o777 == 0o640
    assert os.path.exists(f"{root}/f0.parquet")


@pytest.mark.parametrize("kind", ["pointer", "claim"])
def test_two_writers_choose_a_control_directory_at_once(tmp_path: Path, kind: str) -> None:
    """The first one decides, for all; the other is told before it changes anything."""
    for number in range(2):
        fresh(FLAT, str(tmp_path / f"x{number}"))
    if kind == "pointer":  # one dataset, two places
        opened = [
            open_storage(tmp_path / "x0/data", control_dir=tmp_path / place) for place in "ab"
        ]
    else:  # two datasets, one place
        opened = [
            open_storage(tmp_path / f"x{number}/data", control_dir=tmp_path / "a")
            for number in range(2)
        ]
    snapshots = [take_snapshot(storage) for storage in opened]
    opened[0].prepare()
    with pytest.raises(InvalidArgumentError, match="Hint"):
        create_stage(opened[1])
    with staging(opened[0]) as stage:
        file = put(opened[0], stage.new_file(), parquet_bytes(70, "new"))
        assert commit(opened[0], snapshots[0], stage, FileChanges([file])).number == 1


def test_a_task_that_still_writes_leaves_no_staging_directory(quick_disk: str) -> None:
    """Of a task that was run twice, one may go on after the merge is done."""
    storage = open_storage(f"{quick_disk}/data")
    late = ["one", "two"]

    @contextmanager
    def write_late(call: Call) -> Iterator[None]:
        if call.name == "rmdir" and late and "/.staging_" in call.paths[0]:
            with open(f"{call.paths[0]}/{late.pop()}", "wb"):
                pass
        yield

    with syscalls.observed(write_late), staging(storage) as stage:
        pass
    assert not late
    assert not os.path.exists(stage.path)
