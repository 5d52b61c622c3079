"""How long `fsspeckit --help` takes, in a fresh process, beside what Python and pyarrow need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.harness import Report, measure, median

_COMMAND = str(Path(sys.executable).parent / "fsspeckit")


def main() -> None:
    """Measure and write the page."""
    report = Report("cli", "The command line", "A fresh process for every round.")
    completion: dict[str, Any] = {"_FSSPECKIT_COMPLETE": "complete_bash", "COMP_CWORD": "3"}
    seconds = measure(
        {
            "python": lambda: _run(sys.executable, "-c", "pass"),
            "import typer": lambda: _run(sys.executable, "-c", "import typer"),
            "fsspeckit --help": lambda: _run(_COMMAND, "--help"),
            "fsspeckit merge --help": lambda: _run(_COMMAND, "merge", "--help"),
            "a wrong option": lambda: _run(_COMMAND, "merge", "--engine", "x", code=2),
            "completion of an option in bash": lambda: _run(
                _COMMAND, **completion, COMP_WORDS="fsspeckit merge --engine "
            ),
            "fsspeckit engines": lambda: _run(_COMMAND, "engines"),
            "import pyarrow": lambda: _run(sys.executable, "-c", "import pyarrow"),
        },
        rounds=9,
    )
    report.table("Seconds of the whole process", seconds)
    for words in ("fsspeckit --help", "fsspeckit merge --help"):
        report.claim(f"`{words}`", median(seconds[words]), 0.3, " s")
    libraries = median(seconds["import typer"])
    report.claim(
        "`fsspeckit --help` beside `import typer`",
        median(seconds["fsspeckit --help"]) / libraries,
        2,
    )
    report.write()


def _run(*words: str, code: int = 0, **variables: str) -> None:
    done = subprocess.run(
        words,
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == code, words


if __name__ == "__main__":
    main()
