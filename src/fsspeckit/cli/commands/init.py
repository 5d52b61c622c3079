"""The command ``init``: write a project to start from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from fsspeckit.cli import options as o  # noqa: TC001 - typer reads the annotations
from fsspeckit.cli.runner import open_session
from fsspeckit.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

__all__ = ["NewProject", "init", "write_project"]

_UNESCAPED = "/!$&'()*+,;=:@~"
"""What Java leaves alone in the path of a URI, beside letters and digits."""

_ESCAPED = """\
# Spark escapes the path: its checkpoints are in
# {path}
# beside the project. Remove them with it, or a new project of this name goes on from there.
"""

_SUFFIX = ".template"
"""Of the files in the package, so that no tool takes them for modules of it."""


def init(
    kind: o.ProjectKindArgument,
    name: o.ProjectName,
    as_json: o.Json = False,
    verbose: o.Verbose = False,
) -> None:
    """Write a project to start from: a Spark Declarative Pipeline that applies a change feed.

    The directory NAME must be new or empty. It gets the pipeline, a few files to run it on, and a
    README.md that says how.
    """
    session = open_session(as_json)
    project = write_project(kind.value, name)
    session.show_done(session.output.project, project)


@dataclass(frozen=True)
class NewProject:
    """A project that was written."""

    kind: str
    directory: str
    files: tuple[str, ...]
    """Below the directory."""

    command: str
    """What runs it, in its directory."""


def write_project(kind: str, name: str) -> NewProject:
    """Write the files of a project into a new directory.

    Raises:
        InvalidArgumentError: If the directory cannot be a new project.
    """
    directory = _new_directory(name)
    templates = resources.files("fsspeckit.cli") / "templates" / kind
    written = []
    for template, path in sorted(_walk(templates, directory), key=lambda found: str(found[1])):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_filled(template.read_text("utf-8"), directory), encoding="utf-8")
        written.append(path.relative_to(directory).as_posix())
    return NewProject(kind, str(directory), tuple(written), "spark-pipelines run")


def _new_directory(name: str) -> Path:
    """Return the absolute path of a directory that is new or empty."""
    directory = Path(name).absolute()
    if not name or not directory.name:
        raise InvalidArgumentError(
            f"a project needs a name, got {name!r}.\nHint: write for example 'orders_pipeline'."
        )
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    if not existing.is_dir():
        raise InvalidArgumentError(
            f"{name!r} cannot be a directory: {str(existing)!r} is a file.\n"
            "Hint: choose another name."
        )
    if directory.is_dir() and any(directory.iterdir()):
        raise InvalidArgumentError(
            f"the directory {name!r} is not empty, and no file is overwritten.\n"
            "Hint: choose another name, or remove the directory first."
        )
    return directory


def _walk(templates: Traversable, directory: Path) -> Iterator[tuple[Traversable, Path]]:
    """Yield each template with the path of its file in the project."""
    for found in templates.iterdir():
        if found.is_dir():
            yield from _walk(found, directory / found.name)
        elif found.name.endswith(_SUFFIX):
            yield found, directory / found.name.removesuffix(_SUFFIX)


def _filled(text: str, directory: Path) -> str:
    # Not as_uri(): Hadoop takes a percent sign of a path for what it is. JSON is YAML, too.
    storage = f"{directory}/pipeline-storage"
    written = "".join(_escaped_by_spark(char) for char in storage)
    note = (
        "" if written == storage else _ESCAPED.format(path=json.dumps(written, ensure_ascii=False))
    )
    values = {
        "note": note,
        "title": directory.name,
        "name": json.dumps(directory.name, ensure_ascii=False),
        "storage": json.dumps(f"file://{storage}", ensure_ascii=False),
    }
    for name, value in values.items():
        text = text.replace(f"{{{{ {name} }}}}", value)
    return text


def _escaped_by_spark(char: str) -> str:
    """Return a character of the storage as Spark writes it into the name of a directory."""
    return char if not char.isascii() else quote(char, safe=_UNESCAPED)
