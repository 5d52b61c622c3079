"""Columns of a row group in which few rows change: their pages are patched, not all encoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fsspeckit.core.parquet.patch.chunk import Patch, patch_chunks
from fsspeckit.core.parquet.patch.indexed import IndexedPages
from fsspeckit.core.parquet.splice.chunk_encoder import (
    chunk_options,
    merged_options,
    page_options,
    shared_options,
)
from fsspeckit.core.rewrite.diff import with_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fsspeckit.core.parquet.format.layout import Read
    from fsspeckit.core.parquet.patch.page_reader import PageValues
    from fsspeckit.core.parquet.splice.chunk_encoder import EncodedChunk
    from fsspeckit.core.parquet.splice.writer_properties import Layout
    from fsspeckit.core.rewrite.diff import Compared

__all__ = ["patched_columns"]

# Values that come into a dictionary are taken out of such pages.
_PLAIN = {"column_encoding": None, "data_page_version": "1.0", "write_page_checksum": False}


def patched_columns(
    names: Iterable[str], compared: Compared, layout: Layout, read: Read
) -> dict[str, EncodedChunk]:
    """New chunks for columns of which a few pages change.

    Args:
        names: The columns that change.
        compared: The rows that change, and pages that hold them.
        layout: How the file was written.
        read: Reads bytes of the file.

    Returns:
        By column; those of which all pages must be encoded are left out.

    Raises:
        CannotSpliceError: If new pages cannot be made.
    """
    found: dict[str, EncodedChunk] = {}
    pages = [compared.pages[name] for name in names if name in compared.pages]
    for together, options in _units(pages, layout, read):
        schema = pa.schema([_plain(layout.schema.field(one.column.name)) for one in together])
        patches = [_patch(one, compared, schema.field(one.column.name)) for one in together]
        chunks = patch_chunks(patches, schema, options, read)
        for name, chunk in zip(schema.names, chunks, strict=True):
            if chunk is not None:
                found[name] = chunk
    return found


def _plain(field: pa.Field) -> pa.Field:
    """A field of which the statistics are those of its values, not of a dictionary's."""
    is_dictionary = pa.types.is_dictionary(field.type)
    return field.with_type(field.type.value_type) if is_dictionary else field


def _patch(pages: PageValues | IndexedPages, compared: Compared, field: pa.Field) -> Patch:
    old, new = (table.column(field.name).cast(field.type) for table in (compared.old, compared.new))
    if isinstance(pages, IndexedPages):
        return Patch(pages, old, new)
    schema = pa.schema([field])
    before = pa.table([pages.values.cast(field.type)], schema=schema)
    after = with_rows(before, pa.table([new], schema=schema), pages.inside)
    return Patch(pages, old, new, after.column(0))


def _units(
    pages: Sequence[PageValues | IndexedPages], layout: Layout, read: Read
) -> list[tuple[list[PageValues | IndexedPages], dict[str, Any]]]:
    """Columns whose pages can be written together: they hold the same rows, in one style."""
    units: dict[object, tuple[list[PageValues | IndexedPages], list[dict[str, Any]]]] = {}
    for one in pages:
        options = _options(one, layout, read)
        alike = (_encoded_spans(one), shared_options(options))
        together, found = units.setdefault(alike, ([], []))
        together.append(one)
        found.append(options)
    return [(together, merged_options(found)) for together, found in units.values()]


def _encoded_spans(pages: PageValues | IndexedPages) -> tuple[tuple[int, int], ...]:
    """The rows of the pages that are encoded again: none of those of places in a dictionary."""
    return () if isinstance(pages, IndexedPages) else pages.spans


def _options(pages: PageValues | IndexedPages, layout: Layout, read: Read) -> dict[str, Any]:
    chunk = pages.chunk
    known = chunk_options(pages.column, [chunk], layout, 1)
    known |= {"use_dictionary": False, "write_statistics": [chunk.path]}
    if isinstance(pages, IndexedPages):
        return {**known, **_PLAIN, "compression": {chunk.path: "NONE"}}
    return {**known, **page_options([chunk], read)}
