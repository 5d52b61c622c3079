"""Progress of jobs: how many tasks have ended while an action runs, on both kinds of session."""

from __future__ import annotations

import logging
import os
import threading
import uuid
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from pyspark import inheritable_thread_target
from pyspark.sql import is_remote

from fsspeckit.core.threads import ThreadPool
from fsspeckit.display import report_nothing

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from fsspeckit.datasets.pipeline import Progress

__all__ = ["PhaseTasks", "Watch", "call_counting_tasks", "open_watch"]

logger = logging.getLogger("fsspeckit.spark")

_POLL_SECONDS = 0.2
_GROUP = "spark.jobGroup.id"
_R = TypeVar("_R")


class PhaseTasks:
    """Reports the tasks of all jobs of one phase; neither number ever decreases.

    Stages of a job that have not begun are not counted, so that the total may grow. One task alone
    is not reported: the phase itself reports 0 of 1 and 1 of 1.

    Args:
        phase: The name of the phase.
        progress: Called with phase, tasks that have ended, and tasks.
    """

    def __init__(self, phase: str, progress: Progress) -> None:
        self.is_wanted = progress is not report_nothing
        self._phase = phase
        self._progress = progress
        self._before = 0
        self._done = self._total = 0

    def begin(self, tasks: int) -> None:
        """Begin a job of at least so many tasks; all those of the jobs before it have ended."""
        self._before = self._total
        self.count(0, tasks)

    def count(self, done: int, total: int) -> None:
        """Report how many tasks of the current job have ended."""
        last = self._done, self._total
        self._total = max(self._total, self._before + total)
        self._done = max(self._done, min(self._before + done, self._total))
        if self._total > 1 and last != (self._done, self._total):
            self._progress(self._phase, self._done, self._total)

    def end(self) -> None:
        """Report that all tasks have ended."""
        self.count(self._total, 0)


class Watch(Protocol):
    """Counts the tasks of one action; a context manager."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...

    def run(self, action: Callable[[], _R]) -> _R:
        """Run the action in this thread, which is not the caller's own."""
        ...

    def counts(self) -> tuple[int, int] | None:
        """Return how many tasks have ended and how many there are; None if that is not known."""
        ...

    def cancel(self) -> None:
        """Cancel the jobs of the action."""
        ...


def open_watch(spark: SparkSession, is_connect: bool) -> Watch | None:
    """Return what counts the tasks of an action; None if this session does not allow it.

    Without pinned threads, or if this process counts as a Connect client although the session is
    not one, the properties of the caller's thread would not reach jobs of another thread.
    """
    if is_connect:
        return _ConnectWatch(spark)
    if is_remote() or os.environ.get("PYSPARK_PIN_THREAD", "true").lower() != "true":
        return None
    try:
        return _ClassicWatch(spark)
    except Exception:  # whatever happens to the tracker, the merge goes on
        logger.debug("the tasks cannot be counted", exc_info=True)
        return None


def call_counting_tasks(
    watch: Watch, action: Callable[[], _R], tasks: PhaseTasks, known: int
) -> _R:
    """Run an action in another thread, and report its tasks in the caller's own.

    What a caller does on progress, such as drawing or raising, belongs to the thread in which it
    called. If that raises, the jobs are cancelled and have ended before the error goes on.

    Args:
        watch: Counts the tasks of the action.
        action: Runs jobs, and returns when they have ended.
        tasks: What is reported.
        known: How many tasks the action has at least.
    """
    tasks.begin(known)
    ended: SimpleQueue[None] = SimpleQueue()

    def run() -> _R:
        try:
            return watch.run(action)
        finally:
            ended.put(None)

    with watch, ThreadPool(1, "fsspeckit-job") as pool:
        try:
            running = pool.submit(run)
            while not _has_ended(ended):
                if (counts := watch.counts()) is not None:
                    tasks.count(*counts)
        except BaseException:  # Ctrl-C, too: no task may write when the staging directory is gone
            watch.cancel()
            while not _has_ended(ended):  # a query may be between two of its jobs
                watch.cancel()
            raise
        found = running.result()
    tasks.end()
    return found


def _has_ended(ended: SimpleQueue[None]) -> bool:
    """Wait for a moment, and return whether the action has ended."""
    try:
        ended.get(timeout=_POLL_SECONDS)
    except Empty:
        return False
    return True


class _ClassicWatch:
    """Asks the status tracker of a classic session about the jobs of a group.

    The group is the caller's own if there is one, so that it can still be cancelled as a whole;
    other jobs that are started in it meanwhile are then counted, too.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._inherit = inheritable_thread_target(spark)
        self._tag = f"fsspeckit-{uuid.uuid4().hex}"
        given = self._context.getLocalProperty(_GROUP)
        self._group = given or self._tag
        self._others = set(self._job_ids()) if given else set[int]()
        self._ended: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None: ...

    def run(self, action: Callable[[], _R]) -> _R:
        def tagged() -> _R:
            # In a thread that ends with the action: nothing has to be taken away again.
            self._context.setLocalProperty(_GROUP, self._group)
            self._context.addJobTag(self._tag)
            return action()

        found: _R = self._inherit(tagged)()
        return found

    def counts(self) -> tuple[int, int] | None:
        try:
            return self._counts()
        except Exception:  # whatever happens to the tracker, the merge goes on
            logger.debug("the tasks cannot be counted", exc_info=True)
            return None

    def _counts(self) -> tuple[int, int] | None:
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in self._job_ids() if job not in self._others]
        stages = {stage for job in jobs if job is not None for stage in job.stageIds}
        done, total = sum(self._ended.values()), sum(self._ended.values())
        for number in stages - set(self._ended):
            stage = tracker.getStageInfo(number)
            # A stage that waits may be skipped, because its result is there already.
            if stage is not None and (stage.numActiveTasks or stage.numCompletedTasks):
                done += stage.numCompletedTasks
                total += stage.numTasks
                if stage.numCompletedTasks == stage.numTasks:
                    self._ended[number] = stage.numTasks
        return (done, total) if total else None

    def _job_ids(self) -> list[int]:
        return self._context.statusTracker().getJobIdsForGroup(self._group)

    def cancel(self) -> None:
        with suppress(Exception):  # the error that made the caller cancel goes on
            self._context.cancelJobsWithTag(self._tag)


class _ConnectWatch:
    """Listens to what the server of a Connect session sends about the stages of an action."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._tag = f"fsspeckit-{uuid.uuid4().hex}"
        self._tags = {*spark.getTags(), self._tag}
        self._thread: int | None = None
        self._counts: tuple[int, int] | None = None
        self._handler: Any = self._handle  # a function is enough, whatever the signature says

    def __enter__(self) -> Self:
        self._spark.registerProgressHandler(self._handler)
        return self

    def __exit__(self, *exception: object) -> None:
        with suppress(ValueError):  # the user may have removed all handlers
            self._spark.removeProgressHandler(self._handler)

    def run(self, action: Callable[[], _R]) -> _R:
        self._thread = threading.get_ident()
        for tag in self._tags:  # which a thread has of its own
            self._spark.addTag(tag)
        return action()

    def _handle(self, stages: Any = None, **_: Any) -> None:
        # Called in the thread that waits for a server, for actions of other threads, too.
        if stages and threading.get_ident() == self._thread:
            listed = list(stages)
            done = sum(stage.num_completed_tasks for stage in listed)
            self._counts = done, sum(stage.num_tasks for stage in listed)

    def counts(self) -> tuple[int, int] | None:
        return self._counts

    def cancel(self) -> None:
        with suppress(Exception):  # the error that made the caller cancel goes on
            self._spark.interruptTag(self._tag)
