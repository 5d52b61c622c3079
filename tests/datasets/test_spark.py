"""The Spark engine keeps the contract of every engine, on a classic session."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from fsspeckit.testing.conformance import EngineTests

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.spark, pytest.mark.slow]


class TestSpark(EngineTests):
    engine_name = "spark"
    supports_memory_filesystem = False

    @pytest.fixture
    def connect(self, spark: SparkSession) -> Callable[..., Any]:
        from fsspeckit.datasets.spark import SparkDatasetIO

        return partial(SparkDatasetIO, spark)
