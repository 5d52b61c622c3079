"""The history of a dataset: its commit records, for people to read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fsspeckit.display import (
    MAX_LINES,
    Card,
    Displayed,
    FileGroup,
    Lane,
    Listing,
    Mark,
    Paged,
    counted,
    size,
)
from fsspeckit.errors import InvalidArgumentError
from fsspeckit.storage.commit.log import Completion, list_records, read_records
from fsspeckit.storage.storage import open_storage

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from fsspeckit.errors import CorruptRecordError
    from fsspeckit.storage.commit.log import CommitRecord, Transaction
    from fsspeckit.storage.storage import Storage


@dataclass(frozen=True)
class HistoryEntry(Displayed):
    """One commit; ``str()`` describes it in one line."""

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

    transaction: Transaction | None = None
    """Which batch of which application it is, if its caller said so."""

    purged: bool = False
    """Whether it emptied the trash."""

    tombstones: int | None = None
    """How many deleted keys are remembered after it, for changes that are late; None if it did not
    change them."""

    tombstone_seconds: float | None = None
    """How long they are kept; None if it did not change them."""

    schema_changes: tuple[str, ...] = ()
    """What it changed about the columns of the dataset, in words."""

    restores: int | None = None
    """The commit whose state it has brought back, if that is what it has done."""

    bytes_added: int = 0
    """The bytes of the new files."""

    bytes_removed: int = 0
    """The bytes of the files that were replaced or deleted."""

    record: CommitRecord | None = field(default=None, repr=False, compare=False)
    """The whole record, which is not shown."""

    @property
    def state(self) -> str:
        """What became of it: complete, pending, recovered or abandoned."""
        if self.abandoned:
            return "abandoned"
        if self.complete:
            return "recovered" if self.recovered else "complete"
        return "pending"

    def _when(self) -> str:
        return f"{self.time[:19].replace('T', ' ')} UTC"

    def _what(self) -> str:
        keys = f" by {', '.join(self.key_columns)}" if self.key_columns else ""
        if self.restores is not None:
            keys = f" to commit {self.restores}"
        batch = f", transaction {self.transaction}" if self.transaction else ""
        batch += ", purged" if self.purged else ""
        if self.tombstones is not None and self.tombstone_seconds is not None:
            days, rest = divmod(self.tombstone_seconds, 86400)
            kept = f"{self.tombstone_seconds:g} s" if rest else f"{days:g} days"
            batch += f", {counted(self.tombstones, 'tombstone')} for {kept}"
        batch += "".join(f", column {change}" for change in self.schema_changes)
        return f"{self.strategy}{keys}{batch}"

    @property
    def row_changes(self) -> str:
        """The counts that are not 0, in words."""
        counts = {name.replace("_", " "): count for name, count in self.counts.items() if count}
        return ", ".join(f"{count:,} {name}" for name, count in counts.items())

    def __str__(self) -> str:
        rows = self.row_changes
        engine = f" with {self.engine}" if self.engine else ""
        return (
            f"commit {self.number} at {self._when()}: {self._what()}{engine}"
            f"{': ' if rows else ''}{rows}; {counted(len(self.added), 'file')} added, "
            f"{len(self.removed)} removed ({self.state}, {self.seconds:.1f} s)"
        )

    def _card(self) -> Card:
        files = [(name, "added") for name in self.added]
        files += [(name, "removed") for name in self.removed]
        return Card(
            str(self),
            _groups([self]),
            Listing.of(("file", "what"), files, tuple),
            self.notes,
        )

    def _lanes(self) -> tuple[Lane, ...]:
        return (self._lane(),)

    def _lane(self) -> Lane:
        marks = (
            Mark(self._when(), "added", self.bytes_added, len(self.added), "added"),
            Mark(self._when(), "removed", self.bytes_removed, len(self.removed), "removed"),
        )
        return Lane(
            tuple(mark for mark in marks if mark.count),
            f"{self.number} {self.strategy}",
            f"+{len(self.added)} -{len(self.removed)}, {size(self.bytes_added)} written",
        )


def _groups(entries: Sequence[HistoryEntry]) -> tuple[FileGroup, ...]:
    added = sum(len(entry.added) for entry in entries)
    removed = sum(len(entry.removed) for entry in entries)
    groups = (
        FileGroup("added", "added", added, sum(entry.bytes_added for entry in entries)),
        FileGroup("removed", "removed", removed, sum(entry.bytes_removed for entry in entries)),
    )
    return tuple(group for group in groups if group.count)


class History(Paged, Displayed, list[HistoryEntry]):
    """The commits of a dataset, the oldest first: a list that displays itself as a table."""

    storage: Storage | None = None
    """The dataset, for its page; None for a copy from another process."""

    def __getstate__(self) -> None:
        """Copies travel without the dataset: its filesystem may be of this process."""

    def to_dict(self) -> dict[str, Any]:
        """Return the commits as values that ``json`` can write."""
        return {"commits": [entry.to_dict() for entry in self]}

    def __str__(self) -> str:
        last = self[-MAX_LINES:]
        left_out = len(self) - len(last)
        before = [f"{counted(left_out, 'commit')} before"] if left_out else []
        return "\n".join([*before, *map(str, last)]) or "no commits"

    def _card(self) -> Card:
        def line(entry: HistoryEntry) -> tuple[str, ...]:
            return (
                str(entry.number),
                entry._when(),
                entry._what(),
                entry.engine,
                entry.row_changes,
                f"+{len(entry.added)} -{len(entry.removed)}",
                f"{entry.seconds:.1f}",
                entry.state,
            )

        columns = ("commit", "time", "what", "engine", "rows", "files", "seconds", "state")
        listing = Listing.of(columns, self[::-1], line)
        return Card(counted(len(self), "commit"), _groups(self), listing)

    def _lanes(self) -> tuple[Lane, ...]:
        return tuple(entry._lane() for entry in self[::-1])


def history(
    path: str | os.PathLike[str],
    filesystem: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    *,
    control_dir: str | os.PathLike[str] | None = None,
    limit: int | None = None,
) -> History:
    """List the commits of a dataset, the oldest first; changes nothing.

    Args:
        path: The dataset.
        filesystem: An fsspec or pyarrow filesystem; None to find it from the URL.
        storage_options: What fsspec needs to open the filesystem of the URL.
        control_dir: The control directory, where it is not beside the dataset.
        limit: Only the last commits, so many of them, at least one.

    Returns:
        A list that shows itself as a table on a terminal and in a notebook.

    Raises:
        CorruptRecordError: If a record cannot be understood; names every such record.
        FileNotFoundError: If there is neither a dataset nor a control directory.
        InvalidArgumentError: If the limit is not such a number.
    """
    given: Any = limit
    is_whole = isinstance(given, int) and not isinstance(given, bool)
    if given is not None and not (is_whole and given >= 1):
        raise InvalidArgumentError(
            f"limit must be a whole number, 1 or more, got {limit!r}.\n"
            "Hint: leave it out to list every commit.",
            argument="limit",
        )
    storage = open_storage(path, filesystem, storage_options, control_dir=control_dir)
    storage.check_exists()
    return history_of(storage, limit)


def history_of(storage: Storage, limit: int | None = None) -> History:
    """List the commits of an open storage, or the last ones of them."""
    damaged: list[CorruptRecordError] = []
    after = 0 if limit is None else max(0, list_records(storage).last - limit)
    found = read_records(storage, after, damaged)
    if damaged:
        # A list with gaps would look like the whole history.
        first, *others = damaged
        for other in others:
            first.add_note(str(other))
        raise first
    entries = History(_entry(record, completion) for record, completion in found)
    entries.storage = storage
    return entries


def _entry(record: CommitRecord, completion: Completion | None) -> HistoryEntry:
    so_far = completion or Completion(record.publish, record.seconds)
    left = record.tombstones
    if left is not None and left.commit != record.number:
        left = None  # of an earlier commit
    return HistoryEntry(
        number=record.number,
        time=record.time,
        engine=record.facts.engine,
        strategy=record.facts.strategy,
        key_columns=record.facts.key_columns,
        counts=record.facts.counts,
        added=record.added,
        removed=record.removed,
        seconds=so_far.seconds,
        published=so_far.published,
        complete=completion is not None,
        recovered=so_far.recovered,
        abandoned=so_far.abandoned,
        notes=so_far.notes,
        transaction=record.transaction,
        purged=record.facts.purge,
        tombstones=None if left is None else left.rows,
        tombstone_seconds=None if left is None else left.seconds,
        schema_changes=tuple((record.facts.schema or {}).get("changes", ())),
        restores=record.facts.restores,
        bytes_added=sum(add.size for add in record.adds),
        bytes_removed=sum(remove.size for remove in record.removes),
        record=record,
    )
