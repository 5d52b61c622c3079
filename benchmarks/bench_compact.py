"""What a compaction costs: copies against ``cp``, peers, and merges that go on beside it."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from benchmarks.harness import Report, measure, median
from benchmarks.merging_beside import merging, read_logs
from benchmarks.peers.environments import PEERS, environment_of
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import PurePath

    from fsspeckit.datasets.pipeline import CompactResult

MAX_COPY_RATIO = 2.0
MAX_MERGE_RATIO = 1.5


@dataclass(frozen=True)
class Sizes:
    """How much is compacted."""

    large_files: int = 16
    large_rows: int = 250_000
    small_files: int = 1000
    small_rows: int = 1000
    writers: int = 4
    seconds: float = 20.0
    """How long merges are measured without a compaction beside them."""

    rounds: int = 3


QUICK = Sizes(4, 100_000, 100, 100, 2, 3.0, 2)


def write_files(root: PurePath, files: int, rows: int, *, is_wide: bool = True) -> None:
    """Files with ascending keys and numbers; if wide, with texts, too."""
    os.makedirs(root)
    draw = np.random.default_rng(0)
    for number in range(files):
        ids = np.arange(rows) + number * rows
        columns: dict[str, Any] = {"id": ids, "value": np.zeros(rows, np.int64)}
        columns |= {f"x{n}": draw.random(rows) for n in range(4)}
        if is_wide:
            columns["text"] = [f"customer {number}" for number in draw.integers(0, 5000, rows)]
        pq.write_table(pa.table(columns), f"{root}/part-{number:05}.parquet")


def _copy_all(source: PurePath, target: PurePath) -> None:
    """Copy a directory with ``cp``, and wait until that is on the disk."""
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["cp", "-r", source, target], check=True)
    for path in Path(target).iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def _compact_with_duckdb(source: PurePath, target: PurePath) -> None:
    with duckdb.connect() as connection:
        connection.execute("set preserve_insertion_order = true")
        connection.execute(f"copy (from '{source}/*.parquet') to '{target}'")


_DELTA = """
import shutil, sys, time
from deltalake import DeltaTable, convert_to_deltalake
source, path, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
for _ in range(rounds):
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(source, path)
    convert_to_deltalake(path)
    table, start = DeltaTable(path), time.perf_counter()
    table.optimize.compact(target_size=int(sys.argv[4]))
    print(time.perf_counter() - start)
"""


def _delta_seconds(place: Path, source: Path, rounds: int, target_bytes: int) -> list[float]:
    """Let delta-rs compact the same files, in the environment that it is installed in, if any."""
    python = environment_of(PEERS) / "bin" / "python"
    if not python.exists():
        return []
    arguments = [str(source), str(place / "delta"), str(rounds), str(target_bytes)]
    command = [str(python), "-c", _DELTA, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [float(line) for line in done.stdout.split()]


def _cases(place: Path, source: PurePath, target_bytes: int) -> dict[str, Callable[[], object]]:
    io = PyarrowDatasetIO()
    return {
        "`cp -r` and fsync": lambda: _copy_all(source, place / "copy"),
        "fsspeckit `compact`": lambda: io.compact(str(place / "ours"), target_bytes),
        "DuckDB `COPY`": lambda: _compact_with_duckdb(source, place / "duckdb.parquet"),
    }


def _fresh(place: Path, source: PurePath) -> None:
    """Make the dataset again that a round has compacted."""
    for name in ("ours", ".ours.fsspeckit"):
        shutil.rmtree(place / name, ignore_errors=True)
    shutil.copytree(source, place / "ours")
    os.sync()


def compare(report: Report, place: Path, heading: str, files: int, rows: int, rounds: int) -> float:
    """Compact a dataset into one file with each system; returns our time in times of ``cp``."""
    source = place / f"source-{files}"
    write_files(source, files, rows)
    spent = sum(path.stat().st_size for path in source.iterdir())
    seconds = measure(_cases(place, source, 2 * spent), rounds, lambda: _fresh(place, source))
    if delta := _delta_seconds(place, source, rounds, 2 * spent):
        seconds["delta-rs `optimize.compact`"] = delta
    report.table(f"{heading}: {files:,} files of {rows:,} rows, {spent / 1e6:,.0f} MB", seconds)
    least, ours, *_ = (median(values) for values in seconds.values())
    return ours / least


@dataclass(frozen=True)
class Beside:
    """What happened while merges and a compaction ran side by side."""

    result: CompactResult
    seconds: float
    """How long the compaction took."""

    before: list[float]
    """Seconds of each merge before the compaction."""

    during: list[float]
    """Seconds of each merge that began while it ran."""

    wrong_rows: int
    """Rows that are lost, there twice, or do not hold what was last merged."""

    written_twice: int
    """Files that a compaction wrote and then replaced again."""


def compact_beside_merges(place: Path, sizes: Sizes, files_per_bin: int = 25) -> Beside:
    """Compact many small files while processes merge into them, and check every row."""
    root = place / "beside"
    write_files(root, sizes.small_files, sizes.small_rows, is_wide=False)
    keys = sizes.small_files * sizes.small_rows
    target_bytes = files_per_bin * max(path.stat().st_size for path in root.iterdir())
    with merging(str(root), place / "logs", sizes.writers, keys):
        started = time.time()
        time.sleep(sizes.seconds)
        begun = time.time()
        result = PyarrowDatasetIO(lock_timeout=120.0).compact(str(root), target_bytes)
        ended = time.time()
    log = read_logs(place / "logs")
    before = [s for at, s in log.merges if started < at and at + s < begun]
    during = [s for at, s in log.merges if begun - s < at < ended]
    return Beside(
        result, ended - begun, before, during, _wrong_rows(root, keys, log.values), _twice(result)
    )


def _wrong_rows(root: Path, keys: int, values: dict[int, int]) -> int:
    found = ds.dataset(str(root)).to_table().sort_by("id")
    expected = np.zeros(keys, np.int64)
    expected[list(values)] = list(values.values())
    if found.num_rows != keys:
        return abs(found.num_rows - keys) or keys
    ids, held = found["id"].to_numpy(), found["value"].to_numpy()
    return int(((ids != np.arange(keys)) | (held != expected)).sum())


def _twice(result: CompactResult) -> int:
    new = {path for one in result.bins for path in one.new_files}
    return len(new & {path for one in result.bins for path in one.files})


def main(sizes: Sizes = Sizes()) -> None:  # noqa: B008 - frozen
    """Measure and write the page."""
    report = Report(
        "compact",
        "Compaction",
        "Files of a flat dataset become one. `cp` copies their bytes; delta-rs and DuckDB decode "
        "and encode every row, and DuckDB writes a file that nobody has committed. Each waits for "
        "the disk where it does by itself; `cp` is made to.",
    )
    place = Path(tempfile.mkdtemp())
    try:
        ratio = compare(
            report, place, "Copied as bytes", sizes.large_files, sizes.large_rows, sizes.rounds
        )
        report.claim("compaction by byte copies, in times of `cp`", ratio, MAX_COPY_RATIO)
        shutil.rmtree(place)
        place.mkdir()
        compare(
            report, place, "Encoded together", sizes.small_files, sizes.small_rows, sizes.rounds
        )
        shutil.rmtree(place)
        place.mkdir()
        _report_beside(report, compact_beside_merges(place, sizes), sizes)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    report.write()


def _report_beside(report: Report, found: Beside, sizes: Sizes) -> None:
    report.table(
        f"Merges of {sizes.writers} processes beside a compaction of {sizes.small_files:,} files",
        {"merges before": found.before, "merges meanwhile": found.during},
    )
    done = sum(len(one.files) for one in found.result.bins)
    left = sum(len(one.files) for one in found.result.given_up)
    report.lines += [
        f"The compaction took {found.seconds:.1f} s. It made {len(found.result.bins)} files of "
        f"{done}, and gave up {left} because of {len(found.during)} merges meanwhile.",
        "",
    ]
    report.claim("rows lost, doubled or wrong", found.wrong_rows, 0, " rows")
    report.claim("files that were written twice", found.written_twice, 0, " files")
    ratio = median(found.during) / median(found.before)
    report.claim("median merge beside a compaction", ratio, MAX_MERGE_RATIO)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tiny form, to see that it runs")
    main(QUICK if parser.parse_args().quick else Sizes())
