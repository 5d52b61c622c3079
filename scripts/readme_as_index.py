"""Show the README as the first page of the documentation, without a second copy of it.

A hook of mkdocs. Links into ``docs`` become links between pages; files outside of ``docs`` are not
pages, so links to them become their text.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

README = Path(__file__).parents[1] / "README.md"
LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>[^)\s]+)\)")


def as_index(readme: str) -> str:
    """The README with its links as seen from the documentation's folder."""
    return LINK.sub(_link, readme)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called by mkdocs for every page."""
    if page.file.src_uri == "index.md":
        return as_index(README.read_text(encoding="utf-8"))
    return markdown


def _link(match: re.Match[str]) -> str:
    target = match["target"]
    if re.match(r"https?://|#", target):
        return match[0]
    if target.startswith("docs/"):
        return f"[{match['text']}]({target.removeprefix('docs/')})"
    return match["text"]
