"""Merges on an object store: how many requests they are, and how long they take if each is slow."""

from __future__ import annotations

import argparse
import io
import json
import re
import subprocess
import sys
import tempfile
from bisect import bisect_right
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import LIMIT_MISSED, Report, median
from benchmarks.peers.environments import PEERS, environment_of
from fsspeckit.testing.object_stores import KEY, REGION, SECRET, Moto, longest_chain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fsspeckit.testing.object_stores import Answered, Asked

ROUND_TRIP_SECONDS = 0.03
MAX_REQUEST_RATIO = 1.3
"""How many requests a merge may be, in times of the fewest that its commit can be."""

_MAX_CHAIN_FILES = 50
"""Of how many files a time line is printed: of more it would be pages."""

_MS_PER_CHARACTER = 10


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
import json, sys, time
import pyarrow.parquet as pq
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.storage import open_storage
given = json.loads(sys.argv[1])
source = pq.read_table(given["source"])
open_storage(f"s3://{given['bucket']}/connects", storage_options=given["options"])
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

    requests: list[Answered]
    seconds: float
    window_seconds: float
    """How long new and replaced files were there together."""

    @property
    def kinds(self) -> str:
        """How many requests of each kind, in words."""
        return _kinds(request.asked.action for request in self.requests)

    @property
    def chain(self) -> int:
        """How many requests came one after the other, each after an answer."""
        return len(longest_chain(self.requests))

    @property
    def rounds(self) -> list[list[Answered]]:
        """The requests, by how many answers of the chain they came after."""
        ends = [request.end for request in longest_chain(self.requests)]
        found: list[list[Answered]] = [[] for _ in ends]
        for request in sorted(self.requests, key=attrgetter("start")):
            found[bisect_right(ends[:-1], request.start)].append(request)
        return found


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
            with self._store.timing(ROUND_TRIP_SECONDS) as requests:
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


@contextmanager
def _opened() -> Iterator[Bench]:
    with tempfile.TemporaryDirectory() as place:
        bench = Bench(Path(place))
        try:
            yield bench
        finally:
            bench.stop()


def _kinds(names: Iterable[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in Counter(names).most_common())


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
        return ["", "", ""]
    seconds = median([one.seconds for one in merged])
    return [f"{_requests(merged):,}", f"{_chain(merged):,}", f"{seconds:.2f} s"]


def _requests(merged: list[Merged]) -> int:
    return max(len(one.requests) for one in merged)


def _chain(merged: list[Merged]) -> int:
    """Return the shortest chain: a machine that is busy sends some requests too late."""
    return min(one.chain for one in merged)


@dataclass(frozen=True)
class Purpose:
    """What requests of ours are about."""

    action: str
    key: str
    """A regular expression for the end of their key."""

    label: str
    reasons: tuple[str, ...]
    """Why each is made when it is made, by how many rounds have had one before."""


_PURPOSES = (
    Purpose(
        "ListObjectsV2",
        r"fsspeckit/$",
        "control directory",
        ("which commits there are", "what is left in staging"),
    ),
    Purpose(
        "ListObjectsV2",
        r"data/$",
        "data files",
        (
            "which files there are",
            "nobody has changed a file while new ones were staged",
            "the dataset is as committed: no answer says that every removal was done",
        ),
    ),
    Purpose(
        "ListObjectsV2",
        r"commits/$",
        "records",
        (
            "nobody has committed",
            "the number of the record was not used and folded before: else it does not count",
        ),
    ),
    Purpose(
        "ListObjectsV2",
        r"\.staging_\w+/$",
        "staged objects",
        ("all are whole, before a record says so",),
    ),
    Purpose(
        "ListObjectsV2",
        r"data/part-[^/]*$",
        "replaced objects",
        ("each is the one that was read, or it stays",),
    ),
    Purpose(
        "GetObject",
        r"data/[^/]*parquet$",
        "data files",
        ("footers of the files that are there", "files in which a footer allows a key"),
    ),
    Purpose(
        "PutObject",
        r"owner\.json$",
        "owner of staged objects",
        ("others leave them alone; only the record waits for it",),
    ),
    Purpose("PutObject", r"staged$", "staged objects", ("new files, made of what was read",)),
    Purpose("PutObject", r"done\.json$", "mark", ("the commit needs no recovery any more",)),
    Purpose(
        "PutObject",
        r"commits/\d+\.json$",
        "record",
        ("the commit point, after all checks; refused if another writer was first",),
    ),
    Purpose(
        "CopyObject",
        r"parquet$",
        "new data files",
        ("not before the record counts",),
    ),
    Purpose(
        "DeleteObjects",
        r"",
        "replaced and staged objects",
        ("not before the last copy: a reader would miss rows",),
    ),
    Purpose("DeleteObject", r"staged$", "staged objects", ("they are copied",)),
    Purpose("DeleteObject", r"owner\.json$", "owner of staged objects", ("they are gone",)),
)


_ABOUT_CHAINS = (
    "A line has the requests between two answers that were waited for; most of them are sent at "
    "the same moment. delta-rs puts a new file where it stays, and one entry into its log: readers "
    "that know the log see both or none, and nothing is moved or removed. Readers of plain Parquet "
    "have only the names of the objects. So new files wait in staging until the record is there, "
    "are copied to their names after it, and replaced ones are removed after that. A merge returns "
    "when a listing shows all of this, and the mark says that nobody has to look after it "
    "([0095](../adr/0095-independent-requests-are-sent-together.md))."
)


def _purpose(asked: Asked) -> Purpose | None:
    """Return what a request of ours is about; None if it is not one of ours."""
    of_action = (purpose for purpose in _PURPOSES if purpose.action == asked.action)
    return next((found for found in of_action if re.search(found.key, asked.key)), None)


def _label(asked: Asked) -> str:
    """Return what a request is about, without the identifiers in its key."""
    purpose = _purpose(asked)
    if purpose is not None:
        return f"{asked.action} {purpose.label}"
    name = re.sub(r"[0-9a-f-]{30,}", "…", "/".join(asked.key.split("/")[-2:]))
    return f"{asked.action} `{name}`"


def _chain_table(merged: list[Merged], *, is_ours: bool) -> list[str]:
    """Return the requests of the shortest chain as a table, round trip by round trip."""
    shortest = min(merged, key=attrgetter("chain"))
    lines = ["| round trip | starts | requests | why |", "| ---: | ---: | --- | --- |"]
    first = min(request.start for request in shortest.requests)
    seen: Counter[Purpose] = Counter()
    for number, requests in enumerate(shortest.rounds, 1):
        asked = [request.asked for request in requests]
        purposes = dict.fromkeys(filter(None, map(_purpose, asked if is_ours else ())))
        reasons = [one.reasons[min(seen[one], len(one.reasons) - 1)] for one in purposes]
        seen.update([*purposes])
        start = 1000 * (min(request.start for request in requests) - first)
        what = _kinds(map(_label, asked))
        lines.append(f"| {number} | {start:.0f} ms | {what} | {'; '.join(reasons)} |")
    return lines


def _time_line(merged: Merged) -> list[str]:
    """Return the requests of a merge in the order in which they came, with a bar for each."""
    chain = longest_chain(merged.requests)
    requests = sorted(merged.requests, key=attrgetter("start"))
    first = requests[0].start
    lines = []
    for request in requests:
        start, end = 1000 * (request.start - first), 1000 * (request.end - first)
        before, taken = round(start / _MS_PER_CHARACTER), round((end - start) / _MS_PER_CHARACTER)
        bar = f"{' ' * before}{('#' if request in chain else '-') * max(1, taken)}"
        lines.append(f"{start:6.0f} {end:6.0f} ms  {_label(request.asked):45.45}  {bar}")
    count = f"{len(requests)} requests, {len(chain)} of them one after the other (#)"
    return [*lines, f"{count}, {merged.seconds:.2f} s", ""]


def _print_chains(bench: Bench, chosen: list[Workload]) -> None:
    """Print what each merge waits for, ours and that of delta-rs."""
    for work, ours, theirs in _measure(bench, chosen, 1):
        for name, merged in (("fsspeckit", ours), ("delta-rs", theirs)):
            for one in merged:
                print("\n".join([f"{work.title}, {name}", *_time_line(one)]), flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Measure, write the page, and return `LIMIT_MISSED` if a merge is too many requests."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bench_object_store", description=__doc__
    )
    parser.add_argument("--quick", action="store_true", help="a tiny form, to see that it runs")
    parser.add_argument("--rounds", type=int, default=3, help="of each merge")
    parser.add_argument("--no-page", action="store_true", help="print the figures, write no page")
    parser.add_argument(
        "--chain", action="store_true", help="print the requests of each merge on a time line"
    )
    given = parser.parse_args(arguments)
    chosen = workloads(2_000, 30) if given.quick else workloads(100_000, 500)
    if given.chain:
        with _opened() as bench:
            _print_chains(bench, [work for work in chosen if work.files <= _MAX_CHAIN_FILES])
        return 0
    report = Report(
        "object-store",
        "Object stores",
        "The first merge into a dataset on moto, with s3fs, on the PyArrow engine. "
        f"{ROUND_TRIP_SECONDS * 1000:g} ms are added to every request, as to a store in another "
        "building. delta-rs merges the same rows into the same files, and leaves out those that "
        "statistics rule out (`streamed_exec=False`). Each merge runs in a "
        "process of its own that has imported its library and opened a connection; the store "
        "runs in a third one. Requests are the most of all rounds, seconds the median. "
        "Round trips are the requests that came one after the other, each after an answer: "
        "what a merge waits for, however fast it computes. "
        "The window is how long other readers saw new and replaced files together.",
    )
    with _opened() as bench:
        found = list(_measure(bench, chosen, 1 if given.quick else given.rounds))
    is_held = _report(report, found)
    if given.no_page:
        print("\n".join(report.lines))
    else:
        report.write()
    return 0 if is_held else LIMIT_MISSED


def _report(report: Report, found: list[tuple[Workload, list[Merged], list[Merged]]]) -> bool:
    """Add the tables and the targets; return whether every target was held."""
    peer = "delta-rs requests | its round trips | its seconds"
    report.lines += [f"| merge | requests | round trips | seconds | window | {peer} |"]
    report.lines += [f"| --- |{' ---: |' * 7}"]
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
    report.lines += ["", "## Round trips, one by one", "", _ABOUT_CHAINS]
    for work, ours, theirs in found:
        if work.changed_files <= 1:
            report.lines += ["", f"### {work.title}: fsspeckit", ""]
            report.lines += _chain_table(ours, is_ours=True)
            if theirs:
                report.lines += ["", f"### {work.title}: delta-rs", ""]
                report.lines += _chain_table(theirs, is_ours=False)
    return all(held)


if __name__ == "__main__":
    raise SystemExit(main())
