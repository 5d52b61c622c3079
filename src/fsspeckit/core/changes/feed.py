"""What is done to each change by itself: it is marked, reduced to its columns, or left out.

These are functions of a piece of the feed, whatever its size, so an engine may call them in any
process.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.keys import (
    KeyColumn,
    KeyIndex,
    canonical_keys,
    common_type,
    key_column,
    plain_values,
)
from fsspeckit.errors import InvalidArgumentError, NullKeyError, SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fsspeckit.core.conditions import Condition

MARK = "__fsspeckit_delete"
"""The column that marks the changes that delete; it is not stored."""

EVALUATED = "__fsspeckit_evaluated"
"""The column of what an engine made of a condition of its own kind; it is not stored."""

START, END = "__START_AT", "__END_AT"
"""From and until which sequence a version of a row holds; Spark uses the same names."""

SEQUENCE, DELETED_AT = "__fsspeckit_sequence", "__fsspeckit_deleted_at"
"""The columns of tombstones beside the keys: the sequence of the deletion, and when it came."""

RESERVED = (MARK, EVALUATED, START, END, SEQUENCE, DELETED_AT)
"""Names that no column of a feed may have."""


def shared_columns(names: Sequence[str], *schemas: pa.Schema) -> list[KeyColumn]:
    """Return how columns are compared that several tables have.

    Raises:
        SchemaMismatchError: If the types of a column are never equal.
    """
    return [shared_column(name, *(schema.field(name).type for schema in schemas)) for name in names]


def shared_column(name: str, *types: pa.DataType) -> KeyColumn:
    """Return how a column is compared that has several types.

    Raises:
        SchemaMismatchError: If values of these types are never equal.
    """
    try:
        return key_column(name, reduce(common_type, types))
    except SchemaMismatchError as error:
        raise SchemaMismatchError(f"column {name!r}: {error}") from error


def feed_schema(stored: pa.Schema, sequence_by: str) -> pa.Schema:
    """Return the columns that a feed shares with the rows that are stored, with their types."""
    fields = [field for field in stored if field.name not in (START, END)]
    if sequence_by not in stored.names and START in stored.names:
        fields.append(pa.field(sequence_by, stored.field(START).type))
    return pa.schema(fields)


@dataclass(frozen=True)
class MarkChanges:
    """Keeps the columns of changes that are needed, and marks those that delete."""

    columns: tuple[str, ...]
    keys: tuple[str, ...]
    sequence_by: str
    deletes: Condition | None
    """Selects the changes that delete; None if none does, and then none is marked."""

    def __call__(self, changes: pa.Table) -> pa.Table:
        """Return marked changes.

        Raises:
            InvalidArgumentError: If a change has no sequence.
            NullKeyError: If a key is NULL.
        """
        counts = {name: _null_count(changes.column(name)) for name in self.keys}
        if found := {name: count for name, count in counts.items() if count}:
            raise NullKeyError.of_changes(found)
        if nulls := _null_count(changes.column(self.sequence_by)):
            raise InvalidArgumentError(
                f"sequence_by {self.sequence_by!r} is NULL in {nulls:,} changes: their place in "
                "the feed is not known.\nHint: leave them out, or give them a sequence.",
                argument="sequence_by",
            )
        kept = changes.select(list(self.columns))
        if self.deletes is None:
            return kept
        return kept.append_column(pa.field(MARK, pa.bool_(), False), self.deletes.mask(changes))


def _null_count(column: pa.ChunkedArray) -> int:
    # Decoded, because NULL may be a value of a dictionary.
    return sum(plain_values(chunk).null_count for chunk in column.chunks)


@dataclass(frozen=True)
class SelectDeletes:
    """Reduces marked changes to the keys and sequences of those that delete."""

    keys: tuple[str, ...]
    sequence_by: str

    def __call__(self, changes: pa.Table) -> pa.Table:
        """Return keys and sequences, under the names that tombstones have."""
        wanted = changes.filter(changes.column(MARK)).select([*self.keys, self.sequence_by])
        return pa.table([_plain(column) for column in wanted.columns], names=[*self.keys, SEQUENCE])


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    chunks = [plain_values(chunk) for chunk in column.chunks]
    return pa.chunked_array(chunks, chunks[0].type if chunks else plain_values(_empty(column)).type)


def _empty(column: pa.ChunkedArray) -> pa.Array:
    return pa.array([], column.type)


@dataclass(frozen=True)
class DropOvertaken:
    """Leaves out the changes that are not newer than the deletion of their key."""

    keys: tuple[str, ...]
    sequence_by: str
    tombstones: pa.Table
    """Keys and sequences of deletions; a key may occur several times."""

    def __call__(self, changes: pa.Table) -> pa.Table:
        """Return the others."""
        columns = tuple(shared_columns(self.keys, changes.schema, self.tombstones.schema))
        kinds = (changes.schema.field(self.sequence_by).type, self.tombstones.field(SEQUENCE).type)
        sequence = shared_column(self.sequence_by, *kinds)
        if not changes.num_rows:
            return changes
        index, last = self._last(columns, sequence)
        found = index.lookup(canonical_keys(changes, columns))
        limit = last.take(pa.array(found, mask=found < 0))
        own = sequence.canonical(changes.column(self.sequence_by))
        return changes.filter(pc.fill_null(pc.greater(own, limit), True))

    def _last(
        self, columns: tuple[KeyColumn, ...], sequence: KeyColumn
    ) -> tuple[KeyIndex, pa.ChunkedArray]:
        """Return the deleted keys, and the greatest sequence for the first row of each."""
        known = self._indexed.get((columns, sequence))
        if known is None:
            index = KeyIndex(canonical_keys(self.tombstones, columns).combine_chunks())
            last = _greatest(index, sequence.canonical(self.tombstones.column(SEQUENCE)))
            known = self._indexed[columns, sequence] = (index, last)
        return known

    @cached_property
    def _indexed(self) -> dict[Any, tuple[KeyIndex, pa.ChunkedArray]]:
        """What was made for a piece of the feed is used for the others."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """Without the index, which another process makes itself."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def _greatest(index: KeyIndex, sequences: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return for the first row of each key the greatest sequence of the key."""
    if index.is_unique:
        return sequences
    order = np.asarray(pc.sort_indices(sequences)).astype(np.int64)
    winners: NDArray[np.int64] = np.zeros(len(sequences), np.int64)
    winners[index.groups[order]] = order  # of several the last assignment stays
    return sequences.take(pa.array(winners[index.groups]))
