"""Schema changes as four readers see them by their defaults: every row and every column."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.testing.conformance.target import lines
from fsspeckit.testing.writers import WRITERS, WriteOptions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.untraced

ROWS = 600
TABLE = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int32()),
        "s": [None if n % 7 == 0 else f"word {n % 50}" for n in range(ROWS)],
        "x": pa.array([n / 8 for n in range(ROWS)], pa.float32()),
        "d": pa.array([Decimal(n) / 4 for n in range(ROWS)], pa.decimal128(9, 2)),
        "t": pa.array([n * 1000 for n in range(ROWS)], pa.int64()).cast(pa.timestamp("us", "UTC")),
        "r": [None if n % 5 == 0 else {"a": n} for n in range(ROWS)],
        "l": [None if n % 11 == 0 else [n, None][: n % 3] for n in range(ROWS)],
    }
)
LATER = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
WIDER: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "x": pa.float64(),
    "d": pa.decimal128(20, 3),
    "r": pa.struct([("a", pa.int64()), ("b", pa.string())]),
}
ADDED: dict[str, pa.DataType] = {
    "n": pa.int64(),
    "flag": pa.bool_(),
    "more": pa.struct([("p", pa.string()), ("q", pa.list_(pa.int32()))]),
}

CHANGES: dict[str, dict[str, Any]] = {
    "add": {"add": ADDED},
    "widen": {"widen": WIDER},
    "drop": {"drop": ["x", "l"]},
    "rename": {"rename": {"id": "key", "r": "record"}},
    "order": {"order": ["r", "t"]},
    "required": {"nullable": {"id": False, "t": False}},
    "all": {"add": ADDED, "widen": WIDER, "drop": "l", "rename": {"s": "text"}, "order": ["flag"]},
}


def _with_pyarrow(directory: str) -> Any:
    return pads.dataset(directory).to_table().to_pylist()


def _with_duckdb(directory: str) -> Any:
    import duckdb

    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.sql(f"SELECT * FROM '{directory}/*.parquet'").to_arrow_table()
        return found.to_pylist()


def _with_polars(directory: str) -> Any:
    import polars

    return polars.read_parquet(f"{directory}/*.parquet").to_arrow().to_pylist()


READERS: dict[str, Callable[[str], list[dict[str, Any]]]] = {
    "pyarrow": _with_pyarrow,
    "duckdb": _with_duckdb,
    "polars": _with_polars,
}


def _plain(value: Any) -> Any:
    """A value without what readers choose: digits of a decimal, the zone of an instant."""
    if isinstance(value, dict):
        return {name: _plain(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, Decimal):
        return value.normalize()
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)
    return value


def _same(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert set(found[0]) == set(expected[0])
    assert sorted(lines(map(_plain, found))) == sorted(lines(map(_plain, expected)))


def _expected(rows: list[dict[str, Any]], asked: dict[str, Any]) -> list[dict[str, Any]]:
    names = asked.get("rename", {})
    dropped = asked.get("drop", ())
    made = []
    for row in rows:
        new = {names.get(n, n): value for n, value in row.items() if n not in dropped}
        new |= dict.fromkeys(asked.get("add", {}))
        if "widen" in asked and new["r"] is not None:
            new["r"] = {"b": None, **new["r"]}
        made.append(new)
    return made


def _dataset(path: Path, writer: str, asked: dict[str, Any]) -> list[dict[str, Any]]:
    """Two files that are evolved; returns the rows they must have."""
    path.mkdir()
    options = WriteOptions(row_group_size=200)
    for number, rows in enumerate((TABLE.slice(0, 400), TABLE.slice(400))):
        WRITERS[writer](rows, str(path / f"{number}.parquet"), options)
    result = PyarrowDatasetIO().evolve(str(path), **asked)
    methods = [done["method"] for done in result.metrics["rewrites"].values()]
    assert methods == ["column splice"] * (2 if asked else 0)
    return _expected(TABLE.to_pylist(), asked)


@pytest.mark.parametrize("writer", ["pyarrow", "duckdb", "polars"])
@pytest.mark.parametrize("what", CHANGES)
def test_every_reader_finds_every_row_and_column(tmp_path: Path, what: str, writer: str) -> None:
    rows = _dataset(tmp_path / "data", writer, CHANGES[what])
    for read in READERS.values():
        _same(read(str(tmp_path / "data")), rows)


@pytest.mark.parametrize("what", ["add", "widen"])
def test_every_reader_finds_what_a_merge_has_added(tmp_path: Path, what: Any) -> None:
    rows, path = _dataset(tmp_path / "data", "pyarrow", {}), str(tmp_path / "data")
    new = {**rows[1], "s": "new", "n": 1, "flag": None, "more": {"p": "x", "q": []}}
    schema = pa.schema([*TABLE.schema, *(pa.field(*pair) for pair in ADDED.items())])
    if what == "widen":
        new |= {"id": 2**40, "x": 0.1, "d": Decimal("0.125"), "r": {"a": 2**40, "b": "y"}}
        schema = pa.schema([f.with_type(WIDER.get(f.name, f.type)) for f in schema])
    source = pa.Table.from_pylist([new], schema)
    PyarrowDatasetIO().merge(source, path, "upsert", ["id"], schema_changes=what)
    expected = _expected([row for row in rows if row["id"] != new["id"]], {"add": ADDED})
    if what == "widen":
        expected = _expected(expected, {"widen": WIDER})
    for read in READERS.values():
        _same(read(path), [*expected, new])


@pytest.mark.spark
@pytest.mark.parametrize(
    ("what", "writer"), [*((what, "pyarrow") for what in CHANGES), ("all", "spark")]
)
def test_spark_finds_every_row_and_column(
    tmp_path: Path, spark: SparkSession, what: str, writer: str
) -> None:
    rows = _dataset(tmp_path / "data", writer, CHANGES[what])
    _same(spark.read.parquet(str(tmp_path / "data")).toArrow().to_pylist(), rows)


def test_what_pandas_knows_of_the_columns_follows_them(tmp_path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame(
        {"a": pd.array([1, None], "Int32"), "b": ["x", "y"]}, index=pd.Index([7, 8], name="key")
    )
    frame.to_parquet(tmp_path / "a.parquet")
    io, path = PyarrowDatasetIO(), str(tmp_path)
    io.evolve(
        path, widen={"a": pa.int64(), "id": pa.int64()} if "id" in frame else {"a": pa.int64()}
    )
    io.evolve(path, rename={"key": "id", "b": "c"}, add={"n": pa.string()})
    found = pd.read_parquet(path)
    assert found.index.name == "id"
    assert found.index.to_list() == [7, 8]
    assert found.columns.to_list() == ["a", "c", "n"]
    io.evolve(path, drop="id")
    assert pd.read_parquet(path).columns.to_list() == ["a", "c", "n"]
    known = pq.read_schema(next(tmp_path.glob("*.parquet"))).pandas_metadata
    assert known["index_columns"] == []


@pytest.mark.spark
@pytest.mark.slow
def test_tasks_change_the_columns_of_files_that_the_driver_does_not_open(
    tmp_path: Path, spark: SparkSession
) -> None:
    from fsspeckit.datasets.spark import SparkDatasetIO, SparkLimits

    path = str(tmp_path / "data")
    small = {"driver_max_target_bytes": 0, "driver_max_source_bytes": 0}
    io = SparkDatasetIO(spark, limits=SparkLimits(**small, broadcast_max_given_keys=0))
    PyarrowDatasetIO().write_dataset(TABLE, path, max_rows_per_file=100)
    io.evolve(path, add={"n": pa.int64()})
    source = (
        TABLE.slice(50, 1).append_column("n", pa.array([5])).append_column("m", pa.array(["y"]))
    )
    result = io.merge(source, path, "upsert", ["id"], schema_changes="add")
    assert (result.updated, len(result.rewritten_files)) == (1, 6)
    rows = [{**row, "n": None, "m": None} for row in TABLE.to_pylist()]
    rows[50] |= {"n": 5, "m": "y"}
    _same(_with_duckdb(path), rows)
    _same(_with_polars(path), rows)


@pytest.mark.spark
@pytest.mark.slow
def test_sinks_and_the_data_source_add_columns(tmp_path: Path, spark: SparkSession) -> None:
    from fsspeckit.datasets.spark import MergeSink

    path = str(tmp_path / "data")
    PyarrowDatasetIO().write_dataset(pa.table({"id": [1, 2], "v": ["a", "b"]}), path)
    landing = str(tmp_path / "landing")
    pq.write_table(pa.table({"id": [2], "v": ["B"], "n": pa.array([7], pa.int32())}), landing)
    stream = spark.readStream.schema("id long, v string, n int").parquet(f"{landing}*")
    query = (
        stream.writeStream.foreachBatch(MergeSink(path, key_columns=["id"], schema_changes="add"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    more = spark.createDataFrame([(3, "c", 8, True)], "id long, v string, n int, flag boolean")
    options = {"keyColumns": "id", "schemaChanges": "add"}
    more.write.format("fsspeckit").options(**options).mode("append").save(path)
    rows = [
        {"id": 1, "v": "a", "n": None, "flag": None},
        {"id": 2, "v": "B", "n": 7, "flag": None},
        {"id": 3, "v": "c", "n": 8, "flag": True},
    ]
    _same(_with_polars(path), rows)
