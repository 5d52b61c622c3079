"""The way of a merge or a write: source, request, target, plan, match, rewrite, commit."""

from __future__ import annotations

from fsspeckit.datasets.pipeline.merge import plan_merge, retried, run_merge, run_plan
from fsspeckit.datasets.pipeline.reading import (
    OpenedDataset,
    as_expression,
    partition_schema,
    read_table,
    with_dataset,
)
from fsspeckit.datasets.pipeline.request import (
    NO_LIMIT,
    ROW_GROUP_SIZE,
    FileOptions,
    MergeRequest,
    Progress,
    RewriteLimits,
    WriteMode,
    WriteRequest,
    check_write_or_merge,
    codec_named,
    one_spelling,
    planned_merge,
)
from fsspeckit.datasets.pipeline.source import (
    ArrowSource,
    MemorySource,
    SourcePath,
    as_paths,
    check_unique_names,
    gathered,
    located,
    one_schema,
    open_source,
    parquet_dataset,
    source_root,
)
from fsspeckit.datasets.pipeline.write import WriteDatasetResult, run_clear, run_write

__all__ = [
    "NO_LIMIT",
    "ROW_GROUP_SIZE",
    "ArrowSource",
    "FileOptions",
    "MemorySource",
    "MergeRequest",
    "OpenedDataset",
    "Progress",
    "RewriteLimits",
    "SourcePath",
    "WriteDatasetResult",
    "WriteMode",
    "WriteRequest",
    "as_expression",
    "as_paths",
    "check_unique_names",
    "check_write_or_merge",
    "codec_named",
    "gathered",
    "located",
    "one_schema",
    "one_spelling",
    "open_source",
    "parquet_dataset",
    "partition_schema",
    "plan_merge",
    "planned_merge",
    "read_table",
    "retried",
    "run_clear",
    "run_merge",
    "run_plan",
    "run_write",
    "source_root",
    "with_dataset",
]
