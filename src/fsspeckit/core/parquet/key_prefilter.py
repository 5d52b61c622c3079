"""Rows of a string column that may hold one of some keys, found without decoding the others.

Random identifiers, such as UUIDs and hashes, leave no bounds to prune by, so all of them must be
compared. But they have one length: where each begins in its page is known, and its last eight bytes
rule out almost all of them.
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
    from fsspeckit.core.parquet.format.pages import Codec, Integers, Octets, Page

_MAX_KEYS: Final = 1 << 16
_BITS: Final = 18
_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)
_PREFIX: Final = 4
_TAIL: Final = 8
_PLAIN: Final = 0
_CODECS: Final = {"UNCOMPRESSED": 0, "SNAPPY": 1, "GZIP": 2, "BROTLI": 4, "ZSTD": 6}


class KeyPrefilter:
    """Keeps the values that end like one of some keys.

    Args:
        keys: The keys, none of them NULL.
    """

    def __init__(self, keys: pa.Array) -> None:
        long = keys.filter(pc.greater_equal(pc.binary_length(keys), _TAIL))
        self._sizes = frozenset(pc.unique(pc.binary_length(long)).to_pylist())
        tails = pc.binary_slice(long, -_TAIL).cast(pa.binary(_TAIL))
        data = np.frombuffer(tails.buffers()[1] or b"", "<u8", len(tails), tails.offset * _TAIL)
        self._tails = np.unique(data)
        # A table of hashes rules out most values in one step; the others are compared exactly.
        self._has_hash = np.zeros(1 << _BITS, bool)
        self._has_hash[_hashes(self._tails)] = True

    @classmethod
    def of(cls, keys: pa.ChunkedArray) -> KeyPrefilter | None:
        """A filter for keys; None if there are too many, or one is NULL."""
        if keys.null_count or not 0 < len(keys) <= _MAX_KEYS:
            return None
        return cls(pa.concat_arrays(keys.chunks))

    def apply(self, values: Octets, count: int) -> PrefilteredRows | None:
        """Return those of ``count`` plain values that may be keys; None if lengths differ."""
        if not count:
            return _NOTHING
        lines = _lines(values, count)
        if lines is None:
            return None
        if lines.shape[1] not in self._sizes:
            return _NOTHING
        tails = lines[:, -_TAIL:].view("<u8")[:, 0]
        positions = np.flatnonzero(self._has_hash[_hashes(tails)])
        passed = tails[positions]
        found = np.searchsorted(self._tails, passed)
        positions = positions[self._tails[np.minimum(found, len(self._tails) - 1)] == passed]
        return PrefilteredRows(positions, _values(lines[positions])) if len(positions) else _NOTHING


@dataclass(frozen=True)
class PrefilteredRows:
    """Values that may be keys, and their positions."""

    positions: Integers
    values: pa.Array


_NOTHING: Final = PrefilteredRows(np.empty(0, np.int64), pa.array([], pa.binary()))


def prefilter_chunk(
    chunk: pq.ColumnChunkMetaData,
    leaf: Any,
    rows: int,
    size: int,
    read: Read,
    prefilter: KeyPrefilter,
) -> PrefilteredRows | None:
    """Return the rows of a string column chunk that may hold a key.

    Args:
        chunk: The chunk, as its file's footer describes it.
        leaf: Its column in the schema of the file.
        rows: The number of rows of its row group.
        size: The size of the file.
        read: Reads bytes of it.
        prefilter: The keys.

    Returns:
        None if the chunk has to be decoded: it is nested, its values differ in length, it is
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
    scan = _ChunkScan(prefilter, codec, leaf.max_definition_level == 1)
    try:
        return scan.run(read(start, length), rows)
    except CannotSpliceError:
        return None


@dataclass
class _ChunkScan:
    """One pass over the pages of a chunk."""

    prefilter: KeyPrefilter
    codec: Codec
    is_optional: bool
    dictionary: PrefilteredRows | None = None
    dictionary_size: int = 0

    def run(self, data: bytes, rows: int) -> PrefilteredRows | None:
        found, row = [], 0
        for page in pages_in(Range(0, len(data)), "", lambda s, n: data[s : s + n]):
            # pyarrow stops at a page without rows if it is the first.
            if page.is_data and not 0 < page.values <= rows - row:
                return None
            here = self._page(page, data)
            if here is None:
                return None
            if len(here.positions):
                found.append(PrefilteredRows(here.positions + row, here.values))
            row += page.values
        if row != rows:
            return None
        if not found:
            return _NOTHING
        return PrefilteredRows(
            np.concatenate([one.positions for one in found]),
            pa.concat_arrays([one.values for one in found]),
        )

    def _page(self, page: Page, chunk: bytes) -> PrefilteredRows | None:
        is_indexed = page.is_data and page.encoding in DICTIONARY_ENCODINGS
        if is_indexed and self.dictionary is not None and not len(self.dictionary.positions):
            return _NOTHING  # no key is in the dictionary, so the page stays closed
        data = chunk[page.part.start : page.part.end]
        if page.kind == DICTIONARY_PAGE:
            opened = DictionaryPage.of(data, self.codec)
            self.dictionary = self.prefilter.apply(opened.values, opened.count)
            self.dictionary_size = opened.count
            return None if self.dictionary is None else _NOTHING
        if is_indexed and self.dictionary is not None:
            return self._indexed(self.dictionary, data)
        return self._plain(data) if page.is_data and page.encoding == _PLAIN else None

    def _plain(self, data: bytes) -> PrefilteredRows | None:
        opened = ValuePage.of(data, self.codec, is_optional=self.is_optional)
        rows = opened.rows
        found = self.prefilter.apply(opened.values, opened.count if rows is None else len(rows))
        if found is None or rows is None:
            return found
        return PrefilteredRows(rows[found.positions], found.values)

    def _indexed(self, dictionary: PrefilteredRows, data: bytes) -> PrefilteredRows | None:
        indices = IndexPage.of(data, self.codec, is_optional=self.is_optional).indices()
        if len(indices) and indices.max() >= self.dictionary_size:
            return None
        number = np.full(self.dictionary_size + 1, -1)  # the last one is for NULL
        number[dictionary.positions] = np.arange(len(dictionary.positions))
        found = number[indices]
        positions = np.flatnonzero(found >= 0)
        return PrefilteredRows(positions, dictionary.values.take(pa.array(found[positions])))


def _lines(values: Octets, count: int) -> NDArray[np.uint8] | None:
    """Plain strings as a matrix of bytes; None if their lengths differ, or are too short."""
    size = int.from_bytes(values[:_PREFIX], "little")
    if size < _TAIL or count * (_PREFIX + size) != len(values):
        return None
    lines = np.frombuffer(values, np.uint8).reshape(count, _PREFIX + size)
    has_one_length = (lines[:, :_PREFIX].view("<u4") == size).all()
    return lines[:, _PREFIX:] if has_one_length else None


def _values(lines: NDArray[np.uint8]) -> pa.Array:
    data = pa.py_buffer(np.ascontiguousarray(lines))
    fixed = pa.Array.from_buffers(pa.binary(lines.shape[1]), len(lines), [None, data])
    return fixed.cast(pa.binary())


def _hashes(tails: NDArray[np.uint64]) -> Integers:
    # The last bytes are hashed, not the first: many identifiers begin with a time.
    return ((tails * _MULTIPLIER) >> np.uint64(64 - _BITS)).view(np.int64)
