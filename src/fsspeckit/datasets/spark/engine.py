"""The Spark engine: every phase that touches data is a job, and only messages reach the driver."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from fsspeckit.core.keys import key_column, no_keys
from fsspeckit.core.matching import IndexedKeys, index_keys, key_and_order_columns
from fsspeckit.core.planning import read_footers
from fsspeckit.core.schema_conform import check_same_columns
from fsspeckit.datasets.engine import FileMatch, Matches
from fsspeckit.datasets.pipeline import as_paths, check_unique_names, open_source, stored_columns
from fsspeckit.datasets.spark.inserting import (
    PIECES,
    InsertPieces,
    ReadPairs,
    RewriteRouted,
    RouteRows,
    RouteShare,
    SplitByPartition,
)
from fsspeckit.datasets.spark.keys import (
    CountRows,
    KeyColumns,
    ReadFooters,
    ReadKeyFile,
    ReadKeys,
    ResolveAtOnce,
    ResolvedKeys,
    ResolveKeys,
    ScanFiles,
    StagedKeys,
    WritePairs,
    deduplicate_keys,
    trusted_bounds,
)
from fsspeckit.datasets.spark.matching import (
    NO_ROWS,
    check_facts,
    insert_shares,
    match_of,
    merge_matches,
    sample_keys_of,
    scattered_files,
    some_rows,
)
from fsspeckit.datasets.spark.scheduling import (
    bundles,
    footer_work,
    insert_work,
    partition_work,
    row_group_bytes,
    shares,
    spread,
    subset,
    task_rows,
    together,
    windows,
)
from fsspeckit.datasets.spark.session import arrow_schema
from fsspeckit.datasets.spark.source import InMemorySource, SourceRows, SparkSource, files_in_place
from fsspeckit.datasets.spark.tasks import (
    FoundFile,
    InsertRows,
    InsertShare,
    MatchFiles,
    RewriteFile,
    RewriteFiles,
    RowPairs,
    StageBatches,
    unpacked,
)
from fsspeckit.errors import Argument, InvalidArgumentError
from fsspeckit.storage import WorkerStage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from fsspeckit.core.planning import FileFooter, MergePlan, Target
    from fsspeckit.core.rewrite import NewFile, NewFiles, Rewritten
    from fsspeckit.datasets.engine import OpenStage
    from fsspeckit.datasets.pipeline import MergeOptions, Progress
    from fsspeckit.datasets.spark.inserting import PartitionPieces
    from fsspeckit.datasets.spark.keys import KeyFacts, PairsMessage
    from fsspeckit.datasets.spark.scheduling import Work
    from fsspeckit.datasets.spark.session import Jobs
    from fsspeckit.datasets.spark.tasks import Scanned
    from fsspeckit.storage import DataFile, Root, StagedFile

    Rows = NDArray[np.int64]
    AnySource = SparkSource | InMemorySource

__all__ = ["DRIVER_FOOTERS", "SMALL_SOURCE", "STAGED_KEY_BYTES", "SparkEngine"]

SMALL_SOURCE = 65_536
"""Up to so many keys are given to every task."""

STAGED_KEY_BYTES = 32 * 1024 * 1024
"""Keys and pairs of rows of up to so many bytes are read by every task; Spark handles more."""

DRIVER_FOOTERS = 2048
"""The footers of more files are read by tasks."""

_SAMPLES = 5
_AT_ONCE_BYTES = 64 * 1024 * 1024
_HELD_INSERT_ROWS = 100_000
DRIVER_MAX_BYTES = 16 * 1024 * 1024
# The driver reads one after the other, and each may take some requests.
_LITTLE_FILES = 8
_BUCKETS = 1024
_PAIR_BYTES = 16
# A task that needs more of them would wait for one after the other.
_FEW_FILES = 64
_PAIRS = "position bigint, row bigint, route bigint"
# A task that reads and sorts all keys scans some times as many bytes of the target, if it can.
_SCANNED_PER_KEY = 4


@dataclass(frozen=True)
class _Found:
    """The engine's own part of a match."""

    pairs: Mapping[str, tuple[RowPairs, ...]] = field(default_factory=dict)
    """By canonical path, which positions have which source rows."""

    unmatched: tuple[InsertShare, ...] = ()
    """Source rows whose key is not in the target, in their order."""

    done: Mapping[str, Rewritten] = field(default_factory=dict)
    """By canonical path, what became of files that were written anew at once."""

    scattered: frozenset[str] = frozenset()
    """Files whose source rows are all over the source."""


@dataclass(frozen=True)
class _FewKeys(IndexedKeys):
    """Keys that every task is given, and what they are for."""

    request: MergeOptions | None = None


class SparkEngine:
    """Spark does the work on data.

    Args:
        jobs: Where jobs run.
        filesystem: The filesystem of paths that are passed as data.
        small: Up to how many keys a source counts as small.
        driver_footers: Up to how many files the driver reads the footers itself.
        staged: Up to how many bytes of keys every task reads them all.
    """

    name = "spark"

    def __init__(
        self,
        jobs: Jobs,
        filesystem: Any = None,
        small: int = SMALL_SOURCE,
        driver_footers: int = DRIVER_FOOTERS,
        staged: int = STAGED_KEY_BYTES,
    ) -> None:
        self._jobs = jobs
        self._filesystem = filesystem
        self._small = small
        self._driver_footers = driver_footers
        self._staged = staged

    def take(
        self, data: Any, stage: OpenStage, schema: pa.Schema | None, *, keep: bool = False
    ) -> AnySource:
        """Take the data: a data frame is evaluated once, by tasks that write it to staging."""
        if isinstance(data, DataFrame):
            return self._take_frame(data, stage, schema)
        if paths := as_paths(data):
            return SparkSource(files_in_place(paths, self._filesystem, schema), stage)
        held = open_source(data, stage, self._filesystem, schema, keep=keep)
        return InMemorySource(held, stage)

    def _take_frame(
        self, frame: DataFrame, stage: OpenStage, schema: pa.Schema | None
    ) -> SparkSource:
        given = arrow_schema(frame.schema)
        check_unique_names(given.names)
        if schema is not None:
            check_same_columns(given.names, schema.names, "schema")
        opened = stage()
        root = opened.storage.root
        wanted = given if schema is None else schema
        task = StageBatches(root, opened.path, given, wanted)
        told = self._jobs.over("stage the source for", stage, frame, task)
        parts = tuple(part for _, part in sorted(told, key=lambda message: message[0]))
        return SparkSource(SourceRows(wanted, parts), stage, has_order=False)

    def footers(
        self,
        root: Root,
        files: Sequence[DataFile],
        columns: Iterable[str] | None,
        *,
        stage: OpenStage,
    ) -> list[FileFooter]:
        """Read footers: those of many files in tasks."""
        wanted = None if columns is None else tuple(columns)
        if len(files) <= self._driver_footers:
            return read_footers(root, files, wanted)
        task = ReadFooters(root, wanted)
        work = footer_work(files, self._jobs.tasks)
        told = self._jobs.each("read the footers of", stage, task, work)
        by_path = {footer.file.path: footer for some in told for footer in some}
        return [by_path[file.path] for file in files]

    def keys(
        self, source: AnySource, target: Target, request: MergeOptions
    ) -> _FewKeys | ResolvedKeys:
        """The keys that take part: here if they are few, else in staged files."""
        if not source.has_order and not request.order_by and request.duplicates != "error":
            raise InvalidArgumentError(
                f"{request.strategy.value} with duplicate_keys={request.duplicates!r} needs "
                "order_by: the rows of a Spark DataFrame have no order, so none is the first or "
                "the last.\nHint: pass order_by=[...]; of rows with one key the greatest is kept.",
                argument="duplicate_keys",
                mentions=(Argument("order_by", (...,)), Argument("order_by")),
            )
        wanted = key_and_order_columns(target, request, source.schema.names)
        if source.num_rows <= self._small:
            few = index_keys(source.columns(wanted), target, request)
            return _FewKeys(few.keys, few.index, few.chosen, request)
        empty = pa.schema([source.schema.field(name) for name in wanted]).empty_table()
        index_keys(empty, target, request)  # what is wrong with the columns is wrong here too
        return self._resolved(source, target, request)

    def _resolved(self, source: AnySource, target: Target, request: MergeOptions) -> ResolvedKeys:
        """Let Spark group the keys, and keep one row of each."""
        in_key = {column.name for column in target.key_columns}
        columns = KeyColumns(
            target.key_columns,
            tuple(part for part in target.partition_columns if part.name not in in_key),
            tuple(key_column(n, source.schema.field(n).type) for n in request.order_by),
        )
        read = ReadKeys(source.rows(), columns)
        resolve = ResolveKeys(
            target.root,
            source.stage().path,
            columns,
            tuple(trusted_bounds(target, request.trust_partitions)),
            tuple(part.name for part in target.partition_columns),
        )
        facts = self._facts(source, read, resolve, request)
        check_facts(source, facts, request)
        return ResolvedKeys(
            pa.concat_tables([no_keys(target).keys, *(one.representative_keys for one in facts)]),
            sum(one.part.rows for one in facts if one.part is not None),
            tuple(one.part for one in facts if one.part is not None),
            columns,
            request.null_keys == "match",
            sum(one.bytes for one in facts),
        )

    def _facts(
        self, source: AnySource, read: ReadKeys, resolve: ResolveKeys, request: MergeOptions
    ) -> list[KeyFacts]:
        """Let one task group the keys if they are few numbers, else Spark."""
        phase, total = "resolve the keys for", source.num_rows
        columns = read.columns
        is_little = columns.width is not None and columns.width * total <= self._staged
        if is_little and not columns.order and len(read.source.parts) <= _FEW_FILES:
            once = ResolveAtOnce(read, resolve, request.duplicates == "first")
            return self._jobs.each(phase, source.stage, once, [(0, total)])
        work = shares(total, self._jobs.tasks)
        every = self._jobs.rows(read, work, f"{columns.ddl('k', 'p', 'o')}, row bigint")
        grouped = deduplicate_keys(self._jobs.functions, every, columns, request.duplicates)
        return self._jobs.over(phase, source.stage, grouped, resolve)

    def match(
        self,
        source: AnySource,
        keys: _FewKeys | ResolvedKeys,
        target: Target,
        plan: MergePlan,
        progress: Progress,
    ) -> Matches[_Found]:
        """Scan candidates and guarded files in tasks."""
        unknown = target.unknown_partitions()
        numbers = [n for n, file in enumerate(plan.files) if file.row_groups and n not in unknown]
        work = [(i, plan.files[n].row_groups) for i, n in enumerate(numbers)]
        some = subset(target, numbers)
        if isinstance(keys, _FewKeys):
            found = self._look_up_few(source, keys, some, work)
        elif keys.weight <= self._staged:
            staged = StagedKeys(keys.parts, keys.columns, keys.weight)
            found = self._look_up(source, staged, some, work)
        else:
            found = self._join(source, keys, some, work)
        for done in range(1, len(work) + 1):
            progress("match", done, len(work))
        return found

    def _look_up_few(
        self, source: AnySource, keys: _FewKeys, target: Target, work: Work
    ) -> Matches[_Found]:
        """Give all keys to every task."""
        rewriter = self._at_once(source, keys, target, work)
        # The request stays here: what it tells progress to may be of this process only.
        alone = IndexedKeys(keys.keys, keys.index, keys.chosen)
        return self._look_up(source, alone, target, work, rewriter)

    def _look_up(
        self,
        source: AnySource,
        keys: IndexedKeys | StagedKeys,
        target: Target,
        work: Work,
        rewriter: RewriteFiles | None = None,
    ) -> Matches[_Found]:
        """Scan files in tasks that have all keys."""
        known = np.zeros(keys.count, bool)
        moved = np.zeros(keys.count, bool)
        found: dict[str, list[FoundFile]] = {}
        if work:
            parts = {n: windows(target.footers[n]) for n, _ in work}
            starts, least = None, 0
            if isinstance(keys, StagedKeys):
                starts, least = source.rows().starts, _SCANNED_PER_KEY * keys.weight
            task = MatchFiles(target, keys, source.stage().path, rewriter, parts, starts)
            for message in self._scanned(source, task, work, least):
                known |= unpacked(message.known, keys.count)
                moved |= unpacked(message.moved, keys.count)
                for file in message.files:
                    found.setdefault(file.path, []).append(file)
        return Matches(
            {path: match_of(files) for path, files in found.items()},
            int((~known).sum()),
            int(moved.sum()),
            sample_keys_of(source, [c.name for c in target.key_columns], some_rows(keys, moved)),
            _Found(
                {path: tuple(file.pairs for file in files) for path, files in found.items()},
                insert_shares(source, np.sort(keys.rows[~known]) if not known.all() else NO_ROWS),
                {f.path: f.rewritten for files in found.values() for f in files if f.rewritten},
                scattered_files([f for files in found.values() for f in files], source)
                if isinstance(keys, StagedKeys)
                else frozenset(),
            ),
        )

    def _scanned(
        self, source: AnySource, task: MatchFiles, work: Work, least: int
    ) -> Iterable[Scanned]:
        """Scan files in tasks; here if that is little work, and nothing is written anew."""
        is_scan = isinstance(task.keys, IndexedKeys) and task.rewriter is None
        is_little = row_group_bytes(task.target, work) <= DRIVER_MAX_BYTES
        if is_scan and is_little and len(work) <= _LITTLE_FILES:
            self._jobs.prepare()
            return task(work)
        shared = bundles(task.target, work, self._jobs.tasks, least)
        told: list[Scanned] = self._jobs.each("match keys of", source.stage, task, shared)
        return told

    def _at_once(
        self, source: AnySource, keys: _FewKeys, target: Target, work: Work
    ) -> RewriteFiles | None:
        """What writes files anew in the tasks that scan them, if that is little work."""
        request = keys.request
        if request is None or request.only_plans or request.rewrite_all or not request.updates:
            return None
        if row_group_bytes(target, work) > _AT_ONCE_BYTES:
            return None
        return _rewriter(source, target, not request.deletes)

    def _join(
        self, source: AnySource, keys: ResolvedKeys, target: Target, work: Work
    ) -> Matches[_Found]:
        """Let Spark join keys, both sides shuffled by key."""
        bucket = max(65_536, -(-source.num_rows // _BUCKETS))
        columns = keys.columns
        joined = self._joined(keys, target, work, bucket)
        starts = source.rows().starts
        parts = {n: windows(target.footers[n]) for n, _ in work}
        task = WritePairs(target, columns, source.stage().path, parts, starts)
        told: list[PairsMessage] = self._jobs.over("match keys of", source.stage, joined, task)
        paths = [footer.file.path for footer in target.footers]
        files: dict[str, FileMatch] = {paths[n]: FileMatch(0, ()) for n, _ in work}
        pairs: dict[str, tuple[RowPairs, ...]] = {}
        hits = [message for message in told if message.route >= 0]
        for message in hits:
            path = paths[message.route]
            files[path] = merge_matches(files[path], message.rows, message.row_groups)
            pairs[path] = (*pairs.get(path, ()), message.pairs)
        without = sorted((m for m in told if m.route < 0), key=lambda message: -message.route)
        shares = tuple(
            InsertShare((-1 - m.route) * bucket, (-m.route) * bucket, None, (m.pairs,), m.rows)
            for m in without
        )
        moved = np.unique(np.array([row for m in hits for row in m.samples], np.int64))
        return Matches(
            files,
            sum(message.rows for message in without),
            self._count_moved(source, target, hits),
            sample_keys_of(source, [c.name for c in target.key_columns], moved[:_SAMPLES]),
            _Found(
                pairs,
                shares,
                scattered=scattered_files(
                    [FoundFile(paths[m.route], m.rows, (), m.pairs, reads=m.reads) for m in hits],
                    source,
                ),
            ),
        )

    def _count_moved(self, source: AnySource, target: Target, hits: Sequence[PairsMessage]) -> int:
        """How many source keys the target has in another partition, each counted once."""
        work = [(m.route, RewriteFile("", (m.pairs,))) for m in hits if m.moved]
        if not work:
            return 0
        pairs = self._jobs.rows(ReadPairs(target.root, only_moved=True), spread(work), _PAIRS)
        told: list[int] = self._jobs.over(
            "count keys that would move in",
            source.stage,
            pairs.select("row").distinct(),
            CountRows(),
        )
        return sum(told)

    def _joined(self, keys: ResolvedKeys, target: Target, work: Work, bucket: int) -> DataFrame:
        """Every key with the positions that have it, in the order of files and positions."""
        F = self._jobs.functions
        columns = keys.columns
        names = columns.starting("k")
        ours = self._jobs.rows(ReadKeyFile(), keys.parts, f"{columns.ddl('k', 'p')}, row bigint")
        theirs = self._jobs.rows(
            ScanFiles(target),
            bundles(target, work, self._jobs.tasks),
            f"{columns.ddl('k', prefix='t')}, file bigint, position bigint",
        )
        same = [
            F.col(name).eqNullSafe(F.col(f"t{name}"))
            if keys.null_safe
            else F.col(name) == F.col(f"t{name}")
            for name in names
        ]
        condition = same[0]
        for other in same[1:]:
            condition = condition & other
        # Spark takes what tasks make of a few numbers for small, and would send it through the
        # driver to broadcast it. Keys that are few enough for that have never come here.
        theirs = theirs.hint("merge")
        # Rows without a match go by where they are in the source, so that they are read together.
        bucketed = -1 - F.floor(F.col("row") / F.lit(bucket))
        wanted = [*columns.starting("k", "p"), "row", "position"]
        return (
            ours.join(theirs, condition, "left")
            .select(F.coalesce("file", bucketed).alias("route"), *wanted)
            .repartition("route")
            .sortWithinPartitions("route", "position", "row")
        )

    def rewrite(
        self,
        source: AnySource,
        target: Target,
        matches: Matches[_Found],
        files: Mapping[str, StagedFile],
        keep_others: bool,
        progress: Progress,
        force: bool = False,
    ) -> dict[str, Rewritten]:
        """Rewrite each file in a task of its own."""
        found: _Found = matches.positions
        done: dict[str, Rewritten] = {p: found.done[p] for p in files if p in found.done}
        chosen = [n for n, f in enumerate(target.footers) if f.file.path in files]
        some = subset(target, chosen)
        task = _rewriter(source, some, keep_others, force)
        work = [
            (RewriteFile(footer.file.path, found.pairs.get(footer.file.path, ())), footer.file.size)
            for footer in some.footers
            if footer.file.path not in done
        ]
        near = [(file, size) for file, size in work if file.path not in found.scattered]
        far = [(file, size) for file, size in work if file.path in found.scattered]
        told = self._jobs.each(
            "rewrite files of", source.stage, task, together(near, self._jobs.tasks)
        )
        done.update(told)
        if far:
            pairs = sum(matches.files[file.path].rows for file, _ in far)
            done.update(self._rewrite_routed(source, task, far, pairs))
        for number in range(1, len(files) + 1):
            progress("rewrite", number, len(files))
        return done

    def _rewrite_routed(
        self,
        source: AnySource,
        rewriter: RewriteFiles,
        work: Sequence[tuple[RewriteFile, int]],
        pairs: int,
    ) -> list[tuple[str, Rewritten]]:
        """Rewrite files with rows that are read once from the source, and sent to their files."""
        numbered = [((number, file), size) for number, (file, size) in enumerate(work)]
        bundles = together(numbered, self._jobs.tasks)
        tasks = {n: task for task, bundle in enumerate(bundles) for n, _ in bundle}
        files = {n: file for bundle in bundles for n, file in bundle}
        parts = {number: rewriter.windows[file.path] for number, file in files.items()}
        route = RouteRows(source.rows(), rewriter.root, rewriter.directory, parts, tasks)
        pieces = self._pieces(route, list(files.items()), pairs)
        by_file = pieces.repartitionById(len(bundles), "task")
        ordered = by_file.sortWithinPartitions("route", "window")
        rewrite = RewriteRouted(rewriter, files)
        return self._jobs.over("route rows to files of", source.stage, ordered, rewrite)

    def _pieces(
        self, route: RouteRows, files: Sequence[tuple[int, RewriteFile]], pairs: int
    ) -> DataFrame:
        """References to the rows of each file, which tasks write that read the source once."""
        work = shares(route.source.num_rows, self._jobs.tasks)
        read = ReadPairs(route.root)
        stored = sum(part.path is not None for _, file in files for part in file.pairs)
        is_little = _PAIR_BYTES * pairs <= self._staged and stored <= _FEW_FILES
        if is_little and len(work) <= self._jobs.tasks:
            return self._jobs.rows(RouteShare(route, read, files), work, PIECES)
        F = self._jobs.functions
        # Pairs in the order of the source, a task's share of them next to each other.
        few = spread(files, -(-len(files) // self._jobs.tasks))
        share = F.floor(F.col("row") / F.lit(work[0][1])).cast("int")
        by_source = self._jobs.rows(read, few, _PAIRS).repartitionById(len(work), share)
        return self._jobs.mapped(by_source.sortWithinPartitions("row"), route, PIECES)

    def insert(
        self, source: AnySource, matches: Matches[_Found] | None, new_files: NewFiles
    ) -> list[NewFile]:
        """Write rows into new files: those of a small source here, others in few tasks."""
        shares: Sequence[InsertShare] = [InsertShare(0, source.num_rows)] if source.num_rows else []
        if matches is not None:
            shares = matches.positions.unmatched
        root = source.stage().storage.root
        directory = source.stage().path
        writer = new_files.elsewhere(partial(WorkerStage, directory))
        total = sum(map(len, shares))
        work = insert_work(shares, task_rows(total, new_files.limits.rows_per_file))
        if new_files.partition_columns and total > _HELD_INSERT_ROWS:
            written = self._insert_by_partition(source, work, writer)
        else:
            task = InsertRows(root, source.rows(), directory, writer)
            if total <= self._small and task.source.bytes <= DRIVER_MAX_BYTES:
                self._jobs.prepare()  # what is wrong with workers is told by the first merge
                written = [file for share in work for file in task(share)]
            else:
                written = self._jobs.each("insert rows into", source.stage, task, work)
        new_files.adopt(written)
        return new_files.finish()

    def _insert_by_partition(
        self, source: AnySource, shares: Sequence[InsertShare], writer: NewFiles
    ) -> list[NewFile]:
        """Bring the rows of each partition together first: else each task had files in each."""
        root, directory = source.stage().storage.root, source.stage().path
        split = SplitByPartition(root, source.rows(), directory, tuple(writer.partition_columns))
        told: list[list[PartitionPieces]] = self._jobs.each(
            "sort rows by partition for", source.stage, split, shares
        )
        pieces = [one for some in told for one in some]
        work = partition_work(pieces, writer.limits.rows_per_file)
        insert = InsertPieces(root, directory, writer)
        return self._jobs.each("insert rows into", source.stage, insert, work)


def _rewriter(
    source: AnySource, target: Target, keep_others: bool, force: bool = False
) -> RewriteFiles:
    """What writes files of the target anew, in a task."""
    columns = stored_columns(target, target.footers, source.schema.names)
    keys = tuple(column.name for column in target.key_columns)
    directory = source.stage().path
    held = {footer.file.path: windows(footer) for footer in target.footers}
    return RewriteFiles(
        target.root,
        source.rows(),
        directory,
        keys,
        columns,
        held,
        keep_others,
        force,
        target.types,
    )
