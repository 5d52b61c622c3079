"""The tables that a run puts into the documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.storage.figures import Matrix

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def page(tmp_path: Path) -> Path:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- kills: begin -->\n<!-- kills: end -->\nafter\n")
    return page


def matrix(page: Path, *lines: str) -> Matrix:
    return Matrix(page, "kills", "", lines or ("killed", "lost"))


def table(page: Path) -> list[str]:
    lines = page.read_text().splitlines()
    assert (lines[0], lines[1], lines[-2], lines[-1]) == (
        *("before", "<!-- kills: begin -->"),
        *("<!-- kills: end -->", "after"),
    )
    return lines[2:-2]


def test_a_run_writes_its_own_cells_and_no_others(page: Path) -> None:
    matrix(page).write("killed", "azurite", "200")
    later = matrix(page)
    later.write("killed", "moto", "1,200: 3 · 4")
    later.write("lost", "minio", "0")
    assert table(page) == [
        "|  | S3 (moto) | MinIO |",
        "| --- | --- | --- |",
        "| killed | 1,200: 3 · 4 | not run |",
        "| lost | not run | 0 |",
    ]


def test_a_run_in_parts_keeps_the_cells_of_the_parts_before(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Matrix, "keeps_cells", True)
    first = matrix(page, "killed", "lost", "gone")
    for line, cell in (("killed", "1,200: 3 · 4"), ("lost", "1"), ("gone", "2")):
        first.write(line, "moto", cell)
    matrix(page).write("lost", "moto", "0")
    matrix(page).write("killed", "azurite", "200")
    assert table(page) == [
        "|  | S3 (moto) | Azure (Azurite) |",
        "| --- | --- | --- |",
        "| killed | 1,200: 3 · 4 | 200 |",
        "| lost | 0 | not run |",
    ]
