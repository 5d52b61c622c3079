"""Data files that are links, directories that refuse, and writers that stand in the dataset."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.errors import UnsupportedLayoutError

if TYPE_CHECKING:
    from pathlib import Path

OLD = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]})
NEW = pa.table({"id": [1], "v": ["new"]})


@pytest.mark.parametrize("strategy", ["update", "upsert", "full_merge"])
def test_rows_of_a_linked_file_are_not_doubled(tmp_path: Path, strategy: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "data").mkdir()
    pq.write_table(OLD, tmp_path / "elsewhere" / "real.parquet")
    (tmp_path / "data" / "a.parquet").symlink_to("../elsewhere/real.parquet")
    result = PyarrowDatasetIO().merge(NEW, str(tmp_path / "data"), strategy, ["id"])
    assert pq.read_table(tmp_path / "data").num_rows == result.target_count_after
    assert pq.read_table(tmp_path / "elsewhere" / "real.parquet").equals(OLD)


MERGES = pytest.mark.parametrize(
    "act",
    [
        lambda io, root: io.merge(NEW, root, "upsert", ["id"]),
        lambda io, root: io.merge(NEW, root, "insert", ["id"]),
        lambda io, root: io.plan_merge(NEW, root, "upsert", ["id"]),
        lambda io, root: io.write_dataset(NEW, root, mode="overwrite"),
        lambda io, root: io.read_dataset(root),
    ],
    ids=["upsert", "insert", "plan", "overwrite", "read"],
)


@MERGES
@pytest.mark.parametrize("name", ["a.parquet", "p=1", "to_itself.parquet"])
def test_rows_behind_a_dangling_link_are_unknown_not_absent(
    tmp_path: Path, act: Any, name: str
) -> None:
    """Its disk is not mounted: the same keys must not be inserted again."""
    root = tmp_path / "data"
    root.mkdir()
    pq.write_table(OLD, root / "there.parquet")
    target = name if name == "to_itself.parquet" else tmp_path / "not mounted" / name
    (root / name).symlink_to(target)
    before = sorted(os.listdir(root))
    with pytest.raises(UnsupportedLayoutError, match=f"the symbolic link '{name}' leads to"):
        act(PyarrowDatasetIO(), str(root))
    assert sorted(os.listdir(root)) == before


@MERGES
@pytest.mark.parametrize("kind", ["pipe", "device", "socket"])
def test_what_is_named_like_a_data_file_but_is_none_is_refused(
    tmp_path: Path, act: Any, kind: str
) -> None:
    """A merge that opened a pipe would wait for ever."""
    root = tmp_path / "data"
    root.mkdir()
    pq.write_table(OLD, root / "there.parquet")
    if kind == "pipe":
        os.mkfifo(root / "x.parquet")
    elif kind == "device":
        if os.getuid() != 0:
            pytest.skip("only root can make devices")
        os.mknod(root / "x.parquet", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    else:
        with socket.socket(socket.AF_UNIX) as made, contextlib.chdir(root):
            made.bind("x.parquet")
    with pytest.raises(UnsupportedLayoutError, match=r"'x\.parquet' has the name of a data file"):
        act(PyarrowDatasetIO(), str(root))


def test_a_hidden_link_that_dangles_does_not_matter(tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    pq.write_table(OLD, root / "there.parquet")
    (root / ".lock.parquet").symlink_to("nowhere")
    assert PyarrowDatasetIO().merge(NEW, str(root), "upsert", ["id"]).updated == 1


def test_one_directory_under_two_names_is_refused(tmp_path: Path) -> None:
    """Each file in it would be replaced twice."""
    root = tmp_path / "data"
    (root / "p=1").mkdir(parents=True)
    pq.write_table(OLD, root / "p=1" / "a.parquet")
    (root / "p=2").symlink_to("p=1")
    new = pa.table({"id": [1], "v": ["new"], "p": [1]})
    with pytest.raises(UnsupportedLayoutError, match="are the same directory"):
        PyarrowDatasetIO().merge(new, str(root), "upsert", ["id"])


def test_a_link_that_leads_back_up_is_not_followed(tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    pq.write_table(OLD, root / "a.parquet")
    (root / "up").symlink_to(".")
    assert PyarrowDatasetIO().merge(NEW, str(root), "upsert", ["id"]).updated == 1


def test_a_writer_that_stands_in_the_dataset_can_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    pq.write_table(OLD, directory / "a.parquet")
    monkeypatch.chdir(directory)
    for text in ("one", "two"):
        PyarrowDatasetIO().merge(pa.table({"id": [1], "v": [text]}), ".", "upsert", ["id"])
    assert "two" in PyarrowDatasetIO().read_dataset(".").column("v").to_pylist()


_REFUSED = """
import os, sys
import pyarrow as pa
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
os.setgroups([]), os.setgid(65534), os.setuid(65534)
try:
    PyarrowDatasetIO().merge(pa.table({"id": [1], "v": ["new"]}), sys.argv[1], "upsert", ["id"])
except PermissionError as error:
    print(error.filename)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_a_directory_that_refuses_is_reported_before_anything_is_committed(tmp_path: Path) -> None:
    directory = tmp_path / "parent" / "data"
    directory.mkdir(parents=True)
    pq.write_table(OLD, directory / "a.parquet")
    for place in (tmp_path, *tmp_path.parents[:2]):
        place.chmod(place.stat().st_mode | 0o055)
    os.chown(tmp_path / "parent", 65534, 65534)
    directory.chmod(0o555)
    command = [sys.executable, "-c", _REFUSED, str(directory)]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == str(directory)
    assert pq.read_table(directory).equals(OLD)
    assert not list((tmp_path / "parent" / ".data.fsspeckit" / "commits").iterdir())
