"""The invariant of a commit, checked before it is marked complete.

The files of the dataset are those of the state before, without what the commit removes, with what
it adds, and with what other programs added. A commit that left a replaced file in place would
double its rows for every reader, so it must not report success.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsspeckit.errors import CommitIncompleteError
from fsspeckit.storage.listing import entries_below, list_files

if TYPE_CHECKING:
    from collections.abc import Collection

    from fsspeckit.storage.commit.log import CommitRecord, Remove
    from fsspeckit.storage.listing import DataFile
    from fsspeckit.storage.snapshot import Snapshot
    from fsspeckit.storage.storage import Storage

__all__ = ["check_published"]


def check_published(
    storage: Storage,
    record: CommitRecord,
    before: Snapshot | None = None,
    deleted: Collection[str] = (),
) -> list[str]:
    """Compare the dataset with what a commit should have made of it.

    Args:
        storage: The dataset.
        record: The commit, whose files are all published.
        before: The state that it was based on, where that is known.
        deleted: New files that another program is known to have deleted since.

    Returns:
        Notes about files that other programs deleted meanwhile.

    Raises:
        CommitIncompleteError: Naming replaced files that are still there, and new ones that are
            not.
    """
    present = _present_files(storage)
    in_place = {add.final for add in record.adds}
    replaced = {remove.path for remove in record.removes} - in_place
    left = [
        remove.path
        for remove in record.removes
        if remove.path in replaced and _is_left(storage, remove, present)
    ]
    missing = [
        add.final for add in record.adds if add.final not in present and add.final not in deleted
    ]
    if left or missing:
        raise CommitIncompleteError.found(record.number, storage.root.shown, left, missing)
    stayed = () if before is None else before.by_path.keys() - replaced
    return [
        f"{path!r} was deleted by another program meanwhile."
        for path in sorted(stayed)
        if path not in present
    ]


def _present_files(storage: Storage) -> dict[str, DataFile | None]:
    """The files below the root by their relative paths, with their identity if it costs nothing."""
    if not storage.root.is_local:
        root = storage.root
        return {root.relative(file.path): file for file in list_files(root).files}
    return {
        relative: None
        for relative, _, is_directory in entries_below(storage.root.path)
        if not is_directory
    }


def _is_left(storage: Storage, remove: Remove, present: dict[str, DataFile | None]) -> bool:
    """Whether a file that the commit replaces is still in the dataset, not another one."""
    if remove.path not in present:
        return False
    found = present[remove.path] or storage.disk.look(storage.path(remove.path))
    return found is not None and remove.is_still(found)
