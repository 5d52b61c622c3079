"""Draws the picture of a plan as a notebook shows it: run it as a script to write the SVG."""

from __future__ import annotations

from html import escape
from pathlib import Path

from fsspeckit.display import FileGroup, Mark, Tone, lanes_by_partition
from fsspeckit.display.render import COLOURS, picture

KINDS: dict[str, tuple[Tone, str]] = {
    "affected": ("changed", "affected"),
    "partition": ("partition", "pruned by partition"),
    "statistics": ("statistics", "pruned by statistics"),
    "bloom": ("bloom", "pruned by bloom"),
}
DAYS = {
    "day=2026-03-01": ["partition"] * 14,
    "day=2026-03-02": ["partition"] * 9,
    "day=2026-03-03": [*["statistics"] * 6, "affected", *["statistics"] * 5],
    "day=2026-03-04": ["affected", "bloom", "bloom", *["statistics"] * 3, "affected"],
}
SIZES = (38, 61, 24, 47, 55, 33, 42)
TITLE = "upsert of 1,200 rows into 's3://lake/orders' by order_id"


def files() -> list[Mark]:
    """A file of some megabytes for each word above."""
    return [
        Mark(f"{day}/{number:02}", KINDS[kind][0], SIZES[number % len(SIZES)] * 10**6)
        for day, kinds in DAYS.items()
        for number, kind in enumerate(kinds)
    ]


def draw() -> str:
    """Title, files on an axis, and legend."""
    marks = files()
    legend, x = "", 0
    for tone, label in KINDS.values():
        text = str(FileGroup(label, tone, sum(mark.tone == tone for mark in marks)))
        legend += (
            f'<rect x="{x}" y="136" width="10" height="10" rx="2" fill="{COLOURS[tone]}"/>'
            f'<text x="{x + 15}" y="145">{escape(text)}</text>\n'
        )
        x += 32 + 7 * len(text)
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 -10 820 170" '
        'font-family="sans-serif" font-size="13" role="img">\n'
        '<rect x="-10" y="-10" width="820" height="170" fill="white"/>\n'
        f'<text x="0" y="8" font-weight="bold">{escape(TITLE)}</text>\n'
        f'<g transform="translate(0 20)">{picture(lanes_by_partition(marks))}</g>\n{legend}</svg>\n'
    )


if __name__ == "__main__":
    Path(__file__).with_name("notebook-plan.svg").write_text(draw(), encoding="utf-8")
