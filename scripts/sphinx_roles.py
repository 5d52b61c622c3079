"""Cross-references of docstrings as links of the documentation: an extension of griffe.

A docstring names other things with the roles of Sphinx, such as :class:`pathlib.Path`; the pages of
the reference are Markdown, where a link is ``[Path][pathlib.Path]``.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):`(?P<short>~?)(?P<name>[\w.]+)`")
PACKAGE = "fsspeckit."


def as_links(text: str, module: str, owner: str) -> str:
    """A docstring with its roles as links; modules have no page, so they are code.

    Args:
        text: The docstring.
        module: The dotted name of the module that it is in, where classes are looked for.
        owner: The class or module that it is in, where everything else is looked for.
    """

    def link(found: re.Match[str]) -> str:
        name = found["name"]
        label = name.rpartition(".")[2]
        if found[0].startswith(":mod:"):
            return f"`{name}`"
        if name.startswith(PACKAGE):
            return f"[`{label if found['short'] else name}`][{name}]"
        return f"[`{name}`][{module if name[0].isupper() else owner}.{name}]"

    return ROLE.sub(link, text)


class SphinxRoles(griffe.Extension):
    """Rewrites the docstring of everything that is documented."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Called by griffe for every object, once its members are known."""
        if obj.docstring is not None:
            # A method and what it names are in one class, a function and a class in one module.
            owner = obj if obj.kind in (griffe.Kind.MODULE, griffe.Kind.CLASS) else obj.parent
            text = obj.docstring.value
            obj.docstring.value = as_links(text, obj.module.path, (owner or obj).path)
