"""Measure every page again on one state of the code, in one sitting of about an hour.

What was done for this very state (the commit, and what is not committed) is not done again after
an interruption: call it again to continue.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.harness import LIMIT_MISSED
from benchmarks.state import ROOT, current_state

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_PROBLEMS = {LIMIT_MISSED: "measured, and over one of its limits"}
PROGRESS = ROOT / "build" / "bench" / "progress.json"


@dataclass(frozen=True)
class Step:
    """One page."""

    page: str
    module: str
    options: tuple[str, ...] = ()
    minutes: float = 1
    """About how long it takes on two cores."""

    @property
    def command(self) -> list[str]:
        """What writes the page."""
        return [sys.executable, "-m", f"benchmarks.{self.module}", *self.options]


# Both keep what was measured on this state of the code merge by merge, not only whole pages.
# `make bench-peers` and `make bench-spark` run all systems, all workloads and the whole sweep.
_PEERS = (
    *("--resume", "--other-rounds", "1", "--seconds-each", "12", "--limit", "30", "--only"),
    *("fsspeckit-*", "delta-rs*", "pyiceberg", "lance", "ducklake", "polars"),
    *("one-row", "clustered-100", "uuid-100", "newest-partition", "spread", "bulk", "insert-only"),
    *("sweep-upsert-0.05-0.1-0.01", "sweep-upsert-1-0.01-0.001"),
)
_SPARK_PEERS = (
    *("--spark", "--resume", "--rounds", "3", "--other-rounds", "1", "--only"),
    *("spark-fsspeckit", "spark-delta", "spark-iceberg", "spark-overwrite"),
    *("one-row", "bulk", "files-10000"),
)
STEPS = (
    Step("import", "bench_import", minutes=0.2),
    Step("cli", "bench_cli", minutes=0.3),
    Step("compact", "bench_compact", minutes=1.5),
    Step("planning", "bench_planning", minutes=0.5),
    Step("commit", "bench_commit", minutes=0.5),
    Step("splice", "bench_splice", ("--rounds", "3"), minutes=1.5),
    Step("merge", "bench_merge", ("--rounds", "3"), minutes=2),
    Step("changes", "bench_changes", minutes=0.3),
    Step("evolve", "bench_evolve", ("--rounds", "3"), minutes=1),
    Step("duckdb", "bench_duckdb", minutes=1),
    Step("object-store", "bench_object_store", ("--rounds", "1"), minutes=1.5),
    Step("growth", "bench_growth", ("--large", "--rounds", "2"), minutes=3.7),
    Step("spark", "bench_spark", ("--rounds", "3"), minutes=1),
    Step("streams", "bench_streams", ("--peer-batches", "8"), minutes=7.5),
    Step("peers", "peers", _PEERS, minutes=20),
    Step("spark-peers", "peers", _SPARK_PEERS, minutes=16),
    Step("spark-large", "bench_spark", ("--large", "10.5"), minutes=1.5),
)
"""The short ones first, so that a mistake is seen early."""


class Progress:
    """Which steps were done on a state of the code, kept in a file."""

    def __init__(self, path: Path, state: str) -> None:
        self._path = path
        self._state = state
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        self.seconds: dict[str, float] = known["seconds"] if known.get("state") == state else {}
        """Of each step that was done."""

    def add(self, step: Step, seconds: float) -> None:
        """Remember that a step was done."""
        self.seconds[step.page] = round(seconds, 1)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps({"state": self._state, "seconds": self.seconds}, indent=2))
        new.replace(self._path)


def run_steps(
    steps: Sequence[Step], progress: Progress, state: Callable[[], str]
) -> dict[str, str]:
    """Run what is left to do; return what went wrong, by page."""
    started, problems = state(), {}
    left = [step for step in steps if step.page not in progress.seconds]
    for number, step in enumerate(left):
        if state() != started:
            raise SystemExit("The code has changed meanwhile: the pages would be of two states.")
        rest = sum(one.minutes for one in left[number:])
        print(f"== {step.page}; about {rest:.0f} minutes left", flush=True)
        start = time.monotonic()
        code = subprocess.run(step.command, cwd=ROOT).returncode
        if code in (0, LIMIT_MISSED):
            progress.add(step, time.monotonic() - start)
        if code:
            problems[step.page] = _PROBLEMS.get(code, f"ended with {code}")
    return problems


def main(arguments: list[str] | None = None, progress_path: Path = PROGRESS) -> int:
    """Run all steps, or those whose pages are named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.every_page", description=__doc__)
    names = ", ".join(step.page for step in STEPS)
    parser.add_argument("--only", nargs="+", default=["*"], metavar="PAGE", help=names)
    parser.add_argument("--list", action="store_true", help="print what would be run, run nothing")
    given = parser.parse_args(arguments)
    steps = [s for s in STEPS if any(fnmatch.fnmatch(s.page, one) for one in given.only)]
    state = current_state().line
    progress = Progress(progress_path, state)
    print(state)
    if given.list:
        for step in steps:
            done = progress.seconds.get(step.page)
            took = "to do" if done is None else f"done in {done:.0f} s"
            print(f"{step.page}: {took}, about {step.minutes:g} minutes")
        return 0
    problems = run_steps(steps, progress, lambda: current_state().line)
    for page, problem in problems.items():
        print(f"{page}: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
