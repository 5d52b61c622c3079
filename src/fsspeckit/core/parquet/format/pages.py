"""Pages of a column chunk: their headers, levels and dictionary indices, read and written.

Columns are not nested here, so a value is either present or NULL, and its definition level is one
bit. Bytes are untrusted: a page that is not what its header says is a `CannotSpliceError`.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from fsspeckit.core.parquet.format.layout import CannotSpliceError, Range
from fsspeckit.core.parquet.format.thrift import (
    BOOL,
    I32,
    INT,
    Spec,
    Struct,
    ThriftError,
    decode,
    drop_fields,
    encode,
    read_varint,
    set_field,
    varint,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from fsspeckit.core.parquet.format.layout import Chunk, FileLayout, Read

    Integers = NDArray[np.int64]
    Octets = bytes | memoryview

# Page headers

_PAGE_HEADER: Final[Spec] = {
    1: INT, 2: INT, 3: INT, 5: {1: INT, 2: INT}, 7: {2: INT}, 8: {1: INT, 3: INT, 4: INT},
}  # fmt: skip
_RAW_SIZE, _SIZE, _CHECKSUM, _V1, _DICTIONARY, _V2 = 2, 3, 4, 5, 7, 8
_ENCODING: Final = {_V1: 2, _DICTIONARY: 2, _V2: 4}
_HEADER_READ_BYTES: Final = 256
_MAX_HEADER_BYTES: Final = 1 << 20
DATA_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = 0, 2, 3
DICTIONARY_ENCODINGS: Final = (2, 8)
"""The encodings of data pages that hold dictionary indices."""


@dataclass(frozen=True, slots=True)
class Page:
    """Where a page is, and what its header says."""

    part: Range
    kind: int
    values: int
    """The number of values, NULL included; 0 for a dictionary."""

    raw_bytes: int = 0
    """The size of header and uncompressed body."""

    encoding: int | None = None
    has_checksum: bool = False

    @property
    def is_data(self) -> bool:
        """Whether it holds values of rows."""
        return self.kind in (DATA_PAGE, DATA_PAGE_V2)


def pages_of(chunk: Chunk, read: Read) -> Iterator[Page]:
    """Find the pages of a chunk; see `pages_in`."""
    return pages_in(chunk.data, chunk.path, read)


def pages_in(data: Range, column: str, read: Read) -> Iterator[Page]:
    """Find the pages of a column chunk by their headers, one after the other.

    Raises:
        CannotSpliceError: If they do not fill the range exactly.
    """
    position, end = data.start, data.end
    while position < end:
        page = _read_page(position, end, read)
        if page.part.end > end:
            raise CannotSpliceError(f"a page of {column!r} is longer than its column chunk")
        yield page
        position = page.part.end


def _read_page(start: int, end: int, read: Read) -> Page:
    wanted = _HEADER_READ_BYTES
    while True:
        data = read(start, min(wanted, end - start))
        try:
            header, length = decode(data, _PAGE_HEADER)
            break
        except ThriftError as error:
            # Statistics in a header make it long; one that is longer still is damaged.
            if wanted >= min(_MAX_HEADER_BYTES, end - start):
                raise CannotSpliceError(f"the header of a page is damaged: {error}") from error
            wanted *= 16
    values = header.values
    if values.get(_SIZE, -1) < 0:
        raise CannotSpliceError("the header of a page has no size")
    counts = (values[number].values.get(1, 0) for number in (_V1, _V2) if number in values)
    encodings = (values[n].values.get(at) for n, at in _ENCODING.items() if n in values)
    return Page(
        Range(start, length + values[_SIZE]),
        values.get(1, -1),
        sum(counts),
        length + values.get(_RAW_SIZE, 0),
        next(encodings, None),
        _CHECKSUM in header.kinds,
    )


def check_chunks(layout: FileLayout, read: Read) -> None:
    """Check that every chunk is as long as its pages.

    A damaged footer may give a chunk too short, and a copy would lose its end. Where a part of the
    file ends at the first byte of another, two numbers of the footer agree, and the pages are not
    read.

    Raises:
        CannotSpliceError: If the pages do not fill a chunk, or hold another number of values.
    """
    chunks = [chunk for group in layout.groups for chunk in group.chunks]
    starts = {layout.footer_start, *(chunk.data.start for chunk in chunks)}
    for chunk in chunks:
        tail = (chunk.bloom, chunk.column_index, chunk.offset_index)
        starts.update(part.start for part in tail if part is not None)
    for chunk in chunks:
        if chunk.data.end not in starts:
            values = sum(page.values for page in pages_of(chunk, read))
            if values != chunk.metadata.values[5]:
                raise CannotSpliceError(f"the pages of {chunk.path!r} hold {values:,} values")


# RLE and bit-packed runs of definition levels and dictionary indices

_MAX_WIDTH: Final = 32
_MAX_NARROW_WIDTH: Final = 25  # with up to seven bits before it, it fits into 32
_GROUP: Final = 8
_REPEATED: Final = -1


@dataclass(frozen=True)
class RleBitPacked:
    """Small integers in runs: one value many times, or groups of eight values bit by bit.

    Values at some positions are read and replaced without decoding the others.
    """

    data: bytes
    width: int
    """The number of bits of a value."""

    count: int
    """The number of values; the last group of eight may hold more."""

    starts: Integers
    """The position of the first value of each run."""

    bits: Integers
    """The bit at which the values of a bit-packed run begin; -1 for an RLE run."""

    repeated: Integers
    """The value of an RLE run."""

    def all_are(self, value: int) -> bool:
        """Whether all values are stored as repetitions of this one."""
        return bool((self.bits == _REPEATED).all() and (self.repeated == value).all())

    def values(self) -> Integers:
        """All values."""
        if not self.count * self.width or (self.bits == _REPEATED).any():
            return self.at(np.arange(self.count))
        ends = [*self.starts[1:].tolist(), -(-self.count // _GROUP) * _GROUP]
        sizes = ((end - start) // 8 * self.width for start, end in pairwise([0, *ends]))
        starts = (self.bits >> 3).tolist()
        packed = b"".join(
            self.data[start : start + size] for start, size in zip(starts, sizes, strict=True)
        )
        return _unpack(packed, self.width)[: self.count]

    def at(self, positions: Integers) -> Integers:
        """The values at some positions."""
        run, bits = self._find(positions)
        is_repeated = self.bits[run] == _REPEATED
        if not is_repeated.any():
            return self._unpacked(bits)
        found = self.repeated[run]
        found[~is_repeated] = self._unpacked(bits[~is_repeated])
        return found

    def _find(self, positions: Integers) -> tuple[Integers, Integers]:
        """The run of each position, and the bit where its value begins if the run is bit-packed."""
        run = np.searchsorted(self.starts, positions, side="right") - 1
        return run, self.bits[run] + (positions - self.starts[run]) * self.width

    def _unpacked(self, bits: Integers) -> Integers:
        padded = self.data + bytes(_GROUP)
        words: Any = np.ndarray((len(self.data) + 1,), "<u8", buffer=padded, strides=(1,))
        found = words[bits >> 3] >> (bits & 7).astype(np.uint64)
        unpacked: Integers = (found & np.uint64((1 << self.width) - 1)).astype(np.int64)
        return unpacked

    def replaced(self, positions: Integers, values: Integers) -> bytes | None:
        """Return the bytes with other values at some positions.

        None if a value needs more bits, or if one of an RLE run would change.
        """
        run, bits = self._find(positions)
        if (self.bits[run] == _REPEATED).any() or int(values.max()) >> self.width:
            return None
        shift = (bits & 7).astype(np.uint64)
        masks = np.uint64((1 << self.width) - 1) << shift
        shifted = values.astype(np.uint64) << shift
        out = np.frombuffer(bytearray(self.data), np.uint8)
        for number in range((self.width + 14) // 8):
            down = np.uint64(8 * number)
            at = np.minimum((bits >> 3) + number, len(out) - 1)
            # Two values may share a byte, so every change must see the one before.
            np.bitwise_and.at(out, at, ~(masks >> down).astype(np.uint8))
            np.bitwise_or.at(out, at, (shifted >> down).astype(np.uint8))
        return out.tobytes()


def parse_runs(data: bytes, width: int, count: int) -> RleBitPacked:
    """Find the runs of ``count`` values of ``width`` bits.

    Raises:
        CannotSpliceError: If there are fewer values, or one has more bits.
    """
    if not 0 <= width <= _MAX_WIDTH:
        raise CannotSpliceError(f"values of {width} bits do not exist")
    starts, bits, repeated = [], [], []
    position, done, octets = 0, 0, (width + 7) // 8
    try:
        while done < count:
            header, position = read_varint(data, position)
            length = header >> 1
            starts.append(done)
            if header & 1:
                bits.append(8 * position)
                repeated.append(0)
                position += length * width
                done += length * _GROUP
            else:
                bits.append(_REPEATED)
                repeated.append(int.from_bytes(data[position : position + octets], "little"))
                position += octets
                done += length
            if not length or position > len(data) or repeated[-1] >> width:
                raise IndexError
    except (IndexError, ThriftError):
        raise CannotSpliceError("runs of values are damaged") from None
    return RleBitPacked(
        data, width, count, *(np.array(one, np.int64) for one in (starts, bits, repeated))
    )


def _unpack(packed: bytes, width: int) -> Integers:
    """The values of groups of eight, without headers between them."""
    groups = len(packed) // width
    word = np.uint32 if width <= _MAX_NARROW_WIDTH else np.uint64  # half the bytes to move
    octets = np.frombuffer(packed, np.uint8).reshape(groups, width).T.astype(word)
    out = np.empty((_GROUP, groups), word)
    for number in range(_GROUP):
        first, shift = divmod(number * width, 8)
        found = octets[first] >> word(shift)
        for further in range(1, (width + shift + 7) // 8):
            found |= octets[first + further] << word(8 * further - shift)
        out[number] = found
    out &= word((1 << width) - 1)
    return out.T.reshape(-1).astype(np.int64)


def width_of(values: Integers) -> int:
    """The number of bits that the largest value needs."""
    return int(values.max()).bit_length() if len(values) else 0


def pack(values: Integers, width: int) -> bytes:
    """Encode values: one RLE run if all are the same, else one bit-packed run."""
    if not len(values):
        return b""
    if (values == values[0]).all():
        return varint(len(values) << 1) + int(values[0]).to_bytes((width + 7) // 8, "little")
    groups = -(-len(values) // _GROUP)
    padded = np.zeros(groups * _GROUP, np.uint64)
    padded[: len(values)] = values
    rows = np.ascontiguousarray(padded.reshape(groups, _GROUP).T)
    out = np.zeros((width + 1, groups), np.uint8)
    for number in range(_GROUP):
        first, shift = divmod(number * width, 8)
        shifted = rows[number] << np.uint64(shift)
        for further in range((width + shift + 7) // 8):
            out[first + further] |= (shifted >> np.uint64(8 * further)).astype(np.uint8)
    return varint(groups << 1 | 1) + out[:width].T.tobytes()


# The bodies of pages

_HEADER: Final[Spec] = {
    1: INT,
    2: INT,
    3: INT,
    4: INT,
    5: {1: INT, 2: INT, 3: INT},
    7: {1: INT, 2: INT, 3: BOOL},
    8: {1: INT, 2: INT, 3: INT, 4: INT, 5: INT, 6: INT, 7: BOOL},
}
_RLE: Final = 3
_PREFIX: Final = 4
_MAX_RAW_BYTES: Final = 1 << 30
_CODECS: Final = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}


class Codec:
    """A compression codec; None for no compression."""

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._codec = None if name is None else pa.Codec(name)

    def decompress(self, data: Octets, size: int) -> Octets:
        """Return the ``size`` bytes that were compressed.

        Raises:
            CannotSpliceError: If they are damaged.
        """
        if self._codec is None:
            return data
        try:
            raw = memoryview(self._codec.decompress(data, size))
        except (pa.ArrowException, OSError) as error:
            raise CannotSpliceError(f"a page cannot be decompressed: {error}") from error
        # pyarrow does not report how many bytes Snappy wrote; a block starts with that number.
        if self._name == "snappy" and read_varint(bytes(data[:10]), 0)[0] != size:
            raise CannotSpliceError("a page is not as long as its header says")
        return raw

    def compress(self, data: bytes) -> bytes:
        """Return the compressed bytes."""
        if self._codec is None or not data:
            return data
        compressed: bytes = self._codec.compress(data, asbytes=True)
        return compressed


def codec_of(number: int) -> Codec | None:
    """The codec with this number in Parquet; None if pyarrow does not write it."""
    if number == 0:
        return Codec(None)
    name = _CODECS.get(number)
    return Codec(name) if name is not None and pa.Codec.is_available(name) else None


@dataclass(frozen=True)
class DictionaryPage:
    """A dictionary page."""

    header: Struct
    values: Octets
    """Its values, plain and one after the other."""

    codec: Codec

    @property
    def count(self) -> int:
        """The number of values."""
        return int(self.header.values[_DICTIONARY].values[1])

    @classmethod
    def of(cls, page: bytes, codec: Codec) -> DictionaryPage:
        """Open a page, or raise `CannotSpliceError` if it is damaged."""
        header, start = _header(page, _DICTIONARY)
        values = codec.decompress(memoryview(page)[start:], header.values[_RAW_SIZE])
        return cls(header, values, codec)

    def extended(self, values: bytes, count: int) -> bytes:
        """Return the page with ``count`` values added at its end."""
        header = _copied(self.header, _DICTIONARY)
        inside = header.values[_DICTIONARY]
        inside.values[1] += count
        drop_fields(inside, [3])  # it may have been sorted
        body = b"".join([self.values, values])
        return _page(header, self.codec.compress(body), len(body))


@dataclass(frozen=True)
class _DataPage:
    header: Struct
    levels: bytes | None
    """Runs of definition levels; None if the column has none."""

    codec: Codec
    count: int
    """The number of values, NULL included."""

    @cached_property
    def _defined(self) -> NDArray[np.bool_] | None:
        """Whether each value is present; None if there is no NULL."""
        if self.levels is None:
            return None
        levels = parse_runs(self.levels, 1, self.count)
        return None if levels.all_are(1) else levels.values() == 1


@dataclass(frozen=True)
class ValuePage(_DataPage):
    """A data page of plain values."""

    values: Octets

    @classmethod
    def of(cls, page: bytes, codec: Codec, *, is_optional: bool) -> ValuePage:
        """Open a page, or raise `CannotSpliceError` if it is damaged or of an unknown style."""
        header, levels, body, count = _opened(page, codec, is_optional=is_optional)
        return cls(header, levels, codec, count, body)

    @property
    def rows(self) -> Integers | None:
        """The positions of values that are not NULL; None if none is NULL."""
        return None if self._defined is None else np.flatnonzero(self._defined)


@dataclass(frozen=True)
class IndexPage(_DataPage):
    """A data page of dictionary indices."""

    width: int
    runs: bytes

    @classmethod
    def of(cls, page: bytes, codec: Codec, *, is_optional: bool) -> IndexPage:
        """Open a page, or raise `CannotSpliceError` if it is damaged or of an unknown style."""
        header, levels, body, count = _opened(page, codec, is_optional=is_optional)
        width, runs = (body[0], bytes(body[1:])) if body else (0, b"")
        return cls(header, levels, codec, count, width, runs)

    @property
    def nbytes(self) -> int:
        """Its approximate size in memory."""
        return len(self.runs) + len(self.levels or b"") + self.count

    @cached_property
    def _runs(self) -> RleBitPacked:
        count = self.count if self._defined is None else int(self._defined.sum())
        return parse_runs(self.runs, self.width, count)

    def at(self, positions: Integers) -> Integers:
        """The dictionary indices of the values at some positions; -1 for NULL."""
        return self._runs.at(positions) if self._defined is None else self.indices()[positions]

    def indices(self) -> Integers:
        """The dictionary indices of all values; -1 for NULL."""
        if self._defined is None:
            return self._runs.values()
        indices = np.full(self.count, -1, np.int64)
        indices[self._defined] = self._runs.values()
        return indices

    @property
    def largest_index(self) -> int:
        """The largest dictionary index; -1 if all values are NULL."""
        indices = self._runs.values()
        return int(indices.max()) if len(indices) else -1

    def replaced(self, positions: Integers, indices: Integers) -> bytes:
        """Return the page with other dictionary indices at some positions; -1 for NULL."""
        if self._defined is None and indices.min() >= 0:
            runs = self._runs.replaced(positions, indices)
            if runs is not None:
                return self._closed(self.levels, bytes([self.width]) + runs, 0)
        every = self.indices()
        every[positions] = indices
        defined = every >= 0
        kept = every[defined]
        width = max(self.width, width_of(kept))
        levels = None if self.levels is None else pack(defined.astype(np.int64), 1)
        nulls = self.count - len(kept)
        return self._closed(levels, bytes([width]) + pack(kept, width), nulls)

    def _closed(self, levels: bytes | None, body: bytes, nulls: int) -> bytes:
        levels = levels or b""
        if _V2 in self.header.values:
            header = _copied(self.header, _V2)
            inside = header.values[_V2]
            inside.values[2] = nulls
            set_field(inside, 5, len(levels), I32)
            drop_fields(inside, [7, 8])  # compressed is the default, and statistics are of old ones
            return _page(header, levels + self.codec.compress(body), len(levels) + len(body))
        header = _copied(self.header, _V1)
        drop_fields(header.values[_V1], [5])
        prefix = b"" if self.levels is None else len(levels).to_bytes(_PREFIX, "little")
        raw = prefix + levels + body
        return _page(header, self.codec.compress(raw), len(raw))


def plain_values(pages: bytes, *, is_optional: bool) -> bytes:
    """The values of uncompressed plain pages of version 1."""
    found, position = [], 0
    while position < len(pages):
        header, start = decode(pages, _HEADER, position)
        position = start + header.values[_SIZE]
        raw = pages[start:position]
        found.append(_cut(raw)[1] if is_optional else raw)
    return b"".join(found)


def _header(page: bytes, kind: int | None = None) -> tuple[Struct, int]:
    """The header of a page, and where its body starts; ``kind`` is known for a dictionary."""
    try:
        header, start = decode(page, _HEADER)
        if kind is None:
            kind = _V2 if header.values[1] == DATA_PAGE_V2 else _V1
        is_whole = header.values[_SIZE] == len(page) - start
        is_known = 0 <= header.values[_RAW_SIZE] <= _MAX_RAW_BYTES
        if not is_whole or not is_known or 1 not in header.values[kind].values:
            raise CannotSpliceError("the header of a page does not say how long it is")
        return header, start
    except (ThriftError, KeyError) as error:
        raise CannotSpliceError(f"the header of a page is damaged: {error!r}") from error


def _opened(
    page: bytes, codec: Codec, *, is_optional: bool
) -> tuple[Struct, bytes | None, Octets, int]:
    """The header of a data page, its levels, the rest of its body, and its number of values."""
    header, start = _header(page)
    is_v2 = header.values[1] == DATA_PAGE_V2
    inside = header.values[_V2 if is_v2 else _V1].values
    data = memoryview(page)[start:]
    if is_v2:
        levels, body = _opened_v2(header, data, codec)
    else:
        if is_optional and inside.get(3) != _RLE:
            raise CannotSpliceError("definition levels are of a style that is not known here")
        raw = codec.decompress(data, header.values[_RAW_SIZE])
        levels, body = _cut(raw) if is_optional else (b"", raw)
    return header, bytes(levels) if is_optional else None, body, inside[1]


def _opened_v2(header: Struct, data: Octets, codec: Codec) -> tuple[Octets, Octets]:
    """Levels and the rest of a page of version 2, in which levels are not compressed."""
    inside = header.values[_V2].values
    end = inside.get(5, 0) + inside.get(6, 0)
    if inside.get(6, 0) or not 0 <= end <= len(data):
        raise CannotSpliceError("a page has other levels than its column")
    body = data[end:]
    if inside.get(7, True) and body:
        body = codec.decompress(body, header.values[_RAW_SIZE] - end)
    return data[:end], body


def _cut(raw: Octets) -> tuple[Octets, Octets]:
    """Levels and the rest of a page of version 1."""
    end = _PREFIX + int.from_bytes(raw[:_PREFIX], "little")
    if end > len(raw):
        raise CannotSpliceError("the definition levels of a page are longer than it")
    return raw[_PREFIX:end], raw[end:]


def _copied(header: Struct, kind: int) -> Struct:
    header = header.copy()
    header.values[kind] = header.values[kind].copy()
    return header


def _page(header: Struct, body: bytes, raw_size: int) -> bytes:
    """A page with its header, whose sizes and checksum are those of its body."""
    header.values[_RAW_SIZE] = raw_size
    header.values[_SIZE] = len(body)
    if _CHECKSUM in header.kinds:
        checksum = zlib.crc32(body)
        header.values[_CHECKSUM] = checksum - (checksum >> 31 << 32)  # as a signed number
    return encode(header) + body
