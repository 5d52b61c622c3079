"""Types, names and files that other programs make: merged right, or refused before any change."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsspeckit
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.errors import (
    InvalidArgumentError,
    SchemaMismatchError,
    UnreadableFileError,
    UnsupportedLayoutError,
)

if TYPE_CHECKING:
    from pathlib import Path

IO = PyarrowDatasetIO()
ROWS = pa.table({"id": [1, 2], "v": ["a", "b"]})
NEW = pa.table({"id": [2, 3], "v": ["B", "C"]})
MERGED = [{"id": 1, "v": "a"}, {"id": 2, "v": "B"}, {"id": 3, "v": "C"}]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def rows(data: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = IO.read_dataset(str(data)).sort_by("id").to_pylist()
    return found


def _uuids(*numbers: int) -> pa.Array:
    stored = pa.array([uuid.UUID(int=number).bytes for number in numbers], pa.binary(16))
    return pa.ExtensionArray.from_storage(pa.uuid(), stored)


def _offsets(count: int) -> pa.Array:
    return pa.array(range(count + 1), pa.int32())


EXTENSIONS = {
    "list": lambda *n: pa.ListArray.from_arrays(_offsets(len(n)), _uuids(*n)),
    "struct": lambda *n: pa.StructArray.from_arrays([_uuids(*n), pa.array(n)], ["u", "n"]),
    "map": lambda *n: pa.MapArray.from_arrays(_offsets(len(n)), pa.array(n), _uuids(*n)),
    "list of structs": lambda *n: pa.ListArray.from_arrays(
        _offsets(len(n)), pa.StructArray.from_arrays([_uuids(*n)], ["u"])
    ),
    "column": _uuids,
}


@pytest.mark.parametrize("kind", EXTENSIONS)
@pytest.mark.parametrize("partitioned", [False, True])
def test_extension_types_inside_of_others(data: Path, kind: str, partitioned: bool) -> None:
    make = EXTENSIONS[kind]
    held = pa.table({"id": [1, 2], "x": make(1, 2), "p": ["a", "b"]})
    given = pa.table({"id": [2, 3, 1], "x": make(5, 6, 1), "p": ["b", "c", "a"]})
    options: Any = {"partition_by": ["p"]} if partitioned else {}
    IO.write_dataset(held, str(data), **options)
    result = IO.merge(given, str(data), "upsert", ["id"])
    assert (result.updated, result.inserted) == (2, 1)
    assert len(result.rewritten_files) == 1
    table = IO.read_dataset(str(data)).sort_by("id")
    assert table.column("x").to_pylist() == make(1, 5, 6).to_pylist()
    assert table.schema.field("x").type == make(1).type or kind != "column"
    assert IO.merge(given, str(data), "upsert", ["id"]).rewritten_files == []


def test_plain_values_become_the_extension_type_of_the_target(data: Path) -> None:
    IO.write_dataset(pa.table({"id": [1], "x": EXTENSIONS["list"](1)}), str(data))
    plain = pa.array([[uuid.UUID(int=7).bytes]], pa.list_(pa.binary(16)))
    IO.merge(pa.table({"id": [1], "x": plain}), str(data), "upsert", ["id"])
    assert rows(data) == [{"id": 1, "x": [uuid.UUID(int=7)]}]


UNKNOWN = {
    "empty struct": pa.array([{}], pa.struct([])),
    "empty struct inside": pa.array([[{}]], pa.list_(pa.struct([]))),
    "interval": pa.array([pa.MonthDayNano([1, 2, 3])]),
    "union": pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), pa.array([1])),
}


@pytest.mark.parametrize("kind", UNKNOWN)
@pytest.mark.parametrize("given", ["table", "reader"])
def test_types_that_parquet_does_not_have(data: Path, kind: str, given: str) -> None:
    table = pa.table({"id": [1], "x": UNKNOWN[kind]})
    source = table if given == "table" else table.to_reader()
    with pytest.raises(SchemaMismatchError, match=r"'x'.*cannot be stored.*\n?Hint:"):
        IO.merge(source, str(data), "upsert", ["id"])
    assert os.listdir(data.parent) == ["data"]


def test_a_dictionary_that_holds_null(data: Path) -> None:
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1]), pa.array(["a", None]))
    table = pa.table({"id": [1, 2, 3], "x": coded})
    for source in (table, table.to_reader(max_chunksize=2)):
        IO.merge(source, str(data), "upsert", ["id"])
        assert [row["x"] for row in rows(data)] == ["a", None, None]


def test_a_column_of_nulls_takes_values_of_any_one_type(data: Path) -> None:
    IO.write_dataset(pa.table({"id": [1, 2], "x": pa.nulls(2)}), str(data), max_rows_per_file=1)
    IO.merge(pa.table({"id": [1], "x": [5]}), str(data), "upsert", ["id"])
    with pytest.raises(SchemaMismatchError, match="'x'"):
        IO.merge(pa.table({"id": [2], "x": ["text"]}), str(data), "upsert", ["id"])
    assert [row["x"] for row in rows(data)] == [5, None]


def test_an_append_takes_the_types_that_files_know(data: Path) -> None:
    for name, x in [("a", pa.nulls(1)), ("b", pa.array([1.5]))]:
        pq.write_table(pa.table({"id": [0], "x": x}), data / f"{name}.parquet")
    IO.write_dataset(pa.table({"id": [1], "x": [0.1]}), str(data))
    assert [row["x"] for row in rows(data)] in ([None, 1.5, 0.1], [1.5, None, 0.1])


def test_int96_beside_a_column_without_a_type(data: Path) -> None:
    """The physical types of a file are told leaf by leaf; a column may get more of them."""
    on = pa.array([1_000_000], pa.timestamp("us", "UTC"))
    held = pa.table({"id": [1], "x": pa.nulls(1), "t": on})
    pq.write_table(held, data / "a.parquet", use_deprecated_int96_timestamps=True)
    inside = [{"a": [1], "b": "y"}]
    for number in (1, 2):
        IO.merge(pa.table({"id": [number], "x": inside, "t": on}), str(data), "upsert", ["id"])
    assert [row["x"] for row in rows(data)] == inside * 2
    assert {row["t"] for row in rows(data)} == {on[0].as_py()}


@pytest.mark.parametrize(
    "kind", [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]
)
def test_times_as_partitions(data: Path, kind: pa.DataType) -> None:
    times = pa.array([1, None, 3], kind)
    IO.write_dataset(pa.table({"id": [1, 2, 3], "p": times}), str(data), partition_by=["p"])
    changed = pa.table({"id": [1, 2, 4], "p": times})
    result = IO.merge(changed, str(data), "upsert", ["id"])
    assert (result.updated, result.inserted) == (2, 1)
    assert len({row["p"] for row in rows(data)}) == 3
    with pytest.raises(ValueError, match="cannot change for existing keys"):
        IO.merge(pa.table({"id": [1], "p": times[2:]}), str(data), "upsert", ["id"])


def test_durations_cannot_be_partitions(data: Path) -> None:
    table = pa.table({"id": [1], "p": pa.array([1], pa.duration("s"))})
    with pytest.raises(InvalidArgumentError, match="Hint: partition by columns of simpler"):
        IO.merge(table, str(data), "upsert", ["id"], ["p"])


def test_floats_go_to_the_directory_of_their_value(data: Path) -> None:
    IO.write_dataset(pa.table({"id": [1, 2], "p": [1, 2]}), str(data), partition_by=["p"])
    source = pa.table({"id": [1, 3, 4], "p": [1.0, 2.0, 2.5]})
    result = IO.merge(source, str(data), "upsert", ["id"])
    assert (result.updated, result.inserted) == (1, 2)
    assert sorted(os.listdir(data)) == ["p=1", "p=2", "p=2.5"]
    with pytest.raises(SchemaMismatchError, match=r"p='2\.5'.*is not a valid int64"):
        IO.merge(pa.table({"id": [1], "p": [1]}), str(data), "upsert", ["id"])


@pytest.mark.parametrize(
    "name",
    ["n" * 247 + ".parquet", "é" * 120 + ".parquet", "a\\b.parquet", "a\nb.parquet", "\t'\"#.pq"],
)
@pytest.mark.parametrize("directory", ["", "x\\y/"])
def test_names_that_other_programs_gave(data: Path, name: str, directory: str) -> None:
    (data / directory).mkdir(exist_ok=True)
    pq.write_table(ROWS, data / directory / name)
    for _ in range(2):
        result = IO.merge(NEW, str(data), "upsert", ["id"])
    assert result.rewritten_files == []
    assert rows(data) == MERGED


@pytest.mark.parametrize("name", [b"a\xff.parquet", b"p=\xff/a.parquet"])
def test_names_that_are_not_utf8_are_refused(data: Path, name: bytes) -> None:
    pq.write_table(ROWS, data / "a.parquet")
    odd = os.path.join(os.fsencode(data), name)
    os.makedirs(os.path.dirname(odd), exist_ok=True)
    os.rename(data / "a.parquet", odd)
    for call in (
        lambda: IO.merge(NEW, str(data), "upsert", ["id"]),
        lambda: IO.plan_merge(NEW, str(data), "upsert", ["id"]),
        lambda: IO.write_dataset(NEW, str(data)),
        lambda: IO.read_dataset(str(data)),
    ):
        with pytest.raises(UnsupportedLayoutError, match=r"not UTF-8.\nHint: rename it"):
            call()


def test_a_partition_that_no_disk_can_hold_is_refused_in_time(data: Path) -> None:
    IO.write_dataset(pa.table({"id": [1], "p": ["a"]}), str(data), partition_by=["p"])
    for call in (
        lambda table: IO.merge(table, str(data), "upsert", ["id"]),
        lambda table: IO.write_dataset(table, str(data), mode="overwrite", partition_by=["p"]),
    ):
        with pytest.raises(InvalidArgumentError, match="302 bytes; disks take 255"):
            call(pa.table({"id": [2], "p": ["x" * 300]}))
    assert rows(data) == [{"id": 1, "p": "a"}]
    assert not fsspeckit.recover(str(data))


def test_a_long_partition_is_fine_where_there_are_no_disks() -> None:
    table = pa.table({"id": [2], "p": ["x" * 300]})
    result = IO.merge(table, "memory://long-partition", "upsert", ["id"], ["p"])
    assert result.inserted == 1


def test_a_long_template_is_refused(data: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="at most 180 bytes"):
        IO.write_dataset(ROWS, str(data), basename_template="n" * 200)


def _damaged(data: Path, column: int) -> None:
    pq.write_table(ROWS, data / "a.parquet", use_dictionary=False, compression="none")
    chunk = pq.read_metadata(data / "a.parquet").row_group(0).column(column)
    content = bytearray((data / "a.parquet").read_bytes())
    start, length = chunk.data_page_offset, chunk.total_compressed_size
    content[start : start + length] = b"\xee" * length
    (data / "a.parquet").write_bytes(content)


@pytest.mark.parametrize("column", ["key", "payload"])
def test_damaged_pages_name_the_file(data: Path, column: str) -> None:
    _damaged(data, 0 if column == "key" else 1)
    with pytest.raises(UnreadableFileError, match=r"(?s)a\.parquet' is not readable.*Hint:"):
        IO.merge(NEW, str(data), "upsert", ["id"])
    assert os.listdir(data) == ["a.parquet"]


def test_a_plan_names_a_file_with_damaged_keys(data: Path) -> None:
    _damaged(data, 0)
    with pytest.raises(UnreadableFileError, match=r"a\.parquet"):
        IO.plan_merge(NEW, str(data), "upsert", ["id"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("call", ["merge", "plan_merge"])
def test_a_file_without_permission_is_named(call: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        os.mkdir(f"{place}/data")
        pq.write_table(ROWS, f"{place}/data/a.parquet")
        os.chmod(f"{place}/data/a.parquet", 0)
        program = f"""
            import os, pyarrow as pa, fsspeckit.datasets.pyarrow as f
            io = f.PyarrowDatasetIO()
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            try:
                io.{call}(pa.table({{"id": [2], "v": ["x"]}}), "{place}/data", "upsert", ["id"])
            except PermissionError as error:
                print(error)
        """
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)],
            capture_output=True,
            text=True,
            check=True,
        )
    assert "a.parquet" in done.stdout


@pytest.mark.parametrize(
    ("kind", "far"), [(pa.date32(), 10_000_000), (pa.timestamp("us"), 1 << 60)], ids=str
)
def test_a_key_in_a_year_that_python_does_not_have(data: Path, kind: pa.DataType, far: int) -> None:
    """Its file is left out of the merge, and the plan says by which bounds."""
    pq.write_table(pa.table({"id": pa.array([far], kind), "v": ["a"]}), data / "far.parquet")
    near = pa.table({"id": pa.array([0], kind), "v": ["b"]})
    plan = IO.plan_merge(near, str(data), "upsert", ["id"])
    assert pa.array([far], kind).cast(pa.string())[0].as_py() in plan.explain()
    assert IO.merge(near, str(data), "upsert", ["id"]).inserted == 1
    assert pq.read_table(data)["v"].to_pylist() in (["a", "b"], ["b", "a"])
