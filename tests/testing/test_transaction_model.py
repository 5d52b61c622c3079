"""The model of transactions, step by step."""

from __future__ import annotations

import pytest

from fsspeckit.errors import TransactionResetError
from fsspeckit.storage import Transaction
from fsspeckit.testing.transaction_model import ModelDataset

# application, version and run of each step; what becomes of the last one
STEPS = [
    ([("a", 1, None), ("a", 2, None)], "applied"),
    ([("a", 2, None), ("a", 2, None)], "repeated"),
    ([("a", 2, None), ("a", 1, None)], "skipped"),
    ([("a", 2, None), ("b", 2, None)], "applied"),
    ([("a", 10, None), ("a", 0, None)], "refused"),
    ([("a", 9, None), ("a", 0, None)], "skipped"),
    ([("a", 2, "x"), ("a", 2, "y")], "refused"),
    ([("a", 2, "x"), ("a", 3, "y")], "applied"),
    ([("a", 2, "x"), ("a", 1, "x")], "skipped"),
]


@pytest.mark.parametrize(("steps", "expected"), STEPS)
def test_steps(steps: list[tuple[str, int, str | None]], expected: str) -> None:
    dataset = ModelDataset()
    *before, last = [Transaction(*step) for step in steps]
    for number, batch in enumerate(before):
        assert dataset.merge([{"id": number}], "upsert", ["id"], batch) == (1, 0, 0)
    try:
        counts = dataset.merge([{"id": 8}, {"id": 9}], "upsert", ["id"], last)
    except TransactionResetError:
        counts = (-1, -1, -1)
    outcomes = {"applied": (2, 0, 0), "repeated": (1, 0, 0), "skipped": (0, 0, 0)}
    assert counts == outcomes.get(expected, (-1, -1, -1))
    assert len(dataset.rows) == len(before) + 2 * (expected == "applied")
