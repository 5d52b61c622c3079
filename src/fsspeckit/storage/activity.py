"""Activity: what writers do just now, for anybody who wants to know.

It is seen from outside: who owns which staging directory, what is staged, which phases its owner
has published there, and which rows of streams wait for a commit.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fsspeckit.storage.commit.lock import state_of
from fsspeckit.storage.commit.log import pending_numbers
from fsspeckit.storage.commit.staging import PHASES_FILE, PublishedPhase
from fsspeckit.storage.storage import INCOMING, OWNER_FILE, STAGED_SUFFIX, staging_names

if TYPE_CHECKING:
    from fsspeckit.storage.listing import DataFile
    from fsspeckit.storage.storage import Storage

MAX_STAGED = 200
"""Of how many staged files the names are returned."""


@dataclass(frozen=True, slots=True)
class WriterActivity:
    """One writer that has a staging directory."""

    name: str
    """The name of the directory."""

    host: str | None
    process: int | None
    is_running: bool | None
    """None if that cannot be known here."""

    started: str | None
    """When it opened the directory, in UTC."""

    engine: str | None
    strategy: str | None
    transaction: str | None
    phases: tuple[PublishedPhase, ...]
    """In order; empty if it has not published any."""

    staged_files: int
    staged_bytes: int
    staged: tuple[tuple[str, int], ...]
    """Names and bytes of the newest staged files."""


@dataclass(frozen=True, slots=True)
class IncomingRows:
    """Rows of one batch of a stream that wait for their commit."""

    query: str
    batch: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Activity:
    """What happens in a dataset at one moment."""

    time: str
    number: int
    """The last commit; 0 if there is none."""

    pending: tuple[int, ...]
    """Commits that are recorded and not complete."""

    writers: tuple[WriterActivity, ...]
    incoming: tuple[IncomingRows, ...]


def current_activity(storage: Storage) -> Activity:
    """Return what writers do just now; changes nothing, and takes no lock."""
    number, pending = pending_numbers(storage)
    names = staging_names(storage.backend.names(storage.control.path))
    found = (_writer(storage, name) for name in names if name.startswith(".staging_"))
    return Activity(
        datetime.now(UTC).isoformat(timespec="milliseconds"),
        number,
        tuple(pending),
        tuple(writer for writer in found if writer is not None),
        _incoming(storage),
    )


def _writer(storage: Storage, name: str) -> WriterActivity | None:
    """Return what is known of a writer; None if it has just ended."""
    place = storage.control.at(name)
    files = storage.backend.files_in(place)
    if not files:
        return None
    owner = _read_json(storage, f"{place}/{OWNER_FILE}")
    published = files.get(f"{place}/{PHASES_FILE}")
    about = {} if published is None else _read_json(storage, published.path)
    staged = [file for path, file in files.items() if path.endswith(STAGED_SUFFIX)]
    staged.sort(key=lambda file: file.mtime_ns or 0, reverse=True)
    return WriterActivity(
        name,
        host=_text(owner.get("host")),
        process=owner["pid"] if isinstance(owner.get("pid"), int) else None,
        is_running=_is_running(owner),
        started=_text(owner.get("time")),
        engine=_text(about.get("engine")),
        strategy=_text(about.get("strategy")),
        transaction=_text(about.get("transaction")),
        phases=_phases(about.get("phases"), published),
        staged_files=len(staged),
        staged_bytes=sum(file.size for file in staged),
        staged=tuple((file.path.rpartition("/")[2], file.size) for file in staged[:MAX_STAGED]),
    )


def _read_json(storage: Storage, path: str) -> dict[str, Any]:
    """Return what a file says that its writer may replace or remove; empty if it says nothing."""
    with suppress(OSError, ValueError):
        found: Any = json.loads(storage.backend.read(path))
        if isinstance(found, dict):
            return found
    return {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _is_running(owner: dict[str, Any]) -> bool | None:
    try:
        state = state_of(owner)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return None if state == "unknown" else state == "running"


def _phases(content: Any, file: DataFile | None) -> tuple[PublishedPhase, ...]:
    """Return the phases of a file; the last one goes on since the file was written."""
    try:
        phases = [
            PublishedPhase(
                str(phase["name"]),
                int(phase["done"]),
                int(phase["total"]),
                float(phase["seconds"]),
                bool(phase["is_done"]),
            )
            for phase in content or ()
        ]
    except (KeyError, TypeError, ValueError):  # of another version
        return ()
    if phases and not phases[-1].is_done and file is not None and file.mtime_ns is not None:
        since = max(0.0, time.time() - file.mtime_ns / 1e9)
        phases[-1] = replace(phases[-1], seconds=phases[-1].seconds + since)
    return tuple(phases)


def _incoming(storage: Storage) -> tuple[IncomingRows, ...]:
    batches: dict[tuple[str, str], list[int]] = {}
    for path, size in storage.backend.sizes_below(storage.control.at(INCOMING)).items():
        query, _, rest = path.partition("/")
        batches.setdefault((query, rest.partition("/")[0]), []).append(size)
    return tuple(
        IncomingRows(query, batch, len(sizes), sum(sizes))
        for (query, batch), sizes in sorted(batches.items())
    )
