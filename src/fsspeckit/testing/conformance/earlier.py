"""Earlier states of a dataset: read, brought back by `undo` and `restore`, and cleaned."""

# ruff: noqa: D102 - the names of the tests explain

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from fsspeckit.errors import InvalidArgumentError, NotRestorableError
from fsspeckit.storage import Retention, Transaction, history
from fsspeckit.testing.conformance.merging import three_files
from fsspeckit.testing.conformance.target import as_table, lines, numbers

if TYPE_CHECKING:
    from fsspeckit.testing.conformance.target import Target

__all__ = ["EarlierTests"]

SCHEMA = numbers().schema


def state(target: Target, commit: int | None = None, **options: Any) -> Counter[str]:
    """The rows of a state, as the engine reads it."""
    found = as_table(target.io.read_dataset(target.store.path, commit=commit, **options))
    return Counter(lines(found))


class EarlierTests:
    """What was there before a commit can be read and brought back while its files are there."""

    def test_each_state_that_the_trash_keeps_can_be_read(self, target: Target) -> None:
        three_files(target)
        states = [state(target)]
        target.merge(numbers(1, 4, 9, v="one"))
        states.append(state(target))
        target.merge(numbers(4, 9, v="two"), "full_merge")
        states.append(state(target))
        before = target.store.tree()
        assert [state(target, commit) for commit in range(3)] == states
        narrow = {"columns": ["id"], "filters": [("id", "<", 3)]}
        assert state(target, 0, **narrow) == Counter(lines(pa.table({"id": [1, 2]})))
        assert target.store.tree() == before
        for commit in (3, -1):
            with pytest.raises(InvalidArgumentError, match="a number from 0 to 2"):
                state(target, commit)

    def test_partition_columns_of_an_earlier_state_come_from_its_paths(
        self, target: Target
    ) -> None:
        rows = pa.table({"id": [1, 2, 3], "p": ["x", "x", "y"], "v": ["a", "b", "c"]})
        path = target.store.path
        target.io.write_dataset(rows, path, partition_by="p")
        expected = state(target)
        target.io.delete([1, 3], path, "id")
        assert state(target, 1) == expected
        with pytest.raises(FileNotFoundError, match="no data files before its first commit"):
            state(target, 0)
        assert target.io.undo(path).restores == 1
        assert state(target) == expected
        assert {name.split("/")[0] for name in target.store.tree()} >= {"p=x", "p=y"}

    def test_an_undo_brings_back_every_row_and_the_next_merge_is_right(
        self, target: Target
    ) -> None:
        three_files(target)
        path, before = target.store.path, target.rows(SCHEMA)
        target.io.merge(numbers(2, 5, 100, v="wrong"), path, "upsert", ["id"], key_index=True)
        wrong = target.rows(SCHEMA)
        planned = target.io.undo(path, dry_run=True)
        assert (planned.commit, planned.undone, target.rows(SCHEMA)) == (None, (1,), wrong)
        result = target.io.undo(path)
        assert (result.commit, target.rows(SCHEMA)) == (2, before)
        target.merge(numbers(5, 8, v="right"))
        assert target.io.restore(path, 1).undone == (2, 3)
        assert target.rows(SCHEMA) == wrong
        target.merge(numbers(2, 100, 101, v="later"))
        assert [entry.strategy for entry in history(path)] == [
            *("upsert", "undo", "upsert", "restore", "upsert")
        ]

    def test_a_state_whose_files_are_gone_is_refused_with_their_names(self, target: Target) -> None:
        three_files(target)
        path = target.store.path
        target.merge(numbers(1, v="one"))
        target.merge(numbers(4, v="two"))
        report = target.io.clean(path, retention=Retention(commits=1))
        assert (report.dry_run, [item.name for item in report.items]) == (
            True,
            ["trash/0000000001"],
        )
        target.io.clean(path, dry_run=False, retention=Retention(commits=1))
        before = target.store.tree()
        for act in (lambda: target.io.restore(path, 0), lambda: state(target, 0)):
            with pytest.raises(NotRestorableError, match=r"not there any more: 'a\.parquet'"):
                act()
        assert target.store.tree() == before
        assert target.io.undo(path).restores == 1

    def test_a_batch_that_is_undone_is_applied_again(self, target: Target) -> None:
        three_files(target)
        batch, path = Transaction("feed", 1), target.store.path
        for _ in range(2):
            result = target.io.merge(
                numbers(1, 9, v="new"), path, "upsert", ["id"], transaction=batch
            )
            assert (result.inserted, result.updated) == (1, 1)
            assert target.io.undo(path).transactions == ("feed:1",)

    def test_deleted_keys_of_a_feed_are_forgotten_with_their_deletion(self, target: Target) -> None:
        path = target.store.path

        def feed(at: int, gone: bool) -> Any:
            row = pa.table({"id": [1], "at": [at], "gone": [gone]})
            return target.io.apply_changes(
                row, path, "id", "at", "gone", except_column_list=["gone"]
            )

        feed(1, gone=False)
        feed(5, gone=True)
        assert feed(3, gone=False).late == 1
        target.io.restore(path, 1)
        assert feed(3, gone=False).updated == 1
        assert feed(5, gone=True).deleted == 1
        assert feed(4, gone=False).late == 1
