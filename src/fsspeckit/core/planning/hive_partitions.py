"""Hive partitions: what the directories of a path say about the rows below them.

Writers escape the same value differently (Spark, DuckDB and Arrow each have their own set), so a
partition is known by its decoded, typed value and never by its path. The directory an existing
partition has is kept when new files are written into it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.keys.canonical import as_names, key_column
from fsspeckit.core.keys.casts import cast_exactly, family, plain_type, python_value
from fsspeckit.errors import InvalidArgumentError, UnsupportedLayoutError
from fsspeckit.storage.listing import is_hidden

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "NULL_TOKEN",
    "PartitionDirectories",
    "check_spelling",
    "detect_partition_columns",
    "parse_hive_partition_path",
    "typed_values",
]

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
