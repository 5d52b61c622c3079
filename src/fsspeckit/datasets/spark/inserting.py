"""Source rows on their way to where they are written: an exchange through staged files.

A rewrite needs the source rows of one file, and an insert those of one partition. Where they are
scattered over the source, reading them in place would read the source once for every file. So
tasks read the source once, write the rows of each destination together, as pieces of staged files,
and only references to pieces are sorted and sent around. The rows themselves stay in Arrow: no
type of theirs is ever one of Spark's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from fsspeckit.core.arrow_compat import take_rows, without_views
from fsspeckit.core.keys import canonical_keys, key_column
from fsspeckit.datasets.spark.tasks import RewriteFile, insertable, new_name
from fsspeckit.storage import WorkerStage, read_range

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from fsspeckit.core.rewrite import NewFile, NewFiles, Rewritten
    from fsspeckit.datasets.spark.source import SourceRows
    from fsspeckit.datasets.spark.tasks import InsertShare, RewriteFiles
    from fsspeckit.storage import Root

    Rows = NDArray[np.int64]

__all__ = [
    "PIECES",
    "InsertPieces",
    "PartitionPieces",
    "Piece",
    "PieceWriter",
    "ReadPairs",
    "RewriteRouted",
    "RouteRows",
    "RouteShare",
    "SplitByPartition",
    "read_piece",
]

PIECES = "task int, route bigint, window bigint, path string, offset bigint, length bigint"
"""References to pieces, as Spark's schema."""

_PAIRS_AT_ONCE = 1_048_576
_GATHERED_BYTES = 64 * 1024 * 1024
_POSITION = "fsspeckit position"


@dataclass(frozen=True)
class Piece:
    """Rows of the source in a part of a staged file."""

    path: str
    offset: int
    length: int
    rows: int = 0


class PieceWriter:
    """Writes pieces into one new staged file; a context manager."""

    def __init__(self, root: Root, directory: str) -> None:
        self._root = root
        self._path = new_name(directory, "pieces")
        self._handle: Any = None
        self._end = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._handle is not None:
            self._handle.close()

    def add(self, rows: pa.Table) -> Piece:
        """Write rows; they can be read when the writer is closed."""
        if self._handle is None:
            self._handle = self._root.filesystem.open(self._path, "wb")
        sink = pa.BufferOutputStream()
        plain = without_views(rows.unify_dictionaries().combine_chunks())
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_stream(sink, plain.schema, options=options) as stream:
            stream.write_table(plain)
        data = sink.getvalue()
        self._handle.write(data)
        piece = Piece(self._path, self._end, data.size, rows.num_rows)
        self._end += data.size
        return piece


def read_piece(root: Root, piece: Piece) -> pa.Table:
    """The rows of a piece."""
    data = read_range(root, piece.path, piece.offset, piece.length)
    with pa.ipc.open_stream(pa.py_buffer(data)) as stream:
        return stream.read_all()


@dataclass(frozen=True)
class ReadPairs:
    """Reads which position of which file has which source row."""

    root: Root
    only_moved: bool = False
    """Give only those whose row belongs to another partition."""

    def __call__(self, work: Sequence[tuple[int, RewriteFile]]) -> Iterator[pa.RecordBatch]:
        """Gives the pairs of files, which are told by their numbers."""
        for route, pairs in ((route, pairs) for route, file in work for pairs in file.pairs):
            for table in pairs.tables(self.root):
                wanted = table.filter(table["moved"]) if self.only_moved else table
                numbers = pa.repeat(pa.scalar(route, pa.int64()), wanted.num_rows)
                told = wanted.select(["position", "row"]).append_column("route", numbers)
                yield from told.combine_chunks().to_batches(max_chunksize=65_536)


@dataclass(frozen=True)
class RouteRows:
    """Writes source rows, together for each part of a file that is rewritten at once."""

    source: SourceRows
    root: Root
    directory: str
    windows: Mapping[int, Rows]
    """By the number of the file, the first positions of such parts."""

    tasks: Mapping[int, int]
    """By the number of the file, that of the task that rewrites it."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Takes pairs in the order of source rows; gives references to pieces."""
        told: list[tuple[int, int, Piece]] = []
        with PieceWriter(self.root, self.directory) as writer:
            for pairs in _gathered(batches):
                told += self._write(writer, pairs)
        if told:
            yield self._references(told)

    def _write(self, writer: PieceWriter, pairs: pa.Table) -> Iterator[tuple[int, int, Piece]]:
        rows, routes, positions = (pairs[name].to_numpy() for name in ("row", "route", "position"))
        for part, table in self.source.holding(rows):
            here, places = routes[part], positions[part]
            windows = self._windows(here, places)
            order = np.lexsort((places, windows, here))
            named = table.append_column(_POSITION, pa.array(places))
            named = take_rows(named, pa.array(order))
            ends = _cuts(here[order], windows[order])
            for start, end in zip([0, *ends], [*ends, len(order)], strict=True):
                first = order[start]
                piece = writer.add(named.slice(start, end - start))
                yield int(here[first]), int(windows[first]), piece

    def _references(self, told: Sequence[tuple[int, int, Piece]]) -> pa.RecordBatch:
        columns: list[pa.Array] = [
            pa.array([self.tasks[route] for route, _, _ in told], pa.int32()),
            pa.array([route for route, _, _ in told], pa.int64()),
            pa.array([window for _, window, _ in told], pa.int64()),
            pa.array([piece.path for _, _, piece in told], pa.string()),
            pa.array([piece.offset for _, _, piece in told], pa.int64()),
            pa.array([piece.length for _, _, piece in told], pa.int64()),
        ]
        names = ["task", "route", "window", "path", "offset", "length"]
        return pa.RecordBatch.from_arrays(columns, names)

    def _windows(self, routes: Rows, positions: Rows) -> Rows:
        windows = np.empty(len(routes), np.int64)
        for route in np.unique(routes).tolist():
            mine = routes == route
            windows[mine] = np.searchsorted(self.windows[route], positions[mine], "right") - 1
        return windows


@dataclass(frozen=True)
class RouteShare:
    """Routes a share of the source, whose pairs it picks out of those of all files."""

    route: RouteRows
    pairs: ReadPairs
    files: Sequence[tuple[int, RewriteFile]]

    def __call__(self, share: tuple[int, int]) -> Iterator[pa.RecordBatch]:
        """Takes the first row of the share and the one after its last."""
        mine = []
        for batch in self.pairs(self.files):
            row = batch.column("row").to_numpy()
            mine.append(batch.filter(pa.array((row >= share[0]) & (row < share[1]))))
        if not mine:
            return
        found = pa.Table.from_batches(mine)
        order = np.argsort(found["row"].to_numpy(), kind="stable")
        yield from self.route(found.take(pa.array(order)).combine_chunks().to_batches())


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(one.num_rows for one in waiting) >= _PAIRS_AT_ONCE:
            yield pa.Table.from_batches(waiting)
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting)


def _cuts(*columns: Rows) -> list[int]:
    """Where one of some columns changes."""
    changes = np.zeros(max(len(columns[0]) - 1, 0), bool)
    for column in columns:
        changes |= np.diff(column) != 0
    return [int(place) + 1 for place in np.flatnonzero(changes)]


@dataclass(frozen=True)
class RewriteRouted:
    """Writes files anew with rows that have been routed to them."""

    rewriter: RewriteFiles
    files: Mapping[int, RewriteFile]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, Rewritten]]:
        """Takes references in the order of files; gives what became of each."""
        current: int | None = None
        pieces: dict[int, list[Piece]] = {}
        for batch in batches:
            for told in batch.to_pylist():
                if current is not None and told["route"] != current:
                    yield self._rewritten(current, pieces)
                    pieces = {}
                current = told["route"]
                piece = Piece(told["path"], told["offset"], told["length"])
                pieces.setdefault(told["window"], []).append(piece)
        if current is not None:
            yield self._rewritten(current, pieces)

    def _rewritten(self, route: int, pieces: Mapping[int, list[Piece]]) -> tuple[str, Rewritten]:
        root = self.rewriter.root

        def load(window: int, _: Rows) -> pa.Table:
            table = pa.concat_tables([read_piece(root, one) for one in pieces[window]])
            order = np.argsort(table[_POSITION].to_numpy(), kind="stable")
            return table.drop_columns(_POSITION).unify_dictionaries().take(pa.array(order))

        file = self.files[route]
        return file.path, self.rewriter.rewritten(file, load)


@dataclass(frozen=True)
class PartitionPieces:
    """Rows of one partition that a task has put together."""

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
        """Gives what was written, partition by partition."""
        found: dict[tuple[Any, ...], list[Piece]] = {}
        with PieceWriter(self.root, self.directory) as writer:
            for table in _together(insertable(self.root, self.source, share)):
                for partition, rows in self._split(table):
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


def _together(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Tables put together as far as a task may hold them, so that pieces are few."""
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        if sum(one.nbytes for one in waiting) >= _GATHERED_BYTES:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


@dataclass(frozen=True)
class InsertPieces:
    """Writes rows into new files, partition by partition."""

    root: Root
    directory: str
    writer: NewFiles = field(repr=False)

    def __call__(self, pieces: Sequence[Piece]) -> Iterator[NewFile]:
        """Gives the files that were written."""
        writer = self.writer.elsewhere(partial(WorkerStage, self.directory))
        with writer:
            for piece in pieces:
                writer.write(read_piece(self.root, piece))
            yield from writer.finish()
