"""New files: rows laid out by partition, cut to size, in the dataset's own schema.

Rows that wait for the file they belong to: in memory, and on a local disk if they are many.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from fsspeckit.core.arrow_compat import take_rows
from fsspeckit.core.keys import KeyIndex, canonical_keys, key_column
from fsspeckit.core.rewrite.rewrite import stored_rows, writing
from fsspeckit.core.schema_conform import conforming_schema
from fsspeckit.errors import InvalidArgumentError, SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow.parquet as pq

    from fsspeckit.core.parquet import WriterProperties
    from fsspeckit.core.planning import PartitionDirectories
    from fsspeckit.storage import Root, Stage, StagedFile, WorkerStage

__all__ = [
    "FileLimits",
    "NewFile",
    "NewFiles",
    "Spill",
    "SpilledRows",
    "WaitingRows",
    "basename_of",
]


# --- Rows that wait for the file they belong to ---


class WaitingRows:
    """Rows in memory, with their number and size counted as they come."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []
        self.rows = 0
        self.bytes = 0

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of the rows that wait; None if there are none."""
        return self._tables[0].schema if self._tables else None

    def add(self, rows: pa.Table) -> None:
        """Add rows after those that wait already."""
        self._tables.append(rows)
        self.rows += rows.num_rows
        self.bytes += rows.nbytes

    def taken(self) -> pa.Table:
        """All rows, in one piece; none wait any more."""
        table = pa.concat_tables(self._tables).unify_dictionaries().combine_chunks()
        self._tables, self.rows, self.bytes = [], 0, 0
        return table

    def compact(self) -> None:
        """Copy the rows: as parts of larger tables they would keep all of these in memory."""
        if self.rows:
            table = self.taken()
            self.add(take_rows(table, pa.array(np.arange(table.num_rows))))


@dataclass(frozen=True)
class _Piece:
    """A part of the file that holds some rows."""

    offset: int
    length: int


class Spill:
    """A temporary file with rows of many partitions; it has no name and vanishes when closed.

    Args:
        directory: Where it is; None for the place of temporary files.
    """

    def __init__(self, directory: str | None = None) -> None:
        self._handle: Any = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115 - closed by close
        self._end = 0

    def write(self, rows: pa.Table) -> _Piece:
        """Write rows, as Arrow holds them: whatever their types, they come back the same."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_table(rows)
        data = sink.getvalue()
        self._handle.seek(self._end)
        self._handle.write(data)
        piece = _Piece(self._end, data.size)
        self._end += data.size
        return piece

    def read(self, piece: _Piece) -> pa.Table:
        """Read rows."""
        self._handle.seek(piece.offset)
        return pa.ipc.open_stream(pa.py_buffer(self._handle.read(piece.length))).read_all()

    def close(self) -> None:
        """Remove the file."""
        self._handle.close()


class SpilledRows:
    """The rows of one partition, in the order in which they came."""

    def __init__(self, values: dict[str, Any], spill: Spill) -> None:
        self.values = values
        self.waiting = WaitingRows()
        self._spill = spill
        self._pieces: list[_Piece] = []

    def add(self, rows: pa.Table) -> None:
        """Add rows; those of another schema than the ones that wait go to another piece."""
        if self.waiting.schema not in (None, rows.schema):
            self.flush()
        self.waiting.add(rows)

    def flush(self) -> None:
        """Write what waits in memory to the disk."""
        if self.waiting.rows:
            self._pieces.append(self._spill.write(self.waiting.taken()))

    def read(self) -> Iterator[pa.Table]:
        """All rows, in pieces."""
        yield from map(self._spill.read, self._pieces)
        if self.waiting.rows:
            yield self.waiting.taken()


# --- New files: rows laid out by partition, cut to size, in the dataset's own schema ---

_NAME_BYTES = 255
_TEMPLATE_BYTES = 180
_OPEN_FILES = 64
_BUFFERED_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class FileLimits:
    """How large new files and their row groups may get."""

    rows_per_file: int = 5_000_000
    rows_per_group: int = 500_000


@dataclass(frozen=True)
class NewFile:
    """A staged file with new rows."""

    staged: StagedFile
    rows: int
    partition_values: dict[str, Any]


def basename_of(template: str | None, number: int) -> str:
    """A file name from a template with ``{}`` or ``{i}`` for the number, or neither.

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
    if len(os.fsencode(name)) > _TEMPLATE_BYTES:
        raise InvalidArgumentError(
            f"basename_template must give names of at most {_TEMPLATE_BYTES} bytes, because a "
            f"unique part is added, got {name[:40] + '...'!r} of {len(os.fsencode(name)):,}."
        )
    return name if name.lower().endswith((".parquet", ".pq", ".parq")) else f"{name}.parquet"


class NewFiles:
    """Writes rows into new staged files, as many as partitions and limits need.

    Args:
        root: Where the dataset is.
        stage: Gives where staged files go, when the first one is needed.
        layout: How files are written; its schema says which columns they store.
        partitions: The types of the partition columns, outermost first.
        directories: Where rows of a partition go.
        limits: How large files may get.
        template: The name of files.
        other_types: Types that a column has in other files of the dataset, by its name: for values
            that the layout's type does not hold.
    """

    def __init__(
        self,
        root: Root,
        stage: Callable[[], Stage | WorkerStage],
        layout: WriterProperties,
        partitions: pa.Schema,
        directories: PartitionDirectories,
        limits: FileLimits,
        template: str | None = None,
        other_types: Mapping[str, Sequence[pa.DataType]] | None = None,
    ) -> None:
        self._root = root
        self._stage = stage
        self._layout = layout
        self._layouts = [layout]
        self._other_types = other_types or {}
        self._partitions = partitions
        self._directories = directories
        self._limits = limits
        self._template = template
        self._open: dict[str, _OpenFile] = {}
        self._postponed: dict[str, SpilledRows] = {}
        self._spill: Spill | None = None
        self._waiting_bytes = 0
        self._done: list[NewFile] = []

    @property
    def limits(self) -> FileLimits:
        """How large files may get."""
        return self._limits

    @property
    def partition_columns(self) -> list[str]:
        """The partition columns, outermost first."""
        return list(self._partitions.names)

    def write(self, rows: pa.Table) -> None:
        """Add rows with all columns, partition columns too.

        Raises:
            SchemaMismatchError: If a value does not fit.
            InvalidArgumentError: If a partition value cannot be a directory name.
        """
        for part, values in self._split(rows):
            directory = self._directories.directory(list(values.values()))
            self._check_length(directory)
            shown = {name: value.as_py() for name, value in values.items()}
            stored = self._stored(part)
            if self._is_postponed(directory):
                self._postpone(directory, shown, stored)
            else:
                self._add(directory, shown, stored)
        self._release_memory()

    def elsewhere(self, stage: Callable[[], WorkerStage]) -> NewFiles:
        """The same writer for another process; picklable if ``stage`` is."""
        return NewFiles(
            self._root,
            stage,
            self._layout,
            self._partitions,
            self._directories,
            self._limits,
            self._template,
            self._other_types,
        )

    def adopt(self, files: Iterable[NewFile]) -> None:
        """Take over files that other processes have written and finished."""
        self._done.extend(files)

    def finish(self) -> list[NewFile]:
        """Close all files and tell what was written."""
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
        return self._done

    def write_empty(self, directory: str | None = None) -> None:
        """Write a file without rows, so that the schema is kept.

        Args:
            directory: Where; by default the root, or the partition of NULL, so that the partition
                columns are kept too.
        """
        if directory is None:
            nulls = [pa.scalar(None, field.type) for field in self._partitions]
            directory = self._directories.directory(nulls) if nulls else ""
        self._file(directory, {}, self._layout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Close what is still open without caring for it: staging is removed anyway."""
        for file in self._open.values():
            file.close()
        self._open.clear()
        self._postponed.clear()
        if self._spill is not None:
            self._spill.close()

    def _split(self, rows: pa.Table) -> Iterator[tuple[pa.Table, dict[str, pa.Scalar]]]:
        """The rows of each partition."""
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
        """Rows as the dataset's first types, else as those of other files that hold them."""
        try:
            return stored_rows(rows, self._layouts[-1])
        except SchemaMismatchError:
            wanted = conforming_schema(rows, self._layout.meaning(), self._other_types)
            layout = self._layout.with_types(wanted)
            stored = stored_rows(rows, layout)
        known = self._layout_of(stored)
        # The last one is tried first: what was needed once will be needed again.
        self._layouts = [one for one in self._layouts if one is not known] + [known or layout]
        return stored

    def _layout_of(self, stored: pa.Table) -> WriterProperties | None:
        """The layout that rows were stored for."""
        return next((one for one in self._layouts if one.schema.equals(stored.schema)), None)

    def _check_length(self, directory: str) -> None:
        """Refuse a directory that a local disk cannot have, before anything is committed."""
        for name in directory.split("/") if self._root.is_local else ():
            if len(os.fsencode(name)) > _NAME_BYTES:
                raise InvalidArgumentError(
                    f"the partition {name[:40] + '...'!r} would be a directory with a name of "
                    f"{len(os.fsencode(name)):,} bytes; disks take {_NAME_BYTES}.\n"
                    "Hint: partition by columns with shorter values."
                )

    def _is_postponed(self, directory: str) -> bool:
        """Whether the file of a partition is written at the end, because too many are open."""
        is_open = directory in self._open
        return directory in self._postponed or (not is_open and len(self._open) >= _OPEN_FILES)

    def _postpone(self, directory: str, values: dict[str, Any], stored: pa.Table) -> None:
        """Keep rows for the end: a file that is closed to open another one would stay small."""
        if self._spill is None:
            self._spill = Spill(self._stage().path if self._root.is_local else None)
        if directory not in self._postponed:
            self._postponed[directory] = SpilledRows(values, self._spill)
        rows = self._postponed[directory]
        before = rows.waiting.bytes
        rows.add(stored)
        self._waiting_bytes += rows.waiting.bytes - before

    def _add(self, directory: str, values: dict[str, Any], stored: pa.Table) -> None:
        """Add rows to the file of a partition, and to the next ones when it is full."""
        layout = self._layout_of(stored) or self._layout
        for batch in stored.to_batches():  # to slice a table takes a step for each of its chunks
            start = 0
            while start < batch.num_rows:
                file = self._file(directory, values, layout)
                most = min(batch.num_rows - start, self._limits.rows_per_file - file.rows)
                part = batch.slice(start, file.rows_to_add(most))
                before = file.waiting.bytes
                file.add(pa.Table.from_batches([part]))
                self._waiting_bytes += file.waiting.bytes - before
                start += part.num_rows
                if file.rows >= self._limits.rows_per_file:
                    self._close(directory)

    def _file(self, directory: str, values: dict[str, Any], layout: WriterProperties) -> _OpenFile:
        if directory in self._open and self._open[directory].layout is not layout:
            self._close(directory)
        if directory not in self._open:
            number = len(self._done) + len(self._open)
            staged = self._stage().new_file(directory, basename_of(self._template, number))
            writer = writing(self._root, staged.path, layout)
            limit = self._limits.rows_per_group
            self._open[directory] = _OpenFile(staged, values, layout, writer, limit)
        return self._open[directory]

    def _close(self, directory: str) -> None:
        file = self._open.pop(directory)
        self._waiting_bytes -= file.waiting.bytes
        file.close()
        self._done.append(NewFile(file.staged, file.rows, file.values))

    def _release_memory(self) -> None:
        """Write the largest parts of what waits, until half of the limit is left.

        What is left is copied, so that all of this happens once in many bytes.
        """
        if self._waiting_bytes <= _BUFFERED_BYTES:
            return
        files: list[_OpenFile | SpilledRows] = [*self._open.values(), *self._postponed.values()]
        for file in sorted(files, key=lambda file: file.waiting.bytes, reverse=True):
            self._waiting_bytes -= file.waiting.bytes
            if self._waiting_bytes + file.waiting.bytes > _BUFFERED_BYTES // 2:
                file.flush()
            else:
                file.waiting.compact()
            self._waiting_bytes += file.waiting.bytes


@dataclass
class _OpenFile:
    """A file being written; rows wait until they fill a row group."""

    staged: StagedFile
    values: dict[str, Any]
    layout: WriterProperties
    context: Any
    rows_per_group: int
    rows: int = 0
    waiting: WaitingRows = field(default_factory=WaitingRows)

    def __post_init__(self) -> None:
        self._writer: pq.ParquetWriter = self.context.__enter__()

    def rows_to_add(self, most: int) -> int:
        """How many rows to add next: up to the end of a row group, if there are enough."""
        after = (self.waiting.rows + most) % self.rows_per_group
        return most - after if after < most else most

    def add(self, rows: pa.Table) -> None:
        self.waiting.add(rows)
        self.rows += rows.num_rows
        if self.waiting.rows >= self.rows_per_group:
            self.flush()

    def flush(self) -> None:
        if self.waiting.rows:
            self._writer.write_table(self.waiting.taken(), row_group_size=self.rows_per_group)

    def close(self) -> None:
        try:
            self.flush()
        finally:
            self.context.__exit__(None, None, None)
