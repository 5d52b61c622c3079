"""Many merges into one file: it stays what a file of these rows would be."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.core.parquet.altered import layout_of
from tests.core.parquet.thrift_writer import footer_of
from tests.core.rewrite.spliced import Edit, read, same

from fsspeckit.core.rewrite import SpliceLimits
from fsspeckit.core.rewrite.diff import DEFAULT_SPLICE_LIMITS

if TYPE_CHECKING:
    from pathlib import Path

MERGES = 200
ROWS, GROUP, DELETED = 1000, 250, 4
OPTIONS: dict[str, Any] = {
    "write_page_index": True,
    "bloom_filter_options": {"id": {"ndv": GROUP, "fpp": 0.01}},
    "data_page_size": 1024,
    "compression": "zstd",
}


def _table() -> pa.Table:
    random = np.random.default_rng(0)
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "n": random.random(ROWS),
            "s": [f"s{n % 50}" for n in range(ROWS)],
            "l": [[n] for n in range(ROWS)],
        }
    )


def _dead_bytes(path: Path) -> int:
    """Bytes of a file that nothing in its footer speaks of."""
    layout = layout_of(path)
    parts = [
        part
        for group in layout.groups
        for chunk in group.chunks
        for part in (chunk.data, chunk.bloom, chunk.column_index, chunk.offset_index)
        if part is not None
    ]
    data = path.read_bytes()
    assert all(one.end <= other.start for one, other in pairwise(sorted(parts, key=_start)))
    return len(data) - 12 - len(footer_of(data)) - sum(part.length for part in parts)


def _start(part: Any) -> int:
    return int(part.start)


def _merge(path: Path, edit: Edit, limits: SpliceLimits = DEFAULT_SPLICE_LIMITS) -> None:
    new = path.with_suffix(".new")
    done = edit.on_disk(path, new, limits=limits)
    assert done.method in ("splice", "column splice"), done.reason
    new.replace(path)


@pytest.mark.slow
def test_updates_leave_nothing_behind(tmp_path: Path) -> None:
    path, random, table = tmp_path / "x.parquet", np.random.default_rng(1), _table()
    pq.write_table(table, path, row_group_size=GROUP, **OPTIONS)
    before = layout_of(path).footer
    for number in range(MERGES):
        places = sorted(random.choice(ROWS, 3, replace=False).tolist())
        rows = table.take(pa.array(places))
        column = ["n", "s"][number % 2]
        values = pa.array([number + 0.5] * 3 if column == "n" else [f"new {number}"] * 3)
        edit = Edit(places, rows.set_column(rows.column_names.index(column), column, values))
        _merge(path, edit)
        table = edit.in_memory(table).combine_chunks()
    assert same(read(path), table)
    assert _dead_bytes(path) == 0
    assert [group.rows for group in layout_of(path).groups] == [GROUP] * (ROWS // GROUP)
    after = layout_of(path).footer
    assert {n: v for n, v in after.values.items() if n != 4} == {
        n: v for n, v in before.values.items() if n != 4
    }
    assert after.raw == before.raw
    fresh = tmp_path / "fresh.parquet"
    pq.write_table(table, fresh, row_group_size=GROUP, **OPTIONS)
    assert path.stat().st_size <= 1.1 * fresh.stat().st_size


@pytest.mark.slow
def test_deletions_do_not_leave_ever_smaller_row_groups(tmp_path: Path) -> None:
    path, random, table = tmp_path / "x.parquet", np.random.default_rng(2), _table()
    pq.write_table(table, path, row_group_size=GROUP, **OPTIONS)
    for _ in range(MERGES):
        kept = np.sort(random.choice(table.num_rows, table.num_rows - DELETED, replace=False))
        table = table.take(pa.array(kept)).combine_chunks()
        edit = Edit(kept.tolist(), table, keep_others=False)
        _merge(path, edit, SpliceLimits(min_group_rows=GROUP))
    assert same(read(path), table)
    assert _dead_bytes(path) == 0
    groups = [group.rows for group in layout_of(path).groups]
    assert sum(groups) == table.num_rows == ROWS - DELETED * MERGES
    # Neighbours are joined while one of them is below a quarter of what row groups should have.
    assert len(groups) <= 2
