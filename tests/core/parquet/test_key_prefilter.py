"""The key prefilter: rows that may hold a key, compared with those that decoding finds."""

from __future__ import annotations

import io
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsspeckit.core.keys.canonical import key_column
from fsspeckit.core.matching.positions import prefilter_for
from fsspeckit.core.parquet.format.pages import IndexPage
from fsspeckit.core.parquet.key_prefilter import (
    KeyPrefilter,
    PrefilteredRows,
    prefilter_chunk,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

LETTERS = st.sampled_from("ab")


def written(values: Sequence[str | None], *, required: bool = False, **options: Any) -> bytes:
    field = pa.field("id", pa.string(), nullable=not required)
    sink = io.BytesIO()
    table = pa.table([pa.array(values, pa.string())], schema=pa.schema([field]))
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def prefiltered(data: bytes, wanted: list[str], number: int = 0) -> PrefilteredRows | None:
    file = pq.ParquetFile(io.BytesIO(data))
    group = file.metadata.row_group(number)
    prefilter = KeyPrefilter.of(pa.chunked_array([pa.array(wanted, pa.binary())]))
    assert prefilter is not None

    def read(start: int, length: int) -> bytes:
        return data[start : start + length]

    column, leaf = group.column(0), file.schema.column(0)
    return prefilter_chunk(column, leaf, group.num_rows, len(data), read, prefilter)


def rows_with(found: PrefilteredRows | None, wanted: list[str]) -> list[tuple[int, str]]:
    """What is left when the others that pass are compared exactly."""
    assert found is not None
    texts = [value.decode() for value in found.values.to_pylist()]
    pairs = zip(found.positions.tolist(), texts, strict=True)
    return [(place, text) for place, text in pairs if text in wanted]


def ids(count: int, seed: int = 0) -> list[str]:
    return [str(uuid.UUID(int=hash((seed, n)) % 2**128)) for n in range(count)]


STYLES: list[dict[str, Any]] = [
    {},
    {"use_dictionary": False},
    {"dictionary_pagesize_limit": 2000},
    {"use_dictionary": False, "data_page_version": "2.0"},
    {"data_page_version": "2.0"},
    {"compression": "none", "use_dictionary": False},
    {"compression": "zstd"},
    {"compression": "gzip", "use_dictionary": False},
    {"data_page_size": 300, "write_batch_size": 16},
    {"write_page_checksum": True},
]


@pytest.mark.parametrize("style", STYLES, ids=str)
@pytest.mark.parametrize("required", [False, True])
def test_rows_are_found_in_pages_of_every_style(style: dict[str, Any], required: bool) -> None:
    values = ids(1000)
    wanted = [values[0], values[499], values[999], *ids(3, seed=7)]
    data = written([*values, values[499]], required=required, **style)
    expected = [(0, values[0]), (499, values[499]), (999, values[999]), (1000, values[499])]
    assert rows_with(prefiltered(data, wanted), wanted) == expected


@pytest.mark.parametrize("style", STYLES, ids=str)
def test_rows_are_counted_with_those_that_are_null(style: dict[str, Any]) -> None:
    values: list[str | None] = [None if n % 3 == 0 else one for n, one in enumerate(ids(1000))]
    wanted = [one for one in (values[1], values[500], values[998]) if one is not None]
    assert len(wanted) == 3
    data = written(values, **style)
    expected = list(zip((1, 500, 998), wanted, strict=True))
    assert rows_with(prefiltered(data, wanted), wanted) == expected


def test_rows_are_those_of_their_row_group() -> None:
    values = ids(900)
    data = written(values, row_group_size=300)
    found = rows_with(prefiltered(data, [values[450]], 1), [values[450]])
    assert found == [(150, values[450])]
    assert rows_with(prefiltered(data, [values[450]], 0), [values[450]]) == []


def test_no_others_pass() -> None:
    values = ids(5000)
    found = prefiltered(written(values, use_dictionary=False), values[:10])
    assert found is not None
    assert len(found.positions) == 10


def test_values_that_end_alike_pass_and_no_others() -> None:
    values = [f"{n:08}{n % 7:08}" for n in range(2000)]
    wanted = [values[12], "12345678" + "0" * 7 + "3"]
    for style in STYLES:
        found = prefiltered(written(values, **style), wanted)
        assert found is not None
        assert {n % 7 for n in found.positions.tolist()} == {12 % 7, 3}
        assert len(found.positions) == sum(n % 7 in (12 % 7, 3) for n in range(2000))
        assert rows_with(found, wanted) == [(12, values[12])]


@pytest.mark.parametrize("wanted", [0, 1])
def test_pages_of_indices_are_opened_only_for_a_key_of_the_dictionary(
    monkeypatch: pytest.MonkeyPatch, wanted: int
) -> None:
    opened = []
    of = IndexPage.of

    def counted(*arguments: Any, **options: Any) -> IndexPage:
        opened.append(1)
        return of(*arguments, **options)

    monkeypatch.setattr(IndexPage, "of", counted)
    values = ids(20_000)
    keys = [*ids(5000, seed=7), *values[:wanted]]  # so many that some hashes are the same
    found = prefiltered(written(values, dictionary_pagesize_limit=1 << 24), keys)
    assert len(rows_with(found, keys)) == wanted
    assert len(opened) == wanted


def test_a_key_of_another_length_finds_nothing() -> None:
    values = ids(50)
    found = prefiltered(written(values), [values[0][:-1], values[0] + "0", values[0][-8:], ""])
    assert found is not None
    assert len(found.positions) == 0


@pytest.mark.parametrize("values", [["a" * 8, "b" * 9], ["abc", "abd"], ["", ""]], ids=str)
@pytest.mark.parametrize("dictionary", [False, True])
def test_values_of_several_lengths_or_short_ones_are_decoded(
    values: list[str], dictionary: bool
) -> None:
    assert prefiltered(written(values, use_dictionary=dictionary), values) is None


@pytest.mark.parametrize(
    "options",
    [{"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"}, {"compression": "lz4"}],
    ids=str,
)
def test_other_encodings_are_decoded(options: dict[str, Any]) -> None:
    assert prefiltered(written(ids(10), **options), ids(1)) is None


def test_nothing_but_null() -> None:
    found = prefiltered(written([None, None]), ids(1))
    assert found is not None
    assert len(found.positions) == 0


@given(
    rows=st.lists(st.none() | st.text(LETTERS, min_size=9, max_size=9), max_size=40),
    odd=st.none() | st.text(LETTERS, max_size=12),
    wanted=st.lists(st.text(LETTERS, min_size=8, max_size=10), min_size=1, max_size=6),
    style=st.sampled_from(STYLES),
)
def test_nothing_is_held_back_that_is_wanted(
    rows: list[str | None], odd: str | None, wanted: list[str], style: dict[str, Any]
) -> None:
    values = rows if odd is None else [*rows, odd]
    if not values:
        return
    found = prefiltered(written(values, **style), wanted)
    if found is None:
        assert len({len(value) for value in values if value is not None} - {9}) > 0
    else:
        expected = [(n, one) for n, one in enumerate(values) if one in wanted]
        assert rows_with(found, wanted) == expected


@pytest.mark.parametrize("style", STYLES, ids=str)
def test_damaged_pages_are_left_to_the_decoder(style: dict[str, Any]) -> None:
    values = ids(1000)
    data = written(values, **style)
    chunk = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0).column(0)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    heads = [*range(start, start + 40), *range(chunk.data_page_offset, chunk.data_page_offset + 40)]
    for at in {*heads, *range(start, start + chunk.total_compressed_size, 997)}:
        for flipped in (0x01, 0x80, 0xFF):
            broken = bytearray(data)
            broken[at] ^= flipped
            found = prefiltered(bytes(broken), values[:3])
            assert found is None or len(found.positions) == len(found.values)


def test_a_page_of_more_rows_than_its_row_group_is_not_opened() -> None:
    data = written([None] * 200)
    file = pq.ParquetFile(io.BytesIO(data))
    prefilter = KeyPrefilter.of(pa.chunked_array([pa.array(ids(1), pa.binary())]))
    assert prefilter is not None
    column, leaf = file.metadata.row_group(0).column(0), file.schema.column(0)
    opened = prefilter_chunk(column, leaf, 200, len(data), lambda s, n: data[s : s + n], prefilter)
    assert opened is not None
    assert (
        prefilter_chunk(column, leaf, 100, len(data), lambda s, n: data[s : s + n], prefilter)
        is None
    )
    assert prefilter_chunk(column, leaf, 200, 20, lambda s, n: data[s : s + n], prefilter) is None


@pytest.mark.parametrize("dictionary", [False, True])
def test_the_empty_key_is_not_looked_for_in_pages_without_values(dictionary: bool) -> None:
    found = prefiltered(written([None] * 50, use_dictionary=dictionary), ["", *ids(1)])
    assert found is not None
    assert len(found.positions) == 0


def test_a_prefilter_is_for_one_key_column_of_text_without_null() -> None:
    texts = pa.chunked_array([pa.array([b"x" * 8])])
    keys = pa.table({"id": texts, "n": pa.chunked_array([[1]])})
    text, number = key_column("id", pa.string()), key_column("n", pa.int64())
    wide = key_column("id", pa.decimal128(30, 0))
    assert prefilter_for(keys, [text]) is not None
    assert prefilter_for(keys, [text, number]) is None
    assert prefilter_for(keys, [number]) is None
    assert prefilter_for(keys, [wide]) is None
    assert prefilter_for(keys.slice(0, 0), [text]) is None
    with_null = pa.table({"id": pa.chunked_array([pa.array([b"x" * 8, None])])})
    assert prefilter_for(with_null, [text]) is None


def test_more_keys_than_a_prefilter_takes() -> None:
    many = pc.cast(pa.chunked_array([pa.array(range(70_000))]), pa.string()).cast(pa.binary())
    assert KeyPrefilter.of(many) is None
