"""Importing the package is cheap: no engine comes along."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import {module}
print(sorted({{"pyspark", "duckdb", "pandas", "polars"}} & sys.modules.keys()))
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
