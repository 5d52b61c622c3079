"""Summaries of footers say what the footers say, or nothing."""

from __future__ import annotations

from dataclasses import fields
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.planning import footer_cache
from fsspeckit.core.planning.footer_cache import decode_summaries, encode_summaries, is_settled
from fsspeckit.core.planning.footers import FileFooter, footer_bytes, read_footers
from fsspeckit.storage.listing import DataFile, list_files
from fsspeckit.storage.roots import open_root

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fsspeckit.core.planning.footer_cache import Summaries

VALUES: dict[str, list[Any]] = {
    "whole": [1, -5, None],
    "real": [0.5, None, -0.0],
    "flag": [True, False, None],
    "word": ["a", None, "Ω"],
    "blob": [b"\xff\x00", b"", None],
    "day": [date(2024, 2, 29), None, date(1969, 12, 31)],
    "money": [Decimal("1.25"), None, Decimal("-99999.99")],
}
NAMES = list(VALUES)


def footers_of(directory: Path, columns: list[str]) -> list[FileFooter]:
    root = open_root(directory)
    return read_footers(root, list_files(root).files, columns)


def through_bytes(directory: Path, footers: list[FileFooter], columns: list[str]) -> Summaries:
    root = open_root(directory)
    data = encode_summaries(
        footers, columns, root.relative, lambda footer: footer_bytes(root, footer.file)
    )
    found = decode_summaries(data)
    assert found is not None
    return found


def content(footer: FileFooter) -> dict[str, Any]:
    left_out = ("raw", "is_checked")
    return {f.name: getattr(footer, f.name) for f in fields(footer) if f.name not in left_out}


def by_pyarrow(path: Path) -> None:
    pq.write_table(pa.table(VALUES), path, row_group_size=2)


def by_pyarrow_with_filters(path: Path) -> None:
    options = {name: {"ndv": 10, "fpp": 0.01} for name in ("whole", "word")}
    pq.write_table(pa.table(VALUES), path, bloom_filter_options=options)


def by_pyarrow_without_statistics(path: Path) -> None:
    pq.write_table(pa.table(VALUES), path, write_statistics=False)


def by_duckdb(path: Path) -> None:
    duckdb.from_arrow(pa.table(VALUES)).write_parquet(str(path))


def by_polars(path: Path) -> None:
    pl.from_arrow(pa.table(VALUES)).write_parquet(path)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "write",
    [by_pyarrow, by_pyarrow_with_filters, by_pyarrow_without_statistics, by_duckdb, by_polars],
)
def test_a_summary_holds_what_the_footer_holds(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    write(tmp_path / "one.parquet")
    pq.write_table(pa.table({"whole": [7]}), tmp_path / "other.parquet")
    footers = footers_of(tmp_path, NAMES)
    known = through_bytes(tmp_path, footers, NAMES)
    assert known.columns == tuple(NAMES)
    for footer in footers:
        found = known.find(footer.file.path.rpartition("/")[2], footer.file)
        assert found is not None
        assert content(found) == content(footer)
        assert found.schema.equals(footer.schema, check_metadata=True)


def test_bounds_that_may_have_been_cut_are_left_out(tmp_path: Path) -> None:
    long = "x" * 500
    pl.DataFrame({"word": [long + "a", long + "b"], "whole": [1, 2]}).write_parquet(
        tmp_path / "cut.parquet"
    )
    (footer,) = footers_of(tmp_path, ["word", "whole"])
    assert footer.row_groups[0].columns["word"].low is not None
    known = through_bytes(tmp_path, [footer], ["word", "whole"])
    found = known.find("cut.parquet", footer.file)
    assert found is not None
    assert found.is_checked
    chunks = found.row_groups[0].columns
    assert (chunks["word"].low, chunks["word"].high, chunks["word"].null_count) == (None, None, 0)
    assert (chunks["whole"].low, chunks["whole"].high) == (1, 2)


def test_unreadable_files_and_int96_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "broken.parquet").write_bytes(b"no footer")
    times = pa.table({"at": pa.array([0], pa.timestamp("ns"))})
    pq.write_table(times, tmp_path / "old.parquet", use_deprecated_int96_timestamps=True)
    pq.write_table(times, tmp_path / "new.parquet")
    known = through_bytes(tmp_path, footers_of(tmp_path, ["at"]), ["at"])
    assert list(known.by_path) == ["new.parquet"]


@pytest.mark.parametrize(
    "change",
    [{"size": 1}, {"mtime_ns": 1}, {"inode": 1}, {"etag": "other"}],
    ids=lambda c: next(iter(c)),
)
def test_another_file_under_the_name_is_not_known(tmp_path: Path, change: dict[str, Any]) -> None:
    by_pyarrow(tmp_path / "one.parquet")
    (footer,) = footers_of(tmp_path, NAMES)
    known = through_bytes(tmp_path, [footer], NAMES)
    assert known.find("one.parquet", footer.file) is not None
    assert known.find("one.parquet", footer.file._replace(**change)) is None
    assert known.find("two.parquet", footer.file) is None


@pytest.mark.parametrize("place", [0, 31, 32, 100, -1])
def test_damaged_summaries_are_none(tmp_path: Path, place: int) -> None:
    by_pyarrow(tmp_path / "one.parquet")
    root = open_root(tmp_path)
    data = bytearray(
        encode_summaries(footers_of(tmp_path, NAMES), NAMES, root.relative, lambda _: None)
    )
    assert decode_summaries(bytes(data)) is not None
    data[place] ^= 1
    assert decode_summaries(bytes(data)) is None
    assert decode_summaries(bytes(data[:place])) is None


def test_another_number_of_row_groups_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is known with fewer row groups than it has would be merged wrong."""
    by_pyarrow(tmp_path / "one.parquet")
    footers = footers_of(tmp_path, NAMES)
    whole = footer_cache._groups_batch
    monkeypatch.setattr(footer_cache, "_groups_batch", lambda files: whole(files).slice(1))
    data = encode_summaries(footers, NAMES, open_root(tmp_path).relative, lambda _: None)
    with pytest.raises(ValueError, match="row groups"):
        decode_summaries(data)


def test_summaries_of_no_file_are_empty() -> None:
    data = encode_summaries([], ["id"], str, lambda _: None)
    assert decode_summaries(data) is None


def test_many_schemas_are_not_all_kept(tmp_path: Path) -> None:
    for number in range(20):
        pq.write_table(pa.table({"id": [1], f"c{number}": [1]}), tmp_path / f"{number}.parquet")
    known = through_bytes(tmp_path, footers_of(tmp_path, ["id"]), ["id"])
    assert len(known.by_path) == 16


def test_a_file_is_settled_two_seconds_after_its_last_change() -> None:
    file = DataFile("x", 1, mtime_ns=10_000_000_000, birth_ns=1)
    assert is_settled(file, 12_000_000_000)
    assert not is_settled(file, 11_999_999_999)
    assert not is_settled(file._replace(mtime_ns=None), 12_000_000_000)
    assert is_settled(file._replace(etag="a"), 0)


def test_a_file_without_a_time_of_creation_is_never_settled() -> None:
    """Another file may have taken its inode, with the same size and time."""
    file = DataFile("x", 1, mtime_ns=10_000_000_000, inode=7)
    assert not is_settled(file, 20_000_000_000)


def test_known_footers_are_known_again(tmp_path: Path) -> None:
    by_pyarrow(tmp_path / "one.parquet")
    (footer,) = footers_of(tmp_path, NAMES)
    once = through_bytes(tmp_path, [footer], NAMES).find("one.parquet", footer.file)
    assert once is not None
    twice = through_bytes(tmp_path, [once], NAMES).find("one.parquet", footer.file)
    assert twice == once
