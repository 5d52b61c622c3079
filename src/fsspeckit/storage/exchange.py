"""Publish by exchange: the next state of a directory is built beside it and swapped in at once.

The shadow is a directory of hard links to everything that stays (hidden entries and foreign files
too) plus the new files. One system call swaps it with the directory that readers know, so nobody
ever lists half a commit. What follows is cleaning up: the old tree is compared with what the shadow
was made of, and what other programs did to it meanwhile is done to the new tree too. Then the old
tree is taken apart, name by name, never recursively: a file that we do not know is never destroyed.

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
import re
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fsspeckit.errors import ConcurrentModificationError, CorruptRecordError
from fsspeckit.storage import syscalls
from fsspeckit.storage.attributes import (
    copy_directory_attributes,
    inherit_directory,
    make_data_directories,
)
from fsspeckit.storage.control import MANIFEST_FILE, TREE
from fsspeckit.storage.names import parents_of
from fsspeckit.storage.publish import drop_empty_directories, missing_add
from fsspeckit.storage.records import sealed, unsealed
from fsspeckit.storage.staging import find_staged
from fsspeckit.storage.trash import checksum_path, remove_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fsspeckit.storage.records import CommitRecord, Remove
    from fsspeckit.storage.store import Storage

__all__ = ["Shadow", "ShadowRefused", "build_shadow", "install", "is_installed", "read_shadow"]

FORMAT = "fsspeckit-shadow"
_PASSES = 3


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
        _refuse_foreign_jobs(storage.root.path)
        _refuse_mounts(storage.root.path)
        return _build(storage, record, name, places)
    except ShadowRefused:
        discard_shadow(storage, name)
        raise
    except OSError as error:
        discard_shadow(storage, name)
        raise ShadowRefused(f"{error.strerror}: {error.filename!r}") from error


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
    source = storage.path(directory)
    place = storage.control.at(name)
    tree = f"{place}/{TREE}"
    replaces = os.path.isdir(source)
    syscalls.make_directory(place)
    syscalls.make_directory(tree)
    entries: dict[str, int] = {}
    if replaces:
        _link_tree(source, tree, "", _left_out(record, directory), entries)
    elif directory:
        inherit_directory(tree, os.path.dirname(source))
    _link_adds(storage, record, places, tree, directory)
    below = [_below(directory, remove.path) for remove in record.removes]
    drop_empty_directories(storage, tree, below)
    shadow = Shadow(name, record.number, directory, os.stat(tree).st_ino, replaces, entries)
    _sync_tree(storage, tree)
    _write_manifest(storage, shadow)
    return shadow


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
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            lines = file.read().splitlines()
    except OSError:  # pragma: no cover - not on this platform
        return
    inside = os.fsencode(directory) + b"/"
    for line in lines:
        place = re.sub(rb"\\([0-7]{3})", _octal, line.split(b" ")[4])
        if place.startswith(inside):
            raise ShadowRefused(f"another disk is mounted at {os.fsdecode(place)!r}")


def _octal(escape: re.Match[bytes]) -> bytes:
    return bytes([int(escape[1], 8)])


def _is_foreign_job(name: str) -> bool:
    return name == "_temporary" or name.startswith(".spark-staging")


def _left_out(record: CommitRecord, directory: str) -> dict[str, int | None]:
    """What the next state does not hold: path below the directory, and inode if that matters."""
    inodes = {_below(directory, remove.path): remove.inode for remove in record.removes}
    return inodes | dict.fromkeys(map(checksum_path, inodes))


def _below(directory: str, relative: str) -> str:
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
    with os.scandir(source) as found:
        for entry in found:
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
            if relative not in left_out or left_out[relative] not in (None, inode):
                with suppress(FileNotFoundError):  # deleted since the directory was read
                    syscalls.link(entry.path, f"{target}/{entry.name}")
    copy_directory_attributes(source, target, status)


def _link_adds(
    storage: Storage, record: CommitRecord, places: Sequence[str], tree: str, directory: str
) -> None:
    for add in record.adds:
        target = f"{tree}/{_below(directory, add.final)}"
        staged = find_staged(storage, places, add.staged)
        if staged is not None:
            make_data_directories(os.path.dirname(target), tree)
            syscalls.link(staged, target)
        elif not os.path.lexists(target):
            # What recovery of a plain publish finds in place was linked with the rest.
            missing_add(storage, record, add)


def _sync_tree(storage: Storage, tree: str) -> None:
    for directory, _, _ in os.walk(tree):
        storage.disk.sync_directory(directory)


def _write_manifest(storage: Storage, shadow: Shadow) -> None:
    content = {
        "number": shadow.number,
        "directory": shadow.directory,
        "inode": shadow.inode,
        "replaces": shadow.replaces,
        "entries": shadow.entries,
    }
    place = storage.control.at(shadow.name)
    storage.disk.overwrite(f"{place}/{MANIFEST_FILE}", _sealed_manifest(content))
    storage.disk.sync_directory(place)


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
    # One directory of the two is enough: a rename is durable as a whole.
    storage.disk.sync_directory(os.path.dirname(place))


def is_installed(storage: Storage, shadow: Shadow) -> bool:
    """Whether a shadow was swapped in: then its place no longer holds the tree that was built."""
    if shadow.name.startswith(".old"):
        return True
    inode = _inode(storage.control.at(shadow.name, TREE))
    return not shadow.replaces if inode is None else inode != shadow.inode


def claim_shadow(storage: Storage, shadow: Shadow) -> Shadow:
    """Give a shadow that was swapped in a new name, so that its paused owner finds it no more."""
    kind = shadow.name.partition("_")[0]
    name = f"{kind}_{shadow.number:010}_{uuid.uuid4().hex}"
    control = storage.control
    storage.disk.rename_directory(control.at(shadow.name), control.at(name))
    return replace(shadow, name=name)


class OldTree:
    """The tree that was swapped out, and how it is taken apart."""

    def __init__(self, storage: Storage, record: CommitRecord, shadow: Shadow) -> None:
        self._storage = storage
        self._number = record.number
        self._entries = shadow.entries
        self._name = shadow.name
        self._new = storage.path(shadow.directory)
        self._removes = {_below(shadow.directory, remove.path): remove for remove in record.removes}
        self._left_out = _left_out(record, shadow.directory)
        self.notes: list[str] = []

    @property
    def _old(self) -> str:
        return self._storage.control.at(self._name, TREE)

    def finish(self) -> list[str]:
        """Do what other programs did to the old tree to the new one too, then take it apart.

        Returns:
            Notes about what other programs did.
        """
        if self._name.startswith(".shadow"):
            self._follow_foreign_changes()
            old_name = self._name.replace(".shadow", ".old", 1)
            control = self._storage.control
            self._storage.disk.rename_directory(control.at(self._name), control.at(old_name))
            # Durable before the first name is taken out of the old tree: a missing name would
            # otherwise be taken for one that another program has deleted.
            self._storage.disk.sync_directory(control.path)
            self._name = old_name
        for _ in range(_PASSES):
            if self._take_apart(self._old, ""):
                return self.notes
        self.notes.append("another program keeps writing into the directory as it was before.")
        return self.notes

    def _follow_foreign_changes(self) -> None:
        seen = set()
        for relative, entry in _walk(self._old):
            seen.add(relative)
            if self._entries.get(relative) != entry.inode():
                self._bring_over(relative, entry)
        gone = (relative for relative in self._entries if relative not in seen)
        for relative in sorted(gone, reverse=True):  # what is in a directory before it
            self._follow_deletion(relative)

    def _check_not_taken_over(self) -> None:
        """Stop a writer that was paused while another one recovered its commit.

        To it the old tree seems empty, and all files deleted: it must not follow that.
        """
        if not os.path.lexists(self._storage.control.at(self._name, MANIFEST_FILE)):
            raise ConcurrentModificationError(
                f"another writer has taken over commit {self._number} meanwhile."
            )

    def _follow_deletion(self, relative: str) -> None:
        if relative in self._left_out:
            return
        self._check_not_taken_over()
        path = f"{self._new}/{relative}".rstrip("/")
        if relative.endswith("/"):
            self._storage.disk.discard_directory(path)
        elif _inode(path) == self._entries[relative]:
            self._storage.disk.discard(path)
            self.notes.append(f"{relative!r} was deleted by another program meanwhile.")

    def _bring_over(self, relative: str, entry: os.DirEntry[str]) -> None:
        """Move a foreign file into the new tree; whoever has it open goes on undisturbed."""
        target = f"{self._new}/{relative}".rstrip("/")
        if relative.endswith("/") and os.path.isdir(target):
            return  # both have it; what is in it follows one by one
        make_data_directories(os.path.dirname(target), self._storage.root.path)
        try:
            self._storage.disk.move_new(entry.path, target)
        except FileNotFoundError:
            return  # deleted meanwhile
        except FileExistsError:
            self._settle(relative, entry.path, target)
            return
        self.notes.append(f"{relative!r} was written by another program meanwhile; it was kept.")

    def _settle(self, relative: str, path: str, target: str) -> None:
        """Decide between a foreign file of the old tree and one of the new tree."""
        current = _inode(target)
        if current == _inode(path):
            self._storage.disk.discard(path)
        elif current == self._entries.get(relative):
            syscalls.rename(path, target)
            self.notes.append(f"{relative!r} was replaced by another program meanwhile.")
        else:
            kept = self._storage.control.trashed(self._number, f"foreign/{relative.rstrip('/')}")
            self._storage.disk.make_directories(os.path.dirname(kept))
            self._storage.disk.move_new(path, kept)
            self.notes.append(
                f"{relative!r} was replaced by another program and by this commit; "
                f"its file is in the trash: {kept!r}."
            )

    def _take_apart(self, directory: str, prefix: str) -> bool:
        """Take out the names we know and carry over those we do not; whether it is gone then."""
        try:
            with os.scandir(directory) as found:
                entries = list(found)
        except FileNotFoundError:
            return True
        for entry in entries:
            relative = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                self._take_apart_directory(f"{relative}/", entry)
            elif self._entries.get(relative) != entry.inode():
                self._bring_over(relative, entry)
            elif relative in self._removes:
                self._remove(relative, self._removes[relative], entry)
            else:
                self._storage.disk.discard(entry.path)
        return self._storage.disk.discard_directory(directory)

    def _take_apart_directory(self, relative: str, entry: os.DirEntry[str]) -> None:
        if relative not in self._entries:
            self._bring_over(relative, entry)
        self._take_apart(entry.path, relative)

    def _remove(self, relative: str, remove: Remove, entry: os.DirEntry[str]) -> None:
        note = remove_file(self._storage, self._number, remove, entry.path)
        if note is not None:
            self._bring_over(relative, entry)


def _walk(directory: str, prefix: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Entries below a directory, those of a directory after itself; directories end in ``/``."""
    try:
        with os.scandir(directory) as found:
            entries = list(found)
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield f"{prefix}{entry.name}/", entry
            yield from _walk(entry.path, f"{prefix}{entry.name}/")
        else:
            yield prefix + entry.name, entry


def _inode(path: str) -> int | None:
    try:
        return os.lstat(path).st_ino
    except (FileNotFoundError, NotADirectoryError):
        return None


def retire_old_tree(storage: Storage, name: str) -> bool:
    """Remove what is left of an old tree once its commit is marked complete; whether it is gone."""
    place = storage.control.at(name)
    if not storage.disk.discard_directory(f"{place}/{TREE}"):
        return False
    storage.disk.discard(f"{place}/{MANIFEST_FILE}")
    return storage.disk.discard_directory(place)
