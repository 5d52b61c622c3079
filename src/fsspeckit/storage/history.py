"""The history of a dataset: its commit records, told to people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fsspeckit.errors import CorruptRecordError
from fsspeckit.storage.records import numbers, read_completion, read_record
from fsspeckit.storage.store import open_storage

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from fsspeckit.storage.records import CommitRecord, Completion
    from fsspeckit.storage.store import Storage

__all__ = ["HistoryEntry", "history", "history_of"]


@dataclass(frozen=True)
class HistoryEntry:
    """One commit."""

    number: int
    """Its number, from 1."""

    time: str
    """When it was committed, in UTC."""

    engine: str
    """Which engine wrote the files."""

    strategy: str
    """What was done, such as ``upsert`` or ``overwrite``."""

    key_columns: tuple[str, ...]
    """The key columns of a merge."""

    counts: Mapping[str, int]
    """Rows inserted, updated and so on."""

    added: tuple[str, ...]
    """New files, below the root."""

    removed: tuple[str, ...]
    """Files that were replaced or deleted."""

    seconds: float
    """How long it took, from the beginning of the work until it was complete."""

    published: str
    """``exchange`` or ``plain``."""

    complete: bool
    """Whether everything is visible; if not, recovery will complete it."""

    recovered: bool
    """Whether it was recovery that completed it."""

    abandoned: bool = False
    """Whether it was given up because its files were lost; the state before it was restored."""

    notes: tuple[str, ...] = ()
    """What happened on the way that a person should know."""


def history(
    path: str | os.PathLike[str],
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    *,
    control_dir: str | os.PathLike[str] | None = None,
) -> list[HistoryEntry]:
    """List the commits of a dataset, the oldest first; changes nothing.

    Raises:
        CorruptRecordError: If a record cannot be understood; names every such record.
        FileNotFoundError: If there is neither a dataset nor a control directory.
    """
    storage = open_storage(path, filesystem, storage_options, control_dir=control_dir)
    storage.check_exists()
    return history_of(storage)


def history_of(storage: Storage) -> list[HistoryEntry]:
    """List the commits of an open storage."""
    recorded, done = numbers(storage)
    entries: list[HistoryEntry] = []
    damaged: list[CorruptRecordError] = []
    for number in recorded:
        try:
            completion = read_completion(storage, number) if number in done else None
            entries.append(_entry(read_record(storage, number), completion))
        except CorruptRecordError as error:
            damaged.append(error)
    if damaged:
        # A list with gaps would be taken for the whole history.
        first, *others = damaged
        for other in others:
            first.add_note(str(other))
        raise first
    return entries


def _entry(record: CommitRecord, completion: Completion | None) -> HistoryEntry:
    return HistoryEntry(
        number=record.number,
        time=record.time,
        engine=record.facts.engine,
        strategy=record.facts.strategy,
        key_columns=record.facts.key_columns,
        counts=record.facts.counts,
        added=tuple(add.final for add in record.adds),
        removed=tuple(remove.path for remove in record.removes),
        seconds=record.seconds if completion is None else completion.seconds,
        published=record.publish if completion is None else completion.published,
        complete=completion is not None,
        recovered=completion is not None and completion.recovered,
        abandoned=completion is not None and completion.abandoned,
        notes=() if completion is None else completion.notes,
    )
