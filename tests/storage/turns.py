"""Threads that take turns, call by call, in a given order: barriers, not luck."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fsspeckit.storage import listing, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

    from fsspeckit.storage.listing import Listing
    from fsspeckit.storage.roots import Root


class Turns:
    """Lets the calls of threads happen in a given order; what is not in it, as it comes."""

    def __init__(self, order: list[str]) -> None:
        self._order = order
        self._changed = threading.Condition()
        self._inside = threading.local()
        self._over: set[str] = set()
        self.calls = 0
        self.errors: list[BaseException] = []

    @contextmanager
    def __call__(self, call: object) -> Iterator[None]:
        if getattr(self._inside, "call", False):
            yield  # a part of a call that has its turn already
            return
        name = threading.current_thread().name
        with self._changed:
            assert self._changed.wait_for(lambda: self._is_turn_of(name), 60)
            self._inside.call = True
            self.calls += 1
            try:
                yield  # nobody else acts meanwhile
            finally:
                self._inside.call = False
                if self._order:
                    self._order.pop(0)
                self._changed.notify_all()

    def _is_turn_of(self, name: str) -> bool:
        while self._order and self._order[0] in self._over:
            self._order.pop(0)
        return not self._order or self._order[0] == name

    def run(self, **actions: Callable[[], object]) -> None:
        threads = [
            threading.Thread(target=self._act, args=(action,), name=name)
            for name, action in actions.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _act(self, action: Callable[[], object]) -> None:
        try:
            action()
        except BaseException as error:  # a thread's error must reach the test
            self.errors.append(error)
        finally:
            with self._changed:
                self._over.add(threading.current_thread().name)
                self._changed.notify_all()


class SteppedDisk:
    """A disk of which every call, reading ones too, waits for its turn."""

    def __init__(self, disk: Any, turns: Turns) -> None:
        self._disk = disk
        self._turns = turns

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._disk, name)

        def in_turn(*arguments: Any, **options: Any) -> Any:
            with self._turns(name):
                return method(*arguments, **options)

        return in_turn


def step_listings(monkeypatch: pytest.MonkeyPatch, turns: Callable[[], Turns | None]) -> None:
    """Let listings of a dataset wait for their turn, too."""
    list_files = listing.list_files

    def in_turn(root: Root) -> Listing:
        current = turns()
        if current is None:
            return list_files(root)
        with current("list"):
            return list_files(root)

    monkeypatch.setattr(snapshot, "list_files", in_turn)
