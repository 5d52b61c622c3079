"""Importing the package works, and is cheap: no engine and no parser comes along."""

from __future__ import annotations

import importlib
import pathlib
import pkgutil
import subprocess
import sys
import tomllib

import pytest

import fsspeckit

PROGRAM = """
import sys
import {module}
print(sorted({{"pyspark", "duckdb", "pandas", "polars", "sqlglot"}} & sys.modules.keys()))
"""


@pytest.mark.parametrize("module", ["fsspeckit", "fsspeckit.core", "fsspeckit.storage"])
def test_import_loads_no_engine(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(module=module)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "module", [module.name for module in pkgutil.walk_packages(fsspeckit.__path__, "fsspeckit.")]
)
def test_every_module_can_be_imported(module: str) -> None:
    assert importlib.import_module(module).__doc__


def test_what_spark_imports_to_find_the_data_source_is_light() -> None:
    """Spark does so for every data source of Python, whether it is ours or not."""
    program = PROGRAM.format(module="pyspark_fsspeckit") + (
        "print(pyspark_fsspeckit.DefaultSource.name(), 'fsspeckit' in sys.modules, "
        "'pyarrow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["['pyspark']", "fsspeckit False False"], done.stderr


def test_the_wheel_has_every_module_at_the_top() -> None:
    sources = pathlib.Path(fsspeckit.__file__).parents[1]
    pyproject = tomllib.loads((sources.parent / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = pyproject["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    found = [entry for entry in sources.iterdir() if entry.name != "__pycache__"]
    assert sorted(wheel) == sorted(f"src/{entry.name}" for entry in found)
