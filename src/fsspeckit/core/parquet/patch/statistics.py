"""The statistics of a column chunk in which some values were replaced, without reading the others.

What is known: the statistics before, those of the values that went and those of the values that
came. A bound that went may still be the value of another row; then nothing but all values can tell,
and there are no statistics to be had here.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fsspeckit.core.parquet.format.thrift import (
    BINARY,
    BOOL,
    BYTES,
    I64,
    INT,
    TRUE,
    Spec,
    Struct,
    decode,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from fsspeckit.core.parquet.format.columns import Column

    Order = Callable[[bytes], Any]
    """Makes of a bound, as it is stored, something that compares as the column does."""

__all__ = ["UnknownBoundError", "replaced_statistics"]

_SPEC: Final[Spec] = {1: BYTES, 2: BYTES, 3: INT, 4: INT, 5: BYTES, 6: BYTES, 7: BOOL, 8: BOOL}
_NULLS: Final = 3
_BOOLEAN, _INT32, _INT64, _, _FLOAT, _DOUBLE, _BYTES, _FIXED = range(8)
_INTEGER: Final = 10
# Strings, enumerations, JSON and BSON compare byte by byte, as binaries without a meaning do.
_BYTEWISE: Final = (None, (1,), (4,), (12,), (13,))


class UnknownBoundError(Exception):
    """The smallest or largest value, or the number of NULLs, cannot be told."""


@dataclass(frozen=True)
class _Bound:
    """One of the two bounds: where it is stored, and which of two values is further out."""

    field: int
    deprecated: int
    exact: int
    sign: int

    def settled(self, order: Order, before: Struct, gone: Struct, come: Struct) -> bytes | None:
        """The bound now, or None if all values are NULL.

        Raises:
            UnknownBoundError: If the value that was the bound went.
        """
        old, went, new = (one.values.get(self.field) for one in (before, gone, come))
        if old is None:
            return new
        if new is not None and self._is_beyond(order(new), order(old)):
            return bytes(new)
        if went is not None and self._is_beyond(order(went), order(old)):
            raise UnknownBoundError
        return bytes(old)

    def fields(
        self, order: Order, before: Struct, gone: Struct, come: Struct
    ) -> dict[int, tuple[Any, int]]:
        """What is written of the bound: each field with its type.

        Raises:
            UnknownBoundError: If the value that was the bound went.
        """
        value = self.settled(order, before, gone, come)
        if value is None:
            return {}
        style = before if self.field in before.values else come
        fields: dict[int, tuple[Any, int]] = {self.field: (value, BINARY)}
        if self.deprecated in style.values:
            fields[self.deprecated] = (value, BINARY)
        if self.exact in style.values:
            is_old = value == style.values[self.field]
            fields[self.exact] = (style.values[self.exact] if is_old else True, TRUE)
        return fields

    def _is_beyond(self, one: Any, other: Any) -> bool:
        return bool(one <= other if self.sign < 0 else one >= other)


_BOUNDS: Final = (_Bound(6, 2, 8, -1), _Bound(5, 1, 7, 1))


def replaced_statistics(
    column: Column,
    before: bytes | None,
    gone: bytes | None,
    come: bytes | None,
    values: int,
    count: int,
) -> Struct | None:
    """The statistics after some values were replaced.

    Args:
        column: The column, not nested.
        before: The ``Statistics`` of the chunk; None if it has none, and then it gets none.
        gone: Those of the values that went.
        come: Those of the values that came, by the same writer as those that went.
        values: How many values the chunk has, NULL included.
        count: How many of them were replaced.

    Raises:
        UnknownBoundError: If only all values of the chunk could tell.
        ThriftError: If they are damaged.
    """
    if before is None:
        return None
    old, went, new = (decode(one or b"\0", _SPEC)[0] for one in (before, gone, come))
    if any(b.deprecated in old.values and b.field not in old.values for b in _BOUNDS):
        raise UnknownBoundError  # written before it was settled how values compare
    for known, among in ((old, values), (went, count), (new, count)):
        # A writer leaves out bounds that are long, or not numbers.
        if known.values.get(_NULLS) != among and not all(b.field in known.values for b in _BOUNDS):
            raise UnknownBoundError
    fields: dict[int, tuple[Any, int]] = {}
    nulls = old.values.get(_NULLS)
    if nulls is not None:
        nulls += new.values.get(_NULLS, 0) - went.values.get(_NULLS, 0)
        if not 0 <= nulls <= values:
            raise UnknownBoundError  # it was wrong before
        fields[_NULLS] = (nulls, I64)
    order = _order_of(column)
    for bound in _BOUNDS:
        fields |= bound.fields(order, old, went, new)
    numbers = sorted(fields)
    return Struct({n: fields[n][0] for n in numbers}, {}, {n: fields[n][1] for n in numbers})


def _order_of(column: Column) -> Order:
    """How the bounds of a column compare.

    Raises:
        UnknownBoundError: If that is not known here.
    """
    ((_, physical, _, _, _, logical),) = column.meaning
    if physical in (_BOOLEAN, _INT32, _INT64):
        is_signed = not (isinstance(logical, tuple) and logical[0] == _INTEGER and not logical[2])
        is_signed = is_signed and physical != _BOOLEAN
        return lambda value: int.from_bytes(value, "little", signed=is_signed)
    if physical in (_FLOAT, _DOUBLE):
        code = "<f" if physical == _FLOAT else "<d"
        return lambda value: _number(code, value)
    if (physical == _BYTES and logical in _BYTEWISE) or (physical == _FIXED and logical is None):
        return bytes
    raise UnknownBoundError


def _number(code: str, value: bytes) -> float:
    if len(value) != struct.calcsize(code):
        raise UnknownBoundError
    (number,) = struct.unpack(code, value)
    if math.isnan(number):  # compares with nothing
        raise UnknownBoundError
    return float(number)
