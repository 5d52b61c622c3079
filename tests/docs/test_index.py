"""The README as the first page of the documentation."""

from __future__ import annotations

import pytest
from scripts.readme_as_index import as_index


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
