"""Taking files apart: every reason not to."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.core.parquet.altered import alter, chunk, layout_of, metadata

from fsspeckit.core.parquet.format.layout import CannotSpliceError, check_columns, columns_of
from fsspeckit.core.parquet.format.pages import check_chunks
from fsspeckit.core.parquet.format.thrift import BINARY, I32, STRUCT, Struct, drop_fields, set_field

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TABLE = pa.table({"id": range(40), "v": [f"v{n % 3}" for n in range(40)], "l": [[1]] * 40})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "x.parquet"
    options: dict[str, Any] = {"bloom_filter_options": {"id": True}, "write_page_index": True}
    pq.write_table(TABLE, found, row_group_size=10, **options)
    return found


def test_a_file_is_found_by_its_parts(path: Path) -> None:
    layout = layout_of(path)
    assert [group.rows for group in layout.groups] == [10, 10, 10, 10]
    assert [chunk.path for chunk in layout.groups[0].chunks] == ["id", "v", "l.list.element"]
    assert layout.groups[0].span.start == 4
    assert layout.groups[0].span.end == layout.groups[1].span.start


def _encrypted_column(footer: Struct) -> None:
    set_field(chunk(footer), 9, b"?", BINARY)


def _without_metadata(footer: Struct) -> None:
    drop_fields(chunk(footer), [3])


def _no_columns(footer: Struct) -> None:
    footer.values[4][1].values[1] = []


def _swapped(footer: Struct) -> None:
    groups = footer.values[4]
    groups[0], groups[1] = groups[1], groups[0]


def _half_an_index(footer: Struct) -> None:
    drop_fields(chunk(footer), [5])


def _set(*where: int, to: int) -> Callable[[Struct], None]:
    def change(footer: Struct) -> None:
        metadata(footer).values[where[-1]] = to

    return change


REASONS: dict[str, tuple[Callable[[Struct], object], str]] = {
    "encrypted": (lambda f: set_field(f, 8, Struct(), STRUCT), "is encrypted"),
    "encrypted, key metadata": (lambda f: set_field(f, 9, b"?", BINARY), "is encrypted"),
    "encrypted column": (_encrypted_column, "a column is encrypted"),
    "other file": (lambda f: set_field(chunk(f), 1, b"x", BINARY), "in another file"),
    "metadata elsewhere": (_without_metadata, "not in the footer"),
    "no columns": (_no_columns, "has no columns"),
    "overlap": (lambda f: metadata(f).values.update({7: metadata(f).values[7] + 9}), "overlap"),
    "beyond the footer": (_set(7, to=10**9), "outside of the data"),
    "negative length": (_set(7, to=-5), "outside of"),
    "in the magic": (_set(9, to=1), "outside of the data"),
    "data page elsewhere": (_set(9, to=10**8), "outside of its column chunk"),
    "interleaved": (_swapped, "interleaved"),
    "half an index": (_half_an_index, "without a length"),
    "rows": (lambda f: set_field(f, 3, 41), "40 rows, the file 41"),
    "negative rows": (lambda f: set_field(f.values[4][0], 3, -10), "rows"),
    "old writer": (
        lambda f: set_field(f, 6, b"parquet-mr version 1.2.8 (build x)"),
        "parquet-mr up to 1.2.8",
    ),
    "no rows known": (lambda f: drop_fields(f, [3]), "lacks a required field"),
    "no page offset": (lambda f: drop_fields(metadata(f), [9]), "lacks a required field"),
    "a name of other bytes": (lambda f: metadata(f).values.update({3: [b"\xff"]}), "columns of"),
}


def _take_apart(path: Path) -> None:
    layout = layout_of(path)
    check_columns(layout, columns_of(layout.elements))


@pytest.mark.parametrize("what", REASONS)
def test_a_file_is_not_taken_apart_if(path: Path, what: str) -> None:
    change, reason = REASONS[what]
    alter(path, change)
    with pytest.raises(CannotSpliceError, match=reason):
        _take_apart(path)


@pytest.mark.parametrize(
    "created_by", [b"parquet-mr version 1.2.9", b"parquet-mr version 1.12.3", b"parquet-mr", b"x"]
)
def test_other_writers_are_trusted(path: Path, created_by: bytes) -> None:
    alter(path, lambda footer: set_field(footer, 6, created_by))
    assert layout_of(path).groups


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: data[:-4] + b"PARE", "is encrypted"),
        (lambda data: data[:-4] + b"XXXX", "missing or damaged"),
        (lambda data: data[:7], "missing or damaged"),
        (lambda data: data[:-8] + b"\xff\xff\xff\x00PAR1", "claims"),
        (lambda data: data[:-8] + b"\x10\x00\x00\x00PAR1", "footer"),
        (lambda data: data[:-9] + b"\x01" + data[-8:], "footer"),
    ],
)
def test_a_damaged_footer_is_not_taken_apart(
    path: Path, damage: Callable[[bytes], bytes], reason: str
) -> None:
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CannotSpliceError, match=reason):
        layout_of(path)


def test_a_long_footer_is_read(tmp_path: Path) -> None:
    path = tmp_path / "wide.parquet"
    pq.write_table(pa.table({f"column_{n}": [n] for n in range(900)}), path)
    layout = layout_of(path)
    assert len(layout.groups[0].chunks) == 900


def test_the_length_of_a_bloom_filter_is_found_where_the_footer_has_none(path: Path) -> None:
    before = layout_of(path).groups[0].chunks[0].bloom
    alter(path, lambda footer: drop_fields(metadata(footer), [15]))
    after = layout_of(path).groups[0].chunks[0].bloom
    assert before is not None
    assert after == before


def _renamed(footer: Struct) -> None:
    metadata(footer).values[3] = [b"other"]


def _retyped(footer: Struct) -> None:
    set_field(metadata(footer), 1, 1, I32)


@pytest.mark.parametrize("change", [_renamed, _retyped])
def test_chunks_must_be_those_of_the_schema(path: Path, change: Callable[[Struct], None]) -> None:
    alter(path, change)
    layout = layout_of(path)
    with pytest.raises(CannotSpliceError, match="of the schema"):
        check_columns(layout, columns_of(layout.elements))


def _shorter(footer: Struct) -> None:
    metadata(footer, 1, 1).values[7] -= 3


def _later(footer: Struct) -> None:
    metadata(footer, 1, 0).values[5] += 1  # its end is met exactly, so nobody asks
    metadata(footer, 1, 1).values[7] -= 1


@pytest.mark.parametrize("change", [_shorter, _later])
def test_a_chunk_that_is_too_short_is_found_by_its_pages(
    path: Path, change: Callable[[Struct], None]
) -> None:
    alter(path, change)
    with pytest.raises(CannotSpliceError, match="page"):
        check_chunks(layout_of(path), lambda start, n: path.read_bytes()[start : start + n])


def test_gaps_between_chunks_do_not_matter(tmp_path: Path) -> None:
    import polars

    path = tmp_path / "polars.parquet"
    polars.DataFrame(TABLE).write_parquet(path, row_group_size=10)
    layout = layout_of(path)
    spans = [chunk.data for group in layout.groups for chunk in group.chunks]
    assert any(one.end < other.start for one, other in pairwise(spans))
    check_chunks(layout, lambda start, n: path.read_bytes()[start : start + n])
