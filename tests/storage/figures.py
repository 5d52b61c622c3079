"""The figures of the proof: every experiment counts what it tried and what it saw."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FIGURES: dict[str, Counter[str]] = {}
_BEGIN, _END = "<!-- figures: begin -->", "<!-- figures: end -->"
_COLUMNS = ("experiment", "tried", "old state", "new state", "lost or doubled", "other")


def count(experiment: str, **amounts: int) -> None:
    """Add to the figures of an experiment."""
    FIGURES.setdefault(experiment, Counter()).update(amounts)


def _lines() -> list[tuple[str, ...]]:
    lines = []
    for name in sorted(FIGURES):
        figures = FIGURES[name]
        other = ", ".join(
            f"{key.replace('_', ' ')}: {value:,}"
            for key, value in sorted(figures.items())
            if key not in ("tried", "old", "new", "losses")
        )
        amounts = (f"{figures[key]:,}" for key in ("tried", "old", "new", "losses"))
        lines.append((name, *amounts, other))
    return lines


def render() -> str:
    """The figures as a table for a terminal."""
    rows = [_COLUMNS, *_lines()]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in (0, 5) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


_FORMS = {
    True: "Written by the long form, `make torture`: every point.",
    False: "Written by the short form, `pytest tests/storage`: recovery is killed at every call "
    "of its own after every 23rd call of the commit, and some other experiments take every few "
    "points.",
}


def write_page(page: Path, *, long: bool) -> None:
    """Put the figures into the page that tells about the protocol, and say how they were made."""
    rows = ["| " + " | ".join(row) + " |" for row in [_COLUMNS, ("---",) * 6, *_lines()]]
    text = page.read_text() if page.exists() else ""
    if _BEGIN not in text:
        return
    before, after = text.split(_BEGIN)[0], text.split(_END)[1]
    table = "\n".join(rows)
    page.write_text(f"{before}{_BEGIN}\n{_FORMS[long]}\n\n{table}\n{_END}{after}")


def write_line(page: Path, name: str, line: tuple[str, ...]) -> None:
    """Put a line into the table of this name, in place of the one that begins in the same way."""
    text = page.read_text()
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    before, rest = text.split(begin)
    table, after = rest.split(end)
    lines = table.splitlines()
    new = "| " + " | ".join(line) + " |"
    old = [number for number, one in enumerate(lines) if one.startswith(f"| {line[0]} |")]
    if old:
        lines[old[0]] = new
    else:
        lines.append(new)
    page.write_text(before + begin + "\n".join(lines) + "\n" + end + after)
