"""A process that runs one system: tasks come in as lines of JSON, results go out the same way.

Imports and a merge into a tiny table happen before the first task is measured. A local system gets
one task in its life; a system on Spark gets all of its tasks, in one warm session.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import traceback
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

import pyarrow as pa

from benchmarks.peers import memory
from benchmarks.peers.digest import digest_of
from benchmarks.peers.protocol import Files, link_tree
from benchmarks.peers.registry import ENTRIES
from benchmarks.peers.tables import WriterProperties, schema_of

if TYPE_CHECKING:
    from benchmarks.peers.protocol import Entry, OnSpark

Task = dict[str, Any]


class Worker:
    """Runs tasks for one system."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._system = entry.load()

    def run(self, task: Task) -> dict[str, Any]:
        """Do one task, by its name."""
        actions = {"versions": self.versions, "make": self.make, "merge": self.merge}
        return actions[task["action"]](task)

    def versions(self, task: Task) -> dict[str, Any]:
        """Which versions are installed here."""
        return {name: version(name) for name in self._entry.packages}

    def make(self, task: Task) -> dict[str, Any]:
        """Make the table where merges will find it, and keep it elsewhere for copies."""
        place, original = Path(task["place"]), Path(task["original"])
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        self._system.make(Files(WriterProperties(**task["layout"]), Path(task["files"])), place)
        original.parent.mkdir(parents=True, exist_ok=True)
        place.rename(original)
        return {}

    def merge(self, task: Task) -> dict[str, Any]:
        """Merge into a fresh copy, read it and check it if asked to."""
        place = Path(task["place"])
        schema, source = schema_of(WriterProperties(**task["layout"])), self._load(task["source"])
        self._fresh(place, Path(task["original"]))
        before = memory.Before(processes=self._entry.jvm, directory=place)
        start = time.perf_counter()
        phases = self._system.merge(place, source, task["strategy"])
        seconds = time.perf_counter() - start
        answer = {"seconds": seconds, **asdict(before.used()), "phases": phases or {}}
        if task.get("check", True):
            reading, rows = self._read(place)
            answer |= {"read": reading, "found": asdict(digest_of(rows, schema))}
        shutil.rmtree(place)
        return answer

    def close(self) -> None:
        """Nothing stays behind."""

    def _load(self, path: str) -> Any:
        """The source, as the system gets it."""
        return _source(path)

    def _fresh(self, place: Path, original: Path) -> None:
        shutil.rmtree(place, ignore_errors=True)
        link_tree(original, place)
        os.sync()  # what others have left to write must not wait for our fsync

    def _read(self, place: Path) -> tuple[float, pa.Table]:
        """How long a full read takes, and what it gives."""
        start = time.perf_counter()
        rows = self._system.read(place)
        return time.perf_counter() - start, rows


class SparkWorker(Worker):
    """Runs tasks for one system in a session."""

    def __init__(self, entry: Entry) -> None:
        super().__init__(entry)
        self._session: OnSpark = self._system

    def versions(self, task: Task) -> dict[str, Any]:
        """Which versions are installed here, and run in the session."""
        return super().versions(task) | self._session.versions()

    def close(self) -> None:
        """End the session."""
        self._session.close()

    def _load(self, path: str) -> Any:
        return self._session.frame(_source(path))

    def _fresh(self, place: Path, original: Path) -> None:
        super()._fresh(place, original)
        self._session.prepare(place)

    def _read(self, place: Path) -> tuple[float, pa.Table]:
        start = time.perf_counter()
        self._session.read(place)
        return time.perf_counter() - start, self._session.fetch(place)


def _source(path: str) -> pa.Table:
    with pa.memory_map(path) as mapped, pa.ipc.open_file(mapped) as reader:
        # Into memory of its own: a mapped source would count when it is touched first.
        return pa.Table.from_batches(
            [_copied(batch) for batch in map(reader.get_batch, range(reader.num_record_batches))]
        )


def _copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch()


def main(name: str) -> None:
    """Answer each line of standard input with a line of standard output."""
    out = answers()
    entry = ENTRIES[name]
    serve(SparkWorker(entry) if entry.jvm else Worker(entry), out)


class Runs(Protocol):
    """Whoever runs tasks."""

    def run(self, task: Task) -> dict[str, Any]:
        """Do one task, by its name."""
        ...

    def close(self) -> None:
        """Called after the last task."""
        ...


def serve(worker: Runs, out: TextIO) -> None:
    """Answer each line of standard input, until there is none."""
    for line in sys.stdin:
        print(json.dumps(_answer(worker, json.loads(line))), file=out, flush=True)
    worker.close()


def _answer(worker: Runs, task: Task) -> dict[str, Any]:
    try:
        return worker.run(task)
    except Exception as error:  # whatever a peer raises is its result
        traceback.print_exc()
        first = str(error).strip().partition("\n")[0]
        return {"error": f"{type(error).__name__}: {first}"}


def answers() -> TextIO:
    """Standard output for answers alone: what libraries print goes to standard error."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return out


if __name__ == "__main__":
    main(sys.argv[1])
