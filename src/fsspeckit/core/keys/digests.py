"""Digests: 128 bits for a whole row, equal for rows that are equal in every column.

To compare whole rows, an engine would have to hold them, and would compare values in its own way.
So the canonical values of a row become bytes, from which they could be read again, and the digest
of these is compared. Two rows that differ have the same one with a probability of 2**-128.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.arrow_compat import map_entries
from fsspeckit.core.keys.canonical import KeyColumn, key_column, plain_values

if TYPE_CHECKING:
    from collections.abc import Sequence

_DIGEST_BYTES = 16
_MAX_ROWS = 16_384
"""So many rows are in memory as bytes at a time."""


def row_digests(columns: Sequence[pa.ChunkedArray]) -> pa.Array:
    """Return the digest of each row; NULL is a value like any other.

    Args:
        columns: What :func:`comparable_values` returned of each column.
    """
    table = pa.table(list(columns), names=[str(number) for number in range(len(columns))])
    found = [
        blake2b(row, digest_size=_DIGEST_BYTES).digest()
        for batch in table.to_batches(max_chunksize=_MAX_ROWS)
        for row in _as_bytes(batch).to_pylist()
    ]
    return pa.array(found, pa.binary())


def comparable_values(values: pa.ChunkedArray, column: KeyColumn | None = None) -> pa.ChunkedArray:
    """Return integers or bytes that are equal where values are; of a nested column, too.

    Args:
        values: The values.
        column: How they are compared, unless the column is nested.
    """
    if column is not None:
        return column.canonical(values)
    chunks = [
        pa.array([None if v is None else repr(v).encode() for v in _inside(chunk)], pa.binary())
        for chunk in values.chunks
    ]
    return pa.chunked_array(chunks, pa.binary())


def _inside(values: pa.Array) -> list[Any]:
    """Return nested values as tuples of canonical ones, whose texts differ if the values do."""
    values = plain_values(values)
    kind = values.type
    if not pa.types.is_nested(kind):
        return list(key_column("", kind).canonical(values).to_pylist())
    valid = np.asarray(values.is_valid()).tolist()
    if pa.types.is_struct(kind):
        rows = zip(*(_inside(child) for child in values.flatten()), strict=True)
        return [row if is_valid else None for row, is_valid in zip(rows, valid, strict=True)]
    if pa.types.is_map(kind):
        return _inside(map_entries(values))
    lengths = pc.list_value_length(values).fill_null(0).to_pylist()
    elements = _inside(values.flatten())
    found: list[Any] = []
    start = 0
    for length, is_valid in zip(lengths, valid, strict=True):
        found.append(tuple(elements[start : start + length]) if is_valid else None)
        start += length
    return found


def _as_bytes(batch: pa.RecordBatch) -> pa.Array:
    """Return each row as bytes: of every column whether it is NULL, its number or its length."""
    head = np.zeros((batch.num_rows, 9 * batch.num_columns), np.uint8)
    texts = []
    for number, values in enumerate(batch.columns):
        start = 9 * number
        head[:, start] = np.asarray(values.is_valid())
        if pa.types.is_int64(values.type):
            numbers = values.fill_null(0)
        else:
            numbers = pc.binary_length(values).fill_null(0).cast(pa.int64())
            texts.append(values.fill_null(b""))
        words = np.ascontiguousarray(numbers.to_numpy(zero_copy_only=False), "<i8")
        head[:, start + 1 : start + 9] = words.view(np.uint8).reshape(-1, 8)
    width = head.shape[1]
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(width), batch.num_rows, [None, pa.py_buffer(np.ascontiguousarray(head))]
    )
    joined = [one.cast(pa.large_binary()) for one in (fixed, *texts)]
    return pc.binary_join_element_wise(*joined, pa.scalar(b"", pa.large_binary()))
