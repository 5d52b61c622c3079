"""Writes: data as new files, beside the old ones or instead of some or all, in one commit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from fsspeckit.core.arrow_compat import open_data_file
from fsspeckit.core.matching import StoredKeyIndex
from fsspeckit.core.planning import (
    detect_partition_columns,
    partition_keys,
    plan_evolution,
    read_footers,
    read_target,
)
from fsspeckit.core.schema_changes import Evolution
from fsspeckit.datasets.pipeline.merge import (
    ResultOrigin,
    after_commit,
    commit_metrics,
    complete,
    facts_of_new_files,
    facts_of_rewrites,
    lazy_staging,
    run_with_retries,
    with_sizes,
)
from fsspeckit.datasets.pipeline.schema import evolve_files, recorded_schema
from fsspeckit.datasets.pipeline.target_checks import (
    check_fits,
    evolved_target,
    new_files,
    plan_schema_changes,
    read_checked_target,
)
from fsspeckit.display import (
    Card,
    Displayed,
    FileGroup,
    Listing,
    Mark,
    Paged,
    counted,
    lanes_by_partition,
    shortened,
    size,
)
from fsspeckit.errors import Argument, InvalidArgumentError, UnsupportedLayoutError
from fsspeckit.storage import (
    CommitFacts,
    CommitOutcome,
    FileChanges,
    PhasePublisher,
    check_mergeable,
    commit,
    find_transaction,
    staging,
    take_snapshot,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from fsspeckit.core.planning import FooterReader, Target
    from fsspeckit.core.rewrite import NewFile
    from fsspeckit.datasets.engine import Engine, OpenStage, Source
    from fsspeckit.datasets.pipeline.options import WriteOptions
    from fsspeckit.display import Lane, Phases
    from fsspeckit.storage import DataFile, Difference, Skipped, Snapshot, StagedFile, Storage

__all__ = ["FileWriteMetadata", "WriteDatasetResult"]

_MAX_COMMIT_RETRIES = 100
"""New files do not depend on old ones: a write that others overtake is not planned again."""


@dataclass
class FileWriteMetadata:
    """One file that a write made."""

    path: str
    """The file, spelled like the path of the dataset."""

    row_count: int
    """Its rows."""

    size_bytes: int | None = None
    """Its size."""

    partition_values: dict[str, Any] = field(default_factory=dict)
    """The values of the partition columns."""


@dataclass
class WriteDatasetResult(Paged, Displayed):
    """What a write did; ``str()`` summarises it, rich and notebooks show a table of the files."""

    files: list[FileWriteMetadata]
    """Every new file."""

    total_rows: int
    """The rows of all of them."""

    mode: str
    """``append``, ``overwrite`` or ``overwrite_partitions``."""

    metrics: dict[str, Any] = field(default_factory=dict)
    """``commit``: the number of the commit, how it was published, and what to know about it;
    ``replaced_files``: how many files it removed."""

    origin: Any = field(default=None, repr=False, compare=False)
    """The dataset, for its page; None for a copy from another process."""

    def _lanes(self) -> tuple[Lane, ...]:
        short = shortened(file.path for file in self.files)
        return lanes_by_partition(
            Mark(short(file.path), "added", file.size_bytes, label="written") for file in self.files
        )

    def _card(self) -> Card:
        short = shortened(file.path for file in self.files)

        def line(file: FileWriteMetadata) -> tuple[str, ...]:
            parts = ", ".join(f"{name}={value}" for name, value in file.partition_values.items())
            return short(file.path), parts, f"{file.row_count:,}", size(file.size_bytes)

        written = sum(file.size_bytes or 0 for file in self.files)
        return Card(
            f"{self.mode} of {counted(self.total_rows, 'row')}",
            (FileGroup("written", "added", len(self.files), written),),
            Listing.of(("file", "partition", "rows", "size"), self.files, line),
            tuple(self.metrics.get("commit", {}).get("notes", ())),
        )


def run_write(
    engine: Engine[Any, Any, Any], storage: Storage, data: Any, options: WriteOptions
) -> WriteDatasetResult:
    """Write data as new files, beside the old ones or instead of some or all of them."""
    observed = storage.observe(
        "write_dataset",
        engine=engine.name,
        transaction=options.transaction,
        progress=options.progress,
        mode=options.mode,
    )
    with observed as phases, lazy_staging(storage) as stage:
        about = (engine.name, options.mode, options.transaction)
        phases.listeners.append(PhasePublisher(storage, stage, *about))
        if (skipped := find_transaction(storage, options.transaction)) is not None:
            return _skip(storage, skipped, options)
        with phases.timed("stage") as facts:
            source = engine.take(data, stage, options.schema, progress=phases.report)
            facts["rows"] = source.num_rows
        write = _Write(engine, storage, stage, source, options, phases)
        return run_with_retries(storage, write.run)


def _skip(storage: Storage, skipped: Skipped, options: WriteOptions) -> WriteDatasetResult:
    """Return the rows on record of a transaction that is committed; nothing is changed."""
    rows = 0 if skipped.facts is None else skipped.facts.counts.get("inserted", 0)
    metrics = commit_metrics(CommitOutcome(skipped.recorded.commit, None), skipped)
    origin = ResultOrigin(storage, None)
    return WriteDatasetResult([], rows, options.mode, {"commit": metrics}, origin)


class _Write:
    """One write: new files, which fit the dataset as it is when they are committed."""

    def __init__(
        self,
        engine: Engine[Any, Any, Any],
        storage: Storage,
        stage: OpenStage,
        source: Source,
        options: WriteOptions,
        phases: Phases,
    ) -> None:
        self._engine = engine
        self._storage = storage
        self._stage = stage
        self._source = source
        self._options = options
        self._phases = phases
        self._target: Target
        self._written: list[NewFile]
        self._adds: list[StagedFile]
        self._index: StoredKeyIndex
        self._replaced: list[str] = []
        self._evolution: Evolution | None = None
        self._evolved: dict[str, tuple[StagedFile, int]] = {}

    def run(self, snapshot: Snapshot) -> WriteDatasetResult:
        """Write the files and commit them."""
        options, changes = self._options, self._prepare(snapshot)
        outcome = CommitOutcome(snapshot.number, None)
        if not changes.is_empty or options.transaction is not None:
            with self._phases.timed("commit"):
                outcome = commit(
                    self._storage,
                    snapshot,
                    self._stage(),
                    changes,
                    self._facts,
                    replan=self._again,
                    retries=_MAX_COMMIT_RETRIES,
                    transaction=options.transaction,
                )
                if outcome.skipped is not None:
                    return _skip(self._storage, outcome.skipped, options)
                # Of local files that were there before, the next merge reads the keys.
                with after_commit(outcome.number):
                    gone = {*self._replaced, *self._evolved}
                    self._index.update(self._target, gone, begun=0.0, number=outcome.number)
        return self._result(outcome)

    def _result(self, outcome: CommitOutcome) -> WriteDatasetResult:
        adds = self._adds[: len(self._written)]
        pairs = zip(self._written, adds, strict=True)
        files = [written_file(self._storage, *pair) for pair in pairs]
        rows = sum(new.rows for new in self._written)
        changes = () if self._evolution is None else self._evolution.changes
        noted = [f"column {change}" for change in changes]
        metrics: dict[str, Any] = {
            "replaced_files": len(self._replaced),
            "commit": commit_metrics(outcome, notes=noted),
        }
        if self._evolution is not None:
            metrics["schema"] = recorded_schema(self._evolution)
            metrics["rewritten"] = len(self._evolved)
        origin = ResultOrigin(self._storage, None)
        return WriteDatasetResult(files, rows, self._options.mode, metrics, origin)

    def _facts(self) -> CommitFacts:
        rows = self._source.num_rows
        return CommitFacts(
            engine=self._engine.name,
            strategy=self._options.name,
            counts={"inserted": rows, **self._options.extra_counts},
            source_rows=rows,
            schema=None if self._evolution is None else recorded_schema(self._evolution),
        )

    def _prepare(self, snapshot: Snapshot) -> FileChanges:
        """Write new files that look like those of a snapshot, and give old ones new columns."""
        storage, source = self._storage, self._source
        target = self._plan(snapshot)
        writing = new_files(storage, self._stage, target, source.schema, self._options.files)
        with self._phases.timed("insert") as facts, writing as writer:
            written = self._engine.insert(source, None, writer, self._phases.report)
            if not source.num_rows and not target.footers:
                writer.write_empty()
                written = writer.finish()
            written = with_sizes(storage.root, written)
            facts.update(facts_of_new_files(written))
        self._target, self._written = target, written
        self._adds = [new.staged for new in written]
        self._replaced = self._find_replaced(snapshot)
        self._evolve()
        self._adds += [complete(storage.root, *one) for one in self._evolved.values()]
        self._index = StoredKeyIndex(storage)
        self._index.load_for_write(target, source.schema)
        footers = {footer.file.path: footer for footer in target.footers}
        evolved = {file.final: footers[old] for old, (file, _) in self._evolved.items()}
        self._index.add(self._adds, evolved)
        return FileChanges(self._adds, [*self._replaced, *self._evolved])

    def _plan(self, snapshot: Snapshot) -> Target:
        """Return the dataset that new files must look like, with the columns that it gets."""
        storage, options, schema = self._storage, self._options, self._source.schema
        with self._phases.timed("plan") as facts:
            check_mergeable(snapshot.listing, storage.root)
            footers = partial(self._engine.footers, stage=self._stage)
            target = _write_target(storage, snapshot, schema, options, footers)
            facts["files"] = len(target.footers)
            facts["bytes"] = sum(footer.file.size for footer in target.footers)
            self._evolution = None
            if options.mode == "overwrite" or not target.footers:
                return target
            if self._source.num_rows:
                self._evolution = plan_schema_changes(schema, target, options.schema_changes)
            if self._evolution is None:
                check_fits(schema, target)
                return target
            plan = plan_evolution(target, self._evolution, snapshot)
            options.limits.check(replace(plan, strategy=options.mode))
            return evolved_target(target, self._evolution)

    def _evolve(self) -> None:
        """Give the files that stay the columns that the dataset gets."""
        self._evolved = {}
        if self._evolution is None:
            return
        replaced = {*self._replaced}
        staying = [one for one in self._target.footers if one.file.path not in replaced]
        with self._phases.timed("rewrite") as facts:
            found = evolve_files(
                self._engine,
                self._storage.root,
                self._stage,
                self._evolution,
                staying,
                self._phases.report,
            )
            facts.update(facts_of_rewrites(done for _, done in found.values()))
        self._evolved = {path: (file, done.rows) for path, (file, done) in found.items()}

    def _again(self, current: Snapshot, difference: Difference) -> FileChanges:
        """New files depend on old ones only in their columns and partitions."""
        if self._evolution is not None or not self._fits(current):
            return self._prepare(current)
        if self._others_differ(current, difference):
            return self._prepare(current)
        self._replaced = self._find_replaced(current)
        return FileChanges(self._adds, self._replaced)

    def _fits(self, current: Snapshot) -> bool:
        """Whether the new files are in the directories that the dataset has now."""
        options, files = self._options, current.listing.files
        if not files or (options.mode == "overwrite" and options.partition_columns is not None):
            return True
        try:
            parts = detect_partition_columns(map(self._relative, files))
        except UnsupportedLayoutError:
            return False
        return parts == tuple(part.name for part in self._target.partition_columns)

    def _others_differ(self, current: Snapshot, difference: Difference) -> bool:
        """Whether files that others have added have other columns than the new ones."""
        if self._options.mode == "overwrite" or not self._written:
            return False
        root = self._storage.root
        paths = (*difference.added, *difference.changed)
        others = read_footers(root, [current.by_path[path] for path in paths], ())
        # Read by pyarrow, as the others are: a type may be stored as another.
        with open_data_file(root, self._written[0].staged.path) as file:
            own = file.schema_arrow
        parts = frozenset(part.name for part in self._target.partition_columns)
        mine = Evolution(own, (), partitions=parts)
        return any(one.error is None and mine.is_needed(one.schema) for one in others)

    def _find_replaced(self, current: Snapshot) -> list[str]:
        """Return the files that the new ones replace."""
        files: Sequence[DataFile] = current.listing.files
        if self._options.mode == "append":
            files = ()
        elif self._options.mode == "overwrite_partitions":
            parts = self._target.partition_columns
            written = {*partition_keys(parts, [add.final for add in self._adds])}
            there = partition_keys(parts, list(map(self._relative, files)))
            files = [f for f, key in zip(files, there, strict=True) if key in written]
        return [file.path for file in files]

    def _relative(self, file: DataFile) -> str:
        return self._storage.root.relative(file.path)


def written_file(storage: Storage, new: NewFile, file: StagedFile) -> FileWriteMetadata:
    """Return what a result says about a new file."""
    path = storage.root.to_user_path(storage.path(file.final))
    return FileWriteMetadata(path, new.rows, file.size, new.partition_values)


def run_clear(engine: Engine[Any, Any, Any], storage: Storage) -> None:
    """Remove every data file of a dataset, and nothing else."""

    def change(current: Snapshot, _: object = None) -> FileChanges:
        return FileChanges([], [file.path for file in current.listing.files])

    snapshot = take_snapshot(storage)
    check_mergeable(snapshot.listing, storage.root)
    if snapshot.listing.files:
        facts = CommitFacts(engine=engine.name, strategy="clear")
        with staging(storage) as stage:
            commit(storage, snapshot, stage, change(snapshot), facts, replan=change)


def _write_target(
    storage: Storage,
    snapshot: Snapshot,
    schema: pa.Schema,
    options: WriteOptions,
    read: FooterReader,
) -> Target:
    """The dataset that new files must look like; of an overwritten one only its partitions."""
    parts = options.partition_columns
    if options.mode != "overwrite" and snapshot.listing.files:
        target = read_checked_target(storage, snapshot, (), schema, parts, read)
    else:
        if parts is None:
            parts = _kept_partitions(storage, snapshot, schema)
        target = read_target(storage.root, (), (), schema, parts)
    if options.mode == "overwrite_partitions" and not target.partition_columns:
        given, other = (Argument("mode", (m,)) for m in ("overwrite_partitions", "overwrite"))
        raise InvalidArgumentError(
            f"{given} replaces partitions, and "
            f"{storage.root.to_user_path(storage.root.path)!r} has none.\n"
            f"Hint: use {other} to replace all data, or name partition columns when the dataset is "
            "written first.",
            argument="mode",
            mentions=(given, other),
        )
    return target


def _kept_partitions(storage: Storage, snapshot: Snapshot, schema: pa.Schema) -> tuple[str, ...]:
    """Return the partition columns of a dataset that is overwritten without naming others."""
    named = Argument("partition_by", ([], ...))
    hint = f"say how the new files are partitioned with {named}."
    try:
        parts = detect_partition_columns(
            storage.root.relative(f.path) for f in snapshot.listing.files
        )
    except UnsupportedLayoutError as error:
        what = str(error).partition("\nHint:")[0]
        raise InvalidArgumentError(
            f"the new files cannot be partitioned as the old ones are: {what}\nHint: {hint}",
            mentions=(named,),
        ) from error
    if missing := [name for name in parts if name not in schema.names]:
        raise InvalidArgumentError(
            f"the dataset is partitioned by {list(parts)!r}, but the data lacks the columns "
            f"{missing!r}; it has {schema.names!r}.\nHint: {hint}",
            mentions=(named,),
        )
    return parts
