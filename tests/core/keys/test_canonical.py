"""Canonical keys: which values are equal, in which order they are, and which are never keys."""

from __future__ import annotations

import math
import struct
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsspeckit.core.keys.canonical import (
    NAN_CODE,
    canonical_keys,
    check_columns,
    common_type,
    key_column,
    plain_values,
)
from fsspeckit.core.keys.source import as_keys, keys_table
from fsspeckit.errors import InvalidArgumentError, SchemaMismatchError
from fsspeckit.testing.strategies import KEY_TYPES, values

DICTIONARY = pa.dictionary(pa.int32(), pa.string())
INSTANT = datetime(2024, 5, 1, 12, tzinfo=UTC)


def nan_of_bits(bits: int) -> float:
    (number,) = struct.unpack("<d", bits.to_bytes(8, "little"))
    assert math.isnan(number)
    return float(number)


def canonical(values: pa.Array | pa.ChunkedArray, data_type: pa.DataType) -> list[Any]:
    found: list[Any] = key_column("k", data_type).canonical(values).to_pylist()
    return found


# Pairs of values of two types, as (value, type) each, that are one key.
EQUAL: list[tuple[Any, pa.DataType, Any, pa.DataType]] = [
    (7, pa.int32(), 7, pa.int64()),
    (-7, pa.int8(), -7, pa.int64()),
    (7, pa.uint8(), 7, pa.int64()),
    (2**63 + 5, pa.uint64(), 2**63 + 5, pa.uint64()),
    (2**64 - 1, pa.uint64(), Decimal(2**64 - 1), pa.decimal128(20, 0)),
    (7, pa.uint64(), 7, pa.int8()),
    (7, pa.int64(), Decimal("7.00"), pa.decimal128(9, 2)),
    (Decimal("1.0"), pa.decimal128(2, 1), Decimal("1.00"), pa.decimal128(3, 2)),
    (Decimal("-1.5"), pa.decimal128(38, 10), Decimal("-1.5"), pa.decimal128(9, 1)),
    (Decimal("-1.5"), pa.decimal256(76, 10), Decimal("-1.5"), pa.decimal128(9, 1)),
    (Decimal("1.5"), pa.decimal32(9, 2), Decimal("1.5"), pa.decimal64(18, 4)),
    (1.5, pa.float32(), 1.5, pa.float64()),
    (1.5, pa.float16(), 1.5, pa.float32()),
    (-0.0, pa.float64(), 0.0, pa.float64()),
    (-0.0, pa.float32(), 0.0, pa.float64()),
    (math.nan, pa.float64(), math.nan, pa.float32()),
    (nan_of_bits(0x7FF8000000000001), pa.float64(), math.nan, pa.float64()),
    (nan_of_bits(0xFFF8000000000000), pa.float64(), math.nan, pa.float64()),
    (nan_of_bits(0x7FF0000000000001), pa.float64(), math.nan, pa.float64()),
    ("ä", pa.string(), "ä", pa.large_string()),
    ("ä", pa.string(), "ä", pa.string_view()),
    ("ä", pa.string(), "ä", DICTIONARY),
    ("ä", pa.large_string(), "ä", pa.string_view()),
    ("", pa.string_view(), "", DICTIONARY),
    (b"\xff\0", pa.binary(2), b"\xff\0", pa.binary()),
    (b"\xff\0", pa.large_binary(), b"\xff\0", pa.binary_view()),
    (uuid.UUID(int=5).bytes, pa.uuid(), uuid.UUID(int=5).bytes, pa.binary(16)),
    (uuid.UUID(int=5).bytes, pa.uuid(), uuid.UUID(int=5).bytes, pa.binary()),
    (INSTANT, pa.timestamp("s", "UTC"), INSTANT, pa.timestamp("ns", "UTC")),
    (INSTANT, pa.timestamp("us", "Asia/Tokyo"), INSTANT, pa.timestamp("ms", "UTC")),
    (INSTANT, pa.timestamp("us", "+05:30"), INSTANT, pa.timestamp("us", "America/New_York")),
    (1, pa.timestamp("s"), 1000, pa.timestamp("ms")),
    (1, pa.time32("s"), 1_000_000, pa.time64("us")),
    (1, pa.duration("s"), 1_000, pa.duration("ms")),
    (date(2024, 2, 29), pa.date32(), date(2024, 2, 29), pa.date64()),
    (True, pa.bool_(), True, pa.bool_()),
    (None, pa.int64(), None, pa.null()),
    (None, pa.string(), None, DICTIONARY),
]


@pytest.mark.parametrize(("one", "one_type", "other", "other_type"), EQUAL)
def test_equal_keys_of_two_types_have_one_canonical_form(
    one: Any, one_type: pa.DataType, other: Any, other_type: pa.DataType
) -> None:
    shared = common_type(one_type, other_type)
    left, right = pa.array([one], one_type), pa.array([other], other_type)
    assert canonical(left, shared) == canonical(right, shared)
    # The type of either side alone may be the target's.
    assert canonical(left, one_type) == canonical(right, one_type)
    assert canonical(left, other_type) == canonical(right, other_type)


# Pairs of values that are near to each other, or look alike, and are two keys.
DIFFERENT: list[tuple[Any, pa.DataType, Any, pa.DataType]] = [
    (7, pa.int32(), 8, pa.int64()),
    (2**63, pa.uint64(), -(2**63), pa.int64()),
    (2**53, pa.int64(), 2**53 + 1, pa.int64()),
    (Decimal("1.0"), pa.decimal128(2, 1), Decimal("1.01"), pa.decimal128(3, 2)),
    (0.1, pa.float64(), 0.1, pa.float32()),  # as a float32 it is 0.10000000149
    (math.nan, pa.float64(), math.inf, pa.float64()),
    (math.nan, pa.float64(), None, pa.float64()),
    ("a", pa.string(), "A", pa.string()),
    ("a", pa.string(), "a ", pa.string()),
    ("\u00e9", pa.string(), "e\u0301", pa.string()),  # one letter, two spellings
    ("007", pa.string(), "7", DICTIONARY),
    (b"", pa.binary(), None, pa.binary()),
    (b"a", pa.binary(), b"a\0", pa.binary()),
    (1_500, pa.timestamp("ns"), 1, pa.timestamp("us")),
    (0, pa.int64(), None, pa.int64()),
    (False, pa.bool_(), None, pa.bool_()),
]


@pytest.mark.parametrize(("one", "one_type", "other", "other_type"), DIFFERENT)
def test_different_keys_have_different_canonical_forms(
    one: Any, one_type: pa.DataType, other: Any, other_type: pa.DataType
) -> None:
    shared = common_type(one_type, other_type)
    left, right = pa.array([one], one_type), pa.array([other], other_type)
    assert canonical(left, shared) != canonical(right, shared)


# Types whose values are never equal, whatever they look like.
NEVER = [
    (pa.string(), pa.int64()),
    (pa.string(), pa.decimal128(9, 2)),
    (pa.string(), pa.binary()),
    (DICTIONARY, pa.binary(2)),
    (pa.date32(), pa.timestamp("us")),
    (pa.date64(), pa.timestamp("ms", "UTC")),
    (pa.int64(), pa.float64()),
    (pa.decimal128(9, 2), pa.float64()),
    (pa.timestamp("us"), pa.timestamp("us", "UTC")),
    (pa.bool_(), pa.int8()),
    (pa.time64("us"), pa.duration("us")),
    (pa.string(), pa.date32()),
]


@pytest.mark.parametrize(("one", "other"), NEVER)
def test_types_that_are_never_equal_are_a_schema_mismatch(
    one: pa.DataType, other: pa.DataType
) -> None:
    for source, target in ((one, other), (other, one)):
        with pytest.raises(SchemaMismatchError, match=r"column 'k'.*never equal") as caught:
            key_column("k", target).canonical(pa.nulls(1, source))
        assert "Hint:" in str(caught.value)
        with pytest.raises(SchemaMismatchError, match="never equal"):
            common_type(source, target)


# A value, its type, and a target's type that does not hold it.
MISFITS = [
    (300, pa.int64(), pa.int8(), "300"),
    (-1, pa.int8(), pa.uint64(), "-1"),
    (2**63, pa.uint64(), pa.int64(), str(2**63)),
    (0.1, pa.float64(), pa.float32(), "0.1"),
    (1e300, pa.float64(), pa.float32(), "1e+300"),
    (1_500, pa.timestamp("ns"), pa.timestamp("us"), "00:00:00.000001500"),
    (1, pa.timestamp("ms", "UTC"), pa.timestamp("s", "UTC"), "00:00:00.001"),
    (Decimal("1.25"), pa.decimal128(9, 2), pa.decimal128(9, 1), "1.25"),
    (Decimal("1234"), pa.decimal128(9, 0), pa.decimal128(3, 0), "1234"),
    (Decimal("1.5"), pa.decimal128(9, 1), pa.int64(), "1.5"),
    (100, pa.int64(), pa.decimal128(2, 0), "100"),
    (b"abc", pa.binary(), pa.binary(2), "abc"),
    (2**62, pa.timestamp("s"), pa.timestamp("ns"), str(2**62)),
    (86_400_001, pa.date64(), pa.date32(), "1970-01-02"),
]


@pytest.mark.parametrize(("value", "source", "target", "shown"), MISFITS)
def test_a_value_that_does_not_fit_is_named_with_its_column(
    value: Any, source: pa.DataType, target: pa.DataType, shown: str
) -> None:
    if pa.types.is_temporal(source):
        column = pa.array([None, 0, value], pa.int64()).view(source)
    else:
        column = pa.array([None, value], source)
    with pytest.raises(SchemaMismatchError, match="column 'the key'") as caught:
        key_column("the key", target).canonical(column)
    message = str(caught.value)
    assert shown in message
    assert str(target) in message
    assert "Hint:" in message


@pytest.mark.parametrize(
    "unfit", [pa.list_(pa.int64()), pa.struct([("a", pa.int8())]), pa.month_day_nano_interval()]
)
def test_nested_columns_cannot_be_keys(unfit: pa.DataType) -> None:
    with pytest.raises(SchemaMismatchError, match=r"column 'k' of type .* cannot be a key"):
        key_column("k", unfit)


def plain_value(value: Any) -> Any:
    """What a raw value is compared as in Python: NaN above all, one zero."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value + 0.0)
    return value.encode() if isinstance(value, str) else value


@pytest.mark.parametrize("data_type", KEY_TYPES, ids=str)
def test_canonical_order_and_equality_are_those_of_the_values(data_type: pa.DataType) -> None:
    @settings(max_examples=40)
    @given(st.lists(values(data_type), min_size=2, max_size=8))
    def check(raw: list[Any]) -> None:
        codes = canonical(pa.array(raw, data_type), data_type)
        meant = [plain_value(value) for value in raw]
        for left, left_code in zip(meant, codes, strict=True):
            for right, right_code in zip(meant, codes, strict=True):
                assert (left_code < right_code) == (left < right)
                assert (left_code == right_code) == (left == right)

    check()


@pytest.mark.parametrize("data_type", [*KEY_TYPES, pa.decimal256(50, 5), pa.uuid()], ids=str)
def test_original_undoes_canonical(data_type: pa.DataType) -> None:
    raw_type = pa.binary(16) if data_type == pa.uuid() else data_type

    @settings(max_examples=40)
    @given(st.lists(st.none() | values(raw_type), max_size=6))
    def check(raw: list[Any]) -> None:
        column = key_column("k", data_type)
        before = pa.array(raw, data_type)
        after = column.original(column.canonical(before).combine_chunks())
        assert after.type == column.type
        if pa.types.is_floating(data_type):
            assert np.array_equal(after.to_numpy(False), before.to_numpy(False), equal_nan=True)
        else:
            assert after.equals(plain_values(before))

    check()


@pytest.mark.parametrize("data_type", KEY_TYPES, ids=str)
def test_slices_chunks_and_nulls_do_not_change_canonical_keys(data_type: pa.DataType) -> None:
    @settings(max_examples=40)
    @given(
        st.lists(st.none() | values(data_type), max_size=6), st.integers(0, 3), st.integers(0, 3)
    )
    def check(raw: list[Any], before: int, after: int) -> None:
        whole = canonical(pa.array(raw, data_type), data_type)
        padded = pa.array([None] * before + raw + [None] * after, data_type)
        piece = padded.slice(before, len(raw))
        assert canonical(piece, data_type) == whole
        middle = len(raw) // 2
        chunks = pa.chunked_array([piece[:middle], piece[middle:]], data_type)
        assert canonical(chunks, data_type) == whole
        assert [code is None for code in whole] == [value is None for value in raw]

    check()


@pytest.mark.parametrize("data_type", [*KEY_TYPES, pa.null(), pa.uuid(), pa.float16()], ids=str)
def test_empty_and_all_null_columns_have_canonical_keys(data_type: pa.DataType) -> None:
    column = key_column("k", data_type)
    assert column.canonical(pa.array([], data_type)).type == column.canonical_type
    assert column.canonical(pa.chunked_array([], data_type)).type == column.canonical_type
    assert column.canonical(pa.nulls(3, data_type)).to_pylist() == [None] * 3
    assert column.canonical(pa.nulls(2, pa.null())).to_pylist() == [None] * 2


def test_canonical_keys_are_int64_or_binary_only() -> None:
    kinds = {key_column("k", data_type).canonical_type for data_type in KEY_TYPES}
    assert kinds == {pa.int64(), pa.binary()}


def test_a_null_in_the_dictionary_is_a_null_key() -> None:
    values = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["a", None]))
    assert canonical(values, pa.string()) == [b"a", None, None]


def test_every_nan_is_the_same_and_above_infinity() -> None:
    codes = canonical(pa.array([math.inf, math.nan, nan_of_bits(0xFFFFFFFFFFFFFFFF)]), pa.float64())
    assert codes[1] == codes[2] == NAN_CODE > codes[0]


def test_canonical_keys_keep_the_names_of_odd_columns() -> None:
    names = ["with.dot", "it's", 'say "hi"', "größe", "😀"]
    table = pa.table({name: [1] for name in names})
    columns = [key_column(name, pa.int32()) for name in reversed(names)]
    assert canonical_keys(table, columns).column_names == names[::-1]


# What a caller may pass as keys.


def test_keys_are_scalars_for_one_column_and_tuples_for_several() -> None:
    assert keys_table([1, None, 3], ["id"]).to_pydict() == {"id": [1, None, 3]}
    assert keys_table([(1,), (2,)], ["id"]).to_pydict() == {"id": [1, 2]}
    assert keys_table([(1, "a"), [2, None]], ["id", "c"]).to_pydict() == {
        "id": [1, 2],
        "c": ["a", None],
    }
    assert keys_table([], ["id", "c"]).num_rows == 0


def test_keys_are_an_arrow_array_or_table() -> None:
    table = pa.table({"x": [0], "c": ["a"], "id": [1]})
    for given_keys in (table, table.to_batches()[0], table.to_reader()):
        assert keys_table(given_keys, ["id", "c"]).to_pydict() == {"id": [1], "c": ["a"]}
    for array_of in (pa.array([1, 2], pa.int8()), pa.chunked_array([[1], [2]], pa.int8())):
        assert keys_table(array_of, ["id"]).schema.field("id").type == pa.int8()


def test_keys_of_a_data_frame_are_its_rows_not_its_column_names() -> None:
    for frame in (pd.DataFrame({"id": [1, 2]}), pl.DataFrame({"id": [1, 2]})):
        assert keys_table(frame, ["id"]).to_pydict() == {"id": [1, 2]}
    for series in (pd.Series([1, 2]), pl.Series([1, 2]), np.array([1, 2])):
        assert keys_table(series, ["id"]).to_pydict() == {"id": [1, 2]}


def test_integers_beyond_64_bits_and_uuids_can_be_keys() -> None:
    big = keys_table([2**64 - 1, -1, None], ["id"])
    assert big.to_pydict() == {"id": [Decimal(2**64 - 1), Decimal(-1), None]}
    name = uuid.uuid4()
    assert keys_table([name], ["id"]).to_pydict() == {"id": [name.bytes]}


MIXED = [
    ([date(2024, 1, 1), datetime(2024, 1, 1, 5)], "dates and datetimes"),
    ([datetime(2024, 1, 1), INSTANT], "datetimes with zone and datetimes without zone"),
    (["a", b"a"], "bytes and strings"),
    ([True, 2], "booleans and numbers"),
    ([np.True_, 2], "booleans and numbers"),
    ([np.timedelta64(1, "s"), 2], "durations and numbers"),
    ([1, "1"], "numbers and strings"),
]


@pytest.mark.parametrize(("mixed", "message"), MIXED)
def test_keys_of_two_kinds_are_refused_and_not_made_equal(mixed: list[Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"'id' mix {message}"):
        keys_table(mixed, ["id"])


@pytest.mark.parametrize(
    ("wrong", "columns"),
    [
        ([1, "a"], ["id"]),
        ([{"a"}, 1], ["id"]),
        ([(1, 2, 3)], ["id", "n"]),
        (pa.array([1]), ["id", "n"]),
        ([pd.Timestamp(1)], ["id"]),
    ],
)
def test_keys_to_delete_are_named_as_their_argument(wrong: Any, columns: list[str]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"\bkeys\b") as caught:
        as_keys(wrong, columns)
    assert caught.value.argument == "keys"
    assert "source" not in str(caught.value)


@pytest.mark.parametrize("keys", ["abc", b"abc", 5, None, {"id": [1]}])
def test_one_value_in_place_of_a_sequence_of_keys_is_refused(keys: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="source_keys must be a sequence"):
        keys_table(keys, ["id"])


@pytest.mark.parametrize(
    ("keys", "columns", "message"),
    [
        ([1], b"id", "got the string b'id'"),
        ([1], [], "at least one"),
        ([1], None, "at least one"),
        ([(1, 2)], ["id", "id"], "once"),
        ([1], [7], "must be strings, got 7"),
        ([1], ["id", "c"], "a tuple of 2 values"),
        ([(1, 2, 3)], ["id", "c"], "got \\(1, 2, 3\\)"),
        (pa.array([1]), ["id", "c"], "one array, but there are 2 key columns"),
        (pa.table({"ID": [1]}), ["id"], "\\['id'\\] not found"),
        (pa.table([[1], [2]], names=["id", "id"]), ["id"], "ambiguous"),
        (pa.table({"ID": [1], "id": [2]}), ["id"], "ambiguous"),
        ([object()], ["id"], "not values of one type"),
        ([2**64, 0.5], ["id"], "not values of one type"),
    ],
)
def test_keys_that_do_not_fit_the_key_columns_are_refused(
    keys: Any, columns: Any, message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        keys_table(keys, columns)


def test_a_key_column_that_differs_from_another_by_case_alone_is_refused() -> None:
    check_columns("key_columns", ["id"], ["id", "Identity"])
    with pytest.raises(InvalidArgumentError, match="ambiguous") as caught:
        check_columns("key_columns", ["id"], ["id", "ID", "v"])
    assert "['id', 'ID']" in str(caught.value)


@pytest.mark.parametrize(
    "key", [pd.Timestamp("2024-01-01") + pd.Timedelta(1, "ns"), pd.Timedelta(1)]
)
def test_keys_whose_nanoseconds_would_be_lost_are_refused(key: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"'id' hold Time.*nanoseconds.*\nHint: "):
        keys_table([key], ["id"])
    assert keys_table(pa.array([1], pa.timestamp("ns")), ["id"]).num_rows == 1
