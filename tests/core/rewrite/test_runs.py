"""Row groups that are rewritten together: what they may take, and what must not change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.core.parquet.altered import layout_of
from tests.core.rewrite.spliced import Edit

import fsspeckit
from fsspeckit.core.parquet import columns_of, decoded_bytes
from fsspeckit.core.parquet.format.pages import pages_of
from fsspeckit.core.rewrite import SpliceLimits
from fsspeckit.core.rewrite.diff import FileDiff

if TYPE_CHECKING:
    from pathlib import Path

ROWS, GROUPS = 1000, 8


def _write(path: Path, column: Any, **options: Any) -> None:
    """Write a file with some row groups; ``column`` makes the values of one of them."""
    path.mkdir()
    tables = [
        pa.table({"id": np.arange(number * ROWS, (number + 1) * ROWS), "v": column(number)})
        for number in range(GROUPS)
    ]
    with pq.ParquetWriter(path / "a.parquet", tables[0].schema, **options) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=ROWS)


def _merge(path: Path, value: Any, kind: pa.DataType) -> int:
    ids = pa.array(np.arange(GROUPS) * ROWS)
    source = pa.table({"id": ids, "v": pa.array([value] * GROUPS, kind)})
    return fsspeckit.merge(source, str(path), "upsert", ["id"], engine="pyarrow").updated


def _file(path: Path) -> Path:
    (file,) = path.glob("*.parquet")
    return file


@pytest.mark.parametrize("wrap", ["list", "struct"])
def test_dictionaries_inside_of_columns_of_several_row_groups(tmp_path: Path, wrap: str) -> None:
    words = pa.array([f"word {n % 3}" for n in range(ROWS)]).dictionary_encode()
    if wrap == "list":
        values: pa.Array = pa.ListArray.from_arrays(np.arange(ROWS + 1, dtype=np.int32), words)
        new: Any = ["new"]
    else:
        values, new = pa.StructArray.from_arrays([words], ["w"]), {"w": "new"}
    _write(tmp_path / "data", lambda number: values)
    plain = pa.list_(pa.string()) if wrap == "list" else pa.struct({"w": pa.string()})
    assert _merge(tmp_path / "data", new, plain) == GROUPS
    found = pq.read_table(_file(tmp_path / "data"))["v"].to_pylist()
    expected = values.to_pylist() * GROUPS
    expected[::ROWS] = [new] * GROUPS
    assert found == expected


@pytest.mark.parametrize("kind", ["constant", "text", "nested text"])
def test_row_groups_are_taken_by_what_they_decode_to(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "x" * 2000
    values: Any = {
        "constant": lambda number: np.zeros(ROWS),
        "text": lambda number: [text] * ROWS,
        "nested text": lambda number: [{"w": text}] * ROWS,
    }[kind]
    _write(tmp_path / "data", values)
    layout = layout_of(_file(tmp_path / "data"))
    column = columns_of(layout.elements)[1]
    (chunk,) = (layout.groups[0].chunks[number] for number in column.numbers)
    wanted = ROWS * (8 if kind == "constant" else 2000)
    assert wanted <= decoded_bytes(chunk, column.lengths[0]) <= wanted + 4 * ROWS
    assert chunk.raw_bytes < wanted / 2
    largest = max(sum(map(decoded_bytes, group.chunks)) for group in layout.groups)
    runs = list[int]()
    take = FileDiff.old_rows

    def count(self: FileDiff, numbers: Any, *arguments: Any) -> pa.Table:
        runs.append(len(numbers))
        return take(self, numbers, *arguments)

    monkeypatch.setattr(FileDiff, "old_rows", count)
    new: Any = 1.5 if kind == "constant" else {"w": "new"} if "nested" in kind else "new"
    starts = list(range(0, GROUPS * ROWS, ROWS))
    edit = Edit(starts, pa.table({"id": starts, "v": [new] * GROUPS}))
    old, rewritten = _file(tmp_path / "data"), tmp_path / "new.parquet"
    limits = SpliceLimits(max_run_bytes=3 * largest)
    assert edit.on_disk(old, rewritten, keys=["id"], limits=limits).is_new
    assert set(runs) == {3, 2}
    assert pq.read_table(rewritten)["v"].to_pylist()[::ROWS] == [new] * GROUPS


def test_threads_share_the_work_of_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, taken = tmp_path / "old.parquet", list[set[str]]()
    numbers = {name: np.arange(ROWS) for name in ("id", "a", "b", "c", "d")}
    texts = {"s": [f"{n:024}" for n in range(ROWS)], "few": ["one of few"] * ROWS}
    pq.write_table(pa.table({**numbers, **texts}), path, use_dictionary=["few"])
    read_columns = FileDiff.old_rows

    def note(self: FileDiff, numbers: Any, names: Any, *arguments: Any) -> pa.Table:
        taken.append({*names})
        return read_columns(self, numbers, names, *arguments)

    monkeypatch.setattr(FileDiff, "old_rows", note)
    row = {name: [3] for name in numbers} | {name: ["x"] for name in texts}
    row["a"] = [-1]
    edit = Edit([3], pa.table(row))
    assert edit.on_disk(path, tmp_path / "new.parquet", keys=["id"], threads=2).is_new
    # A byte of the strings that differ is more work than one of numbers, or of few values.
    assert sorted(taken, key=len) == [{"s"}, {"a", "b", "c", "d", "few"}]


@pytest.mark.parametrize("is_ordered", [False, True])
def test_row_groups_keep_dictionaries_of_their_own(tmp_path: Path, is_ordered: bool) -> None:
    def values(number: int) -> pa.DictionaryArray:
        words = pa.array([f"{number} word {n:04}" for n in range(100)])
        indices = pa.array(np.arange(ROWS) % 100, pa.int32())
        return pa.DictionaryArray.from_arrays(indices, words, ordered=is_ordered)

    _write(tmp_path / "data", values)
    before = _file(tmp_path / "data").stat().st_size
    for word in ("new", "newer"):
        assert _merge(tmp_path / "data", word, pa.string()) == GROUPS
        assert _file(tmp_path / "data").stat().st_size < 1.2 * before
    with pq.ParquetFile(_file(tmp_path / "data")) as file:
        for number in range(GROUPS):
            column = file.read_row_group(number, columns=["v"])["v"]
            assert column.type == values(0).type
            assert len(column.combine_chunks().dictionary) == 101
            assert column.to_pylist() == ["newer", *values(number).to_pylist()[1:]]


def test_nulls_among_the_indices_of_a_dictionary_stay(tmp_path: Path) -> None:
    def values(number: int) -> list[str | None]:
        return [f"{number} word {n % 100:02}" if n % 7 else None for n in range(ROWS)]

    _write(tmp_path / "data", lambda number: pa.array(values(number)).dictionary_encode())
    assert _merge(tmp_path / "data", "new", pa.string()) == GROUPS
    with pq.ParquetFile(_file(tmp_path / "data")) as file:
        for number in range(GROUPS):
            column = file.read_row_group(number, columns=["v"])["v"]
            assert column.to_pylist() == ["new", *values(number)[1:]]
            assert len(column.combine_chunks().dictionary) == 101


@pytest.mark.parametrize("has_dictionary", [False, True])
def test_long_strings_beside_a_dictionary_keep_short_pages(
    tmp_path: Path, has_dictionary: bool
) -> None:
    rows = 8 * ROWS
    texts = [f"{n:01000}" for n in range(rows)]
    words = pa.array([f"word {n % 100}" for n in range(rows)])
    old = pa.table({"id": np.arange(rows), "text": texts, "word": words})
    (tmp_path / "data").mkdir()
    with_dictionary = ["word"] if has_dictionary else False
    pq.write_table(old, tmp_path / "data" / "a.parquet", use_dictionary=with_dictionary)
    new = pa.table({"id": [5], "text": ["new"], "word": ["new"]})
    fsspeckit.merge(new, str(tmp_path / "data"), "upsert", ["id"], engine="pyarrow")
    file = _file(tmp_path / "data")
    content = file.read_bytes()
    (group,) = layout_of(file).groups
    pages = list(pages_of(group.chunks[1], lambda start, size: content[start : start + size]))
    assert max(page.values for page in pages) * 1000 <= 2 * 2**20


def test_a_column_of_nulls_gets_a_dictionary_where_values_repeat(tmp_path: Path) -> None:
    _write(tmp_path / "data", lambda number: pa.nulls(ROWS, pa.string()))
    rows = pa.table({"id": np.arange(ROWS * GROUPS), "v": ["the same words"] * ROWS * GROUPS})
    fsspeckit.merge(rows, str(tmp_path / "data"), "upsert", ["id"], engine="pyarrow")
    encodings = pq.read_metadata(_file(tmp_path / "data")).row_group(0).column(1).encodings
    assert "RLE_DICTIONARY" in encodings


def test_a_change_is_found_among_rows_that_differ_in_another_column(tmp_path: Path) -> None:
    old, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    values = np.arange(3 * ROWS)
    before = pa.table({"id": values, "a": values, "b": values, "c": values})
    pq.write_table(before, old, row_group_size=ROWS)
    a, b = values.copy(), values.copy()
    a[:ROWS] = -1  # in all rows of a row group, in half of the next one, in none of the last one
    a[ROWS : 2 * ROWS : 2] = -1
    b[[ROWS - 1, 2 * ROWS - 1]] = -1
    edit = Edit(values.tolist(), pa.table({"id": values, "a": a, "b": b, "c": values}))
    done = edit.on_disk(old, new, keys=["id"])
    assert pq.read_table(new).equals(edit.rows)
    assert (done.encoded_row_groups, done.encoded_columns, done.copied_columns) == (2, 2, 2)
    assert done.unchanged_rows == ROWS + ROWS // 2 - 1
