"""Convert text and JSON to Arrow values, exactly or not at all; and read files and stdin as bytes.

Nothing is rounded, truncated or guessed: a value that is not valid for its type raises
:class:`ConversionError`, which knows its index.
"""

from __future__ import annotations

import io
import sys
import tempfile
import threading
from dataclasses import dataclass
from decimal import Decimal
from typing import IO, TYPE_CHECKING, Any, TypeVar

import fsspec
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.keys import Family, family, plain_type
from fsspeckit.errors import InvalidArgumentError, SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import ExitStack

    from fsspeckit.storage import Root

__all__ = [
    "ConversionError",
    "Stream",
    "TrackedFile",
    "check_readable",
    "convert_columns",
    "file_stream",
    "from_json",
    "from_text",
    "stdin_stream",
]

_T = TypeVar("_T")

_ERRORS = (pa.ArrowException, ValueError, TypeError, ArithmeticError)
_AS_TEXT: tuple[Family, ...] = (
    "date",
    "time",
    "timestamp without zone",
    "timestamp with zone",
)
_READABLE: tuple[Family, ...] = (*_AS_TEXT, "bool", "integer", "decimal", "float", "string", "null")

_EXPECTED: dict[Family, str] = {
    "bool": "write true or false.",
    "integer": "write a whole number in the range of {type}.",
    "decimal": "write a number with at most {scale} digits after the point and {precision} in all.",
    "float": "write a number, with a point if need be.",
    "string": "write a text in quotes.",
    "date": "write a date like 2024-01-31.",
    "time": "write a time like 12:30:00.",
    "timestamp without zone": "write a time like 2024-01-31T12:30:00, without an offset and no "
    "finer than {unit}.",
    "timestamp with zone": "write a time with its offset, like 2024-01-31T12:30:00Z, and no finer "
    "than {unit}.",
    "null": "leave it empty: no file of the target holds a value in that column.",
}


class ConversionError(Exception):
    """A value is not valid for the type of its column."""

    def __init__(self, index: int, value: Any) -> None:
        super().__init__(index, value)
        self.index = index
        self.value = value


def check_readable(name: str, data_type: pa.DataType, *, nested: bool) -> None:
    """Refuse a column whose values CSV or JSON cannot express."""
    kind = plain_type(data_type)
    if nested and pa.types.is_nested(kind) and not pa.types.is_union(kind):
        for inner in _inner(kind):
            check_readable(name, inner, nested=nested)
        return
    if family(kind) not in _READABLE:
        raise SchemaMismatchError(
            f"column {name!r} is {kind} in the target, which {'JSON' if nested else 'CSV'} cannot "
            "express exactly.\nHint: pass the rows as Parquet, or as an Arrow stream on stdin."
        )


def _inner(kind: pa.DataType) -> list[pa.DataType]:
    if pa.types.is_struct(kind):
        return [field.type for field in kind]
    if pa.types.is_map(kind):
        return [kind.key_type, kind.item_type]
    return [kind.value_type]


def convert_columns(
    stream: Stream,
    lines: Sequence[int],
    schema: pa.Schema,
    convert: Callable[[int, pa.Field], pa.Array],
    quote: Callable[[Any], str] = repr,
) -> list[pa.Array]:
    """Convert every column of a batch, and name the first line and column where that fails."""
    columns, errors = [], []
    for number, field in enumerate(schema):
        try:
            columns.append(convert(number, field))
        except ConversionError as error:
            errors.append((error.index, number, error.value))
    if errors:
        index, number, value = min(errors, key=lambda found: found[:2])
        field = schema.field(number)
        raise SchemaMismatchError(
            f"{stream.name}, line {lines[index]}, column {field.name!r}: {quote(value)} is not a "
            f"valid {field.type}.\nHint: {_expected(field.type)}"
        )
    return columns


def _expected(data_type: pa.DataType) -> str:
    """Return a hint on how to write a value of a type."""
    kind = plain_type(data_type)
    name = family(kind)
    if name is None:
        return f"write a JSON value that is a {kind}."
    facts = {key: getattr(kind, key, "") for key in ("scale", "precision", "unit")}
    return _EXPECTED.get(name, "").format(type=kind, **facts)


def from_text(texts: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Convert texts to a type; empty texts become NULL unless the type is string."""
    if family(data_type) != "string":
        texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    return _all_or_first(texts, lambda part: _text_values(part, data_type))


def _text_values(texts: pa.Array, data_type: pa.DataType) -> pa.Array:
    kind = family(data_type)
    if kind == "bool":
        lowered = pc.utf8_lower(texts)
        if not pc.all(pc.is_in(lowered, pa.array(["true", "false", None]))).as_py():
            raise ValueError
        return lowered.cast(pa.bool_())
    if kind == "null":
        if texts.null_count < len(texts):
            raise ValueError
        return pa.nulls(len(texts))
    if kind == "time":
        moments = pc.binary_join_element_wise("1970-01-01", texts, " ")
        return moments.cast(pa.timestamp(data_type.unit)).cast(data_type)
    values = texts.cast(data_type)
    if kind == "float" and not _same_infinities(texts, values):
        raise OverflowError
    return values


def _same_infinities(texts: pa.Array, values: pa.Array) -> bool:
    """Whether only texts that say so became infinite: Arrow reads 1e999 as infinity."""
    said = pc.match_substring(pc.utf8_lower(texts), "inf")
    became = pc.is_inf(values.cast(pa.float64()))
    return not pc.any(pc.and_not(became, said)).as_py()


def from_json(values: Sequence[Any], data_type: pa.DataType) -> pa.Array:
    """Convert values of JSON, with numbers as ints and decimals, to a type."""
    if family(data_type) in _AS_TEXT:
        for index, value in enumerate(values):
            if value is not None and not isinstance(value, str):
                raise ConversionError(index, value)
        return _all_or_first(
            values, lambda part: _text_values(pa.array(part, pa.string()), data_type)
        )
    return _all_or_first(values, lambda part: _json_values(part, data_type))


def _json_values(values: Sequence[Any], data_type: pa.DataType) -> pa.Array:
    kind = family(data_type)
    if kind is not None and set(map(type, values)) <= _EXACT_IN_ARROW.get(kind, set()):
        return pa.array(values, data_type)
    converted = [None if value is None else _python(value, data_type) for value in values]
    return pa.array(converted, data_type)


def _python(value: Any, data_type: pa.DataType) -> Any:
    """Return a value of JSON as the Python value that Arrow accepts for the type."""
    kind = family(data_type)
    if kind is None:
        return _nested(value, data_type)
    if kind in _AS_TEXT:
        if not isinstance(value, str):
            raise TypeError
        return _text_values(pa.array([value]), data_type)[0].as_py()
    is_kind: bool = isinstance(value, _JSON_KINDS[kind])
    if not is_kind or (isinstance(value, bool) != (kind == "bool")):
        raise TypeError
    if kind == "integer":
        if value != int(value):
            raise ValueError
        return int(value)
    if kind == "float":
        number = float(value)
        if number in (float("inf"), float("-inf")) and not isinstance(value, float):
            raise OverflowError
        return number
    return Decimal(value) if kind == "decimal" else value


_EXACT_IN_ARROW: dict[Family, set[type]] = {
    "bool": {bool, type(None)},
    "integer": {int, type(None)},
    "decimal": {Decimal, type(None)},
    "string": {str, type(None)},
}
"""Python types that Arrow converts exactly or refuses, so that no value needs a check."""

_JSON_KINDS: dict[Family, tuple[type, ...]] = {
    "bool": (bool,),
    "integer": (int, Decimal),
    "decimal": (int, Decimal, str),
    "float": (int, Decimal, float),
    "string": (str,),
    "null": (),
}


def _nested(value: Any, data_type: pa.DataType) -> Any:
    def inner(part: Any, kind: pa.DataType) -> Any:
        return None if part is None else _python(part, plain_type(kind))

    if pa.types.is_struct(data_type):
        names = [field.name for field in data_type]
        if not isinstance(value, dict) or set(value) != set(names):
            raise TypeError
        return {field.name: inner(value[field.name], field.type) for field in data_type}
    if pa.types.is_map(data_type):
        if not isinstance(value, dict):
            raise TypeError
        return [
            (inner(key, data_type.key_type), inner(item, data_type.item_type))
            for key, item in value.items()
        ]
    if not isinstance(value, list):
        raise TypeError
    return [inner(item, data_type.value_type) for item in value]


def _all_or_first(values: Any, convert: Callable[[Any], _T]) -> _T:
    """Convert all values; if that fails, find the first value that is not valid."""
    try:
        return convert(values)
    except _ERRORS as error:
        first, last = 0, len(values)
        # The first failing value is in [first, last): halve until it is alone.
        while last - first > 1:
            middle = (first + last) // 2
            try:
                convert(values[first:middle])
                first = middle
            except _ERRORS:
                last = middle
        value = values[first]
        raise ConversionError(
            first, value.as_py() if isinstance(value, pa.Scalar) else value
        ) from error


# Bytes that can be read more than once: files, and stdin.

_MAX_MEMORY_BYTES = 64 * 1024 * 1024
_READ_BYTES = 1024 * 1024
_RELEASE_TIMEOUT = 10.0
"""Seconds to wait until the threads of Arrow release a file."""


@dataclass(frozen=True)
class Stream:
    """Named bytes; each call of ``open`` reads them from the beginning."""

    name: str
    """For messages."""

    open: Callable[[], IO[bytes]]


def file_stream(root: Root, path: str) -> Stream:
    """Return a file as a stream, decompressed if its name says that it is compressed."""

    def opened() -> IO[bytes]:
        handle: Any = fsspec.core.OpenFile(root.filesystem, path, "rb", compression="infer").open()
        return handle  # type: ignore[no-any-return]

    return Stream(root.to_user_path(path), opened)


def stdin_stream(stack: ExitStack) -> Stream:
    """Return stdin as a stream; its bytes are kept, since errors are located by a second read."""
    if sys.stdin is None or sys.stdin.isatty():
        raise InvalidArgumentError(
            "SOURCE is '-', but nothing is piped into this command.\n"
            "Hint: pipe JSON lines or an Arrow stream into it, or name a file."
        )
    spool = tempfile.SpooledTemporaryFile(_MAX_MEMORY_BYTES, prefix="fsspeckit-stdin-")  # noqa: SIM115
    kept = stack.enter_context(spool)
    while piece := sys.stdin.buffer.read(_READ_BYTES):
        kept.write(piece)

    def opened() -> IO[bytes]:
        kept.seek(0)
        handle: Any = _Kept(kept)
        return handle  # type: ignore[no-any-return]

    return Stream("stdin", opened)


class _Kept(io.RawIOBase):
    """Reads a file and leaves it open when it is closed."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class TrackedFile:
    """A file that Arrow reads during a ``with`` statement; counts its quotes.

    The threads of Arrow may hold the file for a moment after everything is read. To release it they
    need the interpreter, and a process that ends in that moment is aborted; so ``__exit__`` waits.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._released = threading.Event()
        self._released.set()
        self.quotes = 0

    def __enter__(self) -> Callable[[], pa.NativeFile]:
        return self._open

    def __exit__(self, *exception: object) -> None:
        self._released.wait(_RELEASE_TIMEOUT)

    def _open(self) -> pa.NativeFile:
        self._released.clear()
        return pa.PythonFile(_ArrowHandle(self, self._released), mode="r")

    def read(self, size: int) -> bytes:
        """Read bytes for Arrow."""
        data = self._file.read(size)
        self.quotes += data.count(b'"')
        return data


class _ArrowHandle:
    """What Arrow holds of a file; sets an event when it is garbage-collected."""

    closed = False

    def __init__(self, tracked: TrackedFile, released: threading.Event) -> None:
        self.read = tracked.read
        self._released = released

    def __del__(self) -> None:
        self._released.set()
