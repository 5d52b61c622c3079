"""Bloom filters as evidence: of three writers, for every type, and what reading them costs."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.planning.edited_footers import (
    CountingFileSystem,
    column,
    edit_footer,
    remove,
    verdicts,
)

from fsspeckit.core.planning.pruning import MAX_PROBED_KEYS, Evidence
from fsspeckit.testing.strategies import KEY_TYPES, arrays
from fsspeckit.testing.writers import WRITERS, WriteOptions, WriterCannotError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

# Multiples of three are in the files, what lies between them is not.
PRESENT = [3 * number for number in range(1, 40)]
ABSENT = [3 * number + 1 for number in range(1, 39)]

NUMBER_TYPES = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float32(), pa.float64(), pa.date32()),
    *(pa.timestamp(unit, zone) for zone in (None, "UTC") for unit in ("ms", "us", "ns")),
    *(pa.decimal128(*digits) for digits in [(9, 2), (18, 4), (38, 10)]),
]
TYPES = [*NUMBER_TYPES, pa.string(), pa.binary(), pa.binary(16)]


def as_type(numbers: list[int], type_: pa.DataType) -> pa.Array:
    """Different values for different numbers, in the same order."""
    if pa.types.is_string(type_):
        return pa.array([f"key {number:04}" for number in numbers], type_)
    if pa.types.is_binary(type_) or pa.types.is_fixed_size_binary(type_):
        return pa.array([number.to_bytes(16, "big") for number in numbers], type_)
    if pa.types.is_decimal(type_):
        return pa.array([Decimal(number) / 4 for number in numbers], type_)
    if pa.types.is_floating(type_):
        return pa.array([number / 4 for number in numbers], type_)
    return (
        pa.array(numbers, pa.int64())
        .cast(pa.int32() if type_ == pa.date32() else pa.int64())
        .cast(type_)
    )


def written(directory: Path, writer: str, table: pa.Table, **options: Any) -> Path:
    path = directory / "a.parquet"
    asked = WriteOptions(bloom_columns=tuple(table.column_names), **options)
    try:
        WRITERS[writer](table, str(path), asked)
    except WriterCannotError as error:
        pytest.skip(str(error))
    return path


def pruned_by(directory: Path, keys: Any, name: str = "id") -> Evidence | None:
    (verdict,) = verdicts(directory, [name], keys).values()
    return None if verdict.row_groups else verdict.evidence


@pytest.mark.parametrize("type_", TYPES, ids=str)
@pytest.mark.parametrize("writer", ["pyarrow", "duckdb"])
def test_absent_keys_inside_the_bounds_are_ruled_out_and_present_ones_never(
    tmp_path: Path, writer: str, type_: pa.DataType
) -> None:
    if writer == "duckdb" and type_ == pa.decimal128(38, 10):
        pytest.skip("duckdb writes no filter for decimals of more than 18 digits")
    written(tmp_path, writer, pa.table({"id": as_type(PRESENT, type_)}))
    absent = as_type(ABSENT, type_)
    assert pruned_by(tmp_path, absent) == Evidence("bloom", ("id",))
    for key in as_type(PRESENT, type_):
        assert pruned_by(tmp_path, pa.array([key, *absent], type_)) is None


SPARK_TYPES = [type_ for type_ in TYPES if getattr(type_, "unit", None) != "ns"]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("as_bytes", [False, True], ids=["decimals as numbers", "as bytes"])
def test_filters_of_spark_rule_out_absent_keys_and_never_present_ones(
    tmp_path: Path, spark: SparkSession, as_bytes: bool
) -> None:
    names = [str(type_).replace(" ", "") for type_ in SPARK_TYPES]
    columns = [as_type(PRESENT, type_) for type_ in SPARK_TYPES]
    written(
        tmp_path,
        "spark",
        pa.table(columns, names=names),
        int96=False,
        decimal_as_integer=not as_bytes,
    )
    for name, type_ in zip(names, SPARK_TYPES, strict=True):
        keys = respelled_for_spark(as_type(PRESENT, type_))
        absent = respelled_for_spark(as_type(ABSENT, type_))
        assert pruned_by(tmp_path, absent, name) == Evidence("bloom", (name,)), name
        for key in keys:
            assert pruned_by(tmp_path, pa.array([key, *absent], keys.type), name) is None


def respelled_for_spark(keys: pa.Array) -> pa.Array:
    """Spark has no unsigned integers and reads the largest as decimals."""
    return keys.cast(pa.decimal128(20, 0)) if keys.type == pa.uint64() else keys


@pytest.mark.parametrize("stored", ["ms", "us", "ns"])
@pytest.mark.parametrize("asked", ["s", "ms", "us", "ns"])
def test_timestamps_are_asked_for_in_the_unit_of_the_file(
    tmp_path: Path, stored: str, asked: str
) -> None:
    seconds = pa.array(PRESENT, pa.timestamp("s"))
    written(tmp_path, "pyarrow", pa.table({"id": seconds.cast(pa.timestamp(stored))}))
    between = pa.array(ABSENT, pa.timestamp("s")).cast(pa.timestamp(asked))
    assert pruned_by(tmp_path, between) == Evidence("bloom", ("id",))
    for key in seconds.cast(pa.timestamp(asked)):
        assert pruned_by(tmp_path, pa.array([key], pa.timestamp(asked))) is None


def test_files_of_different_units_are_each_asked_in_their_own(tmp_path: Path) -> None:
    seconds = pa.array(PRESENT, pa.timestamp("s"))
    for unit in ("ms", "ns"):
        (tmp_path / unit).mkdir()
        written(tmp_path / unit, "pyarrow", pa.table({"id": seconds.cast(pa.timestamp(unit))}))
    # The second key exists in nanoseconds alone: a file of milliseconds cannot hold it.
    keys = pa.array([4_000_000_000, 6_000_000_001], pa.timestamp("ns"))
    found = verdicts(tmp_path, ["id"], keys)
    assert [v.evidence for v in found.values()] == [Evidence("bloom", ("id",))] * 2
    found = verdicts(tmp_path, ["id"], pa.array([6_000_000_000], pa.timestamp("ns")))
    assert [v.row_groups for v in found.values()] == [(0,), (0,)]


DECIMALS = [
    *(pa.decimal32(9, 2), pa.decimal64(9, 2), pa.decimal64(18, 3), pa.decimal128(9, 2)),
    *(pa.decimal128(18, 4), pa.decimal128(38, 6), pa.decimal256(9, 2), pa.decimal256(60, 5)),
]


@pytest.mark.parametrize("as_integer", [True, False], ids=["integers", "bytes"])
@pytest.mark.parametrize("type_", DECIMALS, ids=str)
def test_decimals_are_asked_for_in_the_width_and_scale_of_the_file(
    tmp_path: Path, type_: pa.DataType, as_integer: bool
) -> None:
    values = [Decimal(number) / 2 * (-1) ** number for number in PRESENT]
    table = column(values, type_)
    written(tmp_path, "pyarrow", table, decimal_as_integer=as_integer)
    other = pa.decimal256(70, 8)
    between = [Decimal(number) / 2 for number in ABSENT]
    evidence = [pruned_by(tmp_path, pa.array([key], other)) for key in between]
    assert evidence.count(Evidence("bloom", ("id",))) > 30  # a filter may err, but not often
    for key in values:
        assert pruned_by(tmp_path, pa.array([key], other)) is None


@pytest.mark.parametrize("type_", [pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize("stored", [0.0, -0.0])
@pytest.mark.parametrize("asked", [0.0, -0.0])
@pytest.mark.parametrize("writer", ["pyarrow", "duckdb"])
def test_zero_has_two_spellings(
    tmp_path: Path, writer: str, type_: pa.DataType, stored: float, asked: float
) -> None:
    written(tmp_path, writer, column([stored, -1.0, 1.0], type_))
    assert pruned_by(tmp_path, pa.array([asked], type_)) is None
    assert pruned_by(tmp_path, pa.array([0.5], type_)) == Evidence("bloom", ("id",))


@pytest.mark.parametrize("writer", ["pyarrow", "duckdb"])
def test_no_filter_rules_out_nan(tmp_path: Path, writer: str) -> None:
    odd = np.array([0x7FF8DEADBEEF0001], np.uint64).view(np.float64)[0]
    written(tmp_path, writer, column([odd, 1.0, 2.0], pa.float64()))
    assert pruned_by(tmp_path, [math.nan]) is None
    assert pruned_by(tmp_path, [1.5, math.nan]) is None
    assert pruned_by(tmp_path, [1.5]) == Evidence("bloom", ("id",))


def test_a_key_too_large_for_the_floats_of_a_file_is_not_in_it(tmp_path: Path) -> None:
    for name, type_ in (("narrow", pa.float32()), ("wide", pa.float64())):
        (tmp_path / name).mkdir()
        values = [-math.inf, 1.0, math.inf] if name == "narrow" else [0.0, 1.0, 1e300]
        written(tmp_path / name, "pyarrow", column(values, type_))
    found = verdicts(tmp_path, ["id"], [1e300])
    assert [verdict.row_groups for verdict in found.values()] == [(), (0,)]


def test_no_filter_rules_out_null(tmp_path: Path) -> None:
    written(tmp_path, "pyarrow", column([1, None, 3], pa.int64()))
    assert pruned_by(tmp_path, pa.array([2, None])) is None
    assert pruned_by(tmp_path, pa.array([2])) == Evidence("bloom", ("id",))


def test_unsigned_keys_above_the_signed_range(tmp_path: Path) -> None:
    for bits in (32, 64):
        (tmp_path / str(bits)).mkdir()
        type_ = pa.uint32() if bits == 32 else pa.uint64()
        values = [1, 2 ** (bits - 1), 2**bits - 1]
        written(tmp_path / str(bits), "pyarrow", column(values, type_))
        for value in values:
            assert pruned_by(tmp_path / str(bits), pa.array([value], type_)) is None
        between = pa.array([2 ** (bits - 1) + 1, 2], type_)
        assert pruned_by(tmp_path / str(bits), between) == Evidence("bloom", ("id",))


# Booleans have no filters.
FILTERED_TYPES = [type_ for type_ in KEY_TYPES if not pa.types.is_boolean(type_)]


@pytest.mark.slow
@pytest.mark.parametrize("writer", ["pyarrow", "duckdb"])
@given(data=st.data())
@settings(max_examples=60)
def test_a_filter_never_rules_out_what_a_row_group_holds(
    writer: str, data: st.DataObject, tmp_path: Path
) -> None:
    type_ = data.draw(st.sampled_from(FILTERED_TYPES))
    values = data.draw(arrays(type_, data.draw(st.integers(1, 8))))
    (tmp_path / "a.parquet").unlink(missing_ok=True)
    WRITERS[writer](
        pa.table({"id": values}),
        str(tmp_path / "a.parquet"),
        WriteOptions(row_group_size=3, bloom_columns=("id",)),
    )
    for number, value in enumerate(values):
        (verdict,) = verdicts(tmp_path, ["id"], pa.array([value], type_)).values()
        assert number // 3 in verdict.row_groups


def test_filters_are_asked_row_group_by_row_group(tmp_path: Path) -> None:
    table = column([0, 10, 20, 1, 11, 21, 2, 12, 22], pa.int64())
    written(tmp_path, "pyarrow", table, row_group_size=3)
    (verdict,) = verdicts(tmp_path, ["id"], [11, 15]).values()
    assert verdict.row_groups == (1,)
    assert verdict.evidence == Evidence("none")


def test_a_composite_key_is_ruled_out_by_the_filters_of_several_columns(tmp_path: Path) -> None:
    table = pa.table({"a": [1, 5, 9], "b": ["a", "c", "e"]})
    written(tmp_path, "pyarrow", table)
    # The first tuple fails in `a`, the second in `b`.
    (verdict,) = verdicts(tmp_path, ["a", "b"], [(4, "c"), (5, "b")]).values()
    assert verdict.evidence == Evidence("bloom", ("a", "b"))
    (verdict,) = verdicts(tmp_path, ["a", "b"], [(4, "c"), (5, "e")]).values()
    assert verdict.row_groups == (0,)


def remote(filesystem: CountingFileSystem, table: pa.Table, **options: Any) -> pq.FileMetaData:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, bloom_filter_options={"id": {"ndv": 1024}}, **options)
    data = sink.getvalue()
    filesystem.pipe_file("/data/a.parquet", data.to_pybytes())
    return pq.read_metadata(pa.BufferReader(data))


def test_only_the_bytes_of_the_filter_are_read(counting: CountingFileSystem) -> None:
    table = pa.table({"id": [2 * n for n in range(1000)], "v": ["payload" * 20] * 1000})
    metadata = remote(counting, table, row_group_size=500)
    (verdict,) = verdicts("/data", ["id"], [501], counting).values()
    assert verdict.evidence == Evidence("bloom", ("id",))
    size = len(counting.store["/data/a.parquet"].getvalue())
    chunk = metadata.row_group(0).column(0)  # the key is in the bounds of this one
    start = chunk.bloom_filter_offset
    footer = max(0, size - 64 * 1024)
    assert counting.requests == [
        ("/data/a.parquet", footer, size),
        ("/data/a.parquet", start, start + chunk.bloom_filter_length),
    ]


@pytest.mark.parametrize("count", [MAX_PROBED_KEYS, MAX_PROBED_KEYS + 1])
def test_more_keys_than_a_filter_can_answer_for_are_not_asked(
    counting: CountingFileSystem, count: int
) -> None:
    remote(counting, column([0, 10**6], pa.int64()))
    verdicts("/data", ["id"], pa.array(range(1, count + 1)), counting)
    assert len(counting.requests) == (2 if count <= MAX_PROBED_KEYS else 1)


def test_keys_outside_the_bounds_do_not_count(counting: CountingFileSystem) -> None:
    remote(counting, column([0, 10], pa.int64()))
    keys = pa.array([5, *range(100, 100 + 2 * MAX_PROBED_KEYS)])
    (verdict,) = verdicts("/data", ["id"], keys, counting).values()
    assert verdict.evidence == Evidence("bloom", ("id",))


def test_a_damaged_filter_rules_nothing_out(tmp_path: Path) -> None:
    path = written(tmp_path, "pyarrow", column([1, 3], pa.int64()))
    chunk = pq.read_metadata(path).row_group(0).column(0)
    data = bytearray(path.read_bytes())
    start = chunk.bloom_filter_offset
    data[start : start + 16] = b"\xff" * 16
    path.write_bytes(data)
    assert pruned_by(tmp_path, [2]) is None


def test_a_filter_without_a_length_in_the_footer_is_found_by_its_header(tmp_path: Path) -> None:
    path = written(tmp_path, "pyarrow", column([1, 3], pa.int64()))

    def forget_length(footer: Any) -> None:
        remove(footer.values[4][0].values[1][0].values[3], 15)

    edit_footer(path, {4: [{1: [{3: {}}]}]}, forget_length)
    assert pq.read_metadata(path).row_group(0).column(0).bloom_filter_length is None
    assert pruned_by(tmp_path, [2]) == Evidence("bloom", ("id",))
    assert pruned_by(tmp_path, [3]) is None


def test_a_file_that_vanishes_before_its_filter_is_read_is_named(
    counting: CountingFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote(counting, column([1, 3], pa.int64()))
    read = counting.cat_file

    def once(*args: Any, **kwargs: Any) -> bytes:
        if counting.requests:
            raise PermissionError("Access Denied")
        return read(*args, **kwargs)

    monkeypatch.setattr(counting, "cat_file", once)
    with pytest.raises(PermissionError, match=r"reading a bloom filter of '/data/a\.parquet'"):
        verdicts("/data", ["id"], [2], counting)
