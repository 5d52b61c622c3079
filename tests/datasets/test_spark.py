"""The Spark engine keeps the contract of every engine, on classic and on Connect sessions."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsspeckit.testing.conformance import CareTests, MergeTests, RowTests
from fsspeckit.testing.conformance.crashes import some

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# A job takes as long as a hundred merges of the other engines: fewer examples, more of their kind.
_SHARE = 0.4
_GENERATED: Any = MergeTests.test_generated_merges_agree_with_the_model.hypothesis.inner_test  # type: ignore[attr-defined]


class SparkTests(RowTests):
    """What classic and Connect sessions share."""

    first_case_only = True
    """A job takes Spark a good second; FSSPECKIT_EXAMPLES=2 runs every case."""

    engine_name = "spark"
    supports_memory_filesystem = False
    reads_at_once = False
    feed_sequences = (6, 60)

    @pytest.fixture(autouse=True)
    def _fewer_examples(self, monkeypatch: pytest.MonkeyPatch) -> None:
        wanted = float(os.environ.get("FSSPECKIT_EXAMPLES", "1"))
        monkeypatch.setenv("FSSPECKIT_EXAMPLES", str(wanted * _SHARE))

    @given(data=st.data())
    @some(10)
    def test_generated_merges_agree_with_the_model(
        self, connect: Callable[..., Any], data: st.DataObject
    ) -> None:
        _GENERATED(self, connect, data)


def by_tasks(spark: SparkSession, **limits: int) -> Callable[..., Any]:
    """An engine whose work on rows is all done by tasks, however small it is."""
    from fsspeckit.datasets.spark import SparkDatasetIO, SparkLimits

    return partial(SparkDatasetIO, spark, limits=SparkLimits(driver_max_source_bytes=0, **limits))


class TestSpark(SparkTests, MergeTests, CareTests):
    """A session of this process.

    The care of a dataset asks an engine few questions, so it is tested on one kind of session.
    """

    @pytest.fixture
    def connect(self, spark: SparkSession) -> Callable[..., Any]:
        return by_tasks(spark, driver_max_duplicate_rows=0)


class TestSparkDriver(SparkTests, MergeTests):
    """Limits as they are: nearly every merge of the suite is small enough for the driver."""

    @pytest.fixture
    def connect(self, spark: SparkSession) -> Callable[..., Any]:
        from fsspeckit.datasets.spark import SparkDatasetIO

        return partial(SparkDatasetIO, spark)


class TestSparkConnect(SparkTests):
    """A session of a server.

    It evaluates rows like any other; files, plans and commits are not its business.
    """

    @pytest.fixture
    def connect(self, spark_connect: SparkSession) -> Callable[..., Any]:
        return by_tasks(spark_connect)
