"""Rows of a column of strings that may have one of some values, found without decoding the others.

Random identifiers, such as UUIDs and hashes, leave no bounds to prune by, so that all of them must
be looked at. But they are of one length: where each begins in its page is known, and a few of its
bytes tell of almost all that they are none of those that are wanted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.parquet.format.layout import CannotSpliceError, Range
from fsspeckit.core.parquet.format.pages import (
    DICTIONARY_ENCODINGS,
    DICTIONARY_PAGE,
    DictionaryPage,
    IndexPage,
    ValuePage,
    codec_of,
    pages_in,
)

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from numpy.typing import NDArray

    from fsspeckit.core.parquet.format.layout import Read
    from fsspeckit.core.parquet.format.pages import Codec, Octets, Page

    Places = NDArray[np.int64]

__all__ = ["KeyPrefilter", "PrefilteredRows", "prefilter_chunk"]

_MOST_KEYS: Final = 1 << 16
_BITS: Final = 18
_SCATTER: Final = np.uint64(0x9E3779B97F4A7C15)
_PREFIX: Final = 4
_TAIL: Final = 8
_PLAIN: Final = 0
_CODECS: Final = {"UNCOMPRESSED": 0, "SNAPPY": 1, "GZIP": 2, "BROTLI": 4, "ZSTD": 6}


class KeyPrefilter:
    """Lets some values pass, and few others.

    Args:
        wanted: The values, none of them NULL.
    """

    def __init__(self, wanted: pa.Array) -> None:
        long = wanted.filter(pc.greater_equal(pc.binary_length(wanted), _TAIL))
        self._sizes = frozenset(pc.unique(pc.binary_length(long)).to_pylist())
        tails = pc.binary_slice(long, -_TAIL).cast(pa.binary(_TAIL))
        self._passing = np.zeros(1 << _BITS, bool)
        self._passing[_scattered(_lines_of(tails, _TAIL))] = True

    @classmethod
    def of(cls, wanted: pa.ChunkedArray) -> KeyPrefilter | None:
        """A sieve for values; None if there are too many, or one is NULL."""
        if wanted.null_count or not 0 < len(wanted) <= _MOST_KEYS:
            return None
        return cls(pa.concat_arrays(wanted.chunks))

    def sift(self, values: Octets, count: int) -> PrefilteredRows | None:
        """Those of some plain values that pass; None if they are of several lengths."""
        if not count:
            return _NOTHING
        lines = _lines(values, count)
        if lines is None:
            return None
        if lines.shape[1] not in self._sizes:
            return _NOTHING
        places = np.flatnonzero(self._passing[_scattered(lines)])
        return PrefilteredRows(places, _values(lines[places]))


@dataclass(frozen=True)
class PrefilteredRows:
    """Values that have passed, and where they are."""

    places: Places
    values: pa.Array

    def moved(self, by: int) -> PrefilteredRows:
        """The same values at later places."""
        return PrefilteredRows(self.places + by, self.values)


_NOTHING: Final = PrefilteredRows(np.empty(0, np.int64), pa.array([], pa.binary()))


def prefilter_chunk(
    chunk: pq.ColumnChunkMetaData, leaf: Any, rows: int, size: int, read: Read, sieve: KeyPrefilter
) -> PrefilteredRows | None:
    """The rows of a column chunk of strings that pass.

    Args:
        chunk: The chunk, as its file's footer describes it.
        leaf: Its column in the schema of the file.
        rows: How many rows its row group has.
        size: The size of the file.
        read: Reads bytes of it.
        sieve: What is looked for.

    Returns:
        None if the chunk has to be decoded: it is nested, its values are of several lengths, it is
        encoded in another way, or it is damaged.

    Raises:
        OSError: What the filesystem raised.
    """
    codec = codec_of(_CODECS.get(chunk.compression, -1))
    is_flat = leaf.max_repetition_level == 0 and leaf.max_definition_level <= 1
    if codec is None or not is_flat or chunk.physical_type != "BYTE_ARRAY":
        return None
    start = min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)
    length = chunk.total_compressed_size
    if start < 0 or not 0 <= length <= size - start:
        return None
    sifting = _Sifting(sieve, codec, leaf.max_definition_level == 1)
    try:
        return sifting.sift(read(start, length), rows)
    except CannotSpliceError:
        return None


@dataclass
class _Sifting:
    """The way through the pages of one chunk."""

    sieve: KeyPrefilter
    codec: Codec
    is_optional: bool
    dictionary: PrefilteredRows | None = None
    values: int = 0
    """How many values the dictionary has."""

    def sift(self, data: bytes, rows: int) -> PrefilteredRows | None:
        found, row = [_NOTHING], 0
        for page in pages_in(Range(0, len(data)), "", lambda s, n: data[s : s + n]):
            # A page without rows is one that pyarrow ends at, if it is the first.
            if page.is_data and not 0 < page.values <= rows - row:
                return None
            here = self._page(page, data[page.part.start : page.part.end])
            if here is None:
                return None
            found.append(here.moved(row))
            row += page.values
        if row != rows:
            return None
        return PrefilteredRows(
            np.concatenate([one.places for one in found]),
            pa.concat_arrays([one.values for one in found]),
        )

    def _page(self, page: Page, data: bytes) -> PrefilteredRows | None:
        if page.kind == DICTIONARY_PAGE:
            opened = DictionaryPage.of(data, self.codec)
            self.dictionary = self.sieve.sift(opened.values, opened.count)
            self.values = opened.count
            return None if self.dictionary is None else _NOTHING
        if page.is_data and page.encoding in DICTIONARY_ENCODINGS and self.dictionary is not None:
            return self._indexed(self.dictionary, data) if len(self.dictionary.places) else _NOTHING
        return self._plain(data) if page.is_data and page.encoding == _PLAIN else None

    def _plain(self, data: bytes) -> PrefilteredRows | None:
        opened = ValuePage.of(data, self.codec, is_optional=self.is_optional)
        rows = opened.rows
        found = self.sieve.sift(opened.values, opened.count if rows is None else len(rows))
        if found is None or rows is None:
            return found
        return PrefilteredRows(rows[found.places], found.values)

    def _indexed(self, dictionary: PrefilteredRows, data: bytes) -> PrefilteredRows | None:
        codes = IndexPage.of(data, self.codec, is_optional=self.is_optional).codes()
        if len(codes) and codes.max() >= self.values:
            return None
        number = np.full(self.values + 1, -1)  # the last one is for NULL
        number[dictionary.places] = np.arange(len(dictionary.places))
        found = number[codes]
        places = np.flatnonzero(found >= 0)
        return PrefilteredRows(places, dictionary.values.take(pa.array(found[places])))


def _lines(values: Octets, count: int) -> NDArray[np.uint8] | None:
    """Plain strings, each a line of bytes; None if they are not all of one length, or short."""
    size = int.from_bytes(values[:_PREFIX], "little")
    if size < _TAIL or count * (_PREFIX + size) != len(values):
        return None
    lines = np.frombuffer(values, np.uint8).reshape(count, _PREFIX + size)
    is_even = (lines[:, :_PREFIX].view("<u4") == size).all()
    return lines[:, _PREFIX:] if is_even else None


def _lines_of(values: pa.Array, size: int) -> NDArray[np.uint8]:
    octets = np.frombuffer(values.buffers()[1], np.uint8)
    start = values.offset * size
    return octets[start : start + len(values) * size].reshape(len(values), size)


def _values(lines: NDArray[np.uint8]) -> pa.Array:
    size = lines.shape[1]
    kept = pa.py_buffer(np.ascontiguousarray(lines))
    fixed = pa.Array.from_buffers(pa.binary(size), len(lines), [None, kept])
    return fixed.cast(pa.binary())


def _scattered(lines: NDArray[np.uint8]) -> Places:
    """A number below the size of the sieve for each line, from its end: ids may begin alike."""
    tails = lines[:, -_TAIL:].view("<u8")[:, 0]
    return ((tails * _SCATTER) >> np.uint64(64 - _BITS)).view(np.int64)
