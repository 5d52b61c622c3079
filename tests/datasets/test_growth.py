"""Work grows with columns, batches and partitions, not with their square; counted, never timed."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

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
