"""Help: every option has one, it comes quickly, and the shell completes the rest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer.main
from typer.testing import CliRunner

from fsspeckit.cli.app import COMMANDS, app

if TYPE_CHECKING:
    from tests.cli.running import Run

GROUP: Any = typer.main.get_command(app)
PARAMETERS = [
    pytest.param(parameter, id=f"{name} {parameter.name}")
    for name, command in {"": GROUP, **GROUP.commands}.items()
    for parameter in command.params
]
PROGRAM = """
import sys
sys.argv = ["fsspeckit", *{words!r}]
from fsspeckit.cli import main
try:
    main()
except SystemExit as end:
    heavy = ["pyarrow", "numpy", "fsspec", "duckdb", "pyspark", "pandas", "polars"]
    print([name for name in heavy if name in sys.modules], end.code, file=sys.stderr)
"""


@pytest.mark.parametrize("parameter", PARAMETERS)
def test_every_parameter_has_a_help(parameter: Any) -> None:
    assert parameter.help
    assert parameter.help.endswith(".")


def test_every_command_has_a_help(done: Run) -> None:
    out = done("--help").out
    for command in COMMANDS:
        assert command.__doc__
        assert f" {command.__name__} " in out
        assert "Usage" in done(command.__name__, "--help").out


def test_no_command_is_a_question(run: Run) -> None:
    ran = run()
    assert ran.code == 2
    assert "Usage" in ran.out + ran.err
    assert "error" not in ran.err


@pytest.mark.parametrize(
    "words", [["--help"], ["merge", "--help"], ["--version"], ["merge", "--engine", "x"]], ids=str
)
def test_help_loads_nothing_heavy(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(words=words)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.splitlines()[-1] == f"[] {2 if 'x' in words else 0}"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("fsspeckit ", {"merge", "plan", "write", "inspect", "doctor", "history", "recover"}),
        ("fsspeckit merge --engine ", {"spark", "duckdb", "pyarrow"}),
        ("fsspeckit merge --strategy up", {"update", "upsert"}),
        ("fsspeckit merge --max-rewrite", {"--max-rewrite-bytes", "--max-rewrite-fraction"}),
    ],
)
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_shell_completes(shell: str, words: str, expected: set[str]) -> None:
    variables = {
        "_FSSPECKIT_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        "_TYPER_COMPLETE_ARGS": words,
    }
    result = CliRunner().invoke(app, [], prog_name="fsspeckit", env=variables)
    assert all(word in result.stdout for word in expected), result.stdout
    if words.endswith("up"):
        assert "insert" not in result.stdout


def test_bash_completes_with_what_is_installed() -> None:
    command = Path(sys.executable).parent / "fsspeckit"
    script = f"""
        source <({command} --show-completion bash)
        COMP_WORDS=({command} merge --engine d) COMP_CWORD=3
        _fsspeckit_completion {command}
        echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "true"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["duckdb"]
