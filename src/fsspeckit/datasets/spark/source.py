"""The source of a Spark merge: rows that the driver and every task can read by their numbers.

Whatever the caller passed is materialised once. Tasks write data frames of Spark to staging, the
driver writes its own data there when tasks need it, and Parquet files are read in place: a file
that has changed since it was first opened is an error.
"""

from __future__ import annotations

import sys
import uuid
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from fsspeckit.core.arrow_compat import (
    cast_values,
    has_instants,
    int96_columns,
    open_data_file,
    physical_types,
    take_rows,
)
from fsspeckit.core.schema_conform import check_same_columns, conform_table
from fsspeckit.core.threads import Task, ThreadPool
from fsspeckit.datasets.pipeline import (
    MemorySource,
    parquet_dataset,
    regroup_batches,
    source_root,
    unify_schemas,
)
from fsspeckit.errors import ConcurrentModificationError
from fsspeckit.storage import STAGED_SUFFIX, open_backend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from fsspeckit.core.planning import Target
    from fsspeckit.datasets.engine import OpenStage
    from fsspeckit.datasets.pipeline import ArrowSource
    from fsspeckit.storage import DataFile, Root

    Rows = NDArray[np.int64]

__all__ = [
    "SPILL_WRITE_OPTIONS",
    "Part",
    "SourceRows",
    "SparkSource",
    "StageBatches",
    "files_in_place",
    "fit_batch",
    "fit_rows",
    "new_path",
    "rows_of_target",
    "stage_part",
    "write_batches",
]

SPILL_WRITE_OPTIONS: Final[dict[str, Any]] = {
    "compression": "lz4",
    "use_dictionary": False,
    "write_statistics": False,
}
"""How staged files are written, which are read soon and then removed."""

_MAX_GROUP_ROWS = 131_072
_MAX_GROUP_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True)
class Part:
    """A Parquet file with rows of the source."""

    root: Root
    path: str
    row_groups: tuple[int, ...]
    """The rows of each row group."""

    constants: dict[str, pa.Scalar] = field(default_factory=dict)
    """Columns that are in the path only, with their values."""

    instants: dict[str, pa.DataType] = field(default_factory=dict)
    """Columns stored as INT96, or with INT96 inside, and their types as instants in UTC."""

    pin: DataFile | None = None
    """The file as it was when it was first opened; None for files of our own."""

    bytes: int = 0
    """The bytes of its rows before compression."""

    @property
    def rows(self) -> int:
        """The rows of the file."""
        return sum(self.row_groups)

    def check(self) -> None:
        """Check that a file of somebody else is the one that was opened first.

        Raises:
            ConcurrentModificationError: If it is not.
        """
        if self.pin is None:
            return
        found = open_backend(self.root).stat(self.path)
        if found is None or not found.is_same_file(self.pin):
            raise ConcurrentModificationError(
                f"the source file {self.root.to_user_path(self.path)!r} has changed while it was "
                "being merged. Nothing was changed.\nHint: repeat the call when nobody "
                "writes to it."
            )

    def meant(self, table: pa.Table) -> pa.Table:
        """Return stored columns in their meaning, with those that are in the path."""
        columns = {
            name: cast_values(column, self.instants[name]) if name in self.instants else column
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
        for name, value in self.constants.items():
            columns[name] = pa.repeat(value, table.num_rows)
        return pa.table(columns)


@dataclass(frozen=True)
class SourceRows:
    """The rows of a source in their order; picklable."""

    schema: pa.Schema
    parts: tuple[Part, ...]

    @cached_property
    def _groups(self) -> list[tuple[int, int]]:
        """Part and row group of each piece."""
        return [(p, g) for p, part in enumerate(self.parts) for g in range(len(part.row_groups))]

    @cached_property
    def starts(self) -> Rows:
        """The number of the first row of each piece, and of all rows at the end."""
        sizes = [rows for part in self.parts for rows in part.row_groups]
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    @property
    def num_rows(self) -> int:
        """The rows of all parts."""
        return int(self.starts[-1])

    @property
    def bytes(self) -> int:
        """The bytes of the rows of all parts before compression."""
        return sum(part.bytes for part in self.parts)

    def pieces(
        self, start: int, end: int, columns: Sequence[str] | None = None
    ) -> Iterator[tuple[int, pa.Table]]:
        """The rows from ``start`` to before ``end``, a row group at a time, with first numbers."""
        end = min(end, self.num_rows)
        first = int(np.searchsorted(self.starts, start, "right")) - 1
        last = int(np.searchsorted(self.starts, end, "left"))
        for number, table in self._read(range(first, last), columns):
            low, high = int(self.starts[number]), int(self.starts[number + 1])
            cut = table.slice(max(start - low, 0), min(end, high) - max(start, low))
            if cut.num_rows:
                yield max(start, low), cut

    def take(self, rows: Rows, columns: Sequence[str] | None = None) -> pa.Table:
        """Rows by their numbers, in that order; each row group is read once."""
        order = np.argsort(rows, kind="stable")
        parts = [table for _, table in self.holding(rows[order], columns)]
        if not parts:
            return self._schema(columns).empty_table()
        back = np.empty(len(rows), np.int64)
        back[order] = np.arange(len(rows))
        return take_rows(pa.concat_tables(parts).unify_dictionaries(), pa.array(back))

    def holding(
        self, ordered: Rows, columns: Sequence[str] | None = None
    ) -> Iterator[tuple[slice, pa.Table]]:
        """Rows by their numbers, which ascend: a row group at a time, with the place of its rows.

        Row groups that hold none of the rows are not read.
        """
        cuts = np.searchsorted(ordered, self.starts)
        wanted = np.flatnonzero(cuts[:-1] < cuts[1:])
        for number, table in self._read([int(one) for one in wanted], columns):
            part = slice(int(cuts[number]), int(cuts[number + 1]))
            yield part, take_rows(table, pa.array(ordered[part] - self.starts[number]))

    def _schema(self, columns: Sequence[str] | None) -> pa.Schema:
        if columns is None:
            return self.schema
        return pa.schema([self.schema.field(name) for name in columns])

    def _read(
        self, numbers: Iterable[int], columns: Sequence[str] | None
    ) -> Iterator[tuple[int, pa.Table]]:
        """Row groups by number, ascending; each file is opened once."""
        schema = self._schema(columns)
        for part_number, members in groupby(numbers, lambda number: self._groups[number][0]):
            part = self.parts[part_number]
            part.check()
            stored = [name for name in schema.names if name not in part.constants]
            with open_data_file(part.root, part.path) as file:
                for number in members:
                    # A dot in a name is a path for pyarrow, so that it may read more than asked.
                    table = file.read_row_group(self._groups[number][1], columns=stored)
                    yield number, conform_table(part.meant(table.select(stored)), schema)


def new_path(directory: str, kind: str) -> str:
    """Name a new file in a staging directory."""
    return f"{directory}/{kind}-{uuid.uuid4().hex}{STAGED_SUFFIX}"


def stage_part(
    root: Root, directory: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Part | None:
    """Write rows into a new file of a staging directory; None if there are no rows.

    The name is new each time: a task that is run twice writes two files, and only the one that its
    message names is used.
    """
    path = new_path(directory, "source")
    sizes, size = write_batches(lambda: root.filesystem.open(path, "wb"), schema, batches)
    return Part(root, path, tuple(sizes), bytes=size) if sizes else None


def write_batches(
    open_file: Callable[[], IO[bytes]], schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> tuple[list[int], int]:
    """Write rows into a new file; it is not opened if there are none.

    Returns:
        The rows of each row group, and the bytes of all rows before compression.
    """
    sizes: list[int] = []
    size = 0
    with ExitStack() as stack:
        writer: pq.ParquetWriter | None = None
        # Batches come out of another process: the next ones are taken while a row group is written.
        beside = ThreadPool(1, "fsspeckit-stage")
        written: Task[None] | None = None
        for table in regroup_batches(schema, batches, _MAX_GROUP_ROWS, _MAX_GROUP_BYTES):
            if writer is None:
                handle = stack.enter_context(open_file())
                writer = pq.ParquetWriter(handle, table.schema, **SPILL_WRITE_OPTIONS)
                stack.callback(writer.close)
                stack.enter_context(beside)  # waited for before the writer is closed
            if written is not None:
                written.result()
            written = beside.submit(writer.write_table, table, table.num_rows)
            sizes.append(table.num_rows)
            size += table.nbytes
        if written is not None:
            written.result()
    return sizes, size


@dataclass(frozen=True)
class StageBatches:
    """Writes the rows of a partition of a data frame into a staged file."""

    root: Root
    directory: str
    frame: pa.Schema
    """Spark's columns in Arrow, instants in UTC whatever the session says."""

    schema: pa.Schema
    """What the caller wants them to be."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Part]]:
        """Yield the number of the partition and its file."""
        part = stage_part(self.root, self.directory, self.schema, map(self._fitted, batches))
        if part is not None:
            yield _partition_number(), part

    def _fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return fit_batch(batch, self.frame, self.schema)


def fit_batch(batch: pa.RecordBatch, frame: pa.Schema, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch that a task gets from Spark with the columns and types of a schema."""
    fitted = fit_rows(pa.Table.from_batches([batch]), frame, schema).combine_chunks()
    return next(iter(fitted.to_batches()), pa.RecordBatch.from_pylist([], schema))


def fit_rows(rows: pa.Table, frame: pa.Schema, schema: pa.Schema) -> pa.Table:
    """Return rows that Spark gives with the columns and types of a schema.

    Args:
        rows: The rows; instants may be in the time zone of the session.
        frame: Spark's columns in Arrow, instants in UTC.
        schema: What the columns are to be.
    """
    columns = [
        cast_values(column, field.type) for column, field in zip(rows.columns, frame, strict=True)
    ]
    table = pa.Table.from_arrays(columns, schema=frame)
    if schema is not frame:
        check_same_columns(table.column_names, schema.names, "schema")
    return conform_table(table, schema)


def _partition_number() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


class SparkSource:
    """A source that the driver and tasks can read.

    Args:
        stage: Where its rows go when tasks need them.
        rows: Rows that are in files already.
        held: Rows of this process; either these or those in files are given.
        has_order: Whether one row comes before another; in a data frame of Spark none does.
    """

    def __init__(
        self,
        stage: OpenStage,
        rows: SourceRows | None = None,
        held: ArrowSource | None = None,
        *,
        has_order: bool = True,
    ) -> None:
        given = rows or held
        assert given is not None
        self.stage = stage
        self.schema: pa.Schema = given.schema
        self.num_rows: int = given.num_rows
        self.has_order = has_order
        self._rows = rows
        self._held = held

    @cached_property
    def bytes(self) -> int:
        """The bytes of all rows; a source that was spilled to disk is larger than any limit."""
        if self._rows is not None:
            return self._rows.bytes
        if not isinstance(self._held, MemorySource):
            return sys.maxsize
        return sum(table.nbytes for table in self._held.batches())

    @property
    def file_count(self) -> int:
        """How many files are read for a column of all rows."""
        return 0 if self._rows is None else len(self._rows.parts)

    @cached_property
    def rows(self) -> SourceRows:
        """The rows for tasks; rows of this process are staged now."""
        if self._rows is not None:
            return self._rows
        assert self._held is not None
        stage = self.stage()
        batches = (batch for table in self._held.batches() for batch in table.to_batches())
        part = stage_part(stage.storage.root, stage.path, self.schema, batches)
        return SourceRows(self.schema, () if part is None else (part,))

    @cached_property
    def local(self) -> ArrowSource:
        """The rows for the driver; those in files are read into memory now."""
        return self._held or MemorySource(self.columns(self.schema.names))

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Some columns of all rows, read by the driver."""
        if self._rows is None:
            return self.local.columns(names)
        tables = [table for _, table in self._rows.pieces(0, self.num_rows, names)]
        schema = pa.schema([self.schema.field(name) for name in names])
        return pa.concat_tables([schema.empty_table(), *tables]).unify_dictionaries()

    def take(self, rows: Rows, names: Sequence[str]) -> pa.Table:
        """Some columns of rows by their numbers, read by the driver."""
        if self._rows is None:
            return self.local.take(rows).select(list(names))
        return self._rows.take(rows, names)


def files_in_place(paths: Sequence[Any], filesystem: Any, schema: pa.Schema | None) -> SourceRows:
    """Parquet files as they are: directories, globs and files, one after the other.

    Raises:
        FileNotFoundError: If there is none.
        SchemaMismatchError: If they do not have the columns of the schema that the caller gave.
    """
    found = [(source_root(path, filesystem), parquet_dataset(path, filesystem)) for path in paths]
    parts = tuple(
        _part_in_place(root, fragment, dataset.schema)
        for root, dataset in found
        for fragment in dataset.get_fragments()
    )
    meant = unify_schemas([dataset.schema for _, dataset in found])
    if schema is not None:
        check_same_columns(meant.names, schema.names, "schema")
    return SourceRows(schema or meant, parts)


def rows_of_target(target: Target, schema: pa.Schema) -> SourceRows:
    """The rows of a target as they are; a commit checks that its files have not changed."""

    def part(number: int) -> Part:
        footer = target.footers[number]
        stored = [field for field in footer.schema if field.name in schema.names]
        constants = {
            name: target.partitions[name].values[number]
            for name in schema.names
            if name not in footer.schema.names
        }
        return Part(
            target.root,
            footer.file.path,
            tuple(group.rows for group in footer.row_groups),
            constants,
            {field.name: field.type for field in stored if has_instants(pa.schema([field]))},
            bytes=sum(group.bytes for group in footer.row_groups),
        )

    return SourceRows(schema, tuple(map(part, range(len(target.footers)))))


def _part_in_place(root: Root, fragment: Any, schema: pa.Schema) -> Part:
    physical = physical_types(fragment.metadata.schema)
    instants = int96_columns(fragment.physical_schema, physical)
    keys = ds.get_partition_keys(fragment.partition_expression)
    in_path = [name for name in keys if name not in fragment.physical_schema.names]
    return Part(
        root,
        fragment.path,
        tuple(group.num_rows for group in fragment.row_groups),
        {name: pa.scalar(keys[name], schema.field(name).type) for name in in_path},
        {name: schema.field(name).type for name in instants},
        open_backend(root).stat(fragment.path),
        sum(group.total_byte_size for group in fragment.row_groups),
    )
