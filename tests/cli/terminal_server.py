"""A small process that forks commands onto terminals it is given.

Started as ``python -m tests.cli.terminal_server SOCKET``. It has pyarrow loaded and no threads, so
that a command begins at once. A request is JSON and the terminal's file descriptor; the answers are
the process id, and at its end the exit code.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sys
import termios
import traceback
from typing import Any

import pyarrow.csv
import pyarrow.dataset
import pyarrow.json
import pyarrow.parquet  # noqa: F401 - loaded for the children
import rich.progress  # noqa: F401 - the same

import fsspeckit.cli.app
import fsspeckit.cli.errors
import fsspeckit.cli.output
import fsspeckit.cli.sources
import fsspeckit.datasets.inspection.diagnosis
import fsspeckit.datasets.pyarrow


def _child(request: dict[str, Any], terminal: int) -> None:
    code = 70
    try:
        os.setsid()
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        for descriptor in (0, 1, 2):
            os.dup2(terminal, descriptor)
        # Those of the server may be files, and behave like files.
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.argv = ["fsspeckit", *request["words"]]
        fsspeckit.cli.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Serve one command after the other, until there is nobody to ask."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(sys.argv[1])
        server.listen()
        server.settimeout(300)
        while True:
            connection, _ = server.accept()
            with connection:
                data, (terminal,), _, _ = socket.recv_fds(connection, 65_536, 1)
                if (process := os.fork()) == 0:
                    server.close()
                    _child(json.loads(data), terminal)
                os.close(terminal)
                connection.sendall(b"%d\n" % process)
                _, status = os.waitpid(process, 0)
                connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
