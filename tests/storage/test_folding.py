"""Folding: a history of any length in a few files, whoever dies, races, or is older."""

from __future__ import annotations

import itertools
import os
import shutil
import uuid
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.storage.checks import assert_tidy, read_plainly
from tests.storage.figures import count
from tests.storage.scenario import FLAT, fresh, rewrite, stage_change
from tests.storage.test_interleavings import without_locks
from tests.storage.test_state_machine import Death, Dying
from tests.storage.turns import Turns, stepped

from fsspeckit.errors import (
    ConcurrentModificationError,
    CorruptRecordError,
    InvalidArgumentError,
)
from fsspeckit.storage import (
    CommitFacts,
    Transaction,
    commit,
    find_transaction,
    history,
    history_of,
    open_storage,
    pending_numbers,
    recover_storage,
    staging,
    take_snapshot,
)
from fsspeckit.storage.commit.folding import fold_records
from fsspeckit.storage.commit.log import (
    Add,
    CommitRecord,
    Completion,
    RecordedTransaction,
    mark_complete,
    read_completion,
    read_record,
    timestamp,
    write_record,
)
from fsspeckit.storage.fs import syscalls
from fsspeckit.storage.storage import BLOCK, KEPT, RecordNames, Segment
from fsspeckit.testing.object_stores import moto

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fsspeckit.storage import Call, Storage

DUE = BLOCK + KEPT


def record_of(number: int, **fields: Any) -> CommitRecord:
    """The record of a commit that has added a file."""
    add = Add("x.staged", f"x-{number}.parquet", 1, 2)
    facts = CommitFacts("pyarrow", "insert", ("id",), {"inserted": number})
    staging = f".staging_{number:032}"
    return replace(
        CommitRecord(
            number, uuid.uuid4().hex, timestamp(), facts, 0.5, "plain", staging, (add,), ()
        ),
        **fields,
    )


def forge(storage: Storage, commits: int, **fields: Any) -> list[str]:
    """Add commits to a history; gives what the history says then."""
    storage.prepare()
    first = pending_numbers(storage)[0] + 1
    for number in range(first, first + commits):
        write_record(storage, record_of(number, **fields))
        mark_complete(storage, number, Completion("plain", 0.5, notes=(f"note {number}",)))
    return lines(storage)


def lines(storage: Storage) -> list[str]:
    return [f"{entry} {entry.notes}" for entry in history_of(storage)]


def names(storage: Storage) -> list[str]:
    return storage.backend.names(storage.control.commits)


@pytest.fixture
def storage(quick_disk: str) -> Storage:
    return open_storage(fresh(FLAT, f"{quick_disk}/x"))


@pytest.fixture(params=["disk", "disk without locks", "memory"])
def anywhere(request: pytest.FixtureRequest, storage: Storage) -> Storage:
    if request.param == "memory":
        return open_storage(f"memory://{uuid.uuid4().hex}/data")
    return without_locks(storage) if "without" in request.param else storage


@pytest.mark.parametrize("limit", [0, -1, 1.0, True, "2"])
def test_a_limit_of_the_history_is_a_number_of_commits(storage: Storage, limit: Any) -> None:
    forge(storage, 3)
    with pytest.raises(InvalidArgumentError, match="limit must be a whole number, 1 or more"):
        history(storage.root.path, limit=limit)


def test_a_folded_history_is_the_same(anywhere: Storage) -> None:
    before = forge(anywhere, DUE + 30)
    assert fold_records(anywhere).records == BLOCK
    assert lines(anywhere) == before
    assert names(anywhere)[0] == f"0000000001_{BLOCK:010}.jsonl.gz"
    assert len(names(anywhere)) == 1 + 2 * (KEPT + 30)
    assert [entry.number for entry in history_of(anywhere, limit=3)] == [98, 99, 100]
    assert history_of(anywhere, limit=52)[0].number == 49
    assert read_record(anywhere, 7).added == ("x-7.parquet",)
    assert (read_completion(anywhere, 7) or Completion("plain", 0)).notes == ("note 7",)
    assert pending_numbers(anywhere) == (DUE + 30, [])
    assert not recover_storage(anywhere)
    assert fold_records(anywhere).records == 0


def test_segments_are_joined(storage: Storage) -> None:
    before = forge(storage, 11 * BLOCK + KEPT)
    assert fold_records(storage).records == 11 * BLOCK
    segments = [name for name in names(storage) if name.endswith(".gz")]
    assert segments == ["0000000001_0000000500.jsonl.gz", "0000000501_0000000550.jsonl.gz"]
    assert lines(storage) == before


def test_commits_fold_as_they_go(storage: Storage) -> None:
    forge(storage, 3 * BLOCK - 1)
    outcome = rewrite(storage.root.path, "a")
    assert outcome.number == 3 * BLOCK
    assert len(names(storage)) == 2 + 2 * BLOCK
    assert [entry.number for entry in history_of(storage)] == list(range(1, 3 * BLOCK + 1))
    assert rewrite(storage.root.path, "b").number == 3 * BLOCK + 1


def test_a_commit_makes_no_more_calls_after_a_long_history(storage: Storage) -> None:
    """Neither of those that change something, nor longer listings."""
    counted: list[int] = []

    @contextmanager
    def counting(call: Call) -> Iterator[None]:
        counted.append(1)
        yield

    calls = []
    for commits in (1, 12 * BLOCK):
        forge(storage, commits)
        fold_records(storage)
        rewrite(storage.root.path, f"before {commits}")
        counted.clear()
        with syscalls.observed(counting):
            rewrite(storage.root.path, f"after {commits}")
        calls.append(len(counted))
        assert len(names(storage)) <= 2 * (BLOCK + KEPT) + 20
    assert calls[0] == calls[1]


@pytest.mark.usefixtures("small_blocks")
def test_death_at_every_call_of_folding(quick_disk: str) -> None:
    """A block is folded, and two segments are joined; each death is followed by another writer."""
    model = open_storage(f"{quick_disk}/model/data")
    before = forge(model, 10)
    fold_records(model, max_blocks=1)
    for at in itertools.count():
        shutil.copytree(f"{quick_disk}/model", f"{quick_disk}/{at}")
        storage = open_storage(f"{quick_disk}/{at}/data")
        dying = Dying(at)
        with suppress(Death), syscalls.observed(dying):
            fold_records(storage)
        assert lines(storage) == before
        assert pending_numbers(storage) == (len(before), [])
        recover_storage(storage)
        fold_records(storage)
        assert lines(storage) == before
        assert_tidy(storage.root.path)
        assert names(storage)[0] == "0000000001_0000000008.jsonl.gz"
        count("killed at every call of folding", tried=1, losses=0)
        if dying.calls <= at:
            break
    assert at > 2 * 4


def test_a_commit_that_dies_while_it_folds_is_done(storage: Storage) -> None:
    forge(storage, 3 * BLOCK - 1)
    with syscalls.observed(DyingAt("gz")), pytest.raises(Death) as caught:
        rewrite(storage.root.path, "new")
    assert f"commit {3 * BLOCK}" in caught.value.__notes__[0]
    assert {version for _, version in read_plainly(storage.root.path)} == {"new"}
    assert history_of(storage)[-1].complete


class DyingAt:
    """Dies at the first call on a path with some text in it."""

    def __init__(self, text: str) -> None:
        self._text = text

    @contextmanager
    def __call__(self, call: Call) -> Iterator[None]:
        if any(self._text in path for path in call.paths):
            raise Death
        yield


@pytest.mark.parametrize("kind", ["memory", "disk without locks"])
def test_two_writers_that_fold_at_once(quick_disk: str, kind: str) -> None:
    """Without locks both fold; each order of their first calls gives the same history."""
    for number, (ann, bob) in enumerate(itertools.product((1, 9, 60), (2, 6, 60))):
        place = f"memory://{uuid.uuid4().hex}" if kind == "memory" else f"{quick_disk}/{number}"
        opened = open_storage(f"{place}/data")
        opened = opened if kind == "memory" else without_locks(opened)
        before = forge(opened, DUE)
        turns = Turns(["ann"] * ann + ["bob"] * bob + ["ann"] * 600)
        storage = stepped(opened, turns, 5.0)
        with syscalls.observed(turns):
            turns.run(ann=partial(fold_records, storage), bob=partial(fold_records, storage))
        assert turns.errors == []
        fold_records(opened)
        assert lines(opened) == before
        assert len(names(opened)) == 1 + 2 * KEPT


class Meanwhile:
    """Does something else right before the record of a number is created."""

    def __init__(self, number: int, action: Callable[[], object]) -> None:
        self._name = f"{number:010}.json"
        self._action: Callable[[], object] | None = action

    @contextmanager
    def __call__(self, call: Call) -> Iterator[None]:
        if self._action is not None and call.paths[-1].endswith(f"/{self._name}"):
            action, self._action = self._action, None
            action()
        yield


def test_the_number_of_a_folded_commit_is_not_taken_again(storage: Storage) -> None:
    """A writer without a lock sleeps before its record, until others have folded that number."""
    paused = without_locks(storage)
    before: list[str] = []

    def others() -> None:
        before.extend(forge(paused, DUE))
        assert fold_records(paused).records == BLOCK

    with syscalls.observed(Meanwhile(1, others)), pytest.raises(ConcurrentModificationError):
        commit_without_locks(paused)
    assert read_plainly(storage.root.path) == FLAT.old()
    assert lines(paused) == before
    assert_tidy(storage.root.path)


def commit_without_locks(storage: Storage) -> None:
    snapshot = take_snapshot(storage)
    with staging(storage) as stage:
        commit(storage, snapshot, stage, stage_change(FLAT, storage, stage))


def test_files_of_folded_commits_count_for_nobody(storage: Storage) -> None:
    """They come back from a backup, or are a record that was written too late."""
    forge(storage, DUE)
    data = Path(storage.control.record(3)).read_bytes()
    before = lines(storage)
    fold_records(storage)
    Path(storage.control.record(3)).write_bytes(data)
    write_record(storage, record_of(4))
    assert lines(storage) == before
    assert pending_numbers(storage) == (DUE, [])
    assert not recover_storage(storage)
    assert len(fold_records(storage).removed) == 2
    assert_tidy(storage.root.path)


def test_damaged_and_pending_records_are_not_folded(storage: Storage) -> None:
    forge(storage, 2 * DUE)
    damaged = Path(storage.control.record(BLOCK + 3))
    damaged.write_bytes(b"{")
    assert fold_records(storage).records == BLOCK
    with pytest.raises(CorruptRecordError, match=rf"{BLOCK + 3:010}\.json"):
        history_of(storage)
    os.unlink(storage.control.done(2 * BLOCK + 1))
    assert fold_records(storage).records == 0
    assert RecordNames.of(names(storage)).pending == [2 * BLOCK + 1]


def test_a_block_with_a_gap_is_not_folded(storage: Storage) -> None:
    forge(storage, DUE)
    os.unlink(storage.control.record(7))
    assert fold_records(storage).records == 0
    assert len(history_of(storage)) == DUE - 1


def test_a_damaged_segment_stops_the_history_and_nothing_else(storage: Storage) -> None:
    forge(storage, DUE)
    fold_records(storage)
    segment = Path(storage.control.at("commits", Segment(1, BLOCK).name))
    good = segment.read_bytes()
    for bad in (b"", good[:-9], good[: len(good) // 2] + b"x" + good[len(good) // 2 + 1 :]):
        segment.write_bytes(bad)
        with pytest.raises(CorruptRecordError, match=r"jsonl\.gz"):
            history_of(storage)
        with pytest.raises(CorruptRecordError, match=r"jsonl\.gz"):
            read_record(storage, 1)
        assert len(history_of(storage, KEPT)) == KEPT
    assert rewrite(storage.root.path, "new").number == DUE + 1
    with pytest.raises(CorruptRecordError):  # of the history
        forge(storage, BLOCK)
    assert fold_records(storage).records == BLOCK


def test_what_records_carry_is_found_in_segments(storage: Storage) -> None:
    """The last commits are those of an older writer, who says nothing of transactions."""
    known = {"feed": RecordedTransaction(7, timestamp(), 1)}
    forge(storage, 1, transactions=known)
    forge(storage, DUE)
    fold_records(storage)
    assert find_transaction(storage, Transaction("feed", 8)) is None
    skipped = find_transaction(storage, Transaction("feed", 7))
    assert skipped is not None
    assert skipped.facts == replace(record_of(1).facts, started=None)


def test_names_of_other_files_are_ignored() -> None:
    listed = RecordNames.of(
        ["0000000001.damaged.json", "0000000001.json", "1.json", ".new_1", "00000000ab.json"]
    )
    assert listed == RecordNames([1])
    assert (listed.last, listed.pending, listed.can_be_folded) == (1, [1], False)


@pytest.mark.slow
def test_folding_on_an_object_store_takes_few_requests() -> None:
    server = moto()
    storage = open_storage(f"s3://{server.make_bucket()}/data", storage_options=server.options)
    before = forge(storage, DUE)
    calls: list[str] = []

    @contextmanager
    def counting(call: Call) -> Iterator[None]:
        calls.append(call.name)
        yield

    with syscalls.observed(counting):
        assert fold_records(storage).records == BLOCK
    assert calls == ["pipe_file", "rm", "rm"]
    assert lines(storage) == before
    assert len(names(storage)) == 1 + 2 * KEPT
