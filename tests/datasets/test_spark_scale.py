"""What lets the Spark engine grow: many files, scattered sources, many partitions, long answers."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit import errors
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.testing.conformance import open_store
from fsspeckit.testing.conformance.target import Target, numbers

pytest.importorskip("pyspark")

from tests.datasets.test_spark_engine import large_io, rows_of

from fsspeckit.datasets.spark import SparkLimits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from fsspeckit.datasets.spark import SparkDatasetIO

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_watched: dict[str, set[str]] = {}
_hooks: list[bool] = []


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str):
        for directory, seen in _watched.items():
            if arguments[0].startswith(directory):
                seen.add(arguments[0])


@contextmanager
def opened_here(directory: Path) -> Iterator[set[str]]:
    """The files below a directory that Python code of this process opens."""
    if not _hooks:
        sys.addaudithook(_watch)  # for good: there is no way to take it away
        _hooks.append(True)
    seen = _watched[f"{directory}{os.sep}"] = set()
    try:
        yield seen
    finally:
        del _watched[f"{directory}{os.sep}"]


def files(path: Path, count: int, rows: int = 10) -> str:
    path.mkdir()
    for number in range(count):
        table = numbers(*range(number * rows, (number + 1) * rows))
        pq.write_table(table, path / f"f{number:03}.parquet")
    return str(path)


class TestFooters:
    def merged(self, spark: SparkSession, tmp_path: Path, limit: int) -> tuple[Any, set[str]]:
        """A merge into five files, and which of them the driver opened to read footers."""
        from fsspeckit.datasets.spark import SparkDatasetIO, SparkLimits

        io = SparkDatasetIO(spark, limits=SparkLimits(driver_max_footers=limit, driver_max_files=0))
        path = files(tmp_path / f"data{limit}", 5)
        source = numbers(13, 14, 31, 1000, v="new")
        with opened_here(tmp_path / f"data{limit}") as seen:
            plan = io.plan_merge(source, path, "upsert", ["id"])
        found = [(Path(f.path).name, f.decision, str(f.evidence)) for f in plan.files]
        result = io.merge(source, path, "upsert", ["id"])
        counts = (result.updated, result.inserted, len(result.rewritten_files), rows_of(path))
        return (found, counts), seen

    def test_those_of_many_files_are_read_by_tasks(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        here, opened = self.merged(spark, tmp_path, 1)  # eight on a disk
        in_tasks, not_opened = self.merged(spark, tmp_path, 0)
        assert here == in_tasks
        assert (len(opened), len(not_opened)) == (5, 0)

    def test_what_is_unreadable_is_reported_as_ever(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        from fsspeckit.datasets.spark import SparkDatasetIO, SparkLimits

        path = files(tmp_path / "data", 3)
        broken = tmp_path / "data" / "f001.parquet"
        broken.write_bytes(b"PAR1 this is not Parquet PAR1")
        os.utime(broken, (1, 1))
        io = SparkDatasetIO(spark, limits=SparkLimits(driver_max_footers=0))
        with pytest.raises(errors.UnreadableFileError, match="f001"):
            io.merge(numbers(1), path, "upsert", ["id"])

    def test_an_append_reads_them_by_tasks_too(self, spark: SparkSession, tmp_path: Path) -> None:
        from fsspeckit.datasets.spark import SparkDatasetIO, SparkLimits

        limits = SparkLimits(driver_max_footers=0)
        path = files(tmp_path / "data", 4)
        old = {file.name for file in Path(path).iterdir()}
        with opened_here(tmp_path / "data") as seen:
            SparkDatasetIO(spark, limits=limits).write_dataset(numbers(99), path)
        # One file is looked at to make new ones like it.
        assert {Path(name).name for name in seen} & old <= {"f000.parquet"}


def odd_payload(ids: np.ndarray[Any, Any], text: str) -> pa.Table:
    """Columns of which Spark knows no type."""
    return pa.table(
        {
            "id": ids,
            "ns": pa.array(ids, pa.timestamp("ns")),
            "u": pa.array(ids.astype(np.uint64) + np.uint64(2**63)),
            "d": pa.array([f"{text}{n % 3}" for n in ids]).dictionary_encode(),
            "l": pa.array([[{"a": int(n), "b": text}] for n in ids]),
        }
    )


class TestScatteredSources:
    """Rows of every file are all over the source: they are read once and routed."""

    @pytest.fixture
    def paths(self, tmp_path: Path) -> tuple[str, str, str]:
        """Two equal datasets of eight files, and a source whose rows are in no order."""
        for name in ("spark", "pyarrow"):
            (tmp_path / name).mkdir()
            for number in range(8):
                table = odd_payload(np.arange(number * 40, number * 40 + 40), "old")
                path = tmp_path / name / f"f{number}.parquet"
                pq.write_table(table, path, row_group_size=10)
        mixed = np.random.default_rng(7).permutation(np.arange(0, 330))
        source = tmp_path / "source.parquet"
        pq.write_table(odd_payload(mixed, "new"), source, row_group_size=12)
        return str(tmp_path / "spark"), str(tmp_path / "pyarrow"), str(source)

    @pytest.mark.parametrize(
        ("strategy", "joined"), [("upsert", True), ("upsert", False), ("full_merge", True)]
    )
    def test_the_result_is_that_of_the_other_engine(
        self,
        spark: SparkSession,
        paths: tuple[str, str, str],
        strategy: str,
        joined: bool,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        ours, theirs, source = paths
        with caplog.at_level(logging.INFO, "fsspeckit.spark"):
            result = large_io(spark, joined=joined).merge(source, ours, strategy, ["id"])
        assert "route rows to files of" in caplog.text
        other = PyarrowDatasetIO().merge(source, theirs, strategy, ["id"])
        assert (result.updated, result.inserted) == (other.updated, other.inserted) == (320, 10)
        assert rows_of(ours) == rows_of(theirs)

    def test_on_a_server(
        self,
        spark_connect: SparkSession,
        paths: tuple[str, str, str],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        ours, _, source = paths
        with caplog.at_level(logging.INFO, "fsspeckit.spark"):
            result = large_io(spark_connect).merge(source, ours, "update", ["id"])
        assert "route rows to files of" in caplog.text
        assert (result.updated, result.inserted) == (320, 0)

    def test_a_source_in_order_is_read_in_place(
        self, spark: SparkSession, paths: tuple[str, str, str], caplog: pytest.LogCaptureFixture
    ) -> None:
        ours, _, _ = paths
        with caplog.at_level(logging.INFO, "fsspeckit.spark"):
            large_io(spark).merge(odd_payload(np.arange(330), "new"), ours, "upsert", ["id"])
        assert "rewrite files of" in caplog.text
        assert "route rows" not in caplog.text


BY_PARTITION = SparkLimits(driver_max_source_bytes=0, insert_max_sorted_rows=0)


TASKS = SparkLimits(driver_max_source_bytes=0, broadcast_max_inline_pairs=0)
STAGED = replace(TASKS, broadcast_max_given_keys=0, route_min_bytes=0)
JOINED = replace(STAGED, broadcast_max_key_bytes=0)
WAYS = {
    "scanned by tasks, inserted by the driver": (SparkLimits(driver_max_files=0), "broadcast"),
    "rewritten in scans, and staged": (TASKS, "broadcast"),
    "scanned by several tasks": (replace(TASKS, task_max_bytes=1), "broadcast"),
    "routed": (STAGED, "broadcast"),
    "joined and routed": (JOINED, "shuffle"),
    "joined, read in place": (replace(JOINED, route_min_bytes=2**40), "shuffle"),
    "inserted by partition": (
        replace(JOINED, insert_max_sorted_rows=0, insert_max_rows=50),
        "shuffle",
    ),
}


class TestMovedRows:
    """Rows that move to another partition, on every way that a merge can take."""

    @pytest.mark.parametrize("strategy", ["update", "full_merge"])
    @pytest.mark.parametrize("way", WAYS)
    def test_every_row_arrives_once(
        self,
        spark: SparkSession,
        tmp_path: Path,
        way: str,
        strategy: str,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        from fsspeckit.datasets.spark import SparkDatasetIO

        caplog.set_level(logging.INFO, "fsspeckit.spark")
        limits, tier = WAYS[way]
        ids = np.random.default_rng(7).permutation(np.arange(0, 330))
        source = pa.table({"id": ids, "p": ids % 5, "at": ids % 7, "gone": ids % 11 == 0})
        pq.write_table(source, tmp_path / "source.parquet", row_group_size=12)
        with open_store("exchange") as store:
            target = Target(SparkDatasetIO(spark, limits=limits), store)
            for number in range(8):
                own = np.arange(number * 40, number * 40 + 44)  # 4 keys of the next file as well
                table = pa.table({"id": own, "at": np.full(44, 2)})
                target.write(f"p={number % 4}/f{number}.parquet", table, row_group_size=10)
            result = target.merge(
                source,
                strategy,
                data=str(tmp_path / "source.parquet"),
                partition_change="move",
                only_newer="at",
                delete_when="gone",
            )
        assert result.metrics["tier"] == tier
        assert ("route rows to files of" in caplog.text) == (limits.route_min_bytes == 0)
        assert min(result.moved, result.late, result.updated - result.moved) > 20

    def test_keys_that_move_are_not_counted_for_an_error(
        self, spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        from fsspeckit.datasets.spark import SparkDatasetIO

        (tmp_path / "data" / "p=0").mkdir(parents=True)
        pq.write_table(pa.table({"id": range(9)}), tmp_path / "data" / "p=0" / "f.parquet")
        source = pa.table({"id": range(9), "p": [1] * 9})
        io = SparkDatasetIO(spark, limits=JOINED)
        with caplog.at_level(logging.INFO, "fsspeckit.spark"):
            result = io.merge(
                source, str(tmp_path / "data"), "upsert", ["id"], partition_change="move"
            )
        assert result.moved == 9
        assert "match keys of" in caplog.text
        assert "count keys" not in caplog.text


class TestManyPartitions:
    def test_a_partition_gets_no_more_files_than_it_needs(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        """More partitions than files that one writer keeps open, in every row group all of them."""
        from fsspeckit.datasets.spark import SparkDatasetIO

        limits = replace(BY_PARTITION, insert_max_rows=500)
        frame = spark.range(0, 1500, 1, 4).selectExpr("id", "int(id % 75) AS p", "'v' AS v")
        io = SparkDatasetIO(spark, limits=limits)
        result = io.write_dataset(frame, str(tmp_path / "x"), partition_by=["p"])
        assert sorted(file.partition_values["p"] for file in result.files) == list(range(75))
        assert {file.row_count for file in result.files} == {20}
        found = pq.read_table(tmp_path / "x")
        assert sorted(found["id"].to_pylist()) == list(range(1500))

    def test_a_large_partition_is_cut_by_max_rows_per_file(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        from fsspeckit.datasets.spark import SparkDatasetIO

        frame = spark.range(0, 1000, 1, 2).selectExpr("id", "int(id % 2) AS p")
        result = SparkDatasetIO(spark, limits=BY_PARTITION).write_dataset(
            frame, str(tmp_path / "x"), partition_by=["p"], max_rows_per_file=200
        )
        assert sorted(file.row_count for file in result.files) == [100] * 2 + [200] * 4

    def test_a_few_rows_of_many_partitions(self, spark: SparkSession, tmp_path: Path) -> None:
        from fsspeckit.datasets.spark import SparkDatasetIO

        frame = spark.range(0, 300, 1, 3).selectExpr("id", "int(id % 100) AS p")
        result = SparkDatasetIO(spark).write_dataset(frame, str(tmp_path / "x"), partition_by=["p"])
        assert len(result.files) == 100


def test_keys_that_would_move_are_counted_once_each(spark: SparkSession, tmp_path: Path) -> None:
    """Also where the target has a key several times, in several files."""
    for part, ids in (("a", [1, 2, 2, 3]), ("b", [2, 3]), ("c", [50])):
        (tmp_path / "data" / f"p={part}").mkdir(parents=True)
        pq.write_table(pa.table({"id": ids}), tmp_path / "data" / f"p={part}" / "x.parquet")
    source = pa.table({"id": [1, 2, 3, *range(100, 120)], "p": ["c"] * 23})
    with pytest.raises(errors.PartitionMoveError, match=r"\b3\b"):
        large_io(spark).merge(source, str(tmp_path / "data"), "upsert", ["id"])


class TestReports:
    def test_the_log_names_the_merge_its_phases_and_the_dataset(
        self, spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        path = files(tmp_path / "data", 2)
        with caplog.at_level(logging.INFO, "fsspeckit"):
            for _ in range(2):
                large_io(spark).merge(numbers(*range(5, 30), v="new"), path, "upsert", ["id"])
        jobs = [record for record in caplog.records if record.name == "fsspeckit.spark"]
        told = [record.getMessage() for record in jobs if path in record.getMessage()]
        merges = {text.split(":")[0] for text in told}
        assert len(merges) == 2  # fsspeckit and an id
        phases = [text.split(": ")[1].removesuffix(f" {path}") for text in told]
        assert phases[:4] == [
            "resolve the keys for",
            "match keys of",
            "rewrite files of",
            "insert rows into",
        ]

    def test_progress_is_that_of_the_other_engine(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        """Jobs report the start and the end of a phase, and in between tasks instead of files."""
        from fsspeckit.datasets.spark import SparkDatasetIO

        told: list[list[tuple[str, int, int]]] = []
        for number, io in enumerate((PyarrowDatasetIO(), SparkDatasetIO(spark), large_io(spark))):
            path = files(tmp_path / f"{number}", 3)
            events: list[tuple[str, int, int]] = []
            source = numbers(1, 11, 12, 100, v="new")
            io.merge(
                source, path, "upsert", ["id"], progress=lambda *event, to=events: to.append(event)
            )
            told.append(events)
        assert told[1] == told[0]
        phases = [[event for event in events if event[2] == 1] for events in told]
        assert phases[2] == phases[0]

    def test_the_limit_of_the_driver_is_the_callers(self, spark: SparkSession) -> None:
        from fsspeckit.datasets.spark import SparkDatasetIO

        with pytest.raises(ValueError, match="driver_max_footers must be"):
            SparkDatasetIO(spark, limits=SparkLimits(driver_max_footers=-1))


@pytest.fixture
def io(spark: SparkSession) -> SparkDatasetIO:
    return large_io(spark)


def test_a_source_of_no_rows_in_many_parts(
    io: SparkDatasetIO, spark: SparkSession, tmp_path: Path
) -> None:
    path = files(tmp_path / "data", 1)
    frame = spark.range(0, 100, 1, 3).where("id < 0").selectExpr("id", "'x' AS v")
    result = io.merge(frame, path, "upsert", ["id"])
    assert (result.updated, result.inserted, result.rewritten_files) == (0, 0, [])


def test_duplicates_are_found_by_tasks(spark: SparkSession, tmp_path: Path) -> None:
    """Positions that are too many for a message are staged, and rows of odd types are compared."""
    from fsspeckit.datasets.spark import SparkDatasetIO

    limits = SparkLimits(driver_max_duplicate_rows=0, broadcast_max_inline_pairs=0)
    path = tmp_path / "data"
    ids = np.arange(300) % 100
    PyarrowDatasetIO().write_dataset(odd_payload(ids, "x"), str(path), max_rows_per_file=130)
    result = SparkDatasetIO(spark, limits=limits).deduplicate(str(path))
    assert (result.deleted, result.metrics["tier"]) == (200, "shuffle")
    found = PyarrowDatasetIO().read_dataset(str(path))
    assert sorted(found["id"].to_pylist()) == list(range(100))


def test_repartitioning_brings_the_rows_of_a_partition_together(
    spark: SparkSession, tmp_path: Path
) -> None:
    from fsspeckit.datasets.spark import SparkDatasetIO

    limits = SparkLimits(driver_max_source_rows=0, insert_max_sorted_rows=0, insert_max_rows=50)
    path = str(tmp_path / "data")
    rows = odd_payload(np.arange(200), "x")
    PyarrowDatasetIO().write_dataset(rows, path, max_rows_per_file=20)
    result = SparkDatasetIO(spark, limits=limits).repartition(path, "d")
    assert {file.partition_values["d"] for file in result.files} == {"x0", "x1", "x2"}
    assert len(result.files) <= 6  # not one for each file and partition
    found = PyarrowDatasetIO().read_dataset(path).select(rows.column_names).sort_by("id")
    plain = pa.schema([f.with_type(pa.string()) if f.name == "d" else f for f in rows.schema])
    assert found.cast(plain).equals(rows.cast(plain))
