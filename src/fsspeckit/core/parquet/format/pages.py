"""Pages of a column chunk: their headers, levels, values and dictionary indices.

Columns are not nested here, so a value is either present or NULL, and its definition level is one
bit. Bytes are untrusted: a page that is not what its header says is a `CannotSpliceError`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from fsspeckit.core.parquet.format.layout import CannotSpliceError, Range
from fsspeckit.core.parquet.format.thrift import (
    BOOL,
    INT,
    Spec,
    Struct,
    ThriftError,
    decode,
    read_varint,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from fsspeckit.core.parquet.format.layout import Chunk, FileLayout, Read

    Integers = NDArray[np.int64]
    Octets = bytes | memoryview

# Page headers

_PAGE_HEADER: Final[Spec] = {
    1: INT, 2: INT, 3: INT, 4: INT, 5: {1: INT, 2: INT}, 7: {1: INT, 2: INT},
    8: {1: INT, 2: INT, 3: INT, 4: INT},
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

    encoding: int | None = None
    checksum: int | None = None
    """The CRC32 of its bytes after the header, if the header has one."""

    header_bytes: int = 0
    raw_bytes: int = -1
    """Its bytes before compression, without the header; -1 if the header does not say."""

    dictionary_values: int = 0
    rows: int | None = None
    """How many rows it holds, in version 2 of data pages."""

    nulls: int | None = None
    """How many of its values are NULL, in version 2 of data pages."""

    @property
    def has_checksum(self) -> bool:
        """Whether its header has a checksum."""
        return self.checksum is not None

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
    in_dictionary, in_v2 = (
        values[number].values if number in values else {} for number in (_DICTIONARY, _V2)
    )
    return Page(
        Range(start, length + values[_SIZE]),
        values.get(1, -1),
        sum(counts),
        next(encodings, None),
        values.get(_CHECKSUM),
        length,
        values.get(_RAW_SIZE, -1),
        in_dictionary.get(1, 0),
        in_v2.get(3),
        in_v2.get(2),
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


def codec_of(number: int) -> Codec | None:
    """The codec with this number in Parquet; None if pyarrow does not write it."""
    if number == 0:
        return Codec(None)
    name = _CODECS.get(number)
    return Codec(name) if name is not None and pa.Codec.is_available(name) else None


@dataclass(frozen=True)
class DictionaryPage:
    """A dictionary page."""

    count: int
    values: Octets
    """Its values, plain and one after the other."""

    @classmethod
    def of(cls, page: bytes, codec: Codec) -> DictionaryPage:
        """Open a page, or raise `CannotSpliceError` if it is damaged."""
        header, start = _header(page, _DICTIONARY)
        values = codec.decompress(memoryview(page)[start:], header.values[_RAW_SIZE])
        return cls(header.values[_DICTIONARY].values[1], values)


@dataclass(frozen=True)
class _DataPage:
    levels: bytes | None
    """Runs of definition levels; None if the column has none."""

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
        return cls(*_opened(page, codec, is_optional=is_optional))

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
        levels, count, body = _opened(page, codec, is_optional=is_optional)
        width, runs = (body[0], bytes(body[1:])) if body else (0, b"")
        return cls(levels, count, width, runs)

    @cached_property
    def _runs(self) -> RleBitPacked:
        count = self.count if self._defined is None else int(self._defined.sum())
        return parse_runs(self.runs, self.width, count)

    def indices(self) -> Integers:
        """The dictionary indices of all values; -1 for NULL."""
        if self._defined is None:
            return self._runs.values()
        indices = np.full(self.count, -1, np.int64)
        indices[self._defined] = self._runs.values()
        return indices


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


def _opened(page: bytes, codec: Codec, *, is_optional: bool) -> tuple[bytes | None, int, Octets]:
    """The levels of a data page, its number of values, and the rest of its body."""
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
    return bytes(levels) if is_optional else None, inside[1], body


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
