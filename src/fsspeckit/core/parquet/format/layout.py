"""Where everything is in a Parquet file: the byte ranges behind each column chunk.

A file can be taken apart and put together again only if its footer accounts for its bytes. What is
found here to be otherwise, or is not understood, is a `CannotSpliceError`: such a file can still
be read and written as a whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from fsspeckit.core.parquet.format.bloom_filter import header_and_bitset_length
from fsspeckit.core.parquet.format.thrift import BYTES, INT, RAW, Spec, Struct, ThriftError, decode
from fsspeckit.errors import FsspeckitError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Read = Callable[[int, int], bytes]
    """Reads bytes of the file: offset, length."""

__all__ = [
    "FILE_SPEC",
    "MAGIC",
    "Anatomy",
    "CannotSpliceError",
    "Chunk",
    "Group",
    "Range",
    "check_apart",
    "dissect",
    "read_footer",
]

MAGIC: Final = b"PAR1"
_TAIL_BYTES: Final = 64 * 1024
_TRAILER_BYTES: Final = 8
_BLOOM_HEADER_BYTES: Final = 64

_METADATA: Final[Spec] = {
    1: INT, 2: [INT], 3: [BYTES], 4: INT, 5: INT, 6: INT, 7: INT,
    9: INT, 10: INT, 11: INT, 14: INT, 15: INT,
}  # fmt: skip
_CHUNK: Final[Spec] = {2: INT, 3: _METADATA, 4: INT, 5: INT, 6: INT, 7: INT}
_GROUP: Final[Spec] = {1: [_CHUNK], 2: INT, 3: INT, 4: [{1: INT}], 5: INT, 6: INT, 7: INT}
FILE_SPEC: Final[Spec] = {2: [RAW], 3: INT, 4: [_GROUP], 6: BYTES, 7: [RAW]}

_FILE_ENCRYPTION: Final = (8, 9)
_CHUNK_ENCRYPTION: Final = (8, 9)
_FILE_PATH: Final = 1

# Writers before this one left the header of the dictionary page out of total_compressed_size.
_UNDERCOUNTING: Final = re.compile(rb"parquet-mr version 1\.(?:[01]|2\.[0-8])(?:\D|$)")


class CannotSpliceError(FsspeckitError, ValueError):
    """A file cannot be taken apart; the message says why, in words fit for a report."""

    def __init__(self, reason: str, *, is_unreadable: bool = False) -> None:
        super().__init__(reason)
        self.is_unreadable = is_unreadable
        """Whether nobody can read the file; pyarrow ends the whole process when it tries."""


@dataclass(frozen=True, slots=True)
class Range:
    """A part of a file."""

    start: int
    length: int

    @property
    def end(self) -> int:
        """The position after the last byte."""
        return self.start + self.length


Part = bytes | memoryview | Range
"""Bytes of a new file: in memory, or where they are in the old one."""


def length_of(parts: Iterable[Part]) -> int:
    """How many bytes parts have."""
    return sum(part.length if isinstance(part, Range) else len(part) for part in parts)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One column of one row group."""

    struct: Struct
    """The ``ColumnChunk`` of the footer."""

    data: Range
    """Its pages, the dictionary page included."""

    bloom: Range | None = None
    column_index: Range | None = None
    offset_index: Range | None = None

    @property
    def metadata(self) -> Struct:
        """The ``ColumnMetaData``."""
        metadata: Struct = self.struct.values[3]
        return metadata

    @property
    def path(self) -> str:
        """The full name of the leaf column, its parts joined with dots."""
        return b".".join(self.metadata.values[3]).decode(errors="replace")

    @property
    def raw_bytes(self) -> int:
        """The bytes of its pages before compression."""
        return int(self.metadata.values[6])


@dataclass(frozen=True, slots=True)
class Group:
    """One row group."""

    struct: Struct
    rows: int
    chunks: tuple[Chunk, ...]

    @property
    def span(self) -> Range:
        """From the first byte of its pages to the last."""
        start = min(chunk.data.start for chunk in self.chunks)
        return Range(start, max(chunk.data.end for chunk in self.chunks) - start)


@dataclass(frozen=True, slots=True)
class Anatomy:
    """A file by its parts."""

    footer: Struct
    """The ``FileMetaData``."""

    groups: tuple[Group, ...]
    footer_start: int

    @property
    def elements(self) -> list[bytes]:
        """The ``SchemaElement`` structs, as their bytes."""
        elements: list[bytes] = self.footer.values[2]
        return elements

    @property
    def column_orders(self) -> list[bytes] | None:
        """The ``ColumnOrder`` of each leaf, as bytes; None where the footer has none."""
        return self.footer.values.get(7)


def read_footer(read: Read, size: int) -> bytes:
    """The bytes of a file's ``FileMetaData``.

    Args:
        read: Reads bytes of the file.
        size: The size of the file.

    Raises:
        CannotSpliceError: If the file does not end like a Parquet file, or is encrypted.
    """
    start = max(0, size - _TAIL_BYTES)
    tail = read(start, size - start)
    if len(tail) < _TRAILER_BYTES + len(MAGIC) or tail[-4:] != MAGIC:
        kind = "is encrypted" if tail[-4:] == b"PARE" else "is missing or damaged"
        raise CannotSpliceError(f"the footer {kind}")
    length = int.from_bytes(tail[-8:-4], "little")
    if length + _TRAILER_BYTES + len(MAGIC) > size:
        raise CannotSpliceError(f"the footer claims {length:,} of {size:,} bytes")
    if length + _TRAILER_BYTES > len(tail):
        return read(size - _TRAILER_BYTES - length, length)
    return tail[-_TRAILER_BYTES - length : -_TRAILER_BYTES]


def dissect(footer: bytes, size: int, read: Read) -> Anatomy:
    """Find the parts of a file, and see that they account for it.

    Args:
        footer: The bytes of its ``FileMetaData``.
        size: The size of the file.
        read: Reads bytes of the file; used for what older writers did not put into the footer.

    Raises:
        CannotSpliceError: If it cannot be taken apart, with the reason.
    """
    footer_start = size - _TRAILER_BYTES - len(footer)
    try:
        struct, end = decode(footer, FILE_SPEC)
        if end != len(footer):
            raise CannotSpliceError("the footer ends early")
        _check_file(struct)
        groups = tuple(_group(group, read) for group in struct.values[4])
        anatomy = Anatomy(struct, groups, footer_start)
        _check_rows(anatomy)
        _check_ranges(anatomy)
    except KeyError as error:
        reason = f"the footer lacks a required field ({error})"
        raise CannotSpliceError(reason, is_unreadable=True) from error
    except ThriftError as error:
        raise CannotSpliceError(f"the footer is damaged: {error}") from error
    return anatomy


def _check_file(struct: Struct) -> None:
    if any(number in struct.kinds for number in _FILE_ENCRYPTION):
        raise CannotSpliceError("the file is encrypted")
    if _UNDERCOUNTING.search(struct.values.get(6, b"")):
        raise CannotSpliceError("its writer, parquet-mr up to 1.2.8, got the sizes of chunks wrong")


def _group(struct: Struct, read: Read) -> Group:
    chunks = tuple(_chunk(chunk, read) for chunk in struct.values[1])
    if not chunks:
        raise CannotSpliceError("a row group has no columns")
    return Group(struct, struct.values[3], chunks)


def _chunk(struct: Struct, read: Read) -> Chunk:
    if _FILE_PATH in struct.kinds:
        raise CannotSpliceError("a column chunk is in another file")
    has_metadata = 3 in struct.values
    if any(number in struct.kinds for number in _CHUNK_ENCRYPTION):
        raise CannotSpliceError("a column is encrypted", is_unreadable=not has_metadata)
    if not has_metadata:
        reason = "the metadata of a column chunk is not in the footer"
        raise CannotSpliceError(reason, is_unreadable=True)
    metadata = struct.values[3].values
    offsets = [metadata[9], *(metadata[n] for n in (10, 11) if metadata.get(n, 0) > 0)]
    return Chunk(
        struct,
        Range(min(offsets), metadata[7]),
        _bloom(metadata.get(14), metadata.get(15), read),
        _range(struct.values.get(6), struct.values.get(7)),
        _range(struct.values.get(4), struct.values.get(5)),
    )


def _range(start: int | None, length: int | None) -> Range | None:
    if start is None and length is None:
        return None
    if start is None or length is None:
        raise CannotSpliceError("a page index has an offset without a length, or the reverse")
    return Range(start, length)


def _bloom(start: int | None, length: int | None, read: Read) -> Range | None:
    if start is None:
        return None
    if length is None:  # written before the length was part of the format
        length = header_and_bitset_length(read(start, _BLOOM_HEADER_BYTES))
    return Range(start, length)


def _check_rows(anatomy: Anatomy) -> None:
    footer = anatomy.footer.values
    rows = [group.rows for group in anatomy.groups]
    if min(rows, default=0) < 0 or sum(rows) != footer[3]:
        raise CannotSpliceError(f"the row groups have {sum(rows):,} rows, the file {footer[3]:,}")


def _check_ranges(anatomy: Anatomy) -> None:
    """See that no two parts of a file share a byte, and that all lie before the footer."""
    for group in anatomy.groups:
        for chunk in group.chunks:
            _check_pages(chunk)
    check_apart(_parts(anatomy.groups), anatomy.footer_start)
    spans = [group.span for group in anatomy.groups]
    if any(one.end > other.start for one, other in pairwise(spans)):
        raise CannotSpliceError("row groups are interleaved")


def check_apart(parts: Iterable[Range], end: int) -> None:
    """See that parts of a file share no byte and lie between its first bytes and its footer.

    Raises:
        CannotSpliceError: If they do not.
    """
    bounds = sorted((part.start, part.start + part.length) for part in parts)
    if any(start < len(MAGIC) or not start <= stop <= end for start, stop in bounds):
        raise CannotSpliceError("a column chunk or index lies outside of the data")
    if any(one[1] > other[0] for one, other in pairwise(bounds)):
        raise CannotSpliceError("column chunks or indexes overlap")


def _check_pages(chunk: Chunk) -> None:
    metadata = chunk.metadata.values
    offsets = [metadata[9], *(metadata[n] for n in (10, 11) if metadata.get(n, 0) > 0)]
    if metadata[5] and any(offset >= chunk.data.end for offset in offsets):
        raise CannotSpliceError("a page lies outside of its column chunk")


def _parts(groups: Iterable[Group]) -> Iterator[Range]:
    for group in groups:
        for chunk in group.chunks:
            yield chunk.data
            for part in (chunk.bloom, chunk.column_index, chunk.offset_index):
                if part is not None:
                    yield part
