"""Recovery: completes what an earlier writer committed, removes what it did not.

Every writer recovers before it takes its snapshot. A commit that is recorded but not marked
complete is rolled forward; staging that no commit speaks of is deleted if its owner is gone. All of
it can be killed anywhere and run again.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fsspeckit.display import Card, Displayed, FileGroup, Listing
from fsspeckit.errors import LostFileError
from fsspeckit.storage import completion
from fsspeckit.storage.completion import Publication, complete, publish, try_shadow
from fsspeckit.storage.control import next_place, places_of, staging_names, tree_names
from fsspeckit.storage.disks import TEMPORARY_PREFIX
from fsspeckit.storage.exchange import (
    Shadow,
    claim_shadow,
    discard_shadow,
    is_installed,
    read_shadow,
)
from fsspeckit.storage.lock import locked
from fsspeckit.storage.oldtree import OldTree, retire_old_tree
from fsspeckit.storage.publish import check_writable
from fsspeckit.storage.records import pending_numbers, read_completion, read_record
from fsspeckit.storage.snapshot import Snapshot, list_snapshot
from fsspeckit.storage.staging import owner_is_gone, staged_places, sweep_staging
from fsspeckit.storage.store import open_storage

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from fsspeckit.storage.lock import Held
    from fsspeckit.storage.records import CommitRecord, Published
    from fsspeckit.storage.store import Storage

__all__ = ["RecoveredCommit", "RecoveryReport", "recover", "recover_storage", "take_snapshot"]

_PAUSE = 0.02


@dataclass(frozen=True)
class RecoveredCommit:
    """A commit that recovery completed."""

    number: int
    """Which one."""

    published: Published
    """How the rest of it was published."""

    added: tuple[str, ...]
    """The files it added, below the root."""

    removed: tuple[str, ...]
    """The files it removed."""

    notes: tuple[str, ...] = ()
    """What other programs did meanwhile."""

    abandoned: bool = False
    """Whether its files were lost, and the state before it was restored instead."""

    def __str__(self) -> str:
        if self.abandoned:
            return f"abandoned commit {self.number}: its files were lost"
        return (
            f"completed commit {self.number}: {len(self.added)} file(s) added, "
            f"{len(self.removed)} removed ({self.published})"
        )


@dataclass(frozen=True)
class RecoveryReport(Displayed):
    """What recovery found and did."""

    path: str
    """The dataset."""

    completed: tuple[RecoveredCommit, ...] = ()
    """Commits that were interrupted and are complete now."""

    discarded: tuple[str, ...] = ()
    """Leftovers of writers that never committed, by their name in the control directory."""

    in_use: tuple[str, ...] = ()
    """Staging directories that were left alone because their owners may be alive."""

    def __bool__(self) -> bool:
        return bool(self.completed or self.discarded)

    def __str__(self) -> str:
        lines = [str(commit) for commit in self.completed]
        lines += [f"discarded {name}" for name in self.discarded]
        lines += [f"left {name}: its owner may be alive" for name in self.in_use]
        return f"{self.path}: " + ("; ".join(lines) or "nothing to recover")

    def _card(self) -> Card:
        added = sum(len(commit.added) for commit in self.completed if not commit.abandoned)
        removed = sum(len(commit.removed) for commit in self.completed if not commit.abandoned)
        groups = (
            FileGroup("added", "added", added),
            FileGroup("removed", "removed", removed),
        )
        done = [("commit", str(commit)) for commit in self.completed]
        done += [("leftover", f"discarded {name}") for name in self.discarded]
        done += [("staging", f"left {name}: its owner may be alive") for name in self.in_use]
        return Card(
            f"{self.path}: " + ("recovered" if self else "nothing to recover"),
            tuple(group for group in groups if group.count),
            Listing.of(("what", "done"), done, tuple),
            tuple(note for commit in self.completed for note in commit.notes),
        )


def recover(
    path: str | os.PathLike[str],
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    *,
    control_dir: str | os.PathLike[str] | None = None,
    abandon: bool = False,
    lock_timeout: float = 30.0,
) -> RecoveryReport:
    """Complete what an interrupted writer committed, and remove what it did not.

    Args:
        path: The dataset.
        filesystem: An fsspec or pyarrow filesystem; None to find it from the URL.
        storage_options: What fsspec needs to open the filesystem of the URL.
        control_dir: The control directory, where it is not beside the dataset.
        abandon: Whether to go back to the state before a commit whose files were lost.
        lock_timeout: How many seconds to wait for another writer.

    Raises:
        CorruptRecordError: If a record cannot be understood; nothing was changed.
        LostFileError: If a committed file is gone; nothing was removed.
        LockTimeoutError: If another writer is at work.
        FileNotFoundError: If there is neither a dataset nor a control directory.
        PermissionError: If a directory cannot be written that a commit changes.
    """
    storage = open_storage(
        path, filesystem, storage_options, control_dir=control_dir, lock_timeout=lock_timeout
    )
    storage.check_exists()
    return recover_storage(storage, abandon=abandon)


def recover_storage(storage: Storage, *, abandon: bool = False) -> RecoveryReport:
    """Recover a dataset; takes the lock only if there is something to do."""
    if not _leftovers(storage) and not pending_numbers(storage)[1]:
        return RecoveryReport(storage.root.shown)
    with locked(storage) as held:
        return recover_locked(storage, held, abandon=abandon)


def take_snapshot(storage: Storage) -> Snapshot:
    """Take a snapshot of a dataset, after recovering what an earlier writer left."""
    while True:
        recover_storage(storage)
        snapshot, pending = list_snapshot(storage)
        if not pending:
            return snapshot


def recover_locked(storage: Storage, held: Held, *, abandon: bool = False) -> RecoveryReport:
    """Recover a dataset whose lock is held."""
    completed = []
    for number in pending_numbers(storage)[1]:
        record = read_record(storage, number)
        if held.exclusive or not _completed_by_owner(storage, record):
            completed.append(_roll_forward(storage, record, held, abandon))
    discarded, in_use = _sweep(storage, held)
    path = storage.root.shown
    return RecoveryReport(path, tuple(completed), tuple(discarded), tuple(in_use))


def _completed_by_owner(storage: Storage, record: CommitRecord) -> bool:
    """Without a lock the owner may be alive and at work: give it time, but not for ever."""
    deadline = time.monotonic() + storage.lock_timeout
    while read_completion(storage, record.number) is None:
        if owner_is_gone(storage, record.staging) or time.monotonic() >= deadline:
            return False
        time.sleep(_PAUSE)
    return True


def _roll_forward(
    storage: Storage, record: CommitRecord, held: Held, abandon: bool
) -> RecoveredCommit:
    _claim_staging(storage, record)
    shadow = _installed_shadow(storage, record.number)
    if shadow is not None:
        publication = Publication("exchange", OldTree(storage, record, shadow).finish())
    else:
        try:
            publication = _publish_again(storage, record, held)
        except LostFileError as lost:
            if not abandon:
                raise
            check_writable(storage, record)
            publication = completion.abandon(storage, record, lost)
        except PermissionError:
            check_writable(storage, record)  # says more, if that is the reason
            raise
    complete(storage, record, publication, recovered=True)
    return RecoveredCommit(
        record.number,
        publication.published,
        tuple(add.final for add in record.adds),
        tuple(remove.path for remove in record.removes),
        tuple(publication.notes),
        publication.abandoned,
    )


def _claim_staging(storage: Storage, record: CommitRecord) -> None:
    """Rename the staging directory, so that late calls of its paused owner fail."""
    names = storage.disk.names(storage.control.path)
    target = storage.control.at(next_place(names, record.staging))
    for place in places_of(names, record.staging):
        # Without a lock its owner may be alive, and have completed the commit just now.
        with suppress(FileNotFoundError):
            storage.disk.rename_directory(storage.control.at(place), target)


def _installed_shadow(storage: Storage, number: int) -> Shadow | None:
    """The shadow of a commit that was swapped in; others of that commit are discarded."""
    installed = None
    for name, kind, owner in tree_names(storage.disk.names(storage.control.path)):
        if owner != number:
            continue
        shadow = None if kind == "dropped" else read_shadow(storage, name)
        if shadow is not None and is_installed(storage, shadow):
            installed = claim_shadow(storage, shadow)
        else:
            discard_shadow(storage, name)
    return installed


def _publish_again(storage: Storage, record: CommitRecord, held: Held) -> Publication:
    places = staged_places(storage, record.staging)
    notes: list[str] = []
    shadow = None
    if record.publish == "exchange":
        shadow = try_shadow(storage, record, places, held, notes)
    publication = publish(storage, record, places, shadow, held)
    publication.notes[:0] = notes
    return publication


def _leftovers(storage: Storage) -> bool:
    """Whether the control directory holds something that is nobody's."""
    names = storage.disk.names(storage.control.path)
    return (
        bool(tree_names(names))
        or any(owner_is_gone(storage, name) for name in staging_names(names))
        or bool(_temporaries(storage))
    )


def _temporaries(storage: Storage) -> list[str]:
    names = storage.disk.names(storage.control.commits)
    return [name for name in names if name.startswith(TEMPORARY_PREFIX)]


def _sweep(storage: Storage, held: Held) -> tuple[list[str], list[str]]:
    """Remove leftovers; all commits are complete by now."""
    names = storage.disk.names(storage.control.path)
    discarded: list[str] = []
    in_use: list[str] = []
    for name, kind, number in tree_names(names):
        if _sweep_tree(storage, name, kind, number):
            discarded.append(name)
    for name in staging_names(names):
        swept = sweep_staging(storage, name)
        if swept is not None:
            (discarded if swept else in_use).append(name)
    if held.exclusive:  # only the holder of the lock writes records
        for name in _temporaries(storage):
            storage.disk.discard(storage.control.at("commits", name))
            discarded.append(f"commits/{name}")
    return discarded, in_use


def _sweep_tree(storage: Storage, name: str, kind: str, number: int) -> bool:
    if kind != "old":
        discard_shadow(storage, name)  # an installed one would have belonged to a pending commit
        return True
    shadow = read_shadow(storage, name)
    if shadow is not None and storage.disk.names(storage.control.at(name, "tree")):
        # Somebody kept writing into the directory as it was before the exchange.
        OldTree(storage, read_record(storage, number), shadow).finish()
    return retire_old_tree(storage, name)
