"""A real cluster whose executors and workers have little memory.

The driver, a process of its own, tells what it saw.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from tests.datasets.spark_cluster import LOOPBACK, standalone_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_FILES = 40
_REPOSITORY = Path(__file__).parents[2]

# The worker of Spark needs 400 MB of addresses before it does anything.
_WORKER_MEMORY = "768m"
_EXECUTOR_MEMORY = "480m"
_SMALL_ROWS = 200
_WIDE_SOURCE = 350_000
_WIDE_ROWS = _WIDE_SOURCE * 9 // 10
_WIDE_GROUP = 5000
_WIDTH = 4096


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Where a cluster is, for drivers."""
    directory = tmp_path_factory.mktemp("cluster")
    with standalone_cluster(directory) as started:
        yield {
            "url": started.url,
            "directory": str(directory),
            "python": str(_python_without_us(directory)),
        }
    shutil.rmtree(directory, ignore_errors=True)


def _driven(cluster: dict[str, Any], name: str) -> dict[str, Any]:
    """Run a driver of this module and give what it tells."""
    program = f"from tests.datasets.test_spark_memory import {name}; {name}()"
    told = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(cluster),
        capture_output=True,
        text=True,
        cwd=_REPOSITORY,
        timeout=900,
        check=False,
    )
    assert told.returncode == 0, told.stderr[-6000:]
    found: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def narrow(cluster: dict[str, Any]) -> dict[str, Any]:
    """What the driver tells whose executors and workers have little memory."""
    path = Path(cluster["directory"]) / "wide" / "data"
    path.mkdir(parents=True)
    for number in range(_FILES):
        rows = _WIDE_ROWS if number == _FILES - 1 else _SMALL_ROWS
        start = number * _SMALL_ROWS
        with pq.ParquetWriter(path / f"f{number:02}.parquet", _wide(0, 0).schema) as writer:
            for first in range(start, start + rows, _WIDE_GROUP):
                writer.write_table(_wide(first, min(first + _WIDE_GROUP, start + rows)))
    return _driven(cluster, "drive_narrow")


def _wide(start: int, end: int) -> pa.Table:
    """Rows of four kilobytes each."""
    ids = pa.array(range(start, end), pa.int64())
    text = pc.binary_repeat(pc.utf8_lpad(ids.cast(pa.string()), 16, "."), _WIDTH // 16)
    return pa.table({"id": ids, "v": text})


def _python_without_us(directory: Path) -> Path:
    """An interpreter that has the libraries but not this package, as workers of others do."""
    path = directory / "python"
    places = [place for place in sys.path if place.endswith("site-packages")]
    libraries = os.pathsep.join([*places, str(_REPOSITORY)])
    path.write_text(
        f'#!/bin/sh\nexport PYTHONPATH="{libraries}:$PYTHONPATH"\nexec {sys.executable} -S "$@"\n'
    )
    path.chmod(0o755)
    return path


class _Driver:
    """The driver's side."""

    def __init__(self, told: dict[str, Any], **settings: str) -> None:
        from pyspark.sql import SparkSession

        from fsspeckit.datasets.spark import SparkDatasetIO

        os.environ["PYSPARK_PYTHON"] = told["python"]
        self.directory = Path(told["directory"])
        self.events = self.directory / f"events-{os.getpid()}"
        self.events.mkdir()
        every = {
            "spark.driver.maxResultSize": "8m",
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.ui.enabled": "false",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": str(self.events),
            "spark.sql.shuffle.partitions": "4",
            "spark.log.level": "ERROR",
            **settings,
        }
        builder = SparkSession.builder.master(told["url"])
        for name, value in every.items():
            builder = builder.config(name, value)
        self.spark = builder.getOrCreate()
        self.io = SparkDatasetIO(self.spark)

    def stop(self) -> list[str]:
        """End the session, and tell what Spark's own pages say about the jobs that have run."""
        self.spark.stop()
        texts = [log.read_text() for log in self.events.rglob("events_*")]
        events = [json.loads(line) for text in texts for line in text.splitlines()]
        started = [e for e in events if e["Event"] == "SparkListenerJobStart"]
        return [str(e["Properties"].get("spark.job.description")) for e in started]


def drive_narrow() -> None:
    """Merge a source that is larger than the memory of everybody into a file that is, too."""
    driver = _Driver(
        json.load(sys.stdin),
        **{
            "spark.executor.memory": _EXECUTOR_MEMORY,
            "spark.executor.pyspark.memory": _WORKER_MEMORY,
            # Others ask for more addresses than they use, and addresses are what is limited.
            "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
            "spark.executorEnv.MALLOC_ARENA_MAX": "1",
            "spark.executorEnv.OPENBLAS_NUM_THREADS": "1",
        },
    )
    path = driver.directory / "wide" / "data"
    large = _FILES - 1
    old = pq.ParquetFile(path / f"f{large:02}.parquet").metadata
    decoded = sum(old.row_group(n).total_byte_size for n in range(old.num_row_groups))
    # Every key once, in no order: 7919 has no divisor in common with the number of rows.
    first = large * _SMALL_ROWS
    source = driver.spark.range(0, _WIDE_SOURCE, 1, 8).selectExpr(
        f"(id * 7919) % {_WIDE_SOURCE} + {first} AS id",
        f"repeat(lpad(string(id), 16, '-'), {_WIDTH // 16}) AS v",
    )
    result = driver.io.merge(source, str(path), "upsert", ["id"])
    ids, changed = [], 0
    for file in sorted(path.glob("*.parquet")):
        for batch in pq.ParquetFile(file).iter_batches(_WIDE_GROUP):
            ids.append(batch.column("id"))
            changed += pc.sum(pc.starts_with(batch.column("v"), "-"), min_count=0).as_py()
    found = {
        "decoded": decoded,
        "counts": [result.inserted, result.updated, len(result.rewritten_files)],
        "distinct": pc.count_distinct(pa.chunked_array(ids)).as_py(),
        "rows": sum(map(len, ids)),
        "changed": changed,
        "limits": driver.spark.range(0, 2, 1, 2).mapInArrow(_limits, "limit bigint").collect(),
    }
    found["phases"] = [text.split(": ")[-1].split(" /")[0] for text in driver.stop()]
    sys.stdout.write(f"\n{json.dumps(found)}\n")


def _limits(batches: Any) -> Any:
    import resource

    for _ in batches:
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        yield pa.RecordBatch.from_pydict({"limit": [limit]})


class TestLittleMemory:
    """Limits are real: the kernel refuses a worker more addresses than Spark allows it."""

    def test_the_source_is_several_times_larger_than_an_executor(
        self, narrow: dict[str, Any]
    ) -> None:
        assert _WIDE_SOURCE * _WIDTH > 2.8 * 480 * 2**20
        inserted = _WIDE_SOURCE - _WIDE_ROWS
        assert narrow["counts"] == [inserted, _WIDE_ROWS, 1]
        assert narrow["rows"] == narrow["distinct"] == 39 * _SMALL_ROWS + _WIDE_SOURCE

    def test_a_file_larger_than_a_workers_memory_changes_in_every_row(
        self, narrow: dict[str, Any]
    ) -> None:
        assert {tuple(limit) for limit in narrow["limits"]} == {(768 * 2**20,)}
        assert narrow["decoded"] > 1.5 * 768 * 2**20
        assert narrow["changed"] >= _WIDE_ROWS

    def test_most_of_the_source_is_in_one_file_of_forty(self, narrow: dict[str, Any]) -> None:
        """Joined by Spark, and routed, because the source is in no order."""
        assert "match keys of" in narrow["phases"]
        assert "route rows to files of" in narrow["phases"]
