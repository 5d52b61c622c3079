"""fsspeckit itself, on its two local engines."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from benchmarks.peers.protocol import link_tree
from benchmarks.peers.tables import KEY

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from benchmarks.peers.protocol import Files, Phases
    from benchmarks.peers.workloads import Strategy


class _Fsspeckit:
    """Merges with fsync on, as everyone gets it."""

    def __init__(self, io: Any) -> None:
        self._io = io

    def make(self, files: Files, place: Path) -> None:
        link_tree(files.directory, place / "table")

    def merge(self, place: Path, source: pa.Table, strategy: Strategy) -> Phases:
        merged = self._io.merge(source, str(place / "table"), strategy, [KEY])
        return dict(merged.metrics["seconds"])

    def read(self, place: Path) -> pa.Table:
        return self._io.read_dataset(str(place / "table"))


def _do_nothing(descriptor: int) -> None:
    pass


class _NoFsync(_Fsspeckit):
    """Merges while ``os.fsync`` does nothing.

    The library has no such switch: a commit that is not on the disk is not a commit.
    """

    def merge(self, place: Path, source: pa.Table, strategy: Strategy) -> Phases:
        with patch.multiple(os, fsync=_do_nothing, fdatasync=_do_nothing):
            return super().merge(place, source, strategy)


class _KeyIndex(_Fsspeckit):
    """Merges into a table that has a key index, as from the second merge on."""

    def make(self, files: Files, place: Path) -> None:
        super().make(files, place)
        nothing = self.read(place).slice(0, 0)
        self._io.merge(nothing, str(place / "table"), "update", [KEY], key_index=True)


def pyarrow() -> _Fsspeckit:
    """On PyArrow."""
    from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

    return _Fsspeckit(PyarrowDatasetIO())


def no_fsync() -> _NoFsync:
    """On PyArrow, with the durability of the peers."""
    from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

    return _NoFsync(PyarrowDatasetIO())


def key_index() -> _KeyIndex:
    """On PyArrow, with a key index."""
    from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

    return _KeyIndex(PyarrowDatasetIO())


def duckdb() -> _Fsspeckit:
    """On DuckDB."""
    from fsspeckit.datasets.duckdb import DuckDBDatasetIO

    return _Fsspeckit(DuckDBDatasetIO())
