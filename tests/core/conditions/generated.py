"""Random tables and random conditions over them, in SQL that Spark and DuckDB read alike."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypothesis.strategies import DrawFn, SearchStrategy


@dataclass(frozen=True)
class Kind:
    """A column type, its values, and the literals to compare it with."""

    type: pa.DataType
    values: tuple[Any, ...]
    literals: tuple[str, ...]


NUMBERS = ("0", "1", "-1", "2.0", "1.5", "-0.5", "127", "128", "2147483648")
DAYS = ("DATE '2020-01-01'", "DATE '1969-12-31'", "DATE '2020-01-02'")
TIMES = ("TIMESTAMP '2020-01-01 00:00:00'", "TIMESTAMP '2020-01-01 12:30:00.5'")
STRINGS = ("", "a", "ab", "b", "it's", "50%", "a_b", "é", "z\n")
QUOTED = ("''", "'a'", "'ab'", "'it''s'", "'50%'", "'a_b'", "'é'")

KINDS = {
    "i": Kind(pa.int32(), (0, 1, 2, -1, 127, 2**31 - 1), NUMBERS),
    "l": Kind(pa.int64(), (0, 1, -1, 128, 2**63 - 1, -(2**63)), NUMBERS),
    "f": Kind(
        pa.float64(), (0.0, -0.0, 1.5, -0.5, float("inf"), float("-inf"), float("nan")), NUMBERS
    ),
    "g": Kind(pa.float32(), (0.0, -0.0, 1.5, 127.0, float("nan")), NUMBERS),
    "d": Kind(
        pa.decimal128(9, 2),
        tuple(map(Decimal, ("0", "1.50", "-0.50", "127.01", "-1"))),
        (*NUMBERS, "1.505", "-0.499"),
    ),
    "s": Kind(pa.string(), STRINGS, QUOTED),
    "b": Kind(pa.bool_(), (True, False), ("TRUE", "FALSE")),
    "day": Kind(
        pa.date32(), (date(2020, 1, 1), date(2020, 1, 2), date(1969, 12, 31)), (*DAYS, *TIMES)
    ),
    "ts": Kind(
        pa.timestamp("us"),
        (datetime(2020, 1, 1), datetime(2020, 1, 1, 12, 30, 0, 500_000), datetime(1969, 12, 31)),
        (*DAYS, *TIMES),
    ),
}
"""What DuckDB and Spark compare as conditions do; both columns and literals."""

OPERATORS = ("=", "<>", "<", "<=", ">", ">=", "IS NOT DISTINCT FROM", "IS DISTINCT FROM")
COMPARABLE = (("i", "l"), ("l", "i"), ("d", "i"), ("f", "g"), ("i", "i"), ("s", "s"))
PATTERNS = ("a%", "%b", "_", "%", "a!_b", "%!%", "it_s", "", "é", "z_")


@st.composite
def tables(draw: DrawFn, kinds: dict[str, Kind], rows: int) -> pa.Table:
    """Draw a table with a column of each kind; several equal values and NULL among them."""
    columns = {}
    for name, kind in kinds.items():
        values = st.one_of(st.none(), st.sampled_from(kind.values), st.sampled_from(kind.values))
        drawn = draw(st.lists(values, min_size=rows, max_size=rows))
        columns[name] = pa.array(drawn, kind.type)
    return pa.table(columns)


def conditions(kinds: dict[str, Kind], pairs: Sequence[tuple[str, str]]) -> SearchStrategy[str]:
    """Draw conditions over columns of these kinds, some of them compared with each other."""
    leaves = st.one_of(st.sampled_from(sorted(kinds)).flatmap(lambda n: _of_column(n, kinds[n])))
    if pairs:
        columns = st.sampled_from(pairs)
        compared = st.tuples(columns, st.sampled_from(OPERATORS)).map(
            lambda drawn: f"{drawn[0][0]} {drawn[1]} {drawn[0][1]}"
        )
        leaves = leaves | compared
    return st.recursive(
        leaves | st.sampled_from(["TRUE", "NULL"]),
        lambda inner: st.one_of(
            inner.map(lambda operand: f"NOT ({operand})"),
            st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(
                lambda drawn: f"({drawn[0]}) {drawn[1]} ({drawn[2]})"
            ),
        ),
        max_leaves=5,
    )


def _of_column(name: str, kind: Kind) -> SearchStrategy[str]:
    literal = st.sampled_from(kind.literals)
    negation = st.sampled_from(["", "NOT "])
    forms = [
        st.builds(f"{name} {{}} {{}}".format, st.sampled_from(OPERATORS), literal),
        st.builds(f"{{}} {{}} {name}".format, literal, st.sampled_from(OPERATORS[:6])),
        st.builds(f"{name} {{}}IN ({{}})".format, negation, _lists(literal)),
        st.builds(f"{name} {{}}BETWEEN {{}} AND {{}}".format, negation, literal, literal),
        st.builds(f"{name} IS {{}}NULL".format, negation),
    ]
    if pa.types.is_string(kind.type):
        patterns = st.sampled_from(PATTERNS)
        forms.append(st.builds(f"{name} {{}}LIKE '{{}}' ESCAPE '!'".format, negation, patterns))
    if pa.types.is_boolean(kind.type):
        forms.append(st.just(name))
    return st.one_of(forms)


def _lists(literal: SearchStrategy[str]) -> SearchStrategy[str]:
    return st.lists(literal | st.just("NULL"), min_size=1, max_size=3).map(", ".join)
