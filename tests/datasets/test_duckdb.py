"""The DuckDB engine keeps the contract of every engine, and leaves connections as it found them."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.incremental import plan_incremental_rewrite
from fsspeckit.datasets.duckdb import DuckDBDatasetIO
from fsspeckit.testing.conformance import EngineTests

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class TestDuckDB(EngineTests):
    engine_name = "duckdb"

    @pytest.fixture
    def connect(self) -> Callable[..., Any]:
        return DuckDBDatasetIO


def rows(*ids: int, v: str = "old") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array([v] * len(ids))})


def ids_in(path: Path) -> list[int]:
    return sorted(pq.read_table(path)["id"].to_pylist())


@pytest.fixture
def target(tmp_path: Path) -> Path:
    for number in range(3):
        (tmp_path / "data").mkdir(exist_ok=True)
        table = rows(*range(number * 10, number * 10 + 10))
        pq.write_table(table, tmp_path / "data" / f"{number}.parquet")
    return tmp_path / "data"


SCENES: dict[str, list[str]] = {
    "nothing special": [],
    "tables of any name": [
        "CREATE TABLE t AS SELECT 1 AS k0, 2 AS file, 3 AS position",
        "CREATE TEMP TABLE s AS SELECT 1 AS number",
        'CREATE TEMP VIEW "k0" AS SELECT 1',
    ],
    "settings": ["SET threads = 1", "SET memory_limit = '200MB'", "SET preserve_insertion_order=0"],
    "a transaction": ["CREATE TABLE t AS SELECT 1 AS x", "BEGIN", "INSERT INTO t VALUES (2)"],
    "no access to files": ["SET enable_external_access = false", "SET lock_configuration = true"],
}


def state_of(connection: duckdb.DuckDBPyConnection) -> list[Any]:
    asked = [
        "SELECT name, value FROM duckdb_settings() ORDER BY 1",
        "SELECT schema_name, table_name, temporary FROM duckdb_tables() ORDER BY ALL",
        "SELECT schema_name, view_name, temporary FROM duckdb_views() ORDER BY ALL",
        "SELECT database_name FROM duckdb_databases() ORDER BY 1",
    ]
    return [connection.execute(question).fetchall() for question in asked]


@pytest.mark.parametrize("scene", SCENES)
def test_a_connection_is_left_as_it_was_found(target: Path, scene: str) -> None:
    with duckdb.connect() as connection:
        for statement in SCENES[scene]:
            connection.execute(statement)
        connection.register("mine", rows(1, 2))
        before = state_of(connection)
        with DuckDBDatasetIO(connection) as io:
            result = io.merge(rows(5, 99, v="new"), str(target), "upsert", ["id"])
        assert (result.updated, result.inserted) == (1, 1)
        assert state_of(connection) == before
        assert connection.execute("SELECT count(*) FROM mine").fetchall() == [(2,)]


def test_a_connection_to_a_file_that_may_only_be_read(target: Path, tmp_path: Path) -> None:
    duckdb.connect(str(tmp_path / "x.db")).close()
    with (
        duckdb.connect(str(tmp_path / "x.db"), read_only=True) as connection,
        DuckDBDatasetIO(connection) as io,
    ):
        assert io.merge(rows(5, v="new"), str(target), "update", ["id"]).updated == 1


def test_an_open_result_of_the_connection_is_not_disturbed(target: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute("SELECT * FROM range(100000)")
        assert connection.fetchone() == (0,)
        with DuckDBDatasetIO(connection) as io:
            io.merge(rows(5, v="new"), str(target), "update", ["id"])
        assert connection.fetchone() == (1,)


def test_a_closed_connection_is_refused_before_anything_changes(target: Path) -> None:
    connection = duckdb.connect()
    connection.close()
    before = sorted(target.iterdir())
    with pytest.raises(ValueError, match="Hint: pass one that is open"):
        DuckDBDatasetIO(connection).merge(rows(5, v="new"), str(target), "update", ["id"])
    assert sorted(target.iterdir()) == before


@pytest.mark.parametrize("connection", ["x.db", duckdb, 5], ids=["path", "module", "number"])
def test_what_is_not_a_connection_is_refused_at_once(connection: Any) -> None:
    with pytest.raises(ValueError, match="connection must be a DuckDB connection, got"):
        DuckDBDatasetIO(connection)


def test_after_close_it_can_be_used_again(target: Path) -> None:
    io = DuckDBDatasetIO()
    for v in ("once", "twice"):
        io.merge(rows(5, v=v), str(target), "update", ["id"])
        io.close()
    assert "twice" in pq.read_table(target)["v"].to_pylist()


@pytest.mark.parametrize("own", [True, False], ids=["its own connection", "the user's connection"])
def test_several_threads_use_one_handler(tmp_path: Path, own: bool) -> None:
    failures: list[BaseException] = []
    with ExitStack() as stack:
        connection = None if own else stack.enter_context(duckdb.connect())
        io = stack.enter_context(DuckDBDatasetIO(connection))

        def work(number: int) -> None:
            try:
                path = f"{tmp_path}/{number % 3}"
                for start in range(3):
                    io.merge(rows(*range(start, start + 20)), path, "upsert", ["id"])
            except BaseException as error:  # a thread's error must reach the test
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []
    assert [ids_in(tmp_path / str(number)) for number in range(3)] == [list(range(22))] * 3


def test_what_progress_raises_reaches_the_caller(target: Path) -> None:
    class Stop(BaseException):
        pass

    def progress(phase: str, done: int, total: int) -> None:
        if phase == "match" and total == 3:
            raise Stop

    before = sorted(target.iterdir())
    with pytest.raises(Stop):
        DuckDBDatasetIO().merge(
            rows(5, 15, 25, v="new"), str(target), "update", ["id"], progress=progress
        )
    assert sorted(target.iterdir()) == before


def test_progress_is_reported_in_the_thread_of_the_caller(target: Path) -> None:
    told: list[tuple[str, int]] = []

    def progress(phase: str, done: int, total: int) -> None:
        told.append((phase, threading.get_ident()))

    with DuckDBDatasetIO() as io:
        io.merge(rows(5, 15, 25, v="new"), str(target), "update", ["id"], progress=progress)
    assert [phase for phase, _ in told].count("match") == 2 + 3
    assert {thread for _, thread in told} == {threading.get_ident()}


def test_an_interrupted_join_leaves_no_thread_and_a_connection_that_works(target: Path) -> None:
    def progress(phase: str, done: int, total: int) -> None:
        if phase == "match" and total == 3:
            raise KeyboardInterrupt

    source = rows(5, 15, 25, v="new")
    with duckdb.connect() as connection, DuckDBDatasetIO(connection) as io:
        with pytest.raises(KeyboardInterrupt):
            io.merge(source, str(target), "update", ["id"], progress=progress)
        names = [thread.name for thread in threading.enumerate()]
        assert [name for name in names if name.startswith("fsspeckit")] == []
        assert io.merge(source, str(target), "update", ["id"]).updated == 3


def test_keys_that_duckdb_does_not_read_are_never_taken_for_absent(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No real statement stops early, so the join is replaced by one that does."""

    def stops_early(_: Any, __: Any, scanned: pa.RecordBatchReader) -> pa.Table:
        scanned.read_next_batch()
        return pa.table({"file": [0], "position": [0], "number": [0]}).slice(0, 0)

    monkeypatch.setattr("fsspeckit.datasets.duckdb.engine._join", stops_early)
    before = sorted(target.iterdir())
    with pytest.raises(RuntimeError, match="did not read all keys"):
        DuckDBDatasetIO().merge(rows(5, 15, v="new"), str(target), "upsert", ["id"])
    assert sorted(target.iterdir()) == before


class TestRelations:
    """A relation as a source."""

    def test_a_relation_of_the_same_connection(self, target: Path) -> None:
        with duckdb.connect() as connection, DuckDBDatasetIO(connection) as io:
            source = connection.sql("SELECT i AS id, 'new' AS v FROM range(25, 35) t(i)")
            result = io.merge(source, str(target), "upsert", ["id"])
        assert (result.source_count, result.updated, result.inserted) == (10, 5, 5)

    def test_a_relation_of_another_connection(self, target: Path) -> None:
        with duckdb.connect() as connection, DuckDBDatasetIO() as io:
            source = connection.sql("SELECT 5::BIGINT AS id, 'new' AS v")
            assert io.merge(source, str(target), "update", ["id"]).updated == 1

    def test_writing_a_relation(self, tmp_path: Path) -> None:
        with duckdb.connect() as connection, DuckDBDatasetIO(connection) as io:
            source = connection.sql("SELECT i AS id FROM range(10) t(i)")
            result = io.write_dataset(source, f"{tmp_path}/new", max_rows_per_file=4)
        assert [file.row_count for file in result.files] == [4, 4, 2]

    def test_a_relation_that_fails_changes_nothing(self, target: Path) -> None:
        before = sorted(target.iterdir())
        with duckdb.connect() as connection, DuckDBDatasetIO(connection) as io:
            source = connection.sql(
                "SELECT i AS id, CASE WHEN i = 99999 THEN error('broken') ELSE 'new' END AS v "
                "FROM range(100000) t(i)"
            )
            with pytest.raises(Exception, match="broken"):
                io.merge(source, str(target), "update", ["id"])
        assert sorted(target.iterdir()) == before

    @pytest.mark.slow
    def test_a_relation_is_never_in_memory_as_a_whole(self, tmp_path: Path) -> None:
        """Eight times the limit of DuckDB passes through a process that takes half of that."""
        program = f"""
import resource
import duckdb
from fsspeckit.datasets.duckdb import DuckDBDatasetIO

connection = duckdb.connect()
connection.execute("SET memory_limit = '100MB'")
connection.execute("SET enable_progress_bar = false")
source = connection.sql("SELECT i AS id, repeat('x', 2000) AS v FROM range(400_000) t(i)")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with DuckDBDatasetIO(connection) as io:
    result = io.write_dataset(source, {str(tmp_path / "new")!r}, row_group_size=20_000)
assert result.total_rows == 400_000
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        assert int(done.stdout) < 400


@pytest.mark.slow
def test_a_join_beyond_the_memory_limit_spills_and_completes(tmp_path: Path) -> None:
    keys = np.random.default_rng(7).permutation(1_000_000)
    table = pa.table({"id": [f"key-{key:032d}" for key in keys], "v": np.zeros(len(keys))})
    (tmp_path / "d").mkdir()
    pq.write_table(table, tmp_path / "d" / "d.parquet", row_group_size=100_000)
    spill = tmp_path / "spill"
    with duckdb.connect(config={"temp_directory": str(spill), "memory_limit": "60MB"}) as c:
        with DuckDBDatasetIO(c) as io:
            result = io.merge(table, str(tmp_path / "d"), "insert", ["id"])
        assert spill.exists(), "the limit is too high for this test"
    assert (result.inserted, result.target_count_after) == (0, len(keys))


def test_the_plan_says_how_much_a_merge_may_rewrite(target: Path) -> None:
    planned = plan_incremental_rewrite(str(target), [5, 99], ["id"])
    with DuckDBDatasetIO() as io:
        result = io.merge(rows(5, 99, v="new"), str(target), "upsert", ["id"])
    assert len(result.rewritten_files) == len(planned.affected_files) == 1
