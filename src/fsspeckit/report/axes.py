"""Axes of a report: the key ranges of files and row groups, as positions in one sorted table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.keys import as_text, family, python_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fsspeckit.core.planning import ColumnBounds, FileFooter

    Positions = NDArray[np.int64]

MAX_TEXT = 80
"""Longer bounds are cut for people to read; their order does not depend on it."""

MAX_COMPARED_FILES = 20_000
"""Ranges of several key columns are compared file by file, for no more files than this."""

UNKNOWN, NO_VALUE = -1, -2
"""In place of a position: where a range is not known, and where there is no value at all."""

_MAX_EXACT = 2**53
_BLOCK = 512
_KINDS = {
    "integer": "number",
    "decimal": "number",
    "float": "number",
    "date": "time",
    "timestamp without zone": "time",
    "timestamp with zone": "time",
}
_DAY_MS = 86_400_000
_LARGEST = 1.7976931348623157e308


@dataclass(frozen=True)
class Ranges:
    """The ranges of one key column."""

    bounds: ColumnBounds
    table: pa.Array
    """All bounds, canonical, ascending, each once."""

    group_low: Positions
    group_high: Positions
    """For each row group: positions in the table, or `UNKNOWN`."""

    file_low: Positions
    file_high: Positions
    """For each file the same; `NO_VALUE` if it has no row, or only rows with NULL."""


def ranges_of(footers: Sequence[FileFooter], bounds: ColumnBounds, *, with_groups: bool) -> Ranges:
    """Return the ranges of a column; without ``with_groups`` the table has those of files only."""
    counts = np.array([len(footer.row_groups) for footer in footers], np.int64)
    ends = np.cumsum(counts)
    table = _sorted_table(bounds.low, bounds.high)
    low, high = _positions(bounds.low, table), _positions(bounds.high, table)
    has_rows = np.array([group.rows > 0 for footer in footers for group in footer.row_groups], bool)
    has_values = bounds.may_contain_values & has_rows
    file_low = np.full(len(footers), UNKNOWN)
    file_high = np.full(len(footers), UNKNOWN)
    for number, (start, end) in enumerate(zip(ends - counts, ends, strict=True)):
        holding = has_values[start:end]
        lows, highs = low[start:end][holding], high[start:end][holding]
        if not len(lows):
            is_readable = footers[number].error is None
            file_low[number] = file_high[number] = NO_VALUE if is_readable else UNKNOWN
        elif lows.min() >= 0 and highs.min() >= 0:
            file_low[number], file_high[number] = lows.min(), highs.max()
    found = Ranges(bounds, table, low, high, file_low, file_high)
    return found if with_groups else _of_files(found)


def _of_files(found: Ranges) -> Ranges:
    """Leave out the bounds of row groups that no file has."""
    used = np.unique(np.concatenate([found.file_low, found.file_high]))
    used = used[used >= 0]
    file_low, file_high = (
        np.where(positions < 0, positions, np.searchsorted(used, positions))
        for positions in (found.file_low, found.file_high)
    )
    empty = np.empty(0, np.int64)
    table = found.table.take(pa.array(used))
    return Ranges(found.bounds, table, empty, empty, file_low, file_high)


def _sorted_table(low: pa.Array, high: pa.Array) -> pa.Array:
    both = pc.unique(pa.concat_arrays([low, high])).drop_null()
    return both.take(pc.sort_indices(both))


def _positions(values: pa.Array, table: pa.Array) -> Positions:
    found = pc.fill_null(pc.index_in(values, table, skip_nulls=True), -1)
    return np.asarray(found, np.int64)


def axis(ranges: Ranges, footers: Sequence[FileFooter]) -> dict[str, Any]:
    """Return the ranges of a key column as the page reads them."""
    column = ranges.bounds.column
    kind = _KINDS.get(family(column.type) or "", "text")
    at: list[int] | list[int | float] | None = None
    if kind == "time":
        values: list[Any] = as_text(column.original(ranges.table)).to_pylist()
        at = _milliseconds(column.original(ranges.table))
    else:
        values = _values(ranges)
    if kind == "number":
        at = [_number(value) for value in values]
    is_exact = kind == "number" and all(
        isinstance(value, int) and abs(value) <= _MAX_EXACT for value in values
    )
    return {
        "column": column.name,
        "type": str(column.type),
        "kind": kind,
        "length": len(values),
        "texts": None if is_exact else [_text(value) for value in values],
        "at": at,
        "low": ranges.file_low.tolist(),
        "high": ranges.file_high.tolist(),
        "nulls": _null_counts(column.name, footers),
    }


def _values(ranges: Ranges) -> list[Any]:
    """Return the bounds as Python values; one that is cut inside of a character as bytes."""
    column = ranges.bounds.column
    try:
        return [python_value(value) for value in column.original(ranges.table)]
    except pa.ArrowInvalid:
        return [value.as_py() for value in ranges.table]


def _milliseconds(moments: pa.Array) -> list[int]:
    """Return dates and timestamps as milliseconds since 1970, rounded down."""
    if pa.types.is_date(moments.type):
        days = moments.cast(pa.date32()).cast(pa.int32())
        return [day * _DAY_MS for day in days.to_pylist()]
    coarse = moments.cast(pa.timestamp("ms", moments.type.tz), safe=False)
    found: list[int] = coarse.cast(pa.int64()).to_pylist()
    return found


def _number(value: Any) -> int | float:
    """Return where a number is on a linear axis; one that is too large is at its end."""
    if isinstance(value, int) and abs(value) <= _MAX_EXACT:
        return value
    return min(max(float(value), -_LARGEST), _LARGEST)


def _text(value: Any) -> str:
    return cut_text("0x" + value.hex() if isinstance(value, bytes) else str(value))


def cut_text(text: str) -> str:
    """Return a text, or its beginning if it is longer than a reader needs."""
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def _null_counts(column: str, footers: Sequence[FileFooter]) -> dict[str, int]:
    counts = {}
    for number, footer in enumerate(footers):
        chunks = (group.columns.get(column) for group in footer.row_groups)
        if nulls := sum(chunk.null_count or 0 for chunk in chunks if chunk is not None):
            counts[str(number)] = nulls
    return counts


def overlaps(ranges: Sequence[Ranges]) -> list[int | None] | None:
    """Return with how many other files the key range of each file overlaps, on all columns.

    Files whose ranges are not known have None, and are not counted; those without a key overlap
    with none. None as a whole if there is no key column, or if there are too many files.
    """
    if not ranges:
        return None
    known = np.logical_and.reduce([one.file_low >= 0 for one in ranges])
    if len(ranges) > 1 and known.sum() > MAX_COMPARED_FILES:
        return None
    lows = [one.file_low[known] for one in ranges]
    highs = [one.file_high[known] for one in ranges]
    counts = _overlaps_on_one(lows[0], highs[0]) if len(ranges) == 1 else _overlaps(lows, highs)
    empty = np.logical_or.reduce([one.file_low == NO_VALUE for one in ranges])
    found: list[int | None] = [0 if is_empty else None for is_empty in empty]
    for number, count in zip(np.flatnonzero(known), counts, strict=True):
        found[int(number)] = int(count)
    return found


def _overlaps_on_one(low: Positions, high: Positions) -> Positions:
    before = np.searchsorted(np.sort(high), low, side="left")
    after = len(low) - np.searchsorted(np.sort(low), high, side="right")
    return np.asarray(len(low) - 1 - before - after, np.int64)


def _overlaps(lows: Sequence[Positions], highs: Sequence[Positions]) -> Positions:
    counts = np.zeros(len(lows[0]), np.int64)
    for start in range(0, len(counts), _BLOCK):
        some = slice(start, start + _BLOCK)
        meet = np.logical_and.reduce(
            [
                (low[some, None] <= high) & (high[some, None] >= low)
                for low, high in zip(lows, highs, strict=True)
            ]
        )
        counts[some] = meet.sum(axis=1) - 1
    return counts
