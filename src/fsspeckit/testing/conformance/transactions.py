"""Transactions: each batch of an application is applied once, by every call that changes rows."""

# ruff: noqa: D102 - the names of the tests explain

from __future__ import annotations

import threading
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from fsspeckit.errors import StalePlanError, TransactionResetError
from fsspeckit.storage import Transaction, history
from fsspeckit.testing.conformance.merging import EVERY_STORE, three_files
from fsspeckit.testing.conformance.objects import EVERY_OBJECT_STORE
from fsspeckit.testing.conformance.stores import (
    bucket_store,
    data_files,
    every_store_and_strategy,
    object_store,
)
from fsspeckit.testing.conformance.target import Target, lines, numbers
from fsspeckit.testing.model import STRATEGIES
from fsspeckit.testing.transaction_model import ModelDataset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fsspeckit.core.incremental import MergeResult
    from fsspeckit.storage import HistoryEntry

__all__ = ["TransactionTests"]

FEED = "orders-feed"


def batch(version: int = 7, run: str | None = None) -> Transaction:
    """A batch of the feed."""
    return Transaction(FEED, version, run)


def unreadable() -> pa.RecordBatchReader:
    """A source that fails as soon as a row of it is read."""

    def batches() -> Iterator[pa.RecordBatch]:
        raise AssertionError("the source was read")
        yield

    return pa.RecordBatchReader.from_batches(numbers().schema, batches())


def commits(target: Target) -> list[HistoryEntry]:
    """The commits of the dataset."""
    return history(target.store.path, **target.store.opening)


def counts(result: MergeResult) -> tuple[int, int, int]:
    """What a merge did to rows."""
    return result.inserted, result.updated, result.deleted


def skip(target: Target, strategy: str = "upsert", version: int = 7, **options: Any) -> MergeResult:
    """Merge a batch that is committed: nothing is read or written, and the result says so."""
    before, number = target.store.tree(), len(commits(target))
    result: MergeResult = target.io.merge(
        unreadable(), target.store.path, strategy, ["id"], transaction=batch(version), **options
    )
    assert result.metrics["commit"]["skipped"] is True
    assert "skipped: " in str(result)
    assert sorted(map(target.store.relative, result.preserved_files)) == data_files(before)
    assert (result.rewritten_files, result.inserted_files) == ([], [])
    assert result.target_count_before == result.target_count_after
    assert sum(file.row_count for file in result.files) == result.target_count_after
    assert (target.store.tree(), len(commits(target))) == (before, number)
    assert target.store.leftovers() == []
    return result


def merge_while_another_does(
    connect: Callable[..., Any], target: Target, at: int, *, by_plan: bool
) -> int:
    """Merge a batch while another program merges it too, with other values, at an event."""
    for name in target.store.tree():
        target.store.filesystem.rm_file(target.store.at(name))
    three_files(target)
    arguments = (target.store.path, "upsert", ["id"])
    seen = 0

    def progress(*_: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == at:
            with connect(**target.store.options) as io:
                guests.append(io.merge(numbers(1, 8, v="guest"), *arguments, transaction=this))

    guests: list[MergeResult] = []
    this = Transaction(f"guest at {at}", 7)
    before = len(commits(target))
    source = numbers(1, 8, v="mine")
    if by_plan:
        plan = target.io.plan_merge(source, *arguments, transaction=this)
        mine = target.io.execute(plan, progress=progress)
    else:
        mine = target.io.merge(source, *arguments, transaction=this, progress=progress)
    flags = [result.metrics["commit"]["skipped"] for result in (mine, *guests)]
    assert sorted(flags) == [False, True][: len(flags)]
    assert len(commits(target)) == before + 1
    winner = numbers(1, 8, v="guest" if flags[0] else "mine")
    found = set(target.rows(winner.schema))
    assert found == set(lines(pa.concat_tables([numbers(2, 3, 4, 5, 6, 7), winner])))
    return seen


class TransactionTests:
    """Repeated, reordered, raced: each batch is applied once."""

    @every_store_and_strategy(STRATEGIES)
    def test_a_batch_is_applied_once(self, target: Target, strategy: str) -> None:
        three_files(target)
        source = pa.concat_tables([numbers(2, 9, v="new"), numbers(4), numbers(8, v="new")])
        first = target.merge(source, strategy, transaction=batch())
        target.io.merge(numbers(20, 21), target.store.path, "insert", ["id"])
        again = skip(target, strategy)
        assert (again.strategy, again.source_count) == (strategy, 4)
        assert counts(again) == counts(first)
        assert again.metrics["commit"]["number"] == first.metrics["commit"]["number"] == 1
        assert [entry.transaction for entry in commits(target)] == [batch(), None]

    def test_an_earlier_version_is_skipped_without_counts(self, target: Target) -> None:
        target.merge(numbers(1, 2), transaction=batch(7))
        result = skip(target, "update", version=6)
        assert (result.strategy, counts(result)) == ("update", (0, 0, 0))
        assert "version 7 of orders-feed" in str(result)

    @pytest.mark.parametrize("strategy", ["insert", "update", "upsert", "deduplicate"])
    def test_a_batch_without_rows_is_recorded(self, target: Target, strategy: str) -> None:
        three_files(target)
        before = target.store.tree()
        target.io.merge(numbers(), target.store.path, strategy, ["id"], transaction=batch())
        (entry,) = commits(target)
        assert (entry.transaction, entry.added, entry.removed) == (batch(), (), ())
        assert target.store.tree() == before
        skip(target, strategy)

    def test_a_batch_that_changes_no_value_is_recorded(self, target: Target) -> None:
        three_files(target)
        first = target.merge(numbers(1, 5), transaction=batch())
        assert first.metrics["commit"]["skipped"] is False
        assert counts(skip(target)) == (0, 2, 0)

    def test_a_batch_without_rows_for_a_dataset_that_is_not_there(self, target: Target) -> None:
        target.io.merge(numbers(), target.store.path, "upsert", ["id"], transaction=batch())
        assert skip(target).files == []
        target.merge(numbers(1), transaction=batch(8))

    @pytest.mark.parametrize(
        ("recorded", "given"), [(batch(99), batch(0)), (batch(3, "old"), batch(2, "new"))]
    )
    def test_a_counter_that_starts_again_is_refused(
        self, target: Target, recorded: Transaction, given: Transaction
    ) -> None:
        target.merge(numbers(1), transaction=recorded)
        for source in (numbers(2), unreadable()):
            target.refuses(TransactionResetError, source, match="Hint: ", transaction=given)
        with pytest.raises(TransactionResetError):
            target.io.write_dataset(unreadable(), target.store.path, transaction=given)
        with pytest.raises(TransactionResetError):
            target.plan(numbers(2), transaction=given)

    @EVERY_STORE
    @pytest.mark.parametrize("mode", ["append", "overwrite"])
    def test_a_write_is_applied_once(self, target: Target, mode: str) -> None:
        three_files(target)
        io, path = target.io, target.store.path
        first = io.write_dataset(numbers(8, 9), path, mode=mode, transaction=batch())
        before = target.store.tree()
        again = io.write_dataset(unreadable(), path, mode=mode, transaction=batch())
        assert (again.files, again.total_rows, again.mode) == ([], first.total_rows, mode)
        assert again.metrics["commit"]["skipped"] is True
        assert "skipped: transaction orders-feed:7" in str(again)
        assert io.write_dataset(unreadable(), path, transaction=batch(6)).total_rows == 0
        assert target.store.tree() == before
        assert (len(commits(target)), target.store.leftovers()) == (1, [])

    def test_a_write_without_rows_is_recorded(self, target: Target) -> None:
        three_files(target)
        target.io.write_dataset(numbers(), target.store.path, transaction=batch())
        assert [entry.transaction for entry in commits(target)] == [batch()]
        skip(target)

    def test_the_calls_under_their_older_names_take_transactions(self, target: Target) -> None:
        three_files(target)
        io, path = target.io, target.store.path
        io.write_parquet_dataset(numbers(8), path, transaction=batch(1))
        io.merge_parquet_dataset(numbers(8, v="new"), path, ["id"], transaction=batch(2))
        keys: dict[str, Any] = {"strategy": "upsert", "key_columns": ["id"]}
        io.write_parquet_dataset(numbers(9), path, transaction=batch(3), **keys)
        assert [entry.transaction for entry in commits(target)] == [batch(n) for n in (1, 2, 3)]
        assert io.write_parquet_dataset(unreadable(), path, transaction=batch(1)).files == []
        for result in (
            io.merge_parquet_dataset(unreadable(), path, ["id"], transaction=batch(3)),
            io.write_parquet_dataset(unreadable(), path, transaction=batch(3), **keys),
        ):
            assert (counts(result), result.target_count_after) == ((1, 0, 0), 9)

    def test_a_plan_is_executed_once(self, target: Target) -> None:
        three_files(target)
        target.merge(numbers(2, 9, v="new"), transaction=batch(), by_plan=True)
        skip(target)

    def test_a_plan_says_that_its_transaction_is_committed(self, target: Target) -> None:
        three_files(target)
        assert target.plan(numbers(2, v="new"), transaction=batch()).notes == ()
        target.merge(numbers(2, v="new"), transaction=batch())
        plan = target.plan(numbers(2, v="other"), transaction=batch())
        assert "skipped: transaction orders-feed:7 is commit 1" in str(plan)
        assert plan.to_dict()["notes"] == list(plan.notes)
        before = target.store.tree()
        phases: set[str] = set()
        result = target.io.execute(plan, progress=lambda phase, *_: phases.add(phase))
        assert result.metrics["commit"]["skipped"] is True
        assert (phases, target.store.tree()) == ({"plan"}, before)

    def test_a_plan_whose_transaction_was_committed_meanwhile(self, target: Target) -> None:
        three_files(target)
        plan = target.plan(numbers(2, v="mine"), transaction=batch())
        other = target.plan(numbers(2, v="mine"))
        target.merge(numbers(2, v="theirs"), transaction=batch())
        assert counts(target.io.execute(plan)) == (0, 1, 0)
        assert target.rows(numbers().schema)[lines(numbers(2, v="theirs"))[0]] == 1
        with pytest.raises(StalePlanError):
            target.io.execute(other)

    def test_batches_that_are_repeated_and_reordered(self, target: Target) -> None:
        """Every step is compared with the model: what is applied, skipped and refused."""
        target.write("a.parquet", numbers(1, 2, 3))
        model, random = ModelDataset(numbers(1, 2, 3).to_pylist()), Random(7)
        for step in range(16):
            application, run = random.choice("ab"), random.choice([None, None, "x", "y"])
            transaction = Transaction(application, random.choice([0, 1, 2, 13, step]), run)
            source = numbers(*random.sample(range(9), 2), v=f"step {step}")
            arguments = (source, target.store.path, "upsert", ["id"])
            try:
                expected = model.merge(source.to_pylist(), "upsert", ["id"], transaction)
            except TransactionResetError:
                with pytest.raises(TransactionResetError):
                    target.io.merge(*arguments, transaction=transaction)
                continue
            assert counts(target.io.merge(*arguments, transaction=transaction)) == expected
            assert sorted(target.rows(source.schema)) == sorted(lines(model.rows))

    def test_merges_of_one_batch_at_the_same_time(
        self, connect: Callable[..., Any], target: Target
    ) -> None:
        three_files(target)
        results: list[Any] = []

        def work(number: int) -> None:
            try:
                with connect(**target.store.options) as io:
                    source = numbers(1, number, v=f"{number}")
                    results.append(
                        io.merge(source, target.store.path, "upsert", ["id"], transaction=batch())
                    )
            except BaseException as error:  # a thread's error must reach the test
                results.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in (10, 11, 12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        skipped = [result.metrics["commit"]["skipped"] for result in results]
        assert sorted(skipped) == [False, True, True]
        assert {counts(result) for result in results} == {(1, 1, 0)}
        assert (len(commits(target)), sum(target.rows(numbers().schema).values())) == (1, 8)

    @pytest.mark.slow
    @pytest.mark.parametrize("by_plan", [False, True])
    @pytest.mark.parametrize("store", ["exchange", "plain"], indirect=True)
    def test_another_program_commits_the_batch_at_any_moment(
        self, connect: Callable[..., Any], target: Target, by_plan: bool
    ) -> None:
        event, events = 1, 1
        while event <= events:
            events = merge_while_another_does(connect, target, event, by_plan=by_plan)
            event += 1
        assert events > 4

    @EVERY_OBJECT_STORE
    def test_a_batch_is_applied_once_in_a_bucket(
        self, connect: Callable[..., Any], kind: str
    ) -> None:
        server = object_store(kind)
        store = bucket_store(server, server.make_bucket())
        with connect(**store.options) as io:
            target = Target(io, store)
            target.merge(numbers(1, 2), transaction=batch())
            assert counts(skip(target)) == (2, 0, 0)
            io.write_dataset(numbers(), store.path, transaction=batch(8))
            skip(target, version=8)
