"""Object stores: keys and puts instead of directories and renames.

A prefix is not a directory. It is there as long as a key begins with it, nobody creates or removes
it, and credentials may be limited to what is below it. So nothing here asks about a bucket, and
every listing is one of whole keys below a prefix: a listing of one level also names prefixes below
which a bucket keeps only deleted versions.
"""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fsspeckit.storage.fs.backends import RemoteDisk
from fsspeckit.storage.fs.reads import meaning_of, naming_failure
from fsspeckit.storage.listing import list_objects, remote_file

if TYPE_CHECKING:
    from fsspeckit.storage.fs.capabilities import Capabilities
    from fsspeckit.storage.fs.reads import Action
    from fsspeckit.storage.listing import DataFile
    from fsspeckit.storage.roots import Root

__all__ = ["ObjectDisk"]

# How long to wait before putting again where the store is busy with another put of the same name.
_PAUSES = (0.05, 0.2, 0.8)
_TAKEN, _CONFLICT = 412, 409
_CHANGES: dict[str, tuple[str, Action]] = {
    "pipe_file": ("writing", "write"),
    "cp_file": ("copying", "copy"),
    "rm_file": ("removing", "delete"),
}


class ObjectDisk(RemoteDisk):
    """A store that has no directories."""

    def __init__(self, root: Root, capabilities: Capabilities) -> None:
        super().__init__(root.filesystem)
        self._root = root
        self._conditional_put = capabilities.conditional_put

    def read(self, path: str) -> bytes:
        """All bytes of an object."""
        with naming_failure(self._root, path, "reading"):
            try:
                return super().read(path)
            except OSError as error:
                if meaning_of(error) != "denied" or self._is_listed(path):
                    raise
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error

    def names(self, directory: str) -> list[str]:
        """What follows a prefix in the keys that begin with it, up to the next slash, sorted."""
        skip = len(directory) + 1
        try:
            found = list_objects(self._root, directory)
        except FileNotFoundError:  # not even the bucket
            return []
        return sorted({name for key in found if (name := key[skip:].partition("/")[0])})

    def look(self, path: str) -> DataFile | None:
        """An object as it is now, or None if there is none."""
        self._filesystem.invalidate_cache(path.rpartition("/")[0])
        with naming_failure(self._root, path, "reading"):
            try:
                info = self._filesystem.info(path)
            except FileNotFoundError:
                return None
            except OSError as error:
                if meaning_of(error) != "denied" or self._is_listed(path):
                    raise
                return None
        return None if info.get("type") == "directory" else remote_file(path, info)

    def _is_listed(self, path: str) -> bool:
        """Whether an object is there that may not be read.

        A store does not tell everybody that an object is missing: whoever may list only below some
        prefixes is refused instead. A listing knows, or is refused itself.
        """
        directory, _, name = path.rpartition("/")
        return path in list_objects(self._root, directory, name)

    def create(self, path: str, data: bytes) -> None:
        """Create an object, whole or not at all; FileExistsError if it is there.

        An answer may get lost, and the SDK puts again. So the object that is there may be this one.
        """
        if not self._conditional_put:
            super().create(path, data)
            return
        for pause in _PAUSES:
            try:
                self._change("pipe_file", path, data, mode="create")
            except OSError as error:
                status = _TAKEN if isinstance(error, FileExistsError) else _status(error)
                if status == _TAKEN:
                    raise _taken(path) from error
                if status != _CONFLICT:
                    raise
            else:
                return
            time.sleep(pause)
        raise _taken(path)

    def make_directories(self, path: str) -> None:
        """Nothing to do: a prefix is there when an object is below it."""

    def discard_directory(self, path: str) -> bool:
        """Nothing to do: a prefix goes with its last object."""
        return True

    def discard_tree(self, path: str) -> bool:
        """Remove every object of our own below a prefix; False if there are others afterwards."""
        for key in list_objects(self._root, path):
            with suppress(FileNotFoundError):
                self._change("rm_file", key)
        return not list_objects(self._root, path)

    def rename_directory(self, source: str, target: str) -> None:
        """Give the objects below a prefix of our own another one, one after the other."""
        for key in list_objects(self._root, source):
            with suppress(FileNotFoundError):  # published or removed by its owner just now
                self.move_over(key, f"{target}/{key.rpartition('/')[2]}")

    def _change(self, method: str, *arguments: Any, **options: Any) -> None:
        path = [value for value in arguments if isinstance(value, str)][-1]
        phase, action = _CHANGES[method]
        with naming_failure(self._root, path, phase, action):
            super()._change(method, *arguments, **options)


def _status(error: BaseException | None) -> int:
    """The status of the response that an error was made of; 0 if there was none."""
    while error is not None:
        response: Any = getattr(error, "response", None)
        if isinstance(response, dict):
            return int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        error = error.__cause__
    return 0


def _taken(path: str) -> FileExistsError:
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
