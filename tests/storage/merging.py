"""A small process that forks children, which merge into an object store until they are killed.

Started as ``python -m tests.storage.merging <module>``, the module of the filesystem. It has loaded
all that a child needs and has no threads, so a child begins to merge at once. A child writes one
byte for each merge that has returned. Its exit code says how the last one ended.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

import pyarrow as pa

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.errors import CommitPendingError, CommitUnknownError
from fsspeckit.storage.commit import lock

KEYS = 12
"""How many rows the dataset has; merges change some of them, and add none."""

Rows = dict[int, int]


def changes(number: int, writer: int, writers: int) -> Rows:
    """The rows of a merge: two keys, each of which only one writer changes."""
    own = range(writer, KEYS, writers)
    return {own[step % len(own)]: number for step in (number, 5 * number + 1)}


def table(rows: Rows) -> pa.Table:
    return pa.table({"id": list(rows), "v": list(rows.values())})


def seem_to_be_on(host: str) -> None:
    """Describe this process to other writers as one of another machine."""
    lock._namespace = lambda: f"kernel of {host}"
    lock.socket.gethostname = lambda: host  # type: ignore[attr-defined]


def merge_on(request: dict[str, Any], answer: int) -> None:
    """Merge as often as is asked for, and report each merge."""
    with PyarrowDatasetIO(storage_options=request["options"], lock_timeout=120) as io:
        for number in range(request["start"], request["end"]):
            rows = changes(number, request["writer"], request["writers"])
            io.merge(table(rows), request["path"], "upsert", ["id"])
            os.write(answer, b".")


def main() -> None:
    importlib.import_module(sys.argv[1])
    for line in sys.stdin:
        if line == "wait\n":
            sys.stdout.write(f"{os.waitstatus_to_exitcode(os.wait()[1])}\n")
        else:
            request = json.loads(line)
            if (child := os.fork()) == 0:
                code = 1
                try:
                    if host := request.get("host"):
                        seem_to_be_on(host)
                    merge_on(request, request["answer"])
                    code = 0
                except CommitPendingError as error:
                    code = 3 if isinstance(error, CommitUnknownError) else 2
                finally:
                    os._exit(code)
            sys.stdout.write(f"{child}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
