"""The main job, as a story: a day's changes go into a dataset of orders, and nothing is lost.

Makes an orders dataset partitioned by day, plans a batch of changes, upserts it, shows that all
other files are untouched, kills a merge half-way, recovers, and prints the history.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import tempfile
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

import fsspeckit
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.storage.syscalls import Call, observed

if TYPE_CHECKING:
    from collections.abc import Iterator

_FIRST_DAY = date(2026, 1, 1)
_DAYS = 6
_ORDERS_PER_DAY = 10_000


def main() -> None:
    """Tell the story."""
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        make_orders()
        changes = change_batch(_DAYS - 1, amount=0.0)
        plan_changes(changes)
        upsert_changes(changes)
        kill_and_recover(change_batch(_DAYS - 2, amount=1.5))
        print_history()


def make_orders() -> None:
    """Write six days of orders, one partition each."""
    title("A dataset of orders, partitioned by day")
    days = [orders_of(number) for number in range(_DAYS)]
    result = PyarrowDatasetIO().write_dataset(
        days,
        "orders",
        partition_by=["day"],
        max_rows_per_file=_ORDERS_PER_DAY // 2,
        row_group_size=1_000,
    )
    print(f"{result.total_rows:,} rows in {len(result.files)} plain Parquet files")


def plan_changes(changes: pa.Table) -> None:
    """Show what a merge would do, and why."""
    title(f"The plan for a batch of {len(changes)} changes: one line for every file")
    print(fsspeckit.plan_merge(changes, "orders", "upsert", ["order_id"], engine="pyarrow"))


def upsert_changes(changes: pa.Table) -> None:
    """Merge, and prove that the other files are untouched."""
    title("The upsert")
    before = digests()
    result = fsspeckit.merge(changes, "orders", "upsert", ["order_id"], engine="pyarrow")
    print(f"{result.updated} rows updated, {result.inserted} inserted")
    print(f"{len(result.rewritten_files)} file rewritten, {len(result.inserted_files)} added")
    after = digests()
    untouched = [name for name, digest in before.items() if after.get(name) == digest]
    print(f"{len(untouched)} of {len(before)} files have the same name, bytes and mtime as before")
    again = fsspeckit.merge(changes, "orders", "upsert", ["order_id"], engine="pyarrow")
    print(f"the same merge again rewrites {len(again.rewritten_files)} files")


def kill_and_recover(changes: pa.Table) -> None:
    """Let a process die in the middle of a commit, then recover."""
    title("A merge is killed right after its commit was recorded")
    child = multiprocessing.get_context("spawn").Process(target=merge_and_die, args=(changes,))
    child.start()
    child.join()
    print(f"the process ended with exit code {child.exitcode}")
    print(f"a plain reader sees {changed(read_plainly(), 1.5)} changed rows: not half a merge")
    print(fsspeckit.recover("orders"))
    print(f"a plain reader now sees {changed(read_plainly(), 1.5)} changed rows")


def merge_and_die(changes: pa.Table) -> None:
    """Merge, and die as soon as the commit record is there."""

    @contextmanager
    def die_after_the_record(call: Call) -> Iterator[None]:
        yield
        if "/commits/" in call.paths[-1] and call.paths[-1].endswith(".json"):
            os._exit(9)

    with observed(die_after_the_record):
        fsspeckit.merge(changes, "orders", "upsert", ["order_id"], engine="pyarrow")


def print_history() -> None:
    """List the commits."""
    title("The history")
    for entry in fsspeckit.history("orders"):
        counts = ", ".join(f"{count} {name}" for name, count in entry.counts.items() if count)
        recovered = ", completed by recovery" if entry.recovered else ""
        files = f"+{len(entry.added)} -{len(entry.removed)} files"
        print(f"{entry.number}  {entry.strategy:<7} {files}  {counts or 'new dataset'}{recovered}")


def orders_of(day: int) -> pa.Table:
    """The orders of a day; order numbers grow from day to day."""
    ids = np.arange(day * _ORDERS_PER_DAY, (day + 1) * _ORDERS_PER_DAY)
    return as_orders(ids, day, np.round(ids * 0.01 + 10, 2))


def change_batch(day: int, amount: float) -> pa.Table:
    """Late changes to orders of a day, and for the newest day new orders."""
    start = day * _ORDERS_PER_DAY
    ids = np.arange(start, start + 300, 3)
    if day == _DAYS - 1:
        ids = np.concatenate(
            [ids, np.arange(start + _ORDERS_PER_DAY, start + _ORDERS_PER_DAY + 50)]
        )
    return as_orders(ids, day, np.full(len(ids), amount))


def as_orders(ids: np.ndarray, day: int, amounts: np.ndarray) -> pa.Table:
    """Rows of the dataset."""
    days = pa.array([_FIRST_DAY + timedelta(days=day)] * len(ids))
    return pa.table({"order_id": ids, "amount": amounts, "day": days})


def digests() -> dict[str, tuple[str, int]]:
    """Every data file with its bytes and mtime."""
    return {
        str(path): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in Path("orders").rglob("*.parquet")
    }


def read_plainly() -> pa.Table:
    """Read like somebody who knows nothing of this project."""
    return ds.dataset("orders", partitioning="hive").to_table()


def changed(orders: pa.Table, amount: float) -> int:
    """How many orders have this amount."""
    return int(np.sum(orders.column("amount").to_numpy() == amount))


def title(text: str) -> None:
    """Print a heading."""
    print(f"\n{text}\n{'-' * len(text)}")


if __name__ == "__main__":
    main()
