"""How much memory and how many bytes written a merge takes, as the kernel reports it."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_MEGABYTE = 1e6


@dataclass(frozen=True)
class Used:
    """What was used, in megabytes."""

    memory: float
    written: float


class Before:
    """The state before a merge; :meth:`used` tells what was added since.

    Args:
        processes: Whether other processes take part, as on Spark. Then memory is what all of them
            held at once at most, and bytes written are those of new files; else both are those of
            this process: the peak above the beginning, and what it handed to ``write``.
        directory: Where new files are looked for.
    """

    def __init__(self, *, processes: bool, directory: Path) -> None:
        self._directory = directory
        self._watch = _Watch() if processes else None
        self._files = _files(directory) if processes else {}
        if self._watch is None:
            Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
            self._resident = _status("VmRSS")
            self._written = _written()

    def used(self) -> Used:
        """What was used since."""
        if self._watch is None:
            peak = _status("VmHWM") - self._resident
            return Used(peak / _MEGABYTE, (_written() - self._written) / _MEGABYTE)
        peak = self._watch.stop()
        new = sum(size for file, size in _files(self._directory).items() if file not in self._files)
        return Used(peak / _MEGABYTE, new / _MEGABYTE)


def _status(name: str, pid: int | str = "self") -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0  # it has ended meanwhile
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), 0)


def _written() -> int:
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("wchar:"):
            return int(line.split()[1])
    return 0


def _files(directory: Path) -> dict[tuple[int, int], int]:
    """The sizes of files, by what a move or a link keeps and new bytes do not."""
    found = {}
    for root, _, names in os.walk(directory):
        for name in names:
            facts = os.lstat(f"{root}/{name}")
            found[facts.st_ino, facts.st_mtime_ns] = facts.st_size
    return found


class _Watch:
    """Looks at the memory of this process and of all below it, ten times a second."""

    def __init__(self) -> None:
        self._peak = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while True:
            self._peak = max(self._peak, sum(_status("VmRSS", pid) for pid in _tree(os.getpid())))
            if self._done.wait(0.1):
                return

    def stop(self) -> int:
        self._done.set()
        self._thread.join()
        return self._peak


def _tree(top: int) -> Iterator[int]:
    """A process and those that it and its threads have started."""
    yield top
    for children in Path(f"/proc/{top}/task").glob("*/children"):
        try:
            started = [int(pid) for pid in children.read_text().split()]
        except OSError:
            continue  # it has ended meanwhile
        for pid in started:
            yield from _tree(pid)
