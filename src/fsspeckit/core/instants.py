"""INT96 timestamps: instants in UTC, and how much of them Arrow can hold.

INT96 reaches from before Rome to far beyond the year 9999, in nanoseconds. Arrow's timestamps have
either that range, in microseconds, or the nanoseconds, from 1677 to 2262. pyarrow decodes INT96 to
either and tells in neither case what it lost. Decoded both ways the two numbers give the whole
value: what wraps around does so on both sides alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from fsspeckit.errors import SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

__all__ = [
    "Unit",
    "finest_unit",
    "has_nanoseconds",
    "int96_columns",
    "key_instants",
    "nested_like",
    "physical_types",
    "with_int96_as",
]

Unit = Literal["us", "ns"]

_LIMIT = np.iinfo(np.int64).max // 1000
_NO_KEY = np.iinfo(np.int64).min
"""No instant of a source: 292,000 years before Christ, where numpy has its "not a time"."""


def physical_types(schema: pa.parquet.ParquetSchema) -> tuple[str, ...]:
    """The physical type of each leaf column."""
    return tuple(schema.column(index).physical_type for index in range(len(schema)))


def int96_columns(schema: pa.Schema, physical: Sequence[str]) -> frozenset[str]:
    """The top-level columns that are INT96 or hold INT96 inside."""
    if "INT96" not in physical:
        return frozenset()
    marked = with_int96_as(schema, physical, pa.null())
    return frozenset(
        old.name for old, new in zip(schema, marked, strict=True) if old.type != new.type
    )


def with_int96_as(schema: pa.Schema, physical: Sequence[str], data_type: pa.DataType) -> pa.Schema:
    """A schema with another type for what is stored as INT96, inside of nested columns too.

    Args:
        schema: The schema of a file, as it is read.
        physical: The physical type of each of its leaf columns.
        data_type: What an INT96 column is to be.
    """
    if "INT96" not in physical:
        return schema
    leaves = iter(physical)
    return pa.schema([_retyped_field(f, leaves, data_type) for f in schema], schema.metadata)


def _retyped_field(field: pa.Field, leaves: Iterator[str], data_type: pa.DataType) -> pa.Field:
    found = _retyped(field.type, leaves, data_type)
    return field if found is field.type else field.with_type(found)


def _retyped(found: pa.DataType, leaves: Iterator[str], data_type: pa.DataType) -> pa.DataType:
    """A type whose INT96 leaves are of another type; the same object if there is none."""
    if isinstance(found, pa.BaseExtensionType):
        _retyped(found.storage_type, leaves, data_type)
        return found
    if not pa.types.is_nested(found):
        return data_type if next(leaves) == "INT96" else found
    if pa.types.is_map(found):
        old = [found.key_field, found.item_field]
    else:
        old = [found.field(number) for number in range(found.num_fields)]
    new = [_retyped_field(field, leaves, data_type) for field in old]
    if all(one is other for one, other in zip(old, new, strict=True)):
        return found
    return nested_like(found, new)


def nested_like(found: pa.DataType, fields: Sequence[pa.Field]) -> pa.DataType:
    """A nested type of the same kind with other fields inside."""
    if pa.types.is_struct(found):
        return pa.struct(fields)
    if pa.types.is_map(found):
        return pa.map_(*fields, keys_sorted=found.keys_sorted)
    if pa.types.is_fixed_size_list(found):
        return pa.list_(fields[0], found.list_size)
    return (pa.large_list if pa.types.is_large_list(found) else pa.list_)(fields[0])


def has_nanoseconds(data_type: pa.DataType) -> bool:
    """Whether a type is, or holds inside, a timestamp in nanoseconds."""
    if pa.types.is_timestamp(data_type):
        return str(data_type.unit) == "ns"
    if not pa.types.is_nested(data_type):
        return False
    return any(has_nanoseconds(data_type.field(n).type) for n in range(data_type.num_fields))


def finest_unit(decoded: Iterable[tuple[pa.Table, pa.Table]], wanted: Unit, where: str) -> Unit:
    """The unit in which INT96 values of a file lose nothing.

    Args:
        decoded: The INT96 columns of each row group, as microseconds and as nanoseconds.
        wanted: The unit to take if both lose nothing.
        where: The file, for the message.

    Raises:
        SchemaMismatchError: If one value has nanoseconds and another is out of their range.
    """
    finer: str | None = None
    wider: str | None = None
    for coarse, fine in decoded:
        for name in coarse.column_names:
            for micros, rest in _leaf_parts(coarse.column(name), fine.column(name)):
                finer = name if rest.any() else finer
                wider = name if (np.abs(micros) > _LIMIT).any() else wider
    if finer is not None and wider is not None:
        raise SchemaMismatchError(
            f"{where!r} holds INT96 timestamps with nanoseconds (column {finer!r}) and others "
            f"before 1677 or after 2262 (column {wider!r}), which no type at hand can hold "
            "together.\nHint: rewrite the file with INT64 timestamps."
        )
    if wider is not None:
        return "us"
    return "ns" if finer is not None else wanted


def key_instants(
    coarse: pa.ChunkedArray, fine: pa.ChunkedArray, data_type: pa.DataType
) -> pa.ChunkedArray:
    """INT96 values as keys of a timestamp type.

    A value that the type does not hold equals no source key, because those are of the type. It
    becomes an instant that no source has, and stays a row like any other.
    """
    micros = _numbers(coarse)
    rest = _numbers(fine) - micros * np.int64(1000)
    if data_type.unit == "ns":
        values = np.where(np.abs(micros) > _LIMIT, _NO_KEY, micros * np.int64(1000) + rest)
    else:
        values = np.where(rest != 0, _NO_KEY, micros)
    nulls = np.asarray(coarse.is_null())
    return pa.chunked_array([pa.array(values, mask=nulls).view(data_type)])


def _leaf_parts(
    coarse: pa.ChunkedArray, fine: pa.ChunkedArray
) -> Iterator[tuple[Numbers, Numbers]]:
    """Microseconds, and nanoseconds beyond them, of every INT96 leaf of a column."""
    for one, other in zip(_leaves(coarse), _leaves(fine), strict=True):
        if one.type != other.type:  # only INT96 depends on how it is decoded
            micros = _numbers(one)
            yield micros, _numbers(other) - micros * np.int64(1000)


def _leaves(values: pa.ChunkedArray) -> Iterator[pa.ChunkedArray]:
    if pa.types.is_struct(values.type):
        for child in values.flatten():
            yield from _leaves(child)
    elif pa.types.is_map(values.type):
        parts = [part for chunk in values.chunks for part in (chunk.keys, chunk.items)]
        for part in parts:
            yield from _leaves(pa.chunked_array([part]))
    elif pa.types.is_nested(values.type):
        for chunk in values.chunks:
            yield from _leaves(pa.chunked_array([chunk.flatten()]))
    else:
        yield values


def _numbers(instants: pa.ChunkedArray) -> Numbers:
    return np.asarray(instants.cast(pa.int64()).fill_null(0).to_numpy(), np.int64)
