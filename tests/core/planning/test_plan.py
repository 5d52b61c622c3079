"""Plans: which files a merge must touch, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from pyarrow import fs as arrow_fs

from fsspeckit.core.incremental import (
    IncrementalRewritePlan,
    MergePlan,
    confirm_affected_files,
    list_dataset_files,
    plan_incremental_rewrite,
)
from fsspeckit.core.keys.source import source_keys
from fsspeckit.core.planning.plan import plan_files
from fsspeckit.core.planning.target import read_target
from fsspeckit.errors import InvalidArgumentError, SchemaMismatchError, UnsupportedLayoutError
from fsspeckit.storage.listing import list_files
from fsspeckit.storage.roots import open_root
from fsspeckit.testing.model_source import values_of
from fsspeckit.testing.strategies import COLUMN_NAMES, GeneratedDataset, datasets


def write(directory: Path, relative: str, **columns: Any) -> None:
    path = directory / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=5)


def days(directory: Path) -> Path:
    """Ten ids per day, in two row groups, where a day's ids overlap with the next one's."""
    for number in range(4):
        ids = list(range(number * 5, number * 5 + 10))
        write(directory, f"day=2025-01-0{number + 1}/part-0.parquet", id=ids, v=ids)
    return directory


def plan(
    directory: Path, source: pa.Table, key_columns: list[str], **options: Any
) -> dict[str, str]:
    """The decision about each file, by the part of its path below the directory."""
    root = open_root(str(directory))
    made = merge_plan(directory, source, key_columns, **options)
    return {root.relative(file.path): file.decision for file in made.files}


def merge_plan(
    directory: Path, source: pa.Table, key_columns: list[str], **options: Any
) -> MergePlan:
    root = open_root(str(directory))
    target = read_target(root, list_files(root).files, key_columns, source.schema)
    keys = source_keys(source, target, options.pop("null_keys", "error"))
    return plan_files(target, keys, "upsert", **options)


def source(**columns: Any) -> pa.Table:
    return pa.table(columns)


FILES = [f"day=2025-01-0{number}/part-0.parquet" for number in range(1, 5)]


def test_only_files_of_the_source_s_partitions_are_candidates(tmp_path: Path) -> None:
    # Id 7 is in two days by statistics and by content; the source writes to one of them.
    decisions = plan(days(tmp_path), source(id=[7], day=["2025-01-01"]), ["id"])
    candidates = [file for file, decision in decisions.items() if decision == "candidate"]
    assert candidates == FILES[:1]
    assert decisions == dict(zip(FILES, ["candidate", "guarded", "pruned", "pruned"], strict=True))


def test_partition_values_are_compared_by_value_and_not_by_text(tmp_path: Path) -> None:
    write(tmp_path, "p=007/a.parquet", id=[1])
    write(tmp_path, "p=8/a.parquet", id=[1])
    decisions = plan(tmp_path, source(id=[1], p=[7]), ["id"])
    assert decisions == {"p=007/a.parquet": "candidate", "p=8/a.parquet": "guarded"}


def test_a_partition_value_that_is_none_of_its_type_is_not_pruned(tmp_path: Path) -> None:
    write(tmp_path, "p=1/a.parquet", id=[1])
    write(tmp_path, "p=unknown/a.parquet", id=[1])
    for keys in (["id"], ["id", "p"]):
        decisions = plan(tmp_path, source(id=[1], p=[1]), keys)
        assert decisions == dict.fromkeys(("p=1/a.parquet", "p=unknown/a.parquet"), "candidate")
    trusted = plan(tmp_path, source(id=[1], p=[1]), ["id"], trust_partitions=True)
    assert set(trusted.values()) == {"candidate"}


def test_statistics_exclude_a_file_whose_range_misses_the_keys(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path, f"{number}.parquet", id=[number * 10, number * 10 + 9])
    assert plan(tmp_path, source(id=[12, 19]), ["id"]) == {
        "0.parquet": "pruned",
        "1.parquet": "candidate",
        "2.parquet": "pruned",
    }


def test_other_partitions_are_guarded_where_a_key_might_be_there(tmp_path: Path) -> None:
    made = merge_plan(days(tmp_path), source(id=[7], day=["2025-01-04"]), ["id"])
    assert [file.decision for file in made.files] == ["guarded", "guarded", "pruned", "pruned"]
    assert not made.trusted_partitions
    assert [file.row_groups for file in made.files] == [(1,), (0,), (), ()]


def test_trust_partitions_skips_the_guard_and_the_plan_says_so(tmp_path: Path) -> None:
    rows = source(id=[7], day=["2025-01-01"])
    made = merge_plan(days(tmp_path), rows, ["id"], trust_partitions=True)
    assert [file.decision for file in made.files] == ["candidate", "pruned", "pruned", "pruned"]
    assert made.trusted_partitions
    assert "trust_partitions=True" in str(made)
    assert made.files[1].evidence.kind == "partition"
    assert made.files[1].evidence.columns == ("day",)


def test_a_key_that_holds_the_partition_needs_no_guard(tmp_path: Path) -> None:
    rows = source(id=[7], day=["2025-01-01"])
    for options in ({}, {"trust_partitions": True}):
        made = merge_plan(days(tmp_path), rows, ["id", "day"], **options)
        assert [file.decision for file in made.files] == ["candidate", "pruned", "pruned", "pruned"]
        assert made.files[1].evidence.kind == "partition"
        assert not made.trusted_partitions  # nothing was taken on trust


def test_a_key_with_some_of_the_partition_columns_guards_the_others(tmp_path: Path) -> None:
    for p in (1, 2):
        for q in (1, 2):
            write(tmp_path, f"p={p}/q={q}/a.parquet", id=[1])
    decisions = plan(tmp_path, source(id=[1], p=[1], q=[1]), ["id", "p"])
    assert decisions == {
        "p=1/q=1/a.parquet": "candidate",
        "p=1/q=2/a.parquet": "guarded",  # the key may be here with another q
        "p=2/q=1/a.parquet": "pruned",  # with another p it is another key
        "p=2/q=2/a.parquet": "pruned",
    }


def test_partitions_are_looked_at_as_tuples(tmp_path: Path) -> None:
    for p in (1, 2):
        for q in (1, 2):
            write(tmp_path, f"p={p}/q={q}/a.parquet", id=[1])
    rows = source(id=[1, 1], p=[1, 2], q=[1, 2])
    decisions = plan(tmp_path, rows, ["id", "p", "q"])
    assert [file for file, decision in decisions.items() if decision == "candidate"] == [
        "p=1/q=1/a.parquet",
        "p=2/q=2/a.parquet",
    ]


def test_the_null_partition_is_a_partition_like_any_other(tmp_path: Path) -> None:
    write(tmp_path, "p=__HIVE_DEFAULT_PARTITION__/a.parquet", id=[1])
    write(tmp_path, "p=1/a.parquet", id=[1])
    null_row = source(id=[1], p=pa.array([None], pa.int64()))
    assert plan(tmp_path, null_row, ["id"]) == {
        "p=1/a.parquet": "guarded",
        "p=__HIVE_DEFAULT_PARTITION__/a.parquet": "candidate",
    }
    with_one = plan(tmp_path, source(id=[1], p=[1]), ["id", "p"])
    assert with_one["p=__HIVE_DEFAULT_PARTITION__/a.parquet"] == "pruned"


def test_an_unreadable_file_is_affected_in_whatever_partition(tmp_path: Path) -> None:
    days(tmp_path)
    bad = tmp_path / "day=2025-01-04" / "bad.parquet"
    bad.write_bytes(b"PAR1 no footer PAR1")
    made = merge_plan(tmp_path, source(id=[7], day=["2025-01-01"]), ["id"])
    (affected,) = made.with_decision("affected")
    assert affected.path == str(bad)
    assert affected.evidence.kind == "unreadable"
    assert "bad.parquet" in str(affected)


def test_an_empty_file_holds_no_key(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", id=pa.array([], pa.int64()))
    assert plan(tmp_path, source(id=[1]), ["id"]) == {"a.parquet": "pruned"}


def test_an_empty_source_touches_no_file(tmp_path: Path) -> None:
    nothing = source(id=pa.array([], pa.int64()), day=pa.array([], pa.string()))
    assert set(plan(days(tmp_path), nothing, ["id"]).values()) == {"pruned"}


def test_null_keys_that_match_are_looked_for_where_null_may_be(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", id=[1, None])
    write(tmp_path, "b.parquet", id=[1, 2])
    rows = source(id=pa.array([None], pa.int64()))
    assert plan(tmp_path, rows, ["id"], null_keys="match") == {
        "a.parquet": "candidate",
        "b.parquet": "pruned",
    }


def test_a_plan_says_what_it_is_about(tmp_path: Path) -> None:
    made = merge_plan(days(tmp_path), source(id=[7, 8], day=["2025-01-01"] * 2), ["id"])
    assert (made.path, made.strategy) == (str(tmp_path), "upsert")
    assert (made.key_columns, made.partition_columns) == (("id",), ("day",))
    assert (made.source_rows, made.target_rows) == (2, 40)
    assert made.snapshot is None
    assert [file.rows for file in made.files] == [10] * 4
    assert [file.bytes for file in made.files] == [
        Path(file.path).stat().st_size for file in made.files
    ]
    assert made.files[0].partition_values == {"day": "2025-01-01"}
    assert made.files[0].row_group_count == 2


def test_str_explains_every_file(tmp_path: Path) -> None:
    (days(tmp_path) / "day=2025-01-04" / "bad.parquet").write_bytes(b"?")
    made = merge_plan(tmp_path, source(id=[7], day=["2025-01-01"]), ["id"])
    first, second, *lines = str(made).splitlines()
    assert first == f"upsert of 1 row into {str(tmp_path)!r} by id"
    assert second == "5 files: 1 affected, 1 candidate, 1 guarded, 2 pruned"
    assert len(lines) == len(made.files)
    for line, file in zip(lines, made.files, strict=True):
        below_root = file.path.removeprefix(f"{tmp_path}/")
        assert line.split()[:2] == [file.decision, below_root]
        assert f"{file.bytes:,} bytes" in line
        assert line.rpartition("): ")[2]  # a reason
    candidate, guarded, pruned = lines[:3]
    assert candidate.endswith("; 1 of 2 row groups): nothing rules the keys out")
    assert "the source does not write to" in guarded
    assert pruned.endswith("): statistics of id: 10 to 19")
    assert "unreadable" in lines[3]
    assert "none" in str(merge_plan(tmp_path / "nothing", source(id=[1]), ["id"]))


def test_a_plan_is_confirmed_by_a_key_scan(tmp_path: Path) -> None:
    made = merge_plan(days(tmp_path), source(id=[7, 8], day=["2025-01-02"] * 2), ["id"])
    first, second, third, _ = (file.path for file in made.files)
    assert [file.decision for file in made.files] == ["guarded", "candidate", "pruned", "pruned"]
    done = made.confirmed({first: [], second: {1, 0}})
    assert [file.decision for file in done.files] == ["pruned", "affected", "pruned", "pruned"]
    assert done.files[0].evidence.kind == done.files[1].evidence.kind == "key scan"
    assert done.files[0].row_groups == ()
    assert done.files[1].row_groups == (0, 1)
    assert done.files[2] == made.files[2]
    assert "affected" not in str(made)  # the plan itself stays as it was
    assert "key scan: no source key found" in str(done)
    assert "2 of 2 row groups): key scan" in str(done)
    assert done.files[2].path == third


# The function that plans from keys alone.


def test_plan_incremental_rewrite_divides_the_files(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path, f"{number}.parquet", id=[number * 10, number * 10 + 9])
    found = plan_incremental_rewrite(str(tmp_path), [3, 25], ["id"])
    assert found == IncrementalRewritePlan(
        [str(tmp_path / "0.parquet"), str(tmp_path / "2.parquet")],
        [str(tmp_path / "1.parquet")],
        [],
        4,
    )


def test_a_plan_writes_nothing(tmp_path: Path) -> None:
    days(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert plan_incremental_rewrite(str(tmp_path), [7], ["id"]).new_files == []
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert [path.name for path in tmp_path.parent.glob(f".{tmp_path.name}*")] == []


@pytest.mark.parametrize("keys", [[7], (7,), {7}, [(7,)], pa.array([7]), pa.table({"id": [7]})])
def test_source_keys_may_be_given_in_many_ways(tmp_path: Path, keys: Any) -> None:
    found = plan_incremental_rewrite(str(days(tmp_path)), keys, ["id"])
    assert found.affected_files == [str(tmp_path / file) for file in FILES[:2]]


def test_a_generator_of_keys_is_not_empty_the_second_time(tmp_path: Path) -> None:
    keys: Any = (key for key in [7])
    assert plan_incremental_rewrite(str(days(tmp_path)), keys, ["id"]).affected_files


def test_partition_schema_types_the_values_in_the_paths(tmp_path: Path) -> None:
    write(tmp_path, "p=007/a.parquet", id=[1])
    write(tmp_path, "p=8/a.parquet", id=[1])
    typed = pa.schema([("p", pa.int32())])
    for schema in (typed, None):
        found = plan_incremental_rewrite(str(tmp_path), [(1, 7)], ["id", "p"], None, schema)
        assert found.affected_files == [str(tmp_path / "p=007/a.parquet")]
    as_text = plan_incremental_rewrite(str(tmp_path), [(1, "7")], ["id", "p"])
    assert as_text.affected_files == []  # '007' is not '7'
    with pytest.raises(SchemaMismatchError, match="never equal"):
        plan_incremental_rewrite(str(tmp_path), [(1, "7")], ["id", "p"], None, typed)


def test_a_key_outside_the_partition_columns_prunes_by_statistics(tmp_path: Path) -> None:
    found = plan_incremental_rewrite(str(days(tmp_path)), [19], ["id"])
    assert found.affected_files == [str(tmp_path / file) for file in FILES[2:]]
    assert found.affected_rows == 20


def test_an_unreadable_file_is_in_the_affected_files(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", id=[1])
    (tmp_path / "b.parquet").write_bytes(b"")
    found = plan_incremental_rewrite(str(tmp_path), [99], ["id"])
    assert found.affected_files == [str(tmp_path / "b.parquet")]
    assert found.unaffected_files == [str(tmp_path / "a.parquet")]
    assert found.affected_rows == 0


def test_a_file_without_the_key_column_is_affected(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", id=[1])
    write(tmp_path, "b.parquet", other=[1])
    found = plan_incremental_rewrite(str(tmp_path), [99], ["id"])
    assert found.affected_files == [str(tmp_path / "b.parquet")]


def test_a_file_that_stores_another_value_than_its_path_is_not_pruned_by_the_path(
    tmp_path: Path,
) -> None:
    write(tmp_path, "p=1/a.parquet", id=[1], p=[2])
    (path,) = list_dataset_files(str(tmp_path))
    found = plan_incremental_rewrite(str(tmp_path), [(1, 2)], ["id", "p"])
    assert found.affected_files == [path]
    assert confirm_affected_files([path], ["id", "p"], [(1, 2)]) == [path]
    assert plan_incremental_rewrite(str(tmp_path), [(1, 3)], ["id", "p"]).affected_files == []


def test_a_missing_dataset_has_no_files(tmp_path: Path) -> None:
    found = plan_incremental_rewrite(str(tmp_path / "none"), [1], ["id"])
    assert found == IncrementalRewritePlan([], [], [], 0)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("_delta_log/0.json", "Delta"),
        (".hoodie/hoodie.properties", "Hudi"),
        ("metadata/v1.metadata.json", "Iceberg"),
        ("_metadata", "summary file '_metadata'"),
        ("sub/_metadata", "summary file 'sub/_metadata'"),
        ("_p=1/a.parquet", "'_p=1' is data for Spark and hidden for PyArrow"),
    ],
)
def test_layouts_that_a_merge_would_make_wrong_are_refused(
    tmp_path: Path, entry: str, message: str
) -> None:
    write(tmp_path, "a.parquet", id=[1])
    (tmp_path / entry).parent.mkdir(exist_ok=True)
    (tmp_path / entry).write_text("{}")
    with pytest.raises(UnsupportedLayoutError, match=message) as caught:
        plan_incremental_rewrite(str(tmp_path), [1], ["id"])
    assert "Hint:" in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_hidden_files_are_not_data(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", id=[1])
    write(tmp_path, ".staging/b.parquet", id=[1])
    write(tmp_path, "_tmp/b.parquet", id=[1])
    write(tmp_path, "_b.parquet", id=[1])
    found = plan_incremental_rewrite(str(tmp_path), [1], ["id"])
    assert found.affected_files == [str(tmp_path / "a.parquet")]
    assert found.unaffected_files == []


def spelled(tmp_path: Path, spelling: str) -> tuple[str, Any]:
    if spelling == "file://":
        return f"file://{tmp_path}/data", None
    if spelling == "DirFileSystem":
        return "data", DirFileSystem(str(tmp_path), LocalFileSystem())
    if spelling == "pyarrow":
        return str(tmp_path / "data"), arrow_fs.LocalFileSystem()
    if spelling == "SubTreeFileSystem":
        return "data", arrow_fs.SubTreeFileSystem(str(tmp_path), arrow_fs.LocalFileSystem())
    if spelling == "relative":
        return "./data", None
    return f"{tmp_path}/data/", None


@pytest.mark.parametrize(
    "spelling",
    ["plain", "file://", "relative", "DirFileSystem", "SubTreeFileSystem", "pyarrow"],
)
def test_planned_paths_are_understood_by_the_caller_s_filesystem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    monkeypatch.chdir(tmp_path)
    days(tmp_path / "data")
    path, filesystem = spelled(tmp_path, spelling)
    found = plan_incremental_rewrite(path, [7], ["id"], filesystem)
    assert len(found.affected_files) == 2
    assert sorted(found.affected_files + found.unaffected_files) == list_dataset_files(
        path, filesystem
    )
    again = confirm_affected_files(found.affected_files, ["id"], [7], filesystem)
    assert again == found.affected_files


def test_planning_in_memory(tmp_path: Path) -> None:
    days(tmp_path)
    memory = MemoryFileSystem()
    memory.put(str(tmp_path), "/planned", recursive=True)
    for path, filesystem in (("memory://planned", None), ("/planned", memory)):
        found = plan_incremental_rewrite(path, [7], ["id"], filesystem)
        assert [name.partition("day=")[2] for name in found.affected_files] == [
            "2025-01-01/part-0.parquet",
            "2025-01-02/part-0.parquet",
        ]
        again = confirm_affected_files(found.affected_files, ["id"], [7], filesystem)
        assert again == found.affected_files
    memory.rm("/planned", recursive=True)


@pytest.mark.parametrize("name", COLUMN_NAMES)
def test_key_columns_may_have_odd_names(tmp_path: Path, name: str) -> None:
    write(tmp_path, "a.parquet", **{"other": [9], name: [1]})
    assert plan_incremental_rewrite(str(tmp_path), [1], [name]).affected_files
    assert not plan_incremental_rewrite(str(tmp_path), [9], [name]).affected_files


@pytest.mark.parametrize(
    ("keys", "columns", "message"),
    [
        ([1], b"id", "got the string b'id'"),
        ([1], "nope", r"\['nope'\] not found"),
        ([1], [], "at least one"),
        ([(1, 1)], ["id", "id"], "once"),
        ([1], ["nope"], r"\['nope'\] not found. Available columns: \['id', 'v'\]"),
        ([1], ["ID"], "upper and lower case"),
        ("abc", ["id"], "source_keys must be a sequence"),
        (7, ["id"], "source_keys must be a sequence"),
        (None, ["id"], "source_keys must be a sequence"),
        ([(1, 2)], ["id", "v", "w"], "a tuple of 3 values"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path: Path, keys: Any, columns: Any, message: str) -> None:
    write(tmp_path, "a.parquet", id=[1], v=[1])
    with pytest.raises(InvalidArgumentError, match=message):
        plan_incremental_rewrite(str(tmp_path), keys, columns)


@pytest.mark.parametrize("path", ["", "  ", "a\0b"])
def test_a_path_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(InvalidArgumentError, match="path must"):
        plan_incremental_rewrite(path, [1], ["id"])


def test_a_file_in_place_of_a_directory_is_reported(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", id=[1])
    with pytest.raises(NotADirectoryError, match=r"a\.parquet"):
        plan_incremental_rewrite(str(tmp_path / "a.parquet"), [1], ["id"])


def test_keys_that_are_never_equal_to_the_target_s_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", id=[1])
    with pytest.raises(SchemaMismatchError, match=r"column 'id'.*never equal"):
        plan_incremental_rewrite(str(tmp_path), ["1"], ["id"])


@given(datasets(null_source_keys=True, moving_keys=True))
@settings(max_examples=20)
def test_no_file_that_holds_a_key_is_ever_pruned(
    tmp_path_factory: pytest.TempPathFactory, data: GeneratedDataset
) -> None:
    directory = tmp_path_factory.mktemp("plan")
    paths = data.write(directory)
    names = data.key_columns
    made = merge_plan(directory, data.source, list(names), null_keys="match")
    decisions = {file.path: file.decision for file in made.files}
    wanted = {values_of(row, names) for row in data.source.to_pylist()}
    places = {values_of(row, data.partition_columns) for row in data.source.to_pylist()}
    for path, table in zip(paths, data.files, strict=True):
        rows = table.to_pylist()
        if wanted & {values_of(row, names) for row in rows}:
            here = values_of(rows[0], data.partition_columns) in places
            assert decisions[path] == ("candidate" if here else "guarded")
    keys = data.source.select(list(names))
    found = plan_incremental_rewrite(str(directory), keys, names, None, data.schema)
    confirmed = [
        path
        for path, table in zip(paths, data.files, strict=True)
        if wanted & {values_of(row, names) for row in table.to_pylist()}
    ]
    assert set(confirmed) <= set(found.affected_files)
