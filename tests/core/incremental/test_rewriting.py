"""The rewriter: rows replaced at their positions, everything else as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsspeckit.core.incremental.rewriting import Replacement, Rewritten, rewrite
from fsspeckit.errors import SchemaMismatchError
from fsspeckit.storage.roots import open_root

if TYPE_CHECKING:
    from pathlib import Path


def _rewrite(
    directory: Path, positions: list[int], rows: pa.Table, *, keep_others: bool = True
) -> Rewritten:
    replacement = Replacement(np.array(positions, np.int64), np.arange(len(positions)), keep_others)
    return rewrite(
        open_root(directory),
        str(directory / "old.parquet"),
        replacement,
        lambda numbers: rows.take(pa.array(numbers)),
        str(directory / "new.parquet"),
    )


def _old(directory: Path, rows: int = 10) -> pa.Table:
    table = pa.table({"id": range(rows), "v": [f"v{i}" for i in range(rows)]})
    pq.write_table(table, directory / "old.parquet", row_group_size=3)
    return table


@given(st.sets(st.integers(0, 9)), st.booleans())
def test_replaced_in_place_whatever_the_positions(
    tmp_path: Path, chosen: set[int], keep_others: bool
) -> None:
    old, positions = _old(tmp_path), sorted(chosen)
    new = pa.table({"id": positions, "v": ["new"] * len(positions)}, schema=old.schema)
    done = _rewrite(tmp_path, positions, new, keep_others=keep_others)
    expected = [
        {"id": i, "v": "new" if i in chosen else f"v{i}"}
        for i in range(10)
        if keep_others or i in chosen
    ]
    if done.is_new:
        assert pq.read_table(tmp_path / "new.parquet").to_pylist() == expected
        assert done.rows == len(expected)
        (tmp_path / "new.parquet").unlink()
    else:
        assert keep_others
        assert not chosen
        assert not (tmp_path / "new.parquet").exists()


def test_a_file_in_which_no_value_changes_is_not_written(tmp_path: Path) -> None:
    old = _old(tmp_path)
    done = _rewrite(tmp_path, [2, 7], old.take(pa.array([2, 7])))
    assert done == Rewritten(rows=10, unchanged_rows=2, encoded_row_groups=0)
    assert not (tmp_path / "new.parquet").exists()


def test_rows_without_a_change_are_counted(tmp_path: Path) -> None:
    old = _old(tmp_path)
    new = pa.concat_tables([old.take(pa.array([2])), pa.table({"id": [7], "v": ["new"]})])
    assert _rewrite(tmp_path, [2, 7], new).unchanged_rows == 1


def test_row_groups_keep_their_boundaries(tmp_path: Path) -> None:
    _old(tmp_path)
    _rewrite(tmp_path, [4], pa.table({"id": [4], "v": ["new"]}))
    metadata = pq.read_metadata(tmp_path / "new.parquet")
    assert [metadata.row_group(i).num_rows for i in range(4)] == [3, 3, 3, 1]


def test_a_row_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    _old(tmp_path)
    with pytest.raises(SchemaMismatchError, match="'v'"):
        _rewrite(tmp_path, [4], pa.table({"id": [4], "v": [5]}))
