"""Plans that are executed: on the files they were made for, with the source they were made of."""

from __future__ import annotations

import asyncio
import copy
import gc
import os
import pickle
import subprocess
import sys
import threading
from dataclasses import replace
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsspeckit
from fsspeckit.datasets.base import DatasetIO
from fsspeckit.datasets.duckdb import DuckDBDatasetIO
from fsspeckit.datasets.duckdb.engine import DuckDBEngine
from fsspeckit.datasets.pipeline import SourceLimits, merge
from fsspeckit.datasets.pipeline.merge import lazy_staging
from fsspeckit.datasets.pyarrow import ArrowEngine, PyarrowDatasetIO
from fsspeckit.errors import (
    ConcurrentModificationError,
    InvalidArgumentError,
    RewriteLimitError,
    StalePlanError,
)
from fsspeckit.storage.storage import open_storage

if TYPE_CHECKING:
    from pathlib import Path

    from fsspeckit.core.planning.plan import MergePlan

ENGINES = [PyarrowDatasetIO, DuckDBDatasetIO]


def rows(*ids: int, v: str = "old") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [v] * len(ids)})


@pytest.fixture
def path(tmp_path: Path) -> str:
    PyarrowDatasetIO().write_dataset(rows(*range(6)), f"{tmp_path}/data", max_rows_per_file=2)
    return f"{tmp_path}/data"


@pytest.fixture(params=ENGINES, ids=lambda engine: str(engine.__name__))
def io(request: pytest.FixtureRequest) -> DatasetIO:
    engine: DatasetIO = request.param()
    return engine


@pytest.fixture(params=[ArrowEngine, DuckDBEngine], ids=lambda engine: str(engine.__name__))
def spilling_io(request: pytest.FixtureRequest) -> DatasetIO:
    """Holds no source in memory."""
    return DatasetIO(request.param(limits=SourceLimits(max_memory_bytes=0)))


def upsert(io: Any, path: str, source: Any = None, **options: Any) -> MergePlan:
    given = rows(1, 9, v="new") if source is None else source
    plan: MergePlan = io.plan_merge(given, path, "upsert", ["id"], **options)
    return plan


def read(path: str) -> dict[int, str]:
    return dict(zip(*PyarrowDatasetIO().read_dataset(path).to_pydict().values(), strict=True))


MERGED = {0: "old", 1: "new", 2: "old", 3: "old", 4: "old", 5: "old", 9: "new"}


def test_a_plan_is_executed_by_the_package_itself(io: DatasetIO, path: str) -> None:
    result = fsspeckit.execute(upsert(io, path))
    assert (result.updated, result.inserted, len(result.preserved_files)) == (1, 1, 2)
    assert read(path) == MERGED


def test_options_of_the_plan_hold(io: DatasetIO, path: str) -> None:
    source = pa.concat_tables([rows(7, v="first"), rows(7, v="last"), rows(8, v="new")])
    plan = upsert(io, path, source, duplicate_keys="first", max_rows_per_file=1)
    result = io.execute(plan)
    assert (result.inserted, len(result.inserted_files)) == (2, 2)
    assert read(path)[7] == "first"


def test_a_limit_of_the_plan_holds(io: DatasetIO, path: str) -> None:
    plan = upsert(io, path, max_rewrite_bytes=1)
    with pytest.raises(RewriteLimitError):
        io.execute(plan)
    assert read(path) == dict.fromkeys(range(6), "old")


def test_the_control_directory_of_the_plan_is_used(tmp_path: Path) -> None:
    path, elsewhere = f"{tmp_path}/new", f"{tmp_path}/control"
    plan = upsert(PyarrowDatasetIO(control_dir=elsewhere), path)
    fsspeckit.execute(plan)
    assert len(fsspeckit.history(path, control_dir=elsewhere)) == 1


def test_the_source_is_read_once(io: DatasetIO, path: str, tmp_path: Path) -> None:
    """What happens to it after the plan was made changes nothing."""
    source = f"{tmp_path}/source.parquet"
    pq.write_table(rows(1, 9, v="new"), source)
    plan = upsert(io, path, source)
    os.remove(source)
    io.execute(plan)
    assert read(path) == MERGED


def test_a_stream_too_large_for_memory_stays_until_it_is_used(
    spilling_io: DatasetIO, path: str
) -> None:
    plan = upsert(spilling_io, path, rows(1, 9, v="new").to_reader())
    assert _staged(path)
    spilling_io.execute(plan)
    assert not _staged(path)
    assert read(path) == MERGED


def test_a_table_too_large_to_be_in_memory_twice_goes_to_disk(
    spilling_io: DatasetIO, path: str
) -> None:
    ids = np.array([1, 9])
    plan = upsert(spilling_io, path, pa.table({"id": ids, "v": ["new", "new"]}))
    assert _staged(path)
    ids[:] = [2, 8]
    spilling_io.execute(plan)
    assert not _staged(path)
    assert read(path) == MERGED


def test_a_merge_does_not_copy_a_table(io: DatasetIO, path: str) -> None:
    source = pa.table({"id": np.arange(100), "v": np.full(100, "new")})
    with lazy_staging(open_storage(path)) as stage:
        taken: Any = io._engine.take(source, stage, None)
        kept: Any = io._engine.take(source, stage, None, keep=True)
    given = source.column("id").chunk(0).buffers()[1].address
    found = [
        one.columns(["id"]).column("id").chunk(0).buffers()[1].address for one in (taken, kept)
    ]
    assert found[0] == given
    assert found[1] != given


def test_a_plan_that_nobody_executes_leaves_nothing(spilling_io: DatasetIO, path: str) -> None:
    plan = upsert(spilling_io, path, rows(1, 9, v="new").to_reader())
    assert _staged(path)
    del plan
    gc.collect()
    assert not _staged(path)


FORK = """
import gc, os, sys
import pyarrow as pa
from fsspeckit.datasets.base import DatasetIO
from fsspeckit.datasets.pipeline import SourceLimits, merge
from fsspeckit.datasets.pyarrow import ArrowEngine

io = DatasetIO(ArrowEngine(limits=SourceLimits(max_memory_bytes=0)))
rows = pa.table({"id": [1], "v": ["new"]})
plan = io.plan_merge(rows.to_reader(), sys.argv[1], "upsert", ["id"])
child = os.fork()
if not child:
    del plan
    gc.collect()
    os._exit(0)
os.waitpid(child, 0)
print(io.execute(plan).updated)
"""


def test_a_forked_child_leaves_the_source_alone(path: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK, path], capture_output=True, text=True, check=False
    )
    assert done.stdout == "1\n", done.stderr


def _staged(path: str) -> list[str]:
    directory, _, name = path.rpartition("/")
    control = f"{directory}/.{name}.fsspeckit"
    return [entry for entry in os.listdir(control) if entry.startswith(".staging")]


@pytest.mark.parametrize("change", ["append", "replace", "remove", "merge"])
def test_files_that_changed_since(io: DatasetIO, path: str, change: str) -> None:
    plan = upsert(io, path)
    first = plan.files[0].path
    if change == "append":
        pq.write_table(rows(50), f"{path}/foreign.parquet")
    elif change == "replace":
        pq.write_table(rows(50, 51, 52), first)
    elif change == "remove":
        os.remove(first)
    else:
        PyarrowDatasetIO().merge(rows(0, v="other"), path, "update", ["id"])
    before = read(path)
    with pytest.raises(StalePlanError, match=r"has changed since(?s:.*)Hint: plan again") as caught:
        io.execute(plan)
    assert isinstance(caught.value, ConcurrentModificationError)
    assert read(path) == before


@pytest.mark.parametrize("phase", ["plan", "match", "rewrite", "commit"])
def test_files_that_change_meanwhile(io: DatasetIO, path: str, phase: str) -> None:
    """A merge would plan again; a plan that was looked at is not replaced by another one."""
    plan = upsert(io, path)

    def overtake(at: str, done: int, _: int) -> None:
        if (at, done) == (phase, 0):
            PyarrowDatasetIO().merge(rows(1, v="other"), path, "update", ["id"])

    with pytest.raises(StalePlanError):
        io.execute(plan, progress=overtake)
    assert read(path)[1] == "other"
    assert 9 not in read(path)


def test_a_failed_execution_can_be_repeated(io: DatasetIO, path: str) -> None:
    plan = upsert(io, path)

    def fail(phase: str, *_: int) -> None:
        if phase == "rewrite":
            raise RuntimeError("the callback broke")

    with pytest.raises(RuntimeError, match="the callback broke"):
        io.execute(plan, progress=fail)
    io.execute(plan)
    assert read(path) == MERGED


def test_a_plan_is_executed_once(io: DatasetIO, path: str) -> None:
    plan = upsert(io, path)
    io.execute(plan)
    with pytest.raises(InvalidArgumentError, match="executed already"):
        io.execute(plan)


def test_a_plan_that_was_edited_is_refused(io: DatasetIO, path: str) -> None:
    plan = upsert(io, path)
    fewer = replace(plan, files=plan.files[1:])
    with pytest.raises(StalePlanError, match=r"decide otherwise about '.*\.parquet'"):
        io.execute(fewer)
    assert read(path) == dict.fromkeys(range(6), "old")


def test_a_copy_of_a_plan_is_the_plan(path: str) -> None:
    plan = upsert(PyarrowDatasetIO(), path)
    assert copy.deepcopy(plan) == plan
    fsspeckit.execute(copy.deepcopy(plan))
    with pytest.raises(InvalidArgumentError, match="executed already"):
        fsspeckit.execute(plan)


def test_a_plan_that_was_stored_has_no_source(path: str) -> None:
    plan = upsert(PyarrowDatasetIO(), path)
    stored = pickle.loads(pickle.dumps(plan))
    assert stored == plan
    with pytest.raises(InvalidArgumentError, match="does not know its source"):
        fsspeckit.execute(stored)


def test_what_is_not_a_plan_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"str cannot be executed(?s:.*)Hint:"):
        fsspeckit.execute("plan")  # type: ignore[arg-type]


def test_another_engine_refuses(path: str) -> None:
    plan = upsert(DuckDBDatasetIO(), path)
    with pytest.raises(InvalidArgumentError, match="made by the engine 'duckdb', and 'pyarrow'"):
        PyarrowDatasetIO().execute(plan)


def test_an_empty_source_changes_nothing(io: DatasetIO, path: str) -> None:
    result = io.execute(upsert(io, path, rows()))
    assert (result.updated, result.inserted, len(result.preserved_files)) == (0, 0, 3)


def test_a_plan_creates_a_dataset(io: DatasetIO, tmp_path: Path) -> None:
    plan = upsert(io, f"{tmp_path}/new")
    assert not (tmp_path / "new").exists()
    assert io.execute(plan).inserted == 2


def test_a_plan_that_is_collected_in_a_thread_of_a_loop_is_released_by_another() -> None:
    released: SimpleQueue[int] = SimpleQueue()

    async def collect() -> None:
        merge._release_in(os.getpid(), lambda: released.put(threading.get_ident()))

    asyncio.run(collect())
    assert released.get(timeout=10) != threading.get_ident()
    merge._release_in(os.getpid(), lambda: released.put(threading.get_ident()))
    assert released.get_nowait() == threading.get_ident()


def test_a_plan_that_only_shows_says_what_to_call(io: DatasetIO, path: str) -> None:
    plans: list[Any] = [io.plan_compact(path), io.plan_evolve(path, add={"n": pa.int8()})]
    for plan in plans:
        with pytest.raises(InvalidArgumentError, match=r"compact\(\) and evolve\(\) only show"):
            io.execute(plan)
