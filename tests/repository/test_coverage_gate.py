"""The coverage floors, on reports with known numbers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from scripts.coverage_gate import Coverage, main, measure, part_of, shortfalls

if TYPE_CHECKING:
    from pathlib import Path

GOOD = Coverage(100, 95, 50, 48)


def _summary(statements: int, covered: int, branches: int, taken: int) -> dict[str, object]:
    return {
        "summary": {
            "num_statements": statements,
            "covered_lines": covered,
            "num_branches": branches,
            "covered_branches": taken,
        }
    }


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("src/fsspeckit/core/keys/canonical.py", "core"),
        ("src/fsspeckit/storage/__init__.py", "storage"),
        ("src/fsspeckit/datasets/spark.py", "datasets/spark.py"),
        ("src/fsspeckit/errors.py", "errors.py"),
        ("src\\fsspeckit\\core\\merge.py", "core"),
    ],
)
def test_part_of(path: str, part: str) -> None:
    assert part_of(path) == part


def test_a_group_is_summed_up() -> None:
    report = {
        "files": {
            "src/fsspeckit/core/a.py": _summary(10, 10, 4, 4),
            "src/fsspeckit/core/b.py": _summary(30, 20, 6, 1),
        }
    }
    assert measure(report) == {"core": Coverage(40, 30, 10, 5)}


@pytest.mark.parametrize(
    ("part", "coverage", "passes"),
    [
        ("core", Coverage(100, 90, 10, 9), True),
        ("core", Coverage(100, 100, 100, 89), False),
        ("storage", Coverage(100, 89, 10, 10), False),
        ("errors.py", Coverage(10, 8, 10, 8), True),
        ("errors.py", Coverage(10, 10, 10, 7), False),
        ("datasets/__init__.py", Coverage(1, 1), True),
        ("datasets/empty.py", Coverage(), True),
    ],
)
def test_floors(part: str, coverage: Coverage, passes: bool) -> None:
    found = {"core": GOOD, "storage": GOOD, part: coverage}
    assert (shortfalls(found) == []) is passes


def test_a_group_that_was_not_measured_fails() -> None:
    assert shortfalls({"core": GOOD}) == ["storage: nothing was measured"]


@pytest.mark.parametrize(("taken", "code"), [(10, 0), (1, 1)])
def test_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], taken: int, code: int
) -> None:
    files = {
        "src/fsspeckit/core/a.py": _summary(10, 10, 10, taken),
        "src/fsspeckit/storage/a.py": _summary(10, 10, 10, 10),
    }
    (tmp_path / "report.json").write_text(json.dumps({"files": files}))
    assert main([str(tmp_path / "report.json")]) == code
    assert ("branches 10.0 %" in capsys.readouterr().err) is (code == 1)
