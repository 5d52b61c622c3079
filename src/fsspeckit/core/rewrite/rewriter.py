"""Rewrites one data file with some of its rows replaced, at their positions.

What does not change is copied as bytes where the file allows it and where that is cheaper.
Otherwise the file is rewritten row group by row group, so that memory is bounded by one of them. A
file in which no value changes is left alone.

A spliced file is copied as bytes where nothing changes. Decoding happens in this thread, in which
pyarrow uses its own threads, encoding in others; copying and writing go in the order of the file.
Memory is bounded by a limit of decoded bytes.
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.arrow_compat import Unit, finest_unit, has_nanoseconds, open_data_file
from fsspeckit.core.parquet import (
    CannotSpliceError,
    ColumnPatch,
    IndexedPages,
    PageReader,
    Splicer,
    WriterProperties,
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
    read_writer_properties,
    shared_options,
    sorting_columns,
)
from fsspeckit.core.rewrite.diff import (
    UNIT_BYTES,
    FileDiff,
    Replacement,
    Rewritten,
    choose,
    dictionaries_in,
    with_rows,
)
from fsspeckit.core.schema_conform import resolve_null_types
from fsspeckit.core.threads import Task, ThreadPool
from fsspeckit.errors import UnreadableFileError
from fsspeckit.storage import read_range

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
    )
    from fsspeckit.core.rewrite.diff import (
        Choice,
        ComparedRows,
        Costs,
        Positions,
        Probe,
        Probed,
        RowGroupDiff,
        RowSource,
    )
    from fsspeckit.storage import Root

ENCODERS = min(4, os.cpu_count() or 1)
"""The number of threads that encode."""

# A row group that lost rows is joined with the next one that did while one of them is smaller than
# a quarter of the largest, or of this many rows: many small deletions would otherwise leave many
# small row groups.
_SMALL_SHARE = 4
_MIN_GROUP_ROWS = 10_000
_MIN_INDEX_BITS = 32
_MAX_DECODED_BYTES = 32 * 1024 * 1024
# The options of pages from which values for a dictionary are cut out.
_PLAIN = {"column_encoding": None, "data_page_version": "1.0", "write_page_checksum": False}


@dataclass(frozen=True)
class Spliceable:
    """A file whose layout is known."""

    root: Root
    original: Original
    layout: FileLayout
    columns: list[Column]

    def probe(self, number: int, positions: Positions) -> dict[str, PageValues | IndexedPages]:
        """Read the pages of a row group that hold some rows; see `PageReader.probe`."""
        if not self.root.is_local:  # every page would be a request
            return {}
        return self._prober.probe(number, positions)

    @cached_property
    def _prober(self) -> PageReader:
        return PageReader(self.layout, self.columns, self.original.read)

    def check_names(self, schema: pa.Schema) -> None:
        """Raise `CannotSpliceError` if pyarrow reads other columns than the footer names."""
        if [column.name for column in self.columns] != schema.names:
            raise CannotSpliceError("pyarrow finds other columns than the footer names")

    def check(self, diff: FileDiff, groups: Sequence[RowGroupDiff]) -> None:
        """Raise `CannotSpliceError` if a column that changes cannot be encoded."""
        check_chunks(self.layout, self.original.read)
        names = {name for one in groups if one.rows for name in one.columns}
        changed = [column for column in self.columns if column.name in names]
        for column in changed:
            # The Arrow schema in the footer stays; its dictionaries must have room for new values.
            found = dictionaries_in(diff.file.schema_arrow.field(column.name).type)
            if any(kind.index_type.bit_width < _MIN_INDEX_BITS for kind in found):
                raise CannotSpliceError(
                    f"the dictionary of {column.name!r} may get too many values"
                )
        check_encodable(changed, diff.properties.schema, self.layout, diff.properties)

    def write(
        self,
        diff: FileDiff,
        groups: Sequence[RowGroupDiff],
        choice: Choice,
        destination: str,
        ordered: Collection[str] = (),
    ) -> Rewritten:
        """Write the new file.

        Args:
            diff: The file and its replacement rows.
            groups: The row groups that change.
            choice: The method, for the result.
            destination: The path of the new file.
            ordered: Columns whose values stay equal, so that a sort order by them holds.

        Raises:
            CannotSpliceError: If that fails; the new file must not be used.
        """
        with (
            open_sink(self.root, destination, self.original) as sink,
            ThreadPool(ENCODERS, "fsspeckit-encode") as pool,
        ):
            splicer = Splicer(self.original, self.layout, sink)
            writer = _RowGroupWriter(self, diff, splicer, pool, frozenset(ordered))
            for step in _steps(self.layout, groups):
                writer.add(step)
            writer.finish()
            splicer.finish()
        self.original.check_unchanged()
        check_spliced(self.root, destination, self.layout, writer.rows, splicer.indexes)
        return Rewritten(
            splicer.rows,
            diff.unchanged_rows,
            writer.encoded_groups,
            method=choice.method,
            reason=choice.reason,
            copied_row_groups=len(writer.rows) - writer.encoded_groups,
            encoded_bytes=writer.encoded_bytes,
            copied_bytes=splicer.copied_bytes,
        )


@contextmanager
def open_spliceable(root: Root, path: str) -> Iterator[Spliceable]:
    """Open a file for splicing, or raise `CannotSpliceError` with the reason why not."""
    with open_original(root, path) as original:
        footer = read_footer(original.read, original.size)
        layout = parse_layout(footer, original.size, original.read)
        columns = columns_of(layout.elements)
        check_columns(layout, columns)
        yield Spliceable(root, original, layout, columns)


@dataclass(frozen=True)
class _Step:
    """One row group of the new file: an old one kept, or made from one or more that change."""

    numbers: tuple[int, ...]
    rows: int
    diff: RowGroupDiff | None = None


def _steps(layout: FileLayout, groups: Sequence[RowGroupDiff]) -> list[_Step]:
    """The row groups of the new file, in order."""
    by_number = {diff.number: diff for diff in groups}
    largest = max((group.rows for group in layout.groups), default=0)
    steps: list[_Step] = []
    for number, group in enumerate(layout.groups):
        diff = by_number.get(number)
        if diff is None:
            steps.append(_Step((number,), group.rows))
        elif diff.rows:
            last = steps[-1] if steps else None
            if last is not None and _should_join(last, diff, largest):
                numbers = (*last.numbers, number)
                steps[-1] = _Step(numbers, last.rows + diff.rows, diff)
            else:
                steps.append(_Step((number,), diff.rows, diff))
    return steps


def _should_join(last: _Step, diff: RowGroupDiff, largest: int) -> bool:
    if last.diff is None or not (last.diff.loses_rows and diff.loses_rows):
        return False
    wanted = max(largest, _MIN_GROUP_ROWS)
    is_small = min(last.rows, diff.rows) * _SMALL_SHARE < wanted
    return is_small and last.rows + diff.rows <= wanted


@dataclass
class _Waiting:
    """A row group whose columns are being encoded."""

    step: _Step
    patched: dict[str, EncodedChunk] = field(default_factory=dict)
    units: list[tuple[list[Column], Task[list[EncodedChunk]]]] = field(default_factory=list)


class _RowGroupWriter:
    """Encodes row groups in threads and writes them in order."""

    def __init__(
        self,
        source: Spliceable,
        diff: FileDiff,
        splicer: Splicer,
        pool: ThreadPool,
        ordered: frozenset[str],
    ) -> None:
        self._source = source
        self._diff = diff
        self._splicer = splicer
        self._pool = pool
        self._ordered = ordered
        self._columns = {column.name: column for column in source.columns}
        self._waiting: deque[_Waiting] = deque()
        self._encoding: deque[tuple[int, Task[list[EncodedChunk]]]] = deque()
        self.rows: list[int] = []
        self.encoded_groups = 0
        self.encoded_bytes = 0

    def add(self, step: _Step) -> None:
        """Begin a row group of the new file."""
        waiting = _Waiting(step)
        if step.diff is not None:
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
        assert step.diff is not None
        group = self._source.layout.groups[step.numbers[0]]
        waiting.patched = self._patched(step)
        names = [name for name in step.diff.columns if name not in waiting.patched]
        for columns, options in self._units(group, names, step.rows):
            size = sum(group.chunks[n].raw_bytes for column in columns for n in column.numbers)
            size *= len(step.numbers)
            self._make_room(size)
            table = pa.concat_tables(
                [self._diff.merged(n, [one.name for one in columns]) for n in step.numbers]
            )
            future = self._pool.submit(encode_columns, table, options)
            waiting.units.append((columns, future))
            self._encoding.append((size, future))
            del table
        for number in step.numbers:
            self._diff.forget(number)

    def _patched(self, step: _Step) -> dict[str, EncodedChunk]:
        """New chunks of the columns of which only some pages change."""
        assert step.diff is not None
        compared = None if step.diff.loses_rows else self._diff.compared(step.diff.number)
        if compared is None:
            return {}
        read = self._source.original.read
        return patched_columns(step.diff.columns, compared, self._diff.properties, read)

    def _make_room(self, size: int) -> None:
        """Wait until there is memory for ``size`` bytes that are decoded and not yet encoded."""
        while self._encoding and (
            len(self._encoding) > ENCODERS
            or size + sum(size for size, _ in self._encoding) > _MAX_DECODED_BYTES
        ):
            self._encoding.popleft()[1].result()

    def _units(
        self, group: Group, names: Sequence[str], rows: int
    ) -> Iterator[tuple[list[Column], dict[str, Any]]]:
        """Columns that are encoded together, with the options for them."""
        properties = self._diff.properties
        unit: list[Column] = []
        found: list[dict[str, Any]] = []
        size = 0
        for name in names:
            column = self._columns[name]
            chunks = [group.chunks[number] for number in column.numbers]
            options = chunk_options(column, chunks, properties, rows)
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
        groups = self._source.layout.groups
        self.rows.append(step.rows)
        if step.diff is None:
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
        """The leaf columns that may have lost their sort order."""
        assert step.diff is not None
        if len(step.numbers) > 1:
            return set(range(sum(column.leaves for column in self._source.columns)))
        changed = step.diff.changed - self._ordered
        return {number for name in changed for number in self._columns[name].numbers}


def patched_columns(
    names: Iterable[str], compared: ComparedRows, properties: WriterProperties, read: Read
) -> dict[str, EncodedChunk]:
    """Make new chunks for columns of which some pages change.

    Args:
        names: The columns that change.
        compared: The rows that change, and the pages that hold them.
        properties: How the file was written.
        read: Reads bytes of the file.

    Returns:
        The chunks by column; columns that must be encoded as a whole are left out.

    Raises:
        CannotSpliceError: If new pages cannot be made.
    """
    found: dict[str, EncodedChunk] = {}
    pages = [compared.pages[name] for name in names if name in compared.pages]
    for together, options in _units(pages, properties, read):
        schema = pa.schema([_plain(properties.schema.field(one.column.name)) for one in together])
        patches = [_patch(one, compared, schema.field(one.column.name)) for one in together]
        chunks = patch_chunks(patches, schema, options, read)
        for name, chunk in zip(schema.names, chunks, strict=True):
            if chunk is not None:
                found[name] = chunk
    return found


def _plain(field: pa.Field) -> pa.Field:
    """A field without Arrow dictionary, so that its statistics are those of its values."""
    is_dictionary = pa.types.is_dictionary(field.type)
    return field.with_type(field.type.value_type) if is_dictionary else field


def _patch(
    pages: PageValues | IndexedPages, compared: ComparedRows, field: pa.Field
) -> ColumnPatch:
    old, new = (table.column(field.name).cast(field.type) for table in (compared.old, compared.new))
    if isinstance(pages, IndexedPages):
        return ColumnPatch(pages, old, new)
    schema = pa.schema([field])
    before = pa.table([pages.values.cast(field.type)], schema=schema)
    after = with_rows(before, pa.table([new], schema=schema), pages.inside)
    return ColumnPatch(pages, old, new, after.column(0))


def _units(
    pages: Sequence[PageValues | IndexedPages], properties: WriterProperties, read: Read
) -> list[tuple[list[PageValues | IndexedPages], dict[str, Any]]]:
    """Columns whose pages hold the same rows and have the same options."""
    units: dict[object, tuple[list[PageValues | IndexedPages], list[dict[str, Any]]]] = {}
    for one in pages:
        options = _options(one, properties, read)
        # Pages of dictionary indices are not encoded again.
        spans = () if isinstance(one, IndexedPages) else one.spans
        alike = (spans, shared_options(options))
        together, found = units.setdefault(alike, ([], []))
        together.append(one)
        found.append(options)
    return [(together, merged_options(found)) for together, found in units.values()]


def _options(
    pages: PageValues | IndexedPages, properties: WriterProperties, read: Read
) -> dict[str, Any]:
    chunk = pages.chunk
    known = chunk_options(pages.column, [chunk], properties, 1)
    known |= {"use_dictionary": False, "write_statistics": [chunk.path]}
    if isinstance(pages, IndexedPages):
        return {**known, **_PLAIN, "compression": {chunk.path: "NONE"}}
    return {**known, **page_options([chunk], read)}


def rewrite(
    root: Root,
    path: str,
    replacement: Replacement,
    rows: RowSource,
    destination: str,
    *,
    key_columns: Collection[str] = (),
    types: pa.Schema | None = None,
    costs: Costs | None = None,
) -> Rewritten:
    """Write a file with some rows replaced, unless no value changes and nothing forces it.

    Args:
        root: The root of the dataset, and of the destination.
        path: The file.
        replacement: The rows to replace.
        rows: Returns source rows by their numbers, in that order.
        destination: The path of the new file.
        key_columns: The columns whose values stay equal, so that a sort order by them holds.
        types: The types of columns that the file stores without one, because it has only NULL.
        costs: The costs by which the method is chosen; by default measured ones.

    Raises:
        SchemaMismatchError: If the source's rows do not fit the file.
        UnreadableFileError: If its footer is damaged.
        ConcurrentModificationError: If somebody changes the file meanwhile.
    """
    with (
        _try_open_spliceable(root, path) as source,
        _opened(root, path, replacement, rows, key_columns) as (file, properties),
    ):
        if types is not None:
            properties = properties.with_types(resolve_null_types(properties.schema, types))
        diff = FileDiff(root, path, file, properties, replacement, rows, _probe_of(source))
        groups = diff.row_group_diffs()
        diff.properties = _with_kept_order(diff, groups, key_columns)
        if replacement.force:
            return _rewrite_all(diff, destination, "every file is rewritten")
        if not groups:
            return Rewritten(file.metadata.num_rows, diff.unchanged_rows, 0)
        try:
            return _splice(source, diff, groups, destination, key_columns, costs)
        except CannotSpliceError as error:
            # Whatever was begun is overwritten.
            return _rewrite_all(diff, destination, f"cannot be spliced: {error}")


@contextmanager
def _try_open_spliceable(root: Root, path: str) -> Iterator[Spliceable | CannotSpliceError]:
    """Open a file for splicing, or return why that fails: it may not be needed."""
    with ExitStack() as stack:
        source: Spliceable | CannotSpliceError
        try:
            source = stack.enter_context(open_spliceable(root, path))
        except CannotSpliceError as error:
            if error.is_unreadable:
                raise UnreadableFileError(
                    f"{root.to_user_path(path)!r} is not readable as Parquet: {error}."
                ) from error
            source = error
        yield source


def _probe_of(source: Spliceable | CannotSpliceError) -> Probe:
    def probe(number: int, positions: Positions) -> Probed:
        if isinstance(source, CannotSpliceError):
            return {}
        try:
            return source.probe(number, positions)
        except CannotSpliceError:
            return {}

    return probe


def _splice(
    source: Spliceable | CannotSpliceError,
    diff: FileDiff,
    groups: Sequence[RowGroupDiff],
    destination: str,
    key_columns: Collection[str],
    costs: Costs | None,
) -> Rewritten:
    if isinstance(source, CannotSpliceError):
        raise source
    source.check_names(diff.properties.schema)
    choice = choose(source.layout, source.columns, groups, ENCODERS, costs)
    if choice.method == "full":
        return _rewrite_all(diff, destination, choice.reason)
    source.check(diff, groups)
    return source.write(diff, groups, choice, destination, key_columns)


def _rewrite_all(diff: FileDiff, destination: str, reason: str) -> Rewritten:
    """Rewrite the whole file, row group by row group."""
    rows = 0
    with open_writer(diff.root, destination, diff.properties) as writer:
        for number in diff.groups:
            table = diff.merged(number)
            diff.forget(number)
            # A row group that loses all its rows goes; one that never had any stays.
            if table.num_rows or not diff.rows_of(number):
                writer.write_table(table, row_group_size=max(table.num_rows, 1))
                rows += table.num_rows
    return Rewritten(rows, diff.unchanged_rows, len(diff.groups), method="full", reason=reason)


def _with_kept_order(
    diff: FileDiff, groups: Sequence[RowGroupDiff], key_columns: Collection[str]
) -> WriterProperties:
    """The properties of a file that is sorted by the columns in which nothing changes."""
    changed = {name for one in groups for name in one.changed} - {*key_columns}
    kept = sorting_columns(diff.file.metadata, {*diff.properties.schema.names} - changed)
    return replace(diff.properties, options={**diff.properties.options, "sorting_columns": kept})


@contextmanager
def _opened(
    root: Root,
    path: str,
    replacement: Replacement,
    rows: RowSource,
    key_columns: Collection[str],
) -> Iterator[tuple[pq.ParquetFile, WriterProperties]]:
    """Open a file so that its INT96 timestamps lose nothing."""
    with open_data_file(root, path) as file:
        properties = read_file_properties(root, path, file, key_columns)
        if not properties.int96:
            yield file, properties
            return
        wanted: Unit = "us"
        if properties.writes_int96 and len(replacement.source_rows):
            given = rows(replacement.source_rows[:1]).schema
            finer = any(has_nanoseconds(f.type) for f in given if f.name in properties.int96)
            wanted = "ns" if finer else "us"
        unit = finest_unit(_decoded(root, path, file, properties), wanted, root.to_user_path(path))
    with open_data_file(root, path, int96_unit=unit) as file:
        yield file, properties.with_unit(unit)


def _decoded(
    root: Root, path: str, coarse: pq.ParquetFile, properties: WriterProperties
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """The INT96 columns of each row group, as microseconds and as nanoseconds."""
    names = [name for name in properties.schema.names if name in properties.int96]
    with open_data_file(root, path, int96_unit="ns") as fine:
        for number in range(coarse.num_row_groups):
            yield (
                coarse.read_row_group(number, columns=names).select(names),
                fine.read_row_group(number, columns=names).select(names),
            )


def read_file_properties(
    root: Root, path: str, file: pq.ParquetFile, unchanged: Collection[str] = ()
) -> WriterProperties:
    """Find out how an open file was written."""
    return read_writer_properties(
        file.metadata,
        file.schema_arrow,
        lambda offset, length: read_range(root, path, offset, length),
        unchanged=unchanged,
    )


@contextmanager
def open_writer(root: Root, path: str, properties: WriterProperties) -> Iterator[pq.ParquetWriter]:
    """Open a new file on any filesystem for writing; it is closed whatever happens."""
    with ExitStack() as stack:
        target: Any = path
        if not root.is_local:
            target = root.filesystem.open(path, "wb")
            stack.callback(target.close)
        writer = pq.ParquetWriter(target, properties.schema, **properties.options)
        stack.callback(writer.close)
        if properties.key_values:
            writer.add_key_value_metadata(properties.key_values)
        yield writer
