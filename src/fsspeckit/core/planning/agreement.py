"""Partition columns that are stored in the files too: path and file must say the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.matching.key_scan import naming_damage, open_data_file
from fsspeckit.core.planning.key_ranges import statistics_bounds
from fsspeckit.errors import SchemaMismatchError

if TYPE_CHECKING:
    from fsspeckit.core.keys.canonical import KeyColumn
    from fsspeckit.core.planning.footers import FileFooter
    from fsspeckit.storage.roots import Root

__all__ = ["check_partition_value"]


def check_partition_value(
    root: Root, footer: FileFooter, part: KeyColumn, text: str | None, value: pa.Scalar | None
) -> None:
    """Check what the path of a file says about a partition column.

    Args:
        root: Where the file is.
        footer: The file.
        part: The partition column.
        text: The value in the path.
        value: The same, typed; None if it is no value of the type.

    Raises:
        SchemaMismatchError: If the value is none of the column's type, or the file also stores
            the column and holds another value.
    """
    shown = root.spelled(footer.file.path)
    if value is None:
        raise SchemaMismatchError(
            f"the partition value {part.name}={text!r} of {shown!r} is no {part.type}.\n"
            f"Hint: give the source's column {part.name!r} the type of the directories."
        )
    if part.name in footer.leaves and not _agrees(root, footer, part, value):
        raise SchemaMismatchError(
            f"{shown!r} holds other values of {part.name!r} than its path says.\nHint: readers "
            "disagree about such a file; move it to the right directory or drop the column from "
            "it."
        )


def _agrees(root: Root, footer: FileFooter, part: KeyColumn, found: pa.Scalar) -> bool:
    """Whether a partition column stored in a file has only the value of the path."""
    value = part.canonical(pa.repeat(found, 1))[0]
    bounds = statistics_bounds(part, [footer])
    if value.is_valid and not bounds.may_hold_nulls.any():
        same = pc.and_(pc.equal(bounds.low, value), pc.equal(bounds.high, value))
        if same.null_count == 0:
            return bool(pc.all(same, min_count=0).as_py())
    path = footer.file.path
    with open_data_file(root, path) as file, naming_damage(root, path):
        # pyarrow also reads a column called "p.x" for "p": a dot is a path to it.
        column = file.read(columns=[part.name]).column(part.name)
    stored = part.canonical(column)
    if not value.is_valid:
        return int(stored.null_count) == len(stored)
    return stored.null_count == 0 and bool(pc.all(pc.equal(stored, value), min_count=0).as_py())
