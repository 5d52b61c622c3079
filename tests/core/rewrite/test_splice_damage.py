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

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.core.parquet.altered import layout_of
from tests.core.rewrite.splice_flips import outcome, write

import fsspeckit
from fsspeckit.errors import UnreadableFileError

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


def _plain(data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_map(data_type):
        return pa.map_(pa.int64(), pa.string())
    if pa.types.is_list(data_type):
        return pa.list_(pa.string())
    return pa.struct({"w": pa.string()}) if pa.types.is_struct(data_type) else pa.string()


@pytest.mark.parametrize("kind", ["text", "dictionary", "struct", "list", "map"])
def test_an_index_behind_the_last_value_of_a_dictionary(tmp_path: Path, kind: str) -> None:
    words = pa.array([f"w{n * 7 % 5}" for n in range(64)])
    inside = words if kind == "text" else words.dictionary_encode()
    offsets = np.arange(65, dtype=np.int32)
    values, new = {
        "struct": (pa.StructArray.from_arrays([inside], ["w"]), {"w": "new"}),
        "list": (pa.ListArray.from_arrays(offsets, inside), ["new"]),
        "map": (pa.MapArray.from_arrays(offsets, np.arange(64), inside), [(1, "new")]),
    }.get(kind, (inside, "new"))
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": np.arange(64), "v": values}), file, compression="none")
    data = bytearray(file.read_bytes())
    end = layout_of(file).groups[0].chunks[-1].data.end
    data[end - 3 : end] = bytes([0x6D, 0xDB, 0xB6])  # the last eight indices are 5
    file.write_bytes(data)
    source = pa.table({"id": [3], "v": pa.array([new], _plain(values.type))})
    with pytest.raises(UnreadableFileError, match=r"a\.parquet.*index is out of bounds"):
        fsspeckit.merge(source, str(tmp_path), "upsert", ["id"], engine="pyarrow")
