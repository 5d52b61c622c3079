"""Runs one command again and again, each time with Ctrl-C at another call that changes the disk.

Started as ``python -m tests.cli.interrupted PLACE PRESSED STRIDE WORDS...``. Every directory
``PLACE/<number>`` gets what the command printed; that of ``999999`` was not interrupted. This
process has no threads, so a child is a fork away.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset
import pyarrow.parquet  # noqa: F401 - loaded for the children

import fsspeckit.cli.app
import fsspeckit.cli.errors
import fsspeckit.cli.output
import fsspeckit.cli.sources
import fsspeckit.datasets.pyarrow
from fsspeckit.storage.fs import syscalls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fsspeckit.storage.fs.syscalls import Call


NEVER = 999_999


class Presser:
    """Presses Ctrl-C before some calls."""

    def __init__(self, first: int, pressed: int) -> None:
        self.count = 0
        self._at = range(first, first + pressed)

    @contextmanager
    def __call__(self, call: Call) -> Iterator[None]:
        if self.count in self._at:
            os.kill(os.getpid(), signal.SIGINT)
        self.count += 1
        yield


def _child(place: Path, first: int, pressed: int, words: list[str]) -> None:
    code = 70
    presser = Presser(first, pressed)
    try:
        os.chdir(place)
        sys.stdout = open("out", "w")  # noqa: SIM115
        sys.stderr = open("err", "w")  # noqa: SIM115
        sys.argv = ["fsspeckit", *words]
        with syscalls.observed(presser):
            fsspeckit.cli.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
        Path("calls").write_text(str(presser.count))
        Path("code").write_text(str(code))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(place: Path, first: int, pressed: int, words: list[str]) -> int:
    """Run the command in a copy of the start; how many calls there were."""
    here = place / str(first)
    shutil.copytree(place / "start", here)
    if (process := os.fork()) == 0:
        _child(here, first, pressed, words)
    os.waitpid(process, 0)
    return int((here / "calls").read_text())


def main() -> None:
    """Interrupt at every call, or at every so many."""
    place, pressed, stride = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    calls = _run(place, NEVER, pressed, sys.argv[4:])
    for first in range(0, calls, stride):
        _run(place, first, pressed, sys.argv[4:])


if __name__ == "__main__":
    main()
