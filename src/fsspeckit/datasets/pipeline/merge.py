"""The way of a merge: take the source, plan, match, rewrite, insert, commit.

Every engine goes this way. Decisions are made here or in the core; an engine only answers questions
about data, and only storage publishes. A plan keeps the source as it was read, in memory or in its
staging directory, until it is executed or nobody holds it any more.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import InitVar, dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import pyarrow as pa

from fsspeckit.core.keys import check_columns, no_keys
from fsspeckit.core.matching import StoredKeyIndex
from fsspeckit.core.merge import MergeFileMetadata, MergeResult, preposition
from fsspeckit.core.planning import (
    FooterCache,
    gc_disabled,
    plan_condition,
    plan_duplicates,
    plan_files,
    read_footers,
)
from fsspeckit.core.rewrite import join_files
from fsspeckit.datasets.engine import KeysT, PositionsT, SourceT
from fsspeckit.datasets.pipeline.changes import ChangeFeed
from fsspeckit.datasets.pipeline.schema import evolve_files, recorded_schema
from fsspeckit.datasets.pipeline.selection import read_duplicates_target, read_selected_target
from fsspeckit.datasets.pipeline.target_checks import (
    check_deciding_columns,
    check_fits,
    check_rules,
    evolved_target,
    new_files,
    plan_schema_changes,
    read_checked_target,
)
from fsspeckit.errors import (
    Argument,
    ConcurrentModificationError,
    InvalidArgumentError,
    PartitionMoveError,
    SchemaMismatchError,
    StalePlanError,
    mark_committed,
)
from fsspeckit.storage import (
    CommitFacts,
    CommitOutcome,
    FileChanges,
    PhasePublisher,
    check_mergeable,
    commit,
    confirm_snapshot,
    find_transaction,
    list_snapshot,
    plain_basename,
    staging,
    take_snapshot,
    unconfirmed_snapshot,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from fsspeckit.core.planning import FileFooter, MergePlan, Target
    from fsspeckit.core.rewrite import Joined, NewFile, NewFiles, Rewritten
    from fsspeckit.core.schema_changes import Evolution
    from fsspeckit.datasets.engine import Engine, Matches, OpenStage, Source
    from fsspeckit.datasets.pipeline.options import DuplicateOptions, MergeOptions
    from fsspeckit.display import Fact, Phases, Progress
    from fsspeckit.storage import Difference, Root, Skipped, Snapshot, StagedFile, Storage

MAX_RECORDED_REWRITES = 1_000
"""How each of so many files was rewritten is in the record; of more, only that they were."""

MAX_RECORDED_PARTS = 10_000
"""So many row groups and columns of rewritten files are named in the record, taken together."""

MIN_ATTEMPTS = 3
MAX_ATTEMPTS = 1000
"""No change is planned more often than this, whatever the time."""

_T = TypeVar("_T")

_inherited_releases: list[Callable[[], None]] = []


def run_merge(
    engine: Engine[Any, Any, Any], storage: Storage, data: Any, options: MergeOptions
) -> MergeResult:
    """Merge data into a dataset."""
    with _observe(engine, storage, options) as phases, lazy_staging(storage) as stage:
        merge = _Merge(engine, storage, stage, options, phases)
        if (skipped := find_transaction(storage, options.transaction)) is not None:
            return merge.skip(skipped)
        merge.take(data)
        return merge.result(run_with_retries(storage, merge.run, unconfirmed_snapshot))


def plan_merge(
    engine: Engine[Any, Any, Any], storage: Storage, data: Any, options: MergeOptions
) -> MergePlan:
    """Return what a merge would do; nothing is written."""
    with _observe(engine, storage, options, "plan_") as phases, ExitStack() as stack:
        stage = stack.enter_context(lazy_staging(storage))
        merge = _Merge(engine, storage, stage, replace(options, only_plans=True), phases)
        skipped = find_transaction(storage, options.transaction)
        merge.take(data)
        draft = partial(merge.plan, strict=False)
        made = run_with_retries(storage, draft, snapshot_to_read).plan
        kept = replace(options, progress=None)
        origin = PlannedMerge(
            engine.name, storage, kept, merge.source, stage, merge.feed, stack.pop_all().close
        )
        return replace(made, origin=origin, notes=(f"would be {skipped.note}",) if skipped else ())


def run_plan(
    engine: Engine[Any, Any, Any],
    plan: MergePlan,
    progress: Progress | bool | None,
    compact_after: Callable[[Engine[Any, Any, Any], Storage, MergeResult, MergeOptions], None],
) -> MergeResult:
    """Execute a plan on the files it was made for, or change nothing.

    ``compact_after`` is called with the result if the plan is one with ``auto_compact``.
    """
    kept = get_planned_merge(plan, engine.name)
    options = replace(kept.options, progress=progress)
    with _observe(engine, kept.storage, options) as phases:
        # The staging directory of the plan: an engine writes new files beside the staged source.
        merge = _Merge(engine, kept.storage, kept.stage, options, phases, reviewed=plan)
        merge.source, merge.feed = kept.source, kept.feed
        result = _run_reviewed(merge, kept, plan)
    kept.release()
    if kept.options.auto_compact:
        compact_after(engine, kept.storage, result, kept.options)
    return result


def _observe(
    engine: Engine[Any, Any, Any], storage: Storage, options: MergeOptions, prefix: str = ""
) -> AbstractContextManager[Phases]:
    return storage.observe(
        f"{prefix}{options.call}",
        engine=engine.name,
        transaction=options.transaction,
        progress=options.progress,
        strategy=options.name,
    )


def _run_reviewed(merge: _Merge[Any, Any, Any], kept: PlannedMerge, plan: MergePlan) -> MergeResult:
    """Execute a plan, or skip it if its transaction is committed, perhaps just now."""
    find = partial(find_transaction, kept.storage, kept.options.transaction)
    if (skipped := find()) is None:
        try:
            return merge.result(_once(kept.storage, plan, merge.run))
        except StalePlanError:
            if (skipped := find()) is None:
                raise
    return merge.skip(skipped)


def _once(
    storage: Storage, plan: MergePlan, run: Callable[[Snapshot], CommitOutcome]
) -> CommitOutcome:
    """Work on the files of a plan, or refuse if they have changed since or change meanwhile."""
    assert plan.snapshot is not None
    display_path = storage.root.display_path
    snapshot = take_snapshot(storage)
    if difference := plan.snapshot.compare(snapshot):
        raise StalePlanError.changed(display_path, difference)
    try:
        return run(snapshot)
    except FileNotFoundError as error:
        if difference := snapshot.compare(list_snapshot(storage)[0]):
            raise StalePlanError.changed(display_path, difference) from error
        raise


def snapshot_to_read(storage: Storage) -> Snapshot:
    """The state of a dataset; only a commit that is not complete yet makes this write."""
    snapshot, pending = list_snapshot(storage)
    return take_snapshot(storage) if pending else snapshot


def _check_reviewed(reviewed: MergePlan, again: MergePlan) -> None:
    """Refuse a plan that decides otherwise than the one that a person has seen."""
    seen = {file.path: file.decision for file in reviewed.files}
    now = {file.path: file.decision for file in again.files}
    if seen != now:
        odd = [path for path in sorted(seen | now) if seen.get(path) != now.get(path)]
        raise StalePlanError.decided_otherwise(again.path, odd)


@dataclass(eq=False, repr=False)
class PlannedMerge:
    """A merge that was planned and can be executed once, by the same engine.

    ``release`` frees the staging directory that the source may be in; it is called at the latest
    when the plan is gone.
    """

    engine: str
    storage: Storage
    options: MergeOptions
    source: Source
    stage: OpenStage
    feed: ChangeFeed[Any] | None
    release_source: InitVar[Callable[[], None]]

    def __post_init__(self, release_source: Callable[[], None]) -> None:
        self._release = weakref.finalize(self, _release_in, os.getpid(), release_source)

    @property
    def is_released(self) -> bool:
        """Whether the source is gone, because the plan was executed."""
        return not self._release.alive

    def release(self) -> None:
        """Release the source."""
        self._release()
        del self.source, self.stage, self.feed

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # a copy of a plan executes the same merge

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        # A source may be a connection or files of this process: a plan travels without it.
        return _no_planned_merge, ()


def _release_in(process: int, release: Callable[[], None]) -> None:
    """Release only where the plan was made: a forked child does not own the source."""
    if os.getpid() == process:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            release()
        else:  # a garbage collection in a thread of fsspec, which cannot wait for itself
            threading.Thread(target=release, daemon=True).start()
    else:
        _inherited_releases.append(release)  # without a reference it would run after all


def _no_planned_merge() -> None:
    """Return None: in another process a plan keeps no source."""


def get_planned_merge(plan: MergePlan, engine: str | None = None) -> PlannedMerge:
    """Return the merge that a plan executes, once, in its own process and by its own engine."""
    kept: PlannedMerge | None = getattr(plan, "origin", None)
    if kept is None:
        raise InvalidArgumentError(
            f"{type(plan).__name__} cannot be executed: it does not know its source.\n"
            "Hint: pass what plan_merge() returned, in the same process; a plan that was stored or "
            "sent travels without its source. Plans of compact() and evolve() only show what these "
            "calls would do."
        )
    if kept.is_released:
        raise InvalidArgumentError(
            "the plan was executed already, and has let go of its source.\nHint: plan again."
        )
    if engine is not None and kept.engine != engine:
        raise InvalidArgumentError(
            f"the plan was made by the engine {kept.engine!r}, and {engine!r} cannot execute it.\n"
            "Hint: call execute() of the engine that made the plan, or fsspeckit.execute(plan)."
        )
    return kept


@dataclass(frozen=True, eq=False, repr=False)
class ResultOrigin:
    """Where a result comes from, for its page."""

    storage: Storage
    plan: MergePlan | None
    """The plan that was executed, without its source; None if nothing was planned."""

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        # A filesystem may be of this process: a result travels without its dataset.
        return _no_planned_merge, ()


@dataclass
class _Attempt(Generic[PositionsT]):
    """What one attempt has decided, and then put into staging."""

    target: Target
    plan: MergePlan
    matches: Matches[PositionsT] | None
    """None if the source has no rows, so that nothing is to be done."""

    rewritten: dict[str, tuple[StagedFile, int]] = field(default_factory=dict)
    """By canonical path: the new file and its rows."""

    removed: list[str] = field(default_factory=list)
    """Files that lose all their rows."""

    inserted: list[NewFile] = field(default_factory=list)
    appended_rows: int = 0
    """New rows that are in rewritten files."""

    sizes: dict[str, int | None] = field(default_factory=dict)
    """By path below the root: the bytes of each new file."""

    rewrites: dict[str, Rewritten] = field(default_factory=dict)
    """By canonical path: what became of each affected file."""


@dataclass(frozen=True)
class _Appending:
    """A staged file, and others whose rows are appended to it."""

    root: Root
    parts: tuple[str, ...]
    staged: StagedFile


def _append(work: _Appending) -> Joined | None:
    """Join staged files into a further one; None if they cannot be one."""
    try:
        return join_files(work.root, work.parts, work.staged)
    except SchemaMismatchError:
        return None


class _Merge(Generic[SourceT, KeysT, PositionsT]):
    """One merge, from the source to the result; attempts are repeated if others were faster."""

    def __init__(
        self,
        engine: Engine[SourceT, KeysT, PositionsT],
        storage: Storage,
        stage: OpenStage,
        options: MergeOptions,
        phases: Phases,
        reviewed: MergePlan | None = None,
    ) -> None:
        self._engine = engine
        self._storage = storage
        self._root = storage.root
        self._stage = stage
        self._options = options
        self._phases = phases
        if not options.only_plans:
            about = (engine.name, options.name, options.transaction)
            phases.listeners.append(PhasePublisher(storage, stage, *about))
        # The plan that the merge must keep to; None for one that may plan as often as it needs.
        self._reviewed = reviewed
        self._started = time.time()
        self._retries = RetryPolicy(storage)
        self._known = FooterCache(storage)
        self._index: StoredKeyIndex | None = None
        self._index_notes: list[str] = []
        self.source: SourceT
        self.feed: ChangeFeed[SourceT] | None = None
        self._attempt: _Attempt[PositionsT]

    def take(self, data: Any) -> None:
        """Stage the source and check what can be checked without the target."""
        with self._phases.timed("stage") as facts:
            self.source = self._engine.take(
                data,
                self._stage,
                self._options.schema,
                keep=self._options.only_plans,
                progress=self._phases.report,
            )
            if self._options.changes is not None:
                feed = (self._engine, self._storage, self._stage, self._options)
                self.feed = ChangeFeed(*feed, self._phases.report)
                self.source = self.feed.take(self.source)
            facts["rows"] = self._source_rows
        available = self.source.schema.names
        if not self._options.selects and self._options.changes is None:
            check_columns("key_columns", self._options.key_columns, available)
        if self._options.order_by:
            check_columns("order_by", self._options.order_by, available)
        check_deciding_columns(self.source.schema, self._options.rules)
        if self._options.deletes and not self.source.num_rows and not self._options.allow_empty:
            raise InvalidArgumentError(
                "full_merge with an empty source would delete every row of the target.\n"
                "Hint: pass allow_empty=True if that is what you want.",
                mentions=(Argument("allow_empty", (True,)),),
            )

    @gc_disabled()
    def run(self, snapshot: Snapshot) -> CommitOutcome:
        """Plan, write and commit; again and again if others commit first."""
        snapshot, change = self._prepare_confirmed(snapshot)
        transaction = self._options.transaction
        if change.is_empty and not self._is_recorded:
            self._update_index()
            self._phases.facts["outcome"] = "unchanged"
            return CommitOutcome(snapshot.number, None)
        with self._phases.timed("commit"):
            outcome = commit(
                self._storage,
                snapshot,
                self._stage(),
                change,
                self.facts,
                replan=self._again,
                retries=MAX_ATTEMPTS,
                transaction=transaction,
            )
            if outcome.skipped is not None:
                return outcome
            with after_commit(outcome.number):
                self._known.save()
                self._update_index(outcome.number)
        return outcome

    @property
    def _is_recorded(self) -> bool:
        """Whether there is a commit even if no file changes."""
        return self._options.transaction is not None or self._options.purge

    def _prepare_confirmed(self, snapshot: Snapshot) -> tuple[Snapshot, FileChanges]:
        """Plan and write, and plan again if the snapshot was not what the dataset was.

        A commit finds that out itself. Where there will be none, because nothing changes or because
        of an error, it is found out here.
        """
        try:
            change = self._prepare(snapshot)
        except OSError:  # of a file that is gone, which the caller sees, or of the store
            raise
        except Exception:  # whatever a plan says of files that were never there together
            if confirm_snapshot(self._storage, snapshot):
                raise
        else:
            will_commit = not change.is_empty or self._is_recorded
            if will_commit or confirm_snapshot(self._storage, snapshot):
                return snapshot, change
        snapshot = take_snapshot(self._storage)
        return snapshot, self._prepare(snapshot)

    def _update_index(self, number: int | None = None) -> None:
        """Bring the key index up to date after the commit of this number, or without one."""
        if self._index is not None:
            gone = {*self._attempt.rewritten, *self._attempt.removed}
            self._index_notes = self._index.update(
                self._attempt.target, gone, self._started, number
            )

    def _open_index(self, snapshot: Snapshot, target: Target) -> StoredKeyIndex | None:
        """Return the key index of the dataset, if there is one or one is asked for."""
        wanted = self._options.key_index
        if wanted is None:
            try:
                if not self._has_key_index(snapshot):
                    return None
            except OSError:
                return None
        index = StoredKeyIndex(self._storage, wanted)
        index.load(target.key_columns)
        return index

    def _has_key_index(self, snapshot: Snapshot) -> bool:
        path = self._storage.control.key_index
        if snapshot.control_names is not None:
            return path.rpartition("/")[2] in snapshot.control_names
        return self._storage.backend.stat(path) is not None

    def _again(self, snapshot: Snapshot, difference: Difference) -> FileChanges:
        if self._reviewed is not None:
            raise StalePlanError.changed(self._root.display_path, difference)
        self._retries.count(difference)
        return self._prepare(snapshot)

    def _prepare(self, snapshot: Snapshot) -> FileChanges:
        """Plan on a snapshot and write what the plan needs into staging."""
        self._attempt = self.plan(snapshot)
        if self._reviewed is not None:
            _check_reviewed(self._reviewed, self._attempt.plan)
        if self._options.updates or self._attempt.target.evolution is not None:
            self._options.limits.check(self._attempt.plan)
        if (matches := self._attempt.matches) is not None:
            with self._phases.timed("rewrite") as facts:
                self._rewrite(matches)
                facts.update(facts_of_rewrites(self._attempt.rewrites.values()))
            with self._phases.timed("insert") as facts:
                self._insert(matches)
                self._attempt.inserted = with_sizes(self._root, self._attempt.inserted)
                facts.update(facts_of_new_files(self._attempt.inserted))
        return self._change()

    def plan(self, snapshot: Snapshot, *, strict: bool = True) -> _Attempt[PositionsT]:
        """Decide about every file, key scan included; if ``strict``, refuse unreadable ones."""
        if self._options.where is not None:
            return self._plan_condition(snapshot, strict)
        if self._options.duplicates_of is not None:
            return self._plan_duplicates(snapshot, self._options.duplicates_of, strict)
        with self._phases.timed("plan") as facts:
            if self.feed is not None:
                self.source = self.feed.rows_at(snapshot, partial(self._read_target, strict=strict))
            target = self._target(snapshot, strict)
            evolution = self._plan_evolution(target)
            if evolution is not None:
                target = evolved_target(target, evolution)
            self._index = self._open_index(snapshot, target)
            if not self.source.num_rows and not self._options.deletes:
                strategy = self._options.name
                empty = plan_files(target, no_keys(target), strategy, snapshot=snapshot)
                facts.update(facts_of_plan(empty))
                return _Attempt(target, empty, None)
            self._check_source(target, evolution)
            # A key is deleted in whatever partition it is.
            parts = () if self._options.only_keys else target.partition_columns
            searched = replace(target, partition_columns=parts)
            report = self._phases.report
            keys = self._engine.keys(self.source, searched, self._options, report)
            draft = plan_files(
                searched,
                keys,
                self._options.name,
                trust_partitions=self._options.trust_partitions,
                moves_rows=self._options.moves,
                snapshot=snapshot,
                index=self._index,
            )
            facts.update(facts_of_plan(draft))
        with self._phases.timed("match") as facts:
            matches = self._engine.match(self.source, keys, searched, draft, self._phases.report)
            facts.update(facts_of_matches(matches))
        if matches.moved and self._options.updates and not self._options.moves:
            raise PartitionMoveError.found(
                draft.partition_columns, matches.moved, matches.moved_samples
            )
        found = {self._root.to_user_path(path): m.row_groups for path, m in matches.files.items()}
        plan = draft.confirmed(found)
        plan = plan.deleting() if self._options.deletes else plan
        if evolution is not None:
            old = (f.file.path for f in target.footers if evolution.is_needed(f.schema))
            plan = plan.evolving(evolution, set(map(self._root.to_user_path, old)))
        return _Attempt(target, plan, matches)

    def _plan_evolution(self, target: Target) -> Evolution | None:
        """Return what the source changes about the columns of the dataset; nothing without rows."""
        if not self.source.num_rows and not self._options.deletes:
            return None
        changes = self._options.schema_changes
        return plan_schema_changes(self._stored_schema(target), target, changes)

    def _plan_condition(self, snapshot: Snapshot, strict: bool) -> _Attempt[PositionsT]:
        """Decide about every file by a condition instead of keys."""
        with self._phases.timed("plan") as facts:
            self._check_exists(snapshot)
            read = self._known.reader(partial(self._engine.footers, stage=self._stage))
            target, condition = read_selected_target(
                self._storage, snapshot, self._options.where, read, strict=strict
            )
            draft, verdicts = plan_condition(target, condition, snapshot)
            facts.update(facts_of_plan(draft))
        with self._phases.timed("match") as facts:
            matches = self._engine.select(
                self.source, target, condition, verdicts, self._phases.report
            )
            facts.update(facts_of_matches(matches))
        found = {self._root.to_user_path(path): m.row_groups for path, m in matches.files.items()}
        return _Attempt(target, draft.confirmed(found), matches)

    def _plan_duplicates(
        self, snapshot: Snapshot, wanted: DuplicateOptions, strict: bool
    ) -> _Attempt[PositionsT]:
        """Decide about every file by which of its rows have the key of another row."""
        with self._phases.timed("plan") as facts:
            self._check_exists(snapshot)
            read = self._known.reader(partial(self._engine.footers, stage=self._stage))
            target, rules = read_duplicates_target(
                self._storage, snapshot, wanted, read, strict=strict
            )
            draft = plan_duplicates(target, wanted.key_columns or (), snapshot)
            facts.update(facts_of_plan(draft))
        with self._phases.timed("match") as facts:
            matches = self._engine.duplicates(self.source, target, rules, self._phases.report)
            facts.update(facts_of_matches(matches))
        found = {self._root.to_user_path(path): m.row_groups for path, m in matches.files.items()}
        # From here on rows are known by their positions.
        return _Attempt(replace(target, key_columns=()), draft.confirmed(found), matches)

    def _check_exists(self, snapshot: Snapshot) -> None:
        check_mergeable(snapshot.listing, self._root)
        if not snapshot.listing.files and not self._options.inserts:
            strategy = self._options.strategy.value
            if self._options.duplicates_of is not None:
                strategy = "deduplicate"
            hint = (
                "check the path"
                if self._options.only_keys
                else 'use "upsert" or "insert" to create it'
            )
            raise InvalidArgumentError(
                f"{strategy} {preposition(self._options.name)} a non-existent target: "
                f"{self._root.to_user_path(self._root.path)!r} holds no data files.\n"
                f"Hint: {hint}."
            )

    def _target(self, snapshot: Snapshot, strict: bool) -> Target:
        self._check_exists(snapshot)
        schema = self.source.schema
        if self._options.only_keys:
            schema = pa.schema([schema.field(name) for name in self._options.key_columns])
        return self._read_target(snapshot, self._options.key_columns, schema, strict=strict)

    def _read_target(
        self, snapshot: Snapshot, key_columns: Sequence[str], schema: pa.Schema, *, strict: bool
    ) -> Target:
        return read_checked_target(
            self._storage,
            snapshot,
            key_columns,
            schema,
            self._options.partition_columns,
            self._known.reader(partial(self._engine.footers, stage=self._stage)),
            strict=strict,
        )

    def _check_source(self, target: Target, evolution: Evolution | None) -> None:
        """Refuse a source that does not fit the target; to delete, its keys are all it needs."""
        if not self._options.only_keys:
            guard = "only_newer" if self._options.changes is None else "sequence_by"
            check_rules(target, self._options.rules, guard)
            if evolution is None:
                check_fits(self._stored_schema(target), target)

    def _rewrite(self, matches: Matches[PositionsT]) -> None:
        """Rewrite affected files; with ``full_merge`` drop those that lose every row."""
        attempt = self._attempt
        matched = {path for path, match in matches.files.items() if match.rows}
        if not self._options.updates:
            matched = set()
        others = [
            footer.file.path
            for footer in attempt.target.footers
            if footer.rows and footer.file.path not in matched
        ]
        if self._options.deletes:
            attempt.removed = others
        elif self._options.rewrite_all and self._options.updates:
            matched.update(others)
        if matched:
            self._rewrite_matched(matches, matched)
        if attempt.target.evolution is not None:
            self._evolve_others({*matched, *attempt.removed})

    def _evolve_others(self, done: Collection[str]) -> None:
        """Change the columns of the files that are not rewritten anyway."""
        attempt = self._attempt
        assert attempt.target.evolution is not None
        others = [footer for footer in attempt.target.footers if footer.file.path not in done]
        found = evolve_files(
            self._engine,
            self._root,
            self._stage,
            attempt.target.evolution,
            others,
            self._phases.report,
        )
        for path, (file, new) in found.items():
            attempt.rewrites[path] = new
            attempt.rewritten[path] = (file, new.rows)

    def _rewrite_matched(self, matches: Matches[PositionsT], matched: Collection[str]) -> None:
        attempt = self._attempt
        paths = [f.file.path for f in attempt.target.footers if f.file.path in matched]
        staged = {path: self._stage_like(path) for path in paths}
        attempt.rewrites = self._engine.rewrite(
            self.source,
            attempt.target,
            matches,
            staged,
            replace(self._options.rules, evolution=attempt.target.evolution),
            self._phases.report,
            self._finish,
        )
        for path, done in attempt.rewrites.items():
            if done.is_new:
                attempt.rewritten[path] = (done.staged_as(staged[path]), done.rows)
            elif done.is_removed:
                attempt.removed.append(path)

    def _finish(self, file: StagedFile) -> None:
        self._stage().finish(file)

    def _stage_like(self, path: str) -> StagedFile:
        """Name a staged file for the new version of a data file, in its directory."""
        relative = self._root.relative(path)
        directory, _, basename = relative.rpartition("/")
        return self._stage().new_file(directory, plain_basename(basename), like=relative)

    def _insert(self, matches: Matches[PositionsT]) -> None:
        """Write new rows, and those that move to another partition, into new files."""
        attempt = self._attempt
        inserts = self._options.inserts and matches.unmatched > 0
        rewritten = [done for done in attempt.rewrites.values() if done.moved_rows]
        is_empty = attempt.removed and len(attempt.removed) == len(attempt.target.footers)
        with new_files(
            self._storage,
            self._stage,
            attempt.target,
            self._stored_schema(attempt.target),
            self._options.files,
            self._options.delete_when,
        ) as writer:
            if inserts or rewritten:
                attempt.inserted = self._engine.insert(
                    self.source,
                    matches,
                    writer,
                    self._phases.report,
                    rewritten=rewritten,
                    inserts=inserts,
                )
            if is_empty and not attempt.inserted:
                self._keep_last_file(writer)
        if self._options.target_file_bytes is not None:
            self._append_inserts(self._options.target_file_bytes)

    def _append_inserts(self, limit: int) -> None:
        """Append new files to rewritten ones of their directory, if both together are small."""
        attempt, size_of = self._attempt, self._root.filesystem.size
        rewritten = {path: size_of(file.path) for path, (file, _) in attempt.rewritten.items()}
        chosen: dict[str, list[NewFile]] = {}
        for new in attempt.inserted:
            directory, size = new.staged.final.rpartition("/")[0], size_of(new.staged.path)
            for path, before in rewritten.items():
                file = attempt.rewritten[path][0]
                if file.final.rpartition("/")[0] == directory and before + size <= limit:
                    rewritten[path] += size
                    chosen.setdefault(path, []).append(new)
                    break
        items: list[tuple[_Appending, int]] = []
        for path, news in chosen.items():
            parts = (attempt.rewritten[path][0].path, *(new.staged.path for new in news))
            items.append((_Appending(self._root, parts, self._stage_like(path)), rewritten[path]))
        joined = self._engine.map_items("insert", _append, items, self._stage, self._phases.report)
        for (path, news), done in zip(chosen.items(), joined, strict=True):
            if done is not None:  # else rows do not fit the types of the file
                attempt.rewritten[path] = (done.staged, done.rows)
                attempt.appended_rows += sum(new.rows for new in news)
                attempt.inserted = [new for new in attempt.inserted if new not in news]

    def _stored_schema(self, target: Target) -> pa.Schema:
        """Return the columns that rows of the dataset have."""
        if self._options.only_keys:
            parts = [pa.field(part.name, part.type) for part in target.partition_columns]
            stored = [f for f in target.types if f.name not in {part.name for part in parts}]
            return pa.schema([*stored, *parts])
        names = self._options.rules.stored(self.source.schema.names)
        return pa.schema([self.source.schema.field(name) for name in names])

    def _keep_last_file(self, writer: NewFiles) -> None:
        """Keep the last file, without rows, where no other is left: it has the schema."""
        order = [footer.file.path for footer in self._attempt.target.footers]
        last = max(self._attempt.removed, key=order.index)
        self._attempt.removed.remove(last)
        writer.write_empty(self._root.relative(last).rpartition("/")[0])
        (new,) = writer.finish()
        self._attempt.rewritten[last] = (new.staged, 0)

    def _change(self) -> FileChanges:
        attempt = self._attempt
        adds = [complete(self._root, *new) for new in attempt.rewritten.values()]
        adds += [complete(self._root, new.staged, new.rows) for new in attempt.inserted]
        # Known now: once it is published, another writer may replace a file at any time.
        attempt.sizes = {file.final: file.size for file in adds}
        footers = {footer.file.path: footer for footer in attempt.target.footers}
        replaced = {file.final: footers[old] for old, (file, _) in attempt.rewritten.items()}
        if self._index is not None:
            self._index.add(adds, replaced)
        tombstones = None if self.feed is None else self.feed.tombstones()
        return FileChanges(adds, [*attempt.rewritten, *attempt.removed], tombstones)

    def facts(self) -> CommitFacts:
        """Return what the commit record says about this merge."""
        changed = self._attempt.target.evolution
        counts = self._counts()
        return CommitFacts(
            engine=self._engine.name,
            strategy=self._options.name,
            key_columns=self._options.recorded_keys,
            counts={
                **{name: counts[name] for name in self._counted},
                **self._options.extra_counts,
            },
            started=self._started,
            source_rows=self._source_rows,
            purge=self._options.purge,
            schema=None if changed is None else recorded_schema(changed),
            details=self._details(),
        )

    def _details(self) -> dict[str, Any]:
        """Return how the work was done, as commit records keep it."""
        attempt = self._attempt
        gone = [*attempt.rewritten, *attempt.removed]
        rewrites = {path: done for path in gone if (done := attempt.rewrites.get(path)) is not None}
        evidence = Counter(f.evidence.kind for f in attempt.plan.files if f.decision == "pruned")
        recorded = RecordedRewrites()
        return {
            "files": len(attempt.plan.files),
            "pruned_by": dict(evidence),
            "seconds": {name: round(spent, 3) for name, spent in self._phases.seconds.items()},
            "rewrites": {
                # By the position of the old file among those removed, and of the new among those
                # added: rewritten files are the first of both.
                str(position): recorded.add(rewrites[path])
                for position, path in enumerate(gone[:MAX_RECORDED_REWRITES])
                if path in rewrites
            },
            "columns": recorded.columns,
        }

    @property
    def _source_rows(self) -> int:
        """Return the rows that the caller passed."""
        return self.source.num_rows if self.feed is None else self.feed.count

    @property
    def _counted(self) -> tuple[str, ...]:
        """Return the counts of the commit record."""
        rules = self._options.rules
        late = ("late",) if rules.only_newer is not None else ()
        not_found = ("not_found",) if rules.deletes or rules.delete_when is not None else ()
        moved = ("moved",) if rules.moves else ()
        return "inserted", "updated", "deleted", *moved, *late, *not_found

    def _counts(self) -> dict[str, int]:
        attempt, done = self._attempt, self._attempt.rewrites.values()
        moved = sum(one.moved_rows for one in done)
        inserted = sum(new.rows for new in attempt.inserted) + attempt.appended_rows - moved
        # The last file of a dataset may be kept without rows.
        dropped = {*attempt.removed, *attempt.rewritten} - attempt.rewrites.keys()
        deleted = sum(f.rows for f in attempt.target.footers if f.file.path in dropped)
        unmatched = attempt.matches.unmatched if attempt.matches else 0
        return {
            "before": attempt.target.rows,
            "inserted": inserted,
            "updated": sum(one.replaced_rows for one in done) + moved,
            "moved": moved,
            "deleted": deleted + sum(one.deleted_rows for one in done),
            "late": sum(one.late_rows for one in done) + (self.feed.late if self.feed else 0),
            "not_found": unmatched - inserted if self._options.updates else 0,
        }

    def result(self, outcome: CommitOutcome) -> MergeResult:
        """Return what the merge did, file by file."""
        if outcome.skipped is not None:
            return self.skip(outcome.skipped)
        counts = self._counts()
        files = self._files()
        paths = {
            f"{operation}_files": [file.path for file in files if file.operation == operation]
            for operation in ("rewritten", "inserted", "preserved")
        }
        return MergeResult(
            strategy=self._options.name,
            source_count=self._source_rows,
            target_count_before=counts["before"],
            target_count_after=counts["before"] + counts["inserted"] - counts["deleted"],
            inserted=counts["inserted"],
            updated=counts["updated"],
            deleted=counts["deleted"],
            files=files,
            late=counts["late"],
            not_found=counts["not_found"],
            moved=counts["moved"],
            metrics=self._metrics(outcome),
            origin=ResultOrigin(self._storage, self._attempt.plan),
            **paths,
        )

    def skip(self, skipped: Skipped) -> MergeResult:
        """Return the result on record of a transaction that is committed; nothing is changed.

        Counts of the source, and of inserted, updated and deleted rows are those of its commit; the
        rows and files of the target are those of now.
        """
        with self._phases.timed("plan") as observed:
            files = run_with_retries(self._storage, self._present_files, snapshot_to_read)
            observed["files"] = len(files)
        facts = skipped.facts or CommitFacts(strategy=self._options.name)
        rows = sum(file.row_count for file in files)
        return MergeResult(
            strategy=facts.strategy,
            source_count=facts.source_rows or 0,
            target_count_before=rows,
            target_count_after=rows,
            inserted=facts.counts.get("inserted", 0),
            updated=facts.counts.get("updated", 0),
            deleted=facts.counts.get("deleted", 0),
            late=facts.counts.get("late", 0),
            not_found=facts.counts.get("not_found", 0),
            moved=facts.counts.get("moved", 0),
            files=files,
            rewritten_files=[],
            inserted_files=[],
            preserved_files=[file.path for file in files],
            metrics={
                "files": {"total": len(files)},
                "seconds": dict(self._phases.seconds),
                "commit": commit_metrics(CommitOutcome(skipped.recorded.commit, None), skipped),
            },
            origin=ResultOrigin(self._storage, None),
        )

    def _present_files(self, snapshot: Snapshot) -> list[MergeFileMetadata]:
        read = self._known.reader(read_footers)
        footers = read(self._root, snapshot.listing.files, self._options.key_columns)
        return [_preserved(self._root, footer) for footer in footers]

    def _files(self) -> list[MergeFileMetadata]:
        attempt = self._attempt
        gone = {*attempt.rewritten, *attempt.removed}
        files = [self._entry(file, rows, "rewritten") for file, rows in attempt.rewritten.values()]
        files += [self._entry(new.staged, new.rows, "inserted") for new in attempt.inserted]
        footers = (f for f in attempt.target.footers if f.file.path not in gone)
        evidence = {
            file.path: file.evidence.kind
            for file in attempt.plan.files
            if file.decision == "pruned" and file.evidence.kind != "none"
        }
        kept = [_preserved(self._root, footer) for footer in footers]
        return files + [replace(file, evidence=evidence.get(file.path)) for file in kept]

    def _entry(self, file: StagedFile, rows: int, operation: Any) -> MergeFileMetadata:
        size = self._attempt.sizes[file.final]
        return MergeFileMetadata(self._published_path(file), rows, operation, size)

    def _published_path(self, file: StagedFile) -> str:
        return self._root.to_user_path(self._storage.path(file.final))

    def _metrics(self, outcome: CommitOutcome) -> dict[str, Any]:
        plan = self._attempt.plan
        decisions = Counter(file.decision for file in plan.files)
        evidence = Counter(f.evidence.kind for f in plan.files if f.decision == "pruned")
        rewrites = self._attempt.rewrites.values()
        changed = self._attempt.target.evolution
        noted = [] if changed is None else [f"column {change}" for change in changed.changes]
        return {
            "files": {"total": len(plan.files), **decisions},
            "bytes": {
                "total": sum(file.bytes for file in plan.files),
                "affected": sum(f.bytes for f in plan.files if f.decision == "affected"),
            },
            "pruned_by": dict(evidence),
            "row_groups": {
                "total": sum(file.row_group_count for file in plan.files),
                "affected": sum(len(f.row_groups) for f in plan.files if f.decision == "affected"),
                "encoded": sum(done.encoded_row_groups for done in rewrites),
                "copied": sum(done.copied_row_groups for done in rewrites),
            },
            "rewrites": {
                self._root.to_user_path(path): done.to_metrics()
                for path, done in self._attempt.rewrites.items()
            },
            "rows_unchanged": sum(done.unchanged_rows for done in rewrites),
            "files_unchanged": sum(not done.is_new for done in rewrites),
            "renamed": {
                self._root.to_user_path(old): self._published_path(file)
                for old, (file, _) in self._attempt.rewritten.items()
            },
            "seconds": dict(self._phases.seconds),
            **(self._attempt.matches.metrics if self._attempt.matches else {}),
            **({} if changed is None else {"schema": recorded_schema(changed)}),
            "commit": commit_metrics(outcome, notes=[*noted, *self._index_notes]),
        }


def _preserved(root: Root, footer: FileFooter) -> MergeFileMetadata:
    file = footer.file
    return MergeFileMetadata(root.to_user_path(file.path), footer.rows, "preserved", file.size)


# What merges, writes and inspections share


class RecordedRewrites:
    """How files were rewritten, as commit records keep it."""

    def __init__(self) -> None:
        self._positions: dict[str, int] = {}
        self._left = MAX_RECORDED_PARTS

    @property
    def columns(self) -> list[str]:
        """The columns that the entries name by their position."""
        return list(self._positions)

    def add(self, done: Rewritten) -> list[Any]:
        """Return the entry of a file; later versions may add to its end.

        Which row groups and columns were encoded is None once there are too many of both.
        """
        groups: list[int] | None = None
        columns: list[int] | None = None
        self._left -= len(done.encoded_group_numbers) + len(done.column_names)
        if self._left >= 0:
            groups = list(done.encoded_group_numbers)
            columns = [
                self._positions.setdefault(name, len(self._positions)) for name in done.column_names
            ]
        return [
            done.method,
            done.encoded_row_groups,
            done.copied_row_groups,
            done.encoded_columns,
            done.copied_columns,
            done.encoded_bytes,
            done.copied_bytes,
            done.encoded_pages,
            done.copied_pages,
            groups,
            columns,
        ]


def commit_metrics(
    outcome: CommitOutcome, skipped: Skipped | None = None, notes: Sequence[str] = ()
) -> dict[str, Any]:
    """Return what became of a commit; ``skipped`` says why there is none."""
    return {
        "number": outcome.number,
        "published": outcome.published,
        "skipped": skipped is not None,
        "retries": outcome.retries,
        "notes": [*outcome.notes, *notes, *([skipped.note] if skipped is not None else [])],
        "missing": list(outcome.missing),
        "seconds": dict(outcome.seconds),
        "window_seconds": outcome.window_seconds,
    }


@contextmanager
def lazy_staging(storage: Storage) -> Iterator[OpenStage]:
    """Give a staging directory that is created when it is first asked for."""
    with ExitStack() as stack:
        yield cache(lambda: stack.enter_context(staging(storage, waits=False)))


def run_with_retries(
    storage: Storage,
    run: Callable[[Snapshot], _T],
    snapshot_of: Callable[[Storage], Snapshot] = take_snapshot,
) -> _T:
    """Work on a snapshot; start again, within limits, if somebody removes its files meanwhile."""
    retries = RetryPolicy(storage)
    while True:
        snapshot = snapshot_of(storage)
        try:
            return run(snapshot)
        except FileNotFoundError as error:
            difference = snapshot.compare(list_snapshot(storage)[0])
            if not difference:
                raise
            retries.count(difference, error)
            storage.warn("retry", reason="files were removed meanwhile", found=str(difference))


class RetryPolicy:
    """How often a change is planned again because others committed first.

    ``MIN_ATTEMPTS`` times in any case, however long that takes; after that as long as a writer
    waits for a lock. Each time somebody else has made progress, so every merge of some seconds
    gets its turn, and none that takes minutes goes on for ever.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._attempts = 0
        self._deadline = 0.0

    def count(self, difference: Difference, cause: BaseException | None = None) -> None:
        """Count one more attempt that others made void, and raise if that was too often."""
        now = time.monotonic()
        if not self._attempts:
            self._deadline = now + self._storage.lock_timeout
        self._attempts += 1
        if self._attempts > MIN_ATTEMPTS and now > self._deadline:
            raise ConcurrentModificationError(
                f"{self._storage.root.display_path!r} is changed by others faster than this change "
                f"can be planned: {difference or 'another commit was first'}. Nothing was "
                "changed by this call.\nHint: repeat it when there are fewer writers."
            ) from cause


def complete(root: Root, file: StagedFile, rows: int) -> StagedFile:
    """Return a staged file with the rows and bytes that it must have when it is published."""
    size = root.filesystem.size(file.path) if file.size is None else file.size
    return replace(file, rows=rows, size=size)


def with_sizes(root: Root, files: Iterable[NewFile]) -> list[NewFile]:
    """Return new files with the bytes that they have."""
    return [replace(new, staged=complete(root, new.staged, new.rows)) for new in files]


@contextmanager
def after_commit(number: int) -> Iterator[None]:
    """Mark an interrupt of what follows a commit: the commit is there."""
    try:
        yield
    except BaseException as interrupt:  # keeps its type, but says what it left
        mark_committed(interrupt, number)
        raise


def facts_of_plan(plan: MergePlan) -> dict[str, Fact]:
    """Return how many files a plan has, and how many it rules out."""
    pruned = [file for file in plan.files if file.decision == "pruned"]
    return {
        "files": len(plan.files),
        "bytes": sum(file.bytes for file in plan.files),
        "files_pruned": len(pruned),
        "bytes_pruned": sum(file.bytes for file in pruned),
    }


def facts_of_matches(matches: Matches[Any]) -> dict[str, Fact]:
    """Return what was found: rows of the target, and source rows that it does not have."""
    found = [match for match in matches.files.values() if match.rows]
    return {
        "files": len(matches.files),
        "files_affected": len(found),
        "row_groups_affected": sum(len(match.row_groups) for match in found),
        "rows": sum(match.rows for match in found),
        "rows_unmatched": matches.unmatched,
    }


def facts_of_rewrites(rewrites: Iterable[Rewritten]) -> dict[str, Fact]:
    """Return how much of the files was encoded, and how much was copied as bytes."""
    new = [done for done in rewrites if done.is_new]
    return {
        "files": len(new),
        "rows": sum(done.rows for done in new),
        "row_groups_encoded": sum(done.encoded_row_groups for done in new),
        "row_groups_copied": sum(done.copied_row_groups for done in new),
        "bytes_encoded": sum(done.encoded_bytes for done in new),
        "bytes_copied": sum(done.copied_bytes for done in new),
    }


def facts_of_new_files(files: Collection[NewFile]) -> dict[str, Fact]:
    """Return how many files, rows and bytes are new."""
    return {
        "files": len(files),
        "rows": sum(new.rows for new in files),
        "bytes": sum(new.staged.size or 0 for new in files),
    }
