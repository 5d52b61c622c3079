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
from typing import Any

import pyarrow as pa

from fsspeckit import Transaction
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO


@dataclass(frozen=True)
class Job:
    """A job, where its rows go, and where it writes down how far it is."""

    root: str
    checkpoints: str
    name: str

    def run(self) -> None:
        """Apply batches of a feed that all jobs share, and of one of its own, in turns."""
        with PyarrowDatasetIO() as io:
            turn = 0
            while not os.path.exists(f"{self.checkpoints}/stop"):
                self.apply(io, "shared" if turn % 2 else f"own-{self.name}")
                turn += 1

    def apply(self, io: PyarrowDatasetIO, feed: str) -> None:
        """Apply the next batch; applied twice, its rows would be there twice."""
        place = Path(self.checkpoints, f"{self.name}-{feed}")
        version = int(place.read_text()) if place.exists() else 0
        transaction = Transaction(feed, version)
        rows = pa.table({"feed": [feed], "version": [version], "job": [self.name]})
        if version % 5 == 4:  # without effect, but on record
            keys: Any = ["feed", "version"]
            io.merge(rows.slice(0, 0), self.root, "upsert", keys, transaction=transaction)
        else:
            io.write_dataset(rows, self.root, transaction=transaction)
        new = place.with_suffix(f".{os.getpid()}")
        new.write_text(str(version + 1))
        new.replace(place)


if __name__ == "__main__":
    Job(**json.loads(sys.argv[1])).run()
