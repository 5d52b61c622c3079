"""Trace a small merge and draw the way it takes through the packages.

The merge upserts two rows into three files with the PyArrow engine: one row replaces another, one
is new. The script counts the modules whose functions run and the hops, which are calls from one
module into another, and draws which modules each step of the merge passes.

Usage: ``python -m scripts.trace_merge [--json | --write]``; ``--write`` updates the picture.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from dataclasses import asdict, dataclass, field
from inspect import CO_OPTIMIZED
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

REPOSITORY = Path(__file__).parents[1]
PICTURE = REPOSITORY / "docs" / "images" / "merge-sequence.svg"

MAX_MODULES = 42
"""A merge may pass this many modules and no more; a test compares."""

STEPS = {
    "call": "check, read the state",
    "take": "keep the source",
    "plan": "rule files out",
    "match": "find positions",
    "rewrite": "replace rows",
    "insert": "write new files",
    "commit": "publish all or nothing",
}
"""Every step, and what it does. What runs outside of the measured phases belongs to the call."""

STEP_OF_PHASE = {"stage": "take"}
"""Phases of ``progress=`` whose step has another name."""

PACKAGES = (
    *("", "datasets", "datasets.pipeline", "datasets.pyarrow"),
    *("core", "core.keys", "core.planning", "core.matching", "core.rewrite"),
    *("core.parquet", "core.parquet.format", "core.parquet.splice"),
    *("storage", "storage.commit", "storage.fs"),
)
"""The rows of the picture, from callers to callees; packages that are not listed follow."""

LEFT, TOP, COLUMN, LINE, PADDING, MARGIN = 166, 64, 142, 17, 6, 10


@dataclass
class Trace:
    """What one merge passed."""

    steps: dict[str, list[str]] = field(default_factory=dict)
    """By step: the modules whose functions ran, sorted."""

    module_hops: int = 0
    package_hops: int = 0

    @property
    def modules(self) -> list[str]:
        """Every module that was passed, once."""
        return sorted({module for modules in self.steps.values() for module in modules})


class Tracer:
    """Records which modules of the package call each other.

    Args:
        package: The directory of the package.
    """

    def __init__(self, package: Path) -> None:
        self._prefix = f"{package}/"
        self._step = "call"
        self._ended = False
        self._seen: dict[str, set[str]] = {step: set() for step in STEPS}
        self._after_report: set[str] = set()
        self._hops: list[tuple[str, str]] = []

    def progress(self, phase: str, done: int, total: int) -> None:
        """Follow the steps of the merge by its own progress reports."""
        step = STEP_OF_PHASE.get(phase, phase)
        # "1 of 1" is the end of a phase, unless the same phase reports once more.
        self._seen.setdefault(step if step == self._step else "call", set()).update(
            self._after_report
        )
        self._after_report = set()
        self._step = step
        self._ended = done == total == 1

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        """Record a call; the body of a module or class that is being imported is not one."""
        if event != "call" or not frame.f_code.co_flags & CO_OPTIMIZED:
            return
        module = self._module(frame)
        if module is None:
            return
        (self._after_report if self._ended else self._seen.setdefault(self._step, set())).add(
            module
        )
        caller = frame.f_back
        while caller is not None and self._module(caller) is None:
            caller = caller.f_back
        if caller is not None:
            self._hops.append((str(self._module(caller)), module))

    def _module(self, frame: FrameType) -> str | None:
        name = frame.f_code.co_filename
        if not name.startswith(self._prefix):
            return None
        return name.removeprefix(self._prefix).removesuffix(".py").replace("/", ".")

    def trace(self) -> Trace:
        """Return what was recorded by a call that is over."""
        self._seen["call"] |= self._after_report
        return Trace(
            {step: sorted(modules) for step, modules in self._seen.items()},
            sum(caller != callee for caller, callee in self._hops),
            sum(package_of(caller) != package_of(callee) for caller, callee in self._hops),
        )


def package_of(module: str) -> str:
    """The package of a module, without the name of the library."""
    return module.rpartition(".")[0]


def trace_merge(directory: Path) -> Trace:
    """Upsert two rows into three files below a directory, and return what that passed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    import fsspeckit
    from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

    target = directory / "target"
    target.mkdir()
    for first in (0, 1000, 2000):
        rows = {"id": range(first, first + 1000), "name": [str(number) for number in range(1000)]}
        pq.write_table(pa.table(rows), target / f"{first}.parquet")
    source = pa.table({"id": [5, 9999], "name": ["updated", "inserted"]})
    handler = PyarrowDatasetIO()
    tracer = Tracer(Path(fsspeckit.__file__).parent)
    threading.setprofile(tracer.profile)
    sys.setprofile(tracer.profile)
    try:
        handler.merge(source, str(target), "upsert", ["id"], progress=tracer.progress)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return tracer.trace()


def draw(steps: dict[str, list[str]]) -> str:
    """Draw a column for each step and a row for each package, with the modules that run."""
    cells: dict[str, dict[str, list[str]]] = {}
    for step, modules in steps.items():
        for module in modules:
            name = module.rpartition(".")[2]
            cells.setdefault(package_of(module), {}).setdefault(step, []).append(name)
    width = LEFT + len(steps) * COLUMN + MARGIN
    top = TOP
    rows = []
    for package in sorted(cells, key=_rank):
        height = 2 * PADDING + LINE * max(len(names) for names in cells[package].values())
        rows.append(_row(package, cells[package], list(steps), top, height))
        top += height + 4
    heads = "".join(_head(number, step) for number, step in enumerate(steps))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top + MARGIN}" '
        'font-family="sans-serif" font-size="12" role="img">\n'
        "<title>The modules that each step of a merge passes, by package</title>\n"
        f'<rect width="{width}" height="{top + MARGIN}" fill="white"/>\n'
        f"{heads}{''.join(rows)}</svg>\n"
    )


def _rank(package: str) -> tuple[int, str]:
    return PACKAGES.index(package) if package in PACKAGES else len(PACKAGES), package


def _head(number: int, step: str) -> str:
    """A step as an arrow that points to the next one."""
    left = LEFT + number * COLUMN
    right = left + COLUMN - 8
    return (
        f'<path d="M{left} 10 H{right - 10} L{right} 31 L{right - 10} 52 H{left} z" '
        'fill="#ffd166" stroke="#667"/>'
        f'<text x="{left + 8}" y="28" font-weight="bold">{step}</text>'
        f'<text x="{left + 8}" y="44" font-size="9">{STEPS.get(step, "")}</text>\n'
    )


def _row(package: str, names: dict[str, list[str]], steps: list[str], top: int, height: int) -> str:
    """A package: its name, and a box in the column of each step that passes it."""
    parts = [
        f'<rect x="{MARGIN}" y="{top}" width="{LEFT + len(steps) * COLUMN - MARGIN - 8}" '
        f'height="{height}" fill="#f6f8fa"/>'
        f'<text x="{MARGIN + 6}" y="{top + PADDING + 12}" font-weight="bold">'
        f"{package or 'fsspeckit'}</text>\n"
    ]
    for number, step in enumerate(steps):
        if step not in names:
            continue
        left = LEFT + number * COLUMN
        lines = "".join(
            f'<text x="{left + 6}" y="{top + PADDING + 12 + line * LINE}">{name}</text>'
            for line, name in enumerate(names[step])
        )
        parts.append(
            f'<rect x="{left}" y="{top + 2}" width="{COLUMN - 12}" height="{height - 4}" rx="4" '
            f'fill="#e3f4e6" stroke="#9ab"/>{lines}\n'
        )
    return "".join(parts)


def main(arguments: list[str]) -> None:
    """Trace, and print, or update the picture."""
    with tempfile.TemporaryDirectory() as directory:
        traced = trace_merge(Path(directory))
    if "--json" in arguments:
        print(json.dumps(asdict(traced)))
        return
    print(
        f"{len(traced.modules)} modules of {len({package_of(m) for m in traced.modules})} packages"
    )
    print(f"{traced.module_hops} hops between modules, {traced.package_hops} between packages")
    for step, modules in traced.steps.items():
        print(f"{step:<8} {len(modules):>3} modules: {', '.join(modules)}")
    if "--write" in arguments:
        PICTURE.write_text(draw(traced.steps), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
