"""The options of all commands, each defined once, with its help.

What options can be set to; light, because every ``--help`` needs it.
"""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fsspeckit.core.merge import MergeStrategy

__all__ = ["Compression", "Duplicates", "EngineName", "Format", "MergeStrategy", "Mode", "Nulls"]


# --- What options can be set to; light, because every ``--help`` needs it ---


class EngineName(StrEnum):
    """The engines of the registry."""

    SPARK = "spark"
    DUCKDB = "duckdb"
    PYARROW = "pyarrow"


class Duplicates(StrEnum):
    """What happens to a key that occurs twice in the source."""

    ERROR = "error"
    FIRST = "first"
    LAST = "last"


class Nulls(StrEnum):
    """What happens to a key that is NULL."""

    ERROR = "error"
    MATCH = "match"


class Mode(StrEnum):
    """What a write does with the files that are there."""

    APPEND = "append"
    OVERWRITE = "overwrite"


class Compression(StrEnum):
    """The codec of new files."""

    SNAPPY = "snappy"
    ZSTD = "zstd"
    GZIP = "gzip"
    LZ4 = "lz4"
    BROTLI = "brotli"
    NONE = "none"


class Format(StrEnum):
    """What a source is."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"
    ARROW = "arrow"


# --- The options of all commands, each defined once, with its help ---

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(i)?)?b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}

_SOURCE, _FILES, _GUARDS, _STORAGE, _SHOWN = (
    "Reading SOURCE",
    "New files",
    "Guard rails",
    "Storage",
    "Output",
)


def parse_size(text: str) -> int:
    """A number of bytes, perhaps with a unit.

    Raises:
        typer.BadParameter: If it is none.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a size. Write bytes, or a unit: 500MB, 2GiB.")
    number, unit, binary = found.groups()
    base = 1024 if binary else 1000
    return int(float(number) * base ** _POWERS[(unit or "").lower()])


def parse_count(text: str) -> int:
    """A whole number, 1 or more.

    Raises:
        typer.BadParameter: If it is none.
    """
    digits = str(text)  # defaults come here, too, and are numbers
    if not digits.isdecimal() or int(digits) < 1:
        raise typer.BadParameter(f"{text!r} is not a whole number, 1 or more.")
    return int(digits)


def parse_delimiter(text: str) -> str:
    r"""One character; ``\t`` and ``tab`` are a tab.

    Raises:
        typer.BadParameter: If it is none.
    """
    character = {"\\t": "\t", "tab": "\t"}.get(text, text)
    if len(character) != 1 or not character.isascii() or character in '\r\n"':
        raise typer.BadParameter(f"{text!r} is not one character. Write for example ';' or tab.")
    return character


def parse_column(text: str) -> str:
    """The name of a column.

    Raises:
        typer.BadParameter: If it is empty.
    """
    if not text:
        raise typer.BadParameter("the name of a column is empty.")
    return text


def parse_seconds(text: str) -> float:
    """A number of seconds, 0 or more.

    Raises:
        typer.BadParameter: If it is none.
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise typer.BadParameter(f"{text!r} is not a number of seconds, 0 or more.")
    return seconds


def parse_fraction(text: str) -> float:
    """A share from 0 to 1.

    Raises:
        typer.BadParameter: If it is none.
    """
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise typer.BadParameter(f"{text!r} is not a number from 0 to 1.")
    return share


Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE",
        help="The rows: Parquet, CSV or JSON-lines files, directories, quoted globs, URLs, or - "
        "for JSON lines or an Arrow stream on stdin.",
        show_default=False,
    ),
]
Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET", help="The dataset: a directory or URL of Parquet.", show_default=False
    ),
]
Dataset = Annotated[
    str,
    typer.Argument(
        metavar="DATASET", help="The dataset: a directory or URL of Parquet.", show_default=False
    ),
]
Keys = Annotated[
    list[str],
    typer.Option(
        "--key",
        "-k",
        metavar="COLUMN",
        parser=parse_column,
        help="A column that says which rows are the same; repeat it for several.",
        show_default=False,
    ),
]
MaybeKeys = Annotated[
    list[str] | None,
    typer.Option(
        "--key",
        "-k",
        metavar="COLUMN",
        parser=parse_column,
        help="A key column whose ranges are compared; by default those of the last merge.",
        show_default=False,
    ),
]
Strategy = Annotated[
    MergeStrategy,
    typer.Option(
        help="upsert replaces and appends, insert only appends, update only replaces; full_merge "
        "also deletes all other rows; deduplicate first keeps one source row for each key."
    ),
]
Engine = Annotated[
    EngineName | None,
    typer.Option(
        help="What does the work; spark unless the config file says otherwise.", show_default=False
    ),
]
PartitionBy = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN",
        parser=parse_column,
        help="A hive partition column; by default those of the dataset. Repeat it for several.",
        show_default=False,
    ),
]
OrderBy = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN",
        parser=parse_column,
        help="Of source rows with one key keep the one with the greatest value here.",
        show_default=False,
    ),
]
DuplicatesOption = Annotated[
    Duplicates, typer.Option("--duplicates", help="What to do with a key twice in the source.")
]
NullsOption = Annotated[
    Nulls, typer.Option("--nulls", help="Refuse keys that are NULL, or let NULL match NULL.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Tell what the merge would do, and do not do it.")
]
TrustPartitions = Annotated[
    bool,
    typer.Option(
        "--trust-partitions", help="Do not look for keys in partitions the source has no rows for."
    ),
]
AllowEmpty = Annotated[
    bool, typer.Option("--allow-empty", help="Let full_merge with no source rows delete every row.")
]
FormatOption = Annotated[
    Format | None,
    typer.Option(
        "--format",
        help="What SOURCE is, if its name does not tell.",
        show_default=False,
        rich_help_panel=_SOURCE,
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        metavar="CHARACTER",
        parser=parse_delimiter,
        help="What separates the fields of CSV; a comma, and a tab in .tsv files.",
        show_default=False,
        rich_help_panel=_SOURCE,
    ),
]
InferTypes = Annotated[
    bool,
    typer.Option(
        "--infer-types",
        help="Find the types of CSV and JSON from their values, not from the target.",
        rich_help_panel=_SOURCE,
    ),
]
WriteModeOption = Annotated[
    Mode,
    typer.Option("--mode", help="Add files to those that are there, or replace all of them."),
]
CompressionOption = Annotated[
    Compression,
    typer.Option(
        "--compression",
        help="The codec of new files.",
        case_sensitive=False,
        rich_help_panel=_FILES,
    ),
]
MaxRowsPerFile = Annotated[
    int,
    typer.Option(
        metavar="COUNT",
        parser=parse_count,
        help="No new file gets more rows.",
        rich_help_panel=_FILES,
    ),
]
RowGroupSize = Annotated[
    int,
    typer.Option(
        metavar="COUNT",
        parser=parse_count,
        help="No row group of a new file gets more rows.",
        rich_help_panel=_FILES,
    ),
]
Bloom = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN",
        parser=parse_column,
        help="A column that gets bloom filters in new files; repeat it for several.",
        show_default=False,
        rich_help_panel=_FILES,
    ),
]
MaxRewriteFraction = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        parser=parse_fraction,
        help="Refuse to rewrite more than this share of the target's bytes, from 0 to 1.",
        show_default=False,
        rich_help_panel=_GUARDS,
    ),
]
MaxRewriteBytes = Annotated[
    int | None,
    typer.Option(
        metavar="SIZE",
        parser=parse_size,
        help="Refuse to rewrite files of more bytes, for example 500MB.",
        show_default=False,
        rich_help_panel=_GUARDS,
    ),
]
LockTimeout = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        parser=parse_seconds,
        help="How long to wait for another writer.",
        rich_help_panel=_GUARDS,
    ),
]
StorageOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="What fsspec needs to open a URL; KEY:=JSON for what is no text. Repeat it.",
        show_default=False,
        rich_help_panel=_STORAGE,
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="A config file instead of ~/.config/fsspeckit/config.toml.",
        show_default=False,
        rich_help_panel=_STORAGE,
    ),
]
ControlDir = Annotated[
    str | None,
    typer.Option(
        metavar="DIRECTORY",
        help="Where staging, records and lock live, if not beside the dataset.",
        show_default=False,
        rich_help_panel=_STORAGE,
    ),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print JSON on stdout.", rich_help_panel=_SHOWN),
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="No progress and no notes.", rich_help_panel=_SHOWN),
]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Show the traceback of an error.", rich_help_panel=_SHOWN),
]
Limit = Annotated[
    int | None,
    typer.Option(
        metavar="COUNT",
        parser=parse_count,
        help="Show only the latest so many.",
        show_default=False,
    ),
]
Abandon = Annotated[
    bool,
    typer.Option("--abandon", help="Go back to the state before a commit whose files were lost."),
]
