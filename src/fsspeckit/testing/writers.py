"""Parquet files and hive directories as four real writers make them.

The writers differ in what a reader has to cope with: physical types of decimals and timestamps,
which statistics they keep, how they spell a partition value, what else they leave in a directory.
What a writer cannot express is a `WriterCannotError` before anything is written, so that a test can
skip it with that reason; what it expresses as another type keeps its values (`read_back`).

- pyarrow: decimals as bytes unless asked; INT64 timestamps unless asked; partition values
  percent-encoded.
- duckdb: always statistics; decimals up to 18 digits as integers; partition values percent-encoded.
- polars: no INT96, no bloom filters; decimals up to 18 digits as integers; partition columns also
  inside the files.
- spark: zoned timestamps as INT96 by default; decimals up to 18 digits as integers;
  non-ASCII partition values as they are; leaves ``_SUCCESS`` and ``.crc`` files in a directory.

Libraries are imported when a writer is used. Spark needs a running session.
"""

from __future__ import annotations

import glob
import os
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from fsspeckit.core.arrow_compat import cast_table
from fsspeckit.core.parquet import decode, encode
from fsspeckit.errors import FsspeckitError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

__all__ = [
    "WRITERS",
    "WriteOptions",
    "Writer",
    "WriterCannotError",
    "drop_statistics",
    "partly_without_statistics",
    "read_back",
    "row_counts",
    "write_hive",
]


class WriterCannotError(FsspeckitError, NotImplementedError):
    """A writer has no way to write a type, or lacks an option."""


@dataclass(frozen=True)
class WriteOptions:
    """What to ask of a writer; None leaves it to the writer."""

    row_group_size: int | None = None
    statistics: bool = True
    compression: str = "snappy"
    """One of none, snappy, gzip, zstd."""

    int96: bool | None = None
    """Timestamps as INT96. Spark: only zoned ones, and that is its default."""

    decimal_as_integer: bool | None = None
    """Decimals of up to 18 digits as INT32 and INT64."""

    bloom_columns: tuple[str, ...] = ()
    """DuckDB writes filters for all columns that it can when one is named."""


_DEFAULT = WriteOptions()


@dataclass(frozen=True)
class Writer:
    """One library that writes Parquet, behind the same two calls as the others."""

    name: str
    write_file: Callable[[pa.Table, str, WriteOptions], None]
    write_tree: Callable[[pa.Table, str, Sequence[str], WriteOptions], None]
    cannot: tuple[Callable[[pa.DataType], bool], ...] = ()
    """Tests for types that it refuses or silently turns into something else."""

    fixed: Mapping[str, object] = field(default_factory=dict)
    """Options that it has only one value for."""

    ignores_case: bool = False
    """Whether names of columns that differ by case alone are one name to it."""

    def __call__(self, table: pa.Table, path: str, options: WriteOptions = _DEFAULT) -> None:
        """Write ``table`` to one new file."""
        self.check(table.schema, options)
        self.write_file(table, path, options)

    def check(self, schema: pa.Schema, options: WriteOptions = _DEFAULT) -> None:
        """Raise `WriterCannotError` unless this writer can write such a table in such a way."""
        for column in schema:
            for leaf in _leaves(column.type):
                if any(test(leaf) for test in self.cannot):
                    raise WriterCannotError(f"{self.name} cannot write {leaf} ({column.name!r}).")
        for name, only in self.fixed.items():
            if getattr(options, name) not in (None, only):
                raise WriterCannotError(f"{self.name} cannot write with {name} other than {only}.")
        twice = [name for name, n in Counter(map(str.casefold, schema.names)).items() if n > 1]
        if twice and self.ignores_case:
            raise WriterCannotError(f"{self.name} cannot tell columns apart by case: {twice}.")


def write_hive(
    writer: Writer,
    table: pa.Table,
    directory: str,
    partition_columns: Sequence[str],
    options: WriteOptions = _DEFAULT,
) -> None:
    """Let ``writer`` lay out ``table`` below a new directory in its own way."""
    writer.check(table.schema, options)
    writer.write_tree(table, directory, partition_columns, options)


def _leaves(type_: pa.DataType) -> Iterable[pa.DataType]:
    if pa.types.is_dictionary(type_):
        yield from _leaves(type_.value_type)
    elif type_.num_fields:
        for number in range(type_.num_fields):
            yield from _leaves(type_.field(number).type)
    else:
        yield type_


def _pyarrow_options(options: WriteOptions) -> dict[str, Any]:
    return {
        "write_statistics": options.statistics,
        "compression": options.compression,
        "use_deprecated_int96_timestamps": bool(options.int96),
        "store_decimal_as_integer": bool(options.decimal_as_integer),
        "bloom_filter_options": {name: {"ndv": 1024} for name in options.bloom_columns} or None,
    }


def _pyarrow_file(table: pa.Table, path: str, options: WriteOptions) -> None:
    pq.write_table(table, path, options.row_group_size, **_pyarrow_options(options))


def _pyarrow_tree(
    table: pa.Table, directory: str, partition_columns: Sequence[str], options: WriteOptions
) -> None:
    columns = pa.schema([table.schema.field(name) for name in partition_columns])
    parquet = pads.ParquetFileFormat()
    size = {"max_rows_per_group": options.row_group_size} if options.row_group_size else {}
    pads.write_dataset(
        table,
        directory,
        format=parquet,
        file_options=parquet.make_write_options(**_pyarrow_options(options)),
        partitioning=pads.partitioning(columns, flavor="hive"),
        **size,
    )


def _duckdb_options(table: pa.Table, options: WriteOptions) -> list[str]:
    codec = "uncompressed" if options.compression == "none" else options.compression
    asked = ["FORMAT parquet", f"COMPRESSION {codec}"]
    if options.row_group_size:
        asked.append(f"ROW_GROUP_SIZE {options.row_group_size}")
    if options.int96:
        asked.append("WRITE_TIMESTAMP_AS_INT96 true")
    if options.bloom_columns:
        # A filter comes with the dictionary, and that is given up when it grows too large.
        asked.append(f"DICTIONARY_SIZE_LIMIT {max(len(table), 1)}")
    return asked


def _duckdb_copy(table: pa.Table, path: str, options: list[str], batch: int | None) -> None:
    import duckdb

    # Row groups end only where a batch does, and those of DuckDB itself have 2,048 rows.
    batches = table.combine_chunks().to_batches(max_chunksize=batch)
    source = pa.Table.from_batches(batches, table.schema)
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("source", source)
        quoted = path.replace("'", "''")
        connection.execute(f"COPY (FROM source) TO '{quoted}' ({', '.join(options)})")


def _duckdb_file(table: pa.Table, path: str, options: WriteOptions) -> None:
    _duckdb_copy(table, path, _duckdb_options(table, options), options.row_group_size)


def _duckdb_tree(
    table: pa.Table, directory: str, partition_columns: Sequence[str], options: WriteOptions
) -> None:
    names = ", ".join('"' + name.replace('"', '""') + '"' for name in partition_columns)
    asked = [*_duckdb_options(table, options), f"PARTITION_BY ({names})"]
    _duckdb_copy(table, directory, asked, options.row_group_size)


def _polars_options(options: WriteOptions) -> dict[str, Any]:
    return {
        "compression": "uncompressed" if options.compression == "none" else options.compression,
        "statistics": options.statistics,
        "row_group_size": options.row_group_size,
    }


def _polars_file(table: pa.Table, path: str, options: WriteOptions) -> None:
    import polars

    polars.DataFrame(table).write_parquet(path, **_polars_options(options))


def _polars_tree(
    table: pa.Table, directory: str, partition_columns: Sequence[str], options: WriteOptions
) -> None:
    import polars

    polars.DataFrame(table).write_parquet(
        directory, partition_by=list(partition_columns), mkdir=True, **_polars_options(options)
    )


def _spark_options(options: WriteOptions) -> dict[str, str]:
    timestamps = "INT96" if options.int96 in (None, True) else "TIMESTAMP_MICROS"
    legacy = options.decimal_as_integer is False
    asked = {
        "compression": options.compression,
        "parquet.column.statistics.enabled": str(options.statistics).lower(),
        "spark.sql.parquet.outputTimestampType": timestamps,
        "spark.sql.parquet.writeLegacyFormat": str(legacy).lower(),
        **{f"parquet.bloom.filter.enabled#{name}": "true" for name in options.bloom_columns},
        "parquet.bloom.filter.expected.ndv": "1024",
    }
    if options.row_group_size:
        asked["parquet.block.row.count.limit"] = str(options.row_group_size)
    return asked


def _spark_tree(
    table: pa.Table, directory: str, partition_columns: Sequence[str], options: WriteOptions
) -> None:
    from pyspark.sql import SparkSession

    # By a file, because `createDataFrame` cuts, re-zones or refuses types that the reader takes.
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "source.parquet")
        pq.write_table(table, path, store_schema=False)
        rows = SparkSession.active().read.parquet(path).coalesce(1)
        writer = rows.write.options(**_spark_options(options))
        writer.partitionBy(*partition_columns).parquet(directory)


def _spark_file(table: pa.Table, path: str, options: WriteOptions) -> None:
    # Beside the file, so that moving it is a rename.
    with tempfile.TemporaryDirectory(dir=os.path.dirname(path)) as folder:
        tree = os.path.join(folder, "tree")
        _spark_tree(table, tree, [], options)
        (part,) = glob.glob(os.path.join(glob.escape(tree), "*.parquet"))
        os.replace(part, path)


def _is_nanoseconds(type_: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(type_) and type_.unit == "ns")


_WIDE = (pa.types.is_decimal256, pa.types.is_duration)

WRITERS: dict[str, Writer] = {
    writer.name: writer
    for writer in (
        Writer("pyarrow", _pyarrow_file, _pyarrow_tree),
        Writer(
            "duckdb",
            _duckdb_file,
            _duckdb_tree,
            cannot=(*_WIDE, pa.types.is_float16),
            fixed={"statistics": True, "decimal_as_integer": True},
            ignores_case=True,
        ),
        Writer(
            "polars",
            _polars_file,
            _polars_tree,
            cannot=(pa.types.is_decimal256,),
            fixed={"int96": False, "decimal_as_integer": True, "bloom_columns": ()},
        ),
        Writer(
            "spark",
            _spark_file,
            _spark_tree,
            cannot=(
                *_WIDE,
                pa.types.is_float16,
                pa.types.is_time,
                pa.types.is_null,
                _is_nanoseconds,
            ),
            ignores_case=True,
        ),
    )
}
"""The writers by name."""


def read_back(path: str, schema: pa.Schema) -> pa.Table:
    """Read one file with pyarrow, as the types that were written."""
    # The default unit turns dates outside the range of nanoseconds into others without an error.
    unit = "ns" if any(_is_nanoseconds(column.type) for column in schema) else "us"
    with pq.ParquetFile(path, coerce_int96_timestamp_unit=unit) as file:
        return cast_table(file.read().select(schema.names), schema)


def row_counts(rows: pa.Table | Iterable[Mapping[str, Any]]) -> Counter[str]:
    """Count equal rows, to compare rows in any order: bits matter, but NaN = NaN."""
    listed = rows.to_pylist() if isinstance(rows, pa.Table) else rows
    return Counter(repr(sorted(row.items())) for row in listed)


def partly_without_statistics(
    table: pa.Table,
    path: str,
    row_groups: Collection[int],
    *,
    writer: Writer | None = None,
    options: WriteOptions = _DEFAULT,
) -> None:
    """Write a file in which ``row_groups`` have no statistics and the others do."""
    (writer or WRITERS["pyarrow"])(table, path, options)
    drop_statistics(path, row_groups)


def drop_statistics(path: str, row_groups: Collection[int]) -> None:
    """Take the statistics of some row groups out of the footer of a file, whoever wrote it.

    No writer makes such a file by an option, but appending tools do. Data pages stay as they are,
    and so does a page index.
    """
    with open(path, "r+b") as file:
        data = file.read()
        start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        footer, _ = decode(data[start:-8], {4: [{1: [{3: {}}]}]})
        for number in row_groups:
            for chunk in footer.values[4][number].values[1]:
                chunk.values[3].kinds.pop(12, None)
        encoded = encode(footer)
        file.seek(start)
        file.truncate()
        file.write(encoded + len(encoded).to_bytes(4, "little") + b"PAR1")
