"""The feed of the benchmark of streams, at a size at which it takes no time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.stream_feed import STORED, Feed, Shares

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.testing.feed_model import feed_rows

if TYPE_CHECKING:
    from pathlib import Path

BATCHES = 12


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    """A small table and some batches, all of which have landed."""
    feed = Feed(files=6, rows=500, size=200, shares=Shares(late_after_delete=0.02))
    feed.write_table(tmp_path / "table")
    feed.land(tmp_path / "landing", BATCHES)
    return feed


def landed(directory: Path) -> list[list[dict[str, Any]]]:
    files = sorted(directory.iterdir(), key=lambda file: file.stat().st_mtime)
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]


def test_a_batch_has_what_it_should_have(feed: Feed, tmp_path: Path) -> None:
    last: dict[int, dict[str, Any]] = {}
    for number, batch in enumerate(landed(tmp_path / "landing")):
        late = [event for event in batch if last.get(event["id"], event)["seq"] > event["seq"]]
        assert (len(batch) == 200) == (number > 0)  # before the first nothing was changed
        assert len({event["id"] for event in batch}) < len(batch)
        assert len(late) >= 4 * (number > 0)
        assert sum(event["gone"] for event in batch) >= 6
        if number > 1:
            assert any(last[event["id"]]["gone"] for event in late)
        last.update({event["id"]: event for event in sorted(batch, key=lambda e: e["seq"])})


def test_its_rows_are_those_of_the_model(feed: Feed, tmp_path: Path) -> None:
    table = pq.read_table(tmp_path / "table")
    first = [{**row, "gone": False} for row in table.to_pylist()]
    events = [event for batch in landed(tmp_path / "landing") for event in batch]
    rows = feed_rows([*first, *events], ["id"], "seq", "gone")
    expected = feed.expected().to_pylist()
    assert sorted(rows, key=lambda row: row["id"]) == expected


def test_differences_are_found(feed: Feed) -> None:
    rows = feed.expected()
    deleted = next(key for key, event in feed.last.items() if event["gone"])
    back = rows.slice(0, 1).set_column(0, "id", [[deleted]])
    other = rows.slice(1, 1).set_column(2, "amount", [[-1.0]])
    assert feed.difference(rows.sort_by([("id", "descending")])) == ""
    assert feed.difference(_joined(rows, back)) == "1 deleted rows are back"
    assert feed.difference(_joined(rows, rows.slice(3, 2))) == "2 rows are there twice"
    assert feed.difference(_joined(rows.slice(2), other)) == (
        "1 rows are missing, 1 rows have other values"
    )


def _joined(*tables: pa.Table) -> pa.Table:
    return pa.concat_tables(tables)


def test_a_feed_can_be_applied(feed: Feed, tmp_path: Path) -> None:
    io, path = PyarrowDatasetIO(), str(tmp_path / "table")
    schema = pq.read_schema(next((tmp_path / "table").iterdir()))
    for batch in landed(tmp_path / "landing"):
        changes = _table(batch, schema)
        io.apply_changes(changes, path, "id", "seq", "gone", except_column_list="gone")
    assert feed.difference(pq.read_table(path, columns=list(STORED))) == ""


def _table(batch: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(batch, schema.append(pa.field("gone", pa.bool_())))
