"""What the kernel reports of files and filesystems, and which attributes new files get."""

from __future__ import annotations

import errno
import os
import re
import stat
import struct
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from fsspeckit.storage.fs import syscalls
from fsspeckit.storage.fs.azure import is_adlfs
from fsspeckit.storage.fs.hdfs import is_hdfs_native

if TYPE_CHECKING:
    from fsspeckit.storage.roots import Root

_DEFAULT_ACL = "system.posix_acl_default"
_ACCESS_ACL = "system.posix_acl_access"
_NO_ATTRIBUTES = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENODATA, errno.ENOSYS)


def follow_directory(path: str, directory: str) -> bool:
    """Give a staged file the permissions of a new file in a directory; False if it is missing."""
    try:
        status = os.stat(directory)
        access = _attribute(directory, _DEFAULT_ACL)
    except (FileNotFoundError, NotADirectoryError):
        return False
    if not stat.S_ISDIR(status.st_mode):
        return False
    _change_owner(path, status, follow_group=bool(status.st_mode & stat.S_ISGID))
    if access is None:
        _change_mode(path, stat.S_IMODE(status.st_mode) & 0o666)
    else:
        syscalls.set_attribute(path, _ACCESS_ACL, access)
    return True


def follow_file(path: str, replaced: str) -> bool:
    """Give a staged file the permissions and the owner of another one; False if it is gone."""
    try:
        status = os.stat(replaced)
        access = _attribute(replaced, _ACCESS_ACL)
    except (FileNotFoundError, NotADirectoryError):
        return False
    _change_owner(path, status, follow_group=True)
    _change_mode(path, stat.S_IMODE(status.st_mode))
    if access is not None:
        syscalls.set_attribute(path, _ACCESS_ACL, access)
    return True


def make_data_directories(path: str, root: str) -> None:
    """Create missing directories of a dataset, each below the root like the one it is in."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    make_data_directories(parent, root)
    with suppress(FileExistsError):
        syscalls.make_directory(path)
        if len(path) > len(root):
            inherit_directory(path, parent)


def inherit_directory(path: str, parent: str) -> None:
    """Give a new partition directory the permissions of the directory it is in."""
    status = os.stat(parent)
    _change_owner(path, status, follow_group=bool(status.st_mode & stat.S_ISGID))
    _change_mode(path, stat.S_IMODE(status.st_mode))


def copy_directory_attributes(source: str, target: str, status: os.stat_result) -> None:
    """Copy all attributes of a directory to the one that will replace it; OSError if any fails."""
    made = os.stat(target)
    if (made.st_uid, made.st_gid) != (status.st_uid, status.st_gid):
        syscalls.change_owner(target, status.st_uid, status.st_gid)
    if stat.S_IMODE(made.st_mode) != stat.S_IMODE(status.st_mode):
        syscalls.change_mode(target, stat.S_IMODE(status.st_mode))
    for name in _attribute_names(source):
        value = _attribute(source, name)
        if value is not None and _attribute(target, name) != value:
            syscalls.set_attribute(target, name, value)


def _change_owner(path: str, wanted: os.stat_result, *, follow_group: bool) -> None:
    status = os.stat(path)
    user = wanted.st_uid if os.geteuid() == 0 else status.st_uid
    group = wanted.st_gid if follow_group or os.geteuid() == 0 else status.st_gid
    if (user, group) != (status.st_uid, status.st_gid):
        # A group that one is not a member of cannot be given, nor an owner that a container does
        # not know; the file is readable all the same.
        try:
            syscalls.change_owner(path, user, group)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EACCES, errno.EINVAL):
                raise


def _change_mode(path: str, mode: int) -> None:
    if stat.S_IMODE(os.stat(path).st_mode) != mode:
        syscalls.change_mode(path, mode)


def _attribute_names(path: str) -> list[str]:
    if not hasattr(os, "listxattr"):  # pragma: no cover - not on this platform
        return []
    try:
        return os.listxattr(path)
    except OSError as error:
        if error.errno in _NO_ATTRIBUTES:
            return []
        raise


def _attribute(path: str, name: str) -> bytes | None:
    if not hasattr(os, "getxattr"):  # pragma: no cover - not on this platform
        return None
    try:
        return os.getxattr(path, name)
    except OSError as error:
        if error.errno in _NO_ATTRIBUTES:
            return None
        raise


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Flags of one filesystem."""

    exclusive_create: bool
    """Of two writers that create the same record, one fails for certain."""

    whole_put: bool
    """A file exists with all of its bytes, or not at all."""

    atomic_rename: bool
    """A file changes its name in one step."""

    kernel_lock: bool
    """A lock that the system releases when its process dies."""

    exchange: bool
    """Two directories can be swapped in one step."""

    trash: bool
    """Replaced files are kept for a while."""

    durable: bool
    """The files are made to survive a power failure (fsync, or the store's own promise)."""

    directories: bool = True
    """Directories are entries of their own: a file can be created only in one that exists."""

    conditional_put: bool = False
    """The store itself refuses a put under a name that is taken, if asked to."""

    whole_copy: bool = False
    """The name of a copy exists when the copy is done, and not before."""

    whole_seconds: bool = False
    """Only times distinguish objects, and only a listing reports fractions of a second."""

    def missing(self) -> tuple[str, ...]:
        """Return one sentence for each promise that this filesystem cannot keep."""
        return tuple(
            sentence for flag, sentence in _CONSEQUENCES.items() if not getattr(self, flag)
        )


_CONSEQUENCES = {
    "exclusive_create": "no exclusive create: two writers at the same moment may overwrite each "
    "other's commit; let only one write.",
    "whole_put": "no whole put: a reader may meet a file while it is being copied into place.",
    "atomic_rename": "no atomic rename: files are copied into place, then the copy is removed.",
    "kernel_lock": "no kernel lock: writers exclude each other by the commit record alone.",
    "exchange": "no exchange of directories: other programs may see new files before the old ones "
    "are gone.",
    "trash": "no trash: replaced files are deleted at once; use the store's own versioning.",
    "durable": "no fsync: a power failure may undo what was reported as done.",
}

_LOCAL = Capabilities(
    exclusive_create=True,
    whole_put=True,
    atomic_rename=True,
    kernel_lock=syscalls.CAN_LOCK,
    exchange=syscalls.CAN_EXCHANGE,
    trash=True,
    durable=True,
)
_UNKNOWN = Capabilities(*(False for _ in _CONSEQUENCES))
_MEMORY = replace(_UNKNOWN, exclusive_create=True, whole_put=True)
_OBJECT_STORE = replace(_UNKNOWN, directories=False)
_CONDITIONAL = replace(
    _OBJECT_STORE,
    exclusive_create=True,
    whole_put=True,
    durable=True,
    conditional_put=True,
    whole_copy=True,
)
# Azure may accept a copy, and finish it later.
_AZURE_BLOBS = replace(_CONDITIONAL, whole_copy=False)
# pyarrow puts without a condition, keeps objects that stand for directories, and lists no ETags.
_ARROW_STORE = replace(_UNKNOWN, whole_put=True, durable=True, whole_seconds=True)
# Names change in one step of the name node; nobody syncs the disks of the data nodes.
_HDFS = replace(_UNKNOWN, exclusive_create=True, whole_put=True, atomic_rename=True)
# Stores whose fsspec implementation puts conditionally when asked for mode="create".
_CONDITIONAL_PUT = frozenset({"s3", "s3a", "gs", "gcs"})
_AZURE = frozenset({"abfs", "abfss", "az"})


def capabilities_of(root: Root) -> Capabilities:
    """Return the flags of the filesystem that holds a dataset."""
    if root.is_local:
        return _LOCAL
    if root.protocol == "memory":
        return _MEMORY
    if is_hdfs_native(root.filesystem):
        return _HDFS
    known = root.protocol in _CONDITIONAL_PUT
    if root.is_arrow:
        return _ARROW_STORE if known else _UNKNOWN
    if known:
        return _CONDITIONAL
    if is_adlfs(root.filesystem):
        return _AZURE_BLOBS
    return _OBJECT_STORE if root.protocol in _AZURE else _UNKNOWN


_BASIC_STATS, _BIRTH_TIME = 0x07FF, 0x0800
_IMMUTABLE, _APPEND_ONLY = 0x10, 0x20
_NANOSECONDS = 1_000_000_000
_OCTAL = re.compile(rb"\\([0-7]{3})")
# Up to the time of modification: mask, attributes, mode, inode, size, birth and modification time.
_LAYOUT = struct.Struct("=I4xQ12xH2xQQ32xqI20xqI")


class FileStatus(NamedTuple):
    """One file or directory, symbolic links followed."""

    mode: int
    size: int
    mtime_ns: int
    inode: int

    birth_ns: int | None = None
    """When it was created, where the filesystem records that.

    It distinguishes two files that share inode number, size and time of modification, as files do
    that are unpacked twice with fixed times.
    """

    is_locked: bool = False
    """Whether it is immutable or append-only, so that its name cannot be removed."""


def file_status(path: str) -> FileStatus:
    """Return what the kernel reports about a file; raises OSError as :func:`os.stat` does."""
    answer = syscalls.statx(path, _BASIC_STATS | _BIRTH_TIME)
    if answer is None:
        return _portable_status(path)  # raises the error that statx met, if there was one
    mask, attributes, mode, inode, size, born, born_ns, changed, changed_ns = _LAYOUT.unpack_from(
        answer
    )
    return FileStatus(
        mode,
        size,
        changed * _NANOSECONDS + changed_ns,
        inode,
        born * _NANOSECONDS + born_ns if mask & _BIRTH_TIME else None,
        bool(attributes & (_IMMUTABLE | _APPEND_ONLY)),
    )


def mount_points() -> set[str]:
    """Return the paths where something is mounted: disks, parts of disks, single files."""
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            lines = file.read().splitlines()
    except OSError:  # pragma: no cover - not on this platform
        return set()
    return {
        os.fsdecode(_OCTAL.sub(lambda found: bytes([int(found[1], 8)]), line.split(b" ")[4]))
        for line in lines
    }


def _portable_status(path: str) -> FileStatus:
    status = os.stat(path)
    born = getattr(status, "st_birthtime", None)
    return FileStatus(
        status.st_mode,
        status.st_size,
        status.st_mtime_ns,
        status.st_ino,
        None if born is None else int(born * _NANOSECONDS),
    )
