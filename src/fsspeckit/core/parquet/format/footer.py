"""Whether the bounds in a footer are values of the column or may have been shortened.

``min_value`` and ``max_value`` are bounds: a writer may cut a long string and mark the result as
not exact. pyarrow shows the bounds without the marks, so they are read here from the raw footer.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fsspeckit.core.parquet.format.thrift import BOOL, BYTES, RAW, Spec, Struct, ThriftError, decode
from fsspeckit.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Exactness", "bound_exactness", "bounds_exactness"]

_FILE: Final[Spec] = {4: [{1: [RAW]}]}
_CHUNK: Final[Spec] = {3: {3: [BYTES], 12: {7: BOOL, 8: BOOL}}}


@dataclass(frozen=True, slots=True)
class Exactness:
    """Whether each bound occurs in the column chunk; None where the writer does not tell."""

    min: bool | None = None
    """True: the minimum is a value of the chunk. False: it may be smaller than all of them."""

    max: bool | None = None
    """True: the maximum is a value of the chunk. False: it may be greater than all of them."""


def bound_exactness(footer: bytes, column: str) -> list[Exactness]:
    """Read the exactness of one column's bounds.

    Args:
        footer: The ``FileMetaData`` bytes of a Parquet file, without length and magic.
        column: The leaf column by its full path, its parts joined with dots.

    Returns:
        One entry per row group. Neither bound is known where the chunk cannot be told for sure:
        its metadata is encrypted, or two columns have the same dotted path.

    Raises:
        ThriftError: The footer is damaged.
        InvalidArgumentError: There is no such column.
    """
    return bounds_exactness(footer, [column])[column]


def bounds_exactness(footer: bytes, columns: Iterable[str]) -> dict[str, list[Exactness]]:
    """Do the same as `bound_exactness` for several columns in one pass over the footer."""
    groups = [
        _required(group, 1, "RowGroup.columns")
        for group in _required(decode(footer, _FILE)[0], 4, "FileMetaData.row_groups")
    ]
    hints = _positions(groups[0]) if groups else {}
    return {
        column: [_exactness(_find(chunks, column, hints)) for chunks in groups]
        for column in columns
    }


def _required(struct: Struct, number: int, name: str) -> list[Any]:
    if number not in struct.values:
        raise ThriftError(f"the footer has no {name}: these bytes are no Parquet FileMetaData.")
    items: list[Any] = struct.values[number]
    return items


def _positions(chunks: Sequence[bytes]) -> dict[bytes, int]:
    """Map each path that occurs once to the position of its chunk."""
    paths = [_path(_metadata(chunk)) for chunk in chunks]
    counts = Counter(paths)
    return {
        path: position
        for position, path in enumerate(paths)
        if path is not None and counts[path] == 1
    }


def _find(chunks: Sequence[bytes], column: str, hints: dict[bytes, int]) -> Struct | None:
    """Return the metadata of the column's chunk, None if it cannot be told for sure.

    All row groups should have the columns in the order of the schema, so the position in the
    first one is tried before all chunks are searched.
    """
    path = column.encode()
    hint = hints.get(path)
    if hint is not None and hint < len(chunks):
        metadata = _metadata(chunks[hint])
        if _path(metadata) == path:
            return metadata
    found = [_metadata(chunk) for chunk in chunks]
    paths = [_path(metadata) for metadata in found]
    if path not in paths and None not in paths:
        available = [other.decode(errors="replace") for other in paths if other is not None]
        raise InvalidArgumentError.missing_columns("columns", [column], available)
    return found[paths.index(path)] if paths.count(path) == 1 else None


def _metadata(chunk: bytes) -> Struct | None:
    metadata: Struct | None = decode(chunk, _CHUNK)[0].values.get(3)
    return metadata


def _path(metadata: Struct | None) -> bytes | None:
    if metadata is None or 3 not in metadata.values:
        return None
    return b".".join(metadata.values[3])


def _exactness(metadata: Struct | None) -> Exactness:
    statistics = metadata.values.get(12) if metadata is not None else None
    if statistics is None:
        return Exactness()
    return Exactness(min=statistics.values.get(8), max=statistics.values.get(7))
