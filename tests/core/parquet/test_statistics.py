"""Statistics of a chunk in which values were replaced, from those of the values alone."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.parquet.format.layout import Column, columns_of, parse_layout, read_footer
from fsspeckit.core.parquet.format.thrift import BINARY, TRUE, Struct, encode
from fsspeckit.core.parquet.patch.chunk import UnknownBoundError, replaced_statistics


def _written(values: pa.Array) -> tuple[Column, bytes | None]:
    """How a writer describes a column of these values."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": values}), sink)
    data: bytes = sink.getvalue().to_pybytes()

    def read(start: int, length: int) -> bytes:
        return data[start : start + length]

    layout = parse_layout(read_footer(read, len(data)), len(data), read)
    chunk = layout.groups[0].chunks[0]
    return columns_of(layout.elements)[0], chunk.metadata.raw.get(12)


def _replaced(data_type: pa.DataType, kept: list[Any], gone: list[Any], come: list[Any]) -> Any:
    column, before = _written(pa.array(kept + gone, data_type))
    _, went = _written(pa.array(gone, data_type))
    _, new = _written(pa.array(come, data_type))
    return replaced_statistics(column, before, went, new, len(kept + gone), len(gone))


def _expected(data_type: pa.DataType, values: list[Any]) -> bytes | None:
    return _written(pa.array(values, data_type))[1]


TYPES = {
    "signed": (pa.int32(), -5, 0, 7),
    "unsigned": (pa.uint32(), 1, 9, 2**32 - 1),
    "wide and unsigned": (pa.uint64(), 1, 9, 2**64 - 1),
    "float": (pa.float32(), -5.5, -0.0, 7.5),
    "double": (pa.float64(), -5.5, 0.0, 7.5),
    "string": (pa.string(), "a", "b", "ä"),
    "binary": (pa.binary(), b"\x00", b"\x7f", b"\xff"),
    "fixed": (pa.binary(2), b"\x00a", b"\x7fa", b"\xffa"),
    "timestamp": (pa.timestamp("us"), -10, 0, 10),
    "decimal": (pa.decimal128(9, 2), -1, 0, 1),
}


@pytest.mark.parametrize("kind", [name for name in TYPES if name != "decimal"])
def test_bounds_follow_the_values(kind: str) -> None:
    data_type, low, middle, high = TYPES[kind]
    for kept, gone, come in (
        ([low, high, None], [middle], [middle]),
        ([low, high], [middle], [None]),
        ([low, high], [None], [middle]),
        ([middle], [None], [low]),
        ([middle], [None], [high]),
        ([None], [None], [middle]),
        ([None], [None], [None]),
        ([middle, high], [low], [low]),
    ):
        found = _replaced(data_type, kept, gone, come)
        assert encode(found) == _expected(data_type, kept + come), (kept, gone, come)


@pytest.mark.parametrize("kind", [name for name in TYPES if name != "decimal"])
def test_a_bound_that_goes_is_not_known_any_more(kind: str) -> None:
    data_type, low, middle, high = TYPES[kind]
    for gone in (low, high):
        with pytest.raises(UnknownBoundError):
            _replaced(data_type, [middle], [gone], [middle])


def test_booleans() -> None:
    assert encode(_replaced(pa.bool_(), [True], [None], [False])) == _expected(
        pa.bool_(), [True, False]
    )
    with pytest.raises(UnknownBoundError):
        _replaced(pa.bool_(), [True, False], [False], [True])


def test_orders_that_are_not_known() -> None:
    data_type, low, middle, high = TYPES["decimal"]
    with pytest.raises(UnknownBoundError):
        _replaced(data_type, [low, high], [middle], [middle])


def test_values_without_bounds() -> None:
    nan, long = float("nan"), "x" * 10_000
    for kind, value, other in ((pa.float64(), nan, 1.0), (pa.string(), long, "y")):
        with pytest.raises(UnknownBoundError):
            _replaced(kind, [other], [other], [value])
        with pytest.raises(UnknownBoundError):
            _replaced(kind, [other], [value], [other])


def test_no_statistics_stay_none() -> None:
    column, some = _written(pa.array([1]))
    assert replaced_statistics(column, None, some, some, 5, 1) is None


def test_bounds_of_old_writers_are_not_trusted() -> None:
    column, some = _written(pa.array([1]))
    old = encode(Struct({1: b"\1", 2: b"\1"}, {}, {1: BINARY, 2: BINARY}))
    with pytest.raises(UnknownBoundError):
        replaced_statistics(column, old, some, some, 5, 1)


@pytest.mark.parametrize(("come", "exact"), [("b", False), ("z", True)])
def test_a_bound_that_was_cut_says_so_while_it_stays(come: str, exact: bool) -> None:
    column, _ = _written(pa.array(["a"]))
    kinds = {5: BINARY, 6: BINARY, 7: TRUE, 8: TRUE}
    before = encode(Struct({5: b"y", 6: b"a", 7: False, 8: True}, {}, kinds))
    (_, went), (_, new) = _written(pa.array(["c"])), _written(pa.array([come]))
    found = replaced_statistics(column, before, went, new, 5, 1)
    assert found is not None
    assert (found.values[5], found.values[7]) == ((b"z", True) if exact else (b"y", False))
    assert (found.values[6], found.values[8]) == (b"a", True)


def test_a_bound_of_the_wrong_length_is_not_a_number() -> None:
    column, some = _written(pa.array([1.5]))
    broken = encode(Struct({5: b"1234", 6: b"1234"}, {}, {5: BINARY, 6: BINARY}))
    with pytest.raises(UnknownBoundError):
        replaced_statistics(column, broken, some, some, 5, 1)


def test_a_wrong_number_of_nulls_is_not_made_worse() -> None:
    column, before = _written(pa.array([1, 2, 3]))
    (_, went), (_, new) = _written(pa.array([None], pa.int64())), _written(pa.array([2]))
    with pytest.raises(UnknownBoundError):
        replaced_statistics(column, before, went, new, 3, 1)
