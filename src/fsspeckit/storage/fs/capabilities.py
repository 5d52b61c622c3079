"""What a filesystem can do for a commit, and what the kernel reports about files and mounts.

Decisions depend on the flags of :class:`Capabilities`, never on the name of a filesystem. The
outcome of every commit lists what is missing.
"""

from __future__ import annotations

import os
import re
import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from fsspeckit.storage.fs import syscalls

if TYPE_CHECKING:
    from fsspeckit.storage.roots import Root


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Flags of one filesystem."""

    exclusive_create: bool
    """Of two writers that create the same record, one fails for certain."""

    whole_put: bool
    """A file exists with all of its bytes, or not at all."""

    atomic_rename: bool
    """A file changes its name in one step."""

    kernel_lock: bool
    """A lock that the system releases when its process dies."""

    exchange: bool
    """Two directories can be swapped in one step."""

    trash: bool
    """Replaced files are kept for a while."""

    durable: bool
    """The files are made to survive a power failure (fsync, or the store's own promise)."""

    directories: bool = True
    """Directories are entries of their own: a file can be created only in one that exists."""

    conditional_put: bool = False
    """The store itself refuses a put under a name that is taken, if asked to."""

    whole_seconds: bool = False
    """Only times distinguish objects, and only a listing reports fractions of a second."""

    def missing(self) -> tuple[str, ...]:
        """Return one sentence for each promise that this filesystem cannot keep."""
        return tuple(
            sentence for flag, sentence in _CONSEQUENCES.items() if not getattr(self, flag)
        )


_CONSEQUENCES = {
    "exclusive_create": "no exclusive create: two writers at the same moment may overwrite each "
    "other's commit; let only one write.",
    "whole_put": "no whole put: a reader may meet a file while it is being copied into place.",
    "atomic_rename": "no atomic rename: files are copied into place, then the copy is removed.",
    "kernel_lock": "no kernel lock: writers exclude each other by the commit record alone.",
    "exchange": "no exchange of directories: other programs may see new files before the old ones "
    "are gone.",
    "trash": "no trash: replaced files are deleted at once; use the store's own versioning.",
    "durable": "no fsync: a power failure may undo what was reported as done.",
}

_LOCAL = Capabilities(
    exclusive_create=True,
    whole_put=True,
    atomic_rename=True,
    kernel_lock=syscalls.CAN_LOCK,
    exchange=syscalls.CAN_EXCHANGE,
    trash=True,
    durable=True,
)
_UNKNOWN = Capabilities(*(False for _ in _CONSEQUENCES))
_MEMORY = replace(_UNKNOWN, exclusive_create=True, whole_put=True)
_OBJECT_STORE = replace(_UNKNOWN, directories=False)
_CONDITIONAL = replace(
    _OBJECT_STORE, exclusive_create=True, whole_put=True, durable=True, conditional_put=True
)
# pyarrow puts without a condition, keeps objects that stand for directories, and lists no ETags.
_ARROW_STORE = replace(_UNKNOWN, whole_put=True, durable=True, whole_seconds=True)
# Stores whose fsspec implementation puts conditionally when asked for mode="create".
_CONDITIONAL_PUT = frozenset({"s3", "s3a", "gs", "gcs"})
_WITHOUT_DIRECTORIES = frozenset({"abfs", "abfss", "az"})


def capabilities_of(root: Root) -> Capabilities:
    """Return the flags of the filesystem that holds a dataset."""
    if root.is_local:
        return _LOCAL
    if root.protocol == "memory":
        return _MEMORY
    known = root.protocol in _CONDITIONAL_PUT
    if root.is_arrow:
        return _ARROW_STORE if known else _UNKNOWN
    if known:
        return _CONDITIONAL
    return _OBJECT_STORE if root.protocol in _WITHOUT_DIRECTORIES else _UNKNOWN


_BASIC_STATS, _BIRTH_TIME = 0x07FF, 0x0800
_IMMUTABLE, _APPEND_ONLY = 0x10, 0x20
_NANOSECONDS = 1_000_000_000
# Up to the time of modification: mask, attributes, mode, inode, size, birth and modification time.
_LAYOUT = struct.Struct("=I4xQ12xH2xQQ32xqI20xqI")


class FileStatus(NamedTuple):
    """One file or directory, symbolic links followed."""

    mode: int
    size: int
    mtime_ns: int
    inode: int

    birth_ns: int | None = None
    """When it was created, where the filesystem records that.

    It distinguishes two files that share inode number, size and time of modification, as files do
    that are unpacked twice with fixed times.
    """

    is_locked: bool = False
    """Whether it is immutable or append-only, so that its name cannot be removed."""


def file_status(path: str) -> FileStatus:
    """Return what the kernel reports about a file; raises OSError as :func:`os.stat` does."""
    answer = syscalls.statx(path, _BASIC_STATS | _BIRTH_TIME)
    if answer is None:
        return _portable_status(path)  # raises the error that statx met, if there was one
    mask, attributes, mode, inode, size, born, born_ns, changed, changed_ns = _LAYOUT.unpack_from(
        answer
    )
    return FileStatus(
        mode,
        size,
        changed * _NANOSECONDS + changed_ns,
        inode,
        born * _NANOSECONDS + born_ns if mask & _BIRTH_TIME else None,
        bool(attributes & (_IMMUTABLE | _APPEND_ONLY)),
    )


def mount_points() -> set[str]:
    """Return the paths where something is mounted: disks, parts of disks, single files."""
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            lines = file.read().splitlines()
    except OSError:  # pragma: no cover - not on this platform
        return set()
    return {os.fsdecode(_unescape_octal(line.split(b" ")[4])) for line in lines}


def _unescape_octal(text: bytes) -> bytes:
    return re.sub(rb"\\([0-7]{3})", lambda escape: bytes([int(escape[1], 8)]), text)


def _portable_status(path: str) -> FileStatus:
    status = os.stat(path)
    born = getattr(status, "st_birthtime", None)
    return FileStatus(
        status.st_mode,
        status.st_size,
        status.st_mtime_ns,
        status.st_ino,
        None if born is None else int(born * _NANOSECONDS),
    )
