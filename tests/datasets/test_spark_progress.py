"""Progress while tasks run: what is reported, in which thread, and what an error leaves behind."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from fsspeckit.testing.conformance.target import numbers

pytest.importorskip("pyspark")

from benchmarks.spark_counts import count
from pyspark import StatusTracker
from tests.datasets.spark_faults import FaultyJobs
from tests.datasets.test_spark_engine import rows_of
from tests.datasets.test_spark_scale import files

from fsspeckit.datasets.base import DatasetIO
from fsspeckit.datasets.spark import SparkDatasetIO, SparkLimits
from fsspeckit.datasets.spark.engine import SparkEngine
from fsspeckit.datasets.spark.progress import PhaseTasks
from fsspeckit.datasets.spark.session import is_connect

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

Event = tuple[str, int, int]

SESSIONS = pytest.mark.parametrize("session", ["spark", "spark_connect"])
TASKS = SparkLimits(driver_max_source_bytes=0, task_min_bytes=1, task_max_bytes=1)
"""Nothing is done by the driver, and every file has a task of its own."""

SOURCE = numbers(1, 11, 21, 31, v="new")


@pytest.fixture
def opened(request: pytest.FixtureRequest, session: str) -> SparkSession:
    found: SparkSession = request.getfixturevalue(session)
    return found


def broadcast_io(spark: SparkSession) -> SparkDatasetIO:
    """An engine that sends all keys to tasks."""
    return SparkDatasetIO(spark, limits=TASKS)


def slow_frame(spark: SparkSession, parts: int, marks: Path) -> DataFrame:
    """A row for each partition, which takes a second and leaves a mark."""

    def wait(batches: Any) -> Any:
        import time
        import uuid

        (marks / uuid.uuid4().hex).touch()
        time.sleep(1)
        yield from batches

    frame = spark.range(0, parts, 1, parts).mapInArrow(wait, "id bigint")
    return frame.selectExpr("id", "'new' AS v")


def own_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("fsspeckit")]


def in_phase(events: list[Event], phase: str) -> list[tuple[int, int]]:
    """What a phase reports between its start and its end."""
    found = [(done, total) for name, done, total in events if name == phase]
    assert (found[0], found[-1]) == ((0, 1), (1, 1))
    return found[1:-1]


def test_counts_never_decrease() -> None:
    events: list[Event] = []
    tasks = PhaseTasks("match", lambda *event: events.append(event))
    tasks.begin(0)
    for counts in [(0, 1), (1, 4), (0, 4), (3, 3)]:
        tasks.count(*counts)
    tasks.end()
    tasks.begin(2)
    tasks.count(1, 2)
    tasks.end()
    counted = [(1, 4), (3, 4), (4, 4), (4, 6), (5, 6), (6, 6)]
    assert events == [("match", *counts) for counts in counted]


@pytest.mark.spark
@pytest.mark.slow
class TestProgress:
    @SESSIONS
    def test_tasks_are_reported_while_they_end(self, opened: SparkSession, tmp_path: Path) -> None:
        events: list[Event] = []
        frame, path = slow_frame(opened, 6, tmp_path), str(tmp_path / "data")
        io = broadcast_io(opened)
        io.write_dataset(frame, path, progress=lambda *event: events.append(event))
        counts = in_phase(events, "stage")
        assert any(0 < done < total for done, total in counts)
        assert counts == sorted(counts)
        assert counts[-1] == (6, 6)

    @SESSIONS
    def test_tasks_are_reported_in_the_thread_of_the_caller(
        self, opened: SparkSession, tmp_path: Path
    ) -> None:
        path, events, threads = files(tmp_path / "data", 4), list[Event](), set[int]()

        def progress(*event: Any) -> None:
            events.append(event)
            threads.add(threading.get_ident())

        result = broadcast_io(opened).merge(SOURCE, path, "upsert", ["id"], progress=progress)
        assert (result.updated, result.metrics["tier"]) == (4, "broadcast")
        counts = in_phase(events, "match")
        assert (counts[0], counts[-1]) == ((0, 4), (4, 4))
        assert counts == sorted(counts)
        assert threads == {threading.get_ident()}
        assert own_threads() == []

    def test_all_stages_of_a_join_are_counted(self, spark: SparkSession, tmp_path: Path) -> None:
        def wait(*_: Any) -> None:
            import time

            time.sleep(0.5)

        jobs, events = FaultyJobs(spark), list[Event]()
        jobs.fault = wait
        limits = replace(TASKS, broadcast_max_given_keys=0, broadcast_max_key_bytes=0)
        result = DatasetIO(SparkEngine(jobs, limits=limits)).merge(
            SOURCE,
            files(tmp_path / "data", 4),
            "update",
            ["id"],
            progress=lambda *event: events.append(event),
        )
        assert (result.updated, result.metrics["tier"]) == (4, "shuffle")
        counts = in_phase(events, "match")
        assert counts == sorted(counts)
        assert any(0 < done < total for done, total in counts)
        assert counts[-1][0] == counts[-1][1] > 4  # the scans, and tasks that read the source

    def test_counting_adds_no_job_and_keeps_the_group_of_the_caller(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        io = broadcast_io(spark)
        io.jobs.prepare()

        def merge(name: str, progress: Any) -> tuple[int, int, int]:
            path = files(tmp_path / name, 4)
            work = partial(io.merge, SOURCE, path, "upsert", ["id"], progress=progress)
            found = count(spark, work)
            return found.jobs, found.stages, found.tasks

        assert merge("counted", lambda *_: None) == merge("not counted", None)

    @SESSIONS
    @pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
    def test_an_error_of_progress_cancels_the_tasks(
        self, opened: SparkSession, tmp_path: Path, error: type[BaseException]
    ) -> None:
        path, marks = files(tmp_path / "data", 4), tmp_path / "marks"
        before = rows_of(path)
        marks.mkdir()

        def progress(phase: str, done: int, total: int) -> None:
            if phase == "stage" and 0 < done < total:
                raise error("stop")

        io = broadcast_io(opened)
        with pytest.raises(error, match="stop"):
            io.merge(slow_frame(opened, 60, marks), path, "upsert", ["id"], progress=progress)
        assert len(list(marks.iterdir())) < 60
        assert rows_of(path) == before
        assert own_threads() == []
        assert handlers(opened) == []
        assert io.merge(SOURCE, path, "update", ["id"]).updated == SOURCE.num_rows

    def test_a_tracker_that_fails_does_not_fail_the_merge(
        self, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: Any) -> Any:
            raise ConnectionError("no tracker")

        path, events = files(tmp_path / "data", 4), list[Event]()
        monkeypatch.setattr(StatusTracker, "getJobIdsForGroup", fail)
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", "mine")
        result = broadcast_io(spark).merge(
            SOURCE, path, "update", ["id"], progress=lambda *event: events.append(event)
        )
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        assert result.updated == SOURCE.num_rows
        assert in_phase(events, "match") == []


def handlers(spark: SparkSession) -> list[Any]:
    """The progress handlers of a Connect session."""
    if not is_connect(spark):
        return []
    client: Any = spark.client
    return list(client._progress_handlers)
