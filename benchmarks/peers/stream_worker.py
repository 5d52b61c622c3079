"""A process that streams into one system: tasks and results are lines of JSON."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from benchmarks.peers.registry import ENTRIES
from benchmarks.peers.systems.streams import STREAMS
from benchmarks.peers.worker import Task, answers, serve

if TYPE_CHECKING:
    from benchmarks.peers.systems.streams import Streaming


class StreamWorker:
    """Runs tasks for one system, in one session."""

    def __init__(self, system: Streaming, packages: tuple[str, ...]) -> None:
        self._system, self._packages = system, packages

    def run(self, task: Task) -> dict[str, Any]:
        """Do one task, by its name."""
        place = Path(task.get("place", ""))
        if task["action"] == "versions":
            return {name: version(name) for name in self._packages} | self._system.versions()
        if task["action"] == "make":
            place.mkdir(parents=True)
            self._system.make_table(Path(task["files"]), place)
            return {}
        if task["action"] == "stream":
            return {"batches": self._system.stream(Path(task["landing"]), place)}
        if task["action"] == "rows":
            pq.write_table(self._system.fetch(place), task["out"])
            return {}
        raise ValueError(task["action"])

    def close(self) -> None:
        """End the session."""
        self._system.close()


def main(name: str) -> None:
    """Answer each line of standard input with a line of standard output."""
    out = answers()
    serve(StreamWorker(STREAMS[name](), ENTRIES[name].packages), out)


if __name__ == "__main__":
    main(sys.argv[1])
