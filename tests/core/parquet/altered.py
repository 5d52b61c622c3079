"""Parquet files whose footers say something else than their writers wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.core.parquet.thrift_writer import encode, footer_of

from fsspeckit.core.parquet.format.layout import FILE_SPEC, FileLayout, parse_layout, read_footer
from fsspeckit.core.parquet.format.thrift import Struct, decode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def alter(path: Path, change: Callable[[Struct], object]) -> None:
    """Change the footer of a file."""
    data = path.read_bytes()
    footer = footer_of(data)
    struct, _ = decode(footer, FILE_SPEC)
    change(struct)
    new = encode(struct)
    path.write_bytes(data[: -8 - len(footer)] + new + len(new).to_bytes(4, "little") + data[-4:])


def layout_of(path: Path) -> FileLayout:
    """The parts of a file."""
    data = path.read_bytes()

    def read(start: int, length: int) -> bytes:
        return data[start : start + length]

    return parse_layout(read_footer(read, len(data)), len(data), read)


def chunk(footer: Struct, group: int = 0, column: int = 0) -> Struct:
    """A ``ColumnChunk``."""
    found: Struct = footer.values[4][group].values[1][column]
    return found


def metadata(footer: Struct, group: int = 0, column: int = 0) -> Struct:
    """A ``ColumnMetaData``."""
    found: Struct = chunk(footer, group, column).values[3]
    return found
