"""Publish by exchange: the next state of a directory is built beside it and swapped in at once.

The shadow is a directory of hard links to everything that stays (hidden entries and foreign files
too) plus the new files. One system call swaps it with the directory that readers know, so nobody
ever lists half a commit. What is left of the old tree is the business of
:mod:`fsspeckit.storage.commit.oldtree`.

The steps, and what an interruption leaves:

``.dropped_…``, or ``.shadow_…`` without a manifest or with the new tree in it
    not swapped; it is only links and may go.
``.shadow_…`` holding the old tree
    swapped; a name that is missing in the old tree was deleted by another program.
``.old_…``
    swapped and compared; names that are missing in the old tree were taken out by us.
"""

from __future__ import annotations

import json
import os
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fsspeckit.errors import CorruptRecordError
from fsspeckit.storage.commit.log import sealed, unsealed
from fsspeckit.storage.commit.publish_files import (
    drop_empty_directories,
    is_sticky_for_others,
    missing_add,
)
from fsspeckit.storage.commit.staging import find_staged
from fsspeckit.storage.commit.trash import checksum_path
from fsspeckit.storage.control import MANIFEST_FILE, TREE
from fsspeckit.storage.fs import syscalls
from fsspeckit.storage.fs.attributes import (
    copy_directory_attributes,
    inherit_directory,
    make_data_directories,
)
from fsspeckit.storage.fs.status import mount_points
from fsspeckit.storage.names import parents_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsspeckit.storage.commit.log import CommitRecord
    from fsspeckit.storage.storage import Storage

__all__ = ["Shadow", "ShadowRefused", "build_shadow", "install", "is_installed", "read_shadow"]

FORMAT = "fsspeckit-shadow"


class ShadowRefused(Exception):
    """No exchange is possible here; the reason is for the outcome's notes, never for the user."""


@dataclass(frozen=True)
class Shadow:
    """A shadow as its manifest describes it."""

    name: str
    """Its entry in the control directory."""

    number: int
    """The commit it is for."""

    directory: str
    """The directory below the root that it replaces; empty for the root itself."""

    inode: int
    """The number of the directory that holds the new state, wherever it is now."""

    replaces: bool
    """Whether there was a directory before."""

    entries: dict[str, int]
    """What it was made of: path below the directory (directories end in ``/``) and inode."""


def build_shadow(storage: Storage, record: CommitRecord, places: Sequence[str]) -> Shadow:
    """Build the next state of the smallest directory that a commit changes.

    Args:
        storage: The dataset.
        record: The commit.
        places: Where its staged files are.

    Raises:
        ShadowRefused: If this cannot be done here, for whatever reason.
    """
    # A name of its own each time: whoever built an earlier one cannot swap this one in.
    name = storage.control.shadow_name(record.number, uuid.uuid4().hex)
    try:
        _refuse_mounts(storage.root.path)
        _refuse_links(storage, record)
        _refuse_own_working_directory(storage.root.path)
        return _build(storage, record, name, places)
    except ShadowRefused:
        discard_shadow(storage, name)
        raise
    except OSError as error:
        discard_shadow(storage, name)
        raise ShadowRefused(f"{error.strerror}: {error.filename!r}") from error


def _refuse_links(storage: Storage, record: CommitRecord) -> None:
    """Refuse where a file to remove is a link: the old tree is compared by inodes of entries."""
    for remove in record.removes:
        if os.path.islink(storage.path(remove.path)):
            raise ShadowRefused(f"{remove.path!r} is a symbolic link")


def _refuse_own_working_directory(root: str) -> None:
    """Refuse where this process works inside the dataset: it would stay in the old tree."""
    try:
        here = os.getcwd()
    except FileNotFoundError:
        return
    if os.path.commonpath([here, root]) == root:
        raise ShadowRefused("the working directory of this process is in the dataset")


def discard_shadow(storage: Storage, name: str) -> None:
    """Remove a shadow that was never swapped in: nothing but links and copies of ours."""
    place = storage.control.at(name)
    dropped = storage.control.at(name.replace(".shadow", ".dropped", 1))
    # What cannot be removed now is removed by the next writer's recovery.
    with suppress(OSError):
        if place != dropped:
            # Renamed first: whoever was about to swap it in must not swap in half of it.
            storage.disk.rename_directory(place, dropped)
        storage.disk.discard_tree(dropped)


def _build(storage: Storage, record: CommitRecord, name: str, places: Sequence[str]) -> Shadow:
    directory = _smallest_directory(storage, record)
    if directory:  # else they are met when the root is linked
        _refuse_foreign_jobs(storage.root.path)
    source = storage.path(directory)
    place = storage.control.at(name)
    tree = f"{place}/{TREE}"
    replaces = os.path.isdir(source)
    syscalls.make_directory(place)
    syscalls.make_directory(tree)
    entries: dict[str, int] = {}
    if replaces:
        _link_tree(source, tree, "", left_out_of(record, directory), entries)
    elif directory:
        inherit_directory(tree, os.path.dirname(source))
    _link_adds(storage, record, places, tree, directory)
    removed = [below(directory, remove.path) for remove in record.removes]
    drop_empty_directories(storage, tree, removed)
    shadow = Shadow(name, record.number, directory, os.stat(tree).st_ino, replaces, entries)
    _write_manifest(storage, shadow)
    for made in ("", TREE, *_directories_of(shadow, record)):
        storage.disk.sync_directory(f"{place}/{made}")
    return shadow


def _directories_of(shadow: Shadow, record: CommitRecord) -> list[str]:
    """The directories in a shadow, those that it got for new files too; some may be gone again."""
    linked = {name[:-1] for name in shadow.entries if name[-1] == "/"}
    added = (below(shadow.directory, add.final) for add in record.adds)
    made = {parent for path in added for parent in parents_of(path)}
    return [f"{TREE}/{name}" for name in sorted(linked | made)]


def _smallest_directory(storage: Storage, record: CommitRecord) -> str:
    """The deepest directory below the root that holds every change; empty for the root."""
    paths = [add.final for add in record.adds] + [remove.path for remove in record.removes]
    for parent in {parent for path in paths for parent in parents_of(path)}:
        if os.path.islink(storage.path(parent)):
            raise ShadowRefused(f"{parent!r} is a symbolic link")
    shared = set.intersection(*({"", *parents_of(path)} for path in paths))
    if not os.path.isdir(storage.root.path):
        make_data_directories(os.path.dirname(storage.root.path), storage.root.path)
        return ""
    for directory in sorted(shared, key=len):
        if not os.path.isdir(storage.path(directory)):
            return directory  # it appears with everything that is in it
    return max(shared, key=len)


def _refuse_foreign_jobs(directory: str) -> None:
    """Spark renames out of these directories when a job ends; they must stay where they are."""
    if not os.path.isdir(directory):
        return
    for name in os.listdir(directory):
        if _is_foreign_job(name):
            raise ShadowRefused(f"another program is writing into {name!r}")


def _refuse_mounts(directory: str) -> None:
    """A disk that is mounted below would stay behind in the old tree, even if it is empty."""
    for place in sorted(mount_points()):
        if place.startswith(f"{directory}/"):
            raise ShadowRefused(f"another disk is mounted at {place!r}")


def _is_foreign_job(name: str) -> bool:
    return name == "_temporary" or name.startswith(".spark-staging")


def left_out_of(record: CommitRecord, directory: str) -> dict[str, int | None]:
    """What the next state does not hold: path below the directory, and inode if that matters."""
    inodes = {below(directory, remove.path): remove.inode for remove in record.removes}
    return inodes | dict.fromkeys(map(checksum_path, inodes))


def below(directory: str, relative: str) -> str:
    """A path below the root as seen from a directory below the root."""
    return relative.removeprefix(f"{directory}/") if directory else relative


def _link_tree(
    source: str,
    target: str,
    prefix: str,
    left_out: dict[str, int | None],
    entries: dict[str, int],
) -> None:
    """Make a directory of links to all entries of another one, and of those below it."""
    status = os.stat(source)
    if is_sticky_for_others(status):
        raise ShadowRefused(f"files of others could not be removed from {source!r}")
    with os.scandir(source) as found:
        for entry in found:  # as few steps as possible: this runs for every file of a dataset
            relative, inode = prefix + entry.name, entry.inode()
            if entry.is_dir(follow_symlinks=False):
                if _is_foreign_job(entry.name):
                    raise ShadowRefused(f"another program is writing into {relative!r}")
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
    storage: Storage, record: CommitRecord, places: Sequence[str], tree: str, directory: str
) -> None:
    for add in record.adds:
        target = f"{tree}/{below(directory, add.final)}"
        staged = find_staged(storage, places, add.staged)
        if staged is not None:
            make_data_directories(os.path.dirname(target), tree)
            syscalls.link(staged, target)
        elif not os.path.lexists(target):
            # What recovery of a plain publish finds in place was linked with the rest.
            missing_add(storage, record, add)


def _write_manifest(storage: Storage, shadow: Shadow) -> None:
    content = {
        "number": shadow.number,
        "directory": shadow.directory,
        "inode": shadow.inode,
        "replaces": shadow.replaces,
        "entries": shadow.entries,
    }
    place = storage.control.at(shadow.name)
    path = f"{place}/{MANIFEST_FILE}"
    storage.disk.overwrite(path, _sealed_manifest(content), sync=False)
    # Durable after the rename, with the tree: nobody acts on it before the record is written.
    storage.disk.sync_file(path)


def _sealed_manifest(content: dict[str, Any]) -> bytes:
    """The manifest of thousands of files: encoded once, with the checksum beside it."""
    body = json.dumps(content, separators=(",", ":"))
    return sealed(FORMAT, {"body": body}, indent=None)


def read_shadow(storage: Storage, name: str) -> Shadow | None:
    """Read a shadow's manifest; None if it has none, or none that is complete.

    Raises:
        CorruptRecordError: If it is damaged, and the shadow may have been swapped in.
    """
    path = storage.control.at(name, MANIFEST_FILE)
    try:
        content = json.loads(unsealed(path, storage.disk.read(path), FORMAT)["body"])
        return Shadow(
            name,
            content["number"],
            content["directory"],
            content["inode"],
            content["replaces"],
            content["entries"],
        )
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptRecordError.damaged(path, str(error)) from error


def install(storage: Storage, shadow: Shadow) -> None:
    """Swap a shadow in: from here on everybody sees the new state.

    Raises:
        ShadowRefused: If the filesystem does not do that; nothing has changed then.
    """
    place = storage.path(shadow.directory)
    tree = storage.control.at(shadow.name, TREE)
    try:
        if shadow.replaces:
            syscalls.exchange(tree, place)
        else:
            syscalls.rename_new(tree, place)
    except OSError as error:
        if is_installed(storage, shadow):
            raise
        raise ShadowRefused(f"{error.strerror}: {place!r}") from error


def is_installed(storage: Storage, shadow: Shadow) -> bool:
    """Whether a shadow was swapped in: then its place no longer holds the tree that was built."""
    if shadow.name.startswith(".old"):
        return True
    inode = inode_of(storage.control.at(shadow.name, TREE))
    return not shadow.replaces if inode is None else inode != shadow.inode


def claim_shadow(storage: Storage, shadow: Shadow) -> Shadow:
    """Give a shadow that was swapped in a new name, so that its paused owner finds it no more."""
    kind = shadow.name.partition("_")[0]
    name = f"{kind}_{shadow.number:010}_{uuid.uuid4().hex}"
    control = storage.control
    storage.disk.rename_directory(control.at(shadow.name), control.at(name))
    return replace(shadow, name=name)


def inode_of(path: str) -> int | None:
    """The number of the file that has a name; None if there is none."""
    try:
        return os.lstat(path).st_ino
    except (FileNotFoundError, NotADirectoryError):
        return None
