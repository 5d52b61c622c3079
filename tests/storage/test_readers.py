"""Readers that know nothing of us read all the time while writers commit, and die."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.storage.checks import read_consistently, read_plainly
from tests.storage.conftest import REPOSITORY
from tests.storage.figures import count
from tests.storage.forkserver import DIED
from tests.storage.reader import READERS
from tests.storage.scenario import FLAT, PARTITIONED, build, fresh, rewrite_all

from fsspeckit.storage import Change, commit, open_storage, stable_files, staging, take_snapshot
from fsspeckit.storage.recovery import recover

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.storage.conftest import ForkServer

STEP = 1 if os.environ.get("TORTURE") else 5
SECONDS = 120 if os.environ.get("TORTURE") else 20


@pytest.fixture
def roots(tmp_path: Path) -> list[str]:
    made = []
    for scenario in (FLAT, PARTITIONED):
        made.append(str(tmp_path / scenario.name / "data"))
        build(scenario, made[-1])
    return made


@pytest.fixture
def readers(roots: list[str], tmp_path: Path) -> Iterator[dict[str, subprocess.Popen[str]]]:
    stop = tmp_path / "stop"
    started = {
        engine: subprocess.Popen(
            [sys.executable, "-m", "tests.storage.reader", engine, str(stop), *roots],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            text=True,
        )
        for engine in READERS
    }
    for process in started.values():
        assert process.stdout is not None
        assert process.stdout.readline() == "reading\n"
    yield started
    stop.touch()
    for process in started.values():
        process.communicate(timeout=60)


@pytest.mark.slow
def test_no_reader_sees_half_a_commit(
    fork_server: ForkServer,
    roots: list[str],
    readers: dict[str, subprocess.Popen[str]],
    tmp_path: Path,
) -> None:
    dice = random.Random(20261115)
    commits = deaths = 0
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        for root in roots:
            kill = dice.randrange(120) if dice.random() < 0.4 else None
            answer = fork_server.run("rewrite", root, version=f"v{commits}", kill=kill)
            deaths += answer["exit"] == DIED
            commits += answer["exit"] == 0
    (tmp_path / "stop").touch()
    verdicts = {name: _verdicts(process) for name, process in readers.items()}
    for engine, seen in verdicts.items():
        failed = {kind: seen.pop(kind, 0) for kind in ("file_not_found", "no_file_listed")}
        right = seen.pop("right", 0)
        tried = right + sum(failed.values())
        title = f"{engine} reads while writers commit and die"
        count(title, tried=tried, new=right, losses=sum(seen.values()), **failed)
        assert seen == {}, engine
        assert right > 20
    count("writers while readers read", tried=commits + deaths, new=commits, killed=deaths)
    assert commits > 20
    assert deaths > 5
    for root in roots:
        recover(root)
        assert len({version for _, version in read_plainly(root)}) == 1


def _verdicts(process: subprocess.Popen[str]) -> dict[str, int]:
    out, _ = process.communicate(timeout=60)
    seen: dict[str, int] = json.loads(out.splitlines()[-1])
    return seen


@pytest.mark.parametrize("publish", ["auto", "plain"])
@pytest.mark.slow
def test_our_own_readers_are_right_while_a_writer_works(
    fork_server: ForkServer, tmp_path: Path, publish: str
) -> None:
    """Also in the publish window of a plain publish, where other readers see both states."""
    root = fresh(PARTITIONED, str(tmp_path / "x"))
    storage = open_storage(root)
    ids = [row for row, _ in PARTITIONED.old()]
    index = 0
    rewrite_all(root, "start", publish="plain")
    while True:
        answer = fork_server.run("rewrite", root, version=f"v{index}", kill=index, publish=publish)
        rows = read_consistently(storage)
        assert [row for row, _ in rows] == ids
        assert len({version for _, version in rows}) == 1
        count(f"our own reader after deaths at calls, {publish}", tried=1, losses=0)
        if answer["exit"] == 0:
            break
        index += STEP
    assert stable_files(storage).number > 3


def test_a_dataset_that_is_not_there(tmp_path: Path) -> None:
    found = stable_files(open_storage(tmp_path / "nothing"))
    assert (found.number, found.files, found.exists) == (0, (), False)


def test_an_empty_change_writes_nothing(tmp_path: Path) -> None:
    storage = open_storage(fresh(FLAT, str(tmp_path / "x")))
    snapshot = take_snapshot(storage)
    with staging(storage) as stage:
        outcome = commit(storage, snapshot, stage, Change())
    assert (outcome.number, outcome.published) == (0, None)
    assert stable_files(storage).number == 0
