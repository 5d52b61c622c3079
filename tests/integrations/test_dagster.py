"""The IO manager of Dagster and the transaction of a run, in runs of real assets."""

# Dagster reads the annotations of assets, so they must be more than text.
# ruff: noqa: I002

import datetime as dt
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

dg = pytest.importorskip("dagster", reason="has an environment of its own: make test-integrations")

import fsspeckit  # noqa: E402
from fsspeckit.integrations.dagster import PlainParquetIOManager, run_transaction  # noqa: E402

EXAMPLES = Path(__file__).parents[2] / "examples" / "integrations"
FIRST = pa.table({"id": [1, 2], "v": ["old", "old"]})
SECOND = pa.table({"id": [2, 3], "v": ["new", "new"]})


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)


def materialize(rows: Any, manager: Any = None, **asset: Any) -> Any:
    """Materialize an asset that returns these rows, or calls them."""

    @dg.asset(name="orders", **asset)
    def orders(context) -> Any:  # type: ignore[no-untyped-def]
        return rows(context) if callable(rows) else rows

    resources = {"io_manager": manager or PlainParquetIOManager(base_path="lake")}
    return dg.materialize([orders], resources=resources, raise_on_error=False)


def stored() -> dict[int, str]:
    rows = fsspeckit.read_dataset("lake/orders", engine="pyarrow").to_pylist()
    found = {row["id"]: row["v"] for row in rows}
    assert len(found) == len(rows)
    return found


def message_of(result: Any) -> str:
    (failure,) = result.get_step_failure_events()
    return str(failure.event_specific_data.error.to_string())


def test_the_example_says_what_it_did() -> None:
    program = [sys.executable, str(EXAMPLES / "dagster_orders.py")]
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        *("try 1, skipped: False", "try 2, skipped: True"),
        "2026-03-02: 2 orders, 30 in total",
        *("try 1, skipped: False", "try 2, skipped: True"),
        "2026-03-03: 2 orders, 55 in total",
        "lake/raw_orders: [1, 2, 2, 3]",
        "  commit 1: {'inserted': 2}",
        "  commit 2: {'inserted': 2}",
        "lake/orders: [1, 2, 3]",
        "  commit 1: {'inserted': 2, 'updated': 0, 'deleted': 0}",
        "  commit 2: {'inserted': 1, 'updated': 1, 'deleted': 0}",
    ], done.stderr


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"key": "id"}, {1: "old", 2: "new", 3: "new"}),
        ({"key": ["id"], "mode": "insert"}, {1: "old", 2: "old", 3: "new"}),
        ({"key": "id", "mode": "update"}, {1: "old", 2: "new"}),
        ({"key": "id", "mode": "full_merge"}, {2: "new", 3: "new"}),
        ({}, {2: "new", 3: "new"}),
    ],
    ids=["upsert", "insert", "update", "full merge", "no key"],
)
def test_modes(metadata: dict[str, Any], expected: dict[int, str]) -> None:
    assert materialize(FIRST).success
    assert materialize(SECOND, metadata=metadata).success
    assert stored() == expected


def test_what_an_asset_returns_may_be_a_stream() -> None:
    assert materialize(lambda _: FIRST.to_reader(max_chunksize=1), metadata={"key": "id"}).success
    engine = PlainParquetIOManager(base_path="lake", engine="duckdb")
    assert materialize(SECOND.to_pandas(), engine, metadata={"key": "id"}).success
    assert stored() == {1: "old", 2: "new", 3: "new"}
    assert fsspeckit.history("lake/orders")[-1].engine == "duckdb"


def test_an_asset_without_rows_changes_nothing() -> None:
    assert materialize(FIRST).success
    assert materialize(None).success
    assert len(fsspeckit.history("lake/orders")) == 1


class FailingOnce(PlainParquetIOManager):
    """Fails after the commit of the first try, as if the answer of a store had been lost."""

    def handle_output(self, context: Any, obj: Any) -> None:
        super().handle_output(context, obj)
        if context.step_context.previous_attempt_count == 0:
            raise ConnectionError("lost after the commit")


def test_a_step_that_fails_after_its_commit_is_retried() -> None:
    policy = dg.RetryPolicy(max_retries=1)
    failing = FailingOnce(base_path="lake")
    append = {"mode": "append"}
    result = materialize(FIRST, failing, retry_policy=policy, metadata=append)
    assert result.success
    assert len(result.get_step_failure_events()) == 0
    assert stored() == {1: "old", 2: "old"}
    (entry,) = fsspeckit.history("lake/orders")
    assert entry.transaction is not None
    assert entry.transaction.run == result.run_id


def test_a_new_run_is_a_new_transaction() -> None:
    for rows in (FIRST, SECOND.slice(1)):
        assert materialize(rows, metadata={"mode": "append"}).success
    assert stored() == {1: "old", 2: "old", 3: "new"}


def resumable() -> Any:
    """A job that fails after its commit, unless a file is there."""

    @dg.op
    def append(context) -> None:  # type: ignore[no-untyped-def]
        for name in (None, "again"):
            fsspeckit.write_dataset(
                FIRST, "lake/raw", transaction=run_transaction(context, name), engine="pyarrow"
            )
        if not Path("go_on").exists():
            raise ConnectionError("lost after the commit")

    @dg.job
    def load() -> None:
        append()

    return load


def test_a_run_that_goes_on_from_a_failure_is_the_same_run(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    with dg.DagsterInstance.local_temp(f"{tmp_path}/home") as instance:
        job = dg.reconstructable(resumable)
        with dg.execute_job(job, instance) as failed:
            assert not failed.success
        Path("go_on").touch()
        options = dg.ReexecutionOptions.from_failure(failed.run_id, instance)
        tags = {"dagster/is_resume_retry": "true"}  # set by the user interface, and by run retries
        with dg.execute_job(job, instance, reexecution_options=options, tags=tags) as resumed:
            assert resumed.success
    entries = fsspeckit.history("lake/raw")
    assert [entry.transaction.application for entry in entries if entry.transaction] == [
        "dagster:load.append",
        "dagster:load.append:again",
    ]


DAYS = dg.StaticPartitionsDefinition(["a", "b"])


@dg.asset(partitions_def=DAYS, metadata={"key": "id", "partition_expr": "v", "partition_by": "v"})
def days(context) -> pa.Table:  # type: ignore[no-untyped-def]
    number = DAYS.get_partition_keys().index(context.partition_key)
    return pa.table({"id": [number], "v": [context.partition_key]})


@dg.asset(partitions_def=DAYS)
def loaded(days: pa.Table) -> None:
    assert days.num_rows == 1


@dg.asset
def loaded_whole(days: pa.Table) -> None:
    assert days.num_rows == 2


def test_partitions_are_stored_and_loaded() -> None:
    resources = {"io_manager": PlainParquetIOManager(base_path="lake")}
    for key in ("b", "a"):  # each counts for itself
        assert dg.materialize([days, loaded], resources=resources, partition_key=key).success
    whole = dg.materialize([days, loaded_whole], selection=[loaded_whole], resources=resources)
    assert whole.success
    assert {path.name for path in Path("lake/days").iterdir()} == {"v=a", "v=b"}


@pytest.mark.parametrize(
    ("asset", "message"),
    [
        ({"metadata": {"mode": "replace", "key": "id"}}, "must be one of"),
        ({"metadata": {"mode": "insert"}}, "mode 'insert' of 'orders' needs a key"),
        ({"metadata": {"key": "v"}}, "occur more than once"),
    ],
    ids=["mode", "key", "duplicates"],
)
def test_wrong_metadata_is_refused(asset: dict[str, Any], message: str) -> None:
    assert message in message_of(materialize(FIRST, **asset))
    assert not list(Path("lake").rglob("*.parquet"))


def test_a_partition_does_not_replace_the_others() -> None:
    @dg.asset(partitions_def=DAYS)
    def parts() -> pa.Table:
        return FIRST

    resources = {"io_manager": PlainParquetIOManager(base_path="lake")}
    done = dg.materialize([parts], resources=resources, partition_key="a", raise_on_error=False)
    assert "each of its partitions would replace all others" in message_of(done)


def test_a_partitioned_asset_says_by_which_column() -> None:
    @dg.asset(partitions_def=DAYS, metadata={"key": "id"})
    def parts() -> pa.Table:
        return FIRST

    @dg.asset(partitions_def=DAYS)
    def reader(parts: pa.Table) -> None:
        raise AssertionError

    resources = {"io_manager": PlainParquetIOManager(base_path="lake")}
    done = dg.materialize(
        [parts, reader], resources=resources, partition_key="a", raise_on_error=False
    )
    assert "its metadata does not say by which column" in message_of(done)


def load_partitions(definition: Any, column: Any, rows: Any, keys: list[Any]) -> dict[str, Any]:
    """Store some partitions, and return what is loaded for each, and for an asset of all."""
    metadata = {"key": "id", "partition_expr": column}
    found: dict[str, Any] = {}

    @dg.asset(name="source", partitions_def=definition, metadata=metadata)
    def source(context) -> pa.Table:  # type: ignore[no-untyped-def]
        return rows(context.partition_key)

    @dg.asset(partitions_def=definition)
    def one(context, source: pa.Table) -> None:  # type: ignore[no-untyped-def]
        found[str(context.partition_key)] = sorted(source["id"].to_pylist())

    @dg.asset
    def every(source: pa.Table) -> None:
        found["all"] = sorted(source["id"].to_pylist())

    resources = {"io_manager": PlainParquetIOManager(base_path="lake")}
    for key in keys:
        dg.materialize([source], resources=resources, partition_key=key)
    for key in keys:
        dg.materialize([source, one], resources=resources, partition_key=key, selection=[one])
    dg.materialize([source, every], resources=resources, selection=[every])
    return found


BERLIN = {"start_date": "2026-03-28", "end_date": "2026-03-31", "timezone": "Europe/Berlin"}


@pytest.mark.parametrize(
    ("definition", "data_type", "first", "second"),
    [
        (
            dg.DailyPartitionsDefinition("2026-03-02", end_date="2026-03-05"),
            pa.timestamp("us"),
            ("2026-03-02", dt.datetime(2026, 3, 2), dt.datetime(2026, 3, 2, 23, 59)),
            ("2026-03-03", dt.datetime(2026, 3, 3), dt.datetime(2026, 3, 3, 12)),
        ),
        (
            dg.MonthlyPartitionsDefinition("2026-03-01", end_date="2026-06-01"),
            pa.date32(),
            ("2026-03-01", dt.date(2026, 3, 1), dt.date(2026, 3, 31)),
            ("2026-05-01", dt.date(2026, 5, 1), dt.date(2026, 5, 7)),
        ),
        (
            dg.HourlyPartitionsDefinition("2026-03-01-00:00", end_date="2026-03-01-05:00"),
            pa.timestamp("s", "UTC"),
            ("2026-03-01-00:00", dt.datetime(2026, 3, 1), dt.datetime(2026, 3, 1, 0, 59)),
            ("2026-03-01-01:00", dt.datetime(2026, 3, 1, 1), dt.datetime(2026, 3, 1, 1, 30)),
        ),
        (  # on the 29th, clocks go from UTC+1 to UTC+2
            dg.DailyPartitionsDefinition(**BERLIN),
            pa.timestamp("us", "UTC"),
            ("2026-03-29", dt.datetime(2026, 3, 28, 23), dt.datetime(2026, 3, 29, 21, 59)),
            ("2026-03-30", dt.datetime(2026, 3, 29, 22), dt.datetime(2026, 3, 30, 21, 59)),
        ),
        (
            dg.DailyPartitionsDefinition(**BERLIN),
            pa.timestamp("ms"),
            ("2026-03-29", dt.datetime(2026, 3, 29), dt.datetime(2026, 3, 29, 23, 59)),
            ("2026-03-30", dt.datetime(2026, 3, 30), dt.datetime(2026, 3, 30, 23, 59)),
        ),
    ],
    ids=["timestamps", "months", "hours", "time zone", "local time"],
)
def test_a_time_window_has_all_rows_in_it(
    definition: Any, data_type: pa.DataType, first: Any, second: Any
) -> None:
    moments = {key: (number, found) for number, (key, *found) in enumerate([first, second])}

    def rows(key: str) -> pa.Table:
        number, found = moments[key]
        return pa.table({"id": [10 * number, 10 * number + 1], "at": pa.array(found, data_type)})

    assert load_partitions(definition, "at", rows, list(moments)) == {
        first[0]: [0, 1],
        second[0]: [10, 11],
        "all": [0, 1, 10, 11],
    }


SHOPS = dg.MultiPartitionsDefinition(
    {
        "day": dg.DailyPartitionsDefinition("2026-03-02", end_date="2026-03-05"),
        "shop": dg.StaticPartitionsDefinition(["a", "b"]),
    }
)


def test_each_dimension_has_a_column() -> None:
    def rows(key: Any) -> pa.Table:
        parts = key.keys_by_dimension
        at = pa.array([dt.datetime.fromisoformat(parts["day"])], pa.timestamp("us"))
        return pa.table({"id": [str(key)], "at": at, "name": [parts["shop"]]})

    pairs = [("2026-03-02", "a"), ("2026-03-02", "b"), ("2026-03-03", "a")]
    keys = [dg.MultiPartitionKey({"day": day, "shop": shop}) for day, shop in pairs]
    found = load_partitions(SHOPS, {"day": "at", "shop": "name"}, rows, keys)
    names = [str(key) for key in keys]
    assert found == {name: [name] for name in names} | {"all": names}


def test_some_combinations_of_two_dimensions() -> None:
    """An asset that depends on those of one shop on one day, and of another on another."""
    from fsspeckit.integrations.dagster import _blocks

    pairs = [("1", "a"), ("1", "b"), ("2", "a"), ("3", "c")]
    keys = [{"day": day, "shop": shop} for day, shop in pairs]
    blocks = [list(block) for block in _blocks(keys, ["day", "shop"])]
    assert blocks == [keys[:2], keys[2:3], keys[3:]]
    (whole,) = _blocks(keys[:2], ["day", "shop"])
    assert list(whole) == keys[:2]
    assert len(list(_blocks([keys[0], keys[0] | {"shop": "z"}], ["shop", "day"]))) == 1


@pytest.mark.parametrize(
    ("definition", "column", "message"),
    [
        (SHOPS, "at", "must name the column of each dimension, got 'at'"),
        (SHOPS, {"day": "at"}, "must name the column of each dimension"),
        (dg.StaticPartitionsDefinition(["a"]), "day", "'day'"),
        (
            dg.HourlyPartitionsDefinition("2026-03-01-00:00", end_date="2026-03-01-03:00"),
            "on",
            "'on' has dates without a time",
        ),
    ],
    ids=["one of two", "a dimension is missing", "no such column", "dates of hours"],
)
def test_a_partition_expr_that_finds_no_rows_is_refused(
    definition: Any, column: Any, message: str
) -> None:
    def rows(key: str) -> pa.Table:
        return pa.table({"id": [1], "at": ["x"], "on": [dt.date(2026, 3, 1)]})

    key = definition.get_partition_keys()[-1]
    with pytest.raises(ValueError, match=message):
        load_partitions(definition, column, rows, [key])


def test_a_range_of_partitions_counts_for_itself() -> None:
    """A backfill in several runs of some partitions each, which may end in any order."""
    definition = dg.DailyPartitionsDefinition("2026-03-02", end_date="2026-03-06")

    @dg.asset(partitions_def=definition, metadata={"key": "id"})
    def ranged(context) -> pa.Table:  # type: ignore[no-untyped-def]
        keys = list(context.partition_keys)
        assert run_transaction(context).application == f"dagster:ranged[{keys[0]}...{keys[-1]}]"
        return pa.table({"id": keys})

    for first, last in (("2026-03-02", "2026-03-03"), ("2026-03-04", "2026-03-05")):
        tags = {
            "dagster/asset_partition_range_start": first,
            "dagster/asset_partition_range_end": last,
        }
        resources = {"io_manager": PlainParquetIOManager(base_path="lake")}
        assert dg.materialize([ranged], resources=resources, tags=tags).success
    found = [entry.transaction for entry in fsspeckit.history("lake/ranged")]
    assert [one.application for one in found if one is not None] == [
        "dagster:ranged[2026-03-02...2026-03-03]",
        "dagster:ranged[2026-03-04...2026-03-05]",
    ]
