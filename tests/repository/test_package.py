"""Wheel and sdist: what is in them, and that each works with its own dependencies and no others.

Nothing is downloaded: the dependencies are those of this environment, and of them only what the
package asks for. `make test-package` installs both from the index.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement
from scripts import package_check
from scripts.package_check import PROJECT, REPOSITORY, build, extras, run, use

import fsspeckit

if TYPE_CHECKING:
    from scripts.package_check import Distributions


def runtime_distributions() -> set[str]:
    """The names of what the package needs, and of what that needs."""
    found: set[str] = set()
    pending = [Requirement(text) for text in PROJECT["dependencies"]]
    while pending:
        requirement = pending.pop()
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if name in found:
            continue
        found.add(name)
        needed = map(Requirement, distribution(name).requires or ())
        pending += [
            one for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})
        ]
    return found


def link_distribution(name: str, target: Path) -> None:
    """Link the modules and the metadata of an installed distribution."""
    files = distribution(name).files or ()
    tops = {file.parts[0]: file for file in files if file.parts[0] not in ("..", "__pycache__")}
    for top, file in tops.items():
        place = Path(str(distribution(name).locate_file(file)))
        source = place if len(file.parts) == 1 else place.parents[len(file.parts) - 2]
        (target / top).symlink_to(source)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def from_sdist(made: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """What the sdist builds, unpacked elsewhere, as an installer does."""
    place = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(made.sdist) as archive:
        archive.extractall(place, filter="data")
    (source,) = place.iterdir()
    return build(tmp_path_factory.mktemp("from-sdist"), source)


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_has_all_that_is_needed_and_nothing_else(made: Distributions) -> None:
    assert made.wheel.name == f"fsspeckit-{fsspeckit.__version__}-py3-none-any.whl"
    assert made.sdist.name == f"fsspeckit-{PROJECT['version']}.tar.gz"
    found = names_in(made.wheel)
    info = f"fsspeckit-{fsspeckit.__version__}.dist-info"
    assert {name.partition("/")[0] for name in found} == {
        "fsspeckit",
        "pyspark_fsspeckit.py",
        info,
    }
    assert {"fsspeckit/py.typed", f"{info}/licenses/LICENSE"} <= found
    sources = REPOSITORY / "src"
    data = {
        path.relative_to(sources).as_posix()
        for path in (sources / "fsspeckit").rglob("*")
        if path.is_file() and path.suffix not in (".pyc", ".pyo")
    }
    assert data <= found


def test_the_sdist_builds_the_same_wheel(made: Distributions, from_sdist: Distributions) -> None:
    assert names_in(from_sdist.wheel) == names_in(made.wheel)
    with tarfile.open(made.sdist) as archive:
        tops = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert {"src", "tests", "docs", "pyproject.toml", "constraints.txt", "LICENSE"} <= tops
    assert not {".venv", "build", "dist"} & tops


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_it_works_with_its_own_dependencies_alone(
    kind: str, made: Distributions, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    wheel = made.wheel
    if kind == "sdist":
        from_sdist: Distributions = request.getfixturevalue("from_sdist")
        wheel = from_sdist.wheel
    printed = use(clean_install(wheel, tmp_path / "environment"), tmp_path).splitlines()
    assert printed[0] == f"{fsspeckit.__version__} 1 2 []"
    assert "Hint: pip install duckdb" in "\n".join(printed[1:-1])
    assert printed[-1] == f"1 inserted, 1 updated; fsspeckit {fsspeckit.__version__}"


def clean_install(wheel: Path, environment: Path) -> Path:
    """Make an environment of the package and its dependencies, without downloading anything."""
    run(sys.executable, "-m", "venv", "--without-pip", environment, directory=wheel.parent)
    (packages,) = environment.glob("lib/python3*/site-packages")
    for name in runtime_distributions():
        link_distribution(name, packages)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", environment)
    offline = ("install", "--quiet", "--no-index", "--no-compile", wheel)
    # Not --no-deps: pip checks that every dependency is there in a version that is allowed.
    run(*pip, *offline, directory=wheel.parent)
    return environment


def test_every_extra_is_in_the_metadata(made: Distributions) -> None:
    with zipfile.ZipFile(made.wheel) as archive:
        (metadata,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        lines = archive.read(metadata).decode().splitlines()
    assert set(extras()) <= {
        line.partition(": ")[2] for line in lines if line.startswith("Provides-Extra: ")
    }
    engines, clouds = {"spark", "duckdb"}, {"s3", "gcs", "azure", "hdfs"}
    tools = {"airflow", "dagster", "dbt", "dlt", "otel"}
    assert set(extras()) == engines | clouds | tools | {"all"}


def test_the_versions_of_python_are_those_that_are_tried() -> None:
    """The classifiers, the interpreters that are looked for, and the oldest that is allowed."""
    from scripts.pythons import VERSIONS

    prefix = "Programming Language :: Python :: 3."
    named = [line for line in PROJECT["classifiers"] if line.startswith(prefix)]
    assert [f"3.{line.removeprefix(prefix)}" for line in named] == list(VERSIONS)
    assert PROJECT["requires-python"] == f">={VERSIONS[0]}"


def test_an_interpreter_is_found_by_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    from scripts.pythons import find, main

    monkeypatch.setenv("PYTHONS", f"{os.devnull}{os.pathsep}{sys.executable}")
    version = ".".join(map(str, sys.version_info[:2]))
    assert find(version) == (sys.executable, sys.version.split()[0])
    assert find("3.99") is None
    assert main(["3.99"]) == 0  # it is not there, and that is said


def test_variables_of_this_environment_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "src")
    assert "PYTHONPATH" not in package_check.clean_environment()
    with pytest.raises(RuntimeError, match="no such thing"):
        run(sys.executable, "-c", "raise SystemExit('no such thing')", directory=Path(os.sep))
    assert subprocess.run([sys.executable, "-c", ""], check=True).returncode == 0
