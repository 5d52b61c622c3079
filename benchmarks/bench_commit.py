"""What a commit costs that replaces one file among many, with fsync on, in both publish modes."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import Report, measure, median
from fsspeckit.storage import (
    CommitFacts,
    FileChanges,
    commit,
    open_storage,
    pending_numbers,
    staging,
    take_snapshot,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = (10, 1_000, 10_000)
ROUNDS = 15
BARE = "`os.replace` + fsync, 10 files"
MODES: dict[str, Literal["auto", "plain"]] = {"exchange": "auto", "plain": "plain"}


def make_dataset(root: str, files: int, data: bytes) -> str:
    """A flat dataset of many small files."""
    os.makedirs(root)
    for number in range(files):
        with open(f"{root}/part-{number:06}.parquet", "wb") as file:
            file.write(data)
    return root


def sample(directory: str) -> bytes:
    """The bytes of a small Parquet file."""
    path = f"{directory}/sample.parquet"
    pq.write_table(pa.table({"id": list(range(100)), "value": ["x" * 10] * 100}), path)
    with open(path, "rb") as file:
        return file.read()


def bare_replace(root: str, data: bytes) -> None:
    """The least that a safe replacement of one file costs."""
    descriptor = os.open(f"{root}/temporary", os.O_CREAT | os.O_WRONLY)
    os.write(descriptor, data)
    os.fsync(descriptor)
    os.close(descriptor)
    os.replace(f"{root}/temporary", f"{root}/part-000000.parquet")
    descriptor = os.open(root, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


class Committing:
    """Replaces the first file of a dataset through a commit, again and again."""

    def __init__(self, root: str, mode: Literal["auto", "plain"], data: bytes) -> None:
        self._storage = open_storage(root, publish=mode)
        self._expected = "plain" if mode == "plain" else "exchange"
        self._data = data
        self._snapshot = take_snapshot(self._storage)
        self._used = False

    def prepare(self) -> None:
        """Take the snapshot that a plan would be made on, if the last one is used up."""
        if self._snapshot.number != pending_numbers(self._storage)[0]:
            self._snapshot = take_snapshot(self._storage)

    def __call__(self) -> None:
        """From the staged file to the completed commit."""
        storage, snapshot = self._storage, self._snapshot
        victim = next(iter(snapshot.by_path))
        with staging(storage) as stage:
            file = stage.new_file(like=victim)
            with open(file.path, "wb") as target:
                target.write(self._data)
            change = FileChanges([replace(file, rows=100, size=len(self._data))], [victim])
            outcome = commit(storage, snapshot, stage, change, CommitFacts("none", "benchmark"))
        assert outcome.published == self._expected, outcome.notes
        self._used = True


def take_snapshots(commits: list[Committing]) -> None:
    """Let every case have its snapshot before it is measured."""
    for each in commits:
        each.prepare()


def main(sizes: tuple[int, ...] = SIZES, rounds: int = ROUNDS) -> None:
    """Measure and write the page."""
    report = Report(
        "commit",
        "Commit",
        "One file of a flat dataset is replaced, on a snapshot taken before: staged file, "
        "verification, lock, listing again, record, publish, trash and completion, with every "
        "fsync. The first line is the least that any safe replacement of one file costs: write, "
        "fsync, `os.replace`, fsync of the directory.",
    )
    place = tempfile.mkdtemp()
    try:
        data = sample(place)
        bare = make_dataset(f"{place}/bare", 10, data)
        cases: dict[str, Callable[[], None]] = {BARE: lambda: bare_replace(bare, data)}
        commits: list[Committing] = []
        for files in sizes:
            for name, mode in MODES.items():
                root = make_dataset(f"{place}/{name}-{files}", files, data)
                commits.append(Committing(root, mode, data))
                cases[f"commit, {name}, 1 of {files:,} files"] = commits[-1]
        seconds = measure(cases, rounds, lambda: take_snapshots(commits))
    finally:
        shutil.rmtree(place)
    report.table("Seconds per commit", seconds)
    _claims(report, {name: median(values) for name, values in seconds.items()}, sizes)
    report.write()


def _claims(report: Report, medians: dict[str, float], sizes: tuple[int, ...]) -> None:
    few, many = min(sizes), max(sizes)
    for name in MODES:
        ratio = medians[f"commit, {name}, 1 of {few:,} files"] / medians[BARE]
        report.claim(f"1 of {few:,} files, {name}, against `os.replace` + fsync", ratio, 10)
    exchange = medians[f"commit, exchange, 1 of {many:,} files"]
    report.claim(f"1 of {many:,} files by exchange", exchange, 0.5, " s")


if __name__ == "__main__":
    main()
