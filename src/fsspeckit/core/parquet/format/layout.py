"""Footers of Parquet files: the byte ranges of column chunks, the schema, the exactness of bounds.

A file can be spliced only if its footer accounts for its bytes. Where it does not, or says
something unknown, `CannotSpliceError` is raised, and the file is read and written as a whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from fsspeckit.core.parquet.format.bloom_filter import header_and_bitset_length
from fsspeckit.core.parquet.format.thrift import (
    BOOL,
    BYTES,
    INT,
    RAW,
    Spec,
    Struct,
    ThriftError,
    decode,
    decode_field,
)
from fsspeckit.errors import FsspeckitError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Read = Callable[[int, int], bytes]
    """Reads bytes of the file: offset, length."""

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

_ENCODING_STATS: Final = 13
_PAGES: Final = 3

_FILE_ENCRYPTION: Final = (8, 9)
_CHUNK_ENCRYPTION: Final = (8, 9)
_FILE_PATH: Final = 1

# Writers before this one left the header of the dictionary page out of total_compressed_size.
_UNDERCOUNTING: Final = re.compile(rb"parquet-mr version 1\.(?:[01]|2\.[0-8])(?:\D|$)")


class CannotSpliceError(FsspeckitError, ValueError):
    """A file cannot be spliced; the message says why, in words fit for a report."""

    def __init__(self, reason: str, *, is_unreadable: bool = False) -> None:
        super().__init__(reason)
        self.is_unreadable = is_unreadable
        """Whether the file is unreadable; pyarrow ends the whole process when it tries."""


@dataclass(frozen=True, slots=True)
class Range:
    """A byte range of a file."""

    start: int
    length: int

    @property
    def end(self) -> int:
        """The position after the last byte."""
        return self.start + self.length


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

    @property
    def page_count(self) -> int | None:
        """How many pages it has, the dictionary page included; None if its writer does not say."""
        try:
            counts = decode_field(self.metadata, _ENCODING_STATS, [{_PAGES: INT}])
        except ThriftError:
            return None  # nothing depends on it
        pages = [int(one.values.get(_PAGES, -1)) for one in counts or ()]
        return sum(pages) if pages and min(pages) >= 0 else None


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
class FileLayout:
    """The parts of a file."""

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
    """Read the bytes of the ``FileMetaData`` of a file of ``size`` bytes.

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


def parse_layout(footer: bytes, size: int, read: Read) -> FileLayout:
    """Find the parts of a file, and check that they account for its bytes.

    Args:
        footer: The bytes of its ``FileMetaData``.
        size: The size of the file.
        read: Reads bytes of the file; used for what older writers did not put into the footer.

    Raises:
        CannotSpliceError: If they do not, with the reason.
    """
    footer_start = size - _TRAILER_BYTES - len(footer)
    try:
        struct, end = decode(footer, FILE_SPEC)
        if end != len(footer):
            raise CannotSpliceError("the footer ends early")
        _check_file(struct)
        groups = tuple(_group(group, read) for group in struct.values[4])
        layout = FileLayout(struct, groups, footer_start)
        _check_rows(layout)
        _check_ranges(layout)
    except KeyError as error:
        reason = f"the footer lacks a required field ({error})"
        raise CannotSpliceError(reason, is_unreadable=True) from error
    except ThriftError as error:
        raise CannotSpliceError(f"the footer is damaged: {error}") from error
    return layout


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


def _check_rows(layout: FileLayout) -> None:
    footer = layout.footer.values
    rows = [group.rows for group in layout.groups]
    if min(rows, default=0) < 0 or sum(rows) != footer[3]:
        raise CannotSpliceError(f"the row groups have {sum(rows):,} rows, the file {footer[3]:,}")


def _check_ranges(layout: FileLayout) -> None:
    for group in layout.groups:
        for chunk in group.chunks:
            _check_pages(chunk)
    check_apart(_parts(layout.groups), layout.footer_start)
    spans = [group.span for group in layout.groups]
    if any(one.end > other.start for one, other in pairwise(spans)):
        raise CannotSpliceError("row groups are interleaved")


def check_apart(parts: Iterable[Range], end: int) -> None:
    """Raise `CannotSpliceError` if parts of a file overlap, or lie outside of its data."""
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


# The schema: writers express one schema in many ways (the name of the root, annotations of old and
# of new style, field ids). Chunks of columns that are equal here may stand in one file.

_INTEGERS: Final[Spec] = {1: INT, 2: INT}
_TIMES: Final[Spec] = {1: BOOL, 2: {}}
_LOGICAL: Final[Spec] = {5: _INTEGERS, 7: _TIMES, 8: _TIMES, 10: {1: INT, 2: BOOL}}
_ELEMENT: Final[Spec] = {
    1: INT, 2: INT, 3: INT, 4: BYTES, 5: INT, 6: INT, 7: INT, 8: INT, 10: _LOGICAL,
}  # fmt: skip

_FIXED_LENGTH: Final = 7
_REPETITIONS: Final = range(3)
# A codec of a later version of the format is not known to pyarrow either.
KNOWN_CODECS: Final = range(8)
_STRING, _MAP, _LIST, _ENUM, _DECIMAL, _DATE, _TIME, _TIMESTAMP = range(1, 9)
_INTEGER, _JSON, _BSON = 10, 12, 13
_MILLIS, _MICROS = 1, 2

Logical = tuple[object, ...] | None
"""A logical type and its parameters, whichever style of annotation the writer used."""

# Annotations of the old style. The group inside a map had one of its own, without a meaning.
_CONVERTED: Final[dict[int, Logical]] = {
    0: (_STRING,),
    1: (_MAP,),
    2: None,
    3: (_LIST,),
    4: (_ENUM,),
    6: (_DATE,),
    7: (_TIME, True, _MILLIS),
    8: (_TIME, True, _MICROS),
    9: (_TIMESTAMP, True, _MILLIS),
    10: (_TIMESTAMP, True, _MICROS),
    11: (_INTEGER, 8, False),
    12: (_INTEGER, 16, False),
    13: (_INTEGER, 32, False),
    14: (_INTEGER, 64, False),
    15: (_INTEGER, 8, True),
    16: (_INTEGER, 16, True),
    19: (_JSON,),
    20: (_BSON,),
    21: ("INTERVAL",),
}
_CONVERTED_DECIMAL: Final = 5
# Signed numbers of the full width: some writers say so, most do not.
_PLAIN: Final[set[Logical]] = {(_INTEGER, 32, True), (_INTEGER, 64, True)}
_CONVERTED_PLAIN: Final = (17, 18)


@dataclass(frozen=True, slots=True)
class Column:
    """A top-level column with its leaves."""

    name: str
    meaning: tuple[tuple[object, ...], ...]
    """One entry for each schema element; equal if two writers mean the same."""

    first_leaf: int
    """The number of its first leaf among those of the file."""

    leaves: int
    physical: tuple[int, ...]
    """The physical type of each leaf."""

    paths: tuple[str, ...]
    """The full name of each leaf, its parts joined with dots."""

    first_element: int
    """The number of its first element in the schema."""

    @property
    def lengths(self) -> list[Any]:
        """The size of the values of each leaf, where the schema states one."""
        return [one[2] for one in self.meaning if not one[4]]

    @property
    def numbers(self) -> range:
        """The numbers of its leaves."""
        return range(self.first_leaf, self.first_leaf + self.leaves)


def columns_of(elements: Sequence[bytes]) -> list[Column]:
    """Split the flat list of schema elements into top-level columns.

    Raises:
        CannotSpliceError: If the list is not a schema, or two columns have the same name.
    """
    try:
        structs = [decode(element, _ELEMENT)[0].values for element in elements]
        columns = list(_columns(structs))
    except (ThriftError, UnicodeDecodeError, KeyError, StopIteration, IndexError) as error:
        raise CannotSpliceError(f"the schema in the footer is damaged: {error!r}") from error
    names = [column.name for column in columns]
    if len(set(names)) != len(names):
        raise CannotSpliceError("two columns have the same name")
    return columns


def check_columns(layout: FileLayout, columns: Sequence[Column]) -> None:
    """Check that every row group has the chunks of the schema's columns.

    Raises:
        CannotSpliceError: If a chunk is of another column or type, or its codec does not exist.
    """
    types = [physical for column in columns for physical in column.physical]
    paths = [path for column in columns for path in column.paths]
    for group in layout.groups:
        if any(chunk.metadata.values[4] not in KNOWN_CODECS for chunk in group.chunks):
            raise CannotSpliceError("a codec does not exist", is_unreadable=True)
        if [chunk.metadata.values[1] for chunk in group.chunks] != types:
            reason = "a row group does not have the types of the schema"
            raise CannotSpliceError(reason, is_unreadable=True)
        if [chunk.path for chunk in group.chunks] != paths:
            raise CannotSpliceError("a row group does not have the columns of the schema")


def _columns(elements: list[dict[int, Any]]) -> Iterator[Column]:
    position, leaf = 1, 0
    for _ in range(elements[0][5]):
        end = _end_of(elements, position)
        inside = elements[position:end]
        leaves = list(_leaves(inside))
        physical = tuple(kind for kind, _ in leaves)
        paths = tuple(path for _, path in leaves)
        name = inside[0][4].decode()
        meaning = tuple(map(_meaning, inside))
        yield Column(name, meaning, leaf, len(leaves), physical, paths, position)
        position, leaf = end, leaf + len(leaves)
    if position != len(elements):
        raise CannotSpliceError("the schema in the footer does not add up")


def _leaves(inside: list[dict[int, Any]]) -> Iterator[tuple[int, str]]:
    """The physical type and the full name of each leaf of a column."""
    above: list[tuple[str, int]] = []  # the open groups, and how many children each still has
    for element in inside:
        name = element[4].decode()
        if element.get(5):
            above.append((name, element[5]))
            continue
        yield element[1], ".".join([*(group for group, _ in above), name])
        while above:
            group, left = above.pop()
            if left > 1:
                above.append((group, left - 1))
                break


def _end_of(elements: list[dict[int, Any]], position: int) -> int:
    """The position after an element and all its children."""
    open_elements = 1
    while open_elements:
        open_elements += (elements[position].get(5) or 0) - 1
        position += 1
    return position


def _meaning(element: dict[int, Any]) -> tuple[object, ...]:
    physical = element.get(1)
    if element.get(3, 0) not in _REPETITIONS:
        raise CannotSpliceError("a repetition type does not exist", is_unreadable=True)
    return (
        element[4],
        physical,
        element.get(2) if physical == _FIXED_LENGTH else None,
        element.get(3),
        element.get(5) or 0,
        _logical(element),
    )


def _logical(element: dict[int, Any]) -> Logical:
    found = element.get(10)
    if isinstance(found, Struct) and found.kinds:
        logical = _of_new_style(found)
        return None if logical in _PLAIN else logical
    converted = element.get(6)
    if converted is None or converted in _CONVERTED_PLAIN:
        return None
    if converted == _CONVERTED_DECIMAL:
        return _DECIMAL, element.get(7, 0), element.get(8)
    return _CONVERTED.get(converted, ("unknown", converted))


def contradictory_annotations(elements: Sequence[bytes]) -> list[str]:
    """Return the names of elements whose annotations of old and of new style differ.

    Readers prefer one or the other. Whether a time is in UTC is known to the new style only.
    """
    found = []
    for element in elements:
        values = decode(element, _ELEMENT)[0].values
        new, old = values.get(10), values.get(6)
        if not (isinstance(new, Struct) and new.kinds) or old is None:
            continue
        modern, converted = _logical({10: new}), _logical({**values, 10: None})
        if _without_zone(modern) != _without_zone(converted):
            found.append(values[4].decode(errors="replace"))
    return found


def _without_zone(logical: Logical) -> Logical:
    return (logical[0], logical[2]) if logical and logical[0] in (_TIME, _TIMESTAMP) else logical


def _of_new_style(union: Struct) -> Logical:
    number = next(iter(union.kinds))
    inside = union.values.get(number)
    if inside is None:
        return (number, union.raw[number]) if union.raw[number] != b"\0" else (number,)
    if number in (_TIME, _TIMESTAMP):
        return number, inside.values[1], next(iter(inside.values[2].kinds))
    return number, inside.values[1], inside.values[2]


# The exactness of bounds: a writer may shorten a long string and mark the bound as not exact.
# pyarrow shows bounds without these marks.

_FILE: Final[Spec] = {4: [{1: [RAW]}]}
_EXACTNESS: Final[Spec] = {3: {3: [BYTES], 12: {7: BOOL, 8: BOOL}}}


@dataclass(frozen=True, slots=True)
class Exactness:
    """Whether each bound occurs in the column chunk; None where the writer does not say."""

    min: bool | None = None
    """True: the minimum is a value of the chunk. False: it may be smaller than all of them."""

    max: bool | None = None
    """True: the maximum is a value of the chunk. False: it may be greater than all of them."""


def bound_exactness(footer: bytes, column: str) -> list[Exactness]:
    """Read the exactness of one column's bounds.

    Args:
        footer: The ``FileMetaData`` bytes of a Parquet file, without length and magic.
        column: The leaf column by its full path, its parts joined with dots.

    Returns:
        One entry per row group. Neither bound is known where the chunk is not certain: its
        metadata is encrypted, or two columns have the same dotted path.

    Raises:
        ThriftError: The footer is damaged.
        InvalidArgumentError: There is no such column.
    """
    found, position = [], None
    for group in _required(decode(footer, _FILE)[0], 4, "FileMetaData.row_groups"):
        chunks = _required(group, 1, "RowGroup.columns")
        metadata, position = _find(chunks, column, position)
        statistics = metadata.values.get(12) if metadata is not None else None
        values = {} if statistics is None else statistics.values
        found.append(Exactness(min=values.get(8), max=values.get(7)))
    return found


def _required(struct: Struct, number: int, name: str) -> list[Any]:
    if number not in struct.values:
        raise ThriftError(f"the footer has no {name}: these bytes are not a Parquet FileMetaData.")
    items: list[Any] = struct.values[number]
    return items


def _find(
    chunks: Sequence[bytes], column: str, hint: int | None
) -> tuple[Struct | None, int | None]:
    """Return the metadata and the position of a column's chunk; None if it is not certain.

    Row groups have their columns in the order of the schema, so the position in the row group
    before is tried first.
    """
    path = column.encode()
    if hint is not None and hint < len(chunks):
        metadata = _metadata(chunks[hint])
        if _path(metadata) == path:
            return metadata, hint
    found = [_metadata(chunk) for chunk in chunks]
    paths = [_path(metadata) for metadata in found]
    if path not in paths and None not in paths:
        available = [other.decode(errors="replace") for other in paths if other is not None]
        raise InvalidArgumentError.missing_columns("columns", [column], available)
    if paths.count(path) != 1:
        return None, None
    return found[paths.index(path)], paths.index(path)


def _metadata(chunk: bytes) -> Struct | None:
    metadata: Struct | None = decode(chunk, _EXACTNESS)[0].values.get(3)
    return metadata


def _path(metadata: Struct | None) -> bytes | None:
    if metadata is None or 3 not in metadata.values:
        return None
    return b".".join(metadata.values[3])
