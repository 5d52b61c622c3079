"""Every example script runs, from anywhere, and says something."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = sorted(
    path
    for path in (Path(__file__).parents[2] / "examples").glob("*.py")
    if path.name != "demo.py"  # large, and test_demo.py looks at what it says
)


OF_ENGINES = "merge_strategies.py"
OF_SPARK = "streaming_orders.py"


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [
        pytest.param(path, marks=[pytest.mark.spark] if path.name == OF_SPARK else [])
        for path in EXAMPLES
    ],
    ids=lambda path: path.name,
)
def test_examples_run(script: Path, tmp_path: Path) -> None:
    # What it does on Spark is a test of its own, which need not start another one.
    chosen = ["duckdb", "pyarrow"] if script.name == OF_ENGINES else []
    done = subprocess.run(
        [sys.executable, str(script), *chosen],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_envelopes_of_debezium(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (script,) = (path for path in EXAMPLES if path.name == "debezium.py")
    monkeypatch.setattr(sys, "argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out.splitlines() == [
        "0 late; now [(1, 'Ada L.'), (2, 'Bob')]",
        "0 late; now [(1, 'Ada L.')]",
        "1 late; now [(1, 'Ada L.')]",
        "2 late; now [(1, 'Ada L.')]",
        "0 late; now [(3, 'Cy')]",
    ]


@pytest.mark.spark
def test_the_strategies_run_on_spark(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (script,) = (path for path in EXAMPLES if path.name == OF_ENGINES)
    monkeypatch.setattr(sys, "argv", [str(script), "spark"])
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out.count("spark ") == 3


def test_a_night_is_applied_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (script,) = (path for path in EXAMPLES if path.name == "nightly_orders.py")
    monkeypatch.setattr(sys, "argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[2] for line in lines[1:4:2]] == ["committed already"] * 2
    assert "transaction orders-nightly:20260302" in lines[4]
    assert "transaction orders-nightly:20260303" in lines[5]
