"""A transaction is committed once, whatever dies, and however long ago it was."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.storage.checks import assert_tidy, read_plainly
from tests.storage.figures import count
from tests.storage.forkserver import DIED
from tests.storage.scenario import FACTS, FLAT, NOTHING, fresh, rewrite, run_commit

from fsspeckit.errors import CorruptRecordError, InvalidArgumentError, TransactionResetError
from fsspeckit.storage import (
    CommitOutcome,
    FileChanges,
    Skipped,
    Storage,
    Transaction,
    TransactionLimits,
    commit,
    find_transaction,
    history,
    open_storage,
    recover,
    staging,
    take_snapshot,
)
from fsspeckit.storage.commit.log import encode_document

if TYPE_CHECKING:
    from tests.storage.conftest import ForkServer
    from tests.storage.scenario import Scenario

TORTURE = bool(os.environ.get("TORTURE"))
FEED = "orders-feed"
DAY = 24 * 3600.0


@pytest.fixture
def root(tmp_path: Path) -> str:
    return fresh(FLAT, str(tmp_path / "x"))


def apply(
    root: str, version: int | None, run: str | None = None, app: str = FEED, **limits: Any
) -> CommitOutcome:
    """Commit a transaction that changes no file; None for a commit without a transaction."""
    if version is None:
        return rewrite(root, "other")
    storage = replace(open_storage(root), transaction_limits=TransactionLimits(**limits))
    return apply_to(storage, Transaction(app, version, run))


def apply_to(storage: Storage, transaction: Transaction) -> CommitOutcome:
    snapshot = take_snapshot(storage)
    with staging(storage) as stage:
        return commit(storage, snapshot, stage, FileChanges(), FACTS, transaction=transaction)


def run_once(scenario: Scenario, root: str, version: str, **options: Any) -> Skipped | None:
    """Commit a scenario as version 7, as a job does: the check comes before the work."""
    transaction = Transaction(FEED, 7)
    skipped = find_transaction(open_storage(root), transaction)
    if skipped is None:
        return run_commit(scenario, root, version, transaction, **options).skipped
    return skipped


def edit_record(root: str, number: int, **changes: Any) -> None:
    """Write a record as another version of this library would; None leaves a key out."""
    path = Path(open_storage(root).control.record(number))
    content = json.loads(path.read_bytes()) | changes
    for name in ("format", "version", "checksum"):
        del content[name]
    kept = {name: value for name, value in content.items() if value is not None}
    path.write_bytes(encode_document("fsspeckit-commit", kept))


@pytest.mark.parametrize(
    ("application", "version", "run"),
    [
        ("", 1, None),
        ("  ", 1, None),
        ("a" * 201, 1, None),
        ("two\nlines", 1, None),
        ("\ud800", 1, None),
        (7, 1, None),
        ("a", -1, None),
        ("a", 2**63, None),
        ("a", True, None),
        ("a", 1.0, None),
        ("a", "1", None),
        ("a", 1, ""),
        ("a", 1, 7),
    ],
)
def test_a_transaction_is_checked(application: Any, version: Any, run: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="of a transaction must be"):
        Transaction(application, version, run)


def test_a_version_may_be_any_kind_of_integer(root: str) -> None:
    versions: list[Any] = [np.int64(3), 2**63 - 1]
    assert [apply(root, version).skipped for version in versions] == [None, None]
    assert type(Transaction("a", versions[0]).version) is int


def test_a_version_that_is_committed_is_skipped_with_its_facts(root: str) -> None:
    assert run_once(FLAT, root, "new") is None
    before, under_lock = run_once(FLAT, root, "later"), apply(root, 7)
    assert before == under_lock.skipped
    assert before is not None
    assert before.facts is not None
    assert before.facts == replace(FACTS, started=before.facts.started)
    assert (under_lock.number, under_lock.published, under_lock.added) == (1, None, ())
    assert read_plainly(root) == FLAT.new()
    assert len(history(root)) == 1


def test_an_earlier_version_is_skipped_and_a_later_one_is_not(root: str) -> None:
    apply(root, 7)
    earlier = apply(root, 6).skipped
    assert earlier is not None
    assert earlier.facts is None
    assert "version 7 of orders-feed is commit 1" in earlier.note
    assert apply(root, 8).number == 2
    assert apply(root, 7).skipped is not None


def test_applications_count_for_themselves(root: str) -> None:
    assert [apply(root, 5, app=app).number for app in "abc"] == [1, 2, 3]
    assert [apply(root, 5, app=app).number for app in "abc"] == [1, 2, 3]


def test_commits_without_a_transaction_keep_what_is_known(root: str) -> None:
    for version in (1, None, None):
        apply(root, version)
    assert apply(root, 1).skipped is not None
    assert [str(entry.transaction) for entry in history(root)] == [f"{FEED}:1", "None", "None"]
    assert "upsert by id, transaction orders-feed:1 with pyarrow" in str(history(root)[0])


def test_records_of_an_older_version_are_looked_past(root: str) -> None:
    apply(root, 1)
    for number in (2, 3):
        apply(root, None)
        edit_record(root, number, transactions=None, source_rows=None)
    apply(root, None)  # does not look further than one record
    assert apply(root, 1).skipped is not None
    assert apply(root, 2).number == 5
    edit_record(root, 1, transactions=None)
    assert apply(root, 2).skipped is not None, "the newest record answers"


def test_records_older_than_the_retention_are_not_read(root: str) -> None:
    for version in (1, None, None):
        apply(root, version)
    for number in (2, 3):
        edit_record(root, number, transactions=None, time="2020-01-01T00:00:00+00:00")
    assert find_transaction(open_storage(root), Transaction(FEED, 1)) is None


def test_what_is_too_old_is_dropped_and_never_the_transaction_itself(root: str) -> None:
    apply(root, 1, app="idle")
    apply(root, 1, seconds=0)
    assert apply(root, 1).skipped is not None
    assert apply(root, 1, app="idle").skipped is None
    apply(root, 2, seconds=90 * DAY)
    assert apply(root, 1, app="idle").skipped is not None


def test_too_many_applications_are_refused_and_none_is_dropped(root: str) -> None:
    for app in "ab":
        apply(root, 1, app=app, applications=2)
    with pytest.raises(InvalidArgumentError, match=r"of 2 applications.*'c'.*\nHint: an applicat"):
        apply(root, 1, app="c", applications=2)
    assert apply(root, 2, app="b", applications=2).number == 3
    assert apply(root, 1, app="a").skipped is not None


RESETS = [  # run and version on record, run and version that come; whether they are refused
    (None, 10, None, 0, True),
    (None, 11, None, 1, True),
    (None, 9, None, 0, False),
    (None, 100, None, 2, False),
    (None, 0, None, 0, False),
    ("a", 100, None, 0, True),
    ("a", 5, None, 5, False),
    ("a", 5, "a", 0, False),
    ("a", 500, "a", 0, False),
    ("a", 5, "b", 5, True),
    ("a", 5, "b", 0, True),
    ("a", 0, "b", 0, True),
    (None, 5, "b", 5, True),
]


@pytest.mark.parametrize(("old_run", "old", "run", "version", "is_reset"), RESETS)
def test_a_counter_that_starts_again_is_refused(
    root: str, old_run: str | None, old: int, run: str | None, version: int, is_reset: bool
) -> None:
    apply(root, old, old_run)
    if is_reset:
        with pytest.raises(TransactionResetError, match=r"Nothing was changed\.\nHint: ") as caught:
            apply(root, version, run)
        assert (caught.value.recorded_version, caught.value.commit) == (old, 1)
        assert (caught.value.application, caught.value.version) == (FEED, version)
    else:
        assert apply(root, version, run).skipped is not None


def test_a_new_run_that_goes_on_is_applied(root: str) -> None:
    apply(root, 5, "a")
    assert apply(root, 6, "b").number == 2
    assert apply(root, 6, "b").skipped is not None
    with pytest.raises(TransactionResetError, match=r"of run 'a'.*of run 'b'"):
        apply(root, 6, "a")


def test_a_commit_that_was_abandoned_does_not_count(root: str, fork_server: ForkServer) -> None:
    apply(root, 6)
    at = 0
    while len(history(root)) == 1:
        request = {"scenario": "flat", "publish": "plain", "transaction": (FEED, 7)}
        assert fork_server.run("commit", root, kill=at, **request)["exit"] == DIED
        at += 1
    (stage,) = Path(open_storage(root).control.path).glob(".staging_*")
    for file in stage.glob("*.staged"):
        file.unlink()
    assert recover(root, abandon=True).completed[-1].abandoned
    assert apply(root, 6).skipped is not None
    apply(root, None)
    assert apply(root, 6).skipped is not None
    assert apply(root, 7).skipped is None


def test_a_damaged_record_stops_transactions_and_no_other_commit(root: str) -> None:
    for version in (1, None):
        apply(root, version)
    Path(open_storage(root).control.record(2)).write_bytes(b"{")
    assert apply(root, None).number == 3
    with pytest.raises(CorruptRecordError, match=r"0000000002\.json"):
        apply(root, 1)


def test_facts_that_are_lost_are_not_made_up(root: str) -> None:
    apply(root, 1)
    apply(root, None)
    Path(open_storage(root).control.record(1)).unlink()
    skipped = apply(root, 1).skipped
    assert skipped is not None
    assert skipped.facts is None


def test_a_map_that_cannot_be_understood_is_damage(root: str) -> None:
    apply(root, 1)
    edit_record(root, 1, transactions={FEED: [1]})
    with pytest.raises(CorruptRecordError, match=r"0000000001\.json"):
        apply(root, 1)


def test_nothing_is_left_of_a_commit_without_files(root: str) -> None:
    outcome = apply(root, 1)
    assert (outcome.published, outcome.added, outcome.removed) == ("plain", (), ())
    assert read_plainly(root) == FLAT.old()
    assert_tidy(root)


def test_a_dataset_that_is_not_there_can_have_transactions(tmp_path: Path) -> None:
    root = str(tmp_path / "data")
    assert apply(root, 1).number == 1
    assert apply(root, 1).skipped is not None
    assert not os.path.exists(root)


@pytest.mark.parametrize("publish", ["auto", "plain"])
@pytest.mark.parametrize("scenario", [FLAT, NOTHING], ids=lambda item: item.name)
@pytest.mark.slow
def test_killed_at_every_call_and_repeated(
    fork_server: ForkServer, quick_disk: str, scenario: Scenario, publish: Any
) -> None:
    """If the record is there, the repetition is skipped; if not, it is applied."""
    root = f"{quick_disk}/x/data"
    request = {"scenario": scenario.name, "publish": publish, "transaction": (FEED, 7)}
    calls = fork_server.run("commit", root, fresh=True, **request)["calls"]
    for at in range(0, len(calls), 1 if TORTURE or scenario is NOTHING else 3):
        for when in ("before", "after"):
            died = fork_server.run("commit", root, fresh=True, kill=at, when=when, **request)
            assert died["exit"] == DIED
            is_recorded = bool(history(root))
            skipped = run_once(scenario, root, "again", publish=publish)
            assert (skipped is not None) == is_recorded
            assert read_plainly(root) == scenario.new("new" if is_recorded else "again")
            assert len(history(root)) == 1
            title = f"transaction killed and repeated, {scenario.name}, {publish}"
            count(title, tried=1, losses=0, **{"new" if is_recorded else "old": 1})
