"""Everything after the commit point: publish, check, mark complete and clean up.

Recovery takes the same steps, and may instead abandon a commit that cannot be completed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fsspeckit.errors import CommitIncompleteError, LostFileError
from fsspeckit.storage.commit.log import Completion, mark_complete, read_completion, seconds_since
from fsspeckit.storage.commit.publish import (
    Swap,
    SwapCleanup,
    SwapRefused,
    build_swap,
    check_writable,
    discard_swap,
    drop_empty_directories,
    publish_plain,
    remove_old_tree,
    swap_in,
)
from fsspeckit.storage.commit.trash import purge_trash, was_trashed
from fsspeckit.storage.fs.attributes import make_data_directories
from fsspeckit.storage.listing import entries_below, list_files
from fsspeckit.storage.storage import renamed_staging, staging_names, tree_names

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from fsspeckit.storage.commit.lock import WriterLock
    from fsspeckit.storage.commit.log import Add, CommitRecord, Published, Remove
    from fsspeckit.storage.listing import DataFile
    from fsspeckit.storage.snapshot import Snapshot
    from fsspeckit.storage.storage import Storage


def check_published(
    storage: Storage,
    record: CommitRecord,
    before: Snapshot | None = None,
    deleted: Collection[str] = (),
) -> list[str]:
    """Compare the dataset with what a published commit should have made of it.

    Its files must be those ``before``, without what the commit removes, with what it adds, and with
    what other programs added. A commit that left a replaced file in place would double its rows for
    every reader, so it must not report success. ``deleted`` are new files that another program is
    known to have deleted since.

    Returns:
        Notes about files that other programs deleted meanwhile.

    Raises:
        CommitIncompleteError: Naming the replaced files that still exist, and the missing new ones.
    """
    present = _present_files(storage)
    replaced = set(record.removed) - set(record.added)
    left = [
        remove.path
        for remove in record.removes
        if remove.path in replaced and _is_left(storage, remove, present)
    ]
    missing = [path for path in record.added if path not in present and path not in deleted]
    if left or missing:
        raise CommitIncompleteError.found(record.number, storage.root.display_path, left, missing)
    stayed = () if before is None else before.by_path.keys() - replaced
    return [
        f"{path!r} was deleted by another program meanwhile."
        for path in sorted(stayed)
        if path not in present
    ]


def _present_files(storage: Storage) -> dict[str, DataFile | None]:
    """List the files below the root by relative path, with their identity if it costs nothing."""
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
    found = present[remove.path] or storage.backend.stat(storage.path(remove.path))
    return found is not None and remove.is_still(found)


@dataclass
class Publication:
    """How a commit was published, and what a person should know about it."""

    published: Published = "plain"
    notes: list[str] = field(default_factory=list)
    abandoned: bool = False


def try_build_swap(
    storage: Storage,
    record: CommitRecord,
    staging_dirs: Sequence[str],
    lock: WriterLock,
    notes: list[str],
) -> Swap | None:
    """Build the new tree where a swap is possible and useful; else None, with a note why."""
    changes_one_name = len({*record.added, *record.removed}) == 1  # one step anyway
    if not storage.capabilities.exchange or not lock.exclusive or changes_one_name:
        return None
    try:
        return build_swap(storage, record, staging_dirs)
    except SwapRefused as refusal:
        notes.append(f"published without exchange: {refusal}.")
        return None


def publish(
    storage: Storage,
    record: CommitRecord,
    staging_dirs: Sequence[str],
    swap: Swap | None,
    lock: WriterLock,
    before: Snapshot | None = None,
) -> Publication:
    """Make a commit visible: by the swap, if one was built and the disk allows it, or plainly.

    Raises:
        CommitIncompleteError: If a file that it replaces still exists, or a new one does not.
    """
    publication = Publication()
    deleted: set[str] = set()
    # A writer that was suspended may wake up long after others have gone on.
    lock.check()
    if swap is not None:
        try:
            swap_in(storage, swap)
        except SwapRefused as refusal:
            publication.notes.append(f"published without exchange: {refusal}.")
            discard_swap(storage, swap.name)
        else:
            publication.published = "exchange"
            publication.notes += SwapCleanup(storage, record, swap).run()
    if publication.published == "plain":
        publication.notes += publish_plain(storage, record, staging_dirs, deleted)
    notes = check_published(storage, record, before, deleted)
    publication.notes += [note for note in notes if note not in publication.notes]
    return publication


def abandon(storage: Storage, record: CommitRecord, reason: Exception) -> Publication:
    """Go back to the state before a commit that cannot be completed.

    Replaced files come back first, then the new ones go: no row is missing meanwhile. Where files
    of both states are lost, the files that are left stay as they are.

    Raises:
        LostFileError: If a file that the commit removed is not in the trash, and the commit could
            still be completed; nothing was changed.
    """
    first_line = str(reason).partition("\n")[0]
    publication = Publication("plain", [f"abandoned: {first_line}"], abandoned=True)
    lost = [
        path
        for path in record.removed
        if not was_trashed(storage, record.number, path)
        and storage.backend.stat(storage.path(path)) is None
    ]
    if lost and not isinstance(reason, LostFileError):
        raise LostFileError.cannot_go_back(record.number, lost[0])
    if lost:
        publication.notes += [
            f"{path!r}, which the commit replaced, is lost, too; all other files stay as they are."
            for path in lost
        ]
        return publication
    check_writable(storage, record, may_remove=record.added)
    replaced = set(record.removed)
    in_place = replaced.intersection(record.added)
    for path in replaced:
        _restore(storage, record.number, path, over=path in in_place)
    for add in record.adds:
        if add.final not in in_place:
            publication.notes += _remove_added(storage, add)
    drop_empty_directories(storage, storage.root.path, record.added)
    return publication


def _remove_added(storage: Storage, add: Add) -> list[str]:
    """Remove a new file, unless another program has written another one under its name."""
    found = storage.backend.stat(storage.path(add.final))
    if found is not None and found.size != add.size:
        return [f"{add.final!r} was replaced by another program; it was kept."]
    storage.backend.discard(storage.path(add.final))
    return []


def _restore(storage: Storage, number: int, path: str, *, over: bool) -> None:
    """Move a replaced file back out of the trash, if it is there."""
    kept = storage.control.trashed(number, path)
    final = storage.path(path)
    if storage.backend.stat(kept) is None:
        return
    if over:
        storage.backend.move_over(kept, final)
    elif storage.backend.stat(final) is None:
        make_data_directories(os.path.dirname(final), storage.root.path)
        storage.backend.move_new(kept, final)


def complete(
    storage: Storage, record: CommitRecord, publication: Publication, *, recovered: bool = False
) -> Completion:
    """Mark a commit complete and remove what it no longer needs."""
    completion = Completion(
        publication.published,
        seconds_since(record.facts.started),
        recovered=recovered,
        abandoned=publication.abandoned,
        notes=tuple(publication.notes),
    )
    if not mark_complete(storage, record.number, completion):
        return read_completion(storage, record.number) or completion
    names = storage.backend.names(storage.control.path)
    for name, kind, number in tree_names(names):
        if kind == "old" and number == record.number:
            remove_old_tree(storage, name)
    for place in renamed_staging(staging_names(names), record.staging):
        storage.backend.discard_tree(storage.control.at(place))
    purge_trash(storage, record.number)
    return completion
