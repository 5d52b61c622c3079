"""The dependency lists and the pinned versions belong together."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

REPOSITORY = Path(__file__).parents[2]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]


OF_THEIR_OWN = {
    path.stem: path for path in (REPOSITORY / "tests/integrations/constraints").glob("*.txt")
}
"""Extras that have an environment of their own, because they do not fit beside all others."""


def requirements() -> list[tuple[str, Requirement]]:
    """What the project and its extras ask for, without the extras that name each other."""
    lists = {"": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}
    named = [(extra, Requirement(text)) for extra, one in lists.items() for text in one]
    # The environment of an extra has what the project itself asks for, too.
    named += [(extra, wanted) for extra in OF_THEIR_OWN for kind, wanted in named if not kind]
    return [(extra, wanted) for extra, wanted in named if wanted.name != PROJECT["name"]]


def pinned(extra: str) -> dict[str, str]:
    """The versions of an environment by name."""
    path = OF_THEIR_OWN.get(extra, REPOSITORY / "constraints.txt")
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines)


@pytest.mark.parametrize(("extra", "requirement"), requirements(), ids=str)
def test_the_pinned_version_is_allowed(extra: str, requirement: Requirement) -> None:
    name = re.sub(r"[-_.]+", "-", requirement.name).lower()
    assert requirement.specifier.contains(pinned(extra)[name])


def test_dev_brings_every_extra() -> None:
    extras = PROJECT["optional-dependencies"]
    reached: set[str] = set()
    pending = ["dev"]
    while pending:
        extra = pending.pop()
        reached.add(extra)
        named = [Requirement(text) for text in extras[extra]]
        pending += [e for one in named if one.name == PROJECT["name"] for e in one.extras]
    assert reached == set(extras) - set(OF_THEIR_OWN)
    assert set(OF_THEIR_OWN) < set(extras)
