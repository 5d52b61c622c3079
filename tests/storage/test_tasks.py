"""Calls that do not depend on each other: together on an object store, in order on a disk."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING

import pytest

from fsspeckit.storage import open_backend, open_root
from fsspeckit.storage.fs.tasks import Task, all_of, begin_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fsspeckit.storage.fs.backends import Backend


class Threads:
    """What begins calls as the backend of an object store does."""

    begin = staticmethod(begin_in_thread)


@pytest.fixture
def disk(tmp_path: Path) -> Backend:
    return open_backend(open_root(str(tmp_path)))


def failing(error: Exception) -> Callable[[], None]:
    def call() -> None:
        raise error

    return call


def test_calls_run_at_the_same_moment() -> None:
    together = threading.Barrier(3, timeout=20)
    assert len(all_of(Threads(), together.wait, together.wait, together.wait)) == 3


def test_results_come_in_the_order_of_the_calls() -> None:
    second = threading.Event()

    def first() -> str:
        assert second.wait(20)
        return "first"

    assert all_of(Threads(), first, second.set, lambda: "third") == ("first", None, "third")


def test_the_error_of_the_first_call_that_fails_is_raised_when_all_have_ended() -> None:
    ended = []
    errors = [OSError("one"), ValueError("two")]
    with pytest.raises(OSError, match="one"):
        all_of(Threads(), lambda: 1, *map(failing, errors), lambda: ended.append(True))
    assert ended == [True]


def test_on_a_disk_nothing_is_called_after_an_error(disk: Backend) -> None:
    made: list[int] = []
    with pytest.raises(OSError, match="full"):
        all_of(disk, lambda: made.append(1), failing(OSError("full")), lambda: made.append(3))
    assert made == [1]


def test_a_disk_makes_calls_in_the_thread_that_needs_them(disk: Backend) -> None:
    here = threading.get_ident()
    assert all_of(disk, threading.get_ident, threading.get_ident) == (here, here)


def test_a_task_may_be_asked_more_than_once() -> None:
    task: Task[int] = begin_in_thread(lambda: 7)
    assert (task.result(), task.result(), task.done()) == (7, 7, True)


def test_a_call_has_the_context_of_who_begins_it() -> None:
    name: ContextVar[str] = ContextVar("name")
    token = name.set("mine")
    try:
        assert begin_in_thread(name.get).result() == "mine"
    finally:
        name.reset(token)


def test_without_threads_calls_are_made_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("_thread.start_new_thread", lambda *arguments: failing(RuntimeError())())
    assert all_of(Threads(), threading.get_ident, lambda: 2) == (threading.get_ident(), 2)
