"""Ctrl-C while a dataset is being changed: either nothing happened, or the commit is completed.

Until the commit begins an interrupt ends the work at once; staged files are removed and nothing was
changed. Once it has begun the first interrupt is put off until the commit is complete. The second
one is not: then the records of the dataset tell what has happened.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from fsspeckit.cli.failures import FAILED, PENDING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fsspeckit.storage.store import Storage

    Report = Callable[[str, int, int], None]

__all__ = ["Interrupts", "told_on_interrupt"]

_BEGIN, _END = (0, 1), (1, 1)


class Interrupts:
    """Puts Ctrl-C off while a commit is on its way; used in a ``with`` statement.

    Args:
        say: Tells the user something.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._previous: Any = None
        self._committing = False
        self.begun = False
        """Whether a commit was begun: from then on something may have changed."""

        self.put_off = False
        """Whether an interrupt was put off."""

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    def _handle(self, number: int, frame: Any) -> None:
        if self._committing and not self.put_off:
            self.put_off = True
            self._say("interrupted: the commit is completed first; press Ctrl-C again to stop it")
            return
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
    except KeyboardInterrupt as interrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the rest takes a moment, and must be done
        recorded = any("is committed" in note for note in getattr(interrupt, "__notes__", ()))
        if not recorded and (not interrupts.begun or _last_commit(storage) == before):
            say("interrupted: nothing was changed")
            raise typer.Exit(FAILED) from None
        if not recorded:
            say("interrupted while the commit was on its way: 'fsspeckit history' tells its state")
            raise typer.Exit(PENDING) from None
        _complete(storage, say)
        raise typer.Exit(0) from None
    if interrupts.put_off:
        say("interrupted after the commit had begun: it is complete")


def _last_commit(storage: Storage) -> int:
    from fsspeckit.storage.records import pending_numbers

    return pending_numbers(storage)[0]


def _complete(storage: Storage, say: Callable[[str], None]) -> None:
    """Complete a commit that was interrupted; what fails here is told as pending."""
    from fsspeckit.storage.recovery import recover_storage

    recover_storage(storage)
    say("interrupted after the commit was recorded: it is complete now")
