"""Load orders with dlt into plain Parquet: merged by their key, nested rows and deletes included.

dlt's own filesystem destination would append. Run it in an empty directory; it loads three times,
and the third load has a new column.

Needs dlt, which comes with ``make setup``.
"""

from __future__ import annotations

from typing import Any

import dlt
import pyarrow.parquet as pq

import fsspeckit
from fsspeckit.integrations.dlt import plain_parquet

LOADS: list[list[dict[str, Any]]] = [
    [
        {"id": 1, "status": "placed", "items": [{"sku": "pen"}, {"sku": "ink"}]},
        {"id": 2, "status": "placed", "items": [{"sku": "paper"}]},
    ],
    [
        {"id": 1, "status": "paid", "items": [{"sku": "pen"}]},
        {"id": 2, "status": "placed", "deleted": True},
        {"id": 3, "status": "placed", "items": []},
    ],
    [{"id": 3, "status": "paid", "coupon": "spring"}],
]


@dlt.resource(
    name="orders",
    write_disposition="merge",
    primary_key="id",
    columns={"deleted": {"hard_delete": True, "data_type": "bool"}},
)
def orders(rows: list[dict[str, Any]]) -> Any:
    """Yield the orders of one load."""
    yield rows


def main() -> None:
    """Load three times."""
    pipeline = dlt.pipeline(
        "orders", destination=plain_parquet("lake"), dataset_name="shop", pipelines_dir="pipelines"
    )
    for rows in LOADS:
        pipeline.run(orders(rows))
        found = pq.read_table("lake/shop/orders").sort_by("id")
        items = pq.read_table("lake/shop/orders__items")
        print(f"orders {found.select(['id', 'status']).to_pylist()}")
        print(f"  items {sorted(items['sku'].to_pylist())}, columns {found.column_names}")
    for entry in fsspeckit.history("lake/shop/orders"):
        counts = [f"{entry.counts[name]} {name}" for name in ("inserted", "updated", "deleted")]
        print(f"commit {entry.number}: {', '.join(counts)}")


if __name__ == "__main__":
    main()
