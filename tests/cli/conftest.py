"""What the tests of the command line share: a runner and a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from tests.cli.running import Ran, rows
from typer.testing import CliRunner

from fsspeckit.cli.app import app

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.running import Run


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No config file and no variables of whoever runs the tests; a directory of their own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-config"))
    for name in ("FSSPECKIT_CONFIG", "FSSPECKIT_STORAGE_OPTIONS", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run() -> Run:
    """Runs a command in this process."""

    def call(*words: object, stdin: bytes | None = None) -> Ran:
        return Ran(CliRunner().invoke(app, [str(word) for word in words], input=stdin))

    return call


@pytest.fixture
def done(run: Run) -> Run:
    """Runs a command that must end well."""

    def call(*words: object, stdin: bytes | None = None) -> Ran:
        ran = run(*words, stdin=stdin)
        assert ran.code == 0, ran.err
        return ran

    return call


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Nine rows in three files whose ranges do not overlap, written by somebody else."""
    path = tmp_path / "data"
    path.mkdir()
    for number in range(3):
        first = number * 100
        pq.write_table(rows(first, first + 1, first + 2), path / f"part-{number}.parquet")
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two rows: one is in the second file of the dataset, one in none."""
    path = tmp_path / "source.parquet"
    pq.write_table(rows(101, 999, v="new"), path)
    return path
