"""Columns of a file that are added, dropped, renamed or encoded again, while others are copied.

The chunks of other columns stay as they are; their schema elements, names and sort order go with
them. Metadata that describes the columns, which Arrow, pandas and Spark leave in a file, is brought
in line, or left out where that is not possible: readers believe it more than the schema.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from fsspeckit.core.parquet.format.layout import CannotSpliceError, columns_of
from fsspeckit.core.parquet.format.thrift import (
    BYTES,
    INT,
    Spec,
    decode,
    decode_field,
    encode,
    set_field,
)
from fsspeckit.core.parquet.splice.assembler import (
    ChunkStyle,
    FileShape,
    WriterStyle,
    encode_groups,
    encoded_layout,
    page_options,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fsspeckit.core.parquet.format.layout import Chunk, Column, FileLayout, Group, Read
    from fsspeckit.core.parquet.splice.assembler import EncodedChunk
    from fsspeckit.core.parquet.splice.writer_properties import WriterProperties

_ELEMENT: Final[Spec] = {4: BYTES, 5: INT}
_NAME, _CHILDREN = 4, 5
_BOOLEAN: Final = 0
_STATISTICS: Final = 12
_INTEGERS: Final = {1, 2}
_FLOATS: Final = {4, 5}
ARROW_SCHEMA: Final = b"ARROW:schema"
PANDAS: Final = b"pandas"
SPARK: Final = b"org.apache.spark.sql.parquet.row.metadata"


@dataclass(frozen=True)
class NewColumn:
    """A column of the new file."""

    field: pa.Field
    old: str | None
    """The column of the old file that has its values; None if all are NULL."""

    is_encoded: bool
    """Whether its values are encoded; if not, its chunks are copied."""


class ColumnSplice:
    """What becomes of the columns of one file.

    Args:
        layout: The old file.
        columns: Its columns.
        properties: How it was written.
        wanted: The columns of the new file, in their order.

    Raises:
        CannotSpliceError: If a column cannot be encoded, or metadata not be understood.
    """

    def __init__(
        self,
        layout: FileLayout,
        columns: Sequence[Column],
        properties: WriterProperties,
        wanted: Sequence[NewColumn],
    ) -> None:
        self._layout = layout
        self._properties = properties
        self._old = {column.name: column for column in columns}
        self.wanted = wanted
        self._new: dict[str, tuple[Column, FileLayout]] = {}
        for column in wanted:
            if column.is_encoded:
                found = encoded_layout(pa.schema([column.field]), properties, _types(properties))
                self._new[column.field.name] = columns_of(found.elements)[0], found
        self.leaves = self._find_leaves()
        self.shape = self._shape()

    def _find_leaves(self) -> dict[int, int]:
        """The new number of each leaf that keeps its sort order, by the old one."""
        found: dict[int, int] = {}
        start = 0
        for column in self.wanted:
            old = None if column.old is None else self._old[column.old]
            is_flat = old is not None and old.leaves == 1
            if old is not None and (not column.is_encoded or is_flat):
                found.update(zip(old.numbers, range(start, start + old.leaves), strict=True))
            start += self._column(column).leaves
        return found

    def _column(self, column: NewColumn) -> Column:
        """The column as it is in a footer: the new one's, or the old one's."""
        if column.is_encoded:
            return self._new[column.field.name][0]
        assert column.old is not None
        return self._old[column.old]

    def _shape(self) -> FileShape:
        elements = self._layout.elements
        root = decode(elements[0], _ELEMENT)[0]
        set_field(root, _CHILDREN, len(self.wanted))
        found = [encode(root)]
        orders: list[bytes] = []
        for column in self.wanted:
            layout = self._new[column.field.name][1] if column.is_encoded else self._layout
            known = self._column(column)
            start = known.first_element
            own = layout.elements[start : start + len(known.meaning)]
            found += [_named(own[0], column.field.name), *own[1:]]
            stated = layout.column_orders
            orders += [] if stated is None else [stated[number] for number in known.numbers]
        is_stated = self._layout.column_orders is not None
        return FileShape(found, orders if is_stated else None, self._key_values())

    def _key_values(self) -> dict[bytes, bytes | None]:
        pairs = decode_field(self._layout.footer, 5, [{1: BYTES, 2: BYTES}]) or ()
        found = {pair.values[1]: pair.values.get(2) for pair in pairs}
        return updated_key_values(found, self.wanted)

    def chunks(
        self, group: Group, values: Mapping[str, pa.ChunkedArray], read: Read
    ) -> list[Chunk | EncodedChunk]:
        """Return the chunks of a row group.

        Args:
            group: The old row group.
            values: The values of columns that are encoded and not all NULL, by new name.
            read: Reads bytes of the old file.
        """
        found: list[Chunk | EncodedChunk] = []
        pages = tuple(page_options(group.chunks, read).items()) if self._new else ()
        for column in self.wanted:
            name = column.field.name
            if not column.is_encoded:
                own = (group.chunks[number] for number in self._column(column).numbers)
                found += [chunk if name == column.old else _renamed(chunk, name) for chunk in own]
            elif name in values:
                table = pa.table([values[name]], schema=pa.schema([column.field]))
                found += self._encoded(table, self._style(column, group, pages))
            else:
                found += self._all_null(column, group, pages)
        return found

    def _all_null(
        self, column: NewColumn, group: Group, pages: tuple[tuple[str, Any], ...]
    ) -> list[EncodedChunk]:
        """The chunks of a column without values, which are the same wherever the rows are many."""
        options = self._style(column, group, pages).options(self._properties, group.rows)
        return list(_encode_nulls(column.field, group.rows, json.dumps(options, sort_keys=True)))

    def _encoded(self, table: pa.Table, style: WriterStyle) -> list[EncodedChunk]:
        options = style.options(self._properties, table.num_rows)
        if options["use_deprecated_int96_timestamps"]:
            raise CannotSpliceError("INT96 timestamps are not encoded again")
        return encode_groups([table], options)[0]

    def _style(
        self, column: NewColumn, group: Group, pages: tuple[tuple[str, Any], ...]
    ) -> WriterStyle:
        """How chunks are encoded: like those of the old column, or else like others."""
        new = self._column(column)
        old = {} if column.old is None else self._old_styles(column.old, group)
        other = next((style for style, _ in old.values()), None) or _common(group)
        styles = []
        for path, physical in zip(new.paths, new.physical, strict=True):
            known = old.get(path.removeprefix(column.field.name))
            if known is None:
                styles.append(_like_others(other, path, physical))
                continue
            style, before = known
            pairs = ({before, physical}, _INTEGERS), ({before, physical}, _FLOATS)
            fits = before == physical or any(pair <= group for pair, group in pairs)
            styles.append(replace(style, path=path, encoding=style.encoding if fits else None))
        return WriterStyle((new,), tuple(styles), pages)

    def _old_styles(self, name: str, group: Group) -> dict[str, tuple[ChunkStyle, int]]:
        """The style and physical type of each leaf, by what follows the column in its path."""
        column = self._old[name]
        chunks = [group.chunks[number] for number in column.numbers]
        styles = map(ChunkStyle.of, chunks, column.lengths)
        return {
            style.path.removeprefix(name): (style, physical)
            for style, physical in zip(styles, column.physical, strict=True)
        }


@lru_cache(maxsize=64)
def _encode_nulls(field: pa.Field, rows: int, options: str) -> tuple[EncodedChunk, ...]:
    """Encode a column without values; the files of a dataset have many alike."""
    table = pa.table([pa.nulls(rows, field.type)], schema=pa.schema([field]))
    return tuple(encode_groups([table], json.loads(options))[0])


def _types(properties: WriterProperties) -> dict[str, bool]:
    """Options about the physical types of columns that are encoded; INT96 is not among them."""
    as_integer = bool(properties.options.get("store_decimal_as_integer"))
    return {"store_decimal_as_integer": as_integer, "use_deprecated_int96_timestamps": False}


def _common(group: Group) -> ChunkStyle:
    """The style of the first chunk, with statistics and page index if any chunk has them."""
    return replace(
        ChunkStyle.of(group.chunks[0]),
        has_statistics=any(_STATISTICS in chunk.metadata.kinds for chunk in group.chunks),
        has_page_index=any(chunk.offset_index is not None for chunk in group.chunks),
    )


def _like_others(style: ChunkStyle, path: str, physical: int) -> ChunkStyle:
    return replace(
        style, path=path, has_dictionary=physical != _BOOLEAN, encoding=None, has_bloom=False
    )


def _named(element: bytes, name: str) -> bytes:
    struct = decode(element, _ELEMENT)[0]
    set_field(struct, _NAME, name.encode())
    return encode(struct)


def _renamed(chunk: Chunk, name: str) -> Chunk:
    """Return a chunk of a column with another name; its bytes do not know the name."""
    struct, metadata = chunk.struct.copy(), chunk.metadata.copy()
    metadata.values[3] = [name.encode(), *metadata.values[3][1:]]
    struct.values[3] = metadata
    return replace(chunk, struct=struct)


# Metadata that describes columns


def updated_key_values(
    found: Mapping[bytes, bytes | None], wanted: Sequence[NewColumn]
) -> dict[bytes, bytes | None]:
    """Return the metadata of a file for its new columns."""
    updates = {ARROW_SCHEMA: _arrow_schema, PANDAS: update_pandas, SPARK: _spark_schema}
    made = dict(found)
    for key, update in updates.items():
        if (value := found.get(key)) is not None:
            new = update(value, wanted)
            if new is None:
                del made[key]
            else:
                made[key] = new
    return made


def _arrow_schema(value: bytes, wanted: Sequence[NewColumn]) -> bytes:
    try:
        stored = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value)))
        fields = [
            column.field
            if column.is_encoded
            else stored.field(column.old).with_name(column.field.name)
            for column in wanted
        ]
    except (pa.ArrowException, ValueError, KeyError, OSError) as error:
        raise CannotSpliceError(f"its Arrow schema cannot be understood: {error}") from error
    metadata = dict(stored.metadata or {})
    if PANDAS in metadata:
        new = update_pandas(metadata.pop(PANDAS), wanted)
        metadata |= {} if new is None else {PANDAS: new}
    schema = pa.schema(fields, metadata or None)
    return base64.b64encode(memoryview(schema.serialize()))


def update_pandas(value: bytes, wanted: Sequence[NewColumn]) -> bytes | None:
    """Return what pandas knows of the columns; None if that cannot be understood.

    A column that is encoded is left out, so that pandas takes it as Arrow has it; unless it is an
    index, which must be described.
    """
    by_old = {one.old: one for one in wanted if one.old is not None}
    try:
        about = json.loads(value)
        given = about["index_columns"]
        indexes = [one for one in given if not isinstance(one, str) or one in by_old]
        named = [one for one in indexes if isinstance(one, str)]
        columns = []
        for one in about["columns"]:
            column = by_old.get(one.get("field_name", one["name"]))
            if column is not None and (not column.is_encoded or column.old in named):
                columns.append(_pandas_column(one, column))
        about["columns"] = columns
        about["index_columns"] = [
            by_old[one].field.name if isinstance(one, str) else one for one in indexes
        ]
    except (ValueError, KeyError, TypeError, AttributeError, NotImplementedError):
        return None
    return json.dumps(about).encode()


def _pandas_column(known: dict[str, Any], column: NewColumn) -> dict[str, Any]:
    made = dict(known)
    if known["name"] == column.old:
        made["name"] = column.field.name
    if "field_name" in known:
        made["field_name"] = column.field.name
    if column.is_encoded:
        kind = column.field.type
        made |= {"pandas_type": str(kind), "numpy_type": str(np.dtype(kind.to_pandas_dtype()))}
    return made


def _spark_schema(value: bytes, wanted: Sequence[NewColumn]) -> bytes | None:
    """Return Spark's own schema; None if it cannot name a type, so that Spark asks the footer."""
    try:
        about = json.loads(value)
        known = {one["name"]: one for one in about["fields"]}
        fields: list[dict[str, Any]] = []
        for column in wanted:
            if column.old is not None and not column.is_encoded:
                fields.append({**known[column.old], "name": column.field.name})
                continue
            kind = _spark_type(column.field.type)
            if kind is None:
                return None
            nullable = column.field.nullable
            new = {"name": column.field.name, "type": kind, "nullable": nullable, "metadata": {}}
            fields.append(new)
        about["fields"] = fields
    except (ValueError, KeyError, TypeError):
        return None
    return json.dumps(about, separators=(",", ":")).encode()


_SPARK_TYPES: Final = {
    "bool": "boolean",
    "int8": "byte",
    "int16": "short",
    "int32": "integer",
    "int64": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "large_string": "string",
    "binary": "binary",
    "large_binary": "binary",
    "date32[day]": "date",
}
_MAX_SPARK_PRECISION: Final = 38


def _spark_type(data_type: pa.DataType) -> str | None:
    """Return Spark's name of a type that is not nested; None for all others."""
    if pa.types.is_decimal(data_type) and data_type.precision <= _MAX_SPARK_PRECISION:
        return f"decimal({data_type.precision},{data_type.scale})"
    if pa.types.is_timestamp(data_type) and data_type.unit != "ns":
        return "timestamp_ntz" if data_type.tz is None else "timestamp"
    return _SPARK_TYPES.get(str(data_type))
