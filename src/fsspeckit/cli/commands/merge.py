"""The commands that change rows: ``merge``, ``plan``, ``apply``, ``delete`` and ``write``."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from fsspeckit.cli import options as o  # noqa: TC001 - typer reads the annotations
from fsspeckit.cli.options import (
    Compression,
    Duplicates,
    MergeStrategy,
    Mode,
    Nulls,
    PartitionChange,
    ScdType,
    SchemaChange,
)
from fsspeckit.cli.runner import Job, open_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from fsspeckit.cli.runner import OpenedJob
    from fsspeckit.core.planning import MergePlan

__all__ = ["apply", "delete", "file_options", "merge", "plan", "show_plan", "write"]


def merge(  # noqa: PLR0913, PLR0917 - the options of the command
    sources: o.Sources,
    target: o.Target,
    key: o.Keys,
    strategy: o.Strategy = MergeStrategy.UPSERT,
    engine: o.Engine = None,
    partition_by: o.PartitionBy = None,
    order_by: o.OrderBy = None,
    duplicates: o.DuplicatesOption = Duplicates.ERROR,
    nulls: o.NullsOption = Nulls.ERROR,
    trust_partitions: o.TrustPartitions = False,
    allow_empty: o.AllowEmpty = False,
    dry_run: o.DryRun = False,
    html: o.Html = None,
    source_format: o.FormatOption = None,
    delimiter: o.Delimiter = None,
    infer_types: o.InferTypes = False,
    compression: o.CompressionOption = Compression.SNAPPY,
    max_rows_per_file: o.MaxRowsPerFile = 5_000_000,
    row_group_size: o.RowGroupSize = 500_000,
    bloom: o.Bloom = None,
    key_index: o.KeyIndex = None,
    max_rewrite_fraction: o.MaxRewriteFraction = None,
    max_rewrite_bytes: o.MaxRewriteBytes = None,
    delete_when: o.DeleteWhen = None,
    only_newer: o.OnlyNewer = None,
    partition_change: o.PartitionChangeOption = PartitionChange.REFUSE,
    schema_changes: o.SchemaChangeOption = SchemaChange.REFUSE,
    transaction: o.TransactionOption = None,
    target_size: o.TargetFileSize = None,
    auto_compact: o.AutoCompact = False,
    lock_timeout: o.LockTimeout = 30.0,
    storage_option: o.StorageOption = None,
    config: o.Config = None,
    control_dir: o.ControlDir = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> None:
    """Merge rows into a dataset, rewriting only the files in which a value changes.

    The dataset need not exist yet. All files change at once, or none does.
    """
    session = open_session(as_json, quiet, storage_option, config)
    columns = (source_format, delimiter, infer_types, _used_alone(strategy, key), delete_when)
    job = Job(session, sources, target, engine, control_dir, lock_timeout, *columns)
    job = replace(job, html=html, adds_columns=schema_changes is not SchemaChange.REFUSE)
    shared: dict[str, Any] = {
        "partition_by": partition_by or None,
        "order_by": order_by or None,
        **_policies(duplicates, nulls, partition_change, schema_changes),
        "trust_partitions": trust_partitions,
        "allow_empty": allow_empty,
        "max_rewrite_fraction": max_rewrite_fraction,
        "max_rewrite_bytes": max_rewrite_bytes,
        "delete_when": delete_when,
        "only_newer": only_newer,
        "transaction": transaction,
    }
    if dry_run:
        return _plan(job, strategy, key, {**shared, "target_file_bytes": target_size})
    files = file_options(compression, max_rows_per_file, row_group_size, bloom)
    files |= {"target_file_bytes": target_size, "auto_compact": auto_compact}
    return _merge(job, strategy, key, {**shared, **files, "key_index": key_index})


def _used_alone(strategy: MergeStrategy, key: list[str]) -> tuple[str, ...]:
    """Return the only columns of the source that are used; none if all of them are."""
    return tuple(key) if strategy is MergeStrategy.DELETE else ()


def plan(**options: Any) -> None:
    """Show what merge would do: each file, with the evidence that decided about it.

    Nothing is written. If the merge would exceed a rewrite limit, the command shows the plan and
    fails.
    """
    merge(**options, dry_run=True)


def _signature_of_plan() -> inspect.Signature:
    """Return the options of ``merge`` without those that only matter if it writes."""
    whole = inspect.signature(merge, eval_str=True)
    unused = {"dry_run", "compression", "max_rows_per_file", "row_group_size", "bloom", "key_index"}
    unused.add("auto_compact")
    return whole.replace(parameters=[p for p in whole.parameters.values() if p.name not in unused])


plan.__signature__ = _signature_of_plan()  # type: ignore[attr-defined]


def file_options(
    compression: Compression, max_rows_per_file: int, row_group_size: int, bloom: list[str] | None
) -> dict[str, Any]:
    """Return how new files are written, as the library names it."""
    return {
        "compression": compression.value,
        "max_rows_per_file": max_rows_per_file,
        "row_group_size": row_group_size,
        "bloom_columns": bloom or None,
    }


def _policies(
    duplicates: Duplicates,
    nulls: Nulls,
    partition_change: PartitionChange,
    schema_changes: SchemaChange,
) -> dict[str, str]:
    """Return what is refused and what is done, as the library names it."""
    return {
        "duplicate_keys": duplicates.value,
        "null_keys": nulls.value,
        "partition_change": partition_change.value,
        "schema_changes": schema_changes.value,
    }


def _merge(job: Job, strategy: MergeStrategy, key: list[str], options: dict[str, Any]) -> None:
    job.run(
        lambda opened: opened.io.merge(
            opened.source, job.target, strategy.value, key, progress=opened.progress, **options
        ),
        partial(job.session.show_done, job.session.output.merged),
    )


def _plan(job: Job, strategy: MergeStrategy, key: list[str], shared: dict[str, Any]) -> None:
    given = (shared["max_rewrite_fraction"], shared["max_rewrite_bytes"])
    show_plan(
        job,
        lambda opened: opened.io.plan_merge(
            opened.source, job.target, strategy.value, key, progress=opened.progress, **shared
        ),
        # An insert that adds columns rewrites files, too.
        (None, None) if _rewrites_nothing(strategy, shared) else given,
    )


def show_plan(
    job: Job,
    call: Callable[[OpenedJob], MergePlan],
    limits: tuple[float | None, int | None],
) -> None:
    """Print a plan, and fail if it exceeds the limits of a rewrite."""
    from fsspeckit.datasets.pipeline import RewriteLimits

    def show(_: str, found: MergePlan) -> None:
        job.session.output.plan(found)
        RewriteLimits(*limits).check(found)

    job.run(call, show)


def _rewrites_nothing(strategy: MergeStrategy, shared: dict[str, Any]) -> bool:
    return strategy is MergeStrategy.INSERT and shared["schema_changes"] == SchemaChange.REFUSE


def apply(  # noqa: PLR0913, PLR0917 - the options of the command
    changes: o.Changes,
    target: o.Dataset,
    key: o.Keys,
    sequence_by: o.SequenceBy,
    apply_as_deletes: o.ApplyAsDeletes = None,
    except_column: o.ExceptColumns = None,
    column: o.Columns = None,
    scd_type: o.ScdTypeOption = ScdType.LAST,
    tombstone_retention: o.TombstoneRetention = "7d",
    engine: o.Engine = None,
    partition_by: o.PartitionBy = None,
    partition_change: o.PartitionChangeOption = PartitionChange.REFUSE,
    schema_changes: o.SchemaChangeOption = SchemaChange.REFUSE,
    dry_run: o.DryRun = False,
    html: o.Html = None,
    source_format: o.FormatOption = None,
    delimiter: o.Delimiter = None,
    infer_types: o.InferTypes = False,
    compression: o.CompressionOption = Compression.SNAPPY,
    max_rows_per_file: o.MaxRowsPerFile = 5_000_000,
    row_group_size: o.RowGroupSize = 500_000,
    bloom: o.Bloom = None,
    key_index: o.KeyIndex = None,
    max_rewrite_fraction: o.MaxRewriteFraction = None,
    max_rewrite_bytes: o.MaxRewriteBytes = None,
    transaction: o.TransactionOption = None,
    target_size: o.TargetFileSize = None,
    auto_compact: o.AutoCompact = False,
    lock_timeout: o.LockTimeout = 30.0,
    storage_option: o.StorageOption = None,
    config: o.Config = None,
    control_dir: o.ControlDir = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> None:
    """Apply a feed of changes, in whatever order and batches they arrive.

    A change that is older than the row it would change, or than the deletion of its key, has no
    effect. The dataset need not exist yet. All files change at once, or none does.
    """
    session = open_session(as_json, quiet, storage_option, config)
    reading = (source_format, delimiter, infer_types)
    job = Job(session, changes, target, engine, control_dir, lock_timeout, *reading)
    job = replace(job, html=html, sequence_by=sequence_by)
    options: dict[str, Any] = {
        "apply_as_deletes": apply_as_deletes,
        "except_column_list": except_column or None,
        "column_list": column or None,
        "stored_as_scd_type": int(scd_type.value),
        "tombstone_retention": tombstone_retention,
        "partition_by": partition_by or None,
        "partition_change": partition_change.value,
        "schema_changes": schema_changes.value,
        "key_index": key_index,
        "max_rewrite_fraction": max_rewrite_fraction,
        "max_rewrite_bytes": max_rewrite_bytes,
        "transaction": transaction,
        "target_file_bytes": target_size,
        "auto_compact": auto_compact,
        **file_options(compression, max_rows_per_file, row_group_size, bloom),
    }
    _apply(job, dry_run, (target, key, sequence_by), options)


def _apply(job: Job, dry_run: bool, given: tuple[Any, ...], options: dict[str, Any]) -> None:
    if dry_run:
        limits = (options["max_rewrite_fraction"], options["max_rewrite_bytes"])
        return show_plan(
            job,
            lambda opened: opened.io.plan_apply_changes(opened.source, *given, **options),
            limits,
        )
    return job.run(
        lambda opened: opened.io.apply_changes(
            opened.source, *given, progress=opened.progress, **options
        ),
        partial(job.session.show_done, job.session.output.merged),
    )


def delete(  # noqa: PLR0913, PLR0917 - the options of the command
    target: o.Dataset,
    key: o.MaybeDeletedKeys = None,
    sources: o.KeysFrom = None,
    where: o.Where = None,
    engine: o.Engine = None,
    nulls: o.NullsOption = Nulls.ERROR,
    dry_run: o.DryRun = False,
    html: o.Html = None,
    source_format: o.FormatOption = None,
    delimiter: o.Delimiter = None,
    infer_types: o.InferTypes = False,
    max_rewrite_fraction: o.MaxRewriteFraction = None,
    max_rewrite_bytes: o.MaxRewriteBytes = None,
    purge: o.Purge = False,
    transaction: o.TransactionOption = None,
    lock_timeout: o.LockTimeout = 30.0,
    storage_option: o.StorageOption = None,
    config: o.Config = None,
    control_dir: o.ControlDir = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> None:
    """Delete rows by key or by a condition, rewriting only the files that have such rows.

    Name the keys with --key and --from, or a condition with --where. Of Parquet files that --from
    names, only the key columns are used; CSV and JSON must have no others. Keys that the dataset
    does not have are counted. All files change at once, or none does.
    """
    _check_selection(key, sources, where)
    session = open_session(as_json, quiet, storage_option, config)
    reading = (source_format, delimiter, infer_types, tuple(key or ()))
    job = Job(session, sources or (), target, engine, control_dir, lock_timeout, *reading)
    job = replace(job, html=html)
    options: dict[str, Any] = {
        "where": where,
        "null_keys": nulls.value,
        "max_rewrite_fraction": max_rewrite_fraction,
        "max_rewrite_bytes": max_rewrite_bytes,
        "purge": purge,
        "transaction": transaction,
    }
    given = (target, key or None)
    if dry_run:
        limits = (max_rewrite_fraction, max_rewrite_bytes)
        return show_plan(
            job, lambda opened: opened.io.plan_delete(_keys(opened), *given, **options), limits
        )
    return job.run(
        lambda opened: opened.io.delete(_keys(opened), *given, progress=opened.progress, **options),
        partial(session.show_done, session.output.merged),
    )


@dataclass(frozen=True)
class _KeyFile:
    """A path or URL, which the library would take for a key if it were a string in a list."""

    path: str

    def __fspath__(self) -> str:
        return self.path


def _keys(opened: OpenedJob) -> Any:
    source = opened.source
    is_paths = isinstance(source, list) and all(isinstance(one, str) for one in source)
    return [_KeyFile(path) for path in source] if is_paths else source


def _check_selection(key: list[str] | None, sources: list[str] | None, where: str | None) -> None:
    """Refuse anything but keys with their source, or a condition."""
    if where is not None and not key and not sources:
        return
    if where is None and key and sources:
        return
    raise typer.BadParameter("pass --key and --from, or --where alone.")


def write(  # noqa: PLR0913, PLR0917 - the options of the command
    sources: o.Sources,
    target: o.Target,
    mode: o.WriteModeOption = Mode.APPEND,
    engine: o.Engine = None,
    partition_by: o.PartitionBy = None,
    source_format: o.FormatOption = None,
    delimiter: o.Delimiter = None,
    infer_types: o.InferTypes = False,
    compression: o.CompressionOption = Compression.SNAPPY,
    max_rows_per_file: o.MaxRowsPerFile = 5_000_000,
    row_group_size: o.RowGroupSize = 500_000,
    bloom: o.Bloom = None,
    schema_changes: o.SchemaChangeOption = SchemaChange.REFUSE,
    max_rewrite_fraction: o.MaxRewriteFraction = None,
    max_rewrite_bytes: o.MaxRewriteBytes = None,
    transaction: o.TransactionOption = None,
    lock_timeout: o.LockTimeout = 30.0,
    storage_option: o.StorageOption = None,
    config: o.Config = None,
    control_dir: o.ControlDir = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> None:
    """Write rows as new files, beside the existing files or instead of some or all of them.

    The dataset need not exist yet. All files change at once, or none does.
    """
    session = open_session(as_json, quiet, storage_option, config)
    reading = (source_format, delimiter, infer_types)
    job = Job(session, sources, target, engine, control_dir, lock_timeout, *reading)
    job = replace(job, adds_columns=schema_changes is not SchemaChange.REFUSE)
    job.run(
        lambda opened: opened.io.write_dataset(
            opened.source,
            target,
            mode=mode.value,
            partition_by=partition_by or None,
            **file_options(compression, max_rows_per_file, row_group_size, bloom),
            schema_changes=schema_changes.value,
            max_rewrite_fraction=max_rewrite_fraction,
            max_rewrite_bytes=max_rewrite_bytes,
            transaction=transaction,
            progress=opened.progress,
        ),
        partial(session.show_done, session.output.written),
    )
