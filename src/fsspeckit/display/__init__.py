"""How results look: as text, on a terminal and in a notebook, and how a call tells its progress.

A result says what there is to see as a :class:`~fsspeckit.display.card.Card`; how it looks is
decided in here, once for all results. Nothing is imported from rich before something is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fsspeckit.display.card import (
    MOST_LINES,
    Card,
    FileGroup,
    Listing,
    Tone,
    counted,
    plain,
    shortened,
    size,
    tone_of,
)
from fsspeckit.display.progress import Progress, reporting

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = [
    "MOST_LINES",
    "Card",
    "Displayed",
    "FileGroup",
    "Listing",
    "Progress",
    "Tone",
    "counted",
    "plain",
    "reporting",
    "shortened",
    "size",
    "tone_of",
]


class Displayed:
    """Gives a result its looks: ``str``, a table of rich, HTML for notebooks, a dictionary."""

    __slots__ = ()

    def _card(self) -> Card:
        """What there is to see."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Everything that the result says, by name, as values that ``json`` can write."""
        told: dict[str, Any] = plain(self)
        return told

    def __str__(self) -> str:
        return self._card().text()

    def __rich__(self) -> RenderableType:
        from fsspeckit.display.render import as_rich

        return as_rich(self._card())

    def _repr_html_(self) -> str:
        from fsspeckit.display.render import as_html

        return as_html(self._card())
