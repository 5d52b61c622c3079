"""Cards on a terminal, drawn by rich."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from fsspeckit.display.card import size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fsspeckit.display.card import Card, FileGroup, Listing, Tone

__all__ = ["as_rich"]

STYLES: dict[Tone, str] = {
    "changed": "yellow",
    "added": "green",
    "removed": "red",
    "open": "magenta",
    "partition": "cyan",
    "statistics": "blue",
    "bloom": "bright_blue",
    "scan": "bright_cyan",
    "kept": "dim",
}
_WIDTH = 40


def as_rich(card: Card) -> RenderableType:
    """A card as rich shows it; every text is taken literally, not as markup."""
    parts: list[RenderableType] = [Text(card.title, style="bold")]
    if card.groups:
        parts.append(_groups(card))
    if card.listing is not None and card.listing.lines:
        parts.append(_listing(card.listing))
    parts += [Text(note, style="italic") for note in card.notes]
    return Group(*parts)


def _groups(card: Card) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for justify in ("right", "left", "right", "left"):
        table.add_column(justify=justify)
    for group in card.groups:
        table.add_row(
            f"{group.count:,}",
            Text(group.label, style=STYLES[group.tone]),
            size(group.bytes),
            _bar(group, card.files),
        )
    return table


def _bar(group: FileGroup, files: int) -> Text:
    """How many of all files a group has; one that has any is never invisible."""
    return Text("█" * max(1, round(_WIDTH * group.count / files)), style=STYLES[group.tone])


def _listing(listing: Listing) -> Table:
    table = Table(*listing.columns, box=None, pad_edge=False, header_style="dim")
    for line in listing.lines:
        table.add_row(*map(Text, line))
    if listing.left_out:
        table.add_row(Text(f"… and {listing.left_out:,} more", style="dim"))
    return table
