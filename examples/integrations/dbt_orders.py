"""Run a dbt project three times: each run merges what has landed since into plain Parquet.

The model ``orders`` is external and names the plugin ``fsspeckit``, so its rows go into a dataset
that grows from run to run, and only the files of orders that have changed are rewritten. The third
run finds nothing new and commits nothing.

Needs dbt-duckdb; ``make test-integrations`` runs it in an environment of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
from dbt.adapters.duckdb import DuckDBConnectionManager
from dbt.cli.main import dbtRunner

import fsspeckit

PROJECT = Path(__file__).parent / "dbt_orders"
HERE = Path.cwd()


def land(name: str, *rows: tuple[int, str, str, str]) -> None:
    """Write a file of order events, as another system would."""
    HERE.joinpath("landing").mkdir(exist_ok=True)
    columns = ("order_id", "status", "placed_at", "updated_at")
    lines = [json.dumps(dict(zip(columns, row, strict=True))) for row in rows]
    HERE.joinpath("landing", f"{name}.jsonl").write_text("\n".join(lines))


def dbt(*command: str) -> bool:
    """Run a command of dbt, and return whether it succeeded."""
    directories = {
        "--project-dir": PROJECT,
        "--profiles-dir": PROJECT,
        "--target-path": HERE / "target",
        "--log-path": HERE / "logs",
    }
    options = [str(part) for option in directories.items() for part in option]
    try:
        return bool(dbtRunner().invoke(["--quiet", *command, *options]).success)
    finally:
        DuckDBConnectionManager.close_all_connections()


def show(title: str) -> None:
    """Print the dataset, what a model on top of it says, and what the last commit did."""
    rows: Any = fsspeckit.read_dataset("lake/orders", engine="pyarrow").sort_by("order_id")
    last = fsspeckit.history("lake/orders")[-1]
    with duckdb.connect("warehouse.duckdb") as warehouse:
        counts = warehouse.sql("SELECT * FROM orders_by_status ORDER BY status").fetchall()
    print(f"{title}: {rows['status'].to_pylist()}, {dict(counts)}")
    print(f"  commit {last.number}: {dict(last.counts)}")


def main() -> None:
    """Run the project three times."""
    land(
        "monday",
        (1, "placed", "2026-03-02 09:00:00", "2026-03-02 09:00:00"),
        (2, "placed", "2026-03-02 10:00:00", "2026-03-02 10:00:00"),
    )
    assert dbt("run")
    show("monday")
    land(
        "tuesday",
        (2, "paid", "2026-03-02 10:00:00", "2026-03-03 08:00:00"),
        (3, "placed", "2026-03-03 09:00:00", "2026-03-03 09:00:00"),
    )
    assert dbt("run")
    show("tuesday")
    assert dbt("run")
    show("again")


if __name__ == "__main__":
    main()
