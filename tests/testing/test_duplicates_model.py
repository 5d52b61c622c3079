"""The model of duplicates, by examples that can be checked by eye."""

from __future__ import annotations

from typing import Any

import pytest

from fsspeckit.errors import DuplicateRowsError
from fsspeckit.testing.duplicates_model import remaining_rows

NAN = float("nan")
ROWS: list[dict[str, Any]] = [
    {"k": 1, "o": 1},
    {"k": 1, "o": 2},
    {"k": None, "o": 1},
    {"k": None, "o": 1},
    {"k": 1, "o": 2},
]


@pytest.mark.parametrize(
    ("keys", "options", "expected"),
    [
        (None, {}, [0, 1, 2]),
        (None, {"keep": "last"}, [0, 3, 4]),
        (["k"], {"order_by": ["o"]}, [2, 3, 4]),
        (["k"], {"order_by": ["o"], "keep": "first"}, [1, 2, 3]),
        (["k"], {"order_by": ["o"], "null_keys": "match"}, [3, 4]),
        (["k"], {"keep": "first"}, [0, 2, 3]),
        (["o", "k"], {}, [0, 1, 2, 3]),
        (["o", "k"], {"null_keys": "match"}, [0, 1, 2]),
    ],
)
def test_which_rows_stay(
    keys: list[str] | None, options: dict[str, Any], expected: list[int]
) -> None:
    assert remaining_rows(ROWS, keys, **options) == expected


def test_rows_that_differ_are_refused() -> None:
    with pytest.raises(DuplicateRowsError, match="2 row"):
        remaining_rows(ROWS, ["k"])


def test_values_are_compared_as_keys_are() -> None:
    rows: list[dict[str, Any]] = [{"v": [NAN, 0.0]}, {"v": [NAN, -0.0]}, {"v": [0]}]
    assert remaining_rows(rows, None) == [0, 2]
