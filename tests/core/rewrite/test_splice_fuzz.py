"""Random files, random replacements: a splice equals the same edit made in memory.

FSSPECKIT_EXAMPLES=10 runs ten times as many.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.rewrite.spliced import Edit, read, same

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = int(300 * float(os.environ.get("FSSPECKIT_EXAMPLES", "1")))

KINDS: dict[str, Any] = {
    "i": (pa.int64(), lambda r: int(r.integers(-9, 9))),
    "j": (pa.int32(), lambda r: int(r.integers(-(2**31), 2**31))),
    "f": (pa.float64(), lambda r: [1.5, -0.0, float("nan"), float(r.random())][r.integers(4)]),
    "s": (pa.string(), lambda r: "x" * int(r.integers(0, 40))),
    "b": (pa.bool_(), lambda r: bool(r.integers(2))),
    "y": (pa.binary(3), lambda r: r.bytes(3)),
    "d": (pa.dictionary(pa.int32(), pa.string()), lambda r: f"d{r.integers(5)}"),
    "t": (pa.timestamp("us", "UTC"), lambda r: int(r.integers(0, 10**15))),
    "l": (pa.list_(pa.int64()), lambda r: [int(r.integers(3))] * int(r.integers(4))),
    "m": (pa.map_(pa.string(), pa.int32()), lambda r: [(f"k{r.integers(3)}", 1)]),
    "n": (
        pa.struct([("a", pa.int32()), ("b", pa.list_(pa.struct([("c", pa.string())])))]),
        lambda r: {"a": int(r.integers(9)), "b": [{"c": "z" * int(r.integers(3))}]},
    ),
}


def _column(kind: str, rows: int, random: np.random.Generator) -> pa.Array:
    data_type, value = KINDS[kind]
    values = [None if random.random() < 0.15 else value(random) for _ in range(rows)]
    if pa.types.is_timestamp(data_type):
        return pa.array(values, pa.int64()).cast(data_type)
    if pa.types.is_dictionary(data_type):
        return pa.array(values, data_type.value_type).dictionary_encode().cast(data_type)
    return pa.array(values, data_type)


def _table(kinds: list[str], rows: int, random: np.random.Generator) -> pa.Table:
    return pa.table({kind: _column(kind, rows, random) for kind in kinds})


options = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(["none", "snappy", "gzip", "zstd", "brotli", "lz4"]),
        "use_dictionary": st.booleans(),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "data_page_size": st.sampled_from([64, 1024, 1 << 20]),
        "write_page_index": st.booleans(),
        "write_page_checksum": st.booleans(),
        "write_statistics": st.booleans(),
        "store_schema": st.just(True),
    }
)


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(st.data())
def test_a_splice_equals_the_same_edit_in_memory(tmp_path: Path, data: st.DataObject) -> None:
    random = np.random.default_rng(data.draw(st.integers(0, 2**32), label="seed"))
    kinds = data.draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=6, unique=True))
    rows = data.draw(st.integers(1, 60), label="rows")
    asked = data.draw(options)
    if data.draw(st.booleans(), label="blooms"):
        asked["bloom_filter_options"] = {name: True for name in kinds if name in "ijst"} or None
    old = _table(kinds, rows, random)
    path, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    pq.write_table(old, path, row_group_size=data.draw(st.integers(5, 60)), **asked)

    chosen = sorted(data.draw(st.sets(st.integers(0, rows - 1)), label="positions"))
    changed = data.draw(st.sets(st.sampled_from(kinds)), label="changed columns")
    patch = old.take(pa.array(chosen, pa.int64()))
    for kind in changed:
        column = _column(kind, len(chosen), random)
        patch = patch.set_column(patch.column_names.index(kind), kind, column)
    gone = data.draw(st.sets(st.sampled_from(chosen)) if chosen else st.just(set()), label="gone")
    keep = data.draw(st.booleans(), label="keep others")
    edit = Edit(chosen, patch.cast(old.schema), keep, gone)

    new.unlink(missing_ok=True)
    done = edit.on_disk(path, new)

    expected = edit.in_memory(old)
    methods = ("kept", "splice", "column splice") if expected.num_rows else ("removed",)
    assert done.method in methods, done.reason
    assert (done.rows, done.deleted_rows) == (expected.num_rows, rows - expected.num_rows)
    if expected.num_rows:
        assert same(read(new if done.is_new else path), expected)
    assert done.is_new == new.exists()
