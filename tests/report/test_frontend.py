"""The front-end of the report: its types, its unit tests, and the page that is built from it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from tests.report.browser_tools import FRONTEND, REPOSITORY, need_node, run_node

from fsspeckit.report import load_template

if TYPE_CHECKING:
    from pathlib import Path

SOURCES = sorted((FRONTEND / "src").glob("*.ts"))


def test_the_committed_page_is_the_built_one(tmp_path: Path) -> None:
    need_node()
    built = tmp_path / "page.html"
    done = run_node("build.mjs", built)
    assert (done.returncode, done.stderr) == (0, "")
    committed = REPOSITORY / "src" / "fsspeckit" / "report" / "page.html"
    assert built.read_bytes() == committed.read_bytes(), "Hint: run 'make frontend'."


@pytest.mark.slow
@pytest.mark.parametrize("project", ["tsconfig.json", "tsconfig.test.json"])
def test_types(project: str) -> None:
    need_node()
    done = run_node("node_modules/typescript/bin/tsc", "--project", project)
    assert (done.returncode, done.stdout) == (0, "")


def test_units() -> None:
    need_node()
    done = run_node("test.mjs")
    assert done.returncode == 0, done.stdout
    assert re.search(r"^# fail 0$", done.stdout, re.MULTILINE)
    assert int(re.findall(r"^# pass (\d+)$", done.stdout, re.MULTILINE)[0]) > 30


def test_values_are_never_markup() -> None:
    assert len(SOURCES) > 10
    markup = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(")
    assert [path.name for path in SOURCES if markup.search(path.read_text("utf-8"))] == []


def test_the_page_names_nothing_to_load() -> None:
    page = load_template()
    assert re.findall(r"<(?:link|img|iframe|object|embed|audio|video)\b", page) == []
    assert re.findall(r"@import|url\(|\bsrc=|https?://", page) == []


def test_the_page_stays_small() -> None:
    assert len(load_template().encode()) < 150_000


def test_packages_are_pinned_and_name_no_registry() -> None:
    wanted = json.loads((FRONTEND / "package.json").read_text("utf-8"))
    assert "dependencies" not in wanted
    versions = wanted["devDependencies"].values()
    assert [version for version in versions if not re.fullmatch(r"\d+\.\d+\.\d+", version)] == []
    locked = (FRONTEND / "package-lock.json").read_text("utf-8")
    assert "resolved" not in locked
    assert '"integrity"' in locked


def test_pictures_are_in_the_guide_and_small() -> None:
    shots = (FRONTEND / "browser" / "shots.mjs").read_text("utf-8")
    names = re.findall(r'name: "(report-[a-z0-9-]+)"', shots)
    assert len(names) == 7
    pictures = REPOSITORY / "docs" / "images"
    assert sorted(path.stem for path in pictures.glob("report-*.png")) == sorted(names)
    assert all(path.stat().st_size < 80_000 for path in pictures.glob("report-*.png"))
    guide = (REPOSITORY / "docs" / "guides" / "report.md").read_text("utf-8")
    assert [name for name in names if f"../images/{name}.png" not in guide] == []
