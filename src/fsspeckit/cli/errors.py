"""Turn errors and Ctrl-C into one paragraph, a hint and an exit code.

Ctrl-C before a commit begins stops the command at once: staged files are removed and nothing was
changed. During a commit the first Ctrl-C waits until the commit is complete. The second one does
not, and the commit records show what has happened.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import traceback
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import typer

from fsspeckit.cli.config import hide
from fsspeckit.errors import (
    Argument,
    Call,
    CommitPendingError,
    FsspeckitError,
    UnreadableFileError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from fsspeckit.display import Progress
    from fsspeckit.storage import Storage

__all__ = [
    "FAILED",
    "PENDING",
    "USAGE",
    "Failure",
    "Interrupts",
    "advice_in_cli_terms",
    "explain",
    "is_caused_by_interrupt",
    "report",
    "report_on_interrupt",
    "to_cli_terms",
]

FAILED, USAGE, PENDING = 1, 2, 3

UsageError: Any = typer.BadParameter.__mro__[1]
"""What typer raises for a wrong command line; it has no public name in every version."""

_BUG = "this should not have happened; repeat the command with --verbose and report what it prints."
_HINTS: tuple[tuple[type[BaseException], str], ...] = (
    (FileNotFoundError, "check the path; a relative one begins at the working directory."),
    (NotADirectoryError, "name the directory of the dataset, not a file."),
    (IsADirectoryError, "name a file."),
    (PermissionError, "let this user read and write there, or choose another path."),
    (UnreadableFileError, "remove the file, or restore it; 'fsspeckit verify' says more."),
    (FsspeckitError, "see the --help of the command for what it accepts."),
    (ImportError, "install the library that is named, or use another kind of URL."),
    (OSError, "check that the disk or the store can be reached and has room, then try again."),
    (MemoryError, "use --engine spark or duckdb, which can process more data than fits in memory."),
)

_STORES = ("botocore", "aiobotocore", "aiohttp", "gcsfs", "adlfs", "azure", "google", "requests")
"""Packages of object stores, which raise errors of their own classes."""

_STORE_HINT = "check the URL and the storage options, and that the store can be reached."

_OPTIONS = {
    "apply_as_deletes": "--apply-as-deletes",
    "auto_compact": "--auto-compact",
    "bloom_columns": "--bloom",
    "column_list": "--column",
    "commit": "--commit",
    "control_dir": "--control-dir",
    "delete_when": "--delete-when",
    "duplicate_keys": "--duplicates",
    "except_column_list": "--except-column",
    "keep": "--keep",
    "key_columns": "--key",
    "keys": "--key",
    "lock_timeout": "--lock-timeout",
    "max_rewrite_bytes": "--max-rewrite-bytes",
    "max_rewrite_fraction": "--max-rewrite-fraction",
    "max_rows_per_file": "--max-rows-per-file",
    "min_files": "--min-files",
    "null_keys": "--nulls",
    "only_newer": "--only-newer",
    "order_by": "--order-by",
    "partition_by": "--partition-by",
    "partition_columns": "--partition-by",
    "partitions": "--partition",
    "storage_options": "--storage-option",
    "row_group_size": "--row-group-size",
    "sequence_by": "--sequence-by",
    "sort_by": "--sort-by",
    "stored_as_scd_type": "--scd-type",
    "target_file_bytes": "--target-size",
    "tombstone_retention": "--tombstone-retention",
    "transaction": "--transaction",
    "where": "--where",
}
"""The library's arguments and their options; other arguments keep their names in messages."""


@dataclass(frozen=True)
class Failure:
    """What the user reads about an error."""

    what: str
    hint: str
    code: int = FAILED


def explain(error: BaseException) -> Failure:
    """Return the message and the hint for an error, and the exit code."""
    if isinstance(error, UsageError):
        return _usage(error)
    message = to_cli_terms(_message(error), getattr(error, "mentions", ()))
    text, separator, hint = message.partition("Hint: ")
    if not separator:
        known = (hint for kind, hint in _HINTS if isinstance(error, kind))
        hint = _STORE_HINT if _is_of_a_store(error) else next(known, _BUG)
        if hint == _BUG:
            text = f"{type(error).__name__}: {text}"
    code = PENDING if isinstance(error, CommitPendingError) else FAILED
    return Failure(_sentence(text), _one_line(hint), code)


def _is_of_a_store(error: BaseException) -> bool:
    """Whether an error, or one of its causes, comes from the library of an object store.

    Missing files and denied access have hints of their own.
    """
    if isinstance(error, (FileNotFoundError, PermissionError)):
        return False
    current: BaseException | None = error
    while current is not None:
        if type(current).__module__.split(".")[0] in _STORES:
            return True
        current = current.__cause__
    return False


def _usage(error: Any) -> Failure:
    context = error.ctx
    command = "fsspeckit" if context is None else context.command_path
    text = error.format_message().replace("Value error, ", "")  # a prefix of pydantic
    missing = getattr(getattr(error, "param", None), "name", None)
    if type(error).__name__ == "MissingParameter" and missing == "sources":
        # The parser takes a single word for TARGET, and people mean SOURCE.
        text = "Missing argument 'SOURCE' or 'TARGET': name the rows first, then the dataset"
    return Failure(_sentence(text), f"see {command} --help", USAGE)


def _message(error: BaseException) -> str:
    """Return the text of an error; system errors name their files, but not their numbers."""
    if isinstance(error, OSError) and error.strerror and error.errno is not None:
        names = [repr(name) for name in (error.filename, error.filename2) if name is not None]
        return ": ".join([error.strerror, " and ".join(names)] if names else [error.strerror])
    return str(error) or type(error).__name__


def _one_line(text: str) -> str:
    return hide(" ".join(text.split()))


def _sentence(text: str) -> str:
    line = _one_line(text)
    return line if line.endswith((".", "!", "?")) else f"{line}."


def to_cli_terms(text: str, mentions: Iterable[Argument | Call]) -> str:
    """Replace what a message mentions by the options and commands of the command line."""
    for mention in sorted(mentions, key=lambda mention: -len(str(mention))):
        # Not inside of paths and longer names. Some messages write a bare argument as "name=".
        pattern = rf"(?<![\w./-]){re.escape(str(mention))}(?!\w)(?:=(?=[\s,]|$))?"
        text = _cli_term(mention).join(re.split(pattern, text))
    return text


def _cli_term(mention: Argument | Call) -> str:
    if isinstance(mention, Call):
        return f"'fsspeckit {mention.name}'"
    if not mention.values:
        return _OPTIONS.get(mention.name, mention.name)
    option = _OPTIONS.get(mention.name, f"--{mention.name.replace('_', '-')}")
    values = [_cli_value(v) for v in mention.values if v is not True and v != []]
    return " ".join([option, " or ".join(values)]) if values else option


def _cli_value(value: object) -> str:
    return "COLUMN" if value is ... else ", ".join(value) if isinstance(value, list) else str(value)


def advice_in_cli_terms(advice: str, key_columns: Sequence[str]) -> str:
    """Replace what the advice of a diagnosis mentions by options and commands."""
    blooms = (Argument("bloom_columns", ([name],)) for name in key_columns)
    trust = Argument("trust_partitions", (True,))
    return to_cli_terms(advice, (Call("recover"), trust, *blooms))


def report(error: BaseException, *, verbose: bool) -> int:
    """Print an error to stderr and return the exit code."""
    if type(error).__name__ == "NoArgsIsHelpError":  # it has no public name, and holds the help
        sys.stderr.write(f"{error}\n")
        return USAGE
    failure = explain(error)
    if verbose:
        sys.stderr.write(hide("".join(traceback.format_exception(error))))
    for note in getattr(error, "__notes__", ()):
        sys.stderr.write(hide(f"note: {note}\n"))
    in_colour = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    for label, code, text in (("error:", "1;31", failure.what), ("hint:", "1;36", failure.hint)):
        sys.stderr.write(
            f"\x1b[{code}m{label}\x1b[0m {text}\n" if in_colour else f"{label} {text}\n"
        )
    return failure.code


# Ctrl-C while a dataset is being changed.

_BEGIN, _END = (0, 1), (1, 1)


class Interrupts:
    """Defers Ctrl-C while a commit is running; ``say`` is called by another thread."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._previous: Any = None
        self._messages: SimpleQueue[str | None] = SimpleQueue()
        self._printer: threading.Thread | None = None
        self._committing = False
        self.commit_started = False
        """Whether a commit has started: from then on something may have changed."""

        self.commit_finished = False
        self.was_deferred = False
        """Whether an interrupt waited for the end of a commit."""

        self.was_raised = False
        """Whether an interrupt stopped the work."""

    def __enter__(self) -> Interrupts:
        # A process that was started in the background may ignore interrupts.
        handled = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
        if handled and threading.current_thread() is threading.main_thread():
            # A handler may run in the middle of a write to stderr, which refuses a second write
            # then; so a thread that does nothing else prints the messages.
            self._printer = threading.Thread(
                target=self._print_messages, name="interrupts", daemon=True
            )
            self._printer.start()
            self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
        if self._printer is not None:
            self._messages.put(None)
            self._printer.join()

    def _print_messages(self) -> None:
        while (message := self._messages.get()) is not None:
            self._say(message)

    def _handle(self, number: int, frame: Any) -> None:
        if self._committing and not self.was_deferred:
            self.was_deferred = True
            self._messages.put(
                "interrupted: the commit is completed first; press Ctrl-C again to stop it"
            )
            return
        self.was_raised = True
        if callable(self._previous):
            self._previous(number, frame)  # the handler of Spark cancels its jobs
        raise KeyboardInterrupt

    def watch(self, progress: Progress) -> Progress:
        """Return a progress function that also notices when a commit begins and ends."""

        def watched(phase: str, done: int, total: int) -> None:
            self._observe(phase, (done, total))
            progress(phase, done, total)

        return watched

    def _observe(self, phase: str, event: tuple[int, int]) -> None:
        if phase == "commit" and event == _BEGIN:
            self.commit_started = self._committing = True
        elif phase == "commit" and event == _END:
            self.commit_finished = True
        elif phase == "plan" and event == _BEGIN and self._committing:
            # Another writer was first: nothing is recorded, and the merge plans again.
            self._committing = False
            if self.was_deferred:
                raise KeyboardInterrupt
        elif phase == "insert" and event == _END and self.commit_started:
            self._committing = True


@contextmanager
def report_on_interrupt(
    storage: Storage, interrupts: Interrupts, say: Callable[[str], None]
) -> Iterator[None]:
    """Report after an interrupt whether the dataset changed; complete a recorded commit."""
    before = _last_commit(storage)
    try:
        yield
    except (KeyboardInterrupt, Exception) as interrupt:  # libraries convert interrupts
        if not _is_interrupt(interrupt, interrupts):
            raise
        with _ignoring_interrupts():
            code = _settle(storage, interrupts, interrupt, before, say)
        raise typer.Exit(code) from None
    if interrupts.was_deferred:
        say("interrupted after the commit had begun: it is complete")


def _is_interrupt(error: BaseException, interrupts: Interrupts) -> bool:
    """Whether an interrupt caused an error.

    DuckDB raises a RuntimeError for it, and py4j an error of its own if that happens just after it
    has connected.
    """
    if is_caused_by_interrupt(error):
        return True
    return interrupts.was_raised and not isinstance(error, CommitPendingError)


def is_caused_by_interrupt(error: BaseException | None) -> bool:
    """Whether an error is a KeyboardInterrupt, or was raised in place of one.

    Python itself raises a RuntimeError if an interrupt comes while a class is created.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt | FsspeckitError):
        error = error.__cause__
    return isinstance(error, KeyboardInterrupt)


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Let nothing stop the search for what an interrupt has left."""
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _settle(
    storage: Storage,
    interrupts: Interrupts,
    interrupt: BaseException,
    before: int,
    say: Callable[[str], None],
) -> int:
    """Report what an interrupt has left, complete a recorded commit, and return the exit code."""
    if getattr(interrupt, "committed", None) is not None:
        _complete(storage)
        say("interrupted after the commit was recorded: it is complete now")
        return 0
    if getattr(interrupt, "undecided", None) is not None:
        say("interrupted while the commit was recorded: 'fsspeckit history' shows whether it is")
        return PENDING
    if not interrupts.commit_started or _last_commit(storage) == before:
        say("interrupted: nothing was changed")
        return FAILED
    if interrupts.commit_finished:
        say("interrupted after the commit: it is complete")
        return 0
    say("interrupted during the commit: 'fsspeckit history' shows its state")
    return PENDING


def _last_commit(storage: Storage) -> int:
    from fsspeckit.storage import pending_numbers

    return pending_numbers(storage)[0]


def _complete(storage: Storage) -> None:
    from fsspeckit.storage import recover_storage

    try:
        recover_storage(storage)
    except (OSError, RuntimeError) as error:
        number = _last_commit(storage)
        raise CommitPendingError.interrupted(number, storage.root.display_path, error) from error
