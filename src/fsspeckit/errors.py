"""The errors of this library, as one short tree.

Every class also inherits the builtin that a caller expects, so ``except ValueError`` works.
Messages say what was wrong, the value received, what would be right, and end in ``Hint:`` where
there is something to do. Fields say what programs need, so that they need not parse messages.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "CommitIncompleteError",
    "CommitPendingError",
    "CommitUnknownError",
    "ConcurrentModificationError",
    "CorruptRecordError",
    "DuplicateKeyError",
    "DuplicateRowsError",
    "EngineNotInstalledError",
    "ExpectationError",
    "FsspeckitError",
    "InvalidArgumentError",
    "LibraryNotInstalledError",
    "LockTimeoutError",
    "LostFileError",
    "NullKeyError",
    "PartitionMoveError",
    "RewriteLimitError",
    "SchemaMismatchError",
    "StalePlanError",
    "TransactionResetError",
    "UnreadableFileError",
    "UnsupportedLayoutError",
]

_MAX_VALUE_CHARACTERS = 80
"""How much of a value of a row a message shows."""


@dataclass(frozen=True)
class Argument:
    """An argument that a message names; ``str`` returns it as the message spells it."""

    name: str
    values: tuple[object, ...] = ()
    """Values that the message proposes; ``...`` stands for a list of columns."""

    def __str__(self) -> str:
        if not self.values:
            return self.name
        return f"{self.name}={' or '.join(map(_python_literal, self.values))}"


@dataclass(frozen=True)
class Call:
    """A function of the library that a message proposes to call."""

    name: str

    def __str__(self) -> str:
        return f"{self.name}()"


def _python_literal(value: object) -> str:
    if value is ...:
        return "[...]"
    return str(value) if isinstance(value, bool) else json.dumps(value, ensure_ascii=False)


class FsspeckitError(Exception):
    """The base of every error raised on purpose."""

    _mentions: tuple[Argument | Call, ...] = ()

    @property
    def mentions(self) -> tuple[Argument | Call, ...]:
        """Arguments and calls in the message, for which the command line prints its own terms."""
        return self._mentions


def mark_committed(interrupt: BaseException, number: int) -> None:
    """Note on an interrupt that commit ``number`` was recorded before it."""
    interrupt.committed = number  # type: ignore[attr-defined]
    interrupt.add_note(f"commit {number} is committed; recovery will complete it.")


def mark_undecided(interrupt: BaseException, number: int) -> None:
    """Note on an interrupt that commit ``number`` may be recorded, or be recorded later."""
    interrupt.undecided = number  # type: ignore[attr-defined]
    interrupt.add_note(
        f"nobody knows whether commit {number} is recorded; call recover(), then history() to see "
        "whether it is there."
    )


class InvalidArgumentError(FsspeckitError, ValueError):
    """An argument has a value that is never right, whatever the data."""

    argument: str | None = None
    """The name of the argument."""

    def __init__(
        self,
        message: str = "",
        *,
        argument: str | None = None,
        mentions: tuple[Argument | Call, ...] = (),
    ) -> None:
        super().__init__(message)
        self.argument = argument
        self._mentions = (*mentions, Argument(argument)) if argument else mentions

    @classmethod
    def choice(cls, name: str, value: object, allowed: Iterable[str]) -> InvalidArgumentError:
        """Return the error for a value that is not one of those allowed."""
        choices = ", ".join(map(repr, allowed))
        return cls(f"{name} must be one of {choices}, got {value!r}.", argument=name)

    @classmethod
    def flag(cls, name: str, value: object) -> InvalidArgumentError:
        """Return the error for a value that is neither True nor False, like "no" and None."""
        return cls(f"{name} must be True or False, got {value!r}.", argument=name)

    @classmethod
    def missing_columns(
        cls, argument: str, missing: Sequence[str], available: Sequence[str]
    ) -> InvalidArgumentError:
        """Return the error for columns that do not exist."""
        return cls(
            f"{argument} {list(missing)!r} not found. Available columns: {list(available)!r}.\n"
            "Hint: column names are compared exactly, upper and lower case included.",
            argument=argument,
        )


class NullKeyError(FsspeckitError, ValueError):
    """A key column of the source holds NULL and ``null_keys`` is ``"error"``."""

    _mentions = (Argument("null_keys", ("match",)),)

    @classmethod
    def found(cls, counts: dict[str, int]) -> NullKeyError:
        """Return the error for key columns with their numbers of NULL values."""
        columns = ", ".join(f"{name!r} has {count:,}" for name, count in counts.items())
        return cls(
            f"NULL values in the key columns of the source: {columns}.\n"
            'Hint: drop those rows, or pass null_keys="match" to make NULL equal NULL.'
        )

    @classmethod
    def of_changes(cls, counts: dict[str, int]) -> NullKeyError:
        """Return the error for the keys of a change feed, which are never NULL."""
        columns = ", ".join(f"{name!r} has {count:,}" for name, count in counts.items())
        return cls(
            f"NULL values in the keys of the changes: {columns}.\nHint: leave those changes out."
        )


class DuplicateKeyError(FsspeckitError, ValueError):
    """The source holds a key more than once and ``duplicate_keys`` is ``"error"``."""

    _mentions = (Argument("duplicate_keys", ("first", "last")), Argument("order_by", (...,)))

    @classmethod
    def found(
        cls, key_columns: Sequence[str], count: int, samples: Sequence[tuple[object, ...]]
    ) -> DuplicateKeyError:
        """Return the error for keys that occur more than once, with samples."""
        return cls(
            f"{count:,} key(s) of {list(key_columns)!r} occur more than once in the source, "
            f"for example: {_keys(samples)}.\n"
            'Hint: pass duplicate_keys="first" or "last", or order_by=[...] to keep the greatest.'
        )


class DuplicateRowsError(DuplicateKeyError):
    """The target holds rows with one key that differ, and nothing says which one is to stay."""

    _mentions = (Argument("order_by", (...,)), Argument("keep", ("first", "last")))

    @classmethod
    def found(
        cls, key_columns: Sequence[str], count: int, samples: Sequence[tuple[object, ...]]
    ) -> DuplicateRowsError:
        """Return the error for rows whose key another row has, with samples of keys."""
        return cls(
            f"{count:,} row(s) have the same {list(key_columns)!r} as another row and other "
            f"values, for example: {_keys(samples)}.\n"
            'Hint: pass order_by=[...] to keep the greatest, or keep="first" or "last" to keep one '
            "by its place in the dataset."
        )


class SchemaMismatchError(FsspeckitError, ValueError):
    """Source and target do not fit together: a column is missing, extra, or of another kind."""

    _mentions = (
        *(Argument("stored_as_scd_type", (kind,)) for kind in (1, 2)),
        *(Argument("schema_changes", (change,)) for change in ("add", "widen")),
        Call("evolve"),
    )


class PartitionMoveError(FsspeckitError, ValueError):
    """The source would move an existing key to another partition."""

    _mentions = (Argument("partition_change", ("move",)),)

    @classmethod
    def found(
        cls, partition_columns: Sequence[str], count: int, samples: Sequence[tuple[object, ...]]
    ) -> PartitionMoveError:
        """Return the error for keys that would move, with samples."""
        return cls(
            "partition columns cannot change for existing keys: "
            f"{count:,} key(s) have another value of {list(partition_columns)!r} in the target, "
            f"for example: {_keys(samples)}.\n"
            'Hint: pass partition_change="move" to move these rows, or make the partition columns '
            "part of the key if the same key may live in several partitions."
        )


class RewriteLimitError(FsspeckitError, ValueError):
    """A call would rewrite more of the target than its caller allows; nothing was changed."""

    _mentions = (Argument("max_rewrite_fraction"), Argument("max_rewrite_bytes"))

    @classmethod
    def exceeded(
        cls, name: str, limit: str, needed: str, files: int, strategy: str = "upsert"
    ) -> RewriteLimitError:
        """Return the error that names the limit, and what the call may need."""
        what, fewer = {
            "delete": ("deletion", "delete fewer rows at a time"),
            "apply_changes": ("change feed", "apply fewer changes at a time"),
            "append": ("append", "append rows that have the columns of the dataset"),
            "deduplicate_target": (
                "deduplication",
                "deduplicate when there is time for all of these files",
            ),
            "evolve": ("evolution", "evolve the dataset when there is time for all of its files"),
        }.get(strategy, ("merge", "merge fewer keys at a time"))
        look = "" if strategy == "append" else "look at the plan; then "
        return cls(
            f"the {what} may rewrite {needed} in {files:,} file(s), but {name} allows {limit}. "
            "Nothing was changed.\n"
            f"Hint: {look}raise {name}, or {fewer}."
        )


class ExpectationError(FsspeckitError, ValueError):
    """Rows of a batch violate an expectation that must not be violated; nothing was changed."""

    counts: Mapping[str, int] = {}
    """By the name of the expectation: how many rows violate it."""

    samples: tuple[Mapping[str, object], ...] = ()
    """Some of these rows."""

    _mentions = (Argument("on_violation", ("quarantine",)),)

    @classmethod
    def violated(
        cls, failed: Mapping[str, tuple[str, int]], samples: Sequence[Mapping[str, object]]
    ) -> ExpectationError:
        """Return the error for expectations by name, with their predicates and numbers of rows."""
        violations = "; ".join(
            f"{count:,} row(s) violate {name!r} ({predicate})"
            for name, (predicate, count) in failed.items()
        )
        examples = ", ".join(map(_row, samples))
        error = cls(
            f"the batch is refused: {violations}"
            f"{', for example: ' if examples else ''}{examples}. Nothing was changed.\n"
            'Hint: correct the rows, or choose another action than "fail": "quarantine" sets them '
            'apart, "drop" leaves them out, "warn" only counts them.'
        )
        error.counts = {name: count for name, (_, count) in failed.items()}
        error.samples = tuple(samples)
        return error


class TransactionResetError(FsspeckitError, ValueError):
    """The versions of an application have started again; nothing was changed.

    To skip such a batch as one that is committed would lose its rows.
    """

    application = ""
    """The application."""

    version = 0
    """The version that was given."""

    recorded_version = 0
    """The last version on record."""

    commit = 0
    """The number of the commit that recorded it."""

    _mentions = (Call("history"),)

    @classmethod
    def found(
        cls,
        application: str,
        version: int,
        run: str | None,
        recorded: tuple[int, int, str | None],
    ) -> TransactionResetError:
        """Return the error for a version and a run; ``recorded`` is version, commit and run."""
        last, commit, recorded_run = recorded
        mine, theirs = _of_run(run), _of_run(recorded_run)
        error = cls(
            f"version {version:,}{mine} of the application {application!r} is not new: commit "
            f"{commit} has recorded version {last:,}{theirs}. The versions seem to have started "
            "again, as they do with a new checkpoint, so the batch may never have been applied. "
            "Nothing was changed.\n"
            "Hint: give the new run an application name of its own, or go on with version "
            f"{last + 1:,}. If history() shows that this very batch is applied, leave it out."
        )
        error.application, error.version = application, version
        error.recorded_version, error.commit = last, commit
        return error


def _of_run(run: str | None) -> str:
    return "" if run is None else f" of run {run!r}"


class UnsupportedLayoutError(FsspeckitError, ValueError):
    """The directory holds something that a merge of plain Parquet files would corrupt."""


class UnreadableFileError(FsspeckitError, ValueError):
    """A data file is not readable as Parquet."""


class ConcurrentModificationError(FsspeckitError, RuntimeError):
    """Another writer changed the dataset meanwhile; this call changed nothing."""


class StalePlanError(ConcurrentModificationError):
    """The dataset is no longer as it was when a plan was made; nothing was changed."""

    @classmethod
    def changed(cls, path: str, difference: object) -> StalePlanError:
        """Return the error for a dataset that changed after the plan was made."""
        return cls(
            f"the plan cannot be executed: {path!r} has changed since it was made: "
            f"{difference or 'another commit was first'}. Nothing was changed by this call.\n"
            "Hint: plan again and look at the new plan."
        )

    @classmethod
    def decided_otherwise(cls, path: str, files: Sequence[str]) -> StalePlanError:
        """Return the error for files that a merge would now decide differently about."""
        return cls(
            f"the plan cannot be executed: a merge into {path!r} would now decide otherwise about "
            f"{list_names(files)}. Nothing was changed by this call.\n"
            "Hint: plan again and look at the new plan."
        )


class LockTimeoutError(ConcurrentModificationError, TimeoutError):
    """Another writer held the lock for too long; nothing was changed by this call."""

    @classmethod
    def waited(cls, path: str, seconds: float, holder: str) -> LockTimeoutError:
        """Return the error that names the holder of the lock."""
        return cls(
            f"another writer has held the lock {path!r} for {seconds:g} s: {holder}.\n"
            "Hint: wait for it, or end that process: the lock goes with it. Deleting the file "
            "would not free it."
        )


class CommitPendingError(FsspeckitError, RuntimeError):
    """The change is committed but not completely visible yet; recovery will complete it."""

    _mentions = (Call("recover"), Call("history"), Argument("abandon", (True,)))

    @classmethod
    def interrupted(cls, number: int, path: str, cause: BaseException) -> CommitPendingError:
        """Return the error for a commit whose publication failed."""
        return cls(
            f"commit {number} of {path!r} is committed, but publishing it was interrupted: "
            f"{str(cause).partition(chr(10))[0].rstrip('.')}.\n"
            "Hint: do not repeat the call. The next writer completes it, or call recover()."
        )


class CommitIncompleteError(CommitPendingError):
    """The change is committed, but the files of the dataset are not those that it should leave."""

    @classmethod
    def found(
        cls, number: int, path: str, left: Sequence[str], missing: Sequence[str]
    ) -> CommitIncompleteError:
        """Return the error that names replaced files still there, and new files not there."""
        kinds = (("replaced but still there", left), ("added but not there", missing))
        differences = "; ".join(f"{kind}: {list_names(files)}" for kind, files in kinds if files)
        return cls(
            f"commit {number} of {path!r} is recorded, but the dataset does not hold what it "
            f"should: {differences}. Other programs may read rows twice, or miss them.\n"
            "Hint: do not repeat the call. Find out what keeps those files from being changed, "
            "then call recover(); or call recover() with abandon=True to go back to the state "
            "before that commit."
        )


class CommitUnknownError(CommitPendingError):
    """Nobody knows whether the change is committed; nothing was deleted."""

    @classmethod
    def unanswered(cls, number: int, path: str, cause: BaseException) -> CommitUnknownError:
        """Return the error for a record that may or may not exist."""
        return cls(
            f"the filesystem did not tell whether commit {number} of {path!r} was recorded: "
            f"{cause}.\n"
            "Hint: call recover(), then history() to see whether it is there."
        )


class LostFileError(FsspeckitError, RuntimeError):
    """A committed file is neither staged nor published; nothing was removed."""

    _mentions = (Call("recover"), Argument("abandon", (True,)))

    @classmethod
    def missing(cls, number: int, relative: str) -> LostFileError:
        """Return the error that names the file and the commit that added it."""
        return cls(
            f"commit {number} cannot be completed: {relative!r} is neither in its staging "
            "directory nor in the dataset. Nothing was removed by this call.\n"
            "Hint: restore the file under that name in the dataset, then call recover(); or call "
            "recover() with abandon=True to go back to the state before that commit."
        )

    @classmethod
    def cannot_go_back(cls, number: int, relative: str) -> LostFileError:
        """Return the error for a commit that cannot be abandoned without a file."""
        return cls(
            f"commit {number} cannot be abandoned: {relative!r}, which it replaced, is removed "
            "and not in the trash. Nothing was changed.\n"
            "Hint: call recover() without abandon to complete the commit; its error names what is "
            "in the way."
        )


class NotRestorableError(FsspeckitError, RuntimeError):
    """An earlier state of a dataset cannot be brought back, or read; nothing was changed."""

    missing: tuple[str, ...] = ()
    """Files of that state that are nowhere, by their path below the dataset."""

    changed: tuple[str, ...] = ()
    """Files that other programs have changed or deleted since."""

    @classmethod
    def found(
        cls,
        path: str,
        number: int,
        missing: Sequence[str],
        changed: Sequence[str],
        *,
        keeps_trash: bool,
        purged: bool,
    ) -> NotRestorableError:
        """Return the error that names the files."""
        kinds = (
            ("not there any more", missing),
            ("changed or deleted by another program since", changed),
        )
        files = "; ".join(f"{kind}: {list_names(names)}" for kind, names in kinds if names)
        hint = (
            "find out who has changed them; what they hold now would be lost."
            if not missing
            else "this filesystem keeps no replaced files; if the bucket keeps versions of "
            "objects, bring them back from there."
            if not keeps_trash
            else "a purge has emptied the trash since, as it should."
            if purged
            else "the trash keeps replaced files as long as the retention of the writers says; "
            "set a longer one to keep more from now on."
        )
        error = cls(
            f"files of the state of {path!r} after commit {number} are {files}. Nothing was "
            f"changed.\nHint: {hint}"
        )
        error.missing, error.changed = tuple(missing), tuple(changed)
        return error


class CorruptRecordError(FsspeckitError, RuntimeError):
    """A commit record cannot be understood: damaged, truncated, or from a newer version."""

    _mentions = (Call("recover"), Argument("abandon", (True,)))

    is_newer = False
    """Whether a newer version of this library wrote it."""

    @classmethod
    def damaged(cls, path: str, reason: str) -> CorruptRecordError:
        """Return the error for a record that cannot be read."""
        return cls(
            f"{path!r} cannot be understood: {reason}. Nothing was changed.\n"
            "Hint: restore it from a backup. Without it nobody can tell whether a commit is "
            "complete. If there is no backup, call recover() with abandon=True, which sets the "
            "record aside and leaves every data file as it is."
        )

    @classmethod
    def of_tombstones(cls, path: str, reason: str) -> CorruptRecordError:
        """Return the error for deleted keys that cannot be read."""
        return cls(
            f"{path!r}, with the keys that a change feed has deleted, {reason}. Nothing was "
            "changed.\nHint: restore it from a backup. Without it a late change could bring a "
            "deleted row back. If none can be late, pass tombstone_retention=timedelta(0) once, "
            "which forgets all deleted keys."
        )

    @classmethod
    def newer(cls, path: str, version: object, known: int) -> CorruptRecordError:
        """Return the error for a record of a newer version of this library."""
        error = cls(
            f"{path!r} has version {version!r}, this version of fsspeckit knows {known}. "
            "Nothing was changed.\n"
            "Hint: use the version of fsspeckit that the other writers of this dataset use."
        )
        error.is_newer = True
        return error


class EngineNotInstalledError(FsspeckitError, ImportError):
    """The library of the requested engine is not installed."""

    _mentions = (Argument("engine", ("pyarrow",)),)

    @classmethod
    def missing(cls, engine: str, command: str) -> EngineNotInstalledError:
        """Return the error that names the command to install the engine."""
        return cls(f"the {engine!r} engine is not installed.\nHint: {command}")


class LibraryNotInstalledError(FsspeckitError, ImportError):
    """The library that reads a kind of URL is not installed."""

    @classmethod
    def missing(cls, path: str, library: str) -> LibraryNotInstalledError:
        """Return the error that names the library and how to install it."""
        return cls(
            f"path {path!r} needs the library {library}, which is not installed.\n"
            f"Hint: pip install {library}"
        )


def _keys(samples: Sequence[tuple[object, ...]]) -> str:
    return ", ".join(repr(key[0] if len(key) == 1 else key) for key in samples)


def _row(row: Mapping[str, object]) -> str:
    """Return a row as text, with long values cut."""
    return "{" + ", ".join(f"{name}: {_shortened(value)}" for name, value in row.items()) + "}"


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_VALUE_CHARACTERS else f"{text[:_MAX_VALUE_CHARACTERS]}..."


def list_names(files: Sequence[str]) -> str:
    """Return the first five names, and how many more there are."""
    more = f" and {len(files) - 5:,} more" if len(files) > 5 else ""
    return ", ".join(map(repr, files[:5])) + more
