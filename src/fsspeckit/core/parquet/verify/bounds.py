"""Bounds in statistics and column indexes, compared with the values that they are about.

A bound may be wider than the values: writers shorten long strings. One that is narrower makes
readers skip rows that they should return.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsspeckit.core.parquet.format.thrift import BOOL, BYTES, INT, Spec, Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fsspeckit.core.parquet.verify.values import Leaf

Order = Literal["bool", "signed", "unsigned", "float", "half", "bytes", "decimal"]
"""How values of a leaf are compared."""

_BOOLEAN, _INT32, _INT64, _INT96, _FLOAT, _DOUBLE, _BYTES, _FIXED = range(8)
_STRING, _ENUM, _DECIMAL, _DATE, _TIME, _TIMESTAMP = 1, 4, 5, 6, 7, 8
_INTEGER, _JSON, _BSON, _UUID, _FLOAT16 = 10, 12, 13, 14, 15
_TEXTS: Final = (_STRING, _ENUM, _JSON)
_OF_BYTES: Final = (_STRING, _ENUM, _JSON, _BSON, _UUID)
_OF_NUMBERS: Final = (_DATE, _TIME, _TIMESTAMP, _DECIMAL)
_WIDTHS: Final = {_BOOLEAN: 1, _INT32: 4, _INT64: 8, _FLOAT: 4, _DOUBLE: 8}
_PLAIN: Final[dict[int, Order]] = {
    _BOOLEAN: "bool",
    _INT32: "signed",
    _INT64: "signed",
    _FLOAT: "float",
    _DOUBLE: "float",
    _BYTES: "bytes",
    _FIXED: "bytes",
}
_FORMATS: Final = {
    ("signed", 4): "<i",
    ("signed", 8): "<q",
    ("unsigned", 4): "<I",
    ("unsigned", 8): "<Q",
    ("float", 4): "<f",
    ("float", 8): "<d",
    ("half", 2): "<e",
}

STATISTICS: Final[Spec] = {
    1: BYTES, 2: BYTES, 3: INT, 4: INT, 5: BYTES, 6: BYTES, 7: BOOL, 8: BOOL, 9: INT,
}  # fmt: skip


def order_of(leaf: Leaf) -> Order | None:
    """Return how values of a leaf are compared; None if the format does not define it."""
    if leaf.logical is None:
        return _PLAIN.get(leaf.physical)
    kind = leaf.logical[0]
    if kind == _INTEGER and leaf.physical in (_INT32, _INT64):
        return "signed" if leaf.logical[2] else "unsigned"
    if kind in _OF_NUMBERS and leaf.physical in (_INT32, _INT64):
        return "signed"
    if kind == _DECIMAL and leaf.physical in (_BYTES, _FIXED):
        return "decimal"
    if kind in _OF_BYTES and leaf.physical in (_BYTES, _FIXED):
        return "bytes"
    if kind == _FLOAT16 and leaf.physical == _FIXED:
        return "half"
    return None


def is_text(leaf: Leaf) -> bool:
    """Whether values of a leaf must be UTF-8."""
    return leaf.logical is not None and leaf.logical[0] in _TEXTS and leaf.physical == _BYTES


def parse_bound(leaf: Leaf, order: Order, data: bytes) -> Any:
    """Return a bound as a value that can be compared.

    Raises:
        ValueError: If it has another size than values of the column.
    """
    width = _WIDTHS.get(leaf.physical, leaf.length if order in ("decimal", "half") else 0)
    if leaf.physical == _BYTES and order == "decimal":
        width = 0
    if width and len(data) != width:
        raise ValueError(f"has {len(data)} bytes instead of {width}")
    if order == "bytes":
        return data
    if order == "decimal":
        return int.from_bytes(data, "big", signed=True)
    if order == "bool":
        return data != b"\0"
    return struct.unpack(_FORMATS[order, len(data)], data)[0]


def ends_of(values: pa.ChunkedArray, order: Order) -> tuple[Any, Any] | None:
    """Return least and greatest value; NULL and NaN do not count. None if there is no other."""
    if order == "decimal":
        return _decimal_ends(values)
    if order == "half":
        values = _map(values, _halves)
    elif order == "unsigned":
        kind = pa.uint32() if values.type.bit_width == 32 else pa.uint64()
        values = _map(values, lambda chunk: chunk.view(kind))
    found = pc.min_max(values)
    low, high = found["min"].as_py(), found["max"].as_py()
    return None if low is None or low != low else (low, high)


def _map(values: pa.ChunkedArray, change: Callable[[pa.Array], pa.Array]) -> pa.ChunkedArray:
    chunks = [change(chunk) for chunk in values.chunks] or [change(pa.nulls(0, values.type))]
    return pa.chunked_array(chunks)


def _halves(chunk: pa.Array) -> pa.Array:
    present = chunk.drop_null()
    data = np.frombuffer(present.buffers()[1] or b"", "<f2", len(present), 2 * present.offset)
    return pa.array(data.astype(np.float32))


def _decimal_ends(values: pa.ChunkedArray) -> tuple[int, int] | None:
    """Return the ends of big-endian numbers, which have one size or many."""
    present = values.drop_null()
    if not len(present):
        return None
    if not pa.types.is_fixed_size_binary(present.type):
        numbers = [int.from_bytes(one, "big", signed=True) for one in present.unique().to_pylist()]
        return min(numbers), max(numbers)
    width = present.type.byte_width
    is_negative = pa.chunked_array([_signs(chunk, width) for chunk in present.chunks])
    found = [
        pc.min_max(part)
        for mask in (is_negative, pc.invert(is_negative))
        if len(part := present.filter(mask))
    ]
    low, high = found[0]["min"].as_py(), found[-1]["max"].as_py()
    return int.from_bytes(low, "big", signed=True), int.from_bytes(high, "big", signed=True)


def _signs(chunk: pa.Array, width: int) -> pa.Array:
    data = np.frombuffer(chunk.buffers()[1], np.uint8)
    start = chunk.offset * width
    return pa.array(data[start : start + len(chunk) * width : width] >= 128)


@dataclass(frozen=True)
class Claim:
    """What a writer says about some values of a leaf."""

    low: bytes | None = None
    high: bytes | None = None
    low_exact: bool | None = None
    high_exact: bool | None = None

    @classmethod
    def of_statistics(cls, found: Struct) -> Claim:
        """Return the bounds that the format defines."""
        values = found.values
        return cls(values.get(6), values.get(5), values.get(8), values.get(7))

    @classmethod
    def of_deprecated(cls, found: Struct) -> Claim:
        """Return the bounds of older versions of the format, defined for signed numbers only."""
        return cls(found.values.get(2), found.values.get(1))


@dataclass(frozen=True)
class Flaw:
    """What is wrong with a claim."""

    what: str
    loses_rows: bool


def check_bounds(
    leaf: Leaf, order: Order, claim: Claim, values: pa.ChunkedArray, ends: tuple[Any, Any] | None
) -> list[Flaw]:
    """Compare the bounds of values with these, and with their least and greatest value."""
    flaws = []
    for name, data, exact, position in (
        ("minimum", claim.low, claim.low_exact, 0),
        ("maximum", claim.high, claim.high_exact, 1),
    ):
        if data is None:
            continue
        try:
            bound = parse_bound(leaf, order, data)
        except (ValueError, struct.error) as error:
            flaws.append(Flaw(f"the {name} {error}.", loses_rows=True))
            continue
        if bound != bound:
            if not _has_nan(values):  # Spark writes NaN as a bound of columns that have it
                flaws.append(Flaw(f"the {name} is NaN, which the column does not hold.", False))
        elif ends is not None:
            flaws += _check_bound(name, bound, exact, ends[position], order)
    return flaws


def _has_nan(values: pa.ChunkedArray) -> bool:
    return not pa.types.is_floating(values.type) or bool(pc.any(pc.is_nan(values)).as_py())


def _check_bound(
    name: str, bound: Any, exact: bool | None, end: Any, order: Order
) -> Sequence[Flaw]:
    is_narrow = bound > end if name == "minimum" else bound < end
    texts = f"the {name} is {_shown(bound)}, but the column holds {_shown(end)}"
    if is_narrow:
        return [Flaw(f"{texts}: readers that prune by it lose rows.", loses_rows=True)]
    # Writers shorten strings, with or without saying so.
    is_wide = bound != end and (exact or (exact is None and order != "bytes"))
    if is_wide:
        kind = "least" if name == "minimum" else "greatest"
        text = f"the {name} is {_shown(bound)}, but the {kind} value is {_shown(end)}."
        return [Flaw(text, loses_rows=False)]
    return []


_MAX_SHOWN: Final = 40


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
