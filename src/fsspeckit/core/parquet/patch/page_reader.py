"""The rows of a column chunk at some places, without decoding all of it.

pyarrow decodes whole chunks. To compare some rows, the pages that hold them are enough. Pages of
places in a dictionary are read by place; others are put into a small file in memory, and that is
read. Only columns without nesting are read this way: in their pages, and there alone, values are
rows.

Those pages of a column chunk that hold some rows.

Rows of a column chunk whose pages hold places in a dictionary: read and replaced by place.

The values of other rows are not decoded, and their places only if the dictionary grows. A new value
gets the place of its like, or one after the last; pages keep their order and their kind, as writers
make them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.parquet.format.layout import CannotSpliceError
from fsspeckit.core.parquet.format.pages import (
    DICTIONARY_ENCODINGS,
    DICTIONARY_PAGE,
    DictionaryPage,
    IndexPage,
    codec_of,
    pages_of,
)
from fsspeckit.core.parquet.format.thrift import Struct
from fsspeckit.core.parquet.format.values import (
    InMemoryFile,
    plain_array,
    plain_slices,
    schema_without_stored,
    storage_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from fsspeckit.core.parquet.format.layout import Chunk, Column, FileLayout, Read
    from fsspeckit.core.parquet.format.pages import Codes, Page, Parts

    Places = NDArray[np.int64]

__all__ = [
    "MANY_ROWS",
    "IndexedPages",
    "PageReader",
    "PageSelection",
    "PageValues",
    "indexed_pages",
    "select_pages",
]


# --- Those pages of a column chunk that hold some rows ---

_OPTIONAL: Final = 1


@dataclass(frozen=True)
class PageSelection:
    """Those pages of a column chunk that hold some rows."""

    column: Column
    chunk: Chunk
    pages: tuple[Page, ...]
    """All pages of the chunk."""

    hit: tuple[Page, ...]
    """Those that hold the rows."""

    spans: tuple[tuple[int, int], ...]
    """For each of these, its first row and the row after its last."""

    places: Places
    """The rows, ascending."""

    @property
    def is_optional(self) -> bool:
        """Whether values may be NULL."""
        return bool(self.column.meaning[0][3] == _OPTIONAL)

    @property
    def share(self) -> float:
        """How much of the chunk these pages are."""
        return sum(page.part.length for page in self.hit) / self.chunk.data.length


def select_pages(
    column: Column, chunk: Chunk, rows: int, places: Places, read: Read
) -> PageSelection | None:
    """The pages that hold some rows of a column that is not nested.

    Returns:
        None if the pages are not what the footer says.
    """
    pages = tuple(pages_of(chunk, read))
    dictionaries = [page for page in pages if page.kind == DICTIONARY_PAGE]
    data = [page for page in pages if page.is_data]
    ends = np.cumsum([page.values for page in data])
    # All pages are counted, not only those up to the last place: one wrong number before a place
    # would make another row of it, and a change would be missed.
    if not data or len(dictionaries) > 1 or ends[-1] != rows or chunk.metadata.values[5] != rows:
        return None
    hit = np.unique(np.searchsorted(ends, places, side="right"))
    spans = tuple((int(ends[n]) - data[n].values, int(ends[n])) for n in hit)
    return PageSelection(column, chunk, pages, tuple(data[n] for n in hit), spans, places)


# --- Rows of a column chunk whose pages hold places in a dictionary ---

_CODEC: Final = 4
# A dictionary may have so many more values than the chunk has rows: nobody takes out old ones.
_MOST: Final = 1.25
# In bytes. Writers give up at a megabyte, or a little later.
_LONGEST: Final = 5 << 18
# Looking for few values in a large dictionary costs more than having some of them twice.
_SMALL, _EACH = 8192, 64
_BYTES: Final = 6


@dataclass(frozen=True)
class IndexedPages(PageSelection):
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
        return int(self.values.nbytes + self.rows.nbytes + len(self.dictionary.values) + pages)

    def replaced(self, new: pa.Array, plain: bytes, read: Read) -> dict[Page, Parts] | None:
        """Return the pages that change when the rows get other values.

        Args:
            new: The values, of the type of the dictionary's.
            plain: Those among them that are not NULL, as the file would store them.
            read: Reads bytes of the file.

        Returns:
            Each old page with its new bytes; None if the dictionary would get too large.

        Raises:
            CannotSpliceError: If a page is damaged.
        """
        codes, added = self._codes_of(new)
        more = plain_slices(plain, new.drop_null(), self.column, added)
        if not self._has_room(len(added), len(more)):
            return None
        pages = [
            page.replaced(inside, codes[part])
            for page, inside, part in _by_page(self.bodies, self.spans, self.places)
        ]
        made = dict(zip(self.hit, pages, strict=True))
        if len(added):
            self._check_codes(read)
            dictionary = next(page for page in self.pages if page.kind == DICTIONARY_PAGE)
            made[dictionary] = self.dictionary.extended(more, len(added))
        return made

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
    hit: PageSelection, element: bytes, data_type: pa.DataType, read: Read
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
    opened = DictionaryPage.of(read(dictionary.part.start, dictionary.part.length), codec)
    values = plain_array(opened.values, opened.count, hit.column, element, data_type)
    bodies = tuple(_opened(hit, page, read) for page in hit.hit)
    rows = _rows(bodies, hit, values)
    return IndexedPages(**vars(hit), dictionary=opened, values=values, bodies=bodies, rows=rows)


def _opened(hit: PageSelection, page: Page, read: Read) -> IndexPage:
    codec = codec_of(hit.chunk.metadata.values[_CODEC])
    assert codec is not None
    data = read(page.part.start, page.part.length)
    return IndexPage.of(data, codec, is_optional=hit.is_optional)


def _beyond(hit: PageSelection) -> CannotSpliceError:
    return CannotSpliceError(f"a page of {hit.chunk.path!r} points beyond its dictionary")


def _rows(bodies: tuple[IndexPage, ...], hit: PageSelection, values: pa.Array) -> pa.Array:
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


# --- The rows of a column chunk at some places, without decoding all of it ---

_INT96: Final = 3
_REPEATED: Final = 2
_NEEDED: Final = (1, 2, 3, 4, 6)
# Decoding more than this share of the pages saves too little.
_WORTHWHILE: Final = 0.5
# Many places are in most of the pages, and pyarrow is faster at whole chunks.
_FEW_PLACES: Final = 256
# Of fewer rows whole chunks are decoded and encoded in the time that it takes to open their pages.
MANY_ROWS = 50_000
"""Row groups of fewer rows are not probed."""


@dataclass(frozen=True)
class PageValues(PageSelection):
    """The values of those pages of a column chunk that hold some rows."""

    values: pa.ChunkedArray
    """All of their values, in the type that pyarrow reads without a stored Arrow schema."""

    @property
    def type(self) -> pa.DataType:
        """The type of the values."""
        return self.values.type

    @property
    def nbytes(self) -> int:
        """What it takes in memory."""
        return int(self.values.nbytes)

    @property
    def rows(self) -> pa.ChunkedArray:
        """The values of the rows."""
        return self.values.take(pa.array(self.inside))

    @property
    def inside(self) -> Places:
        """Where the rows are among the values."""
        starts = np.array([start for start, _ in self.spans], np.int64)
        sizes = [end - start for start, end in self.spans]
        before = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        page = np.searchsorted(starts, self.places, side="right") - 1
        inside: Places = (before[page] + self.places - starts[page]).astype(np.int64)
        return inside


@dataclass(frozen=True)
class PageReader:
    """Reads rows of a file by their places."""

    anatomy: FileLayout
    columns: Sequence[Column]
    read: Read

    def probe(self, number: int, places: Places) -> dict[str, PageValues | IndexedPages]:
        """Read the pages of a row group that hold some rows.

        Args:
            number: The row group.
            places: Rows of it, ascending.

        Returns:
            By column; those for which this would not work, or not pay, are left out.

        Raises:
            CannotSpliceError: If the pages of a chunk are not what its footer says.
        """
        group = self.anatomy.groups[number]
        together: dict[tuple[tuple[int, int], ...], list[PageSelection]] = {}
        found: dict[str, PageValues | IndexedPages] = {}
        if len(places) > min(_FEW_PLACES, group.rows // 2) or group.rows < MANY_ROWS:
            return found
        for column in filter(_is_flat, self.columns):
            chunk = group.chunks[column.first_leaf]
            hit = select_pages(column, chunk, group.rows, places, self.read)
            if hit is None:
                continue
            indexed = self._indexed(hit)
            if indexed is not None:
                found[column.name] = indexed
            elif hit.share <= _WORTHWHILE:
                together.setdefault(hit.spans, []).append(hit)
        for spans, hits in together.items():
            table = self._decoded(hits, spans)
            for one, data in zip(hits, table.columns, strict=True):
                found[one.column.name] = PageValues(**vars(one), values=data)
        return {name: one for name, one in found.items() if not _is_view(one.type)}

    def _indexed(self, hit: PageSelection) -> IndexedPages | None:
        """The pages by places in the dictionary, if they are such."""
        name = hit.column.name
        return indexed_pages(hit, self._elements[name], self._types[name], self.read)

    @cached_property
    def _elements(self) -> dict[str, bytes]:
        elements = self.anatomy.elements
        return {one.name: elements[one.first_element] for one in self.columns if _is_flat(one)}

    @cached_property
    def _types(self) -> dict[str, pa.DataType]:
        schema = schema_without_stored([*self._elements.values()])
        return dict(zip(self._elements, schema.types, strict=True))

    def _decoded(self, hits: Sequence[PageSelection], spans: Sequence[tuple[int, int]]) -> pa.Table:
        rows = sum(end - start for start, end in spans)
        file = InMemoryFile(rows, self.anatomy.footer.values.get(6, b""))
        for one in hits:
            element = self._elements[one.column.name]
            file.add(element, _metadata(one), self._dictionary(one), self._pages(one))
        return file.read()

    def _dictionary(self, one: PageSelection) -> bytes:
        """The dictionary page, if one of the pages needs it."""
        if not any(page.encoding in DICTIONARY_ENCODINGS for page in one.hit):
            return b""
        dictionary = [page.part for page in one.pages if page.kind == DICTIONARY_PAGE]
        return b"".join(self.read(part.start, part.length) for part in dictionary)

    def _pages(self, one: PageSelection) -> list[bytes]:
        return [self.read(page.part.start, page.part.length) for page in one.hit]


def _is_flat(column: Column) -> bool:
    (_, physical, _, repetition, *_), *rest = column.meaning
    return not rest and repetition != _REPEATED and physical != _INT96


def _is_view(data_type: pa.DataType) -> bool:
    return data_type in (pa.string_view(), pa.binary_view())


def _metadata(one: PageSelection) -> Struct:
    """What the footer says of a chunk, as far as its decoder must know."""
    known = one.chunk.metadata
    kinds = {number: kind for number, kind in known.kinds.items() if number in _NEEDED}
    return Struct({number: known.values[number] for number in kinds}, {}, kinds)
