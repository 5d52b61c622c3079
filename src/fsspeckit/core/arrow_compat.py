"""What pyarrow's kernels do not support: take, cast and read columns of any type.

String views cannot be taken, nor extension types inside other types. A view becomes an ordinary
string by a cast; an extension type is another name for its storage type. Lists of nothing but NULL,
and dictionaries inside other types, are cast level by level.

INT96 timestamps are nanoseconds over a range that Arrow's timestamps have only in microseconds;
their nanoseconds reach from 1677 to 2262. pyarrow decodes INT96 to either and does not report what
is lost. Decoded both ways the two numbers give the whole value: both wrap around alike.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fsspeckit.errors import SchemaMismatchError, UnreadableFileError
from fsspeckit.storage import naming_failure, open_input

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from fsspeckit.storage import DataFile, Root

    Numbers = NDArray[np.int64]

Values = TypeVar("Values", pa.Array, pa.ChunkedArray)

_INDEX_BITS = 32
_VIEWS = {"string_view": pa.string(), "binary_view": pa.binary()}


def take_rows(table: pa.Table, rows: pa.Array) -> pa.Table:
    """Return rows by their numbers, of columns of any type."""
    named = table.schema
    stored = _table_as(table, _mapped_schema(named, _storage_of))
    plain = cast_table(stored, _mapped_schema(stored.schema, _ordinary))
    return _table_as(cast_table(plain.take(rows), stored.schema), named)


def numbered_columns(table: pa.Table) -> pa.Table:
    """Rename the columns to ``"0"``, ``"1"`` and so on.

    Sorting and grouping take a name that begins with a dot for the path to a field.
    """
    return table.rename_columns([str(number) for number in range(table.num_columns)])


def without_views(table: pa.Table) -> pa.Table:
    """Convert string and binary views of a table to ordinary strings and binaries."""
    return cast_table(table, _mapped_schema(table.schema, _ordinary))


def widen_dictionary_indices(table: pa.Table) -> pa.Table:
    """Widen dictionary indices to 32 bits, so that tables can be combined.

    Indices of 8 bits, as pandas has them, may suffice for each of two tables but not for both. A
    Parquet file does not store their width.
    """
    return cast_table(table, _mapped_schema(table.schema, _widened))


def copy_table(table: pa.Table) -> pa.Table:
    """Copy a table into memory of its own; of a slice, only its rows."""
    named = table.schema
    stored = _table_as(table, _mapped_schema(named, _storage_of))
    sink = pa.BufferOutputStream()
    # The stream format also copies the values of dictionaries; taking rows would not.
    with pa.ipc.new_stream(sink, stored.schema) as writer:
        writer.write_table(stored)
    return _table_as(pa.ipc.open_stream(sink.getvalue()).read_all(), named)


def without_extensions(values: pa.Array) -> pa.Array:
    """Convert extension types, inside too, to their storage types."""
    return reinterpret_array(values, _mapped(values.type, _storage_of))


def array_without_views(values: pa.Array) -> pa.Array:
    """Convert string and binary views of an array to ordinary strings and binaries."""
    return cast_array(values, _mapped(values.type, _ordinary))


def cast_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast the columns of a table to the types of a schema, column by column."""
    if schema.equals(table.schema):
        return table
    if not any(_needs_own_cast(kind) for kind in table.schema.types):
        return table.cast(schema)
    columns = [
        cast_values(column, field.type) for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.table(columns, schema=schema)


def cast_values(values: Values, data_type: pa.DataType) -> Values:
    """Cast an array, or each chunk of a column."""
    if values.type.equals(data_type):
        return values
    if isinstance(values, pa.Array):
        return cast_array(values, data_type)
    return pa.chunked_array([cast_array(chunk, data_type) for chunk in values.chunks], data_type)


def cast_array(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Cast an array, also one with NULL types or dictionaries inside.

    pyarrow 26 casts ``list<item: null>`` to a list with another name of its element as an array
    that is too short, and fails on dictionary indices that a NULL struct hides.

    Raises:
        pyarrow.ArrowException: As pyarrow's own cast.
    """
    if values.type.equals(data_type):
        return values
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), data_type)
    if not _needs_own_cast(values.type):
        return values.cast(data_type)
    if pa.types.is_struct(values.type) and pa.types.is_struct(data_type):
        return _cast_struct(values, data_type)
    if pa.types.is_map(values.type) and pa.types.is_map(data_type):
        entries = reinterpret_array(values, _entries_type(values.type))
        return reinterpret_array(cast_array(entries, _entries_type(data_type)), data_type)
    if _is_list(values.type) and _is_list(data_type):
        return _cast_list(values, data_type)
    return values.cast(data_type)


def _needs_own_cast(data_type: pa.DataType) -> bool:
    """Return whether a nested type has NULL types or dictionaries inside."""
    if not pa.types.is_nested(data_type):
        return False
    tests = (pa.types.is_null, pa.types.is_dictionary, _needs_own_cast)
    return any(test(field.type) for field in inner_fields(data_type) for test in tests)


def _is_list(data_type: pa.DataType) -> bool:
    tests = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(test(data_type) for test in tests)


def _cast_struct(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    children = dict(zip((field.name for field in values.type), values.flatten(), strict=True))
    if children.keys() != {field.name for field in data_type}:
        return values.cast(data_type)
    arrays = [cast_array(children[field.name], field.type) for field in data_type]
    return pa.StructArray.from_arrays(arrays, fields=list(data_type), mask=values.is_null())


def _cast_list(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Cast the elements of lists; values behind NULL lists are left out."""
    elements = cast_array(values.flatten(), data_type.value_type)
    lengths = np.asarray(pc.list_value_length(values).fill_null(0), np.int64)
    missing = values.is_null()
    if pa.types.is_fixed_size_list(data_type):
        return _fixed_size_list(elements, lengths, missing, data_type)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    is_large = pa.types.is_large_list(data_type)
    make, kind = (pa.LargeListArray, pa.int64()) if is_large else (pa.ListArray, pa.int32())
    return make.from_arrays(pa.array(offsets, kind), elements, type=data_type, mask=missing)


def _fixed_size_list(
    elements: pa.Array, lengths: NDArray[np.int64], missing: pa.Array, data_type: pa.DataType
) -> pa.Array:
    size, valid = data_type.list_size, ~np.asarray(missing)
    if (lengths[valid] != size).any():
        raise pa.ArrowInvalid(f"lists of other lengths than {size} cannot become {data_type}")
    indices = np.full((len(lengths), size), -1)
    indices[valid] = np.arange(valid.sum() * size).reshape(-1, size)
    flat = indices.ravel()
    padded = elements.take(pa.array(flat, mask=flat < 0))
    return pa.FixedSizeListArray.from_arrays(padded, type=data_type, mask=missing)


def _entries_type(data_type: pa.DataType) -> pa.DataType:
    """Return the list of keys and values that a map is in memory."""
    key, item = data_type.key_field.with_name("key"), data_type.item_field.with_name("value")
    return pa.list_(pa.field("entries", pa.struct([key, item]), nullable=False))


def map_entries(values: pa.MapArray) -> pa.ListArray:
    """Return maps as the lists of keys and values that they are in memory."""
    return reinterpret_array(values, _entries_type(values.type))


def storage_type(data_type: pa.DataType) -> pa.DataType:
    """Replace extension types, inside too, by their storage types."""
    return _mapped(data_type, _storage_of)


def check_storable(schema: pa.Schema) -> None:
    """Refuse columns that cannot be stored as Parquet.

    Raises:
        SchemaMismatchError: Naming the column.
    """
    for field in schema:
        if reason := _not_storable(field.type):
            raise SchemaMismatchError(
                f"column {field.name!r} of type {field.type} cannot be stored as Parquet: "
                f"{reason}.\nHint: drop the column, or convert it to a type that can be stored."
            )


def _not_storable(data_type: pa.DataType) -> str | None:
    """Return why a type cannot be stored; None if it can."""
    data_type = _storage_of(data_type)
    if pa.types.is_dictionary(data_type):
        value = _storage_of(data_type.value_type)
        if pa.types.is_nested(value):
            return f"the values of its dictionary are {value}"
        return _not_storable(value)
    for what, test in (
        ("an interval has no order and no length", pa.types.is_interval),
        ("unions are unknown there", pa.types.is_union),
        ("it is encoded by runs", pa.types.is_run_end_encoded),
    ):
        if test(data_type):
            return what
    if pa.types.is_struct(data_type) and not data_type.num_fields:
        return "a struct needs a field"
    if not pa.types.is_nested(data_type):
        return None
    reasons = (_not_storable(field.type) for field in inner_fields(data_type))
    return next(filter(None, reasons), None)


def _storage_of(data_type: pa.DataType) -> pa.DataType:
    while isinstance(data_type, pa.BaseExtensionType):
        data_type = data_type.storage_type
    return data_type


def _widened(data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(data_type) and data_type.index_type.bit_width < _INDEX_BITS:
        return pa.dictionary(pa.int32(), data_type.value_type, data_type.ordered)
    return data_type


def _ordinary(data_type: pa.DataType) -> pa.DataType:
    return _VIEWS.get(str(data_type), data_type)


def _mapped_schema(schema: pa.Schema, change: Callable[[pa.DataType], pa.DataType]) -> pa.Schema:
    fields = [field.with_type(_mapped(field.type, change)) for field in schema]
    return pa.schema(fields, schema.metadata)


def _mapped(data_type: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Change a type and every type inside it, from the outside in."""
    data_type = change(data_type)
    if pa.types.is_struct(data_type) or pa.types.is_map(data_type) or _is_list(data_type):
        inner = inner_fields(data_type)
        fields = [field.with_type(_mapped(field.type, change)) for field in inner]
        return nested_like(data_type, fields)
    if pa.types.is_dictionary(data_type):
        value = _mapped(data_type.value_type, change)
        same = value.equals(data_type.value_type)
        return data_type if same else pa.dictionary(pa.int32(), value, data_type.ordered)
    return data_type


def _table_as(table: pa.Table, schema: pa.Schema) -> pa.Table:
    if schema.equals(table.schema):
        return table
    arrays = [
        pa.chunked_array([reinterpret_array(chunk, kind) for chunk in column.chunks], kind)
        for column, kind in zip(table.columns, schema.types, strict=True)
    ]
    return pa.table(arrays, schema=schema)


def reinterpret_array(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return the same memory under a type of the same layout."""
    if values.type.equals(data_type):
        return values
    if isinstance(data_type, pa.ExtensionType) and values.type.equals(data_type.storage_type):
        return pa.ExtensionArray.from_storage(data_type, values)  # it may not be registered
    _, memory = values.__arrow_c_array__()
    return pa.Array._import_from_c_capsule(data_type.__arrow_c_schema__(), memory)


@contextmanager
def open_data_file(
    root: Root,
    path: str,
    *,
    int96_unit: str = "us",
    metadata: pq.FileMetaData | None = None,
    indexed: Sequence[str] = (),
    known: DataFile | None = None,
) -> Iterator[pq.ParquetFile]:
    """Open a data file for reading.

    INT96 timestamps are decoded to microseconds: pyarrow's default, nanoseconds, turns dates
    outside their range into other dates without an error.

    Args:
        root: The root of the dataset.
        path: The file.
        int96_unit: The unit of INT96 timestamps.
        metadata: Its footer, if it was read before.
        indexed: Columns of strings that are read as Arrow dictionaries.
        known: The file as a listing has described it: then its store is not asked for that again.

    Raises:
        UnreadableFileError: If it is not Parquet.
        OSError: What the filesystem raised, naming the file.
    """
    options: dict[str, Any] = {"coerce_int96_timestamp_unit": int96_unit, "pre_buffer": True}
    options |= {"metadata": metadata, "read_dictionary": [*indexed]}
    with ExitStack() as stack:
        source: Any = path
        if not root.is_local:
            # fsspec's own cache would read ahead, into columns that are not needed.
            source = stack.enter_context(open_input(root, path, known, cache_type="none"))
        with naming_damage(root, path):
            # Read, not mapped: a mapped file would stay in this process's memory page by page.
            file = stack.enter_context(pq.ParquetFile(source, memory_map=False, **options))
        yield file


@contextmanager
def naming_damage(root: Root, path: str) -> Iterator[None]:
    """Name the file in errors about pages that cannot be decoded.

    Raises:
        UnreadableFileError: Naming the file.
        OSError: What the filesystem raised, naming the file.
    """
    try:
        yield
    except OSError as error:
        # pyarrow reports damaged bytes as an OSError without an errno. An error of a filesystem
        # has one: of a local disk by itself, of others because of how files are opened.
        if type(error) is not OSError or error.errno is not None:
            with naming_failure(root, path, "reading"):
                raise
        raise _damaged(root, path, error) from error
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _damaged(root, path, error) from error


def check_dictionary_indices(table: pa.Table) -> None:
    """Check that every dictionary, inside of other columns too, has the values that rows refer to.

    pyarrow does so only where it decodes to plain values. Of a damaged page, an index behind the
    last value would become one of the values that are added.

    Raises:
        pyarrow.ArrowInvalid: If one does not.
    """
    for column in table.columns:
        for chunk in column.chunks:
            for values in _dictionary_arrays(chunk):
                found = pc.min_max(values.indices).as_py()
                if found["max"] is None:  # all are NULL
                    continue
                if found["min"] < 0 or found["max"] >= len(values.dictionary):
                    raise pa.ArrowInvalid("a dictionary index is out of bounds")


def _dictionary_arrays(values: pa.Array) -> Iterator[pa.DictionaryArray]:
    """The dictionaries that an array is or holds."""
    if isinstance(values, pa.ExtensionArray):
        yield from _dictionary_arrays(values.storage)
    elif pa.types.is_dictionary(values.type):
        yield values
    elif pa.types.is_nested(values.type) and _holds_dictionary(values.type):
        for child in _children(values):
            yield from _dictionary_arrays(child)


def _children(values: pa.Array) -> list[pa.Array]:
    if pa.types.is_map(values.type):  # pyarrow does not flatten these
        return [values.keys, values.items]
    return values.flatten() if pa.types.is_struct(values.type) else [values.flatten()]


def _holds_dictionary(data_type: pa.DataType) -> bool:
    found = _storage_of(data_type)
    if pa.types.is_nested(found):
        return any(_holds_dictionary(field.type) for field in inner_fields(found))
    return bool(pa.types.is_dictionary(found))


def _damaged(root: Root, path: str, error: Exception) -> UnreadableFileError:
    return UnreadableFileError(
        f"{root.to_user_path(path)!r} is not readable as Parquet: {error}.\n"
        "Hint: restore the file, or move it out of the dataset if it is not data."
    )


Unit = Literal["us", "ns"]

_MAX_MICROS = np.iinfo(np.int64).max // 1000
_NO_KEY = np.iinfo(np.int64).min
"""A timestamp that no source has: numpy's "not a time", 292,000 years before Christ."""


def physical_types(schema: pa.parquet.ParquetSchema) -> tuple[str, ...]:
    """Return the physical type of each leaf column."""
    return tuple(schema.column(index).physical_type for index in range(len(schema)))


def int96_columns(schema: pa.Schema, physical: Sequence[str]) -> frozenset[str]:
    """Return the top-level columns that are INT96 or have INT96 inside."""
    if "INT96" not in physical:
        return frozenset()
    marked = with_int96_as(schema, physical, pa.null())
    return frozenset(
        old.name for old, new in zip(schema, marked, strict=True) if old.type != new.type
    )


def with_int96_as(schema: pa.Schema, physical: Sequence[str], data_type: pa.DataType) -> pa.Schema:
    """Return a schema with another type for INT96 columns, inside nested columns too.

    ``physical`` has the physical type of each leaf column.
    """
    if "INT96" not in physical:
        return schema
    leaves = iter(physical)
    return pa.schema([_retyped_field(f, leaves, data_type) for f in schema], schema.metadata)


def _retyped_field(field: pa.Field, leaves: Iterator[str], data_type: pa.DataType) -> pa.Field:
    found = _retyped(field.type, leaves, data_type)
    return field if found is field.type else field.with_type(found)


def _retyped(found: pa.DataType, leaves: Iterator[str], data_type: pa.DataType) -> pa.DataType:
    """Replace the type of INT96 leaves; return the same object if there are none."""
    if isinstance(found, pa.BaseExtensionType):
        _retyped(found.storage_type, leaves, data_type)
        return found
    if not pa.types.is_nested(found):
        return data_type if next(leaves) == "INT96" else found
    old = inner_fields(found)
    new = [_retyped_field(field, leaves, data_type) for field in old]
    if all(one is other for one, other in zip(old, new, strict=True)):
        return found
    return nested_like(found, new)


def inner_fields(data_type: pa.DataType) -> list[pa.Field]:
    """Return the fields of a nested type; of a map its key and its item."""
    if pa.types.is_map(data_type):
        return [data_type.key_field, data_type.item_field]
    return [data_type.field(number) for number in range(data_type.num_fields)]


def nested_like(found: pa.DataType, fields: Sequence[pa.Field]) -> pa.DataType:
    """Return a nested type of the same kind with other fields inside."""
    if pa.types.is_struct(found):
        return pa.struct(fields)
    if pa.types.is_map(found):
        return pa.map_(*fields, keys_sorted=found.keys_sorted)
    if pa.types.is_fixed_size_list(found):
        return pa.list_(fields[0], found.list_size)
    return (pa.large_list if pa.types.is_large_list(found) else pa.list_)(fields[0])


def has_nanoseconds(data_type: pa.DataType) -> bool:
    """Return whether a type is, or has inside, a timestamp in nanoseconds."""
    if pa.types.is_timestamp(data_type):
        return str(data_type.unit) == "ns"
    is_nested = pa.types.is_nested(data_type)
    return is_nested and any(has_nanoseconds(field.type) for field in inner_fields(data_type))


def finest_unit(decoded: Iterable[tuple[pa.Table, pa.Table]], wanted: Unit, where: str) -> Unit:
    """Return the unit in which INT96 values of a file lose nothing; ``wanted`` if both do.

    ``decoded`` has the INT96 columns of each row group, as microseconds and as nanoseconds.

    Raises:
        SchemaMismatchError: If one value has nanoseconds and another is out of their range.
    """
    finer: str | None = None
    wider: str | None = None
    for coarse, fine in decoded:
        for name in coarse.column_names:
            for micros, rest in _leaf_parts(coarse.column(name), fine.column(name)):
                finer = name if rest.any() else finer
                wider = name if (np.abs(micros) > _MAX_MICROS).any() else wider
    if finer is not None and wider is not None:
        raise SchemaMismatchError(
            f"{where!r} holds INT96 timestamps with nanoseconds (column {finer!r}) and others "
            f"before 1677 or after 2262 (column {wider!r}), which no Arrow type can store "
            "together.\nHint: rewrite the file with INT64 timestamps."
        )
    if wider is not None:
        return "us"
    return "ns" if finer is not None else wanted


def int96_unit(root: Root, path: str) -> Unit:
    """Return the unit in which the INT96 values of a file lose nothing; ``us`` if it has none.

    Raises:
        SchemaMismatchError: If there is no such unit.
    """
    with open_data_file(root, path) as coarse:
        found = int96_columns(coarse.schema_arrow, physical_types(coarse.schema))
        names = [name for name in coarse.schema_arrow.names if name in found]
        if not names:
            return "us"
        with open_data_file(root, path, int96_unit="ns") as fine:
            files = (coarse, fine)
            decoded = (
                (one.select(names), two.select(names))
                for number in range(coarse.num_row_groups)
                for one, two in [[f.read_row_group(number, columns=names) for f in files]]
            )
            return finest_unit(decoded, "us", root.to_user_path(path))


def has_instants(schema: pa.Schema) -> bool:
    """Return whether a column is, or has inside, an instant: only those may be INT96 in files."""
    return any(map(_is_instant, schema.types))


def _is_instant(data_type: pa.DataType) -> bool:
    if pa.types.is_timestamp(data_type):
        return data_type.tz is not None
    is_nested = pa.types.is_nested(data_type)
    return is_nested and any(_is_instant(field.type) for field in inner_fields(data_type))


def int96_keys(
    coarse: pa.ChunkedArray, fine: pa.ChunkedArray, data_type: pa.DataType
) -> pa.ChunkedArray:
    """Return INT96 values as keys of a timestamp type.

    A value outside the type equals no source key, because source keys are of the type. It becomes
    a timestamp that no source has.
    """
    micros = _numbers(coarse)
    rest = _numbers(fine) - micros * np.int64(1000)
    if data_type.unit == "ns":
        values = np.where(np.abs(micros) > _MAX_MICROS, _NO_KEY, micros * np.int64(1000) + rest)
    else:
        values = np.where(rest != 0, _NO_KEY, micros)
    nulls = np.asarray(coarse.is_null())
    return pa.chunked_array([pa.array(values, mask=nulls).view(data_type)])


def _leaf_parts(
    coarse: pa.ChunkedArray, fine: pa.ChunkedArray
) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield the microseconds, and the nanoseconds beyond them, of every INT96 leaf."""
    for one, other in zip(_leaves(coarse), _leaves(fine), strict=True):
        if one.type != other.type:  # only INT96 depends on how it is decoded
            micros = _numbers(one)
            yield micros, _numbers(other) - micros * np.int64(1000)


def _leaves(values: pa.ChunkedArray) -> Iterator[pa.ChunkedArray]:
    if pa.types.is_struct(values.type):
        for child in values.flatten():
            yield from _leaves(child)
    elif pa.types.is_map(values.type):
        for part in (part for chunk in values.chunks for part in (chunk.keys, chunk.items)):
            yield from _leaves(pa.chunked_array([part]))
    elif pa.types.is_nested(values.type):
        for chunk in values.chunks:
            yield from _leaves(pa.chunked_array([chunk.flatten()]))
    else:
        yield values


def _numbers(instants: pa.ChunkedArray) -> Numbers:
    return np.asarray(instants.cast(pa.int64()).fill_null(0).to_numpy(), np.int64)
