"""What a system is asked: to make its table, to merge into it, to read it."""

from __future__ import annotations

import importlib
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from benchmarks.peers.tables import WriterProperties
    from benchmarks.peers.workloads import Strategy

Phases = dict[str, float]
"""How many seconds each phase of a merge took, by the system's own account."""

Kind = Literal[
    "ours",
    "ours, no fsync",
    "ours, key index",
    "copy-on-write",
    "merge-on-read",
    "whole rewrite",
    "floor",
]
IMMUTABLE = (".parquet", ".lance")
"""Files that no system changes in place; a change would be seen in the next round's checksum."""


@dataclass(frozen=True)
class Files:
    """The rows of a table as plain Parquet, which every system makes its own table from."""

    layout: WriterProperties
    directory: Path

    @property
    def paths(self) -> list[Path]:
        """The files in the order of their keys."""
        return sorted(self.directory.rglob("*.parquet"))


class System(Protocol):
    """One way to merge. Everything it writes stays below the place it is given."""

    def make(self, files: Files, place: Path) -> None:
        """Make a table of these rows, in as many files, in an empty directory."""
        ...

    def merge(self, place: Path, source: pa.Table, strategy: Strategy) -> Phases | None:
        """Update the rows whose key is in the source (not for ``insert``), and insert the others.

        This is what is measured, from opening the table to the commit.
        """
        ...

    def read(self, place: Path) -> pa.Table:
        """All rows and columns, by the system's own reader."""
        ...


class OnSpark(Protocol):
    """A system in a session, which lives longer than one merge."""

    def make(self, files: Files, place: Path) -> None:
        """As of every system."""
        ...

    def frame(self, source: pa.Table) -> DataFrame:
        """The source as a data frame; not measured."""
        ...

    def prepare(self, place: Path) -> None:
        """Forget what the session knows about an earlier copy at this place; not measured."""
        ...

    def merge(self, place: Path, source: DataFrame, strategy: Strategy) -> Phases | None:
        """As of every system."""
        ...

    def read(self, place: Path) -> None:
        """All rows and columns, and forget them."""
        ...

    def fetch(self, place: Path) -> pa.Table:
        """What a read gives, to be checked."""
        ...

    def versions(self) -> dict[str, str]:
        """What runs in the session."""
        ...

    def close(self) -> None:
        """End the session."""
        ...


@dataclass(frozen=True)
class Entry:
    """Where a system is found, and what it is."""

    name: str
    title: str
    kind: Kind
    target: str
    """The function that makes it, as ``module:function`` below ``benchmarks.peers.systems``."""

    packages: tuple[str, ...]
    """The distributions whose versions matter."""

    environment: str = ".venv"
    """The directory of the environment that it is installed in."""

    jvm: bool = False
    """Whether it is Spark that does the work."""

    def load(self) -> Any:
        """Import its libraries and make it: a :class:`System`, or one :class:`OnSpark`."""
        module, _, function = self.target.partition(":")
        loaded = importlib.import_module(f"benchmarks.peers.systems.{module}")
        return getattr(loaded, function)()


def link_tree(origin: Path, place: Path) -> None:
    """A fresh copy of a directory: data files as hard links, everything else as copies."""
    shutil.copytree(origin, place, copy_function=_link_or_copy, dirs_exist_ok=True)


def _link_or_copy(origin: str, place: str) -> None:
    if origin.endswith(IMMUTABLE):
        os.link(origin, place)
    else:
        shutil.copyfile(origin, place)
