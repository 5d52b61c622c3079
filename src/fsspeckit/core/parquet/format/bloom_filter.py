"""Split-block bloom filters as Parquet stores them: parse one and ask it about many values.

A filter knows the bytes of the values, not what they mean. Two values that are equal as keys but
differ as bytes (0.0 and -0.0, the many NaNs, an unscaled decimal of another width) have different
hashes, so "not contained" excludes a key only if every spelling of it was asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numpy.lib.stride_tricks import sliding_window_view

from fsspeckit.core.parquet.format.thrift import INT, Spec, Struct, ThriftError, decode
from fsspeckit.errors import InvalidArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]
    Bytes = NDArray[np.uint8]

__all__ = ["BloomFilter", "hash_values", "header_and_bitset_length", "xxh64"]

_PRIME1: Final = np.uint64(0x9E3779B185EBCA87)
_PRIME2: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME3: Final = np.uint64(0x165667B19E3779F9)
_PRIME4: Final = np.uint64(0x85EBCA77C2B2AE63)
_PRIME5: Final = np.uint64(0x27D4EB2F165667C5)
_MASK: Final = (1 << 64) - 1
_HALF: Final = np.uint64(32)

_BLOCK_BYTES: Final = 32
_SALT: Final = np.array(
    [
        0x47B6137B,
        0x44974D91,
        0x8824AD5B,
        0xA2B7289D,
        0x705495C7,
        0x2DF1424B,
        0x9EFC4947,
        0x5C6BFB31,
    ],
    dtype=np.uint32,
)
# Hashes looked up at a time: a block of the filter is eight times as large as a hash.
_SLICE: Final = 1 << 16

# numBytes, then three unions of which only the first member is defined so far: the split-block
# algorithm, the XXH64 hash, no compression.
_HEADER: Final[Spec] = {1: INT, 2: {1: {}}, 3: {1: {}}, 4: {1: {}}}
_UNIONS: Final = (2, 3, 4)


@dataclass(frozen=True, eq=False, slots=True)
class BloomFilter:
    """A split-block bloom filter.

    Examples:
        >>> bloom = BloomFilter(np.zeros((1, 8), dtype=np.uint32))
        >>> bloom.might_contain(hash_values(pa.array([1, 2], pa.int64())))
        array([False, False])
    """

    blocks: NDArray[np.uint32]
    """One row of eight words per block."""

    @classmethod
    def parse(cls, data: bytes) -> BloomFilter | None:
        """Read a filter from its header and bitset.

        Args:
            data: The bytes from the chunk's ``bloom_filter_offset`` on; more may follow.

        Returns:
            None if the algorithm, the hash or the compression is not known, and also if the bytes
            are damaged: a filter is only ever a reason to skip work, so without one the work is
            done. (Flipped bits in the bitset itself cannot be seen: it has no checksum.)
        """
        try:
            header, size, start = _parse_header(data)
        except ThriftError:
            return None
        known = all(list(header.values[union].kinds) == [1] for union in _UNIONS)
        if not known or not size or size % _BLOCK_BYTES or len(data) < start + size:
            return None
        words = np.frombuffer(data, dtype="<u4", count=size // 4, offset=start)
        return cls(words.astype(np.uint32, copy=False).reshape(-1, _BLOCK_BYTES // 4))

    def might_contain(self, hashes: Hashes) -> NDArray[np.bool_]:
        """Tell for each hash whether its value may be in the column chunk.

        Args:
            hashes: What `hash_values` returned.

        Returns:
            False where the value is certainly absent.
        """
        result = np.empty(len(hashes), dtype=np.bool_)
        for start in range(0, len(hashes), _SLICE):
            part = slice(start, start + _SLICE)
            result[part] = self._look_up(hashes[part])
        return result

    def _look_up(self, hashes: Hashes) -> NDArray[np.bool_]:
        block = (hashes >> _HALF) * np.uint64(len(self.blocks)) >> _HALF
        bit = (hashes.astype(np.uint32)[:, np.newaxis] * _SALT) >> 27
        # Each value has one bit in each of the eight words; it is absent if one of them is not set.
        present = self.blocks[block.astype(np.intp)] >> bit
        found: NDArray[np.bool_] = (np.bitwise_and.reduce(present, axis=1) & 1).astype(np.bool_)
        return found


def header_and_bitset_length(prefix: bytes) -> int:
    """Tell how long a filter is from its first bytes.

    Older writers store the offset of a filter and not its length.

    Args:
        prefix: The bytes from the chunk's ``bloom_filter_offset`` on; the header takes less than
            64 of them.

    Returns:
        The number of bytes that header and bitset take together.

    Raises:
        ThriftError: The bytes are no bloom filter header, or not all of it.
    """
    _, size, start = _parse_header(prefix)
    return start + size


def _parse_header(data: bytes) -> tuple[Struct, int, int]:
    """Return the header, the length of the bitset, and where it starts."""
    header, start = decode(data, _HEADER)
    missing = [number for number in _HEADER if number not in header.values]
    if missing or header.values[1] < 0:
        raise ThriftError(
            f"not a bloom filter header: fields {missing} are missing, "
            f"the bitset has {header.values.get(1)} bytes."
        )
    return header, header.values[1], start


def hash_values(array: pa.Array) -> Hashes:
    """Hash values the way Parquet's bloom filters do: XXH64 of the plain encoding.

    Args:
        array: Physical values of the file, without nulls: int32, int64, float32, float64, binary,
            large_binary or fixed_size_binary. (A date is its int32, a string its binary, and so
            on.)

    Returns:
        One hash per value.

    Raises:
        InvalidArgumentError: There are nulls, or the type is none of these.
    """
    if array.null_count:
        raise InvalidArgumentError(
            f"cannot hash {array.null_count:,} null(s) of {len(array):,} values.\n"
            "Hint: bloom filters hold no nulls; drop them first."
        )
    kind = array.type
    if kind in (pa.int32(), pa.int64(), pa.float32(), pa.float64()):
        return xxh64(_rows(array, kind.bit_width // 8))
    if pa.types.is_fixed_size_binary(kind):
        return xxh64(_rows(array, kind.byte_width))
    if kind in (pa.binary(), pa.large_binary()):
        return _hash_binary(array)
    raise InvalidArgumentError(
        f"cannot hash values of type {kind}.\n"
        "Hint: cast to the physical type of the file: int32, int64, float32, float64, binary, "
        "large_binary or fixed_size_binary."
    )


def _rows(array: pa.Array, width: int) -> Bytes:
    """View fixed-width values as one row of bytes each."""
    data = _bytes(array.buffers()[1])
    start = array.offset * width
    rows: Bytes = data[start : start + len(array) * width].reshape(len(array), width)
    return rows


def _hash_binary(array: pa.Array) -> Hashes:
    """Hash values of different length, those of the same length together."""
    hashes = np.empty(len(array), dtype=np.uint64)
    if not len(array):
        return hashes
    _, offsets, values = array.buffers()
    width = np.dtype(np.int64 if array.type == pa.large_binary() else np.int32)
    start = array.offset * width.itemsize
    ends = np.frombuffer(offsets, dtype=width, count=len(array) + 1, offset=start)
    data = _bytes(values)
    lengths = np.diff(ends)
    order = np.argsort(lengths, kind="stable")
    distinct, first = np.unique(lengths[order], return_index=True)
    for length, members in zip(distinct.tolist(), np.split(order, first[1:]), strict=True):
        hashes[members] = xxh64(_gather(data, ends[members], length))
    return hashes


def _gather(data: Bytes, starts: NDArray[Any], length: int) -> Bytes:
    if not length:
        return np.empty((len(starts), 0), dtype=np.uint8)
    gathered: Bytes = sliding_window_view(data, length)[starts]
    return gathered


def _bytes(buffer: pa.Buffer | None) -> Bytes:
    # An array without values may come without a buffer for them.
    return np.frombuffer(buffer if buffer is not None else b"", dtype=np.uint8)


def xxh64(values: Bytes, seed: int = 0) -> Hashes:
    """Hash many values of the same length.

    Args:
        values: One value per row, one byte per column.
        seed: The seed; Parquet uses 0.

    Returns:
        The XXH64 hash of each row.

    Examples:
        >>> hex(xxh64(np.frombuffer(b"abc", dtype=np.uint8).reshape(1, 3))[0])
        '0x44bc2cf5ad770999'
    """
    count, length = values.shape
    aligned = length - length % 8
    words = _words(values[:, :aligned], 8)
    striped = length // 32 * 4
    if striped:
        result = _stripes(words[:, :striped], seed)
    else:
        result = np.full(count, (seed + int(_PRIME5)) & _MASK, dtype=np.uint64)
    result += np.uint64(length)
    for column in range(striped, words.shape[1]):
        result ^= _round(np.uint64(0), words[:, column])
        result = _rotate(result, 27) * _PRIME1 + _PRIME4
    if length % 8 >= 4:
        result ^= _words(values[:, aligned : aligned + 4], 4)[:, 0] * _PRIME1
        result = _rotate(result, 23) * _PRIME2 + _PRIME3
        aligned += 4
    for column in range(aligned, length):
        result ^= values[:, column] * _PRIME5
        result = _rotate(result, 11) * _PRIME1
    return _avalanche(result)


def _words(values: Bytes, width: int) -> NDArray[Any]:
    """Read each row as little-endian numbers of ``width`` bytes."""
    return np.ascontiguousarray(values).view(f"<u{width}")


def _stripes(words: Hashes, seed: int) -> Hashes:
    """Mix whole stripes of four words, each word into its own lane, and merge the lanes."""
    prime1, prime2 = int(_PRIME1), int(_PRIME2)
    starts = (seed + prime1 + prime2, seed + prime2, seed, seed - prime1)
    lanes = [np.full(len(words), start & _MASK, dtype=np.uint64) for start in starts]
    for column in range(words.shape[1]):
        lanes[column % 4] = _round(lanes[column % 4], words[:, column])
    result = np.zeros(len(words), dtype=np.uint64)
    for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True):
        result += _rotate(lane, bits)
    for lane in lanes:
        result ^= _round(np.uint64(0), lane)
        result = result * _PRIME1 + _PRIME4
    return result


def _round(lane: Hashes | np.uint64, word: Hashes) -> Hashes:
    return _rotate(lane + word * _PRIME2, 31) * _PRIME1


def _rotate(value: Hashes, bits: int) -> Hashes:
    return value << np.uint64(bits) | value >> np.uint64(64 - bits)


def _avalanche(value: Hashes) -> Hashes:
    value = (value ^ value >> np.uint64(33)) * _PRIME2
    value = (value ^ value >> np.uint64(29)) * _PRIME3
    return value ^ value >> np.uint64(32)
