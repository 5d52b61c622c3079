"""Change feeds on Spark: in the driver and in tasks, and conditions that are a Column."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyarrow import dataset as ds

from fsspeckit import errors
from fsspeckit.core.changes import TombstoneLimits
from fsspeckit.core.keys import key_column
from fsspeckit.datasets.pipeline import changes as feeds
from fsspeckit.datasets.pipeline.merge import lazy_staging
from fsspeckit.storage import open_storage

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


def rows_at(path: str) -> list[str]:
    partitioning = ds.partitioning(pa.schema([("part", pa.int32())]), flavor="hive")
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


@pytest.mark.parametrize(
    ("kind", "tier", "actions"),
    [
        (1, "driver", 0),
        (2, "driver", 0),
        (1, "broadcast", 5),
        (2, "broadcast", 7),
        (1, "shuffle", 7),
        (2, "shuffle", 10),
    ],
)
def test_a_feed_in_any_order_gives_what_its_sequence_says(
    spark: SparkSession, tmp_path: Path, kind: int, tier: str, actions: int
) -> None:
    """Some changes arrive twice; a feed of which nothing is new changes nothing."""
    driver, io = open_io(spark, {}), open_io(spark, TIERS[tier])
    path, changes = str(tmp_path / "data"), some_changes(kind)
    how = {**HOW, "stored_as_scd_type": kind, "partition_by": "part"}
    driver.apply_changes(feed_of(changes[60:]), path, **how)
    io.jobs.prepare()
    before = io.jobs.actions
    io.apply_changes(feed_of(changes[:70]), path, **how)
    taken = io.jobs.actions - before
    assert rows_at(path) == stored((last_versions if kind == 1 else all_versions)(changes))
    again = driver.apply_changes(feed_of(changes), path, **how)
    assert (again.rewritten_files, again.inserted_files) == ([], [])
    assert taken == actions


def test_rows_keep_their_order_and_those_of_a_key_meet(spark: SparkSession, tmp_path: Path) -> None:
    from fsspeckit.datasets.spark import SparkLimits
    from fsspeckit.datasets.spark.engine import SparkEngine

    io = open_io(spark, {})
    engine = SparkEngine(io.jobs, limits=SparkLimits(**TIERS["shuffle"]))
    rng = random.Random(3)
    left = pa.table({"k": [rng.randrange(40) for _ in range(100)], "n": range(100)})
    right = pa.table({"k": pa.array([rng.randrange(40) for _ in range(100)], pa.int16())})
    with lazy_staging(open_storage(str(tmp_path / "data"))) as stage:
        first, second = (engine.take(table, stage, None) for table in (left, right))
        assert first.has_order
        doubled = engine.transform(first, Doubled(), stage)
        assert doubled.columns(["n"]).column("n").to_pylist() == list(range(0, 200, 2))
        assert doubled.has_order
        keys = [key_column("k", pa.int64())]
        joined = engine.combine(first, second, CountKeys(), keys, stage)
        found = joined.columns(["k", "left", "right"]).to_pylist()
    counts = [Counter(table.column("k").to_pylist()) for table in (left, right)]
    expected = [
        {"k": k, "left": counts[0][k], "right": counts[1][k]} for k in {*counts[0], *counts[1]}
    ]
    assert sorted(found, key=lambda row: row["k"]) == sorted(expected, key=lambda row: row["k"])


@dataclass(frozen=True)
class Doubled:
    """Doubles a column; a part of the rows at a time."""

    def __call__(self, rows: pa.Table) -> pa.Table:
        return rows.set_column(1, "n", pc.multiply(rows.column("n"), 2))


@dataclass(frozen=True)
class CountKeys:
    """Counts the rows of each key on both sides."""

    def __call__(self, left: pa.Table, right: pa.Table) -> pa.Table:
        counts = [Counter(side.column("k").to_pylist()) for side in (left, right)]
        keys = sorted({*counts[0], *counts[1]})
        columns = [keys, *([one[k] for k in keys] for one in counts)]
        arrays = [pa.array(column, pa.int64()) for column in columns]
        return pa.table(arrays, names=["k", "left", "right"])


def test_more_deletions_than_can_be_remembered_are_not_collected(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "DEFAULT_TOMBSTONE_LIMITS", TombstoneLimits(max_rows=1))
    feed = feed_of([change(n, n, deletes=True) for n in range(2)])
    with pytest.raises(errors.InvalidArgumentError, match="delete 2 times, and at most 1"):
        open_io(spark, {}).apply_changes(feed, str(tmp_path / "data"), **HOW)


@pytest.fixture(params=["spark", "spark_connect"])
def session(request: pytest.FixtureRequest) -> SparkSession:
    """A session of each kind."""
    found: SparkSession = request.getfixturevalue(request.param)
    return found


class TestColumnsOfChanges:
    def frame(self, session: SparkSession) -> Any:
        rows = "(1, 'a', 1L, NULL), (2, 'b', 1L, false), (1, NULL, 2L, true), (3, 'c', 3L, true)"
        return session.sql(f"SELECT * FROM VALUES {rows} AS t(id, v, seq, gone)")

    def test_spark_evaluates_which_changes_delete(
        self, session: SparkSession, tmp_path: Path
    ) -> None:
        """NULL is not a deletion."""
        io = open_io(session, {})
        F = io.jobs.functions
        schema = pa.schema(
            [("id", pa.int32()), ("v", pa.string()), ("seq", pa.int64()), ("gone", pa.bool_())]
        )
        result = io.apply_changes(
            self.frame(session),
            str(tmp_path / "data"),
            "id",
            "seq",
            (F.col("gone") & (F.upper("v").isNull() | (F.col("seq") > 2))),
            except_column_list="gone",
            schema=schema,
        )
        assert result.inserted == 1
        assert pq.read_table(tmp_path / "data").to_pylist() == [{"id": 2, "v": "b", "seq": 1}]

    def test_a_column_needs_a_data_frame_and_must_fit_it(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        from pyspark.sql.connect import functions as connect

        io, path = open_io(spark, {}), str(tmp_path / "data")
        F, frame = io.jobs.functions, self.frame(spark)
        table = pa.table({"id": [1], "seq": [1]})
        refused = [
            (table, F.col("gone"), "on a DataFrame, but the changes are of the type Table"),
            (frame, F.col("v"), "must be a boolean Column, but is of type string"),
            (frame, F.col("nothing") == 1, "does not fit the columns .*nothing"),
            (frame, connect.col("gone"), "is a Column of Spark Connect, but the session is one of"),
            (frame.withColumn("__FSSPECKIT_evaluated", F.lit(1)), F.col("gone"), "rename the"),
        ]
        for data, column, words in refused:
            with pytest.raises(errors.InvalidArgumentError, match=words):
                io.apply_changes(data, path, "id", "seq", column)
        assert not (tmp_path / "data").exists()

    def test_other_engines_refuse_a_column(self, spark: SparkSession) -> None:
        from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

        column, io = open_io(spark, {}).jobs.functions.col("id") == 1, PyarrowDatasetIO()
        changes = pa.table({"id": [1], "seq": [1]})
        path = "memory://column-of-spark"
        with pytest.raises(errors.InvalidArgumentError, match="pass SQL text; only the engine"):
            io.apply_changes(changes, path, "id", "seq", column)
        io.write_dataset(changes, path)
        with pytest.raises(errors.InvalidArgumentError, match="pass SQL text; only the engine"):
            io.delete(None, path, where=column)


class TestDeleteByColumn:
    def write(self, directory: Path) -> str:
        """Write a partitioned dataset with columns that Spark does not have or cuts."""
        for part in range(3):
            rows = range(part * 100, part * 100 + 100)
            table = pa.table(
                {
                    "id": rows,
                    "a.b": [None if n % 10 == 0 else n % 7 for n in rows],
                    "at": pa.array(rows, pa.timestamp("ns")),
                    "time": pa.array(rows, pa.time64("ns")),
                    "s": [{"x": n, "y": [n]} for n in rows],
                }
            )
            place = directory / f"part={part}"
            place.mkdir(parents=True)
            pq.write_table(table, place / "f.parquet", row_group_size=40)
        return str(directory)

    def test_spark_selects_the_rows(self, session: SparkSession, tmp_path: Path) -> None:
        """In one job before that which rewrites; rows where the outcome is NULL stay."""
        path = self.write(tmp_path / "data")
        io = open_io(session, {})
        F = io.jobs.functions
        io.jobs.prepare()
        before = io.jobs.actions
        where = (F.col("`a.b`") == 3) & (F.col("part") > 0) & (F.col("s.x") % 2 == 0)
        plan = io.plan_delete(None, path, where=where)
        assert [file.decision for file in plan.files].count("affected") == 2
        result = io.delete(None, path, where=where)
        gone = [n for n in range(100, 300) if n % 10 and n % 7 == 3 and n % 2 == 0]
        assert (result.deleted, io.jobs.actions - before) == (len(gone), 3)
        assert result.metrics["tier"] == "broadcast"
        left = sorted(pq.read_table(path).column("id").to_pylist())
        assert left == [n for n in range(300) if n not in gone]

    def test_functions_of_python_and_of_no_column(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        path, io = self.write(tmp_path / "data"), open_io(spark, {"task_min_bytes": 1})
        F = io.jobs.functions
        odd = F.udf(lambda n: n % 2 == 1, "boolean")
        assert io.delete(None, path, where=odd("id")).deleted == 150
        assert io.delete(None, path, where=F.expr("struct(id).id >= 200")).deleted == 50
        assert io.delete(None, path, where=F.lit(None).cast("boolean")).deleted == 0
        assert io.delete(None, path, where=F.lit(True)).deleted == 100

    def test_a_column_must_fit_the_rows(self, spark: SparkSession, tmp_path: Path) -> None:
        path, io = self.write(tmp_path / "data"), open_io(spark, {})
        F = io.jobs.functions
        refused = [
            (F.col("nothing") == 1, "does not fit the columns .*nothing"),
            (F.col("id") + 1, "does not fit the columns .*FILTER_NOT_BOOLEAN"),
            (F.max("id") == 1, "does not fit the columns"),
            (spark.range(3)["id"] == 1, "does not fit the columns"),
            (F.col("at").isNull(), r"column 'at' .*would change as timestamp\[us\]"),
        ]
        for column, words in refused:
            with pytest.raises(ValueError, match=words):
                io.delete(None, path, where=column)
        assert pq.read_table(path).num_rows == 300
