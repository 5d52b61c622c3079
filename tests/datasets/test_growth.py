"""Work grows with columns, batches and partitions, not with their square; counted, never timed."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.rewrite import BufferLimits, new_files
from fsspeckit.datasets.base import DatasetIO
from fsspeckit.datasets.duckdb.engine import DuckDBEngine
from fsspeckit.datasets.pipeline import (
    FileOptions,
    SourceLimits,
    WriteDatasetResult,
    WriteOptions,
    open_source,
    run_write,
)
from fsspeckit.datasets.pyarrow import ArrowEngine, PyarrowDatasetIO
from fsspeckit.storage.commit.staging import staging
from fsspeckit.storage.storage import open_storage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

IO = PyarrowDatasetIO()


def _calls(work: Callable[[], object]) -> Counter[str]:
    """How often each function is called, those of Arrow and Python too, in every thread."""
    counts: Counter[str] = Counter()

    def count(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            counts[f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}"] += 1
        elif event == "c_call":
            counts[f"{argument.__module__}.{argument.__qualname__}"] += 1

    threading.setprofile(count)
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return counts


def _table(columns: int, rows: int) -> pa.Table:
    random = np.random.default_rng(columns)
    values = {f"c{number}": random.random(rows) for number in range(columns)}
    return pa.table({"id": range(rows), **values})


def _one_value_changes(path: Path, columns: int) -> Callable[[], object]:
    """A row with one changed value, and a new row in a file with bloom filters."""
    table = _table(columns, 100)
    pq.write_table(table, path / "old.parquet")
    changed = table.slice(7, 1).set_column(3, "c2", pa.array([0.5]))
    source = pa.concat_tables([changed, changed.set_column(0, "id", pa.array([100]))])
    blooms = table.column_names
    return lambda: IO.merge(source, str(path), "upsert", ["id"], bloom_columns=blooms)


def _every_column_is_encoded_again(path: Path, columns: int) -> Callable[[], object]:
    """One of four row groups loses a row; the others are copied."""
    table = _table(columns, 8_000)
    pq.write_table(table, path / "old.parquet", row_group_size=2_000)
    return lambda: IO.merge(table.slice(1), str(path), "full_merge", ["id"])


@pytest.mark.parametrize("work", [_one_value_changes, _every_column_is_encoded_again])
def test_calls_of_a_merge_grow_with_the_columns(
    tmp_path: Path, work: Callable[[Path, int], Callable[[], object]]
) -> None:
    counts = {}
    for columns in (10, 100, 200):  # the first one imports what is imported late
        (tmp_path / f"{columns}").mkdir()
        counts[columns] = _calls(work(tmp_path / f"{columns}", columns))
    few, many = counts[100], counts[200]
    steep = {name: (few[name], n) for name, n in many.items() if n > 2.5 * few[name] + 200}
    assert steep == {}


def _stream(batches: int, partitions: int = 1) -> pa.RecordBatchReader:
    """Batches of 100 rows, each with rows of every partition."""
    made = [
        pa.record_batch(
            {"id": range(100 * n, 100 * n + 100), "part": [i % partitions for i in range(100)]}
        )
        for n in range(batches)
    ]
    return pa.RecordBatchReader.from_batches(made[0].schema, made)


def _spilling_io(rows: int = 65_536, engine: type[ArrowEngine] = ArrowEngine) -> DatasetIO:
    """Streams go to disk, in row groups of as many rows."""
    return DatasetIO(engine(limits=SourceLimits(max_memory_bytes=1, max_spill_rows=rows)))


def test_calls_for_a_stream_on_disk_grow_with_its_batches(tmp_path: Path) -> None:
    io = _spilling_io()
    counts = {
        batches: _calls(partial(io.write_dataset, _stream(batches), str(tmp_path / f"{batches}")))
        for batches in (10, 200, 400)
    }
    few, many = counts[200], counts[400]
    assert {name: (few[name], n) for name, n in many.items() if n > 2.5 * few[name] + 200} == {}


def test_small_batches_share_a_row_group_on_disk(tmp_path: Path) -> None:
    with staging(open_storage(tmp_path / "data")) as stage:
        source = open_source(_stream(700), lambda: stage, limits=SourceLimits(max_memory_bytes=1))
        assert source.num_rows == 70_000
        assert [piece.num_rows for piece in source.batches()] == [65_536, 70_000 - 65_536]


def _write_buffered(
    path: Path,
    buffers: BufferLimits,
    data: pa.RecordBatchReader | None = None,
    engine: type[ArrowEngine] = ArrowEngine,
    spill_rows: int = 200,
    **files: Any,
) -> WriteDatasetResult:
    """Write a stream into ten partitions with small limits for what waits to be written."""
    limits = SourceLimits(max_memory_bytes=1, max_spill_rows=spill_rows)
    options = WriteOptions("append", ("part",), FileOptions(buffers=buffers, **files))
    rows = _stream(20, partitions=10) if data is None else data
    return run_write(engine(limits=limits), open_storage(path), rows, options)


@pytest.mark.parametrize("engine", [ArrowEngine, DuckDBEngine])
@pytest.mark.parametrize("buffered", [64 * 1024 * 1024, 2_000])
def test_a_stream_into_many_partitions_makes_one_file_for_each(
    tmp_path: Path, engine: type[ArrowEngine], buffered: int
) -> None:
    path = str(tmp_path / "data")
    result = _write_buffered(tmp_path / "data", BufferLimits(4, buffered), engine=engine)
    assert [file.row_count for file in result.files] == [200] * 10
    assert sorted(file.partition_values["part"] for file in result.files) == list(range(10))
    expected = pa.Table.from_batches(_stream(20, partitions=10)).sort_by("id")
    assert IO.read_dataset(path).sort_by("id").select(["id", "part"]).equals(expected)


def test_a_stream_whose_later_values_need_the_type_of_another_file(tmp_path: Path) -> None:
    """The values of 0 to 127 fit the first file, those after them only the second."""
    parts = [(0, pa.int8()), (1, pa.int64())]
    for part, kind in parts:
        (tmp_path / f"part={part}").mkdir()
        table = pa.table({"id": pa.array([part - 2], kind)})
        pq.write_table(table, tmp_path / f"part={part}" / "old.parquet")
    result = _write_buffered(tmp_path, BufferLimits(max_open_files=4))
    assert sum(file.row_count for file in result.files) == 2000
    found = {str(pq.read_schema(file.path).field("id").type) for file in result.files}
    assert found <= {"int8", "int64"}
    ids = IO.read_dataset(str(tmp_path))["id"].to_pylist()
    assert sorted(ids) == list(range(-2, 2000))


def test_partitions_that_wait_for_the_end_keep_order_and_limits(tmp_path: Path) -> None:
    buffers = BufferLimits(max_open_files=4, max_bytes=2_000)
    result = _write_buffered(tmp_path / "data", buffers, max_rows_per_file=120, row_group_size=50)
    last = [file for file in result.files if file.partition_values == {"part": 9}]
    assert [file.row_count for file in last] == [120, 80]
    ids = [pq.read_table(file.path, partitioning=None)["id"].to_pylist() for file in last]
    assert ids[0] + ids[1] == list(range(9, 2000, 10))
    footers = [pq.read_metadata(file.path) for file in last]
    groups = [[f.row_group(n).num_rows for n in range(f.num_row_groups)] for f in footers]
    assert groups == [[50, 50, 20], [50, 30]]


def test_bytes_that_wait_are_copied_at_most_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = Counter[str]()
    compact = new_files.WaitingRows.compact

    def counted(self: new_files.WaitingRows) -> None:
        copied["bytes"] += self.bytes
        compact(self)

    monkeypatch.setattr(new_files.WaitingRows, "compact", counted)
    rows = _stream(100, partitions=10)
    _write_buffered(tmp_path / "data", BufferLimits(max_bytes=4_000), rows, spill_rows=100)
    assert 0 < copied["bytes"] <= 2 * 100 * 100 * 16
