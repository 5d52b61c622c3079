"""Rewrites one data file with some of its rows replaced, at their positions.

Row groups and columns in which nothing changes are copied as bytes. The others are decoded at once,
get their new rows, and are encoded at once, as many as a limit of bytes allows. A file that cannot
be spliced is rewritten as a whole, row group by row group. A file in which no value changes is left
alone.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heapreplace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.arrow_compat import (
    Unit,
    cast_table,
    finest_unit,
    has_nanoseconds,
    naming_damage,
    open_data_file,
    take_rows,
)
from fsspeckit.core.parquet import (
    CannotSpliceError,
    ChunkStyle,
    Splicer,
    WriterProperties,
    check_chunks,
    check_columns,
    check_encodable,
    check_spliced,
    columns_of,
    decoded_bytes,
    encode_groups,
    open_original,
    open_sink,
    parse_layout,
    read_footer,
    read_writer_properties,
    sorting_columns,
    writer_styles,
)
from fsspeckit.core.rewrite.diff import (
    DEFAULT_SPLICE_LIMITS,
    FileDiff,
    Rewritten,
    compact_dictionaries,
    decide,
    dictionaries_in,
)
from fsspeckit.core.schema_conform import resolve_null_types
from fsspeckit.core.threads import ThreadPool
from fsspeckit.errors import UnreadableFileError
from fsspeckit.storage import new_file, on_local_disk, read_range

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from numpy.typing import NDArray

    from fsspeckit.core.parquet import (
        Chunk,
        Column,
        EncodedChunk,
        FileLayout,
        Original,
        WriterStyle,
    )
    from fsspeckit.core.rewrite.diff import (
        ColumnsDiff,
        Positions,
        Replacement,
        RowSource,
        Run,
        SpliceLimits,
    )
    from fsspeckit.storage import DataFile, OnDisk, Root

# A row group that lost rows is joined with the next one that did while one of them is smaller than
# a quarter of the largest, or of a minimum of rows: many small deletions would otherwise leave many
# small row groups.
_SMALL_SHARE = 4
_MIN_INDEX_BITS = 32
_MAX_COUNTED_CHUNKS = 10_000
"""Pages of files with more column chunks are not counted: it would take longer than it is worth."""
_WORK_OF_TEXT = 4
"""How much longer a byte of strings takes than one of numbers: most of it is compression."""


@dataclass(frozen=True)
class Spliceable:
    """A file whose layout is known."""

    root: Root
    original: Original
    layout: FileLayout
    columns: list[Column]


@contextmanager
def open_spliceable(root: Root, path: str) -> Iterator[Spliceable]:
    """Open a file for splicing, or raise `CannotSpliceError` with the reason why not."""
    with open_original(root, path) as original:
        footer = read_footer(original.read, original.size)
        layout = parse_layout(footer, original.size, original.read)
        columns = columns_of(layout.elements)
        check_columns(layout, columns)
        yield Spliceable(root, original, layout, columns)


@dataclass
class _Step:
    """One row group of the new file: an old one kept, or made from one or more that change."""

    numbers: tuple[int, ...]
    rows: int
    loses_rows: bool = False
    changed: set[str] = field(default_factory=set)
    """The columns in which a value of a remaining row changes."""

    encoded: dict[int, EncodedChunk] = field(default_factory=dict)
    """The new chunks by the number of their leaf column."""

    @property
    def is_kept(self) -> bool:
        """Whether it is copied as it is."""
        return not self.loses_rows and not self.encoded

    @property
    def is_dropped(self) -> bool:
        """Whether it loses all its rows."""
        return self.loses_rows and not self.rows


@dataclass
class PageCount:
    """Counts pages by what footers say of column chunks."""

    total: int | None = 0
    """None if a footer does not say, or if there are more chunks than are counted."""

    left: int = _MAX_COUNTED_CHUNKS

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Count the pages of some chunks."""
        for chunk in chunks:
            if self.total is None:
                return
            self.left -= 1
            pages = chunk.page_count if self.left >= 0 else None
            self.total = None if pages is None else self.total + pages


class _Splice:
    """Writes one file from byte ranges of the old one and new column chunks."""

    def __init__(
        self, source: Spliceable, diff: FileDiff, ordered: Collection[str], threads: int
    ) -> None:
        self._source = source
        self._diff = diff
        self._ordered = ordered
        self._threads = threads
        self._columns = {column.name: column for column in source.columns}
        self._checked: set[str] = set()
        self._sizes: dict[int, dict[str, int]] = {}
        self.unchanged_rows = 0
        if [*self._columns] != diff.properties.schema.names:
            raise CannotSpliceError("pyarrow finds other columns than the footer names")
        check_chunks(source.layout, source.original.read)

    def write(self, destination: str) -> Rewritten:
        """Write the new file, unless nothing changes.

        Raises:
            CannotSpliceError: If that fails; the new file must not be used.
        """
        steps, before = self._steps(), []
        for step in steps:
            before.append(step)
            if not step.is_kept:
                break
        else:
            return Rewritten(self._diff.file.metadata.num_rows, self.unchanged_rows, 0)
        source, done = self._source, _Written()
        with open_sink(source.root, destination) as sink:
            splicer = Splicer(source.original, source.layout, sink)
            for step in chain(before, steps):
                self._add(step, splicer, done)
            splicer.finish()
        source.original.check_unchanged()
        check_spliced(source.root, destination, source.layout, done.rows, splicer.indexes)
        total_columns, total_groups = len(self._columns), len(source.layout.groups)
        return Rewritten(
            splicer.rows,
            self.unchanged_rows,
            done.encoded_groups,
            method="column splice" if done.is_partial else "splice",
            reason=f"{len(done.columns)} of {total_columns} columns in {done.groups} of "
            f"{total_groups} row groups change",
            copied_row_groups=len(done.rows) - done.encoded_groups,
            encoded_bytes=done.encoded_bytes,
            copied_bytes=splicer.copied_bytes,
            encoded_columns=len(done.columns),
            copied_columns=total_columns - len(done.columns),
            encoded_pages=done.encoded_pages.total,
            copied_pages=done.copied_pages.total,
            encoded_group_numbers=tuple(done.numbers),
            column_names=tuple(name for name in self._columns if name in done.columns),
        )

    def _add(self, step: _Step, splicer: Splicer, done: _Written) -> None:
        group = self._source.layout.groups[step.numbers[0]]
        if not step.is_kept:
            done.groups += len(step.numbers)
        if step.is_dropped:
            return
        done.rows.append(step.rows)
        if step.is_kept:
            done.copied_pages.add(group.chunks)
            splicer.keep(group)
            return
        chunks = [step.encoded.get(number, chunk) for number, chunk in enumerate(group.chunks)]
        splicer.change(group, step.rows, chunks, self._unsorted(step))
        done.encoded_groups += 1
        done.numbers.append(len(done.rows) - 1)
        done.encoded_pages.add(new.chunk for new in step.encoded.values())
        done.copied_pages.add(old for n, old in enumerate(group.chunks) if n not in step.encoded)
        done.encoded_bytes += sum(len(chunk.pages) for chunk in step.encoded.values())
        done.columns |= set(self._columns) if step.loses_rows else step.changed
        done.is_partial |= len(step.encoded) < len(chunks)
        step.encoded.clear()  # its bytes are written

    def _unsorted(self, step: _Step) -> set[int]:
        """The leaf columns that may have lost their sort order."""
        if len(step.numbers) > 1:
            return set(range(sum(column.leaves for column in self._source.columns)))
        changed = step.changed.difference(self._ordered)
        return {number for name in changed for number in self._columns[name].numbers}

    def _steps(self) -> Iterator[_Step]:
        """The row groups of the new file, in order, encoded run by run."""
        start = 0
        for run in self._diff.runs(self._decoded_bytes):
            end = run.numbers[-1] + 1
            steps = self._plan(range(start, end))
            touched = set(run.decoded)
            self._encode(run, [step for step in steps if step.numbers[0] in touched])
            yield from steps
            start = end
        yield from self._plan(range(start, len(self._source.layout.groups)))

    def _plan(self, numbers: range) -> list[_Step]:
        rows_before = (group.rows for group in self._source.layout.groups)
        wanted = max([self._diff.limits.min_group_rows, *rows_before])
        steps: list[_Step] = []
        dropped: list[_Step] = []
        for number in numbers:
            rows = self._diff.rows_after(number)
            step = _Step((number,), rows, self._diff.loses_rows(number))
            if step.is_dropped:
                dropped.append(step)
            elif steps and _should_join(steps[-1], step, wanted):
                steps[-1].numbers += step.numbers
                steps[-1].rows += rows
            else:
                steps.append(step)
        return [*dropped, *steps]

    def _encode(self, run: Run, steps: list[_Step]) -> None:
        """Compare and encode the columns of a run."""
        if not run.decoded:
            return
        indexed = self._indexed(run)
        differs = np.zeros(run.new.num_rows, bool)

        def work(names: list[str]) -> NDArray[np.bool_]:
            return self._encode_columns(run, steps, names, indexed)

        units = self._units(run, indexed)
        if len(units) == 1 or self._threads == 1:
            for found in map(work, units):
                differs |= found
        else:
            with ThreadPool(self._threads, "fsspeckit-encode") as pool:
                for found in pool.map(work, units):
                    differs |= found
        self.unchanged_rows += int((~differs).sum())

    def _units(self, run: Run, indexed: frozenset[str]) -> list[list[str]]:
        """Columns that are decoded and encoded together: as many as memory and threads allow."""
        names = [*self._columns] if run.loses_rows else self._diff.compared
        work = {name: self._size(run, name) * self._share(name, indexed) for name in names}
        count = max(self._threads, -(-sum(work.values()) // self._diff.limits.max_run_bytes))
        units: list[tuple[int, int, list[str]]] = [(0, n, []) for n in range(min(count, len(work)))]
        # The most work first, and always to the unit that has the least.
        for name in sorted(names, key=work.__getitem__, reverse=True):
            done, number, unit = units[0]
            heapreplace(units, (done + work[name], number, [*unit, name]))
        return [unit for *_, unit in units]

    def _share(self, name: str, indexed: frozenset[str]) -> int:
        """How much work a byte of a column is."""
        kind = self._diff.properties.schema.field(name).type
        is_text = kind in (pa.string(), pa.binary()) and name not in indexed
        return _WORK_OF_TEXT if is_text else 1

    def _size(self, run: Run, name: str) -> int:
        return sum(self._decoded_sizes(number)[name] for number in run.numbers)

    def _decoded_bytes(self, number: int) -> int:
        """The size of a row group when it is decoded."""
        return sum(self._decoded_sizes(number).values())

    def _decoded_sizes(self, number: int) -> dict[str, int]:
        if number not in self._sizes:
            chunks = self._source.layout.groups[number].chunks
            self._sizes[number] = {
                name: sum(map(decoded_bytes, (chunks[n] for n in column.numbers), column.lengths))
                for name, column in self._columns.items()
            }
        return self._sizes[number]

    def _indexed(self, run: Run) -> frozenset[str]:
        """The columns of strings that are decoded as dictionaries, and written as such."""
        groups = [self._source.layout.groups[number] for number in run.numbers]
        return frozenset(
            name
            for name, column in self._columns.items()
            if self._diff.properties.schema.field(name).type in (pa.string(), pa.binary())
            and all(_is_indexed(ChunkStyle.of(g.chunks[column.first_leaf])) for g in groups)
        )

    def _encode_columns(
        self, run: Run, steps: list[_Step], names: list[str], indexed: frozenset[str]
    ) -> NDArray[np.bool_]:
        """Compare and encode some columns; returns which of the new rows differ in them."""
        found = run.compare(names, indexed)
        work: dict[WriterStyle, list[_Step]] = {}
        for step in steps:
            changed = set[str]().union(*(found.changed[number] for number in step.numbers))
            step.changed |= changed
            wanted = [self._columns[n] for n in names if step.loses_rows or n in changed]
            group = self._source.layout.groups[step.numbers[0]]
            if wanted:
                for style in writer_styles(wanted, group, self._source.original.read):
                    work.setdefault(style, []).append(step)
        self._check({column.name for style in work for column in style.columns})
        for style, some in work.items():
            self._write_columns(found, style, some)
        return found.differs

    def _write_columns(self, found: ColumnsDiff, style: WriterStyle, steps: list[_Step]) -> None:
        names = [column.name for column in style.columns]
        merged = found.merged(names)
        numbers = found.run.decoded
        starts = np.cumsum([0, *map(self._diff.rows_after, numbers)])
        offsets = dict(zip(numbers, starts.tolist(), strict=False))
        tables = []
        for step in steps:
            table = merged.slice(offsets[step.numbers[0]], step.rows)
            tables.append(compact_dictionaries(table))
        options = style.options(self._diff.properties, max(step.rows for step in steps))
        leaves = [number for column in style.columns for number in column.numbers]
        for step, chunks in zip(steps, encode_groups(tables, options), strict=True):
            step.encoded.update(zip(leaves, chunks, strict=True))

    def _check(self, names: set[str]) -> None:
        """Raise `CannotSpliceError` if a column cannot be encoded."""
        new = [column for name, column in self._columns.items() if name in names - self._checked]
        stored = self._diff.file.schema_arrow  # made again by each call
        for column in new:
            # The Arrow schema in the footer stays; its dictionaries must have room for new values.
            found = dictionaries_in(stored.field(column.name).type)
            if any(kind.index_type.bit_width < _MIN_INDEX_BITS for kind in found):
                raise CannotSpliceError(
                    f"the dictionary of {column.name!r} may get too many values"
                )
        properties = self._diff.properties
        check_encodable(new, properties.schema, self._source.layout, properties)
        self._checked |= names


@dataclass
class _Written:
    """What a splice wrote."""

    rows: list[int] = field(default_factory=list)
    """The rows of each row group."""

    groups: int = 0
    """The old row groups that change."""

    encoded_groups: int = 0
    numbers: list[int] = field(default_factory=list)
    """The row groups of the new file that are encoded."""

    encoded_bytes: int = 0
    encoded_pages: PageCount = field(default_factory=PageCount)
    copied_pages: PageCount = field(default_factory=PageCount)
    columns: set[str] = field(default_factory=set)
    is_partial: bool = False
    """Whether a chunk of a row group that changes was copied."""


def _should_join(last: _Step, step: _Step, wanted: int) -> bool:
    if not (last.loses_rows and step.loses_rows):
        return False
    is_small = min(last.rows, step.rows) * _SMALL_SHARE < wanted
    return is_small and last.rows + step.rows <= wanted


def _is_indexed(style: ChunkStyle) -> bool:
    # What pyarrow puts into the bloom filter of a dictionary is not known.
    return style.has_dictionary and not style.has_bloom


def rewrite(
    root: Root,
    path: str,
    replacement: Replacement,
    rows: RowSource,
    destination: str,
    *,
    known: DataFile | None = None,
    **options: Any,
) -> Rewritten:
    """Write a file with some rows replaced or deleted, and with other columns if the rules say so.

    See `rewrite_rows` for the arguments. Where columns change, a file that has them, and the old
    rows, is written beside the destination first. ``known`` is the file as a listing has described
    it: what was read of it to find keys is then not read again.
    """
    if root.is_local:
        return _rewrite_on_disk(root, path, replacement, rows, destination, **options)
    files = None if known is None else {path: known}
    with on_local_disk(root, [path], destination, files) as disk:
        done = _rewrite_on_disk(
            disk.root, disk.paths[0], replacement, rows, disk.destination, **options
        )
        if done.is_new:
            done = replace(done, bytes=checked_bytes(disk, done.rows))
    return done


def checked_bytes(disk: OnDisk, rows: int) -> int:
    """Return the size of a new file on a local disk, after a check of its footer."""
    found = pq.read_metadata(disk.destination).num_rows
    if found != rows or disk.new_bytes is None:
        raise UnreadableFileError(f"a new file has {found:,} rows instead of {rows:,}.")
    return disk.new_bytes


def _rewrite_on_disk(
    root: Root,
    path: str,
    replacement: Replacement,
    rows: RowSource,
    destination: str,
    **options: Any,
) -> Rewritten:
    evolution = replacement.rules.evolution
    if evolution is None:
        return rewrite_rows(root, path, replacement, rows, destination, **options)
    from fsspeckit.core.rewrite.evolution import evolve_file  # which imports this module

    replacement = replace(replacement, rules=replace(replacement.rules, evolution=None))
    between = f"{destination}.columns"
    evolved = evolve_file(root, path, evolution, between)
    if not evolved.is_new:
        return rewrite_rows(root, path, replacement, rows, destination, **options)
    try:
        done = rewrite_rows(root, between, replacement, rows, destination, **options)
        if not done.is_new and not done.is_removed:
            evolved = evolve_file(root, path, evolution, destination)
            counts = {name: getattr(done, name) for name in _COUNTS}
            return replace(evolved, **counts)
        return replace(done, reason=f"{evolved.reason}; then {done.reason}")
    finally:
        root.filesystem.rm_file(between)


_COUNTS = ("unchanged_rows", "replaced_rows", "deleted_rows", "moved_rows", "moved", "late_rows")
"""What a rewrite reports of rows."""


def rewrite_rows(  # noqa: PLR0913 - one call with everything about a file
    root: Root,
    path: str,
    replacement: Replacement,
    rows: RowSource,
    destination: str,
    *,
    deciding: RowSource | None = None,
    key_columns: Collection[str] = (),
    types: pa.Schema | None = None,
    threads: int = 1,
    limits: SpliceLimits = DEFAULT_SPLICE_LIMITS,
) -> Rewritten:
    """Write a file with some rows replaced or deleted, in the columns that it has.

    Nothing is written if nothing changes and nothing forces it, or if the file loses all its rows.

    Args:
        root: The root of the dataset, and of the destination.
        path: The file.
        replacement: The rows that match, and what decides about them.
        rows: Returns source rows by their numbers, in that order.
        destination: The path of the new file.
        deciding: Returns the columns of source rows that decide what happens.
        key_columns: The columns by which rows match: they keep their values, and the sort order by
            them holds.
        types: The types of columns that the file stores without one, because it has only NULL.
        threads: How many threads decode and encode columns.
        limits: How many row groups are taken at once, and which ones become one.

    Raises:
        SchemaMismatchError: If the source's rows do not fit the file.
        UnreadableFileError: If its footer is damaged.
        ConcurrentModificationError: If somebody changes the file meanwhile.
    """
    with (
        try_open_spliceable(root, path) as source,
        open_file(root, path, replacement, rows, key_columns) as (file, properties),
    ):
        if types is not None:
            properties = properties.with_types(resolve_null_types(properties.schema, types))
        old_values = partial(_values_at, root, path, file, properties)
        changes = decide(replacement, deciding, old_values)
        total = file.metadata.num_rows
        leaving = changes.leaving_of(total)
        if total and leaving == total:
            what = "deleted or moved" if len(changes.moved) else "deleted"
            done = Rewritten(0, 0, 0, method="removed", reason=f"all rows are {what}")
        else:
            diff = FileDiff(root, path, file, properties, changes, rows, key_columns, limits)
            done = _write(source, diff, destination, key_columns, threads, replacement.rules.force)
        return replace(
            done,
            replaced_rows=len(changes.replaced),
            deleted_rows=leaving - len(changes.moved),
            moved_rows=len(changes.moved),
            moved=changes.moved,
            late_rows=len(changes.late),
        )


def _write(
    source: Spliceable | CannotSpliceError,
    diff: FileDiff,
    destination: str,
    key_columns: Collection[str],
    threads: int,
    force: bool,
) -> Rewritten:
    """Splice a file if that is possible, or rewrite all of it."""
    reason = "every file is rewritten"
    if not force:
        try:
            if isinstance(source, CannotSpliceError):
                raise source
            return _Splice(source, diff, key_columns, threads).write(destination)
        except CannotSpliceError as error:
            # Whatever was begun is overwritten.
            reason = f"cannot be spliced: {error}"
    return _rewrite_all(diff, destination, key_columns, reason, force=force)


def _values_at(
    root: Root,
    path: str,
    file: pq.ParquetFile,
    properties: WriterProperties,
    name: str,
    positions: Positions,
) -> pa.ChunkedArray:
    """Read the values of a column at some positions; INT96 timestamps have the zone UTC."""
    wanted = pa.schema([properties.meaning().field(name)])
    groups = (file.metadata.row_group(number) for number in range(file.num_row_groups))
    starts = np.cumsum([0, *(group.num_rows for group in groups)])
    cuts = np.searchsorted(positions, starts)
    parts = [wanted.empty_table()]
    for number in np.flatnonzero(np.diff(cuts)).tolist():
        here = positions[cuts[number] : cuts[number + 1]] - starts[number]
        with naming_damage(root, path):
            # pyarrow also reads a column called "id.x" for "id": a dot is a path to it.
            table = file.read_row_group(number, columns=[name], use_threads=False).select([name])
        parts.append(cast_table(take_rows(table, pa.array(here)), wanted))
    return pa.concat_tables(parts).column(name)


@contextmanager
def try_open_spliceable(root: Root, path: str) -> Iterator[Spliceable | CannotSpliceError]:
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


def _rewrite_all(
    diff: FileDiff, destination: str, key_columns: Collection[str], reason: str, *, force: bool
) -> Rewritten:
    """Rewrite the whole file, row group by row group."""
    changed: set[str] = set()
    unchanged_rows, loses_rows = 0, False
    for run in diff.runs():
        loses_rows |= any(map(diff.loses_rows, run.numbers))
        if run.new.num_rows:
            found = run.compare(diff.compared)
            changed.update(*found.changed.values())
            unchanged_rows += int((~found.differs).sum())
    if not (changed or loses_rows or force):
        return Rewritten(diff.file.metadata.num_rows, unchanged_rows, 0)
    unsorted = changed.difference(key_columns)
    kept = sorting_columns(diff.file.metadata, {*diff.properties.schema.names} - unsorted)
    options = {**diff.properties.options, "sorting_columns": kept}
    rows = 0
    with open_writer(diff.root, destination, replace(diff.properties, options=options)) as writer:
        for number in range(diff.file.num_row_groups):
            table = diff.merged(number)
            # A row group that loses all its rows goes; one that never had any stays.
            if table.num_rows or not diff.rows_of(number):
                writer.write_table(table, row_group_size=max(table.num_rows, 1))
                rows += table.num_rows
    groups = diff.file.num_row_groups
    return Rewritten(rows, unchanged_rows, groups, method="full", reason=reason)


@contextmanager
def open_file(
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
        has_new = len(replacement.source_rows) and not replacement.rules.deletes
        if properties.writes_int96 and has_new:
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
    root: Root,
    path: str,
    file: pq.ParquetFile,
    unchanged: Collection[str] = (),
    *,
    reads_pages: bool = True,
) -> WriterProperties:
    """Find out how an open file was written; what only pages say is left out if none is read."""
    return read_writer_properties(
        file.metadata,
        file.schema_arrow,
        lambda offset, length: read_range(root, path, offset, length) if reads_pages else b"",
        unchanged=unchanged,
    )


@contextmanager
def open_writer(
    root: Root,
    path: str,
    properties: WriterProperties,
    set_bytes: Callable[[int], None] | None = None,
) -> Iterator[pq.ParquetWriter]:
    """Open a new file on any filesystem for writing; it is closed whatever happens.

    ``set_bytes`` is called with its size, on a filesystem that is not local.
    """
    with ExitStack() as stack:
        target: Any = path
        if not root.is_local:
            # It counts bytes itself: not every filesystem's file can.
            target = pa.PythonFile(stack.enter_context(new_file(root, path)), mode="w")
            stack.callback(target.close)
            if set_bytes is not None:
                stack.callback(lambda: set_bytes(target.tell()))
        writer = pq.ParquetWriter(target, properties.schema, **properties.options)
        stack.callback(writer.close)
        if properties.key_values:
            writer.add_key_value_metadata(properties.key_values)
        yield writer
