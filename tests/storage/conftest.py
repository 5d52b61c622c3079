"""Fixtures of the storage tests, and the table of figures that a run prints at its end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.storage.figures import FIGURES, Matrix, render, write_page

from fsspeckit.storage import storage
from fsspeckit.storage.commit import transaction

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).parents[2]


def pytest_configure(config: pytest.Config) -> None:
    Matrix.keeps_cells = config.getoption("--keep-cells")


class ForkServer:
    """Runs one action per child, and kills it where asked."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, action: str, root: str, **request: Any) -> dict[str, Any]:
        self.begin(action, root, **request)
        return self.end()

    def begin(self, action: str, root: str, **request: Any) -> None:
        """Start a child; nothing else may be started until its end."""
        assert self._process.stdin is not None
        line = json.dumps({"action": action, "root": root, **request})
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def end(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert "error" not in answer, answer
        return answer


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.storage.forkserver"],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield ForkServer(process)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.stdout.close()
    process.wait()


@pytest.fixture
def quick_disk() -> Iterator[str]:
    """A directory on a disk in memory where there is one: thousands of fsyncs cost nothing."""
    memory = "/dev/shm"
    usable = os.path.isdir(memory) and os.access(memory, os.W_OK)
    place = tempfile.mkdtemp(dir=memory if usable else None)
    yield os.path.realpath(place)
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fold four records at a time, keep two, and look for records to fold after each commit."""
    monkeypatch.setattr(storage, "BLOCK", 4)
    monkeypatch.setattr(storage, "KEPT", 2)
    monkeypatch.setattr(storage, "_SIZES", (4, 8))
    monkeypatch.setattr(transaction, "_FOLDING_INTERVAL", 1)


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: Any) -> None:
    if not FIGURES:
        return
    terminalreporter.section("figures of the storage proof")
    terminalreporter.write_line(render())
    if os.environ.get("TORTURE") or os.environ.get("WRITE_FIGURES"):
        if _is_whole_proof(terminalreporter, exitstatus, config):
            page = REPOSITORY / "docs" / "concepts" / "commit-protocol.md"
            write_page(page, long=bool(os.environ.get("TORTURE")))
        else:
            terminalreporter.write_line("not written to the page: some tests did not run or failed")


def _is_whole_proof(terminalreporter: Any, exitstatus: int, config: Any) -> bool:
    """Whether every test of the proof ran and passed; a part of it is no news."""
    places = {(Path(config.invocation_params.dir) / place).resolve() for place in config.args}
    complete = bool({REPOSITORY / "tests", REPOSITORY / "tests/storage"} & places)
    return complete and exitstatus == 0 and not terminalreporter.stats.get("deselected")
