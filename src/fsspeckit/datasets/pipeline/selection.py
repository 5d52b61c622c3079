"""The target of a delete by a condition: the condition fitted to it, and the footers it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fsspeckit.core.conditions import Condition
from fsspeckit.core.planning import read_footers
from fsspeckit.datasets.pipeline.reading import partition_schema
from fsspeckit.datasets.pipeline.target_checks import read_checked_target
from fsspeckit.errors import UnreadableFileError

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
        UnreadableFileError: If a file is not Parquet and ``strict``, or none is.
    """
    root, files = storage.root, snapshot.listing.files
    stored = _first_schema(root, files)
    parts = partition_schema([root.relative(file.path) for file in files])
    only_in_paths = [field for field in parts if field.name not in stored.names]
    # A column that is in both must agree with its path, and has the type of the file.
    typed = [stored.field(f.name) if f.name in stored.names else f for f in parts]
    condition = Condition.of(where, pa.schema([*stored, *only_in_paths]))

    def read_more(
        root: Root, files: Sequence[DataFile], columns: Iterable[str] | None
    ) -> list[FileFooter]:
        return read(root, files, dict.fromkeys((*(columns or ()), *condition.columns)))

    target = read_checked_target(
        storage, snapshot, (), pa.schema(typed), None, read_more, strict=strict
    )
    return target, condition


def _first_schema(root: Root, files: Sequence[DataFile]) -> pa.Schema:
    """Return the columns of the first file that can be read."""
    error = None
    for file in files:
        (footer,) = read_footers(root, [file], ())
        if footer.error is None:
            return footer.schema
        error = error or footer.error
    raise UnreadableFileError(f"no file of the dataset is readable as Parquet: {error}")
