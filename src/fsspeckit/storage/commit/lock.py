"""The lock that makes the publish exclusive, on disks where the kernel can give one.

It is a kernel lock on a file: no lease, nothing to break, and gone with its process. What the file
says about its holder is only for the message. Filesystems without kernel locks have none: there
the exclusive creation of the commit record decides.

Which process owns a staging directory, and whether it is still running.

Host name and process number do not tell two containers apart that have the same name and run their
writer as process 1. So each process has a random identifier; and another process is looked up only
if it runs under the same kernel and in the same namespace of process numbers.
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
from fsspeckit.storage.fs.capabilities import mount_points

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fsspeckit.storage.storage import Storage

__all__ = [
    "ProcessState",
    "WriterLock",
    "hold_lock",
    "is_this_process",
    "state_of",
    "this_process",
    "try_lock_if_supported",
]


# --- Which process owns a staging directory, and whether it is still running ---

ProcessState = Literal["running", "gone", "unknown"]

_identifier = uuid.uuid4().hex


def _renew() -> None:
    global _identifier
    _identifier = uuid.uuid4().hex


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


def this_process() -> dict[str, Any]:
    """Describe this process for other writers."""
    return {
        "id": _identifier,
        "pid": os.getpid(),
        "begun": _start_of(os.getpid()),
        "namespace": _namespace(),
        "host": socket.gethostname(),
        "time": timestamp(),
    }


def is_this_process(owner: dict[str, Any]) -> bool:
    """Whether a description is of this process."""
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
    return "running" if begun == owner.get("begun") else "gone"  # its number was given again


def _namespace() -> str | None:
    """Inside of what process numbers are unique: this start of the kernel, and the namespace."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return f"{file.read().strip().decode()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # pragma: no cover - not on this platform
        return None


def _start_of(process: int) -> int | None:
    """When a process was started, in ticks of the kernel; None if that cannot be seen."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            # The name, in parentheses, may hold spaces and parentheses itself.
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None


# --- The lock that makes the publish exclusive, on disks where the kernel can give one ---

_PAUSE = 0.005
_LONGEST_PAUSE = 0.1


@dataclass(frozen=True, slots=True)
class WriterLock:
    """The lock as its holder sees it."""

    path: str
    """The locked file."""

    descriptor: int | None = None
    """The open file; None where the filesystem has no locks."""

    @property
    def exclusive(self) -> bool:
        """Whether there is a lock at all."""
        return self.descriptor is not None

    def check(self) -> None:
        """Make sure that the lock is still the one that others see.

        Raises:
            ConcurrentModificationError: If somebody deleted the locked file.
        """
        if self.descriptor is not None and not is_open_file(self.descriptor, self.path):
            raise ConcurrentModificationError(
                f"the lock {self.path!r} was deleted while it was held.\n"
                "Hint: never delete files of the control directory while somebody writes."
            )


@contextmanager
def hold_lock(storage: Storage) -> Iterator[WriterLock]:
    """Hold the lock of a dataset, where the filesystem has locks.

    Raises:
        LockTimeoutError: If another writer holds it for longer than the timeout.
    """
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
            _tell_holder(descriptor, path)
            yield WriterLock(path, descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _locked_mount(storage: Storage) -> Iterator[None]:
    """Lock a dataset itself, too, if it is a mount point.

    Its control directory is then outside of what is mounted, and another container may have the
    same volume with a control directory of its own. Both see the directory that is locked here.

    Raises:
        LockTimeoutError: If another writer holds it for longer than the timeout.
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
            time.sleep(_LONGEST_PAUSE)
        yield
    finally:
        os.close(descriptor)


def try_lock_if_supported(descriptor: int, path: str) -> bool:
    """Take the lock on an open file if nobody has it; also True where there are no locks."""
    try:
        return syscalls.try_lock(descriptor, path)
    except OSError as error:
        if error.errno in syscalls.NOT_SUPPORTED:
            return True
        raise


def _acquire(path: str, timeout: float) -> int | None:
    """An open file that holds the lock, or None where the filesystem knows no locks."""
    deadline = time.monotonic() + timeout
    pause = _PAUSE
    while True:
        descriptor = syscalls.open_lock_file(path)
        try:
            taken = syscalls.try_lock(descriptor, path)
        except OSError as error:
            os.close(descriptor)
            if error.errno in syscalls.NOT_SUPPORTED:
                return None
            raise
        except BaseException:
            os.close(descriptor)
            raise
        if taken and is_open_file(descriptor, path):
            return descriptor
        os.close(descriptor)
        if not taken and time.monotonic() >= deadline:
            raise LockTimeoutError.waited(path, timeout, _holder(path))
        if not taken:
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)


def is_open_file(descriptor: int, path: str) -> bool:
    """Whether a path still leads to an open file: a lock on a deleted file excludes nobody."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _tell_holder(descriptor: int, path: str) -> None:
    syscalls.truncate(descriptor, path)
    syscalls.write(descriptor, path, (json.dumps(this_process()) + "\n").encode())


def _holder(path: str) -> str:
    with suppress(OSError, ValueError, KeyError, TypeError):
        with open(path, "rb") as file:
            holder: Any = json.loads(file.read())
        return f"process {holder['pid']} on {holder['host']}, since {holder['time']}"
    return "its holder did not say who it is"
