"""Repartitioning: all rows in new files, below other partition columns, in one commit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fsspeckit.core.arrow_compat import has_instants, int96_unit
from fsspeckit.core.keys import check_columns, key_column
from fsspeckit.core.matching import StoredKeyIndex
from fsspeckit.datasets.pipeline.merge import (
    MAX_ATTEMPTS,
    ResultOrigin,
    RetryPolicy,
    after_commit,
    commit_metrics,
    facts_of_new_files,
    lazy_staging,
    run_with_retries,
    with_sizes,
)
from fsspeckit.datasets.pipeline.selection import read_columns_of
from fsspeckit.datasets.pipeline.target_checks import new_files, read_checked_target
from fsspeckit.datasets.pipeline.write import FileWriteMetadata, written_file
from fsspeckit.display import Card, Displayed, FileGroup, Listing, Paged, counted, shortened, size
from fsspeckit.errors import FsspeckitError, InvalidArgumentError, SchemaMismatchError
from fsspeckit.storage import (
    CommitFacts,
    CommitOutcome,
    FileChanges,
    check_mergeable,
    commit,
    list_snapshot,
    take_snapshot,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsspeckit.core.planning import Target
    from fsspeckit.core.rewrite import NewFile
    from fsspeckit.datasets.engine import Engine, OpenStage
    from fsspeckit.datasets.pipeline.options import RepartitionOptions
    from fsspeckit.display import Phases
    from fsspeckit.storage import Difference, Root, Snapshot, StagedFile, Storage

__all__ = ["RepartitionResult", "run_repartition"]


@dataclass
class RepartitionResult(Paged, Displayed):
    """What repartitioning did, or would do; ``str()`` summarises it."""

    path: str
    """The dataset, as the caller spelled it."""

    partition_columns_before: list[str]
    """The partition columns that it had."""

    partition_columns: list[str]
    """The partition columns that it has now."""

    total_rows: int
    """Its rows."""

    files: list[FileWriteMetadata]
    """Every new file; none if nothing was written."""

    replaced_files: int
    """How many files they replace."""

    replaced_bytes: int
    """The size of these."""

    dry_run: bool = False
    """Whether nothing was written because the caller asked for that."""

    metrics: dict[str, Any] = field(default_factory=dict)
    """``commit``: its number, how it was published, and what to know about it; ``seconds``."""

    origin: Any = field(default=None, repr=False, compare=False)
    """The dataset, for its page; None for a copy from another process."""

    def _card(self) -> Card:
        short = shortened(file.path for file in self.files)

        def line(file: FileWriteMetadata) -> tuple[str, ...]:
            parts = ", ".join(f"{name}={value}" for name, value in file.partition_values.items())
            return short(file.path), parts, f"{file.row_count:,}", size(file.size_bytes)

        before, after = (
            ", ".join(names) or "no partitions"
            for names in (self.partition_columns_before, self.partition_columns)
        )
        written = sum(file.size_bytes or 0 for file in self.files)
        notes = ("dry run: nothing was written",) if self.dry_run else ()
        groups = (
            FileGroup("written", "added", len(self.files), written),
            FileGroup("replaced", "removed", self.replaced_files, self.replaced_bytes),
        )
        return Card(
            f"repartition of {counted(self.total_rows, 'row')} from {before} to {after}",
            tuple(group for group in groups if group.count),
            Listing.of(("file", "partition", "rows", "size"), self.files, line),
            (*notes, *self.metrics.get("commit", {}).get("notes", ())),
        )


def run_repartition(
    engine: Engine[Any, Any, Any], storage: Storage, options: RepartitionOptions
) -> RepartitionResult:
    """Write every row of a dataset below other partition columns."""
    name = "plan_repartition" if options.dry_run else "repartition"
    observed = storage.observe(name, engine=engine.name, progress=options.progress)
    with observed as phases, lazy_staging(storage) as stage:
        work = _Repartition(engine, storage, stage, options, phases)
        if options.dry_run:
            return run_with_retries(storage, work.preview, lambda of: list_snapshot(of)[0])
        return run_with_retries(storage, work.run, take_snapshot)


class _Repartition:
    """One call; it starts again if others change the dataset meanwhile."""

    def __init__(
        self,
        engine: Engine[Any, Any, Any],
        storage: Storage,
        stage: OpenStage,
        options: RepartitionOptions,
        phases: Phases,
    ) -> None:
        self._engine = engine
        self._storage = storage
        self._root: Root = storage.root
        self._stage = stage
        self._options = options
        self._phases = phases
        self._retries = RetryPolicy(storage)
        self._target: Target
        self._schema: pa.Schema
        self._before: list[str]
        self._written: list[NewFile]
        self._adds: list[StagedFile]
        self._index: StoredKeyIndex

    def preview(self, snapshot: Snapshot) -> RepartitionResult:
        """Check what can be checked without writing."""
        self._plan(snapshot)
        self._written, self._adds = [], []
        return replace(self._result(snapshot.number), dry_run=True)

    def run(self, snapshot: Snapshot) -> RepartitionResult:
        """Write the files and commit them."""
        changes = self._prepare(snapshot)
        if changes.is_empty:
            return self._result(snapshot.number)
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
            gone = [footer.file.path for footer in self._target.footers]
            with after_commit(outcome.number):
                self._index.update(self._target, gone, begun=0.0, number=outcome.number)
        return self._result(outcome.number, outcome)

    def _again(self, current: Snapshot, difference: Difference) -> FileChanges:
        self._retries.count(difference)
        return self._prepare(current)

    def _plan(self, snapshot: Snapshot) -> None:
        """Read the footers, and decide about the columns of new files."""
        with self._phases.timed("plan") as facts:
            self._check_exists(snapshot)
            read = partial(self._engine.footers, stage=self._stage)
            found = read_columns_of(self._root, snapshot.listing.files, read)
            wanted = self._options.schema
            _check_only_in_paths(wanted, found.only_in_paths)
            parts, every = _typed(found.partitions, wanted), _typed(found.every, wanted)
            found.check_everywhere(self._root, every.names, "other files have")
            names = self._options.partition_columns
            if names:
                check_columns("partition_by", names, every.names)
            target = read_checked_target(self._storage, snapshot, (), parts, None, read)
            self._before = [part.name for part in target.partition_columns]
            new = tuple(key_column(name, every.field(name).type) for name in names)
            self._target, self._schema = replace(target, partition_columns=new), every
            self._check_nanoseconds()
            facts["files"] = len(target.footers)
            facts["bytes"] = sum(footer.file.size for footer in target.footers)

    def _prepare(self, snapshot: Snapshot) -> FileChanges:
        """Write all rows of a snapshot into new files."""
        self._plan(snapshot)
        target, names = self._target, list(self._options.partition_columns)
        self._written, self._adds = [], []
        if names == self._before:
            return FileChanges()
        rows = self._engine.target_rows(target, self._schema, self._stage)
        writing = new_files(
            self._storage, self._stage, target, self._schema, self._options.files, moves=True
        )
        with self._phases.timed("insert") as facts, writing as writer:
            if target.rows:
                written = self._engine.insert(rows, None, writer, self._phases.report)
            else:
                writer.write_empty()
                written = writer.finish()
            written = with_sizes(self._root, written)
            facts.update(facts_of_new_files(written))
        count = sum(new.rows for new in written)
        if count != target.rows:
            raise FsspeckitError(
                f"{count:,} rows were written of the {target.rows:,} rows that the footers of "
                f"{self._root.display_path!r} count. Nothing was changed.\n"
                "Hint: call fsspeckit.doctor() to see which files are damaged."
            )
        self._written = written
        self._adds = [new.staged for new in written]
        self._index = StoredKeyIndex(self._storage)
        self._index.load_for_write(target, self._schema)
        self._index.add(self._adds, {})
        return FileChanges(self._adds, [footer.file.path for footer in target.footers])

    def _check_exists(self, snapshot: Snapshot) -> None:
        check_mergeable(snapshot.listing, self._root)
        if not snapshot.listing.files:
            path = self._root.to_user_path(self._root.path)
            raise InvalidArgumentError(
                f"repartition of a non-existent target: {path!r} holds no data files.\n"
                "Hint: check the path."
            )

    def _check_nanoseconds(self) -> None:
        """Refuse INT96 timestamps whose nanoseconds would be lost: files do not say which unit."""
        if not has_instants(self._schema):
            return
        files = [footer.file for footer in self._target.footers if footer.rows]
        items = [(file.path, file.size) for file in files]
        task = partial(int96_unit, self._root)
        units = self._engine.map_items("plan", task, items, self._stage, self._phases.report)
        for (path, _), unit in zip(items, units, strict=True):
            if unit == "ns":
                raise SchemaMismatchError(
                    f"{self._root.to_user_path(path)!r} stores INT96 timestamps with nanoseconds, "
                    "which would be cut to microseconds.\n"
                    "Hint: rewrite the file with INT64 timestamps."
                )

    def _facts(self) -> CommitFacts:
        return CommitFacts(engine=self._engine.name, strategy="repartition")

    def _result(self, number: int, outcome: CommitOutcome | None = None) -> RepartitionResult:
        made = outcome or CommitOutcome(number, None)
        pairs = zip(self._written, self._adds, strict=True)
        is_new = self._before != list(self._options.partition_columns)
        footers = self._target.footers if is_new else ()
        return RepartitionResult(
            self._root.to_user_path(self._root.path),
            self._before,
            list(self._options.partition_columns),
            self._target.rows,
            [written_file(self._storage, *pair) for pair in pairs],
            len(footers),
            sum(footer.file.size for footer in footers),
            metrics={"seconds": dict(self._phases.seconds), "commit": commit_metrics(made)},
            origin=ResultOrigin(self._storage, None),
        )


def _check_only_in_paths(wanted: pa.Schema | None, names: Sequence[str]) -> None:
    """Refuse types of columns that files store: they have types."""
    if odd := [name for name in (() if wanted is None else wanted.names) if name not in names]:
        raise InvalidArgumentError(
            f"schema names {odd!r}, and gives types to columns that only the directories have: "
            f"{list(names)!r}.\nHint: leave the others out.",
            argument="schema",
        )


def _typed(columns: pa.Schema, wanted: pa.Schema | None) -> pa.Schema:
    """Return columns with the types that the caller gave for some of them."""
    given = {} if wanted is None else {field.name: field for field in wanted}
    return pa.schema([given.get(field.name, field) for field in columns])
