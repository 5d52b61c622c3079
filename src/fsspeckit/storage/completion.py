"""From the commit point to the end: publish, mark complete, clean up; also used by recovery."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fsspeckit.storage.control import places_of, staging_names, tree_names
from fsspeckit.storage.exchange import (
    Shadow,
    ShadowRefused,
    build_shadow,
    discard_shadow,
    install,
)
from fsspeckit.storage.oldtree import OldTree, retire_old_tree
from fsspeckit.storage.publish import drop_empty_directories, publish_plain
from fsspeckit.storage.records import Completion, elapsed, mark_complete
from fsspeckit.storage.trash import purge_trash

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsspeckit.errors import LostFileError
    from fsspeckit.storage.lock import Held
    from fsspeckit.storage.records import CommitRecord, Published
    from fsspeckit.storage.store import Storage

__all__ = ["Publication", "abandon", "complete", "publish", "try_shadow"]


@dataclass
class Publication:
    """How a commit was published, and what a person should know about that."""

    published: Published = "plain"
    notes: list[str] = field(default_factory=list)
    abandoned: bool = False


def try_shadow(
    storage: Storage, record: CommitRecord, places: Sequence[str], held: Held, notes: list[str]
) -> Shadow | None:
    """Build a shadow where the exchange is possible and of use; else None, with a note why."""
    if not storage.capabilities.exchange or not held.exclusive or changes_one_name(record):
        return None
    try:
        return build_shadow(storage, record, places)
    except ShadowRefused as refusal:
        notes.append(f"published without exchange: {refusal}.")
        return None


def changes_one_name(record: CommitRecord) -> bool:
    """Whether a plain publish is a single step anyway."""
    names = {add.final for add in record.adds} | {remove.path for remove in record.removes}
    return len(names) == 1


def publish(
    storage: Storage,
    record: CommitRecord,
    places: Sequence[str],
    shadow: Shadow | None,
    held: Held,
) -> Publication:
    """Make a commit visible."""
    publication = Publication()
    # A writer that was stopped may wake up when others have long gone on.
    held.check()
    if shadow is not None:
        try:
            install(storage, shadow)
        except ShadowRefused as refusal:
            publication.notes.append(f"published without exchange: {refusal}.")
            discard_shadow(storage, shadow.name)
        else:
            publication.published = "exchange"
            publication.notes += OldTree(storage, record, shadow).finish()
            return publication
    publication.notes += publish_plain(storage, record, places)
    return publication


def abandon(storage: Storage, record: CommitRecord, lost: LostFileError) -> Publication:
    """Go back to the state before a commit whose files were lost: nothing was removed yet."""
    replaced = {remove.path for remove in record.removes}
    for add in record.adds:
        final = storage.path(add.final)
        kept = storage.control.trashed(record.number, add.final)
        if add.final not in replaced:
            storage.disk.discard(final)
        elif storage.disk.look(kept) is not None:
            storage.disk.move_over(kept, final)
    drop_empty_directories(storage, storage.root.path, (add.final for add in record.adds))
    return Publication("plain", [f"abandoned: {lost}"], abandoned=True)


def complete(
    storage: Storage, record: CommitRecord, publication: Publication, *, recovered: bool = False
) -> Completion:
    """Mark a commit complete and remove what it no longer needs."""
    completion = Completion(
        publication.published,
        elapsed(record.facts.started),
        recovered=recovered,
        abandoned=publication.abandoned,
        notes=tuple(publication.notes),
    )
    mark_complete(storage, record.number, completion)
    names = storage.disk.names(storage.control.path)
    for name, kind, number in tree_names(names):
        if kind == "old" and number == record.number:
            retire_old_tree(storage, name)
    for place in places_of(staging_names(names), record.staging):
        storage.disk.discard_tree(storage.control.at(place))
    purge_trash(storage, record.number)
    return completion
