"""A merge into many files reads only footers that no earlier merge has read."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.planning import footers as footers_module
from fsspeckit.datasets.base import DatasetIO
from fsspeckit.datasets.pyarrow import ArrowEngine, PyarrowDatasetIO
from fsspeckit.storage.fs import reads
from fsspeckit.storage.storage import open_storage

if TYPE_CHECKING:
    from pathlib import Path

    from fsspeckit.core.planning import FileFooter
    from fsspeckit.storage.listing import DataFile
    from fsspeckit.storage.roots import Root

FILES = 100


@pytest.fixture
def dataset(tmp_path: Path) -> str:
    """Many files of ten keys each, written a while ago."""
    root = tmp_path / "data"
    root.mkdir()
    for number in range(FILES):
        path = root / f"part-{number:03}.parquet"
        keys = range(number * 10, number * 10 + 10)
        pq.write_table(pa.table({"id": keys, "word": [f"w{key:04}" for key in keys]}), path)
    make_old(str(root))
    return str(root)


def make_old(root: str) -> None:
    for name in os.listdir(root):
        os.utime(f"{root}/{name}", (1e9, 1e9))


@pytest.fixture
def tails(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files whose last bytes are read to get at the footer."""
    read: list[str] = []
    original = reads.read_tail

    def read_tail(root: Root, file: DataFile, length: int) -> tuple[bytes, int]:
        read.append(os.path.basename(file.path))
        return original(root, file, length)

    monkeypatch.setattr(footers_module, "read_tail", read_tail)
    return read


def source(*keys: int) -> pa.Table:
    return pa.table({"id": keys, "word": [f"new {key}" for key in keys]})


def words(root: str) -> dict[int, str]:
    table = pq.ParquetDataset(root).read()
    return dict(zip(table["id"].to_pylist(), table["word"].to_pylist(), strict=True))


@pytest.mark.parametrize("key", ["id", "word"])
def test_the_second_merge_reads_only_the_footers_of_new_files(
    dataset: str, tails: list[str], key: str
) -> None:
    io = PyarrowDatasetIO()
    first = io.merge(changed(key, 1), dataset, "upsert", [key])
    assert len(set(tails)) == FILES
    tails.clear()
    second = io.merge(changed(key, 2), dataset, "upsert", [key])
    assert set(tails) == {os.path.basename(path) for path in first.rewritten_files}
    assert (second.updated, len(second.rewritten_files)) == (2, 2)


def changed(key: str, times: int) -> pa.Table:
    """Two rows of the dataset, with another value in the column that is no key."""
    if key == "id":
        return pa.table({"id": [5, 555], "word": ["!" * times] * 2})
    return pa.table({"id": [10_000 * times] * 2, "word": ["w0005", "w0555"]})


def test_the_plan_is_the_same_with_and_without(dataset: str) -> None:
    io = PyarrowDatasetIO()
    io.merge(source(5), dataset, "upsert", ["id"])
    wanted = source(*range(0, 1000, 37), 2000)
    known = io.plan_merge(wanted, dataset, "upsert", ["id"])
    storage = open_storage(dataset)
    storage.backend.discard(storage.control.footers)
    fresh = io.plan_merge(wanted, dataset, "upsert", ["id"])
    assert known.files == fresh.files
    assert not os.path.exists(storage.control.footers), "a plan writes nothing"


def test_a_file_that_was_replaced_is_read_again(dataset: str, tails: list[str]) -> None:
    io = PyarrowDatasetIO()
    io.merge(source(5), dataset, "upsert", ["id"])
    moved = pa.table({"id": range(5000, 5010), "word": ["moved"] * 10})
    pq.write_table(moved, f"{dataset}/part-050.parquet")
    tails.clear()
    result = io.merge(source(5003), dataset, "upsert", ["id"])
    assert "part-050.parquet" in tails
    assert (result.updated, result.inserted) == (1, 0)
    assert words(dataset)[5003] == "new 5003"


def test_young_files_are_not_remembered(dataset: str, tails: list[str]) -> None:
    soon = time.time() + 60
    os.utime(f"{dataset}/part-007.parquet", (soon, soon))
    io = PyarrowDatasetIO()
    io.merge(source(999), dataset, "upsert", ["id"])
    tails.clear()
    io.plan_merge(source(5), dataset, "upsert", ["id"])
    assert "part-007.parquet" in tails
    assert "part-008.parquet" not in tails


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"\0" * 100])
def test_damaged_summaries_are_ignored(dataset: str, tails: list[str], damage: bytes) -> None:
    io = PyarrowDatasetIO()
    io.merge(source(5), dataset, "upsert", ["id"])
    place = open_storage(dataset).control.footers
    with open(place, "wb") as file:
        file.write(damage)
    tails.clear()
    io.merge(source(6), dataset, "upsert", ["id"])
    assert len(set(tails)) == FILES
    tails.clear()
    io.merge(source(7), dataset, "upsert", ["id"])
    assert len(set(tails)) == 1


def test_another_key_makes_other_summaries(dataset: str, tails: list[str]) -> None:
    io = PyarrowDatasetIO()
    io.merge(source(5), dataset, "upsert", ["id"])
    tails.clear()
    io.merge(pa.table({"id": [7], "word": ["w0007"]}), dataset, "update", ["word"])
    assert len(set(tails)) == FILES


def test_few_files_have_no_summaries(tmp_path: Path) -> None:
    few = str(tmp_path / "few")
    for key in (1, 2):
        PyarrowDatasetIO().merge(source(key), few, "upsert", ["id"])
    assert not os.path.exists(open_storage(few).control.footers)


class FootersReadAgain(ArrowEngine):
    """Keeps the bytes of no footer, as if all were too large."""

    def footers(self, *args: Any, **kwargs: Any) -> list[FileFooter]:
        return [replace(footer, raw=None) for footer in super().footers(*args, **kwargs)]


@pytest.mark.parametrize("engine", [ArrowEngine(), FootersReadAgain()])
def test_strings_that_may_be_cut_are_looked_at_once(
    dataset: str, tails: list[str], engine: ArrowEngine
) -> None:
    """Polars may cut bounds; which ones tells only the footer itself."""
    for name in os.listdir(dataset):
        pl.read_parquet(f"{dataset}/{name}").write_parquet(f"{dataset}/{name}")
    make_old(dataset)
    io = DatasetIO(engine)
    first = io.merge(changed("word", 1), dataset, "upsert", ["word"])
    assert (first.updated, len(first.rewritten_files)) == (2, 2)
    tails.clear()
    plan = io.plan_merge(changed("word", 2), dataset, "upsert", ["word"])
    # Those of the files that are gone could not be looked at any more; nobody needs them.
    assert set(tails) == {os.path.basename(path) for path in first.rewritten_files}
    assert len(plan.with_decision("affected")) == 2


def test_files_unpacked_again_are_other_files_though_all_numbers_are_the_same(
    tmp_path: Path,
) -> None:
    """Archives restore sizes and times, and disks give freed inode numbers to the next file."""
    root = tmp_path / "data"
    root.mkdir()
    for number in range(FILES):
        unpack(root / f"part-{number:03}.parquet", number * 10)
    make_old(str(root))
    io = PyarrowDatasetIO()
    io.merge(source(999_999), str(root), "insert", ["id"])
    unpacked = root / "part-007.parquet"
    inode = unpacked.stat().st_ino
    unpacked.unlink()
    for number in range(1000):
        path = tmp_path / f"{number}.parquet"
        unpack(path, 5000)
        if path.stat().st_ino == inode:
            break
    else:
        pytest.skip("this disk does not give freed inode numbers to the next file")
    path.rename(unpacked)
    make_old(str(root))
    result = io.merge(source(*range(5000, 5010)), str(root), "insert", ["id"])
    assert result.inserted == 0
    assert words(str(root))[5000] == "w5000"


def unpack(path: Path, first_key: int) -> None:
    """Write ten keys to a file whose size is always the same."""
    keys = range(first_key, first_key + 10)
    table = pa.table({"id": keys, "word": [f"w{key:04}" for key in keys]})
    pq.write_table(table, path, compression="none")
