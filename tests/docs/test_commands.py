"""The commands that the documentation shows exist, and so do their options."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import pytest
import typer
from tests.docs.test_code_blocks import PAGES, blocks_of

from fsspeckit.cli.app import app

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = re.compile(r"(?:^|\s)fsspeckit ((?:\\\n|[^\n|;&#])*)")


def commands_of(page: Path) -> list[str]:
    """The calls of `fsspeckit` in the shell blocks of a page."""
    blocks = blocks_of(page.read_text(encoding="utf-8"))
    shell = "\n".join(block.text for block in blocks if block.language in ("bash", "sh", "console"))
    return [found.replace("\\\n", " ") for found in COMMAND.findall(shell)]


SHOWN = [
    pytest.param(command, id=f"{name}: {command}")
    for name, page in PAGES.items()
    for command in commands_of(page)
]


def test_some_are_shown() -> None:
    assert SHOWN


@pytest.mark.parametrize("command", SHOWN)
def test_a_shown_command_exists(command: str) -> None:
    first, *words = shlex.split(command)
    if first.startswith("-"):
        return
    found = typer.main.get_command(app).commands[first]  # type: ignore[attr-defined]
    known = {
        option
        for parameter in found.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    } | {"--help"}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known
