"""Reading a dataset into a data frame of Spark: a consistent state, its files pinned."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from fsspeckit.core.arrow_compat import cast_table
from fsspeckit.core.keys import as_names, check_names
from fsspeckit.datasets.pipeline import as_filters, with_dataset
from fsspeckit.datasets.spark.session import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame

    from fsspeckit.datasets.pipeline import OpenedDataset, RowFilter
    from fsspeckit.datasets.spark.session import Jobs
    from fsspeckit.storage import FileSelection, Storage

__all__ = ["known_to_spark", "read_frame"]


def read_frame(
    jobs: Jobs,
    storage: Storage,
    columns: str | Sequence[str] | None = None,
    filters: Any = None,
    selection: FileSelection | None = None,
    commit: int | None = None,
) -> DataFrame:
    """Return a data frame of a dataset, or of some files, columns and rows of it.

    The files are read by Arrow in the workers, through fsspec: credentials and row values are
    those of a merge, and the filesystem need not be known to Java.

    Raises:
        FileNotFoundError: If there is no such dataset.
        InvalidArgumentError: If it has no such columns, or filters do not fit them.
    """
    names = None if columns is None else as_names(columns)
    if names is not None:
        check_names("columns", names)
    given = as_filters(filters)

    def read(opened: OpenedDataset) -> DataFrame:
        rows = opened.filtered(given)
        opened.check_columns(names or ())
        schema = opened.schema
        wanted = schema if names is None else pa.schema([schema.field(name) for name in names])
        frame = from_arrow_schema(pa.schema([known_to_spark(field) for field in wanted]))
        numbers = range(len(opened.dataset.files))
        work = [n for n in numbers if rows is None or rows.has_rows(n)]
        pinned = replace(opened, footers=(), texts=())
        task = _ReadFiles(pinned, tuple(wanted.names), rows, arrow_schema(frame))
        return jobs.map_items_to_rows(task, work, frame)

    return with_dataset(storage, read, selection, commit)


@dataclass(frozen=True)
class _ReadFiles:
    """Reads files of a dataset, in a worker."""

    opened: OpenedDataset
    columns: tuple[str, ...]
    rows: RowFilter | None
    frame: pa.Schema

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one file."""
        for batch in self.opened.batches(number, self.columns, self.rows):
            table = pa.Table.from_batches([batch])
            yield from cast_table(table, self.frame).combine_chunks().to_batches()


def known_to_spark(field: pa.Field) -> pa.Field:
    """Return a column with the nearest type that Spark has and that holds its values."""
    return pa.field(field.name, _nearest(field.type), field.nullable)


def _nearest(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return _nearest(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _nearest(kind.value_type)
    if pa.types.is_struct(kind):
        return pa.struct([known_to_spark(kind.field(n)) for n in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(_nearest(kind.key_type), known_to_spark(kind.item_field))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(known_to_spark(kind.value_field))
    return _nearest_plain(kind)


def _nearest_plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz and "UTC")
    if pa.types.is_decimal(kind):
        return pa.decimal128(min(kind.precision, 38), kind.scale)
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    return _NEAREST.get(str(kind), kind)


_NEAREST: dict[str, pa.DataType] = {
    "uint8": pa.int16(),
    "uint16": pa.int32(),
    "uint32": pa.int64(),
    "uint64": pa.decimal128(20, 0),
    "halffloat": pa.float32(),
    "date64[ms]": pa.date32(),
    "large_string": pa.string(),
    "string_view": pa.string(),
    "large_binary": pa.binary(),
    "binary_view": pa.binary(),
}
