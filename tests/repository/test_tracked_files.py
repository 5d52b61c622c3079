"""What is under version control belongs to no machine and to no package registry."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

# Joined from pieces, so that this file may be tracked, too.
REGISTRY_HOSTS = re.compile(
    "|".join(
        [
            r"\bpypi" + r"\.org",
            r"\bpythonhosted" + r"\.org",
            r"\banaconda" + r"\.org",
            r"\brepo1?\.maven" + r"\.",
            r"--?(?:extra-)?index-url[ =]" + r"http",
        ]
    )
)


def tracked_texts() -> dict[str, str]:
    """The text files under version control, with their content."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=True, text=True
    )
    texts = {}
    for name in filter(None, listed.stdout.split("\0")):
        path = REPOSITORY / name
        content = path.read_bytes() if path.is_file() else b""
        if b"\0" not in content:
            texts[name] = content.decode("utf-8")
    return texts


def machine_paths() -> list[str]:
    """Directories that only this machine has: the checkout, what it is in, and the home."""
    common = {Path("/"), Path("/tmp"), Path(tempfile.gettempdir()), Path("/home"), Path("/Users")}
    places = {REPOSITORY.resolve(), REPOSITORY.resolve().parent, Path.home()}
    return [f"{place}/" for place in places - common]


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return tracked_texts()


def test_the_files_were_found(texts: dict[str, str]) -> None:
    assert "pyproject.toml" in texts


def test_no_path_of_a_machine(texts: dict[str, str]) -> None:
    places = machine_paths()
    assert places
    assert [
        (name, place) for name, text in texts.items() for place in places if place in text
    ] == []


def test_no_registry_host(texts: dict[str, str]) -> None:
    assert [name for name, text in texts.items() if REGISTRY_HOSTS.search(text)] == []


@pytest.mark.parametrize("host", ["https://pypi" + ".org/simple", "files.pythonhosted" + ".org"])
def test_the_registry_check_sees(host: str) -> None:
    assert REGISTRY_HOSTS.search(f"see {host} for it")


def test_constraints_are_exact_sorted_versions(texts: dict[str, str]) -> None:
    lines = texts["constraints.txt"].splitlines()
    assert [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.+]*", line)] == []
    names = [line.partition("==")[0] for line in lines]
    assert names == sorted(set(names))
