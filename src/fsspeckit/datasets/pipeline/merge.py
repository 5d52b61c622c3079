"""The way of a merge: stage, keys, plan, match, rewrite, insert, commit, result.

Every engine goes this way. What is decided is decided here or in the core; an engine is asked
about data only, and storage alone publishes.

Attempts: work on a snapshot of a dataset that others may change meanwhile.

Phases: what a call tells about its progress, and how long each part of it took.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from fsspeckit.core.keys import check_columns, no_keys
from fsspeckit.core.merge import MergeFileMetadata, MergeResult
from fsspeckit.core.planning import KnownFooters, plan_files
from fsspeckit.datasets.pipeline.request import PlannedMerge, planned_merge
from fsspeckit.datasets.pipeline.target_checks import (
    check_fits,
    new_files,
    plain_basename,
    read_any_target,
    read_whole_target,
)
from fsspeckit.display import reporting
from fsspeckit.errors import (
    ConcurrentModificationError,
    InvalidArgumentError,
    PartitionMoveError,
    StalePlanError,
)
from fsspeckit.storage import (
    Change,
    CommitFacts,
    CommitOutcome,
    check_mergeable,
    commit,
    list_snapshot,
    staging,
    take_snapshot,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fsspeckit.core.keys import SourceKeys
    from fsspeckit.core.planning import FileFooter, MergePlan, Target
    from fsspeckit.core.rewrite import NewFile, NewFiles, Rewritten
    from fsspeckit.datasets.engine import Engine, Matches, OpenStage, Source
    from fsspeckit.datasets.pipeline.request import MergeRequest, Progress
    from fsspeckit.storage import Difference, Root, Snapshot, StagedFile, Storage

__all__ = [
    "MAX_ATTEMPTS",
    "Phases",
    "RetryPolicy",
    "complete",
    "lazy_staging",
    "plan_merge",
    "retried",
    "run_merge",
    "run_plan",
]


# --- Attempts: work on a snapshot of a dataset that others may change meanwhile ---

MIN_ATTEMPTS = 3
MAX_ATTEMPTS = 1000
"""No change is planned more often than this, whatever the time."""

_T = TypeVar("_T")


@contextmanager
def lazy_staging(storage: Storage) -> Iterator[OpenStage]:
    """A staging directory that is created when it is first asked for."""
    with ExitStack() as stack:
        yield cache(lambda: stack.enter_context(staging(storage)))


def retried(
    storage: Storage,
    run: Callable[[Snapshot], _T],
    snapshot_of: Callable[[Storage], Snapshot] = take_snapshot,
) -> _T:
    """Work on a snapshot; start again where somebody removes its files meanwhile.

    Raises:
        ConcurrentModificationError: If that happens too often.
    """
    patience = RetryPolicy(storage)
    while True:
        snapshot = snapshot_of(storage)
        try:
            return run(snapshot)
        except FileNotFoundError as error:
            difference = snapshot.compare(list_snapshot(storage)[0])
            if not difference:
                raise
            patience.spend(difference, error)


class RetryPolicy:
    """How often a change is planned again because others were first.

    A few times in any case, however long that takes; more often while the time is not over that a
    writer waits for a lock. Every time somebody else has made progress, so among merges of a few
    seconds each one has its turn, and none that takes minutes goes on for ever.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._spent = 0
        self._deadline = 0.0

    def spend(self, difference: Difference, cause: BaseException | None = None) -> None:
        """Take note that a change has to be planned again.

        Raises:
            ConcurrentModificationError: If that was too often.
        """
        now = time.monotonic()
        if not self._spent:
            self._deadline = now + self._storage.lock_timeout
        self._spent += 1
        if self._spent > MIN_ATTEMPTS and now > self._deadline:
            raise ConcurrentModificationError(
                f"{self._storage.root.display_path!r} is changed by others faster than this change "
                f"can be planned: {difference or 'another commit was first'}. Nothing was "
                "changed by "
                "this call.\nHint: repeat it when there are fewer writers."
            ) from cause


def complete(root: Root, file: StagedFile, rows: int) -> StagedFile:
    """A staged file with what it must be when it is published."""
    return replace(file, rows=rows, size=root.filesystem.size(file.path))


# --- Phases: what a call tells about its progress, and how long each part of it took ---


class Phases:
    """The phases of one call, which is told about the same way by every engine.

    Args:
        tell: Called with phase, done and total: at the beginning of a phase with 0 of 1, at its end
            with 1 of 1, and by engines in between.
    """

    def __init__(self, tell: Progress) -> None:
        self.tell = tell
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Measure a phase and tell about its start and end; one that fails has no end."""
        self.tell(phase, 0, 1)
        start = time.perf_counter()
        yield
        spent = time.perf_counter() - start
        self.seconds[phase] = self.seconds.get(phase, 0.0) + spent
        self.tell(phase, 1, 1)


# --- The way of a merge: stage, keys, plan, match, rewrite, insert, commit, result ---


def run_merge(engine: Engine, storage: Storage, data: Any, request: MergeRequest) -> MergeResult:
    """Merge data into a dataset."""
    with reporting(request.progress) as tell, lazy_staging(storage) as stage:
        merge = _Merge(engine, storage, stage, request, tell)
        merge.take(data)
        return merge.result(retried(storage, merge.run))


def plan_merge(engine: Engine, storage: Storage, data: Any, request: MergeRequest) -> MergePlan:
    """Tell what a merge would do; nothing of the dataset is written.

    The plan keeps the source as it was read, see :mod:`fsspeckit.datasets.pipeline.request`.
    """
    with reporting(request.progress) as tell, ExitStack() as stack:
        stage = stack.enter_context(lazy_staging(storage))
        merge = _Merge(engine, storage, stage, replace(request, only_plans=True), tell)
        merge.take(data)
        draft = partial(merge.planned, strict=False)
        made = retried(storage, draft, _snapshot_to_read).plan
        kept = replace(request, progress=None)
        origin = PlannedMerge(
            engine.name, storage, kept, merge.source, stage, stack.pop_all().close
        )
        return replace(made, origin=origin)


def run_plan(engine: Engine, plan: MergePlan, progress: Progress | bool | None) -> MergeResult:
    """Execute a plan on the files it was made for, or change nothing."""
    kept = planned_merge(plan, engine.name)
    request = replace(kept.request, progress=progress)
    with reporting(progress) as tell:
        # The staging directory of the plan: an engine writes new files beside the staged source.
        merge = _Merge(engine, kept.storage, kept.stage, request, tell, reviewed=plan)
        merge.source = kept.source
        result = merge.result(_once(kept.storage, plan, merge.run))
    kept.release()
    return result


def _once(
    storage: Storage, plan: MergePlan, run: Callable[[Snapshot], CommitOutcome]
) -> CommitOutcome:
    """Work on the files of a plan as long as nobody changes them.

    Raises:
        StalePlanError: If they have changed since, or change meanwhile.
    """
    assert plan.snapshot is not None
    shown = storage.root.display_path
    snapshot = take_snapshot(storage)
    if difference := plan.snapshot.compare(snapshot):
        raise StalePlanError.changed(shown, difference)
    try:
        return run(snapshot)
    except FileNotFoundError as error:
        if difference := snapshot.compare(list_snapshot(storage)[0]):
            raise StalePlanError.changed(shown, difference) from error
        raise


def _snapshot_to_read(storage: Storage) -> Snapshot:
    """The state of a dataset; only a commit that is not complete yet makes this write."""
    snapshot, pending = list_snapshot(storage)
    return take_snapshot(storage) if pending else snapshot


def _check_reviewed(reviewed: MergePlan, again: MergePlan) -> None:
    """Refuse to do anything else than a person has looked at.

    Raises:
        StalePlanError: Naming the files about which the plans differ.
    """
    seen = {file.path: file.decision for file in reviewed.files}
    now = {file.path: file.decision for file in again.files}
    if seen != now:
        odd = [path for path in sorted(seen | now) if seen.get(path) != now.get(path)]
        raise StalePlanError.decided_otherwise(again.path, odd)


@dataclass
class _Planned:
    """A merge that is decided but not written."""

    target: Target
    keys: SourceKeys | None
    plan: MergePlan
    matches: Matches | None


@dataclass
class _Written:
    """What an attempt has put into staging."""

    planned: _Planned
    rewritten: dict[str, tuple[StagedFile, int]] = field(default_factory=dict)
    """By canonical path: the new file and its rows."""

    removed: list[str] = field(default_factory=list)
    """Files that lose all their rows."""

    inserted: list[NewFile] = field(default_factory=list)
    sizes: dict[str, int | None] = field(default_factory=dict)
    """By path below the root: the bytes of each new file."""

    rewrites: dict[str, Rewritten] = field(default_factory=dict)
    """By canonical path: what became of each affected file."""


class _Merge:
    """One merge, from the source to the result; attempts are repeated if others were faster."""

    def __init__(
        self,
        engine: Engine,
        storage: Storage,
        stage: OpenStage,
        request: MergeRequest,
        tell: Progress,
        reviewed: MergePlan | None = None,
    ) -> None:
        self._engine = engine
        self._storage = storage
        self._root = storage.root
        self._stage = stage
        self._request = request
        self._phases = Phases(tell)
        # The plan that the merge must keep to; None for one that may plan as often as it needs.
        self._reviewed = reviewed
        self._started = time.time()
        self._patience = RetryPolicy(storage)
        self._known = KnownFooters(storage)
        self.source: Source
        self._written: _Written

    def take(self, data: Any) -> None:
        """Stage the source and check what can be checked without the target."""
        with self._phases.timed("stage"):
            self.source = self._engine.take(
                data, self._stage, self._request.schema, keep=self._request.only_plans
            )
        available = self.source.schema.names
        check_columns("key_columns", self._request.key_columns, available)
        if self._request.order_by:
            check_columns("order_by", self._request.order_by, available)
        if self._request.deletes and not self.source.num_rows and not self._request.allow_empty:
            raise InvalidArgumentError(
                "full_merge with an empty source would delete every row of the target.\n"
                "Hint: pass allow_empty=True if that is what you want."
            )

    def run(self, snapshot: Snapshot) -> CommitOutcome:
        """Plan, write and commit; again and again if others commit first."""
        change = self.attempt(snapshot)
        if not change.adds and not change.removes:
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
            )
            self._known.keep()
        return outcome

    def _again(self, snapshot: Snapshot, difference: Difference) -> Change:
        if self._reviewed is not None:
            raise StalePlanError.changed(self._root.display_path, difference)
        self._patience.spend(difference)
        return self.attempt(snapshot)

    def attempt(self, snapshot: Snapshot) -> Change:
        """Plan on a snapshot and write what the plan needs into staging."""
        planned = self.planned(snapshot)
        if self._reviewed is not None:
            _check_reviewed(self._reviewed, planned.plan)
        if self._request.updates:
            self._request.limits.check(planned.plan)
        self._written = _Written(planned)
        if planned.matches is not None:
            with self._phases.timed("rewrite"):
                self._rewrite(planned)
            with self._phases.timed("insert"):
                self._insert(planned)
        return self._change()

    def planned(self, snapshot: Snapshot, *, strict: bool = True) -> _Planned:
        """Decide about every file, key scan included.

        Args:
            snapshot: The state of the dataset.
            strict: Refuse files that a merge could not rewrite; else they are affected.
        """
        with self._phases.timed("plan"):
            target = self._target(snapshot, strict)
            if not self.source.num_rows and not self._request.deletes:
                return _Planned(target, None, self._empty_plan(target, snapshot), None)
            check_fits(self.source.schema, target)
            keys = self._engine.keys(self.source, target, self._request)
            draft = plan_files(
                target,
                keys,
                self._request.strategy.value,
                trust_partitions=self._request.trust_partitions,
                snapshot=snapshot,
            )
        with self._phases.timed("match"):
            matches = self._engine.match(self.source, keys, target, draft, self._phases.tell)
        if matches.moved and self._request.updates:
            raise PartitionMoveError.found(
                draft.partition_columns, matches.moved, matches.moved_samples
            )
        found = {self._root.to_user_path(path): m.row_groups for path, m in matches.files.items()}
        plan = draft.confirmed(found)
        return _Planned(target, keys, plan.deleting() if self._request.deletes else plan, matches)

    def _empty_plan(self, target: Target, snapshot: Snapshot) -> MergePlan:
        strategy = self._request.strategy.value
        return plan_files(target, no_keys(target), strategy, snapshot=snapshot)

    def _target(self, snapshot: Snapshot, strict: bool) -> Target:
        check_mergeable(snapshot.listing, self._root)
        if not snapshot.listing.files and not self._request.inserts:
            raise InvalidArgumentError(
                f"{self._request.strategy.value} into a non-existent target: "
                f"{self._root.to_user_path(self._root.path)!r} holds no data files.\n"
                'Hint: use "upsert" or "insert" to create it.'
            )
        read = read_whole_target if strict else read_any_target
        return read(
            self._storage,
            snapshot,
            self._request.key_columns,
            self.source.schema,
            self._request.partition_columns,
            self._known.reader(partial(self._engine.footers, stage=self._stage)),
        )

    def _rewrite(self, planned: _Planned) -> None:
        """Write affected files anew; with ``full_merge`` drop those that lose every row."""
        assert planned.matches is not None
        if not self._request.updates:
            return
        found = planned.matches.files
        every = self._request.rewrite_all and not self._request.deletes
        affected = [
            footer
            for footer in planned.target.footers
            if self._rows(found, footer) or (every and footer.rows)
        ]
        if self._request.deletes:
            self._written.removed = [
                footer.file.path
                for footer in planned.target.footers
                if footer.rows and not self._rows(found, footer)
            ]
        staged = {footer.file.path: self._staged_like(footer) for footer in affected}
        self._written.rewrites = self._engine.rewrite(
            self.source,
            planned.target,
            planned.matches,
            staged,
            not self._request.deletes,
            self._phases.tell,
            self._request.rewrite_all,
        )
        for path, done in self._written.rewrites.items():
            if done.is_new:
                file = replace(staged[path], path=done.path or staged[path].path)
                self._written.rewritten[path] = (file, done.rows)

    @staticmethod
    def _rows(found: Any, footer: FileFooter) -> int:
        match = found.get(footer.file.path)
        return 0 if match is None else match.rows

    def _staged_like(self, footer: FileFooter) -> StagedFile:
        """A staged file for the new version of a data file, in its directory."""
        relative = self._root.relative(footer.file.path)
        directory, _, basename = relative.rpartition("/")
        return self._stage().new_file(directory, plain_basename(basename), like=relative)

    def _insert(self, planned: _Planned) -> None:
        assert planned.matches is not None
        request = self._request
        with new_files(
            self._storage, self._stage, planned.target, self.source.schema, request.files
        ) as writer:
            if request.inserts and planned.matches.unmatched:
                self._written.inserted = self._engine.insert(self.source, planned.matches, writer)
            elif self._would_be_empty(planned.target):
                self._keep_last_file(writer)

    def _keep_last_file(self, writer: NewFiles) -> None:
        """Let the last file stay, without rows: it keeps the schema."""
        last = self._written.removed.pop()
        writer.write_empty(self._root.relative(last).rpartition("/")[0])
        (new,) = writer.finish()
        self._written.rewritten[last] = (new.staged, 0)

    def _would_be_empty(self, target: Target) -> bool:
        """Whether no file would be left."""
        removed = len(self._written.removed)
        return self._request.deletes and removed > 0 and removed == len(target.footers)

    def _change(self) -> Change:
        written = self._written
        adds = [complete(self._root, *new) for new in written.rewritten.values()]
        adds += [complete(self._root, new.staged, new.rows) for new in written.inserted]
        # Known now: once it is published, another writer may replace a file at any time.
        written.sizes = {file.final: file.size for file in adds}
        return Change(adds, [*written.rewritten, *written.removed])

    def facts(self) -> CommitFacts:
        """What the commit record says about this merge."""
        counts = self._counts()
        return CommitFacts(
            engine=self._engine.name,
            strategy=self._request.strategy.value,
            key_columns=self._request.key_columns,
            counts={name: counts[name] for name in ("inserted", "updated", "deleted")},
            started=self._started,
        )

    def _counts(self) -> dict[str, int]:
        planned = self._written.planned
        matched = planned.matches.files.values() if planned.matches else ()
        updated = sum(match.rows for match in matched) if self._request.updates else 0
        before = planned.target.rows
        return {
            "before": before,
            "inserted": sum(new.rows for new in self._written.inserted),
            "updated": updated,
            "deleted": before - updated if self._request.deletes and planned.matches else 0,
        }

    def result(self, outcome: CommitOutcome) -> MergeResult:
        """What the merge did, file by file."""
        counts = self._counts()
        files = self._files()
        by_operation: dict[str, list[str]] = {"rewritten": [], "inserted": [], "preserved": []}
        for file in files:
            by_operation[file.operation].append(file.path)
        return MergeResult(
            strategy=self._request.strategy.value,
            source_count=self.source.num_rows,
            target_count_before=counts["before"],
            target_count_after=counts["before"] + counts["inserted"] - counts["deleted"],
            inserted=counts["inserted"],
            updated=counts["updated"],
            deleted=counts["deleted"],
            files=files,
            rewritten_files=by_operation["rewritten"],
            inserted_files=by_operation["inserted"],
            preserved_files=by_operation["preserved"],
            metrics=self._metrics(outcome),
        )

    def _files(self) -> list[MergeFileMetadata]:
        written = self._written
        gone = {*written.rewritten, *written.removed}
        files = [self._entry(file, rows, "rewritten") for file, rows in written.rewritten.values()]
        files += [self._entry(new.staged, new.rows, "inserted") for new in written.inserted]
        files += [
            MergeFileMetadata(
                self._root.to_user_path(footer.file.path),
                footer.rows,
                "preserved",
                footer.file.size,
            )
            for footer in written.planned.target.footers
            if footer.file.path not in gone
        ]
        return files

    def _entry(self, file: StagedFile, rows: int, operation: Any) -> MergeFileMetadata:
        path = self._root.to_user_path(self._storage.path(file.final))
        return MergeFileMetadata(path, rows, operation, self._written.sizes[file.final])

    def _metrics(self, outcome: CommitOutcome) -> dict[str, Any]:
        plan, matches = self._written.planned.plan, self._written.planned.matches
        decisions = Counter(file.decision for file in plan.files)
        evidence = Counter(f.evidence.kind for f in plan.files if f.decision == "pruned")
        rewrites = self._written.rewrites.values()
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
                self._root.to_user_path(path): done.shown()
                for path, done in self._written.rewrites.items()
            },
            "rows_unchanged": sum(done.unchanged_rows for done in rewrites),
            "files_unchanged": sum(not done.is_new for done in rewrites),
            "renamed": {
                self._root.to_user_path(old): self._root.to_user_path(
                    self._storage.path(file.final)
                )
                for old, (file, _) in self._written.rewritten.items()
            },
            "seconds": dict(self._phases.seconds),
            **(matches.metrics if matches else {}),
            "commit": {
                "number": outcome.number,
                "published": outcome.published,
                "retries": outcome.retries,
                "notes": list(outcome.notes),
                "missing": list(outcome.missing),
                "seconds": dict(outcome.seconds),
            },
        }
