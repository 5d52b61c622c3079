"""What `import fsspeckit` adds to an interpreter that starts, each time in a fresh one."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.harness import Report, measure, median

_EVERYTHING = "import pyarrow, fsspeckit.core.incremental"


def main() -> None:
    """Measure and write the page."""
    report = Report("import", "Import time", "A fresh interpreter for every round.")
    seconds = measure(
        {
            "python": lambda: _run("pass"),
            "import fsspeckit": lambda: _run("import fsspeckit"),
            "import pyarrow": lambda: _run("import pyarrow"),
            "first call: fsspeckit.merge": lambda: _run("import fsspeckit; fsspeckit.merge"),
            _EVERYTHING: lambda: _run(_EVERYTHING),
        },
        rounds=9,
    )
    report.table("Seconds of the whole process", seconds)
    added = median(seconds["import fsspeckit"]) - median(seconds["python"])
    report.claim("what `import fsspeckit` adds", added * 1000, 30, " ms")
    report.write()


def _run(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


if __name__ == "__main__":
    main()
