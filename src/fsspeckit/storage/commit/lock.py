"""The lock of the writer that publishes, and which processes are still running.

The lock is a kernel lock on a file: no lease, nothing to break, and gone with its process. Where
a filesystem has no kernel locks, the exclusive creation of the commit record decides instead.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from fsspeckit.errors import ConcurrentModificationError, LockTimeoutError
from fsspeckit.storage.commit.log import timestamp
from fsspeckit.storage.fs import syscalls
from fsspeckit.storage.fs.attributes import mount_points

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fsspeckit.storage.storage import Storage

ProcessState = Literal["running", "gone", "unknown"]

_FIRST_PAUSE_SECONDS = 0.005
_MAX_PAUSE_SECONDS = 0.1

_identifier = uuid.uuid4().hex


def _renew_identifier() -> None:
    global _identifier
    _identifier = uuid.uuid4().hex


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_identifier)


def this_process() -> dict[str, Any]:
    """Describe this process for other writers.

    Two containers may share host name and process number. So each process has a random identifier,
    and others look it up only under the same kernel and in the same namespace of process numbers.
    """
    return {
        "id": _identifier,
        "pid": os.getpid(),
        "begun": _start_of(os.getpid()),
        "namespace": _namespace(),
        "host": socket.gethostname(),
        "time": timestamp(),
    }


def owner_document() -> bytes:
    """Encode the description of this process for a file that it owns."""
    return (json.dumps(this_process()) + "\n").encode()


def is_this_process(owner: dict[str, Any]) -> bool:
    """Whether a description is that of this process."""
    return owner.get("id") == _identifier


def state_of(owner: dict[str, Any]) -> ProcessState:
    """Whether a process is running that described itself with :func:`this_process`."""
    namespace = _namespace()
    if namespace is None or owner.get("namespace") != namespace:
        return "unknown"
    process = int(owner["pid"])
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return "gone"
    except PermissionError:
        pass  # of another user
    begun = _start_of(process)
    if begun is None:
        return "unknown"  # it is hidden from this user
    return "running" if begun == owner.get("begun") else "gone"  # its number was reused


def _namespace() -> str | None:
    """Return where process numbers are unique: this boot of the kernel, and the namespace."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return f"{file.read().strip().decode()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # pragma: no cover - not on this platform
        return None


def _start_of(process: int) -> int | None:
    """Return when a process was started, in ticks of the kernel; None if that is hidden."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            # The name, in parentheses, may hold spaces and parentheses itself.
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class WriterLock:
    """The lock of a dataset, as its holder sees it."""

    path: str
    descriptor: int | None = None
    """The open file; None where the filesystem has no locks."""

    @property
    def exclusive(self) -> bool:
        """Whether the filesystem has locks, so that no other writer is at work."""
        return self.descriptor is not None

    def check(self) -> None:
        """Raise ConcurrentModificationError if somebody deleted the locked file."""
        if self.descriptor is not None and not _is_open_file(self.descriptor, self.path):
            raise ConcurrentModificationError(
                f"the lock {self.path!r} was deleted while it was held.\n"
                "Hint: never delete files of the control directory while somebody writes."
            )


@contextmanager
def hold_lock(storage: Storage) -> Iterator[WriterLock]:
    """Hold the lock of a dataset, where there are locks; LockTimeoutError if another keeps it."""
    path = storage.control.lock
    descriptor = None
    if storage.capabilities.kernel_lock:
        with storage.writing_control("locking"):
            descriptor = _acquire(path, storage.lock_timeout)
    if descriptor is None:
        yield WriterLock(path)
        return
    try:
        with _locked_mount(storage):
            syscalls.truncate(descriptor, path)
            syscalls.write(descriptor, path, owner_document())
            yield WriterLock(path, descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _locked_mount(storage: Storage) -> Iterator[None]:
    """Lock a dataset itself, too, if it is a mount point.

    Its control directory is then outside of what is mounted, and another container may have the
    same volume with a control directory of its own. Both see the directory that is locked here.
    """
    root = storage.root.path
    if root not in mount_points():
        yield
        return
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + storage.lock_timeout
        while not try_lock_if_supported(descriptor, root):
            if time.monotonic() >= deadline:
                who = "a writer with another control directory, as in another container"
                raise LockTimeoutError.waited(root, storage.lock_timeout, who)
            time.sleep(_MAX_PAUSE_SECONDS)
        yield
    finally:
        os.close(descriptor)


def try_lock_if_supported(descriptor: int, path: str) -> bool:
    """Lock an open file if nobody else has; also True where there are no locks."""
    try:
        return syscalls.try_lock(descriptor, path)
    except OSError as error:
        if error.errno in syscalls.NOT_SUPPORTED:
            return True
        raise


def _acquire(path: str, timeout: float) -> int | None:
    """Open and lock a file; None where the filesystem has no locks."""
    deadline = time.monotonic() + timeout
    pause = _FIRST_PAUSE_SECONDS
    while True:
        descriptor = syscalls.open_lock_file(path)
        try:
            acquired = syscalls.try_lock(descriptor, path)
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, OSError) and error.errno in syscalls.NOT_SUPPORTED:
                return None
            raise
        if acquired and _is_open_file(descriptor, path):
            return descriptor
        os.close(descriptor)
        if not acquired and time.monotonic() >= deadline:
            raise LockTimeoutError.waited(path, timeout, _describe_holder(path))
        if not acquired:
            time.sleep(pause)
            pause = min(pause * 2, _MAX_PAUSE_SECONDS)


def _is_open_file(descriptor: int, path: str) -> bool:
    """Whether a path still leads to an open file: a lock on a deleted file excludes nobody."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _describe_holder(path: str) -> str:
    with suppress(OSError, ValueError, KeyError, TypeError):
        with open(path, "rb") as file:
            holder: Any = json.loads(file.read())
        return f"process {holder['pid']} on {holder['host']}, since {holder['time']}"
    return "its holder did not say who it is"
