"""Schema changes: new columns and wider types, and what becomes of the columns of each file.

A type may only become one that holds every value of it: integers and floats with more bits,
decimals with more digits on either side, integers as floats or decimals that hold them exactly,
finer units of time, structs with more fields. An int64 does not fit a double. A date does not
become a timestamp, a naive timestamp not one with a zone, and a string not a binary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from fsspeckit.core.arrow_compat import (
    check_storable,
    inner_fields,
    nested_like,
    widen_dictionary_indices,
    without_views,
)
from fsspeckit.core.keys import as_names, check_names, family, plain_type
from fsspeckit.core.schema_conform import check_same_columns, resolve_null_type
from fsspeckit.errors import Argument, Call, InvalidArgumentError, SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

SchemaChanges = Literal["refuse", "add", "widen"]
SCHEMA_CHANGES: tuple[SchemaChanges, ...] = ("refuse", "add", "widen")
"""What a source may change about the columns of a dataset; ``widen`` includes ``add``."""

ChangeKind = Literal[
    "added", "widened", "dropped", "renamed", "moved", "made nullable", "made required"
]

_UNITS = ("s", "ms", "us", "ns")
_MANTISSA_BITS = {16: 11, 32: 24, 64: 53}
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
_MAX_DECIMAL128, _MAX_DECIMAL256 = 38, 76


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """What becomes of one column; ``str()`` says it in words."""

    column: str
    """The column, by the name it has afterwards; one that is dropped by the name it had."""

    kind: ChangeKind
    """What is done to it."""

    before: str | None = None
    """The type that it had, or the name if it is renamed."""

    after: str | None = None
    """The type that it gets, or the name if it is renamed."""

    def __str__(self) -> str:
        if self.kind == "renamed":
            return f"{self.before!r} renamed to {self.after!r}"
        if self.kind == "widened":
            return f"{self.column!r} widened from {self.before} to {self.after}"
        return f"{self.column!r} {self.kind}" + (f" as {self.after}" if self.after else "")


@dataclass(frozen=True)
class FileColumn:
    """A column that a file has afterwards, and where its values come from."""

    field: pa.Field
    old: str | None
    """The column of the file that has them; None if the file has none, so that all are NULL."""

    is_encoded: bool
    """Whether they are stored as another type, or nullable now, so that bytes cannot be copied."""


@dataclass(frozen=True)
class Evolution:
    """The columns that all files have afterwards."""

    schema: pa.Schema
    """The columns in their order; INT96 timestamps are instants in UTC."""

    changes: tuple[ColumnChange, ...]
    """What changes about the dataset, in words fit for a plan."""

    old_names: Mapping[str, str] = field(default_factory=dict)
    """The old name of each column that is renamed, by its new one."""

    partitions: frozenset[str] = frozenset()
    """Partition columns, which are stored only in files that have them already."""

    new: frozenset[str] = frozenset()
    """Columns that begin as NULL, even where a file has one of that name: it is dropped, or gets
    another name."""

    def columns_of(self, stored: pa.Schema) -> list[FileColumn]:
        """Return the columns of a file, which has these columns now."""
        found = []
        for wanted in self.schema:
            old = self.old_names.get(wanted.name, wanted.name)
            if wanted.name not in self.new and old in stored.names:
                own = stored.field(old)
                same = own.nullable == wanted.nullable and are_stored_alike(own.type, wanted.type)
                # What Arrow knows of it beyond Parquet stays as each file has it.
                kept = own.with_name(wanted.name) if same else wanted
                found.append(FileColumn(kept, old, not same))
            elif wanted.name not in self.partitions:
                found.append(FileColumn(wanted, None, True))
        return found

    def is_needed(self, stored: pa.Schema) -> bool:
        """Return whether a file with these columns must be rewritten."""
        columns = self.columns_of(stored)
        names = [column.field.name for column in columns]
        return names != stored.names or any(column.is_encoded for column in columns)

    def file_schema(self, stored: pa.Schema) -> pa.Schema:
        """Return the schema that a file with these columns gets."""
        return pa.schema([column.field for column in self.columns_of(stored)])

    def __str__(self) -> str:
        return "; ".join(map(str, self.changes))


# Types


def stored_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type that stands for all types that Parquet stores in the same way.

    Examples:
        >>> stored_type(pa.dictionary(pa.int8(), pa.large_string()))
        DataType(string)
    """
    data_type = plain_type(data_type)
    if pa.types.is_timestamp(data_type):
        unit = "ms" if data_type.unit == "s" else data_type.unit
        return pa.timestamp(unit, None if data_type.tz is None else "UTC")
    if pa.types.is_decimal(data_type):
        return _decimal(data_type.precision, data_type.scale)
    if pa.types.is_struct(data_type) or pa.types.is_map(data_type):
        # A file is not rewritten because of whether inner values may be NULL.
        fields = [pa.field(one.name, stored_type(one.type)) for one in inner_fields(data_type)]
        if pa.types.is_map(data_type):
            return pa.map_(*(one.type for one in fields))
        return pa.struct(fields)
    if pa.types.is_nested(data_type):
        return pa.list_(stored_type(inner_fields(data_type)[0].type))
    return _SAME.get(str(data_type), data_type)


_SAME = {
    "large_string": pa.string(),
    "string_view": pa.string(),
    "large_binary": pa.binary(),
    "binary_view": pa.binary(),
    "date64[ms]": pa.date32(),
    "time32[s]": pa.time32("ms"),
}


def are_stored_alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Return whether Parquet stores two types in the same way, such as string and large_string."""
    return bool(one.equals(other) or stored_type(one).equals(stored_type(other)))


def widened_type(old: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type that holds all values of both: the old one if it does, else a wider one.

    Returns:
        None if no type holds them without loss.

    Examples:
        >>> widened_type(pa.int32(), pa.int64())
        DataType(int64)
        >>> widened_type(pa.int64(), pa.float64()) is None
        True
    """
    if are_stored_alike(old, other) or pa.types.is_null(plain_type(other)):
        return old
    if pa.types.is_null(plain_type(old)):
        return other
    if pa.types.is_nested(old) or pa.types.is_nested(other):
        return _nested(old, other, only_fields=False)
    old, other = plain_type(old), plain_type(other)
    kinds = (family(old), family(other))
    if kinds[0] == kinds[1]:
        return _wider_of(old, other)
    if kinds == ("integer", "float") or kinds == ("float", "integer"):
        return _float_for(old, other)
    if kinds == ("integer", "decimal") or kinds == ("decimal", "integer"):
        return _wider_decimal(old, other)
    return None


def with_added_fields(old: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the old type with the fields that structs inside of the other one have besides."""
    if not (pa.types.is_nested(old) and pa.types.is_nested(other)):
        return old
    return _nested(old, other, only_fields=True) or old


def _nested(old: pa.DataType, other: pa.DataType, *, only_fields: bool) -> pa.DataType | None:
    tests = (pa.types.is_struct, pa.types.is_map)
    is_nested = pa.types.is_nested(old) and pa.types.is_nested(other)
    if not is_nested or any(test(old) != test(other) for test in tests):
        return None
    mine, theirs = inner_fields(old), inner_fields(other)
    if not pa.types.is_struct(old):
        theirs = [f.with_name(own.name) for f, own in zip(theirs, mine, strict=True)]
    known = {one.name: one for one in theirs}
    fields = []
    for own in mine:
        theirs_too = known[own.name].type if own.name in known else own.type
        find = with_added_fields if only_fields else widened_type
        found = find(own.type, theirs_too)
        if found is None:
            return None
        fields.append(own.with_type(found))
    names = {one.name for one in mine}
    fields += [one.with_nullable(True) for one in theirs if one.name not in names]
    return nested_like(old, fields)


def _wider_of(old: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the wider of two types of one family; they are not stored alike."""
    kind = family(old)
    if kind == "integer":
        return _wider_integer(old, other)
    if kind == "decimal":
        return _wider_decimal(old, other)
    if kind == "float":
        return max(old, other, key=lambda one: one.bit_width)
    if kind in ("timestamp with zone", "timestamp without zone"):
        return pa.timestamp(_finer(old, other), old.tz)
    if kind == "time":
        unit = _finer(old, other)
        return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
    # Binaries of different fixed lengths; a duration has its unit in Arrow's metadata only.
    return pa.binary() if kind == "binary" else None


def _wider_integer(old: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if pa.types.is_signed_integer(old) == pa.types.is_signed_integer(other):
        return max(old, other, key=lambda one: one.bit_width)
    signed, unsigned = sorted((old, other), key=pa.types.is_unsigned_integer)
    bits = max(signed.bit_width, 2 * unsigned.bit_width)
    return {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}.get(bits)


def _float_for(old: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return a float that holds an integer and a float, of which the integer may be the old one."""
    whole, number = sorted((old, other), key=pa.types.is_floating)
    bits = whole.bit_width - pa.types.is_signed_integer(whole)
    for width, mantissa in _MANTISSA_BITS.items():
        if width >= number.bit_width and bits <= mantissa:
            return number if width == number.bit_width else pa.float64()
    return None


def _wider_decimal(old: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    both = [
        (_DIGITS[one.bit_width], 0) if pa.types.is_integer(one) else (one.precision, one.scale)
        for one in (old, other)
    ]
    scale = max(scale for _, scale in both)
    precision = max(precision - own for precision, own in both) + scale
    if precision > _MAX_DECIMAL256:
        return None
    wider = _decimal(precision, scale)
    return old if are_stored_alike(old, wider) else wider


def _decimal(precision: int, scale: int) -> pa.DataType:
    make = pa.decimal128 if precision <= _MAX_DECIMAL128 else pa.decimal256
    return make(precision, scale)


def _finer(old: pa.DataType, other: pa.DataType) -> str:
    return _UNITS[max(_UNITS.index(old.unit), _UNITS.index(other.unit))]


# The files of a dataset, which should have one schema already


@dataclass(frozen=True)
class _Known:
    """The columns of a dataset, made of those of all its files."""

    schema: pa.Schema
    partitions: frozenset[str]
    drift: tuple[ColumnChange, ...]
    """What makes the files alike where they are not."""

    @classmethod
    def of(cls, files: Sequence[pa.Schema], partitions: Collection[str]) -> _Known:
        fields: dict[str, pa.Field] = {}
        for schema in files:
            for one in schema:
                fields[one.name] = _joined(fields[one.name], one) if one.name in fields else one
        drift = []
        for name, one in fields.items():
            own = [schema.field(name) for schema in files if name in schema.names]
            if len(own) < len(files) and name not in partitions:
                fields[name] = one.with_nullable(True)
                drift.append(ColumnChange(name, "added", None, str(one.type)))
            elif odd := [f for f in own if not are_stored_alike(f.type, one.type)]:
                drift.append(ColumnChange(name, "widened", str(odd[0].type), str(one.type)))
            elif any(f.nullable != one.nullable for f in own):
                drift.append(ColumnChange(name, "made nullable"))
        return cls(pa.schema(list(fields.values())), frozenset(partitions), tuple(drift))


def _joined(one: pa.Field, other: pa.Field) -> pa.Field:
    wider = widened_type(one.type, other.type)
    if wider is None:
        raise SchemaMismatchError(
            f"column {one.name!r} is {one.type} in some files of the dataset and {other.type} in "
            "others, and no type holds the values of both without loss.\n"
            "Hint: rewrite the files that have the wrong type."
        )
    return one.with_type(wider).with_nullable(one.nullable or other.nullable)


def plan_for_source(
    files: Sequence[pa.Schema],
    source: pa.Schema,
    changes: SchemaChanges,
    partitions: Collection[str] = (),
) -> Evolution | None:
    """Return what a source changes about a dataset; None if it changes nothing.

    A column that only the source has is added, as nullable. With ``"widen"``, a type that does not
    hold every value of the source's type becomes a wider one; where there is none, and for an
    integer in a float or decimal column, the values decide, as they do without schema changes.

    Args:
        files: The schemas of the files.
        source: The columns of the source that are stored.
        changes: ``"add"`` or ``"widen"``.
        partitions: The partition columns.

    Raises:
        SchemaMismatchError: If the source lacks a column of the dataset, or files have types that
            cannot be unified.
    """
    known = _Known.of(files, partitions)
    stored = known.schema
    needed = [name for name in stored.names if name not in partitions]
    check_same_columns([name for name in needed if name in source.names], needed)
    fields, made = [], []
    for own in stored:
        wanted = own
        if own.name not in partitions:
            wanted = own.with_type(_type_for(own, source.field(own.name), changes))
        if not are_stored_alike(own.type, wanted.type):
            made.append(ColumnChange(own.name, "widened", str(own.type), str(wanted.type)))
        fields.append(wanted)
    for one in source:
        if one.name not in stored.names and one.name not in partitions:
            fields.append(_new_field(one))
            made.append(ColumnChange(one.name, "added", None, str(fields[-1].type)))
    if changes == "add" and made:
        _refuse_wider(known.drift)
    if not made and (changes == "add" or not known.drift):
        return None
    return _evolution(known, fields, [*known.drift, *made])


def _type_for(own: pa.Field, given: pa.Field, changes: SchemaChanges) -> pa.DataType:
    """Return the type that a column gets for the values of a source."""
    if changes == "add":
        return with_added_fields(resolve_null_type(own.type, given.type), given.type)
    if family(own.type) in ("float", "decimal") and family(given.type) == "integer":
        return own.type  # the values decide: most integers fit
    return widened_type(own.type, given.type) or own.type


def _new_field(given: pa.Field) -> pa.Field:
    """Return a column that files do not have yet: nullable, and of a type that has room."""
    empty = pa.table([pa.nulls(0, given.type)], names=[given.name])
    kind = widen_dictionary_indices(without_views(empty)).schema.field(0).type
    return pa.field(given.name, kind)


def _refuse_required(argument: str, new: pa.Field) -> None:
    """Refuse a new column that must not be NULL, as it is in every row that is there."""
    if not new.nullable:
        raise InvalidArgumentError(
            f"{argument} has the new column {new.name!r}, which must not be NULL; but it will be "
            "NULL in every row that is there.\n"
            "Hint: make it nullable, fill it by a merge, and then require it with "
            f"nullable={{{new.name!r}: False}}.",
            argument=argument,
        )


def _refuse_wider(drift: Iterable[ColumnChange]) -> None:
    for change in drift:
        if change.kind == "widened" and change.before != "null":
            raise SchemaMismatchError(
                f"column {change.column!r} is {change.before} in some files of the dataset and "
                f"{change.after} in others, so adding a column would leave files that differ.\n"
                f"Hint: pass {_WIDEN} to give all files the wider type."
            )


_WIDEN = Argument("schema_changes", ("widen",))


def _evolution(
    known: _Known,
    fields: Sequence[pa.Field],
    changes: Iterable[ColumnChange],
    old_names: Mapping[str, str] | None = None,
    new: Iterable[str] = (),
) -> Evolution:
    schema = pa.schema([one.remove_metadata() for one in fields])
    check_storable(schema)
    _check_names_differ([*known.partitions, *schema.names])
    names = dict(old_names or {})
    return Evolution(schema, tuple(changes), names, known.partitions, frozenset(new))


def _check_names_differ(names: Sequence[str]) -> None:
    """Refuse columns whose names differ in case only: Spark would read neither."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise SchemaMismatchError(
                f"the columns {other!r} and {name!r} would differ in upper and lower case only, "
                "and readers that ignore it, such as Spark, could read neither.\n"
                "Hint: rename one of them."
            )


# What a caller may ask for without rows


@dataclass(frozen=True)
class SchemaRequest:
    """What a caller wants the columns of a dataset to be."""

    schema: pa.Schema | None = None
    add: Mapping[str, pa.DataType] = field(default_factory=dict)
    widen: Mapping[str, pa.DataType] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    nullable: Mapping[str, bool] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        schema: Any = None,
        add: Any = None,
        widen: Any = None,
        drop: Any = None,
        rename: Any = None,
        order: Any = None,
        nullable: Any = None,
    ) -> SchemaRequest:
        """Make a request of what a caller may pass to ``evolve``.

        Raises:
            InvalidArgumentError: If an argument is of the wrong kind.
        """
        if schema is not None and not isinstance(schema, pa.Schema):
            raise InvalidArgumentError(
                f"schema must be a pyarrow.Schema, got {schema!r}.\n"
                'Hint: pass pyarrow.schema([("id", pyarrow.int64()), ...]).',
                argument="schema",
            )
        only_alone = {"add": add, "widen": widen, "order": order, "nullable": nullable}
        given = [name for name, value in only_alone.items() if value is not None]
        if schema is not None and given:
            raise InvalidArgumentError(
                f"schema says what all columns will be, so {given[0]} has no use with it.\n"
                "Hint: leave out one of them; only drop and rename go with schema.",
                argument=given[0],
            )
        return cls(
            schema,
            _types("add", add),
            _types("widen", widen),
            _names("drop", drop),
            _renames(rename),
            _names("order", order),
            _flags(nullable),
        )

    def plan(self, files: Sequence[pa.Schema], partitions: Collection[str] = ()) -> Evolution:
        """Return what becomes of a dataset whose files have these schemas.

        Raises:
            InvalidArgumentError: If a column does not exist, or may not be changed.
            SchemaMismatchError: If a type is not wider than the one there is.
        """
        known = _Known.of(files, partitions)
        names = known.schema.names
        for argument, columns in (("drop", self.drop), ("rename", [*self.rename])):
            _refuse_partitions(argument, columns, partitions)
            self._check_exist(argument, columns, names)
        if both := [name for name in self.rename if name in self.drop]:
            raise InvalidArgumentError(
                f"drop and rename both name {both[0]!r}.\nHint: keep it in one of them.",
                argument="drop",
            )
        kept = [name for name in names if name not in self.drop]
        new_names = {name: self.rename.get(name, name) for name in kept}
        self._check_renamed(kept, new_names, partitions)
        fields = {new_names[n]: known.schema.field(n).with_name(new_names[n]) for n in kept}
        made = [ColumnChange(name, "dropped") for name in self.drop]
        renamed = [(old, new) for old, new in new_names.items() if old != new]
        made += [ColumnChange(new, "renamed", old, new) for old, new in renamed]
        wanted = self._wanted(fields, partitions)
        for name, one in wanted.items():
            made += _changes(fields.get(name), one)
        if [*wanted][: len(fields)] != [*fields]:
            before = [name for name in wanted if name in fields]
            moved = [n for n, old in zip(before, fields, strict=True) if n != old]
            made += [ColumnChange(name, "moved") for name in moved]
        if all(name in partitions for name in wanted):
            raise InvalidArgumentError(
                "drop names every column that files store; nothing would be left.\n"
                "Hint: leave at least one column.",
                argument="drop",
            )
        drift = [one for one in known.drift if one.column not in self.drop]
        old_names = {new: old for old, new in renamed}
        new = [name for name in wanted if name not in fields]
        return _evolution(known, [*wanted.values()], [*drift, *made], old_names, new)

    def _wanted(
        self, fields: Mapping[str, pa.Field], partitions: Collection[str]
    ) -> dict[str, pa.Field]:
        """Return the columns that files have afterwards, in their order."""
        if self.schema is not None:
            return self._wanted_by_schema(self.schema, fields, partitions)
        wanted = dict(fields)
        for argument, columns in (("widen", self.widen), ("nullable", self.nullable)):
            _refuse_partitions(argument, columns, partitions)
            self._check_exist(argument, columns, [*fields])
        for name, kind in self.widen.items():
            wanted[name] = _widened("widen", wanted[name], kind)
        for name, kind in self.add.items():
            if name in wanted or name in partitions:
                raise InvalidArgumentError(
                    f"add {name!r} is a column of the dataset already.\n"
                    f"Hint: to change its type, pass {Argument('widen')}.",
                    argument="add",
                    mentions=(Argument("widen"),),
                )
            wanted[name] = _new_field(pa.field(name, kind))
        for name, nullable in self.nullable.items():
            wanted[name] = wanted[name].with_nullable(nullable)
        self._check_exist("order", self.order, [*wanted])
        return {name: wanted[name] for name in dict.fromkeys((*self.order, *wanted))}

    def _wanted_by_schema(
        self, schema: pa.Schema, fields: Mapping[str, pa.Field], partitions: Collection[str]
    ) -> dict[str, pa.Field]:
        if len(set(schema.names)) < len(schema.names):
            raise InvalidArgumentError(
                f"schema names a column twice: {schema.names!r}.", argument="schema"
            )
        missing = [n for n in fields if n not in schema.names and n not in partitions]
        if missing:
            raise InvalidArgumentError(
                f"schema lacks the columns {missing!r} of the dataset, and a column is never "
                f"dropped unless that is said.\nHint: pass drop={missing!r}, or add them to the "
                "schema.",
                argument="schema",
                mentions=(Argument("drop"),),
            )
        wanted: dict[str, pa.Field] = {}
        for one in schema:
            if one.name in fields and one.name not in partitions:
                found = _widened("schema", fields[one.name], one.type)
                wanted[one.name] = found.with_nullable(one.nullable)
            elif one.name in fields:
                wanted[one.name] = fields[one.name]
            elif one.name not in partitions:
                _refuse_required("schema", one)
                wanted[one.name] = _new_field(one)
        wanted |= {name: own for name, own in fields.items() if name not in wanted}
        return wanted

    @staticmethod
    def _check_exist(argument: str, columns: Iterable[str], names: Sequence[str]) -> None:
        if missing := [name for name in columns if name not in names]:
            raise InvalidArgumentError.missing_columns(argument, missing, names)

    def _check_renamed(
        self, kept: Sequence[str], new_names: Mapping[str, str], partitions: Collection[str]
    ) -> None:
        used = [new for old, new in new_names.items() if old == new]
        for old in kept:
            new = new_names[old]
            if new != old and (new in used or new in partitions):
                raise InvalidArgumentError(
                    f"rename cannot give {old!r} the name {new!r}, which another column has.\n"
                    "Hint: drop or rename that one too, or choose another name.",
                    argument="rename",
                )
            used += [new] if new != old else []


def _changes(old: pa.Field | None, new: pa.Field) -> list[ColumnChange]:
    if old is None:
        return [ColumnChange(new.name, "added", None, str(new.type))]
    found = []
    if not are_stored_alike(old.type, new.type):
        found.append(ColumnChange(new.name, "widened", str(old.type), str(new.type)))
    if old.nullable != new.nullable:
        found.append(ColumnChange(new.name, "made nullable" if new.nullable else "made required"))
    return found


def _widened(argument: str, own: pa.Field, wanted: pa.DataType) -> pa.Field:
    """Return a field with a type that must hold all its values."""
    if are_stored_alike(own.type, wanted):
        return own
    wider = widened_type(own.type, wanted)
    if wider is None or not are_stored_alike(wider, wanted):
        raise SchemaMismatchError(
            f"{argument} cannot make column {own.name!r} of type {own.type} a column of type "
            f"{wanted}: not every value of {own.type} is one of {wanted}.\nHint: a type may become "
            "one with more bits, digits or fields, or a finer unit; for other types add a new "
            "column, and fill it by a merge."
        )
    return own.with_type(wanted)


def _refuse_partitions(argument: str, columns: Iterable[str], partitions: Collection[str]) -> None:
    if found := [name for name in columns if name in partitions]:
        raise InvalidArgumentError(
            f"{argument} {found[0]!r} is a partition column, and its values are in the paths of "
            "the files.\nHint: to partition by other columns, use "
            f"{Call('repartition')}.",
            argument=argument,
            mentions=(Call("repartition"),),
        )


def _types(argument: str, given: Any) -> dict[str, pa.DataType]:
    if given is None:
        return {}
    if isinstance(given, pa.Schema):
        for one in given if argument == "add" else ():
            _refuse_required(argument, one)
        given = dict(zip(given.names, given.types, strict=True))
    is_right = isinstance(given, Mapping) and all(
        isinstance(name, str) and name and isinstance(kind, pa.DataType)
        for name, kind in given.items()
    )
    if not is_right:
        raise InvalidArgumentError(
            f"{argument} must be a mapping of column names to Arrow types, got {given!r}.\n"
            f'Hint: pass {argument}={{"price": pyarrow.float64()}}.',
            argument=argument,
        )
    if untyped := [name for name, kind in given.items() if pa.types.is_null(kind)]:
        raise InvalidArgumentError(
            f"{argument} gives {untyped[0]!r} the type null, which holds no values.\n"
            f"Hint: pass the type that its values will have: {argument}={{{untyped[0]!r}: "
            "pyarrow.string()}.",
            argument=argument,
        )
    return dict(given)


def _names(argument: str, given: Any) -> tuple[str, ...]:
    if given is None:
        return ()
    names: tuple[str, ...] = as_names(given)
    if names != ():
        check_names(argument, names)
    return names


def _renames(given: Any) -> dict[str, str]:
    if given is None:
        return {}
    is_right = isinstance(given, Mapping) and all(
        isinstance(name, str) and name for pair in given.items() for name in pair
    )
    if not is_right:
        raise InvalidArgumentError(
            f"rename must be a mapping of old names to new ones, got {given!r}.\n"
            'Hint: pass rename={"old": "new"}.',
            argument="rename",
        )
    return dict(given)


def _flags(given: Any) -> dict[str, bool]:
    if isinstance(given, Mapping):
        if not all(isinstance(k, str) and isinstance(v, bool) for k, v in given.items()):
            raise InvalidArgumentError(
                f"nullable must name columns, or be a mapping of them to True or False, got "
                f"{given!r}.",
                argument="nullable",
            )
        return dict(given)
    return dict.fromkeys(_names("nullable", given), True)
