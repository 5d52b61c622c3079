"""The contract of every engine, kept by splices alone.

The files of the conformance suite are small, so that writing them as a whole is cheaper and mostly
chosen. Here they are spliced wherever that can be done. FSSPECKIT_EXAMPLES=2 runs it.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import pytest

from fsspeckit.core.rewrite import diff
from fsspeckit.core.rewrite.diff import Costs
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.testing.conformance import EngineTests

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.slow
@pytest.mark.usefixtures("short_row_groups_are_probed")
class TestSpliced(EngineTests):
    __test__ = float(os.environ.get("FSSPECKIT_EXAMPLES", "1")) > 1
    engine_name = "pyarrow"
    first_case_only = True

    @pytest.fixture(autouse=True)
    def _always(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(diff, "COSTS", Costs(full=math.inf))

    @pytest.fixture
    def connect(self) -> Callable[..., Any]:
        return PyarrowDatasetIO
