"""Which row holds which key, and which of several rows with one key stays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsspeckit.core.keys.canonical import canonical_keys, key_column
from fsspeckit.core.keys.source import KeyIndex, winning_rows
from fsspeckit.errors import DuplicateKeyError, InvalidArgumentError
from fsspeckit.testing.model import merge_rows
from fsspeckit.testing.model_source import values_of
from fsspeckit.testing.strategies import KEY_TYPES, DatasetSchema, tables, values

NAN = math.nan


def keys_of(table: pa.Table, names: list[str]) -> pa.Table:
    return canonical_keys(table, [key_column(n, table.schema.field(n).type) for n in names])


def two_sides(types: list[pa.DataType]) -> st.SearchStrategy[tuple[pa.Table, pa.Table]]:
    """Two tables whose columns take their values from the same few."""
    names = [f"k{number}" for number in range(len(types))]
    shape = DatasetSchema(pa.schema(list(zip(names, types, strict=True))), tuple(names))

    def sides(domains: list[list[Any]]) -> st.SearchStrategy[tuple[pa.Table, pa.Table]]:
        few = {
            name: st.sampled_from([*domain, None])
            for name, domain in zip(names, domains, strict=True)
        }
        return st.tuples(tables(shape, few), tables(shape, few))

    domains = [st.lists(values(data_type), max_size=3) for data_type in types]
    return st.tuples(*domains).flatmap(lambda drawn: sides(list(drawn)))


KEYS = st.lists(st.sampled_from(KEY_TYPES), min_size=1, max_size=3)


INT64 = st.integers(-3, 12) | st.integers(-(2**63), 2**63 - 1) | st.just(2**63 - 1)


@given(
    source=st.lists(INT64, max_size=12),
    target=st.lists(INT64 | st.none(), max_size=30),
    order=st.sampled_from(["as it is", "ascending", "ascending and distinct", "descending"]),
)
def test_numbers_are_found_on_whichever_side_is_searched(
    source: list[int], target: list[int | None], order: str
) -> None:
    if order != "as it is":
        numbers = [number for number in target if number is not None]
        if order == "ascending and distinct":
            numbers = list(set(numbers))
        nulls = [None] * (len(target) - len(numbers))
        target = [*nulls, *sorted(numbers, reverse=order == "descending")]
    index = KeyIndex(pa.table({"a": pa.array(source, pa.int64())}))
    expected = [source.index(key) if key in source else -1 for key in target]
    keys = pa.table({"a": pa.array(target, pa.int64())})
    assert index.lookup(keys).tolist() == expected
    positions, rows = index.find(keys)
    found = [(at, row) for at, row in enumerate(expected) if row >= 0]
    assert list(zip(positions.tolist(), rows.tolist(), strict=True)) == found


@pytest.mark.parametrize("bits", [3, 59, 60, 61, 63, 64])
def test_rows_are_put_in_the_order_of_their_keys(bits: int) -> None:
    least = -(2**63)
    source = [least + 2**bits - 1, least + 5, least, least + 5]
    index = KeyIndex(pa.table({"a": pa.array(source, pa.int64())}))
    assert index.order is not None
    assert index.order.tolist() == [2, 1, 3, 0]
    assert index.lookup(pa.table({"a": source})).tolist() == [0, 1, 2, 1]
    ordered = KeyIndex(pa.table({"a": sorted(source)}))
    assert ordered.order is None


@given(KEYS.flatmap(two_sides), st.integers(1, 3))
def test_lookup_finds_the_first_row_as_a_dict_does(
    sides: tuple[pa.Table, pa.Table], chunk: int
) -> None:
    source, target = (keys_of(side, side.column_names) for side in sides)
    first: dict[Any, int] = {}
    for row, key in enumerate(zip(*source.to_pydict().values(), strict=True)):
        first.setdefault(key, row)
    expected = [first.get(key, -1) for key in zip(*target.to_pydict().values(), strict=True)]
    index = KeyIndex(source)
    assert index.lookup(target).tolist() == expected
    chunked = pa.Table.from_batches(target.to_batches(max_chunksize=chunk), target.schema)
    assert index.lookup(chunked).tolist() == expected


@given(KEYS.flatmap(two_sides))
def test_groups_number_equal_keys_alike(sides: tuple[pa.Table, pa.Table]) -> None:
    source = keys_of(sides[0], sides[0].column_names)
    groups = KeyIndex(source).groups.tolist()
    keys = list(zip(*source.to_pydict().values(), strict=True))
    for key, group in zip(keys, groups, strict=True):
        for other_key, other_group in zip(keys, groups, strict=True):
            assert (key == other_key) == (group == other_group)
    assert set(groups) == set(range(len(set(keys))))  # dense, which other code counts on


def test_lookup_in_and_of_nothing() -> None:
    for data_type in (pa.int64(), pa.binary()):
        none = pa.table({"a": pa.array([], data_type), "b": pa.array([], pa.int64())})
        value = 1 if data_type == pa.int64() else b"x"
        some = pa.table({"a": pa.array([value, None], data_type), "b": [1, None]})
        assert KeyIndex(none).lookup(some).tolist() == [-1, -1]
        assert KeyIndex(some).lookup(none).tolist() == []
        assert KeyIndex(none).lookup(none).tolist() == []


def test_null_is_found_only_where_the_source_has_null() -> None:
    with_null = KeyIndex(pa.table({"a": pa.array([0, None])}))
    assert with_null.lookup(pa.table({"a": pa.array([None, 0, 1])})).tolist() == [1, 0, -1]
    without = KeyIndex(pa.table({"a": pa.array([0, 1])}))
    assert without.lookup(pa.table({"a": pa.array([None, 0])})).tolist() == [-1, 0]
    empty_bytes = KeyIndex(pa.table({"a": pa.array([b""], pa.binary())}))
    nothing = pa.table({"a": pa.array([None, b""], pa.binary())})
    assert empty_bytes.lookup(nothing).tolist() == [-1, 0]


def test_composite_keys_match_as_tuples_and_not_by_column() -> None:
    index = KeyIndex(pa.table({"a": [1, 2], "b": [b"x", b"y"]}))
    crossed = pa.table({"a": [1, 1, 2, 2], "b": [b"x", b"y", b"x", b"y"]})
    assert index.lookup(crossed).tolist() == [0, -1, -1, 1]


def winners(rows: list[dict[str, Any]], **options: Any) -> list[int]:
    source = pa.Table.from_pylist(rows)
    groups = KeyIndex(keys_of(source, ["k"])).groups
    return [int(row) for row in winning_rows(source, groups, ["k"], **options)]


ROWS = [{"k": 1, "o": 5}, {"k": 2, "o": 1}, {"k": 1, "o": 7}, {"k": 1, "o": 6}]


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({"policy": "first"}, [0, 1]),
        ({"policy": "last"}, [1, 3]),
        ({"order_by": ["o"]}, [1, 2]),
        ({"order_by": ["o"], "policy": "first"}, [1, 2]),  # order_by decides
    ],
)
def test_which_of_several_rows_with_one_key_stays(options: dict[str, Any], rows: list[int]) -> None:
    assert winners(ROWS, **options) == rows


@pytest.mark.parametrize(
    ("values", "winner"),
    [
        ([1.0, 3.0, 2.0], 1),
        ([NAN, 1.0, math.inf], 0),
        ([1.0, NAN, math.inf], 1),
        ([None, 1.0, None], 1),
        ([None, NAN, 1.0], 1),
        ([None, None, None], 2),
        ([2.0, 2.0, 1.0], 1),
        ([0.0, -0.0, -1.0], 1),
    ],
)
def test_order_by_keeps_the_greatest_with_nan_above_and_null_below_all(
    values: list[float | None], winner: int
) -> None:
    assert winners([{"k": 1, "o": value} for value in values], order_by=["o"]) == [winner]


@pytest.mark.parametrize(
    "greater_first",
    [
        pa.array(["b", "a"]).dictionary_encode(),
        pa.array(["b", "a"], pa.string_view()),
        pa.array([2, 1], pa.float16()),
        pa.array([b"b" * 16, b"a" * 16], pa.uuid()),
        pa.DictionaryArray.from_arrays(pa.array([1, 0]), pa.array(["a", "b"])),
    ],
    ids=lambda column: str(column.type),
)
def test_order_by_takes_types_that_pyarrow_cannot_sort(greater_first: pa.Array) -> None:
    source = pa.table({"k": [1, 1], "o": greater_first})
    assert winning_rows(source, np.array([0, 0]), ["k"], order_by=["o"]).tolist() == [0]


SORTED_TYPES = [pa.int8(), pa.float64(), pa.string(), pa.bool_(), pa.date32()]


@given(st.data())
def test_winning_rows_are_those_of_the_model(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(SORTED_TYPES), min_size=1, max_size=2))
    order_by = [f"o{number}" for number in range(len(kinds))]
    fields = [("k", pa.int8()), *zip(order_by, kinds, strict=True), ("row", pa.int64())]
    shape = DatasetSchema(pa.schema(fields), ("k",))
    few = {"k": st.integers(0, 2)}
    table = data.draw(tables(shape, few))
    table = table.set_column(len(fields) - 1, "row", pa.array(range(table.num_rows), pa.int64()))
    policy = data.draw(st.sampled_from(["first", "last", "order_by"]))
    options: dict[str, Any] = (
        {"order_by": order_by} if policy == "order_by" else {"duplicate_keys": policy}
    )
    expected = merge_rows([], table.to_pylist(), "upsert", ["k"], **options)
    groups = KeyIndex(keys_of(table, ["k"])).groups
    found = winning_rows(
        table,
        groups,
        ["k"],
        policy=options.get("duplicate_keys", "error"),
        order_by=options.get("order_by"),
    )
    assert found.tolist() == sorted(row["row"] for row in expected.rows)
    assert len({values_of(row, ["k"]) for row in expected.rows}) == len(found)


def test_rows_without_duplicates_all_stay_in_order() -> None:
    rows = [{"k": 3}, {"k": 1}, {"k": 2}]
    for options in ({}, {"policy": "first"}, {"order_by": ["k"]}):
        assert winners(rows, **options) == [0, 1, 2]
    empty = pa.table({"k": pa.array([], pa.int64())})
    assert winning_rows(empty, np.empty(0, np.int64), ["k"]).tolist() == []


def test_duplicate_keys_are_an_error_with_their_count_and_up_to_five_samples() -> None:
    rows = [{"k": number // 2} for number in range(14)]
    with pytest.raises(DuplicateKeyError) as caught:
        winners(rows)
    message = str(caught.value)
    assert message.startswith("7 key(s) of ['k'] occur more than once in the source")
    assert "for example: 0, 1, 2, 3, 4.\n" in message
    assert "Hint:" in message
    assert isinstance(caught.value, ValueError)


def test_samples_of_composite_keys_are_tuples() -> None:
    source = pa.table({"a": [1, 1], "b": ["x", "x"], "v": [1, 2]})
    with pytest.raises(DuplicateKeyError, match=r"1 key\(s\).*for example: \(1, 'x'\)"):
        winning_rows(source, np.array([0, 0]), ["a", "b"])


def test_samples_that_python_cannot_express_are_shown_nevertheless() -> None:
    days = pa.array([2**31 - 1] * 2, pa.int32()).view(pa.date32())
    with pytest.raises(DuplicateKeyError, match="2147483647"):
        winning_rows(pa.table({"k": days}), np.array([0, 0]), ["k"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": "any"}, "duplicate_keys must be one of 'error', 'first', 'last', got 'any'"),
        ({"order_by": ["nope"]}, r"order_by \['nope'\] not found"),
        ({"order_by": "k"}, "got the string 'k'"),
        ({"order_by": ["k", "k"]}, "once"),
        ({"order_by": ["l"]}, "order_by 'l' of type list<.*> has no order"),
    ],
)
def test_wrong_options_are_refused_also_where_no_key_repeats(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        winners([{"k": 1, "l": [1]}, {"k": 2, "l": [2]}], **options)
