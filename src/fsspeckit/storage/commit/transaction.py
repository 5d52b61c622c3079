"""The commit: all files change, or none do.

Three outcomes, distinguished by type, whatever dies and whoever else writes:

* :func:`commit` returns: the files are changed;
* :class:`~fsspeckit.errors.CommitPendingError`: committed, and recovery completes it;
* any other error: nothing was changed.
"""

from __future__ import annotations

import os
import time
import unicodedata
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from fsspeckit.display import add_facts
from fsspeckit.errors import (
    CommitPendingError,
    CommitUnknownError,
    ConcurrentModificationError,
    CorruptRecordError,
    InvalidArgumentError,
    LockTimeoutError,
    UnsupportedLayoutError,
    mark_committed,
    mark_undecided,
)
from fsspeckit.storage.commit.folding import fold_after_commit
from fsspeckit.storage.commit.lock import hold_lock
from fsspeckit.storage.commit.log import (
    CommitFacts,
    CommitRecord,
    Completion,
    RecordedState,
    Remove,
    Tombstones,
    find_skipped,
    list_records,
    pending_numbers,
    read_completion,
    read_folded,
    read_record,
    seconds_since,
    timestamp,
    with_transaction,
    write_record,
)
from fsspeckit.storage.commit.publish import check_writable, discard_swap
from fsspeckit.storage.commit.recovery import (
    complete,
    discard_staged_before,
    is_unchanged,
    may_be_unchanged,
    publish,
    settled_snapshot,
    take_snapshot,
    try_build_swap,
    wait_for_completion,
)
from fsspeckit.storage.commit.tombstones import restore_tombstones, write_tombstones
from fsspeckit.storage.fs.reads import is_unanswered
from fsspeckit.storage.fs.tasks import all_of
from fsspeckit.storage.listing import check_relative, parents_of
from fsspeckit.storage.snapshot import Difference, Snapshot

if TYPE_CHECKING:
    from fsspeckit.display import Fact
    from fsspeckit.storage.commit.lock import WriterLock
    from fsspeckit.storage.commit.log import (
        Add,
        Published,
        RecordedTransaction,
        Skipped,
        Transaction,
    )
    from fsspeckit.storage.commit.publish import Swap
    from fsspeckit.storage.commit.staging import Stage, StagedFile
    from fsspeckit.storage.commit.tombstones import TombstoneChange
    from fsspeckit.storage.listing import DataFile
    from fsspeckit.storage.storage import Storage

_MAX_RETRIES = 3
_FOLDING_INTERVAL = 10
"""After each commit of so many old records are folded, if there are enough."""


@dataclass(frozen=True)
class FileChanges:
    """The files that a commit adds and removes, and the tombstones that it leaves."""

    adds: Sequence[StagedFile] = ()
    """Staged files that become part of the dataset."""

    removes: Sequence[str] = ()
    """Data files of the snapshot that leave it, as paths below the root or canonical paths."""

    tombstones: TombstoneChange | None = None
    """What becomes of tombstones; None if the changes do not depend on them."""

    restores: int | None = None
    """The commit whose transactions and tombstones come back; then nobody else may have committed
    anything since the snapshot."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        has_tombstones = self.tombstones is not None and not self.tombstones.is_none
        is_restore = self.restores is not None
        return not (self.adds or self.removes or has_tombstones or is_restore)


Replan = Callable[[Snapshot, Difference], FileChanges]
"""Makes new changes from the dataset as it is now; called without the lock."""


@dataclass(frozen=True)
class CommitOutcome:
    """What became of a commit that is done."""

    number: int
    """Its number; that of the last commit if there was nothing to do."""

    published: Published | None
    """How it was published; None if there was nothing to do."""

    added: tuple[str, ...] = ()
    """Canonical paths of the new files."""

    removed: tuple[str, ...] = ()
    """Canonical paths of the files that are gone."""

    notes: tuple[str, ...] = ()
    """What happened on the way that a person should know."""

    missing: tuple[str, ...] = ()
    """Promises that this filesystem cannot keep."""

    retries: int = 0
    """How often the changes had to be planned again."""

    seconds: dict[str, float] = field(default_factory=dict)
    """How long each phase took: verify, lock, shadow, record, publish."""

    skipped: Skipped | None = None
    """Why nothing was done, if its transaction is committed already."""

    window_seconds: float | None = 0.0
    """How long a program that lists the dataset saw both new and replaced files; 0 if they were
    swapped, or if there were only new ones or only replaced ones. None if another writer's
    recovery completed the commit."""


def commit(
    storage: Storage,
    snapshot: Snapshot,
    stage: Stage,
    changes: FileChanges,
    facts: CommitFacts | Callable[[], CommitFacts] | None = None,
    *,
    replan: Replan | None = None,
    retries: int = _MAX_RETRIES,
    transaction: Transaction | None = None,
) -> CommitOutcome:
    """Publish changes of a dataset, completely or not at all.

    Args:
        storage: The dataset.
        snapshot: What the changes were planned on.
        stage: Where the new files are.
        changes: The files to add and to remove.
        facts: What the commit is about, for its record; or a function that returns it, called
            for every attempt.
        replan: Called with the new snapshot and the difference if the dataset has changed since
            the snapshot; returns the changes to try next.
        retries: How often to plan again before giving up.
        transaction: Which batch of which application this is. Nothing is changed if it is committed
            already; if not, it is recorded even if there is no file to add or to remove.

    Raises:
        TransactionResetError: If the versions of its application have started again; nothing was
            changed.
        ConcurrentModificationError: If the dataset has changed, or somebody else holds the lock;
            nothing was changed.
        CommitPendingError: If the changes are committed but could not be completed.
        UnreadableFileError: If a staged file is not what its writer said; nothing was changed.
        OSError: What the filesystem raised; nothing was changed.
    """
    started = time.time()
    for attempt in range(retries + 1):
        about = facts() if callable(facts) else facts or CommitFacts()
        if about.started is None:
            about = replace(about, started=started)
        result = _CommitAttempt(
            storage, stage, snapshot, changes, about, attempt, transaction
        ).run()
        if isinstance(result, CommitOutcome):
            _add_facts(storage, result, snapshot, changes, about)
            return result
        snapshot, difference = result
        if replan is None:
            break
        if attempt < retries:
            found = str(difference) or "another commit was first"
            storage.warn("conflict", attempt=attempt + 1, found=found)
            changes = replan(snapshot, difference)
    raise ConcurrentModificationError(
        f"{storage.root.display_path!r} was changed by somebody else meanwhile: "
        f"{difference or 'another commit was first'}. Nothing was changed by this call.\n"
        "Hint: repeat it."
    )


def _add_facts(
    storage: Storage,
    outcome: CommitOutcome,
    snapshot: Snapshot,
    changes: FileChanges,
    about: CommitFacts,
) -> None:
    """Say in log lines and spans what was committed."""
    if outcome.skipped is not None:
        add_facts(commit=outcome.number, outcome="skipped")
        return
    if outcome.published is None:
        add_facts(commit=outcome.number, outcome="unchanged")
        return
    rows: dict[str, Fact] = {f"rows_{name}": count for name, count in about.counts.items()}
    removed = _removes(storage, snapshot, changes.removes)
    add_facts(
        commit=outcome.number,
        retries=outcome.retries,
        files_added=len(changes.adds),
        files_removed=len(removed),
        bytes_added=sum(file.size or 0 for file in changes.adds),
        bytes_removed=sum(file.size for file in removed),
        **rows,
    )


def find_transaction(storage: Storage, transaction: Transaction | None) -> Skipped | None:
    """Return why a transaction is to be skipped; None if it is to be applied.

    A commit that was interrupted is completed first: then it counts.

    Raises:
        TransactionResetError: If the versions of its application have started again.
        CorruptRecordError: If a record cannot be understood that may say it.
    """
    if transaction is None:
        return None
    number, pending = pending_numbers(storage)
    if pending:
        number = take_snapshot(storage).number
    known = RecordedState(storage, number).transactions(ask=True)
    skipped = find_skipped(storage, known, transaction)
    if skipped is not None:
        add_facts(commit=skipped.recorded.commit, outcome="skipped")
    return skipped


@dataclass
class _CommitAttempt:
    """One attempt to commit."""

    _storage: Storage
    _stage: Stage
    _snapshot: Snapshot
    _changes: FileChanges
    _facts: CommitFacts
    _attempt: int
    _transaction: Transaction | None = None
    _seconds: dict[str, float] = field(default_factory=dict)
    _window_seconds: float | None = None

    def __post_init__(self) -> None:
        self._removes = _removes(self._storage, self._snapshot, self._changes.removes)
        self._notes = list(self._snapshot.notes)
        self._clock = time.perf_counter()

    def _phase(self, name: str) -> None:
        now = time.perf_counter()
        self._seconds[name] = now - self._clock
        self._clock = now

    def run(self) -> CommitOutcome | tuple[Snapshot, Difference]:
        """Commit, or return what has changed since the snapshot."""
        _check_finals(self._snapshot, self._changes, self._removes)
        _check_spellings(self._storage, self._snapshot, self._changes)
        self._notes += self._storage.prepare()
        adds = self._stage.prepare(self._changes.adds)
        self._phase("verify")
        if self._changes.is_empty and self._transaction is None and not self._facts.purge:
            return CommitOutcome(self._snapshot.number, None, retries=self._attempt)
        with hold_lock(self._storage) as lock:
            # The record takes the next number, which no other writer can take as well: so nobody
            # commits the same transaction, or other tombstones, after these checks.
            current, state, known, staged = self._current(lock, adds)
            skipped = find_skipped(self._storage, known, self._transaction)
            if skipped is not None:
                commit = skipped.recorded.commit
                return CommitOutcome(commit, None, retries=self._attempt, skipped=skipped)
            difference = self._snapshot.compare(current)
            restores = self._changes.restores
            if restores is not None and current.number != self._snapshot.number:
                return current, difference
            self._phase("lock")
            change = self._changes.tombstones
            tombstones = state.tombstones(None if change is None else change.seconds)
            if difference or (change is not None and change.base != tombstones):
                return current, difference
            discard_staged_before(self._storage, current, state.last())
            number, now = current.number + 1, timestamp()
            if change is not None:
                tombstones = write_tombstones(self._storage, change, number)
            if restores is not None:
                earlier = RecordedState(self._storage, restores)
                known = earlier.transactions(ask=True)
                tombstones = restore_tombstones(
                    self._storage,
                    earlier.tombstones(float("inf")) or Tombstones(),
                    state.tombstones(float("inf")) or Tombstones(),
                    number,
                )
            record = CommitRecord(
                number=number,
                identifier=uuid.uuid4().hex,
                time=now,
                facts=self._facts,
                seconds=seconds_since(self._facts.started),
                publish="plain",
                staging=self._stage.name,
                adds=adds,
                removes=self._removes,
                transactions=with_transaction(
                    self._storage, known, self._transaction, (now, number)
                ),
                tombstones=tombstones,
            )
            outcome = self._commit(record, lock, staged)
            if isinstance(outcome, CommitOutcome):
                self._fold(current, number)
            return outcome

    def _current(self, lock: WriterLock, adds: Sequence[Add]) -> _Current:
        """Return the dataset as it is now, what is on record, and what is staged."""
        asks, backend = self._transaction is not None, self._storage.backend
        if self._attempt == 0 and may_be_unchanged(self._storage, self._snapshot, lock):
            state = RecordedState(self._storage, self._snapshot.number)
            is_same, known, staged = all_of(
                backend,
                partial(is_unchanged, self._storage, self._snapshot),
                partial(state.transactions, ask=asks),
                partial(self._stage.staged_files, adds),
            )
            if is_same:
                return self._snapshot, state, known, staged
        current = settled_snapshot(self._storage, lock)
        state = RecordedState(self._storage, current.number)
        return current, state, state.transactions(ask=asks), None

    def _fold(self, current: Snapshot, number: int) -> None:
        """Fold old records, if there are enough; the commit is done, whatever becomes of that."""
        try:
            if current.can_fold and number % _FOLDING_INTERVAL == 0:
                fold_after_commit(self._storage)
        except BaseException as interrupt:
            mark_committed(interrupt, number)
            raise

    def _commit(
        self, record: CommitRecord, lock: WriterLock, found: dict[str, DataFile] | None
    ) -> CommitOutcome | tuple[Snapshot, Difference]:
        staging_dirs = [self._stage.path]
        staged = self._stage.check(record.adds, found)
        check_writable(self._storage, record)
        swap = try_build_swap(self._storage, record, staging_dirs, lock, self._notes)
        record = replace(record, publish="plain" if swap is None else "exchange")
        self._phase("shadow")
        # An interrupt may come at any moment from here on. Staged files that a record may refer to
        # are not ours to delete; if there is no record, recovery finds them without an owner.
        self._stage.owned_by_commit = True
        try:
            if not self._write_record(record, swap, lock):
                current = settled_snapshot(self._storage, lock)
                return current, self._snapshot.compare(current)
            self._phase("record")
            completion = self._publish(record, staging_dirs, swap, lock, staged)
        except Exception:
            raise
        except BaseException as interrupt:  # keeps its type, but says what it left
            if self._was_recorded(record, interrupt):
                mark_committed(interrupt, record.number)
            raise
        self._phase("publish")
        if completion.abandoned:
            raise ConcurrentModificationError(
                f"commit {record.number} of {self._storage.root.display_path!r} was abandoned by "
                "another writer's recovery while it was published. None of its "
                "changes are in the dataset.\nHint: repeat the call."
            )
        return CommitOutcome(
            record.number,
            completion.published,
            tuple(map(self._storage.path, record.added)),
            tuple(map(self._storage.path, record.removed)),
            completion.notes,
            self._storage.capabilities.missing(),
            self._attempt,
            self._seconds,
            window_seconds=self._window_seconds,
        )

    def _publish(
        self,
        record: CommitRecord,
        staging_dirs: list[str],
        swap: Swap | None,
        lock: WriterLock,
        staged: dict[str, DataFile],
    ) -> Completion:
        """Make committed changes visible: "nothing was changed" would be a lie now."""
        try:
            publication = publish(
                self._storage, record, staging_dirs, swap, lock, self._snapshot, staged
            )
            publication.notes[:0] = self._notes
            self._window_seconds = publication.window_seconds
            return complete(self._storage, record, publication)
        except Exception as error:
            return self._completed_by_others(record, error, lock)

    def _write_record(self, record: CommitRecord, swap: Swap | None, lock: WriterLock) -> bool:
        """Create the record: the commit point. False if another writer was first."""
        try:
            lock.check()
            write_record(self._storage, record)
            if not lock.exclusive and self._was_late(record):
                self._stage.owned_by_commit = False
                return False
        except BaseException as error:
            number_is_taken = isinstance(error, FileExistsError)
            may_come_later = self._may_be_recorded_later(error)
            if may_come_later:
                self._stage.keep_until(record.number)
            if self._was_recorded(record, error):
                if number_is_taken:
                    return True  # the answer to the first request was lost, and it was repeated
                self._raise_pending(record, error)
            if may_come_later and not isinstance(error, Exception):
                mark_undecided(error, record.number)
                raise
            if may_come_later:
                path = self._storage.root.display_path
                raise CommitUnknownError.unanswered(record.number, path, error) from error
            if swap is not None:
                discard_swap(self._storage, swap.name)
            self._stage.owned_by_commit = False
            if number_is_taken:
                return False
            raise
        return True

    def _may_be_recorded_later(self, error: BaseException) -> bool:
        """Whether the store may still create the record: it did not answer, or too late.

        After Ctrl-C the client goes on with the request in a thread of its own.
        """
        if not self._storage.capabilities.conditional_put or isinstance(error, FileExistsError):
            return False
        return not isinstance(error, Exception) or is_unanswered(error)

    def _was_late(self, record: CommitRecord) -> bool:
        """Whether a record of this number was folded already, so that its name was free again.

        Others look at segments first, so the file that was written now counts for nobody.
        """
        if list_records(self._storage).segment_of(record.number) is None:
            return False
        self._storage.backend.discard(self._storage.control.record(record.number))
        return True

    def _was_recorded(self, record: CommitRecord, error: BaseException) -> bool:
        """Whether a record exists although writing it failed. Unknown is an outcome too."""
        try:
            folded = read_folded(self._storage, record.number)
            written = folded[0] if folded else read_record(self._storage, record.number)
            return written.identifier == record.identifier
        except FileNotFoundError:
            return False
        except (OSError, CorruptRecordError) as unanswered:
            path = self._storage.root.display_path
            raise CommitUnknownError.unanswered(record.number, path, unanswered) from error

    def _completed_by_others(
        self, record: CommitRecord, error: Exception, lock: WriterLock
    ) -> Completion:
        """Return what another writer's recovery made of this commit, if publishing failed here."""
        try:
            completion = read_completion(self._storage, record.number)
            if completion is None and not lock.exclusive and not self._stage.is_there():
                completion = wait_for_completion(self._storage, record)
        except (OSError, CorruptRecordError, LockTimeoutError):
            completion = None
        if completion is None:
            self._raise_pending(record, error)
        return completion

    def _raise_pending(self, record: CommitRecord, error: BaseException) -> NoReturn:
        if not isinstance(error, Exception) or isinstance(error, CommitPendingError):
            raise error
        path = self._storage.root.display_path
        raise CommitPendingError.interrupted(record.number, path, error) from error


_Current = tuple[
    Snapshot, RecordedState, "dict[str, RecordedTransaction] | None", "dict[str, DataFile] | None"
]
"""The dataset, what is on record, transactions, and staged files if they were listed."""


def _removes(storage: Storage, snapshot: Snapshot, paths: Sequence[str]) -> tuple[Remove, ...]:
    """Return the files to remove, exactly as the snapshot saw them."""
    base = storage.root.path.rstrip("/") + "/"
    removes = {}
    for path in paths:
        relative = path.removeprefix(base)
        file = snapshot.by_path.get(relative)
        if file is None:
            raise InvalidArgumentError(
                f"{path!r} cannot be removed: it is not a data file of the snapshot."
            )
        removes[relative] = Remove(
            relative, file.size, file.mtime_ns, file.inode, file.etag, file.birth_ns
        )
    return tuple(removes.values())


def _check_spellings(storage: Storage, snapshot: Snapshot, changes: FileChanges) -> None:
    """Refuse directories whose names differ in case only where the disk takes them for one.

    Rows of the partition ``k=a`` would be in the directory ``k=A``, and read as ``A``.
    """
    wanted = {file.final.rpartition("/")[0] for file in changes.adds} - {""}
    if not wanted or not storage.root.is_local or not _ignores_case(storage):
        return
    wanted |= {path.rpartition("/")[0] for path in snapshot.by_path} - {""}
    spellings: dict[str, str] = {}
    for name in sorted({part for path in wanted for part in (path, *parents_of(path))} - {""}):
        folded = unicodedata.normalize("NFC", name).casefold()
        if (other := spellings.setdefault(folded, name)) != name:
            raise UnsupportedLayoutError(
                f"{storage.root.display_path!r}: the directories {other!r} and {name!r} are one "
                "for this disk, which ignores the case of letters.\nHint: use values that differ "
                "in more than case, or a disk that distinguishes them."
            )


def _ignores_case(storage: Storage) -> bool:
    directory, _, name = storage.control.commits.rpartition("/")  # a name that has letters
    try:
        return os.path.samefile(storage.control.commits, f"{directory}/{name.swapcase()}")
    except OSError:
        return False


def _check_finals(snapshot: Snapshot, changes: FileChanges, removes: Sequence[Remove]) -> None:
    """Check that every new file has a name of its own below the root, free after the removes."""
    used = snapshot.by_path.keys() - {remove.path for remove in removes}
    for file in changes.adds:
        check_relative(file.final, what="data file")
        if file.final in used:
            raise InvalidArgumentError(
                f"{file.final!r} cannot be added: the dataset already has a file of that name."
            )
        used.add(file.final)
