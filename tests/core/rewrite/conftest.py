"""Fixtures for the tests of rewriting."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def _probed(short_row_groups_are_probed: None) -> None:
    """Tables of tests are short, and what they are about is what happens to long ones."""
