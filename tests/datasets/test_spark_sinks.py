"""Sinks of streams: real queries, on classic and on Connect sessions."""

from __future__ import annotations

import json
import logging
import pickle
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import fsspeckit
from fsspeckit import Transaction
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.errors import InvalidArgumentError
from fsspeckit.testing.feed_model import feed_rows
from fsspeckit.testing.model import merge_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.errors.exceptions.connect import SparkConnectException

from fsspeckit.datasets.spark import ApplyChangesSink, MergeSink, SparkDatasetIO, SparkLimits
from fsspeckit.datasets.spark.queries import StartedQueries
from fsspeckit.datasets.spark.session import Jobs
from fsspeckit.datasets.spark.sinks import log_to_server

spark_test = [pytest.mark.spark, pytest.mark.slow]
SECONDS = 120
dumps_by_value: Any = cloudpickle.dumps


@dataclass
class Stream:
    """A landing directory of JSON lines, and a query that takes one file for each batch."""

    session: SparkSession
    root: Path
    name: str = "orders"
    schema: str = "id BIGINT, v BIGINT"
    landed: int = 0
    queries: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.landing.mkdir()

    @property
    def landing(self) -> Path:
        return self.root / f"landing-{self.name}"

    @property
    def path(self) -> str:
        return str(self.root / self.name)

    @property
    def checkpoint(self) -> Path:
        return self.root / f"checkpoint-{self.name}"

    def land(self, *files: Sequence[dict[str, Any]]) -> None:
        for rows in files:
            self.landed += 1
            hidden = self.landing / f".{self.landed:05}"
            hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
            hidden.rename(self.landing / f"{self.landed:05}.json")
            time.sleep(0.01)  # Spark takes files by their times

    def frame(self) -> DataFrame:
        reader = self.session.readStream.schema(self.schema).option("maxFilesPerTrigger", 1)
        return reader.json(str(self.landing))

    def start(self, sink: Any, frame: DataFrame | None = None, **trigger: Any) -> Any:
        writer: Any = (self.frame() if frame is None else frame).writeStream.foreachBatch(sink)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        writer = writer.trigger(**(trigger or {"availableNow": True}))
        try:
            query = writer.start()
        except SparkConnectException as error:
            # A server gives a process ten seconds to start, which a busy machine may need.
            if "failed to connect back" not in str(error):
                raise
            query = writer.start()
        self.queries.append(query)
        return query

    def run(self, sink: Any, frame: DataFrame | None = None) -> Any:
        """Apply all that has landed."""
        query = self.start(sink, frame)
        assert query.awaitTermination(SECONDS)
        return query

    def forget_last_batch(self) -> None:
        """Leave the checkpoint as a driver does that dies after the commit of its last batch."""
        commits = self.checkpoint / "commits"
        last = max(int(name.name) for name in commits.iterdir() if name.name.isdigit())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)

    def rows(self, path: str | None = None) -> list[dict[str, Any]]:
        table = PyarrowDatasetIO().read_dataset(path or self.path)
        return sorted(table.to_pylist(), key=lambda row: [str(value) for value in row.values()])


@pytest.fixture(params=["classic", "connect"])
def any_stream(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stream]:
    """A stream on each kind of session."""
    fixture = {"classic": "spark", "connect": "spark_connect"}[request.param]
    stream = Stream(request.getfixturevalue(fixture), tmp_path)
    yield stream
    _stop(stream)


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Iterator[Stream]:
    """A stream on a classic session."""
    stream = Stream(spark, tmp_path)
    yield stream
    _stop(stream)


def _stop(stream: Stream) -> None:
    for query in stream.queries:
        with suppress(Exception):
            query.stop()


def pairs(*rows: tuple[int, int | None]) -> list[dict[str, Any]]:
    return [{"id": key, "v": value} for key, value in rows]


def observed(query: Any) -> list[dict[str, int]]:
    """The metrics of each batch; on Connect, Spark returns values and their schema."""
    progress = [each["observedMetrics"].get("fsspeckit") for each in query.recentProgress]
    rows = [row.asDict() for row in progress if row is not None]
    return [
        dict(zip([field["name"] for field in row["schema"]["fields"]], row["values"], strict=True))
        if "schema" in row
        else row
        for row in rows
    ]


FILES = [pairs((1, 1), (2, 1)), pairs((2, 2), (3, 2)), pairs((3, 3), (4, 3))]


class TestMergeSink:
    """What a stream of upserts leaves."""

    pytestmark = spark_test

    def test_rows_are_those_of_the_model_and_a_batch_that_comes_again_is_skipped(
        self, any_stream: Stream
    ) -> None:
        any_stream.land(*FILES)
        query = any_stream.run(MergeSink(any_stream.path, "id"))
        expected: list[Any] = []
        for batch in FILES:
            expected = merge_rows(expected or None, batch, "upsert", ["id"]).rows
        assert any_stream.rows() == sorted(expected, key=lambda row: row["id"])
        transactions = [entry.transaction for entry in fsspeckit.history(any_stream.path)]
        assert transactions == [Transaction(str(query.id), n, str(query.id)) for n in range(3)]

        any_stream.forget_last_batch()
        other = pa.table({"id": [3], "v": [99]})
        PyarrowDatasetIO().merge(other, any_stream.path, "upsert", "id")
        any_stream.land(pairs((5, 4)))
        any_stream.run(MergeSink(any_stream.path, "id"))
        assert any_stream.rows() == pairs((1, 1), (2, 2), (3, 99), (4, 3), (5, 4))
        versions = [entry.transaction for entry in fsspeckit.history(any_stream.path)[3:]]
        assert versions == [None, Transaction(str(query.id), 3, str(query.id))]

    def test_a_new_checkpoint_is_refused_for_the_same_name(self, stream: Stream) -> None:
        stream.land(*FILES[:2])
        stream.run(MergeSink(stream.path, "id", app="orders-feed"))
        stream.checkpoint.rename(stream.root / "lost")
        with pytest.raises(StreamingQueryException, match="have started again") as caught:
            stream.run(MergeSink(stream.path, "id", app="orders-feed"))
        assert "Hint: give the new run an application name of its own" in str(caught.value)
        assert len(fsspeckit.history(stream.path)) == 2

    def test_tasks_do_the_work_of_large_batches(
        self, stream: Stream, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stream.land(*FILES[:2])
        Jobs(stream.session).prepare()
        monkeypatch.setattr(Jobs, "_probe", None)  # workers are not asked again for each batch
        sink = MergeSink(stream.path, "id", limits=SparkLimits(driver_max_source_bytes=0))
        stream.run(sink)
        assert stream.rows() == pairs((1, 1), (2, 2), (3, 2))
        assert sink.last_result is not None
        assert sink.last_result.batch == 1
        assert sink.last_result.result.metrics["tier"] != "driver"

    def test_outside_of_a_stream_a_sink_says_so(self, spark: SparkSession, tmp_path: Path) -> None:
        sink = MergeSink(str(tmp_path / "orders"), "id")
        with pytest.raises(InvalidArgumentError, match="outside of a streaming query"):
            sink(spark.range(3), 0)
        with pytest.raises(InvalidArgumentError, match="takes the DataFrame of a micro-batch"):
            sink(pa.table({"id": [1]}), 0)
        with pytest.raises(InvalidArgumentError, match="outside of a streaming query"):
            MergeSink(str(tmp_path / "orders"), "id", app="by hand")(spark.range(3), 0)
        assert list(tmp_path.iterdir()) == []

    def test_a_thread_that_spark_does_not_know_is_refused(self, stream: Stream) -> None:
        sink = MergeSink(stream.path, "id", app="feed")

        def in_thread(batch: DataFrame, batch_id: int) -> None:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(sink, batch, batch_id).result()

        stream.land(FILES[0])
        with pytest.raises(StreamingQueryException, match="in a thread that Spark did not start"):
            stream.run(in_thread)
        assert not Path(stream.path).exists()

    def test_two_sinks_into_one_dataset_are_refused(self, any_stream: Stream) -> None:
        path = any_stream.path
        upserts, deletes = MergeSink(path, "id"), MergeSink(path, "id", "delete")

        def both(batch: DataFrame, batch_id: int) -> None:
            upserts(batch, batch_id)
            deletes(batch, batch_id)

        any_stream.land(FILES[0])
        with pytest.raises(Exception, match=r"was applied to .* by this run already"):
            any_stream.run(both)

    def test_a_query_that_is_started_again_may_have_the_same_group_of_jobs(
        self, stream: Stream
    ) -> None:
        sink = MergeSink(stream.path, "id")

        def in_group(batch: DataFrame, batch_id: int) -> None:
            stream.session.sparkContext.setJobGroup("orders", "what the pages of Spark show")
            sink(batch, batch_id)

        stream.land(FILES[0])
        stream.run(in_group)
        stream.forget_last_batch()
        stream.run(in_group)
        assert sink.last_result is not None
        assert sink.last_result.skipped

    def test_two_sinks_with_names_apply_both(self, stream: Stream) -> None:
        upserts = MergeSink(stream.path, "id", app="upserts")
        deletes = MergeSink(stream.path, "id", "delete", app="deletes")

        def both(batch: DataFrame, batch_id: int) -> None:
            upserts(batch, batch_id)
            deletes(batch.where("id = 1").select("id"), batch_id)

        stream.land(*FILES[:2])
        stream.run(both)
        assert stream.rows() == pairs((2, 2), (3, 2))

    def test_a_checkpoint_that_is_a_batch_behind_is_warned_of(
        self, stream: Stream, caplog: pytest.LogCaptureFixture
    ) -> None:
        sink = MergeSink(stream.path, "id")
        old = stream.root / "old"
        for number, rows in enumerate(FILES[:3]):
            if number == 1:
                shutil.copytree(stream.checkpoint, old)
            if number == 2:
                shutil.rmtree(stream.checkpoint)
                old.rename(stream.checkpoint)
            stream.land(rows)
            every = stream.session.readStream.schema(stream.schema).json(str(stream.landing))
            stream.run(sink, every)
        assert sink.last_result is not None
        assert sink.last_result.skipped
        now = len(FILES[1]) + len(FILES[2])
        assert f"with {len(FILES[1])} rows and has {now} rows now" in caplog.text

    def test_a_column_that_is_never_null_in_the_first_batch_may_be_later(
        self, stream: Stream
    ) -> None:
        stream.land([{"id": 1, "v": 1}])
        first = stream.frame().selectExpr("id", "7 AS v")
        assert not first.schema["v"].nullable
        stream.run(MergeSink(stream.path, "id"), first)
        stream.land([{"id": 2, "v": None}])
        stream.run(MergeSink(stream.path, "id"))
        assert stream.rows() == pairs((1, 7), (2, None))


class Blocking:
    """A function whose process lacks a package: unpickled, it blocks the import first."""

    def __init__(self, package: str, function: Any) -> None:
        self.package, self.function = package, function

    def __call__(self, batch: Any, batch_id: int) -> None:
        raise AssertionError("it is unpickled first")

    def __reduce__(self) -> tuple[Any, ...]:
        program = _BLOCK.format(package=self.package)
        return exec, (program, {"pickled": dumps_by_value(self.function)})


_BLOCK = """
import pickle, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Finder())
for name in [name for name in sys.modules if name.partition(".")[0] == {package!r}]:
    del sys.modules[name]
pickle.loads(pickled)
"""


class TestOnConnect:
    """What is different where a server runs the batches."""

    pytestmark = spark_test

    def test_outside_of_a_stream_a_sink_says_so(
        self, spark_connect: SparkSession, tmp_path: Path
    ) -> None:
        with pytest.raises(InvalidArgumentError, match="outside of a streaming query"):
            MergeSink(str(tmp_path / "orders"), "id")(spark_connect.range(3), 0)

    def test_queries_of_one_session_know_their_own_ids(
        self, spark_connect: SparkSession, tmp_path: Path
    ) -> None:
        streams = [Stream(spark_connect, tmp_path, name) for name in ("first", "second")]
        try:
            # Both are active before either has a batch.
            queries = [
                stream.start(MergeSink(stream.path, "id"), processingTime="0 seconds")
                for stream in streams
            ]
            for stream in streams:
                stream.land(FILES[0])
            for query in queries:
                query.processAllAvailable()
        finally:
            for stream in streams:
                _stop(stream)
        for stream, query in zip(streams, queries, strict=True):
            (entry,) = fsspeckit.history(stream.path)
            assert entry.transaction == Transaction(str(query.id), 0, str(query.id))

    def test_a_server_without_the_package_says_what_to_install_where(
        self, spark_connect: SparkSession, tmp_path: Path
    ) -> None:
        stream = Stream(spark_connect, tmp_path)
        sink = Blocking("fsspeckit", MergeSink(stream.path, "id"))
        with pytest.raises(SparkConnectException, match="has no module 'fsspeckit'") as caught:
            stream.start(sink)
        assert f"with the wheel of fsspeckit {fsspeckit.__version__}" in str(caught.value)


EXPECT: dict[str, Any] = {
    "positive": "v >= 0",
    "known": ("v IS NOT NULL", "quarantine"),
    "small": ("abs(v) < 100", "drop"),
}


class TestGates:
    """Rows that violate expectations."""

    pytestmark = spark_test

    def sink(self, stream: Stream, **changed: Any) -> MergeSink:
        gates = {"expect": EXPECT, "quarantine": f"{stream.path}-bad", **changed}
        return MergeSink(stream.path, "id", **gates)

    def test_rows_go_where_their_violations_say_and_progress_counts_them(
        self, any_stream: Stream
    ) -> None:
        any_stream.land(pairs((1, 1), (2, -2), (3, None), (4, 1000)), pairs((5, 5)))
        sink = self.sink(any_stream)
        query = any_stream.run(sink, sink.observe(any_stream.frame()))
        assert any_stream.rows() == pairs((1, 1), (2, -2), (5, 5))
        (bad,) = any_stream.rows(f"{any_stream.path}-bad")
        assert (bad["id"], bad["quarantine_batch"]) == (3, 0)
        assert bad["quarantine_reasons"] == ["positive", "known", "small"]
        assert bad["quarantine_application"] == str(query.id)
        first, second = fsspeckit.history(any_stream.path)
        assert (first.counts["dropped"], first.counts["quarantined"]) == (1, 1)
        assert (second.counts["dropped"], second.counts["quarantined"]) == (0, 0)
        assert observed(query)[0] == {
            "rows": 4,
            "violations of positive": 2,
            "violations of known": 1,
            "violations of small": 2,
        }

    def test_the_quarantine_is_exact_if_the_driver_dies_before_the_merge(
        self, stream: Stream, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stream.land(pairs((1, 1), (3, None)))
        run = SparkDatasetIO._run

        def die(io: Any, data: Any, path: str, options: Any) -> Any:
            if path == stream.path:
                raise RuntimeError("the driver dies")
            return run(io, data, path, options)

        with monkeypatch.context() as patched:
            patched.setattr(SparkDatasetIO, "_run", die)
            with pytest.raises(StreamingQueryException, match="the driver dies"):
                stream.run(self.sink(stream))
        assert len(stream.rows(f"{stream.path}-bad")) == 1
        stream.run(self.sink(stream))
        assert [row["id"] for row in stream.rows(f"{stream.path}-bad")] == [3]
        assert stream.rows() == pairs((1, 1))

    def test_a_batch_that_fails_changes_nothing(self, stream: Stream) -> None:
        stream.land(pairs((1, 1), (2, -2), (3, None)))
        with pytest.raises(StreamingQueryException) as caught:
            stream.run(self.sink(stream, expect={**EXPECT, "no 2": ("id <> 2", "fail")}))
        assert "1 row(s) violate 'no 2' (id <> 2), for example: {id: 2, v: -2}" in str(caught.value)
        assert not list(stream.root.glob("orders*"))

    def test_progress_is_not_made_of_a_predicate_that_does_not_fit(self, stream: Stream) -> None:
        sink = MergeSink(stream.path, "id", expect={"odd": "amount > 0"})
        with pytest.raises(InvalidArgumentError, match=r"the expectation 'odd' .*does not fit"):
            sink.observe(stream.frame())

    @pytest.mark.parametrize(
        ("predicate", "words"),
        [
            ("amount > 0", "does not fit the columns"),
            ("v >", "does not fit the columns"),
            ("count(*) > 1", "does not fit the columns"),
            ("v + 1", "must be true or false, but is of type bigint"),
        ],
    )
    def test_a_predicate_that_does_not_fit_is_named(
        self, spark: SparkSession, tmp_path: Path, predicate: str, words: str
    ) -> None:
        sink = MergeSink(str(tmp_path / "orders"), "id", expect={"odd": predicate})
        spark.sparkContext.setLocalProperty("sql.streaming.queryId", "a query")
        try:
            with pytest.raises(InvalidArgumentError, match=rf"the expectation 'odd' .*{words}"):
                sink(spark.range(3).selectExpr("id", "id AS v"), 0)
        finally:
            spark.sparkContext.setLocalProperty("sql.streaming.queryId", None)  # type: ignore[arg-type]
        assert list(tmp_path.iterdir()) == []


CHANGES: list[list[dict[str, Any]]] = [
    [{"id": 1, "v": 1, "seq": 1, "op": "c"}, {"id": 2, "v": 1, "seq": 2, "op": "c"}],
    [{"id": 1, "v": None, "seq": 5, "op": "d"}, {"id": 2, "v": 3, "seq": 4, "op": "u"}],
    [{"id": 1, "v": 9, "seq": 3, "op": "u"}, {"id": 3, "v": 4, "seq": 6, "op": "c"}],
]


class TestApplyChangesSink:
    """A change feed whose changes come in any order."""

    pytestmark = spark_test

    @pytest.mark.parametrize("scd_type", [1, 2])
    def test_rows_are_those_of_the_feed(self, stream: Stream, scd_type: Any) -> None:
        stream.schema = "id BIGINT, v BIGINT, seq BIGINT, op STRING"
        stream.land(*CHANGES)
        sink = ApplyChangesSink(
            stream.path,
            "id",
            "seq",
            "op = 'd'",
            except_column_list="op",
            stored_as_scd_type=scd_type,
        )
        query = stream.run(sink, sink.observe(stream.frame()))
        events = [
            {**{name: event[name] for name in ("id", "v", "seq")}, "gone": event["op"] == "d"}
            for batch in CHANGES
            for event in batch
        ]
        expected = feed_rows(events, ["id"], "seq", "gone", scd_type)
        ordered = sorted(expected, key=lambda row: [str(value) for value in row.values()])
        assert [{name: row[name] for name in ordered[0]} for row in stream.rows()] == ordered
        assert [metrics["deletes"] for metrics in observed(query)] == [0, 1, 0]


# What needs no session


@dataclass
class Plan:
    """A data frame or a query with a plan, as far as a sink looks at it."""

    plan: str
    id: str = ""

    @property
    def runId(self) -> str:
        return f"run of {self.id}"

    def explain(self, extended: bool) -> None:
        print(self.plan if extended else "")  # noqa: T201 - as Spark does


@dataclass
class Session:
    """A session that has started queries."""

    active: list[Plan]

    @property
    def streams(self) -> Session:
        return self


BATCH: Any = Plan("Scan ExistingRDD[id#31L,v#32]")
OURS = Plan("Project [id#31L, v#32]\n+- FileScan json [id#31L,v#32]", "ours")
OTHER = Plan("Project [id#7L, v#8]", "other")


@pytest.mark.parametrize(
    ("before", "active"),
    [([], [OURS]), ([OTHER], [OTHER, OURS]), ([], [OTHER, OURS]), ([], [OURS, Plan("", "new")])],
)
def test_the_query_of_a_batch_on_connect(before: list[Plan], active: list[Plan]) -> None:
    session: Any = Session(active)
    started = StartedQueries(session, frozenset(query.runId for query in before))
    assert started.find(BATCH) == "ours"
    session.active.append(Plan(OURS.plan, "later"))
    assert started.find(BATCH) == "ours"


@pytest.mark.parametrize(
    ("active", "words"),
    [
        ([OURS, Plan(OURS.plan, "twin")], r"may be any of \['ours', 'twin'\]"),
        ([OTHER, Plan("", "new")], "is not among the active ones"),
        ([], "is not among the active ones"),
    ],
)
def test_a_query_is_never_guessed(active: list[Plan], words: str) -> None:
    session: Any = Session(active)
    with pytest.raises(InvalidArgumentError, match=rf"{words}(?s:.*)Hint: start each query in"):
        StartedQueries(session, frozenset()).find(BATCH)


@pytest.mark.spark
@pytest.mark.slow
def test_a_process_of_a_server_remembers_its_session(
    spark_connect: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    assert StartedQueries.since_now() is None
    monkeypatch.setenv("SPARK_CONNECT_LOCAL_URL", "sc://localhost")
    # Another test may have opened a session before this one, and stopped it: then none is active.
    monkeypatch.setattr(ConnectSession._active_session, "session", spark_connect, raising=False)
    started = StartedQueries.since_now()
    assert started is not None
    assert started.before == frozenset()


def test_log_lines_of_a_server_are_not_lost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = logging.getLogger("fsspeckit")
    monkeypatch.setattr(log, "handlers", [])
    monkeypatch.setattr(log, "propagate", False)
    monkeypatch.setattr(log, "level", log.level)
    log_to_server()
    log_to_server()
    log.info("batch 17")
    logging.getLogger("fsspeckit.spark").info("a job")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("INFO fsspeckit: batch 17")


@pytest.fixture
def sink() -> MergeSink:
    return MergeSink(
        "orders",
        "id",
        expect=EXPECT,
        quarantine="bad",
        storage_options={"secret": "hidden"},
        schema=pa.schema([("id", pa.int64())]),
    )


@pytest.mark.parametrize("dumps", [pickle.dumps, dumps_by_value])
def test_a_sink_can_be_pickled(sink: MergeSink, dumps: Any) -> None:
    again = pickle.loads(dumps(sink))
    assert type(again) is MergeSink
    assert repr(again) == repr(sink)
    assert again._state.target == sink._state.target
    assert again.storage_options == sink.storage_options
    assert again.last_result is None


@pytest.mark.parametrize("path", ["file:/data/orders", "s3://bucket/orders", "dbfs:/mnt/orders"])
def test_a_url_stays_as_it_is(path: str) -> None:
    assert MergeSink(path, "id").path == path


def test_a_sink_is_shown_without_credentials() -> None:
    assert "SECRET" not in repr(MergeSink("s3://KEY:SECRET@bucket/orders", "id"))


def test_paths_are_made_absolute(sink: MergeSink) -> None:
    assert sink.path == sink._state.target.path == str(Path("orders").absolute())
    assert sink.quarantine == str(Path("bad").absolute())
    remote = MergeSink("s3://bucket/orders", "id", control_dir="s3://bucket/control")
    assert remote.path == "s3://bucket/orders"
    assert remote.control_dir == "s3://bucket/control"


def test_a_sink_does_not_show_credentials(sink: MergeSink) -> None:
    assert "hidden" not in repr(sink)


@pytest.mark.parametrize("blocked", ["fsspeckit", "pyarrow"])
def test_a_process_without_the_package_says_what_to_install_where(
    sink: MergeSink, blocked: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import pickle, sys; pickle.load(sys.stdin.buffer)"],
        input=dumps_by_value(Blocking(blocked, sink)),
        capture_output=True,
        check=False,
    )
    text = done.stderr.decode()
    assert f"the Python of the Spark Connect server has no module '{blocked}'" in text
    assert f"'{sys.executable} -m pip install FILE'" in text
    assert f"with the wheel of fsspeckit {fsspeckit.__version__}" in text


def test_another_version_of_the_package_is_named(
    sink: MergeSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    pickled = pickle.dumps(sink)
    monkeypatch.setattr(fsspeckit, "__version__", "9.9")
    with pytest.raises(ImportError, match=r"has fsspeckit 9\.9, and the client"):
        pickle.loads(pickled)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"strategy": "upsrt"}, "strategy must be one of"),
        ({"strategy": "full_merge"}, r"only a part of the source.\nHint: use upsert"),
        ({"key_columns": []}, "key_columns"),
        ({"path": 7}, "path must be the path or URL"),
        ({"delete_when": "id"}, "delete_when 'id' cannot be a key column"),
        ({"compression": "zip"}, "compression must be one of"),
        ({"app": ""}, r"app must be the name of a feed.*\nHint"),
        ({"app": 7}, "app must be the name of a feed"),
        ({"expect": "v > 0"}, "expect must be a mapping"),
        ({"on_violation": "ignore"}, "on_violation must be one of"),
        ({"expect": EXPECT}, r"Hint: pass quarantine="),
        ({"quarantine": "bad"}, "has no use"),
        ({"storage_options": "anon"}, "storage_options must be a mapping"),
        ({"limits": 8}, "limits must be SparkLimits"),
        ({"control_dir": 7}, "control_dir must be the path or URL"),
        ({"filesystem": "s3"}, "filesystem must be an fsspec or pyarrow filesystem"),
        ({"bloom_columns": 7}, "bloom_columns must name at least one column"),
        ({"order_by": 7}, "order_by must name at least one column"),
        ({"partition_by": ["day", "day"]}, "must name each column once"),
        ({"duplicate_keys": "last"}, r"have no order(?s:.*)Hint: pass order_by"),
        ({"strategy": "deduplicate"}, r"have no order(?s:.*)Hint: pass order_by"),
    ],
)
def test_wrong_arguments_are_refused_before_any_batch(
    arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        MergeSink(**{"path": "orders", "key_columns": "id", **arguments})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"stored_as_scd_type": 3}, "stored_as_scd_type must be 1 or 2"),
        ({"sequence_by": None}, "sequence_by must be the name of a column"),
        ({"column_list": "id", "except_column_list": "op"}, "cannot be given together"),
    ],
)
def test_wrong_arguments_of_a_feed_are_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        ApplyChangesSink(**{"path": "orders", "keys": "id", "sequence_by": "seq", **arguments})


@pytest.mark.spark
@pytest.mark.slow
def test_a_column_is_refused_with_a_hint(spark: SparkSession) -> None:
    column: Any = spark.range(1)["id"] > 0
    with pytest.raises(InvalidArgumentError, match=r"must be SQL text, .*\nHint: write"):
        ApplyChangesSink("orders", "id", "seq", column)


def test_an_expression_may_say_which_changes_delete() -> None:
    sink = ApplyChangesSink("orders", "id", "seq", pc.field("op") == "d")
    assert str(pickle.loads(pickle.dumps(sink)).apply_as_deletes) == str(sink.apply_as_deletes)


def test_the_package_has_the_sinks() -> None:
    assert fsspeckit.MergeSink is MergeSink
    assert fsspeckit.ApplyChangesSink is ApplyChangesSink
    assert {"MergeSink", "ApplyChangesSink"} <= set(dir(fsspeckit))
