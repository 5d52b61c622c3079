"""The page about the architecture lists the modules that exist, and shows the way of a merge."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from scripts import trace_merge
from scripts.module_table import PACKAGE, PAGE, REPOSITORY, first_sentence, module_tree, page_with

if TYPE_CHECKING:
    from pathlib import Path


def test_the_tree_is_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == page_with(page, module_tree(PACKAGE)), "run: make docs"


def test_the_tree_follows_the_layers(tmp_path: Path) -> None:
    names = ["core/b.py", "core/a/__init__.py", "core/__init__.py", "errors.py", "__init__.py"]
    for name in [*names, "core/a/x.py", "zoo.py"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('"""A thing."""\n')
    assert module_tree(tmp_path).splitlines() == [
        "- `errors.py` A thing.",
        "- **`core/`** A thing.",
        "    - `b.py` A thing.",
        "    - **`core/a/`** A thing.",
        "        - `x.py` A thing.",
        "- `zoo.py` A thing.",
    ]


@pytest.mark.parametrize(
    ("docstring", "sentence"),
    [
        ("One thing. And another.", "One thing."),
        ("Files: which\nare data.\n\nMore.", "Files: which are data."),
        ("Names like a.b stay. Then.", "Names like a.b stay."),
        ("The :class:`Root` of ``x``", "The `Root` of `x`"),
    ],
)
def test_first_sentence(tmp_path: Path, docstring: str, sentence: str) -> None:
    (tmp_path / "m.py").write_text(f'"""{docstring}"""\n')
    assert first_sentence(tmp_path / "m.py") == sentence


def test_a_page_without_a_tree_is_an_error() -> None:
    with pytest.raises(ValueError, match="lost the comments"):
        page_with("# Architecture\n", "")


@pytest.fixture(scope="module")
def traced() -> trace_merge.Trace:
    """A merge in a process of its own, where no cache is filled yet."""
    command = [sys.executable, "-m", "scripts.trace_merge", "--json"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return trace_merge.Trace(**json.loads(done.stdout))


def test_the_picture_is_what_a_merge_passes(traced: trace_merge.Trace) -> None:
    drawn = trace_merge.draw(traced.steps)
    assert trace_merge.PICTURE.read_text(encoding="utf-8") == drawn, "run: make docs"
    assert ElementTree.fromstring(drawn).tag.endswith("svg")
    assert f"images/{trace_merge.PICTURE.name}" in PAGE.read_text(encoding="utf-8")


def test_every_step_of_a_merge_is_traced(traced: trace_merge.Trace) -> None:
    assert list(traced.steps) == list(trace_merge.STEPS)
    assert all(traced.steps.values())
    assert traced.module_hops >= traced.package_hops > 0


def test_a_merge_passes_few_modules(traced: trace_merge.Trace) -> None:
    assert len(traced.modules) <= trace_merge.MAX_MODULES
