"""PyIceberg with a catalog in SQLite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.transforms import IdentityTransform

from benchmarks.peers.tables import PARTITION, rows_of, schema_of

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.peers.protocol import Files
    from benchmarks.peers.workloads import Strategy

_NAME = "bench.rows"


class _Iceberg:
    def make(self, files: Files, place: Path) -> None:
        catalog = _catalog(place)
        catalog.create_namespace("bench")
        layout = files.layout
        table = catalog.create_table(_NAME, schema_of(layout))
        if not layout.partitioned:
            directory = place / "warehouse" / "files"
            directory.mkdir(parents=True)
            for path in files.paths:
                (directory / path.name).hardlink_to(path)
            table.add_files([str(path) for path in sorted(directory.iterdir())])
            return
        with table.update_spec() as spec:
            spec.add_field(PARTITION, IdentityTransform(), PARTITION)
        # Files of hive partitions lack the column; one append writes a file for each partition.
        rows = [rows_of(layout, layout.codes(number)) for number in range(layout.files)]
        table.append(pa.concat_tables(rows))

    def merge(self, place: Path, source: pa.Table, strategy: Strategy) -> None:
        table = _catalog(place).load_table(_NAME)
        table.upsert(source, ["id"], when_matched_update_all=strategy == "upsert")

    def read(self, place: Path) -> pa.Table:
        return _catalog(place).load_table(_NAME).scan().to_arrow()


def _catalog(place: Path) -> Any:
    warehouse = place / "warehouse"
    warehouse.mkdir(exist_ok=True)
    return SqlCatalog("bench", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{warehouse}")


def table() -> _Iceberg:
    """With the defaults."""
    return _Iceberg()
