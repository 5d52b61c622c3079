"""The names that callers import, with the parameters they pass."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

from fsspeckit.core import incremental, merge

NO_DEFAULT = inspect.Parameter.empty

# Every function and method: parameters in order, with their defaults.
SIGNATURES: list[tuple[Any, dict[str, Any]]] = [
    (
        incremental.list_dataset_files,
        {"dataset_path": NO_DEFAULT, "filesystem": None},
    ),
    (
        incremental.parse_hive_partition_path,
        {"file_path": NO_DEFAULT, "partition_columns": None, "root": None},
    ),
    (
        incremental.ParquetMetadataAnalyzer.analyze_dataset_files,
        {"self": NO_DEFAULT, "dataset_path": NO_DEFAULT, "filesystem": None},
    ),
    (
        incremental.PartitionPruner.identify_candidate_files,
        {
            "self": NO_DEFAULT,
            "file_metadata": NO_DEFAULT,
            "key_columns": NO_DEFAULT,
            "source_keys": NO_DEFAULT,
            "partition_schema": None,
        },
    ),
    (
        incremental.ConservativeMembershipChecker.file_might_contain_keys,
        {
            "self": NO_DEFAULT,
            "file_metadata": NO_DEFAULT,
            "key_columns": NO_DEFAULT,
            "source_keys": NO_DEFAULT,
        },
    ),
    (
        incremental.confirm_affected_files,
        {
            "candidate_files": NO_DEFAULT,
            "key_columns": NO_DEFAULT,
            "source_keys": NO_DEFAULT,
            "filesystem": None,
        },
    ),
    (
        incremental.validate_no_null_keys,
        {"source_table": NO_DEFAULT, "key_columns": NO_DEFAULT},
    ),
    (
        incremental.validate_partition_column_immutability,
        {
            "source_table": NO_DEFAULT,
            "target_table": NO_DEFAULT,
            "key_columns": NO_DEFAULT,
            "partition_columns": NO_DEFAULT,
        },
    ),
    (
        incremental.merge,
        {
            "data": NO_DEFAULT,
            "path": NO_DEFAULT,
            "strategy": NO_DEFAULT,
            "key_columns": NO_DEFAULT,
            "partition_columns": None,
            "filesystem": None,
            "compression": "snappy",
            "max_rows_per_file": 5_000_000,
            "row_group_size": 500_000,
            "partition_by": None,
            "schema": None,
            "null_keys": "error",
            "duplicate_keys": "error",
            "order_by": None,
            "trust_partitions": False,
            "allow_empty": False,
            "bloom_columns": None,
            "key_index": None,
            "max_rewrite_fraction": None,
            "max_rewrite_bytes": None,
            "delete_when": None,
            "only_newer": None,
            "partition_change": "refuse",
            "schema_changes": "refuse",
            "transaction": None,
            "target_file_bytes": None,
            "auto_compact": False,
            "progress": None,
            "engine": "spark",
            "storage_options": None,
        },
    ),
    (
        incremental.IncrementalFileManager.create_staging_directory,
        {"self": NO_DEFAULT, "base_path": NO_DEFAULT},
    ),
    (
        incremental.IncrementalFileManager.atomic_replace_files,
        {
            "self": NO_DEFAULT,
            "source_files": NO_DEFAULT,
            "target_files": NO_DEFAULT,
            "filesystem": None,
        },
    ),
    (
        incremental.IncrementalFileManager.cleanup_staging_files,
        {"self": NO_DEFAULT},
    ),
    (
        incremental.plan_incremental_rewrite,
        {
            "dataset_path": NO_DEFAULT,
            "source_keys": NO_DEFAULT,
            "key_columns": NO_DEFAULT,
            "filesystem": None,
            "partition_schema": None,
        },
    ),
    (
        merge.validate_rewrite_mode_compatibility,
        {"strategy": NO_DEFAULT, "rewrite_mode": NO_DEFAULT},
    ),
]

# Every value: its first fields, in order. What follows has a default.
FIELDS: list[tuple[Any, list[str]]] = [
    (
        incremental.ParquetFileMetadata,
        ["path", "row_group_count", "total_rows", "column_stats", "partition_values"],
    ),
    (
        incremental.IncrementalRewritePlan,
        ["affected_files", "unaffected_files", "new_files", "affected_rows"],
    ),
    (
        incremental.MergeFileMetadata,
        ["path", "row_count", "operation", "size_bytes"],
    ),
    (
        incremental.MergeResult,
        [
            "strategy",
            "source_count",
            "target_count_before",
            "target_count_after",
            "inserted",
            "updated",
            "deleted",
            "files",
            "rewritten_files",
            "inserted_files",
            "preserved_files",
        ],
    ),
]


@pytest.mark.parametrize(
    ("function", "expected"), SIGNATURES, ids=lambda v: getattr(v, "__name__", "")
)
def test_public_functions_have_the_promised_parameters(
    function: Any, expected: dict[str, Any]
) -> None:
    parameters = inspect.signature(function).parameters
    assert {name: found.default for name, found in parameters.items()} == expected
    assert list(parameters) == list(expected)


def test_root_is_keyword_only() -> None:
    parameters = inspect.signature(incremental.parse_hive_partition_path).parameters
    assert parameters["root"].kind is inspect.Parameter.KEYWORD_ONLY


@pytest.mark.parametrize(("value", "expected"), FIELDS, ids=lambda v: getattr(v, "__name__", ""))
def test_public_values_have_the_promised_fields(value: Any, expected: list[str]) -> None:
    fields = dataclasses.fields(value)
    assert [field.name for field in fields][: len(expected)] == expected
    for extra in fields[len(expected) :]:
        has_default = extra.default is not dataclasses.MISSING
        assert has_default or extra.default_factory is not dataclasses.MISSING


def test_optional_fields_default_to_none() -> None:
    assert incremental.MergeFileMetadata("x", 1, "preserved").size_bytes is None
    assert incremental.ParquetFileMetadata("x", 1, 1, {}).partition_values is None


@pytest.mark.parametrize("module", [incremental, merge])
def test_every_exported_name_is_there_and_documented(module: Any) -> None:
    for name in module.__all__:
        assert inspect.getdoc(getattr(module, name))


def test_classes_are_made_without_arguments() -> None:
    for kind in (
        incremental.ParquetMetadataAnalyzer,
        incremental.PartitionPruner,
        incremental.ConservativeMembershipChecker,
    ):
        kind()


def test_the_results_of_a_merge_are_the_same_classes_in_both_modules() -> None:
    assert incremental.MergeResult is merge.MergeResult
    assert incremental.MergeFileMetadata is merge.MergeFileMetadata
