"""The change of a report: what a plan would do, or what a merge did, file by file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fsspeckit.core.merge import preposition
from fsspeckit.report.commits import complete_work, rewrite_columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fsspeckit.core.merge import MergeResult
    from fsspeckit.core.planning import FilePlan, MergePlan
    from fsspeckit.report.files import FileNumbers

MAX_GROUPS = 100_000
"""Of more row groups that have a key, it is only known how many."""

_METRICS = {
    "method": "method",
    "rowGroupsEncoded": "row_groups_encoded",
    "rowGroupsCopied": "row_groups_copied",
    "columnsEncoded": "columns_encoded",
    "columnsCopied": "columns_copied",
    "bytesEncoded": "bytes_encoded",
    "bytesCopied": "bytes_copied",
    "pagesEncoded": "pages_encoded",
    "pagesCopied": "pages_copied",
    "groups": "encoded_row_groups",
}
"""What the metrics of a result call it."""


@dataclass(frozen=True)
class PageFiles:
    """The files that a page shows, in its order."""

    root: str
    """The dataset, as paths of plans and results begin."""

    paths: Sequence[str]
    numbers: FileNumbers

    def relative(self, path: str) -> str:
        """Return the path of a plan or a result below the dataset."""
        return path.removeprefix(self.root.rstrip("/") + "/")


class _Decisions:
    """Collects a decision and its evidence for each file."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._evidences: dict[tuple[str, tuple[str, ...], str], int] = {}
        self._found: dict[str, tuple[int, int | None]] = {}

    def add(
        self, path: str, decision: str, evidence: tuple[str, tuple[str, ...], str] | None
    ) -> None:
        name = self._names.setdefault(decision, len(self._names))
        why = None
        if evidence is not None:
            why = self._evidences.setdefault(evidence, len(self._evidences))
        self._found[path] = (name, why)

    def columns(self, paths: Sequence[str]) -> dict[str, Any]:
        found = [self._found.get(path, (None, None)) for path in paths]
        return {
            "decisions": list(self._names),
            "decision": [name for name, _ in found],
            "evidences": [
                {"kind": kind, "columns": list(columns), "text": text}
                for kind, columns, text in self._evidences
            ],
            "evidence": [why for _, why in found],
        }


def _evidence(file: FilePlan) -> tuple[str, tuple[str, ...], str]:
    return file.evidence.kind, file.evidence.columns, file.why


def plan_change(plan: MergePlan, files: PageFiles) -> dict[str, Any]:
    """Return what a plan says of the files of a page."""
    decisions = _Decisions()
    for file in plan.files:
        decisions.add(files.relative(file.path), file.decision, _evidence(file))
    return {
        "kind": "plan",
        "title": str(plan).partition("\n")[0],
        "strategy": plan.strategy,
        "keyColumns": list(plan.key_columns),
        "sourceRows": plan.source_rows,
        "where": plan.where,
        "counts": {},
        "commit": None,
        **decisions.columns(files.paths),
        "groups": _groups(plan, files),
        "rewrites": None,
        "removed": [],
        "seconds": {},
        "notes": [*(f"column {change}" for change in plan.schema_changes), *plan.notes],
    }


def _groups(plan: MergePlan, files: PageFiles) -> dict[str, list[int]]:
    """Return the row groups that have, or may have, a key, by the number of their file."""
    left = MAX_GROUPS
    found: dict[str, list[int]] = {}
    for file in plan.files:
        left -= len(file.row_groups)
        if left < 0:
            break
        number = files.numbers.number_of(files.relative(file.path))
        if file.row_groups and number is not None:
            found[str(number)] = list(file.row_groups)
    return found


def result_change(result: MergeResult, plan: MergePlan | None, files: PageFiles) -> dict[str, Any]:
    """Return what a merge did to the files of a page."""
    planned = {} if plan is None else {file.path: file for file in plan.files}
    renamed: Mapping[str, str] = result.metrics.get("renamed", {})
    decisions = _Decisions()
    for file in result.files:
        old = planned.get(file.path)
        decision: str = {"inserted": "added", "preserved": "unchanged"}.get(
            file.operation, file.operation
        )
        if old is not None and old.decision in ("pruned", "guarded"):
            decision = old.decision
        decisions.add(files.relative(file.path), decision, None if old is None else _evidence(old))
    for before, after in renamed.items():
        if before in planned:
            decisions.add(files.relative(after), "rewritten", _evidence(planned[before]))
    kept = {file.path for file in result.files}
    removed = [path for path in planned if path not in kept and path not in renamed]
    commit = result.metrics.get("commit", {})
    return {
        "kind": "result",
        "title": _title(result, files.root),
        "strategy": result.strategy,
        "keyColumns": [] if plan is None else list(plan.key_columns),
        "sourceRows": result.source_count,
        "where": None if plan is None else plan.where,
        "counts": _counts(result),
        "commit": commit.get("number") if commit.get("published") else None,
        **decisions.columns(files.paths),
        "groups": {} if plan is None else _groups(plan, files),
        "rewrites": _rewrites(result, renamed, files),
        "removed": files.numbers.runs_of(map(files.relative, removed)) or [],
        "seconds": {**result.metrics.get("seconds", {})},
        "notes": list(commit.get("notes", ())),
    }


def _title(result: MergeResult, root: str) -> str:
    changes = ", ".join(f"{count:,} {name}" for name, count in _counts(result).items())
    done = changes or "nothing changed"
    return f"{result.title} {preposition(result.strategy)} {root!r}: {done}"


def _counts(result: MergeResult) -> dict[str, int]:
    names = ("inserted", "updated", "moved", "deleted", "late", "not_found")
    return {name: count for name in names if (count := getattr(result, name))}


def _rewrites(result: MergeResult, renamed: Mapping[str, str], files: PageFiles) -> dict[str, Any]:
    found = []
    positions: dict[str, int] = {}
    sizes = {file.path: file.size_bytes for file in result.files}
    for path, metrics in result.metrics.get("rewrites", {}).items():
        if path not in renamed and metrics["method"] != "removed":
            continue  # no value changed
        old = files.numbers.number_of(files.relative(path))
        after = renamed.get(path)
        new = None if after is None else files.numbers.number_of(files.relative(after))
        if old is None or (new is None and after is not None):
            continue
        work = {name: metrics.get(metric) for name, metric in _METRICS.items()}
        work["columns"] = [
            positions.setdefault(name, len(positions)) for name in metrics["encoded_columns"]
        ]
        work = complete_work(work, sizes.get(after or ""))
        found.append({"from": old, "to": new, "reason": metrics["reason"], **work})
    return rewrite_columns(found, list(positions))
