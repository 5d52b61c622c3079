"""Attempts: work on a snapshot of a dataset that others may change meanwhile."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from fsspeckit.errors import ConcurrentModificationError
from fsspeckit.storage.commit.recovery import take_snapshot
from fsspeckit.storage.commit.staging import staging
from fsspeckit.storage.snapshot import list_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fsspeckit.datasets.engine import OpenStage
    from fsspeckit.storage.commit.staging import StagedFile
    from fsspeckit.storage.roots import Root
    from fsspeckit.storage.snapshot import Difference, Snapshot
    from fsspeckit.storage.storage import Storage

__all__ = ["MOST_PLANS", "Patience", "complete", "lazy_staging", "retried"]

_PLANS_IN_ANY_CASE = 3
MOST_PLANS = 1000
"""No change is planned more often than this, whatever the time."""

_T = TypeVar("_T")


@contextmanager
def lazy_staging(storage: Storage) -> Iterator[OpenStage]:
    """A staging directory that is created when it is first asked for."""
    with ExitStack() as stack:
        yield cache(lambda: stack.enter_context(staging(storage)))


def retried(
    storage: Storage,
    run: Callable[[Snapshot], _T],
    snapshot_of: Callable[[Storage], Snapshot] = take_snapshot,
) -> _T:
    """Work on a snapshot; start again where somebody removes its files meanwhile.

    Raises:
        ConcurrentModificationError: If that happens too often.
    """
    patience = Patience(storage)
    while True:
        snapshot = snapshot_of(storage)
        try:
            return run(snapshot)
        except FileNotFoundError as error:
            difference = snapshot.compare(list_snapshot(storage)[0])
            if not difference:
                raise
            patience.spend(difference, error)


class Patience:
    """How often a change is planned again because others were first.

    A few times in any case, however long that takes; more often while the time is not over that a
    writer waits for a lock. Every time somebody else has made progress, so among merges of a few
    seconds each one has its turn, and none that takes minutes goes on for ever.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._spent = 0
        self._deadline = 0.0

    def spend(self, difference: Difference, cause: BaseException | None = None) -> None:
        """Take note that a change has to be planned again.

        Raises:
            ConcurrentModificationError: If that was too often.
        """
        now = time.monotonic()
        if not self._spent:
            self._deadline = now + self._storage.lock_timeout
        self._spent += 1
        if self._spent > _PLANS_IN_ANY_CASE and now > self._deadline:
            raise ConcurrentModificationError(
                f"{self._storage.root.shown!r} is changed by others faster than this change can "
                f"be planned: {difference or 'another commit was first'}. Nothing was changed by "
                "this call.\nHint: repeat it when there are fewer writers."
            ) from cause


def complete(root: Root, file: StagedFile, rows: int) -> StagedFile:
    """A staged file with what it must be when it is published."""
    return replace(file, rows=rows, size=root.filesystem.size(file.path))
