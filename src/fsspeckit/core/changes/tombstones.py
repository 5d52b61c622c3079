"""Tombstones: which keys were deleted by which sequence, for as long as the caller wants.

Each commit that deletes writes its tombstones into a new file. Files that are not much larger are
joined with it, so their number grows with the logarithm of the tombstones, and a commit rewrites
few of them. A file is dropped when the newest tombstone in it is too old.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.changes.feed import DELETED_AT, SEQUENCE, DropOvertaken, shared_columns
from fsspeckit.core.keys import KeyIndex, canonical_keys
from fsspeckit.errors import InvalidArgumentError
from fsspeckit.storage import TombstoneChange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsspeckit.storage import TombstoneFile, TombstoneLimits, Tombstones


def decode_tombstones(data: bytes) -> pa.Table:
    """Read the tombstones of a file."""
    with pa.ipc.open_stream(pa.py_buffer(data)) as stream:
        return stream.read_all()


def _encode(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def known_tombstones(
    tables: Sequence[pa.Table | None], keys: Sequence[str], oldest: float
) -> pa.Table | None:
    """Return the tombstones with these keys that are young enough; None if there are none."""
    wanted = [*keys, SEQUENCE]
    fitting = [
        table.filter(pc.greater_equal(table.column(DELETED_AT), oldest)).select(wanted)
        for table in tables
        if table is not None and set(table.column_names) == {*wanted, DELETED_AT}
    ]
    fitting = [table for table in fitting if table.num_rows]
    if not fitting:
        return None
    columns = shared_columns(wanted, *(table.schema for table in fitting))
    types = pa.schema([(column.name, column.type) for column in columns])
    return pa.concat_tables([table.cast(types) for table in fitting])


def plan_tombstones(
    base: Tombstones,
    tables: Sequence[pa.Table | None],
    deletes: pa.Table | None,
    *,
    keys: Sequence[str],
    only_last: bool,
    seconds: float,
    now: float,
    limits: TombstoneLimits,
) -> TombstoneChange:
    """Return what a commit does to the tombstones.

    Args:
        base: Those that there are.
        tables: The content of their files; None for those that are too old.
        deletes: Keys and sequences of new deletions.
        keys: The key columns.
        only_last: Whether only the last deletion of a key is remembered.
        seconds: How long tombstones are kept.
        now: The time of new ones, in seconds since 1970.
        limits: How many there may be.

    Raises:
        InvalidArgumentError: If there are too many.
    """
    oldest = now - seconds
    kept = [
        (file, table)
        for file, table in zip(base.files, tables, strict=True)
        if table is not None and file.newest >= oldest
    ]
    known = known_tombstones([table for _, table in kept], keys, oldest)
    if not seconds:
        deletes = None  # they would have expired before anybody reads them
    new = None if deletes is None else _unknown(deletes, known, tuple(keys), only_last)
    if new is None or not new.num_rows:
        return TombstoneChange(base, tuple(file for file, _ in kept), seconds)
    times = pa.repeat(pa.scalar(now, pa.float64()), new.num_rows)
    rules = _JoinRules(tuple(keys) if only_last else (*keys, SEQUENCE), oldest)
    joined = rules.join(kept, new.append_column(DELETED_AT, times), 2)
    total = joined.num_rows + sum(file.rows for file, _ in kept)
    if total > limits.max_rows:
        # Some of them may have expired, or be of a key that was deleted again.
        joined = rules.join(kept, joined, limits.max_rows)
        total = joined.num_rows + sum(file.rows for file, _ in kept)
    if total > limits.max_rows:
        raise InvalidArgumentError(
            f"{total:,} deleted keys would have to be remembered for {seconds / 86400:g} days, "
            f"more than {limits.max_rows:,}. Nothing was changed.\n"
            "Hint: pass a shorter tombstone_retention, as long as changes can be late.",
            argument="tombstone_retention",
        )
    return TombstoneChange(
        base,
        tuple(file for file, _ in kept),
        seconds,
        _encode(joined.combine_chunks()),
        joined.num_rows,
        now,
    )


def _unknown(
    deletes: pa.Table, known: pa.Table | None, keys: tuple[str, ...], only_last: bool
) -> pa.Table:
    """Return the deletions that are not remembered yet, each once."""
    if only_last:
        newer = deletes
        if known is not None:
            newer = DropOvertaken(keys, SEQUENCE, known)(deletes)
        return _last_of_each(newer, keys)
    every = (*keys, SEQUENCE)
    if known is not None and deletes.num_rows:
        columns = shared_columns(every, deletes.schema, known.schema)
        index = KeyIndex(canonical_keys(known, columns).combine_chunks())
        is_new = index.lookup(canonical_keys(deletes, columns)) < 0
        deletes = deletes.filter(pa.array(is_new))
    return _last_of_each(deletes, every)


def _last_of_each(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return one row for each key, the one with the greatest sequence."""
    if not table.num_rows:
        return table
    columns = shared_columns((*keys, *([] if SEQUENCE in keys else [SEQUENCE])), table.schema)
    canonical = canonical_keys(table, columns)
    index = KeyIndex(canonical.select(list(keys)).combine_chunks())
    if index.is_unique:
        return table
    order = np.asarray(pc.sort_indices(canonical.column(SEQUENCE))).astype(np.int64)
    winners = np.zeros(int(index.groups.max()) + 1, np.int64)
    winners[index.groups[order]] = order
    return table.take(pa.array(np.sort(winners)))


@dataclass(frozen=True)
class _JoinRules:
    keys: tuple[str, ...]
    """The columns of which the last tombstone is kept."""

    oldest: float
    """The time before which they have expired."""

    def join(
        self, kept: list[tuple[TombstoneFile, pa.Table]], new: pa.Table, times: int
    ) -> pa.Table:
        """Join new tombstones with files up to so many times as large; these leave ``kept``."""
        joined = new
        while kept and kept[-1][0].rows <= times * joined.num_rows:
            table = kept[-1][1]
            if table.schema != new.schema:
                break
            kept.pop()
            young = table.filter(pc.greater_equal(table.column(DELETED_AT), self.oldest))
            joined = pa.concat_tables([young, joined])
        return _last_of_each(joined, self.keys)
