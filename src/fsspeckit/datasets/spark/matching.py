"""What the driver makes of what tasks found: matches by file, and rows that are to be inserted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from fsspeckit.core.keys import python_value
from fsspeckit.datasets.engine import FileMatch
from fsspeckit.datasets.spark.tasks import InsertShare, RowPairs
from fsspeckit.errors import DuplicateKeyError, NullKeyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fsspeckit.core.matching import IndexedKeys
    from fsspeckit.datasets.pipeline import MergeOptions
    from fsspeckit.datasets.spark.keys import KeyFacts, StagedKeys
    from fsspeckit.datasets.spark.source import InMemorySource, SparkSource
    from fsspeckit.datasets.spark.tasks import FoundFile

    Rows = NDArray[np.int64]
    AnySource = SparkSource | InMemorySource

__all__ = [
    "NO_ROWS",
    "check_facts",
    "insert_shares",
    "match_of",
    "merge_matches",
    "sample_keys_of",
    "scattered_files",
    "some_rows",
]

NO_ROWS: Final[NDArray[np.int64]] = np.empty(0, np.int64)

_LISTED_ROWS = 65_536
_SAMPLES = 5
_SCATTERED = 4
_FEW_READS = 32


def merge_matches(known: FileMatch | None, rows: int, row_groups: Sequence[int]) -> FileMatch:
    """What is known of a file, with what one more task found in it."""
    if known is None:
        return FileMatch(rows, tuple(row_groups))
    return FileMatch(known.rows + rows, tuple(sorted({*known.row_groups, *row_groups})))


def some_rows(keys: IndexedKeys | StagedKeys, wanted: NDArray[np.bool_]) -> Rows:
    """A few source rows of keys that are wanted; nothing is read where none is."""
    return keys.rows[np.flatnonzero(wanted)[:_SAMPLES]] if wanted.any() else NO_ROWS


def match_of(files: Sequence[FoundFile]) -> FileMatch:
    """What tasks found in parts of one file, together."""
    match: FileMatch | None = None
    for file in files:
        match = merge_matches(match, file.rows, file.row_groups)
    assert match is not None
    return match


def insert_shares(source: AnySource, rows: Rows) -> tuple[InsertShare, ...]:
    """Source rows to insert, which ascend: here if they are few, else listed in staged files."""
    if not len(rows):
        return ()
    if len(rows) <= _LISTED_ROWS:
        return (InsertShare(int(rows[0]), int(rows[-1]) + 1, rows),)
    stage = source.stage()
    root, directory = stage.storage.root, stage.path
    some = [rows[start : start + _LISTED_ROWS] for start in range(0, len(rows), _LISTED_ROWS)]
    return tuple(
        InsertShare(
            int(one[0]),
            int(one[-1]) + 1,
            None,
            (RowPairs.of(root, directory, np.arange(len(one)), one),),
            len(one),
        )
        for one in some
    )


def scattered_files(found: Sequence[FoundFile], source: AnySource) -> frozenset[str]:
    """The files whose source rows are read several times over where each file reads its own."""
    rows = source.rows()
    groups = max(len(rows.starts) - 1, 1)
    per_group = rows.num_rows / groups
    far = [f for f in found if f.reads > 2 and f.reads * per_group > _SCATTERED * f.rows]
    reads = sum(file.reads for file in far)
    # To route rows is to write and read them once more, in a job that takes a second itself.
    if reads <= _SCATTERED * groups or reads <= _FEW_READS:
        return frozenset()
    return frozenset(file.path for file in far)


def sample_keys_of(
    source: AnySource, key_columns: Sequence[str], rows: Rows
) -> list[tuple[Any, ...]]:
    """The keys of a few source rows, for an error message."""
    if not len(rows):
        return []
    table = source.take(rows, list(key_columns))
    columns = [[python_value(value) for value in column] for column in table.columns]
    return list(zip(*columns, strict=True))


def check_facts(source: AnySource, facts: Sequence[KeyFacts], request: MergeOptions) -> None:
    """Refuse NULL and repeated keys, as the request says."""
    nulls = [sum(counts) for counts in zip(*(one.nulls for one in facts), strict=True)]
    found = {name: n for name, n in zip(request.key_columns, nulls, strict=True) if n}
    if found and request.null_keys == "error":
        raise NullKeyError.found(found)
    repeated = sum(one.repeated for one in facts)
    if repeated and request.duplicates == "error" and not request.order_by:
        rows = np.array([row for one in facts for row in one.samples][:_SAMPLES], np.int64)
        samples = sample_keys_of(source, request.key_columns, rows)
        raise DuplicateKeyError.found(request.key_columns, repeated, samples)
