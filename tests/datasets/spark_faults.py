"""Tasks that go wrong: the engine's own, run by Spark's workers, with a fault after each answer.

A fault happens when a task has done something and is about to tell of it, which is when a file
that must not be used is there. It goes wrong in first attempts only.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from fsspeckit.datasets.spark.session import Jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Fault = Callable[[Any, Any], None]

_PATIENCE = 120.0


class FaultyJobs(Jobs):
    """Jobs whose tasks go wrong while there is a fault."""

    fault: Fault | None = None

    def map_items(
        self, phase: str, stage: Any, function: Any, work: Any, tasks: Any = None
    ) -> list[Any]:
        return super().map_items(phase, stage, self._faulty(function), work, tasks)

    def map_partitions(
        self, phase: str, stage: Any, frame: Any, function: Any, tasks: Any = None
    ) -> list[Any]:
        return super().map_partitions(phase, stage, frame, self._faulty(function), tasks)

    def map_partitions_to_rows(self, frame: Any, function: Any, schema: str) -> Any:
        return super().map_partitions_to_rows(frame, self._faulty(function), schema)

    def map_items_to_rows(self, function: Any, work: Any, schema: Any) -> Any:
        return super().map_items_to_rows(self._faulty(function), work, schema)

    def _faulty(self, function: Any) -> Any:
        return function if self.fault is None else _Faulty(function, self.fault)


@dataclass(frozen=True)
class _Faulty:
    function: Any
    fault: Fault

    def __call__(self, given: Any) -> Iterator[Any]:
        for answer in self.function(given):
            self.fault(self.function, answer)
            yield answer


@dataclass(frozen=True)
class FailFirst:
    """First attempts fail, in every phase; one that has rewritten a file leaves half of it.

    Every other task does, since each that fails takes its process along.
    """

    directory: str
    """Where it is noted which files those are."""

    def __call__(self, task: Any, answer: Any) -> None:
        if _attempt() > 0 or _context().partitionId() % 2:
            return
        if (file := _rewritten(task, answer)) is not None:
            os.truncate(file, os.path.getsize(file) // 2)
            with open(Path(self.directory) / "left", "a", encoding="utf-8") as notes:
                notes.write(f"{file}\n")
        raise OSError("the disk has failed")


@dataclass(frozen=True)
class HangOnce:
    """The first task that has rewritten a file never tells of it, and hangs until it is ended."""

    directory: str
    """Where it is noted which process hangs, and what it has written."""

    def __call__(self, task: Any, answer: Any) -> None:
        file = _rewritten(task, answer)
        if file is None or _attempt() > 0 or not _is_first(f"{self.directory}/claimed"):
            return
        note = Path(self.directory) / "note"
        note.write_text(json.dumps({"process": os.getpid(), "file": file}))
        note.rename(note.with_name("hangs"))
        time.sleep(_PATIENCE)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None
    return context


def _attempt() -> int:
    return _context().attemptNumber()


def _rewritten(task: Any, answer: Any) -> str | None:
    """The new file, if this is a task that rewrites files."""
    if type(task).__name__ != "RewriteFiles":
        return None
    path: str | None = answer[1].path
    return path


def _is_first(mark: str) -> bool:
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
