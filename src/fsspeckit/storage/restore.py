"""Undo and restore: a new commit brings back the files of an earlier state.

The files come out of the trash under new names, as second names of what is there: nothing is
copied where the disk has hard links, and the trash keeps its own. A name that a file once had is
not used again, because a writer that is late, such as a recovery without a lock, would remove it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fsspeckit.display import Card, Displayed, FileGroup, Listing, report_nothing
from fsspeckit.errors import InvalidArgumentError
from fsspeckit.storage.commit.log import (
    CommitFacts,
    RecordedState,
    Tombstones,
    read_records,
)
from fsspeckit.storage.commit.recovery import take_snapshot
from fsspeckit.storage.commit.staging import staging
from fsspeckit.storage.commit.tombstones import find_tombstones
from fsspeckit.storage.commit.transaction import FileChanges
from fsspeckit.storage.commit.transaction import commit as commit_changes
from fsspeckit.storage.earlier import check_commit_number, find_state, not_restorable
from fsspeckit.storage.listing import plain_basename, unique_basename
from fsspeckit.storage.snapshot import stable_files
from fsspeckit.storage.storage import open_storage

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from fsspeckit.display import Phases, Progress
    from fsspeckit.storage.commit.staging import Stage, StagedFile
    from fsspeckit.storage.earlier import EarlierState, KeptFile
    from fsspeckit.storage.listing import DataFile
    from fsspeckit.storage.snapshot import Snapshot
    from fsspeckit.storage.storage import Retention, Storage

_FIRST_STEP = 20
"""How many of the last commits are read first to find the one that changed files."""


@dataclass(frozen=True, slots=True)
class RestoredFile:
    """A file that came back."""

    path: str
    """Its path below the dataset now; in a dry run the one that it had."""

    original: str
    """The path that it had."""

    bytes: int
    """Its size."""

    removed_by: int
    """The commit that had removed it."""


@dataclass(frozen=True)
class RestoreResult(Displayed):
    """What an undo or a restore did, or would do."""

    path: str
    """The dataset."""

    restores: int
    """The commit whose state it is; 0 for the state before the first one."""

    commit: int | None
    """The number of the new commit; None if there was nothing to do, or in a dry run."""

    undone: tuple[int, ...]
    """The commits whose changes are taken back."""

    restored: tuple[RestoredFile, ...]
    """The files that came back."""

    removed: tuple[str, ...]
    """The files that later commits had added, below the dataset; the trash keeps them."""

    kept: int
    """How many files stay."""

    transactions: tuple[str, ...] = ()
    """Batches that are no longer committed: a job that repeats one applies it again."""

    dry_run: bool = False
    """Whether nothing was changed."""

    notes: tuple[str, ...] = ()
    """What happened on the way that a person should know."""

    def _title(self) -> str:
        state = f"the state after commit {self.restores}"
        if not self.restores:
            state = "the state before the first commit"
        if self.dry_run:
            return f"{self.path}: {state} would come back, without {_commits(self.undone)}"
        if self.commit is None:
            return f"{self.path}: has {state} already"
        without = _commits(self.undone)
        return f"{self.path}: {state} is back by commit {self.commit}, without {without}"

    def _card(self) -> Card:
        files = [(file.original, "restored") for file in self.restored]
        files += [(path, "removed") for path in self.removed]
        groups = (
            FileGroup("restored", "added", len(self.restored)),
            FileGroup("removed", "removed", len(self.removed)),
            FileGroup("kept", "kept", self.kept),
        )
        forgotten = (
            (f"not committed any more: {', '.join(self.transactions)}",)
            if self.transactions
            else ()
        )
        return Card(
            self._title(),
            tuple(group for group in groups if group.count),
            Listing.of(("file", "what"), files, tuple),
            (*forgotten, *self.notes),
        )


def _commits(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"commit {numbers[0]}"
    return f"commits {numbers[0]} to {numbers[-1]}" if numbers else "any commit"


def undo(
    path: str | os.PathLike[str],
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    *,
    control_dir: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
    retention: Retention | None = None,
    lock_timeout: float = 30.0,
) -> RestoreResult:
    """Take back the last commit that changed files, by a new commit.

    An undo is a commit, too: a second one takes back the first.

    Args:
        path: The dataset.
        filesystem: An fsspec or pyarrow filesystem; None to find it from the URL.
        storage_options: What fsspec needs to open the filesystem of the URL.
        control_dir: The control directory, where it is not beside the dataset.
        dry_run: Whether to change nothing, and only say what would be done.
        retention: How long replaced files are kept, as the writers say; None for the default.
        lock_timeout: How many seconds to wait for another writer.

    Returns:
        The files that came back, and those that went.

    Raises:
        NotRestorableError: If a file is not in the trash any more, or other programs have changed
            files of the commit since; it names them, and nothing was changed.
        InvalidArgumentError: If there is no commit to take back.
        ConcurrentModificationError: If somebody else commits meanwhile; nothing was changed.

    Examples:
        >>> import pyarrow as pa
        >>> import fsspeckit
        >>> for v in ("right", "wrong"):
        ...     rows = pa.table({"id": [len(v)], "v": [v]})
        ...     _ = fsspeckit.write_dataset(rows, "memory://doc-undo", engine="pyarrow")
        >>> print(undo("memory://doc-undo"))
        memory:///doc-undo: the state after commit 1 is back by commit 3, without commit 2
        2 files: 1 removed, 1 kept
        >>> fsspeckit.read_dataset("memory://doc-undo", engine="pyarrow").to_pylist()
        [{'id': 5, 'v': 'right'}]
    """
    storage = open_storage(
        path,
        filesystem,
        storage_options,
        control_dir=control_dir,
        lock_timeout=lock_timeout,
        retention=retention,
    )
    storage.check_exists()
    return undo_storage(storage, dry_run=dry_run)


def restore(
    path: str | os.PathLike[str],
    commit: int,
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    *,
    control_dir: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
    retention: Retention | None = None,
    lock_timeout: float = 30.0,
) -> RestoreResult:
    """Bring back the state of a dataset after a commit, by a new commit.

    Args:
        path: The dataset.
        commit: The number of the commit; 0 for the state before the first one.
        filesystem: An fsspec or pyarrow filesystem; None to find it from the URL.
        storage_options: What fsspec needs to open the filesystem of the URL.
        control_dir: The control directory, where it is not beside the dataset.
        dry_run: Whether to change nothing, and only say what would be done.
        retention: How long replaced files are kept, as the writers say; None for the default.
        lock_timeout: How many seconds to wait for another writer.

    Returns:
        The files that came back, and those that went.

    Raises:
        NotRestorableError: If a file is not in the trash any more, or other programs have changed
            files of later commits since; it names them, and nothing was changed.
        InvalidArgumentError: If there is no such commit.
        ConcurrentModificationError: If somebody else commits meanwhile; nothing was changed.

    Examples:
        >>> import pyarrow as pa
        >>> import fsspeckit
        >>> for v in ("a", "b", "c"):
        ...     rows = pa.table({"v": [v]})
        ...     _ = fsspeckit.write_dataset(rows, "memory://doc-restore", engine="pyarrow")
        >>> restore("memory://doc-restore", 1).undone
        (2, 3)
    """
    storage = open_storage(
        path,
        filesystem,
        storage_options,
        control_dir=control_dir,
        lock_timeout=lock_timeout,
        retention=retention,
    )
    storage.check_exists()
    return restore_storage(storage, commit, dry_run=dry_run)


def undo_storage(
    storage: Storage, *, dry_run: bool = False, progress: Progress = report_nothing
) -> RestoreResult:
    """Take back the last commit of an open storage that changed files."""
    if not isinstance(dry_run, bool):
        raise InvalidArgumentError.flag("dry_run", dry_run)
    with _observe(storage, "undo", dry_run, progress) as phases:
        now = _now(storage, dry_run=dry_run)
        number = _last_change(storage, now.number)
        if number is None:
            raise InvalidArgumentError(
                f"{storage.root.display_path!r} has no commit that could be undone."
            )
        return _run(storage, now, number - 1, "undo", phases)


def restore_storage(
    storage: Storage, commit: Any, *, dry_run: bool = False, progress: Progress = report_nothing
) -> RestoreResult:
    """Bring back the state of an open storage after a commit."""
    if not isinstance(dry_run, bool):
        raise InvalidArgumentError.flag("dry_run", dry_run)
    with _observe(storage, "restore", dry_run, progress) as phases:
        now = _now(storage, dry_run=dry_run)
        number = check_commit_number(storage, commit, now.number)
        return _run(storage, now, number, "restore", phases)


def _observe(
    storage: Storage, call: str, dry_run: bool, progress: Progress
) -> AbstractContextManager[Phases]:
    return storage.observe(f"plan_{call}" if dry_run else call, progress=progress)


@dataclass(frozen=True)
class _Now:
    """The dataset as it is."""

    number: int
    files: Mapping[str, DataFile]
    snapshot: Snapshot | None
    """What a commit can be based on; None in a dry run, which does not complete what is pending."""


def _now(storage: Storage, *, dry_run: bool) -> _Now:
    if dry_run:
        state = stable_files(storage)
        files = {pinned.relative: pinned.file for pinned in state.files}
        return _Now(state.number, files, None)
    snapshot = take_snapshot(storage)
    return _Now(snapshot.number, snapshot.by_path, snapshot)


def _last_change(storage: Storage, last: int) -> int | None:
    """Return the last commit that changed files; None if there is none."""
    step = _FIRST_STEP
    while True:
        after = max(0, last - step)
        for record, completion in reversed(read_records(storage, after)):
            is_abandoned = completion is not None and completion.abandoned
            if record.number <= last and not is_abandoned and (record.adds or record.removes):
                return record.number
        if not after:
            return None
        step *= 10


def _run(storage: Storage, now: _Now, number: int, strategy: str, phases: Phases) -> RestoreResult:
    started = time.time()
    state = find_state(storage, number, now.number, now.files)
    missing = [*state.missing, *_missing_tombstones(storage, number, now.number)]
    if missing or state.changed:
        raise not_restorable(storage, state, missing, state.changed)
    result = RestoreResult(
        storage.root.display_path,
        number,
        None,
        tuple(record.number for record in state.undone),
        tuple(_restored(kept, kept.relative) for kept in state.kept),
        tuple(sorted(state.later)),
        len(state.present),
        tuple(str(record.transaction) for record in state.undone if record.transaction),
        now.snapshot is None,
    )
    changes_more = any(r.transaction or r.changes_tombstones for r in state.undone)
    has_changes = bool(state.kept or state.later or changes_more)
    if now.snapshot is None or not has_changes:
        return result
    with staging(storage) as stage:
        adds = []
        with phases.timed("restore") as facts:
            for count, kept in enumerate(state.kept, 1):
                adds.append(_stage_copy(storage, stage, state, kept))
                phases.report("restore", count, len(state.kept))
            facts["files"] = len(adds)
            facts["bytes"] = sum(kept.file.size for kept in state.kept)
        with phases.timed("commit"):
            outcome = commit_changes(
                storage,
                now.snapshot,
                stage,
                FileChanges(adds, list(state.later), restores=number),
                CommitFacts("", strategy, started=started, restores=number),
            )
    restored = (_restored(kept, file.final) for kept, file in zip(state.kept, adds, strict=True))
    return replace(result, commit=outcome.number, restored=tuple(restored), notes=outcome.notes)


def _restored(kept: KeptFile, path: str) -> RestoredFile:
    return RestoredFile(path, kept.relative, kept.file.size, kept.removed_by)


def _stage_copy(storage: Storage, stage: Stage, state: EarlierState, kept: KeptFile) -> StagedFile:
    """Stage a file under a new name, or in the place of the file that took its name."""
    directory, slash, name = kept.relative.rpartition("/")
    final = kept.relative
    if final not in state.later:
        final = f"{directory}{slash}{unique_basename(plain_basename(name))}"
    try:
        return stage.keep_copy(kept.file.path, final, kept.file.size)
    except FileNotFoundError as error:  # removed from the trash meanwhile
        raise not_restorable(storage, state, [kept.relative]) from error


def _missing_tombstones(storage: Storage, number: int, last: int) -> list[str]:
    """Return the files of tombstones that a state needs and that are nowhere."""
    wanted = RecordedState(storage, number).tombstones(float("inf")) or Tombstones()
    commits = range(number + 1, last + 1)
    return [
        f"tombstones/{file.name}"
        for file in wanted.files
        if find_tombstones(storage, file.name, commits) is None
    ]
