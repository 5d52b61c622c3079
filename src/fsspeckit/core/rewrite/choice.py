"""How a file is written anew: by the cheapest of three ways that give the same rows.

Costs are estimated from what the footer says of each chunk and from measured rates. Their ratios
decide, and these differ little between machines: encoding is by far the most expensive thing done
to a byte, decoding comes next, and copying is nearly free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsspeckit.core.parquet.format.columns import Column
    from fsspeckit.core.parquet.format.layout import Anatomy
    from fsspeckit.core.rewrite.diff import GroupChange

__all__ = ["Choice", "Costs", "Method", "choose"]

Method = Literal["kept", "column splice", "splice", "full"]
"""Nothing written; some columns of some row groups; whole row groups; all of the file."""


@dataclass(frozen=True)
class Costs:
    """Seconds on one machine; only their ratios matter, see `benchmarks/bench_splice.py`."""

    encode: float = 6.0e-9
    """For each byte that is encoded, before compression."""

    decode: float = 1.5e-9
    """For each byte that is decoded, after decompression."""

    copy: float = 0.4e-9
    """For each byte that is copied."""

    unit: float = 2.5e-3
    """For each separate encoding of some columns of a row group: options, threads, cutting out."""

    group: float = 4.0e-4
    """For each row group of a full rewrite."""

    chunk: float = 5.0e-5
    """For each column chunk whose entry in the footer is parsed, moved, written and checked."""

    file: float = 1.5e-3
    """For the rest of a splice: a second file handle, a footer, the check of the new file."""

    full: float = 0.0
    """For the rest of a full rewrite."""


COSTS = Costs()


@dataclass(frozen=True)
class Choice:
    """The way that was chosen, and why."""

    method: Method
    reason: str

    @classmethod
    def full(cls, reason: str) -> Choice:
        """Write all of the file anew."""
        return cls("full", reason)


def choose(
    anatomy: Anatomy,
    columns: Sequence[Column],
    changes: Sequence[GroupChange],
    workers: int,
    costs: Costs | None = None,
) -> Choice:
    """Choose how to write a file anew.

    Args:
        anatomy: The file.
        columns: Its top-level columns.
        changes: The row groups that do not stay as they are.
        workers: How many threads encode; a full rewrite has one.
        costs: What things cost; by default `COSTS`.
    """
    costs = costs or COSTS
    wanted = _Work.of(anatomy, columns, changes)
    total = sum(chunk.raw_bytes for group in anatomy.groups for chunk in group.chunks)
    parallel = max(1, min(workers, wanted.bytes // UNIT_BYTES))
    encoding = wanted.bytes * costs.encode / parallel + wanted.units * costs.unit
    splice = (
        encoding
        + wanted.bytes * costs.decode
        + wanted.copied * costs.copy
        + wanted.chunks * costs.chunk
        + costs.file
    )
    full = total * (costs.encode + costs.decode) + len(anatomy.groups) * costs.group + costs.full
    shown = f"{wanted}: about {splice:.3g} s by splicing, {full:.3g} s by writing all of it"
    if splice >= full:
        return Choice.full(shown)
    return Choice("column splice" if wanted.is_partial else "splice", shown)


@dataclass(frozen=True)
class _Work:
    """What a splice would do."""

    groups: int
    total_groups: int
    columns: int
    total_columns: int
    units: int
    chunks: int
    bytes: int
    copied: int
    is_partial: bool

    @classmethod
    def of(
        cls, anatomy: Anatomy, columns: Sequence[Column], changes: Sequence[GroupChange]
    ) -> _Work:
        numbers = {column.name: column.numbers for column in columns}
        bytes_, kept_bytes = 0, 0
        by_group = {change.number: change for change in changes}
        for number, group in enumerate(anatomy.groups):
            change = by_group.get(number)
            names = change.columns if change is not None and change.rows else ()
            encoded = {leaf for name in names for leaf in numbers[name]}
            for leaf, chunk in enumerate(group.chunks):
                if leaf in encoded:
                    bytes_ += chunk.raw_bytes
                elif change is None or change.rows:
                    kept_bytes += chunk.data.length
        kept = [change for change in changes if change.rows]
        return cls(
            groups=len(changes),
            total_groups=len(anatomy.groups),
            columns=len({name for change in kept for name in change.columns}),
            total_columns=len(columns),
            units=max(len(kept), bytes_ // UNIT_BYTES),
            chunks=sum(len(group.chunks) for group in anatomy.groups),
            bytes=bytes_,
            copied=kept_bytes,
            is_partial=any(len(change.columns) < len(columns) for change in kept),
        )

    def __str__(self) -> str:
        return (
            f"{self.columns} of {self.total_columns} columns in {self.groups} of "
            f"{self.total_groups} row groups change"
        )


UNIT_BYTES: Final = 4 * 1024 * 1024
"""Columns of a row group are encoded together until they have this many bytes."""
