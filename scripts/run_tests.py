"""Run every test with branch coverage, in parts side by side, and judge the coverage.

The tests that need Spark wait for the JVM much of the time, and the others for processes that they
start and kill; side by side they end on two cores in little more than the time of the longest part.
Each part is one session of pytest with at most one Spark; its output stays together.

Usage: ``python -m scripts.run_tests [options of pytest]``
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from scripts import coverage_gate

ROOT = Path(__file__).parents[1]
PARTS = {
    "without spark": "not spark and not aside",
    "spark": "spark and not aside",
    "aside": "aside",
}
NOTHING_COLLECTED = 5


def start(marks: str, options: list[str], output: int | None) -> subprocess.Popen[bytes]:
    """Start the tests with these marks, measured."""
    measured = [sys.executable, "-m", "coverage", "run", "--parallel-mode", "-m", "pytest"]
    cache = f"cache_dir=.pytest_cache/{marks.replace(' ', '-')}"
    command = [*measured, "-m", marks, "-o", cache, *options]
    return subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)


def run(options: list[str]) -> list[str]:
    """Run all parts; gives the names of those that failed."""
    first, *others = PARTS
    with ExitStack() as stack:
        logs = {name: stack.enter_context(tempfile.TemporaryFile()) for name in others}
        parts = {
            name: start(PARTS[name], options, log.fileno()) for name, log in reversed(logs.items())
        }
        for part in parts.values():
            stack.callback(part.wait)
            stack.callback(part.terminate)
        parts[first] = start(PARTS[first], options, None)
        failed = []
        for name in PARTS:
            if parts[name].wait() not in (0, NOTHING_COLLECTED):
                failed.append(name)
            if name in logs:
                _show(logs[name])
    return failed


def _show(log: IO[Any]) -> None:
    log.seek(0)
    sys.stdout.flush()
    sys.stdout.buffer.write(log.read())
    sys.stdout.flush()


def judge() -> int:
    """Add up what was measured and compare it with the floors."""
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
