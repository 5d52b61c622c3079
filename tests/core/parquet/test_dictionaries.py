"""A rewritten column has a dictionary again where the dictionary saved something."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.core.rewrite.spliced import Edit

from fsspeckit.datasets.pyarrow import PyarrowDatasetIO

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 5_000


def dictionaries(path: Path | str) -> set[str]:
    """The columns of a file's first row group that have a dictionary."""
    group = pq.read_metadata(path).row_group(0)
    chunks = [group.column(number) for number in range(group.num_columns)]
    return {chunk.path_in_schema for chunk in chunks if chunk.has_dictionary_page}


def test_a_dictionary_of_values_that_all_differ_is_not_built_again(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    table = pa.table(
        {
            "id": np.arange(ROWS),
            "all differ": random.random(ROWS),
            "few": random.integers(0, 9, ROWS).astype(float),
            "few, and NULL": pa.array([None, 1.5] * (ROWS // 2)),
            "word": random.integers(0, 9, ROWS).astype(str),
        }
    )
    (tmp_path / "data").mkdir()
    pq.write_table(table, tmp_path / "data" / "a.parquet")
    assert dictionaries(tmp_path / "data" / "a.parquet") == set(table.column_names)
    source = table.slice(0, 1).set_column(1, "all differ", [[2.0]])
    result = PyarrowDatasetIO().merge(source, str(tmp_path / "data"), "update", ["id"])
    (new,) = result.rewritten_files
    # Keys do not change, and are copied as they are.
    assert dictionaries(new) == {"id", "few", "few, and NULL", "word"}
    assert pq.read_table(new).slice(1).equals(table.slice(1))


def test_a_dictionary_that_got_too_large_is_not_tried_again(tmp_path: Path) -> None:
    table = pa.table({"id": np.arange(ROWS), "text": [f"{n:030}" for n in range(ROWS)]})
    old, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    pq.write_table(table, old, dictionary_pagesize_limit=4096, data_page_size=4096)
    assert "text" in dictionaries(old)
    changed = table.set_column(1, "text", [[f"new {n}" for n in range(ROWS)]])
    done = Edit(range(ROWS), changed).on_disk(old, new)
    assert done.method == "column splice"
    assert "text" not in dictionaries(new)
    assert pq.read_table(new).equals(changed)
