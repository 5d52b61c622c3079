"""Rows that wait for the file they belong to: in memory, and on a local disk if they are many."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fsspeckit.core.arrow_compat import take_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Spill", "SpilledRows", "WaitingRows"]


class WaitingRows:
    """Rows in memory, with their number and size counted as they come."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []
        self.rows = 0
        self.bytes = 0

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of the rows that wait; None if there are none."""
        return self._tables[0].schema if self._tables else None

    def add(self, rows: pa.Table) -> None:
        """Add rows after those that wait already."""
        self._tables.append(rows)
        self.rows += rows.num_rows
        self.bytes += rows.nbytes

    def taken(self) -> pa.Table:
        """All rows, in one piece; none wait any more."""
        table = pa.concat_tables(self._tables).unify_dictionaries().combine_chunks()
        self._tables, self.rows, self.bytes = [], 0, 0
        return table

    def compact(self) -> None:
        """Copy the rows: as parts of larger tables they would keep all of these in memory."""
        if self.rows:
            table = self.taken()
            self.add(take_rows(table, pa.array(np.arange(table.num_rows))))


@dataclass(frozen=True)
class _Piece:
    """A part of the file that holds some rows."""

    offset: int
    length: int


class Spill:
    """A temporary file with rows of many partitions; it has no name and vanishes when closed.

    Args:
        directory: Where it is; None for the place of temporary files.
    """

    def __init__(self, directory: str | None = None) -> None:
        self._handle: Any = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115 - closed by close
        self._end = 0

    def write(self, rows: pa.Table) -> _Piece:
        """Write rows, as Arrow holds them: whatever their types, they come back the same."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_table(rows)
        data = sink.getvalue()
        self._handle.seek(self._end)
        self._handle.write(data)
        piece = _Piece(self._end, data.size)
        self._end += data.size
        return piece

    def read(self, piece: _Piece) -> pa.Table:
        """Read rows."""
        self._handle.seek(piece.offset)
        return pa.ipc.open_stream(pa.py_buffer(self._handle.read(piece.length))).read_all()

    def close(self) -> None:
        """Remove the file."""
        self._handle.close()


class SpilledRows:
    """The rows of one partition, in the order in which they came."""

    def __init__(self, values: dict[str, Any], spill: Spill) -> None:
        self.values = values
        self.waiting = WaitingRows()
        self._spill = spill
        self._pieces: list[_Piece] = []

    def add(self, rows: pa.Table) -> None:
        """Add rows; those of another schema than the ones that wait go to another piece."""
        if self.waiting.schema not in (None, rows.schema):
            self.flush()
        self.waiting.add(rows)

    def flush(self) -> None:
        """Write what waits in memory to the disk."""
        if self.waiting.rows:
            self._pieces.append(self._spill.write(self.waiting.taken()))

    def read(self) -> Iterator[pa.Table]:
        """All rows, in pieces."""
        yield from map(self._spill.read, self._pieces)
        if self.waiting.rows:
            yield self.waiting.taken()
