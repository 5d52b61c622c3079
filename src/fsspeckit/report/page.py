"""The page: the built template, filled with a model, and what browsers may do with it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from fsspeckit.errors import FsspeckitError

if TYPE_CHECKING:
    from collections.abc import Iterable

TEMPLATE = "page.html"
_DATA = '<script type="application/json" id="report-data">'
_PLACEHOLDER = f"{_DATA}null</script>"
_POLICY = '<meta http-equiv="Content-Security-Policy" content="{}">'
_SCRIPT = re.compile(r"<script(?![^>]*application/json)[^>]*>(.*?)</script>", re.DOTALL)
_STYLE = re.compile(r"<style[^>]*>(.*?)</style>", re.DOTALL)
_ESCAPES = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}


@cache
def load_template() -> str:
    """Return the built page without a model.

    Raises:
        FsspeckitError: If the package was made without it.
    """
    try:
        text = (resources.files("fsspeckit.report") / TEMPLATE).read_text("utf-8")
    except FileNotFoundError as error:
        raise FsspeckitError(
            f"this installation of fsspeckit has no {TEMPLATE}, which reports are made of.\n"
            "Hint: install a release; in a clone of the repository, run 'make frontend' first."
        ) from error
    if text.count(_PLACEHOLDER) != 1:
        raise FsspeckitError(
            f"{TEMPLATE} has no place for the data of a report.\n"
            "Hint: build it again with 'make frontend'."
        )
    return text


def fill_page(model: dict[str, Any], *, template: str | None = None) -> str:
    """Return the page with a model in it.

    Names and values of a dataset may hold any character. In JSON the characters that could end the
    element, or begin another one, occur in texts only, where they are escaped.

    Args:
        model: What ``ReportModel`` of the front-end describes.
        template: The built page; None for the one that ships.
    """
    template = load_template() if template is None else template
    # A page that is opened as a file cannot ask for anything; a served one gets a header, too.
    policy = _POLICY.format(content_policy(template, connect=model.get("live") is not None))
    page = template.replace("<head>", f"<head>{policy}", 1)
    return page.replace(_PLACEHOLDER, f"{_DATA}{encode_model(model)}</script>", 1)


def encode_model(model: Any) -> str:
    """Encode a model as ASCII that can be put into a page; ValueError if it has NaN in it."""
    text = json.dumps(model, separators=(",", ":"), allow_nan=False)
    return text.translate(_ESCAPES)


def content_policy(template: str, *, connect: bool) -> str:
    """Return the policy that lets the page run its own script and style, and nothing else.

    Args:
        template: The built page.
        connect: Whether it may ask the server that it comes from.
    """
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {_hashes(_SCRIPT.findall(template))}",
            # Styles that a script sets on elements are not affected.
            f"style-src {_hashes(_STYLE.findall(template))}",
            "img-src data: blob:",
            "connect-src 'self'" if connect else "connect-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def _hashes(texts: Iterable[str]) -> str:
    digests = (hashlib.sha256(text.encode()).digest() for text in texts)
    found = [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
    return " ".join(found) or "'none'"


def is_report(data: bytes) -> bool:
    """Whether a file is a page that was made here, and so may be replaced by a newer one."""
    return _DATA.encode() in data
