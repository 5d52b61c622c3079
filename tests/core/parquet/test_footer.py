"""Exactness of bounds, against DuckDB's own reading of the same files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.parquet.thrift_writer import encode, footer_of

from fsspeckit.core.parquet.format.layout import Exactness, bound_exactness
from fsspeckit.core.parquet.format.thrift import (
    BOOL,
    BYTES,
    I64,
    INT,
    LIST,
    RAW,
    STRUCT,
    Spec,
    Struct,
    ThriftError,
    decode,
)
from fsspeckit.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LONG = "z" * 5000
DATA = pa.table(
    {
        "number": [1, 2, 3, 4],
        "short": ["a", "b", "c", "d"],
        "long": [LONG, LONG + "a", LONG + "b", LONG + "c"],
        "both": ["a", LONG, "b", LONG],
        "none": pa.nulls(4, pa.string()),
        "nested": [{"inner": [LONG]}] * 4,
    }
)
KNOWN_SCHEMA = pa.schema({"known": pa.int64(), "unknown": pa.int64()})
CHUNKS: Spec = {4: [{1: [RAW]}]}


def write_pyarrow(path: str) -> None:
    pq.write_table(DATA, path, row_group_size=2)


def write_duckdb(path: str) -> None:
    with duckdb.connect() as connection:
        connection.register("data", DATA)
        connection.execute(f"copy data to '{path}' (format parquet)")


def write_polars(path: str) -> None:
    pl.from_arrow(DATA).write_parquet(path, row_group_size=2)  # type: ignore[union-attr]


def write_datafusion(path: str) -> None:
    options = datafusion.ParquetWriterOptions(max_row_group_size=2, statistics_truncate_length=64)
    context = datafusion.SessionContext()
    context.from_arrow(DATA).write_parquet_with_options(path, options)


WRITERS = [write_pyarrow, write_duckdb, write_polars, write_datafusion]


def read_footer(path: Path) -> bytes:
    return footer_of(path.read_bytes())


def as_duckdb_reads(path: Path) -> dict[str, list[Exactness]]:
    query = (
        "select path_in_schema, min_is_exact, max_is_exact from parquet_metadata(?) "
        "order by row_group_id, column_id"
    )
    result: dict[str, list[Exactness]] = {}
    with duckdb.connect() as connection:
        for column, least, greatest in connection.execute(query, [str(path)]).fetchall():
            result.setdefault(column.replace(", ", "."), []).append(Exactness(least, greatest))
    return result


@pytest.mark.parametrize("write", WRITERS)
def test_every_column_is_as_duckdb_reads_it(tmp_path: Path, write: Callable[[str], None]) -> None:
    path = tmp_path / "data.parquet"
    write(str(path))
    expected = as_duckdb_reads(path)

    assert len(expected) == len(DATA.column_names)
    footer = read_footer(path)
    assert {column: bound_exactness(footer, column) for column in expected} == expected


@pytest.mark.parametrize("write", WRITERS)
def test_nothing_of_a_footer_is_lost(tmp_path: Path, write: Callable[[str], None]) -> None:
    write(str(tmp_path / "data.parquet"))
    footer = read_footer(tmp_path / "data.parquet")
    metadata: Spec = {2: [INT], 3: [BYTES], 4: INT, 6: INT, 7: INT, 9: INT, 11: INT, 12: {7: BOOL}}
    spec: Spec = {3: INT, 4: [{1: [{2: INT, 3: metadata}], 2: INT, 3: INT, 5: INT, 7: INT}]}

    assert encode(decode(footer, spec)[0]) == footer


def test_a_truncated_maximum_differs_from_an_exact_minimum(tmp_path: Path) -> None:
    write_datafusion(str(tmp_path / "data.parquet"))
    footer = read_footer(tmp_path / "data.parquet")

    assert set(bound_exactness(footer, "both")) == {Exactness(min=True, max=False)}
    assert set(bound_exactness(footer, "long")) == {Exactness(min=False, max=False)}
    assert set(bound_exactness(footer, "number")) == {Exactness(min=True, max=True)}


def test_a_writer_that_does_not_tell(tmp_path: Path) -> None:
    write_polars(str(tmp_path / "data.parquet"))

    footer = read_footer(tmp_path / "data.parquet")

    assert bound_exactness(footer, "both") == [Exactness(None, None)] * 2


def footer_with_groups(path: Path) -> bytes:
    """A footer whose columns differ: ``known`` is exact, ``unknown`` has no statistics."""
    table = pa.table({"known": range(4), "unknown": range(4)}, schema=KNOWN_SCHEMA)
    pq.write_table(table, path, row_group_size=2, write_statistics=["known"])
    return read_footer(path)


def test_columns_of_one_group_may_be_in_another_order(tmp_path: Path) -> None:
    struct, _ = decode(footer_with_groups(tmp_path / "data.parquet"), CHUNKS)
    struct.values[4][1].values[1].reverse()

    footer = encode(struct)

    assert bound_exactness(footer, "known") == [Exactness(True, True)] * 2
    assert bound_exactness(footer, "unknown") == [Exactness()] * 2


def test_a_chunk_without_metadata_is_unknown(tmp_path: Path) -> None:
    struct, _ = decode(footer_with_groups(tmp_path / "data.parquet"), CHUNKS)
    struct.values[4][1].values[1][0] = encode(Struct({2: 0}, {}, {2: I64}))

    assert bound_exactness(encode(struct), "known") == [Exactness(True, True), Exactness()]


def test_a_path_of_two_columns_is_unknown(tmp_path: Path) -> None:
    table = pa.table({"a.b": [1, 2], "a": [{"b": 1, "c": 1}, {"b": 2, "c": 2}]})
    pq.write_table(table, tmp_path / "data.parquet", row_group_size=1)

    footer = read_footer(tmp_path / "data.parquet")

    assert bound_exactness(footer, "a.b") == [Exactness()] * 2
    assert bound_exactness(footer, "a.c") == [Exactness(True, True)] * 2


def test_no_row_groups(tmp_path: Path) -> None:
    with pq.ParquetWriter(tmp_path / "data.parquet", KNOWN_SCHEMA):
        pass

    assert bound_exactness(read_footer(tmp_path / "data.parquet"), "known") == []


def test_bytes_after_the_metadata_are_ignored(tmp_path: Path) -> None:
    footer = footer_with_groups(tmp_path / "data.parquet")

    assert bound_exactness(footer + bytes(28), "known") == [Exactness(True, True)] * 2


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    footer = footer_with_groups(tmp_path / "data.parquet")

    with pytest.raises(InvalidArgumentError, match=r"\['Known'\] not found.*'known', 'unknown'"):
        bound_exactness(footer, "Known")


@pytest.mark.parametrize(
    ("other", "missing"),
    [
        (Struct(), "FileMetaData.row_groups"),
        (Struct({4: [Struct()]}, {}, {4: LIST | STRUCT << 4}), "RowGroup.columns"),
    ],
)
def test_another_structure_is_refused(other: Struct, missing: str) -> None:
    with pytest.raises(ThriftError, match=missing):
        bound_exactness(encode(other), "known")


@given(st.data())
def test_damage_is_refused_or_harmless(tmp_path: Path, data: st.DataObject) -> None:
    footer = bytearray(footer_with_groups(tmp_path / "data.parquet"))
    for _ in range(data.draw(st.integers(1, 5))):
        footer[data.draw(st.integers(0, len(footer) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        result = bound_exactness(bytes(footer), "known")
    except (ThriftError, InvalidArgumentError):
        return
    groups = decode(bytes(footer), {3: INT, 4: [RAW]})[0].values[4]
    assert len(result) == len(groups)
