"""Writers meet: pairs with the expected outcome in one line each, crowds, and stopped writers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import fsspec
import pytest
from tests.storage.checks import assert_tidy, read_consistently, read_plainly
from tests.storage.conftest import REPOSITORY
from tests.storage.figures import count
from tests.storage.scenario import FLAT, fresh
from tests.storage.writer import Plan, write

from fsspeckit.storage import history, recover, recover_storage

if TYPE_CHECKING:
    from collections.abc import Iterator

OTHER = 10  # the id of a file that the first writer does not touch
SAME = 0


class Writer:
    """A writer in a process of its own."""

    def __init__(self, plan: Plan) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.storage.writer", json.dumps(asdict(plan))],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_until_halted(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "halted\n"

    def wait_until_stopped(self) -> None:
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def finish(self) -> str:
        out, _ = self.process.communicate("go on\n", timeout=60)
        return str(json.loads(out.splitlines()[-1])["outcome"])


@pytest.fixture
def root(tmp_path: Path) -> str:
    return fresh(FLAT, str(tmp_path / "x"))


@pytest.fixture
def writers() -> Iterator[list[Writer]]:
    """Writers that are ended if a test fails half-way."""
    started: list[Writer] = []
    yield started
    for writer in started:
        if writer.process.poll() is None:
            writer.process.kill()
        writer.process.communicate()


def expected_rows(*changes: tuple[int, str]) -> list[tuple[int, str]]:
    rows = dict(FLAT.old())
    for start, version in changes:
        rows.update({start: version, start + 1: version})
    return sorted(rows.items())


# the first writer halts after this step | the second wants | re-plan | outcomes: second, first
PAIRS = [
    ("snapshot", OTHER, False, "done", "conflict"),
    ("snapshot", OTHER, True, "done", "done"),
    ("snapshot", SAME, False, "done", "conflict"),
    ("snapshot", SAME, True, "done", "done"),
    ("snapshot", None, False, "done", "conflict"),
    ("snapshot", None, True, "done", "done"),
    ("lock", OTHER, False, "timeout", "done"),
    ("shadow", OTHER, False, "timeout", "done"),
    ("record", OTHER, False, "timeout", "done"),
    ("record", SAME, True, "timeout", "done"),
    ("publish", OTHER, False, "timeout", "done"),
    ("publish", None, True, "timeout", "done"),
    ("trash", OTHER, False, "timeout", "done"),
    ("done", OTHER, False, "timeout", "done"),
]
# the same without locks: a commit of a writer that is running is left to it
PAIRS_WITHOUT_LOCK = [
    ("snapshot", OTHER, False, "done", "conflict"),
    ("snapshot", SAME, True, "done", "done"),
    ("record", OTHER, False, "timeout", "done"),
    ("publish", OTHER, False, "timeout", "done"),
    ("done", OTHER, False, "done", "done"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "wanted", "replan", "second", "first", "generic"),
    [(*pair, False) for pair in PAIRS] + [(*pair, True) for pair in PAIRS_WITHOUT_LOCK],
)
def test_pairs(
    root: str,
    writers: list[Writer],
    step: str,
    wanted: int | None,
    replan: bool,
    second: str,
    first: str,
    generic: bool,
) -> None:
    mine = Plan(root, SAME, version="first", step=step, replan=replan, generic=generic)
    writers.append(Writer(mine))
    writers[0].wait_until_halted()
    other = Plan(root, wanted, version="second", lock_timeout=0.2, generic=generic)
    assert write_or_time_out(other) == second
    assert writers[0].finish() == first
    changes = [(500 if wanted is None else wanted, "second")] if second == "done" else []
    changes += [(SAME, "first")] if first == "done" else []
    assert read_plainly(root) == expected_rows(*changes)
    assert not recover_storage(other.open())
    assert_tidy(root)
    count(f"pairs of writers, {'no' if generic else 'kernel'} lock", tried=1, losses=0)


def write_or_time_out(plan: Plan) -> str:
    """The second writer may already meet the lock when it recovers for its snapshot."""
    try:
        return str(write(plan)["outcome"])
    except TimeoutError:
        return "timeout"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "publish"),
    [
        *((step, "auto") for step in ("lock", "shadow", "record", "publish", "trash", "done")),
        *((step, "plain") for step in ("lock", "record", "publish", "trash")),
    ],
)
def test_a_stopped_writer_makes_others_time_out(
    root: str, writers: list[Writer], step: str, publish: str
) -> None:
    mine = Plan(root, SAME, version="first", step=step, how="stop", publish=publish)
    writers.append(Writer(mine))
    writers[0].wait_until_stopped()
    visible = read_plainly(root)
    other = Plan(root, OTHER, version="second", lock_timeout=0.2, publish=publish)
    assert write_or_time_out(other) == "timeout"
    assert read_plainly(root) == visible
    os.kill(writers[0].process.pid, signal.SIGCONT)
    assert writers[0].finish() == "done"
    assert write(other)["outcome"] == "done"
    assert read_plainly(root) == expected_rows((SAME, "first"), (OTHER, "second"))
    count("stopped writers", tried=1, losses=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "first", "publish"),
    [
        ("lock", "conflict", "auto"),
        ("shadow", "conflict", "auto"),
        ("record", "done", "auto"),
        ("publish", "done", "auto"),
        ("lock", "conflict", "plain"),
        ("record", "done", "plain"),
        ("publish", "done", "plain"),
    ],
)
def test_a_stopped_writer_cannot_publish_over_a_later_commit(
    root: str, writers: list[Writer], step: str, first: str, publish: str
) -> None:
    """Even when somebody deletes the lock to get past it, which the message warns against."""
    mine = Plan(root, SAME, version="first", step=step, how="stop", publish=publish)
    writers.append(Writer(mine))
    writers[0].wait_until_stopped()
    other = Plan(root, OTHER, version="second", lock_timeout=0.2, publish=publish)
    os.unlink(other.open().control.lock)
    assert write(other)["outcome"] == "done"
    assert write(replace(other, version="third"))["outcome"] == "done"
    os.kill(writers[0].process.pid, signal.SIGCONT)
    assert writers[0].finish() == first
    changes = [(OTHER, "third")] + ([(SAME, "first")] if first == "done" else [])
    assert read_plainly(root) == expected_rows(*changes)
    recover(root)
    assert read_plainly(root) == expected_rows(*changes)
    assert_tidy(root)
    count("stopped writers whose lock was deleted", tried=1, losses=0)


@pytest.mark.slow
@pytest.mark.parametrize("crowd", [2, 3, 4])
@pytest.mark.parametrize("place", ["local", "memory"])
@pytest.mark.parametrize("replan", [False, True], ids=["give up", "re-plan"])
def test_a_crowd_of_writers(root: str, crowd: int, place: str, replan: bool) -> None:
    """All start from the same snapshot. What is reported as done is there, and nothing else."""
    where = root if place == "local" else _in_memory(root)
    plans = [
        Plan(where, None, adds=1000 + 10 * number, version=f"w{number}", replan=replan)
        for number in range(crowd)
    ]
    outcomes = _run_together(plans)
    done = [plan for plan, outcome in zip(plans, outcomes, strict=True) if outcome == "done"]
    assert set(outcomes) <= {"done", "conflict"}
    assert len(done) == (crowd if replan else 1)
    rows = expected_rows(*((plan.adds, plan.version) for plan in done))
    assert read_consistently(plans[0].open()) == rows
    assert len(history(where)) == len(done)
    count(f"crowds of writers, {place}", tried=1, losses=0, writers=crowd, done=len(done))


def _in_memory(root: str) -> str:
    """Copy a dataset to a filesystem without locks, renames and exchange."""
    url = f"memory://{root}"
    for name in FLAT.files:
        with fsspec.open(f"{url}/{name}", "wb") as file:
            file.write((Path(root) / name).read_bytes())
    return url


def _run_together(plans: list[Plan]) -> list[str]:
    """Each writer in a thread; locks are between open files, so threads are as good."""
    barrier = threading.Barrier(len(plans))

    def run(plan: Plan) -> str:
        try:
            return str(write(plan, barrier.wait)["outcome"])
        except BaseException:
            barrier.abort()  # nobody waits for a writer that has failed
            raise

    with ThreadPoolExecutor(len(plans)) as pool:
        futures = [pool.submit(run, plan) for plan in plans]
    failures = [error for error in (future.exception() for future in futures) if error is not None]
    causes = [error for error in failures if not isinstance(error, threading.BrokenBarrierError)]
    for error in causes or failures:
        raise error
    return [future.result() for future in futures]
