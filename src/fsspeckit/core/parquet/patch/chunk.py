"""A column chunk of which some pages are new and all others are the bytes they were.

A page keeps its kind: one of places in the dictionary gets other places, and the dictionary gets
the values that it lacks; one of values is encoded again. So no page uses the dictionary after one
that does not, which the format would allow, but no writer does, and Spark's reader gives wrong
values then.

The statistics of a column chunk in which some values were replaced, without reading the others.

What is known: the statistics before, those of the values that went and those of the values that
came. A bound that went may still be the value of another row; then nothing but all values can tell,
and there are no statistics to be had here.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from fsspeckit.core.parquet.format.layout import MAGIC, CannotSpliceError, Chunk, Range, length_of
from fsspeckit.core.parquet.format.pages import (
    DICTIONARY_ENCODINGS,
    DICTIONARY_PAGE,
    pages_in,
    plain_values,
)
from fsspeckit.core.parquet.format.thrift import (
    BINARY,
    BOOL,
    BYTES,
    I32,
    I64,
    INT,
    LIST,
    STRUCT,
    TRUE,
    Spec,
    Struct,
    ThriftError,
    decode,
    drop_fields,
    set_field,
)
from fsspeckit.core.parquet.patch.page_reader import IndexedPages
from fsspeckit.core.parquet.splice.chunk_encoder import EncodedChunk, encode_groups

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fsspeckit.core.parquet.format.layout import Column, Read
    from fsspeckit.core.parquet.format.pages import Page, Parts
    from fsspeckit.core.parquet.patch.page_reader import PageSelection, PageValues

    Order = Callable[[bytes], Any]
    """Makes of a bound, as it is stored, something that compares as the column does."""

__all__ = ["Patch", "UnknownBoundError", "can_patch", "patch_chunks", "replaced_statistics"]


# --- The statistics of a column chunk in which some values were replaced ---

_SPEC: Final[Spec] = {1: BYTES, 2: BYTES, 3: INT, 4: INT, 5: BYTES, 6: BYTES, 7: BOOL, 8: BOOL}
_NULLS: Final = 3
_BOOLEAN, _INT32, _INT64, _, _FLOAT, _DOUBLE, _BYTES, _FIXED = range(8)
_INTEGER: Final = 10
# Strings, enumerations, JSON and BSON compare byte by byte, as binaries without a meaning do.
_BYTEWISE: Final = (None, (1,), (4,), (12,), (13,))


class UnknownBoundError(Exception):
    """The smallest or largest value, or the number of NULLs, cannot be told."""


@dataclass(frozen=True)
class _Bound:
    """One of the two bounds: where it is stored, and which of two values is further out."""

    field: int
    deprecated: int
    exact: int
    sign: int

    def settled(self, order: Order, before: Struct, gone: Struct, come: Struct) -> bytes | None:
        """The bound now, or None if all values are NULL.

        Raises:
            UnknownBoundError: If the value that was the bound went.
        """
        old, went, new = (one.values.get(self.field) for one in (before, gone, come))
        if old is None:
            return new
        if new is not None and self._is_beyond(order(new), order(old)):
            return bytes(new)
        if went is not None and self._is_beyond(order(went), order(old)):
            raise UnknownBoundError
        return bytes(old)

    def fields(
        self, order: Order, before: Struct, gone: Struct, come: Struct
    ) -> dict[int, tuple[Any, int]]:
        """What is written of the bound: each field with its type.

        Raises:
            UnknownBoundError: If the value that was the bound went.
        """
        value = self.settled(order, before, gone, come)
        if value is None:
            return {}
        style = before if self.field in before.values else come
        fields: dict[int, tuple[Any, int]] = {self.field: (value, BINARY)}
        if self.deprecated in style.values:
            fields[self.deprecated] = (value, BINARY)
        if self.exact in style.values:
            is_old = value == style.values[self.field]
            fields[self.exact] = (style.values[self.exact] if is_old else True, TRUE)
        return fields

    def _is_beyond(self, one: Any, other: Any) -> bool:
        return bool(one <= other if self.sign < 0 else one >= other)


_BOUNDS: Final = (_Bound(6, 2, 8, -1), _Bound(5, 1, 7, 1))


def replaced_statistics(
    column: Column,
    before: bytes | None,
    gone: bytes | None,
    come: bytes | None,
    values: int,
    count: int,
) -> Struct | None:
    """The statistics after some values were replaced.

    Args:
        column: The column, not nested.
        before: The ``Statistics`` of the chunk; None if it has none, and then it gets none.
        gone: Those of the values that went.
        come: Those of the values that came, by the same writer as those that went.
        values: How many values the chunk has, NULL included.
        count: How many of them were replaced.

    Raises:
        UnknownBoundError: If only all values of the chunk could tell.
        ThriftError: If they are damaged.
    """
    if before is None:
        return None
    old, went, new = (decode(one or b"\0", _SPEC)[0] for one in (before, gone, come))
    if any(b.deprecated in old.values and b.field not in old.values for b in _BOUNDS):
        raise UnknownBoundError  # written before it was settled how values compare
    for known, among in ((old, values), (went, count), (new, count)):
        # A writer leaves out bounds that are long, or not numbers.
        if known.values.get(_NULLS) != among and not all(b.field in known.values for b in _BOUNDS):
            raise UnknownBoundError
    fields: dict[int, tuple[Any, int]] = {}
    nulls = old.values.get(_NULLS)
    if nulls is not None:
        nulls += new.values.get(_NULLS, 0) - went.values.get(_NULLS, 0)
        if not 0 <= nulls <= values:
            raise UnknownBoundError  # it was wrong before
        fields[_NULLS] = (nulls, I64)
    order = _order_of(column)
    for bound in _BOUNDS:
        fields |= bound.fields(order, old, went, new)
    numbers = sorted(fields)
    return Struct({n: fields[n][0] for n in numbers}, {}, {n: fields[n][1] for n in numbers})


def _order_of(column: Column) -> Order:
    """How the bounds of a column compare.

    Raises:
        UnknownBoundError: If that is not known here.
    """
    ((_, physical, _, _, _, logical),) = column.meaning
    if physical in (_BOOLEAN, _INT32, _INT64):
        is_signed = not (isinstance(logical, tuple) and logical[0] == _INTEGER and not logical[2])
        is_signed = is_signed and physical != _BOOLEAN
        return lambda value: int.from_bytes(value, "little", signed=is_signed)
    if physical in (_FLOAT, _DOUBLE):
        code = "<f" if physical == _FLOAT else "<d"
        return lambda value: _number(code, value)
    if (physical == _BYTES and logical in _BYTEWISE) or (physical == _FIXED and logical is None):
        return bytes
    raise UnknownBoundError


def _number(code: str, value: bytes) -> float:
    if len(value) != struct.calcsize(code):
        raise UnknownBoundError
    (number,) = struct.unpack(code, value)
    if math.isnan(number):  # compares with nothing
        raise UnknownBoundError
    return float(number)


# --- A column chunk of which some pages are new and all others are the bytes they were ---

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
    return pages.replaced(new, plain, read)


def _in_memory(chunk: EncodedChunk) -> bytes:
    """The pages of a chunk that was just encoded."""
    return b"".join(part for part in chunk.pages if not isinstance(part, Range))


def _joined(pages: PageSelection, new: dict[Page, Parts]) -> tuple[Parts, list[Page]]:
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
