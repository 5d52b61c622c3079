"""The target as planning sees it: its files, their footers and partitions, its key columns.

Hive partitions: what the directories of a path say about the rows below them.

Writers escape the same value differently (Spark, DuckDB and Arrow each have their own set), so a
partition is known by its decoded, typed value and never by its path. The directory an existing
partition has is kept when new files are written into it.

Partition columns that are stored in the files too: path and file must say the same.
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
from fsspeckit.core.planning.key_ranges import statistics_bounds
from fsspeckit.core.planning.pruning import PartitionValues
from fsspeckit.core.schema_conform import known_schema, known_type
from fsspeckit.errors import InvalidArgumentError, SchemaMismatchError, UnsupportedLayoutError
from fsspeckit.storage import is_hidden

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fsspeckit.core.planning.footers import FooterReader
    from fsspeckit.storage import DataFile, Root

__all__ = [
    "NULL_TOKEN",
    "PartitionDirectories",
    "Target",
    "check_partition_value",
    "check_spelling",
    "detect_partition_columns",
    "parse_hive_partition_path",
    "partition_values",
    "read_target",
    "typed_values",
]


# --- Hive partitions: what the directories of a path say about the rows below them ---

NULL_TOKEN = "__HIVE_DEFAULT_PARTITION__"

# What Spark escapes, and so what every reader has to decode: control characters and these.
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f")


def parse_hive_partition_path(
    file_path: str,
    partition_columns: str | Sequence[str] | None = None,
    *,
    root: str | None = None,
) -> dict[str, Any]:
    """Read the partition values from a file's path.

    Args:
        file_path: The path of a data file. Its last component is the file and is not looked at.
        partition_columns: Return only these columns.
        root: Look only at the directories below this one: a ``k=v`` above the dataset is not a
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
    """Percent-escapes as UTF-8; escapes that are not UTF-8 stay as they are."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return text


def check_spelling(relative_paths: Iterable[str]) -> None:
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
    """Find the partition columns, outermost first, from the files' paths below the root.

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


def typed_values(
    texts: Sequence[str | None], data_type: pa.DataType
) -> tuple[pa.Array, list[bool]]:
    """Type partition values by the schema.

    Returns:
        The values, and for each whether its text is a value of the type at all. What is not is
        NULL in the values and must count as unknown, never as a value.
    """
    data_type = plain_type(data_type)
    try:
        return _parsed(pa.array(texts, pa.string()), data_type), [True] * len(texts)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeEncodeError):
        # The last: a name on a local disk that is not UTF-8.
        if len(texts) < 2:
            return pa.nulls(len(texts), data_type), [False] * len(texts)
    typed = [typed_values([text], data_type) for text in texts]
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
    """DuckDB writes the offset; other writers write none and put instants there as UTC."""
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
            _check_name(name)
        self._known: dict[tuple[Any, ...], str] = {}
        for directory in sorted(existing, reverse=True):
            if (values := self._values_of(directory)) is not None:
                self._known[values] = directory

    def _values_of(self, directory: str) -> tuple[Any, ...] | None:
        """The canonical values of a directory; None if it is not one of these partitions."""
        texts = parse_hive_partition_path(f"{directory}/")
        values = []
        for column in self._columns:
            if column.name not in texts:
                return None
            array, (known,) = typed_values([texts[column.name]], column.type)
            if not known:
                return None
            values.append(column.canonical(array)[0].as_py())
        return tuple(values)

    def directory(self, values: Sequence[pa.Scalar]) -> str:
        """The directory for these values, one for each partition column.

        Raises:
            InvalidArgumentError: If a value is the empty string, which Spark reads as NULL, or
                would be another value for whoever reads the directory's name.
            SchemaMismatchError: If a value is none of its column's type.
        """
        arrays = [
            cast_exactly(pa.repeat(value, 1), column.type, column.name)
            for value, column in zip(values, self._columns, strict=True)
        ]
        wanted = tuple(
            column.canonical(array)[0].as_py()
            for array, column in zip(arrays, self._columns, strict=True)
        )
        if wanted not in self._known:
            components = [
                _component(column.name, array[0])
                for array, column in zip(arrays, self._columns, strict=True)
            ]
            self._known[wanted] = self._checked("/".join(components), wanted, values)
        return self._known[wanted]

    def _checked(self, directory: str, wanted: tuple[Any, ...], values: Sequence[pa.Scalar]) -> str:
        """Refuse a directory that would be read back as something else."""
        if self._values_of(directory) != wanted:
            shown = ", ".join(repr(python_value(value)) for value in values)
            raise InvalidArgumentError(
                f"the partition values {shown} cannot be told from the name of a directory "
                f"({directory!r}).\nHint: partition by columns of simpler values."
            )
        return directory


def _check_name(name: str) -> None:
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
    """How a value is spelled in a path, so that :func:`typed_values` gives it back."""
    if not value.is_valid:
        return None
    if family(value.type) == "timestamp with zone":
        value = value.cast(pa.timestamp(value.type.unit, "UTC")).cast(pa.timestamp(value.type.unit))
    try:
        return str(value.cast(pa.string()).as_py())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidArgumentError(
            f"the partition column {name!r} holds {python_value(value)!r}, which is no text: "
            f"{error}.\nHint: partition by columns whose values can be spelled in a path."
        ) from error


def _escaped(text: str) -> str:
    if "\0" in text:
        raise InvalidArgumentError(f"a partition value must not contain NUL, got {text!r}.")
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED or char < " " else char for char in text)


# --- The target as planning sees it ---


@dataclass(frozen=True)
class Target:
    """A dataset, known by its paths and footers."""

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
    """The columns that files store, each with the type of the first file that knows one; where
    none does, that of the source."""

    @property
    def rows(self) -> int:
        """The rows of all files."""
        return sum(footer.rows for footer in self.footers)

    def unknown_partitions(self) -> set[int]:
        """The files, by number, whose partition values are no values of their types."""
        return {
            number
            for values in self.partitions.values()
            for number, known in enumerate(values.known)
            if not known
        }

    def other_types(self) -> dict[str, tuple[pa.DataType, ...]]:
        """The types that a column has in some files, where not all have that of ``types``."""
        found: dict[str, list[pa.DataType]] = {}
        for schema in _schemas(self.footers):
            for field, kind in zip(self.types, _types_of(schema, self.types), strict=True):
                known = found.setdefault(field.name, [field.type])
                if kind not in known:
                    known.append(kind)
        return {name: tuple(rest) for name, (_, *rest) in found.items() if rest}

    @property
    def key_holds_partitions(self) -> bool:
        """Whether the key says in which partition a row is."""
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
        schema: The source's schema, or as much of it as is known: it types partition values.
        partition_columns: What the caller says the partition columns are.
        read: Reads footers; an engine may have other processes do it.

    Raises:
        InvalidArgumentError: If the caller's partition columns are not those of the paths.
        SchemaMismatchError: If the key columns of the files cannot be compared.
        UnsupportedLayoutError: If the files disagree about the partition columns.
    """
    if key_columns:  # a write has none
        check_names("key_columns", key_columns)
    if partition_columns:
        check_names("partition_columns", partition_columns)
    relative = [root.relative(file.path) for file in files]
    check_spelling(relative)
    detected = _agreed(detect_partition_columns(relative), partition_columns, bool(files))
    footers = tuple(read(root, files, dict.fromkeys((*key_columns, *detected))))
    texts = tuple(parse_hive_partition_path(path) for path in relative)
    parts = tuple(key_column(name, _partition_type(name, schema)) for name in detected)
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
    return known_schema(*found, *([] if source is None else [source]))


def _schemas(footers: Iterable[FileFooter]) -> Iterable[pa.Schema]:
    """The schemas of files; many files share one."""
    return {id(f.schema): f.schema for f in footers if f.error is None}.values()


def _types_of(schema: pa.Schema, columns: pa.Schema) -> list[pa.DataType]:
    """The types of columns in a file, NULL of no type as elsewhere."""
    kinds = dict(zip(schema.names, schema.types, strict=True))
    return [known_type(kinds.get(field.name, field.type), field.type) for field in columns]


def partition_values(
    column: KeyColumn, texts: Sequence[Mapping[str, Any] | None]
) -> PartitionValues:
    """Type the values of a partition column; one that a file does not have is unknown."""
    found = [text.get(column.name) if text is not None else None for text in texts]
    spelled = [value if value is None else str(value) for value in found]
    values, known = typed_values(spelled, column.type)
    there = [text is not None and column.name in text for text in texts]
    return PartitionValues(values, [a and b for a, b in zip(known, there, strict=True)])


def _agreed(
    detected: tuple[str, ...], given: Sequence[str] | None, has_files: bool
) -> tuple[str, ...]:
    if given is None:
        return detected
    if has_files and tuple(given) != detected:
        raise InvalidArgumentError(
            f"partition_columns is {list(given)!r}, but the dataset is partitioned by "
            f"{list(detected)!r}.\nHint: leave partition_columns out to use the dataset's own.",
            argument="partition_columns",
        )
    return tuple(given)


def _partition_type(name: str, schema: pa.Schema | None) -> pa.DataType:
    if schema is not None and name in schema.names:
        return schema.field(name).type
    return pa.string()


def _key_column(
    name: str,
    footers: Sequence[FileFooter],
    partitions: Sequence[KeyColumn],
    schema: pa.Schema | None,
) -> KeyColumn:
    """How a key column is compared: as the type that holds the values of all files."""
    for part in partitions:
        if part.name == name:
            return part
    stored = {footer.leaves[name].type for footer in footers if name in footer.leaves}
    if not stored:
        _check_exists(name, footers)
    _check_nowhere_nested(name, footers)
    if _is_int96_everywhere(name, footers):
        # INT96 has nanoseconds where the source has; rows that Arrow cannot hold then never match.
        stored.add(_source_instant(name, schema))
    try:
        shared = reduce(common_type, sorted(stored, key=str), pa.null())
        # Where no file holds a value any type does, so that of the source.
        return key_column(name, _source_type(name, schema) if pa.types.is_null(shared) else shared)
    except SchemaMismatchError as error:
        types = ", ".join(sorted(map(str, stored)))
        raise SchemaMismatchError(
            f"the key column {name!r} has types in the target's files that cannot be compared "
            f"with each other: {types}.\nHint: rewrite the files that have the wrong type."
        ) from error


def _source_type(name: str, schema: pa.Schema | None) -> pa.DataType:
    known = schema is not None and name in schema.names
    return schema.field(name).type if known and schema else pa.null()


def _is_int96_everywhere(name: str, footers: Sequence[FileFooter]) -> bool:
    leaves = [footer.leaves[name] for footer in footers if name in footer.leaves]
    return bool(leaves) and all(leaf.physical == "INT96" for leaf in leaves)


def _source_instant(name: str, schema: pa.Schema | None) -> pa.DataType:
    kind = plain_type(_source_type(name, schema))
    return kind if family(kind) == "timestamp with zone" else pa.null()


def _check_nowhere_nested(name: str, footers: Sequence[FileFooter]) -> None:
    """Refuse a key column that some file has with something inside."""
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


# --- Partition columns that are stored in the files too: path and file must say the same ---


def check_partition_value(
    root: Root, footer: FileFooter, part: KeyColumn, text: str | None, value: pa.Scalar | None
) -> None:
    """Check what the path of a file says about a partition column.

    Args:
        root: Where the file is.
        footer: The file.
        part: The partition column.
        text: The value in the path.
        value: The same, typed; None if it is no value of the type.

    Raises:
        SchemaMismatchError: If the value is none of the column's type, or the file also stores
            the column and holds another value.
    """
    shown = root.to_user_path(footer.file.path)
    if value is None:
        raise SchemaMismatchError(
            f"the partition value {part.name}={text!r} of {shown!r} is no {part.type}.\n"
            f"Hint: give the source's column {part.name!r} the type of the directories."
        )
    if part.name in footer.leaves and not _agrees(root, footer, part, value):
        raise SchemaMismatchError(
            f"{shown!r} holds other values of {part.name!r} than its path says.\nHint: readers "
            "disagree about such a file; move it to the right directory or drop the column from "
            "it."
        )


def _agrees(root: Root, footer: FileFooter, part: KeyColumn, found: pa.Scalar) -> bool:
    """Whether a partition column stored in a file has only the value of the path."""
    value = part.canonical(pa.repeat(found, 1))[0]
    bounds = statistics_bounds(part, [footer])
    if value.is_valid and not bounds.may_hold_nulls.any():
        same = pc.and_(pc.equal(bounds.low, value), pc.equal(bounds.high, value))
        if same.null_count == 0:
            return bool(pc.all(same, min_count=0).as_py())
    path = footer.file.path
    with open_data_file(root, path) as file, naming_damage(root, path):
        # pyarrow also reads a column called "p.x" for "p": a dot is a path to it.
        column = file.read(columns=[part.name]).column(part.name)
    stored = part.canonical(column)
    if not value.is_valid:
        return int(stored.null_count) == len(stored)
    return stored.null_count == 0 and bool(pc.all(pc.equal(stored, value), min_count=0).as_py())
