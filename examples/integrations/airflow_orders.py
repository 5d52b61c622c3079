"""A DAG whose task fails after its commit and is retried: no row is doubled.

An append cannot be repeated by itself. Here it has the transaction of the run, so the retry finds
that the run is committed, and skips it. The second task merges, and needs nothing for a retry.

Needs Airflow 3; ``make test-integrations`` runs it in an environment of its own. As a program it
runs the DAG for two days, with ``dag.test()``, in the current directory::

    airflow db migrate
    AIRFLOW__CORE__DAGS_FOLDER=examples/integrations python examples/integrations/airflow_orders.py
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
from airflow.sdk import dag, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException

import fsspeckit
from fsspeckit.integrations.airflow import run_transaction

FIRST_DAY = datetime(2026, 3, 2, tzinfo=UTC)


@dag(
    schedule="@daily",
    start_date=FIRST_DAY,
    catchup=False,
    max_active_runs=1,  # runs are committed in their order
    default_args={"retries": 2, "retry_delay": timedelta(0)},
)
def orders():
    """Append what was ordered, then merge the state of each customer."""

    @task
    def append_orders() -> int:
        context = get_current_context()
        day = context["dag_run"].run_after.day
        rows = pa.table({"order_id": [day * 10, day * 10 + 1], "customer": ["ada", "bob"]})
        try:
            done = fsspeckit.write_dataset(
                rows, "lake/orders", transaction=run_transaction(), engine="pyarrow"
            )
        except ValueError as error:  # which a retry cannot mend
            raise AirflowFailException(str(error)) from error
        print(f"try {context['ti'].try_number}, skipped: {done.metrics['commit']['skipped']}")
        if context["ti"].try_number == 1:
            raise ConnectionError("the worker is lost after the commit")
        return day

    @task
    def merge_customers(day: int) -> None:
        rows = pa.table({"customer": ["ada", "bob"], "last_day": [day, day]})
        fsspeckit.upsert(rows, "lake/customers", key="customer")

    merge_customers(append_orders())


orders_dag = orders()


def main() -> None:
    """Run the DAG for two days."""
    for number in range(2):
        run = orders_dag.test(run_after=FIRST_DAY + timedelta(days=number))
        print(f"{run.run_id}: {run.state}")
    for path, key in (("lake/orders", "order_id"), ("lake/customers", "customer")):
        rows = fsspeckit.read_dataset(path, engine="pyarrow")
        print(f"{path}: {sorted(rows[key].to_pylist())}")
        for entry in fsspeckit.history(path):
            print(f"  commit {entry.number}: {dict(entry.counts)}, {entry.transaction}")


if __name__ == "__main__":
    main()
