"""Frames of pandas and Polars as Arrow, or a refusal that names the column."""

from __future__ import annotations

from collections import Counter
from datetime import date, time, timedelta
from numbers import Number
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fsspeckit.core.incremental.source import kind_of
from fsspeckit.errors import InvalidArgumentError, SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["from_pandas", "from_stream"]

_SCALARS = (str, bytes, bool, Number, date, time, timedelta)
_MOST_TYPES = 5


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
    is_polars_frame = type(data).__module__.startswith("polars.") and hasattr(data, "schema")
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
    return SchemaMismatchError(
        f"column {name!r} is of the Polars type {kind}, which Parquet does not have.\n"
        "Hint: cast it first, for example to polars.Int64, polars.Decimal(38, 0) or "
        "polars.String, or drop it."
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
    if str(kind) == "object" and len(kinds := _kinds(values)) > 1:
        raise SchemaMismatchError(
            f"column {name!r} mixes {' and '.join(sorted(kinds))}, which no type of Parquet holds "
            "as they are.\nHint: convert it to one type first, for example with .astype(str)."
        )


def _kinds(values: Any) -> set[str]:
    """The kinds of scalars in a column of objects."""
    found = _scalar_kinds(values)
    # What is missing may be None, a float or of another type, whatever the values are.
    return found if len(found) < 2 else _scalar_kinds(values.dropna())


def _scalar_kinds(values: Iterable[object]) -> set[str]:
    return {kind_of(each) for each in set(map(type, values)) if issubclass(each, _SCALARS)}


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
