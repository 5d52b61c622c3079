"""The limits of the Spark engine: which tier a merge takes, and how much work a task gets."""

from __future__ import annotations

import operator
import sys
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import numpy as np

from fsspeckit.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "DEFAULT_LIMITS",
    "LOCAL_LIMITS",
    "SparkLimits",
    "Tier",
    "TierChoice",
    "choose_tier",
    "chunk_evenly",
    "chunk_footers",
    "driver_reads_footers",
    "pack_by_size",
    "row_ranges",
]

Tier = Literal["driver", "broadcast", "shuffle"]
_Item = TypeVar("_Item")
_MB = 1024 * 1024
_LOCAL_FOOTERS = 8
"""How many times as many footers the driver reads on a local disk."""
_MAY_BE_ZERO = ("driver_", "broadcast_", "route_", "insert_max_sorted_rows")


@dataclass(frozen=True)
class SparkLimits:
    """Every limit of the Spark engine; bytes are counted before compression.

    A merge takes one of three tiers, which `choose_tier` picks from the limits ``driver_…`` and
    ``broadcast_…``; ``result.metrics`` has it as ``tier``, with its ``tier_reason``, unless the
    source is empty. The limits ``task_…``, ``insert_…`` and ``combine_…`` say how the work of the
    other tiers is cut into tasks, ``route_…`` when source rows are sent to the files that they
    belong to.

    Raises:
        InvalidArgumentError: If a limit is not a whole number >= 0, or >= 1 for those of tasks.
    """

    driver_max_source_bytes: int = 16 * _MB
    """A larger source is never merged, nor are its rows inserted, by the driver."""

    driver_max_source_rows: int = 65_536
    """A source of more rows is not either: few bytes of a file may be many in memory."""

    driver_max_frame_bytes: int = 16 * _MB
    """A data frame that Spark expects to be larger is written to staging by tasks."""

    driver_max_frame_rows: int = 65_536
    """A data frame of more rows is, too: all rows that the driver takes pass through its JVM."""

    driver_max_target_bytes: int = 32 * _MB
    """The driver merges only if the files to read or rewrite have at most so many bytes."""

    driver_max_files: int = 32
    """The driver merges only if there are at most so many files to read: each takes requests."""

    driver_max_source_files: int = 64
    """The driver reads more keys than tasks are given only if they are in at most so many files."""

    driver_max_footers: int = 2048
    """The footers of more files are read by tasks; on a local disk, of eight times as many."""

    driver_max_duplicate_rows: int = 1_000_000
    """The driver looks for duplicates in a target of at most so many rows."""

    broadcast_max_given_keys: int = 65_536
    """Up to so many keys are sent to every task; more are staged, and every task reads them."""

    broadcast_max_key_bytes: int = 32 * _MB
    """Every task holds all keys up to so many bytes, index included; Spark joins more."""

    broadcast_max_function_bytes: int = 8 * _MB
    """A function with more data, such as deleted keys, is staged, and every task reads it."""

    broadcast_max_inline_pairs: int = 64
    """The matches of a file are staged if there are more, and do not pass through the driver."""

    task_min_bytes: int = _MB
    """Smaller files share a task."""

    task_max_bytes: int = 64 * _MB
    """A task reads or rewrites about so much, unless one row group or file is larger."""

    task_min_rows: int = 131_072
    """A task reads at least so many rows of the source."""

    task_max_rows: int = 1_048_576
    """A task reads at most so many rows of the source."""

    task_min_footers: int = 512
    """A task reads at least so many footers."""

    task_max_footers: int = 8192
    """A task reads at most so many footers, unless there would be more than ``max_tasks``."""

    max_tasks: int = 64
    """Items whose size is not known are cut into at most so many tasks."""

    window_max_bytes: int = 16 * _MB
    """A task holds the new rows for so much of a file, or for one row group if that is larger."""

    window_max_rows: int = 131_072
    """A task holds the new rows for so many rows of a file, or for one row group."""

    route_min_bytes: int = 1024 * _MB
    """Tasks read the rows of scattered files in place if that reads at most so much in all."""

    route_min_source_reads: int = 4
    """They do so, too, if the source is read at most so many times over."""

    insert_max_sorted_rows: int = 100_000
    """More rows than this are brought together by partition before tasks insert them."""

    insert_max_rows: int = 1_000_000
    """A task inserts about so many rows."""

    insert_max_partitions: int = 64
    """A task inserts rows of at most so many partitions."""

    combine_max_bytes: int = 32 * _MB
    """A task combines about so many bytes of changes and stored versions, or those of one key."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name.startswith(_MAY_BE_ZERO) else 1
            number = -1 if isinstance(value, bool | np.bool) else _whole_number(value)
            if number < least:
                raise InvalidArgumentError(
                    f"{field.name} must be >= {least}, a whole number, got {value!r}.",
                    argument=field.name,
                )
            object.__setattr__(self, field.name, number)


def _whole_number(value: Any) -> int:
    """Return a number of Python or NumPy as a number of Python; -1 if it is not a whole one."""
    try:
        return operator.index(value)
    except TypeError:
        return -1


DEFAULT_LIMITS: Final = SparkLimits()
"""Where tasks run on other machines, or may do so."""

LOCAL_LIMITS: Final = SparkLimits(
    driver_max_source_bytes=256 * _MB,
    driver_max_source_rows=4_194_304,
    driver_max_target_bytes=1024 * 1024 * _MB,
    driver_max_files=1_000_000,
)
"""In local mode, where tasks have the driver's own processors and disks, and less of its memory."""


@dataclass(frozen=True)
class TierChoice:
    """Where a merge runs, and why."""

    tier: Tier
    reason: str

    @property
    def metrics(self) -> dict[str, str]:
        """The choice as the metrics of a merge have it."""
        return {"tier": self.tier, "tier_reason": self.reason}


def choose_tier(
    limits: SparkLimits,
    *,
    source_bytes: int,
    source_rows: int,
    key_bytes: int | None,
    target_bytes: int = 0,
    target_files: int = 0,
) -> TierChoice:
    """Choose where a merge or write runs; everything is known from the source and the plan.

    - ``driver``: the PyArrow engine's own code runs in the driver, without a job.
    - ``broadcast``: every task has all keys of the source and looks for them in its files.
    - ``shuffle``: Spark joins the keys of source and target, both shuffled by key.

    Args:
        limits: The limits.
        source_bytes: The bytes of the source; ``sys.maxsize`` if it was spilled to disk.
        source_rows: Its rows.
        key_bytes: The bytes of keys that tasks resolved; None if the driver holds the keys.
        target_bytes: The bytes of the target to read or rewrite.
        target_files: How many files these are.
    """
    sizes = {
        "driver_max_source_bytes": ("byte{s} of the source", source_bytes),
        "driver_max_source_rows": ("row{s} of the source", source_rows),
        "driver_max_target_bytes": ("byte{s} of the target", target_bytes),
        "driver_max_files": ("file{s} of the target", target_files),
    }
    small: Tier
    large: Tier
    small, large = ("driver", "broadcast") if key_bytes is None else ("broadcast", "shuffle")
    if key_bytes is not None:
        sizes = {"broadcast_max_key_bytes": ("byte{s} of keys", key_bytes)}
    fitting = []
    for name, (what, size) in sizes.items():
        limit = getattr(limits, name)
        found = f"{size:,} {what.format(s='' if size == 1 else 's')}"
        if size > limit:
            found = "a source on disk" if size == sys.maxsize else found
            return TierChoice(large, f"{found}: more than {name}={limit:,}")
        fitting.append(f"{found} (at most {name}={limit:,})")
    return TierChoice(small, ", ".join(fitting))


def driver_reads_footers(limits: SparkLimits, count: int, *, is_local: bool) -> bool:
    """Whether the driver reads so many footers itself.

    On a local disk that takes it less time than a job, which has to send them to the driver.
    """
    return count <= limits.driver_max_footers * (_LOCAL_FOOTERS if is_local else 1)


def pack_by_size(
    limits: SparkLimits, work: Sequence[tuple[_Item, int]], tasks: int
) -> list[list[_Item]]:
    """Pack items, given with their bytes, into about so many tasks of which none is too large."""
    total = sum(size for _, size in work)
    limit = min(limits.task_max_bytes, max(limits.task_min_bytes, -(-total // tasks)))
    packed: list[list[_Item]] = []
    filled = 0
    for item, size in work:
        if not packed or filled + size > limit:
            packed.append([])
            filled = 0
        packed[-1].append(item)
        filled += size
    return packed


def chunk_evenly(
    limits: SparkLimits, work: Sequence[_Item], min_items: int = 1
) -> list[Sequence[_Item]]:
    """Cut items of unknown size into chunks of equal length, one for each task."""
    count = max(min_items, -(-len(work) // limits.max_tasks))
    return [work[start : start + count] for start in range(0, len(work), count)]


def chunk_footers(limits: SparkLimits, files: Sequence[_Item], tasks: int) -> list[Sequence[_Item]]:
    """Cut files whose footers are to be read into about so many tasks, none of them small."""
    share = max(limits.task_min_footers, -(-len(files) // tasks))
    return chunk_evenly(limits, files, min(limits.task_max_footers, share))


def row_ranges(limits: SparkLimits, total: int, tasks: int) -> list[tuple[int, int]]:
    """Cut the rows of a source into ranges of equal size, one for each of about so many tasks."""
    size = min(limits.task_max_rows, max(limits.task_min_rows, -(-total // tasks)))
    return [(start, min(start + size, total)) for start in range(0, total, size)]
