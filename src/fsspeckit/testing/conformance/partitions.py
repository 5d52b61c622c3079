"""Hive partitions: detected, typed, kept as they are spelled."""

# ruff: noqa: D102 - the names of the tests explain

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from fsspeckit.testing.conformance.merging import EVERY_STORE
from fsspeckit.testing.conformance.stores import data_files, every_store_and_strategy, hive
from fsspeckit.testing.writers import WRITERS, write_hive

if TYPE_CHECKING:
    from fsspeckit.testing.conformance.target import Target

__all__ = ["EVERY_WRITER", "GuardTests", "PartitionTests"]

EVERY_WRITER = pytest.mark.parametrize(
    "writer",
    [pytest.param(name, marks=pytest.mark.spark if name == "spark" else ()) for name in WRITERS],
)

PARTITIONS: dict[str, pa.Array] = {
    "int": pa.array([1, -20, 300], pa.int32()),
    "string": pa.array(["a b", "k=v/50%", "ünï"]),
    "a string that looks like a number": pa.array(["007", "7", "1e5"]),
    "date": pa.array([dt.date(2024, 1, day) for day in (1, 2, 3)]),
    "bool": pa.array([True, False, None]),
    "NULL": pa.array([None, "x", "y"]),
}
"""Three values of each kind; the last is a partition that the target does not have."""


def days(ids: list[int], day: int, v: str = "old") -> pa.Table:
    """Rows of one day."""
    count = len(ids)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "day": pa.array([dt.date(2025, 1, day)] * count),
            "v": pa.array([v] * count),
        }
    )


def write_days(target: Target, *tables: pa.Table, **options: Any) -> None:
    """Put each table into a file of its day's partition."""
    for number, table in enumerate(tables):
        name = f"{hive('day', table['day'][0].as_py())}/f{number}.parquet"
        target.write(name, table.drop_columns(["day"]), **options)


class PartitionTests:
    """Merging into partitioned datasets."""

    @pytest.mark.parametrize("in_key", [False, True], ids=["not in the key", "in the key"])
    @pytest.mark.parametrize("kind", PARTITIONS)
    def test_partition_column_of(self, target: Target, kind: str, in_key: bool) -> None:
        values = PARTITIONS[kind]
        for number in (0, 1):
            ids = pa.table({"id": [number * 10, number * 10 + 1], "v": ["old", "old"]})
            target.write(f"{hive('p', values[number].as_py())}/f.parquet", ids)
        values_of_p = values.take(pa.array([0, 1, 2, 2]))
        source = pa.table({"id": [1, 12, 22, 23], "p": values_of_p, "v": ["new"] * 4})
        keys = ["id", "p"] if in_key else ["id"]
        result = target.merge(source, "upsert", keys, null_keys="match")
        assert (result.updated, result.inserted, len(result.rewritten_files)) == (1, 3, 1)

    @EVERY_STORE
    def test_two_levels_of_partitions(self, target: Target) -> None:
        for year, month in [(2024, 1), (2024, 2), (2025, 1)]:
            ids = pa.table({"id": [year * 100 + month], "v": ["old"]})
            target.write(f"year={year}/month={month:02}/f.parquet", ids)
        source = pa.table(
            {
                "id": [202401, 202402, 1],
                "year": pa.array([2024, 2024, 2025], pa.int32()),
                "month": pa.array([1, 2, 7], pa.int32()),
                "v": ["new", "old", "new"],
            }
        )
        result = target.merge(source)
        assert (len(result.rewritten_files), len(result.preserved_files)) == (1, 2)

    def test_the_same_id_in_two_partitions_when_the_key_holds_both(self, target: Target) -> None:
        write_days(target, days([1, 2], 1), days([1, 3], 2))
        result = target.merge(days([1], 2, "new"), "upsert", ["day", "id"])
        assert (result.updated, len(result.rewritten_files)) == (1, 1)

    def test_a_partition_column_alone_is_the_key(self, target: Target) -> None:
        write_days(target, days([1], 1), days([2], 2))
        result = target.merge(days([9], 2, "new"), "upsert", ["day"])
        assert (result.updated, result.inserted) == (1, 0)

    def test_full_merge_removes_partitions(self, target: Target) -> None:
        write_days(target, days([1, 2], 1), days([3, 4], 2), days([5], 3))
        result = target.merge(days([2, 6], 1, "new"), "full_merge")
        assert (result.deleted, result.target_count_after) == (4, 2)

    @EVERY_STORE
    def test_a_new_dataset_is_partitioned_as_asked(self, target: Target) -> None:
        source = pa.concat_tables([days([1, 2], 1), days([3], 2)])
        target.merge(source, partition_columns=["day"])
        directories = {name.split("/")[0] for name in data_files(target.store.tree())}
        assert directories == {"day=2025-01-01", "day=2025-01-02"}

    def test_partition_by_is_another_spelling_of_partition_columns(self, target: Target) -> None:
        target.merge(days([1], 1), partition_by=["day"])
        target.merge(days([1, 2], 1, "new"), partition_by=["day"], partition_columns=["day"])
        target.refuses(ValueError, days([3], 1), partition_by=["day"], partition_columns=["id"])

    @pytest.mark.parametrize("columns", [["id"], ["day", "id"], []], ids=str)
    def test_partition_columns_must_agree_with_the_paths(
        self, target: Target, columns: list[str]
    ) -> None:
        write_days(target, days([1], 1))
        target.refuses(ValueError, days([1], 1), partition_columns=columns, match="partition")

    def test_an_empty_string_is_not_a_partition_value(self, target: Target) -> None:
        target.write("p=a/f.parquet", pa.table({"id": [1]}))
        target.refuses(ValueError, pa.table({"id": [1, 2], "p": ["a", ""]}), match="empty string")

    def test_of_two_spellings_of_one_value_the_first_gets_the_inserts(self, target: Target) -> None:
        for directory, number in [("p=a b", 1), ("p=a%20b", 2)]:
            target.write(f"{directory}/f.parquet", pa.table({"id": [number], "v": ["old"]}))
        source = pa.table({"id": [1, 2, 3], "p": ["a b"] * 3, "v": ["new"] * 3})
        result = target.merge(source)
        (inserted,) = result.inserted_files
        assert target.store.relative(inserted).split("/")[0] == "p=a b"
        assert result.updated == 2

    def test_partition_values_are_typed_not_compared_as_text(self, target: Target) -> None:
        target.write("p=007/f.parquet", pa.table({"id": [1], "v": ["old"]}))
        source = pa.table({"id": [1, 2], "p": pa.array([7, 7], pa.int32()), "v": ["new"] * 2})
        result = target.merge(source)
        assert {target.store.relative(f.path).split("/")[0] for f in result.files} == {"p=007"}

    def test_a_column_in_path_and_file_that_agrees_stays_in_the_file(self, target: Target) -> None:
        target.write("p=1/f.parquet", pa.table({"id": [1, 2], "p": [1, 1], "v": ["old"] * 2}))
        target.merge(pa.table({"id": [1, 5], "p": [1, 2], "v": ["new"] * 2}))

    def test_a_column_in_path_and_file_must_agree(self, target: Target) -> None:
        target.write("p=1/f.parquet", pa.table({"id": [1, 2], "p": [1, 2], "v": ["old"] * 2}))
        source = pa.table({"id": [1], "p": [1], "v": ["new"]})
        target.refuses(ValueError, source, match="'p'")

    @EVERY_WRITER
    def test_a_tree_written_by(
        self, target: Target, writer: str, request: pytest.FixtureRequest
    ) -> None:
        if writer == "spark":
            request.getfixturevalue("spark")
        values_of_p = ["a b", "ü", "50%", None]
        existing = pa.table({"id": range(8), "p": values_of_p * 2, "v": ["old"] * 8})
        write_hive(WRITERS[writer], existing, target.store.local, ["p"])
        source = pa.table(
            {"id": [0, 5, 8, 9, 10], "p": ["a b", "ü", "50%", None, "new"], "v": ["new"] * 5}
        )
        result = target.merge(source)
        assert (result.updated, result.inserted) == (2, 3)
        directories = {name.split("/")[0] for name in data_files(target.store.tree())}
        assert len(directories) == 5


class GuardTests:
    """Keys that would move to another partition."""

    @every_store_and_strategy(["update", "upsert", "full_merge", "deduplicate"])
    def test_reject_partition_movement_on_update(self, target: Target, strategy: str) -> None:
        write_days(target, days([1], 1), days([2], 2))
        target.refuses(
            ValueError,
            days([1], 2, "new"),
            strategy,
            partition_by=["day"],
            match="partition columns cannot change for existing keys",
        )

    def test_movement_is_seen_without_statistics(self, target: Target) -> None:
        write_days(target, days([1], 1), days([2], 2), write_statistics=False)
        target.refuses(ValueError, days([1], 2, "new"), match="cannot change")

    def test_movement_out_of_the_null_partition(self, target: Target) -> None:
        target.write(f"{hive('p', None)}/f.parquet", pa.table({"id": [1]}))
        target.refuses(ValueError, pa.table({"id": [1], "p": ["x"]}), match="cannot change")

    def test_insert_knows_keys_of_other_partitions(self, target: Target) -> None:
        write_days(target, days([1], 1), days([2], 2))
        assert target.merge(days([1, 3], 2, "new"), "insert").inserted == 1

    def test_guarded_partitions_are_never_rewritten(self, target: Target) -> None:
        write_days(target, days([1, 5], 1), days([2, 4], 2), write_statistics=False)
        result = target.merge(days([2, 3], 2, "new"))
        assert len(result.preserved_files) == 1

    def test_trusted_partitions_are_not_looked_at(self, target: Target) -> None:
        write_days(target, days([1], 1), days([2], 2))
        source = days([1, 2], 2, "new")
        result = target.io.merge(source, target.store.path, "upsert", ["id"], trust_partitions=True)
        assert (result.updated, result.inserted) == (1, 1)
        plan = target.plan(source, trust_partitions=True)
        assert plan.trusted_partitions
        assert "trust_partitions" in str(plan)
