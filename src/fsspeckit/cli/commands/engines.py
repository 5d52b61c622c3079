"""Which engines are installed, and what to install for the others; none is loaded."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from fsspeckit.datasets.registry import ENGINES

__all__ = ["FoundEngine", "find_engines"]


@dataclass(frozen=True)
class FoundEngine:
    """One engine."""

    name: str
    is_default: bool
    installed: bool
    library: str
    version: str | None
    missing: str | None
    """What is missing; None if it can be used."""

    install: str | None
    """The command that installs what is missing."""


def find_engines(default: str) -> list[FoundEngine]:
    """All engines, the default one first."""
    found = []
    for name, entry in ENGINES.items():
        missing, install = None, None
        if not entry.is_installed:
            missing, install = entry.library, entry.install
        elif name == "spark" and not _has_java():
            missing, install = "Java 17", "install a JRE, for example openjdk-17-jre-headless"
        found.append(
            FoundEngine(
                name,
                name == default,
                missing is None,
                entry.library,
                _version(entry.library),
                missing,
                install,
            )
        )
    return found


def _has_java() -> bool:
    """Whether there is a Java at all; its version is looked at when Spark starts."""
    home = os.environ.get("JAVA_HOME")
    return bool(shutil.which(os.path.join(home, "bin", "java") if home else "java"))


def _version(library: str) -> str | None:
    try:
        return version(library)
    except PackageNotFoundError:
        return None
