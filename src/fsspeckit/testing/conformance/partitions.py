"""Hive partitions: detected, typed, kept as they are spelled."""

# ruff: noqa: D102 - the names of the tests explain

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from fsspeckit.errors import InvalidArgumentError, PartitionMoveError, RewriteLimitError
from fsspeckit.storage import history
from fsspeckit.testing.conformance.merging import EVERY_STORE
from fsspeckit.testing.conformance.stores import data_files, every_store_and_strategy, hive
from fsspeckit.testing.writers import WRITERS, write_hive

if TYPE_CHECKING:
    from fsspeckit.testing.conformance.target import Target

__all__ = ["EVERY_WRITER", "GuardTests", "MoveTests", "PartitionTests"]

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


MOVE: dict[str, Any] = {"partition_change": "move"}
MOVING = pytest.mark.parametrize("strategy", ["update", "upsert", "full_merge", "deduplicate"])


class MoveTests:
    """Rows that move to another partition because the caller asks for it."""

    @EVERY_STORE
    @MOVING
    def test_a_row_moves_to_the_partition_of_its_source_row(
        self, target: Target, strategy: str
    ) -> None:
        write_days(target, days([1, 2, 3], 1), days([4, 5], 2), days([6], 3))
        source = pa.concat_tables([days([1, 5, 9], 2, "new"), days([4], 3, "new")])
        result = target.merge(source, strategy, **MOVE)
        assert (result.updated, result.moved) == (3, 2)
        assert "3 updated (2 to another partition)" in str(result)

    def test_a_row_moves_to_a_partition_that_is_new(self, target: Target) -> None:
        write_days(target, days([1, 2], 1))
        result = target.merge(days([2], 9, "new"), "update", **MOVE)
        assert (result.moved, result.inserted, len(result.inserted_files)) == (1, 0, 1)
        assert "day=2025-01-09" in result.inserted_files[0]

    def test_moved_and_inserted_rows_of_a_partition_share_a_file(self, target: Target) -> None:
        write_days(target, days([1, 2], 1), days([3], 2))
        result = target.merge(days([1, 2, 8, 9], 2, "new"), **MOVE)
        assert (result.moved, result.inserted, len(result.inserted_files)) == (2, 2, 1)

    def test_every_row_of_a_repeated_key_is_replaced(self, target: Target) -> None:
        write_days(target, days([1, 1, 2], 1), days([1, 3], 2), days([1, 4], 3))
        result = target.merge(days([1], 2, "new"), **MOVE)
        assert (result.updated, result.moved, result.target_count_after) == (4, 3, 7)

    @MOVING
    def test_every_row_of_the_target_moves(self, target: Target, strategy: str) -> None:
        write_days(target, days([1, 2], 1), days([3], 2))
        result = target.merge(days([1, 2, 3], 3, "new"), strategy, **MOVE)
        assert (result.moved, result.rewritten_files, len(result.files)) == (3, [], 1)

    def test_only_the_partition_changes(self, target: Target) -> None:
        write_days(target, days([1, 2], 1))
        assert target.merge(days([2], 2), **MOVE).moved == 1

    def test_rows_move_into_and_out_of_the_null_partition(self, target: Target) -> None:
        target.write(f"{hive('p', None)}/f.parquet", pa.table({"id": [1, 2]}))
        target.write("p=x/f.parquet", pa.table({"id": [3, 4]}))
        source = pa.table({"id": [1, 2, 3], "p": ["x", None, None]})
        assert target.merge(source, **MOVE).moved == 2

    @pytest.mark.parametrize("kind", PARTITIONS)
    def test_rows_move_to_a_partition_of(self, target: Target, kind: str) -> None:
        values = PARTITIONS[kind]
        for number in (0, 1):
            ids = pa.table({"id": [number * 10, number * 10 + 1], "v": ["old", "old"]})
            target.write(f"{hive('p', values[number].as_py())}/f.parquet", ids)
        columns = values.take(pa.array([1, 0, 2, 1]))
        source = pa.table({"id": [0, 10, 1, 11], "p": columns, "v": ["new"] * 4})
        result = target.merge(source, **MOVE)
        assert (result.updated, result.moved) == (4, 3)

    def test_one_of_two_levels_changes(self, target: Target) -> None:
        for month in (1, 2):
            target.write(f"y=2024/m={month}/f.parquet", pa.table({"id": [month, month + 10]}))
        source = pa.table({"id": [1, 12], "y": ["2024", "2025"], "m": ["2", "2"]})
        assert target.merge(source, **MOVE).moved == 2

    def test_a_level_that_is_in_the_key_cannot_change(self, target: Target) -> None:
        for year in (2024, 2025):
            target.write(f"y={year}/m=1/f.parquet", pa.table({"id": [1, 2], "v": ["old"] * 2}))
        source = pa.table({"id": [1, 1], "y": ["2024", "2026"], "m": ["2", "1"], "v": ["new"] * 2})
        result = target.merge(source, "upsert", ["id", "y"], **MOVE)
        assert (result.moved, result.inserted) == (1, 1)

    def test_the_key_holds_every_partition_column(self, target: Target) -> None:
        write_days(target, days([1, 2], 1))
        result = target.merge(days([1], 2, "new"), "upsert", ["id", "day"], **MOVE)
        assert (result.moved, result.inserted) == (0, 1)

    def test_a_dataset_without_partitions(self, target: Target) -> None:
        target.write("a.parquet", days([1, 2], 1))
        assert target.merge(days([1], 2, "new"), **MOVE).moved == 0

    def test_a_column_in_path_and_file_moves(self, target: Target) -> None:
        for p in (1, 2):
            table = pa.table({"id": [p, p + 10], "p": [p, p], "v": ["old"] * 2})
            target.write(f"p={p}/f.parquet", table)
        source = pa.table({"id": [1, 2], "p": [2, 2], "v": ["new"] * 2})
        result = target.merge(source, **MOVE)
        assert (result.updated, result.moved) == (2, 1)

    def test_a_late_row_stays_in_its_partition(self, target: Target) -> None:
        write_days(target, _at(days([1, 2, 3], 1), 5), _at(days([4], 2), 5))
        source = pa.concat_tables([_at(days([1, 4], 2, "new"), 4), _at(days([2], 2, "new"), 6)])
        result = target.merge(source, only_newer="at", **MOVE)
        assert (result.late, result.updated, result.moved) == (2, 1, 1)
        target.refuses(PartitionMoveError, _at(days([1], 2, "new"), 4), only_newer="at")

    @MOVING
    def test_a_row_that_deletes_deletes_in_every_partition(
        self, target: Target, strategy: str
    ) -> None:
        write_days(target, days([1, 2, 3], 1), days([1, 4], 2))
        marks = pa.array([True, False, False])
        source = days([1, 2, 4], 2, "new").append_column("gone", marks)
        result = target.merge(source, strategy, delete_when="gone", **MOVE)
        others = 1 if strategy == "full_merge" else 0
        assert (result.deleted, result.updated, result.moved) == (2 + others, 2, 1)

    def test_the_last_of_several_source_rows_decides(self, target: Target) -> None:
        write_days(target, days([1, 2], 1), days([3], 2))
        source = pa.concat_tables([days([1], day, f"day {day}") for day in (3, 1, 2)])
        result = target.merge(source, duplicate_keys="last", order_by=["v"], **MOVE)
        assert result.moved == 1
        assert "day=2025-01-03" in result.inserted_files[0]

    def test_files_that_rows_leave_are_affected(self, target: Target) -> None:
        write_days(target, days([1, 2], 1), days([3, 4], 2), days([5, 6], 3))
        source = days([1], 2, "new")
        decided = target.decisions(target.plan(source, **MOVE))
        assert sorted(decided.values()) == ["affected", "pruned", "pruned"]
        assert target.merge(source, by_plan=True, **MOVE).moved == 1

    def test_other_partitions_are_no_longer_guarded(self, target: Target) -> None:
        write_days(target, days([1, 5], 1), days([2, 4], 2), write_statistics=False)
        result = target.merge(days([2, 3], 2, "new"), **MOVE)
        assert (result.moved, len(result.preserved_files)) == (0, 1)

    def test_the_limits_of_a_rewrite_count_the_files_that_rows_leave(self, target: Target) -> None:
        write_days(target, days([1, 2], 1), days([3, 4], 2))
        source = days([1], 2, "new")
        target.refuses(RewriteLimitError, source, max_rewrite_bytes=1, **MOVE)
        assert target.merge(source, max_rewrite_fraction=0.9, **MOVE).moved == 1

    def test_the_history_counts_moved_rows(self, target: Target) -> None:
        write_days(target, days([1, 2], 1), days([3], 2))
        target.merge(days([1, 3], 2, "new"), **MOVE)
        (entry,) = history(target.store.path, filesystem=target.store.filesystem)
        assert (entry.counts["updated"], entry.counts["moved"]) == (2, 1)

    @pytest.mark.parametrize("strategy", ["insert", "delete"])
    def test_strategies_without_a_use_for_it(self, target: Target, strategy: str) -> None:
        write_days(target, days([1], 1))
        source = days([1], 2)
        target.refuses(InvalidArgumentError, source, strategy, match="partition_change", **MOVE)

    def test_trusted_partitions_contradict_it(self, target: Target) -> None:
        write_days(target, days([1], 1))
        target.refuses(
            InvalidArgumentError, days([1], 2), match="trust", trust_partitions=True, **MOVE
        )

    def test_an_unknown_value_is_refused(self, target: Target) -> None:
        write_days(target, days([1], 1))
        target.refuses(
            InvalidArgumentError, days([1], 2), match="partition_change", partition_change="copy"
        )

    def test_an_empty_string_is_not_a_partition_to_move_to(self, target: Target) -> None:
        target.write("p=a/f.parquet", pa.table({"id": [1, 2]}))
        source = pa.table({"id": [1], "p": [""]})
        target.refuses(InvalidArgumentError, source, match="empty string", **MOVE)


def _at(table: pa.Table, version: int) -> pa.Table:
    """Rows with the version that ``only_newer`` compares."""
    return table.append_column("at", pa.array([version] * table.num_rows))
