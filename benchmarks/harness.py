"""How every benchmark measures and reports: interleaved rounds, medians, ratios, one page each."""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.state import State, current_state

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PAGES = Path(__file__).parent.parent / "docs" / "benchmarks"
LIMIT_MISSED = 3
"""What a benchmark that is also a check ends with if the page is written, and a limit is missed."""

_LIBRARIES = ("pyarrow", "fsspec", "numpy", "duckdb", "pyspark", "polars")


def measure(
    cases: Mapping[str, Callable[[], Any]],
    rounds: int = 5,
    prepare: Callable[[], Any] = lambda: None,
) -> dict[str, list[float]]:
    """Run the cases in turns, so that a busy moment hits all of them; seconds of each round.

    Args:
        cases: What to run, by name.
        rounds: How often.
        prepare: Called before each run and not measured.
    """
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, run in cases.items():
            prepare()
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def median(seconds: list[float]) -> float:
    """The median of some rounds."""
    return statistics.median(seconds)


@dataclass
class Report:
    """One page below ``docs/benchmarks``, written by the run itself and never by hand."""

    name: str
    title: str
    text: str
    lines: list[str] = field(default_factory=list)
    module: str = ""
    """The module that makes the page, where it is not called like it."""

    state: State = field(default_factory=current_state)
    """Of the code, when the run began."""

    def table(self, heading: str, seconds: Mapping[str, list[float]]) -> None:
        """Add a table of medians with their spread, and print it."""
        self.lines += [f"## {heading}", "", "| case | median | fastest | slowest |"]
        self.lines += ["| --- | ---: | ---: | ---: |"]
        for case, values in seconds.items():
            cells = (median(values), min(values), max(values))
            self.lines.append(f"| {case} | " + " | ".join(f"{v:.4f} s" for v in cells) + " |")
        self.lines.append("")

    def claim(self, what: str, measured: float, at_most: float, unit: str = "x") -> bool:
        """Add a target and what was measured; says so plainly where it is missed."""
        held = measured <= at_most
        verdict = "held" if held else f"**missed** by {measured - at_most:.2f}{unit}"
        self.lines += [
            f"- {what}: {measured:.2f}{unit}, target at most {at_most:g}{unit}: {verdict}"
        ]
        return held

    def note(self, text: str) -> None:
        """Add a paragraph."""
        self.lines += [text, ""]

    def render(self) -> str:
        """Return the page."""
        module = self.module or f"bench_{self.name.replace('-', '_')}"
        command = " ".join([f"python -m benchmarks.{module}", *sys.argv[1:]])
        page = [f"# {self.title}", "", self.state.line, "", self.text, ""]
        page += [*self.lines, "", _machine(command), ""]
        return "\n".join(page)

    def write(self) -> None:
        """Write the page and print it."""
        page = self.render()
        PAGES.mkdir(parents=True, exist_ok=True)
        (PAGES / f"{self.name}.md").write_text(page)
        print(page)


def _machine(command: str) -> str:
    cores = os.cpu_count()
    libraries = ", ".join(f"{name} {found}" for name in _LIBRARIES if (found := _version(name)))
    python = ".".join(map(str, sys.version_info[:3]))
    return (
        f"Made by `{command}` on {platform.system()} {platform.machine()}, {cores} cores, "
        f"Python {python}, {libraries}. Read the ratios, not the seconds."
    )


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
