"""Debezium's envelopes, as JSON lines, applied to a dataset of plain Parquet files.

One SELECT makes a feed of them. The batches arrive in the wrong order, and one of them twice.
Needs the engine ``duckdb``: ``python examples/debezium.py``.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from fsspeckit.datasets.duckdb import DuckDBDatasetIO

ROW = "STRUCT(id BIGINT, name VARCHAR)"
COLUMNS = {"before": ROW, "after": ROW, "source": "STRUCT(lsn BIGINT)", "op": "VARCHAR"}

# A truncate has no row: each key that is stored and older is deleted by it. Records without a
# value, which Kafka wants after a delete, have no operation and are left out.
FEED = """
    WITH envelopes AS (SELECT * FROM read_json($file, columns = $columns)),
    cut AS (SELECT coalesce(max(source.lsn), -1) AS lsn FROM envelopes WHERE op = 't')
    SELECT coalesce(after.id, before.id) AS id, after.name AS name, source.lsn AS seq, op
    FROM envelopes, cut
    WHERE op IN ('c', 'r', 'u', 'd') AND source.lsn > cut.lsn
    UNION ALL
    SELECT stored.id, NULL, cut.lsn, 'd' FROM stored, cut WHERE stored.seq <= cut.lsn
"""


def main() -> None:
    """Apply batches as they arrive, and print the rows after each."""
    first = [
        envelope("r", 1, after=(1, "Ada")),
        envelope("c", 2, after=(2, "Bob")),
        envelope("u", 3, before=(1, "Ada"), after=(1, "Ada L.")),
    ]
    second = [envelope("d", 5, before=(2, "Bob")), {"op": None}]
    late = [envelope("u", 4, before=(2, "Bob"), after=(2, "Bobby"))]
    truncated = [envelope("t", 7), envelope("c", 8, after=(3, "Cy"))]
    with tempfile.TemporaryDirectory() as directory, DuckDBDatasetIO() as io:
        file, path = Path(directory, "envelopes.jsonl"), f"{directory}/people"
        for batch in (first, second, late, first, truncated):
            file.write_text("".join(json.dumps(one) + "\n" for one in batch))
            result = io.apply_changes(
                feed(io, file, path),
                path,
                keys="id",
                sequence_by="seq",
                apply_as_deletes="op = 'd'",
                except_column_list="op",
            )
            rows = io.read_dataset(path, columns=["id", "name"]).to_pylist()
            print(f"{result.late} late; now", sorted(tuple(row.values()) for row in rows))


def envelope(
    op: str, lsn: int, before: tuple[int, str] | None = None, after: tuple[int, str] | None = None
) -> dict[str, Any]:
    """What Debezium writes for one change."""
    rows = {"before": before, "after": after}
    named = {
        name: row and dict(zip(("id", "name"), row, strict=True)) for name, row in rows.items()
    }
    return {**named, "source": {"lsn": lsn}, "op": op}


def feed(io: DuckDBDatasetIO, file: Path, path: str) -> pa.Table:
    """Make changes of envelopes."""
    stored = pa.table({"id": pa.array([], pa.int64()), "seq": pa.array([], pa.int64())})
    if Path(path).exists():
        stored = io.read_dataset(path, columns=["id", "seq"])
    with duckdb.connect() as connection:
        connection.register("stored", stored)
        return connection.sql(FEED, params={"file": str(file), "columns": COLUMNS}).to_arrow_table()


if __name__ == "__main__":
    main()
