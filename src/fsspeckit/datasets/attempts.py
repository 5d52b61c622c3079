"""Attempts: work on a snapshot of a dataset that others may change meanwhile."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from fsspeckit.errors import ConcurrentModificationError
from fsspeckit.storage.recovery import take_snapshot
from fsspeckit.storage.snapshot import list_snapshot
from fsspeckit.storage.staging import staging

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fsspeckit.datasets.engine import OpenStage
    from fsspeckit.storage.roots import Root
    from fsspeckit.storage.snapshot import Snapshot
    from fsspeckit.storage.staging import StagedFile
    from fsspeckit.storage.store import Storage

__all__ = ["complete", "lazy_staging", "retried"]

_ATTEMPTS = 10
_T = TypeVar("_T")


@contextmanager
def lazy_staging(storage: Storage) -> Iterator[OpenStage]:
    """A staging directory that is created when it is first asked for."""
    with ExitStack() as stack:
        yield cache(lambda: stack.enter_context(staging(storage)))


def retried(storage: Storage, run: Callable[[Snapshot], _T]) -> _T:
    """Work on a snapshot; start again where somebody removes its files meanwhile.

    Raises:
        ConcurrentModificationError: If that happens too often.
    """
    for _ in range(_ATTEMPTS):
        snapshot = take_snapshot(storage)
        try:
            return run(snapshot)
        except FileNotFoundError as error:
            if not snapshot.compare(list_snapshot(storage)[0]):
                raise
            vanished = error
    raise ConcurrentModificationError(
        f"{storage.root.spelled(storage.root.path)!r} is changed by others faster than it can be "
        "read. Nothing was changed by this call.\nHint: repeat it."
    ) from vanished


def complete(root: Root, file: StagedFile, rows: int) -> StagedFile:
    """A staged file with what it must be when it is published."""
    return replace(file, rows=rows, size=root.filesystem.size(file.path))
