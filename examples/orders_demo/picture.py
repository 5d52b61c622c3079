"""Draws which files each batch touched: a row for each batch, a cell for each file."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from fsspeckit.core.planning import MergePlan

_LOOKS = {
    "partition": ("#dfe5ec", "untouched: another partition"),
    "statistics": ("#b9cbe0", "untouched: statistics"),
    "bloom": ("#7fa8d1", "untouched: bloom filter"),
    "key scan": ("#4477aa", "untouched: keys read, none found"),
    "unchanged": ("#9a8fb5", "untouched: no value changed"),
    "rewritten": ("#e8762c", "rewritten"),
    "new": ("#2f9e5b", "new"),
}
_LEFT, _TOP, _RIGHT = 190, 92, 24
_WIDTH, _HEIGHT, _PITCH, _DAY_GAP, _ROW = 7, 30, 8, 5, 70


@dataclass(frozen=True)
class Cell:
    """One file in one batch."""

    kind: str
    """``rewritten``, ``new``, or why it was left alone."""

    tooltip: str
    """What a reader sees who points at it."""


@dataclass(frozen=True)
class Row:
    """One batch."""

    title: str
    subtitle: str
    note: str
    cells: Mapping[tuple[str, int], Cell]
    """By slot: the day, and the number of the file within that day."""


@dataclass
class Picture:
    """Collects what batches did; a file that is rewritten stays in its slot."""

    rows: list[Row] = field(default_factory=list)
    _slots: dict[str, tuple[str, int]] = field(default_factory=dict)

    def start(self, files: Iterable[str]) -> None:
        """Give each file that is there a slot."""
        for file in files:
            self._place(file)

    def add(
        self,
        title: str,
        note: str,
        plan: MergePlan,
        renamed: Mapping[str, str],
        added: Iterable[str],
    ) -> None:
        """Add the row of a batch.

        Args:
            title: What the batch is called.
            note: What it did, in a few words.
            plan: What was planned for each file.
            renamed: The rewritten files: old name to new name.
            added: The new files that replace none.
        """
        cells = {}
        for file in plan.files:
            pruned = file.evidence.kind if file.decision == "pruned" else "unchanged"
            kind = "rewritten" if file.path in renamed else pruned
            tooltip = f"{_short(file.path)}: {kind} ({file.evidence}), {file.rows:,} rows"
            cells[self._slots[file.path]] = Cell(kind, tooltip)
        for old, new in renamed.items():
            self._slots[new] = self._slots[old]
        for path in sorted(added):
            cells[self._place(path)] = Cell("new", f"{_short(path)}: new")
        self.rows.append(Row(title, f"by {', '.join(plan.key_columns)}", note, cells))

    def _place(self, path: str) -> tuple[str, int]:
        day = path.rsplit("/", 2)[-2].removeprefix("day=")
        number = len({slot for slot in self._slots.values() if slot[0] == day})
        self._slots[path] = (day, number)
        return day, number

    def write(self, path: Path) -> None:
        """Write the picture as SVG."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.draw(), encoding="utf-8")

    def draw(self) -> str:
        """The picture as SVG."""
        lefts = _lefts(sorted(set(self._slots.values())))
        width = max(lefts.values()) + _PITCH + _RIGHT
        legend = _TOP + len(self.rows) * _ROW + 16
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {legend + 34}" '
            f'width="{width}" height="{legend + 34}" font-family="sans-serif" font-size="12">',
            '<rect width="100%" height="100%" fill="#ffffff"/>',
            _text(20, 30, "Which files each batch touched", "title", 'font-size="18"'),
            _text(20, 50, "One cell is one Parquet file, in the order of days.", "note"),
            *_days(lefts),
            *(part for number, row in enumerate(self.rows) for part in _drawn(row, number, lefts)),
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


def _drawn(row: Row, number: int, lefts: Mapping[tuple[str, int], int]) -> list[str]:
    top = _TOP + number * _ROW
    cells = [
        f'<rect class="cell {cell.kind.replace(" ", "-")}" data-batch="{number + 1}" '
        f'x="{lefts[slot]}" y="{top}" width="{_WIDTH}" height="{_HEIGHT}" rx="1" '
        f'fill="{_LOOKS[cell.kind][0]}"><title>{escape(cell.tooltip)}</title></rect>'
        for slot, cell in row.cells.items()
    ]
    return [
        _text(20, top + 13, row.title, "title"),
        _text(20, top + 28, row.subtitle, "note"),
        *cells,
        _text(_LEFT, top + _HEIGHT + 16, row.note, "note"),
    ]


def _legend(rows: Iterable[Row], top: int) -> list[str]:
    used = Counter(cell.kind for row in rows for cell in row.cells.values())
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


def _short(path: str) -> str:
    return "/".join(path.rsplit("/", 2)[-2:])
