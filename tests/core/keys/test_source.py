"""What must hold of a source before anything is written."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsspeckit.core.incremental import (
    validate_no_null_keys,
    validate_partition_column_immutability,
)
from fsspeckit.errors import (
    InvalidArgumentError,
    NullKeyError,
    PartitionMoveError,
    SchemaMismatchError,
)
from fsspeckit.testing.model import merge_rows
from fsspeckit.testing.strategies import COLUMN_NAMES

DICTIONARY_NULL = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None]))


def test_keys_without_null_pass() -> None:
    source = pa.table({"id": [1, 2], "c": ["", "x"], "v": [None, 1]})
    validate_no_null_keys(source, ["id"])
    validate_no_null_keys(source, ("id", "c"))
    validate_no_null_keys(source.slice(0, 0), ["id"])
    validate_no_null_keys(pa.table({"f": [math.nan]}), ["f"])  # NaN is a value


@pytest.mark.parametrize(
    ("column", "count"),
    [
        (pa.array([1, None, None]), 2),
        (pa.chunked_array([[None], [1, None], [1]], pa.int64()), 2),
        (pa.nulls(3), 3),
        (pa.array(["a", None]).dictionary_encode(), 1),
        (pa.array([None, "a", None], pa.string_view()), 2),
        (pa.array([None, b"a" * 16], pa.uuid()), 1),
        (DICTIONARY_NULL, 1),
    ],
)
def test_null_keys_are_refused_with_column_and_count(column: Any, count: int) -> None:
    with pytest.raises(NullKeyError, match=f"'id' has {count}") as caught:
        validate_no_null_keys(pa.table({"id": column}), ["id"])
    assert isinstance(caught.value, ValueError)
    assert "Hint:" in str(caught.value)


def test_a_null_that_only_the_dictionary_holds_is_a_null_key() -> None:
    assert DICTIONARY_NULL.null_count == 0  # why counting in the array is not enough
    with pytest.raises(NullKeyError, match="'id' has 1"):
        validate_no_null_keys(pa.table({"id": DICTIONARY_NULL}), ["id"])


def test_every_key_column_with_null_is_named() -> None:
    source = pa.table({"a": [1, None], "b": [1, 2], "c": pa.nulls(2)})
    with pytest.raises(NullKeyError, match="'a' has 1, 'c' has 2"):
        validate_no_null_keys(source, ["a", "b", "c"])


@pytest.mark.parametrize("name", COLUMN_NAMES)
def test_columns_may_have_odd_names(name: str) -> None:
    source = pa.table({name: [1, None]})
    with pytest.raises(NullKeyError) as caught:
        validate_no_null_keys(source, [name])
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (b"id", r"got the string b'id'.\nHint: pass"),
        ("nope", r"\['nope'\] not found"),
        ([], "must name at least one column"),
        (None, "must name at least one column"),
        (["id", "id"], "must name each column once"),
        (["nope"], r"\['nope'\] not found. Available columns: \['id', 'v', 'V'\]"),
        (["ID"], r"\['ID'\] not found"),
        (["v"], "'v' is ambiguous"),
        ([1], "must be strings, got 1"),
    ],
)
def test_wrong_key_columns_are_refused(columns: Any, message: str) -> None:
    table = pa.table({"id": [1], "v": [1], "V": [1]})
    with pytest.raises(InvalidArgumentError, match=message):
        validate_no_null_keys(table, columns)
    with pytest.raises(InvalidArgumentError, match=message):
        validate_partition_column_immutability(table, table, columns, ["id"])


def table(*rows: tuple[Any, Any]) -> pa.Table:
    return pa.table({"id": [row[0] for row in rows], "day": [row[1] for row in rows]})


def check(source: pa.Table, target: pa.Table) -> None:
    validate_partition_column_immutability(source, target, ["id"], ["day"])


def test_keys_that_stay_in_their_partition_pass() -> None:
    check(table((1, "d1"), (2, "d2")), table((2, "d2"), (1, "d1"), (3, "d9")))
    check(table((9, "d2")), table((1, "d1")))  # an unknown key may be anywhere
    check(table((1, None)), table((1, None)))
    check(table((1, "d1")), table((1, "d1")).slice(0, 0))
    check(table((1, "d1")).slice(0, 0), table((1, "d1")))


def test_reject_partition_movement_on_update() -> None:
    with pytest.raises(ValueError, match="partition columns cannot change for existing keys"):
        check(table((1, "2025-01-02")), table((1, "2025-01-01")))


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (table((1, "d2")), table((1, None))),
        (table((1, None)), table((1, "d2"))),
        # several rows with one key, on either side
        (table((1, "d1"), (1, "d2")), table((1, "d1"))),
        (table((1, "d2"), (1, "d1")), table((1, "d1"))),
        (table((1, "d1")), table((1, "d1"), (1, "d2"))),
    ],
)
def test_a_key_that_would_move_is_refused(source: pa.Table, target: pa.Table) -> None:
    with pytest.raises(PartitionMoveError, match=r"1 key\(s\).*\['day'\].*for example: 1"):
        check(source, target)


def test_a_later_source_row_with_the_key_that_moves_is_not_overlooked() -> None:
    with pytest.raises(PartitionMoveError):
        check(table((1, "d1"), (1, "d2")), table((1, "d1")))


def test_the_refusal_counts_keys_and_shows_up_to_five() -> None:
    source = table(*((key, "d2") for key in range(9)))
    target = table(*((key, "d1") for key in range(7)), (0, "d1"))
    with pytest.raises(PartitionMoveError) as caught:
        check(source, target)
    message = str(caught.value)
    assert "7 key(s)" in message
    assert "for example: 0, 1, 2, 3, 4.\n" in message
    assert "Hint:" in message


def test_values_are_compared_and_not_their_types() -> None:
    source = pa.table({"id": pa.array([7], pa.int8()), "f": [0.0], "s": ["x"]})
    target = pa.table(
        {
            "id": pa.array([7], pa.uint64()),
            "f": pa.array([-0.0], pa.float32()),
            "s": pa.array(["x"]).dictionary_encode(),
        }
    )
    validate_partition_column_immutability(source, target, ["id"], ["f", "s"])


def test_partition_columns_of_two_kinds_are_a_schema_mismatch() -> None:
    with pytest.raises(SchemaMismatchError, match="never equal"):
        check(table((1, "1")), table((1, 1)))


def test_composite_keys_and_several_partition_columns() -> None:
    source = pa.table({"a": [1, 1], "b": ["x", "y"], "p": [1, 1], "q": [1, 2]})
    target = pa.table({"a": [1, 1], "b": ["y", "x"], "p": [1, 1], "q": [2, 9]})
    with pytest.raises(PartitionMoveError, match=r"1 key\(s\).*for example: \(1, 'x'\)"):
        validate_partition_column_immutability(source, target, ["a", "b"], ["p", "q"])
    validate_partition_column_immutability(source, target, ["a", "b"], ["p"])


def test_without_partition_columns_nothing_can_move() -> None:
    validate_partition_column_immutability(table((1, "d1")), table((1, "d2")), ["id"], [])


def test_a_missing_partition_column_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"partition_columns \['nope'\] not found"):
        validate_partition_column_immutability(table((1, 1)), table((1, 1)), ["id"], ["nope"])


ROWS = st.lists(
    st.fixed_dictionaries({"id": st.integers(0, 3), "day": st.sampled_from(["a", "b", None])}),
    max_size=5,
)


@given(ROWS, ROWS)
def test_moves_are_those_of_the_model(
    source: list[dict[str, Any]], target: list[dict[str, Any]]
) -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.string())])
    moves = [row for row in source for old in target if row["id"] == old["id"]]
    moved = any(
        row["day"] != old["day"] for row in moves for old in target if row["id"] == old["id"]
    )
    sides = (pa.Table.from_pylist(rows, schema) for rows in (source, target))
    if moved:
        with pytest.raises(PartitionMoveError):
            check(*sides)
    else:
        check(*sides)
        unique = list({row["id"]: row for row in source}.values())
        merge_rows(target, unique, "update", ["id"], partition_columns=["day"])  # raises nothing
