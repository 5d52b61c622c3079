"""Duplicates of the target: tasks read keys, Spark ranks the rows of each, and tasks note which go.

Spark sees canonical keys, the numbers of files and positions. All rows with one key meet in one
task, which sorts them on disk if they do not fit into memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from fsspeckit.core.matching import LosingRows, check_same_rows, scan_rows
from fsspeckit.datasets.spark.matching import MAX_SAMPLES, FoundRows, pack_scans
from fsspeckit.datasets.spark.rewriting import RowPairs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from fsspeckit.core.matching import DuplicateRules
    from fsspeckit.core.planning import Target
    from fsspeckit.datasets.engine import OpenStage
    from fsspeckit.datasets.spark.limits import SparkLimits
    from fsspeckit.datasets.spark.matching import ScanWork
    from fsspeckit.datasets.spark.progress import PhaseTasks
    from fsspeckit.datasets.spark.session import Jobs

__all__ = ["find_duplicates"]

_MAX_BATCH_ROWS = 65_536


@dataclass(frozen=True)
class _ScanDuplicates:
    """Reads what decides about the rows of files."""

    target: Target
    rules: DuplicateRules

    def __call__(self, work: ScanWork) -> Iterator[pa.RecordBatch]:
        """Take files by number, with the row groups to read, and yield their rows."""
        for number, row_groups in work:
            for table in scan_rows(self.target, self.rules, number, row_groups):
                yield from table.combine_chunks().to_batches(max_chunksize=_MAX_BATCH_ROWS)


@dataclass(frozen=True)
class _Losing:
    """The message of a task: the rows of a file that go."""

    found: FoundRows
    different: int
    """How many of them are not equal to the row that stays, where that matters."""

    samples: tuple[int, ...]
    """The positions of some of these."""


@dataclass(frozen=True)
class _NoteLosing:
    """Notes the rows that go, file by file."""

    target: Target
    directory: str
    inline: int
    """How many positions of a file are sent to the driver; more are staged."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[_Losing]:
        """Take files, positions and whether rows differ, and yield what was found in each file."""
        schema = pa.schema(
            [("file", pa.int64()), ("position", pa.int64()), ("differs", pa.bool_())]
        )
        tables = [pa.Table.from_batches([batch]).cast(schema) for batch in batches]
        losing = LosingRows.of(pa.concat_tables([schema.empty_table(), *tables]))
        files = np.unique(losing.files).tolist()
        for number, here in losing.by_file(self.target, files).items():
            mine = losing.positions[losing.different[losing.files[losing.different] == number]]
            pairs = RowPairs.of(
                self.target.root, self.directory, here.positions, here.keys, self.inline
            )
            found = FoundRows(number, len(here.positions), here.row_groups, pairs)
            yield _Losing(found, len(mine), tuple(mine[:MAX_SAMPLES].tolist()))


def find_duplicates(
    jobs: Jobs,
    limits: SparkLimits,
    stage: OpenStage,
    target: Target,
    rules: DuplicateRules,
    work: ScanWork,
    tasks: PhaseTasks,
) -> list[FoundRows]:
    """Return the rows of each file that go, given the row groups to scan.

    Raises:
        DuplicateRowsError: If such rows must be equal in every column, and are not.
    """
    F = jobs.functions
    packed: Sequence[ScanWork] = pack_scans(limits, target, work, jobs.tasks)
    scanned = jobs.map_items_to_rows(_ScanDuplicates(target, rules), packed, _ddl(rules.schema))
    place = [f"file {rules.direction}", f"position {rules.direction}"]
    order = [*(f"{name} DESC NULLS LAST" for name in rules.order_names), *place]
    # As text: the class Window is of one kind of session only.
    window = f"(PARTITION BY {', '.join(rules.group_names)} ORDER BY {', '.join(order)})"
    differs = f"NOT (digest <=> first_value(digest) OVER {window})"
    ranked = scanned.select(
        "file",
        "position",
        F.expr(differs if rules.compares_rows else "false").alias("differs"),
        F.expr(f"row_number() OVER {window}").alias("place"),
    )
    losing = ranked.filter("place > 1").select("file", "position", "differs").repartition("file")
    note = _NoteLosing(target, stage().path, limits.broadcast_max_inline_pairs)
    found: list[_Losing] = jobs.map_partitions("find duplicates in", stage, losing, note, tasks)
    samples = {one.found.route: one.samples for one in found if one.different}
    some = dict(list(samples.items())[:MAX_SAMPLES])
    check_same_rows(target, rules, sum(one.different for one in found), some)
    return [one.found for one in found]


def _ddl(schema: pa.Schema) -> str:
    """Return columns of numbers and bytes as Spark's schema."""
    kinds = (("bigint" if pa.types.is_int64(field.type) else "binary") for field in schema)
    return ", ".join(f"{name} {kind}" for name, kind in zip(schema.names, kinds, strict=True))
