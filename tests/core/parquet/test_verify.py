"""Verification of a file: healthy files of four writers, and every kind of damage."""

from __future__ import annotations

import struct
import zlib
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.rewrite.test_splice_readers import SOURCES, TABLE

from fsspeckit.core.parquet import (
    decode,
    encode,
    parse_layout,
    read_footer,
    verify_footer,
    verify_row_groups,
)
from fsspeckit.core.parquet.format.thrift import BYTES, INT, Spec, Struct, set_field
from fsspeckit.storage import Findings
from fsspeckit.testing.writers import WRITERS, WriteOptions, WriterCannotError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fsspeckit.core.parquet import FileLayout
    from fsspeckit.storage import VerifyFinding

_STATISTICS: Spec = {1: BYTES, 2: BYTES, 3: INT, 5: BYTES, 6: BYTES}
_FOOTER: Spec = {3: INT, 4: [{1: [{3: {5: INT, 12: _STATISTICS}}], 3: INT}]}
SMALL = TABLE.slice(0, 120)


def verify(data: bytes) -> list[VerifyFinding]:
    """What is wrong with a file."""
    findings = Findings()

    def read(start: int, length: int) -> bytes:
        assert start >= 0
        return data[start : start + length]

    footer = verify_footer(read, len(data), findings)
    if footer.schema is not None:
        verify_row_groups(read, len(data), range(len(footer.row_groups)), findings)
    return findings.found


def texts(data: bytes) -> str:
    """What is wrong with a file, as a text."""
    return "\n".join(map(str, verify(data)))


def written(table: pa.Table, **options: Any) -> bytes:
    """A file of pyarrow."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return bytes(sink.getvalue().to_pybytes())


def layout_of(data: bytes) -> FileLayout:
    """The parts of a file."""

    def read(start: int, length: int) -> bytes:
        return data[start : start + length]

    return parse_layout(read_footer(read, len(data)), len(data), read)


def with_footer(data: bytes, change: Callable[[Struct], None]) -> bytes:
    """A file with a changed footer."""
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer, _ = decode(data[start:-8], _FOOTER)
    change(footer)
    encoded = encode(footer)
    return data[:start] + encoded + struct.pack("<I", len(encoded)) + b"PAR1"


def with_statistic(data: bytes, column: int, number: int, value: Any) -> bytes:
    """A file whose first row group has another number in the statistics of a column."""

    def change(footer: Struct) -> None:
        statistics = footer.values[4][0].values[1][column].values[3].values[12]
        set_field(statistics, number, value, 8 if isinstance(value, bytes) else 6)

    return with_footer(data, change)


def flipped(data: bytes, position: int, bit: int = 1) -> bytes:
    """A file with one bit of one byte changed."""
    return data[:position] + bytes([data[position] ^ bit]) + data[position + 1 :]


@pytest.mark.parametrize("source", SOURCES)
def test_nothing_is_wrong_with_files_of_every_writer(tmp_path: Path, source: str) -> None:
    SOURCES[source](TABLE, str(tmp_path / "a.parquet"))
    assert verify((tmp_path / "a.parquet").read_bytes()) == []


_ODD = pa.table(
    {
        "nan": pa.array([1.5, float("nan"), -0.0, 0.0] * 50),
        "all nan": pa.array([float("nan")] * 200, pa.float32()),
        "zero": pa.array([-0.0, 0.0] * 100),
        "nulls": pa.array([None] * 200, pa.int32()),
        "unsigned": pa.array([0, 2**31, 2**32 - 1, None] * 50, pa.uint32()),
        "wide": pa.array([0, 2**63, 2**64 - 1, None] * 50, pa.uint64()),
        "big": pa.array([Decimal("-1e30"), Decimal(5), None, Decimal(0)] * 50, pa.decimal128(38)),
        "small": pa.array([Decimal("-1.25"), Decimal("9.5")] * 100, pa.decimal128(5, 2)),
        "long": ["x" * 300 + str(n) for n in range(200)],
        "bytes": pa.array([b"\xff\xfe", b"", None, b"\0"] * 50, pa.binary()),
        "empty": [""] * 200,
        "t": pa.array([-1, 0, 10**15, None] * 50, pa.timestamp("us")),
        "nested": [[{"a": [n, None]}, None] if n % 3 else [] for n in range(200)],
        "map": pa.array([[("k", n)] for n in range(200)], pa.map_(pa.string(), pa.int64())),
    }
)


@pytest.mark.parametrize(
    "writer",
    [
        *("pyarrow", "duckdb", "polars"),
        pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow]),
    ],
)
@pytest.mark.parametrize(
    "options", [WriteOptions(), WriteOptions(row_group_size=64, bloom_columns=("t", "long"))]
)
def test_nothing_is_wrong_with_odd_values(
    tmp_path: Path, request: pytest.FixtureRequest, writer: str, options: WriteOptions
) -> None:
    if writer == "spark":
        request.getfixturevalue("spark")
    path = tmp_path / "a.parquet"
    try:
        WRITERS[writer](_ODD, str(path), options)
    except WriterCannotError as error:
        pytest.skip(str(error))
    assert texts(path.read_bytes()) == ""


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_nothing_is_wrong_with_indexes_of_nested_columns(version: str) -> None:
    options = {"write_page_index": True, "max_rows_per_page": 16, "data_page_version": version}
    assert texts(written(_ODD, **options)) == ""


def test_half_floats_and_fixed_widths() -> None:
    table = pa.table(
        {
            "half": pa.array(np.array([1.5, -2, np.nan], np.float16)),
            "fixed": pa.array([b"abcd", None, b"\xff\0\0\0"], pa.binary(4)),
        }
    )
    assert texts(written(table, write_page_index=True)) == ""


def test_int96_is_decoded_and_its_bounds_are_ignored() -> None:
    table = pa.table({"t": pa.array([0, 10**15], pa.timestamp("us"))})
    assert texts(written(table, use_deprecated_int96_timestamps=True)) == ""


NUMBERS = pa.table({"id": pa.array(range(100), pa.int64()), "s": [f"{n:03}" for n in range(100)]})


@pytest.mark.parametrize(
    ("column", "number", "value", "text"),
    [
        (0, 6, struct.pack("<q", 1), "the minimum is 1, but the column holds 0"),
        (0, 5, struct.pack("<q", 98), "the maximum is 98, but the column holds 99"),
        (0, 2, struct.pack("<q", 1), "readers that prune by it lose rows"),
        (0, 5, b"\0", "the maximum has 1 bytes instead of 8"),
        (0, 3, 1, "1 values are said to be NULL, and 0 are"),
        (1, 6, b"001", "the minimum is b'001', but the column holds b'000'"),
        (1, 5, b"098", "the maximum is b'098', but the column holds b'099'"),
    ],
)
def test_wrong_statistics_are_errors(column: int, number: int, value: Any, text: str) -> None:
    damaged = with_statistic(written(NUMBERS), column, number, value)
    (finding,) = verify(damaged)
    assert (finding.severity, finding.row_group) == ("error", 0)
    assert finding.column == ("id", "s")[column]
    assert text in finding.what


@pytest.mark.parametrize(
    ("column", "number", "value", "text"),
    [
        (0, 6, struct.pack("<q", -5), "the minimum is -5, but the least value is 0"),
        (0, 5, struct.pack("<q", 100), "the greatest value is 99"),
        (0, 4, 101, "101 values are said to be distinct, of 100"),
    ],
)
def test_wide_statistics_are_warnings(column: int, number: int, value: Any, text: str) -> None:
    (finding,) = verify(with_statistic(written(NUMBERS), column, number, value))
    assert finding.severity == "warning"
    assert text in finding.what


def test_bounds_that_are_nan_are_warnings() -> None:
    data = written(pa.table({"f": [1.0, 2.0]}))
    nan = struct.pack("<d", float("nan"))
    findings = verify(with_statistic(data, 0, 6, nan))
    assert {finding.severity for finding in findings} == {"warning"}
    assert "NaN" in findings[0].what


def test_a_page_whose_bytes_changed() -> None:
    data = written(NUMBERS, write_page_checksum=True, compression="none", use_dictionary=False)
    chunk = layout_of(data).groups[0].chunks[0]
    (finding,) = verify(flipped(data, chunk.data.end - 5))
    assert (finding.severity, finding.row_group, finding.column) == ("error", 0, "id")
    assert "the checksum of page 0 does not fit" in finding.what


def test_a_page_that_cannot_be_decompressed() -> None:
    data = written(NUMBERS, compression="zstd", use_dictionary=False)
    chunk = layout_of(data).groups[0].chunks[1]
    middle = chunk.data.start + chunk.data.length // 2
    damaged = data[:middle] + bytes(20) + data[middle + 20 :]
    assert "column s: its values cannot be decoded" in texts(damaged)


def test_counts_of_the_footer_that_do_not_fit_the_pages() -> None:
    def change(footer: Struct) -> None:
        footer.values[3] = 99
        footer.values[4][0].values[3] = 99
        for chunk in footer.values[4][0].values[1]:
            chunk.values[3].values[5] = 99

    assert "its pages hold 100 values, and the footer says 99" in texts(
        with_footer(written(NUMBERS), change)
    )


def test_text_that_is_not_utf8() -> None:
    data = written(pa.table({"s": ["abc"] * 3}), use_dictionary=False, compression="none")
    at = layout_of(data).groups[0].chunks[0].data.end - 1
    damaged = data[:at] + b"\xff" + data[at + 1 :]
    assert "it holds text that is not UTF-8" in texts(damaged)


def test_a_bloom_filter_that_excludes_a_value() -> None:
    data = written(NUMBERS, bloom_filter_options={"id": True})
    bloom = layout_of(data).groups[0].chunks[0].bloom
    assert bloom is not None
    end = bloom.end
    damaged = data[: end - 64] + bytes(64) + data[end:]
    (finding,) = verify(damaged)
    assert "its bloom filter excludes" in finding.what
    assert finding.severity == "error"


def test_a_bloom_filter_that_is_damaged() -> None:
    data = written(NUMBERS, bloom_filter_options={"id": True})
    bloom = layout_of(data).groups[0].chunks[0].bloom
    assert bloom is not None
    (finding,) = verify(data[: bloom.start] + b"\xff" * 8 + data[bloom.start + 8 :])
    assert (finding.severity, finding.column) == ("warning", "id")


INDEXED = {"write_page_index": True, "max_rows_per_page": 10, "use_dictionary": False}


def test_a_column_index_with_a_wrong_bound() -> None:
    data = written(NUMBERS, **INDEXED)
    part = layout_of(data).groups[0].chunks[0].column_index
    assert part is not None
    bound = struct.pack("<q", 20)
    at = data.index(bound, part.start)  # the minimum of the third page
    damaged = data[:at] + struct.pack("<q", 25) + data[at + 8 :]
    assert "column index, page 2: the minimum is 25, but the column holds 20" in texts(damaged)


def test_a_column_index_that_is_not_sorted() -> None:
    rows = pa.table({"id": pa.array([*range(50, 100), *range(50)], pa.int64())})
    data = written(rows, **INDEXED)
    chunk = layout_of(data).groups[0].chunks[0]
    part = chunk.column_index
    assert part is not None
    found, end = decode(data[part.start : part.end], {4: INT})
    assert end == part.length
    set_field(found, 4, 1)
    damaged = data[: part.start] + encode(found) + data[part.end :]
    assert "says that its bounds are sorted, and they are not" in texts(damaged)


def test_an_offset_index_with_a_wrong_row() -> None:
    data = written(NUMBERS, **INDEXED)
    part = layout_of(data).groups[0].chunks[0].offset_index
    assert part is not None
    found, _ = decode(data[part.start : part.end], {1: [{1: INT, 2: INT, 3: INT}]})
    found.values[1][3].values[3] += 1
    damaged = data[: part.start] + encode(found) + data[part.end :]
    assert "page 3 begins with row 31; it begins with row 30" in texts(damaged)


@pytest.mark.parametrize("nulls_first", [True, False])
@pytest.mark.parametrize("descending", [True, False])
def test_rows_that_are_said_to_be_sorted(nulls_first: bool, descending: bool) -> None:
    for kind in (pa.int64(), pa.uint32(), pa.string(), pa.float64(), pa.bool_()):
        values = sorted(pa.array([0, 1, 1, 0]).cast(kind).to_pylist(), reverse=descending)
        rows = [None, *values] if nulls_first else [*values, None]
        claim = pq.SortingColumn(0, descending=descending, nulls_first=nulls_first)
        table = pa.table({"x": pa.array(rows, kind)})
        assert texts(written(table, sorting_columns=[claim])) == ""
        wrong = pa.table({"x": pa.array(rows[::-1], kind)})
        assert "sorted by it, and they are not" in texts(written(wrong, sorting_columns=[claim]))


def test_files_that_are_not_parquet() -> None:
    data = written(NUMBERS)
    for damaged in (b"", b"PAR1", b"x" * 100, data[:-1], data[1:], b"XXXX" + data[4:]):
        (finding,) = verify(damaged)
        assert (finding.severity, "cannot be read" in finding.what) == ("error", True)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Small files of every writer."""
    directory = tmp_path_factory.mktemp("files")
    for number, write in enumerate(SOURCES.values()):
        write(SMALL, str(directory / f"{number}.parquet"))
    return {name: (directory / f"{n}.parquet").read_bytes() for n, name in enumerate(SOURCES)}


def is_protected(data: bytes) -> bool:
    """Whether changed bits of values show in checksums."""
    findings = Findings()
    numbers = range(len(layout_of(data).groups))
    return verify_row_groups(lambda s, n: data[s : s + n], len(data), numbers, findings)


def same_values(data: bytes, expected: pa.Table) -> bool:
    """Whether a file has these values, whatever it calls them."""
    with pq.ParquetFile(pa.BufferReader(data)) as file:
        found = file.read()
    return bool(
        found.num_rows == expected.num_rows
        and all(
            str(a.to_pylist()) == str(b.to_pylist())
            for a, b, one, other in zip(
                found.columns, expected.columns, found.schema, expected.schema, strict=True
            )
            if one.type.equals(other.type)
        )
    )


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_flipped_bits_are_found_or_change_nothing(
    files: dict[str, bytes], data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(sorted(files)))
    whole = files[name]
    in_footer = data.draw(st.booleans(), label="in the footer")
    first = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little") if in_footer else 0
    damaged = whole
    for _ in range(data.draw(st.integers(1, 3), label="bits")):
        position = data.draw(st.integers(first, len(whole) - 1), label="position")
        damaged = flipped(damaged, position, 1 << data.draw(st.integers(0, 7), label="bit"))
    found = verify(damaged)
    if not found and is_protected(whole):
        with pq.ParquetFile(pa.BufferReader(whole)) as file:
            assert same_values(damaged, file.read())


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_truncated_files_are_found(files: dict[str, bytes], data: st.DataObject) -> None:
    whole = files[data.draw(st.sampled_from(sorted(files)))]
    assert verify(whole[: data.draw(st.integers(0, len(whole) - 1))])


def test_the_checksum_is_that_of_the_format() -> None:
    data = written(NUMBERS, write_page_checksum=True)
    assert is_protected(data)
    assert not is_protected(written(NUMBERS))
    assert zlib.crc32(b"") == 0
