"""Inserting rows into new files in tasks: in their order, or partition by partition."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fsspeckit.core.arrow_compat import take_rows
from fsspeckit.core.keys import canonical_keys, key_column
from fsspeckit.datasets.spark.rewriting import PieceWriter, RowPairs, gather, read_pairs, read_piece
from fsspeckit.storage import WorkerStage

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from fsspeckit.core.rewrite import NewFile, NewFiles, Rewritten
    from fsspeckit.datasets.spark.limits import SparkLimits
    from fsspeckit.datasets.spark.rewriting import Piece
    from fsspeckit.datasets.spark.source import SourceRows, SparkSource
    from fsspeckit.storage import Root

    Rows = NDArray[np.int64]

__all__ = [
    "InsertPieces",
    "InsertRows",
    "InsertShare",
    "PartitionPieces",
    "SplitByPartition",
    "cut_shares",
    "insert_shares",
    "insertable",
    "moved_shares",
    "pack_pieces",
    "task_rows",
]

_MAX_HELD_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class InsertShare:
    """Rows of the source that one task writes into new files."""

    start: int
    end: int
    pairs: tuple[RowPairs, ...] = ()
    """The rows from ``start`` to before ``end`` that are inserted; without pairs, all of them."""

    count: int = 0
    """How many pairs there are."""

    def __len__(self) -> int:
        return self.count if self.pairs else self.end - self.start


def insert_shares(limits: SparkLimits, source: SparkSource, rows: Rows) -> tuple[InsertShare, ...]:
    """Make shares of the rows to insert, which ascend: inline if it is one, else in files."""
    if not len(rows):
        return ()
    stage = source.stage()
    root, directory = stage.storage.root, stage.path
    size = limits.task_min_rows
    some = [rows[start : start + size] for start in range(0, len(rows), size)]
    inline = size if len(some) == 1 else 0
    pairs = [RowPairs.of(root, directory, np.arange(len(one)), one, inline) for one in some]
    return tuple(
        InsertShare(int(one[0]), int(one[-1]) + 1, (listed,), len(one))
        for one, listed in zip(some, pairs, strict=True)
    )


def moved_shares(limits: SparkLimits, rewritten: Collection[Rewritten]) -> tuple[InsertShare, ...]:
    """Make shares of the source rows that rows of rewritten files moved for."""
    shares = [InsertShare(0, 0, (done.moved,), done.moved_rows) for done in rewritten]
    return tuple(cut_shares(shares, limits.insert_max_rows))


def task_rows(limits: SparkLimits, total: int, rows_per_file: int) -> int:
    """Return how many rows one task inserts: full files, if one of them is less than its share."""
    rows = -(-total // max(1, total // limits.insert_max_rows))
    return -(-rows // rows_per_file) * rows_per_file if rows_per_file < rows else rows


def cut_shares(shares: Sequence[InsertShare], rows: int) -> list[InsertShare]:
    """Cut or join shares to so many rows for each task, in the order of the source."""
    work: list[InsertShare] = []
    for share in shares:
        if not share.pairs:
            starts = range(share.start, share.end, rows)
            work += [InsertShare(start, min(start + rows, share.end)) for start in starts]
        elif work and len(work[-1]) + len(share) <= rows:
            pairs, count = (*work[-1].pairs, *share.pairs), len(work[-1]) + len(share)
            work[-1] = InsertShare(work[-1].start, share.end, pairs, count)
        else:
            work.append(share)
    return work


@dataclass(frozen=True)
class InsertRows:
    """Writes rows of the source into new files."""

    root: Root
    source: SourceRows
    directory: str
    writer: NewFiles

    def __call__(self, share: InsertShare) -> Iterator[NewFile]:
        """Yield the files that were written."""
        writer = self.writer.elsewhere(partial(WorkerStage, self.directory))
        tables: Iterable[pa.Table] = insertable(self.root, self.source, share)
        if writer.partition_columns:
            # In one piece, so that no partition gets more files than it needs.
            tables = [pa.concat_tables(tables).unify_dictionaries()] if len(share) else []
        with writer:
            for table in tables:
                writer.write(table)
            yield from writer.finish()


def insertable(root: Root, source: SourceRows, share: InsertShare) -> Iterator[pa.Table]:
    """Yield the rows of a share, a row group of the source at a time."""
    if share.pairs:
        rows = np.sort(read_pairs(root, share.pairs)[1])
        yield from (table for _, table in source.holding(rows))
    else:
        yield from (table for _, table in source.pieces(share.start, share.end))


@dataclass(frozen=True)
class PartitionPieces:
    """The rows of one partition that a task has written together."""

    partition: tuple[Any, ...]
    """The values, in the form in which they are compared."""

    pieces: tuple[Piece, ...]

    @property
    def rows(self) -> int:
        """The rows of all pieces."""
        return sum(piece.rows for piece in self.pieces)


@dataclass(frozen=True)
class SplitByPartition:
    """Writes rows that are to be inserted, together for each partition."""

    root: Root
    source: SourceRows
    directory: str
    partitions: tuple[str, ...]

    def __call__(self, share: InsertShare) -> Iterator[list[PartitionPieces]]:
        """Yield what was written, partition by partition."""
        found: dict[tuple[Any, ...], list[Piece]] = {}
        with PieceWriter(self.root, self.directory) as writer:
            tables = insertable(self.root, self.source, share)
            # Each table makes a piece of every partition, so they are joined as far as is possible.
            for some in gather(tables, "nbytes", _MAX_HELD_BYTES):
                for partition, rows in self._split(pa.concat_tables(some)):
                    found.setdefault(partition, []).append(writer.add(rows))
        yield [PartitionPieces(values, tuple(pieces)) for values, pieces in found.items()]

    def _split(self, table: pa.Table) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
        columns = [key_column(name, table.schema.field(name).type) for name in self.partitions]
        names = [f"p{number}" for number in range(len(columns))]
        keys = canonical_keys(table, columns).rename_columns(names)
        numbered = keys.append_column("row", pa.array(np.arange(keys.num_rows)))
        for group in numbered.group_by(names).aggregate([("row", "list")]).to_pylist():
            rows = take_rows(table, pa.array(sorted(group["row_list"])))
            yield tuple(group[name] for name in names), rows


def pack_pieces(
    limits: SparkLimits, written: Sequence[PartitionPieces], rows_per_file: int
) -> list[list[Piece]]:
    """Pack pieces into tasks: those of one partition together, small partitions in one task."""
    by_partition: dict[tuple[Any, ...], list[Piece]] = {}
    for one in written:
        by_partition.setdefault(one.partition, []).extend(one.pieces)
    work: list[list[Piece]] = []
    filled = members = 0
    most = limits.insert_max_rows
    for pieces in by_partition.values():
        rows = sum(piece.rows for piece in pieces)
        limit = task_rows(limits, rows, rows_per_file)
        if not work or filled + rows > most or members >= limits.insert_max_partitions:
            work.append([])
            filled = members = 0
        members += 1
        for piece in pieces:
            if work[-1] and filled + piece.rows > max(limit, most):
                work.append([])
                filled = 0
            work[-1].append(piece)
            filled += piece.rows
    return work


@dataclass(frozen=True)
class InsertPieces:
    """Writes rows into new files, partition by partition."""

    root: Root
    directory: str
    writer: NewFiles = field(repr=False)

    def __call__(self, pieces: Sequence[Piece]) -> Iterator[NewFile]:
        """Yield the files that were written."""
        writer = self.writer.elsewhere(partial(WorkerStage, self.directory))
        with writer:
            for piece in pieces:
                writer.write(read_piece(self.root, piece))
            yield from writer.finish()
