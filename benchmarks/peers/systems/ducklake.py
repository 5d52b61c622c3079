"""DuckLake with a catalog in DuckDB; its extension comes as a wheel."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import duckdb_extension_ducklake

from benchmarks.peers.protocol import link_tree
from benchmarks.peers.tables import KEY, PARTITION, schema_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from benchmarks.peers.protocol import Files
    from benchmarks.peers.workloads import Strategy


class _DuckLake:
    def make(self, files: Files, place: Path) -> None:
        with _attached(place) as connection:
            connection.register("empty", schema_of(files.layout).empty_table())
            connection.execute("CREATE TABLE lake.rows AS FROM empty")
            if files.layout.partitioned:
                connection.execute(f"ALTER TABLE lake.rows SET PARTITIONED BY ({PARTITION})")
                connection.execute(
                    "INSERT INTO lake.rows BY NAME SELECT * FROM "
                    f"read_parquet('{files.directory}/**/*.parquet', hive_partitioning = true)"
                )
                return
            link_tree(files.directory, place / "data" / "main" / "rows")
            connection.execute(
                f"CALL ducklake_add_data_files('lake', 'rows', '{place}/data/main/rows/*.parquet')"
            )

    def merge(self, place: Path, source: pa.Table, strategy: Strategy) -> None:
        matched = "WHEN MATCHED THEN UPDATE" if strategy == "upsert" else ""
        with _attached(place) as connection:
            connection.register("source", source)
            connection.execute(
                f"MERGE INTO lake.rows USING source USING ({KEY}) {matched} "
                "WHEN NOT MATCHED THEN INSERT"
            )

    def read(self, place: Path) -> pa.Table:
        with _attached(place) as connection:
            return connection.execute("FROM lake.rows").to_arrow_table()


@contextmanager
def _attached(place: Path) -> Iterator[Any]:
    with duckdb.connect() as connection:
        # By path, and so signed by DuckDB's own key: nothing else is loaded by default.
        connection.execute(f"LOAD '{_extension()}'")
        catalog, data = f"ducklake:{place}/catalog.ducklake", f"{place}/data"
        connection.execute(f"ATTACH '{catalog}' AS lake (DATA_PATH '{data}')")
        yield connection


def _extension() -> Path:
    package = Path(duckdb_extension_ducklake.__file__).parent
    return next(package.glob("extensions/*/ducklake.duckdb_extension"))


def lake() -> _DuckLake:
    """With the defaults."""
    return _DuckLake()
