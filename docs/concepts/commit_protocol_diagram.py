"""Draws the commit protocol: ``python docs/concepts/commit_protocol_diagram.py`` writes the SVG."""

from __future__ import annotations

from pathlib import Path

WIDTH, STEP_HEIGHT, GAP = 760, 46, 14
STEPS = [
    ("snapshot", "recover what others left; list files; number of the last commit", "plain"),
    ("staging", "write new files, verify footers and row counts, fsync", "plain"),
    ("lock", "kernel lock, where there is one; nobody else publishes now", "plain"),
    ("check", "list again: changed since the snapshot? re-plan, bounded, or give up", "plain"),
    ("shadow", "exchange only: the next state, made of hard links, beside the dataset", "plain"),
    ("record", "create commits/<n>.json exclusively, whole or not at all", "point"),
    ("publish", "swap the shadow in, or: new names in, then old names out", "after"),
    ("follow", "exchange only: do to the new tree what others did to the old one", "after"),
    ("trash", "replaced files are moved, the old tree is taken apart name by name", "after"),
    ("complete", "mark commit <n> complete, remove staging, release the lock", "after"),
]
COLOURS = {"plain": "#eef2f7", "point": "#ffd166", "after": "#e3f4e6"}


def box(index: int, name: str, text: str, kind: str) -> str:
    """One step of the protocol."""
    top = 10 + index * (STEP_HEIGHT + GAP)
    middle = top + STEP_HEIGHT / 2 + 5
    arrow = ""
    if index:
        arrow = (
            f'<line x1="70" y1="{top - GAP}" x2="70" y2="{top - 2}" '
            'stroke="#667" marker-end="url(#tip)"/>\n'
        )
    return (
        f"{arrow}"
        f'<rect x="10" y="{top}" width="560" height="{STEP_HEIGHT}" rx="6" '
        f'fill="{COLOURS[kind]}" stroke="#667"/>\n'
        f'<text x="22" y="{middle}" font-weight="bold">{name}</text>\n'
        f'<text x="108" y="{middle}">{escape(text)}</text>\n'
    )


def brace(first: int, last: int, lines: list[str]) -> str:
    """What a death during some of the steps leads to."""
    top = 10 + first * (STEP_HEIGHT + GAP)
    bottom = 10 + last * (STEP_HEIGHT + GAP) + STEP_HEIGHT
    middle = (top + bottom) / 2 - 8 * (len(lines) - 1)
    text = "".join(
        f'<text x="596" y="{middle + 18 * number}">{escape(line)}</text>\n'
        for number, line in enumerate(lines)
    )
    return f'<path d="M580 {top} h6 V{bottom} h-6" fill="none" stroke="#667"/>\n{text}'


def escape(text: str) -> str:
    """Text as XML wants it."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def draw() -> str:
    """The whole picture."""
    height = 20 + len(STEPS) * (STEP_HEIGHT + GAP)
    boxes = "".join(box(index, *step) for index, step in enumerate(STEPS))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="13" role="img">\n'
        "<title>The steps of a commit, and what a death at each leads to</title>\n"
        '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="6" refY="4" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#667"/></marker></defs>\n'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>\n'
        f"{boxes}"
        f"{brace(0, 4, ['a death here:', 'nothing changed;', 'recovery removes', 'the leftovers'])}"
        f"{brace(5, 5, ['the commit point'])}"
        f"{brace(6, 9, ['a death here:', 'committed;', 'recovery', 'completes it'])}"
        "</svg>\n"
    )


if __name__ == "__main__":
    Path(__file__).with_name("commit-protocol.svg").write_text(draw())
