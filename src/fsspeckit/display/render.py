"""Render cards: as HTML with a small picture for notebooks, and with rich for terminals."""

from __future__ import annotations

from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from fsspeckit.display.card import MAX_LINES, Lane, Mark, counted, size

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

_TERMINAL_WIDTH = 40

_AXIS_WIDTH, _NAME_WIDTH, _NOTE_WIDTH = 480, 150, 170
_LANE_HEIGHT, _BAR_HEIGHT, _AXIS_HEIGHT = 20, 14, 22
_TEXT_WIDTH = 6.2
"""About the width of a letter, to cut names that would not fit."""

_MAX_MARKS = 240
"""Files of a lane that are drawn one by one; of more, neighbours share a column."""

_COLUMNS = 160
_GAP = 1.0
_MIN_WIDTH = 1.5
_STRONGEST_FIRST: tuple[Tone, ...] = (
    *("removed", "changed", "added", "open"),
    *("scan", "bloom", "statistics", "partition", "kept"),
)
"""The colour of a column is that of the strongest tone of its files, so that one stays visible."""


def as_html(card: Card, lanes: Sequence[Lane] = ()) -> str:
    """Return a card as HTML: title, picture, legend and a table; every text is escaped.

    It has no script, no style sheet and nothing that is loaded, and takes the colour of text from
    the page around it. Viewers that drop the picture show the legend, which says the same in words.
    """
    parts = [f"<strong>{escape(card.title)}</strong>"]
    if not any(lane.marks for lane in lanes):
        lanes = _lanes_of(card.groups)
    if lanes:
        parts.append(f'<div style="margin:4px 0">{picture(lanes)}</div>')
    if card.files:
        parts.append(_legend(card.groups))
    if card.listing is not None and card.listing.lines:
        parts.append(_listing(card.listing))
    parts += [f"<div><em>{escape(note)}</em></div>" for note in card.notes]
    return f'<div class="fsspeckit">{"".join(parts)}</div>'


def _lanes_of(groups: Sequence[FileGroup]) -> list[Lane]:
    """Return files of which only the groups are known: each has the same width."""
    marks = [
        Mark("", group.tone, None, group.count, group.label) for group in groups if group.count
    ]
    return [Lane(tuple(marks))] if marks else []


def picture(lanes: Sequence[Lane]) -> str:
    """Return files as an inline SVG: lanes above one axis, each file as wide as it has bytes.

    If the bytes of a file are not known, the axis counts files.
    """
    lanes, left_out = lanes[:MAX_LINES], max(0, len(lanes) - MAX_LINES)
    marks = [mark for lane in lanes for mark in lane.marks]
    in_bytes = all(mark.bytes is not None for mark in marks) and any(m.bytes for m in marks)
    longest = max(sum(_weight(mark, in_bytes) for mark in lane.marks) for lane in lanes)
    left = _NAME_WIDTH if any(lane.name for lane in lanes) else 0
    right = _NOTE_WIDTH if any(lane.note for lane in lanes) else 0
    shapes: list[str] = []
    for number, lane in enumerate(lanes):
        y = number * _LANE_HEIGHT
        shapes += _lane(lane, y, left, _AXIS_WIDTH / longest, in_bytes)
    y = len(lanes) * _LANE_HEIGHT
    shapes += _axis(y, left, longest, in_bytes, left_out)
    width, height = left + _AXIS_WIDTH + right, y + _AXIS_HEIGHT
    files = counted(sum(mark.count for mark in marks), "file")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" style="max-width:100%" font-family="sans-serif" '
        f'font-size="11"><title>{files}</title>{"".join(shapes)}</svg>'
    )


def _weight(mark: Mark, in_bytes: bool) -> int:
    return (mark.bytes or 0) if in_bytes else mark.count


def _lane(lane: Lane, y: int, left: int, scale: float, in_bytes: bool) -> Iterator[str]:
    if lane.name:
        yield _text(lane.name, 0, y, _NAME_WIDTH)
    weights = [_weight(mark, in_bytes) * scale for mark in lane.marks]
    if sum(mark.count for mark in lane.marks) <= _MAX_MARKS:
        shapes = _files(lane.marks, weights)
    else:
        shapes = _columns(lane.marks, weights)
    by_tone: dict[Tone, list[str]] = {}
    for tone, x, width, title in shapes:
        rect = f'<rect x="{left + x:.1f}" y="{y + 2}" width="{width:.1f}" height="{_BAR_HEIGHT}"'
        titled = f"><title>{escape(title)}</title></rect>" if title else "/>"
        by_tone.setdefault(tone, []).append(rect + titled)
    for tone, rects in by_tone.items():
        yield f'<g fill="{COLOURS[tone]}">{"".join(rects)}</g>'
    if lane.note:
        yield _text(lane.note, left + _AXIS_WIDTH + 8, y, _NOTE_WIDTH)


def _files(
    marks: Sequence[Mark], widths: Sequence[float]
) -> Iterator[tuple[Tone, float, float, str]]:
    """Draw each file; even one of a few bytes stays visible."""
    x = 0.0
    for mark, width in zip(marks, widths, strict=True):
        for _ in range(mark.count):
            one = width / mark.count
            yield mark.tone, x, max(_MIN_WIDTH, one - _GAP), str(mark)
            x += one


def _columns(
    marks: Sequence[Mark], widths: Sequence[float]
) -> Iterator[tuple[Tone, float, float, str]]:
    """Draw neighbours of one tone as one; a single file among thousands stays visible."""
    total = sum(widths)
    step = total / _COLUMNS
    tones: list[Tone | None] = [None] * _COLUMNS
    x = 0.0
    for mark, width in zip(marks, widths, strict=True):
        first = min(_COLUMNS - 1, int(x / step))
        last = max(first, min(_COLUMNS - 1, int((x + width) / step - 1e-9)))
        for column in range(first, last + 1):
            before = tones[column]
            tones[column] = mark.tone if before is None else _stronger(before, mark.tone)
        x += width
    column = 0
    for tone, run in groupby(tones):
        length = len(list(run))
        if tone is not None:
            yield tone, column * step, length * step, ""
        column += length


def _stronger(one: Tone, other: Tone) -> Tone:
    return min(one, other, key=_STRONGEST_FIRST.index)


def _axis(y: int, left: int, longest: int, in_bytes: bool, left_out: int) -> Iterator[str]:
    """Draw the axis, which says what the width of a file means."""
    line = 'stroke="currentColor" stroke-opacity="0.5"'
    yield f'<line x1="{left}" y1="{y + 2}" x2="{left + _AXIS_WIDTH}" y2="{y + 2}" {line}/>'
    ends = ("0", size(longest) if in_bytes else counted(longest, "file"))
    for part, anchor, text in zip((0, 1), ("start", "end"), ends, strict=True):
        x = left + part * _AXIS_WIDTH
        yield f'<line x1="{x}" y1="{y + 2}" x2="{x}" y2="{y + 6}" {line}/>'
        yield (
            f'<text x="{x}" y="{y + 17}" text-anchor="{anchor}" fill="currentColor">'
            f"{escape(text)}</text>"
        )
    if left_out:
        middle = left + _AXIS_WIDTH / 2
        yield (
            f'<text x="{middle}" y="{y + 17}" text-anchor="middle" fill="currentColor">'
            f"… and {left_out:,} more</text>"
        )


def _text(text: str, x: int, y: int, width: int) -> str:
    """Draw a text that is cut where it would not fit; its title has all of it."""
    most = int(width / _TEXT_WIDTH)
    short = text if len(text) <= most else f"{text[: most - 1]}…"
    return (
        f'<text x="{x}" y="{y + 13}" fill="currentColor"><title>{escape(text)}</title>'
        f"{escape(short)}</text>"
    )


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
