"""A plugin of pytest that takes away what Linux has and macOS has not: `-p tests.like_macos`.

It does so before the package is imported, so that the code paths of macOS run on Linux: there is no
/proc, no renameat2 and no statx, no extended attributes in `os`, no copy_file_range, and fsync is
not enough where `F_FULLFSYNC` exists. What stays as on Linux are the calls themselves: names are
case-sensitive, and `F_FULLFSYNC` is an fsync that is counted.
"""

from __future__ import annotations

import builtins
import ctypes
import fcntl
import io
import os
import shutil
from typing import Any

import pytest

F_FULLFSYNC = 51
"""Its number on macOS."""

GONE_FROM_OS = (
    *("copy_file_range", "listxattr", "getxattr", "setxattr", "removexattr"),
    *("memfd_create", "splice", "pidfd_open"),
)
GONE_FROM_LIBC = ("renameat2", "statx", "syncfs")

NEED_LINUX = {
    "an exchange of directories": (
        *("test_directories_keep_everything_across_an_exchange", "test_history_lists_the_commits"),
        *("test_a_linked_partition_is_published_plainly", "test_the_trash_cannot_be_filled"),
        *("test_recovery_of_a_dataset_that_cannot_be_written", "test_hard_links_refused"),
        "test_a_staged_file_that_vanishes_after_the_commit",
    ),
    "access lists in extended attributes": ("test_a_default_access_list_is_followed",),
    "times of creation, which macOS has elsewhere": (
        "test_a_foreign_file_that_got_the_inode_of_a_replaced_one_is_kept",
        *("test_the_key_index_follows_its_column", "test_a_key_index_excludes_files"),
    ),
    "bind mounts": (
        "test_a_dataset_that_is_a_mount_point_says_so",
        "test_a_data_file_that_is_a_mount_point_is_refused",
    ),
    "the flag of immutable files": (
        "test_an_immutable_file_is_refused_before_the_commit_point",
        "test_a_commit_whose_file_cannot_be_removed_can_be_abandoned",
    ),
    "processes in /proc; without it nobody knows whether an owner without a lock is running": (
        *("test_staging_of_an_owner_elsewhere", "test_a_process_that_is_hidden_is_not_gone"),
        "test_a_forked_process_is_another_owner",
    ),
}
"""Tests of what Linux has, by what that is."""

full_syncs: list[int] = []
"""The descriptors that were synced completely."""

_open, _readlink, _fcntl = builtins.open, os.readlink, fcntl.fcntl


def _is_proc(path: Any) -> bool:
    return isinstance(path, (str, bytes)) and os.fsdecode(path).startswith("/proc/")


def _open_without_proc(file: Any, *arguments: Any, **options: Any) -> Any:
    if _is_proc(file):
        raise FileNotFoundError(2, "No such file or directory", file)
    return _open(file, *arguments, **options)


def _readlink_without_proc(path: Any, *arguments: Any, **options: Any) -> Any:
    if _is_proc(path):
        raise FileNotFoundError(2, "No such file or directory", path)
    return _readlink(path, *arguments, **options)


def _fcntl_with_full_sync(descriptor: Any, command: int, *arguments: Any) -> Any:
    if command != F_FULLFSYNC:
        return _fcntl(descriptor, command, *arguments)
    full_syncs.append(descriptor)
    os.fsync(descriptor)
    return 0


class _Libc(ctypes.CDLL):
    """The C library without what only Linux has."""

    def __getattr__(self, name: str) -> Any:
        if name in GONE_FROM_LIBC:
            raise AttributeError(name)
        return super().__getattr__(name)


def take_away() -> None:
    """Change this process; the package must not be imported yet."""
    for name in GONE_FROM_OS:
        if hasattr(os, name):
            delattr(os, name)
    # It was defined for what `os` had when it was imported.
    shutil._copyxattr = lambda *arguments, **options: None  # type: ignore[attr-defined]
    builtins.open = _open_without_proc
    io.open = _open_without_proc
    os.readlink = _readlink_without_proc
    fcntl.F_FULLFSYNC = F_FULLFSYNC  # type: ignore[attr-defined]
    fcntl.fcntl = _fcntl_with_full_sync
    ctypes.CDLL = _Libc  # type: ignore[misc]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests that are about Linux."""
    for item in items:
        for what, names in NEED_LINUX.items():
            if item.name.startswith(names):
                item.add_marker(pytest.mark.skip(reason=f"about {what}"))


take_away()
