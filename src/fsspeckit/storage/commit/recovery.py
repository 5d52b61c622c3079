"""From the commit point to the end, and recovery, which does the same for writers that died.

A commit is recorded, published, checked and marked complete. Recovery completes what an earlier
writer committed, and removes what it did not.
"""

from __future__ import annotations

import os
import secrets
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from fsspeckit.display import Card, Displayed, FileGroup, Listing
from fsspeckit.errors import (
    CommitIncompleteError,
    CorruptRecordError,
    LockTimeoutError,
    LostFileError,
)
from fsspeckit.storage.commit.lock import hold_lock
from fsspeckit.storage.commit.log import (
    Completion,
    list_records,
    mark_complete,
    pending_numbers,
    read_completion,
    read_record,
    records_among,
    seconds_since,
)
from fsspeckit.storage.commit.publish import (
    Swap,
    SwapCleanup,
    SwapRefused,
    build_swap,
    check_writable,
    claim_swap,
    discard_swap,
    drop_empty_directories,
    empty_trash,
    is_swapped_in,
    publish_plain,
    purge_trash,
    read_swap,
    remove_old_tree,
    swap_in,
    was_trashed,
)
from fsspeckit.storage.commit.staging import (
    MAX_OWNER_AGE,
    current_names,
    own_staging,
    owner_state,
    staging_paths,
    sweep_staging,
)
from fsspeckit.storage.commit.tombstones import sweep_tombstones
from fsspeckit.storage.commit.uploads import (
    abort_uploads,
    abort_uploads_to,
    find_abandoned_uploads,
)
from fsspeckit.storage.fs.attributes import make_data_directories
from fsspeckit.storage.fs.backends import TEMPORARY_PREFIX
from fsspeckit.storage.fs.tasks import all_of
from fsspeckit.storage.incoming import discard_abandoned, find_abandoned
from fsspeckit.storage.listing import entries_below, list_files
from fsspeckit.storage.snapshot import Snapshot, list_snapshot
from fsspeckit.storage.storage import (
    INCOMING,
    OWNER_FILE,
    TRASH,
    open_storage,
    renamed_staging,
    staging_names,
    tree_names,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from fsspeckit.storage.commit.lock import ProcessState, WriterLock
    from fsspeckit.storage.commit.log import Add, CommitRecord, Published, Remove
    from fsspeckit.storage.listing import DataFile
    from fsspeckit.storage.storage import ControlNames, RecordNames, Storage


def check_published(
    storage: Storage,
    record: CommitRecord,
    before: Snapshot | None = None,
    deleted: Collection[str] = (),
) -> list[str]:
    """Compare the dataset with what a published commit should have made of it.

    Its files must be those ``before``, without what the commit removes, with what it adds, and with
    what other programs added. A commit that left a replaced file in place would double its rows for
    every reader: it raises CommitIncompleteError instead. ``deleted`` are new files that another
    program is known to have deleted since.

    Where an object store has left some of many that were to be removed together, each is removed
    alone, which raises the error of the store.

    Returns:
        Notes about files that other programs deleted meanwhile.
    """
    present = _present_files(storage)
    replaced = set(record.removed) - set(record.added)
    left = [
        remove.path
        for remove in record.removes
        if remove.path in replaced and _is_left(storage, remove, present)
    ]
    if not storage.capabilities.directories:
        left = [path for path in left if not storage.backend.discard(storage.path(path))]
    missing = [path for path in record.added if path not in present and path not in deleted]
    if left or missing:
        raise CommitIncompleteError.found(record.number, storage.root.display_path, left, missing)
    stayed = () if before is None else before.by_path.keys() - replaced
    return [
        f"{path!r} was deleted by another program meanwhile."
        for path in sorted(stayed)
        if path not in present
    ]


def _present_files(storage: Storage) -> dict[str, DataFile | None]:
    """List the files below the root by relative path, with their identity if it costs nothing."""
    if not storage.root.is_local:
        root = storage.root
        return {root.relative(file.path): file for file in list_files(root).files}
    return {
        relative: None
        for relative, _, is_directory in entries_below(storage.root.path)
        if not is_directory
    }


def _is_left(storage: Storage, remove: Remove, present: dict[str, DataFile | None]) -> bool:
    """Whether a file that the commit replaces is still in the dataset, not another one."""
    if remove.path not in present:
        return False
    found = present[remove.path] or storage.backend.stat(storage.path(remove.path))
    return found is not None and remove.is_still(found)


_MAX_SINGLE_DISCARDS = 4
"""How many staged objects are removed with a request for each."""


@dataclass
class Publication:
    """How a commit was published, and what a person should know about it."""

    published: Published = "plain"
    notes: list[str] = field(default_factory=list)
    abandoned: bool = False
    window_seconds: float = 0.0
    """How long both new and replaced files were there for whoever lists the dataset."""

    staged: list[str] | None = None
    """What was left in the staging directory when the dataset was checked; None if that was not
    listed, or if another writer has renamed the directory."""


def try_build_swap(
    storage: Storage,
    record: CommitRecord,
    staging_dirs: Sequence[str],
    lock: WriterLock,
    notes: list[str],
) -> Swap | None:
    """Build the new tree where a swap is possible and useful; else None, with a note why."""
    is_one_step = len({*record.added, *record.removed}) <= 1  # of one name, or none
    if not storage.capabilities.exchange or not lock.exclusive or is_one_step:
        return None
    try:
        return build_swap(storage, record, staging_dirs)
    except SwapRefused as refusal:
        notes.append(f"published without exchange: {refusal}.")
        return None


def publish(
    storage: Storage,
    record: CommitRecord,
    staging_dirs: Sequence[str],
    swap: Swap | None,
    lock: WriterLock,
    before: Snapshot | None = None,
    staged: Mapping[str, DataFile] | None = None,
) -> Publication:
    """Make a commit visible: by the swap, if one was built and the disk allows it, or plainly."""
    publication = Publication()
    deleted: set[str] = set()
    copied: list[str] = []
    # A writer that was suspended may wake up long after others have gone on.
    lock.check()
    if swap is not None:
        try:
            swap_in(storage, swap)
        except SwapRefused as refusal:
            publication.notes.append(f"published without exchange: {refusal}.")
            discard_swap(storage, swap.name)
        else:
            publication.published = "exchange"
            publication.notes += SwapCleanup(storage, record, swap).run()
    if publication.published == "plain":
        there = None if before is None else before.by_path
        started = time.perf_counter()
        publication.notes += publish_plain(
            storage, record, staging_dirs, deleted, there, staged, copied=copied
        )
        if record.adds and record.removes:
            publication.window_seconds = time.perf_counter() - started
    check = partial(check_published, storage, record, before, deleted)
    if storage.capabilities.directories:
        notes = check()
    else:
        notes, publication.staged = _check_objects(storage, record, check, copied)
    publication.notes += [note for note in notes if note not in publication.notes]
    return publication


def _check_objects(
    storage: Storage, record: CommitRecord, check: Callable[[], list[str]], copied: list[str]
) -> tuple[list[str], list[str] | None]:
    """Check what was published, find what is left in staging, and remove a few staged objects.

    The answer to a request for one object says that it is gone. Many are removed afterwards, with
    one request, and listed again.
    """
    backend = storage.backend
    gone = copied if len(copied) <= _MAX_SINGLE_DISCARDS else []
    discards = (partial(backend.discard, path) for path in gone)
    notes, left, _ = all_of(
        backend,
        check,
        partial(_staged_objects, storage, record),
        lambda: all_of(backend, *discards),
    )
    return notes, None if left is None else [path for path in left if path not in gone]


def abandon_commit(storage: Storage, record: CommitRecord, reason: Exception) -> Publication:
    """Go back to the state before a commit that cannot be completed.

    Replaced files come back first, then the new ones go: no row is missing meanwhile. Where files
    of both states are lost, the files that are left stay as they are. LostFileError if only a file
    that the commit removed is lost: the commit could still be completed, and nothing was changed.
    """
    first_line = str(reason).partition("\n")[0]
    publication = Publication("plain", [f"abandoned: {first_line}"], abandoned=True)
    lost = [
        path
        for path in record.removed
        if not was_trashed(storage, record.number, path)
        and storage.backend.stat(storage.path(path)) is None
    ]
    if lost and not isinstance(reason, LostFileError):
        raise LostFileError.cannot_go_back(record.number, lost[0])
    if lost:
        publication.notes += [
            f"{path!r}, which the commit replaced, is lost, too; all other files stay as they are."
            for path in lost
        ]
        return publication
    check_writable(storage, record, may_remove=record.added)
    replaced = set(record.removed)
    in_place = replaced.intersection(record.added)
    for path in replaced:
        _restore(storage, record.number, path, over=path in in_place)
    for add in record.adds:
        if add.final not in in_place:
            publication.notes += _remove_added(storage, add)
    drop_empty_directories(storage, storage.root.path, record.added)
    return publication


def _remove_added(storage: Storage, add: Add) -> list[str]:
    """Remove a new file, unless another program has written another one under its name."""
    found = storage.backend.stat(storage.path(add.final))
    if found is not None and found.size != add.size:
        return [f"{add.final!r} was replaced by another program; it was kept."]
    storage.backend.discard(storage.path(add.final))
    return []


def _restore(storage: Storage, number: int, path: str, *, over: bool) -> None:
    """Move a replaced file back out of the trash, if it is there."""
    kept = storage.control.trashed(number, path)
    final = storage.path(path)
    if storage.backend.stat(kept) is None:
        return
    if over:
        storage.backend.move_over(kept, final)
    elif storage.backend.stat(final) is None:
        make_data_directories(os.path.dirname(final), storage.root.path)
        storage.backend.move_new(kept, final)


def complete(
    storage: Storage, record: CommitRecord, publication: Publication, *, recovered: bool = False
) -> Completion:
    """Mark a commit complete and remove what it no longer needs."""
    if record.facts.purge:
        empty_trash(storage)  # before: a commit that is complete is not looked at again
    completion = Completion(
        publication.published,
        seconds_since(record.facts.started),
        recovered=recovered,
        abandoned=publication.abandoned,
        notes=tuple(publication.notes),
    )
    if publication.staged is None or recovered:
        is_first = mark_complete(storage, record.number, completion)
        names = _discard_staging(storage, record) if is_first else []
    else:
        is_first = _mark_and_discard(storage, record, completion, publication.staged)
        names = []
    if not is_first:
        return read_completion(storage, record.number) or completion
    if TRASH in names:
        purge_trash(storage, record.number)
    if record.changes_tombstones and not completion.abandoned:
        sweep_tombstones(storage, record)
    return completion


def _staged_objects(storage: Storage, record: CommitRecord) -> list[str] | None:
    """Return what is left in the staging directory of a commit; None if it was renamed."""
    control = storage.control
    keys = list(storage.backend.sizes_below(control.path))
    names = sorted({key.partition("/")[0] for key in keys})
    if TRASH in names or renamed_staging(staging_names(names), record.staging) != [record.staging]:
        return None
    return [control.at(key) for key in keys if key.partition("/")[0] == record.staging]


def _mark_and_discard(
    storage: Storage, record: CommitRecord, completion: Completion, staged: list[str]
) -> bool:
    """Mark a commit complete, and remove what is left in staging meanwhile.

    Nothing there is needed any more: it is published, and the dataset was checked. Who finds the
    commit without a mark and without an owner marks it. The owner file goes last: without it,
    other staged objects would stay for days. False if another writer has marked it already.
    """
    owner = storage.control.at(record.staging, OWNER_FILE)
    mark = partial(mark_complete, storage, record.number, completion)
    if others := [path for path in staged if path != owner]:
        is_first, _ = all_of(storage.backend, mark, partial(storage.backend.discard_all, others))
        storage.backend.discard(owner)
    else:
        is_first, _ = all_of(storage.backend, mark, partial(storage.backend.discard, owner))
    return is_first


def _discard_staging(storage: Storage, record: CommitRecord) -> list[str]:
    """Remove what a complete commit has staged, and return what the control directory had."""
    control = storage.control
    if not storage.capabilities.directories:
        # One listing says where it is now, and what is left in it.
        keys = list(storage.backend.sizes_below(control.path))
        names = sorted({key.partition("/")[0] for key in keys})
        claimed = renamed_staging(staging_names(names), record.staging)
        left = [control.at(key) for key in keys if key.partition("/")[0] in claimed]
        storage.backend.discard_all(left)
        return names
    names = storage.backend.names(control.path)
    for name, kind, number in tree_names(names):
        if kind == "old" and number == record.number:
            remove_old_tree(storage, name)
    for place in renamed_staging(staging_names(names), record.staging):
        storage.backend.discard_tree(control.at(place))
    return names


_FIRST_PAUSE_SECONDS = 0.02
_MAX_PAUSE_SECONDS = 1.0
_STATE_PRIORITY: tuple[ProcessState, ...] = ("running", "unknown", "gone")


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
    """Whether it could not be completed, and the state before it was restored instead."""

    def __str__(self) -> str:
        if self.abandoned:
            return f"abandoned commit {self.number}: it could not be completed"
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
    """Leftovers of writers that never committed, by their name in the control directory; and
    uploads that were never finished."""

    in_use: tuple[str, ...] = ()
    """Staging directories that were left alone because their owners may be alive."""

    def __bool__(self) -> bool:
        return bool(self.completed or self.discarded)

    def _actions(self) -> list[tuple[str, str]]:
        done = [("commit", str(commit)) for commit in self.completed]
        done += [("leftover", f"discarded {name}") for name in self.discarded]
        done += [("staging", f"left {name}: its owner may be alive") for name in self.in_use]
        return done

    def __str__(self) -> str:
        lines = "; ".join(line for _, line in self._actions())
        return f"{self.path}: {lines or 'nothing to recover'}"

    def _card(self) -> Card:
        commits = [commit for commit in self.completed if not commit.abandoned]
        groups = (
            FileGroup("added", "added", sum(len(commit.added) for commit in commits)),
            FileGroup("removed", "removed", sum(len(commit.removed) for commit in commits)),
        )
        return Card(
            f"{self.path}: " + ("recovered" if self else "nothing to recover"),
            tuple(group for group in groups if group.count),
            Listing.of(("what", "done"), self._actions(), tuple),
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
        abandon: Whether to go back to the state before a commit that cannot be completed, because
            its files were lost or files that it replaces cannot be removed; and to set aside
            a record that is damaged.
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


def recover_storage(
    storage: Storage, *, abandon: bool = False, with_uploads: bool = True
) -> RecoveryReport:
    """Recover a dataset; takes the lock only if there is something to do.

    ``with_uploads`` also aborts uploads that a writer left with nothing else: a request more.
    """
    with storage.observe("recover") as phases, phases.timed("recover") as facts:
        report = _recover(storage, abandon=abandon)[0]
        if with_uploads:
            aborted = _abort_uploads(storage)
            report = replace(report, discarded=(*report.discarded, *aborted))
        facts["commits"] = len(report.completed)
        facts["discarded"] = len(report.discarded)
        return report


def _recover(
    storage: Storage, *, abandon: bool = False
) -> tuple[RecoveryReport, ControlEntries | None]:
    """Recover a dataset; also return its control directory, if nothing had to be done."""
    entries = ControlEntries.first(storage)
    if not entries.has_leftovers(storage) and not entries.records.pending:
        return RecoveryReport(storage.root.display_path), entries
    with hold_lock(storage) as lock:
        return recover_locked(storage, lock, abandon=abandon), None


def take_snapshot(storage: Storage) -> Snapshot:
    """Take a snapshot of a dataset, after recovering what an earlier writer left."""
    notes: list[str] = []
    while True:
        report, entries = _recover(storage)
        notes += [
            f"commit {commit.number} was interrupted and is complete now: {note}"
            for commit in report.completed
            for note in commit.notes
        ]
        records = None if entries is None else entries.records
        snapshot, pending = list_snapshot(storage, records=records)
        if not pending:
            return replace(_with_names(snapshot, entries), notes=tuple(notes))


def _with_names(snapshot: Snapshot, entries: ControlEntries | None) -> Snapshot:
    """Add what was in the control directory, if that was listed after the last commit."""
    if entries is None or entries.records.last != snapshot.number:
        return snapshot
    return replace(snapshot, control_names=tuple(entries.names))


def unconfirmed_snapshot(storage: Storage) -> Snapshot:
    """Take a snapshot with one round trip, for a caller that commits on it or confirms it.

    Where the store puts conditionally, the records and the data files are listed at the same
    moment. So a commit that was published meanwhile may be in the listing in part. Whoever commits
    on the snapshot finds that out: the same files must be listed once more, after the records, and
    the next record must be the first after them. Whoever does not commit must call
    :func:`confirm_snapshot` before anything that was read is believed.
    """
    if not storage.capabilities.conditional_put:
        return take_snapshot(storage)
    list_control = partial(ControlEntries.of, storage)
    recent = storage.first_listings.take_recent()
    if recent is None:
        entries, listing = all_of(storage.backend, list_control, partial(list_files, storage.root))
    else:
        names, found = recent
        entries = ControlEntries.found(storage, names)
        listing = list_files(storage.root) if found is None else found
    if entries.records.pending or entries.has_leftovers(storage):
        return take_snapshot(storage)
    return Snapshot(
        entries.records.last,
        listing,
        storage.root.path,
        can_fold=entries.records.can_be_folded,
        is_settled=True,
        control_names=tuple(entries.names),
        is_confirmed=False,
    )


def confirm_snapshot(storage: Storage, snapshot: Snapshot) -> bool:
    """Whether a dataset is as a snapshot says, and nobody has committed since its records."""
    if snapshot.is_confirmed:
        return True
    listing = list_files(storage.root)
    return listing == snapshot.listing and _is_last(storage, snapshot)


def _is_last(storage: Storage, snapshot: Snapshot) -> bool:
    """Whether the last commit is that of a snapshot, and complete."""
    names = list_records(storage)
    return (names.last, names.pending) == (snapshot.number, [])


def may_be_unchanged(storage: Storage, snapshot: Snapshot, lock: WriterLock) -> bool:
    """Whether :func:`is_unchanged` can say that a snapshot still holds."""
    return not lock.exclusive and storage.capabilities.conditional_put and snapshot.is_settled


def is_unchanged(storage: Storage, snapshot: Snapshot) -> bool:
    """Whether a dataset has the files of a settled snapshot, and no later commit is listed.

    Who has committed and is not listed yet, or commits after this, is noticed where the record of
    the next commit is put conditionally: the put fails, and everything is listed again. If that
    record was folded meanwhile, its segment is listed after the put. So the files and the records
    can be listed at the same moment.
    """
    listing, is_last = all_of(
        storage.backend, partial(list_files, storage.root), partial(_is_last, storage, snapshot)
    )
    return is_last and listing == snapshot.listing


def settled_snapshot(storage: Storage, lock: WriterLock) -> Snapshot:
    """List the state after the last record, for a writer that is about to commit.

    Where the filesystem has no locks, another writer may record a commit at any moment. While it
    is not published, the listing shows the state before it, and changes based on that would undo
    it or double its rows. So nothing may be pending when the listing is taken.
    """
    while True:
        entries = ControlEntries.of(storage)
        if entries.records.pending:
            recover_locked(storage, lock)
            known = None
        else:
            _sweep(storage, lock, entries)
            known = entries
        snapshot, pending = list_snapshot(storage, records=known.records if known else None)
        if not pending:
            return _with_names(snapshot, known)


def discard_staged_before(storage: Storage, snapshot: Snapshot, last: CommitRecord | None) -> None:
    """Remove what the last commit has left in staging, before the next one replaces its files.

    Where there is no lock, a recovery may have taken that commit over while its writer went on. It
    would copy staged objects again, and bring back files that were replaced since.
    """
    if last is None or storage.capabilities.directories:
        return
    names = snapshot.control_names
    if names is None:
        names = tuple(storage.backend.names(storage.control.path))
    if renamed_staging(staging_names(list(names)), last.staging):
        _discard_staging(storage, last)


def recover_locked(storage: Storage, lock: WriterLock, *, abandon: bool = False) -> RecoveryReport:
    """Recover a dataset whose lock this process holds."""
    completed = []
    entries = ControlEntries.of(storage)
    for number in entries.records.pending:
        try:
            record = read_record(storage, number)
        except CorruptRecordError as damage:
            if damage.is_newer or not abandon:
                raise
            completed.append(_set_aside(storage, number, damage))
            continue
        if lock.exclusive:
            completed.append(_roll_forward(storage, record, lock, abandon))
        else:
            completed.extend(_complete_without_lock(storage, record, lock, abandon))
    if completed:
        entries = ControlEntries.of(storage)
    discarded, in_use = _sweep(storage, lock, entries)
    for commit in completed:
        _warn_of_recovery(storage, commit)
    path = storage.root.display_path
    return RecoveryReport(path, tuple(completed), tuple(discarded), tuple(in_use))


def _warn_of_recovery(storage: Storage, commit: RecoveredCommit) -> None:
    storage.warn(
        "recovery",
        recovered=commit.number,
        abandoned=commit.abandoned,
        files_added=len(commit.added),
        files_removed=len(commit.removed),
        notes="; ".join(commit.notes) or None,
    )


def _set_aside(storage: Storage, number: int, damage: CorruptRecordError) -> RecoveredCommit:
    """Give up a commit whose record cannot be read; no data file is touched."""
    storage.backend.move_over(storage.control.record(number), storage.control.damaged(number))
    reason = str(damage).partition("\n")[0]
    note = (
        f"the record was set aside: {reason} Files that the commit added or removed before it was "
        "interrupted stay as they are; compare the rows with their source."
    )
    return RecoveredCommit(number, "plain", (), (), (note,), abandoned=True)


def _complete_without_lock(
    storage: Storage, record: CommitRecord, lock: WriterLock, abandon: bool
) -> list[RecoveredCommit]:
    """Complete a commit unless its owner, or another writer's recovery, does."""
    while wait_for_completion(storage, record) is None:
        try:
            return [_roll_forward(storage, record, lock, abandon)]
        except _TakenOverError:
            continue  # its files are no longer where they were
        except (OSError, LostFileError, CommitIncompleteError):
            if read_completion(storage, record.number) is None:
                raise
            break
    return []


class _TakenOverError(Exception):
    """Another writer has begun to complete the same commit."""


def wait_for_completion(storage: Storage, record: CommitRecord) -> Completion | None:
    """Wait while somebody else completes a commit; None if nobody does.

    A writer that makes progress gets all the time it needs. One that may be alive, but makes no
    progress for as long as this writer waits for a lock, counts as gone: completing its commit is
    safe even then. LockTimeoutError if it is known to be alive.
    """
    progress = _Progress(storage, record)
    pause = _FIRST_PAUSE_SECONDS
    while (completion := read_completion(storage, record.number)) is None:
        owner = _owner_of_commit(storage, record)
        if owner == "gone":
            return read_completion(storage, record.number)  # it may have ended just now
        if progress.has_stopped():
            if owner == "running":
                raise LockTimeoutError.waited(
                    storage.control.record(record.number),
                    storage.lock_timeout,
                    f"the writer of commit {record.number} is running, but makes no progress",
                )
            return None
        time.sleep(pause)
        pause = min(pause * 2, _MAX_PAUSE_SECONDS)
    return completion


def _owner_of_commit(storage: Storage, record: CommitRecord) -> ProcessState:
    """Whether somebody is completing a commit: its writer, or the recovery of another one."""
    states = {owner_state(storage, name) for name in current_names(storage, record.staging)}
    return next((state for state in _STATE_PRIORITY if state in states), "gone")


class _Progress:
    """The visible progress of a commit that another writer completes."""

    def __init__(self, storage: Storage, record: CommitRecord) -> None:
        self._storage = storage
        self._record = record
        self._removed = 0
        self._seen: tuple[object, ...] = ()
        self._deadline = 0.0

    def has_stopped(self) -> bool:
        """Whether nothing has happened for as long as a writer waits for a lock."""
        now = time.monotonic()
        seen = self._observe()
        if seen != self._seen:
            self._seen, self._deadline = seen, now + self._storage.lock_timeout
        return now >= self._deadline

    def _observe(self) -> tuple[object, ...]:
        """Return the staged files that are left, and how many replaced files are gone, in order."""
        backend = self._storage.backend
        staging_dirs = staging_paths(self._storage, self._record.staging)
        removes = self._record.removes
        while (
            self._removed < len(removes)
            and backend.stat(self._storage.path(removes[self._removed].path)) is None
        ):
            self._removed += 1
        return (*((place, *backend.names(place)) for place in staging_dirs), self._removed)


def _roll_forward(
    storage: Storage, record: CommitRecord, lock: WriterLock, abandon: bool
) -> RecoveredCommit:
    with _claimed_staging(storage, record) as place:
        if not lock.exclusive and read_completion(storage, record.number) is not None:
            raise _TakenOverError
        abort_uploads_to(storage, set(map(storage.path, record.added)))
        try:
            publication = _publication(storage, record, lock, abandon, place)
        except (OSError, LostFileError, CommitIncompleteError) as error:
            if lock.exclusive or _is_ours(storage, record, place):
                raise
            raise _TakenOverError from error
        complete(storage, record, publication, recovered=True)
    return RecoveredCommit(
        record.number,
        publication.published,
        record.added,
        record.removed,
        tuple(publication.notes),
        publication.abandoned,
    )


def _is_ours(storage: Storage, record: CommitRecord, place: str) -> bool:
    """Whether a staging directory has the name that this recovery gave it, or is gone."""
    return current_names(storage, record.staging) in ([], [place])


def _publication(
    storage: Storage, record: CommitRecord, lock: WriterLock, abandon: bool, place: str
) -> Publication:
    """Publish the rest of a commit, or go back to the state before it if ``abandon`` is set."""
    swap = _find_swapped_in(storage, record.number)
    try:
        if swap is not None:
            notes = SwapCleanup(storage, record, swap).run()
            return Publication("exchange", [*notes, *check_published(storage, record)])
        return _publish_again(storage, record, lock)
    except (LostFileError, OSError, CommitIncompleteError) as reason:
        alone = lock.exclusive or (
            read_completion(storage, record.number) is None and _is_ours(storage, record, place)
        )
        if abandon and swap is None and alone:
            return abandon_commit(storage, record, reason)
        if isinstance(reason, PermissionError):
            check_writable(storage, record)  # its error explains more, if that is the reason
        raise


@contextmanager
def _claimed_staging(storage: Storage, record: CommitRecord) -> Iterator[str]:
    """Rename a staging directory, so that late calls of its owner fail; yield its name."""
    names = current_names(storage, record.staging)
    target = f"{record.staging}~{1 + secrets.randbelow(10**15)}"  # nobody else will choose it
    for name in names:
        # Without a lock its owner may be alive, and have completed the commit just now.
        with suppress(FileNotFoundError):
            storage.backend.rename_directory(storage.control.at(name), storage.control.at(target))
    with ExitStack() as stack:
        if names and not storage.capabilities.kernel_lock:
            try:
                stack.enter_context(own_staging(storage, target))
            except FileNotFoundError as error:
                raise _TakenOverError from error
        yield target


def _find_swapped_in(storage: Storage, number: int) -> Swap | None:
    """Return the swap of a commit that happened; discard the commit's other new trees."""
    swapped_in = None
    for name, kind, owner in tree_names(storage.backend.names(storage.control.path)):
        if owner != number:
            continue
        swap = None if kind == "dropped" else read_swap(storage, name)
        if swap is not None and is_swapped_in(storage, swap):
            swapped_in = claim_swap(storage, swap)
        else:
            discard_swap(storage, name)
    return swapped_in


def _publish_again(storage: Storage, record: CommitRecord, lock: WriterLock) -> Publication:
    staging_dirs = staging_paths(storage, record.staging)
    notes: list[str] = []
    is_swap = record.publish == "exchange"
    swap = try_build_swap(storage, record, staging_dirs, lock, notes) if is_swap else None
    publication = publish(storage, record, staging_dirs, swap, lock)
    publication.notes[:0] = notes
    return publication


@dataclass(frozen=True)
class ControlEntries:
    """What a listing of the control directory has shown."""

    names: list[str]
    records: RecordNames
    temporaries: list[str]
    """The names of records that are being written, or were when their writer died."""

    @classmethod
    def of(cls, storage: Storage) -> ControlEntries:
        """List the control directory, and the records in it."""
        return cls.found(storage, storage.backend.names_with(storage.control.path, "commits"))

    @classmethod
    def first(cls, storage: Storage) -> ControlEntries:
        """Return what was found when the storage was opened, but only once; then list again.

        It may be old. Whoever lists the dataset sees by a later listing of the records whether
        anything was committed since.
        """
        found = storage.first_listings.take_control()
        return cls.of(storage) if found is None else cls.found(storage, found)

    @classmethod
    def found(cls, storage: Storage, found: ControlNames) -> ControlEntries:
        """Sort the names of a listing."""
        names, listed = found
        temporaries = [name for name in listed if name.startswith(TEMPORARY_PREFIX)]
        return cls(names, records_among(storage, listed), temporaries)

    def has_leftovers(self, storage: Storage) -> bool:
        """Whether the control directory holds something that belongs to nobody."""
        return (
            bool(tree_names(self.names))
            or any(owner_state(storage, name) == "gone" for name in staging_names(self.names))
            or bool(self.temporaries)
            or (INCOMING in self.names and bool(find_abandoned(storage)))
        )


def temporaries(storage: Storage) -> list[str]:
    """Return the names of records that are being written, or were when their writer died."""
    return ControlEntries.of(storage).temporaries


def _sweep(
    storage: Storage, lock: WriterLock, entries: ControlEntries
) -> tuple[list[str], list[str]]:
    """Remove leftovers; under a lock all commits are complete by now."""
    names = entries.names
    discarded: list[str] = []
    in_use: list[str] = []
    for name, kind, number in tree_names(names):
        if _sweep_tree(storage, name, kind, number):
            discarded.append(name)
    for name in staging_names(names):
        swept = sweep_staging(storage, name, partial(_is_pending, storage, lock, name))
        if swept is not None:
            (discarded if swept else in_use).append(name)
    if discarded:
        discarded += _abort_uploads(storage, discarded)
    for name in _abandoned_temporaries(storage, lock, entries):
        storage.backend.discard(storage.control.at("commits", name))
        discarded.append(f"commits/{name}")
    if INCOMING in names:
        found = find_abandoned(storage)
        discarded += [name for name in found if discard_abandoned(storage, name)]
    return discarded, in_use


def _abort_uploads(storage: Storage, removed: Collection[str] = ()) -> list[str]:
    found = find_abandoned_uploads(storage, removed)
    abort_uploads(storage, found)
    return [f"the upload of {each.name}" for each in found]


def _abandoned_temporaries(
    storage: Storage, lock: WriterLock, entries: ControlEntries
) -> list[str]:
    """Return those records that nobody is writing any more."""
    if lock.exclusive or not entries.temporaries:
        return entries.temporaries  # only the holder of the lock writes records
    modified = storage.backend.modified_below(storage.control.commits)
    oldest = time.time() - MAX_OWNER_AGE.total_seconds()
    return [name for name in entries.temporaries if (modified.get(name) or oldest) < oldest]


def _is_pending(storage: Storage, lock: WriterLock, name: str) -> bool:
    """Whether a staging directory, renamed or not, belongs to a commit that is not complete."""
    if lock.exclusive:
        return False
    staging = name.partition("~")[0]
    pending = pending_numbers(storage)[1]
    return any(read_record(storage, number).staging == staging for number in pending)


def _sweep_tree(storage: Storage, name: str, kind: str, number: int) -> bool:
    if kind != "old":
        discard_swap(storage, name)  # an installed one would have belonged to a pending commit
        return True
    swap = read_swap(storage, name)
    if swap is not None and storage.backend.names(storage.control.at(name, "tree")):
        # Somebody kept writing into the directory as it was before the swap.
        SwapCleanup(storage, read_record(storage, number), swap).run()
    return remove_old_tree(storage, name)
