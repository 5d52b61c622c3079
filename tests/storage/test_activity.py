"""Activity: writers that take their time publish their phases, and nothing depends on it."""

from __future__ import annotations

import json
import os
import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.storage.checks import assert_tidy

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.errors import InvalidArgumentError
from fsspeckit.storage import (
    PhasePublisher,
    Transaction,
    current_activity,
    open_storage,
    recover_storage,
    staging,
)
from fsspeckit.storage.commit import staging as module
from fsspeckit.storage.commit.staging import create_stage
from fsspeckit.storage.fs import syscalls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fsspeckit.storage import Stage, Storage

IO = PyarrowDatasetIO()
ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    path = str(tmp_path / "data")
    IO.write_dataset(ROWS, path)
    return open_storage(path)


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call takes long enough to publish."""
    monkeypatch.setattr(module, "MIN_SECONDS", 0.0)


@contextmanager
def publishing(storage: Storage, stage: Stage) -> Iterator[PhasePublisher]:
    yield PhasePublisher(storage, lambda: stage, "pyarrow", "upsert", Transaction("feed", 7))


@pytest.mark.usefixtures("_at_once")
def test_what_is_published_is_seen(storage: Storage) -> None:
    with staging(storage) as stage, publishing(storage, stage) as publisher:
        publisher.begin("plan")
        publisher.end()
        publisher.begin("rewrite")
        file = stage.new_file()
        Path(file.path).write_bytes(b"x" * 10)
        (writer,) = current_activity(storage).writers
        assert (writer.engine, writer.strategy, writer.transaction) == (
            "pyarrow",
            "upsert",
            "feed:7",
        )
        assert [(phase.name, phase.is_done) for phase in writer.phases] == [
            ("plan", True),
            ("rewrite", False),
        ]
        assert writer.is_running
        assert writer.staged == ((Path(file.path).name, 10),)
    assert current_activity(storage).writers == ()
    assert_tidy(storage.root.path)


@pytest.mark.usefixtures("_at_once")
def test_counts_are_published_now_and_then(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with staging(storage) as stage, publishing(storage, stage) as publisher:
        publisher.begin("rewrite")
        publisher.count(1, 10)
        assert current_activity(storage).writers[0].phases[0].done == 0
        monkeypatch.setattr(module, "_PAUSE_SECONDS", 0.0)
        publisher.count(2, 10)
        (phase,) = current_activity(storage).writers[0].phases
        assert (phase.done, phase.total) == (2, 10)


def test_a_phase_goes_on_since_it_was_published(storage: Storage) -> None:
    with staging(storage) as stage:
        path = Path(stage.path, module.PHASES_FILE)
        phase = {"name": "rewrite", "done": 0, "total": 0, "seconds": 5.0, "is_done": False}
        path.write_text(json.dumps({"phases": [phase]}))
        os.utime(path, (time.time() - 100, time.time() - 100))
        assert current_activity(storage).writers[0].phases[0].seconds > 100


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "1",
        '{"phases": 7}',
        '{"phases": [{}]}',
        '{"phases": [{"name": 1}]}',
        '{"engine": 3}',
    ],
)
def test_what_another_version_writes_is_ignored(storage: Storage, content: str) -> None:
    with staging(storage) as stage:
        Path(stage.path, module.PHASES_FILE).write_text(content)
        (writer,) = current_activity(storage).writers
        assert (writer.phases, writer.engine) == ((), None)


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"pid": "x", "host": 3, "time": []}'])
def test_an_owner_that_does_not_say_who_it_is(storage: Storage, content: str) -> None:
    with staging(storage) as stage:
        Path(stage.path, "owner.json").write_text(content)
        (writer,) = current_activity(storage).writers
        assert (writer.is_running, writer.process, writer.started) == (None, None, None)


def test_small_merges_publish_nothing(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syscalls, "replace_note", _never)
    monkeypatch.setattr(module, "MIN_SECONDS", 3600.0)
    IO.merge(pa.table({"id": [4]}), storage.root.path, "upsert", ["id"])


def _never(*arguments: Any) -> None:
    raise AssertionError(arguments)


@pytest.mark.usefixtures("_at_once")
def test_every_phase_of_a_merge_is_published(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    published: list[list[str]] = []
    write = syscalls.replace_note

    def note(path: str, data: bytes) -> None:
        write(path, data)
        published.append([phase["name"] for phase in json.loads(data)["phases"]])

    monkeypatch.setattr(syscalls, "replace_note", note)
    table = pa.table({"id": [2, 9], "v": ["x", "y"]})
    result = IO.merge(table, storage.root.path, "upsert", ["id"], schema_changes="add")
    assert published[-1] == ["stage", "plan", "match", "rewrite", "insert", "commit"]
    assert result.metrics["commit"]["number"] == 2
    assert_tidy(storage.root.path)


@pytest.mark.usefixtures("_at_once")
def test_a_merge_that_cannot_publish_goes_on(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(syscalls, "replace_note", refuse)
    assert IO.merge(pa.table({"id": [4]}), storage.root.path, "upsert", ["id"]).inserted == 1


@pytest.mark.usefixtures("_at_once")
def test_a_call_that_is_refused_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError):
        IO.merge(ROWS, str(tmp_path / "new"), "update", ["id"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("_at_once")
def test_plans_publish_nothing(storage: Storage) -> None:
    before = {path: path.stat().st_mtime_ns for path in Path(storage.control.path).rglob("*")}
    IO.plan_merge(pa.table({"id": [4]}), storage.root.path, "upsert", ["id"])
    assert {p: p.stat().st_mtime_ns for p in Path(storage.control.path).rglob("*")} == before


@pytest.mark.usefixtures("_at_once")
def test_nothing_is_published_elsewhere_than_on_local_disks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(syscalls, "replace_note", _never)
    path = f"memory://{uuid.uuid4().hex}/data"
    IO.write_dataset(ROWS, path)
    IO.merge(pa.table({"id": [4]}), path, "upsert", ["id"])
    with staging(open_storage(path)) as stage:
        (writer,) = current_activity(open_storage(path)).writers
        assert (writer.name, writer.phases) == (stage.name, ())


@pytest.mark.usefixtures("_at_once")
def test_recovery_removes_what_a_dead_writer_has_published(storage: Storage) -> None:
    stage = create_stage(storage)
    with publishing(storage, stage) as publisher:
        publisher.begin("rewrite")
    stage.release()
    assert recover_storage(storage).discarded == (stage.name,)
    assert_tidy(storage.root.path)
