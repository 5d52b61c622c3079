"""A real cluster: executors that are lost, tasks that are slow or fail, a driver that holds little.

One driver, a process of its own, does everything below on one cluster, and tells what it saw.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from tests.datasets.spark_cluster import LOOPBACK, standalone_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_FILES = 40
_ROWS = 50_000
_REPOSITORY = Path(__file__).parents[2]
_SOURCE = "id bigint, v string, x double"


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What the driver tells about each of its merges."""
    directory = tmp_path_factory.mktemp("cluster")
    _write_target(directory / "target")
    with standalone_cluster(directory) as cluster:
        program = "from tests.datasets.test_spark_cluster import drive; drive()"
        told = subprocess.run(
            [sys.executable, "-c", program],
            input=json.dumps(
                {
                    "url": cluster.url,
                    "directory": str(directory),
                    "python": str(_python_without_us(directory)),
                    "worker": cluster.workers[0].pid,
                }
            ),
            capture_output=True,
            text=True,
            cwd=_REPOSITORY,
            timeout=900,
            check=False,
        )
    assert told.returncode == 0, told.stderr[-6000:]
    yield {**json.loads(told.stdout.splitlines()[-1]), "stderr": told.stderr}
    shutil.rmtree(directory, ignore_errors=True)


def _write_target(path: Path) -> None:
    path.mkdir()
    for number in range(_FILES):
        ids = pa.array(range(number * _ROWS, (number + 1) * _ROWS))
        values = {"id": ids, "v": pa.repeat("old", _ROWS), "x": ids.cast(pa.float64())}
        pq.write_table(pa.table(values), path / f"f{number:02}.parquet", row_group_size=_ROWS // 2)


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


class _Driver:
    """The driver's side: merges into copies of the target, and looks at what they hold then."""

    def __init__(self, told: dict[str, Any]) -> None:
        from pyspark.sql import SparkSession

        from fsspeckit.datasets.spark import SparkDatasetIO

        os.environ["PYSPARK_PYTHON"] = told["python"]
        self.directory = Path(told["directory"])
        self.worker = told["worker"]
        self.spark = (
            SparkSession.builder.master(told["url"])
            .config("spark.executor.memory", "1g")
            .config("spark.driver.maxResultSize", "8m")
            .config("spark.driver.host", LOOPBACK)
            .config("spark.driver.bindAddress", LOOPBACK)
            .config("spark.ui.enabled", "false")
            .config("spark.speculation", "true")
            .config("spark.speculation.multiplier", "3")
            .config("spark.speculation.quantile", "0.5")
            .config("spark.sql.shuffle.partitions", "4")
            .config("spark.log.level", "ERROR")
            .getOrCreate()
        )
        self.io = SparkDatasetIO(self.spark)

    def merge(self, name: str, source: Any, **options: Any) -> dict[str, Any]:
        path = self.directory / name / "data"
        shutil.copytree(self.directory / "target", path)
        result = self.io.merge(source, str(path), "upsert", ["id"], **options)
        rows = pq.read_table(path)
        new = rows.filter(pc.equal(rows["v"], "new"))
        # The next commit takes away what tasks may have left that nobody waited for.
        self.io.merge(rows.slice(0, 1).set_column(1, "v", [["again"]]), str(path), "update", ["id"])
        return {
            "counts": [result.inserted, result.updated, result.deleted],
            "rewritten": len(result.rewritten_files),
            "rows": rows.num_rows,
            "distinct": pc.count_distinct(rows["id"]).as_py(),
            "new": new.num_rows,
            "sum": pc.sum(new["id"]).as_py(),
            "listed": len(result.files) == len(list(path.glob("*.parquet"))),
            "staging": [str(left) for left in path.parent.glob(".*/.staging*")],
            "seconds": result.metrics["seconds"],
        }

    def numbers(self, start: int, end: int, partitions: int = 4) -> Any:
        frame = self.spark.range(start, end, 1, partitions)
        return frame.selectExpr("id", "'new' AS v", "double(id) AS x")


def drive() -> None:
    """Read where the cluster is, merge, and tell what came of it."""
    driver = _Driver(json.load(sys.stdin))
    told = {
        "large": driver.merge("large", driver.numbers(1_000_000, 3_000_000)),
        "fails first": driver.merge("fails", _mapped(driver, _failing_first())),
        "slow": driver.merge("slow", _mapped(driver, _slow_first(driver.directory))),
        "skewed": driver.merge("skewed", driver.numbers(0, 55_000)),
        "killed": _with_a_worker_killed(driver),
        "second attempt": (driver.directory / "second-attempt").exists(),
    }
    sys.stdout.write(f"\n{json.dumps(told)}\n")
    driver.spark.stop()


def _mapped(driver: _Driver, function: Callable[[Any], Any]) -> Any:
    return driver.numbers(1_900_000, 2_100_000).mapInArrow(function, _SOURCE)


def _failing_first() -> Callable[[Any], Any]:
    def pass_on(batches: Any) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        for number, batch in enumerate(batches):
            if context is not None and context.attemptNumber() == 0 and number == 1:
                raise OSError("the first attempt fails half-way")
            yield batch

    return pass_on


def _slow_first(directory: Path) -> Callable[[Any], Any]:
    """One partition is slow until another attempt at it has begun."""
    mark = str(directory / "second-attempt")

    def pass_on(batches: Any) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is not None and context.partitionId() == 0:
            if context.attemptNumber() > 0:
                Path(mark).touch()
            end = time.monotonic() + 60
            while not Path(mark).exists() and time.monotonic() < end:
                time.sleep(0.1)
        yield from batches

    return pass_on


def _with_a_worker_killed(driver: _Driver) -> dict[str, Any]:
    """Kill a worker as soon as the first file is being rewritten."""
    phases = threading.Event()
    killed: list[bool] = []

    def progress(phase: str, *_: int) -> None:
        if phase == "rewrite":
            phases.set()

    def kill() -> None:
        phases.wait(300)
        control = driver.directory / "killed"
        end = time.monotonic() + 60
        while not list(control.glob(".*/.staging*/part-*")) and time.monotonic() < end:
            time.sleep(0.005)
        os.kill(driver.worker, signal.SIGKILL)
        killed.append(True)

    thread = threading.Thread(target=kill)
    thread.start()
    found = driver.merge("killed", driver.numbers(1_000_000, 2_100_000), progress=progress)
    thread.join()
    return {**found, "killed": killed}


def _expected(start: int, end: int) -> dict[str, Any]:
    held = _FILES * _ROWS
    updated = min(end, held) - start
    inserted = max(end - held, 0)
    return {
        "counts": [inserted, updated, 0],
        "rewritten": -(-min(end, held) // _ROWS) - start // _ROWS,
        "rows": held + inserted,
        "distinct": held + inserted,
        "new": end - start,
        "sum": sum(range(start, end)),
        "listed": True,
        "staging": [],
    }


@pytest.mark.parametrize(
    ("name", "start", "end"),
    [
        ("large", 1_000_000, 3_000_000),
        ("fails first", 1_900_000, 2_100_000),
        ("slow", 1_900_000, 2_100_000),
        ("skewed", 0, 55_000),
        ("killed", 1_000_000, 2_100_000),
    ],
)
def test_an_upsert(seen: dict[str, Any], name: str, start: int, end: int) -> None:
    found = {key: value for key, value in seen[name].items() if key not in ("seconds", "killed")}
    assert found == _expected(start, end)


def test_what_was_to_happen_did_happen(seen: dict[str, Any]) -> None:
    assert seen["killed"]["killed"] == [True]
    assert seen["second attempt"]
