"""Publishing: the files of a commit appear one by one, or all at once by a swap of directories.

A plain publish works on every filesystem: new names in, then old names out. A program that lists
the dataset in between sees both; it never sees neither. Each step can be repeated, so this is also
how recovery rolls a commit forward: a file that is no longer staged was published, an old file that
is gone was removed.

A swap (``exchange`` in records) builds the new tree of a directory beside it: hard links to
everything that stays, hidden entries and foreign files too, plus the new files. One system call
swaps it with the directory that readers know, so nobody ever lists half a commit. What an
interruption leaves:

``.dropped_…``, or ``.shadow_…`` without a manifest or with the new tree in it
    not swapped; it is only links and may go.
``.shadow_…`` holding the old tree
    swapped; a name that is missing in the old tree was deleted by another program.
``.old_…``
    swapped and compared; names that are missing in the old tree were removed by us.

Replaced files are moved to the trash instead of being deleted. A name is removed only if it still
has the file that the plan has read: somebody else may have put another file there since.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from fsspeckit.errors import ConcurrentModificationError, CorruptRecordError, LostFileError
from fsspeckit.storage.commit.log import decode_document, encode_document
from fsspeckit.storage.commit.staging import find_staged
from fsspeckit.storage.fs import syscalls
from fsspeckit.storage.fs.attributes import (
    copy_directory_attributes,
    file_status,
    inherit_directory,
    make_data_directories,
    mount_points,
)
from fsspeckit.storage.fs.backends import MAX_MOVES
from fsspeckit.storage.fs.tasks import all_of
from fsspeckit.storage.listing import parents_of
from fsspeckit.storage.storage import MANIFEST_FILE, TREE, new_tree_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from fsspeckit.storage.commit.log import Add, CommitRecord, Remove
    from fsspeckit.storage.listing import DataFile
    from fsspeckit.storage.storage import Storage

_MAX_ATTEMPTS = 3
_MAX_SHORT_BYTES = 64 * 1024 * 1024
"""How many bytes are copied while replaced objects are listed. Copying more takes longer, and the
listing would be older when the objects are removed that it describes."""


def remove_file(storage: Storage, number: int, remove: Remove, path: str) -> str | None:
    """Move a replaced file out of the dataset, into the trash where there is one.

    The trash can only hold files of its own disk. Whether a file is on it shows when it is moved:
    partitions may be mounted, or be links to other disks, and even a mount of the same disk is
    another one to the kernel. Returns a note if another file was found at ``path``, and left there.
    """
    found = storage.backend.stat(path)
    if found is None:
        return None
    if not remove.is_still(found):
        return _changed_meanwhile(remove)
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


def _keep_in_trash(storage: Storage, number: int, relative: str, path: str) -> None:
    """Keep a file that is about to be replaced under its own name."""
    if not _keeps_trash(storage) or storage.backend.stat(path) is None:
        return
    if not was_trashed(storage, number, relative):
        target = storage.control.trashed(number, relative)
        storage.backend.make_directories(os.path.dirname(target))
        storage.backend.keep_copy(path, target)


def _keeps_trash(storage: Storage) -> bool:
    """Whether replaced files are kept for a while, where they can be moved to the trash."""
    return storage.capabilities.trash and storage.retention.commits >= 1


def trashed_control_file(storage: Storage, number: int, directory: str, name: str) -> str:
    """Return where a file of the control directory goes that a commit has made useless.

    Nothing below a hidden directory is data, so no data file can have that name.
    """
    return storage.control.trashed(number, f".{directory}/{name}")


def trash_control_file(storage: Storage, number: int, directory: str, name: str) -> None:
    """Move a file of the control directory to the trash, where there is one."""
    path = storage.control.at(directory, name)
    target = trashed_control_file(storage, number, directory, name)
    if not _keeps_trash(storage) or not _move_to_trash(storage, path, target):
        storage.backend.discard(path)


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


def empty_trash(storage: Storage) -> None:
    """Delete every older version of a file that the trash has.

    Raises:
        OSError: If something is left.
    """
    for name in storage.backend.names(storage.control.trash):
        storage.backend.discard_tree(storage.control.at("trash", name))
    if left := storage.backend.names(storage.control.trash):
        raise OSError(f"the trash cannot be emptied: {sorted(left)} is left of it.")


def purge_trash(storage: Storage, number: int) -> None:
    """Delete what the retention no longer keeps after the commit of this number."""
    for name in expired_trash(storage, number):
        storage.backend.discard_tree(storage.control.at("trash", name))


def expired_trash(storage: Storage, number: int) -> list[str]:
    """Return what the retention no longer keeps, by name in the trash, the newest first.

    ``number`` is that of the last commit.
    """
    max_bytes = storage.retention.max_bytes
    expired, total = [], 0
    found = (name for name in storage.backend.names(storage.control.trash) if name.isdigit())
    for name in sorted(found, reverse=True):
        path = storage.control.at("trash", name)
        if max_bytes is not None:
            total += sum(storage.backend.sizes_below(path).values())
        is_too_much = max_bytes is not None and total > max_bytes and int(name) != number
        if is_too_much or not _is_kept(storage, number, int(name), path):
            expired.append(name)
    return expired


def _is_kept(storage: Storage, number: int, trashed: int, path: str) -> bool:
    if trashed <= number - storage.retention.commits:
        return False
    try:
        age = time.time() - os.stat(path).st_mtime
    except FileNotFoundError:
        return True
    return trashed == number or age <= storage.retention.seconds


_MANIFEST_FORMAT = "fsspeckit-shadow"
_MANIFEST_FIELDS = ("number", "directory", "inode", "replaces", "entries")
_MAX_CLEANUP_PASSES = 3
_CAP_FOWNER = 1 << 3
_UNMAPPED_USER = 65534


def publish_plain(
    storage: Storage,
    record: CommitRecord,
    staging_dirs: Sequence[str],
    deleted: set[str],
    before: Mapping[str, DataFile] | None = None,
    staged: Mapping[str, DataFile] | None = None,
    *,
    copied: list[str],
) -> list[str]:
    """Publish a commit file by file, and return notes; may be repeated after an interruption.

    New files that another program has deleted since they were published are added to ``deleted``.
    LostFileError if a new file is neither staged nor published; nothing was removed then.
    ``before`` are the data files by path right before the first attempt, ``staged`` the files of
    its staging directory. ``copied`` gets staged objects that are published and still there.
    """
    if not storage.capabilities.directories:
        if staged is None:
            directories = staging_dirs if record.adds else ()
            staged = {p: f for one in directories for p, f in storage.backend.files_in(one).items()}
        return _publish_objects(storage, record, staged, deleted, before, copied)
    replaced = {remove.path: remove for remove in record.removes}
    added = set(record.added)
    notes = []
    for add in record.adds:
        place = find_staged(storage, staging_dirs, add.staged)
        if place is not None:
            _publish_add(storage, record.number, add, place, replace=add.final in replaced)
            continue
        found, old = storage.backend.stat(storage.path(add.final)), replaced.get(add.final)
        if found is None or (old is not None and old.is_still(found)):
            notes.append(_missing_add(storage, record, add))
            deleted.add(add.final)
    _sync_directories_of(storage, record.added)
    for remove in record.removes:
        if remove.path not in added:
            note = remove_file(storage, record.number, remove, storage.path(remove.path))
            notes.extend([note] if note else [])
    drop_empty_directories(storage, storage.root.path, record.removed)
    _sync_directories_of(storage, record.removed)
    return notes


def _publish_objects(
    storage: Storage,
    record: CommitRecord,
    staged: Iterable[str],
    deleted: set[str],
    before: Mapping[str, DataFile] | None,
    left: list[str],
) -> list[str]:
    """Do the same on an object store, many objects at a time: each of them is a few requests.

    An object that an earlier attempt has copied is not copied again. Replaced objects are listed
    while small ones are copied. They are removed together, after the last copy, and staged objects
    with them. Where nothing is replaced, staged objects are left to the caller. Whether an object
    is gone is for ``check_published`` to see.
    """
    backend = storage.backend
    replaced = {remove.path: remove for remove in record.removes}
    by_name = {path.rpartition("/")[2]: path for path in staged}
    if before is None:
        there = backend.stat_all([storage.path(path) for path in record.added])
    else:
        there = {storage.path(path): before[path] for path in record.added if path in before}
    moves: dict[str, str] = {}
    done: list[str] = []
    notes = []
    for add in record.adds:
        final, old = storage.path(add.final), replaced.get(add.final)
        found, waiting = there.get(final), by_name.get(add.staged)
        if old is not None and found is not None and old.is_still(found):
            found = None
        if waiting is None:
            if found is None:
                notes.append(_missing_add(storage, record, add))
                deleted.add(add.final)
        elif found is not None and found.size == add.size and storage.capabilities.whole_copy:
            # The copy that an earlier attempt made. Another one could end when a later commit has
            # removed it.
            done.append(waiting)
        elif found is not None and old is None and found.size != add.size:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), final)
        else:
            moves[waiting] = final
    leaving = {storage.path(path): r for path, r in replaced.items() if path not in record.added}
    copy, find = partial(backend.copy_all, moves), partial(backend.stat_all, list(leaving))
    is_short = len(moves) <= MAX_MOVES and sum(a.size for a in record.adds) <= _MAX_SHORT_BYTES
    copied, there = all_of(backend, copy, find) if is_short else (copy(), find())
    copied += done
    if not leaving:
        left.extend(copied)
        return notes
    changed = [path for path, found in there.items() if not leaving[path].is_still(found)]
    backend.request_discards([*copied, *(path for path in there if path not in changed)])
    return [*notes, *(_changed_meanwhile(leaving[path]) for path in changed)]


def _changed_meanwhile(remove: Remove) -> str:
    return f"{remove.path!r} was changed by another program after it was read; it was kept."


def _publish_add(storage: Storage, number: int, add: Add, staged: str, *, replace: bool) -> None:
    final = storage.path(add.final)
    if storage.root.is_local:
        make_data_directories(os.path.dirname(final), storage.root.path)
    else:
        storage.backend.make_directories(final.rpartition("/")[0])
    if replace:
        drop_checksum(storage, final)
        _keep_in_trash(storage, number, add.final, final)
        storage.backend.move_over(staged, final)
        return
    try:
        storage.backend.move_new(staged, final)
    except FileExistsError:
        found = storage.backend.stat(final)
        if found is None or found.size != add.size:
            raise  # not the copy that an earlier attempt made
        storage.backend.discard(staged)


def _missing_add(storage: Storage, record: CommitRecord, add: Add) -> str:
    """Return a note about a new file that somebody deleted, or raise LostFileError.

    Old files are removed only after all new ones are in place. So if one was removed already, this
    file was published, and somebody deleted it since; otherwise it is lost.
    """
    added = set(record.added)
    removed = (path for path in record.removed if path not in added)
    if any(was_trashed(storage, record.number, path) for path in removed):
        return f"{add.final!r} was deleted by another program after it was published."
    raise LostFileError.missing(record.number, add.final)


def check_writable(
    storage: Storage, record: CommitRecord, may_remove: Iterable[str] | None = None
) -> None:
    """Raise PermissionError if a commit may not do what it needs to, before it changes anything.

    The files that it will remove are ``may_remove``, or those that it replaces.
    """
    if not storage.root.is_local:
        return
    files = record.added + record.removed
    for directory in sorted({_existing_parent(storage, file) for file in files}):
        if os.path.isdir(directory) and not os.access(directory, os.W_OK | os.X_OK):
            reason = "the commit would change this directory, which is not writable"
            raise PermissionError(errno.EACCES, reason, directory)
    mounted = mount_points()
    for path in map(storage.path, record.removed if may_remove is None else may_remove):
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
        # Flags of the file that a link leads to do not matter: the link is what is removed.
        checked = (directory,) if stat.S_ISLNK(file.st_mode) else (directory, path)
        immutable = [place for place in checked if file_status(place).is_locked]
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
            return
        raise
    if immutable:
        reason = f"the commit would remove {path!r}, but this is immutable or append-only"
        raise PermissionError(errno.EPERM, reason, immutable[0])
    if _is_sticky_for_others(parent, file.st_uid) and file.st_uid != os.geteuid():
        reason = "the commit would remove this file, which only its owner may do in that directory"
        raise PermissionError(errno.EPERM, reason, path)


def _is_sticky_for_others(directory: os.stat_result, owner: int | None = None) -> bool:
    """Whether the sticky bit, as on ``/tmp``, keeps this process from removing a user's files.

    Without an ``owner``: the files of any user.
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
    """Return the deepest existing directory above a file."""
    parents = [storage.path(parent) for parent in [*parents_of(file), ""]]
    return next((parent for parent in parents if os.path.isdir(parent)), storage.root.path)


def drop_empty_directories(storage: Storage, base: str, removed: Iterable[str]) -> None:
    """Remove directories below a base from which files were removed, if nothing is left in them."""
    if storage.root.is_arrow:
        return  # pyarrow removes a directory with all that another program has put there since
    directories = {parent for path in removed for parent in parents_of(path)}
    for directory in sorted(directories, key=lambda path: -path.count("/")):
        with suppress(PermissionError):
            storage.backend.discard_directory(f"{base}/{directory}")


def _sync_directories_of(storage: Storage, relative_paths: Iterable[str]) -> None:
    """Make the entries survive a power failure, also those of directories that were created."""
    if not storage.root.is_local:
        return
    directories = {"", *(parent for path in relative_paths for parent in parents_of(path))}
    for directory in sorted(directories):
        storage.backend.sync_directory(storage.path(directory))
    storage.backend.sync_directory(os.path.dirname(storage.root.path))


class SwapRefused(Exception):
    """A swap is not possible here; the reason goes to the notes of the commit."""


@dataclass(frozen=True)
class Swap:
    """A swap of directories, as its manifest describes it."""

    name: str
    """Its entry in the control directory: ``.shadow_…`` at first, ``.old_…`` in the end."""

    number: int
    directory: str
    """The directory below the root that it replaces; empty for the root itself."""

    inode: int
    """The inode of the new tree, wherever it is now."""

    replaces: bool
    """Whether there was a directory before."""

    entries: dict[str, int]
    """The old tree: path below the directory (directories end in ``/``) and inode."""


def build_swap(storage: Storage, record: CommitRecord, staging_dirs: Sequence[str]) -> Swap:
    """Build the new tree of the smallest directory that a commit changes, or raise SwapRefused."""
    # A name of its own each time: whoever built an earlier one cannot swap this one in.
    name = new_tree_name(".shadow", record.number)
    try:
        _refuse_unswappable(storage.root.path, record)
        return _build(storage, record, name, staging_dirs)
    except SwapRefused:
        discard_swap(storage, name)
        raise
    except OSError as error:
        discard_swap(storage, name)
        raise SwapRefused(f"{error.strerror}: {error.filename!r}") from error


def _refuse_unswappable(root: str, record: CommitRecord) -> None:
    """Refuse a dataset of which something would stay behind in the old tree."""
    for place in sorted(mount_points()):
        if place.startswith(f"{root}/"):
            raise SwapRefused(f"another disk is mounted at {place!r}")
    for path in record.removed:  # the old tree is compared by the inodes of its entries
        if os.path.islink(f"{root.rstrip('/')}/{path}"):
            raise SwapRefused(f"{path!r} is a symbolic link")
    try:
        here = os.getcwd()
    except FileNotFoundError:
        return
    if os.path.commonpath([here, root]) == root:
        raise SwapRefused("the working directory of this process is in the dataset")


def discard_swap(storage: Storage, name: str) -> None:
    """Remove a new tree that was never swapped in: nothing but links and copies of ours."""
    place = storage.control.at(name)
    dropped = storage.control.at(name.replace(".shadow", ".dropped", 1))
    # What cannot be removed now is removed by the next writer's recovery.
    with suppress(OSError):
        if place != dropped:
            # Renamed first: whoever was about to swap it in must not swap in half of it.
            storage.backend.rename_directory(place, dropped)
        storage.backend.discard_tree(dropped)


def _build(storage: Storage, record: CommitRecord, name: str, staging_dirs: Sequence[str]) -> Swap:
    directory = _smallest_directory(storage, record)
    if directory and os.path.isdir(storage.root.path):  # else met when it is linked
        for entry in os.listdir(storage.root.path):
            _refuse_foreign_job(entry, entry)
    source = storage.path(directory)
    place = storage.control.at(name)
    tree = f"{place}/{TREE}"
    replaces = os.path.isdir(source)
    syscalls.make_directory(place)
    syscalls.make_directory(tree)
    entries: dict[str, int] = {}
    if replaces:
        _link_tree(source, tree, "", _names_left_out(record, directory), entries)
    elif directory:
        inherit_directory(tree, os.path.dirname(source))
    _link_adds(storage, record, staging_dirs, tree, directory)
    drop_empty_directories(
        storage, tree, (_path_within(directory, path) for path in record.removed)
    )
    swap = Swap(name, record.number, directory, os.stat(tree).st_ino, replaces, entries)
    _write_manifest(storage, swap)
    for made in ("", TREE, *_directories_of(swap, record)):
        storage.backend.sync_directory(f"{place}/{made}")
    return swap


def _directories_of(swap: Swap, record: CommitRecord) -> list[str]:
    """Return the directories of a new tree, also those of new files; some may be gone again."""
    linked = {name[:-1] for name in swap.entries if name[-1] == "/"}
    added = (_path_within(swap.directory, path) for path in record.added)
    made = {parent for path in added for parent in parents_of(path)}
    return [f"{TREE}/{name}" for name in sorted(linked | made)]


def _smallest_directory(storage: Storage, record: CommitRecord) -> str:
    """Return the deepest directory below the root that holds every change; empty for the root."""
    paths = record.added + record.removed
    for parent in {parent for path in paths for parent in parents_of(path)}:
        if os.path.islink(storage.path(parent)):
            raise SwapRefused(f"{parent!r} is a symbolic link")
    shared = set.intersection(*({"", *parents_of(path)} for path in paths))
    if not os.path.isdir(storage.root.path):
        make_data_directories(os.path.dirname(storage.root.path), storage.root.path)
        return ""
    for directory in sorted(shared, key=len):
        if not os.path.isdir(storage.path(directory)):
            return directory  # it appears with everything that is in it
    return max(shared, key=len)


def _refuse_foreign_job(name: str, relative: str) -> None:
    """Spark renames out of these directories when a job ends; they must stay where they are."""
    if name == "_temporary" or name.startswith(".spark-staging"):
        raise SwapRefused(f"another program is writing into {relative!r}")


def _names_left_out(record: CommitRecord, directory: str) -> dict[str, int | None]:
    """Return what the new tree leaves out: path below the directory, and inode if it matters."""
    inodes = {_path_within(directory, remove.path): remove.inode for remove in record.removes}
    return inodes | dict.fromkeys(map(checksum_path, inodes))


def _path_within(directory: str, relative: str) -> str:
    """Return a path below the root as seen from a directory below the root."""
    return relative.removeprefix(f"{directory}/") if directory else relative


def _link_tree(
    source: str,
    target: str,
    prefix: str,
    left_out: dict[str, int | None],
    entries: dict[str, int],
) -> None:
    """Fill a directory with links to all entries of another one, and of those below it."""
    status = os.stat(source)
    if _is_sticky_for_others(status):
        raise SwapRefused(f"files of others could not be removed from {source!r}")
    with os.scandir(source) as found:
        for entry in found:  # as few steps as possible: this runs for every file of a dataset
            relative, inode = prefix + entry.name, entry.inode()
            if entry.is_dir(follow_symlinks=False):
                _refuse_foreign_job(entry.name, relative)
                entries[f"{relative}/"] = inode
                inner = f"{target}/{entry.name}"
                syscalls.make_directory(inner)
                _link_tree(entry.path, inner, f"{relative}/", left_out, entries)
                continue
            entries[relative] = inode
            # Under a name that the commit removes there may be another file by now.
            if relative in left_out and left_out[relative] in (None, inode):
                continue
            try:  # noqa: SIM105 - the other way costs more than all the rest of the loop
                syscalls.link(entry.path, f"{target}/{entry.name}")
            except FileNotFoundError:
                pass  # deleted since the directory was read
    copy_directory_attributes(source, target, status)


def _link_adds(
    storage: Storage, record: CommitRecord, staging_dirs: Sequence[str], tree: str, directory: str
) -> None:
    for add in record.adds:
        target = f"{tree}/{_path_within(directory, add.final)}"
        staged = find_staged(storage, staging_dirs, add.staged)
        if staged is not None:
            make_data_directories(os.path.dirname(target), tree)
            syscalls.link(staged, target)
        elif not os.path.lexists(target):
            # What recovery of a plain publish finds in place was linked with the rest.
            _missing_add(storage, record, add)


def _write_manifest(storage: Storage, swap: Swap) -> None:
    content = {field: getattr(swap, field) for field in _MANIFEST_FIELDS}
    path = storage.control.at(swap.name, MANIFEST_FILE)
    # It names thousands of files: encoded once, with the checksum beside it.
    body = json.dumps(content, separators=(",", ":"))
    data = encode_document(_MANIFEST_FORMAT, {"body": body}, indent=None)
    storage.backend.overwrite(path, data, sync=False)
    # Durable after the rename, with the tree: nobody acts on it before the record is written.
    storage.backend.sync_file(path)


def read_swap(storage: Storage, name: str) -> Swap | None:
    """Read the manifest of a swap; None if it has none, CorruptRecordError if it is damaged."""
    path = storage.control.at(name, MANIFEST_FILE)
    try:
        document = decode_document(path, storage.backend.read(path), _MANIFEST_FORMAT)
        content = json.loads(document["body"])
        return Swap(name, *(content[field] for field in _MANIFEST_FIELDS))
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptRecordError.damaged(path, str(error)) from error


def swap_in(storage: Storage, swap: Swap) -> None:
    """Swap the new tree in, for everybody to see; SwapRefused leaves everything as it was."""
    place = storage.path(swap.directory)
    tree = storage.control.at(swap.name, TREE)
    try:
        if swap.replaces:
            syscalls.exchange(tree, place)
        else:
            syscalls.rename_new(tree, place)
    except OSError as error:
        if is_swapped_in(storage, swap):
            raise
        raise SwapRefused(f"{error.strerror}: {place!r}") from error


def is_swapped_in(storage: Storage, swap: Swap) -> bool:
    """Whether the new tree was swapped in: then it is no longer where it was built."""
    if swap.name.startswith(".old"):
        return True
    inode = _inode_of(storage.control.at(swap.name, TREE))
    return not swap.replaces if inode is None else inode != swap.inode


def claim_swap(storage: Storage, swap: Swap) -> Swap:
    """Rename a swap that happened, so that its suspended owner no longer finds it."""
    name = new_tree_name(swap.name.partition("_")[0], swap.number)
    control = storage.control
    storage.backend.rename_directory(control.at(swap.name), control.at(name))
    return replace(swap, name=name)


def _inode_of(path: str) -> int | None:
    """Return the inode behind a name; None if there is none."""
    try:
        return os.lstat(path).st_ino
    except (FileNotFoundError, NotADirectoryError):
        return None


class SwapCleanup:
    """Removes the tree that was swapped out, after applying what others did to it meanwhile.

    It is removed name by name, never recursively: a file that we do not know is never destroyed.
    """

    def __init__(self, storage: Storage, record: CommitRecord, swap: Swap) -> None:
        self._storage = storage
        self._number = record.number
        self._entries = swap.entries
        self._name = swap.name
        self._new = storage.path(swap.directory)
        self._removes = {
            _path_within(swap.directory, remove.path): remove for remove in record.removes
        }
        self._left_out = _names_left_out(record, swap.directory)
        self.notes: list[str] = []

    @property
    def _old(self) -> str:
        return self._storage.control.at(self._name, TREE)

    def run(self) -> list[str]:
        """Apply what other programs did to the old tree, remove it, and return notes about it."""
        if self._name.startswith(".shadow"):
            self._follow_foreign_changes()
            old_name = self._name.replace(".shadow", ".old", 1)
            control = self._storage.control
            self._storage.backend.rename_directory(control.at(self._name), control.at(old_name))
            # Durable before the first name is removed from the old tree: a missing name would
            # otherwise look like one that another program has deleted. And the swap itself
            # before anything is removed; one of its directories is enough.
            self._storage.backend.sync_directory(control.path)
            self._storage.backend.sync_directory(os.path.dirname(self._new))
            self._name = old_name
        try:
            for _ in range(_MAX_CLEANUP_PASSES):
                if self._remove_tree(self._old, ""):
                    return self.notes
            self.notes.append("another program keeps writing into the directory as it was before.")
        except PermissionError as error:
            # Nobody reads the old tree: the commit is complete all the same.
            self.notes.append(
                f"the directory as it was before could not be removed: {error.strerror}: "
                f"{error.filename!r}."
            )
        return self.notes

    def _follow_foreign_changes(self) -> None:
        if {relative: entry.inode() for relative, entry in _walk(self._old)} == self._entries:
            return  # nearly always, and found out much faster than entry by entry
        gone = dict(self._entries)
        for relative, entry in _walk(self._old):
            if gone.pop(relative, None) != entry.inode():
                self._carry_over(relative, entry)
        for relative in sorted(gone, reverse=True):  # what is in a directory before it
            self._follow_deletion(relative)

    def _follow_deletion(self, relative: str) -> None:
        if relative in self._left_out:
            return
        # To a writer that was suspended while another one recovered its commit, the old tree seems
        # empty, and all files deleted: it must not repeat that.
        if not os.path.lexists(self._storage.control.at(self._name, MANIFEST_FILE)):
            raise ConcurrentModificationError(
                f"another writer has taken over commit {self._number} meanwhile."
            )
        path = f"{self._new}/{relative}".rstrip("/")
        if relative.endswith("/"):
            self._storage.backend.discard_directory(path)
        elif _inode_of(path) == self._entries[relative]:
            self._storage.backend.discard(path)
            self.notes.append(f"{relative!r} was deleted by another program meanwhile.")

    def _carry_over(self, relative: str, entry: os.DirEntry[str]) -> None:
        """Move a foreign file into the new tree; programs that have it open do not notice."""
        target = f"{self._new}/{relative}".rstrip("/")
        if relative.endswith("/") and os.path.isdir(target):
            return  # both have it; what is in it follows one by one
        make_data_directories(os.path.dirname(target), self._storage.root.path)
        try:
            self._storage.backend.move_new(entry.path, target)
        except FileNotFoundError:
            return  # deleted meanwhile
        except FileExistsError:
            self._resolve_conflict(relative, entry.path, target)
            return
        self.notes.append(f"{relative!r} was written by another program meanwhile; it was kept.")

    def _resolve_conflict(self, relative: str, path: str, target: str) -> None:
        """Decide between a foreign file of the old tree and one of the new tree."""
        current = _inode_of(target)
        if current == _inode_of(path):
            self._storage.backend.discard(path)
        elif current == self._entries.get(relative):
            syscalls.rename(path, target)
            self.notes.append(f"{relative!r} was replaced by another program meanwhile.")
        else:
            kept = self._storage.control.trashed(self._number, f"foreign/{relative.rstrip('/')}")
            self._storage.backend.make_directories(os.path.dirname(kept))
            self._storage.backend.move_new(path, kept)
            self.notes.append(
                f"{relative!r} was replaced by another program and by this commit; "
                f"its file is in the trash: {kept!r}."
            )

    def _remove_tree(self, directory: str, prefix: str) -> bool:
        """Remove the names we know, carry over those we do not; return whether it is gone."""
        try:
            with os.scandir(directory) as found:
                entries = list(found)
        except FileNotFoundError:
            return True
        known, removes, discard = self._entries, self._removes, self._storage.backend.discard
        for entry in entries:
            relative = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                if f"{relative}/" not in known:
                    self._carry_over(f"{relative}/", entry)
                self._remove_tree(entry.path, f"{relative}/")
            elif known.get(relative) != entry.inode():
                self._carry_over(relative, entry)
            elif relative not in removes:
                discard(entry.path)
            elif remove_file(self._storage, self._number, removes[relative], entry.path):
                self._carry_over(relative, entry)  # another program has changed it
        return self._storage.backend.discard_directory(directory)


def _walk(directory: str, prefix: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield the entries below a directory, parents first; directories end in ``/``."""
    try:
        with os.scandir(directory) as found:
            entries = list(found)
    except FileNotFoundError:
        return  # what is missing will be seen by the comparison
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield f"{prefix}{entry.name}/", entry
            yield from _walk(entry.path, f"{prefix}{entry.name}/")
        else:
            yield prefix + entry.name, entry


def remove_old_tree(storage: Storage, name: str) -> bool:
    """Remove the rest of an old tree once its commit is complete; return whether it is gone."""
    place = storage.control.at(name)
    if not storage.backend.discard_directory(f"{place}/{TREE}"):
        return False
    storage.backend.discard(f"{place}/{MANIFEST_FILE}")
    return storage.backend.discard_directory(place)
