"""Writes: data as new files, beside the old ones or instead of them, in one commit."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from fsspeckit.core.matching import StoredKeyIndex
from fsspeckit.core.planning import detect_partition_columns, read_target
from fsspeckit.datasets.pipeline.merge import (
    Phases,
    after_commit,
    commit_metrics,
    complete,
    lazy_staging,
    reporting,
    run_with_retries,
)
from fsspeckit.datasets.pipeline.target_checks import check_fits, new_files, read_checked_target
from fsspeckit.display import (
    Card,
    Displayed,
    FileGroup,
    Listing,
    counted,
    shortened,
    size,
)
from fsspeckit.errors import Argument, InvalidArgumentError, UnsupportedLayoutError
from fsspeckit.storage import (
    CommitFacts,
    CommitOutcome,
    FileChanges,
    check_mergeable,
    commit,
    find_transaction,
    staging,
    take_snapshot,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from fsspeckit.core.planning import FooterReader, Target
    from fsspeckit.core.rewrite import NewFile
    from fsspeckit.datasets.engine import Engine, OpenStage, Source
    from fsspeckit.datasets.pipeline.options import WriteOptions
    from fsspeckit.storage import Skipped, Snapshot, StagedFile, Storage

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
class WriteDatasetResult(Displayed):
    """What a write did; ``str()`` summarises it, rich and notebooks show a table of the files."""

    files: list[FileWriteMetadata]
    """Every new file."""

    total_rows: int
    """The rows of all of them."""

    mode: str
    """``append`` or ``overwrite``."""

    metrics: dict[str, Any] = field(default_factory=dict)
    """``commit``: the number of the commit, how it was published, and what to know about it."""

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
    """Write data as new files, beside the old ones or instead of them."""
    with reporting(options.progress) as report, lazy_staging(storage) as stage:
        phases = Phases(report)
        if (skipped := find_transaction(storage, options.transaction)) is not None:
            return _skip(skipped, options)
        with phases.timed("stage"):
            source = engine.take(data, stage, options.schema, progress=report)
        write = partial(_write, engine, storage, stage, source, options, phases)
        return run_with_retries(storage, write)


def _skip(skipped: Skipped, options: WriteOptions) -> WriteDatasetResult:
    """Return the rows on record of a transaction that is committed; nothing is changed."""
    rows = 0 if skipped.facts is None else skipped.facts.counts.get("inserted", 0)
    metrics = commit_metrics(CommitOutcome(skipped.recorded.commit, None), skipped)
    return WriteDatasetResult([], rows, options.mode, {"commit": metrics})


def _write(
    engine: Engine[Any, Any, Any],
    storage: Storage,
    stage: OpenStage,
    source: Source,
    options: WriteOptions,
    phases: Phases,
    snapshot: Snapshot,
) -> WriteDatasetResult:
    with phases.timed("plan"):
        check_mergeable(snapshot.listing, storage.root)
        footers = partial(engine.footers, stage=stage)
        target = _write_target(storage, snapshot, source.schema, options, footers)
    writing = new_files(storage, stage, target, source.schema, options.files)
    with phases.timed("insert"), writing as writer:
        written = engine.insert(source, None, writer, phases.report)
        if not source.num_rows and not target.footers:
            writer.write_empty()
            written = writer.finish()

    adds = [complete(storage.root, new.staged, new.rows) for new in written]

    def change(current: Snapshot, _: object = None) -> FileChanges:
        """New files do not depend on old ones; an overwrite removes those there are now."""
        old = [file.path for file in current.listing.files]
        return FileChanges(adds, old if options.mode == "overwrite" else [])

    index = StoredKeyIndex(storage)
    index.load_for_write(target, source.schema)
    index.add(adds, {})
    first = change(snapshot)
    outcome = CommitOutcome(snapshot.number, None)
    if first.adds or first.removes or options.transaction is not None:
        facts = CommitFacts(
            engine=engine.name,
            strategy=options.name,
            counts={"inserted": source.num_rows, **options.extra_counts},
            source_rows=source.num_rows,
        )
        with phases.timed("commit"):
            outcome = commit(
                storage,
                snapshot,
                stage(),
                first,
                facts,
                replan=change,
                retries=_MAX_COMMIT_RETRIES,
                transaction=options.transaction,
            )
            if outcome.skipped is not None:
                return _skip(outcome.skipped, options)
            # Of local files that were there before, the next merge reads the keys.
            with after_commit(outcome.number):
                index.update(target, (), begun=0.0, number=outcome.number)
    files = [_written(storage, *pair) for pair in zip(written, adds, strict=True)]
    rows = sum(new.rows for new in written)
    return WriteDatasetResult(files, rows, options.mode, {"commit": commit_metrics(outcome)})


def _written(storage: Storage, new: NewFile, file: StagedFile) -> FileWriteMetadata:
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
    if options.mode == "append" and snapshot.listing.files:
        target = read_checked_target(storage, snapshot, (), schema, parts, read)
        check_fits(schema, target)
        return target
    if parts is None:
        parts = _kept_partitions(storage, snapshot, schema)
    return read_target(storage.root, (), (), schema, parts)


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
