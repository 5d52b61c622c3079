"""The truth about change feeds, over plain Python rows: short enough to be checked by eye.

An event is a row with a key, a sequence, and a column that says whether it deletes, which is not
stored. :func:`feed_rows` is what a whole feed amounts to. :class:`ModelFeed` takes it batch by
batch, in whatever order they arrive, and counts. Of events with one key and one sequence:
- In one batch a deletion wins, else the last one.
- Of several batches the one that was applied first stays.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from fsspeckit.testing.model import ModelResult, merge_rows
from fsspeckit.testing.model_source import rank, values_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fsspeckit.testing.model_source import Row

START, END = "__START_AT", "__END_AT"


def feed_rows(
    events: Sequence[Row], keys: Sequence[str], sequence: str, is_delete: str, scd_type: int = 1
) -> list[Row]:
    """Return the rows of a feed whose sequences differ, except for events that came again."""
    by_key: dict[Any, list[Row]] = {}
    for event in sorted(events, key=lambda event: rank(event[sequence])):
        by_key.setdefault(values_of(event, keys), []).append(event)
    rows: list[Row] = []
    for all_of_key in by_key.values():
        distinct = list({rank(event[sequence]): event for event in all_of_key}.values())
        if scd_type == 1:
            rows += [_stored(event, is_delete) for event in distinct[-1:] if not event[is_delete]]
            continue
        ends = [*(event[sequence] for event in distinct[1:]), None]
        rows += [
            {**_stored(event, is_delete), START: event[sequence], END: end}
            for event, end in zip(distinct, ends, strict=True)
            if not event[is_delete]
        ]
    return rows


def _stored(event: Row, is_delete: str) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name != is_delete}


@dataclass
class ModelFeed:
    """A dataset to which a feed is applied, and the deletions that it remembers."""

    keys: Sequence[str]
    sequence: str
    is_delete: str
    scd_type: int = 1
    partition_change: str = "refuse"
    rows: list[Row] | None = None
    """None for a dataset that does not exist."""

    deletions: set[tuple[Any, Any]] = field(default_factory=set)
    """The key and the sequence of each."""

    def apply(self, batch: Sequence[Row], partition_columns: Sequence[str] = ()) -> ModelResult:
        """Apply a batch; return the rows after it, and what it did."""
        new = {self._point(event) for event in batch if event[self.is_delete]}
        if self.scd_type == 1:
            result = self._apply_to_rows(batch, partition_columns)
        else:
            result = self._apply_to_versions(batch, self.deletions | new)
        self.deletions |= new
        self.rows = result.rows if result.rows or self.rows is not None else None
        return result

    def _point(self, event: Row) -> tuple[Any, Any]:
        return values_of(event, self.keys), rank(event[self.sequence])

    def _apply_to_rows(self, batch: Sequence[Row], partition_columns: Sequence[str]) -> ModelResult:
        last = _last_of_each(self.deletions)
        points = [self._point(event) for event in batch]
        overtaken = [key in last and sequence <= last[key] for key, sequence in points]
        merged = merge_rows(
            self.rows,
            [event for event, late in zip(batch, overtaken, strict=True) if not late],
            "upsert",
            self.keys,
            partition_columns=partition_columns,
            partition_change=self.partition_change,
            order_by=[self.sequence, self.is_delete],
            only_newer=self.sequence,
            delete_when=self.is_delete,
        )
        return replace(merged, late=merged.late + sum(overtaken))

    def _apply_to_versions(
        self, batch: Sequence[Row], deletions: set[tuple[Any, Any]]
    ) -> ModelResult:
        old = {(values_of(row, self.keys), rank(row[START])): row for row in self.rows or ()}
        new = {
            self._point(event): {**_stored(event, self.is_delete), START: event[self.sequence]}
            for event in batch
            if self._point(event) not in old.keys() | deletions
        }
        ends = {(key, rank(row[END])) for (key, _), row in old.items() if row[END] is not None}
        following = _following({*old, *new, *ends, *deletions})
        closed = {
            point: {**row, END: _value(following.get(point, rank(None)))}
            for point, row in {**old, **new}.items()
        }
        updated = sum(rank(closed[point][END]) != rank(row[END]) for point, row in old.items())
        return ModelResult(list(closed.values()), len(new), updated, 0, 0, 0)


def _value(ranked: tuple[Any, ...]) -> Any:
    """Return the value that has a rank."""
    return {0: None, 1: ranked[-1], 2: float("nan")}[ranked[0]]


def _last_of_each(points: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return the greatest sequence of each key."""
    return dict(sorted(points, key=lambda point: point[1]))


def _following(points: Iterable[tuple[Any, Any]]) -> dict[tuple[Any, Any], Any]:
    """Return the sequence that follows each point of the same key."""
    by_key: dict[Any, list[Any]] = {}
    for key, sequence in sorted(points, key=lambda point: point[1]):
        by_key.setdefault(key, []).append(sequence)
    return {
        (key, this): after
        for key, sequences in by_key.items()
        for this, after in pairwise(sequences)
    }
