"""Rows of a column chunk at some positions, read without decoding the whole chunk.

pyarrow decodes whole chunks; to compare some rows, the pages that hold them are enough. Pages of
dictionary indices are read index by index, others as a small file in memory. Only columns without
nesting are read this way: in their pages alone a value is a row.
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

    from fsspeckit.core.parquet.format.layout import Chunk, Column, FileLayout, Read
    from fsspeckit.core.parquet.format.pages import Integers, Page

_OPTIONAL, _REPEATED = 1, 2
_INT96: Final = 3
_BYTES: Final = 6
_CODEC: Final = 4
_DECODER_FIELDS: Final = (1, 2, 3, 4, 6)
# A dictionary may have so many times the values that the chunk has rows: old ones are not removed.
_MAX_DICTIONARY_SHARE: Final = 1.25
# Writers give up a dictionary at a megabyte, or a little later.
_MAX_DICTIONARY_BYTES: Final = 5 << 18
# To search a larger dictionary costs more than to store a value twice.
_MAX_SEARCHED_VALUES, _MAX_SEARCHED_PER_VALUE = 8192, 64
# Decoding more than this share of the pages saves too little.
_MAX_PAGE_SHARE: Final = 0.5
# More positions are in most of the pages, and pyarrow is faster at whole chunks.
_MAX_POSITIONS: Final = 256
# Smaller row groups are decoded and encoded in the time that it takes to open their pages.
MIN_PROBED_ROWS = 50_000
"""Row groups of fewer rows are not probed."""


@dataclass(frozen=True)
class PageSelection:
    """The pages of a column chunk that hold some rows."""

    column: Column
    chunk: Chunk
    pages: tuple[Page, ...]
    """All pages of the chunk."""

    selected: tuple[Page, ...]
    """Those that hold the rows."""

    spans: tuple[tuple[int, int], ...]
    """The first row of each selected page, and the row after its last."""

    positions: Integers
    """The rows, ascending."""

    @property
    def is_optional(self) -> bool:
        """Whether values may be NULL."""
        return bool(self.column.meaning[0][3] == _OPTIONAL)

    @property
    def share(self) -> float:
        """The share of the selected pages in the bytes of the chunk."""
        return sum(page.part.length for page in self.selected) / self.chunk.data.length


def select_pages(
    column: Column, chunk: Chunk, rows: int, positions: Integers, read: Read
) -> PageSelection | None:
    """Find the pages that hold some rows of a column; None if the footer does not match them."""
    pages = tuple(pages_of(chunk, read))
    dictionaries = [page for page in pages if page.kind == DICTIONARY_PAGE]
    data = [page for page in pages if page.is_data]
    ends = np.cumsum([page.values for page in data])
    # All pages are counted, not only those up to the last position: one wrong number before a
    # position would make another row of it, and a change would be missed.
    if not data or len(dictionaries) > 1 or ends[-1] != rows or chunk.metadata.values[5] != rows:
        return None
    numbers = np.unique(np.searchsorted(ends, positions, side="right"))
    spans = tuple((int(ends[n]) - data[n].values, int(ends[n])) for n in numbers)
    return PageSelection(column, chunk, pages, tuple(data[n] for n in numbers), spans, positions)


@dataclass(frozen=True)
class IndexedPages(PageSelection):
    """Selected pages that all hold dictionary indices.

    Rows are read and replaced by their indices. A new value gets the index of an equal one in the
    dictionary, or is added to its end; pages keep their order and their kind.
    """

    dictionary: DictionaryPage
    values: pa.Array
    """The values of the dictionary, in the type that pyarrow reads without a stored schema."""

    bodies: tuple[IndexPage, ...]
    """The selected pages."""

    rows: pa.Array
    """The values of the rows."""

    @property
    def type(self) -> pa.DataType:
        """The type of the values."""
        return self.values.type

    @property
    def nbytes(self) -> int:
        """Its size in memory."""
        pages = sum(page.nbytes for page in self.bodies)
        return int(self.values.nbytes + self.rows.nbytes + len(self.dictionary.values) + pages)

    def replaced(self, new: pa.Array, plain: bytes, read: Read) -> dict[Page, bytes] | None:
        """Return the pages that change when the rows get other values.

        Args:
            new: The values, in the type of the dictionary's.
            plain: The plain encoding of those that are not NULL.
            read: Reads bytes of the file.

        Returns:
            Each old page with its new bytes; None if the dictionary would get too large.

        Raises:
            CannotSpliceError: If a page is damaged.
        """
        indices, added = self._indices_of(new)
        added_bytes = plain_slices(plain, new.drop_null(), self.column, added)
        if not self._has_room(len(added), len(added_bytes)):
            return None
        pages = [
            page.replaced(inside, indices[part])
            for page, inside, part in _by_page(self.bodies, self)
        ]
        made = dict(zip(self.selected, pages, strict=True))
        if len(added):
            self._check_indices(read)
            dictionary = next(page for page in self.pages if page.kind == DICTIONARY_PAGE)
            made[dictionary] = self.dictionary.extended(added_bytes, len(added))
        return made

    def _has_room(self, count: int, size: int) -> bool:
        """Whether the dictionary may get ``count`` values of ``size`` bytes."""
        max_count = _MAX_DICTIONARY_SHARE * self.chunk.metadata.values[5]
        is_long = len(self.dictionary.values) + size > _MAX_DICTIONARY_BYTES
        return not count or (self.dictionary.count + count <= max_count and not is_long)

    def _check_indices(self, read: Read) -> None:
        """Check that no index points beyond the dictionary, where new values will be."""
        opened = dict(zip(self.selected, self.bodies, strict=True))
        for page in self.pages:
            if page.encoding not in DICTIONARY_ENCODINGS or not page.is_data:
                continue
            body = opened.get(page) or _opened(self, page, read)
            has_bits = 1 << body.width > self.dictionary.count
            if has_bits and body.largest_index >= self.dictionary.count:
                raise _beyond(self)

    def _indices_of(self, new: pa.Array) -> tuple[Integers, Integers]:
        """The index of each new value, and the positions of those to add, NULL not counted."""
        encoded = _comparable(new).dictionary_encode()
        numbers = encoded.indices.fill_null(-1).to_numpy().astype(np.int64)
        indices = np.full(len(encoded.dictionary) + 1, -1, np.int64)  # the last is that of NULL
        if self._is_searched(len(new)):
            found = pc.index_in(_comparable(self.values), value_set=encoded.dictionary)
            at = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
            indices[found.take(pa.array(at)).to_numpy()] = at
        missing = np.flatnonzero(indices[:-1] < 0)
        indices[missing] = self.dictionary.count + np.arange(len(missing))
        _, first = np.unique(numbers[numbers >= 0], return_index=True)
        return indices[numbers], first[missing]

    def _is_searched(self, count: int) -> bool:
        """Whether the dictionary is searched for ``count`` new values.

        For strings it is: pandas makes categories of their dictionary, and these must differ.
        """
        limit = max(_MAX_SEARCHED_VALUES, _MAX_SEARCHED_PER_VALUE * count)
        return len(self.values) <= limit or self.column.physical[0] == _BYTES


def indexed_pages(
    selection: PageSelection, element: bytes, data_type: pa.DataType, read: Read
) -> IndexedPages | None:
    """Open the selected pages.

    Args:
        selection: The pages.
        element: The ``SchemaElement`` of the column.
        data_type: What pyarrow reads it as.
        read: Reads bytes of the file.

    Returns:
        None if some of them hold no dictionary indices, or their codec cannot be written.

    Raises:
        CannotSpliceError: If they are damaged.
    """
    codec = codec_of(selection.chunk.metadata.values[_CODEC])
    dictionary = next((page for page in selection.pages if page.kind == DICTIONARY_PAGE), None)
    if dictionary is None or codec is None:
        return None
    if any(page.encoding not in DICTIONARY_ENCODINGS for page in selection.selected):
        return None
    opened = DictionaryPage.of(read(dictionary.part.start, dictionary.part.length), codec)
    values = plain_array(opened.values, opened.count, selection.column, element, data_type)
    bodies = tuple(_opened(selection, page, read) for page in selection.selected)
    indices = np.concatenate([page.at(inside) for page, inside, _ in _by_page(bodies, selection)])
    if indices.max() >= len(values):
        raise _beyond(selection)
    rows = values.take(pa.array(indices, mask=indices < 0))
    return IndexedPages(
        **vars(selection), dictionary=opened, values=values, bodies=bodies, rows=rows
    )


def _opened(selection: PageSelection, page: Page, read: Read) -> IndexPage:
    codec = codec_of(selection.chunk.metadata.values[_CODEC])
    assert codec is not None
    data = read(page.part.start, page.part.length)
    return IndexPage.of(data, codec, is_optional=selection.is_optional)


def _beyond(selection: PageSelection) -> CannotSpliceError:
    return CannotSpliceError(f"a page of {selection.chunk.path!r} points beyond its dictionary")


def _by_page(
    bodies: tuple[IndexPage, ...], selection: PageSelection
) -> Iterator[tuple[IndexPage, Integers, slice]]:
    """Each page, the positions of its rows in it, and which of all rows these are."""
    for page, (start, end) in zip(bodies, selection.spans, strict=True):
        first, last = np.searchsorted(selection.positions, [start, end])
        yield page, selection.positions[first:last] - start, slice(first, last)


def _comparable(values: pa.Array) -> pa.Array:
    """Values that are equal only if their bytes are: NaNs differ, and so do 0.0 and -0.0."""
    values = storage_of(values)
    if pa.types.is_floating(values.type):
        return values.view({16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[values.type.bit_width])
    return values


@dataclass(frozen=True)
class PageValues(PageSelection):
    """Selected pages with their decoded values."""

    values: pa.ChunkedArray
    """All values of the pages, in the type that pyarrow reads without a stored Arrow schema."""

    @property
    def type(self) -> pa.DataType:
        """The type of the values."""
        return self.values.type

    @property
    def nbytes(self) -> int:
        """Its size in memory."""
        return int(self.values.nbytes)

    @property
    def rows(self) -> pa.ChunkedArray:
        """The values of the rows."""
        return self.values.take(pa.array(self.inside))

    @property
    def inside(self) -> Integers:
        """The positions of the rows among the values."""
        starts = np.array([start for start, _ in self.spans], np.int64)
        sizes = [end - start for start, end in self.spans]
        before = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        page = np.searchsorted(starts, self.positions, side="right") - 1
        inside: Integers = (before[page] + self.positions - starts[page]).astype(np.int64)
        return inside


@dataclass(frozen=True)
class PageReader:
    """Reads rows of a file by their positions."""

    layout: FileLayout
    columns: Sequence[Column]
    read: Read

    def probe(self, number: int, positions: Integers) -> dict[str, PageValues | IndexedPages]:
        """Read the pages of a row group that hold some rows.

        Args:
            number: The row group.
            positions: Rows of it, ascending.

        Returns:
            The pages by column; columns for which this does not work, or does not pay, are left
            out.

        Raises:
            CannotSpliceError: If the pages of a chunk are not what its footer says.
        """
        group = self.layout.groups[number]
        by_spans: dict[tuple[tuple[int, int], ...], list[PageSelection]] = {}
        found: dict[str, PageValues | IndexedPages] = {}
        if len(positions) > min(_MAX_POSITIONS, group.rows // 2) or group.rows < MIN_PROBED_ROWS:
            return found
        for column in filter(_is_flat, self.columns):
            chunk, name = group.chunks[column.first_leaf], column.name
            selection = select_pages(column, chunk, group.rows, positions, self.read)
            if selection is None:
                continue
            indexed = indexed_pages(selection, self._elements[name], self._types[name], self.read)
            if indexed is not None:
                found[name] = indexed
            elif selection.share <= _MAX_PAGE_SHARE:
                by_spans.setdefault(selection.spans, []).append(selection)
        for spans, selections in by_spans.items():
            table = self._decoded(selections, spans)
            for one, data in zip(selections, table.columns, strict=True):
                found[one.column.name] = PageValues(**vars(one), values=data)
        views = (pa.string_view(), pa.binary_view())
        return {name: one for name, one in found.items() if one.type not in views}

    @cached_property
    def _elements(self) -> dict[str, bytes]:
        elements = self.layout.elements
        return {one.name: elements[one.first_element] for one in self.columns if _is_flat(one)}

    @cached_property
    def _types(self) -> dict[str, pa.DataType]:
        schema = schema_without_stored([*self._elements.values()])
        return dict(zip(self._elements, schema.types, strict=True))

    def _decoded(
        self, selections: Sequence[PageSelection], spans: Sequence[tuple[int, int]]
    ) -> pa.Table:
        rows = sum(end - start for start, end in spans)
        file = InMemoryFile(rows, self.layout.footer.values.get(6, b""))
        for one in selections:
            is_indexed = any(page.encoding in DICTIONARY_ENCODINGS for page in one.selected)
            dictionaries = [p for p in one.pages if p.kind == DICTIONARY_PAGE and is_indexed]
            element = self._elements[one.column.name]
            dictionary = b"".join(self._bytes(dictionaries))
            file.add(element, _metadata(one), dictionary, self._bytes(one.selected))
        return file.read()

    def _bytes(self, pages: Sequence[Page]) -> list[bytes]:
        return [self.read(page.part.start, page.part.length) for page in pages]


def _is_flat(column: Column) -> bool:
    (_, physical, _, repetition, *_), *rest = column.meaning
    return not rest and repetition != _REPEATED and physical != _INT96


def _metadata(one: PageSelection) -> Struct:
    """The fields of the ``ColumnMetaData`` that a decoder needs."""
    known = one.chunk.metadata
    kinds = {number: kind for number, kind in known.kinds.items() if number in _DECODER_FIELDS}
    return Struct({number: known.values[number] for number in kinds}, {}, kinds)
