"""Pictures and tables of the documentation are what the scripts beside them make."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from scripts.guarantees_table import PAGE, PROMISES, filesystems, page_with, table

DOCS = Path(__file__).parents[2] / "docs"
PACKAGE = DOCS.parent / "src" / "fsspeckit"
SCRIPTS = sorted(DOCS.rglob("*_diagram.py"))


def picture(script: Path) -> Path:
    return script.with_name(script.stem.removesuffix("_diagram").replace("_", "-") + ".svg")


def loaded(script: Path) -> Any:
    spec = importlib.util.spec_from_file_location(script.stem, script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_picture_is_what_its_script_draws(script: Path) -> None:
    drawn = loaded(script).draw()
    assert picture(script).read_text(encoding="utf-8") == drawn, f"run: python {script.name}"
    assert ElementTree.fromstring(drawn).tag.endswith("svg")


def test_every_picture_has_a_script_and_a_page() -> None:
    drawn = {picture(script) for script in SCRIPTS}
    pages = [page for page in DOCS.rglob("*.md") if "benchmarks" not in page.parts]
    shown = {
        (page.parent / name).resolve()
        for page in pages
        for name in re.findall(r"!\[[^\]]*\]\(([^)]+\.svg)\)", page.read_text(encoding="utf-8"))
    }
    assert drawn <= shown
    assert {path for path in shown if "images" not in path.parts} <= drawn


def test_the_packages_of_the_steps_exist() -> None:
    steps = loaded(DOCS / "concepts" / "incremental_rewrite_diagram.py").STEPS
    packages = {package for _, package, *_ in steps} - {"datasets/<engine>"}
    assert [package for package in packages if not (PACKAGE / package).is_dir()] == []


def test_the_guarantees_are_those_of_the_code() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == page_with(page, table()), "run: python -m scripts.guarantees_table"


def test_every_flag_has_its_words() -> None:
    assert len(PROMISES) == len(set(PROMISES.values()))
    assert all(promise.lower() in PAGE.read_text("utf-8").lower() for promise in PROMISES.values())
    local, *_, other = filesystems().values()
    assert local.missing() == ()
    assert len(other.missing()) == len(PROMISES)


def test_a_page_without_a_table_is_an_error() -> None:
    with pytest.raises(ValueError, match="lost the comments"):
        page_with("# Guarantees\n", "")
