"""What a condition selects, for every kind of column, and what it refuses."""

from __future__ import annotations

import pickle
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fsspeckit.core.conditions import Condition
from fsspeckit.errors import InvalidArgumentError, SchemaMismatchError

NAN = float("nan")
MIDNIGHTS = [datetime(2019, 12, 31), datetime(2020, 1, 1), None, datetime(2020, 1, 1, 12)]

ROWS = pa.table(
    {
        "i": pa.array([1, 2, None, 5], pa.int64()),
        "j": pa.array([1, None, None, 4], pa.int32()),
        "u": pa.array([0, 2**64 - 1, None, 7], pa.uint64()),
        "f": pa.array([NAN, -0.0, None, 1.5], pa.float64()),
        "g": pa.array([0.1, NAN, None, float("inf")], pa.float32()),
        "d": pa.array(
            [Decimal("0.10"), Decimal("1.00"), None, Decimal("-3.25")], pa.decimal128(5, 2)
        ),
        "w": pa.array([Decimal(10**37), Decimal(-1), None, Decimal(0)], pa.decimal128(38, 0)),
        "s": pa.array(["it's", "50%", None, "é\\b\n"], pa.string()),
        "b": pa.array([True, False, None, True], pa.bool_()),
        "x": pa.array([b"\x01", b"", None, b"\xff"], pa.binary()),
        "day": pa.array([date(2019, 12, 31), date(2020, 1, 1), None, date(2020, 1, 2)]),
        "sec": pa.array(MIDNIGHTS, pa.timestamp("s")),
        "ts": pa.array(MIDNIGHTS, pa.timestamp("us")),
        "tz": pa.array(MIDNIGHTS, pa.timestamp("ns", "UTC")),
        "st": pa.array(
            [{"a": 1, "In": {"c": "p"}}, None, {"a": None, "In": None}, {"a": 4, "In": {"c": "q"}}]
        ),
        "l": pa.array([[1], [], None, [2]]),
        "n": pa.nulls(4),
        "two words": pa.array(["a", "b", None, "a"]).dictionary_encode(),
    }
)


def selected(given: str | pc.Expression, rows: pa.Table = ROWS) -> list[int]:
    """The numbers of the rows that a condition selects, after a way through pickle."""
    condition = pickle.loads(pickle.dumps(Condition.of(given, rows.schema)))
    mask = condition.mask(rows)
    assert isinstance(mask, pa.BooleanArray)
    assert mask.null_count == 0
    return [number for number, chosen in enumerate(mask.to_pylist()) if chosen]


def problem(given: Any, rows: pa.Table = ROWS) -> str:
    """The message of the error that a condition raises."""
    with pytest.raises(InvalidArgumentError) as caught:
        Condition.of(given, rows.schema)
    assert caught.value.argument == "where"
    return str(caught.value)


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("i = 1", [0]),
        ("i == 1", [0]),
        ("i <> 1", [1, 3]),
        ("i != 1", [1, 3]),
        ("2 <= i", [1, 3]),
        ("i <=> 1", [0]),
        ("NOT i <=> 1", [1, 2, 3]),
        ("i <=> NULL", [2]),
        ("i <=> j", [0, 2]),
        ("i IS DISTINCT FROM j", [1, 3]),
        ("i > j", [3]),
        ("i IS NULL", [2]),
        ("i IS NOT NULL AND i < 5", [0, 1]),
        ("i IN (1, 5, 9)", [0, 3]),
        ("i NOT IN (1, 5)", [1]),
        ("i BETWEEN 2 AND 5", [1, 3]),
        ("i NOT BETWEEN 2 AND 5", [0]),
        ("i BETWEEN j AND 4", [0]),
        ("(i = 1 OR i = 2) AND NOT (i = 2)", [0]),
        ("i = 1 OR i = 2 AND FALSE", [0]),
        ("! i = 1", [1, 3]),
        ("i = 1 -- and no more", [0]),
        ("i = - 1 OR i > -2", [0, 1, 3]),
    ],
)
def test_comparisons(sql: str, rows: list[int]) -> None:
    assert selected(sql) == rows


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("NOT i = 1", [1, 3]),
        ("i = NULL", []),
        ("NOT (i = NULL)", []),
        ("i IN (1, NULL)", [0]),
        ("i NOT IN (1, NULL)", []),
        ("i = 1 OR NULL", [0]),
        ("NOT (i = 1 AND NULL)", [1, 3]),
        ("NULL", []),
        ("TRUE", [0, 1, 2, 3]),
        ("FALSE", []),
        ("n = 1", []),
        ("n IN (1) OR n LIKE 'a' OR n", []),
        ("n IS NULL", [0, 1, 2, 3]),
        ("b", [0, 3]),
        ("NOT b", [1]),
        ("b IS TRUE", [0, 3]),
        ("b IS NOT TRUE", [1, 2]),
        ("b IS FALSE", [1]),
        ("(i = 1) IS NOT FALSE", [0, 2]),
        ("b = FALSE", [1]),
    ],
)
def test_null_is_neither_true_nor_false(sql: str, rows: list[int]) -> None:
    assert selected(sql) == rows


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("i = 1.5", []),
        ("NOT i = 1.5", [0, 1, 3]),
        ("i > 1.5", [1, 3]),
        ("i >= 1.5", [1, 3]),
        ("i < 1.5", [0]),
        ("i <= -1.5", []),
        ("i IN (1.0, 2.5)", [0]),
        ("i < 1e30", [0, 1, 3]),
        ("i > -9223372036854775809", [0, 1, 3]),
        ("i = 9223372036854775808", []),
        ("u >= 18446744073709551615", [1]),
        ("u > -1", [0, 1, 3]),
        ("d = 0.1", [0]),
        ("d = 0.10000", [0]),
        ("d > 0.105", [1]),
        ("d <= -3.249", [3]),
        ("d <> 0.105", [0, 1, 3]),
        ("d < 1000000", [0, 1, 3]),
        ("d = i", []),
        ("w >= 10000000000000000000000000000000000000", [0]),
        ("w < 0.5", [1, 3]),
        ("w < 1e40", [0, 1, 3]),
    ],
)
def test_numbers_are_compared_exactly(sql: str, rows: list[int]) -> None:
    assert selected(sql) == rows


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("f > 1e300", [0]),
        ("f = 0", [1]),
        ("f = -0.0", [1]),
        ("f < 0", []),
        ("f <= 1.5", [1, 3]),
        ("f = f", [0, 1, 3]),
        ("f <> f", []),
        ("f NOT IN (0, 1.5)", [0]),
        ("g = 0.1", []),
        ("g < 0.11 AND g > 0.1", [0]),
        ("g > f", [1, 3]),
    ],
)
def test_nan_is_the_greatest_number_and_there_is_one_zero(sql: str, rows: list[int]) -> None:
    assert selected(sql) == rows


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("s = 'it''s'", [0]),
        (r"s = 'it\'s'", [0]),
        ("s LIKE '%''s'", [0]),
        ("s NOT LIKE 'it%'", [1, 3]),
        ("s LIKE '_t_s'", [0]),
        ("s LIKE '5_\\%'", [1]),
        ("s LIKE '50!%' ESCAPE '!'", [1]),
        ("s NOT LIKE '50!%' ESCAPE '!'", [0, 3]),
        (r"s LIKE '%\\\\b%'", [3]),
        ("s LIKE '____'", [0, 3]),
        ("s LIKE 'É%'", []),
        ("s LIKE 'é%'", [3]),
        ("s LIKE '%'", [0, 1, 3]),
        ("s LIKE ''", []),
        ("s LIKE 'it.s'", []),
        ("s > 'i'", [0, 3]),
        ("x = X'FF'", [3]),
        ("x > X''", [0, 3]),
        ("`two words` = 'a'", [0, 3]),
        ("`TWO words` LIKE 'a'", [0, 3]),
    ],
)
def test_strings_and_binaries(sql: str, rows: list[int]) -> None:
    assert selected(sql) == rows


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("day < DATE '2020-01-01'", [0]),
        ("day >= '2020-01-01'", [1, 3]),
        ("day < TIMESTAMP '2020-01-01 00:00:01'", [0, 1]),
        ("ts = DATE '2020-01-01'", [1]),
        ("ts < TIMESTAMP '2020-01-01 12:00:00.000000001'", [0, 1, 3]),
        ("sec = TIMESTAMP '2020-01-01 00:00:00.5'", []),
        ("sec <= TIMESTAMP '2020-01-01T00:00:00.5'", [0, 1]),
        ("tz = TIMESTAMP '2020-01-01 00:00:00Z'", [1]),
        ("tz = TIMESTAMP '2020-01-01 01:30:00+01:30'", [1]),
        ("tz > '2019-12-31 17:00 -06:00'", [1, 3]),
        ("tz < TIMESTAMP '2600-01-01 00:00:00 UTC'", [0, 1, 3]),
        ("ts > '1500-01-01'", [0, 1, 3]),
    ],
)
def test_dates_and_timestamps(sql: str, rows: list[int]) -> None:
    assert selected(sql) == rows


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("st.a = 1", [0]),
        ("st.a IS NULL", [1, 2]),
        ("st IS NULL", [1]),
        ("ST.A >= 1", [0, 3]),
        ("st.in.c = 'q'", [3]),
        ("`st`.`In`.`c` IS NULL", [1, 2]),
        ("l IS NOT NULL", [0, 1, 3]),
    ],
)
def test_nested_columns(sql: str, rows: list[int]) -> None:
    assert selected(sql) == rows


STRINGS = ["a", "b%", None, "ab"]


@pytest.mark.parametrize(
    "values",
    [
        pa.array(STRINGS, pa.large_string()),
        pa.array(STRINGS, pa.string_view()),
        pa.array(STRINGS).dictionary_encode(),
        pa.chunked_array([STRINGS[:1], [], STRINGS[1:]], pa.string()),
        pa.chunked_array([pa.array(STRINGS).dictionary_encode()[n:][:2] for n in (0, 2)]),
    ],
    ids=lambda values: f"{type(values).__name__} of {values.type}",
)
def test_every_kind_of_string(values: Any) -> None:
    rows = pa.table({"s": values, "t": values})
    assert selected("s IN ('a', 'ab') AND s LIKE 'a%' AND s <=> t AND t > 'a'", rows) == [3]


@pytest.mark.parametrize("chunks", [[], [[]]])
def test_no_rows(chunks: list[list[str]]) -> None:
    empty = pa.table({"s": pa.chunked_array(chunks, pa.dictionary(pa.int8(), pa.string()))})
    assert len(Condition.of("s = 'a' OR s LIKE '_'", empty.schema).mask(empty)) == 0
    assert len(Condition.of(pc.field("s") == "a", empty.schema).mask(empty)) == 0


def test_half_floats_and_extension_types() -> None:
    uuids = pa.array([b"a" * 16, b"b" * 16], pa.binary(16))
    rows = pa.table(
        {
            "h": pa.array([1.5, NAN], pa.float16()),
            "u": pa.ExtensionArray.from_storage(pa.uuid(), uuids),
        }
    )
    assert selected(f"h > 1 AND u < X'{'62' * 16}'", rows) == [0]


def test_rows_may_have_a_narrower_type_than_the_schema() -> None:
    condition = Condition.of("i < 2", pa.schema([("i", pa.int64())]))
    assert condition.mask(ROWS.select(["j"]).rename_columns(["i"])).to_pylist()[0] is True


def test_a_column_is_found_by_its_exact_name_first() -> None:
    rows = pa.table({"A": [1, 2], "a": [2, 1]})
    assert selected("A = 1", rows) == [0]
    assert selected("a = 1", rows) == [1]


def test_what_a_condition_reads_and_says() -> None:
    condition = Condition.of("st.a = 1 OR (I = 2 AND st.in.c = 'x' AND i > 0)", ROWS.schema)
    assert condition.columns == ("st", "i")
    assert [key.name for key in condition.key_columns] == ["i"]
    assert str(condition) == "st.a = 1 OR (I = 2 AND st.in.c = 'x' AND i > 0)"


def test_a_chain_of_thousands() -> None:
    assert selected(" OR ".join(f"i = {number}" for number in range(2, 5_000))) == [1, 3]


def test_pyarrow_expressions() -> None:
    expression = (pc.field("i") + 1 > 2) & (pc.field("st", "a") == 4)
    condition = Condition.of(expression, ROWS.schema)
    assert selected(expression) == [3]
    assert condition.columns == ("i", "st")
    assert condition.key_columns == ()
    assert str(condition) == str(expression)


def test_a_pyarrow_expression_keeps_the_order_of_rows() -> None:
    rows = pa.table(
        {"i": pa.chunked_array([range(n, n + 1_000) for n in range(0, 300_000, 1_000)])}
    )
    mask = Condition.of(pc.field("i") >= 150_500, rows.schema).mask(rows)
    assert pc.index(mask, True).as_py() == 150_500


def test_a_pyarrow_expression_without_columns() -> None:
    assert selected(pc.scalar(True)) == [0, 1, 2, 3]
    assert Condition.of(pc.scalar(True), ROWS.schema).columns == ()


def test_a_task_needs_no_parser() -> None:
    data = pickle.dumps(Condition.of("i = 1", ROWS.schema))
    program = f"import pickle, sys; pickle.loads({data!r}); print('sqlglot' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


def test_rows_without_the_column() -> None:
    condition = Condition.of("i = 1", ROWS.schema)
    with pytest.raises(SchemaMismatchError, match="one column 'i'"):
        condition.mask(ROWS.drop_columns(["i"]))


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("upper(s) = 'X'", "'UPPER(s)' is a function"),
        ("i + 1 = 2", "'i + 1' is arithmetic"),
        ("-i = 1", "'-i' is arithmetic"),
        ("i = -'x'", "is arithmetic"),
        ("i IN (SELECT 1)", "'(SELECT 1)' is a query"),
        ("SELECT 1", "is a query"),
        ("EXISTS (SELECT 1)", "is a query"),
        ("CAST(i AS STRING) = '1'", "is a cast"),
        ("i = 3L", "is a cast"),
        ("i = TIME '10:00:00'", "is a cast"),
        ("i = ?", "is a parameter"),
        ("i = 1 AS one", "is an alias"),
        ("CASE WHEN b THEN TRUE END", "is a function"),
        ("s ILIKE 'x'", "ILIKE"),
        ("s RLIKE 'x'", "is a function"),
        ("s LIKE ANY ('x')", "a form of LIKE"),
        ("s LIKE 'x' ESCAPE 'yy'", "a form of ESCAPE"),
        ("i BETWEEN SYMMETRIC 2 AND 1", "a form of BETWEEN"),
        ("i IN ()", "a form of IN"),
        ("i IN (j, 1)", "a form of IN"),
        ("(i, j) = (1, 2)", "TUPLE"),
        ("NULL IS NULL", "a form of IS"),
        ("st.* = 1", "'st.*'"),
        ("DROP TABLE t", "DROP"),
        ("i = INTERVAL '1' DAY", "INTERVAL"),
        ("i = 'a' || 'b'", "not supported"),
    ],
)
def test_what_is_not_supported_is_named(sql: str, named: str) -> None:
    message = problem(sql)
    assert named in message
    assert "Hint: a condition has columns, literals" in message


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("i = 'x'", "column 'i' of type int64 cannot be compared with the string 'x'"),
        ("s = 1", "column 's' of type string cannot be compared with the number 1"),
        ("s IN ('a', 1)", "with the number 1"),
        ("b = 1", "column 'b' of type bool cannot be compared with the number 1"),
        ("i = TRUE", "with the boolean TRUE"),
        ("s = X'00'", "with the binary X'00'"),
        ("i = DATE '2020-01-01'", "with a date"),
        ("x LIKE 'a'", "column 'x' of type binary cannot be compared by LIKE"),
        ("st = 1", "column 'st' of type struct"),
        ("i = f", "their values are never equal"),
        ("day = ts", "their values are never equal"),
        ("st = st", "their values are never equal"),
        ("i", "column 'i' of type int64 is not a condition"),
        ("day = '2020-02-30'", "'2020-02-30' is not a date or timestamp"),
        ("day = '20200101'", "'20200101' is not a date or timestamp"),
        ("ts = '2020-01-01 24:00:00'", "is not a date or timestamp"),
        ("tz = '2020-01-01 00:00:00+19:00'", "is not a date or timestamp"),
        ("day = DATE '2020-01-01 10:00:00'", "is not a date"),
        ("tz < DATE '2020-01-01'", "write, for example, TIMESTAMP '2020-01-01 00:00:00Z'"),
        ("ts < '2020-01-01 01:00:00+01:00'", "for example, TIMESTAMP '2020-01-01 00:00:00'"),
        ("tz = ts", "their values are never equal"),
        ("i = 1e400", "the number 1e400 is out of range"),
        ("i = 1e-999999999", "is out of range"),
        ("x = X'0'", "X'0' is not a valid binary"),
    ],
)
def test_literals_that_do_not_fit_are_named(sql: str, named: str) -> None:
    assert named in problem(sql)


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("stat = 1", "there is no column 'stat'.\nHint: is one of these meant: 'st'"),
        ("zzz = 1", "is one of these meant: 'i', 'j', 'u'"),
        ("st.b = 1", "there is no column 'st.b'"),
        ("i.b = 1", "'i' has no field 'b'"),
        ("i = ", "something is missing at '=' in line 1, column 3"),
        ("i = 1 AND\nOR", "in line 2, column 2"),
        ("i = 'x", "a quote or a comment is not closed"),
        ("", "it is empty"),
        ("-- nothing", "it is empty"),
        ("i = 1; j = 2", "more than one statement"),
        ("1 = 1", "compares two literals"),
        ("1 < i < 3", "'1 < i' is a condition where a value is expected"),
        ("i IS NULL IS NULL", "'i IS NULL' is a condition where a value is expected"),
        ("from = 1", "a column whose name is a word of SQL is written in backquotes"),
        ("comment = 1", "a column whose name is a word of SQL is written in backquotes"),
        ('s = "x"', "is in double quotes"),
        (r"s = 'a\qb'", "has a backslash"),
        (r"s LIKE 'a\\b'", r"the escape character '\\' before 'b'"),
        ("s LIKE 'a!' ESCAPE '!'", "before 'its end'"),
        ("(" * 400 + "i = 1" + ")" * 400, "nested too deeply"),
    ],
)
def test_text_that_is_wrong_is_quoted(sql: str, named: str) -> None:
    assert named in problem(sql)


def test_a_value_in_parentheses() -> None:
    rows = pa.table({"i": [1, 2, 3], "s": ["a", "b", None]})
    for sql, expected in {
        "i = (1)": [1],
        "(i) = ((2))": [2],
        "i = -(3) OR i = (-(-3))": [3],
        "i IN ((1), (3))": [1, 3],
        "i BETWEEN (2) AND (3)": [2, 3],
        "(s) IS NULL": [3],
    }.items():
        mask = Condition.of(sql, rows.schema).mask(rows)
        assert rows.filter(mask)["i"].to_pylist() == expected, sql
    assert "is a condition where a value is expected" in problem("i = (i = 1)", rows)


def test_a_column_that_is_named_like_a_command_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert "written in backquotes" in problem("comment = 1")
    assert caplog.records == []


def test_an_ambiguous_name() -> None:
    rows = pa.table({"AB": [1], "Ab": [1]})
    assert "'ab' is ambiguous among ['AB', 'Ab']" in problem("ab = 1", rows)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (7, "must be SQL text or a pyarrow expression, got 7"),
        (pc.field("zz") == 1, "does not fit the columns"),
        (pc.field("i") == "x", "does not fit the columns"),
        (pc.field("i") + 1, "must be a boolean expression, but is of type int64"),
        (pc.field(0) == 1, "names a column by its number"),
    ],
)
def test_other_values_that_are_refused(given: Any, named: str) -> None:
    assert named in problem(given)


def test_the_argument_is_named() -> None:
    with pytest.raises(InvalidArgumentError, match=r"^apply_as_deletes 'op = 1': ") as caught:
        Condition.of("op = 1", ROWS.schema, "apply_as_deletes")
    assert caught.value.argument == "apply_as_deletes"


def test_zoned_instants_do_not_depend_on_the_zone_of_the_column() -> None:
    instant = datetime(2020, 1, 1, tzinfo=UTC)
    rows = pa.table({"t": pa.array([instant], pa.timestamp("ms", "America/New_York"))})
    assert selected("t = TIMESTAMP '2020-01-01 00:00:00Z'", rows) == [0]
