"""Deletes by key, rows that delete, and rows that come too late."""

# ruff: noqa: D102 - the names of the tests explain

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fsspeckit.errors import (
    DuplicateKeyError,
    InvalidArgumentError,
    NullKeyError,
    PartitionMoveError,
    RewriteLimitError,
    SchemaMismatchError,
)
from fsspeckit.storage import history
from fsspeckit.testing.conformance.merging import EVERY_STORE, three_files
from fsspeckit.testing.conformance.stores import data_files, every_store_and_strategy
from fsspeckit.testing.conformance.target import Target, numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DeleteTests", "DeleteWhenTests", "DeleteWhereTests", "OnlyNewerTests", "PurgeTests"]

_CHANGING = ("update", "upsert", "full_merge", "deduplicate")
CHANGING = pytest.mark.parametrize("strategy", _CHANGING)


def keys(*ids: int | None) -> pa.Table:
    """A table of keys alone."""
    return pa.table({"id": pa.array(ids, pa.int64())})


def marked(ids: Sequence[int], gone: Sequence[bool], v: str = "new") -> pa.Table:
    """Rows of which some delete."""
    return numbers(*ids, v=v).append_column("gone", pa.array(gone, pa.bool_()))


def versions(ids: Sequence[int], at: Sequence[Any], v: str = "old") -> pa.Table:
    """Rows with the version that ``only_newer`` compares."""
    return numbers(*ids, v=v).append_column("at", pa.array(at))


class DeleteTests:
    """``delete``, and the strategy of the same name."""

    @EVERY_STORE
    def test_delete_rewrites_only_files_that_have_a_key(self, target: Target) -> None:
        three_files(target)
        result = target.merge(keys(2, 7, 99), "delete")
        assert (result.deleted, result.not_found, len(result.preserved_files)) == (2, 1, 1)

    @pytest.mark.parametrize(
        "given",
        [[2, 7], (2, 7), {2, 7}, pa.array([2, 7]), keys(2, 7, 2), numbers(2, 7)],
        ids=["list", "tuple", "set", "array", "twice", "with other columns"],
    )
    def test_delete_takes_keys_in_every_form(self, target: Target, given: Any) -> None:
        three_files(target)
        result = target.io.delete(given, target.store.path, "id")
        assert (result.strategy, result.deleted, result.target_count_after) == ("delete", 2, 5)
        left = [row["id"] for rows in target.files(keys().schema).values() for row in rows]
        assert sorted(left) == [1, 3, 4, 5, 6]

    def test_a_file_that_loses_every_row_is_removed(self, target: Target) -> None:
        three_files(target)
        result = target.merge(keys(4, 5, 6), "delete")
        assert (len(result.rewritten_files), len(result.preserved_files)) == (1, 1)

    def test_deleting_every_row_keeps_an_empty_file(self, target: Target) -> None:
        three_files(target)
        target.merge(keys(*range(10)), "delete")
        (name,) = data_files(target.store.tree())
        assert target.store.footer(name).num_rows == 0

    def test_deleting_what_is_not_there_changes_nothing(self, target: Target) -> None:
        three_files(target)
        result = target.merge(keys(10, 11), "delete")
        assert (result.deleted, result.not_found, len(result.preserved_files)) == (0, 2, 3)

    def test_deleting_no_keys_changes_nothing(self, target: Target) -> None:
        three_files(target)
        assert target.merge(keys(), "delete").not_found == 0

    def test_delete_of_a_non_existent_target_is_refused(self, target: Target) -> None:
        target.refuses(InvalidArgumentError, keys(1), "delete", match="non-existent target")

    def test_keys_are_deleted_in_whatever_partition_they_are(self, target: Target) -> None:
        for p in ("a", "b"):
            row = pa.table({"id": [1, 2], "v": ["old", "old"]})
            target.write(f"p={p}/f.parquet", row)
        target.knows(pa.schema([("p", pa.string())]))
        assert target.merge(keys(1), "delete").deleted == 2

    def test_partition_columns_may_be_keys(self, target: Target) -> None:
        for p in (1, 2):
            target.write(f"p={p}/f.parquet", pa.table({"id": [1, 2], "v": ["old", "old"]}))
        target.knows(pa.schema([("p", pa.int64())]))
        result = target.merge(pa.table({"id": [1], "p": [2]}), "delete", ["id", "p"])
        assert (result.deleted, len(result.preserved_files)) == (1, 1)

    def test_null_keys_are_deleted_if_asked_for(self, target: Target) -> None:
        target.write("a.parquet", numbers(1, None, 2))
        target.refuses(NullKeyError, keys(None), "delete")
        assert target.merge(keys(None), "delete", null_keys="match").deleted == 1

    def test_a_key_column_without_a_type_and_a_bloom_filter(self, target: Target) -> None:
        untyped = pa.table({"id": pa.nulls(1), "v": ["old"]})
        blooms = {"id": {"ndv": 10, "fpp": 0.01}}
        target.write("b.parquet", untyped, bloom_filter_options=blooms, write_statistics=False)
        target.write("a.parquet", numbers(1, 2))
        assert target.io.delete([1], target.store.path, "id").deleted == 1

    def test_a_delete_can_be_planned_and_executed(self, target: Target) -> None:
        three_files(target)
        decided = target.decisions(target.plan(keys(4), "delete"))
        assert decided == {"a.parquet": "pruned", "b.parquet": "affected", "c.parquet": "pruned"}
        target.merge(keys(4), "delete", by_plan=True)

    def test_a_delete_keeps_to_the_limits_of_a_rewrite(self, target: Target) -> None:
        three_files(target)
        target.refuses(RewriteLimitError, keys(1), "delete", max_rewrite_bytes=1)

    def test_the_history_counts_deleted_rows_and_keys_not_found(self, target: Target) -> None:
        three_files(target)
        target.io.delete([1, 2, 50], target.store.path, "id")
        (entry,) = history(target.store.path, filesystem=target.store.filesystem)
        counts = (entry.counts["deleted"], entry.counts["not_found"])
        assert (entry.strategy, *counts) == ("delete", 2, 1)


class PurgeTests:
    """Deleted rows of which no copy may be left."""

    def copies(self, target: Target) -> int:
        """The files beside the dataset that have the text of a row."""
        local = Path(target.store.path)
        beside = local.with_name(f".{local.name}.fsspeckit").rglob("*")
        return sum(b"a secret" in path.read_bytes() for path in beside if path.is_file())

    def test_no_copy_of_a_purged_row_is_left(self, target: Target) -> None:
        secret = numbers(1, 2, v="a secret")
        target.write("a.parquet", secret, compression="none", use_dictionary=False)
        target.io.merge(numbers(2, v="new"), target.store.path, "update", ["id"])
        assert self.copies(target)
        result = target.io.delete([1], target.store.path, "id", purge=True)
        assert (result.deleted, self.copies(target)) == (1, 0)
        assert [e.purged for e in history(target.store.path)] == [False, True]
        assert "purged" in str(history(target.store.path)[-1])

    def test_rows_that_are_deleted_already_can_be_purged(self, target: Target) -> None:
        secret = numbers(1, 2, v="a secret")
        target.write("a.parquet", secret, compression="none", use_dictionary=False)
        target.io.delete([1, 2], target.store.path, "id")
        assert self.copies(target)
        assert target.io.delete([1], target.store.path, "id", purge=True).not_found == 1
        assert self.copies(target) == 0


def dated(ids: Sequence[int], days: Sequence[int]) -> pa.Table:
    """Rows with a day, by which conditions select."""
    at = pa.array([dt.date(2020, 1, day) for day in days])
    return numbers(*ids).append_column("day", at)


class DeleteWhereTests:
    """Rows that a condition selects."""

    def delete(self, target: Target, where: Any, left: Sequence[int], **options: Any) -> Any:
        """Delete, and compare the keys that are left and what each file became."""
        before = target.store.tree()
        schema = pa.schema([("id", pa.int64())])
        rows = {name: [row["id"] for row in r] for name, r in target.files(schema).items()}
        result = target.io.delete(None, target.store.path, where=where, **options)
        after = [row["id"] for some in target.files(schema).values() for row in some]
        assert sorted(after) == sorted(left)
        assert result.deleted == sum(map(len, rows.values())) - len(left)
        kept = {name for name, ids in rows.items() if set(ids) <= set(left)}
        assert {target.store.relative(path) for path in result.preserved_files} == kept
        assert all(target.store.tree()[name] == before[name] for name in kept)
        return result

    @EVERY_STORE
    def test_rows_that_a_condition_selects_are_deleted(self, target: Target) -> None:
        target.write("a.parquet", dated([1, 2, 3], [1, 2, 3]))
        target.write("b.parquet", dated([4, 5], [4, 5]))
        target.write("c.parquet", dated([6, 7], [1, 9]))
        self.delete(target, "day <= DATE '2020-01-02'", [3, 4, 5, 7])

    def test_files_are_ruled_out_by_statistics(self, target: Target) -> None:
        three_files(target)
        plan = target.io.plan_delete(None, target.store.path, where="id IN (4, 6)")
        decided = target.decisions(plan)
        assert decided == {"a.parquet": "pruned", "b.parquet": "affected", "c.parquet": "affected"}
        assert "where id IN (4, 6)" in str(plan)
        assert target.io.execute(plan).deleted == 2

    def test_a_file_of_which_all_rows_are_selected_is_removed(self, target: Target) -> None:
        three_files(target)
        self.delete(target, "id < 4", [4, 5, 6, 7])

    def test_every_row_may_be_selected(self, target: Target) -> None:
        three_files(target)
        self.delete(target, "id > 0", [])
        (name,) = data_files(target.store.tree())
        assert target.store.footer(name).num_rows == 0

    def test_nothing_is_written_if_no_row_is_selected(self, target: Target) -> None:
        three_files(target)
        before = target.store.tree()
        self.delete(target, "v = 'new'", range(1, 8))
        assert target.store.tree() == before

    def test_null_is_not_selected(self, target: Target) -> None:
        target.write("a.parquet", pa.table({"id": [1, 2, 3], "x": [None, 1, 5]}))
        self.delete(target, "NOT (x > 2)", [1, 3])

    def test_a_pyarrow_expression_selects(self, target: Target) -> None:
        three_files(target)
        self.delete(target, pc.field("id") == 5, [1, 2, 3, 4, 6, 7])

    def test_partition_columns_select(self, target: Target) -> None:
        target.write("p=1/f.parquet", numbers(1, 2))
        target.write("p=2/f.parquet", numbers(3, 4))
        self.delete(target, "p = 2 AND id < 4", [1, 2, 4])

    def test_partitions_are_ruled_out_by_their_paths(self, target: Target) -> None:
        target.write("p=1/f.parquet", numbers(1, 2))
        target.write("p=2/f.parquet", numbers(3, 4))
        plan = target.io.plan_delete(None, target.store.path, where="p = 2")
        assert [file.evidence.kind for file in plan.with_decision("pruned")] == ["partition"]
        assert target.io.execute(plan).deleted == 2

    def test_conditions_on_int96_timestamps(self, target: Target) -> None:
        at = pa.array([dt.datetime(2020, 1, day, tzinfo=dt.UTC) for day in (1, 2)])
        table = numbers(1, 2).append_column("at", at.cast(pa.timestamp("us", "UTC")))
        target.write("a.parquet", table, use_deprecated_int96_timestamps=True)
        self.delete(target, "at < TIMESTAMP '2020-01-02 00:00:00Z'", [2])

    @pytest.mark.parametrize(
        ("where", "left"),
        [("x < 3000000000", [3]), ("x > 3000000000", [1, 2, 4]), ("x = 4000000000", [1, 2, 4])],
    )
    def test_types_of_all_files_count(self, target: Target, where: str, left: list[int]) -> None:
        target.write("a.parquet", pa.table({"id": [1, 2], "x": pa.array([1, 2], pa.int32())}))
        target.write("b.parquet", pa.table({"id": [3, 4], "x": [4_000_000_000, 5]}))
        self.delete(target, where, left)

    @pytest.mark.parametrize(
        ("where", "left"), [("x = 'gone'", [1, 3]), ("NOT (x <=> 'gone')", [2])]
    )
    def test_a_file_without_a_type_has_that_of_others(
        self, target: Target, where: str, left: list[int]
    ) -> None:
        target.write("a.parquet", pa.table({"id": [1], "x": pa.nulls(1)}))
        target.write("b.parquet", pa.table({"id": [2, 3], "x": ["gone", "x"]}))
        self.delete(target, where, left)

    def test_a_column_that_a_file_does_not_have_is_refused(self, target: Target) -> None:
        target.write("a.parquet", numbers(1))
        target.write("b.parquet", pa.table({"id": [2], "x": [1]}))
        with pytest.raises(SchemaMismatchError, match=r"a\.parquet.*'x'"):
            self.delete(target, "x = 1", [])

    def test_a_condition_without_columns(self, target: Target) -> None:
        three_files(target)
        self.delete(target, pc.scalar(True), [])

    def test_limits_of_a_rewrite_hold(self, target: Target) -> None:
        three_files(target)
        with pytest.raises(RewriteLimitError):
            self.delete(target, "id = 1", [], max_rewrite_bytes=1)

    @pytest.mark.parametrize(
        ("where", "match"),
        [("nothing = 1", "nothing"), ("id = 'x'", "id"), ("id ==", "where"), (5, "where")],
    )
    def test_a_condition_that_does_not_fit_is_refused(
        self, target: Target, where: Any, match: str
    ) -> None:
        three_files(target)
        with pytest.raises(InvalidArgumentError, match=match):
            self.delete(target, where, [])

    @pytest.mark.parametrize(
        "arguments",
        [{}, {"keys": [1], "where": "id = 1"}, {"where": "id = 1", "key_columns": "id"}],
        ids=["neither", "both", "key columns"],
    )
    def test_keys_or_a_condition(self, target: Target, arguments: dict[str, Any]) -> None:
        three_files(target)
        given = {"keys": None, "path": target.store.path, **arguments}
        with pytest.raises(InvalidArgumentError, match=r"keys|where"):
            target.io.delete(**given)


class DeleteWhenTests:
    """Rows of the source that delete."""

    @every_store_and_strategy(_CHANGING)
    def test_rows_that_delete_beside_rows_that_change(self, target: Target, strategy: str) -> None:
        three_files(target)
        source = marked([2, 4, 9, 10, 7], [True, False, True, False, True])
        target.merge(source, strategy, delete_when="gone")

    def test_deletes_inserts_and_updates_are_one_commit(self, target: Target) -> None:
        three_files(target)
        result = target.merge(marked([2, 4, 9], [True, False, False]), delete_when="gone")
        assert (result.deleted, result.updated, result.inserted) == (1, 1, 1)
        (entry,) = history(target.store.path, filesystem=target.store.filesystem)
        counted = {"inserted": 1, "updated": 1, "deleted": 1, "not_found": 0}
        assert dict(entry.counts) == counted

    def test_a_source_of_deletes_alone_creates_no_dataset(self, target: Target) -> None:
        result = target.io.merge(
            marked([1], [True]), target.store.path, "upsert", ["id"], delete_when="gone"
        )
        assert (result.inserted, result.not_found) == (0, 1)
        assert data_files(target.store.tree()) == []

    @CHANGING
    def test_every_row_is_deleted_and_one_key_is_not_there(
        self, target: Target, strategy: str
    ) -> None:
        target.write("a.parquet", numbers(1, 2))
        target.merge(marked([1, 2, 3], [True] * 3), strategy, delete_when="gone")

    def test_a_row_that_deletes_ignores_its_partition(self, target: Target) -> None:
        """A feed often has nothing but the key in such a row."""
        target.write("p=a/f.parquet", numbers(1, 2))
        target.write("p=b/f.parquet", numbers(3, 4))
        source = marked([1, 3, 5], [True, True, False])
        source = source.append_column("p", pa.array([None, "", "b"], pa.string()))
        result = target.merge(source, delete_when="gone")
        assert (result.deleted, result.inserted) == (2, 1)

    def test_a_row_that_stays_still_cannot_move(self, target: Target) -> None:
        target.write("p=a/f.parquet", numbers(1, 2))
        source = marked([1, 2], [True, False]).append_column("p", pa.array(["b", "b"]))
        target.refuses(PartitionMoveError, source, delete_when="gone")

    def test_the_order_decides_between_a_delete_and_an_upsert(self, target: Target) -> None:
        target.write("a.parquet", versions([1, 2], [0, 0]))
        source = versions([1, 1, 2, 2], [1, 2, 2, 1], v="new")
        source = source.append_column("gone", pa.array([True, False, True, False]))
        result = target.merge(source, delete_when="gone", order_by=["at"])
        assert (result.deleted, result.updated) == (1, 1)

    def test_a_key_that_is_deleted_and_upserted_without_an_order_is_refused(
        self, target: Target
    ) -> None:
        three_files(target)
        target.refuses(DuplicateKeyError, marked([1, 1], [True, False]), delete_when="gone")

    def test_null_in_the_delete_column_is_refused(self, target: Target) -> None:
        three_files(target)
        source = numbers(1, 2).append_column("gone", pa.array([True, None]))
        target.refuses(InvalidArgumentError, source, delete_when="gone", match="NULL")

    def test_a_delete_column_that_is_not_boolean_is_refused(self, target: Target) -> None:
        three_files(target)
        source = numbers(1, 2).append_column("gone", pa.array([1, 0]))
        target.refuses(InvalidArgumentError, source, delete_when="gone", match="boolean")

    def test_a_delete_column_that_is_missing_is_refused(self, target: Target) -> None:
        three_files(target)
        target.refuses(InvalidArgumentError, numbers(1), delete_when="gone", match="gone")

    def test_a_delete_column_that_the_target_stores_is_refused(self, target: Target) -> None:
        target.write("a.parquet", marked([1, 2], [False, False]))
        source = marked([1], [True])
        target.refuses(InvalidArgumentError, source, delete_when="gone", match="of the target")

    @pytest.mark.parametrize("strategy", ["insert", "delete"])
    @pytest.mark.parametrize("name", ["delete_when", "only_newer"])
    def test_strategies_without_a_use_for_a_deciding_column(
        self, target: Target, strategy: str, name: str
    ) -> None:
        three_files(target)
        source = marked([1], [True])
        target.refuses(InvalidArgumentError, source, strategy, match=name, **{name: "gone"})


TIMES: dict[str, list[Any]] = {
    "integer": [1, 2, 3],
    "string": ["a", "b", "ba"],
    "float": [-1.5, 0.0, float("nan")],
    "decimal": [Decimal("1.10"), Decimal("1.20"), Decimal("9.00")],
    "date": [dt.date(1960, 1, 1), dt.date(2020, 1, 1), dt.date(2021, 1, 1)],
    "timestamp": [dt.datetime(2020, 1, day) for day in (1, 2, 3)],
    "zoned": [dt.datetime(2020, 1, day, tzinfo=dt.UTC) for day in (1, 2, 3)],
    "boolean": [False, False, True],
}


class OnlyNewerTests:
    """Rows of the source that must be newer than those of the target."""

    @CHANGING
    def test_ties_and_older_rows_stay(self, target: Target, strategy: str) -> None:
        target.write("a.parquet", versions([1, 2, 3, 4], [5, 5, 5, 5]))
        target.write("b.parquet", versions([5, 6], [5, 5]))
        source = versions([1, 2, 3, 5, 9], [4, 5, 6, 5, 0], v="new")
        result = target.merge(source, strategy, only_newer="at")
        assert (result.late, result.updated) == (3, 1)

    @pytest.mark.parametrize("kind", TIMES)
    def test_the_type_decides_the_order(self, target: Target, kind: str) -> None:
        low, middle, high = TIMES[kind]
        target.write("a.parquet", versions([1, 2, 3], [middle, middle, middle]))
        result = target.merge(versions([1, 2, 3], [low, middle, high], v="new"), only_newer="at")
        assert (result.late, result.updated) == (2, 1)

    def test_values_are_compared_as_they_are_stored(self, target: Target) -> None:
        """The greatest timestamp of microseconds is beyond those of nanoseconds."""
        days = [dt.datetime(9999, 12, 31), dt.datetime(2020, 1, 1)]
        target.write("a.parquet", versions([1, 2], pa.array(days, pa.timestamp("us"))))
        later = pa.array([dt.datetime(2020, 1, 2)] * 2, pa.timestamp("ns"))
        source = versions([1, 2], later, v="new")
        result = target.io.merge(source, target.store.path, "update", ["id"], only_newer="at")
        assert (result.late, result.updated) == (1, 1)

    def test_null_loses_against_every_value(self, target: Target) -> None:
        at = pa.array([None, None, 1], pa.int64())
        target.write("a.parquet", versions([1, 2, 3], at))
        source = versions([1, 2, 3], pa.array([None, -5, None], pa.int64()), v="new")
        result = target.merge(source, only_newer="at")
        assert (result.late, result.updated) == (2, 1)

    def test_a_late_delete_deletes_nothing(self, target: Target) -> None:
        target.write("a.parquet", versions([1, 2, 3], [5, 5, 5]))
        source = versions([1, 2, 9], [4, 6, 1]).append_column("gone", pa.array([True] * 3))
        result = target.merge(source, delete_when="gone", only_newer="at")
        assert (result.late, result.deleted, result.not_found) == (1, 1, 1)

    def test_every_row_of_a_repeated_target_key_is_compared(self, target: Target) -> None:
        target.write("a.parquet", versions([1, 1, 1], [4, 5, 6]))
        result = target.merge(versions([1], [5], v="new"), only_newer="at")
        assert (result.late, result.updated) == (2, 1)

    def test_the_newest_of_a_batch_is_compared(self, target: Target) -> None:
        target.write("a.parquet", versions([1, 2], [5, 5]))
        source = versions([1, 1, 2, 2], [4, 6, 3, 4], v="new")
        result = target.merge(source, only_newer="at", order_by=["at"])
        assert (result.late, result.updated) == (1, 1)

    def test_int96_timestamps_are_compared(self, target: Target) -> None:
        days = [dt.datetime(2020, 1, day, tzinfo=dt.UTC) for day in (1, 2, 3)]
        table = versions([1, 2], pa.array([days[1]] * 2, pa.timestamp("us", "UTC")))
        target.write("a.parquet", table, use_deprecated_int96_timestamps=True)
        at = pa.array([days[0], days[2]], pa.timestamp("us", "UTC"))
        result = target.merge(versions([1, 2], at, v="new"), only_newer="at")
        assert (result.late, result.updated) == (1, 1)

    def test_the_history_counts_late_rows(self, target: Target) -> None:
        target.write("a.parquet", versions([1, 2], [5, 5]))
        target.merge(versions([1, 2], [4, 6], v="new"), only_newer="at")
        (entry,) = history(target.store.path, filesystem=target.store.filesystem)
        assert entry.counts["late"] == 1

    def test_a_column_that_is_only_in_paths_is_refused(self, target: Target) -> None:
        target.write("p=a/f.parquet", numbers(1, 2))
        source = numbers(1).append_column("p", pa.array(["a"]))
        target.refuses(InvalidArgumentError, source, only_newer="p", match="only in paths")

    def test_a_nested_column_has_no_order(self, target: Target) -> None:
        table = numbers(1).append_column("at", pa.array([[1]]))
        target.write("a.parquet", table)
        target.refuses(InvalidArgumentError, table, only_newer="at", match="no order")
