"""The truth about a merge, over plain Python rows: short enough to be checked by eye.

Both sides are lists of dicts with the same columns and one Python type per column. The result is
the rows of the target in their order, then the inserted ones in no particular order.

Which of several source rows with one key wins:
- With ``order_by``: the greatest tuple of those columns, whatever ``duplicate_keys`` says. NULL is
  lowest, NaN highest; of equal tuples the later row wins.
- Without: ``duplicate_keys``. ``deduplicate`` is asked to reduce, so its ``"error"`` is ``"last"``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fsspeckit import errors

Row = Mapping[str, Any]
STRATEGIES = {  # what each of them does to rows
    "insert": {"insert"},
    "update": {"update"},
    "upsert": {"insert", "update"},
    "deduplicate": {"insert", "update"},
    "full_merge": {"insert", "update", "delete"},
}


@dataclass(frozen=True)
class ModelResult:
    """The rows after a merge, and how many came, were replaced, and went."""

    rows: list[Row]
    inserted: int
    updated: int
    deleted: int


def values_of(row: Row, columns: Sequence[str]) -> tuple[Any, ...]:
    """Return values that compare as keys do: NaN = NaN; -0.0 = 0.0 as Python has it anyway."""
    return tuple("NaN" if row[name] != row[name] else row[name] for name in columns)


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
) -> ModelResult:
    """Merge ``source`` into ``target``; None is a target that does not exist."""
    does = STRATEGIES[strategy]
    if target is None and "insert" not in does:
        raise errors.InvalidArgumentError(f"{strategy} of a non-existent target.")
    if not source and "delete" in does and not allow_empty:
        raise errors.InvalidArgumentError(f"{strategy} of an empty source deletes every row.")
    if any(row[name] == "" for row in source for name in partition_columns):
        raise errors.InvalidArgumentError("an empty string is not a partition value.")
    nulls = Counter(name for row in source for name in keys if row[name] is None)
    if nulls and null_keys == "error":
        raise errors.NullKeyError.found(nulls)
    policy = "last" if (strategy, duplicate_keys) == ("deduplicate", "error") else duplicate_keys
    new = _one_row_per_key(source, keys, policy, order_by)
    old = [(values_of(row, keys), row) for row in target or ()]

    replacing = new if "update" in does else {}  # an insert leaves existing keys as they are
    place = {key: values_of(row, partition_columns) for key, row in replacing.items()}
    moves = {k for k, row in old if k in place and place[k] != values_of(row, partition_columns)}
    if moves:
        raise errors.PartitionMoveError.found(partition_columns, len(moves), list(moves)[:5])
    rows = [replacing.get(key, row) for key, row in old if key in new or "delete" not in does]
    unknown = new.keys() - dict(old).keys()
    added = [row for key, row in new.items() if key in unknown and "insert" in does]
    updated = sum(key in replacing for key, _ in old)
    return ModelResult(rows + added, len(added), updated, deleted=len(old) - len(rows))


def _one_row_per_key(
    source: Sequence[Row], keys: Sequence[str], policy: str, order_by: Sequence[str]
) -> dict[tuple[Any, ...], Row]:
    twice = [k for k, n in Counter(values_of(row, keys) for row in source).items() if n > 1]
    if twice and policy == "error" and not order_by:
        raise errors.DuplicateKeyError.found(keys, len(twice), twice[:5])
    if order_by:  # a stable sort, and a dict keeps what comes last: the last of the greatest
        source = sorted(source, key=lambda row: [_rank(row[name]) for name in order_by])
    elif policy == "first":
        source = source[::-1]
    return {values_of(row, keys): row for row in source}


def _rank(value: Any) -> tuple[Any, ...]:
    return (0,) if value is None else (2,) if value != value else (1, value)
