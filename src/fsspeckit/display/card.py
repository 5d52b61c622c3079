"""A card: what there is to see of a result, without a word about how it looks.

Values as JSON has them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, is_dataclass
from itertools import islice, takewhile
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "MOST_LINES",
    "Card",
    "FileGroup",
    "Listing",
    "Tone",
    "counted",
    "plain",
    "shortened",
    "size",
    "tone_of",
]


# --- A card: what there is to see of a result, without a word about how it looks ---

_T = TypeVar("_T")
_UNITS = ("B", "kB", "MB", "GB", "TB")

Tone = Literal[
    "changed", "added", "removed", "open", "partition", "statistics", "bloom", "scan", "kept"
]
"""What a group of files means, for its colour: files that change, files that may, and by which
evidence the others are left alone."""

MOST_LINES = 20
"""A table shows no more lines than this, and how many it leaves out."""


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files that have the same fate for the same reason."""

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
        """The first few items, a line for each."""
        shown = tuple(line(item) for item in islice(items, MOST_LINES))
        return cls(columns, shown, len(items) - len(shown))


@dataclass(frozen=True)
class Card:
    """What there is to see of a result."""

    title: str
    """The whole of it in one line."""

    groups: tuple[FileGroup, ...] = ()
    """Its files, by what happens to them and why; the picture shows these."""

    listing: Listing | None = None
    """Its files or its entries, one by one."""

    notes: tuple[str, ...] = ()
    """What a person should know besides."""

    @property
    def files(self) -> int:
        """How many files there are in all groups."""
        return sum(group.count for group in self.groups)

    def text(self) -> str:
        """The card as a few lines of plain text, without its listing."""
        lines = [self.title]
        if self.groups:
            lines.append(f"{counted(self.files, 'file')}: {', '.join(map(str, self.groups))}")
        return "\n".join([*lines, *self.notes])


_TONES: dict[str, Tone] = {
    "partition": "partition",
    "statistics": "statistics",
    "bloom": "bloom",
    "key scan": "scan",
}


def tone_of(evidence: str) -> Tone:
    """What it means that this kind of evidence rules a file out."""
    return _TONES.get(evidence, "kept")


def counted(count: int, what: str) -> str:
    """A number of things, with the right form of their name."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def shortened(paths: Iterable[str]) -> Callable[[str], str]:
    """A function that leaves out the directory all paths share, but no partition.

    A narrow table cuts the end of a long path, and that is what tells files apart.
    """
    directories = [path.split("/")[:-1] for path in paths]
    levels = takewhile(lambda level: len(set(level)) == 1, zip(*directories, strict=False))
    shared = [level[0] for level in levels]
    while shared and "=" in shared[-1]:
        shared.pop()
    start = "".join(f"{part}/" for part in shared)
    return lambda path: path.removeprefix(start)


def size(count: int | None) -> str:
    """A number of bytes, for a person."""
    if count is None:
        return ""
    if count < 1000:
        return f"{count} B"
    power = next((power for power in (1, 2, 3) if count < 999.95 * 1000**power), 4)
    return f"{count / 1000**power:,.1f} {_UNITS[power]}"


# --- Values as JSON has them ---


def plain(value: Any) -> Any:
    """A value as ``json`` writes it: dictionaries, lists, texts, numbers, booleans and None.

    What JSON does not have, such as a date or NaN, is told as text.

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
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, Collection) and not isinstance(value, (bytes, bytearray)):
        return [plain(inner) for inner in value]
    return str(value)


def _number(value: Real) -> int | float | str:
    if isinstance(value, Integral):
        return int(value)
    return float(value) if math.isfinite(value) else str(float(value))
