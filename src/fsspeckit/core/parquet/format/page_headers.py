"""The pages of a column chunk, found by their headers.

A footer may be damaged in a way that still looks like one: a chunk that is said to be shorter than
it is would be copied without its end. Where the parts of a file do not meet exactly, the pages
themselves tell how long a chunk is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fsspeckit.core.parquet.format.layout import CannotSpliceError, Range
from fsspeckit.core.parquet.format.thrift import INT, Spec, ThriftError, decode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fsspeckit.core.parquet.format.layout import Anatomy, Chunk, Read

__all__ = ["Page", "check_chunks", "pages_in", "pages_of"]

_HEADER: Final[Spec] = {
    1: INT, 2: INT, 3: INT, 5: {1: INT, 2: INT}, 7: {2: INT}, 8: {1: INT, 3: INT, 4: INT},
}  # fmt: skip
_CHECKSUM: Final = 4
_ENCODING: Final = {5: 2, 7: 2, 8: 4}
_FIRST_READ: Final = 256
_LARGEST_HEADER: Final = 1 << 20
DATA_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = 0, 2, 3
DICTIONARY_ENCODINGS: Final = (2, 8)
"""Of data pages that hold indices into the dictionary."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page with its header."""

    part: Range
    kind: int
    values: int
    """How many values it holds, NULL included; 0 for a dictionary."""

    raw_bytes: int = 0
    """Its bytes with its header, as if it were not compressed."""

    encoding: int | None = None
    has_checksum: bool = False

    @property
    def is_data(self) -> bool:
        """Whether it holds values of rows."""
        return self.kind in (DATA_PAGE, DATA_PAGE_V2)


def pages_of(chunk: Chunk, read: Read) -> Iterator[Page]:
    """Find the pages of a chunk, one after the other.

    Raises:
        CannotSpliceError: If they do not fill the chunk exactly.
    """
    return pages_in(chunk.data, chunk.path, read)


def pages_in(data: Range, column: str, read: Read) -> Iterator[Page]:
    """Find the pages of a part of a file that holds a chunk of a column.

    Raises:
        CannotSpliceError: If they do not fill it exactly.
    """
    position, end = data.start, data.end
    while position < end:
        page = _page(position, end, read)
        if page.part.end > end:
            raise CannotSpliceError(f"a page of {column!r} is longer than its column chunk")
        yield page
        position = page.part.end


def _page(start: int, end: int, read: Read) -> Page:
    wanted = _FIRST_READ
    while True:
        data = read(start, min(wanted, end - start))
        try:
            header, length = decode(data, _HEADER)
            break
        except ThriftError as error:
            # Statistics in a header make it long; one that is longer still is damaged.
            if wanted >= min(_LARGEST_HEADER, end - start):
                raise CannotSpliceError(f"the header of a page is damaged: {error}") from error
            wanted *= 16
    values = header.values
    if values.get(3, -1) < 0:
        raise CannotSpliceError("the header of a page has no size")
    counts = (values[number].values.get(1, 0) for number in (5, 8) if number in values)
    encodings = (values[n].values.get(at) for n, at in _ENCODING.items() if n in values)
    return Page(
        Range(start, length + values[3]),
        values.get(1, -1),
        sum(counts),
        length + values.get(2, 0),
        next(encodings, None),
        _CHECKSUM in header.kinds,
    )


def check_chunks(anatomy: Anatomy, read: Read) -> None:
    """See that every chunk is as long as its pages.

    Where one part of the file ends at the first byte of another, or of the footer, two numbers of
    the footer agree, and the pages are not asked.

    Raises:
        CannotSpliceError: If the pages do not fill a chunk, or hold another number of values.
    """
    chunks = [chunk for group in anatomy.groups for chunk in group.chunks]
    starts = {anatomy.footer_start, *(chunk.data.start for chunk in chunks)}
    for chunk in chunks:
        tail = (chunk.bloom, chunk.column_index, chunk.offset_index)
        starts.update(part.start for part in tail if part is not None)
    for chunk in chunks:
        if chunk.data.end not in starts:
            values = sum(page.values for page in pages_of(chunk, read))
            if values != chunk.metadata.values[5]:
                raise CannotSpliceError(f"the pages of {chunk.path!r} hold {values:,} values")
