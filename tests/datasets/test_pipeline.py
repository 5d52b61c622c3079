"""The pipeline beyond what every engine shows: events, retries and what the record says."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fsspeckit
from fsspeckit.core.merge import MergeStrategy
from fsspeckit.datasets.pipeline import MergeOptions, run_merge
from fsspeckit.datasets.pyarrow import ArrowEngine, PyarrowDatasetIO
from fsspeckit.display import Phases
from fsspeckit.errors import InvalidArgumentError
from fsspeckit.storage import TombstoneLimits, open_storage
from fsspeckit.storage.fs import syscalls

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fsspeckit.core.incremental import MergeResult


def _rows(*ids: int, v: str = "old") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [v] * len(ids)})


def test_phases_are_reported_in_their_order(tmp_path: Path) -> None:
    io, events = PyarrowDatasetIO(), list[tuple[str, int, int]]()
    io.write_dataset(_rows(1, 2), str(tmp_path / "data"))
    io.merge(
        _rows(2, 3, v="new"),
        str(tmp_path / "data"),
        "upsert",
        ["id"],
        progress=lambda *event: events.append(event),
    )
    phases = list(dict.fromkeys(phase for phase, _, _ in events))
    assert phases == ["stage", "plan", "match", "rewrite", "insert", "commit"]
    assert all(0 <= done <= total for _, done, total in events)
    assert {phase: (done, total) for phase, done, total in events} == dict.fromkeys(phases, (1, 1))


def _parts(**rows: int) -> pa.Table:
    """Rows of one letter each, and their partitions."""
    return pa.table({"id": list(rows), "p": list(rows.values())})


def test_moved_rows_are_those_of_the_last_attempt(tmp_path: Path) -> None:
    io, path = PyarrowDatasetIO(), str(tmp_path / "data")
    io.write_dataset(_parts(a=1, b=1), path, partition_by=["p"])
    appended = False

    def append_once(phase: str, done: int, total: int) -> None:
        nonlocal appended
        if phase == "commit" and done == 0 and not appended:
            appended = True
            PyarrowDatasetIO().write_dataset(_parts(a=3), path, partition_by=["p"])

    source, batch = _parts(a=2), fsspeckit.Transaction("feed", 1)
    merge = partial(io.merge, path=path, strategy="upsert", key_columns=["id"])
    merge = partial(merge, partition_change="move", transaction=batch)
    result = merge(source, progress=append_once)
    assert (result.updated, result.moved, result.inserted) == (2, 2, 0)
    found = io.read_dataset(path).select(["id", "p"]).sort_by([("id", "ascending")])
    assert found.to_pydict() == {"id": ["a", "a", "b"], "p": [2, 2, 1]}
    skipped = merge(source)
    assert (skipped.updated, skipped.moved) == (2, 2)


def test_rows_move_while_every_file_is_rewritten(tmp_path: Path) -> None:
    engine, path = ArrowEngine(), str(tmp_path / "data")
    PyarrowDatasetIO().write_dataset(_parts(a=1, b=1, c=2), path, partition_by=["p"])
    options = MergeOptions(MergeStrategy.UPSERT, ("id",), rewrite_all=True, partition_change="move")
    result = run_merge(engine, open_storage(path), _parts(a=2), options)
    assert (result.moved, len(result.rewritten_files), result.preserved_files) == (1, 2, [])
    assert len(result.inserted_files) == 1


def test_the_record_counts_what_the_last_attempt_did(tmp_path: Path) -> None:
    io, path = PyarrowDatasetIO(), str(tmp_path / "data")
    io.write_dataset(_rows(1), path)
    appended = False

    def append_once(phase: str, done: int, total: int) -> None:
        nonlocal appended
        if phase == "commit" and done == 0 and not appended:
            appended = True
            PyarrowDatasetIO().write_dataset(_rows(2), path)

    result = io.merge(_rows(1, 2, v="new"), path, "upsert", ["id"], progress=append_once)
    assert (result.updated, result.inserted) == (2, 0)
    assert result.metrics["commit"]["retries"] == 1
    last = fsspeckit.history(path)[-1]
    assert last.counts == {"inserted": 0, "updated": 2, "deleted": 0}
    assert sorted(io.read_dataset(path).to_pylist(), key=lambda row: row["id"]) == (
        _rows(1, 2, v="new").to_pylist()
    )


def test_a_plan_creates_nothing_beside_the_dataset(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    pq.write_table(_rows(1), directory / "a.parquet")
    plan = PyarrowDatasetIO().plan_merge(_rows(1, 2), str(directory), "upsert", ["id"])
    assert [file.decision for file in plan.files] == ["affected"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["data"]


def test_metrics_say_where_time_and_bytes_went(tmp_path: Path) -> None:
    io, path = PyarrowDatasetIO(), str(tmp_path / "data")
    io.write_dataset(_rows(*range(10)), path, max_rows_per_file=5, row_group_size=2)
    source = pa.concat_tables([_rows(0), _rows(1, v="new")])
    metrics = io.merge(source, path, "upsert", ["id"]).metrics
    assert metrics["files"] == {"total": 2, "affected": 1, "pruned": 1}
    assert metrics["pruned_by"] == {"statistics": 1}
    assert metrics["row_groups"] == {"total": 6, "affected": 1, "encoded": 1, "copied": 2}
    ((rewritten, how),) = metrics["rewrites"].items()
    assert rewritten in metrics["renamed"]
    assert how["method"] == "column splice"
    assert how["reason"] == "1 of 2 columns in 1 of 3 row groups change"
    assert (metrics["rows_unchanged"], metrics["files_unchanged"]) == (1, 0)
    assert 0 < metrics["bytes"]["affected"] < metrics["bytes"]["total"]
    assert set(metrics["seconds"]) == {"stage", "plan", "match", "rewrite", "insert", "commit"}


def test_the_collector_pauses_during_a_merge_and_runs_again_after_it(tmp_path: Path) -> None:
    io, path = PyarrowDatasetIO(), str(tmp_path / "data")
    io.write_dataset(_rows(1, 2), path)
    seen: list[bool] = []
    io.merge(
        _rows(1, v="new"), path, "upsert", ["id"], progress=lambda *_: seen.append(gc.isenabled())
    )
    assert (False in seen, gc.isenabled()) == (True, True)


def test_a_merge_holds_a_few_row_groups_and_never_the_dataset(tmp_path: Path) -> None:
    io, path = PyarrowDatasetIO(), str(tmp_path / "data")
    rows = pa.table({"id": range(400_000), "v": np.random.default_rng(0).random(400_000)})
    io.write_dataset(rows, path, row_group_size=10_000)
    source = rows.slice(123_456, 10).set_column(1, "v", pa.array([0.0] * 10))
    default = pa.default_memory_pool()
    watched = pa.proxy_memory_pool(default)
    pa.set_memory_pool(watched)
    try:
        result = io.merge(source, path, "upsert", ["id"])
    finally:
        pa.set_memory_pool(default)
    assert result.updated == 10
    assert 0 < watched.max_memory() < rows.nbytes / 4


def test_the_counts_of_a_feed_belong_to_their_phase_and_never_decrease(tmp_path: Path) -> None:
    """Stored versions are matched while the feed is planned."""
    io, events = PyarrowDatasetIO(), list[tuple[str, int, int]]()
    path = str(tmp_path / "data")

    def report(*event: Any) -> None:
        events.append(event)

    for seq in range(3):
        feed = pa.table({"id": [1, 2], "seq": [seq, seq]})
        events.clear()
        io.apply_changes(feed, path, "id", "seq", stored_as_scd_type=2, progress=report)
    phases = [phase for phase, _ in groupby(events, lambda event: event[0])]
    assert phases == ["stage", "plan", "match", "rewrite", "insert", "commit"]
    counts = [(done, total) for phase, done, total in events if phase == "plan"]
    assert counts == [(0, 1), (1, 2), (2, 2), (1, 1)]


def test_counts_that_begin_again_are_added_up() -> None:
    events = list[tuple[str, int, int]]()
    phases = Phases(lambda *event: events.append(event))
    with phases.timed("stage"):
        for counted in ((0, 2), (2, 2), (0, 3), (1, 3), (3, 3), (0, 1), (1, 1)):
            phases.report("stage", *counted)
    assert [event[1:] for event in events] == [
        *((0, 1), (0, 2), (2, 2), (2, 5), (3, 5), (5, 5), (5, 6), (6, 6), (1, 1))
    ]


def test_listeners_hear_of_phases_as_progress_does() -> None:
    heard: list[Any] = []

    class Listener:
        def begin(self, phase: str) -> None:
            heard.append(phase)

        def count(self, done: int, total: int) -> None:
            heard.append((done, total))

        def end(self) -> None:
            heard.append("end")

    phases = Phases(lambda *event: None)
    phases.listeners.append(Listener())
    with phases.timed("match"):
        phases.report("match", 1, 2)
    with pytest.raises(OSError, match="broken"), phases.timed("rewrite"):
        raise OSError("broken")
    assert heard == ["match", (1, 2), "end", "rewrite"]


def test_files_are_synced_once_while_others_are_rewritten(tmp_path: Path) -> None:
    io, path = PyarrowDatasetIO(), str(tmp_path / "data")
    io.write_dataset(_rows(*range(8)), path, max_rows_per_file=2)
    phase, synced = "", list[tuple[str, str]]()

    @contextmanager
    def observe(call: syscalls.Call) -> Iterator[None]:
        if call.name == "fsync" and call.paths[0].endswith(".staged"):
            synced.append((phase, call.paths[0]))
        yield

    def follow(now: str, done: int, total: int) -> None:
        nonlocal phase
        phase = now

    with syscalls.observed(observe):
        io.merge(_rows(1, 3, 5, 7, 9, v="new"), path, "upsert", ["id"], progress=follow)
    assert len(synced) == len({file for _, file in synced}) == 5
    assert [when for when, _ in synced].count("rewrite") == 4


@pytest.mark.parametrize("scd_type", [1, 2])
def test_more_deleted_keys_than_the_limit_are_refused(tmp_path: Path, scd_type: int) -> None:
    path = str(tmp_path / "data")
    storage = replace(open_storage(path), tombstone_limits=TombstoneLimits(max_rows=2))

    def delete(*ids: int) -> MergeResult:
        feed = pa.table({"id": ids, "seq": [1] * len(ids), "gone": [True] * len(ids)})
        options = MergeOptions.of_changes(
            keys="id", sequence_by="seq", apply_as_deletes="gone", stored_as_scd_type=scd_type
        )
        return run_merge(ArrowEngine(), storage, feed, options)

    assert delete(1, 2).source_count == 2
    before = fsspeckit.history(path)
    with pytest.raises(InvalidArgumentError, match=r"3 deleted keys.*\nHint: pass a shorter"):
        delete(3)
    assert fsspeckit.history(path) == before
    assert not list(tmp_path.rglob(".staging_*"))
    assert delete(1, 2).source_count == 2


def test_other_partitions_get_no_columns_by_an_overwrite(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    rows = pa.table({"id": [1, 2], "p": ["a", "b"]})
    io = PyarrowDatasetIO()
    io.write_dataset(rows, path, partition_by="p")
    with pytest.raises(InvalidArgumentError, match=r"call evolve\(\) first"):
        io.write_dataset(rows, path, mode="overwrite_partitions", schema_changes="add")


@pytest.mark.parametrize("key", [{"a": 1}, [1]], ids=["struct", "list"])
def test_a_key_that_no_column_can_be_is_named_with_its_type(tmp_path: Path, key: object) -> None:
    rows = pa.table({"k": [key], "v": [1]})
    with pytest.raises(ValueError, match=r"'k' of type (struct|list)<.*> cannot be a key"):
        PyarrowDatasetIO().merge(rows, str(tmp_path / "new"), "upsert", ["k"])
