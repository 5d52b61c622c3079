"""A writer in a process of its own that halts at a named step of its commit.

Started as ``python -m tests.storage.writer '<json>'``. It prints a line when it has reached the
step, and goes on when a line comes in; or it stops itself with a signal.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fsspec.implementations.arrow import ArrowFSWrapper
from pyarrow.fs import LocalFileSystem
from tests.storage.scenario import FACTS, first_id, parquet_bytes, put

from fsspeckit.errors import CommitPendingError, ConcurrentModificationError, LockTimeoutError
from fsspeckit.storage import (
    Difference,
    FileChanges,
    Snapshot,
    Stage,
    Storage,
    commit,
    open_storage,
    staging,
    take_snapshot,
)
from fsspeckit.storage.fs import syscalls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fsspeckit.storage import Call

_STEPS = {
    "lock": r"flock .*/lock$",
    "shadow": r"rename .*/manifest\.json$",
    "record": r"(rename_new|pipe_file) .*/commits/\d{10}\.json$",
    "publish": r"(exchange|rename_new|cp_file) .*/data(/[^.]*\.parquet)?$",
    "trash": r"rename_new .*\.trash$",
    "done": r"(rename|pipe_file) .*\.done\.json$",
}


@dataclass(frozen=True)
class Plan:
    """What a writer does, and where it halts."""

    root: str
    replaces: int | None
    """The first id of the file that it replaces; None to add a file only."""

    adds: int = 500
    """The first id of the file that it adds or puts in place of the other."""

    version: str = "mine"
    step: str | None = None
    how: str = "wait"
    replan: bool = False
    generic: bool = False
    """Whether to take a filesystem without locks and renames."""

    publish: Any = "auto"
    lock_timeout: float = 30.0

    def open(self) -> Storage:
        filesystem = ArrowFSWrapper(LocalFileSystem()) if self.generic else None
        return open_storage(
            self.root, filesystem, publish=self.publish, lock_timeout=self.lock_timeout
        )


class Halting:
    """Halts once, after the call that ends a step."""

    def __init__(self, plan: Plan) -> None:
        self._pattern = _STEPS.get(plan.step or "", "$^")
        self._how = plan.how
        self._halted = False

    @contextmanager
    def __call__(self, call: Call) -> Iterator[None]:
        yield
        if not self._halted and re.match(self._pattern, f"{call.name} {call.paths[-1]}"):
            self.halt()

    def halt(self) -> None:
        self._halted = True
        if self._how == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            sys.stdout.write("halted\n")
            sys.stdout.flush()
            sys.stdin.readline()


def make_change(plan: Plan, storage: Storage, stage: Stage, snapshot: Snapshot) -> FileChanges:
    """Replace the file that holds an id, or add one, whatever the files are called now."""
    removes = [
        relative
        for relative in snapshot.by_path
        if plan.replaces is not None and first_id(storage.path(relative)) == plan.replaces
    ]
    start = plan.adds if plan.replaces is None else plan.replaces
    file = put(storage, stage.new_file(), parquet_bytes(start, plan.version))
    return FileChanges([file], removes)


def write(plan: Plan, at_snapshot: Callable[[], object] | None = None) -> dict[str, Any]:
    """Take the whole way; gives the outcome by its type."""
    storage = plan.open()
    snapshot = take_snapshot(storage)
    with staging(storage) as stage:
        change = make_change(plan, storage, stage, snapshot)
        if at_snapshot is not None:
            at_snapshot()

        def replan(current: Snapshot, difference: Difference) -> FileChanges:
            return make_change(plan, storage, stage, current)

        try:
            outcome = commit(
                storage, snapshot, stage, change, FACTS, replan=replan if plan.replan else None
            )
        except LockTimeoutError:
            return {"outcome": "timeout"}
        except ConcurrentModificationError:
            return {"outcome": "conflict"}
        except CommitPendingError:
            return {"outcome": "pending"}
    return {"outcome": "done", "number": outcome.number, "retries": outcome.retries}


def main() -> None:
    plan = Plan(**json.loads(sys.argv[1]))
    halting = Halting(plan)
    with syscalls.observed(halting):
        result = write(plan, halting.halt if plan.step == "snapshot" else None)
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
