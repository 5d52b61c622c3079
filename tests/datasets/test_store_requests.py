"""How many requests a merge on an object store is: each is a round trip to another machine."""

from __future__ import annotations

import io
from collections import Counter
from typing import TYPE_CHECKING

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.testing.object_stores import moto

if TYPE_CHECKING:
    from collections.abc import Iterable

FILES, ROWS = 16, 100
LEAST_FOOTERS = FILES


def table(keys: Iterable[int], value: int) -> pa.Table:
    ids = list(keys)
    return pa.table({"id": ids, "value": [value] * len(ids), "text": [f"row {n}" for n in ids]})


@pytest.fixture
def dataset() -> str:
    """A dataset of 16 files with four row groups each."""
    path = f"{moto().make_bucket()}/lake/data"
    filesystem = fsspec.filesystem("s3", **moto().options)
    for number in range(FILES):
        buffer = io.BytesIO()
        rows = table(range(number * ROWS, (number + 1) * ROWS), 0)
        pq.write_table(rows, buffer, row_group_size=25)
        filesystem.pipe_file(f"{path}/part-{number:05}.parquet", buffer.getvalue())
    return f"s3://{path}"


WORKLOADS = {
    "one row": (table([7], 1), "upsert", 1, 44),
    "rows of two files": (table([*range(10), *range(700, 710)], 1), "upsert", 2, 51),
    "rows of all files": (table(range(0, FILES * ROWS, 10), 1), "upsert", FILES, 92),
    "new rows": (table(range(5000, 5010), 1), "insert", 0, 45),
}
"""The source, the strategy, how many files it changes, and how many requests are too many."""


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_merge_asks_for_everything_once(dataset: str, name: str) -> None:
    source, strategy, changed, most = WORKLOADS[name]
    with moto().recording() as asked, PyarrowDatasetIO(storage_options=moto().options) as engine:
        merged = engine.merge(source, dataset, strategy, ["id"])
    assert len(merged.rewritten_files) == changed
    counts = Counter(request.action for request in asked)
    assert len(asked) <= most, counts
    assert counts["CopyObject"] == changed + len(merged.inserted_files)
    # The footer of each file, and the rest of those with a source key; a new file is looked at.
    data = [one for one in asked if one.action == "GetObject" and "/data/" in one.key]
    assert len(data) <= LEAST_FOOTERS + changed + 1
    assert counts["HeadObject"] <= len(merged.inserted_files)
    expected = {row["id"]: row for row in table(range(FILES * ROWS), 0).to_pylist()}
    expected |= {row["id"]: row for row in source.to_pylist()}
    with PyarrowDatasetIO(storage_options=moto().options) as engine:
        found = engine.read_dataset(dataset).to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == [expected[key] for key in sorted(expected)]


@pytest.mark.slow
def test_an_object_whose_name_no_disk_would_take() -> None:
    path = f"{moto().make_bucket()}/lake/data"
    buffer = io.BytesIO()
    pq.write_table(table(range(3), 0), buffer)
    filesystem = fsspec.filesystem("s3", **moto().options)
    filesystem.pipe_file(f"{path}/{'x' * 300}.parquet", buffer.getvalue())
    with PyarrowDatasetIO(storage_options=moto().options) as engine:
        merged = engine.merge(table([1], 5), f"s3://{path}", "upsert", ["id"])
        assert (merged.updated, len(merged.rewritten_files)) == (1, 1)
        found = engine.read_dataset(f"s3://{path}")
    assert sorted(found["value"].to_pylist()) == [0, 0, 5]


@pytest.mark.slow
def test_a_merge_without_effect_writes_nothing(dataset: str) -> None:
    with moto().recording() as asked, PyarrowDatasetIO(storage_options=moto().options) as engine:
        merged = engine.merge(table([7], 0), dataset, "upsert", ["id"])
    assert not merged.rewritten_files
    written = {one.key.rpartition("/")[2] for one in asked if one.action == "PutObject"}
    assert written <= {"owner.json"}
