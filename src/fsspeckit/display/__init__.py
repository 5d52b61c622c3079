"""Show results as text, on a terminal and in a notebook, and report what a call does meanwhile.

A result describes itself as a :class:`~fsspeckit.display.card.Card`, which this package renders.
rich is imported only when something is shown.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fsspeckit.display.card import (
    MAX_LINES,
    Card,
    FileGroup,
    Lane,
    Listing,
    Mark,
    Tone,
    counted,
    lanes_by_partition,
    plain,
    shortened,
    size,
    tone_of,
)
from fsspeckit.display.progress import Progress, report_nothing, show_progress
from fsspeckit.display.telemetry import (
    Fact,
    PhaseListener,
    Phases,
    add_facts,
    log_to_stream,
    observed_call,
    reporting,
    warn,
    without_queries,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

__all__ = [
    "MAX_LINES",
    "Card",
    "Displayed",
    "Fact",
    "FileGroup",
    "Lane",
    "Listing",
    "Mark",
    "Paged",
    "PhaseListener",
    "Phases",
    "Progress",
    "Tone",
    "add_facts",
    "counted",
    "lanes_by_partition",
    "log_to_stream",
    "observed_call",
    "plain",
    "report_nothing",
    "reporting",
    "shortened",
    "show_progress",
    "size",
    "tone_of",
    "warn",
    "without_queries",
]


class Displayed:
    """Renders a result: ``str``, a table of rich, HTML for notebooks, a dictionary."""

    __slots__ = ()

    def _card(self) -> Card:
        """Return what to show."""
        raise NotImplementedError

    def _lanes(self) -> Sequence[Lane]:
        """Return its files as a picture shows them; by default those of its groups."""
        return ()

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

        return as_html(self._card(), self._lanes())

    def _repr_mimebundle_(self, **options: object) -> dict[str, str]:
        """Return what viewers of notebooks choose from; all of them have text or HTML."""
        return {"text/html": self._repr_html_(), "text/plain": str(self)}


class Paged:
    """Shows a result as a page for a browser, with the dataset that it is about."""

    __slots__ = ()

    def to_html(self) -> str:
        """Return a page that needs no network: files, key ranges, evidence, commits.

        The dataset is read as it is now, from paths, footers and commit records. Where it is not
        known any more, as for a plan of another process, the page shows what the result has.
        """
        # By its name, as engines are loaded: a page shows what the layers above know.
        page: str = import_module("fsspeckit.report").page_of(self)
        return page
