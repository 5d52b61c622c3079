"""Merges on object stores and HDFS whose processes are killed at any moment, and two at once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.storage.figures import Matrix
from tests.storage.merging import KEYS, changes, table

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.storage import list_files, open_storage, recover
from fsspeckit.testing.conformance.stores import TORTURE, killed_object_stores, object_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.storage.merging import Rows

    from fsspeckit.testing.object_stores import ObjectStore

pytestmark = [pytest.mark.slow, pytest.mark.untraced]
EVERY_CLOUD = pytest.mark.parametrize("merging", [*killed_object_stores(), "hdfs"], indirect=True)
KILLS, RUNS = (200, 50) if TORTURE else (6, 2)
FEWER = {} if TORTURE else {"hdfs": (3, 1)}
"""Where each file takes long to create: other numbers of kills and runs."""

KILLS_OF_ONE_DATASET, MERGES = 10, 4
KILLED, RETURNED, OLD_STATE, NEW_STATE, LOST, TWO, MERGED, LOST_BY_TWO = LINES = (
    "processes that were killed",
    "merges that had returned before",
    "the merge of the moment was not there",
    "it was there as a whole",
    "states with lost or doubled rows",
    "runs of two processes",
    "merges of both",
    "runs with lost or doubled rows",
)
FIGURES = Matrix(
    Path(__file__).parents[2] / "docs" / "concepts" / "what-survives-what.md", "kills", "", LINES
)
LONGEST = {"hdfs": 4.0}
"""Seconds after which a process is killed at the latest, so that some merges have returned."""
MODULES = {"s3": "s3fs", "abfs": "adlfs", "gs": "gcsfs", "hdfs": "hdfs_native.fsspec"}


class Merging:
    """Starts processes that merge into one store."""

    def __init__(self, kind: str, server: ObjectStore) -> None:
        self.kind = kind
        self.server = server
        self.bucket = server.make_bucket()
        self._answer, writing = os.pipe()
        self._writing = writing
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.storage.merging", MODULES[server.scheme]],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[writing],
        )

    def ask(self, line: str) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def start(
        self,
        path: str,
        start: int,
        end: int,
        writer: int = 0,
        writers: int = 1,
        host: str | None = None,
    ) -> int:
        """Start a process that merges, on a host of this name; its id."""
        request = {"path": path, "options": self.server.options, "start": start, "end": end}
        given = {"writer": writer, "writers": writers, "answer": self._writing, "host": host}
        return self.ask(json.dumps({**request, **given}))

    def returned(self) -> int:
        """How many merges have returned since this was asked last."""
        os.set_blocking(self._answer, False)
        try:
            return len(os.read(self._answer, 1 << 16))
        except BlockingIOError:
            return 0

    def dataset(self, name: str) -> str:
        """A new dataset in four files."""
        path = self.server.at(self.bucket, f"{name}/data")
        with PyarrowDatasetIO(storage_options=self.server.options) as io:
            io.write_dataset(table(dict.fromkeys(range(KEYS), -1)), path, max_rows_per_file=3)
        return path

    def rows(self, path: str) -> list[tuple[int, int]]:
        """The rows that any reader of plain files finds."""
        storage = open_storage(path, storage_options=self.server.options)
        found: list[tuple[int, int]] = []
        for file in list_files(storage.root).files:
            data = pq.read_table(pa.BufferReader(storage.backend.read(file.path)))
            found += zip(data["id"].to_pylist(), data["v"].to_pylist(), strict=True)
        return sorted(found)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        os.close(self._answer)
        os.close(self._writing)


@pytest.fixture
def merging(request: pytest.FixtureRequest) -> Iterator[Merging]:
    merging = Merging(request.param, object_store(request.param))
    yield merging
    merging.close()


def state(merges: int, writer: int = 0, writers: int = 1) -> Rows:
    """The values of a writer's rows after some of its merges."""
    rows = dict.fromkeys(range(writer, KEYS, writers), -1)
    for number in range(merges):
        rows |= changes(number, writer, writers)
    return rows


def write(merging: Merging, seen: Counter[str]) -> None:
    """Print what was counted; put it into the page if it is all."""
    for line in seen:
        sys.stdout.write(f"{line}, {merging.kind}: {seen[line]:,}\n")
        if TORTURE:
            FIGURES.write(line, merging.kind, f"{seen[line]:,}")


@EVERY_CLOUD
def test_a_process_that_is_killed_while_it_merges(merging: Merging) -> None:
    """What has returned is there, what has not is there as a whole or not at all."""
    chance = random.Random(22)
    path, done = "", 0
    seen: Counter[str] = Counter()
    kills, _ = FEWER.get(merging.kind, (KILLS, RUNS))
    for kill in range(kills):
        if kill % KILLS_OF_ONE_DATASET == 0:
            path, done = merging.dataset(f"killed-{kill}"), 0
        process = merging.start(path, done, done + 1_000)
        time.sleep(chance.uniform(0.05, LONGEST.get(merging.kind, 0.8)))
        os.kill(process, signal.SIGKILL)
        assert merging.ask("wait") == -signal.SIGKILL
        returned = merging.returned()
        done += returned
        recover(path, storage_options=merging.server.options)
        found = merging.rows(path)
        old, new = (sorted(state(merges).items()) for merges in (done, done + 1))
        seen.update(
            {
                KILLED: 1,
                RETURNED: returned,
                OLD_STATE: found == old,
                NEW_STATE: found == new,
                LOST: found not in (old, new),
            }
        )
        assert found in (old, new)
        done += found == new
    write(merging, seen)


@EVERY_CLOUD
def test_two_processes_that_merge_into_the_same_files(merging: Merging) -> None:
    seen: Counter[str] = Counter()
    _, runs = FEWER.get(merging.kind, (KILLS, RUNS))
    for run in range(runs):
        path = merging.dataset(f"two-{run}")
        for writer in range(2):
            merging.start(path, 0, MERGES, writer, 2)
        assert [merging.ask("wait") for _ in range(2)] == [0, 0]
        expected = sorted((state(MERGES, 0, 2) | state(MERGES, 1, 2)).items())
        found = merging.rows(path)
        seen.update({TWO: 1, MERGED: merging.returned(), LOST_BY_TWO: found != expected})
        assert found == expected
    assert seen[MERGED] == 2 * MERGES * runs
    write(merging, seen)


def test_a_state_knows_which_merges_it_has() -> None:
    """Else the tests above could not tell one from the next."""
    states = [tuple(sorted(state(merges).items())) for merges in range(30)]
    assert len(set(states)) == len(states)
