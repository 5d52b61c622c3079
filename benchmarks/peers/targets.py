"""What must hold, as ratios of medians of one run, and how it is told where it does not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.peers.registry import ENTRIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.peers.protocol import Entry, Kind
    from benchmarks.peers.results import Results

_ALL: tuple[Kind, ...] = ("copy-on-write", "whole rewrite", "merge-on-read")
MEMORY_LIMIT = 350.0
SLOW = 10.0
"""A peer that takes so many times as long as we is far from every target: two rounds will do."""


@dataclass(frozen=True)
class Target:
    """How far ahead of some peers a merge must be."""

    workload: str
    at_least: float
    peers: tuple[str, ...] = ()
    """By name; if there are none, by kind."""

    kinds: tuple[Kind, ...] = ()
    ours: str | None = None
    """Which of our systems; None for the better of the engines."""

    def includes(self, entry: Entry) -> bool:
        """Whether this system is one of the peers."""
        return entry.name in self.peers or entry.kind in self.kinds


LOCAL_TARGETS = (
    Target("one-row", 0.9, kinds=_ALL),
    Target("clustered-100", 0.7, kinds=_ALL),
    Target("uuid-100", 0.9, kinds=_ALL),
    Target("uuid-100", 3, kinds=_ALL, ours="fsspeckit-key-index"),
    Target("newest-partition", 0.9, kinds=_ALL),
    Target("spread", 1, ("polars",)),
    Target("spread", 2, ("delta-rs",)),
    Target("bulk", 0.8, ("polars",)),
    Target("bulk", 1.5, ("delta-rs",)),
    Target("insert-only", 1.5, kinds=_ALL),
)
"""Of the local engines, the better of the two counting."""

SPARK_TARGETS = (
    Target("bulk", 1.5, ("spark-iceberg",)),
    Target("bulk", 1.5, ("spark-overwrite",)),
    Target("files-10000", 3, ("spark-delta",)),
)
"""On Spark, in a warm session."""

SMALL_ON_SPARK = ("one-row", 1.5)
"""A small merge, which the driver does, and how many times of the PyArrow engine it may take."""

_OURS = ("ours", "ours, no fsync")


def decides(entry: Entry, workload: str) -> bool:
    """Whether a target depends on what a system takes for a workload."""
    own = [t for t in (*LOCAL_TARGETS, *SPARK_TARGETS) if t.workload == workload]
    if entry.kind in _OURS:
        return bool(own) or workload == SMALL_ON_SPARK[0]
    return any(target.includes(entry) or target.ours == entry.name for target in own)


@dataclass(frozen=True)
class Ratio:
    """How many times as long a peer took."""

    entry: Entry
    value: float
    bound: bool
    """Whether it was stopped, so that this is the least it can be."""

    def __str__(self) -> str:
        return f"{'more than ' if self.bound else ''}{self.value:.2f}x"


def best(results: Results, workload: str) -> tuple[Entry, float] | None:
    """The better of our engines on a workload, with its median."""
    found = [
        (median, entry.name)
        for entry in ENTRIES.values()
        if entry.kind == "ours" and (median := results.median(workload, entry.name)) is not None
    ]
    if not found:
        return None
    median, name = min(found)
    return ENTRIES[name], median


def ratio(results: Results, workload: str, entry: Entry, name: str | None = None) -> Ratio | None:
    """A peer's time in times of ours, or None where one of them was not measured.

    ``name`` is that of one of our systems; None for the better of the engines.
    """
    ours = best(results, workload) if name is None else _one(results, workload, name)
    runs = [run for run in results.of(workload, entry.name) if run.status in ("ok", "over")]
    if ours is None or not runs:
        return None
    stopped = [run for run in runs if run.status == "over"]
    median = results.median(workload, entry.name)
    theirs = stopped[0].seconds if stopped or median is None else median
    return Ratio(entry, theirs / ours[1], bool(stopped))


def _one(results: Results, workload: str, name: str) -> tuple[Entry, float] | None:
    median = results.median(workload, name)
    return None if median is None else (ENTRIES[name], median)


def told(target: Target, results: Results, entries: Sequence[Entry]) -> str:
    """A target as a line of the page; peers are those of these systems that it names."""
    peers = [entry for entry in entries if target.includes(entry)]
    what = f"- {results.titles.get(target.workload, target.workload)}"
    if target.ours is not None:
        what += f", {ENTRIES[target.ours].title}"
    found = [one for e in peers if (one := ratio(results, target.workload, e, target.ours))]
    missing = [entry for entry in peers if entry.name not in {one.entry.name for one in found}]
    if not found:
        return f"{what}: not measured against {_names(peers)}{_reasons(missing, target, results)}"
    nearest = min(found, key=lambda one: one.value)
    whom = (
        f"the fastest of {len(found)} peers, {nearest.entry.title},"
        if len(peers) > 1
        else (f"{nearest.entry.title}")
    )
    line = f"{what}: {whom} took {nearest} our time; target at least {target.at_least:g}x: "
    line += _verdict(target, nearest) + _without_fsync(target, nearest, results)
    return line + (
        f"; without {_names(missing)}{_reasons(missing, target, results)}" if missing else ""
    )


def _verdict(target: Target, nearest: Ratio) -> str:
    if nearest.value >= target.at_least:
        return "held"
    if nearest.bound:
        return "**not known**, it was stopped before"
    return f"**missed** by {target.at_least - nearest.value:.2f}x"


def _without_fsync(target: Target, nearest: Ratio, results: Results) -> str:
    """The same ratio with the durability of the peers, where that was measured."""
    alike = ratio(results, target.workload, nearest.entry, "fsspeckit-no-fsync")
    return "" if alike is None or target.ours is not None else f"; {alike} without our fsync"


def _names(entries: list[Entry]) -> str:
    return ", ".join(entry.title for entry in entries)


def _reasons(entries: list[Entry], target: Target, results: Results) -> str:
    said = []
    for entry in entries:
        runs = results.of(target.workload, entry.name)
        reason = results.absent.get(entry.name) or (runs[0].error if runs else "not run")
        said.append(reason)
    return f" ({'; '.join(said)})"


def small_told(results: Results, local: Results | None) -> str:
    """A small merge on Spark in times of the PyArrow engine's, as a line of the page.

    ``local`` are the results of the local systems; None if there are none of the same code.
    """
    workload, at_most = SMALL_ON_SPARK
    ours = results.median(workload, "spark-fsspeckit")
    theirs = local.median(workload, "fsspeckit-pyarrow") if local else None
    what = f"- {results.titles.get(workload, workload)}"
    if ours is None or theirs is None:
        return f"{what}: not measured beside the PyArrow engine on the same code"
    times = ours / theirs
    verdict = "held" if times <= at_most else f"**missed** by {times - at_most:.2f}x"
    what += f": {times:.2f}x the time of the PyArrow engine"
    return f"{what}; target at most {at_most:g}x: {verdict}"


def memory_told(results: Results) -> list[str]:
    """Our peak memory against its limit, for each engine, as lines of the page."""
    lines = []
    for entry in ENTRIES.values():
        peaks = [
            (peak, workload)
            for workload in results.titles
            if workload != "bulk"
            and (peak := results.median(workload, entry.name, "memory")) is not None
        ]
        if entry.kind != "ours" or not peaks:
            continue
        peak, workload = max(peaks)
        over = peak - MEMORY_LIMIT
        verdict = "held" if over <= 0 else f"**missed** by {over:.0f} MB"
        lines.append(
            f"- Peak memory of {entry.title}, on all workloads but the one of 28 %: at most "
            f"{peak:.0f} MB (on {workload}); target under {MEMORY_LIMIT:.0f} MB: {verdict}"
        )
    return lines


def payback(results: Results, workload: str = "spread") -> list[str]:
    """After how many full reads a merge-on-read peer has lost what its merge was faster by."""
    ours = best(results, workload)
    lines = []
    for entry in ENTRIES.values():
        theirs = results.median(workload, entry.name)
        if ours is None or theirs is None or entry.kind != "merge-on-read":
            continue
        read, our_read = (results.median(workload, n, "read") for n in (entry.name, ours[0].name))
        assert read is not None
        assert our_read is not None
        lines.append(f"- {entry.title}: {_paid(ours[1] - theirs, read - our_read)}")
    return lines


def _paid(gain: float, price: float) -> str:
    if gain <= 0:
        return "its merge is not faster than ours."
    if price <= 0:
        return "its merge is faster than ours, and its reads are not slower: never paid back."
    reads = math.ceil(gain / price)
    return f"its merge is faster, its reads are slower; full reads until it is paid back: {reads}."
