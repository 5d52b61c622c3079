"""A process of one checkout: tasks come in as lines of JSON, what they took goes out the same way.

Its ``PYTHONPATH`` chooses the checkout. Only public calls are used, since modules move.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

import fsspeckit
from benchmarks.peers.tables import KEY
from benchmarks.spark_session import local_session

if TYPE_CHECKING:
    from collections.abc import Callable

Task = dict[str, Any]


class Runner:
    """Runs tasks on one engine."""

    def __init__(self, engine: str) -> None:
        if engine == "spark":
            from fsspeckit.datasets.spark import SparkDatasetIO

            self._spark = local_session("compare")
            self._io: Any = SparkDatasetIO(self._spark)
            self._load: Callable[[str], Any] = self._spark.read.parquet
        else:
            from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

            self._io = PyarrowDatasetIO()
            self._load = cache(pq.read_table)

    def run(self, task: Task) -> dict[str, float]:
        """Plan or merge, and return the seconds on the clock and of the processor."""
        source = self._load(task["source"])
        call = self._plan if task["action"] == "plan" else self._merge
        gc.collect()
        start, used = time.perf_counter(), time.process_time()
        found = call(source, task["path"], task["strategy"], [KEY])
        seconds, cpu = time.perf_counter() - start, time.process_time() - used
        expected = tuple(task["expected"])
        assert found == expected, f"{task['path']}: {found}, not {expected}"
        return {"seconds": seconds, "cpu": cpu}

    def _merge(self, *arguments: Any) -> tuple[int, int]:
        result = self._io.merge(*arguments)
        return result.updated, result.inserted

    def _plan(self, source: Any, path: str, strategy: str, keys: list[str]) -> tuple[int, int]:
        """Planning counts no rows; the files that it chooses must be as many as expected."""
        plan = self._io.plan_merge(source, path, strategy, keys)
        return sum(file.decision == "affected" for file in plan.files), 0


def main(engine: str) -> None:
    """Answer tasks until there are no more; what libraries print goes to standard error."""
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        runner = Runner(engine)
        print(json.dumps({"from": os.path.dirname(fsspeckit.__file__)}), file=answers, flush=True)
        for line in sys.stdin:
            print(json.dumps(runner.run(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
