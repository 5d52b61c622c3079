"""Print results as one JSON document, as the files in ``schemas/`` describe it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TextIO

from fsspeckit.cli.errors import advice_in_cli_terms
from fsspeckit.display import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsspeckit.cli.commands.init import NewProject
    from fsspeckit.cli.commands.inspect import FoundEngine
    from fsspeckit.cli.commands.report import ServedReport, WrittenReport
    from fsspeckit.core.merge import MergeResult
    from fsspeckit.core.planning import MergePlan
    from fsspeckit.datasets.inspection import Diagnosis, Inspection
    from fsspeckit.datasets.pipeline import (
        CompactPlan,
        CompactResult,
        EvolveResult,
        RepartitionResult,
        WriteDatasetResult,
    )
    from fsspeckit.datasets.verification import VerifyReport
    from fsspeckit.storage import CleanReport, HistoryEntry, RecoveryReport, RestoreResult

__all__ = ["JsonOutput"]

_MERGE_FIELDS = (
    *("strategy", "source_count", "target_count_before", "target_count_after"),
    *("inserted", "updated", "moved", "deleted", "late", "not_found"),
)


class JsonOutput:
    """Writes one JSON document to a stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def _write(self, kind: str, **fields: Any) -> None:
        self._stream.write(json.dumps({"kind": kind, **fields}, indent=2) + "\n")

    def plan(self, plan: MergePlan) -> None:
        """Print what a merge would do."""
        self._write("plan", **plan.to_dict())

    def merged(self, path: str, result: MergeResult) -> None:
        """Print what a merge did."""
        fields = result.to_dict()
        commit = fields["metrics"].get("commit", {})
        self._write(
            "merge",
            path=path,
            **{name: fields[name] for name in _MERGE_FIELDS},
            commit=commit.get("number") if commit.get("published") else None,
            skipped=commit.get("skipped", False),
            notes=[*commit.get("notes", ()), *commit.get("missing", ())],
            seconds=fields["metrics"].get("seconds", {}),
            files=fields["files"],
        )

    def written(self, path: str, result: WriteDatasetResult) -> None:
        """Print what a write did."""
        fields = result.to_dict()
        _as_texts(fields["files"])
        names = ("mode", "total_rows", "files")
        commit = fields["metrics"].get("commit", {})
        about = {
            "replaced_files": fields["metrics"].get("replaced_files", 0),
            "skipped": commit.get("skipped", False),
            "notes": commit.get("notes", []),
        }
        self._write("write", path=path, **{name: fields[name] for name in names}, **about)

    def compaction_planned(self, path: str, plan: CompactPlan) -> None:
        """Print what a compaction would do."""
        fields = {**plan.to_dict(), "path": path}
        commits: dict[str, list[object]] = {"given_up": [], "commits": []}
        self._write("compact", dry_run=True, **fields, **commits, bytes_after=None)

    def compacted(self, path: str, result: CompactResult) -> None:
        """Print what a compaction did."""
        fields = {**result.to_dict(), "path": path}
        commits = fields.pop("metrics").get("commits", [])
        del fields["rows"]
        notes = [note for one in commits for note in (*one["notes"], *one["missing"])]
        numbers = [one["number"] for one in commits]
        self._write("compact", dry_run=False, **fields, commits=numbers, notes=notes)

    def repartitioned(self, path: str, result: RepartitionResult) -> None:
        """Print what repartitioning did, or would do."""
        fields = {**result.to_dict(), "path": path}
        _as_texts(fields["files"])
        commit = fields.pop("metrics").get("commit", {})
        about = {"commit": commit["number"] if commit["published"] else None}
        self._write("repartition", **fields, **about, notes=commit["notes"])

    def evolved(self, path: str, result: EvolveResult) -> None:
        """Print what a schema change did."""
        fields = result.to_dict()
        commit = fields["metrics"].get("commit", {})
        names = ("columns", "changes", "total_rows", "files")
        self._write(
            "evolve",
            path=path,
            **{name: fields[name] for name in names},
            commit=commit.get("number") if commit.get("published") else None,
            notes=[*commit.get("notes", ()), *commit.get("missing", ())],
            seconds=fields["metrics"].get("seconds", {}),
        )

    def inspection(self, found: Inspection) -> None:
        """Print the files, columns and statistics of a dataset."""
        self._write("inspect", **found.to_dict())

    def diagnosis(self, found: Diagnosis) -> None:
        """Print how well merges on a key would prune."""
        document = found.to_dict()
        for finding in document["findings"]:
            finding["advice"] = advice_in_cli_terms(finding["advice"], found.key_columns)
        self._write("doctor", **document)

    def verified(self, report: VerifyReport) -> None:
        """Print what is wrong with a dataset."""
        document = report.to_dict()
        for finding in document["findings"]:
            finding["hint"] = advice_in_cli_terms(finding["hint"], report.key_columns)
        self._write("verify", **document)

    def history(self, path: str, entries: Sequence[HistoryEntry]) -> None:
        """Print the commits of a dataset."""
        self._write("history", path=path, commits=[entry.to_dict() for entry in entries])

    def recovery(self, report: RecoveryReport, *, one_line: bool = False) -> None:
        """Print what recovery completed and removed."""
        document = {"kind": "recover", **report.to_dict()}
        self._stream.write(json.dumps(document, indent=None if one_line else 2) + "\n")

    def restored(self, result: RestoreResult) -> None:
        """Print what an undo or a restore did."""
        self._write("restore", **result.to_dict())

    def cleaned(self, report: CleanReport) -> None:
        """Print what a clean removed."""
        self._write("clean", **report.to_dict())

    def report_written(self, written: WrittenReport) -> None:
        """Print which page was written."""
        self._write("report", **plain(written))

    def report_served(self, served: ServedReport) -> None:
        """Print where the page is."""
        self._write("serve", **plain(served))

    def engines(self, engines: Sequence[FoundEngine]) -> None:
        """Print which engines are installed."""
        self._write("engines", engines=plain(engines))

    def project(self, project: NewProject) -> None:
        """Print what a project consists of."""
        fields = plain(project)
        self._write("init", project=fields.pop("kind"), **fields)


def _as_texts(files: Sequence[dict[str, Any]]) -> None:
    """Write partition values as paths have them."""
    for file in files:
        values = file["partition_values"].items()
        file["partition_values"] = {n: None if v is None else str(v) for n, v in values}
