"""The last look at a spliced file, before it counts as staged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.parquet.anatomy import CannotSpliceError, dissect, read_footer
from fsspeckit.core.parquet.copying import open_original

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsspeckit.core.parquet.anatomy import Anatomy
    from fsspeckit.storage.roots import Root

__all__ = ["check_spliced"]


def check_spliced(root: Root, path: str, old: Anatomy, rows: Sequence[int]) -> None:
    """See that a new file is what it was meant to be.

    The footer parses, by our own parser and by pyarrow; every part lies inside the file and none
    overlaps another; the row groups have the rows they should; the schema is the old one.

    Args:
        root: Where the file is.
        path: The new file.
        old: The file it was made from.
        rows: The rows of each row group.

    Raises:
        CannotSpliceError: If it is not; the file must not be used.
    """
    with open_original(root, path) as file:
        footer = read_footer(file.read, file.size)
        new = dissect(footer, file.size, file.read)
    if [group.rows for group in new.groups] != list(rows):
        raise CannotSpliceError("the new file does not have the rows it should have")
    if new.elements != old.elements:
        raise CannotSpliceError("the new file does not have the schema of the old one")
    trailer = len(footer).to_bytes(4, "little") + b"PAR1"
    try:
        found = pq.read_metadata(pa.BufferReader(b"PAR1" + footer + trailer))
    except (pa.ArrowException, OSError) as error:
        raise CannotSpliceError(f"pyarrow cannot read the new footer: {error}") from error
    if (found.num_rows, found.num_row_groups) != (sum(rows), len(rows)):
        raise CannotSpliceError("pyarrow finds other rows in the new file")
