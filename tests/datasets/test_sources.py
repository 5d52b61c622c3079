"""Sources: every kind of data a caller may pass, and streams that do not fit in memory."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import duckdb
import fsspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import fsspeckit
from fsspeckit.datasets.base import DatasetIO
from fsspeckit.datasets.pipeline import SourceLimits
from fsspeckit.datasets.pipeline.source import MemorySource, SpilledSource, open_source
from fsspeckit.datasets.pyarrow import ArrowEngine, PyarrowDatasetIO
from fsspeckit.errors import InvalidArgumentError, SchemaMismatchError, UnsupportedLayoutError
from fsspeckit.storage.commit.staging import Stage, create_stage
from fsspeckit.storage.storage import open_storage

ROWS = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]})


@pytest.fixture
def stage(tmp_path: Path) -> Any:
    opened = create_stage(open_storage(tmp_path / "data"))
    yield lambda: opened
    opened.discard()


def _kinds(directory: Path) -> dict[str, Any]:
    pq.write_table(ROWS.slice(0, 2), directory / "a.parquet")
    pq.write_table(ROWS.slice(2), directory / "b.parquet")
    return {
        "table": ROWS,
        "tables": [ROWS.slice(0, 1), ROWS.slice(1)],
        "batch": ROWS.combine_chunks().to_batches()[0],
        "batches": ROWS.to_batches(max_chunksize=2),
        "dataset": ds.dataset(ROWS),
        "scanner": ds.dataset(ROWS).scanner(),
        "reader": ROWS.to_reader(max_chunksize=1),
        "pandas": ROWS.to_pandas(),
        "polars": pl.from_arrow(ROWS),
        "lazy polars": pl.from_arrow(ROWS).lazy(),  # type: ignore[union-attr]
        "relation": duckdb.from_arrow(ROWS),
        "path": str(directory),
        "file": directory / "a.parquet",
        "glob": str(directory / "*.parquet"),
        "paths": [str(directory / "a.parquet"), str(directory / "b.parquet")],
    }


KINDS = [
    "table",
    "tables",
    "batch",
    "batches",
    "dataset",
    "scanner",
    "reader",
    "pandas",
    "polars",
    "lazy polars",
    "relation",
]


@pytest.mark.parametrize("kind", [*KINDS, "path", "file", "glob", "paths"])
def test_every_kind_of_data_gives_the_same_rows(kind: str, tmp_path: Path, stage: Any) -> None:
    directory = tmp_path / "source"
    directory.mkdir()
    source = open_source(_kinds(directory)[kind], stage)
    expected = ROWS.slice(0, 2) if kind == "file" else ROWS
    assert source.num_rows == expected.num_rows
    rows = pa.concat_tables(source.batches(), promote_options="default").to_pylist()
    assert rows == expected.to_pylist()
    assert source.take(np.array([1, 0])).column("id").to_pylist() == [2, 1]
    assert source.columns(["v"]).column_names == ["v"]


@pytest.mark.parametrize("data", [5, None, {"id": [1]}, [], [1, 2], b"x", object()])
def test_other_kinds_are_refused_with_what_would_be_right(data: Any, stage: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="Hint: pass an Arrow table"):
        open_source(data, stage)


def test_a_path_without_files_is_not_found(tmp_path: Path, stage: Any) -> None:
    with pytest.raises(FileNotFoundError, match="nothing"):
        open_source(str(tmp_path / "nothing*"), stage)


def test_columns_that_occur_twice_are_refused(stage: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="twice"):
        open_source(pa.table([[1], [2]], names=["a", "a"]), stage)


def test_the_callers_schema_is_applied(stage: Any) -> None:
    schema = pa.schema([("v", pa.large_string()), ("id", pa.int8())])
    assert open_source(ROWS, stage, schema=schema).schema == schema
    assert open_source(ROWS.to_reader(), stage, schema=schema).schema == schema
    with pytest.raises(SchemaMismatchError, match="'id'"):
        open_source(ROWS, stage, schema=pa.schema([("v", pa.string())]))


def test_a_stream_stays_in_memory_while_it_is_small(stage: Any) -> None:
    assert isinstance(open_source(ROWS.to_reader(), stage), MemorySource)


SMALL = SourceLimits(max_memory_bytes=1000)


def test_a_stream_that_does_not_fit_goes_to_staging(stage: Any) -> None:
    table = pa.table({"id": range(1000), "v": [str(i) for i in range(1000)]})
    source = open_source(table.to_reader(max_chunksize=100), stage, limits=SMALL)
    assert isinstance(source, SpilledSource)
    opened: Stage = stage()
    (spilled,) = Path(opened.path).glob("source-*.staged")
    assert spilled.stat().st_size > 1000
    assert pa.concat_tables(source.batches()).equals(table)
    assert source.columns(["v"]).equals(table.select(["v"]))
    rows = np.random.default_rng(0).permutation(1000)[:50]
    assert source.take(rows).equals(table.take(pa.array(rows)))


@pytest.mark.parametrize("place", ["local", "memory"])
def test_a_merge_of_a_spilled_stream_leaves_no_staging(place: str, tmp_path: Path) -> None:
    path = str(tmp_path / "data") if place == "local" else "memory://spilled/data"
    table = pa.table({"id": range(1000), "v": ["old"] * 1000})
    io = DatasetIO(ArrowEngine(limits=SMALL))
    io.write_dataset(table.slice(0, 500), path, mode="overwrite")
    changed = table.set_column(1, "v", pa.array(["new"] * 1000))
    result = io.merge(changed.to_reader(max_chunksize=50), path, "upsert", ["id"])
    assert (result.updated, result.inserted) == (500, 500)
    assert set(io.read_dataset(path).column("v").to_pylist()) == {"new"}
    if place == "local":
        assert not list((tmp_path / ".data.fsspeckit").glob(".staging*"))


def test_an_index_of_pandas_is_left_out(stage: Any) -> None:
    frame = pd.DataFrame({"id": [1]}, index=pd.Index([9]))
    assert open_source(frame, stage).schema.names == ["id"]


def test_an_index_of_pandas_with_names_is_refused(stage: Any) -> None:
    """It may be the key: silently dropped it would be lost."""
    frame = pd.DataFrame({"region": ["eu", "us"], "id": [1, 2], "v": [3, 4]}).set_index("region")
    with pytest.raises(SchemaMismatchError, match=r"names, \['region'\](?s:.*)reset_index\(\)"):
        open_source(frame, stage)
    with pytest.raises(SchemaMismatchError, match=r"\['region', 'id'\]"):
        open_source(frame.groupby(["region", "id"]).sum(), stage)
    assert open_source(frame.reset_index(), stage).schema.names == ["region", "id", "v"]


def test_int96_of_a_source_are_instants(tmp_path: Path, stage: Any) -> None:
    times = pa.array([dt.datetime(1500, 1, 1), None], pa.timestamp("us"))
    nested = pa.array([[dt.datetime(2024, 1, 1)], None], pa.list_(pa.timestamp("us")))
    rows = pa.table({"t": times, "n": nested})
    (tmp_path / "s" / "p=1").mkdir(parents=True)
    pq.write_table(rows, tmp_path / "s/p=1/a.parquet", use_deprecated_int96_timestamps=True)
    utc = pa.timestamp("us", "UTC")
    (tmp_path / "s" / "p=2").mkdir()
    zoned = rows.cast(pa.schema([("t", utc), ("n", pa.list_(utc))]))
    pq.write_table(zoned, tmp_path / "s/p=2/b.parquet")
    source = open_source(str(tmp_path / "s"), stage)
    assert source.schema.types == [utc, pa.list_(utc), pa.int64()]
    found = pa.concat_tables(source.batches())
    assert found.select(["t", "n"]).to_pylist() == 2 * zoned.to_pylist()


class _Guarded(MemoryFileSystem):  # type: ignore[misc]
    """A filesystem that opens only with a secret."""

    protocol = "guarded"
    store: dict[str, Any] = {}  # noqa: RUF012 - as its parent has it
    pseudo_dirs: list[str] = [""]  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("guarded://", "memory://", 1)))

    def __init__(self, secret: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        if secret != "s3cret":
            raise PermissionError(f"the secret is not {secret!r}")


@pytest.fixture
def guarded() -> Any:
    fsspec.register_implementation("guarded", _Guarded, clobber=True)
    sink = pa.BufferOutputStream()
    pq.write_table(ROWS, sink)
    _Guarded(secret="s3cret").pipe_file("/landing/a.parquet", sink.getvalue().to_pybytes())
    yield {"secret": "s3cret"}
    _Guarded.store.clear()


@pytest.mark.parametrize("call", ["merge", "plan_merge", "write_dataset"])
def test_a_source_is_opened_with_the_options_of_the_target(call: str, guarded: Any) -> None:
    arguments: Any = {"strategy": "upsert", "key_columns": ["id"]}
    if call == "write_dataset":
        arguments = {}
    done = getattr(fsspeckit, call)(
        "guarded://landing/a.parquet",
        "guarded://data",
        **arguments,
        engine="pyarrow",
        storage_options=guarded,
    )
    assert done is not None


def test_a_source_elsewhere_is_not(guarded: Any, tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "a.parquet")
    io = PyarrowDatasetIO(storage_options=guarded)
    assert io.merge(str(tmp_path / "a.parquet"), "guarded://d", "upsert", ["id"]).inserted == 3
    with pytest.raises(PermissionError, match="None"):
        io.merge("guarded://landing/a.parquet", str(tmp_path / "d"), "upsert", ["id"])


@pytest.mark.parametrize("where", ["constructor", "call"])
def test_a_source_without_a_scheme_is_on_the_filesystem_given(
    where: str, guarded: Any, tmp_path: Path
) -> None:
    pq.write_table(ROWS.slice(1), tmp_path / "a.parquet")
    filesystem = _Guarded(**guarded)
    io = PyarrowDatasetIO(filesystem if where == "constructor" else None)
    options = {} if where == "constructor" else {"filesystem": filesystem}
    assert io.merge("/landing/a.parquet", "/data", "upsert", ["id"], **options).inserted == 3
    url = (tmp_path / "a.parquet").as_uri()
    assert io.merge(url, "/data", "upsert", ["id"], **options).updated == 2
    known = "guarded://landing/a.parquet"
    assert io.merge([known], "/data", "upsert", ["id"], **options).updated == 3


def test_parts_of_a_source_may_differ_in_what_they_allow(stage: Any) -> None:
    required = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])
    one = pa.table({"id": [1], "v": ["a"]}, schema=required)
    source = open_source([one, pa.table({"v": ["b"], "id": pa.array([None], pa.int64())})], stage)
    assert source.schema.equals(required.set(0, required.field(0).with_nullable(True)))
    assert source.columns(["id"]).column("id").to_pylist() == [1, None]


UNTYPED: dict[str, tuple[pa.Array, pa.Array]] = {
    "NULL": (pa.nulls(1), pa.array(["x"])),
    "list": (pa.array([[]]), pa.array([[1]])),
    "struct": (pa.array([{"b": None}]), pa.array([{"b": 1.5}])),
    "NULL for a list": (pa.nulls(1), pa.array([[1]])),
}


@pytest.mark.parametrize("kind", UNTYPED)
@pytest.mark.parametrize("how", ["tables", "files", "directory", "glob"])
@pytest.mark.parametrize("first", [0, 1], ids=["without a type first", "with a type first"])
def test_parts_of_a_source_may_have_no_type_for_a_column(
    tmp_path: Path, kind: str, how: str, first: int
) -> None:
    values = UNTYPED[kind][::-1] if first else UNTYPED[kind]
    tables = [pa.table({"id": [number], "x": x}) for number, x in enumerate(values)]
    (tmp_path / "source").mkdir()
    paths = [f"{tmp_path}/source/{number}.parquet" for number in range(2)]
    for table, path in zip(tables, paths, strict=True):
        pq.write_table(table, path)
    given: Any = {
        "tables": tables,
        "files": paths,
        "directory": f"{tmp_path}/source",
        "glob": f"{tmp_path}/source/*.parquet",
    }[how]
    io = PyarrowDatasetIO()
    io.merge(given, f"{tmp_path}/data", "upsert", ["id"])
    found = io.read_dataset(f"{tmp_path}/data")
    assert found.column("x").type.equals(UNTYPED[kind][1].type)
    assert found.column("x").to_pylist() == [one for x in values for one in x.to_pylist()]


@pytest.mark.parametrize("kind", ["a dangling link", "a Delta table"])
def test_a_source_directory_whose_rows_are_not_those_of_its_files(
    tmp_path: Path, kind: str
) -> None:
    """Rows of the source would be missing, or be of an old version."""
    source = tmp_path / "source"
    source.mkdir()
    pq.write_table(pa.table({"id": [1]}), source / "a.parquet")
    if kind == "a dangling link":
        (source / "b.parquet").symlink_to(tmp_path / "not mounted")
    else:
        (source / "_delta_log").mkdir()
    with pytest.raises(UnsupportedLayoutError, match="cannot be read as plain Parquet"):
        PyarrowDatasetIO().merge(str(source), str(tmp_path / "data"), "upsert", ["id"])
    assert not (tmp_path / "data").exists()
