"""Digests of rows: equal where every value is, whatever the type."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsspeckit.core.keys import comparable_values, family, key_column, row_digests
from fsspeckit.testing.duplicates_model import comparable
from fsspeckit.testing.strategies import KEY_TYPES, PAYLOAD_TYPES, arrays


def digests(*columns: pa.Array) -> list[bytes]:
    """Return the digests of rows, each column compared by its own type."""
    values = []
    for column in columns:
        key = None if family(column.type) is None else key_column("c", column.type)
        values.append(comparable_values(pa.chunked_array([column]), key))
    found: list[bytes] = row_digests(values).to_pylist()
    return found


@pytest.mark.parametrize("kind", [*KEY_TYPES, *PAYLOAD_TYPES], ids=str)
@given(data=st.data())
@settings(max_examples=12, deadline=None)
def test_digests_are_equal_where_values_are(kind: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(arrays(kind, 6))
    other = pa.array(range(3), pa.int64()).take(pa.array([0, 1, 2, 0, 1, 2]))
    texts = [repr(value) for value in values.cast(pa.int64())] if _is_time(kind) else None
    rows = list(zip(texts or map(comparable, values.to_pylist()), other.to_pylist(), strict=True))
    found = digests(values, other)
    for one, left in enumerate(rows):
        for two, right in enumerate(rows):
            assert (found[one] == found[two]) == (left == right)


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind))  # of which Python has not all values


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (["ab", "c"], ["a", "bc"]),
        ([None, "a"], ["", "a"]),
        ([["a"], ["b"]], [["a", "b"], []]),
        ([None, [1]], [[], [1]]),
        ([[None], [1]], [[], [1]]),
        ([0, None], [None, 0]),
    ],
    ids=str,
)
def test_rows_that_look_alike_differ(left: list[Any], right: list[Any]) -> None:
    columns = [pa.array([one, two]) for one, two in zip(left, right, strict=True)]
    assert len(set(digests(*columns))) == 2


def test_floats_inside_lists_are_compared_as_values() -> None:
    values = pa.array([[0.0, math.nan], [-0.0, -math.nan]])
    assert len(set(digests(values))) == 1


def test_maps_behind_null_and_slices() -> None:
    values = pa.array([None, [("a", 1)], [], [("a", 1)]], pa.map_(pa.string(), pa.int64()))
    found = digests(values)
    assert (found[1] == found[3], len(set(found))) == (True, 3)
    assert digests(values.slice(1)) == found[1:]
