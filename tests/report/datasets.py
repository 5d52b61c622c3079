"""Datasets to report on, and what a model says in a form that is easy to compare."""

from __future__ import annotations

import io
import json
import re
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.storage import CommitFacts, open_storage
from fsspeckit.storage.commit.log import (
    Add,
    CommitRecord,
    Completion,
    Remove,
    mark_complete,
    write_record,
)

if TYPE_CHECKING:
    from fsspeckit.storage import Storage

DATA = re.compile(r'<script type="application/json" id="report-data">(.*?)</script>', re.DOTALL)


def model_of(page: str) -> dict[str, Any]:
    """The model in a page."""
    (text,) = DATA.findall(page)
    found: dict[str, Any] = json.loads(text)
    return found


def paths_of(model: dict[str, Any]) -> list[str]:
    """The paths of all files by their numbers, those that are gone at the end."""
    found = []
    for names in (model["files"], model["gone"]):
        for directory, name in zip(names["directory"], names["name"], strict=True):
            parent = names["directories"][directory]
            found.append(f"{parent}/{name}" if parent else name)
    return found


def named(model: dict[str, Any], runs: list[int]) -> list[str]:
    """The paths of the files of runs."""
    paths = paths_of(model)
    pairs = zip(runs[::2], runs[1::2], strict=True)
    return [paths[number] for start, length in pairs for number in range(start, start + length)]


def decisions(model: dict[str, Any]) -> dict[str, tuple[str | None, str | None]]:
    """The decision about each file, and the kind of its evidence."""
    change = model["change"]
    found: dict[str, tuple[str | None, str | None]] = {}
    for path, decision, why in zip(
        paths_of(model)[: len(change["decision"])],
        change["decision"],
        change["evidence"],
        strict=True,
    ):
        kind = None if why is None else change["evidences"][why]["kind"]
        found[path] = (None if decision is None else change["decisions"][decision], kind)
    return found


def ranges(model: dict[str, Any], axis: int = 0) -> list[tuple[str, str] | None]:
    """The range of each file on an axis, as texts."""
    one = model["axes"][axis]
    texts = one["texts"] or [str(value) for value in one["at"]]
    pairs = zip(one["low"], one["high"], strict=True)
    return [None if low < 0 else (texts[low], texts[high]) for low, high in pairs]


def large_dataset(files: int, commits: int) -> Storage:
    """Make a dataset of very small files, as a history of commits that replace files has left it.

    Each commit adds its share of the files that are there, and as many that the next one replaces.
    """
    storage = open_storage(f"memory://large-{uuid.uuid4().hex}/events")
    paths = [
        f"day=2026-{n % 12 + 1:02}-{n % 28 + 1:02}/part-{n:032x}.parquet" for n in range(files)
    ]
    for number, path in enumerate(paths):
        buffer = io.BytesIO()
        ids = pa.array([number * 1_000_003, number * 1_000_003 + 999], pa.int64())
        pq.write_table(pa.table({"id": ids, "value": [1.5, 2.5]}), buffer)
        storage.root.filesystem.pipe_file(storage.path(path), buffer.getvalue())
    share = files // commits
    replaced: list[str] = []
    for number in range(1, commits + 1):
        new = paths[(number - 1) * share : number * share]
        gone = [f"{path}.{number}.parquet" for path in new]
        work = ["column splice", 1, 3, 1, 11, 20_000, 900_000, 3, 120, [2], [0, 1]]
        count = len(replaced)
        facts = CommitFacts(
            "pyarrow",
            "upsert",
            ("id",),
            {"inserted": share, "updated": 2 * share},
            source_rows=3 * share,
            details={
                "files": files,
                "pruned_by": {"statistics": files - count},
                "seconds": {"plan": 0.1, "match": 0.2, "rewrite": 0.3, "insert": 0.1},
                "rewrites": {str(position): work for position in range(count)},
                "columns": ["value", "note"],
            },
        )
        write_record(
            storage,
            CommitRecord(
                number,
                uuid.uuid4().hex,
                f"2026-03-{number % 28 + 1:02}T{number % 24:02}:00:00.000000+00:00",
                facts,
                1.5,
                "plain",
                f".staging_{number:032}",
                tuple(Add(f"{n}.staged", path, 2, 700) for n, path in enumerate(new + gone)),
                tuple(Remove(path, 700) for path in replaced),
            ),
        )
        mark_complete(storage, number, Completion("plain", 1.5))
        replaced = gone
    return storage
