"""Transactions: which batches of which applications are committed, so that each is applied once.

Every record carries the last version of each application, so the newest record answers. Records
without it are looked past: an older version of this library wrote them, or they were abandoned.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from fsspeckit.errors import CorruptRecordError, InvalidArgumentError, TransactionResetError
from fsspeckit.storage.commit.log import (
    RecordedTransaction,
    numbers,
    pending_numbers,
    read_completion,
    read_record,
)
from fsspeckit.storage.commit.recovery import take_snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fsspeckit.storage.commit.log import CommitFacts, CommitRecord, Transaction
    from fsspeckit.storage.storage import Storage

_MAX_FIRST_VERSION = 1
"""Counters start with 0 or 1."""

_MIN_RESET_DISTANCE = 10
"""What a job repeats is its last batch, so a first version this far back is a new counter."""


@dataclass(frozen=True)
class Skipped:
    """A transaction that is not applied, because it is committed already."""

    transaction: Transaction
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


def find_transaction(storage: Storage, transaction: Transaction | None) -> Skipped | None:
    """Return why a transaction is to be skipped; None if it is to be applied.

    A commit that was interrupted is completed first: then it counts.

    Raises:
        TransactionResetError: If the versions of its application have started again.
        CorruptRecordError: If a record cannot be understood that may say it.
    """
    if transaction is None:
        return None
    number, pending = pending_numbers(storage)
    if pending:
        number = take_snapshot(storage).number
    known = known_transactions(storage, number, transaction)
    return find_skipped(storage, known, transaction)


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


def known_transactions(
    storage: Storage, number: int, transaction: Transaction | None
) -> dict[str, RecordedTransaction] | None:
    """Return the last version of each application that is committed up to this commit.

    None only if there is no transaction to check, and the last record does not say it. The next
    transaction looks past that record and the one to be written. So a commit without a transaction
    costs one read, however many records of older writers there are.
    """
    if transaction is not None:
        return _look_back(storage, number)
    if not number:
        return {}
    try:
        record = read_record(storage, number)
        is_known = record.transactions is not None and not _is_abandoned(storage, record)
    except (FileNotFoundError, CorruptRecordError):
        return None  # the next transaction reports it
    return dict(record.transactions or {}) if is_known else None


def _look_back(storage: Storage, number: int) -> dict[str, RecordedTransaction]:
    """Return what the newest record says that says it.

    Records older than the retention are not read: what they say would be dropped anyway.
    """
    oldest = time.time() - storage.transaction_limits.seconds
    for each in reversed(numbers(storage)[0]):
        if each > number:
            continue
        record = read_record(storage, each)
        if record.transactions is not None and not _is_abandoned(storage, record):
            return dict(record.transactions)
        if _seconds_of(record.time) < oldest:
            break
    return {}


def _is_abandoned(storage: Storage, record: CommitRecord) -> bool:
    """Whether a record says that its own transaction is committed, but the commit was abandoned."""
    if record.transaction is None:
        return False
    completion = read_completion(storage, record.number)
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
