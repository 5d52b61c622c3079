"""Drivers on a cluster, each a process of its own: they merge, and tell in JSON what they saw.

What went wrong on the way is told by Spark's own log of events, not by those who made it go wrong.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tests.datasets.spark_cluster import LOOPBACK, lose_power

if TYPE_CHECKING:
    from tests.datasets.spark_faults import Fault

FILES = 40
ROWS = 50_000
SOURCE = 2_000_000

# The worker of Spark needs 400 MB of addresses before it does anything.
WORKER_MEMORY = "768m"
EXECUTOR_MEMORY = "480m"
SMALL_ROWS = 200
WIDE_SOURCE = 350_000
WIDE_ROWS = WIDE_SOURCE * 9 // 10
WIDE_GROUP = 5000
WIDTH = 4096

_DESCRIPTION = re.compile(r"fsspeckit \w{8}: (.+) (/.+)/data")


def write_numbers(path: Path) -> None:
    """Files of the numbers below two million, in their order."""
    path.mkdir()
    for number in range(FILES):
        ids = np.arange(number * ROWS, (number + 1) * ROWS)
        table = pa.table({"id": ids, "v": pa.repeat("old", ROWS), "x": ids.astype(float)})
        pq.write_table(table, path / f"f{number:02}.parquet", row_group_size=ROWS // 2)


def merged_numbers() -> pa.Table:
    """What they are when all even numbers below four million are upserted."""
    held = np.arange(FILES * ROWS)
    ids = np.concatenate([held, np.arange(len(held), 2 * SOURCE, 2)])
    is_new = pa.array(ids % 2 == 0)
    values = pc.if_else(is_new, "new", "old")
    return pa.table({"id": ids, "v": values, "x": pc.if_else(is_new, -ids, ids).cast(pa.float64())})


class Driver:
    """A session on the cluster, and an engine on it."""

    def __init__(self, told: dict[str, Any], **settings: str) -> None:
        from pyspark.sql import SparkSession
        from tests.datasets.spark_faults import FaultyJobs

        from fsspeckit.datasets.base import DatasetIO
        from fsspeckit.datasets.spark import SparkDatasetIO, SparkLimits
        from fsspeckit.datasets.spark.engine import SparkEngine

        os.environ["PYSPARK_PYTHON"] = told["python"]
        self.directory = Path(told["directory"])
        self.workers: list[int] = told["workers"]
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
            "spark.executor.memory": "1g",
            "spark.sql.shuffle.partitions": "4",
            "spark.log.level": "ERROR",
            **settings,
        }
        builder = SparkSession.builder.master(told["url"])
        for name, value in every.items():
            builder = builder.config(name, value)
        self.spark = builder.getOrCreate()
        self.io = SparkDatasetIO(self.spark)
        self.jobs = FaultyJobs(self.spark)
        # Tasks resolve the keys, although the driver could hold these numbers.
        limits = SparkLimits(driver_max_source_files=0)
        DatasetIO.__init__(self.io, SparkEngine(self.jobs, limits=limits))

    def merge(self, name: str, fault: Fault | None = None) -> dict[str, Any]:
        """Upsert two million rows into a copy of the forty files."""
        path = self.directory / name / "data"
        shutil.copytree(self.directory / "target", path)
        frame = self.spark.range(0, 2 * SOURCE, 2, 4)
        source = frame.selectExpr("id", "'new' AS v", "double(-id) AS x")
        self.jobs.fault = fault
        result = self.io.merge(source, str(path), "upsert", ["id"])
        self.jobs.fault = None
        rows = pq.read_table(path)
        names = sorted(file.name for file in path.iterdir())
        # The next commit takes away what tasks may have left that nobody waited for.
        self.io.merge(rows.slice(0, 1).set_column(1, "v", [["again"]]), str(path), "update", ["id"])
        return {
            "counts": [result.inserted, result.updated, result.deleted],
            "rewritten": len(result.rewritten_files),
            "rows": rows.num_rows,
            "equal": rows.sort_by("id").equals(merged_numbers()),
            "listed": sorted(Path(file.path).name for file in result.files) == names,
            "staging": [str(left) for left in path.parent.glob(".*/.staging*")],
        }

    def scratch(self, name: str) -> str:
        """A new directory for the notes of a fault."""
        path = self.directory / name / "notes"
        path.mkdir(parents=True)
        return str(path)

    def stop(self) -> dict[str, dict[str, dict[str, int]]]:
        """End the session; give how Spark's tasks ended, by dataset and phase."""
        self.spark.stop()
        texts = [log.read_text() for log in self.events.rglob("events_*")]
        return _ends([json.loads(line) for text in texts for line in text.splitlines()])


def _ends(events: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, int]]]:
    phases: dict[int, tuple[str, str]] = {}
    ends: dict[str, dict[str, dict[str, int]]] = {}
    for event in events:
        if event["Event"] == "SparkListenerStageSubmitted":
            said = str(event["Properties"].get("spark.job.description"))
            if found := _DESCRIPTION.fullmatch(said):
                phases[event["Stage Info"]["Stage ID"]] = (Path(found[2]).name, found[1])
        elif event["Event"] == "SparkListenerTaskEnd" and event["Stage ID"] in phases:
            dataset, phase = phases[event["Stage ID"]]
            counts = ends.setdefault(dataset, {}).setdefault(phase, Counter())
            again = " again" if event["Task Info"]["Speculative"] else ""
            counts[event["Task End Reason"]["Reason"] + again] += 1
    return ends


def drive() -> None:
    """Merge while tasks fail, are slow, and are lost; the last merge takes a worker away."""
    from pyspark import cloudpickle
    from tests.datasets import spark_faults

    # Workers have neither this package nor its tests: one is sent to them, the other goes along.
    cloudpickle.register_pickle_by_value(spark_faults)  # type: ignore[no-untyped-call]
    driver = Driver(
        json.load(sys.stdin),
        **{
            "spark.speculation": "true",
            "spark.speculation.multiplier": "3",
            "spark.speculation.quantile": "0.5",
            "spark.speculation.minTaskRuntime": "2s",
        },
    )
    found = {"plain": driver.merge("plain")}
    notes = Path(driver.scratch("failing"))
    found["failing"] = driver.merge("failing", spark_faults.FailFirst(str(notes)))
    found["failing"]["left"] = (notes / "left").read_text().splitlines()
    notes = Path(driver.scratch("slow"))
    found["slow"] = driver.merge("slow", spark_faults.HangOnce(str(notes)))
    found["slow"]["left"] = [json.loads((notes / "hangs").read_text())["file"]]
    found["killed"] = _merge_and_kill(driver)
    ends = driver.stop()
    for name, one in found.items():
        one["ends"] = ends[name]
        one["left"] = [[path, Path(path).exists()] for path in one.get("left", ())]
    sys.stdout.write(f"\n{json.dumps(found)}\n")


def _merge_and_kill(driver: Driver) -> dict[str, Any]:
    """Take a machine away while a task on it has half a file."""
    from tests.datasets.spark_faults import HangOnce

    notes = Path(driver.scratch("killed"))
    left: list[str] = []

    def kill() -> None:
        end = time.monotonic() + 300
        while not (notes / "hangs").exists():
            if time.monotonic() > end:
                return
            time.sleep(0.01)
        note = json.loads((notes / "hangs").read_text())
        os.truncate(note["file"], os.path.getsize(note["file"]) // 2)
        lose_power(driver.workers, note["process"])
        left.append(note["file"])

    thread = threading.Thread(target=kill)
    thread.start()
    found = driver.merge("killed", HangOnce(str(notes)))
    thread.join()
    return {**found, "left": left}


def wide(start: int, end: int) -> pa.Table:
    """Rows of four kilobytes each."""
    ids = pa.array(range(start, end), pa.int64())
    text = pc.binary_repeat(pc.utf8_lpad(ids.cast(pa.string()), 16, "."), WIDTH // 16)
    return pa.table({"id": ids, "v": text})


def write_wide(path: Path) -> None:
    """Forty files, of which the last is as large as nine tenths of the source."""
    path.mkdir(parents=True)
    for number in range(FILES):
        rows = WIDE_ROWS if number == FILES - 1 else SMALL_ROWS
        start = number * SMALL_ROWS
        with pq.ParquetWriter(path / f"f{number:02}.parquet", wide(0, 0).schema) as writer:
            for first in range(start, start + rows, WIDE_GROUP):
                writer.write_table(wide(first, min(first + WIDE_GROUP, start + rows)))


def drive_narrow() -> None:
    """Merge a source that is larger than the memory of everybody into a file that is, too."""
    driver = Driver(
        json.load(sys.stdin),
        **{
            "spark.executor.memory": EXECUTOR_MEMORY,
            "spark.executor.pyspark.memory": WORKER_MEMORY,
            # Others ask for more addresses than they use, and addresses are what is limited.
            "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
            "spark.executorEnv.MALLOC_ARENA_MAX": "1",
            "spark.executorEnv.OPENBLAS_NUM_THREADS": "1",
        },
    )
    path = driver.directory / "wide" / "data"
    large = FILES - 1
    old = pq.ParquetFile(path / f"f{large:02}.parquet").metadata
    decoded = sum(old.row_group(n).total_byte_size for n in range(old.num_row_groups))
    # Every key once, in no order: 7919 has no divisor in common with the number of rows.
    first = large * SMALL_ROWS
    source = driver.spark.range(0, WIDE_SOURCE, 1, 8).selectExpr(
        f"(id * 7919) % {WIDE_SOURCE} + {first} AS id",
        f"repeat(lpad(string(id), 16, '-'), {WIDTH // 16}) AS v",
    )
    result = driver.io.merge(source, str(path), "upsert", ["id"])
    ids, changed = [], 0
    for file in sorted(path.glob("*.parquet")):
        for batch in pq.ParquetFile(file).iter_batches(WIDE_GROUP):
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
    found["phases"] = list(driver.stop()["wide"])
    sys.stdout.write(f"\n{json.dumps(found)}\n")


def _limits(batches: Any) -> Any:
    import resource

    for _ in batches:
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        yield pa.RecordBatch.from_pydict({"limit": [limit]})
