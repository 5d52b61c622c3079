"""Splicing: what is copied, what is encoded, and what the new footer says."""

from __future__ import annotations

import datetime as dt
import os
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import datafusion
import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.core.parquet.altered import alter, layout_of, metadata
from tests.core.parquet.thrift_writer import footer_of
from tests.core.rewrite.spliced import Edit, read, same

from fsspeckit.core.parquet.format.layout import CannotSpliceError, Chunk, columns_of
from fsspeckit.core.parquet.format.thrift import (
    I16,
    I32,
    INT,
    STRUCT,
    Struct,
    decode,
    drop_fields,
    encode,
    set_field,
)
from fsspeckit.core.parquet.splice.assembler import (
    MAX_ORDINAL,
    Splicer,
    check_spliced,
    encode_groups,
    open_original,
    open_sink,
    page_options,
    writer_styles,
)
from fsspeckit.core.rewrite import Replacement, RowRules, SpliceLimits, rewrite
from fsspeckit.errors import ConcurrentModificationError
from fsspeckit.storage.roots import open_root
from fsspeckit.testing.writers import WRITERS, WriteOptions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS = 400
TABLE = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int64()),
        "n": pa.array([n * 0.5 for n in range(ROWS)]),
        "s": [f"s{n % 11}" for n in range(ROWS)],
        "l": [[n, n + 1] for n in range(ROWS)],
        "t": [{"a": n, "b": f"{n}"} for n in range(ROWS)],
    }
).replace_schema_metadata({"who": "somebody"})

RICH: dict[str, Any] = {
    "write_page_index": True,
    "write_page_checksum": True,
    "bloom_filter_options": {"id": True, "s": True},
    "sorting_columns": [pq.SortingColumn(0)],
    "data_page_size": 256,
}


def _write(directory: Path, **options: Any) -> Path:
    path = directory / "old.parquet"
    pq.write_table(TABLE, path, row_group_size=100, **options)
    return path


def _patch(positions: list[int], **columns: Any) -> Edit:
    rows = TABLE.take(pa.array(positions))
    for name, values in columns.items():
        number = rows.column_names.index(name)
        rows = rows.set_column(number, name, pa.array(values, TABLE.schema.field(name).type))
    return Edit(positions, rows)


def _keep_all(directory: Path, path: Path, max_ordinal: int = MAX_ORDINAL) -> bytes:
    """Splice nothing into a file."""
    root, layout = open_root(directory), layout_of(path)
    with (
        open_original(root, str(path)) as original,
        open_sink(root, str(directory / "new.parquet")) as sink,
    ):
        splicer = Splicer(original, layout, sink, max_ordinal)
        for group in layout.groups:
            splicer.keep(group)
        splicer.finish()
    return (directory / "new.parquet").read_bytes()


@pytest.mark.parametrize(
    "options", [{}, RICH, {**RICH, "data_page_version": "2.0", "compression": "zstd"}]
)
def test_splicing_nothing_into_a_file_of_pyarrow_gives_its_bytes(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    path = _write(tmp_path, **options)
    assert _keep_all(tmp_path, path) == path.read_bytes()


@pytest.mark.parametrize("version", ["V1", "V2"])
def test_splicing_nothing_into_a_file_of_duckdb_gives_its_bytes(
    tmp_path: Path, version: str
) -> None:
    import duckdb

    path = tmp_path / "old.parquet"
    with duckdb.connect() as connection:
        connection.execute(
            "COPY (SELECT range AS id, 's' || range % 9 AS s, [range] AS l FROM range(9000)) "
            f"TO '{path}' (FORMAT parquet, PARQUET_VERSION {version}, ROW_GROUP_SIZE 2048)"
        )
    assert len(layout_of(path).groups) > 2
    assert _keep_all(tmp_path, path) == path.read_bytes()


def test_one_value_costs_one_chunk(tmp_path: Path) -> None:
    path, new = _write(tmp_path, **RICH), tmp_path / "new.parquet"
    edit = _patch([123], n=[-1.0])
    done = edit.on_disk(path, new)
    assert (done.method, done.encoded_row_groups, done.copied_row_groups) == ("column splice", 1, 3)
    assert same(read(new), edit.in_memory(TABLE))
    encoded = [
        (number, old_chunk.path)
        for number, (one, other) in enumerate(
            zip(layout_of(path).groups, layout_of(new).groups, strict=True)
        )
        for old_chunk, new_chunk in zip(one.chunks, other.chunks, strict=True)
        if _pages(path, old_chunk) != _pages(new, new_chunk)
    ]
    assert encoded == [(1, "n")]


def _pages(path: Path, chunk: Chunk) -> bytes:
    return path.read_bytes()[chunk.data.start : chunk.data.end]


@pytest.mark.parametrize("column", ["l", "t"])
def test_a_nested_column_is_replaced_with_all_its_leaves(tmp_path: Path, column: str) -> None:
    path, new = _write(tmp_path, **RICH), tmp_path / "new.parquet"
    values = {"l": [[]], "t": [{"a": None, "b": "other"}]}[column]
    edit = _patch([250], **{column: values})
    assert edit.on_disk(path, new).method == "column splice"
    assert same(read(new), edit.in_memory(TABLE))


def test_all_columns_of_a_row_group(tmp_path: Path) -> None:
    path, new = _write(tmp_path, **RICH), tmp_path / "new.parquet"
    edit = _patch([7], id=[-7], n=[0.1], s=["?"], l=[None], t=[None])
    done = edit.on_disk(path, new)
    assert (done.method, done.encoded_row_groups, done.copied_row_groups) == ("splice", 1, 3)
    assert same(read(new), edit.in_memory(TABLE))


def test_booleans_lose_the_bloom_filter_that_pyarrow_cannot_write(tmp_path: Path) -> None:
    path, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    table = pa.table({"id": range(200), "b": [n % 3 == 0 for n in range(200)]})
    options = datafusion.ParquetWriterOptions(bloom_filter_on_write=True, max_row_group_size=100)
    frame = datafusion.SessionContext().from_arrow(table)
    frame.write_parquet_with_options(str(path), options)
    edit = Edit([150], pa.table({"id": [150], "b": [False]}))
    assert edit.on_disk(path, new).method == "column splice"
    assert same(read(new), edit.in_memory(table))
    found = [[chunk.bloom is not None for chunk in group.chunks] for group in layout_of(new).groups]
    assert found == [[True, True], [True, False]]


def test_the_footer_keeps_what_is_not_about_offsets(tmp_path: Path) -> None:
    path, new = _write(tmp_path, **RICH), tmp_path / "new.parquet"
    alter(path, lambda footer: set_field(footer, 6, b"parquet-mr version 1.12.3 (build x)"))
    _patch([7], n=[0.1]).on_disk(path, new)
    old, found = layout_of(path).footer, layout_of(new).footer
    assert found.values[2] == old.values[2]
    assert found.values[6] == old.values[6]
    assert found.raw == old.raw
    assert pq.read_schema(new).equals(pq.read_schema(path), check_metadata=True)


def test_fields_of_a_later_format_stay_with_what_is_copied(tmp_path: Path) -> None:
    path, new = _write(tmp_path), tmp_path / "new.parquet"

    def later(footer: Struct) -> None:
        set_field(footer, 60, 1, I32)
        for number in (0, 1):
            set_field(footer.values[4][number], 61, 2, I32)
            set_field(metadata(footer, number), 62, 3, I32)

    alter(path, later)
    _patch([150], n=[0.1]).on_disk(path, new)
    footer = decode(footer_of(new.read_bytes()), {4: [{1: [{3: {}}]}]})[0]
    kept, changed = footer.values[4][0], footer.values[4][1]
    assert 60 in footer.kinds
    assert (61 in kept.kinds, 61 in changed.kinds) == (True, False)
    assert 62 in kept.values[1][0].values[3].kinds


@pytest.mark.parametrize(("changed", "is_sorted"), [("n", True), ("id", False)])
def test_a_sort_order_stays_if_it_holds(tmp_path: Path, changed: str, is_sorted: bool) -> None:
    path, new = _write(tmp_path, **RICH), tmp_path / "new.parquet"
    _patch([150], **{changed: [3]}).on_disk(path, new)
    found = pq.read_metadata(new)
    assert found.row_group(0).sorting_columns
    assert bool(found.row_group(1).sorting_columns) == is_sorted


def test_a_key_gets_the_zero_of_the_source_and_stays_sorted(tmp_path: Path) -> None:
    path, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    table = pa.table({"k": [-1.0, 0.0, 1.0], "v": [1, 2, 3]})
    pq.write_table(table, path, sorting_columns=[pq.SortingColumn(0)])
    edit = Edit([1], pa.table({"k": [-0.0], "v": [2]}))
    assert edit.on_disk(path, new, keys=["k"]).is_new
    assert same(read(new), edit.in_memory(table))
    assert pq.read_metadata(new).row_group(0).sorting_columns


def test_other_keys_are_equal_and_are_copied(tmp_path: Path) -> None:
    path, new = _write(tmp_path, **RICH), tmp_path / "new.parquet"
    edit = _patch([150], n=[0.1], s=["?"], l=[None], t=[None])
    done = edit.on_disk(path, new, keys=["id"])
    assert (done.method, same(read(new), edit.in_memory(TABLE))) == ("column splice", True)
    ids = [_pages(one, layout_of(one).groups[1].chunks[0]) for one in (path, new)]
    assert ids[0] == ids[1]


def _ordinals(path: Path) -> list[int | None]:
    return [group.struct.values.get(7) for group in layout_of(path).groups]


def _number(footer: Struct, count: int = 4) -> None:
    for number in range(count):
        set_field(footer.values[4][number], 7, number, I16)


def test_row_groups_are_renumbered(tmp_path: Path) -> None:
    path, new = _write(tmp_path), tmp_path / "new.parquet"
    alter(path, _number)
    positions = [*range(100), *range(250, 400)]
    Edit(positions, TABLE.take(pa.array(positions)), keep_others=False).on_disk(path, new)
    assert _ordinals(new) == [0, 1, 2]


def test_row_groups_are_all_numbered_or_none_is(tmp_path: Path) -> None:
    path, new = _write(tmp_path), tmp_path / "new.parquet"
    alter(path, lambda footer: _number(footer, 3))
    assert _ordinals(path) == [0, 1, 2, None]
    _patch([150], n=[0.1]).on_disk(path, new)
    assert _ordinals(new) == [None] * 4


@pytest.mark.parametrize(("most", "expected"), [(3, [None] * 4), (4, [0, 1, 2, 3])])
def test_many_row_groups_are_not_numbered(
    tmp_path: Path, most: int, expected: list[int | None]
) -> None:
    path = _write(tmp_path)
    alter(path, _number)
    _keep_all(tmp_path, path, max_ordinal=most)
    assert _ordinals(tmp_path / "new.parquet") == expected


def test_row_groups_that_lose_all_rows_are_dropped(tmp_path: Path) -> None:
    path, new = _write(tmp_path, **RICH), tmp_path / "new.parquet"
    kept = [*range(100), *range(300, 400)]
    edit = Edit(kept, TABLE.take(pa.array(kept)), keep_others=False)
    done = edit.on_disk(path, new)
    assert (done.is_new, done.encoded_row_groups, done.copied_row_groups) == (True, 0, 2)
    assert same(read(new), edit.rows)


def test_a_file_that_loses_all_rows_is_not_written(tmp_path: Path) -> None:
    path, new = _write(tmp_path, **RICH), tmp_path / "new.parquet"
    done = Edit([], TABLE.slice(0, 0), keep_others=False).on_disk(path, new)
    assert (done.is_removed, done.is_new, done.rows) == (True, False, 0)
    assert done.deleted_rows == TABLE.num_rows
    assert not new.exists()


def test_small_row_groups_are_joined(tmp_path: Path) -> None:
    path, new = _write(tmp_path, **RICH), tmp_path / "new.parquet"
    kept = [5, 6, 105, 205, *range(300, 390)]
    edit = Edit(kept, TABLE.take(pa.array(kept)), keep_others=False)
    edit.on_disk(path, new)
    assert same(read(new), edit.rows)
    assert [group.rows for group in layout_of(new).groups] == [94]
    assert not pq.read_metadata(new).row_group(0).sorting_columns


def test_row_groups_of_some_size_are_not_joined(tmp_path: Path) -> None:
    path, new = _write(tmp_path), tmp_path / "new.parquet"
    kept = [*range(60), *range(100, 160), *range(200, 230), *range(300, 400)]
    edit = Edit(kept, TABLE.take(pa.array(kept)), keep_others=False)
    edit.on_disk(path, new, limits=SpliceLimits(min_group_rows=0))
    assert [group.rows for group in layout_of(new).groups] == [60, 60, 30, 100]


def test_each_row_group_is_encoded_like_itself(tmp_path: Path) -> None:
    path, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    parts = []
    for number, options in enumerate(
        [
            {"compression": "zstd", "use_dictionary": False, "data_page_version": "2.0"},
            {"compression": {"id": "gzip"}, "write_page_checksum": True},
        ]
    ):
        part = tmp_path / f"{number}.parquet"
        pq.write_table(TABLE.slice(number * 100, 100), part, **options)
        parts.append(part)
    _glue(parts, path)
    edit = _patch([50, 150], id=[-1, -2], s=["s1", "s2"])
    assert edit.on_disk(path, new).encoded_row_groups == 2
    assert same(read(new), edit.in_memory(TABLE.slice(0, 200)))
    for one, other in zip(layout_of(path).groups, layout_of(new).groups, strict=True):
        for old_chunk, new_chunk in zip(one.chunks, other.chunks, strict=True):
            assert old_chunk.metadata.values[4] == new_chunk.metadata.values[4]
            # A dictionary of numbers that all differ is not built again.
            if old_chunk.path != "id":
                assert old_chunk.metadata.values[2] == new_chunk.metadata.values[2]
            looks = [_look(path, old_chunk), _look(new, new_chunk)]
            assert looks[0] == looks[1]


def _look(path: Path, chunk: Chunk) -> dict[str, Any]:
    return page_options([chunk], lambda start, n: path.read_bytes()[start : start + n])


def _glue(parts: list[Path], path: Path) -> None:
    """Make one file of the row groups of several, as appending tools do."""
    data, groups = b"PAR1", []
    footer = layout_of(parts[0]).footer
    for part in parts:
        layout, body = layout_of(part), part.read_bytes()
        for group in layout.groups:
            for found in group.chunks:
                for number in (9, 10, 11):
                    if found.metadata.values.get(number, 0) > 0:
                        found.metadata.values[number] += len(data) - found.data.start
                data += body[found.data.start : found.data.end]
            drop_fields(group.struct, [5, 7])
            groups.append(group.struct)
    footer.values[4] = groups
    set_field(footer, 3, sum(group.values[3] for group in groups))
    tail = encode(footer)
    path.write_bytes(data + tail + len(tail).to_bytes(4, "little") + b"PAR1")


WIDE = pa.decimal128(30, 2)


def _wide_decimals(path: Path) -> pa.Table:
    table = pa.table({"id": range(4), "d": pa.array([Decimal(n) for n in range(4)], WIDE)})
    WRITERS["duckdb"](table, str(path))
    return table


def test_a_type_that_would_be_stored_otherwise_is_written_as_a_whole(tmp_path: Path) -> None:
    path, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    table = _wide_decimals(path)
    rows = table.slice(1, 1).set_column(1, "d", pa.array([Decimal(9)], WIDE))
    done = Edit([1], rows).on_disk(path, new)
    assert done.method == "full"
    assert "'d' would be stored as another type" in done.reason
    assert same(read(new), Edit([1], rows).in_memory(table))


def test_such_a_type_does_not_matter_in_a_column_that_stays(tmp_path: Path) -> None:
    path, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    table = _wide_decimals(path)
    rows = table.slice(1, 1).set_column(0, "id", pa.array([99]))
    assert Edit([1], rows).on_disk(path, new).method == "column splice"
    assert same(read(new), Edit([1], rows).in_memory(table))


def _other_order(footer: Struct) -> None:
    other = encode(Struct({2: Struct()}, {}, {2: STRUCT}))
    footer.values[7] = [other] * len(footer.values[7])


FALLBACKS: dict[str, tuple[Callable[[Struct], object], str]] = {
    "order": (_other_order, "would be ordered in another way"),
    "old writer": (
        lambda f: set_field(f, 6, b"parquet-mr version 1.2.8"),
        "parquet-mr up to 1.2.8",
    ),
}


@pytest.mark.parametrize("what", FALLBACKS)
def test_what_cannot_be_spliced_is_written_as_a_whole(tmp_path: Path, what: str) -> None:
    change, reason = FALLBACKS[what]
    path, new = _write(tmp_path), tmp_path / "new.parquet"
    alter(path, change)
    edit = _patch([150], n=[0.1])
    done = edit.on_disk(path, new)
    assert done.method == "full"
    assert reason in done.reason
    assert same(read(new), edit.in_memory(TABLE))


def test_a_dictionary_without_room_is_written_as_a_whole(tmp_path: Path) -> None:
    path, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    small = pa.dictionary(pa.int8(), pa.string())
    words = pa.array([f"w{n % 120}" for n in range(240)]).dictionary_encode().cast(small)
    table = pa.table({"id": range(240), "d": words})
    pq.write_table(table, path, row_group_size=120)
    fresh = pa.array([f"new {n}" for n in range(20)]).dictionary_encode().cast(small)
    edit = Edit(list(range(20)), table.slice(0, 20).set_column(1, "d", fresh))
    done = edit.on_disk(path, new)
    assert (done.method, "too many values" in done.reason) == ("full", True)
    assert read(new).slice(0, 20).column("d").to_pylist() == fresh.to_pylist()
    elsewhere = Edit([3], table.slice(3, 1).set_column(0, "id", pa.array([-3])))
    assert elsewhere.on_disk(path, new).method == "column splice"


def test_extension_types_are_spliced(tmp_path: Path) -> None:
    path, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    kind = pa.uuid()
    values = pa.ExtensionArray.from_storage(
        kind, pa.array([b"%016d" % n for n in range(9)], pa.binary(16))
    )
    table = pa.table({"id": range(9), "u": values})
    pq.write_table(table, path, row_group_size=3)
    edit = Edit([4], pa.table({"id": [4], "u": values.take(pa.array([0]))}))
    assert edit.on_disk(path, new).method == "column splice"
    assert read(new).column("u").to_pylist()[4] == values.to_pylist()[0]


def test_a_codec_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    path = _write(tmp_path)
    alter(path, lambda footer: set_field(metadata(footer), 4, 3))  # LZO
    layout = layout_of(path)
    column = columns_of(layout.elements)[0]
    with pytest.raises(CannotSpliceError, match="codec 3 of 'id'"):
        writer_styles([column], layout.groups[0], lambda start, length: b"")


def test_more_than_one_row_group_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class InHalves(pq.ParquetWriter):  # type: ignore[misc]
        def write_table(self, table: pa.Table, row_group_size: int | None = None) -> None:
            super().write_table(table, row_group_size=1)

    monkeypatch.setattr(pq, "ParquetWriter", InHalves)
    with pytest.raises(CannotSpliceError, match="more than one row group"):
        encode_groups([pa.table({"x": [1, 2]})], {})


def test_what_pyarrow_cannot_encode_is_refused() -> None:
    with pytest.raises(CannotSpliceError, match="cannot encode"):
        encode_groups(
            [pa.table({"x": [1.5, 2.5]})],
            {"column_encoding": {"x": "DELTA_BYTE_ARRAY"}, "use_dictionary": False},
        )


def test_a_page_header_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    chunks = layout_of(_write(tmp_path)).groups[0].chunks
    with pytest.raises(CannotSpliceError, match="header of a page"):
        page_options(chunks, lambda start, length: b"\xff" * length)


def test_a_file_that_fails_its_check_is_written_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose_a_row(self: Splicer) -> None:
        self.rows -= 1
        finish(self)

    finish = Splicer.finish
    monkeypatch.setattr(Splicer, "finish", lose_a_row)
    path, new = _write(tmp_path), tmp_path / "new.parquet"
    edit = _patch([150], n=[0.1])
    done = edit.on_disk(path, new)
    assert (done.method, "rows" in done.reason) == ("full", True)
    assert same(read(new), edit.in_memory(TABLE))


def test_the_check_sees_rows_schema_and_what_pyarrow_cannot_read(tmp_path: Path) -> None:
    path, root = _write(tmp_path), open_root(tmp_path)
    old = layout_of(path)
    rows = [100] * 4
    check_spliced(root, str(path), old, rows)
    with pytest.raises(CannotSpliceError, match="rows it should have"):
        check_spliced(root, str(path), old, [100, 300])
    other = tmp_path / "other.parquet"
    pq.write_table(TABLE.select(["id"]), other, row_group_size=100)
    with pytest.raises(CannotSpliceError, match="schema of the old one"):
        check_spliced(root, str(path), layout_of(other), rows)
    alter(path, lambda footer: drop_fields(footer.values[4][0], [2]))
    with pytest.raises(CannotSpliceError, match="pyarrow cannot read"):
        check_spliced(root, str(path), old, rows)


def test_a_file_that_changes_meanwhile_is_an_error(tmp_path: Path) -> None:
    path, new = _write(tmp_path), tmp_path / "new.parquet"
    rows = _patch([150], n=[0.1]).rows

    def touching(numbers: Any) -> pa.Table:
        os.utime(path, ns=(1, 1))
        return rows.take(pa.array(numbers))

    replacement = Replacement(np.array([150]), np.array([0]))
    with pytest.raises(ConcurrentModificationError, match=r"old\.parquet"):
        rewrite(open_root(tmp_path), str(path), replacement, touching, str(new))


@pytest.mark.parametrize("method", ["column splice", "full"])
def test_other_filesystems(tmp_path: Path, method: str) -> None:
    memory = fsspec.filesystem("memory")
    path = _write(tmp_path, **RICH)
    if method == "full":
        alter(path, FALLBACKS["old writer"][0])
    memory.pipe("/spliced/old.parquet", path.read_bytes())
    edit = _patch([7, 150], n=[0.1, 0.2])
    done = rewrite(
        open_root("memory://spliced"),
        "/spliced/old.parquet",
        Replacement(np.array(edit.positions), np.arange(2)),
        lambda numbers: edit.rows.take(pa.array(numbers)),
        "/spliced/new.parquet",
    )
    assert done.method == method
    (tmp_path / "new.parquet").write_bytes(memory.cat_file("/spliced/new.parquet"))
    assert same(read(tmp_path / "new.parquet"), edit.in_memory(TABLE))


def test_the_reason_says_how_much_changes(tmp_path: Path) -> None:
    path, new = _write(tmp_path), tmp_path / "new.parquet"
    done = _patch([150, 250], n=[0.1, 0.1], s=["s7", "?"]).on_disk(path, new)
    assert done.reason == "2 of 5 columns in 2 of 4 row groups change"


def test_a_forced_rewrite_is_a_full_one(tmp_path: Path) -> None:
    path, new = _write(tmp_path), tmp_path / "new.parquet"
    nothing = np.empty(0, np.int64)
    done = rewrite(
        open_root(tmp_path),
        str(path),
        Replacement(nothing, nothing, RowRules(force=True)),
        lambda numbers: TABLE.take(pa.array(numbers)),
        str(new),
    )
    assert (done.method, done.rows) == ("full", ROWS)
    assert same(read(new), TABLE)


def test_what_is_not_known_of_a_writer_is_found_in_its_files(tmp_path: Path) -> None:
    """INT96, decimals as integers and times in UTC stay what they are, column by column."""
    path, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    table = pa.table(
        {
            "id": pa.array(range(20), pa.int64()),
            "d": pa.array([Decimal(n) for n in range(20)], pa.decimal128(9, 2)),
            "i": pa.array(range(20), pa.timestamp("us")),
        }
    )
    WRITERS["pyarrow"](table, str(path), WriteOptions(int96=True, decimal_as_integer=True))
    rows = table.slice(3, 1)
    for number, values in (
        (1, pa.array([Decimal(5)], pa.decimal128(9, 2))),
        (2, pa.array([7], pa.timestamp("us"))),
    ):
        rows = rows.set_column(number, table.column_names[number], values)
    edit = Edit([3], rows.set_column(2, "i", rows.column("i").cast(pa.timestamp("us", "UTC"))))
    assert edit.on_disk(path, new).method == "column splice"
    types = [chunk.metadata.values[1] for chunk in layout_of(new).groups[0].chunks]
    assert types == [chunk.metadata.values[1] for chunk in layout_of(path).groups[0].chunks]
    assert read(new).slice(3, 1).to_pylist() == rows.to_pylist()


def _beside(parts: list[Path], path: Path) -> None:
    """Make one file of the columns of several, each of them one row group with as many rows."""
    data, chunks, elements = b"PAR1", [], []
    footer = layout_of(parts[0]).footer
    for part in parts:
        layout, body = layout_of(part), part.read_bytes()
        elements += layout.elements[1:]
        for found in layout.groups[0].chunks:
            for number in (9, 10, 11):
                if found.metadata.values.get(number, 0) > 0:
                    found.metadata.values[number] += len(data) - found.data.start
            data += body[found.data.start : found.data.end]
            chunks.append(found.struct)
    root = decode(footer.values[2][0], {5: INT})[0]
    root.values[5] = len(elements)
    footer.values[2] = [encode(root), *elements]
    footer.values[4][0].values[1] = chunks
    drop_fields(footer, [5, 7])
    tail = encode(footer)
    path.write_bytes(data + tail + len(tail).to_bytes(4, "little") + b"PAR1")


@pytest.mark.parametrize("changed", ["i", "t"])
def test_int96_beside_other_timestamps_stays_what_it_is(tmp_path: Path, changed: str) -> None:
    path, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    parts = [tmp_path / "i.parquet", tmp_path / "t.parquet"]
    for part in parts:
        table = pa.table({part.stem: pa.array(range(9), pa.timestamp("us"))})
        is_int96 = part.stem == "i"
        pq.write_table(table, part, use_deprecated_int96_timestamps=is_int96, store_schema=False)
    _beside(parts, path)
    before = read(path)
    rows = pa.table(
        {
            "i": pa.array([70 if changed == "i" else 3], pa.timestamp("us", "UTC")),
            "t": pa.array([70 if changed == "t" else 3], pa.timestamp("us")),
        }
    )
    done = Edit([3], rows).on_disk(path, new)
    assert done.method == "column splice", done.reason
    types = [chunk.metadata.values[1] for chunk in layout_of(new).groups[0].chunks]
    assert types == [3, 2]
    expected = before.to_pydict()
    expected[changed][3] = dt.datetime(1970, 1, 1, 0, 0, 0, 70)
    assert read(new).to_pydict() == expected


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("keep_others", [True, False])
def test_large_row_groups_are_taken_one_by_one_and_in_parts(
    tmp_path: Path, threads: int, keep_others: bool
) -> None:
    path, new = _write(tmp_path, **RICH), tmp_path / "new.parquet"
    positions = [5, 101, 102, 299, 399]
    rows = _patch(positions, n=[-1.0] * 5, s=["s1", "?", "s3", None, "?"], t=[None] * 5).rows
    edit = Edit(positions, rows, keep_others)
    done = edit.on_disk(
        path, new, keys=["id"], threads=threads, limits=SpliceLimits(max_run_bytes=1)
    )
    assert (done.encoded_row_groups > 0, done.unchanged_rows) == (True, 0)
    assert same(read(new), edit.in_memory(TABLE))


def test_a_first_change_far_behind_leaves_what_is_before_it(tmp_path: Path) -> None:
    path, new = _write(tmp_path, **RICH), tmp_path / "new.parquet"
    edit = _patch([5, 150, 399], n=[2.5, 75.0, -1.0])  # the first two are equal
    done = edit.on_disk(path, new, limits=SpliceLimits(max_run_bytes=1))
    assert (done.encoded_row_groups, done.copied_row_groups, done.unchanged_rows) == (1, 3, 2)
    assert same(read(new), edit.in_memory(TABLE))


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_dictionaries_keep_only_the_values_of_their_row_group(tmp_path: Path, version: str) -> None:
    path, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    words = [None if n % 7 == 0 else f"word {n // 1000} {n % 3}" for n in range(3000)]
    table = pa.table({"id": range(3000), "s": words})
    options = {"write_page_index": True, "data_page_version": version, "data_page_size": 512}
    pq.write_table(table, path, row_group_size=1000, max_rows_per_page=100, **options)
    rows = pa.table({"id": [1, 2500], "s": ["aaa", "zzz"]})
    edit = Edit([1, 2500], rows)
    edit.on_disk(path, new, keys=["id"])
    assert same(read(new), edit.in_memory(table))
    with pq.ParquetFile(new, read_dictionary=["s"]) as file:
        for number, more in enumerate(["aaa", None, "zzz"]):
            (chunk,) = file.read_row_group(number).column("s").chunks
            expected = {f"word {number} {n}" for n in range(3)} | ({more} if more else set())
            assert set(chunk.dictionary.to_pylist()) == expected
            found = file.metadata.row_group(number).column(1)
            assert (found.statistics.min, found.statistics.max) == (min(expected), max(expected))
            assert found.statistics.null_count == chunk.null_count
