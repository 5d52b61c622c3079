"""A real cluster: executors that are lost, tasks that are slow or fail, and little memory.

Two drivers, each a process of its own, work on one cluster and tell what they saw.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from tests.datasets import spark_driver
from tests.datasets.spark_cluster import Cluster, standalone_cluster
from tests.datasets.spark_driver import FILES, ROWS, SMALL_ROWS, SOURCE, WIDE_ROWS, WIDE_SOURCE

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_REPOSITORY = Path(__file__).parents[2]
_PHASES = {
    "stage the source for",
    "resolve the keys for",
    "match keys of",
    "rewrite files of",
    "insert rows into",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("cluster")
    with standalone_cluster(directory) as started:
        yield started
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def seen(cluster: Cluster) -> dict[str, Any]:
    """What the driver tells whose tasks go wrong."""
    spark_driver.write_numbers(cluster.directory / "target")
    return _driven(cluster, "drive")


@pytest.fixture(scope="module")
def narrow(cluster: Cluster) -> dict[str, Any]:
    """What the driver tells whose executors and workers have little memory."""
    spark_driver.write_wide(cluster.directory / "wide" / "data")
    return _driven(cluster, "drive_narrow")


def _driven(cluster: Cluster, name: str) -> dict[str, Any]:
    """Run a driver, and give what it tells."""
    cluster.mend()
    about = {
        "url": cluster.url,
        "directory": str(cluster.directory),
        "python": str(_python_without_us(cluster.directory)),
        "workers": [process.pid for process in cluster.workers.values()],
    }
    told = subprocess.run(
        [sys.executable, "-c", f"from tests.datasets import spark_driver as d; d.{name}()"],
        input=json.dumps(about),
        capture_output=True,
        text=True,
        cwd=_REPOSITORY,
        timeout=900,
        check=False,
    )
    assert told.returncode == 0, told.stderr[-6000:]
    found: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    return found


def _python_without_us(directory: Path) -> Path:
    """An interpreter that has the libraries but not this package, as workers of others do."""
    path = directory / "python"
    places = [place for place in sys.path if place.endswith("site-packages")]
    libraries = os.pathsep.join(places)
    path.write_text(
        f'#!/bin/sh\nexport PYTHONPATH="{libraries}:$PYTHONPATH"\nexec {sys.executable} -S "$@"\n'
    )
    path.chmod(0o755)
    return path


class TestTwoMillionRows:
    """Upserted into forty files, of which each keeps half of its rows."""

    @pytest.mark.parametrize("name", ["plain", "failing", "slow", "killed"])
    def test_ends_in_the_right_rows(self, seen: dict[str, Any], name: str) -> None:
        found = {key: seen[name][key] for key in seen[name] if key not in ("ends", "left")}
        inserted = SOURCE - FILES * ROWS // 2
        assert found == {
            "counts": [inserted, FILES * ROWS // 2, 0],
            "rewritten": FILES,
            "rows": FILES * ROWS + inserted,
            "equal": True,
            "listed": True,
            "staging": [],
        }

    @pytest.mark.parametrize("name", ["failing", "slow", "killed"])
    def test_what_was_left_is_gone(self, seen: dict[str, Any], name: str) -> None:
        left = seen[name]["left"]
        assert left
        assert all(f"/{name}/.data.fsspeckit/.staging_" in path for path, _ in left)
        assert not any(exists for _, exists in left)

    def test_spark_says_which_phase_of_which_dataset_a_job_is(self, seen: dict[str, Any]) -> None:
        assert set(seen["plain"]["ends"]) >= _PHASES

    def test_nothing_fails_where_nothing_was_to_fail(self, seen: dict[str, Any]) -> None:
        """A task may be run twice here too, if the machine is slow; one of the two is ended."""
        ends = {end for ends in seen["plain"]["ends"].values() for end in ends}
        assert ends <= {"Success", "Success again", "TaskKilled", "TaskKilled again"}

    def test_tasks_of_every_phase_failed_first(self, seen: dict[str, Any]) -> None:
        ends = seen["failing"]["ends"]
        failed = {phase for phase in ends if ends[phase].get("ExceptionFailure", 0)}
        assert failed >= _PHASES
        rewriting = ends["rewrite files of"]
        # One that was slow as well may have been ended before it could fail.
        assert len(seen["failing"]["left"]) >= rewriting["ExceptionFailure"]
        assert rewriting["ExceptionFailure"] >= rewriting["Success"] // 2

    def test_a_task_was_slow_and_run_again(self, seen: dict[str, Any]) -> None:
        assert seen["slow"]["ends"]["rewrite files of"]["Success again"] >= 1

    def test_a_worker_was_lost_while_it_rewrote(self, seen: dict[str, Any]) -> None:
        assert seen["killed"]["ends"]["rewrite files of"]["ExecutorLostFailure"] == 1


class TestLittleMemory:
    """Limits are real: the kernel refuses a worker more addresses than Spark allows it.

    Minutes of work, because data must be larger than memory: FSSPECKIT_EXAMPLES=2 runs it.
    """

    __test__ = float(os.environ.get("FSSPECKIT_EXAMPLES", "1")) > 1

    def test_the_source_is_several_times_larger_than_an_executor(
        self, narrow: dict[str, Any]
    ) -> None:
        assert WIDE_SOURCE * spark_driver.WIDTH > 2.8 * 480 * 2**20
        inserted = WIDE_SOURCE - WIDE_ROWS
        assert narrow["counts"] == [inserted, WIDE_ROWS, 1]
        assert narrow["rows"] == narrow["distinct"] == 39 * SMALL_ROWS + WIDE_SOURCE

    def test_a_file_larger_than_a_workers_memory_changes_in_every_row(
        self, narrow: dict[str, Any]
    ) -> None:
        assert {tuple(limit) for limit in narrow["limits"]} == {(768 * 2**20,)}
        assert narrow["decoded"] > 1.5 * 768 * 2**20
        assert narrow["changed"] >= WIDE_ROWS

    def test_most_of_the_source_is_in_one_file_of_forty(self, narrow: dict[str, Any]) -> None:
        """Joined by Spark, and routed, because the source is in no order."""
        assert "match keys of" in narrow["phases"]
        assert "route rows to files of" in narrow["phases"]
