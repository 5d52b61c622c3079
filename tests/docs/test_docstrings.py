"""The examples in docstrings run."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module

import pytest
from tests.repository.test_import import OF_TOOLS, skip_without_tool

import fsspeckit

MODULES = [
    module.name
    for module in pkgutil.walk_packages(fsspeckit.__path__, "fsspeckit.")
    if ".testing" not in module.name
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of(name: str, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without_tool(name)
    monkeypatch.chdir(str(tmp_path))
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    assert doctest.testmod(import_module(name), optionflags=flags).failed == 0


def test_there_are_examples() -> None:
    loaded = [import_module(name) for name in MODULES if name not in OF_TOOLS]
    tests = [doctest.DocTestFinder().find(module) for module in loaded]
    assert sum(bool(test.examples) for found in tests for test in found) > 10
