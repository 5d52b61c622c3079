"""What a piece of work takes of a Spark session: jobs, stages, tasks, and workers that start."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

_GROUP = "spark.jobGroup.id"


@dataclass(frozen=True)
class Counts:
    """How much was started."""

    jobs: int
    stages: int
    """As many as there are jobs, if nothing is shuffled."""

    tasks: int
    workers: int
    """Python processes that were not there before."""


def count(spark: SparkSession, work: Callable[[], Any]) -> Counts:
    """Do some work in this thread, in a session of this machine, and count what it starts.

    The counts are Spark's own; workers are the processes that its daemon has forked.
    """
    context = spark.sparkContext
    group = uuid.uuid4().hex
    before = _workers(spark)
    context.setLocalProperty(_GROUP, group)
    try:
        work()
    finally:
        # None takes the property away again, whatever the signature says.
        context.setLocalProperty(_GROUP, None)  # type: ignore[arg-type]
    after = _workers(spark)
    _context_of_java(spark).listenerBus().waitUntilEmpty()
    told = context.statusTracker()
    jobs = [told.getJobInfo(number) for number in told.getJobIdsForGroup(group)]
    numbers = {number for job in jobs if job is not None for number in job.stageIds}
    stages = [info for number in numbers if (info := told.getStageInfo(number)) is not None]
    tasks = sum(stage.numTasks for stage in stages)
    return Counts(len(jobs), len(stages), tasks, len(after - before))


def start_workers(spark: SparkSession, cores: int) -> None:
    """See that each core has a worker: all are busy at once."""

    def wait(batches: Any) -> Any:
        import time

        time.sleep(2)
        yield from batches

    spark.range(0, cores, 1, cores).mapInArrow(wait, "id bigint").collect()


def _context_of_java(spark: SparkSession) -> Any:
    context: Any = spark.sparkContext
    return context._jsc.sc()


def _workers(spark: SparkSession) -> set[int]:
    """The workers that run: Java starts a daemon, which forks them."""
    context: Any = spark.sparkContext
    children: dict[int, set[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            children.setdefault(_parent(entry), set()).add(int(entry.name))
    daemons = children.get(context._gateway.proc.pid, set())
    return {pid for daemon in daemons for pid in children.get(daemon, ())}


def _parent(process: Path) -> int:
    try:
        status = (process / "status").read_text()
    except OSError:
        return 0  # it has ended meanwhile
    return int(status.split("PPid:")[1].split()[0])
