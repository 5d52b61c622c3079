"""A shop's orders: twenty days that are there already, and what each of the next days brings.

Every value follows from the number of an order: a batch of changes needs nothing from the dataset.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

FIRST_DAY = date(2026, 1, 5)
DAYS = 20
FILES_PER_DAY = 5
FILES = DAYS * FILES_PER_DAY
MIN_ROWS = 100 * FILES
_GAP = 10
"""Order ids are multiples of it; those between are free for orders that come late."""


@dataclass(frozen=True)
class Batch:
    """What one day brings: new orders, and changes to older ones."""

    title: str
    summary: str
    """What is in it, in a few words."""

    key_columns: tuple[str, ...]
    orders: pa.Table

    @property
    def updated_at(self) -> datetime:
        """What all of its rows, and no others, have in the column of this name."""
        instant: datetime = self.orders.column("updated_at")[0].as_py()
        return instant


@dataclass(frozen=True)
class Shop:
    """Orders of a shop.

    Args:
        rows: How many there are before the first batch.
    """

    rows: int

    @property
    def rows_per_file(self) -> int:
        """How many orders go into one file, so that each day gets the same number of files."""
        return -(-self.rows // FILES)

    def land_history(self, directory: Path) -> None:
        """Write the orders of the days before, as some other system would deliver them."""
        per_day = self.rows_per_file * FILES_PER_DAY
        for day in range(DAYS):
            numbers = np.arange(day * per_day, min((day + 1) * per_day, self.rows))
            orders = self._orders(numbers * _GAP, "paid", _evening(day))
            pq.write_table(orders, directory / f"{_day(day)}.parquet")

    def batches(self) -> list[Batch]:
        """The batches of four days."""
        return [self._deliveries(), self._phone_orders(), self._refunds(), self._corrections()]

    def _deliveries(self) -> Batch:
        changed = np.concatenate([self._some(97), self._some(98), self._some(0)[:1]])
        new = self._new(20)
        return Batch(
            "deliveries",
            f"{len(new):,} new orders, {len(changed) - 1:,} delivered, 1 order of the first day",
            ("order_id",),
            self._batch(20, new, changed, "delivered"),
        )

    def _phone_orders(self) -> Batch:
        changed = self._some(100)
        late = np.concatenate([self._some(52)[:20], self._some(83)[:20]]) + _GAP // 2
        new = self._new(21)
        return Batch(
            "phone orders, entered late",
            f"{len(new):,} new orders, {len(changed):,} delivered, {len(late)} of days long past",
            ("order_id",),
            self._batch(21, np.concatenate([new, late]), changed, "delivered"),
        )

    def _refunds(self) -> Batch:
        """The payment provider knows no order ids, only its own random ones."""
        changed = np.concatenate([self._some(file)[:3] for file in (20, 21, 46, 95)])
        new = self._new(22)
        return Batch(
            "refunds, known by payment only",
            f"{len(new):,} new orders, {len(changed)} refunds by random payment ids",
            ("day", "payment_id"),
            self._batch(22, new, changed, "refunded"),
        )

    def _corrections(self) -> Batch:
        changed = np.concatenate([self._some(60), self._some(97)])
        new = self._new(23)
        return Batch(
            "corrections",
            f"{len(new):,} new orders, {len(changed):,} corrected",
            ("order_id",),
            self._batch(23, new, changed, "corrected"),
        )

    def _some(self, file: int) -> np.ndarray:
        """The ids of every thirtieth order of a file, counted from the first file."""
        start = self.rows_per_file * file
        return np.arange(start, start + self.rows_per_file, 30) * _GAP

    def _new(self, day: int) -> np.ndarray:
        """The ids of the orders of a new day, enough for one file."""
        start = self.rows_per_file * (FILES + day - DAYS)
        return np.arange(start, start + self.rows_per_file) * _GAP

    def _batch(self, day: int, new: np.ndarray, changed: np.ndarray, status: str) -> pa.Table:
        evening = _evening(day)
        orders = [self._orders(new, "paid", evening), self._orders(changed, status, evening)]
        return pa.concat_tables(orders)

    def _orders(self, ids: np.ndarray, status: str, updated_at: datetime) -> pa.Table:
        """The orders of these ids."""
        noise = _noise(ids)
        payments = pc.binary_join_element_wise("pay_", pa.array(noise).cast("string"), "")
        instant = pa.scalar(updated_at, pa.timestamp("us", "UTC"))
        return pa.table(
            {
                "order_id": ids,
                "payment_id": payments,
                "customer": (noise % np.uint64(50_000)).astype(np.int32),
                "amount": (noise % np.uint64(25_000)).astype(np.float64) / 100,
                "status": pa.repeat(status, len(ids)),
                "updated_at": pa.repeat(instant, len(ids)),
                "day": self._days(ids),
            }
        )

    def _days(self, ids: np.ndarray) -> pa.Array:
        """Five files of ids make a day; of the new days there is one file each."""
        files = ids // _GAP // self.rows_per_file
        days = np.where(files < FILES, files // FILES_PER_DAY, files - FILES + DAYS)
        return pa.array(np.datetime64(FIRST_DAY, "D") + days)


def _day(number: int) -> date:
    return FIRST_DAY + timedelta(days=number)


def _evening(day: int) -> datetime:
    return datetime.combine(_day(day), time(22), UTC)


def _noise(ids: np.ndarray) -> np.ndarray:
    """A number for each id that looks random and is always the same."""
    mixed = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(31)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> np.uint64(29))
