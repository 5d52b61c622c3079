"""Calls in threads of their own: requests that do not depend on each other are sent together.

On an object store each request is a round trip, and a change takes as long as its longest chain of
requests. A :class:`~fsspeckit.storage.fs.backends.Backend` decides which calls run side by side:
on a disk all are made one after the other, in the order in which they are written.

Only single functions of C are called to start and to wait, so that Ctrl-C cannot lock up a thread.
"""

from __future__ import annotations

import _thread
from contextvars import copy_context
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable

R = TypeVar("R")
R1 = TypeVar("R1")
R2 = TypeVar("R2")
R3 = TypeVar("R3")


class Task(Generic[R]):
    """A call that another thread makes."""

    def __init__(self) -> None:
        # An interrupt may come between two instructions of who waits: the outcome is not in the
        # queue, where it could get lost.
        self._outcome: tuple[Any, BaseException | None] | None = None
        self._ended: SimpleQueue[bool] = SimpleQueue()

    def run(self, function: Callable[..., R], *arguments: Any) -> None:
        """Make the call, and keep what it returns or raises."""
        try:
            self._outcome = function(*arguments), None
        except BaseException as error:
            self._outcome = None, error
        self._ended.put(True)

    def done(self) -> bool:
        """Whether the call has ended."""
        return self._outcome is not None

    def wait(self) -> tuple[Any, BaseException | None]:
        """Wait for the end of the call; return its result, and the error that it raised."""
        while self._outcome is None:
            self._ended.get()
            self._ended.put(True)  # for the next who waits
        return self._outcome

    def result(self) -> R:
        """Wait for the end of the call, and return or raise what it did."""
        value, error = self.wait()
        if error is not None:
            raise error
        found: R = value
        return found


class _Begins(Protocol):
    def begin(self, call: Callable[[], R]) -> Task[R]: ...


def begin_in_thread(call: Callable[[], R]) -> Task[R]:
    """Begin a call in a thread of its own, with the context variables of the caller."""
    task: Task[R] = Task()
    try:
        _thread.start_new_thread(copy_context().run, (task.run, call))
    except RuntimeError:  # the system allows no further thread
        task.run(call)
    return task


def make_at_once(call: Callable[[], R]) -> Task[R]:
    """Make a call, and return or raise what it did at once."""
    value, task = call(), Task[R]()
    task.run(lambda: value)
    return task


@overload
def all_of(
    backend: _Begins, first: Callable[[], R1], second: Callable[[], R2], /
) -> tuple[R1, R2]: ...


@overload
def all_of(
    backend: _Begins,
    first: Callable[[], R1],
    second: Callable[[], R2],
    third: Callable[[], R3],
    /,
) -> tuple[R1, R2, R3]: ...


@overload
def all_of(backend: _Begins, /, *calls: Callable[[], R]) -> tuple[R, ...]: ...


def all_of(backend: _Begins, /, *calls: Callable[[], Any]) -> tuple[Any, ...]:
    """Make calls that do not depend on each other, and return what each returned, in order.

    All have ended when this returns or raises. If several fail, the error of the first is raised.
    """
    tasks = [backend.begin(call) for call in calls]
    try:
        return tuple(task.result() for task in tasks)
    finally:
        for task in tasks:
            task.wait()
