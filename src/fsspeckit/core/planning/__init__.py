"""Planning: which files and row groups a merge must touch, and on what evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsspeckit.core.planning.bins import (
    Bin,
    BinLimits,
    Overlap,
    by_directory,
    overlap_of,
    pack_bins,
)
from fsspeckit.core.planning.condition_pruning import ConditionVerdict, prune_by_condition
from fsspeckit.core.planning.footer_cache import FooterCache, is_settled, wrong_summaries
from fsspeckit.core.planning.footers import (
    FileFooter,
    gc_disabled,
    raw_footer,
    read_footer,
    read_footers,
)
from fsspeckit.core.planning.plan import (
    EVOLVE,
    FilePlan,
    IncrementalRewritePlan,
    MergePlan,
    PlanReason,
    plan_condition,
    plan_duplicates,
    plan_evolution,
    plan_files,
    plan_incremental_rewrite,
)
from fsspeckit.core.planning.pruning import (
    ColumnBounds,
    KeyOverlap,
    PartitionValues,
    constant_bounds,
    key_bounds,
    statistics_bounds,
    trusted_overlap,
)
from fsspeckit.core.planning.target import (
    PartitionDirectories,
    Target,
    check_partition_value,
    check_utf8_paths,
    detect_partition_columns,
    parse_hive_partition_path,
    parse_partition_values,
    partition_keys,
    partition_values,
    read_target,
)

if TYPE_CHECKING:
    from fsspeckit.core.planning.footers import FooterReader as FooterReader

__all__ = [
    "EVOLVE",
    "Bin",
    "BinLimits",
    "ColumnBounds",
    "ConditionVerdict",
    "FileFooter",
    "FilePlan",
    "FooterCache",
    "IncrementalRewritePlan",
    "KeyOverlap",
    "MergePlan",
    "Overlap",
    "PartitionDirectories",
    "PartitionValues",
    "PlanReason",
    "Target",
    "by_directory",
    "check_partition_value",
    "check_utf8_paths",
    "constant_bounds",
    "detect_partition_columns",
    "gc_disabled",
    "is_settled",
    "key_bounds",
    "overlap_of",
    "pack_bins",
    "parse_hive_partition_path",
    "parse_partition_values",
    "partition_keys",
    "partition_values",
    "plan_condition",
    "plan_duplicates",
    "plan_evolution",
    "plan_files",
    "plan_incremental_rewrite",
    "prune_by_condition",
    "raw_footer",
    "read_footer",
    "read_footers",
    "read_target",
    "statistics_bounds",
    "trusted_overlap",
    "wrong_summaries",
]
