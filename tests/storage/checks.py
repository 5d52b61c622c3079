"""What must hold of a dataset, whatever happened to it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from fsspeckit.storage import open_storage, stable_files
from fsspeckit.storage.storage import RecordNames

if TYPE_CHECKING:
    from tests.storage.scenario import Scenario, State

    from fsspeckit.storage import Storage


def read_plainly(root: str) -> State:
    """Read all rows as any program would that knows nothing of us."""
    if not os.path.isdir(root):
        return []
    table = pads.dataset(root, format="parquet", partitioning="hive").to_table(use_threads=False)
    if "id" not in table.column_names:
        return []
    return sorted(zip(table["id"].to_pylist(), table["version"].to_pylist(), strict=True))


def read_consistently(storage: Storage) -> State:
    """Read all rows as our own readers do."""
    rows: State = []
    for pinned in stable_files(storage).files:
        rows += _rows(storage.backend.read(pinned.file.path))
    return sorted(rows)


@cache
def _rows(data: bytes) -> State:
    """The rows of a file; the same few files are read thousands of times."""
    table = pq.ParquetFile(pa.BufferReader(data)).read(columns=["id", "version"])
    return list(zip(table["id"].to_pylist(), table["version"].to_pylist(), strict=True))


@dataclass(frozen=True)
class Seen:
    """Files that must stay the same, as they were before."""

    files: dict[str, tuple[int, int, bytes]]


def checksums(scenario: Scenario) -> set[str]:
    """The side files that Hadoop keeps for files which the change replaces."""
    return {
        os.path.join(os.path.dirname(name), f".{os.path.basename(name)}.crc")
        for name in (*scenario.replaced, *scenario.dropped)
    }


def remember(scenario: Scenario, root: str) -> Seen:
    """Remember inode, time and bytes of all files that a change must not touch."""
    names = scenario.preserved() | (set(scenario.bystanders) - checksums(scenario))
    return Seen({name: _file(root, name) for name in names})


def _file(root: str, name: str) -> tuple[int, int, bytes]:
    path = os.path.join(root, name)
    status = os.stat(path)
    return status.st_ino, status.st_mtime_ns, Path(path).read_bytes()


def assert_untouched(seen: Seen, root: str) -> None:
    """Preserved files keep their bytes, their name, their time and even their inode."""
    assert {name: _file(root, name) for name in seen.files} == seen.files


def assert_tidy(root: str, *, folded: bool = True) -> None:
    """Nothing is left over: only complete records, the lock and the trash.

    Records that are in a segment already may be left, unless everything is ``folded``.
    """
    storage = open_storage(root)
    control = storage.control.path
    if not os.path.isdir(control):
        return
    found = set(os.listdir(control))
    assert found <= {"commits", "lock", "tombstones", "trash"}, found
    names = set(storage.backend.names(storage.control.commits))
    listed = RecordNames.of(names)
    assert not (listed.leftovers and folded)
    names -= set(listed.leftovers)
    segments = {segment.name for segment in listed.segments}
    records = {name for name in names - segments if not name.endswith(".done.json")}
    assert names - segments == records | {name.replace(".json", ".done.json") for name in records}
    for directory, _, files in os.walk(control):
        assert not [name for name in files if name.endswith((".parquet", ".pq", ".parq"))]
        if directory.startswith(storage.control.trash):
            assert all(name.endswith(".trash") for name in files)


def assert_files(scenario: Scenario, root: str, *, new: bool) -> None:
    """The dataset holds exactly the files of the state, and no empty directories."""
    found = {
        os.path.relpath(os.path.join(directory, name), root)
        for directory, _, names in os.walk(root)
        for name in names
        if name.endswith(".parquet")
    }
    if not new:
        assert found == set(scenario.files)
        return
    made = len(scenario.added) + (0 if scenario.in_place else len(scenario.replaced))
    assert not [path for path in checksums(scenario) if os.path.exists(os.path.join(root, path))]
    stayed = set(scenario.files) - scenario.gone()
    assert stayed <= found
    assert len(found - stayed) == made
    empty = [directory for directory, dirs, names in os.walk(root) if not dirs and not names]
    assert empty == []
