"""A file written anew by splicing: what does not change is copied as bytes.

Decoding happens in this thread, which lets pyarrow use its own; encoding in a few others; copying
and writing in the order of the file. Never more than a few units of columns are decoded at once.

Columns of a row group in which few rows change: their pages are patched, not all encoded.
"""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fsspeckit.core.parquet import (
    CannotSpliceError,
    IndexedPages,
    PageReader,
    Patch,
    Splicer,
    check_chunks,
    check_columns,
    check_encodable,
    check_spliced,
    chunk_options,
    columns_of,
    encode_columns,
    merged_options,
    open_original,
    open_sink,
    page_options,
    parse_layout,
    patch_chunks,
    read_footer,
    shared_options,
)
from fsspeckit.core.rewrite.diff import UNIT_BYTES, dictionaries_in, with_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from fsspeckit.core.parquet import (
        Chunk,
        Column,
        EncodedChunk,
        FileLayout,
        Group,
        Original,
        PageValues,
        Read,
        WriterProperties,
    )
    from fsspeckit.core.rewrite.diff import Change, Compared, GroupChange, Positions
    from fsspeckit.storage import Root

__all__ = ["ENCODERS", "Spliceable", "Spliced", "open_spliceable", "patched_columns"]


# --- Columns of a row group in which few rows change ---

# Values that come into a dictionary are taken out of such pages.
_PLAIN = {"column_encoding": None, "data_page_version": "1.0", "write_page_checksum": False}


def patched_columns(
    names: Iterable[str], compared: Compared, layout: WriterProperties, read: Read
) -> dict[str, EncodedChunk]:
    """New chunks for columns of which a few pages change.

    Args:
        names: The columns that change.
        compared: The rows that change, and pages that hold them.
        layout: How the file was written.
        read: Reads bytes of the file.

    Returns:
        By column; those of which all pages must be encoded are left out.

    Raises:
        CannotSpliceError: If new pages cannot be made.
    """
    found: dict[str, EncodedChunk] = {}
    pages = [compared.pages[name] for name in names if name in compared.pages]
    for together, options in _units(pages, layout, read):
        schema = pa.schema([_plain(layout.schema.field(one.column.name)) for one in together])
        patches = [_patch(one, compared, schema.field(one.column.name)) for one in together]
        chunks = patch_chunks(patches, schema, options, read)
        for name, chunk in zip(schema.names, chunks, strict=True):
            if chunk is not None:
                found[name] = chunk
    return found


def _plain(field: pa.Field) -> pa.Field:
    """A field of which the statistics are those of its values, not of a dictionary's."""
    is_dictionary = pa.types.is_dictionary(field.type)
    return field.with_type(field.type.value_type) if is_dictionary else field


def _patch(pages: PageValues | IndexedPages, compared: Compared, field: pa.Field) -> Patch:
    old, new = (table.column(field.name).cast(field.type) for table in (compared.old, compared.new))
    if isinstance(pages, IndexedPages):
        return Patch(pages, old, new)
    schema = pa.schema([field])
    before = pa.table([pages.values.cast(field.type)], schema=schema)
    after = with_rows(before, pa.table([new], schema=schema), pages.inside)
    return Patch(pages, old, new, after.column(0))


def _units(
    pages: Sequence[PageValues | IndexedPages], layout: WriterProperties, read: Read
) -> list[tuple[list[PageValues | IndexedPages], dict[str, Any]]]:
    """Columns whose pages can be written together: they hold the same rows, in one style."""
    units: dict[object, tuple[list[PageValues | IndexedPages], list[dict[str, Any]]]] = {}
    for one in pages:
        options = _options(one, layout, read)
        alike = (_encoded_spans(one), shared_options(options))
        together, found = units.setdefault(alike, ([], []))
        together.append(one)
        found.append(options)
    return [(together, merged_options(found)) for together, found in units.values()]


def _encoded_spans(pages: PageValues | IndexedPages) -> tuple[tuple[int, int], ...]:
    """The rows of the pages that are encoded again: none of those of places in a dictionary."""
    return () if isinstance(pages, IndexedPages) else pages.spans


def _options(
    pages: PageValues | IndexedPages, layout: WriterProperties, read: Read
) -> dict[str, Any]:
    chunk = pages.chunk
    known = chunk_options(pages.column, [chunk], layout, 1)
    known |= {"use_dictionary": False, "write_statistics": [chunk.path]}
    if isinstance(pages, IndexedPages):
        return {**known, **_PLAIN, "compression": {chunk.path: "NONE"}}
    return {**known, **page_options([chunk], read)}


# --- A file written anew by splicing: what does not change is copied as bytes ---

ENCODERS = min(4, os.cpu_count() or 1)
"""How many threads encode."""

# A row group that lost rows is joined with the next one that did while one of them is smaller than
# this share of the largest, or of this many rows: many small deletions would otherwise leave many
# small row groups.
_SMALL_SHARE = 4
_SMALL_ROWS = 10_000
_ROOMY_INDEX = 32
_MOST_DECODED_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True)
class Spliced:
    """What a splice did."""

    rows: int
    encoded_groups: int
    copied_groups: int
    encoded_bytes: int
    copied_bytes: int


@dataclass(frozen=True)
class Spliceable:
    """A file that can be taken apart."""

    root: Root
    original: Original
    anatomy: FileLayout
    columns: list[Column]

    def probe(self, number: int, places: Positions) -> dict[str, PageValues | IndexedPages]:
        """The pages of a row group that hold some rows, of the columns for which that is cheap."""
        if not self.root.is_local:  # every page would be a request
            return {}
        return self._prober.probe(number, places)

    @cached_property
    def _prober(self) -> PageReader:
        return PageReader(self.anatomy, self.columns, self.original.read)

    def check_names(self, schema: pa.Schema) -> None:
        """See that pyarrow reads the columns that the footer names.

        Raises:
            CannotSpliceError: If it does not.
        """
        if [column.name for column in self.columns] != schema.names:
            raise CannotSpliceError("pyarrow finds other columns than the footer names")

    def check(self, change: Change, changes: Sequence[GroupChange]) -> None:
        """See that the columns that change can be encoded, before anything is written.

        Raises:
            CannotSpliceError: With the reason why not.
        """
        check_chunks(self.anatomy, self.original.read)
        names = {name for one in changes if one.rows for name in one.columns}
        changed = [column for column in self.columns if column.name in names]
        for column in changed:
            _check_room(change.file.schema_arrow.field(column.name))
        check_encodable(changed, change.layout.schema, self.anatomy, change.layout)

    def write(
        self,
        change: Change,
        changes: Sequence[GroupChange],
        destination: str,
        ordered: Collection[str] = (),
    ) -> Spliced:
        """Write the new file.

        Args:
            change: What changes.
            changes: The row groups that do not stay as they are.
            destination: Where to write.
            ordered: Columns whose values stay equal, so that a sort order by them holds.

        Raises:
            CannotSpliceError: If it could not be done; what was written must not be used.
        """
        with (
            open_sink(self.root, destination, self.original) as sink,
            ThreadPoolExecutor(ENCODERS, thread_name_prefix="fsspeckit-encode") as pool,
        ):
            splicer = Splicer(self.original, self.anatomy, sink)
            work = _Work(self, change, splicer, pool, frozenset(ordered))
            for step in _steps(self.anatomy, changes):
                work.add(step)
            work.finish()
            splicer.finish()
        self.original.check_unchanged()
        check_spliced(self.root, destination, self.anatomy, work.rows, splicer.indexes)
        return Spliced(
            splicer.rows,
            work.encoded_groups,
            len(work.rows) - work.encoded_groups,
            work.encoded_bytes,
            splicer.copied_bytes,
        )


@contextmanager
def open_spliceable(root: Root, path: str) -> Iterator[Spliceable]:
    """Open a file to take it apart.

    Raises:
        CannotSpliceError: If it cannot be.
    """
    with open_original(root, path) as original:
        footer = read_footer(original.read, original.size)
        anatomy = parse_layout(footer, original.size, original.read)
        columns = columns_of(anatomy.elements)
        check_columns(anatomy, columns)
        yield Spliceable(root, original, anatomy, columns)


def _check_room(stored: pa.Field) -> None:
    """See that the Arrow schema in the footer, which stays, has room for new values.

    Raises:
        CannotSpliceError: If it promises dictionaries so small that reading may fail.
    """
    if any(kind.index_type.bit_width < _ROOMY_INDEX for kind in dictionaries_in(stored.type)):
        raise CannotSpliceError(f"the dictionary of {stored.name!r} may get too many values")


@dataclass(frozen=True)
class _Step:
    """One row group of the new file: an old one kept, or made from one or more that change."""

    numbers: tuple[int, ...]
    rows: int
    change: GroupChange | None = None


def _steps(anatomy: FileLayout, changes: Sequence[GroupChange]) -> list[_Step]:
    """The row groups of the new file, in order."""
    by_number = {change.number: change for change in changes}
    largest = max((group.rows for group in anatomy.groups), default=0)
    steps: list[_Step] = []
    for number, group in enumerate(anatomy.groups):
        change = by_number.get(number)
        if change is None:
            steps.append(_Step((number,), group.rows))
        elif change.rows:
            last = steps[-1] if steps else None
            if last is not None and _should_join(last, change, largest):
                steps[-1] = _joined(last, change)
            else:
                steps.append(_Step((number,), change.rows, change))
    return steps


def _should_join(last: _Step, change: GroupChange, largest: int) -> bool:
    if last.change is None or not (last.change.loses_rows and change.loses_rows):
        return False
    wanted = max(largest, _SMALL_ROWS)
    is_small = min(last.rows, change.rows) * _SMALL_SHARE < wanted
    return is_small and last.rows + change.rows <= wanted


def _joined(last: _Step, change: GroupChange) -> _Step:
    return replace(
        last, numbers=(*last.numbers, change.number), rows=last.rows + change.rows, change=change
    )


@dataclass
class _Waiting:
    """A row group whose columns are being encoded."""

    step: _Step
    patched: dict[str, EncodedChunk] = field(default_factory=dict)
    units: list[tuple[list[Column], Future[list[EncodedChunk]]]] = field(default_factory=list)


class _Work:
    """Encodes in threads and writes in order."""

    def __init__(
        self,
        source: Spliceable,
        change: Change,
        splicer: Splicer,
        pool: ThreadPoolExecutor,
        ordered: frozenset[str],
    ) -> None:
        self._source = source
        self._change = change
        self._splicer = splicer
        self._pool = pool
        self._ordered = ordered
        self._columns = {column.name: column for column in source.columns}
        self._waiting: deque[_Waiting] = deque()
        self._encoding: deque[tuple[int, Future[list[EncodedChunk]]]] = deque()
        self.rows: list[int] = []
        self.encoded_groups = 0
        self.encoded_bytes = 0

    def add(self, step: _Step) -> None:
        """Begin a row group of the new file."""
        waiting = _Waiting(step)
        if step.change is not None:
            self._begin(waiting)
        self._waiting.append(waiting)
        while self._waiting and all(future.done() for _, future in self._waiting[0].units):
            self._write(self._waiting.popleft())

    def finish(self) -> None:
        """Wait for all row groups."""
        while self._waiting:
            self._write(self._waiting.popleft())

    def _begin(self, waiting: _Waiting) -> None:
        step = waiting.step
        assert step.change is not None
        group = self._source.anatomy.groups[step.numbers[0]]
        waiting.patched = self._patched(step)
        names = [name for name in step.change.columns if name not in waiting.patched]
        for columns, options in self._units(group, names, step.rows):
            size = sum(group.chunks[n].raw_bytes for column in columns for n in column.numbers)
            size *= len(step.numbers)
            self._make_room(size)
            table = pa.concat_tables(
                [self._change.merged(n, [one.name for one in columns]) for n in step.numbers]
            )
            future = self._pool.submit(encode_columns, table, options)
            waiting.units.append((columns, future))
            self._encoding.append((size, future))
            del table
        for number in step.numbers:
            self._change.forget(number)

    def _patched(self, step: _Step) -> dict[str, EncodedChunk]:
        """The columns of a row group of which a few pages are enough."""
        assert step.change is not None
        compared = None if step.change.loses_rows else self._change.compared(step.change.number)
        if compared is None:
            return {}
        read = self._source.original.read
        return patched_columns(step.change.columns, compared, self._change.layout, read)

    def _make_room(self, size: int) -> None:
        """Wait until few bytes are decoded and not yet encoded: these are what takes memory."""
        while self._encoding and (
            len(self._encoding) > ENCODERS
            or size + sum(size for size, _ in self._encoding) > _MOST_DECODED_BYTES
        ):
            self._encoding.popleft()[1].result()

    def _units(
        self, group: Group, names: Sequence[str], rows: int
    ) -> Iterator[tuple[list[Column], dict[str, Any]]]:
        """Columns that are encoded together, with the options for them."""
        layout = self._change.layout
        unit: list[Column] = []
        found: list[dict[str, Any]] = []
        size = 0
        for name in names:
            column = self._columns[name]
            chunks = [group.chunks[number] for number in column.numbers]
            options = chunk_options(column, chunks, layout, rows)
            differs = found and shared_options(found[0]) != shared_options(options)
            if unit and (size >= UNIT_BYTES or differs):
                yield unit, self._complete(group, unit, found)
                unit, found, size = [], [], 0
            unit.append(column)
            found.append(options)
            size += sum(chunk.raw_bytes for chunk in chunks)
        if unit:
            yield unit, self._complete(group, unit, found)

    def _complete(
        self, group: Group, columns: list[Column], found: list[dict[str, Any]]
    ) -> dict[str, Any]:
        options = merged_options(found)
        chunks = [group.chunks[number] for column in columns for number in column.numbers]
        return {**options, **page_options(chunks, self._source.original.read)}

    def _write(self, waiting: _Waiting) -> None:
        step = waiting.step
        groups = self._source.anatomy.groups
        self.rows.append(step.rows)
        if step.change is None:
            self._splicer.keep(groups[step.numbers[0]])
            return
        chunks: list[Chunk | EncodedChunk] = list(groups[step.numbers[0]].chunks)
        for name, patched in waiting.patched.items():
            chunks[self._columns[name].first_leaf] = patched
            self.encoded_bytes += patched.encoded_bytes
        for columns, future in waiting.units:
            leaves = [number for column in columns for number in column.numbers]
            for number, encoded in zip(leaves, future.result(), strict=True):
                chunks[number] = encoded
                self.encoded_bytes += encoded.encoded_bytes
        unsorted = self._unsorted(step)
        self._splicer.change(groups[step.numbers[0]], step.rows, chunks, unsorted)
        self.encoded_groups += 1

    def _unsorted(self, step: _Step) -> set[int]:
        """The leaf columns by which a row group may not be sorted any more."""
        assert step.change is not None
        if len(step.numbers) > 1:
            return set(range(sum(column.leaves for column in self._source.columns)))
        changed = step.change.changed - self._ordered
        return {number for name in changed for number in self._columns[name].numbers}
