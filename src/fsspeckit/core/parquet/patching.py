"""A column chunk of which some pages are new and all others are the bytes they were.

The pages that hold a changed row are encoded again; the rest of the chunk, its dictionary included,
is copied. New pages are not encoded by the dictionary, so that a new value need not be looked for
among the old ones. The format lets every page choose, but no writer uses the dictionary again after
a page without it, and Spark's reader gives wrong values then: such a chunk is left to be encoded
as a whole. So is one of which more than a quarter of the pages would do without the dictionary, and
so it gets one again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fsspeckit.core.parquet.anatomy import MAGIC, CannotSpliceError, Chunk, Range
from fsspeckit.core.parquet.encoding import EncodedChunk, encode_groups
from fsspeckit.core.parquet.pages import DICTIONARY_ENCODINGS, DICTIONARY_PAGE, pages_of
from fsspeckit.core.parquet.statistics import UnknownBoundError, replaced_statistics
from fsspeckit.core.parquet.thrift import I32, I64, LIST, STRUCT, Struct, ThriftError
from fsspeckit.core.parquet.thriftwriter import drop_fields, set_field

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from fsspeckit.core.parquet.anatomy import Read
    from fsspeckit.core.parquet.pages import Page
    from fsspeckit.core.parquet.probing import PageValues

__all__ = ["Patch", "can_patch", "patch_chunks"]

_CODEC: Final = 4
_INDEX_PAGE: Final = 10
_STATISTICS, _ENCODING_STATISTICS = 12, 13
# What is not among these is about values, or is not known to this version.
_KEPT: Final = frozenset({1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13})


@dataclass(frozen=True)
class Patch:
    """New values for some rows of a row group, in one column; not more than its pages tell."""

    pages: PageValues
    patched: pa.ChunkedArray
    """The values of these pages after the change."""

    old: pa.ChunkedArray
    """The values that go."""

    new: pa.ChunkedArray
    """The values that come."""


def can_patch(pages: PageValues) -> bool:
    """Whether some pages of a chunk can be replaced: no index or filter knows them."""
    chunk = pages.chunk
    if (
        chunk.bloom
        or chunk.column_index
        or chunk.offset_index
        or _INDEX_PAGE in chunk.metadata.kinds
    ):
        return False
    replaced = {page.part.start for page in pages.hit}
    data = [page for page in pages.pages if page.is_data]
    indexed = [_is_indexed(page) and page.part.start not in replaced for page in data]
    return _keeps_its_dictionary(data, indexed) and indexed == sorted(indexed, reverse=True)


def _keeps_its_dictionary(data: Sequence[Page], indexed: Sequence[bool]) -> bool:
    """Whether enough pages still use the dictionary, if it is of any use."""
    before, after = sum(map(_is_indexed, data)), sum(indexed)
    return after == before or 2 * before < len(data) or 4 * after >= 3 * len(data)


def _is_indexed(page: Page) -> bool:
    return page.is_data and page.encoding in DICTIONARY_ENCODINGS


def patch_chunks(
    patches: Sequence[Patch], schema: pa.Schema, options: dict[str, Any], read: Read
) -> list[EncodedChunk | None]:
    """Make the new chunks of some columns of a row group.

    Args:
        patches: The columns; all have their pages at the same rows.
        schema: The columns as the file stores them, in this order.
        options: What the writer of pyarrow needs to make such pages, without dictionaries.
        read: Reads bytes of the old file.

    Returns:
        A chunk for each column; None where its statistics cannot be told without reading all of it,
        or its codec is not written any more.

    Raises:
        CannotSpliceError: If pyarrow cannot encode the pages, or they are not what they should be.
    """
    tables, start = [], 0
    whole = schema.empty_table().from_arrays([patch.patched for patch in patches], schema=schema)
    for first, end in patches[0].pages.spans:
        tables.append(whole.slice(start, end - first))
        start += end - first
    tables.append(whole.from_arrays([patch.old for patch in patches], schema=schema))
    tables.append(whole.from_arrays([patch.new for patch in patches], schema=schema))
    *groups, gone, come = encode_groups(tables, options)
    return [
        _patched(patch, [group[n].pages for group in groups], (gone[n], come[n]), read)
        for n, patch in enumerate(patches)
    ]


def _patched(
    patch: Patch, new: Sequence[memoryview], ends: tuple[EncodedChunk, EncodedChunk], read: Read
) -> EncodedChunk | None:
    old = patch.pages.chunk
    if any(one.chunk.metadata.values[_CODEC] != old.metadata.values[_CODEC] for one in ends):
        return None  # a codec that is only read, and another that is written in its place
    gone, come = (one.chunk.metadata.raw.get(_STATISTICS) for one in ends)
    before = old.metadata.raw.get(_STATISTICS)
    try:
        statistics = replaced_statistics(
            patch.pages.column, before, gone, come, old.metadata.values[5], len(patch.new)
        )
    except (UnknownBoundError, ThriftError):
        return None
    data = _joined(patch.pages, new, read)
    copied = old.data.length - sum(page.part.length for page in patch.pages.hit)
    chunk = _described(old, data, statistics)
    return EncodedChunk(chunk, memoryview(data), copied_bytes=copied)


def _joined(pages: PageValues, new: Sequence[memoryview], read: Read) -> bytes:
    """The bytes of the new chunk."""
    parts: list[bytes | memoryview] = []
    position = pages.chunk.data.start
    for page, replacement in zip(pages.hit, new, strict=True):
        parts += [_read(read, position, page.part.start), replacement]
        position = page.part.end
    parts.append(_read(read, position, pages.chunk.data.end))
    return b"".join(parts)


def _read(read: Read, start: int, end: int) -> bytes:
    data = read(start, end - start) if end > start else b""
    if len(data) != end - start:
        raise CannotSpliceError(f"the file ends before byte {end:,}")
    return data


def _described(old: Chunk, data: bytes, statistics: Struct | None) -> Chunk:
    """What the footer says of a new chunk, as if it were the first of a file."""
    start = len(MAGIC)
    metadata = old.metadata.copy()
    part = Range(start, len(data))
    chunk = Chunk(old.struct.copy(), part)
    chunk.struct.values[3] = metadata

    def at(position: int, length: int) -> bytes:
        return data[position - start : position - start + length]

    pages = list(pages_of(chunk, at))
    if sum(page.values for page in pages) != metadata.values[5]:
        raise CannotSpliceError(f"new pages of {old.path!r} do not hold the values they should")
    drop_fields(metadata, set(metadata.kinds) - _KEPT)
    encodings = {page.encoding for page in pages if page.encoding is not None}
    set_field(metadata, 2, sorted({*metadata.values[2], *encodings}))
    set_field(metadata, 6, sum(page.raw_bytes for page in pages), I64)
    set_field(metadata, 7, len(data), I64)
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
