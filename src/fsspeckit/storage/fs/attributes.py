"""Permissions, owners and extended attributes of new files and directories.

A new file gets its directory's permissions without the execute bits, its default access list, and
its group where the directory has the setgid bit. A file that replaces another gets those of that
file. Only the superuser can give files to others, so only then the owner is copied too.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from fsspeckit.storage.fs import syscalls

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
