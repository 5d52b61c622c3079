"""Data that was once merged wrongly, or not at all."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsspeckit
from fsspeckit.datasets.base import DatasetIO
from fsspeckit.datasets.pipeline import SourceLimits
from fsspeckit.datasets.pyarrow import ArrowEngine, PyarrowDatasetIO
from fsspeckit.errors import (
    DuplicateRowsError,
    InvalidArgumentError,
    SchemaMismatchError,
    UnreadableFileError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

IO = PyarrowDatasetIO()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "data")


def test_partitions_of_every_column_are_refused_and_nothing_is_lost(path: str) -> None:
    rows = pa.table({"a": [1, 2], "b": [3, 4]})
    IO.write_dataset(rows, path)
    with pytest.raises(InvalidArgumentError, match="every column"):
        IO.write_dataset(rows, path, mode="overwrite", partition_by=["a", "b"])
    assert IO.read_dataset(path).equals(rows)
    with pytest.raises(InvalidArgumentError, match="every column"):
        IO.merge(rows, path + "2", "upsert", ["a"], ["a", "b"])


@pytest.mark.parametrize(
    ("held", "given"),
    [
        ([{"sku": "a", "price": 9.5}], [{"sku": "a"}]),
        ([[{"sku": "a", "price": 9.5}]], [[{"sku": "a"}]]),
        ([{"n": 42}], [{"n": "42"}]),
        ([{"n": 1}], [{"n": True}]),
        ([[2.5]], [["2.5"]]),
    ],
)
def test_nested_values_follow_the_rules_of_columns(path: str, held: Any, given: Any) -> None:
    IO.write_dataset(pa.table({"id": [1], "x": held}), path)
    with pytest.raises(SchemaMismatchError, match="'x'"):
        IO.merge(pa.table({"id": [1], "x": given}), path, "upsert", ["id"])
    assert IO.read_dataset(path).column("x").to_pylist() == held


def test_tables_with_other_columns_are_not_filled_with_null(path: str) -> None:
    IO.write_dataset(pa.table({"id": [1, 2], "v": ["a", "b"]}), path)
    parts = [pa.table({"id": [1], "v": ["x"]}), pa.table({"id": [2]})]
    with pytest.raises(SchemaMismatchError, match="'v'"):
        IO.merge(parts, path, "upsert", ["id"])


@pytest.mark.parametrize(
    "second",
    [
        pa.table({"id": [2], "x": pa.array([0.5], pa.float32()), "v": ["b"]}),
        pa.table({"id": [2], "x": pa.array([0.1], pa.float64())}),
    ],
)
@pytest.mark.parametrize("kind", ["directory", "paths"])
def test_files_of_a_source_must_be_alike(
    tmp_path: Path, path: str, second: pa.Table, kind: str
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    pq.write_table(pa.table({"id": [1], "x": pa.array([0.5], pa.float32())}), source / "a.parquet")
    pq.write_table(second, source / "b.parquet")
    data = str(source) if kind == "directory" else [str(file) for file in sorted(source.iterdir())]
    with pytest.raises(SchemaMismatchError, match="parts of the source differ"):
        IO.write_dataset(data, path)


def test_partition_text_of_a_source_is_not_made_a_number(tmp_path: Path, path: str) -> None:
    (tmp_path / "source" / "p=007").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), tmp_path / "source" / "p=007" / "a.parquet")
    IO.write_dataset(str(tmp_path / "source"), path)
    assert IO.read_dataset(path).to_pylist() == [{"id": 1, "p": "007"}]


def test_an_empty_partitioned_dataset_can_be_filled(path: str) -> None:
    rows = pa.table({"id": [1], "v": ["a"]})
    IO.write_dataset(rows.slice(0, 0), path, partition_by=["v"])
    IO.write_dataset(rows, path, partition_by=["v"])
    IO.merge(pa.table({"id": [2], "v": ["b"]}), path, "upsert", ["id"])
    found = IO.read_dataset(path).sort_by("id").to_pylist()
    assert found == [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]


@pytest.mark.parametrize("writer", ["duckdb", "pyarrow", "pyarrow without schema"])
def test_key_value_metadata_survives_a_rewrite(tmp_path: Path, path: str, writer: str) -> None:
    Path(path).mkdir()
    file = f"{path}/a.parquet"
    rows = pa.table({"id": [1, 2], "v": ["a", "b"]})
    if writer == "duckdb":
        relation = duckdb.from_arrow(rows)
        relation.query("t", f"COPY t TO '{file}' (FORMAT parquet, KV_METADATA {{note: 'kept'}})")
    else:
        with pq.ParquetWriter(file, rows.schema, store_schema="without" not in writer) as out:
            out.write_table(rows)
            out.add_key_value_metadata({"note": "kept"})
    result = IO.merge(pa.table({"id": [1], "v": ["new"]}), path, "update", ["id"])
    (new,) = result.rewritten_files
    assert pq.read_metadata(new).metadata[b"note"] == b"kept"


@pytest.mark.parametrize(
    "column",
    [
        pl.Series([["a"], ["b"]]),
        pl.Series([{"s": "a"}, {"s": "b"}]),
        pl.Series(["a", "b"], dtype=pl.Categorical),
        pl.Series(["a", "b"], dtype=pl.Enum(["a", "b"])),
    ],
)
def test_ordinary_columns_of_polars(path: str, column: pl.Series) -> None:
    frame = pl.DataFrame({"id": [1, 2], "c": column})
    IO.write_dataset(frame, path)
    changed = frame.with_columns(id=pl.Series([2, 3]))
    result = IO.merge(changed, path, "upsert", ["id"])
    assert (result.updated, result.inserted) == (1, 1)
    kept, updated, inserted = IO.read_dataset(path).sort_by("id").column("c").to_pylist()
    first, second = column.to_list()
    assert [kept, updated, inserted] == [first, first, second]


def test_a_dictionary_gets_room_for_new_values(path: str) -> None:
    Path(path).mkdir()
    small = pa.dictionary(pa.int8(), pa.string())
    old = pa.array([f"a{i}" for i in range(100)]).dictionary_encode().cast(small)
    pq.write_table(pa.table({"id": range(100), "v": old}), f"{path}/a.parquet")
    new = pa.table({"id": range(50, 150), "v": [f"b{i}" for i in range(100)]})
    result = IO.merge(new, path, "upsert", ["id"])
    assert (result.updated, result.inserted) == (50, 50)
    values = IO.read_dataset(path).column("v").to_pylist()
    assert len(set(values)) == 150


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (pa.array([0.5], pa.float32()), pa.array([0.1], pa.float64()), [0.5, 0.1]),
        (pa.array([1], pa.int32()), pa.array([2**40]), [1, 2**40]),
        (pa.nulls(1), pa.array(["x"]), [None, "x"]),
    ],
)
def test_reading_loses_nothing_of_files_with_other_types(
    path: str, one: pa.Array, other: pa.Array, expected: list[Any]
) -> None:
    Path(path).mkdir()
    pq.write_table(pa.table({"v": one}), f"{path}/a.parquet")
    pq.write_table(pa.table({"v": other, "w": [7]}), f"{path}/b.parquet")
    table = IO.read_dataset(path)
    assert table.column("v").to_pylist() == expected
    assert table.column("w").to_pylist() == [None, 7]


def test_reading_refuses_types_that_no_type_holds(path: str) -> None:
    Path(path).mkdir()
    pq.write_table(pa.table({"v": [1]}), f"{path}/a.parquet")
    pq.write_table(pa.table({"v": ["x"]}), f"{path}/b.parquet")
    with pytest.raises(SchemaMismatchError, match="'v'"):
        IO.read_dataset(path)


def test_a_text_that_only_looks_like_a_date_stays_a_text(path: str) -> None:
    Path(path, "p=2026-02-30").mkdir(parents=True)
    pq.write_table(pa.table({"v": [1]}), f"{path}/p=2026-02-30/a.parquet")
    assert IO.read_dataset(path).to_pylist() == [{"v": 1, "p": "2026-02-30"}]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("path", None),
        ("path", b"data"),
        ("key_columns", None),
        ("key_columns", 3),
        ("progress", 3),
        ("compression", "foo"),
        ("trust_partitions", "no"),
        ("allow_empty", 1),
        ("key_index", "yes"),
        ("max_rows_per_file", "10"),
        ("row_group_size", 0),
        ("order_by", ["zz"]),
        ("bloom_columns", ["zz"]),
        ("bloom_columns", "zz"),
        ("bloom_columns", b"v"),
        ("schema", {"id": pa.int64()}),
        ("filesystem", "file"),
        ("path", "nosuch://bucket/key"),
    ],
)
def test_a_wrong_argument_is_one_clear_error(path: str, name: str, value: Any) -> None:
    rows = pa.table({"id": [1], "v": ["a"]})
    IO.write_dataset(rows, path)
    arguments = {"path": path, "strategy": "upsert", "key_columns": ["id"], name: value}
    with pytest.raises(InvalidArgumentError):
        IO.merge(pa.table({"id": [1, 2], "v": ["b", "c"]}), **arguments)
    assert IO.read_dataset(path).equals(rows)


def test_wrong_columns_are_named(path: str) -> None:
    rows = pa.table({"id": [1], "v": ["a"]})
    IO.write_dataset(rows, path)
    with pytest.raises(InvalidArgumentError, match="'zz'"):
        IO.read_dataset(path, columns=["zz"])
    with pytest.raises(InvalidArgumentError, match="'zz'"):
        IO.read_dataset(path, columns="zz")
    with pytest.raises(InvalidArgumentError, match="'zz'"):
        IO.write_dataset(rows, path, mode="overwrite", partition_by=["zz"])


def test_whole_numbers_of_numpy_are_numbers(path: str) -> None:
    sizes: Any = {"max_rows_per_file": np.int64(2), "row_group_size": np.int32(1)}
    result = IO.write_dataset(pa.table({"id": range(5)}), path, **sizes)
    assert [file.row_count for file in result.files] == [2, 2, 1]


def test_options_of_a_storage_are_a_mapping() -> None:
    with pytest.raises(InvalidArgumentError, match=r"storage_options.*got a str") as caught:
        fsspeckit.read_dataset("x", engine="pyarrow", storage_options="s3cret")  # type: ignore[arg-type]
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("column", "what"),
    [("flag", "type bool"), ("list", "type list"), ("part", "not stored in files")],
)
def test_columns_that_cannot_have_a_bloom_filter(path: str, column: str, what: str) -> None:
    rows = pa.table({"id": [1], "flag": [True], "list": [[1]], "part": ["x"]})
    for call in (
        lambda: IO.write_dataset(rows, path, partition_by=["part"], bloom_columns=[column]),
        lambda: IO.merge(rows, path, "upsert", ["id"], ["part"], bloom_columns=[column]),
    ):
        with pytest.raises(InvalidArgumentError, match=rf"{column}.*{what}.*\nHint:"):
            call()


@pytest.mark.parametrize(
    "filters", ["id >", "zz = 1", [("id", "~", 1)], [("zz", "=", 1)], [("id", "=", "x")], 7]
)
def test_filters_that_do_not_fit_are_one_clear_error(path: str, filters: Any) -> None:
    IO.write_dataset(pa.table({"id": [1], "v": ["a"]}), path)
    with pytest.raises(InvalidArgumentError, match="filters"):
        IO.read_dataset(path, filters=filters)


@pytest.mark.parametrize("content", [b"id\n1\n", b"PAR1 and then nothing", b""])
def test_a_source_that_is_not_parquet_is_named(tmp_path: Path, path: str, content: bytes) -> None:
    (tmp_path / "x.parquet").write_bytes(content)
    with pytest.raises(UnreadableFileError, match=r"(?s)x\.parquet.*Hint:"):
        IO.merge(tmp_path / "x.parquet", path, "upsert", ["id"])


@pytest.mark.parametrize("template", [5, "", "a/b", "_hidden-{i}", "{x}", "{"])
def test_templates_that_give_no_name(path: str, template: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        IO.write_dataset(pa.table({"id": [1]}), path, basename_template=template)
    assert not Path(path).exists()


def test_an_interrupt_at_any_moment_leaves_all_or_nothing(path: str) -> None:
    """As Ctrl-C raises it, wherever the merge tells about its progress."""
    old, new = pa.table({"id": [1, 2], "v": ["a", "b"]}), pa.table({"id": [2, 3], "v": ["B", "C"]})
    merged = [{"id": 1, "v": "a"}, {"id": 2, "v": "B"}, {"id": 3, "v": "C"}]
    states, at = set(), 0
    while True:
        at += 1
        events = iter(range(1, 1000))

        def progress(*_: Any, at: int = at, events: Iterator[int] = events) -> None:
            if next(events) == at:
                raise KeyboardInterrupt

        IO.write_dataset(old, path, mode="overwrite")
        try:
            IO.merge(new, path, "upsert", ["id"], progress=progress)
        except KeyboardInterrupt:
            found = IO.read_dataset(path).sort_by("id").to_pylist()
            assert found in (old.to_pylist(), merged)
            states.add(found == merged)
            assert not list(Path(path).parent.glob(".data.fsspeckit/.staging*"))
        else:
            break
    assert states == {False, True}
    assert at > 10


@pytest.mark.slow
def test_ctrl_c_ends_a_merge_soon_and_changes_nothing(tmp_path: Path, path: str) -> None:
    rows = pa.table({"id": range(200_000), "v": ["x" * 50] * 200_000})
    IO.write_dataset(rows, path, max_rows_per_file=2_000)
    before = sorted((file.name, file.stat().st_mtime_ns) for file in Path(path).iterdir())
    program = f"""
        import pyarrow as pa, fsspeckit.datasets.pyarrow as engine
        rows = pa.table({{"id": range(200_000), "v": ["y"] * 200_000}})
        def progress(phase, done, total):
            if phase == "rewrite" and done == 3:
                print("now", flush=True)
        engine.PyarrowDatasetIO().merge(rows, {path!r}, "upsert", ["id"], progress=progress)
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "now\n"
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=30)
    assert "KeyboardInterrupt" in errors
    after = sorted((file.name, file.stat().st_mtime_ns) for file in Path(path).iterdir())
    assert after == before
    assert not list(tmp_path.glob(".data.fsspeckit/.staging*"))


@pytest.mark.parametrize("rows_in_memory", [7, 1])
def test_duplicates_are_found_share_by_share(tmp_path: Path, rows_in_memory: int) -> None:
    limits = SourceLimits(max_duplicate_rows=rows_in_memory)
    path = str(tmp_path / "d")
    rows = pa.table({"id": [n % 9 for n in range(30)], "seq": range(30)})
    with DatasetIO(ArrowEngine(limits=limits)) as io:
        io.write_dataset(rows, path, max_rows_per_file=8)
        with pytest.raises(DuplicateRowsError, match="21 row"):
            io.deduplicate(path, "id")
        assert io.deduplicate(path, "id", "seq").deleted == 21
        assert sorted(io.read_dataset(path)["seq"].to_pylist()) == list(range(21, 30))
