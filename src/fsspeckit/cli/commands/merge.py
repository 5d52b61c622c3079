"""The commands ``merge`` and ``plan``.

The command ``write``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from fsspeckit.cli import options as o  # noqa: TC001 - typer reads the annotations
from fsspeckit.cli.options import Compression, Duplicates, MergeStrategy, Mode, Nulls
from fsspeckit.cli.runner import Session, Work, open_session, work_on

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fsspeckit.core.merge import MergeResult
    from fsspeckit.core.planning import MergePlan
    from fsspeckit.datasets.pipeline import WriteDatasetResult

__all__ = ["merge", "plan", "write"]


# --- The commands ``merge`` and ``plan`` ---


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
    source_format: o.FormatOption = None,
    delimiter: o.Delimiter = None,
    infer_types: o.InferTypes = False,
    compression: o.CompressionOption = Compression.SNAPPY,
    max_rows_per_file: o.MaxRowsPerFile = 5_000_000,
    row_group_size: o.RowGroupSize = 500_000,
    bloom: o.Bloom = None,
    max_rewrite_fraction: o.MaxRewriteFraction = None,
    max_rewrite_bytes: o.MaxRewriteBytes = None,
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
    arguments = locals()
    session = open_session(as_json, quiet, storage_option, config)
    if dry_run:
        _plan(session, arguments)
    else:
        _merge(session, arguments)


def plan(  # noqa: PLR0913, PLR0917 - the options of the command
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
    source_format: o.FormatOption = None,
    delimiter: o.Delimiter = None,
    infer_types: o.InferTypes = False,
    max_rewrite_fraction: o.MaxRewriteFraction = None,
    max_rewrite_bytes: o.MaxRewriteBytes = None,
    lock_timeout: o.LockTimeout = 30.0,
    storage_option: o.StorageOption = None,
    config: o.Config = None,
    control_dir: o.ControlDir = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> None:
    """Tell what merge would do: each file, with the evidence that decided about it.

    Nothing is written. With a guard rail that the merge would break, the command fails after
    showing the plan.
    """
    arguments = locals()
    _plan(open_session(as_json, quiet, storage_option, config), arguments)


def _merge(session: Session, arguments: Mapping[str, Any]) -> None:
    def call(work: Work) -> MergeResult:
        return work.io.merge(
            work.data,
            arguments["target"],
            arguments["strategy"].value,
            arguments["key"],
            compression=arguments["compression"].value,
            max_rows_per_file=arguments["max_rows_per_file"],
            row_group_size=arguments["row_group_size"],
            bloom_columns=arguments["bloom"] or None,
            progress=work.progress,
            **_choices(arguments),
        )

    work_on(session, arguments, call, partial(session.show_done, session.output.merged))


def _plan(session: Session, arguments: Mapping[str, Any]) -> None:
    from fsspeckit.datasets.pipeline import RewriteLimits

    limits = RewriteLimits(arguments["max_rewrite_fraction"], arguments["max_rewrite_bytes"])

    def call(work: Work) -> MergePlan:
        return work.io.plan_merge(
            work.data,
            arguments["target"],
            arguments["strategy"].value,
            arguments["key"],
            progress=work.progress,
            **_choices(arguments),
        )

    def show(_: str, found: MergePlan) -> None:
        session.output.plan(found)
        if arguments["strategy"] is not MergeStrategy.INSERT:
            limits.check(found)

    work_on(session, arguments, call, show)


def _choices(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What ``merge`` and ``plan_merge`` of the library both take."""
    return {
        "partition_by": arguments["partition_by"] or None,
        "order_by": arguments["order_by"] or None,
        "duplicate_keys": arguments["duplicates"].value,
        "null_keys": arguments["nulls"].value,
        "trust_partitions": arguments["trust_partitions"],
        "allow_empty": arguments["allow_empty"],
        "max_rewrite_fraction": arguments["max_rewrite_fraction"],
        "max_rewrite_bytes": arguments["max_rewrite_bytes"],
    }


# --- The command ``write`` ---


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
    lock_timeout: o.LockTimeout = 30.0,
    storage_option: o.StorageOption = None,
    config: o.Config = None,
    control_dir: o.ControlDir = None,
    as_json: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
) -> None:
    """Write rows as new files, beside those that are there or instead of them.

    The dataset need not exist yet. All files change at once, or none does.
    """
    arguments = locals()
    _write(open_session(as_json, quiet, storage_option, config), arguments)


def _write(session: Session, arguments: Mapping[str, Any]) -> None:
    def call(work: Work) -> WriteDatasetResult:
        return work.io.write_dataset(
            work.data,
            arguments["target"],
            mode=arguments["mode"].value,
            partition_by=arguments["partition_by"] or None,
            compression=arguments["compression"].value,
            max_rows_per_file=arguments["max_rows_per_file"],
            row_group_size=arguments["row_group_size"],
            bloom_columns=arguments["bloom"] or None,
            progress=work.progress,
        )

    work_on(session, arguments, call, partial(session.show_done, session.output.written))
