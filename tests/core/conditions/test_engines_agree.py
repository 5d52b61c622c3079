"""Random conditions select the rows that DuckDB and Spark select for the same SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.core.conditions.generated import COMPARABLE, KINDS, conditions, tables

from fsspeckit.core.conditions import Condition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = tables(KINDS, rows=8)
CONDITIONS = st.lists(conditions(KINDS, COMPARABLE), min_size=1, max_size=16, unique=True)


def masks(rows: pa.Table, texts: list[str]) -> dict[str, list[bool]]:
    return {sql: Condition.of(sql, rows.schema).mask(rows).to_pylist() for sql in texts}


def columns_of(texts: list[str]) -> list[str]:
    return [f"coalesce(({sql}), FALSE) AS c{number}" for number, sql in enumerate(texts)]


@pytest.mark.slow
@settings(max_examples=100)
@given(rows=TABLES, texts=CONDITIONS)
def test_duckdb_selects_the_same_rows(rows: pa.Table, texts: list[str]) -> None:
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        query = f"SELECT {', '.join(columns_of(texts))} FROM rows"
        found = connection.execute(query).fetchall()
    expected = dict(zip(texts, map(list, zip(*found, strict=True)), strict=True))
    assert masks(rows, texts) == expected


@pytest.mark.slow
@pytest.mark.spark
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(rows=TABLES, texts=CONDITIONS)
def test_spark_selects_the_same_rows(spark: SparkSession, rows: pa.Table, texts: list[str]) -> None:
    found = spark.createDataFrame(rows).selectExpr(*columns_of(texts)).toArrow()
    expected = dict(zip(texts, (column.to_pylist() for column in found.columns), strict=True))
    assert masks(rows, texts) == expected


SPELLINGS = [
    r"s = 'it\'s'",
    r"s = 'a\\b'",
    r"s = 'a\tb'",
    r"s LIKE 'a\_b'",
    r"s LIKE 'a\\_b'",
    r"s LIKE '%\\\\b'",
    r"s = 'a\_b'",
    "! i <=> 1",
    "i == 1 AND NOT i = 2 OR i = 3",
    "x >= X'01FF'",
    "st.a = 1",
    "`two words` IS NOT FALSE",
    "t <= '2020-01-01T00:00:00Z'",
    "t = TIMESTAMP '2020-01-01 01:00:00+01:00'",
    "d < '2020-01-02'",
    "i > 1.5e0 IS TRUE",
]


@pytest.mark.slow
@pytest.mark.spark
def test_spark_reads_the_same_spellings(spark: SparkSession) -> None:
    rows = pa.table(
        {
            "s": ["it's", "a\\b", "a\tb", "a_b", "a\\_b", None],
            "i": [1, 2, 3, 4, 5, None],
            "x": [b"\x01", b"\x01\xff", b"\xff", b"", b"\x02", None],
            "st": [{"a": 1}, None, {"a": None}, {"a": 2}, {"a": 1}, {"a": 1}],
            "two words": [True, False, None, True, None, False],
            "t": pa.array([0, 1577836800, 1577836801, 2**31, -1, None], pa.timestamp("s", "UTC")),
            "d": pa.array([0, 18262, 18263, 18264, -1, None], pa.date32()),
        }
    )
    found = spark.createDataFrame(rows).selectExpr(*columns_of(SPELLINGS)).toArrow()
    expected = dict(zip(SPELLINGS, (c.to_pylist() for c in found.columns), strict=True))
    assert masks(rows, SPELLINGS) == expected
