"""Schemas of different writers, compared by what they mean."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.core.parquet.altered import layout_of

from fsspeckit.core.parquet.format.layout import CannotSpliceError, Column, columns_of
from fsspeckit.core.parquet.format.thrift import BINARY, I32, STRUCT, Struct, encode
from fsspeckit.testing.writers import WRITERS

if TYPE_CHECKING:
    from pathlib import Path

TABLE = pa.table(
    {
        "i": pa.array([1], pa.int64()),
        "j": pa.array([1], pa.int32()),
        "u": pa.array([1], pa.uint8()),
        "s": ["x"],
        "d": pa.array([Decimal("1.5")], pa.decimal128(9, 2)),
        "t": pa.array([1], pa.timestamp("us", "UTC")),
        "day": pa.array([1], pa.date32()),
        "l": [[1]],
        "n": [{"a": 1, "b": [{"c": "x"}]}],
    }
)


def _columns(path: Path) -> list[Column]:
    return columns_of(layout_of(path).elements)


@pytest.mark.parametrize("writer", ["duckdb", "polars"])
def test_two_writers_mean_the_same(tmp_path: Path, writer: str) -> None:
    one, other = tmp_path / "one.parquet", tmp_path / "other.parquet"
    pq.write_table(TABLE, one, store_decimal_as_integer=True)
    WRITERS[writer](TABLE, str(other))
    names = {column.name: column.meaning for column in _columns(one)}
    found = {column.name: column.meaning for column in _columns(other)}
    alike = {name for name in names if names[name] == found[name]}
    assert alike >= {"i", "j", "u", "s", "d", "t", "day"}


def test_the_names_of_columns_do_not_tell_their_types(tmp_path: Path) -> None:
    one, other = tmp_path / "one.parquet", tmp_path / "other.parquet"
    pq.write_table(pa.table({"x": pa.array([1], pa.timestamp("us", "UTC"))}), one)
    for kind in (pa.timestamp("us"), pa.timestamp("ms", "UTC"), pa.int64(), pa.time64("us")):
        pq.write_table(pa.table({"x": pa.array([1], kind)}), other)
        assert _columns(one)[0].meaning != _columns(other)[0].meaning


def test_leaves_have_their_numbers_and_full_names(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(TABLE, path)
    columns = _columns(path)
    assert columns[-1].paths == ("n.a", "n.b.list.element.c")
    assert [column.numbers for column in columns][-2:] == [range(7, 8), range(8, 10)]
    assert columns[-1].first_element == 11


def _element(name: bytes, converted: int | None = None, **more: Any) -> bytes:
    values = {1: more.get("type", 2), 3: 1, 4: name}
    kinds = {1: I32, 3: I32, 4: BINARY}
    if "children" in more:
        values[5], kinds[5] = more["children"], I32
        del values[1], kinds[1]
    if converted is not None:
        values[6], kinds[6] = converted, I32
    for number in (7, 8):
        if str(number) in more:
            values[number], kinds[number] = more[str(number)], I32
    if "logical" in more:
        values[10], kinds[10] = more["logical"], STRUCT
    return encode(Struct(values, {}, kinds))


def _meaning(element: bytes) -> object:
    return columns_of([_element(b"root", children=1), element])[0].meaning[0][-1]


def _union(number: int, inside: Struct | None = None) -> Struct:
    return Struct({number: inside or Struct()}, {}, {number: STRUCT})


@pytest.mark.parametrize(
    ("converted", "logical"),
    [
        (0, _union(1)),
        (6, _union(6)),
        (10, _union(8, Struct({1: True, 2: _union(2)}, {}, {1: 1, 2: STRUCT}))),
        (18, _union(10, Struct({1: 64, 2: True}, {}, {1: 3, 2: 1}))),
        (11, _union(10, Struct({1: 8, 2: False}, {}, {1: 3, 2: 2}))),
    ],
)
def test_old_and_new_annotations_mean_the_same(converted: int, logical: Struct) -> None:
    assert _meaning(_element(b"x", converted)) == _meaning(_element(b"x", logical=logical))


def test_annotations_that_are_not_known_differ() -> None:
    known = {repr(_meaning(_element(b"x", number))) for number in (None, 4, 19, 20, 21, 77, 78)}
    assert len(known) == 7
    decimals = [_element(b"x", 5, **{"7": scale, "8": 9}) for scale in (1, 2)]
    assert _meaning(decimals[0]) != _meaning(decimals[1])
    unions = [_meaning(_element(b"x", logical=_union(n))) for n in (15, 16, 40)]
    assert len(set(map(repr, unions))) == 3


def test_a_logical_type_with_parameters_nobody_knows_is_compared_by_them() -> None:
    inside = [Struct({1: n}, {}, {1: I32}) for n in (1, 2)]
    found = [_meaning(_element(b"x", logical=_union(16, one))) for one in inside]
    assert found[0] != found[1]


ROOT = _element(b"root", children=2)


@pytest.mark.parametrize(
    "elements",
    [
        [],
        [ROOT, _element(b"a")],
        [ROOT, _element(b"a"), _element(b"b"), _element(b"c")],
        [ROOT, _element(b"a"), b"\xff"],
        [ROOT, _element(b"a"), _element(b"\xff")],
        [ROOT, _element(b"a"), _element(b"a")],
        [_element(b"root"), _element(b"a")],
        [ROOT, _element(b"a", children=1), _element(b"b")],
    ],
)
def test_what_is_not_a_schema_is_refused(elements: list[bytes]) -> None:
    with pytest.raises(CannotSpliceError):
        columns_of(elements)
