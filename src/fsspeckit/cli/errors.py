"""How a command fails: one paragraph, a hint, an exit code; a traceback only if asked for.

Exit codes: 0 done, 1 failed with nothing changed, 2 wrong usage, 3 committed but not
completed (recover).

Ctrl-C while a dataset is being changed: either nothing happened, or the commit is completed.

Until the commit begins an interrupt ends the work at once; staged files are removed and nothing was
changed. Once it has begun the first interrupt is put off until the commit is complete. The second
one is not: then the records of the dataset tell what has happened.
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
from typing import TYPE_CHECKING, Any, TextIO

import typer

from fsspeckit.cli.config import hide
from fsspeckit.errors import CommitPendingError, FsspeckitError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fsspeckit.storage import Storage

    Report = Callable[[str, int, int], None]

__all__ = [
    "FAILED",
    "PENDING",
    "USAGE",
    "Failure",
    "Interrupts",
    "colours",
    "explain",
    "report",
    "report_on_interrupt",
    "to_cli_terms",
]


# --- How a command fails ---

FAILED, USAGE, PENDING = 1, 2, 3

UsageError: Any = typer.BadParameter.__mro__[1]
"""What typer raises for a wrong command line; it has no public name in every version."""

_BUG = "this should not have happened; repeat the command with --verbose and report what it prints."
_HINTS: tuple[tuple[type[BaseException], str], ...] = (
    (FileNotFoundError, "check the path; a relative one begins at the working directory."),
    (NotADirectoryError, "name the directory of the dataset, not a file."),
    (IsADirectoryError, "name a file."),
    (PermissionError, "let this user read and write there, or choose another path."),
    (FsspeckitError, "the option --help of the command tells what it takes."),
    (ImportError, "install the library that is named, or use another kind of URL."),
    (OSError, "check that the disk or the store can be reached and has room, then try again."),
    (MemoryError, "use --engine spark or duckdb, which work beyond memory."),
)

_STORES = ("botocore", "aiobotocore", "aiohttp", "gcsfs", "adlfs", "azure", "google", "requests")
_STORE_HINT = "check the URL and the storage options, and that the store can be reached."
"""Libraries behind filesystems raise errors of their own kind."""

_NAMES: tuple[tuple[str, str], ...] = (
    (r'null_keys="?(\w+)"?', r"--nulls \1"),
    (r'duplicate_keys="?(\w+)"? or "(\w+)"', r"--duplicates \1 or \2"),
    (r'duplicate_keys="?(\w+)"?', r"--duplicates \1"),
    (r"order_by=\[\.\.\.\]", "--order-by COLUMN"),
    (r'engine="(\w+)"', r"--engine \1"),
    (r'bloom_columns=\["(.*?)"\]', r"--bloom \1"),
    (r"(allow_empty|trust_partitions|abandon)=True", r"--\1"),
    (r"\brecover\(\)", "'fsspeckit recover'"),
    (r"\bhistory\(\)", "'fsspeckit history'"),
    (r"(?<![\w./-])control_dir\b=?", "--control-dir"),
    (r"\bkey_columns\b", "--key"),
    (r"\border_by\b", "--order-by"),
    (r"\bpartition_columns\b", "--partition-by"),
    (r"\bbloom_columns\b", "--bloom"),
    (r"\bnull_keys\b", "--nulls"),
    (r"\bduplicate_keys\b", "--duplicates"),
    (
        r"\b(max_rewrite_fraction|max_rewrite_bytes|max_rows_per_file|row_group_size|lock_timeout)\b",
        r"--\1",
    ),
)
"""The library's names for arguments, and what they are called on the command line."""


@dataclass(frozen=True)
class Failure:
    """What a person is told about an error."""

    what: str
    hint: str
    code: int = FAILED


def explain(error: BaseException) -> Failure:
    """What to tell about an error, and the code to exit with."""
    if isinstance(error, UsageError):
        return _usage(error)
    text, separator, hint = _message(error).partition("Hint: ")
    if not separator:
        known = (hint for kind, hint in _HINTS if isinstance(error, kind))
        hint = _STORE_HINT if _is_of_a_store(error) else next(known, _BUG)
        if hint == _BUG:
            text = f"{type(error).__name__}: {text}"
    code = PENDING if isinstance(error, CommitPendingError) else FAILED
    return Failure(_sentence(text), _one_line(hint), code)


def _is_of_a_store(error: BaseException) -> bool:
    """Whether an error, or what it was raised from, comes from the library of a store.

    Files that are missing and access that is denied have hints of their own.
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
    text = error.format_message().replace("Value error, ", "")  # a word of pydantic's
    if text.startswith("Missing argument 'SOURCE'"):
        # Of a single word the parser thinks that it is TARGET, and people that it is SOURCE.
        text = "Missing argument 'SOURCE' or 'TARGET': name the rows first, then the dataset"
    return Failure(_sentence(text), f"see {command} --help", USAGE)


def _message(error: BaseException) -> str:
    """What an error says; those of the system say a file's name and a number, too."""
    if isinstance(error, OSError) and error.strerror and error.errno is not None:
        names = [repr(name) for name in (error.filename, error.filename2) if name is not None]
        return ": ".join([error.strerror, " and ".join(names)] if names else [error.strerror])
    return str(error) or type(error).__name__


def _one_line(text: str) -> str:
    return hide(to_cli_terms(" ".join(text.split())))


def _sentence(text: str) -> str:
    line = _one_line(text)
    return line if line.endswith((".", "!", "?")) else f"{line}."


def to_cli_terms(text: str) -> str:
    """A text of the library with its arguments called as on the command line."""
    for pattern, option in _NAMES:
        text = re.sub(pattern, option, text)
    return re.sub(r"--[a-z]+(?:_[a-z]+)+", lambda found: found.group().replace("_", "-"), text)


def report(error: BaseException, *, verbose: bool) -> int:
    """Tell about an error on stderr; the code to exit with."""
    if type(error).__name__ == "NoArgsIsHelpError":  # it has no public name, and holds the help
        sys.stderr.write(f"{error}\n")
        return USAGE
    failure = explain(error)
    if verbose:
        sys.stderr.write(hide("".join(traceback.format_exception(error))))
    for note in getattr(error, "__notes__", ()):
        sys.stderr.write(hide(f"note: {note}\n"))
    colour = colours(sys.stderr)
    sys.stderr.write(f"{colour('error:', '1;31')} {failure.what}\n")
    sys.stderr.write(f"{colour('hint:', '1;36')} {failure.hint}\n")
    return failure.code


def colours(stream: TextIO) -> Callable[[str, str], str]:
    """A function that colours a text, if a stream is a terminal that may show colours."""
    coloured = stream.isatty() and not os.environ.get("NO_COLOR")
    return lambda text, code: f"\x1b[{code}m{text}\x1b[0m" if coloured else text


# --- Ctrl-C while a dataset is being changed ---

_BEGIN, _END = (0, 1), (1, 1)


class Interrupts:
    """Puts Ctrl-C off while a commit is on its way; used in a ``with`` statement.

    Args:
        say: Tells the user something; called by another thread.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._previous: Any = None
        self._messages: SimpleQueue[str | None] = SimpleQueue()
        self._teller: threading.Thread | None = None
        self._committing = False
        self.begun = False
        """Whether a commit was begun: from then on something may have changed."""

        self.complete = False
        """Whether a commit came to its end."""

        self.put_off = False
        """Whether an interrupt was put off."""

        self.raised = False
        """Whether an interrupt ended the work."""

    def __enter__(self) -> Interrupts:
        # Who started this process in the background may have had interrupts ignored.
        heard = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
        if heard and threading.current_thread() is threading.main_thread():
            # A handler may run in the middle of a write to the stream that it would write to,
            # which refuses that; so a thread that has nothing else to do tells what there is.
            self._teller = threading.Thread(target=self._tell, name="interrupts", daemon=True)
            self._teller.start()
            self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
        if self._teller is not None:
            self._messages.put(None)
            self._teller.join()

    def _tell(self) -> None:
        while (message := self._messages.get()) is not None:
            self._say(message)

    def _handle(self, number: int, frame: Any) -> None:
        if self._committing and not self.put_off:
            self.put_off = True
            self._messages.put(
                "interrupted: the commit is completed first; press Ctrl-C again to stop it"
            )
            return
        self.raised = True
        if callable(self._previous):
            self._previous(number, frame)  # that of Spark cancels its jobs
        raise KeyboardInterrupt

    def watch(self, report: Report) -> Report:
        """A function to tell about progress, which also tells this when a commit begins."""

        def told(phase: str, done: int, total: int) -> None:
            self._note(phase, (done, total))
            report(phase, done, total)

        return told

    def _note(self, phase: str, event: tuple[int, int]) -> None:
        if phase == "commit" and event == _BEGIN:
            self.begun = self._committing = True
        elif phase == "commit" and event == _END:
            self.complete = True
        elif phase == "plan" and event == _BEGIN and self._committing:
            # Somebody else was first: nothing is recorded, and all is planned again.
            self._committing = False
            if self.put_off:
                raise KeyboardInterrupt
        elif phase == "insert" and event == _END and self.begun:
            self._committing = True


@contextmanager
def report_on_interrupt(
    storage: Storage, interrupts: Interrupts, say: Callable[[str], None]
) -> Iterator[None]:
    """Tell after an interrupt whether the dataset is unchanged, and complete it if it is not.

    Raises:
        typer.Exit: With 1 if nothing was changed, 0 if the commit was completed, else 3.
    """
    before = _last_commit(storage)
    try:
        yield
    except (KeyboardInterrupt, Exception) as interrupt:  # of which libraries make what they like
        if not _is_interrupt(interrupt, interrupts):
            raise
        with _undisturbed():
            code = _settled(storage, interrupts, interrupt, before, say)
        raise typer.Exit(code) from None
    if interrupts.put_off:
        say("interrupted after the commit had begun: it is complete")


def _is_interrupt(error: BaseException, interrupts: Interrupts) -> bool:
    """Whether an error comes of an interrupt.

    DuckDB makes a RuntimeError of it, and py4j an error of its own where it is interrupted between
    a connection and its first word.
    """
    if isinstance(error, KeyboardInterrupt):
        return True
    return interrupts.raised and not isinstance(error, CommitPendingError)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Finding out what has happened takes a moment, and must be done."""
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _settled(
    storage: Storage,
    interrupts: Interrupts,
    interrupt: BaseException,
    before: int,
    say: Callable[[str], None],
) -> int:
    """Tell what an interrupt has left, and complete what was recorded."""
    if any("is committed" in note for note in getattr(interrupt, "__notes__", ())):
        _complete(storage)
        say("interrupted after the commit was recorded: it is complete now")
        return 0
    if not interrupts.begun or _last_commit(storage) == before:
        say("interrupted: nothing was changed")
        return FAILED
    if interrupts.complete:
        say("interrupted after the commit: it is complete")
        return 0
    say("interrupted while the commit was on its way: 'fsspeckit history' tells its state")
    return PENDING


def _last_commit(storage: Storage) -> int:
    from fsspeckit.storage import pending_numbers

    return pending_numbers(storage)[0]


def _complete(storage: Storage) -> None:
    """Complete a commit that was interrupted.

    Raises:
        CommitPendingError: If that cannot be done now.
    """
    from fsspeckit.storage import recover_storage

    try:
        recover_storage(storage)
    except (OSError, RuntimeError) as error:
        number = _last_commit(storage)
        raise CommitPendingError.interrupted(number, storage.root.display_path, error) from error
