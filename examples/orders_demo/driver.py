"""The process that applies what has landed, batch by batch, and can be killed after any commit.

With Spark it is the query of ``examples/streaming_orders.py``. With the other engines it is a loop
that notes the number of the last batch in a file, as a stream does in its checkpoint, and applies
each batch as ``examples/nightly_orders.py`` does.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nightly_orders
from fsspeckit import Transaction
from fsspeckit.datasets.registry import open_engine
from fsspeckit.errors import FsspeckitError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from multiprocessing.connection import Connection

    from pyspark.sql import DataFrame

    from fsspeckit.core.merge import MergeResult
    from fsspeckit.datasets.batches import BatchResult

    Report = Callable[["Batch"], None]

FILES_PER_BATCH = 3


@dataclass(frozen=True)
class Batch:
    """What became of a batch."""

    number: int
    skipped: bool
    rows: Mapping[str, int]
    """How many were inserted, updated, deleted, late and quarantined."""

    renamed: Mapping[str, str]
    """The rewritten files: old name to new name."""

    new: Collection[str]
    """The new files that replace none."""

    untouched: Collection[str]
    written: int
    """The bytes of the rewritten and of the new files."""

    size: int
    """The bytes of the dataset afterwards."""

    seconds: float

    @classmethod
    def of(cls, number: int, result: MergeResult, quarantined: int, seconds: float) -> Batch:
        """Make it of the result of a merge."""
        sizes = {file.path: file.size_bytes or 0 for file in result.files}
        written = [*result.rewritten_files, *result.inserted_files]
        counts = {
            "inserted": result.inserted,
            "updated": result.updated,
            "deleted": result.deleted,
            "late": result.late,
            "quarantined": quarantined,
        }
        return cls(
            number,
            result.metrics["commit"]["skipped"],
            counts,
            result.metrics.get("renamed", {}),
            result.inserted_files,
            result.preserved_files,
            sum(sizes[path] for path in written),
            sum(sizes.values()),
            seconds,
        )


@dataclass(frozen=True)
class Job:
    """What a driver does."""

    landing: str
    orders: str
    engine: str
    log: str
    """The file that gets everything that it, and Java, print."""

    stop_after: int | None = None
    """The batch after whose commit the driver stops, before it notes that the batch is done."""

    def run(self, report: Report) -> None:
        """Apply all that has landed, in a process of its own."""
        if self._run_driver(report) != 0:
            raise RuntimeError(f"the driver failed:\n{self._end_of_log()}")

    def run_until_killed(self, batch: int, report: Report) -> signal.Signals:
        """Do it until a batch is committed; kill the process and its Java then with -9."""
        code = replace(self, stop_after=batch)._run_driver(report)
        if code >= 0:
            raise RuntimeError(f"the driver ended before it could be killed:\n{self._end_of_log()}")
        return signal.Signals(-code)

    def _end_of_log(self) -> str:
        return Path(self.log).read_text(errors="replace")[-4000:]

    def _run_driver(self, report: Report) -> int:
        """Start a driver, wait for its end, and return its exit code."""
        here, there = multiprocessing.Pipe()
        driver = multiprocessing.get_context("spawn").Process(target=_drive, args=(self, there))
        driver.start()
        there.close()  # or the end of the driver would never be seen here
        try:
            while (message := here.recv()) is not None:
                if isinstance(message, FsspeckitError):
                    raise message
                report(message)
            _kill(driver)  # it has stopped
        except EOFError:
            pass  # it has ended
        except BaseException:
            _kill(driver)
            raise
        finally:
            driver.join()
        return driver.exitcode or 0


def _kill(driver: Any) -> None:
    """Kill a driver and its Java, which are one group of processes."""
    with suppress(ProcessLookupError):
        os.killpg(driver.pid, signal.SIGKILL)
    driver.kill()


def _drive(job: Job, parent: Connection) -> None:
    """Apply what has landed; stop for ever after a commit, if the job says so."""
    os.setsid()  # a group that can be killed together with its Java
    with open(job.log, "ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)

    def report(batch: Batch) -> None:
        parent.send(batch)
        if batch.number == job.stop_after:
            parent.send(None)
            parent.recv()  # for ever, or until the parent itself is gone

    try:
        (_stream if job.engine == "spark" else _loop)(job, report)
    except FsspeckitError as error:
        parent.send(error)


def _stream(job: Job, report: Report) -> None:
    """Run the query of the example; its sink reports before Spark learns that it has returned."""
    import streaming_orders

    sink = streaming_orders.orders_sink(job.orders)

    def apply(rows: DataFrame, number: int) -> None:
        sink(rows, number)
        done: BatchResult = sink.last_result
        quarantined = done.counts.get("quarantined", 0)
        report(Batch.of(number, done.result, quarantined, done.seconds))

    spark = streaming_orders.open_spark()
    changes = streaming_orders.landed_changes(spark, job.landing, FILES_PER_BATCH)
    streaming_orders.apply_landed(changes, apply, job.orders)
    spark.stop()


def _loop(job: Job, report: Report) -> None:
    """Apply the next files as one batch, then note its number, until there are no more."""
    checkpoint = Path(f"{job.orders}-checkpoint")
    checkpoint.mkdir(exist_ok=True)
    with open_engine(job.engine) as io:
        while True:
            number = len(list(checkpoint.iterdir()))
            landed = sorted(Path(job.landing).glob("[!._]*.json"))
            files = landed[number * FILES_PER_BATCH :][:FILES_PER_BATCH]
            if not files:
                return
            started = time.monotonic()
            changes = nightly_orders.read_changes(files)
            batch = Transaction("orders-feed", number)
            result, bad = nightly_orders.apply_batch(io, changes, job.orders, batch)
            report(Batch.of(number, result, bad, time.monotonic() - started))
            (checkpoint / str(number)).touch()
