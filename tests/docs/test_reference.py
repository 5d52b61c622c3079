"""The reference has every public name, and its links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import griffe
import pytest
from scripts.sphinx_roles import as_links

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted((REPOSITORY / "docs" / "reference").glob("*.md"))
DIRECTIVE = re.compile(r"^::: (?P<name>[\w.]+)$", re.MULTILINE)

PUBLIC = [
    "fsspeckit",
    "fsspeckit.core.incremental",
    "fsspeckit.core.merge",
    "fsspeckit.datasets.duckdb",
    "fsspeckit.datasets.interfaces",
    "fsspeckit.datasets.pyarrow",
    "fsspeckit.datasets.pipeline.write",
    "fsspeckit.datasets.spark",
    "fsspeckit.errors",
    "fsspeckit.storage",
    "fsspeckit.utils.duckdb",
]
"""The modules that users import from; everything else is private."""

FOR_OTHER_PACKAGES = {
    "fsspeckit.storage": frozenset(
        [
            "Activity",
            "Call",
            "DATA_SUFFIXES",
            "DataFile",
            "HADOOP_OPTIONS",
            "HADOOP_PREFIX",
            "Findings",
            "FileSelection",
            "IncomingBatch",
            "IncomingRows",
            "OnDisk",
            "PhasePublisher",
            "Root",
            "STAGED_SUFFIX",
            "Severity",
            "Task",
            "WorkerStage",
            "WriterActivity",
            "arrow_filesystem",
            "canonical_scheme",
            "check_data_name",
            "check_lock_timeout",
            "check_mergeable",
            "check_readable",
            "clean_storage",
            "confirm_snapshot",
            "create_stage",
            "current_activity",
            "earlier_files",
            "files_to_verify",
            "has_magic",
            "is_hadoop_option",
            "is_hidden",
            "list_files",
            "on_local_disk",
            "list_snapshot",
            "naming_failure",
            "new_file",
            "open_backend",
            "open_input",
            "open_root",
            "passwords_of",
            "pending_numbers",
            "plain_basename",
            "read_range",
            "read_tail",
            "removed_since",
            "restore_storage",
            "scheme_of",
            "schemes_of",
            "undo_storage",
            "unconfirmed_snapshot",
            "unique_basename",
            "verify_control",
            "without_credentials",
        ]
    ),
}
"""What a package exports for other packages of fsspeckit only."""


def resolved(dotted: str) -> Any:
    """What a dotted name of a module's member stands for."""
    module, _, name = dotted.rpartition(".")
    return getattr(import_module(module), name)


def named() -> list[str]:
    """Everything that a page of the reference documents."""
    return [
        match["name"]
        for page in PAGES
        for match in DIRECTIVE.finditer(page.read_text(encoding="utf-8"))
    ]


def missing(module: str, documented: list[Any]) -> list[str]:
    """The public names of a module that no page documents."""
    found = import_module(module)
    internal = FOR_OTHER_PACKAGES.get(module, frozenset())
    public = {name: getattr(found, name) for name in found.__all__ if name not in internal}
    return [name for name, value in public.items() if not any(value is one for one in documented)]


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_in_the_reference(module: str) -> None:
    assert missing(module, [resolved(name) for name in named()]) == []


def test_a_missing_name_is_noticed() -> None:
    import fsspeckit

    documented = [getattr(fsspeckit, name) for name in fsspeckit.__all__ if name != "execute"]
    assert missing("fsspeckit", documented) == ["execute"]


def test_no_name_is_documented_twice() -> None:
    assert len(named()) == len(set(named()))


@pytest.fixture(scope="module")
def sources() -> griffe.Module:
    """The package as the reference sees it: without running it."""
    package = griffe.load("fsspeckit", search_paths=[str(REPOSITORY / "src")])
    assert isinstance(package, griffe.Module)
    return package


@pytest.mark.parametrize("name", named())
def test_what_is_documented_says_what_it_is(sources: griffe.Module, name: str) -> None:
    found = sources[name.removeprefix("fsspeckit.")]
    members = [found, *(found.members.values() if found.is_class else ())]
    public = [one for one in members if not one.is_alias and not one.name.startswith("_")]
    assert [one.name for one in public if not one.has_docstring] == []


@pytest.mark.parametrize(
    ("text", "links"),
    [
        ("see :func:`merge`", "see [`merge`][fsspeckit.m.merge]"),
        ("As :meth:`merge`.", "As [`merge`][fsspeckit.m.merge]."),
        (":meth:`Stage.new_file`", "[`Stage.new_file`][fsspeckit.m.Stage.new_file]"),
        (":class:`~fsspeckit.a.B`", "[`B`][fsspeckit.a.B]"),
        (":class:`fsspeckit.a.B`", "[`fsspeckit.a.B`][fsspeckit.a.B]"),
        (":mod:`fsspeckit.storage`", "`fsspeckit.storage`"),
        ("``x`` and `y`", "``x`` and `y`"),
    ],
)
def test_roles_become_links(text: str, links: str) -> None:
    assert as_links(text, "fsspeckit.m", "fsspeckit.m") == links


def test_a_method_names_methods_of_its_class_and_classes_of_its_module() -> None:
    text = as_links(":meth:`close` of :class:`Other`", "fsspeckit.m", "fsspeckit.m.Io")
    assert text == "[`close`][fsspeckit.m.Io.close] of [`Other`][fsspeckit.m.Other]"


@pytest.mark.slow
def test_the_documentation_builds_without_warnings(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    for page in (tmp_path / "reference").rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert "][fsspeckit" not in text, f"{page} has a link to nowhere"
        assert not re.search(r":(class|func|meth|mod|attr):", text)
