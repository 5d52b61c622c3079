"""What is inside a page: definition levels and places in the dictionary, and a page made of them.

Columns are not nested here, so a value is there or it is NULL, and its level is one bit.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from fsspeckit.core.parquet.format.hybrid import Runs, pack, runs_of, width_of
from fsspeckit.core.parquet.format.layout import CannotSpliceError, Range, length_of
from fsspeckit.core.parquet.format.page_headers import DATA_PAGE_V2
from fsspeckit.core.parquet.format.snappy import appended, check_size
from fsspeckit.core.parquet.format.thrift import BOOL, I32, INT, Spec, Struct, ThriftError, decode
from fsspeckit.core.parquet.format.thriftwriter import drop_fields, encode, set_field

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fsspeckit.core.parquet.format.hybrid import Codes
    from fsspeckit.core.parquet.format.layout import Part

    Octets = bytes | memoryview
    Parts = list[Part]
    """Bytes that follow each other."""

__all__ = ["Codec", "DictionaryPage", "IndexPage", "ValuePage", "codec_of", "plain_values"]

_HEADER: Final[Spec] = {
    1: INT,
    2: INT,
    3: INT,
    4: INT,
    5: {1: INT, 2: INT, 3: INT},
    7: {1: INT, 2: INT, 3: BOOL},
    8: {1: INT, 2: INT, 3: INT, 4: INT, 5: INT, 6: INT, 7: BOOL},
}
_RAW_SIZE, _SIZE, _CHECKSUM, _V1, _DICTIONARY, _V2 = 2, 3, 4, 5, 7, 8
_RLE: Final = 3
_PREFIX: Final = 4
_LARGEST: Final = 1 << 30
# Bytes that are not compressed may be one in so many.
_RARE: Final = 16
_CODECS: Final = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}


class Codec:
    """Compresses and decompresses, or does neither."""

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._codec = None if name is None else pa.Codec(name)

    def decompress(self, data: Octets, size: int) -> Octets:
        """The bytes that compressed ones stand for, by how many they are.

        Raises:
            CannotSpliceError: If they are damaged.
        """
        if self._codec is None:
            return data
        try:
            raw = memoryview(self._codec.decompress(data, size))
        except (pa.ArrowException, OSError) as error:
            raise CannotSpliceError(f"a page cannot be decompressed: {error}") from error
        if self._name == "snappy":
            check_size(data, size)
        return raw

    def compress(self, data: bytes) -> bytes:
        """Fewer bytes that stand for the same."""
        if self._codec is None or not data:
            return data
        compressed: bytes = self._codec.compress(data, asbytes=True)
        return compressed

    def extend(self, compressed: Part, raw: Octets, more: bytes) -> Parts:
        """Compressed bytes with more after those they stand for, in parts."""
        if self._name == "snappy" and len(more) * _RARE <= len(raw):
            return appended(compressed, len(raw), more)
        return [compressed, more] if self._codec is None else [self.compress(b"".join([raw, more]))]


def codec_of(number: int) -> Codec | None:
    """The codec with this number; None if pages are not written with it."""
    if number == 0:
        return Codec(None)
    name = _CODECS.get(number)
    return Codec(name) if name is not None and pa.Codec.is_available(name) else None


@dataclass(frozen=True)
class DictionaryPage:
    """A dictionary: its values, plain and one after the other."""

    header: Struct
    body: Part
    """As it is stored."""

    values: Octets
    codec: Codec

    @property
    def count(self) -> int:
        """How many values it has."""
        return int(self.header.values[_DICTIONARY].values[1])

    @classmethod
    def of(cls, page: bytes, part: Range, codec: Codec) -> DictionaryPage:
        """Open a page, which is at some part of its file.

        Raises:
            CannotSpliceError: If it is damaged.
        """
        header, start = _header(page, _DICTIONARY)
        body = memoryview(page)[start:]
        values = codec.decompress(body, header.values[_RAW_SIZE])
        stays = _CHECKSUM not in header.kinds  # else all of its bytes are needed again
        place = Range(part.start + start, part.length - start)
        return cls(header, place if stays else body, values, codec)

    def extended(self, values: bytes, count: int) -> Parts:
        """The page with more values after those it has."""
        header = _copied(self.header, _DICTIONARY)
        inside = header.values[_DICTIONARY]
        inside.values[1] += count
        drop_fields(inside, [3])  # it may have been sorted
        body = self.codec.extend(self.body, self.values, values)
        return _page(header, body, len(self.values) + len(values))


@dataclass(frozen=True)
class _DataPage:
    """What all data pages have."""

    header: Struct
    levels: bytes | None
    """Runs of definition levels; None if the column has none."""

    codec: Codec
    count: int
    """How many values it has, NULL included."""

    @cached_property
    def _defined(self) -> NDArray[np.bool_] | None:
        """Whether each value is there, or NULL; None if there is no NULL."""
        if self.levels is None:
            return None
        levels = runs_of(self.levels, 1, self.count)
        return None if levels.all_are(1) else levels.values() == 1


@dataclass(frozen=True)
class ValuePage(_DataPage):
    """A data page of values as they are."""

    values: Octets

    @classmethod
    def of(cls, page: bytes, codec: Codec, *, is_optional: bool) -> ValuePage:
        """Open a page.

        Raises:
            CannotSpliceError: If it is damaged, or of a style that is not written any more.
        """
        header, levels, body, count = _opened(page, codec, is_optional=is_optional)
        return cls(header, levels, codec, count, body)

    @property
    def rows(self) -> Codes | None:
        """Where its values are among those that are NULL; None if none is."""
        return None if self._defined is None else np.flatnonzero(self._defined)


@dataclass(frozen=True)
class IndexPage(_DataPage):
    """A data page of places in the dictionary."""

    width: int
    runs: bytes

    @classmethod
    def of(cls, page: bytes, codec: Codec, *, is_optional: bool) -> IndexPage:
        """Open a page.

        Raises:
            CannotSpliceError: If it is damaged, or of a style that is not written any more.
        """
        header, levels, body, count = _opened(page, codec, is_optional=is_optional)
        width, runs = (body[0], bytes(body[1:])) if body else (0, b"")
        return cls(header, levels, codec, count, width, runs)

    @property
    def nbytes(self) -> int:
        """What it takes in memory, about."""
        return len(self.runs) + len(self.levels or b"") + self.count

    @cached_property
    def _indices(self) -> Runs:
        count = self.count if self._defined is None else int(self._defined.sum())
        return runs_of(self.runs, self.width, count)

    def at(self, places: Codes) -> Codes:
        """Places in the dictionary of some values; -1 for NULL."""
        if self._defined is None:
            return self._indices.at(places)
        return self.codes()[places]

    def codes(self) -> Codes:
        """Places in the dictionary of all values; -1 for NULL."""
        if self._defined is None:
            return self._indices.values()
        codes = np.full(self.count, -1, np.int64)
        codes[self._defined] = self._indices.values()
        return codes

    @property
    def most(self) -> int:
        """The largest place in the dictionary that may be in it; -1 if all is NULL."""
        codes = self._indices.values()
        return int(codes.max()) if len(codes) else -1

    def replaced(self, places: Codes, codes: Codes) -> Parts:
        """The page with other codes for some values; -1 for NULL."""
        if self._defined is None and codes.min() >= 0:
            runs = self._indices.replaced(places, codes)
            if runs is not None:
                return self._closed(self.levels, bytes([self.width]) + runs, 0)
        every = self.codes()
        every[places] = codes
        defined = every >= 0
        kept = every[defined]
        width = max(self.width, width_of(kept))
        levels = None if self.levels is None else pack(defined.astype(np.int64), 1)
        nulls = self.count - len(kept)
        return self._closed(levels, bytes([width]) + pack(kept, width), nulls)

    def _closed(self, levels: bytes | None, body: bytes, nulls: int) -> Parts:
        levels = levels or b""
        if _V2 in self.header.values:
            header = _copied(self.header, _V2)
            inside = header.values[_V2]
            inside.values[2] = nulls
            set_field(inside, 5, len(levels), I32)
            drop_fields(inside, [7, 8])  # compressed is the default, and statistics are of old ones
            data = self.codec.compress(body)
            return _page(header, [levels, data], len(levels) + len(body))
        header = _copied(self.header, _V1)
        drop_fields(header.values[_V1], [5])
        prefix = b"" if self.levels is None else len(levels).to_bytes(_PREFIX, "little")
        raw = prefix + levels + body
        return _page(header, [self.codec.compress(raw)], len(raw))


def plain_values(pages: bytes, *, is_optional: bool) -> bytes:
    """The values in pages of version 1 that are plain and not compressed."""
    found, position = [], 0
    while position < len(pages):
        header, start = decode(pages, _HEADER, position)
        position = start + header.values[_SIZE]
        raw = pages[start:position]
        found.append(_cut(raw)[1] if is_optional else raw)
    return b"".join(found)


def _header_kind(page: bytes) -> int:
    try:
        return int(decode(page, {1: INT})[0].values[1])
    except (ThriftError, KeyError) as error:
        raise CannotSpliceError(f"the header of a page is damaged: {error}") from error


def _header(page: bytes, kind: int) -> tuple[Struct, int]:
    try:
        header, start = decode(page, _HEADER)
        is_whole = header.values[_SIZE] == len(page) - start
        is_known = 0 <= header.values[_RAW_SIZE] <= _LARGEST and 1 in header.values[kind].values
        if not is_whole or not is_known:
            raise CannotSpliceError("the header of a page does not say how long it is")
        return header, start
    except (ThriftError, KeyError) as error:
        raise CannotSpliceError(f"the header of a page is damaged: {error!r}") from error


def _opened(
    page: bytes, codec: Codec, *, is_optional: bool
) -> tuple[Struct, bytes | None, Octets, int]:
    """The header of a data page, its levels, the rest of it, and how many values it has."""
    kind = _V2 if _header_kind(page) == DATA_PAGE_V2 else _V1
    header, start = _header(page, kind)
    inside = header.values[kind].values
    data = memoryview(page)[start:]
    if kind == _V2:
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


def _page(header: Struct, body: Parts, raw_size: int) -> Parts:
    """A page with its header, whose sizes and checksum are those of its bytes."""
    header.values[_RAW_SIZE] = raw_size
    header.values[_SIZE] = length_of(body)
    if _CHECKSUM in header.kinds:
        checksum = 0
        for part in body:
            assert not isinstance(part, Range)
            checksum = zlib.crc32(part, checksum)
        header.values[_CHECKSUM] = checksum - (checksum >> 31 << 32)  # as a signed number
    return [encode(header), *body]
