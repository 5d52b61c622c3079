"""The model of change feeds: by hand, and against what a whole feed amounts to."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsspeckit.testing.feed_model import END, START, ModelFeed, feed_rows

NAN = float("nan")


def event(text: str) -> dict[str, Any]:
    """An event as ``k1+a``, ``k3-``: key, sequence, and a value unless it deletes."""
    key, at, deletes = text[0], int(text[1]), text[2] == "-"
    return {"k": key, "at": at, "v": text[3:] or None, "gone": deletes}


def batches(text: str) -> list[list[dict[str, Any]]]:
    return [[event(one) for one in batch.split()] for batch in text.split("|")]


def told(rows: list[Any] | None) -> str:
    """Rows as ``k1a``, versions as ``k1..3a``."""
    return " ".join(
        sorted(
            f"{row['k']}{row['at']}{row['v']}"
            if START not in row
            else f"{row['k']}{row[START]}..{row[END] or ''}{row['v']}"
            for row in rows or ()
        )
    )


# Batches, the rows after them, and of the last: inserted, updated, deleted, late, not found.
ROWS = [
    ("k1+a", "k1a", (1, 0, 0, 0, 0)),
    ("k1+a|k2+b", "k2b", (0, 1, 0, 0, 0)),
    ("k2+b|k1+a", "k2b", (0, 0, 0, 1, 0)),
    ("k1+a|k1+a", "k1a", (0, 0, 0, 1, 0)),
    ("k1+a k3+c k2+b", "k3c", (1, 0, 0, 0, 0)),
    ("k1+a|k2-", "", (0, 0, 1, 0, 0)),
    ("k2+a|k1-", "k2a", (0, 0, 0, 1, 0)),
    ("k2-", "", (0, 0, 0, 0, 1)),
    ("k2-|k2-", "", (0, 0, 0, 1, 0)),
    ("k2-|k1+a", "", (0, 0, 0, 1, 0)),
    ("k2-|k3+c", "k3c", (1, 0, 0, 0, 0)),
    ("k1+a k2-", "", (0, 0, 0, 0, 1)),
    ("k2- k3+c", "k3c", (1, 0, 0, 0, 0)),
    ("k2- k2+b", "", (0, 0, 0, 0, 1)),
    ("k2+b|k2-", "k2b", (0, 0, 0, 1, 0)),
    ("k2-|k2+b", "", (0, 0, 0, 1, 0)),
    ("k1+a k2+b|k5-|k3+c k4+d", "", (0, 0, 0, 2, 0)),
    ("k1+a j1+b|k2-", "j1b", (0, 0, 1, 0, 0)),
]


@pytest.mark.parametrize(("text", "expected", "counts"), ROWS)
def test_rows(text: str, expected: str, counts: tuple[int, ...]) -> None:
    model = ModelFeed(["k"], "at", "gone")
    *_, last = [model.apply(batch) for batch in batches(text)]
    assert told(model.rows) == expected
    assert astuple(last)[1:-1] == counts


# Batches, the versions after them, and of the last: inserted, updated.
VERSIONS = [
    ("k1+a", "k1..a", (1, 0)),
    ("k1+a|k2+b", "k1..2a k2..b", (1, 1)),
    ("k2+b|k1+a", "k1..2a k2..b", (1, 0)),
    ("k1+a|k1+a", "k1..a", (0, 0)),
    ("k1+a|k2-", "k1..2a", (0, 1)),
    ("k2-|k1+a", "k1..2a", (1, 0)),
    ("k1+a k3+c|k2-", "k1..2a k3..c", (0, 1)),
    ("k2- k2+b", "", (0, 0)),
    ("k2+b|k2-", "k2..b", (0, 0)),
    ("k2-|k2+b", "", (0, 0)),
    ("k1+a|k4-|k2+b", "k1..2a k2..4b", (1, 1)),
    ("k1+a j2+b|k3+c", "j2..b k1..3a k3..c", (1, 1)),
]


@pytest.mark.parametrize(("text", "expected", "counts"), VERSIONS)
def test_versions(text: str, expected: str, counts: tuple[int, int]) -> None:
    model = ModelFeed(["k"], "at", "gone", 2)
    *_, last = [model.apply(batch) for batch in batches(text)]
    assert told(model.rows) == expected
    assert (last.inserted, last.updated) == counts
    assert (last.deleted, last.late, last.not_found) == (0, 0, 0)


def test_a_feed_of_deletes_alone_makes_no_dataset() -> None:
    model = ModelFeed(["k"], "at", "gone")
    model.apply([event("k1-")])
    assert model.rows is None


@pytest.mark.parametrize("scd_type", [1, 2])
def test_nan_is_the_greatest_sequence(scd_type: int) -> None:
    events = [{"k": 1, "at": at, "gone": False} for at in (NAN, 1.0)]
    model = ModelFeed(["k"], "at", "gone", scd_type)
    counted = [model.apply([one]) for one in (*events, *events)]
    assert [(one.inserted, one.updated) for one in counted[2:]] == [(0, 0)] * 2
    assert repr(model.rows) == repr(feed_rows(events, ["k"], "at", "gone", scd_type)[::-1])


@given(
    steps=st.lists(
        st.tuples(st.sampled_from("jk"), st.integers(0, 9), st.booleans()),
        unique_by=lambda step: step[:2],
        max_size=14,
    ),
    scd_type=st.sampled_from([1, 2]),
    data=st.data(),
)
def test_any_batches_in_any_order_give_the_rows_of_the_feed(
    steps: list[tuple[str, int, bool]], scd_type: int, data: st.DataObject
) -> None:
    feed = [event(f"{key}{at}{'-' if gone else '+' + key + str(at)}") for key, at, gone in steps]
    arriving = data.draw(st.permutations(feed + feed[:3]))
    cut = data.draw(st.integers(0, len(arriving)))
    model = ModelFeed(["k"], "at", "gone", scd_type)
    for batch in (arriving[:cut], arriving[cut:]):
        model.apply(batch)
    assert told(model.rows) == told(feed_rows(feed, ["k"], "at", "gone", scd_type))
