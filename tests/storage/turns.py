"""Threads that take turns, call by call, in a given order: barriers, not luck."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fsspeckit.storage import Task, listing, open_backend, snapshot
from fsspeckit.storage.commit import recovery
from fsspeckit.storage.fs.tasks import make_at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

    from fsspeckit.storage import Root, Storage
    from fsspeckit.storage.listing import Listing


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
            assert self._changed.wait_for(lambda: self._is_turn_of(name), 20)
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


class SteppedBackend:
    """A local disk that waits for its turn before each of its calls.

    The system calls that change something take turns themselves (:func:`syscalls.observed`).
    """

    def __init__(self, backend: Any, turns: Turns) -> None:
        self._backend = backend
        self._turns = turns

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._backend, name)

        def in_turn(*arguments: Any, **options: Any) -> Any:
            with self._turns(name):
                pass
            return method(*arguments, **options)

        return in_turn


_READS = frozenset({"cat_file", "info", "isdir", "ls"})
_REQUESTS = _READS | {"cp_file", "makedirs", "pipe_file", "rm_file", "rmdir"}


class SteppedFilesystem:
    """A filesystem of which every request happens in its turn."""

    def __init__(self, filesystem: Any, turns: Turns) -> None:
        self._filesystem = filesystem
        self._turns = turns

    def find(self, *arguments: Any, **options: Any) -> Any:
        with self._turns("find"):
            return self._filesystem.find(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._filesystem, name)
        if name not in _REQUESTS:
            return method

        def in_turn(*arguments: Any, **options: Any) -> Any:
            with self._turns(name):
                return method(*arguments, **options)

        return in_turn


class InOneThread:
    """Calls that are begun at the same moment, made by who waits for them: the last one first."""

    def __init__(self) -> None:
        self._begun = threading.local()

    def begin(self, call: Callable[[], Any]) -> Task[Any]:
        task = _Begun(self.make_all)
        self._mine.append((task, call))
        return task

    def make_all(self) -> None:
        while self._mine:
            task, call = self._mine.pop()
            task.run(call)

    @property
    def _mine(self) -> list[tuple[Task[Any], Callable[[], Any]]]:
        if not hasattr(self._begun, "calls"):
            self._begun.calls = []
        calls: list[tuple[Task[Any], Callable[[], Any]]] = self._begun.calls
        return calls


class _Begun(Task[Any]):
    def __init__(self, make_all: Callable[[], None]) -> None:
        super().__init__()
        self._make_all = make_all

    def wait(self) -> tuple[Any, BaseException | None]:
        self._make_all()
        return super().wait()


def stepped(
    storage: Storage, turns: Turns, lock_timeout: float, *, last_first: bool = False
) -> Storage:
    """A storage whose calls take turns.

    Requests that an object store would be sent at the same moment come in their order, or with
    ``last_first`` in the opposite one.
    """
    changed = replace(storage, lock_timeout=lock_timeout)
    if storage.root.is_local:
        backend: Any = SteppedBackend(storage.backend, turns)
        return replace(changed, backend=backend)
    filesystem: Any = SteppedFilesystem(storage.root.filesystem, turns)
    root = replace(storage.root, filesystem=filesystem)
    stepped_backend: Any = open_backend(root)
    stepped_backend.begin = InOneThread().begin if last_first else make_at_once
    if not storage.capabilities.conditional_put:
        # It holds a lock of this process meanwhile: nobody else's turn may come.
        create = stepped_backend.create
        stepped_backend.create = lambda path, data: _in_one_turn(turns, create, path, data)
    return replace(changed, root=root, backend=stepped_backend)


def _in_one_turn(turns: Turns, call: Callable[..., object], *arguments: Any) -> None:
    with turns("create"):
        call(*arguments)


def step_listings(monkeypatch: pytest.MonkeyPatch, turns: Callable[[], Turns | None]) -> None:
    """Let listings of a local dataset wait for their turn, too."""
    list_files, entries_below = listing.list_files, listing.entries_below

    def wait(is_local: bool) -> None:
        current = turns()
        if current is not None and is_local:
            with current("list"):
                pass

    def list_in_turn(root: Root) -> Listing:
        wait(root.is_local)
        return list_files(root)

    def walk_in_turn(*arguments: Any) -> Any:
        wait(True)
        return entries_below(*arguments)

    monkeypatch.setattr(snapshot, "list_files", list_in_turn)
    monkeypatch.setattr(recovery, "entries_below", walk_in_turn)
