"""A shop's orders over four days: each day's changes go in, and only what changes is rewritten.

Makes an orders dataset partitioned by day, upserts three daily batches with the plan of each shown
first, kills a fourth in the middle of its commit, recovers, and draws which files were touched.
Everything is done by the calls of the package itself.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq

import fsspeckit
from fsspeckit.errors import FsspeckitError
from orders_demo.crash import Job, merge_and_kill
from orders_demo.picture import Picture
from orders_demo.screen import Screen, count
from orders_demo.shop import FILES_PER_DAY, MIN_ROWS, Batch, Shop

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from contextlib import AbstractContextManager

    from fsspeckit.core.merge import MergeResult
    from fsspeckit.core.planning import MergePlan


def main() -> None:
    """Parse the arguments and run the demo."""
    options = arguments()
    try:
        with workplace(options.directory) as directory:
            Demo(Path(directory).resolve(), options.engine, Shop(options.rows)).run(options.picture)
    except FsspeckitError as error:
        sys.exit(f"\n{error}")


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--engine", choices=["spark", "duckdb", "pyarrow"], default="spark")
    parser.add_argument("--rows", type=int, default=2_000_000, help="orders before the first batch")
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


@dataclass(frozen=True)
class Effect:
    """What a batch did to the files."""

    rows: int
    """The rows of the batch."""

    renamed: Mapping[str, str]
    """The rewritten files: old name to new name."""

    new: Collection[str]
    """The new files that replace none."""

    untouched: Collection[str]
    written: int
    """The bytes of the rewritten and of the new files."""

    size: int
    """The bytes of the dataset afterwards."""

    def __str__(self) -> str:
        return (
            f"{count(len(self.renamed), 'file')} rewritten, {len(self.new)} new, "
            f"{len(self.untouched)} untouched; {shown(self.written)} of {shown(self.size)} written"
        )


class Demo:
    """The story, chapter by chapter."""

    def __init__(self, directory: Path, engine: str, shop: Shop) -> None:
        self.directory = directory
        self.dataset = directory / "orders"
        self.path = str(self.dataset)
        self.engine = engine
        self.shop = shop
        self.screen = Screen()
        self.picture = Picture()

    def run(self, picture: Path) -> None:
        """All of it."""
        started = time.perf_counter()
        self.make_dataset()
        *daily, last = self.shop.batches()
        self.compare([self.upsert(number, batch) for number, batch in enumerate(daily, 1)])
        self.crash(len(daily) + 1, last)
        self.print_history()
        self.picture.write(picture)
        self.screen.chapter("Which files each batch touched")
        self.screen.say("picture", f"{picture} (open it in a browser)")
        self.screen.say("time", f"{time.perf_counter() - started:.0f} s for everything")

    def make_dataset(self) -> None:
        """Write the orders of twenty days."""
        self.screen.chapter(f"A dataset of orders, partitioned by day, written with {self.engine}")
        landing = self.directory / "landing"
        with self.screen.waiting("other systems deliver twenty days of orders"):
            landing.mkdir()
            self.shop.land_history(landing)
        started = time.perf_counter()
        with self.screen.waiting(f"{self.engine} starts, and writes the dataset"):
            result = fsspeckit.write_dataset(
                str(landing),
                self.path,
                partition_by=["day"],
                max_rows_per_file=self.shop.rows_per_file,
                row_group_size=-(-self.shop.rows_per_file // 4),
                bloom_columns=["payment_id"],
                engine=self.engine,
            )
        self.picture.start(file.path for file in result.files)
        self.screen.say(
            "written",
            f"{result.total_rows:,} rows in {len(result.files)} plain Parquet files, "
            f"{FILES_PER_DAY} a day, {shown(sum(file.size_bytes or 0 for file in result.files))}, "
            f"in {time.perf_counter() - started:.1f} s",
        )

    def upsert(self, number: int, batch: Batch) -> Effect:
        """Plan a batch, merge it, and prove what was left alone."""
        self.screen.chapter(f"Batch {number}: {batch.title}")
        changes = self.land(batch)
        plan = self.show_plan(batch, changes)
        before = self.fingerprints()
        with self.screen.phases() as progress:
            result = fsspeckit.merge(
                self.source(changes),
                self.path,
                "upsert",
                batch.key_columns,
                engine=self.engine,
                progress=progress,
            )
        effect = effect_of(result)
        self.screen.say(
            "result", f"{count(result.updated, 'row')} updated, {result.inserted:,} inserted"
        )
        self.screen.say("files", str(effect))
        self.prove_untouched(before, effect)
        self.picture.add(f"Batch {number}", str(effect), plan, effect.renamed, effect.new)
        return effect

    def land(self, batch: Batch) -> str:
        """Let a batch arrive as Parquet, from another system."""
        directory = self.directory / "batches" / batch.title.partition(",")[0].replace(" ", "-")
        directory.mkdir(parents=True)
        pq.write_table(batch.orders, directory / "changes.parquet")
        return str(directory)

    def source(self, changes: str) -> Any:
        """A landed batch as the engine likes it: with Spark a DataFrame, else a table."""
        return fsspeckit.read_dataset(changes, engine=self.engine)

    def show_plan(self, batch: Batch, changes: str) -> MergePlan:
        """Show what a merge would do with each file, and why."""
        self.screen.say("source", f"{batch.summary}; key: {', '.join(batch.key_columns)}")
        with self.screen.waiting("planning"):
            plan = fsspeckit.plan_merge(
                self.source(changes), self.path, "upsert", batch.key_columns, engine=self.engine
            )
        self.screen.plan(plan)
        return plan

    def fingerprints(self) -> dict[str, tuple[str, int]]:
        """Every data file with a digest of its bytes, and its mtime."""
        return {
            str(path): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
            for path in self.dataset.rglob("*.parquet")
        }

    def prove_untouched(self, before: Mapping[str, tuple[str, int]], effect: Effect) -> None:
        """Compare the files that were left alone with what they were."""
        after = self.fingerprints()
        same = [path for path in effect.untouched if after.get(path) == before[path]]
        self.screen.say(
            "proof",
            f"{len(same)} of {len(effect.untouched)} untouched files have the same name, bytes and "
            "mtime as before",
        )
        if len(same) != len(effect.untouched):
            sys.exit("a file that should be untouched is not")

    def compare(self, effects: list[Effect]) -> None:
        """Compare the bytes that were written with the size of the dataset."""
        self.screen.chapter("Bytes written, against the size of the dataset")
        written, size = sum(e.written for e in effects), sum(e.size for e in effects)
        self.screen.table(
            ["batch", "rows", "rewritten", "new", "untouched", "written", "dataset", "share"],
            [
                [
                    str(number),
                    f"{effect.rows:,}",
                    str(len(effect.renamed)),
                    str(len(effect.new)),
                    str(len(effect.untouched)),
                    shown(effect.written),
                    shown(effect.size),
                    f"{effect.written / effect.size:.1%}",
                ]
                for number, effect in enumerate(effects, 1)
            ],
        )
        self.screen.say(
            "together", f"{shown(written)}; rewriting everything each time: {shown(size)}"
        )

    def crash(self, number: int, batch: Batch) -> None:
        """Let a process die in the middle of a commit, then recover."""
        self.screen.chapter(f"Batch {number}: {batch.title}, and a crash")
        changes = self.land(batch)
        plan = self.show_plan(batch, changes)
        before = self.fingerprints()
        with self.screen.phases() as progress:
            job = Job(changes, self.path, batch.key_columns, self.engine)
            ended = merge_and_kill(job, progress)
        entry = fsspeckit.history(self.path)[-1]
        self.screen.say(
            "killed", f"by {ended.name}; commit {entry.number} is recorded, but not complete"
        )
        self.show_reader(batch)
        (commit,) = fsspeckit.recover(self.path).completed
        self.screen.say("recover", str(commit))
        self.show_reader(batch)
        effect = self.recovered(before, batch, commit.added, commit.removed)
        self.screen.say("files", str(effect))
        self.prove_untouched(before, effect)
        title = f"Batch {number}, killed"
        self.picture.add(title, f"recovered: {effect}", plan, effect.renamed, effect.new)

    def show_reader(self, batch: Batch) -> None:
        """Read like somebody who knows nothing of this project."""
        found = ds.dataset(self.path, partitioning="hive")
        changed = found.count_rows(filter=ds.field("updated_at") == batch.updated_at)
        states = {0: "all of the state before", batch.orders.num_rows: "all of the batch"}
        self.screen.say(
            "reader",
            f"{found.count_rows():,} rows for any Parquet reader, {changed:,} of this batch: "
            f"{states.get(changed, 'HALF A MERGE')}",
        )

    def recovered(
        self,
        before: Mapping[str, tuple[str, int]],
        batch: Batch,
        added: Collection[str],
        removed: Collection[str],
    ) -> Effect:
        """What a recovered commit did; it replaced one file at most in each directory."""
        paths = {str(self.dataset / name) for name in added}
        by_day = {path.rpartition("/")[0]: path for path in sorted(paths)}
        old = [str(self.dataset / name) for name in removed]
        renamed = {path: by_day[path.rpartition("/")[0]] for path in old}
        sizes = {path: Path(path).stat().st_size for path in self.fingerprints()}
        return Effect(
            batch.orders.num_rows,
            renamed,
            paths - set(renamed.values()),
            before.keys() - renamed.keys(),
            sum(sizes[path] for path in paths),
            sum(sizes.values()),
        )

    def print_history(self) -> None:
        """List the commits."""
        self.screen.chapter("The history")
        for entry in fsspeckit.history(self.path):
            counts = ", ".join(f"{count:,} {name}" for name, count in entry.counts.items() if count)
            self.screen.say(
                str(entry.number),
                f"{entry.strategy:<7} +{len(entry.added)} -{len(entry.removed)} files"
                + (f", {counts}" if counts else "")
                + (", completed by recovery" if entry.recovered else ""),
            )


def effect_of(result: MergeResult) -> Effect:
    """What a merge did, from its result."""
    sizes = {file.path: file.size_bytes or 0 for file in result.files}
    written = [*result.rewritten_files, *result.inserted_files]
    return Effect(
        result.source_count,
        result.metrics["renamed"],
        result.inserted_files,
        result.preserved_files,
        sum(sizes[path] for path in written),
        sum(sizes.values()),
    )


def shown(size: int) -> str:
    """Bytes, for people."""
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"


if __name__ == "__main__":
    main()
