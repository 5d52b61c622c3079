"""A day of orders as files of JSON lines in a landing directory, and the rows that it amounts to.

The files hold inserts, updates, deletes, changes that arrive late, exact duplicates and bad rows,
and some files land again under another name. Everything follows from a seed. What a pipeline must
make of them is :func:`applied_rows` and :func:`bad_rows`, over plain dictionaries: short enough to
be checked by eye, and without a line of the code under test.

A file is complete under a hidden name before it is renamed, so that Spark's file source never reads
a part of it.
"""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SPARK_SCHEMA = (
    "order_id BIGINT, customer STRING, amount DOUBLE, status STRING, updated_at TIMESTAMP, "
    "operation STRING, day STRING"
)
"""The columns of a landed file, for ``spark.readStream.schema(...)``."""

KEYS = ("order_id",)
SEQUENCE_BY = "updated_at"
APPLY_AS_DELETES = "operation = 'delete'"
NOT_STORED = ("operation",)
EXPECT = {"valid amount": "amount >= 0"}
"""What a pipeline is to be called with; a NULL is not a valid amount."""

FIRST_MOMENT = datetime(2026, 3, 2, tzinfo=UTC)
STATUSES = ("placed", "paid", "packed", "shipped", "delivered")
CUSTOMERS = ("Ada", "Björk", "Čapek, Karel", 'Dora "D"', "Émile", "Fumiko 文子", "Göran", "Hal")

Row = dict[str, Any]


@dataclass(frozen=True)
class Mix:
    """How much of a day is out of the ordinary, as shares of its changes, orders or files."""

    late: float = 0.1
    """Changes that land in a file after their own."""

    duplicates: float = 0.05
    """Changes that land twice."""

    bad: float = 0.04
    """Rows whose amount is negative or NULL, in relation to good ones."""

    deleted: float = 0.15
    """Orders whose last change, or the one before, is a delete."""

    replays: float = 0.1
    """Files that land again, of all files."""


@dataclass(frozen=True)
class LandedFile:
    """A file of a day: its name and its rows, with datetimes as `updated_at`."""

    name: str
    rows: tuple[Row, ...]

    def write(self, directory: str | Path) -> Path:
        """Write the file under a hidden name, rename it, and return its path."""
        path = Path(directory) / self.name
        hidden = path.with_name(f".{path.name}.tmp")
        lines = [json.dumps(row, default=_moment_as_text, ensure_ascii=False) for row in self.rows]
        hidden.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        os.replace(hidden, path)
        return path


@dataclass(frozen=True)
class Day:
    """The files of a day in the order in which they land, and what they amount to."""

    files: tuple[LandedFile, ...]

    def land(self, directory: str | Path) -> Iterator[Path]:
        """Write one file after another, each when the iterator is asked for it."""
        Path(directory).mkdir(parents=True, exist_ok=True)
        for file in self.files:
            yield file.write(directory)

    def first(self, files: int) -> Day:
        """Return the part of the day that has landed after so many files."""
        return Day(self.files[:files])

    def landed_rows(self) -> list[Row]:
        """Return every row of every file, those of replayed files as often as they landed."""
        return [row for file in self.files for row in file.rows]

    def expected_rows(self, before: Iterable[Row] = ()) -> list[Row]:
        """Return the rows of the dataset after the day, by `order_id`.

        Args:
            before: The rows of the dataset before it.
        """
        return applied_rows(
            [*({**row, "operation": "upsert"} for row in before), *self.landed_rows()]
        )

    def expected_quarantine(self) -> list[Row]:
        """Return the landed rows that are bad, each as often as it landed, by `order_id`."""
        return bad_rows(self.landed_rows())


def applied_rows(landed: Iterable[Row]) -> list[Row]:
    """Return the rows that changes amount to: the last good change of each order, by `order_id`.

    A deletion wins over an upsert of the same moment.
    """
    last: dict[int, Row] = {}
    for row in landed:
        if not is_bad(row):
            last[row["order_id"]] = max(last.get(row["order_id"], row), row, key=_age)
    return [
        {name: value for name, value in row.items() if name not in NOT_STORED}
        for _, row in sorted(last.items())
        if row["operation"] != "delete"
    ]


def bad_rows(landed: Iterable[Row]) -> list[Row]:
    """Return the rows that belong in quarantine: one for each that landed, by `order_id`."""
    return sorted(filter(is_bad, landed), key=lambda row: (row["order_id"], row["updated_at"]))


def is_bad(row: Row) -> bool:
    """Return whether a row violates ``EXPECT``."""
    return row["amount"] is None or row["amount"] < 0


def _age(row: Row) -> tuple[datetime, bool]:
    return row["updated_at"], row["operation"] == "delete"


def _moment_as_text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def write_day(
    directory: str | Path,
    *,
    files: int,
    orders: int,
    seed: int,
    days: int = 3,
    mix: Mix | None = None,
    existing: Sequence[Row] = (),
) -> Day:
    """Write all files of a day at once; see :func:`make_day`."""
    day = make_day(files=files, orders=orders, seed=seed, days=days, mix=mix, existing=existing)
    for _ in day.land(directory):
        pass
    return day


def make_day(
    *,
    files: int,
    orders: int,
    seed: int,
    days: int = 3,
    mix: Mix | None = None,
    existing: Sequence[Row] = (),
) -> Day:
    """Return a day without writing it; each seed gives the same day on every machine.

    Args:
        files: How many files land.
        orders: How many orders the dataset does not have before.
        seed: Decides everything else.
        days: On how many days these orders were placed, the last of which is the day itself. The
            column `day` says on which, and stays the same for an order.
        mix: How much is out of the ordinary.
        existing: Orders that the dataset has, and that change, too.
    """
    mix = mix or Mix()
    rng = random.Random(seed)
    replays = min(int(files * mix.replays), files - 1)
    placed = [*existing, *_new_orders(orders, days, existing, rng)]
    contents = _cut(_changes(placed, mix, rng), files - replays, mix, rng)
    for _ in range(replays):
        again = rng.randrange(len(contents))
        contents.insert(rng.randint(again + 1, len(contents)), contents[again])
    return Day(
        tuple(
            LandedFile(f"orders-{number:05}.json", tuple(rows))
            for number, rows in enumerate(contents)
        )
    )


def _new_orders(orders: int, days: int, existing: Sequence[Row], rng: random.Random) -> list[Row]:
    """Return what stays the same of orders, with identifiers after those of existing ones."""
    first = max((row["order_id"] + 1 for row in existing), default=0)
    return [
        {
            "order_id": order,
            "customer": rng.choice(CUSTOMERS),
            "day": f"{FIRST_MOMENT - timedelta(days=rng.randrange(days)):%Y-%m-%d}",
        }
        for order in range(first, first + orders)
    ]


def _changes(placed: Sequence[Row], mix: Mix, rng: random.Random) -> list[Row]:
    """Return every change of the day, bad ones too, by the time at which they were made."""
    counts = [rng.randint(1, len(STATUSES)) for _ in placed]
    bad = rng.choices(range(len(placed)), k=round(sum(counts) * mix.bad)) if placed else []
    microseconds = rng.sample(range(24 * 3600 * 1_000_000), sum(counts) + len(bad))
    moments = [FIRST_MOMENT + timedelta(microseconds=after) for after in microseconds]
    changes: list[Row] = []
    for order, count in zip(placed, counts, strict=True):
        own = sorted(moments.pop() for _ in range(count))
        gone = rng.choice(own[-2:]) if rng.random() < mix.deleted else None
        for moment, status in zip(own, STATUSES, strict=False):
            operation = "delete" if moment == gone else "upsert"
            amount = rng.randrange(100, 50_000) / 100
            changes.append(_change(order, amount, status, moment, operation))
    for number in bad:
        amount = rng.choice([None, -rng.randrange(1, 50_000) / 100])
        operation = rng.choice(["upsert", "upsert", "upsert", "delete"])
        changes.append(
            _change(placed[number], amount, rng.choice(STATUSES), moments.pop(), operation)
        )
    return sorted(changes, key=lambda change: change["updated_at"])


def _change(order: Row, amount: float | None, status: str, moment: datetime, operation: str) -> Row:
    return {
        "order_id": order["order_id"],
        "customer": order["customer"],
        "amount": amount,
        "status": status,
        "updated_at": moment,
        "operation": operation,
        "day": order["day"],
    }


def _cut(changes: Sequence[Row], files: int, mix: Mix, rng: random.Random) -> list[list[Row]]:
    """Return the rows of each file: by time, but for those that land late or twice."""
    contents: list[list[Row]] = [[] for _ in range(files)]
    for number, change in enumerate(changes):
        own = number * files // len(changes)
        landing = [rng.randrange(own, files) if rng.random() < mix.late else own]
        if rng.random() < mix.duplicates:
            landing.append(rng.randrange(own, files))
        for file in landing:
            contents[file].append(change)
    for rows in contents:
        rng.shuffle(rows)
    return contents
