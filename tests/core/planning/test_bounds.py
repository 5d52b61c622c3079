"""What bounds are made of footer statistics and paths, and which of them are not believed."""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.core.planning.edited_footers import column, edit_footer, remove

from fsspeckit.core.keys.canonical import key_column
from fsspeckit.core.parquet.format.thrift import BOOL, BYTES, FALSE, TRUE, Spec
from fsspeckit.core.planning.footers import (
    ChunkStatistics,
    FileFooter,
    Leaf,
    RowGroup,
    read_footers,
)
from fsspeckit.core.planning.pruning import (
    ColumnBounds,
    constant_bounds,
    inexact_row_groups,
    statistics_bounds,
)
from fsspeckit.storage.listing import DataFile, list_files
from fsspeckit.storage.roots import open_root
from fsspeckit.testing.writers import WRITERS

if TYPE_CHECKING:
    from pathlib import Path

FILE = DataFile("a.parquet", 1)


def footers_of(directory: Path) -> list[FileFooter]:
    root = open_root(directory)
    return read_footers(root, list_files(root).files, ["id"])


def made_up(leaf: Leaf, *chunks: ChunkStatistics, created_by: str = "") -> FileFooter:
    groups = tuple(RowGroup(10, 100, {"id": chunk}) for chunk in chunks)
    return FileFooter(FILE, 10 * len(groups), groups, None, created_by, {"id": leaf})


def shown(bounds: ColumnBounds) -> list[tuple[Any, Any]]:
    """The bounds of each row group as Python values."""
    low, high = (bounds.column.original(end).to_pylist() for end in (bounds.low, bounds.high))
    return list(zip(low, high, strict=True))


@pytest.mark.parametrize(
    ("type_", "low", "high"),
    [
        (pa.int8(), -128, 127),
        (pa.int64(), -(2**63), 2**63 - 1),
        (pa.uint8(), 0, 255),
        (pa.uint32(), 0, 2**32 - 1),
        (pa.uint64(), 2**63 - 1, 2**64 - 1),
        (pa.bool_(), False, True),
        (pa.float32(), -1.5, math.inf),
        (pa.float64(), -math.inf, 0.0),
        (pa.string(), "", "ä"),
        (pa.binary(), b"\0", b"\xff"),
        (pa.binary(2), b"\0\0", b"\xff\xff"),
        (pa.date32(), date(1, 1, 1), date(9999, 12, 31)),
        (pa.decimal32(9, 2), Decimal("-9999999.99"), Decimal("0.01")),
        (pa.decimal64(18, 0), Decimal(-1), Decimal(10**18 - 1)),
        (pa.decimal128(38, 10), Decimal("-1.0000000001"), Decimal(10**27)),
        (pa.decimal256(76, 0), Decimal(1 - 10**75), Decimal(10**75)),
        (pa.time32("ms"), 1, 2),
        (pa.time64("ns"), 1, 2),
        (pa.duration("s"), -1, 2),
        (pa.timestamp("s"), -1, 2),
        (pa.timestamp("ns", "UTC"), 1 - 2**63, 2**63 - 1),
    ],
    ids=str,
)
def test_statistics_come_back_as_the_values_they_were(
    tmp_path: Path, type_: pa.DataType, low: Any, high: Any
) -> None:
    stored = pa.array([high, None, low], type_)
    pq.write_table(pa.table({"id": stored}), tmp_path / "a.parquet")
    footers = footers_of(tmp_path)
    bounds = statistics_bounds(key_column("id", footers[0].leaves["id"].type), footers)
    ends = pa.array([low, high], type_).cast(bounds.column.type)
    assert bounds.column.original(bounds.low).equals(ends[:1])
    assert bounds.column.original(bounds.high).equals(ends[1:])
    assert bounds.may_contain_values.tolist() == [True]
    assert bounds.may_contain_nulls.tolist() == [True]


def test_each_file_has_the_bounds_of_its_own_type(tmp_path: Path) -> None:
    pq.write_table(column([1, 2], pa.int8()), tmp_path / "a.parquet", row_group_size=1)
    pq.write_table(pa.table({"v": [1]}), tmp_path / "b.parquet")
    pq.write_table(column([2**40], pa.int64()), tmp_path / "c.parquet")
    pq.write_table(column([7], pa.int8()), tmp_path / "d.parquet")
    bounds = statistics_bounds(key_column("id", pa.int64()), footers_of(tmp_path))
    assert shown(bounds) == [(1, 1), (2, 2), (None, None), (2**40, 2**40), (7, 7)]
    assert bounds.may_contain_nulls.tolist() == [False, False, True, False, False]


NUMBER = Leaf("INT64", pa.int64(), 0)
STRING = Leaf("BYTE_ARRAY", pa.string(), 0)


@pytest.mark.parametrize(
    ("leaf", "chunk"),
    [
        (NUMBER, ChunkStatistics()),
        (NUMBER, ChunkStatistics(5, 4, 0)),
        (NUMBER, ChunkStatistics(5, None, 0)),
        (Leaf("DOUBLE", pa.float64(), 0), ChunkStatistics(math.nan, 1.0, 0)),
        (Leaf("DOUBLE", pa.float64(), 0), ChunkStatistics(1.0, math.nan, 0)),
        (Leaf("FIXED_LEN_BYTE_ARRAY", pa.float16(), 0, 2), ChunkStatistics(b"\0<", b"\0<", 0)),
        (Leaf("INT96", pa.timestamp("us", "UTC"), 0), ChunkStatistics(1, 2, 0)),
        (
            Leaf("BYTE_ARRAY", pa.decimal128(9, 0), 0),
            ChunkStatistics(b"\x01", b"\x7f", 0),
        ),
    ],
    ids=str,
)
def test_statistics_that_say_nothing_are_unknown(leaf: Leaf, chunk: ChunkStatistics) -> None:
    bounds = statistics_bounds(key_column("id", leaf.type), [made_up(leaf, chunk)])
    assert bounds.low.null_count == bounds.high.null_count == 1
    assert bounds.may_contain_values.tolist() == [True]


def test_decimals_in_byte_arrays_are_believed_of_writers_that_know_signs() -> None:
    leaf = Leaf("BYTE_ARRAY", pa.decimal128(9, 2), 0)
    chunk = ChunkStatistics(b"\xff\x85", b"\x00\xff\xff", 0)  # of different length, as allowed
    footer = made_up(leaf, chunk, created_by="parquet-mr version 1.13.1")
    bounds = statistics_bounds(key_column("id", leaf.type), [footer])
    assert shown(bounds) == [(Decimal("-1.23"), Decimal("655.35"))]


def test_zero_counts_of_nulls_are_not_the_same_as_none() -> None:
    chunks = [ChunkStatistics(1, 2, nulls) for nulls in (0, None, 3, 10)]
    bounds = statistics_bounds(key_column("id", pa.int64()), [made_up(NUMBER, *chunks)])
    assert bounds.may_contain_nulls.tolist() == [False, True, True, True]
    assert bounds.may_contain_values.tolist() == [True, True, True, False]


def test_a_bound_beyond_the_common_type_is_unknown_and_the_others_are_not() -> None:
    leaf = Leaf("INT64", pa.timestamp("us"), 0)
    far, near = 253_402_300_799_000_000, 1_000_000
    footer = made_up(leaf, ChunkStatistics(near, far, 0), ChunkStatistics(near, near, 0))
    bounds = statistics_bounds(key_column("id", pa.timestamp("ns")), [footer])
    assert bounds.low.is_valid().to_pylist() == [False, True]
    assert bounds.high.to_pylist() == [None, 1_000_000_000]


def test_a_partition_is_a_constant_of_each_row_group() -> None:
    part = key_column("p", pa.int32())
    values = pa.array([5, None, None, 7], pa.int32())
    bounds = constant_bounds(part, values, [True, True, False, True], [2, 1, 1, 0])
    assert shown(bounds) == [(5, 5), (5, 5), (None, None), (None, None)]
    assert bounds.may_contain_values.tolist() == [True, True, False, True]
    assert bounds.may_contain_nulls.tolist() == [False, False, True, True]
    assert bounds.evidence == "partition"


def test_the_bytes_of_a_footer_are_asked_for_only_where_bounds_may_be_cut() -> None:
    def never(footer: FileFooter) -> bytes | None:
        raise AssertionError(f"asked for the footer of {footer.created_by}")

    short = ChunkStatistics(b"a", b"b", 0)
    assert inexact_row_groups(made_up(NUMBER, created_by="Polars"), "id", never) == set()
    for exact in ("parquet-cpp-arrow version 26.0.1", "parquet-mr version 1.16.0"):
        assert inexact_row_groups(made_up(STRING, short, created_by=exact), "id", never) == set()
    with pytest.raises(AssertionError, match="Polars"):
        inexact_row_groups(made_up(STRING, short, created_by="Polars"), "id", never)


@pytest.mark.parametrize("raw", [None, b"", b"no footer", b"\x19\xfc"])
def test_bounds_of_a_footer_that_cannot_be_read_again_may_all_be_cut(raw: bytes | None) -> None:
    short = ChunkStatistics(b"a", b"b", 0)
    footer = made_up(STRING, short, short, created_by="Polars")
    assert inexact_row_groups(footer, "id", lambda _: raw) == {0, 1}


def test_long_bounds_without_a_flag_and_flagged_ones_may_be_cut(tmp_path: Path) -> None:
    values = ["a", "b", "x" * 64, "y" * 63, "c" * 300]
    for writer in ("polars", "duckdb"):
        WRITERS[writer](column(["a"], pa.string()), str(tmp_path / f"{writer}.parquet"))
    footers = {footer.file.path.split("/")[-1]: footer for footer in footers_of(tmp_path)}
    assert {name: inexact_row_groups(f, "id", lambda f: f.raw) for name, f in footers.items()} == {
        "polars.parquet": set(),
        "duckdb.parquet": set(),
    }
    pq.write_table(column(values, pa.string()), tmp_path / "a.parquet", row_group_size=1)
    spec: Spec = {4: [{1: [{3: {12: {7: BOOL, 8: BOOL}}}]}], 6: BYTES}

    def foreign(footer: Any) -> None:
        footer.values[6] = b"somebody 1.0"
        for number, group in enumerate(footer.values[4]):
            statistics = group.values[1][0].values[3].values[12]
            if number != 4:
                remove(statistics, 7, 8)
        first = footer.values[4][0].values[1][0].values[3].values[12]
        first.kinds |= {7: FALSE, 8: TRUE}
        first.values |= {7: False, 8: True}

    edit_footer(tmp_path / "a.parquet", spec, foreign)
    (footer,) = (f for f in footers_of(tmp_path) if f.file.path.endswith("/a.parquet"))
    # Flagged as cut; unflagged and short; unflagged and long; short again; long but exact.
    assert inexact_row_groups(footer, "id", lambda f: f.raw) == {0, 2}
