"""The page and the plots, from the results alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers import plots, targets
from benchmarks.peers.registry import ENTRIES, LOCAL, SPARK
from benchmarks.peers.results import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.peers.protocol import Entry
    from benchmarks.peers.results import Results, Run

NOTES = Path(__file__).parent / "notes"

_LOCAL_TEXT = """\
The same rows, 12 columns in the format of each system, merged from the same Arrow table.

- Every merge starts from a fresh copy of the system's own table, in a process of its own. Imports,
  a merge into a tiny table to warm up, and loading the source are not measured; opening the table,
  the merge and its commit are. The systems take turns, so that a busy moment hits all of them.
- Formats over Parquet take over the same files; Lance writes as many of its own, and PyIceberg and
  DuckLake do so for hive partitions. In a fresh copy data files are hard links, since no system
  changes one in place; everything else is copied.
- The result of each system's first round is read back with its own reader and checked: the number
  of rows, that no key is there twice, and a checksum over all columns, computed in the same way for
  all. `cp` copies the table and merges nothing; it is the floor of every whole rewrite, not a peer.
- Peers run with their defaults; Lance has no index on the key. A merge that takes longer than the
  limit is stopped, and a slow system gets fewer rounds.
- fsspeckit syncs data, directories and its record to disk before a merge is done. No peer does so
  for its data: delta-rs, Lance, PyIceberg and the rewrites sync nothing, DuckLake its catalog.
  *No fsync* is our PyArrow engine with the durability of the peers: the benchmark replaces
  `os.fsync` by a function that does nothing. The library itself has no such switch. Ratios are
  those of merges that are synced.
- Doubles have twelve digits at most: DuckLake keeps the rows of a small merge as text in its
  catalog, and of longer ones the last digit was lost there.
- *Peak memory* is what the process has resident at most during the merge, above what it has at its
  beginning, the source included in the latter. *Written* are the bytes handed to the kernel. *Read*
  is a full read into Arrow after the merge, by the system's own reader.
- *Times ours*: the median of a system divided by the median of the better of our two engines.
"""
_SPARK_TEXT = """\
The same rows, 12 columns in the format of each system, merged from the same data frame, in one
warm local session for each system. All sessions are open, and the systems take turns, so that a
busy moment hits all of them; no two work at once.

- Every merge starts from a fresh copy of the system's own table. Starting the session, three merges
  into a small table, one more before each turn, since Spark ends Python workers that are idle for a
  minute, and making the data frame of the source are not measured.
- Delta Lake and Iceberg take over the same Parquet files. Hudi and the overwrite by Spark itself
  have a partition for each file, which the source names. No bundle of Hudi for the Spark of the
  others was to be had; it runs on the newest that it has one for.
- All have 4 shuffle partitions, and Delta Lake 2 for its log, which suits few cores better than the
  defaults. Iceberg's catalog does not cache, since tables are replaced behind its back. Hudi is
  told not to insert keys that are there already. fsspeckit syncs to disk.
- The result of each system's first round is read back through the system, ours by Spark's own
  reader, and checked: the number of rows, that no key is there twice, and a checksum over all
  columns, computed in the same way for all. A slow system gets fewer rounds.
- *Memory* is what the JVM and all Python processes have resident at once at most during the merge.
  *Written* are the bytes of new files. *Read* is a full read into nothing after the merge.
- *Times ours*: the median of a system divided by ours.
"""
_HEAD = "| system | median | fastest | slowest | times ours | read | peak memory | written |"
_RULE = "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"


def write(results: Results, directory: Path) -> None:
    """Write the page beside the results, and its plots."""
    name = results.path.stem
    spark = name.startswith("spark")
    entries = SPARK if spark else LOCAL
    workloads = [w for w in results.titles if any(run.workload == w for run in results.runs)]
    named = [workload for workload in workloads if not workload.startswith("sweep-")]
    swept = [workload for workload in workloads if workload.startswith("sweep-")]
    title = "Merges on Spark against peers" if spark else "Merges against peers"
    lines = [f"# {title}", "", *_state(results), _SPARK_TEXT if spark else _LOCAL_TEXT]
    lines += [f"Tables of {results.rows:,} rows, unless a title says otherwise.", ""]
    lines += _targets(results, entries, spark=spark)
    lines += _absent(results, entries)
    lines += _overview("Overview", results, entries, named)
    lines += _pictures(results, directory, named, swept)
    for workload in named:
        lines += _detail(results, entries, workload)
    lines += _overview("The sweep", results, entries, swept, _SWEEP_TEXT)
    lines += _phases(results, named)
    lines += _notes(name)
    lines += _made(results)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


def quick_lines(results: Results, entries: Sequence[Entry]) -> Iterator[str]:
    """The overview alone, and why peers are left out."""
    yield from _overview("Overview", results, entries, list(results.titles))
    yield from _absent(results, entries)


def _state(results: Results) -> Iterator[str]:
    """The first line of the page; results of earlier benchmarks do not know it."""
    if results.state:
        yield from (results.state, "")


def _targets(results: Results, entries: Sequence[Entry], *, spark: bool) -> Iterator[str]:
    yield from ("## Targets", "")
    wanted = targets.SPARK_TARGETS if spark else targets.LOCAL_TARGETS
    if spark:
        yield targets.small_told(results, _local_results(results))
    yield from (targets.told(target, results, entries) for target in wanted)
    if not spark:
        yield from targets.memory_told(results)
    yield ""
    if paid := targets.payback(results):
        yield "Merge-on-read peers write less where 1 % of the rows change, and pay when they are"
        yield from ("read:", "", *paid, "")


def _local_results(results: Results) -> Results | None:
    """What the local systems took for the same rows on the same code, if that was measured."""
    path = results.path.with_name("peers.json")
    local = load(path) if path.exists() else None
    same = local is not None and (local.state, local.rows) == (results.state, results.rows)
    return local if same else None


def _absent(results: Results, entries: Sequence[Entry]) -> Iterator[str]:
    missing = [entry for entry in entries if entry.name in results.absent]
    if missing:
        yield from ("## Not run", "")
        yield from (f"- {entry.title}: {results.absent[entry.name]}" for entry in missing)
        yield ""


_SWEEP_TEXT = (
    "Files matched x rows matched x rows not matched, in the fractions of Delta's own benchmark, "
    "into 20 files with an eighth of the rows. Rows are fractions of those of the matched files."
)


def _overview(
    heading: str, results: Results, entries: Sequence[Entry], workloads: list[str], text: str = ""
) -> Iterator[str]:
    """The median of our better engine, and of the others in times of it."""
    if not workloads:
        return
    usable = [e for e in entries if e.name not in results.absent]
    peers = [e for e in usable if not e.kind.startswith("ours")]
    variants = [e for e in usable if e.kind.startswith("ours, ")]
    yield from (f"## {heading}", "")
    yield f"{text} Peers in times of ours.".strip()
    yield ""
    titles = ["ours", *(e.kind for e in variants), *(peer.title for peer in peers)]
    yield f"| workload | {' | '.join(titles)} |"
    yield "| --- |" + " ---: |" * len(titles)
    for workload in workloads:
        ours = targets.best(results, workload)
        medians = [ours[1] if ours else None]
        medians += [results.median(workload, entry.name) for entry in variants]
        cells = ["–" if median is None else f"{median:.3f} s" for median in medians]
        for peer in peers:
            found = targets.ratio(results, workload, peer)
            cells.append(str(found).replace("more than ", "> ") if found else "–")
        yield f"| {results.titles[workload]} | " + " | ".join(cells) + " |"
    yield ""


def _detail(results: Results, entries: Sequence[Entry], workload: str) -> Iterator[str]:
    yield from (f"## {results.titles[workload]}", "", f"`{workload}`", "", _HEAD, _RULE)
    for entry in entries:
        if runs := results.of(workload, entry.name):
            yield f"| {entry.title} | " + " | ".join(_cells(results, entry, workload, runs)) + " |"
    yield ""


def _cells(results: Results, entry: Entry, workload: str, runs: list[Run]) -> list[str]:
    good = results.good(workload, entry.name)
    found = targets.ratio(results, workload, entry)
    if not good:
        return [
            f"{runs[0].status}: {_one_cell(runs[0].error)}",
            "",
            "",
            str(found or ""),
            *[""] * 3,
        ]
    seconds = [run.seconds for run in good]
    read, peak, written = (
        results.median(workload, entry.name, what) or 0.0 for what in ("read", "memory", "written")
    )
    return [
        f"{results.median(workload, entry.name):.3f} s",
        f"{min(seconds):.3f} s",
        f"{max(seconds):.3f} s",
        str(found or ""),
        f"{read:.3f} s",
        # What a child process has used is not seen.
        "–" if entry.kind == "floor" else f"{peak:.0f} MB",
        f"{written:.1f} MB",
    ]


def _one_cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _pictures(
    results: Results, directory: Path, named: list[str], swept: list[str]
) -> Iterator[str]:
    name = results.path.stem
    wanted = {
        "merge": (named, "Time of a merge", "times as long as the better of our engines", "ratio"),
        "sweep": (swept, "The sweep", "times as long as the better of our engines", "ratio"),
        "memory": (named, "Peak memory", "MB", "memory"),
    }
    for which, (workloads, title, axis, what) in wanted.items():
        # The names of the sweep say little, the titles of the others are too long for a plot.
        labels = [results.titles[w] if which == "sweep" else w for w in workloads]
        marks = [list(_marks(results, w, what)) for w in workloads]
        rows = dict(zip(labels, marks, strict=True))
        if not any(rows.values()):
            continue
        directory.mkdir(parents=True, exist_ok=True)
        plot = plots.Plot(title, axis, rows)
        (directory / f"{name}-{which}.svg").write_text(plot.svg(), encoding="utf-8")
        yield from (f"![{title}]({name}-{which}.svg)", "")


def _marks(results: Results, workload: str, what: str) -> Iterator[plots.Mark]:
    ours = targets.best(results, workload)
    for entry in ENTRIES.values():
        good = results.good(workload, entry.name)
        if what == "memory" and entry.kind == "floor":
            continue
        if not good or ours is None:
            continue
        unit = ours[1] if what == "ratio" else 1.0
        column = "seconds" if what == "ratio" else what
        # A log axis has no zero: less than a megabyte is shown as one.
        least = 0.0 if what == "ratio" else 1.0
        values = [max(least, getattr(run, column) / unit) for run in good]
        median = max(least, (results.median(workload, entry.name, column) or 0.0) / unit)
        yield plots.Mark(entry.title, median, min(values), max(values))


def _phases(results: Results, workloads: list[str]) -> Iterator[str]:
    """Which share of our merges each phase takes."""
    found = {}
    for workload in workloads:
        ours = targets.best(results, workload)
        if ours and (shares := results.phases(workload, ours[0].name)):
            found[workload] = (ours[0], shares)
    if not found:
        return
    names = dict.fromkeys(name for _, shares in found.values() for name in shares)
    yield from ("## Where our time goes", "")
    yield "Shares of a merge by the better of our engines, medians, by its own `metrics`."
    yield from ("", "| workload | engine | " + " | ".join(names) + " | rest |")
    yield "| --- | --- |" + " ---: |" * (len(names) + 1)
    for workload, (entry, shares) in found.items():
        every = [*(shares.get(name, 0.0) for name in names), 1 - sum(shares.values())]
        cells = " | ".join(f"{100 * max(0.0, share):.0f} %" for share in every)
        yield f"| `{workload}` | {entry.title} | {cells} |"
    yield ""


def _notes(name: str) -> Iterator[str]:
    """What was found out about the figures, written by hand."""
    path = NOTES / f"{name}.md"
    if path.exists():
        yield from (path.read_text(encoding="utf-8").strip(), "")


def _made(results: Results) -> Iterator[str]:
    yield from ("## How it was made", "")
    yield f"On {results.machine}. Versions:"
    yield ""
    for name, found in results.versions.items():
        listed = ", ".join(f"{package} {version}" for package, version in found.items())
        if listed:
            yield f"- {ENTRIES[name].title}: {listed}"
    yield from ("", "Made by:", "", "```text", *dict.fromkeys(results.commands), "```", "")
    yield "Read the ratios, not the seconds."


if __name__ == "__main__":
    given = Path(sys.argv[1])
    write(load(given), given.parent)
