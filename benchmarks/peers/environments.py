"""The environments of the peers: packages by name, jars by coordinates; what fails is written down.

Usage: ``python -m benchmarks.peers.environments [local | spark]``
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
JARS = ROOT / "build" / "jars"
PEERS, PEERS_SPARK, PEERS_HUDI = ".venv-peers", ".venv-peers-spark", ".venv-peers-hudi"
_PROBLEMS = "install-problems.json"


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and jars that its Spark loads."""

    name: str
    packages: tuple[str, ...]
    """As pip takes them, installed one by one, so that one that fails leaves the others."""

    jars: tuple[str, ...] = ()
    """Maven coordinates."""


_ARROW = ("pyarrow", "numpy")
LOCAL = (
    Environment(
        PEERS,
        (
            *_ARROW,
            "deltalake",
            "pyiceberg[sql-sqlite,pyarrow]",
            "pylance",
            "duckdb-extension-ducklake",
        ),
    ),
)
SPARK = (
    # The newest Spark for which both Delta Lake and Iceberg have a release.
    Environment(
        PEERS_SPARK,
        (*_ARROW, "pyspark==4.1.*", "--editable .[spark]"),
        (
            "io.delta:delta-spark_4.1_2.13:4.4.0",
            "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
        ),
    ),
    # No bundle of Hudi for Spark 4 is to be had: it runs on the newest Spark that it has one for.
    Environment(
        PEERS_HUDI,
        (*_ARROW, "pyspark==3.5.*", "setuptools"),
        ("org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0",),
    ),
)

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>peers</groupId><artifactId>peers</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
  </dependency></dependencies>
</project>
"""


def environment_of(name: str) -> Path:
    """Return the directory of an environment, which a worktree shares with the main checkout.

    ``.venv`` is the environment that runs this, wherever it is.
    """
    if name == ".venv":
        return Path(sys.prefix)
    own = ROOT / name
    if own.exists():
        return own
    command = ["git", "-C", str(ROOT), "rev-parse", "--path-format=absolute", "--git-common-dir"]
    found = subprocess.run(command, capture_output=True, text=True)
    shared = Path(found.stdout.strip()).parent / name
    return shared if found.returncode == 0 and shared.exists() else own


def jars_of(name: str) -> list[Path]:
    """The jars of the artifact whose name begins so, with those that it needs."""
    (coordinates,) = (one for environment in SPARK for one in environment.jars if f":{name}" in one)
    found = sorted(_directory(coordinates).glob("*.jar"))
    if not found:
        problem = problem_of(JARS, name) or "run make bench-spark"
        raise FileNotFoundError(f"there are no jars of {coordinates}: {problem}")
    return found


def _directory(coordinates: str) -> Path:
    _, artifact, version = coordinates.split(":")
    return JARS / f"{artifact}-{version}"


def problem_of(directory: Path, name: str) -> str:
    """What went wrong when something of this name was installed, or nothing."""
    path = directory / _PROBLEMS
    problems = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return next((text for what, text in problems.items() if name in what), "")


def install(environment: Environment) -> None:
    """Make an environment, or bring it up to date."""
    directory = ROOT / environment.name
    python = directory / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True)
    problems = {}
    for package in environment.packages:
        print(f"{environment.name}: {package}", file=sys.stderr, flush=True)
        options = ["install", "--quiet", "--disable-pip-version-check", "--upgrade"]
        if problem := _failure([str(python), "-m", "pip", *options, *package.split()]):
            problems[package] = problem
    _write_down(directory, problems)
    problems = {}
    for coordinates in environment.jars:
        if problem := _fetch(coordinates):
            problems[coordinates] = problem
    if environment.jars:
        _write_down(JARS, problems)


def _fetch(coordinates: str) -> str:
    """Copy an artifact and what it needs into the folder of jars; gives what went wrong."""
    group, artifact, version = coordinates.split(":")
    directory = _directory(coordinates)
    if list(directory.glob("*.jar")):
        return ""
    if shutil.which("mvn") is None:
        return "mvn is not installed"
    print(f"{JARS.name}: {coordinates}", file=sys.stderr, flush=True)
    directory.mkdir(parents=True, exist_ok=True)
    pom = directory / "pom.xml"
    pom.write_text(_POM.format(group=group, artifact=artifact, version=version), encoding="utf-8")
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    return _failure([*command, "-DincludeScope=runtime", f"-DoutputDirectory={directory}"])


def _failure(command: list[str]) -> str:
    """Run a command; gives what it said last where it failed, without the address it asked."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 0:
        return ""
    said = [line for line in (done.stderr + done.stdout).splitlines() if "ERROR" in line]
    first = said[0] if said else f"ended with {done.returncode}"
    return re.sub(r"\(?https?://\S+", "", first).replace(f"{ROOT}/", "")[:300]


def _write_down(directory: Path, problems: dict[str, str]) -> None:
    path = directory / _PROBLEMS
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() and problems else {}
    path.write_text(json.dumps(known | problems, indent=2), encoding="utf-8")
    for name, text in problems.items():
        print(f"{name}: {text}", file=sys.stderr)


def main(which: str) -> None:
    """Install the environments of the local peers, or of those on Spark."""
    for environment in {"local": LOCAL, "spark": SPARK}[which]:
        install(environment)


if __name__ == "__main__":
    main(sys.argv[1])
