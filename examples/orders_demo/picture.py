"""Draws which files each batch touched: a row for each batch, a cell for each file."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from orders_demo.driver import Batch

_LOOKS = {
    "untouched": ("#b9cbe0", "untouched"),
    "rewritten": ("#e8762c", "rewritten"),
    "new": ("#2f9e5b", "new"),
    "removed": ("#8a1c1c", "removed: its last row was deleted"),
}
_RED = "#c0392b"
_LEFT, _TOP, _RIGHT = 190, 92, 24
_WIDTH, _HEIGHT, _PITCH, _DAY_GAP, _ROW = 7, 26, 8, 5, 58


@dataclass(frozen=True)
class Row:
    """One batch."""

    title: str
    subtitle: str
    note: str
    cells: Mapping[tuple[str, int], str]
    """What happened to the file of each slot: the day, and the number of the file within it."""

    killed: str = ""
    """What a red line below it says."""


@dataclass
class Picture:
    """Collects what batches did; a file that is rewritten stays in its slot."""

    rows: list[Row] = field(default_factory=list)
    _slots: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Of the files that are there."""

    _used: list[tuple[str, int]] = field(default_factory=list)

    def start(self, files: Iterable[str]) -> None:
        """Give each file that is there a slot."""
        for file in sorted(files):
            self._place(file)

    def add(self, batch: Batch, note: str, killed: str = "") -> None:
        """Add the row of a batch.

        Args:
            batch: What it did.
            note: The same in a few words.
            killed: What happened after it, if something did.
        """
        cells = {}
        files = {} if batch.skipped else dict(self._slots)
        for file, slot in files.items():
            if file in batch.renamed:
                cells[slot] = "rewritten"
                self._slots[batch.renamed[file]] = self._slots.pop(file)
            elif file in batch.untouched:
                cells[slot] = "untouched"
            else:
                cells[slot] = "removed"
                del self._slots[file]
        for file in () if batch.skipped else sorted(batch.new):
            cells[self._place(file)] = "new"
        again = "again" if batch.skipped else f"{batch.seconds:.1f} s"
        self.rows.append(Row(f"Batch {batch.number}", again, note, cells, killed))

    def _place(self, file: str) -> tuple[str, int]:
        day = file.rsplit("/", 2)[-2].removeprefix("day=")
        slot = (day, sum(used == day for used, _ in self._used))
        self._used.append(slot)
        self._slots[file] = slot
        return slot

    def write(self, path: Path) -> None:
        """Write the picture as SVG."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.draw(), encoding="utf-8")

    def draw(self) -> str:
        """The picture as SVG."""
        lefts = _lefts(sorted(self._used))
        width = max(lefts.values()) + _PITCH + _RIGHT
        legend = _TOP + len(self.rows) * _ROW + 8
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {legend + 34}" '
            f'width="{width}" height="{legend + 34}" font-family="sans-serif" font-size="12">',
            '<rect width="100%" height="100%" fill="#ffffff"/>',
            _text(20, 30, "Which files each batch touched", "title", 'font-size="18"'),
            _text(20, 50, "One cell is one Parquet file, in the order of days.", "note"),
            *_days(lefts),
            *(
                part
                for number, row in enumerate(self.rows)
                for part in _drawn(row, number, lefts, width)
            ),
            *_legend(self.rows, legend),
            "</svg>",
        ]
        return "\n".join(parts) + "\n"


def _lefts(slots: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Where each slot is, days apart from each other."""
    days = {day: number for number, day in enumerate(sorted({day for day, _ in slots}))}
    return {
        slot: _LEFT + number * _PITCH + days[slot[0]] * _DAY_GAP
        for number, slot in enumerate(slots)
    }


def _days(lefts: Mapping[tuple[str, int], int]) -> list[str]:
    """The first day and every fifth after it, above the cells."""
    firsts = [(day, left) for (day, number), left in lefts.items() if number == 0]
    return [_text(left, _TOP - 10, day[5:], "note") for day, left in firsts[::5]]


def _drawn(row: Row, number: int, lefts: Mapping[tuple[str, int], int], width: int) -> list[str]:
    top = _TOP + number * _ROW
    cells = [
        f'<rect class="cell {kind}" data-row="{number}" x="{lefts[slot]}" y="{top}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" rx="1" fill="{_LOOKS[kind][0]}">'
        f"<title>day {slot[0]}, file {slot[1] + 1}: {kind}</title></rect>"
        for slot, kind in row.cells.items()
    ]
    parts = [
        _text(20, top + 13, row.title, "title"),
        _text(20, top + 28, row.subtitle, "note"),
        *cells,
        _text(_LEFT, top + (_HEIGHT if cells else 0) + 14, row.note, "note"),
    ]
    if row.killed:
        line = top + _ROW - 9
        parts += [
            f'<path class="killed" d="M20 {line}H{width - 20}" stroke="{_RED}" stroke-width="2"/>',
            f'<text x="{width - 20}" y="{line - 5}" fill="{_RED}" text-anchor="end">'
            f"{escape(row.killed)}</text>",
        ]
    return parts


def _legend(rows: Iterable[Row], top: int) -> list[str]:
    used = Counter(kind for row in rows for kind in row.cells.values())
    parts = []
    left = 20
    for kind, (colour, words) in _LOOKS.items():
        if not used[kind]:
            continue
        parts.append(f'<rect x="{left}" y="{top}" width="12" height="12" fill="{colour}"/>')
        parts.append(_text(left + 18, top + 10, words, "note"))
        left += 34 + 7 * len(words)
    return parts


def _text(left: int, baseline: int, words: str, kind: str, more: str = "") -> str:
    look = 'fill="#1f2933" font-weight="bold"' if kind == "title" else 'fill="#52606d"'
    return f'<text x="{left}" y="{baseline}" {look} {more}>{escape(words)}</text>'
