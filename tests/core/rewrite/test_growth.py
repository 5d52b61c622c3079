"""Work on columns grows with their number, not with its square; counted, never timed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.keys.canonical import check_columns
from fsspeckit.core.rewrite import read_file_properties
from fsspeckit.core.rewrite.diff import FileDiff, RowChanges
from fsspeckit.core.schema_conform import check_same_columns
from fsspeckit.storage.roots import open_root

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COLUMNS = 200


class CountedName(str):
    """A name that counts how often it is compared with another or changed to lower case."""

    __slots__ = ()
    steps = 0

    def __eq__(self, other: object) -> bool:
        CountedName.steps += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__

    def lower(self) -> str:
        CountedName.steps += 1
        return str.lower(self)


def _names(count: int) -> list[str]:
    return [CountedName(f"column {number}") for number in range(count)]


def _steps(work: Callable[[], object]) -> int:
    CountedName.steps = 0
    work()
    return CountedName.steps


def _merged(directory: Path, count: int) -> Callable[[], object]:
    """Reads the rows of a file in which one value changes, after they were compared."""
    old = pa.table({str(name): [1.0, 2.0] for name in _names(count)})
    new = old.slice(1).set_column(0, old.column_names[0], pa.array([3.0]))
    path = str(directory / "old.parquet")
    pq.write_table(old, path)
    root, file = open_root(directory), pq.ParquetFile(path)
    none = np.empty(0, np.int64)
    changes = RowChanges(np.array([1]), np.array([0]), none, none)
    layout = read_file_properties(root, path, file)
    change = FileDiff(root, path, file, layout, changes, lambda rows: new.take(pa.array(rows)))
    (run,) = change.runs()
    found = run.compare(_names(count))
    assert found.changed == {0: {old.column_names[0]}}
    return lambda: found.merged(_names(count))


def test_rows_of_a_file_are_put_together_in_steps_that_grow_with_the_columns(
    tmp_path: Path,
) -> None:
    assert _steps(_merged(tmp_path, COLUMNS)) <= 10 * COLUMNS


@pytest.mark.parametrize("what", ["source and target", "named and available"])
def test_columns_are_compared_in_steps_that_grow_with_their_number(what: str) -> None:
    one, other = _names(COLUMNS), _names(COLUMNS)[::-1]
    if what == "source and target":
        steps = _steps(lambda: check_same_columns(one, other))
    else:
        steps = _steps(lambda: check_columns("bloom_columns", one, other))
    assert steps <= 10 * COLUMNS
