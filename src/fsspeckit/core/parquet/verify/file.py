"""Verifies one Parquet file: its footer, and the pages, statistics and filters of row groups.

Bytes are untrusted. What is damaged becomes a finding; nothing here raises for it.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.arrow_compat import int96_columns, with_int96_as
from fsspeckit.core.parquet.format.bloom_filter import BloomFilter, hash_values
from fsspeckit.core.parquet.format.layout import (
    MAGIC,
    CannotSpliceError,
    Range,
    check_columns,
    columns_of,
    contradictory_annotations,
    parse_layout,
    read_footer,
)
from fsspeckit.core.parquet.format.pages import (
    DATA_PAGE_V2,
    DICTIONARY_ENCODINGS,
    DICTIONARY_PAGE,
    codec_of,
    pages_in,
    parse_runs,
)
from fsspeckit.core.parquet.format.thrift import INT, TRUE, ThriftError, decode_field
from fsspeckit.core.parquet.verify.bounds import (
    STATISTICS,
    Claim,
    check_bounds,
    ends_of,
    is_text,
    order_of,
)
from fsspeckit.core.parquet.verify.indexes import (
    ColumnIndex,
    PageLocation,
    check_column_index,
    check_locations,
    parse_offset_index,
)
from fsspeckit.core.parquet.verify.values import (
    Leaf,
    UnknownZoneError,
    check_metadata,
    decode_values,
    decoding_errors,
    leaf_values,
    leaves_of,
    schema_of,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fsspeckit.core.parquet.format.layout import Chunk, Column, FileLayout, Group, Read
    from fsspeckit.core.parquet.format.pages import Page
    from fsspeckit.core.parquet.format.thrift import Struct
    from fsspeckit.core.parquet.verify.bounds import Order
    from fsspeckit.storage import Findings

_MAX_FOOTER_BYTES: Final = 1 << 28
_MAX_PAGE_BYTES: Final = (1 << 31) - 1
_STATISTICS_FIELD: Final = 12
_SIZES_FIELD: Final = 16
_BOOLEAN, _INT96, _FLOAT, _DOUBLE = 0, 3, 4, 5
_SIGNED: Final[tuple[Order, ...]] = ("bool", "signed", "float")
_MIN_DICTIONARY_WIDTH: Final = {1: 4, 2: 8, 3: 12, 4: 4, 5: 8, 6: 4}
_KNOWN_PAGES: Final = range(4)
_PREFIX: Final = 4

_UPDATE_ZONES: Final = (
    "update the time zones of this machine (tzdata, pytz). If no machine knows the name, write the "
    "rows again with another zone."
)
RESTORE: Final = "restore the file from a copy, or write its rows again from their source."
REWRITE: Final = "rewrite the file: read its rows and write them with a healthy writer."


@dataclass(frozen=True)
class VerifiedFooter:
    """What the footer of a file says, if it can be trusted."""

    rows: int = 0
    row_groups: tuple[tuple[int, int], ...] = ()
    """The rows and the bytes of each."""

    schema: pa.Schema | None = None
    """The columns as every reader sees them, without what Arrow has added; None if the file is not
    readable. INT96 timestamps are instants."""

    int96: frozenset[str] = frozenset()
    """The columns that are INT96, or have it inside."""


def verify_footer(read: Read, size: int, findings: Findings) -> VerifiedFooter:
    """Verify that the footer of a file of ``size`` bytes can be read and adds up.

    Raises:
        OSError: What the filesystem raised.
    """
    opened = _open(read, size, findings)
    if opened is None:
        return VerifiedFooter()
    layout, columns = opened
    try:
        check_metadata(read_footer(read, size))
        schema_of(layout)
        schema, int96 = _with_instants(schema_of(layout, with_arrow=False), columns)
    except UnknownZoneError as error:
        findings.error(f"{error}.", _UPDATE_ZONES)
        return VerifiedFooter()
    except decoding_errors() as error:
        findings.error(f"pyarrow does not accept the footer: {text_of(error)}.", RESTORE)
        return VerifiedFooter()
    for name in contradictory_annotations(layout.elements):
        findings.error(
            "its two annotations in the schema contradict each other: readers take it for "
            "different types.",
            REWRITE,
            column=name,
        )
    for column in columns:
        try:
            leaves_of(column)
        except CannotSpliceError as error:
            findings.error(f"{error}, so it is not verified.", REWRITE, column=column.name)
    groups = tuple(
        (group.rows, sum(c.data.length for c in group.chunks)) for group in layout.groups
    )
    return VerifiedFooter(layout.footer.values[3], groups, schema, int96)


def _with_instants(
    schema: pa.Schema, columns: Sequence[Column]
) -> tuple[pa.Schema, frozenset[str]]:
    """Return a schema in which INT96 is an instant, and the columns that have it."""
    leaves = (leaf for column in columns for leaf in column.physical)
    physical = ["INT96" if leaf == _INT96 else "" for leaf in leaves]
    instants = with_int96_as(schema, physical, pa.timestamp("ns", "UTC"))
    return instants, int96_columns(schema, physical)


def _open(read: Read, size: int, findings: Findings) -> tuple[FileLayout, list[Column]] | None:
    """Parse the footer of a file; None if it is damaged."""
    try:
        if read(0, len(MAGIC)) != MAGIC:
            raise CannotSpliceError("the file does not begin like a Parquet file")
        trailer = read(max(0, size - 8), 8)
        if int.from_bytes(trailer[:4], "little") > _MAX_FOOTER_BYTES and trailer[4:] == MAGIC:
            raise CannotSpliceError("the footer claims to be larger than any footer")
        footer = read_footer(read, size)
        layout = parse_layout(footer, size, read)
        columns = columns_of(layout.elements)
        check_columns(layout, columns)
        _check_counts(layout, columns)
    except (CannotSpliceError, ThriftError, RecursionError) as error:
        hint = f"{RESTORE[:-1]}; verify again if somebody is still writing it."
        findings.error(f"the file cannot be read: {text_of(error)}.", hint)
        return None
    return layout, columns


def _check_counts(layout: FileLayout, columns: Sequence[Column]) -> None:
    """Check that flat columns have as many values as rows, and all others at least as many."""
    for number, group in enumerate(layout.groups):
        for column in columns:
            is_flat = len(column.meaning) == 1 and column.meaning[0][3] != 2
            for leaf in column.numbers:
                values = group.chunks[leaf].metadata.values[5]
                if values != group.rows if is_flat else values < group.rows:
                    raise CannotSpliceError(
                        f"column {column.name!r} has {values:,} values in row group {number}, "
                        f"which has {group.rows:,} rows"
                    )


def verify_row_groups(
    read: Read, size: int, numbers: Iterable[int], findings: Findings, *, checksums: bool = True
) -> bool:
    """Verify pages, values, statistics, indexes and filters of some row groups.

    One column of one row group is in memory at a time.

    Returns:
        Whether all pages with values have checksums.

    Raises:
        OSError: What the filesystem raised.
    """
    opened = _open(read, size, findings)
    if opened is None:
        return True
    layout, columns = opened
    checks = (
        _ColumnCheck(layout, column, number, read, findings, checksums)
        for number in numbers
        for column in columns
    )
    outcomes = [check.run() for check in checks]
    return all(outcomes)


@dataclass
class _ColumnCheck:
    """Verifies one column of one row group."""

    layout: FileLayout
    column: Column
    number: int
    read: Read
    findings: Findings
    checksums: bool

    @property
    def group(self) -> Group:
        return self.layout.groups[self.number]

    def run(self) -> bool:
        """Verify it; returns whether all pages with values have checksums."""
        try:
            leaves = leaves_of(self.column)
        except CannotSpliceError:
            return True  # reported with the footer
        chunks = [self.group.chunks[number] for number in self.column.numbers]
        data = [self.read(chunk.data.start, chunk.data.length) for chunk in chunks]
        parts = list(map(_LeafCheck, [self] * len(leaves), leaves, chunks, data))
        are_sound = [part.check_pages() for part in parts]
        if not all(are_sound):
            return True
        self._check_values(parts, data)
        pages = [page for part in parts for page in part.pages]
        return all(page.has_checksum for page in pages if page.is_data and page.part.length)

    def _check_values(self, parts: Sequence[_LeafCheck], data: Sequence[bytes]) -> None:
        try:
            values = decode_values(self.layout, self.column, self.group, data)
        except decoding_errors() as error:
            self.error(f"its values cannot be decoded: {text_of(error).rstrip('.')}.", RESTORE)
            return
        if len(values) != self.group.rows:
            text = f"it holds {len(values):,} values, and the row group has {self.group.rows:,}."
            self.error(text, RESTORE)
            return
        found = leaf_values(values)
        for position, (part, each) in enumerate(zip(parts, found, strict=True)):
            part.check_values(each)
            part.check_sorting(each, self.column.first_leaf + position)
            part.check_index(values, position)

    def error(self, what: str, hint: str, column: str | None = None) -> None:
        self.findings.error(what, hint, self.number, column or self.column.name)

    def warning(self, what: str, hint: str, column: str) -> None:
        self.findings.warning(what, hint, self.number, column)


@dataclass
class _LeafCheck:
    """Verifies the chunk of one leaf."""

    parent: _ColumnCheck
    leaf: Leaf
    chunk: Chunk
    data: bytes

    def error(self, what: str, hint: str) -> None:
        self.parent.error(what, hint, self.leaf.path)

    def warning(self, what: str, hint: str) -> None:
        self.parent.warning(what, hint, self.leaf.path)

    @cached_property
    def order(self) -> Order | None:
        return order_of(self.leaf)

    @cached_property
    def pages(self) -> list[Page]:
        """The pages of the chunk, by their positions in ``data``."""
        data = self.data
        whole = Range(0, len(data))
        return list(pages_in(whole, self.leaf.path, lambda start, size: data[start : start + size]))

    def check_pages(self) -> bool:
        """Check headers and checksums of pages; whether the values can be decoded."""
        if len(self.data) != self.chunk.data.length:
            self.error("its pages end early: the file is shorter than its footer says.", RESTORE)
            return False
        try:
            found = self._damage()
        except CannotSpliceError as error:
            found = f"{error}."
        if found is not None:
            self.error(found, RESTORE)
            return False
        return not self.parent.checksums or self._check_checksums()

    def _damage(self) -> str | None:
        """Return what is wrong with the headers of pages."""
        stated = self.chunk.metadata.values
        values = sum(page.values for page in self.pages)
        if values != stated[5] or any(page.values < 0 for page in self.pages):
            return f"its pages hold {values:,} values, and the footer says {stated[5]:,}."
        raw = sum(page.raw_bytes + page.header_bytes for page in self.pages)
        if raw != stated[6] or any(page.raw_bytes < 0 for page in self.pages):
            return f"its pages say they hold {raw:,} bytes, and the footer says {stated[6]:,}."
        for number, page in enumerate(self.pages):
            if page.kind not in _KNOWN_PAGES:
                return f"page {number:,} is of a kind that does not exist."
            if page.raw_bytes > _MAX_PAGE_BYTES:
                return f"page {number:,} is too large to be read."
        return self._dictionary_damage()

    def _dictionary_damage(self) -> str | None:
        width = _MIN_DICTIONARY_WIDTH.get(self.leaf.physical, self.leaf.length)
        has_dictionary = False
        for number, page in enumerate(self.pages):
            if page.kind == DICTIONARY_PAGE:
                if number or not 0 <= page.dictionary_values * width <= page.raw_bytes:
                    return "its dictionary is not what its header says."
                has_dictionary = True
            elif page.is_data and page.encoding in DICTIONARY_ENCODINGS and not has_dictionary:
                return f"page {number:,} refers to a dictionary that is not there."
        return None

    def _check_checksums(self) -> bool:
        data = memoryview(self.data)
        wrong = [
            number
            for number, page in enumerate(self.pages)
            if page.checksum is not None
            and zlib.crc32(data[page.part.start + page.header_bytes : page.part.end])
            != page.checksum & 0xFFFFFFFF
        ]
        if wrong:
            text = f"the checksum of page {wrong[0]:,} does not fit its bytes"
            more = f", nor do those of {len(wrong) - 1:,} more" if len(wrong) > 1 else ""
            self.error(f"{text}{more}: they were changed after they were written.", RESTORE)
        return not wrong

    def check_values(self, values: pa.ChunkedArray) -> None:
        """Check values, and what statistics and bloom filter say of them."""
        if is_text(self.leaf):
            try:
                values.cast(pa.string())
            except pa.ArrowInvalid:
                text = "it holds text that is not UTF-8: DuckDB and Polars refuse to read it."
                self.error(text, "repair the text, or store it as binary.")
        self._check_statistics(values)
        self._check_histograms()
        if self.chunk.bloom is not None:
            self._check_bloom(values, self.chunk.bloom)

    def check_sorting(self, values: pa.ChunkedArray, number: int) -> None:
        """Check that rows are sorted by this column, if the row group says so before any other."""
        claims = self.parent.group.struct.values.get(4) or []
        is_comparable = self.order is not None and self.order not in ("half", "decimal")
        if not claims or claims[0].values.get(1) != number or self.leaf.is_nested:
            return
        if is_comparable and not _are_sorted(values, self.order, claims[0].kinds):
            self.error(
                "the row group says that its rows are sorted by it, and they are not: readers that "
                "rely on it return wrong rows.",
                REWRITE,
            )

    # Statistics

    def _check_statistics(self, values: pa.ChunkedArray) -> None:
        try:
            found = decode_field(self.chunk.metadata, _STATISTICS_FIELD, STATISTICS)
        except ThriftError as error:
            self.error(f"its statistics are damaged: {text_of(error)}.", REWRITE)
            return
        if found is None:
            return
        self._check_null_count(found, values)
        self._check_counts(found, values)
        order = self.order
        if order is None:
            return
        ends = ends_of(values, order)
        claims = [Claim.of_statistics(found)]
        if order in _SIGNED:
            claims.append(Claim.of_deprecated(found))
        flaws = [
            flaw for claim in claims for flaw in check_bounds(self.leaf, order, claim, values, ends)
        ]
        for flaw in dict.fromkeys(flaws):
            (self.error if flaw.loses_rows else self.warning)(f"statistics: {flaw.what}", REWRITE)

    def _check_null_count(self, found: Struct, values: pa.ChunkedArray) -> None:
        stated = found.values.get(3)
        if stated is None:
            return
        least, most = values.null_count, values.null_count
        if self.leaf.is_repeated:  # whether lists that are empty or NULL count is not defined
            most = self.chunk.metadata.values[5] - (len(values) - values.null_count)
        if not least <= stated <= most:
            self.error(
                f"statistics: {stated:,} values are said to be NULL, and {least:,} are: readers "
                "that ask for NULL, or count, get wrong rows.",
                REWRITE,
            )

    def _check_counts(self, found: Struct, values: pa.ChunkedArray) -> None:
        stated, present = found.values.get(4), len(values) - values.null_count
        if stated is not None and not min(present, 1) <= stated <= present:
            text = f"statistics: {stated:,} values are said to be distinct, of {present:,}."
            self.warning(text, REWRITE)
        stated = found.values.get(9)
        if stated is not None and self.leaf.physical in (_FLOAT, _DOUBLE):
            actual = pc.sum(pc.is_nan(values)).as_py() or 0
            if stated != actual:
                text = f"statistics: {stated:,} values are said to be NaN, and {actual:,} are."
                self.error(text, REWRITE)

    def _check_histograms(self) -> None:
        """Check how often each level occurs; pyarrow refuses lists of a wrong length."""
        try:
            found = decode_field(self.chunk.metadata, _SIZES_FIELD, {2: [INT], 3: [INT]})
        except ThriftError as error:
            self.error(f"its size statistics are damaged: {text_of(error)}.", REWRITE)
            return
        highest = {2: self.leaf.max_repetition, 3: self.leaf.max_definition}
        for number, level in highest.items() if found is not None else ():
            counts = found.values.get(number, [])
            if counts and len(counts) != level + 1:
                text = f"size statistics: there are {len(counts):,} levels instead of {level + 1}."
                self.error(f"{text} pyarrow refuses to read it.", REWRITE)
            elif counts and sum(counts) != self.chunk.metadata.values[5]:
                self.warning("size statistics: levels are counted wrongly.", REWRITE)

    # Bloom filters

    def _check_bloom(self, values: pa.ChunkedArray, part: Range) -> None:
        bloom = BloomFilter.parse(self.parent.read(part.start, part.length))
        if bloom is None:
            self.warning(
                "its bloom filter is damaged or of an unknown kind; readers may ignore it.", REWRITE
            )
            return
        if self.leaf.physical == _BOOLEAN:
            return
        absent = 0
        for chunk in values.chunks:
            distinct = _bits(chunk).unique().drop_null()
            absent += int((~bloom.might_contain(hash_values(distinct))).sum())
        if absent:
            self.error(
                f"its bloom filter excludes {absent:,} values that are there: readers that use it "
                "lose rows.",
                REWRITE,
            )

    # Page index

    def check_index(self, rows: pa.ChunkedArray, position: int) -> None:
        """Check the page index; ``position`` is that of the leaf among those of its column."""
        starts = self._first_rows()
        located = self._check_offset_index(starts)
        if self.chunk.column_index is None:
            return
        if located is not None:
            starts = located
        if -1 in starts:
            return  # which rows a page has is not known
        part = self.chunk.column_index
        bounds = [*starts, len(rows)]

        def values_of(number: int) -> pa.ChunkedArray:
            part_of_page = rows.slice(bounds[number], bounds[number + 1] - bounds[number])
            return leaf_values(part_of_page)[position]

        try:
            index = ColumnIndex.parse(self.parent.read(part.start, part.length))
            flaws = list(check_column_index(self.leaf, self.order, index, len(starts), values_of))
        except (ThriftError, KeyError, IndexError, CannotSpliceError, TypeError) as error:
            self.error(f"its column index is damaged: {text_of(error)}.", REWRITE)
            return
        for page, flaw in flaws:
            where = "" if page is None else f"column index, page {page:,}: "
            (self.error if flaw.loses_rows else self.warning)(f"{where}{flaw.what}", REWRITE)

    def _check_offset_index(self, starts: list[int]) -> list[int] | None:
        """Return the first row of each page that the offset index gives, if it is right."""
        part = self.chunk.offset_index
        if part is None:
            return None
        try:
            found = parse_offset_index(self.parent.read(part.start, part.length))
        except (ThriftError, KeyError) as error:
            self.error(f"its offset index is damaged: {text_of(error)}.", REWRITE)
            return None
        base = self.chunk.data.start
        pages = [page for page in self.pages if page.is_data]
        actual = [
            PageLocation(base + page.part.start, page.part.length, start)
            for page, start in zip(pages, starts, strict=True)
        ]
        wrong = list(check_locations(found, actual, self.parent.group.rows))
        for text in wrong:
            self.error(f"{text} Readers that skip pages get wrong rows.", REWRITE)
        return None if wrong else [one.first_row for one in found]

    def _first_rows(self) -> list[int]:
        """Return the first row of each data page; -1 where it is not known."""
        rows, found = 0, []
        for page in self.pages:
            if page.is_data:
                found.append(rows)
                count = self._rows_of(page)
                if count is None:
                    return [0, *[-1] * (sum(each.is_data for each in self.pages) - 1)]
                rows += count
        return found

    def _rows_of(self, page: Page) -> int | None:
        if not self.leaf.is_repeated:
            return page.values
        if page.kind == DATA_PAGE_V2 and page.rows is not None:
            return page.rows
        codec = codec_of(self.chunk.metadata.values[4])
        if codec is None or self.chunk.offset_index is None:
            return None
        try:
            body = memoryview(self.data)[page.part.start + page.header_bytes : page.part.end]
            raw = bytes(codec.decompress(body, page.raw_bytes))
            end = _PREFIX + int.from_bytes(raw[:_PREFIX], "little")
            width = self.leaf.max_repetition.bit_length()
            levels = parse_runs(raw[_PREFIX:end], width, page.values).values()
        except CannotSpliceError:
            return None
        return int((levels == 0).sum())


def _are_sorted(values: pa.ChunkedArray, order: Order | None, flags: dict[int, int]) -> bool:
    """Whether values are sorted as flags of a sorting column say; NaN may be anywhere."""
    present = values.drop_null()
    if flags.get(3) == TRUE:
        values = values.slice(0, values.null_count)
    else:
        values = values.slice(len(present))
    if values.null_count != len(values):
        return False
    if order == "unsigned":
        kind = pa.uint32() if present.type.bit_width == 32 else pa.uint64()
        present = pa.chunked_array([chunk.view(kind) for chunk in present.chunks], kind)
    elif order == "float":
        present = present.filter(pc.invert(pc.is_nan(present)))
    elif order == "bool":
        present = present.cast(pa.int8())
    first, second = present.slice(0, max(len(present) - 1, 0)), present.slice(1)
    compare = pc.greater_equal if flags.get(2) == TRUE else pc.less_equal
    return bool(pc.all(compare(first, second), min_count=0).as_py())


def _bits(chunk: pa.Array) -> pa.Array:
    """Return floats as integers: of equal floats with other bits a filter has other hashes."""
    if pa.types.is_float32(chunk.type):
        return chunk.view(pa.int32())
    return chunk.view(pa.int64()) if pa.types.is_float64(chunk.type) else chunk
