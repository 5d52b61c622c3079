"""What macOS does otherwise: no /proc, renameat2, statx or xattrs, another fsync, odd paths."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import fsspeckit
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.errors import UnsupportedLayoutError
from fsspeckit.storage.fs import syscalls

REPOSITORY = Path(__file__).parents[2]
ROWS = pa.table({"id": [1, 2], "k": ["a", "b"]})

PROGRAM = """
import pyarrow, pyarrow.parquet, fsspec, tempfile
from tests import like_macos
import os, sys
import pyarrow as pa
import fsspeckit
from fsspeckit.storage.fs import attributes, syscalls
assert not syscalls.CAN_EXCHANGE and attributes.mount_points() == set()
path = sys.argv[1]
rows = pa.table({"id": range(40), "v": ["old"] * 40})
fsspeckit.write_dataset(rows, path, max_rows_per_file=10, engine="pyarrow")
new = pa.table({"id": [3, 99], "v": ["new"] * 2})
done = fsspeckit.merge(new, path, "upsert", ["id"], engine="pyarrow")
fsspeckit.compact(path, engine="pyarrow")
fsspeckit.undo(path)
fsspeckit.recover(path)
report = fsspeckit.verify(path, ["id"], engine="pyarrow")
print(done.updated, done.inserted, done.metrics["commit"]["published"], len(report.findings))
print(fsspeckit.read_dataset(path, engine="pyarrow").num_rows, len(like_macos.full_syncs) > 10)
"""


def test_every_call_works_without_what_linux_has(tmp_path: Path) -> None:
    """`make test-like-macos` runs all tests of storage and of PyArrow like this."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "data")],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines() == ["1 1 plain 0", "41 True"], done.stderr


def test_a_full_sync_is_an_fsync_where_the_disk_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Network volumes refuse it, as this kernel refuses a command that it does not know."""
    asked = []

    def refuse(descriptor: int, command: int) -> None:
        asked.append(command)
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(syscalls, "_FULL_SYNC", 51)
    monkeypatch.setattr(fcntl, "fcntl", refuse)
    fsspeckit.write_dataset(ROWS, str(tmp_path / "data"), engine="pyarrow")
    assert set(asked) == {51}


def test_a_full_sync_that_fails_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int, command: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(syscalls, "_FULL_SYNC", 51)
    monkeypatch.setattr(fcntl, "fcntl", fail)
    with pytest.raises(OSError, match="Input/output error"):
        fsspeckit.write_dataset(ROWS, str(tmp_path / "data"), engine="pyarrow")
    assert not fsspeckit.history(tmp_path / "data")


def test_a_path_through_a_link_is_the_same_dataset(tmp_path: Path) -> None:
    """As /tmp and /var are, which are links to directories below /private."""
    (tmp_path / "private").mkdir()
    (tmp_path / "var").symlink_to("private")
    real, linked = (str(tmp_path / name / "data") for name in ("private", "var"))
    fsspeckit.write_dataset(ROWS, linked, engine="pyarrow")
    new = pa.table({"id": [2, 3], "k": ["B", "c"]})
    fsspeckit.merge(new, real, "upsert", ["id"], engine="pyarrow")
    assert [entry.number for entry in fsspeckit.history(linked)] == [1, 2]
    assert os.listdir(tmp_path / "private") == os.listdir(tmp_path / "var")
    assert fsspeckit.read_dataset(linked, engine="pyarrow").num_rows == 3


@pytest.fixture
def ignores_case(tmp_path: Path) -> Path:
    """A dataset of whose control directory a part has a second name in other letters, as each name
    has where the disk ignores case."""
    path = tmp_path / "data"
    fsspeckit.write_dataset(ROWS, str(path), partition_by=["k"], engine="pyarrow")
    (tmp_path / ".data.fsspeckit" / "COMMITS").symlink_to("commits")
    return path


def test_a_control_directory_without_letters_does_not_ignore_case(tmp_path: Path) -> None:
    path, control_dir = str(tmp_path / "data"), str(tmp_path / "2024")
    rows = pa.table({"id": [1, 2], "k": ["a", "A"]})
    with PyarrowDatasetIO(control_dir=control_dir) as engine:
        engine.merge(rows, path, "upsert", ["id"], partition_columns=["k"])
        assert sorted(os.listdir(path)) == ["k=A", "k=a"]


@pytest.mark.parametrize("value", ["A", "\u212b"])
def test_partitions_that_differ_in_case_are_refused_where_the_disk_ignores_it(
    ignores_case: Path, value: str
) -> None:
    other = {"A": "a", "\u212b": "\u00c5"}[value]
    fsspeckit.write_dataset(
        pa.table({"id": [5], "k": [other]}), str(ignores_case), engine="pyarrow"
    )
    rows = pa.table({"id": [7, 8], "k": [value, "c"]})
    before = sorted(ignores_case.rglob("*"))
    with pytest.raises(UnsupportedLayoutError, match="ignores the case of letters"):
        fsspeckit.merge(rows, str(ignores_case), "upsert", ["id"], engine="pyarrow")
    assert sorted(ignores_case.rglob("*")) == before


def test_partitions_that_differ_in_more_than_case_are_written(ignores_case: Path) -> None:
    rows = pa.table({"id": [7], "k": ["c"]})
    fsspeckit.merge(rows, str(ignores_case), "upsert", ["id"], engine="pyarrow")
    assert (ignores_case / "k=c").is_dir()


def test_a_disk_that_distinguishes_case_has_both(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "k": ["a", "A"]})
    path = str(tmp_path / "data")
    fsspeckit.write_dataset(rows, path, partition_by=["k"], engine="pyarrow")
    assert sorted(os.listdir(path)) == ["k=A", "k=a"]
