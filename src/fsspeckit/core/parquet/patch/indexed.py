"""Rows of a column chunk whose pages hold places in a dictionary: read and replaced by place.

The values of other rows are not decoded, and their places only if the dictionary grows. A new value
gets the place of its like, or one after the last; pages keep their order and their kind, as writers
make them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.parquet.format.layout import CannotSpliceError, Range
from fsspeckit.core.parquet.format.page_headers import DICTIONARY_ENCODINGS, DICTIONARY_PAGE
from fsspeckit.core.parquet.format.pages import DictionaryPage, IndexPage, codec_of
from fsspeckit.core.parquet.format.plain import plain_array, plain_slices, storage_of
from fsspeckit.core.parquet.patch.hits import Hit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fsspeckit.core.parquet.format.hybrid import Codes
    from fsspeckit.core.parquet.format.layout import Read
    from fsspeckit.core.parquet.format.page_headers import Page
    from fsspeckit.core.parquet.format.pages import Parts

__all__ = ["IndexedPages", "indexed_pages"]

_CODEC: Final = 4
# A dictionary may have so many more values than the chunk has rows: nobody takes out old ones.
_MOST: Final = 1.25
# In bytes. Writers give up at a megabyte, or a little later.
_LONGEST: Final = 5 << 18
# Looking for few values in a large dictionary costs more than having some of them twice.
_SMALL, _EACH = 8192, 64
_BYTES: Final = 6


@dataclass(frozen=True)
class IndexedPages(Hit):
    """Those pages of a column chunk that hold some rows, by places in the dictionary."""

    dictionary: DictionaryPage
    values: pa.Array
    """The values of the dictionary, in the type that pyarrow reads without a stored schema."""

    bodies: tuple[IndexPage, ...]
    """The pages that hold the rows."""

    rows: pa.Array
    """The values of the rows."""

    @property
    def type(self) -> pa.DataType:
        """The type of the values."""
        return self.values.type

    @property
    def nbytes(self) -> int:
        """What it takes in memory."""
        pages = sum(page.nbytes for page in self.bodies)
        body = self.dictionary.body
        dictionary = len(self.dictionary.values) + (0 if isinstance(body, Range) else len(body))
        return int(self.values.nbytes + self.rows.nbytes + dictionary + pages)

    def replaced(self, new: pa.Array, plain: bytes, read: Read) -> list[Parts] | None:
        """The dictionary and these pages with other values for the rows.

        Args:
            new: The values, of the type of the dictionary's.
            plain: Those among them that are not NULL, as the file would store them.
            read: Reads bytes of the file.

        Returns:
            The new pages; None if the dictionary would get too large.

        Raises:
            CannotSpliceError: If a page is damaged.
        """
        codes, added = self._codes_of(new)
        more = plain_slices(plain, new.drop_null(), self.column, added)
        if not self._has_room(len(added), len(more)):
            return None
        if len(added):
            self._check_codes(read)
        pages = [
            page.replaced(inside, codes[part])
            for page, inside, part in _by_page(self.bodies, self.spans, self.places)
        ]
        return [self.dictionary.extended(more, len(added)), *pages]

    def _has_room(self, count: int, size: int) -> bool:
        """Whether the dictionary may get so many more values, of so many bytes."""
        most = _MOST * self.chunk.metadata.values[5]
        is_long = len(self.dictionary.values) + size > _LONGEST
        return not count or (self.dictionary.count + count <= most and not is_long)

    def _check_codes(self, read: Read) -> None:
        """See that no page points beyond the dictionary: there will be values that it would get.

        Raises:
            CannotSpliceError: If one does.
        """
        opened = dict(zip(self.hit, self.bodies, strict=True))
        for page in self.pages:
            if page.encoding not in DICTIONARY_ENCODINGS or not page.is_data:
                continue
            body = opened.get(page) or _opened(self, page, read)
            has_bits = 1 << body.width > self.dictionary.count
            if has_bits and body.most >= self.dictionary.count:
                raise _beyond(self)

    def _codes_of(self, new: pa.Array) -> tuple[Codes, Codes]:
        """The place of each new value, and which of those that are not NULL are to be added."""
        encoded = _comparable(new).dictionary_encode()
        numbers = encoded.indices.fill_null(-1).to_numpy().astype(np.int64)
        places = np.full(len(encoded.dictionary) + 1, -1, np.int64)  # the last is that of NULL
        if self._is_looked_through(len(new)):
            found = pc.index_in(_comparable(self.values), value_set=encoded.dictionary)
            at = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
            places[found.take(pa.array(at)).to_numpy()] = at
        missing = np.flatnonzero(places[:-1] < 0)
        places[missing] = self.dictionary.count + np.arange(len(missing))
        _, first = np.unique(numbers[numbers >= 0], return_index=True)
        return places[numbers], first[missing]

    def _is_looked_through(self, count: int) -> bool:
        """Whether new values are looked for among the old ones.

        Strings are: pandas makes categories of their dictionary, which must not be the same.
        """
        is_cheap = len(self.values) <= max(_SMALL, _EACH * count)
        return is_cheap or self.column.physical[0] == _BYTES


def indexed_pages(
    hit: Hit, element: bytes, data_type: pa.DataType, read: Read
) -> IndexedPages | None:
    """Open the pages that hold some rows.

    Args:
        hit: The pages.
        element: The column in the schema of the file.
        data_type: What pyarrow reads it as.
        read: Reads bytes of the file.

    Returns:
        None if some of them hold no places in a dictionary, or it cannot be written any more.

    Raises:
        CannotSpliceError: If they are damaged.
    """
    codec = codec_of(hit.chunk.metadata.values[_CODEC])
    dictionary = next((page for page in hit.pages if page.kind == DICTIONARY_PAGE), None)
    if dictionary is None or codec is None:
        return None
    if any(page.encoding not in DICTIONARY_ENCODINGS for page in hit.hit):
        return None
    part = dictionary.part
    opened = DictionaryPage.of(read(part.start, part.length), part, codec)
    values = plain_array(opened.values, opened.count, hit.column, element, data_type)
    bodies = tuple(_opened(hit, page, read) for page in hit.hit)
    rows = _rows(bodies, hit, values)
    return IndexedPages(**vars(hit), dictionary=opened, values=values, bodies=bodies, rows=rows)


def _opened(hit: Hit, page: Page, read: Read) -> IndexPage:
    codec = codec_of(hit.chunk.metadata.values[_CODEC])
    assert codec is not None
    data = read(page.part.start, page.part.length)
    return IndexPage.of(data, codec, is_optional=hit.is_optional)


def _beyond(hit: Hit) -> CannotSpliceError:
    return CannotSpliceError(f"a page of {hit.chunk.path!r} points beyond its dictionary")


def _rows(bodies: tuple[IndexPage, ...], hit: Hit, values: pa.Array) -> pa.Array:
    """The values of the rows.

    Raises:
        CannotSpliceError: If the dictionary has no such values.
    """
    found = [page.at(inside) for page, inside, _ in _by_page(bodies, hit.spans, hit.places)]
    codes = np.concatenate(found)
    if codes.max() >= len(values):
        raise _beyond(hit)
    return values.take(pa.array(codes, mask=codes < 0))


def _by_page(
    bodies: tuple[IndexPage, ...], spans: tuple[tuple[int, int], ...], places: Codes
) -> Iterator[tuple[IndexPage, Codes, slice]]:
    """Each page, where rows are in it, and which of the rows these are."""
    for page, (start, end) in zip(bodies, spans, strict=True):
        first, last = np.searchsorted(places, [start, end])
        yield page, places[first:last] - start, slice(first, last)


def _comparable(values: pa.Array) -> pa.Array:
    """Values that are equal if their bytes are: one NaN is not like another, nor 0.0 like -0.0."""
    values = storage_of(values)
    if pa.types.is_floating(values.type):
        return values.view({16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[values.type.bit_width])
    return values
