"""Measure two checkouts side by side: one process each, the same merges in turns.

Call it from the checkout whose benchmarks are to be used; both may be other ones::

    python -m benchmarks.compare BEFORE_DIR AFTER_DIR [--spark] [--only NAME ...]

Every merge starts from a fresh copy of the dataset; the order of the two changes from round to
round; the counts of every merge are checked, and the rows of the first round are compared. The
table goes to standard output and to ``build/compare.md`` (``--out``).
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq

from benchmarks.compare.shapes import DEFAULT_ROWS, Shape, all_shapes
from benchmarks.peers.digest import Digest, digest_of
from benchmarks.peers.protocol import link_tree

ROOT = Path(__file__).parents[2]
_WARM_UPS = 2
_SHORT_SECONDS = 0.2
"""A merge that takes less gets three times the rounds: they cost little, and vary more."""


@dataclass
class Checkout:
    """One checkout, and the process that runs its code."""

    directory: Path
    engine: str
    process: subprocess.Popen[str] = field(init=False)

    def __post_init__(self) -> None:
        sources = self.directory.resolve() / "src"
        paths = os.pathsep.join([str(sources), str(ROOT)])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.compare.worker", self.engine],
            env={**os.environ, "PYTHONPATH": paths},
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        imported = self._answer()["from"]
        if not Path(imported).is_relative_to(sources):
            self.close()
            raise SystemExit(f"The process of {self.directory} imports {imported}.")

    def run(self, task: dict[str, Any]) -> dict[str, float]:
        """Run a task and return what it took."""
        assert self.process.stdin is not None
        print(json.dumps(task), file=self.process.stdin, flush=True)
        return self._answer()

    def close(self) -> None:
        """End the process."""
        self.process.communicate()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"The process of {self.directory} has ended; see its error above.")
        answer: dict[str, Any] = json.loads(line)
        return answer


Taken = dict[str, list[float]]


class Comparison:
    """The datasets and both checkouts, by ``before`` and ``after``."""

    def __init__(
        self, scratch: Path, checkouts: dict[str, Checkout], *, dry_run: bool = False
    ) -> None:
        self._scratch = scratch
        self._checkouts = checkouts
        self._dry_run = dry_run

    def run(self, shape: Shape, rounds: int) -> dict[str, Taken]:
        """Warm up, then measure in turns; return lists of seconds and of CPU seconds."""
        original = self._dataset(shape)
        source = self._scratch / f"{shape.name}.parquet"
        table = shape.source()
        pq.write_table(table, source)
        taken: dict[str, Taken] = {name: {"seconds": [], "cpu": []} for name in self._checkouts}
        digests: dict[str, Digest] = {}
        last = 0.0
        for name, checkout in self._checkouts.items():
            for _ in range(1 if self._dry_run else _WARM_UPS):
                place = self._fresh(original)
                last = checkout.run(_task(shape, place, source))["seconds"]
            rows = ds.dataset(place, partitioning="hive").to_table()
            digests[name] = digest_of(rows, table.schema)
        if len(set(digests.values())) != 1:
            raise SystemExit(f"{shape.name}: the rows differ: {digests}")
        is_short = last <= _SHORT_SECONDS and not self._dry_run
        for number in range(3 * rounds if is_short else rounds):
            for name in sorted(self._checkouts, reverse=number % 2 == 0):
                place = self._fresh(original)
                found = self._checkouts[name].run(_task(shape, place, source))
                for what, seconds in found.items():
                    taken[name][what].append(seconds)
        return taken

    def _dataset(self, shape: Shape) -> Path:
        original = self._scratch / "datasets" / shape.dataset
        if not original.exists():
            original.mkdir(parents=True)
            shape.write(original)
        return original

    def _fresh(self, original: Path) -> Path:
        work = self._scratch / "work"
        shutil.rmtree(work, ignore_errors=True)
        link_tree(original, work / "table")
        if not self._dry_run:
            os.sync()  # what others have left to write must not wait for our fsync
        return work / "table"


def _task(shape: Shape, place: Path, source: Path) -> dict[str, Any]:
    return {
        "path": str(place),
        "source": str(source),
        "action": shape.action,
        "strategy": shape.strategy,
        "expected": [shape.updated, shape.inserted],
    }


def _line(shape: Shape, taken: dict[str, Taken], engine: str) -> str:
    cells = [shape.title]
    for what in ("seconds", "cpu") if engine != "spark" else ("seconds",):
        before, after = (statistics.median(taken[name][what]) for name in ("before", "after"))
        cells += [f"{1e3 * before:,.1f}", f"{1e3 * after:,.1f}", f"{before / after:.2f}"]
    return f"| {' | '.join(cells)} |"


def _head(directories: dict[str, Path], engine: str, rounds: int) -> list[str]:
    lines = [f"{name}: {_state(directory)}" for name, directory in directories.items()]
    cells = ["before ms", "after ms", "before / after"]
    if engine != "spark":
        cells += ["before CPU ms", "after CPU ms", "before / after"]
    lines += [
        "",
        f"Medians of {rounds} rounds in turns on {engine} ({3 * rounds} of short ones).",
        "",
    ]
    return [*lines, f"| shape | {' | '.join(cells)} |", f"| --- |{' ---: |' * len(cells)}"]


def _state(directory: Path) -> str:
    command = ["git", "-C", str(directory), "describe", "--always", "--dirty", "--abbrev=10"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() or "not a git checkout"


def main(arguments: list[str] | None = None) -> None:
    """Measure and print a line for each shape as soon as it is known."""
    given = _parser().parse_args(arguments)
    engine = "spark" if given.spark else "pyarrow"
    shapes = [shape for shape in all_shapes(given.rows) if shape.spark or not given.spark]
    if given.only:
        shapes = [s for s in shapes if any(fnmatch.fnmatch(s.name, one) for one in given.only)]
    rounds = 1 if given.dry_run else given.rounds or (3 if given.spark else 5)
    directories = {"before": given.before, "after": given.after}
    lines = _head(directories, engine, rounds)
    print("\n".join(lines), flush=True)
    given.scratch.mkdir(parents=True, exist_ok=True)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(dir=given.scratch))
        checkouts = {}
        for name, path in directories.items():
            checkouts[name] = Checkout(path, engine)
            stack.callback(checkouts[name].close)
        comparison = Comparison(Path(scratch), checkouts, dry_run=given.dry_run)
        for shape in shapes:
            lines.append(_line(shape, comparison.run(shape, rounds), engine))
            print(lines[-1], flush=True)
            given.out.write_text("\n".join([*lines, ""]), encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    names = ", ".join(shape.name for shape in all_shapes())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("before", type=Path, help="the checkout that is compared with")
    add("after", type=Path, help="the checkout that is measured")
    add("--spark", action="store_true", help="on Spark, local[2], instead of PyArrow")
    add("--rows", type=int, default=DEFAULT_ROWS, help="of most datasets (default: %(default)s)")
    add("--rounds", type=int, help="of each shape (default: 5, and 3 on Spark)")
    add("--dry-run", action="store_true", help="run each shape twice: to check it, not to measure")
    add("--only", nargs="+", default=[], metavar="NAME", help=f"by name or pattern: {names}")
    add("--scratch", type=Path, default=ROOT / "build", help="where datasets are made")
    add("--out", type=Path, default=ROOT / "build" / "compare.md", help="where the table goes")
    return parser


if __name__ == "__main__":
    main()
