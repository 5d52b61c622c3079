"""Bloom filters as evidence: they may exclude a key, never confirm one.

A filter knows the hashes of physical values, so canonical keys are turned back into the values
the file would store. Where a key has several stored forms all of them are asked for (``0.0`` and
``-0.0``), or none excludes it (NaN, NULL, INT96). A key that the file's type cannot hold is not in
the file.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fsspeckit.core.keys.casts import family
from fsspeckit.core.parquet.format.bloom_filter import (
    BloomFilter,
    hash_values,
    header_and_bitset_length,
)
from fsspeckit.core.parquet.format.thrift import ThriftError
from fsspeckit.storage.fs.ranges import read_range

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fsspeckit.core.keys.canonical import KeyColumn
    from fsspeckit.core.planning.footers import ChunkStatistics, FileFooter, Leaf
    from fsspeckit.storage.roots import Root

    Flags = NDArray[np.bool_]

__all__ = ["MAX_PROBED_KEYS", "Probe", "excluded_by_bloom"]

MAX_PROBED_KEYS = 1024
"""More keys than this inside a row group's bounds, and some filter bit will say yes anyway."""

_HEADER_BYTES = 64
_WORKERS = 16


class Probe:
    """A question to the bloom filters of one row group.

    Args:
        footer: The file.
        row_group: The row group.
        keys: The canonical keys that lie inside its bounds, few.
    """

    def __init__(self, footer: FileFooter, row_group: int, keys: pa.Table) -> None:
        self.footer = footer
        self.row_group = row_group
        self.keys = keys

    def excluded_by(self, root: Root, columns: Sequence[KeyColumn]) -> tuple[str, ...]:
        """The columns whose filters together rule out every key; none if a key may be there."""
        alive = np.ones(self.keys.num_rows, bool)
        asked: list[str] = []
        for column in columns:
            chunk = self.footer.row_groups[self.row_group].columns.get(column.name)
            if chunk is None or chunk.bloom_offset is None:
                continue
            asked.append(column.name)
            alive &= self._may_hold(root, column, chunk)
            if not alive.any():
                return tuple(asked)
        return ()

    def _may_hold(self, root: Root, column: KeyColumn, chunk: ChunkStatistics) -> Flags:
        everything = np.ones(self.keys.num_rows, bool)
        leaf = self.footer.leaves[column.name]
        stored = _stored_forms(column, leaf, self.keys.column(column.name).combine_chunks())
        if stored is None:
            return everything
        bloom = _read_filter(root, self.footer, chunk)
        if bloom is None:
            return everything
        may_hold = ~everything
        for form in stored:
            valid = np.asarray(form.is_valid())
            may_hold[valid] |= bloom.might_contain(hash_values(form.drop_null()))
        return may_hold | _always(column, self.keys.column(column.name))


def excluded_by_bloom(
    root: Root, probes: Sequence[Probe], columns: Sequence[KeyColumn]
) -> list[tuple[str, ...]]:
    """Ask many filters: for each probe the columns that rule out every key, or none."""
    if root.is_local or len(probes) <= 1:
        return [probe.excluded_by(root, columns) for probe in probes]
    with ThreadPoolExecutor(_WORKERS, thread_name_prefix="fsspeckit-blooms") as pool:
        return list(pool.map(lambda probe: probe.excluded_by(root, columns), probes))


def _read_filter(root: Root, footer: FileFooter, chunk: ChunkStatistics) -> BloomFilter | None:
    """The filter, or None if it cannot be understood: then it excludes nothing."""
    assert chunk.bloom_offset is not None
    path, start = footer.file.path, chunk.bloom_offset
    phase = "reading a bloom filter"
    try:
        length = chunk.bloom_length or header_and_bitset_length(
            read_range(root, path, start, _HEADER_BYTES, phase)
        )
        return BloomFilter.parse(read_range(root, path, start, length, phase))
    except ThriftError:
        return None


def _always(column: KeyColumn, keys: pa.ChunkedArray) -> Flags:
    """The keys that no filter can exclude."""
    always = np.asarray(keys.is_null())
    if column.is_float:
        always |= np.isnan(_floats(column, keys.combine_chunks()))
    return always


def _floats(column: KeyColumn, keys: pa.Array) -> NDArray[np.float64]:
    values = column.original(keys).cast(pa.float64())
    return np.asarray(values.to_numpy(zero_copy_only=False), np.float64)


def _stored_forms(column: KeyColumn, leaf: Leaf, keys: pa.Array) -> list[pa.Array] | None:
    """The physical values a file may store for each key: NULL where it cannot hold the key.

    Returns:
        None if the stored form of keys of this type is not certain.
    """
    kind = family(leaf.type)
    if leaf.physical in ("INT96", "BOOLEAN") or pa.types.is_float16(leaf.type):
        return None
    if kind in ("string", "binary"):
        return [keys]
    if kind == "float":
        return _stored_floats(_floats(column, keys), leaf)
    if kind == "decimal":
        return _stored_decimals(column.original(keys), leaf)
    return _stored_numbers(column.original(keys), leaf)


def _stored_floats(values: NDArray[np.float64], leaf: Leaf) -> list[pa.Array]:
    with np.errstate(over="ignore"):  # to infinity, which then is not the same
        narrow = values.astype(leaf.type.to_pandas_dtype())
    fits = (narrow == values) & ~np.isnan(values)
    # Keys have one zero, files two.
    return [
        pa.array(narrow, mask=~fits),
        pa.array(np.negative(narrow), mask=~(fits & (narrow == 0))),
    ]


def _stored_numbers(values: pa.Array, leaf: Leaf) -> list[pa.Array]:
    """Integers, dates, times and timestamps: an int32 or int64."""
    fitting = _cast_or_null(values, leaf.type)
    bits = 32 if leaf.physical == "INT32" else 64
    if pa.types.is_integer(leaf.type):
        # Unsigned values are stored as the signed ones of the same bits.
        same_sign = pa.uint64() if pa.types.is_unsigned_integer(leaf.type) else pa.int64()
        wide = np.asarray(fitting.fill_null(0).cast(same_sign)).view(np.int64)
        narrow = wide.astype(np.int32 if bits == 32 else np.int64)
        return [pa.array(narrow, mask=np.asarray(fitting.is_null()))]
    return [fitting.view(pa.int32() if bits == 32 else pa.int64())]


def _stored_decimals(values: pa.Array, leaf: Leaf) -> list[pa.Array] | None:
    """The unscaled number, as an integer or big-endian in the width of the column."""
    if leaf.physical == "BYTE_ARRAY":
        return None  # several byte strings stand for one number
    unscaled = _unscaled(_cast_or_null(values, _wide_decimal(leaf.type)))
    if leaf.physical == "INT32":
        return [pa.array(unscaled, pa.int32())]
    if leaf.physical == "INT64":
        return [pa.array(unscaled, pa.int64())]
    encoded = [
        None if number is None else number.to_bytes(leaf.length, "big", signed=True)
        for number in unscaled
    ]
    return [pa.array(encoded, pa.binary(leaf.length))]


def _wide_decimal(data_type: pa.DataType) -> pa.DataType:
    """The decimal type of the same digits that holds each in 16 or in 32 bytes."""
    if pa.types.is_decimal256(data_type):
        return data_type
    return pa.decimal128(data_type.precision, data_type.scale)


def _unscaled(values: pa.Array) -> list[int | None]:
    """Decimals without their scale: 1.25 at scale 2 is 125."""
    make = pa.decimal256 if pa.types.is_decimal256(values.type) else pa.decimal128
    whole = pa.Array.from_buffers(
        make(values.type.precision, 0), len(values), values.buffers(), offset=values.offset
    )
    return [None if value is None else int(value) for value in whole.to_pylist()]


def _cast_or_null(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Values as another type of their family; NULL where it cannot hold them exactly."""
    try:
        return values.cast(data_type)
    except pa.ArrowInvalid:
        if len(values) == 1:
            return pa.nulls(1, data_type)
    return pa.concat_arrays([_cast_or_null(value, data_type) for value in _singles(values)])


def _singles(values: pa.Array) -> list[pa.Array]:
    return [values.slice(index, 1) for index in range(len(values))]
