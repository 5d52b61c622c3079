"""Show results as text, on a terminal and in a notebook, and show the progress of a call.

A result describes itself as a :class:`~fsspeckit.display.card.Card`, which this package renders.
rich is imported only when something is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fsspeckit.display.card import (
    MAX_LINES,
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
from fsspeckit.display.progress import Progress, report_nothing, show_progress

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = [
    "MAX_LINES",
    "Card",
    "Displayed",
    "FileGroup",
    "Listing",
    "Progress",
    "Tone",
    "counted",
    "plain",
    "report_nothing",
    "shortened",
    "show_progress",
    "size",
    "tone_of",
]


class Displayed:
    """Renders a result: ``str``, a table of rich, HTML for notebooks, a dictionary."""

    __slots__ = ()

    def _card(self) -> Card:
        """Return what to show."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return all fields of the result, by name, as values that ``json`` can write."""
        fields: dict[str, Any] = plain(self)
        return fields

    def __str__(self) -> str:
        return self._card().text()

    def __rich__(self) -> RenderableType:
        from fsspeckit.display.render import as_rich

        return as_rich(self._card())

    def _repr_html_(self) -> str:
        from fsspeckit.display.render import as_html

        return as_html(self._card())
