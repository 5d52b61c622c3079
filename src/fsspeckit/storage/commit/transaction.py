"""The commit: many files change at once, or none do.

Given a snapshot, staged files to add and files to remove, :func:`commit` makes the change happen
completely or not at all, whatever dies and whoever else writes. It knows nothing of engines or
merges. Three outcomes, told apart by type:

* it returns: the change is done;
* :class:`~fsspeckit.errors.CommitPendingError`: the change is committed, and recovery completes it;
* any other error: nothing was changed.

    storage = open_storage(path)
    snapshot = take_snapshot(storage)
    with staging(storage) as stage:
        file = stage.new_file()
        ...                                      # write Parquet to file.path
        commit(storage, snapshot, stage, Change([file], ["part-0.parquet"]))
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NoReturn

from fsspeckit.errors import (
    CommitPendingError,
    CommitUnknownError,
    ConcurrentModificationError,
    CorruptRecordError,
    InvalidArgumentError,
    LockTimeoutError,
    mark_committed,
)
from fsspeckit.storage.commit.finalize import complete, publish, try_shadow
from fsspeckit.storage.commit.lock import locked
from fsspeckit.storage.commit.log import (
    Add,
    CommitFacts,
    CommitRecord,
    Completion,
    Remove,
    elapsed,
    read_completion,
    read_record,
    timestamp,
    write_record,
)
from fsspeckit.storage.commit.publish import check_writable, discard_shadow
from fsspeckit.storage.commit.recovery import settled_snapshot, wait_for_completion
from fsspeckit.storage.listing import check_relative
from fsspeckit.storage.snapshot import Difference, Snapshot

if TYPE_CHECKING:
    from fsspeckit.storage.commit.lock import Held
    from fsspeckit.storage.commit.log import Published
    from fsspeckit.storage.commit.publish import Shadow
    from fsspeckit.storage.commit.staging import Stage, StagedFile
    from fsspeckit.storage.storage import Storage

__all__ = ["Change", "CommitOutcome", "Replan", "commit"]

_RETRIES = 3


@dataclass(frozen=True)
class Change:
    """What a commit does."""

    adds: Sequence[StagedFile] = ()
    """Staged files that become part of the dataset."""

    removes: Sequence[str] = ()
    """Data files of the snapshot that leave it, as paths below the root or canonical paths."""


Replan = Callable[[Snapshot, Difference], Change]
"""Makes a new change from the dataset as it is now; called without the lock."""


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
    """How often the change had to be planned again."""

    seconds: dict[str, float] = field(default_factory=dict)
    """How long each phase took: verify, lock, shadow, record, publish."""


def commit(
    storage: Storage,
    snapshot: Snapshot,
    stage: Stage,
    change: Change,
    facts: CommitFacts | Callable[[], CommitFacts] | None = None,
    *,
    replan: Replan | None = None,
    retries: int = _RETRIES,
) -> CommitOutcome:
    """Publish a change of a dataset, completely or not at all.

    Args:
        storage: The dataset.
        snapshot: What the change was planned on.
        stage: Where the new files are.
        change: The files to add and to remove.
        facts: What the commit is about, for its record; or what gives it, asked again whenever the
            change was planned again.
        replan: Called with the new snapshot and the difference if the dataset has changed since
            the snapshot; gives the change to try next.
        retries: How often to plan again before giving up.

    Raises:
        ConcurrentModificationError: If the dataset has changed, or somebody else holds the lock;
            nothing was changed.
        CommitPendingError: If the change is committed but could not be completed.
        UnreadableFileError: If a staged file is not what its writer said; nothing was changed.
        OSError: What the filesystem raised; nothing was changed.
    """
    started = time.time()
    for attempt in range(retries + 1):
        about = _known(facts, started)
        transaction = _Transaction(storage, stage, snapshot, change, about, attempt)
        result = transaction.run()
        if isinstance(result, CommitOutcome):
            return result
        snapshot, difference = result
        if replan is None:
            break
        if attempt < retries:
            change = replan(snapshot, difference)
    raise ConcurrentModificationError(
        f"{storage.root.display_path!r} was changed by somebody else meanwhile: "
        f"{difference or 'another commit was first'}. Nothing was changed by this call.\n"
        "Hint: repeat it."
    )


def _known(facts: CommitFacts | Callable[[], CommitFacts] | None, started: float) -> CommitFacts:
    about = facts() if callable(facts) else facts or CommitFacts()
    return replace(about, started=started) if about.started is None else about


class _Transaction:
    """One attempt to commit one change."""

    def __init__(
        self,
        storage: Storage,
        stage: Stage,
        snapshot: Snapshot,
        change: Change,
        facts: CommitFacts,
        attempt: int,
    ) -> None:
        self._storage = storage
        self._stage = stage
        self._snapshot = snapshot
        self._facts = facts
        self._attempt = attempt
        self._change = change
        self._removes = _removes(storage, snapshot, change.removes)
        self._notes: list[str] = list(snapshot.notes)
        self._seconds: dict[str, float] = {}
        self._clock = time.perf_counter()

    def _phase(self, name: str) -> None:
        now = time.perf_counter()
        self._seconds[name] = now - self._clock
        self._clock = now

    def run(self) -> CommitOutcome | tuple[Snapshot, Difference]:
        """Commit, or tell what has changed since the snapshot."""
        _check_finals(self._snapshot, self._change, self._removes)
        self._notes += self._storage.prepare()
        adds = self._stage.prepare(self._change.adds)
        self._phase("verify")
        if not adds and not self._removes:
            return CommitOutcome(self._snapshot.number, None, retries=self._attempt)
        with locked(self._storage) as held:
            current = settled_snapshot(self._storage, held)
            difference = self._snapshot.compare(current)
            self._phase("lock")
            if difference:
                return current, difference
            return self._commit(self._record(current.number + 1, adds), held)

    def _record(self, number: int, adds: tuple[Add, ...]) -> CommitRecord:
        return CommitRecord(
            number=number,
            identifier=uuid.uuid4().hex,
            time=timestamp(),
            facts=self._facts,
            seconds=elapsed(self._facts.started),
            publish="plain",
            staging=self._stage.name,
            adds=adds,
            removes=self._removes,
        )

    def _commit(
        self, record: CommitRecord, held: Held
    ) -> CommitOutcome | tuple[Snapshot, Difference]:
        places = [self._stage.path]
        self._stage.check(record.adds)
        check_writable(self._storage, record)
        shadow = try_shadow(self._storage, record, places, held, self._notes)
        record = replace(record, publish="plain" if shadow is None else "exchange")
        self._phase("shadow")
        # An interrupt may come at any moment from here on. Staged files that a record may speak of
        # are not ours to delete; if there is no record, recovery finds them without an owner.
        self._stage.owned_by_commit = True
        try:
            if not self._write_record(record, shadow, held):
                self._stage.owned_by_commit = False
                current = settled_snapshot(self._storage, held)
                return current, self._snapshot.compare(current)
            self._phase("record")
            completion = self._publish(record, places, shadow, held)
        except Exception:
            raise
        except BaseException as interrupt:  # stays what it is, but says what it left
            if self._was_recorded(record, interrupt):
                mark_committed(interrupt, record.number)
            raise
        self._phase("publish")
        if completion.abandoned:
            raise ConcurrentModificationError(
                f"commit {record.number} of {self._storage.root.display_path!r} was abandoned by "
                "another writer's recover(abandon=True) while it was published. None of its "
                "changes are in "
                "the dataset.\nHint: repeat the call."
            )
        return self._outcome(record, completion)

    def _publish(
        self, record: CommitRecord, places: list[str], shadow: Shadow | None, held: Held
    ) -> Completion:
        """Make a change visible that is committed: "nothing was changed" would be a lie now."""
        try:
            publication = publish(self._storage, record, places, shadow, held, self._snapshot)
            publication.notes[:0] = self._notes
            return complete(self._storage, record, publication)
        except Exception as error:
            return self._completed_by_others(record, error, held)

    def _write_record(self, record: CommitRecord, shadow: Shadow | None, held: Held) -> bool:
        """Create the record: the commit point. False if another writer was first."""
        try:
            held.check()
            write_record(self._storage, record)
        except BaseException as error:
            is_taken = isinstance(error, FileExistsError)
            if self._was_recorded(record, error):
                if is_taken:
                    return True  # the answer to the first request was lost, and it was repeated
                self._raise_pending(record, error)
            if shadow is not None:
                discard_shadow(self._storage, shadow.name)
            self._stage.owned_by_commit = False
            if is_taken:
                return False
            raise
        return True

    def _was_recorded(self, record: CommitRecord, error: BaseException) -> bool:
        """Whether a record is there although writing it failed. Unknown is an outcome too."""
        try:
            return read_record(self._storage, record.number).identifier == record.identifier
        except FileNotFoundError:
            return False
        except (OSError, CorruptRecordError) as unanswered:
            path = self._storage.root.display_path
            raise CommitUnknownError.unanswered(record.number, path, unanswered) from error

    def _completed_by_others(
        self, record: CommitRecord, error: Exception, held: Held
    ) -> Completion:
        """What another writer's recovery makes of this commit, if publishing failed here."""
        try:
            completion = read_completion(self._storage, record.number)
            if completion is None and not held.exclusive and not self._stage.is_there():
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

    def _outcome(self, record: CommitRecord, completion: Completion) -> CommitOutcome:
        return CommitOutcome(
            record.number,
            completion.published,
            tuple(self._storage.path(add.final) for add in record.adds),
            tuple(self._storage.path(remove.path) for remove in record.removes),
            completion.notes,
            self._storage.capabilities.missing(),
            self._attempt,
            self._seconds,
        )


def _removes(storage: Storage, snapshot: Snapshot, paths: Sequence[str]) -> tuple[Remove, ...]:
    """The files to remove, exactly as the snapshot saw them."""
    base = storage.root.path.rstrip("/") + "/"
    removes = {}
    for path in paths:
        relative = path.removeprefix(base)
        file = snapshot.by_path.get(relative)
        if file is None:
            raise InvalidArgumentError(
                f"{path!r} cannot be removed: it is not a data file of the snapshot."
            )
        removes[relative] = Remove(relative, file.size, file.mtime_ns, file.inode, file.etag)
    return tuple(removes.values())


def _check_finals(snapshot: Snapshot, change: Change, removes: Sequence[Remove]) -> None:
    """Every new file has a name of its own, below the root, that no file which stays has."""
    taken = snapshot.by_path.keys() - {remove.path for remove in removes}
    for file in change.adds:
        check_relative(file.final, what="data file")
        if file.final in taken:
            raise InvalidArgumentError(
                f"{file.final!r} cannot be added: the dataset already has a file of that name."
            )
        taken.add(file.final)
