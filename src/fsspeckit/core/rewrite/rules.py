"""Which matches replace a target row, delete it, or come too late to change it.

An engine finds the positions of rows that have a source key. What happens to such a row may depend
on values: on a column of the source that marks deletions, and on a column of both sides that says
which row is newer. Both are looked at here, before a file is compared with its new rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.keys import common_type, key_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    Positions = NDArray[np.int64]
    Flags = NDArray[np.bool_]
    RowSource = Callable[[Positions], pa.Table]
    """Returns source rows by their numbers, in that order."""

    OldValues = Callable[[str, Positions], pa.ChunkedArray]
    """Returns the values of a column of the file at some positions."""


@dataclass(frozen=True)
class RowRules:
    """What happens to the rows of a file; by default those that match are replaced."""

    keep_others: bool = True
    """Whether rows without a match stay; if not, they are deleted."""

    force: bool = False
    """Whether the file is rewritten even if no value changes."""

    deletes: bool = False
    """Whether every matching row is deleted."""

    delete_when: str | None = None
    """The boolean column of the source that is true in rows that delete; it is not stored."""

    only_newer: str | None = None
    """The column whose value must be greater in the source than in the target."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the source that decide."""
        return tuple(name for name in (self.delete_when, self.only_newer) if name is not None)

    def stored(self, names: Iterable[str]) -> list[str]:
        """Return the columns of the source that files store."""
        return [name for name in names if name != self.delete_when]


@dataclass(frozen=True)
class Replacement:
    """Which rows of a file match which rows of the source, and what happens to them."""

    positions: Positions
    """Row numbers inside the file, ascending."""

    source_rows: Positions
    """The source row for each position."""

    rules: RowRules = RowRules()
    """What happens to them and to the other rows."""


@dataclass(frozen=True)
class RowChanges:
    """What happens to the rows of a file; all positions ascend."""

    replaced: Positions
    source_rows: Positions
    """The source row for each replaced one."""

    deleted: Positions
    """Matching rows that are deleted."""

    late: Positions
    """Matching rows that are at least as new as their source row, and stay."""

    keep_others: bool = True

    def deleted_of(self, rows: int) -> int:
        """Return how many of the file's rows are deleted."""
        if self.keep_others:
            return len(self.deleted)
        return rows - len(self.replaced) - len(self.late)


def decide(found: Replacement, deciding: RowSource | None, old_values: OldValues) -> RowChanges:
    """Decide about each matching row: it is late, or else deleted or replaced.

    ``deciding`` returns the columns of the source that the rules name, if they name any.
    """
    rules, none = found.rules, np.empty(0, np.int64)
    if rules.deletes:
        return RowChanges(none, none, found.positions, none, rules.keep_others)
    if not rules.columns or not len(found.positions):
        return RowChanges(found.positions, found.source_rows, none, none, rules.keep_others)
    assert deciding is not None
    source = deciding(found.source_rows)
    late = np.zeros(len(found.positions), bool)
    if rules.only_newer is not None:
        new = source.column(rules.only_newer)
        late = ~is_newer(rules.only_newer, new, old_values(rules.only_newer, found.positions))
    deleted = np.zeros(len(found.positions), bool)
    if rules.delete_when is not None:
        deleted = is_true(source.column(rules.delete_when)) & ~late
    replaced = ~(late | deleted)
    return RowChanges(
        found.positions[replaced],
        found.source_rows[replaced],
        found.positions[deleted],
        found.positions[late],
        rules.keep_others,
    )


def is_newer(name: str, new: pa.ChunkedArray, old: pa.ChunkedArray) -> Flags:
    """Return where a new value is greater than the old one: NULL is below every value, NaN above.

    Raises:
        SchemaMismatchError: If the types cannot be compared.
    """
    column = key_column(name, common_type(new.type, old.type))
    left, right = column.canonical(new), column.canonical(old)
    greater = pc.fill_null(pc.greater(left, right), False)
    first = pc.and_(left.is_valid(), right.is_null())
    return np.asarray(pc.or_(greater, first))


def is_true(flags: pa.ChunkedArray) -> Flags:
    """Return where a boolean is true; NULL, which is refused for a source, is not."""
    return np.asarray(pc.fill_null(flags.cast(pa.bool_()), False))
