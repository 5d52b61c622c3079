"""A process that merges again and again into a dataset while something else happens to it.

It updates rows that no other process updates, and appends a line for each merge to its log: when it
began, how long it took, and what the rows hold since. So a reader of the logs knows what the
dataset must hold at the end.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

if TYPE_CHECKING:
    from collections.abc import Iterator

STOP = "stop"
_PAUSE = 0.25
"""Seconds between two merges: a feed that brings rows, not a loop that does nothing else."""


@dataclass
class Log:
    """What merging processes have done."""

    merges: list[tuple[float, float]] = field(default_factory=list)
    """When each merge began, and how many seconds it took."""

    values: dict[int, int] = field(default_factory=dict)
    """What rows hold since, by their key."""


def merge_until_stopped(path: str, directory: Path, number: int, writers: int, keys: int) -> None:
    """Merge some rows of our own, until there is a file that says to stop."""
    draw = random.Random(number)
    with (
        PyarrowDatasetIO(lock_timeout=120.0) as io,
        open(directory / f"{number}.log", "w", encoding="utf-8") as log,
    ):
        value = 0
        while not (directory / STOP).exists():
            value += 1
            # Neighbouring keys, which few files hold, as those of a feed of new events.
            start = draw.randrange(keys // writers - 20)
            own = [key * writers + number for key in range(start, start + 20)]
            numbers = {f"x{n}": [draw.random() for _ in own] for n in range(4)}
            rows = pa.table({"id": own, "value": [value] * len(own), **numbers})
            begun, clock = time.time(), time.perf_counter()
            done = io.merge(rows, path, "update", ["id"])
            entry = {
                "at": begun,
                "seconds": time.perf_counter() - clock,
                "ids": own,
                "retries": done.metrics["commit"]["retries"],
            }
            log.write(json.dumps({**entry, "value": value}) + "\n")
            log.flush()
            time.sleep(_PAUSE)


@contextmanager
def merging(path: str, directory: Path, writers: int, keys: int) -> Iterator[None]:
    """Let so many processes merge, from their first merge to the end of their last.

    Raises:
        RuntimeError: If one of them failed.
    """
    directory.mkdir()
    arguments = [(path, str(directory), str(n), str(writers), str(keys)) for n in range(writers)]
    command = [sys.executable, "-m", "benchmarks.merging_beside"]
    running = [
        subprocess.Popen([*command, *given], stderr=subprocess.PIPE, text=True)
        for given in arguments
    ]
    try:
        _wait_for_first(directory, running)
        yield
    finally:
        (directory / STOP).touch()
        ended = [(process.communicate()[1], process.returncode) for process in running]
        failures = [text for text, code in ended if code]
    if failures:
        raise RuntimeError(failures[0])


def _wait_for_first(directory: Path, running: list[subprocess.Popen[str]]) -> None:
    """Wait until every process has merged: before that it loads libraries."""
    logs = [directory / f"{number}.log" for number in range(len(running))]
    while not all(log.exists() and log.stat().st_size for log in logs):
        if any(process.poll() is not None for process in running):
            return  # what it failed with is raised at the end
        time.sleep(0.05)


def read_logs(directory: Path) -> Log:
    """Return what the processes have done."""
    found = Log()
    for path in sorted(directory.glob("*.log")):
        for line in path.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            found.merges.append((entry["at"], entry["seconds"]))
            found.values.update(dict.fromkeys(entry["ids"], entry["value"]))
    return found


if __name__ == "__main__":
    dataset, place, *counts = sys.argv[1:]
    merge_until_stopped(dataset, Path(place), *map(int, counts))
