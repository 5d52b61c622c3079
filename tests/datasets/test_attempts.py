"""Others write all the time: each merge has its turn, and none goes on for ever."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsspeckit
from fsspeckit.core.planning import read_footers
from fsspeckit.datasets.pipeline.merge import RetryPolicy, run_with_retries
from fsspeckit.datasets.pipeline.target_checks import read_checked_target
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.errors import ConcurrentModificationError
from fsspeckit.storage import take_snapshot
from fsspeckit.storage.snapshot import Difference, Snapshot
from fsspeckit.storage.storage import Storage, open_storage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fsspeckit.core.planning import FileFooter
    from fsspeckit.storage import Root


def _rows(*ids: int, v: str = "old") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [v] * len(ids)})


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    (tmp_path / "data").mkdir()
    pq.write_table(_rows(0), tmp_path / "data" / "0.parquet")
    return open_storage(tmp_path / "data", lock_timeout=0)


def _overtaken(path: str, times: int) -> Callable[[str, int, int], None]:
    """Somebody appends whenever a plan is made; up to so many times."""
    left = iter(range(1, times + 1))

    def progress(phase: str, done: int, total: int) -> None:
        if phase == "match" and done == 0 and (number := next(left, None)) is not None:
            PyarrowDatasetIO().write_dataset(_rows(number), path)

    return progress


def test_a_merge_that_is_overtaken_many_times_wins_in_the_end(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    PyarrowDatasetIO().write_dataset(_rows(0), path)
    source, progress = _rows(0, 5, v="new"), _overtaken(path, 12)
    result = PyarrowDatasetIO().merge(source, path, "upsert", ["id"], progress=progress)
    assert result.metrics["commit"]["retries"] == 12
    assert (result.updated, result.target_count_after) == (2, 13)


def test_retries_end_with_the_time_that_a_writer_waits(storage: Storage) -> None:
    retries, added = RetryPolicy(storage), Difference(added=("x.parquet",))
    for _ in range(3):
        retries.count(added)
    with pytest.raises(ConcurrentModificationError, match=r"x\.parquet.*\nHint: repeat"):
        retries.count(added)
    longer = RetryPolicy(replace(storage, lock_timeout=60))
    for _ in range(100):
        longer.count(added)


def test_a_file_that_is_being_written_is_waited_for_until_the_lock_timeout(
    storage: Storage, tmp_path: Path
) -> None:
    (tmp_path / "data" / "1.parquet").write_bytes(b"PAR1, and the rest later")
    read: list[int] = []

    def count(root: Root, files: Any, columns: Any) -> list[FileFooter]:
        read.append(len(files))
        return read_footers(root, files, columns)

    snapshot = take_snapshot(storage)
    with pytest.raises(ConcurrentModificationError, match=r"1\.parquet"):
        read_checked_target(storage, snapshot, ["id"], _rows().schema, None, count)
    assert read == [2]


@pytest.mark.parametrize("times", [0, 2, 9])
def test_work_starts_again_while_others_remove_files(storage: Storage, times: int) -> None:
    tries = 0

    def run(snapshot: Snapshot) -> int:
        nonlocal tries
        if tries == times:
            return len(snapshot.listing.files)
        tries += 1
        (file,) = snapshot.listing.files
        storage.backend.discard(file.path)
        pq.write_table(_rows(tries), f"{storage.root.path}/{tries}.parquet")
        raise FileNotFoundError(file.path)

    if times == 9:
        with pytest.raises(ConcurrentModificationError) as caught:
            run_with_retries(storage, run)
        assert isinstance(caught.value.__cause__, FileNotFoundError)
    else:
        assert run_with_retries(storage, run) == 1


def test_a_file_that_is_missing_for_another_reason_is_reported_at_once(storage: Storage) -> None:
    def run(_: Snapshot) -> None:
        raise FileNotFoundError("something else")

    with pytest.raises(FileNotFoundError, match="something else"):
        run_with_retries(storage, run)


@pytest.mark.slow
def test_merges_of_many_processes_are_all_there(tmp_path: Path) -> None:
    """All of them rewrite the same file again and again."""
    path, writers, turns = str(tmp_path / "data"), 5, 3
    PyarrowDatasetIO().write_dataset(_rows(0), path)
    program = f"""
        import sys, pyarrow as pa, fsspeckit.datasets.pyarrow as engine
        me = int(sys.argv[1])
        print("ready", flush=True)
        input()
        with engine.PyarrowDatasetIO() as io:
            for turn in range({turns}):
                rows = pa.table({{"id": [0, 100 * me + turn], "v": [f"{{me}}-{{turn}}"] * 2}})
                io.merge(rows, {path!r}, "upsert", ["id"])
    """
    arguments = [sys.executable, "-c", textwrap.dedent(program)]
    processes = [
        subprocess.Popen(
            [*arguments, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for number in range(1, writers + 1)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        process.communicate()
    assert [process.returncode for process in processes] == [0] * writers
    found = PyarrowDatasetIO().read_dataset(path).column("id").to_pylist()
    expected = {100 * n + turn for n in range(1, writers + 1) for turn in range(turns)}
    assert sorted(found) == sorted({0, *expected})
    assert len(fsspeckit.history(path)) == 1 + writers * turns
