"""Rewrites that must splice, and the same edit made in memory to compare with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fsspeckit.core.arrow_compat import take_rows
from fsspeckit.core.rewrite import Replacement, Rewritten, RowRules, SpliceLimits, rewrite
from fsspeckit.core.rewrite.diff import DEFAULT_SPLICE_LIMITS
from fsspeckit.storage.roots import open_root

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path


@dataclass(frozen=True)
class Edit:
    """Rows that take the places of others, or whose places are deleted; all other rows may go."""

    positions: Sequence[int]
    rows: pa.Table
    keep_others: bool = True
    deletes: Collection[int] = ()
    """Positions whose row is deleted instead."""

    def in_memory(self, old: pa.Table) -> pa.Table:
        """What the file must hold afterwards."""
        index = np.arange(old.num_rows)
        index[list(self.positions)] = old.num_rows + np.arange(len(self.positions))
        gone = {*self.deletes}
        if not self.keep_others:
            gone |= {*range(old.num_rows)} - {*self.positions}
        index = np.delete(index, sorted(gone))
        both = pa.concat_tables([old, self.rows.cast(old.schema)]).unify_dictionaries()
        return take_rows(both, pa.array(index))

    def on_disk(
        self,
        path: Path,
        new: Path,
        keys: Sequence[str] = (),
        threads: int = 1,
        limits: SpliceLimits = DEFAULT_SPLICE_LIMITS,
    ) -> Rewritten:
        """Write the new file."""
        positions = np.array(self.positions, np.int64)
        gone = pa.table({"gone": pa.array([place in self.deletes for place in self.positions])})
        rules = RowRules(self.keep_others, delete_when="gone" if self.deletes else None)
        return rewrite(
            open_root(path.parent),
            str(path),
            Replacement(positions, np.arange(len(positions)), rules),
            lambda numbers: take_rows(self.rows, pa.array(numbers)),
            str(new),
            deciding=lambda numbers: gone.take(pa.array(numbers)),
            key_columns=keys,
            threads=threads,
            limits=limits,
        )


def read(path: Path) -> pa.Table:
    """All rows, with page checksums verified and every array checked."""
    with pq.ParquetFile(
        path, page_checksum_verification=True, coerce_int96_timestamp_unit="us"
    ) as file:
        table = file.read()
    table.validate(full=True)
    return table


def same(left: pa.Table, right: pa.Table) -> bool:
    """Whether two tables hold the same rows; dictionaries may differ, NaN is NaN."""
    return plainly(left) == plainly(right)


def plainly(table: pa.Table) -> list[str]:
    return [repr(row) for row in table.to_pylist()]
