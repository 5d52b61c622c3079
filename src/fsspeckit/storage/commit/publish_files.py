"""Plain publish: new names in, then old names out, one file after the other.

Works on every filesystem. A program that lists the dataset in between sees both; it never sees
neither. Each step can be repeated, so this is also how recovery rolls a commit forward: a staged
file that is no longer staged was published, an old file that is no longer there was removed.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from fsspeckit.errors import LostFileError
from fsspeckit.storage.commit.staging import find_staged
from fsspeckit.storage.commit.trash import (
    checksum_path,
    drop_checksum,
    keep_in_trash,
    remove_file,
    was_trashed,
)
from fsspeckit.storage.fs.attributes import make_data_directories
from fsspeckit.storage.fs.status import file_status, mount_points
from fsspeckit.storage.names import parents_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fsspeckit.storage.commit.log import Add, CommitRecord, Remove
    from fsspeckit.storage.storage import Storage

__all__ = ["check_writable", "publish_plain"]

_CAP_FOWNER = 1 << 3
_UNMAPPED_USER = 65534


def publish_plain(
    storage: Storage, record: CommitRecord, places: Sequence[str], deleted: set[str]
) -> list[str]:
    """Publish a commit file by file; may be repeated after it was interrupted.

    Args:
        storage: The dataset.
        record: The commit.
        places: Where its staged files are.
        deleted: Gets the new files that another program has deleted since they were published.

    Returns:
        Notes about what other programs did meanwhile.

    Raises:
        LostFileError: If a new file is neither staged nor published. Nothing was removed then.
    """
    replaced = {remove.path: remove for remove in record.removes}
    notes = _publish_adds(storage, record, places, replaced, deleted)
    in_place = {add.final for add in record.adds}
    for remove in record.removes:
        if remove.path not in in_place:
            note = remove_file(storage, record.number, remove, storage.path(remove.path))
            notes.extend([note] if note else [])
    drop_empty_directories(storage, storage.root.path, (item.path for item in record.removes))
    _sync_directories_of(storage, (item.path for item in record.removes))
    return notes


def _publish_adds(
    storage: Storage,
    record: CommitRecord,
    places: Sequence[str],
    replaced: dict[str, Remove],
    deleted: set[str],
) -> list[str]:
    notes = []
    for add in record.adds:
        staged = find_staged(storage, places, add.staged)
        if staged is not None:
            _publish_add(storage, record.number, add, staged, replace=add.final in replaced)
        elif not _is_published(storage, add, replaced.get(add.final)):
            notes.append(missing_add(storage, record, add))
            deleted.add(add.final)
    _sync_directories_of(storage, (add.final for add in record.adds))
    return notes


def _publish_add(storage: Storage, number: int, add: Add, staged: str, *, replace: bool) -> None:
    final = storage.path(add.final)
    if storage.root.is_local:
        make_data_directories(os.path.dirname(final), storage.root.path)
    else:
        storage.disk.make_directories(final.rpartition("/")[0])
    if replace:
        drop_checksum(storage, final)
        keep_in_trash(storage, number, add.final, final)
        storage.disk.move_over(staged, final)
        return
    try:
        storage.disk.move_new(staged, final)
    except FileExistsError:
        found = storage.disk.look(final)
        if found is None or found.size != add.size:
            raise  # not the copy that an earlier attempt made
        storage.disk.discard(staged)


def _is_published(storage: Storage, add: Add, replaced: Remove | None) -> bool:
    """Whether a file that is no longer staged is in the dataset."""
    found = storage.disk.look(storage.path(add.final))
    return found is not None and not (replaced is not None and replaced.is_still(found))


def missing_add(storage: Storage, record: CommitRecord, add: Add) -> str:
    """Decide about a new file that is nowhere.

    Old files are removed only after all new ones are in place. So if one was removed already, this
    file was published, and somebody deleted it since; otherwise it is lost.
    """
    in_place = {add.final for add in record.adds}
    removed = (remove.path for remove in record.removes if remove.path not in in_place)
    if any(was_trashed(storage, record.number, path) for path in removed):
        return f"{add.final!r} was deleted by another program after it was published."
    raise LostFileError.missing(record.number, add.final)


def check_writable(
    storage: Storage, record: CommitRecord, may_remove: Iterable[str] | None = None
) -> None:
    """Check that a commit may change what it changes, before it changes anything.

    Args:
        storage: The dataset.
        record: The commit.
        may_remove: The files that will be removed; None for those that the commit replaces.

    Raises:
        PermissionError: Naming the directory or the file.
    """
    if not storage.root.is_local:
        return
    files = [*(add.final for add in record.adds), *(remove.path for remove in record.removes)]
    for directory in sorted({_existing_parent(storage, file) for file in files}):
        if os.path.isdir(directory) and not os.access(directory, os.W_OK | os.X_OK):
            reason = "the commit would change this directory, which is not writable"
            raise PermissionError(errno.EACCES, reason, directory)
    if may_remove is None:
        may_remove = (remove.path for remove in record.removes)
    mounted = mount_points()
    for path in map(storage.path, may_remove):
        if path in mounted:
            reason = "the commit would remove this file, which is a mount point"
            raise PermissionError(errno.EBUSY, reason, path)
        _check_removable(path)
        _check_removable(checksum_path(path))


def _check_removable(path: str) -> None:
    """Check what the permissions of a directory do not show: whose file it is, and its flags."""
    directory = os.path.dirname(path)
    try:
        file, parent = os.lstat(path), os.stat(directory)
        is_link = stat.S_ISLNK(file.st_mode)
        locked = [place for place in (directory, path) if _is_locked(place, is_link, path)]
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
            return
        raise
    if locked:
        reason = f"the commit would remove {path!r}, but this is immutable or append-only"
        raise PermissionError(errno.EPERM, reason, locked[0])
    if is_sticky_for_others(parent, file.st_uid) and file.st_uid != os.geteuid():
        reason = "the commit would remove this file, which only its owner may do in that directory"
        raise PermissionError(errno.EPERM, reason, path)


def _is_locked(place: str, is_link: bool, path: str) -> bool:
    # Flags of the file that a link leads to do not matter: the link is what is removed.
    return not (is_link and place == path) and file_status(place).is_locked


def is_sticky_for_others(directory: os.stat_result, owner: int | None = None) -> bool:
    """Whether only its owners may remove files from a directory, and this process is not above it.

    That is what the sticky bit means, as on ``/tmp``.

    Args:
        directory: The directory.
        owner: Whose file is meant; None for a file of anybody.
    """
    if not directory.st_mode & stat.S_ISVTX or directory.st_uid == os.geteuid():
        return False
    return not _may_act_for(owner)


def _may_act_for(owner: int | None) -> bool:
    """Whether this process has the kernel's capability to do what only owners may (CAP_FOWNER).

    In a container with users of its own that does not hold for owners who are unknown in it.
    """
    if owner in (None, _UNMAPPED_USER) and not _knows_all_users():
        return False
    try:
        with open("/proc/self/status", "rb") as file:
            found = re.search(rb"^CapEff:\s*([0-9a-f]+)$", file.read(), re.MULTILINE)
    except OSError:  # pragma: no cover - not on this platform
        found = None
    return bool(int(found[1], 16) & _CAP_FOWNER) if found else os.geteuid() == 0


def _knows_all_users() -> bool:
    try:
        with open("/proc/self/uid_map", "rb") as file:
            return file.read().split() == [b"0", b"0", b"4294967295"]
    except OSError:  # pragma: no cover - not on this platform
        return True


def _existing_parent(storage: Storage, file: str) -> str:
    """The deepest directory above a file that is there."""
    parents = [storage.path(parent) for parent in [*parents_of(file), ""]]
    return next((parent for parent in parents if os.path.isdir(parent)), storage.root.path)


def drop_empty_directories(storage: Storage, base: str, removed: Iterable[str]) -> None:
    """Remove directories below a base from which files were removed, if nothing is left in them."""
    if storage.root.is_arrow:
        return  # pyarrow removes a directory with all that another program has put there since
    directories = {parent for path in removed for parent in parents_of(path)}
    for directory in sorted(directories, key=lambda path: -path.count("/")):
        with suppress(PermissionError):
            storage.disk.discard_directory(f"{base}/{directory}")


def _sync_directories_of(storage: Storage, relative_paths: Iterable[str]) -> None:
    """Make the entries survive a power failure, also those of directories that were created."""
    if not storage.root.is_local:
        return
    directories = {""}
    for path in relative_paths:
        directories.update(parents_of(path))
    for directory in sorted(directories):
        storage.disk.sync_directory(storage.path(directory))
    storage.disk.sync_directory(os.path.dirname(storage.root.path))
