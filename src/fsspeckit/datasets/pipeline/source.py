"""Sources: whatever a caller passes as data, as Arrow batches that can be read more than once.

Data that is in memory already stays there, unless it has to be kept: its owner may change it. A
stream, and data that is to be kept, is read once: into memory while it is small, else into a file
in the staging directory, so that it is never held twice.

Frames of pandas and Polars as Arrow, or a refusal that names the column.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from itertools import chain, pairwise
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
from fsspeckit.core.schema_conform import (
    check_same_columns,
    conform_table,
    resolve_null_type,
    resolve_null_types,
)
from fsspeckit.datasets.pipeline.reading import has_reserved_names, partition_schema, plain_table
from fsspeckit.errors import InvalidArgumentError, SchemaMismatchError, UnreadableFileError
from fsspeckit.storage import (
    arrow_filesystem,
    check_readable,
    list_files,
    naming_failure,
    open_root,
    without_credentials,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from fsspeckit.datasets.engine import OpenStage
    from fsspeckit.storage import Root

__all__ = [
    "ArrowSource",
    "MemorySource",
    "SourcePath",
    "SpilledSource",
    "as_paths",
    "check_unique_names",
    "from_pandas",
    "from_stream",
    "gathered",
    "is_from",
    "located",
    "one_schema",
    "open_source",
    "parquet_dataset",
    "source_root",
]


# --- Frames of pandas and Polars as Arrow, or a refusal that names the column ---

_SCALARS = (str, bytes, bool, Number, date, time, timedelta, np.generic)
_LISTS = (list, tuple, np.ndarray)
_PLAIN = {str, bytes, bool, int, float, Decimal, date}
_SEVERAL = 2
_MOST_TYPES = 5


def is_from(data: Any, library: str) -> bool:
    """Whether data is of a class of a library, or of one that is made from it."""
    return any(each.__module__.startswith(f"{library}.") for each in type(data).__mro__)


def from_pandas(data: Any) -> pa.RecordBatchReader:
    """The rows of a pandas frame, without its index.

    Raises:
        InvalidArgumentError: If it is no frame, or a name occurs twice.
        SchemaMismatchError: If a column cannot become one of Arrow and stay what it is.
    """
    if not hasattr(data, "columns"):
        raise _no_frame(data)
    twice = sorted(name for name, count in Counter(map(str, data.columns)).items() if count > 1)
    if twice:
        raise InvalidArgumentError(f"the source has columns that occur twice: {twice!r}.")
    for name, values in data.items():
        _check_pandas_column(name, values)
    try:
        return pa.Table.from_pandas(data, preserve_index=False).to_reader()
    except (pa.ArrowException, TypeError, OverflowError, ValueError) as error:
        raise _unconverted(data, error) from error


def from_stream(data: Any) -> pa.RecordBatchReader:
    """The rows of a Polars frame, or of anything else with the Arrow C stream.

    Raises:
        InvalidArgumentError: If it has no named columns.
        SchemaMismatchError: If a column of a Polars frame is of a type that Parquet does not have.
    """
    is_polars_frame = is_from(data, "polars") and hasattr(data, "schema")
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
        raise _no_frame(data, error) from error


def _is_known(data: Any) -> bool:
    """Whether Arrow knows the types of a stream."""
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


def _no_frame(data: Any, error: Exception | None = None) -> InvalidArgumentError:
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
    if len(types) < _SEVERAL and types <= _PLAIN:
        return  # as nearly all columns are
    held = [value for value in values if not _is_missing(value)]
    scalars = [value for value in held if isinstance(value, _SCALARS)]
    if len(kinds := value_kinds(scalars)) > 1:
        raise SchemaMismatchError(
            f"column {name!r} mixes {' and '.join(sorted(kinds))}, which no type of Parquet holds "
            "as they are.\nHint: convert it to one type first, for example with .astype(str)."
        )
    if (cut := find_truncated_value(scalars)) is not None:
        raise SchemaMismatchError(
            f"column {name!r} holds {cut!r} as an object of Python, whose nanoseconds would be "
            "lost.\nHint: convert it first, for example with pandas.to_datetime or "
            "pandas.to_timedelta."
        )
    lists = [_elements(value) for value in held if isinstance(value, _LISTS)]
    if lists:
        _check_objects(name, chain.from_iterable(lists))
    dicts = [value for value in held if isinstance(value, Mapping)]
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


def _unconverted(data: Any, error: Exception) -> SchemaMismatchError:
    """Name the column that pyarrow does not take."""
    for name, values in data.items():
        try:
            pa.Table.from_pandas(values.to_frame(), preserve_index=False)
        except (pa.ArrowException, TypeError, OverflowError, ValueError) as reason:
            types = sorted({each.__name__ for each in map(type, values.dropna())})[:_MOST_TYPES]
            return SchemaMismatchError(
                f"column {name!r} of the pandas type {values.dtype}, with values of the types "
                f"{types!r}, cannot be converted to Arrow: {_words(reason)}.\n"
                "Hint: convert it to one type that Parquet has first, for example with "
                ".astype(str), or drop it."
            )
    return SchemaMismatchError(f"the pandas frame cannot be converted to Arrow: {_words(error)}.")


def _words(error: Exception) -> str:
    return str(error.args[0] if error.args else error).rstrip(".")


# --- Sources ---

MEMORY_LIMIT = 128 * 1024 * 1024
"""A stream with more bytes than this goes to disk."""

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)

_ONE_PIECE = 2
_SPILL_ROWS = 65_536
_SPILL_BYTES = 32 * 1024 * 1024
_SPILL_NAME = "source.staged"


class ArrowSource(Protocol):
    """Rows that can be read in order, and picked by number."""

    schema: pa.Schema
    num_rows: int

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Some columns of all rows."""
        ...

    def take(self, rows: NDArray[np.int64]) -> pa.Table:
        """Rows by their numbers, in that order."""
        ...

    def batches(self) -> Iterator[pa.Table]:
        """All rows, in order, in pieces."""
        ...


class MemorySource:
    """Rows in memory."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._pieces: list[pa.Table] = []
        self._starts = _starts([])
        self.schema: pa.Schema = table.schema
        self.num_rows: int = table.num_rows

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Some columns of all rows."""
        return self._table.select(list(names))

    def take(self, rows: NDArray[np.int64]) -> pa.Table:
        """Rows by their numbers, in that order."""
        if not self._pieces:
            self._pieces = _pieces(self._table)
            self._starts = _starts([piece.num_rows for piece in self._pieces])
        return _taken(self._pieces.__getitem__, self._starts, rows, self.schema)

    def batches(self) -> Iterator[pa.Table]:
        """All rows, in one piece."""
        yield self._table


def _pieces(table: pa.Table) -> list[pa.Table]:
    """Tables without chunks: Arrow would put all chunks together whenever rows are taken."""
    if table.nbytes <= MEMORY_LIMIT:
        return [table.combine_chunks()]
    return [pa.Table.from_batches([batch]) for batch in table.to_batches()]


def _starts(sizes: Sequence[int]) -> NDArray[np.int64]:
    """The number of the first row of each piece, and the number after the last row."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _taken(
    piece: Callable[[int], pa.Table],
    starts: NDArray[np.int64],
    rows: NDArray[np.int64],
    schema: pa.Schema,
) -> pa.Table:
    """Rows by their numbers, in that order, from pieces that are asked for one after the other."""
    if len(starts) == _ONE_PIECE:
        return take_rows(piece(0), pa.array(rows))
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    numbers = np.searchsorted(starts, ordered, side="right") - 1
    cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1), len(rows)] if len(rows) else []
    parts = [
        take_rows(piece(numbers[start]), pa.array(ordered[start:end] - starts[numbers[start]]))
        for start, end in pairwise(cuts)
    ]
    found = pa.concat_tables(parts) if parts else pa.Table.from_batches([], schema)
    back = np.empty(len(rows), np.int64)
    back[order] = np.arange(len(rows))
    return take_rows(found, pa.array(back))


class SpilledSource:
    """Rows in a Parquet file of plain pages on a local disk.

    Args:
        path: The file.
        temporary: A directory that is removed with the source.
    """

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
        """Some columns of all rows."""
        wanted = list(names)
        parts = [
            self._file.read_row_group(number, columns=wanted).select(wanted)
            for number in range(self._file.num_row_groups)
        ]
        fields = pa.schema([self.schema.field(name) for name in wanted])
        return pa.concat_tables(parts) if parts else pa.Table.from_batches([], fields)

    def take(self, rows: NDArray[np.int64]) -> pa.Table:
        """Rows by their numbers, in that order."""
        return _taken(self._file.read_row_group, self._starts, rows, self.schema)

    def batches(self) -> Iterator[pa.Table]:
        """All rows, in order, in pieces."""
        for number in range(self._file.num_row_groups):
            yield self._file.read_row_group(number)


def open_source(
    data: Any,
    stage: OpenStage,
    filesystem: Any = None,
    schema: pa.Schema | None = None,
    *,
    keep: bool = False,
) -> ArrowSource:
    """Make a source of whatever was passed as data.

    Args:
        data: A table or batch, a list of them, a reader, a pyarrow dataset or scanner, a pandas or
            Polars frame, anything with the Arrow C stream, or a path or list of paths of Parquet.
        stage: Where a stream that is too large for memory goes.
        filesystem: The filesystem of paths.
        schema: The schema that the caller wants the data to have.
        keep: Whether the source must stay what it is now, whatever its owner does to the data.

    Raises:
        InvalidArgumentError: If the data is of another kind.
        SchemaMismatchError: If the data does not fit the schema.
    """
    table = _table(data)
    if table is not None:
        fitted = table if schema is None else _fitted(table, schema)
        return _kept(fitted, stage) if keep else MemorySource(fitted)
    reader = _reader(data, filesystem)
    _check_schema(reader.schema)
    pieces = (_plain(pa.Table.from_batches([batch])) for batch in reader)
    wanted = schema or _plain(pa.Table.from_batches([], reader.schema)).schema
    fitted = pieces if schema is None else (_fitted(piece, schema) for piece in pieces)
    if keep and not as_paths(data):  # what is read from Parquet is in memory of our own
        fitted = map(copy_table, fitted)
    return _collected(wanted, chain.from_iterable(piece.to_batches() for piece in fitted), stage)


def _kept(table: pa.Table, stage: OpenStage) -> ArrowSource:
    """A table that stays what it is.

    Nobody can tell whether memory is Arrow's own or that of a NumPy array that can be changed, so
    all of it is copied; what is too large to be in memory twice goes to disk.
    """
    if table.nbytes > MEMORY_LIMIT:
        return _spilled(table.schema, table.to_batches(max_chunksize=_SPILL_ROWS), stage)
    return MemorySource(copy_table(table))


def _table(data: Any) -> pa.Table | None:
    """Data that is a table, or some of them, already."""
    given = list(data) if isinstance(data, (list, tuple)) else [data]
    if not given or not all(isinstance(part, (pa.Table, pa.RecordBatch)) for part in given):
        return None
    for part in given:
        _check_schema(part.schema)
    tables = [p if isinstance(p, pa.Table) else pa.Table.from_batches([p]) for p in given]
    _check_alike([(f"table {n}", table.schema) for n, table in enumerate(tables)])
    known = one_schema([table.schema for table in tables])
    return pa.concat_tables([_plain(_as_schema(table, known)) for table in tables])


def _plain(table: pa.Table) -> pa.Table:
    """Rows that can be taken and written: no views, no NULL among the values of a dictionary."""
    table = widen_dictionary_indices(without_views(table))
    if not any(map(pa.types.is_dictionary, table.schema.types)):
        return table
    return pa.table(list(map(_without_null_values, table.columns)), schema=table.schema)


def _without_null_values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column whose dictionaries, if it has some, hold no NULL."""
    kind = column.type
    if not pa.types.is_dictionary(kind) or not any(c.dictionary.null_count for c in column.chunks):
        return column
    again = [chunk.dictionary_decode().dictionary_encode() for chunk in column.chunks]
    return pa.chunked_array([chunk.cast(kind) for chunk in again], kind)


def _check_alike(schemas: Sequence[tuple[str, pa.Schema]]) -> None:
    """Refuse pieces of a source that do not have the same columns and types.

    Raises:
        SchemaMismatchError: Naming two pieces that differ.
    """
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


def one_schema(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The schema of pieces that are alike: NULL is allowed where one of them allows it."""
    known = resolve_null_types(*schemas)
    nullable = {field.name for schema in schemas for field in schema if field.nullable}
    fields = [field.with_nullable(field.name in nullable) for field in known]
    return pa.schema(fields, known.metadata)


def _check_schema(schema: pa.Schema) -> None:
    """Refuse a source that no dataset could hold.

    Raises:
        InvalidArgumentError: If a name occurs twice.
        SchemaMismatchError: If a column is of a type that Parquet does not have.
    """
    check_storable(schema)
    check_unique_names(schema)


def check_unique_names(schema: pa.Schema) -> None:
    """Refuse a source in which a name occurs twice.

    Raises:
        InvalidArgumentError: Naming the columns.
    """
    twice = sorted(name for name, count in Counter(schema.names).items() if count > 1)
    if twice:
        raise InvalidArgumentError(f"the source has columns that occur twice: {twice!r}.")


def _fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    check_same_columns(table.column_names, schema.names, "schema")
    return conform_table(table, schema)


def _reader(data: Any, filesystem: Any) -> pa.RecordBatchReader:
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, (ds.Dataset, ds.Scanner)):
        return (data.scanner() if isinstance(data, ds.Dataset) else data).to_reader()
    if paths := as_paths(data):
        return _parquet_reader(paths, filesystem)
    if is_from(data, "pandas"):
        return from_pandas(data)
    if hasattr(data, "__arrow_c_stream__"):
        return from_stream(data)
    if hasattr(data, "toArrow"):
        return data.toArrow().to_reader()
    if hasattr(data, "collect") and hasattr(data, "lazy"):
        return from_stream(data.collect())
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
        """Where it is."""
        scheme, separator, _ = str(self).partition("://")
        if separator and scheme not in _protocols(self.filesystem):
            return open_root(self.path, None, self.storage_options)
        return open_root(self.path, self.filesystem, self.storage_options)


def _protocols(filesystem: Any) -> tuple[str, ...]:
    """The schemes of URLs that a filesystem reads; one that does not tell reads none."""
    known = getattr(filesystem, "protocol", ())
    return (known,) if isinstance(known, str) else tuple(known)


def located(
    data: Any, filesystem: Any, target: Root, storage_options: Mapping[str, Any] | None
) -> Any:
    """Data that is paths, with how to reach them; other data as it is.

    Options that the caller gave for the target also open sources of the same kind of filesystem.
    """
    return [
        SourcePath(
            path,
            filesystem,
            storage_options if _scheme(path) in _protocols(target.filesystem) else None,
        )
        for path in as_paths(data)
    ] or data


def _scheme(path: Any) -> str:
    scheme, separator, _ = str(os.fspath(path)).partition("://")
    return scheme if separator else "file"


def as_paths(data: Any) -> list[Any]:
    """The paths that data is; none if it is something else."""
    given = list(data) if isinstance(data, (list, tuple)) else [data]
    return given if all(isinstance(p, (str, os.PathLike, SourcePath)) for p in given) else []


def source_root(path: Any, filesystem: Any) -> Root:
    """Where a path of a source is; one that says so itself is not on the engine's filesystem."""
    return path.root() if isinstance(path, SourcePath) else open_root(path, filesystem)


def _parquet_reader(paths: Sequence[Any], filesystem: Any) -> pa.RecordBatchReader:
    """A stream over Parquet files, directories and globs, one after the other."""
    parts = [parquet_dataset(path, filesystem) for path in paths]
    names = [without_credentials(str(path)) for path in paths]
    _check_alike([(name, part.schema) for name, part in zip(names, parts, strict=True)])
    schema = one_schema([part.schema for part in parts])
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
    """The columns of a schema, which knows types where the rows have none."""
    columns = [(rows.column(field.name), field.type) for field in schema]
    cast = [cast_values(values, kind) for values, kind in columns]
    return type(rows).from_arrays(cast, schema=schema)


def parquet_dataset(path: Any, filesystem: Any) -> ds.FileSystemDataset:
    """The Parquet files at a path: one file, a glob, or a directory with its hive partitions.

    INT96 columns are instants in UTC, as in a target.

    Raises:
        FileNotFoundError: If there is none.
        UnsupportedLayoutError: If the rows of a directory are not those of its files.
        OSError: What the filesystem raised, naming the source.
    """
    root = source_root(path, filesystem)
    shown = without_credentials(str(path))
    files = _source_files(root)
    if not files:
        raise FileNotFoundError(f"no Parquet file found at {shown!r}.")
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
        meant = [(part.path, _meant(part.physical_schema, part)) for part in parts]
    except pa.ArrowInvalid as error:
        raise UnreadableFileError(
            f"the source {shown!r} is not readable as Parquet: {error}\n"
            "Hint: a path must be that of Parquet; read other files with a library that knows them."
        ) from error
    _check_alike(meant)
    schema = one_schema([_meant(dataset.schema, parts[0]), *(schema for _, schema in meant)])
    return ds.FileSystemDataset(parts, schema, options, dataset.filesystem)


def _source_files(root: Root) -> list[str]:
    """The files that a path of a source stands for."""
    filesystem, path = root.filesystem, root.path
    with naming_failure(root, path, "opening"):
        if any(char in path for char in "*?[") and not filesystem.exists(path):
            return sorted(filesystem.glob(path))
        if filesystem.isdir(path):
            listing = list_files(root)
            check_readable(listing.obstacles, root)
            return [file.path for file in listing.files]
        if filesystem.exists(path):
            return [path]
        with suppress(FileNotFoundError):
            filesystem.info(path)  # tells, unlike the others, where access is denied
    return []


def _meant(schema: pa.Schema, part: ds.ParquetFileFragment) -> pa.Schema:
    """A schema that begins with the columns of a file, with INT96 as the instants it is."""
    physical = physical_types(part.metadata.schema)
    count = len(part.physical_schema)
    stored = pa.schema([schema.field(n) for n in range(count)])
    rest = [schema.field(n) for n in range(count, len(schema))]
    instants = with_int96_as(stored, physical, pa.timestamp("us", "UTC"))
    return pa.schema([*instants, *rest], schema.metadata)


def _collected(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], stage: OpenStage
) -> ArrowSource:
    """Read a stream once, into memory while it is small."""
    held: list[pa.RecordBatch] = []
    size = 0
    rest = iter(batches)
    for batch in rest:
        held.append(batch)
        size += batch.nbytes
        if size > MEMORY_LIMIT:
            return _spilled(schema, chain(_emptied(held), rest), stage)
    # In one piece: whatever is done to each column is otherwise done to each batch.
    return MemorySource(pa.Table.from_batches(held, schema).combine_chunks())


def _emptied(held: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches one by one, each let go as soon as it is used."""
    held.reverse()
    while held:
        yield held.pop()


def _spilled(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], stage: OpenStage
) -> SpilledSource:
    """Write a stream to disk, as fast to write and to read as Parquet can be."""
    temporary = None
    opened = stage()
    if opened.storage.root.is_local:
        path = f"{opened.path}/{_SPILL_NAME}"
    else:
        temporary = tempfile.mkdtemp(prefix="fsspeckit-")
        path = f"{temporary}/{_SPILL_NAME}"
    plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    with pq.ParquetWriter(path, schema, **plain) as writer:
        for table in gathered(schema, batches, _SPILL_ROWS, _SPILL_BYTES):
            writer.write_table(table, row_group_size=table.num_rows)
    return SpilledSource(path, temporary)


def gathered(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], rows: int, size: int
) -> Iterator[pa.Table]:
    """Batches of any size as tables of so many rows, or fewer if they have so many bytes."""
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
