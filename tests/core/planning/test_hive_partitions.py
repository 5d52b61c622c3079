"""Hive partitions: what a path says, and how a value is spelled in one."""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsspeckit.core.keys.canonical import key_column
from fsspeckit.core.planning.target import (
    NULL_TOKEN,
    PartitionDirectories,
    detect_partition_columns,
    parse_hive_partition_path,
    parse_partition_values,
)
from fsspeckit.errors import InvalidArgumentError, SchemaMismatchError, UnsupportedLayoutError
from fsspeckit.storage.listing import is_data_path
from fsspeckit.testing.strategies import PARTITION_STRINGS, PARTITION_TYPES, partition_values

# Paths of files and the values in them.
PATHS: list[tuple[str, dict[str, str | None]]] = [
    ("/data/year=2024/month=12/file.parquet", {"year": "2024", "month": "12"}),
    ("year=2024/file.parquet", {"year": "2024"}),
    ("/data/file.parquet", {}),
    ("file.parquet", {}),
    ("", {}),
    ("s3://bucket/data/year=2024/file.parquet", {"year": "2024"}),
    ("memory://data/p=a/b.parquet", {"p": "a"}),
    # the last component is the file
    ("/data/p=1/k=v.parquet", {"p": "1"}),
    ("/data/p=1/", {"p": "1"}),
    ("/data/p=1", {}),
    # NULL, the empty string, and the first '=' only
    (f"/data/p={NULL_TOKEN}/x.parquet", {"p": None}),
    ("/data/p=/x.parquet", {"p": ""}),
    ("/data/p=a=b/x.parquet", {"p": "a=b"}),
    ("/data/=a/x.parquet", {}),
    # directories between the partitions
    ("/data/batch/p=1/more/q=2/x.parquet", {"p": "1", "q": "2"}),
    # escapes as Spark, DuckDB and Arrow write them
    ("/data/p=a%2Fb/x.parquet", {"p": "a/b"}),
    ("/data/p=a%20b/x.parquet", {"p": "a b"}),
    ("/data/p=a b/x.parquet", {"p": "a b"}),
    ("/data/p=S%C3%A3o/x.parquet", {"p": "São"}),
    ("/data/p=São/x.parquet", {"p": "São"}),
    ("/data/p=100%25/x.parquet", {"p": "100%"}),
    ("/data/p=k%3Dv/x.parquet", {"p": "k=v"}),
    ("/data/p=a+b/x.parquet", {"p": "a+b"}),  # a plus is a plus
    ("/data/p=%2541/x.parquet", {"p": "%41"}),  # decoded once
    ("/data/region%20code=x/x.parquet", {"region code": "x"}),  # names too
    # percent signs that are no escapes, and bytes that are no UTF-8
    ("/data/p=100%/x.parquet", {"p": "100%"}),
    ("/data/p=%zz/x.parquet", {"p": "%zz"}),
    ("/data/p=%FF/x.parquet", {"p": "%FF"}),
    # text that looks like something else stays text
    ("/data/p=007/x.parquet", {"p": "007"}),
    ("/data/p=true/x.parquet", {"p": "true"}),
    ("/data/p=../x.parquet", {"p": ".."}),
]


@pytest.mark.parametrize(("path", "found"), PATHS)
def test_parse_hive_partition_path(path: str, found: dict[str, str | None]) -> None:
    assert parse_hive_partition_path(path) == found
    assert list(parse_hive_partition_path(path)) == list(found)  # in the order of the path


def test_only_components_below_the_root_are_partitions() -> None:
    path = "/lake/env=prod/data/year=2024/x.parquet"
    assert parse_hive_partition_path(path) == {"env": "prod", "year": "2024"}
    for root in ("/lake/env=prod/data", "/lake/env=prod/data/"):
        assert parse_hive_partition_path(path, root=root) == {"year": "2024"}
    assert parse_hive_partition_path("/p=1/x.parquet", root="/") == {"p": "1"}


def test_a_root_that_is_only_a_prefix_of_the_name_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"'/data2/p=1/x\.parquet' is not below"):
        parse_hive_partition_path("/data2/p=1/x.parquet", root="/data")


def test_partition_columns_filter_what_is_returned() -> None:
    path = "/data/year=2024/month=12/x.parquet"
    assert parse_hive_partition_path(path, ["month"]) == {"month": "12"}
    assert parse_hive_partition_path(path, ["month", "day"]) == {"month": "12"}
    assert parse_hive_partition_path(path, []) == {}


def test_one_partition_column_may_be_a_string_and_is_not_searched_for_substrings() -> None:
    assert parse_hive_partition_path("/data/ear=1/year=2/x.parquet", "year") == {"year": "2"}


def test_partition_columns_are_detected_outermost_first() -> None:
    paths = ["year=1/b%20c=2/x.parquet", "year=2/b c=3/y.parquet"]
    assert detect_partition_columns(paths) == ("year", "b c")
    assert detect_partition_columns(["x.parquet", "sub/y.parquet"]) == ()
    assert detect_partition_columns([]) == ()


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (["p=1/x.parquet", "x.parquet"], "disagree"),
        (["p=1/x.parquet", "q=1/x.parquet"], r"\['p'\] in 'p=1/x.parquet'"),
        (["p=1/q=1/x.parquet", "q=1/p=1/x.parquet"], "disagree"),
        (["p=1/p=2/x.parquet"], "occurs twice in the path 'p=1/p=2/x.parquet'"),
    ],
)
def test_files_that_disagree_about_the_partition_columns_are_refused(
    paths: list[str], message: str
) -> None:
    with pytest.raises(UnsupportedLayoutError, match=message):
        detect_partition_columns(paths)


# Text in a path, a type, and the value; Ellipsis for text that is no value of the type.
TYPED: list[tuple[str | None, pa.DataType, Any]] = [
    ("7", pa.int32(), 7),
    ("007", pa.int32(), 7),
    ("-1", pa.int64(), -1),
    (str(2**64 - 1), pa.uint64(), 2**64 - 1),
    ("7.0", pa.int64(), ...),
    ("abc", pa.int64(), ...),
    ("", pa.int64(), ...),
    ("300", pa.int8(), ...),
    ("007", pa.string(), "007"),
    ("007", pa.large_string(), "007"),
    ("007", pa.dictionary(pa.int8(), pa.string()), "007"),
    ("true", pa.bool_(), True),
    ("False", pa.bool_(), False),
    ("yes", pa.bool_(), ...),
    ("2024-02-29", pa.date32(), date(2024, 2, 29)),
    ("2023-02-29", pa.date32(), ...),
    ("1.50", pa.decimal128(9, 2), Decimal("1.50")),
    ("1.505", pa.decimal128(9, 2), ...),
    ("1e5", pa.float64(), 1e5),
    ("ab", pa.binary(2), b"ab"),
    ("abc", pa.binary(2), ...),
    ("\udcff", pa.string(), ...),  # a name on disk that is not UTF-8
    ("x", pa.list_(pa.string()), ...),
    (None, pa.int64(), None),
    (None, pa.string(), None),
]


@pytest.mark.parametrize(("text", "data_type", "value"), TYPED)
def test_values_in_paths_are_typed_by_the_schema(
    text: str | None, data_type: pa.DataType, value: Any
) -> None:
    values, known = parse_partition_values([text], data_type)
    assert known == [value is not ...]
    assert values.to_pylist() == [None if value is ... else value]


@pytest.mark.parametrize(
    "text",
    [
        "2024-05-01 12:00:00",  # as UTC: Spark and Arrow write no zone
        "2024-05-01T12:00:00",
        "2024-05-01 12:00:00+00",  # as DuckDB writes it
        "2024-05-01 14:00:00+02:00",
        "2024-05-01 12:00:00Z",
    ],
)
def test_instants_in_paths_with_and_without_an_offset(text: str) -> None:
    instant = pa.scalar(1_714_564_800, pa.timestamp("s", "Asia/Tokyo"))
    values, known = parse_partition_values([text], instant.type)
    assert known == [True]
    assert values[0] == instant


def test_one_invalid_text_does_not_spoil_the_others() -> None:
    values, known = parse_partition_values(["1", "x", None, "4"], pa.int64())
    assert values.to_pylist() == [1, None, None, 4]
    assert known == [True, False, True, True]


def test_without_texts_there_are_no_values() -> None:
    values, known = parse_partition_values([], pa.date32())
    assert (values.type, len(values), known) == (pa.date32(), 0, [])


def directories(data_type: pa.DataType, *existing: str) -> PartitionDirectories:
    return PartitionDirectories(pa.schema([("p", data_type)]), existing)


def directory_of(value: Any, data_type: pa.DataType, *existing: str) -> str:
    return directories(data_type, *existing).directory([pa.array([value], data_type)[0]])


# A value, and how its directory is spelled.
SPELLED: list[tuple[Any, pa.DataType, str]] = [
    ("a", pa.string(), "p=a"),
    ("a b", pa.string(), "p=a b"),
    ("São 😀", pa.string(), "p=São 😀"),
    ("a/b", pa.string(), "p=a%2Fb"),
    ("a\\b", pa.string(), "p=a%5Cb"),
    ("k=v", pa.string(), "p=k%3Dv"),
    ("50%", pa.string(), "p=50%25"),
    ("it's", pa.string(), "p=it%27s"),
    ('q"', pa.string(), "p=q%22"),
    ("a:b", pa.string(), "p=a%3Ab"),
    ("#*?{[]^", pa.string(), "p=%23%2A%3F%7B%5B%5D%5E"),
    ("a\nb\t\x7f", pa.string(), "p=a%0Ab%09%7F"),
    (".", pa.string(), "p=."),
    ("..", pa.string(), "p=.."),
    ("a/../../b", pa.string(), "p=a%2F..%2F..%2Fb"),
    ("007", pa.string(), "p=007"),
    (None, pa.string(), f"p={NULL_TOKEN}"),
    (None, pa.int64(), f"p={NULL_TOKEN}"),
    (-1, pa.int32(), "p=-1"),
    (True, pa.bool_(), "p=true"),
    (date(2024, 1, 2), pa.date32(), "p=2024-01-02"),
    (date(2024, 1, 2), pa.date64(), "p=2024-01-02"),
    (Decimal("1.50"), pa.decimal128(9, 2), "p=1.50"),
    (1.5, pa.float64(), "p=1.5"),
    ("x", pa.dictionary(pa.int8(), pa.string()), "p=x"),
    (b"ab", pa.binary(), "p=ab"),
    (1, pa.timestamp("s"), "p=1970-01-01 00%3A00%3A01"),
    (1, pa.timestamp("s", "Asia/Tokyo"), "p=1970-01-01 00%3A00%3A01"),  # in UTC
]


@pytest.mark.parametrize(("value", "data_type", "spelled"), SPELLED)
def test_how_values_are_spelled_in_new_directories(
    value: Any, data_type: pa.DataType, spelled: str
) -> None:
    assert directory_of(value, data_type) == spelled


def test_names_of_partition_columns_are_escaped_too() -> None:
    schema = pa.schema([("a/b", pa.int8()), ("x=y", pa.int8()), ("region code", pa.int8())])
    found = PartitionDirectories(schema).directory([pa.scalar(n, pa.int8()) for n in (1, 2, 3)])
    assert found == "a%2Fb=1/x%3Dy=2/region code=3"
    assert parse_hive_partition_path(f"{found}/") == {"a/b": "1", "x=y": "2", "region code": "3"}


@pytest.mark.parametrize(
    ("value", "data_type", "existing"),
    [
        ("a b", pa.string(), "p=a%20b"),
        ("São", pa.string(), "p=S%C3%A3o"),
        ("a.b", pa.string(), "p=a%2Eb"),
        (7, pa.int64(), "p=007"),
        (True, pa.bool_(), "p=True"),
        (Decimal("1.5"), pa.decimal128(9, 2), "p=1.5"),
        (1.0, pa.float64(), "p=1.0"),
        (0.0, pa.float64(), "p=-0.0"),
        (math.nan, pa.float64(), "p=NaN"),
        (0, pa.timestamp("us", "UTC"), "p=1970-01-01 00%3A00%3A00%2B00"),
        (None, pa.string(), f"p={NULL_TOKEN}"),
        (1, pa.int64(), "batch/p=1"),
    ],
)
def test_the_spelling_of_an_existing_directory_is_kept(
    value: Any, data_type: pa.DataType, existing: str
) -> None:
    assert directory_of(value, data_type, "p=zzz", existing) == existing


def test_of_two_spellings_of_one_value_the_first_in_sorted_order_is_taken() -> None:
    assert directory_of(7, pa.int64(), "p=7", "p=07", "p=007") == "p=007"
    assert directory_of("a b", pa.string(), "p=a%20b", "p=a b") == "p=a b"


def test_new_directories_are_found_again() -> None:
    known = directories(pa.float64())
    negative, positive = pa.scalar(-0.0), pa.scalar(0.0)
    assert known.directory([negative]) == known.directory([positive])


def test_a_directory_without_the_partition_column_is_not_the_null_partition() -> None:
    assert directory_of(None, pa.int64(), "", "other", "q=1") == f"p={NULL_TOKEN}"


def test_a_directory_whose_text_is_not_of_the_type_matches_no_value() -> None:
    assert directory_of(7, pa.int64(), "p=seven", "p=7.0") == "p=7"


def test_the_empty_string_is_refused_because_spark_reads_it_as_null() -> None:
    with pytest.raises(InvalidArgumentError, match="'p' holds an empty string"):
        directory_of("", pa.string())


def test_nul_is_refused_because_no_file_name_can_hold_it() -> None:
    with pytest.raises(InvalidArgumentError, match="NUL"):
        directory_of("a\0b", pa.string())


@pytest.mark.parametrize(
    ("value", "data_type"),
    [
        (NULL_TOKEN, pa.string()),  # would come back as NULL
        (2**31 - 1, pa.date32()),  # no reader knows the year 5,881,580
        (2**60, pa.timestamp("s")),
        (1, pa.duration("s")),
    ],
)
def test_values_that_a_reader_would_take_for_others_are_refused(
    value: Any, data_type: pa.DataType
) -> None:
    with pytest.raises(InvalidArgumentError, match="cannot be read back from the name"):
        directory_of(value, data_type)


def test_bytes_that_are_not_text_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"'p' holds b'.*', which is not valid text"):
        directory_of(b"\xff", pa.binary())


@pytest.mark.parametrize("name", ["", "_p", ".p", "..", "__fsspeckit"])
def test_a_partition_column_whose_directory_would_be_hidden_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="cannot be a partition column"):
        PartitionDirectories(pa.schema([(name, pa.int64())]))


def test_a_value_of_another_family_is_refused_and_not_cast() -> None:
    with pytest.raises(SchemaMismatchError, match="never equal"):
        directories(pa.int64()).directory([pa.scalar("007")])
    assert directories(pa.int64()).directory([pa.scalar(7, pa.int8())]) == "p=7"


@pytest.mark.parametrize("data_type", [*PARTITION_TYPES, pa.timestamp("us", "UTC")], ids=str)
def test_directories_give_their_values_back(data_type: pa.DataType) -> None:
    column = key_column("p", data_type)

    @given(partition_values(data_type), st.none() | st.just("p=zzz"))
    def check(value: Any, existing: str | None) -> None:
        before = pa.array([value], data_type)
        directory = directories(data_type, *([existing] if existing else [])).directory(before[:1])
        text = parse_hive_partition_path(f"{directory}/x.parquet")["p"]
        after, known = parse_partition_values([text], data_type)
        assert known == [True]
        assert column.canonical(after).equals(column.canonical(before))

    check()


@given(st.text(min_size=1).filter(lambda text: "\0" not in text and text != NULL_TOKEN))
def test_no_value_can_leave_its_directory(text: str) -> None:
    directory = directory_of(text, pa.string())
    assert "/" not in directory
    assert "\\" not in directory
    assert directory not in (".", "..")
    assert not any(char < " " or char == "\x7f" for char in directory)
    assert is_data_path(f"{directory}/x.parquet")
    assert parse_hive_partition_path(f"{directory}/x.parquet") == {"p": text}


@given(st.lists(st.sampled_from(PARTITION_STRINGS), min_size=2, max_size=2))
def test_every_partition_column_is_one_component(texts: list[str]) -> None:
    schema = pa.schema([("p", pa.string()), ("q", pa.string())])
    directory = PartitionDirectories(schema).directory([pa.scalar(text) for text in texts])
    assert len(directory.split("/")) == 2
    assert list(parse_hive_partition_path(f"{directory}/").values()) == texts
