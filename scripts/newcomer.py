"""Do what a new user does: run the commands of the README in a fresh environment, and time each.

The commands are those of the block in README.md, word for word. They run in an unpacked sdist with
an environment that has pip and nothing else. If there is a Chromium, it opens the report.

Usage: ``python -m scripts.newcomer``
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from scripts.package_check import REPOSITORY, build, clean_environment

MARK = "<!-- newcomer:"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER_OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


def commands() -> list[str]:
    """Return the commands that the README shows to a new user."""
    page = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    block = page.partition(MARK)[2].partition("```bash\n")[2].partition("\n```")[0]
    return block.splitlines()


def timed(command: list[str] | str, directory: Path, environment: dict[str, str]) -> float:
    """Run a command, end the script if it fails, and return its seconds."""
    started = time.perf_counter()
    shell = isinstance(command, str)
    done = subprocess.run(
        command, cwd=directory, env=environment, shell=shell, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return time.perf_counter() - started


def unpack(place: Path) -> Path:
    """Return a source tree as somebody gets it who has nothing of ours."""
    with tarfile.open(build(place / "dist").sdist) as archive:
        archive.extractall(place / "clone", filter="data")
    (tree,) = (place / "clone").iterdir()
    return tree


def main() -> None:
    """Run the commands and print the seconds of each."""
    with tempfile.TemporaryDirectory(prefix="newcomer-") as temporary:
        place = Path(temporary)
        tree = unpack(place)
        environment = clean_environment()
        environment["PATH"] = f"{place / 'env' / 'bin'}{os.pathsep}{environment['PATH']}"
        venv = [sys.executable, "-m", "venv", str(place / "env")]
        steps: list[list[str] | str] = [venv, *commands()]
        browser = next(filter(None, map(shutil.which, BROWSERS)), None)
        if browser is not None:
            profile = f"--user-data-dir={place / 'profile'}"
            page = (tree / "report.html").as_uri()
            steps.append([browser, *BROWSER_OPTIONS, profile, "--dump-dom", page])
        total = 0.0
        for step in steps:
            seconds = timed(step, tree, environment)
            total += seconds
            text = step if isinstance(step, str) else f"({Path(step[0]).name} …)"
            print(f"{seconds:6.1f} s  {text}", flush=True)
        print(f"{total:6.1f} s  in all")


if __name__ == "__main__":
    main()
