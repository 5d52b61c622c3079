"""The schema of a footer by top-level columns, so that what two writers mean can be compared.

Writers spell one schema in many ways: the name of the root, annotations of old and of new style,
field ids. Two columns that are equal here may have chunks in one file; the schema that stays in the
footer describes both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fsspeckit.core.parquet.format.layout import CannotSpliceError
from fsspeckit.core.parquet.format.thrift import BOOL, BYTES, INT, Spec, Struct, ThriftError, decode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fsspeckit.core.parquet.format.layout import Anatomy

__all__ = ["Column", "check_columns", "columns_of"]

_INTEGERS: Final[Spec] = {1: INT, 2: INT}
_TIMES: Final[Spec] = {1: BOOL, 2: {}}
_LOGICAL: Final[Spec] = {5: _INTEGERS, 7: _TIMES, 8: _TIMES, 10: {1: INT, 2: BOOL}}
_ELEMENT: Final[Spec] = {
    1: INT, 2: INT, 3: INT, 4: BYTES, 5: INT, 6: INT, 7: INT, 8: INT, 10: _LOGICAL,
}  # fmt: skip

_FIXED_LENGTH: Final = 7
_REPETITIONS: Final = range(3)
# A codec of a later version of the format is not known to pyarrow either.
KNOWN_CODECS: Final = range(8)
_STRING, _MAP, _LIST, _ENUM, _DECIMAL, _DATE, _TIME, _TIMESTAMP = range(1, 9)
_INTEGER, _JSON, _BSON = 10, 12, 13
_MILLIS, _MICROS = 1, 2

Logical = tuple[object, ...] | None
"""A logical type and its parameters, in one spelling."""

# Annotations of the old style. The group inside a map had one of its own, which says nothing.
_CONVERTED: Final[dict[int, Logical]] = {
    0: (_STRING,),
    1: (_MAP,),
    2: None,
    3: (_LIST,),
    4: (_ENUM,),
    6: (_DATE,),
    7: (_TIME, True, _MILLIS),
    8: (_TIME, True, _MICROS),
    9: (_TIMESTAMP, True, _MILLIS),
    10: (_TIMESTAMP, True, _MICROS),
    11: (_INTEGER, 8, False),
    12: (_INTEGER, 16, False),
    13: (_INTEGER, 32, False),
    14: (_INTEGER, 64, False),
    15: (_INTEGER, 8, True),
    16: (_INTEGER, 16, True),
    19: (_JSON,),
    20: (_BSON,),
    21: ("INTERVAL",),
}
_CONVERTED_DECIMAL: Final = 5
# Signed numbers of the full width: some writers say so, most do not.
_PLAIN: Final[set[Logical]] = {(_INTEGER, 32, True), (_INTEGER, 64, True)}
_CONVERTED_PLAIN: Final = (17, 18)


@dataclass(frozen=True, slots=True)
class Column:
    """A top-level column with everything inside it."""

    name: str
    meaning: tuple[tuple[object, ...], ...]
    """One entry for each schema element: equal if two writers mean the same."""

    first_leaf: int
    """The number of its first leaf among those of the file."""

    leaves: int
    physical: tuple[int, ...]
    """The physical type of each leaf."""

    paths: tuple[str, ...]
    """The full name of each leaf, its parts joined with dots."""

    first_element: int
    """The number of its first element in the schema."""

    @property
    def numbers(self) -> range:
        """The numbers of its leaves."""
        return range(self.first_leaf, self.first_leaf + self.leaves)


def columns_of(elements: Sequence[bytes]) -> list[Column]:
    """Cut the flat list of schema elements into top-level columns.

    Raises:
        CannotSpliceError: If the list is no schema, or two columns have one name.
    """
    try:
        structs = [decode(element, _ELEMENT)[0].values for element in elements]
        columns = list(_columns(structs))
    except (ThriftError, UnicodeDecodeError, KeyError, StopIteration, IndexError) as error:
        raise CannotSpliceError(f"the schema in the footer is damaged: {error!r}") from error
    names = [column.name for column in columns]
    if len(set(names)) != len(names):
        raise CannotSpliceError("two columns have the same name")
    return columns


def check_columns(anatomy: Anatomy, columns: Sequence[Column]) -> None:
    """See that every row group has the chunks that the schema asks for.

    Raises:
        CannotSpliceError: If a chunk is of another column, of another type or of no codec.
    """
    types = [physical for column in columns for physical in column.physical]
    paths = [path for column in columns for path in column.paths]
    for group in anatomy.groups:
        if any(chunk.metadata.values[4] not in KNOWN_CODECS for chunk in group.chunks):
            raise CannotSpliceError("a codec does not exist", is_unreadable=True)
        if [chunk.metadata.values[1] for chunk in group.chunks] != types:
            reason = "a row group does not have the types of the schema"
            raise CannotSpliceError(reason, is_unreadable=True)
        if [chunk.path for chunk in group.chunks] != paths:
            raise CannotSpliceError("a row group does not have the columns of the schema")


def _columns(elements: list[dict[int, Any]]) -> Iterator[Column]:
    position, leaf = 1, 0
    for _ in range(elements[0][5]):
        end = _end_of(elements, position)
        inside = elements[position:end]
        leaves = list(_leaves(inside))
        physical = tuple(kind for kind, _ in leaves)
        paths = tuple(path for _, path in leaves)
        name = inside[0][4].decode()
        meaning = tuple(map(_meaning, inside))
        yield Column(name, meaning, leaf, len(leaves), physical, paths, position)
        position, leaf = end, leaf + len(leaves)
    if position != len(elements):
        raise CannotSpliceError("the schema in the footer does not add up")


def _leaves(inside: list[dict[int, Any]]) -> Iterator[tuple[int, str]]:
    """The physical type and the full name of each leaf of a column."""
    above: list[tuple[str, int]] = []  # the open groups, and how many children each still has
    for element in inside:
        name = element[4].decode()
        if element.get(5):
            above.append((name, element[5]))
            continue
        yield element[1], ".".join([*(group for group, _ in above), name])
        while above:
            group, left = above.pop()
            if left > 1:
                above.append((group, left - 1))
                break


def _end_of(elements: list[dict[int, Any]], position: int) -> int:
    """The position after an element and all its children."""
    open_elements = 1
    while open_elements:
        open_elements += (elements[position].get(5) or 0) - 1
        position += 1
    return position


def _meaning(element: dict[int, Any]) -> tuple[object, ...]:
    physical = element.get(1)
    if element.get(3, 0) not in _REPETITIONS:
        raise CannotSpliceError("a repetition type does not exist", is_unreadable=True)
    return (
        element[4],
        physical,
        element.get(2) if physical == _FIXED_LENGTH else None,
        element.get(3),
        element.get(5) or 0,
        _logical(element),
    )


def _logical(element: dict[int, Any]) -> Logical:
    found = element.get(10)
    if isinstance(found, Struct) and found.kinds:
        logical = _of_new_style(found)
        return None if logical in _PLAIN else logical
    converted = element.get(6)
    if converted is None or converted in _CONVERTED_PLAIN:
        return None
    if converted == _CONVERTED_DECIMAL:
        return _DECIMAL, element.get(7, 0), element.get(8)
    return _CONVERTED.get(converted, ("unknown", converted))


def _of_new_style(union: Struct) -> Logical:
    number = next(iter(union.kinds))
    inside = union.values.get(number)
    if inside is None:
        return (number, union.raw[number]) if union.raw[number] != b"\0" else (number,)
    if number in (_TIME, _TIMESTAMP):
        return number, inside.values[1], next(iter(inside.values[2].kinds))
    return number, inside.values[1], inside.values[2]
