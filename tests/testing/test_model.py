from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fsspeckit import errors, testing
from fsspeckit.testing.model import merge_rows

if TYPE_CHECKING:
    from fsspeckit.testing.model_source import Row

NAN = float("nan")
OTHER_NAN = float("inf") - float("inf")


def rows(text: str) -> list[Row]:
    """``"1a 2b -c"``: rows with the key before the value; ``-`` is a NULL key."""
    return [{"k": None if word[0] == "-" else word[0], "v": word[1:]} for word in text.split()]


def text_of(result: list[Row]) -> str:
    return " ".join(f"{'-' if row['k'] is None else row['k']}{row['v']}" for row in result)


# target, source, strategy, options, rows after, (inserted, updated, deleted)
CASES: list[tuple[str, str, str, dict[str, Any], str, tuple[int, int, int]]] = [
    # each strategy on keys known and unknown
    ("1a 2b", "2x 3y", "insert", {}, "1a 2b 3y", (1, 0, 0)),
    ("1a 2b", "2x 3y", "update", {}, "1a 2x", (0, 1, 0)),
    ("1a 2b", "2x 3y", "upsert", {}, "1a 2x 3y", (1, 1, 0)),
    ("1a 2b", "2x 3y", "full_merge", {}, "2x 3y", (1, 1, 1)),
    ("1a 2b", "2x 3y", "deduplicate", {}, "1a 2x 3y", (1, 1, 0)),
    # replaced in place, the order of the target is kept
    ("3c 2b 1a", "1x 3y", "update", {}, "3y 2b 1x", (0, 2, 0)),
    # updated counts matched rows, whether or not their values differ
    ("1a 2b", "1a 2b", "upsert", {}, "1a 2b", (0, 2, 0)),
    # every one of several target rows is replaced, none collapses
    ("1a 1b 2c", "1x", "update", {}, "1x 1x 2c", (0, 2, 0)),
    ("1a 1b 2c", "1x", "upsert", {}, "1x 1x 2c", (0, 2, 0)),
    ("1a 1b 2c", "1x", "insert", {}, "1a 1b 2c", (0, 0, 0)),
    ("1a 1b 2c", "1x", "full_merge", {}, "1x 1x", (0, 2, 1)),
    # NULL keys of the target are rows like any other, except for full_merge
    ("-a 1b", "1x", "update", {}, "-a 1x", (0, 1, 0)),
    ("-a 1b", "2x", "insert", {}, "-a 1b 2x", (1, 0, 0)),
    ("-a 1b", "1x", "full_merge", {}, "1x", (0, 1, 1)),
    # null_keys="match"
    ("-a -b 1c", "-x", "upsert", {"null_keys": "match"}, "-x -x 1c", (0, 2, 0)),
    ("1c", "-x", "upsert", {"null_keys": "match"}, "1c -x", (1, 0, 0)),
    ("-a 1c", "-x", "full_merge", {"null_keys": "match"}, "-x", (0, 1, 1)),
    # duplicates of the source
    ("1a", "1x 1y", "upsert", {"duplicate_keys": "first"}, "1x", (0, 1, 0)),
    ("1a", "1x 1y", "upsert", {"duplicate_keys": "last"}, "1y", (0, 1, 0)),
    ("1a", "2x 2y", "insert", {"duplicate_keys": "first"}, "1a 2x", (1, 0, 0)),
    ("1a", "1x 1z 1y", "update", {"order_by": ["v"]}, "1z", (0, 1, 0)),
    ("1a", "1x 1z 1y", "update", {"order_by": ["v"], "duplicate_keys": "first"}, "1z", (0, 1, 0)),
    ("1a", "1x 1y", "deduplicate", {}, "1y", (0, 1, 0)),
    ("1a", "1x 1y", "deduplicate", {"duplicate_keys": "first"}, "1x", (0, 1, 0)),
    ("1a", "2z 2y 1x", "deduplicate", {"order_by": ["v"]}, "1x 2z", (1, 1, 0)),
    # empty sources and targets
    ("1a", "", "insert", {}, "1a", (0, 0, 0)),
    ("1a", "", "update", {}, "1a", (0, 0, 0)),
    ("1a", "", "upsert", {}, "1a", (0, 0, 0)),
    ("1a", "", "deduplicate", {}, "1a", (0, 0, 0)),
    ("1a -b", "", "full_merge", {"allow_empty": True}, "", (0, 0, 2)),
    ("", "1a", "update", {}, "", (0, 0, 0)),
    ("", "1a", "full_merge", {}, "1a", (1, 0, 0)),
]


@pytest.mark.parametrize(("target", "source", "strategy", "options", "after", "counts"), CASES)
def test_merge(
    target: str,
    source: str,
    strategy: str,
    options: dict[str, Any],
    after: str,
    counts: tuple[int, int, int],
) -> None:
    result = merge_rows(rows(target), rows(source), strategy, ["k"], **options)
    assert text_of(result.rows) == after
    assert (result.inserted, result.updated, result.deleted) == counts


@pytest.mark.parametrize("strategy", ["insert", "upsert", "full_merge", "deduplicate"])
def test_a_missing_target_is_created(strategy: str) -> None:
    assert text_of(merge_rows(None, rows("1a 2b"), strategy, ["k"]).rows) == "1a 2b"


MATCH = {"null_keys": "match"}
REFUSED: list[tuple[str | None, str, str, dict[str, Any], type[Exception], str]] = [
    (None, "1a", "update", {}, errors.InvalidArgumentError, "non-existent target"),
    ("1a", "", "full_merge", {}, errors.InvalidArgumentError, "empty source"),
    (None, "", "full_merge", {}, errors.InvalidArgumentError, "empty source"),
    ("1a", "-x 1b -y", "upsert", {}, errors.NullKeyError, "'k' has 2"),
    ("1a", "-x", "insert", {}, errors.NullKeyError, "'k' has 1"),
    ("1a", "-x", "deduplicate", {}, errors.NullKeyError, "'k' has 1"),
    ("1a", "1x 1y 2z", "upsert", {}, errors.DuplicateKeyError, "1 key"),
    ("1a", "7x 7x", "insert", {}, errors.DuplicateKeyError, "'7'"),
    ("1a", "-x -y", "upsert", MATCH, errors.DuplicateKeyError, "None"),
]


@pytest.mark.parametrize(("target", "source", "strategy", "options", "error", "words"), REFUSED)
def test_refused(
    target: str | None,
    source: str,
    strategy: str,
    options: dict[str, Any],
    error: type[Exception],
    words: str,
) -> None:
    with pytest.raises(error, match=words):
        merge_rows(
            None if target is None else rows(target), rows(source), strategy, ["k"], **options
        )


# key of the target, key of the source, do they match?
@pytest.mark.parametrize(
    ("target", "source", "matched"),
    [(NAN, OTHER_NAN, 1), (NAN, 1.0, 0), (-0.0, 0.0, 1), (0.0, -0.0, 1), (1.0, -1.0, 0)],
)
def test_equality_of_floats(target: float, source: float, matched: int) -> None:
    result = merge_rows([{"k": target}], [{"k": source}], "upsert", ["k"])
    assert (result.updated, result.inserted) == (matched, 1 - matched)


@pytest.mark.parametrize(
    ("first", "second", "wins"),
    [
        ((1, 2), (1, 1), 0),
        ((1, 2), (2, 1), 1),
        ((None, 9), (1, 1), 1),
        ((1, None), (1, None), 1),
        ((1, NAN), (1, float("inf")), 0),
    ],
)
def test_the_greatest_wins_and_the_later_of_equals(
    first: tuple[Any, Any], second: tuple[Any, Any], wins: int
) -> None:
    source = [
        {"k": 1, "a": a, "b": b, "which": which} for which, (a, b) in enumerate((first, second))
    ]
    (row,) = merge_rows([], source, "upsert", ["k"], order_by=["a", "b"]).rows
    assert row["which"] == wins


def test_all_columns_of_a_composite_key_must_agree() -> None:
    target: list[Row] = [{"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": None, "b": 2}]
    result = merge_rows(target, [{"a": 1, "b": 2}, {"a": 2, "b": 1}], "upsert", ["a", "b"])
    assert (result.inserted, result.updated) == (1, 1)


PARTITIONED: list[Row] = [{"k": 1, "p": "a"}, {"k": 2, "p": None}]


@pytest.mark.parametrize("strategy", ["update", "upsert", "full_merge", "deduplicate"])
@pytest.mark.parametrize("moved", [{"k": 1, "p": "b"}, {"k": 1, "p": None}, {"k": 2, "p": "a"}])
def test_an_existing_key_cannot_change_its_partition(strategy: str, moved: Row) -> None:
    with pytest.raises(errors.PartitionMoveError, match="cannot change for existing keys"):
        merge_rows(PARTITIONED, [moved], strategy, ["k"], partition_columns=["p"])


@pytest.mark.parametrize("strategy", ["update", "upsert", "full_merge", "deduplicate"])
def test_a_row_moves_to_another_partition_if_asked_for(strategy: str) -> None:
    target: list[Row] = [*PARTITIONED, {"k": 1, "p": "b"}, {"k": 1, "p": None}]
    result = merge_rows(
        target,
        [{"k": 1, "p": "b"}],
        strategy,
        ["k"],
        partition_columns=["p"],
        partition_change="move",
    )
    assert (result.updated, result.moved, result.inserted) == (3, 2, 0)
    others = [] if strategy == "full_merge" else [{"k": 2, "p": None}]
    assert result.rows == [*others, *[{"k": 1, "p": "b"}] * 3]


def test_what_does_not_move_is_accepted() -> None:
    source: list[Row] = [{"k": 2, "p": None}, {"k": 3, "p": "c"}]
    result = merge_rows(PARTITIONED, source, "upsert", ["k"], partition_columns=["p"])
    assert (result.inserted, result.updated) == (1, 1)


def test_an_insert_skips_a_key_of_another_partition() -> None:
    result = merge_rows(PARTITIONED, [{"k": 1, "p": "b"}], "insert", ["k"], partition_columns=["p"])
    assert result.rows == PARTITIONED


def test_partition_columns_in_the_key_make_another_key() -> None:
    source = [{"k": 1, "p": "b"}]
    result = merge_rows(PARTITIONED, source, "upsert", ["k", "p"], partition_columns=["p"])
    assert result.inserted == 1


def test_an_empty_string_is_not_a_partition_value() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="empty string"):
        merge_rows([], [{"k": 1, "p": ""}], "upsert", ["k"], partition_columns=["p"])


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(KeyError):
        merge_rows([], [], "replace", ["k"])


def test_inputs_are_left_alone() -> None:
    target, source = rows("1a 2b"), rows("2x 2y 3z")
    merge_rows(target, source, "full_merge", ["k"], order_by=["v"])
    assert (target, source) == (rows("1a 2b"), rows("2x 2y 3z"))


def test_the_model_stays_short_enough_to_be_checked_by_eye() -> None:
    for module in ("model", "model_source"):
        path = Path(testing.__path__[0], f"{module}.py")
        assert len(path.read_text().splitlines()) < 100
