"""Write the reference of the command line from the application, and of its JSON from schemas.

Usage: ``python -m scripts.cli_reference``
"""

from __future__ import annotations

import inspect
import json
from importlib import resources
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from fsspeckit.cli import config
from fsspeckit.cli.app import COMMANDS, app

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
AS_MERGE = ("apply", "deduplicate", "delete")
"""The commands that print what a merge does."""
AS_OTHERS = ("apply", "delete", "deduplicate", "undo")
"""The commands that print what another one prints."""

_NOTE = "<!-- written by scripts/cli_reference.py -->"

_SOURCES = """\
The format follows from the name (`.parquet`, `.pq`, `.parq`; `.csv`, `.tsv`; `.json`, `.jsonl`,
`.ndjson`; `.arrow`, `.arrows`, `.ipc`; text may be compressed, as in `.csv.gz`), on stdin from the
first bytes, or from `--format`. A directory stands for the files in it that are not hidden; a glob
in quotes, or several sources, for all of them in their order.

CSV and JSON lines are read with the types of the target's columns, exactly: nothing is rounded or
cut off, and an error names the line and column of a value that does not fit. Dates are written as
`2024-01-31`, times with their offset (`2024-01-31T12:00:00Z`) where the column has a zone and
without one where it has none. In CSV an empty field is NULL and a pair of quotes is the empty text.
In JSON every object has all columns; `null` is NULL, and decimals may be numbers or texts.

For a new dataset, and with `--infer-types`, the types are inferred from all values of all files and
printed as a note. Integers beyond 64 bits become text in CSV and are refused in JSON, where quotes
turn them into text. JSON columns with values of different kinds are refused; the error names the
line."""


def pages() -> dict[str, str]:
    """The pages by file name."""
    return {"cli.md": command_page(), "cli-json.md": json_page()}


def command_page() -> str:
    """Return the page with the help of every command."""
    names = ", ".join(f"[`{c.__name__}`](#{c.__name__})" for c in COMMANDS)
    parts = [
        "# The command line",
        _NOTE,
        f"{app.info.help} The commands: {names}.",
        "Results go to stdout: text, or with `--json` [one JSON document](cli-json.md). Notes, "
        "progress and errors go to stderr; progress is shown on terminals only, and `NO_COLOR` is "
        "respected. `fsspeckit --install-completion` makes the shell complete commands, "
        "options and their choices.",
        "## Exit codes",
        _exit_codes(),
        "Ctrl-C leaves the dataset unchanged (exit code 1), or completes a commit that has begun "
        "(exit code 0), and says which. Where all is done but the result cannot be printed, "
        "because the disk is full or the pipe is closed, the exit code is 3. `plan` ends with 1 "
        "where a rewrite limit would stop the merge, `doctor` where every merge would be refused, "
        "and `verify` where a reader would fail or get wrong rows; they print their results first.",
        *(_help(command.__name__) for command in COMMANDS),
        "## How SOURCE is read",
        _SOURCES,
        "## Storage options and defaults",
        inspect.cleandoc(config.__doc__ or "").partition("\n\n")[2].replace("``", "`"),
    ]
    return _indented_as_fenced("\n\n".join(parts)) + "\n"


def _exit_codes() -> str:
    codes = (app.info.epilog or "").partition("Exit codes: ")[2].rstrip(".")
    rows = [code.strip().partition(" ") for code in codes.split(",")]
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


def _help(name: str) -> str:
    """What ``fsspeckit NAME --help`` prints."""
    result = CliRunner().invoke(app, [name, "--help"], prog_name="fsspeckit")
    return f"## {name}\n\n```text\n{result.stdout.rstrip()}\n```"


def documents() -> list[str]:
    """The documents of all commands; some print those of another one."""
    names = [command.__name__ for command in COMMANDS]
    return [name for name in names if name not in AS_OTHERS]


def json_page() -> str:
    """Every document that ``--json`` prints, with its fields and its schema."""
    parts = [
        "# What `--json` prints",
        _NOTE,
        "One JSON document on stdout for each command, described here by its fields. The schemas "
        "themselves (JSON Schema 2020-12) are in the package, in `fsspeckit/cli/schemas`; the "
        "tests validate what every command prints against them. A field is never taken away or "
        "given another meaning without a new version. `apply`, `delete` and `deduplicate` print "
        "what `merge` does, `undo` what `restore` does.",
    ]
    schemas = resources.files("fsspeckit.cli") / "schemas"
    for name in documents():
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
