"""Change feeds on Spark: in the driver and in tasks, and conditions that are a Column."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit import errors
from fsspeckit.core.changes import TombstoneLimits

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from fsspeckit.datasets.spark import SparkDatasetIO

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TIERS: dict[str, dict[str, int]] = {
    "driver": {},
    "broadcast": {"driver_max_source_rows": 0, "task_min_rows": 20, "task_min_bytes": 1},
    "shuffle": {
        "driver_max_source_rows": 0,
        "broadcast_max_given_keys": 0,
        "broadcast_max_key_bytes": 0,
        "broadcast_max_function_bytes": 0,
        "combine_max_bytes": 2000,
        "task_min_rows": 20,
        "task_min_bytes": 1,
    },
}
"""Limits with which feeds of some rows take each tier, in several tasks and buckets."""

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("part", pa.int32()),
        ("seq", pa.timestamp("ns")),
        ("amount", pa.decimal256(50, 10)),
        ("tags", pa.list_(pa.struct([("name", pa.string()), ("at", pa.timestamp("ns", "UTC"))]))),
        ("op", pa.string()),
    ]
)
"""Types that Spark does not have, or would cut."""


def change(key: int, number: int, *, deletes: bool) -> dict[str, Any]:
    """Return a change whose sequence and time differ from others by nanoseconds."""
    return {
        "id": f"key-{key}",
        "part": key % 3,
        "seq": 1_700_000_000_000_000_000 + number,
        "amount": None if deletes else Decimal(10**30 + number).scaleb(-5),
        "tags": None if deletes else [{"name": "é" * (number % 3), "at": number}],
        "op": "delete" if deletes else "upsert",
    }


def feed_of(changes: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(changes, schema=SCHEMA)


def some_changes(seed: int) -> list[dict[str, Any]]:
    """Return changes of some keys in any order; the sequences of all are distinct."""
    rng = random.Random(seed)
    numbers = rng.sample(range(1000), 120)
    return [change(rng.randrange(30), n, deletes=rng.random() < 0.3) for n in numbers]


def last_versions(changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what the changes leave, in the order of their sequence: the model of type 1."""
    rows: dict[str, dict[str, Any]] = {}
    for one in sorted(changes, key=lambda one: one["seq"]):
        rows[one["id"]] = one
    return [row for row in rows.values() if row["op"] != "delete"]


def all_versions(changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return every version with its sequences: the model of type 2."""
    found = []
    by_key: dict[str, list[dict[str, Any]]] = {}
    for one in sorted(changes, key=lambda one: one["seq"]):
        by_key.setdefault(one["id"], []).append(one)
    for versions in by_key.values():
        ends = [*(one["seq"] for one in versions[1:]), None]
        for one, end in zip(versions, ends, strict=True):
            if one["op"] != "delete":
                found.append({**one, "__START_AT": one["seq"], "__END_AT": end})
    return found


def stored(rows: list[dict[str, Any]]) -> list[str]:
    """Return rows as the dataset has them, in an order of their own."""
    ends = [(name, SCHEMA.field("seq").type) for name in ("__START_AT", "__END_AT")]
    fields = [*SCHEMA, *(pa.field(*end) for end in ends if rows and end[0] in rows[0])]
    table = pa.Table.from_pylist(rows, schema=pa.schema(fields)).drop_columns(["op"])
    return lines(table)


def lines(table: pa.Table) -> list[str]:
    columns = [table.column(name) for name in sorted(table.column_names)]
    plain = [[str(value) for value in column] for column in columns]
    return sorted(map(str, zip(*plain, strict=True)))


def rows_at(path: Path) -> list[str]:
    parts = pa.schema([("part", pa.int32())])
    from pyarrow import dataset as ds

    partitioning = ds.partitioning(parts, flavor="hive")
    return lines(ds.dataset(path, partitioning=partitioning).to_table())


def open_io(spark: SparkSession, limits: dict[str, int]) -> SparkDatasetIO:
    from fsspeckit.datasets.spark import SparkDatasetIO, SparkLimits

    return SparkDatasetIO(spark, limits=SparkLimits(**limits))


HOW: dict[str, Any] = {
    "keys": ["id"],
    "sequence_by": "seq",
    "apply_as_deletes": "op = 'delete'",
    "except_column_list": ["op"],
}


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("kind", [1, 2])
def test_a_feed_in_any_order_gives_what_its_sequence_says(
    spark: SparkSession, tmp_path: Path, kind: int, tier: str
) -> None:
    """Batches arrive in any order, and one of them twice."""
    io = open_io(spark, TIERS[tier])
    changes = some_changes(kind)
    batches = [changes[:50], changes[50:100], changes[90:], changes[:50]]
    expected = (last_versions if kind == 1 else all_versions)(changes)
    done = []
    for number, batch in enumerate(batches):
        result = io.apply_changes(
            feed_of(batch),
            str(tmp_path / "data"),
            stored_as_scd_type=kind,
            partition_by="part" if number == 0 else None,
            **HOW,
        )
        done.append(result)
    assert rows_at(tmp_path / "data") == stored(expected)
    # What arrived again changes nothing.
    assert not done[-1].rewritten_files
    assert not done[-1].inserted_files
