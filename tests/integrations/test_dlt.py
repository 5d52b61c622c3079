"""The destination of dlt. Where rows are compared, dlt's own merge in DuckDB says what is right."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dlt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dlt.common.configuration.exceptions import ConfigurationException
from dlt.common.schema.exceptions import SchemaException
from dlt.load import Load
from dlt.pipeline.exceptions import PipelineStepFailed

import fsspeckit
from fsspeckit.integrations.dlt import LoadTables, TableLoad, plain_parquet
from fsspeckit.testing.object_stores import KEY, REGION, SECRET, moto

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

IDS = ("_dlt_id", "_dlt_parent_id", "_dlt_root_id", "_dlt_load_id")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep what dlt writes for itself, and what it remembers of a pipeline, inside of the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DLT_DATA_DIR", f"{tmp_path}/dlt")
    monkeypatch.setenv("RUNTIME__DLTHUB_TELEMETRY", "false")
    monkeypatch.setenv("RUNTIME__LOG_LEVEL", "CRITICAL")
    original = Load.__init__

    def without_waiting(self: Load, *args: Any, **kwargs: Any) -> None:
        """dlt looks once a second whether jobs have ended."""
        original(self, *args, **kwargs)
        self._run_loop_sleep_duration = 0.01

    monkeypatch.setattr(Load, "__init__", without_waiting)
    yield
    dlt.pipeline("left").deactivate()


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def shop(lake: Path) -> dlt.Pipeline:
    return dlt.pipeline("shop", destination=plain_parquet(str(lake)), dataset_name="shop")


def stored(lake: Path, table: str) -> list[dict[str, Any]]:
    """The rows of a table as any reader sees them, without the ids that differ in every run."""
    rows = pq.read_table(lake / "shop" / table).to_pylist()
    return ordered([{k: v for k, v in row.items() if k not in IDS} for row in rows])


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: sorted((k, str(v)) for k, v in row.items()))


def rows_of_dlt(pipeline: dlt.Pipeline, table: str) -> list[dict[str, Any]]:
    """The rows of a table in DuckDB, with the same columns."""
    with pipeline.sql_client() as client, client.execute_query(f"SELECT * FROM {table}") as cursor:
        names = [column[0] for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    return ordered([{k: v for k, v in row.items() if k not in IDS} for row in rows])


FIRST = [
    {
        "id": 1,
        "day": "a",
        "v": "one",
        "at": 1,
        "items": [{"sku": "x"}, {"sku": "y", "tags": ["t"]}],
    },
    {"id": 2, "day": "a", "v": "two", "at": 1, "items": [{"sku": "z"}]},
    {"id": 3, "day": "b", "v": "three", "at": 1, "items": []},
    {"id": 4, "day": "c", "v": "four", "at": 1, "items": [{"sku": "w"}]},
]
SECOND = [
    {
        "id": 2,
        "day": "a",
        "v": "TWO",
        "at": 2,
        "items": [{"sku": "z2"}, {"sku": "z3", "tags": ["n"]}],
    },
    {"id": 3, "day": "b", "v": "THREE", "at": 2, "items": [{"sku": "q"}]},
    {"id": 5, "day": "b", "v": "five", "at": 2, "items": []},
]
TWICE = [
    {"id": 2, "day": "a", "v": "newest", "at": 9, "items": [{"sku": "kept"}]},
    {"id": 2, "day": "a", "v": "older", "at": 5, "items": [{"sku": "left out"}]},
    {"id": 7, "day": "d", "v": "seven", "at": 1, "items": []},
]
GONE = [
    {"id": 1, "day": "a", "v": "gone", "at": 3, "deleted": True, "items": [{"sku": "never"}]},
    {"id": 2, "day": "a", "v": "stays", "at": 3, "deleted": False, "items": [{"sku": "s"}]},
    {"id": 8, "day": "a", "v": "never there", "at": 3, "deleted": True, "items": []},
]

TYPED: list[dict[str, Any]] = [
    {
        "id": n,
        "on": dt.datetime(2026, 3, n, tzinfo=dt.UTC),
        "amount": Decimal(f"{n}.50"),
        "items": [{"n": n, "tags": ["t"]}],
    }
    for n in (1, 2, 3)
]

UPSERT = {"disposition": "merge", "strategy": "upsert"}
INSERT_ONLY = {"disposition": "merge", "strategy": "insert-only"}


@pytest.mark.parametrize(
    ("hints", "loads"),
    [
        ({"write_disposition": "append"}, [FIRST, SECOND]),
        ({"write_disposition": "replace"}, [FIRST, SECOND]),
        ({"write_disposition": "merge"}, [FIRST, SECOND]),
        ({"write_disposition": "merge", "primary_key": "id"}, [FIRST, SECOND]),
        ({"write_disposition": "merge", "primary_key": ["id", "day"]}, [FIRST, SECOND]),
        ({"write_disposition": "merge", "merge_key": "day"}, [FIRST, SECOND]),
        ({"write_disposition": "merge", "merge_key": ["day", "at"]}, [FIRST, SECOND, SECOND]),
        ({"write_disposition": "merge", "merge_key": "on"}, [TYPED[:2], TYPED[1:]]),
        ({"write_disposition": "merge", "primary_key": "id", "merge_key": "day"}, [FIRST, SECOND]),
        ({"write_disposition": UPSERT, "primary_key": "id"}, [FIRST, SECOND, FIRST]),
        ({"write_disposition": INSERT_ONLY, "primary_key": "id"}, [FIRST, SECOND]),
        (
            {
                "write_disposition": "merge",
                "primary_key": "id",
                "columns": {"at": {"dedup_sort": "desc"}},
            },
            [FIRST, TWICE],
        ),
        (
            {
                "write_disposition": "merge",
                "primary_key": "id",
                "columns": {"at": {"dedup_sort": "asc"}},
            },
            [FIRST, TWICE],
        ),
        (
            {
                "write_disposition": "merge",
                "primary_key": "id",
                "columns": {"deleted": {"hard_delete": True, "data_type": "bool"}},
            },
            [FIRST, GONE],
        ),
        (
            {
                "write_disposition": UPSERT,
                "primary_key": "id",
                "columns": {"deleted": {"hard_delete": True, "data_type": "bool"}},
            },
            [FIRST, GONE[:2]],
        ),
    ],
    ids=[
        *("append", "replace", "no key", "primary key", "two columns", "merge key"),
        *(
            "two merge keys",
            "typed merge key",
            "both keys",
            "upsert",
            "insert-only",
            "newest",
            "oldest",
        ),
        *("hard delete", "upsert and hard delete"),
    ],
)
def test_rows_are_those_of_dlt(
    hints: dict[str, Any], loads: list[Any], lake: Path, shop: dlt.Pipeline, tmp_path: Path
) -> None:
    reference = dlt.pipeline(
        "reference", destination=dlt.destinations.duckdb(f"{tmp_path}/r.db"), dataset_name="shop"
    )
    for rows in loads:
        for pipeline in (reference, shop):
            resource = dlt.resource(rows, name="orders", **hints)
            pipeline.run(resource)
    for table in ("orders", "orders__items", "orders__items__tags"):
        assert stored(lake, table) == rows_of_dlt(reference, table), table
        assert fsspeckit.verify(f"{lake}/shop/{table}", engine="pyarrow").ok


def test_the_example_says_what_it_did() -> None:
    example = Path(__file__).parents[2] / "examples" / "integrations" / "dlt_orders.py"
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True)
    names = ["deleted", "id", "status", "_dlt_load_id", "_dlt_id"]
    assert done.stdout.splitlines() == [
        "orders [{'id': 1, 'status': 'placed'}, {'id': 2, 'status': 'placed'}]",
        f"  items ['ink', 'paper', 'pen'], columns {names}",
        "orders [{'id': 1, 'status': 'paid'}, {'id': 3, 'status': 'placed'}]",
        f"  items ['pen'], columns {names}",
        "orders [{'id': 1, 'status': 'paid'}, {'id': 3, 'status': 'paid'}]",
        f"  items ['pen'], columns {[*names, 'coupon']}",
        "commit 1: 2 inserted, 0 updated, 0 deleted",
        "commit 2: 1 inserted, 1 updated, 1 deleted",
        "commit 3: 0 inserted, 1 updated, 0 deleted",
    ], done.stderr


def orders(rows: list[dict[str, Any]], **hints: Any) -> Any:
    given = {"write_disposition": "merge", "primary_key": "id"} | hints
    return dlt.resource(rows, name="orders", **given)


def test_each_load_is_one_commit_of_its_load_id(lake: Path, shop: dlt.Pipeline) -> None:
    for rows in (FIRST, SECOND):
        shop.run(orders(rows))
    (first, second) = fsspeckit.history(f"{lake}/shop/orders")
    assert first.transaction is not None
    assert second.transaction is not None
    assert first.transaction.application == "dlt:shop:shop"
    assert first.transaction.version < second.transaction.version
    assert second.transaction.run == shop.last_trace.last_load_info.loads_ids[0]


def test_only_files_with_changes_are_rewritten(lake: Path, shop: dlt.Pipeline) -> None:
    for start in (0, 100):
        shop.run(orders([{"id": start + n, "v": "old"} for n in range(100)]))
    before = set((lake / "shop" / "orders").iterdir())
    shop.run(orders([{"id": 7, "v": "new"}]))
    assert len(before) == 2
    assert len(before & set((lake / "shop" / "orders").iterdir())) == 1


@pytest.mark.parametrize("disposition", ["append", "replace", "merge"])
def test_a_load_that_is_tried_again_is_applied_once(
    disposition: str, lake: Path, shop: dlt.Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job fails after the commit, as if the answer of the store had been lost."""
    tries: list[LoadTables] = []

    def load(job: Any) -> None:
        original(job)
        tries.append(job)
        if len(tries) == 1:
            raise ConnectionError("lost after the commit")

    shop.run(orders(FIRST, write_disposition="append"))
    original = LoadTables.run
    monkeypatch.setattr(LoadTables, "run", load)
    shop.run(orders(SECOND, write_disposition=disposition))
    assert len(tries) == 2
    assert len(stored(lake, "orders")) == {"append": 7, "replace": 3, "merge": 5}[disposition]
    assert len(fsspeckit.history(f"{lake}/shop/orders")) == 2


KILLED = """
import os, sys, dlt
from fsspeckit.integrations.dlt import TableLoad, plain_parquet

rows, disposition, table = eval(sys.argv[1]), sys.argv[2], sys.argv[3]

def dying_after(method):
    def call(load, *args):
        method(load, *args)
        if load.name == table:
            os._exit(9)
    return call

for name in ("write", "merge", "execute"):
    setattr(TableLoad, name, dying_after(getattr(TableLoad, name)))
pipeline = dlt.pipeline("shop", destination=plain_parquet("lake"), dataset_name="shop")
pipeline.run(rows, table_name="orders", write_disposition=disposition, primary_key="id")
"""


@pytest.mark.parametrize("disposition", ["append", "merge"])
@pytest.mark.parametrize("table", ["orders__items", "orders"])
def test_a_load_that_is_killed_after_a_commit_goes_on(
    table: str, disposition: str, lake: Path, shop: dlt.Pipeline, tmp_path: Path
) -> None:
    """Nested tables need the old rows of their table, also if they were committed already."""
    other = plain_parquet(f"{tmp_path}/undisturbed")
    expected = dlt.pipeline("undisturbed", destination=other, dataset_name="shop")
    for pipeline in (expected, shop):
        pipeline.run(orders(FIRST))
    expected.run(orders(SECOND, write_disposition=disposition))
    program = [sys.executable, "-c", KILLED, repr(SECOND), disposition, table]
    assert subprocess.run(program, capture_output=True).returncode == 9
    shop.activate()
    shop.load()
    for name in ("orders", "orders__items", "orders__items__tags"):
        assert stored(lake, name) == stored(tmp_path / "undisturbed", name)
        assert len(fsspeckit.history(f"{lake}/shop/{name}")) == 2


def test_a_package_that_comes_too_late_is_refused(
    lake: Path, shop: dlt.Pipeline, tmp_path: Path
) -> None:
    """Two machines with one pipeline: what is older than the last commit must not replace it."""
    shop.extract(orders([{"id": 1, "v": "older"}]))
    shop.normalize()
    newer = dlt.pipeline(
        "shop",
        destination=plain_parquet(str(lake)),
        dataset_name="shop",
        pipelines_dir=f"{tmp_path}/elsewhere",
    )
    newer.run(orders([{"id": 1, "v": "newer"}]))
    shop.activate()
    with pytest.raises(PipelineStepFailed, match="dlt:shop:shop"):
        shop.load()
    assert stored(lake, "orders") == [{"id": 1, "v": "newer"}]


@pytest.mark.parametrize("strategy", ["delete-insert", "upsert"])
@pytest.mark.parametrize("disposition", ["append", "replace"])
def test_nested_rows_that_were_not_merged_are_found(
    disposition: str, strategy: str, lake: Path, shop: dlt.Pipeline, tmp_path: Path
) -> None:
    """They do not know the row of the table that they belong to, only the one they are nested in.

    dlt's own merge in DuckDB refuses such a change of the disposition.
    """
    merge = {"write_disposition": {"disposition": "merge", "strategy": strategy}}
    other = plain_parquet(f"{tmp_path}/merged")
    expected = dlt.pipeline("merged", destination=other, dataset_name="shop")
    for pipeline, first in ((expected, merge), (shop, {"write_disposition": disposition})):
        pipeline.run(orders(FIRST, **first))
        for rows in (SECOND, [FIRST[0] | {"items": [{"sku": "only"}]}, FIRST[3] | {"items": []}]):
            pipeline.run(orders(rows, **merge))
    for table in ("orders", "orders__items", "orders__items__tags"):
        assert stored(lake, table) == stored(tmp_path / "merged", table), table


def appended_twice(pipeline: dlt.Pipeline) -> None:
    for rows in ([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}], [{"id": 1, "v": "c"}]):
        pipeline.run(orders(rows, write_disposition="append"))


@pytest.mark.parametrize("strategy", ["delete-insert", "upsert", "insert-only"])
def test_a_key_that_was_appended_twice(
    strategy: str, lake: Path, shop: dlt.Pipeline, tmp_path: Path
) -> None:
    reference = dlt.pipeline(
        "reference", destination=dlt.destinations.duckdb(f"{tmp_path}/r.db"), dataset_name="shop"
    )
    for pipeline in (reference, shop):
        appended_twice(pipeline)
        merge = {"disposition": "merge", "strategy": strategy}
        pipeline.run(orders([{"id": 1, "v": "new"}], write_disposition=merge))
    assert stored(lake, "orders") == rows_of_dlt(reference, "orders")
    assert len(stored(lake, "orders")) == {"delete-insert": 2}.get(strategy, 3)


def test_a_key_that_was_appended_twice_and_a_load_that_ends_after_its_merge(
    lake: Path, shop: dlt.Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    appended_twice(shop)
    original, calls = TableLoad._collapse_duplicates, []

    def collapse(load: TableLoad, done: Any) -> None:
        calls.append(done)
        if len(calls) == 1:
            raise ConnectionError("lost after the merge")
        original(load, done)

    monkeypatch.setattr(TableLoad, "_collapse_duplicates", collapse)
    shop.run(orders([{"id": 1, "v": "new"}]))
    assert [done.metrics["commit"]["skipped"] for done in calls] == [False, True]
    assert stored(lake, "orders") == [{"id": 1, "v": "new"}, {"id": 2, "v": "b"}]


def test_rows_without_ids_are_not_collapsed(
    lake: Path, shop: dlt.Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal rows may be meant; what is not in the package stays as it is."""
    warnings: list[str] = []
    monkeypatch.setattr("fsspeckit.integrations.dlt.logger.warning", warnings.append)
    shop.run(orders(pa.table({"id": [1, 1, 2, 2], "v": list("abcc")}), write_disposition="append"))
    shop.run(orders(pa.table({"id": [1], "v": ["new"]})))
    assert [row["v"] for row in stored(lake, "orders")] == ["new", "new", "c", "c"]
    assert sum("several rows with one `primary_key`" in text for text in warnings) == 1


def test_a_new_column_is_added_to_every_file(lake: Path, shop: dlt.Pipeline) -> None:
    shop.run(orders([{"id": 1}, {"id": 2}]))
    shop.run(orders([{"id": 3, "note": "new"}]))
    shop.run(orders([{"id": 2, "more": 1.5}]))
    assert stored(lake, "orders") == ordered(
        [
            {"id": 1, "note": None, "more": None},
            {"id": 2, "note": None, "more": 1.5},
            {"id": 3, "note": "new", "more": None},
        ]
    )
    for file in (lake / "shop" / "orders").glob("*.parquet"):
        assert {"note", "more"} <= set(pq.read_schema(file).names)


def test_a_column_that_begins_in_the_second_file_of_a_load(
    lake: Path, shop: dlt.Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NORMALIZE__DATA_WRITER__FILE_MAX_ITEMS", "10")
    monkeypatch.setenv("NORMALIZE__DATA_WRITER__BUFFER_MAX_ITEMS", "10")
    rows = [{"id": n} | ({"late": n} if n >= 15 else {}) for n in range(30)]
    files: list[int] = []
    original = TableLoad.__init__

    def count(self: TableLoad, client: Any, table: Any, paths: list[str], batch: Any) -> None:
        files.append(len(paths))
        original(self, client, table, paths, batch)

    monkeypatch.setattr(TableLoad, "__init__", count)
    shop.run(orders(rows))
    assert files[0] > 1
    assert [row["late"] for row in sorted(stored(lake, "orders"), key=lambda r: r["id"])] == [
        None if n < 15 else n for n in range(30)
    ]


def test_arrow_tables_are_merged(lake: Path, shop: dlt.Pipeline) -> None:
    shop.run(orders(pa.table({"id": [1, 2], "v": ["a", "b"], "w": [1, 2]})))
    shop.run(orders(pa.table({"id": [2, 3], "v": ["B", "C"]})))
    assert stored(lake, "orders") == [
        {"id": 1, "v": "a", "w": 1},
        {"id": 2, "v": "B", "w": None},
        {"id": 3, "v": "C", "w": None},
    ]


def test_a_partition_hint_makes_directories(lake: Path, shop: dlt.Pipeline) -> None:
    hints = {"columns": {"day": {"partition": True}}}
    shop.run(orders([{"id": 1, "day": "a"}, {"id": 2, "day": "b"}], **hints))
    shop.run(orders([{"id": 1, "day": "b"}], **hints))
    assert {path.name for path in (lake / "shop" / "orders").iterdir()} >= {"day=b"}
    assert [(row["id"], row["day"]) for row in stored(lake, "orders")] == [(1, "b"), (2, "b")]


def test_duckdb_merges_if_asked_for(lake: Path) -> None:
    destination = plain_parquet(str(lake), engine="duckdb")
    pipeline = dlt.pipeline("shop", destination=destination, dataset_name="shop")
    for rows in (FIRST, SECOND):
        pipeline.run(orders(rows))
    assert fsspeckit.history(f"{lake}/shop/orders")[-1].engine == "duckdb"
    assert len(stored(lake, "orders")) == 5


def test_a_bucket_is_reached_with_the_credentials_of_dlt() -> None:
    bucket = moto().make_bucket()
    credentials = {
        "aws_access_key_id": KEY,
        "aws_secret_access_key": SECRET,
        "region_name": REGION,
        "endpoint_url": moto().url,
    }
    destination = plain_parquet(f"s3://{bucket}/lake", credentials=credentials)
    pipeline = dlt.pipeline("shop", destination=destination, dataset_name="shop")
    for rows in (FIRST, SECOND):
        pipeline.run(orders(rows))
    path = f"s3://{bucket}/lake/shop/orders"
    options = {"key": KEY, "secret": SECRET, "endpoint_url": moto().url}
    rows = fsspeckit.read_dataset(path, engine="pyarrow", storage_options=options)
    assert sorted(rows["v"].to_pylist()) == ["THREE", "TWO", "five", "four", "one"]


def test_dlt_reads_the_tables(shop: dlt.Pipeline) -> None:
    for rows in (FIRST, SECOND):
        shop.run(orders(rows))
    assert [row["v"] for row in rows_of_dlt(shop, "orders")].count("TWO") == 1


def test_data_is_dropped_if_asked_for(lake: Path, shop: dlt.Pipeline) -> None:
    shop.run(orders(FIRST))
    shop.run([orders([{"id": 9}])], refresh="drop_data")
    assert [row["id"] for row in stored(lake, "orders")] == [9]
    shop.run([orders([{"id": 10}])], refresh="drop_resources")
    assert [row["id"] for row in stored(lake, "orders")] == [10]


def test_a_replaced_table_without_rows_is_emptied(lake: Path, shop: dlt.Pipeline) -> None:
    hints = {"write_disposition": "replace"}
    shop.run(orders(FIRST, **hints))
    shop.run(orders([{"id": 9, "items": []}], **hints))
    assert [row["id"] for row in stored(lake, "orders")] == [9]
    assert stored(lake, "orders__items") == []


def refused(load: Callable[[], Any]) -> str:
    with pytest.raises((PipelineStepFailed, ConfigurationException, SchemaException)) as caught:
        load()
    return str(caught.value)


def test_a_key_that_occurs_twice_in_an_upsert_is_refused(lake: Path, shop: dlt.Pipeline) -> None:
    shop.run(orders(FIRST))
    message = refused(lambda: shop.run(orders(TWICE, write_disposition=UPSERT)))
    assert "table `orders`: " in message
    assert "Hint: in dlt this is the hint `dedup_sort` of a column" in message
    for table in ("orders", "orders__items"):
        assert len(fsspeckit.history(f"{lake}/shop/{table}")) == 1


@pytest.mark.parametrize(
    ("disposition", "message"),
    [
        ({"disposition": "merge", "strategy": "scd2"}, "`scd2` merge strategy not supported"),
        (UPSERT | {"source_filter": "id > 1"}, "does not support `source_filter`"),
        (UPSERT | {"skip_unchanged_rows": True}, "does not support `skip_unchanged_rows`"),
    ],
    ids=["scd2", "source filter", "unchanged rows"],
)
def test_what_is_not_supported_is_refused(
    disposition: Any, message: str, lake: Path, shop: dlt.Pipeline
) -> None:
    assert message in refused(lambda: shop.run(orders(FIRST, write_disposition=disposition)))
    assert not list(lake.glob("shop/orders/*.parquet"))


def test_arrow_rows_with_nothing_but_a_merge_key_are_refused(shop: dlt.Pipeline) -> None:
    rows = dlt.resource(
        pa.table({"day": ["a"]}), name="days", write_disposition="merge", merge_key="day"
    )
    assert "`merge_key`, but neither a `primary_key`" in refused(lambda: shop.run(rows))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"engine": "spark"}, "engine must be 'pyarrow' or 'duckdb', got 'spark'"),
        ({"layout": "{table_name}.{load_id}.{file_id}.{ext}"}, "directory of its own"),
    ],
    ids=["engine", "layout"],
)
def test_a_wrong_configuration_is_refused(arguments: Any, message: str, lake: Path) -> None:
    destination = plain_parquet(str(lake), **arguments)
    pipeline = dlt.pipeline("shop", destination=destination, dataset_name="shop")
    assert message in refused(lambda: pipeline.run(orders(FIRST)))
