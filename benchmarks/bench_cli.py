"""How long `fsspeckit --help` takes, in a fresh process, beside what Python and pyarrow need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.harness import Report, measure, median

_COMMAND = str(Path(sys.executable).parent / "fsspeckit")


def main() -> None:
    """Measure and write the page."""
    report = Report("cli", "The command line", "A fresh process for every round.")
    seconds = measure(
        {
            "python": lambda: _run(sys.executable, "-c", "pass"),
            "import typer, rich": lambda: _run(
                sys.executable, "-c", "import typer, typer.rich_utils"
            ),
            "fsspeckit --help": lambda: _run(_COMMAND, "--help"),
            "fsspeckit merge --help": lambda: _run(_COMMAND, "merge", "--help"),
            "fsspeckit engines": lambda: _run(_COMMAND, "engines"),
            "import pyarrow": lambda: _run(sys.executable, "-c", "import pyarrow"),
        },
        rounds=9,
    )
    report.table("Seconds of the whole process", seconds)
    help_seconds = median(seconds["fsspeckit --help"])
    report.claim("`fsspeckit --help`", help_seconds, 0.3, " s")
    libraries = median(seconds["import typer, rich"])
    report.claim("beside its libraries alone", help_seconds / libraries, 2)
    report.write()


def _run(*words: str) -> None:
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
