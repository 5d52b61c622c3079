"""More bytes at the end of what Snappy has compressed, without compressing it again.

A block begins with the number of bytes that it stands for. Then come pieces: some copy what was
before, others are bytes as they are. One more of the latter makes a longer block.
"""

from __future__ import annotations

from typing import Final

from fsspeckit.core.parquet.anatomy import CannotSpliceError
from fsspeckit.core.parquet.thriftwriter import varint

__all__ = ["appended"]

_SHORT: Final = 60
_LONG_TAG: Final = 63 << 2
"""A piece of bytes whose length is in the next four."""


def appended(block: bytes | memoryview, size: int, more: bytes) -> list[bytes | memoryview]:
    """A block with more bytes after those it stands for, in parts.

    Args:
        block: What Snappy made.
        size: How many bytes it stands for.
        more: What follows them.

    Raises:
        CannotSpliceError: If the block says that it stands for another number of bytes.

    Examples:
        >>> import pyarrow as pa
        >>> snappy = pa.Codec("snappy")
        >>> block = b"".join(appended(snappy.compress(b"some", asbytes=True), 4, b" more"))
        >>> snappy.decompress(block, 9, asbytes=True)
        b'some more'
    """
    preamble = varint(size)
    if block[: len(preamble)] != preamble:
        raise CannotSpliceError("a compressed block is not as long as it should be")
    if not more:
        return [block]
    last = len(more) - 1
    is_short = len(more) <= _SHORT
    tag = bytes([last << 2]) if is_short else bytes([_LONG_TAG]) + last.to_bytes(4, "little")
    return [varint(size + len(more)), block[len(preamble) :], tag, more]
