"""The dependency lists and the pinned versions belong together."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

REPOSITORY = Path(__file__).parents[2]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def requirements() -> list[Requirement]:
    """What the project and its extras ask for, without the extras that name each other."""
    lists = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    named = (Requirement(text) for one in lists for text in one)
    return [requirement for requirement in named if requirement.name != PROJECT["name"]]


def pinned() -> dict[str, str]:
    """The versions of constraints.txt by name."""
    lines = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines)


@pytest.mark.parametrize("requirement", requirements(), ids=str)
def test_the_pinned_version_is_allowed(requirement: Requirement) -> None:
    name = re.sub(r"[-_.]+", "-", requirement.name).lower()
    assert requirement.specifier.contains(pinned()[name])


def test_dev_brings_every_extra() -> None:
    extras = PROJECT["optional-dependencies"]
    reached: set[str] = set()
    pending = ["dev"]
    while pending:
        extra = pending.pop()
        reached.add(extra)
        named = [Requirement(text) for text in extras[extra]]
        pending += [e for one in named if one.name == PROJECT["name"] for e in one.extras]
    assert reached == set(extras)
