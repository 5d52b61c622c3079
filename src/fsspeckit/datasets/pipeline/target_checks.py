"""The target of a merge or write: read completely, checked, and ready to take new files."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from fsspeckit.core.arrow_compat import open_data_file
from fsspeckit.core.changes import START
from fsspeckit.core.keys import check_columns, family, key_column, plain_type
from fsspeckit.core.parquet import WriterProperties, properties_of_new_files
from fsspeckit.core.planning import (
    PartitionDirectories,
    check_partition_value,
    read_footers,
    read_target,
)
from fsspeckit.core.rewrite import NewFiles, evolved_properties, read_file_properties
from fsspeckit.core.schema_changes import plan_for_source
from fsspeckit.core.schema_conform import check_same_columns, conform_table, resolve_null_types
from fsspeckit.errors import (
    ConcurrentModificationError,
    InvalidArgumentError,
    SchemaMismatchError,
    UnreadableFileError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fsspeckit.core.keys import KeyColumn
    from fsspeckit.core.planning import FileFooter, FooterReader, Target
    from fsspeckit.core.rewrite import RowRules
    from fsspeckit.core.schema_changes import Evolution, SchemaChanges
    from fsspeckit.datasets.engine import OpenStage
    from fsspeckit.datasets.pipeline.options import FileOptions
    from fsspeckit.storage import DataFile, Root, Snapshot, Storage

_MAX_WRITING_SECONDS = 60.0
"""A file without a footer that is older than this is broken, not still being written."""

_MAX_WAIT_SECONDS = 10.0
"""How long to wait for a file that somebody else may still be writing, if the lock timeout of the
storage is not shorter."""

_POLL_SECONDS = 0.25


def read_checked_target(
    storage: Storage,
    snapshot: Snapshot,
    key_columns: Sequence[str],
    schema: pa.Schema,
    partition_columns: Sequence[str] | None,
    read: FooterReader = read_footers,
    *,
    strict: bool = True,
) -> Target:
    """Read the target of a write, which must be readable to the last file.

    If not ``strict``, to plan only: what cannot be read or understood stays in it as unknown.

    Raises:
        UnreadableFileError: If a file is not Parquet.
        ConcurrentModificationError: If a file is still being written by somebody.
        SchemaMismatchError: If paths and files contradict each other.
    """
    read = partial(check_footers, storage, read) if strict else read
    files = snapshot.listing.files
    target = read_target(storage.root, files, key_columns, schema, partition_columns, read)
    if strict:
        _check_partition_values(target, schema)
    return target


def check_footers(
    storage: Storage,
    read: FooterReader,
    root: Root,
    files: Sequence[DataFile],
    columns: Iterable[str] | None,
) -> list[FileFooter]:
    """Read footers, all of which must be readable; wait for one that is still being written.

    Raises:
        UnreadableFileError: If a file is not Parquet.
        ConcurrentModificationError: If a file is still being written by somebody.
    """
    deadline = time.monotonic() + min(_MAX_WAIT_SECONDS, storage.lock_timeout)
    while True:
        footers = read(root, files, columns)
        broken = [footer for footer in footers if footer.error is not None]
        if not broken:
            return footers
        _raise_broken(broken, time.monotonic() > deadline)
        time.sleep(_POLL_SECONDS)


def _raise_broken(broken: Sequence[FileFooter], is_out_of_time: bool) -> None:
    """Raise, unless a footer that is missing may still be written."""
    for footer in broken:
        changed = (footer.file.mtime_ns or 0) / 1e9
        if time.time() - changed > _MAX_WRITING_SECONDS:
            raise UnreadableFileError(
                f"{footer.error}\nHint: restore the file, or move it out of the dataset if it is "
                "not data; a merge cannot rewrite what it cannot read."
            )
    if is_out_of_time:
        raise ConcurrentModificationError(
            f"{broken[0].error}\nIt is less than a minute old, so somebody may still be writing "
            "it. Nothing was changed.\nHint: repeat the call when the other writer is done."
        )


def _check_partition_values(target: Target, schema: pa.Schema) -> None:
    """Check that every partition value is of its type, and that files agree with their paths.

    A column that the schema does not name has no type, and no part in what is done.
    """
    for part in target.partition_columns:
        if part.name not in schema.names:
            continue
        values = target.partitions[part.name]
        for number, footer in enumerate(target.footers):
            text = target.partition_texts[number].get(part.name)
            value = values.values[number] if values.known[number] else None
            check_partition_value(target.root, footer, part, text, value)


def check_deciding_columns(source: pa.Schema, rules: RowRules) -> None:
    """Refuse a source without the columns that decide about rows, or with other types."""
    if (marks := rules.delete_when) is not None:
        check_columns("delete_when", [marks], source.names)
        kind = plain_type(source.field(marks).type)
        if not pa.types.is_boolean(kind):
            raise InvalidArgumentError(
                f"the delete_when column {marks!r} must be boolean, but is of type {kind}.\n"
                "Hint: compute a boolean column, for example op = 'd'.",
                argument="delete_when",
            )
    if (guard := rules.only_newer) is not None:
        check_columns("only_newer", [guard], source.names)
        kind = plain_type(source.field(guard).type)
        if family(kind) is None:
            raise InvalidArgumentError(
                f"only_newer {guard!r} of type {kind} has no order.\n"
                "Hint: compare numbers, strings, binaries, booleans, dates, times or timestamps.",
                argument="only_newer",
            )


def check_rules(target: Target, rules: RowRules, guard_argument: str = "only_newer") -> None:
    """Refuse a column that decides about rows, if the files of the target do not allow it.

    ``guard_argument`` is what the caller calls the column that says which row is newer.
    """
    parts = [part.name for part in target.partition_columns]
    marks, guard = rules.delete_when, rules.only_newer
    if marks is not None and marks in (*parts, *target.types.names):
        raise InvalidArgumentError(
            f"delete_when {marks!r} is a column of the target, and would no longer be stored.\n"
            "Hint: rename the column of the source that marks deletions.",
            argument="delete_when",
        )
    # New files do not store partition columns, so the next merge could not compare them.
    is_missing = not target.footers and guard in parts
    if guard is not None and (
        is_missing or any(f.error is None and guard not in f.schema.names for f in target.footers)
    ):
        if START in target.types.names:
            raise SchemaMismatchError(
                f"{target.root.display_path!r} has a column {START!r} and no {guard!r}: it keeps "
                "versions.\nHint: pass stored_as_scd_type=2 to apply_changes, or another path."
            )
        where = "only in paths" if guard in parts else "not at all"
        raise InvalidArgumentError(
            f"{guard_argument} {guard!r} must be stored in the files of the target, and is "
            f"{where}.\nHint: name a column that every row of the target has, and that is not a "
            "partition column.",
            argument=guard_argument,
        )


def plan_schema_changes(
    source: pa.Schema, target: Target, changes: SchemaChanges
) -> Evolution | None:
    """Return what a source changes about the columns of the target; None if it may, or does, not.

    Raises:
        SchemaMismatchError: If the source lacks columns, or has types that cannot be converted.
    """
    if changes == "refuse" or not target.schemas:
        return None
    parts = [part.name for part in target.partition_columns]
    if parts:
        check_columns("partition_columns", parts, source.names)
    stored = pa.schema([field for field in source if field.name not in parts])
    evolution = plan_for_source(target.schemas, stored, changes, parts)
    if evolution is not None:
        wanted = pa.schema([field for field in evolution.schema if field.name not in parts])
        # One chunk without rows, so that types are compared.
        empty = [pa.array([], field.type) for field in stored]
        conform_table(pa.table(empty, schema=stored), wanted)
    return evolution


def evolved_target(target: Target, evolution: Evolution) -> Target:
    """Return the target as rows of a source see it once its columns have changed."""
    wanted, before = evolution.schema, target.types

    def evolved(column: KeyColumn) -> KeyColumn:
        is_stored = column.name in wanted.names and column.name not in evolution.partitions
        if not is_stored or wanted.field(column.name).type.equals(before.field(column.name).type):
            return column
        return key_column(column.name, wanted.field(column.name).type)

    keys = tuple(map(evolved, target.key_columns))
    return replace(target, key_columns=keys, types=wanted, evolution=evolution)


def check_fits(source: pa.Schema, target: Target) -> None:
    """Refuse a source that lacks the target's columns, or has types that cannot be converted."""
    parts = [part.name for part in target.partition_columns]
    if parts:
        check_columns("partition_columns", parts, source.names)
    distinct = {id(f.schema): f for f in target.footers if f.error is None}
    for footer in distinct.values():
        schema = footer.schema
        names = [*schema.names, *(name for name in parts if name not in schema.names)]
        _check_same_in_every_file(target, footer, names)
        check_same_columns(source.names, names)
        stored = pa.schema([field for field in schema if field.name not in parts])
        conform_table(pa.Table.from_batches([], source), resolve_null_types(stored, target.types))


def _check_same_in_every_file(target: Target, footer: FileFooter, names: Sequence[str]) -> None:
    first = next(f for f in target.footers if f.error is None)
    parts = [part.name for part in target.partition_columns]
    expected = {*first.schema.names, *parts}
    if set(names) != expected:
        odd = sorted(set(names) ^ expected)
        raise SchemaMismatchError(
            f"the files of the target do not have the same columns: {odd!r} is only in one of "
            f"{target.root.to_user_path(first.file.path)!r} and "
            f"{target.root.to_user_path(footer.file.path)!r}.\n"
            "Hint: call evolve(), which adds missing columns to every file."
        )


def stored_columns(
    target: Target, footers: Sequence[FileFooter], source_names: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Return the source columns that each file stores, by path.

    A partition column is stored only in a file that has it already.
    """
    parts = {part.name for part in target.partition_columns}
    stored = {footer.file.path: set(footer.schema.names) for footer in footers}
    return {
        path: tuple(name for name in source_names if name in names or name not in parts)
        for path, names in stored.items()
    }


def new_files(
    storage: Storage,
    stage: OpenStage,
    target: Target,
    source: pa.Schema,
    options: FileOptions,
    delete_when: str | None = None,
    *,
    moves: bool = False,
) -> NewFiles:
    """Open a writer of new files that look like those of the target.

    ``source`` has the columns of the dataset, ``delete_when`` is one of the rows beside them. If it
    ``moves``, the partition columns of the target are not those that its files have now.
    """
    _check_blooms(options.bloom_columns, target, source)
    if target.partition_columns:
        names = [part.name for part in target.partition_columns]
        check_columns("partition_columns", names, source.names)
    root = storage.root
    parts = pa.schema([(part.name, part.type) for part in target.partition_columns])
    footers = () if moves else target.footers
    directories = {root.relative(f.file.path).rpartition("/")[0] for f in footers}
    like = _example_layout(root, target)
    stored = pa.schema([field for field in source if field.name not in parts.names])
    if moves and like is not None:
        known = set(like.schema.names)
        like = like.with_columns([(f, f.name if f.name in known else None) for f in stored])
        like = replace(like, schema=like.schema.remove_metadata())
    if not stored.names:
        raise InvalidArgumentError(
            f"partition_columns names every column, {parts.names!r}: files would hold nothing.\n"
            "Hint: leave at least one column out.",
            argument="partition_columns",
        )
    blooms = dict.fromkeys(options.bloom_columns, options.row_group_size)
    return NewFiles(
        root,
        stage,
        properties_of_new_files(like, stored, options.compression, blooms),
        parts,
        PartitionDirectories(parts, directories if parts.names else ()),
        options.limits,
        options.basename_template,
        target.other_types() if target.evolution is None else {},
        delete_when,
    )


def _check_blooms(names: Sequence[str], target: Target, source: pa.Schema) -> None:
    """Refuse columns that cannot have a bloom filter."""
    if not names:
        return
    check_columns("bloom_columns", names, source.names)
    parts = [part.name for part in target.partition_columns]
    for name in names:
        kind = plain_type(source.field(name).type)
        if name in parts or pa.types.is_nested(kind) or pa.types.is_boolean(kind):
            what = "is not stored in files" if name in parts else f"is of type {kind}"
            raise InvalidArgumentError(
                f"bloom_columns {name!r} cannot have a bloom filter: it {what}.\n"
                "Hint: bloom filters are for numbers, strings, binaries, dates and timestamps.",
                argument="bloom_columns",
            )


def _example_layout(root: Root, target: Target) -> WriterProperties | None:
    """How the first file of the target was written, with types where it has only NULL.

    Its footer says all that new files take over, so none of its pages is read.
    """
    for footer in target.footers:
        with open_data_file(root, footer.file.path, known=footer.file) as file:
            path = footer.file.path
            layout = read_file_properties(root, path, file, reads_pages=False)
            if target.evolution is not None:
                columns = target.evolution.columns_of(layout.meaning())
                layout = evolved_properties(layout, columns)
            return layout.with_types(resolve_null_types(layout.schema, target.types))
    return None
