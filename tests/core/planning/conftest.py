"""Fixtures for the tests of planning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.core.planning.edited_footers import CountingFileSystem

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
