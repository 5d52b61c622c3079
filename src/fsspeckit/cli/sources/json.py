"""JSON lines as Arrow batches with the target's types; a misfit is told with its line and column.

Numbers are read as whole numbers and decimals, never as floats, so that a decimal column gets the
digits that are written.
"""

from __future__ import annotations

import json
import math
import sys
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.json as arrow_json

from fsspeckit.cli.sources.convert import (
    ConversionError,
    TrackedFile,
    check_readable,
    expected,
    from_json,
)
from fsspeckit.core.keys import plain_type
from fsspeckit.errors import SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fsspeckit.cli.sources.convert import Stream

    Line = tuple[int, dict[str, Any]]
    Place = tuple[str | None, ...]  # names of columns and fields; None for items of arrays

__all__ = ["inferred_json", "json_batches", "json_schema"]

_ROWS = 16_384
_BLOCK = 16 * 1024 * 1024
_SHOWN = 60
_LARGEST_FLOAT = int(sys.float_info.max)


def json_schema(target: pa.Schema) -> pa.Schema:
    """The target's columns, of types that JSON can spell.

    Raises:
        SchemaMismatchError: Naming a column that it cannot.
    """
    for field in target:
        check_readable(field.name, field.type, nested=True)
    return pa.schema([(field.name, plain_type(field.type)) for field in target])


def json_batches(stream: Stream, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of JSON lines.

    Raises:
        SchemaMismatchError: Naming the line and the column of the first value that does not fit.
    """
    held: list[Line] = []
    for line in _lines(stream):
        _check_names(stream, line, schema)
        held.append(line)
        if len(held) == _ROWS:
            yield _batch(stream, held, schema)
            held = []
    yield _batch(stream, held, schema)


def inferred_json(stream: Stream) -> pa.Table:
    """The rows of JSON lines with types that all of their values have.

    Raises:
        SchemaMismatchError: If they cannot be read.
    """
    if next(_lines(stream), None) is None:
        raise SchemaMismatchError(
            f"{stream.name} is empty, so nothing tells the columns of a new dataset.\n"
            "Hint: bring at least one row, or Parquet."
        )
    try:
        with stream.open() as handle, TrackedFile(handle) as file:
            table = arrow_json.read_json(file(), arrow_json.ReadOptions(block_size=_BLOCK))
    except pa.ArrowInvalid as error:
        _check_alike(stream, frozenset())
        raise SchemaMismatchError(
            f"{stream.name}: {error}.\nHint: give a column values of one kind."
        ) from error
    if floats := frozenset(_floats(table.schema)):
        _check_alike(stream, floats)
    return table


def _floats(fields: Iterable[pa.Field], above: Place = ()) -> Iterator[Place]:
    """The columns, and parts of columns, that are floats."""
    for field in fields:
        path, kind = (*above, field.name), field.type
        while pa.types.is_list(kind):
            path, kind = (*path, None), kind.value_type
        if pa.types.is_struct(kind):
            yield from _floats(kind, path)
        elif pa.types.is_floating(kind):
            yield path


def _check_alike(stream: Stream, floats: frozenset[Place]) -> None:
    """Find the first value that is of another kind than those above it, or would be rounded.

    Raises:
        SchemaMismatchError: Naming its line and column.
    """
    seen: dict[Place, tuple[str, int]] = {}
    for number, row in _lines(stream):
        for path, kind, value in _kinds((), row):
            known, first = seen.setdefault(path, (kind, number))
            if kind != known:
                raise SchemaMismatchError(
                    f"{stream.name}, line {number}, column {_called(path)!r}: {_shown(value)} "
                    f"is {kind}, but line {first} has {known} there.\n"
                    "Hint: give a column values of one kind."
                )
            if _is_rounded(value, path in floats):
                raise SchemaMismatchError(
                    f"{stream.name}, line {number}, column {_called(path)!r}: {_shown(value)} "
                    "has more digits than a number of the column can keep.\n"
                    "Hint: write the numbers of that column in quotes, as text."
                )


def _called(path: Place) -> str:
    """A place as people write it: ``a.b[].c``."""
    return "".join("[]" if name is None else f".{name}" for name in path).removeprefix(".")


def _kinds(above: Place, value: Any) -> Iterator[tuple[Place, str, Any]]:
    """The kinds of values in an object or array, each with its place."""
    items = value.items() if isinstance(value, dict) else ((None, item) for item in value)
    for name, item in items:
        if item is not None:
            path = (*above, name)
            yield path, _KINDS[type(item)], item
            if isinstance(item, dict | list):
                yield from _kinds(path, item)


_KINDS = {
    bool: "true or false",
    **dict.fromkeys((int, float, Decimal), "a number"),
    str: "text",
    list: "an array",
    dict: "an object",
}


def _is_rounded(value: Any, as_float: bool) -> bool:
    """Whether a number is not the same any more once Arrow has read it."""
    if isinstance(value, Decimal):
        return math.isinf(float(value))
    if not as_float or not isinstance(value, int):
        return False
    return abs(value) > _LARGEST_FLOAT or int(float(value)) != value


def _lines(stream: Stream) -> Iterator[Line]:
    decode = json.JSONDecoder(parse_float=Decimal, object_pairs_hook=_each_once).decode
    with stream.open() as handle:
        for number, line in enumerate(handle, 1):
            text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if not text.strip():
                continue
            try:
                found = decode(text.decode())
            except (ValueError, RecursionError) as error:
                raise _no_object(stream, number, text, str(error)) from error
            if not isinstance(found, dict):
                raise _no_object(stream, number, text, f"it is a {type(found).__name__}")
            yield number, found


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names occur once: of two values nobody knows which one is meant."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"it names {twice!r} twice")
    return found


def _no_object(stream: Stream, number: int, text: bytes, reason: str) -> SchemaMismatchError:
    shown = text.strip()[:_SHOWN].decode(errors="replace")
    hint = "write one JSON object on each line."
    if shown.startswith("["):
        hint = "write one object on each line instead of an array; jq -c '.[]' does it."
    return SchemaMismatchError(
        f"{stream.name}, line {number}: {shown!r} is not a JSON object: {reason}.\nHint: {hint}"
    )


def _check_names(stream: Stream, line: Line, schema: pa.Schema) -> None:
    number, row = line
    if row.keys() == set(schema.names):
        return
    missing = [name for name in schema.names if name not in row]
    extra = [name for name in row if name not in schema.names]
    if extra:
        raise SchemaMismatchError(
            f"{stream.name}, line {number}, column {extra[0]!r}: the target has no such column, "
            f"only {schema.names!r}.\nHint: leave it out; names are compared exactly."
        )
    raise SchemaMismatchError(
        f"{stream.name}, line {number}, column {missing[0]!r}: there is no value for it, and a "
        f'merge replaces whole rows.\nHint: write "{missing[0]}": null if that is meant.'
    )


def _batch(stream: Stream, lines: list[Line], schema: pa.Schema) -> pa.RecordBatch:
    columns, misfits = [], []
    for number, field in enumerate(schema):
        try:
            columns.append(from_json([row[field.name] for _, row in lines], field.type))
        except ConversionError as misfit:
            misfits.append((misfit.index, number, misfit.value, field))
    if not misfits:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    index, _, value, field = min(misfits, key=lambda found: found[:2])
    raise SchemaMismatchError(
        f"{stream.name}, line {lines[index][0]}, column {field.name!r}: {_shown(value)} is no "
        f"{field.type}.\nHint: {expected(field.type)}"
    )


def _shown(value: Any) -> str:
    text = str(value) if isinstance(value, Decimal) else json.dumps(value, default=str)
    return text[:_SHOWN]
