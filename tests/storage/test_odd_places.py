"""Data files that are links, directories that refuse, and writers that stand in the dataset."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

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
def test_a_directory_that_refuses_is_told_before_anything_is_committed(tmp_path: Path) -> None:
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
