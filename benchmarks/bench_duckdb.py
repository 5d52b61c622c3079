"""What a merge on the DuckDB engine costs, against DuckDB's own COPY of the same join."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa

from benchmarks.bench_merge import Workbench, _rows
from benchmarks.harness import Report, measure, median
from fsspeckit.datasets.duckdb import DuckDBDatasetIO

if TYPE_CHECKING:
    from collections.abc import Callable

_FILES = 200


def main() -> None:
    """Run every case and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the rows")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    report = Report(
        "duckdb",
        "Merges on DuckDB",
        "Upserts into files of 12 columns (a key, numbers and strings). Every round starts from a "
        "fresh copy of the dataset; fsync is on; the counters of every merge are checked. The peer "
        "writes one file of all rows, without fsync and without keeping their order.",
    )
    with tempfile.TemporaryDirectory() as scratch:
        _against_copy(report, Path(scratch), int(50_000 * arguments.scale), arguments.rounds)
    report.write()


def _against_copy(report: Report, scratch: Path, rows: int, rounds: int) -> None:
    bench = Workbench(scratch)
    for number in range(_FILES):
        bench.add(number, pa.array(np.arange(number * rows, (number + 1) * rows)))
    total = _FILES * rows
    source = _rows(
        pa.array(np.random.default_rng(1).choice(total, total // 10, replace=False)), "new"
    )
    cases: dict[str, Callable[[], object]] = {
        "COPY of the join": lambda: _copy(bench, source, scratch / "copy"),
        "merge": lambda: _merge(bench, source),
        "merge with memory_limit='500MB'": lambda: _merge(bench, source, "500MB"),
    }
    seconds = measure(cases, rounds, prepare=bench.fresh)
    keys = source.num_rows
    report.table(f"{keys:,} keys, a random 10 %, into {_FILES} files of {rows:,} rows", seconds)
    peer, ours, limited = (median(values) for values in seconds.values())
    report.claim("merge, in times of COPY", ours / peer, 1.5)
    report.note(f"- With the limit it completes, in {limited / ours:.2f} times the time without.")


def _copy(bench: Workbench, source: pa.Table, out: Path) -> None:
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    with duckdb.connect() as connection:
        connection.register("source", source)
        connection.execute("SET preserve_insertion_order = false")
        connection.execute(
            "COPY (SELECT * FROM read_parquet($files) t ANTI JOIN source USING (id) "
            "UNION ALL SELECT * FROM source) TO $target (FORMAT parquet, COMPRESSION snappy)",
            {"files": f"{bench.path}/*.parquet", "target": f"{out}/all.parquet"},
        )


def _merge(bench: Workbench, source: pa.Table, limit: str | None = None) -> None:
    with duckdb.connect(config={"memory_limit": limit} if limit else {}) as connection:
        result = DuckDBDatasetIO(connection).merge(source, str(bench.path), "upsert", ["id"])
    assert (result.updated, result.inserted) == (source.num_rows, 0), result


if __name__ == "__main__":
    main()
