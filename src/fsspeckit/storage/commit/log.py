"""The commit log: one JSON record for each commit, and a mark once the commit is complete.

A record is complete or absent, numbered, and never changed. It carries a checksum over its own
content: recovery acts on what a record says, so it must recognise a damaged one.

A record also carries what must survive it: the last version of each application whose batches are
numbered, and the names of the files of tombstones. So the newest record answers whether a
transaction is committed; records that do not say it are looked past.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import time
import zlib
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from functools import cache, partial
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal

from fsspeckit.errors import (
    ConcurrentModificationError,
    CorruptRecordError,
    InvalidArgumentError,
    TransactionResetError,
)
from fsspeckit.storage.listing import check_basename, check_relative
from fsspeckit.storage.storage import RecordNames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from fsspeckit.storage.listing import DataFile
    from fsspeckit.storage.storage import Segment, Storage

FORMAT, DONE_FORMAT = "fsspeckit-commit", "fsspeckit-commit-done"
VERSION = 1
_MAX_LISTINGS = 20
"""How often records are listed again that others fold meanwhile."""

Published = Literal["exchange", "plain"]
"""How a commit is published: by swapping directories (``exchange``), or file by file."""


MAX_NAME_CHARACTERS = 200
"""The names of an application and of a run are in many records, so they have a limit."""

_MAX_VERSION = 2**63 - 1
_MAX_FIRST_VERSION = 1
"""Counters start with 0 or 1."""

_MIN_RESET_DISTANCE = 10
"""What a job repeats is its last batch, so a first version this far back is a new counter."""


@dataclass(frozen=True)
class Transaction:
    """One numbered batch of an application, which is applied once.

    A call with a transaction is skipped if the application has committed this version or a later
    one. So a job that does not know whether its last batch was committed repeats it.

    Examples:
        >>> str(Transaction("orders-feed", 17))
        'orders-feed:17'
    """

    application: str
    """Who counts: a name of its own for each feed into a dataset, the same in every run."""

    version: int
    """The number of the batch, from 0; later batches have greater numbers."""

    run: str | None = None
    """Identifies one life of the counter, such as the id of a checkpoint. A version that is not
    new is then refused, and not skipped, if it comes from another run."""

    def __post_init__(self) -> None:
        _check_name("application", self.application)
        if self.run is not None:
            _check_name("run", self.run)
        version: Any = self.version
        is_whole = isinstance(version, Integral) and not isinstance(version, bool)
        if not (is_whole and 0 <= version <= _MAX_VERSION):
            raise InvalidArgumentError(
                "the version of a transaction must be a whole number from 0 to 2**63 - 1, got "
                f"{version!r}.\nHint: count the batches of an application, such as the batches "
                "of a stream."
            )
        object.__setattr__(self, "version", int(version))  # JSON does not take those of NumPy

    def __str__(self) -> str:
        return f"{self.application}:{self.version}"


def _check_name(what: str, name: object) -> None:
    is_text = isinstance(name, str) and name.isprintable() and name.strip()
    if not (is_text and len(str(name)) <= MAX_NAME_CHARACTERS):
        raise InvalidArgumentError(
            f"the {what} of a transaction must be a text of 1 to {MAX_NAME_CHARACTERS} printable "
            f"characters, got {name!r}."
        )


@dataclass(frozen=True, slots=True)
class RecordedTransaction:
    """The last version of an application that is committed, as records carry it."""

    version: int
    time: str
    """When it was committed."""

    commit: int
    """The number of its commit."""

    run: str | None = None


@dataclass(frozen=True, slots=True)
class TombstoneFile:
    """A file with keys that a change feed has deleted; it is never changed."""

    name: str
    """Its name in the control directory's ``tombstones``; it begins with the commit's number."""

    rows: int
    """How many keys it has."""

    newest: float
    """When the newest of them was deleted, in seconds since 1970."""

    checksum: str
    """Of its content."""


@dataclass(frozen=True, slots=True)
class Tombstones:
    """The keys that change feeds have deleted, as records carry them."""

    files: tuple[TombstoneFile, ...] = ()
    """Those that hold them, the oldest first."""

    seconds: float = 0.0
    """How long each is kept."""

    commit: int = 0
    """The number of the commit that changed them last."""

    @property
    def rows(self) -> int:
        """How many there are in all files."""
        return sum(file.rows for file in self.files)


@dataclass(frozen=True, slots=True)
class CommitFacts:
    """What a commit is about, for people; of it storage itself uses only ``purge``."""

    engine: str = ""
    """Which engine wrote the files."""

    strategy: str = ""
    """What was done, such as ``upsert`` or ``overwrite``."""

    key_columns: tuple[str, ...] = ()
    """The key columns of a merge."""

    counts: Mapping[str, int] = field(default_factory=dict)
    """Rows inserted, updated and so on."""

    started: float | None = None
    """When the work began, in seconds since 1970."""

    source_rows: int | None = None
    """The rows of the source; None if the record does not say."""

    purge: bool = False
    """Whether the commit empties the trash: older versions of files have rows that must go."""

    schema: Mapping[str, Any] | None = None
    """The ``columns`` and the ``changes`` of the schema, where the commit changes it."""

    restores: int | None = None
    """The commit whose state it brings back; None for every other commit."""

    details: Mapping[str, Any] | None = None
    """How the work was done, for reports; None if the record does not say."""


@dataclass(frozen=True)
class Skipped:
    """A transaction that is not applied, because it is committed already."""

    transaction: Transaction
    """The transaction."""

    recorded: RecordedTransaction
    """The last version of its application that is committed."""

    facts: CommitFacts | None = None
    """What the commit of this very version did; None if it is not on record any more."""

    @property
    def note(self) -> str:
        """What a person should know about it."""
        commit = f"commit {self.recorded.commit} at {self.recorded.time[:19]} UTC"
        if self.facts is not None:
            return f"skipped: transaction {self.transaction} is {commit}"
        return (
            f"skipped: version {self.recorded.version} of {self.transaction.application} is "
            f"{commit}; the result of version {self.transaction.version} is not on record"
        )


@dataclass(frozen=True, slots=True)
class Add:
    """A file that a commit adds."""

    staged: str
    """Its name in the staging directory."""

    final: str
    """Its path below the root."""

    rows: int | None
    size: int

    mtime_ns: int | None = None
    """When its bytes were written, on a local disk; None if the record does not say."""

    inode: int | None = None
    birth_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Remove:
    """A file that a commit removes, exactly as the plan saw it; see ``DataFile``."""

    path: str
    """Its path below the root."""

    size: int
    mtime_ns: int | None = None
    inode: int | None = None
    etag: str | None = None
    birth_ns: int | None = None

    def is_still(self, file: DataFile) -> bool:
        """Whether a file under that name is still the one that the plan saw.

        The file itself may have another inode, if it was restored from a copy, another time of
        creation, if an overlay filesystem has copied it to move it, or another time of
        modification, if it was touched. A file that replaced it may have got its inode, which was
        free again, but then neither of its times.
        """
        if self.size != file.size:
            return False
        if self.etag is not None and file.etag is not None:
            return self.etag == file.etag
        if self.mtime_ns is not None and self.mtime_ns == file.mtime_ns:
            return True
        known = (self.etag, file.etag, self.mtime_ns, file.mtime_ns, self.inode, file.inode)
        if all(value is None for value in known):
            return True  # the filesystem reports sizes alone
        is_other = None not in (self.birth_ns, file.birth_ns) and self.birth_ns != file.birth_ns
        return self.inode is not None and self.inode == file.inode and not is_other


@dataclass(frozen=True)
class CommitRecord:
    """One commit; see also ``HistoryEntry``."""

    number: int
    """Commits are numbered from 1, without gaps."""

    identifier: str
    """Distinguishes the records of two writers that want the same number."""

    time: str
    facts: CommitFacts
    seconds: float
    """How long the work took until then."""

    publish: Published
    """How it was meant to be published."""

    staging: str
    adds: tuple[Add, ...]
    removes: tuple[Remove, ...]
    transactions: Mapping[str, RecordedTransaction] | None = None
    """By application: what is committed, this commit included. None if the record does not say,
    as those of older writers: what earlier records say still holds then."""

    tombstones: Tombstones | None = None
    """The deleted keys that are remembered after this commit. None if the record does not say."""

    @property
    def transaction(self) -> Transaction | None:
        """The transaction of this very commit."""
        for application, recorded in (self.transactions or {}).items():
            if recorded.commit == self.number:
                return Transaction(application, recorded.version, recorded.run)
        return None

    @property
    def changes_tombstones(self) -> bool:
        """Whether this very commit changed them."""
        return self.tombstones is not None and self.tombstones.commit == self.number

    @property
    def added(self) -> tuple[str, ...]:
        """The paths of the new files below the root."""
        return tuple(add.final for add in self.adds)

    @property
    def removed(self) -> tuple[str, ...]:
        """The paths of the replaced files below the root."""
        return tuple(remove.path for remove in self.removes)


@dataclass(frozen=True)
class Completion:
    """What is known once a commit is complete; the fields are those of ``HistoryEntry``."""

    published: Published
    seconds: float
    recovered: bool = False
    abandoned: bool = False
    notes: tuple[str, ...] = ()
    time: str = ""
    """When it was marked complete; empty until then."""


def timestamp() -> str:
    """Return the current time in UTC, as records write it."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def list_records(storage: Storage) -> RecordNames:
    """List the records of all commits, by name."""
    return records_among(storage, storage.backend.names(storage.control.commits))


def records_among(storage: Storage, listed: list[str]) -> RecordNames:
    """Sort the names of records as they were just listed."""
    names = RecordNames.of(listed)
    # A listing takes its time. Files of a record that is folded meanwhile go one after the other,
    # its mark last: so a record without a mark is pending only if it is still there.
    gone = {
        number
        for number in names.pending
        if number != names.last and storage.backend.stat(storage.control.record(number)) is None
    }
    return names.without(gone) if gone else names


def pending_numbers(storage: Storage) -> tuple[int, list[int]]:
    """Return the number of the last commit, 0 if there is none, and those not complete."""
    names = list_records(storage)
    return names.last, names.pending


def write_record(storage: Storage, record: CommitRecord) -> None:
    """Create a commit record: the commit point. FileExistsError if the number is taken."""
    content = {
        "number": record.number,
        "id": record.identifier,
        "time": record.time,
        "engine": record.facts.engine,
        "strategy": record.facts.strategy,
        "key_columns": list(record.facts.key_columns),
        "counts": dict(record.facts.counts),
        "started": record.facts.started,
        "seconds": record.seconds,
        "publish": record.publish,
        "staging": record.staging,
        "adds": [asdict(add) for add in record.adds],
        "removes": [asdict(remove) for remove in record.removes],
        "source_rows": record.facts.source_rows,
        "purge": record.facts.purge,
        "restores": record.facts.restores,
    }
    if record.facts.details is not None:
        content["details"] = dict(record.facts.details)
    if record.facts.schema is not None:
        content["schema"] = dict(record.facts.schema)
    if record.transactions is not None:
        known = record.transactions.items()
        content["transactions"] = {application: asdict(each) for application, each in known}
    if record.tombstones is not None:
        content["tombstones"] = asdict(record.tombstones)
    storage.backend.create(storage.control.record(record.number), encode_document(FORMAT, content))


def read_record(storage: Storage, number: int) -> CommitRecord:
    """Read a commit record; CorruptRecordError if it is damaged or from a newer version."""
    path = storage.control.record(number)
    try:
        data = storage.backend.read(path)
    except FileNotFoundError:
        folded = read_folded(storage, number)
        if folded is None:
            raise
        return folded[0]
    return _record_of(path, decode_document(path, data, FORMAT), number)


def _record_of(path: str, content: dict[str, Any], number: int | None = None) -> CommitRecord:
    try:
        record = _parse_record(content)
    except (KeyError, TypeError, ValueError) as error:  # also of a name that is not allowed
        raise CorruptRecordError.damaged(path, f"{type(error).__name__}: {error}") from error
    if number is not None and record.number != number:
        raise CorruptRecordError.damaged(path, f"it is the record of commit {record.number}")
    return record


def mark_complete(storage: Storage, number: int, completion: Completion) -> bool:
    """Mark a commit complete; False if another writer has already done so."""
    data = encode_document(DONE_FORMAT, {**asdict(completion), "time": timestamp()})
    path = storage.control.done(number)
    if storage.capabilities.kernel_lock:
        storage.backend.overwrite(path, data)
        return True
    try:
        storage.backend.create(path, data)
    except FileExistsError:
        return False
    return True


def read_completion(storage: Storage, number: int) -> Completion | None:
    """Read the mark of a complete commit; None if it is not complete."""
    path = storage.control.done(number)
    try:
        data = storage.backend.read(path)
    except FileNotFoundError:
        folded = read_folded(storage, number)
        return None if folded is None else folded[1]
    return _completion_of(path, decode_document(path, data, DONE_FORMAT))


def _completion_of(path: str, content: dict[str, Any]) -> Completion:
    try:
        return Completion(
            content["published"],
            float(content["seconds"]),
            bool(content["recovered"]),
            bool(content["abandoned"]),
            tuple(content["notes"]),
            str(content["time"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptRecordError.damaged(path, f"{type(error).__name__}: {error}") from error


def read_folded(storage: Storage, number: int) -> tuple[CommitRecord, Completion] | None:
    """Read the record of a commit from the segment that holds it; None if none does."""
    for _ in range(_MAX_LISTINGS):
        segment = list_records(storage).segment_of(number)
        if segment is None:
            return None
        try:
            found = read_segment(storage, segment)
        except FileNotFoundError:  # joined with others meanwhile
            continue
        return next((pair for pair in found if pair[0].number == number), None)
    raise _folded_too_fast(storage)


def read_segment(storage: Storage, segment: Segment) -> list[tuple[CommitRecord, Completion]]:
    """Read the records that a segment holds, the oldest first."""
    path = storage.control.at("commits", segment.name)
    pairs = _segment_documents(path, storage.backend.read(path))
    numbers = range(segment.first, segment.last + 1)
    try:
        return [
            (
                _record_of(path, check_document(path, record, FORMAT), number),
                _completion_of(path, check_document(path, done, DONE_FORMAT)),
            )
            for number, (record, done) in zip(numbers, pairs, strict=True)
        ]
    except ValueError as error:
        raise CorruptRecordError.damaged(path, f"it has not {len(numbers)} records") from error


def segment_numbers(path: str, data: bytes) -> list[int]:
    """Return the commits that a segment holds; CorruptRecordError if it is damaged."""
    return [int(record["number"]) for record, _ in _segment_documents(path, data)]


def _segment_documents(path: str, data: bytes) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    try:
        pairs = [json.loads(line) for line in gzip.decompress(data).splitlines()]
        return [(pair["record"], pair["done"]) for pair in pairs]
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise CorruptRecordError.damaged(path, f"{type(error).__name__}: {error}") from error


def read_records(
    storage: Storage, after: int = 0, damaged: list[CorruptRecordError] | None = None
) -> list[tuple[CommitRecord, Completion | None]]:
    """Read all records after a number, the oldest first, each with its mark if it is complete.

    ``damaged`` gets an error for each record that cannot be understood; without it, the first one
    is raised.
    """
    for _ in range(_MAX_LISTINGS):
        names = list_records(storage)
        if damaged is not None:
            damaged.clear()
        try:
            found = list(_read_listed(storage, names, after, damaged))
        except FileNotFoundError:  # folded meanwhile
            if list_records(storage) == names:
                raise
            continue
        if not names.has_gap_after(after) or names == list_records(storage):
            return found
    raise _folded_too_fast(storage)


def _read_listed(
    storage: Storage, names: RecordNames, after: int, damaged: list[CorruptRecordError] | None
) -> Iterator[tuple[CommitRecord, Completion | None]]:
    for segment in names.segments:
        try:
            found = read_segment(storage, segment) if segment.last > after else []
        except CorruptRecordError as error:
            if damaged is None:
                raise
            damaged.append(error)
            continue
        yield from (pair for pair in found if pair[0].number > after)
    for number in names.recorded:
        if number > after:
            try:
                completion = read_completion(storage, number) if number in names.done else None
                yield read_record(storage, number), completion
            except CorruptRecordError as error:
                if damaged is None:
                    raise
                damaged.append(error)


def _folded_too_fast(storage: Storage) -> ConcurrentModificationError:
    return ConcurrentModificationError(
        f"records of {storage.root.display_path!r} are folded by others faster than they can be "
        "read.\nHint: repeat the call."
    )


def seconds_since(started: float | None) -> float:
    """Return the seconds since a moment, never negative, whatever the clock did."""
    return 0.0 if started is None else round(max(0.0, time.time() - started), 6)


# Which transactions are committed: the newest record that has the map answers.


def find_skipped(
    storage: Storage,
    known: Mapping[str, RecordedTransaction] | None,
    transaction: Transaction | None,
) -> Skipped | None:
    """Return why a transaction is to be skipped, by what is on record."""
    if known is None or transaction is None:
        return None
    recorded = known.get(transaction.application)
    if recorded is None or transaction.version > recorded.version:
        return None
    _check_not_reset(transaction, recorded)
    if transaction.version < recorded.version:
        return Skipped(transaction, recorded)
    try:
        return Skipped(transaction, recorded, read_record(storage, recorded.commit).facts)
    except (FileNotFoundError, CorruptRecordError):
        return Skipped(transaction, recorded)


def _check_not_reset(transaction: Transaction, recorded: RecordedTransaction) -> None:
    """Refuse a version of a new counter, whose batch the record does not speak of."""
    if transaction.run is not None:
        is_reset = transaction.run != recorded.run
    else:
        is_first = transaction.version <= _MAX_FIRST_VERSION
        is_reset = is_first and recorded.version - transaction.version >= _MIN_RESET_DISTANCE
    if is_reset:
        raise TransactionResetError.found(
            transaction.application,
            transaction.version,
            transaction.run,
            (recorded.version, recorded.commit, recorded.run),
        )


class RecordedState:
    """What the records up to a commit say that outlives them; each record is read once.

    A commit that asks for neither transactions nor tombstones looks at the last record only. If
    that does not say it, the commit carries nothing on, and whoever asks next looks past both. So
    old callers pay for one read, however many records of older writers there are.
    """

    def __init__(self, storage: Storage, number: int) -> None:
        self._storage = storage
        self._number = number
        self._read = cache(partial(read_record, storage))

    def last(self) -> CommitRecord | None:
        """Return the last record; None if there is none, or if it cannot be understood."""
        try:
            return self._read(self._number) if self._number else None
        except (FileNotFoundError, CorruptRecordError):
            return None

    def transactions(self, *, ask: bool) -> dict[str, RecordedTransaction] | None:
        """Return the last version of each application that is committed.

        None only if the caller does not ``ask``, and the last record does not say it.
        """
        seconds = self._storage.transaction_limits.seconds if ask else None
        record = self._newest(
            lambda record: record.transactions is not None and not self._is_void(record),
            seconds,
        )
        if record is not None:
            return dict(record.transactions or {})
        return {} if ask or not self._number else None

    def tombstones(self, seconds: float | None = None) -> Tombstones | None:
        """Return the deleted keys that are remembered.

        ``seconds`` is how long the caller wants to keep them; without it, it does not ask. None
        only then, and if the last record does not say it.
        """
        record = self._newest(
            lambda record: record.tombstones is not None and not self._is_void(record), seconds
        )
        if record is not None:
            return record.tombstones
        return Tombstones() if seconds is not None or not self._number else None

    def _newest(
        self, says: Callable[[CommitRecord], bool], seconds: float | None
    ) -> CommitRecord | None:
        """Return the newest record that says it, the last one only if nobody asks."""
        if seconds is None:
            record = self.last()
            return record if record is not None and says(record) else None  # who asks reports it
        # What older records say would be dropped anyway.
        oldest = time.time() - seconds
        for record in self._newest_first():
            if record.number > self._number:
                continue
            if says(record):
                return record
            if _seconds_of(record.time) < oldest:
                break
        return None

    def _newest_first(self) -> Iterator[CommitRecord]:
        names = list_records(self._storage)
        for number in reversed(names.recorded):
            if number <= self._number:
                yield self._read(number)
        for segment in reversed(names.segments):
            try:
                found = read_segment(self._storage, segment)
            except FileNotFoundError:  # joined with others meanwhile
                pairs = read_records(self._storage, segment.first - 1)
                found = [(record, done) for record, done in pairs if done is not None]
            yield from (record for record, _ in reversed(found) if segment.covers(record.number))

    def _is_void(self, record: CommitRecord) -> bool:
        """Whether a record has a transaction or tombstones of its own, but was abandoned."""
        if record.transaction is None and not record.changes_tombstones:
            return False
        completion = read_completion(self._storage, record.number)
        return completion is not None and completion.abandoned


def with_transaction(
    storage: Storage,
    known: Mapping[str, RecordedTransaction] | None,
    transaction: Transaction | None,
    recorded: tuple[str, int],
) -> dict[str, RecordedTransaction] | None:
    """Return what the next record says: what is known and young enough, and its own transaction.

    Args:
        storage: The dataset.
        known: What the records before it say.
        transaction: Its own transaction, if it has one.
        recorded: Its time and number.

    Raises:
        InvalidArgumentError: If there are too many applications; none is dropped for another.
    """
    if known is None:
        return None
    limits = storage.transaction_limits
    moment, number = recorded
    oldest = _seconds_of(moment) - limits.seconds
    kept = {name: each for name, each in known.items() if _seconds_of(each.time) >= oldest}
    if transaction is None:
        return kept
    name = transaction.application
    if name not in kept and len(kept) >= limits.applications:
        raise InvalidArgumentError(
            f"{storage.root.display_path!r} has transactions of {len(kept):,} applications in "
            f"{limits.seconds / 86400:g} days, and {name!r} would be one more than it can keep. "
            "Nothing was changed.\nHint: an application is a feed, and its runs share the name; "
            "count batches with the version."
        )
    return {**kept, name: RecordedTransaction(transaction.version, moment, number, transaction.run)}


def _seconds_of(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


# How records are written and read


def _parse_record(content: dict[str, Any]) -> CommitRecord:
    facts = CommitFacts(
        str(content["engine"]),
        str(content["strategy"]),
        tuple(content["key_columns"]),
        dict(content["counts"]),
        content["started"],
        content.get("source_rows"),
        bool(content.get("purge", False)),
        _parse_schema(content.get("schema")),
        content.get("restores"),
        details if isinstance(details := content.get("details"), dict) else None,
    )
    if content["publish"] not in ("exchange", "plain"):
        raise ValueError(f"publish is {content['publish']!r}")
    record = CommitRecord(
        int(content["number"]),
        str(content["id"]),
        str(content["time"]),
        facts,
        float(content["seconds"]),
        content["publish"],
        content["staging"],
        tuple(Add(**_known_fields(Add, add)) for add in content["adds"]),
        tuple(Remove(**_known_fields(Remove, remove)) for remove in content["removes"]),
        _parse_transactions(content.get("transactions")),
        _parse_tombstones(content.get("tombstones")),
    )
    # A record that was tampered with must not reach outside of staging and root.
    names = [file.name for file in record.tombstones.files] if record.tombstones else []
    for name in (record.staging, *(add.staged for add in record.adds), *names):
        check_basename(name)
    for path in record.added + record.removed:
        check_relative(path)
    return record


def _parse_schema(content: Any) -> dict[str, Any] | None:
    if content is None:
        return None
    return {"columns": list(content["columns"]), "changes": [str(c) for c in content["changes"]]}


def _parse_transactions(content: Any) -> dict[str, RecordedTransaction] | None:
    if content is None:
        return None
    return {
        str(application): RecordedTransaction(
            int(each["version"]), str(each["time"]), int(each["commit"]), each["run"]
        )
        for application, each in dict(content).items()
    }


def _parse_tombstones(content: Any) -> Tombstones | None:
    if content is None:
        return None
    files = (_known_fields(TombstoneFile, file) for file in content["files"])
    return Tombstones(
        tuple(TombstoneFile(**file) for file in files),
        float(content["seconds"]),
        int(content["commit"]),
    )


def _known_fields(kind: type, content: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that this version knows: a later one may have added others."""
    return {name: content[name] for name in _field_names(kind) if name in content}


@cache
def _field_names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def encode_document(kind: str, content: dict[str, Any], *, indent: int | None = 2) -> bytes:
    """Encode a versioned JSON document with a checksum over its content."""
    document = {"format": kind, "version": VERSION, **content}
    document["checksum"] = checksum_of(document)
    return (json.dumps(document, indent=indent, ensure_ascii=False) + "\n").encode()


def decode_document(path: str, data: bytes, kind: str) -> dict[str, Any]:
    """Decode such a document; CorruptRecordError if it is damaged or from a newer version."""
    try:
        document: Any = json.loads(data)
    except ValueError as error:  # also bytes that are not text
        raise CorruptRecordError.damaged(path, f"it is not JSON ({error})") from error
    return check_document(path, document, kind)


def check_document(path: str, document: Any, kind: str) -> dict[str, Any]:
    """Return a document without its checksum, which must fit its content."""
    if not isinstance(document, dict) or document.get("format") != kind:
        raise CorruptRecordError.damaged(path, f"it is not a {kind} document")
    version = document.get("version")
    if isinstance(version, int) and version > VERSION:
        raise CorruptRecordError.newer(path, version, VERSION)
    expected = document.pop("checksum", None)
    if version != VERSION or expected != checksum_of(document):
        raise CorruptRecordError.damaged(path, "its checksum does not fit its content")
    return document


def checksum_of(document: dict[str, Any]) -> str:
    """Return the checksum of a document that has none yet."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
