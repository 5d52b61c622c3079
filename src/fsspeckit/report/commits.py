"""Commits of a report: the history with what each commit did to which files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fsspeckit.report.files import FileNumbers
    from fsspeckit.storage import HistoryEntry

REWRITE_COLUMNS = (
    "method",
    "rowGroupsEncoded",
    "rowGroupsCopied",
    "columnsEncoded",
    "columnsCopied",
    "bytesEncoded",
    "bytesCopied",
    "pagesEncoded",
    "pagesCopied",
    "groups",
    "columns",
)
"""What a record has of each rewritten file, in its order; older ones end earlier."""


@dataclass
class Budget:
    """How much of the lists of files fits into the page; the newest commits come first."""

    numbers: int = 100_000
    rewrites: int = 10_000


def added_by(entries: Iterable[HistoryEntry]) -> dict[str, int]:
    """Return which commit has added a file, by its path below the root."""
    commits: dict[str, int] = {}
    for entry in entries:
        if not entry.abandoned:
            commits.update(dict.fromkeys(entry.added, entry.number))
    return commits


def commit_list(
    entries: Sequence[HistoryEntry], numbers: FileNumbers, budget: Budget
) -> list[dict[str, Any]]:
    """Return commits, the oldest first."""
    newest_first = [_commit(entry, numbers, budget) for entry in reversed(entries)]
    return newest_first[::-1]


def _commit(entry: HistoryEntry, numbers: FileNumbers, budget: Budget) -> dict[str, Any]:
    record = entry.record
    details = (None if record is None else record.facts.details) or {}
    added, removed = _runs(entry, numbers, budget)
    return {
        "number": entry.number,
        "time": entry.time,
        "engine": entry.engine,
        "strategy": entry.strategy,
        "keyColumns": list(entry.key_columns),
        "counts": {name: count for name, count in entry.counts.items() if count},
        "sourceRows": None if record is None else record.facts.source_rows,
        "addedFiles": len(entry.added),
        "removedFiles": len(entry.removed),
        "addedBytes": None if record is None else sum(add.size for add in record.adds),
        "removedBytes": None if record is None else sum(gone.size for gone in record.removes),
        "seconds": entry.seconds,
        "state": entry.state,
        "published": entry.published,
        "id": "" if record is None else record.identifier,
        "transaction": None if entry.transaction is None else str(entry.transaction),
        "notes": list(entry.notes),
        "schemaChanges": list(entry.schema_changes),
        "restores": entry.restores,
        "purged": entry.purged,
        "added": added,
        "removed": removed,
        "detail": _detail(entry, details, numbers, budget) if details else None,
    }


def _runs(
    entry: HistoryEntry, numbers: FileNumbers, budget: Budget
) -> tuple[list[int] | None, list[int] | None]:
    if len(entry.added) + len(entry.removed) > budget.numbers:
        return None, None
    added, removed = numbers.runs_of(entry.added), numbers.runs_of(entry.removed)
    budget.numbers -= len(added or ()) + len(removed or ())
    return added, removed


def _detail(
    entry: HistoryEntry, details: Mapping[str, Any], numbers: FileNumbers, budget: Budget
) -> dict[str, Any] | None:
    """Return how the work was done; None if a later version has recorded it in another form."""
    try:
        return {
            "files": int(details["files"]),
            "prunedBy": {str(kind): int(count) for kind, count in details["pruned_by"].items()},
            "rewrites": _rewrites(entry, details, numbers, budget),
            "seconds": {str(name): float(spent) for name, spent in details["seconds"].items()},
        }
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        return None


def _rewrites(
    entry: HistoryEntry, details: Mapping[str, Any], numbers: FileNumbers, budget: Budget
) -> dict[str, Any] | None:
    recorded: Mapping[str, Any] = details["rewrites"]
    sizes = {} if entry.record is None else {add.final: add.size for add in entry.record.adds}
    if len(recorded) > budget.rewrites:
        return None
    budget.rewrites -= len(recorded)
    found = []
    for text, values in recorded.items():
        position = int(text)
        work = dict(zip(REWRITE_COLUMNS, values, strict=False))
        is_removed = work["method"] == "removed"
        new = None if is_removed else numbers.number_of(entry.added[position])
        old = numbers.number_of(entry.removed[position])
        if old is None or (new is None and not is_removed):
            return None
        if new is not None:
            work = complete_work(work, sizes.get(entry.added[position]))
        found.append({"from": old, "to": new, "reason": "", **work})
    return rewrite_columns(found, [str(name) for name in details.get("columns", ())])


def complete_work(work: dict[str, Any], size: int | None) -> dict[str, Any]:
    """Return what is known of a file's rewrite; one that was rewritten as a whole is encoded."""
    if work["method"] != "full":
        return work
    return {**work, "bytesEncoded": size, "bytesCopied": 0, "groups": None, "columns": None}


def rewrite_columns(
    rewrites: Sequence[Mapping[str, Any]], column_names: Sequence[str]
) -> dict[str, Any]:
    """Return rewritten files as columns; what one does not have is None, as is what none has.

    Args:
        rewrites: The files.
        column_names: The columns that they name by their position.
    """
    methods = list(dict.fromkeys(str(one["method"]) for one in rewrites))
    found: dict[str, Any] = {
        "from": [one["from"] for one in rewrites],
        "to": [one["to"] for one in rewrites],
        "method": [methods.index(str(one["method"])) for one in rewrites],
        "methods": methods,
        "columnNames": list(column_names),
    }
    for name in ("reason", *REWRITE_COLUMNS[1:]):
        values = [one.get(name) for one in rewrites]
        found[name] = None if all(value is None or value == "" for value in values) else values
    return found
