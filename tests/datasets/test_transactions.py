"""Jobs in processes of their own, killed and started again: each batch is applied once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from tests.datasets.transaction_job import FEEDS, JOBS, Job, events_of

import fsspeckit
from fsspeckit import Transaction
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.errors import InvalidArgumentError
from fsspeckit.testing.feed_model import feed_rows

REPOSITORY = Path(__file__).parents[2]
SECONDS = 60.0 if os.environ.get("TORTURE") else 2.0


class Jobs:
    """Four jobs that write the same dataset."""

    def __init__(self, root: Path, checkpoints: Path, scd_type: int | None) -> None:
        self._root, self._checkpoints, self._scd_type = root, checkpoints, scd_type
        checkpoints.mkdir()
        self._started = [0.0] * JOBS
        self._jobs = [self._start(number) for number in range(JOBS)]
        self.kills = 0

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        self._started[number] = time.time()
        job = Job(str(self._root), str(self._checkpoints), f"job{number}", self._scd_type)
        command = [sys.executable, "-m", "tests.datasets.transaction_job", json.dumps(asdict(job))]
        return subprocess.Popen(command, cwd=REPOSITORY)

    def _is_at_work(self, number: int) -> bool:
        """Whether a job has applied a batch since it was started."""
        place = self._checkpoints / f"job{number}-own-job{number}"
        return place.exists() and place.stat().st_mtime > self._started[number]

    def wait_until_at_work(self) -> None:
        deadline = time.time() + 120
        while not all(map(self._is_at_work, range(JOBS))):
            assert time.time() < deadline, "a job does not begin"
            time.sleep(0.05)

    def kill_one(self, number: int) -> None:
        self._jobs[number].kill()
        self._jobs[number].wait()
        self._jobs[number] = self._start(number)
        self.kills += 1

    def stop(self) -> None:
        (self._checkpoints / "stop").touch()
        assert [job.wait(120) for job in self._jobs] == [0] * JOBS

    def end(self) -> None:
        """End what is left of them: jobs of a test that fails would go on for ever."""
        for job in self._jobs:
            job.kill()
            job.wait()


def run_jobs(root: Path, checkpoints: Path, scd_type: int | None = None) -> int:
    """Run the jobs for some time, and kill one of them again and again; gives how often."""
    jobs, random = Jobs(root, checkpoints, scd_type), Random(7)
    try:
        jobs.wait_until_at_work()
        end = time.time() + SECONDS
        while time.time() < end:
            time.sleep(random.uniform(0.1, 0.5))
            jobs.kill_one(random.randrange(JOBS))
            jobs.wait_until_at_work()
        jobs.stop()
    finally:
        jobs.end()
    return jobs.kills


def batches_of(root: Path) -> list[Transaction]:
    """The batches on record: each of them once, and of no feed is one left out."""
    commits = Counter(entry.transaction for entry in fsspeckit.history(str(root)))
    assert set(commits.values()) == {1}
    batches = [batch for batch in commits if batch]
    assert {batch.application for batch in batches} == set(FEEDS)
    for feed in FEEDS:
        versions = sorted(batch.version for batch in batches if batch.application == feed)
        assert versions == list(range(len(versions)))
    return batches


@pytest.mark.slow
def test_four_jobs_that_are_killed_apply_each_batch_once(tmp_path: Path) -> None:
    """Every batch up to the last one is there; of those with a row, the row is there once."""
    root, checkpoints = tmp_path / "data", tmp_path / "checkpoints"
    kills = run_jobs(root, checkpoints)
    rows = PyarrowDatasetIO().read_dataset(str(root)).to_pylist()
    applied = Counter((row["feed"], row["version"]) for row in rows)
    assert set(applied.values()) == {1}
    batches = batches_of(root)
    with_rows = [(b.application, b.version) for b in batches if b.version % 5 != 4]
    assert sorted(applied) == sorted(with_rows)
    sys.stdout.write(f"{len(batches)} batches of {len(FEEDS)} feeds, {kills} kills\n")


@pytest.mark.slow
@pytest.mark.parametrize("scd_type", [1, 2])
def test_four_jobs_that_are_killed_apply_the_same_and_other_changes(
    tmp_path: Path, scd_type: int
) -> None:
    """Inserts, updates and deletes of the same keys: the rows are those of all feeds together."""
    root, checkpoints = tmp_path / "data", tmp_path / "checkpoints"
    kills = run_jobs(root, checkpoints, scd_type)
    batches = batches_of(root)
    events = [event for batch in batches for event in events_of(batch).to_pylist()]
    expected = feed_rows(events, ["id"], "seq", "gone", scd_type)
    assert not fsspeckit.recover(str(root)).completed
    rows = PyarrowDatasetIO().read_dataset(str(root)).to_pylist()
    assert Counter(map(repr, rows)) == Counter(map(repr, expected))
    assert any(event["gone"] for event in events)
    sys.stdout.write(f"type {scd_type}: {len(batches)} batches of changes, {kills} kills\n")


@pytest.mark.parametrize("wrong", [("feed", 1), "feed:1", {"application": "feed"}])
@pytest.mark.parametrize("call", ["merge", "write"])
def test_a_transaction_is_a_transaction(tmp_path: Path, call: str, wrong: Any) -> None:
    io, rows, path = PyarrowDatasetIO(), pa.table({"id": [1]}), str(tmp_path / "d")
    calls: dict[str, Any] = {
        "merge": partial(io.merge, rows, path, "upsert", ["id"]),
        "write": partial(io.write_dataset, rows, path),
    }
    with pytest.raises(InvalidArgumentError, match=r"transaction must be a Transaction.*\nHint: "):
        calls[call](transaction=wrong)
    assert list(tmp_path.iterdir()) == []


def test_the_calls_of_the_package_take_transactions(tmp_path: Path) -> None:
    path, rows = str(tmp_path / "d"), pa.table({"id": [1, 2]})
    batch = Transaction("feed", 3)
    first: dict[str, Any] = {"transaction": batch, "engine": "pyarrow"}
    fsspeckit.write_dataset(rows, path, **first)
    assert fsspeckit.write_dataset(rows, path, **first).metrics["commit"]["skipped"]
    assert fsspeckit.merge(rows, path, "upsert", "id", **first).metrics["commit"]["skipped"]
    plan = fsspeckit.plan_merge(rows, path, "upsert", "id", **first)
    assert "would be skipped: transaction feed:3 is commit 1" in str(plan)
    assert fsspeckit.execute(plan).metrics["commit"]["skipped"]
    assert fsspeckit.read_dataset(path, engine="pyarrow").num_rows == 2
