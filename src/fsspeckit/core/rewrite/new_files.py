"""New data files: rows split by partition and cut to size, in the dataset's own schema.

Rows wait in memory until they fill a row group. While too many files are open, rows of further
partitions wait in a temporary file on disk.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from fsspeckit.core.arrow_compat import take_rows
from fsspeckit.core.keys import KeyIndex, canonical_keys, key_column
from fsspeckit.core.rewrite.diff import is_true, stored_rows
from fsspeckit.core.rewrite.rewriter import open_writer
from fsspeckit.core.schema_conform import conforming_schema
from fsspeckit.errors import InvalidArgumentError, SchemaMismatchError
from fsspeckit.storage import capabilities_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow.parquet as pq

    from fsspeckit.core.parquet import WriterProperties
    from fsspeckit.core.planning import PartitionDirectories
    from fsspeckit.storage import Root, Stage, StagedFile, WorkerStage


class WaitingRows:
    """Rows in memory, with their number and size."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []
        self.rows = 0
        self.bytes = 0

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of the rows; None if there are none."""
        return self._tables[0].schema if self._tables else None

    def add(self, rows: pa.Table) -> None:
        """Append rows."""
        self._tables.append(rows)
        self.rows += rows.num_rows
        self.bytes += rows.nbytes

    def take_all(self) -> pa.Table:
        """Remove all rows, and return them in one piece."""
        table = pa.concat_tables(self._tables).unify_dictionaries().combine_chunks()
        self._tables, self.rows, self.bytes = [], 0, 0
        return table

    def compact(self) -> None:
        """Copy the rows: slices of larger tables would keep these in memory."""
        if self.rows:
            table = self.take_all()
            self.add(take_rows(table, pa.array(np.arange(table.num_rows))))


class Spill:
    """An unnamed temporary file with rows of many partitions; it is removed when closed.

    Args:
        directory: Its directory; None for the default of temporary files.
    """

    def __init__(self, directory: str | None = None) -> None:
        self._handle: Any = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115 - closed by close
        self._end = 0

    def write(self, rows: pa.Table) -> tuple[int, int]:
        """Write rows in Arrow's format, which keeps all types; returns offset and length."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_table(rows)
        data = sink.getvalue()
        self._handle.seek(self._end)
        self._handle.write(data)
        self._end += data.size
        return self._end - data.size, data.size

    def read(self, offset: int, length: int) -> pa.Table:
        """Read rows."""
        self._handle.seek(offset)
        return pa.ipc.open_stream(pa.py_buffer(self._handle.read(length))).read_all()

    def close(self) -> None:
        """Remove the file."""
        self._handle.close()


class SpilledRows:
    """The rows of one partition in their order, in memory and in a temporary file."""

    def __init__(self, values: dict[str, Any], spill: Spill) -> None:
        self.values = values
        self.waiting = WaitingRows()
        self._spill = spill
        self._pieces: list[tuple[int, int]] = []

    def add(self, rows: pa.Table) -> None:
        """Append rows; a piece of the temporary file has one schema."""
        if self.waiting.schema not in (None, rows.schema):
            self.flush()
        self.waiting.add(rows)

    def flush(self) -> None:
        """Write the rows in memory to disk."""
        if self.waiting.rows:
            self._pieces.append(self._spill.write(self.waiting.take_all()))

    def read(self) -> Iterator[pa.Table]:
        """All rows, in pieces."""
        yield from (self._spill.read(*piece) for piece in self._pieces)
        if self.waiting.rows:
            yield self.waiting.take_all()


_MAX_NAME_BYTES = 255
_MAX_TEMPLATE_BYTES = 180


@dataclass(frozen=True)
class BufferLimits:
    """How much of new files is open and in memory at a time."""

    max_open_files: int = 64
    """Rows of further partitions wait in a temporary file."""

    max_bytes: int = 64 * 1024 * 1024
    """Rows of more bytes do not wait in memory until they fill a row group."""


@dataclass(frozen=True)
class FileLimits:
    """The maximum size of new files, of their row groups, and of what waits to be written."""

    rows_per_file: int = 5_000_000
    rows_per_group: int = 500_000
    buffers: BufferLimits = BufferLimits()


@dataclass(frozen=True)
class NewFile:
    """A staged file with new rows."""

    staged: StagedFile
    rows: int
    partition_values: dict[str, Any]


def basename_of(template: str | None, number: int) -> str:
    """Make a file name from a template with ``{}`` or ``{i}`` for the number, or neither.

    Storage makes the name unique afterwards, so two writes with one template never collide.

    Raises:
        InvalidArgumentError: If the template has other placeholders.
    """
    if template is None:
        return "part.parquet"
    given: object = template
    try:
        name = template.format(number, i=number) if isinstance(given, str) else ""
    except (KeyError, IndexError, ValueError) as error:
        raise InvalidArgumentError(
            f"basename_template must hold {{}} or {{i}} or no placeholder, got {template!r}."
        ) from error
    if not name:
        raise InvalidArgumentError(f"basename_template must be a non-empty text, got {given!r}.")
    if len(os.fsencode(name)) > _MAX_TEMPLATE_BYTES:
        raise InvalidArgumentError(
            f"basename_template must give names of at most {_MAX_TEMPLATE_BYTES} bytes, because a "
            f"unique part is added, got {name[:40] + '...'!r} of {len(os.fsencode(name)):,}."
        )
    return name if name.lower().endswith((".parquet", ".pq", ".parq")) else f"{name}.parquet"


class NewFiles:
    """Writes rows into new staged files, as many as partitions and limits need.

    Args:
        root: The root of the dataset.
        stage: Opens the staging directory, when the first file is needed.
        properties: How files are written; its schema has the columns they store.
        partitions: The types of the partition columns, outermost first.
        directories: Finds the directory of a partition.
        limits: The maximum size of files.
        template: The name of files.
        other_types: Types that a column has in other files of the dataset, by its name: for values
            that do not fit the type in ``properties``.
        delete_when: The column that marks rows which are not written; it is not stored.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - everything about new files
        self,
        root: Root,
        stage: Callable[[], Stage | WorkerStage],
        properties: WriterProperties,
        partitions: pa.Schema,
        directories: PartitionDirectories,
        limits: FileLimits,
        template: str | None = None,
        other_types: Mapping[str, Sequence[pa.DataType]] | None = None,
        delete_when: str | None = None,
    ) -> None:
        self._root = root
        self._stage = stage
        self._properties = properties
        self._known = [properties]
        self._other_types = other_types or {}
        self._delete_when = delete_when
        self._partitions = partitions
        self._directories = directories
        self._limits = limits
        self._template = template
        self._open: dict[str, _OpenFile] = {}
        self._postponed: dict[str, SpilledRows] = {}
        self._spill: Spill | None = None
        self._waiting_bytes = 0
        self._done: list[NewFile] = []
        self._count = 0

    @property
    def limits(self) -> FileLimits:
        """The maximum size of files."""
        return self._limits

    @property
    def partition_columns(self) -> list[str]:
        """The partition columns, outermost first."""
        return list(self._partitions.names)

    def write(self, rows: pa.Table) -> None:
        """Add rows with all columns, including partition columns.

        Raises:
            SchemaMismatchError: If a value does not fit.
            InvalidArgumentError: If a partition value cannot be a directory name.
        """
        for part, values in self._split(self._wanted(rows)):
            directory = self._directories.directory(list(values.values()))
            self._check_length(directory)
            plain = {name: value.as_py() for name, value in values.items()}
            stored = self._stored(part)
            if self._is_postponed(directory):
                self._postpone(directory, plain, stored)
            else:
                self._add(directory, plain, stored)
        self._release_memory()

    def elsewhere(self, stage: Callable[[], WorkerStage]) -> NewFiles:
        """A writer like this for another process; picklable if ``stage`` is."""
        return NewFiles(
            self._root,
            stage,
            self._properties,
            self._partitions,
            self._directories,
            self._limits,
            self._template,
            self._other_types,
            self._delete_when,
        )

    def adopt(self, files: Iterable[NewFile]) -> None:
        """Add files that other processes have written."""
        self._done.extend(files)

    def finish(self) -> list[NewFile]:
        """Close all files and return those that were written since the last call."""
        for directory in list(self._open):
            self._close(directory)
        for directory in list(self._postponed):
            rows = self._postponed.pop(directory)
            self._waiting_bytes -= rows.waiting.bytes
            for table in rows.read():
                self._add(directory, rows.values, table)
                self._release_memory()
            if directory in self._open:
                self._close(directory)
        done, self._done = self._done, []
        self._count += len(done)
        return done

    def write_empty(self, directory: str | None = None) -> None:
        """Write a file without rows, so that the schema is kept.

        Args:
            directory: Its directory; by default the root, or the partition of NULL, so that the
                partition columns are kept too.
        """
        if directory is None:
            nulls = [pa.scalar(None, field.type) for field in self._partitions]
            directory = self._directories.directory(nulls) if nulls else ""
        self._file(directory, {}, self._properties)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Close what is still open; staging is removed anyway."""
        for file in self._open.values():
            file.close()
        self._open.clear()
        self._postponed.clear()
        if self._spill is not None:
            self._spill.close()

    def _wanted(self, rows: pa.Table) -> pa.Table:
        """The rows that do not delete, without the column that says so."""
        if self._delete_when is None:
            return rows
        deletes = is_true(rows.column(self._delete_when))
        rows = rows.drop_columns(self._delete_when)
        return take_rows(rows, pa.array(np.flatnonzero(~deletes))) if deletes.any() else rows

    def _split(self, rows: pa.Table) -> Iterator[tuple[pa.Table, dict[str, pa.Scalar]]]:
        """The rows of each partition."""
        if not rows.num_rows:
            return
        if not len(self._partitions):
            yield rows, {}
            return
        columns = [key_column(field.name, field.type) for field in self._partitions]
        groups = KeyIndex(canonical_keys(rows, columns)).groups
        order = np.argsort(groups, kind="stable")
        ordered = take_rows(rows, pa.array(order))
        cuts = np.flatnonzero(np.diff(groups[order])) + 1
        for start, end in zip([0, *cuts], [*cuts, len(order)], strict=True):
            part = ordered.slice(start, end - start)
            yield part, {name: part.column(name)[0] for name in self._partitions.names}

    def _stored(self, rows: pa.Table) -> pa.Table:
        """Rows in the types of ``properties``, or in those of other files if they do not fit."""
        try:
            return stored_rows(rows, self._known[-1])
        except SchemaMismatchError:
            wanted = conforming_schema(rows, self._properties.meaning(), self._other_types)
            properties = self._properties.with_types(wanted)
            stored = stored_rows(rows, properties)
        properties = self._properties_for(stored) or properties
        # The last one is tried first: later rows probably need it again.
        self._known = [*(one for one in self._known if one is not properties), properties]
        return stored

    def _properties_for(self, stored: pa.Table) -> WriterProperties | None:
        """The properties whose schema rows have."""
        return next((one for one in self._known if one.schema.equals(stored.schema)), None)

    def _check_length(self, directory: str) -> None:
        """Refuse a directory that a local disk cannot have, before anything is committed."""
        for name in directory.split("/") if self._root.is_local else ():
            if len(os.fsencode(name)) > _MAX_NAME_BYTES:
                raise InvalidArgumentError(
                    f"the partition {name[:40] + '...'!r} would be a directory with a name of "
                    f"{len(os.fsencode(name)):,} bytes; disks take {_MAX_NAME_BYTES}.\n"
                    "Hint: partition by columns with shorter values."
                )

    def _is_postponed(self, directory: str) -> bool:
        """Whether the file of a partition is written at the end because too many are open."""
        is_full = len(self._open) >= self._limits.buffers.max_open_files
        return directory in self._postponed or (is_full and directory not in self._open)

    def _postpone(self, directory: str, values: dict[str, Any], stored: pa.Table) -> None:
        """Keep rows for the end: a file closed to open another one would stay small."""
        if self._spill is None:
            self._spill = Spill(self._stage().path if self._root.is_local else None)
        if directory not in self._postponed:
            self._postponed[directory] = SpilledRows(values, self._spill)
        rows = self._postponed[directory]
        before = rows.waiting.bytes
        rows.add(stored)
        self._waiting_bytes += rows.waiting.bytes - before

    def _add(self, directory: str, values: dict[str, Any], stored: pa.Table) -> None:
        """Add rows to the file of a partition, and to further ones when it is full."""
        properties = self._properties_for(stored) or self._properties
        for batch in stored.to_batches():  # slicing a table costs a step for each of its chunks
            start = 0
            while start < batch.num_rows:
                file = self._file(directory, values, properties)
                limit = min(batch.num_rows - start, self._limits.rows_per_file - file.rows)
                part = batch.slice(start, file.rows_to_add(limit))
                before = file.waiting.bytes
                file.add(pa.Table.from_batches([part]))
                self._waiting_bytes += file.waiting.bytes - before
                start += part.num_rows
                if file.rows >= self._limits.rows_per_file:
                    self._close(directory)

    def _file(
        self, directory: str, values: dict[str, Any], properties: WriterProperties
    ) -> _OpenFile:
        if directory in self._open and self._open[directory].properties is not properties:
            self._close(directory)
        if directory not in self._open:
            number = self._count + len(self._done) + len(self._open)
            staged = self._stage().new_file(directory, basename_of(self._template, number))
            limit = self._limits.rows_per_group
            self._open[directory] = _OpenFile(self._root, staged, values, properties, limit)
        return self._open[directory]

    def _close(self, directory: str) -> None:
        file = self._open.pop(directory)
        self._waiting_bytes -= file.waiting.bytes
        file.close()
        self._done.append(NewFile(file.staged, file.rows, file.values))

    def _release_memory(self) -> None:
        """Write the largest parts of the waiting rows, until half of the limit is left.

        The rest is copied, so that this happens only once in many bytes.
        """
        limit = self._limits.buffers.max_bytes
        if self._waiting_bytes <= limit:
            return
        files: list[_OpenFile | SpilledRows] = [*self._open.values(), *self._postponed.values()]
        for file in sorted(files, key=lambda file: file.waiting.bytes, reverse=True):
            self._waiting_bytes -= file.waiting.bytes
            if self._waiting_bytes + file.waiting.bytes > limit // 2:
                file.flush()
            else:
                file.waiting.compact()
            self._waiting_bytes += file.waiting.bytes


@dataclass
class _OpenFile:
    """A file being written; rows wait until they fill a row group."""

    root: Root
    staged: StagedFile
    values: dict[str, Any]
    properties: WriterProperties
    rows_per_group: int
    rows: int = 0
    bytes: int | None = None
    waiting: WaitingRows = field(default_factory=WaitingRows)
    stack: ExitStack = field(default_factory=ExitStack)
    writer: pq.ParquetWriter | None = None

    def rows_to_add(self, limit: int) -> int:
        """The number of rows to add next: up to the end of a row group, if there are enough."""
        after = (self.waiting.rows + limit) % self.rows_per_group
        return limit - after if after < limit else limit

    def add(self, rows: pa.Table) -> None:
        self.waiting.add(rows)
        self.rows += rows.num_rows
        if self.waiting.rows >= self.rows_per_group:
            self.flush()

    def flush(self) -> None:
        if self.waiting.rows:
            rows = self.waiting.take_all()
            self._opened(rows).write_table(rows, row_group_size=self.rows_per_group)

    def close(self) -> None:
        with self.stack:
            self.flush()
            self._opened(pa.Table.from_batches([], self.properties.schema))
        if not capabilities_of(self.root).directories:
            # What was put is what was written, so its footer need not be read again.
            self.staged = replace(self.staged, size=self.bytes, parquet=False)

    def _set_bytes(self, number: int) -> None:
        self.bytes = number

    def _opened(self, rows: pa.Table) -> pq.ParquetWriter:
        """The writer; how it writes depends on the first rows."""
        if self.writer is None:
            properties = self.properties.with_dictionaries_for(rows)
            writer = open_writer(self.root, self.staged.path, properties, self._set_bytes)
            self.writer = self.stack.enter_context(writer)
        return self.writer
