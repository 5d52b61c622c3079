"""The target as planning sees it: its files, footers, key columns and Hive partitions.

Writers escape the same partition value differently (Spark, DuckDB and Arrow each have their own
set), so a partition is identified by its decoded, typed value and never by its path. New files go
into the directory that an existing partition already has.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.arrow_compat import naming_damage, open_data_file
from fsspeckit.core.keys import (
    KeyColumn,
    as_names,
    cast_exactly,
    check_names,
    common_type,
    family,
    key_column,
    plain_type,
    python_value,
)
from fsspeckit.core.planning.footers import FileFooter, read_footers
from fsspeckit.core.planning.pruning import PartitionValues, statistics_bounds
from fsspeckit.core.schema_conform import resolve_null_type, resolve_null_types
from fsspeckit.errors import InvalidArgumentError, SchemaMismatchError, UnsupportedLayoutError
from fsspeckit.storage import is_hidden

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fsspeckit.core.planning.footers import FooterReader
    from fsspeckit.core.schema_changes import Evolution
    from fsspeckit.storage import DataFile, Root

_NULL = pa.null()
NULL_TOKEN = "__HIVE_DEFAULT_PARTITION__"

# Besides control characters, Spark escapes these, so every reader has to decode them.
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f")


@dataclass(frozen=True)
class Target:
    """A dataset, as its paths and footers describe it."""

    root: Root
    footers: tuple[FileFooter, ...]
    key_columns: tuple[KeyColumn, ...]
    partition_columns: tuple[KeyColumn, ...]
    """How partition values are compared, outermost first."""

    partition_texts: tuple[dict[str, str | None], ...]
    """The values in each file's path."""

    partitions: Mapping[str, PartitionValues]
    """The same, typed, by column."""

    types: pa.Schema
    """The columns that files store, each with the type of the first file where it is not NULL;
    if there is none, with that of the source."""

    evolution: Evolution | None = None
    """The columns that all files are about to get, if they change."""

    @property
    def rows(self) -> int:
        """The number of rows of all files."""
        return sum(footer.rows for footer in self.footers)

    def unknown_partitions(self) -> set[int]:
        """Return the files, by number, whose partition values are not valid for their types."""
        return {
            number
            for values in self.partitions.values()
            for number, known in enumerate(values.known)
            if not known
        }

    def other_types(self) -> dict[str, tuple[pa.DataType, ...]]:
        """Return the types of columns whose type in some files is not that of ``types``."""
        found: dict[str, list[pa.DataType]] = {}
        for schema in _schemas(self.footers):
            stored = dict(zip(schema.names, schema.types, strict=True))
            for field in self.types:
                kind = resolve_null_type(stored.get(field.name, field.type), field.type)
                known = found.setdefault(field.name, [field.type])
                if kind not in known:
                    known.append(kind)
        return {name: tuple(rest) for name, (_, *rest) in found.items() if rest}

    @property
    def schemas(self) -> list[pa.Schema]:
        """The different schemas of files, in the order of the files."""
        return list(_schemas(self.footers))

    @property
    def key_holds_partitions(self) -> bool:
        """Whether the key determines the partition of a row."""
        return {c.name for c in self.partition_columns} <= {c.name for c in self.key_columns}


def read_target(
    root: Root,
    files: Sequence[DataFile],
    key_columns: Sequence[str],
    schema: pa.Schema | None = None,
    partition_columns: Sequence[str] | None = None,
    read: FooterReader = read_footers,
) -> Target:
    """Read what planning needs to know of a dataset.

    Args:
        root: Where the dataset is.
        files: Its data files.
        key_columns: The key columns.
        schema: The source's schema, or the known part of it: it gives partition values their types.
        partition_columns: The partition columns that the caller expects.
        read: Reads footers; an engine may do this in other processes.

    Raises:
        InvalidArgumentError: If the expected partition columns are not those of the paths.
        SchemaMismatchError: If the key columns of the files cannot be compared.
        UnsupportedLayoutError: If the files disagree about the partition columns.
    """
    if key_columns:  # a write has none
        check_names("key_columns", key_columns)
    if partition_columns:
        check_names("partition_columns", partition_columns)
    relative = [root.relative(file.path) for file in files]
    check_utf8_paths(relative)
    detected = detect_partition_columns(relative)
    if partition_columns is not None:
        _check_expected(partition_columns, detected if files else partition_columns)
        detected = tuple(partition_columns)
    footers = tuple(read(root, files, dict.fromkeys((*key_columns, *detected))))
    texts = tuple(parse_hive_partition_path(path) for path in relative)
    parts = tuple(_partition_column(name, footers, schema) for name in detected)
    return Target(
        root,
        footers,
        tuple(_key_column(name, footers, parts, schema) for name in key_columns),
        parts,
        texts,
        {part.name: partition_values(part, texts) for part in parts},
        _types(footers, schema),
    )


def _types(footers: Sequence[FileFooter], source: pa.Schema | None) -> pa.Schema:
    found = list(_schemas(footers)) or [pa.schema([])]
    return resolve_null_types(*found, *([] if source is None else [source]))


def _schemas(footers: Iterable[FileFooter]) -> Iterable[pa.Schema]:
    """Return the different schemas of files."""
    return {id(f.schema): f.schema for f in footers if f.error is None}.values()


def partition_values(
    column: KeyColumn, texts: Sequence[Mapping[str, Any] | None]
) -> PartitionValues:
    """Parse the values of a partition column; one that a file does not have is unknown."""
    found = [None if text is None else text.get(column.name) for text in texts]
    as_text = [value if value is None else str(value) for value in found]
    values, known = parse_partition_values(as_text, column.type)
    exists = [text is not None and column.name in text for text in texts]
    return PartitionValues(values, [a and b for a, b in zip(known, exists, strict=True)])


def partition_keys(
    columns: Sequence[KeyColumn], relative_paths: Sequence[str]
) -> list[tuple[Any, ...] | None]:
    """Return the partition of each file, in the form in which values are compared.

    Two spellings of one value give the same key. A file with a value that is not valid for its
    column has None.
    """
    texts = [parse_hive_partition_path(path) for path in relative_paths]
    found = [partition_values(column, texts) for column in columns]
    keys = [c.canonical(f.values).to_pylist() for c, f in zip(columns, found, strict=True)]
    known = [all(flags) for flags in zip(*(one.known for one in found), strict=True)]
    values = zip(*keys, strict=True)
    return [key if valid else None for key, valid in zip(values, known, strict=True)]


def _check_expected(expected: Sequence[str], detected: Sequence[str]) -> None:
    if list(expected) != list(detected):
        raise InvalidArgumentError(
            f"partition_columns is {list(expected)!r}, but the dataset is partitioned by "
            f"{list(detected)!r}.\nHint: leave partition_columns out to use the dataset's own.",
            argument="partition_columns",
        )


def _key_column(
    name: str,
    footers: Sequence[FileFooter],
    partitions: Sequence[KeyColumn],
    schema: pa.Schema | None,
) -> KeyColumn:
    """Return a key column with a type for the values of all files."""
    for part in partitions:
        if part.name == name:
            return part
    stored = {footer.leaves[name].type for footer in footers if name in footer.leaves}
    if not stored:
        _check_exists(name, footers)
    _check_nowhere_nested(name, footers)
    if _is_int96_everywhere(name, footers):
        # With the source's unit; INT96 values outside its range then never match.
        source = plain_type(_source_type(name, schema))
        stored.add(source if family(source) == "timestamp with zone" else _NULL)
    try:
        shared = reduce(common_type, sorted(stored, key=str), _NULL)
    except SchemaMismatchError as error:
        types = ", ".join(sorted(map(str, stored)))
        raise SchemaMismatchError(
            f"the key column {name!r} has types in the target's files that cannot be compared "
            f"with each other: {types}.\nHint: rewrite the files that have the wrong type."
        ) from error
    # If no file has a value, any type will do: that of the source.
    return key_column(name, _source_type(name, schema) if pa.types.is_null(shared) else shared)


def _partition_column(
    name: str, footers: Sequence[FileFooter], schema: pa.Schema | None
) -> KeyColumn:
    """Return a partition column with the type of the source, which paths do not tell."""
    kind = _source_type(name, schema, pa.string())
    if pa.types.is_null(kind):
        # Nothing but NULL, as in a feed that only deletes: any type will do that paths can have.
        stored = (footer.leaves[name].type for footer in footers if name in footer.leaves)
        kind = next((one for one in stored if not pa.types.is_null(one)), pa.string())
    return key_column(name, kind)


def _source_type(name: str, schema: pa.Schema | None, default: pa.DataType = _NULL) -> pa.DataType:
    return default if schema is None or name not in schema.names else schema.field(name).type


def _is_int96_everywhere(name: str, footers: Sequence[FileFooter]) -> bool:
    leaves = [footer.leaves[name] for footer in footers if name in footer.leaves]
    return bool(leaves) and all(leaf.physical == "INT96" for leaf in leaves)


def _check_nowhere_nested(name: str, footers: Sequence[FileFooter]) -> None:
    """Refuse a key column that is nested in some file."""
    for footer in footers:
        is_nested = name not in footer.leaves and name in footer.schema.names
        if footer.error is None and is_nested:
            raise SchemaMismatchError(
                f"the key column {name!r} is {footer.schema.field(name).type} in "
                f"{footer.file.path!r}, and cannot be compared with the other files.\n"
                "Hint: rewrite the files that have the wrong type."
            )


def _check_exists(name: str, footers: Sequence[FileFooter]) -> None:
    """Refuse a key column that no readable file has, or has as a nested column."""
    for footer in footers:
        if footer.error is not None:
            continue
        if name in footer.schema.names:
            key_column(name, footer.schema.field(name).type)
        raise InvalidArgumentError.missing_columns("key_columns", [name], footer.schema.names)


# Partition consistency: a file that also stores a partition column must agree with its path.


def check_partition_value(
    root: Root, footer: FileFooter, part: KeyColumn, text: str | None, value: pa.Scalar | None
) -> None:
    """Check the value of a partition column in the path of a file, as text and typed.

    Raises:
        SchemaMismatchError: If the value is not valid for the column's type, or the file also
            stores the column with another value.
    """
    user_path = root.to_user_path(footer.file.path)
    if value is None:
        raise SchemaMismatchError(
            f"the partition value {part.name}={text!r} of {user_path!r} is not a valid "
            f"{part.type}.\nHint: give the source's column {part.name!r} the type of the "
            "directories."
        )
    if part.name in footer.leaves and not _stores_only(root, footer, part, value):
        raise SchemaMismatchError(
            f"{user_path!r} holds other values of {part.name!r} than its path says.\nHint: readers "
            "disagree about such a file; move it to the right directory or drop the column."
        )


def _stores_only(root: Root, footer: FileFooter, part: KeyColumn, expected: pa.Scalar) -> bool:
    """Return whether a partition column that a file stores has only the expected value."""
    value = part.canonical(pa.repeat(expected, 1))[0]
    bounds = statistics_bounds(part, [footer])
    if value.is_valid and not bounds.may_contain_nulls.any():
        same = pc.and_(pc.equal(bounds.low, value), pc.equal(bounds.high, value))
        if same.null_count == 0:
            return bool(pc.all(same, min_count=0).as_py())
    path = footer.file.path
    with (
        open_data_file(root, path, known=footer.file) as file,
        naming_damage(root, path),
    ):
        # pyarrow also reads a column called "p.x" for "p": a dot is a path to it.
        column = file.read(columns=[part.name]).column(part.name)
    stored = part.canonical(column)
    if not value.is_valid:
        return int(stored.null_count) == len(stored)
    return stored.null_count == 0 and bool(pc.all(pc.equal(stored, value), min_count=0).as_py())


# Hive partitions: the partition values in the path of a file.


def parse_hive_partition_path(
    file_path: str,
    partition_columns: str | Sequence[str] | None = None,
    *,
    root: str | None = None,
) -> dict[str, Any]:
    """Read the partition values from a file's path.

    Args:
        file_path: The path of a data file.
        partition_columns: Return only these columns.
        root: Read only the directories below this one: a ``k=v`` above the dataset is not a
            partition of it.

    Returns:
        The decoded text of each value in the order of the path; None for NULL.

    Raises:
        InvalidArgumentError: If the file is not below the root.

    Examples:
        >>> parse_hive_partition_path("/data/year=2024/city=S%C3%A3o%20Paulo/part-0.parquet")
        {'year': '2024', 'city': 'São Paulo'}
    """
    values: dict[str, Any] = {}
    for component in _below(file_path, root).split("/")[:-1]:
        name, separator, value = component.partition("=")
        if separator and name:
            values[_decoded(name)] = None if value == NULL_TOKEN else _decoded(value)
    if partition_columns is None:
        return values
    wanted = as_names(partition_columns)
    return {name: value for name, value in values.items() if name in wanted}


def _below(file_path: str, root: str | None) -> str:
    if root is None:
        return file_path
    prefix = root.rstrip("/") + "/"
    if not file_path.startswith(prefix):
        raise InvalidArgumentError(f"the file {file_path!r} is not below the root {root!r}.")
    return file_path[len(prefix) :]


def _decoded(text: str) -> str:
    """Decode percent-escapes; those that are not UTF-8 stay as they are."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return text


def check_utf8_paths(relative_paths: Iterable[str]) -> None:
    """Refuse paths that are not UTF-8: pyarrow cannot open them, and records cannot name them.

    Raises:
        UnsupportedLayoutError: Naming the file.
    """
    for path in relative_paths:
        if not path.isascii():
            try:
                path.encode()
            except UnicodeEncodeError as error:
                raise UnsupportedLayoutError(
                    f"the name of the file {path!r} is not UTF-8.\nHint: rename it."
                ) from error


def detect_partition_columns(relative_paths: Iterable[str]) -> tuple[str, ...]:
    """Return the partition columns, outermost first, from the files' paths below the root.

    Raises:
        UnsupportedLayoutError: If files disagree about the partition columns, or a column occurs
            twice in a path: readers fail on such datasets or read them differently.
    """
    examples: dict[tuple[str, ...], str] = {}
    for path in relative_paths:
        columns = _partition_names(path)
        examples.setdefault(columns, path)
        if len(set(columns)) < len(columns):
            raise UnsupportedLayoutError(
                f"a partition column occurs twice in the path {path!r}.\n"
                "Hint: each partition column may name one directory level only."
            )
    if len(examples) > 1:
        (left, left_path), (right, right_path) = sorted(examples.items())[:2]
        raise UnsupportedLayoutError(
            f"the files disagree about the partition columns: {list(left)!r} in {left_path!r}, "
            f"{list(right)!r} in {right_path!r}.\n"
            "Hint: all data files of a dataset must lie below the same partition columns."
        )
    return next(iter(examples), ())


def _partition_names(relative_path: str) -> tuple[str, ...]:
    parts = (component.partition("=") for component in relative_path.split("/")[:-1])
    return tuple(_decoded(name) for name, separator, _ in parts if separator and name)


def parse_partition_values(
    texts: Sequence[str | None], data_type: pa.DataType
) -> tuple[pa.Array, list[bool]]:
    """Parse the text of partition values.

    Returns:
        The values, and for each whether its text is a valid value of the type. One that is not is
        NULL in the values and must count as unknown.
    """
    data_type = plain_type(data_type)
    try:
        return _parsed(pa.array(texts, pa.string()), data_type), [True] * len(texts)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeEncodeError):
        # The last: a name on a local disk that is not UTF-8.
        if len(texts) < 2:
            return pa.nulls(len(texts), data_type), [False] * len(texts)
    typed = [parse_partition_values([text], data_type) for text in texts]
    return pa.concat_arrays([values for values, _ in typed]), [known for _, (known,) in typed]


def _parsed(texts: pa.Array, data_type: pa.DataType) -> pa.Array:
    if family(data_type) == "timestamp with zone":
        return _instants(texts, data_type)
    if pa.types.is_boolean(data_type):
        return pc.utf8_lower(texts).cast(data_type)
    if pa.types.is_fixed_size_binary(data_type):
        return texts.cast(pa.binary()).cast(data_type)
    if pa.types.is_time(data_type):
        moments = pc.binary_join_element_wise("1970-01-01", texts, " ")
        return moments.cast(pa.timestamp(data_type.unit)).cast(data_type)
    return texts.cast(data_type)


def _instants(texts: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Parse timestamps with zone: DuckDB writes the offset, other writers write UTC."""
    try:
        naive = texts.cast(pa.timestamp(data_type.unit))
    except pa.ArrowInvalid:
        return texts.cast(data_type)
    return pc.assume_timezone(naive, "UTC").cast(data_type)


class PartitionDirectories:
    """Finds the directory, below the root, for rows with given partition values.

    Args:
        schema: The partition columns and their types, outermost first.
        existing: Directories of the dataset. One that holds the same values keeps its spelling;
            of several spellings of one value the first in sorted order is taken.

    Raises:
        InvalidArgumentError: If a column cannot be a partition column.
    """

    def __init__(self, schema: pa.Schema, existing: Iterable[str] = ()) -> None:
        self._columns = [key_column(field.name, field.type) for field in schema]
        for name in schema.names:
            _check_partition_name(name)
        self._known: dict[tuple[Any, ...], str] = {}
        for directory in sorted(existing, reverse=True):
            if (values := self._values_of(directory)) is not None:
                self._known[values] = directory

    def _values_of(self, directory: str) -> tuple[Any, ...] | None:
        """Return the canonical values of a directory; None if it is not such a partition."""
        texts = parse_hive_partition_path(f"{directory}/")
        values = []
        for column in self._columns:
            if column.name not in texts:
                return None
            array, (known,) = parse_partition_values([texts[column.name]], column.type)
            if not known:
                return None
            values.append(column.canonical(array)[0].as_py())
        return tuple(values)

    def directory(self, values: Sequence[pa.Scalar]) -> str:
        """Return the directory for these values, one for each partition column.

        Raises:
            InvalidArgumentError: If a value is the empty string, which Spark reads as NULL, or
                the directory's name would be read as another value.
            SchemaMismatchError: If a value is not a valid value of its column's type.
        """
        typed = [
            (column, cast_exactly(pa.repeat(value, 1), column.type, column.name))
            for value, column in zip(values, self._columns, strict=True)
        ]
        wanted = tuple(column.canonical(array)[0].as_py() for column, array in typed)
        if wanted not in self._known:
            components = [_component(column.name, array[0]) for column, array in typed]
            directory = "/".join(components)
            if self._values_of(directory) != wanted:
                listed = ", ".join(repr(python_value(value)) for value in values)
                raise InvalidArgumentError(
                    f"the partition values {listed} cannot be read back from the name of a "
                    f"directory ({directory!r}).\nHint: partition by columns of simpler values."
                )
            self._known[wanted] = directory
        return self._known[wanted]


def _check_partition_name(name: str) -> None:
    if not name or is_hidden(name):
        raise InvalidArgumentError(
            f"{name!r} cannot be a partition column: readers skip directories whose names start "
            "with '.' or '_'.\nHint: rename the column."
        )


def _component(name: str, value: pa.Scalar) -> str:
    text = _text(name, value)
    if text == "":
        raise InvalidArgumentError(
            f"the partition column {name!r} holds an empty string, which readers take for NULL.\n"
            "Hint: use NULL or a non-empty value."
        )
    return f"{_escaped(name)}={NULL_TOKEN if text is None else _escaped(text)}"


def _text(name: str, value: pa.Scalar) -> str | None:
    """Return the text of a value in a path, which :func:`parse_partition_values` can parse."""
    if not value.is_valid:
        return None
    if family(value.type) == "timestamp with zone":
        value = value.cast(pa.timestamp(value.type.unit, "UTC")).cast(pa.timestamp(value.type.unit))
    try:
        return str(value.cast(pa.string()).as_py())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidArgumentError(
            f"the partition column {name!r} holds {python_value(value)!r}, which is not "
            f"valid text: {error}.\nHint: partition by columns whose values have a text form."
        ) from error


def _escaped(text: str) -> str:
    if "\0" in text:
        raise InvalidArgumentError(f"a partition value must not contain NUL, got {text!r}.")
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED or char < " " else char for char in text)
