"""What options can be set to; light, because every ``--help`` needs it."""

from __future__ import annotations

from enum import StrEnum

from fsspeckit.core.merge import MergeStrategy

__all__ = [
    "Compression",
    "Duplicates",
    "EngineName",
    "Format",
    "MergeStrategy",
    "Mode",
    "Nulls",
]


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
