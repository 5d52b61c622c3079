"""Take the pictures of the report for the documentation, of real datasets in a real browser.

One dataset is a shop's orders in ten files after two months of nightly merges; the other one has
ten thousand files in twelve partitions. Look at the pictures before they are committed.

Usage: ``python -m scripts.screenshots`` (after ``make browser``)
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import fsspeckit
from fsspeckit.report import fill_page, page_of, report_model
from fsspeckit.storage import open_storage

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "images"
FILES, ROWS_OF_A_FILE, NIGHTS = 8, 1_000_000, 60
SMALL_FILES, MONTHS = 10_000, 12
ENGINE = "pyarrow"


def orders(ids: np.ndarray, seed: int) -> pa.Table:
    """Orders with these numbers and amounts that do not compress."""
    amounts = np.random.default_rng(seed).random(len(ids))
    states = np.array(["open", "paid", "sent"])[ids % 3]
    return pa.table({"id": ids, "amount": amounts, "state": states})


@contextmanager
def night(number: int) -> Iterator[None]:
    """Let a commit have the time of a night: the script makes those of two months in a minute."""
    time = datetime(2026, 3, 1, 3, tzinfo=UTC) + timedelta(days=number, minutes=number * 7 % 50)
    with patch(
        "fsspeckit.storage.commit.transaction.timestamp",
        lambda: time.isoformat(timespec="microseconds"),
    ):
        yield


def make_ten(path: str) -> None:
    """Eight files by ascending number, nightly updates of a few of them, and two small ones."""
    chance = random.Random(7)
    with night(0):
        fsspeckit.write_dataset(
            orders(np.arange(0, 2 * FILES * ROWS_OF_A_FILE, 2), 0),
            path,
            max_rows_per_file=ROWS_OF_A_FILE,
            row_group_size=ROWS_OF_A_FILE // 8,
            engine=ENGINE,
        )
    last = 2 * FILES * ROWS_OF_A_FILE
    late = np.arange(9_000_001, 12_600_001, 60)
    new = np.arange(last, last + 900_000, 3)
    for number in range(1, NIGHTS):
        strategy, ids = "update", chance.randrange(0, last - 200_000, 2)
        changed = np.arange(ids, ids + chance.choice((2_000, 20_000, 100_000)), 50)
        if number in (20, 41):
            strategy, changed = "insert", {20: late, 41: new}[number]
        with night(number):
            fsspeckit.merge(orders(changed, number), path, strategy, ["id"], engine=ENGINE)


def write(page: Path, text: str) -> None:
    """Write a page that names its dataset without the temporary directory that it is in."""
    page.write_text(text.replace(f"{page.parent}/", ""), "utf-8")


def make_pages_of_ten(path: str, pages: Path) -> None:
    """The report, a plan, and the result of the same merge."""
    write(pages / "ten.html", fill_page(report_model(open_storage(path))))
    changes = orders(np.arange(10_900_000, 11_000_000, 200), 99)
    plan = fsspeckit.plan_merge(changes, path, "upsert", ["id"], engine=ENGINE)
    write(pages / "plan.html", page_of(plan))
    with night(NIGHTS):
        result = fsspeckit.merge(changes, path, "upsert", ["id"], engine=ENGINE)
    write(pages / "result.html", page_of(result))


def make_many(path: Path) -> None:
    """Small files by month; the later in a month, the more they overlap."""
    chance = random.Random(3)
    for number in range(SMALL_FILES):
        month = number * MONTHS // SMALL_FILES
        directory = path / f"month=2026-{month + 1:02}"
        directory.mkdir(parents=True, exist_ok=True)
        in_month = number - month * SMALL_FILES // MONTHS
        low = number * 100 - chance.randrange(1 + 40 * in_month)
        rows = chance.choice((3, 30, 120, 400))
        ids = np.linspace(low, low + 99 + chance.randrange(1 + 25 * in_month), rows).astype(int)
        table = pa.table({"id": ids, "amount": np.random.default_rng(number).random(rows)})
        pq.write_table(table, directory / f"part-{number:05}.parquet", compression="none")


def make_page_of_many(path: str, pages: Path) -> None:
    """A plan of a merge into two months."""
    ids = np.arange(748_000, 760_000, 400)
    months = [
        f"2026-{min(MONTHS, 1 + int(number) * MONTHS // (100 * SMALL_FILES)):02}" for number in ids
    ]
    changes = pa.table({"id": ids, "amount": np.zeros(len(ids)), "month": months})
    plan = fsspeckit.plan_merge(changes, path, "upsert", ["id", "month"], engine=ENGINE)
    write(pages / "many.html", page_of(plan))


def main() -> int:
    """Make the datasets and pages in a temporary directory, and take the pictures."""
    with tempfile.TemporaryDirectory() as directory:
        pages = Path(directory)
        make_ten(f"{directory}/orders")
        make_pages_of_ten(f"{directory}/orders", pages)
        make_many(pages / "events")
        make_page_of_many(f"{directory}/events", pages)
        shots = ROOT / "frontend" / "browser" / "shots.mjs"
        return subprocess.run(["node", shots, pages, PICTURES], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
