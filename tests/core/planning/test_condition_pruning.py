"""Row groups that a condition leaves out or takes whole: never against the rows in them."""

from __future__ import annotations

import tempfile
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datafusion
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.conditions.generated import COMPARABLE, KINDS, Kind, conditions, tables
from tests.core.planning.edited_footers import edit_footer, remove

from fsspeckit.core.conditions import Condition
from fsspeckit.core.planning import ConditionVerdict, prune_by_condition, read_footers, read_target
from fsspeckit.storage import list_files, open_root

if TYPE_CHECKING:
    from collections.abc import Sequence

NAN = float("nan")
MORE_KINDS = KINDS | {
    "u": Kind(pa.uint64(), (0, 1, 2**63, 2**64 - 1), ("0", "-1", "1.5", "9223372036854775808")),
    "w": Kind(
        pa.decimal128(38, 3), (Decimal("1e30"), Decimal("-1.5"), Decimal(0)), ("0", "1e30", "-2")
    ),
    "x": Kind(pa.binary(), (b"", b"\x01", b"\xff\xff"), ("X''", "X'01'", "X'FF'")),
    "z": Kind(
        pa.timestamp("ns", "UTC"),
        (0, 10**18, -1),
        ("TIMESTAMP '1970-01-01 00:00:00Z'", "TIMESTAMP '2001-09-09 01:46:40Z'"),
    ),
    "c": Kind(pa.dictionary(pa.int8(), pa.string()), ("a", "ab", "b"), ("'a'", "'aa'")),
}


def verdict_of(path: Path, sql: str | pc.Expression) -> ConditionVerdict:
    root = open_root(str(path.parent))
    condition = Condition.of(sql, pq.read_schema(path))
    footers = read_footers(root, list_files(root).files, condition.columns)
    [verdict] = prune_by_condition(root, footers, condition, {})
    return verdict


def write(directory: Path, groups: Sequence[Sequence[Any]], data_type: pa.DataType) -> Path:
    """A file with a column ``v``, of row groups with these values."""
    path = directory / "a.parquet"
    schema = pa.schema([("v", data_type)])
    with pq.ParquetWriter(path, schema) as writer:
        for group in groups:
            writer.write_table(pa.table({"v": pa.array(group, data_type)}))
    return path


@settings(max_examples=60)
@given(
    rows=tables(MORE_KINDS, rows=9),
    texts=st.lists(conditions(MORE_KINDS, COMPARABLE), min_size=1, max_size=6),
    size=st.sampled_from([1, 2, 3]),
)
@pytest.mark.slow
def test_no_row_contradicts_the_statistics(rows: pa.Table, texts: list[str], size: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "a.parquet"
        pq.write_table(rows, path, row_group_size=size)
        for sql in texts:
            verdict = verdict_of(path, sql)
            mask = Condition.of(sql, rows.schema).mask(rows)
            for number in range(-(-rows.num_rows // size)):
                found = set(mask[number * size : (number + 1) * size].to_pylist())
                if number in verdict.complete:
                    assert found == {True}, sql
                elif number not in verdict.candidates:
                    assert found == {False}, sql


GROUPS: list[list[int | None]] = [[1, 2], [3, 5], [5, 5], [None, 7], [None, None]]


@pytest.mark.parametrize(
    ("sql", "candidates", "complete"),
    [
        ("v = 4", [1], []),
        ("v = 5", [1], [2]),
        ("v <> 5", [1, 3], [0]),
        ("v < 3", [], [0]),
        ("v <= 3", [1], [0]),
        ("v > 4.5", [1, 3], [2]),
        ("v >= 8", [], []),
        ("v = 4.5", [], []),
        ("v < 1e30", [3], [0, 1, 2]),
        ("v IS NULL", [3], [4]),
        ("v IS NOT NULL", [3], [0, 1, 2]),
        ("v <=> 7", [3], []),
        ("NOT (v > 2)", [], [0]),
        ("v IN (2, 5)", [0, 1], [2]),
        ("v IN (4, NULL)", [1], []),
        ("v NOT IN (4, NULL)", [], []),
        ("v NOT IN (4, 6)", [1, 3], [0, 2]),
        ("v BETWEEN 3 AND 5", [], [1, 2]),
        ("v < 3 OR v > 6", [3], [0]),
        ("v < 3 AND v > 6", [], []),
        ("v = v", [0, 1, 2, 3], []),
        ("TRUE", [], [0, 1, 2, 3, 4]),
        ("NULL", [], []),
        ("(v > 4) IS NOT TRUE", [1, 3], [0, 4]),
    ],
)
def test_statistics_decide(
    tmp_path: Path, sql: str, candidates: list[int], complete: list[int]
) -> None:
    path = write(tmp_path, GROUPS, pa.int32())
    assert verdict_of(path, sql) == ConditionVerdict(tuple(candidates), tuple(complete))


@pytest.mark.parametrize(
    ("sql", "candidates", "complete"),
    [
        ("v LIKE 'ab%'", [1], [0]),
        ("v NOT LIKE 'ab%'", [1], [2]),
        ("v LIKE 'ab_'", [0, 1], []),
        ("v LIKE '%'", [], [0, 1, 2]),
        ("v LIKE '%c'", [0, 1, 2], []),
    ],
)
def test_patterns_are_pruned_by_their_beginning(
    tmp_path: Path, sql: str, candidates: list[int], complete: list[int]
) -> None:
    path = write(tmp_path, [["ab", "abz"], ["aa", "ac"], ["b", "z"]], pa.string())
    assert verdict_of(path, sql) == ConditionVerdict(tuple(candidates), tuple(complete))


def test_a_nan_may_hide_behind_every_bound(tmp_path: Path) -> None:
    path = write(tmp_path, [[1.0, 2.0], [1.0, NAN]], pa.float64())
    assert verdict_of(path, "v > 3").candidates == (0, 1)
    assert verdict_of(path, "v < 3").complete == ()
    assert verdict_of(path, "v >= 1").complete == (0, 1)
    assert verdict_of(path, "v < 1") == ConditionVerdict((), ())


def test_int96_proves_nothing(tmp_path: Path) -> None:
    table = pa.table({"v": pa.array([0], pa.timestamp("ns"))})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    root = open_root(str(tmp_path))
    footers = read_footers(root, list_files(root).files, ["v"])
    condition = Condition.of("v > '2020-01-01 00:00:00Z'", footers[0].schema)
    assert prune_by_condition(root, footers, condition, {}) == [ConditionVerdict((0,), ())]


def test_without_a_null_count_nothing_is_complete(tmp_path: Path) -> None:
    path = write(tmp_path, [[1, 2]], pa.int64())
    assert verdict_of(path, "v < 3").complete == (0,)
    edit_footer(path, {4: [{1: [{3: {12: {}}}]}]}, _without_null_count)
    assert verdict_of(path, "v < 3") == ConditionVerdict((0,), ())
    assert verdict_of(path, "v > 3") == ConditionVerdict((), ())


def _without_null_count(footer: Any) -> None:
    [group] = footer.values[4]
    [chunk] = group.values[1]
    remove(chunk.values[3].values[12], 3)


def test_without_statistics_everything_is_a_candidate(tmp_path: Path) -> None:
    pq.write_table(pa.table({"v": [1]}), tmp_path / "a.parquet", write_statistics=False)
    assert verdict_of(tmp_path / "a.parquet", "v > 3") == ConditionVerdict((0,), ())


def test_shortened_bounds_prove_nothing(tmp_path: Path) -> None:
    rows = pa.table({"v": ["a" * 100, "a" * 100 + "z"]})
    datafusion.SessionContext().from_arrow(rows).write_parquet(str(tmp_path))
    [path] = tmp_path.iterdir()
    assert verdict_of(path, "v > 'b'") == ConditionVerdict((0,), ())
    assert verdict_of(path, "v < 'b'") == ConditionVerdict((0,), ())


def test_struct_fields_and_expressions_are_not_pruned(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"v": [{"a": 1}], "i": [1]}), path)
    assert verdict_of(path, "v.a > 5") == ConditionVerdict((0,), ())
    assert verdict_of(path, "v IS NULL") == ConditionVerdict((0,), ())
    assert verdict_of(path, pc.field("i") > 5) == ConditionVerdict((0,), ())


def test_partition_values_decide(tmp_path: Path) -> None:
    for part, value in (("p=1", 1), ("p=2", 2), ("p=__HIVE_DEFAULT_PARTITION__", 3)):
        (tmp_path / part).mkdir()
        pq.write_table(pa.table({"v": [value]}), tmp_path / part / "a.parquet")
    root = open_root(str(tmp_path))
    schema = pa.schema([("v", pa.int64()), ("p", pa.int32())])
    target = read_target(root, list_files(root).files, ["v", "p"], schema)
    condition = Condition.of("p >= 2 OR v < 1", schema)
    found = prune_by_condition(root, target.footers, condition, target.partitions)
    assert found == [ConditionVerdict((), ()), ConditionVerdict((), (0,)), ConditionVerdict((), ())]


def test_an_unreadable_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"nothing")
    root = open_root(str(tmp_path))
    footers = read_footers(root, list_files(root).files, ["v"])
    condition = Condition.of("v = 1", pa.schema([("v", pa.int64())]))
    [verdict] = prune_by_condition(root, footers, condition, {})
    assert "not readable as Parquet" in (verdict.error or "")
