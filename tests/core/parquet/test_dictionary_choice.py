"""Which columns get a dictionary: those whose values repeat, in rewritten files and in new ones."""

from __future__ import annotations

import io
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit.core.parquet.format.layout import columns_of, parse_layout, read_footer
from fsspeckit.core.parquet.format.thrift import drop_fields
from fsspeckit.core.parquet.splice.assembler import ChunkStyle
from fsspeckit.core.parquet.splice.writer_properties import WriterProperties

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsspeckit.core.parquet.format.layout import Chunk, Column

ROWS = 20_000
FEW = np.random.default_rng(1).integers(0, 100, ROWS)
ALL = np.random.default_rng(2).permutation(ROWS)


def _texts(numbers: Any) -> pa.Array:
    return pa.array([f"a rather long text {number:08}" for number in numbers])


def _binaries(numbers: Any) -> pa.Array:
    return pa.array([b"%016d" % number for number in numbers], pa.binary(16))


def _decimals(numbers: Any) -> pa.Array:
    return pa.array([Decimal(int(number)) for number in numbers], pa.decimal128(20, 0))


MAKERS: dict[str, Any] = {
    "int64": pa.array,
    "double": lambda numbers: pa.array(numbers / 7),
    "timestamp": lambda numbers: pa.array(numbers).cast(pa.timestamp("us", "UTC")),
    "string": _texts,
    "large string": lambda numbers: _texts(numbers).cast(pa.large_string()),
    "fixed binary": _binaries,
    "uuid": lambda numbers: _binaries(numbers).cast(pa.uuid()),
    "decimal": _decimals,
}


def _chunks(table: pa.Table, **options: Any) -> tuple[bytes, Column, Sequence[Chunk]]:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    data = sink.getvalue()

    def read(start: int, length: int) -> bytes:
        return data[start : start + length]

    layout = parse_layout(read_footer(read, len(data)), len(data), read)
    return data, columns_of(layout.elements)[0], layout.groups[0].chunks


def _is_kept(column: Column, chunks: Sequence[Chunk]) -> bool:
    return any(style.has_dictionary for style in map(ChunkStyle.of, chunks, column.lengths))


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("null_share", [0.0, 0.9])
def test_a_dictionary_is_written_again_if_values_repeat(kind: str, null_share: float) -> None:
    empty = np.random.default_rng(3).random(ROWS) < null_share
    for numbers, repeats in ((FEW, True), (ALL, False)):
        values = MAKERS[kind](numbers)
        table = pa.table({"x": values.filter(pa.array(~empty))})
        nulls = pa.table({"x": pa.nulls(int(empty.sum()), values.type)})
        _, column, chunks = _chunks(pa.concat_tables([table, nulls]).combine_chunks())
        assert _is_kept(column, chunks) is repeats


def test_a_dictionary_of_strings_of_unknown_size_is_written_again() -> None:
    _, column, chunks = _chunks(pa.table({"x": _texts(ALL)}))
    drop_fields(chunks[0].metadata, [16])
    assert _is_kept(column, chunks)
    assert _is_kept(column, _chunks(pa.table({"x": _texts(ALL)}), use_dictionary=False)[2]) is False


def test_a_dictionary_that_was_given_up_is_not_written_again() -> None:
    options = {"dictionary_pagesize_limit": 1000, "data_page_size": 4000, "write_batch_size": 100}
    _, column, chunks = _chunks(pa.table({"x": _texts(ALL)}), **options)
    drop_fields(chunks[0].metadata, [16])
    assert not _is_kept(column, chunks)


@pytest.mark.parametrize("field", [12, 13, 16])
def test_damaged_facts_keep_the_dictionary(field: int) -> None:
    _, column, chunks = _chunks(pa.table({"x": _texts(ALL)}))
    # A struct, or a list of one, whose fields are texts.
    chunks[0].metadata.raw[field] = b"\x1c" * (field == 13) + b"\x18\x01x\x18\x01x\x18\x01x\x00"
    assert _is_kept(column, chunks)


def _chosen(table: pa.Table) -> WriterProperties:
    return WriterProperties(table.schema, {}).with_dictionaries_for(table)


def _written(table: pa.Table) -> dict[str, bool]:
    """Which leaf columns of a new file have a dictionary; the file holds the rows."""
    sink = io.BytesIO()
    pq.write_table(table, sink, **_chosen(table).options)
    assert pq.read_table(sink).equals(table)
    group = pq.read_metadata(sink).row_group(0)
    chunks = [group.column(number) for number in range(group.num_columns)]
    return {chunk.path_in_schema: chunk.has_dictionary_page for chunk in chunks}


def test_new_files_get_a_dictionary_where_values_repeat() -> None:
    few = {f"few {kind}": make(FEW) for kind, make in MAKERS.items()}
    many = {f"many {kind}": make(ALL) for kind, make in MAKERS.items()}
    written = _written(pa.table({**few, **many}))
    assert written == dict.fromkeys(few, True) | dict.fromkeys(many, False)


def test_values_that_repeat_next_to_each_other_get_a_dictionary() -> None:
    runs = pa.table({"x": np.arange(200_000) // 20, "y": np.tile(np.arange(10_000), 20)})
    assert _written(runs) == {"x": True, "y": True}


def test_a_dictionary_that_pyarrow_would_give_up_is_not_begun() -> None:
    texts = pa.array([f"{n:0200}" for n in range(10_000)]).take(
        pa.array(np.arange(60_000) % 10_000)
    )
    assert _written(pa.table({"x": texts})) == {"x": False}


def test_nested_columns_and_arrow_dictionaries_keep_theirs() -> None:
    numbers = pa.array(ALL)
    lists = pa.ListArray.from_arrays(pa.array(np.arange(ROWS + 1), pa.int32()), numbers)
    table = pa.table(
        {
            "list": lists,
            "large": lists.cast(pa.large_list(pa.int64())),
            "fixed": pa.FixedSizeListArray.from_arrays(numbers, 2).take(pa.array(FEW)),
            "struct": pa.StructArray.from_arrays([lists, numbers], ["a.b", "c"]),
            "map": pa.MapArray.from_arrays(lists.offsets, _texts(ALL), numbers),
            "category": _texts(ALL).dictionary_encode(),
            "flat": numbers,
            "a.dot": numbers,
        }
    )
    written = _written(table)
    assert [path for path, kept in written.items() if not kept] == ["flat", "a.dot"]
    assert len(written) == 9 + 1


def test_types_without_a_choice_keep_the_dictionary() -> None:
    small = pa.array([Decimal(int(n)) for n in FEW], pa.decimal32(5, 0))
    table = pa.table({"n": pa.nulls(ROWS), "d": small, "b": pa.array(ALL % 2 == 0)})
    assert _chosen(table).options == {"use_dictionary": ["n", "d", "b"]}


@pytest.mark.parametrize("rows", [0, 1, 16_383])
def test_few_rows_are_not_looked_at(rows: int) -> None:
    assert _chosen(pa.table({"x": np.arange(rows)})).options == {}


def test_nothing_but_null() -> None:
    assert _written(pa.table({"x": pa.nulls(ROWS, pa.int64())})) == {"x": True}


def test_the_choice_is_the_same_every_time() -> None:
    random = np.random.default_rng(5)
    near = pa.table({f"x{n}": random.integers(0, n * 1000, 50_000) for n in range(1, 40)})
    first = _chosen(near).options
    assert 5 < len(first["use_dictionary"]) < 35
    assert all(_chosen(near).options == first for _ in range(3))
