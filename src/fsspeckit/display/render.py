"""Render cards: as HTML with a small picture for notebooks, and with rich for terminals."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from fsspeckit.display.card import counted, size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from fsspeckit.display.card import Card, FileGroup, Listing, Tone

__all__ = ["COLOURS", "as_html", "as_rich", "picture"]

_LOOKS: dict[Tone, tuple[str, str]] = {
    "changed": ("#e69f00", "yellow"),
    "added": ("#009e73", "green"),
    "removed": ("#d55e00", "red"),
    "open": ("#cc79a7", "magenta"),
    "partition": ("#56b4e9", "cyan"),
    "statistics": ("#0072b2", "blue"),
    "bloom": ("#5e6fc4", "bright_blue"),
    "scan": ("#7f9fb0", "bright_cyan"),
    "kept": ("#9a9a9a", "dim"),
}
COLOURS = {tone: colour for tone, (colour, _) in _LOOKS.items()}
"""A palette for notebooks that colour-blind readers can distinguish."""

STYLES = {tone: style for tone, (_, style) in _LOOKS.items()}
"""The same for terminals."""

_MAX_SQUARES = 240
_PER_ROW = 40
_SQUARE, _STEP = 10, 12
_WIDTH = _PER_ROW * _STEP
_BAR_HEIGHT = 16
_MIN_BAR_WIDTH = 3.0
_TERMINAL_WIDTH = 40


def as_html(card: Card) -> str:
    """Return a card as HTML: title, picture, legend and a table; every text is escaped."""
    parts = [f"<strong>{escape(card.title)}</strong>"]
    if card.files:
        parts += [f"<div>{picture(card.groups)}</div>", _legend(card.groups)]
    if card.listing is not None and card.listing.lines:
        parts.append(_listing(card.listing))
    parts += [f"<div><em>{escape(note)}</em></div>" for note in card.notes]
    return f'<div class="fsspeckit">{"".join(parts)}</div>'


def picture(groups: Sequence[FileGroup]) -> str:
    """Return files as an inline SVG: a square for each, or one bar if there are too many."""
    files = sum(group.count for group in groups)
    as_squares = files <= _MAX_SQUARES
    shapes = list(_squares(groups) if as_squares else _bar(groups, files))
    height = -(-files // _PER_ROW) * _STEP if as_squares else _BAR_HEIGHT
    title = escape(f"{counted(files, 'file')}: {', '.join(map(str, groups))}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}"><title>{title}</title>{"".join(shapes)}</svg>'
    )


def _squares(groups: Sequence[FileGroup]) -> Iterator[str]:
    number = 0
    for group in groups:
        shapes = []
        for _ in range(group.count):
            x, y = number % _PER_ROW * _STEP, number // _PER_ROW * _STEP
            shapes.append(f'<rect x="{x}" y="{y}" width="{_SQUARE}" height="{_SQUARE}" rx="2"/>')
            number += 1
        yield _coloured(group, "".join(shapes))


def _bar(groups: Sequence[FileGroup], files: int) -> Iterator[str]:
    """Draw one bar, divided by counts; a single file among thousands stays visible."""
    wide = [max(_MIN_BAR_WIDTH, _WIDTH * group.count / files) for group in groups if group.count]
    scale = _WIDTH / sum(wide)
    x = 0.0
    for group, width in zip((group for group in groups if group.count), wide, strict=True):
        shape = f'<rect x="{x:.1f}" y="0" width="{width * scale:.1f}" height="{_BAR_HEIGHT}"/>'
        yield _coloured(group, shape)
        x += width * scale


def _coloured(group: FileGroup, shapes: str) -> str:
    return f'<g fill="{COLOURS[group.tone]}"><title>{escape(str(group))}</title>{shapes}</g>'


def _legend(groups: Sequence[FileGroup]) -> str:
    entries = [
        f'<span style="color:{COLOURS[group.tone]}">&#9632;</span> {escape(str(group))}'
        + (f" ({size(group.bytes)})" if group.bytes is not None else "")
        for group in groups
    ]
    return f"<div>{' &nbsp; '.join(entries)}</div>"


def _listing(listing: Listing) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in listing.columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>" for line in listing.lines
    )
    if listing.left_out:
        body += (
            f'<tr><td colspan="{len(listing.columns)}">… and {listing.left_out:,} more</td></tr>'
        )
    return (
        "<details><summary>one by one</summary>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></details>"
    )


def as_rich(card: Card) -> RenderableType:
    """Return a card as rich shows it; texts are taken literally, not as markup."""
    parts: list[RenderableType] = [Text(card.title, style="bold")]
    if card.groups:
        parts.append(_groups(card))
    if card.listing is not None and card.listing.lines:
        parts.append(_terminal_listing(card.listing))
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
            _terminal_bar(group, card.files),
        )
    return table


def _terminal_bar(group: FileGroup, files: int) -> Text:
    """Draw the share of a group in all files; even a small one stays visible."""
    return Text(
        "█" * max(1, round(_TERMINAL_WIDTH * group.count / files)), style=STYLES[group.tone]
    )


def _terminal_listing(listing: Listing) -> Table:
    table = Table(*listing.columns, box=None, pad_edge=False, header_style="dim")
    for line in listing.lines:
        table.add_row(*map(Text, line))
    if listing.left_out:
        table.add_row(Text(f"… and {listing.left_out:,} more", style="dim"))
    return table
