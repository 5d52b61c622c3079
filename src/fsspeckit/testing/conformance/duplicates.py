"""Duplicates of a dataset: which rows go, and which files change for it."""

# ruff: noqa: D102 - the names of the tests explain

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from fsspeckit import errors
from fsspeckit.storage import Transaction, history
from fsspeckit.testing.conformance.merging import EVERY_STORE, three_files
from fsspeckit.testing.conformance.partitions import days, write_days
from fsspeckit.testing.conformance.stores import data_files
from fsspeckit.testing.conformance.target import numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fsspeckit.testing.conformance.target import Target

__all__ = ["DeduplicateTests"]

_NAN = math.nan
_VALUES: dict[str, list[Any]] = {
    "list": [[1.0, _NAN, -0.0], [1.0, None], [1.0, _NAN, 0.0], [], [], None, None],
    "struct": [{"a": 1, "b": ""}, None, {"a": 1, "b": ""}, {"a": None, "b": ""}, None, None, None],
    "text": ["a", "ab", "a", None, "", "", ""],
    "bytes": [b"\0", b"", b"\0", None, None, None, None],
    "map": [[("k", 1)], [], [("k", 1)], None, [], None, None],
}


def rows(ids: Sequence[int | None], seq: Sequence[float | None]) -> pa.Table:
    """A table of an ``id`` and a ``seq``, and a ``v`` that is different in every row."""
    texts = [f"{number} of {len(ids)}" for number in range(len(ids))]
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "seq": pa.array(seq, pa.float64()), "v": texts}
    )


class DeduplicateTests:
    """``deduplicate``: each key once in the target."""

    @EVERY_STORE
    def test_the_greatest_row_of_each_key_stays(self, target: Target) -> None:
        target.write("a.parquet", rows([1, 2, 1, 3], [1, 5, 2, None]))
        target.write("b.parquet", rows([3, 2], [_NAN, _NAN]))
        target.write("c.parquet", rows([7, 8], [1, 1]))
        target.write("d.parquet", rows([3, 3], [math.inf, 1]))
        result = target.deduplicate(order_by=["seq"])
        assert (result.deleted, result.target_count_after) == (5, 5)
        assert [target.store.relative(path) for path in result.preserved_files] == [
            "b.parquet",
            "c.parquet",
        ]

    @pytest.mark.parametrize(
        ("keep", "order_by"),
        [
            ("first", None),
            ("last", None),
            ("first", ["seq"]),
            (None, ["seq"]),
            ("first", ["seq", "v"]),
        ],
    )
    def test_what_stays_of_rows_that_are_equal_in_the_order(
        self, target: Target, keep: str | None, order_by: list[str] | None
    ) -> None:
        target.write("a.parquet", rows([1, 1, 2], [1, 1, 1]))
        target.write("b.parquet", rows([2, 1, 2], [1, 1, 0]))
        assert target.deduplicate(keep=keep, order_by=order_by).deleted == 4

    def test_rows_with_one_key_that_differ_are_refused_if_nothing_says_which_stays(
        self, target: Target
    ) -> None:
        target.write("a.parquet", numbers(1, 2, 2, v="a"))
        target.write("b.parquet", numbers(1, 3, v="b"))
        before = target.store.tree()
        with pytest.raises(errors.DuplicateRowsError, match=r"1 row.*example: 1.*\n.*order_by"):
            target.io.deduplicate(target.store.path, "id")
        assert target.store.tree() == before
        assert target.store.leftovers() == []

    def test_equal_rows_with_one_key_need_no_order(self, target: Target) -> None:
        target.write("a.parquet", numbers(1, 2, 2, v="a"))
        target.write("b.parquet", numbers(1, 3, v="a"))
        assert target.deduplicate().deleted == 2

    def test_without_a_key_only_equal_rows_go(self, target: Target) -> None:
        target.write("a.parquet", numbers(1, None, 2, v="a"))
        target.write("b.parquet", numbers(1, None, 2, v="a"))
        target.write("c.parquet", numbers(1, 4, 4, v="b"))
        result = target.deduplicate(None)
        assert (result.deleted, len(result.rewritten_files)) == (4, 1)
        assert len(result.preserved_files) == 1  # the first of equal rows stays: b is removed

    @pytest.mark.parametrize("kind", [*_VALUES, "all"])
    def test_equal_rows_with(self, target: Target, kind: str) -> None:
        columns = {name: pa.array(values) for name, values in _VALUES.items() if name != "map"}
        columns["map"] = pa.array(_VALUES["map"], pa.map_(pa.string(), pa.int64()))
        wanted = [kind] if kind != "all" else columns
        target.write("a.parquet", pa.table({name: columns[name] for name in wanted}))
        assert target.deduplicate(None).deleted >= 2

    @pytest.mark.parametrize("null_keys", ["keep", "match"])
    def test_rows_with_null_keys(self, target: Target, null_keys: str) -> None:
        target.write("a.parquet", rows([None, 1, None], [1, -0.0, 3]))
        target.write("b.parquet", rows([None, 1], [4, 0.0]))
        result = target.deduplicate(order_by=["seq"], null_keys=null_keys)
        assert result.deleted == (1 if null_keys == "keep" else 3)

    def test_keys_are_compared_as_values(self, target: Target) -> None:
        kinds = (pa.int32(), pa.int64())
        for name, kind in zip("ab", kinds, strict=True):
            target.write(
                f"{name}.parquet", pa.table({"id": pa.array([1, 2], kind), "v": ["a", "b"]})
            )
        result = target.io.deduplicate(target.store.path)
        assert (result.deleted, result.rewritten_files) == (2, [])

    @pytest.mark.parametrize("at", [[1_000, 1_001], [1_000, 1_000]], ids=["differ", "equal"])
    def test_nanoseconds_of_int96(self, target: Target, at: list[int]) -> None:
        table = pa.table({"id": [1, 1], "at": pa.array(at, pa.timestamp("ns"))})
        target.store.write("a.parquet", table, use_deprecated_int96_timestamps=True)
        for keys in (None, ["id", "at"]):
            deleted = target.io.deduplicate(target.store.path, keys, keep="last").deleted
            assert deleted == (at[0] == at[1] and keys is None)

    def test_a_key_is_unique_in_all_partitions(self, target: Target) -> None:
        write_days(target, days([1, 2], 1), days([2, 3], 2))
        target.knows(days([1], 1).schema)
        assert target.deduplicate(order_by=["day"]).deleted == 1

    def test_equal_rows_of_two_partitions_are_not_duplicates(self, target: Target) -> None:
        write_days(target, days([1, 2, 2], 1), days([2, 3], 2))
        target.knows(days([1], 1).schema)
        assert target.deduplicate(None).deleted == 1
        assert target.deduplicate(["day", "id"]).deleted == 0

    def test_partition_columns_that_only_paths_have(self, target: Target) -> None:
        for p in (1, 2):
            target.write(f"p={p}/f.parquet", numbers(1, 1, 2))
        target.knows(pa.schema([("p", pa.int64())]))
        assert target.deduplicate(["id", "p"]).deleted == 2
        assert target.deduplicate(["id"], order_by=["p"]).deleted == 2

    def test_a_dataset_without_duplicates_stays(self, target: Target) -> None:
        three_files(target)
        assert len(target.deduplicate().preserved_files) == 3
        target.deduplicate(None)

    def test_an_empty_dataset(self, target: Target) -> None:
        target.write("a.parquet", numbers())
        assert target.deduplicate(keep="first").deleted == 0

    def test_duplicates_in_many_row_groups(self, target: Target) -> None:
        table = rows([n % 700 for n in range(2_000)], range(2_000))
        target.write("a.parquet", table, row_group_size=300)
        assert target.deduplicate(order_by=["seq"]).deleted == 1_300

    @pytest.mark.parametrize(
        ("arguments", "match"),
        [
            ({"key_columns": ["nothing"]}, "'nothing'.*not found"),
            ({"key_columns": []}, "key_columns must name"),
            ({"key_columns": "id", "order_by": ["nothing"]}, "'nothing'.*not found"),
            ({"order_by": ["id"]}, "without key_columns"),
            ({"key_columns": "id", "keep": "any"}, "keep must be"),
            ({"key_columns": "id", "null_keys": "error"}, "null_keys must be"),
            ({"key_columns": "id", "order_by": "n"}, "has no order"),
            ({"key_columns": "n"}, "cannot be a key"),
            (
                {"key_columns": "id", "keep": "last", "max_rewrite_bytes": 1},
                "the deduplication may rewrite",
            ),
        ],
    )
    def test_duplicates_that_are_refused(
        self, target: Target, arguments: dict[str, Any], match: str
    ) -> None:
        target.write("a.parquet", pa.table({"id": [1, 1], "n": [[1], [2]]}))
        before = target.store.tree()
        with pytest.raises(ValueError, match=match):
            target.io.deduplicate(target.store.path, **arguments)
        assert target.store.tree() == before

    def test_a_dataset_that_is_not_there(self, target: Target) -> None:
        with pytest.raises(ValueError, match="deduplicate in a non-existent target"):
            target.io.deduplicate(target.store.path)

    def test_a_file_without_a_column_is_refused(self, target: Target) -> None:
        target.write("a.parquet", numbers(1))
        target.write("b.parquet", numbers(1).drop_columns(["v"]))
        with pytest.raises(ValueError, match=r"b.parquet' has no column 'v'"):
            target.io.deduplicate(target.store.path)

    def test_the_history_says_what_was_done(self, target: Target) -> None:
        target.write("a.parquet", numbers(1, 1, 2))
        feed = Transaction("feed", 1)
        for deleted in (1, 1):  # the second is skipped, with the counts on record
            result = target.io.deduplicate(target.store.path, "id", transaction=feed)
            assert result.deleted == deleted
        (entry,) = history(target.store.path, **target.store.opening)
        assert (entry.strategy, entry.key_columns) == ("deduplicate_target", ("id",))
        assert entry.counts["deleted"] == 1

    def test_duplicates_that_come_meanwhile_go_too(
        self, connect: Callable[..., Any], target: Target
    ) -> None:
        target.write("a.parquet", numbers(1, 1, 2))
        seen: list[str] = []

        def progress(phase: str, done: int, _: int) -> None:
            if phase == "commit" and not done and not seen:
                seen.append(phase)
                with connect(**target.store.options) as other:
                    other.write_dataset(numbers(2, 3), target.store.path)

        result = target.io.deduplicate(target.store.path, "id", progress=progress)
        assert (result.deleted, result.target_count_after) == (2, 3)
        assert result.metrics["commit"]["retries"] == 1

    def test_a_plan_is_executed(self, target: Target) -> None:
        target.write("a.parquet", numbers(1, 1, 2))
        target.write("b.parquet", numbers(3))
        before = target.store.tree()
        plan = target.io.plan_deduplicate(target.store.path, "id")
        assert target.store.tree() == before
        assert target.decisions(plan) == {"a.parquet": "affected", "b.parquet": "pruned"}
        assert str(plan).startswith(f"deduplicate {plan.path!r} by id\n2 files: 1 affected")
        assert target.io.execute(plan).deleted == 1
        assert "b.parquet" in data_files(target.store.tree())
