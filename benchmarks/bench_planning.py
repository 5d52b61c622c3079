"""What planning costs, against reading the same footers with pyarrow."""

from __future__ import annotations

import argparse
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import Report, measure, median
from fsspeckit.core.keys.source import source_keys
from fsspeckit.core.planning.plan import plan_files
from fsspeckit.core.planning.pruning import prune
from fsspeckit.core.planning.target import read_target
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.storage.listing import list_files
from fsspeckit.storage.roots import open_root
from fsspeckit.storage.storage import open_storage

if TYPE_CHECKING:
    from fsspeckit.core.planning.plan import MergePlan
    from fsspeckit.core.planning.target import Target

_COLUMNS = 12
_ROUNDS = 5


def main() -> None:
    """Run both shapes and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000, help="files of the many-files shape")
    parser.add_argument("--keys", type=int, default=1_000_000, help="keys of the many-keys shape")
    arguments = parser.parse_args()
    report = Report(
        "planning", "Planning", "Which files may hold a source key, from footers alone."
    )
    with tempfile.TemporaryDirectory() as scratch:
        _many_files(report, Path(scratch) / "files", arguments.files)
        _second_merge(report, Path(scratch) / "files", arguments.files)
        _many_keys(report, Path(scratch) / "keys", arguments.keys)
    report.write()


def _many_files(report: Report, directory: Path, count: int) -> None:
    _write_dataset(directory, count, rows=20, row_groups=1)
    source = pa.table({"id": np.linspace(0, count * 20 - 1, 10).astype(np.int64)})
    plan = _plan(str(directory), source)
    assert len(plan.with_decision("candidate")) == 10, "ten keys lie in ten files"
    seconds = measure(
        {
            "footers by pyarrow in a thread pool": lambda: _pyarrow_footers(directory),
            "plan of 10 keys": lambda: _plan(str(directory), source),
        }
    )
    report.table(f"10 keys against {count:,} files", seconds)
    footers, planning = (median(values) for values in seconds.values())
    report.claim("planning, in times of reading the footers", planning / footers, 3)
    report.note("")


def _second_merge(report: Report, directory: Path, count: int) -> None:
    """The first merge leaves summaries of the footers; the second one reads them instead."""
    seconds: dict[str, list[float]] = {"first merge": [], "second merge": []}
    place = open_storage(directory).control.footers
    for number in range(_ROUNDS):
        Path(place).unlink(missing_ok=True)
        for case, which in (("first merge", 0), ("second merge", 1)):
            source = _changes(count, number * 2 + which)
            result = PyarrowDatasetIO().merge(source, str(directory), "upsert", ["id"])
            assert result.updated == source.num_rows, result
            seconds[case].append(result.metrics["seconds"]["plan"])
    report.table(f"Planning of two merges of 10 keys into {count:,} files", seconds)
    first, second = (median(values) for values in seconds.values())
    report.claim("planning the second merge, in times of the first", second / first, 0.2)
    report.note("")


def _changes(count: int, version: int) -> pa.Table:
    """Ten rows that exist, with other values than they have."""
    keys = np.linspace(0, count * 20 - 1, 10).astype(np.int64)
    columns = {f"c{number}": np.full(10, float(version)) for number in range(_COLUMNS - 1)}
    return pa.table({"id": keys, **columns})


def _many_keys(report: Report, directory: Path, count: int) -> None:
    files, row_groups, rows = 200, 20, 50
    _write_dataset(directory, files, rows, row_groups)
    random = np.random.default_rng(7)
    source = pa.table({"id": random.integers(0, files * rows * row_groups, count)})
    target = _target(str(directory), source)
    keys = source_keys(source, target)
    seconds = measure(
        {
            "footers by pyarrow in a thread pool": lambda: _pyarrow_footers(directory),
            f"pruning {count:,} keys": lambda: prune(
                target.root, target.footers, keys.keys, target.key_columns, {}
            ),
        }
    )
    report.table(f"{count:,} keys against {files} files of {row_groups} row groups", seconds)
    footers, pruning = (median(values) for values in seconds.values())
    report.claim("pruning, in times of reading the footers", pruning / footers, 1)


def _write_dataset(directory: Path, files: int, rows: int, row_groups: int) -> None:
    """Files whose key ranges follow each other."""
    directory.mkdir()
    total = rows * row_groups
    payload = {f"c{i}": np.random.default_rng(i).random(total) for i in range(_COLUMNS - 1)}
    for number in range(files):
        keys = np.arange(number * total, (number + 1) * total)
        pq.write_table(
            pa.table({"id": keys, **payload}),
            directory / f"part-{number:05d}.parquet",
            row_group_size=rows,
        )


def _pyarrow_footers(directory: Path) -> list[pq.FileMetaData]:
    with ThreadPoolExecutor() as pool:
        return list(pool.map(pq.read_metadata, sorted(directory.iterdir())))


def _target(path: str, source: pa.Table) -> Target:
    root = open_root(path)
    return read_target(root, list_files(root).files, ["id"], source.schema)


def _plan(path: str, source: pa.Table) -> MergePlan:
    target = _target(path, source)
    return plan_files(target, source_keys(source, target), "upsert")


if __name__ == "__main__":
    main()
