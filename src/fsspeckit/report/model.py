"""The model of a report: the JSON document that the page shows, from what others have found out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

from fsspeckit.core.merge import MergeResult
from fsspeckit.core.planning import MergePlan
from fsspeckit.datasets.inspection import (
    SMALL_BYTES,
    Survey,
    diagnosis_of,
    inspection_of,
    survey,
)
from fsspeckit.display import Paged
from fsspeckit.errors import InvalidArgumentError
from fsspeckit.report.axes import Ranges, axis, cut_text, overlaps, ranges_of
from fsspeckit.report.change import PageFiles, plan_change, result_change
from fsspeckit.report.checks import add_leftovers, doctor_check, survey_check, verify_check
from fsspeckit.report.commits import Budget, added_by, commit_list
from fsspeckit.report.files import FileNumbers, file_columns, file_names
from fsspeckit.report.live import generation_of, live_state
from fsspeckit.report.page import encode_model, fill_page
from fsspeckit.storage import History

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsspeckit.datasets.inspection import Inspection
    from fsspeckit.datasets.verification import VerifyReport
    from fsspeckit.storage import Storage

Model = dict[str, Any]
View = Literal["files", "change", "history", "checks", "live"]

MODEL_VERSION = 1
MAX_MODEL_BYTES = 4_500_000
"""A page is kept under 5 MB, of which the rest is script and style."""


@dataclass(frozen=True)
class Limits:
    """What a page has at most of everything that grows with the dataset."""

    row_groups: int = 20_000
    commits: int = 2_000
    gone: int = 20_000
    """Files that are not in the dataset any more."""

    numbers: int = 100_000
    """Entries in the lists of files of all commits."""

    rewrites: int = 10_000

    def smaller(self) -> Limits:
        """Return limits for a page that has become too large."""
        return Limits(
            self.row_groups // 4,
            max(100, self.commits // 2),
            self.gone // 4,
            self.numbers // 4,
            self.rewrites // 4,
        )


DEFAULT_LIMITS = Limits()


def page_of(value: Any) -> str:
    """Return the page of a plan, a result or a history, which know their dataset.

    That of a merge shows what became of each file; others open with the commits.

    Raises:
        InvalidArgumentError: If there is no page of such a value.
    """
    if isinstance(value, MergePlan):
        storage = None if value.origin is None else value.origin.storage
        model = plan_model(value) if storage is None else report_model(storage, change=value)
        return fill_page(model)
    if isinstance(value, Paged):
        origin = value if isinstance(value, History) else getattr(value, "origin", None)
        storage = None if origin is None else origin.storage
        if storage is None:
            raise InvalidArgumentError(
                f"this {type(value).__name__} does not know its dataset any more: it is a copy, "
                "or comes from another process.\n"
                "Hint: make the page where the result was made, or run 'fsspeckit report'."
            )
        if isinstance(value, MergeResult):
            return fill_page(report_model(storage, change=value))
        return fill_page(report_model(storage, view="history"))
    raise InvalidArgumentError(
        f"there is no page of a {type(value).__name__}.\n"
        "Hint: plans, results and histories have one."
    )


def report_model(
    storage: Storage,
    key_columns: Sequence[str] | None = None,
    *,
    change: MergePlan | MergeResult | None = None,
    verified: VerifyReport | None = None,
    view: View | None = None,
    live: bool = False,
    limits: Limits = DEFAULT_LIMITS,
) -> Model:
    """Return the model of a dataset as it is now; changes nothing.

    Args:
        storage: The dataset.
        key_columns: Whose ranges to show; by default those of the change, or of the last merge.
        change: A plan, or the result of a merge.
        verified: What a verification found.
        view: What the page opens with; by default the change, or the files.
        live: Whether the page asks its server what happens.
        limits: What to leave out; lowered as long as the model is too large.

    Raises:
        FileNotFoundError: If there is neither a dataset nor a control directory, and no change.
        InvalidArgumentError: If a key column is in no file.
        CorruptRecordError: If a commit record cannot be understood.
    """
    if change is None and view is None:
        storage.check_exists()  # a plan may be of a dataset that is not there yet
    if key_columns is None and isinstance(change, MergePlan):
        key_columns = change.key_columns or None
    surveyed = survey(storage, key_columns)
    is_named = key_columns is not None
    while True:
        report = _Report(surveyed, limits, is_named=is_named)
        model = report.model(change, verified, view or ("files" if change is None else "change"))
        model["live"] = live_state(storage) if live else None
        if limits.row_groups < 100 or len(encode_model(model)) <= MAX_MODEL_BYTES:
            return model
        limits = limits.smaller()


class _Report:
    """One model of a dataset that was surveyed."""

    def __init__(self, surveyed: Survey, limits: Limits, *, is_named: bool) -> None:
        self._surveyed = surveyed
        self._limits = limits
        self._is_named = is_named
        self._notes: list[str] = []
        root, footers = surveyed.storage.root, surveyed.target.footers
        self._footers = footers
        self._paths = [root.relative(footer.file.path) for footer in footers]
        self._numbers = FileNumbers(self._paths, limits.gone)
        self._inspection = inspection_of(surveyed)

    def model(
        self, change: MergePlan | MergeResult | None, verified: VerifyReport | None, view: View
    ) -> Model:
        """Return everything but the live state."""
        surveyed, history = self._surveyed, self._surveyed.history
        has_groups = self._inspection.row_groups <= self._limits.row_groups
        ranges = [
            ranges_of(self._footers, bounds, with_groups=has_groups) for bounds in surveyed.bounds
        ]
        if not has_groups:
            self._notes.append(
                f"The {self._inspection.row_groups:,} row groups are too many for one page: their "
                "ranges are left out, those of files are there."
            )
        changed = None if change is None else self._change(change)
        recent = history[-self._limits.commits :]
        budget = Budget(self._limits.numbers, self._limits.rewrites)
        commits = commit_list(recent, self._numbers, budget)
        if any(commit["added"] is None or commit["removed"] is None for commit in commits):
            self._notes.append("The lists of files of older commits are left out for their size.")
        return {
            **model_head(view, self._generation()),
            "dataset": _dataset(surveyed, self._inspection),
            "files": {
                **file_columns(surveyed, self._paths, added_by(history)),
                "overlaps": overlaps(ranges),
            },
            "gone": file_names(self._numbers.gone),
            "axes": [axis(one, self._footers) for one in ranges],
            "rowGroups": self._row_groups(ranges) if has_groups else None,
            "commits": commits,
            "commitsLeftOut": len(history) - len(recent),
            "pending": list(surveyed.pending),
            "change": changed,
            "checks": self._checks(verified),
            "notes": self._notes,
        }

    def _generation(self) -> str:
        history = self._surveyed.history
        return generation_of(history[-1].number if history else 0, self._surveyed.pending)

    def _change(self, change: MergePlan | MergeResult) -> dict[str, Any]:
        root = self._surveyed.storage.root
        files = PageFiles(root.to_user_path(root.path), self._paths, self._numbers)
        if isinstance(change, MergePlan):
            seen = {files.relative(file.path) for file in change.files}
            if seen != set(self._paths):
                self._notes.append(
                    "The dataset has changed since the plan was made: files that came later have "
                    "no decision, and files that are gone are left out."
                )
            return plan_change(change, files)
        plan = None if change.origin is None else change.origin.plan
        return result_change(change, plan, files)

    def _row_groups(self, ranges: Sequence[Ranges]) -> dict[str, Any]:
        groups = list(chain.from_iterable(footer.row_groups for footer in self._footers))
        return {
            "rows": [group.rows for group in groups],
            "bytes": [group.bytes for group in groups],
            "low": [one.group_low.tolist() for one in ranges],
            "high": [one.group_high.tolist() for one in ranges],
        }

    def _checks(self, verified: VerifyReport | None) -> list[dict[str, Any]]:
        surveyed = self._surveyed
        numbers = {path: number for number, path in enumerate(self._paths)}
        checks = []
        if self._footers and surveyed.key_columns:
            checks.append(doctor_check(diagnosis_of(surveyed, surveyed.key_columns), numbers))
        else:
            checks.append(survey_check(surveyed))
        add_leftovers(checks[0], surveyed.storage)
        return checks + ([] if verified is None else [verify_check(verified, numbers)])


def model_head(view: View, generation: str) -> Model:
    """Return what every model begins with."""
    from fsspeckit import __version__

    return {
        "version": MODEL_VERSION,
        "fsspeckit": __version__,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "view": view,
        "generation": generation,
        "live": None,
    }


def _dataset(surveyed: Survey, found: Inspection) -> dict[str, Any]:
    pruning = found.key_pruning
    return {
        "path": found.path,
        "exists": bool(found.files) or bool(found.commits),
        "rows": found.rows,
        "bytes": found.bytes,
        "rowGroups": found.row_groups,
        "columns": [
            {
                "name": column.name,
                "type": column.type,
                "isPartition": column.is_partition,
                "isKey": column.is_key,
                "low": None if column.low is None else cut_text(column.low),
                "high": None if column.high is None else cut_text(column.high),
                "nulls": column.nulls,
                "knownRowGroups": column.known_row_groups,
                "bloomRowGroups": column.bloom_row_groups,
            }
            for column in found.columns
        ],
        "partitionColumns": list(found.partition_columns),
        "keyColumns": list(surveyed.key_columns),
        "smallBytes": SMALL_BYTES,
        "filesOfOneKey": None if pruning is None else pruning.files_of_one_key,
        "mostFilesOfOneKey": None if pruning is None else pruning.most_files_of_one_key,
    }


def plan_model(plan: MergePlan) -> Model:
    """Return the model of a plan that does not know its dataset: what the plan itself has."""
    root = plan.path.rstrip("/") + "/"
    paths = [file.path.removeprefix(root) for file in plan.files]
    numbers = FileNumbers(paths, 0)
    names = file_names(paths)
    partitions: dict[int, list[str | None]] = {}
    for directory, file in zip(names["directory"], plan.files, strict=True):
        values = [file.partition_values.get(name) for name in plan.partition_columns]
        partitions.setdefault(directory, values)
    unknown = [None] * len(paths)
    return {
        **model_head("change", ""),
        "dataset": _planned_dataset(plan),
        "files": {
            **names,
            "partitions": [partitions[number] for number in range(len(names["directories"]))],
            "rows": [file.rows for file in plan.files],
            "bytes": [file.bytes for file in plan.files],
            "groups": [file.row_group_count for file in plan.files],
            "commit": unknown,
            "writer": unknown,
            "writers": [],
            "overlaps": None,
            "errors": {},
        },
        "gone": file_names([]),
        "axes": [],
        "rowGroups": None,
        "commits": [],
        "commitsLeftOut": 0,
        "pending": [],
        "change": plan_change(plan, PageFiles(plan.path, paths, numbers)),
        "checks": [],
        "notes": [
            "The plan does not know its dataset any more: key ranges and history are left out."
        ],
    }


def _planned_dataset(plan: MergePlan) -> dict[str, Any]:
    return {
        "path": plan.path,
        "exists": True,
        "rows": plan.target_rows,
        "bytes": sum(file.bytes for file in plan.files),
        "rowGroups": sum(file.row_group_count for file in plan.files),
        "columns": [],
        "partitionColumns": list(plan.partition_columns),
        "keyColumns": list(plan.key_columns),
        "smallBytes": SMALL_BYTES,
        "filesOfOneKey": None,
        "mostFilesOfOneKey": None,
    }
