"""Positions: which target rows have which source keys, found by Arrow kernels in one process."""

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

__all__ = [
    "IndexedKeys",
    "Positions",
    "chosen_rows",
    "find_positions",
    "index_keys",
    "key_and_order_columns",
    "keys_of_file",
    "moving_keys",
    "row_group_starts",
]


@dataclass(frozen=True)
class IndexedKeys(SourceKeys):
    """The keys of the source rows that take part, and where those rows are."""

    index: KeyIndex | None
    """None where an engine looks keys up in its own way."""

    chosen: Rows | None = None
    """The number of each such row in the source; None if all rows take part."""

    @property
    def rows(self) -> Rows:
        """The number of each such row in the source."""
        return np.arange(self.count) if self.chosen is None else self.chosen

    @property
    def indexed(self) -> IndexedKeys:
        """Themselves: they are here, and not somewhere where a task reads them."""
        return self

    def source_rows(self, keys: Rows) -> Rows:
        """The source rows of some keys, by the numbers of the keys."""
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
    """The source columns that say which rows take part."""
    names = [c.name for c in (*target.key_columns, *target.partition_columns)]
    return [name for name in dict.fromkeys((*names, *request.order_by)) if name in available]


def index_keys(table: pa.Table, target: Target, request: MergeOptions) -> IndexedKeys:
    """The keys that take part, after the NULL and duplicate policies.

    Args:
        table: The columns of :func:`key_and_order_columns`, of all source rows.
        target: The dataset.
        request: The policies.

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
    """The source rows that remain when every key may occur once; None if all do.

    Args:
        table: The columns of :func:`key_and_order_columns`, of all source rows.
        request: The policies, which are checked in any case.
        groups: The number of each row's key; None if no key occurs twice.

    Raises:
        DuplicateKeyError: If a key occurs twice and nothing says which row wins.
    """
    if groups is None:
        nothing = np.empty(0, np.int64)
        chosen_rows(table.slice(0, 0), request, nothing)
        return None
    order_by = request.order_by or None
    return winning_rows(table, groups, list(request.key_columns), request.duplicates, order_by)


def find_positions(
    target: Target,
    keys: IndexedKeys,
    sieve: KeyPrefilter | None,
    number: int,
    row_groups: tuple[int, ...],
) -> Positions:
    """The matching rows of one file, by its number; a sieve may know where not to look."""
    assert keys.index is not None
    positions, rows, hit = [], [], []
    for group, scanned, found in keys_of_file(target, sieve, number, row_groups):
        row = keys.index.lookup(found)
        here = np.flatnonzero(row >= 0)
        if len(here):
            positions.append(scanned[here])
            rows.append(row[here])
            hit.append(group)
    none = [np.empty(0, np.int64)]
    return Positions(np.concatenate(positions + none), np.concatenate(rows + none), tuple(hit))


def keys_of_file(
    target: Target, sieve: KeyPrefilter | None, number: int, row_groups: Sequence[int]
) -> Iterator[tuple[int, Rows, pa.Table]]:
    """The canonical keys of a file, but for some that the sieve holds back.

    Yields:
        The row group, the positions of some of its rows in the file, and their keys.
    """
    footer = target.footers[number]
    starts = row_group_starts(footer)
    constants = {name: part.values[number] for name, part in target.partitions.items()}
    in_key = {c.name: constants[c.name] for c in target.key_columns if c.name in constants}
    for group, rows, found in scan_keys(
        target.root, footer, row_groups, target.key_columns, in_key, sieve
    ):
        yield group, rows + starts[group], found


def row_group_starts(footer: FileFooter) -> Rows:
    """The position of the first row of each row group, and the number of rows at the end."""
    rows = [group.rows for group in footer.row_groups]
    return np.concatenate([[0], np.cumsum(rows, dtype=np.int64)])


def moving_keys(target: Target, keys: IndexedKeys, number: int, found: Positions) -> Rows:
    """Which matches of a file would move to another partition."""
    if not target.partition_columns or not len(found.keys):
        return np.empty(0, np.int64)
    names = [part.name for part in target.partition_columns]
    wanted = keys.keys.select(names).take(pa.array(found.keys))
    here = pa.table(
        [
            part.canonical(
                target.partitions[part.name].values.take(pa.array([number] * len(found.keys)))
            )
            for part in target.partition_columns
        ],
        names=names,
    )
    return np.flatnonzero(different_rows(wanted, here))
