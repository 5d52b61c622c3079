"""Matching source keys with the target: tasks that have all keys, or a join by Spark."""

from __future__ import annotations

import itertools
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.keys import python_value
from fsspeckit.core.matching import (
    IndexedKeys,
    Positions,
    find_positions,
    keys_of_file,
    moving_keys,
    prefilter_for,
    row_group_starts,
    selected_positions,
)
from fsspeckit.core.planning import PartitionValues
from fsspeckit.datasets.spark.limits import pack_by_size
from fsspeckit.datasets.spark.rewriting import RewriteFile, RowPairs, source_reads
from fsspeckit.datasets.spark.source import SPILL_WRITE_OPTIONS, new_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from fsspeckit.core.conditions import Condition
    from fsspeckit.core.planning import ConditionVerdict, Target
    from fsspeckit.core.rewrite import Rewritten
    from fsspeckit.datasets.spark.keys import KeyColumns, StagedKeys
    from fsspeckit.datasets.spark.limits import SparkLimits
    from fsspeckit.datasets.spark.rewriting import RewriteFiles
    from fsspeckit.datasets.spark.source import SparkSource

    Rows = NDArray[np.int64]
    ScanWork = Sequence[tuple[int, tuple[int, ...]]]

__all__ = [
    "MAX_SAMPLES",
    "CountRows",
    "FoundRows",
    "MatchFiles",
    "ScanFiles",
    "Scanned",
    "SelectRows",
    "WritePairs",
    "pack_flags",
    "pack_scans",
    "row_group_bytes",
    "sample_keys_of",
    "scattered_files",
    "subset",
    "unpack_flags",
]

_MAX_PAIRS = 1_048_576
MAX_SAMPLES = 5
"""How many keys an error message shows."""


def subset(target: Target, numbers: Sequence[int]) -> Target:
    """Return a target of some of its files: what tasks get."""
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


def row_group_bytes(target: Target, work: ScanWork) -> int:
    """Return the bytes of the row groups to scan."""
    return sum(target.footers[n].row_groups[g].bytes for n, groups in work for g in groups)


def pack_scans(
    limits: SparkLimits, target: Target, work: ScanWork, tasks: int
) -> list[list[tuple[int, tuple[int, ...]]]]:
    """Pack row groups to scan into tasks: small files together, large ones apart."""
    units: list[tuple[tuple[int, tuple[int, ...]], int]] = []
    for number, row_groups in work:
        groups = target.footers[number].row_groups
        size, members = 0, []
        for group in row_groups:
            members.append(group)
            size += groups[group].bytes
            if size >= limits.task_max_bytes:
                units.append(((number, tuple(members)), size))
                size, members = 0, []
        if members:
            units.append(((number, tuple(members)), size))
    return pack_by_size(limits, units, tasks)


@dataclass(frozen=True)
class FoundRows:
    """The matches that a task has found in one file, or rows that have none."""

    route: int
    """The number of the file; negative for rows without a match."""

    rows: int
    row_groups: tuple[int, ...]
    pairs: RowPairs
    moved: int = 0
    """How many of the pairs have a source row that belongs to another partition."""

    samples: tuple[int, ...] = ()
    """Some of these source rows, for an error message."""

    reads: int = 0
    """Reads of source row groups where each window of the file reads its own rows."""

    rewritten: Rewritten | None = None
    """How the file was rewritten, if the same task has done it."""


@dataclass(frozen=True)
class Scanned:
    """The message of a task that has scanned files."""

    files: tuple[FoundRows, ...]
    known: bytes
    """For each source key, whether one of the files has it."""

    moved: bytes
    """For each source key, whether one of the files has it in another partition."""


def pack_flags(flags: NDArray[np.bool_]) -> bytes:
    """Compress flags, most of which are alike."""
    return zlib.compress(np.packbits(flags).tobytes())


def unpack_flags(data: bytes, count: int) -> NDArray[np.bool_]:
    """Reverse :func:`pack_flags`."""
    bits = np.frombuffer(zlib.decompress(data), np.uint8)
    return np.unpackbits(bits, count=count).astype(bool)


@dataclass(frozen=True)
class MatchFiles:
    """Scans files for the keys of the source, all of which every task has."""

    target: Target
    keys: IndexedKeys | StagedKeys
    directory: str
    windows: Mapping[int, Rows]
    """By the number of a file, the first positions of its windows."""

    starts: Rows | None
    """The first rows of the source's row groups; None where rows are never routed."""

    inline: int
    """How many matches of a file are sent to the driver; more are staged."""

    rewriter: RewriteFiles | None = None
    """Rewrites a file in the task that has scanned all of it."""

    split: frozenset[int] = frozenset()
    """Files that several tasks scan: none of them knows all matches, so none rewrites."""

    def __call__(self, work: Sequence[tuple[int, tuple[int, ...]]]) -> Iterator[Scanned]:
        """Scan files, given by number, with the row groups to read."""
        keys = self.keys.indexed
        prefilter = prefilter_for(keys.keys, self.target.key_columns)
        known = np.zeros(keys.count, bool)
        moved = np.zeros(keys.count, bool)
        files = []
        for number, row_groups in work:
            found = find_positions(self.target, keys, prefilter, number, row_groups)
            known[found.keys] = True
            moved[found.keys[moving_keys(self.target, keys, number, found)]] = True
            rows = keys.source_rows(found.keys)
            path = self.target.footers[number].file.path
            positions, done = found.positions, None
            if self.rewriter is not None and number not in self.split and len(rows):
                ((_, done),) = self.rewriter([RewriteFile(path, (RowPairs.held(positions, rows),))])
                pairs = RowPairs.held(positions[:0], rows[:0])  # nobody needs them any more
            else:
                pairs = RowPairs.of(self.target.root, self.directory, positions, rows, self.inline)
            reads = 0
            if self.starts is not None:
                reads = source_reads(self.windows[number], self.starts, positions, rows)
            files.append(
                FoundRows(number, len(rows), found.row_groups, pairs, reads=reads, rewritten=done)
            )
        yield Scanned(tuple(files), pack_flags(known), pack_flags(moved))


@dataclass(frozen=True)
class SelectRows:
    """Finds the rows of files that a condition selects."""

    target: Target
    condition: Condition
    verdicts: Sequence[ConditionVerdict]
    directory: str
    inline: int
    """How many positions of a file are sent to the driver; more are staged."""

    def __call__(self, work: Sequence[int]) -> Iterator[FoundRows]:
        """Read the columns of the condition of files, which are given by number."""
        for number in work:
            positions, groups = selected_positions(
                self.target, self.condition, number, self.verdicts[number]
            )
            rows = np.zeros(len(positions), np.int64)
            pairs = RowPairs.of(self.target.root, self.directory, positions, rows, self.inline)
            yield FoundRows(number, len(positions), groups, pairs)


@dataclass(frozen=True)
class ScanFiles:
    """Reads the canonical keys of files of the target."""

    target: Target

    def __call__(self, work: Sequence[tuple[int, tuple[int, ...]]]) -> Iterator[pa.RecordBatch]:
        """Yield keys with the number of their file and their positions."""
        names = [*(f"tk{n}" for n in range(len(self.target.key_columns))), "file", "position"]
        for number, row_groups in work:
            for _, positions, keys in keys_of_file(self.target, None, number, row_groups):
                file = pa.repeat(pa.scalar(number, pa.int64()), len(positions))
                table = pa.table([*keys.columns, file, pa.array(positions)], names=names)
                yield from table.combine_chunks().to_batches(max_chunksize=65_536)


@dataclass(frozen=True)
class WritePairs:
    """Writes which position has which source row, file by file."""

    target: Target
    columns: KeyColumns
    directory: str
    windows: Mapping[int, Rows]
    """By the number of a file, the first positions of its windows."""

    starts: Rows
    """The first rows of the source's row groups."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[FoundRows]:
        """Write the pairs of a partition, which are in the order of files and positions."""
        path = new_path(self.directory, "positions")
        schema = pa.schema([("position", pa.int64()), ("row", pa.int64()), ("moved", pa.bool_())])
        found: dict[int, list[FoundRows]] = {}
        group = 0
        with (
            self.target.root.filesystem.open(path, "wb") as handle,
            pq.ParquetWriter(handle, schema, **SPILL_WRITE_OPTIONS) as writer,
        ):
            for route, table in _by_route(batches):
                moved = self._moved(route, table)
                pairs = table.select(["position", "row"]).append_column("moved", pa.array(moved))
                writer.write_table(pairs.cast(schema), row_group_size=table.num_rows)
                message = self._message(route, table, RowPairs(path, (group,)), moved)
                found.setdefault(route, []).append(message)
                group += 1
        for route, parts in found.items():
            yield _united(route, parts)

    def _message(
        self, route: int, table: pa.Table, pairs: RowPairs, moved: NDArray[np.bool_]
    ) -> FoundRows:
        if route < 0:
            return FoundRows(route, table.num_rows, (), pairs)
        positions, rows = table["position"].to_numpy(), table["row"].to_numpy()
        starts = row_group_starts(self.target.footers[route])
        groups = np.unique(np.searchsorted(starts, positions, "right") - 1)
        reads = source_reads(self.windows[route], self.starts, positions, rows)
        samples = tuple(np.unique(rows[moved])[:MAX_SAMPLES].tolist())
        return FoundRows(
            route, len(rows), tuple(groups.tolist()), pairs, int(moved.sum()), samples, reads
        )

    def _moved(self, route: int, table: pa.Table) -> NDArray[np.bool_]:
        """Return which pairs have a source row of another partition."""
        moved = np.zeros(table.num_rows, bool)
        if route >= 0:
            every = np.arange(table.num_rows)
            columns = table.select(self.columns.starting("k", "p", "d"))
            keys = self.columns.original_names(columns)
            indexed = IndexedKeys(keys, None, delete_when=self.columns.delete_when)
            found = Positions(every, every, ())
            moved[moving_keys(self.target, indexed, route, found)] = True
        return moved


def _by_route(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
    """Cut rows, which are in the order of routes, where the route changes or a limit is reached."""
    waiting: list[pa.RecordBatch] = []
    current = None
    for batch in batches:
        routes = batch.column("route").to_numpy()
        cuts = [0, *(np.flatnonzero(np.diff(routes)) + 1).tolist(), len(routes)]
        for start, end in itertools.pairwise(cuts):
            if start == end:
                continue
            route = int(routes[start])
            full = sum(one.num_rows for one in waiting) >= _MAX_PAIRS
            if waiting and (route != current or full):
                assert current is not None
                yield current, pa.Table.from_batches(waiting)
                waiting = []
            current = route
            waiting.append(batch.slice(start, end - start))
    if waiting and current is not None:
        yield current, pa.Table.from_batches(waiting)


def _united(route: int, parts: Sequence[FoundRows]) -> FoundRows:
    pairs = [part.pairs for part in parts]
    return FoundRows(
        route,
        sum(part.rows for part in parts),
        tuple(sorted({group for part in parts for group in part.row_groups})),
        RowPairs(pairs[0].path, tuple(group for one in pairs for group in one.row_groups)),
        sum(part.moved for part in parts),
        tuple(row for part in parts for row in part.samples)[:MAX_SAMPLES],
        sum(part.reads for part in parts),
    )


@dataclass(frozen=True)
class CountRows:
    """Counts rows."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
        """Yield how many there are."""
        yield sum(batch.num_rows for batch in batches)


def scattered_files(
    limits: SparkLimits, found: Sequence[FoundRows], source: SparkSource
) -> frozenset[int]:
    """Return the numbers of files for which the source would be read several times over."""
    rows = source.rows
    groups = max(len(rows.starts) - 1, 1)
    most = limits.route_min_source_reads
    far = [f for f in found if f.reads > 2 and f.reads * rows.num_rows > most * f.rows * groups]
    reads = sum(file.reads for file in far)
    # To route rows is to write and read them once more, in a job that takes a second itself.
    if reads <= most * groups or reads * rows.bytes <= limits.route_min_bytes * groups:
        return frozenset()
    return frozenset(file.route for file in far)


def sample_keys_of(
    source: SparkSource, key_columns: Sequence[str], rows: Rows
) -> list[tuple[Any, ...]]:
    """Return the keys of some source rows, for an error message."""
    if not len(rows):
        return []
    table = source.take(rows, list(key_columns))
    columns = [[python_value(value) for value in column] for column in table.columns]
    return list(zip(*columns, strict=True))
