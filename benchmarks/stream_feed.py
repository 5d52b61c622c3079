"""A feed of changes in batches, the table that it is applied to, and what comes of it.

The table has files of consecutive keys. A batch brings new keys, and changes keys that are new as
well as keys of the last files, as orders are changed soon after they were placed. Some changes
delete; some are there twice, or beside an older one of the same key; some are late: a newer change
of their key was in an earlier batch, and of a few that one was a deletion.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SPARK_SCHEMA = "id BIGINT, seq BIGINT, amount DOUBLE, status STRING, note STRING, gone BOOLEAN"
STORED = ("id", "seq", "amount", "status", "note")
STATUSES = ("placed", "paid", "packed", "shipped", "delivered")
_HOT_FILES = 4
_RECENT_BATCHES = 10

Event = dict[str, Any]


@dataclass(frozen=True)
class Shares:
    """What a batch consists of; the rest are updates."""

    inserts: float = 0.25
    deletes: float = 0.03
    duplicates: float = 0.02
    late: float = 0.02
    late_after_delete: float = 0.005


@dataclass
class Feed:
    """The batches of a feed, one after the other, and the last change of each key so far."""

    files: int = 64
    rows: int = 50_000
    """Of each file."""

    size: int = 1000
    """Changes in a batch."""

    shares: Shares = field(default_factory=Shares)
    last: dict[int, Event] = field(default_factory=dict)
    _number: int = 0
    _next_key: int = 0
    _recent: list[list[int]] = field(default_factory=list)
    """The keys that the last batches have inserted."""

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(7)
        self._next_key = self.files * self.rows

    def write_table(self, directory: Path) -> None:
        """Write the files that the feed begins with."""
        directory.mkdir(parents=True)
        for number in range(self.files):
            part = self._first_rows(number)
            pq.write_table(part, directory / f"f{number:03}.parquet")

    def _first_rows(self, number: int) -> pa.Table:
        ids = np.arange(number * self.rows, (number + 1) * self.rows)
        return pa.table(
            {
                "id": ids,
                "seq": np.zeros(len(ids), np.int64),
                "amount": ids * 0.25,
                "status": pa.array(np.array(STATUSES)[ids % len(STATUSES)]),
                "note": pa.array([f"note {key * 7919 % 1_000_003}" for key in ids.tolist()]),
            }
        )

    def land(self, directory: Path, batches: int) -> None:
        """Write the next batches, each as a file of JSON lines, in this order of time."""
        directory.mkdir(parents=True, exist_ok=True)
        for _ in range(batches):
            path = self.file(directory, self._number)
            events = self._next_batch()
            path.write_text("".join(f"{json.dumps(event)}\n" for event in events))
            # Spark takes files by time, and two may have the same otherwise.
            moment = 1_700_000_000 + self._number
            os.utime(path, (moment, moment))

    @staticmethod
    def file(directory: Path, number: int) -> Path:
        """The file of a batch."""
        return directory / f"{number:05}.json"

    def _next_batch(self) -> list[Event]:
        count = {name: round(share * self.size) for name, share in vars(self.shares).items()}
        own = self.size - sum(count.values()) + count["inserts"] + count["deletes"]
        inserted = list(range(self._next_key, self._next_key + count["inserts"]))
        self._next_key += len(inserted)
        old = self._keys_to_change(own - len(inserted))
        late = list(self._late(count["late"], count["late_after_delete"]))
        events = [self._event(key, n) for n, key in enumerate([*inserted, *old])]
        for n in self._random.choice(len(old), count["deletes"], replace=False):
            events[len(inserted) + n]["gone"] = True
        doubled = self._random.choice(len(events), count["duplicates"], replace=False)
        # Half of them are there twice, the others beside an older one of the same key.
        again = [{**events[n], "seq": events[n]["seq"] - k % 2} for k, n in enumerate(doubled)]
        batch = [*events, *again, *late]
        self._random.shuffle(batch)
        self._apply(batch)
        self._recent = [*self._recent, inserted][-_RECENT_BATCHES:]
        self._number += 1
        return batch

    def _event(self, key: int, number: int) -> Event:
        # Odd sequences are left for changes that are older than one of these.
        sequence = 2 * (self._number * self.size + number + 1)
        return self._with_values(key, sequence)

    def _with_values(self, key: int, sequence: int) -> Event:
        return {
            "id": key,
            "seq": sequence,
            "amount": (key + sequence) * 0.25,
            "status": STATUSES[sequence % len(STATUSES)],
            "note": f"changed by {sequence}",
            "gone": False,
        }

    def _keys_to_change(self, number: int) -> list[int]:
        """Half of keys that were inserted not long ago, half of the last files."""
        first = (self.files - min(_HOT_FILES, self.files)) * self.rows
        hot = self._random.choice(self.files * self.rows - first, number, replace=False) + first
        recent = [key for keys in self._recent for key in keys]
        new = self._random.choice(recent, min(number // 2, len(recent)), replace=False).tolist()
        return [*new, *hot.tolist()[: number - len(new)]]

    def _late(self, number: int, after_delete: int) -> Iterator[Event]:
        """Changes that are older than the last one of their key."""
        changed = [e for e in self.last.values() if e["seq"] % 2 == 0]
        for deletes, wanted in ((False, number), (True, after_delete)):
            chosen = [event for event in changed if event["gone"] == deletes]
            for n in self._random.permutation(len(chosen))[:wanted]:
                yield self._with_values(chosen[n]["id"], chosen[n]["seq"] - 1)

    def _apply(self, batch: list[Event]) -> None:
        """The model: of each key the change with the greatest sequence."""
        for event in batch:
            known = self.last.get(event["id"])
            if known is None or event["seq"] > known["seq"]:
                self.last[event["id"]] = event

    def expected(self) -> pa.Table:
        """The rows after the batches so far, by key."""
        first = pa.concat_tables(self._first_rows(number) for number in range(self.files))
        kept = np.setdiff1d(first["id"].to_numpy(), np.array(list(self.last), np.int64))
        changed = [event for event in self.last.values() if not event["gone"]]
        values = {name: [event[name] for event in changed] for name in STORED}
        new = pa.table(values, schema=first.schema)
        return pa.concat_tables([first.take(kept), new]).sort_by("id").combine_chunks()

    def difference(self, found: pa.Table) -> str:
        """What is wrong with the rows of a table, or nothing."""
        expected = self.expected()
        rows = found.select(list(STORED)).cast(expected.schema).sort_by("id").combine_chunks()
        if rows.equals(expected):
            return ""
        ids, wanted = rows["id"].to_numpy(), expected["id"].to_numpy()
        deleted = np.array([key for key, event in self.last.items() if event["gone"]], np.int64)
        distinct = np.unique(ids)
        both = np.intersect1d(distinct, wanted)
        counts = {
            "deleted rows are back": len(np.intersect1d(distinct, deleted)),
            "rows are missing": len(np.setdiff1d(wanted, distinct)),
            "rows are there twice": len(ids) - len(distinct),
            "rows have other values": _different(_of(rows, both), _of(expected, both)),
        }
        return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)


def _of(rows: pa.Table, ids: Any) -> pa.Table:
    """The first row of each of these keys, which are all there; rows and keys are sorted."""
    return rows.take(np.searchsorted(rows["id"].to_numpy(), ids))


def _different(left: pa.Table, right: pa.Table) -> int:
    """How many rows differ."""
    unequal = np.zeros(len(left), bool)
    for one, other in zip(left.columns, right.columns, strict=True):
        unequal |= one.to_numpy() != other.to_numpy()
    return int(unequal.sum())
