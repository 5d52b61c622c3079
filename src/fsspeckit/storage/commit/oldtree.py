"""The tree that an exchange swapped out: follow what others did to it, then take it apart.

The old tree is compared with what the shadow was made of, and what other programs did to it
meanwhile is done to the new tree too. Then it is taken apart, name by name, never recursively: a
file that we do not know is never destroyed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fsspeckit.errors import ConcurrentModificationError
from fsspeckit.storage.commit.publish import below, inode_of, left_out_of
from fsspeckit.storage.commit.trash import remove_file
from fsspeckit.storage.control import MANIFEST_FILE, TREE
from fsspeckit.storage.fs import syscalls
from fsspeckit.storage.fs.attributes import make_data_directories

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fsspeckit.storage.commit.log import CommitRecord, Remove
    from fsspeckit.storage.commit.publish import Shadow
    from fsspeckit.storage.storage import Storage

__all__ = ["OldTree", "retire_old_tree"]

_PASSES = 3


class OldTree:
    """The tree that was swapped out, and how it is taken apart."""

    def __init__(self, storage: Storage, record: CommitRecord, shadow: Shadow) -> None:
        self._storage = storage
        self._number = record.number
        self._entries = shadow.entries
        self._name = shadow.name
        self._new = storage.path(shadow.directory)
        self._removes = {below(shadow.directory, remove.path): remove for remove in record.removes}
        self._left_out = left_out_of(record, shadow.directory)
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
            # otherwise be taken for one that another program has deleted. And the exchange itself
            # before anything is removed; one of its directories is enough.
            self._storage.disk.sync_directory(control.path)
            self._storage.disk.sync_directory(os.path.dirname(self._new))
            self._name = old_name
        try:
            for _ in range(_PASSES):
                if self._take_apart(self._old, ""):
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
        if inodes_below(self._old) == self._entries:
            return  # nearly always, and found out much faster than entry by entry
        gone = dict(self._entries)
        for relative, entry in _walk(self._old):
            if gone.pop(relative, None) != entry.inode():
                self._bring_over(relative, entry)
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
        elif inode_of(path) == self._entries[relative]:
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
        current = inode_of(target)
        if current == inode_of(path):
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
        known, removes, discard = self._entries, self._removes, self._storage.disk.discard
        for entry in entries:
            relative = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                self._take_apart_directory(f"{relative}/", entry)
            elif known.get(relative) != entry.inode():
                self._bring_over(relative, entry)
            elif relative in removes:
                self._remove(relative, removes[relative], entry)
            else:
                discard(entry.path)
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


def inodes_below(directory: str, prefix: str = "") -> dict[str, int]:
    """The numbers of all entries below a directory, as a manifest holds them."""
    found: dict[str, int] = {}
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    found[f"{prefix}{entry.name}/"] = entry.inode()
                    found |= inodes_below(entry.path, f"{prefix}{entry.name}/")
                else:
                    found[prefix + entry.name] = entry.inode()
    except FileNotFoundError:
        pass  # what is missing will be seen by the comparison
    return found


def retire_old_tree(storage: Storage, name: str) -> bool:
    """Remove what is left of an old tree once its commit is marked complete; whether it is gone."""
    place = storage.control.at(name)
    if not storage.disk.discard_directory(f"{place}/{TREE}"):
        return False
    storage.disk.discard(f"{place}/{MANIFEST_FILE}")
    return storage.disk.discard_directory(place)
