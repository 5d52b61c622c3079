"""A column chunk of which some pages are new and all others are the bytes they were.

A page keeps its kind: one of places in the dictionary gets other places, and the dictionary gets
the values that it lacks; one of values is encoded again. So no page uses the dictionary after one
that does not, which the format would allow, but no writer does, and Spark's reader gives wrong
values then.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from fsspeckit.core.parquet.format.layout import MAGIC, CannotSpliceError, Chunk, Range, length_of
from fsspeckit.core.parquet.format.page_headers import (
    DICTIONARY_ENCODINGS,
    DICTIONARY_PAGE,
    pages_in,
)
from fsspeckit.core.parquet.format.pages import plain_values
from fsspeckit.core.parquet.format.thrift import I32, I64, LIST, STRUCT, Struct, ThriftError
from fsspeckit.core.parquet.format.thriftwriter import drop_fields, set_field
from fsspeckit.core.parquet.patch.indexed import IndexedPages
from fsspeckit.core.parquet.patch.statistics import UnknownBoundError, replaced_statistics
from fsspeckit.core.parquet.splice.chunk_encoder import EncodedChunk, encode_groups

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsspeckit.core.parquet.format.layout import Read
    from fsspeckit.core.parquet.format.page_headers import Page
    from fsspeckit.core.parquet.format.pages import Parts
    from fsspeckit.core.parquet.patch.hits import Hit
    from fsspeckit.core.parquet.patch.page_reader import PageValues

__all__ = ["Patch", "can_patch", "patch_chunks"]

_CODEC: Final = 4
_INDEX_PAGE: Final = 10
_STATISTICS, _ENCODING_STATISTICS = 12, 13
# What is not among these is about values, or is not known to this version.
_KEPT: Final = frozenset({1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13})


@dataclass(frozen=True)
class Patch:
    """New values for some rows of a row group, in one column; not more than its pages tell."""

    pages: PageValues | IndexedPages
    old: pa.ChunkedArray
    """The values that go."""

    new: pa.ChunkedArray
    """The values that come."""

    patched: pa.ChunkedArray | None = None
    """The values of all pages after the change, where they are pages of values."""

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """The rows of each page that is encoded again."""
        return () if self.patched is None else self.pages.spans


def can_patch(pages: PageValues | IndexedPages) -> bool:
    """Whether some pages of a chunk can be replaced: no index or filter knows them."""
    chunk = pages.chunk
    is_known = chunk.bloom or chunk.column_index or chunk.offset_index
    if is_known or _INDEX_PAGE in chunk.metadata.kinds:
        return False
    return isinstance(pages, IndexedPages) or not any(
        page.encoding in DICTIONARY_ENCODINGS for page in pages.hit
    )


def patch_chunks(
    patches: Sequence[Patch], schema: pa.Schema, options: dict[str, Any], read: Read
) -> list[EncodedChunk | None]:
    """Make the new chunks of some columns of a row group.

    Args:
        patches: The columns; all have the same pages to be encoded again.
        schema: The columns as the file stores them, in this order.
        options: What the writer of pyarrow needs to make such pages, without dictionaries.
        read: Reads bytes of the old file.

    Returns:
        A chunk for each column; None where its statistics cannot be told without reading all of it,
        its codec is not written any more, or its dictionary would get too large.

    Raises:
        CannotSpliceError: If pyarrow cannot encode the pages, or they are not what they should be.
    """
    tables = _pages_again(patches, schema)
    for values in ([patch.old for patch in patches], [patch.new for patch in patches]):
        tables.append(pa.Table.from_arrays(values, schema=schema))
    *groups, gone, come = encode_groups(tables, options)
    return [
        _patched(patch, [group[n] for group in groups], (gone[n], come[n]), read)
        for n, patch in enumerate(patches)
    ]


def _pages_again(patches: Sequence[Patch], schema: pa.Schema) -> list[pa.Table]:
    """What is in each page that is encoded again."""
    tables, start = [], 0
    values = [patch.patched for patch in patches if patch.patched is not None]
    for first, end in patches[0].spans:
        whole = pa.Table.from_arrays(values, schema=schema)
        tables.append(whole.slice(start, end - first))
        start += end - first
    return tables


def _patched(
    patch: Patch,
    encoded: Sequence[EncodedChunk],
    ends: tuple[EncodedChunk, EncodedChunk],
    read: Read,
) -> EncodedChunk | None:
    old = patch.pages.chunk
    try:
        statistics = _statistics(patch, *ends)
    except (UnknownBoundError, ThriftError):
        return None
    new = _new_pages(patch, encoded, ends[1], read)
    if new is None:
        return None
    parts, pages = _joined(patch.pages, new)
    chunk = _described(old, length_of(parts), pages, statistics)
    return EncodedChunk(chunk, tuple(parts))


def _statistics(patch: Patch, gone: EncodedChunk, come: EncodedChunk) -> Struct | None:
    """The statistics of the new chunk, if it has any.

    Raises:
        UnknownBoundError: If only all values of the chunk could tell.
        ThriftError: If they are damaged.
    """
    before, went, new = (
        chunk.metadata.raw.get(_STATISTICS) for chunk in (patch.pages.chunk, gone.chunk, come.chunk)
    )
    values = patch.pages.chunk.metadata.values[5]
    return replaced_statistics(patch.pages.column, before, went, new, values, len(patch.new))


def _new_pages(
    patch: Patch, encoded: Sequence[EncodedChunk], come: EncodedChunk, read: Read
) -> dict[Page, Parts] | None:
    """The pages that are not copied, each with its new bytes."""
    pages = patch.pages
    if not isinstance(pages, IndexedPages):
        same_codec = come.chunk.metadata.values[_CODEC] == pages.chunk.metadata.values[_CODEC]
        parts: list[Parts] = [list(one.pages) for one in encoded]
        return dict(zip(pages.hit, parts, strict=True)) if same_codec else None
    new = patch.new.cast(pages.type).combine_chunks()
    plain = plain_values(_in_memory(come), is_optional=pages.is_optional)
    made = pages.replaced(new, plain, read)
    dictionary = (page for page in pages.pages if page.kind == DICTIONARY_PAGE)
    return None if made is None else dict(zip((*dictionary, *pages.hit), made, strict=True))


def _in_memory(chunk: EncodedChunk) -> bytes:
    """The pages of a chunk that was just encoded."""
    return b"".join(part for part in chunk.pages if not isinstance(part, Range))


def _joined(pages: Hit, new: dict[Page, Parts]) -> tuple[Parts, list[Page]]:
    """The parts of the new chunk, and its pages, as if it were the first of a file."""
    parts: Parts = []
    found: list[Page] = []
    position = len(MAGIC)
    for page in pages.pages:
        parts += new.get(page, [page.part])
        if page in new:
            found.append(_page_of(new[page], position))
        else:
            found.append(replace(page, part=Range(position, page.part.length)))
        position = found[-1].part.end
    return parts, found


def _page_of(parts: Parts, position: int) -> Page:
    """What the header of a new page says."""
    header = parts[0]
    assert not isinstance(header, Range)
    where = Range(position, length_of(parts))
    (page,) = pages_in(where, "", lambda start, length: bytes(header[:length]))
    return page


def _described(old: Chunk, length: int, pages: Sequence[Page], statistics: Struct | None) -> Chunk:
    """What the footer says of a new chunk, as if it were the first of a file."""
    metadata = old.metadata.copy()
    chunk = Chunk(old.struct.copy(), Range(len(MAGIC), length))
    chunk.struct.values[3] = metadata
    if sum(page.values for page in pages) != metadata.values[5]:
        raise CannotSpliceError(f"new pages of {old.path!r} do not hold the values they should")
    drop_fields(metadata, set(metadata.kinds) - _KEPT)
    encodings = {page.encoding for page in pages if page.encoding is not None}
    set_field(metadata, 2, sorted({*metadata.values[2], *encodings}))
    set_field(metadata, 6, sum(page.raw_bytes for page in pages), I64)
    set_field(metadata, 7, length, I64)
    set_field(metadata, 9, next(page.part.start for page in pages if page.is_data), I64)
    _point_at_dictionary(metadata, pages)
    drop_fields(metadata, [_STATISTICS])
    if statistics is not None:
        set_field(metadata, _STATISTICS, statistics, STRUCT)
    if _ENCODING_STATISTICS in metadata.kinds:
        set_field(metadata, _ENCODING_STATISTICS, _encodings_of(pages))
        metadata.kinds[_ENCODING_STATISTICS] = LIST | STRUCT << 4
    return chunk


def _point_at_dictionary(metadata: Struct, pages: Sequence[Page]) -> None:
    dictionary = next((page for page in pages if page.kind == DICTIONARY_PAGE), None)
    drop_fields(metadata, [11])
    if dictionary is not None:
        set_field(metadata, 11, dictionary.part.start, I64)


def _encodings_of(pages: Sequence[Page]) -> list[Struct]:
    """How many pages there are of each kind and encoding; Spark skips row groups by it."""
    counts = Counter((page.kind, page.encoding or 0) for page in pages)
    return [
        Struct({1: kind, 2: encoding, 3: count}, {}, {1: I32, 2: I32, 3: I32})
        for (kind, encoding), count in sorted(counts.items())
    ]
