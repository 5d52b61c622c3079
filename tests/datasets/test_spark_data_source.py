"""The format ``fsspeckit`` of Spark: options, files of tasks, commits, replays, streams."""

from __future__ import annotations

import json
import os
import pickle
import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from tests.docs.test_code_blocks import PAGES

import fsspeckit
from fsspeckit.datasets.spark.data_source import (
    BatchWriter,
    DataSourceOptions,
    StreamWriter,
)
from fsspeckit.datasets.spark.data_source_options import OPTIONS
from fsspeckit.errors import (
    ExpectationError,
    InvalidArgumentError,
    SchemaMismatchError,
    TransactionResetError,
)
from fsspeckit.storage import open_storage
from fsspeckit.testing.conformance.stores import object_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

QUERY = "6a3f0b3e-8c7e-4a51-9d0f-0b3cf2b3a9aa"
GUIDE = "docs/guides/spark-data-source.md"


def schema_of(text: str = "id bigint, v string") -> StructType:
    """Columns in Spark's terms, made without a session."""
    from pyspark.sql.types import LongType, StringType, StructType

    kinds = {"bigint": LongType(), "string": StringType()}
    schema = StructType()
    for part in text.split(", "):
        name, kind = part.split()
        schema = schema.add(name, kinds[kind])
    return schema


def rows_of(path: Path | str) -> list[tuple[Any, ...]]:
    table = ds.dataset(str(path), partitioning="hive").to_table()
    return sorted(tuple(row.values()) for row in table.to_pylist())


def incoming_of(path: Path | str) -> list[str]:
    control = Path(open_storage(str(path)).control.path)
    return sorted(p.name for p in (control / "incoming").rglob("*") if p.is_file())


def rows(*values: tuple[Any, ...], names: str = "id v") -> list[pa.RecordBatch]:
    columns = list(zip(*values, strict=True)) if values else [(), ()]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, KINDS, strict=False)]
    return [pa.RecordBatch.from_arrays(arrays, names.split())]


KINDS = (pa.int64(), pa.string(), pa.int64(), pa.bool_())


# Options, without a session


def parse(path: Path | str, **options: str) -> DataSourceOptions:
    return DataSourceOptions.parse({"path": str(path), **options})


def test_names_are_compared_without_case_and_underscores(tmp_path: Path) -> None:
    for name in ("keyColumns", "key_columns", "KEYCOLUMNS", "keycolumns"):
        target = parse(tmp_path / "d", **{name: "id,day", "CHECKPOINTLOCATION": "c"}).target()
        assert target.call == "merge"
        assert target.arguments == {"key_columns": ("id", "day"), "strategy": "upsert"}


@pytest.mark.parametrize(
    ("options", "call", "arguments"),
    [
        ({}, "append", {}),
        ({"partitionBy": '["a, b"]'}, "append", {"partition_by": ("a, b",)}),
        ({"keys": "id"}, "merge", {"key_columns": ("id",), "strategy": "upsert"}),
        (
            {"keyColumns": "id", "strategy": "update", "trustPartitions": "TRUE"},
            "merge",
            {"key_columns": ("id",), "strategy": "update", "trust_partitions": True},
        ),
        (
            {
                "keys": "id",
                "sequence_by": "at",
                "apply_as_deletes": "op = 'd'",
                "except_column_list": "op",
                "stored_as_scd_type": "2",
                "tombstone_retention": "12 hours",
                "max_rewrite_fraction": "0.5",
            },
            "apply_changes",
            {
                "keys": ("id",),
                "sequence_by": "at",
                "apply_as_deletes": "op = 'd'",
                "except_column_list": ("op",),
                "stored_as_scd_type": "2",
                "tombstone_retention": timedelta(hours=12),
                "max_rewrite_fraction": 0.5,
            },
        ),
    ],
)
def test_options_choose_the_call(
    tmp_path: Path, options: dict[str, str], call: str, arguments: dict[str, Any]
) -> None:
    target = parse(tmp_path / "d", **options).target()
    assert (target.call, target.arguments) == (call, arguments)
    assert pickle.loads(pickle.dumps(target)) == target


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keycolumn": "id"}, "'keycolumn' is not known.*\nHint: did you mean 'key_columns'"),
        ({"xyzzy": "id"}, "'xyzzy' is not known.*\nHint: known are path, "),
        ({"key_columns": "id", "keyColumns": "x"}, "'key_columns' is given twice"),
        ({"key_columns": "id", "keys": "x"}, r"'keys' and 'key_columns'.* differ"),
        ({"key_columns": "id,,x"}, r"'key_columns' must be names .*'id,,x'.*\nHint: write"),
        ({"key_columns": "[1]"}, "'key_columns' must be a JSON array of names"),
        ({"key_columns": "[x"}, "'key_columns' must be JSON"),
        ({"max_rows_per_file": "many"}, "'max_rows_per_file' must be a whole number, got 'many'"),
        ({"max_rows_per_file": "0"}, "max_rows_per_file must be > 0"),
        ({"compression": "fast"}, "compression must be one of"),
        ({"lock_timeout": "soon"}, "'lock_timeout' must be a number"),
        ({"lock_timeout": "-1"}, "lock_timeout must be a number of seconds"),
        ({"publish": "now"}, "publish must be one of"),
        ({"log_level": "loud"}, "'log_level' must be one of debug"),
        ({"keys": "id", "trust_partitions": "yes"}, "must be true or false, got 'yes'"),
        ({"keys": "id", "strategy": "replace"}, "replace"),
        ({"strategy": "update"}, "'strategy' has no use without option 'key_columns'"),
        ({"column_list": "id"}, "'column_list' has no use without option 'sequence_by'"),
        ({"keys": "id", "column_list": "id"}, "'column_list' has no use for a merge by key"),
        ({"keys": "id", "sequence_by": "at", "order_by": "at"}, "no use for a change feed"),
        ({"sequence_by": "at"}, "option 'keys' is missing"),
        (
            {"keys": "id", "sequence_by": "at", "tombstone_retention": "a while"},
            r"'tombstone_retention' must be a duration.*\nHint: write .7 days.",
        ),
        ({"track_history_column_list": "v"}, "'track_history_column_list' is not supported"),
        (
            {"keys": "id", "duplicate_keys": "last"},
            "rows of Spark have no order.*\nHint: .*order_by",
        ),
        ({"keys": "id", "strategy": "deduplicate"}, "rows of Spark have no order.*\nHint"),
        ({"engine": "spark"}, r"no session to merge with.*\nHint: .*remote"),
        ({"engine": "polars"}, "engine must be one of 'pyarrow', 'duckdb'"),
        ({"engine": "duckdb", "remote": "sc://x"}, "'remote' merges with Spark"),
        ({"remote": "http://secret@host"}, "sc://, got 'http'"),
        ({"version": "1"}, "'app' is missing"),
        ({"app": " "}, "'app' must be a text"),
        ({"expect": "amount >= 0"}, "'expect' must be JSON"),
        ({"expect": "[]"}, "'expect' must be a JSON object"),
        ({"expect.positive": " "}, "must be a condition as SQL text"),
        ({"expect.a": "id > 0", "on_violation": "explode"}, "on_violation must be one of"),
        ({"on_violation": "drop"}, "'on_violation' has no use without an expectation"),
        ({"expect.a": "id > 0", "on_violation": "quarantine"}, "quarantine"),
        ({"storage_options": '{"secret": "xyzzy"'}, "'storage_options' must be a JSON object"),
        ({"storage_options": "[]"}, "'storage_options' must be a JSON object"),
    ],
)
def test_a_wrong_option_is_refused_with_a_hint(
    tmp_path: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=f"(?s){message}") as caught:
        parse(tmp_path / "d", **options)
    assert "xyzzy" not in str(caught.value) or "xyzzy" in options
    assert "secret@" not in str(caught.value)


def test_a_dataset_that_tasks_cannot_see_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="only this process can see"):
        parse("memory://data")
    with pytest.raises(InvalidArgumentError, match=r"'path' is missing.*\nHint: .*save"):
        DataSourceOptions.parse({})


def test_storage_options_and_expectations_by_name_or_as_json(tmp_path: Path) -> None:
    options = parse(
        tmp_path / "d",
        **{
            "storage_options": '{"auto_mkdir": false, "x": 1}',
            "storage.auto_mkdir": "true",
            "expect": '{"Known id": ["id IS NOT NULL", "fail"]}',
            "expect.positive": "id > 0",
            "onViolation": "drop",
        },
    )
    assert options.storage_options == {"auto_mkdir": True, "x": 1}
    found = [(each.name, each.predicate, each.action) for each in options.expectations]
    assert found == [("Known id", "id IS NOT NULL", "fail"), ("positive", "id > 0", "drop")]
    assert "auto_mkdir" not in repr(options)


@pytest.mark.parametrize(
    ("options", "overwrite", "streaming", "message"),
    [
        ({"keys": "id"}, True, False, r'mode\("overwrite"\) .*a merge by key.*\nHint: .*append'),
        ({"keys": "id"}, True, True, r'outputMode\("complete"\) .*a merge by key'),
        ({"keys": "id", "sequence_by": "v"}, True, True, "a change feed"),
        ({"keys": "id", "strategy": "full_merge"}, False, True, "delete the rows of those before"),
    ],
)
def test_modes_that_do_not_fit_the_options(
    tmp_path: Path, options: dict[str, str], overwrite: bool, streaming: bool, message: str
) -> None:
    kind = StreamWriter if streaming else BatchWriter
    with pytest.raises(InvalidArgumentError, match=f"(?s){message}"):
        kind(parse(tmp_path / "d", **options), schema_of(), overwrite)


def test_an_overwrite_of_the_partitions_of_the_rows(tmp_path: Path) -> None:
    path = tmp_path / "d"
    for overwrite, values in ((False, [(1, "a"), (2, "b")]), (True, [(3, "b")])):
        dynamic = {"partitionOverwriteMode": "Dynamic"} if overwrite else {}
        writer = BatchWriter(parse(path, partitionBy="v", **dynamic), schema_of(), overwrite)
        writer.commit([writer.write(iter(rows(*values)))])
    assert rows_of(path) == [(1, "a"), (3, "b")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partition_overwrite_mode": "dynamic"}, r"rows that replace others.\nHint: .*overwrite"),
        ({"partition_overwrite_mode": "some"}, "must be static or dynamic, got 'some'"),
        ({"partition_overwrite_mode": "static", "keys": "id"}, "has no use for a merge by key"),
    ],
)
def test_what_an_overwrite_replaces_is_an_option_of_an_overwrite(
    tmp_path: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        BatchWriter(parse(tmp_path / "d", **options), schema_of(), False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keys": "key"}, r"option 'keys' \['key'\] not found. Available columns: \['id', 'v'\]"),
        ({"partitionBy": "v,day"}, r"option 'partition_by' \['day'\] not found"),
        ({"expect.a": "amount > 0"}, "amount"),
        ({"expect.a": "upper(v) = 'A'"}, "not supported"),
        ({"keys": "id", "sequence_by": "id", "apply_as_deletes": "op = 'd'"}, "op"),
        ({"app": "feed"}, "'version' is missing"),
    ],
)
def test_options_are_compared_with_the_columns_before_any_task_runs(
    tmp_path: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        BatchWriter(parse(tmp_path / "d", **options), schema_of(), False)


def test_a_stream_counts_its_own_batches(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="a stream counts its own"):
        StreamWriter(parse(tmp_path / "d", app="feed", version="3"), schema_of(), False)


@pytest.mark.parametrize(
    "kind",
    ["VariantType", "CalendarIntervalType", "YearMonthIntervalType", "GeometryType"],
)
@pytest.mark.parametrize("nested", [False, True])
def test_a_type_that_parquet_does_not_have_is_refused(
    tmp_path: Path, kind: str, nested: bool
) -> None:
    from pyspark.sql import types

    if not hasattr(types, kind):
        pytest.skip(f"this Spark has no {kind}")
    found = getattr(types, kind)(*([0] if kind == "GeometryType" else []))
    inner = types.MapType(types.StringType(), types.ArrayType(found)) if nested else found
    schema = schema_of().add("odd", inner)
    with pytest.raises(SchemaMismatchError, match=r"column 'odd' .*\nHint: convert it first"):
        BatchWriter(parse(tmp_path / "d"), schema, False)


def test_a_name_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="occur twice"):
        BatchWriter(parse(tmp_path / "d"), schema_of("id bigint, id bigint"), False)


def test_the_guide_lists_every_option() -> None:
    page = PAGES[GUIDE].read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \|$", page, re.MULTILINE)
    assert listed == [(name, one.use, one.meaning) for name, one in OPTIONS.items()]


# Writers, without a session: Spark does the same with them in other processes


def stream(path: Path, batch: int, *tasks: Sequence[tuple[Any, ...]], **options: str) -> None:
    """Write a batch with a task for each sequence of rows, and commit it."""
    writer = StreamWriter(parse(path, **options), schema_of(), overwrite=False)
    copy = pickle.loads(pickle.dumps(writer))  # as Spark sends it to tasks
    messages = [copy.receive(iter(rows(*values)), QUERY, batch) for values in tasks]
    writer.commit(pickle.loads(pickle.dumps(messages)), batch)


@pytest.mark.parametrize("engine", ["pyarrow", "duckdb"])
def test_a_batch_is_committed_once_and_leaves_nothing(tmp_path: Path, engine: str) -> None:
    path = tmp_path / "d"
    stream(path, 0, [(1, "a")], [(2, "b")], keys="id", engine=engine)
    fsspeckit.merge(
        pa.table({"id": [1], "v": ["other"]}), str(path), "upsert", ["id"], engine=engine
    )
    stream(path, 0, [(1, "a")], [(2, "b")], keys="id", engine=engine)  # as after a crash
    assert rows_of(path) == [(1, "other"), (2, "b")]
    assert incoming_of(path) == []
    stream(path, 1, [(1, "c")], keys="id", engine=engine)
    assert rows_of(path) == [(1, "c"), (2, "b")]
    found = [str(entry.transaction) for entry in fsspeckit.history(str(path)) if entry.transaction]
    assert found == [f"{QUERY}:0", f"{QUERY}:1"]


def test_an_older_batch_of_the_same_query_is_refused(tmp_path: Path) -> None:
    for batch in (0, 1):
        stream(tmp_path / "d", batch, [(batch, "a")])
    with pytest.raises(TransactionResetError):
        stream(tmp_path / "d", 0, [(7, "a")])
    assert rows_of(tmp_path / "d") == [(0, "a"), (1, "a")]


def test_the_name_of_an_application_outlives_the_query(tmp_path: Path) -> None:
    stream(tmp_path / "d", 0, [(1, "a")], app="orders-feed")
    entry = fsspeckit.history(str(tmp_path / "d"))[-1]
    assert str(entry.transaction) == "orders-feed:0"


def test_only_files_that_messages_name_are_merged(tmp_path: Path) -> None:
    writer = BatchWriter(parse(tmp_path / "d"), schema_of(), overwrite=False)
    writer.write(iter(rows((1, "a failed attempt"))))
    message = writer.write(iter(rows((1, "a"))))
    writer.write(iter(rows((1, "a speculative attempt"))))
    writer.commit([message, None])
    assert rows_of(tmp_path / "d") == [(1, "a")]
    assert incoming_of(tmp_path / "d") == []


@pytest.mark.parametrize("streaming", [False, True])
def test_an_abort_removes_what_tasks_wrote(tmp_path: Path, streaming: bool) -> None:
    options = parse(tmp_path / "d")
    if streaming:
        writer = StreamWriter(options, schema_of(), overwrite=False)
        message = writer.receive(iter(rows((1, "a"))), QUERY, 4)
        writer.abort([message, None], 4)
        writer.abort([None], 4)
        writer.abort([], 4)
    else:
        other = BatchWriter(options, schema_of(), overwrite=False)
        other.write(iter(rows((1, "a"))))
        other.abort([None])
    assert incoming_of(tmp_path / "d") == []
    assert not (tmp_path / "d").exists()


def test_a_task_that_fails_removes_its_file(tmp_path: Path) -> None:
    def failing() -> Any:
        yield rows(*((n, "x" * 1000) for n in range(70_000)))[0]
        yield rows(*((n, "x" * 1000) for n in range(70_000)))[0]
        raise RuntimeError("lost")

    writer = BatchWriter(parse(tmp_path / "d"), schema_of(), overwrite=False)
    with pytest.raises(RuntimeError, match="lost"):
        writer.write(failing())
    assert incoming_of(tmp_path / "d") == []


@pytest.mark.parametrize("tasks", [[], [[]], [[], []]], ids=["no tasks", "one", "two"])
def test_a_batch_without_rows(tmp_path: Path, tasks: list[list[Any]]) -> None:
    path = tmp_path / "d"
    stream(path, 0, [(1, "a")], keys="id")
    stream(path, 1, *tasks, keys="id")
    stream(path, 1, *tasks, keys="id")
    assert rows_of(path) == [(1, "a")]
    assert len(fsspeckit.history(str(path))) == (2 if tasks else 1)
    stream(path, 2, [(1, "b")], keys="id")
    assert rows_of(path) == [(1, "b")]


def test_a_first_batch_without_rows(tmp_path: Path) -> None:
    stream(tmp_path / "d", 0, [], keys="id")
    stream(tmp_path / "d", 1, [(1, "b")], keys="id")
    assert rows_of(tmp_path / "d") == [(1, "b")]


def test_a_commit_that_fails_can_be_repeated(tmp_path: Path) -> None:
    """Spark calls abort after a commit that failed."""
    writer = StreamWriter(parse(tmp_path / "d", keys="id"), schema_of(), overwrite=False)
    message = writer.receive(iter(rows((1, "a"), (1, "b"))), QUERY, 0)
    with pytest.raises(ValueError, match="occur more than once"):
        writer.commit([message], 0)
    writer.abort([message], 0)
    assert incoming_of(tmp_path / "d") == []
    stream(tmp_path / "d", 0, [(1, "a")], keys="id")
    assert rows_of(tmp_path / "d") == [(1, "a")]


def test_a_worker_that_writes_to_a_disk_of_its_own(tmp_path: Path) -> None:
    writer = BatchWriter(parse(tmp_path / "d", keys="id"), schema_of(), overwrite=False)
    message = writer.write(iter(rows((1, "a"))))
    Path(str(message.path)).unlink()
    with pytest.raises(FileNotFoundError, match=r"1 of 1 file.*\nHint: .* all workers share"):
        writer.commit([message])


def test_a_control_directory_elsewhere_has_the_files(tmp_path: Path) -> None:
    options = parse(tmp_path / "d", control_dir=str(tmp_path / "control"))
    writer = BatchWriter(options, schema_of(), overwrite=False)
    message = writer.write(iter(rows((1, "a"))))
    assert str(message.path).startswith(str(tmp_path / "control" / "incoming"))
    writer.commit([message])
    assert rows_of(tmp_path / "d") == [(1, "a")]
    assert not (tmp_path / "control" / "incoming").exists()


def test_expectations_drop_refuse_and_set_apart(tmp_path: Path) -> None:
    path, apart = tmp_path / "d", tmp_path / "apart"
    gates = {
        "keys": "id",
        "expect.known": "v IS NOT NULL",
        "expect": json.dumps({"positive": ["id > 0", "drop"]}),
        "onViolation": "quarantine",
        "quarantine": str(apart),
    }
    stream(path, 0, [(1, "a"), (2, None)], [(-3, "c"), (-4, None)], **gates)
    stream(path, 0, [(1, "a"), (2, None)], [(-3, "c"), (-4, None)], **gates)
    assert rows_of(path) == [(1, "a")]
    found = ds.dataset(apart).to_table().sort_by("id")
    assert found.column("id").to_pylist() == [-4, 2]
    assert found.column("quarantine_reasons").to_pylist() == [["positive", "known"], ["known"]]
    assert found.column("quarantine_application").to_pylist() == [QUERY, QUERY]
    strict = {"keys": "id", "expect.known": "v IS NOT NULL", "on_violation": "fail"}
    with pytest.raises(ExpectationError, match="1 row"):
        stream(path, 1, [(5, "e"), (6, None)], **strict)
    assert rows_of(path) == [(1, "a")]


def test_a_batch_write_with_a_version_is_applied_once(tmp_path: Path) -> None:
    for _ in range(2):
        options = parse(tmp_path / "d", app="nightly", version="7")
        writer = BatchWriter(options, schema_of(), overwrite=False)
        writer.commit([writer.write(iter(rows((1, "a"))))])
    assert rows_of(tmp_path / "d") == [(1, "a")]


def test_rows_are_streamed_from_the_files_of_tasks(tmp_path: Path) -> None:
    """More than the limit of what is kept in memory, with values that are large."""
    writer = BatchWriter(parse(tmp_path / "d", keys="id"), schema_of(), overwrite=False)
    value = "x" * 2_000_000
    many = (rows((number, value))[0] for number in range(80))
    message = writer.write(many)
    assert message.rows == 80
    before = pa.total_allocated_bytes()
    writer.commit([message])
    assert pa.total_allocated_bytes() - before < 50_000_000
    assert ds.dataset(tmp_path / "d").count_rows() == 80


# With a session


def save(frame: DataFrame, path: Path | str, mode: str = "append", **options: str) -> None:
    frame.write.format("fsspeckit").mode(mode).options(**options).save(str(path))


def frame_of(
    spark: SparkSession, *values: tuple[Any, ...], names: str = "id bigint, v string"
) -> Any:
    return spark.createDataFrame(list(values), names)


@pytest.mark.spark
def test_batch_writes_of_every_kind(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "d"
    save(frame_of(spark, (1, "a"), (2, "b")), path, max_rows_per_file="1")
    save(frame_of(spark, (2, "B"), (3, "C")), path, keyColumns="id")
    assert rows_of(path) == [(1, "a"), (2, "B"), (3, "C")]
    changes = frame_of(
        spark, (1, "x", True), (4, "d", False), names="id bigint, v string, gone boolean"
    )
    save(changes, path, keyColumns="id", deleteWhen="gone")
    assert rows_of(path) == [(2, "B"), (3, "C"), (4, "d")]
    save(frame_of(spark, (9, "z")), path, "overwrite")
    assert rows_of(path) == [(9, "z")]
    assert [entry.strategy for entry in fsspeckit.history(str(path))] == [
        *("append", "upsert", "upsert", "overwrite")
    ]
    assert incoming_of(path) == []


@pytest.mark.spark
def test_a_change_feed_with_the_names_of_auto_cdc(spark: SparkSession, tmp_path: Path) -> None:
    feed = {
        "keys": "id",
        "sequence_by": "at",
        "apply_as_deletes": "op = 'd'",
        "except_column_list": "op",
    }
    names = "id bigint, v string, at bigint, op string"
    path = tmp_path / "d"
    save(frame_of(spark, (1, "a", 1, "u"), (2, "b", 2, "u"), names=names), path, **feed)
    save(frame_of(spark, (1, None, 5, "d"), (2, "old", 1, "u"), names=names), path, **feed)
    assert rows_of(path) == [(2, "b", 2)]


@pytest.mark.spark
def test_a_stream_that_is_repeated_after_its_commit(spark: SparkSession, tmp_path: Path) -> None:
    landing, checkpoint, path = tmp_path / "landing", tmp_path / "checkpoint", tmp_path / "d"
    landing.mkdir()
    (landing / "0.json").write_text('{"id": 1, "v": "a"}\n{"id": 2, "v": "b"}\n')

    def run() -> Any:
        read = spark.readStream.schema("id bigint, v string").json(str(landing))
        sink = read.writeStream.format("fsspeckit").queryName("orders").option("keyColumns", "id")
        sink = sink.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        query = sink.start(str(path))
        query.awaitTermination()
        return query

    first = run()
    other = pa.table({"id": [1], "v": ["other"]})
    fsspeckit.merge(other, str(path), "upsert", ["id"], engine="pyarrow")
    (checkpoint / "commits" / "0").unlink()  # as if killed before Spark noted the batch
    (checkpoint / "commits" / ".0.crc").unlink(missing_ok=True)
    (landing / "1.json").write_text('{"id": 3, "v": "c"}\n')
    second = run()
    assert first.id == second.id
    assert rows_of(path) == [(1, "other"), (2, "b"), (3, "c")]
    found = [str(entry.transaction) for entry in fsspeckit.history(str(path)) if entry.transaction]
    assert found == [f"{first.id}:0", f"{first.id}:1"]
    assert incoming_of(path) == []


@pytest.mark.spark
def test_a_temporary_view_can_be_written_by_sql(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "d"
    options = f"USING fsspeckit OPTIONS (path '{path}', keyColumns 'id')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW sink (id BIGINT, v STRING) {options}")
    spark.sql("INSERT INTO sink VALUES (1, 'a'), (2, 'b')")  # literals, which are never NULL
    spark.sql("INSERT INTO sink BY NAME SELECT 'B' AS v, 2L AS id")
    spark.sql("INSERT INTO sink (id) VALUES (3)")
    frame_of(spark, (1, "c")).write.insertInto("sink")
    assert rows_of(path) == [(1, "c"), (2, "B"), (3, None)]
    with pytest.raises(Exception, match=r"(?s)mode\(.overwrite.\) replaces all rows"):
        spark.sql("INSERT OVERWRITE sink VALUES (9, 'z')")
    with pytest.raises(Exception, match=r"(?s)does not read.*Hint: .*spark.read.parquet"):
        spark.sql("SELECT * FROM sink").collect()
    with pytest.raises(Exception, match=r"(?s)does not read.*needs a list of its columns"):
        spark.sql(f"CREATE TEMPORARY VIEW without_columns {options}")


@pytest.mark.spark
def test_types_of_spark_arrive_as_spark_writes_them(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(
        "SELECT 1 AS i, 2L AS l, 1.5F AS f, 2.5D AS d, 12.34BD AS n, true AS b, 'é' AS s, "
        "X'00FF' AS x, DATE'2020-02-29' AS day, TIMESTAMP'2020-02-29 12:00:00.123456' AS t, "
        "TIMESTAMP_NTZ'2020-02-29 12:00:00.123456' AS z, array(1, null) AS a, map('k', 1) AS m, "
        "struct(1 AS x, array(struct('y' AS y)) AS y) AS r, CAST(null AS string) AS nothing"
    )
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        save(frame, tmp_path / "ours")
        frame.write.parquet(str(tmp_path / "theirs"))
        found = [spark.read.parquet(str(tmp_path / name)) for name in ("ours", "theirs")]
        assert found[0].dtypes == found[1].dtypes
        assert found[0].collect() == found[1].collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.spark
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keyColumn": "id"}, "did you mean 'key_columns'"),
        ({"keyColumns": "key"}, "'key_columns'.*not found"),
    ],
)
def test_a_wrong_option_raises_where_the_query_starts(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], message: str
) -> None:
    frame = frame_of(spark, (1, "a"))
    with pytest.raises(Exception, match=f"(?s){message}"):
        save(frame, tmp_path / "d", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spark
def test_a_connect_server_merges_where_remote_says_so(
    spark_connect: SparkSession, spark_connect_url: str, tmp_path: Path
) -> None:
    path = tmp_path / "d"
    stream(path, 0, [(1, "a"), (2, "b")])
    gates = {"expect.short": "length(v) < 3", "onViolation": "drop"}  # a function of Spark's
    frame = frame_of(spark_connect, (2, "B"), (3, "long"))
    save(frame, path, keyColumns="id", remote=spark_connect_url, **gates)
    assert rows_of(path) == [(1, "a"), (2, "B")]
    assert [entry.engine for entry in fsspeckit.history(str(path))] == ["pyarrow", "spark"]
    assert incoming_of(path) == []


@pytest.mark.spark
def test_the_server_of_a_pipeline_merges(
    spark_connect_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its workers inherit a variable that makes a session stop the server it belongs to."""
    monkeypatch.setenv("SPARK_LOCAL_REMOTE", "1")
    for batch in range(2):
        stream(tmp_path / "d", batch, [(batch, "a")], keys="id", remote=spark_connect_url)
    assert rows_of(tmp_path / "d") == [(0, "a"), (1, "a")]
    assert os.environ["SPARK_LOCAL_REMOTE"] == "1"


@pytest.mark.slow
@pytest.mark.spark
def test_an_object_store(spark: SparkSession) -> None:
    server = object_store("moto")
    path = f"s3://{server.make_bucket()}/lake/d"
    options = {"storage_options": json.dumps(server.options), "keyColumns": "id"}
    save(frame_of(spark, (1, "a"), (2, "b")), path, partitionBy="v", **options)
    save(frame_of(spark, (2, "b"), (3, "a")), path, **options)
    found = fsspeckit.read_dataset(path, engine="pyarrow", storage_options=server.options)
    assert sorted(found.column("id").to_pylist()) == [1, 2, 3]
    storage = open_storage(path, storage_options=server.options)
    assert "incoming" not in storage.backend.names(storage.control.path)
