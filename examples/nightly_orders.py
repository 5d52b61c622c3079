"""Orders that land as JSON lines, applied to a plain Parquet dataset by a job of every night.

Usage: ``python examples/nightly_orders.py LANDING ORDERS NIGHT``

``LANDING/2026-03-02`` holds the files of that night. The night is the number of the batch, so the
job can be repeated: a night that is committed is skipped. ``ORDERS-quarantine`` gets the bad rows.
There is no Spark in it.

Without arguments it lets two nights land in a temporary directory, applies each of them twice, and
prints what became of it.
"""

from __future__ import annotations

import argparse
import tempfile
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from fsspeckit import Transaction, history
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.testing.landing import Day, make_day

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fsspeckit.core.merge import MergeResult
    from fsspeckit.datasets.base import DatasetIO

COLUMNS = pa.schema(
    [
        ("order_id", pa.int64()),
        ("customer", pa.string()),
        ("amount", pa.float64()),
        ("status", pa.string()),
        ("updated_at", pa.timestamp("us", "UTC")),
        ("operation", pa.string()),
        ("day", pa.string()),
    ]
)


def read_changes(files: Iterable[Path]) -> pa.Table:
    """Return the rows of some files."""
    options = pa.json.ParseOptions(explicit_schema=COLUMNS, unexpected_field_behavior="error")
    tables = [
        pa.json.read_json(file, parse_options=options) for file in files if file.stat().st_size
    ]
    return pa.concat_tables([COLUMNS.empty_table(), *tables])


def apply_batch(
    io: DatasetIO, changes: pa.Table, orders: str, batch: Transaction
) -> tuple[MergeResult, int]:
    """Apply the good rows of a batch, and append the bad ones to the quarantine, each once.

    If the job dies between both calls, the first one is skipped when the batch is repeated.
    """
    is_good = pc.fill_null(pc.greater_equal(changes["amount"], 0), False)
    bad = changes.filter(pc.invert(is_good))
    if bad.num_rows:
        io.write_dataset(bad, f"{orders}-quarantine", transaction=batch)
    result = io.apply_changes(
        changes.filter(is_good),
        orders,
        keys="order_id",
        sequence_by="updated_at",
        apply_as_deletes="operation = 'delete'",
        except_column_list="operation",
        partition_by="day",
        transaction=batch,
    )
    return result, bad.num_rows


def apply_night(io: DatasetIO, landing: Path, orders: str, night: date) -> str:
    """Apply the files of a night, and say what that did."""
    files = sorted((landing / night.isoformat()).glob("[!._]*.json"))
    batch = Transaction("orders-nightly", int(f"{night:%Y%m%d}"))
    result, bad = apply_batch(io, read_changes(files), orders, batch)
    if result.metrics["commit"]["skipped"]:
        return f"{night}: committed already"
    return (
        f"{night}: {len(files)} files, {result.inserted} inserted, {result.updated} updated, "
        f"{result.deleted} deleted, {result.late} late, {bad} bad"
    )


def try_it(directory: Path) -> None:
    """Let two nights land, and apply each of them twice."""
    landing, orders = directory / "landing", str(directory / "orders")
    day = make_day(files=6, orders=50, seed=1)
    io = PyarrowDatasetIO()
    for number, files in enumerate((day.files[:4], day.files[4:])):
        night = date(2026, 3, 2) + timedelta(days=number)
        list(Day(files).land(landing / night.isoformat()))
        for _ in range(2):
            print(apply_night(io, landing, orders, night))
    for entry in history(orders):
        print(entry)


def main() -> None:
    """Parse the arguments and apply a night."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("landing", nargs="?", type=Path, help="directory of a directory each night")
    parser.add_argument("orders", nargs="?", help="dataset")
    parser.add_argument("night", nargs="?", type=date.fromisoformat, help="such as 2026-03-02")
    given = parser.parse_args()
    if given.night is None:
        with tempfile.TemporaryDirectory() as directory:
            try_it(Path(directory))
    else:
        print(apply_night(PyarrowDatasetIO(), given.landing, given.orders, given.night))


if __name__ == "__main__":
    main()
