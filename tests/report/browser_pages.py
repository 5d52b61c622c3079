"""The pages that the tests open in a browser, made by the real collector from real datasets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from tests.report.datasets import large_dataset

import fsspeckit
from fsspeckit.report import fill_page, page_of, report_model
from fsspeckit.storage import open_storage

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

LARGE_FILES, LARGE_COMMITS = 10_000, 1_000
DAYS = ("2026-03-01", "2026-03-02", "2026-03-03")
ROWS_OF_A_DAY = 600


def orders(ids: Iterable[int], note: str = "new") -> pa.Table:
    """Orders with these numbers, each on the day of its hundreds."""
    numbers = list(ids)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "day": [DAYS[number // ROWS_OF_A_DAY] for number in numbers],
            "amount": [number / 4 for number in numbers],
            "note": [note] * len(numbers),
        }
    )


def make_orders(path: str) -> None:
    """Write nine files in three partitions, then insert two that overlap with them, then update."""
    even = range(0, len(DAYS) * ROWS_OF_A_DAY, 2)
    fsspeckit.write_dataset(
        orders(even),
        path,
        partition_by="day",
        max_rows_per_file=100,
        row_group_size=20,
        engine="pyarrow",
    )
    for day in (0, 1):
        odd = range(day * ROWS_OF_A_DAY + 1, (day + 1) * ROWS_OF_A_DAY, 40)
        fsspeckit.merge(orders(odd), path, "insert", ["id"], engine="pyarrow")
    fsspeckit.merge(orders([4, 6, 1210], "late"), path, "upsert", ["id"], engine="pyarrow")


def make_report(directory: Path) -> None:
    """A page of the dataset with the findings of both checks, one of them about a broken file."""
    path = directory / "orders"
    (path / f"day={DAYS[0]}" / "broken.parquet").write_bytes(b"not Parquet")
    storage = open_storage(str(path))
    verified = fsspeckit.verify(str(path), ["id"], engine="pyarrow")
    page = fill_page(report_model(storage, ["id"], verified=verified))
    (directory / "report.html").write_text(page, "utf-8")


def make_change_pages(directory: Path) -> None:
    """A page of a plan, and one of what a merge did."""
    path = str(directory / "orders")
    changes = orders([40, 44, 1300], "changed")
    plan = fsspeckit.plan_merge(changes, path, "upsert", ["id"], engine="pyarrow")
    (directory / "plan.html").write_text(page_of(plan), "utf-8")
    result = fsspeckit.merge(changes, path, "upsert", ["id"], engine="pyarrow")
    (directory / "result.html").write_text(page_of(result), "utf-8")


def make_large(directory: Path) -> None:
    """A page of a plan on ten thousand files with a thousand commits."""
    path = large_dataset(LARGE_FILES, LARGE_COMMITS).root.display_path
    number = 0x777
    day = f"2026-{number % 12 + 1:02}-{number % 28 + 1:02}"
    rows = pa.table({"id": pa.array([number * 1_000_003]), "value": [0.0], "day": [day]})
    plan = fsspeckit.plan_merge(rows, path, "upsert", ["id"], engine="pyarrow")
    (directory / "large.html").write_text(page_of(plan), "utf-8")


def make_hostile(directory: Path) -> None:
    """A page of a dataset whose names and keys would be markup if they were not text."""
    path = directory / "<b>hostile"
    (path / "p=<img src=x onerror=alert(1)>").mkdir(parents=True)
    keys = ["</script><b>", "<img src=x onerror=alert(2)>"]
    name = "<img src=x onerror=alert(1)>.parquet"
    column = "<i>\u202e" + "x" * 200
    for part in ("<img src=x onerror=alert(1)>", "y" * 100):
        (path / f"p={part}").mkdir(exist_ok=True)
        pq.write_table(pa.table({column: keys}), path / f"p={part}" / name)
    page = fill_page(report_model(open_storage(str(path)), [column]))
    (directory / "hostile.html").write_text(page, "utf-8")


def make_bare(directory: Path) -> None:
    """A page of a dataset without files, and one of a dataset whose key is not known."""
    (directory / "bare").mkdir()
    page = fill_page(report_model(open_storage(str(directory / "bare"))))
    (directory / "empty.html").write_text(page, "utf-8")
    pq.write_table(pa.table({"id": [1, 2]}), directory / "bare" / "a.parquet")
    page = fill_page(report_model(open_storage(str(directory / "bare"))))
    (directory / "keyless.html").write_text(page, "utf-8")


def make_pages(directory: Path) -> None:
    """Make every page that a scenario opens."""
    make_orders(str(directory / "orders"))
    make_change_pages(directory)
    make_report(directory)
    make_large(directory)
    make_hostile(directory)
    make_bare(directory)
