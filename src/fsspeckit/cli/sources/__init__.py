"""Open the argument SOURCE: Parquet, CSV, JSON lines or Arrow; files, globs, directories or stdin.

Parquet is passed to the library as paths, so that an engine reads it in place. Text is read here,
with the target's types, as a stream of Arrow batches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from fsspeckit.cli.options import Format
from fsspeckit.cli.sources.convert import Stream, file_stream, stdin_stream
from fsspeckit.cli.sources.csv import csv_batches, csv_names, csv_schema, infer_csv
from fsspeckit.cli.sources.json import (
    infer_json,
    infer_other_columns,
    json_batches,
    json_names,
    json_schema,
)
from fsspeckit.core.keys import check_columns
from fsspeckit.datasets.pipeline import SourcePath, parquet_dataset, with_dataset
from fsspeckit.errors import InvalidArgumentError, SchemaMismatchError
from fsspeckit.storage import DATA_SUFFIXES, open_root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import ExitStack

    from fsspeckit.storage import Root, Storage

__all__ = ["OpenedSource", "SourceOptions", "TextColumns", "open_source"]

_STDIN = "-"
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
_STREAM_START = b"\xff\xff\xff\xff"
_FILE_START = b"ARROW1"
_SNIFFED_BYTES = 64
_SUFFIXES = {
    **dict.fromkeys(DATA_SUFFIXES, Format.PARQUET),
    **dict.fromkeys((".csv", ".tsv"), Format.CSV),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), Format.JSON),
    **dict.fromkeys((".arrow", ".arrows", ".ipc"), Format.ARROW),
}


@dataclass(frozen=True)
class SourceOptions:
    """How sources are read."""

    format: Format | None = None
    """None to take it from names, and on stdin from the first bytes."""

    delimiter: str | None = None
    """Between the fields of CSV; None for a comma, and a tab in ``.tsv`` files."""

    storage_options: Callable[[str], Mapping[str, Any]] = lambda path: {}
    """Returns the options for the filesystem of a path."""


@dataclass(frozen=True)
class TextColumns:
    """Which columns a source of text has, beside those that the target has."""

    known: Callable[[pa.Schema], pa.Schema] = lambda target: target
    """Returns those with known types, from the columns of the target."""

    others: bool = False
    """Whether there may be more, whose types are inferred from their values."""

    named: Mapping[str, str] = field(default_factory=dict)
    """Columns that arguments of the library name and that text must have, by argument."""


@dataclass(frozen=True)
class OpenedSource:
    """A source as the library accepts it."""

    data: Any
    inferred: pa.Schema | None = None
    """The columns, if their types were inferred from text."""


@dataclass(frozen=True)
class _Part:
    """One file of a source, or stdin."""

    stream: Stream
    format: Format
    delimiter: str = ","


def open_source(
    paths: Sequence[str],
    target: Storage,
    options: SourceOptions,
    stack: ExitStack,
    columns: TextColumns = TextColumns(),  # noqa: B008 - it is frozen
    *,
    infer: bool = False,
) -> OpenedSource:
    """Open the sources of a command.

    Args:
        paths: Files, globs and directories, or ``-``.
        target: The dataset whose types text is read with.
        options: How to read.
        stack: Closes what is opened, after the rows have been read.
        columns: Which columns text has.
        infer: Whether to infer the types of text from its values, whatever the target has.
    """
    parts = [part for path in paths for part in _parts(path, options, stack)]
    formats = sorted({part.format.value for part in parts})
    if len(formats) > 1:
        raise InvalidArgumentError(
            f"the sources are of several formats: {', '.join(formats)}.\n"
            "Hint: merge them one after the other."
        )
    if parts[0].format is Format.PARQUET:
        return OpenedSource(_parquet(paths, target, options))
    if parts[0].format is Format.ARROW:
        return OpenedSource(_chain([_arrow_reader(part.stream) for part in parts]))
    schema = None if infer else _target_schema(target)
    if schema is None:
        return _infer_source(parts)
    for argument, name in columns.named.items():
        for part in parts:
            check_columns(argument, [name], _names(part))
    wanted = columns.known(schema)
    others = _infer_others(parts, wanted) if columns.others else pa.schema([])
    wanted = pa.schema([*wanted, *others])
    data = _chain([_text_reader(part, wanted) for part in parts])
    return OpenedSource(data, others if len(others) else None)


def _names(part: _Part) -> list[str]:
    """Return the columns that a header names, or the first line of JSON."""
    if part.format is Format.CSV:
        return csv_names(part.stream, part.delimiter)
    return json_names(part.stream)


def _infer_others(parts: Sequence[_Part], known: pa.Schema) -> pa.Schema:
    """Return the columns of text that are not known, with types inferred from their values."""
    found = [
        infer_csv(part.stream, part.delimiter, known.names).schema
        if part.format is Format.CSV
        else infer_other_columns(part.stream, known.names)
        for part in parts
    ]
    try:
        return pa.unify_schemas(found, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return found[0]  # a file that differs fails when it is read


def _target_schema(target: Storage) -> pa.Schema | None:
    try:
        return with_dataset(target, lambda opened: opened.schema)
    except FileNotFoundError:
        return None


def _parts(path: str, options: SourceOptions, stack: ExitStack) -> Iterator[_Part]:
    if path == _STDIN:
        stream = stdin_stream(stack)
        yield _Part(stream, options.format or _sniff_format(stream), options.delimiter or ",")
        return
    root = open_root(path, None, options.storage_options(path))
    for file in _files(root, path):
        found = options.format or _format_of(file)
        usual = "\t" if _plain_name(file).endswith(".tsv") else ","
        yield _Part(file_stream(root, file), found, options.delimiter or usual)


def _files(root: Root, path: str) -> list[str]:
    """Return the files at a path, which is a glob only if no file has that name."""
    filesystem = root.filesystem
    if filesystem.isdir(root.path):
        found = [file for file in sorted(filesystem.find(root.path)) if _is_source(root, file)]
    elif filesystem.exists(root.path):
        found = [root.path]
    else:
        found = sorted(filesystem.glob(root.path)) if any(c in path for c in "*?[") else []
    if not found:
        raise FileNotFoundError(
            f"there is no source at {root.to_user_path(root.path)!r}.\n"
            "Hint: a source is a Parquet, CSV or JSON-lines file, a directory or a quoted glob of "
            "them, or '-' for stdin."
        )
    return found


def _is_source(root: Root, file: str) -> bool:
    relative = root.relative(file)
    hidden = any(part.startswith((".", "_")) for part in relative.split("/"))
    return not hidden and _known_format(file) is not None


def _plain_name(file: str) -> str:
    lowered = file.lower()
    for suffix in _COMPRESSED:
        lowered = lowered.removesuffix(suffix)
    return lowered


def _known_format(file: str) -> Format | None:
    name = _plain_name(file)
    return next((found for suffix, found in _SUFFIXES.items() if name.endswith(suffix)), None)


def _format_of(file: str) -> Format:
    found = _known_format(file)
    if found is None:
        raise InvalidArgumentError(
            f"the name of the source {file!r} does not show its format.\n"
            "Hint: pass --format parquet, csv, json or arrow."
        )
    return found


def _sniff_format(stream: Stream) -> Format:
    with stream.open() as handle:
        start = handle.read(_SNIFFED_BYTES)
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith((_STREAM_START, _FILE_START)):
        return Format.ARROW
    if text.startswith((b"{", b"[")) or not text:
        return Format.JSON
    what = "Parquet" if start.startswith(b"PAR1") else "neither an Arrow stream nor JSON lines"
    raise InvalidArgumentError(
        f"stdin is {what}; it begins with {start[:16]!r}.\n"
        "Hint: pass --format csv for CSV; save Parquet to a file and name that."
    )


def _parquet(paths: Sequence[str], target: Storage, options: SourceOptions) -> Any:
    """Return paths for the engine to read in place, or readers where it could not reach them."""
    schemes = {open_root(path, None, options.storage_options(path)).protocol for path in paths}
    if _STDIN in paths:
        raise InvalidArgumentError(
            "Parquet cannot be read from stdin: it is read from its end.\n"
            "Hint: save it to a file and name that."
        )
    if schemes <= {target.root.protocol, "file", "local"}:
        return list(paths)
    located = [SourcePath(path, None, options.storage_options(path)) for path in paths]
    return _chain([parquet_dataset(path, None).scanner().to_reader() for path in located])


def _arrow_reader(stream: Stream) -> pa.RecordBatchReader:
    handle = stream.open()
    try:
        if handle.read(len(_FILE_START)) == _FILE_START:
            with stream.open() as whole:
                return pa.ipc.open_file(pa.py_buffer(whole.read())).read_all().to_reader()
        handle = stream.open()
        reader = pa.ipc.open_stream(handle)
    except (pa.ArrowInvalid, OSError) as error:
        _raise_broken(stream, error)
    return pa.RecordBatchReader.from_batches(reader.schema, _complete_batches(stream, reader))


def _complete_batches(stream: Stream, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    try:
        yield from reader
    except (pa.ArrowInvalid, OSError) as error:
        _raise_broken(stream, error)


def _raise_broken(stream: Stream, error: Exception) -> NoReturn:
    raise SchemaMismatchError(
        f"{stream.name} is not a complete Arrow stream: {error}.\n"
        "Hint: check that the program that writes it did not fail."
    ) from error


def _infer_source(parts: Sequence[_Part]) -> OpenedSource:
    tables = [_infer_part(part) for part in parts]
    for part, table in zip(parts, tables, strict=True):
        if set(table.column_names) != set(tables[0].column_names):
            raise SchemaMismatchError(
                f"{part.stream.name} has the columns {table.column_names!r}, but "
                f"{parts[0].stream.name} has {tables[0].column_names!r}.\n"
                "Hint: give all files the same columns, or merge them one after the other."
            )
    try:
        schema = pa.unify_schemas([table.schema for table in tables], promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        schema = tables[0].schema  # a file that differs is read again below, and fails
    alike = [
        table if _types(table.schema) == _types(schema) else _text_reader(part, schema).read_all()
        for part, table in zip(parts, tables, strict=True)
    ]
    return OpenedSource(alike, schema)


def _types(schema: pa.Schema) -> set[tuple[str, pa.DataType]]:
    return {(field.name, field.type) for field in schema}


def _infer_part(part: _Part) -> pa.Table:
    if part.format is Format.CSV:
        return infer_csv(part.stream, part.delimiter)
    return infer_json(part.stream)


def _text_reader(part: _Part, target: pa.Schema) -> pa.RecordBatchReader:
    if part.format is Format.CSV:
        schema = csv_schema(part.stream, part.delimiter, target)
        batches = csv_batches(part.stream, part.delimiter, schema)
    else:
        schema = json_schema(target)
        batches = json_batches(part.stream, schema)
    return pa.RecordBatchReader.from_batches(schema, batches)


def _chain(readers: Sequence[pa.RecordBatchReader]) -> pa.RecordBatchReader:
    """Chain streams; each may have its columns in another order."""
    schema = readers[0].schema
    for reader in readers[1:]:
        if _types(reader.schema) != _types(schema):
            raise SchemaMismatchError(
                "the sources do not have the same columns and types.\n"
                "Hint: merge them one after the other."
            )
    batches = chain.from_iterable(readers)
    alike = (
        pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema)
        for batch in batches
    )
    return pa.RecordBatchReader.from_batches(schema, alike)
