"""The page about the architecture lists the modules that exist, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scripts.module_table import PACKAGE, PAGE, first_sentence, module_table, page_with

if TYPE_CHECKING:
    from pathlib import Path


def test_the_table_is_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == page_with(page, module_table(PACKAGE)), "run: make docs"


def test_rows_follow_the_layers(tmp_path: Path) -> None:
    names = ["core/b.py", "core/a/__init__.py", "core/__init__.py", "errors.py", "__init__.py"]
    for name in [*names, "core/a/x.py", "zoo.py"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('"""A thing."""\n')
    rows = [line.split(" | ")[0] for line in module_table(tmp_path).splitlines()[2:]]
    shown = ["`errors.py`", "**`core/`**", "`core/b.py`", "**`core/a/`**", "`core/a/x.py`"]
    assert rows == [f"| {name}" for name in [*shown, "`zoo.py`"]]


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


def test_a_page_without_a_table_is_an_error() -> None:
    with pytest.raises(ValueError, match="lost the comments"):
        page_with("# Architecture\n", "")
