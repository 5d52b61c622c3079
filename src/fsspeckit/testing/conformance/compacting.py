"""Compaction: rows stay, files become fewer; what others touch meanwhile stays as it is."""

# ruff: noqa: D102 - the names of the tests explain

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit import errors
from fsspeckit.core.planning import Overlap
from fsspeckit.storage import history
from fsspeckit.testing.conformance.stores import data_files, every_store, hive
from fsspeckit.testing.conformance.target import as_table, lines, numbers
from fsspeckit.testing.writers import WRITERS

if TYPE_CHECKING:
    from pathlib import Path

    from fsspeckit.datasets.pipeline import CompactResult
    from fsspeckit.testing.conformance.target import Target

__all__ = ["CompactionTests", "GrowingTests"]

EVERY_WRITER = pytest.mark.parametrize(
    "writer",
    [pytest.param(name, marks=pytest.mark.spark if name == "spark" else ()) for name in WRITERS],
)
_LARGE = 70_000  # rows of a row group that is copied
_SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.float64()), ("s", pa.string())])


def _rows(start: int, count: int) -> pa.Table:
    ids = np.arange(start, start + count)
    columns = [ids, ids / 7, [f"s{number % 11}" for number in ids]]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=True)], _SCHEMA)


def _stored(target: Target, schema: pa.Schema) -> list[str]:
    """The rows of all files, file after file."""
    files = target.files(schema)
    return [line for name in sorted(files) for line in lines(files[name])]


def _compact(target: Target, **options: Any) -> CompactResult:
    """Compact; rows stay, a plan says which bins there are, and a second call does nothing."""
    before = target.store.tree()
    plan = target.io.plan_compact(target.store.path, **options)
    assert target.store.tree() == before
    result: CompactResult = target.io.compact(target.store.path, **options)
    after = target.store.tree()
    assert (result.files_before, result.files_after) == tuple(
        len(data_files(tree)) for tree in (before, after)
    )
    planned = {path for one in plan.bins for path in one.files}
    done = {path for one in result.bins for path in one.files}
    assert planned <= done | {path for one in result.given_up for path in one.files}
    assert target.store.leftovers() == []
    again = target.io.compact(target.store.path, **options)
    assert again.bins == []
    assert target.store.tree() == after
    json.dumps([plan.to_dict(), result.to_dict()])
    assert str(plan), str(result)
    return result


class CompactionTests:
    """Small files become large ones, and nothing else changes."""

    @pytest.mark.parametrize("store", every_store(), indirect=True)
    def test_small_files_become_one_per_partition(self, target: Target) -> None:
        for number in range(6):
            name = f"{hive('p', 'a b' if number % 2 else None)}/{number}.parquet"
            target.write(name, numbers(number, number + 10))
        schema = pa.schema([*numbers().schema, ("p", pa.string())])
        before = sorted(_stored(target, schema))
        result = _compact(target)
        assert (result.files_before, result.files_after, len(result.bins)) == (6, 2, 2)
        assert sorted(_stored(target, schema)) == before
        entry = history(target.store.path, **target.store.opening)[-1]
        assert (entry.strategy, len(entry.added), len(entry.removed)) == ("compact", 2, 6)

    @pytest.mark.parametrize(("share", "joined"), [(0.4, 4), (0.6, 3)])
    def test_a_file_of_half_the_target_is_not_written_again(
        self, target: Target, share: float, joined: int
    ) -> None:
        target.write("a.parquet", _rows(0, 5000))
        for number in range(3):
            target.write(f"b{number}.parquet", _rows(5000 + number, 1))
        before = _stored(target, _SCHEMA)
        large = len(target.store.tree()["a.parquet"].data)
        result = _compact(target, target_file_bytes=int(large / share))
        assert [len(one.files) for one in result.bins] == [joined]
        assert ("a.parquet" in data_files(target.store.tree())) == (joined == 3)
        assert sorted(_stored(target, _SCHEMA)) == sorted(before)

    def test_large_row_groups_are_copied_and_small_ones_encoded_together(
        self, target: Target, tmp_path: Path
    ) -> None:
        options = {"write_page_index": True, "bloom_filter_options": {"id": True}}
        small = [_rows(_LARGE + 100 * number, 100) for number in range(4)]
        target.write("a.parquet", _rows(0, _LARGE), compression="zstd", **options)
        for number, table in enumerate(small):
            target.write(f"b{number}.parquet", table, compression="zstd", **options)
        target.write("c.parquet", _rows(100_000, _LARGE), compression="zstd", **options)
        before = _stored(target, _SCHEMA)
        result = _compact(target)
        (name,) = data_files(target.store.tree())
        footer = target.store.footer(name)
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        assert [group.num_rows for group in groups] == [_LARGE, 400, _LARGE]
        chunks = [group.column(0) for group in groups]
        assert {chunk.compression for chunk in chunks} == {"ZSTD"}
        assert all(c.has_offset_index and c.bloom_filter_offset is not None for c in chunks)
        assert [chunk.statistics.min for chunk in chunks] == [0, _LARGE, 100_000]
        assert result.bytes_copied > result.bytes_encoded > 0
        assert _stored(target, _SCHEMA) == before
        self._check_readers(target, name, tmp_path)

    @staticmethod
    def _check_readers(target: Target, name: str, tmp_path: Path) -> None:
        """DuckDB and Polars find values where statistics, indexes and filters say they are."""
        duckdb, pl = pytest.importorskip("duckdb"), pytest.importorskip("polars")
        path = str(tmp_path / "x.parquet")
        (tmp_path / "x.parquet").write_bytes(target.store.tree()[name].data)
        wanted = [5, _LARGE + 150, 100_007]
        query = f"select id from '{path}' where id in (5, {wanted[1]}, 100007, 99999) order by id"
        assert duckdb.sql(query).fetchall() == [(number,) for number in wanted]
        for number in wanted:
            probe = (
                f"select bloom_filter_excludes from parquet_bloom_probe('{path}', 'id', {number})"
            )
            assert sorted(duckdb.sql(probe).fetchall()) == [(False,), (True,), (True,)]
        found = pl.scan_parquet(path).filter(pl.col("id").is_in(wanted)).collect()
        assert found["id"].to_list() == wanted
        assert pq.read_table(path, filters=[("id", "in", wanted)])["id"].to_pylist() == wanted

    @EVERY_WRITER
    def test_compacting_files_of_every_writer(
        self, target: Target, writer: str, tmp_path: Path, request: pytest.FixtureRequest
    ) -> None:
        if writer == "spark":
            request.getfixturevalue("spark")
        for number in range(3):
            rows = _rows(number * _LARGE, _LARGE if number == 1 else 50)
            path = tmp_path / f"{number}.parquet"
            WRITERS[writer](rows, str(path))
            target.store.put(path.name, path.read_bytes())
        target.knows(_SCHEMA)
        before = _stored(target, _SCHEMA)
        schema = target.store.schema("0.parquet")
        result = _compact(target)
        assert (result.files_after, result.bins[0].method) == (1, "splice")
        assert _stored(target, _SCHEMA) == before
        (name,) = data_files(target.store.tree())
        assert target.store.schema(name).equals(schema, check_metadata=True)

    @pytest.mark.spark
    @pytest.mark.usefixtures("spark")
    def test_compacting_files_of_several_writers(self, target: Target, tmp_path: Path) -> None:
        for number, writer in enumerate(sorted(WRITERS)):
            path = tmp_path / f"{number}.parquet"
            WRITERS[writer](_rows(number * _LARGE, _LARGE), str(path))
            target.store.put(path.name, path.read_bytes())
        target.knows(_SCHEMA)
        before = _stored(target, _SCHEMA)
        assert _compact(target).files_after == 1
        assert _stored(target, _SCHEMA) == before
        target.merge(_rows(10, 3).set_column(1, "v", pa.array([0.5] * 3)))

    def test_files_of_another_physical_schema_are_encoded(self, target: Target) -> None:
        target.write("a.parquet", numbers(1, 2))
        large = pa.schema([("v", pa.large_string()), ("id", pa.int64())])
        target.store.write("b.parquet", numbers(3, 4).select(["v", "id"]).cast(large))
        assert _compact(target).files_after == 1
        assert _stored(target, numbers().schema) == list(lines(numbers(1, 2, 3, 4)))

    def test_files_with_other_columns_or_types_stay_apart(self, target: Target) -> None:
        for number in range(2):
            target.write(f"a{number}.parquet", numbers(number))
            target.write(f"b{number}.parquet", pa.table({"id": [1.5], "v": ["x"]}))
        result = _compact(target)
        assert (result.files_after, len(result.bins)) == (2, 2)

    def test_files_of_the_target_size_are_left_alone(self, target: Target) -> None:
        for number in range(4):
            target.write(f"{number}.parquet", numbers(number))
        size = len(target.store.tree()["0.parquet"].data)
        before = target.store.tree()
        assert _compact(target, target_file_bytes=size).bins == []
        assert target.store.tree() == before
        assert _compact(target, target_file_bytes=2 * size + 1).files_after < 4
        assert _compact(target, min_files=9).bins == []

    def test_small_new_files_are_joined_until_nothing_is_left(self, target: Target) -> None:
        for number in range(40):
            target.write(f"{number:02}.parquet", numbers(*range(number * 10, number * 10 + 10)))
        size = len(target.store.tree()["00.parquet"].data)
        result = _compact(target, target_file_bytes=4 * size)
        assert result.files_after < 10
        assert result.metrics["passes"] > 1

    @pytest.mark.parametrize("partitions", [{"p": 1}, [{"p": ["01"]}], [{"p": 1.0}]])
    def test_only_named_partitions(self, target: Target, partitions: Any) -> None:
        for name in ("p=01", "p=2"):
            for number in range(2):
                target.write(f"{name}/{number}.parquet", numbers(number))
        result = _compact(target, partitions=partitions)
        assert [one.partition for one in result.bins] == ["p=01"]
        assert len(data_files(target.store.tree())) == 3

    def test_sorted_rows_let_readers_skip(self, target: Target) -> None:
        ids = np.random.default_rng(0).permutation(20_000)
        for number in range(8):
            part = pa.array(ids[number * 2500 : (number + 1) * 2500])
            target.write(f"{number}.parquet", pa.table({"id": part, "v": part}))
        schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
        before = sorted(_stored(target, schema))
        size = sum(len(entry.data) for entry in target.store.tree().values()) // 4
        result = _compact(target, target_file_bytes=size, sort_by="id")
        assert result.overlap_before is not None
        assert result.overlap_after is not None
        assert result.overlap_before.files > 7
        assert (result.overlap_after.files, result.overlap_after.row_groups) == (1.0, 1.0)
        assert sorted(_stored(target, schema)) == before
        for name in data_files(target.store.tree()):
            found = target.store.read(name, schema)["id"].to_pylist()
            assert found == sorted(found)
            assert target.store.footer(name).row_group(0).sorting_columns[0].column_index == 0

    @pytest.mark.parametrize(
        "values",
        [
            [3, None, 1, 2, None],
            [1.5, float("nan"), -0.0, None, 0.0],
            ["b", "a", None, "é", "B"],
            [b"\xff", b"", None],
            [True, False, None],
            [None, None],
        ],
    )
    def test_sorting_keeps_every_value(self, target: Target, values: list[Any]) -> None:
        table = pa.table({"k": values, "n": range(len(values))})
        for number in range(2):
            target.write(f"{number}.parquet", table)
        before = sorted(_stored(target, table.schema))
        assert _compact(target, sort_by=["k", "n"]).files_after == 1
        assert sorted(_stored(target, table.schema)) == before

    def test_a_row_is_in_its_own_file_at_least(self, target: Target) -> None:
        for number in (1, 5, 100):
            target.io.write_dataset(numbers(number), target.store.path)
        plan = target.io.plan_compact(target.store.path, sort_by="id")
        assert plan.overlap_before == plan.overlap_after == Overlap(1.0, 1.0)

    def test_bloom_filters_are_added(self, target: Target) -> None:
        target.write("a.parquet", _rows(0, _LARGE))
        for number in range(2):
            target.write(f"b{number}.parquet", _rows(_LARGE + number * 100, 100))
        before = _stored(target, _SCHEMA)
        _compact(target, bloom_columns=["s"])
        (name,) = data_files(target.store.tree())
        footer = target.store.footer(name)
        groups = [footer.row_group(number) for number in range(2)]
        assert [g.column(2).bloom_filter_offset is None for g in groups] == [False, False]
        assert [g.column(1).bloom_filter_offset is None for g in groups] == [True, True]
        assert _stored(target, _SCHEMA) == before

    def test_empty_files_go(self, target: Target) -> None:
        target.write("a.parquet", numbers())
        target.write("b.parquet", numbers(1))
        target.write("c.parquet", numbers())
        assert _compact(target).files_after == 1
        assert _stored(target, numbers().schema) == list(lines(numbers(1)))

    def test_only_empty_files_become_one(self, target: Target) -> None:
        for name in "abc":
            target.write(f"{name}.parquet", numbers())
        assert _compact(target).files_after == 1
        (name,) = data_files(target.store.tree())
        assert target.store.schema(name).equals(numbers().schema)

    def test_metadata_that_means_something_keeps_files_apart(self, target: Target) -> None:
        for number, box in enumerate("xy"):
            table = numbers(number).replace_schema_metadata({"geo": box})
            target.write(f"{number}.parquet", table)
        before = target.store.tree()
        result = _compact(target)
        assert "'geo' differs" in result.given_up[0].reason
        assert target.store.tree() == before

    def test_a_merge_after_a_compaction(self, target: Target) -> None:
        for number in range(5):
            target.io.merge(
                numbers(number, number + 100), target.store.path, "upsert", ["id"], key_index=True
            )
        _compact(target)
        target.merge(numbers(2, 104, 7, v="new"))
        target.knows(numbers().schema)
        target.merge(numbers(3, 103), "delete")

    def test_a_bin_that_others_touch_is_given_up(
        self, target: Target, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("p=1", "p=2"):
            for number in range(3):
                target.write(f"{name}/{number}.parquet", numbers(number))
        source = numbers(1, v="new").append_column("p", pa.array([2], pa.int64()))
        self._while_writing(
            monkeypatch,
            lambda: target.io.merge(source, target.store.path, "update", ["id", "p"]),
        )
        result = target.io.compact(target.store.path)
        assert [one.partition for one in result.bins] == ["p=1"]
        assert [one.partition for one in result.given_up] == ["p=2"]
        assert "meanwhile" in str(result)
        rows = as_table(target.io.read_dataset(target.store.path))
        assert sorted(zip(*rows.select(["id", "v"]).to_pydict().values(), strict=True)) == [
            *[(0, "old")] * 2, (1, "new"), (1, "old"), *[(2, "old")] * 2,
        ]  # fmt: skip
        assert [one.partition for one in target.io.compact(target.store.path).bins] == ["p=2"]

    @staticmethod
    def _while_writing(monkeypatch: pytest.MonkeyPatch, act: Any) -> None:
        """Do something once, after the new files are written and before they are committed."""
        from fsspeckit import storage
        from fsspeckit.datasets.pipeline import compact

        original = storage.commit
        acted: list[bool] = []

        def commit(*args: Any, **kwargs: Any) -> Any:
            if not acted:
                acted.append(True)
                act()
            return original(*args, **kwargs)

        monkeypatch.setattr(compact, "commit", commit)

    def test_wrong_arguments(self, target: Target) -> None:
        target.write("p=1/a.parquet", pa.table({"id": [1], "n": [[1]]}))
        before = target.store.tree()
        wrong: dict[str, dict[str, Any]] = {
            "target_file_bytes must be": {"target_file_bytes": 0},
            "min_files must be": {"min_files": 1},
            "partitions must be": {"partitions": "p=1"},
            "partitions": {"partitions": {"q": 1}},
            "'x'": {"sort_by": "x"},
            "sort_by must name": {"sort_by": 5},
            "bloom_columns must name": {"bloom_columns": 5},
            "progress must be": {"progress": "x"},
            "has no order": {"sort_by": "n"},
            "bloom filter": {"bloom_columns": "n"},
            "'p'": {"sort_by": "p"},
        }
        for match, options in wrong.items():
            for call in (target.io.compact, target.io.plan_compact):
                with pytest.raises(errors.InvalidArgumentError, match=match):
                    call(target.store.path, **options)
        assert target.store.tree() == before

    def test_nothing_to_compact_where_no_dataset_is(self, target: Target) -> None:
        with pytest.raises(errors.InvalidArgumentError, match="no data files"):
            target.io.compact(target.store.path)

    def test_a_damaged_file_is_named(self, target: Target) -> None:
        target.write("a.parquet", numbers(1))
        target.store.put("broken.parquet", b"PAR1 no footer")
        os.utime(f"{target.store.local}/broken.parquet", (0, time.time() - 120))
        with pytest.raises(errors.UnreadableFileError, match=r"broken\.parquet"):
            target.io.compact(target.store.path)


class GrowingTests:
    """Merges that keep files from becoming many."""

    def test_new_rows_are_appended_to_small_files_that_are_rewritten_anyway(
        self, target: Target
    ) -> None:
        for part in (1, 2):
            target.write(f"p={part}/a.parquet", numbers(part, part + 10))
        parts = pa.array([1, 1, 2], pa.int64())
        source = numbers(1, 21, 32, v="new").append_column("p", parts)
        result = target.io.merge(
            source, target.store.path, "upsert", ["id", "p"], target_file_bytes=1_000_000
        )
        assert (result.updated, result.inserted, result.target_count_after) == (1, 2, 6)
        # Only a file that is rewritten anyway grows: p=2 gets a new one.
        (rewritten,), (inserted,) = result.rewritten_files, result.inserted_files
        schema = pa.schema([*numbers().schema, ("p", pa.int64())])
        files = target.files(schema)
        rows = [(row["id"], row["v"]) for row in files[target.store.relative(rewritten)]]
        assert rows == [(1, "new"), (11, "old"), (21, "new")]
        assert [row["id"] for row in files[target.store.relative(inserted)]] == [32]
        assert sum(file.row_count for file in result.files) == 6
        again = target.io.merge(
            source, target.store.path, "upsert", ["id", "p"], target_file_bytes=1_000_000
        )
        assert (again.rewritten_files, again.inserted_files) == ([], [])

    def test_files_that_would_be_too_large_do_not_grow(self, target: Target) -> None:
        target.write("a.parquet", numbers(1, 2))
        path = target.store.path
        result = target.io.merge(numbers(1, 3, v="n"), path, "upsert", ["id"], target_file_bytes=99)
        assert (len(result.rewritten_files), len(result.inserted_files)) == (1, 1)

    def test_appended_rows_are_in_the_key_index(self, target: Target) -> None:
        options: dict[str, Any] = {"key_index": True, "target_file_bytes": 1_000_000}
        path = target.store.path
        target.io.merge(numbers(1, 2), path, "upsert", ["id"], **options)
        target.io.merge(numbers(2, 3, v="new"), path, "upsert", ["id"], **options)
        assert len(data_files(target.store.tree())) == 1
        target.merge(numbers(3, 4, v="newer"))

    def test_many_small_files_are_compacted_after_a_merge(self, target: Target) -> None:
        for number in range(15):
            target.write(f"{number:02}.parquet", numbers(number))
        path = target.store.path
        result = target.io.merge(numbers(99), path, "upsert", ["id"], auto_compact=True)
        assert "compacted 16 files into 1" in str(result)
        assert len(data_files(target.store.tree())) == 1
        result = target.io.merge(numbers(98), path, "upsert", ["id"], auto_compact=True)
        assert len(data_files(target.store.tree())) == 2
        assert [e.strategy for e in history(path, **target.store.opening)][-2:] == [
            "compact",
            "upsert",
        ]
        assert sum(target.rows(numbers().schema).values()) == 17

    def test_files_are_compacted_though_new_rows_join_a_rewritten_one(self, target: Target) -> None:
        for number in range(20):
            target.write(f"{number:02}.parquet", numbers(number))
        path, options = target.store.path, {"target_file_bytes": 10**6, "auto_compact": True}
        result = target.io.merge(numbers(3, 99, v="new"), path, "upsert", ["id"], **options)
        assert result.inserted_files == []
        assert len(data_files(target.store.tree())) == 1
        assert sum(target.rows(numbers().schema).values()) == 21

    def test_a_change_feed_and_a_plan_compact_small_files(self, target: Target) -> None:
        for number in range(15):
            target.write(f"{number:02}.parquet", numbers(number))
        path = target.store.path
        result = target.io.apply_changes(numbers(99), path, "id", "id", auto_compact=True)
        assert "compacted 16 files into 1" in str(result)
        for number in range(15):
            target.write(f"{number:02}.parquet", numbers(200 + number))
        plan = target.io.plan_merge(numbers(300), path, "upsert", ["id"], auto_compact=True)
        assert "compacted" in str(target.io.execute(plan))
        assert len(data_files(target.store.tree())) == 1
        assert sum(target.rows(numbers().schema).values()) == 32

    def test_a_partition_that_has_no_files_is_named(self, target: Target) -> None:
        rows = pa.table({"id": [1, 2], "p": ["x", "y"]})
        target.io.write_dataset(rows, target.store.path, partition_by="p")
        result = target.io.compact(target.store.path, partitions={"p": "z"})
        assert "no file is in the partitions" in str(result)

    def test_a_merge_counts_though_its_compaction_fails(
        self, target: Target, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from fsspeckit.datasets.pipeline import compact

        def fail(*_: Any) -> None:
            raise OSError("the disk is full")

        monkeypatch.setattr(compact, "run_compact", fail)
        result = target.io.merge(numbers(1), target.store.path, "upsert", ["id"], auto_compact=True)
        assert result.inserted == 1
        assert "not compacted: the disk is full" in str(result)

    @pytest.mark.parametrize("wrong", [{"target_file_bytes": 0}, {"auto_compact": 1}])
    def test_wrong_options_of_growth(self, target: Target, wrong: dict[str, Any]) -> None:
        target.refuses(errors.InvalidArgumentError, numbers(1), match=next(iter(wrong)), **wrong)
