"""The plugin of dbt-duckdb, in projects that dbt runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

pytest.importorskip(
    "dbt.adapters.duckdb", reason="has an environment of its own: make test-integrations"
)

from dbt.adapters.duckdb import DuckDBConnectionManager
from dbt.cli.main import dbtRunner

import fsspeckit

pytestmark = pytest.mark.filterwarnings(
    # dbt leaves its log file, and the next run closes it.
    "ignore:unclosed file:ResourceWarning",
    "ignore:Exception ignored in. <_io.FileIO:pytest.PytestUnraisableExceptionWarning",
)

EXAMPLES = Path(__file__).parents[2] / "examples" / "integrations"
PROJECT = 'name: t\nversion: "1.0"\nprofile: t\nmodel-paths: [models]\n'
PROFILE = {
    "target": "dev",
    "outputs": {
        "dev": {
            "type": "duckdb",
            "path": "warehouse.duckdb",
            "plugins": [{"module": "fsspeckit.integrations.dbt", "alias": "fsspeckit"}],
        }
    },
}
BASIC = {"unique_key": "id", "path": "lake/orders"}
ROWS = "SELECT * FROM (VALUES {}) AS t(id, day, v)"
FIRST = ROWS.format("(1, 'a', 'old'), (2, 'a', 'old'), (3, 'b', 'old')")
SECOND = ROWS.format("(3, 'b', 'new'), (4, 'b', 'new')")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DBT_SEND_ANONYMOUS_USAGE_STATS", "false")
    (tmp_path / "models").mkdir()
    (tmp_path / "dbt_project.yml").write_text(PROJECT)
    (tmp_path / "profiles.yml").write_text(json.dumps({"t": PROFILE}))  # which is YAML, too
    return tmp_path


def write_model(query: str, **config: Any) -> None:
    given = {"materialized": "external", "plugin": "fsspeckit"} | config
    arguments = ", ".join(f"{name}={value!r}" for name, value in given.items())
    Path("models", "orders.sql").write_text(f"{{{{ config({arguments}) }}}}\n{query}")


def dbt(*command: str) -> str | None:
    """Run a command, and return the message of the first model that failed."""
    try:
        done = dbtRunner().invoke(["--quiet", *command])
    finally:
        DuckDBConnectionManager.close_all_connections()
    if done.success:
        return None
    if done.exception:
        raise done.exception
    return str(next(one.message for one in done.result if one.status == "error"))


def run(query: str, *options: str, **config: Any) -> None:
    write_model(query, **config)
    assert dbt("run", *options) is None


def stored() -> list[dict[str, Any]]:
    return pq.read_table("lake/orders").sort_by("id").to_pylist()


def viewed() -> list[tuple[Any, ...]]:
    """What a model that refers to the model sees."""
    with duckdb.connect("warehouse.duckdb") as warehouse:
        return warehouse.sql("SELECT * FROM orders").fetchall()


def values() -> dict[int, str]:
    return {row["id"]: row["v"] for row in stored()}


def test_the_example_says_what_it_did(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    program = [sys.executable, str(EXAMPLES / "dbt_orders.py")]
    done = subprocess.run(program, cwd=empty, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "monday: ['placed', 'placed'], {'placed': 2}",
        "  commit 1: {'inserted': 2, 'updated': 0, 'deleted': 0}",
        "tuesday: ['placed', 'paid', 'placed'], {'paid': 1, 'placed': 2}",
        "  commit 2: {'inserted': 1, 'updated': 1, 'deleted': 0}",
        "again: ['placed', 'paid', 'placed'], {'paid': 1, 'placed': 2}",
        "  commit 2: {'inserted': 1, 'updated': 1, 'deleted': 0}",
    ], done.stderr


def test_a_second_run_rewrites_what_changed() -> None:
    run(FIRST, **BASIC, partition_by="day")
    before = set(Path("lake/orders").rglob("*.parquet"))
    run(SECOND, **BASIC, partition_by="day")
    assert values() == {1: "old", 2: "old", 3: "new", 4: "new"}
    after = set(Path("lake/orders").rglob("*.parquet"))
    assert {path.parent.name for path in before & after} == {"day=a"}
    assert not Path("orders.parquet").exists()


def test_the_view_reads_the_dataset() -> None:
    for query in (FIRST, SECOND):
        run(query, **BASIC)
    assert len(viewed()) == 4


def test_a_retry_after_the_merge_changes_nothing() -> None:
    """The hook runs after the plugin, and fails while a file is there."""
    run(FIRST, **BASIC)
    stop = "SELECT CASE WHEN (SELECT count(*) FROM glob('stop')) > 0 THEN error('stopped') END"
    write_model(SECOND, **BASIC, post_hook=[{"sql": stop, "transaction": False}])
    Path("stop").touch()
    assert "stopped" in str(dbt("run"))
    assert values() == {1: "old", 2: "old", 3: "new", 4: "new"}
    Path("stop").unlink()
    assert dbt("retry") is None
    assert len(stored()) == 4
    assert len(fsspeckit.history("lake/orders")) == 2


def test_a_retry_after_a_failure_before_the_merge_merges() -> None:
    run(FIRST, **BASIC)
    Path("lake/orders/_delta_log").mkdir()
    write_model(SECOND, **BASIC)
    assert "Delta" in str(dbt("run"))
    Path("lake/orders/_delta_log").rmdir()
    assert dbt("retry") is None
    assert values() == {1: "old", 2: "old", 3: "new", 4: "new"}


def test_a_run_without_rows_changes_nothing() -> None:
    """dbt-duckdb writes a row of NULLs for it, which is not a row of the model."""
    nothing = f"SELECT * FROM ({FIRST}) WHERE id > 9"
    run(nothing, **BASIC)
    assert viewed() == []
    run(FIRST, **BASIC)
    run(nothing, **BASIC)
    assert len(stored()) == len(viewed()) == 3
    run(nothing, **BASIC, mode="overwrite")
    assert stored() == []


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("insert", {1: "old", 2: "old", 3: "old", 4: "new"}),
        ("update", {1: "old", 2: "old", 3: "new"}),
        ("full_merge", {3: "new", 4: "new"}),
        ("overwrite", {3: "new", 4: "new"}),
    ],
)
def test_modes(mode: str, expected: dict[int, str]) -> None:
    run(FIRST, **BASIC)
    run(SECOND, **BASIC, mode=mode)
    assert values() == expected


def test_a_full_refresh_replaces_all_rows() -> None:
    run(FIRST, **BASIC)
    run(SECOND, "--full-refresh", **BASIC)
    assert values() == {3: "new", 4: "new"}
    run(FIRST, "--full-refresh", **BASIC, full_refresh=False)
    assert len(stored()) == 4


def test_a_new_column_is_added_if_the_model_says_so() -> None:
    run(FIRST, **BASIC)
    wider = f"SELECT *, 5 AS more FROM ({SECOND})"
    write_model(wider, **BASIC)
    assert "'more'" in str(dbt("run"))
    run(wider, **BASIC, on_schema_change="append_new_columns")
    assert [row["more"] for row in stored()] == [None, None, 5, 5]


def test_a_key_of_two_columns_and_options_of_a_merge() -> None:
    config = BASIC | {"unique_key": ["day", "id"]}
    run(FIRST, **config)
    run(ROWS.format("(3, 'c', 'new'), (3, 'b', 'gone')"), **config)
    assert len(stored()) == 4
    marked = f"SELECT *, true AS gone FROM ({FIRST}) WHERE id = 1"
    run(marked, **config, merge_options={"delete_when": "gone"})
    assert [row["id"] for row in stored()] == [2, 3, 3]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"unique_key": "id"}, "path must be the directory or URL of a dataset, got None"),
        ({"path": "lake/orders"}, "mode 'upsert' needs a unique_key"),
        (BASIC | {"mode": "append"}, "mode must be one of"),
        (BASIC | {"format": "csv"}, "format must be"),
        (BASIC | {"options": {"partition_by": "day"}}, "location must be one file"),
        (BASIC | {"on_schema_change": "sync_all_columns"}, "on_schema_change must be one of"),
        (BASIC | {"unique_key": "day"}, "occur more than once"),
        (BASIC | {"unique_key": "nothing"}, "'nothing'"),
        (BASIC | {"merge_options": {"only_newer": "nothing"}}, "'nothing'"),
        (BASIC | {"merge_options": {"newest": "day"}}, "unexpected keyword argument 'newest'"),
        (
            BASIC | {"mode": "overwrite", "merge_options": {"only_newer": "day"}},
            "merge_options of the mode 'overwrite' must be one of 'compression'",
        ),
    ],
    ids=[
        *("path", "key", "mode", "format", "location", "schema", "duplicates", "column", "option"),
        *("unknown option", "option of another mode"),
    ],
)
def test_a_wrong_config_is_refused(config: dict[str, Any], message: str) -> None:
    write_model(FIRST, **config)
    assert message in str(dbt("run"))
    assert not list(Path("lake").rglob("*.parquet"))


def described() -> dict[str, str]:
    """The columns of the model's view, and their types."""
    with duckdb.connect("warehouse.duckdb") as warehouse:
        return {name: kind for name, kind, *_ in warehouse.sql("DESCRIBE orders").fetchall()}


def test_partition_columns_have_the_types_of_the_model() -> None:
    """In the view, too: DuckDB would make a date of the text, and a BIGINT of the INTEGER."""
    typed = (
        "SELECT 1 AS id, '2026-03-02' AS day, 7 AS shop, DATE '2026-03-02' AS due, "
        "TIMESTAMPTZ '2026-03-02 10:00:00+00' AS at, 'old' AS v"
    )
    columns = ["day", "shop", "due", "at"]
    for query, *options in ((typed,), (typed.replace("old", "new"),), (typed, "--full-refresh")):
        run(query, *options, **BASIC, partition_by=columns)
        assert {name: described()[name] for name in columns} == {
            "day": "VARCHAR",
            "shop": "INTEGER",
            "due": "DATE",
            "at": "TIMESTAMP WITH TIME ZONE",
        }
    assert values() == {1: "old"}


def test_a_directory_above_the_dataset_is_not_a_column() -> None:
    config = {"unique_key": "id", "path": "lake/env=test/orders"}
    run(FIRST, **config)
    assert list(described()) == ["id", "day", "v"]


@pytest.mark.parametrize("name", ["it's", "[new] orders", "what?*"])
def test_a_path_is_not_a_pattern(name: str) -> None:
    Path("lake").mkdir()
    config = {"unique_key": "id", "path": f"lake/{name}"}
    for query in (FIRST, SECOND):
        run(query, **config)
    assert len(viewed()) == 4


def test_a_merge_that_fails_leaves_the_view_on_the_dataset() -> None:
    """dbt-duckdb lets it read the rows of this run before the plugin is called."""
    run(FIRST, **BASIC)
    write_model(f"{SECOND} UNION ALL {SECOND}", **BASIC)
    assert "occur more than once" in str(dbt("run"))
    assert len(viewed()) == len(stored()) == 3


def test_a_full_refresh_stores_what_a_first_run_would() -> None:
    options = {"delete_when": "gone", "duplicate_keys": "last", "compression": "zstd"}
    config = BASIC | {"merge_options": options, "partition_by": "day"}
    rows = "SELECT *, v = 'gone' AS gone FROM ({})".format(
        ROWS.format("(1, 'a', 'old'), (1, 'a', 'new'), (2, 'a', 'gone')")
    )
    for option in ((), ("--full-refresh",)):
        run(rows, *option, **config)
        assert values() == {1: "new"}
        assert "gone" not in pq.read_table("lake/orders").column_names
        (file,) = Path("lake/orders").rglob("*.parquet")
        assert pq.read_metadata(file).row_group(0).column(0).compression == "ZSTD"
    nothing = f"SELECT * FROM ({rows}) WHERE gone"
    run(nothing, "--full-refresh", **config)
    assert viewed() == []
    assert "gone" not in described()
    write_model(f"{SECOND} UNION ALL {SECOND}", **BASIC)
    assert "occur more than once" in str(dbt("run", "--full-refresh"))
    assert not list(Path().glob(".fsspeckit-*"))
