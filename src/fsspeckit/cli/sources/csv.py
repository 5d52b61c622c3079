"""Read CSV as Arrow batches with the target's types; errors name the line and the column."""

from __future__ import annotations

import csv
import io
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from fsspeckit.cli.sources.convert import (
    ConversionError,
    TrackedFile,
    check_readable,
    convert_columns,
    from_text,
)
from fsspeckit.core.keys import plain_type
from fsspeckit.core.schema_conform import check_same_columns
from fsspeckit.errors import SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from fsspeckit.cli.sources.convert import Stream

__all__ = ["csv_batches", "csv_names", "csv_schema", "infer_csv"]

_BLOCK_BYTES = 4 * 1024 * 1024
_BLOCK_RECORDS = 4096
_LARGEST_EXACT = 2.0**53
"""Larger integers are not all floats."""

_DELIMITERS = ",;\t|"
"""What may separate fields, for a hint."""

csv.field_size_limit(2**31 - 1)


def csv_schema(stream: Stream, delimiter: str, target: pa.Schema) -> pa.Schema:
    """Return the columns of a CSV file with the target's types, in the order of the file."""
    names = csv_names(stream, delimiter)
    check_same_columns(names, target.names)
    for name in names:
        check_readable(name, target.field(name).type, nested=False)
    return pa.schema([(name, plain_type(target.field(name).type)) for name in names])


def csv_batches(stream: Stream, delimiter: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a CSV file."""
    try:
        with stream.open() as handle:
            tracked = TrackedFile(handle)
            for texts in _text_batches(tracked, delimiter, schema.names):
                yield _convert_batch(texts, schema)
        if tracked.quotes % 2:
            # Arrow accepts a quote that is never closed; the csv module does not.
            for _ in _records(stream, delimiter):
                pass
    except csv.Error as error:
        raise _invalid_csv(stream, error) from error
    except (ConversionError, pa.ArrowInvalid) as error:
        _raise_located(stream, delimiter, schema, error)


def infer_csv(stream: Stream, delimiter: str, left_out: Collection[str] = ()) -> pa.Table:
    """Return the rows of a CSV file with types inferred from all values, without losing digits."""
    names = csv_names(stream, delimiter)
    wanted = [name for name in names if name not in left_out]
    if not wanted:
        return pa.table({})
    try:
        table = _read(stream, delimiter, wanted)
        texts = _changed_by_numbers(table, stream, delimiter)
        return _read(stream, delimiter, wanted, texts) if texts else table
    except pa.ArrowInvalid as error:
        strings = pa.schema([(name, pa.string()) for name in names])
        _raise_located(stream, delimiter, strings, error)


def _read(
    stream: Stream, delimiter: str, names: Sequence[str], texts: Sequence[str] = ()
) -> pa.Table:
    options = _as_texts(texts)
    options.include_columns = names
    with stream.open() as handle, TrackedFile(handle) as file:
        return arrow_csv.read_csv(
            file(), parse_options=_parsing(delimiter), convert_options=options
        )


def _changed_by_numbers(table: pa.Table, stream: Stream, delimiter: str) -> list[str]:
    """Return the columns whose texts would not be the same if they were kept as numbers.

    Those with leading zeros, such as postal codes, and those that Arrow reads as floats although
    they hold large integers.
    """
    numbers = [
        field.name
        for field in table.schema
        if pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
    ]
    if not numbers:
        return []
    texts = _read(stream, delimiter, numbers, numbers)
    return [
        name
        for name in numbers
        if _has_any(texts[name], r"^[+-]?0\d")
        or (
            pa.types.is_floating(table[name].type)
            and pc.any(pc.greater_equal(pc.abs(table[name]), _LARGEST_EXACT)).as_py()
            and _has_any(texts[name], r"^[+-]?\d{16,}$")
        )
    ]


def _has_any(texts: pa.ChunkedArray, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, pattern)).as_py())


def _text_batches(
    tracked: TrackedFile, delimiter: str, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield every field as text."""
    with tracked as file:
        # No variable for the reader: it would keep the file open until the wait times out.
        yield from arrow_csv.open_csv(
            file(),
            arrow_csv.ReadOptions(block_size=_BLOCK_BYTES),
            _parsing(delimiter),
            _as_texts(names),
        )


def _parsing(delimiter: str) -> arrow_csv.ParseOptions:
    return arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)


def _as_texts(names: Sequence[str]) -> arrow_csv.ConvertOptions:
    """An empty field is NULL, a pair of quotes is the empty text."""
    return arrow_csv.ConvertOptions(
        column_types={name: pa.string() for name in names},
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        null_values=[""],
    )


def _convert_batch(texts: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [from_text(texts.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def csv_names(stream: Stream, delimiter: str) -> list[str]:
    """Return the columns that the first line names."""
    try:
        names = next(_records(stream, delimiter), (1, []))[1]
    except UnicodeDecodeError as error:
        raise SchemaMismatchError(
            f"{stream.name} is not UTF-8 text.\nHint: convert it, or name the right file."
        ) from error
    except csv.Error as error:
        raise _invalid_csv(stream, error, _other_delimiter(stream, delimiter)) from error
    if not any(names):
        raise SchemaMismatchError(
            f"{stream.name} is empty; the first line of CSV must name the columns.\n"
            "Hint: write a header, even where there are no rows."
        )
    if len(names) == 1 and (other := _other_delimiter(stream, delimiter)) is not None:
        raise _invalid_csv(stream, f"its only column is called {names[0]!r}", other)
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise SchemaMismatchError(
            f"{stream.name}, line 1: the columns {twice!r} occur twice.\n"
            "Hint: name each column once."
        )
    return names


def _records(stream: Stream, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield records with the line number where each begins; empty lines are skipped."""
    with stream.open() as handle:
        raw: Any = handle
        with io.TextIOWrapper(io.BufferedReader(raw), "utf-8-sig", newline="") as text:
            reader = csv.reader(text, delimiter=delimiter, strict=True)
            begin = 1
            for record in reader:
                if record:
                    yield begin, record
                begin = reader.line_num + 1


def _raise_located(
    stream: Stream, delimiter: str, schema: pa.Schema, cause: BaseException
) -> NoReturn:
    """Raise an error that names the first invalid record, which needs a second, slow read."""
    records = _records(stream, delimiter)
    try:
        next(records, None)
        while block := list(islice(records, _BLOCK_RECORDS)):
            _check_widths(stream, block, schema)
            convert_columns(stream, [line for line, _ in block], schema, partial(_column, block))
    except UnicodeDecodeError as error:
        raise SchemaMismatchError(
            f"{stream.name} is not UTF-8 text, at byte {error.start} of a piece of it: "
            f"{error.reason}.\nHint: convert it to UTF-8."
        ) from cause
    except csv.Error as error:
        raise _invalid_csv(stream, error) from cause
    raise _invalid_csv(stream, cause) from cause


def _other_delimiter(stream: Stream, delimiter: str) -> str | None:
    """Return the character that separates the fields of the first line instead."""
    with stream.open() as handle:
        raw: Any = handle
        with io.TextIOWrapper(io.BufferedReader(raw), "utf-8-sig", "replace") as text:
            line = text.readline()
    counts = {other: line.count(other) for other in _DELIMITERS}
    most = max(counts, key=lambda other: counts[other])
    return most if most != delimiter and counts[most] > line.count(delimiter) else None


def _invalid_csv(
    stream: Stream, reason: BaseException | str, delimiter: str | None = None
) -> SchemaMismatchError:
    hint = "check the quotes, the end of the file, and --delimiter"
    if delimiter is not None:
        hint = f"fields seem to be separated by {delimiter!r}; pass it as --delimiter"
    reason_text = str(reason).rstrip(".")
    return SchemaMismatchError(
        f"{stream.name} cannot be read as CSV: {reason_text}.\nHint: {hint}."
    )


def _check_widths(
    stream: Stream, block: Sequence[tuple[int, list[str]]], schema: pa.Schema
) -> None:
    wide = len(schema.names)
    for line, record in block:
        if len(record) != wide:
            raise SchemaMismatchError(
                f"{stream.name}, line {line}: {len(record)} fields, but the header names {wide}.\n"
                "Hint: check the line for missing quotes, and --delimiter."
            )


def _column(block: Sequence[tuple[int, list[str]]], number: int, field: pa.Field) -> pa.Array:
    return from_text(pa.array([record[number] for _, record in block], pa.string()), field.type)
