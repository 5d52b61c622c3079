"""The figures of the proof: every experiment counts what it tried and what it saw."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

FIGURES: dict[str, Counter[str]] = {}
_STORES = {
    "moto": "S3 (moto)",
    "minio": "MinIO",
    "azurite": "Azure (Azurite)",
    "fake-gcs": "GCS (fake-gcs-server)",
    "hdfs": "HDFS",
}

_NOT_RUN = "not run"
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


class Matrix:
    """A table of one run: an experiment in each line, a store in each column.

    It is written again after each cell, with what this run has found and nothing of an earlier one.
    With the option ``--keep-cells`` the cells of earlier runs stay, so that a table can be made in
    parts.
    """

    keeps_cells = False
    """Whether the cells of earlier runs stay."""

    def __init__(self, page: Path, name: str, corner: str, lines: Iterable[str]) -> None:
        self._page = page
        self._name = name
        self._corner = corner
        self._lines = list(lines)
        self._cells: dict[tuple[str, str], str] | None = None

    def write(self, line: str, store: str, cell: str) -> None:
        """Put a cell into the page."""
        assert line in self._lines, line
        begin, end = f"<!-- {self._name}: begin -->\n", f"<!-- {self._name}: end -->"
        before, rest = self._page.read_text().split(begin)
        table, after = rest.split(end)
        if self._cells is None:
            self._cells = self._read(table) if self.keeps_cells else {}
        self._cells[line, store] = cell
        self._page.write_text(f"{before}{begin}{self._render(self._cells)}\n{end}{after}")

    def _read(self, table: str) -> dict[tuple[str, str], str]:
        """The cells of a table, without those of experiments that there are no longer."""
        rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()]
        stores = {title: store for store, title in _STORES.items()}
        return {
            (row[0], stores[title]): cell
            for row in rows[2:]
            for title, cell in zip(rows[0][1:], row[1:], strict=True)
            if row[0] in self._lines and cell != _NOT_RUN
        }

    def _render(self, cells: dict[tuple[str, str], str]) -> str:
        stores = [store for store in _STORES if any(store == one for _, one in cells)]
        titles = [_STORES[store] for store in stores]
        rows = [[self._corner, *titles], ["---"] * (1 + len(stores))]
        for line in self._lines:
            rows.append([line, *(cells.get((line, one), _NOT_RUN) for one in stores)])
        return "\n".join("| " + " | ".join(row) + " |" for row in rows)
