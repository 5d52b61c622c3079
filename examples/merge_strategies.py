"""The strategies insert, update and upsert, on every engine that is installed.

Run with the names of engines to choose: ``python examples/merge_strategies.py duckdb pyarrow``.
"""

from __future__ import annotations

import sys
import tempfile
from importlib import import_module
from typing import TYPE_CHECKING

import pyarrow as pa

from fsspeckit.datasets.registry import ENGINES

if TYPE_CHECKING:
    from fsspeckit.datasets.interfaces import DatasetHandler

TARGET = pa.table({"id": [1, 2, 3], "name": ["Ada", "Bob", "Cyd"]})
SOURCE = pa.table({"id": [3, 4], "name": ["Cid", "Dee"]})


def main() -> None:
    """Merge with each engine and strategy."""
    chosen = sys.argv[1:] or [name for name, entry in ENGINES.items() if entry.is_installed]
    for name in chosen:
        entry = ENGINES[name]
        with getattr(import_module(entry.module), entry.class_name)() as io:
            for strategy in ("insert", "update", "upsert"):
                print(f"{name:8} {strategy:8}", merged(io, strategy))


def merged(io: DatasetHandler, strategy: str) -> str:
    """Merge into a fresh dataset; print what became of it."""
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/people"
        io.write_dataset(TARGET, path)
        result = io.merge(SOURCE, path, strategy, ["id"])
        return (
            f"{result.inserted} inserted, {result.updated} updated, "
            f"{len(result.rewritten_files)} rewritten, {len(result.preserved_files)} preserved"
        )


if __name__ == "__main__":
    main()
