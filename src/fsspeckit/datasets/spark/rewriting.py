"""Rewriting files in tasks, with source rows that are read in place or routed to their files.

Where the source rows of a file are scattered over the source, reading them in place would read the
source once for every file. So tasks read the source once and write the rows of each destination
together, as pieces of staged files; only references to pieces are sorted and sent by Spark. Rows
stay in Arrow: none of their types is ever converted to one of Spark's.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.arrow_compat import open_data_file, take_rows, without_views
from fsspeckit.core.matching import FilePartition
from fsspeckit.core.rewrite import Replacement, RowRules, rewrite
from fsspeckit.datasets.pipeline import stored_columns
from fsspeckit.datasets.spark.source import SPILL_WRITE_OPTIONS, new_path
from fsspeckit.storage import WorkerStage, read_range

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from fsspeckit.core.planning import FileFooter, Target
    from fsspeckit.core.rewrite import Rewritten
    from fsspeckit.datasets.spark.limits import SparkLimits
    from fsspeckit.datasets.spark.source import SourceRows, SparkSource
    from fsspeckit.storage import Root

    Rows = NDArray[np.int64]
    LoadRows = Callable[[int, Rows, Sequence[str]], pa.Table]
    """Returns columns of the new rows of a window of a file, in the order of positions."""

__all__ = [
    "PAIRS",
    "PIECES",
    "Piece",
    "PieceWriter",
    "ReadPairs",
    "RewriteFile",
    "RewriteFiles",
    "RewriteRouted",
    "RouteRows",
    "RowPairs",
    "file_windows",
    "gather",
    "read_pairs",
    "read_piece",
    "rewriter_for",
    "source_reads",
]

PAIRS = "position bigint, row bigint, route bigint"
"""Pairs of a position and its source row, with the number of the file, as Spark's schema."""

PIECES = "task int, route bigint, window bigint, path string, offset bigint, length bigint"
"""References to pieces, as Spark's schema."""

_MAX_PAIRS = 1_048_576
_POSITION = "fsspeckit position"
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class RowPairs:
    """Positions in a file and the source row for each: inline up to a limit, else in a file."""

    path: str | None
    row_groups: tuple[int, ...] = ()
    """The row groups of the file at ``path`` that hold the pairs."""

    positions: Rows | None = None
    source_rows: Rows | None = None

    @classmethod
    def held(cls, positions: Rows, source_rows: Rows) -> RowPairs:
        """Keep pairs in memory."""
        return cls(None, (), positions, source_rows)

    @classmethod
    def of(
        cls,
        root: Root,
        directory: str,
        positions: Rows,
        source_rows: Rows,
        inline: int,
    ) -> RowPairs:
        """Keep pairs, in a staged file if there are more than ``inline``."""
        if len(positions) <= inline:
            return cls.held(positions, source_rows)
        path = new_path(directory, "positions")
        table = pa.table({"position": positions, "row": source_rows})
        with root.filesystem.open(path, "wb") as handle:
            pq.write_table(
                table, handle, row_group_size=max(len(positions), 1), **SPILL_WRITE_OPTIONS
            )
        return cls(path, (0,))

    def tables(self, root: Root) -> Iterator[pa.Table]:
        """Read the pairs one row group at a time."""
        if self.path is None:
            yield pa.table({"position": self.positions, "row": self.source_rows})
            return
        with open_data_file(root, self.path) as file:
            for number in self.row_groups:
                yield file.read_row_group(number)


def file_windows(footer: FileFooter, limits: SparkLimits) -> Rows:
    """Return the first position of each window: a part of a file whose new rows a task holds."""
    starts, position, size = [0], 0, 0
    for group in footer.row_groups:
        is_full = (
            size + group.bytes > limits.window_max_bytes
            or position + group.rows - starts[-1] > limits.window_max_rows
        )
        if is_full and position > starts[-1]:
            starts.append(position)
            size = 0
        position += group.rows
        size += group.bytes
    return np.array(starts, np.int64)


def source_reads(windows: Rows, starts: Rows, positions: Rows, rows: Rows) -> int:
    """Count the reads of source row groups where each window of a file reads its own rows.

    Args:
        windows: The first positions of the windows.
        starts: The first rows of the source's row groups.
        positions: Positions in the file.
        rows: The source row of each.
    """
    window = np.searchsorted(windows, positions, "right")
    group = np.searchsorted(starts, rows, "right")
    return len(np.unique(window * len(starts) + group))


@dataclass(frozen=True)
class RewriteFile:
    """A file to rewrite, with its positions and their source rows."""

    path: str
    pairs: tuple[RowPairs, ...]


@dataclass(frozen=True)
class RewriteFiles:
    """Rewrites files with rows of the source."""

    root: Root
    source: SourceRows
    directory: str
    key_columns: tuple[str, ...]
    columns: Mapping[str, tuple[str, ...]]
    """By path, the source columns that a file stores."""

    windows: Mapping[str, Rows]
    """By path, the first positions of the windows of a file."""

    rules: RowRules
    """What happens to the rows of a file."""

    types: pa.Schema | None = None
    """The types of columns that a file stores without one."""

    partitions: Mapping[str, FilePartition] = field(default_factory=dict)
    """By path, the partition of a file, if the rules let rows move to another one."""

    inline: int = 0
    """How many moved rows of a file are sent to the driver; more are staged."""

    def __call__(self, files: Sequence[RewriteFile]) -> Iterator[tuple[str, Rewritten]]:
        """Yield the path of each file and how it was rewritten."""
        for file in files:
            yield file.path, self.rewrite_file(file, self._take)

    def _take(self, _: int, rows: Rows, columns: Sequence[str]) -> pa.Table:
        return self.source.take(rows, columns)

    def rewrite_file(self, file: RewriteFile, load: LoadRows) -> Rewritten:
        """Rewrite one file."""
        positions, source_rows = read_pairs(self.root, file.pairs)
        destination = WorkerStage(self.directory).new_file().path
        starts = np.searchsorted(positions, self.windows[file.path])
        new = _NewRows(starts, source_rows, self.columns[file.path], load)
        # The rewriter asks for rows by the numbers given here: those of the pairs say where to
        # look, those of the source rows would not.
        numbers = np.arange(len(positions))
        found = Replacement(positions, numbers, self.rules, self.partitions.get(file.path))
        deciding = _NewRows(starts, source_rows, found.deciding_columns, load)
        done = rewrite(
            self.root,
            file.path,
            found,
            new.rows,
            destination,
            deciding=deciding.rows,
            key_columns=self.key_columns,
            types=self.types,
        )
        moved = self._keep(source_rows[done.moved]) if done.moved_rows else None
        return replace(done, path=destination if done.is_new else None, moved=moved)

    def _keep(self, rows: Rows) -> RowPairs:
        return RowPairs.of(self.root, self.directory, np.arange(len(rows)), rows, self.inline)


@dataclass
class _NewRows:
    """The new rows of a file; those of one window are in memory."""

    starts: Rows
    """The number of the first pair of each window."""

    source_rows: Rows
    columns: Sequence[str]
    load: LoadRows
    _window: int = -1
    _held: pa.Table | None = None

    def rows(self, pairs: Rows) -> pa.Table:
        """Return the rows of pairs, given by their numbers, which ascend."""
        windows = np.searchsorted(self.starts, pairs, "right") - 1
        parts = [
            self._of_window(int(number), pairs[windows == number]) for number in np.unique(windows)
        ]
        return parts[0] if len(parts) == 1 else pa.concat_tables(parts).unify_dictionaries()

    def _of_window(self, window: int, pairs: Rows) -> pa.Table:
        start = int(self.starts[window])
        end = int(self.starts[window + 1]) if window + 1 < len(self.starts) else None
        if self._held is None or window != self._window:
            self._held = None  # before the next one is there
            wanted = self.source_rows[start:end]
            loaded = self.load(window, wanted, self.columns)
            if loaded.num_rows != len(wanted):
                raise RuntimeError(
                    f"{loaded.num_rows} rows were routed for {len(wanted)} positions."
                )
            self._window, self._held = window, loaded
        return take_rows(self._held, pa.array(pairs - start))


def read_pairs(root: Root, pairs: Sequence[RowPairs]) -> tuple[Rows, Rows]:
    """Read the pairs that several tasks found in a file, in the order of positions."""
    schema = pa.schema([("position", pa.int64()), ("row", pa.int64())])
    tables = [table.select(schema.names) for one in pairs for table in one.tables(root)]
    joined = pa.concat_tables([schema.empty_table(), *tables])
    positions, rows = (column.to_numpy() for column in joined.columns)
    order = np.argsort(positions, kind="stable")
    return positions[order], rows[order]


def rewriter_for(
    source: SparkSource,
    target: Target,
    limits: SparkLimits,
    rules: RowRules,
) -> RewriteFiles:
    """Return the task that rewrites files of the target."""
    rules = replace(rules, evolution=target.evolution)
    columns = stored_columns(target, target.footers, rules.stored(source.schema.names))
    return RewriteFiles(
        target.root,
        source.rows,
        source.stage().path,
        tuple(column.name for column in target.key_columns),
        columns,
        {footer.file.path: file_windows(footer, limits) for footer in target.footers},
        rules,
        target.types,
        FilePartition.by_path(target) if rules.moves else {},
        limits.broadcast_max_inline_pairs,
    )


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
        self._path = new_path(directory, "pieces")
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
    """Read the rows of a piece."""
    data = read_range(root, piece.path, piece.offset, piece.length)
    with pa.ipc.open_stream(pa.py_buffer(data)) as stream:
        return stream.read_all()


@dataclass(frozen=True)
class ReadPairs:
    """Reads which position of which file has which source row."""

    root: Root
    only_moved: bool = False
    """Whether only pairs are read whose source row belongs to another partition."""

    def __call__(self, work: Sequence[tuple[int, RewriteFile]]) -> Iterator[pa.RecordBatch]:
        """Yield the pairs of files, which are given with their numbers."""
        for route, pairs in ((route, pairs) for route, file in work for pairs in file.pairs):
            for table in pairs.tables(self.root):
                wanted = table.filter(table["moved"]) if self.only_moved else table
                numbers = pa.repeat(pa.scalar(route, pa.int64()), wanted.num_rows)
                found = wanted.select(["position", "row"]).append_column("route", numbers)
                yield from found.combine_chunks().to_batches(max_chunksize=65_536)


@dataclass(frozen=True)
class RouteRows:
    """Writes source rows as pieces, one for each window of a file and row group of the source."""

    source: SourceRows
    root: Root
    directory: str
    windows: Mapping[int, Rows]
    """By the number of the file, the first positions of its windows."""

    tasks: Mapping[int, int]
    """By the number of the file, that of the task that rewrites it."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take pairs in the order of source rows, and yield references to pieces."""
        written: list[tuple[int, int, Piece]] = []
        with PieceWriter(self.root, self.directory) as writer:
            for some in gather(batches, "num_rows", _MAX_PAIRS):
                written += self._write(writer, pa.Table.from_batches(some))
        if written:
            yield self._references(written)

    def _write(self, writer: PieceWriter, pairs: pa.Table) -> Iterator[tuple[int, int, Piece]]:
        rows, routes, positions = (pairs[name].to_numpy() for name in ("row", "route", "position"))
        for part, table in self.source.holding(rows):
            here, there = routes[part], positions[part]
            windows = self._windows(here, there)
            order = np.lexsort((there, windows, here))
            named = table.append_column(_POSITION, pa.array(there))
            named = take_rows(named, pa.array(order))
            ends = _cuts(here[order], windows[order])
            for start, end in zip([0, *ends], [*ends, len(order)], strict=True):
                first = order[start]
                piece = writer.add(named.slice(start, end - start))
                yield int(here[first]), int(windows[first]), piece

    def _references(self, written: Sequence[tuple[int, int, Piece]]) -> pa.RecordBatch:
        rows = [
            (self.tasks[route], route, window, piece.path, piece.offset, piece.length)
            for route, window, piece in written
        ]
        names = ["task", "route", "window", "path", "offset", "length"]
        columns = [list(column) for column in zip(*rows, strict=True)]
        references = pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names)
        return references.set_column(0, "task", references["task"].cast(pa.int32()))

    def _windows(self, routes: Rows, positions: Rows) -> Rows:
        windows = np.empty(len(routes), np.int64)
        for route in np.unique(routes).tolist():
            mine = routes == route
            windows[mine] = np.searchsorted(self.windows[route], positions[mine], "right") - 1
        return windows


def gather(items: Iterable[_Item], size: str, limit: int) -> Iterator[list[_Item]]:
    """Yield items together until their sizes, which an attribute has, reach a limit."""
    waiting: list[_Item] = []
    for item in items:
        waiting.append(item)
        if sum(getattr(one, size) for one in waiting) >= limit:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def _cuts(*columns: Rows) -> list[int]:
    """Return the positions where the value of a column changes."""
    changes = np.zeros(max(len(columns[0]) - 1, 0), bool)
    for column in columns:
        changes |= np.diff(column) != 0
    return (np.flatnonzero(changes) + 1).tolist()


@dataclass(frozen=True)
class RewriteRouted:
    """Rewrites files with rows that have been routed to them."""

    rewriter: RewriteFiles
    files: Mapping[int, RewriteFile]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, Rewritten]]:
        """Take references in the order of files, and yield how each file was rewritten."""
        current: int | None = None
        pieces: dict[int, list[Piece]] = {}
        for batch in batches:
            for reference in batch.to_pylist():
                if current is not None and reference["route"] != current:
                    yield self._rewritten(current, pieces)
                    pieces = {}
                current = reference["route"]
                piece = Piece(reference["path"], reference["offset"], reference["length"])
                pieces.setdefault(reference["window"], []).append(piece)
        if current is not None:
            yield self._rewritten(current, pieces)

    def _rewritten(self, route: int, pieces: Mapping[int, list[Piece]]) -> tuple[str, Rewritten]:
        root = self.rewriter.root

        def load(window: int, _: Rows, columns: Sequence[str]) -> pa.Table:
            table = pa.concat_tables([read_piece(root, one) for one in pieces[window]])
            order = np.argsort(table[_POSITION].to_numpy(), kind="stable")
            return table.select(list(columns)).unify_dictionaries().take(pa.array(order))

        file = self.files[route]
        return file.path, self.rewriter.rewrite_file(file, load)
