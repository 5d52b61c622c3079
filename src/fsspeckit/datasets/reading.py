"""Reading a dataset with pyarrow: one consistent state, whoever writes meanwhile."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from fsspeckit.core.incremental.casts import common_type
from fsspeckit.core.incremental.footers import read_footers
from fsspeckit.core.incremental.keys import check_names
from fsspeckit.core.incremental.partitions import (
    detect_partition_columns,
    parse_hive_partition_path,
    typed_values,
)
from fsspeckit.errors import InvalidArgumentError, SchemaMismatchError, UnreadableFileError
from fsspeckit.storage.reading import stable_files

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fsspeckit.storage.reading import StableFiles
    from fsspeckit.storage.store import Storage

__all__ = ["OpenedDataset", "partition_schema", "read_table", "with_dataset"]

T = TypeVar("T")

_ATTEMPTS = 5
_INSTANT = pa.timestamp("us", "UTC")
_SHAPES = (
    (re.compile(r"-?(0|[1-9][0-9]{0,17})"), pa.int64()),
    (re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"), pa.date32()),
    (re.compile(r"true|false"), pa.bool_()),
)


def read_table(
    storage: Storage, columns: Sequence[str] | None = None, filters: Any = None
) -> pa.Table:
    """Read a dataset, or some columns and rows of it.

    Args:
        storage: The dataset.
        columns: The columns to read; None for all.
        filters: As pyarrow takes them: an expression, or lists of tuples.

    Raises:
        FileNotFoundError: If there is no such dataset.
    """
    if columns is not None:
        check_names("columns", columns)
    wanted = None if columns is None else list(columns)
    expression = pq.filters_to_expression(filters) if filters is not None else None

    def read(opened: OpenedDataset) -> pa.Table:
        missing = [name for name in wanted or () if name not in opened.dataset.schema.names]
        if missing:
            raise InvalidArgumentError.missing_columns(
                "columns", missing, opened.dataset.schema.names
            )
        return opened.meant(opened.dataset.to_table(columns=wanted, filter=expression))

    return with_dataset(storage, read)


@dataclass(frozen=True)
class OpenedDataset:
    """The pinned files of a consistent state."""

    dataset: ds.FileSystemDataset
    instants: frozenset[str]
    """Columns stored as INT96."""

    def meant(self, table: pa.Table) -> pa.Table:
        """INT96 columns as the instants in UTC that they are."""
        for number, name in enumerate(table.column_names):
            if name in self.instants:
                values = table.column(name).cast(pa.timestamp("us")).cast(_INSTANT)
                table = table.set_column(number, name, values)
        return table


def with_dataset(storage: Storage, read: Callable[[OpenedDataset], T]) -> T:
    """Read a consistent state; another one if a file is replaced meanwhile.

    Raises:
        FileNotFoundError: If there is no such dataset.
    """
    for attempt in range(_ATTEMPTS):
        state = stable_files(storage)
        if not state.files:
            raise FileNotFoundError(
                f"{storage.root.spelled(storage.root.path)!r} holds no data files."
            )
        try:
            return read(_opened(storage, state))
        except FileNotFoundError:
            # A commit has replaced a file since it was listed.
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def _opened(storage: Storage, state: StableFiles) -> OpenedDataset:
    footers = read_footers(storage.root, [pinned.file for pinned in state.files], None)
    for footer in footers:
        if footer.error is not None:
            raise UnreadableFileError(footer.error)
    relative = [pinned.relative for pinned in state.files]
    detect_partition_columns(relative)
    parts = partition_schema(relative)
    leaves = footers[0].leaves
    instants = frozenset(name for name in leaves if leaves[name].physical == "INT96")
    return OpenedDataset(_dataset(storage, state, parts), instants)


def partition_schema(relative_paths: Sequence[str]) -> pa.Schema:
    """Partition columns with types found from their values: int64, date32, bool, else string."""
    rows = [parse_hive_partition_path(path) for path in relative_paths]
    names = list(rows[0]) if rows else []
    return pa.schema([(name, _shape([row.get(name) for row in rows])) for name in names])


def _shape(texts: Sequence[str | None]) -> pa.DataType:
    known = [text for text in texts if text is not None]
    for pattern, data_type in _SHAPES:
        if known and all(pattern.fullmatch(text) for text in known):
            # A text may look like a date and be none: 2026-02-30.
            return data_type if all(typed_values(known, data_type)[1]) else pa.string()
    return pa.string()


def _dataset(storage: Storage, state: StableFiles, parts: pa.Schema) -> ds.FileSystemDataset:
    """The pinned files as a dataset, each with the values of its path."""
    options = ds.ParquetFileFormat(read_options={"coerce_int96_timestamp_unit": "us"})
    filesystem = pa.fs.PyFileSystem(pa.fs.FSSpecHandler(storage.root.filesystem))
    if storage.root.is_local:
        filesystem = pa.fs.LocalFileSystem()
    fragments = [
        options.make_fragment(
            pinned.file.path, filesystem, partition_expression=_partition(pinned.relative, parts)
        )
        for pinned in state.files
    ]
    stored = _common_schema([(part.path, part.physical_schema) for part in fragments])
    extra = [field for field in parts if field.name not in stored.names]
    schema = pa.schema([*stored, *extra], stored.metadata)
    return ds.FileSystemDataset(fragments, schema, options, filesystem)


def _common_schema(schemas: Sequence[tuple[str, pa.Schema]]) -> pa.Schema:
    """The columns of all files, each of the type that holds the values of every file.

    Raises:
        SchemaMismatchError: If files have types of one column that no type holds.
    """
    (first, schema), *others = schemas
    fields = {field.name: field for field in schema}
    for path, other in others:
        for field in other:
            known = fields.setdefault(field.name, field)
            if known.type.equals(field.type):
                continue
            try:
                fields[field.name] = known.with_type(common_type(known.type, field.type))
            except SchemaMismatchError as error:
                raise SchemaMismatchError(
                    f"column {field.name!r} is {known.type} in {first!r} and {field.type} in "
                    f"{path!r}, and no type holds both.\nHint: rewrite the files that have the "
                    "wrong type."
                ) from error
    return pa.schema(list(fields.values()), schema.metadata)


def _partition(relative: str, parts: pa.Schema) -> ds.Expression:
    texts = parse_hive_partition_path(relative)
    expression = ds.scalar(True)
    for column in parts:
        values, _ = typed_values([texts.get(column.name)], column.type)
        is_this = ds.field(column.name) == values[0]
        expression &= is_this if values[0].is_valid else ds.field(column.name).is_null()
    return expression
