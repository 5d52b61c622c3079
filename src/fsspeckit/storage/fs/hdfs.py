"""HDFS through the package hdfs-native.

Its ``mv`` is one call of the name node, which refuses a name that is taken unless it is asked to
replace it. Most of its errors are a RuntimeError with the name of a Java class in its text.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fsspec import AbstractFileSystem

_clients: dict[int, AbstractFileSystem] = {}
"""Clients that were used. The threads of one do not exist in a forked child, which would wait for
them for ever if it dropped the client; and fsspec drops what it remembers when it is forked."""

_ERRORS = {
    "AccessControlException": errno.EACCES,
    "PathIsNotEmptyDirectoryException": errno.ENOTEMPTY,
    "ParentNotDirectoryException": errno.ENOTDIR,
}


def is_hdfs_native(filesystem: AbstractFileSystem) -> bool:
    """Whether a filesystem is HDFS through hdfs-native; ``viewfs://`` may be several."""
    names = filesystem.protocol if filesystem is not None else ()
    is_hdfs = "hdfs" in ((names,) if isinstance(names, str) else names)
    modules = (base.__module__ for base in type(filesystem).__mro__)
    return is_hdfs and any(name.partition(".")[0] == "hdfs_native" for name in modules)


def keep_for_forks(filesystem: AbstractFileSystem) -> None:
    """Keep a client as long as this process, so that its forked children do not drop it."""
    _clients[id(filesystem)] = filesystem


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Give errors of the client the type that Python has for them."""
    try:
        yield
    except RuntimeError as error:
        text = str(error)
        number = next((number for name, number in _ERRORS.items() if name in text), errno.EIO)
        reason = text.partition("\\n")[0] if number == errno.EIO else os.strerror(number)
        raise OSError(number, reason, path) from error
