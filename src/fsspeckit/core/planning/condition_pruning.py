"""Pruning by a condition: row groups without a selected row, and row groups with no other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.planning.footers import raw_footer
from fsspeckit.core.planning.pruning import inexact_row_groups, key_bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fsspeckit.core.conditions import Condition
    from fsspeckit.core.planning.footers import FileFooter
    from fsspeckit.core.planning.pruning import ColumnBounds, PartitionValues
    from fsspeckit.storage import Root


@dataclass(frozen=True, slots=True)
class ConditionVerdict:
    """What statistics and partition values say about a condition in one file."""

    candidates: tuple[int, ...]
    """The row groups that may hold a selected row and must be read."""

    complete: tuple[int, ...]
    """The row groups of which every row is selected for certain; they need not be read."""

    error: str | None = None
    """Why the footer could not be read; nothing is known of such a file."""

    @property
    def is_affected(self) -> bool:
        """Whether a row of the file may be selected."""
        return bool(self.candidates or self.complete)


def prune_by_condition(
    root: Root,
    footers: Sequence[FileFooter],
    condition: Condition,
    partitions: Mapping[str, PartitionValues],
) -> list[ConditionVerdict]:
    """Return a verdict for each file: the row groups that a condition selects, in part or whole.

    The footers need the statistics of the condition's columns. ``partitions`` are the columns
    whose values are in the paths. Only proof leaves a row group out of ``candidates``, or puts it
    into ``complete``: bounds that are missing or not trusted prove nothing.
    """
    bounds = {
        each.column.name: _without_inexact_bounds(each, footers, partial(raw_footer, root))
        for each in key_bounds(footers, condition.key_columns, partitions)
    }
    counts = [len(footer.row_groups) for footer in footers]
    outcomes = condition.outcomes(bounds, sum(counts))
    every = outcomes.must_match
    some = outcomes.may_match & ~every
    ends = np.cumsum([0, *counts])
    return [
        ConditionVerdict(
            tuple(np.flatnonzero(some[start:end]).tolist()),
            tuple(np.flatnonzero(every[start:end]).tolist()),
            footer.error,
        )
        for footer, start, end in zip(footers, ends, ends[1:], strict=False)
    ]


def _without_inexact_bounds(
    bounds: ColumnBounds,
    footers: Sequence[FileFooter],
    raw: Callable[[FileFooter], bytes | None],
) -> ColumnBounds:
    """Forget bounds that may be truncated: some writers do not round an upper bound up."""
    if bounds.evidence != "statistics" or not pa.types.is_binary(bounds.low.type):
        return bounds
    inexact = np.zeros(len(bounds.low), bool)
    start = 0
    for footer in footers:
        inexact[[start + n for n in inexact_row_groups(footer, bounds.column.name, raw)]] = True
        start += len(footer.row_groups)
    unknown = pa.scalar(None, bounds.low.type)
    return replace(
        bounds,
        low=pc.if_else(pa.array(inexact), unknown, bounds.low),
        high=pc.if_else(pa.array(inexact), unknown, bounds.high),
    )
