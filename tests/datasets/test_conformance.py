"""The conformance suite itself: nothing in it is lost, and what an engine lacks is told."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from fsspeckit.testing.conformance import CareTests, MergeTests
from fsspeckit.testing.conformance.stores import STORES

if TYPE_CHECKING:
    import pytest

pytest_plugins = ["pytester"]


PARTS = (*MergeTests.__bases__, *CareTests.__bases__)


def test_no_part_hides_a_test_of_another() -> None:
    names = Counter(name for part in PARTS for name in vars(part) if name.startswith("test"))
    assert names.total() > 100
    assert [name for name, count in names.items() if count > 1] == []


def test_an_engine_must_give_its_constructor(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from fsspeckit.testing.conformance import EngineTests

        class TestNothing(EngineTests):
            engine_name = "nothing"
        """
    )
    result = pytester.runpytest_inprocess("-p", "no:randomly", "-k", "test_empty_row_groups")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*an engine's tests give the fixture `connect`*"])


def test_what_an_engine_cannot_do_is_skipped(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
        from fsspeckit.testing.conformance import EngineTests

        class TestWithoutMemory(EngineTests):
            engine_name = "pyarrow"
            supports_memory_filesystem = False

            @pytest.fixture
            def connect(self):
                return PyarrowDatasetIO
        """
    )
    result = pytester.runpytest_inprocess(
        "-p", "no:randomly", "-k", "files_without_statistics and not minio"
    )
    result.assert_outcomes(passed=len(STORES) - 1, skipped=1)
