"""How work on files and rows is shared out among tasks: few of them, but none too large."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from fsspeckit.core.planning import PartitionValues
from fsspeckit.datasets.spark.tasks import InsertShare

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from numpy.typing import NDArray

    from fsspeckit.core.planning import FileFooter, Target
    from fsspeckit.datasets.spark.inserting import PartitionPieces, Piece
    from fsspeckit.storage import DataFile

    Rows = NDArray[np.int64]
    Work = list[tuple[int, tuple[int, ...]]]

__all__ = [
    "INSERT_ROWS",
    "bundles",
    "footer_work",
    "insert_work",
    "partition_work",
    "row_group_bytes",
    "shares",
    "spread",
    "subset",
    "task_rows",
    "together",
    "windows",
]

INSERT_ROWS = 1_000_000
"""How many rows a task inserts, where there are more."""

_TASK_BYTES = 64 * 1024 * 1024
_TINY_BYTES = 1024 * 1024
_WINDOW_BYTES = 16 * 1024 * 1024
_WINDOW_ROWS = 131_072
_LEAST_FOOTERS = 512
_MOST_FOOTERS = 8192
_LEAST_SHARE = 131_072
_LARGEST_SHARE = 1_048_576
_MANY_TASKS = 64
_PARTITIONS = 64
_Item = TypeVar("_Item")


def subset(target: Target, numbers: Sequence[int]) -> Target:
    """A target of some of its files: what tasks are given."""
    chosen = pa.array(numbers, pa.int64())
    return replace(
        target,
        footers=tuple(replace(target.footers[n], raw=None) for n in numbers),
        partition_texts=tuple(target.partition_texts[n] for n in numbers),
        partitions={
            name: PartitionValues(part.values.take(chosen), [part.known[n] for n in numbers])
            for name, part in target.partitions.items()
        },
    )


def row_group_bytes(target: Target, work: Work) -> int:
    """How many bytes the row groups to scan have."""
    return sum(target.footers[n].row_groups[g].bytes for n, groups in work for g in groups)


def bundles(target: Target, work: Work, tasks: int, least: int = 0) -> list[Work]:
    """Files to scan, together where they are small and many, and apart where they are large.

    Args:
        target: The files.
        work: Their numbers, with the row groups to scan.
        tasks: How many tasks there should be, where the work is not large.
        least: A task scans so many bytes, if it can: it has other work before that.
    """
    units: list[tuple[int, tuple[int, ...], int]] = []
    for number, row_groups in work:
        groups = target.footers[number].row_groups
        size, members = 0, []
        for group in row_groups:
            members.append(group)
            size += groups[group].bytes
            if size >= _TASK_BYTES:
                units.append((number, tuple(members), size))
                size, members = 0, []
        if members:
            units.append((number, tuple(members), size))
    return together([((number, some), size) for number, some, size in units], tasks, least)


def together(work: Sequence[tuple[_Item, int]], tasks: int, least: int = 0) -> list[list[_Item]]:
    """Items with their bytes, put together to tasks: about so many, but none too large."""
    total = sum(size for _, size in work)
    limit = min(_TASK_BYTES, max(_TINY_BYTES, least, -(-total // tasks)))
    bundles: list[list[_Item]] = []
    filled = 0
    for item, size in work:
        if not bundles or filled + size > limit:
            bundles.append([])
            filled = 0
        bundles[-1].append(item)
        filled += size
    return bundles


def windows(footer: FileFooter) -> Rows:
    """The first positions of the parts of a file whose new rows a task holds at once."""
    starts, position, size = [0], 0, 0
    for group in footer.row_groups:
        full = (
            size + group.bytes > _WINDOW_BYTES or position + group.rows - starts[-1] > _WINDOW_ROWS
        )
        if full and position > starts[-1]:
            starts.append(position)
            size = 0
        position += group.rows
        size += group.bytes
    return np.array(starts, np.int64)


def footer_work(files: Sequence[DataFile], tasks: int) -> list[Sequence[DataFile]]:
    """Files whose footers one task reads; about so many tasks, as a footer costs less than one."""
    share = -(-len(files) // tasks)
    return spread(files, min(_MOST_FOOTERS, max(_LEAST_FOOTERS, share)))


def spread(work: Sequence[_Item], at_least: int = 1) -> list[Sequence[_Item]]:
    """Items, of which a task gets so many that there are not too many tasks."""
    count = max(at_least, -(-len(work) // _MANY_TASKS))
    return [work[start : start + count] for start in range(0, len(work), count)]


def shares(total: int, tasks: int) -> list[tuple[int, int]]:
    """The rows of a source in shares of equal size, each for a task, about so many of them."""
    size = min(_LARGEST_SHARE, max(_LEAST_SHARE, -(-total // tasks)))
    return [(start, min(start + size, total)) for start in range(0, total, size)]


def task_rows(total: int, rows_per_file: int) -> int:
    """How many rows one task inserts: full files, if one of them is less than its share."""
    rows = -(-total // max(1, total // INSERT_ROWS))
    return -(-rows // rows_per_file) * rows_per_file if rows_per_file < rows else rows


def insert_work(shares: Sequence[InsertShare], rows: int) -> list[InsertShare]:
    """Rows to insert, cut or put together to so many for each task, in the order of the source."""
    work: list[InsertShare] = []
    for share in shares:
        if share.rows is None and not share.pairs:
            starts = range(share.start, share.end, rows)
            work += [InsertShare(start, min(start + rows, share.end)) for start in starts]
        elif work and share.pairs and len(work[-1]) + len(share) <= rows:
            pairs, count = (*work[-1].pairs, *share.pairs), len(work[-1]) + len(share)
            work[-1] = InsertShare(work[-1].start, share.end, None, pairs, count)
        else:
            work.append(share)
    return work


def partition_work(told: Sequence[PartitionPieces], rows_per_file: int) -> list[list[Piece]]:
    """Pieces to insert: those of one partition together, small partitions in one task."""
    by_partition: dict[tuple[Any, ...], list[Piece]] = {}
    for one in told:
        by_partition.setdefault(one.partition, []).extend(one.pieces)
    work: list[list[Piece]] = []
    filled = members = 0
    for pieces in by_partition.values():
        rows = sum(piece.rows for piece in pieces)
        limit = task_rows(rows, rows_per_file)
        if not work or filled + rows > INSERT_ROWS or members >= _PARTITIONS:
            work.append([])
            filled = members = 0
        members += 1
        for piece in pieces:
            if work[-1] and filled + piece.rows > max(limit, INSERT_ROWS):
                work.append([])
                filled = 0
            work[-1].append(piece)
            filled += piece.rows
    return work
