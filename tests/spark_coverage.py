"""Measures the branches that Spark's Python workers run.

Spark starts its workers by forking a daemon, and ends them with a signal, so a tool that measures
processes from start to end sees nothing of them. This module stands in for the daemon
(``spark.python.daemon.module``): it measures each task and saves what was seen when the task ends.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import daemon

try:
    import coverage
except ImportError:  # a worker with another Python, which a test has prepared
    coverage = None  # type: ignore[assignment]

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

_ROOT = Path(__file__).parents[1]
_running: list[Any] = []


@contextmanager
def _measured() -> Iterator[None]:
    if coverage is None:
        yield
        return
    if not _running:
        _running.append(coverage.Coverage(config_file=_ROOT / "pyproject.toml", data_suffix=True))
    _running[0].start()
    try:
        yield
    finally:
        _running[0].stop()
        _running[0].save()


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Run one task as the daemon does, measured."""
    with _measured():
        return _plain(sock, authenticated)


def settings(directory: Path) -> dict[str, str]:
    """Environment variables that make every session of this process measure its workers."""
    (directory / "spark-defaults.conf").write_text(f"spark.python.daemon.module {__name__}\n")
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        "SPARK_CONF_DIR": str(directory),
        "PYTHONPATH": os.pathsep.join(paths),
        "COVERAGE_FILE": str(_ROOT / os.environ.get("COVERAGE_FILE", ".coverage")),
    }


_plain = daemon.worker

if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
