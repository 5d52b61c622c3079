"""The main job, as a story: plan a day's changes against a dataset of orders.

Makes an orders dataset partitioned by day, takes a batch of changes, and prints for every file
what a merge would do with it and which evidence decided that.
"""

from __future__ import annotations

import tempfile
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.incremental.planning import plan_files
from fsspeckit.core.incremental.source import source_keys
from fsspeckit.core.incremental.target import read_target
from fsspeckit.storage.listing import list_files
from fsspeckit.storage.roots import open_root

_FIRST_DAY = date(2026, 1, 1)
_DAYS = 6
_ORDERS_PER_DAY = 10_000


def main() -> None:
    """Make the dataset, plan, explain."""
    with tempfile.TemporaryDirectory() as scratch:
        orders = Path(scratch) / "orders"
        for number in range(_DAYS):
            write_day(orders, number)
        changes = change_batch()
        root = open_root(orders)
        target = read_target(root, list_files(root).files, ["order_id"], changes.schema)
        plan = plan_files(target, source_keys(changes, target), "upsert")
        print(
            f"{_DAYS} days of orders, {target.rows:,} rows; a change batch of {len(changes):,}.\n"
        )
        print(str(plan).replace(str(root.path) + "/", ""))
        affected = len(plan.with_decision("candidate"))
        print(f"\nA merge would scan the keys of {affected} of {len(plan.files)} files.")


def write_day(orders: Path, number: int) -> None:
    """One partition of two files, with order numbers that grow from day to day."""
    directory = orders / f"day={_FIRST_DAY + timedelta(days=number)}"
    directory.mkdir(parents=True)
    for part in range(2):
        start = number * _ORDERS_PER_DAY + part * _ORDERS_PER_DAY // 2
        ids = np.arange(start, start + _ORDERS_PER_DAY // 2)
        table = pa.table({"order_id": ids, "amount": np.round(ids * 0.01, 2)})
        pq.write_table(table, directory / f"part-{part}.parquet", row_group_size=1_000)


def change_batch() -> pa.Table:
    """Late changes to the newest day, and new orders of that day."""
    newest = _FIRST_DAY + timedelta(days=_DAYS - 1)
    start = (_DAYS - 1) * _ORDERS_PER_DAY
    ids = [
        *range(start, start + 300, 3),
        *range(start + _ORDERS_PER_DAY, start + _ORDERS_PER_DAY + 50),
    ]
    return pa.table(
        {"order_id": ids, "amount": [0.0] * len(ids), "day": [newest] * len(ids)},
    )


if __name__ == "__main__":
    main()
