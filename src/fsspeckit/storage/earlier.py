"""Earlier states of a dataset: which files it had after a commit, and where they are now.

The records say what each commit has added and removed, and the trash keeps what was removed, for
a while. So an earlier state is the files of today, without what later commits have added, with what
they have removed. What other programs have added is in every state, because no record knows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

from fsspeckit.errors import InvalidArgumentError, NotRestorableError
from fsspeckit.storage.commit.log import read_records
from fsspeckit.storage.snapshot import PinnedFile, StableFiles, stable_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fsspeckit.storage.commit.log import Add, CommitRecord, Completion, Remove
    from fsspeckit.storage.listing import DataFile
    from fsspeckit.storage.storage import Storage

_MAX_ATTEMPTS = 20
_CLOCK_TOLERANCE_NS = 10_000_000
"""How much a clock that a disk uses may be behind that of the process."""

_STORE_TOLERANCE_NS = 1_000_000_000
"""Object stores report the time of one object in whole seconds."""


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file of an earlier state that a later commit has removed."""

    relative: str
    """Its path below the root in that state."""

    file: DataFile
    """Where it is now."""

    removed_by: int
    """The commit that has removed it."""


@dataclass(frozen=True)
class EarlierState:
    """The files of a dataset as they were after a commit."""

    commit: int
    """The commit; 0 for the state before the first one."""

    present: Mapping[str, DataFile]
    """Files that are in the dataset now, by their path below the root."""

    kept: tuple[KeptFile, ...]
    """Files that are to be brought back."""

    later: Mapping[str, DataFile]
    """Files that later commits have added and that are in the dataset now."""

    undone: tuple[CommitRecord, ...]
    """The later commits, the oldest first."""

    missing: tuple[str, ...] = ()
    """Files of the state that are nowhere."""

    changed: tuple[str, ...] = ()
    """Files of later commits that other programs have changed or deleted since."""


def check_commit_number(storage: Storage, commit: Any, last: int) -> int:
    """Return the number of a commit that there is; InvalidArgumentError if there is none."""
    is_number = isinstance(commit, int) and not isinstance(commit, bool)
    if is_number and 0 <= commit <= last:
        return int(commit)
    raise InvalidArgumentError(
        f"commit must be a number from 0 to {last} for {storage.root.display_path!r}, got "
        f"{commit!r}.\nHint: the history lists the numbers; 0 is the state before the first one.",
        argument="commit",
    )


def find_state(
    storage: Storage, commit: int, number: int, present: Mapping[str, DataFile]
) -> EarlierState:
    """Find the files of an earlier state.

    Args:
        storage: The dataset.
        commit: The commit after which the dataset had the state.
        number: The last commit now.
        present: The files of the dataset now, by their path below the root.
    """
    found = [
        (record, completion)
        for record, completion in read_records(storage, commit)
        if record.number <= number and not (completion and completion.abandoned)
    ]
    walk = _Walk(storage, present)
    for record, completion in reversed(found):
        walk.undo(record, completion)
    return walk.state(commit, tuple(record for record, _ in found))


@dataclass(frozen=True, slots=True)
class _Removed:
    """A file that a later commit has removed."""

    number: int
    remove: Remove


class _Walk:
    """Goes back from commit to commit."""

    def __init__(self, storage: Storage, present: Mapping[str, DataFile]) -> None:
        self._storage = storage
        self._now = present
        self._files: dict[str, DataFile | _Removed] = dict(present)
        self._left: list[_Removed] = []
        """Files that only states after the wanted one had, and that are in the trash."""
        self._changed: dict[str, None] = {}
        self._missing: dict[str, None] = {}

    def undo(self, record: CommitRecord, completion: Completion | None) -> None:
        """Go back to the state before a commit."""
        latest = None if completion is None else self._completed_ns(record, completion)
        recorded = int(datetime.fromisoformat(record.time).timestamp() * 1e9)
        for add in record.adds:
            found = self._files.pop(add.final, None)
            if found is None or not _is_added(add, found, (recorded, latest)):
                self._changed[add.final] = None
            if isinstance(found, _Removed):
                self._left.append(found)
        for remove in record.removes:
            if remove.path in self._files:
                self._missing[remove.path] = None  # another program's file was left there
            else:
                self._files[remove.path] = _Removed(record.number, remove)

    def _completed_ns(self, record: CommitRecord, completion: Completion) -> int | None:
        """Return when a commit was complete, by the clock of its filesystem if possible."""
        local = self._storage.root.is_local
        tolerance = 0 if local else _STORE_TOLERANCE_NS
        mark = self._storage.backend.stat(self._storage.control.done(record.number))
        if mark is not None and mark.mtime_ns is not None:
            return mark.mtime_ns + tolerance
        if not completion.time:
            return None
        # The time that a machine reads may be a few milliseconds ahead of that of its disk.
        return int(datetime.fromisoformat(completion.time).timestamp() * 1e9) + tolerance

    def state(self, commit: int, undone: tuple[CommitRecord, ...]) -> EarlierState:
        """Return the state that was reached."""
        present = {
            path: file for path, file in self._files.items() if not isinstance(file, _Removed)
        }
        later = {path: file for path, file in self._now.items() if path not in present}
        kept: list[KeptFile] = []
        for path, found in self._files.items():
            if not isinstance(found, _Removed):
                continue
            same = _same_in_place(path, found.remove, later)
            if same is not None:  # an undo has brought it back already
                present[same] = later.pop(same)
                continue
            file = self._locate(found)
            if file is None:
                self._missing[path] = None
            else:
                kept.append(KeptFile(path, file, found.number))
        return EarlierState(
            commit,
            present,
            tuple(kept),
            later,
            undone,
            tuple(self._missing),
            tuple(self._changed),
        )

    def _locate(self, removed: _Removed) -> DataFile | None:
        """Find a removed file: in the trash, once or several times, or not removed yet."""
        control, remove = self._storage.control, removed.remove
        paths = [control.trashed(removed.number, remove.path), self._storage.path(remove.path)]
        paths += [
            control.trashed(left.number, left.remove.path)
            for left in self._left
            if _is_same(remove, left.remove)
        ]
        for path in paths:
            found = self._storage.backend.stat(path)
            if found is not None and remove.is_still(found):
                return found
        return None


def _is_added(add: Add, found: DataFile | _Removed, published: tuple[int, int | None]) -> bool:
    """Whether a file is still the one that a commit has added.

    A file that was copied when it was published, to another disk or on an object store, was
    written between the record and the end of the commit, which are ``published``.
    """
    file = found.remove if isinstance(found, _Removed) else found
    if file.size != add.size:
        return False
    is_same = (add.mtime_ns, add.inode) == (file.mtime_ns, file.inode)
    has_births = None not in (add.birth_ns, file.birth_ns)
    if add.inode is not None and is_same and not (has_births and add.birth_ns != file.birth_ns):
        return True
    earliest, latest = published
    if latest is None or file.mtime_ns is None:
        return True
    is_young = add.inode is None or file.mtime_ns >= earliest - _CLOCK_TOLERANCE_NS
    return is_young and file.mtime_ns <= latest


def _is_same(one: Remove, other: Remove | DataFile) -> bool:
    """Whether two names are, or were, those of one file: the trash and an undo share its inode."""
    seen = (one.size, one.mtime_ns, one.inode)
    return one.inode is not None and seen == (other.size, other.mtime_ns, other.inode)


def _same_in_place(path: str, remove: Remove, later: Mapping[str, DataFile]) -> str | None:
    """Return the name under which a file is in its directory now."""
    directory = path.rpartition("/")[0]
    names = (name for name, file in later.items() if _is_same(remove, file))
    return next((name for name in names if name.rpartition("/")[0] == directory), None)


def not_restorable(
    storage: Storage, state: EarlierState, missing: Sequence[str], changed: Sequence[str] = ()
) -> NotRestorableError:
    """Return the error about a state that there is no more."""
    return NotRestorableError.found(
        storage.root.display_path,
        state.commit,
        missing,
        changed,
        keeps_trash=storage.capabilities.trash,
        purged=any(record.facts.purge for record in state.undone),
    )


def earlier_files(storage: Storage, commit: Any) -> StableFiles:
    """List the data files of the state after a commit; changes nothing.

    Raises:
        InvalidArgumentError: If there is no such commit.
        NotRestorableError: If files of that state are gone.
    """
    for _ in range(_MAX_ATTEMPTS):
        now = stable_files(storage)
        check_commit_number(storage, commit, now.number)
        state = find_state(
            storage, commit, now.number, {pinned.relative: pinned.file for pinned in now.files}
        )
        if not state.missing:
            break
        if stable_files(storage) == now:
            raise not_restorable(storage, state, state.missing)
    files = chain(
        (PinnedFile(path, file) for path, file in state.present.items()),
        (PinnedFile(kept.relative, kept.file) for kept in state.kept),
    )
    ordered = sorted(files, key=lambda pinned: pinned.relative)
    return StableFiles(commit, tuple(ordered), now.exists, now.obstacles)
