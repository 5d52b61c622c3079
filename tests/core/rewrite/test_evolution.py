"""Files that get other columns: what is copied, what is encoded, and what a footer says."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.core.parquet.altered import layout_of

from fsspeckit import errors
from fsspeckit.core.parquet import CannotSpliceError
from fsspeckit.core.rewrite import evolution, evolve_file, read_file_properties
from fsspeckit.core.schema_changes import SchemaRequest, widened_type
from fsspeckit.storage import open_root

if TYPE_CHECKING:
    from pathlib import Path

    from fsspeckit.core.rewrite import Rewritten

TABLE = pa.table(
    {
        "id": pa.array(range(400), pa.int32()),
        "s": [f"word {n % 9}" for n in range(400)],
        "d": pa.array([Decimal(n) for n in range(400)], pa.decimal128(9, 2)),
        "l": [[n] for n in range(400)],
    }
)
RICH: dict[str, Any] = {
    "compression": "zstd",
    "data_page_version": "2.0",
    "write_page_index": True,
    "write_page_checksum": True,
    "bloom_filter_options": {"id": True, "s": True},
    "sorting_columns": [pq.SortingColumn(0)],
    "store_decimal_as_integer": True,
}


def _evolve(path: Path, new: Path, **asked: Any) -> Rewritten:
    root = open_root(path.parent)
    with pq.ParquetFile(path) as file:
        stored = read_file_properties(root, str(path), file).meaning()
    wanted = SchemaRequest.of(**asked).plan([stored])
    return evolve_file(root, str(path), wanted, str(new))


def _write(tmp_path: Path, table: pa.Table = TABLE, **options: Any) -> tuple[Path, Path]:
    pq.write_table(table, tmp_path / "old.parquet", row_group_size=100, **options)
    return tmp_path / "old.parquet", tmp_path / "new.parquet"


def _refuse(*_: object) -> None:
    raise CannotSpliceError("so the test says")


def _chunk_bytes(path: Path) -> dict[str, list[bytes]]:
    data = path.read_bytes()
    found: dict[str, list[bytes]] = {}
    for group in layout_of(path).groups:
        for chunk in group.chunks:
            found.setdefault(chunk.path, []).append(data[chunk.data.start : chunk.data.end])
    return found


@pytest.mark.parametrize("options", [{}, RICH], ids=["plain", "rich"])
def test_what_stays_is_copied_and_the_rest_looks_like_it(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    path, new = _write(tmp_path, **options)
    asked = {"add": {"n": pa.string()}, "widen": {"id": pa.int64()}, "rename": {"l": "k"}}
    done = _evolve(path, new, **asked, order=["n"])
    assert (done.method, done.encoded_row_groups) == ("column splice", 4)
    before, after = _chunk_bytes(path), _chunk_bytes(new)
    assert (after["s"], after["d"]) == (before["s"], before["d"])
    assert after["k.list.element"] == before["l.list.element"]
    first, found = pq.read_metadata(path).row_group(1), pq.read_metadata(new).row_group(1)
    for number, other in ((0, 1), (1, 0)):
        own, like = found.column(number), first.column(other if number == 0 else 0)
        assert own.compression == like.compression
        assert own.is_stats_set
        assert own.has_column_index == like.has_column_index
    assert (found.column(1).bloom_filter_offset is None) == (not options)
    assert [c.column_index for c in found.sorting_columns] == ([1] if options else [])
    assert pq.read_metadata(new).created_by == pq.read_metadata(path).created_by


def test_the_first_column_begins_each_row_group(tmp_path: Path) -> None:
    """Spark loses row groups otherwise, because it counts from there."""
    path, new = _write(tmp_path)
    for asked in ({"order": ["l"]}, {"add": {"n": pa.int8()}, "order": ["n"]}, {"drop": "id"}):
        _evolve(path, new, **asked)
        for group in layout_of(new).groups:
            starts = [chunk.data.start for chunk in group.chunks]
            assert starts == sorted(starts)


def test_instants_of_96_bits_are_copied_or_rewritten_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = [dt.datetime(1500, 1, 1), None, dt.datetime(2500, 1, 1)]
    table = pa.table({"t": pa.array(days, pa.timestamp("us")), "v": [1, 2, 3]})
    path, new = _write(tmp_path, table, use_deprecated_int96_timestamps=True)
    done = _evolve(path, new, add={"u": pa.timestamp("us", "UTC")})
    assert done.method == "column splice"
    assert [c.physical_type for c in pq.read_metadata(new).schema] == ["INT96", "INT64", "INT64"]
    monkeypatch.setattr(evolution, "check_chunks", _refuse)
    assert _evolve(path, new, drop="v", rename={"t": "at"}).method == "full"
    with pq.ParquetFile(new, coerce_int96_timestamp_unit="us") as file:
        assert file.read()["at"].to_pylist() == days


def test_what_cannot_be_spliced_is_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evolution, "check_chunks", _refuse)
    path, new = _write(tmp_path, **RICH)
    struct = pa.struct([("a", pa.int64())])
    asked = {"add": {"n": struct}, "widen": {"id": pa.int64()}, "rename": {"l": "k", "s": "text"}}
    done = _evolve(path, new, **asked, order=["n"])
    assert (done.method, done.reason) == ("full", "cannot be spliced: so the test says")
    found = pq.read_table(new)
    assert found.schema.names == ["n", "id", "text", "d", "k"]
    assert found["text"].to_pylist() == TABLE["s"].to_pylist()
    assert (found["id"].type, found["n"].null_count) == (pa.int64(), 400)
    group = pq.read_metadata(new).row_group(3)
    assert (group.num_rows, group.column(1).compression) == (100, "ZSTD")
    assert group.column(1).bloom_filter_offset is not None


def test_what_spark_knows_of_the_columns_follows_them(tmp_path: Path) -> None:
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {"comment": name}}
        for name, kind in (("id", "integer"), ("s", "string"), ("d", "decimal(9,2)"))
    ]
    about = json.dumps({"type": "struct", "fields": fields}).encode()
    key = b"org.apache.spark.sql.parquet.row.metadata"
    table = TABLE.drop_columns(["l"]).replace_schema_metadata({key: about})
    path, new = _write(tmp_path, table)
    _evolve(path, new, rename={"s": "t"}, widen={"id": pa.int64()}, add={"n": pa.bool_()})
    found = json.loads(pq.read_metadata(new).metadata[key])["fields"]
    assert [(one["name"], one["type"]) for one in found] == [
        ("id", "long"),
        ("t", "string"),
        ("d", "decimal(9,2)"),
        ("n", "boolean"),
    ]
    assert found[1]["metadata"] == {"comment": "s"}
    _evolve(path, new, add={"n": pa.list_(pa.int8())})
    assert key not in pq.read_metadata(new).metadata


def test_a_value_that_does_not_fit_a_finer_unit_is_refused(tmp_path: Path) -> None:
    table = pa.table({"t": pa.array([dt.datetime(9999, 1, 1)], pa.timestamp("us"))})
    path, new = _write(tmp_path, table)
    with pytest.raises(errors.SchemaMismatchError, match=r"has values in .* that do not fit"):
        _evolve(path, new, widen={"t": pa.timestamp("ns")})


def test_a_file_without_rows_gets_the_columns(tmp_path: Path) -> None:
    path, new = _write(tmp_path, TABLE.slice(0, 0))
    _evolve(path, new, add={"n": pa.int8()}, widen={"id": pa.int64()}, drop="l")
    assert pq.read_schema(new).names == ["id", "s", "d", "n"]
    assert pq.read_metadata(new).num_rows == 0


@pytest.mark.parametrize(
    ("one", "other", "wider"),
    [
        (pa.int64(), pa.float64(), None),
        (pa.uint64(), pa.int64(), None),
        (pa.uint32(), pa.int8(), pa.int64()),
        (pa.float16(), pa.int32(), pa.float64()),
        (pa.decimal128(38, 0), pa.decimal128(38, 38), pa.decimal256(76, 38)),
        (pa.decimal256(76, 0), pa.decimal256(76, 1), None),
        (pa.int64(), pa.decimal128(5, 2), pa.decimal128(22, 2)),
        (pa.date32(), pa.timestamp("us"), None),
        (pa.duration("s"), pa.duration("us"), None),
        (pa.binary(4), pa.binary(5), pa.binary()),
        (pa.list_(pa.int8()), pa.large_list(pa.int64()), pa.list_(pa.int64())),
        (pa.list_(pa.int8()), pa.struct([("a", pa.int8())]), None),
        (pa.string(), pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
    ],
)
def test_the_type_that_holds_two(
    one: pa.DataType, other: pa.DataType, wider: pa.DataType | None
) -> None:
    assert widened_type(one, other) == wider
