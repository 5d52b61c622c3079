"""The README as the first page of the documentation, and a way to every other page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scripts.readme_as_index import as_index

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted((REPOSITORY / "docs").rglob("*.md"))


@pytest.mark.parametrize(
    ("readme", "index"),
    [
        ("[Architecture](docs/architecture.md)", "[Architecture](architecture.md)"),
        ("[why](docs/adr/index.md#decisions).", "[why](adr/index.md#decisions)."),
        ("see [CHANGELOG](CHANGELOG.md)!", "see CHANGELOG!"),
        ("[fsspec](https://example.org/docs/)", "[fsspec](https://example.org/docs/)"),
        ("[below](#try-it)", "[below](#try-it)"),
    ],
)
def test_links_fit_the_place(readme: str, index: str) -> None:
    assert as_index(readme) == index


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_page_can_be_found(page: Path) -> None:
    """It is in the navigation, or the index of its folder names it."""
    navigation = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
    index = page.parent / "index.md"
    named = f"({page.name})" in index.read_text(encoding="utf-8")
    assert named or page.relative_to(REPOSITORY / "docs").as_posix() in navigation


LIVING = [page for page in PAGES if not {"adr", "benchmarks"} & set(page.parts)]
"""Pages that describe the present; a decision or a benchmark keeps the names of its time."""


@pytest.mark.parametrize(
    "page", [*LIVING, REPOSITORY / "CONTRIBUTING.md"], ids=lambda page: page.name
)
def test_paths_that_a_page_names_exist(page: Path) -> None:
    named = re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.(?:py|sh|md))`", page.read_text(encoding="utf-8"))
    roots = (REPOSITORY, REPOSITORY / "src" / "fsspeckit", REPOSITORY / "src")
    assert [name for name in named if not any((root / name).is_file() for root in roots)] == []
