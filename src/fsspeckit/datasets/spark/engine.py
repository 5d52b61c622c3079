"""The Spark engine: small merges run in the driver, all others in tasks that send messages."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import and_
from typing import TYPE_CHECKING, Any, Generic

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from fsspeckit.core.keys import key_column, no_keys
from fsspeckit.core.matching import (
    IndexedKeys,
    index_keys,
    key_and_order_columns,
    scanned_files,
)
from fsspeckit.core.planning import read_footers
from fsspeckit.core.schema_conform import check_same_columns
from fsspeckit.datasets.engine import FileMatch, ItemT, Matches, ResultT
from fsspeckit.datasets.pipeline import MemorySource, as_paths, check_unique_names
from fsspeckit.datasets.pyarrow import ArrowEngine
from fsspeckit.datasets.spark.changing import (
    combine_sources,
    read_matched_rows,
    transform_source,
)
from fsspeckit.datasets.spark.conditions import select_rows
from fsspeckit.datasets.spark.duplicates import find_duplicates
from fsspeckit.datasets.spark.inserting import (
    InsertPieces,
    InsertRows,
    InsertShare,
    SplitByPartition,
    cut_shares,
    insert_shares,
    insertable,
    moved_shares,
    pack_pieces,
    task_rows,
)
from fsspeckit.datasets.spark.keys import (
    DriverKeys,
    KeyColumns,
    ReadFooters,
    ReadKeyFile,
    ReadKeys,
    ResolvedKeys,
    ResolveKeys,
    StagedKeys,
    check_facts,
    deduplicate_keys,
    trusted_bounds,
)
from fsspeckit.datasets.spark.limits import (
    DEFAULT_LIMITS,
    TierChoice,
    choose_tier,
    chunk_evenly,
    chunk_footers,
    driver_reads_footers,
    pack_by_size,
    row_ranges,
)
from fsspeckit.datasets.spark.matching import (
    MAX_SAMPLES,
    CountRows,
    FoundRows,
    MatchFiles,
    ScanFiles,
    SelectRows,
    WritePairs,
    pack_scans,
    row_group_bytes,
    sample_keys_of,
    scattered_files,
    subset,
    unpack_flags,
)
from fsspeckit.datasets.spark.progress import PhaseTasks
from fsspeckit.datasets.spark.rewriting import (
    PAIRS,
    PIECES,
    ReadPairs,
    RewriteFile,
    RewriteRouted,
    RouteRows,
    RowPairs,
    file_windows,
    rewriter_for,
)
from fsspeckit.datasets.spark.session import all_nullable, arrow_schema, check_types
from fsspeckit.datasets.spark.source import (
    SourceRows,
    SparkSource,
    StageBatches,
    files_in_place,
    fit_rows,
    rows_of_target,
)
from fsspeckit.display import report_nothing
from fsspeckit.errors import Argument, InvalidArgumentError
from fsspeckit.storage import WorkerStage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from fsspeckit.core.conditions import Condition
    from fsspeckit.core.keys import KeyColumn
    from fsspeckit.core.matching import DuplicateRules
    from fsspeckit.core.planning import ConditionVerdict, FileFooter, MergePlan, Target
    from fsspeckit.core.rewrite import NewFile, NewFiles, Rewritten, RowRules
    from fsspeckit.datasets.engine import OpenStage
    from fsspeckit.datasets.pipeline import MergeOptions, Progress
    from fsspeckit.datasets.spark.inserting import PartitionPieces
    from fsspeckit.datasets.spark.keys import KeyFacts
    from fsspeckit.datasets.spark.limits import SparkLimits
    from fsspeckit.datasets.spark.matching import Scanned, ScanWork
    from fsspeckit.datasets.spark.rewriting import RewriteFiles
    from fsspeckit.datasets.spark.session import Jobs
    from fsspeckit.storage import DataFile, Root, StagedFile

    Rows = NDArray[np.int64]

__all__ = ["SparkEngine", "check_order"]


@dataclass(frozen=True)
class _TaskPositions:
    """The matches that tasks found; those that the driver found are the PyArrow engine's own."""

    pairs: Mapping[str, tuple[RowPairs, ...]] = field(default_factory=dict)
    """By canonical path, which positions have which source rows."""

    unmatched: tuple[InsertShare, ...] = ()
    """Source rows whose key is not in the target, in their order."""

    rewritten: Mapping[str, Rewritten] = field(default_factory=dict)
    """By canonical path, files that the scanning tasks have rewritten."""

    scattered: frozenset[str] = frozenset()
    """Files whose source rows are all over the source."""


@dataclass(frozen=True)
class _MapItems(Generic[ItemT, ResultT]):
    """Calls a function for each item of a task."""

    function: Callable[[ItemT], ResultT]

    def __call__(self, items: Sequence[ItemT]) -> Iterator[ResultT]:
        return map(self.function, items)


class SparkEngine:
    """Merges with Spark, in one of three tiers: see :func:`~.limits.choose_tier`.

    Args:
        jobs: Where jobs run.
        filesystem: The filesystem of paths that are passed as data.
        limits: How large the work of each tier and task may be.
    """

    name = "spark"

    def __init__(
        self, jobs: Jobs, filesystem: Any = None, limits: SparkLimits = DEFAULT_LIMITS
    ) -> None:
        self._jobs = jobs
        self._filesystem = filesystem
        self._limits = limits
        self._driver = ArrowEngine(filesystem)

    def take(
        self,
        data: Any,
        stage: OpenStage,
        schema: pa.Schema | None,
        *,
        keep: bool = False,
        progress: Progress = report_nothing,
    ) -> SparkSource:
        """Take the data: a data frame is evaluated once, by tasks that write it to staging."""
        if isinstance(data, DataFrame):
            return self._take_frame(data, stage, schema, PhaseTasks("stage", progress))
        if paths := as_paths(data):
            return SparkSource(stage, files_in_place(paths, self._filesystem, schema))
        return SparkSource(stage, held=self._driver.take(data, stage, schema, keep=keep))

    def _take_frame(
        self, frame: DataFrame, stage: OpenStage, schema: pa.Schema | None, tasks: PhaseTasks
    ) -> SparkSource:
        check_types(frame.schema, "variant", "geometry", "geography")
        given = arrow_schema(all_nullable(frame.schema))
        check_unique_names(given.names)
        if schema is not None:
            check_same_columns(given.names, schema.names, "schema")
        wanted = given if schema is None else schema
        # Spark looks the columns up by their names, and takes a dot for a field of a struct.
        rows = frame.toDF(*(f"c{number}" for number in range(len(given))))
        small = self._take_small(rows, given, wanted, stage, tasks)
        if small is not None:
            return SparkSource(stage, held=MemorySource(small), has_order=False)
        task = StageBatches(stage().storage.root, stage().path, given, wanted)
        found = self._jobs.map_partitions("stage the source for", stage, rows, task, tasks)
        parts = tuple(part for _, part in sorted(found, key=lambda message: message[0]))
        return SparkSource(stage, SourceRows(wanted, parts), has_order=False)

    def _take_small(
        self,
        rows: DataFrame,
        frame: pa.Schema,
        schema: pa.Schema,
        stage: OpenStage,
        tasks: PhaseTasks,
    ) -> pa.Table | None:
        """Take a small data frame into the driver, which needs no worker; None if it is not small.

        Spark's estimate may be wrong, so that no more rows are taken than show that it is. They are
        left where they are then, and the data frame is evaluated again.
        """
        limits = self._limits
        max_bytes = min(limits.driver_max_frame_bytes, limits.driver_max_source_bytes)
        max_rows = min(limits.driver_max_frame_rows, limits.driver_max_source_rows)
        size = self._jobs.estimated_bytes(rows)
        if size is None or size > max_bytes:
            return None
        first = rows.limit(max_rows + 1)
        table = self._jobs.collect_table("stage the source for", stage, first, tasks)
        if table.num_rows > max_rows or table.nbytes > max_bytes:
            return None
        return fit_rows(table, frame, schema)

    def transform(
        self,
        source: SparkSource,
        task: Callable[[pa.Table], pa.Table],
        stage: OpenStage,
        progress: Progress = report_nothing,
    ) -> SparkSource:
        """Call the function in the driver if the source is small, else in tasks."""
        if self._is_small(source):
            local = self._driver.transform(source.local, task, stage)
            return SparkSource(stage, held=local, has_order=source.has_order)
        tasks = PhaseTasks("stage", progress)
        rows = transform_source(self._jobs, self._limits, stage, source.rows, task, tasks)
        return SparkSource(stage, rows, has_order=source.has_order)

    def combine(
        self,
        left: SparkSource,
        right: SparkSource,
        task: Callable[[pa.Table, pa.Table], pa.Table],
        keys: Sequence[KeyColumn],
        stage: OpenStage,
        progress: Progress = report_nothing,
    ) -> SparkSource:
        """Call the function in the driver if both are small, else in tasks by key."""
        if self._is_small(left, right):
            local = self._driver.combine(left.local, right.local, task, keys, stage)
            return SparkSource(stage, held=local, has_order=left.has_order)
        rows = combine_sources(
            self._jobs,
            self._limits,
            stage,
            (left.rows, right.rows),
            task,
            keys,
            PhaseTasks("plan", progress),
        )
        return SparkSource(stage, rows, has_order=left.has_order)

    def matched_rows(
        self,
        source: SparkSource,
        target: Target,
        matches: Matches[Any],
        schema: pa.Schema,
        stage: OpenStage,
        progress: Progress = report_nothing,
    ) -> SparkSource:
        """Read the rows, in the tier of the match."""
        found = matches.positions
        if not isinstance(found, _TaskPositions):
            local = self._driver.matched_rows(source.local, target, matches, schema, stage)
            return SparkSource(stage, held=local)
        rows = read_matched_rows(
            self._jobs,
            self._limits,
            stage,
            target,
            matches,
            found.pairs,
            schema,
            PhaseTasks("plan", progress),
        )
        return SparkSource(stage, rows)

    def target_rows(self, target: Target, schema: pa.Schema, stage: OpenStage) -> SparkSource:
        """Return a source whose rows tasks read where they are."""
        return SparkSource(stage, rows_of_target(target, schema))

    def _is_small(self, *sources: SparkSource) -> bool:
        """Whether the driver may hold the rows of sources, all of them together."""
        choice = choose_tier(
            self._limits,
            source_bytes=sum(source.bytes for source in sources),
            source_rows=sum(source.num_rows for source in sources),
            key_bytes=None,
        )
        return choice.tier == "driver"

    def map_items(
        self,
        phase: str,
        task: Callable[[ItemT], ResultT],
        items: Sequence[tuple[ItemT, int]],
        stage: OpenStage,
        progress: Progress = report_nothing,
    ) -> list[ResultT]:
        """Call the function in the driver for little data, else in tasks."""
        if sum(size for _, size in items) <= self._limits.driver_max_target_bytes:
            return self._driver.map_items(phase, task, items, stage, progress)
        packed = pack_by_size(self._limits, items, self._jobs.tasks)
        tasks = PhaseTasks(phase, progress)
        return self._jobs.map_items(f"{phase} files of", stage, _MapItems(task), packed, tasks)

    def footers(
        self,
        root: Root,
        files: Sequence[DataFile],
        columns: Iterable[str] | None,
        *,
        stage: OpenStage,
    ) -> list[FileFooter]:
        """Read footers: in tasks if there are more than the driver should read.

        These tasks are not reported: the count of the phase ``plan`` is that of the keys.
        """
        wanted = None if columns is None else tuple(columns)
        if driver_reads_footers(self._limits, len(files), is_local=root.is_local):
            return read_footers(root, files, wanted)
        work = chunk_footers(self._limits, files, self._jobs.tasks)
        task = ReadFooters(root, wanted)
        found = self._jobs.map_items("read the footers of", stage, task, work)
        by_path = {footer.file.path: footer for footers in found for footer in footers}
        return [by_path[file.path] for file in files]

    def keys(
        self,
        source: SparkSource,
        target: Target,
        options: MergeOptions,
        progress: Progress = report_nothing,
    ) -> DriverKeys | ResolvedKeys:
        """Return the keys that take part: indexed by the driver if it can hold them."""
        if not source.has_order:
            check_order(options)
        limits = self._limits
        wanted = key_and_order_columns(target, options, source.schema.names)
        order = tuple(key_column(n, source.schema.field(n).type) for n in options.order_by)
        columns = KeyColumns.of(target, options.delete_when, order)
        if source.num_rows <= limits.broadcast_max_given_keys or self._can_index(source, columns):
            found = index_keys(source.columns(wanted), target, options)
            return DriverKeys(
                found.keys, found.index, found.chosen, found.delete_when, options=options
            )
        empty = pa.schema([source.schema.field(name) for name in wanted]).empty_table()
        index_keys(empty, target, options)  # what is wrong with the columns is wrong here too
        return self._resolved(source, target, columns, options, PhaseTasks("plan", progress))

    def _can_index(self, source: SparkSource, columns: KeyColumns) -> bool:
        """Whether the driver can hold keys that are not given to tasks: small, or numbers."""
        limits = self._limits
        if source.num_rows <= limits.driver_max_source_rows:
            return source.bytes <= limits.driver_max_source_bytes
        return (
            columns.width is not None
            and columns.width * source.num_rows <= limits.broadcast_max_key_bytes
            and source.file_count <= limits.driver_max_source_files
        )

    def _resolved(
        self,
        source: SparkSource,
        target: Target,
        columns: KeyColumns,
        options: MergeOptions,
        tasks: PhaseTasks,
    ) -> ResolvedKeys:
        """Let tasks resolve the keys, and stage one row of each."""
        resolve = ResolveKeys(
            target.root,
            source.stage().path,
            columns,
            tuple(trusted_bounds(target, options.trust_partitions)),
            tuple(part.name for part in target.partition_columns),
        )
        work = row_ranges(self._limits, source.num_rows, self._jobs.tasks)
        schema = f"{columns.ddl('k', 'p', 'd', 'o')}, row bigint"
        every = self._jobs.map_items_to_rows(ReadKeys(source.rows, columns), work, schema)
        grouped = deduplicate_keys(self._jobs.functions, every, columns, options.duplicates)
        facts: list[KeyFacts] = self._jobs.map_partitions(
            "resolve the keys for", source.stage, grouped, resolve, tasks
        )
        check_facts(source, facts, options)
        return ResolvedKeys(
            pa.concat_tables([no_keys(target).keys, *(one.representative_keys for one in facts)]),
            StagedKeys(
                tuple(one.part for one in facts if one.part is not None),
                columns,
                sum(one.bytes for one in facts),
            ),
            options.null_keys == "match",
        )

    def match(
        self,
        source: SparkSource,
        keys: DriverKeys | ResolvedKeys,
        target: Target,
        plan: MergePlan,
        progress: Progress,
    ) -> Matches[Any]:
        """Scan candidates and guarded files, in the tier that is chosen here for the merge."""
        unknown = target.unknown_partitions()
        numbers = [n for n, file in enumerate(plan.files) if file.row_groups and n not in unknown]
        choice = self._choose_tier(source, keys, target, [(n, plan.files[n]) for n in numbers])
        if choice.tier == "driver":
            assert isinstance(keys, DriverKeys)
            found = self._driver.match(source.local, keys, target, plan, progress)
            return replace(found, metrics=choice.metrics)
        work = [(i, plan.files[n].row_groups) for i, n in enumerate(numbers)]
        some, tasks = subset(target, numbers), PhaseTasks("match", progress)
        if choice.tier == "shuffle":
            assert isinstance(keys, ResolvedKeys)
            found = self._join(source, keys, some, work, tasks, counts_moved=not plan.moves_rows)
        else:
            found = self._look_up(source, keys, some, work, tasks)
        return replace(found, metrics=choice.metrics)

    def _choose_tier(
        self,
        source: SparkSource,
        keys: DriverKeys | ResolvedKeys,
        target: Target,
        files: Sequence[tuple[int, Any]],
    ) -> TierChoice:
        """Choose the tier of a merge from what its plan leaves to read and rewrite."""
        if isinstance(keys, ResolvedKeys):
            return choose_tier(
                self._limits,
                source_bytes=source.bytes,
                source_rows=source.num_rows,
                key_bytes=keys.staged.weight,
            )
        work = [(number, file.row_groups) for number, file in files]
        if _rewrites(keys.options):
            every = keys.options.rewrite_all
            wanted = range(len(target.footers)) if every else [number for number, _ in files]
            work = [(n, tuple(range(len(target.footers[n].row_groups)))) for n in wanted]
        return choose_tier(
            self._limits,
            source_bytes=source.bytes,
            source_rows=source.num_rows,
            key_bytes=None,
            target_bytes=row_group_bytes(target, work),
            target_files=len(work),
        )

    def _look_up(
        self,
        source: SparkSource,
        keys: DriverKeys | ResolvedKeys,
        target: Target,
        work: ScanWork,
        tasks: PhaseTasks,
    ) -> Matches[Any]:
        """Scan files in tasks that have all keys."""
        rewriter = None
        if isinstance(keys, ResolvedKeys):
            sent: IndexedKeys | StagedKeys = keys.staged
        elif keys.count > self._limits.broadcast_max_given_keys:
            sent = keys.staged(source, KeyColumns.of(target, keys.delete_when))
        else:
            if _rewrites_in_scans(keys.options):
                rewriter = rewriter_for(source, target, self._limits, keys.options.rules)
            # Without the options: its progress may be a function of this process only.
            sent = IndexedKeys(keys.keys, keys.index, keys.chosen, keys.delete_when)
        known = np.zeros(sent.count, bool)
        moved = np.zeros(sent.count, bool)
        found: list[FoundRows] = []
        for message in self._scan(source, sent, target, work, rewriter, tasks):
            known |= unpack_flags(message.known, sent.count)
            moved |= unpack_flags(message.moved, sent.count)
            found += message.files
        unmatched = np.sort(sent.rows[~known]) if not known.all() else np.empty(0, np.int64)
        some = sent.rows[np.flatnonzero(moved)[:MAX_SAMPLES]] if moved.any() else unmatched[:0]
        shares = insert_shares(self._limits, source, unmatched)
        is_routed = isinstance(sent, StagedKeys)
        return self._matches(
            source, target, work, found, shares, (int(moved.sum()), some), is_routed
        )

    def _matches(
        self,
        source: SparkSource,
        target: Target,
        work: ScanWork,
        found: Sequence[FoundRows],
        unmatched: Sequence[InsertShare],
        moved: tuple[int, Rows],
        is_routed: bool = True,
    ) -> Matches[Any]:
        """Bring together what tasks found; ``moved`` is a number of keys, and rows of some."""
        paths = {number: target.footers[number].file.path for number, _ in work}
        files = {path: FileMatch(0, ()) for path in paths.values()}
        pairs: dict[str, tuple[RowPairs, ...]] = {}
        for one in found:
            path, known = paths[one.route], files[paths[one.route]]
            groups = tuple(sorted({*known.row_groups, *one.row_groups}))
            files[path] = FileMatch(known.rows + one.rows, groups)
            pairs[path] = (*pairs.get(path, ()), one.pairs)
        scattered = scattered_files(self._limits, found, source) if is_routed else ()
        return Matches(
            files,
            sum(map(len, unmatched)),
            moved[0],
            sample_keys_of(source, [c.name for c in target.key_columns], moved[1]),
            _TaskPositions(
                pairs,
                tuple(unmatched),
                {paths[one.route]: one.rewritten for one in found if one.rewritten},
                frozenset(paths[number] for number in scattered),
            ),
        )

    def _scan(
        self,
        source: SparkSource,
        keys: IndexedKeys | StagedKeys,
        target: Target,
        work: ScanWork,
        rewriter: RewriteFiles | None,
        tasks: PhaseTasks,
    ) -> list[Scanned]:
        packed = pack_scans(self._limits, target, work, self._jobs.tasks)
        times = Counter(number for some in packed for number, _ in some)
        task = MatchFiles(
            target,
            keys,
            source.stage().path,
            {n: file_windows(target.footers[n], self._limits) for n, _ in work},
            source.rows.starts if isinstance(keys, StagedKeys) else None,
            self._limits.broadcast_max_inline_pairs,
            rewriter,
            frozenset(number for number, count in times.items() if count > 1),
        )
        return self._jobs.map_items("match keys of", source.stage, task, packed, tasks)

    def _join(
        self,
        source: SparkSource,
        keys: ResolvedKeys,
        target: Target,
        work: ScanWork,
        tasks: PhaseTasks,
        *,
        counts_moved: bool,
    ) -> Matches[Any]:
        """Let Spark join keys, both sides shuffled by key."""
        bucket = self._limits.insert_max_rows
        joined = self._joined(keys, target, work, bucket)
        parts = {n: file_windows(target.footers[n], self._limits) for n, _ in work}
        task = WritePairs(
            target, keys.staged.columns, source.stage().path, parts, source.rows.starts
        )
        found: list[FoundRows] = self._jobs.map_partitions(
            "match keys of", source.stage, joined, task, tasks
        )
        hits = [message for message in found if message.route >= 0]
        without = sorted((m for m in found if m.route < 0), key=lambda message: -message.route)
        shares = [
            InsertShare((-1 - m.route) * bucket, (-m.route) * bucket, (m.pairs,), m.rows)
            for m in without
        ]
        some = np.unique(np.array([row for m in hits for row in m.samples], np.int64))
        moved = self._count_moved(source, target, hits, tasks) if counts_moved else 0
        samples = some[:MAX_SAMPLES] if counts_moved else some[:0]
        return self._matches(source, target, work, hits, shares, (moved, samples))

    def _count_moved(
        self, source: SparkSource, target: Target, hits: Sequence[FoundRows], tasks: PhaseTasks
    ) -> int:
        """Count the source keys that the target has in another partition, each once."""
        work = [(m.route, RewriteFile("", (m.pairs,))) for m in hits if m.moved]
        if not work:
            return 0
        read = ReadPairs(target.root, only_moved=True)
        pairs = self._jobs.map_items_to_rows(read, chunk_evenly(self._limits, work), PAIRS)
        rows = pairs.select("row").distinct()
        phase = "count keys that would move in"
        return sum(self._jobs.map_partitions(phase, source.stage, rows, CountRows(), tasks))

    def _joined(self, keys: ResolvedKeys, target: Target, work: ScanWork, bucket: int) -> DataFrame:
        """Return every key with the positions that have it, in the order of files and positions."""
        F = self._jobs.functions
        columns = keys.staged.columns
        ours = self._jobs.map_items_to_rows(
            ReadKeyFile(), keys.staged.parts, f"{columns.ddl('k', 'p', 'd')}, row bigint"
        )
        theirs = self._jobs.map_items_to_rows(
            ScanFiles(target),
            pack_scans(self._limits, target, work, self._jobs.tasks),
            f"{columns.ddl('k', prefix='t')}, file bigint, position bigint",
        )
        same = [
            F.col(name).eqNullSafe(F.col(f"t{name}"))
            if keys.null_safe
            else F.col(name) == F.col(f"t{name}")
            for name in columns.starting("k")
        ]
        # Spark estimates the size of what tasks make of a range of numbers as some bytes, and
        # would send it through the driver to broadcast it. Keys that are small enough for that
        # have never come here.
        theirs = theirs.hint("merge")
        # Rows without a match go by where they are in the source, so that they are read together.
        bucketed = -1 - F.floor(F.col("row") / F.lit(bucket))
        wanted = [*columns.starting("k", "p", "d"), "row", "position"]
        return (
            ours.join(theirs, reduce(and_, same), "left")
            .select(F.coalesce("file", bucketed).alias("route"), *wanted)
            .repartition("route")
            .sortWithinPartitions("route", "position", "row")
        )

    def select(
        self,
        source: SparkSource,
        target: Target,
        condition: Condition,
        verdicts: Sequence[ConditionVerdict],
        progress: Progress,
    ) -> Matches[Any]:
        """Evaluate the condition in tasks that get whole files; the driver does so for few."""
        numbers = [number for number, verdict in enumerate(verdicts) if verdict.is_affected]
        if condition.of_engine is not None:
            return self._select_by_column(source, target, condition, numbers, progress)
        every = [(n, tuple(range(len(target.footers[n].row_groups)))) for n in numbers]
        choice = choose_tier(
            self._limits,
            source_bytes=0,
            source_rows=0,
            key_bytes=None,
            target_bytes=row_group_bytes(target, every),
            target_files=len(numbers),
        )
        if choice.tier == "driver":
            found = self._driver.select(source.local, target, condition, verdicts, progress)
            return replace(found, metrics=choice.metrics)
        some = subset(target, numbers)
        sizes = [(n, footer.file.size) for n, footer in enumerate(some.footers)]
        task = SelectRows(
            some,
            condition,
            [verdicts[number] for number in numbers],
            source.stage().path,
            self._limits.broadcast_max_inline_pairs,
        )
        packed = pack_by_size(self._limits, sizes, self._jobs.tasks)
        tasks = PhaseTasks("match", progress)
        rows = self._jobs.map_items("select rows of", source.stage, task, packed, tasks)
        work: ScanWork = [(n, ()) for n in range(len(numbers))]
        matches = self._matches(source, some, work, rows, (), (0, np.empty(0, np.int64)), False)
        return replace(matches, metrics=choice.metrics)

    def _select_by_column(
        self,
        source: SparkSource,
        target: Target,
        condition: Condition,
        numbers: Sequence[int],
        progress: Progress,
    ) -> Matches[Any]:
        """Let Spark evaluate a condition that is a ``Column``, whatever the size of the files."""
        some = subset(target, numbers)
        work: ScanWork = [
            (n, tuple(range(len(footer.row_groups)))) for n, footer in enumerate(some.footers)
        ]
        found = select_rows(
            self._jobs,
            self._limits,
            source.stage,
            some,
            condition,
            pack_scans(self._limits, some, work, self._jobs.tasks),
            PhaseTasks("match", progress),
        )
        matches = self._matches(source, some, work, found, (), (0, np.empty(0, np.int64)), False)
        choice = TierChoice("broadcast", "a Column, which Spark evaluates")
        return replace(matches, metrics=choice.metrics)

    def duplicates(
        self, source: SparkSource, target: Target, rules: DuplicateRules, progress: Progress
    ) -> Matches[Any]:
        """Let Spark bring the rows of each key together; the driver does so for little data."""
        numbers = scanned_files(target)
        every = [(n, tuple(range(len(target.footers[n].row_groups)))) for n in numbers]
        choice = choose_tier(
            self._limits,
            source_bytes=0,
            source_rows=0,
            key_bytes=None,
            target_bytes=row_group_bytes(target, every),
            target_files=len(numbers),
        )
        most, count = self._limits.driver_max_duplicate_rows, target.rows
        if choice.tier == "driver" and count > most:
            reason = f"{count:,} rows of the target: more than driver_max_duplicate_rows={most:,}"
            choice = TierChoice("shuffle", reason)
        if choice.tier == "driver":
            found = self._driver.duplicates(source.local, target, rules, progress)
            return replace(found, metrics=choice.metrics)
        some = subset(target, numbers)
        work: ScanWork = [(n, groups) for n, (_, groups) in enumerate(every)]
        rows = find_duplicates(
            self._jobs,
            self._limits,
            source.stage,
            some,
            rules,
            work,
            PhaseTasks("match", progress),
        )
        matches = self._matches(source, some, work, rows, (), (0, np.empty(0, np.int64)), False)
        return replace(matches, metrics=replace(choice, tier="shuffle").metrics)

    def rewrite(
        self,
        source: SparkSource,
        target: Target,
        matches: Matches[Any],
        files: Mapping[str, StagedFile],
        rules: RowRules,
        progress: Progress,
        finish: Callable[[StagedFile], None],
    ) -> dict[str, Rewritten]:
        """Rewrite files, in the tier of the match."""
        found = matches.positions
        if not isinstance(found, _TaskPositions):
            return self._driver.rewrite(
                source.local, target, matches, files, rules, progress, finish
            )
        done = {path: found.rewritten[path] for path in files if path in found.rewritten}
        chosen = [
            number
            for number, footer in enumerate(target.footers)
            if footer.file.path in files and footer.file.path not in done
        ]
        some = subset(target, chosen)
        task = rewriter_for(source, some, self._limits, rules)
        work = [
            (RewriteFile(footer.file.path, found.pairs.get(footer.file.path, ())), footer.file.size)
            for footer in some.footers
        ]
        near = [(file, size) for file, size in work if file.path not in found.scattered]
        far = [(file, size) for file, size in work if file.path in found.scattered]
        packed = pack_by_size(self._limits, near, self._jobs.tasks)
        tasks = PhaseTasks("rewrite", progress)
        done.update(self._jobs.map_items("rewrite files of", source.stage, task, packed, tasks))
        if far:
            done.update(self._rewrite_routed(source, task, far, tasks))
        return done

    def _rewrite_routed(
        self,
        source: SparkSource,
        rewriter: RewriteFiles,
        work: Sequence[tuple[RewriteFile, int]],
        reported: PhaseTasks,
    ) -> list[tuple[str, Rewritten]]:
        """Rewrite files with rows that are read once from the source, and sent to their files."""
        numbered = [((number, file), size) for number, (file, size) in enumerate(work)]
        packed = pack_by_size(self._limits, numbered, self._jobs.tasks)
        tasks = {n: task for task, members in enumerate(packed) for n, _ in members}
        files = {n: file for members in packed for n, file in members}
        parts = {number: rewriter.windows[file.path] for number, file in files.items()}
        route = RouteRows(source.rows, rewriter.root, rewriter.directory, parts, tasks)
        pieces = self._pieces(route, list(files.items()))
        by_file = pieces.repartitionById(len(packed), "task")
        ordered = by_file.sortWithinPartitions("route", "window")
        phase = "route rows to files of"
        task = RewriteRouted(rewriter, files)
        return self._jobs.map_partitions(phase, source.stage, ordered, task, reported)

    def _pieces(self, route: RouteRows, files: Sequence[tuple[int, RewriteFile]]) -> DataFrame:
        """Let tasks write the rows of each file as pieces, and return references to these."""
        work = row_ranges(self._limits, route.source.num_rows, self._jobs.tasks)
        F = self._jobs.functions
        # Pairs in the order of the source, a task's share of them next to each other.
        chunks = chunk_evenly(self._limits, files, -(-len(files) // self._jobs.tasks))
        share = F.floor(F.col("row") / F.lit(work[0][1])).cast("int")
        pairs = self._jobs.map_items_to_rows(ReadPairs(route.root), chunks, PAIRS)
        by_source = pairs.repartitionById(len(work), share).sortWithinPartitions("row")
        return self._jobs.map_partitions_to_rows(by_source, route, PIECES)

    def insert(
        self,
        source: SparkSource,
        matches: Matches[Any] | None,
        new_files: NewFiles,
        progress: Progress = report_nothing,
        *,
        rewritten: Collection[Rewritten] = (),
        inserts: bool = True,
    ) -> list[NewFile]:
        """Write rows into new files: the driver writes those of a small source."""
        choice = choose_tier(
            self._limits, source_bytes=source.bytes, source_rows=source.num_rows, key_bytes=None
        )
        found = None if matches is None else matches.positions
        if isinstance(found, _TaskPositions):
            shares: Sequence[InsertShare] = found.unmatched if inserts else ()
            shares = (*shares, *moved_shares(self._limits, rewritten))
        elif choice.tier == "driver" or found is not None:
            return self._driver.insert(
                source.local, matches, new_files, rewritten=rewritten, inserts=inserts
            )
        else:
            shares = [InsertShare(0, source.num_rows)]
        root, directory = source.stage().storage.root, source.stage().path
        if choice.tier == "driver":
            tables = [table for one in shares for table in insertable(root, source.rows, one)]
            new_files.write(pa.concat_tables(tables).unify_dictionaries())
            return new_files.finish()
        writer = new_files.elsewhere(partial(WorkerStage, directory))
        total = sum(map(len, shares))
        rows = task_rows(self._limits, total, new_files.limits.rows_per_file)
        work, tasks = cut_shares(shares, rows), PhaseTasks("insert", progress)
        if new_files.partition_columns and total > self._limits.insert_max_sorted_rows:
            written = self._insert_by_partition(source, work, writer, tasks)
        else:
            task = InsertRows(root, source.rows, directory, writer)
            written = self._jobs.map_items("insert rows into", source.stage, task, work, tasks)
        new_files.adopt(written)
        return new_files.finish()

    def _insert_by_partition(
        self,
        source: SparkSource,
        shares: Sequence[InsertShare],
        writer: NewFiles,
        tasks: PhaseTasks,
    ) -> list[NewFile]:
        """Bring the rows of each partition together first, or every task would write to all."""
        root, directory = source.stage().storage.root, source.stage().path
        split = SplitByPartition(root, source.rows, directory, tuple(writer.partition_columns))
        found: list[list[PartitionPieces]] = self._jobs.map_items(
            "sort rows by partition for", source.stage, split, shares, tasks
        )
        pieces = [one for some in found for one in some]
        work = pack_pieces(self._limits, pieces, writer.limits.rows_per_file)
        insert = InsertPieces(root, directory, writer)
        return self._jobs.map_items("insert rows into", source.stage, insert, work, tasks)


def _rewrites(options: MergeOptions) -> bool:
    """Whether files of the target may be rewritten."""
    return options.updates and not options.only_plans


def _rewrites_in_scans(options: MergeOptions) -> bool:
    """Whether a task may rewrite what it has scanned: nothing else is to be decided before."""
    limits = options.limits
    is_limited = limits.max_rewrite_bytes is not None or limits.max_rewrite_fraction is not None
    return _rewrites(options) and not options.rewrite_all and not is_limited


def check_order(options: MergeOptions) -> None:
    """Refuse to choose between the rows of a data frame that have one key, if nothing orders them.

    Raises:
        InvalidArgumentError: If ``order_by`` is missing.
    """
    if options.duplicates != "error" and not options.only_keys and not options.order_by:
        raise InvalidArgumentError(
            f"{options.strategy.value} with duplicate_keys={options.duplicates!r} needs "
            "order_by: the rows of a Spark DataFrame have no order, so none is the first or "
            "the last.\nHint: pass order_by=[...]; of rows with one key the greatest is kept.",
            argument="duplicate_keys",
            mentions=(Argument("order_by", (...,)), Argument("order_by")),
        )
