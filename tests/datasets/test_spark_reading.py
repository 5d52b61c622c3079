"""What Spark reads of types that it does not have, and what it is told of its workers."""

from __future__ import annotations

import datetime as dt
import zipfile
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsspeckit
from fsspeckit import errors

pytest.importorskip("pyspark")

from fsspeckit.datasets.spark import SparkDatasetIO, session
from fsspeckit.datasets.spark.reading import _nearest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

KINDS: dict[str, tuple[pa.DataType, pa.DataType]] = {
    "extension": (pa.uuid(), pa.binary()),
    "dictionary": (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
    "struct": (
        pa.struct([pa.field("a", pa.uint8(), nullable=False)]),
        pa.struct([pa.field("a", pa.int16(), nullable=False)]),
    ),
    "map": (pa.map_(pa.large_string(), pa.uint16()), pa.map_(pa.string(), pa.int32())),
    "list": (pa.list_(pa.uint32()), pa.list_(pa.int64())),
    "large list": (pa.large_list(pa.uint64()), pa.list_(pa.decimal128(20, 0))),
    "fixed list": (pa.list_(pa.float16(), 2), pa.list_(pa.float32())),
    "zoned": (pa.timestamp("ns", "Asia/Tokyo"), pa.timestamp("us", "UTC")),
    "not zoned": (pa.timestamp("s"), pa.timestamp("us")),
    "decimal": (pa.decimal256(38, 2), pa.decimal128(38, 2)),
    "fixed binary": (pa.binary(16), pa.binary()),
    "known": (pa.date32(), pa.date32()),
}


@pytest.mark.parametrize(("kind", "expected"), KINDS.values(), ids=KINDS)
def test_the_nearest_type_that_spark_has(kind: pa.DataType, expected: pa.DataType) -> None:
    found = _nearest(kind)
    # What a list calls its values is no part of its meaning.
    assert str(found).replace("item", "element") == str(expected).replace("item", "element")


@pytest.mark.spark
def test_types_that_spark_does_not_have_are_read(spark: SparkSession, tmp_path: Path) -> None:
    day = dt.datetime(2024, 5, 1, 12)
    columns: dict[str, tuple[Any, pa.DataType, Any]] = {
        "word": ("a", pa.dictionary(pa.int8(), pa.string()), "a"),
        "pair": ({"a": 7}, pa.struct([("a", pa.uint8())]), (7,)),
        "map": ([("k", 1)], pa.map_(pa.string(), pa.uint16()), {"k": 1}),
        "list": ([2**32 - 1], pa.list_(pa.uint32()), [2**32 - 1]),
        "whole": (2**64 - 1, pa.uint64(), Decimal(2**64 - 1)),
        "money": (Decimal("1.50"), pa.decimal128(9, 2), Decimal("1.50")),
        "fixed": (b"ab", pa.binary(2), b"ab"),
        "day": (day, pa.timestamp("ms"), day),
    }
    arrays = {name: pa.array([value], kind) for name, (value, kind, _) in columns.items()}
    pq.write_table(pa.table(arrays), tmp_path / "a.parquet")

    (row,) = SparkDatasetIO(spark).read_dataset(str(tmp_path)).collect()
    assert {name: row[name] for name in columns} == {n: told for n, (_, _, told) in columns.items()}


def test_the_package_for_workers_holds_every_module() -> None:
    with zipfile.ZipFile(session._zipped()) as archive:
        names = archive.namelist()
    assert "fsspeckit/core/rewrite/rewriter.py" in names
    assert not [name for name in names if not name.endswith(".py")]


@pytest.mark.parametrize(
    ("found", "match"),
    [
        ({"fsspeckit": None, "missing": "numpy"}, "has no numpy"),
        ({"fsspeckit": "0.0.1"}, r"fsspeckit 0\.0\.1, this process has"),
        ({"fsspeckit": None, "missing": "fsspeckit.core"}, "fsspeckit None"),
    ],
)
def test_workers_that_lack_something(found: dict[str, Any], match: str) -> None:
    with pytest.raises(errors.EngineNotInstalledError, match=match):
        session._check_worker(found)


def test_workers_that_have_everything() -> None:
    session._check_worker({"fsspeckit": fsspeckit.__version__})


def test_without_java_there_is_no_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert session.java_version() is None
