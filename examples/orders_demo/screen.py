"""What the demo shows on a terminal, and as plain lines elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    from fsspeckit.core.planning import FilePlan, MergePlan

_PLAIN_WIDTH = 100
_LABEL = 10
_CHAIN = ("partition", "statistics", "bloom", "key scan", "none")
"""The kinds of evidence, in the order in which they are asked."""


class Screen:
    """Prints the story."""

    def __init__(self) -> None:
        console = Console(highlight=False)
        # A file or a pipe has no width: one that does not break the lines.
        self._console = (
            console if console.is_terminal else Console(highlight=False, width=_PLAIN_WIDTH)
        )
        self._chapter = 0

    def chapter(self, title: str) -> None:
        """Begin a part of the story."""
        self._chapter += 1
        self._console.print(f"\n[bold cyan]{self._chapter}  {escape(title)}[/]")

    def say(self, label: str, text: str) -> None:
        """Print a fact."""
        self._console.print(f"   [dim]{label:<{_LABEL}}[/]{escape(text)}", soft_wrap=True)

    def waiting(self, text: str) -> AbstractContextManager[object]:
        """Show, on a terminal, that something is being done."""
        return self._console.status(text)

    def plan(self, plan: MergePlan) -> None:
        """Print what is decided about the files, those with the same reason in one line."""
        groups: dict[tuple[str, str], list[FilePlan]] = {}
        for file in plan.files:
            groups.setdefault((file.decision, _reason(file)), []).append(file)
        chain = sorted(groups, key=lambda group: _rank(groups[group][0]))
        for number, (decision, reason) in enumerate(chain):
            files = groups[decision, reason]
            colour = "green" if decision == "pruned" else "yellow"
            self._console.print(
                f"   [dim]{'' if number else 'plan':<{_LABEL}}[/]{count(len(files), 'file'):>9} "
                f"[{colour}]{decision:<8}[/] {escape(reason)}{escape(_detail(files))}",
                soft_wrap=True,
            )

    def phases(self) -> Phases:
        """What to give to ``progress=``: a bar for each phase, then one line of seconds."""
        return Phases(self._console)

    def table(self, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
        """Print a table of numbers."""
        table = Table(box=None, padding=(0, 2), header_style="dim")
        for number, column in enumerate(columns):
            table.add_column(column, justify="right" if number else "left", no_wrap=True)
        for row in rows:
            table.add_row(*row)
        self._console.print(table)


class Phases:
    """Follows the phases of a merge."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars: Progress | None = None
        if console.is_terminal:
            columns = (TextColumn("   {task.description:<10}"), BarColumn(40), TimeElapsedColumn())
            self._bars = Progress(*columns, console=console, transient=True)
        self._tasks: dict[str, TaskID] = {}
        self._seconds: dict[str, float] = {}
        self._started = 0.0

    def __enter__(self) -> Phases:
        if self._bars is not None:
            self._bars.start()
        return self

    def __call__(self, phase: str, done: int, total: int) -> None:
        """Take note of how far a phase is."""
        if phase not in self._seconds:
            self._started = time.perf_counter()
        self._seconds[phase] = time.perf_counter() - self._started
        if self._bars is not None:
            if phase not in self._tasks:
                self._tasks[phase] = self._bars.add_task(phase)
            self._bars.update(self._tasks[phase], completed=done, total=max(total, 1))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bars is not None:
            self._bars.stop()
        if error is None:
            seconds = (f"{phase} {spent:.1f} s" for phase, spent in self._seconds.items())
            self._console.print(f"   [dim]{'merge':<{_LABEL}}[/]{', '.join(seconds)}")


def count(number: int, noun: str) -> str:
    """So many of something."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _reason(file: FilePlan) -> str:
    about = f" of {', '.join(file.evidence.columns)}" if file.evidence.columns else ""
    return f"{file.evidence.kind}{about}"


def _rank(file: FilePlan) -> tuple[bool, int]:
    """What was left alone first, by the evidence that was asked first."""
    return file.decision != "pruned", _CHAIN.index(file.evidence.kind)


def _detail(files: Sequence[FilePlan]) -> str:
    """What proved it; where each file has its own proof, that of one of them."""
    if files[0].decision == "affected":
        return ": source keys found"
    details = {file.evidence.detail for file in files}
    example = files[len(files) // 2].evidence.detail
    if not example:
        return ""
    return f": {example}" if len(details) == 1 else f", such as {example}"
