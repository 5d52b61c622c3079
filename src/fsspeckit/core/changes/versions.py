"""Versions: every state of a key, with the sequences from which and until which it held.

A version ends where the next change of its key begins. So it is enough to know where changes are:
the starts and ends of the versions that are stored, the tombstones, and the new changes. A new
version ends at the next of these, and a version that is stored ends earlier if a new change
falls into it. Whatever the order in which changes arrive, the ends are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.arrow_compat import take_rows
from fsspeckit.core.changes.feed import (
    END,
    MARK,
    SEQUENCE,
    START,
    shared_column,
    shared_columns,
)
from fsspeckit.core.keys import KeyIndex, canonical_keys
from fsspeckit.core.schema_conform import conform_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Codes = NDArray[np.int64]


@dataclass(frozen=True)
class VersionRows:
    """Makes the rows to upsert, by key and start, of changes and the versions that are stored."""

    keys: tuple[str, ...]
    sequence_by: str
    schema: pa.Schema
    """The columns of the result, as the target stores them."""

    tombstones: pa.Table | None
    """Keys and sequences of deletions that are remembered."""

    def __call__(self, changes: pa.Table, versions: pa.Table) -> pa.Table:
        """Return new versions, and stored ones with another end.

        All changes and versions of a key must be given together.

        Args:
            changes: Marked changes.
            versions: The stored versions of their keys; the order does not matter.
        """
        points = _Points.of(self, changes, versions)
        new = self._new_versions(changes, points)
        changed = np.flatnonzero(points.ends_of(points.starts) != points.ends)
        closed = take_rows(versions, pa.array(changed))
        ends = points.values(points.ends_of(points.starts[changed]))
        closed = closed.set_column(closed.schema.get_field_index(END), END, ends)
        parts = [conform_table(part, self.schema) for part in (new, closed)]
        return pa.concat_tables(parts).unify_dictionaries()

    def _new_versions(self, changes: pa.Table, points: _Points) -> pa.Table:
        """Return the versions that begin with a change."""
        deletes = np.zeros(changes.num_rows, bool)
        if MARK in changes.column_names:
            deletes = np.asarray(changes.column(MARK))
        # A change that arrives again begins no version, and a key is not deleted and changed
        # by one sequence.
        known = np.concatenate([points.starts, points.changes[deletes], points.tombstones])
        candidates = np.flatnonzero(~deletes & ~np.isin(points.changes, known))
        _, last = np.unique(points.changes[candidates][::-1], return_index=True)
        rows = np.sort(candidates[len(candidates) - 1 - last])
        new = take_rows(changes, pa.array(rows))
        start = new.column(self.sequence_by)
        ends = points.values(points.ends_of(points.changes[rows]))
        stored = [name for name in self.schema.names if name not in (START, END)]
        return new.select(stored).append_column(START, start).append_column(END, ends)


@dataclass(frozen=True)
class _Points:
    """Where changes are: codes of key and sequence, which ascend with the sequence of a key."""

    changes: Codes
    starts: Codes
    ends: Codes
    """Of the versions that are stored; -1 where one has no end."""

    tombstones: Codes
    every: Codes
    """All of them, ascending and distinct."""

    width: int
    """The greatest sequence of one key and the least of the next are this far apart."""

    sequences: pa.Array
    """The sequence of each code, by its remainder; the first one is NULL."""

    @classmethod
    def of(cls, rules: VersionRows, changes: pa.Table, versions: pa.Table) -> _Points:
        remembered = rules.tombstones
        tables = [changes, versions, *([] if remembered is None else [remembered])]
        columns = shared_columns(rules.keys, *(table.schema for table in tables))
        if remembered is not None:
            # There may be many, and those of other keys play no part.
            index = KeyIndex(canonical_keys(changes, columns).combine_chunks())
            known = index.lookup(canonical_keys(remembered, columns)) >= 0
            remembered = remembered.filter(pa.array(known))
            tables[2] = remembered
        keys = pa.concat_tables([canonical_keys(table, columns) for table in tables])
        groups = np.split(
            KeyIndex(keys.combine_chunks()).groups,
            np.cumsum([table.num_rows for table in tables])[:-1],
        )
        sequences = [
            changes.column(rules.sequence_by),
            versions.column(START),
            versions.column(END),
        ]
        if remembered is not None:
            sequences.append(remembered.column(SEQUENCE))
        column = shared_column(rules.sequence_by, *(one.type for one in sequences))
        canonical = pa.concat_arrays(
            [chunk for one in sequences for chunk in column.canonical(one).chunks]
        )
        distinct = pc.unique(canonical).drop_null()
        ordered = distinct.take(pc.array_sort_indices(distinct))
        ranks = np.asarray(pc.index_in(canonical, value_set=ordered).fill_null(-1), np.int64) + 1
        width = len(ordered) + 1
        cuts = np.cumsum([len(one) for one in sequences])[:-1]
        parts = np.split(ranks, cuts)
        of_keys = [groups[0], groups[1], groups[1], *groups[2:]]
        codes = [group * width + part for group, part in zip(of_keys, parts, strict=True)]
        ends = np.where(parts[2] > 0, codes[2], -1)
        dead = codes[3] if remembered is not None else np.empty(0, np.int64)
        every = np.unique(np.concatenate([codes[0], codes[1], ends[ends >= 0], dead]))
        values = column.original(pa.concat_arrays([pa.nulls(1, ordered.type), ordered]))
        return cls(codes[0], codes[1], ends, dead, every, width, values)

    def ends_of(self, codes: Codes) -> Codes:
        """Return the next change of the same key after each; -1 where there is none."""
        following = np.searchsorted(self.every, codes, side="right")
        found = np.append(self.every, -1)[following]
        return np.where(found // self.width == codes // self.width, found, -1)

    def values(self, codes: Codes) -> pa.Array:
        """Return the sequences of codes; NULL for -1."""
        return self.sequences.take(pa.array(np.where(codes < 0, 0, codes % self.width)))
