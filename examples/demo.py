"""A day of a shop's orders: files land, a stream merges them, is killed, and goes on.

An orders dataset of twenty days is there. A day of changes lands as JSON lines, with updates,
deletes, duplicates, late and bad rows. A stream applies them batch by batch; its driver is killed
with -9 after a commit that Spark has not noted yet, and started again. The result is compared with
a model, and a picture shows which files each batch touched.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import fsspeckit
from fsspeckit.errors import FsspeckitError
from orders_demo.driver import FILES_PER_BATCH, Batch, Job
from orders_demo.picture import Picture
from orders_demo.screen import Batches, Screen, count, size
from orders_demo.shop import LANDED_FILES, MIN_ROWS, Shop, first_day

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

MORNING = 15
"""The files that have landed when the driver starts."""

KILLED = 3
"""The batch after whose commit the driver is killed."""


def main() -> None:
    """Parse the arguments and run the demo."""
    options = arguments()
    try:
        if options.engine == "spark":
            from fsspeckit.datasets.spark.session import check_java

            check_java()
        with workplace(options.directory) as directory:
            Demo(Path(directory).resolve(), options.engine, Shop(options.rows)).run(options.picture)
    except (FsspeckitError, RuntimeError) as error:
        sys.exit(f"\n{error}")


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--engine",
        choices=["spark", "duckdb", "pyarrow"],
        default="spark",
        help="Spark with Structured Streaming; the others with a loop, and without Java",
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="orders before the day")
    parser.add_argument(
        "--picture", type=Path, default=Path("build/demo.svg"), help="where to draw the picture"
    )
    parser.add_argument(
        "--directory", type=Path, help="work in this new directory and keep it, to look around"
    )
    options = parser.parse_args()
    if options.rows < MIN_ROWS:
        parser.error(f"--rows must be at least {MIN_ROWS:,}, got {options.rows:,}")
    if options.directory is not None and options.directory.exists():
        parser.error(f"--directory must not be there yet, but {options.directory} is")
    return options


def workplace(directory: Path | None) -> AbstractContextManager[str | Path]:
    """The directory of the demo: a new one that stays, or one that is removed at the end."""
    if directory is None:
        return tempfile.TemporaryDirectory(prefix="fsspeckit-demo-")
    directory.mkdir(parents=True)
    return nullcontext(directory)


class Demo:
    """The story, chapter by chapter."""

    def __init__(self, directory: Path, engine: str, shop: Shop) -> None:
        self.landing = directory / "landing"
        self.orders = directory / "orders"
        self.quarantine = directory / "orders-quarantine"
        self.checkpoint = directory / "orders-checkpoint"
        log = str(directory / "driver.log")
        self.job = Job(str(self.landing), str(self.orders), engine, log)
        self.shop = shop
        self.screen = Screen()
        self.picture = Picture()
        self.batches: list[Batch] = []

    @property
    def driver(self) -> str:
        """What applies the batches."""
        return "Spark" if self.job.engine == "spark" else "The loop"

    def run(self, picture: Path) -> None:
        """All of it."""
        started = time.perf_counter()
        self.make_dataset()
        before = self.fingerprints()
        self.morning()
        self.afternoon()
        self.compare(before)
        self.print_batches()
        self.picture.write(picture)
        self.screen.chapter("Which files each batch touched")
        self.screen.say("picture", f"{picture} (open it in a browser)")
        self.screen.say("time", f"{time.perf_counter() - started:.0f} s for everything")

    def make_dataset(self) -> None:
        """Write the orders of twenty days."""
        self.screen.chapter(f"A dataset of orders since {first_day()}, partitioned by day")
        with self.screen.waiting("twenty days of orders are written"):
            result = fsspeckit.write_dataset(
                self.shop.orders,
                str(self.orders),
                partition_by=["day"],
                max_rows_per_file=self.shop.rows_per_file,
                row_group_size=-(-self.shop.rows_per_file // 4),
                engine="pyarrow",
            )
        self.picture.start(file.path for file in result.files)
        self.screen.say(
            "written",
            f"{result.total_rows:,} rows in {len(result.files)} plain Parquet files, "
            f"{size(sum(file.size_bytes or 0 for file in result.files))}",
        )

    def land(self, first: int, last: int) -> None:
        """Let files land, one after another."""
        files = self.shop.day.files[first:last]
        self.landing.mkdir(exist_ok=True)
        for file in files:
            file.write(self.landing)
            time.sleep(0.005)  # Spark reads them in the order of their times, in milliseconds
        self.screen.say("landed", f"{len(files)} files, {self.shop.describe(first, last)}")

    def morning(self) -> None:
        """Let the driver start, and die between a commit and Spark's note of it."""
        self.screen.chapter(f"{self.driver} applies what lands, and is killed with -9")
        self.land(0, MORNING)
        with self.screen.batches("the driver starts, and applies batches", KILLED + 1) as bar:
            ended = self.job.run_until_killed(KILLED, lambda batch: self.show(batch, bar))
        noted = max(int(path.name) for path in self.noted_batches())
        committed = fsspeckit.history(self.orders)[-1].transaction
        assert committed is not None
        self.screen.warn(
            "killed",
            f"by {ended.name}: batch {committed.version} is committed, but {self.driver.lower()} "
            f"has noted batch {noted} as its last one",
        )
        landed = (KILLED + 1) * FILES_PER_BATCH
        rows = self.shop.check(self.orders, landed)
        self.screen.say("reader", f"{rows:,} rows: exactly those of the first {landed} files")

    def noted_batches(self) -> list[Path]:
        """What the driver has noted as done."""
        notes = self.checkpoint / "commits" if self.job.engine == "spark" else self.checkpoint
        return [path for path in notes.iterdir() if path.name.isdecimal()]

    def afternoon(self) -> None:
        """Let the rest of the day land, and start the driver again."""
        self.screen.chapter("It is started again, after the rest of the day has landed")
        self.land(MORNING, LANDED_FILES)
        left = LANDED_FILES // FILES_PER_BATCH - KILLED
        with self.screen.batches("the driver starts, and applies batches", left) as bar:
            self.job.run(lambda batch: self.show(batch, bar))

    def show(self, batch: Batch, bar: Batches) -> None:
        """Print what a batch did, and draw it."""
        bar.advance()
        self.batches.append(batch)
        rows = ", ".join(f"{number:,} {name}" for name, number in batch.rows.items())
        text = "committed already, so it is skipped" if batch.skipped else rows
        self.screen.say(f"batch {batch.number}", f"{text} ({batch.seconds:.1f} s)")
        is_killed = batch.number == KILLED and not batch.skipped
        killed = "killed with -9 after this commit, before it was noted" if is_killed else ""
        self.picture.add(batch, text if batch.skipped else effect(batch), killed)

    def compare(self, before: Mapping[str, tuple[str, int]]) -> None:
        """Compare everything with the model, and the files with what they were."""
        self.screen.chapter("The result, compared with the model")
        rows = self.shop.check(self.orders, LANDED_FILES)
        self.screen.say(
            "orders", f"{rows:,} rows, each value as in the model: nothing lost or twice"
        )
        bad = self.shop.check_quarantine(self.quarantine, LANDED_FILES)
        self.screen.say("quarantine", f"{count(bad, 'bad row')}, each as often as it landed")
        after = self.fingerprints()
        replaced = {name for entry in fsspeckit.history(self.orders) for name in entry.removed}
        untouched = [name for name in before if name not in replaced]
        same = [name for name in untouched if after.get(name) == before[name]]
        self.screen.say(
            "proof",
            f"{len(same)} of {len(untouched)} untouched files have the same name, bytes and mtime "
            "as before",
        )
        if len(same) != len(untouched):
            sys.exit("a file that should be untouched is not")

    def fingerprints(self) -> dict[str, tuple[str, int]]:
        """Every data file with a digest of its bytes, and its mtime."""
        return {
            path.relative_to(self.orders).as_posix(): (
                hashlib.sha256(path.read_bytes()).hexdigest(),
                path.stat().st_mtime_ns,
            )
            for path in self.orders.rglob("*.parquet")
        }

    def print_batches(self) -> None:
        """Print the files and bytes of each batch, against the size of the dataset."""
        self.screen.chapter("Files and bytes of each batch, against the size of the dataset")
        done = [batch for batch in self.batches if not batch.skipped]
        self.screen.table(
            ["batch", "rewritten", "new", "untouched", "written", "dataset", "share"],
            [
                [
                    str(batch.number),
                    str(len(batch.renamed)),
                    str(len(batch.new)),
                    str(len(batch.untouched)),
                    size(batch.written),
                    size(batch.size),
                    f"{batch.written / batch.size:.1%}",
                ]
                for batch in done
            ],
        )
        written, whole = sum(b.written for b in done), sum(b.size for b in done)
        self.screen.say(
            "together", f"{size(written)}; rewriting everything each time: {size(whole)}"
        )


def effect(batch: Batch) -> str:
    """What a batch did to the files, in words."""
    return (
        f"{count(len(batch.renamed), 'file')} rewritten, {len(batch.new)} new, "
        f"{len(batch.untouched)} untouched; {size(batch.written)} of {size(batch.size)} written"
    )


if __name__ == "__main__":
    main()
