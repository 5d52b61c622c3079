"""Those pages of a column chunk that hold some rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from fsspeckit.core.parquet.format.page_headers import DICTIONARY_PAGE, pages_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fsspeckit.core.parquet.format.columns import Column
    from fsspeckit.core.parquet.format.layout import Chunk, Read
    from fsspeckit.core.parquet.format.page_headers import Page

    Places = NDArray[np.int64]

__all__ = ["Hit", "find_hit"]

_OPTIONAL: Final = 1


@dataclass(frozen=True)
class Hit:
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


def find_hit(column: Column, chunk: Chunk, rows: int, places: Places, read: Read) -> Hit | None:
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
    return Hit(column, chunk, pages, tuple(data[n] for n in hit), spans, places)
