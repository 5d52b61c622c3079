"""Split-block bloom filters of Parquet: parse one, and probe it with the hashes of values.

A filter knows the bytes of values, not their meaning. Values that are equal as keys but differ as
bytes (0.0 and -0.0, the many NaNs, an unscaled decimal of another width) have different hashes, so
"not contained" excludes a key only if all its representations were probed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from xxhash import xxh64_intdigest

from fsspeckit.core.parquet.format.thrift import INT, Spec, Struct, ThriftError, decode
from fsspeckit.errors import InvalidArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]

_HALF: Final = np.uint64(32)

_BLOCK_BYTES: Final = 32
_SALT: Final = np.array(
    [
        0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D,
        0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31,
    ],
    dtype=np.uint32,
)  # fmt: skip

# numBytes, then three unions of which only the first member is defined so far: the split-block
# algorithm, the XXH64 hash, no compression.
_HEADER: Final[Spec] = {1: INT, 2: {1: {}}, 3: {1: {}}, 4: {1: {}}}
_UNIONS: Final = (2, 3, 4)
_NUMBERS: Final = (pa.int32(), pa.int64(), pa.float32(), pa.float64())


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
            None if the algorithm, the hash or the compression is unknown, or the bytes are
            damaged: a filter only saves work, so the merge goes on without it. Flipped bits in
            the bitset itself go unnoticed: it has no checksum.
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
        """Return for each hash whether its value may be in the column chunk.

        Args:
            hashes: What `hash_values` returned.

        Returns:
            False where the value is certainly absent.
        """
        block = (hashes >> _HALF) * np.uint64(len(self.blocks)) >> _HALF
        bit = (hashes.astype(np.uint32)[:, np.newaxis] * _SALT) >> 27
        # Each value has one bit in each of the eight words; it is absent if one of them is not set.
        present = self.blocks[block.astype(np.intp)] >> bit
        found: NDArray[np.bool_] = (np.bitwise_and.reduce(present, axis=1) & 1).astype(np.bool_)
        return found


def header_and_bitset_length(prefix: bytes) -> int:
    """Return the length of a filter from its first bytes: older writers store only its offset.

    Args:
        prefix: The bytes from the chunk's ``bloom_filter_offset`` on; the header takes less than
            64 of them.

    Returns:
        The number of bytes that header and bitset take together.

    Raises:
        ThriftError: The bytes are not a complete bloom filter header.
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
        array: Physical values without nulls: int32, int64, float32, float64, binary, large_binary
            or fixed_size_binary. A date is its int32, a string its binary, and so on.

    Returns:
        One hash per value.

    Raises:
        InvalidArgumentError: There are nulls, or the type is another one.
    """
    if array.null_count:
        raise InvalidArgumentError(
            f"cannot hash {array.null_count:,} null(s) of {len(array):,} values.\n"
            "Hint: bloom filters hold no nulls; drop them first."
        )
    kind = array.type
    if kind in (pa.binary(), pa.large_binary()):
        return _hash_bytes(array.to_pylist())
    if kind in _NUMBERS or pa.types.is_fixed_size_binary(kind):
        # Unlike a list made by pyarrow, one made by NumPy takes no step for each value in Python.
        width = kind.bit_width // 8
        data = array.buffers()[1] or b""
        start = array.offset * width
        return _hash_bytes(np.frombuffer(data, f"V{width}", len(array), start).tolist())
    raise InvalidArgumentError(
        f"cannot hash values of type {kind}.\n"
        "Hint: cast to the physical type of the file: int32, int64, float32, float64, binary, "
        "large_binary or fixed_size_binary."
    )


def _hash_bytes(values: list[bytes]) -> Hashes:
    return np.fromiter(map(xxh64_intdigest, values), np.uint64, len(values))
