"""`DuckDBParquetHandler` under the path that users know.

>>> import pyarrow as pa
>>> from fsspeckit.utils.duckdb import DuckDBParquetHandler
>>> with DuckDBParquetHandler() as handler:
...     handler.write_parquet_dataset(pa.table({"id": [1]}), "memory://doc-utils-duckdb").mode
'append'
"""

from __future__ import annotations

from fsspeckit.datasets.duckdb import DuckDBDatasetIO, DuckDBParquetHandler

__all__ = ["DuckDBDatasetIO", "DuckDBParquetHandler"]
