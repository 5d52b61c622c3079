"""Merges on an object store: how many requests they are, and how long they take if each is slow."""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import LIMIT_MISSED, Report, median
from benchmarks.peers.environments import PEERS, environment_of
from fsspeckit.testing.object_stores import KEY, REGION, SECRET, Moto

if TYPE_CHECKING:
    from collections.abc import Iterator

    from werkzeug.wrappers import Request, Response

    from fsspeckit.testing.object_stores import Answer, Asked

ROUND_TRIP_SECONDS = 0.03
MAX_REQUEST_RATIO = 1.3
"""How many requests a merge may be, in times of the fewest that its commit can be."""


@dataclass(frozen=True)
class Workload:
    """A merge, the fewest requests that it can be, and how slow it may be."""

    title: str
    files: int
    rows: int
    """Rows of each file."""

    changed_files: int
    """How many files have rows that change."""

    changed_rows: int
    """How many rows of each of them."""

    new_rows: int = 0
    least_requests: int | None = None
    max_ratio: float | None = None
    """The seconds that are aimed at, in times of those of delta-rs."""

    @property
    def strategy(self) -> str:
        """What is done with the source."""
        return "insert" if self.new_rows else "upsert"

    def table(self, number: int) -> pa.Table:
        """Return the rows of a file."""
        return _rows(np.arange(self.rows) + number * self.rows, 0)

    def source(self) -> pa.Table:
        """Return the rows of the merge, spread evenly."""
        if self.new_rows:
            return _rows(np.arange(self.new_rows) + self.files * self.rows, 1)
        inside = np.linspace(0, self.rows - 1, self.changed_rows).astype(np.int64)
        chosen = np.linspace(0, self.files - 1, self.changed_files).astype(np.int64)
        return _rows(np.concatenate([number * self.rows + inside for number in chosen]), 1)


def workloads(rows: int, files: int) -> list[Workload]:
    """Return all merges: files of so many rows, and so many files where there are many."""
    return [
        Workload("one row of 16 files", 16, rows, 1, 1, 0, 27, 1.2),
        Workload("100 rows in 2 of 16 files", 16, rows, 2, 50, 0, 32),
        Workload("1 % of all rows in 16 files", 16, rows, 16, rows // 100, 0, 72, 1.5),
        Workload("new rows beside 16 files", 16, rows, 0, 0, 100, 26, 1.2),
        Workload(f"20 rows in 20 of {files:,} files", files, 1_000, min(20, files), 1, 0, None, 1),
    ]


def _rows(ids: np.ndarray[Any, Any], value: int) -> pa.Table:
    draw = np.random.default_rng(0)
    columns: dict[str, Any] = {"id": ids, "value": np.full(len(ids), value)}
    columns |= {f"x{n}": draw.random(len(ids)) for n in range(3)}
    columns["text"] = [f"customer {number}" for number in draw.integers(0, 5000, len(ids))]
    return pa.table(columns)


_OURS = """
import io, json, sys, time
import fsspec
import pyarrow.parquet as pq
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
given = json.loads(sys.argv[1])
source = pq.read_table(given["source"])
fsspec.filesystem("s3", **given["options"]).exists(given["bucket"])
print("ready", flush=True)
input()
start = time.perf_counter()
with PyarrowDatasetIO(storage_options=given["options"]) as engine:
    result = engine.merge(source, given["path"], given["strategy"], ["id"])
seconds = time.perf_counter() - start
window = result.metrics["commit"]["window_seconds"]
print(seconds, result.updated, result.inserted, window, flush=True)
"""

_DELTA = """
import json, sys, time
import pyarrow.parquet as pq
from deltalake import DeltaTable, convert_to_deltalake
given = json.loads(sys.argv[1])
source = pq.read_table(given["source"])
convert_to_deltalake(given["path"], storage_options=given["delta"])
print("ready", flush=True)
input()
start = time.perf_counter()
table = DeltaTable(given["path"], storage_options=given["delta"])
merge = table.merge(
    source, "t.id = s.id", source_alias="s", target_alias="t", streamed_exec=False
)
if given["strategy"] == "upsert":
    merge = merge.when_matched_update_all()
found = merge.when_not_matched_insert_all().execute()
print(
    time.perf_counter() - start,
    found["num_target_rows_updated"],
    found["num_target_rows_inserted"],
    0,
    flush=True,
)
"""


@dataclass(frozen=True)
class Merged:
    """What a merge was for the store."""

    requests: list[Asked]
    seconds: float
    window_seconds: float
    """How long new and replaced files were there together."""

    @property
    def kinds(self) -> str:
        """How many requests of each kind, in words."""
        counts = Counter(request.action for request in self.requests)
        return ", ".join(f"{count} {name}" for name, count in counts.most_common())


class Bench:
    """A store whose answers take a while, and merges in processes of their own."""

    def __init__(self, place: Path) -> None:
        self._store = Moto()
        self._place = place
        self._bucket = self._store.make_bucket()
        self._count = 0

    def run(self, work: Workload, program: str, python: str) -> Merged:
        """Merge into a fresh dataset."""
        prefix = self._fill(work)
        source = self._place / "source.parquet"
        pq.write_table(work.source(), source)
        given = {
            "bucket": self._bucket,
            "path": f"s3://{self._bucket}/{prefix}",
            "strategy": work.strategy,
            "source": str(source),
            "options": self._store.options,
            "delta": {
                "AWS_ENDPOINT_URL": self._store.url,
                "AWS_ALLOW_HTTP": "true",
                "AWS_ACCESS_KEY_ID": KEY,
                "AWS_SECRET_ACCESS_KEY": SECRET,
                "AWS_REGION": REGION,
            },
        }
        with subprocess.Popen(
            [python, "-c", program, json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError(f"a merge could not begin: {python}")
            with self._store.following(_slowly), self._store.recording() as requests:
                process.stdin.write("go\n")
                process.stdin.flush()
                seconds, updated, inserted, window = process.stdout.readline().split()
        found = int(updated), int(inserted)
        assert found == (work.changed_files * work.changed_rows, work.new_rows), found
        return Merged(requests, float(seconds), float(window))

    def _fill(self, work: Workload) -> str:
        """Put the files of a dataset below a prefix of its own."""
        self._count += 1
        prefix = f"lake{self._count}/data"
        client = self._store.client()
        for number in range(work.files):
            buffer = io.BytesIO()
            pq.write_table(work.table(number), buffer, row_group_size=max(1, work.rows // 4))
            key = f"{prefix}/part-{number:05}.parquet"
            client.put_object(Bucket=self._bucket, Key=key, Body=buffer.getvalue())
        return prefix

    def stop(self) -> None:
        """Stop the store."""
        self._store.stop()


def _slowly(request: Request, answer: Answer) -> Response:
    time.sleep(ROUND_TRIP_SECONDS)
    return answer()


def _peer() -> str | None:
    """Return the Python of the environment that has delta-rs."""
    python = environment_of(PEERS) / "bin" / "python"
    if not python.exists():
        return None
    done = subprocess.run([str(python), "-c", "import deltalake"], capture_output=True)
    return None if done.returncode else str(python)


def _measure(
    bench: Bench, chosen: list[Workload], rounds: int
) -> Iterator[tuple[Workload, list[Merged], list[Merged]]]:
    peer = _peer()
    for work in chosen:
        print(work.title, file=sys.stderr, flush=True)
        ours, theirs = [], []
        for _ in range(rounds):
            ours.append(bench.run(work, _OURS, sys.executable))
            if peer is not None:
                theirs.append(bench.run(work, _DELTA, peer))
        yield work, ours, theirs


def _cells(merged: list[Merged]) -> list[str]:
    if not merged:
        return ["", ""]
    seconds = median([one.seconds for one in merged])
    return [f"{_requests(merged):,}", f"{seconds:.2f} s"]


def _requests(merged: list[Merged]) -> int:
    return max(len(one.requests) for one in merged)


def main(arguments: list[str] | None = None) -> int:
    """Measure, write the page, and return `LIMIT_MISSED` if a merge is too many requests."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bench_object_store", description=__doc__
    )
    parser.add_argument("--quick", action="store_true", help="a tiny form, to see that it runs")
    parser.add_argument("--rounds", type=int, default=3, help="of each merge")
    parser.add_argument("--no-page", action="store_true", help="print the figures, write no page")
    given = parser.parse_args(arguments)
    report = Report(
        "object-store",
        "Object stores",
        "The first merge into a dataset on moto, with s3fs, on the PyArrow engine. "
        f"{ROUND_TRIP_SECONDS * 1000:g} ms are added to every request, as to a store in another "
        "building. delta-rs merges the same rows into the same files, and leaves out those that "
        "statistics rule out (`streamed_exec=False`). Each merge runs in a "
        "process of its own that has imported its library and opened a connection; the store "
        "runs in a third one. Requests are the most of all rounds, seconds the median. "
        "The window is how long other readers saw new and replaced files together.",
    )
    with tempfile.TemporaryDirectory() as place:
        bench = Bench(Path(place))
        try:
            chosen = workloads(2_000, 30) if given.quick else workloads(100_000, 500)
            found = list(_measure(bench, chosen, 1 if given.quick else given.rounds))
        finally:
            bench.stop()
    is_held = _report(report, found)
    if given.no_page:
        print("\n".join(report.lines))
    else:
        report.write()
    return 0 if is_held else LIMIT_MISSED


def _report(report: Report, found: list[tuple[Workload, list[Merged], list[Merged]]]) -> bool:
    """Add the tables and the targets; return whether every target was held."""
    report.lines += ["| merge | requests | seconds | window | delta-rs requests | its seconds |"]
    report.lines += ["| --- | ---: | ---: | ---: | ---: | ---: |"]
    for work, ours, theirs in found:
        window = f"{median([one.window_seconds for one in ours]):.2f} s"
        cells = [work.title, *_cells(ours), window, *_cells(theirs)]
        report.lines.append(f"| {' | '.join(cells)} |")
    report.lines += ["", "## Targets", ""]
    held = []
    for work, ours, theirs in found:
        if work.least_requests is not None:
            what = f"{work.title}: {_requests(ours)} requests, in times of {work.least_requests}"
            ratio = _requests(ours) / work.least_requests
            held.append(report.claim(what, ratio, MAX_REQUEST_RATIO))
        if work.max_ratio is not None and theirs:
            ratio = median([o.seconds for o in ours]) / median([t.seconds for t in theirs])
            what = f"{work.title}: seconds, in times of those of delta-rs"
            held.append(report.claim(what, ratio, work.max_ratio))
    report.lines += ["", "## Requests by kind", ""]
    for work, ours, _ in found:
        report.lines.append(f"- {work.title}: {max(ours, key=lambda one: len(one.requests)).kinds}")
    return all(held)


if __name__ == "__main__":
    raise SystemExit(main())
