"""Change feeds in tasks: functions of rows, of all rows of a key, and the stored rows of keys.

What tasks make is staged as the parts of a new source. Rows stay in Arrow, and none of them passes
through the driver; Spark sorts and sends references to pieces only.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fsspeckit.core.arrow_compat import cast_table, take_rows
from fsspeckit.core.keys import canonical_keys, key_fingerprints
from fsspeckit.core.matching import read_positions
from fsspeckit.core.schema_conform import conform_table
from fsspeckit.datasets.spark.limits import pack_by_size, row_ranges
from fsspeckit.datasets.spark.matching import row_group_bytes, subset
from fsspeckit.datasets.spark.rewriting import (
    Piece,
    PieceWriter,
    file_windows,
    gather,
    read_pairs,
    read_piece,
)
from fsspeckit.datasets.spark.session import Mailbox
from fsspeckit.datasets.spark.source import SourceRows, stage_part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from fsspeckit.core.keys import KeyColumn
    from fsspeckit.core.planning import Target
    from fsspeckit.datasets.engine import Matches, OpenStage
    from fsspeckit.datasets.spark.limits import SparkLimits
    from fsspeckit.datasets.spark.progress import PhaseTasks
    from fsspeckit.datasets.spark.rewriting import RowPairs
    from fsspeckit.datasets.spark.session import Jobs
    from fsspeckit.datasets.spark.source import Part
    from fsspeckit.storage import Root

    Rows = NDArray[np.int64]

__all__ = [
    "CombinePieces",
    "ReadMatched",
    "SplitByKey",
    "StagedFunction",
    "TransformRows",
    "combine_sources",
    "read_matched_rows",
    "stage_function",
    "transform_source",
]

_REFERENCES = (
    "bucket int, side int, start bigint, number int, path string, offset bigint, length bigint"
)
_MAX_HELD_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class StagedFunction:
    """A function that is too large to be sent with every task."""

    mailbox: Mailbox
    message: bytes

    def load(self) -> Callable[..., pa.Table]:
        """Read it."""
        function: Callable[..., pa.Table] = self.mailbox.open(self.message)
        return function


def stage_function(
    limits: SparkLimits, stage: OpenStage, function: Callable[..., pa.Table]
) -> Callable[..., pa.Table] | StagedFunction:
    """Return a function as tasks get it: as it is, or staged if it has much data."""
    data = pickle.dumps(function)
    if len(data) <= limits.broadcast_max_function_bytes:
        return function
    mailbox = Mailbox(stage().storage.root, stage().path)
    return StagedFunction(mailbox, pickle.dumps(mailbox.leave(data)))


def _loaded(function: Callable[..., pa.Table] | StagedFunction) -> Callable[..., pa.Table]:
    return function.load() if isinstance(function, StagedFunction) else function


@dataclass(frozen=True)
class _StageRows:
    """Where a task stages the rows that it makes."""

    root: Root
    directory: str
    schema: pa.Schema

    def stage(self, tables: Iterable[pa.Table]) -> Part | None:
        batches = (
            batch for table in tables for batch in cast_table(table, self.schema).to_batches()
        )
        return stage_part(self.root, self.directory, self.schema, batches)


def _staging(stage: OpenStage, schema: pa.Schema) -> _StageRows:
    return _StageRows(stage().storage.root, stage().path, schema)


@dataclass(frozen=True)
class TransformRows:
    """Stages what a function makes of the rows of a source, a row group at a time."""

    source: SourceRows
    function: Callable[[pa.Table], pa.Table] | StagedFunction
    made: _StageRows

    def __call__(self, rows: tuple[int, int]) -> Iterator[tuple[int, Part]]:
        """Take the rows from a number to before another; yield the first and their part."""
        function = _loaded(self.function)
        part = self.made.stage(function(table) for _, table in self.source.pieces(*rows))
        if part is not None:
            yield rows[0], part


def transform_source(
    jobs: Jobs,
    limits: SparkLimits,
    stage: OpenStage,
    source: SourceRows,
    function: Callable[[pa.Table], pa.Table],
    tasks: PhaseTasks,
) -> SourceRows:
    """Let tasks call a function for the rows of a source; the order of the rows is kept."""
    schema = function(source.schema.empty_table()).schema
    task = TransformRows(source, stage_function(limits, stage, function), _staging(stage, schema))
    work = row_ranges(limits, source.num_rows, jobs.tasks)
    found = jobs.map_items("transform the source for", stage, task, work, tasks)
    parts = sorted(found, key=lambda message: message[0])
    return SourceRows(schema, tuple(part for _, part in parts))


@dataclass(frozen=True)
class SplitByKey:
    """Writes rows of two sources as pieces, so that the rows of a key are in the same bucket."""

    sources: tuple[SourceRows, SourceRows]
    keys: tuple[KeyColumn, ...]
    buckets: int
    root: Root
    directory: str

    def __call__(self, work: tuple[int, tuple[int, int]]) -> Iterator[pa.RecordBatch]:
        """Take the number of a source and a range of its rows, and yield references to pieces."""
        side, (start, end) = work
        written: list[tuple[int, Piece]] = []
        with PieceWriter(self.root, self.directory) as writer:
            tables = (table for _, table in self.sources[side].pieces(start, end))
            # Each table makes a piece of every bucket, so they are joined as far as is possible.
            for some in gather(tables, "nbytes", _MAX_HELD_BYTES):
                table = pa.concat_tables(some).unify_dictionaries()
                written += [(bucket, writer.add(rows)) for bucket, rows in self._split(table)]
        if written:
            yield _references(side, start, written)

    def _split(self, table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        buckets = key_fingerprints(canonical_keys(table, self.keys)) % self.buckets
        order = np.argsort(buckets, kind="stable")
        ordered = take_rows(table, pa.array(order))
        found, starts = np.unique(buckets[order], return_index=True)
        for bucket, start, end in zip(
            found.tolist(), starts, [*starts[1:], len(order)], strict=True
        ):
            yield bucket, ordered.slice(start, end - start)


def _references(side: int, start: int, written: Sequence[tuple[int, Piece]]) -> pa.RecordBatch:
    rows = [
        (bucket, side, start, number, piece.path, piece.offset, piece.length)
        for number, (bucket, piece) in enumerate(written)
    ]
    names = ["bucket", "side", "start", "number", "path", "offset", "length"]
    small, large = pa.int32(), pa.int64()
    types = [small, small, large, small, pa.string(), large, large]
    columns = zip(*rows, strict=True)
    arrays = [pa.array(list(one), kind) for one, kind in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names)


@dataclass(frozen=True)
class CombinePieces:
    """Stages what a function makes of the rows of two sources, a bucket at a time."""

    schemas: tuple[pa.Schema, pa.Schema]
    function: Callable[[pa.Table, pa.Table], pa.Table] | StagedFunction
    made: _StageRows

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Part]:
        """Take references in the order of buckets, and yield a part."""
        function = _loaded(self.function)
        references = (one for batch in batches for one in batch.to_pylist())
        part = self.made.stage(
            function(*self._rows(list(pieces)))
            for _, pieces in groupby(references, lambda one: one["bucket"])
        )
        if part is not None:
            yield part

    def _rows(self, references: Sequence[Mapping[str, Any]]) -> Iterator[pa.Table]:
        """Yield the rows of both sides."""
        for side, schema in enumerate(self.schemas):
            mine = [
                Piece(one["path"], one["offset"], one["length"])
                for one in references
                if one["side"] == side
            ]
            tables = [conform_table(read_piece(self.made.root, one), schema) for one in mine]
            yield pa.concat_tables([schema.empty_table(), *tables]).unify_dictionaries()


def combine_sources(
    jobs: Jobs,
    limits: SparkLimits,
    stage: OpenStage,
    sources: tuple[SourceRows, SourceRows],
    function: Callable[[pa.Table, pa.Table], pa.Table],
    keys: Sequence[KeyColumn],
    tasks: PhaseTasks,
) -> SourceRows:
    """Let tasks call a function for the rows of two sources, those of each key together."""
    left, right = (source.schema for source in sources)
    schema = function(left.empty_table(), right.empty_table()).schema
    made = _staging(stage, schema)
    total = sum(source.bytes for source in sources)
    share = max(limits.task_min_bytes, -(-total // jobs.tasks))
    buckets = -(-total // min(limits.combine_max_bytes, share)) or 1
    work = [
        (side, rows)
        for side, source in enumerate(sources)
        for rows in row_ranges(limits, source.num_rows, jobs.tasks)
    ]
    split = SplitByKey(sources, tuple(keys), buckets, made.root, made.directory)
    pieces = jobs.map_items_to_rows(split, work, _REFERENCES)
    together = pieces.repartitionById(buckets, "bucket")
    ordered = together.sortWithinPartitions("bucket", "side", "start", "number")
    task = CombinePieces((left, right), stage_function(limits, stage, function), made)
    found = jobs.map_partitions("combine changes for", stage, ordered, task, tasks)
    return SourceRows(schema, tuple(found))


@dataclass(frozen=True)
class ReadMatched:
    """Stages the rows of files at some positions."""

    target: Target
    windows: Mapping[int, Rows]
    """By the number of a file, the first positions of its windows."""

    made: _StageRows

    def __call__(self, work: Sequence[tuple[int, tuple[RowPairs, ...]]]) -> Iterator[Part]:
        """Take files by number, with pairs that have the positions, and yield a part."""
        part = self.made.stage(
            read_positions(self.target, number, positions, self.made.schema)
            for number, pairs in work
            for positions in self._positions(number, pairs)
        )
        if part is not None:
            yield part

    def _positions(self, number: int, pairs: tuple[RowPairs, ...]) -> Iterator[Rows]:
        """Yield the positions of one window of a file after the other."""
        positions, _ = read_pairs(self.target.root, pairs)
        cuts = np.searchsorted(positions, self.windows[number][1:])
        yield from (some for some in np.split(positions, cuts) if len(some))


def read_matched_rows(
    jobs: Jobs,
    limits: SparkLimits,
    stage: OpenStage,
    target: Target,
    matches: Matches[Any],
    pairs: Mapping[str, tuple[RowPairs, ...]],
    schema: pa.Schema,
    tasks: PhaseTasks,
) -> SourceRows:
    """Let tasks read the rows of the target that match; ``pairs`` are those of each path."""
    numbers = [
        number
        for number, footer in enumerate(target.footers)
        if footer.file.path in pairs and matches.files[footer.file.path].rows
    ]
    some = subset(target, numbers)
    paths = [footer.file.path for footer in some.footers]
    sized = [
        ((n, pairs[path]), row_group_bytes(some, [(n, matches.files[path].row_groups)]))
        for n, path in enumerate(paths)
    ]
    windows = {n: file_windows(footer, limits) for n, footer in enumerate(some.footers)}
    task = ReadMatched(some, windows, _staging(stage, schema))
    work = pack_by_size(limits, sized, jobs.tasks)
    found = jobs.map_items("read stored versions of", stage, task, work, tasks)
    return SourceRows(schema, tuple(found))
