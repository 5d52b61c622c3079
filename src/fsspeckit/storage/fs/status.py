"""What the kernel reports of a local file, more than :func:`os.stat` has.

Linux reports through ``statx`` when a file was created and whether it is immutable. The time of
creation tells two files apart that share inode number, size and time of modification, as files do
that are unpacked twice with fixed times. Elsewhere, and on filesystems that do not record it, it
is None.
"""

from __future__ import annotations

import os
import re
import struct
from typing import NamedTuple

from fsspeckit.storage.fs import syscalls

__all__ = ["FileStatus", "file_status", "mount_points"]

_BASIC_STATS, _BIRTH_TIME = 0x07FF, 0x0800
_IMMUTABLE, _APPEND_ONLY = 0x10, 0x20
_NANOSECONDS = 1_000_000_000
# Up to the time of modification: mask, attributes, mode, inode, size, birth and modification time.
_LAYOUT = struct.Struct("=I4xQ12xH2xQQ32xqI20xqI")


class FileStatus(NamedTuple):
    """One file or directory, symbolic links followed."""

    mode: int
    """Type and permissions."""

    size: int
    """Bytes."""

    mtime_ns: int
    """Time of the last modification."""

    inode: int
    """Its number on the disk."""

    birth_ns: int | None = None
    """When it was created; None where the filesystem does not record that."""

    is_locked: bool = False
    """Whether it is immutable or append-only, so that its name cannot be removed."""


def file_status(path: str) -> FileStatus:
    """Return what the kernel reports of a file.

    Raises:
        OSError: As :func:`os.stat` does.
    """
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
    """The places where something is mounted: disks, parts of disks, single files."""
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            lines = file.read().splitlines()
    except OSError:  # pragma: no cover - not on this platform
        return set()
    places = (re.sub(rb"\\([0-7]{3})", _octal, line.split(b" ")[4]) for line in lines)
    return set(map(os.fsdecode, places))


def _octal(escape: re.Match[bytes]) -> bytes:
    return bytes([int(escape[1], 8)])


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
