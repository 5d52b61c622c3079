"""Runs one command again and again, each time with Ctrl-C at another moment.

Started as ``python -m tests.cli.interrupted PLACE PRESSED STRIDE WORDS...``, Ctrl-C comes before
calls that change the disk; if PRESSED is 0, it comes STRIDE times at random. Every directory
``PLACE/<number>`` gets what the command printed; that of ``999999`` was not interrupted. This
process has no threads, so a child is a fork away.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
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
import fsspeckit.datasets.duckdb
import fsspeckit.datasets.pyarrow
from fsspeckit.storage.fs import syscalls

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from fsspeckit.storage.fs.syscalls import Call


NEVER = 999_999
MAX_SECONDS = 20.0


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


def _press_in_command(number: int, frame: FrameType | None) -> None:
    """Press Ctrl-C, unless the command has not begun yet or has ended."""
    inner = frame
    while frame is not None and frame.f_code is not fsspeckit.cli.main.__code__:
        frame = frame.f_back
    handler = signal.getsignal(signal.SIGINT)
    if frame is not None and callable(handler):
        handler(signal.SIGINT, inner)


def _child(place: Path, presser: Presser, seconds: float, words: list[str]) -> None:
    code = 70
    try:
        os.chdir(place)
        sys.stdout = open("out", "w")  # noqa: SIM115
        sys.stderr = open("err", "w")  # noqa: SIM115
        sys.argv = ["fsspeckit", *words]
        signal.signal(signal.SIGALRM, _press_in_command)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        with syscalls.observed(presser):
            fsspeckit.cli.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        Path("calls").write_text(str(presser.count))
        Path("code").write_text(str(code))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(
    place: Path, number: int, words: list[str], *, pressed: int = 0, seconds: float = 0.0
) -> int:
    """Run the command in a copy of the start; how many calls there were."""
    here = place / str(number)
    shutil.copytree(place / "start", here)
    if (process := os.fork()) == 0:
        _child(here, Presser(number, pressed), seconds, words)
    deadline = time.monotonic() + MAX_SECONDS
    while os.waitpid(process, os.WNOHANG)[0] == 0:
        if time.monotonic() > deadline:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            raise TimeoutError(f"{here} does not end")
        time.sleep(0.001)
    return int((here / "calls").read_text())


def main() -> None:
    """Interrupt at every call, at every so many, or at random."""
    place, pressed, stride, words = Path(sys.argv[1]), *map(int, sys.argv[2:4]), sys.argv[4:]
    started = time.monotonic()
    calls = _run(place, NEVER, words)
    seconds = time.monotonic() - started
    if pressed:
        for first in range(0, calls, stride):
            _run(place, first, words, pressed=pressed)
        return
    for number in range(stride):
        _run(place, number, words, seconds=random.uniform(0.001, seconds))


if __name__ == "__main__":
    main()
