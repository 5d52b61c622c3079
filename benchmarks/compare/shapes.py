"""What is measured: datasets, what is merged into them, and what must come out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.peers.tables import KEY, WriterProperties, mix, rows_of, write_files
from benchmarks.peers.workloads import Workload, named_workloads

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Action = Literal["merge", "plan"]
DEFAULT_ROWS = 1_600_000
_ROW_GROUPS = 8
_WIDE_COLUMNS = 200


@dataclass(frozen=True)
class Shape:
    """One merge or plan, by name."""

    name: str
    title: str
    dataset: str
    """Shapes of the same dataset start from copies of the same files."""

    write: Callable[[Path], None]
    """Write the files of the dataset into a directory."""

    source: Callable[[], pa.Table]
    updated: int
    inserted: int = 0
    strategy: str = "upsert"
    action: Action = "merge"
    spark: bool = False
    """Whether it is measured on Spark, too."""


def all_shapes(rows: int = DEFAULT_ROWS) -> list[Shape]:
    """Every shape, for so many rows in 16 files."""
    named = {workload.name: workload for workload in named_workloads(rows)}
    plain = named["one-row"].layout
    # As many only of a dataset that is large enough to be measured.
    many, small = (
        WriterProperties(f"files-{n}", max(n, rows // 4), min(n, rows // 80)) for n in (1_000, 200)
    )
    return [
        _plan("plan-1000-files", f"Plan of 10 keys, {many.files:,} files", many, 10),
        _plan("plan-one-key", "Plan of 1 key, 16 files", plain, 1),
        _merge(named["one-row"], "One row", spark=True),
        _row_groups(plain),
        _merge(named["uuid-100"], "100 UUID keys of one file"),
        _merge(named["newest-partition"], "Newest partition", spark=True),
        _merge(named["spread"], "1 % spread", spark=True),
        _merge(named["spread-2-columns"], "1 % spread, 2 of 12 columns"),
        _merge(named["bulk"], "28 %"),
        _merge(named["insert-only"], "Insert-only"),
        _small_files(small),
        _wide(max(_ROW_GROUPS, rows // 40)),
    ]


def _merge(workload: Workload, title: str, *, spark: bool = False) -> Shape:
    chosen = workload.choose(workload.layout)
    return Shape(
        workload.name,
        title,
        workload.layout.name,
        lambda directory: _write(workload.layout, directory),
        workload.source,
        updated=0 if workload.strategy == "insert" else len(chosen.matched),
        inserted=len(chosen.new),
        strategy=workload.strategy,
        spark=spark,
    )


def _plan(name: str, title: str, layout: WriterProperties, count: int) -> Shape:
    codes = 2 * np.linspace(0, layout.total - 1, count).astype(np.int64)
    return Shape(
        name,
        title,
        layout.name,
        lambda directory: _write(layout, directory),
        lambda: rows_of(layout, codes, 1),
        updated=count,
        action="plan",
    )


def _row_groups(layout: WriterProperties) -> Shape:
    """Rows of one file, spread over all of its row groups."""
    codes = layout.codes(layout.files // 3)
    chosen = codes[np.linspace(0, len(codes) - 1, min(100, len(codes))).astype(int)]
    return Shape(
        "row-groups-8",
        f"100 rows in {_ROW_GROUPS} row groups of one file",
        layout.name,
        lambda directory: _write(layout, directory),
        lambda: rows_of(layout, chosen, 1),
        updated=len(chosen),
    )


def _small_files(layout: WriterProperties) -> Shape:
    codes = np.array([layout.codes(number)[0] for number in range(layout.files)])
    return Shape(
        "files-200",
        f"One row in each of {layout.files} small files",
        layout.name,
        lambda directory: _write(layout, directory),
        lambda: rows_of(layout, codes, 1),
        updated=len(codes),
        spark=True,
    )


def _wide(rows: int) -> Shape:
    """One row of a file of many columns."""

    def write(directory: Path) -> None:
        size = max(1, rows // _ROW_GROUPS)
        pq.write_table(_wide_rows(np.arange(rows)), directory / "w.parquet", row_group_size=size)

    return Shape(
        "wide-one-row",
        f"One row of {_WIDE_COLUMNS} columns",
        "wide",
        write,
        lambda: _wide_rows(np.array([rows // 2]), 1),
        updated=1,
    )


def _wide_rows(ids: np.ndarray, generation: int = 0) -> pa.Table:
    columns = {
        f"c{number}": (mix(ids.astype(np.uint64), 64 * generation + number) % 10_000) / 100.0
        for number in range(_WIDE_COLUMNS - 1)
    }
    return pa.table({KEY: ids, **columns})


def _write(layout: WriterProperties, directory: Path) -> None:
    """Write a table of the peers' benchmark, with several row groups in each file."""
    write_files(layout, directory, max(1, layout.rows_per_file // _ROW_GROUPS))
