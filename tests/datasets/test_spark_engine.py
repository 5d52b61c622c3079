"""What only the Spark engine promises: jobs, data frames, large sources, other processes."""

from __future__ import annotations

import datetime as dt
import os
import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.spark_counts import Counts, count, start_workers

from fsspeckit import errors
from fsspeckit.testing.conformance import open_store
from fsspeckit.testing.conformance.target import Target, lines, numbers
from fsspeckit.testing.model import STRATEGIES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from fsspeckit.datasets.spark import SparkDatasetIO

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def io(spark: SparkSession) -> SparkDatasetIO:
    from fsspeckit.datasets.spark import SparkDatasetIO

    return SparkDatasetIO(spark)


def sixteen_files(path: Path, rows: int = 100) -> str:
    path.mkdir()
    for number in range(16):
        ids = range(number * rows, (number + 1) * rows)
        pq.write_table(numbers(*ids), path / f"f{number}.parquet", row_group_size=rows // 2)
    return str(path)


def rows_of(path: str) -> Counter[str]:
    return Counter(lines(pq.read_table(path)))


class TestActions:
    def test_a_small_upsert_takes_at_most_four_actions(
        self, io: SparkDatasetIO, spark: SparkSession, tmp_path: Path
    ) -> None:
        path = sixteen_files(tmp_path / "data")
        frame = spark.range(0, 3200, 32, 2).selectExpr("id", "'new' AS v")
        io.jobs.prepare()
        before = io.jobs.actions
        result = io.merge(frame, path, "upsert", ["id"])
        assert (result.updated, result.inserted) == (50, 50)
        assert io.jobs.actions - before <= 4

    @pytest.mark.parametrize(
        ("strategy", "limits", "tier", "actions"),
        [
            ("upsert", {}, "driver", 1),
            ("upsert", {"driver_max_target_bytes": 0}, "broadcast", 2),
            ("upsert", {"driver_max_source_bytes": 0}, "broadcast", 3),
            ("insert", {}, "driver", 1),
            ("insert", {"driver_max_files": 0}, "broadcast", 2),
            ("insert", {"driver_max_source_bytes": 0}, "broadcast", 3),
        ],
    )
    def test_small_merges_are_done_by_the_driver(
        self,
        spark: SparkSession,
        tmp_path: Path,
        strategy: str,
        limits: dict[str, int],
        tier: str,
        actions: int,
    ) -> None:
        """In all other tiers it still inserts the rows of a small source."""
        from fsspeckit.datasets.spark import SparkDatasetIO, SparkLimits

        path = sixteen_files(tmp_path / "data")
        frame = spark.range(1590, 1610, 1, 2).selectExpr("id", "'new' AS v")
        io = SparkDatasetIO(spark, limits=SparkLimits(**limits))
        io.jobs.prepare()
        before = io.jobs.actions
        result = io.merge(frame, path, strategy, ["id"])
        updated = 10 if strategy == "upsert" else 0
        assert (result.updated, result.inserted, len(result.inserted_files)) == (updated, 10, 1)
        assert io.jobs.actions - before == actions
        assert result.metrics["tier"] == tier
        assert next(iter(limits), "driver_max_") in result.metrics["tier_reason"]
        kept = 1600 - updated
        expected = numbers(*range(kept)), numbers(*range(kept, 1610), v="new")
        assert rows_of(path) == Counter(lines(pa.concat_tables(expected)))

    @pytest.mark.parametrize(("limits", "tier"), [(False, "driver"), (True, "broadcast")])
    def test_in_local_mode_the_driver_merges_into_any_number_of_files(
        self, spark: SparkSession, tmp_path: Path, limits: bool, tier: str
    ) -> None:
        from fsspeckit.datasets.spark import SparkDatasetIO, SparkLimits

        path = tmp_path / "data"
        path.mkdir()
        for number in range(40):
            pq.write_table(numbers(number), path / f"{number:02}.parquet")
        given = SparkLimits() if limits else None
        result = SparkDatasetIO(spark, limits=given).merge(
            numbers(*range(40), v="new"), str(path), "upsert", ["id"]
        )
        assert (result.metrics["tier"], result.updated) == (tier, 40)

    @pytest.mark.skipif(sys.platform != "linux", reason="processes are counted in /proc")
    @pytest.mark.parametrize("strategy", ["update", "upsert", "insert"])
    @pytest.mark.parametrize(("max_files", "jobs"), [(8, 2), (16, 1)])
    def test_a_small_merge_shuffles_nothing_and_starts_no_worker(
        self, spark: SparkSession, tmp_path: Path, strategy: str, max_files: int, jobs: int
    ) -> None:
        """Keys of more files than the limit are looked up by tasks."""
        from fsspeckit.datasets.spark import SparkDatasetIO, SparkLimits

        io = SparkDatasetIO(spark, limits=SparkLimits(driver_max_files=max_files))
        path = sixteen_files(tmp_path / "data")
        frame = spark.range(0, 3200, 32, 2).selectExpr("id", "'new' AS v")
        io.jobs.prepare()
        start_workers(spark, 2)
        found = count(spark, lambda: io.merge(frame, path, strategy, ["id"]))
        assert (found.jobs, found.stages, found.workers) == (jobs, jobs, 0)
        assert found.tasks <= 2 * jobs

    @pytest.mark.skipif(sys.platform != "linux", reason="processes are counted in /proc")
    def test_workers_that_start_are_counted(self, spark: SparkSession) -> None:
        """So that the zero above means something."""
        start_workers(spark, 2)

        def more() -> None:
            setting = "spark.sql.execution.pyspark.udf.faulthandler.enabled"
            before = str(spark.conf.get(setting))
            # Workers with another environment are others.
            spark.conf.set(setting, str(before != "true").lower())
            try:
                start_workers(spark, 2)
            finally:
                spark.conf.set(setting, before)

        assert count(spark, more) == Counts(jobs=1, stages=1, tasks=2, workers=2)

    def test_every_action_goes_through_one_place(self) -> None:
        """So that the count above is the whole truth."""
        pattern = re.compile(r"\.(collect|toArrow|toPandas)\b|\.(?:count|take|first|head)\(\)")
        found = {
            file.name: pattern.findall(file.read_text(encoding="utf-8")) for file in _modules()
        }
        assert found.pop("session.py") == ["collect", "toArrow", "collect", "collect"]
        assert set(map(tuple, found.values())) == {()}

    def test_jobs_say_what_they_are_for(
        self, io: SparkDatasetIO, spark: SparkSession, tmp_path: Path
    ) -> None:
        path = sixteen_files(tmp_path / "data")
        seen = []

        def progress(*_: Any) -> None:
            seen.append(spark.sparkContext.getLocalProperty("spark.job.description"))

        spark.sparkContext.setJobDescription("mine")
        io.merge(numbers(1, v="new"), path, "update", ["id"], progress=progress)
        assert set(seen) == {"mine"}
        spark.sparkContext.setJobDescription(None)  # type: ignore[arg-type]


def _modules() -> list[Path]:
    import fsspeckit.datasets

    return sorted(Path(fsspeckit.datasets.__path__[0]).glob("spark/*.py"))


def test_no_gateway_no_rdds_no_private_attributes() -> None:
    """What a Connect session does not have, but for two questions to a classic one."""
    text = "\n".join(file.read_text(encoding="utf-8") for file in _modules())
    forbidden = re.compile(r"\b(_jvm|_jsc|_jdf|_sc|_jsparkSession|rdd|parallelize|accumulator)\b")
    assert sorted(forbidden.findall(text)) == ["_jdf", "_jsparkSession"]
    private = re.findall(r"\b(?:spark|frame|session|context)\._[a-z]\w*", text)
    assert sorted(private) == ["frame._jdf", "session._jsparkSession"]


class TestFrames:
    def test_a_frame_is_evaluated_once(
        self, io: SparkDatasetIO, spark: SparkSession, tmp_path: Path
    ) -> None:
        """Rows drawn at random: what is written is what was counted, and drawn once."""
        path = sixteen_files(tmp_path / "data")
        draws = tmp_path / "draws"
        draws.mkdir()

        def draw(batches: Any) -> Iterator[pa.RecordBatch]:
            (draws / os.urandom(8).hex()).touch()
            for batch in batches:
                picked = [int.from_bytes(os.urandom(2), "big") for _ in range(batch.num_rows)]
                ids = [number * 10 + n for n, number in enumerate(picked)]
                v = [os.urandom(4).hex() for _ in ids]
                yield pa.RecordBatch.from_arrays([pa.array(ids), pa.array(v)], ["id", "v"])

        frame = spark.range(0, 10, 1, 1).mapInArrow(draw, "id bigint, v string")
        before = rows_of(path)
        result = io.merge(frame, path, "upsert", ["id"])
        assert len(list(draws.iterdir())) == 1
        assert result.updated + result.inserted == 10
        assert (rows_of(path) - before).total() == 10

    @pytest.mark.parametrize(
        "limit", [{"driver_max_source_rows": 9}, {"driver_max_source_bytes": 99}]
    )
    def test_a_frame_that_is_larger_than_expected_is_evaluated_again(
        self, spark: SparkSession, tmp_path: Path, limit: dict[str, int]
    ) -> None:
        """Spark expects as many rows of a function as it gets; what was drawn first is not used."""
        from fsspeckit.datasets.spark import SparkDatasetIO, SparkLimits

        path = sixteen_files(tmp_path / "data")

        def draw(batches: Any) -> Iterator[pa.RecordBatch]:
            for _ in batches:
                first = 10_000 + 10 * int.from_bytes(os.urandom(4), "big")
                v = [os.urandom(16).hex() for _ in range(10)]
                ids = pa.array(range(first, first + 10))
                yield pa.RecordBatch.from_arrays([ids, pa.array(v)], ["id", "v"])

        frame = spark.range(0, 1, 1, 1).mapInArrow(draw, "id bigint, v string")
        before = rows_of(path)
        io = SparkDatasetIO(spark, limits=SparkLimits(**limit))
        assert io.merge(frame, path, "upsert", ["id"]).inserted == 10
        assert (rows_of(path) - before).total() == 10
        assert io.jobs.actions > 1

    def test_a_small_frame_needs_no_python_worker(
        self, io: SparkDatasetIO, spark: SparkSession, tmp_path: Path
    ) -> None:
        path = sixteen_files(tmp_path / "data")
        frame = spark.sql("SELECT 7L AS id, 'new' AS v")
        python = "spark.sql.execution.pyspark.python"
        before = spark.conf.get(python, None)
        spark.conf.set(python, "there-is-no-python")
        try:
            assert io.merge(frame, path, "upsert", ["id"]).updated == 1
        finally:
            spark.conf.unset(python) if before is None else spark.conf.set(python, before)

    @pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
    def test_timestamps_mean_the_same_in_every_session(
        self, io: SparkDatasetIO, spark: SparkSession, tmp_path: Path, zone: str
    ) -> None:
        instant = pa.timestamp("us", "UTC")
        schema = pa.schema([("id", instant), ("local", pa.timestamp("us"))])
        moment = dt.datetime(2026, 7, 1, 12, 30)
        (tmp_path / "data").mkdir()
        held = pa.table([[moment], [dt.datetime(2000, 1, 1)]], schema=schema)
        pq.write_table(held, tmp_path / "data" / "a.parquet")
        spark.conf.set("spark.sql.session.timeZone", zone)
        try:
            frame = spark.sql(
                "SELECT TIMESTAMP_LTZ'2026-07-01 12:30:00Z' AS id, "
                "TIMESTAMP_NTZ'2026-07-01 12:30:00' AS local"
            )
            result = io.merge(frame, str(tmp_path / "data"), "upsert", ["id"])
        finally:
            spark.conf.set("spark.sql.session.timeZone", "UTC")
        assert (result.updated, result.inserted) == (1, 0)
        expected = pa.table([[moment], [moment]], schema=schema)
        assert pq.read_table(tmp_path / "data").equals(expected)

    @pytest.mark.parametrize("policy", ["first", "last"])
    def test_rows_of_a_frame_have_no_order(
        self, io: SparkDatasetIO, spark: SparkSession, tmp_path: Path, policy: Any
    ) -> None:
        path = sixteen_files(tmp_path / "data")
        frame = spark.sql("SELECT 1L AS id, 'new' AS v")
        with pytest.raises(ValueError, match="order_by"):
            io.merge(frame, path, "upsert", ["id"], duplicate_keys=policy)
        result = io.merge(frame, path, "upsert", ["id"], duplicate_keys=policy, order_by=["v"])
        assert result.updated == 1

    @pytest.mark.parametrize("column", ["parse_json('1')", "array(struct(parse_json('1') AS x))"])
    def test_a_type_that_parquet_does_not_have_is_refused(
        self, io: SparkDatasetIO, spark: SparkSession, tmp_path: Path, column: str
    ) -> None:
        frame = spark.sql(f"SELECT 1 AS id, {column} AS odd")
        with pytest.raises(errors.SchemaMismatchError, match=r"'odd' .* variant.*\nHint: convert"):
            io.merge(frame, str(tmp_path / "x"), "upsert", ["id"])

    def test_columns_that_occur_twice_are_refused(
        self, io: SparkDatasetIO, spark: SparkSession, tmp_path: Path
    ) -> None:
        with pytest.raises(ValueError, match="occur twice"):
            io.merge(spark.sql("SELECT 1 AS a, 2 AS a"), str(tmp_path / "x"), "upsert", ["a"])

    @pytest.mark.parametrize("session", ["spark", "spark_connect"])
    def test_names_of_columns_may_have_any_character(
        self, request: pytest.FixtureRequest, tmp_path: Path, session: str
    ) -> None:
        from fsspeckit.datasets.spark import SparkDatasetIO

        spark = request.getfixturevalue(session)
        names = ["a.b", "tick`ed", "s", ".s.x", "sp ace", "*"]
        frame = spark.range(1, 3).selectExpr("id", "2L", "struct(3L AS x)", "4L", "5L", "6L")
        values = {"a.b": [1, 2], "tick`ed": [2, 2], "s": [{"x": 3}] * 2}
        expected = pa.table({**values, ".s.x": [4, 4], "sp ace": [5, 5], "*": [6, 6]})
        for _ in range(2):
            SparkDatasetIO(spark).merge(frame.toDF(*names), str(tmp_path / "x"), "upsert", "a.b")
        assert pq.read_table(tmp_path / "x").to_pylist() == expected.to_pylist()

    def test_a_schema_casts_a_frame(
        self, io: SparkDatasetIO, spark: SparkSession, tmp_path: Path
    ) -> None:
        wanted = pa.schema([("id", pa.int16()), ("v", pa.large_string())])
        path = str(tmp_path / "data")
        io.write_dataset(spark.sql("SELECT 1L AS id, 'new' AS v"), path, schema=wanted)
        assert pq.read_schema(next(Path(path).glob("*.parquet"))).equals(wanted)

    def test_a_frame_that_fails_leaves_nothing(
        self, io: SparkDatasetIO, spark: SparkSession, tmp_path: Path
    ) -> None:
        from pyspark.errors import PySparkException

        path = sixteen_files(tmp_path / "data")
        before = rows_of(path)
        with pytest.raises(PySparkException, match="too bad"):
            io.merge(
                spark.sql("SELECT raise_error('too bad')::bigint AS id, '' AS v"),
                path,
                "upsert",
                ["id"],
            )
        assert rows_of(path) == before
        assert list(tmp_path.glob("**/.staging_*")) == []

    def test_a_dataset_is_overwritten_with_what_is_read_from_it(
        self, io: SparkDatasetIO, tmp_path: Path
    ) -> None:
        path = sixteen_files(tmp_path / "data")
        frame = io.read_dataset(path).where("id % 2 = 0").selectExpr("id", "upper(v) AS v")
        result = io.write_dataset(frame, path, mode="overwrite")
        assert result.total_rows == 800
        assert set(pq.read_table(path)["v"].to_pylist()) == {"OLD"}

    def test_payload_that_spark_does_not_know(self, io: SparkDatasetIO, tmp_path: Path) -> None:
        """Nanoseconds, unsigned numbers and times pass by Spark, and are read as near as it can."""
        values = {
            "id": pa.array([1, 2]),
            "ns": pa.array([1, 2], pa.timestamp("ns")),
            "u": pa.array([2**64 - 1, None], pa.uint64()),
            "d": pa.array(["x", "y"]).dictionary_encode(),
        }
        path = str(tmp_path / "data")
        io.write_dataset(pa.table(values), path)
        io.merge(pa.table(values).slice(1), path, "upsert", ["id"])
        (file,) = Path(path).glob("*.parquet")
        assert pq.read_table(file).equals(pa.table(values))


class TestFilesInPlace:
    def test_landed_files_are_not_copied(self, io: SparkDatasetIO, tmp_path: Path) -> None:
        path = sixteen_files(tmp_path / "data")
        (tmp_path / "landed").mkdir()
        for number in range(3):
            source = numbers(number, 5000 + number, v="new")
            pq.write_table(source, tmp_path / "landed" / f"{number}.parquet")
        staged: list[str] = []

        def progress(*_: Any) -> None:
            staged.extend(map(str, tmp_path.glob("**/source-*")))

        glob = str(tmp_path / "landed" / "*.parquet")
        result = io.merge(glob, path, "upsert", ["id"], progress=progress)
        assert (result.updated, result.inserted, staged) == (3, 3, [])

    def test_a_landed_file_that_changes_is_noticed(
        self, io: SparkDatasetIO, tmp_path: Path
    ) -> None:
        path = sixteen_files(tmp_path / "data")
        landed = tmp_path / "landed.parquet"
        pq.write_table(numbers(1, v="new"), landed)

        def progress(phase: str, done: int, _: int) -> None:
            if (phase, done) == ("plan", 1):
                pq.write_table(numbers(1, 2, v="newer"), landed)

        with pytest.raises(errors.ConcurrentModificationError, match="landed"):
            io.merge(str(landed), path, "upsert", ["id"], progress=progress)

    def test_int96_means_instants(
        self, io: SparkDatasetIO, spark: SparkSession, tmp_path: Path
    ) -> None:
        moment = pa.array([dt.datetime(2026, 1, 1)], pa.timestamp("us", "UTC"))
        (tmp_path / "data").mkdir()
        table = pa.table({"id": moment, "v": ["old"]})
        pq.write_table(table, tmp_path / "data" / "a.parquet")
        landed = tmp_path / "landed.parquet"
        new = table.set_column(1, "v", [["new"]])
        pq.write_table(new, landed, use_deprecated_int96_timestamps=True)
        assert io.merge(str(landed), str(tmp_path / "data"), "upsert", ["id"]).updated == 1


class TestLargeSources:
    """Sources whose keys every task reads, or Spark joins; here with limits of no keys."""

    @pytest.fixture(params=["read by tasks", "joined by Spark"])
    def target(self, spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[Target]:
        with open_store("exchange") as store:
            io = large_io(spark, joined=request.param == "joined by Spark")
            yield Target(io, store)

    @pytest.mark.parametrize("strategy", list(STRATEGIES))
    def test_strategy(self, target: Target, strategy: str) -> None:
        for number in range(4):
            target.write(f"{number}.parquet", numbers(*range(number * 10, number * 10 + 10)))
        target.merge(numbers(*range(5, 15), *range(35, 60), v="new"), strategy)

    @pytest.mark.parametrize(
        "options",
        [
            {"duplicate_keys": "first"},
            {"duplicate_keys": "last"},
            {"order_by": ["v"]},
        ],
        ids=str,
    )
    def test_duplicates_are_resolved(self, target: Target, options: dict[str, Any]) -> None:
        target.write("a.parquet", numbers(1, 5))
        source = pa.table({"id": [1, 2, 1, 2, 3] * 2, "v": ["a", "z", "c", "b", None] * 2})
        target.merge(source, "upsert", **options)

    def test_duplicates_are_refused_with_count_and_samples(self, target: Target) -> None:
        target.write("a.parquet", numbers(1))
        source = numbers(*range(10), *range(8), v="new")
        message = target.refuses(errors.DuplicateKeyError, source, match="8")
        assert message.count(", ") >= 4

    def test_null_keys(self, target: Target) -> None:
        target.write("a.parquet", numbers(None, 1, None))
        source = numbers(None, *range(20), v="new")
        assert "1" in target.refuses(errors.NullKeyError, source, match="'id'")
        target.merge(source, null_keys="match")

    def test_keys_that_would_move_are_refused(self, target: Target) -> None:
        for part in ("a", "b"):
            table = pa.table({"id": [ord(part), ord(part) + 10]})
            target.write(f"p={part}/x.parquet", table)
        ids = [ord("a"), *range(1000, 1020)]
        source = pa.table({"id": ids, "p": ["b"] * len(ids)})
        target.knows(pa.schema([("p", pa.string())]))
        message = target.refuses(errors.PartitionMoveError, source, match="cannot change")
        assert str(ord("a")) in message

    def test_pruned_files_are_not_opened(self, target: Target) -> None:
        for number in range(4):
            target.write(f"{number}.parquet", numbers(*range(number * 100, number * 100 + 100)))
        plan = target.plan(numbers(*range(150, 180), *range(1000, 1020), v="new"))
        assert sorted(target.decisions(plan).values()) == ["affected"] + ["pruned"] * 3
        assert plan.source_rows == 50


@pytest.mark.parametrize(
    ("limits", "tier"),
    [
        ({"driver_max_source_rows": 200_000}, "driver"),
        ({"driver_max_source_rows": 200_000, "driver_max_files": 0}, "broadcast"),
        ({}, "broadcast"),
        ({"broadcast_max_key_bytes": 1_000_000}, "shuffle"),
        ({"broadcast_max_key_bytes": 1_000_000, "insert_max_rows": 30_000}, "shuffle"),
    ],
)
def test_many_new_rows_beside_some_that_match(
    spark: SparkSession, tmp_path: Path, limits: dict[str, int], tier: str
) -> None:
    """More keys than are given to tasks, and more new rows than one list of them holds.

    The driver merges, stages the keys for tasks, or lets them resolve the keys and Spark join them.
    """
    from fsspeckit.datasets.spark import SparkDatasetIO, SparkLimits

    io = SparkDatasetIO(spark, limits=SparkLimits(**limits))
    (tmp_path / "data").mkdir()
    old = pa.table({"id": np.arange(50_000, 50_100), "v": ["old"] * 100})
    pq.write_table(old, tmp_path / "data" / "a.parquet")
    ids = np.random.default_rng(3).permutation(140_000)
    source = pa.table({"id": ids, "v": ["new"] * len(ids)})
    result = io.merge(source, str(tmp_path / "data"), "upsert", ["id"])
    assert (result.updated, result.inserted) == (100, 139_900)
    assert result.metrics["tier"] == tier
    found = pq.read_table(tmp_path / "data")
    assert sorted(found["id"].to_pylist()) == list(range(140_000))
    assert set(found["v"].to_pylist()) == {"new"}


def test_a_file_that_several_tasks_scan_gets_all_its_changes(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each of them knows its own matches only, so none may rewrite the file."""
    from fsspeckit.datasets.spark import SparkDatasetIO, SparkLimits

    path = sixteen_files(tmp_path / "data")
    io = SparkDatasetIO(spark, limits=SparkLimits(driver_max_files=0, task_max_bytes=1))
    result = io.merge(numbers(*range(0, 1600, 10), v="new"), path, "upsert", ["id"])
    assert (result.updated, result.metrics["tier"]) == (160, "broadcast")
    assert Counter(pq.read_table(path)["v"].to_pylist())["new"] == 160


def test_limits_of_what_is_rewritten_are_checked_before_tasks_rewrite(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fsspeckit.datasets.spark import SparkDatasetIO, SparkLimits, engine

    def refuse(*_: Any) -> None:
        raise AssertionError("a task would rewrite files")

    monkeypatch.setattr(engine, "rewriter_for", refuse)
    path = sixteen_files(tmp_path / "data")
    io = SparkDatasetIO(spark, limits=SparkLimits(driver_max_files=0))
    with pytest.raises(errors.RewriteLimitError):
        io.merge(numbers(1, v="new"), path, "upsert", ["id"], max_rewrite_bytes=0)


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("null_keys", ["error", "match"])
def test_a_server_joins_too(spark_connect: SparkSession, null_keys: str, joined: bool) -> None:
    """The functions that make columns are those of the session's own kind."""
    frame = spark_connect.range(15, 60, 1, 3).selectExpr("id", "'new' AS v")
    with open_store("exchange") as store:
        target = Target(large_io(spark_connect, joined=joined), store)
        target.write("a.parquet", numbers(*range(10)))
        target.write("b.parquet", numbers(*range(10, 20), None))
        source = numbers(*range(15, 60), v="new")
        result = target.merge(source, data=frame, null_keys=null_keys)
    assert (result.updated, result.inserted) == (5, 40)


def large_io(spark: SparkSession, *, joined: bool = True) -> SparkDatasetIO:
    """An engine that never merges in the driver: tasks read all keys, or Spark joins them."""
    from fsspeckit.datasets.spark import SparkDatasetIO, SparkLimits

    limits = SparkLimits(driver_max_source_bytes=0, broadcast_max_given_keys=0, route_min_bytes=0)
    if joined:
        limits = replace(limits, broadcast_max_key_bytes=0)
    return SparkDatasetIO(spark, limits=limits)


class TestSessions:
    def test_a_filesystem_of_this_process_is_refused(self, io: SparkDatasetIO) -> None:
        with pytest.raises(ValueError, match="only this process"):
            io.merge(numbers(1), "memory://spark/data", "upsert", ["id"])

    def test_the_active_session_is_taken(self, spark: SparkSession) -> None:
        from fsspeckit.datasets.spark import SparkDatasetIO

        assert SparkDatasetIO().jobs.spark is spark

    @pytest.mark.parametrize("version", ["3.5.4", "4.0.1"])
    def test_an_old_pyspark_is_refused(self, version: str) -> None:
        from fsspeckit.datasets.spark.session import check_version

        with pytest.raises(ImportError, match=rf"4\.1 or newer, found {version}.*\n.*pip install"):
            check_version(version)

    def test_an_old_server_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Before it is asked to do anything."""
        from fsspeckit.datasets.spark import session

        class Session:
            version = "4.0.1"

        monkeypatch.setattr(session, "is_connect", lambda spark: True)
        old: Any = Session()
        with pytest.raises(
            ImportError, match=r"a server of Spark 4\.1 or newer, found 4\.0\.1"
        ) as e:
            session.Jobs(old).prepare()
        assert "connect to a newer server" in str(e.value)

    @pytest.mark.parametrize(
        ("told", "expected"),
        [("", "no Java was found"), ('openjdk version "1.8.0_402"', "version 8")],
    )
    def test_java_that_is_missing_or_too_old(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, expected: str
    ) -> None:
        from fsspeckit.datasets.spark.session import check_java

        if told:
            (tmp_path / "bin").mkdir()
            java = tmp_path / "bin" / "java"
            java.write_text(f"#!/bin/sh\necho '{told}' >&2\n")
            java.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        with pytest.raises(ImportError, match=expected) as caught:
            check_java()
        assert "apt install" in str(caught.value)
        assert "'duckdb' and 'pyarrow' need no Java" in str(caught.value)

    def test_the_java_here_will_do(self) -> None:
        from fsspeckit.datasets.spark.session import check_java

        check_java()

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("[PYTHON_VERSION_MISMATCH] Python in worker", "another Python"),
            ("ModuleNotFoundError: No module named 'pyarrow'", "no pyarrow"),
            ("something else\nhappened", "happened"),
        ],
    )
    def test_a_worker_that_cannot_work_is_one_sentence(self, text: str, expected: str) -> None:
        from fsspeckit.datasets.spark.session import unfit_worker

        assert expected in str(unfit_worker(text))


def test_errors_of_tasks_are_what_they_were() -> None:
    from fsspeckit.datasets.spark.session import deserialize_error, messages

    def fail() -> Iterator[int]:
        yield 1
        raise PermissionError(13, "Permission denied", "/x")

    produced = messages(fail())
    next(produced)
    with pytest.raises(RuntimeError) as caught:
        next(produced)
    found = deserialize_error(f"a long trace\n{caught.value}\n more of it")
    assert isinstance(found, PermissionError)
    assert found.filename == "/x"
    assert deserialize_error("another error") is None


def test_errors_of_tasks_keep_their_fields() -> None:
    from fsspeckit.datasets.spark.session import carrying_errors, deserialize_error, make_task

    def fail(item: int) -> Iterator[pa.RecordBatch]:
        raise errors.InvalidArgumentError("wrong", argument="columns")

    with pytest.raises(RuntimeError) as caught:
        list(make_task(carrying_errors, fail, [1])([pa.RecordBatch.from_pydict({"id": [0]})]))
    found = deserialize_error(str(caught.value))
    assert isinstance(found, errors.InvalidArgumentError)
    assert (str(found), found.argument) == ("wrong", "columns")


@pytest.mark.parametrize(
    ("master", "local"),
    [
        *(("local", True), ("local[2]", True), ("local[*, 3]", True)),
        *(("local-cluster[2,1,1024]", False), ("spark://host:7077", False), ("yarn", False)),
        (None, False),
    ],
)
def test_which_sessions_are_in_local_mode(master: str | None, local: bool) -> None:
    from fsspeckit.datasets.spark.session import Jobs

    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(master=master))
    assert Jobs(session).are_local is local
