"""Hypothesis strategies: values, columns, schemas, and whole datasets with a source to merge.

Values are chosen to meet, not to be many: keys come from domains of a few values, so that source
and target share keys, keep others to themselves and repeat some, within a dozen rows. Each domain
mixes small values, which shrink well, with the edges of its type.

Values are *raw*: what ``pa.array(values, type)`` takes. For dates and timestamps that is an
integer, because Python's own types cannot express nanoseconds.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from hypothesis import strategies as st

from fsspeckit.testing.model_source import values_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hypothesis.strategies import DrawFn, SearchStrategy

__all__ = [
    "COLUMN_NAMES",
    "KEY_TYPES",
    "PARTITION_NAMES",
    "PARTITION_STRINGS",
    "PARTITION_TYPES",
    "PAYLOAD_TYPES",
    "DatasetSchema",
    "GeneratedDataset",
    "arrays",
    "dataset_schemas",
    "datasets",
    "partition_values",
    "source_keys",
    "tables",
    "values",
]

KEY_TYPES: tuple[pa.DataType, ...] = (
    *(pa.int64(), pa.int32(), pa.int16(), pa.int8()),
    *(pa.uint64(), pa.uint32(), pa.uint16(), pa.uint8()),
    *(pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())),
    *(pa.binary(), pa.binary(16), pa.bool_(), pa.date32()),
    *(pa.decimal128(digits, scale) for digits, scale in [(9, 0), (9, 2), (18, 4), (38, 0)]),
    *(pa.decimal128(digits, scale) for digits, scale in [(18, 18), (38, 10)]),
    *(pa.timestamp(unit, zone) for zone in (None, "UTC") for unit in ("s", "ms", "us", "ns")),
    *(pa.float64(), pa.float32()),
)
"""Every type a key column may have."""

PAYLOAD_TYPES: tuple[pa.DataType, ...] = (
    *(pa.int32(), pa.string(), pa.float64(), pa.bool_(), pa.binary()),
    *(pa.decimal128(9, 2), pa.timestamp("us"), pa.timestamp("us", "UTC")),
    pa.struct([("a", pa.int32()), ("b", pa.string())]),
    pa.list_(pa.int32()),
    pa.map_(pa.string(), pa.int64()),
    pa.list_(pa.struct([("x", pa.list_(pa.string())), ("id", pa.int64())])),
)
"""Types of columns that are neither key nor partition."""

PARTITION_TYPES: tuple[pa.DataType, ...] = (pa.int32(), pa.string(), pa.date32(), pa.bool_())
"""Types of partition columns."""

COLUMN_NAMES = (
    *("id", "k", "v", "value", "Mixed", "two words", "with.dot", "it's", 'say "hi"', "größe"),
    *("キー", "😀", "__fsspeckit_position", "__fsspeckit__", "select", "`tick`", "a,b", "50%"),
    *("a/b", "x=y", " padded ", "element", "list", "col[0]", "back\\slash", "1", "semi;colon"),
    *(".x", "x", ".", "..", "[0]", ".with[0]"),
)
"""Names of columns inside files, plain ones first. None differs from another by case alone."""

PARTITION_NAMES = ("p", "day", "region code", "p.q", "größe2")
"""Names of partition columns; a leading ``_`` or ``.`` would hide the directory."""

PARTITION_STRINGS = (
    *("a", "b", "a b", "a/b", "k=v", "100%", "%41", "ünï", "😀", "a.b", "..", ".hidden", "_x"),
    *("007", "7", "-1", "1e5", "true", "False", "NULL", "nan", "2024-01-01", "it's", 'q"', "a+b"),
)
"""Partition values that directories spell in several ways, or that look like another type."""

_Row = dict[str, Any]
_RARELY_NONE = st.integers(0, 7).map(lambda number: min(number, 1))  # rows: none shrinks best

_SECONDS = (-62_135_596_800, 253_402_300_799)  # the years 1 to 9999
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_LONG = "x" * 70  # beyond the 64 bytes to which some writers cut the bounds of a row group
_STRINGS = ("", "a", "b", "ab", "B", "ä", "\uffff", "😀", "'", "a b", _LONG, _LONG + "a", "007")


def _integer_bounds(type_: pa.DataType) -> tuple[int, int]:
    """Return the least and the greatest raw value of a type whose raw values are integers."""
    if pa.types.is_date32(type_):
        return _SECONDS[0] // 86_400, _SECONDS[1] // 86_400
    if pa.types.is_timestamp(type_):
        # Nanoseconds leave their 64 bits before the calendar ends; the lowest number is NaT.
        low, high = (bound * _PER_SECOND[type_.unit] for bound in _SECONDS)
        return max(low, -(2**63) + 1), min(high, 2**63 - 1)
    if pa.types.is_decimal(type_):
        return 1 - 10**type_.precision, 10**type_.precision - 1
    if pa.types.is_signed_integer(type_):
        return -(2 ** (type_.bit_width - 1)), 2 ** (type_.bit_width - 1) - 1
    return 0, 2**type_.bit_width - 1


def _has_integers(type_: pa.DataType) -> bool:
    is_time = pa.types.is_date32(type_) or pa.types.is_timestamp(type_)
    return bool(is_time or pa.types.is_integer(type_) or pa.types.is_decimal(type_))


def _from_integer(number: int, type_: pa.DataType) -> int | Decimal:
    if not pa.types.is_decimal(type_):
        return number
    # Not by arithmetic: that rounds to the 28 digits of the current context.
    digits = tuple(int(digit) for digit in str(abs(number)))
    return Decimal((int(number < 0), digits, -type_.scale))


def _to_integer(value: int | Decimal) -> int:
    if isinstance(value, int):
        return value
    sign, digits, _ = value.as_tuple()
    return int("".join(map(str, digits))) * (-1 if sign else 1)


def _integers(type_: pa.DataType) -> SearchStrategy[Any]:
    low, high = _integer_bounds(type_)
    small = st.integers(max(low, -3), min(high, 3))
    edges = st.sampled_from([low, low + 1, high - 1, high])
    return (small | edges).map(lambda number: _from_integer(number, type_))


def _floats(width: Literal[32, 64]) -> SearchStrategy[float]:
    special = [0.0, 1.0, -1.0, -0.0, math.nan, math.inf, -math.inf]
    return st.sampled_from(special) | st.floats(width=width)


def _bytes(type_: pa.DataType) -> SearchStrategy[bytes]:
    if pa.types.is_fixed_size_binary(type_):
        size = type_.byte_width
        ends = st.sampled_from([bytes(1), b"\1", b"\x7f", b"\x80", b"\xff"])
        return st.builds(lambda first, last: first * (size - 1) + last, ends, ends)
    return st.sampled_from([b"", b"\0", b"a", b"\xff", b"\xff\xff", b"\x80" * 70]) | st.binary(
        max_size=2
    )


def values(type_: pa.DataType) -> SearchStrategy[Any]:
    """Draw raw values of ``type_`` other than NULL; inside nested ones NULL does occur."""
    if _has_integers(type_):
        return _integers(type_)
    if pa.types.is_floating(type_):
        return _floats(32 if type_.bit_width == 32 else 64)
    if pa.types.is_boolean(type_):
        return st.booleans()
    if pa.types.is_dictionary(type_):
        return values(type_.value_type)
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return st.sampled_from(_STRINGS) | st.text("abc", max_size=3)
    return _nested_values(type_) if type_.num_fields else _bytes(type_)


def _nested_values(type_: pa.DataType) -> SearchStrategy[Any]:
    if pa.types.is_struct(type_):
        return st.fixed_dictionaries({f.name: st.none() | values(f.type) for f in type_.fields})
    if pa.types.is_map(type_):
        pairs = st.tuples(values(type_.key_type), st.none() | values(type_.item_type))
        return st.lists(pairs, max_size=2, unique_by=lambda pair: pair[0])
    return st.lists(st.none() | values(type_.value_type), max_size=2)


def arrays(type_: pa.DataType, count: int, *, nulls: bool = True) -> SearchStrategy[pa.Array]:
    """Draw arrays of ``count`` values, NULL among them unless ``nulls`` is false."""
    items = st.none() | values(type_) if nulls else values(type_)
    return st.lists(items, min_size=count, max_size=count).map(lambda raw: pa.array(raw, type_))


def partition_values(type_: pa.DataType) -> SearchStrategy[Any]:
    """Draw raw partition values other than NULL: no empty strings, and awkward ones instead."""
    return st.sampled_from(PARTITION_STRINGS) if pa.types.is_string(type_) else values(type_)


def source_keys(column: pa.Array | pa.ChunkedArray) -> SearchStrategy[pa.Array]:
    """Draw keys to look for in ``column``: its values, their neighbours, and any others.

    The neighbours of the least and the greatest value are the ones around which a comparison with
    the statistics of a row group goes wrong.
    """
    present = _raw(column)
    near = [other for value in present for other in _neighbours(value, column.type)]
    items = values(column.type)
    if present:
        items = st.sampled_from(present) | st.sampled_from(near or present) | items
    return st.lists(items, max_size=4).map(lambda raw: pa.array(raw, column.type))


def _raw(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    type_ = column.type
    if pa.types.is_timestamp(type_) or pa.types.is_date32(type_):
        column = column.cast(pa.int64() if type_.bit_width == 64 else pa.int32())
    return [value for value in column.to_pylist() if value is not None]


def _neighbours(value: Any, type_: pa.DataType) -> list[Any]:
    if _has_integers(type_):
        low, high = _integer_bounds(type_)
        number = _to_integer(value)
        near = (number - 1, number + 1)
        return [_from_integer(other, type_) for other in near if low <= other <= high]
    if pa.types.is_floating(type_):
        native = np.float32 if type_.bit_width == 32 else np.float64
        with np.errstate(all="ignore"):  # the neighbour of the greatest number is infinity
            return [float(np.nextafter(native(value), native(to))) for to in (-math.inf, math.inf)]
    if pa.types.is_boolean(type_):
        return [not value]
    if pa.types.is_fixed_size_binary(type_):
        return [value[:-1] + bytes([(value[-1] + step) % 256]) for step in (-1, 1)]
    return [value[:-1], value + (b"\0" if isinstance(value, bytes) else "\0")]


@dataclass(frozen=True)
class DatasetSchema:
    """The columns of a dataset and the part they play."""

    schema: pa.Schema
    key_columns: tuple[str, ...]
    partition_columns: tuple[str, ...] = ()
    """May overlap with the key columns."""


@st.composite
def dataset_schemas(
    draw: DrawFn,
    *,
    key_types: Sequence[pa.DataType] = KEY_TYPES,
    payload_types: Sequence[pa.DataType] = PAYLOAD_TYPES,
    max_keys: int = 3,
    partitioned: bool | None = None,
) -> DatasetSchema:
    """Draw one to ``max_keys`` key columns, a few others and perhaps partition columns."""
    keys = draw(st.lists(st.sampled_from(key_types), min_size=1, max_size=max_keys))
    payload = draw(st.lists(st.sampled_from(payload_types), max_size=3))
    types = [*keys, *payload]
    count = len(types)
    names = draw(
        st.lists(st.sampled_from(COLUMN_NAMES), min_size=count, max_size=count, unique=True)
    )
    if partitioned is None:
        partitioned = draw(st.booleans())
    parts: list[pa.Field] = []
    if partitioned:
        parts = draw(
            st.lists(
                st.builds(
                    pa.field, st.sampled_from(PARTITION_NAMES), st.sampled_from(PARTITION_TYPES)
                ),
                min_size=1,
                max_size=2,
                unique_by=lambda field: field.name,
            )
        )
    fields = [*map(pa.field, names, types), *parts]
    in_key = [field.name for field in parts if draw(st.booleans())]
    return DatasetSchema(
        pa.schema(draw(st.permutations(fields))),
        (*names[: len(keys)], *in_key),
        tuple(field.name for field in parts),
    )


@dataclass(frozen=True, repr=False)
class GeneratedDataset:
    """A target and a source for it, of one schema."""

    schema: pa.Schema
    key_columns: tuple[str, ...]
    partition_columns: tuple[str, ...]
    files: list[pa.Table]
    """The rows of each data file with all columns; partition columns are constant in each."""

    source: pa.Table
    row_group_size: int

    @property
    def target(self) -> pa.Table:
        """All rows of the dataset."""
        return pa.concat_tables([self.schema.empty_table(), *self.files])

    def write(self, directory: str | os.PathLike[str]) -> list[str]:
        """Write every file below ``directory`` with pyarrow; return their paths in order."""
        paths = []
        for number, table in enumerate(self.files):
            folder = os.path.join(directory, _hive_directory(table, self.partition_columns))
            os.makedirs(folder, exist_ok=True)
            paths.append(os.path.join(folder, f"part-{number}.parquet"))
            inside = table.drop_columns(list(self.partition_columns))
            pq.write_table(inside, paths[-1], row_group_size=self.row_group_size)
        return paths

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name!r}: {field.type}" for field in self.schema)
        files = "".join(f"\n    {table.to_pylist()}" for table in self.files)
        return (
            f"GeneratedDataset({columns}; keys {list(self.key_columns)}, partitions "
            f"{list(self.partition_columns)}, {self.row_group_size} rows per row group\n"
            f"  files:{files}\n  source: {self.source.to_pylist()})"
        )


def _hive_directory(table: pa.Table, partition_columns: Sequence[str]) -> str:
    """Return the directory of a file, as pyarrow spells it."""
    if not partition_columns:
        return ""
    fields = [table.schema.field(name) for name in partition_columns]
    place = pc.scalar(True)
    for field in fields:
        value = table[field.name][0]
        column = pc.field(field.name)
        place &= (column == value) if value.is_valid else column.is_null()
    return str(pads.partitioning(pa.schema(fields), flavor="hive").format(place)[0])


def tables(
    shape: DatasetSchema,
    domains: Mapping[str, SearchStrategy[Any]],
    *,
    min_rows: int = 0,
    max_rows: int = 8,
    unique: bool = False,
) -> SearchStrategy[pa.Table]:
    """Draw tables of a schema, some of whose columns take their values from a domain.

    Args:
        shape: The columns to fill.
        domains: Where the raw values of a column come from; others are any values of their type.
        min_rows: The least number of rows.
        max_rows: The greatest number of rows.
        unique: Whether a key occurs at most once.
    """
    rows = _rows(shape, domains, min_rows, max_rows, unique)
    return rows.map(lambda drawn: _table(drawn, shape.schema))


def _rows(
    shape: DatasetSchema,
    domains: Mapping[str, SearchStrategy[Any]],
    min_rows: int,
    max_rows: int,
    unique: bool,
) -> SearchStrategy[list[_Row]]:
    columns = {
        field.name: domains.get(field.name, st.none() | values(field.type))
        for field in shape.schema
    }
    return st.lists(
        st.fixed_dictionaries(columns),
        min_size=min_rows,
        max_size=max_rows,
        unique_by=(lambda row: _key(row, shape)) if unique else None,
    )


def _table(rows: Sequence[_Row], schema: pa.Schema) -> pa.Table:
    columns = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


@st.composite
def datasets(
    draw: DrawFn,
    shapes: SearchStrategy[DatasetSchema] | None = None,
    *,
    max_rows: int = 8,
    null_source_keys: bool = False,
    duplicate_source_keys: bool = False,
    moving_keys: bool = False,
) -> GeneratedDataset:
    """Draw a dataset of a few files, each of a few row groups, and a source for it.

    Target keys repeat and may be NULL. Some source rows equal the target's in every column.

    Args:
        draw: Given by Hypothesis.
        shapes: The schemas to draw from; any by default.
        max_rows: The greatest number of rows of the target, and of the source.
        null_source_keys: Whether source keys may be NULL.
        duplicate_source_keys: Whether a source key may occur more than once.
        moving_keys: Whether a key may have one partition here and another there.
    """
    shape = draw(dataset_schemas() if shapes is None else shapes)
    few = {name: draw(_few_values(shape, name)) for name in _placing_columns(shape)}
    nullable = {name: st.sampled_from([*domain, None]) for name, domain in few.items()}
    strict = {name: st.sampled_from(few[name]) for name in shape.key_columns}
    # A partition exists by its rows, while a file without any is an ordinary file elsewhere.
    least = 1 if shape.partition_columns else draw(_RARELY_NONE)
    target = draw(_rows(shape, nullable, least, max_rows, False))
    domains = nullable if null_source_keys else {**nullable, **strict}
    source = draw(_rows(shape, domains, draw(_RARELY_NONE), max_rows, False))
    known = [row for row in target if null_source_keys or None not in _key(row, shape)]
    source = draw(_meeting(source, known, shape))
    if not duplicate_source_keys:
        source = list({_key(row, shape): row for row in source}.values())
    if not moving_keys:
        _settle([*target, *source], shape)
    files = draw(_split(target, shape))
    return GeneratedDataset(
        shape.schema,
        shape.key_columns,
        shape.partition_columns,
        [_table(rows, shape.schema) for rows in files],
        _table(source, shape.schema),
        draw(st.integers(1, 3)),
    )


def _key(row: _Row, shape: DatasetSchema) -> tuple[Any, ...]:
    return values_of(row, shape.key_columns)


def _placing_columns(shape: DatasetSchema) -> list[str]:
    return list(dict.fromkeys((*shape.key_columns, *shape.partition_columns)))


def _few_values(shape: DatasetSchema, name: str) -> SearchStrategy[list[Any]]:
    type_ = shape.schema.field(name).type
    items = partition_values(type_) if name in shape.partition_columns else values(type_)
    return st.lists(items, min_size=1, max_size=4)


@st.composite
def _meeting(
    draw: DrawFn, source: list[_Row], target: list[_Row], shape: DatasetSchema
) -> list[_Row]:
    """Give some source rows the key of a target row, and to some of those all its values.

    Composite keys would seldom meet otherwise.
    """
    rows = []
    for row in source:
        how = draw(st.sampled_from(["as it is", "same key", "same row"])) if target else "as it is"
        names = {"as it is": (), "same key": shape.key_columns, "same row": shape.schema.names}[how]
        old = draw(st.sampled_from(target)) if names else row
        rows.append({**row, **{name: old[name] for name in names}})
    return rows


def _settle(rows: list[_Row], shape: DatasetSchema) -> None:
    """Give all rows of a key the partition of the first."""
    first_rows: dict[Any, _Row] = {}
    for row in rows:
        first = first_rows.setdefault(_key(row, shape), row)
        row.update({name: first[name] for name in shape.partition_columns})


@st.composite
def _split(draw: DrawFn, rows: list[_Row], shape: DatasetSchema) -> list[list[_Row]]:
    """Spread rows over at most three files per partition."""
    files: dict[Any, list[_Row]] = {} if rows else {(): []}
    for row in rows:
        number = draw(st.integers(0, 2))
        files.setdefault((number, values_of(row, shape.partition_columns)), []).append(row)
    return list(files.values())
