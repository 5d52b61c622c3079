"""The PyArrow engine: Arrow kernels and threads of this process."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fsspeckit.core.arrow_compat import take_rows
from fsspeckit.core.keys import canonical_keys, key_fingerprints
from fsspeckit.core.matching import (
    FilePartition,
    IndexedKeys,
    LosingRows,
    Positions,
    check_same_rows,
    find_positions,
    index_keys,
    key_and_order_columns,
    losing_rows,
    moving_keys,
    prefilter_for,
    read_positions,
    scan_rows,
    scanned_files,
    selected_positions,
    share_of,
)
from fsspeckit.core.planning import read_footers
from fsspeckit.core.rewrite import Replacement, rewrite
from fsspeckit.core.threads import Task, ThreadPool
from fsspeckit.datasets.engine import FileMatch, Matches
from fsspeckit.datasets.pipeline import (
    DEFAULT_SOURCE_LIMITS,
    ArrowSource,
    FilesSource,
    MemorySource,
    open_source,
    stored_columns,
)
from fsspeckit.display import report_nothing

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from fsspeckit.core.conditions import Condition
    from fsspeckit.core.keys import KeyColumn
    from fsspeckit.core.matching import DuplicateRules
    from fsspeckit.core.planning import ConditionVerdict, FileFooter, MergePlan, Target
    from fsspeckit.core.rewrite import NewFile, NewFiles, Rewritten, RowRules
    from fsspeckit.datasets.engine import ItemT, OpenStage, ResultT
    from fsspeckit.datasets.pipeline import MergeOptions, Progress, SourceLimits
    from fsspeckit.storage import DataFile, Root, StagedFile

    Rows = NDArray[np.int64]

SCAN_WORKERS = 4
"""How many threads read key columns."""

# More than one for each core only takes memory.
_REWRITE_WORKERS = min(4, os.cpu_count() or 1)
_MAX_REWRITE_BYTES = 256 * 1024 * 1024
_DECODED_PER_ENCODED = 4
_SAMPLES = 5
_SHARE_ROWS = 1_000_000
"""Rows of sources on disk that are brought together at a time."""

_NOTHING = Replacement(np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True)
class ArrowPositions:
    """Which rows of each file are replaced by which source rows, and which source rows are new."""

    files: Mapping[str, Replacement]
    unmatched: NDArray[np.bool_]
    """For each source row, whether its key is not in the target."""


class ArrowEngine:
    """One machine, no other library than pyarrow."""

    name = "pyarrow"

    def __init__(
        self, filesystem: Any = None, limits: SourceLimits = DEFAULT_SOURCE_LIMITS
    ) -> None:
        self._filesystem = filesystem
        self._limits = limits

    def take(
        self,
        data: Any,
        stage: OpenStage,
        schema: pa.Schema | None,
        *,
        keep: bool = False,
        progress: Progress = report_nothing,
    ) -> ArrowSource:
        """Take the data: as it is if in memory and not to be kept, else read once."""
        return open_source(data, stage, self._filesystem, schema, keep=keep, limits=self._limits)

    def transform(
        self,
        source: ArrowSource,
        task: Callable[[pa.Table], pa.Table],
        stage: OpenStage,
        progress: Progress = report_nothing,
    ) -> ArrowSource:
        """Call the function piece by piece; a source in memory is one."""
        schema = task(source.schema.empty_table()).schema
        return self._collect(schema, map(task, source.batches()), stage)

    def combine(
        self,
        left: ArrowSource,
        right: ArrowSource,
        task: Callable[[pa.Table, pa.Table], pa.Table],
        keys: Sequence[KeyColumn],
        stage: OpenStage,
        progress: Progress = report_nothing,
    ) -> ArrowSource:
        """Call the function once; for one share of the keys after the other, if spilled."""
        schema = task(left.schema.empty_table(), right.schema.empty_table()).schema
        both = (left, right)
        rows = sum(one.num_rows for one in both if not isinstance(one, MemorySource))
        shares = -(-rows // _SHARE_ROWS) or 1
        pieces = (
            task(*(pa.concat_tables(_share(one, keys, number, shares)) for one in both))
            for number in range(shares)
        )
        return self._collect(schema, pieces, stage)

    def matched_rows(
        self,
        source: ArrowSource,
        target: Target,
        matches: Matches[ArrowPositions],
        schema: pa.Schema,
        stage: OpenStage,
        progress: Progress = report_nothing,
    ) -> ArrowSource:
        """Read file after file."""
        numbers = {footer.file.path: number for number, footer in enumerate(target.footers)}
        found = (
            read_positions(target, numbers[path], match.positions, schema)
            for path, match in matches.positions.files.items()
            if len(match.positions)
        )
        return self._collect(schema, found, stage)

    def target_rows(self, target: Target, schema: pa.Schema, stage: OpenStage) -> ArrowSource:
        """Return a source that reads the files."""
        return FilesSource(target, schema)

    def _collect(
        self, schema: pa.Schema, tables: Iterable[pa.Table], stage: OpenStage
    ) -> ArrowSource:
        """Make a source of tables, in memory while they are small."""
        batches = (batch for table in tables for batch in table.cast(schema).to_batches())
        reader = pa.RecordBatchReader.from_batches(schema, batches)
        return open_source(reader, stage, limits=self._limits)

    def map_items(
        self,
        phase: str,
        task: Callable[[ItemT], ResultT],
        items: Sequence[tuple[ItemT, int]],
        stage: OpenStage,
        progress: Progress = report_nothing,
    ) -> list[ResultT]:
        """Call the function in threads, one for each core."""
        results: list[ResultT] = []
        with ThreadPool(min(_REWRITE_WORKERS, len(items)), f"fsspeckit-{phase}") as pool:
            for result in pool.map(task, (item for item, _ in items)):
                results.append(result)
                progress(phase, len(results), len(items))
        return results

    def footers(
        self,
        root: Root,
        files: Sequence[DataFile],
        columns: Iterable[str] | None,
        *,
        stage: OpenStage,
    ) -> list[FileFooter]:
        """Read footers in threads."""
        return read_footers(root, files, columns)

    def keys(
        self,
        source: ArrowSource,
        target: Target,
        options: MergeOptions,
        progress: Progress = report_nothing,
    ) -> IndexedKeys:
        """Return the keys that take part, indexed."""
        wanted = key_and_order_columns(target, options, source.schema.names)
        return index_keys(source.columns(wanted), target, options)

    def match(
        self,
        source: ArrowSource,
        keys: IndexedKeys,
        target: Target,
        plan: MergePlan,
        progress: Progress,
    ) -> Matches[ArrowPositions]:
        """Scan candidates and guarded files."""
        unknown = target.unknown_partitions()
        work = {
            number: file.row_groups
            for number, file in enumerate(plan.files)
            if file.row_groups and number not in unknown
        }
        return _matches(target, keys, source, self.locate(keys, target, work, progress))

    def locate(
        self,
        keys: IndexedKeys,
        target: Target,
        work: Mapping[int, tuple[int, ...]],
        progress: Progress,
    ) -> Mapping[int, Positions]:
        """Return the positions of source keys by the number of the file.

        Args:
            keys: The keys of the source.
            target: The dataset.
            work: The row groups to scan, by the number of the file.
            progress: Called for each file.
        """
        found: dict[int, Positions] = {}
        prefilter = prefilter_for(keys.keys, target.key_columns)
        with ThreadPool(SCAN_WORKERS, "fsspeckit-scan") as pool:
            scans = pool.map(
                lambda item: find_positions(target, keys, prefilter, *item), work.items()
            )
            for number, positions in zip(work, scans, strict=True):
                found[number] = positions
                progress("match", len(found), len(work))
        return found

    def select(
        self,
        source: ArrowSource,
        target: Target,
        condition: Condition,
        verdicts: Sequence[ConditionVerdict],
        progress: Progress,
    ) -> Matches[ArrowPositions]:
        """Read the columns of the condition in threads."""
        work = [number for number, verdict in enumerate(verdicts) if verdict.is_affected]
        files: dict[str, FileMatch] = {}
        found: dict[str, Replacement] = {}
        with ThreadPool(SCAN_WORKERS, "fsspeckit-scan") as pool:
            scans = pool.map(lambda n: selected_positions(target, condition, n, verdicts[n]), work)
            for number, (positions, groups) in zip(work, scans, strict=True):
                path = target.footers[number].file.path
                files[path] = FileMatch(len(positions), groups)
                found[path] = Replacement(positions, np.zeros(len(positions), np.int64))
                progress("match", len(files), len(work))
        return Matches(files, 0, 0, (), ArrowPositions(found, np.zeros(0, bool)))

    def duplicates(
        self, source: ArrowSource, target: Target, rules: DuplicateRules, progress: Progress
    ) -> Matches[ArrowPositions]:
        """Scan keys in threads; those of many rows one share of the keys after the other."""
        numbers = scanned_files(target)
        found = self.find_duplicates(target, rules, numbers, progress)
        samples: dict[int, list[int]] = {}
        for index in found.different[:_SAMPLES].tolist():
            samples.setdefault(int(found.files[index]), []).append(int(found.positions[index]))
        check_same_rows(target, rules, len(found.different), samples)
        paths = {number: target.footers[number].file.path for number in numbers}
        files = found.by_file(target, numbers)
        return Matches(
            {paths[n]: FileMatch(len(p.positions), p.row_groups) for n, p in files.items()},
            0,
            0,
            (),
            ArrowPositions(
                {paths[n]: Replacement(p.positions, p.keys) for n, p in files.items()},
                np.zeros(0, bool),
            ),
        )

    def find_duplicates(
        self, target: Target, rules: DuplicateRules, numbers: Sequence[int], progress: Progress
    ) -> LosingRows:
        """Return the rows that go, of the files with these numbers."""
        rows = sum(target.footers[number].rows for number in numbers)
        shares = -(-rows // self._limits.max_duplicate_rows) or 1
        losing = [LosingRows.none()]
        done = 0
        with ThreadPool(SCAN_WORKERS, "fsspeckit-scan") as pool:
            for share in range(shares):
                tables = [rules.schema.empty_table()]
                for some in pool.map(partial(_scan_share, target, rules, share, shares), numbers):
                    tables += some
                    done += 1
                    progress("match", done, shares * len(numbers))
                losing.append(losing_rows(pa.concat_tables(tables), rules))
        return LosingRows.joined(losing)

    def rewrite(
        self,
        source: ArrowSource,
        target: Target,
        matches: Matches[ArrowPositions],
        files: Mapping[str, StagedFile],
        rules: RowRules,
        progress: Progress,
        finish: Callable[[StagedFile], None],
    ) -> dict[str, Rewritten]:
        """Rewrite files side by side, as many as memory allows."""
        footers = [footer for footer in target.footers if footer.file.path in files]
        known = {footer.file.path: footer.file for footer in footers}
        columns = stored_columns(target, footers, rules.stored(source.schema.names))
        partitions = FilePartition.by_path(target) if rules.moves else {}

        def rewrite_file(path: str) -> Rewritten:
            positions = matches.positions.files.get(path, _NOTHING)
            found = replace(positions, rules=rules, partition=partitions.get(path))
            return rewrite(
                target.root,
                path,
                found,
                lambda rows: source.take(rows).select(columns[path]),
                files[path].path,
                deciding=lambda rows: source.take(rows, found.deciding_columns),
                key_columns=[column.name for column in target.key_columns],
                types=target.types,
                threads=max(1, _REWRITE_WORKERS // workers),
                known=known[path],
            )

        largest = max((group.bytes for f in footers for group in f.row_groups), default=0)
        at_once = _MAX_REWRITE_BYTES // (largest * _DECODED_PER_ENCODED + 1)
        workers = max(1, min(_REWRITE_WORKERS, at_once, len(files)))
        written: dict[str, Rewritten] = {}
        finished: list[Task[None]] = []
        # In threads of their own: one that encodes would leave a core idle while it waits.
        with (
            ThreadPool(workers, "fsspeckit-finish") as finishing,
            ThreadPool(workers, "fsspeckit-rewrite") as pool,
        ):
            for path, new in zip(files, pool.map(rewrite_file, files), strict=True):
                written[path] = new
                if new.is_new:
                    finished.append(finishing.submit(finish, files[path]))
                progress("rewrite", len(written), len(files))
            for task in finished:
                task.result()
        return written

    def insert(
        self,
        source: ArrowSource,
        matches: Matches[ArrowPositions] | None,
        new_files: NewFiles,
        progress: Progress = report_nothing,
        *,
        rewritten: Collection[Rewritten] = (),
        inserts: bool = True,
    ) -> list[NewFile]:
        """Stream the rows into new files."""
        copies = None if matches is None else _copies(matches.positions, rewritten, inserts)
        start = 0
        for batch in source.batches():
            end = start + batch.num_rows
            if copies is not None:
                wanted = copies[start:end]
                if not (wanted == 1).all():
                    batch = take_rows(batch, pa.array(np.repeat(np.arange(len(wanted)), wanted)))
            if batch.num_rows:
                new_files.write(batch)
            start = end
        return new_files.finish()


def _scan_share(
    target: Target, rules: DuplicateRules, share: int, shares: int, number: int
) -> list[pa.Table]:
    """Read what decides about the rows of a file whose keys belong to a share."""
    groups = range(len(target.footers[number].row_groups))
    return [share_of(t, rules, share, shares) for t in scan_rows(target, rules, number, groups)]


def _share(
    source: ArrowSource, keys: Sequence[KeyColumn], number: int, shares: int
) -> list[pa.Table]:
    """Return the rows whose keys belong to one of several shares."""
    tables = [source.schema.empty_table(), *source.batches()]
    if shares == 1:
        return tables
    return [
        table.filter(pa.array(key_fingerprints(canonical_keys(table, keys)) % shares == number))
        for table in tables
    ]


def _copies(
    found: ArrowPositions, rewritten: Collection[Rewritten], inserts: bool
) -> NDArray[np.integer[Any] | np.bool_]:
    """Return how many copies of each source row go to new files."""
    unmatched = found.unmatched if inserts else np.zeros_like(found.unmatched)
    moved = [done.moved for done in rewritten if done.moved_rows]
    # One row may replace several, which were in other partitions.
    again = np.bincount(np.concatenate(moved), minlength=len(unmatched)) if moved else None
    return unmatched if again is None else unmatched + again


def _matches(
    target: Target, keys: IndexedKeys, source: ArrowSource, found: Mapping[int, Positions]
) -> Matches[ArrowPositions]:
    paths = {number: target.footers[number].file.path for number in found}
    is_known = np.zeros(keys.count, bool)
    moved = np.zeros(keys.count, bool)
    for number, positions in found.items():
        is_known[positions.keys] = True
        moved[positions.keys[moving_keys(target, keys, number, positions)]] = True
    samples = source.take(keys.source_rows(np.flatnonzero(moved)[:_SAMPLES]))
    unmatched = np.zeros(source.num_rows, bool)
    unmatched[slice(None) if keys.chosen is None else keys.chosen] = ~is_known
    names = [column.name for column in target.key_columns]
    return Matches(
        {paths[n]: FileMatch(len(p.positions), p.row_groups) for n, p in found.items()},
        int((~is_known).sum()),
        int(moved.sum()),
        [tuple(row.values()) for row in samples.select(names).to_pylist()],
        ArrowPositions(
            {
                paths[n]: Replacement(p.positions, keys.source_rows(p.keys))
                for n, p in found.items()
            },
            unmatched,
        ),
    )
