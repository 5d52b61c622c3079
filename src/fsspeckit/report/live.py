"""The live state of a report: what writers do just now, as the page reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fsspeckit.storage import current_activity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fsspeckit.storage import Storage, WriterActivity

_REMOTE = (
    "Writers publish their phases on local disks only: elsewhere each would be a request. Staged "
    "files and commits are shown."
)


def live_state(storage: Storage) -> dict[str, Any]:
    """Return what happens in a dataset; changes nothing."""
    activity = current_activity(storage)
    return {
        "generation": generation_of(activity.number, activity.pending),
        "time": activity.time,
        "writers": [_writer(writer) for writer in activity.writers],
        "incoming": [
            {"query": rows.query, "batch": rows.batch, "files": rows.files, "bytes": rows.bytes}
            for rows in activity.incoming
        ],
        "pending": list(activity.pending),
        "notes": [] if storage.root.is_local else [_REMOTE],
    }


def generation_of(number: int, pending: Iterable[int]) -> str:
    """Identify a state of a dataset: the last commit, and those that are not complete."""
    return "+".join(map(str, (number, *pending)))


def _writer(writer: WriterActivity) -> dict[str, Any]:
    return {
        "id": writer.name,
        "host": writer.host,
        "process": writer.process,
        "isRunning": writer.is_running,
        "started": writer.started,
        "engine": writer.engine,
        "strategy": writer.strategy,
        "transaction": writer.transaction,
        "phases": [
            {
                "name": phase.name,
                "done": phase.done,
                "total": phase.total,
                "seconds": round(phase.seconds, 3),
                "isDone": phase.is_done,
            }
            for phase in writer.phases
        ],
        "stagedFiles": writer.staged_files,
        "stagedBytes": writer.staged_bytes,
        "staged": [{"name": name, "bytes": size} for name, size in writer.staged],
    }
