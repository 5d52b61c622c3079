"""Reading a dataset with pyarrow: one consistent state, whoever writes meanwhile."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from fsspeckit.core.arrow_compat import cast_values, take_rows
from fsspeckit.core.conditions import Condition
from fsspeckit.core.keys import as_names, check_names, key_column
from fsspeckit.core.planning import (
    check_partition_value,
    check_utf8_paths,
    detect_partition_columns,
    parse_hive_partition_path,
    parse_partition_values,
    partition_values,
    prune_by_condition,
    read_footers,
)
from fsspeckit.core.schema_conform import unify_types
from fsspeckit.core.threads import ThreadPool
from fsspeckit.errors import (
    ConcurrentModificationError,
    InvalidArgumentError,
    SchemaMismatchError,
    UnreadableFileError,
)
from fsspeckit.storage import (
    DATA_SUFFIXES,
    FileSelection,
    arrow_filesystem,
    check_readable,
    earlier_files,
    has_magic,
    open_root,
    stable_files,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from fsspeckit.core.planning import FileFooter
    from fsspeckit.storage import Root, StableFiles, Storage

T = TypeVar("T")

_MAX_ATTEMPTS = 5
_READ_WORKERS = 4
_RESERVED = frozenset(("__filename", "__fragment_index", "__batch_index", "__last_in_fragment"))
_SHAPES = (
    (re.compile(r"0|-?[1-9][0-9]{0,17}"), pa.int64()),
    (re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"), pa.date32()),
    (re.compile(r"true|false"), pa.bool_()),
)


def read_table(
    storage: Storage,
    columns: str | Sequence[str] | None = None,
    filters: Any = None,
    selection: FileSelection | None = None,
    commit: int | None = None,
) -> pa.Table:
    """Read a dataset, or some files, columns and rows of it.

    Filters are SQL text, or what pyarrow takes. ``commit`` is the number of the commit after which
    it had the state to read.
    """
    wanted = None if columns is None else as_names(columns)
    if wanted is not None:
        check_names("columns", wanted)
    given = as_filters(filters)

    def read(opened: OpenedDataset) -> pa.Table:
        found = opened.filtered(given)
        opened.check_columns(wanted or ())
        return _read_as_fits(opened, None if wanted is None else list(wanted), found)

    return with_dataset(storage, read, selection, commit)


def _read_as_fits(
    opened: OpenedDataset, columns: Sequence[str] | None, expression: RowFilter | None
) -> pa.Table:
    """Read nanoseconds where files have them, or microseconds if a year is out of their range."""
    try:
        return opened.table(columns, expression)
    except pa.ArrowInvalid as error:
        schema = opened.schema_without_nanoseconds()
        if schema.equals(opened.schema):
            raise
        try:
            return opened.as_schema(schema).table(columns, expression)
        except pa.ArrowInvalid:
            raise SchemaMismatchError(
                f"the files have timestamps that no unit holds together: {error}.\n"
                "Hint: rewrite the files that have the wrong type, or read other columns."
            ) from error


def split_path(
    path: Any, filesystem: Any, storage_options: Mapping[str, Any] | None
) -> tuple[Any, FileSelection | None]:
    """Return the root of a dataset and the files that a path selects, unless it is a directory.

    The root is the directory of the file, or the deepest one above all that a glob may name,
    without the directories of partitions at its end: ``data`` of ``data/year=2024/*.parquet``.
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str):
        return path, None
    scheme, separator, rest = text.rpartition("://")
    if not has_magic(rest) and not text.lower().endswith(DATA_SUFFIXES):
        return path, None
    root = open_root(path, filesystem, storage_options)
    is_glob = not root.filesystem.exists(root.path)  # else a name with odd characters
    if (is_glob and not has_magic(rest)) or (not is_glob and root.filesystem.isdir(root.path)):
        return path, None
    names = rest.split("/")
    count = next(n for n, name in enumerate(names) if has_magic(name)) if is_glob else -1
    above = names[:count]
    while above and above[-1].partition("=")[1] and not above[-1].startswith("="):
        above.pop()
    selection = FileSelection("/".join(names[len(above) :]), is_glob)
    if not above and root.is_local and not root.inner_prefix:
        return ".", selection
    return f"{scheme}{separator}{'/'.join(above) or '/'}", selection


@dataclass(frozen=True)
class RowFilter:
    """Which rows are read; picklable."""

    expression: ds.Expression | None = None
    """What pyarrow evaluates."""

    condition: Condition | None = None
    """What is evaluated as in a delete, instead."""

    row_groups: tuple[tuple[int, ...], ...] = ()
    """By the number of a file, the row groups that may hold rows that the condition selects."""

    def has_rows(self, number: int) -> bool:
        """Whether a file may hold rows that are read."""
        return self.condition is None or bool(self.row_groups[number])


def as_filters(filters: Any) -> ds.Expression | str | None:
    """Return filters as SQL text, or as one expression of pyarrow."""
    if filters is None or isinstance(filters, str):
        return filters
    try:
        return pq.filters_to_expression(filters)
    except (ValueError, TypeError) as error:
        raise InvalidArgumentError(
            "filters must be SQL text, a pyarrow expression or lists of tuples, got "
            f"{filters!r}: {error}.\n"
            'Hint: pass "id > 7", [("id", ">", 7)], or pyarrow.compute.field("id") > 7.'
        ) from error


@dataclass(frozen=True)
class OpenedDataset:
    """The pinned files of a consistent state; picklable."""

    dataset: ds.FileSystemDataset
    root: Root
    footers: tuple[FileFooter, ...] = ()
    """What is known of the files; left out where they are only read."""

    texts: tuple[Mapping[str, str | None], ...] = ()
    """The partition values in the path of each file."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of all files; INT96 columns are instants in UTC."""
        return self.dataset.schema

    def schema_without_nanoseconds(self) -> pa.Schema:
        """The columns, with microseconds for nanoseconds that not all files have."""
        stored = [part.physical_schema for part in self.dataset.get_fragments()]

        def coarser(field: pa.Field) -> pa.Field:
            kind = field.type
            if not pa.types.is_timestamp(kind) or kind.unit != "ns":
                return field
            if all(one.field(field.name).type == kind for one in stored if field.name in one.names):
                return field
            return field.with_type(pa.timestamp("us", kind.tz))

        return pa.schema([coarser(field) for field in self.schema], self.schema.metadata)

    def as_schema(self, schema: pa.Schema) -> OpenedDataset:
        """The same files, read as other types."""
        parts = list(self.dataset.get_fragments())
        whole = self.dataset
        dataset = ds.FileSystemDataset(parts, schema, whole.format, whole.filesystem)
        return replace(self, dataset=dataset)

    def filtered(self, filters: ds.Expression | str | None) -> RowFilter | None:
        """Return which rows are read; refuse filters that do not fit the columns."""
        if isinstance(filters, str):
            return self._selected(Condition.of(filters, self.schema, "filters"))
        self._check(filters)
        return None if filters is None else RowFilter(filters)

    def _selected(self, condition: Condition) -> RowFilter:
        """Leave out row groups whose statistics or partition prove that no row is selected."""
        columns = [column for column in condition.key_columns if column.name in self._in_paths]
        parts = {column.name: partition_values(column, self.texts) for column in columns}
        verdicts = prune_by_condition(self.root, self.footers, condition, parts)
        groups = (tuple(sorted((*v.candidates, *v.complete))) for v in verdicts)
        return RowFilter(condition=condition, row_groups=tuple(groups))

    @property
    def _in_paths(self) -> set[str]:
        return {name for text in self.texts for name in text}

    def _check(self, expression: ds.Expression | None) -> None:
        if expression is None:
            return
        try:
            pa.Table.from_batches([], self.schema).filter(expression)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise InvalidArgumentError(
                f"filters do not fit the columns {self.schema.names!r}: {error}"
            ) from error

    def check_columns(self, columns: Sequence[str]) -> None:
        """Refuse columns that no file has."""
        known = set(self.schema.names)
        if missing := [name for name in columns if name not in known]:
            raise InvalidArgumentError.missing_columns("columns", missing, self.schema.names)

    def table(self, columns: Sequence[str] | None, rows: RowFilter | None) -> pa.Table:
        """All rows, or those of a filter."""
        if rows is not None and rows.condition is not None:
            names = list(columns or self.schema.names)
            numbers = [n for n in range(len(rows.row_groups)) if rows.has_rows(n)]
            empty = pa.Table.from_batches([], self.schema).select(names)
            with ThreadPool(_READ_WORKERS, "fsspeckit-read") as pool:
                found = pool.map(lambda n: list(self.batches(n, names, rows)), numbers)
                tables = [pa.Table.from_batches(some, empty.schema) for some in found if some]
            return pa.concat_tables([empty, *tables])
        expression = None if rows is None else rows.expression
        if not has_reserved_names(self.schema):
            return self.dataset.to_table(columns=columns, filter=expression)
        parts = self.dataset.get_fragments()
        names = list(columns or self.schema.names)
        empty = pa.Table.from_batches([], self.schema).select(names)
        tables = [plain_table(part, self.schema, names, expression) for part in parts]
        return pa.concat_tables([empty, *tables])

    def batches(
        self, number: int, columns: Sequence[str], rows: RowFilter | None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of one file."""
        part = list(self.dataset.get_fragments())[number]
        if rows is not None and rows.condition is not None:
            yield from self._batches(part, rows.row_groups[number], columns, rows.condition)
            return
        expression = None if rows is None else rows.expression
        if has_reserved_names(self.schema):
            yield from plain_table(part, self.schema, columns, expression).to_batches()
            return
        scanner = part.scanner(schema=self.schema, columns=list(columns), filter=expression)
        yield from scanner.to_batches()

    def _batches(
        self,
        part: ds.ParquetFileFragment,
        row_groups: Sequence[int],
        columns: Sequence[str],
        condition: Condition,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of one file that a condition selects."""
        names = list(dict.fromkeys((*columns, *condition.columns)))
        if has_reserved_names(self.schema):
            tables: Iterable[pa.Table] = [plain_table(part, self.schema, names)]
        else:
            some = part.subset(row_group_ids=list(row_groups))
            scanned = some.scanner(schema=self.schema, columns=names).to_batches()
            tables = (pa.Table.from_batches([batch]) for batch in scanned)
        for table in tables:
            selected = np.flatnonzero(np.asarray(condition.mask(table)))
            if len(selected):
                rows = take_rows(table.select(list(columns)), pa.array(selected))
                yield from rows.combine_chunks().to_batches()


def has_reserved_names(schema: pa.Schema) -> bool:
    """Whether columns have names that pyarrow's scanner gives to columns of its own."""
    return not _RESERVED.isdisjoint(schema.names)


def plain_table(
    part: ds.ParquetFileFragment,
    schema: pa.Schema,
    columns: Sequence[str],
    expression: ds.Expression | None = None,
) -> pa.Table:
    """Read a file without pyarrow's scanner, as the scanner would."""
    with part.filesystem.open_input_file(part.path) as handle:
        stored = pq.ParquetFile(handle, coerce_int96_timestamp_unit="us").read()
    in_path = ds.get_partition_keys(part.partition_expression)
    names = set(stored.column_names)
    found = [
        cast_values(stored.column(field.name), field.type)
        if field.name in names
        else pa.repeat(pa.scalar(in_path.get(field.name), field.type), stored.num_rows)
        for field in schema
    ]
    table = pa.table(found, schema=schema)
    return (table if expression is None else table.filter(expression)).select(list(columns))


def _nothing_to_read(
    storage: Storage, selection: FileSelection | None, commit: int | None
) -> FileNotFoundError:
    path = storage.root.to_user_path(storage.root.path)
    if commit is not None:
        when = f"after commit {commit:,}" if commit else "before its first commit"
        return FileNotFoundError(
            f"{path!r} held no data files {when}.\nHint: the history lists the commits."
        )
    if selection is not None:
        return FileNotFoundError(
            f"{path!r} holds no data files that {selection.pattern!r} names.\n"
            "Hint: check the pattern; upper and lower case differ."
        )
    return FileNotFoundError(f"{path!r} holds no data files.\nHint: check the path.")


def with_dataset(
    storage: Storage,
    read: Callable[[OpenedDataset], T],
    selection: FileSelection | None = None,
    commit: int | None = None,
) -> T:
    """Read a consistent state, or some files of it; another one if a file is replaced meanwhile.

    With ``commit`` it is the state after that commit, whose files may be in the trash.

    Raises:
        FileNotFoundError: If there is no such dataset.
        NotRestorableError: If files of the state after that commit are gone.
        UnsupportedLayoutError: If the directory is more than a directory of Parquet files.
        SchemaMismatchError: If files contradict each other or their paths.
        ConcurrentModificationError: If files are replaced again and again meanwhile.
    """
    for attempt in range(_MAX_ATTEMPTS):
        state = _list_state(storage, selection, commit)
        check_readable(state.obstacles, storage.root)
        if not state.files:
            raise _nothing_to_read(storage, selection, commit)
        try:
            return read(_opened(storage, state))
        except FileNotFoundError as error:
            # A commit has replaced a file since it was listed.
            if attempt < _MAX_ATTEMPTS - 1:
                continue
            if _list_state(storage, selection, commit).files == state.files:
                raise  # nobody did: a file is listed that cannot be opened
            raise ConcurrentModificationError(
                f"{storage.root.display_path!r} is changed by others faster than it can be read.\n"
                "Hint: read it again when there are fewer writers."
            ) from error
    raise AssertionError("unreachable")


def _list_state(
    storage: Storage, selection: FileSelection | None, commit: int | None
) -> StableFiles:
    if commit is None:
        return stable_files(storage, selection)
    if selection is not None:
        raise InvalidArgumentError(
            f"commit={commit!r} is a state of a whole dataset, and the path names some of its "
            "files.\nHint: pass the directory of the dataset, and choose rows with filters=.",
            argument="commit",
        )
    return earlier_files(storage, commit)


def _opened(storage: Storage, state: StableFiles) -> OpenedDataset:
    footers = read_footers(storage.root, [pinned.file for pinned in state.files], None)
    for footer in footers:
        if footer.error is not None:
            raise UnreadableFileError(footer.error)
    relative = [pinned.relative for pinned in state.files]
    check_utf8_paths(relative)
    detect_partition_columns(relative)
    stored = _common_schema([(storage.root.to_user_path(f.file.path), f.schema) for f in footers])
    # Partition columns have the type that files store them with, else the one they look like.
    parts = pa.schema(
        stored.field(part.name) if part.name in stored.names else part
        for part in partition_schema(relative)
    )
    _check_agreement(storage.root, relative, footers, parts)
    texts = tuple(map(parse_hive_partition_path, relative))
    return OpenedDataset(
        _dataset(storage, state, stored, parts), storage.root, tuple(footers), texts
    )


def _check_agreement(
    root: Root, relative: Sequence[str], footers: Sequence[FileFooter], parts: pa.Schema
) -> None:
    """Check partition columns that are stored in files too: a merge refuses what disagrees."""
    for path, footer in zip(relative, footers, strict=True):
        texts = parse_hive_partition_path(path)
        for part in parts:
            if part.name in footer.schema.names:
                values, (known,) = parse_partition_values([texts.get(part.name)], part.type)
                column = key_column(part.name, part.type)
                value = values[0] if known else None
                check_partition_value(root, footer, column, texts.get(part.name), value)


def partition_schema(relative_paths: Sequence[str]) -> pa.Schema:
    """Partition columns with types found from their values: int64, date32, bool, else string."""
    rows = [parse_hive_partition_path(path) for path in relative_paths]
    names = list(rows[0]) if rows else []
    return pa.schema([(name, _shape([row.get(name) for row in rows])) for name in names])


def _shape(texts: Sequence[str | None]) -> pa.DataType:
    known = [text for text in texts if text is not None]
    for pattern, data_type in _SHAPES:
        if known and all(pattern.fullmatch(text) for text in known):
            # A text may look like a date without being one: 2026-02-30.
            return data_type if all(parse_partition_values(known, data_type)[1]) else pa.string()
    return pa.string()


def _dataset(
    storage: Storage, state: StableFiles, stored: pa.Schema, parts: pa.Schema
) -> ds.FileSystemDataset:
    """The pinned files as a dataset, each with the values of its path."""
    options = ds.ParquetFileFormat(read_options={"coerce_int96_timestamp_unit": "us"})
    filesystem = arrow_filesystem(storage.root)
    fragments = [
        options.make_fragment(
            pinned.file.path, filesystem, partition_expression=_partition(pinned.relative, parts)
        )
        for pinned in state.files
    ]
    extra = [field for field in parts if field.name not in stored.names]
    schema = pa.schema([*stored, *extra], stored.metadata)
    return ds.FileSystemDataset(fragments, schema, options, filesystem)


def _common_schema(schemas: Sequence[tuple[str, pa.Schema]]) -> pa.Schema:
    """Return the columns of all files, each of a type that holds the values of every file."""
    (_, schema), *others = schemas
    fields = {field.name: field for field in schema}
    for path, other in others:
        for field in other:
            known = fields.setdefault(field.name, field)
            if known.type.equals(field.type):
                continue
            try:
                fields[field.name] = known.with_type(unify_types(known.type, field.type))
            except SchemaMismatchError as error:
                raise SchemaMismatchError(
                    f"column {field.name!r} is {known.type} in {schemas[0][0]!r} and {field.type} "
                    f"in {path!r}, and no type holds both.\nHint: rewrite the files that have the "
                    "wrong type."
                ) from error
    return pa.schema(list(fields.values()), schema.metadata)


def _partition(relative: str, parts: pa.Schema) -> ds.Expression:
    texts = parse_hive_partition_path(relative)
    expression = ds.scalar(True)
    for column in parts:
        values, _ = parse_partition_values([texts.get(column.name)], column.type)
        is_this = ds.field(column.name) == values[0]
        expression &= is_this if values[0].is_valid else ds.field(column.name).is_null()
    return expression
