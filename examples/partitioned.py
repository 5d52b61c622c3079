"""A partitioned dataset: a merge leaves the partitions alone that the source does not write to."""

from __future__ import annotations

import tempfile
from datetime import date

import pyarrow as pa

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO


def main() -> None:
    """Write three days, then correct one of them."""
    days = [date(2025, 1, day) for day in (1, 2, 3)]
    sales = pa.table({"day": days * 2, "id": range(6), "amount": [10.0] * 6})
    correction = pa.table({"day": [days[1]], "id": [1], "amount": [12.5]})
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/sales"
        io = PyarrowDatasetIO()
        io.write_dataset(sales, path, partition_by=["day"])
        print(str(io.plan_merge(correction, path, "upsert", ["day", "id"])).replace(path, "sales"))
        result = io.merge(correction, path, "upsert", ["day", "id"])
        print(f"{len(result.rewritten_files)} of {len(result.files)} files rewritten")


if __name__ == "__main__":
    main()
