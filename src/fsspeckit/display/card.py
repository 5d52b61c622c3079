"""Cards, which say what to show of a result and not how; and results as values of JSON."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, is_dataclass
from itertools import islice, takewhile
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = [
    "MAX_LINES",
    "Card",
    "FileGroup",
    "Lane",
    "Listing",
    "Mark",
    "Tone",
    "counted",
    "lanes_by_partition",
    "plain",
    "shortened",
    "size",
    "tone_of",
]

_T = TypeVar("_T")
_UNITS = ("B", "kB", "MB", "GB", "TB")

Tone = Literal[
    "changed", "added", "removed", "open", "partition", "statistics", "bloom", "scan", "kept"
]
"""What happens to a group of files, for its colour: which files change, which may change, and which
evidence rules the others out."""

MAX_LINES = 20
"""The most lines that a table shows; below them it shows how many are left out."""


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files with the same decision for the same reason."""

    label: str
    tone: Tone
    count: int
    bytes: int | None = None

    def __str__(self) -> str:
        return f"{self.count:,} {self.label}"


@dataclass(frozen=True, slots=True)
class Listing:
    """A table: a header, some lines, and how many lines it leaves out."""

    columns: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    left_out: int = 0

    @classmethod
    def of(
        cls,
        columns: tuple[str, ...],
        items: Collection[_T],
        line: Callable[[_T], tuple[str, ...]],
    ) -> Listing:
        """Return a table of the first items, a line for each."""
        lines = tuple(line(item) for item in islice(items, MAX_LINES))
        return cls(columns, lines, len(items) - len(lines))


@dataclass(frozen=True, slots=True)
class Mark:
    """One file in a picture, or several that are not distinguished."""

    name: str
    tone: Tone
    bytes: int | None = None
    count: int = 1
    label: str = ""
    """What happens to it and why; empty for its name alone."""

    def __str__(self) -> str:
        parts = (self.name, self.label, size(self.bytes))
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Lane:
    """One line of a picture: files side by side on an axis, such as those of a partition."""

    marks: tuple[Mark, ...]
    name: str = ""
    """What is written before it."""

    note: str = ""
    """What is written behind it."""


@dataclass(frozen=True)
class Card:
    """What to show of a result."""

    title: str
    """A summary in one line."""

    groups: tuple[FileGroup, ...] = ()
    """Its files, by what happens to them and why."""

    listing: Listing | None = None
    """Its files or entries, one by one."""

    notes: tuple[str, ...] = ()
    """What else a reader should know."""

    @property
    def files(self) -> int:
        """The number of files in all groups."""
        return sum(group.count for group in self.groups)

    def text(self) -> str:
        """Return the card as plain text, without its listing."""
        lines = [self.title]
        if self.groups:
            lines.append(f"{counted(self.files, 'file')}: {', '.join(map(str, self.groups))}")
        return "\n".join([*lines, *self.notes])


_TONES: dict[str, Tone] = {
    "partition": "partition",
    "statistics": "statistics",
    "bloom": "bloom",
    "key index": "scan",
    "key scan": "scan",
}


def tone_of(evidence: str) -> Tone:
    """Return the tone of files that this kind of evidence rules out."""
    return _TONES.get(evidence, "kept")


def lanes_by_partition(marks: Iterable[Mark]) -> tuple[Lane, ...]:
    """Return files as a lane for each directory; all in one if there are too many directories.

    Args:
        marks: The files, by their paths below the dataset.
    """
    found: dict[str, list[Mark]] = {}
    for mark in sorted(marks, key=lambda one: one.name):
        found.setdefault(mark.name.rpartition("/")[0], []).append(mark)
    if len(found) > MAX_LINES:
        return (Lane(tuple(mark for some in found.values() for mark in some)),)
    return tuple(Lane(tuple(some), name, _sum_of(some)) for name, some in found.items())


def _sum_of(marks: Sequence[Mark]) -> str:
    files = counted(sum(mark.count for mark in marks), "file")
    if any(mark.bytes is None for mark in marks):
        return files
    return f"{files}, {size(sum(mark.bytes or 0 for mark in marks))}"


def counted(count: int, what: str) -> str:
    """Return a number and a noun, which gets an ``s`` unless the number is 1."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def shortened(paths: Iterable[str]) -> Callable[[str], str]:
    """Return a function that removes the directory all paths share, but no partition.

    A narrow table cuts off the end of a long path, in which files differ.
    """
    directories = [path.split("/")[:-1] for path in paths]
    levels = takewhile(lambda level: len(set(level)) == 1, zip(*directories, strict=False))
    shared = [level[0] for level in levels]
    while shared and "=" in shared[-1]:
        shared.pop()
    start = "".join(f"{part}/" for part in shared)
    return lambda path: path.removeprefix(start)


def size(count: int | None) -> str:
    """Return a number of bytes with a unit."""
    if count is None:
        return ""
    if count < 1000:
        return f"{count} B"
    power = next((power for power in (1, 2, 3) if count < 999.95 * 1000**power), 4)
    return f"{count / 1000**power:,.1f} {_UNITS[power]}"


def plain(value: Any) -> Any:
    """Return a value as ``json`` can write it: dictionaries, lists, texts, numbers, booleans, None.

    What JSON does not have, such as a date or NaN, becomes text. Fields that are left out of the
    ``repr`` of their class are left out here, too.

    Examples:
        >>> import datetime
        >>> plain({"days": (datetime.date(2026, 1, 2), None), "share": float("nan")})
        {'days': ['2026-01-02', None], 'share': 'nan'}
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Real):
        return _number(value)
    if is_dataclass(value):
        return {
            field.name: plain(getattr(value, field.name)) for field in fields(value) if field.repr
        }
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, Collection) and not isinstance(value, (bytes, bytearray)):
        return [plain(inner) for inner in value]
    return str(value)


def _number(value: Real) -> int | float | str:
    if isinstance(value, Integral):
        return int(value)
    return float(value) if math.isfinite(value) else str(float(value))
