"""What writing one file anew costs, against pyarrow, DuckDB and a plain copy of the file."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import Report, measure, median
from fsspeckit.core.rewrite import Replacement, Rewritten, rewrite
from fsspeckit.storage.roots import open_root

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_GROUPS = 20
_GROUP_ROWS = 130_000
_CHANGED = ("f3", "s1")


@dataclass(frozen=True)
class Case:
    """Which rows change, and what is asked of the time it takes."""

    name: str
    groups: int
    """In how many row groups one row changes."""

    columns: tuple[str, ...] | None
    """The columns that change; None for all but the key."""

    pyarrow: float
    duckdb: float | None = None
    copy: float | None = None
    """At most this much of the time that each of them takes."""


CASES = (
    Case("1 row", 1, None, 1 / 8, 1 / 4, 4),
    Case("1 row in each of 5 row groups", 5, None, 1 / 3, 1 / 1.5),
    Case("1 row in each of 20 row groups, 2 of 16 columns", 20, _CHANGED, 1 / 4, 1 / 1.5),
    Case("1 row in each of 20 row groups, all columns", 20, None, 1.1),
)


def main() -> None:
    """Run every case and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the rows")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    rows = max(1, int(_GROUP_ROWS * arguments.scale))
    report = Report(
        "splice",
        "Surgical rewrite of one file",
        f"A file of 16 columns and {_GROUPS} row groups of {rows:,} rows, sorted by its key. Each "
        "method finds the rows by their keys and writes a new file, without fsync, from a warm "
        "cache. pyarrow streams row group by row group, which is the fastest it can do.",
    )
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(Path(scratch), rows)
        report.note(f"The file has {os.path.getsize(bench.path) / 1e6:.0f} MB.")
        for case in CASES:
            _compare(report, bench, case, arguments.rounds)
        _memory(report, bench)
    report.write()


class Bench:
    """The file, and every way to change it."""

    def __init__(self, scratch: Path, group_rows: int) -> None:
        self.path = scratch / "old.parquet"
        self.new = scratch / "new.parquet"
        self.group_rows = group_rows
        if not self.path.exists():
            pq.write_table(example(_GROUPS * group_rows), self.path, row_group_size=group_rows)

    def source(self, case: Case) -> pa.Table:
        """The rows that replace others."""
        keys = [number * self.group_rows + 17 for number in range(case.groups)]
        with pq.ParquetFile(self.path) as file:
            parts = [file.read_row_group(n).slice(17, 1) for n in range(case.groups)]
        rows = pa.concat_tables(parts)
        assert rows.column("id").to_pylist() == keys
        for number, name in enumerate(rows.column_names):
            if name != "id" and (case.columns is None or name in case.columns):
                rows = rows.set_column(number, name, _other(rows.column(number)))
        return rows

    def splice(self, source: pa.Table) -> Rewritten:
        """This library: find the positions, then rewrite."""
        positions = _positions(self.path, np.asarray(source.column("id")))
        return rewrite(
            open_root(self.path.parent),
            str(self.path),
            Replacement(positions, np.arange(len(positions))),
            lambda numbers: source.take(pa.array(numbers)),
            str(self.new),
            key_columns=["id"],
        )

    def pyarrow(self, source: pa.Table) -> None:
        """Decode and encode every row group, replacing rows on the way."""
        positions = _positions(self.path, np.asarray(source.column("id")))
        with (
            pq.ParquetFile(self.path) as file,
            pq.ParquetWriter(self.new, file.schema_arrow) as writer,
        ):
            start = 0
            for number in range(file.num_row_groups):
                table = file.read_row_group(number)
                end = start + table.num_rows
                hit = np.flatnonzero((positions >= start) & (positions < end))
                if len(hit):
                    index = np.arange(table.num_rows)
                    index[positions[hit] - start] = table.num_rows + hit
                    table = pa.concat_tables([table, source]).take(pa.array(index))
                writer.write_table(table, row_group_size=table.num_rows)
                start = end

    def duckdb(self, source: pa.Table) -> None:
        """Let DuckDB write the rows that stay and the new ones, with all its threads."""
        with duckdb.connect() as connection:
            connection.register("source", source)
            connection.execute(
                f"COPY (SELECT * FROM '{self.path}' WHERE id NOT IN (SELECT id FROM source) "
                f"UNION ALL FROM source) TO '{self.new}' "
                f"(FORMAT parquet, ROW_GROUP_SIZE {self.group_rows})"
            )

    def copy(self) -> None:
        """Copy the file."""
        subprocess.run(["cp", str(self.path), str(self.new)], check=True)


def example(rows: int) -> pa.Table:
    """Sixteen columns: a key, numbers of both kinds, words, flags and times."""
    random = np.random.default_rng(0)
    columns = {"id": pa.array(np.arange(rows))}
    columns |= {f"f{n}": pa.array(random.random(rows)) for n in range(6)}
    columns |= {f"i{n}": pa.array(random.integers(0, 1000, rows)) for n in range(4)}
    for number in range(3):
        words = random.integers(0, 50_000, rows).astype(str)
        columns[f"s{number}"] = pa.array(np.char.add("word ", words))
    columns["b"] = pa.array(random.random(rows) < 0.5)
    columns["t"] = pa.array(random.integers(0, 10**15, rows)).cast(pa.timestamp("us"))
    return pa.table(columns)


def _other(values: pa.ChunkedArray) -> pa.Array:
    kind = values.type
    if pa.types.is_string(kind):
        return pa.array(["another word"] * len(values))
    if pa.types.is_boolean(kind):
        return pa.array([None] * len(values), kind)
    return pa.array([-1] * len(values)).cast(kind)


def _positions(path: Path, keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where keys are in a file: statistics first, then the key column of what is left."""
    found, start = [], 0
    with pq.ParquetFile(path) as file:
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            bounds = group.column(0).statistics
            if ((keys >= bounds.min) & (keys <= bounds.max)).any():
                held = np.asarray(file.read_row_group(number, columns=["id"]).column("id"))
                found.append(start + np.flatnonzero(np.isin(held, keys)))
            start += group.num_rows
    return np.concatenate(found)


def _compare(report: Report, bench: Bench, case: Case, rounds: int) -> None:
    source = bench.source(case)
    runs: dict[str, Callable[[], object]] = {
        "splice": lambda: bench.splice(source),
        "pyarrow": lambda: bench.pyarrow(source),
        "DuckDB COPY": lambda: bench.duckdb(source),
        "cp": bench.copy,
    }

    def prepare() -> None:
        bench.new.unlink(missing_ok=True)

    done = bench.splice(source)
    _check(bench, source, done)
    seconds = measure(runs, rounds, prepare)
    report.table(case.name, seconds)
    report.note(f"Chosen: {done.method}; {done.reason}.")
    ours = median(seconds["splice"])
    peers = {"pyarrow": case.pyarrow, "DuckDB COPY": case.duckdb, "cp": case.copy}
    for name, at_most in peers.items():
        if at_most is not None:
            ratio = ours / median(seconds[name])
            report.claim(f"{case.name}: time in times of {name}", ratio, round(at_most, 3))
    report.note("")


def _check(bench: Bench, source: pa.Table, done: Rewritten) -> None:
    """A figure for a wrong file would be worth nothing."""
    keys = source.column("id").to_pylist()
    assert done.is_new, done
    assert pq.read_metadata(bench.new).num_rows == pq.read_metadata(bench.path).num_rows
    found = pq.read_table(bench.new, filters=[("id", "in", keys)])
    assert found.equals(source.cast(found.schema)), found


def _memory(report: Report, bench: Bench) -> None:
    report.lines += ["## Peak memory above imports", ""]
    for case in CASES:
        # Made here: what making it leaves in a process would hide what the rewrite needs.
        source = bench.path.with_name("source.parquet")
        pq.write_table(bench.source(case), source)
        command = [sys.executable, "-c", _CHILD, str(bench.path), str(source)]
        child = subprocess.run(
            [*command, str(bench.group_rows)], check=True, capture_output=True, text=True
        )
        report.claim(case.name, float(child.stdout), 250, " MB")


_CHILD = """
import sys
from pathlib import Path
import pyarrow.parquet as pq
from benchmarks.bench_splice import Bench
def peak():  # of this process alone: getrusage also counts what the parent had
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))
source = pq.read_table(sys.argv[2])
bench = Bench(Path(sys.argv[1]).parent, int(sys.argv[3]))
before = peak()
assert bench.splice(source).is_new
print(peak() - before)
"""


if __name__ == "__main__":
    main()
