"""The DuckDB engine keeps the contract of every engine, and leaves connections as it found them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fsspeckit.datasets.duckdb import DuckDBDatasetIO
from fsspeckit.testing.conformance import EngineTests

if TYPE_CHECKING:
    from collections.abc import Callable


class TestDuckDB(EngineTests):
    engine_name = "duckdb"
    rewrites_mixed_timestamps = False

    @pytest.fixture
    def connect(self) -> Callable[..., Any]:
        return DuckDBDatasetIO
