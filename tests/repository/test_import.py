"""Importing the package works, and is cheap: no engine and no parser comes along."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

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
