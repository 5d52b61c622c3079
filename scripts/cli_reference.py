"""Write the reference of the command line from the application, and of its JSON from schemas.

Usage: ``python -m scripts.cli_reference``
"""

from __future__ import annotations

import inspect
import json
from importlib import resources
from pathlib import Path
from typing import Any

import typer.main

from fsspeckit.cli import config, errors
from fsspeckit.cli.app import COMMANDS, app
from fsspeckit.cli.help import facts, spelled, usage

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
_NOTE = "<!-- written by scripts/cli_reference.py -->"


_SOURCES = """\
The format is told by the name (`.parquet`, `.pq`, `.parq`; `.csv`, `.tsv`; `.json`, `.jsonl`,
`.ndjson`; `.arrow`, `.arrows`, `.ipc`; text may be compressed, as in `.csv.gz`), on stdin by the
first bytes, or by `--format`. A directory stands for the files in it that are not hidden; a glob in
quotes, or several sources, for all of them in their order.

CSV and JSON lines are read with the types of the target's columns, exactly: nothing is rounded or
cut, and a value that does not fit is told with its line and column. Dates are written as
`2024-01-31`, times with their offset (`2024-01-31T12:00:00Z`) where the column has a zone and
without one where it has none. In CSV an empty field is NULL and a pair of quotes is the empty text.
In JSON every object has all columns; `null` is NULL, and decimals may be numbers or texts.

For a new dataset, and with `--infer-types`, the types are those that all values of all files have,
and they are told. Whole numbers with more digits than 64 bits can keep are text in CSV and refused
in JSON, where quotes make text of them; so is a column with values of different kinds, and its line
is told."""


def pages() -> dict[str, str]:
    """The pages by file name."""
    return {"cli.md": command_page(), "cli-json.md": json_page()}


def command_page() -> str:
    """Every command with its arguments and options."""
    group: Any = typer.main.get_command(app)
    names = ", ".join(f"[`{c.__name__}`](#{c.__name__})" for c in COMMANDS)
    parts = [
        "# The command line",
        _NOTE,
        f"{group.help} The commands: {names}.",
        "Results go to stdout: text, or with `--json` [one JSON document](cli-json.md). Notes, "
        "progress and errors go to stderr; progress is shown on terminals only, and `NO_COLOR` is "
        "respected. `fsspeckit --install-completion` teaches the shell to complete commands, "
        "options and their choices.",
        "## Exit codes",
        _exit_codes(),
        "Ctrl-C leaves the dataset unchanged (exit code 1), or completes a commit that has begun "
        "(exit code 0), and says which. Where all is done but the result cannot be printed, "
        "because the disk is full or the pipe is closed, the exit code is 3. `plan` ends with 1 "
        "where a guard rail would stop the merge, and `doctor` where every merge would be refused; "
        "both show what they found first.",
        *(_command(group.commands[command.__name__]) for command in COMMANDS),
        "## How SOURCE is read",
        _SOURCES,
        "## Storage options and defaults",
        inspect.cleandoc(config.__doc__ or "").partition("\n\n")[2].replace("``", "`"),
    ]
    return _indented_as_fenced("\n\n".join(parts)) + "\n"


def _exit_codes() -> str:
    told = " ".join((errors.__doc__ or "").partition("Exit codes: ")[2].split()).rstrip(".")
    rows = [code.strip().partition(" ") for code in told.split(",")]
    return "\n".join(["| Code | Meaning |", "|---|---|", *(f"| {a} | {b} |" for a, _, b in rows)])


def _indented_as_fenced(text: str) -> str:
    """The block of a docstring, which a page shows as TOML."""
    before, mark, after = text.partition("::\n\n    ")
    if not mark:
        return text
    block, _, rest = after.partition("\n\nWhat")
    lines = ["    " + block.splitlines()[0].strip(), *block.splitlines()[1:]]
    body = "\n".join(line[4:] for line in lines)
    return f"{before}:\n\n```toml\n{body}\n```\n\nWhat{rest}"


def _command(command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    line = f"fsspeckit {command.name} {usage(command)}"
    lines = [f"## {command.name}", inspect.cleandoc(command.help), f"```text\n{line}\n```"]
    table = ["| Argument or option | What it is for |", "|---|---|"]
    table += [f"| `{p.metavar}` | {_cell(p.help)} |" for p in arguments]
    for option in options:
        names = ", ".join(f"`{spelled(option, name)}`" for name in option.opts)
        told = " ".join([_cell(option.help), *facts(command, option, "`")])
        table.append(f"| {names} | {told} |")
    return "\n\n".join([*lines, "\n".join(table)])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def json_page() -> str:
    """Every document that ``--json`` prints, with its fields and its schema."""
    parts = [
        "# What `--json` prints",
        _NOTE,
        "One JSON document on stdout for each command, described here by its fields. The schemas "
        "themselves (JSON Schema 2020-12) are in the package, in `fsspeckit/cli/schemas`; the "
        "tests validate what every command prints against them. A field is never taken away or "
        "given another meaning without a new version.",
    ]
    schemas = resources.files("fsspeckit.cli") / "schemas"
    order = [command.__name__ for command in COMMANDS]
    for name in order:
        schema = json.loads((schemas / f"{name}.json").read_text(encoding="utf-8"))
        rows = ["| Field | Type | Meaning |", "|---|---|---|", *_fields(schema, "")]
        parts += [f"## {name}", f"{schema['title']}.", "\n".join(rows)]
    return "\n\n".join(parts) + "\n"


def _fields(schema: dict[str, Any], prefix: str) -> list[str]:
    rows = []
    for name, inner in schema["properties"].items():
        rows.append(f"| `{prefix}{name}` | {_type(inner)} | {inner.get('description', '')} |")
        for part in inner.get("anyOf", [inner]):
            nested = part.get("items", part)
            if "properties" in nested:
                mark = "[]." if "items" in part else "."
                rows += _fields(nested, f"{prefix}{name}{mark}")
    return rows


def _type(schema: dict[str, Any]) -> str:
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_type(part) for part in schema["anyOf"])
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if kinds == ["array"]:
        return f"array of {_type(schema['items'])}"
    return " or ".join(kinds)


def main() -> None:
    """Bring the pages up to date."""
    for name, text in pages().items():
        (REFERENCE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
