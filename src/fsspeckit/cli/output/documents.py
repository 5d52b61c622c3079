"""Results as JSON documents; ``schemas/`` describes them, and a test compares both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fsspeckit.display import plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fsspeckit.cli.commands.inspect import FoundEngine
    from fsspeckit.core.merge import MergeResult
    from fsspeckit.core.planning import MergePlan
    from fsspeckit.datasets.inspection import Diagnosis, Inspection
    from fsspeckit.datasets.pipeline import WriteDatasetResult
    from fsspeckit.storage import HistoryEntry, RecoveryReport

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
    return {"kind": "plan", **plan.to_dict()}


def of_merge(path: str, result: MergeResult) -> dict[str, Any]:
    """What a merge did."""
    told = result.to_dict()
    commit = told["metrics"].get("commit", {})
    names = (
        *("strategy", "source_count", "target_count_before", "target_count_after"),
        *("inserted", "updated", "deleted"),
    )
    return {
        "kind": "merge",
        "path": path,
        **{name: told[name] for name in names},
        "commit": commit.get("number") if commit.get("published") else None,
        "notes": [*commit.get("notes", ()), *commit.get("missing", ())],
        "seconds": told["metrics"].get("seconds", {}),
        "files": told["files"],
    }


def of_write(path: str, result: WriteDatasetResult) -> dict[str, Any]:
    """What a write did."""
    told = result.to_dict()
    for file in told["files"]:
        file["partition_values"] = _texts(file["partition_values"])
    names = ("mode", "total_rows", "files")
    return {"kind": "write", "path": path, **{name: told[name] for name in names}}


def _texts(values: Mapping[str, Any]) -> dict[str, str | None]:
    return {name: None if value is None else str(value) for name, value in values.items()}


def of_inspection(found: Inspection) -> dict[str, Any]:
    """What a dataset looks like."""
    totals = {"rows": found.rows, "bytes": found.bytes, "row_groups": found.row_groups}
    return {"kind": "inspect", **plain(found), **totals}


def of_diagnosis(found: Diagnosis) -> dict[str, Any]:
    """How merges on a key would do."""
    from fsspeckit.cli.errors import to_cli_terms

    document = plain(found)
    for finding in document["findings"]:
        finding["advice"] = to_cli_terms(finding["advice"])
    return {"kind": "doctor", "verdict": found.verdict, **document}


def of_history(path: str, entries: Sequence[HistoryEntry]) -> dict[str, Any]:
    """The commits of a dataset."""
    return {"kind": "history", "path": path, "commits": [entry.to_dict() for entry in entries]}


def of_recovery(report: RecoveryReport) -> dict[str, Any]:
    """What recovery did."""
    return {"kind": "recover", **report.to_dict()}


def of_engines(engines: Sequence[FoundEngine]) -> dict[str, Any]:
    """Which engines are there."""
    return {"kind": "engines", "engines": plain(engines)}
