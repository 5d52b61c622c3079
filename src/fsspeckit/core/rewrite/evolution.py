"""Rewrites one data file so that it has other columns.

Columns that stay are copied as bytes. A new column is NULL in every row; one that gets another type
is decoded and encoded by itself. A file that cannot be spliced is rewritten as a whole.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fsspeckit.core.arrow_compat import cast_table, cast_values, naming_damage, open_data_file
from fsspeckit.core.keys import are_comparable, cast_exactly, plain_type
from fsspeckit.core.parquet import (
    CannotSpliceError,
    ColumnSplice,
    EncodedChunk,
    NewColumn,
    Splicer,
    check_chunks,
    check_spliced,
    open_sink,
    updated_key_values,
)
from fsspeckit.core.rewrite.diff import Replacement, Rewritten
from fsspeckit.core.rewrite.rewriter import (
    PageCount,
    checked_bytes,
    open_file,
    open_writer,
    read_file_properties,
    try_open_spliceable,
)
from fsspeckit.errors import SchemaMismatchError
from fsspeckit.storage import on_local_disk

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow.parquet as pq

    from fsspeckit.core.parquet import WriterProperties
    from fsspeckit.core.rewrite.rewriter import Spliceable
    from fsspeckit.core.schema_changes import Evolution, FileColumn
    from fsspeckit.storage import Root

_NOTHING = Replacement(np.empty(0, np.int64), np.empty(0, np.int64))


def evolve_file(root: Root, path: str, evolution: Evolution, destination: str) -> Rewritten:
    """Write a file with the columns of an evolution, and the same rows.

    Nothing is written if it has them already.

    Args:
        root: The root of the dataset, and of the destination.
        path: The file.
        evolution: The columns that all files get.
        destination: The path of the new file.

    Raises:
        SchemaMismatchError: If a value does not fit its new type, or is NULL where none may be.
        UnreadableFileError: If the footer is damaged.
        ConcurrentModificationError: If somebody changes the file meanwhile.
    """
    with on_local_disk(root, [path], destination) as disk:
        done = _evolve_on_disk(disk.root, disk.paths[0], evolution, disk.destination)
        if done.is_new and not root.is_local:
            done = replace(done, bytes=checked_bytes(disk, done.rows))
    return done


def _evolve_on_disk(root: Root, path: str, evolution: Evolution, destination: str) -> Rewritten:
    with try_open_spliceable(root, path) as source:
        with open_data_file(root, path) as file:
            properties = read_file_properties(root, path, file)
            rows, stored = file.metadata.num_rows, properties.meaning()
            if not evolution.is_needed(stored):
                return Rewritten(rows, 0, 0)
            columns = evolution.columns_of(stored)
            try:
                if isinstance(source, CannotSpliceError):
                    raise source
                return _Splice(source, path, file, properties, columns).write(destination)
            except CannotSpliceError as error:
                # Whatever was begun is overwritten.
                reason = f"cannot be spliced: {error}"
        return _rewrite_all(root, path, columns, destination, reason)


class _Splice:
    """Writes one file from the chunks of the old one, and new ones."""

    def __init__(
        self,
        source: Spliceable,
        path: str,
        file: pq.ParquetFile,
        properties: WriterProperties,
        columns: Sequence[FileColumn],
    ) -> None:
        self._source = source
        self._path = path
        self._file = file
        if [column.name for column in source.columns] != properties.schema.names:
            raise CannotSpliceError("pyarrow finds other columns than the footer names")
        check_chunks(source.layout, source.original.read)
        wanted = [NewColumn(one.field, one.old, one.is_encoded) for one in columns]
        if any(one.is_encoded and one.old in properties.int96 for one in wanted):
            raise CannotSpliceError("INT96 timestamps are not encoded again")
        self._columns = ColumnSplice(source.layout, source.columns, properties, wanted)

    def write(self, destination: str) -> Rewritten:
        """Write the new file.

        Raises:
            CannotSpliceError: If that fails; the new file must not be used.
        """
        source, columns = self._source, self._columns
        original, layout = source.original, source.layout
        encoded, encoded_pages, copied_pages = 0, PageCount(), PageCount()
        with open_sink(source.root, destination) as sink:
            splicer = Splicer(original, layout, sink, shape=columns.shape)
            for number, group in enumerate(layout.groups):
                chunks = columns.chunks(group, self._values(number), original.read)
                splicer.reshape(group, chunks, columns.leaves)
                made = [chunk for chunk in chunks if isinstance(chunk, EncodedChunk)]
                encoded += sum(len(chunk.pages) for chunk in made)
                encoded_pages.add(chunk.chunk for chunk in made)
                copied_pages.add(chunk for chunk in chunks if not isinstance(chunk, EncodedChunk))
            splicer.finish()
        original.check_unchanged()
        rows = [group.rows for group in layout.groups]
        check_spliced(source.root, destination, columns.shape, rows, splicer.indexes)
        new = [column for column in columns.wanted if column.is_encoded]
        return Rewritten(
            splicer.rows,
            0,
            len(layout.groups) if new else 0,
            method="column splice",
            reason=f"{len(new)} of {len(columns.wanted)} columns are encoded",
            copied_row_groups=0 if new else len(layout.groups),
            encoded_bytes=encoded,
            copied_bytes=splicer.copied_bytes,
            encoded_columns=len(new),
            copied_columns=len(columns.wanted) - len(new),
            encoded_pages=encoded_pages.total,
            copied_pages=copied_pages.total,
            encoded_group_numbers=tuple(range(len(layout.groups))) if new else (),
            column_names=tuple(column.field.name for column in new),
        )

    def _values(self, number: int) -> dict[str, pa.ChunkedArray]:
        """The values of columns that are encoded, of one row group."""
        wanted = [c for c in self._columns.wanted if c.is_encoded and c.old is not None]
        if not wanted:
            return {}
        names = [column.old for column in wanted]
        root = self._source.root
        with naming_damage(root, self._path):
            # pyarrow also reads a column called "id.x" for "id": a dot is a path to it.
            table = self._file.read_row_group(number, columns=names, use_threads=False)
        where = root.to_user_path(self._path)
        return {
            column.field.name: converted(table.column(name), column.field, where)
            for name, column in zip(names, wanted, strict=True)
        }


def _rewrite_all(
    root: Root, path: str, columns: Sequence[FileColumn], destination: str, reason: str
) -> Rewritten:
    """Rewrite the whole file, row group by row group."""
    with open_file(root, path, _NOTHING, lambda rows: pa.table({}), ()) as (file, old):
        new = evolved_properties(old, columns)
        wanted = [NewColumn(one.field, one.old, one.is_encoded) for one in columns]
        known: dict[bytes, bytes | None] = {**old.key_values}
        key_values = updated_key_values(known, wanted)
        schema_values = updated_key_values(dict(new.schema.metadata or {}), wanted)
        schema = new.schema.with_metadata({k: v for k, v in schema_values.items() if v is not None})
        kept = {key: value for key, value in key_values.items() if value is not None}
        new = replace(new, schema=schema, key_values=kept)
        where = root.to_user_path(path)
        with open_writer(root, destination, new) as writer:
            for number in range(file.num_row_groups):
                with naming_damage(root, path):
                    table = cast_table(file.read_row_group(number), old.schema)
                made = [
                    pa.chunked_array([pa.nulls(table.num_rows, field.type)])
                    if column.old is None
                    else converted(table.column(column.old), field, where)
                    for column, field in zip(columns, new.schema, strict=True)
                ]
                rows = pa.table(made, schema=new.schema)
                writer.write_table(rows, row_group_size=max(rows.num_rows, 1))
        total = file.metadata.num_rows
        return Rewritten(total, 0, file.num_row_groups, method="full", reason=reason)


def evolved_properties(old: WriterProperties, columns: Sequence[FileColumn]) -> WriterProperties:
    """Return the properties of a file after its columns have changed."""
    return old.with_columns([(column.field, column.old) for column in columns])


def converted(values: pa.ChunkedArray, field: pa.Field, where: str) -> pa.ChunkedArray:
    """Return values as the type of a field.

    Raises:
        SchemaMismatchError: If one does not fit, or is NULL where none may be.
    """
    if not field.nullable and values.null_count:
        raise SchemaMismatchError(
            f"column {field.name!r} cannot be made required: {where!r} has {values.null_count:,} "
            "rows in which it is NULL.\nHint: fill them by a merge first."
        )
    try:
        if are_comparable(values.type, field.type):
            exact = [cast_exactly(one, plain_type(field.type), field.name) for one in values.chunks]
            values = pa.chunked_array(exact, plain_type(field.type))
        return cast_values(values, field.type)
    except (pa.ArrowException, SchemaMismatchError) as error:
        raise SchemaMismatchError(
            f"column {field.name!r} has values in {where!r} that do not fit {field.type}: "
            f"{str(error).partition(chr(10))[0].rstrip('.')}. Nothing was changed.\n"
            "Hint: choose a type that holds them."
        ) from error
