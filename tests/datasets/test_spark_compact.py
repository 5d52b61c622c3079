"""Compactions by tasks: a bin is an item, and only files that tasks name are committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.datasets.spark import SparkDatasetIO, SparkLimits

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("sort_by", [None, "id"])
def test_bins_are_written_by_tasks(spark: Any, tmp_path: Path, sort_by: str | None) -> None:
    path = str(tmp_path / "data")
    for number in range(4):
        rows = pa.table({"id": range(number, 40, 4), "p": [number % 2] * len(range(number, 40, 4))})
        PyarrowDatasetIO().write_dataset(rows, path, partition_by=["p"])
    before = ds.dataset(path, partitioning="hive").to_table().sort_by("id")
    io = SparkDatasetIO(spark, limits=SparkLimits(driver_max_target_bytes=0))
    assert io.plan_compact(path, sort_by=sort_by).files_after == 2
    result = io.compact(path, sort_by=sort_by)
    assert (result.files_before, result.files_after, result.given_up) == (4, 2, [])
    assert ds.dataset(path, partitioning="hive").to_table().sort_by("id").equals(before)
    assert io.compact(path, sort_by=sort_by).bins == []
