"""What every result is checked by: rows, keys, and a checksum over all columns, in no order."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.peers.tables import KEY, mix

if TYPE_CHECKING:
    from benchmarks.peers.tables import Words

_BATCH = 250_000
_THREADS = 2
_WIDTH = 40  # bytes of the longest string, in whole words


@dataclass(frozen=True)
class Digest:
    """What a table holds, in three numbers."""

    rows: int
    keys: int
    """How many different keys."""

    checksum: int
    """The sum of a hash of each row, modulo 2**64."""

    def difference(self, right: Digest) -> str:
        """What is wrong with a table that should be another, or nothing."""
        if self == right:
            return ""
        if (self.rows, self.keys) == (right.rows, right.keys):
            return "the checksum of the values differs"
        return f"{self.rows:,} rows with {self.keys:,} keys, not {right.rows:,} with {right.keys:,}"

    def replacing(self, old: Digest, new: Digest) -> Digest:
        """Of the table in which other rows have taken the place of some, under any keys."""
        rows = self.rows - old.rows + new.rows
        return Digest(rows, rows, (self.checksum - old.checksum + new.checksum) % 2**64)


def digest_of(table: pa.Table, schema: pa.Schema) -> Digest:
    """The digest of what a system has read, whatever types and order of columns it reads with."""
    ordered = table.select(schema.names)
    starts = range(0, ordered.num_rows, _BATCH)
    with ThreadPoolExecutor(_THREADS) as pool:
        parts = list(pool.map(lambda start: _part(ordered.slice(start, _BATCH), schema), starts))
    checksum = sum(checksum for checksum, _ in parts) % 2**64
    return Digest(table.num_rows, _distinct([keys for _, keys in parts]), checksum)


def _part(rows: pa.Table, schema: pa.Schema) -> tuple[int, Words]:
    """The checksum of some rows, and their keys."""
    words = [_words(column, field.type) for column, field in zip(rows.columns, schema, strict=True)]
    checksum = int(np.sum(_rows(words), dtype=np.uint64))
    return checksum, words[schema.get_field_index(KEY)]


def _distinct(keys: list[Words]) -> int:
    if not keys:
        return 0
    ordered = np.sort(np.concatenate(keys))  # several times as fast as np.unique
    return 1 + int(np.count_nonzero(ordered[1:] != ordered[:-1]))


def _rows(words: list[Words]) -> Words:
    """One hash for each row: a value in another row or another column gives another."""
    return mix(_combined(words))


def _combined(words: list[Words]) -> Words:
    total = np.zeros(len(words[0]), np.uint64)
    for number, column in enumerate(words):
        total += column * np.uint64((2 * number + 1) * 0x9E3779B97F4A7C15 % 2**64)
    return total


def _words(column: pa.ChunkedArray, kind: pa.DataType) -> Words:
    """One word for each value; a NULL is an error, since no table has one."""
    if column.null_count:
        raise ValueError(f"{column.null_count} values are NULL.")
    if pa.types.is_string(kind):
        return _hashed(column.cast(pa.large_string()))
    if pa.types.is_timestamp(kind):
        # With a time zone or without: microseconds since the epoch.
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    elif pa.types.is_date(kind):
        column = column.cast(kind).cast(pa.int32())
    else:
        column = column.cast(kind)
    values = column.to_numpy()
    words: Words = values if values.dtype == np.float64 else values.astype(np.int64)
    return words.view(np.uint64)


def _hashed(column: pa.ChunkedArray) -> Words:
    """A hash of each string: its bytes, padded to one length, word by word."""
    padded = pa.concat_arrays(pc.ascii_rpad(column, _WIDTH).chunks)
    if pc.max(pc.binary_length(padded)).as_py() != _WIDTH:
        raise ValueError(f"A string is longer than {_WIDTH} bytes.")
    start = np.frombuffer(padded.buffers()[1], np.int64)[padded.offset]
    data = np.frombuffer(padded.buffers()[2], np.uint8)[start : start + _WIDTH * len(padded)]
    words = data.view(np.uint64).reshape(len(padded), _WIDTH // 8)
    return mix(_combined(list(words.T)))
