"""How the cost of a merge grows with each dimension: rows, columns, files, row groups and so on.

With ``--large`` shapes far beyond the usual are merged into once, which must take reasonable time.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import LIMIT_MISSED, Report
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import TypeVar

    T = TypeVar("T")

FACTORS = (1, 4, 16)
MAX_EXPONENT = 1.15
"""Where a merge takes twice as long for twice the work, the exponent is 1."""


@dataclass(frozen=True)
class Table:
    """A dataset of consecutive keys, and how many of its rows a merge changes."""

    files: int = 1
    rows: int = 1_000
    """Rows of each file."""

    row_groups: int = 1
    """Row groups of each file."""

    columns: int = 8
    changed: int = 1
    """Rows of each file that change, evenly spread; of one file in all if ``one_file``."""

    one_file: bool = False
    partitioned: bool = False
    """Whether each file is the only one of a hive partition."""

    batches: int = 0
    """In how many batches the source is streamed; 0 for a table."""

    new: bool = False
    """Whether the rows of the source are new, beyond all others."""

    def write(self, directory: Path) -> None:
        """Write the files."""
        payload = _payload(self.rows, self.columns, 0.0)
        for number in range(self.files):
            keys = np.arange(number * self.rows, (number + 1) * self.rows)
            parent = directory / f"p={number:06}" if self.partitioned else directory
            parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(
                pa.table({"id": keys, **payload}),
                parent / f"part-{number:06}.parquet",
                row_group_size=max(1, self.rows // self.row_groups),
            )

    def source(self) -> Any:
        """Rows that exist, with other values than they have: a table, or a stream of batches."""
        inside = np.linspace(0, self.rows - 1, self.changed).astype(np.int64)
        files = [self.files // 2] if self.one_file else range(self.files)
        keys = np.concatenate([number * self.rows + inside for number in files])
        keys += self.files * self.rows if self.new else 0
        table = pa.table({"id": keys, **_payload(len(keys), self.columns, 1.0)})
        if self.partitioned:
            names = np.char.mod("%06d", keys // self.rows)
            table = table.append_column("p", pa.array(names))
        if not self.batches:
            return table
        size = max(1, len(keys) // self.batches)
        return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(size))


def _payload(rows: int, columns: int, add: float) -> dict[str, np.ndarray]:
    random = np.random.default_rng(5)
    return {f"c{number}": random.random(rows) + add for number in range(columns - 1)}


DIMENSIONS: Mapping[str, Callable[[int], Table]] = {
    "rows": lambda n: Table(rows=50_000 * n, row_groups=n, changed=500 * n),
    "rows of one row group": lambda n: Table(rows=50_000 * n, changed=500 * n),
    "columns": lambda n: Table(columns=100 * n, changed=10),
    "files, a row of each changed": lambda n: Table(files=25 * n, rows=100),
    "files, one changed": lambda n: Table(files=250 * n, rows=10, one_file=True),
    "row groups, a row of each changed": lambda n: Table(
        rows=2_000 * n, row_groups=20 * n, changed=20 * n
    ),
    "row groups, one changed": lambda n: Table(rows=2_000 * n, row_groups=200 * n),
    "source batches": lambda n: Table(rows=200_000, changed=1_000 * n, batches=1_000 * n),
    "source batches, all new": lambda n: Table(
        rows=200_000, changed=1_000 * n, batches=1_000 * n, new=True
    ),
    "partitions, a row of each changed": lambda n: Table(files=25 * n, rows=100, partitioned=True),
    "partitions, one changed": lambda n: Table(
        files=250 * n, rows=10, one_file=True, partitioned=True
    ),
}
"""What grows, as a table for each factor."""

LARGE: Mapping[str, Table] = {
    "5,000 columns": Table(columns=5_000, rows=2_000, row_groups=2, changed=10),
    "one row group of 5 million rows": Table(rows=5_000_000, changed=100),
    "10,000 partitions": Table(files=10_000, rows=10, one_file=True, partitioned=True),
    "10,000 partitions, a row of each changed": Table(files=10_000, rows=10, partitioned=True),
    "100,000 files": Table(files=100_000, rows=10, one_file=True),
}
_MAX_LARGE_SECONDS = 120.0


def main(
    arguments: list[str] | None = None,
    dimensions: Mapping[str, Callable[[int], Table]] = DIMENSIONS,
    max_exponent: float = MAX_EXPONENT,
) -> int:
    """Measure every dimension, write the page, and return `LIMIT_MISSED` if one grows too fast."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_growth", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of each size; the minimum counts")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORDS", help="parts of names")
    parser.add_argument("--large", action="store_true", help="merge into very large shapes, too")
    parser.add_argument("--no-page", action="store_true", help="print the figures, write no page")
    given = parser.parse_args(arguments)
    report = Report(
        "growth",
        "Growth",
        "The CPU time of a merge on PyArrow for 1, 4 and 16 times of each dimension, the minimum "
        "of several rounds in turns. An exponent is the slope on logarithmic axes: 1 where twice "
        "the work takes twice the time, 2 where it takes four times as long.",
    )
    with tempfile.TemporaryDirectory() as scratch:
        chosen = _chosen(dimensions, given.only)
        fast = list(_grow(report, Path(scratch), given.rounds, chosen, max_exponent))
        slow = list(_large(report, Path(scratch), given.only)) if given.large else []
    if given.no_page:
        print("\n".join(report.lines))
    else:
        report.write()
    for line in (*fast, *slow):
        print(line, file=sys.stderr)
    return LIMIT_MISSED if fast or slow else 0


def _grow(
    report: Report,
    scratch: Path,
    rounds: int,
    dimensions: Iterable[tuple[str, Callable[[int], Table]]],
    max_exponent: float,
) -> Iterator[str]:
    """Measure every dimension; yield those whose exponent is too large."""
    report.lines += [
        "| dimension | 1x | 4x | 16x | exponent, 1x to 16x | exponent, 4x to 16x | |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for name, table_of in dimensions:
        print(name, file=sys.stderr, flush=True)
        seconds = _cpu_seconds(scratch, [table_of(factor) for factor in FACTORS], rounds)
        slopes = [exponent(seconds, 0), exponent(seconds, 1)]
        held = max(slopes) <= max_exponent
        cells = [f"{one:.3f} s" for one in seconds] + [f"{slope:.2f}" for slope in slopes]
        verdict = "held" if held else "**missed**"
        report.lines.append(f"| {name} | {' | '.join(cells)} | {verdict} |")
        if not held:
            yield f"{name}: exponents {slopes[0]:.2f} and {slopes[1]:.2f}, over {max_exponent}"
    report.lines += ["", f"Exponents are at most {max_exponent}, or the line says **missed**.", ""]


def exponent(seconds: list[float], start: int) -> float:
    """The slope on logarithmic axes from one size to the last."""
    return math.log(seconds[-1] / seconds[start]) / math.log(FACTORS[-1] / FACTORS[start])


def _cpu_seconds(scratch: Path, tables: list[Table], rounds: int) -> list[float]:
    """The least CPU time of a merge into each table, measured in turns."""
    originals = []
    for number, table in enumerate(tables):
        originals.append(scratch / f"original-{number}")
        table.write(originals[-1])
    least = [math.inf] * len(tables)
    for _ in range(rounds):
        for number, table in enumerate(tables):
            least[number] = min(least[number], _merge(originals[number], table)[1])
    for original in originals:
        shutil.rmtree(original)
    return least


def _merge(original: Path, table: Table) -> tuple[float, float]:
    """Merge into a fresh copy; return the seconds on the clock and of the processor."""
    work = original.parent / "work"
    shutil.copytree(original, work / "table", copy_function=os.link)
    source = table.source()
    gc.collect()
    start, used = time.perf_counter(), time.process_time()
    result = PyarrowDatasetIO().merge(source, str(work / "table"), "upsert", ["id"])
    seconds, cpu = time.perf_counter() - start, time.process_time() - used
    count = table.changed * (1 if table.one_file else table.files)
    expected = (0, count) if table.new else (count, 0)
    assert (result.updated, result.inserted) == expected, result
    shutil.rmtree(work)
    return seconds, cpu


def _large(report: Report, scratch: Path, only: list[str]) -> Iterator[str]:
    """Merge into each large shape once; yield those that take too long."""
    report.lines += ["## Large shapes", "", "One merge each, without a warm-up.", ""]
    report.lines += ["| shape | time | CPU time |", "| --- | ---: | ---: |"]
    for name, table in _chosen(LARGE, only):
        print(name, file=sys.stderr, flush=True)
        table.write(scratch / "original")
        seconds, cpu = _merge(scratch / "original", table)
        shutil.rmtree(scratch / "original")
        report.lines.append(f"| {name} | {seconds:.1f} s | {cpu:.1f} s |")
        if seconds > _MAX_LARGE_SECONDS:
            yield f"{name}: {seconds:.0f} s, over {_MAX_LARGE_SECONDS:.0f} s"
    report.lines.append("")


def _chosen(named: Mapping[str, T], only: list[str]) -> list[tuple[str, T]]:
    return [(name, one) for name, one in named.items() if not only or any(w in name for w in only)]


if __name__ == "__main__":
    raise SystemExit(main())
