"""The difference between a file and its new rows: which are replaced, deleted, moved or late.

An engine finds the positions of rows that have a source key. What happens to such a row may depend
on values: on a column of the source that marks deletions, on a column of both sides that says
which row is newer, and on the partition of the source row. Then old and new values are compared,
for several row groups at once and before anything is written, so that a file, a row group or a
column without a change is left alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.arrow_compat import (
    cast_table,
    check_dictionary_indices,
    naming_damage,
    open_data_file,
    take_rows,
)
from fsspeckit.core.keys import canonical_keys, key_column
from fsspeckit.core.schema_conform import check_same_columns, conform_table, different_values

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    import pyarrow.parquet as pq
    from numpy.typing import NDArray

    from fsspeckit.core.matching import FilePartition
    from fsspeckit.core.parquet import WriterProperties
    from fsspeckit.core.schema_changes import Evolution
    from fsspeckit.storage import Root, StagedFile

    Positions = NDArray[np.int64]
    Flags = NDArray[np.bool_]
    RowSource = Callable[[Positions], pa.Table]
    """Returns source rows by their numbers, in that order."""

    OldValues = Callable[[str, Positions], pa.ChunkedArray]
    """Returns the values of a column of the file at some positions."""

_PROBED_ROWS = 64
"""Rows of a row group that are compared in every column."""

Method = Literal["kept", "removed", "column splice", "splice", "full"]
"""Nothing is written, and the file stays or goes; some columns of some row groups; whole row
groups; the whole file."""


@dataclass(frozen=True)
class SpliceLimits:
    """How many row groups a rewrite takes at once, and which ones become one."""

    max_run_bytes: int = 64 * 1024 * 1024
    """Row groups are decoded and encoded together until they have this many bytes."""

    min_group_rows: int = 10_000
    """Row groups that lost rows are joined up to this many rows, or up to those of the largest."""


DEFAULT_SPLICE_LIMITS = SpliceLimits()


@dataclass(frozen=True)
class RowRules:
    """What happens to the rows of a file; by default those that match are replaced."""

    keep_others: bool = True
    """Whether rows without a match stay; if not, they are deleted."""

    force: bool = False
    """Whether the file is rewritten even if no value changes."""

    deletes: bool = False
    """Whether every matching row is deleted."""

    delete_when: str | None = None
    """The boolean column of the source that is true in rows that delete; it is not stored."""

    only_newer: str | None = None
    """The column whose value must be greater in the source than in the target."""

    moves: bool = False
    """Whether a row leaves the file if its source row belongs to another partition."""

    evolution: Evolution | None = None
    """The columns that the file gets, if they change."""

    def stored(self, names: Iterable[str]) -> list[str]:
        """Return the columns of the source that files store."""
        return [name for name in names if name != self.delete_when]


@dataclass(frozen=True)
class Replacement:
    """Which rows of a file match which rows of the source, and what happens to them."""

    positions: Positions
    """Row numbers inside the file, ascending."""

    source_rows: Positions
    """The source row for each position."""

    rules: RowRules = RowRules()
    """What happens to them and to the other rows."""

    partition: FilePartition | None = None
    """The partition of the file, if the rules let rows move to another one."""

    @property
    def deciding_columns(self) -> list[str]:
        """The columns of the source that decide."""
        parts = () if self.partition is None else self.partition.names
        named = (self.rules.delete_when, self.rules.only_newer, *parts)
        return list(dict.fromkeys(name for name in named if name is not None))


@dataclass(frozen=True)
class RowChanges:
    """What happens to the rows of a file; all positions ascend."""

    replaced: Positions
    source_rows: Positions
    """The source row for each replaced one."""

    leaving: Positions
    """Matching rows that are deleted, or move to another partition."""

    late: Positions
    """Matching rows that are at least as new as their source row, and stay."""

    keep_others: bool = True
    moved: Positions = field(default_factory=lambda: np.empty(0, np.int64))
    """The source row for each row that moves."""

    def leaving_of(self, rows: int) -> int:
        """Return how many of the file's rows are not in the new one."""
        if self.keep_others:
            return len(self.leaving)
        return rows - len(self.replaced) - len(self.late)


def decide(found: Replacement, deciding: RowSource | None, old_values: OldValues) -> RowChanges:
    """Decide about each matching row: it is late, or else deleted, or else moved or replaced.

    ``deciding`` returns the columns of the source that decide, if there are any.
    """
    rules, none = found.rules, np.empty(0, np.int64)
    if rules.deletes:
        return RowChanges(none, none, found.positions, none, rules.keep_others)
    if not found.deciding_columns or not len(found.positions):
        return RowChanges(found.positions, found.source_rows, none, none, rules.keep_others)
    assert deciding is not None
    source = deciding(found.source_rows)
    late = np.zeros(len(found.positions), bool)
    if rules.only_newer is not None:
        new = source.column(rules.only_newer)
        late = ~is_newer(rules.only_newer, new, old_values(rules.only_newer, found.positions))
    deleted = np.zeros(len(found.positions), bool)
    if rules.delete_when is not None:
        deleted = is_true(source.column(rules.delete_when)) & ~late
    moved = np.zeros(len(found.positions), bool)
    if found.partition is not None:
        values = canonical_keys(source, found.partition.columns)
        moved = found.partition.excludes(values) & ~(late | deleted)
    replaced = ~(late | deleted | moved)
    return RowChanges(
        found.positions[replaced],
        found.source_rows[replaced],
        found.positions[deleted | moved],
        found.positions[late],
        rules.keep_others,
        found.source_rows[moved],
    )


def is_newer(name: str, new: pa.ChunkedArray, old: pa.ChunkedArray) -> Flags:
    """Return where a new value is greater than the old one: NULL is below every value, NaN above.

    New values are compared as they would be stored.

    Raises:
        SchemaMismatchError: If they cannot be stored.
    """
    field = pa.schema([pa.field(name, old.type)])
    stored = conform_table(pa.table([new], names=[name]), field).column(name)
    column = key_column(name, old.type)
    left, right = column.canonical(stored), column.canonical(old)
    greater = pc.fill_null(pc.greater(left, right), False)
    first = pc.and_(left.is_valid(), right.is_null())
    return np.asarray(pc.or_(greater, first))


def is_true(flags: pa.ChunkedArray) -> Flags:
    """Return where a boolean is true; NULL, which is refused for a source, is not."""
    return np.asarray(pc.fill_null(flags.cast(pa.bool_()), False))


@dataclass(frozen=True)
class Rewritten:
    """The result of a rewrite."""

    rows: int
    """The rows of the new file; those of the old one if nothing was written."""

    unchanged_rows: int
    """Matching rows in which no value differs."""

    encoded_row_groups: int
    """Row groups with new column chunks; 0 if nothing was written."""

    path: str | None = None
    """The new file, if it is not at the destination: a task that is run twice writes two."""

    bytes: int | None = None
    """The size of the new file, if its footer was checked before it was uploaded."""

    method: Method = "kept"
    """How the new file was written."""

    reason: str = "no value changes"
    """Why it was written that way."""

    copied_row_groups: int = 0
    """Row groups that were copied as bytes."""

    encoded_bytes: int = 0
    """Bytes of the new file that were encoded, and not copied; not counted for ``full``."""

    copied_bytes: int = 0
    """Bytes of the new file that were copied from the old one."""

    encoded_columns: int | None = None
    """Columns with new chunks in some row group; None if not counted."""

    copied_columns: int | None = None
    """Columns that were copied as bytes in every row group; None if not counted."""

    encoded_pages: int | None = None
    """Pages of new column chunks; None if not counted, as those of ``full``."""

    copied_pages: int | None = None
    """Pages that were copied as bytes; None if not counted, or if a footer does not say."""

    encoded_group_numbers: tuple[int, ...] = ()
    """The row groups of the new file with new column chunks; empty for ``full``, which has all."""

    column_names: tuple[str, ...] = ()
    """The columns with new chunks in some row group; empty for ``full``, which has all."""

    replaced_rows: int = 0
    """Matching rows that were replaced, whether or not a value differs."""

    deleted_rows: int = 0
    """Rows of the old file that are not in the new one, and did not move either."""

    moved_rows: int = 0
    """Matching rows that left the file because their source row belongs to another partition."""

    moved: Any = field(default=None, repr=False, compare=False)
    """The source row for each of them: row numbers, or whatever an engine keeps them in."""

    late_rows: int = 0
    """Matching rows that stay because they are at least as new as their source row."""

    @property
    def is_new(self) -> bool:
        """Whether there is a new file."""
        return self.method not in ("kept", "removed")

    @property
    def is_removed(self) -> bool:
        """Whether the file loses all its rows, so that there is no new one."""
        return self.method == "removed"

    def staged_as(self, file: StagedFile) -> StagedFile:
        """Return a staged file with what is known of it now."""
        is_checked = self.bytes is not None
        return replace(file, path=self.path or file.path, size=self.bytes, parquet=not is_checked)

    def to_metrics(self) -> dict[str, Any]:
        """Its entry in the metrics of a merge."""
        return {
            "method": self.method,
            "reason": self.reason,
            "row_groups_encoded": self.encoded_row_groups,
            "row_groups_copied": self.copied_row_groups,
            "columns_encoded": self.encoded_columns,
            "columns_copied": self.copied_columns,
            "pages_encoded": self.encoded_pages,
            "pages_copied": self.copied_pages,
            "bytes_encoded": self.encoded_bytes,
            "bytes_copied": self.copied_bytes,
            "encoded_row_groups": list(self.encoded_group_numbers),
            "encoded_columns": list(self.column_names),
        }


class FileDiff:
    """A file and its replacement rows."""

    def __init__(
        self,
        root: Root,
        path: str,
        file: pq.ParquetFile,
        properties: WriterProperties,
        changes: RowChanges,
        rows: RowSource,
        key_columns: Collection[str] = (),
        limits: SpliceLimits = DEFAULT_SPLICE_LIMITS,
    ) -> None:
        self.root = root
        self.path = path
        self.file = file
        self.properties = properties
        self.limits = limits
        self._changes = changes
        self._rows = rows
        groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
        self._starts = np.cumsum([0, *(group.num_rows for group in groups)])
        self._cuts = np.searchsorted(changes.replaced, self._starts)
        # Those that leave if others stay, those that stay beside the replaced ones if not.
        self._marked = changes.leaving if changes.keep_others else changes.late
        self._marked_cuts = np.searchsorted(self._marked, self._starts)
        # Keys are equal; only those of 0.0 may have another sign, and those of NaN other bits.
        self.compared = [
            field.name
            for field in properties.schema
            if field.name not in key_columns or pa.types.is_floating(field.type)
        ]
        self.may_differ = frozenset(self.compared)

    def rows_of(self, number: int) -> int:
        """The number of rows of a row group before the change."""
        return int(self._starts[number + 1] - self._starts[number])

    def matches_of(self, number: int) -> int:
        """The number of rows of a row group that are replaced."""
        return int(self._cuts[number + 1] - self._cuts[number])

    def rows_after(self, number: int) -> int:
        """The number of rows of a row group after the change."""
        marked = int(self._marked_cuts[number + 1] - self._marked_cuts[number])
        if self._changes.keep_others:
            return self.rows_of(number) - marked
        return self.matches_of(number) + marked

    def loses_rows(self, number: int) -> bool:
        """Whether a row group has fewer rows after the change."""
        return self.rows_after(number) < self.rows_of(number)

    def runs(self, size_of: Callable[[int], int] | None = None) -> Iterator[Run]:
        """The row groups with a match, or that lose rows, in parts that fit into memory.

        ``size_of`` returns the size of a decoded row group; without it, each is a part. So it is
        where a dictionary is inside of another column, because pyarrow cannot join such columns.
        """
        nested = [field.type for field in self.properties.schema if pa.types.is_nested(field.type)]
        if any(True for one in nested for _ in dictionaries_in(one)):
            size_of = None
        run: list[int] = []
        size = 0
        for number in range(self.file.num_row_groups):
            if not self.matches_of(number) and not self.loses_rows(number):
                continue
            own = self.limits.max_run_bytes if size_of is None else size_of(number)
            if run and size + own > self.limits.max_run_bytes:
                yield Run(self, tuple(run))
                run, size = [], 0
            run.append(number)
            size += own
        if run:
            yield Run(self, tuple(run))

    def positions(self, numbers: Sequence[int]) -> Positions:
        """The replaced rows of some row groups, counted from the first row of the first of them."""
        return self._within(numbers, self._changes.replaced, self._cuts)

    def remaining(self, numbers: Sequence[int]) -> Positions | None:
        """The rows of some row groups that stay, counted in the same way; None if all do."""
        if not any(map(self.loses_rows, numbers)):
            return None
        marked = self._within(numbers, self._marked, self._marked_cuts)
        stays = np.full(sum(map(self.rows_of, numbers)), self._changes.keep_others)
        stays[marked] = not self._changes.keep_others
        if not self._changes.keep_others:
            stays[self.positions(numbers)] = True
        return np.flatnonzero(stays)

    def _within(self, numbers: Sequence[int], positions: Positions, cuts: Positions) -> Positions:
        found = [np.empty(0, np.int64)]
        before = 0
        for number in numbers:
            cut = slice(cuts[number], cuts[number + 1])
            found.append(positions[cut] - self._starts[number] + before)
            before += self.rows_of(number)
        return np.concatenate(found)

    def new_rows(self, numbers: Sequence[int]) -> pa.Table:
        """The rows of the source for the positions of some row groups, as the file stores them."""
        cuts = [slice(self._cuts[number], self._cuts[number + 1]) for number in numbers]
        if not sum(cut.stop - cut.start for cut in cuts):
            return pa.Table.from_batches([], self.properties.schema)
        source = self._rows(np.concatenate([self._changes.source_rows[cut] for cut in cuts]))
        check_same_columns(source.column_names, self.properties.schema.names, "file")
        return stored_rows(source, self.properties)

    def old_rows(
        self, numbers: Sequence[int], names: Sequence[str], indexed: Collection[str] = ()
    ) -> pa.Table:
        """Columns of some row groups; those in ``indexed`` as dictionaries, for fewer bytes."""
        names = list(names)
        wanted = [name for name in names if name in indexed]
        unit, metadata = self.properties.unit, self.file.metadata
        # A reader of its own: threads must not share one.
        with (
            open_data_file(
                self.root, self.path, int96_unit=unit, metadata=metadata, indexed=wanted
            ) as file,
            naming_damage(self.root, self.path),
        ):
            # pyarrow also reads a column called "id.x" for "id": a dot is a path to it.
            old = file.read_row_groups(list(numbers), columns=names, use_threads=False)
            check_dictionary_indices(old)
        schema = pa.schema([_indexed(self.properties.schema.field(n), n in wanted) for n in names])
        return cast_table(old.select(names), schema)

    def merged(self, number: int) -> pa.Table:
        """The rows of one row group after the merge."""
        new = self.new_rows([number])
        if new.num_rows == self.rows_after(number):
            return new
        old = self.old_rows([number], self.properties.schema.names)
        return with_rows(old, new, self.positions([number]), self.remaining([number]))


@dataclass(frozen=True)
class Run:
    """Row groups that are decoded together."""

    diff: FileDiff
    numbers: tuple[int, ...]

    @cached_property
    def decoded(self) -> tuple[int, ...]:
        """The row groups that have rows after the change; the others lose all of them."""
        return tuple(number for number in self.numbers if self.diff.rows_after(number))

    @cached_property
    def new(self) -> pa.Table:
        """The new rows, in the order of their positions."""
        return self.diff.new_rows(self.decoded)

    @cached_property
    def positions(self) -> Positions:
        """The positions of the new rows among the rows of the run."""
        return self.diff.positions(self.decoded)

    @cached_property
    def remaining(self) -> Positions | None:
        """The positions of the rows that stay; None if all do."""
        return self.diff.remaining(self.decoded)

    @property
    def loses_rows(self) -> bool:
        """Whether a row group that is decoded has fewer rows after the change."""
        return self.remaining is not None

    def compare(self, names: Sequence[str], indexed: Collection[str] = ()) -> ColumnsDiff:
        """Read some columns, and compare old and new values of those that may differ."""
        old = self.diff.old_rows(self.decoded, names, indexed).unify_dictionaries()
        names = [name for name in names if name in self.diff.may_differ]
        counts = [self.diff.matches_of(number) for number in self.decoded]
        cuts = np.cumsum([0, *counts])
        differs = np.zeros(cuts[-1], bool)
        is_probe = np.arange(cuts[-1]) - np.repeat(cuts[:-1], counts) < _PROBED_ROWS
        probes = np.flatnonzero(is_probe)
        changed: dict[int, set[str]] = {number: set() for number in self.numbers}
        for name, found in zip(names, self._differences(old, names, probes), strict=True):
            different = np.zeros(cuts[-1], bool)
            different[probes] = found
            # A row that differs in another column need not be compared where this one changes.
            is_done = is_probe | (differs & np.repeat(_any_within(different, cuts), counts))
            if not is_done.all():
                rest = np.flatnonzero(~is_done)
                [different[rest]] = self._differences(old, [name], rest)
            for at in np.flatnonzero(_any_within(different, cuts)).tolist():
                changed[self.decoded[at]].add(name)
            differs |= different
        return ColumnsDiff(self, old, changed, differs)

    def _differences(self, old: pa.Table, names: Sequence[str], rows: Positions) -> list[Flags]:
        """Return for each column in which of some new rows it differs from the old one."""
        before = take_rows(old.select(names), pa.array(self.positions[rows]))
        after = self.new.select(names)
        if len(rows) < after.num_rows:
            after = take_rows(after, pa.array(rows))
        return [
            different_values(one.combine_chunks(), other.combine_chunks())
            for one, other in zip(before.columns, after.columns, strict=True)
        ]


@dataclass(frozen=True)
class ColumnsDiff:
    """Columns of a run, compared."""

    run: Run
    old: pa.Table
    changed: dict[int, set[str]]
    """For each row group, the columns in which a value changes."""

    differs: NDArray[np.bool_]
    """For each new row, whether it differs in one of the columns."""

    def merged(self, names: Sequence[str]) -> pa.Table:
        """The rows of the run after the merge."""
        new, remaining = self.run.new.select(names), self.run.remaining
        if remaining is not None and len(remaining) == new.num_rows:
            return new
        return with_rows(self.old.select(names), new, self.run.positions, remaining)


def _any_within(flags: Flags, cuts: NDArray[np.int64]) -> Flags:
    """Whether any flag is set between one cut and the next."""
    return np.diff(np.searchsorted(np.flatnonzero(flags), cuts)) > 0


def stored_rows(rows: pa.Table, properties: WriterProperties) -> pa.Table:
    """Rows in the columns, order and types of a file; INT96 timestamps without a zone."""
    return cast_table(conform_table(rows, properties.meaning()), properties.schema)


def with_rows(
    old: pa.Table, new: pa.Table, positions: Positions, remaining: Positions | None = None
) -> pa.Table:
    """Replace the rows at some positions, and leave out all but the remaining ones."""
    if not new.num_rows:
        return old if remaining is None else take_rows(old, pa.array(remaining))
    index = np.arange(old.num_rows)
    index[positions] = old.num_rows + np.arange(len(positions))
    if remaining is not None:
        index = index[remaining]
    new = cast_table(new, old.schema)
    both = pa.concat_tables([old, new]).unify_dictionaries()
    return take_rows(both, pa.array(index))


def _indexed(field: pa.Field, is_indexed: bool) -> pa.Field:
    return field.with_type(pa.dictionary(pa.int32(), field.type)) if is_indexed else field


def compact_dictionaries(table: pa.Table) -> pa.Table:
    """Leave out the dictionary values that no row of the table has."""
    columns = [
        _compacted(column.combine_chunks()) if pa.types.is_dictionary(column.type) else column
        for column in table.columns
    ]
    return pa.table(columns, schema=table.schema)


def _compacted(values: pa.DictionaryArray) -> pa.DictionaryArray:
    # Counted by numpy: the kernels of pyarrow hash every index, which takes five times as long.
    is_used = np.zeros(len(values.dictionary), bool)
    is_used[np.asarray(values.indices.drop_null())] = True
    if is_used.all():
        return values
    numbers = (np.cumsum(is_used) - 1).astype(values.type.index_type.to_pandas_dtype())
    filled = np.asarray(values.indices.fill_null(0))
    missing = np.asarray(values.indices.is_null()) if values.indices.null_count else None
    indices = pa.array(numbers[filled], mask=missing)
    kept = values.dictionary.take(pa.array(np.flatnonzero(is_used)))
    return pa.DictionaryArray.from_arrays(indices, kept, ordered=values.type.ordered)


def dictionaries_in(data_type: pa.DataType) -> Iterator[pa.DictionaryType]:
    """The dictionary types that a type is or holds."""
    if pa.types.is_dictionary(data_type):
        yield data_type
    elif pa.types.is_nested(data_type):
        for number in range(data_type.num_fields):
            yield from dictionaries_in(data_type.field(number).type)
