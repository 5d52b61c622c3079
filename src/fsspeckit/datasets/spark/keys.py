"""Keys of a source that one process does not index: read, resolved and staged by tasks.

Spark sees canonical keys, numbers of files, positions and numbers of source rows. To plan, the
driver needs one key inside the bounds of each row group, if there is any, and one key of each
partition.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fsspeckit.core.arrow_compat import numbered_columns, open_data_file
from fsspeckit.core.keys import KeyIndex, SourceKeys, check_marks, mark_column, no_keys
from fsspeckit.core.matching import IndexedKeys
from fsspeckit.core.planning import (
    KeyOverlap,
    key_bounds,
    raw_footer,
    read_footers,
    trusted_overlap,
)
from fsspeckit.datasets.spark.matching import MAX_SAMPLES, sample_keys_of
from fsspeckit.datasets.spark.source import stage_part
from fsspeckit.errors import DuplicateKeyError, NullKeyError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from fsspeckit.core.keys import DuplicatePolicy, KeyColumn
    from fsspeckit.core.planning import ColumnBounds, FileFooter, Target
    from fsspeckit.datasets.pipeline import MergeOptions
    from fsspeckit.datasets.spark.source import Part, SourceRows, SparkSource
    from fsspeckit.storage import DataFile, Root

    Rows = NDArray[np.int64]

__all__ = [
    "DriverKeys",
    "KeyColumns",
    "KeyFacts",
    "ReadFooters",
    "ReadKeyFile",
    "ReadKeys",
    "ResolveKeys",
    "ResolvedKeys",
    "StagedKeys",
    "check_facts",
    "deduplicate_keys",
    "trusted_bounds",
]

_MAX_CHECKED_ROWS = 262_144
# The index of strings, and of keys of several columns, takes more memory than the keys.
_INDEX_BYTES_PER_BYTE = 3
_CARRIED = ("k", "p", "d")
"""What is staged of a key: see :meth:`KeyColumns.starting`."""


@dataclass(frozen=True)
class KeyColumns:
    """The columns that decide which source rows take part, under names of our own for Spark."""

    keys: tuple[KeyColumn, ...]
    partitions: tuple[KeyColumn, ...]
    """Those that are not among the keys."""

    marks: tuple[KeyColumn, ...] = ()
    """The column that marks deletions, if there is one."""

    order: tuple[KeyColumn, ...] = ()

    @classmethod
    def of(
        cls, target: Target, delete_when: str | None, order: tuple[KeyColumn, ...] = ()
    ) -> KeyColumns:
        """Return the columns of a merge into a target."""
        in_key = {column.name for column in target.key_columns}
        others = (part for part in target.partition_columns if part.name not in in_key)
        marks = () if delete_when is None else (mark_column(delete_when),)
        return cls(target.key_columns, tuple(others), marks, order)

    @property
    def delete_when(self) -> str | None:
        """The name of the column that marks deletions, if there is one."""
        return self.marks[0].name if self.marks else None

    @property
    def names(self) -> dict[str, KeyColumn]:
        """The columns by the name that Spark sees."""
        groups = (("k", self.keys), ("p", self.partitions), ("d", self.marks), ("o", self.order))
        return {f"{kind}{n}": c for kind, columns in groups for n, c in enumerate(columns)}

    def starting(self, *kinds: str) -> list[str]:
        """Return names of keys (``k``), partitions (``p``), marks (``d``) or the order (``o``)."""
        return [name for name in self.names if name[0] in kinds]

    def original_names(self, keys: pa.Table) -> pa.Table:
        """Return keys under the names of the source."""
        named = self.names
        return keys.rename_columns([named[name].name for name in keys.column_names])

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
        """Yield the keys of the rows from one number to before another, with the numbers."""
        named = self.columns.names
        wanted = list(dict.fromkeys(column.name for column in named.values()))
        for start, table in self.source.pieces(*share, wanted):
            if self.columns.delete_when is not None:
                check_marks(table, self.columns.delete_when)
            arrays = [c.canonical(table.column(c.name)) for c in named.values()]
            rows = pa.array(np.arange(start, start + table.num_rows))
            keys = pa.table([*arrays, rows], names=[*named, "row"])
            yield from keys.combine_chunks().to_batches()


@dataclass(frozen=True)
class KeyFacts:
    """The message of a task that has resolved a share of the keys."""

    part: Part | None
    """The staged file with the keys; None if there are none."""

    nulls: tuple[int, ...]
    """NULL values of each key column, counted in rows of the source."""

    repeated: int
    """Keys that occur more than once."""

    samples: tuple[int, ...]
    """Source rows of some of them."""

    representative_keys: pa.Table
    """Keys that stand for all of them when compared with bounds, under their own names."""

    bytes: int
    """What the keys take in memory."""


@dataclass(frozen=True)
class ResolvedKeys(SourceKeys):
    """The keys of a source that one process does not hold; ``keys`` stand for all of them."""

    staged: StagedKeys
    null_safe: bool

    @property
    def count(self) -> int:
        """How many keys there are."""
        return self.staged.count

    @property
    def is_complete(self) -> bool:
        """Never."""
        return False


@dataclass(frozen=True)
class DriverKeys(IndexedKeys):
    """Keys that the driver holds, and the options they are for."""

    options: MergeOptions = field(kw_only=True)

    def staged(self, source: SparkSource, columns: KeyColumns) -> StagedKeys:
        """Write the keys where every task reads them."""
        stage = source.stage()
        names = {column.name: name for name, column in columns.names.items()}
        keys = self.keys.rename_columns([names[name] for name in self.keys.column_names])
        table = keys.append_column("row", pa.array(self.rows))
        part = stage_part(stage.storage.root, stage.path, table.schema, table.to_batches())
        return StagedKeys(() if part is None else (part,), columns, keys.nbytes)


@dataclass(frozen=True)
class StagedKeys:
    """Keys in staged files, all of which every task reads; picklable."""

    parts: tuple[Part, ...]
    columns: KeyColumns
    bytes: int
    """What the keys take in memory."""

    @property
    def weight(self) -> int:
        """What the keys and their index take in memory."""
        is_number = len(self.columns.keys) == 1 and self.columns.ddl("k").endswith("bigint")
        return self.bytes if is_number else _INDEX_BYTES_PER_BYTE * self.bytes

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
        """The keys, read and indexed."""
        table = self._read([*self.columns.starting(*_CARRIED), "row"])
        keys = self.columns.original_names(table.drop_columns(["row"]))
        index = KeyIndex(keys.select([column.name for column in self.columns.keys]))
        return IndexedKeys(keys, index, table["row"].to_numpy(), self.columns.delete_when)

    def _read(self, names: list[str]) -> pa.Table:
        tables = []
        for part in self.parts:
            with open_data_file(part.root, part.path) as file:
                tables.append(file.read(columns=names))
        schema = self.columns.schema(*_CARRIED).append(pa.field("row", pa.int64()))
        wanted = pa.schema([schema.field(name) for name in names])
        return pa.concat_tables([wanted.empty_table(), *tables]).combine_chunks()


@dataclass(frozen=True)
class ResolveKeys:
    """Stages the keys that take part, each once, and reports what the driver needs to plan."""

    root: Root
    directory: str
    columns: KeyColumns
    bounds: tuple[ColumnBounds, ...]
    partitions: tuple[str, ...]
    """The partition columns, also those that are keys."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[KeyFacts]:
        """Write the keys of a partition into a staged file."""
        facts = _Facts(self)
        schema = self.columns.schema(*_CARRIED).append(pa.field("row", pa.int64()))
        part = stage_part(self.root, self.directory, schema, facts.watch(batches, schema))
        yield facts.message(part)


def deduplicate_keys(
    F: Any, every: DataFrame, columns: KeyColumns, duplicates: DuplicatePolicy
) -> DataFrame:
    """Let Spark group the keys: the row of each that takes part, and how often the key occurs.

    Args:
        F: Spark's functions on columns, for this kind of session.
        every: The keys of all source rows, see :class:`ReadKeys`.
        columns: Its columns.
        duplicates: Which row of a key takes part, if nothing orders them.
    """
    row = F.col("row")
    order = [F.col(name) for name in columns.starting("o")]
    # Spark compares structs field by field, NULL below all values; canonical values have no NaN.
    rank = F.struct(*order, row)
    if not order and duplicates == "first":
        rank = F.struct(-row)
    kept = [F.col(name) for name in columns.starting("p", "d")]
    names = columns.starting("k")
    times = F.count(F.lit(1)).alias("times")
    if not order and not kept:
        # Without a struct, for which Spark would sort all rows by their keys.
        winner = (F.min if duplicates == "first" else F.max)(row).alias("row")
        return every.groupBy(*names).agg(winner, times)
    winners = F.max_by(F.struct(row, *kept), rank).alias("winner")
    grouped = every.groupBy(*names).agg(times, winners)
    inside = [F.col(f"winner.{n}").alias(n) for n in ["row", *columns.starting("p", "d")]]
    return grouped.select(*names, *inside, "times")


def trusted_bounds(target: Target, trust_partitions: bool) -> list[Any]:
    """Return the bounds of key columns in every row group, without those that may be cut."""
    columns = list(target.key_columns)
    if trust_partitions:
        columns += [part for part in target.partition_columns if part not in columns]
    raw = partial(raw_footer, target.root)
    bounds = key_bounds(target.footers, columns, target.partitions)
    trusted, _ = trusted_overlap(target.footers, no_keys(target).keys, bounds, raw)
    return trusted


@dataclass
class _Facts:
    """Facts about keys, collected while they are written."""

    task: ResolveKeys
    repeated: int = 0
    samples: list[int] = field(default_factory=list)
    bytes: int = 0
    _waiting: list[pa.RecordBatch] = field(default_factory=list)
    _found: list[pa.Table] = field(default_factory=list)

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
            if sum(waiting.num_rows for waiting in self._waiting) >= _MAX_CHECKED_ROWS:
                self._check()
            yield keys

    def _count(self, batch: pa.RecordBatch) -> None:
        times = batch.column("times").to_numpy()
        for number, name in enumerate(self.task.columns.starting("k")):
            is_null = np.asarray(batch.column(name).is_null())
            self.nulls[number] += int(times[is_null].sum())
        again = np.flatnonzero(times > 1)
        self.repeated += len(again)
        room = MAX_SAMPLES - len(self.samples)
        self.samples += batch.column("row").to_numpy()[again[:room]].tolist()

    def _check(self) -> None:
        """Find keys that lie inside bounds inside which none was found before."""
        if not self._waiting:
            return
        keys = pa.Table.from_batches(self._waiting)
        keys = self.task.columns.original_names(keys.select(self.task.columns.starting("k", "p")))
        self._waiting = []
        if len(self._unseen):
            overlap = KeyOverlap(keys, self.task.bounds)
            while (left := np.flatnonzero(self._unseen & overlap.may_contain)).size:
                key = keys.take(pa.array(overlap.inside(int(left[0]))[:1]))
                self._found.append(key)
                # A key inside one row group's bounds is inside those of many others too.
                self._unseen &= ~KeyOverlap(key, self.task.bounds).may_contain
                self._unseen[left[0]] = False
        self._add_partitions(keys)

    def _add_partitions(self, keys: pa.Table) -> None:
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
        self._found.append(keys.take(pa.array(rows, pa.int64())))

    def message(self, part: Part | None) -> KeyFacts:
        self._check()
        names = self.task.columns.names
        fields = [
            (names[n].name, names[n].canonical_type) for n in self.task.columns.starting("k", "p")
        ]
        representative_keys = pa.concat_tables([pa.schema(fields).empty_table(), *self._found])
        return KeyFacts(
            part,
            tuple(self.nulls.tolist()),
            self.repeated,
            tuple(self.samples),
            representative_keys,
            self.bytes,
        )


def check_facts(source: SparkSource, facts: Sequence[KeyFacts], options: MergeOptions) -> None:
    """Refuse NULL and repeated keys, as the options says."""
    nulls = [sum(counts) for counts in zip(*(one.nulls for one in facts), strict=True)]
    found = {name: n for name, n in zip(options.key_columns, nulls, strict=True) if n}
    if found and options.null_keys == "error":
        raise NullKeyError.found(found)
    repeated = sum(one.repeated for one in facts)
    if repeated and options.duplicates == "error" and not options.order_by:
        rows = np.array([row for one in facts for row in one.samples][:MAX_SAMPLES], np.int64)
        samples = sample_keys_of(source, options.key_columns, rows)
        raise DuplicateKeyError.found(options.key_columns, repeated, samples)


@dataclass(frozen=True)
class ReadKeyFile:
    """Reads the keys that a task has staged."""

    def __call__(self, part: Part) -> Iterator[pa.RecordBatch]:
        """Yield all rows of a file."""
        with open_data_file(part.root, part.path) as file:
            yield from file.iter_batches(batch_size=65_536)


@dataclass(frozen=True)
class ReadFooters:
    """Reads footers of the target."""

    root: Root
    columns: tuple[str, ...] | None

    def __call__(self, files: Sequence[DataFile]) -> Iterator[list[FileFooter]]:
        """Yield the footers of some files, in their order."""
        yield read_footers(self.root, files, self.columns)
