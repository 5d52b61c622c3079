"""What a merge on the Spark engine costs, in one warm session in local mode.

With ``--large`` one merge into so many gigabytes is run instead, on a cluster of two workers on the
loopback interface, and the peak memory of each process is written down.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import Report, measure, median
from benchmarks.spark_counts import count, start_workers
from fsspeckit.datasets.spark import SparkDatasetIO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fsspeckit.core.merge import MergeResult

_FILES = 16
_ROWS = 250_000


def main() -> None:
    """Run every shape and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the rows")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--large", type=float, metavar="GB", help="one merge into so much data")
    arguments = parser.parse_args()
    if arguments.large:
        _large(arguments.large)
        return
    report = Report(
        "spark",
        "Merges on Spark",
        "Upserts of data frames into files of a key, two numbers and a string, in one warm local "
        "session. Every round starts from a fresh copy of the dataset; fsync is on; the counters "
        "of every merge are checked.",
    )
    with tempfile.TemporaryDirectory() as scratch:
        bench = Workbench(Path(scratch), int(_ROWS * arguments.scale))
        bench.merge(bench.spread(100))  # warm
        _small(report, bench, arguments.rounds)
        _growing_source(report, bench, arguments.scale, arguments.rounds)
        _growing_target(report, bench, arguments.scale, arguments.rounds)
    report.write()


class Workbench:
    """A dataset that is copied anew before each run, and a session."""

    def __init__(self, scratch: Path, rows: int) -> None:
        self.io = SparkDatasetIO()
        self.rows = rows
        self.original = scratch / "original"
        self.path = scratch / "dataset"
        self.original.mkdir()
        self.add_files(0, _FILES)

    def add_files(self, start: int, end: int) -> None:
        """Write files of consecutive keys."""
        for number in range(start, end):
            ids = np.arange(number * self.rows, (number + 1) * self.rows)
            table = pa.table(
                {
                    "id": ids,
                    "amount": ids * 0.5,
                    "day": (ids % 365).astype(np.int32),
                    "note": pa.array((ids % 1000).astype(str)),
                }
            )
            pq.write_table(table, self.original / f"f{number:03}.parquet")

    def fresh(self) -> None:
        """Start from the original files again."""
        shutil.rmtree(self.path, ignore_errors=True)
        shutil.copytree(self.original, self.path, copy_function=os.link)

    def spread(self, count: int, files: int = _FILES) -> Any:
        """A frame of so many keys, spread over the first files, half of them new."""
        step = max(1, 2 * files * self.rows // count)
        frame = self.io.jobs.spark.range(0, 2 * files * self.rows, step, 4)
        half = f"CASE WHEN id < {files * self.rows} THEN id ELSE id + 1000000000 END"
        columns = ("-1.5D AS amount", "int(0) AS day", "'changed' AS note")
        return frame.selectExpr(f"{half} AS id", *columns)

    def clustered(self, count: int) -> Any:
        """A frame of so many keys at the end of the first file, half of them moved beyond all."""
        last = self.rows - 1
        frame = self.io.jobs.spark.range(last - count, last, 1, 2)
        key = f"CASE WHEN id % 2 = 0 THEN id ELSE id + {_FILES * self.rows} END AS id"
        return frame.selectExpr(key, "-1.5D AS amount", "int(0) AS day", "'changed' AS note")

    def merge(self, frame: Any, strategy: str = "upsert") -> MergeResult:
        """Merge into a fresh copy."""
        self.fresh()
        result = self.io.merge(frame, str(self.path), strategy, ["id"])
        assert strategy != "upsert" or result.inserted + result.updated == result.source_count
        return result


def _small(report: Report, bench: Workbench, rounds: int) -> None:
    frame = bench.spread(100)
    before = bench.io.jobs.actions
    results: list[MergeResult] = []
    seconds = measure({"100 rows": lambda: results.append(bench.merge(frame))}, rounds)
    actions = (bench.io.jobs.actions - before) / rounds
    report.table(f"100 rows into {_FILES} files of {bench.rows:,} rows", seconds)
    phases = results[-1].metrics["seconds"]
    report.lines += ["| phase | seconds |", "| --- | ---: |"]
    report.lines += [f"| {name} | {spent:.3f} |" for name, spent in phases.items()]
    report.lines.append("")
    report.claim("Spark actions", actions, 4, "")
    report.lines.append("")
    _counted(report, bench)


def _counted(report: Report, bench: Workbench) -> None:
    """What a merge of 100 rows starts in a session whose workers are alive."""
    spark = bench.io.jobs.spark
    start_workers(spark, spark.sparkContext.defaultParallelism)
    names = ("jobs", "stages", "tasks", "workers")
    report.lines += [
        "What a merge of 100 rows starts, in a session that has a Python worker for each core:",
        "",
        "| merge | jobs | stages | tasks | Python workers |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    frames = {"all in one file": bench.clustered(100), "spread over all": bench.spread(100)}
    for strategy in ("update", "upsert", "insert"):
        for where, frame in frames.items():
            found = count(spark, partial(bench.merge, frame, strategy))
            cells = " | ".join(str(getattr(found, name)) for name in names)
            report.lines.append(f"| {strategy}, {where} | {cells} |")
    report.lines.append("")


def _growing_source(report: Report, bench: Workbench, scale: float, rounds: int) -> None:
    few, many = (bench.spread(int(count * scale)) for count in (100_000, 1_000_000))
    seconds = measure(
        {
            "100 thousand rows": lambda: bench.merge(few),
            "1 million rows": lambda: bench.merge(many),
        },
        rounds,
    )
    report.table("A source ten times as large, the same 16 files", seconds)
    ratio = median(seconds["1 million rows"]) / median(seconds["100 thousand rows"])
    report.claim("ten times the rows", ratio, 4)
    report.lines.append("")


def _growing_target(report: Report, bench: Workbench, scale: float, rounds: int) -> None:
    frame = bench.spread(int(100_000 * scale))
    once = measure({"16 files": lambda: bench.merge(frame)}, rounds)
    bench.add_files(3 * _FILES, 4 * _FILES)
    twice = measure({"32 files": lambda: bench.merge(frame)}, rounds)
    report.table("A target twice as large, the same 16 files affected", {**once, **twice})
    ratio = median(twice["32 files"]) / median(once["16 files"])
    report.claim("twice the target", ratio, 1.2)
    report.lines.append("")


_LARGE_ROWS = 1_000_000
_LARGE_CHANGES = 40_000


def _large(gigabytes: float) -> None:
    """One upsert into many large files, a quarter of which it changes."""
    from tests.datasets.spark_cluster import standalone_cluster

    report = Report(
        "spark-large",
        "A large merge on Spark",
        "An upsert of a data frame in no order, on a standalone cluster of a master and two "
        "workers of one core each. A quarter of the files is changed. Memory is the most that was "
        "resident, as the kernel reports it (VmHWM).",
        module="bench_spark",
    )
    with tempfile.TemporaryDirectory() as scratch:
        start = time.perf_counter()
        files = _write_large(Path(scratch) / "dataset", gigabytes)
        size = sum(file.stat().st_size for file in files)
        generated = time.perf_counter() - start
        (Path(scratch) / "cluster").mkdir()
        with standalone_cluster(Path(scratch) / "cluster", memory="3g") as cluster:
            _merge_large(report, cluster.url, Path(scratch) / "dataset", len(files))
        report.note(
            f"The dataset: {size / 2**30:.1f} GB in {len(files)} files of {_LARGE_ROWS:,} rows, "
            f"generated in {generated:.0f} s."
        )
        report.claim("gigabytes short of 10", max(0.0, 10 - size / 2**30), 0, "")
    report.write()


def _write_large(path: Path, gigabytes: float) -> list[Path]:
    """Files of the same few random payloads under other keys, of some 100 MB each."""
    path.mkdir()
    payloads = [_payload(seed) for seed in range(2)]
    count = max(2, round(gigabytes * 2**30 / _bytes_of(payloads[0], path)))

    def write(number: int) -> Path:
        ids = pa.array(np.arange(number * _LARGE_ROWS, (number + 1) * _LARGE_ROWS))
        table = payloads[number % len(payloads)].add_column(0, "id", ids)
        file = path / f"f{number:04}.parquet"
        pq.write_table(table, file, row_group_size=_LARGE_ROWS // 8, use_dictionary=["kind"])
        return file

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(write, range(count)))


def _payload(seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    digits = random.integers(0, 16, _LARGE_ROWS * 120, np.uint8)
    text = np.frombuffer(b"0123456789abcdef", np.uint8)[digits]
    offsets = pa.array(np.arange(_LARGE_ROWS + 1, dtype=np.int32) * 120)
    notes = pa.StringArray.from_buffers(_LARGE_ROWS, offsets.buffers()[1], pa.py_buffer(text))
    return pa.table(
        {
            "amount": random.random(_LARGE_ROWS),
            "quantity": random.integers(0, 1000, _LARGE_ROWS),
            "kind": pa.array(random.integers(0, 20, _LARGE_ROWS).astype(str)),
            "note": notes,
        }
    )


def _bytes_of(payload: pa.Table, path: Path) -> int:
    """What a file of this payload takes on disk."""
    probe = path.parent / "probe.parquet"
    pq.write_table(payload, probe, use_dictionary=["kind"])
    size = probe.stat().st_size
    probe.unlink()
    return size


def _merge_large(report: Report, url: str, path: Path, files: int) -> None:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(url)
        .config("spark.executor.memory", "1g")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.shuffle.partitions", "8")
        .getOrCreate()
    )
    changed = files // 4
    total = changed * _LARGE_CHANGES
    # Every key once, in no order: the factor is a prime larger than the number of rows.
    keys = f"((id * 1000000007) % {total}) * {_LARGE_ROWS // _LARGE_CHANGES}"
    source = spark.range(0, total, 1, 8).selectExpr(
        f"CASE WHEN id % 10 = 0 THEN id + {files * _LARGE_ROWS} ELSE {keys} END AS id",
        "double(id) AS amount",
        "id AS quantity",
        "string(id % 20) AS kind",
        "repeat(sha2(string(id), 256), 2) AS note",
    )
    with _peaks() as peaks:
        start = time.perf_counter()
        result = SparkDatasetIO(spark).merge(source, str(path), "upsert", ["id"])
        seconds = time.perf_counter() - start
    spark.stop()
    assert result.inserted + result.updated == result.source_count == total
    report.note(
        f"{total:,} rows: {result.updated:,} updated and {result.inserted:,} inserted, "
        f"{len(result.rewritten_files)} of {files} files rewritten, in {seconds:.0f} s."
    )
    report.lines += ["| phase | seconds |", "| --- | ---: |"]
    report.lines += [f"| {n} | {s:.1f} |" for n, s in result.metrics["seconds"].items()]
    report.lines += ["", "| process | peak memory |", "| --- | ---: |"]
    report.lines += [f"| {name} | {kilobytes / 1024:,.0f} MB |" for name, kilobytes in peaks]
    report.lines.append("")


@contextmanager
def _peaks() -> Iterator[list[tuple[str, int]]]:
    """The peak memory of this process and of those below it, while something runs."""
    found: dict[int, tuple[str, int]] = {}
    told: list[tuple[str, int]] = []
    done = threading.Event()
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of what was before

    def watch() -> None:
        while not done.wait(0.2):
            found.update(_resident(os.getpid()))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield told
    finally:
        done.set()
        thread.join()
        counts: dict[str, int] = {}
        for name, kilobytes in sorted(found.values()):
            counts[name] = counts.get(name, 0) + 1
            told.append((f"{name} {counts[name]}", kilobytes))


_KINDS = {
    "CoarseGrainedExecutorBackend": "executor",
    "pyspark.daemon": "Python worker",
    "deploy.worker.Worker": "",
    "deploy.master.Master": "",
    "SparkSubmit": "driver, Java",
}


def _resident(top: int) -> dict[int, tuple[str, int]]:
    """What each process of Spark below this one is, and the most memory it has had."""
    parents: dict[int, int] = {}
    found: dict[int, tuple[str, int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().decode(errors="replace")
            lines = (entry / "status").read_text().splitlines()
        except OSError:
            continue  # it has ended meanwhile
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        pid = int(entry.name)
        parents[pid] = int(status["PPid"])
        kind = next((name for part, name in _KINDS.items() if part in command), "")
        if pid == top:
            kind = "driver, Python"
        if kind and "VmHWM" in status:
            found[pid] = (kind, int(status["VmHWM"].split()[0]))
    return {pid: told for pid, told in found.items() if _is_below(pid, top, parents)}


def _is_below(pid: int, top: int, parents: dict[int, int]) -> bool:
    while pid and pid != top:
        pid = parents.get(pid, 0)
    return pid == top


if __name__ == "__main__":
    main()
