"""Column chunks patched page by page: pages with a changed row are new, all others are copied.

A page keeps its kind: a page of dictionary indices gets other indices, and the dictionary the
values that it lacks; a page of values is encoded again. So no page uses the dictionary after one
that does not: the format allows it, but no writer does it, and Spark's reader gives wrong values.

Statistics follow from those of the chunk, of the old values and of the new values. A bound among
the old values may still be the value of another row; then the whole chunk must be encoded.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
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
    from collections.abc import Callable, Mapping, Sequence

    from fsspeckit.core.parquet.format.layout import Column, Part, Read
    from fsspeckit.core.parquet.format.pages import Octets, Page
    from fsspeckit.core.parquet.patch.page_reader import PageSelection, PageValues

    Order = Callable[[bytes], Any]
    """Turns a stored bound into a value that compares as the column does."""

_SPEC: Final[Spec] = {1: BYTES, 2: BYTES, 3: INT, 4: INT, 5: BYTES, 6: BYTES, 7: BOOL, 8: BOOL}
_NULLS: Final = 3
_BOOLEAN, _INT32, _INT64, _, _FLOAT, _DOUBLE, _BYTES, _FIXED = range(8)
_INTEGER: Final = 10
# Strings, enumerations, JSON and BSON compare byte by byte, as binaries without a meaning do.
_BYTEWISE: Final = (None, (1,), (4,), (12,), (13,))


class UnknownBoundError(Exception):
    """The smallest or largest value, or the number of NULLs, is not known without all values."""


@dataclass(frozen=True)
class _Bound:
    """One of the two bounds: the fields that store it, and the direction in which it lies."""

    field: int
    deprecated: int
    exact: int
    sign: int

    def settled(self, order: Order, before: Struct, gone: Struct, come: Struct) -> bytes | None:
        """The new bound, or None if all values are NULL."""
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
        """The fields of the new bound, with their types."""
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
    """Return the statistics of a chunk after some values were replaced.

    Args:
        column: The column, not nested.
        before: The ``Statistics`` of the chunk; None if it has none, and then it gets none.
        gone: Those of the old values.
        come: Those of the new values, by the same writer as those of the old values.
        values: The number of values of the chunk, NULL included.
        count: The number of replaced values.

    Raises:
        UnknownBoundError: If they depend on all values of the chunk.
        ThriftError: If they are damaged.
    """
    if before is None:
        return None
    old, went, new = (decode(one or b"\0", _SPEC)[0] for one in (before, gone, come))
    if any(b.deprecated in old.values and b.field not in old.values for b in _BOUNDS):
        raise UnknownBoundError  # written before the format defined how values compare
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
    """How the bounds of a column compare; `UnknownBoundError` if that is not known here."""
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


_CODEC: Final = 4
_INDEX_PAGE: Final = 10
_DICTIONARY_OFFSET, _STATISTICS, _ENCODING_STATISTICS = 11, 12, 13
# Fields that stay true; others are about values, or of a later version of the format.
_KEPT: Final = frozenset({1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13})


@dataclass(frozen=True)
class ColumnPatch:
    """New values for some rows of a row group, in one column."""

    pages: PageValues | IndexedPages
    old: pa.ChunkedArray
    """The old values of the rows."""

    new: pa.ChunkedArray
    """The new values of the rows."""

    patched: pa.ChunkedArray | None = None
    """All values of the selected pages after the change; None for dictionary indices."""

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """The rows of each page that is encoded again."""
        return () if self.patched is None else self.pages.spans


def can_patch(pages: PageValues | IndexedPages) -> bool:
    """Whether pages of a chunk can be replaced: no index or filter describes them."""
    chunk = pages.chunk
    is_known = chunk.bloom or chunk.column_index or chunk.offset_index
    if is_known or _INDEX_PAGE in chunk.metadata.kinds:
        return False
    return isinstance(pages, IndexedPages) or not any(
        page.encoding in DICTIONARY_ENCODINGS for page in pages.selected
    )


def patch_chunks(
    patches: Sequence[ColumnPatch], schema: pa.Schema, options: dict[str, Any], read: Read
) -> list[EncodedChunk | None]:
    """Make the new chunks of some columns of a row group.

    Args:
        patches: The columns; all have the same pages to be encoded again.
        schema: The columns as the file stores them, in this order.
        options: The options of pyarrow's writer for such pages, without dictionaries.
        read: Reads bytes of the old file.

    Returns:
        A chunk for each column; None where it must be encoded as a whole: its statistics depend
        on all values, its codec cannot be written, or its dictionary would get too large.

    Raises:
        CannotSpliceError: If pyarrow cannot encode the pages, or they are damaged.
    """
    tables = _pages_again(patches, schema)
    for values in ([patch.old for patch in patches], [patch.new for patch in patches]):
        tables.append(pa.Table.from_arrays(values, schema=schema))
    *groups, gone, come = encode_groups(tables, options)
    return [
        _patched(patch, [group[n] for group in groups], (gone[n], come[n]), read)
        for n, patch in enumerate(patches)
    ]


def _pages_again(patches: Sequence[ColumnPatch], schema: pa.Schema) -> list[pa.Table]:
    """The rows of each page that is encoded again."""
    tables, start = [], 0
    values = [patch.patched for patch in patches if patch.patched is not None]
    for first, end in patches[0].spans:
        whole = pa.Table.from_arrays(values, schema=schema)
        tables.append(whole.slice(start, end - first))
        start += end - first
    return tables


def _patched(
    patch: ColumnPatch,
    encoded: Sequence[EncodedChunk],
    ends: tuple[EncodedChunk, EncodedChunk],
    read: Read,
) -> EncodedChunk | None:
    old, (gone, come) = patch.pages.chunk, ends
    before, went, new = (
        chunk.metadata.raw.get(_STATISTICS) for chunk in (old, gone.chunk, come.chunk)
    )
    values, count = old.metadata.values[5], len(patch.new)
    try:
        statistics = replaced_statistics(patch.pages.column, before, went, new, values, count)
    except (UnknownBoundError, ThriftError):
        return None
    pages = _new_pages(patch, encoded, come, read)
    if pages is None:
        return None
    parts, described = _joined(patch.pages, pages)
    return EncodedChunk(_described(old, length_of(parts), described, statistics), tuple(parts))


def _new_pages(
    patch: ColumnPatch, encoded: Sequence[EncodedChunk], come: EncodedChunk, read: Read
) -> Mapping[Page, Octets] | None:
    """The pages that are not copied, each with its new bytes."""
    pages = patch.pages
    if not isinstance(pages, IndexedPages):
        same_codec = come.chunk.metadata.values[_CODEC] == pages.chunk.metadata.values[_CODEC]
        made = dict(zip(pages.selected, map(_in_memory, encoded), strict=True))
        return made if same_codec else None
    new = patch.new.cast(pages.type).combine_chunks()
    plain = plain_values(bytes(_in_memory(come)), is_optional=pages.is_optional)
    return pages.replaced(new, plain, read)


def _in_memory(chunk: EncodedChunk) -> Octets:
    """The pages of a chunk that was just encoded."""
    (pages,) = chunk.pages
    assert not isinstance(pages, Range)
    return pages


def _joined(selection: PageSelection, new: Mapping[Page, Octets]) -> tuple[list[Part], list[Page]]:
    """The parts of the new chunk, and its pages, as if it were the first of a file."""
    parts: list[Part] = []
    found: list[Page] = []
    position = len(MAGIC)
    for page in selection.pages:
        data = new.get(page)
        if data is None:
            parts.append(page.part)
            found.append(replace(page, part=Range(position, page.part.length)))
        else:
            # pyarrow may have made several pages of one that is larger than its own would be.
            parts.append(data)
            found += [
                replace(one, part=Range(position + one.part.start, one.part.length))
                for one in pages_in(Range(0, len(data)), "", partial(_bytes, data))
            ]
        position = found[-1].part.end
    return parts, found


def _bytes(data: Octets, start: int, length: int) -> bytes:
    return bytes(data[start : start + length])


def _described(old: Chunk, length: int, pages: Sequence[Page], statistics: Struct | None) -> Chunk:
    """The footer's entry for a new chunk, as if it were the first of a file."""
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
    drop_fields(metadata, [_DICTIONARY_OFFSET, _STATISTICS])
    for page in pages:
        if page.kind == DICTIONARY_PAGE:
            set_field(metadata, _DICTIONARY_OFFSET, page.part.start, I64)
    if statistics is not None:
        set_field(metadata, _STATISTICS, statistics, STRUCT)
    if _ENCODING_STATISTICS in metadata.kinds:
        set_field(metadata, _ENCODING_STATISTICS, _encodings_of(pages))
        metadata.kinds[_ENCODING_STATISTICS] = LIST | STRUCT << 4
    return chunk


def _encodings_of(pages: Sequence[Page]) -> list[Struct]:
    """The number of pages of each kind and encoding, by which Spark skips row groups."""
    counts = Counter((page.kind, page.encoding or 0) for page in pages)
    return [
        Struct({1: kind, 2: encoding, 3: count}, {}, {1: I32, 2: I32, 3: I32})
        for (kind, encoding), count in sorted(counts.items())
    ]
