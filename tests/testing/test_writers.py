from __future__ import annotations

import os
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from fsspeckit.testing.strategies import COLUMN_NAMES, PARTITION_STRINGS, datasets
from fsspeckit.testing.writers import (
    WRITERS,
    WriteOptions,
    WriterCannotError,
    drop_statistics,
    partly_without_statistics,
    read_back,
    row_counts,
    write_hive,
)

if TYPE_CHECKING:
    from pathlib import Path

    from fsspeckit.testing.strategies import GeneratedDataset
    from fsspeckit.testing.writers import Writer

each_writer = pytest.mark.parametrize(
    "writer",
    [pytest.param(name, marks=[pytest.mark.spark] if name == "spark" else []) for name in WRITERS],
    indirect=True,
)


@pytest.fixture
def writer(request: pytest.FixtureRequest) -> Writer:
    if request.param == "spark":
        request.getfixturevalue("spark")
    return WRITERS[request.param]


def nines(digits: int, scale: int) -> list[Decimal]:
    return [Decimal((sign, (9,) * digits, -scale)) for sign in (0, 1)]


INTEGERS: dict[pa.DataType, list[Any]] = {
    pa.int8(): [-128, 127],
    pa.int16(): [-(2**15), 2**15 - 1],
    pa.int32(): [-(2**31), 2**31 - 1],
    pa.int64(): [-(2**63), 2**63 - 1],
    pa.uint8(): [0, 255],
    pa.uint16(): [0, 2**16 - 1],
    pa.uint32(): [0, 2**32 - 1],
    pa.uint64(): [0, 2**64 - 1],
}
DECIMALS = {
    pa.decimal128(p, s): nines(p, s) for p, s in [(9, 0), (9, 9), (18, 4), (38, 0), (38, 10)]
}
TIMESTAMPS = {  # the years 1 and 9999, and what fits into 64 bits of nanoseconds
    pa.timestamp(unit, zone): [-62_135_596_800 * scale, 1, 253_402_300_799 * scale]
    for zone in (None, "UTC")
    for unit, scale in {"s": 1, "ms": 10**3, "us": 10**6}.items()
} | {pa.timestamp("ns", zone): [1 - 2**63, 1, 2**63 - 1] for zone in (None, "UTC")}
OTHERS: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False],
    pa.float16(): [0.5],
    pa.float32(): [float("nan"), -0.0, float("inf"), 0.5],
    pa.float64(): [float("nan"), -0.0, float("-inf"), 1e308],
    pa.string(): ["", "ü😀"],
    pa.large_string(): ["a", "\0"],
    pa.string_view(): ["a" * 20],
    pa.dictionary(pa.int32(), pa.string()): ["a", "b", "a"],
    pa.binary(): [b"", b"\xff\0"],
    pa.large_binary(): [b"a"],
    pa.binary(16): [b"\xff" * 16],
    pa.decimal256(50, 2): nines(50, 2),
    pa.date32(): [-719_162, 2_932_896],
    pa.time64("us"): [1],
    pa.duration("us"): [1],
    pa.null(): [None],
    pa.struct([("a", pa.int32()), ("b", pa.string())]): [{"a": 1, "b": None}],
    pa.list_(pa.int32()): [[], [1, None]],
    pa.map_(pa.string(), pa.int64()): [[("a", 1)], []],
    pa.list_(pa.struct([("x", pa.list_(pa.string()))])): [[{"x": ["a"]}], []],
}
SAMPLES = INTEGERS | DECIMALS | TIMESTAMPS | OTHERS
CANNOT = {
    "pyarrow": set[str](),
    "duckdb": {"decimal256(50, 2)", "duration[us]", "halffloat"},
    "polars": {"decimal256(50, 2)"},
    "spark": {"decimal256(50, 2)", "duration[us]", "halffloat", "null", "time64[us]"}
    | {"timestamp[ns]", "timestamp[ns, tz=UTC]"},
}


def samples(writer: Writer) -> pa.Table:
    """One column for each type that the writer can write, NULL in the last row."""
    columns = {}
    for type_, values in SAMPLES.items():
        if str(type_) not in CANNOT[writer.name]:
            columns[str(type_)] = pa.array([*values, *[None] * (5 - len(values))], type_)
    return pa.table(columns)


@each_writer
def test_values_survive_every_type_a_writer_takes(writer: Writer, tmp_path: Path) -> None:
    table = samples(writer)
    path = str(tmp_path / "it's a file.parquet")
    writer(table, path)
    back = read_back(path, table.schema)
    for name in table.column_names:
        assert repr(back[name].to_pylist()) == repr(table[name].to_pylist()), name
    assert os.listdir(tmp_path) == ["it's a file.parquet"]


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("type_", SAMPLES, ids=str)
def test_a_writer_says_which_types_it_cannot_write(name: str, type_: pa.DataType) -> None:
    for nested in (type_, pa.struct([("x", pa.list_(type_))])):
        schema = pa.schema([("c", nested)])
        if str(type_) in CANNOT[name]:
            with pytest.raises(WriterCannotError, match="cannot write"):
                WRITERS[name].check(schema)
        else:
            WRITERS[name].check(schema)


def test_a_refused_table_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(WriterCannotError, match="halffloat"):
        WRITERS["spark"](pa.table({"h": pa.array([1.0], pa.float16())}), str(tmp_path / "x"))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("duckdb", WriteOptions(statistics=False)),
        ("duckdb", WriteOptions(decimal_as_integer=False)),
        ("polars", WriteOptions(int96=True)),
        ("polars", WriteOptions(bloom_columns=("c",))),
    ],
)
def test_a_writer_says_which_options_it_lacks(name: str, options: WriteOptions) -> None:
    with pytest.raises(WriterCannotError, match="cannot write with"):
        WRITERS[name].check(pa.schema([]), options)


@pytest.mark.parametrize("name", ["duckdb", "spark"])
def test_names_that_differ_by_case_are_refused_where_they_are_one(name: str) -> None:
    schema = pa.schema([("id", pa.int8()), ("ID", pa.int8())])
    with pytest.raises(WriterCannotError, match="by case"):
        WRITERS[name].check(schema)
    WRITERS["pyarrow"].check(schema)


@each_writer
def test_any_column_name_can_be_written(writer: Writer, tmp_path: Path) -> None:
    table = pa.table({name: [number] for number, name in enumerate(COLUMN_NAMES)})
    path = str(tmp_path / "names.parquet")
    writer(table, path)
    assert read_back(path, table.schema).equals(table)


@each_writer
def test_an_empty_table_is_a_file_with_its_schema(writer: Writer, tmp_path: Path) -> None:
    table = samples(writer).slice(0, 0)
    path = str(tmp_path / "empty.parquet")
    writer(table, path)
    assert read_back(path, table.schema).equals(table)


NUMBERS = pa.table(
    {
        "k": pa.array(range(30), pa.int64()),
        "d": pa.array([Decimal(n) for n in range(30)], pa.decimal128(9, 2)),
        "t": pa.array(range(30), pa.timestamp("us", "UTC")),
    }
)


def written(writer: Writer, path: Path, **options: Any) -> pq.FileMetaData:
    writer(NUMBERS, str(path), WriteOptions(**options))
    assert read_back(str(path), NUMBERS.schema).equals(NUMBERS)
    return pq.read_metadata(path)


def physical(metadata: pq.FileMetaData) -> dict[str, str]:
    columns = (metadata.schema.column(number) for number in range(metadata.num_columns))
    return {column.name: column.physical_type for column in columns}


@each_writer
def test_row_groups_have_the_size_asked_for(writer: Writer, tmp_path: Path) -> None:
    metadata = written(writer, tmp_path / "x.parquet", row_group_size=7)
    sizes = [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]
    assert sizes == [7, 7, 7, 7, 2]


@each_writer
@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd"])
def test_compression(writer: Writer, codec: str, tmp_path: Path) -> None:
    metadata = written(writer, tmp_path / "x.parquet", compression=codec)
    expected = "UNCOMPRESSED" if codec == "none" else codec.upper()
    assert metadata.row_group(0).column(0).compression == expected


@each_writer
@pytest.mark.parametrize("statistics", [True, False])
def test_statistics(writer: Writer, statistics: bool, tmp_path: Path) -> None:
    if writer.name == "duckdb" and not statistics:
        pytest.skip("DuckDB always writes statistics")
    metadata = written(writer, tmp_path / "x.parquet", statistics=statistics)
    assert metadata.row_group(0).column(0).is_stats_set is statistics


@each_writer
@pytest.mark.parametrize("asked", [None, True, False])
def test_timestamps_as_int96(writer: Writer, asked: bool | None, tmp_path: Path) -> None:
    if writer.name == "polars" and asked:
        pytest.skip("Polars never writes INT96")
    metadata = written(writer, tmp_path / "x.parquet", int96=asked)
    expected = asked if asked is not None else writer.name == "spark"
    assert physical(metadata)["t"] == ("INT96" if expected else "INT64")


@each_writer
@pytest.mark.parametrize("asked", [None, True, False])
def test_decimals_as_integers(writer: Writer, asked: bool | None, tmp_path: Path) -> None:
    if writer.name in ("duckdb", "polars") and asked is False:
        pytest.skip("always integers")
    metadata = written(writer, tmp_path / "x.parquet", decimal_as_integer=asked)
    expected = asked if asked is not None else writer.name != "pyarrow"
    assert physical(metadata)["d"] == ("INT32" if expected else "FIXED_LEN_BYTE_ARRAY")


@each_writer
@pytest.mark.parametrize("asked", [(), ("k",)])
def test_bloom_filters(writer: Writer, asked: tuple[str, ...], tmp_path: Path) -> None:
    if writer.name == "polars":
        pytest.skip("Polars writes no bloom filters")
    metadata = written(writer, tmp_path / "x.parquet", bloom_columns=asked)
    assert (metadata.row_group(0).column(0).bloom_filter_offset is not None) is bool(asked)


PARTITIONS: dict[pa.DataType, list[str]] = {
    pa.string(): list(PARTITION_STRINGS),
    pa.int32(): ["-5", "0", "2147483647"],
    pa.date32(): ["0001-01-01", "2024-02-29"],
    pa.bool_(): ["true", "false"],
}


def values_in_paths(root: str) -> dict[int, str | None]:
    """The decoded partition value of each row ``v``."""
    found: dict[int, str | None] = {}
    for folder, _, names in os.walk(root):
        for name in names:
            if name.endswith(".parquet"):
                value = unquote(os.path.basename(folder).removeprefix("p="))
                with pq.ParquetFile(os.path.join(folder, name)) as file:
                    rows = file.read()["v"].to_pylist()
                token = value == "__HIVE_DEFAULT_PARTITION__"
                found.update(dict.fromkeys(rows, None if token else value))
    return found


@each_writer
@pytest.mark.parametrize("type_", PARTITIONS, ids=str)
def test_hive_directories_of_every_writer_hold_the_same_values(
    writer: Writer, type_: pa.DataType, tmp_path: Path
) -> None:
    texts = PARTITIONS[type_]
    values = pa.array([*texts, None]).cast(type_)
    table = pa.table({"p": values, "v": list(range(len(values)))})
    write_hive(writer, table, str(tmp_path / "hive"), ["p"])
    assert values_in_paths(str(tmp_path / "hive")) == dict(enumerate([*texts, None]))


@each_writer
def test_hive_directories_nest(writer: Writer, tmp_path: Path) -> None:
    table = pa.table({"p": ["x", "y"], "q": [1, 2], "v": [0, 1]})
    options = WriteOptions(compression="zstd")
    write_hive(writer, table, str(tmp_path / "hive"), ["p", "q"], options)
    for folder in ("p=x/q=1", "p=y/q=2"):
        (path,) = (tmp_path / "hive" / folder).glob("*.parquet")
        assert pq.read_metadata(path).row_group(0).column(0).compression == "ZSTD"


def test_only_polars_repeats_partition_columns_inside_files(tmp_path: Path) -> None:
    table = pa.table({"p": ["x"], "v": [0]})
    inside = set()
    for name in ("pyarrow", "duckdb", "polars"):
        write_hive(WRITERS[name], table, str(tmp_path / name), ["p"])
        (path,) = (tmp_path / name / "p=x").glob("*.parquet")
        inside |= {name} if "p" in pq.read_schema(path).names else set()
    assert inside == {"polars"}


@each_writer
def test_only_spark_spells_non_ascii_values_as_they_are(writer: Writer, tmp_path: Path) -> None:
    write_hive(writer, pa.table({"p": ["ü"], "v": [0]}), str(tmp_path / "hive"), ["p"])
    data = {name for name in os.listdir(tmp_path / "hive") if name.startswith("p=")}
    assert data == ({"p=ü"} if writer.name == "spark" else {"p=%C3%BC"})
    assert (tmp_path / "hive" / "_SUCCESS").exists() is (writer.name == "spark")


@pytest.mark.parametrize("name", ["pyarrow", "duckdb", "polars"])
@given(dataset=datasets())
@settings(max_examples=25)
def test_generated_tables_survive(name: str, dataset: GeneratedDataset, tmp_path: Path) -> None:
    path = str(tmp_path / "generated.parquet")
    options = WriteOptions(row_group_size=dataset.row_group_size)
    WRITERS[name](dataset.target, path, options)
    assert row_counts(read_back(path, dataset.schema)) == row_counts(dataset.target)


@each_writer
def test_statistics_of_some_row_groups_only(writer: Writer, tmp_path: Path) -> None:
    path = str(tmp_path / "x.parquet")
    options = WriteOptions(
        row_group_size=1, bloom_columns=() if writer.name == "polars" else ("k",)
    )
    partly_without_statistics(NUMBERS, path, [0, 2, 29], writer=writer, options=options)
    metadata = pq.read_metadata(path)
    for number in range(30):
        chunks = [metadata.row_group(number).column(column) for column in range(3)]
        have = [chunk.is_stats_set for chunk in chunks]
        assert have == [number not in (0, 2, 29)] * 3
        assert chunks[0].num_values == 1
    assert read_back(path, NUMBERS.schema).equals(NUMBERS)


def test_dropping_no_statistics_keeps_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    WRITERS["pyarrow"](NUMBERS, str(path), WriteOptions(row_group_size=1))
    before = path.read_bytes()
    drop_statistics(str(path), [])
    assert path.read_bytes() == before


def test_row_counts_compare_rows_in_any_order() -> None:
    table = pa.table({"a": [1.0, float("nan"), 1.0], "b": ["x", "y", "x"]})
    assert row_counts(table) == row_counts(table.take([2, 0, 1]).to_pylist())
    assert row_counts(table) != row_counts(table.take([1, 1, 0]))
    assert row_counts([{"a": 0.0}]) != row_counts([{"a": -0.0}])
