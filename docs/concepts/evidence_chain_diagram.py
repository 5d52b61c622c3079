"""Draws the evidence chain: run it as a script to write the SVG beside it."""

from __future__ import annotations

from html import escape
from pathlib import Path

from fsspeckit.display.card import tone_of
from fsspeckit.display.render import COLOURS

LINKS = [
    ("partition", "reads the path", "no source key belongs to this partition"),
    ("statistics", "reads the footer", "no source key lies between minimum and maximum"),
    (
        "bloom",
        "reads a few kilobytes per row group",
        "none of the keys within these bounds is in it",
    ),
    ("key scan", "reads the key columns of the row groups that are left", "no row has such a key"),
]
WIDTH, HEIGHT, GAP, LONGEST = 860, 44, 30, 400


def link(number: int, kind: str, reads: str, proves: str) -> str:
    """One link: what goes in on the left, what it rules out on the right."""
    top = 10 + number * (HEIGHT + GAP)
    arrow = (
        f'<path d="M200 {top + HEIGHT} v{GAP - 6}" stroke="#667" marker-end="url(#tip)"/>'
        f'<text x="212" y="{top + HEIGHT + 19}" fill="#556">unknown, or possible</text>'
    )
    return (
        f'<rect x="10" y="{top}" width="{LONGEST}" height="{HEIGHT}" rx="6" fill="#eef2f7" '
        f'stroke="#667"/><text x="22" y="{top + 19}" font-weight="bold">{kind}</text>'
        f'<text x="22" y="{top + 36}" fill="#556">{escape(reads)}</text>'
        f'<path d="M{10 + LONGEST} {top + HEIGHT / 2} H{LONGEST + 46}" stroke="#667" '
        f'marker-end="url(#tip)"/><rect x="{LONGEST + 54}" y="{top + 8}" width="28" height="28" '
        f'rx="5" fill="{COLOURS[tone_of(kind)]}"/>'
        f'<text x="{LONGEST + 92}" y="{top + 19}" font-weight="bold">pruned</text>'
        f'<text x="{LONGEST + 92}" y="{top + 36}" fill="#556">{escape(proves)}</text>{arrow}\n'
    )


def draw() -> str:
    """The whole picture."""
    links = "".join(link(number, *one) for number, one in enumerate(LINKS))
    end = 10 + len(LINKS) * (HEIGHT + GAP)
    height = end + HEIGHT + 10
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="13" role="img">\n'
        "<title>The evidence chain: each link can only rule a file out</title>\n"
        '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="6" refY="4" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#667"/></marker></defs>\n'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>\n{links}'
        f'<rect x="10" y="{end}" width="230" height="{HEIGHT}" rx="6" '
        f'fill="{COLOURS["changed"]}" stroke="#667"/>'
        f'<text x="22" y="{end + 19}" font-weight="bold">affected</text>'
        f'<text x="22" y="{end + 36}">rows with a source key are known</text>\n</svg>\n'
    )


if __name__ == "__main__":
    Path(__file__).with_name("evidence-chain.svg").write_text(draw(), encoding="utf-8")
