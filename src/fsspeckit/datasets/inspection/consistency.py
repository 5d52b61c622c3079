"""Where the files of a dataset disagree: about columns, their types, and whether a key can be one.

Told from footers alone, by the rules of the merge itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from fsspeckit.core.keys.canonical import key_column
from fsspeckit.core.keys.casts import family, plain_type
from fsspeckit.core.planning.target import read_target
from fsspeckit.core.schema_conform import fit_table
from fsspeckit.errors import SchemaMismatchError

if TYPE_CHECKING:
    from fsspeckit.core.planning.footers import FileFooter
    from fsspeckit.core.planning.target import Target

__all__ = ["TypeDifference", "all_columns", "key_problem", "odd_files", "type_differences"]


@dataclass(frozen=True)
class TypeDifference:
    """A column that does not have the same type in all files."""

    column: str
    types: tuple[str, ...]
    """All of them, that of the first file first."""

    files: tuple[str, ...]
    """The files that do not have the type of the first one, below the dataset's directory."""

    convertible: bool
    """Whether one of the types can be written to all files, as far as values fit. If not, no
    merge can change rows in all of them."""


def all_columns(target: Target) -> list[str]:
    """The columns of all files and paths, each once."""
    names = [name for footer in target.footers for name in footer.schema.names]
    return list(dict.fromkeys([*names, *(part.name for part in target.partition_columns)]))


def key_problem(target: Target, name: str, parts: pa.Schema) -> str | None:
    """Why a merge could not use a column as a key, in its own words."""
    files = [footer.file for footer in target.footers]
    try:
        for footer in target.footers:
            if name in footer.schema.names and name not in footer.leaves:
                key_column(name, footer.schema.field(name).type)  # it is nested there
        read_target(target.root, files, [name], parts, read=lambda *_: list(target.footers))
    except SchemaMismatchError as error:
        return " ".join(str(error).split())
    return None


def odd_files(target: Target) -> list[FileFooter]:
    """The files that do not have the columns of the first one."""
    parts = {part.name for part in target.partition_columns}
    readable = [footer for footer in target.footers if footer.error is None]
    names = [parts.union(footer.schema.names) for footer in readable]
    return [footer for footer, each in zip(readable, names, strict=True) if each != names[0]]


def type_differences(target: Target) -> tuple[TypeDifference, ...]:
    """The columns whose types differ from file to file."""
    if len({id(footer.schema) for footer in target.footers if footer.error is None}) < 2:
        return ()  # footers that say the same share one
    parts = {part.name for part in target.partition_columns}
    names = [name for name in all_columns(target) if name not in parts]
    return tuple(each for name in names if (each := _difference(target, name)) is not None)


def _difference(target: Target, name: str) -> TypeDifference | None:
    # Not ``in schema.names``: that makes a list of all names, and this is asked for every column.
    holding = [f for f in target.footers if f.schema.get_all_field_indices(name)]
    kinds = [_stored(footer.schema.field(name).type) for footer in holding]
    distinct = list(dict.fromkeys(kinds))
    if len(distinct) < 2:
        return None
    odd = [footer for footer, kind in zip(holding, kinds, strict=True) if kind != distinct[0]]
    return TypeDifference(
        name,
        tuple(map(str, distinct)),
        tuple(target.root.relative(footer.file.path) for footer in odd),
        any(all(_fits(name, one, other) for other in distinct) for one in distinct),
    )


def _stored(data_type: pa.DataType) -> pa.DataType:
    """A type as readers other than Arrow see it: all texts are texts."""
    return pa.string() if family(data_type) == "string" else plain_type(data_type)


def _fits(name: str, source: pa.DataType, target: pa.DataType) -> bool:
    """Whether values of one type may be written as values of another."""
    try:
        fit_table(pa.schema([(name, source)]).empty_table(), pa.schema([(name, target)]))
    except SchemaMismatchError:
        return False
    return True
