"""Names of files below a root: safe, unique, and data.

Partition values and name templates come from users. A name that they make up must stay below the
root, and must be data for every reader.
"""

from __future__ import annotations

import os
import uuid

from fsspeckit.errors import InvalidArgumentError
from fsspeckit.storage.listing import DATA_SUFFIXES, is_data_path

__all__ = ["check_basename", "check_relative", "parents_of", "unique_basename"]


def check_relative(path: str, *, what: str = "path") -> str:
    """Return a path below the root unchanged.

    Raises:
        InvalidArgumentError: If it is absolute, empty, or could leave the root.
    """
    separators = {os.sep, os.altsep} - {"/", None}
    unsafe = any(part in ("", ".", "..") for part in path.split("/"))
    if unsafe or "\0" in path or any(str(char) in path for char in separators):
        raise _unsafe(what, path, "it must stay below the dataset, without '..' or empty parts")
    return path


def check_basename(name: str, *, what: str = "file name") -> str:
    """Return the name of one file or directory unchanged.

    Raises:
        InvalidArgumentError: If it holds a separator or a NUL, or is ``.`` or ``..``.
    """
    if name in ("", ".", "..") or any(char in name for char in "\0/\\"):
        raise _unsafe(what, name, "it must be one name without separators, NUL or '..'")
    return name


def check_data_name(path: str) -> str:
    """Return the relative path of a data file unchanged.

    Raises:
        InvalidArgumentError: If it could leave the root, or readers would not see it as data.
    """
    check_relative(path, what="data file")
    check_basename(path.rpartition("/")[2], what="data file")
    if not is_data_path(path):
        raise _unsafe(
            "data file", path, f"it must end in {' or '.join(DATA_SUFFIXES)}, no part hidden"
        )
    return path


def unique_basename(basename: str = "part.parquet") -> str:
    """A name like the given one that no file ever had before."""
    check_basename(basename)
    stem, suffix = os.path.splitext(basename)
    return f"{stem}-{uuid.uuid4().hex}{suffix}"


def parents_of(relative: str) -> list[str]:
    """The directories above a relative path, deepest first, without the root."""
    parts = relative.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]


def _unsafe(what: str, value: str, rule: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{what} {value!r} is not allowed: {rule}.")
