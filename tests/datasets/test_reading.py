"""Reading is as honest as merging: what contradicts itself is refused, names are only names."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.dirfs import DirFileSystem

from fsspeckit.datasets.pipeline.reading import (
    OpenedDataset,
    as_filters,
    read_table,
    with_dataset,
)
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.errors import (
    InvalidArgumentError,
    SchemaMismatchError,
    UnreadableFileError,
    UnsupportedLayoutError,
)
from fsspeckit.storage.storage import open_storage

if TYPE_CHECKING:
    from pathlib import Path

IO = PyarrowDatasetIO()
UTC = pa.timestamp("us", "UTC")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def put(data: Path, name: str, table: pa.Table, **options: Any) -> None:
    path = data / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)


@pytest.mark.parametrize(
    ("directory", "stored"),
    [
        ("p=1", pa.array([2], pa.int32())),
        ("p=1", pa.array([None], pa.int32())),
        ("p=__HIVE_DEFAULT_PARTITION__", pa.array([1], pa.int32())),
        ("p=x", pa.array([1], pa.int32())),
        ("p=7", pa.array(["007"])),
    ],
)
@pytest.mark.parametrize("statistics", [True, False])
def test_a_path_and_a_file_that_disagree_are_refused(
    data: Path, directory: str, stored: pa.Array, statistics: bool
) -> None:
    table = pa.table({"id": [1], "p": stored})
    put(data, f"{directory}/a.parquet", table, write_statistics=statistics)
    with pytest.raises(SchemaMismatchError, match=r"a\.parquet"):
        IO.read_dataset(str(data))


@pytest.mark.parametrize(
    ("directory", "stored"),
    [
        ("p=1", pa.array([1], pa.int32())),
        ("p=007", pa.array(["007"])),
        ("p=__HIVE_DEFAULT_PARTITION__", pa.array([None], pa.int32())),
        ("p=2026-01-02", pa.array([dt.date(2026, 1, 2)])),
    ],
)
def test_a_path_and_a_file_that_agree_are_read_as_stored(
    data: Path, directory: str, stored: pa.Array
) -> None:
    table = pa.table({"p": stored, "id": [1]})
    put(data, f"{directory}/a.parquet", table)
    assert IO.read_dataset(str(data)).equals(table)


@pytest.mark.parametrize("text", ["-0", "007", "+1", "True", "2026-02-30"])
def test_a_text_that_only_resembles_another_type_stays_as_it_is(data: Path, text: str) -> None:
    rows = pa.table({"id": [1], "p": [text]})
    put(data, "a.parquet", rows)
    IO.repartition(str(data), "p")
    IO.repartition(str(data), [])
    assert IO.read_dataset(str(data)).equals(rows)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("_delta_log/00000000000000000000.json", "Delta"),
        ("metadata/v1.metadata.json", "Iceberg"),
        (".hoodie/hoodie.properties", "Hudi"),
        ("_p=1/f.parquet", "_p=1"),
    ],
)
def test_other_tables_are_refused(data: Path, name: str, what: str) -> None:
    put(data, "a.parquet", pa.table({"id": [1]}))
    (data / name).parent.mkdir()
    (data / name).write_bytes(b"{}")
    with pytest.raises(UnsupportedLayoutError, match=rf"read.*{what}.*Hint:"):
        IO.read_dataset(str(data))


def test_a_summary_file_is_in_the_way_of_a_merge_only(data: Path) -> None:
    put(data, "a.parquet", pa.table({"id": [1]}))
    (data / "_metadata").write_bytes(b"PAR1")
    assert IO.read_dataset(str(data)).to_pylist() == [{"id": 1}]


RESERVED = ["__filename", "__fragment_index", "__batch_index", "__last_in_fragment"]


@pytest.mark.parametrize("name", RESERVED)
def test_columns_named_like_those_of_pyarrows_scanner(data: Path, name: str) -> None:
    put(data, "p=1/a.parquet", pa.table({"id": [1, 2], name: ["x", "y"]}))
    put(data, "p=2/b.parquet", pa.table({"id": pa.array([3], pa.int32()), name: ["z"]}))
    assert IO.read_dataset(str(data)).to_pylist() == [
        {"id": 1, name: "x", "p": 1},
        {"id": 2, name: "y", "p": 1},
        {"id": 3, name: "z", "p": 2},
    ]
    chosen = IO.read_dataset(str(data), columns=[name], filters=ds.field("id") > 2)
    assert chosen.to_pylist() == [{name: "z"}]
    with pytest.raises(InvalidArgumentError, match="zz"):
        IO.read_dataset(str(data), columns=["zz"])


@pytest.mark.parametrize("name", RESERVED)
@pytest.mark.parametrize("key", ["id", "reserved"])
def test_merges_of_columns_with_such_names(data: Path, name: str, key: str) -> None:
    put(data, "a.parquet", pa.table({"id": [1, 2], name: ["x", "y"]}))
    source = data.parent / "new.parquet"
    pq.write_table(pa.table({"id": [2, 3], name: ["y", "z"]}), source)
    result = IO.merge(source, str(data), "upsert", [name if key == "reserved" else key])
    assert (result.updated, result.inserted) == (1, 1)


def test_files_with_int96_beside_files_without(data: Path) -> None:
    early = pa.array([dt.datetime(1500, 1, 1)], pa.timestamp("us"))
    nested = pa.array([[dt.datetime(1500, 1, 1)]], pa.list_(pa.timestamp("us")))
    put(
        data, "a.parquet", pa.table({"t": early, "n": nested}), use_deprecated_int96_timestamps=True
    )
    put(data, "b.parquet", pa.table({"t": early.cast(UTC), "n": nested.cast(pa.list_(UTC))}))
    table = IO.read_dataset(str(data))
    assert table.schema.types == [UTC, pa.list_(UTC)]
    first, second = table.to_pylist()
    assert first == second
    later = IO.read_dataset(str(data), filters=ds.field("t") > pa.scalar(0, UTC))
    assert later.num_rows == 0


@pytest.mark.parametrize("name", ["v", "__filename"])
@pytest.mark.parametrize("filters", [[("id", "!=", 1)], "id <> 1"], ids=str)
def test_files_can_be_read_one_by_one(data: Path, name: str, filters: Any) -> None:
    """As the workers of an engine do."""
    put(data, "p=1/a.parquet", pa.table({"id": [1, 2], name: ["x", "y"]}))
    put(data, "p=2/b.parquet", pa.table({"id": [3], name: ["z"]}))

    def read(opened: OpenedDataset) -> list[list[dict[str, Any]]]:
        found = opened.filtered(as_filters(filters))
        parts = [opened.batches(number, [name, "p"], found) for number in range(2)]
        return [pa.Table.from_batches(part).to_pylist() for part in parts]

    expected = [[{name: "y", "p": 1}], [{name: "z", "p": 2}]]
    assert with_dataset(open_storage(data), read) == expected


@pytest.mark.parametrize("times", [1, 99])
def test_a_state_whose_files_are_replaced_is_read_again(data: Path, times: int) -> None:
    put(data, "a.parquet", pa.table({"id": [1]}))
    vanished = 0

    def read(opened: OpenedDataset) -> int:
        nonlocal vanished
        if vanished < times:
            vanished += 1
            raise FileNotFoundError("a file is gone")
        return int(opened.table(None, None).num_rows)

    if times == 1:
        assert with_dataset(open_storage(data), read) == 1
    else:
        with pytest.raises(FileNotFoundError, match="gone"):
            with_dataset(open_storage(data), read)


def test_a_file_that_is_not_parquet_is_named(data: Path) -> None:
    (data / "a.parquet").write_bytes(b"nothing of the kind")
    with pytest.raises(UnreadableFileError, match=r"a\.parquet"):
        IO.read_dataset(str(data))


@pytest.mark.parametrize("zone", [None, "Asia/Tokyo"])
def test_years_that_nanoseconds_do_not_reach_are_read_beside_them(
    tmp_path: Path, zone: str | None
) -> None:
    far = pa.array([dt.datetime(9999, 12, 31)], pa.timestamp("us", zone))
    near = pa.array([dt.datetime(2020, 1, 1)], pa.timestamp("ns", zone))
    pq.write_table(pa.table({"t": far}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"t": near}), tmp_path / "b.parquet")
    found = read_table(open_storage(tmp_path))["t"]
    assert found.type == pa.timestamp("us", zone)
    assert len(found) == 2
    pq.write_table(pa.table({"t": pa.array([1], near.type)}), tmp_path / "b.parquet")
    with pytest.raises(SchemaMismatchError, match=r"no unit holds.*\nHint: "):
        read_table(open_storage(tmp_path))


@pytest.mark.parametrize("pattern", ["a.parquet", "*.parquet", "p=1/a.parquet"])
@pytest.mark.parametrize("place", ["relative", "absolute", "url", "memory", "filesystem", "dirfs"])
def test_files_by_name_and_by_glob(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, place: str
) -> None:
    """A path without a directory, or one right below the root of a filesystem, has a root too."""
    table = pa.table({"id": [1, 2]})
    for directory in (tmp_path, tmp_path / "p=1"):
        directory.mkdir(exist_ok=True)
        pq.write_table(table, directory / "a.parquet")
    monkeypatch.chdir(tmp_path)
    memory = fsspec.filesystem("memory")
    for name in ("/by-name/a.parquet", "/by-name/p=1/a.parquet"):
        memory.pipe_file(name, (tmp_path / "a.parquet").read_bytes())
    paths: dict[str, tuple[str, Any]] = {
        "relative": (pattern, None),
        "absolute": (f"{tmp_path}/{pattern}", None),
        "url": (f"file://{tmp_path}/{pattern}", None),
        "memory": (f"memory://by-name/{pattern}", None),
        "filesystem": (f"/by-name/{pattern}", memory),
        "dirfs": (pattern, DirFileSystem("/by-name", memory)),
    }
    path, filesystem = paths[place]
    found = PyarrowDatasetIO(filesystem).read_dataset(path)
    assert found["id"].to_pylist() == [1, 2]
    assert found.column_names == (["id", "p"] if "p=1" in pattern else ["id"])


def test_a_file_at_the_top_of_a_filesystem() -> None:
    memory = fsspec.filesystem("memory")
    with memory.open("/top-of-memory.parquet", "wb") as file:
        pq.write_table(pa.table({"id": [1]}), file)
    for path in ("memory://top-of-memory.parquet", "memory://top-of-*.parquet"):
        assert PyarrowDatasetIO().read_dataset(path)["id"].to_pylist() == [1]


def test_a_directory_with_the_name_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "all=1.parquet"
    PyarrowDatasetIO().write_dataset(pa.table({"id": [1]}), str(path))
    assert PyarrowDatasetIO().read_dataset(str(path)).column_names == ["id"]


def test_sql_text_and_expressions_of_pyarrow_select_the_same_rows(tmp_path: Path) -> None:
    rows = pa.table({"id": range(100), "v": [str(n) for n in range(100)]})
    PyarrowDatasetIO().write_dataset(rows, str(tmp_path / "d"), row_group_size=10)
    read = PyarrowDatasetIO().read_dataset
    for text, expression in (
        ("id >= 42 AND v <> '77'", (pc.field("id") >= 42) & (pc.field("v") != "77")),
        ("id IN (1, 2, 50)", pc.field("id").isin([1, 2, 50])),
    ):
        found = read(str(tmp_path / "d"), filters=text)
        assert found.equals(read(str(tmp_path / "d"), filters=expression))
