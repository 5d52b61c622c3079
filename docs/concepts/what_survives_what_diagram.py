"""Draws what a death leads to, by its moment: run it as a script to write the SVG beside it."""

from __future__ import annotations

from html import escape
from pathlib import Path

PHASES = ["stage", "plan", "match", "rewrite", "insert", "lock, check", "record", "publish", "done"]
RECORD, PUBLISHED = PHASES.index("record"), PHASES.index("publish")
WIDTH, LEFT, TOP, CELL, HEIGHT = 900, 150, 40, 82, 34
OLD, NEW, EITHER, POINT = "#eef2f7", "#e3f4e6", "#fdf1d6", "#ffd166"

ROWS: list[tuple[str, list[tuple[int, int, str, str]]]] = [
    (
        "if it dies here",
        [
            (0, RECORD - 1, OLD, "unchanged; the next writer removes leftovers"),
            (RECORD, len(PHASES) - 1, NEW, "committed; recovery completes it"),
        ],
    ),
    (
        "read_dataset sees",
        [
            (0, RECORD - 1, OLD, "the old rows"),
            (RECORD, len(PHASES) - 1, NEW, "the new rows"),
        ],
    ),
    (
        "other readers see",
        [
            (0, RECORD, OLD, "the old rows"),
            (PUBLISHED, PUBLISHED, EITHER, "old or new"),
            (PUBLISHED + 1, len(PHASES) - 1, NEW, "new rows"),
        ],
    ),
    (
        "the call raises",
        [
            (0, RECORD - 1, OLD, "any error but CommitPendingError"),
            (RECORD, len(PHASES) - 1, NEW, "CommitPendingError"),
        ],
    ),
]


def cell(first: int, last: int, top: int, colour: str, text: str) -> str:
    """A box over some phases, with a text in its middle."""
    x, width = LEFT + first * CELL, (last - first + 1) * CELL - 4
    return (
        f'<rect x="{x}" y="{top}" width="{width}" height="{HEIGHT}" rx="5" fill="{colour}" '
        f'stroke="#667"/><text x="{x + width / 2}" y="{top + 22}" text-anchor="middle">'
        f"{escape(text)}</text>\n"
    )


def draw() -> str:
    """The whole picture."""
    parts = [
        cell(n, n, TOP, POINT if n == RECORD else "#ffffff", name) for n, name in enumerate(PHASES)
    ]
    for number, (title, cells) in enumerate(ROWS, 1):
        top = TOP + number * (HEIGHT + 14)
        parts.append(f'<text x="10" y="{top + 22}" font-weight="bold">{escape(title)}</text>\n')
        parts += [cell(first, last, top, colour, text) for first, last, colour, text in cells]
    height = TOP + (len(ROWS) + 1) * (HEIGHT + 14)
    x = LEFT + RECORD * CELL + CELL / 2 - 2
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="13" role="img">\n'
        "<title>What happens to a merge that dies, by the moment at which it dies</title>\n"
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>\n'
        f'<text x="{x}" y="26" text-anchor="middle" font-weight="bold">commit point</text>\n'
        f"{''.join(parts)}</svg>\n"
    )


if __name__ == "__main__":
    Path(__file__).with_name("what-survives-what.svg").write_text(draw(), encoding="utf-8")
