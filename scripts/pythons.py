"""Run the fast tests on every supported version of Python that this machine has.

Interpreters are looked for on PATH, below the versions of pyenv, and in ``PYTHONS`` (paths,
separated by colons). Each gets an environment of its own, ``.venv-python3.12`` and so on, with the
versions of constraints.txt, and is reported, also those that are not there.

Usage: ``python -m scripts.pythons [VERSION ...] [-- options of pytest]``
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).parents[1]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
FAST_TESTS = ("-m", "not slow and not spark")
ASK_VERSION = "import sys; print('%d.%d' % sys.version_info[:2], sys.version.split()[0])"


def candidates(version: str) -> Iterator[str]:
    """Yield the paths where an interpreter of a version may be."""
    yield from filter(None, os.environ.get("PYTHONS", "").split(os.pathsep))
    for root in filter(None, (os.environ.get("PYENV_ROOT"), str(Path.home() / ".pyenv"))):
        found = sorted(Path(root).glob(f"versions/{version}*/bin/python"), reverse=True)
        yield from map(str, found)
    if (on_path := shutil.which(f"python{version}")) is not None:
        yield on_path


def find(version: str) -> tuple[str, str] | None:
    """Return path and full version of an interpreter; None if there is none.

    A name may exist, as a shim of pyenv does, without an interpreter behind it.
    """
    for path in candidates(version):
        try:
            done = subprocess.run([path, "-c", ASK_VERSION], capture_output=True, text=True)
        except OSError:
            continue
        if done.returncode == 0 and done.stdout.split()[0] == version:
            return path, done.stdout.split()[1]
    return None


def environment(version: str, interpreter: str) -> Path:
    """Make the environment of a version, unless it is there, and return its interpreter."""
    place = REPOSITORY / f".venv-python{version}"
    python, mark = place / "bin" / "python", place / ".installed"
    if mark.exists():
        return python
    what = ["--constraint", "constraints.txt", "--editable", ".[dev]"]
    if uv := shutil.which("uv"):
        subprocess.run([uv, "venv", "--quiet", "--python", interpreter, place], check=True)
        install = [uv, "pip", "install", "--quiet", "--python", str(python), *what]
    else:
        subprocess.run([interpreter, "-m", "venv", place], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", *what]
    subprocess.run(install, cwd=REPOSITORY, check=True)
    mark.touch()
    return python


def run_tests(version: str, interpreter: str, options: list[str]) -> str:
    """Run the tests and return their last line, or why there is none."""
    try:
        python = environment(version, interpreter)
    except subprocess.CalledProcessError as error:
        return f"not installed: {' '.join(map(str, error.cmd))} ended with {error.returncode}"
    log = REPOSITORY / "build" / f"python{version}.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("w", encoding="utf-8") as output:
        subprocess.run(
            [str(python), "-m", "pytest", "-q", *(options or FAST_TESTS)],
            cwd=REPOSITORY,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    return log.read_text(encoding="utf-8").rstrip().rpartition("\n")[2]


def main(arguments: list[str]) -> int:
    """Run the tests on each version, print a line for each, and return the exit code."""
    split = arguments.index("--") if "--" in arguments else len(arguments)
    wanted, options = arguments[:split] or list(VERSIONS), arguments[split + 1 :]
    failed = 0
    for version in wanted:
        found = find(version)
        if found is None:
            print(f"Python {version}: not found", flush=True)
            continue
        interpreter, full = found
        started = time.monotonic()
        outcome = run_tests(version, interpreter, options)
        failed += "passed" not in outcome or "failed" in outcome or "error" in outcome
        print(f"Python {full}: {outcome} ({time.monotonic() - started:.0f} s)", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
