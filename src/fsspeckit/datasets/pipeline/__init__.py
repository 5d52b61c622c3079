"""The way of a merge or a write: take the source, plan, match, rewrite, insert, commit."""

from __future__ import annotations

from fsspeckit.datasets.pipeline.changes import DEFAULT_RETENTION, ChangeOptions
from fsspeckit.datasets.pipeline.compact import (
    DEFAULT_TARGET_BYTES,
    CompactBin,
    CompactOptions,
    CompactPlan,
    CompactResult,
    GivenUpBin,
    merge_and_compact,
    plan_compact,
    run_compact,
)
from fsspeckit.datasets.pipeline.merge import (
    get_planned_merge,
    plan_merge,
    run_merge,
    run_plan,
    run_with_retries,
)
from fsspeckit.datasets.pipeline.options import (
    FileOptions,
    MergeOptions,
    PartitionChange,
    RewriteLimits,
    WriteMode,
    WriteOptions,
    check_write_or_merge,
    resolve_partition_columns,
)
from fsspeckit.datasets.pipeline.reading import (
    OpenedDataset,
    as_expression,
    partition_schema,
    read_table,
    with_dataset,
)
from fsspeckit.datasets.pipeline.source import (
    DEFAULT_SOURCE_LIMITS,
    ArrowSource,
    MemorySource,
    SourceLimits,
    SourcePath,
    as_paths,
    check_unique_names,
    locate_paths,
    open_source,
    parquet_dataset,
    regroup_batches,
    source_root,
    unify_schemas,
)
from fsspeckit.datasets.pipeline.target_checks import stored_columns
from fsspeckit.datasets.pipeline.write import WriteDatasetResult, run_clear, run_write
from fsspeckit.display import Progress

__all__ = [
    "DEFAULT_RETENTION",
    "DEFAULT_SOURCE_LIMITS",
    "DEFAULT_TARGET_BYTES",
    "ArrowSource",
    "ChangeOptions",
    "CompactBin",
    "CompactOptions",
    "CompactPlan",
    "CompactResult",
    "FileOptions",
    "GivenUpBin",
    "MemorySource",
    "MergeOptions",
    "OpenedDataset",
    "PartitionChange",
    "Progress",
    "RewriteLimits",
    "SourceLimits",
    "SourcePath",
    "WriteDatasetResult",
    "WriteMode",
    "WriteOptions",
    "as_expression",
    "as_paths",
    "check_unique_names",
    "check_write_or_merge",
    "get_planned_merge",
    "locate_paths",
    "merge_and_compact",
    "open_source",
    "parquet_dataset",
    "partition_schema",
    "plan_compact",
    "plan_merge",
    "read_table",
    "regroup_batches",
    "resolve_partition_columns",
    "run_clear",
    "run_compact",
    "run_merge",
    "run_plan",
    "run_with_retries",
    "run_write",
    "source_root",
    "stored_columns",
    "unify_schemas",
    "with_dataset",
]
