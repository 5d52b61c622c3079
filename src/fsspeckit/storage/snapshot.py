"""Snapshots: the data files of a dataset at one moment, for writers and for readers.

A reader needs a consistent state even while a commit is published, and after a crash: it applies
commits that are not complete itself (:func:`stable_files`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from fsspeckit.errors import ConcurrentModificationError, LostFileError, list_names
from fsspeckit.storage.commit.log import list_records, pending_numbers, read_record
from fsspeckit.storage.commit.staging import find_staged, staging_paths
from fsspeckit.storage.listing import Listing, list_files, list_selected

if TYPE_CHECKING:
    from fsspeckit.storage.commit.log import CommitRecord
    from fsspeckit.storage.listing import DataFile, FileSelection
    from fsspeckit.storage.storage import RecordNames, Storage

_MAX_LISTINGS = 100
_MAX_READ_ATTEMPTS = 20


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
        return "; ".join(f"{kind}: {list_names(paths)}" for kind, paths in kinds if paths)


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
    """What a person should know about commits that were completed before it was taken."""

    can_fold: bool = False
    """Whether so many records were listed that some may be folded."""

    is_settled: bool = False
    """Whether every commit was complete when it was taken."""

    control_names: tuple[str, ...] | None = None
    """What is in the control directory; None if it was not listed."""

    is_confirmed: bool = True
    """Whether no commit was recorded or published while it was taken; a commit on a snapshot of
    which that is not known finds it out."""

    @cached_property
    def by_path(self) -> dict[str, DataFile]:
        """The data files by their path below the root."""
        skip = len(self.root.rstrip("/")) + 1
        return {file.path[skip:]: file for file in self.listing.files}

    def compare(self, later: Snapshot) -> Difference:
        """Return what happened between this snapshot and a later one."""
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


def list_snapshot(
    storage: Storage,
    selection: FileSelection | None = None,
    *,
    records: RecordNames | None = None,
) -> tuple[Snapshot, list[int]]:
    """List a dataset while no commit is recorded; also return the commits not complete.

    ``records`` are those that the caller has just listed.
    """
    root = storage.root
    for _ in range(_MAX_LISTINGS):
        known = list_records(storage) if records is None else records
        before, records = (known.last, known.pending), None
        listing = list_files(root) if selection is None else list_selected(root, selection)
        names = list_records(storage)
        if (names.last, names.pending) == before:
            snapshot = Snapshot(
                before[0],
                listing,
                storage.root.path,
                can_fold=names.can_be_folded,
                is_settled=not before[1],
            )
            return snapshot, before[1]
    raise _changes_too_fast(storage)


def _changes_too_fast(storage: Storage) -> ConcurrentModificationError:
    return ConcurrentModificationError(
        f"{storage.root.display_path!r} changes faster than it can be listed."
    )


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """A data file of a consistent state."""

    relative: str
    """Where it belongs below the root; partition values come from here."""

    file: DataFile
    """Where it can be read now: for a commit not complete yet, that may be a staged file."""


@dataclass(frozen=True)
class StableFiles:
    """The data files of one consistent state of a dataset."""

    number: int
    """The commit that made the state; 0 if there is none."""

    files: tuple[PinnedFile, ...]
    """The data files, sorted by their path below the root."""

    exists: bool = True
    """Whether the dataset is there at all."""

    obstacles: tuple[str, ...] = ()
    """What forbids to read it as plain Parquet, one sentence each."""


def stable_files(storage: Storage, selection: FileSelection | None = None) -> StableFiles:
    """List the data files of a consistent state, or some of them; changes nothing.

    Of a commit that is not complete, the removed files are left out and the new ones are read from
    where they are, staged or published. A file may still be gone when it is opened, if a commit
    has replaced it since: list again then.

    Raises:
        ConcurrentModificationError: If the dataset changes faster than it can be listed.
        LostFileError: If a file is lost that a commit has added which is not complete.
        CorruptRecordError: If a record cannot be understood.
    """
    missing: LostFileError | None = None
    for _ in range(_MAX_READ_ATTEMPTS):
        snapshot, pending = list_snapshot(storage, selection)
        files = snapshot.by_path
        try:
            for number in pending:
                record = read_record(storage, number)
                files = _apply_pending(storage, record, files, selection)
        except LostFileError as error:
            missing = error  # or moved just now
            continue
        if pending_numbers(storage) == (snapshot.number, pending):
            pinned = (PinnedFile(path, files[path]) for path in sorted(files))
            return StableFiles(
                snapshot.number,
                tuple(pinned),
                snapshot.listing.exists or bool(files),
                snapshot.listing.read_obstacles,
            )
    if missing is not None and pending_numbers(storage) == (snapshot.number, pending):
        raise missing
    raise _changes_too_fast(storage)


def _apply_pending(
    storage: Storage,
    record: CommitRecord,
    listed: dict[str, DataFile],
    selection: FileSelection | None,
) -> dict[str, DataFile]:
    """Return the files as they will be once a commit is complete; LostFileError if one is lost."""
    files = dict(listed)
    for remove in record.removes:
        if remove.path in files and remove.is_still(files[remove.path]):
            del files[remove.path]
    staging_dirs = staging_paths(storage, record.staging)
    for add in record.adds:
        if add.final in files or (selection is not None and not selection.matches(add.final)):
            continue
        staged = find_staged(storage, staging_dirs, add.staged)
        found = storage.backend.stat(storage.path(add.final) if staged is None else staged)
        if found is None:
            raise LostFileError.missing(record.number, add.final)
        files[add.final] = found
    return files
