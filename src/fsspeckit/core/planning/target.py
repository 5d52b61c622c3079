"""The target as planning sees it: its files, their footers and partitions, its key columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fsspeckit.core.keys.canonical import KeyColumn, check_names, key_column
from fsspeckit.core.keys.casts import common_type, family, plain_type
from fsspeckit.core.planning.footers import FileFooter, read_footers
from fsspeckit.core.planning.hive_partitions import (
    check_spelling,
    detect_partition_columns,
    parse_hive_partition_path,
    typed_values,
)
from fsspeckit.core.planning.pruning import PartitionValues
from fsspeckit.core.shared_types import known_schema, known_type
from fsspeckit.errors import InvalidArgumentError, SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fsspeckit.core.planning.footers import FooterReader
    from fsspeckit.storage.listing import DataFile
    from fsspeckit.storage.roots import Root

__all__ = ["Target", "partition_values", "read_target"]


@dataclass(frozen=True)
class Target:
    """A dataset, known by its paths and footers."""

    root: Root
    footers: tuple[FileFooter, ...]
    key_columns: tuple[KeyColumn, ...]
    partition_columns: tuple[KeyColumn, ...]
    """How partition values are compared, outermost first."""

    partition_texts: tuple[dict[str, str | None], ...]
    """The values in each file's path."""

    partitions: Mapping[str, PartitionValues]
    """The same, typed, by column."""

    types: pa.Schema
    """The columns that files store, each with the type of the first file that knows one; where
    none does, that of the source."""

    @property
    def rows(self) -> int:
        """The rows of all files."""
        return sum(footer.rows for footer in self.footers)

    def unknown_partitions(self) -> set[int]:
        """The files, by number, whose partition values are no values of their types."""
        return {
            number
            for values in self.partitions.values()
            for number, known in enumerate(values.known)
            if not known
        }

    def other_types(self) -> dict[str, tuple[pa.DataType, ...]]:
        """The types that a column has in some files, where not all have that of ``types``."""
        found: dict[str, list[pa.DataType]] = {}
        for schema in _schemas(self.footers):
            for field, kind in zip(self.types, _types_of(schema, self.types), strict=True):
                known = found.setdefault(field.name, [field.type])
                if kind not in known:
                    known.append(kind)
        return {name: tuple(rest) for name, (_, *rest) in found.items() if rest}

    @property
    def key_holds_partitions(self) -> bool:
        """Whether the key says in which partition a row is."""
        return {c.name for c in self.partition_columns} <= {c.name for c in self.key_columns}


def read_target(
    root: Root,
    files: Sequence[DataFile],
    key_columns: Sequence[str],
    schema: pa.Schema | None = None,
    partition_columns: Sequence[str] | None = None,
    read: FooterReader = read_footers,
) -> Target:
    """Read what planning needs to know of a dataset.

    Args:
        root: Where the dataset is.
        files: Its data files.
        key_columns: The key columns.
        schema: The source's schema, or as much of it as is known: it types partition values.
        partition_columns: What the caller says the partition columns are.
        read: Reads footers; an engine may have other processes do it.

    Raises:
        InvalidArgumentError: If the caller's partition columns are not those of the paths.
        SchemaMismatchError: If the key columns of the files cannot be compared.
        UnsupportedLayoutError: If the files disagree about the partition columns.
    """
    if key_columns:  # a write has none
        check_names("key_columns", key_columns)
    if partition_columns:
        check_names("partition_columns", partition_columns)
    relative = [root.relative(file.path) for file in files]
    check_spelling(relative)
    detected = _agreed(detect_partition_columns(relative), partition_columns, bool(files))
    footers = tuple(read(root, files, dict.fromkeys((*key_columns, *detected))))
    texts = tuple(parse_hive_partition_path(path) for path in relative)
    parts = tuple(key_column(name, _partition_type(name, schema)) for name in detected)
    return Target(
        root,
        footers,
        tuple(_key_column(name, footers, parts, schema) for name in key_columns),
        parts,
        texts,
        {part.name: partition_values(part, texts) for part in parts},
        _types(footers, schema),
    )


def _types(footers: Sequence[FileFooter], source: pa.Schema | None) -> pa.Schema:
    found = list(_schemas(footers)) or [pa.schema([])]
    return known_schema(*found, *([] if source is None else [source]))


def _schemas(footers: Iterable[FileFooter]) -> Iterable[pa.Schema]:
    """The schemas of files; many files share one."""
    return {id(f.schema): f.schema for f in footers if f.error is None}.values()


def _types_of(schema: pa.Schema, columns: pa.Schema) -> list[pa.DataType]:
    """The types of columns in a file, NULL of no type as elsewhere."""
    kinds = dict(zip(schema.names, schema.types, strict=True))
    return [known_type(kinds.get(field.name, field.type), field.type) for field in columns]


def partition_values(
    column: KeyColumn, texts: Sequence[Mapping[str, Any] | None]
) -> PartitionValues:
    """Type the values of a partition column; one that a file does not have is unknown."""
    found = [text.get(column.name) if text is not None else None for text in texts]
    spelled = [value if value is None else str(value) for value in found]
    values, known = typed_values(spelled, column.type)
    there = [text is not None and column.name in text for text in texts]
    return PartitionValues(values, [a and b for a, b in zip(known, there, strict=True)])


def _agreed(
    detected: tuple[str, ...], given: Sequence[str] | None, has_files: bool
) -> tuple[str, ...]:
    if given is None:
        return detected
    if has_files and tuple(given) != detected:
        raise InvalidArgumentError(
            f"partition_columns is {list(given)!r}, but the dataset is partitioned by "
            f"{list(detected)!r}.\nHint: leave partition_columns out to use the dataset's own."
        )
    return tuple(given)


def _partition_type(name: str, schema: pa.Schema | None) -> pa.DataType:
    if schema is not None and name in schema.names:
        return schema.field(name).type
    return pa.string()


def _key_column(
    name: str,
    footers: Sequence[FileFooter],
    partitions: Sequence[KeyColumn],
    schema: pa.Schema | None,
) -> KeyColumn:
    """How a key column is compared: as the type that holds the values of all files."""
    for part in partitions:
        if part.name == name:
            return part
    stored = {footer.leaves[name].type for footer in footers if name in footer.leaves}
    if not stored:
        _check_exists(name, footers)
    _check_nowhere_nested(name, footers)
    if _is_int96_everywhere(name, footers):
        # INT96 has nanoseconds where the source has; rows that Arrow cannot hold then never match.
        stored.add(_source_instant(name, schema))
    try:
        shared = reduce(common_type, sorted(stored, key=str), pa.null())
        # Where no file holds a value any type does, so that of the source.
        return key_column(name, _source_type(name, schema) if pa.types.is_null(shared) else shared)
    except SchemaMismatchError as error:
        types = ", ".join(sorted(map(str, stored)))
        raise SchemaMismatchError(
            f"the key column {name!r} has types in the target's files that cannot be compared "
            f"with each other: {types}.\nHint: rewrite the files that have the wrong type."
        ) from error


def _source_type(name: str, schema: pa.Schema | None) -> pa.DataType:
    known = schema is not None and name in schema.names
    return schema.field(name).type if known and schema else pa.null()


def _is_int96_everywhere(name: str, footers: Sequence[FileFooter]) -> bool:
    leaves = [footer.leaves[name] for footer in footers if name in footer.leaves]
    return bool(leaves) and all(leaf.physical == "INT96" for leaf in leaves)


def _source_instant(name: str, schema: pa.Schema | None) -> pa.DataType:
    kind = plain_type(_source_type(name, schema))
    return kind if family(kind) == "timestamp with zone" else pa.null()


def _check_nowhere_nested(name: str, footers: Sequence[FileFooter]) -> None:
    """Refuse a key column that some file has with something inside."""
    for footer in footers:
        is_nested = name not in footer.leaves and name in footer.schema.names
        if footer.error is None and is_nested:
            raise SchemaMismatchError(
                f"the key column {name!r} is {footer.schema.field(name).type} in "
                f"{footer.file.path!r}, and cannot be compared with the other files.\n"
                "Hint: rewrite the files that have the wrong type."
            )


def _check_exists(name: str, footers: Sequence[FileFooter]) -> None:
    """Refuse a key column that no readable file has, or has as a nested column."""
    for footer in footers:
        if footer.error is not None:
            continue
        if name in footer.schema.names:
            key_column(name, footer.schema.field(name).type)
        raise InvalidArgumentError.missing_columns("key_columns", [name], footer.schema.names)
