"""Threads that Ctrl-C cannot lock up.

Python raises ``KeyboardInterrupt`` between any two instructions of the main thread. The standard
library's executor and ``Thread.start`` take locks there in Python code. An interrupt between taking
and releasing leaves one locked, a worker waits for it, and the process waits for the worker, for
ever. Here the main thread calls nothing but single functions of C: an interrupt comes before or
after them, never inside.
"""

from __future__ import annotations

import _thread
import os
import sys
import threading
from collections import deque
from contextlib import suppress
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from fsspeckit.storage import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["Task", "ThreadPool", "lower_priority"]

_IDLE_SECONDS = 1.0
_BACKGROUND_NICENESS = 10

T = TypeVar("T")
R = TypeVar("R")


class ThreadPool:
    """Up to ``workers`` threads that make calls until the ``with`` block ends.

    The end of the block waits for calls that are being made, and drops those that have not begun:
    nobody wants their results any more.
    """

    def __init__(self, workers: int, name: str) -> None:
        self._name = name
        self._workers = max(1, workers)
        self._threads: list[threading.Thread] = []
        self._attendants: list[bool] = []
        self._calls: SimpleQueue[tuple[Any, ...] | None] = SimpleQueue()
        self._is_submitted: SimpleQueue[bool] = SimpleQueue()
        self._is_ended: SimpleQueue[bool] = SimpleQueue()
        self._has_left: SimpleQueue[bool] = SimpleQueue()
        self._is_attended = self._is_over = False

    def __enter__(self) -> ThreadPool:
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over = True
        self._drop_calls()
        self._is_submitted.put(False)
        while self._attendants:
            with suppress(Empty):
                self._is_ended.get(timeout=_IDLE_SECONDS)

    def submit(self, function: Callable[..., R], *arguments: Any) -> Task[R]:
        """Let a thread call ``function``, with the context variables of the caller."""
        task: Task[R] = Task()
        self._calls.put((task, copy_context().run, function, *arguments))
        if self._is_over:
            self._drop_calls()
        elif len(self._threads) < self._workers:
            self._is_submitted.put(True)
            if not self._is_attended:
                self._is_attended = True
                _thread.start_new_thread(self._attend, ())
        return task

    def map(
        self, function: Callable[[T], R], items: Iterable[T], ahead: int | None = None
    ) -> Iterator[R]:
        """Yield the result for each item, in order; at most ``ahead`` more are being made."""
        tasks: deque[Task[R]] = deque()
        for item in items:
            tasks.append(self.submit(function, item))
            if ahead is not None and len(tasks) > ahead:
                yield tasks.popleft().result()
        while tasks:
            yield tasks.popleft().result()

    def _drop_calls(self) -> None:
        with suppress(Empty):
            while True:
                if (call := self._calls.get_nowait()) is not None:
                    call[0].run(_refuse)
        self._calls.put(None)  # every thread passes it on

    def _attend(self) -> None:
        """Start threads while calls wait for one, and wait for their end."""
        # First of all: who is here is waited for, and who comes later finds no call.
        self._attendants.append(True)
        while self._is_submitted.get():
            is_wanted = not (self._is_over or self._calls.empty())
            if is_wanted and len(self._threads) < self._workers:
                name = f"{self._name}_{len(self._threads)}"
                # Daemons: a block that an interrupt kept from ending must not keep the
                # interpreter from ending.
                thread = threading.Thread(target=self._work, name=name, daemon=True)
                self._threads.append(thread)
                try:
                    thread.start()
                except RuntimeError:  # the system allows no further thread
                    self._work()
        for _ in self._threads:  # `join` would leave a dummy thread for this one
            self._has_left.get()
        self._attendants.pop()
        self._is_ended.put(True)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            task, *rest = call
            task.run(*rest)
            del call, task, rest  # not kept while waiting for the next
        self._calls.put(None)
        self._has_left.put(True)


def _refuse() -> None:
    raise RuntimeError("the threads have ended before this call was made")


def lower_priority() -> None:
    """Let others have the processor first, from now on in this thread.

    Only where a thread has a priority of its own, and never in the main thread: there is no way
    back without privileges.
    """
    if sys.platform == "linux" and threading.current_thread() is not threading.main_thread():
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _BACKGROUND_NICENESS)
