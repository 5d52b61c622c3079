"""Write the tree of packages in docs/architecture.md from the first sentence of each docstring.

A module says what it is for in one place, its docstring; the page repeats it and cannot go stale.

Usage: ``python -m scripts.module_table``
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
PACKAGE = REPOSITORY / "src" / "fsspeckit"
PAGE = REPOSITORY / "docs" / "architecture.md"

LAYERS = (
    *("errors", "display", "storage", "core", "datasets"),
    *("report", "integrations", "cli", "testing"),
)
"""The order of the tree: a reader meets what others build on first."""

TREE = re.compile(r"(<!-- modules: .*? -->\n)(.*?)(<!-- end of modules -->)", re.DOTALL)


def page_with(page: str, tree: str) -> str:
    """Return the page with its tree replaced."""
    found = TREE.search(page)
    if found is None:
        raise ValueError(f"{PAGE.name} has lost the comments around its tree of modules.")
    return page[: found.end(1)] + f"\n{tree}\n" + page[found.start(3) :]


def module_tree(package: Path) -> str:
    """Return a nested list: packages in the order of the layers, each with its modules."""
    paths = sorted(
        (path for path in package.rglob("*.py") if path.parent != package or _is_module(path)),
        key=lambda path: _order(path.relative_to(package)),
    )
    return "".join(f"{_entry(path, path.relative_to(package))}\n" for path in paths)


def first_sentence(path: Path) -> str:
    """Return the first sentence of a module's docstring."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    sentence = re.match(r".*?\.(?= |$)", paragraph)
    text = sentence[0] if sentence else paragraph
    # `name` and :class:`name` are Sphinx's; Markdown has one kind of backticks.
    return re.sub(r"(?::\w+:)?`{1,2}([^`]+)`{1,2}", r"`\1`", text)


def _is_module(path: Path) -> bool:
    return path.name != "__init__.py"


def _order(relative: Path) -> tuple[int, list[str]]:
    names = [relative.parts[0].removesuffix(".py")]
    rank = LAYERS.index(names[0]) if names[0] in LAYERS else len(LAYERS)
    # The package itself before its modules, its modules before its packages.
    inner = [("0" if part.endswith(".py") else "1") + part for part in relative.parts[1:]]
    inner = ["" if part == "0__init__.py" else part for part in inner]
    return rank, names + inner


def _entry(path: Path, relative: Path) -> str:
    """One line of the list; Markdown nests what is indented by four spaces."""
    if _is_module(relative):
        depth, name = len(relative.parts) - 1, f"`{relative.name}`"
    else:
        depth, name = len(relative.parts) - 2, f"**`{relative.parent.as_posix()}/`**"
    return f"{'    ' * depth}- {name} {first_sentence(path)}"


def main() -> None:
    """Bring the page up to date."""
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(page_with(page, module_tree(PACKAGE)), encoding="utf-8")


if __name__ == "__main__":
    main()
