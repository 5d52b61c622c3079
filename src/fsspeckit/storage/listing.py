"""Which files of a directory are data, and which directories a merge must refuse.

Readers disagree about hidden names: Spark and PyArrow skip them, DuckDB and Polars read them. The
one rule here: a data file ends in a Parquet suffix and neither it nor a directory above it, below
the root, starts with ``.`` or ``_``. All else is never data and never touched.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from fsspeckit.errors import UnsupportedLayoutError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fsspeckit.storage.roots import Root

__all__ = ["DataFile", "Listing", "check_mergeable", "check_readable", "is_data_path", "list_files"]

DATA_SUFFIXES = (".parquet", ".pq", ".parq")
_TABLE_FORMATS = {"_delta_log": "Delta", ".hoodie": "Hudi"}
_SUMMARY = "the summary file"
_SUMMARY_FILES = ("_metadata", "_common_metadata")


class DataFile(NamedTuple):
    """A data file as one listing saw it.

    A tuple, because thousands of them are made and compared while the lock is held.
    """

    path: str
    """The canonical path."""

    size: int
    """Bytes."""

    mtime_ns: int | None = None
    """Time of the last change, where the filesystem tells it."""

    inode: int | None = None
    """The file's number on a local disk."""

    etag: str | None = None
    """The object's version on an object store."""


@dataclass(frozen=True)
class Listing:
    """What was found below a root at one moment."""

    files: tuple[DataFile, ...]
    """The data files, sorted by path."""

    obstacles: tuple[str, ...] = ()
    """What makes the directory unfit for a merge, one sentence each."""

    exists: bool = True
    """Whether the root is there at all."""


def is_hidden(name: str) -> bool:
    """Whether a file or directory of this name is never data."""
    return name.startswith((".", "_"))


def is_data_path(relative: str) -> bool:
    """Whether a path below the root names a data file."""
    hidden = is_hidden(relative) or "/." in relative or "/_" in relative
    return not hidden and relative.lower().endswith(DATA_SUFFIXES)


def list_files(root: Root) -> Listing:
    """List the data files below a root.

    Raises:
        NotADirectoryError: If the root is a file.
        OSError: What the filesystem raised, with the path in it.
    """
    walk = _walk_local(root.path) if root.is_local else _walk_remote(root)
    files: list[DataFile] = []
    obstacles: set[str] = set()
    exists = False
    for relative, entry in walk:
        exists = True
        if entry is not None:
            files.append(entry)
        elif obstacle := _obstacle(relative):
            obstacles.add(obstacle)
    files.sort(key=attrgetter("path"))
    return Listing(tuple(files), tuple(sorted(obstacles)), exists)


def check_mergeable(listing: Listing, root: Root) -> None:
    """Refuse a directory that a merge would make wrong.

    Raises:
        UnsupportedLayoutError: Naming what was found and what to do instead.
    """
    if listing.obstacles:
        raise UnsupportedLayoutError(
            f"{root.shown!r} cannot be merged into as plain Parquet: " + " ".join(listing.obstacles)
        )


def check_readable(obstacles: Sequence[str], root: Root) -> None:
    """Refuse a directory whose rows are not those of its data files.

    A summary file is in the way of a merge only.

    Raises:
        UnsupportedLayoutError: Naming what was found and what to do instead.
    """
    found = [obstacle for obstacle in obstacles if not obstacle.startswith(_SUMMARY)]
    if found:
        raise UnsupportedLayoutError(
            f"{root.shown!r} cannot be read as plain Parquet: " + " ".join(found)
        )


def _obstacle(relative: str) -> str | None:
    """One sentence about an entry that forbids merging, or None; directories end in ``/``."""
    parts = relative.split("/")
    for part in parts[:-1]:
        if part in _TABLE_FORMATS:
            return (
                f"{part!r} makes it a {_TABLE_FORMATS[part]} table. "
                "Hint: use that format's own reader and MERGE."
            )
        if part.startswith("_") and "=" in part:
            return (
                f"the partition directory {part!r} is data for Spark and hidden for PyArrow. "
                "Hint: rename the partition column so that it does not start with '_'."
            )
    if parts[-1] in _SUMMARY_FILES:
        return (
            f"{_SUMMARY} {relative!r} would hold wrong offsets afterwards. "
            "Hint: delete it; readers do not need it."
        )
    if parts[0] == "metadata" and parts[-1].endswith(".metadata.json"):
        return (
            f"{relative!r} makes it an Iceberg table. Hint: use that format's own reader and MERGE."
        )
    return None


def _walk_local(root: str) -> Iterator[tuple[str, DataFile | None]]:
    """Entries below a local directory: relative path, and the file or None if it is no data."""
    if not os.path.lexists(root):
        return
    yield "", None
    seen = set()
    pending = [("", root)]
    while pending:
        prefix, directory = pending.pop()
        try:
            status = os.stat(directory)
            entries = os.scandir(directory)
        except FileNotFoundError:
            continue  # removed since the directory above it was read
        with entries:
            if (status.st_dev, status.st_ino) in seen:
                continue  # a symbolic link that leads back up
            seen.add((status.st_dev, status.st_ino))
            for entry in entries:
                relative, hidden = prefix + entry.name, entry.name.startswith((".", "_"))
                if entry.is_dir():
                    yield f"{relative}/", None
                    if not hidden:
                        pending.append((f"{relative}/", entry.path))
                elif hidden or not entry.name.lower().endswith(DATA_SUFFIXES):
                    yield relative, None
                elif (file := _local_file(entry)) is not None:
                    yield relative, file


def _local_file(entry: os.DirEntry[str]) -> DataFile | None:
    """A file as a listing found it; None if it was removed since, or is a dangling link."""
    try:
        status = entry.stat()
    except FileNotFoundError:
        return None
    return DataFile(entry.path, status.st_size, status.st_mtime_ns, status.st_ino)


def _walk_remote(root: Root) -> Iterator[tuple[str, DataFile | None]]:
    root.filesystem.invalidate_cache(root.path)
    found: dict[str, dict[str, Any]] = root.filesystem.find(root.path, withdirs=True, detail=True)
    base = root.path.rstrip("/")
    for path, info in found.items():
        relative = root.relative(path)
        if path.rstrip("/") == base:
            if info.get("type") == "file":
                raise NotADirectoryError(f"{root.spelled(path)!r} is a file, not a directory.")
            yield "", None
        elif info.get("type") == "directory":
            yield f"{relative.rstrip('/')}/", None
        else:
            yield relative, remote_file(path, info) if is_data_path(relative) else None


def remote_file(path: str, info: dict[str, Any]) -> DataFile:
    """A file as a remote filesystem describes it."""
    modified: Any = info.get("LastModified") or info.get("mtime") or info.get("created")
    etag = info.get("ETag") or info.get("etag") or info.get("md5Hash")
    seconds: Any = modified.timestamp() if hasattr(modified, "timestamp") else modified
    return DataFile(
        path,
        int(info.get("size") or 0),
        None if seconds is None else int(float(seconds) * 1_000_000_000),
        etag=None if etag is None else str(etag).strip('"'),
    )
