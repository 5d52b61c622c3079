"""The Spark engine: every phase that touches data is a job, and only messages reach the driver."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from fsspeckit.core.incremental.casts import python_value
from fsspeckit.core.incremental.footers import footer_bytes
from fsspeckit.core.incremental.keys import key_column
from fsspeckit.core.incremental.payload import check_same_columns
from fsspeckit.core.incremental.pruning import PartitionValues, key_bounds, trusted_overlap
from fsspeckit.core.incremental.source import no_keys
from fsspeckit.datasets.engine import FileMatch, Matches
from fsspeckit.datasets.positions import IndexedKeys, index_keys, key_and_order_columns
from fsspeckit.datasets.sources import as_paths, open_source
from fsspeckit.datasets.spark_keys import (
    KeyColumns,
    ReadKeyFile,
    ReadKeys,
    ResolvedKeys,
    ResolveKeys,
    ScanFiles,
    WritePairs,
)
from fsspeckit.datasets.spark_source import HeldSource, SourceRows, SparkSource, files_in_place
from fsspeckit.datasets.spark_tasks import (
    InsertRows,
    InsertShare,
    MatchFiles,
    RewriteFile,
    RewriteFiles,
    RowPairs,
    StageBatches,
    unpacked,
)
from fsspeckit.errors import DuplicateKeyError, InvalidArgumentError, NullKeyError
from fsspeckit.storage.staging import WorkerStage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from fsspeckit.core.incremental.footers import FileFooter
    from fsspeckit.core.incremental.planning import MergePlan
    from fsspeckit.core.incremental.rewriting import Rewritten
    from fsspeckit.core.incremental.target import Target
    from fsspeckit.core.incremental.writing import NewFile, NewFiles
    from fsspeckit.datasets.engine import OpenStage
    from fsspeckit.datasets.request import MergeRequest, Progress
    from fsspeckit.datasets.spark_keys import KeyFacts, PairsMessage
    from fsspeckit.datasets.spark_session import Jobs
    from fsspeckit.datasets.spark_tasks import Scanned
    from fsspeckit.storage.staging import StagedFile

    Rows = NDArray[np.int64]
    AnySource = SparkSource | HeldSource
    Work = list[tuple[int, tuple[int, ...]]]

__all__ = ["SMALL_SOURCE", "SparkEngine"]

SMALL_SOURCE = 65_536
"""Up to so many keys are given to every task; more are joined by Spark."""

_SAMPLES = 5
_TASKS = 32
_TASK_BYTES = 64 * 1024 * 1024
_TINY_BYTES = 1024 * 1024
_AT_ONCE_BYTES = 64 * 1024 * 1024
_Item = TypeVar("_Item")
_KEY_ROWS = 1_048_576
_INSERT_ROWS = 1_000_000
_PARTITION_ROWS = 100_000
_BUCKETS = 1024


@dataclass(frozen=True)
class _Found:
    """The engine's own part of a match."""

    pairs: Mapping[str, tuple[RowPairs, ...]] = field(default_factory=dict)
    """By canonical path, which positions have which source rows."""

    unmatched: tuple[InsertShare, ...] = ()
    """Source rows whose key is not in the target, in their order."""

    done: Mapping[str, Rewritten] = field(default_factory=dict)
    """By canonical path, what became of files that were written anew at once."""


@dataclass(frozen=True)
class _FewKeys(IndexedKeys):
    """Keys that every task is given, and what they are for."""

    request: MergeRequest | None = None


class SparkEngine:
    """Spark does the work on data.

    Args:
        jobs: Where jobs run.
        filesystem: The filesystem of paths that are passed as data.
        small: Up to how many keys a source counts as small.
    """

    name = "spark"

    def __init__(self, jobs: Jobs, filesystem: Any = None, small: int = SMALL_SOURCE) -> None:
        self._jobs = jobs
        self._filesystem = filesystem
        self._small = small

    def take(self, data: Any, stage: OpenStage, schema: pa.Schema | None) -> AnySource:
        """Take the data: a data frame is evaluated once, by tasks that write it to staging."""
        if isinstance(data, DataFrame):
            return self._take_frame(data, stage, schema)
        if paths := as_paths(data):
            return SparkSource(files_in_place(paths, self._filesystem, schema), stage)
        return HeldSource(open_source(data, stage, self._filesystem, schema), stage)

    def _take_frame(
        self, frame: DataFrame, stage: OpenStage, schema: pa.Schema | None
    ) -> SparkSource:
        given = to_arrow_schema(frame.schema, timezone="UTC")
        if len(set(given.names)) < len(given.names):
            twice = sorted({name for name in given.names if given.names.count(name) > 1})
            raise InvalidArgumentError(f"the source has columns that occur twice: {twice!r}.")
        if schema is not None:
            check_same_columns(given.names, schema.names, "schema")
        opened = stage()
        root = opened.storage.root
        wanted = given if schema is None else schema
        task = StageBatches(root, opened.path, given, wanted)
        told = self._jobs.over(_about("stage the source for", stage), frame, task)
        parts = tuple(part for _, part in sorted(told, key=lambda message: message[0]))
        return SparkSource(SourceRows(wanted, parts), stage, has_order=False)

    def keys(
        self, source: AnySource, target: Target, request: MergeRequest
    ) -> _FewKeys | ResolvedKeys:
        """The keys that take part: here if they are few, else in staged files."""
        if not source.has_order and not request.order_by and request.duplicates != "error":
            raise InvalidArgumentError(
                f"{request.strategy.value} with duplicate_keys={request.duplicates!r} needs "
                "order_by: the rows of a Spark DataFrame have no order, so none is the first or "
                "the last.\nHint: pass order_by=[...]; of rows with one key the greatest is kept."
            )
        wanted = key_and_order_columns(target, request, source.schema.names)
        if source.num_rows <= self._small:
            few = index_keys(source.columns(wanted), target, request)
            return _FewKeys(few.keys, few.index, few.chosen, request)
        empty = pa.schema([source.schema.field(name) for name in wanted]).empty_table()
        index_keys(empty, target, request)  # what is wrong with the columns is wrong here too
        return self._resolved(source, target, request)

    def _resolved(self, source: AnySource, target: Target, request: MergeRequest) -> ResolvedKeys:
        """Let Spark group the keys, and keep one row of each."""
        in_key = {column.name for column in target.key_columns}
        columns = KeyColumns(
            target.key_columns,
            tuple(part for part in target.partition_columns if part.name not in in_key),
            tuple(key_column(n, source.schema.field(n).type) for n in request.order_by),
        )
        shares = [
            (s, min(s + _KEY_ROWS, source.num_rows)) for s in range(0, source.num_rows, _KEY_ROWS)
        ]
        every = self._jobs.rows(
            ReadKeys(source.rows(), columns), shares, f"{columns.ddl('k', 'p', 'o')}, row bigint"
        )
        stage = source.stage()
        task = ResolveKeys(
            target.root,
            stage.path,
            columns,
            tuple(_trusted_bounds(target, request.trust_partitions)),
            tuple(part.name for part in target.partition_columns),
        )
        facts: list[KeyFacts] = self._jobs.over(
            _about("resolve the keys for", source.stage),
            _one_row_each(self._jobs.functions, every, columns, request),
            task,
        )
        _check(source, facts, request)
        return ResolvedKeys(
            pa.concat_tables([no_keys(target).keys, *(one.witnesses for one in facts)]),
            sum(one.part.rows for one in facts if one.part is not None),
            tuple(one.part for one in facts if one.part is not None),
            columns,
            request.null_keys == "match",
        )

    def match(
        self,
        source: AnySource,
        keys: _FewKeys | ResolvedKeys,
        target: Target,
        plan: MergePlan,
        progress: Progress,
    ) -> Matches:
        """Scan candidates and guarded files in tasks."""
        unknown = target.unknown_partitions()
        numbers = [n for n, file in enumerate(plan.files) if file.row_groups and n not in unknown]
        work = [(i, plan.files[n].row_groups) for i, n in enumerate(numbers)]
        some = _subset(target, numbers)
        if isinstance(keys, ResolvedKeys):
            found = self._join(source, keys, some, work)
        else:
            found = self._look_up(source, keys, some, work)
        progress("match", len(work), len(work))
        return found

    def _look_up(self, source: AnySource, keys: _FewKeys, target: Target, work: Work) -> Matches:
        """Give all keys to every task."""
        known = np.zeros(keys.count, bool)
        moved = np.zeros(keys.count, bool)
        files: dict[str, FileMatch] = {}
        pairs: dict[str, tuple[RowPairs, ...]] = {}
        done: dict[str, Rewritten] = {}
        if work:
            directory = source.stage().path
            rewriter = self._at_once(source, keys, target, work)
            # The request stays here: what it tells progress to may be of this process only.
            alone = IndexedKeys(keys.keys, keys.index, keys.chosen)
            task = MatchFiles(target, alone, directory, rewriter)
            what = _about("match keys of", source.stage)
            told: list[Scanned] = self._jobs.each(what, task, _bundles(target, work))
            for message in told:
                known |= unpacked(message.known, keys.count)
                moved |= unpacked(message.moved, keys.count)
                for file in message.files:
                    files[file.path] = _plus(files.get(file.path), file.rows, file.row_groups)
                    pairs[file.path] = (*pairs.get(file.path, ()), file.pairs)
                    if file.rewritten is not None:
                        done[file.path] = file.rewritten
        rows = np.sort(keys.rows[~known])
        shares = (InsertShare(int(rows[0]), int(rows[-1]) + 1, rows),) if len(rows) else ()
        return Matches(
            files,
            len(rows),
            int(moved.sum()),
            _samples(source, target, keys.rows[np.flatnonzero(moved)[:_SAMPLES]]),
            _Found(pairs, shares, done),
        )

    def _at_once(
        self, source: AnySource, keys: _FewKeys, target: Target, work: Work
    ) -> RewriteFiles | None:
        """What writes files anew in the tasks that scan them, if that is little work."""
        request = keys.request
        if request is None or request.only_plans or request.rewrite_all or not request.updates:
            return None
        size = sum(target.footers[n].row_groups[g].bytes for n, groups in work for g in groups)
        if size > _AT_ONCE_BYTES:
            return None
        return _rewriter(source, target, not request.deletes)

    def _join(self, source: AnySource, keys: ResolvedKeys, target: Target, work: Work) -> Matches:
        """Let Spark join keys, both sides shuffled by key."""
        bucket = max(65_536, -(-source.num_rows // _BUCKETS))
        columns = keys.columns
        joined = self._joined(keys, target, work, bucket)
        task = WritePairs(target, columns, source.stage().path)
        told: list[PairsMessage] = self._jobs.over(
            _about("match keys of", source.stage), joined, task
        )
        paths = [target.footers[n].file.path for n in range(len(target.footers))]
        files: dict[str, FileMatch] = {paths[n]: FileMatch(0, ()) for n, _ in work}
        pairs: dict[str, tuple[RowPairs, ...]] = {}
        for message in told:
            if message.route >= 0:
                path = paths[message.route]
                files[path] = _plus(files[path], message.rows, message.row_groups)
                pairs[path] = (*pairs.get(path, ()), message.pairs)
        moved = np.unique(np.array([row for m in told for row in m.moved], np.int64))
        without = sorted((m for m in told if m.route < 0), key=lambda message: -message.route)
        shares = tuple(
            InsertShare((-1 - m.route) * bucket, (-m.route) * bucket, None, (m.pairs,), m.rows)
            for m in without
        )
        return Matches(
            files,
            sum(message.rows for message in without),
            len(moved),
            _samples(source, target, moved[:_SAMPLES]),
            _Found(pairs, shares),
        )

    def _joined(self, keys: ResolvedKeys, target: Target, work: Work, bucket: int) -> DataFrame:
        """Every key with the positions that have it, in the order of files and positions."""
        F = self._jobs.functions
        columns = keys.columns
        names = columns.starting("k")
        ours = self._jobs.rows(ReadKeyFile(), keys.parts, f"{columns.ddl('k', 'p')}, row bigint")
        theirs = self._jobs.rows(
            ScanFiles(target),
            _bundles(target, work),
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
        matches: Matches,
        files: Mapping[str, StagedFile],
        keep_others: bool,
        progress: Progress,
        force: bool = False,
    ) -> dict[str, Rewritten]:
        """Rewrite each file in a task of its own."""
        done: dict[str, Rewritten] = {
            path: matches.positions.done[path] for path in files if path in matches.positions.done
        }
        sizes = {footer.file.path: footer.file.size for footer in target.footers}
        work = [
            (RewriteFile(path, matches.positions.pairs.get(path, ())), sizes[path])
            for path in files
            if path not in done
        ]
        if work:
            chosen = [n for n, f in enumerate(target.footers) if f.file.path in files]
            task = _rewriter(source, _subset(target, chosen), keep_others, force)
            what = _about("rewrite files of", source.stage)
            done.update(self._jobs.each(what, task, _together(work)))
        progress("rewrite", len(files), len(files))
        return done

    def insert(
        self, source: AnySource, matches: Matches | None, new_files: NewFiles
    ) -> list[NewFile]:
        """Write rows into new files, in few tasks: each of them writes files of its own."""
        shares: Sequence[InsertShare] = [InsertShare(0, source.num_rows)] if source.num_rows else []
        if matches is not None:
            shares = matches.positions.unmatched
        root = source.stage().storage.root
        directory = source.stage().path
        writer = new_files.elsewhere(partial(WorkerStage, directory))
        task = InsertRows(root, source.rows(), directory, writer)
        rows = _task_rows(source, new_files, sum(map(len, shares)))
        work = _insert_work(shares, rows)
        new_files.adopt(self._jobs.each(_about("insert rows into", source.stage), task, work))
        return new_files.finish()


def _about(phase: str, stage: OpenStage) -> str:
    """What a job is for: the merge by the name of its staging directory, phase and dataset."""
    opened = stage()
    root = opened.storage.root
    return f"fsspeckit {opened.name[-8:]}: {phase} {root.spelled(root.path)}"


def _plus(known: FileMatch | None, rows: int, row_groups: Sequence[int]) -> FileMatch:
    if known is None:
        return FileMatch(rows, tuple(row_groups))
    return FileMatch(known.rows + rows, tuple(sorted({*known.row_groups, *row_groups})))


def _samples(source: AnySource, target: Target, rows: Rows) -> list[tuple[Any, ...]]:
    """The keys of a few source rows, for an error message."""
    if not len(rows):
        return []
    table = source.take(rows, [column.name for column in target.key_columns])
    columns = [[python_value(value) for value in column] for column in table.columns]
    return list(zip(*columns, strict=True))


def _check(source: AnySource, facts: Sequence[KeyFacts], request: MergeRequest) -> None:
    """Refuse NULL and repeated keys, as the request says."""
    nulls = [sum(counts) for counts in zip(*(one.nulls for one in facts), strict=True)]
    found = {name: n for name, n in zip(request.key_columns, nulls, strict=True) if n}
    if found and request.null_keys == "error":
        raise NullKeyError.found(found)
    repeated = sum(one.repeated for one in facts)
    if repeated and request.duplicates == "error" and not request.order_by:
        rows = np.array([row for one in facts for row in one.samples][:_SAMPLES], np.int64)
        table = source.take(rows, list(request.key_columns))
        columns = [[python_value(value) for value in column] for column in table.columns]
        samples = list(zip(*columns, strict=True))
        raise DuplicateKeyError.found(request.key_columns, repeated, samples)


def _one_row_each(
    F: Any, every: DataFrame, columns: KeyColumns, request: MergeRequest
) -> DataFrame:
    """Each key once: the row that wins, and how often the key occurs."""
    row = F.col("row")
    order = [F.col(name) for name in columns.starting("o")]
    # Spark compares structs field by field, NULL below all values; canonical values have no NaN.
    rank = F.struct(*order, row)
    if not order and request.duplicates == "first":
        rank = F.struct(-row)
    kept = [F.col(name) for name in columns.starting("p")]
    names = columns.starting("k")
    winners = F.max_by(F.struct(row, *kept), rank).alias("winner")
    grouped = every.groupBy(*names).agg(F.count(F.lit(1)).alias("times"), winners)
    inside = [F.col(f"winner.{name}").alias(name) for name in ["row", *columns.starting("p")]]
    return grouped.select(*names, *inside, "times")


def _trusted_bounds(target: Target, trust_partitions: bool) -> list[Any]:
    """Bounds of key columns in every row group, without those that may have been cut."""
    columns = list(target.key_columns)
    if trust_partitions:
        columns += [part for part in target.partition_columns if part not in columns]

    def raw(footer: FileFooter) -> bytes | None:
        return footer.raw if footer.raw is not None else footer_bytes(target.root, footer.file)

    bounds = key_bounds(target.footers, columns, target.partitions)
    trusted, _ = trusted_overlap(target.footers, no_keys(target).keys, bounds, raw)
    return trusted


def _subset(target: Target, numbers: Sequence[int]) -> Target:
    """A target of some of its files: what tasks are given."""
    chosen = pa.array(numbers, pa.int64())
    return replace(
        target,
        footers=tuple(replace(target.footers[n], raw=None) for n in numbers),
        partition_texts=tuple(target.partition_texts[n] for n in numbers),
        partitions={
            name: PartitionValues(part.values.take(chosen), [part.known[n] for n in numbers])
            for name, part in target.partitions.items()
        },
    )


def _bundles(target: Target, work: Work) -> list[Work]:
    """Files to scan, together where they are small and many, and apart where they are large."""
    units: list[tuple[int, tuple[int, ...], int]] = []
    for number, row_groups in work:
        groups = target.footers[number].row_groups
        size, members = 0, []
        for group in row_groups:
            members.append(group)
            size += groups[group].bytes
            if size >= _TASK_BYTES:
                units.append((number, tuple(members), size))
                size, members = 0, []
        if members:
            units.append((number, tuple(members), size))
    return _together([((number, some), size) for number, some, size in units])


def _together(work: Sequence[tuple[_Item, int]]) -> list[list[_Item]]:
    """Items with their bytes, put together to tasks: few of them, but none too large."""
    total = sum(size for _, size in work)
    limit = min(_TASK_BYTES, max(_TINY_BYTES, -(-total // _TASKS)))
    bundles: list[list[_Item]] = []
    filled = 0
    for item, size in work:
        if not bundles or filled + size > limit:
            bundles.append([])
            filled = 0
        bundles[-1].append(item)
        filled += size
    return bundles


def _rewriter(
    source: AnySource, target: Target, keep_others: bool, force: bool = False
) -> RewriteFiles:
    """What writes files of the target anew, in a task."""
    parts = {part.name for part in target.partition_columns}
    columns = {
        footer.file.path: tuple(
            name for name in source.schema.names if name in footer.schema.names or name not in parts
        )
        for footer in target.footers
    }
    keys = tuple(column.name for column in target.key_columns)
    directory = source.stage().path
    return RewriteFiles(target.root, source.rows(), directory, keys, columns, keep_others, force)


def _task_rows(source: AnySource, new_files: NewFiles, total: int) -> int:
    """How many rows one task inserts: enough that its files, one per partition, are not tiny."""
    tasks = max(1, total // _INSERT_ROWS)
    rows = -(-total // tasks)
    parts = new_files.partition_columns
    if parts and tasks > 1:
        _, table = next(source.rows().pieces(0, source.num_rows, parts))
        rows = max(rows, table.group_by(parts).aggregate([]).num_rows * _PARTITION_ROWS)
    limit = new_files.limits.rows_per_file
    return -(-rows // limit) * limit if limit < rows else rows


def _insert_work(shares: Sequence[InsertShare], rows: int) -> list[InsertShare]:
    """Rows to insert, cut or put together to so many for each task, in the order of the source."""
    work: list[InsertShare] = []
    for share in shares:
        if share.rows is None and not share.pairs:
            starts = range(share.start, share.end, rows)
            work += [InsertShare(start, min(start + rows, share.end)) for start in starts]
        elif work and share.pairs and len(work[-1]) + len(share) <= rows:
            pairs, count = (*work[-1].pairs, *share.pairs), len(work[-1]) + len(share)
            work[-1] = InsertShare(work[-1].start, share.end, None, pairs, count)
        else:
            work.append(share)
    return work
