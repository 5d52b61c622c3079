"""Small datasets with known states, and the commits that lead from one to the next.

Used by tests in this process and by the children that die. Files are made of bytes prepared once,
so that hundreds of datasets are built in a second.
"""

from __future__ import annotations

import io
import os
import shutil
import time
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.storage import (
    CommitFacts,
    CommitOutcome,
    FileChanges,
    Stage,
    StagedFile,
    Storage,
    TombstoneChange,
    Transaction,
    commit,
    open_storage,
    read_tombstones,
    staging,
    take_snapshot,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

Row = tuple[int, str]
State = list[Row]
"""All rows, sorted; a doubled row is there twice."""

WEEK = 7 * 86400.0
FACTS = CommitFacts("pyarrow", "upsert", ("id",), {"updated": 8, "inserted": 4})


@cache
def parquet_bytes(start: int, version: str, rows: int = 2) -> bytes:
    """A Parquet file with the rows ``start..start+rows`` of one version."""
    buffer = io.BytesIO()
    ids = list(range(start, start + rows))
    table = pa.table({"id": pa.array(ids, pa.int64()), "version": [version] * rows})
    pq.write_table(table, buffer)
    return buffer.getvalue()


@dataclass(frozen=True)
class Scenario:
    """A dataset and one change of it."""

    name: str
    files: dict[str, int]
    """The files before, with their first id."""

    replaced: tuple[str, ...]
    """The files that the change replaces, each by a new one in the same directory."""

    added: dict[str, int]
    """Directories that get a new file, with its first id."""

    dropped: tuple[str, ...] = ()
    """Files that are removed without a replacement."""

    in_place: bool = False
    """Whether replaced files keep their names."""

    bystanders: dict[str, bytes] = field(default_factory=dict)
    """Files that are no data and must never change."""

    def old(self, version: str = "old") -> State:
        return _rows((start, version) for start in self.files.values())

    def new(self, version: str = "new", before: str = "old") -> State:
        kept = [
            (start, version if name in self.replaced else before)
            for name, start in self.files.items()
            if name not in self.dropped
        ]
        return _rows([*kept, *((start, version) for start in self.added.values())])

    def gone(self) -> set[str]:
        return {*self.dropped, *(() if self.in_place else self.replaced)}

    def preserved(self) -> set[str]:
        return set(self.files) - set(self.replaced) - set(self.dropped)


def _rows(files: Iterable[tuple[int, str]]) -> State:
    return sorted((row, version) for start, version in files for row in (start, start + 1))


_EXTRA = {"_SUCCESS": b"", "_notes.txt": b"mine", ".hidden/deep/x.bin": b"x"}
FLAT = Scenario(
    "flat",
    {f"f{number}.parquet": number * 10 for number in range(6)},
    ("f0.parquet", "f1.parquet", "f2.parquet", "f3.parquet"),
    {"": 100, ".": 110},
    bystanders={**_EXTRA, ".f0.parquet.crc": b"old checksum", ".f5.parquet.crc": b"kept"},
)
PARTITIONED = Scenario(
    "partitioned",
    {
        "p=0/a.parquet": 0,
        "p=0/b.parquet": 10,
        "p=1/a.parquet": 20,
        "p=1/b.parquet": 30,
        "p=2/a.parquet": 40,
        "p=3/a.parquet": 50,
    },
    ("p=0/a.parquet", "p=0/b.parquet", "p=1/a.parquet", "p=2/a.parquet"),
    {"p=1": 100, "p=9": 110},
    bystanders={**_EXTRA, "p=0/.a.parquet.crc": b"old checksum", "p=3/.part.tmp": b"t"},
)
SHRINKING = Scenario(
    "shrinking",
    {"p=0/a.parquet": 0, "p=1/q=1/a.parquet": 10, "p=2/a.parquet": 20, "p=2/b.parquet": 30},
    ("p=2/a.parquet",),
    {},
    dropped=("p=1/q=1/a.parquet",),
)
IN_PLACE = Scenario(
    "in place",
    {f"f{number}.parquet": number * 10 for number in range(3)},
    ("f0.parquet", "f1.parquet"),
    {},
    in_place=True,
    bystanders={".f0.parquet.crc": b"old checksum"},
)
CREATING = Scenario("creating", {}, (), {"p=1": 0, "p=2": 10})
ONE_PARTITION = Scenario(
    "one partition",
    {"p=0/a.parquet": 0, "p=1/a.parquet": 20},
    ("p=1/a.parquet",),
    {"p=1": 100},
)
NOTHING = Scenario("nothing", {"f0.parquet": 0}, (), {})
"""A commit that changes no file, as that of a transaction without effect."""

SCENARIOS = {
    item.name: item for item in (FLAT, PARTITIONED, SHRINKING, IN_PLACE, CREATING, ONE_PARTITION)
}


def build(scenario: Scenario, root: str) -> None:
    """Make the dataset as it is before the change."""
    contents = {name: parquet_bytes(start, "old") for name, start in scenario.files.items()}
    for name, data in {**contents, **scenario.bystanders}.items():
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)


def fresh(scenario: Scenario, base: str) -> str:
    """Make the dataset in an empty place; gives its root."""
    shutil.rmtree(base, ignore_errors=True)
    os.makedirs(base)
    root = os.path.join(base, "data")
    if scenario.files:
        build(scenario, root)
    return root


def put(storage: Storage, file: StagedFile, data: bytes) -> StagedFile:
    """Write a staged file as an engine would."""
    with storage.root.filesystem.open(file.path, "wb") as target:
        target.write(data)
    return replace(file, rows=2, size=len(data))


def stage_change(
    scenario: Scenario, storage: Storage, stage: Stage, version: str = "new"
) -> FileChanges:
    """Stage the files of a scenario's change."""
    files = []
    for name in scenario.replaced:
        directory = os.path.dirname(name)
        file = stage.new_copy(name) if scenario.in_place else stage.new_file(directory, like=name)
        files.append(put(storage, file, parquet_bytes(scenario.files[name], version)))
    for directory, start in scenario.added.items():
        file = stage.new_file("" if directory == "." else directory)
        files.append(put(storage, file, parquet_bytes(start, version)))
    return FileChanges(files, [*scenario.replaced, *scenario.dropped])


def run_commit(
    scenario: Scenario,
    root: str,
    version: str = "new",
    transaction: Transaction | None = None,
    tombstones: str | None = None,
    **options: Any,
) -> CommitOutcome:
    """Take the whole way of a change: snapshot, staging, commit.

    ``tombstones`` are put in the place of those that there are.
    """
    storage = open_storage(root, **options)
    snapshot = take_snapshot(storage)
    with staging(storage) as stage:
        change = stage_change(scenario, storage, stage, version)
        if tombstones is not None:
            change = replace(change, tombstones=tombstone_change(storage, tombstones))
        return commit(storage, snapshot, stage, change, FACTS, transaction=transaction)


def tombstone_change(storage: Storage, content: str, *, keep: bool = False) -> TombstoneChange:
    """Plan a new file of tombstones beside those that there are, or in their place."""
    base, _ = read_tombstones(storage, WEEK)
    kept = base.files if keep else ()
    return TombstoneChange(base, kept, WEEK, content.encode(), 1, time.time())


def read_contents(storage: Storage) -> list[str]:
    """The content of every file of tombstones; fails if one is lost or damaged."""
    return [(data or b"").decode() for data in read_tombstones(storage, WEEK)[1]]


def assert_swept(storage: Storage) -> None:
    """Only the files of tombstones are there that the last record names."""
    named = sorted(file.name for file in read_tombstones(storage, WEEK)[0].files)
    assert sorted(storage.backend.names(storage.control.tombstones)) == named


def rewrite(
    root: str, version: str, extra: int = 0, below: int | None = None, **options: Any
) -> CommitOutcome:
    """Replace files by others with the same ids and another version; add ``extra`` files.

    Every file is replaced, or those with ids below a limit.
    """
    storage = open_storage(root, **options)
    snapshot = take_snapshot(storage)
    with staging(storage) as stage:
        files, replaced = [], []
        for relative in snapshot.by_path:
            start = first_id(storage.path(relative))
            if below is not None and start >= below:
                continue
            replaced.append(relative)
            file = stage.new_file(os.path.dirname(relative), like=relative)
            files.append(put(storage, file, parquet_bytes(start, version)))
        for number in range(extra):
            file = stage.new_file()
            files.append(put(storage, file, parquet_bytes(1000 + 10 * number, version)))
        return commit(storage, snapshot, stage, FileChanges(files, replaced), FACTS)


def first_id(path: str) -> int:
    """The first id of a file of ours."""
    return int(pq.ParquetFile(path).read(columns=["id"])["id"][0].as_py())
