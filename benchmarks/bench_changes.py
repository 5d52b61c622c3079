"""What a delete costs, against an update of the same keys."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from benchmarks.bench_merge import Workbench, _rows
from benchmarks.harness import Report, measure, median
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

if TYPE_CHECKING:
    from collections.abc import Callable

_FILES = 16
_KEYS = 100


def main() -> None:
    """Run every case and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the rows")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    report = Report(
        "changes",
        "Deletes",
        "Files of 12 columns (a key, numbers and strings), on PyArrow. Every round starts from "
        "a fresh copy of the dataset; fsync is on; the counters of every call are checked.",
    )
    with tempfile.TemporaryDirectory() as scratch:
        _against_update(report, Path(scratch), int(250_000 * arguments.scale), arguments.rounds)
    report.write()


def _against_update(report: Report, scratch: Path, rows: int, rounds: int) -> None:
    bench = Workbench(scratch)
    for number in range(_FILES):
        bench.add(number, pa.array(np.arange(number * rows, (number + 1) * rows)))
    chosen = np.sort(np.random.default_rng(1).choice(rows, _KEYS, replace=False))
    keys, path, io = pa.array(chosen), str(bench.path), PyarrowDatasetIO()
    new = _rows(keys, "new")
    marked = new.append_column("gone", pa.array([True] * _KEYS))
    where = f"id IN ({', '.join(map(str, chosen))})"
    cases: dict[str, Callable[[], tuple[int, int]]] = {
        "update": lambda: _counts(io.merge(new, path, "update", ["id"])),
        "delete": lambda: _counts(io.delete(keys, path, "id")),
        "delete_when": lambda: _counts(
            io.merge(marked, path, "update", ["id"], delete_when="gone")
        ),
        "where": lambda: _counts(io.delete(None, path, where=where)),
    }
    checked = {name: _checked(run, name == "update") for name, run in cases.items()}
    seconds = measure(checked, rounds, prepare=bench.fresh)
    report.table(f"{_KEYS} keys of one of {_FILES} files of {rows:,} rows", seconds)
    update, *others = (median(values) for values in seconds.values())
    for name, value in zip(list(cases)[1:], others, strict=True):
        report.claim(f"{name}, in times of an update of the same keys", value / update, 1.3)


def _counts(result: object) -> tuple[int, int]:
    return result.updated, result.deleted  # type: ignore[attr-defined]


def _checked(run: Callable[[], tuple[int, int]], is_update: bool) -> Callable[[], None]:
    def checked() -> None:
        assert run() == ((_KEYS, 0) if is_update else (0, _KEYS))

    return checked


if __name__ == "__main__":
    main()
