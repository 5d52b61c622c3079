"""Fingerprints: equal keys have equal ones, and different keys rarely do."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.keys.test_canonical import EQUAL

from fsspeckit.core.keys import canonical_keys, common_type, key_column, key_fingerprints

MANY = 20_000


def fingerprints(*columns: pa.Array | pa.ChunkedArray) -> list[int]:
    table = pa.table(list(columns), names=[str(number) for number in range(len(columns))])
    return [int(number) for number in key_fingerprints(table)]


def of_bytes(*values: bytes | None) -> list[int]:
    return fingerprints(pa.array(values, pa.binary()))


@pytest.mark.parametrize(("left", "left_type", "right", "right_type"), EQUAL)
def test_equal_keys_of_different_types_have_equal_fingerprints(
    left: object, left_type: pa.DataType, right: object, right_type: pa.DataType
) -> None:
    columns = [key_column("k", common_type(left_type, right_type))]
    one, other = (
        key_fingerprints(canonical_keys(pa.table({"k": pa.array([value], kind)}), columns))
        for value, kind in ((left, left_type), (right, right_type))
    )
    assert one == other


@given(st.lists(st.one_of(st.none(), st.binary(max_size=300)), max_size=20), st.data())
def test_a_fingerprint_depends_on_the_value_alone(
    values: list[bytes | None], data: st.DataObject
) -> None:
    array = pa.array(values, pa.binary())
    start = data.draw(st.integers(0, len(values)))
    chunked = pa.chunked_array([array[:start], array[start:]], pa.binary())
    alone = [of_bytes(value)[0] for value in values]
    assert fingerprints(array) == fingerprints(chunked) == alone
    assert fingerprints(array[start:]) == alone[start:]


@pytest.mark.parametrize(
    "keys",
    [
        pa.array(range(MANY), pa.int64()),
        pa.array(np.arange(MANY) << 40),
        pa.array(np.arange(MANY).astype(np.float64).view(np.int64)),
        pa.array([str(number).encode() for number in range(MANY)]),
        pa.array([b"%036d" % number for number in range(MANY)]),
        pa.array([b"same start, " * 30 + b"%08d" % number for number in range(MANY)]),
        pa.array([b"a" * (number % 60) + b"b" * (number // 60) for number in range(3600)]),
    ],
    ids=["small", "high bits", "floats", "digits", "one length", "long", "of two letters"],
)
def test_different_keys_rarely_share_a_fingerprint(keys: pa.Array) -> None:
    assert len(np.unique(fingerprints(keys))) >= len(keys.unique()) - 3


def test_null_is_a_value_of_its_own() -> None:
    assert len(set(of_bytes(None, b"", b"\0", b"\0\0"))) == 4
    assert len(set(fingerprints(pa.array([None, 0, 1], pa.int64())))) == 3


def test_columns_count_in_their_order() -> None:
    left, right = pa.array([1, 2, 1, None]), pa.array([2, 1, 1, 1])
    assert len(set(fingerprints(left, right))) == 4


def test_only_long_values_that_differ_in_the_middle_share_a_fingerprint() -> None:
    start, end = b"s" * 120, b"e" * 8
    assert len(set(of_bytes(start + b"1" + end, start + b"2" + end))) == 1
    assert len(set(of_bytes(start + b"1", start + b"2", start))) == 3


def test_fingerprints_stay_what_they_are() -> None:
    """They are stored: another function needs another version of the key index."""
    numbers = fingerprints(pa.array([0, 1, -1, None], pa.int64()))
    assert numbers == [892130947, 1864102973, 4030103405, 1237503602]
    strings = of_bytes(b"", b"a", b"12345678", b"123456789", None)
    assert strings == [892130947, 1056493398, 4055879030, 3114905208, 1237503602]
