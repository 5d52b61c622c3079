"""Importing the package works, and is cheap: no engine and no parser comes along."""

from __future__ import annotations

import importlib
import importlib.util
import pathlib
import pkgutil
import runpy
import subprocess
import sys
import tomllib

import pytest

import fsspeckit

OF_TOOLS = {f"fsspeckit.integrations.{tool}": tool for tool in ("airflow", "dagster", "dbt", "dlt")}
"""Modules that only a program of a tool imports, and the tool."""


def skip_without_tool(module: str) -> None:
    """Skip the test of an integration whose tool has an environment of its own."""
    tool = OF_TOOLS.get(module)
    if tool is not None and importlib.util.find_spec(tool) is None:
        pytest.skip(f"{tool} is not installed here: make test-integrations")


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


NEW_MODULES = """
import sys
before = set(sys.modules)
import fsspeckit
print(*sorted(sys.modules.keys() - before))
"""
MAX_NEW_MODULES = 40
"""What `typing` needs, and little else: 28 modules, and 8 ms, with Python 3.11."""


def test_import_of_the_package_loads_nothing_else() -> None:
    """Not even logging, or a module of the package: calls load what they need when they are used.

    Time is not asserted here; `python -m benchmarks.bench_import` measures it.
    """
    done = subprocess.run(
        [sys.executable, "-c", NEW_MODULES], capture_output=True, text=True, check=True
    )
    new = set(done.stdout.split())
    assert {name for name in new if name.startswith("fsspeckit")} == {"fsspeckit"}
    assert {name.partition(".")[0] for name in new} - sys.stdlib_module_names == {"fsspeckit"}
    assert not new & {"asyncio", "dataclasses", "inspect", "json", "logging", "pathlib"}
    assert len(new) <= MAX_NEW_MODULES


@pytest.mark.parametrize(
    "module", [module.name for module in pkgutil.walk_packages(fsspeckit.__path__, "fsspeckit.")]
)
def test_every_module_can_be_imported(module: str) -> None:
    skip_without_tool(module)
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


def test_the_package_runs_as_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fsspeckit", "--version"], capture_output=True, text=True
    )
    assert done.stdout == f"fsspeckit {fsspeckit.__version__}\n", done.stderr


def test_the_module_of_the_package_is_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fsspeckit", "--version"])
    monkeypatch.delitem(sys.modules, "fsspeckit.__main__", raising=False)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("fsspeckit", run_name="__main__")
    assert ended.value.code in (None, 0)
    assert capsys.readouterr().out == f"fsspeckit {fsspeckit.__version__}\n"
