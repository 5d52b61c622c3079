"""What readers in a loop see on an object store while merges replace every file, and for how long.

With FSSPECKIT_TORTURE=1 the figures of every store go into the documentation.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.storage.figures import Matrix
from tests.storage.store_reader import GONE, MISSING, ONE_STATE, READERS, TOGETHER, VERDICTS

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO
from fsspeckit.testing.conformance.stores import TORTURE, object_store, stores_of_clouds

if TYPE_CHECKING:
    from fsspeckit.testing.object_stores import ObjectStore

pytestmark = [pytest.mark.slow, pytest.mark.untraced]
REPOSITORY = Path(__file__).parents[2]
FILES, ROWS = 16, 64
MERGES = 100 if TORTURE else 3
DONE, MEDIAN, LONGEST = "merges, of 16 files each", "window, median", "window, longest"
FIGURES = Matrix(
    REPOSITORY / "docs" / "concepts" / "guarantees.md",
    "window",
    "",
    [DONE, MEDIAN, LONGEST, *(f"{name}: {seen}" for name in READERS for seen in VERDICTS)],
)


def started(reader: str, server: ObjectStore, path: str) -> subprocess.Popen[str]:
    """Start a reader, and return when it has read once."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.storage.store_reader", reader],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps({"path": path, "options": server.options, "rows": ROWS}) + "\n")
    process.stdin.flush()
    assert process.stdout.readline() == "reading\n"
    return process


def seen_by(process: subprocess.Popen[str]) -> dict[str, int]:
    """End a reader; how often it saw what."""
    said, _ = process.communicate(timeout=60)
    seen: dict[str, int] = json.loads(said)
    return {verdict: seen.get(verdict, 0) for verdict in VERDICTS}


@pytest.mark.parametrize("kind", stores_of_clouds() if TORTURE else ["moto"])
def test_readers_in_a_loop_while_merges_replace_every_file(kind: str) -> None:
    server = object_store(kind)
    path = server.at(server.make_bucket(), "lake/data")
    windows = []
    with PyarrowDatasetIO(storage_options=server.options) as io:
        io.write_dataset(rows(0), path, max_rows_per_file=ROWS // FILES)
        readers = {name: started(name, server, path) for name in READERS}
        for number in range(1, MERGES + 1):
            merged = io.merge(rows(number), path, "upsert", ["id"])
            assert len(merged.rewritten_files) == FILES
            windows.append(1000 * merged.metrics["commit"]["window_seconds"])
    seen = {name: seen_by(reader) for name, reader in readers.items()}
    write(kind, windows, seen)
    assert seen["plain"][MISSING] == 0
    assert seen["read_dataset"][ONE_STATE] > 0
    assert not any(seen["read_dataset"][verdict] for verdict in (TOGETHER, GONE, MISSING))


def rows(value: int) -> pa.Table:
    return pa.table({"id": range(ROWS), "v": [value] * ROWS})


def write(kind: str, windows: list[float], seen: dict[str, dict[str, int]]) -> None:
    """Print the figures, and put them into the page if they are of many merges."""
    cells: dict[str, Any] = {
        DONE: f"{len(windows):,}",
        MEDIAN: f"{statistics.median(windows):.0f} ms",
        LONGEST: f"{max(windows):.0f} ms",
    }
    for name, verdicts in seen.items():
        cells |= {f"{name}: {verdict}": f"{count:,}" for verdict, count in verdicts.items()}
    for line, cell in cells.items():
        sys.stdout.write(f"{line}, {kind}: {cell}\n")
        if TORTURE:
            FIGURES.write(line, kind, cell)
