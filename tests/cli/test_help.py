"""Help: every option has a text, help is printed quickly, and the shell completes the rest."""

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
    heavy += {more!r}
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


@pytest.mark.parametrize("columns", [40, 64, 80, 100, 200])
@pytest.mark.parametrize("name", ["", *GROUP.commands])
def test_help_names_every_parameter_and_fits_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    # Not by the runner of typer, which sets a width of its own.
    GROUP.main([*name.split(), "--help"], prog_name="fsspeckit", standalone_mode=False)
    out = capsys.readouterr().out
    # A terminal may be wider than text is easy to read, or too narrow for two columns.
    choices = [line for line in out.splitlines() if line.startswith("  --") and "<" in line]
    widest = max(len(line) for line in out.splitlines() if line not in choices)
    assert widest <= max(50, min(columns, 100))
    assert "\x1b" not in out
    squeezed = "".join(out.split())
    for parameter in (GROUP.commands[name] if name else GROUP).params:
        is_option = parameter.param_type_name == "option"
        assert (max(parameter.opts, key=len) if is_option else parameter.metavar) in squeezed
        assert "".join(parameter.help.split()) in squeezed


def test_help_shows_choices_and_defaults(done: Run) -> None:
    out = done("merge", "-h").out
    assert out.startswith("Usage: fsspeckit merge [OPTIONS] ")
    assert "  -k, --key COLUMN       " in out
    assert "[default: upsert]" in " ".join(out.split())
    assert "--engine <spark|duckdb|pyarrow>" in out
    assert "Key column (repeatable).  [required]" in out


def test_the_list_of_commands_cuts_no_sentence(done: Run) -> None:
    squeezed = " ".join(done("--help").out.split())
    for command in COMMANDS:
        assert f" {command.__name__} {(command.__doc__ or '').splitlines()[0]} " in squeezed
    assert "..." not in squeezed.partition("Commands:")[2]


def test_help_on_a_terminal_that_knows_only_ascii() -> None:
    command = Path(sys.executable).parent / "fsspeckit"
    done = subprocess.run(
        [command, "engines", "--help"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "\\u" not in done.stdout
    assert "--config FILE" in done.stdout


def test_no_command_is_a_question(run: Run) -> None:
    ran = run()
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("Usage: fsspeckit [OPTIONS] COMMAND [ARGS]...\n")
    assert "error" not in ran.err


@pytest.mark.parametrize(
    "words", [["--help"], ["merge", "--help"], ["--version"], ["merge", "--engine", "x"]], ids=str
)
def test_help_loads_nothing_heavy(words: list[str]) -> None:
    # Typer needs pydantic to check a value, but not to print help or the version.
    more = ["rich"] if "x" in words else ["rich", "pydantic"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(words=words, more=more)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.splitlines()[-1] == f"[] {2 if 'x' in words else 0}"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            "fsspeckit ",
            {"merge", "plan", "apply", "write", "inspect", "doctor", "history", "recover", "init"},
        ),
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
