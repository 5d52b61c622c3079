"""Write the table of docs/concepts/guarantees.md from the capability flags of filesystems.

A commit relies on the same flags, so the page cannot promise anything else.

Usage: ``python -m scripts.guarantees_table``
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fsspeckit.storage.fs.attributes import Capabilities, capabilities_of

PAGE = Path(__file__).parents[1] / "docs" / "concepts" / "guarantees.md"
TABLE = re.compile(r"(<!-- guarantees: .*? -->\n)(.*?)(<!-- end of guarantees -->)", re.DOTALL)

PROMISES = {
    "exclusive_create": "two writers exclude each other",
    "whole_put": "files are whole",
    "atomic_rename": "files change their name in one step",
    "kernel_lock": "the lock goes with its process",
    "exchange": "all files appear at once",
    "trash": "replaced files are kept",
    "durable": "survives a power failure",
}
WINDOW = "others see old and new files together for"


def filesystems() -> dict[str, Capabilities]:
    """The kinds of filesystems that differ."""
    local = capabilities_of(_root(is_local=True, protocol="file"))
    return {
        # Whatever the machine is on which this page is written.
        "local Linux disk": replace(local, kernel_lock=True, exchange=True),
        "other local disk": replace(local, kernel_lock=True, exchange=False),
        "S3, GCS, Azure": capabilities_of(_root(is_local=False, protocol="s3")),
        "HDFS": capabilities_of(_root(is_local=False, protocol="hdfs", filesystem=_HdfsNative())),
        "memory": capabilities_of(_root(is_local=False, protocol="memory")),
        "any other": capabilities_of(_root(is_local=False, protocol="sftp")),
    }


def window(found: Capabilities) -> str:
    """How long other programs see new and replaced files together."""
    if found.exchange:
        return "no time"
    if found.conditional_put:
        return "two or three requests"
    return f"a {'rename' if found.atomic_rename else 'copy'} for each file"


class _HdfsNative:
    """What is known of a filesystem of hdfs-native, which may not be installed."""

    __module__ = "hdfs_native.fsspec"
    protocol = "hdfs"


def _root(**facts: Any) -> Any:
    return SimpleNamespace(**{"is_arrow": False, "filesystem": None, **facts})


def table() -> str:
    """A line for each promise, a column for each kind of filesystem."""
    kinds = filesystems()
    lines = [f"| | {' | '.join(kinds)} |", "|---|" + "---|" * len(kinds)]
    for flag, promise in PROMISES.items():
        kept = ["yes" if getattr(found, flag) else "no" for found in kinds.values()]
        lines.append(f"| {promise} | {' | '.join(kept)} |")
    lines.append(f"| {WINDOW} | {' | '.join(map(window, kinds.values()))} |")
    return "\n".join(lines)


def page_with(page: str, text: str) -> str:
    """The page with its table replaced."""
    found = TABLE.search(page)
    if found is None:
        raise ValueError(f"{PAGE.name} has lost the comments around its table.")
    return page[: found.end(1)] + f"\n{text}\n\n" + page[found.start(3) :]


if __name__ == "__main__":
    PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), table()), encoding="utf-8")
