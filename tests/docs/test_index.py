"""The README as the first page of the documentation, and a way to every other page."""

from __future__ import annotations

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
