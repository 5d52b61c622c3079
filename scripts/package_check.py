"""Install the package as users do, and use it: wheel and sdist, each in an environment of its own.

Builds both, installs each from the index with nothing but its own dependencies, merges with the
PyArrow engine and the command line, and asks pip whether every extra can be resolved. It takes some
minutes and downloads a few hundred megabytes; a part of it that downloads nothing is in the tests.

Usage: ``python -m scripts.package_check``
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FOR_DEVELOPERS = ("dev", "docs")

USE = """
import importlib.util, sys
import pyarrow as pa
import fsspeckit
rows = pa.table({"id": [1, 2], "v": ["a", "b"]})
fsspeckit.write_dataset(rows, "data", engine="pyarrow")
new = pa.table({"id": [2], "v": ["new"]})
done = fsspeckit.merge(new, "data", "upsert", ["id"], engine="pyarrow")
found = [name for name in ("duckdb", "pyspark", "pytest", "hypothesis", "mypy")
         if importlib.util.find_spec(name) is not None]
print(fsspeckit.__version__, done.updated, len(fsspeckit.history("data")), found)
try:
    fsspeckit.merge(rows, "data", "upsert", ["id"], engine="duckdb")
except ImportError as error:
    print(error)
"""


@dataclass(frozen=True)
class Distributions:
    """What the build makes."""

    wheel: Path
    sdist: Path


def build(place: Path, source: Path = REPOSITORY) -> Distributions:
    """Build wheel and sdist of a source tree with its own build backend."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(place)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, text=True)
    (wheel,), (sdist,) = place.glob("*.whl"), place.glob("*.tar.gz")
    return Distributions(wheel, sdist)


def clean_environment() -> dict[str, str]:
    """Return the variables of a process that must not see this environment's packages."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME", "COVERAGE_PROCESS_START")
    return {name: value for name, value in os.environ.items() if name not in hidden}


def run(*command: str | Path, directory: Path) -> str:
    """Run a command in a clean environment and return what it prints."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=directory,
        env=clean_environment(),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def use(environment: Path, directory: Path) -> str:
    """Merge with an installed package, from Python and the command line; return what it prints."""
    python, command = environment / "bin" / "python", environment / "bin" / "fsspeckit"
    printed = run(python, "-c", USE, directory=directory)
    (directory / "new.csv").write_text("id,v\n2,B\n3,C\n", encoding="utf-8")
    merge = ("merge", "new.csv", "data", "--key", "id", "--engine", "pyarrow", "--json")
    merged = json.loads(run(command, *merge, directory=directory))
    version = run(command, "--version", directory=directory)
    return f"{printed}{merged['inserted']} inserted, {merged['updated']} updated; {version}"


def extras() -> list[str]:
    """Return the extras that users install."""
    return [name for name in PROJECT["optional-dependencies"] if name not in FOR_DEVELOPERS]


def install(what: str | Path, environment: Path) -> float:
    """Install into a fresh environment from the index, and return the seconds."""
    started = time.perf_counter()
    run(sys.executable, "-m", "venv", environment, directory=environment.parent)
    run(
        *(environment / "bin" / "python", "-m", "pip", "install", "--quiet"),
        *("--disable-pip-version-check", what),
        directory=environment.parent,
    )
    return time.perf_counter() - started


def resolve(what: str, environment: Path) -> int:
    """Ask pip which distributions an extra needs, without installing them; return their number."""
    report = run(
        *(environment / "bin" / "python", "-m", "pip", "install", "--quiet", "--dry-run"),
        *("--disable-pip-version-check", "--ignore-installed", "--report", "-", what),
        directory=environment.parent,
    )
    return len(json.loads(report)["install"])


def main() -> None:
    """Build, install, use, and resolve the extras."""
    with tempfile.TemporaryDirectory(prefix="package-") as temporary:
        place = Path(temporary)
        made = build(place / "dist")
        for path in (made.wheel, made.sdist):
            environment = place / f"env-{path.suffix[1:]}"
            seconds = install(path, environment)
            directory = place / f"work-{path.suffix[1:]}"
            directory.mkdir()
            print(f"{path.name}: {path.stat().st_size:,} bytes, installed in {seconds:.0f} s")
            print(use(environment, directory))
        for extra in extras():
            count = resolve(f"{made.wheel}[{extra}]", place / "env-whl")
            print(f"extra {extra}: {count} distributions")


if __name__ == "__main__":
    main()
