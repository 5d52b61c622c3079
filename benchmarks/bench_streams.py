"""What a batch of a stream costs: against the same merge called directly, and against peers.

With ``--quick`` everything is small, and no page is written.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from benchmarks.harness import Report, median
from benchmarks.peers.protocol import link_tree
from benchmarks.peers.registry import ENTRIES
from benchmarks.peers.runner import Process, WorkerError
from benchmarks.spark_session import local_session
from benchmarks.stream_feed import SPARK_SCHEMA, Feed, Shares

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from fsspeckit.core.merge import MergeResult

_ENDS = 20
"""How many batches at either end of the run are compared."""

_OPTIONS: dict[str, Any] = {
    "order_by": "seq",
    "only_newer": "seq",
    "delete_when": "gone",
    # Without it there is one more small file after each batch, and late rows are looked for in all.
    "auto_compact": True,
    "target_file_bytes": 2 * 1024 * 1024,
}
_PEERS = ("spark-fsspeckit", "spark-delta", "spark-hudi")
_TURN = 10
"""How many batches a system applies before it is the turn of the next one."""

_LIMIT = 900.0


def main() -> None:
    """Run both comparisons and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=200, help="of the stream against the merge")
    parser.add_argument("--peer-batches", type=int, default=40, help="of each peer")
    parser.add_argument("--quick", action="store_true", help="little of everything; no page")
    arguments = parser.parse_args()
    table: dict[str, Any] = {"files": 8, "rows": 5000} if arguments.quick else {}
    batches, peers = (12, 4) if arguments.quick else (arguments.batches, arguments.peer_batches)
    feed = Feed(**table)
    report = Report(
        "streams",
        "Streams",
        "Changes land as files of JSON with 1,000 rows each, and each file is a batch of a "
        "streaming query in a local Spark session. Of the rows of a batch 25 % are new, 3 % "
        "delete, 2 % are there twice or beside an older change of their key, 2 % are late; the "
        "rest are updates, half of rows that came in the last ten batches and half of rows of the "
        f"last four files. The table has {feed.files} files of {feed.rows:,} rows.",
    )
    with tempfile.TemporaryDirectory() as scratch:
        _against_merge(report, Path(scratch) / "merge", batches, table)
        _against_peers(report, Path(scratch) / "peers", peers, table)
    if arguments.quick:
        print(report.render())
    else:
        report.write()


@dataclass
class Both:
    """Applies each batch twice: by the sink, and by a merge into another copy of the table."""

    spark: SparkSession
    landing: Path
    place: Path
    direct_seconds: list[float] = field(default_factory=list)
    sink_seconds: list[float] = field(default_factory=list)
    direct_results: list[MergeResult] = field(default_factory=list)

    def __post_init__(self) -> None:
        from fsspeckit import MergeSink
        from fsspeckit.datasets.spark import SparkDatasetIO

        self._io = SparkDatasetIO(self.spark)
        self._sink = MergeSink(f"{self.place}/stream", ["id"], **_OPTIONS)
        # Not in the thread of the stream, whose session and properties are the stream's.
        self._other = ThreadPoolExecutor(1)

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Take turns at who is first."""
        if number % 2:
            self._other.submit(self._merge, number).result()
        start = time.perf_counter()
        self._sink(batch, number)
        self.sink_seconds.append(time.perf_counter() - start)
        if not number % 2:
            self._other.submit(self._merge, number).result()

    def _merge(self, number: int) -> None:
        start = time.perf_counter()
        file = Feed.file(self.landing, number)
        frame = self.spark.read.schema(SPARK_SCHEMA).json(str(file))
        path = f"{self.place}/direct"
        self.direct_results.append(self._io.merge(frame, path, "upsert", ["id"], **_OPTIONS))
        self.direct_seconds.append(time.perf_counter() - start)

    def run(self) -> list[float]:
        """Apply all files; gives how long each batch took, without the merge beside it."""
        changes = self.spark.readStream.schema(SPARK_SCHEMA).option("maxFilesPerTrigger", 1)
        query = (
            changes.json(str(self.landing))
            .writeStream.foreachBatch(self)
            .option("checkpointLocation", f"{self.place}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        self._other.shutdown()
        progress = [one for one in query.recentProgress if one["numInputRows"]]
        whole = [one["durationMs"]["triggerExecution"] / 1000 for one in progress]
        assert len(whole) == len(self.direct_seconds)
        return [all_ - direct for all_, direct in zip(whole, self.direct_seconds, strict=True)]


def _against_merge(report: Report, place: Path, batches: int, table: dict[str, Any]) -> None:
    spark = local_session("streams", {"spark.sql.streaming.numRecentProgressUpdates": "10000"})
    # A merge has no tombstones: a late change after a deletion would bring the row back.
    shares = Shares(late_after_delete=0)
    # The JIT compiler has its work before the first batch that counts.
    for name, count in (("warm-up", min(batches, 15)), ("run", batches)):
        feed = Feed(**table, shares=shares)
        here = place / name
        feed.write_table(here / "stream")
        link_tree(here / "stream", here / "direct")
        feed.land(here / "landing", count)
        both = Both(spark, here / "landing", here)
        whole = both.run()
    for copy in ("stream", "direct"):
        assert feed.difference(pq.read_table(here / copy)) == "", copy
    spark.stop()
    cases = {"merge": both.direct_seconds, "sink": both.sink_seconds, "batch": whole}
    report.table(f"{batches} batches of 1,000 rows", cases)
    report.note(
        "*merge* is `merge` of a data frame over the file of the batch, called directly, into "
        "another copy of the table in the same state; *sink* is the same done by `MergeSink`; "
        "*batch* is the whole batch as Spark reports it, with what Spark itself does for it. "
        "The merge and the sink take turns at who is first. Both compact small files "
        "(`auto_compact=True`), which is a part of their time. Both tables have the rows of a "
        "model at the end."
    )
    direct = median(both.direct_seconds)
    report.claim("sink, in times of the merge", median(both.sink_seconds) / direct, 1.5)
    report.claim("whole batch, in times of the merge", median(whole) / direct, 1.5)
    for name, seconds in cases.items():
        growth = median(seconds[-_ENDS:]) / median(seconds[:_ENDS])
        what = f"{name}: the last {_ENDS} in times of the first {_ENDS}"
        report.claim(what, growth, 1.3)
    _growth(report, both.direct_results)


def _growth(report: Report, results: Sequence[MergeResult]) -> None:
    """Where the time goes at the beginning and at the end, and how many files there are."""
    ends = {"first": results[:_ENDS], "last": results[-_ENDS:]}
    phases = list(results[-1].metrics["seconds"])
    report.lines += ["", f"| median of the merges | {' | '.join(f'{e} {_ENDS}' for e in ends)} |"]
    report.lines += ["| --- | ---: | ---: |"]
    for phase in phases:
        cells = [median([r.metrics["seconds"].get(phase, 0.0) for r in rs]) for rs in ends.values()]
        report.lines.append(f"| {phase} | " + " | ".join(f"{cell:.3f} s" for cell in cells) + " |")
    counts = {
        "files of the table": [median([float(len(r.files)) for r in rs]) for rs in ends.values()],
        "files rewritten": [
            median([float(len(r.rewritten_files)) for r in rs]) for rs in ends.values()
        ],
    }
    for what, cells in counts.items():
        report.lines.append(f"| {what} | " + " | ".join(f"{cell:.0f}" for cell in cells) + " |")
    report.lines.append("")


class Peers:
    """A session of each system that can be run, and what was seen of it."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.processes: dict[str, Process] = {}
        self.versions: dict[str, dict[str, str]] = {}
        self.problems: dict[str, str] = {}
        self.batches: dict[str, list[dict[str, float]]] = {}

    def __enter__(self) -> Peers:
        for name in _PEERS:
            try:
                log = self.scratch.parent / f"{name}.log"
                self.processes[name] = Process(ENTRIES[name], log, "stream_worker")
                self.versions[name] = self.ask(name, "versions")
                self.batches[name] = []
            except WorkerError as error:
                self.give_up(name, error)
        return self

    def __exit__(self, *exception: object) -> None:
        for process in self.processes.values():
            process.close()

    def ask(self, name: str, action: str, **task: str) -> dict[str, Any]:
        """Let a system do something."""
        answer = self.processes[name].ask({"action": action, **task}, _LIMIT)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    def give_up(self, name: str, error: WorkerError) -> None:
        """Write down why a system cannot be run any further."""
        self.problems[name] = str(error)
        print(f"{name}: {error}", flush=True)
        if name in self.processes:
            self.processes.pop(name).stop()

    def run(self, label: str, feed: Feed, batches: int) -> None:
        """Let all systems apply the same batches, in turns."""
        files, landing = self.scratch / label / "files", self.scratch / label / "landing"
        feed.write_table(files)
        self._each("make", label, files=str(files))
        for done in range(0, batches, _TURN):
            feed.land(landing, min(_TURN, batches - done))
            for name, answer in self._each("stream", label, landing=str(landing)).items():
                self.batches[name] += answer["batches"]

    def _each(self, action: str, label: str, **task: str) -> dict[str, dict[str, Any]]:
        answers = {}
        for name in list(self.processes):
            try:
                place = str(self.scratch / label / name)
                answers[name] = self.ask(name, action, place=place, **task)
            except WorkerError as error:
                self.give_up(name, error)
        return answers

    def difference(self, name: str, label: str, feed: Feed) -> str:
        """What is wrong with the rows of a system, or nothing."""
        out = str(self.scratch / f"{name}.parquet")
        self.ask(name, "rows", place=str(self.scratch / label / name), out=out)
        return feed.difference(pq.read_table(out))


def _against_peers(report: Report, scratch: Path, batches: int, table: dict[str, Any]) -> None:
    feed = Feed(**table)
    with Peers(scratch) as peers:
        peers.run("warm-up", Feed(**table), min(batches, 5))
        for name in peers.batches:
            peers.batches[name] = []
        peers.run("run", feed, batches)
        differences = {name: peers.difference(name, "run", feed) for name in peers.processes}
    report.lines += [f"## {batches} batches by peers", ""]
    report.note(
        "The same feed, in which 0.5 % of the rows are late changes of rows that were deleted "
        "in an earlier batch. The systems take turns, ten batches each, in warm sessions of their "
        "own. fsspeckit is `ApplyChangesSink`. Delta Lake is the `MERGE` of its documentation in "
        "`foreachBatch`: the last change of each key in the batch, deletes and updates only where "
        "the sequence is greater than the stored one. Hudi is its own streaming sink, "
        "copy-on-write, ordered by the sequence, with `_hoodie_is_deleted`. Rows are compared "
        "with a model after the last batch."
    )
    report.lines += ["| system | Spark | median batch | fastest | slowest | times ours | rows |"]
    report.lines += ["| --- | --- | ---: | ---: | ---: | ---: | --- |"]
    report.lines += [_peer_line(peers, name, differences.get(name, "")) for name in _PEERS]
    report.lines.append("")


def _peer_line(peers: Peers, name: str, difference: str) -> str:
    title = ENTRIES[name].title.partition(",")[0]
    if name in peers.problems:
        return f"| {title} | | | | | | failed: {peers.problems[name]} |"
    seconds = [batch["triggerExecution"] for batch in peers.batches[name]]
    cells = [f"{value:.2f} s" for value in (median(seconds), min(seconds), max(seconds))]
    ours = [batch["triggerExecution"] for batch in peers.batches.get(_PEERS[0], [])]
    ratio = f"{median(seconds) / median(ours):.2f}x" if ours else "–"
    versions = peers.versions[name]
    rows = f"**wrong**: {difference}" if difference else "right"
    return f"| {title} | {versions['Spark']} | {' | '.join(cells)} | {ratio} | {rows} |"


if __name__ == "__main__":
    main()
