"""``upsert``, the merge at the end of a chain of calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsspeckit
from fsspeckit.datasets.pipeline.source import from_lazy_frame
from fsspeckit.datasets.registry import engine_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

OLD = pa.table({"id": [1, 2], "v": ["old", "old"]})
NEW = pa.table({"id": [2, 3], "v": ["new", "new"]})
MERGED = [{"id": 1, "v": "old"}, {"id": 2, "v": "new"}, {"id": 3, "v": "new"}]


@pytest.fixture
def path(tmp_path: Path) -> str:
    fsspeckit.write_dataset(OLD, f"{tmp_path}/d", engine="pyarrow")
    return f"{tmp_path}/d"


def rows_of(path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(path).sort_by("id").to_pylist()
    return found


@pytest.mark.parametrize(
    "frame",
    [NEW.to_pandas(), pl.DataFrame(NEW), pl.DataFrame(NEW).lazy()],
    ids=["pandas", "polars", "lazy polars"],
)
def test_a_frame_is_piped(frame: Any, path: str) -> None:
    done = frame.pipe(fsspeckit.upsert, path, key="id")
    assert (done.inserted, done.updated) == (1, 1)
    assert rows_of(path) == MERGED


def test_a_relation_is_merged_by_duckdb(path: str) -> None:
    relation = duckdb.from_arrow(NEW)
    fsspeckit.upsert(relation, path, key="id")
    assert rows_of(path) == MERGED
    assert fsspeckit.history(path)[-1].engine == "duckdb"


@pytest.mark.spark
def test_a_frame_of_spark_is_merged_by_spark(spark: SparkSession, path: str) -> None:
    fsspeckit.upsert(spark.createDataFrame(NEW.to_pandas()), path, key="id")
    assert rows_of(path) == MERGED
    assert fsspeckit.history(path)[-1].engine == "spark"


@pytest.mark.parametrize(
    ("data", "engine"),
    [
        (NEW, "pyarrow"),
        ("landing.parquet", "pyarrow"),
        (pd.DataFrame(), "pyarrow"),
        (duckdb.from_arrow(NEW), "duckdb"),
    ],
    ids=["arrow", "path", "pandas", "duckdb"],
)
def test_the_engine_is_that_of_the_data(data: Any, engine: str) -> None:
    assert engine_of(data) == engine


def test_the_engine_can_be_chosen(path: str) -> None:
    fsspeckit.upsert(NEW, path, "id", engine="duckdb")
    assert fsspeckit.history(path)[-1].engine == "duckdb"


def test_it_takes_what_merge_takes(path: str) -> None:
    batch = fsspeckit.Transaction("feed", 1)
    done = [fsspeckit.upsert(NEW, path, ["id"], transaction=batch) for _ in range(2)]
    assert [one.metrics["commit"]["skipped"] for one in done] == [False, True]


def test_a_wrong_keyword_is_refused(path: str) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'keys'"):
        fsspeckit.upsert(NEW, path, "id", keys="id")
    assert rows_of(path) == OLD.to_pylist()


def test_a_lazy_frame_is_read_in_batches() -> None:
    frame = pl.LazyFrame({"id": range(500_000)})
    reader = from_lazy_frame(frame)
    sizes = [batch.num_rows for batch in reader]
    assert sum(sizes) == 500_000
    assert len(sizes) > 1


def test_a_lazy_frame_has_the_columns_that_its_functions_return() -> None:
    def with_weight(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(w=pl.lit(1.5))

    frame = pl.DataFrame(NEW).lazy().map_batches(with_weight, validate_output_schema=False)
    assert from_lazy_frame(frame).read_all().schema.names == ["id", "v", "w"]


def test_a_lazy_frame_without_rows_has_its_columns() -> None:
    frame = pl.DataFrame(NEW).lazy().filter(pl.col("id") > 7)
    assert from_lazy_frame(frame).read_all().schema.names == ["id", "v"]


def test_an_error_of_a_lazy_frame_is_raised(path: str) -> None:
    frame = pl.DataFrame(NEW).lazy().with_columns(pl.col("v").cast(pl.Int64))
    with pytest.raises(Exception, match="conversion from `str` to `i64` failed"):
        frame.pipe(fsspeckit.upsert, path, key="id")
    assert rows_of(path) == OLD.to_pylist()
