"""The public building blocks of a merge: metadata, pruning, plans, file replacement."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fsspeckit.core.incremental.building_blocks import (
    ConservativeMembershipChecker,
    IncrementalFileManager,
    ParquetFileMetadata,
    ParquetMetadataAnalyzer,
    PartitionPruner,
    list_dataset_files,
)
from fsspeckit.core.keys import validate_no_null_keys, validate_partition_column_immutability
from fsspeckit.core.matching import confirm_affected_files
from fsspeckit.core.merge import MergeFileMetadata, MergeResult
from fsspeckit.core.planning import (
    FilePlan,
    IncrementalRewritePlan,
    MergePlan,
    PlanReason,
    parse_hive_partition_path,
    plan_incremental_rewrite,
)

if TYPE_CHECKING:
    from fsspeckit import merge

__all__ = [
    "ConservativeMembershipChecker",
    "FilePlan",
    "IncrementalFileManager",
    "IncrementalRewritePlan",
    "MergeFileMetadata",
    "MergePlan",
    "MergeResult",
    "ParquetFileMetadata",
    "ParquetMetadataAnalyzer",
    "PartitionPruner",
    "PlanReason",
    "confirm_affected_files",
    "list_dataset_files",
    "merge",
    "parse_hive_partition_path",
    "plan_incremental_rewrite",
    "validate_no_null_keys",
    "validate_partition_column_immutability",
]


def __getattr__(name: str) -> Any:
    # On first use, because the merge itself imports this package.
    if name == "merge":
        return import_module("fsspeckit").merge
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
