"""The Thrift writer: what was read and not changed is written as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.core.parquet.thrift_writer import footer_of

from fsspeckit.core.parquet.format.layout import FILE_SPEC
from fsspeckit.core.parquet.format.thrift import (
    BOOL,
    BYTES,
    I32,
    I64,
    INT,
    RAW,
    Spec,
    Struct,
    decode,
    drop_fields,
    encode,
    set_field,
)
from fsspeckit.testing.writers import WRITERS, WriteOptions

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

TABLE = pa.table(
    {
        "id": pa.array(range(60), pa.int64()),
        "text": [None if n % 7 == 0 else f"text {n}" for n in range(60)],
        "list": [[n, None] for n in range(60)],
        "struct": [{"a": n, "b": f"{n}"} for n in range(60)],
        "flag": [n % 2 == 0 for n in range(60)],
    }
)
SPECS: dict[str, Spec] = {"nothing": {}, "all that matters": FILE_SPEC, "raw": {4: [{1: [RAW]}]}}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("writer", ["pyarrow", "duckdb", "polars"])
def test_footers_come_back_byte_by_byte(tmp_path: Path, writer: str, spec: Spec) -> None:
    path = tmp_path / "x.parquet"
    WRITERS[writer](TABLE, str(path), WriteOptions(row_group_size=20))
    footer = footer_of(path.read_bytes())
    assert encode(decode(footer, spec)[0]) == footer


@pytest.mark.spark
def test_footers_of_spark_come_back_byte_by_byte(tmp_path: Path, spark: SparkSession) -> None:
    path = tmp_path / "x.parquet"
    WRITERS["spark"](TABLE, str(path), WriteOptions(bloom_columns=("id",)))
    footer = footer_of(path.read_bytes())
    for spec in SPECS.values():
        assert encode(decode(footer, spec)[0]) == footer


@pytest.mark.parametrize(
    ("data", "spec"),
    [
        pytest.param("11 22 00", {1: BOOL, 3: BOOL}, id="booleans"),
        pytest.param("13 ff 00", {1: INT}, id="byte"),
        pytest.param("16 ff ff ff ff ff ff ff ff ff 01 00", {1: INT}, id="smallest"),
        pytest.param("18 03 61 62 63 00", {1: BYTES}, id="bytes"),
        pytest.param("19 f5 10" + "02" * 16 + "00", {1: [INT]}, id="long list"),
        pytest.param("19 2c 15 02 00 00 00", {1: [RAW]}, id="raw structs"),
        pytest.param("1c 15 02 00 00", {1: RAW}, id="raw struct"),
        pytest.param("05 d8 04 54 00", {300: INT}, id="a field far away"),
    ],
)
def test_a_struct_comes_back(data: str, spec: Spec) -> None:
    raw = bytes.fromhex(data)
    assert encode(decode(raw, spec)[0]) == raw


def _decoded(data: str, spec: Spec) -> Struct:
    return decode(bytes.fromhex(data), spec)[0]


def test_a_field_that_is_set_takes_its_place_among_the_others() -> None:
    struct = _decoded("15 02 35 06 00", {1: INT})
    set_field(struct, 2, 7, I64)
    assert list(decode(encode(struct), {2: INT})[0].kinds) == [1, 2, 4]
    assert decode(encode(struct), {2: INT})[0].values == {2: 7}


def test_a_field_kept_raw_can_be_set_too() -> None:
    struct = _decoded("15 02 00", {})
    set_field(struct, 1, 9)
    assert decode(encode(struct), {1: INT})[0].values == {1: 9}


def test_a_new_field_needs_a_type() -> None:
    with pytest.raises(KeyError, match="field 3 is new"):
        set_field(Struct(), 3, 1)


def test_a_boolean_can_be_turned() -> None:
    struct = _decoded("11 00", {1: BOOL})
    set_field(struct, 1, False)
    assert encode(struct) == bytes.fromhex("12 00")


def test_fields_can_be_dropped() -> None:
    struct = _decoded("15 02 15 04 15 06 00", {2: INT})
    drop_fields(struct, [1, 2, 9])
    assert struct.kinds == {3: I32}
    assert encode(struct) == bytes.fromhex("35 06 00")


def test_what_a_spec_does_not_name_may_hold_anything() -> None:
    unknown: Any = bytes.fromhex("15 02 5b 02 58 02 01 61 04 00 4d" + "00" * 16 + "00")
    assert encode(decode(unknown, {1: INT})[0]) == unknown
