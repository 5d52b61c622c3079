"""Schema changes without rows: all files of a dataset get other columns, in one commit."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fsspeckit.core.changes import DELETED_AT, SEQUENCE, decode_tombstones
from fsspeckit.core.keys import key_column
from fsspeckit.core.matching import StoredKeyIndex
from fsspeckit.core.merge import MergeFileMetadata, file_lanes
from fsspeckit.core.planning import FooterCache, gc_disabled, plan_evolution
from fsspeckit.core.schema_changes import ColumnChange, SchemaRequest
from fsspeckit.datasets.pipeline.merge import (
    MAX_ATTEMPTS,
    ResultOrigin,
    RetryPolicy,
    after_commit,
    commit_metrics,
    complete,
    facts_of_plan,
    facts_of_rewrites,
    lazy_staging,
    run_with_retries,
    snapshot_to_read,
)
from fsspeckit.datasets.pipeline.options import RewriteLimits
from fsspeckit.datasets.pipeline.reading import partition_schema
from fsspeckit.datasets.pipeline.schema import (
    StoredColumn,
    evolve_files,
    recorded_schema,
    stored_columns_of,
)
from fsspeckit.datasets.pipeline.target_checks import read_checked_target
from fsspeckit.display import Card, Displayed, FileGroup, Listing, Paged, counted, shortened, size
from fsspeckit.errors import InvalidArgumentError
from fsspeckit.storage import (
    CommitFacts,
    CommitOutcome,
    FileChanges,
    TombstoneChange,
    check_mergeable,
    commit,
    read_tombstones,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsspeckit.core.planning import MergePlan, Target
    from fsspeckit.core.rewrite import Rewritten
    from fsspeckit.core.schema_changes import Evolution
    from fsspeckit.datasets.engine import Engine, OpenStage
    from fsspeckit.display import Lane, Phases, Progress
    from fsspeckit.storage import DataFile, Difference, Snapshot, StagedFile, Storage

__all__ = ["EvolveResult"]

_ASKED_SECONDS = 10 * 365 * 86400.0
"""Records that are older do not decide whether a key column may be renamed."""


@dataclass
class EvolveResult(Paged, Displayed):
    """What a schema change did; ``str()`` summarises it, rich and notebooks list the files."""

    columns: list[StoredColumn]
    """The columns that all files store now."""

    changes: list[ColumnChange]
    """What changed about them; empty if nothing had to be done."""

    files: list[MergeFileMetadata]
    """Every rewritten and preserved file."""

    rewritten_files: list[str]
    """The new paths of the files that were rewritten."""

    preserved_files: list[str]
    """Files that had the columns already, and stayed as they were."""

    total_rows: int
    """The rows of the dataset, which stay the same."""

    metrics: dict[str, Any] = field(default_factory=dict)
    """Seconds of each phase, how each file was rewritten, and what became of the commit."""

    origin: Any = field(default=None, repr=False, compare=False)
    """The dataset, for its page; None for a copy from another process."""

    def _lanes(self) -> tuple[Lane, ...]:
        return file_lanes(self.files)

    def _card(self) -> Card:
        short = shortened(file.path for file in self.files)

        def line(file: MergeFileMetadata) -> tuple[str, ...]:
            return short(file.path), file.operation, f"{file.row_count:,}", size(file.size_bytes)

        changes = tuple(f"column {change}" for change in self.changes)
        groups = (("rewritten", "changed"), ("preserved", "kept"))
        return Card(
            f"evolve: {counted(len(self.changes), 'change')}; "
            f"{counted(self.total_rows, 'row')} as before",
            tuple(self._group(name, tone) for name, tone in groups),
            Listing.of(("file", "operation", "rows", "size"), self.files, line),
            (*changes, *self.metrics.get("commit", {}).get("notes", ())),
        )

    def _group(self, operation: str, tone: Any) -> FileGroup:
        sizes = [file.size_bytes or 0 for file in self.files if file.operation == operation]
        return FileGroup(operation, tone, len(sizes), sum(sizes))


@dataclass(frozen=True)
class EvolveOptions:
    """Everything that a caller decides about a schema change."""

    request: SchemaRequest
    limits: RewriteLimits
    progress: Progress | bool | None = None

    @classmethod
    def of(
        cls,
        *,
        max_rewrite_fraction: float | None = None,
        max_rewrite_bytes: int | None = None,
        progress: Progress | bool | None = None,
        **request: Any,
    ) -> EvolveOptions:
        """Make options of what a caller may pass to ``evolve``."""
        limits = RewriteLimits(max_rewrite_fraction, max_rewrite_bytes)
        return cls(SchemaRequest.of(**request), limits, progress)


def run_evolve(
    engine: Engine[Any, Any, Any], storage: Storage, options: EvolveOptions
) -> EvolveResult:
    """Change the columns of a dataset."""
    observed = storage.observe("evolve", engine=engine.name, progress=options.progress)
    with observed as phases, lazy_staging(storage) as stage:
        evolve = _Evolve(engine, storage, stage, options, phases)
        return evolve.result(run_with_retries(storage, evolve.run))


def plan_evolve(
    engine: Engine[Any, Any, Any], storage: Storage, options: EvolveOptions
) -> MergePlan:
    """Return what a schema change would do; nothing is written."""
    observed = storage.observe("plan_evolve", engine=engine.name, progress=options.progress)
    with observed as phases, lazy_staging(storage) as stage:
        evolve = _Evolve(engine, storage, stage, options, phases)
        return run_with_retries(storage, evolve.plan, snapshot_to_read)


class _Evolve:
    """One schema change; attempts are repeated if others were faster."""

    def __init__(
        self,
        engine: Engine[Any, Any, Any],
        storage: Storage,
        stage: OpenStage,
        options: EvolveOptions,
        phases: Phases,
    ) -> None:
        self._engine = engine
        self._storage = storage
        self._root = storage.root
        self._stage = stage
        self._options = options
        self._phases = phases
        self._started = time.time()
        self._retries = RetryPolicy(storage)
        self._known = FooterCache(storage)
        self._index: StoredKeyIndex | None = None
        self._notes: list[str] = []
        self._target: Target
        self._evolution: Evolution
        self._done: dict[str, tuple[DataFile, pa.Schema, StagedFile, Rewritten]] = {}
        self._sizes: dict[str, int | None] = {}

    @gc_disabled()
    def run(self, snapshot: Snapshot) -> CommitOutcome:
        """Plan, write and commit; again and again if others commit first."""
        changes = self._prepare(snapshot)
        if changes.is_empty:
            return CommitOutcome(snapshot.number, None)
        with self._phases.timed("commit"):
            outcome = commit(
                self._storage,
                snapshot,
                self._stage(),
                changes,
                self._facts,
                replan=self._again,
                retries=MAX_ATTEMPTS,
            )
            with after_commit(outcome.number):
                self._known.save()
                self._update_index(outcome.number)
        return outcome

    def _again(self, snapshot: Snapshot, difference: Difference) -> FileChanges:
        self._retries.count(difference)
        return self._prepare(snapshot)

    def plan(self, snapshot: Snapshot) -> MergePlan:
        """Decide which files must be rewritten."""
        with self._phases.timed("plan") as facts:
            root = self._root
            check_mergeable(snapshot.listing, root)
            if not snapshot.listing.files:
                raise InvalidArgumentError(
                    f"evolve of a non-existent target: {root.to_user_path(root.path)!r} holds no "
                    "data files.\nHint: check the path."
                )
            parts = partition_schema([root.relative(f.path) for f in snapshot.listing.files])
            read = self._known.reader(partial(self._engine.footers, stage=self._stage))
            self._target = read_checked_target(self._storage, snapshot, (), parts, None, read)
            names = [part.name for part in self._target.partition_columns]
            self._evolution = self._options.request.plan(self._target.schemas, names)
            plan = plan_evolution(self._target, self._evolution, snapshot)
            facts.update(facts_of_plan(plan))
            return plan

    def _prepare(self, snapshot: Snapshot) -> FileChanges:
        plan = self.plan(snapshot)
        self._options.limits.check(plan)
        tombstones = self._check_tombstones()
        with self._phases.timed("rewrite") as facts:
            self._rewrite()
            facts.update(facts_of_rewrites(done for *_, done in self._done.values()))
        written = [(staged, done.rows) for _, _, staged, done in self._done.values()]
        adds = [complete(self._root, *new) for new in written]
        self._sizes = {file.final: file.size for file in adds}
        if adds:
            self._open_index(adds)
        return FileChanges(adds, list(self._done), tombstones)

    def _rewrite(self) -> None:
        """Rewrite files, except those that an earlier attempt has rewritten in the same way."""
        schema = self._evolution.schema
        known = {
            footer.file.path: self._done[footer.file.path]
            for footer in self._target.footers
            if footer.file.path in self._done
            and self._done[footer.file.path][0].is_same_file(footer.file)
            and self._done[footer.file.path][1].equals(schema)
        }
        footers = {f.file.path: f for f in self._target.footers if f.file.path not in known}
        new = evolve_files(
            self._engine,
            self._root,
            self._stage,
            self._evolution,
            list(footers.values()),
            self._phases.report,
        )
        self._done = known | {
            path: (footers[path].file, schema, file, done) for path, (file, done) in new.items()
        }

    def _check_tombstones(self) -> TombstoneChange | None:
        """Refuse to rename or drop a key of deletions that are remembered: it would forget them."""
        gone = {*self._options.request.drop, *self._evolution.old_names.values()}
        if not gone:
            return None
        base, tables = read_tombstones(self._storage, _ASKED_SECONDS)
        for data in tables:
            names = [] if data is None else decode_tombstones(data).column_names
            keys = [name for name in names if name not in (SEQUENCE, DELETED_AT)]
            if used := gone.intersection(keys):
                raise InvalidArgumentError(
                    f"column {sorted(used)[0]!r} is a key of a change feed, whose deletions are "
                    "remembered by it; without them a late change could bring a deleted row back."
                    "\nHint: if none can be late, call apply_changes once with "
                    "tombstone_retention=timedelta(0), which forgets all deleted keys."
                )
        return TombstoneChange(base, base.files, base.seconds)

    def _facts(self) -> CommitFacts:
        return CommitFacts(
            engine=self._engine.name,
            strategy="evolve",
            started=self._started,
            schema=recorded_schema(self._evolution),
        )

    def _open_index(self, adds: Sequence[StagedFile]) -> None:
        """Open the key index, if there is one: its keys may have other types or names now."""
        old = StoredKeyIndex(self._storage)
        old.load_for_write(self._target, pa.schema([]))
        self._index = None
        if not old.names:
            return
        self._notes = []
        new_names = {before: after for after, before in self._evolution.old_names.items()}
        names = [new_names.get(name, name) for name in old.names]
        parts = {part.name: part for part in self._target.partition_columns}
        known = {*self._evolution.schema.names, *parts}
        # Of a dropped column another one may have the name now.
        dropped = {*self._options.request.drop}.intersection(old.names)
        if dropped or not known.issuperset(names):
            self._index = StoredKeyIndex(self._storage, wanted=False)
            self._notes = [f"the key index of {old.names!r} was removed with its column."]
            return
        schema = self._evolution.schema
        columns = [parts.get(n) or key_column(n, schema.field(n).type) for n in names]
        # An index of other names would not be kept: it is made again.
        self._index = StoredKeyIndex(self._storage, wanted=True if names != old.names else None)
        self._index.load(columns)
        footers = {footer.file.path: footer for footer in self._target.footers}
        self._index.add(
            adds, {new.final: footers[old] for old, (_, _, new, _) in self._done.items()}
        )

    def _update_index(self, number: int) -> None:
        if self._index is not None:
            self._notes += self._index.update(self._target, {*self._done}, self._started, number)

    def result(self, outcome: CommitOutcome) -> EvolveResult:
        """Return what was done, file by file."""
        root = self._root
        new = [
            MergeFileMetadata(
                root.to_user_path(self._storage.path(file.final)),
                done.rows,
                "rewritten",
                self._sizes[file.final],
            )
            for _, _, file, done in self._done.values()
        ]
        kept = [
            MergeFileMetadata(root.to_user_path(f.file.path), f.rows, "preserved", f.file.size)
            for f in self._target.footers
            if f.file.path not in self._done
        ]
        return EvolveResult(
            stored_columns_of(self._evolution),
            list(self._evolution.changes),
            new + kept,
            [file.path for file in new],
            [file.path for file in kept],
            self._target.rows,
            {
                "rewrites": {
                    root.to_user_path(path): done.to_metrics()
                    for path, (_, _, _, done) in self._done.items()
                },
                "seconds": dict(self._phases.seconds),
                "commit": commit_metrics(outcome, notes=self._notes),
            },
            ResultOrigin(self._storage, None),
        )
