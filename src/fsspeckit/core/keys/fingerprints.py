"""Fingerprints: 32-bit hashes of canonical keys, so that equal keys have equal fingerprints.

They are stored beside a dataset, so the function must never change: another one needs another
version of the key index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)
_WORD_BYTES = 8
_MAX_WORDS = 16
"""Of longer values the first 120 and the last 8 bytes count."""


def key_fingerprints(keys: pa.Table) -> NDArray[np.uint32]:
    """Return the fingerprint of each canonical key; NULL is a value like any other."""
    return (key_hashes(keys) >> _HALF).astype(np.uint32)


def key_hashes(keys: pa.Table) -> Hashes:
    """Return a hash of 64 bits of each canonical key, of which its fingerprint is a part."""
    mixed = np.full(keys.num_rows, _FACTOR)
    for column in keys.columns:
        start = 0
        for chunk in column.chunks:
            part = mixed[start : start + len(chunk)]
            hashed = _hash_numbers(chunk) if pa.types.is_int64(chunk.type) else _hash_bytes(chunk)
            if chunk.null_count:
                hashed[np.asarray(chunk.is_null())] = _NULL
            _mix_in(part, hashed)
            start += len(chunk)
    return mixed


def _mix_in(mixed: Hashes, words: Hashes) -> None:
    """Add a word to each hash, in place."""
    mixed ^= words
    mixed *= _FACTOR
    mixed ^= mixed >> _HALF
    mixed *= _FACTOR


def _hash_numbers(values: pa.Array) -> Hashes:
    filled = values.fill_null(0) if values.null_count else values
    return np.asarray(filled.to_numpy()).astype(np.uint64)


def _hash_bytes(values: pa.Array) -> Hashes:
    """Hash byte strings, eight bytes at a time; the last eight overlap those before."""
    count = len(values)
    offsets = np.frombuffer(values.buffers()[1] or bytes(4), np.int32)
    offsets = offsets[values.offset : values.offset + count + 1].astype(np.int64)
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    content = np.frombuffer(values.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    # Padded, so that eight bytes can be read from the start of every value.
    data = np.concatenate([content, np.zeros(_WORD_BYTES, np.uint8)])
    words = np.ndarray((len(content) + 1,), "<u8", data, strides=(1,))
    hashed = lengths.astype(np.uint64) * _FACTOR
    longest = int(lengths.max(initial=0))
    is_uniform = bool((lengths == longest).all())
    for number in range(min(-(-longest // _WORD_BYTES), _MAX_WORDS)):
        # A slice is an order of magnitude faster than an index.
        rows = slice(None) if is_uniform else np.flatnonzero(lengths > number * _WORD_BYTES)
        sizes = lengths[:1] if is_uniform else lengths[rows]
        inside = np.maximum(sizes - _WORD_BYTES, 0)
        if number < _MAX_WORDS - 1:
            inside = np.minimum(inside, number * _WORD_BYTES)
        found = (
            words[inside[0] :: longest][:count].copy()
            if is_uniform
            else words[starts[rows] + inside]
        )
        part = hashed[rows]
        _mix_in(part, found if number else found & _own_bits(sizes))
        hashed[rows] = part
    return hashed


def _own_bits(lengths: NDArray[np.int64]) -> Hashes:
    """Return the bits of a first word that belong to a value, and not to the next one."""
    unused = np.uint64(8) * np.maximum(_WORD_BYTES - lengths, 0).astype(np.uint64)
    return np.uint64(2**64 - 1) >> unused
