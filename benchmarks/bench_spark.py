"""What a merge on the Spark engine costs, in one warm session in local mode."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import Report, measure, median
from fsspeckit.datasets.spark import SparkDatasetIO

if TYPE_CHECKING:
    from fsspeckit.core.merge import MergeResult

_FILES = 16
_ROWS = 250_000


def main() -> None:
    """Run every shape and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the rows")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
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

    def merge(self, frame: Any) -> MergeResult:
        """Merge into a fresh copy."""
        self.fresh()
        result = self.io.merge(frame, str(self.path), "upsert", ["id"])
        assert result.inserted + result.updated == result.source_count
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


if __name__ == "__main__":
    main()
