"""The pages of a column chunk that hold some rows, without decoding all of it.

pyarrow decodes whole chunks. To compare some rows, the pages that hold them are enough: they are
put, with their dictionary, into a small file in memory, and that is read. Only columns without
nesting are read this way: in their pages, and there alone, values are rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.parquet.anatomy import MAGIC, CannotSpliceError
from fsspeckit.core.parquet.pages import DICTIONARY_ENCODINGS, DICTIONARY_PAGE, pages_of
from fsspeckit.core.parquet.thrift import (
    BINARY,
    I32,
    I64,
    INT,
    LIST,
    STRUCT,
    Struct,
    decode,
)
from fsspeckit.core.parquet.thriftwriter import encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fsspeckit.core.parquet.anatomy import Anatomy, Chunk, Read
    from fsspeckit.core.parquet.columns import Column
    from fsspeckit.core.parquet.pages import Page

    Places = NDArray[np.int64]

__all__ = ["PageValues", "probe"]

_INT96: Final = 3
_REPEATED: Final = 2
_NEEDED: Final = (1, 2, 3, 4, 5, 6, 7, 9, 11)
# Reading more than this share of the pages saves too little.
_WORTHWHILE: Final = 0.5


@dataclass(frozen=True)
class _Hit:
    """Those pages of a column chunk that hold some rows."""

    column: Column
    chunk: Chunk
    pages: tuple[Page, ...]
    """All pages of the chunk."""

    hit: tuple[Page, ...]
    """Those that hold the rows."""

    spans: tuple[tuple[int, int], ...]
    """For each of these, its first row and the row after its last."""


@dataclass(frozen=True)
class PageValues(_Hit):
    """The values of those pages of a column chunk that hold some rows."""

    values: pa.ChunkedArray
    """All of their values, in the type that pyarrow reads without a stored Arrow schema."""

    def inside(self, places: Places) -> Places:
        """Where rows of the row group are among the values."""
        starts = np.array([start for start, _ in self.spans], np.int64)
        sizes = [end - start for start, end in self.spans]
        before = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        page = np.searchsorted(starts, places, side="right") - 1
        inside: Places = (before[page] + places - starts[page]).astype(np.int64)
        return inside

    def at(self, places: Places) -> pa.ChunkedArray:
        """The values of some of the rows."""
        return self.values.take(pa.array(self.inside(places)))


def probe(
    anatomy: Anatomy, number: int, columns: Sequence[Column], places: Places, read: Read
) -> dict[str, PageValues]:
    """Read the pages of a row group that hold some rows.

    Args:
        anatomy: The file.
        number: The row group.
        columns: The columns to read.
        places: Rows of the row group, ascending.
        read: Reads bytes of the file.

    Returns:
        By column; those for which this would not work, or not pay, are left out.

    Raises:
        CannotSpliceError: If the pages of a chunk are not what its footer says.
    """
    group = anatomy.groups[number]
    together: dict[tuple[tuple[int, int], ...], list[_Hit]] = {}
    for column in columns:
        if _is_flat(column):
            chunk = group.chunks[column.first_leaf]
            found = _find(column, chunk, group.rows, places, read)
            if found is not None:
                together.setdefault(found.spans, []).append(found)
    values: dict[str, PageValues] = {}
    for spans, hits in together.items():
        table = _decoded(anatomy, hits, spans, read)
        for one, data in zip(hits, table.columns, strict=True):
            if not _is_view(data.type):
                values[one.column.name] = PageValues(
                    one.column, one.chunk, one.pages, one.hit, spans, data
                )
    return values


def _is_flat(column: Column) -> bool:
    (_, physical, _, repetition, *_), *rest = column.meaning
    return not rest and repetition != _REPEATED and physical != _INT96


def _is_view(data_type: pa.DataType) -> bool:
    return data_type in (pa.string_view(), pa.binary_view())


def _find(column: Column, chunk: Chunk, rows: int, places: Places, read: Read) -> _Hit | None:
    """The pages that hold the places, if they are few."""
    pages = tuple(pages_of(chunk, read))
    dictionaries = [page for page in pages if page.kind == DICTIONARY_PAGE]
    data = [page for page in pages if page.is_data]
    ends = np.cumsum([page.values for page in data])
    # All pages are counted, not only those up to the last place: one wrong number before a place
    # would make another row of it, and a change would be missed.
    if not data or len(dictionaries) > 1 or ends[-1] != rows or chunk.metadata.values[5] != rows:
        return None
    hit = np.unique(np.searchsorted(ends, places, side="right"))
    if sum(data[n].part.length for n in hit) > _WORTHWHILE * chunk.data.length:
        return None
    spans = tuple((int(ends[n]) - data[n].values, int(ends[n])) for n in hit)
    return _Hit(column, chunk, pages, tuple(data[n] for n in hit), spans)


def _decoded(
    anatomy: Anatomy, hits: Sequence[_Hit], spans: Sequence[tuple[int, int]], read: Read
) -> pa.Table:
    rows = sum(end - start for start, end in spans)
    file = bytearray(MAGIC)
    chunks = [_add_chunk(file, one, rows, read) for one in hits]
    root, _ = decode(anatomy.elements[0], {5: INT})
    root.values[5] = len(hits)
    elements = [encode(root), *(anatomy.elements[one.column.first_element] for one in hits)]
    size = sum(chunk.values[3].values[7] for chunk in chunks)
    group = _struct({1: (chunks, _STRUCTS), 2: (size, I64), 3: (rows, I64)})
    created_by = anatomy.footer.values.get(6, b"")
    footer = encode(
        _struct(
            {
                1: (1, I32),
                2: (elements, _STRUCTS),
                3: (rows, I64),
                4: ([group], _STRUCTS),
                6: (created_by, BINARY),
            }
        )
    )
    file += footer + len(footer).to_bytes(4, "little") + MAGIC
    try:
        table = pq.read_table(pa.BufferReader(file), use_threads=False, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise CannotSpliceError(f"pages cannot be decoded: {error}") from error
    if table.num_rows != rows:
        raise CannotSpliceError("pages do not hold the rows they should")
    return table


_STRUCTS: Final = LIST | STRUCT << 4


def _add_chunk(file: bytearray, one: _Hit, rows: int, read: Read) -> Struct:
    """Add the pages of a chunk to a file in memory; what its footer says of them."""
    metadata = Struct(
        {n: v for n, v in one.chunk.metadata.values.items() if n in _NEEDED},
        {},
        {n: kind for n, kind in one.chunk.metadata.kinds.items() if n in _NEEDED},
    )
    start = len(file)
    needs_dictionary = any(page.encoding in DICTIONARY_ENCODINGS for page in one.hit)
    dictionary = next((page for page in one.pages if page.kind == DICTIONARY_PAGE), None)
    if dictionary is not None and needs_dictionary:
        file += read(dictionary.part.start, dictionary.part.length)
        metadata.kinds[11] = I64
        metadata.values[11] = start
    else:
        metadata.kinds.pop(11, None)
    metadata.values[9] = len(file)
    for page in one.hit:
        file += read(page.part.start, page.part.length)
    metadata.values[5] = rows
    metadata.values[7] = len(file) - start
    return _struct({2: (0, I64), 3: (metadata, STRUCT)})


def _struct(fields: dict[int, tuple[Any, int]]) -> Struct:
    return Struct(
        {number: value for number, (value, _) in fields.items()},
        {},
        {number: kind for number, (_, kind) in fields.items()},
    )
