"""Ctrl-C while a dataset is being changed: either nothing happened, or the commit is completed.

Until the commit begins an interrupt ends the work at once; staged files are removed and nothing was
changed. Once it has begun the first interrupt is put off until the commit is complete. The second
one is not: then the records of the dataset tell what has happened.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import typer

from fsspeckit.cli.errors import FAILED, PENDING
from fsspeckit.errors import CommitPendingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fsspeckit.storage.storage import Storage

    Report = Callable[[str, int, int], None]

__all__ = ["Interrupts", "told_on_interrupt"]

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
def told_on_interrupt(
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
    from fsspeckit.storage.commit.log import pending_numbers

    return pending_numbers(storage)[0]


def _complete(storage: Storage) -> None:
    """Complete a commit that was interrupted.

    Raises:
        CommitPendingError: If that cannot be done now.
    """
    from fsspeckit.storage.commit.recovery import recover_storage

    try:
        recover_storage(storage)
    except (OSError, RuntimeError) as error:
        number = _last_commit(storage)
        raise CommitPendingError.interrupted(number, storage.root.shown, error) from error
