"""Bloom filters: the hash, the lookup, and the filters that other programs write."""

from __future__ import annotations

import decimal
import hashlib
import struct
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.parquet.thrift_writer import encode

from fsspeckit.core.parquet.format.bloom_filter import (
    BloomFilter,
    hash_values,
    header_and_bitset_length,
)
from fsspeckit.core.parquet.format.thrift import I32, STRUCT, Struct, ThriftError
from fsspeckit.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

MASK = (1 << 64) - 1
PRIMES = (
    11400714785074694791,
    14029467366897019727,
    1609587929392839161,
    9650029242287828579,
    2870177450012600261,
)
SALT = struct.unpack(
    ">8I", bytes.fromhex("47b6137b44974d918824ad5ba2b7289d705495c72df1424b9efc49475c6bfb31")
)


def rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & MASK


def mix(lane: int, word: int) -> int:
    return rotate((lane + word * PRIMES[1]) & MASK, 31) * PRIMES[0] & MASK


def scalar_xxh64(data: bytes, seed: int) -> int:
    """XXH64 one value at a time, step by step as its specification says."""
    one, two, three, four, five = PRIMES
    rest = data
    if len(data) >= 32:
        lanes = [seed + one + two, seed + two, seed, seed - one]
        while len(rest) >= 32:
            words = struct.unpack("<4Q", rest[:32])
            lanes = [mix(lane & MASK, word) for lane, word in zip(lanes, words, strict=True)]
            rest = rest[32:]
        value = sum(rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            value = ((value ^ mix(0, lane)) * one + four) & MASK
    else:
        value = seed + five
    value = (value + len(data)) & MASK
    while len(rest) >= 8:
        value = (rotate(value ^ mix(0, int.from_bytes(rest[:8], "little")), 27) * one + four) & MASK
        rest = rest[8:]
    if len(rest) >= 4:
        word = int.from_bytes(rest[:4], "little") * one & MASK
        value = (rotate(value ^ word, 23) * two + three) & MASK
        rest = rest[4:]
    for byte in rest:
        value = rotate(value ^ byte * five & MASK, 11) * one & MASK
    value = (value ^ value >> 33) * two & MASK
    value = (value ^ value >> 29) * three & MASK
    return value ^ value >> 32


DRAGONFLY = b"This code is derived from software contributed to The DragonFly Project"


@pytest.mark.parametrize(
    ("data", "seed", "expected"),
    [
        (b"", 0, 0xEF46DB3751D8E999),
        (b"ABC", 0, 0xE66AE7354FCFEE98),
        (b"xxhash", 0, 0x32DD38952C4BC720),
        (b"foo", 0, 3728699739546630719),
        (b"\x01", 0, 9962287286179718960),
        (b"\x03\0\0\0", 0, 13361037350151369407),
        (struct.pack("<f", 1.2684), 0, 6662491266811474554),
        (struct.pack("<q", -154477), 0, 1162348840373071858),
        (b"", 0x4D617474446C6C6E, 0x84566AC0F5A0CB84),
        (b"hammer2", 0x4D617474446C6C6E, 0xA041BE268B5674E5),
        (DRAGONFLY, 0x4D617474446C6C6E, 0x103C241EEDDC8D32),
    ],
)
def test_published_hashes(data: bytes, seed: int, expected: int) -> None:
    assert scalar_xxh64(data, seed) == expected
    if not seed:
        assert hash_values(pa.array([data] * 3)).tolist() == [expected] * 3


PHYSICAL_TYPES: dict[str, tuple[Any, st.SearchStrategy[Any], Callable[[Any], bytes]]] = {
    "int32": (pa.int32(), st.integers(-(2**31), 2**31 - 1), lambda v: struct.pack("<i", v)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1), lambda v: struct.pack("<q", v)),
    "float32": (pa.float32(), st.floats(width=32), lambda v: struct.pack("<f", v)),
    "float64": (pa.float64(), st.floats(), lambda v: struct.pack("<d", v)),
    "binary": (pa.binary(), st.binary(max_size=70), bytes),
    "large_binary": (pa.large_binary(), st.binary(max_size=70), bytes),
    "fixed": (pa.binary(13), st.binary(min_size=13, max_size=13), bytes),
}


@pytest.mark.parametrize("name", PHYSICAL_TYPES)
@given(data=st.data())
def test_values_hash_as_their_plain_encoding(name: str, data: st.DataObject) -> None:
    kind, value, encode_plain = PHYSICAL_TYPES[name]
    values = data.draw(st.lists(value, max_size=20))
    start = data.draw(st.integers(0, len(values)))
    array = pa.array(values, kind).slice(start)

    expected = [scalar_xxh64(encode_plain(one), 0) for one in values[start:]]

    assert hash_values(array).tolist() == expected


@pytest.mark.parametrize("kind", [pa.int64(), pa.float32(), pa.binary(13)], ids=str)
def test_an_array_without_a_buffer(kind: Any) -> None:
    assert hash_values(pa.Array.from_buffers(kind, 0, [None, None])).tolist() == []


def test_nulls_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"1 null\(s\) of 2 values"):
        hash_values(pa.array([1, None]))


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["a"]),
        pa.array([True]),
        pa.array([1], pa.uint32()),
        pa.array([1], pa.date32()),
        pa.array([decimal.Decimal(1)]),
        pa.array(["a"]).dictionary_encode(),
    ],
    ids=lambda array: str(array.type),
)
def test_logical_types_are_refused(array: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="cast to the physical type"):
        hash_values(array)


def scalar_bits(value: int, blocks: int) -> list[tuple[int, int, int]]:
    """The block, word and bit of each of a hash's eight bits, as the format defines them."""
    block = (value >> 32) * blocks >> 32
    return [
        (block, word, ((value & 0xFFFFFFFF) * salt & 0xFFFFFFFF) >> 27)
        for word, salt in enumerate(SALT)
    ]


HASHES = st.lists(st.integers(0, MASK), max_size=30)


@given(st.integers(1, 9), HASHES, HASHES)
def test_lookup_is_as_the_format_defines(
    blocks: int, inserted: list[int], others: list[int]
) -> None:
    words = np.zeros((blocks, 8), dtype=np.uint32)
    for value in inserted:
        for block, word, bit in scalar_bits(value, blocks):
            words[block, word] |= np.uint32(1 << bit)
    asked = inserted + others

    result = BloomFilter(words).might_contain(np.array(asked, dtype=np.uint64))

    assert result.tolist() == [
        all(int(words[block, word]) >> bit & 1 for block, word, bit in scalar_bits(value, blocks))
        for value in asked
    ]
    assert result[: len(inserted)].all()


def test_many_hashes_are_looked_up_in_slices() -> None:
    bloom = BloomFilter(np.random.default_rng(1).integers(0, 2**32, (64, 8), dtype=np.uint32))
    hashes = np.random.default_rng(2).integers(0, 2**64, 200_000, dtype=np.uint64)

    result = bloom.might_contain(hashes)

    assert 0 < result.sum() < len(result)
    backwards = bloom.might_contain(hashes[::-1])
    assert result.tolist() == backwards[::-1].tolist()


def header(size: int = 64, **unions: int) -> bytes:
    """A filter's header, with other members than the first of some unions."""
    members = {"algorithm": 1, "hash": 1, "compression": 1} | unions
    values: dict[int, Any] = {1: size}
    for number, member in enumerate(members.values(), start=2):
        values[number] = Struct({member: Struct()}, {}, {member: STRUCT})
    return encode(Struct(values, {}, {1: I32, 2: STRUCT, 3: STRUCT, 4: STRUCT}))


def test_a_filter_is_parsed() -> None:
    bloom = BloomFilter.parse(header(64) + bytes([1] + [0] * 62 + [128]) + b"what follows")

    assert bloom is not None
    assert bloom.blocks.tolist() == [[1] + [0] * 7, [0] * 7 + [1 << 31]]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(header(algorithm=2) + bytes(64), id="algorithm"),
        pytest.param(header(hash=2) + bytes(64), id="hash"),
        pytest.param(header(compression=2) + bytes(64), id="compression"),
        pytest.param(header(64) + bytes(63), id="short bitset"),
        pytest.param(header(0) + bytes(64), id="empty bitset"),
        pytest.param(header(48) + bytes(64), id="half a block"),
        pytest.param(header(-64) + bytes(64), id="negative length"),
        pytest.param(header()[:-1], id="short header"),
        pytest.param(bytes(64), id="no fields"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_what_is_not_known_for_sure_is_not_used_as_a_filter(data: bytes) -> None:
    assert BloomFilter.parse(data) is None


@given(st.binary(max_size=100), st.lists(st.tuples(st.integers(0, 79), st.integers(1, 255))))
def test_damage_never_raises(tail: bytes, flips: list[tuple[int, int]]) -> None:
    data = bytearray(header() + bytes(64) + tail)
    for position, bits in flips:
        data[position] ^= bits
    bloom = BloomFilter.parse(bytes(data))

    assert bloom is None or bloom.blocks.nbytes <= len(data)


def test_the_length_is_read_from_the_header() -> None:
    assert header_and_bitset_length(header(1 << 20)) == len(header(1 << 20)) + (1 << 20)
    assert header_and_bitset_length(header() + bytes(20)) == len(header()) + 64


@pytest.mark.parametrize("prefix", [b"", header()[:-1], bytes(9), header(-64)])
def test_no_length_without_a_header(prefix: bytes) -> None:
    with pytest.raises(ThriftError):
        header_and_bitset_length(prefix)


# One value of each physical type for a number; the filters of a file are asked for the numbers
# that are in a row group, and for others.
COLUMNS: dict[str, tuple[Any, Callable[[int], Any]]] = {
    "int32": (pa.int32(), lambda number: number),
    "int64": (pa.int64(), lambda number: number * -7919),
    "float32": (pa.float32(), lambda number: number / 4),
    "float64": (pa.float64(), lambda number: number / 7),
    "binary": (pa.binary(), lambda number: f"value {number} ".encode() * (1 + number % 6)),
    "fixed": (pa.binary(16), lambda number: hashlib.md5(str(number).encode()).digest()),
    "decimal": (pa.binary(13), lambda number: (number * 100).to_bytes(13, "big", signed=True)),
}
GROUP_ROWS = 4096
NUMBERS = [row // GROUP_ROWS * 500 + row % 500 for row in range(3 * GROUP_ROWS)]


def physical(column: str, numbers: list[int]) -> Any:
    kind, value = COLUMNS[column]
    return pa.array([value(number) for number in numbers], kind)


def logical_table() -> Any:
    arrays = {name: physical(name, NUMBERS) for name in COLUMNS if name != "decimal"}
    decimals = [decimal.Decimal(number) for number in NUMBERS]
    return pa.table(arrays | {"decimal": pa.array(decimals, pa.decimal128(30, 2))})


def write_pyarrow(path: Path) -> None:
    options = {column: {"ndv": 500, "fpp": 0.01} for column in COLUMNS}
    pq.write_table(logical_table(), path, row_group_size=GROUP_ROWS, bloom_filter_options=options)


def write_duckdb(path: Path) -> None:
    with duckdb.connect() as connection:
        connection.register("data", logical_table())
        connection.execute(
            "copy (select * replace (md5(int32::varchar)::uuid as fixed) from data) "
            f"to '{path}' (format parquet, row_group_size {GROUP_ROWS})"
        )


def write_spark(spark: SparkSession, path: Path) -> None:
    # Spark writes no filter for a column chunk that a dictionary holds completely.
    writer = spark.createDataFrame(logical_table()).coalesce(1).write
    writer = writer.option("parquet.enable.dictionary", "false")
    for column in COLUMNS:
        writer = writer.option(f"parquet.bloom.filter.enabled#{column}", "true")
        writer = writer.option(f"parquet.bloom.filter.expected.ndv#{column}", "1500")
    writer.parquet(str(path.parent / "spark"))
    next((path.parent / "spark").glob("*.parquet")).rename(path)


Filters = dict[str, list[BloomFilter]]


def read_filters(path: Path) -> Filters:
    """Parse every filter of a file, by column and row group."""
    data = path.read_bytes()
    metadata = pq.read_metadata(path)
    result: Filters = {}
    for group in range(metadata.num_row_groups):
        for index in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(index)
            if (offset := chunk.bloom_filter_offset) is None:
                continue
            length = chunk.bloom_filter_length
            assert header_and_bitset_length(data[offset : offset + 64]) == length
            bloom = BloomFilter.parse(data[offset : offset + length])
            assert bloom is not None
            result.setdefault(chunk.path_in_schema, []).append(bloom)
    return result


def check_filters(path: Path, columns: set[str]) -> None:
    filters = read_filters(path)
    assert set(filters) == columns
    file = pq.ParquetFile(path)
    for group in range(file.num_row_groups):
        numbers = file.read_row_group(group, ["int32"])["int32"].unique().to_pylist()
        absent = list(range(10_000, 20_000))
        for column, blooms in filters.items():
            bloom = blooms[group]
            assert bloom.might_contain(hash_values(physical(column, numbers))).all(), column
            assert bloom.might_contain(hash_values(physical(column, absent))).mean() < 0.1, column


def test_filters_of_pyarrow(tmp_path: Path) -> None:
    write_pyarrow(tmp_path / "data.parquet")

    check_filters(tmp_path / "data.parquet", set(COLUMNS))


def test_a_filter_of_pyarrow_with_its_defaults(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    pq.write_table(logical_table(), path, bloom_filter_options={"int64": True})

    check_filters(path, {"int64"})


def test_filters_of_duckdb(tmp_path: Path) -> None:
    write_duckdb(tmp_path / "data.parquet")

    check_filters(tmp_path / "data.parquet", set(COLUMNS) - {"decimal"})


@pytest.mark.spark
@pytest.mark.slow
def test_filters_of_spark(tmp_path: Path, spark: SparkSession) -> None:
    write_spark(spark, tmp_path / "data.parquet")

    check_filters(tmp_path / "data.parquet", set(COLUMNS))


@pytest.mark.parametrize("column", ["int32", "int64", "float32", "float64", "binary"])
@pytest.mark.parametrize("write", [write_pyarrow, write_duckdb])
def test_duckdb_excludes_the_same_values(
    tmp_path: Path, write: Callable[[Path], None], column: str
) -> None:
    path = tmp_path / "data.parquet"
    write(path)
    blooms = read_filters(path)[column]
    values = physical(column, [*range(0, 1500, 150), *range(10_000, 10_030)])
    ours = [(~bloom.might_contain(hash_values(values))).tolist() for bloom in blooms]

    query = "select bloom_filter_excludes from parquet_bloom_probe(?, ?, ?) order by row_group_id"
    with duckdb.connect() as connection:
        for position, value in enumerate(values.to_pylist()):
            rows = connection.execute(query, [str(path), column, value]).fetchall()
            assert [row[0] for row in rows] == [group[position] for group in ours]
