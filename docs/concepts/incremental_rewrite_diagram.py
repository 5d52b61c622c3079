"""Draws a merge: ``python docs/concepts/incremental_rewrite_diagram.py`` writes the SVG."""

from __future__ import annotations

from html import escape
from pathlib import Path

ROW, TOP, WIDTH = 62, 56, 900
COLUMNS = {"module": 10, "work": 214, "read": 590}
STEPS = [
    ("take", "datasets/pipeline", "keep the source, to read it again", "the source", "engine"),
    ("plan", "core/planning", "list files, read footers", "names, footers", "core"),
    ("plan", "core/keys", "make keys comparable", "key columns of the source", "core"),
    ("plan", "core/planning", "rule files out, with evidence", "bloom filters", "core"),
    (
        "match",
        "datasets/<engine>",
        "find positions of source keys",
        "key columns",
        "engine",
    ),
    ("rewrite", "core/rewrite", "replace rows at their positions", "affected files", "core"),
    ("insert", "core/rewrite", "write new rows to new files", "rows without a match", "core"),
    ("commit", "storage/commit", "verify, record, publish", "footers of new files", "storage"),
]
COLOURS = {"core": "#eef2f7", "engine": "#ffe9c7", "storage": "#e3f4e6"}


def row(index: int, step: tuple[str, str, str, str, str]) -> str:
    """One step: where it is done, what is done, and what is read for it."""
    phase, module, work, read, layer = step
    top = TOP + index * ROW
    boxes = [
        f'<rect x="{COLUMNS["work"]}" y="{top}" width="340" height="44" rx="6" '
        f'fill="{COLOURS[layer]}" stroke="#667"/>',
        f'<text x="{COLUMNS["work"] + 12}" y="{top + 19}" font-weight="bold">{phase}</text>',
        f'<text x="{COLUMNS["work"] + 12}" y="{top + 36}">{work}</text>',
        f'<text x="{COLUMNS["module"]}" y="{top + 27}">{escape(module)}</text>',
        f'<text x="{COLUMNS["read"]}" y="{top + 27}">{read}</text>',
    ]
    if index:
        middle = COLUMNS["work"] + 170
        boxes.append(
            f'<line x1="{middle}" y1="{top - ROW + 44}" x2="{middle}" y2="{top - 2}" '
            'stroke="#667" marker-end="url(#tip)"/>'
        )
    return "\n".join(boxes)


def draw() -> str:
    """The whole picture."""
    height = TOP + len(STEPS) * ROW
    titles = {"module": "package", "work": "what happens", "read": "what is read"}
    heads = "\n".join(
        f'<text x="{COLUMNS[name]}" y="32" font-weight="bold">{title}</text>'
        for name, title in titles.items()
    )
    steps = "\n".join(row(index, step) for index, step in enumerate(STEPS))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="13">\n'
        '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="6" refY="4" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#667"/></marker></defs>\n'
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>\n{heads}\n{steps}\n</svg>\n'
    )


if __name__ == "__main__":
    Path(__file__).with_name("incremental-rewrite.svg").write_text(draw(), encoding="utf-8")
