"""Keys of a source too large for one process: resolved, compared and joined by Spark's tasks.

Spark itself sees canonical keys, numbers of files, positions and numbers of source rows. What the
driver needs to plan is small: for each row group one key that lies inside its bounds, if there is
any, and for each partition one of its keys.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.arrow_compat import numbered_columns, open_data_file
from fsspeckit.core.keys import KeyIndex, SourceKeys, different_rows, no_keys
from fsspeckit.core.matching import IndexedKeys, scan_keys
from fsspeckit.core.planning import (
    KeyOverlap,
    key_bounds,
    raw_footer,
    read_footers,
    trusted_overlap,
)
from fsspeckit.datasets.spark.source import SPILL_WRITE_OPTIONS, stage_part
from fsspeckit.datasets.spark.tasks import RowPairs, new_name, source_reads

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from fsspeckit.core.keys import DuplicatePolicy, KeyColumn
    from fsspeckit.core.planning import ColumnBounds, FileFooter, Target
    from fsspeckit.datasets.spark.source import Part, SourceRows
    from fsspeckit.storage import DataFile, Root

    Rows = NDArray[np.int64]

__all__ = [
    "CountRows",
    "KeyColumns",
    "KeyFacts",
    "PairsMessage",
    "ReadFooters",
    "ReadKeyFile",
    "ReadKeys",
    "ResolveAtOnce",
    "ResolveKeys",
    "ResolvedKeys",
    "ScanFiles",
    "StagedKeys",
    "WritePairs",
    "deduplicate_keys",
    "trusted_bounds",
]

_WITNESS_ROWS = 262_144
_PAIR_ROWS = 1_048_576
_SAMPLES = 5
_INDEX_OF_OTHERS = 3


@dataclass(frozen=True)
class KeyColumns:
    """The columns that say which source rows take part, under names that Spark cannot confuse."""

    keys: tuple[KeyColumn, ...]
    partitions: tuple[KeyColumn, ...]
    """Those that are not among the keys."""

    order: tuple[KeyColumn, ...] = ()

    @property
    def names(self) -> dict[str, KeyColumn]:
        """The columns by the name that Spark sees."""
        groups = (("k", self.keys), ("p", self.partitions), ("o", self.order))
        return {f"{kind}{n}": c for kind, columns in groups for n, c in enumerate(columns)}

    def starting(self, *kinds: str) -> list[str]:
        """The names of keys (``k``), partition columns (``p``) or columns to order by (``o``)."""
        return [name for name in self.names if name[0] in kinds]

    @property
    def width(self) -> int | None:
        """The bytes of a row of them with its number; None if they are not all numbers."""
        numbers = [pa.types.is_int64(column.canonical_type) for column in self.names.values()]
        return 8 * (len(numbers) + 1) if all(numbers) else None

    def ddl(self, *kinds: str, prefix: str = "") -> str:
        """Columns as Spark's schema: canonical keys are numbers or bytes."""
        return ", ".join(
            f"{prefix}{name} {'bigint' if pa.types.is_int64(c.canonical_type) else 'binary'}"
            for name, c in self.names.items()
            if name[0] in kinds
        )

    def schema(self, *kinds: str) -> pa.Schema:
        """The same as a schema of Arrow."""
        return pa.schema(
            [(name, self.names[name].canonical_type) for name in self.starting(*kinds)]
        )


@dataclass(frozen=True)
class ReadKeys:
    """Reads canonical keys of the source."""

    source: SourceRows
    columns: KeyColumns

    def __call__(self, share: tuple[int, int]) -> Iterator[pa.RecordBatch]:
        """Gives the keys of the rows from one number to before another, with the numbers."""
        named = self.columns.names
        wanted = list(dict.fromkeys(column.name for column in named.values()))
        for start, table in self.source.pieces(*share, wanted):
            arrays = [c.canonical(table.column(c.name)) for c in named.values()]
            rows = pa.array(np.arange(start, start + table.num_rows))
            keys = pa.table([*arrays, rows], names=[*named, "row"])
            yield from keys.combine_chunks().to_batches()


@dataclass(frozen=True)
class KeyFacts:
    """What one task tells about its share of the keys."""

    part: Part | None
    """Where the keys are."""

    nulls: tuple[int, ...]
    """NULL values of each key column, counted in rows of the source."""

    repeated: int
    """Keys that occur more than once."""

    samples: tuple[int, ...]
    """Source rows of a few of them."""

    representative_keys: pa.Table
    """Keys that stand for all of them when compared with bounds, under their own names."""

    bytes: int
    """What the keys take in memory."""


@dataclass(frozen=True)
class ResolvedKeys(SourceKeys):
    """The keys of a source that one process does not hold; ``keys`` stand for all of them."""

    total: int
    parts: tuple[Part, ...]
    columns: KeyColumns
    null_safe: bool
    bytes: int
    """What the keys take in memory."""

    @property
    def count(self) -> int:
        """How many keys there are."""
        return self.total

    @property
    def weight(self) -> int:
        """What the keys and their index take in memory; that of numbers takes little."""
        is_number = len(self.columns.keys) == 1 and self.columns.ddl("k").endswith("bigint")
        return self.bytes if is_number else _INDEX_OF_OTHERS * self.bytes

    @property
    def is_complete(self) -> bool:
        """Never."""
        return False


@dataclass(frozen=True)
class StagedKeys:
    """Resolved keys that are few enough for every task to read them all; picklable."""

    parts: tuple[Part, ...]
    columns: KeyColumns
    weight: int
    """What they and their index take in memory."""

    @property
    def count(self) -> int:
        """How many keys there are."""
        return sum(part.rows for part in self.parts)

    @cached_property
    def rows(self) -> Rows:
        """The source row of each key."""
        rows: Rows = self._read(["row"])["row"].to_numpy()
        return rows

    @cached_property
    def indexed(self) -> IndexedKeys:
        """The keys, read and ready to be looked up."""
        named = self.columns.names
        table = self._read([*self.columns.starting("k", "p"), "row"])
        keys = table.drop_columns(["row"])
        keys = keys.rename_columns([named[name].name for name in keys.column_names])
        index = KeyIndex(keys.select([column.name for column in self.columns.keys]))
        return IndexedKeys(keys, index, table["row"].to_numpy())

    def _read(self, names: list[str]) -> pa.Table:
        tables = []
        for part in self.parts:
            with open_data_file(part.root, part.path) as file:
                tables.append(file.read(columns=names))
        schema = self.columns.schema("k", "p").append(pa.field("row", pa.int64()))
        wanted = pa.schema([schema.field(name) for name in names])
        return pa.concat_tables([wanted.empty_table(), *tables]).combine_chunks()


@dataclass(frozen=True)
class ResolveKeys:
    """Keeps the keys that take part, each once, and tells what the driver must know of them."""

    root: Root
    directory: str
    columns: KeyColumns
    bounds: tuple[ColumnBounds, ...]
    partitions: tuple[str, ...]
    """The partition columns, also those that are keys."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[KeyFacts]:
        """Write the keys of a partition into a staged file."""
        facts = _Facts(self)
        schema = self.columns.schema("k", "p").append(pa.field("row", pa.int64()))
        part = stage_part(self.root, self.directory, schema, facts.watch(batches, schema))
        yield facts.message(part)


@dataclass(frozen=True)
class ResolveAtOnce:
    """Resolves keys of which one task can hold all, and leaves them in their order."""

    read: ReadKeys
    resolve: ResolveKeys
    keeps_first: bool
    """Whether the first row of a key takes part, and not the last."""

    def __call__(self, share: tuple[int, int]) -> Iterator[KeyFacts]:
        """Takes the share of all rows."""
        every = pa.Table.from_batches(list(self.read(share)))
        names = self.read.columns.starting("k")
        which = "min" if self.keeps_first else "max"
        found = (
            every.group_by(names)
            .aggregate([("row", which), ("row", "count")])
            .sort_by([(name, "ascending") for name in names])
        )
        once = every.take(found[f"row_{which}"])  # the share begins with row 0
        once = once.append_column("times", found["row_count"])
        yield from self.resolve(once.combine_chunks().to_batches(_WITNESS_ROWS))


def deduplicate_keys(
    F: Any, every: DataFrame, columns: KeyColumns, duplicates: DuplicatePolicy
) -> DataFrame:
    """Each key once, grouped by Spark: the row that takes part, and how often the key occurs.

    Args:
        F: The functions of Spark that make columns for this kind of session.
        every: What `ReadKeys` reads.
        columns: Its columns.
        duplicates: Which row of a key takes part, if nothing orders them.
    """
    row = F.col("row")
    order = [F.col(name) for name in columns.starting("o")]
    # Spark compares structs field by field, NULL below all values; canonical values have no NaN.
    rank = F.struct(*order, row)
    if not order and duplicates == "first":
        rank = F.struct(-row)
    kept = [F.col(name) for name in columns.starting("p")]
    names = columns.starting("k")
    times = F.count(F.lit(1)).alias("times")
    if not order and not kept:
        # Without a struct, for which Spark would sort all rows by their keys.
        winner = (F.min if duplicates == "first" else F.max)(row).alias("row")
        return every.groupBy(*names).agg(winner, times)
    winners = F.max_by(F.struct(row, *kept), rank).alias("winner")
    grouped = every.groupBy(*names).agg(times, winners)
    inside = [F.col(f"winner.{name}").alias(name) for name in ["row", *columns.starting("p")]]
    return grouped.select(*names, *inside, "times")


def trusted_bounds(target: Target, trust_partitions: bool) -> list[Any]:
    """Bounds of key columns in every row group, without those that may have been cut."""
    columns = list(target.key_columns)
    if trust_partitions:
        columns += [part for part in target.partition_columns if part not in columns]
    raw = partial(raw_footer, target.root)
    bounds = key_bounds(target.footers, columns, target.partitions)
    trusted, _ = trusted_overlap(target.footers, no_keys(target).keys, bounds, raw)
    return trusted


@dataclass
class _Facts:
    """Facts about keys, gathered while they pass by."""

    task: ResolveKeys
    repeated: int = 0
    samples: list[int] = field(default_factory=list)
    bytes: int = 0
    _waiting: list[pa.RecordBatch] = field(default_factory=list)
    _witnesses: list[pa.Table] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.nulls = np.zeros(len(self.task.columns.keys), np.int64)
        groups = len(self.task.bounds[0].low) if self.task.bounds else 0
        self._unseen = np.ones(groups, bool)
        self._partitions: set[tuple[object, ...]] = set()

    def watch(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self._count(batch)
            keys = batch.select(schema.names).cast(schema)
            self.bytes += keys.nbytes
            self._waiting.append(keys)
            if sum(waiting.num_rows for waiting in self._waiting) >= _WITNESS_ROWS:
                self._look()
            yield keys

    def _count(self, batch: pa.RecordBatch) -> None:
        times = batch.column("times").to_numpy()
        for number, name in enumerate(self.task.columns.starting("k")):
            is_null = np.asarray(batch.column(name).is_null())
            self.nulls[number] += int(times[is_null].sum())
        again = np.flatnonzero(times > 1)
        self.repeated += len(again)
        room = _SAMPLES - len(self.samples)
        self.samples += batch.column("row").to_numpy()[again[:room]].tolist()

    def _look(self) -> None:
        """Find keys that lie inside bounds inside which none was found before."""
        if not self._waiting:
            return
        names = self.task.columns.names
        keys = pa.Table.from_batches(self._waiting)
        keys = keys.select(self.task.columns.starting("k", "p"))
        keys = keys.rename_columns([names[name].name for name in keys.column_names])
        self._waiting = []
        if len(self._unseen):
            overlap = KeyOverlap(keys, self.task.bounds)
            while (left := np.flatnonzero(self._unseen & overlap.may_contain)).size:
                inside = overlap.inside(int(left[0]))[:1]
                witness = keys.take(pa.array(inside))
                self._witnesses.append(witness)
                # A key inside one row group's bounds is inside those of many others too.
                self._unseen &= ~KeyOverlap(witness, self.task.bounds).may_contain
                self._unseen[left[0]] = False
        self._look_for_partitions(keys)

    def _look_for_partitions(self, keys: pa.Table) -> None:
        if not self.task.partitions:
            return
        parts = numbered_columns(keys.select(list(self.task.partitions)))
        numbered = parts.append_column("row", pa.array(np.arange(keys.num_rows)))
        found = numbered.group_by(parts.column_names).aggregate([("row", "min")])
        values = zip(*(found.column(name).to_pylist() for name in parts.column_names), strict=True)
        rows = []
        for value, row in zip(values, found["row_min"].to_pylist(), strict=True):
            if value not in self._partitions:
                self._partitions.add(value)
                rows.append(row)
        # Taken, not sliced: a slice is sent with all that it was cut from.
        self._witnesses.append(keys.take(pa.array(rows, pa.int64())))

    def message(self, part: Part | None) -> KeyFacts:
        self._look()
        names = self.task.columns.names
        fields = [
            (names[n].name, names[n].canonical_type) for n in self.task.columns.starting("k", "p")
        ]
        representative_keys = pa.concat_tables([pa.schema(fields).empty_table(), *self._witnesses])
        return KeyFacts(
            part,
            tuple(self.nulls.tolist()),
            self.repeated,
            tuple(self.samples),
            representative_keys,
            self.bytes,
        )


@dataclass(frozen=True)
class ReadKeyFile:
    """Reads the keys that a task has kept."""

    def __call__(self, part: Part) -> Iterator[pa.RecordBatch]:
        """Gives all rows of a file."""
        with open_data_file(part.root, part.path) as file:
            yield from file.iter_batches(batch_size=65_536)


@dataclass(frozen=True)
class ScanFiles:
    """Reads the canonical keys of files of the target."""

    target: Target

    def __call__(self, work: Sequence[tuple[int, tuple[int, ...]]]) -> Iterator[pa.RecordBatch]:
        """Gives keys with the number of their file and their positions."""
        for number, row_groups in work:
            yield from self._scan(number, row_groups)

    def _scan(self, number: int, row_groups: tuple[int, ...]) -> Iterator[pa.RecordBatch]:
        target = self.target
        footer = target.footers[number]
        starts = np.concatenate([[0], np.cumsum([group.rows for group in footer.row_groups])])
        constants = {
            c.name: target.partitions[c.name].values[number]
            for c in target.key_columns
            if c.name in target.partitions
        }
        scanned = scan_keys(target.root, footer, row_groups, target.key_columns, constants)
        for group, rows, keys in scanned:
            positions = rows + starts[group]
            columns = [*keys.columns, pa.repeat(pa.scalar(number, pa.int64()), len(positions))]
            names = [*(f"tk{n}" for n in range(keys.num_columns)), "file", "position"]
            table = pa.table([*columns, pa.array(positions)], names=names)
            yield from table.combine_chunks().to_batches(max_chunksize=65_536)


@dataclass(frozen=True)
class ReadFooters:
    """Reads footers of the target."""

    root: Root
    columns: tuple[str, ...] | None

    def __call__(self, files: Sequence[DataFile]) -> Iterator[list[FileFooter]]:
        """Gives the footers of some files, in their order."""
        yield read_footers(self.root, files, self.columns)


@dataclass(frozen=True)
class CountRows:
    """Counts rows."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
        """Gives how many there are."""
        yield sum(batch.num_rows for batch in batches)


@dataclass(frozen=True)
class PairsMessage:
    """Pairs of one file of the target, or of rows without a match."""

    route: int
    """The number of the file; negative for rows without a match."""

    rows: int
    row_groups: tuple[int, ...]
    pairs: RowPairs
    moved: int = 0
    """How many of the pairs have a source row that belongs to another partition."""

    samples: tuple[int, ...] = ()
    """A few such source rows."""

    reads: int = 0
    """Row groups of the source to be read where each part of the file is rewritten by itself."""


@dataclass(frozen=True)
class WritePairs:
    """Writes which position has which source row, file by file."""

    target: Target
    columns: KeyColumns
    directory: str
    windows: Mapping[int, Rows]
    """By the number of a file, the first positions of its parts that are rewritten at once."""

    starts: Rows
    """The first rows of the source's row groups."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[PairsMessage]:
        """Write the pairs of a partition, which are in the order of files and positions."""
        path = new_name(self.directory, "positions")
        schema = pa.schema([("position", pa.int64()), ("row", pa.int64()), ("moved", pa.bool_())])
        told: dict[int, list[PairsMessage]] = {}
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
                told.setdefault(route, []).append(message)
                group += 1
        for route, parts in told.items():
            yield _united(route, parts)

    def _message(
        self, route: int, table: pa.Table, pairs: RowPairs, moved: NDArray[np.bool_]
    ) -> PairsMessage:
        if route < 0:
            return PairsMessage(route, table.num_rows, (), pairs)
        positions, rows = table["position"].to_numpy(), table["row"].to_numpy()
        ends = np.cumsum([one.rows for one in self.target.footers[route].row_groups])
        groups = np.unique(np.searchsorted(ends, positions, "right"))
        reads = source_reads(self.windows[route], self.starts, positions, rows)
        samples = tuple(np.unique(rows[moved])[:_SAMPLES].tolist())
        return PairsMessage(
            route, len(rows), tuple(groups.tolist()), pairs, int(moved.sum()), samples, reads
        )

    def _moved(self, route: int, table: pa.Table) -> NDArray[np.bool_]:
        """Which pairs have a source row of another partition."""
        parts = self.target.partition_columns
        own = {column.name: name for name, column in self.columns.names.items() if name[0] != "o"}
        if not parts or route < 0:
            return np.zeros(table.num_rows, bool)
        here = pa.table(
            [
                pa.repeat(
                    part.canonical(self.target.partitions[part.name].values.slice(route, 1))[0],
                    table.num_rows,
                )
                for part in parts
            ],
            names=[part.name for part in parts],
        )
        wanted = table.select([own[part.name] for part in parts])
        return different_rows(wanted, here)


def _by_route(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
    """Rows in the order of routes, cut where the route changes and where there are many."""
    waiting: list[pa.RecordBatch] = []
    current = None
    for batch in batches:
        routes = batch.column("route").to_numpy()
        cuts = [0, *(np.flatnonzero(np.diff(routes)) + 1).tolist(), len(routes)]
        for start, end in itertools.pairwise(cuts):
            if start == end:
                continue
            route = int(routes[start])
            full = sum(one.num_rows for one in waiting) >= _PAIR_ROWS
            if waiting and (route != current or full):
                assert current is not None
                yield current, pa.Table.from_batches(waiting)
                waiting = []
            current = route
            waiting.append(batch.slice(start, end - start))
    if waiting and current is not None:
        yield current, pa.Table.from_batches(waiting)


def _united(route: int, parts: Sequence[PairsMessage]) -> PairsMessage:
    pairs = [part.pairs for part in parts]
    return PairsMessage(
        route,
        sum(part.rows for part in parts),
        tuple(sorted({group for part in parts for group in part.row_groups})),
        RowPairs(pairs[0].path, tuple(group for one in pairs for group in one.row_groups)),
        sum(part.moved for part in parts),
        tuple(row for part in parts for row in part.samples)[:_SAMPLES],
        sum(part.reads for part in parts),
    )
