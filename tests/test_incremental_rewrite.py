"""Incremental rewrite: what is left alone, what is not, and the same result as `merge`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.incremental import plan_incremental_rewrite
from fsspeckit.core.merge import MergeStrategy, validate_rewrite_mode_compatibility
from fsspeckit.datasets.registry import ENGINES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fsspeckit.datasets.interfaces import DatasetHandler

FILES = 8
PER_FILE = 10


def rows(*ids: int, v: str = "old") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array([v] * len(ids), pa.string())})


@pytest.fixture(
    params=[
        "pyarrow",
        "duckdb",
        pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow]),
    ]
)
def io(request: pytest.FixtureRequest) -> Iterator[DatasetHandler]:
    entry = ENGINES[request.param]
    options = {"spark": request.getfixturevalue("spark")} if request.param == "spark" else {}
    with getattr(import_module(entry.module), entry.class_name)(**options) as opened:
        yield opened


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Eight files whose ranges of keys do not overlap."""
    return written(tmp_path / "data")


def written(directory: Path, **options: Any) -> Path:
    directory.mkdir()
    for number in range(FILES):
        ids = range(number * PER_FILE, (number + 1) * PER_FILE)
        pq.write_table(rows(*ids), directory / f"{number}.parquet", **options)
    return directory


def state(dataset: Path) -> dict[str, tuple[bytes, int]]:
    return {f.name: (f.read_bytes(), f.stat().st_mtime_ns) for f in dataset.iterdir()}


def content(dataset: Path) -> list[tuple[int, str]]:
    table = pq.read_table(dataset)
    return sorted(zip(table["id"].to_pylist(), table["v"].to_pylist(), strict=True))


def merged(io: DatasetHandler, dataset: Path, source: pa.Table, strategy: str, mode: Any) -> Any:
    return io.write_parquet_dataset(
        source, str(dataset), strategy=strategy, key_columns=["id"], rewrite_mode=mode
    )


class TestModes:
    @pytest.mark.parametrize("strategy", ["update", "upsert"])
    def test_unaffected_files_stay_untouched(
        self, io: DatasetHandler, dataset: Path, strategy: str
    ) -> None:
        before = state(dataset)
        result = merged(io, dataset, rows(13, 57, 1000, v="new"), strategy, "incremental")
        after = state(dataset)
        stayed = {f"{n}.parquet" for n in range(FILES)} - {"1.parquet", "5.parquet"}
        assert {name: after[name] for name in stayed} == {name: before[name] for name in stayed}
        assert {"1.parquet", "5.parquet"}.isdisjoint(after)
        assert len(result.rewritten_files) == 2
        assert len(result.inserted_files) == (strategy == "upsert")

    @pytest.mark.parametrize("strategy", ["insert", "update", "upsert"])
    def test_incremental_is_the_very_result_of_merge(
        self, io: DatasetHandler, tmp_path: Path, strategy: str
    ) -> None:
        source = rows(13, 57, 1000, v="new")
        calls: list[Callable[[str], Any]] = [
            lambda path: io.merge(source, path, strategy, ["id"]),
            lambda path: io.merge_parquet_dataset(
                source, path, ["id"], strategy, rewrite_mode="incremental"
            ),
            lambda path: io.write_parquet_dataset(
                source, path, strategy=strategy, key_columns=["id"], rewrite_mode="incremental"
            ),
        ]
        targets = [written(tmp_path / str(number)) for number in range(len(calls))]
        told = [
            serialize_error(call(str(target)), target)
            for call, target in zip(calls, targets, strict=True)
        ]
        assert told[0] == told[1] == told[2]
        assert content(targets[0]) == content(targets[1]) == content(targets[2])

    @pytest.mark.parametrize("strategy", [s.value for s in MergeStrategy])
    def test_full_has_the_same_rows_and_counts_and_rewrites_every_file(
        self, io: DatasetHandler, dataset: Path, tmp_path: Path, strategy: str
    ) -> None:
        other = written(tmp_path / "other")
        source = rows(*range(0, FILES * PER_FILE, 7), 1000, v="new")
        full = merged(io, dataset, source, strategy, "full")
        lean = io.merge(source, str(other), strategy, ["id"])
        assert content(dataset) == content(other)
        assert _counts(full) == _counts(lean)
        left = {f"{number}.parquet" for number in range(FILES)} & state(dataset).keys()
        assert len(left) == (FILES if strategy == "insert" else 0)
        assert len(full.rewritten_files) == (0 if strategy == "insert" else FILES)

    def test_full_rewrites_where_nothing_changes(self, io: DatasetHandler, dataset: Path) -> None:
        source = rows(3)
        assert merged(io, dataset, source, "upsert", "incremental").rewritten_files == []
        result = merged(io, dataset, source, "upsert", "full")
        assert len(result.rewritten_files) == FILES
        assert (result.updated, result.inserted, result.preserved_files) == (1, 0, [])
        assert content(dataset) == [(i, "old") for i in range(FILES * PER_FILE)]

    @pytest.mark.parametrize("mode", ["full", "incremental"])
    def test_an_empty_source_writes_nothing(
        self, io: DatasetHandler, dataset: Path, mode: str
    ) -> None:
        before = state(dataset)
        result = merged(io, dataset, rows(), "upsert", mode)
        assert (result.updated, result.inserted, result.rewritten_files) == (0, 0, [])
        assert state(dataset) == before

    @pytest.mark.parametrize("strategy", ["full_merge", "deduplicate"])
    def test_incremental_is_refused_for(
        self, io: DatasetHandler, dataset: Path, strategy: str
    ) -> None:
        before = state(dataset)
        with pytest.raises(ValueError, match=f"not supported for the strategy '{strategy}'"):
            io.write_parquet_dataset(
                rows(1), str(dataset), strategy=strategy, rewrite_mode="incremental"
            )
        assert state(dataset) == before

    def test_deduplicate_keeps_the_greatest_and_of_equals_the_last(
        self, io: DatasetHandler, dataset: Path
    ) -> None:
        source = pa.table({"id": [3, 3, 3, 200, 200], "v": ["b", "c", "a", None, "x"]})
        result = io.merge_parquet_dataset(
            source, str(dataset), ["id"], "deduplicate", order_by=["v"]
        )
        assert (result.updated, result.inserted) == (1, 1)
        assert {row for row in content(dataset) if row[1] != "old"} == {(3, "c"), (200, "x")}


def _counts(result: Any) -> tuple[int, ...]:
    return (
        result.source_count,
        result.target_count_before,
        result.target_count_after,
        result.inserted,
        result.updated,
        result.deleted,
    )


def serialize_error(result: Any, dataset: Path) -> Any:
    """A result without what differs from one dataset to another: unique names and times."""
    kinds = [(f.operation, f.row_count, f.size_bytes) for f in result.files]
    preserved = [path.removeprefix(str(dataset)) for path in result.preserved_files]
    replaced = sorted(old.removeprefix(str(dataset)) for old in result.metrics["renamed"])
    return result.strategy, _counts(result), sorted(kinds, key=str), preserved, replaced


class TestFallback:
    """Where metadata does not help, more files are looked at or rewritten; never fewer."""

    def test_without_statistics_every_file_is_scanned_and_the_right_one_rewritten(
        self, io: DatasetHandler, tmp_path: Path
    ) -> None:
        dataset = written(tmp_path / "data", write_statistics=False)
        planned = plan_incremental_rewrite(str(dataset), [13], ["id"])
        assert len(planned.affected_files) == FILES
        result = merged(io, dataset, rows(13, v="new"), "update", "incremental")
        assert (result.updated, len(result.rewritten_files)) == (1, 1)
        assert (13, "new") in content(dataset)

    def test_keys_spread_over_all_files(self, io: DatasetHandler, tmp_path: Path) -> None:
        (tmp_path / "spread").mkdir()
        for number in range(4):
            ids = range(number, 40, 4)
            pq.write_table(rows(*ids), tmp_path / "spread" / f"{number}.parquet")
        planned = plan_incremental_rewrite(str(tmp_path / "spread"), [8, 12], ["id"])
        result = merged(io, tmp_path / "spread", rows(8, 12, v="new"), "update", "incremental")
        assert (len(planned.affected_files), len(result.rewritten_files)) == (4, 1)


class TestPartitions:
    def test_only_the_partition_of_the_source_is_rewritten(
        self, io: DatasetHandler, tmp_path: Path
    ) -> None:
        path = str(tmp_path / "days")
        table = pa.table({"day": ["a", "a", "b", "b"], "id": [1, 2, 1, 2], "v": ["old"] * 4})
        io.write_parquet_dataset(table, path, partition_by=["day"])
        result = io.write_parquet_dataset(
            pa.table({"day": ["b"], "id": [2], "v": ["new"]}),
            path,
            strategy="upsert",
            key_columns=["day", "id"],
            rewrite_mode="incremental",
        )
        assert ["day=b" in file for file in result.rewritten_files] == [True]
        assert ["day=a" in file for file in result.preserved_files] == [True]


@pytest.mark.parametrize("strategy", [s.value for s in MergeStrategy])
@pytest.mark.parametrize("mode", ["full", "incremental"])
def test_which_strategies_can_be_incremental(strategy: str, mode: str) -> None:
    if mode == "incremental" and strategy in ("full_merge", "deduplicate"):
        with pytest.raises(ValueError, match=strategy):
            validate_rewrite_mode_compatibility(strategy, mode)
    else:
        validate_rewrite_mode_compatibility(strategy, mode)
