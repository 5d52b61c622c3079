"""Every engine is a `DatasetHandler`: mypy checks the types, this the parameters."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import fsspeckit
from fsspeckit.core.incremental import (
    confirm_affected_files,
    plan_incremental_rewrite,
    validate_no_null_keys,
    validate_partition_column_immutability,
)
from fsspeckit.datasets.inspection.diagnosis import diagnose_dataset
from fsspeckit.datasets.inspection.report import inspect_dataset
from fsspeckit.datasets.interfaces import DatasetHandler
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.datasets.registry import ENGINES

if TYPE_CHECKING:
    from pathlib import Path

    from fsspeckit.datasets.base import DatasetIO
    from fsspeckit.datasets.duckdb import DuckDBDatasetIO, DuckDBParquetHandler
    from fsspeckit.datasets.spark import SparkDatasetIO

    def mypy_checks(
        common: DatasetIO,
        pyarrow: PyarrowDatasetIO,
        duckdb: DuckDBDatasetIO,
        handler: DuckDBParquetHandler,
        spark: SparkDatasetIO,
    ) -> list[DatasetHandler]:
        return [common, pyarrow, duckdb, handler, spark]


METHODS = [
    name for name in vars(DatasetHandler) if inspect.isfunction(getattr(DatasetHandler, name))
]
CALLS = [name for name in METHODS if not name.startswith("_")]


def rows(*ids: int, v: str = "old") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [v] * len(ids)})


@pytest.fixture
def io() -> PyarrowDatasetIO:
    return PyarrowDatasetIO()


def test_the_protocol_has_the_methods() -> None:
    assert sorted(CALLS) == [
        "apply_changes",
        "clean",
        "close",
        "compact",
        "deduplicate",
        "delete",
        "evolve",
        "execute",
        "merge",
        "merge_parquet_dataset",
        "plan_apply_changes",
        "plan_compact",
        "plan_deduplicate",
        "plan_delete",
        "plan_evolve",
        "plan_merge",
        "read_dataset",
        "repartition",
        "restore",
        "undo",
        "verify",
        "write_dataset",
        "write_parquet_dataset",
    ]


@pytest.mark.parametrize("method", CALLS)
@pytest.mark.parametrize("engine", ENGINES)
def test_signatures_are_the_same_on_every_engine(engine: str, method: str) -> None:
    entry = ENGINES[engine]
    if not entry.is_installed:
        pytest.skip(f"{engine} is not installed")
    found = getattr(import_module(entry.module), entry.class_name)
    assert _parameters(getattr(found, method)) == _parameters(getattr(DatasetHandler, method))


def _parameters(function: Any) -> list[tuple[str, Any, Any, Any]]:
    parameters = inspect.signature(function).parameters.values()
    return [(p.name, p.kind, p.default, p.annotation) for p in parameters]


@pytest.mark.parametrize(
    ("plan", "merge"),
    [
        (fsspeckit.plan_merge, fsspeckit.merge),
        (DatasetHandler.plan_merge, DatasetHandler.merge),
        (PyarrowDatasetIO.plan_merge, PyarrowDatasetIO.merge),
        (fsspeckit.plan_evolve, fsspeckit.evolve),
        (PyarrowDatasetIO.plan_evolve, PyarrowDatasetIO.evolve),
    ],
)
def test_a_plan_takes_the_arguments_of_a_merge(plan: Any, merge: Any) -> None:
    assert _parameters(plan) == _parameters(merge)
    assert inspect.signature(plan).return_annotation == "MergePlan"


def test_a_wrong_keyword_is_refused_as_python_does(io: PyarrowDatasetIO) -> None:
    wrong: Any = {"x": 1}
    refused = r"^{}\(\) got an unexpected keyword argument 'x'$"
    with pytest.raises(TypeError, match=refused.format("plan_merge")):
        fsspeckit.plan_merge(1, "d", "upsert", ["id"], **wrong)
    with pytest.raises(TypeError, match=refused.format("DatasetIO.plan_merge")):
        io.plan_merge(1, "d", "upsert", ["id"], **wrong)


def test_plan_merge_names_what_is_missing(io: PyarrowDatasetIO) -> None:
    with pytest.raises(TypeError, match="missing a required argument: 'path'"):
        io.plan_merge(rows(1))  # type: ignore[call-arg]


@pytest.mark.parametrize("strategy", ["full_merge", "deduplicate"])
@pytest.mark.parametrize("method", ["write_parquet_dataset", "merge_parquet_dataset"])
def test_incremental_is_refused_before_any_look_at_key_columns(
    io: PyarrowDatasetIO, tmp_path: Path, strategy: str, method: str
) -> None:
    with pytest.raises(ValueError, match=f"incremental rewrite is not supported.*{strategy}"):
        getattr(io, method)(
            rows(1), f"{tmp_path}/d", strategy=strategy, key_columns=7, rewrite_mode="incremental"
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "overwrite", "strategy": "upsert", "key_columns": ["id"]}, "leave out one"),
        ({"mode": "truncate"}, "mode must be one of 'append', 'overwrite', .*got 'truncate'"),
        ({"strategy": "replace", "key_columns": ["id"]}, "strategy must be one of 'insert'"),
        ({"strategy": "upsert"}, "key_columns must name at least one column"),
        ({"strategy": "upsert", "key_columns": ["x"]}, r"\['x'\] not found.*\['id', 'v'\]"),
        ({"strategy": "upsert", "key_columns": b"id"}, "got the string b'id'"),
        ({"key_columns": ["id"]}, "no use for key_columns"),
        ({"order_by": ["id"]}, "no use for order_by"),
        ({"rewrite_mode": "incremental"}, "no use for rewrite_mode"),
        ({"strategy": "upsert", "rewrite_mode": "partial"}, "rewrite_mode must be one of 'full'"),
        ({"max_rows_per_file": 0}, "max_rows_per_file must be > 0.* got 0"),
    ],
)
def test_what_is_refused(
    io: PyarrowDatasetIO, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        io.write_parquet_dataset(rows(1), f"{tmp_path}/d", **options)
    assert not (tmp_path / "d").exists()


def test_a_merge_with_a_template_names_its_inserts(io: PyarrowDatasetIO, tmp_path: Path) -> None:
    result = io.write_parquet_dataset(
        rows(1),
        f"{tmp_path}/d",
        strategy="insert",
        key_columns=["id"],
        basename_template="day-{i}.parquet",
    )
    assert result.files[0].path.rpartition("/")[2].startswith("day-0-")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_rewrite_fraction": 1.5}, "from 0 to 1, got 1.5"),
        ({"max_rewrite_fraction": float("nan")}, "from 0 to 1, got nan"),
        ({"max_rewrite_fraction": True}, "from 0 to 1, got True"),
        ({"max_rewrite_bytes": -1}, "0 or more, got -1"),
        ({"max_rewrite_bytes": 1.5}, "0 or more, got 1.5"),
    ],
)
def test_limits_that_are_none(
    io: PyarrowDatasetIO, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        io.merge(rows(1), f"{tmp_path}/d", "upsert", ["id"], **options)


@pytest.mark.parametrize("seconds", [-1, float("nan"), "5", True, None])
def test_a_lock_timeout_is_a_number_of_seconds(tmp_path: Path, seconds: Any) -> None:
    with pytest.raises(ValueError, match="lock_timeout must be a number of seconds"):
        PyarrowDatasetIO(lock_timeout=seconds).read_dataset(f"{tmp_path}/d")


def test_one_column_may_be_a_string_in_every_call(io: PyarrowDatasetIO, tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    io.write_parquet_dataset(rows(1), path, strategy="upsert", key_columns="id", order_by="v")
    io.merge_parquet_dataset(rows(2), path, "id", order_by="v", bloom_columns="id")
    assert inspect_dataset(path, key_columns="id").key_columns == ("id",)
    assert diagnose_dataset(path, "id").key_columns == ("id",)
    assert plan_incremental_rewrite(path, [1], "id").affected_rows == 1
    files = [file.path for file in io.plan_merge(rows(1), path, "upsert", "id").files]
    assert len(confirm_affected_files(files, "id", [1])) == 1
    assert io.read_dataset(path, columns="id").column_names == ["id"]


def test_validations_take_one_column_as_a_string() -> None:
    table = rows(1).append_column("p", pa.array(["a"]))
    validate_no_null_keys(table, "id")
    validate_partition_column_immutability(table, table, "id", "p")
    moved = table.set_column(2, "p", pa.array(["b"]))
    with pytest.raises(ValueError, match="partition columns cannot change"):
        validate_partition_column_immutability(moved, table, "id", "p")


def test_a_column_that_is_not_there_is_named_as_a_whole(
    io: PyarrowDatasetIO, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"key_columns \['nope'\] not found"):
        io.merge(rows(1), str(tmp_path / "data"), "upsert", "nope")


@pytest.mark.parametrize("codec", ["lzo", "", 7, b"zstd"])
def test_codecs_that_are_none(io: PyarrowDatasetIO, tmp_path: Path, codec: Any) -> None:
    with pytest.raises(ValueError, match="compression must be one of"):
        io.write_dataset(rows(1), str(tmp_path / "data"), compression=codec)
