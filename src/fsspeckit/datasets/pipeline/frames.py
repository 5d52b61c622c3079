"""Frames of pandas and Polars as Arrow, or a refusal that names the column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from itertools import chain
from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fsspeckit.core.keys.source import cut_value, kinds_of
from fsspeckit.errors import InvalidArgumentError, SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["from_pandas", "from_stream", "is_from"]

_SCALARS = (str, bytes, bool, Number, date, time, timedelta, np.generic)
_LISTS = (list, tuple, np.ndarray)
_PLAIN = {str, bytes, bool, int, float, Decimal, date}
_SEVERAL = 2
_MOST_TYPES = 5


def is_from(data: Any, library: str) -> bool:
    """Whether data is of a class of a library, or of one that is made from it."""
    return any(each.__module__.startswith(f"{library}.") for each in type(data).__mro__)


def from_pandas(data: Any) -> pa.RecordBatchReader:
    """The rows of a pandas frame, without its index.

    Raises:
        InvalidArgumentError: If it is no frame, or a name occurs twice.
        SchemaMismatchError: If a column cannot become one of Arrow and stay what it is.
    """
    if not hasattr(data, "columns"):
        raise _no_frame(data)
    twice = sorted(name for name, count in Counter(map(str, data.columns)).items() if count > 1)
    if twice:
        raise InvalidArgumentError(f"the source has columns that occur twice: {twice!r}.")
    for name, values in data.items():
        _check_pandas_column(name, values)
    try:
        return pa.Table.from_pandas(data, preserve_index=False).to_reader()
    except (pa.ArrowException, TypeError, OverflowError, ValueError) as error:
        raise _unconverted(data, error) from error


def from_stream(data: Any) -> pa.RecordBatchReader:
    """The rows of a Polars frame, or of anything else with the Arrow C stream.

    Raises:
        InvalidArgumentError: If it has no named columns.
        SchemaMismatchError: If a column of a Polars frame is of a type that Parquet does not have.
    """
    is_polars_frame = is_from(data, "polars") and hasattr(data, "schema")
    kinds = data.schema.items() if is_polars_frame else ()
    for name, kind in kinds:
        if str(kind) == "Object":  # Polars gives the addresses of Python's objects
            raise _not_in_parquet(name, kind)
    try:
        return pa.RecordBatchReader.from_stream(data)
    except pa.ArrowInvalid as error:
        for name, kind in kinds:
            if not _is_known(data.select(name).head(0)):
                raise _not_in_parquet(name, kind) from error
        raise _no_frame(data, error) from error


def _is_known(data: Any) -> bool:
    """Whether Arrow knows the types of a stream."""
    try:
        pa.RecordBatchReader.from_stream(data)
    except pa.ArrowInvalid:
        return False
    return True


def _not_in_parquet(name: str, kind: Any) -> SchemaMismatchError:
    if str(kind) == "Object":
        hint = "make it again from its values, for example with polars.Series(values, dtype=...)"
    elif kind.is_nested():
        hint = "cast it first to a type with others inside, for example polars.List(polars.Int64)"
    else:
        hint = "cast it first, for example to polars.Int64, polars.Decimal(38, 0) or polars.String"
    return SchemaMismatchError(
        f"column {name!r} is of the Polars type {kind}, which Parquet does not have.\n"
        f"Hint: {hint}, or drop it."
    )


def _no_frame(data: Any, error: Exception | None = None) -> InvalidArgumentError:
    reason = "it has none" if error is None else str(error)
    frame = "data.to_frame()" if hasattr(data, "to_frame") else "a table with named columns"
    return InvalidArgumentError(
        f"data of type {type(data).__module__.partition('.')[0]}.{type(data).__name__} cannot be "
        f"read as rows of named columns: {reason}.\nHint: pass {frame}."
    )


def _check_pandas_column(name: Any, values: Any) -> None:
    """Refuse what Arrow would take for something else."""
    kind = getattr(getattr(values.dtype, "categories", values), "dtype", values.dtype)
    if str(kind).startswith("period["):
        raise SchemaMismatchError(
            f"column {name!r} holds pandas periods ({kind}), which Parquet does not have: they "
            "would be stored as numbers without a meaning.\n"
            "Hint: convert it first, with .dt.to_timestamp() or .astype(str)."
        )
    if str(kind) == "object":
        _check_objects(name, values)


def _check_objects(name: Any, values: Iterable[Any]) -> None:
    """Refuse Python objects, also inside of lists and dicts, that Arrow would change."""
    values = list(values)
    types = set(map(type, values)) - {type(None)}
    if len(types) < _SEVERAL and types <= _PLAIN:
        return  # as nearly all columns are
    held = [value for value in values if not _is_missing(value)]
    scalars = [value for value in held if isinstance(value, _SCALARS)]
    if len(kinds := kinds_of(scalars)) > 1:
        raise SchemaMismatchError(
            f"column {name!r} mixes {' and '.join(sorted(kinds))}, which no type of Parquet holds "
            "as they are.\nHint: convert it to one type first, for example with .astype(str)."
        )
    if (cut := cut_value(scalars)) is not None:
        raise SchemaMismatchError(
            f"column {name!r} holds {cut!r} as an object of Python, whose nanoseconds would be "
            "lost.\nHint: convert it first, for example with pandas.to_datetime or "
            "pandas.to_timedelta."
        )
    lists = [_elements(value) for value in held if isinstance(value, _LISTS)]
    if lists:
        _check_objects(name, chain.from_iterable(lists))
    dicts = [value for value in held if isinstance(value, Mapping)]
    for key in dict.fromkeys(chain.from_iterable(dicts)):
        _check_objects(name, [each[key] for each in dicts if key in each])


def _elements(values: Any) -> Iterable[Any]:
    """The elements of a list; of an array of NumPy's own types one that stands for all."""
    is_typed = isinstance(values, np.ndarray) and values.dtype != object
    elements: Iterable[Any] = values.ravel()[:1] if is_typed else values
    return elements


def _is_missing(value: Any) -> bool:
    """Whether pandas counts a value as missing: None, NaN, NaT or NA."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, (float, Decimal, np.generic)) and bool(value != value)


def _unconverted(data: Any, error: Exception) -> SchemaMismatchError:
    """Name the column that pyarrow does not take."""
    for name, values in data.items():
        try:
            pa.Table.from_pandas(values.to_frame(), preserve_index=False)
        except (pa.ArrowException, TypeError, OverflowError, ValueError) as reason:
            types = sorted({each.__name__ for each in map(type, values.dropna())})[:_MOST_TYPES]
            return SchemaMismatchError(
                f"column {name!r} of the pandas type {values.dtype}, with values of the types "
                f"{types!r}, cannot be converted to Arrow: {_words(reason)}.\n"
                "Hint: convert it to one type that Parquet has first, for example with "
                ".astype(str), or drop it."
            )
    return SchemaMismatchError(f"the pandas frame cannot be converted to Arrow: {_words(error)}.")


def _words(error: Exception) -> str:
    return str(error.args[0] if error.args else error).rstrip(".")
