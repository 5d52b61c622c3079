"""Sources: whatever a caller passes as data, as Arrow rows that can be read more than once.

Data that is in memory already stays there, unless it has to be kept: its owner may change it. A
stream, and data that is to be kept, is read once: into memory while it is small, else into a file
in the staging directory, so that it is never held twice.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
import weakref
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from itertools import chain, groupby, pairwise
from numbers import Number
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from fsspeckit.core.arrow_compat import (
    cast_values,
    check_storable,
    copy_table,
    physical_types,
    take_rows,
    widen_dictionary_indices,
    with_int96_as,
    without_views,
)
from fsspeckit.core.keys import find_truncated_value, value_kinds
from fsspeckit.core.matching import read_columns
from fsspeckit.core.schema_conform import (
    check_same_columns,
    conform_table,
    resolve_null_type,
    resolve_null_types,
)
from fsspeckit.datasets.pipeline.reading import has_reserved_names, partition_schema, plain_table
from fsspeckit.errors import InvalidArgumentError, SchemaMismatchError, UnreadableFileError
from fsspeckit.storage import (
    STAGED_SUFFIX,
    arrow_filesystem,
    check_readable,
    list_files,
    naming_failure,
    open_root,
    scheme_of,
    schemes_of,
    without_credentials,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from fsspeckit.core.planning import Target
    from fsspeckit.datasets.engine import OpenStage
    from fsspeckit.storage import Root

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


_SCALARS = (str, bytes, bool, Number, date, time, timedelta, np.generic)
_LISTS = (list, tuple, np.ndarray)
_PLAIN = {str, bytes, bool, int, float, Decimal, date}
_MAX_TYPES = 5


@dataclass(frozen=True)
class SourceLimits:
    """How much of a source is in memory at a time."""

    max_memory_bytes: int = 128 * 1024 * 1024
    """A stream with more bytes than this goes to disk."""

    max_spill_rows: int = 65_536
    """No row group on disk has more rows; it also ends at ``max_spill_bytes``."""

    max_spill_bytes: int = 32 * 1024 * 1024

    max_duplicate_rows: int = 4_000_000
    """The keys of so many rows of the target are in memory while duplicates are looked for. Of more
    rows, files are read once for each share of the keys."""


DEFAULT_SOURCE_LIMITS = SourceLimits()


def open_source(
    data: Any,
    stage: OpenStage,
    filesystem: Any = None,
    schema: pa.Schema | None = None,
    *,
    keep: bool = False,
    limits: SourceLimits = DEFAULT_SOURCE_LIMITS,
) -> ArrowSource:
    """Make a source of whatever was passed as data.

    Args:
        data: A table or batch, a list of them, a reader, a pyarrow dataset or scanner, a pandas or
            Polars frame, anything with the Arrow C stream, or a path or list of paths of Parquet.
        stage: Where a stream that is too large for memory goes.
        filesystem: The filesystem of paths.
        schema: The schema that the caller wants the data to have.
        keep: Whether the source must stay what it is now, whatever its owner does to the data.
        limits: How much of it may be in memory.

    Raises:
        InvalidArgumentError: If the data is of another kind.
        SchemaMismatchError: If the data does not fit the schema.
    """
    table = _as_table(data)
    if table is not None:
        fitted = table if schema is None else _fit_to(table, schema)
        return _copy_or_spill(fitted, stage, limits) if keep else MemorySource(fitted)
    reader = _open_reader(data, filesystem)
    _check_schema(reader.schema)
    pieces = (_plain(pa.Table.from_batches([batch])) for batch in reader)
    wanted = schema or _plain(pa.Table.from_batches([], reader.schema)).schema
    fitted = pieces if schema is None else (_fit_to(piece, schema) for piece in pieces)
    if keep and not as_paths(data):  # what is read from Parquet is in memory of our own
        fitted = map(copy_table, fitted)
    batches = chain.from_iterable(piece.to_batches() for piece in fitted)
    return _collect(wanted, batches, stage, limits)


class ArrowSource(Protocol):
    """Rows that can be read in order, and picked by number."""

    schema: pa.Schema
    num_rows: int

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Return some columns of all rows."""
        ...

    def take(self, rows: NDArray[np.int64], names: Sequence[str] | None = None) -> pa.Table:
        """Return rows by their numbers, in that order; some of their columns, or all."""
        ...

    def batches(self) -> Iterator[pa.Table]:
        """Yield all rows, in order, in pieces."""
        ...


class MemorySource(ArrowSource):
    """Rows in memory."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._pieces: list[pa.Table] = []
        self._starts = _starts([])
        self.schema: pa.Schema = table.schema
        self.num_rows: int = table.num_rows

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Return some columns of all rows."""
        return self._table.select(list(names))

    def take(self, rows: NDArray[np.int64], names: Sequence[str] | None = None) -> pa.Table:
        """Return rows by their numbers, in that order; some of their columns, or all."""
        if not self._pieces:
            self._pieces = _pieces(self._table)
            self._starts = _starts([piece.num_rows for piece in self._pieces])
        if names is None:
            return _take_from(self._pieces.__getitem__, self._starts, rows, self.schema)
        some = [piece.select(list(names)) for piece in self._pieces]
        return _take_from(some.__getitem__, self._starts, rows, self.columns(names).schema)

    def batches(self) -> Iterator[pa.Table]:
        """Yield all rows, in order, in pieces."""
        yield self._table


def _pieces(table: pa.Table) -> list[pa.Table]:
    """Tables without chunks: Arrow would put all chunks together whenever rows are taken."""
    if table.nbytes <= DEFAULT_SOURCE_LIMITS.max_memory_bytes:
        return [table.combine_chunks()]
    return [pa.Table.from_batches([batch]) for batch in table.to_batches()]


def _starts(sizes: Sequence[int]) -> NDArray[np.int64]:
    """The number of the first row of each piece, and the number after the last row."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _take_from(
    piece: Callable[[int], pa.Table],
    starts: NDArray[np.int64],
    rows: NDArray[np.int64],
    schema: pa.Schema,
) -> pa.Table:
    """Return rows by their numbers, in that order; each piece is read once."""
    if len(starts) == 2:  # one piece
        return take_rows(piece(0), pa.array(rows))
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    numbers = np.searchsorted(starts, ordered, side="right") - 1
    cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1), len(rows)] if len(rows) else []
    parts = [
        take_rows(piece(numbers[start]), pa.array(ordered[start:end] - starts[numbers[start]]))
        for start, end in pairwise(cuts)
    ]
    found = pa.concat_tables(parts) if parts else schema.empty_table()
    back = np.empty(len(rows), np.int64)
    back[order] = np.arange(len(rows))
    return take_rows(found, pa.array(back))


class SpilledSource(ArrowSource):
    """Rows in a Parquet file of plain pages; a temporary directory is removed with the source."""

    def __init__(self, path: str, temporary: str | None = None) -> None:
        if temporary is not None:
            weakref.finalize(self, shutil.rmtree, temporary, ignore_errors=True)
        # Read, not mapped: mapped pages would count as memory of this process.
        self._file = pq.ParquetFile(path, memory_map=False, pre_buffer=False)
        self.schema: pa.Schema = self._file.schema_arrow
        metadata = self._file.metadata
        sizes = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
        self._starts = _starts(sizes)
        self.num_rows = int(self._starts[-1])

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Return some columns of all rows."""
        wanted = list(names)
        parts = [
            self._file.read_row_group(number, columns=wanted).select(wanted)
            for number in range(self._file.num_row_groups)
        ]
        fields = pa.schema([self.schema.field(name) for name in wanted])
        return pa.concat_tables(parts) if parts else pa.Table.from_batches([], fields)

    def take(self, rows: NDArray[np.int64], names: Sequence[str] | None = None) -> pa.Table:
        """Return rows by their numbers, in that order; some of their columns, or all."""
        if names is None:
            return _take_from(self._file.read_row_group, self._starts, rows, self.schema)
        wanted = list(names)
        schema = pa.schema([self.schema.field(name) for name in wanted])

        def read(number: int) -> pa.Table:
            return self._file.read_row_group(number, columns=wanted).select(wanted)

        return _take_from(read, self._starts, rows, schema)

    def batches(self) -> Iterator[pa.Table]:
        """Yield all rows, in order, in pieces."""
        for number in range(self._file.num_row_groups):
            yield self._file.read_row_group(number)


class FilesSource(ArrowSource):
    """Rows in files of a dataset, which are read whenever they are asked for."""

    def __init__(self, target: Target, schema: pa.Schema) -> None:
        self._target = target
        self._groups = [
            (number, group)
            for number, footer in enumerate(target.footers)
            for group in range(len(footer.row_groups))
        ]
        sizes = [target.footers[number].row_groups[group].rows for number, group in self._groups]
        self._starts = _starts(sizes)
        self.schema: pa.Schema = schema
        self.num_rows = int(self._starts[-1])

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Return some columns of all rows."""
        fields = pa.schema([self.schema.field(name) for name in names])
        parts = (self._read(fields, piece) for piece in range(len(self._groups)))
        return pa.concat_tables([fields.empty_table(), *parts])

    def take(self, rows: NDArray[np.int64], names: Sequence[str] | None = None) -> pa.Table:
        """Return rows by their numbers, in that order; some of their columns, or all."""
        wanted = self.schema.names if names is None else names
        fields = pa.schema([self.schema.field(name) for name in wanted])
        return _take_from(lambda piece: self._read(fields, piece), self._starts, rows, fields)

    def batches(self) -> Iterator[pa.Table]:
        """Yield all rows, in order, in pieces."""
        for number, members in groupby(self._groups, lambda piece: piece[0]):
            groups = [group for _, group in members]
            for _, table in read_columns(self._target, self.schema.names, number, groups):
                yield conform_table(table, self.schema)

    def _read(self, fields: pa.Schema, piece: int) -> pa.Table:
        number, group = self._groups[piece]
        ((_, table),) = read_columns(self._target, fields.names, number, [group])
        return conform_table(table, fields)


def _copy_or_spill(table: pa.Table, stage: OpenStage, limits: SourceLimits) -> ArrowSource:
    """Copy a table, since its owner may change the memory; spill it if too large to copy."""
    if table.nbytes > limits.max_memory_bytes:
        batches = table.to_batches(max_chunksize=limits.max_spill_rows)
        return _spill(table.schema, batches, stage, limits)
    return MemorySource(copy_table(table))


def _as_table(data: Any) -> pa.Table | None:
    """Return data that is a table or a list of tables already."""
    given = list(data) if isinstance(data, (list, tuple)) else [data]
    if not given or not all(isinstance(part, (pa.Table, pa.RecordBatch)) for part in given):
        return None
    for part in given:
        _check_schema(part.schema)
    tables = [p if isinstance(p, pa.Table) else pa.Table.from_batches([p]) for p in given]
    _check_alike([(f"table {n}", table.schema) for n, table in enumerate(tables)])
    known = unify_schemas([table.schema for table in tables])
    return pa.concat_tables([_plain(_as_schema(table, known)) for table in tables])


def _plain(table: pa.Table) -> pa.Table:
    """Convert what cannot be taken or written: views, and NULL among the values of a dictionary."""
    table = widen_dictionary_indices(without_views(table))
    if not any(map(pa.types.is_dictionary, table.schema.types)):
        return table
    return pa.table(list(map(_without_null_values, table.columns)), schema=table.schema)


def _without_null_values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Encode a column again if NULL is a value of its dictionaries."""
    kind = column.type
    if not pa.types.is_dictionary(kind) or not any(c.dictionary.null_count for c in column.chunks):
        return column
    again = [chunk.dictionary_decode().dictionary_encode() for chunk in column.chunks]
    return pa.chunked_array([chunk.cast(kind) for chunk in again], kind)


def _check_alike(schemas: Sequence[tuple[str, pa.Schema]]) -> None:
    """Refuse pieces of a source that do not have the same columns and types."""
    (first, expected), *others = schemas
    wanted = {field.name: field.type for field in expected}
    for what, schema in others:
        found = {field.name: field.type for field in schema}
        odd = sorted(
            name
            for name in wanted.keys() | found.keys()
            if name not in wanted or name not in found or not _alike(wanted[name], found[name])
        )
        if odd:
            raise SchemaMismatchError(
                f"the parts of the source differ in the columns {odd!r}: {first} and {what} have "
                "other columns or types.\nHint: make them alike, or merge them one by one."
            )


def _alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether two types are the same where both know one: nothing but NULL has none."""
    return bool(resolve_null_type(one, other).equals(resolve_null_type(other, one)))


def unify_schemas(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Return the schema of pieces that are alike; NULL is allowed where one of them allows it."""
    known = resolve_null_types(*schemas)
    nullable = {field.name for schema in schemas for field in schema if field.nullable}
    fields = [field.with_nullable(field.name in nullable) for field in known]
    return pa.schema(fields, known.metadata)


def _check_schema(schema: pa.Schema) -> None:
    """Refuse a source that no dataset could hold."""
    check_storable(schema)
    check_unique_names(schema.names)


def check_unique_names(names: Iterable[str]) -> None:
    """Refuse a source in which a name occurs twice."""
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        raise InvalidArgumentError(f"the source has columns that occur twice: {twice!r}.")


def _fit_to(table: pa.Table, schema: pa.Schema) -> pa.Table:
    check_same_columns(table.column_names, schema.names, "schema")
    return conform_table(table, schema)


def _open_reader(data: Any, filesystem: Any) -> pa.RecordBatchReader:
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, (ds.Dataset, ds.Scanner)):
        return (data.scanner() if isinstance(data, ds.Dataset) else data).to_reader()
    if paths := as_paths(data):
        return _parquet_reader(paths, filesystem)
    if _is_from(data, "pandas"):
        return from_pandas(data)
    if hasattr(data, "__arrow_c_stream__"):
        return from_stream(data)
    if hasattr(data, "toArrow"):
        return data.toArrow().to_reader()
    if hasattr(data, "collect") and hasattr(data, "lazy"):
        return from_lazy_frame(data)
    raise InvalidArgumentError(
        f"data of type {type(data).__name__} is not supported.\n"
        "Hint: pass an Arrow table, a list of tables, a reader or dataset, a pandas or Polars "
        "frame, a DuckDB relation, a Spark DataFrame, or a path of Parquet."
    )


@dataclass(frozen=True)
class SourcePath:
    """A path of Parquet, and how to reach it."""

    path: Any
    filesystem: Any = None
    """The filesystem that the target was given; a URL of another kind is not on it."""

    storage_options: Mapping[str, Any] | None = None
    """What fsspec needs to open the filesystem of a URL."""

    def __str__(self) -> str:
        return str(os.fspath(self.path))

    def root(self) -> Root:
        """Return where the path is."""
        scheme = scheme_of(str(self))
        if scheme is not None and scheme not in schemes_of(self.filesystem):
            return open_root(self.path, None, self.storage_options)
        return open_root(self.path, self.filesystem, self.storage_options)


def locate_paths(
    data: Any,
    filesystem: Any,
    target: Root,
    storage_options: Mapping[str, Any] | None,
    default_options: Callable[[Any], Mapping[str, Any] | None],
) -> Any:
    """Return data that is paths with how to reach them, other data as it is.

    A path that comes with its filesystem stays as it is. Options that the caller gave for the
    target also open sources of the same kind of filesystem; others have the default ones.
    """

    def located(path: Any) -> SourcePath:
        if isinstance(path, SourcePath):
            return path
        is_same = (scheme_of(str(os.fspath(path))) or "file") in schemes_of(target.filesystem)
        if storage_options and is_same:
            return SourcePath(path, filesystem, storage_options)
        return SourcePath(path, filesystem, default_options(path))

    return list(map(located, as_paths(data))) or data


def as_paths(data: Any) -> list[Any]:
    """Return the paths that data consists of; none if it is something else."""
    given = list(data) if isinstance(data, (list, tuple)) else [data]
    return given if all(isinstance(p, (str, os.PathLike, SourcePath)) for p in given) else []


def source_root(path: Any, filesystem: Any) -> Root:
    """Return where a path of a source is; a :class:`SourcePath` knows its own filesystem."""
    return path.root() if isinstance(path, SourcePath) else open_root(path, filesystem)


def _parquet_reader(paths: Sequence[Any], filesystem: Any) -> pa.RecordBatchReader:
    """A stream over Parquet files, directories and globs, one after the other."""
    parts = [parquet_dataset(path, filesystem) for path in paths]
    names = [without_credentials(str(path)) for path in paths]
    _check_alike([(name, part.schema) for name, part in zip(names, parts, strict=True)])
    schema = unify_schemas([part.schema for part in parts])
    batches = chain.from_iterable(map(_batches, parts))
    fitted = (_as_schema(batch, schema) for batch in batches)
    return pa.RecordBatchReader.from_batches(schema, fitted)


def _batches(dataset: ds.FileSystemDataset) -> Iterator[pa.RecordBatch]:
    if not has_reserved_names(dataset.schema):
        yield from dataset.scanner().to_batches()
        return
    for part in dataset.get_fragments():
        yield from plain_table(part, dataset.schema, dataset.schema.names).to_batches()


def _as_schema(rows: Rows, schema: pa.Schema) -> Rows:
    """Return rows with the columns and types of a schema."""
    columns = [(rows.column(field.name), field.type) for field in schema]
    cast = [cast_values(values, kind) for values, kind in columns]
    return type(rows).from_arrays(cast, schema=schema)


def parquet_dataset(path: Any, filesystem: Any) -> ds.FileSystemDataset:
    """Return the Parquet files at a path: a file, a glob, or a directory with hive partitions.

    INT96 columns are instants in UTC, as in a target.
    """
    root = source_root(path, filesystem)
    name = without_credentials(str(path))
    files = _source_files(root)
    if not files:
        raise FileNotFoundError(f"no Parquet file found at {name!r}.")
    options = ds.ParquetFileFormat(read_options={"coerce_int96_timestamp_unit": "us"})
    hive = partition_schema([root.relative(file) for file in files])
    try:
        dataset = ds.dataset(
            files,
            filesystem=arrow_filesystem(root),
            format=options,
            partitioning=ds.partitioning(hive, flavor="hive") if hive.names else None,
            partition_base_dir=root.path,
        )
        parts = list(dataset.get_fragments())
        typed = [(part.path, _with_instants(part.physical_schema, part)) for part in parts]
    except pa.ArrowInvalid as error:
        raise UnreadableFileError(
            f"the source {name!r} is not readable as Parquet: {error}\n"
            "Hint: a path must be that of Parquet; read other files with a library that knows them."
        ) from error
    _check_alike(typed)
    schema = unify_schemas(
        [_with_instants(dataset.schema, parts[0]), *(schema for _, schema in typed)]
    )
    return ds.FileSystemDataset(parts, schema, options, dataset.filesystem)


def _source_files(root: Root) -> list[str]:
    """List the files at a path of a source."""
    filesystem, path = root.filesystem, root.path
    with naming_failure(root, path, "opening"):
        if any(char in path for char in "*?[") and not filesystem.exists(path):
            return sorted(filesystem.glob(path))
        if filesystem.isdir(path):
            listing = list_files(root)
            check_readable(listing.read_obstacles, root)
            return [file.path for file in listing.files]
        if filesystem.exists(path):
            return [path]
        with suppress(FileNotFoundError):
            filesystem.info(path)  # raises, unlike the others, where access is denied
    return []


def _with_instants(schema: pa.Schema, part: ds.ParquetFileFragment) -> pa.Schema:
    """A schema that begins with the columns of a file, with INT96 as the instants it is."""
    physical = physical_types(part.metadata.schema)
    count = len(part.physical_schema)
    stored = pa.schema([schema.field(n) for n in range(count)])
    rest = [schema.field(n) for n in range(count, len(schema))]
    instants = with_int96_as(stored, physical, pa.timestamp("us", "UTC"))
    return pa.schema([*instants, *rest], schema.metadata)


def _collect(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], stage: OpenStage, limits: SourceLimits
) -> ArrowSource:
    """Read a stream once, into memory while it is small."""
    held: list[pa.RecordBatch] = []
    size = 0
    rest = iter(batches)
    for batch in rest:
        held.append(batch)
        size += batch.nbytes
        if size > limits.max_memory_bytes:
            return _spill(schema, chain(_drain(held), rest), stage, limits)
    # In one piece: whatever is done to each column is otherwise done to each batch.
    return MemorySource(pa.Table.from_batches(held, schema).combine_chunks())


def _drain(held: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches one by one, and free each as soon as it is used."""
    held.reverse()
    while held:
        yield held.pop()


def _spill(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], stage: OpenStage, limits: SourceLimits
) -> SpilledSource:
    """Write a stream to disk, as plain pages: they are the fastest to write and to read."""
    temporary = None
    opened = stage()
    if opened.storage.root.is_local:
        # A name of its own: what is made of a source may be spilled, too.
        path = f"{opened.path}/source-{uuid.uuid4().hex}{STAGED_SUFFIX}"
    else:
        temporary = tempfile.mkdtemp(prefix="fsspeckit-")
        path = f"{temporary}/source{STAGED_SUFFIX}"
    plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    with pq.ParquetWriter(path, schema, **plain) as writer:
        most = (limits.max_spill_rows, limits.max_spill_bytes)
        for table in regroup_batches(schema, batches, *most):
            writer.write_table(table, row_group_size=table.num_rows)
    return SpilledSource(path, temporary)


def regroup_batches(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], rows: int, size: int
) -> Iterator[pa.Table]:
    """Regroup batches into tables of ``rows`` rows, or fewer where they reach ``size`` bytes."""
    waiting: list[pa.RecordBatch] = []
    waiting_rows = waiting_bytes = 0
    for whole in batches:
        start = 0
        while start < whole.num_rows:
            batch = whole.slice(start, rows - waiting_rows)
            start += batch.num_rows
            waiting.append(batch)
            waiting_rows += batch.num_rows
            waiting_bytes += batch.nbytes
            if waiting_rows >= rows or waiting_bytes >= size:
                yield without_views(pa.Table.from_batches(waiting, schema).unify_dictionaries())
                waiting, waiting_rows, waiting_bytes = [], 0, 0
    if waiting_rows:
        yield without_views(pa.Table.from_batches(waiting, schema).unify_dictionaries())


# Frames of pandas and Polars as Arrow, or a refusal that names the column


def _is_from(data: Any, library: str) -> bool:
    """Whether data is of a class of a library, or of a subclass."""
    return any(each.__module__.startswith(f"{library}.") for each in type(data).__mro__)


def from_pandas(data: Any) -> pa.RecordBatchReader:
    """Return the rows of a pandas frame, without its index; refuse what Arrow would change."""
    if not hasattr(data, "columns"):
        raise _not_a_frame(data)
    check_unique_names(map(str, data.columns))
    if names := [name for name in data.index.names if name is not None]:
        raise SchemaMismatchError(
            f"the data frame has an index with names, {names!r}, which are not columns.\n"
            "Hint: .reset_index() makes columns of it, .reset_index(drop=True) drops it."
        )
    for name, values in data.items():
        _check_pandas_column(name, values)
    try:
        return pa.Table.from_pandas(data, preserve_index=False).to_reader()
    except (pa.ArrowException, TypeError, OverflowError, ValueError) as error:
        raise _conversion_error(data, error) from error


def from_stream(data: Any) -> pa.RecordBatchReader:
    """Return the rows of a Polars frame, or of anything else with the Arrow C stream."""
    is_polars_frame = _is_from(data, "polars") and hasattr(data, "schema")
    kinds = data.schema.items() if is_polars_frame else ()
    for name, kind in kinds:
        if str(kind) == "Object":  # Polars gives the addresses of Python's objects
            raise _not_in_parquet(name, kind)
    try:
        return pa.RecordBatchReader.from_stream(data)
    except pa.ArrowInvalid as error:
        for name, kind in kinds:
            if not _is_known(data.select(name).head(0)):
                raise _not_in_parquet(name, kind) from error
        raise _not_a_frame(data, error) from error


def from_lazy_frame(data: Any) -> pa.RecordBatchReader:
    """Return the rows of a lazy frame of Polars, in batches where its version has them."""
    if not hasattr(data, "collect_batches"):
        return from_stream(data.collect())
    frames = iter(
        data.collect_batches(chunk_size=DEFAULT_SOURCE_LIMITS.max_spill_rows, maintain_order=True)
    )
    # What a frame says of its columns beforehand need not be what its functions return.
    begun = next(frames, None)
    first = from_stream(data.head(0).collect() if begun is None else begun)
    batches = chain(first, chain.from_iterable(map(from_stream, frames)))
    return pa.RecordBatchReader.from_batches(first.schema, batches)


def _is_known(data: Any) -> bool:
    """Whether Arrow has the types of a stream."""
    try:
        pa.RecordBatchReader.from_stream(data)
    except pa.ArrowInvalid:
        return False
    return True


def _not_in_parquet(name: str, kind: Any) -> SchemaMismatchError:
    if str(kind) == "Object":
        hint = "make it again from its values, for example with polars.Series(values, dtype=...)"
    elif kind.is_nested():
        hint = "cast it first to a type with others inside, for example polars.List(polars.Int64)"
    else:
        hint = "cast it first, for example to polars.Int64, polars.Decimal(38, 0) or polars.String"
    return SchemaMismatchError(
        f"column {name!r} is of the Polars type {kind}, which Parquet does not have.\n"
        f"Hint: {hint}, or drop it."
    )


def _not_a_frame(data: Any, error: Exception | None = None) -> InvalidArgumentError:
    reason = "it has none" if error is None else str(error)
    frame = "data.to_frame()" if hasattr(data, "to_frame") else "a table with named columns"
    return InvalidArgumentError(
        f"data of type {type(data).__module__.partition('.')[0]}.{type(data).__name__} cannot be "
        f"read as rows of named columns: {reason}.\nHint: pass {frame}."
    )


def _check_pandas_column(name: Any, values: Any) -> None:
    """Refuse what Arrow would take for something else."""
    kind = getattr(getattr(values.dtype, "categories", values), "dtype", values.dtype)
    if str(kind).startswith("period["):
        raise SchemaMismatchError(
            f"column {name!r} holds pandas periods ({kind}), which Parquet does not have: they "
            "would be stored as numbers without a meaning.\n"
            "Hint: convert it first, with .dt.to_timestamp() or .astype(str)."
        )
    if str(kind) == "object":
        _check_objects(name, values)


def _check_objects(name: Any, values: Iterable[Any]) -> None:
    """Refuse Python objects, also inside of lists and dicts, that Arrow would change."""
    values = list(values)
    types = set(map(type, values)) - {type(None)}
    if len(types) < 2 and types <= _PLAIN:
        return  # as nearly all columns are
    present = [value for value in values if not _is_missing(value)]
    scalars = [value for value in present if isinstance(value, _SCALARS)]
    if len(kinds := value_kinds(scalars)) > 1:
        raise SchemaMismatchError(
            f"column {name!r} mixes {' and '.join(sorted(kinds))}, which no type of Parquet holds "
            "as they are.\nHint: convert it to one type first, for example with .astype(str)."
        )
    if (cut := find_truncated_value(scalars)) is not None:
        raise SchemaMismatchError(
            f"column {name!r} holds {cut!r} as a Python object, whose nanoseconds would be "
            "lost.\nHint: convert it first, for example with pandas.to_datetime or "
            "pandas.to_timedelta."
        )
    lists = [_elements(value) for value in present if isinstance(value, _LISTS)]
    if lists:
        _check_objects(name, chain.from_iterable(lists))
    dicts = [value for value in present if isinstance(value, Mapping)]
    for key in dict.fromkeys(chain.from_iterable(dicts)):
        _check_objects(name, [each[key] for each in dicts if key in each])


def _elements(values: Any) -> Iterable[Any]:
    """The elements of a list; of an array of NumPy's own types one that stands for all."""
    is_typed = isinstance(values, np.ndarray) and values.dtype != object
    elements: Iterable[Any] = values.ravel()[:1] if is_typed else values
    return elements


def _is_missing(value: Any) -> bool:
    """Whether pandas counts a value as missing: None, NaN, NaT or NA."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, (float, Decimal, np.generic)) and bool(value != value)


def _conversion_error(data: Any, error: Exception) -> SchemaMismatchError:
    """Name the column that pyarrow cannot convert."""
    for name, values in data.items():
        try:
            pa.Table.from_pandas(values.to_frame(), preserve_index=False)
        except (pa.ArrowException, TypeError, OverflowError, ValueError) as reason:
            types = sorted({each.__name__ for each in map(type, values.dropna())})[:_MAX_TYPES]
            return SchemaMismatchError(
                f"column {name!r} of the pandas type {values.dtype}, with values of the types "
                f"{types!r}, cannot be converted to Arrow: {_reason(reason)}.\n"
                "Hint: convert it to one type that Parquet has first, for example with "
                ".astype(str), or drop it."
            )
    return SchemaMismatchError(f"the pandas frame cannot be converted to Arrow: {_reason(error)}.")


def _reason(error: Exception) -> str:
    return str(error.args[0] if error.args else error).rstrip(".")
