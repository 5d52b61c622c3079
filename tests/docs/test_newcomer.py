"""The README's five commands, in an environment that has the package and its dependencies alone.

`make test-newcomer` runs them all, pip included, and prints the seconds of each.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.newcomer import commands
from scripts.package_check import REPOSITORY, build, clean_environment
from tests.repository.test_package import clean_install

import fsspeckit

if TYPE_CHECKING:
    import pytest


def test_there_are_five_and_the_first_installs() -> None:
    install, *others = commands()
    assert install == "python -m pip install ."
    assert [command.split()[:2] for command in others] == [
        ["fsspeckit", "plan"],
        ["fsspeckit", "merge"],
        ["fsspeckit", "merge"],
        ["fsspeckit", "report"],
    ]


def test_they_end_with_a_merged_dataset_and_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = clean_install(build(tmp_path / "dist").wheel, tmp_path / "environment")
    variables = clean_environment()
    variables["PATH"] = f"{environment / 'bin'}{os.pathsep}{variables['PATH']}"
    shutil.copytree(REPOSITORY / "examples" / "quickstart", tmp_path / "examples" / "quickstart")
    for command in commands()[1:]:
        done = subprocess.run(
            command.split(), cwd=tmp_path, env=variables, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    monkeypatch.chdir(tmp_path)
    rows = fsspeckit.read_dataset("orders", engine="pyarrow").sort_by("order_id").to_pylist()
    assert [(row["order_id"], row["status"]) for row in rows] == [
        (1001, "placed"),
        (1002, "shipped"),
        (1003, "placed"),
        (1004, "placed"),
    ]
    assert [entry.strategy for entry in fsspeckit.history("orders")] == ["upsert", "upsert"]
    assert "<html" in Path("report.html").read_text(encoding="utf-8")[:500]
