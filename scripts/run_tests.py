"""Run every test with branch coverage, two parts at a time, and judge the coverage.

The tests that need Spark wait for the JVM much of the time, and the others for processes that they
start and kill, so two parts at once take little more time than one. Each part is one session of
pytest; whichever of the two lanes is free takes the next part, so that both end at about the same
time. One lane shows its output at once, the other at the end.

Usage: ``python -m scripts.run_tests [options of pytest]``
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from scripts import coverage_gate

ROOT = Path(__file__).parents[1]
NOTHING_COLLECTED = 5
_PAUSE_SECONDS = 0.2


@dataclass(frozen=True)
class Part:
    """A share of the tests, which one session of pytest runs."""

    name: str
    marks: str
    only: str | None = None
    """The directory below ``tests`` whose tests these are; None for all."""
    without: tuple[str, ...] = ()
    """Directories below ``tests`` that are left to other parts."""

    @property
    def options(self) -> list[str]:
        """Options of pytest that select these tests."""
        others = self.without
        if self.only is not None:
            names = (entry.name for entry in sorted((ROOT / "tests").iterdir()))
            found = (name for name in names if name != self.only and not name.startswith("__"))
            others = tuple(name for name in found if name != "conftest.py")
        return ["-m", self.marks, *(f"--ignore=tests/{name}" for name in others)]


PARTS = (
    Part("storage", "not spark", "storage"),
    Part("Spark", "spark"),
    Part("engines without Spark", "not spark", "datasets"),
    Part("core", "not spark", "core"),
    Part("all others", "not spark", without=("storage", "datasets", "core")),
)
"""The longest first."""


def start(part: Part, options: list[str], output: int | None) -> subprocess.Popen[bytes]:
    """Start the tests of a part under coverage."""
    measured = [sys.executable, "-m", "coverage", "run", "--parallel-mode", "-m", "pytest"]
    cache = f"cache_dir=.pytest_cache/{part.name.replace(' ', '-')}"
    command = [*measured, *part.options, "-o", cache, *options]
    # Without bytecode each of the hundreds of processes that tests start would compile the package.
    kept = {name: v for name, v in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.Popen(command, cwd=ROOT, env=kept, stdout=output, stderr=output)


def run(options: list[str]) -> list[str]:
    """Run all parts and return the names of those that failed."""
    failed = []
    with tempfile.TemporaryFile() as log:
        lanes: list[IO[bytes] | None] = [None, log]
        left = list(PARTS)
        running: list[tuple[int, Part, float, subprocess.Popen[bytes]]] = []
        try:
            while left or running:
                free = {0, 1} - {lane for lane, *_ in running}
                for lane in sorted(free)[: len(left)]:
                    output, part = lanes[lane], left.pop(0)
                    process = start(part, options, None if output is None else output.fileno())
                    running.append((lane, part, time.monotonic(), process))
                time.sleep(_PAUSE_SECONDS)
                for ended in [one for one in running if one[-1].poll() is not None]:
                    running.remove(ended)
                    _, part, begun, process = ended
                    print(f"tests {part.name}: {time.monotonic() - begun:.0f} s", flush=True)
                    if process.returncode not in (0, NOTHING_COLLECTED):
                        failed.append(part.name)
        finally:
            for *_, process in running:
                process.terminate()
                process.wait()
        log.seek(0)
        sys.stdout.flush()
        sys.stdout.buffer.write(log.read())
        sys.stdout.flush()
    return failed


def judge() -> int:
    """Combine the coverage of all parts and compare it with the floors."""
    coverage = [sys.executable, "-m", "coverage"]
    report = ROOT / "build" / "coverage.json"
    report.parent.mkdir(exist_ok=True)
    subprocess.run([*coverage, "combine", "--quiet"], cwd=ROOT, check=True)
    subprocess.run([*coverage, "json", "--quiet", "-o", str(report)], cwd=ROOT, check=True)
    return coverage_gate.main([str(report)])


def main(options: list[str]) -> int:
    """Run, judge, and return the exit code."""
    os.environ.setdefault("COVERAGE_FILE", str(ROOT / ".coverage"))
    subprocess.run([sys.executable, "-m", "coverage", "erase"], cwd=ROOT, check=True)
    begun = time.monotonic()
    failed = run(options)
    for name in failed:
        print(f"tests {name}: failed", file=sys.stderr)
    print(f"all parts took {time.monotonic() - begun:.0f} s")
    return judge() or int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
