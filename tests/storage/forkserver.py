"""A small process that forks children, which run one thing and die where they are told to.

Started as ``python -m tests.storage.forkserver``. It has pyarrow loaded and no threads, so a child
costs milliseconds. Requests and answers are lines of JSON.
"""

from __future__ import annotations

import gc
import io
import json
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from fsspec.implementations.arrow import ArrowFSWrapper
from pyarrow.fs import LocalFileSystem
from tests.storage.scenario import (
    NOTHING,
    SCENARIOS,
    fresh,
    parquet_bytes,
    rewrite,
    run_commit,
)

from fsspeckit.storage import Transaction, open_storage, recover_storage
from fsspeckit.storage.fs import syscalls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fsspeckit.storage import Call

DIED = 77
KNOWN = {**SCENARIOS, NOTHING.name: NOTHING}


class Killer:
    """Counts the calls that change the disk, and dies before, in the middle of, or after one."""

    def __init__(self, at: int | None = None, when: str = "before") -> None:
        self.count = 0
        self.calls: list[str] = []
        self._at = at
        self._when = when

    @contextmanager
    def __call__(self, call: Call) -> Iterator[None]:
        index = self.count
        self.count += 1
        self.calls.append(call.name)
        if index == self._at and self._when == "before":
            os._exit(DIED)
        if index == self._at and self._when == "torn" and call.data:
            os.write(call.descriptor, call.data[: len(call.data) // 2])
            os._exit(DIED)
        try:
            yield
        finally:
            if index == self._at:
                os._exit(DIED)


def act(request: dict[str, Any]) -> None:
    """Do what a child is for."""
    options: dict[str, Any] = {"publish": request.get("publish", "auto")}
    if request.get("generic"):
        options["filesystem"] = ArrowFSWrapper(LocalFileSystem())
    if request["action"] == "commit":
        if request.get("transaction"):
            options["transaction"] = Transaction(*request["transaction"])
        options["tombstones"] = request.get("tombstones")
        run_commit(KNOWN[request["scenario"]], request["root"], **options)
    elif request["action"] == "rewrite":
        rewrite(request["root"], request["version"], below=request.get("below"), **options)
    else:
        recover_storage(open_storage(request["root"], **options))


def _child(request: dict[str, Any], answer: int, act: Callable[[dict[str, Any]], None]) -> None:
    code = 1
    try:
        killer = Killer(request.get("kill"), request.get("when", "before"))
        with syscalls.observed(killer):
            act(request)
        os.write(answer, json.dumps({"calls": killer.calls}).encode())
        code = 0
    except BaseException as error:  # the parent must hear of everything
        os.write(answer, json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
    finally:
        os._exit(code)


def _serve(request: dict[str, Any]) -> dict[str, Any]:
    if request.get("fresh"):
        fresh(KNOWN[request["scenario"]], os.path.dirname(request["root"]))
    if before := request.pop("after", None):  # a child that dies before this one begins
        _serve({**request, **before})
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _child(request, writing, act)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    return {"exit": os.waitstatus_to_exitcode(status), **json.loads(answer or b"{}")}


def _warm_up() -> None:
    """Prepare what every child would have to prepare for itself."""
    for scenario in SCENARIOS.values():
        for start in (*scenario.files.values(), *scenario.added.values()):
            for version in ("old", "new"):
                pq.read_metadata(io.BytesIO(parquet_bytes(start, version)))
    gc.freeze()


def main() -> None:
    _warm_up()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_serve(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
