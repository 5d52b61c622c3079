"""Backends: the file operations that a commit needs, for local disks and every other filesystem.

All promise the same, as far as the filesystem's capabilities go: a file that is created is whole
or absent, and a move that already happened can be distinguished from one that has not.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from fsspeckit.storage.fs import syscalls
from fsspeckit.storage.fs.attributes import capabilities_of, file_status
from fsspeckit.storage.fs.clients import client_of
from fsspeckit.storage.fs.hdfs import is_hdfs_native, keep_for_forks, translated
from fsspeckit.storage.fs.reads import meaning_of, naming_failure
from fsspeckit.storage.fs.syscalls import NOT_SUPPORTED
from fsspeckit.storage.fs.tasks import begin_in_thread, make_at_once
from fsspeckit.storage.listing import list_objects, local_file, remote_file

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from fsspec import AbstractFileSystem

    from fsspeckit.storage.fs.attributes import Capabilities
    from fsspeckit.storage.fs.reads import Action
    from fsspeckit.storage.fs.tasks import Task
    from fsspeckit.storage.listing import DataFile
    from fsspeckit.storage.roots import Root

R = TypeVar("R")

_NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY)
_COPY_BLOCK_BYTES = 1 << 20
# How long to wait before putting again where the store is busy with another put of the same name.
_PAUSES = (0.05, 0.2, 0.8)
_PRECONDITION_FAILED, _CONFLICT = 412, 409
_CHANGES: dict[str, tuple[str, Action]] = {
    "pipe_file": ("writing", "write"),
    "cp_file": ("copying", "copy"),
    "rm_file": ("removing", "delete"),
}
_MAX_SINGLE_STATS = 1
"""How many objects are looked for one by one; more are found by a listing."""

MAX_MOVES = 64
"""How many objects are copied before they are removed where they were."""

# Filesystems that live in this process have no exclusive create of their own.
_creating = threading.RLock()

TEMPORARY_PREFIX = ".new_"
"""What the names of files begin with while they are being written."""


class Backend(Protocol):
    """What a commit needs from a filesystem."""

    def begin(self, call: Callable[[], R]) -> Task[R]:
        """Begin a call on which the next calls do not depend.

        Where each call is a round trip, it runs in a thread of its own. Elsewhere it has ended, or
        raised its error, when this returns.
        """

    def read(self, path: str) -> bytes:
        """Return all bytes of a file."""

    def read_all(self, paths: Sequence[str]) -> dict[str, bytes]:
        """Return all bytes of several files, by path."""

    def names(self, directory: str) -> list[str]:
        """List the entries of a directory, sorted; none if it does not exist."""

    def names_with(self, directory: str, inner: str) -> tuple[list[str], list[str]]:
        """List the entries of a directory, and those of one directory in it."""

    def stat(self, path: str) -> DataFile | None:
        """Return a file as it is now, or None if there is none."""

    def stat_all(self, paths: Sequence[str]) -> dict[str, DataFile]:
        """Return those of several files that exist, by path."""

    def files_in(self, directory: str) -> dict[str, DataFile]:
        """Return the files of a directory by path, not those of directories in it."""

    def modified_below(self, directory: str) -> dict[str, float | None]:
        """Return when each file below a directory was changed, in seconds since 1970, by its path.

        None where the filesystem does not report it. Directories without entries are there, too.
        """

    def sizes_below(self, directory: str) -> dict[str, int]:
        """Return the bytes of each file below a directory, by its path."""

    def create(self, path: str, data: bytes) -> None:
        """Create a file, whole and durable or not at all; FileExistsError if it exists."""

    def overwrite(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Create or replace a file, whole or not at all; its name may be lost with the power.

        Without ``sync`` its bytes may be lost too, until the caller makes them durable.
        """

    def make_directories(self, path: str) -> None:
        """Create a directory and those above it, where missing."""

    def move_new(self, source: str, target: str) -> None:
        """Move a file to a new name; FileExistsError if the name is taken."""

    def move_on_same_disk(self, source: str, target: str) -> None:
        """Like :meth:`move_new`, but never copies: OSError with EXDEV if it is another disk."""

    def move_over(self, source: str, target: str) -> None:
        """Move a file, replacing what has the target's name."""

    def copy_all(self, moves: Mapping[str, str]) -> list[str]:
        """Copy files over what has their targets' names, and return those to remove afterwards.

        FileNotFoundError if one is gone. Some may be removed already, where they are many.
        """

    def keep_copy(self, source: str, target: str) -> None:
        """Give a file a second name, or copy it."""

    def discard(self, path: str) -> bool:
        """Remove a file; False if it did not exist."""

    def discard_all(self, paths: Sequence[str]) -> None:
        """Remove several files; some may be gone already."""

    def request_discards(self, paths: Sequence[str]) -> None:
        """Do the same for a caller who looks afterwards whether they are gone."""

    def discard_directory(self, path: str) -> bool:
        """Remove a directory if it is empty; False if it still exists afterwards."""

    def discard_tree(self, path: str) -> bool:
        """Remove a directory of ours and its content; False if it still exists afterwards."""

    def rename_directory(self, source: str, target: str) -> None:
        """Rename a directory of ours."""

    def sync_file(self, path: str) -> None:
        """Make a file's bytes survive a power failure."""

    def sync_directory(self, path: str) -> None:
        """Make a directory's entries survive a power failure."""


def open_backend(root: Root) -> Backend:
    """Return the backend for the filesystem that holds a dataset."""
    if root.is_local:
        return _LocalBackend()
    capabilities = capabilities_of(root)
    if is_hdfs_native(root.filesystem):
        keep_for_forks(root.filesystem)
        return _HdfsBackend(root.filesystem)
    if capabilities.directories:
        return _RemoteBackend(root.filesystem, whole_seconds=capabilities.whole_seconds)
    return _ObjectStoreBackend(root, capabilities)


class _LocalBackend:
    """A disk of this machine."""

    def begin(self, call: Callable[[], R]) -> Task[R]:
        return make_at_once(call)

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def read_all(self, paths: Sequence[str]) -> dict[str, bytes]:
        return {path: self.read(path) for path in paths}

    def names(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(directory))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def names_with(self, directory: str, inner: str) -> tuple[list[str], list[str]]:
        return self.names(directory), self.names(f"{directory}/{inner}")

    def stat(self, path: str) -> DataFile | None:
        try:
            status = file_status(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if stat.S_ISDIR(status.mode):
            return None
        return local_file(path, status)

    def stat_all(self, paths: Sequence[str]) -> dict[str, DataFile]:
        return {path: found for path in paths if (found := self.stat(path)) is not None}

    def files_in(self, directory: str) -> dict[str, DataFile]:
        return self.stat_all([f"{directory}/{name}" for name in self.names(directory)])

    def modified_below(self, directory: str) -> dict[str, float | None]:
        found: dict[str, float | None] = {}
        for parent, directories, files in os.walk(directory):
            names = files or (() if directories else ("",))
            for name in names:
                path = os.path.join(parent, name) if name else parent
                with suppress(FileNotFoundError):  # removed just now
                    found[os.path.relpath(path, directory)] = os.lstat(path).st_mtime
        found.pop(".", None)
        return found

    def sizes_below(self, directory: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for parent, _, files in os.walk(directory):
            for name in files:
                path = os.path.join(parent, name)
                with suppress(FileNotFoundError):  # removed just now
                    found[os.path.relpath(path, directory)] = os.lstat(path).st_size
        return found

    def create(self, path: str, data: bytes) -> None:
        with self._temporary(path, data) as temporary:
            self.move_new(temporary, path)
        self.sync_directory(os.path.dirname(path))

    def overwrite(self, path: str, data: bytes, *, sync: bool = True) -> None:
        with self._temporary(path, data, sync=sync) as temporary:
            syscalls.rename(temporary, path)

    @contextmanager
    def _temporary(self, path: str, data: bytes, *, sync: bool = True) -> Iterator[str]:
        directory = os.path.dirname(path)
        temporary = os.path.join(directory, f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}")
        try:
            descriptor = syscalls.create(temporary)
            try:
                syscalls.write(descriptor, temporary, data)
                if sync:
                    syscalls.sync(descriptor, temporary)
            finally:
                os.close(descriptor)
            yield temporary
        except BaseException:
            with suppress(OSError):
                syscalls.unlink(temporary)
            raise

    def make_directories(self, path: str) -> None:
        if os.path.isdir(path):
            return
        self.make_directories(os.path.dirname(path))
        with suppress(FileExistsError):
            syscalls.make_directory(path)

    def move_new(self, source: str, target: str) -> None:
        try:
            self.move_on_same_disk(source, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _copy_across(source, target)

    def move_on_same_disk(self, source: str, target: str) -> None:
        try:
            syscalls.rename_new(source, target)
        except OSError as error:
            if error.errno not in NOT_SUPPORTED:
                raise
            _link_and_unlink(source, target)

    def move_over(self, source: str, target: str) -> None:
        try:
            syscalls.rename(source, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _copy_across(source, target, replace=True)

    def copy_all(self, moves: Mapping[str, str]) -> list[str]:
        for source, target in moves.items():
            self.move_over(source, target)
        return []

    def keep_copy(self, source: str, target: str) -> None:
        try:
            syscalls.link(source, target)
        except OSError as error:
            if error.errno != errno.EXDEV and error.errno not in NOT_SUPPORTED:
                raise
            _copy_file(source, target)

    def discard(self, path: str) -> bool:
        try:
            syscalls.unlink(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            # A name that is too long, as of a checksum file, cannot exist either.
            if error.errno == errno.ENAMETOOLONG:
                return False
            raise
        return True

    def discard_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.discard(path)

    request_discards = discard_all

    def discard_directory(self, path: str) -> bool:
        try:
            syscalls.remove_directory(path)
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError as error:
            if error.errno in _NOT_EMPTY:
                return False
            raise
        return True

    def discard_tree(self, path: str) -> bool:
        try:
            with os.scandir(path) as entries:
                found = list(entries)
        except FileNotFoundError:
            return True
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                self.discard_tree(entry.path)
            else:
                self.discard(entry.path)
        return self.discard_directory(path)

    def rename_directory(self, source: str, target: str) -> None:
        syscalls.rename(source, target)

    def sync_file(self, path: str) -> None:
        _sync(path, os.O_RDONLY)

    def sync_directory(self, path: str) -> None:
        with suppress(FileNotFoundError):
            _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: str, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        syscalls.sync(descriptor, path)
    finally:
        os.close(descriptor)


def _link_and_unlink(source: str, target: str) -> None:
    """Move without overwriting where the filesystem has no call for that."""
    try:
        syscalls.link(source, target)
    except OSError as error:
        if error.errno not in NOT_SUPPORTED:
            raise
        # No hard links either. Our own writers hold the lock, so checking first is enough.
        if os.path.lexists(target):
            raise _already_exists(target) from error
        syscalls.rename(source, target)
    else:
        syscalls.unlink(source)


def _copy_across(source: str, target: str, *, replace: bool = False) -> None:
    """Move to another disk: copy under a hidden name first, so that nobody reads half a file."""
    if not replace and os.path.lexists(target):
        raise _already_exists(target)
    directory, name = os.path.split(target)
    # The name is the same each time, so that a move that was killed and is repeated leaves nothing.
    incoming = os.path.join(directory, f".{name}.incoming")
    with suppress(FileNotFoundError):
        syscalls.unlink(incoming)
    try:
        _copy_file(source, incoming)
        syscalls.rename(incoming, target)
    except Exception:
        with suppress(OSError):  # half a copy on a disk that is full, for example
            syscalls.unlink(incoming)
        raise
    syscalls.unlink(source)


def _copy_file(source: str, target: str) -> None:
    """Copy a local file with its permissions and make the copy durable."""
    status = os.stat(source)
    descriptor = syscalls.create(target)
    try:
        with open(source, "rb") as file:
            while block := file.read(_COPY_BLOCK_BYTES):
                syscalls.write(descriptor, target, block)
        syscalls.sync(descriptor, target)
    finally:
        os.close(descriptor)
    syscalls.change_mode(target, stat.S_IMODE(status.st_mode))
    with suppress(PermissionError):
        syscalls.change_owner(target, status.st_uid, status.st_gid)


class _RemoteBackend:
    """Any fsspec filesystem that has directories; files are copied to move."""

    def __init__(self, filesystem: AbstractFileSystem, *, whole_seconds: bool = False) -> None:
        self._filesystem = filesystem
        self._whole_seconds = whole_seconds

    def begin(self, call: Callable[[], R]) -> Task[R]:
        return make_at_once(call)

    def read(self, path: str) -> bytes:
        return bytes(self._filesystem.cat_file(path))

    def read_all(self, paths: Sequence[str]) -> dict[str, bytes]:
        return {path: self.read(path) for path in paths}

    def names(self, directory: str) -> list[str]:
        return sorted(info["name"].rstrip("/").rpartition("/")[2] for info in self._ls(directory))

    def names_with(self, directory: str, inner: str) -> tuple[list[str], list[str]]:
        return self.names(directory), self.names(f"{directory}/{inner}")

    def _ls(self, directory: str) -> list[dict[str, Any]]:
        self._filesystem.invalidate_cache(directory)
        try:
            found: list[dict[str, Any]] = self._filesystem.ls(directory, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [info for info in found if info["name"].rstrip("/") != directory]

    def stat(self, path: str) -> DataFile | None:
        info = self._info(path)
        if info is None or info.get("type") == "directory":
            return None
        return self._file(path, info)

    def _file(self, path: str, info: dict[str, Any]) -> DataFile:
        return remote_file(path, info, whole_seconds=self._whole_seconds)

    def stat_all(self, paths: Sequence[str]) -> dict[str, DataFile]:
        return {path: found for path in paths if (found := self.stat(path)) is not None}

    def files_in(self, directory: str) -> dict[str, DataFile]:
        return self.stat_all([f"{directory}/{name}" for name in self.names(directory)])

    def modified_below(self, directory: str) -> dict[str, float | None]:
        found: dict[str, float | None] = {}
        for info in self._ls(directory):
            path = info["name"].rstrip("/")
            name = path.rpartition("/")[2]
            if info.get("type") != "directory":
                found[name] = self._modified(path, info)
                continue
            below = self.modified_below(path) or {"": self._modified(path, info)}
            found.update({f"{name}/{inner}".rstrip("/"): when for inner, when in below.items()})
        return found

    def sizes_below(self, directory: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for info in self._ls(directory):
            path = info["name"].rstrip("/")
            name = path.rpartition("/")[2]
            if info.get("type") == "directory":
                below = self.sizes_below(path)
                found.update({f"{name}/{inner}": size for inner, size in below.items()})
            else:
                found[name] = int(info.get("size") or 0)
        return found

    def _modified(self, path: str, info: dict[str, Any]) -> float | None:
        nanoseconds = remote_file(path, info).mtime_ns
        return None if nanoseconds is None else nanoseconds / 1e9

    def _info(self, path: str) -> dict[str, Any] | None:
        self._filesystem.invalidate_cache(path.rpartition("/")[0])
        try:
            return dict(self._filesystem.info(path))
        except FileNotFoundError as error:
            # One that fsspec raises from its own thread refers to itself by its traceback, which
            # would keep the variables of all callers until the next garbage collection.
            error.__traceback__ = None
            return None

    def create(self, path: str, data: bytes) -> None:
        with _creating:
            if self.stat(path) is not None:
                raise _already_exists(path)
            self._change("pipe_file", path, data, mode="create")

    def overwrite(self, path: str, data: bytes, *, sync: bool = True) -> None:
        self._change("pipe_file", path, data)

    def make_directories(self, path: str) -> None:
        if not self._filesystem.isdir(path):
            self._change("makedirs", path, exist_ok=True)

    def move_new(self, source: str, target: str) -> None:
        if self.stat(target) is not None:
            raise _already_exists(target)
        self.move_over(source, target)

    move_on_same_disk = move_new  # there is only one disk

    def move_over(self, source: str, target: str) -> None:
        self.keep_copy(source, target)
        self.discard(source)

    def copy_all(self, moves: Mapping[str, str]) -> list[str]:
        for source, target in moves.items():
            self.move_over(source, target)
        return []

    def keep_copy(self, source: str, target: str) -> None:
        self._change("cp_file", source, target)

    def discard(self, path: str) -> bool:
        if self.stat(path) is None:
            return False
        try:
            self._change("rm_file", path)
        except FileNotFoundError:
            return False
        return True

    def discard_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.discard(path)

    def request_discards(self, paths: Sequence[str]) -> None:
        self.discard_all(paths)

    def discard_directory(self, path: str) -> bool:
        if self._ls(path):
            return False
        if self._filesystem.isdir(path):
            try:
                self._change("rmdir", path)
            except (FileNotFoundError, NotImplementedError):
                return True
            except OSError as error:
                if error.errno not in _NOT_EMPTY:
                    raise
                return False
        return True

    def discard_tree(self, path: str) -> bool:
        for info in self._ls(path):
            if info.get("type") == "directory":
                self.discard_tree(info["name"].rstrip("/"))
            else:
                self.discard(info["name"])
        return self.discard_directory(path)

    def rename_directory(self, source: str, target: str) -> None:
        self.make_directories(target)
        for info in self._ls(source):
            name = info["name"].rstrip("/").rpartition("/")[2]
            with suppress(FileNotFoundError):  # published or removed by its owner just now
                self.move_over(info["name"], f"{target}/{name}")
        self.discard_directory(source)

    def _change(self, method: str, *arguments: Any, **options: Any) -> None:
        syscalls.remote(self._filesystem, method, *arguments, **options)

    def sync_file(self, path: str) -> None:
        """Nothing to do: a put is as durable as the store makes it."""

    sync_directory = sync_file


class _HdfsBackend(_RemoteBackend):
    """HDFS, whose name node changes a name in one step, and refuses one that is taken.

    A file that is created is there, and empty, before its bytes are. So each is written under
    another name, and then renamed.
    """

    def create(self, path: str, data: bytes) -> None:
        self._put(path, data, overwrite=False)

    def overwrite(self, path: str, data: bytes, *, sync: bool = True) -> None:
        self._put(path, data, overwrite=True)

    def _put(self, path: str, data: bytes, *, overwrite: bool) -> None:
        temporary = f"{path.rpartition('/')[0]}/{TEMPORARY_PREFIX}{uuid.uuid4().hex}"
        try:
            self._change("pipe_file", temporary, data)
            self._change("mv", temporary, path, overwrite=overwrite)
        except BaseException:
            with suppress(Exception):
                self._change("rm_file", temporary)
            raise

    def move_new(self, source: str, target: str) -> None:
        self._change("mv", source, target, overwrite=False)

    move_on_same_disk = move_new

    def move_over(self, source: str, target: str) -> None:
        self._change("mv", source, target, overwrite=True)

    def keep_copy(self, source: str, target: str) -> None:
        self.overwrite(target, self.read(source))

    def _change(self, method: str, *arguments: Any, **options: Any) -> None:
        with translated(str(arguments[-1] if method == "mv" else arguments[0])):
            super()._change(method, *arguments, **options)


class _ObjectStoreBackend(_RemoteBackend):
    """A store that has keys and puts instead of directories and renames.

    A prefix is not a directory. It exists as long as a key begins with it, nobody creates or
    removes it, and credentials may be limited to what is below it. So nothing here asks about
    a bucket, and every listing is one of whole keys below a prefix: a listing of one level also
    names prefixes below which a bucket keeps only deleted versions.
    """

    def __init__(self, root: Root, capabilities: Capabilities) -> None:
        super().__init__(client_of(root.filesystem), whole_seconds=capabilities.whole_seconds)
        self._root = root
        self._conditional_put = capabilities.conditional_put

    def begin(self, call: Callable[[], R]) -> Task[R]:
        return begin_in_thread(call)

    def read(self, path: str) -> bytes:
        with naming_failure(self._root, path, "reading"):
            try:
                return self._read_whole(path)
            except OSError as error:
                if meaning_of(error) != "denied" or self._is_listed(path):
                    raise
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error

    def _read_whole(self, path: str) -> bytes:
        if self._root.is_arrow:
            return super().read(path)
        try:
            # From its first byte: s3fs asks for the size of an object that is read as a whole.
            return bytes(self._filesystem.cat_file(path, start=0))
        except Exception:  # each library has an error of its own for a range that is not there
            found = self.stat(path)
            if found is not None and not found.size:
                return b""  # no byte is the first one
            raise

    def read_all(self, paths: Sequence[str]) -> dict[str, bytes]:
        with naming_failure(self._root, paths[0], "reading"):
            return self._filesystem.cat(list(paths)) if len(paths) > 1 else super().read_all(paths)

    def names(self, directory: str) -> list[str]:
        """What follows a prefix in the keys that begin with it, up to the next slash, sorted."""
        return _first_names(self._keys(directory), directory)

    def names_with(self, directory: str, inner: str) -> tuple[list[str], list[str]]:
        found = self._keys(directory)
        return _first_names(found, directory), _first_names(found, f"{directory}/{inner}")

    def _keys(self, directory: str) -> Collection[str]:
        try:
            return list_objects(self._root, directory)
        except FileNotFoundError:  # not even the bucket
            return ()

    def modified_below(self, directory: str) -> dict[str, float | None]:
        skip = len(directory) + 1
        try:
            found = list_objects(self._root, directory)
        except FileNotFoundError:
            return {}
        return {key[skip:]: self._modified(key, info) for key, info in found.items()}

    def sizes_below(self, directory: str) -> dict[str, int]:
        skip = len(directory) + 1
        try:
            found = list_objects(self._root, directory)
        except FileNotFoundError:
            return {}
        return {key[skip:]: int(info.get("size") or 0) for key, info in found.items()}

    def _info(self, path: str) -> dict[str, Any] | None:
        """Find an object by a listing: one request, also where it is missing.

        Credentials that may list only some prefixes get "denied" instead of "missing" from a
        request for the object itself, and some clients look for a directory of its name then.
        """
        directory, _, name = path.rpartition("/")
        try:
            return list_objects(self._root, directory, name).get(path)
        except FileNotFoundError:  # not even the bucket
            return None

    def stat_all(self, paths: Sequence[str]) -> dict[str, DataFile]:
        if len(paths) <= _MAX_SINGLE_STATS:
            return super().stat_all(paths)
        directory = os.path.commonpath([path.rpartition("/")[0] for path in paths])
        names = [path[len(directory) + 1 :] for path in paths]
        start = os.path.commonprefix(names)  # noqa: RUF071 - a listing takes any prefix
        try:
            found = list_objects(self._root, directory, start)
        except FileNotFoundError:
            return {}
        return {path: self._file(path, found[path]) for path in paths if path in found}

    def files_in(self, directory: str) -> dict[str, DataFile]:
        """List the objects right below a prefix, so that the client knows their sizes."""
        self._filesystem.invalidate_cache(directory)
        with naming_failure(self._root, directory, "listing", "list"):
            try:
                found = self._filesystem.ls(directory, detail=True)
            except FileNotFoundError:
                return {}
        files = (info for info in found if info.get("type") != "directory")
        return {info["name"]: self._file(info["name"], info) for info in files}

    def copy_all(self, moves: Mapping[str, str]) -> list[str]:
        """Copy objects, many at a time.

        The sources of a portion are gone before the next one is copied: whoever waits for this
        writer sees that it goes on. Of one that was listed, the client does not ask for the size.
        """
        pairs = list(moves.items())
        sources: list[str] = []
        for start in range(0, len(pairs), MAX_MOVES):
            self.request_discards(sources)
            sources, targets = map(list, zip(*pairs[start : start + MAX_MOVES], strict=True))
            with naming_failure(self._root, sources[0], "copying", "copy"):
                syscalls.remote(self._filesystem, "copy", sources, targets)
        return sources

    def _is_listed(self, path: str) -> bool:
        """Whether an object exists that may not be read.

        Where the credentials may list only some prefixes, a store answers "denied" instead of
        "missing". A listing knows, or is refused itself.
        """
        directory, _, name = path.rpartition("/")
        return path in list_objects(self._root, directory, name)

    def create(self, path: str, data: bytes) -> None:
        # An answer may get lost, and the SDK puts again: the object that exists may be this one.
        if not self._conditional_put:
            super().create(path, data)
            return
        for pause in _PAUSES:
            try:
                self._change("pipe_file", path, data, mode="create")
            except OSError as error:
                status = (
                    _PRECONDITION_FAILED if isinstance(error, FileExistsError) else _status(error)
                )
                if status == _PRECONDITION_FAILED:
                    raise _already_exists(path) from error
                if status != _CONFLICT:
                    raise
            else:
                return
            time.sleep(pause)
        raise _already_exists(path)

    def make_directories(self, path: str) -> None:
        """Nothing to do: a prefix exists when an object is below it."""

    def discard(self, path: str) -> bool:
        """Remove an object, without asking first: most stores answer the same if there is none."""
        try:
            self._change("rm_file", path)
        except FileNotFoundError:
            return False
        return True

    def discard_all(self, paths: Sequence[str]) -> None:
        """Remove objects, many with one request, and what is left of them one by one."""
        self.request_discards(paths)
        if len(paths) > 1:
            for path in self.stat_all(paths):
                self.discard(path)

    def request_discards(self, paths: Sequence[str]) -> None:
        """Remove objects, many with one request, which names objects of one bucket.

        Clients do not report the objects that a store refuses to remove in such a request.
        """
        for bucket in sorted({path.partition("/")[0] for path in paths}):
            self._remove([path for path in paths if path.startswith(f"{bucket}/")])

    def _remove(self, paths: Sequence[str]) -> None:
        if len(paths) > 1:
            try:
                syscalls.remote(self._filesystem, "rm", list(paths))
            except Exception:  # not every store has such a request; one by one they say why
                paths = list(self.stat_all(paths))
            else:
                return
        for path in paths:
            self.discard(path)

    def discard_directory(self, path: str) -> bool:
        """Nothing to do: a prefix goes with its last object."""
        return True

    def discard_tree(self, path: str) -> bool:
        """Remove every object below a prefix; False if there are others afterwards."""
        found = list_objects(self._root, path)
        self.request_discards(list(found))
        left = list_objects(self._root, path)
        for key in found.keys() & left.keys():
            self.discard(key)
        return left.keys() <= found.keys()

    def rename_directory(self, source: str, target: str) -> None:
        """Move the objects below a prefix of ours to another one, one after the other."""
        for key in list_objects(self._root, source):
            with suppress(FileNotFoundError):  # published or removed by its owner just now
                self.move_over(key, f"{target}/{key.rpartition('/')[2]}")

    def _change(self, method: str, *arguments: Any, **options: Any) -> None:
        path = [value for value in arguments if isinstance(value, str)][-1]
        phase, action = _CHANGES[method]
        with naming_failure(self._root, path, phase, action):
            super()._change(method, *arguments, **options)


def _first_names(keys: Iterable[str], directory: str) -> list[str]:
    """Return what follows a prefix in keys, up to the next slash, sorted."""
    prefix = f"{directory}/"
    below = (key[len(prefix) :] for key in keys if key.startswith(prefix))
    return sorted({name for rest in below if (name := rest.partition("/")[0])})


def _status(error: BaseException | None) -> int:
    """Return the HTTP status behind an error; 0 if there was no response."""
    while error is not None:
        response: Any = getattr(error, "response", None)
        if isinstance(response, dict):
            return int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        error = error.__cause__
    return 0


def _already_exists(path: str) -> FileExistsError:
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
