"""Inspection: what paths and footers tell about a dataset, and nothing that they do not."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.datasets.inspection.report import Inspection, TypeDifference, inspect_dataset
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

if TYPE_CHECKING:
    from pathlib import Path


def rows(*ids: int | None) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": ["x"] * len(ids)})


@pytest.fixture
def place(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.mkdir()
    return path


def inspected(path: Path, *keys: str, **options: Any) -> Inspection:
    return inspect_dataset(path, key_columns=list(keys) or None, **options)


def test_files_and_totals(place: Path) -> None:
    pq.write_table(rows(1, 2, 3), place / "a.parquet", row_group_size=2)
    pq.write_table(rows(4), place / "b.parquet")
    found = inspected(place)
    assert (found.rows, found.row_groups, found.commits) == (4, 3, 0)
    assert [(file.path, file.rows, file.row_groups) for file in found.files] == [
        ("a.parquet", 3, 2),
        ("b.parquet", 1, 1),
    ]
    assert found.bytes == sum(path.stat().st_size for path in place.iterdir())
    assert found.files[0].created_by.startswith("parquet-cpp-arrow")
    assert found.key_pruning is None
    assert found.small_files is None


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        (pa.array([3, None, 1]), "1", "3"),
        (pa.array(["b", "ä"]), "b", "ä"),
        (pa.array([dt.date(2024, 1, 2)]), "2024-01-02", "2024-01-02"),
        (pa.array([Decimal("1.50")]), "1.50", "1.50"),
        (pa.array([1.5, float("nan")]), "1.5", "1.5"),
        (pa.array([None, None], pa.int64()), None, None),
        (pa.array([[1]]), None, None),
        (pa.array([1, 2], pa.float16()), None, None),
        (pa.array([None], pa.null()), None, None),
    ],
    ids=str,
)
def test_ranges_of_columns(place: Path, values: pa.Array, low: str, high: str) -> None:
    pq.write_table(pa.table({"c": values}), place / "a.parquet")
    (column,) = inspected(place).columns
    assert (column.low, column.high) == (low, high)
    assert column.type == str(pq.read_schema(place / "a.parquet").field("c").type)


def test_a_range_is_known_only_if_every_row_group_has_one(place: Path) -> None:
    pq.write_table(rows(1), place / "a.parquet")
    pq.write_table(rows(5), place / "b.parquet", write_statistics=False)
    column = inspected(place).columns[0]
    assert (column.low, column.high, column.nulls, column.known_row_groups) == (None, None, None, 1)


def test_a_bound_that_is_cut_inside_of_a_character_is_shown_as_unknown(place: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    duckdb.sql("SELECT 'ä' || repeat('ö', 300) AS c").write_parquet(str(place / "a.parquet"))
    (column,) = inspected(place).columns
    assert (column.name, column.type) == ("c", "string")


def test_types_that_differ_are_all_reported(place: Path) -> None:
    pq.write_table(pa.table({"c": pa.array([1], pa.int32())}), place / "a.parquet")
    pq.write_table(pa.table({"c": pa.array([2], pa.int64())}), place / "b.parquet")
    (column,) = inspected(place).columns
    assert (column.type, column.low, column.high) == ("int32, int64", "1", "2")
    pq.write_table(pa.table({"c": ["x"]}), place / "c.parquet")
    (column,) = inspected(place).columns
    assert (column.type, column.low) == ("int32, int64, string", None)


def test_partitions(place: Path) -> None:
    table = pa.table({"id": [1, 2, 3], "day": ["2024-01-01", "2024-01-02", "2024-01-01"]})
    PyarrowDatasetIO().write_dataset(table, str(place), partition_by=["day"])
    found = inspected(place, "id", "day")
    assert (found.partition_columns, found.partitions) == (("day",), 2)
    day = found.columns[1]
    assert (day.name, day.is_partition, day.is_key) == ("day", True, True)
    assert (day.low, day.high, day.type) == ("2024-01-01", "2024-01-02", "date32[day]")
    assert found.key_pruning is not None
    assert found.key_pruning.most_files_of_one_key == 1


def test_rows_of_partitions_without_a_value_are_counted_as_null(place: Path) -> None:
    table = pa.table({"id": [1, 2, 3], "day": ["2024-01-01", None, None]})
    PyarrowDatasetIO().write_dataset(table, str(place), partition_by=["day"])
    assert [(column.name, column.nulls) for column in inspected(place).columns] == [
        ("id", 0),
        ("day", 2),
    ]


def test_bloom_filters_are_counted(place: Path) -> None:
    PyarrowDatasetIO().write_dataset(
        rows(1, 2, 3), str(place), bloom_columns=["id"], row_group_size=2
    )
    assert [column.bloom_row_groups for column in inspected(place).columns] == [2, 0]


def test_overlap_of_keys(place: Path) -> None:
    for number in range(4):
        pq.write_table(rows(number, 100 + number), place / f"{number}.parquet")
    wide = inspected(place, "id").key_pruning
    assert wide is not None
    assert (wide.probes, wide.most_files_of_one_key, wide.files_of_one_key) == (4, 4, 2.5)


def test_a_composite_key_is_compared_as_a_whole(place: Path) -> None:
    for number in range(3):
        table = pa.table({"a": [0, 9], "b": [number, number]})
        pq.write_table(table, place / f"{number}.parquet")
    apart, together = inspected(place, "a").key_pruning, inspected(place, "a", "b").key_pruning
    assert apart is not None
    assert together is not None
    assert (apart.most_files_of_one_key, together.most_files_of_one_key) == (3, 1)


def test_keys_without_any_range_are_everywhere(place: Path) -> None:
    for number in range(3):
        pq.write_table(rows(number), place / f"{number}.parquet", write_statistics=False)
    found = inspected(place, "id").key_pruning
    assert found is not None
    assert (found.probes, found.files_of_one_key) == (0, 3.0)


def test_of_many_row_groups_some_are_tried(place: Path) -> None:
    pq.write_table(rows(*range(600)), place / "a.parquet", row_group_size=1)
    found = inspected(place, "id").key_pruning
    assert found is not None
    assert found.probes == 256


def test_the_key_of_the_last_merge_is_the_default(place: Path) -> None:
    PyarrowDatasetIO().merge(rows(1), str(place), "upsert", ["id"])
    assert inspected(place).key_columns == ("id",)
    pq.write_table(pa.table({"other": [1]}), place / "a.parquet")
    for path in place.glob("part-*"):
        path.unlink()
    assert inspected(place).key_columns == ()


def test_what_cannot_be_read_is_reported(place: Path) -> None:
    pq.write_table(rows(1), place / "a.parquet")
    (place / "b.parquet").write_bytes(b"nonsense")
    (place / "_metadata").write_bytes(b"")
    found = inspected(place, "id")
    assert [file.error is None for file in found.files] == [True, False]
    assert "summary file" in found.obstacles[0]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["nope"], r"\['nope'\] not found. Available columns: \['id', 'v'\]"),
        ([], "must name at least one column"),
    ],
)
def test_wrong_keys(place: Path, keys: list[str], message: str) -> None:
    pq.write_table(rows(1), place / "a.parquet")
    with pytest.raises(ValueError, match=message):
        inspect_dataset(place, key_columns=keys)


def test_a_key_that_can_be_none(place: Path) -> None:
    pq.write_table(pa.table({"l": [[1]]}), place / "a.parquet")
    found = inspected(place, "l")
    assert "cannot be a key" in found.obstacles[0]
    assert (found.key_pruning, found.type_differences) == (None, ())


def test_files_that_disagree(place: Path) -> None:
    pq.write_table(rows(1), place / "a.parquet")
    pq.write_table(pa.table({"id": [2], "v": [1.5]}), place / "b.parquet")
    pq.write_table(pa.table({"id": [3]}), place / "c.parquet")
    found = inspected(place, "id")
    (difference,) = found.type_differences
    assert difference == TypeDifference("v", ("string", "double"), ("b.parquet",), False)
    (obstacle,) = found.obstacles
    assert obstacle.startswith("1 file(s) do not have the columns of the first one, such as 'c.p")


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is not there"):
        inspect_dataset(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    found = inspect_dataset(tmp_path / "empty", key_columns=["id"])
    assert (found.files, found.columns, found.key_pruning) == ((), (), None)


def test_small_files(place: Path) -> None:
    for number in range(16):
        pq.write_table(rows(number), place / f"{number}.parquet")
    small = inspected(place).small_files
    assert small is not None
    assert small.files == 16
