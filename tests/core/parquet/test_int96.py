"""INT96: what it means, and in which unit Arrow holds it without a loss."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.arrow_compat import (
    finest_unit,
    has_nanoseconds,
    int96_columns,
    int96_keys,
    physical_types,
    with_int96_as,
)
from fsspeckit.errors import SchemaMismatchError

UTC = pa.timestamp("us", "UTC")
NAIVE = pa.timestamp("us")
EARLY = pa.array([dt.datetime(1500, 1, 1)], NAIVE)
FINE = pa.array([1_001], pa.timestamp("ns"))


def _decoded(*columns: pa.Array) -> tuple[pa.Table, pa.Table]:
    """Columns written as INT96 and read as microseconds and as nanoseconds."""
    table = pa.table({str(number): column for number, column in enumerate(columns)})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, use_deprecated_int96_timestamps=True)
    coarse, fine = (
        pq.ParquetFile(pa.BufferReader(sink.getvalue()), coerce_int96_timestamp_unit=unit).read()
        for unit in ("us", "ns")
    )
    return coarse, fine


def test_types_change_inside_of_nested_columns_too() -> None:
    kinds = {
        "n": pa.int64(),
        "t": NAIVE,
        "l": pa.list_(NAIVE),
        "L": pa.large_list(NAIVE),
        "f": pa.list_(NAIVE, 2),
        "s": pa.struct([("x", pa.string()), ("t", NAIVE)]),
        "m": pa.map_(pa.string(), NAIVE),
        "u": pa.uuid(),
        "p": pa.struct([("x", pa.int8())]),
    }
    physical = ["INT64", "INT96", "INT96", "INT96", "INT96"]
    physical += ["BYTE_ARRAY", "INT96", "BYTE_ARRAY", "INT96", "FIXED_LEN_BYTE_ARRAY", "INT32"]
    schema = pa.schema(kinds, metadata={"who": "me"})
    changed = with_int96_as(schema, physical, UTC)
    assert changed.metadata == {b"who": b"me"}
    assert dict(zip(changed.names, changed.types, strict=True)) == kinds | {
        "t": UTC,
        "l": pa.list_(UTC),
        "L": pa.large_list(UTC),
        "f": pa.list_(UTC, 2),
        "s": pa.struct([("x", pa.string()), ("t", UTC)]),
        "m": pa.map_(pa.string(), UTC),
    }
    assert int96_columns(schema, physical) == {"t", "l", "L", "f", "s", "m"}


def test_a_schema_without_int96_stays_itself() -> None:
    schema = pa.schema({"t": NAIVE})
    assert with_int96_as(schema, ["INT64"], UTC) is schema
    assert int96_columns(schema, ["INT64"]) == frozenset()


def test_physical_types_are_those_of_the_leaves() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"s": [{"a": 1, "b": "x"}], "t": EARLY}), sink)
    found = physical_types(pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema)
    assert found == ("INT64", "BYTE_ARRAY", "INT64")


@pytest.mark.parametrize(
    ("columns", "wanted", "expected"),
    [
        ([EARLY], "us", "us"),
        ([EARLY], "ns", "us"),
        ([FINE], "us", "ns"),
        ([FINE.cast(NAIVE, safe=False)], "us", "us"),
        ([FINE.cast(NAIVE, safe=False)], "ns", "ns"),
        ([pa.array([[1_001]], pa.list_(pa.timestamp("ns")))], "us", "ns"),
        ([pa.array([{"t": 1_001}], pa.struct([("t", pa.timestamp("ns"))]))], "us", "ns"),
        ([pa.array([[("k", 7)]], pa.map_(pa.string(), pa.timestamp("ns")))], "us", "ns"),
        ([pa.array([[("k", 7_000)]], pa.map_(pa.string(), pa.timestamp("ns")))], "us", "us"),
        ([pa.nulls(1, NAIVE)], "us", "us"),
    ],
)
def test_the_unit_is_one_in_which_nothing_is_lost(
    columns: list[pa.Array], wanted: object, expected: str
) -> None:
    assert finest_unit([_decoded(*columns)], wanted, "f") == expected  # type: ignore[arg-type]


def test_what_no_unit_holds_is_refused() -> None:
    with pytest.raises(SchemaMismatchError, match=r"'f'.*column '1'.*column '0'"):
        finest_unit([_decoded(EARLY, FINE)], "us", "f")


@pytest.mark.parametrize(
    ("unit", "expected"),
    [("us", [None, "early", "whole", "no key"]), ("ns", [None, "no key", "whole", "fine"])],
)
def test_keys_that_do_not_fit_a_type_match_nothing(unit: str, expected: list[str]) -> None:
    early, _ = _decoded(pa.array([None, *EARLY.to_pylist()], NAIVE))
    coarse, fine = _decoded(pa.array([2_000, 1_001], pa.timestamp("ns")))
    _, wrapped = _decoded(pa.array([None, *EARLY.to_pylist()], NAIVE))
    both = pa.chunked_array([*early.column(0).chunks, *coarse.column(0).chunks])
    exact = pa.chunked_array([*wrapped.column(0).chunks, *fine.column(0).chunks])
    found = int96_keys(both, exact, pa.timestamp(unit, "UTC"))
    scale = 1 if unit == "us" else 1000
    named = {EARLY[0].value: "early", 2 * scale: "whole", 1_001: "fine", -(2**63): "no key"}
    assert [None if n is None else named[n] for n in found.cast(pa.int64()).to_pylist()] == expected


@pytest.mark.parametrize(
    ("data_type", "expected"),
    [
        (pa.timestamp("ns"), True),
        (pa.timestamp("us", "UTC"), False),
        (pa.list_(pa.struct([("t", pa.timestamp("ns"))])), True),
        (pa.map_(pa.string(), pa.timestamp("ns")), True),
        (pa.list_(pa.int8()), False),
    ],
)
def test_nanoseconds_are_found_inside(data_type: pa.DataType, expected: bool) -> None:
    assert has_nanoseconds(data_type) is expected
