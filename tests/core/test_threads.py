"""Threads that Ctrl-C cannot lock up."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from fsspeckit.core.threads import ThreadPool

if TYPE_CHECKING:
    from collections.abc import Callable


def names() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("test-")]


@pytest.mark.parametrize("ahead", [None, 0, 1, 5])
def test_results_come_in_the_order_of_the_items(ahead: int | None) -> None:
    with ThreadPool(3, "test-map") as pool:
        assert list(pool.map(lambda item: item * item, range(50), ahead)) == [
            item * item for item in range(50)
        ]
    assert names() == []


def test_calls_that_are_ahead_are_limited() -> None:
    taken: list[int] = []

    def items() -> Any:
        for item in range(10):
            taken.append(item)
            yield item

    with ThreadPool(2, "test-ahead") as pool:
        results = pool.map(str, items(), 3)
        assert next(results) == "0"
        assert len(taken) == 4


def test_several_calls_are_made_at_once() -> None:
    barrier = threading.Barrier(3, timeout=30)
    with ThreadPool(3, "test-barrier") as pool:
        assert sorted(pool.map(lambda _: barrier.wait(), range(3))) == [0, 1, 2]


def test_an_error_is_raised_where_the_result_is_wanted() -> None:
    with ThreadPool(1, "test-error") as pool:
        task = pool.submit(int, "no number")
        with pytest.raises(ValueError, match="no number"):
            task.result()
        assert task.done()
        with pytest.raises(ValueError, match="no number"):
            task.result()


def _fail(started: threading.Event, *calls: tuple[Callable[..., Any], float]) -> None:
    with ThreadPool(1, "test-end") as pool:
        for function, argument in calls:
            pool.submit(function, argument)
        started.wait(30)
        raise KeyboardInterrupt


def test_the_end_waits_for_what_is_running_and_drops_the_rest() -> None:
    ended: list[float] = []
    started = threading.Event()

    def work(seconds: float) -> None:
        started.set()
        time.sleep(seconds)
        ended.append(seconds)

    with pytest.raises(KeyboardInterrupt):
        _fail(started, (work, 0.1), (work, 0.2))
    assert ended == [0.1]
    assert names() == []


def test_arguments_are_released_once_the_call_has_ended() -> None:
    argument = threading.Event()  # anything that can be referred to weakly
    kept = weakref.ref(argument)
    with ThreadPool(1, "test-memory") as pool:
        task = pool.submit(lambda event: event.is_set(), argument)
        assert task.result() is False
        del argument
        assert pool.submit(int).result() == 0
        assert kept() is None


def test_calls_are_made_where_the_system_allows_no_further_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with ThreadPool(2, "test-refused") as pool:
        assert list(pool.map(str, range(3))) == ["0", "1", "2"]


def test_a_call_that_comes_too_late_fails() -> None:
    with ThreadPool(1, "test-late") as pool:
        pass
    with pytest.raises(RuntimeError, match="have ended"):
        pool.submit(int).result()


def test_whoever_waits_for_a_call_that_is_dropped_is_woken() -> None:
    started, go_on = threading.Event(), threading.Event()
    seen: list[str] = []

    def block() -> None:
        started.set()
        go_on.wait(30)

    def wait() -> None:
        with pytest.raises(RuntimeError, match="have ended"):
            dropped.result()
        seen.append("woken")
        go_on.set()

    with ThreadPool(1, "test-dropped") as pool:
        pool.submit(block)
        started.wait(30)
        dropped = pool.submit(int)
        other = threading.Thread(target=wait)
        other.start()
    other.join()
    assert seen == ["woken"]


EVERY_INSTRUCTION = """
import sys, time
from fsspeckit.core.threads import ThreadPool

def interrupted(number):
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        if count == number:
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        with ThreadPool(2, "work") as pool:
            return list(pool.map(lambda item: time.sleep(0.001), range(3))) is None
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)

number = 1
while interrupted(number):
    number += 1
print(number)
"""


def test_an_interrupt_at_any_instruction_of_the_main_thread_locks_nothing_up() -> None:
    """The executor of the standard library fails here: it finds its locks in the wrong state."""
    done = subprocess.run(
        [sys.executable, "-c", EVERY_INSTRUCTION],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert int(done.stdout) > 200
    assert done.stderr == ""


SURVIVOR = """
import atexit, sys, threading, time
from fsspeckit.core.threads import ThreadPool

def work():
    with ThreadPool(2, "x") as pool:
        print(list(pool.map(lambda item: item * 2, range(5))), flush=True)

def later():
    time.sleep(0.3)  # the main thread is at its end by now
    work()

if sys.argv[1] == "thread":
    threading.Thread(target=later).start()
else:
    atexit.register(work)
"""


@pytest.mark.parametrize("place", ["thread", "atexit"])
def test_calls_are_made_after_the_end_of_the_main_thread(place: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SURVIVOR, place], capture_output=True, text=True, timeout=60
    )
    # Later versions of Python start no thread while they end; nothing may wait for one.
    refused = "at interpreter shutdown" in ended.stderr and place == "atexit"
    assert ended.stdout == "[0, 2, 4, 6, 8]\n" or refused, ended.stderr


def test_no_thread_is_left_and_results_are_there_for_all() -> None:
    before = set(threading.enumerate())
    with ThreadPool(2, "left") as pool:
        task = pool.submit(int, "7")
        assert [task.result(), task.result(), task.done()] == [7, 7, True]
    deadline = time.monotonic() + 10
    while set(threading.enumerate()) - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert set(threading.enumerate()) == before
