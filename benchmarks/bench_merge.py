"""What a merge on the PyArrow engine costs, against pyarrow rewriting the same files."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import Report, measure, median
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

if TYPE_CHECKING:
    from collections.abc import Callable

    from fsspeckit.core.merge import MergeResult

_PAYLOAD = 11


def main() -> None:
    """Run every shape and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the rows")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    report = Report(
        "merge",
        "Merges on PyArrow",
        "Upserts into files of 12 columns (a key, numbers and strings). Every round starts from a "
        "fresh copy of the dataset; fsync is on; the counters of every merge are checked.",
    )
    with tempfile.TemporaryDirectory() as scratch:
        for shape in (_spread, _one_file, _random_keys):
            shape(report, Path(scratch), arguments.scale, arguments.rounds)
        _memory(report, Path(scratch), arguments.scale)
    report.write()


class Workbench:
    """A dataset that is copied anew before each run."""

    def __init__(self, scratch: Path) -> None:
        self.original = scratch / "original"
        self.path = scratch / "dataset"
        shutil.rmtree(self.original, ignore_errors=True)
        self.original.mkdir()

    def fresh(self) -> None:
        """Start from the original files again."""
        shutil.rmtree(self.path, ignore_errors=True)
        shutil.rmtree(self.path.parent / f".{self.path.name}.fsspeckit", ignore_errors=True)
        # No merge changes a file in place.
        shutil.copytree(self.original, self.path, copy_function=os.link)
        os.sync()

    def add(self, number: int, keys: pa.Array) -> Path:
        """Write one file of the dataset."""
        path = self.original / f"part-{number:04d}.parquet"
        pq.write_table(_rows(keys, "old"), path)
        return path

    def merge(self, source: pa.Table, updated: int, inserted: int = 0) -> MergeResult:
        """Upsert and check the counters."""
        result = PyarrowDatasetIO().merge(source, str(self.path), "upsert", ["id"])
        assert (result.updated, result.inserted) == (updated, inserted), result
        return result


def _rows(keys: pa.Array, text: str) -> pa.Table:
    random = np.random.default_rng(len(keys))
    numbers = {f"n{i}": random.random(len(keys)) for i in range(_PAYLOAD - 3)}
    words = pa.array(np.char.add(f"{text} ", random.integers(0, 10_000, len(keys)).astype(str)))
    return pa.table({"id": keys, **numbers, "a": words, "b": words, "c": words})


def _rewrite(paths: list[Path]) -> None:
    """What the merge is compared with: read each file and write it again, with fsync."""
    for path in paths:
        out = path.with_suffix(".new")
        pq.write_table(pq.read_table(path), out)
        with out.open("rb") as written:
            os.fsync(written.fileno())
        out.unlink()


def _spread(report: Report, scratch: Path, scale: float, rounds: int) -> None:
    files, rows = 200, int(50_000 * scale)
    bench = Workbench(scratch)
    for number in range(files):
        bench.add(number, pa.array(np.arange(number * rows, (number + 1) * rows)))
    total = files * rows
    keys = np.random.default_rng(1).choice(total, total // 10, replace=False)
    source = _rows(pa.array(keys), "new")
    _compare(
        report,
        bench,
        f"{len(keys):,} keys, a random 10 %, into {files} files of {rows:,} rows",
        {
            "read and rewrite every file": lambda: _rewrite(sorted(bench.path.iterdir())),
            "merge": lambda: bench.merge(source, len(keys)),
        },
        3,
        min(rounds, 3),
    )


def _one_file(report: Report, scratch: Path, scale: float, rounds: int) -> None:
    files, rows = 16, int(250_000 * scale)
    bench = Workbench(scratch)
    for number in range(files):
        bench.add(number, pa.array(np.arange(number * rows, (number + 1) * rows)))
    keys = np.arange(5 * rows, 5 * rows + 100)
    source = _rows(pa.array(keys), "new")
    one = bench.path / "part-0005.parquet"
    _compare(
        report,
        bench,
        f"100 keys into one of {files} files of {rows:,} rows",
        {
            "read and rewrite that file": lambda: _rewrite([one]),
            "merge": lambda: bench.merge(source, 100),
        },
        2,
        rounds,
    )


def _random_keys(report: Report, scratch: Path, scale: float, rounds: int) -> None:
    files, rows = 16, int(250_000 * scale)
    bench = Workbench(scratch)
    random = np.random.default_rng(3)
    chosen = []
    for number in range(files):
        keys = [uuid.UUID(bytes=random.bytes(16)).hex for _ in range(rows)]
        bench.add(number, pa.array(keys))
        chosen.append(keys[0])
    hit = [*chosen[:4] * 25]
    keys = list(dict.fromkeys(hit)) + _more(bench, 96)
    source = _rows(pa.array(keys), "new")
    affected = sorted({result.name for result in _affected(bench, source)})

    def read_keys_and_rewrite() -> None:
        for path in sorted(bench.path.iterdir()):
            pq.read_table(path, columns=["id"])
        _rewrite([bench.path / name for name in affected])

    _compare(
        report,
        bench,
        f"100 random UUID keys in {len(affected)} of {files} files of {rows:,} rows",
        {
            "read the key column of all files and rewrite the affected ones": read_keys_and_rewrite,
            "merge": lambda: bench.merge(source, 100),
        },
        1.5,
        rounds,
    )


def _more(bench: Workbench, count: int) -> list[str]:
    """Other keys of the first four files."""
    keys: list[str] = []
    for path in sorted(bench.original.iterdir())[:4]:
        keys += pq.read_table(path, columns=["id"]).column("id")[1 : 1 + count // 4].to_pylist()
    return keys


def _affected(bench: Workbench, source: pa.Table) -> list[Path]:
    bench.fresh()
    return [Path(old) for old in bench.merge(source, 100).metrics["renamed"]]


def _compare(
    report: Report,
    bench: Workbench,
    heading: str,
    cases: dict[str, Callable[[], object]],
    at_most: float,
    rounds: int,
) -> None:
    seconds = measure(cases, rounds, prepare=bench.fresh)
    report.table(heading, seconds)
    peer, ours = (median(values) for values in seconds.values())
    report.claim("merge, in times of the other", ours / peer, at_most)
    report.note("")


def _memory(report: Report, scratch: Path, scale: float) -> None:
    """Peak memory of two merges, each in a process of its own, above its imports."""
    report.lines += ["## Peak memory above imports", ""]
    rows = int(3_000_000 * scale)
    bench = Workbench(scratch)
    keys = pa.array(np.arange(rows))
    pq.write_table(_rows(keys, "old"), bench.original / "part.parquet", row_group_size=rows // 20)
    bench.fresh()
    few = _peak(_TEN_KEYS, str(bench.path))
    report.claim(f"10 keys into a file of {rows:,} rows and 20 row groups", few, 300, " MB")
    stream = _peak(_STREAM, str(scratch / "streamed"), str(int(2_000 * scale)))
    report.claim(f"a source of {2 * scale:g} GB streamed into an empty dataset", stream, 600, " MB")


_PRELUDE = """
import sys
import numpy as np, pyarrow as pa, pyarrow.parquet as pq, pyarrow.dataset
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
def peak():  # of this process alone: getrusage also counts what the parent had
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))
"""

_TEN_KEYS = (
    _PRELUDE
    + """
from benchmarks.bench_merge import _rows
source = _rows(pa.array(np.arange(10)), "new")
before = peak()
result = PyarrowDatasetIO().merge(source, sys.argv[1], "upsert", ["id"])
assert result.updated == 10
print(peak() - before)
"""
)

_STREAM = (
    _PRELUDE
    + """
schema = pa.schema([("id", pa.int64()), *((f"n{i}", pa.float64()) for i in range(15))])
def batches(megabytes):
    rows = 8_000
    for number in range(megabytes):
        ids = np.arange(number * rows, (number + 1) * rows)
        values = [pa.array(ids)] + [pa.array(np.random.rand(rows)) for _ in range(15)]
        yield pa.record_batch(values, schema=schema)
reader = pa.RecordBatchReader.from_batches(schema, batches(int(sys.argv[2])))
before = peak()
result = PyarrowDatasetIO().merge(reader, sys.argv[1], "upsert", ["id"])
assert result.inserted == 8_000 * int(sys.argv[2])
print(peak() - before)
"""
)


def _peak(code: str, *arguments: str) -> float:
    command = [sys.executable, "-c", code, *arguments]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    main()
