"""The commands that put the rows of a dataset in order: ``deduplicate`` and ``repartition``."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import typer

from fsspeckit.cli import options as o  # noqa: TC001 - typer reads the annotations
from fsspeckit.cli.commands.merge import file_options, show_plan
from fsspeckit.cli.options import Compression, TargetNulls
from fsspeckit.cli.runner import Job, open_session

__all__ = ["deduplicate", "repartition"]


def deduplicate(  # noqa: PLR0913, PLR0917 - the options of the command
    target: o.Dataset,
    key: o.DuplicateKeys = None,
    order_by: o.GreatestStays = None,
    keep: o.KeepOption = None,
    nulls: o.TargetNullsOption = TargetNulls.KEEP,
    engine: o.Engine = None,
    dry_run: o.DryRun = False,
    html: o.Html = None,
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
    """Delete rows of a dataset until every key occurs once.

    Without --key, rows that are equal in every column are duplicates. Rows with one key that differ
    are refused, unless --order-by or --keep says which one stays. All files change at once, or none
    does.
    """
    session = open_session(as_json, quiet, storage_option, config)
    job = Job(session, (), target, engine, control_dir, lock_timeout, None, None, False)
    job = replace(job, html=html)
    options: dict[str, Any] = {
        "keep": None if keep is None else keep.value,
        "null_keys": nulls.value,
        "max_rewrite_fraction": max_rewrite_fraction,
        "max_rewrite_bytes": max_rewrite_bytes,
        "transaction": transaction,
    }
    given = (target, key or None, order_by or None)
    if dry_run:
        limits = (max_rewrite_fraction, max_rewrite_bytes)
        return show_plan(job, lambda opened: opened.io.plan_deduplicate(*given, **options), limits)
    return job.run(
        lambda opened: opened.io.deduplicate(*given, progress=opened.progress, **options),
        partial(session.show_done, session.output.merged),
    )


def repartition(  # noqa: PLR0913, PLR0917 - the options of the command
    target: o.Dataset,
    partition_by: o.NewPartitions = None,
    no_partitions: o.NoPartitions = False,
    engine: o.Engine = None,
    dry_run: o.OnlyPreview = False,
    compression: o.CompressionOption = Compression.SNAPPY,
    max_rows_per_file: o.MaxRowsPerFile = 5_000_000,
    row_group_size: o.RowGroupSize = 500_000,
    bloom: o.Bloom = None,
    lock_timeout: o.LockTimeout = 30.0,
    storage_option: o.StorageOption = None,
    config: o.Config = None,
    control_dir: o.ControlDir = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> None:
    """Write a dataset again with other partition columns, or with none.

    Every row is read and written. If others commit meanwhile, it starts again. All files change at
    once, or none does.
    """
    if bool(partition_by) == no_partitions:
        raise typer.BadParameter("pass --partition-by, or --no-partitions.")
    session = open_session(as_json, quiet, storage_option, config)
    job = Job(session, (), target, engine, control_dir, lock_timeout, None, None, False)
    job.run(
        lambda opened: opened.io.repartition(
            target,
            partition_by or [],
            **file_options(compression, max_rows_per_file, row_group_size, bloom),
            dry_run=dry_run,
            progress=opened.progress,
        ),
        partial(session.show_done, session.output.repartitioned),
    )
