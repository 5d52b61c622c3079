"""Plans: which files they keep, and on what evidence."""

# ruff: noqa: D102 - the names of the tests explain

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from fsspeckit.errors import StalePlanError
from fsspeckit.testing.conformance.merging import EVERY_STORE, three_files
from fsspeckit.testing.conformance.partitions import days, write_days
from fsspeckit.testing.conformance.stores import every_store_and_strategy
from fsspeckit.testing.conformance.target import line, numbers
from fsspeckit.testing.model import STRATEGIES
from fsspeckit.testing.writers import WRITERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from fsspeckit.testing.conformance.target import Target

__all__ = ["PlanningTests"]

KEPT = ("candidate", "affected")
"""What a plan says about files that a merge may rewrite."""


def counted(ids: Any, values: Any) -> pa.Table:
    """Rows of numbers, in the memory that is given."""
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array(values, pa.int64())})


def _frame(ids: Any, values: Any) -> Any:
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({"id": ids, "v": values}, copy=False)


def _categories(ids: Any, values: Any) -> pa.Table:
    """The values of a dictionary are in the memory that is given."""
    existing = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(values))
    return counted(ids, values).set_column(1, "v", existing)


MUTABLE: dict[str, Callable[[Any, Any], Any]] = {
    "table": counted,
    "list of tables": lambda ids, values: [counted(ids[:1], values[:1]), counted(ids, values)[1:]],
    "reader": lambda ids, values: counted(ids, values).to_reader(max_chunksize=1),
    "pandas frame": _frame,
    "dataset": lambda ids, values: ds.dataset(counted(ids, values)),
    "Arrow C stream": lambda ids, values: _Stream(counted(ids, values)),
    "dictionary": _categories,
}
"""Sources over the memory of two NumPy arrays."""


class _Stream:
    """Tables and schemas of other libraries."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def kept(target: Target, source: pa.Table, strategy: str = "upsert", **options: Any) -> set[str]:
    """The files that a plan keeps."""
    decisions = target.decisions(target.plan(source, strategy, **options))
    return {name for name, decision in decisions.items() if decision in KEPT}


def evidence(target: Target, source: pa.Table) -> dict[str, str]:
    """The kind of evidence for each file."""
    return {target.store.relative(f.path): f.evidence.kind for f in target.plan(source).files}


class PlanningTests:
    """What `plan_merge` says before anything is done."""

    @EVERY_STORE
    def test_partition_pruning_reduces_candidate_files(self, target: Target) -> None:
        write_days(target, days([1, 2], 1), days([3, 4], 2), days([0, 9], 3))
        assert kept(target, days([1, 2], 1, "new")) == {"day=2025-01-01/f0.parquet"}

    def test_a_partition_column_with_a_leading_dot_is_not_the_column_without(
        self, target: Target
    ) -> None:
        for value in (1, 2):
            target.write(f"%2Ex={value}/f.parquet", pa.table({"id": [value * 10], "x": [0]}))
        source = pa.table({"id": [10], ".x": [1], "x": [2]})
        plan = target.plan(source, "upsert", ["id"], trust_partitions=True)
        evidence = [(file.decision, file.evidence.kind) for file in plan.files]
        assert evidence == [("affected", "key scan"), ("pruned", "partition")]

    def test_unknown_partition_values_are_not_pruned(self, target: Target) -> None:
        write_days(target, days([1, 2], 1))
        target.write("day=later/f.parquet", numbers(1, 2))
        assert "day=later/f.parquet" in kept(target, days([1], 1, "new"))

    @EVERY_STORE
    def test_statistics_pruning_excludes_non_overlapping_files(self, target: Target) -> None:
        three_files(target)
        assert kept(target, numbers(4, 5, v="new")) == {"b.parquet"}
        assert evidence(target, numbers(4))["a.parquet"] == "statistics"

    def test_one_outlier_does_not_make_every_file_a_candidate(self, target: Target) -> None:
        for start in (0, 100, 200):
            target.write(f"{start}.parquet", numbers(*range(start, start + 50)))
        assert kept(target, numbers(1, 999, v="new")) == {"0.parquet"}

    def test_all_columns_of_a_key_must_fit(self, target: Target) -> None:
        for name, x, y in [("a", [1, 2], [8, 9]), ("b", [8, 9], [1, 2])]:
            target.write(f"{name}.parquet", pa.table({"x": x, "y": y}))
        source = pa.table({"x": [1, 9], "y": [1, 9]})
        plan = target.plan(source, "upsert", ["x", "y"])
        assert set(target.decisions(plan).values()) == {"pruned"}

    @pytest.mark.parametrize("what", ["no statistics", "cut bounds", "INT96"])
    def test_missing_or_inexact_stats_treated_as_unknown_membership(
        self, target: Target, what: str
    ) -> None:
        """No such evidence may exclude the file: it does hold the key."""
        long = ["k" * 100 + str(number) for number in range(4)]
        keys = pa.array(long)
        if what == "INT96":
            keys = pa.array(range(4), pa.timestamp("us", "UTC"))
        existing = pa.table({"k": keys, "v": ["old"] * 4})
        self._write_without_bounds(target, existing, what)
        source = existing.slice(2, 1).set_column(1, "v", pa.array(["new"]))
        plan = target.plan(source, "upsert", ["k"])
        assert target.decisions(plan)["a.parquet"] in KEPT
        assert target.merge(source, "upsert", ["k"]).updated == 1

    def _write_without_bounds(self, target: Target, existing: pa.Table, what: str) -> None:
        if what == "cut bounds":
            os.makedirs(target.store.local)
            WRITERS["polars"](existing, f"{target.store.local}/a.parquet")
            return
        options = {"no statistics": "write_statistics", "INT96": "use_deprecated_int96_timestamps"}
        target.write("a.parquet", existing, **{options[what]: what == "INT96"})

    def test_without_statistics_only_a_scan_excludes_a_file(self, target: Target) -> None:
        target.write("a.parquet", numbers(1, 2), write_statistics=False)
        target.write("b.parquet", numbers(3, 4))
        assert evidence(target, numbers(3))["a.parquet"] in ("none", "key scan")

    def test_bloom_filters_exclude_files(self, target: Target) -> None:
        for name, ids in [("a", range(0, 100, 2)), ("b", range(1, 100, 2))]:
            filters = {"bloom_filter_options": {"id": {"ndv": 100, "fpp": 0.001}}}
            target.write(f"{name}.parquet", numbers(*ids), **filters)
        assert evidence(target, numbers(51))["a.parquet"] == "bloom"
        assert target.merge(numbers(51, v="new"), "update").updated == 1

    def test_a_key_index_excludes_files_and_row_groups(self, target: Target) -> None:
        """Keys in random order; those of a file that another program replaced are scanned."""
        shuffled = np.random.default_rng(1).permutation(400).tolist()
        for name, ids in [("a", shuffled[:200]), ("b", shuffled[200:])]:
            target.write(f"{name}.parquet", numbers(*ids), row_group_size=100)
            os.utime(target.store.at(f"{name}.parquet"), (1e9, 1e9))
        target.merge(numbers(shuffled[0], v="one"), "upsert", key_index=True)
        plan = target.plan(numbers(shuffled[150]), "upsert")
        assert {file.evidence.kind for file in plan.files} == {"key scan", "key index"}
        assert [file.row_groups for file in plan.with_decision("affected")] == [(1,)]
        target.merge(numbers(shuffled[150], shuffled[350], 1000, v="two"), "upsert")
        target.write("b2.parquet", numbers(*range(2000, 2200)))
        assert target.merge(numbers(shuffled[20], 2100, v="three"), "upsert").updated == 2
        target.merge(numbers(*shuffled[100:300], v="four"), "full_merge")
        assert target.merge(numbers(shuffled[150], shuffled[20], v="five"), "upsert").updated == 1

    @EVERY_STORE
    def test_a_key_index_on_every_store(self, target: Target) -> None:
        target.merge(numbers(*range(0, 100, 2)), "upsert", key_index=True)
        target.merge(numbers(7, 50, v="two"), "upsert")
        target.merge(numbers(7, 13, 60, v="three"), "upsert", key_index=False)

    @every_store_and_strategy(STRATEGIES)
    def test_affected_files_are_an_upper_bound_of_the_rewritten(
        self, target: Target, strategy: str
    ) -> None:
        three_files(target)
        source = pa.concat_tables([numbers(2, 8, v="new"), numbers(4)])
        planned = kept(target, source, strategy)
        before = set(target.store.tree())
        result = target.merge(source, strategy)
        stayed = {target.store.relative(path) for path in result.preserved_files}
        assert before - stayed <= planned

    def test_a_plan_explains_every_file(self, target: Target) -> None:
        three_files(target)
        text = str(target.plan(numbers(4)))
        assert all(name in text for name in ("a.parquet", "b.parquet", "c.parquet"))
        assert "statistics of id" in text

    def test_an_executed_plan_does_what_a_merge_does(self, target: Target) -> None:
        three_files(target)
        source = numbers(2, 4, 8, v="new")
        result = target.merge(source, data=source.to_reader(max_chunksize=2), by_plan=True)
        assert (len(result.rewritten_files), len(result.inserted_files)) == (2, 1)

    @pytest.mark.parametrize("kind", MUTABLE)
    def test_a_plan_keeps_its_source(self, target: Target, kind: str) -> None:
        """What is done to the memory of the source after the plan was made changes nothing."""
        target.write("a.parquet", counted([1, 2], [10, 20]))
        ids, values = np.array([2, 3]), np.array([21, 31])
        given = MUTABLE[kind](ids, values)
        plan = target.plan(given)
        change = getattr(given, "loc", None)
        if change is not None:
            change[:, "v"] = 99
        if isinstance(given, list):
            given.clear()
        ids[:], values[:] = [1, 4], [98, 99]
        result = target.io.execute(plan)
        assert (result.updated, result.inserted) == (1, 1)
        expected = counted([1, 2, 3], [10, 21, 31])
        assert target.rows(expected.schema) == Counter(map(line, expected.to_pylist()))

    def test_a_plan_is_refused_once_the_files_have_changed(self, target: Target) -> None:
        three_files(target)
        plan = target.plan(numbers(4, v="new"))
        target.write("d.parquet", numbers(10, 11))
        before = target.store.tree()
        with pytest.raises(StalePlanError, match=r"added: 'd\.parquet'"):
            target.io.execute(plan)
        assert target.store.tree() == before
        del plan
        assert target.store.leftovers() == []

    def test_a_plan_counts_rows_and_row_groups(self, target: Target) -> None:
        target.write("a.parquet", numbers(*range(10)), row_group_size=2)
        plan = target.plan(numbers(5, 6))
        (file,) = plan.files
        assert (plan.source_rows, plan.target_rows, file.rows) == (2, 10, 10)
        assert (file.row_groups, file.row_group_count) == ((2, 3), 5)
        assert file.bytes == len(target.store.tree()["a.parquet"].data)

    def test_a_plan_refuses_what_a_merge_refuses(self, target: Target) -> None:
        three_files(target)
        for source in (numbers(1, None), numbers(1, 1), numbers(1).drop_columns(["v"])):
            with pytest.raises(ValueError, match=r"NULL|more than once|'v'"):
                target.plan(source)
