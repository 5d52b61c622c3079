"""Checks of a report: what doctor and verify found, with what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fsspeckit.display import counted, size
from fsspeckit.report.files import as_runs
from fsspeckit.storage import current_activity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fsspeckit.datasets.inspection import Diagnosis, Finding, Survey
    from fsspeckit.datasets.verification import VerifyReport
    from fsspeckit.storage import Storage

MAX_FINDINGS = 1_000
"""Of how many findings of a check the page has the text."""

_NO_KEY = (
    "No merge is on record, so the key is not known. Name it with --key to see key ranges and to "
    "check how merges would do."
)

_VERDICTS = {
    "refused": ("error", "would be refused"),
    "poor": ("warning", "would read many files without a key of the source"),
    "good": ("good", "would read few files without a key of the source"),
}


def doctor_check(found: Diagnosis, numbers: Mapping[str, int]) -> dict[str, Any]:
    """Return how merges on the key would do."""
    outcome, would = _VERDICTS[found.verdict]
    if outcome == "good" and any(finding.severity == "warning" for finding in found.findings):
        outcome = "warning"
    keys = ", ".join(found.key_columns)
    return _check("doctor", f"Merges by {keys} {would}", outcome, found.findings, numbers)


def survey_check(found: Survey) -> dict[str, Any]:
    """Return what can be said of a dataset whose key is not known."""
    findings = []
    for obstacle in found.obstacles:
        what, _, advice = obstacle.partition(" Hint: ")
        findings.append(_finding("error", what, advice, [], ""))
    for number in found.pending:
        findings.append(
            _finding("warning", f"commit {number} is not complete.", "call recover().", [], "")
        )
    title = "No key is known" if found.target.footers else "The dataset has no data files"
    return {
        "kind": "doctor",
        "title": "Merges would be refused" if found.obstacles else title,
        "outcome": "error" if found.obstacles else "warning" if findings else "unknown",
        "findings": findings,
        "notes": [] if found.key_columns else [_NO_KEY],
    }


def add_leftovers(check: dict[str, Any], storage: Storage) -> None:
    """Add what writers that are gone have left, unless a commit needs it."""
    activity = current_activity(storage)
    found = [
        _finding(
            "warning",
            f"a writer that is gone has left {counted(writer.staged_files, 'staged file')} of "
            f"{size(writer.staged_bytes)}.",
            "call recover(); the next writer would do it, too.",
            [],
            writer.name,
        )
        for writer in activity.writers
        if writer.is_running is False and not activity.pending
    ]
    check["findings"] += found
    if found and check["outcome"] in ("good", "unknown"):
        check["outcome"] = "warning"


def verify_check(report: VerifyReport, numbers: Mapping[str, int]) -> dict[str, Any]:
    """Return what a verification found."""
    outcome = "error" if report.errors else "warning" if report.warnings else "good"
    findings = [
        _finding(found.severity, found.what, found.hint, _runs([found.file], numbers), found.where)
        for found in report.findings[:MAX_FINDINGS]
    ]
    left = len(report.findings) - len(findings)
    more = [f"{left:,} more findings are left out."] if left else []
    return {
        "kind": "verify",
        "title": report.title,
        "outcome": outcome,
        "findings": findings,
        "notes": [*report.notes, *more],
    }


def _check(
    kind: str,
    title: str,
    outcome: str,
    findings: Sequence[Finding],
    numbers: Mapping[str, int],
) -> dict[str, Any]:
    return {
        "kind": kind,
        "title": title,
        "outcome": outcome,
        "findings": [
            _finding(found.severity, found.what, found.advice, _runs(found.files, numbers), "")
            for found in findings[:MAX_FINDINGS]
        ],
        "notes": [],
    }


def _finding(severity: str, what: str, advice: str, files: list[int], where: str) -> dict[str, Any]:
    return {"severity": severity, "what": what, "advice": advice, "files": files, "where": where}


def _runs(paths: Iterable[str | None], numbers: Mapping[str, int]) -> list[int]:
    return as_runs(numbers[path] for path in paths if path is not None and path in numbers)
