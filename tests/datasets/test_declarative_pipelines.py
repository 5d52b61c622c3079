"""A project of ``fsspeckit init pipeline``, run by Spark's own command ``spark-pipelines run``."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import fsspeckit
from fsspeckit.cli.commands.init import write_project
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.testing.landing import applied_rows, bad_rows, make_day

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fsspeckit.testing.landing import Day

TORTURE = bool(os.environ.get("TORTURE"))
COMMAND = Path(sys.executable).parent / "spark-pipelines"
KILLS = 3
SECONDS = 600
"""How long a run may take on a busy machine."""


class Project:
    """A generated project."""

    def __init__(self, directory: Path, files_per_batch: int) -> None:
        write_project("pipeline", str(directory))
        self.directory = directory
        self.landing = directory / "landing"
        self.orders = directory / "data" / "orders"
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

    def noted(self) -> int:
        """The number of batches that Spark has noted as done."""
        notes = (self.directory / "pipeline-storage").rglob("commits/*")
        return sum(path.name.isdecimal() for path in notes)

    def check(self, landed: list[dict[str, Any]]) -> None:
        """Compare everything with what landed rows amount to."""
        assert _rows(self.orders, "order_id") == applied_rows(landed)
        quarantine = _rows(self.directory / "data" / "quarantine", "order_id", "updated_at")
        reasons = [row.pop("quarantine_reasons") for row in quarantine]
        bad = [{k: v for k, v in row.items() if "quarantine_" not in k} for row in quarantine]
        assert bad == bad_rows(landed)
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


def _examples(project: Project) -> list[dict[str, Any]]:
    """The rows that a new project has in its landing directory, as it is to clean them."""
    files = sorted(project.landing.iterdir())
    rows = [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]
    times = [datetime.fromisoformat(row["updated_at"]) for row in rows]
    return [
        {**row, "customer": row["customer"].strip(), "updated_at": at}
        for row, at in zip(rows, times, strict=True)
    ]


def _land(day: Day, directory: Path) -> None:
    for file in day.files:
        file.write(directory)


@pytest.mark.slow
@pytest.mark.spark
def test_a_generated_project_runs(tmp_path: Path, spark_connect_url: str) -> None:
    """On a server that is there already, which saves half of the time."""
    project = Project(tmp_path / "my project", files_per_batch=6)
    landed = _examples(project)
    project.run("--remote", spark_connect_url)
    project.check(landed)
    written = tmp_path / "my%20project" / "pipeline-storage"
    assert written.is_dir()  # Spark escapes the space, as a comment in spark-pipeline.yml says
    assert [row["order_id"] for row in applied_rows(landed)] == [1, 3, 5]  # as its README says
    assert [row["order_id"] for row in bad_rows(landed)] == [4]
    day = make_day(files=8, orders=60, seed=20, existing=[{**landed[0], "order_id": 99}])
    _land(day, project.landing)
    project.run("--remote", spark_connect_url)
    project.check([*landed, *day.landed_rows()])
    assert project.commits() == 3


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.skipif(not TORTURE, reason="takes minutes; see make torture-pipelines")
def test_a_killed_project_runs_again(tmp_path: Path) -> None:
    """With a server of its own, as in a clean clone: twice in a row, and after each kill."""
    project = Project(tmp_path / "feed", files_per_batch=2)
    for example in project.landing.iterdir():
        example.unlink()
    day = make_day(files=24, orders=200, seed=random.randrange(10**6))
    _land(day.first(20), project.landing)
    for _ in range(KILLS):
        project.kill_after(project.commits() + random.randint(1, 2))
        assert project.noted() <= project.commits() <= project.noted() + 1
    for _ in range(2):
        project.run()
        project.check(day.first(20).landed_rows())
    _land(day, project.landing)  # the first files again, which Spark has read
    project.run()
    project.check(day.landed_rows())
    batches = [entry.transaction for entry in fsspeckit.history(project.orders)]
    assert [batch.version for batch in batches if batch] == list(range(12))
