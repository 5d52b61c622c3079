"""The contract of the PyArrow engine, kept by files that are written as a whole.

Nearly every file of the conformance suite can be spliced; here none is. FSSPECKIT_EXAMPLES=2 runs
it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from fsspeckit.core.parquet import CannotSpliceError
from fsspeckit.core.rewrite import rewriter
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.testing.conformance import EngineTests

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.slow
class TestWholeFiles(EngineTests):
    __test__ = float(os.environ.get("FSSPECKIT_EXAMPLES", "1")) > 1
    engine_name = "pyarrow"
    first_case_only = True

    @pytest.fixture(autouse=True)
    def _never_spliced(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise CannotSpliceError("it is a test")

        monkeypatch.setattr(rewriter, "_Splice", refuse)

    @pytest.fixture
    def connect(self) -> Callable[..., Any]:
        return PyarrowDatasetIO
