"""Fitting rows to a schema, and telling which values differ."""

from __future__ import annotations

import math
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsspeckit.core.arrow_compat import take_rows, without_views
from fsspeckit.core.schema_conform import (
    check_same_columns,
    conform_table,
    conforming_schema,
    different_values,
    same_values,
)
from fsspeckit.errors import SchemaMismatchError
from fsspeckit.testing.strategies import PAYLOAD_TYPES, arrays


def test_columns_come_in_the_order_and_types_of_the_schema() -> None:
    schema = pa.schema([("a", pa.int32()), ("b", pa.float64())])
    fitted = conform_table(pa.table({"b": [1, 2], "a": [3, 4]}), schema)
    assert fitted.equals(
        pa.table({"a": pa.array([3, 4], pa.int32()), "b": pa.array([1.0, 2.0])}, schema=schema)
    )


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (pa.array([2**40]), pa.int32()),
        (pa.array([2**60 + 1]), pa.float64()),
        (pa.array(["1"]), pa.int64()),
        (pa.array([1]), pa.string()),
        (pa.array([0.1]), pa.float32()),
        (pa.array([Decimal("1.25")]), pa.decimal128(9, 1)),
        (pa.array([[2**40]]), pa.list_(pa.int32())),
        (pa.array([1]), pa.list_(pa.int64())),
        (pa.array([b"x"]), pa.string()),
    ],
)
def test_a_value_that_would_change_is_refused(found: pa.Array, wanted: pa.DataType) -> None:
    with pytest.raises(SchemaMismatchError, match="'c'"):
        conform_table(pa.table({"c": found}), pa.schema([("c", wanted)]))


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (pa.array([1, None], pa.int32()), pa.int64()),
        (pa.array(["a", None]).dictionary_encode(), pa.string()),
        (pa.array(["a", None]), pa.dictionary(pa.int32(), pa.string())),
        (pa.array([[1.5, math.nan], None], pa.list_(pa.float32())), pa.list_(pa.float64())),
        (pa.array([b"0" * 16], pa.binary(16)), pa.uuid()),
        (pa.nulls(2), pa.struct([("x", pa.int8())])),
    ],
)
def test_lossless_conversions(found: pa.Array, wanted: pa.DataType) -> None:
    fitted = conform_table(pa.table({"c": found}), pa.schema([("c", wanted)])).column("c")
    assert fitted.type.equals(wanted)
    assert fitted.null_count == found.null_count


def test_null_where_the_target_has_none_is_refused() -> None:
    schema = pa.schema([pa.field("c", pa.int64(), nullable=False)])
    with pytest.raises(SchemaMismatchError, match="1 NULL"):
        conform_table(pa.table({"c": [1, None]}), schema)


def test_missing_and_extra_columns_are_named() -> None:
    with pytest.raises(SchemaMismatchError, match=r"lacks the columns \['b'\].*columns \['x'\]"):
        check_same_columns(["a", "x"], ["a", "b"])


@given(data=st.data(), kind=st.sampled_from(PAYLOAD_TYPES))
def test_values_differ_exactly_where_python_says_so(data: st.DataObject, kind: pa.DataType) -> None:
    left = data.draw(arrays(kind, 5))
    right = data.draw(arrays(kind, 5))
    expected = [_text(a) != _text(b) for a, b in zip(left, right, strict=True)]
    assert different_values(left, right).tolist() == expected
    assert same_values(left, left)


def _text(value: pa.Scalar) -> str:
    """A text that tells values apart bit by bit; every NaN has the same."""
    return repr(value.as_py())


def test_lists_of_other_lengths_differ_and_shift_nothing() -> None:
    left = pa.array([[1], [2, 3], None, [4]])
    right = pa.array([[1], [2], None, [5]])
    assert different_values(left, right).tolist() == [False, True, False, True]


def test_slices_are_compared_from_where_they_begin() -> None:
    values = pa.array(
        [{"m": [("a", 1)]}, {"m": [("b", 2)]}], pa.struct([("m", pa.map_("str", "int8"))])
    )
    assert same_values(values.slice(1), pa.concat_arrays([values.slice(1)]))
    assert not same_values(values.slice(1), values.slice(0, 1))


def test_rows_of_view_types_can_be_taken() -> None:
    table = pa.table({"v": pa.array(["a", "b"], pa.string_view()), "n": [1, 2]})
    assert take_rows(table, pa.array([1])).to_pylist() == [{"v": "b", "n": 2}]
    assert take_rows(table, pa.array([1])).schema.equals(table.schema)
    assert without_views(table).schema.field("v").type == pa.string()


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.date32(), pa.string()], ids=str)
@pytest.mark.parametrize("index", [pa.int8(), pa.int32()], ids=str)
def test_values_fit_a_dictionary_of_them(kind: pa.DataType, index: pa.DataType) -> None:
    """A pandas column of categories may hold values of any type."""
    values = pa.array([1, None, 2, 1]).cast(pa.int32()).cast(kind)
    wanted = pa.schema([("v", pa.dictionary(index, kind))])
    found = conform_table(pa.table({"v": values}), wanted)
    assert found.schema.equals(wanted)
    assert found.column("v").to_pylist() == values.to_pylist()


@pytest.mark.parametrize("values", [pa.nulls(0), pa.nulls(2), pa.array([[]]), pa.array([[None]])])
def test_values_without_a_type_are_the_same(values: pa.Array) -> None:
    assert same_values(values, values)


def test_types_of_other_files_where_values_do_not_fit() -> None:
    source = pa.table({"a": [1, 2], "b": [1, 300], "c": ["x", "y"]})
    schema = pa.schema([("a", pa.int8()), ("b", pa.int8()), ("c", pa.int8())], {"about": "it"})
    others = {name: [pa.uint8(), pa.int64()] for name in "abc"}
    expected = pa.schema([("a", pa.int8()), ("b", pa.int64()), ("c", pa.int8())], {"about": "it"})
    assert conforming_schema(source, schema, others).equals(expected, check_metadata=True)
