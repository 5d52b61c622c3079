"""The trash: where replaced files are kept for a while instead of being deleted.

A name is removed only if it still has the file that the plan has read. Somebody else may have put
another file under that name since; that one stays where it is.
"""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fsspeckit.storage.commit.log import Remove
    from fsspeckit.storage.storage import Storage

_MAX_ATTEMPTS = 3


def remove_file(storage: Storage, number: int, remove: Remove, path: str) -> str | None:
    """Move a replaced file out of the dataset, into the trash where there is one.

    The trash can only hold files of its own disk. Whether a file is on it shows when it is moved:
    partitions may be mounted, or be links to other disks, and even a mount of the same disk is
    another one to the kernel.

    Returns:
        A note if another file was found at ``path``, and left there.
    """
    found = storage.backend.stat(path)
    if found is None:
        return None
    if not remove.is_still(found):
        return f"{remove.path!r} was changed by another program after it was read; it was kept."
    drop_checksum(storage, path)
    target = storage.control.trashed(number, remove.path)
    if not _keeps_trash(storage) or not _move_to_trash(storage, path, target):
        storage.backend.discard(path)
        return None
    return _put_back(storage, remove, target, path)


def _move_to_trash(storage: Storage, path: str, target: str) -> bool:
    """Move a file to the trash; False if it cannot be moved there, or is there already."""
    for attempt in range(_MAX_ATTEMPTS):
        storage.backend.make_directories(os.path.dirname(target))
        try:
            storage.backend.move_on_same_disk(path, target)
        except FileExistsError:
            return False  # linked there by an earlier attempt that was killed
        except FileNotFoundError:
            if storage.backend.stat(path) is None:
                return True  # deleted by somebody else meanwhile
            # Somebody empties the trash. The file must not stay: its rows would be there twice.
            if attempt == _MAX_ATTEMPTS - 1:
                raise
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            return False
        else:
            return True
    return False


def _put_back(storage: Storage, remove: Remove, target: str, path: str) -> str | None:
    """Undo the move of a file that got the name between the check and the move."""
    moved = storage.backend.stat(target)
    if moved is None or remove.is_still(moved):
        return None
    with suppress(FileExistsError):
        storage.backend.move_new(target, path)
    return f"{remove.path!r} was changed by another program meanwhile; it was kept."


def keep_in_trash(storage: Storage, number: int, relative: str, path: str) -> None:
    """Keep a file that is about to be replaced under its own name."""
    if not _keeps_trash(storage) or storage.backend.stat(path) is None:
        return
    target = storage.control.trashed(number, relative)
    if storage.backend.stat(target) is None:
        storage.backend.make_directories(os.path.dirname(target))
        storage.backend.keep_copy(path, target)


def _keeps_trash(storage: Storage) -> bool:
    """Whether replaced files are kept for a while, where they can be moved to the trash."""
    return storage.capabilities.trash and storage.retention.commits >= 1


def drop_checksum(storage: Storage, path: str) -> None:
    """Remove the side file in which Hadoop keeps the checksum of a local file."""
    if storage.root.is_local:
        storage.backend.discard(checksum_path(path))


def checksum_path(path: str) -> str:
    """Return the path of the side file of a data file."""
    directory, _, name = path.rpartition("/")
    return f"{directory}/.{name}.crc" if directory else f".{name}.crc"


def was_trashed(storage: Storage, number: int, relative: str) -> bool:
    """Whether a commit has already moved a file to the trash."""
    return storage.backend.stat(storage.control.trashed(number, relative)) is not None


def purge_trash(storage: Storage, number: int) -> None:
    """Delete what the retention no longer keeps after the commit of this number."""
    for name in storage.backend.names(storage.control.trash):
        path = storage.control.at("trash", name)
        if not name.isdigit() or _is_kept(storage, number, int(name), path):
            continue
        storage.backend.discard_tree(path)


def _is_kept(storage: Storage, number: int, trashed: int, path: str) -> bool:
    if trashed <= number - storage.retention.commits:
        return False
    try:
        age = time.time() - os.stat(path).st_mtime
    except FileNotFoundError:
        return True
    return trashed == number or age <= storage.retention.seconds
