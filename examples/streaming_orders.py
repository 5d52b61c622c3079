"""Orders that land as JSON lines, applied to a plain Parquet dataset by Structured Streaming.

Usage: ``python examples/streaming_orders.py LANDING ORDERS``

It takes the files that are new, batch by batch, and ends: run it every hour, or whenever it was
killed. Each batch is one commit, and is applied once. ``ORDERS-quarantine`` gets the bad rows, and
``ORDERS-checkpoint`` is where Spark notes which files it has read.

Without arguments it lets a day of orders land in a temporary directory, runs twice, and prints what
became of it.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

import fsspeckit
from fsspeckit.testing.landing import make_day

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

COLUMNS = """
    order_id BIGINT, customer STRING, amount DOUBLE, status STRING,
    updated_at TIMESTAMP, operation STRING, day STRING
"""


def landed_changes(spark: SparkSession, landing: str, files_per_batch: int) -> DataFrame:
    """Return the changes of all files, each once."""
    reader = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", files_per_batch)
    return reader.json(landing)


def orders_sink(orders: str) -> fsspeckit.ApplyChangesSink:
    """Return what happens to each batch: the last change of an order wins, whenever it arrives."""
    return fsspeckit.ApplyChangesSink(
        orders,
        keys="order_id",
        sequence_by="updated_at",
        apply_as_deletes="operation = 'delete'",
        except_column_list="operation",
        partition_by="day",
        expect={"valid amount": "amount >= 0"},
        on_violation="quarantine",
        quarantine=f"{orders}-quarantine",
    )


def apply_landed(changes: DataFrame, sink: Callable[[DataFrame, int], None], orders: str) -> None:
    """Apply all changes that have landed."""
    writer = changes.writeStream.option("checkpointLocation", f"{orders}-checkpoint")
    query = writer.foreachBatch(sink).trigger(availableNow=True).start()
    query.awaitTermination()


def open_spark() -> SparkSession:
    """Return a session on this machine; a job on a cluster takes the one that is there."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return (
        SparkSession.builder.appName("orders")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )


def try_it(spark: SparkSession, directory: Path) -> None:
    """Let a day of orders land in two parts, and apply each."""
    landing, orders = str(directory / "landing"), str(directory / "orders")
    day = make_day(files=6, orders=50, seed=1)
    for number, _ in enumerate(day.land(landing), 1):
        if number in (4, 6):
            apply_landed(landed_changes(spark, landing, 2), orders_sink(orders), orders)
    for entry in fsspeckit.history(orders):
        print(entry)
    rows = fsspeckit.read_dataset(orders, engine="pyarrow")
    bad = fsspeckit.read_dataset(f"{orders}-quarantine", engine="pyarrow")
    print(f"{rows.num_rows} orders, {bad.num_rows} rows in quarantine")


def main() -> None:
    """Parse the arguments and apply what has landed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("landing", nargs="?", help="directory of JSON lines")
    parser.add_argument("orders", nargs="?", help="dataset")
    parser.add_argument("--files-per-batch", type=int, default=100)
    given = parser.parse_args()
    # Each batch is one line of the log.
    logging.basicConfig(stream=sys.stdout, format="%(message)s")
    logging.getLogger("fsspeckit").setLevel(logging.INFO)
    spark = open_spark()
    if given.orders is None:
        with tempfile.TemporaryDirectory() as directory:
            try_it(spark, Path(directory))
    else:
        changes = landed_changes(spark, given.landing, given.files_per_batch)
        apply_landed(changes, orders_sink(given.orders), given.orders)
    spark.stop()


if __name__ == "__main__":
    main()
