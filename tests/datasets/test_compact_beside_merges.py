"""Compactions while other processes merge: no row is lost, doubled or reverted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from benchmarks.bench_compact import Sizes, compact_beside_merges

from fsspeckit.testing.conformance.stores import TORTURE

if TYPE_CHECKING:
    from pathlib import Path

SIZES = Sizes() if TORTURE else Sizes(small_files=120, small_rows=200, writers=2, seconds=2)


@pytest.mark.slow
@pytest.mark.untraced
def test_a_compaction_beside_merges(tmp_path: Path) -> None:
    found = compact_beside_merges(tmp_path, SIZES, files_per_bin=10)
    assert found.wrong_rows == 0
    assert found.written_twice == 0
    assert found.result.bins
    assert found.before or found.during
