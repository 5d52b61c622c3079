"""Engines by name: none is loaded before it is asked for, and a missing one is told how to get."""

from __future__ import annotations

import pytest

import fsspeckit
from fsspeckit.datasets import registry
from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.datasets.registry import ENGINES, EngineEntry, open_engine
from fsspeckit.errors import EngineNotInstalledError, InvalidArgumentError


def test_an_engine_is_opened_by_its_name() -> None:
    with open_engine("pyarrow") as opened:
        assert isinstance(opened, PyarrowDatasetIO)


@pytest.mark.parametrize("name", ["arrow", "Spark", "", None])
def test_an_unknown_engine_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="'spark', 'duckdb', 'pyarrow', got"):
        open_engine(name)


@pytest.mark.parametrize(
    "entry",
    [
        EngineEntry("fsspeckit.datasets.pyarrow", "X", "no_such_library", "pip install something"),
        EngineEntry("fsspeckit.datasets.nothing", "X", "pyarrow", "pip install something"),
    ],
    ids=["without its library", "without its module"],
)
def test_a_missing_engine_says_how_to_install_it(
    entry: EngineEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry.ENGINES, "spark", entry)
    with pytest.raises(
        EngineNotInstalledError, match=r"'spark' engine is not installed\.\nHint: pip install some"
    ):
        fsspeckit.read_dataset("anywhere")
    with pytest.raises(ImportError, match='or pass engine="pyarrow"'):
        fsspeckit.merge(None, "anywhere", "upsert", ["id"])


def test_hints_name_libraries_and_never_this_package() -> None:
    assert all("fsspeckit" not in entry.install for entry in ENGINES.values())
