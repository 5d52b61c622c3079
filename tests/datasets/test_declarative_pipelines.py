"""A project of ``fsspeckit init pipeline``, run by Spark's own command ``spark-pipelines run``."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import fsspeckit
from fsspeckit.cli.commands.init import write_project
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.testing.landing import make_day

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fsspeckit.testing.landing import Day

TORTURE = bool(os.environ.get("TORTURE"))
COMMAND = Path(sys.executable).parent / "spark-pipelines"
KILLS = 3
SECONDS = 600
"""How long a run may take on a busy machine."""


class Project:
    """A generated project whose landing directory is empty."""

    def __init__(self, directory: Path, files_per_batch: int) -> None:
        write_project("pipeline", str(directory))
        self.directory = directory
        self.landing = directory / "landing"
        self.orders = directory / "data" / "orders"
        for example in self.landing.iterdir():
            example.unlink()
        script = directory / "transformations" / "orders.py"
        text = script.read_text("utf-8")
        few = text.replace('"maxFilesPerTrigger", 100', f'"maxFilesPerTrigger", {files_per_batch}')
        assert few != text
        script.write_text(few, encoding="utf-8")

    @contextmanager
    def started(self, *options: str) -> Iterator[subprocess.Popen[str]]:
        """Start a run in a process group of its own, of which nothing is left at the end."""
        environment = {
            **{name: value for name, value in os.environ.items() if name != "SPARK_HOME"},
            "PATH": f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        command = [str(COMMAND), *options, "run"]
        with open(self.directory / "run.log", "w+") as log:
            process = subprocess.Popen(
                command,
                cwd=self.directory,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                text=True,
            )
            try:
                yield process
            finally:
                _kill(process)

    def run(self, *options: str) -> str:
        """Run to the end and return what was printed."""
        with self.started(*options) as process:
            code = process.wait(SECONDS)
        printed = (self.directory / "run.log").read_text(errors="replace")
        assert code == 0, printed[-6000:]
        assert "Run is COMPLETED" in printed
        return printed

    def commits(self) -> int:
        """The number of commits so far."""
        return len(fsspeckit.history(self.orders)) if self.orders.exists() else 0

    def kill_after(self, commits: int) -> None:
        """Start a run and kill it, the server and the driver, as soon as it has committed."""
        with self.started() as process:
            end = time.monotonic() + SECONDS
            while self.commits() < commits:
                assert process.poll() is None, (self.directory / "run.log").read_text()[-6000:]
                assert time.monotonic() < end
                time.sleep(0.002)

    def check(self, day: Day) -> None:
        """Compare everything with what the landed files amount to."""
        assert _rows(self.orders, "order_id") == day.expected_rows()
        quarantine = _rows(self.directory / "data" / "quarantine", "order_id", "updated_at")
        reasons = [row.pop("quarantine_reasons") for row in quarantine]
        landed = [{k: v for k, v in row.items() if "quarantine_" not in k} for row in quarantine]
        assert landed == day.expected_quarantine()
        assert all(reason == ["valid amount"] for reason in reasons)
        incoming = self.orders.parent / ".orders.fsspeckit" / "incoming"
        assert [path for path in incoming.rglob("*") if path.is_file()] == []


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill every process of a run: the command, its server, the driver."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        process.wait()


def _rows(path: Path, *by: str) -> list[dict[str, Any]]:
    rows = PyarrowDatasetIO().read_dataset(str(path)).to_pylist()
    return sorted(
        ({**row, "day": str(row["day"])} for row in rows), key=lambda row: [row[n] for n in by]
    )


def _land(day: Day, directory: Path, first: int, last: int) -> None:
    for file in day.files[first:last]:
        file.write(directory)


@pytest.mark.slow
@pytest.mark.spark
def test_a_generated_project_runs(tmp_path: Path, spark_connect_url: str) -> None:
    """On a server that is there already, which saves half of the time."""
    project = Project(tmp_path / "my project", files_per_batch=6)
    day = make_day(files=10, orders=60, seed=20)
    _land(day, project.landing, 0, 8)
    project.run("--remote", spark_connect_url)
    project.check(day.first(8))
    assert project.commits() == 2
    _land(day, project.landing, 8, 10)
    project.run("--remote", spark_connect_url)
    project.check(day)
    assert project.commits() == 3


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.skipif(not TORTURE, reason="takes minutes; see make torture-pipelines")
def test_a_killed_project_runs_again(tmp_path: Path) -> None:
    """With a server of its own, as in a clean clone: twice in a row, and after each kill."""
    project = Project(tmp_path / "feed", files_per_batch=2)
    day = make_day(files=24, orders=200, seed=random.randrange(10**6))
    _land(day, project.landing, 0, 20)
    for _ in range(KILLS):
        project.kill_after(project.commits() + random.randint(1, 2))
    project.run()
    project.check(day.first(20))
    project.run()
    project.check(day.first(20))
    _land(day, project.landing, 20, 24)
    project.run()
    project.check(day)
    batches = [entry.transaction for entry in fsspeckit.history(project.orders)]
    assert [batch.version for batch in batches if batch] == list(range(12))
