"""Damaged files: a splice falls back, fails with an error, or is right; it is never wrong.

FSSPECKIT_EXAMPLES=10 flips a bit in every byte instead of in one of eight.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.core.rewrite.splice_flips import outcome, write

if TYPE_CHECKING:
    from pathlib import Path

STEP = 1 if float(os.environ.get("FSSPECKIT_EXAMPLES", "1")) > 1 else 8


def _outcomes(directory: Path, where: str, version: str, first: int = 0) -> Counter[str]:
    """What became of every damaged file; a child that pyarrow ended is followed by another."""
    found: Counter[str] = Counter()
    while True:
        arguments = [str(directory), where, version, str(first), str(STEP)]
        child = subprocess.run(
            [sys.executable, "-m", "tests.core.rewrite.splice_flips", *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        lines = [line.partition(" ") for line in child.stdout.splitlines()]
        found.update(outcome for _, _, outcome in lines if outcome)
        if child.returncode == 0:
            return found
        assert child.returncode == -signal.SIGABRT, child.stderr
        found["ended by pyarrow"] += 1
        first = int(lines[-1][0]) + STEP


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_flipped_bits_in_the_footer(tmp_path: Path, version: str) -> None:
    found = _outcomes(tmp_path, "footer", version, first=int(version[0]))
    assert found["error"] > 0
    assert found["column splice"] > 0
    assert found["ended by pyarrow"] <= 0.02 * found.total()


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_flipped_bits_in_page_headers_and_indexes(tmp_path: Path, version: str) -> None:
    found = _outcomes(tmp_path, "headers and indexes", version)
    assert found["column splice"] > 0
    assert found["as damaged as before"] > 0
    assert found["ended by pyarrow"] == 0


@pytest.mark.parametrize("cut", [0, 1, 4, 11, 12, 100, 1000])
def test_files_that_end_early(tmp_path: Path, cut: int) -> None:
    data = write(tmp_path / "old.parquet")
    assert outcome(tmp_path, data[:cut]) == "error"
    assert outcome(tmp_path, data[: len(data) - cut - 1]) == "error"
