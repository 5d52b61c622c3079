"""SOURCE in all its forms: what is read, with which types, and where a misfit is."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import json
import sys
import weakref
from contextlib import ExitStack
from decimal import Decimal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.running import content, rows, tree

from fsspeckit.cli.sources.convert import Stream, stdin_stream
from fsspeckit.cli.sources.csv import csv_batches, infer_csv
from fsspeckit.cli.sources.json import infer_json
from fsspeckit.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.running import Ran, Run

PYARROW = ("--engine", "pyarrow")
TYPED = pa.table(
    {
        "id": pa.array([1, 2], pa.int32()),
        "day": pa.array([dt.date(2024, 1, 1), None], pa.date32()),
        "price": pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)),
        "at": pa.array([dt.datetime(2024, 1, 1, tzinfo=dt.UTC), None], pa.timestamp("us", "UTC")),
        "local": pa.array([dt.datetime(2024, 1, 1), None], pa.timestamp("ms")),
        "clock": pa.array([dt.time(1, 2, 3), None], pa.time64("us")),
        "ok": [True, None],
        "share": pa.array([0.5, None], pa.float64()),
        "name": ["one", None],
    }
)
CSV_ROW = (
    "id,day,price,at,local,clock,ok,share,name\n"
    "1,2024-02-29,12.30,2024-02-29T12:00:00+02:00,2024-02-29 12:00:00.5,12:30:00,TRUE,1e3,"
    '"a ""quoted"", name\nof two lines"\n'
    '3,,,,,,,,""\n'
)
JSON_ROWS = (
    '{"id": 1, "day": "2024-02-29", "price": 12.30, "at": "2024-02-29T10:00:00Z", "local": '
    '"2024-02-29T12:00:00.5", "clock": "12:30:00", "ok": true, "share": 1000, "name": '
    '"a \\"quoted\\", name\\nof two lines"}\n'
    "\n"
    '{"id": 3, "day": null, "price": null, "at": null, "local": null, "clock": null, "ok": null, '
    '"share": null, "name": ""}\n'
)
EXPECTED = {
    "id": 1,
    "day": dt.date(2024, 2, 29),
    "price": Decimal("12.30"),
    "at": dt.datetime(2024, 2, 29, 10, tzinfo=dt.UTC),
    "local": dt.datetime(2024, 2, 29, 12, 0, 0, 500_000),
    "clock": dt.time(12, 30),
    "ok": True,
    "share": 1000.0,
    "name": 'a "quoted", name\nof two lines',
}


@pytest.fixture
def typed(tmp_path: Path) -> Path:
    """A dataset with a column of each type that text can spell."""
    path = tmp_path / "typed"
    path.mkdir()
    pq.write_table(TYPED, path / "a.parquet")
    return path


@pytest.mark.parametrize("engine", ["pyarrow", "duckdb"])
@pytest.mark.parametrize(
    ("name", "text"), [("rows.csv", CSV_ROW), ("rows.jsonl", JSON_ROWS)], ids=["csv", "json"]
)
def test_text_is_read_with_the_types_of_the_target(
    done: Run, tmp_path: Path, typed: Path, name: str, text: str, engine: str
) -> None:
    (tmp_path / name).write_text(text)
    ran = done("merge", name, typed, "--key", "id", "--engine", engine)
    assert "1 matched, 1 inserted" in ran.out
    assert ran.err == ""
    found = content(typed)
    assert found[1] == EXPECTED
    assert found[2]["name"] is None
    assert found[3] == {**dict.fromkeys(EXPECTED), "id": 3, "name": ""}


@pytest.mark.parametrize("key", ["day", "price", "at", "local", "clock", "name"])
@pytest.mark.parametrize("kind", ["csv", "json"])
def test_keys_of_every_type(done: Run, tmp_path: Path, typed: Path, key: str, kind: str) -> None:
    pq.write_table(TYPED.slice(0, 1), typed / "a.parquet")
    text = {
        "csv": "id,day,price,at,local,clock,ok,share,name\n"
        "7,2024-01-01,1.5,2024-01-01T01:00:00+01:00,2024-01-01,01:02:03,true,0.5,one\n",
        "json": '{"id": 7, "day": "2024-01-01", "price": "1.5", "at": "2024-01-01 00:00:00Z", '
        '"local": "2024-01-01T00:00:00", "clock": "01:02:03.000", "ok": true, "share": 0.5, '
        '"name": "one"}\n',
    }
    (tmp_path / f"rows.{kind}").write_text(text[kind])
    assert "1 matched, 0 inserted" in done("merge", f"rows.{kind}", typed, "-k", key, *PYARROW).out
    assert list(content(typed)) == [7]


def misfit(run: Run, place: Path, name: str, text: str | bytes) -> Ran:
    """Merge a text that does not fit; nothing may change."""
    path = place.parent / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    before = tree(place)
    ran = run("merge", name, place, "--key", "id", *PYARROW)
    assert ran.code == 1
    assert tree(place) == before
    assert ran.err.splitlines()[-1].startswith("hint: ")
    return ran


@pytest.mark.parametrize(
    ("column", "text", "hint"),
    [
        ("id", "x", "a whole number in the range of int32"),
        ("id", "3000000000", "in the range of int32"),
        ("id", "1.5", "a whole number"),
        ("day", "2024-02-30", "a date like 2024-01-31"),
        ("price", "1.005", "at most 2 digits after the point and 9 in all"),
        ("price", "12345678.00", "9 in all"),
        ("at", "2024-01-01T00:00:00", "with its offset"),
        ("local", "2024-01-01T00:00:00Z", "without an offset and no finer than ms"),
        ("local", "2024-01-01T00:00:00.0001", "no finer than ms"),
        ("clock", "25:00:00", "a time like 12:30:00"),
        ("ok", "yes", "true or false"),
        ("share", "half", "write a number"),
        ("share", "1e999", "write a number"),
    ],
)
def test_a_csv_value_that_does_not_fit_names_line_and_column(
    run: Run, typed: Path, column: str, text: str, hint: str
) -> None:
    header = TYPED.column_names
    bad = ",".join(text if name == column else "" for name in header)
    good = '5,,,,,,,,"two\nlines"'
    ran = misfit(run, typed, "bad.csv", f"{','.join(header)}\n{good}\n\n{good}\n{bad}\n")
    assert f"bad.csv, line 7, column '{column}': '{text}' is not a valid " in ran.err
    assert hint in ran.err


@pytest.mark.parametrize(
    ("column", "value", "shown"),
    [
        ("id", '"1"', '"1"'),
        ("id", "1.5", "1.5"),
        ("id", "true", "true"),
        ("id", "3000000000", "3000000000"),
        ("day", "20240101", "20240101"),
        ("day", '"soon"', '"soon"'),
        ("price", "1.005", "1.005"),
        ("price", '"much"', '"much"'),
        ("at", '"2024-01-01T00:00:00"', '"2024-01-01T00:00:00"'),
        ("ok", "1", "1"),
        ("share", "1e999", "1E+999"),
        ("share", '"0.5"', '"0.5"'),
        ("name", "7", "7"),
        ("name", '{"a": 1}', '{"a": 1}'),
        ("name", '"\\ud800"', ""),
    ],
)
def test_a_json_value_that_does_not_fit_names_line_and_column(
    run: Run, typed: Path, column: str, value: str, shown: str
) -> None:
    good = {**dict.fromkeys(TYPED.column_names, "null"), "id": "5"}
    lines = [good, {**good, column: value}, {**good, "id": '"also bad"'}]
    text = "\n\n".join(
        "{" + ", ".join(f'"{name}": {found}' for name, found in line.items()) + "}"
        for line in lines
    )
    ran = misfit(run, typed, "bad.jsonl", text)
    assert f"bad.jsonl, line 3, column '{column}': {shown}" in ran.err


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "id,v\n1\n", "line 2: 1 fields, but the header names 2"),
        ("a.csv", 'id,v\n1,"x\n', "cannot be read as CSV"),
        ("a.csv", "id\n1\n", "the source lacks the columns ['v']"),
        ("a.csv", "id,v,w\n1,2,3\n", "has columns ['w'] that the target does not have"),
        ("a.csv", "id,v,v\n1,2,3\n", "line 1: the columns ['v'] occur twice"),
        ("a.csv", "", "is empty; the first line of CSV must name the columns"),
        ("a.csv", "id;v\n1;x\n", "its only column is called 'id;v'"),
        ("a.csv", '\ufeff"id";"v"\r\n1;x\r\n', "separated by ';'; pass it as --delimiter"),
        ("a.csv", "id\tv\n1\tx\n", "separated by '\\t'; pass it as --delimiter"),
        ("a.csv", b"id,v\n1,\xff\n", "is not UTF-8 text"),
        ("a.csv", b"\xff,v\n1,x\n", "is not UTF-8 text"),
        ("a.json", '[{"id": 1, "v": "x"}]', "jq -c '.[]' does it"),
        ("a.json", "7", "is not a JSON object: it is a int"),
        ("a.json", '{"id": 1, "v": "x"}\n{"id": 1', "line 2: '{\"id\": 1' is not a JSON object"),
        ("a.json", '{"id": 1}', "line 1, column 'v': there is no value for it"),
        ("a.json", '{"id": 1, "v": "x", "w": 1}', "line 1, column 'w': the target has no such"),
        ("a.json", '{"id": 1, "v": "x", "v": "y"}', "it names 'v' twice"),
        ("a.json", "[" * 100_000, "is not a JSON object"),
        ("a.arrow", "nonsense, but long enough", "is not a complete Arrow stream"),
        ("a.parquet", "nonsense", "not readable as Parquet"),
    ],
)
def test_text_that_is_not_of_its_format(
    run: Run, dataset: Path, name: str, text: str | bytes, message: str
) -> None:
    assert message in misfit(run, dataset, name, text).err


def test_text_that_cannot_spell_a_type(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.mkdir()
    pq.write_table(pa.table({"id": [1], "raw": [b"x"], "l": [[1]]}), path / "a.parquet")
    assert "column 'raw' is binary" in misfit(run, path, "a.csv", "id,raw,l\n1,x,1\n").err
    line = '{"id": 1, "raw": "x", "l": [1]}'
    assert (
        "column 'raw' is binary in the target, which JSON" in misfit(run, path, "a.json", line).err
    )


NESTED = pa.schema(
    [
        ("id", pa.int64()),
        ("tags", pa.list_(pa.string())),
        ("box", pa.struct([("d", pa.date32()), ("n", pa.decimal128(5, 1))])),
        ("map", pa.map_(pa.string(), pa.int8())),
    ]
)


def test_nested_columns_of_json(run: Run, done: Run, tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.mkdir()
    pq.write_table(NESTED.empty_table(), path / "a.parquet")
    (tmp_path / "a.json").write_text(
        '{"id": 1, "tags": ["a", null], "box": {"d": "2024-01-01", "n": 1.5}, "map": {"k": 7}}\n'
        '{"id": 2, "tags": null, "box": null, "map": null}\n'
    )
    done("merge", "a.json", path, "-k", "id", *PYARROW)
    assert content(path)[1] == {
        "id": 1,
        "tags": ["a", None],
        "box": {"d": dt.date(2024, 1, 1), "n": Decimal("1.5")},
        "map": [("k", 7)],
    }
    bad: list[dict[str, Any]] = [
        {"tags": "a"},
        {"box": {"d": 1, "n": 1}},
        {"box": {"d": None}},
        {"box": {"d": "soon", "n": None}},
        {"map": 7},
    ]
    for values in bad:
        line = json.dumps({"id": 3, "tags": None, "box": None, "map": None, **values})
        assert f"line 1, column '{next(iter(values))}'" in misfit(run, path, "b.json", line).err


def test_missing_quotes_are_null_and_quotes_are_none(done: Run, dataset: Path) -> None:
    (dataset.parent / "a.csv").write_text('id,v\n1,\n2,""\n')
    done("merge", "a.csv", dataset, "-k", "id", *PYARROW)
    assert (content(dataset)[1]["v"], content(dataset)[2]["v"]) == (None, "")


@pytest.mark.parametrize(
    ("name", "data", "options"),
    [
        ("a.csv", "\ufeffv,id\nnew,1\n", ()),
        ("a.tsv", "id\tv\n1\tnew\n", ()),
        ("a.csv", "id;v\r\n1;new\r\n", ("--delimiter", ";")),
        ("a.txt", "id\tv\n1\tnew\n", ("--delimiter", "tab", "--format", "csv")),
        ("a.ndjson", '{"v": "new", "id": 1.0}', ()),
        ("a.txt", '\ufeff{"v": "new", "id": 1}\r\n', ("--format", "json")),
    ],
)
def test_dialects(done: Run, dataset: Path, name: str, data: str, options: tuple[str, ...]) -> None:
    (dataset.parent / name).write_bytes(data.encode())
    done("merge", name, dataset, "-k", "id", *PYARROW, *options)
    assert content(dataset)[1]["v"] == "new"


def test_compressed_text(done: Run, dataset: Path) -> None:
    (dataset.parent / "a.csv.gz").write_bytes(gzip.compress(b"id,v\n1,new\n"))
    done("merge", "a.csv.gz", dataset, "-k", "id", *PYARROW)
    assert content(dataset)[1]["v"] == "new"


@pytest.mark.parametrize(
    "paths", [("parts",), ("parts/*.csv",), ("parts/a.csv", "parts/b.csv")], ids=str
)
def test_directories_globs_and_several_files(
    done: Run, dataset: Path, paths: tuple[str, ...]
) -> None:
    parts = dataset.parent / "parts"
    parts.mkdir()
    (parts / "a.csv").write_text("id,v\n1,new\n")
    (parts / "b.csv").write_text("v,id\nnew,2\n")
    if paths == ("parts",):
        (parts / "_hidden.csv").write_text("nonsense")
    (parts / "README.txt").write_text("nonsense")
    done("merge", *paths, dataset, "-k", "id", *PYARROW)
    assert [content(dataset)[number]["v"] for number in (1, 2)] == ["new", "new"]


def test_a_name_that_looks_like_a_glob(done: Run, dataset: Path) -> None:
    pq.write_table(rows(1, v="new"), dataset.parent / "a[1].parquet")
    done("merge", "a[1].parquet", dataset, "-k", "id", *PYARROW)
    assert content(dataset)[1]["v"] == "new"


def test_sources_of_two_formats(run: Run, dataset: Path, source: Path) -> None:
    (dataset.parent / "a.csv").write_text("id,v\n1,new\n")
    ran = run("merge", "a.csv", source, dataset, "-k", "id", *PYARROW)
    assert "the sources are of several formats: csv, parquet" in ran.err


def arrow(table: pa.Table, *, as_file: bool = False) -> bytes:
    sink = io.BytesIO()
    with (pa.ipc.new_file if as_file else pa.ipc.new_stream)(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("stdin", "options"),
    [
        (b'{"id": 1, "v": "new"}\n', ()),
        (b' \n {"id": 1, "v": "new"}', ()),
        (arrow(rows(1, v="new")), ()),
        (arrow(rows(1, v="new"), as_file=True), ()),
        (b"id,v\n1,new\n", ("--format", "csv")),
    ],
    ids=["json", "json with space", "arrow stream", "arrow file", "csv"],
)
def test_stdin(done: Run, dataset: Path, stdin: bytes, options: tuple[str, ...]) -> None:
    done("merge", "-", dataset, "-k", "id", *PYARROW, *options, stdin=stdin)
    assert content(dataset)[1]["v"] == "new"


@pytest.mark.parametrize(
    ("stdin", "message"),
    [
        (b"id,v\n1,new\n", "pass --format csv for CSV"),
        (b"PAR1....", "stdin is Parquet"),
        (arrow(rows(1))[:-200], "stdin is not a complete Arrow stream"),
        (b'{"id": "x", "v": "new"}', "stdin, line 1, column 'id': \"x\" is not a valid int64"),
    ],
)
def test_stdin_that_is_wrong(run: Run, dataset: Path, stdin: bytes, message: str) -> None:
    ran = run("merge", "-", dataset, "-k", "id", *PYARROW, stdin=stdin)
    assert ran.code == 1
    assert message in ran.err


def test_parquet_on_stdin_is_refused(run: Run, dataset: Path, source: Path) -> None:
    words = ("merge", "-", dataset, "-k", "id", *PYARROW, "--format", "parquet")
    assert "it is read from its end" in run(*words, stdin=source.read_bytes()).err


def test_no_rows_at_all(done: Run, dataset: Path) -> None:
    before = tree(dataset)
    (dataset.parent / "a.csv").write_text("id,v\n")
    assert "0 matched, 0 inserted" in done("merge", "a.csv", dataset, "-k", "id", *PYARROW).out
    assert (
        "0 matched, 0 inserted" in done("merge", "-", dataset, "-k", "id", *PYARROW, stdin=b"").out
    )
    assert tree(dataset) == before


def test_types_of_a_new_dataset_are_inferred_and_printed(done: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,day,v\n1,2024-01-01,\n2,,x\n")
    ran = done("write", "a.csv", "new", *PYARROW)
    assert (
        "note: the types of the columns were inferred from their values: id int64, day date32"
        in (ran.err)
    )
    assert content(tmp_path / "new")[1]["day"] == dt.date(2024, 1, 1)
    assert done("write", "a.csv", "newer", *PYARROW, "--quiet").err == ""
    done("write", "-", "newest", *PYARROW, stdin=b'{"id": 1, "v": "x"}\n{"id": 2}')
    assert content(tmp_path / "newest")[2] == {"id": 2, "v": None}


def test_numbers_with_leading_zeros_are_text(done: Run, tmp_path: Path) -> None:
    """A postal code, or an order number, would be another one without them."""
    (tmp_path / "a.csv").write_text("id,code,n,share\n1,007,0,0.5\n2,10,-1,00.5\n3,,,\n")
    ran = done("write", "a.csv", "new", *PYARROW)
    assert "id int64, code string, n int64, share string" in ran.err
    assert [row["code"] for row in content(tmp_path / "new").values()] == ["007", "10", None]


@pytest.mark.parametrize(
    ("stdin", "options", "message"),
    [
        (b"", (), "the columns of a new dataset are unknown"),
        (b'{"id": 1}\n{"id": ', (), "stdin, line 2"),
        (b'{"id": 1}\n\n{"id": "x"}', (), "stdin, line 3, column 'id': \"x\" is text, but line 1"),
        (b'{"id": {"a": [1, "x"]}}', (), "stdin, line 1, column 'id.a[]': \"x\" is text"),
        (b'{"id": true}\n{"id": [1]}', (), "line 2, column 'id': [1] is an array, but line 1 has"),
        (b'{"id": null}\n{"id": {}}\n{"id": 1}', (), "line 3, column 'id': 1 is a number"),
        (b'{"id": 1}\n{"id": 1e999}', (), "stdin, line 2, column 'id': 1E+999 has more digits"),
        (b'{"id": 12345678901234567890}', (), "column 'id': 12345678901234567890 has more digits"),
        (b'{"a": [{"b": 9007199254740993}, {"b": 0.5}]}', (), "column 'a[].b': 9007199254740993"),
        (b"id,v\n1,2,3\n", ("--format", "csv"), "stdin, line 2: 3 fields"),
    ],
)
def test_a_new_dataset_of_text_that_is_wrong(
    run: Run, tmp_path: Path, stdin: bytes, options: tuple[str, ...], message: str
) -> None:
    ran = run("write", "-", "new", *PYARROW, *options, stdin=stdin)
    assert ran.code == 1
    assert message in ran.err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("texts", "types"),
    [
        (["id\n1\n2.5\n"], {"id": pa.float64()}),
        (["id\n12345678901234567890\n"], {"id": pa.string()}),
        (["id,x\n9007199254740993,1e300\n0.5,2\n"], {"id": pa.string(), "x": pa.float64()}),
        (["id\n1\n", "id\n2.5\n"], {"id": pa.float64()}),
        (["id,v\n1,\n", "v,id\nx,2\n"], {"id": pa.int64(), "v": pa.string()}),
        (['{"id": 9007199254740993, "x": 0.5}\n'], {"id": pa.int64(), "x": pa.float64()}),
        (['{"a.b": 1, "a": {"b": "x"}, "x": 0.5}'], {"a.b": pa.int64(), "x": pa.float64()}),
        (['{"id": [1], "v": null}', '{"v": "x", "id": []}'], {"id": pa.list_(pa.int64())}),
    ],
)
def test_types_that_all_values_have(
    done: Run, tmp_path: Path, texts: list[str], types: dict[str, pa.DataType]
) -> None:
    kind = "json" if texts[0].startswith("{") else "csv"
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.{kind}").write_text(text)
    done("write", f"*.{kind}", "new", *PYARROW)
    (file,) = (tmp_path / "new").iterdir()
    found = pq.read_schema(file)
    assert {name: str(found.field(name).type) for name in types} == {
        name: str(kind).replace("item", "element") for name, kind in types.items()
    }


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ("id,v\n2,y\nx,z\n", "1.csv, line 3, column 'id': 'x' is not a valid int64."),
        ("id,w\n2,y\n", "1.csv has the columns ['id', 'w'], but "),
    ],
)
def test_a_second_file_that_does_not_fit_the_first(
    run: Run, tmp_path: Path, second: str, message: str
) -> None:
    (tmp_path / "0.csv").write_text("id,v\n1,x\n")
    (tmp_path / "1.csv").write_text(second)
    ran = run("write", "*.csv", "new", *PYARROW)
    assert ran.code == 1
    assert message in ran.err
    assert not (tmp_path / "new").exists()


def test_infer_types_looks_away_from_the_target(done: Run, dataset: Path) -> None:
    (dataset.parent / "a.csv").write_text("id,w\n1,2.5\n")
    done("write", "a.csv", dataset, "--mode", "overwrite", "--infer-types", *PYARROW)
    assert content(dataset) == {1: {"id": 1, "w": 2.5}}


def test_parquet_of_another_filesystem(done: Run, dataset: Path) -> None:
    import fsspec

    memory: Any = fsspec.filesystem("memory")
    with memory.open("/cli-source/a.parquet", "wb") as file:
        pq.write_table(rows(1, v="new"), file)
    done("merge", "memory://cli-source/a.parquet", dataset, "-k", "id", *PYARROW)
    assert content(dataset)[1]["v"] == "new"
    memory.rm("/cli-source", recursive=True)


def test_many_rows_of_text_go_through_in_pieces(done: Run, dataset: Path) -> None:
    count = 40_000
    lines = "".join(f'{{"id": {number}, "v": "new"}}\n' for number in range(count))
    assert (
        f"{count - 9:,} inserted"
        in done("merge", "-", dataset, "-k", "id", *PYARROW, stdin=lines.encode()).out
    )


def test_arrow_holds_no_file_when_its_rows_are_read() -> None:
    # Its threads need the interpreter to let go, and abort a process that ends in that moment.
    schema = pa.schema([("id", pa.int64())])
    opened: list[weakref.ref[io.BytesIO]] = []

    def fresh() -> io.BytesIO:
        file = io.BytesIO(b"id\n1\n")
        opened.append(weakref.ref(file))
        return file

    def fresh_json() -> io.BytesIO:
        file = io.BytesIO(b'{"id": 1}\n')
        opened.append(weakref.ref(file))
        return file

    stream = Stream("ids", fresh)
    for _ in range(200):
        assert infer_json(Stream("ids", fresh_json)).num_rows == 1
        assert next(csv_batches(stream, ",", schema)).num_rows == 1
        assert sum(batch.num_rows for batch in csv_batches(stream, ",", schema)) == 1
        assert infer_csv(stream, ",").num_rows == 1
        assert [file() for file in opened] == [None] * len(opened)
        opened.clear()


@pytest.mark.parametrize("closed", [True, False])
def test_nothing_is_piped_in(monkeypatch: pytest.MonkeyPatch, closed: bool) -> None:
    at_terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(sys, "stdin", None if closed else at_terminal)
    with ExitStack() as stack, pytest.raises(InvalidArgumentError, match="nothing is piped"):
        stdin_stream(stack)
