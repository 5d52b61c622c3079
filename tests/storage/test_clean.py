"""Clean: what nobody needs goes, with its bytes; what a writer owns stays."""

from __future__ import annotations

import itertools
import os
import shutil
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.storage.checks import assert_tidy, read_plainly
from tests.storage.figures import count
from tests.storage.scenario import FLAT, fresh, parquet_bytes, put, rewrite, run_commit
from tests.storage.test_folding import DUE, forge
from tests.storage.test_interleavings import without_locks
from tests.storage.test_state_machine import Death, Dying

from fsspeckit.errors import InvalidArgumentError, LockTimeoutError
from fsspeckit.storage import (
    IncomingBatch,
    Retention,
    Storage,
    clean_storage,
    create_stage,
    history_of,
    open_storage,
    pending_numbers,
    staging,
)
from fsspeckit.storage.commit.lock import hold_lock
from fsspeckit.storage.fs import syscalls
from fsspeckit.storage.storage import BLOCK, KEPT

LONG_AGO = time.time() - 30 * 86400


@pytest.fixture
def storage(quick_disk: str) -> Storage:
    return open_storage(fresh(FLAT, f"{quick_disk}/x"))


def leave_everything(storage: Storage) -> dict[str, int]:
    """Leave one of each; gives the bytes of each kind."""
    root, control = storage.root.path, storage.control
    for version in ("a", "b"):
        rewrite(root, version)
    os.utime(f"{control.trash}/0000000001", (LONG_AGO, LONG_AGO))
    sizes = {"trash": sum(storage.backend.sizes_below(f"{control.trash}/0000000001").values())}
    stage = create_stage(storage)
    data = parquet_bytes(900, "staged")
    put(storage, stage.new_file(), data)
    stage.release()
    owner = os.path.getsize(f"{stage.path}/owner.json")
    sizes["staging"] = len(data) + owner
    batch = IncomingBatch(storage, "query", 7)
    with batch.open(path := batch.new_file()) as file:
        file.write(b"12345")
    for place in (path, batch.path):
        os.utime(place, (LONG_AGO, LONG_AGO))
    sizes["incoming"] = 5
    Path(control.commits, ".new_1").write_bytes(b"123")
    sizes["temporary"] = 3
    os.makedirs(f"{control.path}/.shadow_0000000009_{'0' * 32}/tree")
    os.makedirs(control.tombstones)
    Path(control.tombstones, f"{1:010}_{'0' * 32}.arrow").write_bytes(b"1234567")
    sizes["tombstones"] = 7
    return sizes


def tree(storage: Storage) -> list[str]:
    found = [str(path) for path in Path(storage.control.path).rglob("*")]
    return sorted(path for path in found if not path.endswith("/lock"))


def test_everything_that_nobody_needs_goes(storage: Storage) -> None:
    sizes = leave_everything(storage)
    forge(storage, DUE)
    storage = replace(storage, retention=Retention(commits=1000))
    before, rows = tree(storage), read_plainly(storage.root.path)
    planned = clean_storage(storage)
    assert tree(storage) == before
    assert {item.kind: item.bytes for item in planned.items} == {**sizes, "tree": 0}
    assert (planned.bytes, planned.folded, planned.dry_run) == (sum(sizes.values()), BLOCK, True)
    assert "would be removed" in str(planned)
    events: list[tuple[str, int, int]] = []
    report = clean_storage(storage, dry_run=False, progress=lambda *event: events.append(event))
    assert events[0] == ("clean", 0, 1)
    assert events[-2:] == [("clean", len(report.items), len(report.items)), ("clean", 1, 1)]
    assert replace(report, dry_run=True) == planned
    assert f"{BLOCK} records folded" in str(report)
    assert os.listdir(storage.control.trash) == ["0000000002"]
    assert len(os.listdir(storage.control.commits)) == 1 + 2 * (KEPT + 2)
    assert_tidy(storage.root.path)
    assert read_plainly(storage.root.path) == rows
    assert len(history_of(storage)) == DUE + 2
    assert not clean_storage(storage, dry_run=False)
    assert report.to_dict()["bytes"] == planned.bytes


@pytest.mark.parametrize("locks", [True, False])
def test_what_a_running_writer_owns_stays(storage: Storage, locks: bool) -> None:
    storage = storage if locks else without_locks(storage)
    with staging(storage) as stage:
        put(storage, stage.new_file(), parquet_bytes(900, "staged"))
        batch = IncomingBatch(storage, "query", 7)
        with batch.open(batch.new_file()) as file:
            file.write(b"12345")
        before = tree(storage)
        for dry_run in (True, False):
            report = clean_storage(storage, dry_run=dry_run)
            assert (report.items, report.in_use) == ((), (stage.name,))
        assert tree(storage) == before
        assert f"left {stage.name}: its owner may be alive" in str(report)


def test_a_writer_that_commits_is_waited_for(storage: Storage) -> None:
    storage.prepare()
    with hold_lock(storage):
        impatient = replace(storage, lock_timeout=0.0)
        for dry_run in (True, False):
            with pytest.raises(LockTimeoutError):
                clean_storage(impatient, dry_run=dry_run)


def test_an_interrupted_commit_is_completed_first(storage: Storage) -> None:
    with suppress(Death), syscalls.observed(Dying(60)):
        run_commit(FLAT, storage.root.path)
    assert pending_numbers(storage) == (1, [1])
    planned = clean_storage(storage)
    assert (planned.completed, planned.items) == ((1,), ())
    assert pending_numbers(storage) == (1, [1])
    assert clean_storage(storage, dry_run=False).completed == (1,)
    assert read_plainly(storage.root.path) == FLAT.new()
    assert_tidy(storage.root.path)


def test_where_nothing_was_written(storage: Storage) -> None:
    for dry_run in (True, False):
        assert "nothing to clean" in str(clean_storage(storage, dry_run=dry_run))
    assert not os.path.exists(storage.control.path)


@pytest.mark.usefixtures("small_blocks")
def test_death_at_every_call_of_cleaning(quick_disk: str) -> None:
    model = open_storage(fresh(FLAT, f"{quick_disk}/model"))
    leave_everything(model)
    forge(model, 8)
    history, rows = [str(entry) for entry in history_of(model)], read_plainly(model.root.path)
    for at in itertools.count():
        shutil.copytree(f"{quick_disk}/model", f"{quick_disk}/{at}")
        storage = open_storage(f"{quick_disk}/{at}/data")
        dying = Dying(at)
        with suppress(Death), syscalls.observed(dying):
            clean_storage(storage, dry_run=False)
        clean_storage(storage, dry_run=False)
        # A batch that lost its file just now is too young to go; its directory is empty.
        assert not storage.backend.sizes_below(storage.control.at("incoming"))
        shutil.rmtree(storage.control.at("incoming"), ignore_errors=True)
        assert_tidy(storage.root.path)
        assert [str(entry) for entry in history_of(storage)] == history
        assert read_plainly(storage.root.path) == rows
        shutil.rmtree(f"{quick_disk}/{at}")
        count("killed at every call of cleaning", tried=1, losses=0)
        if dying.calls <= at:
            break
    assert at > 30


def test_the_trash_has_a_limit_of_bytes(quick_disk: str) -> None:
    root = fresh(FLAT, f"{quick_disk}/x")
    storage = open_storage(root, retention=Retention(commits=10))
    trash = storage.control.trash
    for number in range(4):
        rewrite(root, f"v{number}", retention=Retention(commits=10))
    sizes = [
        sum(storage.backend.sizes_below(f"{trash}/{number:010}").values()) for number in range(1, 5)
    ]
    whole, two = sum(sizes), sum(sizes[2:])
    for limit, kept in [(None, 4), (whole, 4), (whole - 1, 3), (two, 2), (0, 1)]:
        retention = Retention(commits=10, max_bytes=limit)
        clean_storage(replace(storage, retention=retention), dry_run=False)
        assert len(os.listdir(trash)) == kept
    rewrite(root, "next", retention=Retention(commits=10, max_bytes=sizes[3]))
    assert os.listdir(trash) == ["0000000005"]


@pytest.mark.parametrize(
    "arguments",
    [{"commits": -1}, {"commits": 1.5}, {"seconds": "x"}, {"max_bytes": -1}, {"commits": True}],
)
def test_retentions_that_make_no_sense(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match="of a retention must be a"):
        Retention(**arguments)
    with pytest.raises(InvalidArgumentError, match="must be a Retention, got 3"):
        open_storage("memory://x/y", retention=3)  # type: ignore[arg-type]
