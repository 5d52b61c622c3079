"""Clean: remove what nobody needs from a control directory, and say how many bytes that is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from fsspeckit.display import Card, Displayed, FileGroup, Listing, counted, report_nothing, size
from fsspeckit.errors import InvalidArgumentError
from fsspeckit.storage.commit.folding import fold_records
from fsspeckit.storage.commit.lock import hold_lock
from fsspeckit.storage.commit.log import RecordedState, list_records, read_record
from fsspeckit.storage.commit.publish import expired_trash
from fsspeckit.storage.commit.recovery import recover_locked, temporaries
from fsspeckit.storage.commit.staging import owner_state
from fsspeckit.storage.commit.tombstones import unused_tombstones
from fsspeckit.storage.commit.uploads import (
    abort_uploads,
    bytes_of_upload,
    find_abandoned_uploads,
)
from fsspeckit.storage.incoming import find_abandoned
from fsspeckit.storage.storage import open_storage, staging_names, tree_names

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from fsspeckit.display import Phases, Progress
    from fsspeckit.storage.commit.lock import WriterLock
    from fsspeckit.storage.commit.uploads import AbandonedUpload
    from fsspeckit.storage.storage import Retention, Storage

Kind = Literal["trash", "staging", "tree", "incoming", "temporary", "tombstones", "upload"]


@dataclass(frozen=True, slots=True)
class CleanedItem:
    """Something in the control directory that nobody needs."""

    kind: Kind
    """``trash`` that is no longer kept, ``staging`` and ``tree`` directories of writers that are
    gone, ``incoming`` rows that nobody came back for, half-written ``temporary`` files, files of
    ``tombstones`` that no record needs; an ``upload`` to S3 that nobody finishes."""

    name: str
    """Its path below the control directory; of an upload, the object that it would have become."""

    files: int
    """How many files it is."""

    bytes: int
    """What its files have; files that the dataset has as well free nothing."""


@dataclass(frozen=True)
class CleanReport(Displayed):
    """What a clean removed, or would remove."""

    path: str
    """The dataset."""

    items: tuple[CleanedItem, ...]
    """What is removed."""

    folded: int
    """How many records of old commits are folded."""

    in_use: tuple[str, ...] = ()
    """What was left alone because its owner may be alive, below the control directory."""

    completed: tuple[int, ...] = ()
    """Commits that were interrupted and are completed first."""

    dry_run: bool = False
    """Whether nothing was changed."""

    @property
    def bytes(self) -> int:
        """The bytes of all items."""
        return sum(item.bytes for item in self.items)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, and the bytes of all items, as values that ``json`` can write."""
        return {**super().to_dict(), "bytes": self.bytes}

    def __bool__(self) -> bool:
        return bool(self.items or self.folded or self.completed)

    def _title(self) -> str:
        done = "would be " if self.dry_run else ""
        parts = []
        if self.items:
            files = counted(sum(item.files for item in self.items), "file")
            parts.append(f"{files} with {size(self.bytes)} {done}removed")
        if self.folded:
            parts.append(f"{counted(self.folded, 'record')} {done}folded")
        if self.completed:
            parts.append(f"{counted(len(self.completed), 'commit')} {done}completed")
        return f"{self.path}: {', '.join(parts) or 'nothing to clean'}"

    def _card(self) -> Card:
        groups = []
        for kind in dict.fromkeys(item.kind for item in self.items):
            found = [item for item in self.items if item.kind == kind]
            files = sum(item.files for item in found)
            groups.append(FileGroup(kind, "removed", files, sum(item.bytes for item in found)))
        return Card(
            self._title(),
            tuple(groups),
            Listing.of(
                ("what", "name", "files", "bytes"),
                self.items,
                lambda item: (item.kind, item.name, f"{item.files:,}", size(item.bytes)),
            ),
            tuple(f"left {name}: its owner may be alive" for name in self.in_use),
        )


def clean(
    path: str | os.PathLike[str],
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    *,
    control_dir: str | os.PathLike[str] | None = None,
    dry_run: bool = True,
    retention: Retention | None = None,
    lock_timeout: float = 30.0,
) -> CleanReport:
    """Remove what nobody needs from the control directory of a dataset; no data file.

    That is what the trash keeps no longer, and what writers have left that are gone. Commits that
    were interrupted are completed first, and records of old commits are folded into one file. What
    a running writer owns stays.

    Args:
        path: The dataset.
        filesystem: An fsspec or pyarrow filesystem; None to find it from the URL.
        storage_options: What fsspec needs to open the filesystem of the URL.
        control_dir: The control directory, where it is not beside the dataset.
        dry_run: Whether to change nothing, and only say what would be removed: the default.
        retention: How long replaced files are kept; None for the default.
        lock_timeout: How many seconds to wait for another writer.

    Returns:
        What is removed, or would be, with its bytes.

    Raises:
        CorruptRecordError: If a record of an interrupted commit cannot be understood.
        LockTimeoutError: If another writer is at work.
        FileNotFoundError: If there is neither a dataset nor a control directory.

    Examples:
        >>> import pyarrow as pa
        >>> import fsspeckit
        >>> _ = fsspeckit.write_dataset(
        ...     pa.table({"id": [1]}), "memory://doc-clean", engine="pyarrow"
        ... )
        >>> print(clean("memory://doc-clean", dry_run=False))
        memory:///doc-clean: nothing to clean
    """
    storage = open_storage(
        path,
        filesystem,
        storage_options,
        control_dir=control_dir,
        lock_timeout=lock_timeout,
        retention=retention,
    )
    storage.check_exists()
    return clean_storage(storage, dry_run=dry_run)


def clean_storage(
    storage: Storage, *, dry_run: bool = True, progress: Progress = report_nothing
) -> CleanReport:
    """Clean the control directory of an open storage.

    Also a dry run holds the lock: nobody is in the middle of a commit while it looks.
    """
    if not isinstance(dry_run, bool):
        raise InvalidArgumentError.flag("dry_run", dry_run)
    with storage.observe("plan_clean" if dry_run else "clean", progress=progress) as phases:
        report = _run(storage, dry_run, phases)
        phases.facts["files_removed"] = sum(item.files for item in report.items)
        phases.facts["bytes_removed"] = report.bytes
        phases.facts["records_folded"] = report.folded
        return report


def _run(storage: Storage, dry_run: bool, phases: Phases) -> CleanReport:
    if not storage.backend.names(storage.control.path):
        return CleanReport(storage.root.display_path, (), 0, dry_run=dry_run)
    with hold_lock(storage) as lock:
        if dry_run:
            return _plan(storage, lock)
        with phases.timed("clean"):
            return _clean(storage, lock, phases.report)


def _plan(storage: Storage, lock: WriterLock) -> CleanReport:
    """Find what a clean removes."""
    names = list_records(storage)
    items = list(_find(storage, lock, names.last, set(names.pending)))
    items += _items_of(storage, find_abandoned_uploads(storage))
    blocks = names.full_blocks() if storage.capabilities.whole_put else []
    return CleanReport(
        storage.root.display_path,
        tuple(items),
        sum(block.last - block.first + 1 for block in blocks),
        tuple(
            name
            for name in staging_names(storage.backend.names(storage.control.path))
            if owner_state(storage, name) != "gone"
        ),
        tuple(names.pending),
        dry_run=True,
    )


def _clean(storage: Storage, lock: WriterLock, progress: Progress) -> CleanReport:
    before = _plan(storage, lock)
    recovered = recover_locked(storage, lock)
    names = list_records(storage)
    # What a commit that is complete now has left is there in addition.
    items = {item.name: item for item in (*before.items, *_find(storage, lock, names.last, set()))}
    for count, item in enumerate(items.values(), 1):
        if item.kind == "trash":
            storage.backend.discard_tree(storage.control.at(item.name))
        elif item.kind == "tombstones":
            storage.backend.discard(storage.control.at(item.name))
        progress("clean", count, len(items))
    uploads = find_abandoned_uploads(storage)
    items |= {item.name: item for item in _items_of(storage, uploads)}
    abort_uploads(storage, uploads)
    folded = fold_records(storage).records
    return replace(
        before,
        items=tuple(item for item in items.values() if not _is_there(storage, item)),
        folded=folded,
        completed=tuple(commit.number for commit in recovered.completed),
        in_use=recovered.in_use,
        dry_run=False,
    )


def _find(
    storage: Storage, lock: WriterLock, last: int, pending: set[int]
) -> Iterator[CleanedItem]:
    """Find what nobody needs; ``pending`` are commits that recovery completes first."""
    entries = storage.backend.names(storage.control.path)
    for name in expired_trash(storage, last):
        yield _item(storage, "trash", f"trash/{name}")
    needed = {read_record(storage, number).staging for number in pending}
    for name in staging_names(entries):
        if name.partition("~")[0] not in needed and owner_state(storage, name) == "gone":
            yield _item(storage, "staging", name)
    if lock.exclusive:  # nobody else builds trees or writes records
        for name, _, number in tree_names(entries):
            if number not in pending:
                yield _item(storage, "tree", name)
        for name in temporaries(storage):
            yield _item(storage, "temporary", f"commits/{name}")
    for name in find_abandoned(storage):
        yield _item(storage, "incoming", name)
    state = RecordedState(storage, last).tombstones(float("inf"))
    for name in unused_tombstones(storage, state, last) if state is not None else ():
        yield _item(storage, "tombstones", f"tombstones/{name}")


def _item(storage: Storage, kind: Kind, name: str) -> CleanedItem:
    path = storage.control.at(name)
    found = storage.backend.stat(path)
    sizes = [found.size] if found else list(storage.backend.sizes_below(path).values())
    return CleanedItem(kind, name, len(sizes), sum(sizes))


def _items_of(storage: Storage, uploads: Sequence[AbandonedUpload]) -> list[CleanedItem]:
    return [
        CleanedItem("upload", upload.name, 1, bytes_of_upload(storage, upload))
        for upload in uploads
    ]


def _is_there(storage: Storage, item: CleanedItem) -> bool:
    if item.kind == "upload":
        return False  # or there was an error
    directory, _, name = storage.control.at(item.name).rpartition("/")
    return name in storage.backend.names(directory)
