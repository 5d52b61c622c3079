"""How many requests a merge on an object store is: each is a round trip to another machine."""

from __future__ import annotations

import io
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.storage import CommitFacts, Tombstones, history, open_storage
from fsspeckit.storage.commit.folding import fold_records
from fsspeckit.storage.commit.log import (
    CommitRecord,
    Completion,
    mark_complete,
    timestamp,
    write_record,
)
from fsspeckit.storage.storage import BLOCK
from fsspeckit.testing.object_stores import Answered, Asked, asked_by, longest_chain, moto

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from werkzeug.wrappers import Request, Response

    from fsspeckit.testing.object_stores import Answer

FILES, ROWS = 16, 100
LEAST_FOOTERS = FILES
MAX_RATIO = 1.3


def table(keys: Iterable[int], value: int) -> pa.Table:
    ids = list(keys)
    return pa.table({"id": ids, "value": [value] * len(ids), "text": [f"row {n}" for n in ids]})


@pytest.fixture
def dataset() -> str:
    return new_dataset()


@pytest.fixture
def other_dataset() -> str:
    return new_dataset()


def new_dataset() -> str:
    """Make a dataset of 16 files with four row groups each."""
    path = f"{moto().make_bucket()}/lake/data"
    filesystem = fsspec.filesystem("s3", **moto().options)
    for number in range(FILES):
        buffer = io.BytesIO()
        rows = table(range(number * ROWS, (number + 1) * ROWS), 0)
        pq.write_table(rows, buffer, row_group_size=25)
        filesystem.pipe_file(f"{path}/part-{number:05}.parquet", buffer.getvalue())
    return f"s3://{path}"


WORKLOADS = {
    "one row": (table([7], 1), "upsert", 1, 27),
    "rows of two files": (table([*range(10), *range(700, 710)], 1), "upsert", 2, 32),
    "rows of all files": (table(range(0, FILES * ROWS, 10), 1), "upsert", FILES, 72),
    "new rows": (table(range(5000, 5010), 1), "insert", 0, 26),
}
"""The source, the strategy, how many files it changes, and the fewest requests it can be."""


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_merge_asks_for_everything_once(dataset: str, name: str) -> None:
    source, strategy, changed, least = WORKLOADS[name]
    with moto().recording() as asked, PyarrowDatasetIO(storage_options=moto().options) as engine:
        merged = engine.merge(source, dataset, strategy, ["id"])
    assert len(merged.rewritten_files) == changed
    counts = Counter(request.action for request in asked)
    assert len(asked) <= least * MAX_RATIO, counts
    assert counts["CopyObject"] == changed + len(merged.inserted_files)
    # The footer of each file, and the rest of those with a source key.
    data = [one for one in asked if one.action == "GetObject" and "/data/" in one.key]
    assert len(data) <= LEAST_FOOTERS + changed
    assert counts["HeadObject"] == 0
    expected = {row["id"]: row for row in table(range(FILES * ROWS), 0).to_pylist()}
    expected |= {row["id"]: row for row in source.to_pylist()}
    with PyarrowDatasetIO(storage_options=moto().options) as engine:
        found = engine.read_dataset(dataset).to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == [expected[key] for key in sorted(expected)]


PAUSE = 0.03
CHAINS = {
    "one row": (table([7], 1), "upsert", 11),
    "rows of two files": (table([*range(10), *range(700, 710)], 1), "upsert", 11),
    "new rows": (table(range(5000, 5010), 1), "insert", 9),
}
"""The source, the strategy, and how many requests come one after the other.

Names, footers, rows with keys, what is staged, the check before the record, the record, the check
after it, copies, removals, the check of what is published, and the mark. New rows replace nothing.
"""

TRIES = 5


def shortest_chain(dataset: str, source: pa.Table, strategy: str) -> list[Answered]:
    """Return the requests of a merge of which the fewest came one after the other.

    Requests that depend on each other never overlap, so no chain is too short. It is too long where
    this process was held up between two requests.
    """
    options = {**moto().options, "skip_instance_cache": True}
    with moto().timing(PAUSE) as found, PyarrowDatasetIO(storage_options=options) as engine:
        engine.merge(source, dataset, strategy, ["id"])
    return longest_chain(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", CHAINS)
def test_requests_that_do_not_depend_on_each_other_are_sent_together(name: str) -> None:
    source, strategy, most = CHAINS[name]
    for _ in range(TRIES):
        chain = shortest_chain(new_dataset(), source, strategy)
        if len(chain) <= most:
            break
    assert len(chain) <= most, [f"{one.asked.action} {one.asked.key}" for one in chain]


@pytest.mark.slow
def test_a_merge_after_others_waits_for_no_more_answers(dataset: str) -> None:
    chains = []
    for value in range(1, TRIES + 1):
        chains.append(shortest_chain(dataset, table([7], value), "upsert"))
    assert min(map(len, chains[1:])) <= CHAINS["one row"][2]


def test_a_chain_has_only_requests_that_came_after_an_answer() -> None:
    asked = Asked("GetObject", "lake", "key")
    times = [(0, 3), (1, 2), (2, 5), (4, 6), (5, 7), (8, 9)]
    chain = longest_chain(Answered(asked, start, end) for start, end in times)
    assert [(one.start, one.end) for one in chain] == [(1, 2), (2, 5), (5, 7), (8, 9)]


def with_history(dataset: str, length: int) -> None:
    """Give a dataset a history of some commits, folded as if each had been made by a merge."""
    made = open_storage(f"memory://history-{uuid4().hex}/data")
    for number in range(1, length + 1):
        staged = f".staging_{number:032}"
        now = timestamp()
        facts = CommitFacts("pyarrow", "upsert", ("id",))
        record = CommitRecord(number, staged, now, facts, 1.0, "plain", staged, (), (), {})
        write_record(made, replace(record, tombstones=Tombstones()))
        mark_complete(made, number, Completion("plain", 1.0))
        if number % BLOCK == 0:
            fold_records(made)
    memory, stored = made.root.filesystem, fsspec.filesystem("s3", **moto().options)
    commits = f"{dataset.removesuffix('data')}.data.fsspeckit/commits"
    for path in memory.find(made.control.commits):
        stored.pipe_file(f"{commits}/{path.rpartition('/')[2]}", memory.cat_file(path))


def counted_with_history(dataset: str, length: int) -> tuple[Counter[str], Counter[str]]:
    """Return the requests of a merge, and of a history of five commits, after many commits."""
    with_history(dataset, length)
    options = moto().options
    with moto().recording() as asked, PyarrowDatasetIO(storage_options=options) as engine:
        merged = engine.merge(table([7], 1), dataset, "upsert", ["id"])
    assert merged.metrics["commit"]["number"] == length + 1
    with moto().recording() as listed:
        found = history(dataset, storage_options=options, limit=5)
    assert [entry.number for entry in found] == list(range(length - 3, length + 2))
    return Counter(one.action for one in asked), Counter(one.action for one in listed)


@pytest.mark.slow
def test_a_long_history_costs_no_request(dataset: str, other_dataset: str) -> None:
    assert counted_with_history(dataset, 5000) == counted_with_history(other_dataset, 5)


@pytest.mark.slow
def test_the_window_of_other_readers_is_in_the_result(dataset: str) -> None:
    changes: list[tuple[str, float]] = []

    def timed(request: Request, answer: Answer) -> Response:
        action = asked_by(request).action
        started, response = time.perf_counter(), answer()
        ended = time.perf_counter()
        changes.append((action, ended if action == "CopyObject" else started))
        return response

    source = table([7, 1007], 1)
    with moto().following(timed), PyarrowDatasetIO(storage_options=moto().options) as engine:
        merged = engine.merge(source, dataset, "upsert", ["id"])
        inserted = engine.merge(table([5000], 1), dataset, "insert", ["id"])
    appears = min(when for action, when in changes if action == "CopyObject")
    goes = min(when for action, when in changes if action == "DeleteObjects")
    window = merged.metrics["commit"]["window_seconds"]
    assert goes - appears < window <= merged.metrics["commit"]["seconds"]["publish"]
    assert inserted.metrics["commit"]["window_seconds"] == 0
    between = [action for action, when in changes if appears < when < goes]
    assert set(between) <= {"CopyObject", "ListObjectsV2"}
    assert between.count("ListObjectsV2") <= 1


def test_files_that_are_swapped_are_never_seen_together(tmp_path: Path) -> None:
    engine = PyarrowDatasetIO()
    engine.write_dataset(table(range(9), 0), str(tmp_path / "data"), max_rows_per_file=3)
    merged = engine.merge(table([1, 4], 1), str(tmp_path / "data"), "upsert", ["id"])
    assert merged.metrics["commit"]["published"] == "exchange"
    assert merged.metrics["commit"]["window_seconds"] == 0


@pytest.mark.slow
def test_an_object_whose_name_no_disk_would_take() -> None:
    path = f"{moto().make_bucket()}/lake/data"
    buffer = io.BytesIO()
    pq.write_table(table(range(3), 0), buffer)
    filesystem = fsspec.filesystem("s3", **moto().options)
    filesystem.pipe_file(f"{path}/{'x' * 300}.parquet", buffer.getvalue())
    with PyarrowDatasetIO(storage_options=moto().options) as engine:
        merged = engine.merge(table([1], 5), f"s3://{path}", "upsert", ["id"])
        assert (merged.updated, len(merged.rewritten_files)) == (1, 1)
        found = engine.read_dataset(f"s3://{path}")
    assert sorted(found["value"].to_pylist()) == [0, 0, 5]


@pytest.mark.slow
def test_a_merge_without_effect_writes_nothing(dataset: str) -> None:
    with moto().recording() as asked, PyarrowDatasetIO(storage_options=moto().options) as engine:
        merged = engine.merge(table([7], 0), dataset, "upsert", ["id"])
    assert not merged.rewritten_files
    written = {one.key.rpartition("/")[2] for one in asked if one.action == "PutObject"}
    assert written <= {"owner.json"}
