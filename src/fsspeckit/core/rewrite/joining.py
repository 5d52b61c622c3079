"""Joins data files: their row groups are copied as bytes, encoded together, or sorted.

The first file with rows is the model: the new file has its schema, its metadata and its way of
encoding. A large row group of a file that stores the same types is copied. Neighbouring small ones,
and those of a file that stores its values in another way, are decoded and encoded together.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fsspeckit.core.arrow_compat import (
    Unit,
    cast_table,
    check_dictionary_indices,
    finest_unit,
    int96_columns,
    naming_damage,
    numbered_columns,
    open_data_file,
    physical_types,
    take_rows,
    with_int96_as,
    without_views,
)
from fsspeckit.core.keys import plain_type, plain_values
from fsspeckit.core.parquet import (
    CannotSpliceError,
    FileLayout,
    Splicer,
    WriterProperties,
    check_chunks,
    check_columns,
    check_encodable,
    check_spliced,
    columns_of,
    encode_groups,
    open_original,
    open_sink,
    parse_layout,
    read_footer,
    writer_styles,
)
from fsspeckit.core.rewrite.diff import dictionaries_in, stored_rows
from fsspeckit.core.rewrite.rewriter import checked_bytes, open_writer, read_file_properties
from fsspeckit.core.schema_conform import check_same_columns, resolve_null_types
from fsspeckit.errors import SchemaMismatchError
from fsspeckit.storage import on_local_disk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fsspeckit.core.parquet import Column, EncodedChunk, Group, Original
    from fsspeckit.storage import Root, StagedFile

_MIN_INDEX_BITS = 32
_UNITS: tuple[Unit, ...] = ("us", "ns")

# What these keys of the metadata say holds for all values of a file, and decides about their
# meaning or about what readers skip.
_MEANINGFUL_KEYS = (
    b"geo",
    b"org.apache.spark.legacyDateTime",
    b"org.apache.spark.legacyINT96",
    b"org.apache.spark.timeZone",
)
# Readers distrust statistics of early versions of these writers, and of no others.
_TRUSTED_WRITERS = (
    (re.compile(rb"parquet-cpp-arrow version "), b"parquet-cpp-arrow"),
    (re.compile(rb"parquet-mr version 1\.(?:1\d|[2-9]\d)\."), b"parquet-mr"),
)
_ARROW = b"parquet-cpp-arrow"


@dataclass(frozen=True)
class JoinLimits:
    """Which row groups are copied, and how large those get that are encoded."""

    min_copied_rows: int = 65_536
    """A row group of so many rows is copied."""

    min_copied_bytes: int = 4 * 1024 * 1024
    """A row group of so many bytes before compression is copied, too."""

    max_group_rows: int = 500_000
    """Row groups are encoded together up to so many rows,"""

    max_run_bytes: int = 64 * 1024 * 1024
    """and up to so many bytes before compression."""

    def is_copied(self, rows: int, raw_bytes: int) -> bool:
        """Whether a row group is large enough to be copied."""
        return rows >= self.min_copied_rows or raw_bytes >= self.min_copied_bytes


DEFAULT_JOIN_LIMITS = JoinLimits()


class CannotJoinError(SchemaMismatchError):
    """Files cannot become one without a change of what they mean; the message says why."""


@dataclass(frozen=True)
class Joined:
    """A new file, made of several."""

    staged: StagedFile
    rows: int
    copied_bytes: int = 0
    """The bytes of pages that were copied."""

    encoded_bytes: int = 0
    """The bytes of pages that were encoded."""

    copied_row_groups: int = 0
    encoded_row_groups: int = 0
    method: Literal["splice", "full", "sort"] = "splice"
    """Row groups were copied or encoded one by one; all were decoded and encoded; all rows were
    sorted."""

    reason: str = ""
    """Why no row group could be copied; empty if they could."""


def join_files(
    root: Root,
    paths: Sequence[str],
    staged: StagedFile,
    *,
    blooms: Sequence[str] = (),
    limits: JoinLimits = DEFAULT_JOIN_LIMITS,
) -> Joined:
    """Write one file with the rows of several, in the order of these files.

    Args:
        root: The root of the dataset.
        paths: The files.
        staged: The new file.
        blooms: Columns that get bloom filters.
        limits: Which row groups are copied.

    Raises:
        CannotJoinError: If the files cannot become one.
        SchemaMismatchError: If a value does not fit the type of the first file.
        UnreadableFileError: If a file is damaged.
        FileNotFoundError: If a file is gone.
    """
    with on_local_disk(root, paths, staged.path) as disk:
        here = replace(staged, path=disk.destination)
        joined = _join_on_disk(disk.root, disk.paths, here, blooms, limits)
        if not root.is_local:
            size = checked_bytes(disk, joined.rows)
            staged = replace(staged, size=size, parquet=False)
    return replace(joined, staged=staged)


def _join_on_disk(
    root: Root,
    paths: Sequence[str],
    staged: StagedFile,
    blooms: Sequence[str],
    limits: JoinLimits,
) -> Joined:
    parts = [_read_part(root, path) for path in paths]
    model = _model_of(parts)
    _check_meaning(parts)
    try:
        return _Join(root, parts, model, blooms, limits).write(staged)
    except CannotSpliceError as error:
        # Whatever was begun is overwritten.
        reason = f"cannot be spliced: {error}"
    model = model.with_exact_unit(parts)
    properties = model.properties.with_blooms(blooms, limits.max_group_rows)
    tables = _in_groups(_tables(parts, model), limits)
    rows, groups = _write_tables(root, staged.path, properties, tables)
    size = root.filesystem.size(staged.path)
    return Joined(staged, rows, 0, size, 0, groups, "full", reason)


def sort_files(
    root: Root,
    paths: Sequence[str],
    staged: Sequence[StagedFile],
    sort_by: Sequence[str],
    *,
    blooms: Sequence[str] = (),
    limits: JoinLimits = DEFAULT_JOIN_LIMITS,
) -> list[Joined]:
    """Write the rows of several files in ascending order into new files of equal numbers of rows.

    All rows are in memory at once. Rows that are equal keep their order; NaN comes after all
    numbers, and NULL last. A new file that would get no rows is not written.

    Raises:
        CannotJoinError: If the files cannot become one.
        SchemaMismatchError: If a value does not fit the type of the first file.
    """
    parts = [_read_part(root, path) for path in paths]
    model = _model_of(parts).with_exact_unit(parts)
    _check_meaning(parts)
    properties = model.properties.sorted_by(sort_by).with_blooms(blooms, limits.max_group_rows)
    tables = [table for table, _ in _tables(parts, model)]
    empty = pa.Table.from_batches([], properties.schema)
    table = pa.concat_tables([empty, *tables]).unify_dictionaries()
    table = take_rows(table, sort_order(table, sort_by))
    largest = max((g.rows for part in parts for g in part.groups), default=1)
    rows_per_group = min(max(largest, limits.min_copied_rows), limits.max_group_rows)
    rows_per_file = max(1, -(-table.num_rows // len(staged)))
    found = []
    for number, file in enumerate(staged):
        piece = table.slice(number * rows_per_file, rows_per_file)
        if not piece.num_rows and number:
            break
        pieces = (piece.slice(n, rows_per_group) for n in range(0, piece.num_rows, rows_per_group))
        rows, groups = _write_tables(root, file.path, properties, pieces)
        size = root.filesystem.size(file.path)
        found.append(Joined(file, rows, 0, size, 0, groups, "sort"))
    return found


def sort_order(table: pa.Table, sort_by: Sequence[str]) -> pa.Array:
    """Return the numbers of rows in ascending order of some columns; equal rows stay in order."""
    if not table.num_rows:
        return pa.array([], pa.int64())
    kinds = {name: table.schema.field(name).type for name in sort_by}
    names = [name for name, kind in kinds.items() if not pa.types.is_null(plain_type(kind))]
    if not names:
        return pa.array(np.arange(table.num_rows))
    columns = [
        pa.chunked_array([plain_values(chunk) for chunk in table.column(name).chunks])
        for name in names
    ]
    named = numbered_columns(without_views(pa.table(columns, names=names)))
    order = [(name, "ascending") for name in named.column_names]
    return pc.sort_indices(named, sort_keys=order)  # NULL is last by default


@dataclass(frozen=True, eq=False)
class _Part:
    """One of the files, closed; it is opened again where its data is needed."""

    root: Root
    path: str
    metadata: pq.FileMetaData
    layout: FileLayout | None
    columns: tuple[Column, ...] = ()
    why_not: str = ""
    """Why it cannot be spliced."""

    @property
    def groups(self) -> list[_GroupSize]:
        """The sizes of its row groups."""
        found = (self.metadata.row_group(n) for n in range(self.metadata.num_row_groups))
        return [_GroupSize(group.num_rows, group.total_byte_size) for group in found]

    @property
    def created_by(self) -> bytes:
        """What the file says about its writer."""
        return (self.metadata.created_by or "").encode()

    @cached_property
    def writer(self) -> bytes:
        """The writer, without a version where that does not matter."""
        for pattern, name in _TRUSTED_WRITERS:
            if pattern.match(self.created_by):
                return name
        return self.created_by

    @property
    def has_int96(self) -> bool:
        """Whether a column has INT96 timestamps."""
        return "INT96" in physical_types(self.metadata.schema)

    def meaning(self) -> tuple[object, ...]:
        """What must be equal for chunks of two files to be in one."""
        assert self.layout is not None
        orders = self.layout.column_orders
        return tuple((c.name, c.meaning) for c in self.columns), orders and tuple(orders)

    def read(self, numbers: Sequence[int], unit: Unit) -> pa.Table:
        """Read row groups; INT96 timestamps have the zone UTC."""
        with (
            open_data_file(self.root, self.path, int96_unit=unit, metadata=self.metadata) as file,
            naming_damage(self.root, self.path),
        ):
            schema = file.schema_arrow
            table = file.read_row_groups(list(numbers), use_threads=False).select(schema.names)
            check_dictionary_indices(table)
        if self.has_int96:
            physical = physical_types(self.metadata.schema)
            instant = pa.timestamp(unit, "UTC")
            table = cast_table(table, with_int96_as(table.schema, physical, instant))
        return table


@dataclass(frozen=True)
class _GroupSize:
    rows: int
    raw_bytes: int


@dataclass(frozen=True)
class _Model:
    """The file that the new one looks like."""

    part: _Part
    properties: WriterProperties
    """How it was written; its types have no NULL type where another file has a better one."""

    def with_exact_unit(self, parts: Sequence[_Part]) -> _Model:
        """The same for files that are decoded: their INT96 timestamps lose nothing."""
        return replace(self, properties=self.properties.with_unit(_int96_unit(parts)))

    def stored(self, table: pa.Table) -> pa.Table:
        """The rows of a file as this one stores them."""
        check_same_columns(table.column_names, self.properties.schema.names, "file")
        return stored_rows(table, self.properties)


def _read_part(root: Root, path: str) -> _Part:
    with open_original(root, path) as original:
        why_not, layout = "", None
        columns: tuple[Column, ...] = ()
        try:
            footer = read_footer(original.read, original.size)
            layout = parse_layout(footer, original.size, original.read)
            columns = tuple(columns_of(layout.elements))
            check_columns(layout, columns)
            check_chunks(layout, original.read)
        except CannotSpliceError as error:
            layout, why_not = None, str(error)
    if layout is not None:
        trailer = len(footer).to_bytes(4, "little") + b"PAR1"
        with naming_damage(root, path):
            metadata = pq.read_metadata(pa.BufferReader(b"PAR1" + footer + trailer))
    else:
        with open_data_file(root, path) as file:
            metadata = file.metadata
    return _Part(root, path, metadata, layout, columns, why_not)


def _model_of(parts: Sequence[_Part]) -> _Model:
    """Take the first file with rows, if possible one that can be spliced."""
    filled = [part for part in parts if part.metadata.num_rows] or list(parts)
    part = next((part for part in filled if part.layout is not None), filled[0])
    with open_data_file(part.root, part.path, metadata=part.metadata) as file:
        properties = read_file_properties(part.root, part.path, file)
    others = [p.metadata.schema.to_arrow_schema() for p in _of_each_schema(parts)]
    types = resolve_null_types(properties.schema, *others)
    return _Model(part, properties.with_types(types))


def _of_each_schema(parts: Sequence[_Part]) -> list[_Part]:
    """One file of each schema."""
    found: dict[object, _Part] = {}
    for part in parts:
        about = part.columns or str(part.metadata.schema)
        found.setdefault((about, (part.metadata.metadata or {}).get(b"ARROW:schema")), part)
    return list(found.values())


def _int96_unit(parts: Sequence[_Part]) -> Unit:
    """The unit in which the INT96 timestamps of all files lose nothing."""
    found = {
        wanted: {
            finest_unit(_decoded(part), wanted, part.root.to_user_path(part.path))
            for part in parts
            if part.has_int96
        }
        for wanted in _UNITS
    }
    # A file answers otherwise than it is asked if its values need the other unit.
    needs_fine, needs_wide = "ns" in found["us"], "us" in found["ns"]
    if needs_fine and needs_wide:
        raise CannotJoinError(
            "INT96 timestamps of one file have nanoseconds, and those of another are out of "
            "their range."
        )
    return "ns" if needs_fine else "us"


def _decoded(part: _Part) -> Iterator[tuple[pa.Table, pa.Table]]:
    """The INT96 columns of each row group, as microseconds and as nanoseconds."""
    with ExitStack() as stack:
        coarse, fine = (
            stack.enter_context(open_data_file(part.root, part.path, int96_unit=unit))
            for unit in ("us", "ns")
        )
        names = int96_columns(coarse.schema_arrow, physical_types(coarse.schema))
        wanted = [name for name in coarse.schema_arrow.names if name in names]
        for number in range(coarse.num_row_groups):
            yield (
                coarse.read_row_group(number, columns=wanted).select(wanted),
                fine.read_row_group(number, columns=wanted).select(wanted),
            )


def _check_meaning(parts: Sequence[_Part]) -> None:
    """Refuse files whose metadata says different things about their values."""
    first = parts[0].metadata.metadata or {}
    for part in parts[1:]:
        other = part.metadata.metadata or {}
        for key in _MEANINGFUL_KEYS:
            if first.get(key) != other.get(key):
                raise CannotJoinError(
                    f"the metadata {key.decode()!r} differs from file to file, and says something "
                    "about all values of its file."
                )


def _tables(parts: Sequence[_Part], model: _Model) -> Iterator[tuple[pa.Table, int]]:
    """The rows of all files, as the model stores them, with their bytes before compression."""
    for part in parts:
        for number, group in enumerate(part.groups):
            if group.rows:
                table = part.read([number], model.properties.unit)
                yield model.stored(table), group.raw_bytes


def _in_groups(tables: Iterator[tuple[pa.Table, int]], limits: JoinLimits) -> Iterator[pa.Table]:
    """Put tables together until they are as large as a row group may be."""
    waiting: list[pa.Table] = []
    rows = size = 0
    for table, raw_bytes in tables:
        is_full = rows + table.num_rows > limits.max_group_rows
        if waiting and (is_full or size + raw_bytes > limits.max_run_bytes):
            yield _concatenated(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(table)
        rows, size = rows + table.num_rows, size + raw_bytes
    if waiting:
        yield _concatenated(waiting)


def _concatenated(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).unify_dictionaries() if len(tables) > 1 else tables[0]


def _write_tables(
    root: Root, path: str, properties: WriterProperties, tables: Iterator[pa.Table]
) -> tuple[int, int]:
    """Write each table as a row group; returns the number of rows and of row groups."""
    first = next(tables, None)
    if first is not None:
        properties = properties.with_dictionaries_for(first)
    rows = groups = 0
    with open_writer(root, path, properties) as writer:
        for table in () if first is None else (first, *tables):
            writer.write_table(table, row_group_size=table.num_rows)
            rows, groups = rows + table.num_rows, groups + 1
    return rows, groups


@dataclass(frozen=True, slots=True)
class _Piece:
    """A row group of one of the files."""

    part: int
    number: int
    size: _GroupSize


class _Join:
    """Writes one file from row groups of several."""

    def __init__(
        self,
        root: Root,
        parts: Sequence[_Part],
        model: _Model,
        blooms: Sequence[str],
        limits: JoinLimits,
    ) -> None:
        self._root = root
        self._parts = parts
        self._model = model
        self._blooms = blooms
        self._limits = limits
        if model.part.layout is None:
            raise CannotSpliceError(model.part.why_not)
        self._layout: FileLayout = model.part.layout
        self._columns = model.part.columns
        self._properties = model.properties
        self._check_columns()
        self._writer = self._choose_writer()
        self._group = next((group for group in self._layout.groups if group.rows), None)
        self._rows: list[int] = []
        self._encoded = self._encoded_bytes = 0

    def _check_columns(self) -> None:
        names = [column.name for column in self._columns]
        if names != self._properties.schema.names:
            raise CannotSpliceError("pyarrow finds other columns than the footer names")
        schema = self._model.part.metadata.schema.to_arrow_schema()
        # The Arrow schema in the footer stays; its dictionaries must have room for more values.
        found = (kind for field in schema for kind in dictionaries_in(field.type))
        if any(kind.index_type.bit_width < _MIN_INDEX_BITS for kind in found):
            raise CannotSpliceError("a dictionary may get too many values")

    def _choose_writer(self) -> _Part:
        """Choose the file whose writer the new file names: readers distrust it the most.

        What pyarrow has written may be in a file of any writer, as after a merge.
        """
        others = [part for part in self._parts if part.writer != _ARROW and self._is_same(part)]
        return others[0] if others else self._model.part

    def _is_same(self, part: _Part) -> bool:
        """Whether a file stores the columns of the model, in the same types and order."""
        return part.layout is not None and part.meaning() == self._model.part.meaning()

    @cached_property
    def _copied(self) -> list[bool]:
        """Whether row groups of each file can be copied."""
        if self._is_never_encoded and not all(map(self._is_same, self._parts)):
            raise CannotSpliceError("a file stores its columns in other types")
        writers = (_ARROW, self._writer.writer)
        return [part.writer in writers and self._is_same(part) for part in self._parts]

    @cached_property
    def _is_never_encoded(self) -> bool:
        """Whether to encode could lose something, or fail, where a copy cannot.

        pyarrow cannot join columns with a dictionary inside.
        """
        fields = [f.type for f in self._properties.schema if pa.types.is_nested(f.type)]
        return bool(self._properties.int96) or any(
            True for one in fields for _ in dictionaries_in(one)
        )

    def write(self, staged: StagedFile) -> Joined:
        """Write the new file.

        Raises:
            CannotSpliceError: If that fails; the new file must not be used.
        """
        runs = list(self._runs())
        if any(not self._is_copy(run) for run in runs):
            columns = list(self._columns)
            check_encodable(columns, self._properties.schema, self._layout, self._properties)
        with ExitStack() as stack:
            files = _Files(self._root, self._parts, stack)
            model = files.open(self._parts.index(self._model.part), stays=True)
            sink = stack.enter_context(open_sink(self._root, staged.path))
            created_by = self._writer.created_by or None
            splicer = Splicer(model, self._layout, sink, created_by=created_by)
            for run in runs:
                if self._is_copy(run):
                    self._copy(run[0], files, splicer)
                else:
                    self._encode(run, model, splicer)
            splicer.finish()
        check_spliced(self._root, staged.path, self._layout, self._rows, splicer.indexes)
        copied = len(self._rows) - self._encoded
        counts = (splicer.copied_bytes, self._encoded_bytes, copied, self._encoded)
        return Joined(staged, splicer.rows, *counts)

    def _runs(self) -> Iterator[list[_Piece]]:
        """The row groups of the new file, each as what it is made of, in order."""
        limits = self._limits
        run: list[_Piece] = []
        rows = size = 0
        for piece in self._pieces():
            after, bytes_after = rows + piece.size.rows, size + piece.size.raw_bytes
            is_full = after > limits.max_group_rows or bytes_after > limits.max_run_bytes
            if run and (is_full or self._is_large(piece)):
                yield run
                run, rows, size = [], 0, 0
            if self._is_large(piece):
                yield [piece]
            else:
                run.append(piece)
                rows, size = rows + piece.size.rows, size + piece.size.raw_bytes
        if run:
            yield run

    def _pieces(self) -> Iterator[_Piece]:
        for number, part in enumerate(self._parts):
            for group, size in enumerate(part.groups):
                if size.rows:
                    yield _Piece(number, group, size)

    def _is_large(self, piece: _Piece) -> bool:
        """Whether a row group stays one because it is copied."""
        size = piece.size
        is_large = self._is_never_encoded or self._limits.is_copied(size.rows, size.raw_bytes)
        return self._copied[piece.part] and is_large

    def _is_copy(self, run: Sequence[_Piece]) -> bool:
        return len(run) == 1 and self._copied[run[0].part]

    def _copy(self, piece: _Piece, files: _Files, splicer: Splicer) -> None:
        layout = self._parts[piece.part].layout
        assert layout is not None
        group = layout.groups[piece.number]
        missing = [c for c in self._columns if c.name in self._blooms and _lacks_bloom(c, group)]
        new: dict[int, EncodedChunk] = {}
        if missing:
            check_encodable(missing, self._properties.schema, self._layout, self._properties)
            table = self._read([piece])
            original = files.open(piece.part)
            new = self._chunks(table, missing, group, original)
            self._encoded_bytes += sum(len(chunk.pages) for chunk in new.values())
        splicer.append(files.open(piece.part), group, new)
        self._rows.append(group.rows)

    def _encode(self, run: Sequence[_Piece], model: Original, splicer: Splicer) -> None:
        assert self._group is not None
        table = self._read(run)
        new = self._chunks(table, self._columns, self._group, model)
        chunks = [new[number] for number in range(len(new))]
        splicer.change(self._group, table.num_rows, chunks, new.keys())
        self._rows.append(table.num_rows)
        self._encoded += 1
        self._encoded_bytes += sum(len(chunk.pages) for chunk in chunks)

    def _chunks(
        self, table: pa.Table, columns: Sequence[Column], like: Group, original: Original
    ) -> dict[int, EncodedChunk]:
        """Encode columns of a table as one row group, like the chunks of another."""
        found: dict[int, EncodedChunk] = {}
        styles = writer_styles(
            columns,
            like,
            original.read,
            dictionaries=self._properties.dictionaries_that_save(table),
            blooms=self._blooms,
        )
        for style in styles:
            names = [column.name for column in style.columns]
            options = style.options(self._properties, table.num_rows)
            (chunks,) = encode_groups([table.select(names)], options)
            leaves = [number for column in style.columns for number in column.numbers]
            found.update(zip(leaves, chunks, strict=True))
        return found

    def _read(self, run: Sequence[_Piece]) -> pa.Table:
        """The rows of some row groups, as the model stores them."""
        tables = []
        for number, pieces in groupby(run, key=lambda piece: piece.part):
            groups = [piece.number for piece in pieces]
            table = self._parts[number].read(groups, self._properties.unit)
            tables.append(self._model.stored(table))
        return _concatenated(tables).combine_chunks()


def _lacks_bloom(column: Column, group: Group) -> bool:
    return any(group.chunks[number].bloom is None for number in column.numbers)


class _Files:
    """The files from which row groups are copied: the model, and one of the others at a time."""

    def __init__(self, root: Root, parts: Sequence[_Part], stack: ExitStack) -> None:
        self._root = root
        self._parts = parts
        self._stack = stack
        self._staying: dict[int, Original] = {}
        self._last: tuple[int, Original] | None = None
        self._opened = stack.enter_context(ExitStack())

    def open(self, number: int, *, stays: bool = False) -> Original:
        """Open a file; the one that was opened before is closed, unless it stays."""
        if number in self._staying:
            return self._staying[number]
        if self._last is not None and self._last[0] == number:
            return self._last[1]
        stack = self._stack if stays else self._opened
        if not stays:
            self._opened.close()
        file = stack.enter_context(open_original(self._root, self._parts[number].path))
        if stays:
            self._staying[number] = file
        else:
            self._last = number, file
        return file
