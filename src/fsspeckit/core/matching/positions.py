"""Positions: find the target rows that have a source key, with Arrow kernels in one process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fsspeckit.core.keys import KeyIndex, SourceKeys, different_rows, source_keys, winning_rows
from fsspeckit.core.matching.key_scan import scan_keys

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from fsspeckit.core.parquet import KeyPrefilter
    from fsspeckit.core.planning import FileFooter, Target
    from fsspeckit.datasets.pipeline import MergeOptions

    Rows = NDArray[np.int64]


@dataclass(frozen=True)
class IndexedKeys(SourceKeys):
    """The keys of the source rows that take part, and the numbers of those rows."""

    index: KeyIndex | None
    """None where an engine joins keys itself."""

    chosen: Rows | None = None
    """The number of each such row in the source; None if all rows take part."""

    @property
    def rows(self) -> Rows:
        """The number of each such row in the source."""
        return np.arange(self.count) if self.chosen is None else self.chosen

    @property
    def indexed(self) -> IndexedKeys:
        """Themselves: these keys are in memory, not staged for a task to read."""
        return self

    def source_rows(self, keys: Rows) -> Rows:
        """Return the source rows of keys that are given by number."""
        return keys if self.chosen is None else self.chosen[keys]


@dataclass(frozen=True)
class Positions:
    """Which rows of a file match, and with which of the keys."""

    positions: Rows
    keys: Rows
    """Numbers of keys, not yet of source rows."""

    row_groups: tuple[int, ...]


def key_and_order_columns(
    target: Target, request: MergeOptions, available: Sequence[str]
) -> list[str]:
    """Return the source columns that decide which rows take part."""
    names = [c.name for c in (*target.key_columns, *target.partition_columns)]
    return [name for name in dict.fromkeys((*names, *request.order_by)) if name in available]


def index_keys(table: pa.Table, target: Target, request: MergeOptions) -> IndexedKeys:
    """Return the keys that take part, after the NULL and duplicate policies.

    ``table`` has the columns of :func:`key_and_order_columns`, of all source rows.

    Raises:
        NullKeyError: If a key is NULL and may not be.
        DuplicateKeyError: If a key occurs twice and nothing says which row wins.
    """
    # In one piece, so that the index shares the memory of the keys.
    found = source_keys(table, target, request.null_keys).keys.combine_chunks()
    key_names = list(request.key_columns)
    index = KeyIndex(found.select(key_names))
    rows = chosen_rows(table, request, None if index.is_unique else index.groups)
    if rows is None:
        return IndexedKeys(found, index)
    found = found.take(pa.array(rows))
    return IndexedKeys(found, KeyIndex(found.select(key_names)), rows)


def chosen_rows(table: pa.Table, request: MergeOptions, groups: Rows | None) -> Rows | None:
    """Return the source rows that remain when every key may occur once; None if all do.

    The policies are checked even if no key occurs twice, for which ``groups`` is None.

    Raises:
        DuplicateKeyError: If a key occurs twice and nothing says which row wins.
    """
    if groups is None:
        chosen_rows(table.slice(0, 0), request, np.empty(0, np.int64))
        return None
    order_by = request.order_by or None
    return winning_rows(table, groups, list(request.key_columns), request.duplicates, order_by)


def find_positions(
    target: Target,
    keys: IndexedKeys,
    prefilter: KeyPrefilter | None,
    number: int,
    row_groups: tuple[int, ...],
) -> Positions:
    """Return the matching rows of the file with this number."""
    assert keys.index is not None
    none = np.empty(0, np.int64)
    positions, found_keys, matched = [none], [none], []
    for group, scanned, found in keys_of_file(target, prefilter, number, row_groups):
        looked_up = keys.index.lookup(found)
        hits = np.flatnonzero(looked_up >= 0)
        if len(hits):
            positions.append(scanned[hits])
            found_keys.append(looked_up[hits])
            matched.append(group)
    return Positions(np.concatenate(positions), np.concatenate(found_keys), tuple(matched))


def keys_of_file(
    target: Target, prefilter: KeyPrefilter | None, number: int, row_groups: Sequence[int]
) -> Iterator[tuple[int, Rows, pa.Table]]:
    """Read the canonical keys of a file, except those that the prefilter rejects.

    Yields:
        The row group, the positions of rows in the file, and their keys.
    """
    footer = target.footers[number]
    starts = row_group_starts(footer)
    constants = {
        column.name: target.partitions[column.name].values[number]
        for column in target.key_columns
        if column.name in target.partitions
    }
    for group, rows, keys in scan_keys(
        target.root, footer, row_groups, target.key_columns, constants, prefilter
    ):
        yield group, rows + starts[group], keys


def row_group_starts(footer: FileFooter) -> Rows:
    """Return the position of the first row of each row group, then the number of rows."""
    rows = [group.rows for group in footer.row_groups]
    return np.concatenate([[0], np.cumsum(rows, dtype=np.int64)])


def moving_keys(target: Target, keys: IndexedKeys, number: int, found: Positions) -> Rows:
    """Return which matches of a file would move to another partition."""
    if not target.partition_columns:
        return np.empty(0, np.int64)
    wanted = keys.keys.select([part.name for part in target.partition_columns])
    return np.flatnonzero(flag_moved_rows(target, number, wanted.take(pa.array(found.keys))))


def flag_moved_rows(target: Target, number: int, rows: pa.Table) -> NDArray[np.bool_]:
    """Return for each row whether it belongs to another partition than the rows of a file.

    Args:
        target: The dataset.
        number: The number of the file.
        rows: Canonical partition values, a column for each partition column in their order.
    """
    if not target.partition_columns or not rows.num_rows:
        return np.zeros(rows.num_rows, bool)
    own = [
        part.canonical(target.partitions[part.name].values.slice(number, 1))[0]
        for part in target.partition_columns
    ]
    columns = [pa.repeat(value, rows.num_rows) for value in own]
    return different_rows(rows, pa.table(columns, names=rows.column_names))
