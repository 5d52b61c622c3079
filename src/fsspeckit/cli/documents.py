"""Results as JSON documents; ``schemas/`` describes them, and a test compares both."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fsspeckit.cli.engines import FoundEngine
    from fsspeckit.core.incremental.planning import FilePlan, MergePlan
    from fsspeckit.core.merge import MergeResult
    from fsspeckit.datasets.diagnosis import Diagnosis
    from fsspeckit.datasets.inspection import Inspection
    from fsspeckit.datasets.results import WriteDatasetResult
    from fsspeckit.storage.history import HistoryEntry
    from fsspeckit.storage.recovery import RecoveryReport

__all__ = [
    "of_diagnosis",
    "of_engines",
    "of_history",
    "of_inspection",
    "of_merge",
    "of_plan",
    "of_recovery",
    "of_write",
]


def of_plan(plan: MergePlan) -> dict[str, Any]:
    """What a merge would do."""
    affected = plan.with_decision("affected")
    return {
        "kind": "plan",
        "path": plan.path,
        "strategy": plan.strategy,
        "key_columns": list(plan.key_columns),
        "partition_columns": list(plan.partition_columns),
        "source_rows": plan.source_rows,
        "target_rows": plan.target_rows,
        "target_bytes": sum(file.bytes for file in plan.files),
        "affected_files": len(affected),
        "affected_bytes": sum(file.bytes for file in affected),
        "trusted_partitions": plan.trusted_partitions,
        "files": [_planned(file) for file in plan.files],
    }


def _planned(file: FilePlan) -> dict[str, Any]:
    return {
        "path": file.path,
        "rows": file.rows,
        "bytes": file.bytes,
        "decision": file.decision,
        "evidence": {
            "kind": file.evidence.kind,
            "columns": list(file.evidence.columns),
            "detail": file.evidence.detail,
        },
        "row_groups": list(file.row_groups),
        "row_group_count": file.row_group_count,
        "partition_values": dict(file.partition_values),
    }


def of_merge(path: str, result: MergeResult) -> dict[str, Any]:
    """What a merge did."""
    commit = result.metrics.get("commit", {})
    return {
        "kind": "merge",
        "path": path,
        "strategy": result.strategy,
        "source_count": result.source_count,
        "target_count_before": result.target_count_before,
        "target_count_after": result.target_count_after,
        "inserted": result.inserted,
        "updated": result.updated,
        "deleted": result.deleted,
        "commit": commit.get("number") if commit.get("published") else None,
        "notes": [*commit.get("notes", ()), *commit.get("missing", ())],
        "seconds": dict(result.metrics.get("seconds", {})),
        "files": [
            {
                "path": file.path,
                "operation": file.operation,
                "row_count": file.row_count,
                "size_bytes": file.size_bytes,
            }
            for file in result.files
        ],
    }


def of_write(path: str, result: WriteDatasetResult) -> dict[str, Any]:
    """What a write did."""
    return {
        "kind": "write",
        "path": path,
        "mode": result.mode,
        "total_rows": result.total_rows,
        "files": [
            {
                "path": file.path,
                "row_count": file.row_count,
                "size_bytes": file.size_bytes,
                "partition_values": _texts(file.partition_values),
            }
            for file in result.files
        ],
    }


def _texts(values: Mapping[str, Any]) -> dict[str, str | None]:
    return {name: None if value is None else str(value) for name, value in values.items()}


def of_inspection(found: Inspection) -> dict[str, Any]:
    """What a dataset looks like."""
    document = asdict(found)
    totals = {"rows": found.rows, "bytes": found.bytes, "row_groups": found.row_groups}
    return {"kind": "inspect", **_plain(document), **totals}


def of_diagnosis(found: Diagnosis) -> dict[str, Any]:
    """How merges on a key would do."""
    from fsspeckit.cli.failures import in_words_of_options

    document = _plain(asdict(found))
    for finding in document["findings"]:
        finding["advice"] = in_words_of_options(finding["advice"])
    return {"kind": "doctor", "verdict": found.verdict, **document}


def of_history(path: str, entries: Sequence[HistoryEntry]) -> dict[str, Any]:
    """The commits of a dataset."""
    names = (
        *("number", "time", "engine", "strategy", "key_columns", "counts", "added", "removed"),
        *("seconds", "published", "complete", "recovered", "abandoned", "notes"),
    )
    listed = [{name: _plain(getattr(entry, name)) for name in names} for entry in entries]
    return {"kind": "history", "path": path, "commits": listed}


def of_recovery(report: RecoveryReport) -> dict[str, Any]:
    """What recovery did."""
    return {
        "kind": "recover",
        "path": report.path,
        "completed": [
            {
                "number": commit.number,
                "published": commit.published,
                "added": list(commit.added),
                "removed": list(commit.removed),
                "notes": list(commit.notes),
                "abandoned": commit.abandoned,
            }
            for commit in report.completed
        ],
        "discarded": list(report.discarded),
        "in_use": list(report.in_use),
    }


def of_engines(engines: Sequence[FoundEngine]) -> dict[str, Any]:
    """Which engines are there."""
    return {"kind": "engines", "engines": [asdict(engine) for engine in engines]}


def _plain(value: Any) -> Any:
    """Tuples as lists, mappings as dicts, all the way down."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value
