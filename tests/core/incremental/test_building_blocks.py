"""The building blocks of planning under the names that callers import."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from hypothesis import given, settings

from fsspeckit.core.incremental import (
    ConservativeMembershipChecker,
    ParquetFileMetadata,
    ParquetMetadataAnalyzer,
    PartitionPruner,
    list_dataset_files,
)
from fsspeckit.errors import InvalidArgumentError, SchemaMismatchError
from fsspeckit.testing.model_source import values_of
from fsspeckit.testing.strategies import (
    GeneratedDataset,
    dataset_schemas,
    datasets,
)

if TYPE_CHECKING:
    from pathlib import Path


def write(directory: Path, relative: str, table: pa.Table, **options: Any) -> str:
    path = directory / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)
    return str(path)


def analyze(directory: Path) -> list[ParquetFileMetadata]:
    return ParquetMetadataAnalyzer().analyze_dataset_files(str(directory))


def analyzed(directory: Path, table: pa.Table, **options: Any) -> ParquetFileMetadata:
    """What is known of a table written as the only file of a dataset."""
    write(directory, "x.parquet", table, **options)
    (found,) = analyze(directory)
    return found


def might_contain(file: ParquetFileMetadata, names: Any, keys: Any) -> bool:
    return ConservativeMembershipChecker().file_might_contain_keys(file, names, keys)


# Listing.


def test_data_files_are_listed_sorted_with_any_parquet_suffix(tmp_path: Path) -> None:
    for name in ("b.parquet", "a.PARQUET", "sub/c.pq", "p=1/d.parq"):
        write(tmp_path, name, pa.table({"id": [1]}))
    for name in (".h.parquet", "_h.parquet", ".s/x.parquet", "_s/x.parquet", "notes.txt", "x.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    expected = ["a.PARQUET", "b.parquet", "p=1/d.parq", "sub/c.pq"]
    assert list_dataset_files(str(tmp_path)) == [str(tmp_path / name) for name in expected]
    below = DirFileSystem(str(tmp_path.parent), LocalFileSystem())
    assert list_dataset_files(tmp_path.name, below) == [f"{tmp_path.name}/{n}" for n in expected]


def test_a_dataset_that_is_not_there_has_no_files(tmp_path: Path) -> None:
    assert list_dataset_files(str(tmp_path / "none")) == []
    assert list_dataset_files("memory://nowhere") == []
    assert analyze(tmp_path / "none") == []


# Metadata.


def test_metadata_with_statistics(tmp_path: Path) -> None:
    table = pa.table({"id": [5, 1, None, 9], "s": ["b", "a", "c", "a"]})
    found = analyzed(tmp_path, table, row_group_size=2)
    assert found.path == str(tmp_path / "x.parquet")
    assert (found.row_group_count, found.total_rows) == (2, 4)
    assert found.column_stats == {
        "id": {"min": 1, "max": 9, "null_count": 1},
        "s": {"min": "a", "max": "c", "null_count": 0},
    }
    assert found.partition_values == {}


def test_metadata_without_statistics(tmp_path: Path) -> None:
    found = analyzed(tmp_path, pa.table({"id": [5, 1]}), write_statistics=False)
    assert found.column_stats == {}
    assert (found.row_group_count, found.total_rows) == (1, 2)


def test_metadata_with_statistics_of_some_columns(tmp_path: Path) -> None:
    table = pa.table({"id": [5, 1], "v": [1, 2]})
    found = analyzed(tmp_path, table, write_statistics=["id"])
    assert list(found.column_stats) == ["id"]


def test_bounds_are_there_only_where_every_row_group_has_them(tmp_path: Path) -> None:
    # NaN alone has no bounds, so one of the two row groups has none.
    table = pa.table({"f": [math.nan, math.nan, 1.0, 2.0], "g": [1.0, 2.0, 3.0, 4.0]})
    found = analyzed(tmp_path, table, row_group_size=2)
    assert found.column_stats == {
        "f": {"null_count": 0},
        "g": {"min": 1.0, "max": 4.0, "null_count": 0},
    }


def test_a_row_group_of_null_alone_does_not_hide_the_bounds_of_the_others(tmp_path: Path) -> None:
    table = pa.table({"id": [None, None, 1, 2], "n": pa.nulls(4, pa.int64())})
    found = analyzed(tmp_path, table, row_group_size=2)
    assert found.column_stats == {
        "id": {"min": 1, "max": 2, "null_count": 2},
        "n": {"null_count": 4},
    }


STATISTICS: list[tuple[pa.Array, Any, Any]] = [
    (pa.array([True, False]), False, True),
    (pa.array([2**63, 1], pa.uint64()), 1, 2**63),
    (pa.array([-1, 200], pa.int16()), -1, 200),
    (pa.array([Decimal("-1.50"), Decimal("2.00")]), Decimal("-1.50"), Decimal("2.00")),
    (pa.array([b"\xff", b"\0"]), b"\0", b"\xff"),
    (pa.array([date(2024, 1, 1), date(1960, 1, 1)]), date(1960, 1, 1), date(2024, 1, 1)),
    (
        pa.array([datetime(2024, 1, 1, tzinfo=UTC)] * 2, pa.timestamp("ms", "UTC")),
        datetime(2024, 1, 1, tzinfo=UTC),
        datetime(2024, 1, 1, tzinfo=UTC),
    ),
    (pa.array(["b", "a"]).dictionary_encode(), "a", "b"),
    (pa.array([0.5, -0.5], pa.float32()), -0.5, 0.5),
]


@pytest.mark.parametrize(("column", "low", "high"), STATISTICS)
def test_bounds_are_python_values_of_the_column(
    tmp_path: Path, column: pa.Array, low: Any, high: Any
) -> None:
    stats = analyzed(tmp_path, pa.table({"k": column})).column_stats["k"]
    assert stats == {"min": low, "max": high, "null_count": 0}


def test_bounds_without_a_meaning_are_left_out(tmp_path: Path) -> None:
    stamps = pa.array([datetime(2024, 1, 1)], pa.timestamp("us"))
    table = pa.table({"t": stamps})
    found = analyzed(tmp_path, table, use_deprecated_int96_timestamps=True)
    assert not {"min", "max"} & set(found.column_stats.get("t", {}))


@pytest.mark.parametrize(
    ("data_type", "number"),
    [(pa.date32(), 2**31 - 1), (pa.timestamp("ms"), 2**62), (pa.timestamp("ms", "UTC"), 2**62)],
)
def test_bounds_that_python_cannot_express_are_left_out_and_do_not_raise(
    tmp_path: Path, data_type: pa.DataType, number: int
) -> None:
    width = pa.int32() if pa.types.is_date32(data_type) else pa.int64()
    column = pa.array([0, number], width).view(data_type)
    found = analyzed(tmp_path, pa.table({"k": column}))
    assert found.column_stats == {"k": {"null_count": 0}}
    # The footer itself still prunes.
    assert not might_contain(found, ["k"], pa.array([-1], width).view(data_type))
    assert might_contain(found, ["k"], pa.array([5], width).view(data_type))


def test_a_nested_leaf_is_not_a_column_of_its_name(tmp_path: Path) -> None:
    table = pa.table({"s": [{"id": 1}], "l": [[1, 2]], "id": [7]})
    found = analyzed(tmp_path, table)
    assert found.column_stats == {"id": {"min": 7, "max": 7, "null_count": 0}}


def test_partition_values_come_from_below_the_root(tmp_path: Path) -> None:
    root = tmp_path / "env=prod" / "data"
    write(root, "day=2024-01-01/city=S%C3%A3o/x.parquet", pa.table({"id": [1]}))
    write(root, "day=__HIVE_DEFAULT_PARTITION__/city=b/x.parquet", pa.table({"id": [1]}))
    assert [file.partition_values for file in analyze(root)] == [
        {"day": "2024-01-01", "city": "São"},
        {"day": None, "city": "b"},
    ]


def test_an_unreadable_file_is_known_by_its_path_alone(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", pa.table({"id": [1]}))
    (tmp_path / "b.parquet").write_bytes(b"PAR1")
    good, bad = analyze(tmp_path)
    assert good.column_stats
    assert (bad.column_stats, bad.total_rows, bad.row_group_count) == ({}, 0, 0)
    assert bad.footer is not None
    assert "b.parquet" in str(bad.footer.error)
    assert might_contain(bad, ["id"], [99])


def test_metadata_through_any_filesystem(tmp_path: Path) -> None:
    write(tmp_path, "d/x.parquet", pa.table({"id": [1]}))
    below = DirFileSystem(str(tmp_path), LocalFileSystem())
    (found,) = ParquetMetadataAnalyzer().analyze_dataset_files("d", below)
    assert found.path == "d/x.parquet"
    assert found.column_stats["id"]["max"] == 1


# Pruning by partition.


def files(*values: dict[str, Any] | None) -> list[ParquetFileMetadata]:
    return [
        ParquetFileMetadata(f"{number}.parquet", 1, 1, {}, each)
        for number, each in enumerate(values)
    ]


def candidates(known: list[ParquetFileMetadata], names: Any, keys: Any, schema: Any = None) -> str:
    """The numbers of the candidate files, as one string."""
    found = PartitionPruner().identify_candidate_files(known, names, keys, schema)
    return "".join(path.removesuffix(".parquet") for path in found)


def test_pruning_by_one_partition_column() -> None:
    known = files({"day": "1"}, {"day": "2"}, {"day": "3"})
    assert candidates(known, ["day"], ["2", "3"]) == "12"
    assert candidates(known, ["id", "day"], [(7, "1"), (8, "1")]) == "0"
    assert candidates(known, ["day"], ["9"]) == ""


def test_pruning_by_several_partition_columns_is_by_tuple() -> None:
    known = files(*({"p": p, "q": q} for p in "12" for q in "12"))
    assert candidates(known, ["p", "q"], [("1", "1"), ("2", "2")]) == "03"
    assert candidates(known, ["q", "id", "p"], [("1", 0, "2")]) == "2"
    assert candidates(known, ["q"], ["2"]) == "13"


def test_keys_that_are_not_in_the_path_prune_nothing() -> None:
    known = files({"day": "1"}, {"day": "2"})
    assert candidates(known, ["id"], [1]) == "01"


def test_partition_values_are_typed_by_the_schema_or_the_keys() -> None:
    known = files({"p": "007"}, {"p": "8"})
    assert candidates(known, ["p"], [7]) == "0"
    assert candidates(known, ["p"], [7], pa.schema([("p", pa.int16())])) == "0"
    assert candidates(known, ["p"], ["7"]) == ""  # as text they differ
    assert candidates(known, ["p"], pa.array([7], pa.int16())) == "0"
    days = files({"day": "2024-01-01"}, {"day": "2024-01-02"})
    assert candidates(days, ["day"], [date(2024, 1, 2)]) == "1"
    with pytest.raises(SchemaMismatchError, match="never equal"):
        candidates(known, ["p"], ["7"], pa.schema([("p", pa.int16())]))


def test_unknown_partition_values_are_never_pruned() -> None:
    known = files({"p": "1"}, {"p": "x"}, None, {}, {"p": "2"})
    assert candidates(known, ["p"], [1]) == "0123"
    assert candidates(known, ["p"], [9]) == "123"


def test_null_in_the_path_is_null_in_the_keys() -> None:
    known = files({"p": None}, {"p": "1"})
    assert candidates(known, ["p"], [1]) == "1"
    assert candidates(known, ["p"], pa.array([None], pa.int64())) == "0"
    assert candidates(known, ["p"], [None, 1]) == "01"


def test_typed_values_may_stand_for_the_text() -> None:
    known = files({"p": 1, "b": True}, {"p": 2, "b": False}, {"p": 2, "b": True})
    assert candidates(known, ["p", "b"], [(2, True)]) == "2"
    days = files({"day": date(2024, 1, 1)}, {"day": date(2024, 1, 2)})
    assert candidates(days, ["day"], [date(2024, 1, 1)]) == "0"


def test_no_files_and_no_keys() -> None:
    assert candidates([], ["p"], [1]) == ""
    assert candidates(files({"p": "1"}), ["p"], []) == ""


def test_pruning_takes_a_generator_of_keys() -> None:
    assert candidates(files({"p": "1"}, {"p": "2"}), ["p"], (key for key in [2])) == "1"


def test_one_key_column_may_be_a_string(tmp_path: Path) -> None:
    assert candidates(files({"pq": "1"}, {"pq": "2"}), "pq", [2]) == "1"
    assert might_contain(analyzed(tmp_path, pa.table({"pq": [1]})), "pq", [1])


@pytest.mark.parametrize("columns", [b"p", [], ["p", "p"]])
def test_wrong_key_columns_are_refused(columns: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="key_columns"):
        candidates(files({"p": "1"}), columns, [1])
    with pytest.raises(InvalidArgumentError, match="key_columns"):
        might_contain(analyzed(tmp_path, pa.table({"p": [1]})), columns, [1])


@given(datasets(dataset_schemas(key_types=[pa.int64()], partitioned=True), null_source_keys=True))
@settings(max_examples=15)
def test_a_partition_that_holds_a_key_is_never_pruned(
    tmp_path_factory: pytest.TempPathFactory, data: GeneratedDataset
) -> None:
    directory = tmp_path_factory.mktemp("pruner")
    paths = data.write(directory)
    names = data.key_columns
    found = PartitionPruner().identify_candidate_files(
        analyze(directory), names, data.source.select(list(names)), data.schema
    )
    in_path = [name for name in names if name in data.partition_columns]
    wanted = {values_of(row, in_path) for row in data.source.to_pylist()}
    expected = {
        path
        for path, table in zip(paths, data.files, strict=True)
        if wanted & {values_of(row, in_path) for row in table.to_pylist()}
    }
    assert expected <= set(found)
    if in_path:
        assert set(found) == expected


# Pruning by statistics.


def test_a_file_whose_range_misses_every_key_is_ruled_out(tmp_path: Path) -> None:
    found = analyzed(tmp_path, pa.table({"id": [10, 20]}))
    for keys, maybe in (([5], False), ([10], True), ([15], True), ([20], True), ([21], False)):
        assert might_contain(found, ["id"], keys) is maybe
    assert not might_contain(found, ["id"], [5, 25])  # a set of keys, not a range of them


def test_each_row_group_is_looked_at_on_its_own(tmp_path: Path) -> None:
    found = analyzed(tmp_path, pa.table({"id": [1, 2, 100, 101]}), row_group_size=2)
    assert not might_contain(found, ["id"], [50])
    assert might_contain(found, ["id"], [100])


def test_composite_keys_are_looked_at_as_tuples(tmp_path: Path) -> None:
    table = pa.table({"a": [1, 9], "b": ["x", "z"]})
    found = analyzed(tmp_path, table, row_group_size=1)
    assert might_contain(found, ["a", "b"], [(1, "x")])
    assert not might_contain(found, ["a", "b"], [(1, "z"), (9, "x")])


def test_without_statistics_every_key_is_possible(tmp_path: Path) -> None:
    found = analyzed(tmp_path, pa.table({"id": [10]}), write_statistics=False)
    assert might_contain(found, ["id"], [99])
    assert not might_contain(found, ["id"], [])


def test_statistics_of_one_key_column_are_enough_to_rule_out(tmp_path: Path) -> None:
    table = pa.table({"a": [1], "b": [1]})
    found = analyzed(tmp_path, table, write_statistics=["b"])
    assert not might_contain(found, ["a", "b"], [(1, 9)])
    assert might_contain(found, ["a", "b"], [(9, 1)])


def test_bounds_that_were_cut_by_their_writer_prove_nothing(tmp_path: Path) -> None:
    long = "x" * 200
    pl.DataFrame({"s": [long]}).write_parquet(tmp_path / "x.parquet")
    (found,) = analyze(tmp_path)
    for key in (long, long + "a", "x" * 100):
        assert might_contain(found, ["s"], [key])


def test_nan_is_never_ruled_out_by_bounds(tmp_path: Path) -> None:
    found = analyzed(tmp_path, pa.table({"f": [1.0, 2.0, math.nan]}))
    assert might_contain(found, ["f"], [math.nan])
    assert might_contain(found, ["f"], [1.5])
    assert not might_contain(found, ["f"], [3.0])


def test_negative_zero_is_zero(tmp_path: Path) -> None:
    found = analyzed(tmp_path, pa.table({"f": [-0.0, 1.0]}))
    assert might_contain(found, ["f"], [0.0])
    found = analyzed(tmp_path, pa.table({"f": [-1.0, 0.0]}))
    assert might_contain(found, ["f"], [-0.0])


def test_null_keys_are_where_the_null_count_is_not_zero(tmp_path: Path) -> None:
    none = pa.array([None], pa.int64())
    assert might_contain(analyzed(tmp_path, pa.table({"id": [1, None]})), ["id"], none)
    assert not might_contain(analyzed(tmp_path, pa.table({"id": [1, 2]})), ["id"], none)
    only_null = analyzed(tmp_path, pa.table({"id": pa.nulls(2, pa.int64())}))
    assert might_contain(only_null, ["id"], none)
    assert not might_contain(only_null, ["id"], [1])


def test_int96_and_missing_columns_prove_nothing(tmp_path: Path) -> None:
    stamps = pa.array([datetime(2024, 1, 1)], pa.timestamp("us"))
    found = analyzed(tmp_path, pa.table({"t": stamps}), use_deprecated_int96_timestamps=True)
    assert might_contain(found, ["t"], [datetime(1999, 1, 1, tzinfo=UTC)])
    assert might_contain(found, ["other"], [1])


def test_a_file_without_rows_holds_no_key(tmp_path: Path) -> None:
    found = analyzed(tmp_path, pa.table({"id": pa.array([], pa.int64())}))
    assert not might_contain(found, ["id"], [1])


def test_a_key_in_the_path_is_compared_with_the_path(tmp_path: Path) -> None:
    write(tmp_path, "day=5/x.parquet", pa.table({"id": [1]}))
    (found,) = analyze(tmp_path)
    assert might_contain(found, ["id", "day"], [(1, 5)])
    assert not might_contain(found, ["id", "day"], [(1, 6)])
    assert not might_contain(found, ["id", "day"], [(2, 5)])


def test_a_key_that_the_file_stores_too_is_compared_with_what_it_stores(tmp_path: Path) -> None:
    write(tmp_path, "day=5/x.parquet", pa.table({"id": [1], "day": [6]}))
    (found,) = analyze(tmp_path)
    assert might_contain(found, ["id", "day"], [(1, 6)])
    assert not might_contain(found, ["id", "day"], [(1, 7)])


def test_a_key_that_the_file_s_type_cannot_hold_is_not_in_it(tmp_path: Path) -> None:
    found = analyzed(tmp_path, pa.table({"id": pa.array([1, 127], pa.int8())}))
    assert not might_contain(found, ["id"], [2**40])
    assert might_contain(found, ["id"], [2**40, 100])


def test_keys_that_are_never_equal_to_the_file_s_are_refused(tmp_path: Path) -> None:
    found = analyzed(tmp_path, pa.table({"id": [1]}))
    with pytest.raises(SchemaMismatchError, match="never equal"):
        might_contain(found, ["id"], ["1"])


# The same from the statistics of the whole file, without a footer.


def known(rows: int = 2, **stats: Any) -> ParquetFileMetadata:
    return ParquetFileMetadata("x.parquet", 1, rows, {"id": stats} if stats else {}, {})


@pytest.mark.parametrize(
    ("file", "keys", "maybe"),
    [
        (known(min=1, max=5, null_count=0), [3], True),
        (known(min=1, max=5, null_count=0), [0, 6], False),
        (known(min=1, max=5), [6], False),
        (known(min=1, max=5, null_count=0), [None], False),
        (known(min=1, max=5), [None], True),  # absent is not zero
        (known(min=1, max=5, null_count=1), [None], True),
        (known(null_count=2), [1], False),  # only NULL
        (known(null_count=1), [1], True),
        (known(min=1), [9], True),
        (known(max=1), [9], True),
        (known(min=None, max=None), [9], True),
        (known(), [9], True),
        (known(min=math.nan, max=math.nan), [9.0], True),
        (known(min=1.0, max=2.0), [math.nan], True),
        (known(min=-0.0, max=-0.0), [0.0], True),
        (known(min="a", max="c"), ["b"], True),
        (known(min="a", max="c"), ["d"], False),
        (known(min=5, max=1), [3], True),  # bounds that cannot be
        (known(min=1, max=5), [2**70], False),
        (known(min=1, max=2**63), [2**63], True),  # a uint64
        (known(min=Decimal("1.5"), max=Decimal(2)), [Decimal("1.75")], True),
        (known(min=date(2024, 1, 1), max=date(2024, 1, 2)), [date(2024, 1, 3)], False),
        (known(min=1, max=5), [], False),
    ],
)
def test_statistics_of_the_whole_file(file: ParquetFileMetadata, keys: Any, maybe: bool) -> None:
    assert might_contain(file, ["id"], keys) is maybe


def test_partition_values_without_a_footer() -> None:
    file = ParquetFileMetadata("x.parquet", 1, 1, {"id": {"min": 1, "max": 1}}, {"p": "7"})
    assert might_contain(file, ["id", "p"], [(1, 7)])
    assert not might_contain(file, ["id", "p"], [(1, 8)])
    assert might_contain(file, ["q"], [1])


@given(datasets(dataset_schemas(partitioned=False, max_keys=2), null_source_keys=True))
@settings(max_examples=25)
def test_a_file_that_holds_a_key_is_never_ruled_out(
    tmp_path_factory: pytest.TempPathFactory, data: GeneratedDataset
) -> None:
    directory = tmp_path_factory.mktemp("membership")
    data.write(directory)
    names = data.key_columns
    keys = data.source.select(list(names))
    wanted = {values_of(row, names) for row in data.source.to_pylist()}
    for file, table in zip(analyze(directory), data.files, strict=True):
        if wanted & {values_of(row, names) for row in table.to_pylist()}:
            assert might_contain(file, names, keys)
