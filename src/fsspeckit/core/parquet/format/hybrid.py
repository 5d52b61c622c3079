"""Runs of small integers, as Parquet stores places in a dictionary and definition levels.

A run is either one value many times or groups of eight values in as many bits as are needed. Values
at some places are read and exchanged without decoding the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from fsspeckit.core.parquet.format.layout import CannotSpliceError
from fsspeckit.core.parquet.format.thrift import ThriftError, read_varint
from fsspeckit.core.parquet.format.thriftwriter import varint

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Codes = NDArray[np.int64]

__all__ = ["Runs", "pack", "runs_of", "width_of"]

_WIDEST: Final = 32
_NARROW: Final = 25  # with up to seven bits before it, it fits into 32
_GROUP: Final = 8
_REPEATED: Final = -1


@dataclass(frozen=True)
class Runs:
    """The runs of some values."""

    data: bytes
    width: int
    count: int
    """How many values there are; the last group of eight may have more."""

    starts: Codes
    """The number of the first value of each run."""

    bits: Codes
    """Where the first value of a run of groups begins; -1 for a repeated value."""

    repeated: Codes
    """The value that is repeated."""

    def all_are(self, value: int) -> bool:
        """Whether all values are stored as repetitions of this one."""
        return bool((self.bits == _REPEATED).all() and (self.repeated == value).all())

    def values(self) -> Codes:
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

    def at(self, places: Codes) -> Codes:
        """The values at some places."""
        run = np.searchsorted(self.starts, places, side="right") - 1
        bits = self.bits[run] + (places - self.starts[run]) * self.width
        is_repeated = self.bits[run] == _REPEATED
        if not is_repeated.any():
            return self._unpacked(bits)
        found = self.repeated[run]
        found[~is_repeated] = self._unpacked(bits[~is_repeated])
        return found

    def _unpacked(self, bits: Codes) -> Codes:
        padded = self.data + bytes(_GROUP)
        words: Any = np.ndarray((len(self.data) + 1,), "<u8", buffer=padded, strides=(1,))
        found = words[bits >> 3] >> (bits & 7).astype(np.uint64)
        unpacked: Codes = (found & np.uint64((1 << self.width) - 1)).astype(np.int64)
        return unpacked

    def replaced(self, places: Codes, values: Codes) -> bytes | None:
        """The bytes with other values at some places.

        None if a value needs more bits, or if one of a repetition would change.
        """
        run = np.searchsorted(self.starts, places, side="right") - 1
        if (self.bits[run] == _REPEATED).any() or int(values.max()) >> self.width:
            return None
        bits = self.bits[run] + (places - self.starts[run]) * self.width
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


def runs_of(data: bytes, width: int, count: int) -> Runs:
    """Find the runs.

    Args:
        data: The runs, from their first byte.
        width: How many bits a value has.
        count: How many values there are.

    Raises:
        CannotSpliceError: If there are fewer, or one has more bits.
    """
    if not 0 <= width <= _WIDEST:
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
    return Runs(data, width, count, *(np.array(one, np.int64) for one in (starts, bits, repeated)))


def _unpack(packed: bytes, width: int) -> Codes:
    """The values of groups of eight, without headers between them."""
    groups = len(packed) // width
    word = np.uint32 if width <= _NARROW else np.uint64  # half the bytes to move, mostly
    octets = np.frombuffer(packed, np.uint8).reshape(groups, width).T.astype(word)
    out = np.empty((_GROUP, groups), word)
    for number in range(_GROUP):
        first, shift = divmod(number * width, 8)
        found = octets[first] >> word(shift)
        for more in range(1, (width + shift + 7) // 8):
            found |= octets[first + more] << word(8 * more - shift)
        out[number] = found
    out &= word((1 << width) - 1)
    return out.T.reshape(-1).astype(np.int64)


def width_of(values: Codes) -> int:
    """How many bits the largest value needs."""
    return int(values.max()).bit_length() if len(values) else 0


def pack(values: Codes, width: int) -> bytes:
    """The runs of some values: one repetition if all are the same, else one run of groups."""
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
        for more in range((width + shift + 7) // 8):
            out[first + more] |= (shifted >> np.uint64(8 * more)).astype(np.uint8)
    return varint(groups << 1 | 1) + out[:width].T.tobytes()
