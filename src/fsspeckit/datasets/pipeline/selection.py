"""The target of a call that selects rows itself, by a condition or as duplicates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fsspeckit.core.conditions import Condition
from fsspeckit.core.keys import are_comparable, check_columns, common_type, family
from fsspeckit.core.matching import DuplicateRules
from fsspeckit.datasets.pipeline.reading import partition_schema
from fsspeckit.datasets.pipeline.target_checks import read_checked_target
from fsspeckit.errors import InvalidArgumentError, SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fsspeckit.core.planning import FileFooter, FooterReader, Target
    from fsspeckit.datasets.pipeline.options import DuplicateOptions
    from fsspeckit.storage import DataFile, Root, Snapshot, Storage


def read_selected_target(
    storage: Storage, snapshot: Snapshot, where: Any, read: FooterReader, *, strict: bool
) -> tuple[Target, Condition]:
    """Read a target with the statistics of the columns that a condition compares.

    Partition columns that files do not store have the types that their directories look like.

    Raises:
        InvalidArgumentError: If the condition cannot be understood, or does not fit the columns.
        SchemaMismatchError: If files have other columns, or types that cannot be compared.
        UnreadableFileError: If a file is not Parquet and ``strict``.
    """
    # Twice: which statistics are needed is known once the columns are.
    columns = read_columns_of(storage.root, snapshot.listing.files, read)
    condition = Condition.of(where, columns.every)
    columns.check_everywhere(storage.root, condition.columns, "the condition is about")

    def read_more(
        root: Root, files: Sequence[DataFile], columns: Iterable[str] | None
    ) -> list[FileFooter]:
        return read(root, files, dict.fromkeys((*(columns or ()), *condition.columns)))

    target = read_checked_target(
        storage, snapshot, (), columns.partitions, None, read_more, strict=strict
    )
    return target, condition


def read_duplicates_target(
    storage: Storage,
    snapshot: Snapshot,
    wanted: DuplicateOptions,
    read: FooterReader,
    *,
    strict: bool,
) -> tuple[Target, DuplicateRules]:
    """Read a target with the key of its rows, and what says which of its duplicates stays.

    Partition columns that files do not store have the types that their directories look like.

    Raises:
        InvalidArgumentError: If there is no such column, or one has no order.
        SchemaMismatchError: If files have other columns, or types that cannot be compared.
        UnreadableFileError: If a file is not Parquet and ``strict``.
    """
    columns = read_columns_of(storage.root, snapshot.listing.files, read)
    keys, order = wanted.key_columns or (), wanted.order_by or ()
    for argument, names in (("key_columns", keys), ("order_by", order)):
        if names:
            check_columns(argument, names, columns.every.names)
    if unordered := [name for name in order if family(columns.every.field(name).type) is None]:
        raise InvalidArgumentError(
            f"order_by {unordered[0]!r} of type {columns.every.field(unordered[0]).type} has no "
            "order.\nHint: order by numbers, strings, binaries, booleans, dates, times or "
            "timestamps.",
            argument="order_by",
        )
    is_exact = not order and wanted.keep is None
    compared = [f for f in columns.every if (is_exact or not keys) and f.name not in keys]
    columns.check_everywhere(storage.root, [*keys, *order], "the duplicates are about")
    columns.check_everywhere(storage.root, [f.name for f in compared], "other files have")
    named = tuple(dict.fromkeys((*keys, *order)))
    target = read_checked_target(
        storage, snapshot, named, columns.partitions, None, read, strict=strict
    )
    found = dict(zip(named, target.key_columns, strict=True))
    rules = DuplicateRules(
        tuple(found[name] for name in keys),
        tuple(found[name] for name in order),
        # As in a merge, the later one of rows that are equal in the order.
        wanted.keep or ("last" if order else "first"),
        wanted.null_keys == "match" or not keys,
        tuple(compared),
    )
    return target, rules


@dataclass(frozen=True)
class DatasetColumns:
    """The columns of a dataset."""

    every: pa.Schema
    """Those that files store, then those that are only in paths."""

    partitions: pa.Schema
    """The partition columns."""

    footers: Sequence[FileFooter]
    """Those that could be read."""

    @property
    def only_in_paths(self) -> list[str]:
        """The partition columns that no file stores."""
        stored = {name for footer in self.footers for name in footer.schema.names}
        return [name for name in self.partitions.names if name not in stored]

    def check_everywhere(self, root: Root, names: Sequence[str], what: str) -> None:
        """Refuse columns that a file does not have; ``what`` says what they are."""
        for footer in {id(one.schema): one for one in self.footers}.values():
            known = {*footer.schema.names, *self.partitions.names}
            if missing := [name for name in names if name not in known]:
                raise SchemaMismatchError(
                    f"{root.to_user_path(footer.file.path)!r} has no column {missing[0]!r}, which "
                    f"{what}.\nHint: call evolve(), which adds missing columns to every file."
                )


def read_columns_of(root: Root, files: Sequence[DataFile], read: FooterReader) -> DatasetColumns:
    """Return the columns of a dataset, from the footers of its files."""
    readable = [footer for footer in read(root, files, ()) if footer.error is None]
    stored = _unified_schema(root, readable)
    parts = partition_schema([root.relative(file.path) for file in files])
    only_in_paths = [field for field in parts if field.name not in stored.names]
    # A column that is in both must agree with its path, and has the type of the files.
    typed = [stored.field(f.name) if f.name in stored.names else f for f in parts]
    return DatasetColumns(pa.schema([*stored, *only_in_paths]), pa.schema(typed), readable)


def _unified_schema(root: Root, footers: Sequence[FileFooter]) -> pa.Schema:
    """Return the columns of all files, each with a type for the values of every file."""
    fields: dict[str, pa.Field] = {}
    for footer in {id(one.schema): one for one in footers}.values():
        for field in footer.schema:
            known = fields.get(field.name, field)
            is_nullable = known.nullable or field.nullable
            shared = known.with_type(_shared_type(root, footer, known, field))
            fields[field.name] = shared.with_nullable(is_nullable)
    return pa.schema(list(fields.values()))


def _shared_type(root: Root, footer: FileFooter, known: pa.Field, field: pa.Field) -> pa.DataType:
    if known.type.equals(field.type) or pa.types.is_null(field.type):
        return known.type
    if pa.types.is_null(known.type):
        return field.type
    if family(known.type) is None or not are_comparable(known.type, field.type):
        raise SchemaMismatchError(
            f"the column {field.name!r} is {field.type} in "
            f"{root.to_user_path(footer.file.path)!r} and {known.type} in another file: one "
            "condition cannot be about both.\nHint: rewrite the files that have the wrong type."
        )
    return common_type(known.type, field.type)
