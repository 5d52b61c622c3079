"""Files of four writers, spliced, as six readers see them: all rows, and what filters find.

Filters go through statistics, page indexes and bloom filters, so that a reader skips what these
say it may; what was moved to a wrong place shows as missing rows.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from tests.core.rewrite.spliced import Edit, read

from fsspeckit.core.parquet import verify_footer, verify_row_groups
from fsspeckit.storage import Findings
from fsspeckit.testing.writers import WRITERS, WriteOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.untraced

ROWS, GROUP = 6000, 2048
_RANDOM = np.random.default_rng(7)
TABLE = pa.table(
    {
        "id": pa.array(np.arange(ROWS) * 3, pa.int64()),
        "n": pa.array(_RANDOM.random(ROWS).round(6)),
        "s": [f"word {n % 500}" for n in range(ROWS)],
        "f": pa.array(_RANDOM.random(ROWS) < 0.5),
        "day": pa.array(_RANDOM.integers(0, 20_000, ROWS), pa.int32()).cast(pa.date32()),
        "d": pa.array([Decimal(n) / 4 for n in range(ROWS)], pa.decimal128(9, 2)),
        "t": pa.array(_RANDOM.integers(0, 10**15, ROWS)).cast(pa.timestamp("us", "UTC")),
        "l": [None if n % 13 == 0 else [n, n + 1][: n % 3] for n in range(ROWS)],
        "r": [{"a": n, "b": [{"c": f"c{n}"}]} for n in range(ROWS)],
    }
)

_INDEXED: dict[str, Any] = {
    "write_page_index": True,
    "write_page_checksum": True,
    "bloom_filter_options": {"id": True, "s": True},
    "sorting_columns": [pq.SortingColumn(0)],
    "data_page_size": 2048,
}
_DELTA = {
    "use_dictionary": False,
    "column_encoding": {
        "id": "DELTA_BINARY_PACKED",
        "n": "BYTE_STREAM_SPLIT",
        "s": "DELTA_BYTE_ARRAY",
    },
}
PYARROW: dict[str, dict[str, Any]] = {
    "v1 snappy": {},
    "v1 none": {"compression": "none", "use_dictionary": False},
    "v2 gzip": {"compression": "gzip", "data_page_version": "2.0"},
    "v1 brotli": {"compression": "brotli", **_INDEXED},
    "v2 lz4": {"compression": "lz4", "data_page_version": "2.0", "use_dictionary": False},
    "v2 zstd indexed": {"compression": "zstd", "data_page_version": "2.0", **_INDEXED},
    "v1 snappy indexed": {**_INDEXED, "use_dictionary": False},
    "delta": {**_DELTA, "write_page_index": True},
    "v1 pages": {"max_rows_per_page": 200},
    "v2 pages": {
        "max_rows_per_page": 200,
        "data_page_version": "2.0",
        "compression": "zstd",
        "write_page_checksum": True,
    },
    "delta pages": {**_DELTA, "max_rows_per_page": 200},
    "plain pages": {"use_dictionary": False, "max_rows_per_page": 200},
}


def _with_pyarrow(options: dict[str, Any]) -> Callable[[pa.Table, str], None]:
    return lambda table, path: pq.write_table(table, path, row_group_size=GROUP, **options)


def _with_duckdb(version: str) -> Callable[[pa.Table, str], None]:
    def write(table: pa.Table, path: str) -> None:
        import duckdb

        with duckdb.connect(config={"threads": 1}) as connection:
            connection.register("source", table)
            connection.execute(
                f"COPY (FROM source) TO '{path}' (FORMAT parquet, PARQUET_VERSION {version}, "
                f"ROW_GROUP_SIZE {GROUP}, DICTIONARY_SIZE_LIMIT {ROWS})"
            )

    return write


def _with_polars(table: pa.Table, path: str) -> None:
    WRITERS["polars"](table, path, WriteOptions(row_group_size=GROUP, compression="zstd"))


SOURCES: dict[str, Callable[[pa.Table, str], None]] = {
    **{f"pyarrow {name}": _with_pyarrow(options) for name, options in PYARROW.items()},
    "duckdb v1": _with_duckdb("V1"),
    "duckdb v2": _with_duckdb("V2"),
    "polars": _with_polars,
}


def _rows(table: pa.Table) -> Edit:
    """Every column of some rows of the second row group."""
    places = [GROUP + 10, GROUP + 11]
    rows = table.take(pa.array(places)).to_pylist()
    for number, row in enumerate(rows):
        row |= {
            "id": 100_000 + number, "n": 5.5, "s": "new word", "f": None, "d": Decimal("0.25"),
            "day": dt.date(2040, 1, 1), "l": [7, 8, 9], "r": {"a": -1, "b": []},
        }  # fmt: skip
        if "t" in row:
            row["t"] = dt.datetime(2040, 1, 1, tzinfo=dt.UTC)
    return Edit(places, pa.Table.from_pylist(rows, table.schema))


def _columns(table: pa.Table) -> Edit:
    """Two columns, one of them nested, of a row in each row group."""
    places = [5, GROUP + 5, 2 * GROUP + 5]
    rows = table.take(pa.array(places)).to_pylist()
    for row in rows:
        row |= {"s": "new word", "r": {"a": None, "b": [{"c": "new"}, {"c": None}]}}
    return Edit(places, pa.Table.from_pylist(rows, table.schema))


def _fewer(table: pa.Table) -> Edit:
    """The second row group gone, and half of the last."""
    places = [*range(GROUP), *range(2 * GROUP, ROWS, 2)]
    return Edit(places, table.take(pa.array(places)), keep_others=False)


def _pages(table: pa.Table) -> Edit:
    """Rows of pages in between others, which stay what they are where pages are small."""
    places = [450, 1650, GROUP + 450]
    rows = table.take(pa.array(places)).to_pylist()
    for number, row in enumerate(rows):
        row |= {"n": 0.5 + number, "s": "new word", "day": dt.date(2001, 2, 3), "f": None}
    return Edit(places, pa.Table.from_pylist(rows, table.schema))


EDITS = {"rows": _rows, "columns": _columns, "fewer": _fewer, "pages": _pages}
FILTERS = {
    "a new id": "id = 100001",
    "an old id": "id = 30",
    "an absent id": "id = 31",
    "a new word": "s = 'new word'",
    "an old word": "s = 'word 77'",
    "an absent word": "s = 'word 5000'",
    "a range": "id BETWEEN 6100 AND 6300",
    "two columns": "n > 0.5 AND id < 900",
}


def _sorted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """All rows by their id, in the types of the table that they are compared with.

    Readers have types of their own for strings and lists, and some give instants without saying so.
    """
    assert set(table.column_names) == set(schema.names)
    return table.select(schema.names).cast(schema).sort_by("id").combine_chunks()


def _check_rows(found: pa.Table, expected: pa.Table, where: Any) -> None:
    left, right = (_sorted(table, expected.schema) for table in (found, expected))
    # Python's values take long, but a failure shows which of them differ.
    assert left.equals(right) or left.to_pylist() == right.to_pylist(), where


def _counts(table: pa.Table) -> dict[str, int]:
    """What each filter must find."""
    ids, words = np.asarray(table["id"]), table["s"].to_pylist()
    numbers = np.asarray(table["n"])
    return {
        "a new id": int((ids == 100001).sum()),
        "an old id": int((ids == 30).sum()),
        "an absent id": int((ids == 31).sum()),
        "a new word": words.count("new word"),
        "an old word": words.count("word 77"),
        "an absent word": words.count("word 5000"),
        "a range": int(((ids >= 6100) & (ids <= 6300)).sum()),
        "two columns": int(((numbers > 0.5) & (ids < 900)).sum()),
    }


def _by_pyarrow(path: Path) -> tuple[pa.Table, dict[str, int]]:
    dataset = pads.dataset(path)
    field = pc.field
    tests = {
        "a new id": field("id") == 100001,
        "an old id": field("id") == 30,
        "an absent id": field("id") == 31,
        "a new word": field("s") == "new word",
        "an old word": field("s") == "word 77",
        "an absent word": field("s") == "word 5000",
        "a range": (field("id") >= 6100) & (field("id") <= 6300),
        "two columns": (field("n") > 0.5) & (field("id") < 900),
    }
    return read(path), {name: dataset.count_rows(filter=test) for name, test in tests.items()}


def _by_duckdb(path: Path) -> tuple[pa.Table, dict[str, int]]:
    import duckdb

    with duckdb.connect() as connection:
        rows = connection.sql(f"FROM '{path}'").to_arrow_table()
        return rows, {
            name: len(connection.execute(f"SELECT s FROM '{path}' WHERE {test}").fetchall())
            for name, test in FILTERS.items()
        }


def _by_polars(path: Path) -> tuple[pa.Table, dict[str, int]]:
    import polars

    frame = polars.scan_parquet(path)
    tests = {name: polars.sql_expr(test) for name, test in FILTERS.items()}
    return polars.read_parquet(path).to_arrow(), {
        name: frame.filter(test).collect().height for name, test in tests.items()
    }


def _by_datafusion(path: Path) -> tuple[pa.Table, dict[str, int]]:
    from datafusion import SessionConfig, SessionContext

    config = SessionConfig(
        {
            "datafusion.execution.parquet.pushdown_filters": "true",
            "datafusion.execution.parquet.enable_page_index": "true",
            "datafusion.execution.parquet.bloom_filter_on_read": "true",
        }
    )
    context = SessionContext(config)
    context.register_parquet("x", str(path))
    return context.sql("SELECT * FROM x").to_arrow_table(), {
        name: context.sql(f"SELECT s FROM x WHERE {test}").to_arrow_table().num_rows
        for name, test in FILTERS.items()
    }


READERS = {
    "pyarrow": _by_pyarrow,
    "duckdb": _by_duckdb,
    "polars": _by_polars,
    "datafusion": _by_datafusion,
}


def _spliced(tmp_path: Path, table: pa.Table, edit: Edit) -> Path:
    """Splice a file that was written already; sees that it was not written as a whole."""
    new = tmp_path / "new.parquet"
    done = edit.on_disk(tmp_path / "old.parquet", new)
    assert done.method in ("splice", "column splice"), done.reason
    assert done.copied_bytes > 0
    return new


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("source", SOURCES)
def test_every_reader_sees_the_same(tmp_path: Path, source: str, edit: str) -> None:
    SOURCES[source](TABLE, str(tmp_path / "old.parquet"))
    assert pq.read_metadata(tmp_path / "old.parquet").num_row_groups == 3
    change = EDITS[edit](TABLE)
    new = _spliced(tmp_path, TABLE, change)
    expected = change.in_memory(TABLE)
    for name, reader in READERS.items():
        rows, counts = reader(new)
        _check_rows(rows, expected, name)
        assert counts == _counts(expected), name


def _edits(table: pa.Table, count: int) -> Iterator[Edit]:
    """Merges of a few rows each, all over the file, that bring new values and NULLs."""
    random = np.random.default_rng(3)
    for number in range(count):
        places = np.sort(random.choice(ROWS, 1 + number % 40, replace=False))
        rows = table.take(pa.array(places)).to_pylist()
        for row in rows:
            word = f"new word {number}" if number % 3 else "new word"
            row |= {"n": round(random.random() * 10, 6), "s": word, "l": [number], "f": None}
            if number % 4 == 0:
                row |= {"day": None, "d": Decimal(number), "r": {"a": number, "b": None}}
        yield Edit(places.tolist(), pa.Table.from_pylist(rows, table.schema))


def _merge_often(tmp_path: Path, count: int = 20) -> tuple[Path, pa.Table]:
    """Splice a file again and again; returns it and what it must hold."""
    table, path = TABLE, tmp_path / "old.parquet"
    for number, edit in enumerate(_edits(TABLE, count)):
        new = tmp_path / f"often-{number}.parquet"
        assert "splice" in edit.on_disk(path, new, ["id"], threads=1 + number % 2).method
        path, table = new, edit.in_memory(table)
    return path, table


@pytest.mark.parametrize("source", SOURCES)
def test_every_reader_sees_the_same_after_twenty_merges(tmp_path: Path, source: str) -> None:
    SOURCES[source](TABLE, str(tmp_path / "old.parquet"))
    path, expected = _merge_often(tmp_path)
    for name, reader in READERS.items():
        rows, counts = reader(path)
        _check_rows(rows, expected, name)
        assert counts == _counts(expected), name
    assert _wrong(path) == []


def _wrong(path: Path) -> list[str]:
    """Statistics, indexes and filters that do not fit the values."""
    data, findings = path.read_bytes(), Findings()

    def read_bytes(start: int, length: int) -> bytes:
        return data[start : start + length]

    groups = verify_footer(read_bytes, len(data), findings).row_groups
    verify_row_groups(read_bytes, len(data), range(len(groups)), findings)
    return list(map(str, findings.found))


@pytest.mark.parametrize("source", ["pyarrow v2 zstd indexed", "duckdb v1"])
def test_bloom_filters_are_read_at_their_new_offsets(tmp_path: Path, source: str) -> None:
    import duckdb

    SOURCES[source](TABLE, str(tmp_path / "old.parquet"))
    new = _spliced(tmp_path, TABLE, _rows(TABLE))
    with duckdb.connect() as connection:

        def excluded(value: str) -> list[bool]:
            found = connection.execute(f"FROM parquet_bloom_probe('{new}', 's', '{value}')")
            return [row[-1] for row in found.fetchall()]

        assert excluded("word 77") == [False, False, False]
        assert excluded("new word") == [True, False, True]


def _spark_counts(session: SparkSession, paths: dict[str, Path]) -> dict[str, dict[str, int]]:
    """What each filter finds in each of some files."""
    frame = session.read.parquet(*map(str, paths.values()))
    found = {name: dict.fromkeys(FILTERS, 0) for name in paths}
    for test, condition in FILTERS.items():
        words = frame.where(condition).select("_metadata.file_name", "s")
        for row in words.groupBy("file_name").count().collect():
            found[row.file_name.removesuffix(".parquet")][test] = row["count"]
    return found


SPARK_SOURCES: dict[str, dict[str, str] | str] = {
    "spark v1": {"parquet.bloom.filter.enabled#s": "true"},
    "spark v2": {"parquet.writer.version": "PARQUET_2_0", "compression": "zstd"},
    "spark int96": {"spark.sql.parquet.outputTimestampType": "INT96"},
    "pyarrow v2 zstd indexed": "pyarrow v2 zstd indexed",
    "pyarrow v1 snappy": "pyarrow v1 snappy",
    "pyarrow delta": "pyarrow delta",
    "pyarrow v1 pages": "pyarrow v1 pages",
    "pyarrow v2 pages": "pyarrow v2 pages",
    "pyarrow plain pages": "pyarrow plain pages",
    "duckdb v1": "duckdb v1",
    "polars": "polars",
}


def _write_with_spark(session: SparkSession, tmp_path: Path, options: dict[str, str]) -> None:
    raw = tmp_path / "raw.parquet"
    pq.write_table(TABLE, raw, store_schema=False)
    asked = {
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "parquet.block.row.count.limit": str(GROUP),
        **options,
    }
    tree = tmp_path / "tree"
    session.read.parquet(str(raw)).coalesce(1).write.options(**asked).parquet(str(tree))
    (part,) = tree.glob("*.parquet")
    part.rename(tmp_path / "old.parquet")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("source", SPARK_SOURCES)
def test_spark_writes_and_reads(tmp_path: Path, spark: SparkSession, source: str) -> None:
    asked = SPARK_SOURCES[source]
    if isinstance(asked, str):
        SOURCES[asked](TABLE, str(tmp_path / "old.parquet"))
    else:
        _write_with_spark(spark, tmp_path, asked)
    assert pq.read_metadata(tmp_path / "old.parquet").num_row_groups == 3
    files, expected = {}, {}
    for name, edit in EDITS.items():
        change = edit(TABLE)
        files[name] = _spliced(tmp_path, TABLE, change).rename(tmp_path / f"{name}.parquet")
        expected[name] = change.in_memory(TABLE)
    often, expected["often"] = _merge_often(tmp_path)
    files["often"] = often.rename(tmp_path / "often.parquet")
    assert _wrong(files["often"]) == []
    for name in files:
        for reader in READERS.values() if not isinstance(asked, str) else ():
            rows, counts = reader(files[name])
            _check_rows(rows, expected[name], name)
            assert counts == _counts(expected[name])
    # The reader that decodes in batches knows no BYTE_STREAM_SPLIT, in any file.
    for vectorised in ("false", "true")[: 1 if source == "pyarrow delta" else 2]:
        spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorised)
        try:
            for name, file in files.items():
                rows = spark.read.parquet(str(file)).toArrow()
                _check_rows(rows, expected[name], (name, vectorised))
            counted = _spark_counts(spark, files)
            assert counted == {name: _counts(table) for name, table in expected.items()}
        finally:
            spark.conf.unset("spark.sql.parquet.enableVectorizedReader")
