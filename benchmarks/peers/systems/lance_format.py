"""Lance, in its own file format, without a scalar index on the key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import pyarrow as pa

from benchmarks.peers.tables import KEY, rows_of, schema_of

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.peers.protocol import Files
    from benchmarks.peers.workloads import Strategy


class _Lance:
    def make(self, files: Files, place: Path) -> None:
        layout = files.layout
        batches = (
            batch
            for number in range(layout.files)
            for batch in rows_of(layout, layout.codes(number)).to_batches()
        )
        reader = pa.RecordBatchReader.from_batches(schema_of(layout), batches)
        lance.write_dataset(reader, str(place / "table"), max_rows_per_file=layout.rows_per_file)

    def merge(self, place: Path, source: pa.Table, strategy: Strategy) -> None:
        builder = (
            lance.dataset(str(place / "table")).merge_insert(KEY).when_not_matched_insert_all()
        )
        if strategy == "upsert":
            builder = builder.when_matched_update_all()
        builder.execute(source)

    def read(self, place: Path) -> pa.Table:
        return lance.dataset(str(place / "table")).to_table()


def dataset() -> _Lance:
    """With the defaults."""
    return _Lance()
