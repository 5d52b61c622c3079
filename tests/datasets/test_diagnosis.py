"""Diagnosis: what would make merges on a key slow or impossible, and what to do about it."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.datasets.inspection.diagnosis import Diagnosis, Finding, diagnose_dataset
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


def only(diagnosis: Diagnosis) -> Finding:
    (finding,) = diagnosis.findings
    return finding


def test_nothing_to_complain_about(place: Path) -> None:
    for number in range(3):
        pq.write_table(rows(number), place / f"{number}.parquet")
    found = diagnose_dataset(place, ["id"])
    assert (found.verdict, found.findings, found.files) == ("good", (), 3)


def test_files_without_statistics(place: Path) -> None:
    pq.write_table(rows(1), place / "good.parquet")
    pq.write_table(rows(2), place / "bad.parquet", write_statistics=False, row_group_size=1)
    finding = only(diagnose_dataset(place, ["id"]))
    assert finding.severity == "warning"
    assert "1 file has no usable statistics of 'id': the footer has none" in finding.what
    assert finding.files == ("bad.parquet",)


def test_int96(place: Path) -> None:
    table = pa.table({"t": pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("us"))})
    pq.write_table(table, place / "a.parquet", use_deprecated_int96_timestamps=True)
    finding = only(diagnose_dataset(place, ["t"]))
    assert "INT96" in finding.what
    assert "TIMESTAMP_MICROS" in finding.advice


def test_statistics_that_are_not_trusted(place: Path) -> None:
    pq.write_table(pa.table({"h": pa.array([1.5], pa.float16())}), place / "a.parquet")
    finding = only(diagnose_dataset(place, ["h"]))
    assert "their order is not known" in finding.what


def test_null_keys(place: Path) -> None:
    pq.write_table(rows(1, None), place / "a.parquet")
    finding = only(diagnose_dataset(place, ["id"]))
    assert finding.severity == "note"
    assert "is NULL" in finding.what
    assert diagnose_dataset(place, ["id"]).verdict == "good"


def overlapping(place: Path, **options: object) -> None:
    for number in range(12):
        PyarrowDatasetIO().write_dataset(
            rows(number, 1000 + number),
            str(place),
            **options,  # type: ignore[arg-type]
        )


def test_ranges_that_overlap(place: Path) -> None:
    overlapping(place)
    found = diagnose_dataset(place, ["id"])
    finding = only(found)
    assert found.verdict == "poor"
    assert "one key may be in 6.5 of 12 files" in finding.what
    assert "sorted by id" in finding.advice
    assert 'bloom_columns=["id"]' in finding.advice


def test_bloom_filters_help(place: Path) -> None:
    overlapping(place, bloom_columns=["id"])
    finding = only(diagnose_dataset(place, ["id"]))
    assert finding.severity == "note"
    assert "Bloom filters rule most of them out" in finding.what


def test_bloom_filters_of_other_columns_do_not_help(place: Path) -> None:
    overlapping(place, bloom_columns=["v"])
    finding = only(diagnose_dataset(place, ["id"]))
    assert finding.severity == "warning"
    assert 'bloom_columns=["id"]' in finding.advice


def test_no_file_can_be_read(place: Path) -> None:
    (place / "a.parquet").write_bytes(b"nonsense")
    found = diagnose_dataset(place, ["id"])
    assert (found.verdict, found.files) == ("refused", 1)
    assert found.pruning.files_of_one_key == 1.0
    assert only(found).files == ("a.parquet",)


def test_files_with_other_columns(place: Path) -> None:
    pq.write_table(rows(1), place / "a.parquet")
    pq.write_table(rows(2).select(["v", "id"]), place / "b.parquet")
    assert diagnose_dataset(place, ["id"]).findings == ()
    pq.write_table(pa.table({"id": [3]}), place / "c.parquet")
    found = diagnose_dataset(place, ["id"])
    assert found.verdict == "refused"
    assert only(found).files == ("c.parquet",)


def test_partition_columns_that_are_not_in_the_key(place: Path) -> None:
    table = pa.table({"id": [1, 2], "day": ["a", "b"]})
    PyarrowDatasetIO().write_dataset(table, str(place), partition_by=["day"])
    assert "trust_partitions" in only(diagnose_dataset(place, ["id"])).advice
    assert diagnose_dataset(place, ["id", "day"]).findings == ()


def test_a_key_of_partition_columns_alone(place: Path) -> None:
    for _ in range(3):
        table = pa.table({"id": [1, 2], "day": ["a", "a"]})
        PyarrowDatasetIO().write_dataset(table, str(place), partition_by=["day"])
    finding = only(diagnose_dataset(place, ["day"]))
    assert finding.advice == "add a column to the key in which rows of the same day differ."


def test_many_small_files(place: Path) -> None:
    for number in range(20):
        pq.write_table(rows(number), place / f"{number:02}.parquet")
    finding = only(diagnose_dataset(place, ["id"]))
    assert "20 files are smaller than 8 MiB" in finding.what


def test_what_a_merge_would_refuse(place: Path) -> None:
    pq.write_table(rows(1), place / "a.parquet")
    (place / "b.parquet").write_bytes(b"nonsense")
    (place / "_metadata").write_bytes(b"")
    found = diagnose_dataset(place, ["id"])
    assert found.verdict == "refused"
    assert [finding.severity for finding in found.findings] == ["error", "error"]
    assert found.findings[0].advice == "delete it; readers do not need it."
    assert found.findings[1].files == ("b.parquet",)


def test_no_files(place: Path) -> None:
    with pytest.raises(ValueError, match="holds no data files"):
        diagnose_dataset(place, ["id"])


@pytest.mark.parametrize(
    ("kind", "trouble"),
    [
        (pa.int64(), "where it would change rows in these files"),
        (pa.list_(pa.string()), "where it would change rows in these files"),
        (pa.large_string(), None),
        (pa.dictionary(pa.int8(), pa.string()), None),
    ],
    ids=str,
)
def test_types_of_other_columns_that_differ(
    place: Path, kind: pa.DataType, trouble: str | None
) -> None:
    pq.write_table(rows(1), place / "a.parquet")
    odd = pa.table({"id": [2], "v": pa.array([None], kind)})
    pq.write_table(odd, place / "b.parquet")
    found = diagnose_dataset(place, ["id"])
    assert found.verdict == "good"
    if trouble is None:
        assert found.findings == ()
        return
    finding = only(found)
    assert finding.severity == "warning"
    assert "column 'v' is string or " in finding.what
    assert trouble in finding.what
    assert finding.files == ("b.parquet",)


def test_types_that_differ_in_size_only(place: Path) -> None:
    pq.write_table(rows(1), place / "a.parquet")
    small = rows(2).set_column(0, "id", pa.array([2], pa.int32()))
    pq.write_table(small, place / "b.parquet")
    found = diagnose_dataset(place, ["id"])
    assert found.verdict == "good"
    assert "where a value does not fit the type of its file" in only(found).what


def test_keys_that_cannot_be_compared_refuse_merges(place: Path) -> None:
    pq.write_table(rows(1), place / "a.parquet")
    pq.write_table(pa.table({"id": ["x"], "v": ["x"]}), place / "b.parquet")
    found = diagnose_dataset(place, ["id"])
    assert found.verdict == "refused"
    finding = only(found)
    assert finding.severity == "error"
    with pytest.raises(ValueError, match="cannot be compared with each other") as refused:
        PyarrowDatasetIO().merge(rows(1), str(place), "upsert", ["id"])
    assert f"{finding.what} Hint: {finding.advice}" == " ".join(str(refused.value).split())


def test_a_key_that_is_nested_in_one_file(place: Path) -> None:
    pq.write_table(rows(1), place / "a.parquet")
    pq.write_table(pa.table({"id": [[1]], "v": ["x"]}), place / "b.parquet")
    found = diagnose_dataset(place, ["id"])
    assert found.verdict == "refused"
    assert "cannot be a key" in found.findings[0].what


def test_a_key_that_can_be_none(place: Path) -> None:
    pq.write_table(pa.table({"l": [[1]], "id": [1]}), place / "a.parquet")
    found = diagnose_dataset(place, ["l"])
    assert (found.verdict, found.pruning.probes) == ("refused", 0)
    finding = only(found)
    assert finding.what.endswith("cannot be a key.")
    assert finding.advice.startswith("keys are numbers")


def test_what_refuses_comes_first(place: Path) -> None:
    pq.write_table(rows(1, None), place / "a.parquet")
    pq.write_table(rows(2).append_column("w", [[1.5]]), place / "b.parquet")
    found = diagnose_dataset(place, ["id"])
    assert [finding.severity for finding in found.findings] == ["error", "note"]


def test_files_that_say_other_than_their_paths(place: Path) -> None:
    for day, stored in (("mon", "mon"), ("tue", "mon")):
        (place / f"day={day}").mkdir()
        pq.write_table(pa.table({"id": [1], "day": [stored]}), place / f"day={day}" / "a.parquet")
    found = diagnose_dataset(place, ["id", "day"])
    assert found.verdict == "refused"
    assert found.findings[0].files == ("day=tue/a.parquet",)
    with pytest.raises(ValueError, match="holds other values of 'day' than its path says"):
        PyarrowDatasetIO().merge(
            pa.table({"id": [1], "day": ["mon"]}), str(place), "upsert", ["id", "day"]
        )
