"""Show the progress of a call: what ``progress=`` accepts, and the bars of ``progress=True``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

__all__ = ["Progress", "report_nothing", "show_progress"]

Progress = Callable[[str, int, int], None]
"""Called with the phase, how much of it is done, and how much there is."""


def report_nothing(phase: str, done: int, total: int) -> None:
    """Ignore the progress of a call: nobody asked for it, or nobody sees it."""


@contextmanager
def show_progress(is_wanted: bool = True) -> Iterator[Progress]:
    """Return the function that shows progress, for the time of a call.

    It draws bars on standard error if that is a terminal, and prints a line for each phase in a
    notebook; otherwise, or if not ``is_wanted``, it is `report_nothing`.
    """
    if is_wanted and _in_notebook():
        yield _Lines()
    elif is_wanted and sys.stderr.isatty():
        with _bars() as bars:
            yield bars
    else:
        yield report_nothing


def _in_notebook() -> bool:
    """Whether this is the kernel of a notebook, which has no terminal but shows stderr."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


class _Counts:
    """The current phase, which begins with 0 of 1, counts files or tasks, and ends with 1 of 1."""

    def __init__(self) -> None:
        self.phase = ""
        self.done = 0
        self.total = 1
        self.started = 0.0

    def count(self, phase: str, done: int, total: int) -> bool:
        """Count an event, and return whether it ends the phase."""
        if phase != self.phase or (done, total) == (0, 1):
            self.phase, self.done, self.total = phase, 0, 1
            self.started = time.perf_counter()
        ends = (done, total) == (1, 1)
        if ends:
            self.done = self.total
        else:
            self.done, self.total = done, total
        return ends


class _Lines(_Counts):
    """A line on standard error at the end of each phase."""

    def __call__(self, phase: str, done: int, total: int) -> None:
        if self.count(phase, done, total):
            seconds = time.perf_counter() - self.started
            counted = f"{self.total:,} of {self.total:,}, " if self.total > 1 else ""
            sys.stderr.write(f"{phase}: {counted}{seconds:.1f} s\n")


class _Bars:
    """A bar of rich for each phase, in the order in which phases begin."""

    def __init__(self, bars: RichProgress) -> None:
        self._bars = bars
        self._counts: dict[str, tuple[TaskID, _Counts]] = {}

    def __call__(self, phase: str, done: int, total: int) -> None:
        if phase not in self._counts:
            self._counts[phase] = (self._bars.add_task(phase, total=1, counted=""), _Counts())
        task, counts = self._counts[phase]
        counts.count(phase, done, total)
        if (done, total) == (0, 1):
            self._bars.reset(task)
        text = self._rate(task, counts)
        self._bars.update(task, completed=counts.done, total=counts.total, counted=text)

    def _rate(self, task: TaskID, counts: _Counts) -> str:
        if counts.total <= 1:
            return ""
        seconds = self._bars.tasks[task].elapsed
        rate = f", {counts.done / seconds:,.0f}/s" if seconds else ""
        return f"{counts.done:,} of {counts.total:,}{rate}"


@contextmanager
def _bars() -> Iterator[_Bars]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description:<8}"),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[counted]}"),
        TimeElapsedColumn(),
    )
    streams = sys.stdout, sys.stderr
    try:
        with RichProgress(*columns, console=Console(stderr=True)) as bars:
            yield _Bars(bars)
    finally:
        # Bars replace the streams while they are shown. An interrupt may keep them from restoring
        # the streams, and messages would be lost in a console that has ended.
        sys.stdout, sys.stderr = streams
