"""delta-rs: as its users call it, and with the pruning that its default turns off."""

from __future__ import annotations

from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa

from benchmarks.peers.protocol import link_tree
from benchmarks.peers.tables import KEY, PARTITION

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.peers.protocol import Files
    from benchmarks.peers.workloads import Strategy


class _DeltaTable:
    def __init__(self, *, streamed: bool) -> None:
        self._streamed = streamed

    def make(self, files: Files, place: Path) -> None:
        link_tree(files.directory, place / "table")
        hive = deltalake.Schema.from_arrow(pa.schema([(PARTITION, pa.string())]))
        deltalake.convert_to_deltalake(
            str(place / "table"),
            partition_by=hive if files.layout.partitioned else None,
            partition_strategy="hive" if files.layout.partitioned else None,
        )

    def merge(self, place: Path, source: pa.Table, strategy: Strategy) -> None:
        merger = deltalake.DeltaTable(str(place / "table")).merge(
            source,
            f"target.{KEY} = source.{KEY}",
            source_alias="source",
            target_alias="target",
            streamed_exec=self._streamed,
        )
        if strategy == "upsert":
            merger = merger.when_matched_update_all()
        merger.when_not_matched_insert_all().execute()

    def read(self, place: Path) -> pa.Table:
        return deltalake.DeltaTable(str(place / "table")).to_pyarrow_table()


def default() -> _DeltaTable:
    """With the defaults of its Python package."""
    return _DeltaTable(streamed=True)


def pruned() -> _DeltaTable:
    """With the source's statistics used to leave files out."""
    return _DeltaTable(streamed=False)
