"""The source of a merge in the model: which of several rows with one key takes part.

- With ``order_by``: the greatest tuple of those columns, whatever ``duplicate_keys`` says. NULL is
  lowest, NaN highest; of equal tuples the later row wins.
- Without: ``duplicate_keys``. ``deduplicate`` is asked to reduce, so its ``"error"`` is ``"last"``,
  and to delete a key twice is to delete it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fsspeckit import errors

Row = Mapping[str, Any]


def values_of(row: Row, columns: Sequence[str]) -> tuple[Any, ...]:
    """Return values that compare as keys do: NaN = NaN; -0.0 = 0.0 as Python has it anyway."""
    return tuple("NaN" if row[name] != row[name] else row[name] for name in columns)


def check_nulls(source: Sequence[Row], keys: Sequence[str]) -> None:
    """Refuse NULL in a key."""
    if nulls := Counter(name for row in source for name in keys if row[name] is None):
        raise errors.NullKeyError.found(nulls)


def one_row_per_key(
    source: Sequence[Row], strategy: str, keys: Sequence[str], policy: str, order_by: Sequence[str]
) -> dict[tuple[Any, ...], Row]:
    """Return the row of each key that takes part."""
    if policy == "error" and strategy in ("deduplicate", "delete"):
        policy = "last"
    twice = [k for k, n in Counter(values_of(row, keys) for row in source).items() if n > 1]
    if twice and policy == "error" and not order_by:
        raise errors.DuplicateKeyError.found(keys, len(twice), twice[:5])
    if order_by:  # a stable sort, and a dict keeps what comes last: the last of the greatest
        source = sorted(source, key=lambda row: [rank(row[name]) for name in order_by])
    elif policy == "first":
        source = source[::-1]
    return {values_of(row, keys): row for row in source}


def rank(value: Any) -> tuple[Any, ...]:
    """Return a value that compares as values do in ``order_by`` and ``only_newer``."""
    return (0,) if value is None else (2,) if value != value else (1, value)
