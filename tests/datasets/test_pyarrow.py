"""The PyArrow engine keeps the contract of every engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.testing.conformance import EngineTests

if TYPE_CHECKING:
    from collections.abc import Callable


class TestPyarrow(EngineTests):
    engine_name = "pyarrow"

    @pytest.fixture
    def connect(self) -> Callable[..., Any]:
        return PyarrowDatasetIO
