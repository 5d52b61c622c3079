"""Values as JSON has them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from numbers import Integral, Real
from typing import Any

__all__ = ["plain"]


def plain(value: Any) -> Any:
    """A value as ``json`` writes it: dictionaries, lists, texts, numbers, booleans and None.

    What JSON does not have, such as a date or NaN, is told as text.

    Examples:
        >>> import datetime
        >>> plain({"days": (datetime.date(2026, 1, 2), None), "share": float("nan")})
        {'days': ['2026-01-02', None], 'share': 'nan'}
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Real):
        return _number(value)
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, Collection) and not isinstance(value, (bytes, bytearray)):
        return [plain(inner) for inner in value]
    return str(value)


def _number(value: Real) -> int | float | str:
    if isinstance(value, Integral):
        return int(value)
    return float(value) if math.isfinite(value) else str(float(value))
