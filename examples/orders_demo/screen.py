"""What the demo shows on a terminal, and as plain lines elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager
    from types import TracebackType

_PLAIN_WIDTH = 100
_LABEL = 10


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

    def warn(self, label: str, text: str) -> None:
        """Print a fact that people should not miss."""
        self._console.print(f"   [bold red]{label:<{_LABEL}}[/]{escape(text)}", soft_wrap=True)

    def waiting(self, text: str) -> AbstractContextManager[object]:
        """Show, on a terminal, that something is being done."""
        return self._console.status(text)

    def batches(self, text: str, total: int) -> Batches:
        """Show, on a terminal, how many batches of a driver are done."""
        return Batches(self._console, text, total)

    def table(self, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
        """Print a table of numbers."""
        table = Table(box=None, padding=(0, 1), header_style="dim")
        for number, column in enumerate(columns):
            table.add_column(column, justify="right" if number else "left", no_wrap=True)
        for row in rows:
            table.add_row(*row)
        self._console.print(table)


class Batches:
    """A bar of the batches that a driver has applied."""

    def __init__(self, console: Console, text: str, total: int) -> None:
        columns = (TextColumn("   {task.description}"), BarColumn(40), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, transient=True)
        self._is_shown = console.is_terminal
        self._task = self._bar.add_task(text, total=total)

    def __enter__(self) -> Batches:
        if self._is_shown:
            self._bar.start()
        return self

    def advance(self) -> None:
        """Take note of one more batch."""
        self._bar.advance(self._task)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_shown:
            self._bar.stop()


def count(number: int, noun: str) -> str:
    """So many of something."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size(bytes_: int) -> str:
    """Bytes, for people."""
    return f"{bytes_ / 1e6:.1f} MB" if bytes_ >= 1e6 else f"{bytes_ / 1e3:.0f} kB"
