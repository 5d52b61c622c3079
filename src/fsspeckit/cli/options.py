"""The options of all commands, each defined once; imports little, since ``--help`` loads it."""

from __future__ import annotations

import re
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from fsspeckit.core.merge import MergeStrategy

__all__ = [
    "Compression",
    "Duplicates",
    "EngineName",
    "Format",
    "MergeStrategy",
    "Mode",
    "Nulls",
    "PartitionChange",
    "ProjectKind",
    "ScdType",
    "SchemaChange",
]

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(i)?)?b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])", re.IGNORECASE)
_DECIMAL = re.compile(r"decimal(?:128|256)?\((\d+), *(\d+)\)")
_INSTANT = re.compile(r"timestamp\[(s|ms|us|ns), *(?:tz=)?([^\]]+)\]")
_MAX_DECIMAL128 = 38
_MAX_PORT = 65_535
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

# The choices of an option; each value is its name in lower case.
EngineName = StrEnum("EngineName", "SPARK DUCKDB PYARROW")
Duplicates = StrEnum("Duplicates", "ERROR FIRST LAST")
Nulls = StrEnum("Nulls", "ERROR MATCH")
PartitionChange = StrEnum("PartitionChange", "REFUSE MOVE")
Keep = StrEnum("Keep", "FIRST LAST")
TargetNulls = StrEnum("TargetNulls", "KEEP MATCH")
Compression = StrEnum("Compression", "SNAPPY ZSTD GZIP LZ4 BROTLI NONE")
Format = StrEnum("Format", "PARQUET CSV JSON ARROW")
ScdType = StrEnum("ScdType", {"LAST": "1", "EVERY": "2"})
ProjectKind = StrEnum("ProjectKind", "PIPELINE")


class Mode(StrEnum):  # a class, so that mypy knows its values
    """What a write does with the files that are there."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    OVERWRITE_PARTITIONS = "overwrite_partitions"


class SchemaChange(StrEnum):
    """What a source may change about the columns of the dataset."""

    REFUSE = "refuse"
    ADD = "add"
    WIDEN = "widen"


def parse_size(text: str) -> int:
    """Parse a number of bytes, perhaps with a unit."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a size. Write bytes, or a unit: 500MB, 2GiB.")
    number, unit, binary = found.groups()
    base = 1024 if binary else 1000
    return int(float(number) * base ** _POWERS[(unit or "").lower()])


def parse_count(text: str) -> int:
    """Parse a whole number, 1 or more."""
    digits = str(text)  # typer parses defaults, too, and they are numbers
    if not digits.isdecimal() or int(digits) < 1:
        raise typer.BadParameter(f"{text!r} is not a whole number, 1 or more.")
    return int(digits)


def parse_port(text: str) -> int:
    """Parse the number of a port, or 0."""
    digits = str(text)
    if not (digits.isascii() and digits.isdecimal()) or int(digits) > _MAX_PORT:
        raise typer.BadParameter(f"{text!r} is not a port. Write a number from 0 to {_MAX_PORT}.")
    return int(digits)


def parse_commit(text: str) -> int:
    """Parse the number of a commit, or 0."""
    if not (str(text).isascii() and str(text).isdecimal()):
        raise typer.BadParameter(f"{text!r} is not the number of a commit.")
    return int(text)


def parse_delimiter(text: str) -> str:
    r"""Parse one character; ``\t`` and ``tab`` are a tab."""
    character = {"\\t": "\t", "tab": "\t"}.get(text, text)
    if len(character) != 1 or not character.isascii() or character in '\r\n"':
        raise typer.BadParameter(f"{text!r} is not one character. Write for example ';' or tab.")
    return character


def parse_column(text: str) -> str:
    """Parse the name of a column, which cannot be empty."""
    if not text:
        raise typer.BadParameter("the column name is empty.")
    return text


def parse_seconds(text: str) -> float:
    """Parse a number of seconds, 0 or more."""
    return _parse_number(text, float("inf"), "a number of seconds, 0 or more")


def parse_interval(text: str) -> float:
    """Parse a number of seconds to wait before something is repeated."""
    expected = "a number of seconds, from 0.1 to 86400"
    seconds = _parse_number(text, 86400.0, expected)
    if seconds < 0.1:
        raise typer.BadParameter(f"{text!r} is not {expected}.")
    return seconds


def parse_duration(text: str) -> timedelta:
    """Parse a number with a unit of time."""
    found = _DURATION.fullmatch(str(text).strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a duration. Write for example 7d, 12h or 30m.")
    try:
        return timedelta(**{_UNITS[found[2].lower()]: float(found[1])})
    except OverflowError:
        raise typer.BadParameter(f"{text!r} is more than {timedelta.max.days:,} days.") from None


def parse_fraction(text: str) -> float:
    """Parse a fraction from 0 to 1."""
    return _parse_number(text, 1.0, "a number from 0 to 1")


def _parse_number(text: str, maximum: float, expected: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= maximum:  # NaN, too
        raise typer.BadParameter(f"{text!r} is not {expected}.")
    return number


def parse_transaction(text: str) -> Any:
    """Parse the name of an application and a version, after the last colon."""
    from fsspeckit.storage import Transaction  # not needed for --help

    application, colon, version = str(text).rpartition(":")
    if not (colon and version.isascii() and version.isdecimal()):
        raise typer.BadParameter(
            f"{text!r} is not an application and a version. Write for example orders-feed:17."
        )
    try:
        return Transaction(application, int(version))
    except ValueError as error:
        raise typer.BadParameter(str(error).partition("\n")[0]) from None


def parse_typed_column(text: str) -> Any:
    """Parse the name of a column and its Arrow type, after the last equals sign."""
    name, equals, kind = str(text).rpartition("=")
    if not (equals and name and kind):
        raise typer.BadParameter(f"{text!r} is not a column and a type. Write price=double.")
    return name, _parse_type(kind)


def _parse_type(text: str) -> Any:
    import pyarrow as pa  # not needed for --help

    if found := _DECIMAL.fullmatch(text):
        precision, scale = map(int, found.groups())
        make = pa.decimal128 if precision <= _MAX_DECIMAL128 else pa.decimal256
        try:
            return make(precision, scale)
        except ValueError as error:
            raise typer.BadParameter(f"{text!r} is not a type: {error}.") from None
    if found := _INSTANT.fullmatch(text):
        return pa.timestamp(found[1], found[2])
    try:
        return pa.type_for_alias(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a type. Write for example int64, double, string, bool, date32, "
            "timestamp[us], timestamp[us, UTC] or decimal(18, 2)."
        ) from None


def parse_new_name(text: str) -> Any:
    """Parse an old and a new name of a column."""
    old, equals, new = str(text).partition("=")
    if not (equals and old and new):
        raise typer.BadParameter(f"{text!r} is not an old and a new name. Write old=new.")
    return old, new


def _option(help_text: str, *names: str, **settings: Any) -> Any:
    """Define an option without a default to show."""
    return typer.Option(*names, help=help_text, show_default=False, **settings)


def _columns(help_text: str, *names: str) -> Any:
    """Define an option that takes a column name and can be repeated."""
    return _option(f"{help_text} (repeatable).", *names, metavar="COLUMN", parser=parse_column)


_DATASET = "Dataset: a directory or URL of Parquet files."

Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE",
        help="Rows to take: Parquet, CSV or JSON-lines files, directories, quoted globs, URLs, or "
        "- for JSON lines or an Arrow stream on stdin.",
        show_default=False,
    ),
]
Target = Annotated[str, typer.Argument(metavar="TARGET", help=_DATASET, show_default=False)]
Dataset = Annotated[str, typer.Argument(metavar="DATASET", help=_DATASET, show_default=False)]
Keys = Annotated[list[str], _columns("Key column", "--key", "-k")]
MaybeKeys = Annotated[
    list[str] | None,
    _columns(
        "Key column whose ranges are compared; default: those of the last merge", "--key", "-k"
    ),
]
Strategy = Annotated[
    MergeStrategy,
    typer.Option(
        help="upsert updates matching rows and inserts the others, insert only inserts, update "
        "only updates; full_merge also deletes rows that are not in the source; deduplicate keeps "
        "one source row per key, then upserts; delete removes the rows that the source has keys of."
    ),
]
UniqueKeys = Annotated[
    list[str] | None, _columns("Column of a key that must be unique", "--key", "-k")
]
NoChecksums = Annotated[
    bool, typer.Option("--no-checksums", help="Do not compare the checksums of pages.")
]
Reader = Annotated[
    EngineName | None, _option("Engine that reads; spark unless the config file sets another.")
]
Engine = Annotated[
    EngineName | None, _option("Engine that merges; spark unless the config file sets another.")
]
PartitionBy = Annotated[
    list[str] | None, _columns("Hive partition column; default: those of the dataset")
]
OrderBy = Annotated[
    list[str] | None,
    _columns("Of source rows with the same key, keep the one with the greatest value here"),
]
DuplicatesOption = Annotated[
    Duplicates,
    typer.Option("--duplicates", help="What to do if the source has a key more than once."),
]
NullsOption = Annotated[
    Nulls, typer.Option("--nulls", help="Refuse NULL in key columns, or let NULL match NULL.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan and change nothing.")]
TrustPartitions = Annotated[
    bool,
    typer.Option(
        "--trust-partitions",
        help="Do not search partitions that the source has no rows for: keys never move.",
    ),
]
AllowEmpty = Annotated[
    bool,
    typer.Option("--allow-empty", help="Let full_merge with an empty source delete every row."),
]
FormatOption = Annotated[
    Format | None, _option("Format of SOURCE, if its name does not show it.", "--format")
]
Delimiter = Annotated[
    str | None,
    _option(
        "Field separator of CSV; default: a comma, or a tab in .tsv files.",
        metavar="CHARACTER",
        parser=parse_delimiter,
    ),
]
InferTypes = Annotated[
    bool,
    typer.Option(
        "--infer-types", help="Infer the types of CSV and JSON from values, not from the target."
    ),
]
WriteModeOption = Annotated[
    Mode,
    typer.Option(
        "--mode", help="Add files, or replace all, or those of the partitions of the rows."
    ),
]
CompressionOption = Annotated[
    Compression,
    typer.Option("--compression", help="Compression codec of new files.", case_sensitive=False),
]
MaxRowsPerFile = Annotated[
    int, typer.Option(metavar="COUNT", parser=parse_count, help="Maximum rows per new file.")
]
RowGroupSize = Annotated[
    int,
    typer.Option(
        metavar="COUNT", parser=parse_count, help="Maximum rows per row group in new files."
    ),
]
Bloom = Annotated[list[str] | None, _columns("Column to write bloom filters for in new files")]
KeyIndex = Annotated[
    bool | None,
    _option(
        "Keep an index of the keys beside the dataset, or remove it; default: as it is.",
        "--key-index/--no-key-index",
    ),
]
MaxRewriteFraction = Annotated[
    float | None,
    _option(
        "Refuse to rewrite more than this fraction of the target's bytes, from 0 to 1.",
        metavar="FRACTION",
        parser=parse_fraction,
    ),
]
MaxRewriteBytes = Annotated[
    int | None,
    _option(
        "Refuse to rewrite files of more than this size in total, for example 500MB.",
        metavar="SIZE",
        parser=parse_size,
    ),
]
DeleteWhen = Annotated[
    str | None,
    _option(
        "Boolean column of the source that is true in rows whose key is deleted; it is not stored.",
        metavar="COLUMN",
        parser=parse_column,
    ),
]
OnlyNewer = Annotated[
    str | None,
    _option(
        "Column that must be greater in a source row than in the row it replaces or deletes.",
        metavar="COLUMN",
        parser=parse_column,
    ),
]
PartitionChangeOption = Annotated[
    PartitionChange,
    typer.Option(
        "--partition-change",
        help="Refuse to change partition columns of existing keys, or move such rows.",
    ),
]
SchemaChangeOption = Annotated[
    SchemaChange,
    typer.Option(
        "--schema-changes",
        help="Refuse columns that the dataset does not have, add them to every file, or also widen "
        "types that do not hold the values of the source.",
    ),
]
AddColumns = Annotated[
    list[Any] | None,
    _option(
        "New column with its Arrow type, NULL in every row (repeatable).",
        "--add",
        metavar="COLUMN=TYPE",
        parser=parse_typed_column,
    ),
]
WidenColumns = Annotated[
    list[Any] | None,
    _option(
        "Column that gets this Arrow type, which must hold all its values (repeatable).",
        "--widen",
        metavar="COLUMN=TYPE",
        parser=parse_typed_column,
    ),
]
RenameColumns = Annotated[
    list[Any] | None,
    _option(
        "Column that gets another name, which other options use (repeatable).",
        "--rename",
        metavar="OLD=NEW",
        parser=parse_new_name,
    ),
]
DropColumns = Annotated[list[str] | None, _columns("Column to drop", "--drop")]
FirstColumns = Annotated[list[str] | None, _columns("Column that comes first", "--order")]
NullableColumns = Annotated[list[str] | None, _columns("Column that may be NULL", "--nullable")]
RequiredColumns = Annotated[
    list[str] | None, _columns("Column that must not be NULL, and is not", "--required")
]
Changes = Annotated[
    list[str],
    typer.Argument(
        metavar="CHANGES",
        help="Changes to apply: Parquet, CSV or JSON-lines files, directories, quoted globs, URLs, "
        "or - for JSON lines or an Arrow stream on stdin.",
        show_default=False,
    ),
]
SequenceBy = Annotated[
    str,
    _option(
        "Column that orders the changes of a key, such as a log position or a time.",
        metavar="COLUMN",
        parser=parse_column,
    ),
]
ApplyAsDeletes = Annotated[
    str | None,
    _option(
        "Condition of the changes that delete, as SQL: \"op = 'd'\"; default: none does.",
        metavar="CONDITION",
    ),
]
Columns = Annotated[list[str] | None, _columns("Column to store; default: all", "--column")]
ExceptColumns = Annotated[
    list[str] | None, _columns("Column of the changes that is not stored", "--except-column")
]
ScdTypeOption = Annotated[
    ScdType,
    typer.Option(
        "--scd-type",
        help="1 stores the last version of each row, 2 every version, with the sequences from "
        "which and until which it held in __START_AT and __END_AT.",
    ),
]
TombstoneRetention = Annotated[
    Any,
    typer.Option(
        "--tombstone-retention",
        metavar="DURATION",
        parser=parse_duration,
        help="How long the keys of deleted rows are kept, so that a change that arrives after the "
        "deletion and happened before it has no effect.",
    ),
]
MaybeDeletedKeys = Annotated[list[str] | None, _columns("Key column, with --from", "--key", "-k")]
Where = Annotated[
    str | None,
    _option(
        "Condition of the rows to delete, as SQL: \"status = 'gone' AND day < DATE '2020-01-01'\".",
        metavar="CONDITION",
    ),
]
Purge = Annotated[
    bool,
    typer.Option(
        "--purge", help="Also empty the trash, which keeps older versions of files for a while."
    ),
]
KeysFrom = Annotated[
    list[str] | None,
    _option(
        "Rows whose keys are deleted: files as for SOURCE of merge, or - (repeatable).",
        "--from",
        metavar="SOURCE",
    ),
]
DuplicateKeys = Annotated[
    list[str] | None,
    _columns(
        "Column that is equal in duplicates; default: all of them, so that only equal rows go",
        "--key",
        "-k",
    ),
]
GreatestStays = Annotated[
    list[str] | None, _columns("Of rows with one key, keep the one with the greatest value here")
]
KeepOption = Annotated[
    Keep | None,
    _option(
        "Which row stays of those with one key, or of those that --order-by finds equal, by the "
        "order of paths and rows; default: the last one with --order-by, else only equal rows go.",
        "--keep",
    ),
]
TargetNullsOption = Annotated[
    TargetNulls,
    typer.Option("--nulls", help="Keep all rows with NULL in a key column, or let NULL match."),
]
NewPartitions = Annotated[
    list[str] | None, _columns("Hive partition column, outermost first", "--partition-by")
]
NoPartitions = Annotated[
    bool, typer.Option("--no-partitions", help="Put all files into one directory.")
]
OnlyPreview = Annotated[
    bool, typer.Option("--dry-run", help="Check what can be checked, and change nothing.")
]
TransactionOption = Annotated[
    Any,
    _option(
        "Apply this batch once: skipped if the application has committed this version or a later "
        "one.",
        "--transaction",
        metavar="APPLICATION:VERSION",
        parser=parse_transaction,
    ),
]
LockTimeout = Annotated[
    float,
    typer.Option(
        metavar="SECONDS", parser=parse_seconds, help="How long to wait for another writer."
    ),
]
StorageOption = Annotated[
    list[str] | None,
    _option(
        "Option for the fsspec filesystem; KEY:=JSON for values that are not text (repeatable).",
        metavar="KEY=VALUE",
    ),
]
Config = Annotated[
    Path | None,
    _option("Config file; default: ~/.config/fsspeckit/config.toml.", metavar="FILE"),
]
ControlDir = Annotated[
    str | None,
    _option(
        "Directory for staged files, commit records and the lock; default: beside the dataset.",
        metavar="DIRECTORY",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON to stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress and no notes.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print the traceback of an error.")]
Html = Annotated[
    str | None,
    _option("Also write a page for a browser to this file.", "--html", metavar="FILE"),
]
ReportFile = Annotated[
    str | None,
    _option(
        "File to write; default: the name of the dataset and -report.html, in the working "
        "directory.",
        "--output",
        "-o",
        metavar="FILE",
    ),
]
VerifyToo = Annotated[
    bool, typer.Option("--verify", help="Read every value, as verify does, and show what it finds.")
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace a file that is not a report, too.")
]
OpenPage = Annotated[bool, typer.Option("--open", help="Open the page in the browser.")]
Port = Annotated[
    int,
    typer.Option(
        "--port", metavar="NUMBER", parser=parse_port, help="Port on 127.0.0.1; 0 for a free one."
    ),
]
Limit = Annotated[
    int | None,
    _option("Show only the latest COUNT commits.", metavar="COUNT", parser=parse_count),
]
Abandon = Annotated[
    bool,
    typer.Option("--abandon", help="Go back to the state before a commit that lost files."),
]
Watch = Annotated[
    bool, typer.Option("--watch", help="Go on until Ctrl-C, and recover what is interrupted later.")
]
WatchInterval = Annotated[
    float,
    typer.Option(
        "--every",
        metavar="SECONDS",
        parser=parse_interval,
        help="How long --watch waits in between.",
    ),
]
RestoreDryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what would come back, and change nothing.")
]
Commit = Annotated[
    int,
    _option(
        "Commit after which the dataset had the state; 0 for the state before the first one.",
        "--commit",
        metavar="NUMBER",
        parser=parse_commit,
    ),
]
CleanDryRun = Annotated[
    bool,
    typer.Option("--dry-run/--no-dry-run", help="Only print what would be removed, or remove it."),
]
KeepCommits = Annotated[
    int,
    typer.Option(
        metavar="COUNT",
        parser=parse_commit,
        help="How many of the last commits keep in the trash what they replaced.",
    ),
]
KeepAge = Annotated[
    Any,
    typer.Option(
        metavar="DURATION", parser=parse_duration, help="How long the trash keeps it at most."
    ),
]
KeepBytes = Annotated[
    int | None,
    _option(
        "How much the trash may hold, for example 50GB; default: no limit.",
        metavar="SIZE",
        parser=parse_size,
    ),
]
ProjectKindArgument = Annotated[
    ProjectKind,
    typer.Argument(
        metavar="KIND",
        help="Kind of project: pipeline, for Spark Declarative Pipelines.",
        show_default=False,
    ),
]
ProjectName = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Directory of the project, new or empty.", show_default=False
    ),
]
TargetSize = Annotated[
    Any,
    typer.Option(
        "--target-size",
        metavar="SIZE",
        parser=parse_size,
        help="Size that files should have, as 128MiB; those of half of it are left alone.",
    ),
]
TargetFileSize = Annotated[
    Any,
    typer.Option(
        "--target-size",
        metavar="SIZE",
        parser=parse_size,
        help="Append new rows to files below this size that are rewritten anyway.",
    ),
]
AutoCompact = Annotated[
    bool,
    typer.Option(
        "--auto-compact", help="Compact the partitions that change, if they have many small files."
    ),
]
MinFiles = Annotated[
    int,
    typer.Option(
        "--min-files", metavar="COUNT", parser=parse_count, help="Fewer files are not made one."
    ),
]
Partitions = Annotated[
    list[str] | None,
    _option(
        "Partition to compact, for example year=2024 (repeatable); default: all.",
        "--partition",
        metavar="COLUMN=VALUE",
    ),
]
SortBy = Annotated[
    list[str] | None, _columns("Column by which the rows of each partition are sorted", "--sort-by")
]
