"""Runs of small integers, against a decoder that goes bit by bit."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsspeckit.core.parquet.format.layout import CannotSpliceError
from fsspeckit.core.parquet.format.pages import codec_of, parse_runs
from fsspeckit.core.parquet.format.thrift import varint


def _bit_by_bit(data: bytes, width: int, count: int) -> list[int]:
    """What the specification says, read aloud."""
    found: list[int] = []
    position = 0
    while len(found) < count:
        header, shift = 0, 0
        while True:
            octet = data[position]
            position += 1
            header |= (octet & 127) << shift
            shift += 7
            if octet < 128:
                break
        if header & 1:
            size = (header >> 1) * width
            bits = int.from_bytes(data[position : position + size], "little")
            values = range(min((header >> 1) * 8, count))
            found += [bits >> number * width & (1 << width) - 1 for number in values]
            position += size
        else:
            size = (width + 7) // 8
            value = int.from_bytes(data[position : position + size], "little")
            found += [value] * min(header >> 1, count)
            position += size
    return found[:count]


@st.composite
def _runs(draw: st.DrawFn) -> tuple[bytes, int, int]:
    """Runs as any writer may make them."""
    width = draw(st.integers(0, 32))
    data, count = b"", 0
    for _ in range(draw(st.integers(1, 5))):
        length = draw(st.integers(1, 9))
        if draw(st.booleans()):
            body = draw(st.binary(min_size=length * width, max_size=length * width))
            data, count = data + varint(length << 1 | 1) + body, count + 8 * length
        else:
            value = draw(st.integers(0, (1 << width) - 1)).to_bytes((width + 7) // 8, "little")
            data, count = data + varint(length << 1) + value, count + length
    return data, width, count - draw(st.integers(0, min(7, count - 1)))


@given(_runs(), st.data())
def test_values_are_those_of_every_bit(
    given_runs: tuple[bytes, int, int], data: st.DataObject
) -> None:
    octets, width, count = given_runs
    runs, expected = parse_runs(octets, width, count), _bit_by_bit(octets, width, count)
    assert runs.values().tolist() == expected
    chosen = np.array(sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1))))
    assert runs.at(chosen).tolist() == [expected[place] for place in chosen]


@given(st.binary(max_size=40), st.integers(-1, 40), st.integers(0, 1000))
def test_damaged_runs_are_refused_or_read(data: bytes, width: int, count: int) -> None:
    try:
        runs = parse_runs(data, width, count)
    except CannotSpliceError:
        return
    assert runs.values().tolist() == _bit_by_bit(data, width, count)


def test_all_that_are_the_same_are_one_run() -> None:
    assert parse_runs(varint(2000) + b"\1", 1, 1000).all_are(1)
    assert not parse_runs(varint(125 << 1 | 1) + b"\xaa" * 125, 1, 1000).all_are(1)


def test_a_snappy_block_of_another_size_is_refused() -> None:
    snappy = codec_of(1)
    assert snappy is not None
    block = pa.Codec("snappy").compress(b"some", asbytes=True)
    assert snappy.decompress(block, 4) == b"some"
    with pytest.raises(CannotSpliceError, match="not as long"):
        snappy.decompress(block, 5)
