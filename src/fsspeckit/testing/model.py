"""The truth about a merge, over plain Python rows: short enough to be checked by eye.

Both sides are lists of dicts with the same columns and one Python type per column. The result is
the rows of the target in their order, then moved and inserted ones in no particular order. What
happens to a target row whose key the source has:
- Its value of ``only_newer`` is not less than that of the source row: it is late, and stays.
- Otherwise the strategy is ``delete``, or ``delete_when`` of the source row is true: it goes.
- Otherwise it is replaced; with ``partition_change="move"`` also by a row of another partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsspeckit import errors
from fsspeckit.testing.model_source import Row, check_nulls, one_row_per_key, rank, values_of

if TYPE_CHECKING:
    from collections.abc import Sequence

STRATEGIES = {  # what each of them does to rows
    "insert": {"insert"},
    "update": {"update"},
    "upsert": {"insert", "update"},
    "deduplicate": {"insert", "update"},
    "full_merge": {"insert", "update", "delete others"},
    "delete": {"update", "delete matches"},
}


@dataclass(frozen=True)
class ModelResult:
    """The rows after a merge; how many came, were replaced and went, had no effect, and moved."""

    rows: list[Row]
    inserted: int
    updated: int
    deleted: int
    late: int
    not_found: int
    moved: int = 0


def merge_rows(  # noqa: PLR0913
    target: Sequence[Row] | None,
    source: Sequence[Row],
    strategy: str,
    keys: Sequence[str],
    *,
    partition_columns: Sequence[str] = (),
    null_keys: str = "error",
    duplicate_keys: str = "error",
    order_by: Sequence[str] = (),
    allow_empty: bool = False,
    delete_when: str | None = None,
    only_newer: str | None = None,
    partition_change: str = "refuse",
) -> ModelResult:
    """Merge ``source`` into ``target``; None is a target that does not exist."""
    does = STRATEGIES[strategy]
    if target is None and "insert" not in does:
        raise errors.InvalidArgumentError(f"{strategy} of a non-existent target.")
    if not source and "delete others" in does and not allow_empty:
        raise errors.InvalidArgumentError(f"{strategy} of an empty source deletes every row.")
    if null_keys == "error":
        check_nulls(source, keys)
    new = one_row_per_key(source, strategy, keys, duplicate_keys, order_by)
    old = [(values_of(row, keys), row) for row in target or ()]

    kept = {  # the keys that have a row afterwards, and that row
        key: {name: value for name, value in row.items() if name != delete_when}
        for key, row in new.items()
        if "delete matches" not in does and not (delete_when and row[delete_when])
    }
    if any(row[name] == "" for row in kept.values() for name in partition_columns):
        raise errors.InvalidArgumentError("an empty string is not a partition value.")
    changing = new if "update" in does else {}  # an insert leaves existing keys as they are
    place = {key: values_of(kept[key], partition_columns) for key in changing if key in kept}
    moves = {k for k, row in old if k in place and place[k] != values_of(row, partition_columns)}
    if moves and partition_change == "refuse":
        raise errors.PartitionMoveError.found(partition_columns, len(moves), list(moves)[:5])
    rows, moved = list[Row](), list[Row]()
    updated = late = 0
    for key, row in old:
        if key not in changing:
            rows += [] if "delete others" in does else [row]
        elif only_newer and rank(changing[key][only_newer]) <= rank(row[only_newer]):
            rows.append(row)
            late += 1
        elif key in kept:
            (rows if place[key] == values_of(row, partition_columns) else moved).append(kept[key])
            updated += 1
    unknown = new.keys() - dict(old).keys()
    added = [row for key, row in kept.items() if key in unknown and "insert" in does]
    not_found = len(unknown) - len(added) if "update" in does else 0
    deleted = len(old) - len(rows) - len(moved)
    after = [*rows, *moved, *added]
    return ModelResult(after, len(added), updated, deleted, late, not_found, len(moved))
