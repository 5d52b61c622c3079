"""Which state of the code a figure is of."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from benchmarks.state import State, current_state

if TYPE_CHECKING:
    from pathlib import Path


def git(root: Path, *words: str) -> None:
    names = ["-c", "user.name=n", "-c", "user.email=n@example.com"]
    subprocess.run(["git", "-C", str(root), *names, *words], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("src", "docs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("old")
    git(tmp_path, "init")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-m", "first")
    return tmp_path


def test_a_committed_state_has_no_changes(checkout: Path) -> None:
    state = current_state(checkout)
    assert state.changes == ""
    assert str(state) == f"{state.commit} of {state.date}"


@pytest.mark.parametrize("name", ["src/file", "src/other"])
@pytest.mark.parametrize("staged", [False, True])
def test_every_change_of_the_code_is_another_state(
    checkout: Path, name: str, *, staged: bool
) -> None:
    states = [current_state(checkout)]
    for content in ("new", "newer"):
        (checkout / name).write_text(content)
        if staged:
            git(checkout, "add", "-A")
        states.append(current_state(checkout))
    assert len({state.changes for state in states}) == 3
    assert "with uncommitted changes" in states[-1].line


def test_a_removed_file_is_a_change(checkout: Path) -> None:
    (checkout / "src" / "file").unlink()
    assert current_state(checkout).changes


def test_pages_are_not_code(checkout: Path) -> None:
    before = current_state(checkout)
    (checkout / "docs" / "file").write_text("a page")
    assert current_state(checkout) == before


def test_the_first_line_of_a_page() -> None:
    assert State("abc", "2026-01-02").line == "*Measured on commit abc of 2026-01-02.*"
