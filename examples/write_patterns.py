"""Ways to write a dataset: append, overwrite, split, name, and from a relation."""

from __future__ import annotations

import tempfile

import duckdb
import pyarrow as pa

from fsspeckit.datasets.duckdb import DuckDBDatasetIO, DuckDBParquetHandler


def main() -> None:
    """Write one dataset in several ways."""
    orders = pa.table({"id": range(10), "amount": [float(n) for n in range(10)]})
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/orders"
        with DuckDBParquetHandler() as handler:
            first = handler.write_parquet_dataset(orders, path, max_rows_per_file=4)
            print("split:", [file.row_count for file in first.files])

            more = handler.write_parquet_dataset(
                orders, path, mode="append", basename_template="late-{i}.parquet"
            )
            print("appended:", more.total_rows, "rows; now", count(handler, path))

            handler.write_parquet_dataset(orders.slice(0, 3), path, mode="overwrite")
            print("overwritten: now", count(handler, path))

        connection = duckdb.connect()
        relation = connection.sql("SELECT i AS id, i::DOUBLE AS amount FROM range(100, 200) t(i)")
        with DuckDBDatasetIO(connection) as io:
            io.write_dataset(relation, path)
            print("from a relation: now", count(io, path))


def count(io: DuckDBDatasetIO, path: str) -> int:
    """The rows of a dataset."""
    return io.read_dataset(path, columns=["id"]).num_rows


if __name__ == "__main__":
    main()
