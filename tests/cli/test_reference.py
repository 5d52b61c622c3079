"""The pages about the command line say what the application says."""

from __future__ import annotations

from importlib import resources

import pytest
from scripts.cli_reference import AS_OTHERS, REFERENCE, command_page, json_page, pages

from fsspeckit.cli.app import COMMANDS


@pytest.mark.parametrize("name", pages())
def test_the_page_is_current(name: str) -> None:
    message = "run `python -m scripts.cli_reference`"
    assert (REFERENCE / name).read_text(encoding="utf-8") == pages()[name], message


def test_every_command_and_option_is_on_the_page() -> None:
    page = command_page()
    for command in COMMANDS:
        assert f"\n## {command.__name__}\n" in page
        assert f"Usage: fsspeckit {command.__name__} [OPTIONS]" in page
    assert "\n  --engine <spark|duckdb|pyarrow>\n" in page
    assert "\n  -k, --key COLUMN  " in page
    assert '```toml\nengine = "duckdb"' in page


def test_every_schema_is_on_the_page() -> None:
    schemas = resources.files("fsspeckit.cli") / "schemas"
    names = {path.name.removesuffix(".json") for path in schemas.iterdir()}
    assert names == {command.__name__ for command in COMMANDS} - set(AS_OTHERS)
    assert all(f"\n## {name}\n" in json_page() for name in names)


def test_every_exit_code_is_a_row() -> None:
    rows = [
        line for line in pages()["cli.md"].splitlines() if line[:3] in {"| 0", "| 1", "| 2", "| 3"}
    ]
    assert rows[-1] == "| 3 | committed but not completed (recover) |"
    assert len(rows) == 4
