"""Compactions: small files of a partition become large ones, while others go on writing.

Bins of files are written without the lock. What is committed are the bins whose files nobody has
touched since; others are given up and reported. A change of one bin does not depend on any other
file, so nothing has to be planned again. Many bins take several commits, so that what others
overtake stays small.
"""

from __future__ import annotations

import datetime as dt
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Self

from fsspeckit.core.keys import as_names, check_columns, check_names, family, plain_type
from fsspeckit.core.matching import StoredKeyIndex
from fsspeckit.core.planning import BinLimits, by_directory, overlap_of, pack_bins, read_target
from fsspeckit.core.rewrite import DEFAULT_JOIN_LIMITS, join_files, sort_files
from fsspeckit.core.threads import lower_priority
from fsspeckit.datasets.pipeline.merge import (
    ResultOrigin,
    after_commit,
    commit_metrics,
    complete,
    lazy_staging,
    run_with_retries,
    snapshot_to_read,
)
from fsspeckit.datasets.pipeline.options import check_progress, check_whole
from fsspeckit.datasets.pipeline.target_checks import check_footers
from fsspeckit.display import Card, Displayed, FileGroup, Listing, Paged, counted, size
from fsspeckit.errors import (
    ConcurrentModificationError,
    FsspeckitError,
    InvalidArgumentError,
    SchemaMismatchError,
    UnreadableFileError,
)
from fsspeckit.storage import (
    CommitFacts,
    FileChanges,
    WorkerStage,
    check_mergeable,
    commit,
    list_snapshot,
    plain_basename,
    take_snapshot,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from fsspeckit.core.merge import MergeResult
    from fsspeckit.core.planning import Bin, FileFooter, Overlap, Target
    from fsspeckit.core.rewrite import Joined, JoinLimits
    from fsspeckit.datasets.engine import Engine, OpenStage
    from fsspeckit.datasets.pipeline.options import MergeOptions
    from fsspeckit.display import Fact, Phases, Progress
    from fsspeckit.storage import CommitOutcome, Root, Snapshot, StagedFile, Storage

__all__ = ["CompactBin", "CompactOptions", "CompactPlan", "CompactResult", "GivenUpBin"]

DEFAULT_TARGET_BYTES = 128 * 1024 * 1024

AUTO_MIN_FILES = 16
"""With ``auto_compact``, fewer small files that fit together are left for later merges."""

MAX_PASSES = 3
"""New files may be smaller than expected, so that they fit together again; and a partition that is
sorted in several parts is sorted again across them."""

MAX_COMMIT_BYTES = 16 * 1024 * 1024 * 1024
MAX_COMMIT_FILES = 2_000
"""One commit replaces no more files than this, unless a single bin has more."""

_MAX_COMMIT_RETRIES = 100
"""Each retry only drops the bins that others have touched."""

_OVERTAKEN = "somebody else has changed or removed its files meanwhile"


@dataclass(frozen=True)
class CompactOptions:
    """Everything that a caller decides about a compaction, except where it happens."""

    limits: BinLimits = field(default_factory=BinLimits)
    partitions: tuple[dict[str, tuple[Any, ...]], ...] | None = None
    """The partitions to compact: each column has one of these values; None for all."""

    sort_by: tuple[str, ...] = ()
    bloom_columns: tuple[str, ...] = ()
    progress: Progress | bool | None = None
    joins: JoinLimits = DEFAULT_JOIN_LIMITS
    directories: frozenset[str] | None = None
    """The only directories below the root that are compacted; None for all."""

    @classmethod
    def of(
        cls,
        *,
        target_file_bytes: int = DEFAULT_TARGET_BYTES,
        min_files: int = 2,
        partitions: Any = None,
        sort_by: str | Sequence[str] | None = None,
        bloom_columns: str | Sequence[str] | None = None,
        progress: Progress | bool | None = None,
    ) -> Self:
        """Make options of what a caller may pass."""
        check_whole("target_file_bytes", target_file_bytes, 1)
        check_whole("min_files", min_files, 2)
        check_progress(progress)
        return cls(
            BinLimits(int(target_file_bytes), int(min_files)),
            None if partitions is None else _partitions(partitions),
            _names("sort_by", sort_by),
            _names("bloom_columns", bloom_columns),
            progress,
        )

    def has_directory(self, path: str) -> bool:
        """Whether a file is in a directory that is compacted."""
        return self.directories is None or path.rpartition("/")[0] in self.directories


def _names(what: str, given: str | Sequence[str] | None) -> tuple[str, ...]:
    names: Any = () if given is None else as_names(given)
    if names != ():
        check_names(what, names)
    return tuple(names)


def _partitions(given: Any) -> tuple[dict[str, tuple[Any, ...]], ...]:
    wanted = [given] if isinstance(given, Mapping) else given
    if not isinstance(wanted, (list, tuple)) or not all(isinstance(w, Mapping) for w in wanted):
        raise InvalidArgumentError(
            f"partitions must be a mapping of columns to values, or a list of them, got {given!r}."
            '\nHint: partitions={"year": 2024} or [{"year": 2024, "month": [1, 2]}].',
            argument="partitions",
        )
    return tuple(
        {
            str(name): tuple(value) if isinstance(value, (list, tuple, set)) else (value,)
            for name, value in one.items()
        }
        for one in wanted
    )


@dataclass(frozen=True)
class CompactBin:
    """Files of one partition that become one, or are sorted together."""

    partition: str
    """Their directory below the root; empty if the dataset has no partitions."""

    files: tuple[str, ...]
    """The old files."""

    new_files: tuple[str, ...]
    """The new files; empty in a plan."""

    rows: int
    bytes_before: int
    bytes_after: int | None
    """The bytes of the new files; None in a plan."""

    bytes_copied: int
    """Bytes of pages that are copied; in a plan about so many."""

    bytes_encoded: int
    """Bytes of pages that are encoded; in a plan about so many, before they are."""

    method: str
    """``splice``, ``full`` or ``sort``."""

    reason: str = ""
    """Why no row group was copied, if none could be."""


@dataclass(frozen=True)
class GivenUpBin:
    """Files that stayed as they are, and why."""

    partition: str
    files: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class CompactPlan(Displayed):
    """What a compaction would do; ``str()`` summarises it."""

    path: str
    """The dataset."""

    bins: tuple[CompactBin, ...]
    """Which files would become one, or be sorted together."""

    files_before: int
    """All files of the dataset."""

    files_after: int
    """About how many files it would have then."""

    bytes_before: int
    """The bytes of all files."""

    bytes_copied: int
    """About how many bytes would be copied."""

    bytes_encoded: int
    """About how many bytes would be decoded and encoded."""

    overlap_before: Overlap | None = None
    """With ``sort_by``: in how many files and row groups a random row may be."""

    overlap_after: Overlap | None = None
    """With ``sort_by``: the same once the files are sorted, about."""

    notes: tuple[str, ...] = ()

    def _card(self) -> Card:
        title = f"compact: {counted(self.files_before, 'file')}, {self.files_after:,} afterwards"
        if not self.bins:
            title = f"compact: nothing to do for {counted(self.files_before, 'file')}"
        copied, encoded = size(self.bytes_copied), size(self.bytes_encoded)
        work = (f"about {copied} to copy, {encoded} to encode",) if self.bins else ()
        return Card(
            title,
            _groups(self.bins, self.files_before),
            _listing(self.bins),
            (*work, *_overlap_note(self.overlap_before, self.overlap_after), *self.notes),
        )


@dataclass
class CompactResult(Paged, Displayed):
    """What a compaction did; ``str()`` summarises it, rich and notebooks show a table."""

    path: str
    """The dataset."""

    files_before: int
    """The files of the dataset before."""

    files_after: int
    """The files of the dataset now."""

    bytes_before: int
    bytes_after: int
    rows: int
    """The rows of the dataset; a compaction changes none."""

    bytes_copied: int
    """Bytes of pages that were copied."""

    bytes_encoded: int
    """Bytes of pages that were encoded."""

    bins: list[CompactBin] = field(default_factory=list)
    """What was done, in order."""

    given_up: list[GivenUpBin] = field(default_factory=list)
    """What was not done, with reasons."""

    overlap_before: Overlap | None = None
    """With ``sort_by``: in how many files and row groups a random row may be, before."""

    overlap_after: Overlap | None = None
    """With ``sort_by``: the same now."""

    metrics: dict[str, Any] = field(default_factory=dict)
    """Seconds of each phase, ``passes``, and ``commits`` as other results have ``commit``."""

    origin: Any = field(default=None, repr=False, compare=False)
    """The dataset, for its page; None for a copy from another process."""

    def _card(self) -> Card:
        title = f"compact: {counted(self.files_before, 'file')} became {self.files_after:,}"
        if not self.bins:
            title = f"compact: nothing was changed in {counted(self.files_before, 'file')}"
        lost = [f"{counted(len(one.files), 'file')} left: {one.reason}" for one in self.given_up]
        copied, encoded = size(self.bytes_copied), size(self.bytes_encoded)
        work = (f"{copied} copied, {encoded} encoded",) if self.bins else ()
        commits = self.metrics.get("commits", [])
        notes = [*self.metrics.get("notes", ()), *(n for one in commits for n in one["notes"])]
        return Card(
            title,
            _groups(self.bins, self.files_before),
            _listing(self.bins),
            (*work, *_overlap_note(self.overlap_before, self.overlap_after), *lost, *notes),
        )


def _groups(bins: Sequence[CompactBin], files: int) -> tuple[FileGroup, ...]:
    joined = sum(len(one.files) for one in bins)
    spent = sum(one.bytes_before for one in bins)
    groups = (
        FileGroup("compacted", "changed", joined, spent),
        FileGroup("left alone", "kept", max(0, files - joined)),
    )
    return tuple(group for group in groups if group.count)


def _listing(bins: Sequence[CompactBin]) -> Listing:
    def line(one: CompactBin) -> tuple[str, ...]:
        done = (f"{len(one.files):,}", f"{one.rows:,}", size(one.bytes_before))
        work = size(one.bytes_copied), size(one.bytes_encoded)
        return (one.partition, *done, *work)

    return Listing.of(("partition", "files", "rows", "size", "copied", "encoded"), bins, line)


def _overlap_note(before: Overlap | None, after: Overlap | None) -> tuple[str, ...]:
    if before is None or after is None:
        return ()
    return (
        f"a random row may be in {before.files:,.1f} files and {before.row_groups:,.1f} row groups "
        f"before, in {after.files:,.1f} and {after.row_groups:,.1f} afterwards",
    )


# Planning


@dataclass(frozen=True)
class _Draft:
    """Which bins there are in a snapshot."""

    target: Target
    numbers: tuple[int, ...]
    """The files of the partitions that the caller named."""

    bins: tuple[Bin, ...]
    overlap: tuple[Overlap, Overlap] | None
    notes: tuple[str, ...]


def plan_compact(
    engine: Engine[Any, Any, Any], storage: Storage, options: CompactOptions
) -> CompactPlan:
    """Return what a compaction would do; nothing is written."""
    observed = storage.observe("plan_compact", engine=engine.name, progress=options.progress)
    with observed as phases, lazy_staging(storage) as stage:

        def plan(snapshot: Snapshot) -> CompactPlan:
            with phases.timed("plan") as facts:
                draft = _draft(engine, storage, stage, snapshot, options)
                facts.update(_facts_of_draft(draft))
            return _as_plan(storage.root, draft, options)

        return run_with_retries(storage, plan, snapshot_to_read)


def _draft(
    engine: Engine[Any, Any, Any],
    storage: Storage,
    stage: OpenStage,
    snapshot: Snapshot,
    options: CompactOptions,
    allowed: Iterable[str] | None = None,
) -> _Draft:
    """Pack the files of a snapshot into bins; of the allowed paths, if there are any."""
    check_mergeable(snapshot.listing, storage.root)
    files = snapshot.listing.files
    if not files:
        user_path = storage.root.to_user_path(storage.root.path)
        raise InvalidArgumentError(
            f"nothing to compact: {user_path!r} holds no data files.\nHint: check the path."
        )
    stored = [*options.sort_by, *options.bloom_columns]

    def read(root: Root, found: Any, columns: Any) -> list[FileFooter]:
        return engine.footers(root, found, dict.fromkeys([*columns, *stored]), stage=stage)

    read = partial(check_footers, storage, read)
    target = read_target(storage.root, files, (), None, None, read)
    _check_stored(target, options)
    wanted = set(snapshot.by_path if allowed is None else allowed)
    numbers = [
        number
        for number, texts in enumerate(target.partition_texts)
        if _is_wanted(texts, options.partitions)
        and (path := storage.root.relative(files[number].path)) in wanted
        and options.has_directory(path)
    ]
    bins = pack_bins(target, numbers, options.limits, options.sort_by)
    overlap: tuple[Overlap, Overlap] | None = None
    notes: tuple[str, ...] = ()
    if options.partitions is not None and not numbers and allowed is None:
        notes = (f"no file is in the partitions {list(options.partitions)!r}",)
    if options.sort_by:
        partitions = by_directory(target, numbers)
        overlap = overlap_of(partitions, bins, options.sort_by[0])
        notes += _sort_notes(bins, options)
    return _Draft(target, tuple(numbers), tuple(bins), overlap, notes)


def _sort_notes(bins: Sequence[Bin], options: CompactOptions) -> tuple[str, ...]:
    parts: dict[str, int] = defaultdict(int)
    for one in bins:
        parts[one.directory] += 1
    several = sum(number > 1 for number in parts.values())
    if not several:
        return ()
    limit = size(options.limits.max_sorted_bytes)
    return (
        f"{counted(several, 'partition')} of more than {limit} are sorted in parts, and again "
        f"across them, in up to {MAX_PASSES} passes",
    )


def _check_stored(target: Target, options: CompactOptions) -> None:
    """Refuse columns to sort or to filter by that files do not store, or that have no order."""
    parts = [part.name for part in target.partition_columns]
    unknown = [name for one in options.partitions or () for name in one if name not in parts]
    if unknown:
        raise InvalidArgumentError.missing_columns("partitions", unknown, parts)
    names = [name for name in target.types.names if name not in parts]
    for what in ("sort_by", "bloom_columns"):
        wanted = getattr(options, what)
        if wanted:
            check_columns(what, wanted, names)
        for name in wanted:
            kind = plain_type(target.types.field(name).type)
            if family(kind) is None or (what != "sort_by" and family(kind) == "bool"):
                why = "has no order" if what == "sort_by" else "cannot have a bloom filter"
                raise InvalidArgumentError(
                    f"{what} {name!r} of type {kind} {why}.\n"
                    "Hint: name a column of numbers, strings, binaries, dates or timestamps.",
                    argument=what,
                )


def _is_wanted(texts: Mapping[str, str | None], wanted: Sequence[Mapping[str, Any]] | None) -> bool:
    return wanted is None or any(
        all(any(_is_value(texts[name], value) for value in values) for name, values in one.items())
        for one in wanted
    )


def _is_value(text: str | None, value: Any) -> bool:
    """Return whether the text of a partition directory is a value: ``01`` is the number 1."""
    if text is None or value is None:
        return text is None and value is None
    if isinstance(value, bool):
        return text.lower() == str(value).lower()
    if isinstance(value, (int, float)):
        try:
            return float(text) == value
        except ValueError:
            return False
    if isinstance(value, dt.datetime):
        return text in (str(value), value.isoformat())
    return text == str(value)


def _as_plan(root: Root, draft: _Draft, options: CompactOptions) -> CompactPlan:
    files = len(draft.target.footers)
    bins = tuple(_planned(root, one, options) for one in draft.bins)
    gone = sum(len(one.footers) - one.outputs for one in draft.bins)
    before, after = draft.overlap or (None, None)
    return CompactPlan(
        root.to_user_path(root.path),
        bins,
        files,
        files - gone,
        sum(footer.file.size for footer in draft.target.footers),
        sum(one.bytes_copied for one in bins),
        sum(one.bytes_encoded for one in bins),
        before,
        after,
        draft.notes,
    )


def _planned(root: Root, one: Bin, options: CompactOptions) -> CompactBin:
    copied = 0 if one.is_sorted else _copied_bytes(one, options.joins)
    return CompactBin(
        one.directory,
        tuple(map(root.to_user_path, one.paths)),
        (),
        one.rows,
        one.bytes,
        None,
        copied,
        one.bytes - copied,
        "sort" if one.is_sorted else "splice",
    )


def _copied_bytes(one: Bin, limits: JoinLimits) -> int:
    """Estimate what is copied: large row groups, and small ones without a small neighbour."""
    groups = [
        (group, footer.file.size / max(1, sum(g.bytes for g in footer.row_groups)))
        for footer in one.footers
        for group in footer.row_groups
        if group.rows
    ]
    large = [limits.is_copied(group.rows, group.bytes) for group, _ in groups]
    around = [True, *large, True]
    alone = [before and after for before, after in zip(around, around[2:], strict=False)]
    chosen = (
        group.bytes * scale
        for (group, scale), is_large, is_alone in zip(groups, large, alone, strict=True)
        if is_large or is_alone
    )
    return int(sum(chosen))


# Execution


@dataclass(frozen=True)
class _Work:
    """A bin, small enough to be sent to a task."""

    paths: tuple[str, ...]
    directory: str
    outputs: int
    is_sorted: bool


@dataclass(frozen=True)
class _Outcome:
    """What became of a bin: new files, or why there are none."""

    joined: tuple[Joined, ...] = ()
    reason: str = ""
    """Why its files cannot become one."""

    error: Exception | None = None
    """An error that may be due to somebody who changes the files meanwhile."""


@dataclass(frozen=True)
class _WriteBin:
    """Writes the files of a bin, in whatever process."""

    root: Root
    stage: WorkerStage
    sort_by: tuple[str, ...]
    blooms: tuple[str, ...]
    limits: JoinLimits

    def __call__(self, work: _Work) -> _Outcome:
        first = self.root.relative(work.paths[0])
        basename = plain_basename(first.rpartition("/")[2])
        staged = [
            self.stage.new_file(work.directory, basename, like=first) for _ in range(work.outputs)
        ]
        options: Any = {"blooms": self.blooms, "limits": self.limits}
        lower_priority()  # merges are waited for, compactions are not
        try:
            if work.is_sorted:
                found = sort_files(self.root, work.paths, staged, self.sort_by, **options)
            else:
                found = [join_files(self.root, work.paths, staged[0], **options)]
        except SchemaMismatchError as error:
            return _Outcome(reason=str(error).partition("\nHint:")[0])
        except (FileNotFoundError, UnreadableFileError, ConcurrentModificationError) as error:
            return _Outcome(error=error)
        return _Outcome(tuple(found))


@dataclass(frozen=True)
class _Written:
    """A bin with its new files, which wait for the commit."""

    bin: Bin
    joined: tuple[Joined, ...]
    staged: tuple[StagedFile, ...]


def run_compact(
    engine: Engine[Any, Any, Any], storage: Storage, options: CompactOptions
) -> CompactResult:
    """Compact a dataset."""
    observed = storage.observe("compact", engine=engine.name, progress=options.progress)
    with observed as phases:
        return _Compaction(engine, storage, options, phases).run()


def compact_after(
    engine: Engine[Any, Any, Any], storage: Storage, result: MergeResult, options: MergeOptions
) -> None:
    """Compact the partitions whose files a merge has changed."""
    commit = result.metrics.get("commit", {})
    if commit.get("published"):
        written = (*result.inserted_files, *result.rewritten_files)
        new = (storage.root.canonical(path) for path in written)
        directories = frozenset(storage.root.relative(path).rpartition("/")[0] for path in new)
        with after_commit(commit["number"]):
            commit["notes"] += _compact_directories(engine, storage, directories, options)


def _compact_directories(
    engine: Engine[Any, Any, Any],
    storage: Storage,
    directories: frozenset[str],
    options: MergeOptions,
) -> list[str]:
    """Compact directories that have many small files; return what a person should know."""
    limits = BinLimits(options.target_file_bytes or DEFAULT_TARGET_BYTES, AUTO_MIN_FILES)
    try:
        done = run_compact(engine, storage, CompactOptions(limits, directories=directories))
    except (FsspeckitError, OSError) as error:  # the merge is committed, and stays so
        return [f"not compacted: {str(error).partition(chr(10))[0]}"]
    joined = sum(len(one.files) for one in done.bins)
    written = sum(len(one.new_files) for one in done.bins)
    return [f"compacted {counted(joined, 'file')} into {written:,}"] if joined else []


class _Compaction:
    """One compaction: passes of waves, each wave a commit."""

    def __init__(
        self,
        engine: Engine[Any, Any, Any],
        storage: Storage,
        options: CompactOptions,
        phases: Phases,
    ) -> None:
        self._engine = engine
        self._storage = storage
        self._root = storage.root
        self._options = options
        self._phases = phases
        # The files that later passes may take: those that were there, and our own. What others
        # add meanwhile, and what they overtake, is for the next compaction.
        self._allowed: set[str] | None = None
        self._first: _Draft | None = None
        self._last: _Draft
        self._done: list[CompactBin] = []
        self._given_up: list[GivenUpBin] = []
        self._commits: list[dict[str, Any]] = []

    def run(self) -> CompactResult:
        """Compact until nothing is left to do, or for so many passes."""
        for number in count():
            passed = partial(self._pass, is_last=number == MAX_PASSES)
            if not run_with_retries(self._storage, passed):
                return self._result(number)
        raise AssertionError("unreachable")

    def _pass(self, snapshot: Snapshot, *, is_last: bool) -> bool:
        """Plan, and do what is planned unless this is the last pass.

        Returns:
            Whether that changed anything.
        """
        with self._phases.timed("plan") as facts, lazy_staging(self._storage) as stage:
            draft = _draft(
                self._engine, self._storage, stage, snapshot, self._options, self._allowed
            )
            facts.update(_facts_of_draft(draft))
        self._last = draft
        if self._first is None:
            self._first = draft
        if self._allowed is None:
            self._allowed = set(snapshot.by_path)
        if is_last:
            return False
        committed = False
        for wave in _waves(draft.bins):
            committed |= self._compact(wave, draft.target)
        return committed

    def _compact(self, bins: Sequence[Bin], target: Target) -> bool:
        """Write some bins, and commit those that nobody has touched."""
        started = time.time()
        snapshot = take_snapshot(self._storage)
        bins = [one for one in bins if self._is_untouched(one, snapshot)]
        if not bins:
            return False
        with lazy_staging(self._storage) as stage:
            with self._phases.timed("rewrite") as facts:
                written = self._write(bins, stage)
                facts.update(_facts_of_bins(written))
            if not written:
                return False
            chosen = list(written)
            index = StoredKeyIndex(self._storage)
            index.load_for_write(target, target.types)

            def change(current: Snapshot, _: object = None) -> FileChanges:
                """Drop the bins that somebody has touched; the others do not depend on them."""
                chosen[:] = [one for one in chosen if self._is_untouched(one.bin, current)]
                index.add([file for one in chosen for file in one.staged], {})
                return FileChanges(
                    [file for one in chosen for file in one.staged],
                    [path for one in chosen for path in one.bin.paths],
                )

            with self._phases.timed("commit"):
                outcome = commit(
                    self._storage,
                    snapshot,
                    stage(),
                    change(snapshot),
                    lambda: self._facts(chosen, started),
                    replan=change,
                    retries=_MAX_COMMIT_RETRIES,
                )
                if not chosen:
                    return False
                with after_commit(outcome.number):
                    self._record(chosen, outcome)
                    gone = {path for one in chosen for path in one.bin.paths}
                    index.update(target, gone, begun=0.0, number=outcome.number)
        return True

    def _is_untouched(self, one: Bin, snapshot: Snapshot) -> bool:
        """Whether the files of a bin are still there; if not, it is given up."""
        found = snapshot.by_path
        for footer in one.footers:
            now = found.get(self._root.relative(footer.file.path))
            if now is None or not footer.file.is_same_file(now):
                self._give_up(one, _OVERTAKEN)
                return False
        return True

    def _give_up(self, one: Bin, reason: str) -> None:
        files = tuple(map(self._root.to_user_path, one.paths))
        self._given_up.append(GivenUpBin(one.directory, files, reason))
        assert self._allowed is not None
        self._allowed.difference_update(map(self._root.relative, one.paths))

    def _write(self, bins: Sequence[Bin], stage: OpenStage) -> list[_Written]:
        task = _WriteBin(
            self._root,
            WorkerStage(stage().path),
            self._options.sort_by,
            self._options.bloom_columns,
            self._options.joins,
        )
        items = [
            (_Work(one.paths, one.directory, one.outputs, one.is_sorted), one.bytes) for one in bins
        ]
        outcomes = self._engine.map_items("rewrite", task, items, stage, self._phases.report)
        written = []
        for one, outcome in zip(bins, outcomes, strict=True):
            if outcome.error is not None:
                # Somebody may have replaced a file while it was read: then this is not an error.
                if self._is_untouched(one, list_snapshot(self._storage)[0]):
                    raise outcome.error
            elif outcome.reason:
                self._give_up(one, outcome.reason)
            elif (rows := sum(new.rows for new in outcome.joined)) != one.rows:
                self._give_up(one, f"its files hold {rows:,} rows, their footers say {one.rows:,}")
            else:
                staged = tuple(complete(self._root, n.staged, n.rows) for n in outcome.joined)
                written.append(_Written(one, outcome.joined, staged))
        return written

    def _facts(self, chosen: Sequence[_Written], started: float) -> CommitFacts:
        return CommitFacts(
            engine=self._engine.name,
            strategy="compact",
            counts={"rewritten": sum(one.bin.rows for one in chosen)},
            started=started,
        )

    def _record(self, chosen: Sequence[_Written], outcome: CommitOutcome) -> None:
        self._commits.append(commit_metrics(outcome))
        assert self._allowed is not None
        for one in chosen:
            self._allowed.update(file.final for file in one.staged)
            finals = (self._storage.path(file.final) for file in one.staged)
            self._done.append(
                CompactBin(
                    one.bin.directory,
                    tuple(map(self._root.to_user_path, one.bin.paths)),
                    tuple(map(self._root.to_user_path, finals)),
                    one.bin.rows,
                    one.bin.bytes,
                    sum(file.size or 0 for file in one.staged),
                    sum(new.copied_bytes for new in one.joined),
                    sum(new.encoded_bytes for new in one.joined),
                    one.joined[0].method,
                    one.joined[0].reason,
                )
            )

    def _result(self, passes: int) -> CompactResult:
        assert self._first is not None
        first, last = self._first.target.footers, self._last.target.footers
        before, after = self._first.overlap, self._last.overlap
        return CompactResult(
            self._root.to_user_path(self._root.path),
            len(first),
            len(last),
            sum(footer.file.size for footer in first),
            sum(footer.file.size for footer in last),
            sum(footer.rows for footer in last),
            sum(one.bytes_copied for one in self._done),
            sum(one.bytes_encoded for one in self._done),
            self._done,
            self._given_up,
            None if before is None else before[0],
            None if after is None else after[0],
            {
                "passes": passes,
                "seconds": dict(self._phases.seconds),
                "commits": self._commits,
                "notes": list(self._first.notes),
            },
            ResultOrigin(self._storage, None),
        )


def _facts_of_draft(draft: _Draft) -> dict[str, Fact]:
    footers = draft.target.footers
    return {
        "files": len(footers),
        "bytes": sum(footer.file.size for footer in footers),
        "bins": len(draft.bins),
        "files_affected": sum(len(one.footers) for one in draft.bins),
        "bytes_affected": sum(one.bytes for one in draft.bins),
    }


def _facts_of_bins(bins: Sequence[_Written]) -> dict[str, Fact]:
    files = [file for one in bins for file in one.staged]
    return {
        "files": len(files),
        "rows": sum(one.bin.rows for one in bins),
        "bytes_written": sum(file.size or 0 for file in files),
    }


def _waves(bins: Sequence[Bin]) -> Iterator[list[Bin]]:
    """Cut bins into what one commit replaces."""
    wave: list[Bin] = []
    files = spent = 0
    for one in bins:
        is_full = (
            files + len(one.footers) > MAX_COMMIT_FILES or spent + one.bytes > MAX_COMMIT_BYTES
        )
        if wave and is_full:
            yield wave
            wave, files, spent = [], 0, 0
        wave.append(one)
        files, spent = files + len(one.footers), spent + one.bytes
    if wave:
        yield wave
