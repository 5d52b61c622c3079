"""Measure every page again on one state of the code, in one sitting of under two hours.

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

from benchmarks.state import ROOT, current_state

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

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


STEPS = (
    Step("import", "bench_import"),
    Step("cli", "bench_cli"),
    Step("planning", "bench_planning", minutes=2),
    Step("commit", "bench_commit", minutes=2),
    Step("splice", "bench_splice", minutes=3),
    Step("merge", "bench_merge", minutes=5),
    Step("changes", "bench_changes"),
    Step("duckdb", "bench_duckdb", minutes=3),
    Step("growth", "bench_growth", ("--large",), minutes=6),
    Step("spark", "bench_spark", minutes=5),
    # Both keep what was measured on this state of the code merge by merge, not only whole pages.
    Step("peers", "peers", ("--resume",), minutes=45),
    Step(
        "spark-peers",
        "peers",
        ("--spark", "--resume", "--rounds", "3", "--sweep-rounds", "1"),
        minutes=35,
    ),
    Step("spark-large", "bench_spark", ("--large", "10.5"), minutes=10),
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
        if code == 0:
            progress.add(step, time.monotonic() - start)
        else:
            problems[step.page] = f"ended with {code}"
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
