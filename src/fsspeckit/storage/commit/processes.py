"""Which process owns a staging directory, and whether it is still running.

Host name and process number do not tell two containers apart that have the same name and run their
writer as process 1. So each process has a random identifier; and another process is looked up only
if it runs under the same kernel and in the same namespace of process numbers.
"""

from __future__ import annotations

import os
import socket
import uuid
from typing import Any, Literal

from fsspeckit.storage.commit.log import timestamp

__all__ = ["ProcessState", "is_this_process", "state_of", "this_process"]

ProcessState = Literal["running", "gone", "unknown"]

_identifier = uuid.uuid4().hex


def _renew() -> None:
    global _identifier
    _identifier = uuid.uuid4().hex


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


def this_process() -> dict[str, Any]:
    """Describe this process for other writers."""
    return {
        "id": _identifier,
        "pid": os.getpid(),
        "begun": _start_of(os.getpid()),
        "namespace": _namespace(),
        "host": socket.gethostname(),
        "time": timestamp(),
    }


def is_this_process(owner: dict[str, Any]) -> bool:
    """Whether a description is of this process."""
    return owner.get("id") == _identifier


def state_of(owner: dict[str, Any]) -> ProcessState:
    """Whether a process is running that described itself with :func:`this_process`."""
    namespace = _namespace()
    if namespace is None or owner.get("namespace") != namespace:
        return "unknown"
    process = int(owner["pid"])
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return "gone"
    except PermissionError:
        pass  # of another user
    begun = _start_of(process)
    if begun is None:
        return "unknown"  # it is hidden from this user
    return "running" if begun == owner.get("begun") else "gone"  # its number was given again


def _namespace() -> str | None:
    """Inside of what process numbers are unique: this start of the kernel, and the namespace."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return f"{file.read().strip().decode()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # pragma: no cover - not on this platform
        return None


def _start_of(process: int) -> int | None:
    """When a process was started, in ticks of the kernel; None if that cannot be seen."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            # The name, in parentheses, may hold spaces and parentheses itself.
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None
