"""Chunks of which only the pages with a changed row are new: what readers and footers see."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.parquet.altered import alter, layout_of
from tests.core.rewrite.spliced import Edit, read, same

from fsspeckit.core.parquet.format.pages import (
    DICTIONARY_ENCODINGS,
    DICTIONARY_PAGE,
    Page,
    pages_of,
)
from fsspeckit.core.parquet.format.thrift import I64, INT, decode, encode, set_field
from fsspeckit.core.parquet.patch import page_reader
from fsspeckit.core.rewrite import diff

if TYPE_CHECKING:
    from pathlib import Path

    from fsspeckit.core.parquet.format.layout import Chunk
    from fsspeckit.core.parquet.format.thrift import Struct

EXAMPLES = int(250 * float(os.environ.get("FSSPECKIT_EXAMPLES", "1")))
ROWS, GROUP, PAGE = 400, 200, 20
TABLE = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int64()),
        "n": pa.array([(n * 7919) % 1000 + 0.5 for n in range(ROWS)]),
        "s": [f"s{n % 11:02}" for n in range(ROWS)],
        "o": [None if n % 5 == 0 else n % 90 for n in range(ROWS)],
        "b": [n % 3 == 0 for n in range(ROWS)],
        "l": [[n, n + 1] for n in range(ROWS)],
    }
)


def _write(directory: Path, table: pa.Table = TABLE, **options: Any) -> Path:
    path = directory / "old.parquet"
    pq.write_table(table, path, row_group_size=GROUP, max_rows_per_page=PAGE, **options)
    return path


def _edit(places: list[int], table: pa.Table = TABLE, **columns: Any) -> Edit:
    rows = table.take(pa.array(places))
    for name, values in columns.items():
        number = rows.column_names.index(name)
        rows = rows.set_column(number, name, pa.array(values, table.schema.field(name).type))
    return Edit(places, rows)


def _pages(path: Path, chunk: Chunk) -> list[Page]:
    data = path.read_bytes()
    return list(pages_of(chunk, lambda start, length: data[start : start + length]))


def _new_pages(path: Path, new: Path, leaf: int, group: int = 0) -> list[int]:
    """The numbers of those data pages of a chunk that are not the bytes they were."""
    found = []
    for file in (path, new):
        data = file.read_bytes()
        pages = _pages(file, layout_of(file).groups[group].chunks[leaf])
        found.append([data[p.part.start : p.part.end] for p in pages if p.is_data])
    return [n for n, (one, other) in enumerate(zip(*found, strict=True)) if one != other]


def _statistics(path: Path) -> list[list[dict[str, Any] | None]]:
    footer = pq.read_metadata(path)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    chunks = [[group.column(leaf) for leaf in range(group.num_columns)] for group in groups]
    return [[c.statistics.to_dict() if c.is_stats_set else None for c in group] for group in chunks]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_only_pages_with_a_changed_row_are_new(tmp_path: Path, version: str) -> None:
    path = _write(tmp_path, data_page_version=version, use_dictionary=False)
    edit = _edit([45, 50, 130], n=[8.5, 9.5, 10.5], s=["s03", "new", "s04"], o=[None, 4, 5])
    done = edit.on_disk(path, tmp_path / "new.parquet")
    assert same(read(tmp_path / "new.parquet"), edit.in_memory(TABLE))
    assert (done.method, done.encoded_row_groups, done.copied_row_groups) == ("column splice", 1, 1)
    for leaf in (1, 2, 3):
        assert _new_pages(path, tmp_path / "new.parquet", leaf) == [2, 6]
    for leaf in (0, 4, 5):
        assert _new_pages(path, tmp_path / "new.parquet", leaf) == []
    assert done.encoded_bytes < done.copied_bytes


def test_short_row_groups_are_encoded_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their pages would take longer to open."""
    path = _write(tmp_path, use_dictionary=False)
    edit = _edit([45], n=[8.5])
    encoded = []
    for rows in (GROUP, GROUP + 1):
        monkeypatch.setattr(page_reader, "MIN_PROBED_ROWS", rows)
        encoded.append(edit.on_disk(path, tmp_path / f"{rows}.parquet").encoded_bytes)
        assert same(read(tmp_path / f"{rows}.parquet"), edit.in_memory(TABLE))
    assert encoded[0] < encoded[1] / 5


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("place", [5, 45, 150])
def test_dictionary_indices_of_a_page_are_replaced(
    tmp_path: Path, place: int, version: str
) -> None:
    path, new = _write(tmp_path, data_page_version=version), tmp_path / "new.parquet"
    edit = _edit([place], n=[8.5], s=["new"], o=[3])
    edit.on_disk(path, new)
    assert same(read(new), edit.in_memory(TABLE))
    for leaf in (1, 2, 3):
        assert _new_pages(path, new, leaf) == [place // PAGE]
        pages = _pages(new, layout_of(new).groups[0].chunks[leaf])
        assert all(page.encoding in DICTIONARY_ENCODINGS for page in pages if page.is_data)


def _in_order(path: Path, chunk: Chunk) -> bool:
    pages = [page.encoding in DICTIONARY_ENCODINGS for page in _pages(path, chunk) if page.is_data]
    return pages == sorted(pages, reverse=True)


def test_the_footer_lists_the_encodings_of_the_new_pages(tmp_path: Path) -> None:
    path, new = _write(tmp_path), tmp_path / "new.parquet"
    _edit([195], s=["new"]).on_disk(path, new)
    chunk = layout_of(new).groups[0].chunks[2]
    pages = _pages(new, chunk)
    counted = decode(encode(chunk.metadata), {13: [{1: INT, 2: INT, 3: INT}]})[0]
    stated = {(one.values[1], one.values[2]): one.values[3] for one in counted.values[13]}
    assert stated == {(2, 0): 1, (0, 8): 10}
    assert sum(page.raw_bytes for page in pages) == chunk.raw_bytes


def test_statistics_stay_exact(tmp_path: Path) -> None:
    path, new = _write(tmp_path, use_dictionary=False), tmp_path / "new.parquet"
    edit = _edit([45, 350], n=[-7.0, 2000.0], s=["s03", "zz"], o=[None, 95])
    edit.on_disk(path, new)
    full = tmp_path / "full.parquet"
    pq.write_table(edit.in_memory(TABLE), full, row_group_size=GROUP)
    assert _statistics(new) == _statistics(full)
    assert _new_pages(path, new, 1) == [2]


def test_a_bound_that_goes_is_looked_for_among_all_values(tmp_path: Path) -> None:
    path, new, full = _write(tmp_path), tmp_path / "new.parquet", tmp_path / "full.parquet"
    lowest = int(np.argmin(TABLE["n"].slice(0, GROUP).to_numpy()))
    edit = _edit([lowest], n=[500.25])
    edit.on_disk(path, new)
    pq.write_table(edit.in_memory(TABLE), full, row_group_size=GROUP)
    assert _statistics(new) == _statistics(full)


def _dictionary(path: Path, leaf: int) -> int:
    """How many values the dictionary of a column has."""
    data = path.read_bytes()
    pages = _pages(path, layout_of(path).groups[0].chunks[leaf])
    page = next(page for page in pages if page.kind == DICTIONARY_PAGE)
    header = decode(data[page.part.start : page.part.end], {7: {1: INT}})[0]
    return int(header.values[7].values[1])


def test_a_value_that_is_in_the_dictionary_is_not_added(tmp_path: Path) -> None:
    path, new = _write(tmp_path), tmp_path / "new.parquet"
    _edit([45, 50], s=["s03", "s05"]).on_disk(path, new)
    assert _new_pages(path, new, 2) == [2]
    assert _dictionary(new, 2) == _dictionary(path, 2)
    _edit([45, 50], s=["new", "new"]).on_disk(path, new)
    assert _dictionary(new, 2) == _dictionary(path, 2) + 1


def test_a_dictionary_does_not_grow_forever(tmp_path: Path) -> None:
    table = pa.table({"id": range(GROUP), "n": [float(n * 7 % GROUP) for n in range(GROUP)]})
    path, sizes = _write(tmp_path, table), []
    for number in range(60):
        # Never one of the two values that are bounds.
        edit = _edit([37], table, n=[number + 0.5])
        new = tmp_path / f"{number}.parquet"
        edit.on_disk(path, new)
        table = edit.in_memory(table)
        assert same(read(new), table)
        chunk = layout_of(new).groups[0].chunks[1]
        if not any(page.kind == DICTIONARY_PAGE for page in _pages(new, chunk)):
            break  # it was encoded as a whole, and does not get one that saves nothing
        sizes.append(_dictionary(new, 1))
        path = new
    assert max(sizes) == GROUP * 1.25


@pytest.mark.parametrize("large", [False, True])
def test_a_dictionary_of_strings_has_no_value_twice(
    tmp_path: Path, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pandas makes categories of it, and these must differ."""
    monkeypatch.setattr(page_reader, "_MAX_SEARCHED_VALUES", 0 if large else 8192)
    monkeypatch.setattr(page_reader, "_MAX_SEARCHED_PER_VALUE", 0)
    path, new = _write(tmp_path), tmp_path / "new.parquet"
    edit = _edit([45, 50, 51], s=["s03", "new", "new"])
    edit.on_disk(path, new)
    assert _new_pages(path, new, 2) == [2]
    found = pq.read_table(new, read_dictionary=["s"]).to_pandas()["s"]
    assert found.tolist() == edit.in_memory(TABLE)["s"].to_pylist()


def test_pages_of_a_dictionary_that_was_given_up_are_patched(tmp_path: Path) -> None:
    table = pa.table({"id": range(GROUP), "s": [f"{n * 7919 % 1000:04}" for n in range(GROUP)]})
    path = _write(tmp_path, table, dictionary_pagesize_limit=200, write_batch_size=10)
    by_place = [
        p.encoding in DICTIONARY_ENCODINGS
        for p in _pages(path, layout_of(path).groups[0].chunks[1])
        if p.is_data
    ]
    assert by_place[0]
    assert 2 * sum(by_place) < len(by_place)
    _edit([165], table, s=["0500"]).on_disk(path, tmp_path / "new.parquet")
    assert _new_pages(path, tmp_path / "new.parquet", 1) == [8]


def test_rows_that_were_compared_as_a_whole_are_not_kept_beyond_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where many rows change, old and new ones of all row groups would be in memory at once."""
    monkeypatch.setattr(diff, "_MAX_CACHED_BYTES", 10_000)
    path = _write(tmp_path)
    kept: list[int] = []
    keep = diff._Cache.keep

    def count(self: Any, number: int, item: Any, size: int) -> None:
        keep(self, number, item, size)
        kept.append(size)

    monkeypatch.setattr(diff._Cache, "keep", count)
    places = list(range(ROWS))
    edit = _edit(places, n=[n + 0.25 for n in places])
    edit.on_disk(path, tmp_path / "new.parquet")
    assert same(read(tmp_path / "new.parquet"), edit.in_memory(TABLE))
    assert min(kept, default=1) > 0
    assert sum(kept) <= 10_000


@pytest.mark.parametrize(
    "options", [{"write_page_index": True}, {"bloom_filter_options": {"n": True, "s": True}}]
)
def test_what_an_index_knows_is_encoded_as_a_whole(tmp_path: Path, options: dict[str, Any]) -> None:
    path, new = _write(tmp_path, **options), tmp_path / "new.parquet"
    edit = _edit([45], n=[8.5], s=["new"])
    assert edit.on_disk(path, new).method == "column splice"
    assert same(read(new), edit.in_memory(TABLE))
    assert layout_of(new).groups[0].chunks[1].metadata.values[2]  # it has its own encodings


def test_a_number_of_bytes_before_compression_is_what_pages_say(tmp_path: Path) -> None:
    path, new = _write(tmp_path, compression="zstd"), tmp_path / "new.parquet"
    _edit([45], n=[8.5], o=[3]).on_disk(path, new)
    for group in layout_of(new).groups:
        total = 0
        for chunk in group.chunks:
            raw = sum(page.raw_bytes for page in _pages(new, chunk))
            assert raw == chunk.raw_bytes
            total += raw
        assert group.struct.values[2] == total


def test_fields_of_a_later_format_go_from_a_patched_chunk(tmp_path: Path) -> None:
    path, new = _write(tmp_path, use_dictionary=False), tmp_path / "new.parquet"

    def add(footer: Struct) -> None:
        for group in footer.values[4]:
            for chunk in group.values[1]:
                set_field(chunk.values[3], 99, 7, I64)

    alter(path, add)
    edit = _edit([45], n=[8.5])
    edit.on_disk(path, new)
    assert _new_pages(path, new, 1) == [2]
    kinds = [99 in chunk.metadata.kinds for chunk in layout_of(new).groups[0].chunks]
    assert kinds == [True, False, True, True, True, True]


def test_a_codec_that_is_only_read_is_not_mixed_with_another(tmp_path: Path) -> None:
    path = _write(tmp_path, compression="lz4", use_dictionary=False)
    new = tmp_path / "new.parquet"

    def rename(footer: Struct) -> None:
        for group in footer.values[4]:
            for chunk in group.values[1]:
                set_field(chunk.values[3], 4, 5)  # the older framing, which pyarrow reads

    alter(path, rename)
    edit = _edit([45], n=[8.5])
    edit.on_disk(path, new)
    assert same(read(new), edit.in_memory(TABLE))
    codecs = [chunk.metadata.values[4] for chunk in layout_of(new).groups[0].chunks]
    assert codecs == [5, 7, 5, 5, 5, 5]


KINDS: dict[str, Any] = {
    "k": (pa.dictionary(pa.int32(), pa.string()), lambda r: f"k{r.integers(5)}"),
    "i": (pa.int64(), lambda r: int(r.integers(-9, 9))),
    "u": (pa.uint32(), lambda r: int(r.integers(0, 2**32))),
    "f": (pa.float64(), lambda r: [1.5, -0.0, 0.0, float("nan"), float(r.random())][r.integers(5)]),
    "g": (pa.float32(), lambda r: float(np.float32(r.random()))),
    "s": (pa.string(), lambda r: "äx"[r.integers(2)] * int(r.integers(0, 20))),
    "z": (pa.large_string(), lambda r: "long" * int(r.integers(0, 2000))),
    "y": (pa.binary(3), lambda r: r.bytes(3)),
    "c": (pa.bool_(), lambda r: bool(r.integers(2))),
    "t": (pa.timestamp("us", "UTC"), lambda r: int(r.integers(0, 10**15))),
    "d": (pa.decimal128(9, 2), lambda r: int(r.integers(-999, 999))),
    "h": (pa.float16(), lambda r: np.float16(r.random())),
}


def _column(kind: str, rows: int, nulls: float, random: np.random.Generator) -> pa.Array:
    data_type, value = KINDS[kind]
    values = [None if random.random() < nulls else value(random) for _ in range(rows)]
    if pa.types.is_timestamp(data_type):
        return pa.array(values, pa.int64()).cast(data_type)
    if pa.types.is_dictionary(data_type):
        return pa.array(values, data_type.value_type).dictionary_encode().cast(data_type)
    return pa.array(values, data_type)


options = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(["none", "snappy", "gzip", "zstd", "lz4"]),
        "use_dictionary": st.booleans(),
        "dictionary_pagesize_limit": st.sampled_from([16, 1 << 20]),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "max_rows_per_page": st.integers(1, 12),
        "write_page_checksum": st.booleans(),
        "write_statistics": st.booleans(),
        "store_decimal_as_integer": st.booleans(),
    }
)


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(st.data())
def test_a_patch_equals_the_same_edit_in_memory(tmp_path: Path, data: st.DataObject) -> None:
    random = np.random.default_rng(data.draw(st.integers(0, 2**32), label="seed"))
    kinds = data.draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=5, unique=True))
    rows, nulls = data.draw(st.integers(20, 90)), data.draw(st.sampled_from([0, 0.2, 0.95]))
    required = data.draw(st.booleans()) and not nulls
    fields = [pa.field(kind, KINDS[kind][0], nullable=not required) for kind in kinds]
    columns = [_column(kind, rows, nulls, random) for kind in kinds]
    old = pa.table(columns, schema=pa.schema(fields))
    path, new, full = (tmp_path / f"{name}.parquet" for name in ("old", "new", "full"))
    asked, size = data.draw(options), data.draw(st.integers(20, 90))
    pq.write_table(old, path, row_group_size=size, write_batch_size=1, **asked)

    chosen = sorted(data.draw(st.sets(st.integers(0, rows - 1), min_size=1, max_size=3)))
    came = [_column(kind, len(chosen), nulls, random) for kind in kinds]
    edit = Edit(chosen, pa.table(came, schema=old.schema))
    new.unlink(missing_ok=True)
    done = edit.on_disk(path, new)

    expected = edit.in_memory(old)
    assert done.method in ("kept", "splice", "column splice"), done.reason
    written = new if done.is_new else path
    assert same(read(written), expected)
    assert all(_in_order(written, c) for group in layout_of(written).groups for c in group.chunks)
    pq.write_table(expected, full, row_group_size=size, **asked)
    # Of a dictionary pyarrow counts values that no row of the row group has.
    exact = [number for number, kind in enumerate(kinds) if kind != "k"]
    for found, wanted in zip(_statistics(written), _statistics(full), strict=True):
        assert str([found[n] for n in exact]) == str([wanted[n] for n in exact])


def test_a_page_that_is_longer_than_pyarrow_makes_them_becomes_several(tmp_path: Path) -> None:
    """Other writers limit pages by their bytes, pyarrow also by their rows."""
    rows = 100_000
    table = pa.table({"id": range(rows), "n": [n / 7 for n in range(rows)]})
    path, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    pages = {"max_rows_per_page": rows // 4, "data_page_size": 1 << 30}
    pq.write_table(table, path, use_dictionary=False, **pages)
    edit = _edit([30_000], table, n=[8.5])
    assert edit.on_disk(path, new).method == "column splice"
    assert same(read(new), edit.in_memory(table))
    chunk = layout_of(new).groups[0].chunks[1]
    assert len(_pages(new, chunk)) > len(_pages(path, layout_of(path).groups[0].chunks[1]))
