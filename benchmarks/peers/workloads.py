"""What is merged into what: the workloads by name, and the sweep over fractions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from benchmarks.peers.tables import WriterProperties, mix, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from benchmarks.peers.tables import Codes

Strategy = Literal["upsert", "insert"]
DEFAULT_ROWS = 4_000_000


@dataclass(frozen=True)
class Source:
    """The codes of the rows that a merge brings."""

    matched: Codes
    new: Codes


@dataclass(frozen=True)
class Workload:
    """One merge into one table."""

    name: str
    title: str
    layout: WriterProperties
    choose: Callable[[WriterProperties], Source]
    strategy: Strategy = "upsert"
    changed: tuple[str, ...] | None = None
    """The columns in which a matched row differs from what is there; None for all but the key."""

    def source(self) -> pa.Table:
        """The rows to merge, in no order."""
        chosen = self.choose(self.layout)
        codes = np.concatenate([chosen.matched, chosen.new])
        shuffled = codes[np.argsort(mix(codes.astype(np.uint64), 7))]
        return rows_of(self.layout, shuffled, 1, self.changed)

    def replaced(self) -> pa.Table:
        """The rows of the table that the merge takes away."""
        codes = self.choose(self.layout).matched if self.strategy == "upsert" else _none()
        return rows_of(self.layout, codes)

    def brought(self) -> pa.Table:
        """The rows that the merge puts into the table."""
        chosen = self.choose(self.layout)
        kept = _none() if self.strategy == "insert" else chosen.matched
        return rows_of(self.layout, np.concatenate([kept, chosen.new]), 1, self.changed)


def named_workloads(rows: int = DEFAULT_ROWS) -> list[Workload]:
    """The workloads that are named by their shape."""
    plain = WriterProperties("plain", rows)
    uuid = WriterProperties("uuid", rows, keys="uuid")
    bloom = WriterProperties("uuid-bloom", rows, keys="uuid", bloom=True)
    hive = WriterProperties("hive", rows, partitioned=True)
    some, many = (WriterProperties(f"files-{n}", max(n, rows // 4), n) for n in _file_counts(rows))
    percent, most = max(1, rows // 100), _newest(rows)
    hundred = "100 rows of one file of 16"
    return [
        Workload("one-row", "One row", plain, lambda t: _run(t, 1)),
        Workload("clustered-100", hundred, plain, lambda t: _run(t, 100)),
        Workload("uuid-100", f"{hundred}, random UUID keys", uuid, lambda t: _run(t, 100)),
        Workload(
            "uuid-100-bloom",
            f"{hundred}, random UUID keys, bloom filters",
            bloom,
            lambda t: _run(t, 100),
        ),
        Workload(
            "newest-partition",
            f"{most:,} rows into the newest of 16 hive partitions, half of them new",
            hive,
            _into_newest,
        ),
        Workload("spread", f"1 % of all rows ({percent:,}), all columns change", plain, _percent),
        Workload(
            "spread-2-columns",
            f"1 % of all rows ({percent:,}), 2 of 12 columns change",
            plain,
            _percent,
            changed=("price", "city"),
        ),
        Workload("bulk", "28 % of all rows", plain, lambda t: Source(_fraction(t, 0.28), _none())),
        Workload(
            "insert-only",
            f"Insert-only: {percent:,} rows beyond the newest key, a tenth of them there already",
            plain,
            _redelivered,
            "insert",
        ),
        Workload(f"files-{some.files}", f"100 rows in 10 of {some.files:,} files", some, _in_ten),
        Workload(f"files-{many.files}", f"100 rows in 10 of {many.files:,} files", many, _in_ten),
    ]


_UPSERTS = (
    (0.05, 0.0, 0.1),
    (0.05, 0.01, 0.1),
    (0.05, 0.1, 0.0),
    (0.05, 0.1, 0.01),
    (0.05, 0.5, 0.001),
    (0.05, 0.99, 0.001),
    (0.05, 1.0, 0.001),
    (0.5, 0.01, 0.001),
    (1.0, 0.01, 0.001),
)
_INSERTS = ((0.05, 0.05), (0.05, 0.5), (0.05, 1.0))


def sweep(rows: int = DEFAULT_ROWS) -> list[Workload]:
    """Files matched x rows matched x rows not matched, in the fractions that Delta publishes."""
    layout = WriterProperties("sweep", max(2000, rows // 8), 20)
    cases: list[tuple[float, float, float, Strategy]]
    cases = [(*fractions, "upsert") for fractions in _UPSERTS]
    cases += [(files, 0.0, new, "insert") for files, new in _INSERTS]
    return [_swept(layout, *case) for case in cases]


def _swept(
    layout: WriterProperties, files: float, matched: float, new: float, strategy: Strategy
) -> Workload:
    shares = [f"{100 * share:g} %" for share in (files, matched, new)]
    title = f"{strategy}: {shares[0]} of files, {shares[1]} of rows matched, {shares[2]} not"

    def choose(table: WriterProperties) -> Source:
        count = max(1, round(files * table.files))
        codes = np.concatenate([table.codes(number) for number in range(count)])
        return Source(_sample(codes, matched), _sample(codes, new) + 1)

    return Workload(
        f"sweep-{strategy}-{files:g}-{matched:g}-{new:g}", title, layout, choose, strategy
    )


def _file_counts(rows: int) -> tuple[int, int]:
    """1,000 and 10,000 files; fewer where there are few rows, as in a test."""
    return (1_000, 10_000) if rows >= 400_000 else (20, 40)


def _newest(rows: int) -> int:
    """25,000 rows, or a tenth of a partition of few."""
    return min(25_000, max(2, rows // 160))


def _none() -> Codes:
    return np.empty(0, np.int64)


def _sample(codes: Codes, fraction: float) -> Codes:
    """So many of the rows, at random, the same in every run."""
    count = round(fraction * len(codes))
    return np.sort(codes[np.argsort(mix(codes.astype(np.uint64), 11))[:count]])


def _fraction(table: WriterProperties, fraction: float) -> Codes:
    return _sample(2 * np.arange(table.total), fraction)


def _run(table: WriterProperties, count: int) -> Source:
    """Rows next to each other, in the middle of a file in the middle."""
    codes = table.codes(table.files // 3)
    middle = len(codes) // 2
    return Source(codes[middle : middle + count], _none())


def _into_newest(table: WriterProperties) -> Source:
    codes = table.codes(table.files - 1)
    half = _newest(table.rows) // 2
    return Source(_sample(codes, half / len(codes)), codes[-1] + 2 * np.arange(1, half + 1))


def _percent(table: WriterProperties) -> Source:
    """One row of each hundred, so that no row group is left out."""
    hundreds = np.arange(0, table.total - table.total % 100, 100)
    offsets = (mix(hundreds.astype(np.uint64), 13) % np.uint64(100)).astype(np.int64)
    return Source(2 * (hundreds + offsets), _none())


def _redelivered(table: WriterProperties) -> Source:
    codes = table.codes(table.files - 1)
    count = max(10, table.total // 100)
    new = codes[-1] + 2 * np.arange(1, count - count // 10 + 1)
    return Source(codes[-(count // 10) :], new)


def _in_ten(table: WriterProperties) -> Source:
    files = np.linspace(0, table.files - 1, 10).astype(int)
    return Source(np.concatenate([table.codes(number)[:10] for number in files]), _none())
