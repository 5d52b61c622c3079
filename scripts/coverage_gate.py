"""Fail if the coverage of a part of the package is below its floor.

Reads the report of ``coverage json`` and compares statements and branches, each on its own, with
the floor of the part: ``core`` and ``storage`` as a whole, every other module by itself.
A total would let a well covered half hide an untested module.

Usage: ``python scripts/coverage_gate.py coverage.json``
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

GROUP_FLOOR = 90.0
MODULE_FLOOR = 80.0
GROUPS = ("core", "storage")


@dataclass(frozen=True)
class Coverage:
    """What was run of one part of the package."""

    statements: int = 0
    covered_statements: int = 0
    branches: int = 0
    covered_branches: int = 0

    def __add__(self, other: Coverage) -> Coverage:
        return Coverage(
            self.statements + other.statements,
            self.covered_statements + other.covered_statements,
            self.branches + other.branches,
            self.covered_branches + other.covered_branches,
        )

    @property
    def statement_rate(self) -> float:
        """Percent of the statements that ran."""
        return _percent(self.covered_statements, self.statements)

    @property
    def branch_rate(self) -> float:
        """Percent of the branches that were taken."""
        return _percent(self.covered_branches, self.branches)


def part_of(path: str) -> str:
    """The group or the module that a source file is judged with."""
    parts = PurePosixPath(path.replace("\\", "/")).parts
    inside = parts[parts.index("fsspeckit") + 1 :]
    return inside[0] if inside[0] in GROUPS else "/".join(inside)


def measure(report: dict[str, Any]) -> dict[str, Coverage]:
    """Sum a coverage report up by part."""
    found: dict[str, Coverage] = {}
    for path, entry in report["files"].items():
        summary = entry["summary"]
        one = Coverage(
            summary["num_statements"],
            summary["covered_lines"],
            summary["num_branches"],
            summary["covered_branches"],
        )
        part = part_of(path)
        found[part] = found.get(part, Coverage()) + one
    return found


def shortfalls(found: dict[str, Coverage]) -> list[str]:
    """One line for each part that is below its floor."""
    lines = [f"{group}: nothing was measured" for group in GROUPS if group not in found]
    for part, coverage in sorted(found.items()):
        floor = GROUP_FLOOR if part in GROUPS else MODULE_FLOOR
        if min(coverage.statement_rate, coverage.branch_rate) < floor:
            lines.append(
                f"{part}: statements {coverage.statement_rate:.1f} %, "
                f"branches {coverage.branch_rate:.1f} %, needed {floor:.0f} % of each"
            )
    return lines


def main(arguments: list[str]) -> int:
    """Print the verdict and return the exit code."""
    (path,) = arguments
    found = measure(json.loads(Path(path).read_text(encoding="utf-8")))
    lines = shortfalls(found)
    for line in lines:
        print(f"coverage: {line}", file=sys.stderr)
    if not lines:
        groups = ", ".join(f"{group} {found[group].branch_rate:.1f} %" for group in GROUPS)
        print(f"coverage: branches {groups}; every other module above {MODULE_FLOOR:.0f} %")
    return 1 if lines else 0


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 100.0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
