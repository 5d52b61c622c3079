"""Which files below a root are data, what forbids to merge them, and which names are safe.

Readers disagree about hidden names: Spark and PyArrow skip them, DuckDB and Polars read them. The
one rule here: a data file ends in a Parquet suffix and neither it nor a directory above it, below
the root, starts with ``.`` or ``_``. All else is never data and never touched.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import uuid
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from fsspec import AbstractFileSystem
from fsspec.utils import glob_translate

from fsspeckit.errors import InvalidArgumentError, UnsupportedLayoutError
from fsspeckit.storage.fs.attributes import capabilities_of, file_status
from fsspeckit.storage.fs.clients import client_of
from fsspeckit.storage.fs.reads import meaning_of, naming_failure

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fsspeckit.storage.fs.attributes import FileStatus
    from fsspeckit.storage.roots import Root

DATA_SUFFIXES = (".parquet", ".pq", ".parq")
_TABLE_FORMATS = {"_delta_log": "Delta", ".hoodie": "Hudi"}
_HIDDEN = (".", "_")
_MAX_NAME_BYTES = 180
_UNIQUE_PART = re.compile(r"-[0-9a-f]{32}(?=\.[^.]*$)")


class DataFile(NamedTuple):
    """A data file as one listing saw it, at its canonical path.

    A tuple, because thousands of them are made and compared while the lock is held.
    """

    path: str
    size: int

    mtime_ns: int | None = None
    """Time of the last change, where the filesystem reports it."""

    inode: int | None = None
    """The file's number on a local disk."""

    etag: str | None = None
    """The object's version on an object store."""

    birth_ns: int | None = None
    """When the file was created, where the filesystem records that."""

    def is_same_file(self, other: DataFile) -> bool:
        """Whether both are the same file, by evidence that another file cannot share.

        On object stores ETag and size decide: a listing and a request for one object report times
        of different precision.
        """
        if self.size != other.size:
            return False
        if self.etag is not None and other.etag is not None:
            return self.etag == other.etag
        if None not in (self.birth_ns, other.birth_ns) and self.birth_ns != other.birth_ns:
            return False
        return (self.mtime_ns, self.inode) == (other.mtime_ns, other.inode)


@dataclass(frozen=True)
class Listing:
    """What was found below a root at one moment."""

    files: tuple[DataFile, ...]
    """The data files, sorted by path."""

    obstacles: tuple[str, ...] = ()
    """What forbids a merge, one sentence each."""

    exists: bool = True
    """Whether the root exists at all."""

    read_obstacles: tuple[str, ...] = ()
    """Those of the obstacles that also forbid reading."""


def is_hidden(name: str) -> bool:
    """Whether a file or directory of this name is never data."""
    return name.startswith(_HIDDEN)


def is_data_path(relative: str) -> bool:
    """Whether a path below the root names a data file."""
    hidden = is_hidden(relative) or "/." in relative or "/_" in relative
    return not hidden and relative.lower().endswith(DATA_SUFFIXES)


def list_files(root: Root) -> Listing:
    """List the data files below a root; NotADirectoryError if the root is a file."""
    files: list[DataFile] = []
    unknown: list[str] = []
    if root.is_local:
        _check_directory(root)
        others = list(_walk_local(root.path, files, unknown))
    else:
        others = list(_walk_remote(root, files))
    files.sort(key=itemgetter(0))  # by path
    unreadable, stale = set(unknown), set()
    for other in others:
        if obstacle := _read_obstacle(other):
            unreadable.add(obstacle)
        elif obstacle := _summary_obstacle(other):
            stale.add(obstacle)
    obstacles = tuple(sorted(unreadable | stale))
    return Listing(tuple(files), obstacles, bool(others), tuple(sorted(unreadable)))


@dataclass(frozen=True)
class FileSelection:
    """Some of the data files of a dataset: one, or those whose paths fit a glob."""

    pattern: str
    """A path below the root, or a glob."""

    is_glob: bool

    def matches(self, relative: str) -> bool:
        """Whether a path below the root is selected."""
        if not self.is_glob:
            return relative == self.pattern
        return is_data_path(relative) and self._expression.match(relative) is not None

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        try:
            return re.compile(glob_translate(self.pattern))
        except (ValueError, re.error) as error:
            raise InvalidArgumentError(
                f"{self.pattern!r} is not a glob: {error}.\n"
                "Hint: use *, ?, [abc], and ** as the whole name of a directory."
            ) from error

    @property
    def directory(self) -> str:
        """The deepest directory that all files are in, below the root."""
        names = self.pattern.split("/")[:-1]
        count = next((n for n, name in enumerate(names) if self.is_glob and has_magic(name)), None)
        return "/".join(names[:count])

    @property
    def depth(self) -> int | None:
        """How many directories below that one files may be, and one; None for any number."""
        rest = self.pattern.removeprefix(self.directory).strip("/").split("/")
        return None if "**" in rest else len(rest)


def has_magic(text: str) -> bool:
    """Whether a text has characters that mean others in a glob."""
    return any(character in text for character in "*?[")


def list_selected(root: Root, selection: FileSelection) -> Listing:
    """List the selected data files, without reading the rest of the dataset.

    Of what forbids to read it, only the directory of another format is looked for.
    """
    base = root.path.rstrip("/")
    found = [f"{base}/{selection.pattern}"]
    if selection.is_glob:
        found = [path for path in _find_below(root, selection) if selection.matches(path)]
        found = [f"{base}/{path}" for path in sorted(found)]
    capabilities = capabilities_of(root)
    files = []
    for path in found:
        with suppress(FileNotFoundError, NotADirectoryError):  # removed just now, or never there
            if root.is_local:
                files.append(local_file(path, file_status(path)))
            else:
                info = root.filesystem.info(path)
                files.append(remote_file(path, info, whole_seconds=capabilities.whole_seconds))
    tables = [name for name in _TABLE_FORMATS if root.filesystem.exists(f"{base}/{name}")]
    obstacles = tuple(filter(None, (_read_obstacle(f"{name}/") for name in tables)))
    return Listing(tuple(files), obstacles, bool(files), obstacles)


def _find_below(root: Root, selection: FileSelection) -> list[str]:
    """Return the paths below the root of all files in the directory of a glob."""
    start = f"{root.path.rstrip('/')}/{selection.directory}".rstrip("/") or "/"
    root.filesystem.invalidate_cache(start)
    options: dict[str, Any] = {"maxdepth": selection.depth}
    if type(root.filesystem).find is AbstractFileSystem.find:
        options["on_error"] = _raise_unless_missing
    with naming_failure(root, start, "listing", "list"):
        try:
            return [root.relative(path) for path in root.filesystem.find(start, **options)]
        except FileNotFoundError:
            return []


def check_mergeable(listing: Listing, root: Root) -> None:
    """Raise UnsupportedLayoutError for a directory that a merge would make wrong."""
    _check_layout(listing.obstacles, root, "merged into")


def check_readable(obstacles: Sequence[str], root: Root) -> None:
    """Raise UnsupportedLayoutError for a directory whose rows are not those of its data files."""
    _check_layout(obstacles, root, "read")


def _check_layout(obstacles: Sequence[str], root: Root, action: str) -> None:
    if obstacles:
        raise UnsupportedLayoutError(
            f"{root.display_path!r} cannot be {action} as plain Parquet: " + " ".join(obstacles)
        )


def _read_obstacle(relative: str) -> str | None:
    """Return a sentence about an entry that forbids reading, or None; directories end in ``/``."""
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
    if parts[0] == "metadata" and parts[-1].endswith(".metadata.json"):
        return (
            f"{relative!r} makes it an Iceberg table. Hint: use that format's own reader and MERGE."
        )
    return None


def _summary_obstacle(relative: str) -> str | None:
    """Return a sentence about a summary file, which forbids only merging, or None."""
    if relative.rpartition("/")[2] != "_metadata":  # `_common_metadata` holds no offsets
        return None
    return (
        f"the summary file {relative!r} would hold wrong offsets afterwards. "
        "Hint: delete it; readers do not need it."
    )


def _check_directory(root: Root) -> None:
    """Refuse a local root that is a file, or below one."""
    path = root.path
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    if os.path.isfile(path):
        raise _is_a_file(root, path)


def _is_a_file(root: Root, path: str) -> NotADirectoryError:
    """Return the error about a dataset whose path is a file."""
    text = f"{root.to_user_path(path)!r} is a file, and a dataset is a directory."
    return NotADirectoryError(errno.ENOTDIR, f"{text}\nHint: name a directory.")


def entries_below(
    root: str, unknown: list[str] | None = None
) -> Iterator[tuple[str, os.DirEntry[str], bool]]:
    """Walk a local directory: relative path and entry of each name, and whether it is a directory.

    Hidden directories are not entered, nor any directory twice; a second name of one adds
    a sentence to ``unknown``.
    """
    seen: dict[tuple[int, int], str] = {}
    pending = [("", root)]
    while pending:
        prefix, directory = pending.pop()
        try:
            status = os.stat(directory)
            entries = os.scandir(directory)
        except FileNotFoundError:
            continue  # removed since the directory above it was read
        with entries:
            first = seen.setdefault((status.st_dev, status.st_ino), prefix)
            if first != prefix:
                if unknown is not None and not prefix.startswith(first):
                    unknown.append(
                        f"{prefix!r} and {first!r} are the same directory, so every file in it "
                        "would be changed twice. Hint: keep one of the two names."
                    )
                continue  # else a symbolic link that leads back up
            for entry in entries:  # as few steps as possible: the lock may be held
                name = entry.name
                is_directory = _is_directory(entry)
                yield prefix + name, entry, is_directory
                if is_directory and name[0] not in _HIDDEN:
                    pending.append((f"{prefix}{name}/", entry.path))


def _walk_local(root: str, files: list[DataFile], unknown: list[str]) -> Iterator[str]:
    """Add the data files below a local directory to a list; yield all other names, and the root.

    What may hold rows but cannot be read adds a sentence to ``unknown``.
    """
    if not os.path.lexists(root):
        return
    yield ""
    for relative, entry, is_directory in entries_below(root, unknown):
        hidden = entry.name[0] in _HIDDEN
        if is_directory:
            yield f"{relative}/"
        elif hidden or not relative.lower().endswith(DATA_SUFFIXES):
            yield relative
            if not hidden and entry.is_symlink() and not os.path.exists(entry.path):
                unknown.append(_dangling(relative, entry))
        else:
            _add_local(relative, entry, files, unknown)


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a symbolic link that leads to itself
        return False


def _add_local(
    relative: str, entry: os.DirEntry[str], files: list[DataFile], unknown: list[str]
) -> None:
    """Add a file to a list, unless it was removed since."""
    try:
        status = file_status(entry.path)
    except OSError as error:
        if entry.is_symlink() and os.path.lexists(entry.path):
            unknown.append(_dangling(relative, entry))
        elif not isinstance(error, FileNotFoundError):
            raise
        return
    if not stat.S_ISREG(status.mode):
        unknown.append(
            f"{relative!r} has the name of a data file but is a pipe, a socket or a "
            "device, which cannot be read as Parquet. Hint: move it out of the dataset."
        )
        return
    files.append(local_file(entry.path, status))


def _dangling(relative: str, entry: os.DirEntry[str]) -> str:
    return (
        f"the symbolic link {relative!r} leads to {os.readlink(entry.path)!r}, which "
        "cannot be opened; the rows behind it are unknown. Hint: mount the disk that holds it, or "
        "move the link out of the dataset if its rows do not belong to it."
    )


def _walk_remote(root: Root, files: list[DataFile]) -> Iterator[str]:
    """Like :func:`_walk_local`, of any filesystem."""
    capabilities = capabilities_of(root)
    found = _find_entries(root) if capabilities.directories else _find_objects(root)
    base = root.path.rstrip("/")
    if found:
        yield ""
    for path, info in found.items():
        relative = root.relative(path)
        if path == f"{base}/":
            continue  # an object that stands for the directory
        if path == base:
            if info.get("type") == "file":
                raise _is_a_file(root, path)
        elif info.get("type") == "directory":
            yield f"{relative.rstrip('/')}/"
        elif is_data_path(relative):
            files.append(remote_file(path, info, whole_seconds=capabilities.whole_seconds))
        else:
            yield relative


def _find_entries(root: Root) -> dict[str, dict[str, Any]]:
    """Find everything below a root, and the root itself; a directory without access is an error."""
    root.filesystem.invalidate_cache(root.path)
    options: dict[str, Any] = {}
    if type(root.filesystem).find is AbstractFileSystem.find:
        options["on_error"] = _raise_unless_missing  # by default such directories are left out
    with naming_failure(root, root.path, "listing", "list"):
        found: dict[str, dict[str, Any]] = root.filesystem.find(
            root.path, withdirs=True, detail=True, **options
        )
    return found


def _raise_unless_missing(error: OSError) -> None:
    """Treat a directory that does not exist (any more) as empty."""
    if meaning_of(error) != "missing":
        raise error


def _find_objects(root: Root) -> dict[str, dict[str, Any]]:
    """Find the objects below a root; if there are none, the object that has its name."""
    found = list_objects(root, root.path)
    if found or "/" not in root.path.strip("/"):
        return found
    # PermissionError: these credentials may not be allowed to ask.
    with suppress(FileNotFoundError, PermissionError):
        info = root.filesystem.info(root.path)
        return {} if info.get("type") == "directory" else {root.path: info}
    return {}


def list_objects(root: Root, directory: str, start: str = "") -> dict[str, dict[str, Any]]:
    """List the objects below a directory of an object store whose names begin with ``start``.

    Nothing outside of the directory is asked for: credentials may be limited to it.
    FileNotFoundError if not even the bucket exists.
    """
    wanted = f"{directory.rstrip('/')}/{start}"
    parent, _, name = directory.rstrip("/").rpartition("/")
    filesystem = client_of(root.filesystem)
    filesystem.invalidate_cache(directory)
    # Given a prefix, fsspec asks for nothing else, neither for the object nor for the bucket.
    above, prefix = (parent, f"{name}/{start}") if parent else (name, start)
    with naming_failure(root, directory, "listing", "list"):
        try:
            found: dict[str, dict[str, Any]] = filesystem.find(above, prefix=prefix, detail=True)
        except FileNotFoundError as error:
            bucket, reason = wanted.partition("/")[0], str(error).rstrip(".")
            kind = "container" if root.protocol in ("abfs", "abfss", "az") else "bucket"
            raise FileNotFoundError(
                f"there is no {kind} {bucket!r} in the store that was asked ({reason}).\n"
                "Hint: check its name, and the endpoint or account; or create it, which a merge "
                "does not do."
            ) from error
    return {
        path: info
        for path, info in found.items()
        if path.startswith(wanted) and info.get("type") != "directory"
    }


def local_file(path: str, status: FileStatus) -> DataFile:
    """Describe a local file from what the kernel reports."""
    return DataFile(path, status.size, status.mtime_ns, status.inode, birth_ns=status.birth_ns)


# In the words of s3fs, adlfs, gcsfs and others. On GCS a generation is one write, while an ETag
# may be made of the content alone.
_MODIFIED = ("LastModified", "last_modified", "mtime", "created")
# In milliseconds, in the words of hdfs-native and of WebHDFS.
_MODIFIED_MILLISECONDS = ("modification_time", "modificationTime")
_VERSIONS = ("ETag", "generation", "etag", "md5Hash")


def remote_file(path: str, info: dict[str, Any], *, whole_seconds: bool = False) -> DataFile:
    """Describe a file from what a remote filesystem reports."""
    etag = next(filter(None, map(info.get, _VERSIONS)), None)
    return DataFile(
        path,
        int(info.get("size") or 0),
        _modified_ns(info, whole_seconds),
        etag=None if etag is None else str(etag).strip('"'),
    )


def _modified_ns(info: dict[str, Any], whole_seconds: bool) -> int | None:
    modified: Any = next(filter(None, map(info.get, _MODIFIED)), None)
    if modified is None:
        milliseconds = next(filter(None, map(info.get, _MODIFIED_MILLISECONDS)), None)
        return None if milliseconds is None else int(milliseconds) * 1_000_000
    seconds: Any = modified.timestamp() if hasattr(modified, "timestamp") else modified
    return int((int(seconds) if whole_seconds else float(seconds)) * 1_000_000_000)


def check_relative(path: str, *, what: str = "path") -> str:
    """Return a path below the root, or raise InvalidArgumentError if it could leave the root."""
    separators = {os.sep, os.altsep} - {"/", None}
    unsafe = any(part in ("", ".", "..") for part in path.split("/"))
    if unsafe or "\0" in path or any(str(char) in path for char in separators):
        raise _unsafe(what, path, "it must stay below the dataset, without '..' or empty parts")
    return path


def check_basename(name: str, *, what: str = "file name") -> str:
    """Return the name of one file or directory, or raise InvalidArgumentError if it is unsafe."""
    if name in ("", ".", "..") or any(char in name for char in "\0/\\"):
        raise _unsafe(what, name, "it must be one name without separators, NUL or '..'")
    return name


def check_data_name(path: str) -> str:
    """Return a path below the root, or raise InvalidArgumentError if it cannot be a data file."""
    check_relative(path, what="data file")
    check_basename(path.rpartition("/")[2], what="data file")
    if not is_data_path(path):
        raise _unsafe(
            "data file", path, f"it must end in {' or '.join(DATA_SUFFIXES)}, no part hidden"
        )
    return path


def plain_basename(basename: str) -> str:
    """Return what the name of a new version of a file is made of, whoever named the old one.

    The part that made the old name unique is gone, characters that are a separator elsewhere are
    replaced, and there is room to make the new name unique.
    """
    stem, suffix = os.path.splitext(_UNIQUE_PART.sub("", basename).replace("\\", "_"))
    room = _MAX_NAME_BYTES - len(os.fsencode(suffix))
    return os.fsencode(stem)[:room].decode(errors="ignore") + suffix


def unique_basename(basename: str = "part.parquet") -> str:
    """Return a name like the given one that no file ever had before."""
    check_basename(basename)
    stem, suffix = os.path.splitext(basename)
    return f"{stem}-{uuid.uuid4().hex}{suffix}"


def parents_of(relative: str) -> list[str]:
    """Return the directories above a relative path, deepest first, without the root."""
    parts = relative.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]


def _unsafe(what: str, value: str, rule: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{what} {value!r} is not allowed: {rule}.")
