"""The truth about duplicates of a dataset, over plain Python rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fsspeckit import errors
from fsspeckit.testing.model_source import Row, rank

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["comparable", "remaining_rows"]


def remaining_rows(
    rows: Sequence[Row],
    keys: Sequence[str] | None,
    *,
    order_by: Sequence[str] = (),
    keep: str | None = None,
    null_keys: str = "keep",
) -> list[int]:
    """Return the numbers of the rows of a dataset that stay when every key may occur once.

    The rows are in the order of the paths of files, and of rows in a file; ``keys`` None is for
    rows that are equal in every column.
    """
    found: dict[Any, list[int]] = {}
    for number, row in enumerate(rows):
        key = comparable(row if keys is None else [row[name] for name in keys])
        is_null = keys is not None and any(row[name] is None for name in keys)
        found.setdefault((key, number if is_null and null_keys == "keep" else None), []).append(
            number
        )
    if keys is not None and not order_by and keep is None:
        count = sum(
            comparable(rows[one]) != comparable(rows[some[0]])
            for some in found.values()
            for one in some
        )
        if count:
            raise errors.DuplicateRowsError.found(keys, count, [])
    is_first = (keep or ("last" if order_by else "first")) == "first"

    def place(number: int) -> tuple[Any, ...]:
        ordered = [rank(rows[number][name]) for name in order_by]
        return (*ordered, -number if is_first else number)

    return sorted(max(some, key=place) for some in found.values())


def comparable(value: Any) -> Any:
    """Return a value, perhaps with others inside, that compares as keys do."""
    if isinstance(value, dict):
        return tuple((name, comparable(one)) for name, one in sorted(value.items()))
    if isinstance(value, list | tuple):
        return tuple(map(comparable, value))
    if isinstance(value, float):
        return "NaN" if value != value else ("float", value + 0.0)
    return (type(value).__name__, value)
