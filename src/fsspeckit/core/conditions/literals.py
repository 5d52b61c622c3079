"""Literals of a condition, and the nearest value that a column can store.

A literal need not be a value of the column's type: ``1.5`` is not an integer, and a timestamp of
seconds has no milliseconds. The greatest value of the type that is not above the literal decides
every comparison exactly: an integer is greater than 1.5 if it is greater than 1.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from fsspeckit.core.keys import KeyColumn, family
from fsspeckit.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fsspeckit.core.keys import Family

MomentKind = Literal["date", "timestamp without zone", "timestamp with zone"]

_UNIT_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY_NANOSECONDS = 86_400 * 10**9
_EPOCH = date(1970, 1, 1).toordinal()
_EXACT = Context(prec=100)
# No stored number has digits further out; a larger exponent would only take time and memory.
_MAX_EXPONENT = 400
_MAX_DIGITS = 1_000

_MOMENT = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)"
    r"(?:[ T](?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.(?P<fraction>\d{1,9}))?)?"
    r" ?(?P<zone>Z|UTC|[+-]\d\d:\d\d)?)?",
    re.ASCII,
)


@dataclass(frozen=True)
class Moment:
    """A date or a timestamp."""

    nanoseconds: int
    """Since 1970, in UTC if it has a zone; a date is its midnight."""

    kind: MomentKind


LiteralValue = bool | Decimal | str | bytes | Moment
"""Every literal but NULL; a number is a Decimal, because that is exact."""


@dataclass(frozen=True)
class Nearest:
    """The greatest value of a column's type that is not above a literal."""

    side: Literal["below", "inside", "above"]
    """Where the literal is: below every value of the type, among them, or above them."""

    code: int | bytes = 0
    """The canonical value, if the literal is inside."""

    is_exact: bool = True
    """Whether that value equals the literal."""


@dataclass(frozen=True)
class ConditionText:
    """The text of a condition and the argument it was passed as, for error messages."""

    argument: str
    text: str

    def error(self, problem: str, hint: str) -> InvalidArgumentError:
        """Return the error that says what is wrong with the condition."""
        shortened = self.text if len(self.text) <= 200 else f"{self.text[:200]}…"
        return InvalidArgumentError(
            f"{self.argument} {shortened!r}: {problem}.\nHint: {hint}", argument=self.argument
        )


def parse_number(text: str, condition: ConditionText) -> Decimal:
    """Return the number that a literal spells.

    Raises:
        InvalidArgumentError: If it is greater than every double, or has very many digits.
    """
    number = Decimal(text)
    exponent = int(number.as_tuple().exponent)
    if abs(exponent) > _MAX_EXPONENT or len(text) > _MAX_DIGITS or math.isinf(float(number)):
        raise condition.error(
            f"the number {text[:50]} is out of range", "write a number that a double can store."
        )
    return number


def parse_moment(text: str, condition: ConditionText) -> Moment:
    """Return the date or timestamp that a literal spells, in ISO 8601 with at most nine decimals.

    Raises:
        InvalidArgumentError: If it is not one.
    """
    match = _MOMENT.fullmatch(text.strip())
    moment = _moment(match) if match else None
    if moment is None:
        raise condition.error(
            f"{text!r} is not a date or timestamp",
            "write '2020-01-31', '2020-01-31 12:30:00' or '2020-01-31 12:30:00+00:00'.",
        )
    return moment


def _moment(match: re.Match[str]) -> Moment | None:
    try:
        days = date.fromisoformat(match["day"]).toordinal() - _EPOCH
    except ValueError:
        return None
    if match["hour"] is None:
        return Moment(days * _DAY_NANOSECONDS, "date")
    hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
    offset = _offset(match["zone"])
    if hour > 23 or minute > 59 or second > 59 or offset is None:
        return None
    seconds = timedelta(days, second, 0, 0, minute, hour) - offset
    fraction = int((match["fraction"] or "").ljust(9, "0"))
    kind: MomentKind = "timestamp with zone" if match["zone"] else "timestamp without zone"
    return Moment((seconds // timedelta(seconds=1)) * 10**9 + fraction, kind)


def _offset(zone: str | None) -> timedelta | None:
    """Return the distance to UTC; None if there is no such zone (they end at 18 hours)."""
    if zone is None or zone in ("Z", "UTC"):
        return timedelta()
    hours, minutes = int(zone[1:3]), int(zone[4:])
    offset = timedelta(hours=hours, minutes=minutes)
    if minutes > 59 or offset > timedelta(hours=18):
        return None
    return offset if zone[0] == "+" else -offset


def nearest(value: LiteralValue, column: KeyColumn, condition: ConditionText) -> Nearest:
    """Return the value of a column's type that is nearest to a literal, from below.

    Raises:
        InvalidArgumentError: If the literal is of another kind than the column.
    """
    kind = family(column.type)
    if isinstance(value, str) and kind in _MOMENTS:
        value = parse_moment(value, condition)
    if isinstance(value, Moment) and kind in _MOMENTS:
        return _nearest_moment(value, column, condition)
    # A bool is not a Decimal, nor is a str bytes: the exact type is the kind of the literal.
    find = _FINDERS.get((type(value), kind))
    if find is None:
        raise condition.error(
            f"column {column.name!r} of type {column.type} cannot be compared with "
            f"{_describe(value)}",
            f"write {_EXAMPLES.get(kind, 'IS NULL or IS NOT NULL, or pass a pyarrow expression')}.",
        )
    return find(value, column)


def _describe(value: LiteralValue) -> str:
    if isinstance(value, Moment):
        return f"a {value.kind}"
    if isinstance(value, bytes):
        return f"the binary X'{value.hex().upper()}'"
    names: dict[type, str] = {bool: "boolean", Decimal: "number", str: "string"}
    text = repr(value) if isinstance(value, str) else str(value).upper()
    return f"the {names[type(value)]} {text}"


def _nearest_moment(value: Moment, column: KeyColumn, condition: ConditionText) -> Nearest:
    kind = family(column.type)
    if (value.kind == "timestamp with zone") != (kind == "timestamp with zone"):
        zone = "Z" if kind == "timestamp with zone" else ""
        example = datetime(1970, 1, 1) + timedelta(microseconds=value.nanoseconds // 1000)
        raise condition.error(
            f"column {column.name!r} of type {column.type} cannot be compared with a {value.kind}",
            f"a time zone is never guessed; write, for example, TIMESTAMP '{example}{zone}'.",
        )
    unit = _DAY_NANOSECONDS if kind == "date" else _UNIT_NANOSECONDS[column.type.unit]
    number, rest = divmod(value.nanoseconds, unit)
    limit = 2**31 if kind == "date" else 2**63
    side = _side(number, -limit, limit - 1)
    return Nearest(side, number, rest == 0) if side == "inside" else Nearest(side)


def _side(number: int, low: int, high: int) -> Literal["below", "inside", "above"]:
    if number < low:
        return "below"
    return "above" if number > high else "inside"


def _nearest_integer(value: Decimal, column: KeyColumn) -> Nearest:
    bits = column.type.bit_width
    is_signed = pa.types.is_signed_integer(column.type)
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else (0, 2**bits - 1)
    number = math.floor(value)
    side = _side(number, low, high)
    if side != "inside":
        return Nearest(side)
    return Nearest(side, _code(number, column), number == value)


def _nearest_decimal(value: Decimal, column: KeyColumn) -> Nearest:
    scale, limit = column.type.scale, 10**column.type.precision - 1
    scaled = Fraction(value) * Fraction(10) ** scale
    number = math.floor(scaled)
    side = _side(number, -limit, limit)
    if side != "inside":
        return Nearest(side)
    return Nearest(side, _code(_EXACT.scaleb(Decimal(number), -scale), column), number == scaled)


def _nearest_float(value: Decimal, column: KeyColumn) -> Nearest:
    # As in SQL, the literal is a double: 0.1 equals the double that is written as 0.1.
    return Nearest("inside", _code(float(value), KeyColumn(column.name, pa.float64())))


def _code(value: object, column: KeyColumn) -> int | bytes:
    code: int | bytes = column.canonical(pa.array([value], column.type))[0].as_py()
    return code


_MOMENTS: tuple[Family, ...] = ("date", "timestamp without zone", "timestamp with zone")

_FINDERS: dict[tuple[type, Family | None], Callable[..., Nearest]] = {
    (bool, "bool"): lambda value, column: Nearest("inside", int(value)),
    (Decimal, "integer"): _nearest_integer,
    (Decimal, "decimal"): _nearest_decimal,
    (Decimal, "float"): _nearest_float,
    (str, "string"): lambda value, column: Nearest("inside", value.encode()),
    (bytes, "binary"): lambda value, column: Nearest("inside", value),
}

_EXAMPLES: dict[Family | None, str] = {
    "bool": "TRUE or FALSE",
    "integer": "a number, such as 7",
    "decimal": "a number, such as 7.50",
    "float": "a number, such as 7.5",
    "string": "a string in single quotes",
    "binary": "hexadecimal digits, such as X'0AFF'",
    "date": "DATE '2020-01-31'",
    "timestamp without zone": "TIMESTAMP '2020-01-31 12:30:00'",
    "timestamp with zone": "TIMESTAMP '2020-01-31 12:30:00Z'",
}
