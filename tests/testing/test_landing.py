"""The day of orders of :mod:`fsspeckit.testing.landing`, and its model, by eye."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from fsspeckit.testing.feed_model import ModelFeed
from fsspeckit.testing.landing import (
    FIRST_MOMENT,
    Day,
    LandedFile,
    Mix,
    applied_rows,
    bad_rows,
    is_bad,
    make_day,
    write_day,
)

if TYPE_CHECKING:
    from pathlib import Path

NOTHING_ODD = Mix(late=0, duplicates=0, bad=0, deleted=0, replays=0)


def change(text: str) -> dict[str, Any]:
    """A change as ``12+5.0`` or ``12-5.0``: key, time, whether it deletes, amount or ``?``."""
    amount = None if text[3:] == "?" else float(text[3:])
    moment = FIRST_MOMENT + timedelta(hours=int(text[1]))
    operation = "delete" if text[2] == "-" else "upsert"
    key = int(text[0])
    return {"order_id": key, "updated_at": moment, "operation": operation, "amount": amount}


def changes(text: str) -> list[dict[str, Any]]:
    return [change(one) for one in text.split()]


def described(rows: list[dict[str, Any]]) -> str:
    return " ".join(
        f"{row['order_id']}{row['updated_at'].hour}{'-' if 'delete' in row.values() else '+'}"
        f"{'?' if row['amount'] is None else row['amount']}"
        for row in rows
    )


@pytest.mark.parametrize(
    ("landed", "rows", "quarantine"),
    [
        ("", "", ""),
        ("11+5.0", "11+5.0", ""),
        ("12+6.0 11+5.0", "12+6.0", ""),
        ("11+5.0 12+6.0", "12+6.0", ""),
        ("11+5.0 11+5.0", "11+5.0", ""),
        ("21+5.0 11+6.0", "11+6.0 21+5.0", ""),
        ("11+5.0 12-5.0", "", ""),
        ("12-5.0 11+5.0", "", ""),
        ("12-5.0 13+5.0", "13+5.0", ""),
        ("12+5.0 12-5.0", "", ""),
        ("12-5.0 12+5.0", "", ""),
        ("11+5.0 12+?", "11+5.0", "12+?"),
        ("11+5.0 12--1.0", "11+5.0", "12--1.0"),
        ("12+-1.0 11+0.0 12+-1.0", "11+0.0", "12+-1.0 12+-1.0"),
    ],
)
def test_the_model(landed: str, rows: str, quarantine: str) -> None:
    assert described(applied_rows(changes(landed))) == rows
    assert described(bad_rows(changes(landed))) == quarantine


@pytest.mark.parametrize("seed", range(5))
def test_the_model_agrees_with_that_of_change_feeds(seed: int) -> None:
    day = make_day(files=20, orders=60, seed=seed)
    feed = ModelFeed(["order_id"], "updated_at", "is_delete")
    for file in day.files:
        good = [row for row in file.rows if not is_bad(row)]
        feed.apply([{**row, "is_delete": row["operation"] == "delete"} for row in good])
    rows = [{name: row[name] for name in row if name != "operation"} for row in feed.rows or ()]
    assert sorted(rows, key=lambda row: row["order_id"]) == day.expected_rows()


def test_a_day_has_everything() -> None:
    day = make_day(files=50, orders=400, seed=1)
    landed = day.landed_rows()
    times = [[row["updated_at"] for row in file.rows] for file in day.files]
    assert len(day.files) == 50
    assert {row["operation"] for row in landed} == {"upsert", "delete"}
    assert {row["amount"] is None for row in day.expected_quarantine()} == {True, False}
    assert len({row["day"] for row in day.expected_rows()}) == 3
    assert any(min(after) < max(before) for before, after in pairwise(times))
    assert max(Counter(file.rows and repr(file.rows) for file in day.files).values()) > 1
    assert max(Counter(repr(sorted(row.items(), key=str)) for row in landed).values()) > 1
    assert 0 < len(day.expected_rows()) < 400


def test_changes_of_an_order_have_different_times() -> None:
    day = make_day(files=20, orders=200, seed=3)
    distinct = {(row["order_id"], row["updated_at"]): row for row in day.landed_rows()}
    assert all(distinct[row["order_id"], row["updated_at"]] == row for row in day.landed_rows())


def test_a_seed_gives_one_day() -> None:
    assert make_day(files=9, orders=30, seed=4) == make_day(files=9, orders=30, seed=4)
    assert make_day(files=9, orders=30, seed=4) != make_day(files=9, orders=30, seed=5)


def test_files_land_one_after_another(tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    day = make_day(files=3, orders=10, seed=0)
    for number, path in enumerate(day.land(landing), 1):
        assert path.name == day.files[number - 1].name
        assert len(list(landing.iterdir())) == number


def test_what_is_written_is_what_is_expected(tmp_path: Path) -> None:
    day = write_day(tmp_path, files=8, orders=40, seed=7)
    paths = sorted(tmp_path.iterdir())
    read = [json.loads(line) for path in paths for line in path.read_text("utf-8").splitlines()]
    for row in read:
        row["updated_at"] = datetime.fromisoformat(row["updated_at"])
    assert read == day.landed_rows()


def test_a_part_of_a_day() -> None:
    day = make_day(files=10, orders=50, seed=2)
    assert day.first(10) == day
    assert day.first(0) == Day(())
    assert day.first(4).landed_rows() == day.landed_rows()[: len(day.first(4).landed_rows())]


def test_existing_orders_change() -> None:
    before = make_day(files=1, orders=20, seed=0, mix=NOTHING_ODD).expected_rows()
    yesterday = [{**row, "updated_at": FIRST_MOMENT - timedelta(days=1)} for row in before]
    day = make_day(files=5, orders=10, seed=1, existing=yesterday[5:])
    assert {row["order_id"] for row in day.landed_rows()} == set(range(5, 30))
    after = {row["order_id"]: row for row in day.expected_rows(yesterday)}
    assert [after[order] for order in range(5)] == yesterday[:5]
    assert all(after[row["order_id"]] in (row, None) for row in day.expected_rows())
    same = [(row["order_id"], row["day"], row["customer"]) for row in yesterday[5:]]
    assert {(r["order_id"], r["day"], r["customer"]) for r in day.landed_rows()} >= set(same)


@pytest.mark.parametrize(("files", "orders"), [(1, 0), (1, 1), (5, 0), (30, 2)])
def test_small_days(files: int, orders: int) -> None:
    day = make_day(files=files, orders=orders, seed=0, mix=NOTHING_ODD)
    assert len(day.files) == files
    assert len(day.expected_rows()) == orders
    assert day.expected_quarantine() == []


def test_half_a_file_is_never_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="full"):
        LandedFile("a.json", (change("11+5.0"),)).write(tmp_path)
    assert [path.name[0] for path in tmp_path.iterdir()] == ["."]
