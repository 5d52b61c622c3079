"""Which types compare with which, and casts that lose nothing."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsspeckit.core.keys.canonical import (
    are_comparable,
    cast_exactly,
    common_type,
    family,
    plain_type,
    plain_values,
    python_value,
)
from fsspeckit.errors import SchemaMismatchError
from fsspeckit.testing.strategies import KEY_TYPES, values

NESTED = pa.list_(pa.int64())

FAMILIES = [
    (pa.bool_(), "bool"),
    (pa.uint16(), "integer"),
    (pa.decimal256(50, 2), "decimal"),
    (pa.decimal32(5, 2), "decimal"),
    (pa.float16(), "float"),
    (pa.string_view(), "string"),
    (pa.dictionary(pa.int8(), pa.large_string()), "string"),
    (pa.binary_view(), "binary"),
    (pa.binary(4), "binary"),
    (pa.uuid(), "binary"),
    (pa.json_(), "string"),
    (pa.date64(), "date"),
    (pa.time32("s"), "time"),
    (pa.timestamp("s"), "timestamp without zone"),
    (pa.timestamp("s", "Asia/Tokyo"), "timestamp with zone"),
    (pa.duration("ns"), "duration"),
    (pa.null(), "null"),
    (NESTED, None),
    (pa.struct([]), None),
    (pa.month_day_nano_interval(), None),
]


@pytest.mark.parametrize(("data_type", "name"), FAMILIES)
def test_every_type_belongs_to_one_family(data_type: pa.DataType, name: str | None) -> None:
    assert family(data_type) == name
    assert are_comparable(data_type, data_type) == (name is not None)


def test_integers_and_decimals_are_the_only_families_that_compare() -> None:
    kinds = [data_type for data_type, name in FAMILIES if name not in (None, "null")]
    pairs = {
        frozenset((family(left), family(right)))
        for left in kinds
        for right in kinds
        if are_comparable(left, right) and family(left) != family(right)
    }
    assert pairs == {frozenset(("integer", "decimal"))}


def test_null_compares_with_everything_that_can_be_a_key() -> None:
    assert are_comparable(pa.null(), pa.string())
    assert not are_comparable(pa.null(), NESTED)
    assert common_type(pa.null(), pa.int8()) == common_type(pa.int8(), pa.null()) == pa.int8()


COMMON = [
    (pa.int8(), pa.int32(), pa.int32()),
    (pa.uint8(), pa.uint32(), pa.uint32()),
    (pa.uint32(), pa.int8(), pa.int64()),
    (pa.uint64(), pa.int8(), pa.decimal128(20, 0)),
    (pa.int64(), pa.decimal128(9, 2), pa.decimal128(22, 2)),
    (pa.decimal128(38, 0), pa.decimal128(38, 38), pa.decimal256(76, 38)),
    (pa.float16(), pa.float32(), pa.float64()),
    (pa.string(), pa.dictionary(pa.int8(), pa.string()), pa.string()),
    (pa.large_string(), pa.string_view(), pa.string()),
    (pa.binary(3), pa.binary(4), pa.binary()),
    (pa.date32(), pa.date64(), pa.date32()),
    (pa.time32("s"), pa.time32("ms"), pa.time32("ms")),
    (pa.time32("s"), pa.time64("ns"), pa.time64("ns")),
    (pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("us")),
    (pa.timestamp("s", "Asia/Tokyo"), pa.timestamp("ms", "UTC"), pa.timestamp("ms", "UTC")),
    (pa.duration("s"), pa.duration("ns"), pa.duration("ns")),
]


@pytest.mark.parametrize(("left", "right", "shared"), COMMON)
def test_the_common_type_holds_the_values_of_both(
    left: pa.DataType, right: pa.DataType, shared: pa.DataType
) -> None:
    assert common_type(left, right) == shared
    assert common_type(right, left) == shared


def test_no_decimal_type_holds_every_value_of_extreme_ones() -> None:
    with pytest.raises(SchemaMismatchError, match="no decimal type"):
        common_type(pa.decimal256(76, 0), pa.decimal256(76, 76))


def decimals_and_integers() -> list[pa.DataType]:
    return [kind for kind in KEY_TYPES if family(kind) in ("decimal", "integer")]


@pytest.mark.parametrize("left", decimals_and_integers(), ids=str)
def test_every_value_fits_the_common_type(left: pa.DataType) -> None:
    @settings(max_examples=40)
    @given(st.data(), st.sampled_from(decimals_and_integers()))
    def check(data: st.DataObject, right: pa.DataType) -> None:
        numbers = data.draw(st.lists(values(left), max_size=4))
        out = cast_exactly(pa.array(numbers, left), common_type(left, right), "k")
        assert out.to_pylist() == numbers

    check()


def test_a_cast_that_pyarrow_calls_safe_may_still_lose() -> None:
    # Both pass pyarrow's own check, which is why every cast here is checked by casting back.
    assert pa.array([0.1]).cast(pa.float32()).cast(pa.float64())[0].as_py() != 0.1
    assert pa.array(["007"]).cast(pa.int64())[0].as_py() == 7
    with pytest.raises(SchemaMismatchError, match=r"the value 0\.1 of type double"):
        cast_exactly(pa.array([0.5, 0.1]), pa.float32(), "k")
    with pytest.raises(SchemaMismatchError, match="never equal"):
        cast_exactly(pa.array(["007"]), pa.int64(), "k")


def test_the_first_value_that_does_not_fit_is_named() -> None:
    numbers = [1, None, *range(100), 300, 400]
    with pytest.raises(SchemaMismatchError, match="the value 300 of type int64"):
        cast_exactly(pa.array(numbers), pa.uint8(), "k")


@pytest.mark.parametrize(
    ("value", "data_type", "target"),
    [
        (2**62, pa.timestamp("s"), pa.timestamp("us")),
        (2**62, pa.date64(), pa.date32()),
    ],
)
def test_a_value_that_python_cannot_express_is_still_a_schema_mismatch(
    value: int, data_type: pa.DataType, target: pa.DataType
) -> None:
    with pytest.raises(SchemaMismatchError, match=str(value)):
        cast_exactly(pa.array([value]).view(data_type), target, "k")


def test_half_floats_are_compared_although_pyarrow_cannot() -> None:
    half = pa.array([1.5, float("nan"), None], pa.float16())
    assert cast_exactly(half, pa.float64(), "k").null_count == 1
    with pytest.raises(SchemaMismatchError, match=r"the value 0\.1 "):
        cast_exactly(pa.array([0.1]), pa.float16(), "k")


def test_types_and_values_behind_dictionaries_and_extensions() -> None:
    nested = pa.dictionary(pa.int8(), pa.dictionary(pa.int8(), pa.string()))
    assert plain_type(nested) == pa.string()
    assert plain_type(pa.uuid()) == pa.binary(16)
    assert plain_values(pa.array(["a", None]).dictionary_encode()).to_pylist() == ["a", None]
    assert plain_values(pa.array([b"x" * 16], pa.uuid())).type == pa.binary(16)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (pa.scalar(7), 7),
        (pa.scalar("x"), "x"),
        (pa.scalar(None, pa.int8()), None),
        (
            pa.array([2**31 - 1], pa.int32()).view(pa.date32())[0],
            "<value out of range: 2147483647>",
        ),
    ],
)
def test_values_are_shown_as_python_s_own_where_there_is_one(value: pa.Scalar, shown: Any) -> None:
    assert python_value(value) == shown


def test_nanoseconds_are_shown_where_pandas_is_not_installed() -> None:
    class WithoutPandas:
        """What such a scalar does there."""

        def as_py(self) -> Any:
            raise ValueError("Nanosecond resolution temporal type is not safely convertible")

        def cast(self, data_type: pa.DataType) -> pa.Scalar:
            return pa.scalar(1_500, pa.timestamp("ns")).cast(data_type)

    assert python_value(WithoutPandas()) == "1970-01-01 00:00:00.000001500"


@pytest.mark.parametrize(
    ("number", "scale"), [(2**64 - 1, 18), (2361183241434822606846, 15), (73786976294838206463, 17)]
)
def test_decimals_that_pyarrow_divides_wrongly_are_not_refused(number: int, scale: int) -> None:
    exact = pa.array([Decimal(number), None], pa.decimal128(38, scale))
    whole = cast_exactly(exact, pa.decimal128(38, 0), "k")
    assert whole.to_pylist() == [number, None]
    assert cast_exactly(whole, exact.type, "k").equals(exact)
    if number < 2**64:
        assert cast_exactly(exact, pa.uint64(), "k").to_pylist() == [number, None]
        assert cast_exactly(pa.array([number, None], pa.uint64()), exact.type, "k").equals(exact)
