"""Staging directories: where a writer completes its files before anybody can see them.

A staging directory belongs to one writer. On local disks the writer holds a kernel lock on its
owner file, so that recovery knows for certain whether the owner is gone; elsewhere the file names
the process.

A writer that takes long publishes its phases in its staging directory, on local disks: elsewhere
each would be a request. Nothing depends on that file, and a writer that cannot write it goes on.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from fsspeckit.errors import FsspeckitError, InvalidArgumentError, UnreadableFileError
from fsspeckit.storage.commit.lock import (
    is_this_process,
    owner_document,
    state_of,
    try_lock_if_supported,
)
from fsspeckit.storage.commit.log import Add, list_records
from fsspeckit.storage.fs import syscalls
from fsspeckit.storage.fs.attributes import follow_directory, follow_file
from fsspeckit.storage.fs.reads import open_input
from fsspeckit.storage.listing import check_data_name, check_relative, parents_of, unique_basename
from fsspeckit.storage.storage import OWNER_FILE, STAGED_SUFFIX, renamed_staging

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fsspeckit.storage.commit.lock import ProcessState
    from fsspeckit.storage.commit.log import Transaction
    from fsspeckit.storage.fs.tasks import Task
    from fsspeckit.storage.listing import DataFile
    from fsspeckit.storage.storage import Storage

MAX_OWNER_AGE = timedelta(days=7)
"""How long a writer of whom nothing is known may be alive."""

PHASES_FILE = "phases.json"
MIN_SECONDS = 0.5
"""A call that takes less publishes nothing, so that small merges cost what they cost without."""

_PAUSE_SECONDS = 0.25
"""Counts within a phase are published no more often than this."""

_MAX_ATTEMPTS = 5
# How long to wait before trying again to remove a directory into which somebody still writes.
_PAUSES = (0.01, 0.05, 0.25, 0.0)
# Staging directories of this process on filesystems without kernel locks.
_alive: set[str] = set()
# Those of commits of which nobody knows whether they are recorded, with their numbers.
_undecided: dict[str, int] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_alive.clear)
    os.register_at_fork(after_in_child=_undecided.clear)


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file that a writer has put, or will put, into its staging directory."""

    path: str
    """Where to write it."""

    final: str
    """Its path below the root once it is published."""

    rows: int | None = None
    """How many rows it must hold; None if unknown."""

    size: int | None = None
    """How many bytes it must have; None if unknown."""

    like: str | None = None
    """The file below the root whose permissions it takes, instead of its directory's."""

    parquet: bool = True
    """Whether its footer is read before it is published; its writer may have done so already."""


@dataclass(frozen=True, slots=True)
class WorkerStage:
    """A staging directory, for another process that writes files for its owner."""

    path: str

    def new_file(
        self, directory: str = "", basename: str = "part.parquet", *, like: str | None = None
    ) -> StagedFile:
        """Name a new file, see :meth:`Stage.new_file`."""
        if directory:
            check_relative(directory, what="directory")
        name = unique_basename(basename)
        final = check_data_name(f"{directory}/{name}" if directory else name)
        return StagedFile(f"{self.path}/{name}{STAGED_SUFFIX}", final, like=like)


class Stage:
    """An open staging directory."""

    def __init__(self, storage: Storage, name: str, owner: int | None = None) -> None:
        self.storage = storage
        """The dataset that it is for."""
        self.name = name
        """Its name in the control directory."""
        self.owned_by_commit = False
        """Whether a commit record refers to it, so that it is no longer ours to delete."""
        self._owner = owner
        self._finished: set[str] = set()
        self._owned: Task[None] | None = None

    @property
    def path(self) -> str:
        """The canonical path of the directory."""
        return self.storage.control.at(self.name)

    def begin_to_own(self) -> None:
        """Let the owner file be written while the first files are; recovery leaves both alone."""
        self._owned = self.storage.backend.begin(self._write_owner)

    def _write_owner(self) -> None:
        with self.storage.writing_control("staging"):
            self.storage.backend.overwrite(f"{self.path}/{OWNER_FILE}", owner_document())

    def check_owned(self) -> None:
        """Wait until the owner file is written, and raise the error if it could not be."""
        if self._owned is not None:
            self._owned.result()

    def is_there(self) -> bool:
        """Whether it still has its name: another writer's recovery renames it."""
        return bool(self.storage.backend.names(self.path))

    def new_file(
        self, directory: str = "", basename: str = "part.parquet", *, like: str | None = None
    ) -> StagedFile:
        """Name a new file with a unique final name, to be written at its ``path``.

        Args:
            directory: The directory below the root that it will be in.
            basename: What its name is derived from.
            like: The file it replaces, whose permissions it takes.

        Raises:
            InvalidArgumentError: If the name would leave the root or would not be data.
        """
        return WorkerStage(self.path).new_file(directory, basename, like=like)

    def new_copy(self, final: str) -> StagedFile:
        """Name a staged file that will get a given final name, replacing a file that has it."""
        check_relative(final, what="data file")
        name = unique_basename(final.rpartition("/")[2])
        return StagedFile(f"{self.path}/{name}{STAGED_SUFFIX}", final, like=final, parquet=False)

    def keep_copy(self, source: str, final: str, size: int) -> StagedFile:
        """Stage a file that exists already, as it is: a second name of it where that is possible.

        FileNotFoundError if it is gone.
        """
        name = unique_basename(final.rpartition("/")[2])
        file = StagedFile(
            f"{self.path}/{name}{STAGED_SUFFIX}", check_data_name(final), None, size, parquet=False
        )
        self.storage.backend.keep_copy(source, file.path)
        self.storage.backend.sync_file(file.path)
        self._finished.add(file.path)
        return file

    def prepare(self, files: Sequence[StagedFile]) -> tuple[Add, ...]:
        """Verify staged files and make them ready to be published.

        Raises:
            UnreadableFileError: If one is not what its writer said.
            FileNotFoundError: If one is not there.
        """
        self.check_owned()
        for file in files:
            directory, _, name = file.path.rpartition("/")
            if directory != self.path or not name:
                raise InvalidArgumentError(f"{file.path!r} is not in the staging directory.")
            check_relative(file.final, what="data file")
        is_known = not any(file.parquet or file.size is None for file in files)
        if not self.storage.root.is_local and is_known:
            # Their writers have looked at them, and `check` does so right before the commit.
            return tuple(map(_as_written, files))
        there = self.storage.backend.stat_all([file.path for file in files])
        adds = tuple(self._prepare_file(file, there.get(file.path)) for file in files)
        self.storage.backend.sync_directory(self.path)
        return adds

    def staged_files(self, adds: Sequence[Add]) -> dict[str, DataFile]:
        """Return prepared files by path, as they are now."""
        if adds and not self.storage.capabilities.directories:
            return self.storage.backend.files_in(self.path)
        return self.storage.backend.stat_all([f"{self.path}/{add.staged}" for add in adds])

    def check(
        self, adds: Sequence[Add], found: dict[str, DataFile] | None = None
    ) -> dict[str, DataFile]:
        """Return prepared files by path, right before the commit.

        ``found`` are those of :meth:`staged_files`, if they were just asked for. FileNotFoundError
        if one is gone.
        """
        there = self.staged_files(adds) if found is None else found
        for add in adds:
            file = there.get(f"{self.path}/{add.staged}")
            if file is None or file.size != add.size:
                raise FileNotFoundError(f"the staged file for {add.final!r} has vanished.")
        return there

    def _prepare_file(self, file: StagedFile, found: DataFile | None) -> Add:
        name = file.path.rpartition("/")[2]
        found, rows = _verify(self.storage, file, found)
        if file.path not in self._finished:
            self.finish(file)
        if not self.storage.root.is_local:  # publishing copies it
            return Add(name, file.final, rows, found.size)
        return Add(name, file.final, rows, found.size, found.mtime_ns, found.inode, found.birth_ns)

    def finish(self, file: StagedFile) -> None:
        """Give a written file its permissions, and wait until it would survive a power failure."""
        if self.storage.root.is_local:
            self._take_attributes(file)
        self.storage.backend.sync_file(file.path)
        self._finished.add(file.path)

    def _take_attributes(self, file: StagedFile) -> None:
        """Copy permissions from the file it replaces, or from the deepest existing directory.

        The lock is not held: another commit may remove either of them at any moment.
        """
        if file.like is not None and follow_file(file.path, self.storage.path(file.like)):
            return
        for parent in [*parents_of(file.final), ""]:
            if follow_directory(file.path, self.storage.path(parent)):
                return

    def discard(self) -> None:
        """Remove the directory, unless a commit record refers to it."""
        if self._owned is not None:
            self._owned.wait()  # else the owner file would come after all others are gone
        try:
            # What cannot be removed now is removed by the next writer's recovery.
            with suppress(OSError):
                # A task that is no longer needed may still write into it.
                for pause in () if self.owned_by_commit else _PAUSES:
                    if self.storage.backend.discard_tree(self.path):
                        break
                    time.sleep(pause)
        finally:
            self.release()

    def keep_until(self, number: int) -> None:
        """Keep the directory until a commit has this number: it may turn out to be this one."""
        self.owned_by_commit = True
        _undecided[self.path] = number

    def release(self) -> None:
        """Give up the ownership, so that recovery may remove the directory."""
        _alive.discard(self.path)
        if self._owner is not None:
            os.close(self._owner)
            self._owner = None


@contextmanager
def staging(storage: Storage, *, waits: bool = True) -> Iterator[Stage]:
    """Open a staging directory and remove it afterwards, unless it was committed.

    If it does not wait, its owner file may be on its way while the first files are written to an
    object store. A commit waits for it.
    """
    stage = create_stage(storage, waits=waits)
    try:
        yield stage
    except OSError:
        stage.check_owned()  # the same obstacle, and its error says what to do about it
        raise
    finally:
        stage.discard()


def create_stage(storage: Storage, *, waits: bool = True) -> Stage:
    """Create a staging directory that lives until it is discarded, or its process ends."""
    storage.prepare()
    if not storage.capabilities.directories:
        return _create_prefix(storage, waits=waits)
    for _ in range(_MAX_ATTEMPTS):
        identifier = uuid.uuid4().hex
        locks = storage.capabilities.kernel_lock
        with storage.writing_control("staging"):
            stage = (_create_locked if locks else _create_unlocked)(storage, identifier)
        if stage is not None:
            return stage
    raise OSError(f"{storage.control.path!r}: staging directories vanish as they are created.")


def _create_prefix(storage: Storage, *, waits: bool) -> Stage:
    """Create a staging directory where it need not exist before the files in it."""
    stage = Stage(storage, f".staging_{uuid.uuid4().hex}")
    _alive.add(stage.path)
    stage.begin_to_own()
    if waits:
        try:
            stage.check_owned()
        except BaseException:
            stage.discard()
            raise
    return stage


def _create_unlocked(storage: Storage, identifier: str) -> Stage | None:
    """Create a staging directory where only the content of its owner file says whose it is."""
    stage = Stage(storage, f".staging_{identifier}")
    _alive.add(stage.path)
    try:
        storage.backend.make_directories(stage.path)
        storage.backend.overwrite(f"{stage.path}/{OWNER_FILE}", owner_document())
    except FileNotFoundError:  # a recovery removed the empty directory as a leftover
        stage.discard()
        return None
    except BaseException:
        stage.discard()
        raise
    return stage


def _create_locked(storage: Storage, identifier: str) -> Stage | None:
    """Create and lock a local staging directory; None if a recovery removed it as a leftover.

    It gets its name when it is locked. So whoever finds a directory of that name without a locked
    owner file in it knows for certain that nobody uses it, or will.
    """
    opening = storage.control.at(f".opening_{identifier}")
    name = f".staging_{identifier}"
    syscalls.make_directory(opening)
    owner: int | None = None
    try:
        owner = syscalls.create(f"{opening}/{OWNER_FILE}")
        # False if a recovery is checking it just now. Where nobody can lock, nobody considers an
        # unlocked file abandoned.
        if try_lock_if_supported(owner, f"{opening}/{OWNER_FILE}"):
            syscalls.write(owner, f"{opening}/{OWNER_FILE}", owner_document())
            storage.backend.rename_directory(opening, storage.control.at(name))
            stage, owner = Stage(storage, name, owner), None
            return stage
    except FileNotFoundError:
        pass  # a recovery has renamed it
    finally:
        if owner is not None:
            os.close(owner)
    return None


def owner_state(storage: Storage, name: str) -> ProcessState:
    """Whether somebody may still write into a staging directory."""
    path = storage.control.at(name, OWNER_FILE)
    if storage.capabilities.kernel_lock:
        return _lock_state(path)
    if storage.control.at(name) in _alive or _is_undecided(storage, storage.control.at(name)):
        return "running"
    try:
        owner: Any = json.loads(storage.backend.read(path))
        begun = datetime.fromisoformat(owner["time"])
        state = "gone" if is_this_process(owner) else state_of(owner)
    except FileNotFoundError:
        return _state_without_owner(storage, name)
    except (ValueError, KeyError, TypeError):
        return "unknown"
    if state == "unknown" and datetime.now(UTC) - begun > MAX_OWNER_AGE:
        return "gone"
    return state


def _state_without_owner(storage: Storage, name: str) -> ProcessState:
    """Whether somebody may still write into a directory that says nothing of its owner.

    Its owner file may be on its way. Where none ever comes, its writer has died before.
    """
    modified = storage.backend.modified_below(storage.control.at(name))
    oldest = time.time() - MAX_OWNER_AGE.total_seconds()
    is_old = all(when is not None and when < oldest for when in modified.values())
    return "gone" if is_old else "unknown"


def _is_undecided(storage: Storage, place: str) -> bool:
    """Whether the record that needs a staging directory may still appear."""
    number = _undecided.get(place)
    if number is None:
        return False
    if list_records(storage).last >= number:
        del _undecided[place]
        return False
    return True


def _lock_state(path: str) -> ProcessState:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return "gone"
    try:
        return "gone" if syscalls.try_lock(descriptor, path) else "running"
    except OSError:
        return "unknown"
    finally:
        os.close(descriptor)


@contextmanager
def own_staging(storage: Storage, name: str) -> Iterator[None]:
    """Own a staging directory that another writer has left, while its commit is completed."""
    place = storage.control.at(name)
    _alive.add(place)
    try:
        storage.backend.overwrite(f"{place}/{OWNER_FILE}", owner_document())
        yield
    finally:
        _alive.discard(place)


def sweep_staging(storage: Storage, name: str, is_committed: Callable[[], bool]) -> bool | None:
    """Remove a staging directory that no commit refers to, if its owner is gone.

    ``is_committed`` says whether a pending commit needs it. It is asked once the owner is known to
    be gone: the owner cannot commit any more then.

    Returns:
        Whether it was removed; None if it is needed, or its owner removed or renamed it.
    """
    if owner_state(storage, name) != "gone":
        return False
    if is_committed():
        return None
    place = storage.control.at(name)
    if storage.capabilities.kernel_lock and "~" not in name:
        # Renamed first: an owner that is about to lock it cannot use it any more. And an owner
        # does not wait for anybody when it removes its own.
        try:
            storage.backend.rename_directory(place, f"{place}~0")
        except FileNotFoundError:
            return None
        place = f"{place}~0"
    storage.backend.discard_tree(place)
    return True


def current_names(storage: Storage, staging_name: str) -> list[str]:
    """Return the names that a staging directory has now, after recoveries have renamed it."""
    return renamed_staging(storage.backend.names(storage.control.path), staging_name)


def staging_paths(storage: Storage, staging_name: str) -> list[str]:
    """Return the paths that a staging directory has now, after recoveries have renamed it."""
    return [storage.control.at(name) for name in current_names(storage, staging_name)]


def find_staged(storage: Storage, staging_dirs: Sequence[str], staged: str) -> str | None:
    """Return the path of a staged file; None if it is in none of the directories."""
    paths = (f"{directory}/{staged}" for directory in staging_dirs)
    return next((path for path in paths if storage.backend.stat(path) is not None), None)


def _as_written(file: StagedFile) -> Add:
    assert file.size is not None
    return Add(file.path.rpartition("/")[2], file.final, file.rows, file.size)


def _verify(
    storage: Storage, file: StagedFile, found: DataFile | None
) -> tuple[DataFile, int | None]:
    """Return a staged file as it was found, and its number of rows, checked."""
    if found is None:
        raise FileNotFoundError(f"the staged file {file.path!r} for {file.final!r} is not there.")
    if file.size is not None and found.size != file.size:
        raise UnreadableFileError(
            f"the staged file for {file.final!r} has {found.size} bytes instead of {file.size}."
        )
    rows = _footer_rows(storage, file, found) if file.parquet else file.rows
    if file.rows is not None and rows != file.rows:
        raise UnreadableFileError(
            f"the staged file for {file.final!r} holds {rows} rows instead of {file.rows}."
        )
    return found, rows


def _footer_rows(storage: Storage, file: StagedFile, found: DataFile) -> int:
    import pyarrow as pa
    from pyarrow import parquet

    root = storage.root
    try:
        with ExitStack() as stack:
            source: Any = file.path
            if not root.is_local:
                source = stack.enter_context(open_input(root, file.path, found))
            return int(parquet.read_metadata(source).num_rows)
    except pa.ArrowException as error:
        raise UnreadableFileError(
            f"the staged file for {file.final!r} is not readable as Parquet: {error}"
        ) from error


# What a writer publishes of its work


@dataclass(frozen=True, slots=True)
class PublishedPhase:
    """One phase of a call."""

    name: str
    done: int
    """How much of it is done, such as files or tasks."""

    total: int
    """How much there is; 0 if it is not known."""

    seconds: float
    """How long it took; of the last phase, how long until it was published."""

    is_done: bool


class PhasePublisher:
    """Publishes the phases of one call in its staging directory.

    Args:
        storage: The dataset.
        stage: Opens the staging directory of the call, or returns it.
        engine: The engine that works.
        strategy: What it does.
        transaction: Which batch of which application it is.
    """

    def __init__(
        self,
        storage: Storage,
        stage: Callable[[], Stage],
        engine: str,
        strategy: str,
        transaction: Transaction | None = None,
    ) -> None:
        self._storage = storage
        self._stage = stage
        self._about = {
            "engine": engine,
            "strategy": strategy,
            "transaction": None if transaction is None else str(transaction),
        }
        self._started = self._last = time.monotonic()
        self._phases: list[PublishedPhase] = []
        self._begun = 0.0
        self._path: str | None = None
        self._is_on = storage.root.is_local

    def begin(self, phase: str) -> None:
        """Publish that a phase begins."""
        self._begun = time.monotonic()
        self._phases.append(PublishedPhase(phase, 0, 0, 0.0, False))
        self._open()
        self._publish()

    def count(self, done: int, total: int) -> None:
        """Publish how much of the current phase is done, but not too often."""
        if self._phases and time.monotonic() - self._last >= _PAUSE_SECONDS:
            self._phases[-1] = replace(self._phases[-1], done=done, total=total)
            self._publish()

    def end(self) -> None:
        """Publish that the current phase has ended."""
        seconds = time.monotonic() - self._begun
        self._phases[-1] = replace(self._phases[-1], seconds=seconds, is_done=True)
        self._open()
        self._publish()

    def _open(self) -> None:
        """Find out where to publish, once the call has taken long enough."""
        if not self._is_on or self._path or time.monotonic() - self._started < MIN_SECONDS:
            return
        if not self._storage.backend.names(self._storage.control.path):
            return  # a call that may still be refused does not create the control directory
        try:
            self._path = f"{self._stage().path}/{PHASES_FILE}"
        except (OSError, FsspeckitError):
            self._is_on = False  # the call itself says so, if it needs the directory

    def _publish(self) -> None:
        if not self._is_on or self._path is None:
            return
        self._last = time.monotonic()
        current = self._phases[-1]
        if not current.is_done:
            self._phases[-1] = replace(current, seconds=self._last - self._begun)
        phases = [asdict(phase) for phase in self._phases]
        try:
            syscalls.replace_note(
                self._path, json.dumps({**self._about, "phases": phases}).encode()
            )
        except OSError:
            self._is_on = False
