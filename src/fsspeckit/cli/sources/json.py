"""Read JSON lines as Arrow batches with the target's types; errors name the line and the column.

Numbers are read as integers and decimals, never as floats, so that decimal columns keep all digits.
"""

from __future__ import annotations

import io
import json
import math
import sys
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.json as arrow_json

from fsspeckit.cli.sources.convert import (
    Stream,
    TrackedFile,
    check_readable,
    convert_columns,
    from_json,
)
from fsspeckit.core.keys import plain_type
from fsspeckit.errors import SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    Line = tuple[int, dict[str, Any]]
    FieldPath = tuple[str | None, ...]  # names of columns and fields; None for items of arrays

__all__ = ["infer_json", "infer_other_columns", "json_batches", "json_names", "json_schema"]

_BATCH_ROWS = 16_384
_BLOCK_BYTES = 16 * 1024 * 1024
_MAX_QUOTED = 60
_LARGEST_FLOAT = int(sys.float_info.max)


def json_schema(target: pa.Schema) -> pa.Schema:
    """Return the target's columns, and refuse those whose values JSON cannot express."""
    for field in target:
        check_readable(field.name, field.type, nested=True)
    return pa.schema([(field.name, plain_type(field.type)) for field in target])


def json_names(stream: Stream) -> list[str]:
    """Return the names in the first object."""
    return list(next(_lines(stream), (0, {}))[1])


def infer_other_columns(stream: Stream, known: Collection[str]) -> pa.Schema:
    """Return the columns that are not known, with types inferred from all values.

    Text stays text, also where it looks like a time.

    Raises:
        SchemaMismatchError: If there are no lines, or the values of a column are of two kinds.
    """
    kept, lines = io.BytesIO(), 0
    for number, row in _lines(stream):
        rest = {name: value for name, value in row.items() if name not in known}
        # Errors name a line, so there are as many lines as before.
        kept.write(b"\n" * (number - 1 - lines))
        kept.write(json.dumps(rest, default=float).encode() + b"\n")
        lines = number
    if not lines:
        raise SchemaMismatchError(
            f"{stream.name} is empty, so the columns of the changes are unknown.\n"
            "Hint: leave out a batch without changes, or pass it as Parquet or as CSV."
        )
    found = infer_json(Stream(stream.name, lambda: io.BytesIO(kept.getvalue()))).schema
    texts = [pa.types.is_timestamp(field.type) for field in found]
    return pa.schema(
        [
            field.with_type(pa.string()) if is_text else field
            for field, is_text in zip(found, texts, strict=True)
        ]
    )


def json_batches(stream: Stream, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of JSON lines."""
    lines: list[Line] = []
    for line in _lines(stream):
        _check_names(stream, line, schema)
        lines.append(line)
        if len(lines) == _BATCH_ROWS:
            yield _batch(stream, lines, schema)
            lines = []
    yield _batch(stream, lines, schema)


def infer_json(stream: Stream) -> pa.Table:
    """Return the rows of JSON lines with types inferred from all values."""
    if next(_lines(stream), None) is None:
        raise SchemaMismatchError(
            f"{stream.name} is empty, so the columns of a new dataset are unknown.\n"
            "Hint: pass at least one row, or Parquet."
        )
    try:
        with stream.open() as handle, TrackedFile(handle) as file:
            table = arrow_json.read_json(file(), arrow_json.ReadOptions(block_size=_BLOCK_BYTES))
    except pa.ArrowInvalid as error:
        _check_alike(stream, frozenset())
        raise SchemaMismatchError(
            f"{stream.name}: {error}.\nHint: give a column values of one kind."
        ) from error
    if floats := frozenset(_floats(table.schema)):
        _check_alike(stream, floats)
    return table


def _floats(fields: Iterable[pa.Field], above: FieldPath = ()) -> Iterator[FieldPath]:
    """Yield the paths of columns and nested fields that are floats."""
    for field in fields:
        path, kind = (*above, field.name), field.type
        while pa.types.is_list(kind):
            path, kind = (*path, None), kind.value_type
        if pa.types.is_struct(kind):
            yield from _floats(kind, path)
        elif pa.types.is_floating(kind):
            yield path


def _check_alike(stream: Stream, floats: frozenset[FieldPath]) -> None:
    """Refuse the first value that is of another kind than those before it, or would be rounded."""
    seen: dict[FieldPath, tuple[str, int]] = {}
    for number, row in _lines(stream):
        for path, kind, value in _kinds((), row):
            known, first = seen.setdefault(path, (kind, number))
            if kind != known:
                raise SchemaMismatchError(
                    f"{stream.name}, line {number}, column {_path_text(path)!r}: {_quoted(value)} "
                    f"is {kind}, but line {first} has {known} there.\n"
                    "Hint: give a column values of one kind."
                )
            if _is_rounded(value, path in floats):
                raise SchemaMismatchError(
                    f"{stream.name}, line {number}, column {_path_text(path)!r}: {_quoted(value)} "
                    "has more digits than the type of the column can store.\n"
                    "Hint: write the numbers of that column in quotes, as text."
                )


def _path_text(path: FieldPath) -> str:
    """Return a path as text, such as ``a.b[].c``."""
    return "".join("[]" if name is None else f".{name}" for name in path).removeprefix(".")


def _kinds(above: FieldPath, value: Any) -> Iterator[tuple[FieldPath, str, Any]]:
    """Yield path, kind and value of everything in an object or array."""
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
    """Whether Arrow would round a number."""
    if isinstance(value, Decimal):
        return math.isinf(float(value))
    if not as_float or not isinstance(value, int):
        return False
    return abs(value) > _LARGEST_FLOAT or int(float(value)) != value


def _lines(stream: Stream) -> Iterator[Line]:
    decode = json.JSONDecoder(parse_float=Decimal, object_pairs_hook=_unique_names).decode
    with stream.open() as handle:
        for number, line in enumerate(handle, 1):
            text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if not text.strip():
                continue
            try:
                found = decode(text.decode())
            except (ValueError, RecursionError) as error:
                raise _invalid_line(stream, number, text, str(error)) from error
            if not isinstance(found, dict):
                raise _invalid_line(stream, number, text, f"it is a {type(found).__name__}")
            yield number, found


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse an object that has a name twice: it is unclear which value is meant."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"it names {twice!r} twice")
    return found


def _invalid_line(stream: Stream, number: int, text: bytes, reason: str) -> SchemaMismatchError:
    quoted = text.strip()[:_MAX_QUOTED].decode(errors="replace")
    hint = "write one JSON object on each line."
    if quoted.startswith("["):
        hint = "write one object on each line instead of an array; jq -c '.[]' does it."
    return SchemaMismatchError(
        f"{stream.name}, line {number}: {quoted!r} is not a JSON object: {reason}.\nHint: {hint}"
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
    def convert(_: int, field: pa.Field) -> pa.Array:
        return from_json([row[field.name] for _, row in lines], field.type)

    columns = convert_columns(stream, [line for line, _ in lines], schema, convert, _quoted)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _quoted(value: Any) -> str:
    text = str(value) if isinstance(value, Decimal) else json.dumps(value, default=str)
    return text[:_MAX_QUOTED]
