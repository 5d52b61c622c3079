"""Draws the picture of a plan as a notebook shows it: run it as a script to write the SVG."""

from __future__ import annotations

from html import escape
from pathlib import Path

from fsspeckit.display import FileGroup
from fsspeckit.display.render import COLOURS, picture

GROUPS = (
    FileGroup("affected", "changed", 3),
    FileGroup("pruned by partition", "partition", 40),
    FileGroup("pruned by statistics", "statistics", 28),
    FileGroup("pruned by bloom", "bloom", 6),
    FileGroup("pruned by key scan", "scan", 3),
)
TITLE = "upsert of 1,200 rows into 's3://lake/orders' by order_id"


def draw() -> str:
    """Title, squares and legend."""
    legend, x = "", 0
    for group in GROUPS:
        text = str(group)
        legend += (
            f'<rect x="{x}" y="66" width="10" height="10" rx="2" fill="{COLOURS[group.tone]}"/>'
            f'<text x="{x + 15}" y="75">{escape(text)}</text>\n'
        )
        x += 32 + 7 * len(text)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 -10 {x + 10} 100" '
        'font-family="sans-serif" font-size="13" role="img">\n'
        f'<rect x="-10" y="-10" width="{x + 10}" height="100" fill="white"/>\n'
        f'<text x="0" y="12" font-weight="bold">{escape(TITLE)}</text>\n'
        f'<g transform="translate(0 28)">{picture(GROUPS)}</g>\n{legend}</svg>\n'
    )


if __name__ == "__main__":
    Path(__file__).with_name("notebook-plan.svg").write_text(draw(), encoding="utf-8")
