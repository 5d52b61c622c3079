"""More bytes at the end of what Snappy has compressed, without compressing it again.

A block begins with the number of bytes that it stands for. Then come pieces: some copy what was
before, others are bytes as they are. One more of the latter makes a longer block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fsspeckit.core.parquet.format.layout import CannotSpliceError, Range
from fsspeckit.core.parquet.format.thriftwriter import varint

if TYPE_CHECKING:
    from fsspeckit.core.parquet.format.layout import Part

__all__ = ["appended", "check_size"]

_SHORT: Final = 60
_LONG_TAG: Final = 63 << 2
"""A piece of bytes whose length is in the next four."""


def check_size(block: bytes | memoryview, size: int) -> None:
    """See that a block begins with the number of bytes it stands for, in as few bytes as needed.

    Raises:
        CannotSpliceError: If it does not, and so cannot be made longer.
    """
    preamble = varint(size)
    if block[: len(preamble)] != preamble:
        raise CannotSpliceError("a compressed block is not as long as it should be")


def appended(block: Part, size: int, more: bytes) -> list[Part]:
    """A block with more bytes after those it stands for, in parts.

    Args:
        block: What Snappy made, or where it is in a file; `check_size` was asked about it.
        size: How many bytes it stands for.
        more: What follows them.

    Examples:
        >>> import pyarrow as pa
        >>> snappy = pa.Codec("snappy")
        >>> block = b"".join(appended(snappy.compress(b"some", asbytes=True), 4, b" more"))
        >>> snappy.decompress(block, 9, asbytes=True)
        b'some more'
    """
    if not more:
        return [block]
    before = len(varint(size))
    if isinstance(block, Range):
        rest: Part = Range(block.start + before, block.length - before)
    else:
        rest = block[before:]
    last = len(more) - 1
    is_short = len(more) <= _SHORT
    tag = bytes([last << 2]) if is_short else bytes([_LONG_TAG]) + last.to_bytes(4, "little")
    return [varint(size + len(more)), rest, tag, more]
