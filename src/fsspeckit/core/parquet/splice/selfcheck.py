"""The last look at a spliced file, before it counts as staged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.parquet.format.layout import CannotSpliceError, Range, check_apart, read_footer
from fsspeckit.core.parquet.splice.copying import open_original

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fsspeckit.core.parquet.format.layout import Anatomy
    from fsspeckit.storage.roots import Root

__all__ = ["check_spliced"]


def check_spliced(
    root: Root, path: str, old: Anatomy, rows: Sequence[int], indexes: Sequence[Range] = ()
) -> None:
    """See that a new file is what it was meant to be.

    The footer is read by pyarrow, which knows nothing of how it was written: every column chunk
    that it finds, and every index, lies inside the file and overlaps no other; the row groups have
    the rows they should; the schema is the old one.

    Args:
        root: Where the file is.
        path: The new file.
        old: The file it was made from.
        rows: The rows of each row group.
        indexes: Where bloom filters and page indexes were written.

    Raises:
        CannotSpliceError: If it is not; the file must not be used.
    """
    with open_original(root, path) as file:
        footer = read_footer(file.read, file.size)
        data_end = file.size - len(footer) - 8  # its length and the magic bytes follow it
    if b"".join(old.elements) not in footer:
        raise CannotSpliceError("the new file does not have the schema of the old one")
    trailer = len(footer).to_bytes(4, "little") + b"PAR1"
    try:
        found = pq.read_metadata(pa.BufferReader(b"PAR1" + footer + trailer))
    except (pa.ArrowException, OSError) as error:
        raise CannotSpliceError(f"pyarrow cannot read the new footer: {error}") from error
    held = [found.row_group(number).num_rows for number in range(found.num_row_groups)]
    if held != list(rows) or found.num_rows != sum(rows):
        raise CannotSpliceError("the new file does not have the rows it should have")
    check_apart([*_chunks(found), *indexes], data_end)


def _chunks(metadata: pq.FileMetaData) -> Iterator[Range]:
    """Where pyarrow will look for the pages of each column chunk."""
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for leaf in range(group.num_columns):
            chunk = group.column(leaf)
            start, dictionary = chunk.data_page_offset, chunk.dictionary_page_offset
            if dictionary:
                start = min(start, dictionary)
            yield Range(start, chunk.total_compressed_size)
