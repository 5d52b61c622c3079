"""Assets of Dagster as plain Parquet: a step fails after its commit and is retried, once.

``raw_orders`` appends the orders of a day by itself, in the transaction of its run, so that its
retry is skipped. The IO manager merges ``orders`` by its key. As a program it materializes two
days, in the current directory.

Needs dagster; ``make test-integrations`` runs it in an environment of its own.
"""

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

import fsspeckit
from fsspeckit.integrations.dagster import PlainParquetIOManager, run_transaction

DAYS = dg.DailyPartitionsDefinition(start_date="2026-03-02")
AMOUNTS = {"2026-03-02": {1: 10, 2: 20}, "2026-03-03": {2: 25, 3: 30}}


@dg.asset(partitions_def=DAYS, retry_policy=dg.RetryPolicy(max_retries=2))
def raw_orders(context: dg.AssetExecutionContext) -> None:
    """Append the orders of a day, and fail once afterwards."""
    day = context.partition_key
    ids = list(AMOUNTS[day])
    rows = {"order_id": ids, "amount": list(AMOUNTS[day].values()), "day": [day] * len(ids)}
    done = fsspeckit.write_dataset(
        pa.table(rows), "lake/raw_orders", transaction=run_transaction(context), engine="pyarrow"
    )
    print(f"try {context.retry_number + 1}, skipped: {done.metrics['commit']['skipped']}")
    if context.retry_number == 0:
        raise ConnectionError("the worker is lost after the commit")


@dg.asset(
    partitions_def=DAYS,
    deps=[raw_orders],
    metadata={"key": "order_id", "partition_expr": "day"},
)
def orders(context: dg.AssetExecutionContext) -> pa.Table:
    """Return the last state of the orders of a day."""
    day = pc.field("day") == context.partition_key
    return fsspeckit.read_dataset("lake/raw_orders", filters=day, engine="pyarrow")


@dg.asset(partitions_def=DAYS)
def revenue(context: dg.AssetExecutionContext, orders: pa.Table) -> None:
    """Print what the IO manager loads: the rows of one day."""
    print(f"{context.partition_key}: {orders.num_rows} orders, {pc.sum(orders['amount'])} in total")


def main() -> None:
    """Materialize two days."""
    resources = {"io_manager": PlainParquetIOManager(base_path="lake")}
    for day in AMOUNTS:
        dg.materialize([raw_orders, orders, revenue], resources=resources, partition_key=day)
    for path in ("lake/raw_orders", "lake/orders"):
        rows = fsspeckit.read_dataset(path, engine="pyarrow")
        print(f"{path}: {sorted(rows['order_id'].to_pylist())}")
        for entry in fsspeckit.history(path):
            print(f"  commit {entry.number}: {dict(entry.counts)}")


if __name__ == "__main__":
    main()
