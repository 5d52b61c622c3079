"""What the source tree promises about itself: who imports what, and how long a function gets."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).parents[2] / "src" / "fsspeckit"
MODULES = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}

LIBRARY_HOMES: dict[str, tuple[str, ...]] = {
    "pyspark": ("datasets/spark",),
    "duckdb": ("datasets/duckdb", "utils/duckdb", "integrations/dbt"),
    "pandas": (),
    "polars": (),
    "datafusion": (),
    "sqlglot": ("core/conditions/sql",),
    "dlt": ("integrations/dlt",),
    "dbt": ("integrations/dbt",),
    "airflow": ("integrations/airflow",),
    "dagster": ("integrations/dagster",),
}
"""Where a library may be imported, as prefixes of module paths."""

LAYERS = (
    *("errors", "display", "storage", "core", "datasets"),
    *("report", "api", "integrations", "cli"),
)
"""From the bottom up: a layer imports itself and those before it."""

PUBLIC_PATHS_OF = {"utils": "datasets"}
"""Folders that only repeat names of a layer, for an import path that users know."""

DOORS = (
    "display",
    "storage",
    "core.keys",
    "core.conditions",
    "core.planning",
    "core.matching",
    "core.rewrite",
    "core.parquet",
    "datasets.pipeline",
    "datasets.inspection",
    "datasets.verification",
    "datasets.pyarrow",
    "datasets.duckdb",
    "datasets.spark",
    "report",
    "cli",
)
"""Packages that others import from by the package itself, never from a module inside."""

CORE = (
    "core.keys",
    "core.conditions",
    "core.parquet",
    "core.planning",
    "core.matching",
    "core.rewrite",
)
"""The packages of the core from the bottom up: one imports itself and those before it."""

LONGEST_FUNCTION = 60


@dataclass(frozen=True)
class Import:
    """One imported module, and how it is imported."""

    name: str
    line: int
    typing_only: bool
    inside_function: bool


def imports_of(tree: ast.Module, module: str = "") -> list[Import]:
    """Every import of a module, relative ones resolved against its path below the package."""
    return list(_visit(tree, module, typing_only=False, inside_function=False))


def _visit(
    node: ast.AST, module: str, *, typing_only: bool, inside_function: bool
) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            for name in _imported_names(child, module):
                yield Import(name, child.lineno, typing_only, inside_function)
        elif isinstance(child, ast.If) and _is_type_checking(child.test):
            for statement in child.body:
                wrapped = ast.Module([statement], [])
                yield from _visit(wrapped, module, typing_only=True, inside_function=False)
            rest = ast.Module(child.orelse, [])
            yield from _visit(rest, module, typing_only=typing_only, inside_function=False)
        else:
            lazy = inside_function or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from _visit(child, module, typing_only=typing_only, inside_function=lazy)


def _imported_names(node: ast.Import | ast.ImportFrom, module: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    parents = ["fsspeckit", *module.split("/")[:-1]]
    base = parents[: len(parents) - node.level + 1] if node.level else []
    base += [node.module] if node.module else []
    # `from fsspeckit import core` imports a module that only the name tells.
    return [".".join([*base, alias.name]) for alias in node.names]


def _is_type_checking(test: ast.expr) -> bool:
    return getattr(test, "id", getattr(test, "attr", "")) == "TYPE_CHECKING"


def foreign_libraries(module: str, tree: ast.Module) -> list[str]:
    """Imports of a library outside of the module that is allowed to know it."""
    found = []
    for item in imports_of(tree, module):
        library = item.name.split(".")[0]
        homes = LIBRARY_HOMES.get(library)
        lazily_tested = module.startswith("testing/") and item.inside_function
        if homes is None or item.typing_only or lazily_tested or module.startswith(homes):
            continue
        found.append(f"{module}:{item.line} imports {library}")
    return found


def layer_of(name: str) -> str:
    """The layer of a dotted name or path below the package."""
    first = name.replace("/", ".").split(".")[0]
    return PUBLIC_PATHS_OF.get(first, first)


def upward_imports(module: str, tree: ast.Module) -> list[str]:
    """Imports of a layer above the module's own, and of the test support by anything else."""
    own = layer_of(module)
    found = []
    for item in imports_of(tree, module):
        package, _, inside = item.name.partition(".")
        if package != "fsspeckit" or item.typing_only:
            continue
        other = layer_of(inside)
        above = own in LAYERS and other in LAYERS and LAYERS.index(other) > LAYERS.index(own)
        if above or (other == "testing" and own != "testing"):
            found.append(f"{module}:{item.line} imports {item.name}")
    return found


def door_of(name: str) -> str | None:
    """The package with a door that a dotted name below fsspeckit belongs to."""
    inside = (door for door in DOORS if name == door or name.startswith(f"{door}."))
    return max(inside, key=len, default=None)


def side_entrances(module: str, tree: ast.Module) -> list[str]:
    """Imports from a module inside of another package that has a door."""
    own = door_of(_dotted(module))
    found = []
    for item in imports_of(tree, module):
        package, _, name = item.name.partition(".")
        door = door_of(name)
        if package != "fsspeckit" or door is None or door == own:
            continue
        # What follows the door is one name: a class, a function, a value.
        exported = name.removeprefix(f"{door}.") in _exports(door)
        if not exported and (_is_module(name) or name.removeprefix(door).count(".") > 1):
            found.append(f"{module}:{item.line} imports {item.name}, not by {door}")
    return found


def core_upward_imports(module: str, tree: ast.Module) -> list[str]:
    """Imports of a package of the core that is above the module's own."""
    own = door_of(_dotted(module))
    found = []
    for item in imports_of(tree, module):
        other = door_of(item.name.partition(".")[2])
        if item.typing_only:
            continue
        if own in CORE and other in CORE and CORE.index(other) > CORE.index(own):
            found.append(f"{module}:{item.line} imports {item.name}")
    return found


def _dotted(module: str) -> str:
    return module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _exports(door: str) -> list[str]:
    tree = _parsed(f"{door.replace('.', '/')}/__init__.py")
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    return []


def _is_module(name: str) -> bool:
    path = name.replace(".", "/")
    return name not in DOORS and (f"{path}.py" in MODULES or f"{path}/__init__.py" in MODULES)


def long_functions(module: str, tree: ast.Module) -> list[str]:
    """Functions that do not fit on a screen, their docstring not counted."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        assert node.end_lineno is not None
        length = node.end_lineno - node.lineno + 1
        if ast.get_docstring(node) is not None:
            docstring = node.body[0]
            assert docstring.end_lineno is not None
            length -= docstring.end_lineno - docstring.lineno + 1
        if length > LONGEST_FUNCTION:
            found.append(f"{module}:{node.lineno} {node.name} has {length} lines")
    return found


def _parsed(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def test_the_package_was_found() -> None:
    assert "errors.py" in MODULES


@pytest.mark.parametrize("module", MODULES)
def test_only_an_engine_module_imports_its_library(module: str) -> None:
    assert foreign_libraries(module, _parsed(module)) == []


@pytest.mark.parametrize("module", MODULES)
def test_layers_import_downwards_only(module: str) -> None:
    assert upward_imports(module, _parsed(module)) == []


@pytest.mark.parametrize("module", [name for name in MODULES if not name.startswith("testing/")])
def test_packages_are_entered_by_their_door(module: str) -> None:
    assert side_entrances(module, _parsed(module)) == []


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith("core/")])
def test_the_core_imports_downwards_only(module: str) -> None:
    assert core_upward_imports(module, _parsed(module)) == []


@pytest.mark.parametrize("module", MODULES)
def test_functions_fit_on_a_screen(module: str) -> None:
    assert long_functions(module, _parsed(module)) == []


@pytest.mark.parametrize(
    ("module", "source", "allowed"),
    [
        ("core/keys.py", "import duckdb", False),
        ("core/keys.py", "from duckdb.typing import INTEGER", False),
        ("core/keys.py", "def f():\n    import polars", False),
        ("core/keys.py", "if TYPE_CHECKING:\n    import pandas", True),
        ("core/keys.py", "if TYPE_CHECKING:\n    pass\nelse:\n    import pandas", False),
        ("core/keys.py", "import pyarrow", True),
        ("datasets/duckdb.py", "import duckdb", True),
        ("datasets/duckdb/engine.py", "import duckdb", True),
        ("datasets/duckdb.py", "import pyspark", False),
        ("integrations/dlt.py", "import dlt", True),
        ("integrations/dlt.py", "import duckdb", False),
        ("integrations/dbt.py", "import dlt", False),
        ("testing/writers.py", "def f():\n    import polars", True),
        ("testing/writers.py", "import polars", False),
    ],
)
def test_the_library_check_sees(module: str, source: str, allowed: bool) -> None:
    assert (foreign_libraries(module, ast.parse(source)) == []) is allowed


@pytest.mark.parametrize(
    ("module", "source", "allowed"),
    [
        ("storage/listing.py", "from fsspeckit.errors import FsspeckitError", True),
        ("storage/listing.py", "from fsspeckit import core", False),
        ("storage/listing.py", "from ..core import merge", False),
        ("storage/listing.py", "from . import roots", True),
        ("errors.py", "import fsspeckit.storage.roots", False),
        ("core/merge.py", "def f():\n    from fsspeckit.datasets import spark", False),
        ("core/merge.py", "from fsspeckit.storage.roots import Root", True),
        ("core/merge.py", "def f():\n    from fsspeckit.api import merge", False),
        ("datasets/spark.py", "from fsspeckit.testing import model", False),
        ("testing/model.py", "from fsspeckit.testing import strategies", True),
        ("integrations/dlt.py", "from fsspeckit.api import upsert", True),
        ("datasets/base.py", "from fsspeckit.integrations import dlt", False),
        ("utils/duckdb.py", "from fsspeckit.datasets.duckdb import X", True),
        ("utils/duckdb.py", "import fsspeckit.cli", False),
        ("__init__.py", "from fsspeckit.datasets import spark", True),
    ],
)
def test_the_layer_check_sees(module: str, source: str, allowed: bool) -> None:
    assert (upward_imports(module, ast.parse(source)) == []) is allowed


@pytest.mark.parametrize(
    ("module", "source", "allowed"),
    [
        ("core/keys/source.py", "from fsspeckit.storage import Root", True),
        ("core/keys/source.py", "from fsspeckit.storage.roots import Root", False),
        ("core/keys/source.py", "from fsspeckit.storage import roots", False),
        ("core/keys/source.py", "if TYPE_CHECKING:\n    from fsspeckit.storage.fs import x", False),
        ("core/keys/source.py", "from fsspeckit.core.keys.canonical import KeyColumn", True),
        ("core/keys/source.py", "from fsspeckit.core.arrow_compat import take_rows", True),
        ("storage/listing.py", "from fsspeckit.storage.fs.reads import meaning_of", True),
        ("datasets/base.py", "def f():\n    from fsspeckit.datasets.pipeline import merge", False),
    ],
)
def test_the_door_check_sees(module: str, source: str, allowed: bool) -> None:
    assert (side_entrances(module, ast.parse(source)) == []) is allowed


@pytest.mark.parametrize(
    ("module", "source", "allowed"),
    [
        ("core/keys/source.py", "from fsspeckit.core.planning import FileFooter", False),
        ("core/planning/plan.py", "from fsspeckit.core.keys import KeyColumn", True),
        ("core/parquet/format/pages.py", "from fsspeckit.core.rewrite import rewrite", False),
    ],
)
def test_the_core_check_sees(module: str, source: str, allowed: bool) -> None:
    assert (core_upward_imports(module, ast.parse(source)) == []) is allowed


@pytest.mark.parametrize(("statements", "fits"), [(59, True), (60, False)])
def test_the_length_check_leaves_the_docstring_out(statements: int, fits: bool) -> None:
    body = '    """One\n\n    two.\n    """\n' + "    x = 1\n" * statements
    assert (long_functions("m.py", ast.parse(f"def f():\n{body}")) == []) is fits
