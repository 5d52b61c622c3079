"""Incoming rows: files that tasks of a query write, and that the commit of their batch reads.

Tasks of a stream run before there is a process that could own a staging directory. So they write
into the control directory under the name of their query and batch::

    incoming/<query>/<batch>/<task>_<id>.staged

A name is new each time: a task that runs twice writes two files, and only those that messages of
successful tasks name are read. The commit of a batch removes its files and those of earlier batches
of the same query, whoever wrote them. What a query leaves that never runs again is removed by
recovery when it is a week old. The files are input: no record names them, and losing one before the
commit makes the query repeat the batch.
"""

from __future__ import annotations

import hashlib
import re
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from fsspeckit.storage.storage import STAGED_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fsspeckit.storage.storage import Storage

INCOMING = "incoming"
"""The name of the directory in the control directory."""

MAX_INCOMING_SECONDS = 7 * 24 * 3600.0
"""How long files stay that no commit has removed."""

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")
_BATCH = re.compile(r"^\d{10,}$")
_MAX_ATTEMPTS = 5


@dataclass(frozen=True, repr=False)
class IncomingBatch:
    """Where the rows of one batch of a query arrive."""

    storage: Storage
    """The dataset that they are for."""

    query: str
    """The id of the query; any text."""

    batch: int
    """The number of the batch."""

    @property
    def path(self) -> str:
        """The canonical path of its directory."""
        return f"{self._query_path}/{self.batch:010}"

    @property
    def _query_path(self) -> str:
        return self.storage.control.at(INCOMING, _component(self.query))

    def new_file(self, task: str = "part") -> str:
        """Name a new file that no other attempt of the task has."""
        return f"{self.path}/{_component(task)}_{uuid.uuid4().hex}{STAGED_SUFFIX}"

    def open(self, path: str) -> IO[bytes]:
        """Open a new file for writing, and create its directory.

        A commit of another batch may remove directories that are empty just now.
        """
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            with suppress(FileNotFoundError if attempt < _MAX_ATTEMPTS else ()):
                with self.storage.writing_control("receiving rows"):
                    self.storage.backend.make_directories(self.path)
                handle: IO[bytes] = self.storage.root.filesystem.open(path, "wb")
                return handle
        raise AssertionError  # the last attempt returns or raises

    def discard_files(self, paths: Iterable[str]) -> None:
        """Remove files of this batch that are not needed; what is elsewhere is left alone."""
        for path in paths:
            if path.startswith(f"{self.path}/"):
                with suppress(OSError):  # a later commit removes it
                    self.storage.backend.discard(path)
        _discard_empty(self.storage, self.path, self._query_path)

    def discard(self) -> None:
        """Remove the files of this batch and of earlier ones of its query.

        What cannot be removed now, because a task that nobody needs still writes it, is removed
        with the next batch.
        """
        backend = self.storage.backend
        for name in backend.names(self._query_path):
            if _BATCH.match(name) and int(name) <= self.batch:
                with suppress(OSError):
                    backend.discard_tree(f"{self._query_path}/{name}")
        _discard_empty(self.storage, self._query_path)

    def __repr__(self) -> str:
        return f"IncomingBatch({self.storage.root!r}, {self.query!r}, {self.batch})"


def _component(text: str) -> str:
    """Return a text as one component of a path; one that is not safe is hashed."""
    if _NAME.match(text):
        return text
    return f"sha256-{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()}"


def _discard_empty(storage: Storage, *directories: str) -> None:
    """Remove directories that are empty, and the one of all incoming rows."""
    for directory in (*directories, storage.control.at(INCOMING)):
        with suppress(OSError):
            storage.backend.discard_directory(directory)


def find_abandoned(
    storage: Storage, names: Sequence[str], max_seconds: float = MAX_INCOMING_SECONDS
) -> list[str]:
    """Return what queries have left that never came back, by name in the control directory.

    Args:
        storage: The dataset.
        names: The entries of its control directory.
        max_seconds: How old the newest file of a batch must be. Files whose age the filesystem
            does not report are never old.
    """
    if INCOMING not in names:
        return []
    newest: dict[str, float] = {}
    for path, modified in storage.backend.modified_below(storage.control.at(INCOMING)).items():
        batch = "/".join(path.split("/")[:2])
        seconds = float("inf") if modified is None else modified
        newest[batch] = max(newest.get(batch, seconds), seconds)
    oldest = time.time() - max_seconds
    return sorted(f"{INCOMING}/{batch}" for batch, seconds in newest.items() if seconds < oldest)


def discard_abandoned(storage: Storage, name: str) -> bool:
    """Remove what :func:`find_abandoned` returned; whether nothing is left of it."""
    path = storage.control.at(name)
    if storage.backend.stat(path) is not None:  # a file where a directory is expected
        gone = storage.backend.discard(path)
    else:
        gone = storage.backend.discard_tree(path)
    _discard_empty(storage, path.rpartition("/")[0])
    return gone
