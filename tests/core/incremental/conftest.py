"""Fixtures for the tests of planning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.core.incremental.pruned import CountingFileSystem

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def counting() -> Iterator[CountingFileSystem]:
    """An empty filesystem that counts requests."""
    filesystem = CountingFileSystem(skip_instance_cache=True)
    yield filesystem
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]
    filesystem.requests.clear()


@pytest.fixture(scope="module", autouse=True)
def _probed(short_row_groups_are_probed: None) -> None:
    """Tables of tests are short, and what they are about is what happens to long ones."""
