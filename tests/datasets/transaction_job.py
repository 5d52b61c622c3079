"""A job in a process of its own that applies numbered batches, and may be killed at any moment.

Started as ``python -m tests.datasets.transaction_job '<json>'``. After each batch it writes down
the next one, as a stream does with its checkpoint; when it starts, it goes on from there. So a
batch that was committed right before the job died is repeated. It ends when there is a file
``stop`` beside its checkpoints.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from fsspeckit import Transaction
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.errors import ConcurrentModificationError

JOBS = 4
FEEDS = ("shared", *(f"own-job{number}" for number in range(JOBS)))
"""One feed that all jobs apply, and one of each of them."""


@dataclass(frozen=True)
class Job:
    """A job, where its rows go, and where it writes down how far it is."""

    root: str
    checkpoints: str
    name: str
    scd_type: int | None = None
    """How changes are stored; None to append rows instead."""

    def run(self) -> None:
        """Apply batches of a feed that all jobs share, and of one of its own, in turns."""
        with PyarrowDatasetIO() as io:
            turn = 0
            while not os.path.exists(f"{self.checkpoints}/stop"):
                self.apply(io, "shared" if turn % 2 else f"own-{self.name}")
                turn += 1

    def apply(self, io: PyarrowDatasetIO, feed: str) -> None:
        """Apply the next batch and write down how far this job is; later, if others are faster."""
        place = Path(self.checkpoints, f"{self.name}-{feed}")
        version = int(place.read_text()) if place.exists() else 0
        # Of one run: a job that is far behind the others must be skipped, not refused.
        transaction = Transaction(feed, version, "run")
        try:
            if self.scd_type is None:
                self.append(io, transaction)
            else:
                self.change(io, transaction)
        except ConcurrentModificationError:
            return  # on a busy machine the others may be faster for long: nothing was changed
        new = place.with_suffix(f".{os.getpid()}")
        new.write_text(str(version + 1))
        new.replace(place)

    def append(self, io: PyarrowDatasetIO, transaction: Transaction) -> None:
        """Append a row; applied twice, it would be there twice."""
        feed, version = transaction.application, transaction.version
        rows = pa.table({"feed": [feed], "version": [version], "job": [self.name]})
        if version % 5 == 4:  # without effect, but on record
            keys: Any = ["feed", "version"]
            io.merge(rows.slice(0, 0), self.root, "upsert", keys, transaction=transaction)
        else:
            io.write_dataset(rows, self.root, transaction=transaction)

    def change(self, io: PyarrowDatasetIO, transaction: Transaction) -> None:
        """Insert, update and delete rows that every other job changes, too."""
        kind: Any = self.scd_type
        io.apply_changes(
            events_of(transaction),
            self.root,
            "id",
            "seq",
            "gone",
            except_column_list="gone",
            stored_as_scd_type=kind,
            transaction=transaction,
        )


def events_of(batch: Transaction) -> pa.Table:
    """The events of a batch, the same in every job: some are late, and a third of them delete."""
    random = Random(str(batch))
    number = FEEDS.index(batch.application)
    ids = random.sample(range(20), 4)
    # No other feed has the same sequence, and batches of a feed are not in order.
    seq = (batch.version ^ 5) * len(FEEDS) + number
    gone = [random.random() < 1 / 3 for _ in ids]
    values = [None if deletes else f"{batch}" for deletes in gone]
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "v": pa.array(values, pa.string()),
            "seq": pa.array([seq] * len(ids), pa.int64()),
            "gone": pa.array(gone, pa.bool_()),
        }
    )


if __name__ == "__main__":
    Job(**json.loads(sys.argv[1])).run()
