"""Page indexes: where each page is and what is in it, compared with the pages and their values."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from fsspeckit.core.parquet.format.layout import CannotSpliceError
from fsspeckit.core.parquet.format.thrift import BYTES, INT, Spec, Struct, decode
from fsspeckit.core.parquet.verify.bounds import (
    Claim,
    Flaw,
    Order,
    check_bounds,
    ends_of,
    parse_bound,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from fsspeckit.core.parquet.verify.values import Leaf

OFFSET_INDEX: Final[Spec] = {1: [{1: INT, 2: INT, 3: INT}]}
_COLUMN_INDEX: Final[Spec] = {2: [BYTES], 3: [BYTES], 4: INT, 5: [INT]}
_SHORT_LIST: Final = 15
_TRUE: Final = 1
_ASCENDING, _DESCENDING = 1, 2


@dataclass(frozen=True)
class PageLocation:
    """Where a data page is, as an offset index says or as it was found."""

    offset: int
    size: int
    first_row: int


def parse_offset_index(data: bytes) -> list[PageLocation]:
    """Read an offset index.

    Raises:
        ThriftError, KeyError: If it is damaged.
    """
    found, _ = decode(data, OFFSET_INDEX)
    return [PageLocation(one.values[1], one.values[2], one.values[3]) for one in found.values[1]]


def check_locations(
    found: Sequence[PageLocation], actual: Sequence[PageLocation], rows: int
) -> Iterator[str]:
    """Compare an offset index with the pages; a first row of -1 is not known."""
    if len(found) != len(actual):
        yield f"the offset index lists {len(found):,} pages, and the column has {len(actual):,}."
        return
    for number, (said, real) in enumerate(zip(found, actual, strict=True)):
        if (said.offset, said.size) != (real.offset, real.size):
            yield (
                f"the offset index has page {number:,} at {said.offset:,} with {said.size:,} "
                f"bytes; it is at {real.offset:,} with {real.size:,}."
            )
            return
        if real.first_row not in (-1, said.first_row):
            yield (
                f"the offset index says that page {number:,} begins with row {said.first_row:,}; "
                f"it begins with row {real.first_row:,}."
            )
            return
    starts = [one.first_row for one in found]
    if starts and (starts[0] != 0 or any(a > b for a, b in pairwise([*starts, rows]))):
        yield "the first rows of pages in the offset index are not in order."


@dataclass(frozen=True)
class ColumnIndex:
    """What a column index says of each page."""

    is_null: list[bool]
    low: list[bytes]
    high: list[bytes]
    order: int
    nulls: list[int] | None

    @classmethod
    def parse(cls, data: bytes) -> ColumnIndex:
        """Read a column index.

        Raises:
            ThriftError, KeyError, IndexError, CannotSpliceError: If it is damaged.
        """
        found, _ = decode(data, _COLUMN_INDEX)
        values = found.values
        return cls(_booleans(found), values[2], values[3], values.get(4, 0), values.get(5))


def _booleans(found: Struct) -> list[bool]:
    """Read the list of booleans: writers disagree on how false is stored."""
    data = found.raw[1]
    size, start = data[0] >> 4, 1
    if size == _SHORT_LIST:
        size, shift = 0, 0
        while True:
            byte = data[start]
            size |= (byte & 127) << shift
            start, shift = start + 1, shift + 7
            if byte < 128:
                break
    items = data[start : start + size]
    if len(items) != size:
        raise CannotSpliceError("a list of booleans ends early")
    return [item == _TRUE for item in items]


def check_column_index(
    leaf: Leaf,
    order: Order | None,
    index: ColumnIndex,
    pages: int,
    values_of: Callable[[int], pa.ChunkedArray],
) -> Iterator[tuple[int | None, Flaw]]:
    """Compare a column index with the values of each page, by its number."""
    lengths = [len(index.is_null), len(index.low), len(index.high)]
    lengths += [] if index.nulls is None else [len(index.nulls)]
    if set(lengths) != {pages}:
        text = f"the column index is about {max(lengths):,} pages, and there are {pages:,}."
        yield None, Flaw(text, loses_rows=True)
        return
    for number in range(pages):
        values = values_of(number)
        for flaw in _check_page(leaf, order, index, number, values):
            yield number, flaw
    if order is not None and (disorder := _check_order(leaf, order, index)) is not None:
        yield None, disorder


def _check_page(
    leaf: Leaf, order: Order | None, index: ColumnIndex, number: int, values: pa.ChunkedArray
) -> Iterator[Flaw]:
    present = len(values) - values.null_count
    if index.is_null[number] and present:
        yield Flaw(f"it is marked as all NULL, but it holds {present:,} values.", loses_rows=True)
        return
    if (
        index.nulls is not None
        and not leaf.is_repeated
        and index.nulls[number] != values.null_count
    ):
        text = (
            f"it is said to hold {index.nulls[number]:,} NULL, but it holds {values.null_count:,}."
        )
        yield Flaw(text, loses_rows=True)
    if order is not None and present:
        claim = Claim(index.low[number], index.high[number], False, False)
        yield from check_bounds(leaf, order, claim, values, ends_of(values, order))


def _check_order(leaf: Leaf, order: Order, index: ColumnIndex) -> Flaw | None:
    """Check that bounds are in the order that readers search them by."""
    if index.order not in (_ASCENDING, _DESCENDING):
        return None
    numbers = [number for number, is_null in enumerate(index.is_null) if not is_null]
    for bounds in (index.low, index.high):
        try:
            found: list[Any] = [parse_bound(leaf, order, bounds[number]) for number in numbers]
        except ValueError:
            return None  # reported for the page
        if index.order == _DESCENDING:
            found.reverse()
        if any(one > other for one, other in pairwise(found)):
            return Flaw(
                "the column index says that its bounds are sorted, and they are not.",
                loses_rows=True,
            )
    return None
