"""Log lines and spans: one for each phase and call, on every engine, and no secret in any."""

from __future__ import annotations

import io as io_module
import json
import logging
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import StatusCode
from tests.docs.test_guides import block_with

import fsspeckit
from fsspeckit.datasets.batches import BatchTarget, check_arrow, commit_batch
from fsspeckit.datasets.duckdb import DuckDBDatasetIO
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.display import log_to_stream, warn
from fsspeckit.errors import CommitPendingError, DuplicateKeyError
from fsspeckit.storage import Transaction
from fsspeckit.storage.fs import syscalls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fsspeckit.datasets.base import DatasetIO

PHASES = ["stage", "plan", "match", "rewrite", "insert", "commit"]
OLD = pa.table({"id": range(40), "v": ["old"] * 40})
NEW = pa.table({"id": [3, 5, 99], "v": ["new"] * 3})

ENGINES = [
    pytest.param(PyarrowDatasetIO, id="pyarrow"),
    pytest.param(DuckDBDatasetIO, id="duckdb"),
    pytest.param("spark", id="spark", marks=pytest.mark.spark),
]


@pytest.fixture(params=ENGINES)
def io(request: pytest.FixtureRequest) -> DatasetIO:
    if request.param == "spark":
        from fsspeckit.datasets.spark import SparkDatasetIO, SparkLimits

        # Jobs with tasks, and not the code of the PyArrow engine.
        limits = SparkLimits(driver_max_source_bytes=0)
        return SparkDatasetIO(request.getfixturevalue("spark"), limits=limits)
    opened: DatasetIO = request.param()
    return opened


@pytest.fixture
def dataset(tmp_path: Path) -> str:
    """Four files of ten rows each."""
    path = str(tmp_path / "the data")
    fsspeckit.write_dataset(OLD, path, max_rows_per_file=10, engine="pyarrow")
    return path


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Callable[[], list[dict[str, Any]]]:
    """Returns the fields of all log records so far, and that each is in the line too."""
    caplog.set_level(logging.INFO, "fsspeckit")
    plain = vars(logging.makeLogRecord({})).keys() | {"message", "asctime"}

    def fields() -> list[dict[str, Any]]:
        found = []
        for record in caplog.records:
            one = {name: value for name, value in vars(record).items() if name not in plain}
            if record.name == "fsspeckit.calls":
                assert record.getMessage() == " ".join(
                    f"{name}={quoted(value)}" for name, value in one.items()
                )
            found.append(one)
        return found

    return fields


def quoted(value: Any) -> str:
    text = str(value)
    return json.dumps(text) if set(text) & set(' "=') else text


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], tuple[ReadableSpan, ...]]]:
    """The spans of the SDK of OpenTelemetry, of a provider for one test."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield exporter.get_finished_spans
    provider.shutdown()


def test_a_merge_has_a_line_for_each_phase_and_one_for_the_call(
    io: DatasetIO, dataset: str, log: Callable[[], list[dict[str, Any]]]
) -> None:
    io.merge(NEW, dataset, "upsert", ["id"], transaction=Transaction("nightly", 7))
    lines = [line for line in log() if line.get("call") == "merge"]
    *phases, call = lines
    assert [line["phase"] for line in phases] == PHASES
    assert {line["event"] for line in phases} == {"phase"}
    assert len({line["call_id"] for line in lines}) == 1
    for line in lines:
        assert line["dataset"] == dataset
        assert line["engine"] == io._engine.name
        assert (line["transaction"], line["strategy"]) == ("nightly:7", "upsert")
        assert line["outcome"] == "done"
        assert line["seconds"] >= 0
    stage, plan, match, rewrite, insert, commit = phases
    assert stage["rows"] == 3
    assert (plan["files"], plan["files_pruned"]) == (4, 3)
    assert 0 < plan["bytes_pruned"] < plan["bytes"]
    assert (match["rows"], match["rows_unmatched"], match["files_affected"]) == (2, 1, 1)
    assert (rewrite["files"], rewrite["rows"]) == (1, 10)
    assert rewrite["bytes_encoded"] + rewrite["bytes_copied"] > 0
    assert (insert["files"], insert["rows"]) == (1, 1)
    assert insert["bytes"] > 0
    for line in (commit, call):
        assert line["commit"] == 2
        assert (line["files_added"], line["files_removed"]) == (2, 1)
        assert (line["rows_inserted"], line["rows_updated"]) == (1, 2)
        assert line["bytes_added"] > line["bytes_removed"] > 0


def test_a_merge_has_a_span_for_each_phase_below_that_of_the_call(
    io: DatasetIO, dataset: str, spans: Callable[[], tuple[ReadableSpan, ...]]
) -> None:
    io.merge(NEW, dataset, "upsert", ["id"])
    *phases, call = spans()
    assert [span.name for span in phases] == [f"fsspeckit.{phase}" for phase in PHASES]
    assert call.name == "fsspeckit.merge"
    assert call.parent is None
    for span in phases:
        assert span.parent is not None
        assert span.parent.span_id == call.context.span_id
        assert dict(span.attributes or {})["fsspeckit.dataset"] == dataset
        assert call.start_time <= span.start_time <= span.end_time <= call.end_time  # type: ignore[operator]
    about = dict(call.attributes or {})
    assert about["fsspeckit.engine"] == io._engine.name
    assert (about["fsspeckit.commit"], about["fsspeckit.rows_updated"]) == (2, 2)
    assert call.instrumentation_scope is not None
    assert call.instrumentation_scope.version == fsspeckit.__version__
    planned = dict(phases[1].attributes or {})
    assert planned["fsspeckit.files_pruned"] == 3
    assert planned["fsspeckit.bytes"] > planned["fsspeckit.bytes_pruned"]  # type: ignore[operator]


class TracedFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """Makes a span of its own for each file that is opened, as an instrumented client does."""

    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    def _open(self, path: str, *args: Any, **kwargs: Any) -> Any:
        with trace.get_tracer("client").start_as_current_span("open"):
            threads.add(threading.current_thread().name)
            return super()._open(path, *args, **kwargs)


threads: set[str] = set()
"""In which files were opened."""


def test_spans_of_other_libraries_are_below_those_of_phases(
    spans: Callable[[], tuple[ReadableSpan, ...]],
) -> None:
    """In the threads that read many files at once, too."""
    opened = PyarrowDatasetIO(filesystem=TracedFileSystem(skip_instance_cache=True))
    opened.write_dataset(OLD, "/traced", max_rows_per_file=5)
    threads.clear()
    opened.merge(OLD.set_column(1, "v", [["new"] * 40]), "/traced", "upsert", ["id"])
    assert len(threads) > 1
    found = spans()
    ours = {span.context.span_id for span in found if span.name.startswith("fsspeckit.")}
    parents = [span.parent for span in found if span.name == "open"]
    assert {parent and parent.span_id in ours for parent in parents} == {True}


def test_an_interface_that_is_still_being_imported_is_not_used(
    dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread may be in the middle of its import."""
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", ModuleType("opentelemetry.trace"))
    assert fsspeckit.upsert(NEW, dataset, "id").updated == 2


FEED = pa.table({"id": [3, 99], "v": ["x", "y"], "at": [1, 1]})

CALLS: dict[str, tuple[Callable[[str], Any], list[str], set[str]]] = {
    "delete": (
        lambda path: fsspeckit.delete([3], path, ["id"], engine="pyarrow"),
        PHASES,
        {"rows_deleted", "bytes_removed"},
    ),
    "apply_changes": (
        lambda path: fsspeckit.apply_changes(
            FEED, f"{path}-feed", "id", "at", engine="pyarrow", partition_by=[]
        ),
        PHASES,
        {"rows_inserted", "bytes_added"},
    ),
    "compact": (
        lambda path: fsspeckit.compact(path, engine="pyarrow"),
        ["plan", "rewrite", "commit", "plan"],
        {"files_removed", "bytes_added"},
    ),
    "plan_compact": (
        lambda path: fsspeckit.plan_compact(path, engine="pyarrow"),
        ["plan"],
        set(),
    ),
    "plan_merge": (
        lambda path: fsspeckit.plan_merge(NEW, path, "upsert", ["id"], engine="pyarrow"),
        ["stage", "plan", "match"],
        set(),
    ),
    "deduplicate": (
        lambda path: fsspeckit.deduplicate(path, ["id"], engine="pyarrow"),
        PHASES[:-1],
        set(),
    ),
    "evolve": (
        lambda path: fsspeckit.evolve(path, drop=["v"], engine="pyarrow"),
        ["plan", "rewrite", "commit"],
        {"files_added", "bytes_removed"},
    ),
    "repartition": (
        lambda path: fsspeckit.repartition(path, ["v"], engine="pyarrow"),
        ["plan", "insert", "commit"],
        {"files_added", "bytes_added"},
    ),
    "undo": (fsspeckit.undo, ["restore", "commit"], {"files_removed", "bytes_removed"}),
    "restore": (lambda path: fsspeckit.restore(path, 0), ["restore", "commit"], {"files_removed"}),
    "recover": (fsspeckit.recover, ["recover"], set()),
    "clean": (
        lambda path: fsspeckit.clean(path, dry_run=False),
        ["clean"],
        {"files_removed", "bytes_removed"},
    ),
    "verify": (
        lambda path: fsspeckit.verify(path, ["id"], engine="pyarrow"),
        ["footers", "verify", "keys", "control"],
        {"findings"},
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_call_has_lines_and_spans(
    name: str,
    dataset: str,
    log: Callable[[], list[dict[str, Any]]],
    spans: Callable[[], tuple[ReadableSpan, ...]],
) -> None:
    run, phases, facts = CALLS[name]
    run(dataset)
    lines = [line for line in log() if line.get("call") == name]
    assert [line.get("phase") for line in lines] == [*phases, None]
    assert facts <= lines[-1].keys()
    assert [span.name for span in spans()] == [f"fsspeckit.{one}" for one in (*phases, name)]
    attributes_of_spans = [dict(span.attributes or {}) for span in spans()]
    for line, attributes in zip(lines, attributes_of_spans, strict=True):
        fields = {f"fsspeckit.{key}": value for key, value in line.items()}
        assert attributes.items() <= fields.items()


def test_an_error_is_in_the_span_of_its_phase_and_in_a_warning(
    dataset: str,
    log: Callable[[], list[dict[str, Any]]],
    spans: Callable[[], tuple[ReadableSpan, ...]],
) -> None:
    twice = pa.table({"id": [3, 3], "v": ["a", "b"]})
    with pytest.raises(DuplicateKeyError):
        fsspeckit.merge(twice, dataset, "upsert", ["id"], engine="pyarrow")
    *_, plan, call = log()
    assert (plan["phase"], plan["outcome"]) == ("plan", "failed")
    assert (call["event"], call["outcome"]) == ("call", "failed")
    assert call["error"] == "DuplicateKeyError"
    assert call["reason"].startswith("1 key(s) of ['id'] occur more than once")
    stage, *failed = spans()
    assert stage.status.status_code is StatusCode.UNSET
    assert [span.name for span in failed] == ["fsspeckit.plan", "fsspeckit.merge"]
    for span in failed:
        assert span.status.status_code is StatusCode.ERROR
        (event,) = span.events
        about = dict(event.attributes or {})
        assert about["exception.type"] == "DuplicateKeyError"
        assert "pipeline/merge.py" in str(about["exception.stacktrace"])


def test_a_conflict_is_a_warning(
    dataset: str,
    log: Callable[[], list[dict[str, Any]]],
    spans: Callable[[], tuple[ReadableSpan, ...]],
) -> None:
    others = iter([NEW])

    def write_too(phase: str, done: int, total: int) -> None:
        if phase == "commit":
            for rows in others:
                fsspeckit.merge(rows, dataset, "upsert", ["id"], engine="pyarrow")

    mine = pa.table({"id": [4], "v": ["mine"]})
    fsspeckit.merge(mine, dataset, "upsert", ["id"], engine="pyarrow", progress=write_too)
    (conflict,) = [line for line in log() if line["event"] == "conflict"]
    assert (conflict["call"], conflict["attempt"]) == ("merge", 1)
    assert conflict["dataset"] == dataset
    assert log()[-1]["retries"] == 1
    (commit,) = [s for s in spans() if s.name == "fsspeckit.commit" and s.events]
    assert [event.name for event in commit.events] == ["fsspeckit.conflict"]
    # The second attempt is planned while the first one waits to be committed.
    inside = [s for s in spans() if s.parent and s.parent.span_id == commit.context.span_id]
    assert [span.name for span in inside] == [f"fsspeckit.{phase}" for phase in PHASES[1:-1]]


def test_files_that_vanish_are_a_retry(
    dataset: str, tmp_path: Path, log: Callable[[], list[dict[str, Any]]]
) -> None:
    files = iter(sorted((tmp_path / "the data").glob("*.parquet"))[:1])

    def remove(phase: str, done: int, total: int) -> None:
        if phase == "rewrite":
            for file in files:
                file.unlink()

    rows = pa.table({"id": range(40), "v": ["new"] * 40})
    fsspeckit.merge(rows, dataset, "upsert", ["id"], engine="pyarrow", progress=remove)
    (retry,) = [line for line in log() if line["event"] == "retry"]
    assert retry["dataset"] == dataset
    assert "removed" in retry["reason"]


@contextmanager
def _fails_at_the_mark(call: syscalls.Call) -> Iterator[None]:
    if call.name in ("link", "rename_new") and call.paths[-1].endswith(".parquet"):
        raise OSError("the disk is gone")
    yield


def test_a_recovered_commit_is_a_warning(
    dataset: str, log: Callable[[], list[dict[str, Any]]]
) -> None:
    io = PyarrowDatasetIO(publish="plain")
    with syscalls.observed(_fails_at_the_mark), pytest.raises(CommitPendingError):
        io.merge(NEW, dataset, "upsert", ["id"])
    assert log()[-1]["error"] == "CommitPendingError"
    io.merge(NEW, dataset, "upsert", ["id"])
    (recovery,) = [line for line in log() if line["event"] == "recovery"]
    assert (recovery["call"], recovery["recovered"], recovery["abandoned"]) == ("merge", 2, False)


def test_a_batch_is_one_span_above_those_of_its_commits(
    dataset: str,
    log: Callable[[], list[dict[str, Any]]],
    spans: Callable[[], tuple[ReadableSpan, ...]],
) -> None:
    from fsspeckit.core.expectations import Expectation

    expect = (Expectation("small", "id < 50", "quarantine"),)
    arguments = {"strategy": "upsert", "key_columns": ["id"]}
    target = BatchTarget(dataset, "merge", arguments, expect, f"{dataset}-apart")
    check = partial(check_arrow, expectations=expect)
    for _ in range(2):
        commit_batch(PyarrowDatasetIO(), target, NEW, check, Transaction("feed", 1, "run"))
    first, second = [span for span in spans() if span.name == "fsspeckit.commit_batch"]
    inside = [s.name for s in spans() if s.parent and s.parent.span_id == first.context.span_id]
    assert inside == ["fsspeckit.gate", "fsspeckit.quarantine", "fsspeckit.merge"]
    assert dict(first.attributes or {})["fsspeckit.rows_quarantined"] == 1
    assert dict(second.attributes or {})["fsspeckit.outcome"] == "skipped"
    of_first = {line["call_id"] for line in log() if line.get("transaction") == "feed:1"}
    assert len(of_first) == 2  # one for each try
    batches = [line for line in log() if line["event"] == "batch"]
    assert [line["commit"] for line in batches] == [2, 2]
    assert [line.get("outcome") for line in batches] == [None, "skipped"]


SECRET = "wJalrXUtnFEMI-hushhush"


class SecretFileSystem(LocalFileSystem):  # type: ignore[misc]
    """A disk that takes credentials, as a store does."""

    def __init__(self, **options: Any) -> None:
        super().__init__()


@pytest.mark.parametrize(
    "text",
    [
        f"https://user:{SECRET}@host/data",
        f"GET https://account.blob.example/c/d?sv=2024&sig={SECRET} failed",
        f"key {SECRET} is not valid",
        f"token={SECRET}",
    ],
)
def test_no_secret_is_in_a_line_or_span(
    text: str,
    dataset: str,
    log: Callable[[], list[dict[str, Any]]],
    spans: Callable[[], tuple[ReadableSpan, ...]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = {
        "client": {"aws_session_token": SECRET},
        "secret": SECRET,
        "skip_instance_cache": True,
    }
    filesystem = SecretFileSystem(**options)

    def fail(phase: str, done: int, total: int) -> None:
        if phase == "plan":
            raise OSError(f"403 Forbidden: {text}") from ValueError(text)

    with pytest.raises(OSError, match="403 Forbidden"):
        PyarrowDatasetIO(filesystem).merge(NEW, dataset, "upsert", ["id"], progress=fail)
    call = log()[-1]
    assert (call["error"], call["outcome"]) == ("OSError", "failed")
    assert call["reason"].startswith("403 Forbidden: ")
    assert SECRET not in caplog.text
    assert SECRET not in repr([vars(record) for record in caplog.records])
    assert spans()
    assert all(SECRET not in span.to_json() for span in spans())
    assert "ValueError" in spans()[-1].to_json()


def test_nothing_is_printed_and_nothing_imported_by_default(tmp_path: Path) -> None:
    program = (
        "import sys, fsspeckit, pyarrow as pa\n"
        "rows = pa.table({'id': [1, 1]})\n"
        "fsspeckit.write_dataset(rows, 'data', engine='pyarrow')\n"
        "try:\n"
        "    fsspeckit.merge(rows, 'data', 'upsert', ['id'], engine='pyarrow')\n"
        "except ValueError:\n"
        "    print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_lines_go_to_a_stream_unless_somebody_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler that writes nothing, which every library has, is nobody."""
    ours = logging.getLogger("fsspeckit")
    monkeypatch.setattr(ours, "handlers", [logging.NullHandler()])
    monkeypatch.setattr(ours, "propagate", False)
    monkeypatch.setattr(ours, "level", ours.level)
    first, second = io_module.StringIO(), io_module.StringIO()
    log_to_stream(first)
    log_to_stream(second)
    ours.info("batch 17")
    logging.getLogger("fsspeckit.calls").info("phase=plan")
    assert first.getvalue().endswith(" INFO fsspeckit: batch 17\n")
    assert "plan" not in first.getvalue()
    assert second.getvalue() == ""


def test_spans_that_nobody_records_get_no_attributes(
    dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = TracerProvider(sampler=ALWAYS_OFF)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    assert fsspeckit.merge(NEW, dataset, "upsert", ["id"], engine="pyarrow").updated == 2
    with pytest.raises(DuplicateKeyError):
        fsspeckit.merge(pa.concat_tables([NEW, NEW]), dataset, "upsert", ["id"], engine="pyarrow")


def test_a_warning_outside_of_a_call_names_its_dataset(
    log: Callable[[], list[dict[str, Any]]],
) -> None:
    warn("recovery", {"dataset": "/data"}, recovered=3, notes=None)
    assert log() == [{"event": "recovery", "dataset": "/data", "recovered": 3}]


@pytest.mark.parametrize("text", ["TracerProvider", "JsonLines"])
def test_the_code_of_the_guide_runs_by_itself(tmp_path: Path, text: str) -> None:
    """It configures logging or tracing of a whole process."""
    code = block_with("docs/guides/logs-and-traces.md", text)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    assert "fsspeckit" in done.stdout or '"phase": "commit"' in done.stdout
