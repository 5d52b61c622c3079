"""A snapshot: what a dataset consisted of at one moment, and what has changed since."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from fsspeckit.errors import ConcurrentModificationError
from fsspeckit.storage.commit.log import pending_numbers
from fsspeckit.storage.listing import Listing, list_files

if TYPE_CHECKING:
    from fsspeckit.storage.listing import DataFile
    from fsspeckit.storage.storage import Storage

__all__ = ["Difference", "Snapshot"]

_ATTEMPTS = 100


@dataclass(frozen=True)
class Difference:
    """What was changed between two snapshots, by paths below the root."""

    added: tuple[str, ...] = ()
    """Files that are new."""

    changed: tuple[str, ...] = ()
    """Files that are no longer the same."""

    gone: tuple[str, ...] = ()
    """Files that are no longer there."""

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.gone)

    def __str__(self) -> str:
        kinds = (("added", self.added), ("changed", self.changed), ("gone", self.gone))
        return "; ".join(f"{kind}: {_shown(paths)}" for kind, paths in kinds if paths)


@dataclass(frozen=True)
class Snapshot:
    """The data files of a dataset, and the number of the last commit that made them."""

    number: int
    """The last commit; 0 if there is none."""

    listing: Listing
    """The data files."""

    root: str
    """The canonical path of the dataset."""

    notes: tuple[str, ...] = ()
    """What a person should know of commits that were completed before it was taken."""

    @cached_property
    def by_path(self) -> dict[str, DataFile]:
        """The data files by their path below the root."""
        skip = len(self.root.rstrip("/")) + 1
        return {file.path[skip:]: file for file in self.listing.files}

    def compare(self, later: Snapshot) -> Difference:
        """Tell what happened between this snapshot and a later one."""
        if self.listing.files == later.listing.files:
            return Difference()
        mine, theirs = self.by_path, later.by_path
        return Difference(
            added=tuple(path for path in theirs if path not in mine),
            changed=tuple(
                path
                for path, file in mine.items()
                if path in theirs and not file.is_same_file(theirs[path])
            ),
            gone=tuple(path for path in mine if path not in theirs),
        )


def list_snapshot(storage: Storage) -> tuple[Snapshot, list[int]]:
    """List a dataset between two looks at its commits; also gives the commits not complete."""
    for _ in range(_ATTEMPTS):
        before = pending_numbers(storage)
        listing = list_files(storage.root)
        if pending_numbers(storage) == before:
            return Snapshot(before[0], listing, storage.root.path), before[1]
    raise ConcurrentModificationError(
        f"{storage.root.shown!r} changes faster than it can be listed."
    )


def _shown(paths: tuple[str, ...]) -> str:
    more = f" and {len(paths) - 5} more" if len(paths) > 5 else ""
    return ", ".join(map(repr, paths[:5])) + more
