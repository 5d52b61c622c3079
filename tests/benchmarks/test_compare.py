"""The comparison of two checkouts, at a size at which it takes no time: it must not rot."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from benchmarks.compare.__main__ import ROOT, main
from benchmarks.compare.shapes import all_shapes

if TYPE_CHECKING:
    from pathlib import Path


def compare(tmp_path: Path, *more: str) -> list[str]:
    """Compare this checkout with itself; return the lines of the table."""
    out = tmp_path / "table.md"
    places = ["--scratch", str(tmp_path), "--out", str(out)]
    main([str(ROOT), str(ROOT), "--rows", "1600", "--dry-run", *places, *more])
    return out.read_text(encoding="utf-8").splitlines()


@pytest.mark.slow
def test_every_shape_becomes_a_line(tmp_path: Path) -> None:
    lines = [line for line in compare(tmp_path) if re.match(r"\|.*\d\.\d+ \|$", line)]
    assert [line.split(" | ")[0][2:] for line in lines] == [s.title for s in all_shapes(1600)]


def test_shapes_can_be_chosen(tmp_path: Path) -> None:
    lines = compare(tmp_path, "--only", "one-row", "plan-one-*")
    assert [line.split(" | ")[0] for line in lines[-2:]] == [
        "| Plan of 1 key, 16 files",
        "| One row",
    ]


def test_a_checkout_must_be_one(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="imports"):
        main([str(tmp_path), str(ROOT), "--scratch", str(tmp_path), "--out", str(tmp_path / "t")])
