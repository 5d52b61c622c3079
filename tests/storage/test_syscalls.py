"""Every change of a disk goes through one module; nothing can escape the tests that kill there."""

from __future__ import annotations

import ast
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.storage.scenario import FLAT, IN_PLACE, PARTITIONED, SHRINKING, fresh, stage_change

import fsspeckit.storage
from fsspeckit.storage import commit, open_storage, staging, take_snapshot
from fsspeckit.storage.fs import syscalls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.storage.conftest import ForkServer
    from tests.storage.scenario import Scenario

    from fsspeckit.storage import Call

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGING = (
    "os.rename",
    "os.link",
    "os.symlink",
    "os.mkdir",
    "os.remove",
    "os.rmdir",
    "os.chmod",
    "os.chown",
    "os.truncate",
    "os.utime",
    "os.setxattr",
    "os.removexattr",
    "fcntl.flock",
    "shutil.",
    "tempfile.",
)
SOURCES = sorted(Path(fsspeckit.storage.__path__[0]).rglob("*.py"))


class Watch:
    """Compares what the interpreter reports with what passes through the one module."""

    def __init__(self) -> None:
        self.on = False
        self.inside = 0
        self.reported = 0
        self.escaped: list[str] = []

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on or not _changes(event, arguments):
            return
        self.reported += 1
        if not self.inside:
            self.escaped.append(f"{event} {arguments[:2]}")

    @contextmanager
    def __call__(self, call: Call) -> Iterator[None]:
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1


def _changes(event: str, arguments: tuple[Any, ...]) -> bool:
    if event == "open":
        return bool(int(arguments[2] or 0) & _WRITING)
    return event.startswith(_CHANGING)


WATCH = Watch()


@pytest.fixture(scope="module", autouse=True)
def audited() -> None:
    """An audit hook cannot be removed; this one listens only when told to."""
    sys.addaudithook(WATCH.audit)


@pytest.mark.parametrize("publish", ["auto", "plain"])
@pytest.mark.parametrize(
    "scenario", [FLAT, PARTITIONED, SHRINKING, IN_PLACE], ids=lambda item: item.name
)
def test_no_change_escapes(
    tmp_path: Path, fork_server: ForkServer, scenario: Scenario, publish: Any
) -> None:
    root = fresh(scenario, str(tmp_path / "x"))
    fork_server.run("commit", root, scenario=scenario.name, publish=publish, kill=30)
    WATCH.escaped, WATCH.reported = [], 0
    with syscalls.observed(WATCH):
        WATCH.on = True
        storage = open_storage(root, publish=publish)
        snapshot = take_snapshot(storage)
        if not snapshot.number:
            with staging(storage) as stage:
                WATCH.on = False
                change = stage_change(scenario, storage, stage)
                WATCH.on = True
                commit(storage, snapshot, stage, change)
        WATCH.on = False
    assert WATCH.escaped == []
    assert WATCH.reported > 5


def _trees() -> list[tuple[str, ast.AST]]:
    return [(path.name, ast.parse(path.read_text())) for path in SOURCES]


def test_only_one_module_can_reach_the_system() -> None:
    importing = {
        name
        for name, tree in _trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name in ("ctypes", "fcntl", "shutil", "subprocess", "tempfile")
    }
    # Copies of objects are in a temporary directory, which is nobody's dataset.
    assert importing == {"syscalls.py", "local_copies.py"}


def test_calls_without_audit_events_are_in_the_one_module() -> None:
    """``os.write`` and the like raise no event, so their absence is read from the source."""
    quiet = {"write", "ftruncate", "fsync", "fdatasync", "pwrite", "sendfile", "copy_file_range"}
    remote = {"pipe_file", "pipe", "rm", "rm_file", "mv", "cp_file", "copy", "put", "makedirs"}
    found = {
        (name, node.attr)
        for name, tree in _trees()
        if name != "syscalls.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and (
            (node.attr in quiet and isinstance(node.value, ast.Name) and node.value.id == "os")
            or (node.attr in remote and "filesystem" in ast.unparse(node.value))
        )
    }
    # The client of Azure has the methods of a filesystem, which that module calls.
    assert found == {("azure.py", "pipe_file")}


def test_nothing_is_unpickled() -> None:
    text = "".join(path.read_text() for path in SOURCES)
    assert "pickle" not in text
    assert "eval(" not in text
