"""Plots as SVG, written by hand: a row for each workload, a mark for each system, a log axis."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

_COLOURS = (
    "#d62728",
    "#1f77b4",
    "#ff7f0e",
    "#2ca02c",
    "#9467bd",
    "#8c564b",
    "#e377c2",
    "#17becf",
    "#bcbd22",
    "#7f7f7f",
)
_WIDTH, _LEFT, _RIGHT, _ROW, _LINE = 960, 380, 30, 26, 18


@dataclass(frozen=True)
class Mark:
    """What one system has in one row."""

    series: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Plot:
    """Rows of marks over one axis."""

    title: str
    axis: str
    rows: dict[str, list[Mark]]

    def svg(self) -> str:
        """The plot as a document."""
        marks = [mark for row in self.rows.values() for mark in row]
        names = list(dict.fromkeys(mark.series for mark in marks))
        colours = {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(names)}
        scale = _Scale.over(marks)
        top = 44 + _LINE * math.ceil(len(names) / 3)
        bottom = top + _ROW * len(self.rows)
        parts = [_text(16, 22, self.title, size=16), *_legend(colours)]
        parts += _grid(scale, top, bottom, self.axis)
        for number, (label, row) in enumerate(self.rows.items()):
            y = top + _ROW * number + _ROW / 2
            parts.append(_text(_LEFT - 10, y + 4, label, anchor="end"))
            parts += [_mark(mark, scale, y, colours[mark.series]) for mark in row]
        return _document(parts, bottom + 44)


@dataclass(frozen=True)
class _Scale:
    """A log scale over whole decades."""

    first: int
    last: int

    @classmethod
    def over(cls, marks: list[Mark]) -> _Scale:
        lows = [math.floor(math.log10(mark.low)) for mark in marks] or [0]
        highs = [math.ceil(math.log10(mark.high)) for mark in marks] or [1]
        return cls(min(lows), max(*highs, min(lows) + 1))

    def x(self, value: float) -> float:
        share = (math.log10(value) - self.first) / (self.last - self.first)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


def _legend(colours: dict[str, str]) -> list[str]:
    parts = []
    for number, (name, colour) in enumerate(colours.items()):
        x, y = 16 + 310 * (number % 3), 42 + _LINE * (number // 3)
        parts.append(f'<circle cx="{x + 5}" cy="{y}" r="5" fill="{colour}"/>')
        parts.append(_text(x + 16, y + 4, name))
    return parts


def _grid(scale: _Scale, top: float, bottom: float, axis: str) -> list[str]:
    parts = []
    for exponent in range(scale.first, scale.last + 1):
        x = scale.x(10.0**exponent)
        stroke = "#444" if exponent == 0 else "#ccc"
        parts.append(_line(x, top, x, bottom, stroke))
        parts.append(_text(x, bottom + 16, f"{10.0**exponent:g}", anchor="middle"))
    middle = (scale.x(10.0**scale.first) + scale.x(10.0**scale.last)) / 2
    parts.append(_text(middle, bottom + 34, axis, anchor="middle"))
    return parts


def _mark(mark: Mark, scale: _Scale, y: float, colour: str) -> str:
    told = f"<title>{escape(mark.series)}: {mark.value:.3g}</title>"
    spread = _line(scale.x(mark.low), y, scale.x(mark.high), y, colour)
    dot = (
        f'<circle cx="{scale.x(mark.value):.1f}" cy="{y:.1f}" r="5" fill="{colour}">{told}</circle>'
    )
    return spread + dot


def _line(x1: float, y1: float, x2: float, y2: float, stroke: str) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{stroke}"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
    return f'<text {place} fill="#222">{escape(text)}</text>'


def _document(parts: list[str], height: float) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" '
        'font-family="sans-serif">'
    )
    paper = '<rect width="100%" height="100%" fill="#fff"/>'
    return "\n".join([head, paper, *parts, "</svg>", ""])
