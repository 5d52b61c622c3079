"""The rows of a column chunk at some places, without decoding all of it.

pyarrow decodes whole chunks. To compare some rows, the pages that hold them are enough. Pages of
places in a dictionary are read by place; others are put into a small file in memory, and that is
read. Only columns without nesting are read this way: in their pages, and there alone, values are
rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from fsspeckit.core.parquet.format.page_headers import DICTIONARY_ENCODINGS, DICTIONARY_PAGE
from fsspeckit.core.parquet.format.thrift import Struct
from fsspeckit.core.parquet.format.values import SmallFile, schema_without_stored
from fsspeckit.core.parquet.patch.hits import Hit, find_hit
from fsspeckit.core.parquet.patch.indexed import IndexedPages, indexed_pages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsspeckit.core.parquet.format.columns import Column
    from fsspeckit.core.parquet.format.layout import Anatomy, Read
    from fsspeckit.core.parquet.patch.hits import Places

__all__ = ["MANY_ROWS", "PageValues", "Prober"]

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
class PageValues(Hit):
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
class Prober:
    """Reads rows of a file by their places."""

    anatomy: Anatomy
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
        together: dict[tuple[tuple[int, int], ...], list[Hit]] = {}
        found: dict[str, PageValues | IndexedPages] = {}
        if len(places) > min(_FEW_PLACES, group.rows // 2) or group.rows < MANY_ROWS:
            return found
        for column in filter(_is_flat, self.columns):
            chunk = group.chunks[column.first_leaf]
            hit = find_hit(column, chunk, group.rows, places, self.read)
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

    def _indexed(self, hit: Hit) -> IndexedPages | None:
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

    def _decoded(self, hits: Sequence[Hit], spans: Sequence[tuple[int, int]]) -> pa.Table:
        rows = sum(end - start for start, end in spans)
        file = SmallFile(rows, self.anatomy.footer.values.get(6, b""))
        for one in hits:
            element = self._elements[one.column.name]
            file.add(element, _metadata(one), self._dictionary(one), self._pages(one))
        return file.read()

    def _dictionary(self, one: Hit) -> bytes:
        """The dictionary page, if one of the pages needs it."""
        if not any(page.encoding in DICTIONARY_ENCODINGS for page in one.hit):
            return b""
        dictionary = [page.part for page in one.pages if page.kind == DICTIONARY_PAGE]
        return b"".join(self.read(part.start, part.length) for part in dictionary)

    def _pages(self, one: Hit) -> list[bytes]:
        return [self.read(page.part.start, page.part.length) for page in one.hit]


def _is_flat(column: Column) -> bool:
    (_, physical, _, repetition, *_), *rest = column.meaning
    return not rest and repetition != _REPEATED and physical != _INT96


def _is_view(data_type: pa.DataType) -> bool:
    return data_type in (pa.string_view(), pa.binary_view())


def _metadata(one: Hit) -> Struct:
    """What the footer says of a chunk, as far as its decoder must know."""
    known = one.chunk.metadata
    kinds = {number: kind for number, kind in known.kinds.items() if number in _NEEDED}
    return Struct({number: known.values[number] for number in kinds}, {}, kinds)
