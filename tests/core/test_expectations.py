"""Expectations: what callers may pass, and what a batch that violates them is refused with."""

from __future__ import annotations

import pickle
from datetime import date
from typing import Any

import pytest

from fsspeckit.core.expectations import (
    QUARANTINE_COLUMNS,
    Expectation,
    Violations,
    check_columns_are_free,
    parse_expectations,
)
from fsspeckit.errors import ExpectationError, InvalidArgumentError

PREDICATE = "amount >= 0"


def test_a_predicate_has_the_common_action_or_its_own() -> None:
    found = parse_expectations(
        {"amount": PREDICATE, "id": ("id IS NOT NULL", "fail"), "day": ["day > '2020'", "drop"]},
        "quarantine",
    )
    assert [each.action for each in found] == ["quarantine", "fail", "drop"]
    assert found[0] == Expectation("amount", PREDICATE, "quarantine")


def test_without_expectations_there_are_none() -> None:
    assert parse_expectations(None) == parse_expectations({}) == ()


@pytest.mark.parametrize(
    ("expect", "words"),
    [
        ("amount >= 0", "must be a mapping of names to predicates"),
        ([PREDICATE], "must be a mapping of names to predicates"),
        ({"": PREDICATE}, "1 to 200 printable characters"),
        ({"x" * 201: PREDICATE}, "1 to 200 printable characters"),
        ({"two\nlines": PREDICATE}, "1 to 200 printable characters"),
        ({7: PREDICATE}, "1 to 200 printable characters"),
        ({"amount": " "}, "must be a condition as SQL text"),
        ({"amount": None}, "must be a condition as SQL text"),
        ({"amount": (PREDICATE,)}, "a pair of a predicate and an action"),
        ({"amount": (PREDICATE, "ignore")}, "the action of the expectation 'amount' must be one"),
    ],
)
def test_wrong_expectations_are_refused(expect: Any, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        parse_expectations(expect)


def test_an_unknown_action_is_refused_even_without_expectations() -> None:
    with pytest.raises(InvalidArgumentError, match="on_violation must be one of 'warn', 'drop'"):
        parse_expectations(None, "ignore")  # type: ignore[arg-type]


def test_a_source_must_not_have_columns_of_the_quarantine() -> None:
    check_columns_are_free(["id", "reasons"])
    with pytest.raises(InvalidArgumentError, match=r"\['quarantine_batch'\].*\n.*rename"):
        check_columns_are_free(["id", "quarantine_batch"])


def test_the_columns_of_the_quarantine_are_named_alike() -> None:
    assert all(name.startswith("quarantine_") for name in QUARANTINE_COLUMNS.names)


def test_a_violation_fails_only_where_it_should() -> None:
    expectations = parse_expectations({"a": PREDICATE, "b": (PREDICATE, "drop")}, "warn")
    Violations({"a": 3, "b": 3}).check(expectations, [])


def test_the_error_has_names_counts_predicates_and_samples() -> None:
    expectations = parse_expectations(
        {"a": PREDICATE, "b": "id > 0", "c": ("id > 1", "warn")}, "fail"
    )
    samples = [{"id": n, "day": date(2024, 1, n), "text": "x" * 300} for n in (1, 2, 3, 4)]
    with pytest.raises(ExpectationError) as caught:
        Violations({"a": 1200, "b": 0, "c": 9}).check(expectations, samples)
    error = caught.value
    assert "1,200 row(s) violate 'a' (amount >= 0), for example: {id: 1, day: datetime" in str(
        error
    )
    assert "Nothing was changed.\nHint: correct the rows" in str(error)
    assert len(str(error)) < 1000
    assert error.counts == {"a": 1200}
    assert error.samples == tuple(samples[:3])
    assert isinstance(error, ValueError)


def test_expectations_can_be_pickled() -> None:
    expectations = parse_expectations({"a": PREDICATE}, "fail")
    assert pickle.loads(pickle.dumps(expectations)) == expectations


@pytest.mark.parametrize("name", ["quarantine_batch", "Quarantine_Batch"])
def test_a_column_of_the_quarantine_is_refused_however_it_is_spelled(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=name):
        check_columns_are_free(["id", name])


def test_an_action_without_expectations_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="on_violation 'fail' has no use without"):
        parse_expectations(None, "fail")
