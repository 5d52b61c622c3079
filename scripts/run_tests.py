"""Run every test with branch coverage, in two parts side by side, and judge the coverage.

The tests that need Spark wait for the JVM much of the time, and the others for processes that they
start and kill, so on two cores both together take little more time than the longer part. Each part
is one session of pytest with its own Spark; its output stays together.

Usage: ``python -m scripts.run_tests [options of pytest]``
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scripts import coverage_gate

ROOT = Path(__file__).parents[1]
PARTS = {"without spark": "not spark", "spark": "spark"}
NOTHING_COLLECTED = 5


def start(marks: str, options: list[str], output: int | None) -> subprocess.Popen[bytes]:
    """Start the tests with these marks under coverage."""
    measured = [sys.executable, "-m", "coverage", "run", "--parallel-mode", "-m", "pytest"]
    cache = f"cache_dir=.pytest_cache/{marks.replace(' ', '-')}"
    command = [*measured, "-m", marks, "-o", cache, *options]
    # Without bytecode each of the hundreds of processes that tests start would compile the package.
    kept = {name: v for name, v in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.Popen(command, cwd=ROOT, env=kept, stdout=output, stderr=output)


def run(options: list[str]) -> list[str]:
    """Run both parts and return the names of those that failed."""
    first, second = PARTS
    failed = []
    with tempfile.TemporaryFile() as log:
        later = start(PARTS[second], options, log.fileno())
        try:
            now = start(PARTS[first], options, None)
            if now.wait() not in (0, NOTHING_COLLECTED):
                failed.append(first)
            if later.wait() not in (0, NOTHING_COLLECTED):
                failed.append(second)
        finally:
            later.terminate()
            later.wait()
        log.seek(0)
        sys.stdout.flush()
        sys.stdout.buffer.write(log.read())
        sys.stdout.flush()
    return failed


def judge() -> int:
    """Combine the coverage of both parts and compare it with the floors."""
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
    print(f"both parts took {time.monotonic() - begun:.0f} s")
    return judge() or int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
