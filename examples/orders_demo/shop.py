"""A shop's orders: twenty days that are there already, and a day of changes that land as files."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.testing.landing import FIRST_MOMENT, Day, is_bad, make_day

if TYPE_CHECKING:
    from pathlib import Path

DAYS = 20
FILES_PER_DAY = 4
FILES = DAYS * FILES_PER_DAY
MIN_ROWS = 100 * FILES
LANDED_FILES = 24
"""One for each hour."""

NEW_ORDERS = 2_000


@dataclass(frozen=True)
class Shop:
    """Orders of a shop.

    Args:
        rows: How many there are before the day.
    """

    rows: int

    @property
    def rows_per_file(self) -> int:
        """How many orders go into one file, so that each day gets the same number of files."""
        return -(-self.rows // FILES)

    @cached_property
    def orders(self) -> pa.Table:
        """The orders of the days before; every value follows from the number of an order."""
        ids = np.arange(self.rows)
        noise = _noise(ids)
        ages = DAYS - ids // (self.rows_per_file * FILES_PER_DAY)
        evening = np.datetime64(FIRST_MOMENT.replace(tzinfo=None), "us") - np.timedelta64(2, "h")
        days = evening.astype("datetime64[D]") + 1 - ages
        customers = pa.array(noise % np.uint64(50_000)).cast("string")
        updated = pa.array(evening + (1 - ages).astype("timedelta64[D]"), pa.timestamp("us"))
        return pa.table(
            {
                "order_id": ids,
                "customer": pc.binary_join_element_wise("customer", customers, " "),
                "amount": (noise % np.uint64(25_000)).astype(np.float64) / 100,
                "status": pa.repeat("placed", self.rows),
                "updated_at": pc.assume_timezone(updated, "UTC"),
                "day": pa.array(days).cast("string"),
            }
        )

    @cached_property
    def changed(self) -> list[dict[str, Any]]:
        """The orders of before that change: many of the last day, some of older ones."""
        last, before = FILES - FILES_PER_DAY, FILES - 2 * FILES_PER_DAY
        many = [self._some(last + number, 100) for number in range(FILES_PER_DAY)]
        some = [self._some(before + number, 30) for number in range(FILES_PER_DAY)]
        old = [self._some(file, 2) for file in (FILES // 4, FILES // 2)]
        rows: list[dict[str, Any]] = self.orders.take(
            np.concatenate([*old, *some, *many])
        ).to_pylist()
        return rows

    @cached_property
    def day(self) -> Day:
        """The day: new orders, and changes of older ones, in a file for each hour."""
        return make_day(
            files=LANDED_FILES, orders=NEW_ORDERS, seed=20, days=1, existing=self.changed
        )

    def _some(self, file: int, count: int) -> np.ndarray:
        """The positions of some orders of a file, counted from the first file."""
        first = self.rows_per_file * file
        last = min(first + self.rows_per_file, self.rows) - 1
        return np.unique(np.linspace(first, last, count).astype(np.int64))

    def check(self, path: Path, landed: int) -> int:
        """Compare what any reader finds with the model of so many landed files.

        Returns:
            The number of rows.

        Raises:
            RuntimeError: If there is any difference.
        """
        import pyarrow.dataset as ds

        found = ds.dataset(path, partitioning="hive").to_table().sort_by("order_id")
        day = self.day.first(landed)
        rows = found.select(self.orders.column_names).cast(self.orders.schema)
        ids = pa.array([row["order_id"] for row in [*day.landed_rows(), *self.changed]])
        others = rows.filter(pc.invert(pc.is_in(rows["order_id"], ids)))
        expected = self.orders.filter(pc.invert(pc.is_in(self.orders["order_id"], ids)))
        changed = rows.filter(pc.is_in(rows["order_id"], ids)).to_pylist()
        if changed != day.expected_rows(self.changed) or not others.equals(expected):
            raise RuntimeError(f"{path} differs from the model of {landed} files")
        return rows.num_rows

    def check_quarantine(self, path: Path, landed: int) -> int:
        """Compare the quarantine with the bad rows of so many landed files; return their number."""
        import pyarrow.dataset as ds

        expected = self.day.first(landed).expected_quarantine()
        found = (
            ds.dataset(path)
            .to_table()
            .sort_by([("order_id", "ascending"), ("updated_at", "ascending")])
        )
        if found.select(list(expected[0])).to_pylist() != expected:
            raise RuntimeError(f"{path} differs from the bad rows of {landed} files")
        return len(expected)

    def describe(self, first: int, last: int) -> str:
        """What some of the files of the day hold, in words."""
        rows = Day(self.day.files[first:last]).landed_rows()
        again = len(rows) - len({(row["order_id"], row["updated_at"]) for row in rows})
        deletes = sum(row["operation"] == "delete" for row in rows)
        return (
            f"{len(rows):,} changes: {deletes:,} deletes, {again:,} that come again, "
            f"{sum(map(is_bad, rows)):,} bad rows, and many that come late"
        )


def first_day() -> str:
    """The first of the days before."""
    return f"{FIRST_MOMENT - timedelta(days=DAYS):%Y-%m-%d}"


def _noise(ids: np.ndarray) -> np.ndarray:
    """A number for each id that looks random and is always the same."""
    mixed = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(31)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> np.uint64(29))
