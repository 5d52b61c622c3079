"""A merge in another process, killed in the middle of its commit."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import fsspeckit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection


@dataclass(frozen=True)
class Job:
    """A merge for another process to begin."""

    changes: str
    """The directory of a batch that landed."""

    dataset: str
    key_columns: Sequence[str]
    engine: str


def merge_and_kill(job: Job, progress: Callable[[str, int, int], None]) -> signal.Signals:
    """Begin a merge in a new process and kill it once its commit is recorded but not complete.

    Args:
        job: The merge.
        progress: Called with how far the other process is.

    Returns:
        The signal that ended the process.

    Raises:
        RuntimeError: If the process ended by itself.
    """
    here, there = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    child = context.Process(target=_merge_until_committed, args=(job, there))
    child.start()
    there.close()  # or the end of the child would never be seen here
    try:
        while (report := here.recv()) is not None:
            progress(*report)
    except EOFError:
        raise RuntimeError("the merge ended before it could be killed") from None
    finally:
        child.kill()
        child.join()
    return signal.Signals(-(child.exitcode or 0))


def _merge_until_committed(job: Job, parent: Connection) -> None:
    """Merge; stop for ever in the middle of the commit."""
    watch = _Watch(job.dataset, parent)

    def progress(phase: str, done: int, total: int) -> None:
        parent.send((phase, done, total))
        if (phase, done) == ("commit", 0):
            sys.addaudithook(watch)

    fsspeckit.merge(
        fsspeckit.read_dataset(job.changes, engine=job.engine),
        job.dataset,
        "upsert",
        job.key_columns,
        engine=job.engine,
        progress=progress,
    )


class _Watch:
    """Sees, at every call that Python audits, whether the commit is recorded; then it stops.

    A commit is over in milliseconds, so somebody who looks from outside would mostly miss it. The
    kill comes from outside all the same.
    """

    def __init__(self, dataset: str, parent: Connection) -> None:
        self._dataset = dataset
        self._parent = parent
        self._busy = False

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        # Looking is audited, too; and only the thread that commits must be the one to stop.
        if self._busy or threading.current_thread() is not threading.main_thread():
            return
        self._busy = True
        if not fsspeckit.history(self._dataset)[-1].complete:
            self._parent.send(None)
            self._parent.recv()  # for ever, or until the parent itself is gone
        self._busy = False
