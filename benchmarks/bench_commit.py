"""What a commit costs that replaces one file among many, with fsync on, in both publish modes."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import uuid
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import Report, measure, median
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.storage import (
    CommitFacts,
    FileChanges,
    Tombstones,
    commit,
    history_of,
    open_storage,
    pending_numbers,
    staging,
    take_snapshot,
)
from fsspeckit.storage.commit.folding import fold_records
from fsspeckit.storage.commit.log import (
    Add,
    CommitRecord,
    Completion,
    Remove,
    mark_complete,
    timestamp,
    write_record,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from fsspeckit.storage import Storage

SIZES = (10, 1_000, 10_000)
ROUNDS = 15
HISTORIES = (10, 10_000)
MERGES = 60
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


class Merging:
    """Merges two rows into a dataset with a history, again and again."""

    def __init__(self, root: str, history: int) -> None:
        self._root = root
        self._io = PyarrowDatasetIO()
        rows = pa.table({"id": list(range(1_000)), "value": ["x" * 10] * 1_000})
        self._io.write_dataset(rows, root, max_rows_per_file=100)
        self.storage = open_storage(root)
        _forge_history(self.storage, history)
        self._count = 0

    def __call__(self) -> None:
        """One row is updated, one inserted."""
        self._count += 1
        ids = [self._count % 1_000, 1_000 + self._count]
        rows = pa.table({"id": ids, "value": [f"y{self._count}"] * 2})
        result = self._io.merge(rows, self._root, "upsert", ["id"])
        assert (result.updated, result.inserted) == (1, 1)


class _Unsynced:
    """A disk that does not wait: the records of a history that is only prepared."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def create(self, path: str, data: bytes) -> None:
        self._backend.overwrite(path, data, sync=False)

    def overwrite(self, path: str, data: bytes, *, sync: bool = True) -> None:
        self._backend.overwrite(path, data, sync=False)


def _forge_history(storage: Storage, commits: int) -> None:
    """Write the records that so many commits leave, and fold them as commits do."""
    quick = replace(storage, backend=_Unsynced(storage.backend))
    facts = CommitFacts("pyarrow", "upsert", ("id",), {"updated": 3}, time.time(), 7)
    first = pending_numbers(storage)[0] + 1
    for number in range(first, first + commits):
        names = [f"part-{uuid.uuid4().hex}.parquet" for _ in range(8)]
        record = CommitRecord(
            number,
            uuid.uuid4().hex,
            timestamp(),
            facts,
            0.1,
            "exchange",
            f".staging_{uuid.uuid4().hex}",
            tuple(Add(f"{name}.staged", name, 1_000, 12_345, 1, 2, 3) for name in names[:4]),
            tuple(Remove(name, 12_345, 1, 2, None, 3) for name in names[4:]),
            {},
            Tombstones(),
        )
        write_record(quick, record)
        mark_complete(quick, number, Completion("exchange", 0.1))
        if number % 500 == 0:
            fold_records(storage)
    fold_records(storage)


def measure_histories(
    place: str, lengths: tuple[int, ...], rounds: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Merge after short and long histories, and read them."""
    merges = {f"merge after {n:,} commits": Merging(f"{place}/history-{n}", n) for n in lengths}
    seconds = measure(dict(merges), rounds)
    stores = {
        f"{n:,} commits": merge.storage for n, merge in zip(lengths, merges.values(), strict=True)
    }
    reads: dict[str, Callable[[], object]] = {}
    for name, storage in stores.items():
        reads[f"`history()`, {name}"] = partial(history_of, storage)
        reads[f"`history(limit=20)`, {name}"] = partial(history_of, storage, 20)
    return seconds, measure(reads, 3)


def take_snapshots(commits: list[Committing]) -> None:
    """Let every case have its snapshot before it is measured."""
    for each in commits:
        each.prepare()


def main(
    sizes: tuple[int, ...] = SIZES,
    rounds: int = ROUNDS,
    histories: tuple[int, ...] = HISTORIES,
    merges: int = MERGES,
) -> None:
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
        merged, read = measure_histories(place, histories, merges)
    finally:
        shutil.rmtree(place)
    report.table("Seconds per commit", seconds)
    report.table("Seconds per merge of two rows, by the length of the history", merged)
    report.table("Seconds per call", read)
    _claims(report, {name: median(values) for name, values in seconds.items()}, sizes)
    short, long = (median(values) for values in merged.values())
    report.claim(
        f"a merge after {histories[1]:,} commits, against {histories[0]:,}", long / short, 1.1
    )
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
