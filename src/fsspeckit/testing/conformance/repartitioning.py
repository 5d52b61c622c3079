"""Repartitioning: every row stays, below other directories."""

# ruff: noqa: D102 - the names of the tests explain

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from fsspeckit.storage import history
from fsspeckit.testing.conformance.merging import EVERY_STORE, three_files
from fsspeckit.testing.conformance.partitions import days, write_days
from fsspeckit.testing.conformance.stores import data_files
from fsspeckit.testing.conformance.target import as_table, lines, numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fsspeckit.testing.conformance.target import Target

__all__ = ["RepartitionTests"]


def directories(target: Target) -> set[str]:
    """The directories of the data files."""
    return {name.rpartition("/")[0] for name in data_files(target.store.tree())}


def read(target: Target, names: Sequence[str]) -> Counter[str]:
    """What readers see, whatever the order of columns."""
    found = as_table(target.io.read_dataset(target.store.path))
    return Counter(lines(found.select(list(names))))


def repartition(target: Target, partition_by: Any, **options: Any) -> Any:
    """Repartition, and compare the result with what is on disk and what readers see."""
    before = target.store.tree()
    names = as_table(target.io.read_dataset(target.store.path)).column_names
    rows = read(target, names)
    result = target.io.repartition(target.store.path, partition_by, **options)
    after = target.store.tree()
    assert read(target, names) == rows
    assert result.total_rows == sum(rows.values())
    assert result.replaced_files == len(data_files(before))
    assert sum(file.row_count for file in result.files) == result.total_rows
    assert sorted(target.store.relative(file.path) for file in result.files) == data_files(after)
    for file in result.files:
        stored = target.store.schema(target.store.relative(file.path)).names
        assert not set(stored) & set(result.partition_columns)
        assert set(file.partition_values) == set(result.partition_columns)
    others = before.keys() - set(data_files(before))
    assert {name: after.get(name) for name in others} == {name: before[name] for name in others}
    assert target.store.leftovers() == []
    json.dumps(result.to_dict())
    return result


class RepartitionTests:
    """``repartition``."""

    @EVERY_STORE
    def test_to_other_partition_columns_and_to_none(self, target: Target) -> None:
        rows = pa.concat_tables([days([1, 2], 1, "a"), days([3], 2, "a"), days([4], 2, "b")])
        target.io.write_dataset(rows, target.store.path, partition_by=["day"])
        target.store.put("README.txt", b"notes")
        result = repartition(target, "v")
        assert (result.partition_columns_before, result.partition_columns) == (["day"], ["v"])
        assert directories(target) == {"v=a", "v=b"}
        repartition(target, ["day", "v"])
        assert "day=2025-01-01/v=a" in directories(target)
        repartition(target, [])
        assert directories(target) == {""}

    def test_values_of_every_kind(self, target: Target) -> None:
        rows = pa.table(
            {
                "id": range(4),
                "p": pa.array([1, None, 1, 2], pa.int64()),
                "q": ["a/b", None, "a=b", "a b"],
                "n": [[1], None, [], [None]],
            }
        )
        target.io.write_dataset(rows, target.store.path)
        assert len(repartition(target, ["p", "q"]).files) == 4
        assert len(repartition(target, ["q"]).files) == 4

    def test_a_column_that_only_paths_have_gets_the_type_that_readers_see(
        self, target: Target
    ) -> None:
        for p in (1, 2):
            target.write(f"p={p}/f.parquet", numbers(p))
        repartition(target, [])
        (name,) = data_files(target.store.tree())
        assert target.store.schema(name).field("p").type == pa.int64()

    def test_a_schema_gives_columns_of_paths_their_types(self, target: Target) -> None:
        for p in (1, 2):
            target.write(f"p={p}/f.parquet", numbers(p))
        schema = pa.schema([("p", pa.string())])
        target.io.repartition(target.store.path, "v", schema=schema)
        (name,) = data_files(target.store.tree())
        assert target.store.schema(name).field("p").type == pa.string()

    def test_partitions_that_are_there_already(self, target: Target) -> None:
        write_days(target, days([1, 2], 1))
        before = target.store.tree()
        result = target.io.repartition(target.store.path, ["day"])
        assert (result.files, result.replaced_files, result.total_rows) == ([], 0, 2)
        assert target.store.tree() == before

    def test_a_dry_run_writes_nothing(self, target: Target) -> None:
        write_days(target, days([1, 2], 1), days([3], 2))
        before = target.store.tree()
        result = target.io.repartition(target.store.path, "v", dry_run=True)
        assert (result.dry_run, result.replaced_files, result.files) == (True, 2, [])
        assert "dry run" in str(result)
        assert target.store.tree() == before
        assert target.store.leftovers() == []

    def test_an_empty_dataset_keeps_its_columns(self, target: Target) -> None:
        target.write("a.parquet", numbers())
        target.io.repartition(target.store.path, "v")
        assert directories(target) == {"v=__HIVE_DEFAULT_PARTITION__"}
        target.io.write_dataset(numbers(1), target.store.path)
        assert "v=old" in directories(target)

    @pytest.mark.parametrize(
        ("partition_by", "options", "match"),
        [
            (["nothing"], {}, "'nothing'.*not found"),
            (["v", "v"], {}, "each column once"),
            (["id", "v"], {}, "every column"),
            (7, {}, "partition_by must"),
            (None, {}, r"pass \[\] for no partitions"),
            (["v"], {"schema": pa.schema([("v", pa.string())])}, "only the directories have"),
            (["v"], {"max_rows_per_file": 0}, "max_rows_per_file"),
        ],
    )
    def test_partitions_that_are_refused(
        self, target: Target, partition_by: Any, options: dict[str, Any], match: str
    ) -> None:
        three_files(target)
        before = target.store.tree()
        with pytest.raises(ValueError, match=match):
            target.io.repartition(target.store.path, partition_by, **options)
        assert target.store.tree() == before

    def test_values_that_cannot_be_directories_are_refused(self, target: Target) -> None:
        target.write("a.parquet", pa.table({"id": [1, 2], "p": ["a", ""], "n": [[1], [2]]}))
        before = target.store.tree()
        for name, match in (("p", "empty string"), ("n", "cannot be")):
            with pytest.raises(ValueError, match=match):
                target.io.repartition(target.store.path, name)
        assert target.store.tree() == before
        assert target.store.leftovers() == []

    def test_a_dataset_that_is_not_there_has_no_partitions(self, target: Target) -> None:
        with pytest.raises(ValueError, match="non-existent target"):
            target.io.repartition(target.store.path, "v")

    def test_int96_stays_and_nanoseconds_are_refused(self, target: Target) -> None:
        for name, at in (("a", 1_000), ("b", 1_001)):
            table = pa.table({"id": [1], "v": ["x"], "at": pa.array([at], pa.timestamp("ns"))})
            target.store.write(f"{name}.parquet", table, use_deprecated_int96_timestamps=True)
            if name == "a":
                repartition(target, "v")
                repartition(target, [])
                (new,) = data_files(target.store.tree())
                assert target.store.footer(new).row_group(0).column(1).physical_type == "INT96"
        with pytest.raises(ValueError, match="INT96 timestamps with nanoseconds"):
            target.io.repartition(target.store.path, "v")

    def test_what_others_commit_meanwhile_is_repartitioned_too(
        self, connect: Callable[..., Any], target: Target
    ) -> None:
        three_files(target)
        seen: list[str] = []

        def progress(phase: str, done: int, _: int) -> None:
            if phase == "commit" and not done and not seen:
                seen.append(phase)
                with connect(**target.store.options) as other:
                    other.delete([1], target.store.path, "id")
                    other.write_dataset(numbers(8, v="new"), target.store.path)

        result = target.io.repartition(target.store.path, "v", progress=progress)
        assert (result.total_rows, directories(target)) == (7, {"v=old", "v=new"})
        assert read(target, ["id"]) == Counter(lines(pa.table({"id": [2, 3, 4, 5, 6, 7, 8]})))

    def test_a_repartition_is_one_commit(self, target: Target) -> None:
        three_files(target)
        repartition(target, "v", compression="zstd")
        (entry,) = history(target.store.path, **target.store.opening)
        assert entry.strategy == "repartition"
        assert (len(entry.removed), len(entry.added)) == (3, 1)
