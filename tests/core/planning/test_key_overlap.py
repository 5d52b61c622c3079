"""Which keys lie inside which bounds, against a loop over both."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsspeckit.core.keys.canonical import canonical_keys, key_column
from fsspeckit.core.planning.pruning import ColumnBounds, KeyOverlap, _sorted

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

Range = tuple[Any, Any, bool, bool]
"""Low and high (None: unknown), whether there may be values, whether there may be NULL."""

DOMAINS: dict[pa.DataType, list[Any]] = {
    pa.int64(): [-(2**63), -1, 0, 1, 5, 2**63 - 1],
    pa.uint64(): [0, 1, 2**63 - 1, 2**63, 2**64 - 1],
    pa.string(): ["", "a", "ab", "b", "ä", "\U0010ffff"],
    pa.float64(): [-math.inf, -1.5, -0.0, 0.0, 1.5, math.inf, math.nan],
    pa.bool_(): [False, True],
}


def contains(bounds: Range, value: Any) -> bool:
    """What bounds promise, by the definition."""
    low, high, values, nulls = bounds
    if value is None:
        return nulls
    if not values:
        return False
    return low is None or value != value or bool(low <= value <= high)


def column_bounds(name: str, type_: pa.DataType, ranges: list[Range]) -> ColumnBounds:
    column = key_column(name, type_)
    low, high = (
        column.canonical(pa.array([each[end] for each in ranges], type_)).combine_chunks()
        for end in (0, 1)
    )
    values, nulls = (np.array([each[flag] for each in ranges], bool) for flag in (2, 3))
    return ColumnBounds(column, low, high, values, nulls)


def overlap(
    types: list[pa.DataType], groups: list[tuple[Range, ...]], keys: pa.Table
) -> KeyOverlap:
    bounds = [
        column_bounds(name, type_, [group[number] for group in groups])
        for number, (name, type_) in enumerate(zip(keys.column_names, types, strict=True))
    ]
    return KeyOverlap(canonical_keys(keys, [each.column for each in bounds]), bounds)


@st.composite
def ranges(draw: DrawFn, domain: list[Any]) -> Range:
    ordered = [value for value in domain if value == value]
    low, high = sorted(draw(st.tuples(*[st.sampled_from(ordered)] * 2)))
    flags = draw(st.booleans()), draw(st.booleans())
    return (None, None, *flags) if draw(st.booleans()) else (low, high, *flags)


@given(data=st.data())
def test_what_lies_inside_is_what_a_loop_finds(data: st.DataObject) -> None:
    types = data.draw(st.lists(st.sampled_from(list(DOMAINS)), min_size=1, max_size=3))
    domains = [DOMAINS[type_] for type_ in types]
    groups = data.draw(st.lists(st.tuples(*map(ranges, domains)), max_size=4))
    rows = data.draw(st.lists(st.tuples(*(st.sampled_from([*d, None]) for d in domains))))
    columns = [[row[number] for row in rows] for number in range(len(types))]
    names = [f"k{number}" for number in range(len(types))]
    keys = pa.table([pa.array(c, t) for c, t in zip(columns, types, strict=True)], names=names)
    found = overlap(types, groups, keys)
    for number, group in enumerate(groups):
        inside = [
            row
            for row, key in enumerate(rows)
            if all(contains(bounds, value) for bounds, value in zip(group, key, strict=True))
        ]
        assert bool(found.may_contain[number]) == bool(inside)
        assert sorted(found.inside(number).tolist()) == inside
        assert len(inside) <= found.counts[number]
        alone = [
            any(contains(bounds, key[place]) for key in rows) for place, bounds in enumerate(group)
        ]
        decider = alone.index(False) if False in alone else -1
        assert found.decider[number] == decider


def test_keys_of_several_chunks_are_one_column() -> None:
    chunks = pa.chunked_array([["x"], [], [None, "c"], ["b"]], pa.string())
    groups: list[tuple[Range, ...]] = [(("a", "b", True, False),), (("d", "e", True, True),)]
    found = overlap([pa.string()], groups, pa.table({"k": chunks}))
    assert found.inside(0).tolist() == [3]
    assert found.inside(1).tolist() == [1]


@pytest.mark.parametrize("rows", [10, 200_000])
def test_composite_keys_of_many_blocks(rows: int) -> None:
    # Every key fits each column somewhere; the only tuple that fits is the last.
    first = np.zeros(rows, np.int64)
    second = np.full(rows, 7, np.int64)
    second[-1] = 1
    keys = pa.table({"a": np.append(first, 5), "b": np.append(second, 1)})
    groups: list[tuple[Range, ...]] = [((0, 4, True, False), (0, 5, True, False))]
    found = overlap([pa.int64(), pa.int64()], groups, keys)
    assert found.inside(0).tolist() == [rows - 1]
    assert found.may_contain.tolist() == [True]


def test_no_keys_and_no_row_groups() -> None:
    empty = pa.table({"k": pa.array([], pa.string())})
    assert overlap([pa.string()], [(("a", "b", True, True),)], empty).may_contain.tolist() == [
        False
    ]
    assert overlap([pa.string()], [], pa.table({"k": ["a"]})).may_contain.tolist() == []


_INT64 = np.iinfo(np.int64)


@given(
    st.sampled_from([0, int(_INT64.min), int(_INT64.max) - 60]),
    st.lists(st.integers(0, 60), max_size=50),
    st.lists(st.integers(int(_INT64.min), int(_INT64.max)), max_size=2),
)
def test_keys_are_in_order_whether_they_are_counted_or_compared(
    base: int, near: list[int], far: list[int]
) -> None:
    values = np.array([base + number for number in near] + far, np.int64)
    found = _sorted(values)
    assert found.dtype == np.int64
    assert found.tolist() == sorted(values.tolist())
