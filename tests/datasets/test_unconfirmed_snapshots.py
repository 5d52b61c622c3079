"""Merges on an object store whose first two listings are of different states of a dataset.

A merge lists the records and the data files at the same moment. Here another call commits after
the store has answered one of the two, and before it answers the other.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pytest

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.errors import InvalidArgumentError
from fsspeckit.storage import history
from fsspeckit.testing.object_stores import asked_by, moto

if TYPE_CHECKING:
    from collections.abc import Callable

    from werkzeug.wrappers import Request, Response

    from fsspeckit.testing.object_stores import Answer

pytestmark = pytest.mark.slow
Listing = Literal["files", "control"]
SUFFIXES: dict[Listing, str] = {"files": "lake/data/", "control": "lake/.data.fsspeckit/"}
EITHER = pytest.mark.parametrize("first", SUFFIXES)


@dataclass
class Between:
    """Answers one listing of a dataset, then lets something happen, then answers the other."""

    first: Listing
    work: Callable[[], object]
    happened: int = 0
    _answered: threading.Event = field(default_factory=threading.Event)

    def __call__(self, request: Request, answer: Answer) -> Response:
        asked = asked_by(request)
        if self.happened or asked.action != "ListObjectsV2":
            return answer()
        if asked.key == SUFFIXES[self.first]:
            response = answer()
            self._answered.set()
            return response
        assert self._answered.wait(20), "both listings are requested at the same moment"
        self.happened += 1
        self.work()
        return answer()


@pytest.fixture
def path() -> str:
    return f"s3://{moto().make_bucket()}/lake/data"


def engine() -> PyarrowDatasetIO:
    return PyarrowDatasetIO(storage_options=moto().options)


def rows(**values: int) -> pa.Table:
    return pa.table({"id": [*values], "value": pa.array([*values.values()], pa.int64())})


def stored(path: str) -> dict[str, int]:
    with engine() as reader:
        found = reader.read_dataset(path)
    return dict(zip(found["id"].to_pylist(), found["value"].to_pylist(), strict=True))


@EITHER
def test_rows_of_both_commits_are_there(path: str, first: Listing) -> None:
    with engine() as mine, engine() as other:
        other.write_dataset(rows(a=0, b=0, c=0), path)
        between = Between(first, lambda: other.merge(rows(a=1), path, "upsert", ["id"]))
        with moto().following(between):
            merged = mine.merge(rows(b=2), path, "upsert", ["id"])
    assert between.happened == 1
    assert (merged.updated, merged.metrics["commit"]["number"]) == (1, 3)
    assert stored(path) == {"a": 1, "b": 2, "c": 0}


@EITHER
def test_a_row_that_was_inserted_meanwhile_is_updated(path: str, first: Listing) -> None:
    """On the state before there would be nothing to do, and so no commit that finds it out."""
    with engine() as mine, engine() as other:
        other.write_dataset(rows(a=0), path)
        between = Between(first, lambda: other.merge(rows(z=0), path, "insert", ["id"]))
        with moto().following(between):
            merged = mine.merge(rows(z=1), path, "update", ["id"])
    assert (between.happened, merged.updated) == (1, 1)
    assert stored(path) == {"a": 0, "z": 1}


@EITHER
def test_a_row_that_was_deleted_meanwhile_is_inserted(path: str, first: Listing) -> None:
    with engine() as mine, engine() as other:
        other.write_dataset(rows(a=0, b=0), path)
        between = Between(first, lambda: other.delete(["a"], path, "id"))
        with moto().following(between):
            merged = mine.merge(rows(a=1), path, "insert", ["id"])
    assert (between.happened, merged.inserted) == (1, 1)
    assert stored(path) == {"a": 1, "b": 0}


@EITHER
def test_nothing_is_refused_because_of_a_state_that_is_over(path: str, first: Listing) -> None:
    with engine() as mine, engine() as other:
        between = Between(first, lambda: other.write_dataset(rows(a=0), path))
        with moto().following(between):
            merged = mine.merge(rows(a=1), path, "update", ["id"])
    assert (between.happened, merged.updated) == (1, 1)
    assert stored(path) == {"a": 1}


@EITHER
def test_what_is_refused_for_the_state_that_there_is_stays_refused(
    path: str, first: Listing
) -> None:
    between = Between(first, lambda: None)
    with (
        engine() as mine,
        moto().following(between),
        pytest.raises(InvalidArgumentError, match="holds no data files"),
    ):
        mine.merge(rows(a=1), path, "update", ["id"])
    assert between.happened == 1
    bucket = path.split("/")[2]
    assert moto().client().list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_a_merge_without_effect_leaves_no_record(path: str) -> None:
    with engine() as mine:
        mine.write_dataset(rows(a=0), path)
        merged = mine.merge(rows(a=1), path, "insert", ["id"])
    assert (merged.inserted, merged.metrics["commit"]["number"]) == (0, 1)
    assert len(history(path, storage_options=moto().options)) == 1
