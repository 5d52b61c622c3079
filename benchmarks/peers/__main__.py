"""The command of the benchmark against peers; without arguments everything is run.

With ``--quick`` one workload of each kind is merged by the most important peers, in under ten
minutes; the ratios are printed, and no page is written.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import platform
import shlex
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import PAGES
from benchmarks.peers import report
from benchmarks.peers.registry import ENTRIES, LOCAL, SPARK
from benchmarks.peers.results import Results, load
from benchmarks.peers.runner import ROOT, Bench, Settings
from benchmarks.peers.workloads import DEFAULT_ROWS, Workload, named_workloads, sweep
from benchmarks.state import current_state

if TYPE_CHECKING:
    from benchmarks.peers.protocol import Entry


def main(arguments: list[str] | None = None) -> None:
    """Run, and write the page."""
    given = _parser().parse_args(arguments)
    if given.quick:
        _quick(given)
        return
    name = "spark-peers" if given.spark else "peers"
    path = given.out / f"{name}.json"
    if given.page_only:
        report.write(load(path), given.out)
        return
    results = _results(path, given)
    every = [*named_workloads(given.rows), *sweep(given.rows)]
    results.titles = {workload.name: workload.title for workload in every}
    said = sys.argv[1:] if arguments is None else arguments
    results.commands.append(_command(said))
    results.machine = _machine()
    entries, workloads = _chosen(SPARK if given.spark else LOCAL, every, given.only)
    given.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=given.scratch) as scratch:
        settings = Settings(
            Path(scratch),
            given.rounds,
            given.limit,
            other_rounds=given.other_rounds,
            seconds_each=given.seconds_each,
        )
        bench = Bench(settings, results)
        run = bench.run_sessions if given.spark else bench.run_local
        run(bench.install_check(entries), workloads)
    report.write(results, given.out)


def _results(path: Path, given: argparse.Namespace) -> Results:
    """What an earlier run has measured on this very state of the code, or nothing yet."""
    state = current_state().line
    results = Results(path, given.rows)
    if given.resume and path.exists():
        known = load(path)
        if known.state == state:
            results = known
        else:
            print(f"{path.name} is of another state of the code, and measured again.", flush=True)
    if results.rows != given.rows:
        raise SystemExit(
            f"{path} is of {results.rows:,} rows; run without --resume, or with as many."
        )
    results.state = state
    results.runs = [run for run in results.runs if run.status in ("ok", "over")]
    return results


QUICK_WORKLOADS = (
    *("one-row", "clustered-100", "uuid-100", "newest-partition"),
    *("spread", "bulk", "insert-only"),
)
QUICK_SYSTEMS = (
    *("fsspeckit-pyarrow", "fsspeckit-no-fsync", "fsspeckit-key-index", "polars"),
    *("delta-rs", "lance", "ducklake", "pyiceberg"),
)


def _quick(given: argparse.Namespace) -> None:
    """Merge with few systems, and print the ratios."""
    entries = [ENTRIES[name] for name in QUICK_SYSTEMS]
    workloads = [w for w in named_workloads(given.rows) if w.name in QUICK_WORKLOADS]
    if given.only:
        entries, workloads = _chosen(tuple(entries), workloads, given.only)
    given.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=given.scratch) as scratch:
        results = Results(Path(scratch) / "quick.json", given.rows)
        results.titles = {workload.name: workload.title for workload in workloads}
        rounds, limit = min(2, given.rounds), min(15, given.limit)
        settings = Settings(Path(scratch), rounds, limit, other_rounds=1, seconds_each=8)
        bench = Bench(settings, results)
        bench.run_local(bench.install_check(entries), workloads)
    print("\n".join(["", current_state().line, "", *report.quick_lines(results, entries)]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    add = parser.add_argument
    add("--spark", action="store_true", help="the systems on Spark instead of the local ones")
    add("--rows", type=int, default=DEFAULT_ROWS, help="of the tables (default: %(default)s)")
    add("--rounds", type=int, default=5, help="of each merge (default: %(default)s)")
    add("--other-rounds", type=int, default=3, help="of merges that no target depends on")
    add("--seconds-each", type=float, default=20, help="after which a system gets no more rounds")
    add("--limit", type=float, default=60, help="seconds that a merge may take, with its check")
    add("--quick", action="store_true", help="print the ratios of the most important peers")
    add("--only", nargs="+", default=[], metavar="NAME", help=_names())
    add("--resume", action="store_true", help="keep what was measured on this code")
    add("--page-only", action="store_true", help="write the page from the results, run nothing")
    add("--scratch", type=Path, default=ROOT / "build" / "peers", help="where tables are made")
    add("--out", type=Path, default=PAGES, help="where results and page go")
    return parser


def _command(said: list[str]) -> str:
    """What was called, but for directories of this machine."""
    kept = list(said)
    for option in ("--out", "--scratch"):
        if option in kept:
            at = kept.index(option)
            del kept[at : at + 2]
    return shlex.join(["python", "-m", "benchmarks.peers", *kept])


def _names() -> str:
    workloads = ", ".join(workload.name for workload in named_workloads())
    return f"systems and workloads, by name or pattern: {', '.join(ENTRIES)}, {workloads}, sweep-*"


def _chosen(
    entries: tuple[Entry, ...], workloads: list[Workload], only: list[str]
) -> tuple[list[Entry], list[Workload]]:
    """The systems and workloads that a pattern names; all of a kind that no pattern names."""
    systems = [e for e in entries if any(fnmatch.fnmatch(e.name, one) for one in only)]
    shapes = [w for w in workloads if any(fnmatch.fnmatch(w.name, one) for one in only)]
    if only and not systems and not shapes:
        raise SystemExit(f"Nothing is named {' or '.join(only)}. Choose {_names()}")
    return systems or list(entries), shapes or workloads


def _machine() -> str:
    python = ".".join(map(str, sys.version_info[:3]))
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {python}"


if __name__ == "__main__":
    main()
