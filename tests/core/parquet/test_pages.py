"""Pages, found by their headers."""

from __future__ import annotations

import pytest

from fsspeckit.core.parquet.format.layout import CannotSpliceError, Chunk, Range
from fsspeckit.core.parquet.format.pages import DATA_PAGE, pages_of
from fsspeckit.core.parquet.format.thrift import BINARY, I32, LIST, STRUCT, Struct, encode


def _page(size: int | None, values: int = 7, statistics: int = 0) -> bytes:
    inside = Struct({1: values, 5: b"s" * statistics}, {}, {1: I32, 5: BINARY})
    fields = {1: DATA_PAGE, 5: inside} | ({} if size is None else {3: size})
    kinds = {1: I32, 3: I32, 5: STRUCT}
    header = Struct(fields, {}, {number: kinds[number] for number in sorted(fields)})
    return encode(header) + b"x" * (size or 0)


def _pages(data: bytes) -> list[tuple[int, int]]:
    path = Struct({3: [b"c"]}, {}, {3: LIST | BINARY << 4})
    chunk = Chunk(Struct({3: path}, {}, {3: STRUCT}), Range(0, len(data)))
    return [
        (page.part.length, page.values)
        for page in pages_of(chunk, lambda start, length: data[start : start + length])
    ]


@pytest.mark.parametrize("statistics", [0, 300, 70_000])
def test_pages_follow_each_other_whatever_their_headers(statistics: int) -> None:
    one, other = _page(100, 7, statistics), _page(5, 3)
    assert _pages(one + other) == [(len(one), 7), (len(other), 3)]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (_page(100)[:-1], "longer than its column chunk"),
        (_page(None), "has no size"),
        (_page(-4), "has no size"),
        (b"\xff" * 5000, "damaged"),
        (_page(100)[:3], "damaged"),
    ],
)
def test_what_is_not_a_page_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(CannotSpliceError, match=reason):
        _pages(data)
