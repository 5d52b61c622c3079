"""The rewriter: rows replaced at their positions, everything else as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsspeckit.core.rewrite import Replacement, Rewritten, RowRules, rewrite
from fsspeckit.errors import SchemaMismatchError
from fsspeckit.storage.roots import open_root

if TYPE_CHECKING:
    from pathlib import Path


def _rewrite(
    directory: Path, positions: list[int], rows: pa.Table, *, keep_others: bool = True
) -> Rewritten:
    rules = RowRules(keep_others=keep_others)
    replacement = Replacement(np.array(positions, np.int64), np.arange(len(positions)), rules)
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
    assert done.rows == len(expected)
    assert (done.replaced_rows, done.deleted_rows) == (len(chosen), 10 - len(expected))
    if done.is_new:
        assert pq.read_table(tmp_path / "new.parquet").to_pylist() == expected
        (tmp_path / "new.parquet").unlink()
    else:
        assert done.is_removed == (not keep_others)
        assert not chosen
        assert not (tmp_path / "new.parquet").exists()


def test_a_file_in_which_no_value_changes_is_not_written(tmp_path: Path) -> None:
    old = _old(tmp_path)
    done = _rewrite(tmp_path, [2, 7], old.take(pa.array([2, 7])))
    assert done == Rewritten(10, unchanged_rows=2, encoded_row_groups=0, replaced_rows=2)
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


@pytest.mark.parametrize("keep_others", [True, False])
def test_empty_row_groups_stay_and_emptied_ones_go(tmp_path: Path, keep_others: bool) -> None:
    table = pa.table({"id": [1, 2], "v": ["a", "b"]})
    with pq.ParquetWriter(tmp_path / "old.parquet", table.schema) as writer:
        for part in (table.slice(0, 0), table.slice(0, 1), table.slice(1, 1), table.slice(0, 0)):
            writer.write_table(part)
    _rewrite(tmp_path, [1], pa.table({"id": [2], "v": ["new"]}), keep_others=keep_others)
    metadata = pq.read_metadata(tmp_path / "new.parquet")
    found = [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]
    assert found == ([0, 1, 1, 0] if keep_others else [0, 1, 0])


@pytest.mark.parametrize(
    ("changed", "sorted_by"),
    [("v", [0, 1]), ("w", [0]), ("both", [0])],
)
def test_a_sort_order_stays_as_far_as_it_holds(
    tmp_path: Path, changed: str, sorted_by: list[int]
) -> None:
    old = pa.table({"id": range(6), "w": range(6), "v": list("abcdef")})
    order = [pq.SortingColumn(0), pq.SortingColumn(1, descending=True)]
    path = tmp_path / "old.parquet"
    pq.write_table(old, path, row_group_size=2, sorting_columns=order)
    # The first row group that changes does so in `v` alone: later ones are looked at too.
    new = old.take(pa.array([1, 4])).to_pydict()
    new["v"][0] = "new"
    if changed != "v":
        new["w"][1] = 99
    # A file that is written as a whole has one sort order.
    replacement = Replacement(np.array([1, 4]), np.array([0, 1]), RowRules(force=True))
    source = pa.table(new, schema=old.schema)
    rewrite(
        open_root(tmp_path),
        str(path),
        replacement,
        lambda rows: source.take(pa.array(rows)),
        str(tmp_path / "new.parquet"),
        key_columns=["id"],
    )
    metadata = pq.read_metadata(tmp_path / "new.parquet")
    for number in range(3):
        assert list(metadata.row_group(number).sorting_columns) == [order[n] for n in sorted_by]


def test_a_sort_order_by_a_nested_column_is_not_promised(tmp_path: Path) -> None:
    old = pa.table({"id": [1, 2], "s": [{"x": 1}, {"x": 2}]})
    order = [pq.SortingColumn(0), pq.SortingColumn(1)]
    pq.write_table(old, tmp_path / "old.parquet", sorting_columns=order)
    new = pa.table({"id": [2], "s": [{"x": 0}]})
    _rewrite(tmp_path, [1], new)
    found = pq.read_metadata(tmp_path / "new.parquet").row_group(0).sorting_columns
    assert list(found) == order[:1]


def _int96(directory: Path, table: pa.Table, mixed: bool = False) -> None:
    pq.write_table(table, directory / "old.parquet", use_deprecated_int96_timestamps=not mixed)


def test_int96_in_nanoseconds_takes_a_source_in_microseconds(tmp_path: Path) -> None:
    _int96(tmp_path, pa.table({"t": pa.array([1, 2_001], pa.timestamp("ns"))}))
    _rewrite(tmp_path, [0], pa.table({"t": pa.array([7], pa.timestamp("us", "UTC"))}))
    new = pq.ParquetFile(tmp_path / "new.parquet")
    assert new.metadata.row_group(0).column(0).physical_type == "INT96"
    assert new.read().column("t").cast(pa.int64()).to_pylist() == [7_000, 2_001]


@pytest.mark.parametrize("values", [[1, 2, 3], [1000, 2000, 3000]])
def test_nanoseconds_in_a_file_that_says_it_is_of_the_first_version(
    tmp_path: Path, values: list[int]
) -> None:
    """Polars writes such files; pyarrow has only microseconds in that version."""
    import polars

    nanoseconds = pa.timestamp("ns")
    table = pa.table({"id": range(3), "t": pa.array(values).cast(nanoseconds)})
    polars.DataFrame(table).write_parquet(tmp_path / "old.parquet")
    assert pq.read_metadata(tmp_path / "old.parquet").format_version == "1.0"
    _rewrite(tmp_path, [1], pa.table({"id": [1], "t": pa.array([9000]).cast(nanoseconds)}))
    found = pq.read_table(tmp_path / "new.parquet")["t"]
    assert found.type == nanoseconds
    assert found.cast(pa.int64()).to_pylist() == [values[0], 9000, values[2]]
