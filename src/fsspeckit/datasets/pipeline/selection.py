"""The target of a delete by a condition: the condition fitted to it, and the footers it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fsspeckit.core.conditions import Condition
from fsspeckit.core.keys import are_comparable, common_type, family
from fsspeckit.datasets.pipeline.reading import partition_schema
from fsspeckit.datasets.pipeline.target_checks import read_checked_target
from fsspeckit.errors import SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fsspeckit.core.planning import FileFooter, FooterReader, Target
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
    root, files = storage.root, snapshot.listing.files
    # Twice: which statistics are needed is known once the columns are.
    readable = [footer for footer in read(root, files, ()) if footer.error is None]
    stored = _unified_schema(root, readable)
    parts = partition_schema([root.relative(file.path) for file in files])
    only_in_paths = [field for field in parts if field.name not in stored.names]
    # A column that is in both must agree with its path, and has the type of the files.
    typed = [stored.field(f.name) if f.name in stored.names else f for f in parts]
    condition = Condition.of(where, pa.schema([*stored, *only_in_paths]))
    _check_everywhere(root, readable, condition, parts.names)

    def read_more(
        root: Root, files: Sequence[DataFile], columns: Iterable[str] | None
    ) -> list[FileFooter]:
        return read(root, files, dict.fromkeys((*(columns or ()), *condition.columns)))

    target = read_checked_target(
        storage, snapshot, (), pa.schema(typed), None, read_more, strict=strict
    )
    return target, condition


def _unified_schema(root: Root, footers: Sequence[FileFooter]) -> pa.Schema:
    """Return the columns of all files, each with a type for the values of every file."""
    fields: dict[str, pa.Field] = {}
    for footer in {id(one.schema): one for one in footers}.values():
        for field in footer.schema:
            known = fields.get(field.name, field)
            fields[field.name] = known.with_type(_shared_type(root, footer, known, field))
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


def _check_everywhere(
    root: Root, footers: Sequence[FileFooter], condition: Condition, parts: Sequence[str]
) -> None:
    """Refuse a condition about a column that a file does not have."""
    for footer in {id(one.schema): one for one in footers}.values():
        known = {*footer.schema.names, *parts}
        if missing := [name for name in condition.columns if name not in known]:
            raise SchemaMismatchError(
                f"{root.to_user_path(footer.file.path)!r} has no column {missing[0]!r}, which the "
                "condition is about.\n"
                "Hint: call evolve(), which adds missing columns to every file."
            )
