"""Damaged pages of a chunk that is patched: an error, or the right rows, and never others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.core.parquet.altered import layout_of
from tests.core.rewrite.spliced import Edit, read, same

from fsspeckit.core.parquet.format.pages import DICTIONARY_PAGE, IndexPage, Page, codec_of, pages_of
from fsspeckit.core.parquet.format.thrift import INT, decode, encode
from fsspeckit.errors import UnreadableFileError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fsspeckit.core.parquet.format.thrift import Struct

ROWS, PAGE = 300, 100
NUMBERS = pa.array([n % 10 + 100 for n in range(ROWS)], pa.int64())
WORDS = pa.array([f"v{n % 10}" for n in range(ROWS)])
NEW: dict[Any, Any] = {pa.int64(): 777, pa.string(): "new"}


def _write(directory: Path, values: pa.Array, **options: Any) -> Path:
    path = directory / "old.parquet"
    table = pa.table({"id": range(ROWS), "x": values})
    pq.write_table(table, path, max_rows_per_page=PAGE, write_statistics=False, **options)
    return path


def _pages(path: Path) -> list[Page]:
    data = path.read_bytes()
    chunk = layout_of(path).groups[0].chunks[1]
    return list(pages_of(chunk, lambda start, length: data[start : start + length]))


def _change(path: Path, page: Page, new: bytes) -> None:
    assert len(new) == page.part.length
    data = path.read_bytes()
    path.write_bytes(data[: page.part.start] + new + data[page.part.end :])


def _damage_header(path: Path, change: Callable[[Struct], None]) -> None:
    """Change numbers in the header of the dictionary page."""
    (page,) = (page for page in _pages(path) if page.kind == DICTIONARY_PAGE)
    data = path.read_bytes()[page.part.start : page.part.end]
    header, start = decode(data, {2: INT, 7: {1: INT}})
    change(header)
    _change(path, page, encode(header) + data[start:])


def _patch(path: Path, place: int = 5) -> Path:
    kind = pq.read_schema(path).field("x").type
    row = pa.table({"id": [place], "x": pa.array([NEW[kind]], kind)})
    new = path.with_name("new.parquet")
    Edit([place], row).on_disk(path, new)
    return new


@pytest.mark.parametrize("values", [NUMBERS, WORDS], ids=["numbers", "words"])
@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
def test_a_dictionary_with_fewer_values_than_it_has(
    tmp_path: Path, values: pa.Array, codec: str
) -> None:
    """A new value would get the place of the one that is not counted."""
    path = _write(tmp_path, values, compression=codec)

    def count_less(header: Struct) -> None:
        header.values[7].values[1] -= 1

    _damage_header(path, count_less)
    with pytest.raises(UnreadableFileError):
        _patch(path)


@pytest.mark.parametrize("values", [NUMBERS, WORDS], ids=["numbers", "words"])
@pytest.mark.parametrize("codec", ["snappy", "zstd", "gzip", "lz4", "brotli"])
def test_a_dictionary_that_is_said_to_be_longer(
    tmp_path: Path, values: pa.Array, codec: str
) -> None:
    path = _write(tmp_path, values, compression=codec)

    def say_more(header: Struct) -> None:
        header.values[2] += 8 if values is NUMBERS else 2  # the header stays as long

    _damage_header(path, say_more)
    with pytest.raises(UnreadableFileError):
        _patch(path)


@pytest.mark.parametrize("place", [5, 150])
def test_a_place_beyond_the_dictionary_does_not_become_a_new_value(
    tmp_path: Path, place: int
) -> None:
    """Neither in a page that is copied nor in one that is patched."""
    path = _write(tmp_path, NUMBERS, compression="none")
    codec = codec_of(0)
    assert codec is not None
    page = [page for page in _pages(path) if page.is_data][1]
    data = path.read_bytes()[page.part.start : page.part.end]
    opened = IndexPage.of(data, codec, is_optional=True)
    new = opened.replaced(np.array([99]), np.array([10]))
    _, start = decode(new, {})
    body = new[start:]
    _change(path, page, data[: len(data) - len(body)] + body)
    with pytest.raises(UnreadableFileError):
        _patch(path, place)


@pytest.mark.parametrize("kind", [pa.json_(), pa.uuid()], ids=str)
@pytest.mark.parametrize("statistics", [True, False])
def test_extension_types_are_patched(tmp_path: Path, kind: Any, statistics: bool) -> None:
    """Kernels know their storage alone."""
    texts = [f'{{"n": {n % 10:09}}}' for n in range(ROWS + 1)]
    stored = pa.array(texts if kind == pa.json_() else [text.encode() for text in texts])
    values = pa.ExtensionArray.from_storage(kind, stored.cast(kind.storage_type))
    path, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    old = pa.table({"id": range(ROWS), "x": values.slice(0, ROWS)})
    pq.write_table(old, path, max_rows_per_page=PAGE, write_statistics=statistics)
    edit = Edit([5], pa.table({"id": [5], "x": values.slice(6, 1)}))
    edit.on_disk(path, new)
    assert same(read(new), edit.in_memory(old))


def test_a_dictionary_does_not_get_longer_than_writers_make_them(tmp_path: Path) -> None:
    table = pa.table({"id": range(2000), "x": [f"word {n % 7}" for n in range(2000)]})
    path, sizes = tmp_path / "0.parquet", []
    pq.write_table(table, path, max_rows_per_page=200)
    for number in range(1, 8):
        places = list(range(256))
        words = [f"{number} {place} " * 500 for place in places]
        edit = Edit(places, pa.table({"id": places, "x": words}))
        new = tmp_path / f"{number}.parquet"
        edit.on_disk(path, new)
        table, path = edit.in_memory(table), new
        assert same(read(new), table)
        sizes.append(new.stat().st_size)
    full = tmp_path / "full.parquet"
    pq.write_table(table, full)
    assert max(sizes) < 2 * full.stat().st_size
