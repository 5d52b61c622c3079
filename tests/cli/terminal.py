"""A real terminal: a command runs on a pseudo-terminal, and its screen can be read."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import pty
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyte

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Terminal"]

_PATIENCE = 120.0
_REPOSITORY = Path(__file__).parents[2]


@cache
def _server() -> str:
    """The socket of the process that begins commands; it lives as long as the tests."""
    directory = tempfile.mkdtemp(prefix="terminal-")
    path = f"{directory}/socket"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.cli.terminal_server", path], cwd=_REPOSITORY
    )

    def stop() -> None:
        process.kill()
        process.wait()
        shutil.rmtree(directory)

    atexit.register(stop)
    deadline = time.monotonic() + _PATIENCE
    while not os.path.exists(path):
        assert process.poll() is None, "the server of terminals could not start"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return path


class Terminal:
    """A command on a terminal of its own; a context manager.

    Args:
        words: The command's arguments.
        cwd: Where it runs.
        columns: How wide the screen is.
        variables: What is set in its environment besides.
    """

    def __init__(
        self,
        *words: object,
        cwd: Path,
        columns: int = 100,
        lines: int = 40,
        variables: dict[str, str] | None = None,
    ) -> None:
        environment = {**os.environ, "TERM": "xterm-256color", **(variables or {})}
        for name in ("COLUMNS", "LINES", "CI", "GITHUB_ACTIONS"):
            environment.pop(name, None)
        self._request = {
            "words": [str(word) for word in words],
            "cwd": str(cwd),
            "environment": environment,
        }
        self._size = (lines, columns)
        self.raw = b""
        """Everything the command has written."""

        self._screen = pyte.Screen(columns, self._size[0])
        self._stream = pyte.ByteStream(self._screen)

    def __enter__(self) -> Terminal:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *self._size, 0, 0))
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.settimeout(_PATIENCE)
        _connect(self._connection)
        socket.send_fds(self._connection, [json.dumps(self._request).encode()], [slave])
        self._answers: Any = self._connection.makefile()
        self._process = int(self._answers.readline())
        os.close(slave)
        self._code: int | None = None
        return self

    def __exit__(self, *exception: object) -> None:
        if self._code is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended, and nobody has asked
                os.kill(self._process, signal.SIGKILL)
            self._answers.readline()
        self._answers.close()
        self._connection.close()
        os.close(self._master)

    @property
    def lines(self) -> list[str]:
        """The lines of the screen, without empty ones at its end."""
        found = [line.rstrip() for line in self._screen.display]
        while found and not found[-1]:
            found.pop()
        return found

    @property
    def text(self) -> str:
        """The whole screen."""
        return "\n".join(self.lines)

    def press(self, keys: bytes) -> None:
        """Press keys; ``\\x03`` is Ctrl-C."""
        os.write(self._master, keys)

    def wait_for(self, seen: Callable[[str], bool]) -> None:
        """Read until something is to be seen on the screen."""
        deadline = time.monotonic() + _PATIENCE
        while not seen(self.text):
            if not self._read(deadline) and not seen(self.text):
                raise AssertionError(f"not seen before the command ended:\n{self.text}")

    def end(self) -> int:
        """Read until the command ends; its exit code."""
        deadline = time.monotonic() + _PATIENCE
        while self._read(deadline):
            pass
        self._code = int(self._answers.readline())
        return self._code

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], deadline - time.monotonic())
        assert ready, f"nothing happens any more:\n{self.text}"
        try:
            data = os.read(self._master, 65_536)
        except OSError:  # what Linux says at the end
            return False
        self.raw += data
        self._stream.feed(data)
        return bool(data)


def _connect(connection: socket.socket) -> None:
    """The socket is there a moment before somebody listens to it."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            connection.connect(_server())
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        else:
            return
