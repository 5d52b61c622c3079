"""Files: those of other writers, those that are not ours, and what a rewritten one looks like."""

# ruff: noqa: D102 - the names of the tests explain

from __future__ import annotations

import datetime as dt
import os
import stat
import tempfile
import time
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsspeckit import errors
from fsspeckit.core.parquet import INT, decode
from fsspeckit.testing.conformance.merging import EVERY_STORE, EVERY_STRATEGY, three_files
from fsspeckit.testing.conformance.partitions import EVERY_WRITER
from fsspeckit.testing.conformance.stores import data_files, every_store_and_strategy
from fsspeckit.testing.conformance.target import Target, as_table, numbers
from fsspeckit.testing.model import STRATEGIES
from fsspeckit.testing.writers import WRITERS, WriteOptions, drop_statistics

if TYPE_CHECKING:
    from collections.abc import Callable

    from fsspeckit.testing.conformance.stores import Store

__all__ = ["FileShapeTests", "HandsOffTests", "LookTests", "UnreadableTests", "WriterTests"]

_DAYS = [dt.date(2024, 1, day) for day in range(1, 9)]
_TIMES = [dt.datetime(2024, 1, day, 3, 4, 5, 6) for day in range(1, 9)]

WIDE = pa.table(
    {
        "id": pa.array(range(8), pa.int64()),
        "s": [f"name {number}" for number in range(8)],
        "d9": pa.array([Decimal(f"{number}.25") for number in range(8)], pa.decimal128(9, 2)),
        "d18": pa.array([Decimal(f"{number}.5") for number in range(8)], pa.decimal128(18, 4)),
        "d38": pa.array([Decimal(10**25 + number) for number in range(8)], pa.decimal128(38, 4)),
        "day": pa.array(_DAYS, pa.date32()),
        "t": pa.array(_TIMES, pa.timestamp("us")),
        "z": pa.array(_TIMES, pa.timestamp("us", "UTC")),
        "f": pa.array([number / 2 for number in range(8)], pa.float64()),
        "flag": [number % 2 == 0 for number in range(8)],
        "items": pa.array([[number, None] for number in range(8)], pa.list_(pa.int32())),
        "pair": pa.array([{"a": number, "b": "x"} for number in range(8)]),
    }
)
"""Eight rows with distinct values in every column that can be a key."""

CALLS: dict[str, Callable[[Any, str], Any]] = {
    "merge": lambda io, path: io.merge(numbers(1), path, "upsert", ["id"]),
    "plan": lambda io, path: io.plan_merge(numbers(1), path, "upsert", ["id"]),
    "append": lambda io, path: io.write_dataset(numbers(1), path),
    "overwrite": lambda io, path: io.write_dataset(numbers(1), path, mode="overwrite"),
    "read": lambda io, path: io.read_dataset(path),
}
"""What can be done with the path of a dataset."""

FOREIGN = {
    "README.txt": b"read me",
    "_SUCCESS": b"",
    ".hidden.parquet": b"not data",
    "_draft.parquet": b"not data either",
    "_common_metadata": b"a schema and nothing else, so no offsets that could become wrong",
    "sub/_common_metadata": b"the same, deeper",
    "_logs/x.parquet": b"hidden by its directory",
    ".tmp/deep/x.parquet": b"hidden by a directory above",
    ".a.parquet.crc": b"the checksum of a file that is replaced",
    ".b.parquet.crc": b"the checksum of a file that stays",
    "notes.parquet.bak": b"a backup",
    "sub/notes.md": b"deep",
}

REFUSED = {
    "Delta": "_delta_log/00000000000000000000.json",
    "Iceberg": "metadata/v1.metadata.json",
    "Hudi": ".hoodie/hoodie.properties",
    "'_metadata'": "_metadata",
    "'_p=1'": "_p=1/f.parquet",
}
"""What a message must say about a directory that holds such a file."""


def columns_of(footer: pq.FileMetaData) -> list[Any]:
    """The column chunks of all row groups."""
    return [
        footer.row_group(group).column(column)
        for group in range(footer.num_row_groups)
        for column in range(footer.num_columns)
    ]


def two_files(target: Target, writer: str, without: str = "") -> pa.Table:
    """Put two files of a writer into a target; return a source of one row of them and a new one."""
    for name, start in [("a", 0), ("b", 4)]:
        target.store.put(f"{name}.parquet", written_by(writer, start, without))
    flag = WIDE.schema.get_field_index("flag")
    changed = WIDE.set_column(flag, "flag", pa.array([True] * len(WIDE)))
    return changed.select([n for n in WIDE.column_names if n != without]).take(pa.array([1, 7]))


@cache
def written_by(writer: str, start: int, without: str) -> bytes:
    """Three rows as a writer writes them, but for a column; once for all tests that need them."""
    columns = [name for name in WIDE.column_names if name != without]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "f.parquet")
        WRITERS[writer](WIDE.select(columns).slice(start, 3), path, WriteOptions(row_group_size=2))
        with open(path, "rb") as file:
            return file.read()


BOOLEANS = pa.table(
    {
        "id": [1, 2, 3],
        "flag": [True, False, None],
        "in": [{"flag": True}, {"flag": False}, None],
        "v": ["a", "b", "c"],
    }
)


def _write_with_blooms(table: pa.Table, path: str, rows_per_group: int) -> None:
    """Write a file with bloom filters of every column, booleans too."""
    datafusion = pytest.importorskip("datafusion")
    options = datafusion.ParquetWriterOptions(
        bloom_filter_on_write=True, max_row_group_size=rows_per_group
    )
    frame = datafusion.SessionContext().from_arrow(table)
    frame.write_parquet_with_options(path, options)


def blooms_of(footer: pq.FileMetaData) -> set[str]:
    """The columns with bloom filters."""
    return {c.path_in_schema for c in columns_of(footer) if c.bloom_filter_offset is not None}


class WriterTests:
    """Files of four writers."""

    @EVERY_WRITER
    @pytest.mark.parametrize("key", ["id", "s", "d9", "d18", "d38", "day", "t", "z", "f"])
    def test_files_written_by(
        self, target: Target, writer: str, key: str, request: pytest.FixtureRequest
    ) -> None:
        if writer == "spark":
            request.getfixturevalue("spark")
        source = two_files(target, writer, without="z" if key == "t" else "t")
        result = target.merge(source, "upsert", [key])
        assert (result.updated, result.inserted, len(result.rewritten_files)) == (1, 1, 1)

    @pytest.mark.spark
    @pytest.mark.usefixtures("spark")
    def test_int96_beside_other_timestamps(self, target: Target) -> None:
        """Spark writes such files, pyarrow cannot: INT96 becomes INT64, the same instants."""
        source = two_files(target, "spark")
        assert target.merge(source).updated == 1

    def test_files_of_different_writers_side_by_side(self, target: Target) -> None:
        os.makedirs(target.store.local)
        for number, writer in enumerate(["pyarrow", "duckdb", "polars"]):
            table = WIDE.select(["id", "s"]).slice(number * 2, 2)
            WRITERS[writer](table, f"{target.store.local}/{writer}.parquet")
        source = WIDE.select(["id", "s"]).slice(1, 6).set_column(1, "s", pa.array(["new"] * 6))
        result = target.merge(source)
        assert (result.updated, result.inserted) == (5, 1)

    @pytest.mark.parametrize("role", ["payload", "key"])
    @pytest.mark.parametrize("row_groups", [1, 3])
    def test_booleans_with_bloom_filters(self, target: Target, role: str, row_groups: int) -> None:
        """DataFusion writes them, pyarrow cannot: other columns keep theirs."""
        os.makedirs(target.store.local)
        path = f"{target.store.local}/a.parquet"
        _write_with_blooms(BOOLEANS, path, rows_per_group=3 // row_groups)
        assert "flag" in blooms_of(target.store.footer("a.parquet"))
        source = pa.table(
            {"id": [2, 4], "flag": [False, None], "in": [{"flag": None}, None], "v": ["B", "D"]}
        ).cast(BOOLEANS.schema)
        keys = ["id", "flag"] if role == "key" else ["id"]
        (new,) = target.merge(source, "upsert", keys, null_keys="match").rewritten_files
        kept = blooms_of(target.store.footer(target.store.relative(new)))
        assert {"id", "v"} <= kept

    def test_booleans_with_bloom_filters_are_rewritten(self, target: Target) -> None:
        os.makedirs(target.store.local)
        _write_with_blooms(BOOLEANS, f"{target.store.local}/a.parquet", rows_per_group=2)
        target.io.merge_parquet_dataset(BOOLEANS, target.store.path, ["id"])
        (rows,) = target.files(BOOLEANS.schema).values()
        assert rows == BOOLEANS.to_pylist()


class FileShapeTests:
    """Files without rows, without statistics, with many row groups, with many names."""

    @EVERY_STRATEGY
    def test_files_with_zero_rows(self, target: Target, strategy: str) -> None:
        target.write("a.parquet", numbers())
        target.write("b.parquet", numbers(1, 2))
        target.write("c.parquet", numbers())
        target.merge(numbers(2, 3, v="new"), strategy)

    def test_only_files_with_zero_rows(self, target: Target) -> None:
        target.write("a.parquet", numbers())
        assert target.merge(numbers(1)).inserted == 1

    @EVERY_STORE
    def test_files_without_statistics(self, target: Target) -> None:
        target.write("a.parquet", numbers(1, 2), write_statistics=False)
        target.write("b.parquet", numbers(3, 4), write_statistics=False)
        assert len(target.merge(numbers(3, 5, v="new")).preserved_files) == 1

    def test_row_groups_without_statistics(self, target: Target) -> None:
        target.write("a.parquet", numbers(1, 2, 50, 51, 3, 4), row_group_size=2)
        drop_statistics(f"{target.store.local}/a.parquet", [1])
        assert target.merge(numbers(50, v="new")).updated == 1

    @EVERY_STRATEGY
    def test_many_row_groups(self, target: Target, strategy: str) -> None:
        target.write("a.parquet", numbers(*range(0, 120, 2)), row_group_size=1)
        target.write("b.parquet", numbers(*range(200, 300)), row_group_size=7)
        target.merge(numbers(0, 1, 60, 118, 299, v="new"), strategy)

    def test_empty_row_groups(self, target: Target) -> None:
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(sink, numbers().schema) as writer:
            for table in (numbers(), numbers(1), numbers(), numbers(2)):
                writer.write_table(table)
        target.store.put("a.parquet", sink.getvalue().to_pybytes())
        (new,) = target.merge(numbers(2, 3, v="new")).rewritten_files
        footer = target.store.footer(target.store.relative(new))
        assert [footer.row_group(n).num_rows for n in range(4)] == [0, 1, 0, 1]

    def test_names_of_data_files(self, target: Target) -> None:
        names = [
            "A.PARQUET",
            "b.pq",
            "c.parq",
            "sub/d.parquet",
            "two words.parquet",
            "e#1%.parquet",
            "[x]*?{a,b}.parquet",
            "it's.parquet",
        ]
        for number, name in enumerate(names):
            target.write(name, numbers(number))
        result = target.merge(numbers(*range(9), v="new"))
        assert (result.updated, result.inserted) == (8, 1)

    def test_files_with_columns_in_another_order(self, target: Target) -> None:
        target.write("a.parquet", numbers(1, 2))
        target.write("b.parquet", numbers(3, 4).select(["v", "id"]))
        target.merge(numbers(1, 4, 5, v="new"))

    def test_only_key_columns_are_read_of_files_that_hold_no_key(self, target: Target) -> None:
        """The payload of such a file is damaged, so that reading it fails."""
        target.write("a.parquet", numbers(1, 3, 5))
        target.write("b.parquet", numbers(2, 4, 6), use_dictionary=False)
        entry = target.store.tree()["b.parquet"].data
        chunk = target.store.footer("b.parquet").row_group(0).column(1)
        start, length = chunk.data_page_offset, chunk.total_compressed_size
        damaged = entry[:start] + b"\xee" * length + entry[start + length :]
        target.store.put("b.parquet", damaged)
        result = target.io.merge(numbers(3, v="new"), target.store.path, "update", ["id"])
        assert (result.updated, len(result.preserved_files)) == (1, 1)
        assert target.store.tree()["b.parquet"].data == damaged


class HandsOffTests:
    """What is not data is not touched; what a merge would make wrong is refused."""

    @every_store_and_strategy(STRATEGIES, "full_merge")
    def test_foreign_files_are_untouched(self, target: Target, strategy: str) -> None:
        three_files(target)
        for name, data in FOREIGN.items():
            target.store.put(name, data)
        target.merge(numbers(1, 6, 8, v="new"), strategy)

    @EVERY_STRATEGY
    def test_a_common_metadata_file_stays_and_is_true(self, target: Target, strategy: str) -> None:
        three_files(target)
        sink = pa.BufferOutputStream()
        pq.write_metadata(numbers().schema, sink)
        target.store.put("_common_metadata", sink.getvalue().to_pybytes())
        target.merge(numbers(1, 6, 8, v="new"), strategy)
        common = pq.read_schema(pa.BufferReader(target.store.tree()["_common_metadata"].data))
        for name in data_files(target.store.tree()):
            assert target.store.schema(name).equals(common)

    @pytest.mark.parametrize("what", REFUSED)
    def test_refused(self, target: Target, what: str) -> None:
        target.write("a.parquet", numbers(1))
        target.store.put(REFUSED[what], b"{}")
        message = target.refuses(ValueError, numbers(1, v="new"), match="Hint:")
        assert what in message

    @pytest.mark.parametrize("what", REFUSED)
    def test_overwriting_is_refused(self, target: Target, what: str) -> None:
        target.write("a.parquet", numbers(1))
        target.store.put(REFUSED[what], b"{}")
        before = target.store.tree()
        with pytest.raises(ValueError, match="Hint:"):
            target.io.write_dataset(numbers(2), target.store.path, mode="overwrite")
        assert target.store.tree() == before

    @EVERY_STORE
    @pytest.mark.parametrize("call", [name for name in CALLS if name != "read"])
    def test_a_file_is_not_a_dataset(self, target: Target, call: str) -> None:
        target.write("a.parquet", numbers(1))
        before = target.store.tree()
        path = f"{target.store.path}/a.parquet"
        with pytest.raises(NotADirectoryError, match=r"a\.parquet' is a file(.|\n)*Hint: name"):
            CALLS[call](target.io, path)
        assert target.store.tree() == before

    @pytest.mark.parametrize("call", CALLS)
    def test_a_path_below_a_file_is_not_a_dataset(self, target: Target, call: str) -> None:
        target.write("a.parquet", numbers(1))
        path = f"{target.store.path}/a.parquet/data"
        with pytest.raises(NotADirectoryError, match=r"a\.parquet' is a file(.|\n)*Hint: name"):
            CALLS[call](target.io, path)

    @pytest.mark.parametrize("call", CALLS)
    def test_a_root_that_is_not_utf8_is_refused_before_anything_is_written(
        self, target: Target, call: str
    ) -> None:
        parent = os.path.dirname(target.store.local)
        path = f"{parent}/{os.fsdecode(bytes([0x63, 0xE9]))}/data"
        with pytest.raises(errors.InvalidArgumentError, match=r"UTF-8.*c\\udce9/data"):
            CALLS[call](target.io, path)
        assert os.listdir(parent) == []


ANSWERING = pytest.mark.parametrize("store", ["answering"], indirect=True)
"""A filesystem with errors like those of an object store."""


class UnreadableTests:
    """Unreadable or unknown means affected or error, never skipped."""

    reads_at_once = True
    """Whether reading a dataset reads its data, or only says how to."""

    DAMAGED = pytest.mark.parametrize(
        "damage",
        [lambda data: b"", lambda data: b"no Parquet at all", lambda data: data[:-20]],
        ids=["empty", "something else", "cut short"],
    )

    @DAMAGED
    @EVERY_STRATEGY
    def test_an_unreadable_file_is_named(
        self, target: Target, strategy: str, damage: Callable[[bytes], bytes]
    ) -> None:
        self._damage(target, damage, age=120)
        target.refuses(
            errors.UnreadableFileError, numbers(1, v="new"), strategy, match=r"b\.parquet"
        )

    def test_an_unreadable_file_is_affected_in_a_plan(self, target: Target) -> None:
        self._damage(target, lambda data: data[:-20], age=120)
        assert target.decisions(target.plan(numbers(1)))["b.parquet"] == "affected"

    def test_a_young_file_without_a_footer_is_being_written(
        self, connect: Callable[..., Any], store: Store
    ) -> None:
        with connect(**store.options, lock_timeout=0.5) as io:
            target = Target(io, store)
            self._damage(target, lambda data: data[:-20], age=0)
            error = errors.ConcurrentModificationError
            target.refuses(error, numbers(1, v="new"), match=r"b\.parquet")

    @ANSWERING
    @pytest.mark.parametrize("name", ["forbidden.parquet", "secret.parquet"])
    def test_a_forbidden_file_is_not_taken_for_a_damaged_one(
        self, target: Target, name: str
    ) -> None:
        target.write(name, numbers(1, 2))
        before = target.store.tree()
        with pytest.raises(PermissionError, match=f"{name}.*Forbidden") as caught:
            target.io.merge(numbers(1, v="new"), target.store.path, "upsert", ["id"])
        assert "permission to read" in str(caught.value)
        assert not any(word in str(caught.value) for word in ("Parquet", "remove", "delete"))
        assert target.store.tree() == before

    @ANSWERING
    @pytest.mark.parametrize("name", ["fading.parquet", "vanishing.parquet"])
    @pytest.mark.parametrize(("call", "rows"), [("merge", 3), ("plan_merge", 2)])
    def test_a_file_that_vanishes_after_listing_is_planned_without(
        self, target: Target, call: str, rows: int, name: str
    ) -> None:
        target.write("a.parquet", numbers(1, 9))
        target.store.write(name, numbers(3, 4))
        getattr(target.io, call)(numbers(3, v="new"), target.store.path, "upsert", ["id"])
        assert name not in target.store.tree()
        assert sum(target.rows(numbers().schema).values()) == rows

    @ANSWERING
    @pytest.mark.parametrize("name", ["fading.parquet", "vanishing.parquet"])
    def test_a_file_that_vanishes_before_it_is_read_is_left_out(
        self, target: Target, name: str
    ) -> None:
        if name == "fading.parquet" and not self.reads_at_once:
            pytest.skip("this engine reads data when the result is used")
        target.write("a.parquet", numbers(1, 2))
        target.store.write(name, numbers(3, 4))
        assert as_table(target.io.read_dataset(target.store.path)).num_rows == 2

    @ANSWERING
    def test_no_hint_advises_to_delete_a_file_that_may_hold_rows(self, target: Target) -> None:
        target.store.put("a.parquet", b"no Parquet at all")
        then = time.time() - 120
        os.utime(target.store.at("a.parquet"), (then, then))
        with pytest.raises(errors.UnreadableFileError, match="restore the file") as caught:
            target.io.merge(numbers(1), target.store.path, "upsert", ["id"])
        assert not any(word in str(caught.value) for word in ("remove", "delete"))

    def _damage(self, target: Target, damage: Callable[[bytes], bytes], age: float) -> None:
        three_files(target)
        target.store.put("b.parquet", damage(target.store.tree()["b.parquet"].data))
        then = time.time() - age
        os.utime(f"{target.store.local}/b.parquet", (then, then))


def _page_types(data: bytes) -> list[int]:
    """The type of the first data page of each column chunk: 0 is version 1, 3 is version 2."""
    footer = pq.read_metadata(pa.BufferReader(data))
    pages = [data[chunk.data_page_offset :][:200] for chunk in columns_of(footer)]
    return [decode(page, {1: INT})[0].values[1] for page in pages]


def _footer(data: bytes) -> pq.FileMetaData:
    return pq.read_metadata(pa.BufferReader(data))


LOOKS: dict[str, tuple[dict[str, Any], Callable[[bytes], Any]]] = {
    "codec per column": (
        {"compression": {"id": "zstd", "v": "gzip", "d": "none", "t": "snappy"}},
        lambda data: [chunk.compression for chunk in columns_of(_footer(data))],
    ),
    "row-group boundaries": (
        {"row_group_size": 3},
        lambda data: [
            _footer(data).row_group(n).num_rows for n in range(_footer(data).num_row_groups)
        ],
    ),
    "data-page version": ({"data_page_version": "2.0"}, _page_types),
    "INT96": (
        {"use_deprecated_int96_timestamps": True},
        lambda data: [chunk.physical_type for chunk in columns_of(_footer(data))],
    ),
    "timestamps in ms": (
        {"coerce_timestamps": "ms"},
        lambda data: str(pq.ParquetFile(pa.BufferReader(data)).schema).partition("\n")[2],
    ),
    "decimals as integers": (
        {"store_decimal_as_integer": True},
        lambda data: [chunk.physical_type for chunk in columns_of(_footer(data))],
    ),
    "key-value metadata": ({}, lambda data: _footer(data).metadata),
    "no Arrow schema": ({"store_schema": False}, lambda data: sorted(_footer(data).metadata or {})),
    "bloom filters": (
        {"bloom_filter_options": {"id": {"ndv": 100}}},
        lambda data: [chunk.bloom_filter_offset is None for chunk in columns_of(_footer(data))],
    ),
    "page index": (
        {"write_page_index": True},
        lambda data: [(c.has_column_index, c.has_offset_index) for c in columns_of(_footer(data))],
    ),
    "sorting columns": (
        {"sorting_columns": [pq.SortingColumn(0, descending=False, nulls_first=True)]},
        lambda data: [_footer(data).row_group(0).sorting_columns],
    ),
    "sorting by a key and more": (
        {"sorting_columns": [pq.SortingColumn(0), pq.SortingColumn(2)]},
        lambda data: [_footer(data).row_group(0).sorting_columns],
    ),
    "no dictionaries": (
        {"use_dictionary": False},
        lambda data: [chunk.has_dictionary_page for chunk in columns_of(_footer(data))],
    ),
}
"""How to write a file with a property, and how to see that property."""


class LookTests:
    """Rewritten files look like the files they replace."""

    TABLE = pa.table(
        {
            "id": pa.array(range(8), pa.int64()),
            "v": [f"v{number}" for number in range(8)],
            "d": pa.array([Decimal(number) for number in range(8)], pa.decimal128(9, 2)),
            "t": pa.array([dt.datetime(2024, 1, 1)] * 8, pa.timestamp("us", "UTC")),
        }
    ).replace_schema_metadata({"who": "somebody"})

    def test_the_properties_can_be_seen(self) -> None:
        """Every property makes a difference to a file without it, or the test proves nothing."""
        plain = self._bytes({}, metadata=False)
        seen = {
            what: look(self._bytes(options)) != look(plain)
            for what, (options, look) in LOOKS.items()
        }
        assert [what for what, differs in seen.items() if not differs] == []

    def _bytes(self, options: dict[str, Any], *, metadata: bool = True) -> bytes:
        sink = pa.BufferOutputStream()
        table = self.TABLE if metadata else self.TABLE.replace_schema_metadata(None)
        pq.write_table(table, sink, **options)
        return bytes(sink.getvalue().to_pybytes())

    @pytest.mark.parametrize("what", LOOKS)
    def test_rewriting_keeps(self, target: Target, what: str) -> None:
        options, look = LOOKS[what]
        target.write("a.parquet", self.TABLE, **options)
        before = look(target.store.tree()["a.parquet"].data)
        source = self.TABLE.slice(4, 1).set_column(1, "v", pa.array(["new"]))
        (path,) = target.merge(source, "update").rewritten_files
        assert look(target.store.filesystem.cat_file(path)) == before

    def test_rewriting_keeps_the_file_mode(self, target: Target) -> None:
        three_files(target)
        os.chmod(f"{target.store.local}/a.parquet", 0o604)
        (path,) = target.merge(numbers(1, v="new"), "update").rewritten_files
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o604

    def test_full_merge_keeps_the_codec(self, target: Target) -> None:
        target.write("a.parquet", self.TABLE, compression="zstd", row_group_size=3)
        (path,) = target.merge(self.TABLE.slice(2, 4), "full_merge").rewritten_files
        footer = target.store.footer(target.store.relative(path))
        assert {chunk.compression for chunk in columns_of(footer)} == {"ZSTD"}

    def test_equal_bits_are_not_a_change(self, target: Target) -> None:
        """NaN = NaN, but 0.0 and -0.0 differ in their bits."""
        target.write("a.parquet", pa.table({"id": [1], "f": [float("nan")]}))
        target.write("b.parquet", pa.table({"id": [2], "f": [0.0]}))
        result = target.merge(pa.table({"id": [1, 2], "f": [float("nan"), -0.0]}), "update")
        assert (result.updated, len(result.rewritten_files)) == (2, 1)
