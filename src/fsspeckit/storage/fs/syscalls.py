"""Every call that changes a filesystem, in one module.

Crash safety can only be proved for calls that can be counted. So nothing else in this package
changes a disk: all of it goes through the functions below, one function for each system call, and
a test may watch them, and die or fail at each (:func:`observed`). Another test compares this module
with the interpreter's own audit events, so that a new call cannot escape.
"""

from __future__ import annotations

import ctypes
import errno
import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

try:
    import fcntl
except ImportError:  # pragma: no cover - not on this platform
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from fsspec import AbstractFileSystem

_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_RENAME_EXCHANGE = 2
_STATX_BYTES = 256
NOT_SUPPORTED = frozenset(
    {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM, errno.ENOTTY}
)
"""The errors of filesystems that do not support a call."""


@dataclass(frozen=True, slots=True)
class Call:
    """One system call that is about to happen; ``data`` is what it writes to ``descriptor``."""

    name: str
    paths: tuple[str, ...]
    data: bytes = b""
    descriptor: int = -1


class Observer(Protocol):
    """Watches calls: entered before the call, left after it, raises to prevent or to fail it."""

    def __call__(self, call: Call) -> AbstractContextManager[None]:
        """Return the context in which the call happens."""


_observer: Observer | None = None


@contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Run every call inside the observer's context; for tests."""
    global _observer
    previous, _observer = _observer, observer
    try:
        yield
    finally:
        _observer = previous


def _run(call: Call, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    if _observer is None:
        return function(*arguments, **options)
    with _observer(call):
        return function(*arguments, **options)


def make_directory(path: str, mode: int = 0o777) -> None:
    """Create one directory."""
    _run(Call("mkdir", (path,)), os.mkdir, path, mode)


def create(path: str, mode: int = 0o666) -> int:
    """Create a file that does not exist yet and open it for writing."""
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    return int(_run(Call("create", (path,)), os.open, path, flags, mode))


def open_lock_file(path: str) -> int:
    """Open a file to lock it, creating it where needed."""
    flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC
    return int(_run(Call("create", (path,)), os.open, path, flags, 0o666))


def write(descriptor: int, path: str, data: bytes) -> None:
    """Write all of the data."""
    _run(Call("write", (path,), data, descriptor), _write_all, descriptor, path, data)


def _write_all(descriptor: int, path: str, data: bytes) -> None:
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


def truncate(descriptor: int, path: str) -> None:
    """Empty an open file."""
    _run(Call("truncate", (path,)), os.ftruncate, descriptor, 0)


def sync(descriptor: int, path: str) -> None:
    """Make an open file, or an open directory's entries, survive a power failure."""
    _run(Call("fsync", (path,)), _sync_completely, descriptor)


def _sync_completely(descriptor: int) -> None:
    """Also empty the cache of the disk, which fsync of macOS does not."""
    if _FULL_SYNC is not None:
        try:
            fcntl.fcntl(descriptor, _FULL_SYNC)
        except OSError as error:
            if error.errno not in NOT_SUPPORTED:
                raise
        else:
            return
    os.fsync(descriptor)


def link(source: str, target: str) -> None:
    """Give a file a second name; never follows a symbolic link, never overwrites."""
    if _observer is None:  # called for every file of a dataset
        os.link(source, target, follow_symlinks=False)
        return
    _run(Call("link", (source, target)), os.link, source, target, follow_symlinks=False)


def rename(source: str, target: str) -> None:
    """Rename, replacing a file of the target's name."""
    _run(Call("rename", (source, target)), os.rename, source, target)


def rename_new(source: str, target: str) -> None:
    """Rename, but never replace: FileExistsError, or OSError with one of :data:`NOT_SUPPORTED`."""
    call = Call("rename_new", (source, target))
    _run(call, _rename_with_flags, source, target, _RENAME_NOREPLACE)


def exchange(one: str, other: str) -> None:
    """Swap two names in one step; nobody ever sees one of them missing."""
    _run(Call("exchange", (one, other)), _rename_with_flags, one, other, _RENAME_EXCHANGE)


def _load(name: str) -> Any:
    """Return a function of the C library, or None where it has none of that name."""
    try:
        return getattr(ctypes.CDLL(None, use_errno=True), name)
    except (AttributeError, OSError, TypeError):  # pragma: no cover - not on this platform
        return None


_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
_renameat2 = _load("renameat2")
_statx = _load("statx")
CAN_EXCHANGE = _renameat2 is not None
"""Whether this platform has the call at all; each filesystem may still refuse it."""
CAN_LOCK = fcntl is not None
"""Whether this platform has kernel locks."""


def _rename_with_flags(source: str, target: str, flags: int) -> None:
    if _renameat2 is None:  # pragma: no cover - not on this platform
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), source, None, target)
    names = os.fsencode(source), os.fsencode(target)
    if _renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), source, None, target)


def statx(path: str, mask: int) -> bytes | None:
    """Return the ``struct statx`` of a file, links followed; None if the kernel did not answer.

    It changes nothing, and is here because only this module calls the C library.
    """
    if _statx is None:  # pragma: no cover - not on this platform
        return None
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    failed = _statx(_AT_FDCWD, os.fsencode(path), 0, mask, buffer)
    return None if failed else buffer.raw


def unlink(path: str) -> None:
    """Remove a name of a file."""
    if _observer is None:  # called for every file of a dataset
        os.unlink(path)
        return
    _run(Call("unlink", (path,)), os.unlink, path)


def remove_directory(path: str) -> None:
    """Remove an empty directory."""
    _run(Call("rmdir", (path,)), os.rmdir, path)


def change_mode(path: str, mode: int) -> None:
    """Set permissions."""
    _run(Call("chmod", (path,)), os.chmod, path, mode)


def change_owner(path: str, user: int, group: int) -> None:
    """Set owner and group of a name itself, never of what a symbolic link leads to."""
    _run(Call("chown", (path,)), os.chown, path, user, group, follow_symlinks=False)


def set_attribute(path: str, name: str, value: bytes) -> None:
    """Set an extended attribute."""
    _run(Call("setxattr", (path,)), os.setxattr, path, name, value)


def replace_note(path: str, data: bytes) -> None:
    """Create or replace a small file that nothing depends on, whole or not at all.

    It is not observed: whether it happens depends on how long a call takes, and a death here
    leaves what a death before or after the call leaves.
    """
    new = f"{path}.new"
    descriptor = os.open(new, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, 0o666)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)
    os.rename(new, path)


def try_lock(descriptor: int, path: str) -> bool:
    """Lock an open file if nobody else has."""
    if fcntl is None:  # pragma: no cover - not on this platform
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), path)
    try:
        _run(Call("flock", (path,)), fcntl.flock, descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def remote(filesystem: AbstractFileSystem, method: str, *arguments: Any, **options: Any) -> Any:
    """Call a method that changes a filesystem other than a local disk."""
    paths = tuple(value for value in arguments if isinstance(value, str))
    data = next((value for value in arguments if isinstance(value, bytes)), b"")
    return _run(Call(method, paths, data), getattr(filesystem, method), *arguments, **options)
